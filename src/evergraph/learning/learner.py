"""The lifelong learner: one model, updated task by task."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from evergraph.allocation import kept_memory
from evergraph.detect.base import UNLABELLED, Detector, FittedDetector, Outputs, State
from evergraph.errors import DamagedLearnerError, EvergraphError, InputError
from evergraph.graph.classes import columns_among
from evergraph.graph.evolving import TextMode, Window
from evergraph.inputs.neighbour_classes import label_delay
from evergraph.inputs.slice_context import SliceContext
from evergraph.inputs.vocabulary import FeatureReader, Vocabulary, as_inputs, blocks_of, check_inputs
from evergraph.learning.attribution import Attribution, explain
from evergraph.learning.backtest import BlockGain, backtest, optional_blocks, without_useless
from evergraph.learning.data_parallel import DataParallel
from evergraph.learning.inference import exact_outputs
from evergraph.learning.memory import Kept, MemoryPolicy, as_memory, remember
from evergraph.learning.memory_limit import Plan, limit_of, parse_size, size_in_words
from evergraph.learning.minibatch import MiniBatches, WindowSource
from evergraph.learning.parameters import Counted, TrainingData, solved_parameters, trained_parameters
from evergraph.learning.regularise import Regulariser
from evergraph.learning.stacking import Stacking
from evergraph.learning.task import AUTO_LEVEL, Decisions, Task, tasks_before
from evergraph.learning.training import OnStep, default_rate
from evergraph.names import DEFAULT_DETECTOR, build_detector
from evergraph.nn import Batch, Matrix, Model, Neighbours
from evergraph.nn.base import Parameters, as_model
from evergraph.nn.device import check_device
from evergraph.nn.ops import choose_kernels

__all__ = ["LifelongLearner", "Restart"]

log = logging.getLogger(__name__)

Restart = Literal["warm", "cold", "hybrid", "once"]
EXCLUDED = -1e4
"""Logit of a class that must not be predicted."""
_FITTED = 100_000  # labelled vertices of mini-batches that a detector is fitted to, drawn at random


class LifelongLearner:
    """Updates one model task by task, and flags vertices of unseen classes.

    Parameters
    ----------
    model
        A model of `evergraph.nn`, or a ``torch.nn.Module`` that takes ``(x, edge_index)`` and returns hidden vectors;
        GraphSAGE by default.
    detector
        A detector of `evergraph.detect`; `AutoDetector` by default. `Softmax` flags no vertex.
    restart
        ``"warm"`` starts from the previous weights, with new random rows for new classes and words. ``"cold"`` starts
        from new random weights. ``"hybrid"`` is cold if a class is new and warm otherwise. ``"once"`` trains on the
        first task only.
    steps
        Training steps per task. With mini-batches there are four times as many, because a step learns less, and at
        least so many that each labelled vertex is in one of them.
    lr
        Learning rate; by default the paper's for the model, the detector, the restart and the percentage of time
        differences that the history covers (`evergraph.learning.training`).
    weight_decay
        Weight decay of Adam, from 0 up. Each task has a new Adam.
    inputs
        What the model reads of a vertex: some of ``words``, ``classes``, ``numbers``, ``encoder`` and ``categories``,
        as a list or joined by commas (`evergraph.inputs.vocabulary.BLOCKS`). ``"auto"`` is what the graph has, without
        classes or encoder where the labels of past slices show that they do not pay.
    text
        How text becomes numbers, as in `Window.inputs`.
    seed
        Seed of all randomness, from 0 up: the same seed, data and number of threads give the same numbers.
    kernels
        ``"numba"`` or ``"torch"``; ``"auto"`` is numba on a CPU and torch elsewhere.
    device
        Device to compute on, such as ``"cpu"`` or ``"cuda"``.
    trainer
        A `DataParallel` that trains on several workers with Ray; by default this process trains. It is not saved with
        the learner.
    memory_limit
        Resident memory that the process may use, in bytes or as ``"4GB"``; by default most of what is free. A window
        that takes more is trained in mini-batches with sampled neighbours, and predicted in blocks, which is exact. It
        is not saved with the learner.
    memory
        Labelled vertices older than the window that stay in training: a policy of `evergraph.learning.memory`, or its
        name and budget, such as ``"recent-per-class:2000"``. By default none. With a memory, the default learning rate
        is that of a history which covers at least half of the time differences.
    regulariser
        A `Regulariser`, which holds the model near what it has learnt; by default there is none. It applies to the
        model, not to an auxiliary model.
    retire_after
        Number of periods without a label after which a class is not predicted any more. When it gets a label again, it
        is predicted again with what the model knows of it. By default no class retires.

    Attributes
    ----------
    classes_
        Names of the known classes in the order of the output layer.
    vocabulary_
        Columns of the input layer.
    block_gains_
        What each optional block of the input has gained on past slices; with ``inputs="auto"`` only.
    stacking_
        Weights of the classes of older neighbours beside the logits; None if the inputs do not include classes.
    weights_, auxiliary_weights_
        Parameters by name, of the model and of the auxiliary model (None if the detector requires none).
    detector_
        The detector with all that it has fitted and observed.
    tasks_, time_
        Number of tasks so far, and period of the last one.
    lr_, auxiliary_lr_
        Learning rates of the last task.
    losses_
        Loss of each step of the last task, without those of an auxiliary model.
    kept_
        The vertices that the memory keeps.

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
        inputs: str | Sequence[str] = "auto",
        text: TextMode = "past",
        seed: int = 0,
        kernels: Literal["auto", "numba", "torch"] = "auto",
        device: str | torch.device = "cpu",
        trainer: DataParallel | None = None,
        memory_limit: str | int | None = None,
        memory: MemoryPolicy | str | None = None,
        regulariser: Regulariser | None = None,
        retire_after: int | None = None,
    ) -> None:
        self.model, self.detector, self.restart, self.steps, self.lr = model, detector, restart, steps, lr
        self.weight_decay, self.inputs, self.text, self.seed = weight_decay, inputs, text, seed
        self.kernels, self.device, self.trainer, self.memory_limit = kernels, device, trainer, memory_limit
        self.memory = memory
        self.regulariser, self.retire_after = regulariser, retire_after
        self.classes_: tuple[str, ...] = ()
        self.vocabulary_: Vocabulary | None = None
        self.block_gains_: dict[str, BlockGain] = {}
        self.stacking_: Stacking | None = None
        self.weights_: Parameters | None = None
        self.auxiliary_weights_: Parameters | None = None
        self._state: State = {}
        self._regularised: State = {}  # of the regulariser
        self.tasks_ = 0
        self.time_: int | None = None
        self.lr_: float | None = None
        self.auxiliary_lr_: float | None = None
        self.losses_: list[float] = []
        self.kept_ = Kept()
        self._default_rates: dict[type[Detector], float] = {}
        self._last: tuple[Window, Vocabulary, tuple[str, ...], list[int], Matrix, Neighbours] | None = None
        self._context: SliceContext | None = None
        self._loaded = False  # the state comes from a file
        self._excluded: frozenset[str] = frozenset()
        self._unused: int | None = None  # first period whose labels were not used
        self._counted: Counted | None = None  # the vertices in the sums of a model in closed form
        self._replays = True
        self._built: tuple[object, Model] | None = None
        self._check()

    # --- training ----------------------------------------------------------------------------------------------------

    def adapt(self, task: Task, on_step: OnStep | None = None) -> Self:
        """Train on a task's training vertices.

        If it fails or is interrupted, the learner stays as it was. A first task without labels is an error; a later one
        changes nothing.

        Parameters
        ----------
        task
            The task. Its period must not be before that of the last task; it may be the same if more labels have
            arrived.
        on_step
            Called after each step with its number, from 1 up, and its loss. The steps of an auxiliary model follow and
            continue the count. With mini-batches, numbers are scaled such that the last one is ``steps``.
        """
        self._check()
        if self.time_ is not None and task.time < self.time_:
            label = task.graph.axis.label
            raise InputError(
                f"the task is of {label(task.time)}, but the learner is already trained for {label(self.time_)}",
                fix="pass later tasks, or start a new learner",
            )
        if self.weights_ is not None and self.restart == "once":
            self.tasks_, self.time_ = self.tasks_ + 1, task.time
            return self
        if not (task.targets >= 0).any():
            self._without_labels(task)
            return self
        if task.periods != task.history:
            label = task.graph.axis.label
            first, last = label(task.time - (task.history or 0)), label(task.time - 1)
            log.warning(
                "%s no labels to train on: the model for %s trains on those of %s.",
                f"{last} has" if first == last else f"{first} to {last} have",
                label(task.time),
                label(task.start),
            )
        rates = dict(self._default_rates)
        try:
            with nullcontext() if self._model().solved else kept_memory():  # many steps use the same memory
                self._adapt(task, on_step)
        except BaseException:
            self._default_rates = rates
            raise
        return self

    def _without_labels(self, task: Task) -> None:
        label = task.graph.axis.label
        span = f"{label(task.window.first)} to {label(task.time - 1)}"
        if self.weights_ is None and (task.reach_back or task.history is None):
            raise InputError(
                f"there is no label before {label(task.time)} to train on",
                fix="label earlier vertices, or choose a later first task or a higher label rate",
            )
        if self.weights_ is None:
            raise InputError(
                f"there is no label to train on in {span}",
                fix="choose a longer history, a later first task or a higher label rate",
            )
        log.warning("There is no label to train on in %s: the model for %s stays as it was.", span, label(task.time))
        self.tasks_, self.time_ = self.tasks_ + 1, task.time

    def _adapt(self, task: Task, on_step: OnStep | None) -> None:
        kept = self._remembered(task)
        new = self._new_classes(task, kept)
        classes = (*self.classes_, *new)
        gains, stacking = self._backtest(task)
        stacking = None if stacking is None else stacking.counted(task, classes)
        vocabulary = self._chosen(gains, task).grown(task, classes)
        cold = self.weights_ is None or self.restart == "cold" or (self.restart == "hybrid" and bool(new))
        cold = cold or (self._model().solved and self._counted is None)
        fitted = self._observed(task)
        detector, needs = fitted.detector, fitted.detector.requires

        batch, counts = self._training_batch(task, vocabulary, classes, kept)
        auxiliary: Parameters | None = None
        auxiliary_lr, counted = None, None
        regularised: State = {}
        before = None if cold else self.weights_
        data = self._data(task, kept, batch, counts, vocabulary.width)
        if self._model().solved:
            weights, counted = self._solved(data, before)
            lr, losses = None, list[float]()
            auxiliary = None if needs.auxiliary is None else weights  # no loss, so it would be the same
        else:
            weights, lr, losses, regularised = self._trained(data, detector, before, on_step, self.regulariser)
        if needs.auxiliary is not None and auxiliary is None:
            after = None if on_step is None else lambda step, loss: on_step(self.steps + step, loss)
            before = None if cold else self.auxiliary_weights_
            auxiliary, auxiliary_lr, *_ = self._trained(data, needs.auxiliary, before, after)
        fitted = fitted.fit(*self._fitting(weights, auxiliary, batch, needs.fit), cold=cold)
        # Nothing below can fail, so the learner is either updated completely or unchanged.
        self.classes_, self.vocabulary_, self._state = classes, vocabulary, fitted.state
        self.block_gains_, self.stacking_ = gains, stacking
        self.weights_, self.auxiliary_weights_, self._regularised = weights, auxiliary, regularised
        self.lr_, self.auxiliary_lr_, self.losses_ = lr, auxiliary_lr, losses
        self.kept_ = kept
        self.tasks_, self.time_ = self.tasks_ + 1, task.time
        self._unused = int(task.graph.times[np.flatnonzero(task.released >= 0)[-1]]) + 1
        self._counted = counted

    def _data(self, task: Task, kept: Kept, batch: Batch | MiniBatches, counts: Tensor, inputs: int) -> TrainingData:
        """What the parameters for a task are computed from."""
        blocks = self._plan(batch.source).blocks if isinstance(batch, MiniBatches) else None
        place = (self._device, choose_kernels(self.kernels, self._device))
        return TrainingData(task, kept.rows(task), batch, counts, inputs, blocks, (self.seed, self.tasks_), *place)

    def _trained(
        self,
        data: TrainingData,
        detector: Detector,
        before: Parameters | None,
        on_step: OnStep | None,
        regulariser: Regulariser | None = None,
    ) -> tuple[Parameters, float, list[float], State]:
        """Parameters trained with a detector's loss, the learning rate, the losses and the regulariser's state."""
        lr = self._rate(self._model(), detector, data.task)
        weights, losses, state = trained_parameters(
            data,
            self._model(),
            detector,
            before,
            lr=lr,
            steps=self.steps,
            weight_decay=self.weight_decay,
            trainer=self.trainer,
            on_step=on_step,
            regulariser=regulariser,
            state=self._regularised,
            known=len(self.classes_),
        )
        return weights, lr, losses, state

    def _solved(self, data: TrainingData, before: Parameters | None) -> tuple[Parameters, Counted]:
        """Parameters in closed form, and the vertices whose labels they contain."""
        try:
            return solved_parameters(data, self._model(), before, self._counted or Counted(), self._unused_from())
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            self._blame_file("model", error)
            raise

    def _blame_file(self, part: str, error: Exception) -> None:
        """Raise an error for a loaded learner whose state cannot be used, because its file was probably edited."""
        # What a state means, only its owner knows, so this is found here and not when it is loaded.
        if self._loaded and not isinstance(error, EvergraphError):
            raise DamagedLearnerError(
                f"the {part} cannot use the state that was loaded ({error})", fix="restore it from a backup"
            ) from error

    def _fitting(
        self, weights: Parameters, auxiliary: Parameters | None, batch: Batch | MiniBatches, wanted: bool
    ) -> tuple[Outputs | None, Tensor]:
        """Outputs for the labelled training vertices and their targets; of mini-batches for a sample of them."""
        if isinstance(batch, Batch):
            outputs = self._forward(weights, auxiliary, batch)[batch.labelled] if wanted else None
            return outputs, batch.targets[batch.labelled]
        rows = batch.labelled
        if len(rows) > _FITTED:
            rng = np.random.default_rng([self.seed, self.tasks_, 0, 0])
            rows = np.sort(rng.choice(rows, _FITTED, replace=False))
        targets = torch.from_numpy(batch.targets[rows].astype(np.int64)).to(self._device)
        return (self._exact(weights, auxiliary, batch.source, rows) if wanted else None), targets

    def _start(self, task: Task) -> Vocabulary:
        blocks = blocks_of(task.graph, self.inputs, classes=self._model().takes_classes)
        return Vocabulary.start(task.graph, blocks, self.text)

    def _new_classes(self, task: Task, kept: Kept | None = None) -> list[str]:
        codes = np.concatenate([task.released[(kept or self.kept_).rows(task)], task.targets])
        found = {task.graph.class_names[code] for code in np.unique(codes[codes >= 0])}
        # By name: the numbers of classes depend on everything the graph contains, including its future.
        return sorted(found - set(self.classes_))

    def _rate(self, model: Model, detector: Detector, task: Task) -> float:
        if self.lr is not None:
            return self.lr
        if type(detector) not in self._default_rates:  # as in the paper, one for all tasks
            warm = self.restart != "cold"
            level = task.level if self.memory is None else max(task.level, AUTO_LEVEL)
            self._default_rates[type(detector)] = default_rate(model, detector, warm=warm, level=level)
        return self._default_rates[type(detector)]

    def _remembered(self, task: Task) -> Kept:
        """What the memory keeps for a task, chosen by what the model can read before it has learnt new classes."""
        policy = self.memory
        if not isinstance(policy, MemoryPolicy) or self._model().solved:  # sums keep what is older
            return Kept()

        def features(rows: NDArray[np.int64]) -> sparse.csr_array:
            vocabulary = (self.vocabulary_ or self._start(task)).grown(task, self.classes_)
            dense, other = FeatureReader(vocabulary, task, self.classes_, first=int(rows[0])).read(rows)
            return sparse.csr_array(sparse.hstack([part for part in (dense, other) if part is not None]))

        return remember(policy, self.kept_, task, features, self.seed)

    def _training_batch(
        self, task: Task, vocabulary: Vocabulary, classes: tuple[str, ...], kept: Kept | None = None
    ) -> tuple[Batch | MiniBatches, Tensor]:
        columns = columns_among(classes, task.graph.class_names).astype(np.int32)
        source = self._source(task, task.training, vocabulary, classes, kept)
        codes = np.concatenate([task.released[source.kept], task.targets])
        rows = int(np.flatnonzero(codes >= 0)[-1]) + 1
        targets = columns[codes[:rows]]
        counts = torch.from_numpy(np.bincount(targets[targets >= 0], minlength=len(classes))).to(self._device)
        if self._model().solved:  # it reads only vertices with new labels and what these depend on
            return MiniBatches(source, targets, max(int(counts.sum()), 1), ()), counts
        plan = self._plan(source)
        if not plan.whole:
            size = min(plan.batch, int(counts.sum()))
            own = self._model() if self._model().samples else None
            log.info(
                "Memory: training the window of %s vertices as a whole takes about %s and the limit is %s: it is "
                "trained in %s.",
                *(f"{len(source.window):,}", size_in_words(plan.needed), size_in_words(plan.limit)),
                f"samples of at most {plan.vertices:,} vertices"
                if own is not None
                else f"mini-batches of {size:,} vertices with {' × '.join(map(str, plan.fanouts)) or 'no'} neighbours",
            )
            self._last = None
            return MiniBatches(source, targets, size, plan.fanouts, plan.ahead, own, plan.vertices), counts
        x, graph = self._read(source)
        return Batch(x, graph, rows, torch.from_numpy(targets.astype(np.int64)).to(self._device)), counts

    @property
    def _device(self) -> torch.device:
        return torch.device(self.device)

    def _source(
        self, task: Task, window: Window, vocabulary: Vocabulary, classes: tuple[str, ...], kept: Kept | None = None
    ) -> WindowSource:
        kernels = choose_kernels(self.kernels, self._device)
        rows = (kept or self.kept_).rows(task)
        reader = FeatureReader(vocabulary, task, classes, first=int(rows[0]) if len(rows) else None)
        return WindowSource(window, reader, self._device, kernels, limit_of(self.memory_limit) or 2**62, rows)

    def _plan(self, source: WindowSource) -> Plan:
        """How a window is trained and predicted within the memory limit."""
        model = self._model()
        limit = limit_of(self.memory_limit)
        sampled = self.trainer is not None and not model.samples
        return Plan.of(limit, model, source.reader, source.edges, len(source.reader.classes), sampled=sampled)

    # --- backtest of the inputs ---------------------------------------------------------------------------------------

    def _backtest(self, task: Task) -> tuple[dict[str, BlockGain], Stacking | None]:
        """Gains of the optional blocks and weights of the stacking, after the labels that arrived before a task."""
        if self.time_ is None or self.vocabulary_ is None:
            return {}, Stacking.start() if "classes" in self._start(task).blocks else None
        optional = optional_blocks(self.vocabulary_) if check_inputs(self.inputs) is None else []
        before = (self.block_gains_, self.stacking_)
        return backtest(self._new_slices(task), self._logits, self.vocabulary_, self.classes_, optional, *before)

    def _chosen(self, gains: Mapping[str, BlockGain], task: Task) -> Vocabulary:
        """The vocabulary without the blocks that did not pay."""
        return without_useless(self.vocabulary_ or self._start(task), gains, task)

    def _logits(self, task: Task, vocabulary: Vocabulary) -> NDArray[np.float32]:
        """The model's own logits for the test vertices."""
        return np.asarray(self._tested(self.weights_ or {}, None, task, vocabulary).logits.cpu().numpy())

    def _stacked(self, outputs: Outputs, task: Task) -> Outputs:
        """Outputs for the test vertices, together with the classes of older neighbours."""
        if self.stacking_ is None:
            return outputs
        evidence = self.stacking_.evidence(task, task.test_window, self.classes_)
        found = self.stacking_.combined(outputs.logits.cpu().numpy(), evidence)
        return replace(outputs, stacked_logits=torch.from_numpy(found).to(outputs.logits.device))

    # --- replay of past slices ---------------------------------------------------------------------------------------
    # Just before the model is trained on new labels, it still gives the outputs that it gave when it decided their
    # vertices. So no decision has to be stored for the detector, and nothing of the future is used.

    def _observed(self, task: Task) -> FittedDetector:
        """The detector after it has observed the labels that arrived before a task."""
        fitted = self.detector_
        needs = fitted.detector.requires
        if not needs.observe:
            return fitted
        if self.time_ is not None:
            if needs.auxiliary is not None and self.auxiliary_weights_ is None:
                return fitted  # the detector was changed, and its auxiliary model is not trained yet
            return self._observe_slices(fitted, task)
        if not self._replays:
            return fitted
        other = type(self)(**self.get_params())
        other._replays = False
        for past in tasks_before(task, needs.replay):
            other.adapt(past)
        return fitted if other.time_ is None else other._observed(task)

    def _observe_slices(self, fitted: FittedDetector, task: Task) -> FittedDetector:
        """Let a detector observe the slices whose labels arrived since the last task."""
        columns = columns_among(self.classes_, task.graph.class_names)
        for past, codes in self._new_slices(task):
            found = self.outputs(past)
            targets = torch.from_numpy(np.where(codes >= 0, columns[codes], UNLABELLED)).to(found.logits.device)
            fitted = fitted.observe(found, targets)
        return fitted

    def _new_slices(self, task: Task) -> Iterator[tuple[Task, NDArray[np.int32]]]:
        """The tasks of the slices whose first labels arrived since the last task, and the codes of their test vertices.

        The model was not trained on any of these labels. A task sees the labels that were released when its slice was
        decided.
        """
        latency = max(task.label_latency, label_delay(task))
        for time in range(max(self._unused_from(), task.graph.first_time), task.time):
            past = replace(task, time=time, label_latency=latency)
            start = past.window.rows.start + past.test.start
            codes = task.released[start : start + len(past.test_ids)]
            if (codes >= 0).any():
                yield past, codes

    def _unused_from(self) -> int:
        """The first period whose labels the model was not trained on."""
        return (self.time_ or 0) if self._unused is None else self._unused

    # --- prediction --------------------------------------------------------------------------------------------------

    def predict(self, task: Task, detector: Detector | None = None, outputs: Outputs | None = None) -> Decisions:
        """Decide the test vertices of a task.

        Parameters
        ----------
        task
            The task, usually the one just trained for.
        detector
            A detector of the same class with other settings, such as another threshold; no training is needed.
        outputs
            The result of `outputs` for the task, if you have it already.
        """
        own = self._detector()
        if detector is not None and type(detector) is not type(own):
            raise InputError(
                f"the learner was trained with {type(own).__name__}, which cannot decide as {type(detector).__name__}",
                fix=f"pass another {type(own).__name__}, or train with the other detector",
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
            log.warning("The learner is trained for a later period: it may have used the labels of this task.")
        best = outputs.best_logits.argmax(1).cpu().numpy()
        try:
            score, flagged = FittedDetector(decider, self._state).decide(outputs)
        except (RuntimeError, LookupError, TypeError, ValueError) as error:
            self._blame_file("detector", error)
            raise
        return Decisions(
            ids=task.test_ids,
            time=task.time,
            best=np.array(self.classes_, object)[best],
            flagged=flagged.cpu().numpy(),
            score=score.cpu().numpy(),
            probability=decider.class_probabilities(outputs).amax(1).cpu().numpy(),
            known=self.classes_,
        )

    @property
    def detector_(self) -> FittedDetector:
        """The detector with all that it has fitted and observed."""
        return FittedDetector(self._detector(), self._state)

    def outputs(self, task: Task) -> Outputs:
        """Return the model's outputs for the test vertices, with one column of logits for each of `classes_`."""
        weights, vocabulary = self._learnt()
        found = self._tested(weights, self.auxiliary_weights_, task, vocabulary)
        found = self._retire(self._exclude(self._stacked(found, task)), task)
        return replace(found, context=self._context_of(task)) if self._detector().requires.context else found

    def retired(self, task: Task) -> frozenset[str]:
        """Return the known classes without a released label in the latest periods before a task (``retire_after``)."""
        labelled = np.flatnonzero(task.released >= 0)
        if self.retire_after is None or not len(labelled):
            return frozenset()
        times = task.graph.times[labelled]
        recent = task.released[labelled[times > times[-1] - self.retire_after]]
        seen = {task.graph.class_names[code] for code in np.unique(recent)}
        return frozenset(self.classes_) - seen

    def explain(self, task: Task, rows: Iterable[int], most: int = 5) -> list[list[Attribution]]:
        """Return the inputs that contribute most to the most likely class of some test vertices, the largest first.

        Parameters
        ----------
        task
            The task.
        rows
            Numbers of test vertices, from 0 up.
        most
            Number of inputs per vertex.
        """
        return explain(self, task, list(rows), most)

    def _learnt(self) -> tuple[Parameters, Vocabulary]:
        if self.weights_ is None or self.vocabulary_ is None:
            raise EvergraphError("the learner is not trained yet", fix="call adapt(task) first")
        return self.weights_, self.vocabulary_

    def _tested(self, weights: Parameters, auxiliary: Parameters | None, task: Task, vocabulary: Vocabulary) -> Outputs:
        """The model's own outputs for the test vertices, from the vertices that they depend on."""
        source = self._source(task, task.window, vocabulary, self.classes_)
        first = len(source.kept) + task.test.start
        if self._model().hops is not None:
            rows = np.arange(first, first + len(task.test_ids), dtype=np.int32)
            return self._exact(weights, auxiliary, source, rows)
        x, graph = self._read(source)
        batch = Batch(x, graph, len(graph), torch.empty(0, dtype=torch.int64))
        return self._forward(weights, auxiliary, batch)[slice(first, None)]

    def _neighbourhood(self, task: Task, rows: Sequence[int]) -> tuple[Batch, list[int]]:
        """Test vertices and all that their outputs depend on, and the places of these vertices among them."""
        _, vocabulary = self._learnt()
        source = self._source(task, task.window, vocabulary, self.classes_)
        asked = np.asarray(rows, np.int32) + np.int32(len(source.kept) + task.test.start)
        wanted = np.unique(asked)
        if (hops := self._model().hops) is not None:
            return source.neighbourhood(wanted, hops), np.searchsorted(wanted, asked).tolist()
        x, graph = self._read(source)
        return Batch(x, graph, len(graph), torch.empty(0, dtype=torch.int64)), asked.tolist()

    def _exact(
        self, weights: Parameters, auxiliary: Parameters | None, source: WindowSource, rows: NDArray[np.integer]
    ) -> Outputs:
        """Outputs for some vertices of a window, computed in blocks."""
        blocks, model = self._plan(source).blocks, self._model()
        other = None if auxiliary is None else exact_outputs(model, auxiliary, source, rows, blocks)[0]
        return Outputs(*exact_outputs(model, weights, source, rows, blocks), auxiliary_logits=other)

    def _retire(self, outputs: Outputs, task: Task) -> Outputs:
        """Outputs with which no vertex is predicted as a retired class; detectors still judge all logits."""
        retired = self.retired(task)
        gone = torch.tensor([name in retired for name in self.classes_], device=outputs.logits.device)
        left = [name for name in self.classes_ if name not in retired | self._excluded]
        if not gone.any() or not left:
            return outputs
        return replace(outputs, stacked_logits=outputs.best_logits.masked_fill(gone, EXCLUDED))

    def _exclude(self, outputs: Outputs) -> Outputs:
        """Outputs with which no vertex is predicted as an excluded class."""
        excluded = torch.tensor([name in self._excluded for name in self.classes_], device=outputs.logits.device)
        if not excluded.any() or excluded.all():
            return outputs
        parts = {name: getattr(outputs, name) for name in ("logits", "auxiliary_logits", "stacked_logits")}
        masked = {name: part.masked_fill(excluded, EXCLUDED) for name, part in parts.items() if part is not None}
        return replace(outputs, **masked)

    def _context_of(self, task: Task) -> SliceContext:
        """The context of a task's slice; the last one is kept, because the slice is observed soon."""
        if self._context is None or not self._context.shows(task, self.classes_):
            self._context = SliceContext(task, self.classes_)
        return self._context

    def _forward(self, weights: Parameters, auxiliary: Parameters | None, batch: Batch) -> Outputs:
        model = self._model().predictor
        with torch.no_grad():
            other = None if auxiliary is None else model.forward(auxiliary, batch, None)[0]
            return Outputs(*model.forward(weights, batch, None), auxiliary_logits=other)

    def _read(self, source: WindowSource) -> tuple[Matrix, Neighbours]:
        """Features and neighbours of all vertices; the last ones are kept, because prediction may share them."""
        window, key = source.window, (source.reader.vocabulary, source.reader.classes, source.kept.tolist())
        if self._last is not None and self._last[0] is window and self._last[1:4] == key:
            return self._last[4:]
        self._last = None  # free the memory before the next is built
        matrix, graph = source.features(), source.graph()
        self._last = (window, *key, matrix, graph)
        return matrix, graph

    # --- saving ------------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Save into a folder, replacing a learner that is there. It either succeeds completely or changes nothing."""
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
        regulariser: Regulariser | None = None,
        memory: MemoryPolicy | None = None,
    ) -> Self:
        """Load a saved learner.

        Parameters
        ----------
        folder
            Folder of the learner.
        model, detector
            A model or detector of your own, which a file cannot contain.
        device
            Device to compute on; by default the one it was saved with.
        regulariser, memory
            A regulariser or memory policy of your own.
        """
        from evergraph.learning.checkpoint import load

        return load(cls, Path(folder), model, detector, device, regulariser, memory)

    def restore(self, content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `evergraph.learning.checkpoint.pack` returned; refuse weights of another model."""
        from evergraph.learning.checkpoint import restore

        restore(self, content, tensors)

    # --- copies ------------------------------------------------------------------------------------------------------

    def renamed(self, names: Mapping[str, str] | Sequence[str]) -> Self:
        """Return a copy with other class names; its decisions treat classes with the same name as one.

        Rename the classes of the graph as well: the model reads the classes of older neighbours by name.

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
        """Return a copy that never predicts some classes, unless it knows no others."""
        other = copy(self)
        other._excluded = frozenset(names)
        return other

    def rewound(self, time: int) -> Self:
        """Return a copy that accepts tasks from a period on, even if the learner is trained for later ones."""
        other = copy(self)
        other.time_ = None if self.time_ is None else min(self.time_, time)
        if self._model().solved and self._unused is not None and time < self._unused:
            other._counted = None  # the sums contain later vertices, so they cannot be continued
        other._unused = None if self._unused is None else min(self._unused, time)
        return other

    # --- settings, as in scikit-learn --------------------------------------------------------------------------------

    def get_params(self, deep: bool = False) -> dict[str, Any]:  # noqa: ARG002  # scikit-learn's signature
        """Return the arguments by name."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Change arguments from the next task on. If one is invalid, none is changed."""
        if "inputs" in params:
            params["inputs"] = as_inputs(params["inputs"])
        for name in ("text", "inputs"):
            if self.weights_ is not None and params.get(name, getattr(self, name)) != getattr(self, name):
                raise InputError(f"{name} cannot be changed after training", fix="start a new learner")
        before = self.get_params()
        if unknown := params.keys() - before.keys():
            raise InputError(f"there is no argument {min(unknown)!r}", fix=f"use one of {', '.join(before)}")
        self.__dict__.update(params)
        try:
            self._check()
        except InputError:
            self.__dict__.update(before)
            raise
        if type(self.regulariser) is not type(before["regulariser"]):
            self._regularised = {}  # what another one has learnt
        if self.restart != before["restart"] or (self.memory is None) != (before["memory"] is None):
            self._default_rates = {}  # they depend on both
        self._last = None  # it depends on device and kernels
        self._move()
        return self

    def __repr__(self) -> str:
        defaults = self._defaults()
        changed = [f"{name}={value!r}" for name, value in self.get_params().items() if value != defaults[name]]
        return f"{type(self).__name__}({', '.join(changed)})"

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()}

    def _move(self) -> None:
        """Move weights and state to the device."""
        self.weights_, self.auxiliary_weights_ = (
            None if weights is None else {name: value.to(self.device) for name, value in weights.items()}
            for weights in (self.weights_, self.auxiliary_weights_)
        )
        self._state = self.detector_.to(self.device).state
        self._regularised = {name: value.to(self.device) for name, value in self._regularised.items()}

    def _model(self) -> Model:
        if self._built is None or self._built[0] is not self.model:
            built = as_model(self.model)
            if self.weights_ is not None and self._built is not None and built != self._built[1]:
                raise InputError(
                    f"the learner was trained with {self._built[1]!r} and cannot continue with {built!r}",
                    fix="keep the model, or start a new learner",
                )
            self._built = (self.model, built)
        return self._built[1]

    def _detector(self) -> Detector:
        return build_detector(DEFAULT_DETECTOR) if self.detector is None else self.detector

    def _check(self) -> None:
        def is_whole(value: object, least: int) -> bool:
            return isinstance(value, int) and not isinstance(value, bool) and value >= least

        def is_finite(value: object) -> bool:
            return isinstance(value, Real) and math.isfinite(value)

        kernels, restarts = ("auto", "numba", "torch"), get_args(Restart)
        checks = {
            "restart": (self.restart in restarts, f"choose one of {', '.join(restarts)}"),
            "steps": (is_whole(self.steps, 1), "set it to a whole number from 1 up"),
            "lr": (self.lr is None or (is_finite(self.lr) and self.lr > 0), "set it to a number above 0"),
            "weight_decay": (is_finite(self.weight_decay) and self.weight_decay >= 0, "set it to a number from 0 up"),
            "seed": (is_whole(self.seed, 0), "set it to a whole number from 0 up"),
            "kernels": (self.kernels in kernels, f"choose one of {', '.join(kernels)}"),
            "device": (isinstance(self.device, str | torch.device), 'name a device of torch, such as "cpu"'),
            "detector": (isinstance(self.detector, Detector | None), "pass a detector of evergraph.detect"),
            "trainer": (isinstance(self.trainer, DataParallel | None), "pass a DataParallel, or None"),
            "retire_after": (
                self.retire_after is None or (is_whole(self.retire_after, 1) and self.retire_after < 2**31),
                "set it to a number of periods from 1 up",
            ),
            "regulariser": (isinstance(self.regulariser, Regulariser | None), "pass a Regulariser, or None"),
        }
        if self.memory_limit is not None:
            parse_size(self.memory_limit)
        for name, (valid, fix) in checks.items():
            if not valid:
                raise InputError(f"the argument {name} is {getattr(self, name)!r}", fix=fix)
        check_device(self.device)
        self.memory = as_memory(self.memory)
        self.inputs = as_inputs(self.inputs)
        model = self._model()
        if self.trainer is not None:
            self.trainer.check(model)
        if self.regulariser is not None:
            self._check_regulariser(self.regulariser)

    def _check_regulariser(self, regulariser: Regulariser) -> None:
        if self._model().solved:
            raise InputError(
                f"{self._model()!r} is not trained by gradients, so it takes no regulariser",
                fix="leave it out, or choose another model",
            )
        if self.trainer is not None:
            raise InputError("several workers cannot train with a regulariser", fix="leave out one of the two")
        if regulariser.requires_memory and self.memory is None:
            raise InputError(
                f"the regulariser {regulariser!r} needs vertices that are older than the window",
                fix="set memory= (--memory), or choose another regulariser",
            )
