"""`GEM`: gradient episodic memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor

from evergraph.detect.base import set_number
from evergraph.errors import InputError
from evergraph.learning.regularise import Hook, Lesson, Regulariser, State
from evergraph.nn import Batch, Noise

__all__ = ["GEM", "projected"]

_SMALL = 1e-10  # share of the largest entry that is added to the diagonal, so that equal gradients are no problem


@dataclass(frozen=True)
class GEM(Regulariser):
    """Gradient episodic memory: a step must not increase the loss of the vertices that are kept of each past period.

    The gradient of the loss of the window is replaced by the nearest one whose product with the gradient of each past
    period's loss is not negative. The vertices that are kept are only these constraints: they are not part of the loss.

    Source: Lopez-Paz and Ranzato, Gradient Episodic Memory for Continual Learning, NeurIPS 2017; a past task is a past
    period. The margin is that of all experiments in the authors' program (``run_experiments.sh``). It needs ``memory=``
    of the learner, and a window that is trained as a whole.

    Parameters
    ----------
    margin
        Least weight of a past gradient in the sum when a constraint is violated, γ in the paper.
    most
        Most constraints: one for each of the latest periods, and one for all that are older. Each costs a backward
        pass in each step.

    Examples
    --------
    >>> GEM()
    GEM(margin=0.5, most=5)
    """

    margin: float = 0.5
    most: int = 5
    requires_memory: ClassVar[bool] = True

    def __post_init__(self) -> None:
        set_number(self, "margin")
        set_number(self, "most", 1, whole=True)

    def start(self, lesson: Lesson, state: State) -> Hook | None:  # noqa: ARG002  # the vertices are the memory
        """Return the function that projects the gradient; None if no labelled vertex is kept yet."""
        batch = lesson.batch
        if not isinstance(batch, Batch):
            raise InputError(
                "gem needs a window that is trained as a whole, and this one is trained in mini-batches",
                fix="raise the memory limit, or choose another regulariser",
            )
        past = self._groups(lesson, batch)
        current = batch.labelled[batch.labelled >= lesson.kept]
        if not past or not len(current):
            return None
        values = list(lesson.trained.values())
        sizes = [value.numel() for value in values]

        def project(part: Batch, noise: Noise) -> None:  # noqa: ARG001  # samples do not contain all kept vertices
            found = lesson.readout(batch, noise)
            losses = [lesson.loss_of(found, batch, rows) for rows in (current, *past)]
            flat = [_flat(loss, values, again=loss is not losses[-1]) for loss in losses]
            gradient = projected(flat[0], torch.stack(flat[1:]), self.margin)
            for value, own in zip(values, torch.split(gradient, sizes), strict=True):
                value.grad = own.view_as(value)

        return project

    def _groups(self, lesson: Lesson, batch: Batch) -> list[Tensor]:
        """The rows of the labelled vertices that are kept, by period; the oldest periods together."""
        rows = batch.labelled[batch.labelled < lesson.kept]
        times = torch.from_numpy(np.asarray(lesson.kept_times, np.int64)).to(rows.device)[rows]
        latest = torch.unique(times)[-self.most :]
        times = torch.maximum(times, latest[:1]) if len(latest) else times
        return [rows[times == time] for time in latest]


def projected(gradient: Tensor, past: Tensor, margin: float) -> Tensor:
    """Return the nearest vector whose product with each row of ``past`` is not negative; unchanged if none is.

    It is gradient + past' v, where v solves the dual quadratic program: the least ½ v' P v + (past · gradient)' v with
    P = past · past' and v ≥ margin. With a margin above 0, it is not the nearest one.

    Examples
    --------
    >>> projected(torch.tensor([1.0, -1.0]), torch.tensor([[0.0, 2.0]]), margin=0.0)
    tensor([1., 0.])
    """
    products = (past @ gradient).double()
    if (products >= 0).all():
        return gradient
    weights = torch.from_numpy(_dual((past.double() @ past.double().T).cpu().numpy(), products.cpu().numpy(), margin))
    return gradient + weights.to(past) @ past


def _dual(square: NDArray[np.float64], products: NDArray[np.float64], margin: float) -> NDArray[np.float64]:
    """Solve the quadratic program as a least-squares problem with u = v - margin ≥ 0."""
    square = square + _SMALL * square.diagonal().max() * np.eye(len(square))
    lower = np.linalg.cholesky(square)
    target = -np.linalg.solve(lower, products + margin * square.sum(1))
    return nnls(lower.T, target)[0] + margin


def _flat(loss: Tensor, values: list[Tensor], *, again: bool) -> Tensor:
    found = torch.autograd.grad(loss, values, retain_graph=again, allow_unused=True, materialize_grads=True)
    return torch.cat([part.reshape(-1) for part in found])
