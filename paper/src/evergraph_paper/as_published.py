"""What the authors' code does differently from Evergraph, to reproduce their numbers and to show the difference.

Everything here is wrong, surprising or contradicts the paper's text. This separate reference shares only the models
with Evergraph; no other module behaves like it. The codes (A1 …) are those of `docs/research/errata.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # the usual name

from evergraph.analysis.time_differences import TimeDifferences
from evergraph.evaluation.metrics import open_macro_f1
from evergraph.graph.classes import UNSEEN
from evergraph.graph.evolving import Window
from evergraph.learning.task import Task
from evergraph.nn import GAT, Batch, Draw, GraphSAGE, JKNet, Model, Neighbours, Noise, SparseMatrix

__all__ = [
    "PublishedLearner",
    "class_weights",
    "inductive_training",
    "thresholds",
    "unmapped_open_f1",
    "whole_output_loss",
    "with_self_pairs",
]

Loss = Literal["softmax", "doc", "gdoc"]


def with_self_pairs(differences: TimeDifferences) -> TimeDifferences:
    """Add the pair of each vertex with itself to the time differences: a difference of 0 each (A22).

    Examples
    --------
    >>> cycle = TimeDifferences(np.array([4, 6, 2]), k=2, symmetric=False, sources=5, vertices=5)
    >>> [with_self_pairs(cycle).percentile(level) for level in (25, 50, 75)]
    [0.0, 0.0, 1.0]
    """
    counts = differences.counts.copy()
    counts[0] += differences.sources
    return replace(differences, counts=counts)


def unmapped_open_f1(
    truth: NDArray[np.object_],
    decided: NDArray[np.object_],
    known: Sequence[str],
    order: tuple[str, ...],
    unseen: NDArray[np.bool_],
) -> float:
    """Open-F1 that confuses positions among the known classes with positions among all classes (A1).

    Parameters
    ----------
    truth, decided
        Class names of the vertices, true and decided.
    known
        The classes that the learner knows.
    order
        All classes in the order of their numbers.
    unseen
        Vertices of classes that the learner does not know.

    Examples
    --------
    >>> names, none = np.array(["a", "c", "d"], object), np.zeros(3, bool)
    >>> unmapped_open_f1(names, names, ("a", "c", "d"), ("a", "b", "c", "d"), none)
    0.25
    """
    mistaken = {name: order[position] for position, name in enumerate(sorted(known, key=order.index))}
    return open_macro_f1(truth, np.array([mistaken.get(name, UNSEEN) for name in decided], object), unseen)


def inductive_training(task: Task) -> Window:
    """Return the training window of an inductive task: one period more than its history (A12)."""
    start = task.graph.first_time if task.history is None else task.time - 1 - task.history
    return task.graph.window(min(start, task.time - 1), task.time - 1)


def thresholds(logits: Tensor, targets: Tensor, threshold: float, alpha: float | None) -> Tensor:
    """Return the threshold of each class; with alpha, a class without vertices has deviation 0 and threshold 1."""
    classes = logits.shape[1]
    own = 1 - torch.sigmoid(logits.gather(1, targets.unsqueeze(1)).squeeze(1).double())
    counts = torch.bincount(targets, minlength=classes)
    deviations = torch.sqrt(2 * torch.bincount(targets, own**2, minlength=classes) / (2 * counts - 1).clamp(min=1))
    plain = torch.full((classes,), threshold, dtype=torch.float64)
    return plain if alpha is None else torch.maximum(plain, 1 - alpha * deviations)


def class_weights(counts: Tensor) -> Tensor:
    """Return the weight of each class in gDOC, always (n - n_i) / n_i: with a single class it is 0."""
    return torch.where(counts > 0, (counts.sum() - counts).double() / counts.clamp(min=1), 0)


def whole_output_loss(logits: Tensor, targets: Tensor, counts: Tensor) -> Tensor:
    """Loss of gDOC as in the paper's text: weights the whole loss of an output, not only its positives (A7)."""
    losses = F.binary_cross_entropy_with_logits(logits, _one_hot(logits, targets), reduction="none")
    return (losses * class_weights(counts).to(logits)).mean()


def _one_hot(logits: Tensor, targets: Tensor) -> Tensor:
    return F.one_hot(targets, logits.shape[1]).to(logits)


class Decided(NamedTuple):
    """The best of all outputs, used for the accuracy (A8), and the best known class or `UNSEEN`."""

    best: NDArray[np.object_]
    classes: NDArray[np.object_]


class PublishedLearner:
    """A learner that restarts, grows and optimises like the authors' code, with the words of all periods.

    * Every class of the graph has an output from the start, so future classes are trained as negatives. For a new
      class, only the weights of its output are drawn again, not the bias (A6, A8).
    * One Adam optimiser serves all tasks and keeps its moments, also across cold restarts (A4).
    * A cold restart keeps the biases of GraphSAGE and JKNet (A6).
    * For a new class, the output attention of all classes of GAT is drawn again (A5).
    * Thresholds are fitted to outputs with dropout, as in the last step of training (A20).
    * With ``first_steps=0`` the first task is not trained at all (A3).
    """

    def __init__(
        self,
        model: Model,
        loss: Loss = "softmax",
        *,
        threshold: float = 0.5,
        alpha: float | None = None,
        restart: Literal["warm", "cold"] = "warm",
        steps: int = 200,
        first_steps: int | None = None,
        lr: float = 0.001,
        seed: int = 0,
    ) -> None:
        self.model, self.loss, self.threshold, self.alpha = model, loss, threshold, alpha
        self.restart, self.steps, self.first_steps, self.lr, self.seed = restart, steps, first_steps, lr, seed
        self.classes_: tuple[str, ...] = ()
        self.known_: frozenset[str] = frozenset()
        self.weights_: dict[str, Tensor] = {}
        self.losses_: list[float] = []
        self.tasks_ = 0

    def adapt(self, task: Task) -> Self:
        """Train on the training vertices of a task."""
        names = self.classes_ = task.graph.class_names
        batch = _batch(task.training, task.time, torch.from_numpy(np.asarray(task.targets, np.int64)))
        chosen, targets = batch.labelled, batch.targets[batch.labelled]
        appeared = sorted({int(code) for code in targets if names[code] not in self.known_})
        fresh = self.model.parameters(batch.x.shape[1], len(names), Draw(self.seed, self.tasks_))
        steps = self.steps
        if self.weights_:
            with torch.no_grad():
                self._restart(fresh, appeared)
        else:
            self.weights_ = {name: value.requires_grad_() for name, value in fresh.items()}
            self._adam = torch.optim.Adam(self.weights_.values(), self.lr)
            steps = self.steps if self.first_steps is None else self.first_steps
        self._adam.param_groups[0]["lr"] = self.lr
        counts = torch.bincount(targets, minlength=len(names))
        self.losses_ = []
        noise = None
        for step in range(1, steps + 1):
            noise = Noise(self.seed, self.tasks_, step)
            logits = self.model.forward(self.weights_, batch, noise)[0][chosen]
            loss = self._loss(logits, targets, counts)
            self._adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch's
            self._adam.step()
            self.losses_.append(float(loss.detach()))
        with torch.no_grad():
            logits = self.model.forward(self.weights_, batch, noise)[0][chosen]
            self.thresholds_ = thresholds(logits, targets, self.threshold, self.alpha)
        self.known_ |= {names[code] for code in appeared}
        self.tasks_ += 1
        return self

    def logits(self, window: Window, time: int) -> Tensor:
        """Return the outputs for all vertices of a window, without dropout."""
        batch = _batch(window, time, torch.full((len(window),), -1))
        with torch.no_grad():
            return self.model.forward(self.weights_, batch, None)[0]

    def predict(self, task: Task) -> Decided:
        """Decide the test vertices: known classes decide what is flagged, but the best class is one of all classes."""
        logits = self.logits(task.window, task.time)[task.test]
        names, columns = np.array(self.classes_, object), [self.classes_.index(name) for name in sorted(self.known_)]
        known = logits[:, columns]
        decided = names[columns][known.argmax(1).numpy()]
        if self.loss != "softmax":
            rejected = (torch.sigmoid(known.double()) < self.thresholds_[columns]).all(1).numpy()
            decided = np.where(rejected, UNSEEN, decided)
        return Decided(names[logits.argmax(1).numpy()], decided)

    def _loss(self, logits: Tensor, targets: Tensor, counts: Tensor) -> Tensor:
        if self.loss == "softmax":
            return F.cross_entropy(logits, targets)
        weights = class_weights(counts).to(logits) if self.loss == "gdoc" else None
        return F.binary_cross_entropy_with_logits(logits, _one_hot(logits, targets), pos_weight=weights)

    def _restart(self, fresh: dict[str, Tensor], appeared: list[int]) -> None:
        """Change the weights in place, so that the optimiser keeps them."""
        if self.restart == "cold":
            keeps_bias = isinstance(self.model, (GraphSAGE, JKNet))
            for name, value in fresh.items():
                if not (keeps_bias and name.endswith((".self.bias", ".neighbours.bias"))):
                    self.weights_[name].copy_(value)
            return
        for name in _output_parameters(self.model, len(self.classes_)):
            if isinstance(self.model, GAT) and not name.endswith("weight"):
                if appeared:
                    self.weights_[name].copy_(fresh[name])
            elif not name.endswith("bias"):
                self.weights_[name][..., appeared] = fresh[name][..., appeared]


def _batch(window: Window, time: int, targets: Tensor) -> Batch:
    matrix = window.inputs("global", before=time)
    dense = isinstance(matrix, np.ndarray)
    x = torch.from_numpy(np.array(matrix, np.float32)) if dense else SparseMatrix.of(matrix)
    return Batch(x, Neighbours.of(window.links.indptr, window.links.indices), len(window), targets)


def _output_parameters(model: Model, outputs: int) -> Iterator[str]:
    """Return the names of the parameters that grow with the number of classes."""
    one, more = (model.parameters(3, outputs + extra, Draw(0)) for extra in (0, 1))
    return (name for name in one if one[name].shape != more[name].shape)
