"""What EWC, MAS, TWP and ContinualGNN share: a penalty on changes of important weights."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.learning.regularise import Hook, Lesson, Regulariser, State, old_part
from evergraph.nn import Batch, Noise
from evergraph.nn.base import Parameters

__all__ = ["ANCHOR", "IMPORTANCE", "WeightImportance"]

IMPORTANCE, ANCHOR = "importance/", "anchor/"


class WeightImportance(Regulariser):
    """The penalty is the sum over weights of importance · (weight - anchor)², times `factor`.

    Rows and columns that were added since have no penalty. The importance is summed over tasks. The anchors are either
    the weights after the latest task, or such that the penalty is the sum of one penalty for each past task: a sum of
    squares about different anchors is, up to a constant, a square about their mean, weighted by importance. So the
    state has twice the size of the weights, for any number of tasks.
    """

    latest_anchor: ClassVar[bool] = False
    """Whether the anchors are the weights after the latest task."""

    @property
    @abstractmethod
    def factor(self) -> float:
        """Factor of the penalty."""

    @abstractmethod
    def importance(self, lesson: Lesson) -> Parameters:
        """Return the importance of each trained weight for the task that was just trained."""

    def start(self, lesson: Lesson, state: State) -> Hook | None:
        """Return the function that adds the gradient of the penalty; None if there is no past task."""
        trained, parts = lesson.trained, []
        for name, importance in _named(state, IMPORTANCE).items():
            anchor = state.get(ANCHOR + name)
            if name not in trained or anchor is None or anchor.shape != importance.shape:
                raise InputError("the state of the regulariser is not that of this model", fix="start a new learner")
            if old_part(trained[name], importance).numel():
                parts.append((trained[name], importance, anchor))

        def add(part: Batch, noise: Noise) -> None:  # noqa: ARG001  # the penalty depends on the weights only
            with torch.no_grad():
                for value, importance, anchor in parts:
                    if value.grad is None:
                        value.grad = torch.zeros_like(value)
                    change = old_part(value, importance) - anchor
                    old_part(value.grad, importance).addcmul_(change, importance, value=2 * self.factor)

        return add if parts else None

    def finish(self, lesson: Lesson, state: State) -> State:
        """Return importance and anchors after a task."""
        found: dict[str, Tensor] = {}
        for name, new in self.importance(lesson).items():
            value = lesson.weights[name].detach()
            before, anchor = torch.zeros_like(value), value.clone()
            if (old := state.get(IMPORTANCE + name)) is not None:
                old_part(before, old).copy_(old)
                if not self.latest_anchor:
                    old_part(anchor, old).copy_(state[ANCHOR + name])
            total = before + new
            if not self.latest_anchor:
                # From the weight towards the older anchor, by its share of the importance; where nothing is important,
                # the anchor has no effect.
                anchor = torch.lerp(value, anchor, torch.where(total > 0, before / total, 0.0))
            found |= {IMPORTANCE + name: total, ANCHOR + name: anchor}
        return found


def _named(state: State, prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
