"""`LwF`: learning without forgetting."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.base import set_number
from evergraph.learning.regularise import Hook, Lesson, Regulariser, State
from evergraph.nn import Batch, Noise, carry_over

__all__ = ["LwF"]


@dataclass(frozen=True)
class LwF(Regulariser):
    """Learning without forgetting: on the new task, the model should answer as it did before, among the known classes.

    The penalty is strength times the cross-entropy between the softmax of the previous model's logits and that of the
    current ones, both divided by the temperature, as a mean over the labelled training vertices of the step.

    Source: Li and Hoiem, Learning without Forgetting, ECCV 2016. Strength and temperature are those of the experiments
    in the authors' program (``gridSearchPASCAL.m``). The previous model does not read words that are new.

    Parameters
    ----------
    strength
        Factor of the penalty, λ in the paper.
    temperature
        Divides the logits, T in the paper.

    Examples
    --------
    >>> LwF(10)
    LwF(strength=10.0, temperature=2.0)
    """

    strength: float = 1.0
    temperature: float = 2.0

    def __post_init__(self) -> None:
        set_number(self, "strength")
        set_number(self, "temperature", above=True)

    def start(self, lesson: Lesson, state: State) -> Hook | None:  # noqa: ARG002  # the weights before are enough
        """Return the function that adds the gradient of the penalty; None if there are no weights before."""
        if lesson.before is None:
            return None
        known = lesson.classes
        teacher = carry_over(lesson.before, {name: torch.zeros_like(value) for name, value in lesson.weights.items()})

        def soft(logits: Tensor) -> Tensor:
            return torch.log_softmax(logits[:, :known] / self.temperature, 1)

        def wanted(part: Batch) -> Tensor:
            with torch.no_grad():
                return soft(lesson.logits(part, weights=teacher)).exp()

        of_window = wanted(lesson.batch) if isinstance(lesson.batch, Batch) else None

        def add(part: Batch, noise: Noise) -> None:
            targets = of_window if part is lesson.batch and of_window is not None else wanted(part)
            penalty = -(targets * soft(lesson.logits(part, noise))).sum(1).mean()
            (self.strength * penalty).backward()  # type: ignore[no-untyped-call]  # torch's

        return add
