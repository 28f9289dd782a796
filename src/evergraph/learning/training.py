"""The training loop, a fixed number of steps on one task, and its default learning rates."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from torch import Tensor

from evergraph.detect import DOC, GDOC, Detector
from evergraph.errors import EvergraphError
from evergraph.nn import GAT, MLP, SGC, Batch, GraphSAGE, GraphSAINT, JKNet, Model, Noise
from evergraph.nn.adam import Adam
from evergraph.nn.base import Parameters

__all__ = ["OnStep", "default_rate", "noise_of", "steps_a_task", "train"]

OnStep = Callable[[int, float], object]
"""Called after each step with its number, from 1 up, and its loss."""


def train(
    model: Model,
    detector: Detector,
    weights: Parameters,
    batch: Batch,
    counts: Tensor,
    *,
    optimiser: Adam,
    steps: int,
    seed: tuple[int, int],
    on_step: OnStep | None = None,
) -> list[float]:
    """Train the parameters in place; returns the losses.

    Parameters
    ----------
    model, detector
        The function to train and its loss.
    weights
        The parameters.
    batch, counts
        What there is to learn from, and how many labelled vertices each class has in all of it.
    optimiser
        Of those parameters that are trained.
    steps, seed, on_step
        How often, from which randomness (that of the learner, and the number of the task), and whom to tell.
    """
    for value in optimiser.parameters:
        value.requires_grad_()
    losses: list[float] = []
    # The samples have a stream that nothing else draws from.
    batches = model.batches(batch, np.random.default_rng([*seed, 0, 1]))
    for step in range(1, steps + 1):
        part = next(sample for sample in batches if len(sample.labelled))  # one may have nobody to learn from
        logits, _ = model.forward(weights, part, noise_of(batch, seed, step))
        chosen, targets = part.labelled, part.targets
        if len(chosen) < len(logits):
            logits, targets = logits.index_select(0, chosen), targets.index_select(0, chosen)
        share = None if part.weights is None else part.weights.index_select(0, chosen)
        loss = detector.loss(logits, targets, counts, share)
        optimiser.forget_gradients()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        optimiser.step()
        losses.append(float(loss.detach()))
        if not math.isfinite(losses[-1]):
            raise EvergraphError(
                f"the loss of step {step} is {losses[-1]}: lower the learning rate (lr={optimiser.lr}), or look for "
                "features that are very large or not numbers."
            )
        if on_step is not None:
            on_step(step, losses[-1])
    for value in optimiser.parameters:
        value.requires_grad_(False)
    return losses


def steps_a_task(steps: int, detector: Detector | None) -> int:
    """How many steps a task takes in all, with those of an auxiliary model.

    Examples
    --------
    >>> from evergraph.detect import GDOC, AutoDetector
    >>> steps_a_task(200, GDOC()), steps_a_task(200, AutoDetector())
    (200, 400)
    """
    return steps if detector is None or detector.requires.auxiliary is None else 2 * steps


def noise_of(batch: Batch, seed: tuple[int, int], step: int) -> Noise:
    """The dropout of one step."""
    return Noise(*seed, step, device=batch.graph.indptr.device, kernels=batch.graph.kernels)


# --- default learning rates: those of the paper, which were tuned on DBLP-easy ---------------------------------------

_OTHER = 0.005

# (cold, warm) by the share of time differences that the history covers: 25, 50, 75 and 100 percent.
_Row = tuple[tuple[float, float], tuple[float, float], tuple[float, float], tuple[float, float]]
_CROSS_ENTROPY: dict[type[Model], _Row] = {
    MLP: ((0.001, 0.001), (0.001, 0.001), (0.005, 0.001), (0.005, 0.001)),
    GraphSAGE: ((0.001, 0.001), (0.005, 0.005), (0.01, 0.005), (0.01, 0.005)),
    GAT: ((0.005, 0.001), (0.005, 0.005), (0.05, 0.01), (0.05, 0.05)),
    SGC: ((0.005, 0.005), (0.01, 0.005), (0.01, 0.005), (0.05, 0.01)),
    GraphSAINT: ((0.005, 0.001), (0.005, 0.001), (0.005, 0.001), (0.01, 0.005)),
    JKNet: ((0.005, 0.001), (0.005, 0.001), (0.005, 0.001), (0.01, 0.005)),
}
# The paper's rates for GAT with gDOC are left out: there is strong evidence that they belong to another model.
_DETECTION: dict[tuple[type[Model], type[Detector]], _Row] = {
    (GraphSAGE, DOC): ((0.005, 0.001), (0.005, 0.005), (0.01, 0.005), (0.01, 0.01)),
    (GraphSAGE, GDOC): ((0.005, 0.0005), (0.005, 0.001), (0.01, 0.005), (0.01, 0.005)),
    (SGC, GDOC): ((0.01, 0.005), (0.01, 0.005), (0.01, 0.005), (0.01, 0.01)),
}


def default_rate(model: Model, detector: Detector, *, warm: bool, level: int) -> float:
    """The paper's learning rate for a model, a detector, a restart and the share of time differences covered.

    Where the paper has none with this detector it is that without; where it does not have the model, .005. A model that
    is trained once takes the rate of warm restarts (for GraphSAGE the paper has a lower one there, .001).

    Examples
    --------
    >>> default_rate(GraphSAGE(), GDOC(), warm=True, level=25)
    0.0005
    """
    row = _DETECTION.get((type(model), type(detector))) or _CROSS_ENTROPY.get(type(model))
    return _OTHER if row is None else row[level // 25 - 1][warm]
