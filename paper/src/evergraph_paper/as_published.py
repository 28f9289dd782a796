"""The authors' ways, where they differ from ours: for reproducing their numbers, and for showing what they change.

Everything here is wrong, surprising or at odds with the paper's text; nothing outside of this module behaves like it.
The codes (A1 …) are those of `docs/errata.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  # the name that everyone gives it

from evergraph.analysis.tdiff import TimeDifferences
from evergraph.detect import DOC, GDOC, Detector, Outputs
from evergraph.detect.base import State
from evergraph.errors import EvergraphError, InputError
from evergraph.evaluation.metrics import open_macro_f1
from evergraph.graph.classes import UNSEEN
from evergraph.graph.window import Window
from evergraph.learning.decisions import Decisions
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.task import Task
from evergraph.learning.training import OnStep, noise_of
from evergraph.nn import GAT, Batch, Draw, GraphSAGE, JKNet, Model, Noise
from evergraph.nn.adam import Adam
from evergraph.nn.base import Parameters
from evergraph.nn.sparse import Kernels

__all__ = [
    "InductiveTask",
    "PublishedDOC",
    "PublishedDecisions",
    "PublishedGDOC",
    "PublishedLearner",
    "WholeOutputGDOC",
    "unmapped_open_f1",
    "with_self_pairs",
]


def with_self_pairs(differences: TimeDifferences) -> TimeDifferences:
    """Time differences with each vertex paired with itself, a difference of 0 each (A22).

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
    decisions: Decisions,
    order: tuple[str, ...],
    unseen: NDArray[np.bool_],
) -> float:
    """Open macro-F1 in which positions among the known classes are taken for positions among all classes (A1).

    Parameters
    ----------
    truth
        Class names of the vertices.
    decisions
        What was decided of them.
    order
        All classes in the order of their numbers.
    unseen
        Vertices of classes that the learner does not know.

    Examples
    --------
    >>> names = np.array(["a", "c", "d"], object)
    >>> nobody = np.zeros(3, bool)
    >>> perfect = Decisions(names, 0, names, nobody, np.zeros(3), np.ones(3), known=("a", "c", "d"))
    >>> unmapped_open_f1(names, perfect, ("a", "b", "c", "d"), nobody)
    0.25
    """
    known = sorted(decisions.known, key=order.index)
    mistaken = {name: order[position] for position, name in enumerate(known)}
    decided = np.array([mistaken.get(name, UNSEEN) for name in decisions.classes], object)
    return open_macro_f1(truth, decided, unseen)


# --- tasks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class InductiveTask(Task):
    """An inductive task that trains on one more time than its history says (A12)."""

    mode: Any = "inductive"

    @cached_property
    def training(self) -> Window:
        """The task of the time before: its history and itself, all labelled."""
        start = self.graph.first_time if self.history is None else self.time - 1 - self.history
        return self.graph.window(min(start, self.time - 1), self.time - 1)


# --- detectors -------------------------------------------------------------------------------------------------------


def _absent_never(state: State) -> State:
    """A class without vertices in the window has a deviation of 0 and so, with alpha, a threshold of 1."""
    return {"sd": torch.nan_to_num(state["sd"], nan=0.0)}


@dataclass(frozen=True)
class PublishedDOC(DOC):
    """DOC whose known classes can never be accepted while they are out of the window, where there is an alpha."""

    def fit(self, outputs: Outputs, targets: Tensor, before: State) -> State:  # noqa: ARG002
        """See `DOC`."""
        return _absent_never(super().fit(outputs, targets, {}))


@dataclass(frozen=True)
class PublishedGDOC(GDOC):
    """gDOC with the same; and in a window of one class the weight of that class is 0."""

    def fit(self, outputs: Outputs, targets: Tensor, before: State) -> State:  # noqa: ARG002
        """See `DOC`."""
        return _absent_never(super().fit(outputs, targets, {}))

    def positive_weights(self, counts: Tensor) -> Tensor:
        """(n - n_i) / n_i without exception."""
        return torch.where(counts > 0, (counts.sum() - counts).double() / counts.clamp(min=1), 0)


@dataclass(frozen=True)
class WholeOutputGDOC(GDOC):
    """gDOC as the paper's text has it: the weight is on the whole loss of an output, not on its positives (A7)."""

    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:
        """Binary cross-entropy of each output times the output's weight."""
        ones = F.one_hot(targets, logits.shape[1]).to(logits)
        losses = F.binary_cross_entropy_with_logits(logits, ones, reduction="none")
        losses = (losses * self.positive_weights(counts).to(logits)).mean(1)
        return losses.mean() if weights is None else (losses * weights).sum() / weights.sum()


# --- the learner -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class PublishedDecisions(Decisions):
    """Decisions whose accuracy is taken over all outputs, also those of classes never trained (A8)."""

    among_known: NDArray[np.object_] | None = None

    @property
    def classes(self) -> NDArray[np.object_]:
        """The decision: the best of the known classes, or `UNSEEN`."""
        return np.where(self.rejected, UNSEEN, self.best if self.among_known is None else self.among_known)


class PublishedLearner(LifelongLearner):
    """A learner that restarts, grows and optimises as the authors' code does, over the vocabulary of all times.

    * There is an output for every class of the graph from the start, so future classes are trained downwards; that a
      class is new only redraws the weights (not the bias) of its output (A8).
    * One Adam lives through all tasks and keeps its moments, also over cold restarts (A4).
    * A cold restart keeps the biases of GraphSAGE and JKNet (A6).
    * A new class redraws GAT's output attention of all classes (A5).
    * Thresholds are fitted to outputs with dropout, as in the last step of training (A20).
    * With ``first_steps=0`` the first task is not trained at all (A3).

    Parameters
    ----------
    model, detector, first_steps, **settings
        As of `LifelongLearner`; ``first_steps`` is the number of steps of the first task, as many as of others unless
        given.
    """

    def __init__(
        self, model: Any = None, detector: Detector | None = None, *, first_steps: int | None = None, **settings: Any
    ) -> None:
        super().__init__(model, detector, **{"text": "global", **settings})
        if self.text != "global":
            raise InputError(f"text is {self.text!r}", fix="leave it out: the authors know all words from the start")
        self.first_steps = first_steps
        self.known_: frozenset[str] = frozenset()
        self._found: frozenset[str] = frozenset()
        self._adam: Adam | None = None
        self._next_adam: Adam | None = None

    def _check(self) -> None:
        super()._check()
        if self._detector().second is not None:
            raise InputError(
                f"{type(self.detector).__name__} asks for a second model, which the authors' code has no place for",
                fix="give DOC, gDOC or no detector",
            )

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return LifelongLearner._defaults() | {"text": "global", "first_steps": None}

    def save(self, folder: str | Path) -> None:
        """Not supported: files have no place for what only this learner keeps."""
        raise EvergraphError(f"{folder}: a learner that follows the authors' code cannot be saved.")

    def _adapt(self, task: Task, on_step: OnStep | None) -> None:
        self._found = frozenset(task.graph.class_names[code] for code in np.unique(task.targets[task.targets >= 0]))
        super()._adapt(task, on_step)
        self.known_ |= self._found  # only now, for it may have failed
        self._adam = self._next_adam

    @property
    def _appeared(self) -> list[str]:
        return sorted(self._found - self.known_)

    def _new_classes(self, task: Task) -> list[str]:
        return [] if self.classes_ else list(task.graph.class_names)

    def _is_cold(self, new: bool) -> bool:  # noqa: ARG002  # what is new is known here
        return super()._is_cold(bool(self._appeared))

    def _restarted(self, model: Model, old: Parameters | None, inputs: int, outputs: int, *, cold: bool) -> Parameters:
        fresh = model.parameters(inputs, outputs, Draw(self.seed, self.tasks_))
        if old is None:
            return fresh
        if cold:
            keeps_bias = isinstance(model, (GraphSAGE, JKNet))
            kept = {name for name in fresh if keeps_bias and name.endswith((".self.bias", ".neighbours.bias"))}
            return {name: old[name].clone() if name in kept else value for name, value in fresh.items()}
        kept_all = {name: value.clone() for name, value in old.items()}
        rows = [self.classes_.index(name) for name in self._appeared]
        for name in _output_parameters(model, inputs, outputs):
            if isinstance(model, GAT) and not name.endswith("weight"):
                if rows:
                    kept_all[name] = fresh[name]
            elif not name.endswith("bias"):
                kept_all[name][..., rows] = fresh[name][..., rows]
        return kept_all

    def _leaves_alone_what_is_unused(self) -> bool:
        return False  # an Adam that remembers other tasks moves it

    def _optimiser(self, trained: list[Tensor], lr: float, kernels: Kernels) -> Adam:
        optimiser = super()._optimiser(trained, lr, kernels)
        if self._adam is not None:
            optimiser.steps = self._adam.steps
            optimiser.means = [value.clone() for value in self._adam.means]
            optimiser.squares = [value.clone() for value in self._adam.squares]
        self._next_adam = optimiser
        return optimiser

    def _fitting_noise(self, batch: Batch) -> Noise | None:
        return noise_of(batch, (self.seed, self.tasks_), self.steps)

    def _steps(self) -> int:
        return self.steps if self.first_steps is None or self.weights_ is not None else self.first_steps

    def predict(
        self, task: Task, detector: Detector | None = None, outputs: Outputs | None = None
    ) -> PublishedDecisions:
        """See `LifelongLearner.predict`; a vertex is rejected by the known classes, the best class is of all."""
        outputs, decider = self.outputs(task) if outputs is None else outputs, detector or self._detector()
        columns = [column for column, name in enumerate(self.classes_) if name in self.known_]
        known = tuple(self.classes_[column] for column in columns)
        state = {name: value[columns] for name, value in self.detector_state_.items()}
        some = Outputs(outputs.logits[:, columns], outputs.hidden)
        return PublishedDecisions(
            ids=task.test_ids,
            time=task.time,
            best=np.array(self.classes_, object)[outputs.logits.argmax(1).numpy()],
            rejected=decider.reject(some, state).numpy(),
            score=decider.score(some, state).numpy(),
            probability=decider.probability(some.logits).numpy(),
            known=known,
            among_known=np.array(known, object)[some.logits.argmax(1).numpy()],
        )


def _output_parameters(model: Model, inputs: int, outputs: int) -> list[str]:
    """Names of the parameters that grow with the classes."""
    one, more = (model.parameters(inputs, outputs + extra, Draw(0)) for extra in (0, 1))
    return [name for name in one if one[name].shape != more[name].shape]
