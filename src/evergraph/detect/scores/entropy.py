"""Entropy of the softmax."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.base import Outputs, State
from evergraph.detect.scores.base import Score, odds_against_likeliest

__all__ = ["Entropy"]

_FAR = 1e3  # exp of minus this is 0 in double precision


@dataclass(frozen=True)
class Entropy(Score):
    """Entropy of the softmax, in nats: from 0 (certain) to log(classes) (no class is more likely than another).

    Source: Shannon, A Mathematical Theory of Communication, 1948; a usual baseline for unseen classes.

    Examples
    --------
    >>> Entropy().of(Outputs(torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0]])), {})
    tensor([0.0025, 1.0986], dtype=torch.float64)
    """

    def of(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """See the class."""
        # With g the distances to the largest logit, -log p = g + log Σ exp(-g), which has no large terms to cancel.
        x = outputs.logits.double()
        odds = odds_against_likeliest(x)
        below = (x.amax(1, keepdim=True) - x).clamp(max=_FAR)
        return torch.log1p(odds) + (below * torch.exp(-below)).sum(1) / (1 + odds)
