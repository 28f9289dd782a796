"""Smoothed: another score, shared among the vertices of a slice that are tied to each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from evergraph.detect.base import Detector, Outputs, State
from evergraph.detect.scores.base import Score, inner_state, outer_state, plain_number
from evergraph.errors import InputError

__all__ = ["Smoothed"]

_INNER = "score"


@dataclass(frozen=True)
class Smoothed(Score):
    """x ← (1 - weight) · score + weight · mean of x over its kin, some times over; who has no kin keeps its score.

    A new class comes as a group: its vertices link to each other and share words. Kin are the neighbours within the
    slice and its five nearest by words (`Sight.kin`). Older vertices do not take part, for their classes are known.

    Source of the idea: energy propagation in Wu et al., Energy-based Out-of-Distribution Detection for Graph Neural
    Networks, ICLR 2023, which goes over all edges.

    Parameters
    ----------
    score
        The other score.
    weight
        What kin count for, from 0 up to 1.
    rounds
        How many times.

    Examples
    --------
    >>> from evergraph.detect.scores import Energy
    >>> Smoothed(Energy()).of(Outputs(torch.zeros(1, 2)), {})  # without a graph to look at, the score itself
    tensor([-0.6931], dtype=torch.float64)
    """

    score: Score
    weight: float = 0.7
    rounds: int = 3

    def __post_init__(self) -> None:
        if not isinstance(self.score, Score):
            raise InputError(
                f"the argument score is {self.score!r}, which is no score", fix="give one of evergraph.detect.scores"
            )
        weight = plain_number(self.weight)
        if not 0 <= weight <= 1:
            raise InputError(f"the argument weight is {self.weight!r}", fix="set weight to a number from 0 to 1")
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 0:
            raise InputError(f"the argument rounds is {self.rounds!r}", fix="set rounds to a whole number from 0 up")
        object.__setattr__(self, "weight", weight)

    @property
    def second(self) -> Detector | None:
        """That of the other score."""
        return self.score.second

    def fit(self, outputs: Outputs, targets: Tensor, before: State) -> State:
        """State of the other score."""
        return outer_state(self.score.fit(outputs, targets, inner_state(before, _INNER)), _INNER)

    def look_back(self, outputs: Outputs, targets: Tensor, before: State) -> State:
        """What the other score keeps."""
        return outer_state(self.score.look_back(outputs, targets, inner_state(before, _INNER)), _INNER)

    def of(self, outputs: Outputs, state: State) -> Tensor:
        """See the class."""
        x = self.score.of(outputs, inner_state(state, _INNER))
        if outputs.sight is None or not len(x):
            return x
        kin = outputs.sight.kin
        ties = np.asarray(kin.sum(1)).ravel()
        mean = sparse.diags_array(1 / np.where(ties > 0, ties, 1)) @ kin
        own = x.cpu().numpy()
        found = own
        for _ in range(self.rounds):
            found = np.where(ties > 0, (1 - self.weight) * own + self.weight * (mean @ found), own)
        return torch.from_numpy(found).to(x.device)
