"""Together: several scores, each measured against what it was for vertices of known classes so far."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.base import PAST, UNKNOWN, Outputs, State
from evergraph.detect.scores.base import Score, inner_state, outer_state, plain_number
from evergraph.errors import InputError

__all__ = ["Together"]

_MEANS, _VARIANCES, _UNSEEN, _NUMBER = (
    f"{PAST}{name}" for name in ("means", "variances", "unseen_means", "unseen_number")
)
_MOST = 4.0  # deviations; what lies further out counts no more
_USUAL = 0.7  # deviations by which unseen vertices are expected to lie above known ones


@dataclass(frozen=True)
class Together(Score):
    """Weighted mean of several scores, each in standard deviations from the known-class vertices of the past.

    All slices of the past whose labels have come count alike. A score that is 0 for a whole slice had nothing to see:
    it counts for nought, and nothing is learnt of it there. Levels are kept from slice to slice: where all of a slice
    seems stranger than ever before, all of it scores high. Before anything was looked back at, the slice itself is the
    measure.

    A score counts by how far vertices of unseen classes lay above those of known ones when they were decided, but never
    less than nothing. As these are few, weights stay near equal ones for long: with n such vertices, what they showed
    counts n / (n + weight).

    The state has for each slice of the past a row of ``past.means`` and ``past.variances`` of known-class vertices and
    of ``past.unseen_means``, one column a score, and ``past.unseen_number``, how many these are; and the states of the
    scores under their numbers.

    Parameters
    ----------
    scores
        One or more.
    weight
        How many unseen vertices it takes for what they showed to count as much as equal weights.

    Examples
    --------
    >>> from evergraph.detect.scores import Energy, MaxLogit
    >>> both, outputs = Together((Energy(), MaxLogit())), Outputs(torch.tensor([[0.0], [2.0]]))
    >>> both.of(outputs, both.look_back(outputs, torch.tensor([0, 0]), {}))
    tensor([ 1., -1.], dtype=torch.float64)
    """

    scores: tuple[Score, ...]
    weight: float = 300.0

    def __post_init__(self) -> None:
        scores = tuple(self.scores)
        if not scores or not all(isinstance(score, Score) for score in scores):
            raise InputError(
                f"the argument scores is {self.scores!r}", fix="give one or more of evergraph.detect.scores"
            )
        weight = plain_number(self.weight)
        if not 0 < weight < math.inf:
            raise InputError(
                f"the argument weight is {self.weight!r}", fix="set weight to a number of vertices above 0"
            )
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "weight", weight)

    def fit(self, outputs: Outputs, targets: Tensor, before: State) -> State:
        """States of the scores."""
        found: dict[str, Tensor] = {}
        for number, score in enumerate(self.scores):
            found |= outer_state(score.fit(outputs, targets, inner_state(before, str(number))), str(number))
        return found

    def look_back(self, outputs: Outputs, targets: Tensor, before: State) -> State:
        """With means and variances of one slice more, and what the scores keep."""
        found: dict[str, Tensor] = {}
        for number, score in enumerate(self.scores):
            found |= outer_state(score.look_back(outputs, targets, inner_state(before, str(number))), str(number))
        raw = self._raw(outputs, before)
        known, unseen = raw[targets >= 0], raw[targets == UNKNOWN]
        if len(known):
            rows = {
                _MEANS: known.mean(0),
                _VARIANCES: known.var(0, correction=0),
                _UNSEEN: unseen.sum(0) / max(len(unseen), 1),
                _NUMBER: torch.full_like(known[0], len(unseen)),
            }
            for name, row in rows.items():
                row[_silent(raw)] = torch.nan if name != _NUMBER else 0
                found[name] = torch.cat([before.get(name, row.new_empty(0, *row.shape)).to(row), row[None]])
        return found

    def of(self, outputs: Outputs, state: State) -> Tensor:
        """See the class."""
        raw = self._raw(outputs, state)
        if not len(raw):
            return raw.sum(1)
        if _MEANS in state:
            means, variances = state[_MEANS].to(raw), state[_VARIANCES].to(raw)
        else:
            means, variances = raw.mean(0, keepdim=True), raw.var(0, correction=0, keepdim=True)
        middle = means.nanmean(0)
        spread = torch.sqrt(variances.nanmean(0) + (means - middle).square().nanmean(0))
        says = ~_silent(raw) & (spread > 1e-9 * raw.abs().amax(0))  # not where all were alike
        middle, spread = torch.where(says, middle, 0), torch.where(says, spread, 1)
        deviations = torch.where(says, ((raw - middle) / spread).clamp(-_MOST, _MOST), 0)
        weights = torch.full_like(middle, _USUAL)
        if _NUMBER in state:
            number = state[_NUMBER].to(raw)
            total = number.sum(0)
            showed = ((number * state[_UNSEEN].to(raw).nan_to_num()).sum(0) / total.clamp(min=1) - middle) / spread
            weights = ((total * showed + self.weight * _USUAL) / (total + self.weight)).clamp(min=0)
        total_weight = weights.sum()
        return deviations @ (weights / total_weight if total_weight > 0 else torch.full_like(weights, 1 / len(weights)))

    def _raw(self, outputs: Outputs, state: State) -> Tensor:
        """One column a score."""
        return torch.stack(
            [score.of(outputs, inner_state(state, str(number))) for number, score in enumerate(self.scores)], 1
        )


def _silent(raw: Tensor) -> Tensor:
    """Scores that had nothing to see in a slice."""
    return (raw == 0).all(0)
