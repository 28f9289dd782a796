"""MSP: 1 minus the largest probability of the softmax."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from evergraph.detect.base import Outputs, State
from evergraph.detect.scores.base import Score, odds_against_likeliest

__all__ = ["MSP"]


@dataclass(frozen=True)
class MSP(Score):
    """1 minus the largest softmax probability.

    It is summed over the other classes, so it keeps its digits where the model is all but certain.

    Source: Hendrycks and Gimpel, A Baseline for Detecting Misclassified and Out-of-Distribution Examples, ICLR 2017.

    Examples
    --------
    >>> import torch
    >>> MSP().of(Outputs(torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0], [99.0, 0.0, 0.0]])), {})
    tensor([2.4676e-04, 6.6667e-01, 2.0224e-43], dtype=torch.float64)
    """

    def of(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """See the class."""
        odds = odds_against_likeliest(outputs.logits)
        return odds / (1 + odds)
