"""Relative: another score, seen from the training vertices that the model takes for the same class."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.base import Detector, Outputs, State
from evergraph.detect.scores.base import Score, fitted, inner_state, outer_state, plain_number, predicted
from evergraph.errors import InputError

__all__ = ["Relative"]

_INNER = "score"
_ROUNDING, _NOTHING = 1e-6, 1e-20  # spread, relative to the largest score or at all, that may be nothing but rounding


@dataclass(frozen=True)
class Relative(Score):
    """Another score, standardised by its values on the training vertices that are predicted as the same class.

    (x - mean_c) / sd_c, where c is the class predicted for the vertex. Raw scores move from task to task as a model
    that is trained on and on grows more confident; relative to its own training vertices they do not.

    The state is ``mean`` and ``sd``, one float64 for each known class, ``mean_of_all`` and ``sd_of_all``, and the state
    of the other score under names that start with ``score/``. Classes that no training vertex is predicted as have the
    values of all. Where all training vertices score alike, every deviation is 1. A vertex that is predicted as several
    classes, because their logits are the same, counts for each of them in equal parts.

    Parameters
    ----------
    score
        The other score.
    weight
        How many vertices of its own it takes for a class to count as much as all training vertices together; above 0.

    Examples
    --------
    >>> from evergraph.detect.scores import MaxLogit
    >>> score, train = Relative(MaxLogit(), weight=2), torch.tensor([[9.0, 0.0], [7.0, 0.0], [0.0, 2.0]])
    >>> state = score.fit(Outputs(train), torch.tensor([0, 0, 1]), before={})
    >>> state["mean"], state["mean_of_all"]
    (tensor([-7.0000, -4.6667], dtype=torch.float64), tensor(-6., dtype=torch.float64))
    >>> score.of(Outputs(torch.tensor([[7.0, 0.0], [0.0, 7.0]])), state)
    tensor([ 0.0000, -0.9707], dtype=torch.float64)
    """

    score: Score
    weight: float = 10.0

    def __post_init__(self) -> None:
        if not isinstance(self.score, Score):
            raise InputError(
                f"the argument score is {self.score!r}, which is no score", fix="give one of evergraph.detect.scores"
            )
        weight = plain_number(self.weight)
        if not 0 < weight < math.inf:
            raise InputError(
                f"the argument weight is {self.weight!r}, which is no number above 0",
                fix="set weight to a number of vertices above 0 (10 is usual)",
            )
        object.__setattr__(self, "weight", weight)

    @property
    def second(self) -> Detector | None:
        """That of the other score."""
        return self.score.second

    def fit(self, outputs: Outputs, targets: Tensor, before: State) -> State:
        """State of this score and of the other; see the class."""
        inner = self.score.fit(outputs, targets, inner_state(before, _INNER))
        x = self.score.of(outputs, inner)
        rows, columns, parts = predicted(outputs.logits)
        own, parts = x[rows], parts[rows]
        classes, everyone = outputs.logits.shape[1], max(len(x), 1)

        def sums(values: Tensor) -> Tensor:
            return torch.bincount(columns, values, minlength=classes)

        overall = x.sum() / everyone
        variance = (x - overall).square().sum() / everyone
        counts = sums(parts)
        mean = sums(parts * own) / torch.where(counts > 0, counts, 1)
        squares = sums(parts * (own - mean[columns]).square())
        sd = torch.sqrt((squares + self.weight * variance) / (counts + self.weight))
        least = torch.cat([_ROUNDING * x.abs(), x.new_full((1,), _NOTHING)]).amax()
        alike = variance.sqrt() <= least
        return {
            "mean": (counts * mean + self.weight * overall) / (counts + self.weight),
            "sd": torch.where(alike, 1, sd.clamp(min=least)),
            "mean_of_all": overall,
            "sd_of_all": torch.where(alike, 1, variance.sqrt()),
            **outer_state(inner, _INNER),
        }

    def look_back(self, outputs: Outputs, targets: Tensor, before: State) -> State:
        """What the other score keeps."""
        return outer_state(self.score.look_back(outputs, targets, inner_state(before, _INNER)), _INNER)

    def of(self, outputs: Outputs, state: State) -> Tensor:
        """See the class."""
        x = self.score.of(outputs, inner_state(state, _INNER))
        mean, sd = (_of_classes(state, name, outputs.logits.shape[1]).to(x) for name in ("mean", "sd"))
        rows, columns, parts = predicted(outputs.logits)
        return parts * torch.zeros_like(x).index_add_(0, rows, (x[rows] - mean[columns]) / sd[columns])


def _of_classes(state: State, name: str, classes: int) -> Tensor:
    """A value for each class; that of all for those that came after the state was fitted."""
    values = fitted(state, name)
    return torch.cat([values, fitted(state, f"{name}_of_all").expand(max(classes - len(values), 0))])
