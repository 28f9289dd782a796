"""The contract of every score."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.detect.base import Outputs, Requirements, State
from evergraph.inputs.slice_context import SliceContext

__all__ = ["ContextScore", "Score", "predicted"]


class Score(ABC):
    """Tells how unseen a vertex's class is from the outputs of a trained model.

    Write a subclass as a frozen dataclass. It holds its settings and nothing else; what it fits after training is a
    state. The order of the classes and the order of the vertices do not matter.

    Examples
    --------
    A score that is high for vertices whose two largest logits are near each other:

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Margin(Score):
    ...     def compute(self, outputs, state):
    ...         first, second = outputs.logits.double().topk(2, dim=1).values.T
    ...         return second - first
    >>> Margin().compute(Outputs(torch.tensor([[5.0, 0.0, 1.0], [2.0, 2.5, 0.0]])), {})
    tensor([-4.0000, -0.5000], dtype=torch.float64)
    """

    @property
    def requires(self) -> Requirements:
        """What the learner must provide; by default only the call of `fit`."""
        return Requirements()

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002  # most have no state
        """State after training on a task, as in `Detector.fit`; empty by default."""
        return {}

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002  # most do not
        """What the score keeps once labels of a decided slice have come, as in `Detector.observe`; by default nothing.

        Unlike a detector's, the result is merged into the state, so that it holds only what has changed.
        """
        return {}

    @abstractmethod
    def compute(self, outputs: Outputs, state: State) -> Tensor:
        """How unseen each vertex's class is, as float64: higher means more unseen."""


class ContextScore(Score):
    """A score of a slice in its graph; nothing is fitted.

    Without a graph all vertices score 0. A vertex of which the graph says nothing has the mean of the others.

    Examples
    --------
    >>> from evergraph.detect.scores import NewWords
    >>> NewWords().compute(Outputs(torch.zeros(2, 3)), {})
    tensor([0., 0.], dtype=torch.float64)
    """

    @property
    def requires(self) -> Requirements:
        """The context of the slice."""
        return Requirements(fit=False, context=True)

    @abstractmethod
    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:
        """A value for each vertex of the slice; NaN where there is nothing to measure."""

    def compute(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """The values, with the mean in place of NaN."""
        if outputs.context is None or not len(outputs):
            return outputs.logits.new_zeros(len(outputs), dtype=torch.float64)
        found = np.asarray(self.values(outputs.context, outputs), np.float64)
        there = np.isfinite(found)
        found = np.where(there, found, found[there].mean() if there.any() else 0.0)
        return torch.from_numpy(found).to(outputs.logits.device)


def predicted(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Vertices and columns of the classes predicted for them, and the part of each vertex that a class gets.

    A vertex has several predicted classes where their logits are equal.

    Examples
    --------
    >>> predicted(torch.tensor([[3.0, 1.0], [2.0, 2.0]]))
    (tensor([0, 1, 1]), tensor([0, 0, 1]), tensor([1.0000, 0.5000], dtype=torch.float64))
    """
    largest = logits == logits.amax(1, keepdim=True)
    rows, columns = torch.nonzero(largest, as_tuple=True)
    return rows, columns, 1 / largest.sum(1).double()
