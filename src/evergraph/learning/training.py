"""The training loop of one task, and the default learning rates."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from evergraph.detect import DOC, GDOC, Detector
from evergraph.detect.cross_entropy import takes_readout
from evergraph.errors import EvergraphError
from evergraph.learning.minibatch import MiniBatches
from evergraph.nn import GAT, MLP, SGC, Batch, GraphSAGE, GraphSAINT, JKNet, Model, Noise
from evergraph.nn.adam import Adam
from evergraph.nn.base import Parameters, Readout

__all__ = [
    "Hook",
    "OnStep",
    "batch_loss",
    "check_loss",
    "default_rate",
    "labelled_batches",
    "rows_loss",
    "step_noise",
    "step_rate",
    "steps_a_task",
    "train",
]

_HIGHEST = 0.02  # up to which the learning rate of mini-batches is doubled

OnStep = Callable[[int, float], object]
"""Called after each step with its number, from 1 up, and its loss."""
Hook = Callable[[Batch, Noise], object]
"""Called in each step with its batch and noise, after the gradients are computed; it may change them."""


def train(
    model: Model,
    detector: Detector,
    weights: Parameters,
    batch: Batch | MiniBatches,
    counts: Tensor,
    *,
    optimiser: Adam,
    steps: int,
    seed: tuple[int, int],
    on_step: OnStep | None = None,
    hook: Hook | None = None,
) -> list[float]:
    """Train parameters in place with a detector's loss, and return the loss of each step.

    ``counts`` are the labelled vertices of each class in the window, ``optimiser`` has the parameters that are trained,
    and ``seed`` is the learner's seed and the number of the task. The losses are those before the ``hook``.
    """
    for value in optimiser.parameters:
        value.requires_grad_()
    losses: list[float] = []
    lr = optimiser.lr
    with contextlib.closing(labelled_batches(model, batch, seed)) as batches:
        for step, part in enumerate(itertools.islice(batches, steps), 1):
            loss = batch_loss(model, detector, weights, part, counts, step_noise(part, seed, step))
            optimiser.lr = step_rate(batch, lr, step, steps)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch's
            if hook is not None:
                hook(part, step_noise(part, seed, step))
            optimiser.step()
            losses.append(float(loss.detach()))
            check_loss(losses[-1], step, lr)
            if on_step is not None:
                on_step(step, losses[-1])
    for value in optimiser.parameters:
        value.requires_grad_(False)
    return losses


def labelled_batches(
    model: Model, batch: Batch | MiniBatches, seed: tuple[int, int], rank: int = 0
) -> Generator[Batch, None, None]:
    """Return the batches of the training steps; a sample without labels is drawn again.

    With several workers, each has a stream of random numbers of its own, by its ``rank`` from 0 up.
    """
    if isinstance(batch, MiniBatches):
        return batch.batches(seed, rank)
    rng = np.random.default_rng([*seed, 0, 1 + rank])  # `step_noise` never has 0 in the third place
    return (part for part in model.batches(batch, rng) if len(part.labelled))


def step_rate(batch: Batch | MiniBatches, lr: float, step: int, steps: int) -> float:
    """Return the learning rate of a step, from 1 up.

    With mini-batches it starts higher, because a step learns less from noisier gradients, and falls to 0, so that the
    noise averages out.
    """
    if not isinstance(batch, MiniBatches) or batch.model is not None:
        return lr
    return max(lr, min(2 * lr, _HIGHEST)) * (1 - (step - 1) / steps)


def step_noise(batch: Batch, seed: tuple[int, int], step: int, rank: int = 0) -> Noise:
    """Return the noise of a step, from 1 up; each worker has its own."""
    stream = (*seed, step, rank) if rank else (*seed, step)
    return Noise(*stream, device=batch.graph.indptr.device, kernels=batch.graph.kernels)


def batch_loss(
    model: Model, detector: Detector, weights: Parameters, part: Batch, counts: Tensor, noise: Noise | None
) -> Tensor:
    """Return a detector's loss of the labelled rows of a batch."""
    return rows_loss(detector, model.readout(weights, part, noise), part, part.labelled, counts)


def rows_loss(detector: Detector, found: Readout, part: Batch, chosen: Tensor, counts: Tensor) -> Tensor:
    """Return a detector's loss of some labelled rows of a batch, from the outputs for it."""
    targets = part.targets
    if len(chosen) < len(found):
        found, targets = replace(found, rows=chosen), targets.index_select(0, chosen)
    share = None if part.weights is None else part.weights.index_select(0, chosen)
    outputs: Any = found if takes_readout(detector) else found.logits
    return detector.loss(outputs, targets, counts, share)


def check_loss(loss: float, step: int, lr: float) -> None:
    """Raise an error if a loss is not finite."""
    if not math.isfinite(loss):
        raise EvergraphError(
            f"the loss of step {step} is {loss}",
            fix=f"lower the learning rate (lr={lr}), or check the features for values that are very large or not "
            "numbers",
        )


def steps_a_task(steps: int, detector: Detector | None) -> int:
    """Number of steps per task, including those of an auxiliary model."""
    return steps if detector is None or detector.requires.auxiliary is None else 2 * steps


# --- default learning rates: those of the paper, tuned on DBLP-easy --------------------------------------------------

_OTHER = 0.005

# (cold, warm) by the percentage of time differences that the history covers: 25, 50, 75 and 100.
_Row = tuple[tuple[float, float], tuple[float, float], tuple[float, float], tuple[float, float]]
_CROSS_ENTROPY: dict[type[Model], _Row] = {
    MLP: ((0.001, 0.001), (0.001, 0.001), (0.005, 0.001), (0.005, 0.001)),
    GraphSAGE: ((0.001, 0.001), (0.005, 0.005), (0.01, 0.005), (0.01, 0.005)),
    GAT: ((0.005, 0.001), (0.005, 0.005), (0.05, 0.01), (0.05, 0.05)),
    SGC: ((0.005, 0.005), (0.01, 0.005), (0.01, 0.005), (0.05, 0.01)),
    GraphSAINT: ((0.005, 0.001), (0.005, 0.001), (0.005, 0.001), (0.01, 0.005)),
    JKNet: ((0.005, 0.001), (0.005, 0.001), (0.005, 0.001), (0.01, 0.005)),
}
# The paper's rates for GAT with gDOC are left out: they belong to another model (A2 in docs/errata.md).
_DETECTION: dict[tuple[type[Model], type[Detector]], _Row] = {
    (GraphSAGE, DOC): ((0.005, 0.001), (0.005, 0.005), (0.01, 0.005), (0.01, 0.01)),
    (GraphSAGE, GDOC): ((0.005, 0.0005), (0.005, 0.001), (0.01, 0.005), (0.01, 0.005)),
    (SGC, GDOC): ((0.01, 0.005), (0.01, 0.005), (0.01, 0.005), (0.01, 0.01)),
}


def default_rate(model: Model, detector: Detector, *, warm: bool, level: int) -> float:
    """Return the paper's learning rate for a model, a detector, a restart and a percentage of time differences.

    If the paper has none for the detector, it is the rate of a plain classifier; if it has none for the model or the
    model that it is derived from, .005.
    The restart ``"once"`` uses the warm rate.

    Examples
    --------
    >>> default_rate(GraphSAGE(), GDOC(), warm=True, level=25)
    0.0005
    """
    for kind in type(model).__mro__:
        if row := _DETECTION.get((kind, type(detector))) or _CROSS_ENTROPY.get(kind):
            return row[level // 25 - 1][warm]
    return _OTHER
