"""Stacking: what the classes of older neighbours say is added to a model's logits, with weights fitted on past slices.

A model needs many steps to learn which classes follow which. Counting them over the whole past takes one pass over the
edges. Three weights decide how much the counts matter beside the model: they are fitted to the decisions on each new
slice when its labels arrive, before the model is trained on them. So the weights follow from vertices that the model
had not seen, and are 0 where the classes of neighbours say nothing.

Source: Wolpert, Stacked Generalization, Neural Networks 5 (2), 1992.  (prose: ok)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.graph.classes import columns_among
from evergraph.graph.evolving import Window
from evergraph.inputs.neighbour_classes import NeighbourClasses, neighbour_classes

if TYPE_CHECKING:
    from evergraph.learning.task import Task

__all__ = ["Stacking"]

_START_WEIGHTS = (1.0, 2.0, 0.5)  # of logits, shares and log-odds, until labels of a slice have arrived
_START_PRECISION = 4.0  # of the weights at the start
_EARLIER_WEIGHT = 0.8  # weight of earlier slices at each new one
_SMOOTHING = 0.01  # added to probabilities
_PRIOR_VERTICES = 2.0  # vertices of each class that follow the overall shares, added to the counts
_MAX_VERTICES = 5_000  # vertices of a slice to fit to
_BLOCK = 200_000  # vertices that are counted at a time
_BOUNDS = ((0.05, 10.0), (0.0, 20.0), (0.0, 20.0))

Evidence = NDArray[np.float32]
"""Two numbers for each vertex and class: the share of the class among the older neighbours, and its log-odds."""


@dataclass(frozen=True, eq=False)
class Stacking:
    """How the classes of older neighbours change the logits.

    Parameters
    ----------
    weights
        Weights of the model's logits, of the shares and of the log-odds.
    precision
        How certain the weights are: the curvature of the loss of past slices.
    follows
        Share of each class (column) among the vertices with a neighbour of a class (row).
    prior
        Share of each class.

    Examples
    --------
    >>> evidence = np.array([[[1, 0]], [[0.5, -2.0]]], np.float32)
    >>> Stacking.start().combined(np.array([[1.0, 2.0]]), evidence).tolist()
    [[3.25, 1.0]]
    """

    weights: NDArray[np.float64]
    precision: NDArray[np.float64]
    follows: NDArray[np.float64]
    prior: NDArray[np.float64]

    @classmethod
    def start(cls) -> Stacking:
        """Return the stacking of an untrained learner."""
        weights = np.array(_START_WEIGHTS)
        return cls(weights, _START_PRECISION * np.eye(len(weights)), np.zeros((0, 0)), np.zeros(0))

    def counted(self, task: Task, classes: tuple[str, ...]) -> Stacking:
        """Count which classes follow which, over all labels that are released by the task's time."""
        columns, width = columns_among(classes, task.graph.class_names), len(classes)
        targets = columns.astype(np.int32)[task.released]
        labelled = np.flatnonzero(targets >= 0).astype(np.int32)
        past = slice(0, len(task.released))
        reader, counts = NeighbourClasses(task, past, columns, width), np.zeros((width, width))
        for start in range(0, len(labelled), _BLOCK):
            rows = labelled[start : start + _BLOCK]
            entries = reader.read(rows).tocoo()
            np.add.at(counts, (entries.col, targets[rows][entries.row]), entries.data)
        prior = np.bincount(targets[labelled], minlength=width) / max(len(labelled), 1)
        follows = (counts + _PRIOR_VERTICES * prior) / (counts.sum(1, keepdims=True) + _PRIOR_VERTICES)
        return replace(self, follows=follows, prior=prior)

    def evidence(self, task: Task, window: Window, classes: tuple[str, ...]) -> Evidence:
        """Return what the classes of older neighbours say about the vertices of a window, as [2, vertices, classes].

        The log-odds compare the probability of a class, given the neighbours' classes, with its overall share. A vertex
        without labelled older neighbours has zeros.
        """
        columns = columns_among(classes, task.graph.class_names)
        shares = neighbour_classes(task, window, columns, len(classes)).toarray()
        odds = np.log(shares @ self.follows + _SMOOTHING) - np.log(self.prior + _SMOOTHING)
        found = np.stack([shares, np.where(shares.sum(1, keepdims=True) > 0, odds, 0)]).astype(np.float32)
        first = [classes.index(name) for name in classes]  # merged classes have one name and several columns
        return found[:, :, first]

    def combined(self, logits: NDArray[np.floating], evidence: Evidence) -> NDArray[np.float32]:
        """Return the weighted sum of logits and evidence, whose softmax is the probability of each class."""
        scale, share, odds = self.weights
        return (scale * logits + share * evidence[0] + odds * evidence[1]).astype(np.float32)

    def fitted(self, logits: NDArray[np.floating], evidence: Evidence, targets: NDArray[np.integer]) -> Stacking:
        """Return the weights after a slice whose labels have arrived; ``targets`` are columns, -1 without a label.

        Earlier slices are remembered by the curvature of their loss (a Laplace approximation), and slowly forgotten.
        """
        from scipy.optimize import minimize

        rows = np.flatnonzero(targets >= 0)[-_MAX_VERTICES:]
        if not len(rows):
            return self
        inputs = np.stack([logits[rows], *evidence[:, rows]], 2).astype(np.float64)  # [vertices, classes, 3]
        chosen = np.arange(len(rows)), targets[rows]
        start = _START_PRECISION * np.eye(len(self.weights))
        precision = _EARLIER_WEIGHT * self.precision + (1 - _EARLIER_WEIGHT) * start

        def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            shares = _softmax(inputs @ weights)
            away = precision @ (weights - self.weights)
            value = -np.log(shares[chosen] + 1e-12).sum() + away @ (weights - self.weights) / 2
            shares[chosen] -= 1
            return float(value), np.einsum("vc,vcw->w", shares, inputs) + away

        found = minimize(loss, self.weights, jac=True, method="L-BFGS-B", bounds=_BOUNDS, options={"maxiter": 40}).x
        shares = _softmax(inputs @ found)
        mean = np.einsum("vc,vcw->vw", shares, inputs)
        curvature = np.einsum("vc,vcw,vcz->wz", shares, inputs, inputs) - mean.T @ mean
        return replace(self, weights=found, precision=precision + curvature)

    def tensors(self) -> dict[str, Tensor]:
        """Return all numbers as tensors by name."""
        return {name: torch.from_numpy(value) for name, value in vars(self).items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], classes: int) -> Stacking | None:
        """Return the stacking of these tensors, None without any; refuse what cannot belong to the classes."""
        if not tensors:
            return None
        found = cls(**{name: value.cpu().numpy().astype(np.float64) for name, value in tensors.items()})
        shapes = [value.shape for value in vars(found).values()]
        if shapes != [(3,), (3, 3), (classes, classes), (classes,)]:
            raise ValueError("the weights of the stacking have other shapes")
        least, most = np.transpose(_BOUNDS)
        finite = all(np.isfinite(value).all() for value in vars(found).values())
        inside = (least <= found.weights).all() and (found.weights <= most).all()
        if not (finite and inside and (found.prior >= 0).all() and (found.follows >= 0).all()):
            raise ValueError("the weights of the stacking are outside their bounds")
        return found


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
