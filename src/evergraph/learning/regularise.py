"""The contract of regularisers: they change the gradients of a training step, so that a model forgets less.

A regulariser adds the gradient of a penalty to the gradients of the loss, or projects them. Write it as a frozen
dataclass of settings that derives from `Regulariser`. For each task the learner calls:

1. `Regulariser.start`, before training. It returns a function that is called in each step, between the gradients and
   the update of the parameters, or None;
2. `Regulariser.finish`, after training. It returns the state: tensors by name, which the learner keeps, saves and
   passes to the next task.

Evergraph itself contains no regulariser. Those of the literature are in the package ``evergraph_baselines``.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.detect.base import Detector, State
from evergraph.errors import InputError
from evergraph.learning.minibatch import MiniBatches
from evergraph.learning.training import Hook, batch_loss, labelled_batches, rows_loss
from evergraph.nn import Batch, Model, Noise
from evergraph.nn.base import Parameters, Readout

__all__ = ["Hook", "Lesson", "Regulariser", "State", "gradients", "old_part"]

_STREAM = (0, 0, 1)  # behind seed and task, so that no other random numbers are the same


@dataclass(frozen=True, eq=False)
class Lesson:
    """One training on one task, as a regulariser sees it.

    Parameters
    ----------
    model, detector
        The model, and the detector whose loss it is trained with.
    weights
        The parameters. Training changes them in place.
    batch
        The window, or its mini-batches.
    counts
        Number of labelled vertices of each class in the window.
    seed
        Seed of the learner and number of the task.
    before
        Parameters after the previous task, which may have fewer rows and columns; None at the first task and after a
        cold restart.
    classes
        Number of classes that the model knew before; they are the first columns of the logits.
    kept
        Number of vertices of the batch, from the first on, that are older than the window.
    kept_times
        Period of each of them.
    """

    model: Model
    detector: Detector
    weights: Parameters
    batch: Batch | MiniBatches
    counts: Tensor
    seed: tuple[int, int]
    before: Parameters | None = None
    classes: int = 0
    kept: int = 0
    kept_times: NDArray[np.integer] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def trained(self) -> Parameters:
        """The parameters that training changes by their gradients."""
        return {name: value for name, value in self.weights.items() if self.model.trained(name)}

    def readout(self, part: Batch, noise: Noise | None = None, weights: Parameters | None = None) -> Readout:
        """Return the outputs for a batch, with noise as in training or, by default, without; of other weights if given.

        A module may update its buffers in training; here it updates copies, because the step itself has updated them.
        """
        given = self.weights if weights is None else weights
        if noise is not None:
            given = {name: value if self.model.trained(name) else value.clone() for name, value in given.items()}
        return self.model.readout(given, part, noise)

    def logits(self, part: Batch, noise: Noise | None = None, weights: Parameters | None = None) -> Tensor:
        """Return the logits of the labelled vertices of a batch."""
        return replace(self.readout(part, noise, weights), rows=part.labelled).logits

    def loss(self, part: Batch, weights: Parameters | None = None) -> Tensor:
        """Return the detector's loss of a batch, without noise."""
        return batch_loss(self.model, self.detector, weights or self.weights, part, self.counts, None)

    def loss_of(self, found: Readout, part: Batch, rows: Tensor) -> Tensor:
        """Return the detector's loss of some labelled vertices of a batch, from its outputs."""
        return rows_loss(self.detector, found, part, rows, self.counts)

    def parts(self, most: int) -> Iterator[Batch]:
        """Return the whole window or, of mini-batches, those of one epoch, at most so many."""
        if isinstance(self.batch, Batch):
            yield self.batch
            return
        with closing(labelled_batches(self.model, self.batch, self.seed)) as batches:
            yield from itertools.islice(batches, min(self.batch.per_epoch, most))

    def leaves(self) -> Parameters:
        """Return the parameters such that gradients of `trained` can be computed, without a copy."""
        return {name: value.detach().requires_grad_(self.model.trained(name)) for name, value in self.weights.items()}

    def random(self) -> np.random.Generator:
        """Return random numbers that depend on the seed and the task only."""
        return np.random.default_rng([*self.seed, *_STREAM])


class Regulariser(ABC):
    """Base class of regularisers; subclasses are frozen dataclasses of their settings.

    A saved learner contains the settings and the state. The state is dropped when the model starts from new random
    weights. With a regulariser, training changes all parameters, also those of words that no vertex of the window has.

    Examples
    --------
    A regulariser that holds all weights near those of the previous task:

    >>> @dataclass(frozen=True)
    ... class Near(Regulariser):
    ...     strength: float = 1.0
    ...
    ...     def start(self, lesson, state):
    ...         if lesson.before is None:
    ...             return None
    ...
    ...         def add(part, noise):
    ...             for name, value in lesson.trained.items():
    ...                 before = lesson.before[name]
    ...                 (self.strength * (old_part(value, before) - before).square().sum()).backward()
    ...
    ...         return add
    >>> Near(0.5)
    Near(strength=0.5)
    """

    requires_memory: ClassVar[bool] = False
    """Whether it needs vertices that are older than the window, as ``memory=`` of the learner keeps them."""

    @abstractmethod
    def start(self, lesson: Lesson, state: State) -> Hook | None:
        """Return a function to call in each step after the gradients are computed, or None.

        It is called with the batch of the step and its noise: the same noise that the loss had. It may add to the
        gradients of the parameters (``penalty.backward()`` does) or replace them.

        Parameters
        ----------
        lesson
            The task.
        state
            What `finish` returned for the previous task; empty at the first task and after a cold restart.
        """

    def finish(self, lesson: Lesson, state: State) -> State:  # noqa: ARG002  # most have a state
        """Return the state after training on a task; empty by default."""
        return {}


def old_part(value: Tensor, before: Tensor) -> Tensor:
    """Return the part of a parameter that there was before it grew, as a view.

    Examples
    --------
    >>> old_part(torch.arange(6).view(2, 3), torch.zeros(1, 2))
    tensor([[0, 1]])
    """
    if before.dim() != value.dim() or any(a > b for a, b in zip(before.shape, value.shape, strict=True)):
        raise InputError(
            f"the state of the regulariser has the shape {tuple(before.shape)} where a parameter has "
            f"{tuple(value.shape)}",
            fix="keep the model's settings, or start a new learner",
        )
    return value[tuple(slice(size) for size in before.shape)]


def gradients(
    value: Tensor, leaves: Parameters, slope: Tensor | None = None, *, again: bool = False
) -> dict[str, Tensor]:
    """Return the gradient of a tensor with respect to each parameter that has one; 0 for those that are not used.

    Parameters
    ----------
    value
        The tensor.
    leaves
        Parameters.
    slope
        Gradient with respect to the tensor; not needed of a scalar.
    again
        Whether more gradients of the same computation will be wanted.
    """
    wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    if not value.requires_grad:
        return {name: torch.zeros_like(leaf) for name, leaf in wanted.items()}
    found = torch.autograd.grad(
        value, [*wanted.values()], slope, retain_graph=again, allow_unused=True, materialize_grads=True
    )
    return dict(zip(wanted, found, strict=True))
