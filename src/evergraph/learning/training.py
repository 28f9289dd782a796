"""The training loop: a fixed number of steps on one task."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from torch import Tensor

from evergraph.detect import Detector
from evergraph.errors import EvergraphError
from evergraph.nn import Batch, Model, Noise
from evergraph.nn.adam import Adam
from evergraph.nn.base import Parameters

__all__ = ["OnStep", "noise_of", "steps_a_task", "train"]

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
    """How many steps a task takes in all, with those of a second model.

    Examples
    --------
    >>> from evergraph.detect import GDOC, AutoDetector
    >>> steps_a_task(200, GDOC()), steps_a_task(200, AutoDetector())
    (200, 400)
    """
    return steps if detector is None or detector.second is None else 2 * steps


def noise_of(batch: Batch, seed: tuple[int, int], step: int) -> Noise:
    """The dropout of one step."""
    return Noise(*seed, step, device=batch.graph.indptr.device, kernels=batch.graph.kernels)
