"""Together: several scores, each measured against what it was for vertices of known classes so far."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.base import PAST, Outputs, State
from evergraph.detect.scores.base import Score, inner_state, outer_state
from evergraph.errors import InputError

__all__ = ["Together"]

_MEANS, _VARIANCES = f"{PAST}means", f"{PAST}variances"
_MOST = 4.0  # deviations; what lies further out counts no more


@dataclass(frozen=True)
class Together(Score):
    """Mean of several scores, each in standard deviations from its mean over the known-class vertices of the past.

    All slices of the past whose labels have come count alike. Levels are kept from slice to slice: where all of a slice
    seems stranger than ever before, all of it scores high. Weights are equal: with few unseen vertices to learn from,
    learnt ones did no better. Before anything was looked back at, the slice itself is the measure.

    The state is ``past.means`` and ``past.variances``, one row a slice and one column a score, and the states of the
    scores under their numbers.

    Parameters
    ----------
    scores
        One or more.

    Examples
    --------
    >>> from evergraph.detect.scores import Energy, MaxLogit
    >>> both, outputs = Together((Energy(), MaxLogit())), Outputs(torch.tensor([[0.0], [2.0]]))
    >>> both.of(outputs, both.look_back(outputs, torch.tensor([0, 0]), {}))
    tensor([ 1., -1.], dtype=torch.float64)
    """

    scores: tuple[Score, ...]

    def __post_init__(self) -> None:
        scores = tuple(self.scores)
        if not scores or not all(isinstance(score, Score) for score in scores):
            raise InputError(
                f"the argument scores is {self.scores!r}", fix="give one or more of evergraph.detect.scores"
            )
        object.__setattr__(self, "scores", scores)

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
        known = self._raw(outputs, before)[targets >= 0]
        if len(known):
            for name, row in ((_MEANS, known.mean(0)), (_VARIANCES, known.var(0, correction=0))):
                found[name] = torch.cat([before.get(name, row.new_empty(0, len(row))).to(row), row[None]])
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
        spread = torch.sqrt(variances.mean(0) + means.var(0, correction=0))
        apart = spread > 1e-9 * raw.abs().amax(0)  # else it says nothing: there are no words, or all are alike
        deviations = (raw - means.mean(0)) / torch.where(apart, spread, 1)
        return torch.where(apart, deviations.clamp(-_MOST, _MOST), 0).mean(1)

    def _raw(self, outputs: Outputs, state: State) -> Tensor:
        """One column a score."""
        return torch.stack(
            [score.of(outputs, inner_state(state, str(number))) for number, score in enumerate(self.scores)], 1
        )
