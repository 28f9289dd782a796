"""A line that leaves no more vertices above it than a person can look at."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.past import Past
from evergraph.detect.thresholds.base import Threshold
from evergraph.errors import InputError

__all__ = ["Budget"]


@dataclass(frozen=True)
class Budget(Threshold):
    """Of each slice at most so many vertices are rejected, those with the highest scores.

    Fewer are, where several vertices share the score on which the line falls.

    Parameters
    ----------
    most
        How many.

    Examples
    --------
    >>> Budget(2).excess(torch.tensor([0.3, 0.9, 0.1, 0.5]), torch.zeros(4, dtype=torch.int64), Past.of({})) > 0
    tensor([False,  True, False,  True])
    """

    most: int = 100

    def __post_init__(self) -> None:
        if isinstance(self.most, bool) or not isinstance(self.most, int) or self.most < 0:
            raise InputError(f"the argument most is {self.most!r}", fix="set most to a whole number from 0 up")

    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:  # noqa: ARG002
        """Score minus the highest score that is not rejected."""
        if len(scores) <= self.most:
            return scores - scores.amin() + 1 if len(scores) else scores
        return scores - torch.topk(scores, self.most + 1).values[-1]
