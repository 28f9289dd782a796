"""`EWC`: elastic weight consolidation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from evergraph.detect.base import set_number
from evergraph.learning.regularise import Lesson, gradients
from evergraph.nn.base import Parameters
from evergraph_baselines.regularisers.importance import WeightImportance

__all__ = ["EWC"]


@dataclass(frozen=True)
class EWC(WeightImportance):
    """Elastic weight consolidation: the importance of a weight is its entry on the diagonal of the Fisher information.

    The penalty is strength / 2 · Σ F · (weight - weight after the task)², summed over all past tasks.

    Source: Kirkpatrick et al., Overcoming catastrophic forgetting in neural networks, PNAS 2017. The default strength
    is common in other programs; it could not be compared with the paper. The authors of GEM chose 1 to 1,000 for it,
    those of TWP and CGLB have 10,000 for graphs.

    F is the mean over the labelled training vertices of the squared gradient of the log-likelihood of a class that is
    drawn from the model's softmax. In each of several draws one gradient of the sum over vertices is squared instead
    of one per vertex: because classes are drawn independently and a gradient of the log-likelihood has the mean 0, the
    expected value is the same, and the weights of rare words count too.

    Parameters
    ----------
    strength
        Factor of the penalty, λ in the paper.
    draws
        Number of draws, each of which costs a backward pass after each task. With mini-batches, the number of batches.

    Examples
    --------
    >>> EWC(100)
    EWC(strength=100.0, draws=32)
    """

    strength: float = 400.0
    draws: int = 32

    def __post_init__(self) -> None:
        set_number(self, "strength")
        set_number(self, "draws", 1, whole=True)

    @property
    def factor(self) -> float:
        return self.strength / 2

    def importance(self, lesson: Lesson) -> Parameters:
        """Return an estimate of the diagonal of the Fisher information."""
        leaves, random = lesson.leaves(), lesson.random()
        found = {name: torch.zeros_like(value) for name, value in lesson.trained.items()}
        vertices = 0
        for part in lesson.parts(self.draws):
            logits = lesson.logits(part, weights=leaves)
            probabilities = torch.softmax(logits.detach().double(), 1)
            below = probabilities.cumsum(1)[:, :-1].cpu().numpy()
            draws = self.draws if part is lesson.batch else 1
            for draw in range(draws):
                classes = (random.random((len(below), 1)) > below).sum(1).astype(np.int64)
                slope = -probabilities
                slope[torch.arange(len(slope)), torch.from_numpy(classes).to(slope.device)] += 1
                squares = gradients(logits, leaves, slope.to(logits.dtype), again=draw + 1 < draws)
                for name, value in squares.items():
                    found[name].addcmul_(value, value)
            vertices += draws * len(logits)
        return {name: value / vertices for name, value in found.items()}
