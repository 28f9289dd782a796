"""No detector: the plain softmax classifier, which takes every vertex for one of a known class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.base import Decision, Detector, Outputs, Requirements, State, shares_of
from evergraph.detect.cross_entropy import cross_entropy

__all__ = ["Softmax"]


@dataclass(frozen=True)
class Softmax(Detector):
    """Cross-entropy over the known classes; the score is 1 minus the largest probability; no vertex is flagged.

    Examples
    --------
    >>> outputs = Outputs(torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    >>> Softmax().decide(outputs, {}).score
    tensor([2.4676e-04, 6.6667e-01], dtype=torch.float64)
    """

    @property
    def requires(self) -> Requirements:
        """Nothing."""
        return Requirements(fit=False)

    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Cross-entropy, as a (weighted) mean over vertices; 0 where no vertex has weight."""
        return cross_entropy(logits, targets, shares_of(logits, weights))

    def decide(self, outputs: Outputs, state: State) -> Decision:  # noqa: ARG002  # nothing is fitted
        """Score with 1 minus the largest softmax probability, and flag none."""
        score = 1 - torch.softmax(outputs.logits.double(), 1).amax(1)
        return Decision(score, torch.zeros_like(score, dtype=torch.bool))
