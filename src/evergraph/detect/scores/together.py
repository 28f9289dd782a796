"""Together: several scores, each measured against what it was for vertices of known classes so far."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.base import PAST, Detector, Outputs, State
from evergraph.detect.scores.base import Score, inner_state, outer_state, plain_number
from evergraph.errors import InputError

__all__ = ["Together"]

_MEANS, _VARIANCES = f"{PAST}means", f"{PAST}variances"
_MOST = 4.0  # deviations; what lies further out counts no more


@dataclass(frozen=True)
class Together(Score):
    """Weighted mean of several scores, each in standard deviations from the known-class vertices of the past.

    All slices of the past whose labels have come count alike. A score that is 0 for a whole slice had nothing to see:
    it counts for nought, and nothing is learnt of it there. Levels are kept from slice to slice: where all of a slice
    seems stranger than ever before, all of it scores high. Before anything was looked back at, the slice itself is the
    measure.

    The state has for each slice of the past a row of ``past.means`` and ``past.variances`` of known-class vertices, one
    column a score, and the states of the scores under their numbers.

    Parameters
    ----------
    scores
        One or more.
    counts
        How much each counts; all the same unless given.

    Examples
    --------
    >>> from evergraph.detect.scores import Energy, MaxLogit
    >>> both, outputs = Together((Energy(), MaxLogit())), Outputs(torch.tensor([[0.0], [2.0]]))
    >>> both.of(outputs, both.look_back(outputs, torch.tensor([0, 0]), {}))
    tensor([ 1., -1.], dtype=torch.float64)
    """

    scores: tuple[Score, ...]
    counts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        scores = tuple(self.scores)
        if not scores or not all(isinstance(score, Score) for score in scores):
            raise InputError(
                f"the argument scores is {self.scores!r}", fix="give one or more of evergraph.detect.scores"
            )
        given = tuple(self.counts) if isinstance(self.counts, (tuple, list)) else (self.counts,)
        counts = tuple(map(plain_number, given)) or (1.0,) * len(scores)
        if len(counts) != len(scores) or not all(0 < count < math.inf for count in counts):
            raise InputError(
                f"the argument counts is {self.counts!r} for {len(scores)} scores",
                fix="give as many numbers above 0 as there are scores, or none",
            )
        if len({score.second for score in scores} - {None}) > 1:
            raise InputError("the scores ask for different second models", fix="leave all but one kind of them out")
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "counts", counts)

    @property
    def second(self) -> Detector | None:
        """That of the scores."""
        return next((score.second for score in self.scores if score.second is not None), None)

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
        known = raw[targets >= 0]
        if len(known):
            for name, row in ((_MEANS, known.mean(0)), (_VARIANCES, known.var(0, correction=0))):
                row[_silent(raw)] = torch.nan
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
        counts = torch.tensor(self.counts, dtype=raw.dtype, device=raw.device)
        return deviations @ (counts / counts.sum())

    def _raw(self, outputs: Outputs, state: State) -> Tensor:
        """One column a score."""
        return torch.stack(
            [score.of(outputs, inner_state(state, str(number))) for number, score in enumerate(self.scores)], 1
        )


def _silent(raw: Tensor) -> Tensor:
    """Scores that had nothing to see in a slice."""
    return (raw == 0).all(0)
