"""The lifelong learner: one model, kept current task by task."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.detect import Detector, FittedDetector, Outputs
from evergraph.detect.base import State
from evergraph.errors import EvergraphError, InputError
from evergraph.graph.classes import columns_among
from evergraph.graph.window import TextMode, Window
from evergraph.inputs.slice_context import SliceContext
from evergraph.inputs.vocabulary import Vocabulary
from evergraph.learning.decisions import Decisions
from evergraph.learning.params import Params
from evergraph.learning.replay import observe_slices, tasks_before
from evergraph.learning.task import Task
from evergraph.learning.training import OnStep, default_rate, train
from evergraph.names import DEFAULT_DETECTOR, build_detector
from evergraph.nn import Batch, Draw, Model, Neighbours, SparseMatrix, carry_over
from evergraph.nn.adam import Adam
from evergraph.nn.base import Parameters, in_use
from evergraph.nn.custom import as_model
from evergraph.nn.memory import kept_memory
from evergraph.nn.sparse import choose_kernels

__all__ = ["LifelongLearner", "Restart"]

log = logging.getLogger(__name__)

Restart = Literal["warm", "cold", "hybrid", "once"]
EXCLUDED = -1e4
"""Logit of a class that must not be decided for."""


class LifelongLearner(Params):
    """Keeps one model current on a graph that grows, and tells classes that were never seen before.

    Parameters
    ----------
    model
        One of `evergraph.nn`, or a ``torch.nn.Module`` of your own that takes ``(x, edge_index)`` and returns hidden
        vectors. GraphSAGE unless given.
    detector
        One of `evergraph.detect`; gDOC unless given. `Softmax` never flags a vertex.
    restart
        ``"warm"`` goes on from the weights of the last task; rows of new classes and words are drawn afresh.
        ``"cold"`` draws all afresh. ``"hybrid"`` is cold when a class is new and warm otherwise. ``"once"`` trains on
        the first task and never again.
    steps
        Steps of training for each task.
    lr
        Learning rate; unless given, the paper's for the model, the detector, the restart and the share of time
        differences that the history covers (see `evergraph.learning.training`).
    weight_decay
        Of Adam, which starts anew for each task.
    text
        How text becomes numbers: see `Window.inputs`.
    seed
        All randomness comes from it: the same seed, data and number of threads give the same numbers.
    kernels
        ``"numba"`` or ``"torch"``; ``"auto"`` takes the first on a processor and the second elsewhere.
    device
        Where to compute: ``"cpu"``, ``"cuda"`` …

    Attributes
    ----------
    classes_
        Names of the known classes in the order of the output layer.
    vocabulary_
        What the input layer reads.
    weights_
        The parameters by name.
    auxiliary_weights_
        Those of the auxiliary model, where the detector requires one.
    detector_
        The detector with all that it has fitted and observed.
    tasks_
        Number of tasks so far.
    time_
        Time of the last task.
    lr_, auxiliary_lr_
        The learning rates of the last task.
    losses_
        Loss of each step of the last task; those of an auxiliary model are not kept.

    Examples
    --------
    >>> import evergraph
    >>> from evergraph.detect import GDOC
    >>> from evergraph.nn import GraphSAGE
    >>> graph = evergraph.datasets.synthetic(vertices=600, times=6, classes=4, new_classes=1, seed=1)
    >>> learner = LifelongLearner(GraphSAGE(hidden=16), detector=GDOC(0.5), steps=50)
    >>> for task in evergraph.tasks(graph, history=3):
    ...     decisions = learner.adapt(task).predict(task)
    >>> learner.time_ == graph.last_time, len(decisions) == len(task.test_ids)
    (True, True)
    """

    def __init__(
        self,
        model: Model | torch.nn.Module | None = None,
        detector: Detector | None = None,
        *,
        restart: Restart = "warm",
        steps: int = 200,
        lr: float | None = None,
        weight_decay: float = 0.0,
        text: TextMode = "past",
        seed: int = 0,
        kernels: Literal["auto", "numba", "torch"] = "auto",
        device: str | torch.device = "cpu",
    ) -> None:
        self.model, self.detector, self.restart, self.steps, self.lr = model, detector, restart, steps, lr
        self.weight_decay, self.text, self.seed, self.kernels, self.device = weight_decay, text, seed, kernels, device
        self.classes_: tuple[str, ...] = ()
        self.vocabulary_: Vocabulary | None = None
        self.weights_: Parameters | None = None
        self.auxiliary_weights_: Parameters | None = None
        self._state: State = {}
        self.tasks_ = 0
        self.time_: int | None = None
        self.lr_: float | None = None
        self.auxiliary_lr_: float | None = None
        self.losses_: list[float] = []
        self._default_rates: dict[type[Detector], float] = {}
        self._last: tuple[Window, Vocabulary, Tensor | SparseMatrix, Neighbours] | None = None
        self._context: SliceContext | None = None
        self._excluded: frozenset[str] = frozenset()
        self._replays = True
        self._built: tuple[object, Model] | None = None
        self._check()

    # --- learning ----------------------------------------------------------------------------------------------------

    def adapt(self, task: Task, on_step: OnStep | None = None) -> Self:
        """Learn from a task's training vertices.

        If it fails or is interrupted, the learner stays as it was. A task without labels to learn from is an error when
        it is the first; later on it changes nothing.

        Parameters
        ----------
        task
            What may be seen. Its time must not be before that of the last task; it is the same where more labels of
            the same times have come.
        on_step
            Called after each step with its number, from 1 up, and its loss. Those of an auxiliary model come
            after the first's, and count on.
        """
        self._check()
        if self.time_ is not None and task.time < self.time_:
            raise InputError(
                f"the task is of {task.graph.axis.label(task.time)}, but the learner has adapted to "
                f"{task.graph.axis.label(self.time_)} already",
                fix="give it later tasks, or start a new learner",
            )
        if self.weights_ is not None and self.restart == "once":
            self.tasks_, self.time_ = self.tasks_ + 1, task.time
            return self
        if not (task.targets >= 0).any():
            self._without_labels(task)
            return self
        rates = dict(self._default_rates)
        try:
            with kept_memory():
                self._adapt(task, on_step)
        except BaseException:
            self._default_rates = rates
            raise
        return self

    def _without_labels(self, task: Task) -> None:
        label = task.graph.axis.label
        span = f"{label(task.window.first)} to {label(task.time - 1)}"
        if self.weights_ is None:
            raise InputError(
                f"there is no label to learn from in {span}",
                fix="choose a longer history, a later first task or a higher label rate",
            )
        log.warning("no label to learn from in %s: the model for %s stays as it was", span, label(task.time))
        self.tasks_, self.time_ = self.tasks_ + 1, task.time

    def _adapt(self, task: Task, on_step: OnStep | None) -> None:
        new = self._new_classes(task)
        classes = (*self.classes_, *new)
        vocabulary = self.vocabulary_ or Vocabulary.start(task.training, self.text)
        vocabulary = vocabulary.grown(task.training, task.time)
        cold = self.weights_ is None or self.restart == "cold" or (self.restart == "hybrid" and bool(new))
        fitted = self._observed(task)
        detector, needs = fitted.detector, fitted.detector.requires

        batch, counts = self._training_batch(task, vocabulary, classes)
        lesson = (task, batch, counts, vocabulary.width, cold)
        weights, lr, losses = self._trained(detector, self.weights_, *lesson, on_step)
        auxiliary: Parameters | None = None
        auxiliary_lr: float | None = None
        if needs.auxiliary is not None:
            after = None if on_step is None else _after(on_step, len(losses))
            auxiliary, auxiliary_lr, _ = self._trained(needs.auxiliary, self.auxiliary_weights_, *lesson, after)
        outputs = self._forward(weights, auxiliary, batch)[batch.labelled] if needs.fit else None
        fitted = fitted.fit(outputs, batch.targets[batch.labelled], cold=cold)
        # From here on nothing can fail: either all of it is new or, above, none.
        self.classes_, self.vocabulary_, self._state = classes, vocabulary, fitted.state
        self.weights_, self.auxiliary_weights_ = weights, auxiliary
        self.lr_, self.auxiliary_lr_, self.losses_ = lr, auxiliary_lr, losses
        self.tasks_, self.time_ = self.tasks_ + 1, task.time

    def _observed(self, task: Task) -> FittedDetector:
        """The detector, after it has observed the labels that have come before a task."""
        fitted = self.detector_
        needs = fitted.detector.requires
        if not needs.observe:
            return fitted
        if self.time_ is not None:
            if needs.auxiliary is not None and self.auxiliary_weights_ is None:
                return fitted  # the detector came later, and its auxiliary model is not trained yet
            return observe_slices(fitted, self.outputs, self.classes_, self.time_, task)
        if not self._replays:
            return fitted
        other = type(self)(**self.get_params())
        other._replays = False
        for past in tasks_before(task, needs.replay):
            other.adapt(past)
        return fitted if other.time_ is None else other._observed(task)

    def _trained(
        self,
        detector: Detector,
        before: Parameters | None,
        task: Task,
        batch: Batch,
        counts: Tensor,
        width: int,
        cold: bool,
        on_step: OnStep | None,
    ) -> tuple[Parameters, float | None, list[float]]:
        """Parameters after those before, trained with a detector's loss; the learning rate, and the losses."""
        model = self._model()
        if (known := model.closed_form(counts)) is not None:
            return known, None, []
        fresh = model.parameters(width, len(counts), Draw(self.seed, self.tasks_))
        weights = {name: value.to(self.device) for name, value in fresh.items()}
        weights = weights if cold or before is None else carry_over(before, weights)
        lr = self._rate(model, detector, task)
        # Without weight decay, weights without a gradient stay as they are.
        part = in_use(model, weights, batch) if self.weight_decay == 0 else None
        changing, read = (weights, batch) if part is None else (part.weights, part.batch)
        trained = [value for name, value in changing.items() if model.trained(name)]
        losses = train(
            model,
            detector,
            changing,
            read,
            counts,
            optimiser=Adam(trained, lr, weight_decay=self.weight_decay, kernels=batch.graph.kernels),
            steps=self.steps,
            seed=(self.seed, self.tasks_),
            on_step=on_step,
        )
        return (weights if part is None else part.laid_over(weights)), lr, losses

    def _new_classes(self, task: Task) -> list[str]:
        found = {task.graph.class_names[code] for code in np.unique(task.targets[task.targets >= 0])}
        # By name: numbers of classes depend on what else the graph holds, also on its future.
        return sorted(found - set(self.classes_))

    def _rate(self, model: Model, detector: Detector, task: Task) -> float:
        if self.lr is not None:
            return self.lr
        if type(detector) not in self._default_rates:  # as in the paper, one for all tasks
            warm = self.restart != "cold"
            self._default_rates[type(detector)] = default_rate(model, detector, warm=warm, level=task.level)
        return self._default_rates[type(detector)]

    def _training_batch(self, task: Task, vocabulary: Vocabulary, classes: tuple[str, ...]) -> tuple[Batch, Tensor]:
        x, graph = self._read(task.training, vocabulary, task.time)
        columns = columns_among(classes, task.graph.class_names)
        rows = int(np.flatnonzero(task.targets >= 0)[-1]) + 1
        targets = torch.from_numpy(columns[task.targets[:rows]]).to(graph.indptr.device)
        batch = Batch(x, graph, rows, targets)
        return batch, torch.bincount(targets[batch.labelled], minlength=len(classes))

    # --- deciding ----------------------------------------------------------------------------------------------------

    def predict(self, task: Task, detector: Detector | None = None, outputs: Outputs | None = None) -> Decisions:
        """Decide the test vertices of a task.

        Parameters
        ----------
        task
            The task; usually the one just adapted to.
        detector
            Another threshold or alpha than that of training, at no cost: training does not depend on them.
        outputs
            What `outputs` gave for the task, where several detectors decide on them.
        """
        own = self._detector()
        if detector is not None and type(detector) is not type(own):
            raise InputError(
                f"the learner was trained with {type(own).__name__}, which cannot decide as {type(detector).__name__}",
                fix=f"give another {type(own).__name__}, or train with the other detector",
            )
        decider = detector or own
        if decider.requires.auxiliary not in (None, own.requires.auxiliary):
            raise InputError(
                f"{type(decider).__name__} requires an auxiliary model, which was not trained",
                fix="train with this detector",
            )
        outputs = self.outputs(task) if outputs is None else outputs
        if decider.requires.context and outputs.context is None:
            outputs = replace(outputs, context=self._context_of(task))
        if self.time_ is not None and task.time < self.time_:
            log.warning("the learner has adapted to later times: it may have learnt the labels of this task")
        best = outputs.logits.argmax(1).cpu().numpy()
        score, flagged = FittedDetector(decider, self._state).decide(outputs)
        return Decisions(
            ids=task.test_ids,
            time=task.time,
            best=np.array(self.classes_, object)[best],
            flagged=flagged.cpu().numpy(),
            score=score.cpu().numpy(),
            probability=decider.probability(outputs.logits).cpu().numpy(),
            known=self.classes_,
        )

    @property
    def detector_(self) -> FittedDetector:
        """The detector with all that it has fitted and observed."""
        return FittedDetector(self._detector(), self._state)

    def outputs(self, task: Task) -> Outputs:
        """What the model says of the test vertices: a column of logits for each of `classes_`."""
        if self.weights_ is None or self.vocabulary_ is None:
            raise EvergraphError("the learner has not learnt anything yet: call adapt(task) first.")
        x, graph = self._read(task.window, self.vocabulary_, task.time)
        everything = Batch(x, graph, len(graph), torch.empty(0, dtype=torch.int64))
        found = self._exclude(self._forward(self.weights_, self.auxiliary_weights_, everything)[task.test])
        return replace(found, context=self._context_of(task)) if self._detector().requires.context else found

    def _exclude(self, outputs: Outputs) -> Outputs:
        """Outputs under which no vertex is of an excluded class."""
        excluded = torch.tensor([name in self._excluded for name in self.classes_], device=outputs.logits.device)
        if not excluded.any() or excluded.all():
            return outputs
        auxiliary = outputs.auxiliary_logits
        auxiliary = None if auxiliary is None else auxiliary.masked_fill(excluded, EXCLUDED)
        return replace(outputs, logits=outputs.logits.masked_fill(excluded, EXCLUDED), auxiliary_logits=auxiliary)

    def _context_of(self, task: Task) -> SliceContext:
        """The context of a task's slice; that of the last slice is kept, because it is observed soon."""
        if self._context is None or not self._context.shows(task, self.classes_):
            self._context = SliceContext(task, self.classes_)
        return self._context

    def _forward(self, weights: Parameters, auxiliary: Parameters | None, batch: Batch) -> Outputs:
        model = self._model()
        with torch.no_grad():
            other = None if auxiliary is None else model.forward(auxiliary, batch, None)[0]
            return Outputs(*model.forward(weights, batch, None), auxiliary_logits=other)

    def _read(self, window: Window, vocabulary: Vocabulary, time: int) -> tuple[Tensor | SparseMatrix, Neighbours]:
        """Features and neighbours as tensors; those of the last window are kept, for training and deciding share it."""
        if self._last is not None and self._last[0] is window and self._last[1] is vocabulary:
            return self._last[2:]
        self._last = None  # before the next is built: there need not be two
        device = torch.device(self.device)
        kernels = choose_kernels(self.kernels, device)
        matrix = vocabulary.read(window, time)
        x: Tensor | SparseMatrix
        if isinstance(matrix, np.ndarray):
            x = torch.from_numpy(np.array(matrix, np.float32)).to(device)  # a copy, for the graph's memory is read-only
        else:
            x = SparseMatrix.of(matrix, device=device, kernels=kernels)
        graph = Neighbours.of(window.links.indptr, window.links.indices, device=device, kernels=kernels)
        self._last = (window, vocabulary, x, graph)
        return x, graph

    # --- keeping -----------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Save into a folder, at once or not at all; a learner that is there is replaced."""
        from evergraph.learning.checkpoint import save

        save(self, Path(folder))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        model: Model | torch.nn.Module | None = None,
        detector: Detector | None = None,
        device: str | torch.device | None = None,
    ) -> Self:
        """Load a saved learner.

        Parameters
        ----------
        folder
            Where it was saved.
        model, detector
            Those of your own, which a file cannot hold.
        device
            Where to compute, if not where it was.
        """
        from evergraph.learning.checkpoint import load

        return load(cls, Path(folder), model, detector, device)

    def restore(
        self,
        *,
        classes: tuple[str, ...],
        vocabulary: Vocabulary,
        weights: Parameters,
        state: State,
        tasks: int,
        time: int | None,
        lr: float | None,
        losses: list[float],
        auxiliary_weights: Parameters | None = None,
        auxiliary_lr: float | None = None,
    ) -> None:
        """Go on from what was saved; weights that are not this model's are refused."""
        expected = _shapes(self._model().parameters(vocabulary.width, len(classes), Draw(0)))
        if any(_shapes(one) != expected for one in (weights, auxiliary_weights) if one is not None):
            raise InputError(
                f"the saved weights are not those of {self._model()!r}", fix="give the model that was trained"
            )
        self.weights_, self.auxiliary_weights_, self._state = weights, auxiliary_weights, state
        self._move()
        self.classes_, self.vocabulary_ = classes, vocabulary
        self.tasks_, self.time_, self.losses_ = tasks, time, losses
        self.lr_, self.auxiliary_lr_ = lr, auxiliary_lr
        own, self._default_rates = self._detector(), {}
        for detector, rate in ((own, lr), (own.requires.auxiliary, auxiliary_lr)):
            if detector is not None and rate is not None and self.lr is None:
                self._default_rates[type(detector)] = rate

    # --- copies ------------------------------------------------------------------------------------------------------

    def renamed(self, names: Mapping[str, str] | Sequence[str]) -> Self:
        """A copy that knows its classes by other names; classes that get the same name are one in its decisions.

        Parameters
        ----------
        names
            New names by old ones, or all new names in the order of `classes_`.
        """
        other = copy(self)
        new = [names.get(name, name) for name in self.classes_] if isinstance(names, Mapping) else names
        other.classes_ = tuple(new)
        return other

    def without_classes(self, names: Collection[str]) -> Self:
        """A copy that decides for none of some classes, unless it knows no others."""
        other = copy(self)
        other._excluded = frozenset(names)
        return other

    def rewound(self, time: int) -> Self:
        """A copy that treats tasks from a time on as new, although the learner may have adapted to later ones."""
        other = copy(self)
        other.time_ = None if self.time_ is None else min(self.time_, time)
        return other

    # --- settings ----------------------------------------------------------------------------------------------------

    def set_params(self, **params: Any) -> Self:
        """Change arguments; they take effect with the next task. If one is refused, none is changed."""
        if self.weights_ is not None and params.get("text", self.text) != self.text:
            raise InputError("text cannot be changed after training", fix="start a new learner")
        restart = self.restart
        super().set_params(**params)
        if self.restart != restart:
            self._default_rates = {}  # which go with the restart
        self._last = None  # which is of the old device and kernels
        self._move()
        return self

    def _move(self) -> None:
        """All that was learnt to the device."""
        self.weights_, self.auxiliary_weights_ = (
            None if weights is None else {name: value.to(self.device) for name, value in weights.items()}
            for weights in (self.weights_, self.auxiliary_weights_)
        )
        self._state = self.detector_.to(self.device).state

    def _model(self) -> Model:
        if self._built is None or self._built[0] is not self.model:
            built = as_model(self.model)
            if self.weights_ is not None and self._built is not None and built != self._built[1]:
                raise InputError(
                    f"the learner was trained with {self._built[1]!r} and cannot go on with {built!r}",
                    fix="keep the model, or start a new learner",
                )
            self._built = (self.model, built)
        return self._built[1]

    def _detector(self) -> Detector:
        return build_detector(DEFAULT_DETECTOR) if self.detector is None else self.detector

    def _check(self) -> None:
        if self.restart not in get_args(Restart):
            raise InputError(
                f"there is no restart {self.restart!r}", fix=f"choose one of {', '.join(get_args(Restart))}"
            )
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise InputError(f"steps is {self.steps!r}", fix="give a whole number from 1 up")
        if self.lr is not None and not self.lr > 0:
            raise InputError(f"lr is {self.lr!r}", fix="give a learning rate above 0")
        if not self.weight_decay >= 0:
            raise InputError(f"weight_decay is {self.weight_decay!r}", fix="give 0 or more")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise InputError(f"seed is {self.seed!r}", fix="give a whole number from 0 up")
        if self.kernels not in ("auto", "numba", "torch"):
            raise InputError(f"there are no kernels {self.kernels!r}", fix="choose 'auto', 'numba' or 'torch'")
        if self.detector is not None and not isinstance(self.detector, Detector):
            raise InputError(f"{self.detector!r} is no detector", fix="give one of evergraph.detect")
        self._model()


def _after(on_step: OnStep, number: int) -> OnStep:
    """Tell of steps that come after others."""
    return lambda step, loss: on_step(number + step, loss)


def _shapes(weights: Parameters) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in weights.items()}
