"""`ContinualGNN`: important are the weights that the previous model needs for the vertices that are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from evergraph.detect.base import set_number
from evergraph.errors import InputError
from evergraph.learning.regularise import Hook, Lesson, State, gradients, old_part
from evergraph.nn import Batch, carry_over
from evergraph.nn.base import Parameters
from evergraph_baselines.regularisers.importance import ANCHOR, IMPORTANCE, WeightImportance

__all__ = ["ContinualGNN"]


@dataclass(frozen=True)
class ContinualGNN(WeightImportance):
    """The regulariser of ContinualGNN: weight consolidation with the importance for the vertices that are kept.

    The penalty is strength / 2 · Σ F · (weight - weight of the previous task)². Before each task, F is computed from
    the previous model: the square of the gradient of its loss on the vertices that are kept. Nothing is summed over
    tasks.

    Source: Wang, Song, Wu and Wang, Streaming Graph Neural Networks via Continual Learning, CIKM 2020, by the authors'
    program; the strength is that of its example. The nearest to the whole system is
    ``window:1+memory:random:10%+regulariser:continual-gnn``; what is missing is in ``docs/research/baselines.md``. It
    needs ``memory=`` of the learner, and a window that is trained as a whole.

    Parameters
    ----------
    strength
        Factor of the penalty, λ in the paper.

    Examples
    --------
    >>> ContinualGNN(10)
    ContinualGNN(strength=10.0)
    """

    strength: float = 80.0
    requires_memory: ClassVar[bool] = True

    def __post_init__(self) -> None:
        set_number(self, "strength")

    @property
    def factor(self) -> float:
        return self.strength / 2

    def start(self, lesson: Lesson, state: State) -> Hook | None:  # noqa: ARG002  # the weights before are enough
        """Return the function that adds the gradient of the penalty; None if nothing is past or kept."""
        before = lesson.before
        if before is None or not lesson.kept:
            return None
        zeros = {name: torch.zeros_like(value) for name, value in lesson.weights.items()}
        past: dict[str, Tensor] = {}
        for name, value in self.importance(replace(lesson, weights=carry_over(before, zeros))).items():
            past |= {IMPORTANCE + name: old_part(value, before[name]), ANCHOR + name: before[name]}
        return super().start(lesson, past)

    def importance(self, lesson: Lesson) -> Parameters:
        """Return the square of the gradient of the loss of the vertices that are kept."""
        if not isinstance(lesson.batch, Batch):
            raise InputError(
                "continual-gnn needs a window that is trained as a whole, and this one is trained in mini-batches",
                fix="raise the memory limit, or choose another regulariser",
            )
        leaves = lesson.leaves()
        rows = lesson.batch.labelled[lesson.batch.labelled < lesson.kept]
        loss = lesson.loss_of(lesson.readout(lesson.batch, weights=leaves), lesson.batch, rows)
        return {name: value.square() for name, value in gradients(loss, leaves).items()}

    def finish(self, lesson: Lesson, state: State) -> State:  # noqa: ARG002
        """Return nothing, because the importance is computed before each task."""
        return {}
