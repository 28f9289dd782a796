"""The lifelong learner: one model, kept current task by task."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from evergraph.detect import Detector, Outputs, Softmax
from evergraph.detect.base import PAST
from evergraph.errors import EvergraphError, InputError
from evergraph.graph.classes import columns_among
from evergraph.graph.window import TextMode, Window
from evergraph.inputs.slice_context import Sight
from evergraph.inputs.vocabulary import Vocabulary
from evergraph.learning.backtest import looked_back
from evergraph.learning.decisions import Decisions
from evergraph.learning.rates import default_rate
from evergraph.learning.settings import Settings
from evergraph.learning.task import Task
from evergraph.learning.training import OnStep, train
from evergraph.nn import Batch, Draw, Model, Neighbours, Noise, SparseMatrix, carry_over
from evergraph.nn.adam import Adam
from evergraph.nn.base import Parameters, in_use
from evergraph.nn.custom import as_model
from evergraph.nn.memory import kept_memory
from evergraph.nn.sparse import Kernels, choose_kernels

__all__ = ["LifelongLearner", "Restart"]

log = logging.getLogger(__name__)

Restart = Literal["warm", "cold", "hybrid", "once"]


class LifelongLearner(Settings):
    """Keeps one model current on a graph that grows, and tells classes that were never seen before.

    Parameters
    ----------
    model
        One of `evergraph.nn`, or a ``torch.nn.Module`` of your own that takes ``(x, edge_index)`` and returns hidden
        vectors. GraphSAGE unless given.
    detector
        One of `evergraph.detect`; without one, no vertex is ever rejected.
    restart
        ``"warm"`` goes on from the weights of the last task; rows of new classes and words are drawn afresh.
        ``"cold"`` draws all afresh. ``"hybrid"`` is cold when a class is new and warm otherwise. ``"once"`` trains on
        the first task and never again.
    steps
        Steps of training for each task.
    lr
        Learning rate; unless given, the paper's for the model, the detector, the restart and the share of time
        differences that the history covers (see `evergraph.learning.rates`).
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
    second_weights_
        Those of the second model, where the detector asks for one (`Detector.second`).
    detector_state_
        What the detector has fitted.
    tasks_
        Number of tasks so far.
    time_
        Time of the last task.
    lr_, second_lr_
        The learning rates of the last task.
    losses_
        Loss of each step of the last task; a second model's are not kept.

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
        self.second_weights_: Parameters | None = None
        self.detector_state_: dict[str, Tensor] = {}
        self.tasks_ = 0
        self.time_: int | None = None
        self.lr_: float | None = None
        self.second_lr_: float | None = None
        self.losses_: list[float] = []
        self._default_rates: dict[type[Detector], float] = {}
        self._last: tuple[Window, Vocabulary, Tensor | SparseMatrix, Neighbours] | None = None
        self._seen: Sight | None = None
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
            Called after each step with its number, from 1 up, and its loss. Those of a second model come after the
            first's, and count on.
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
        model, detector = self._model(), self._detector()
        new = self._new_classes(task)
        classes = (*self.classes_, *new)
        vocabulary = self.vocabulary_ or Vocabulary.start(task.training, self.text)
        vocabulary = vocabulary.grown(task.training, task.time)
        cold = self._is_cold(bool(new))
        before = looked_back(self, task)

        batch, counts = self._training_batch(task, vocabulary, classes)
        lesson = (task, batch, counts, vocabulary.width, cold)
        weights, lr, losses = self._trained(detector, self.weights_, *lesson, on_step)
        second: Parameters | None = None
        second_lr: float | None = None
        if detector.second is not None:
            after = None if on_step is None else _after(on_step, len(losses))
            second, second_lr, _ = self._trained(detector.second, self.second_weights_, *lesson, after)
        state = {name: value for name, value in before.items() if name.startswith(PAST)}
        if type(detector).fit is not Detector.fit:
            outputs = self._forward(model, weights, second, batch, self._fitting_noise(batch))
            state |= detector.fit(outputs[batch.labelled], batch.targets[batch.labelled], state if cold else before)
        # From here on nothing can fail: either all of it is new or, above, none.
        self.classes_, self.vocabulary_, self.detector_state_ = classes, vocabulary, state
        self.weights_, self.second_weights_ = weights, second
        self.lr_, self.second_lr_, self.losses_ = lr, second_lr, losses
        self.tasks_, self.time_ = self.tasks_ + 1, task.time

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
        weights, lr = self._restarted(model, before, width, len(counts), cold=cold), self._rate(model, detector, task)
        part = in_use(model, weights, batch) if self._leaves_alone_what_is_unused() else None
        changing, read = (weights, batch) if part is None else (part.weights, part.batch)
        trained = [value for name, value in changing.items() if model.trained(name)]
        losses = train(
            model,
            detector,
            changing,
            read,
            counts,
            optimiser=self._optimiser(trained, lr, batch.graph.kernels),
            steps=self._steps(),
            seed=(self.seed, self.tasks_),
            on_step=on_step,
        )
        return (weights if part is None else part.laid_over(weights)), lr, losses

    def _new_classes(self, task: Task) -> list[str]:
        found = {task.graph.class_names[code] for code in np.unique(task.targets[task.targets >= 0])}
        # By name: numbers of classes depend on what else the graph holds, also on its future.
        return sorted(found - set(self.classes_))

    def _is_cold(self, new: bool) -> bool:
        return self.weights_ is None or self.restart == "cold" or (self.restart == "hybrid" and new)

    def _rate(self, model: Model, detector: Detector, task: Task) -> float:
        if self.lr is not None:
            return self.lr
        if type(detector) not in self._default_rates:  # as in the paper, one for all tasks
            warm = self.restart != "cold"
            self._default_rates[type(detector)] = default_rate(model, detector, warm=warm, level=task.level)
        return self._default_rates[type(detector)]

    def _restarted(
        self, model: Model, before: Parameters | None, inputs: int, outputs: int, *, cold: bool
    ) -> Parameters:
        """The parameters to train from: all fresh, or what is known laid over fresh ones."""
        fresh = {
            k: v.to(self.device) for k, v in model.parameters(inputs, outputs, Draw(self.seed, self.tasks_)).items()
        }
        return fresh if cold or before is None else carry_over(before, fresh)

    def _training_batch(self, task: Task, vocabulary: Vocabulary, classes: tuple[str, ...]) -> tuple[Batch, Tensor]:
        x, graph = self._read(task.training, vocabulary, task.time)
        columns = columns_among(classes, task.graph.class_names)
        rows = int(np.flatnonzero(task.targets >= 0)[-1]) + 1
        targets = torch.from_numpy(columns[task.targets[:rows]]).to(graph.indptr.device)
        batch = Batch(x, graph, rows, targets)
        return batch, torch.bincount(targets[batch.labelled], minlength=len(classes))

    def _fitting_noise(self, batch: Batch) -> Noise | None:  # noqa: ARG002  # a subclass may want some
        """A detector is fitted to what it will see in deciding: outputs without dropout."""
        return None

    def _optimiser(self, trained: list[Tensor], lr: float, kernels: Kernels) -> Adam:
        return Adam(trained, lr, weight_decay=self.weight_decay, kernels=kernels)

    def _leaves_alone_what_is_unused(self) -> bool:
        """Whether weights without a gradient stay as they are."""
        return self.weight_decay == 0

    def _steps(self) -> int:
        return self.steps

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
        if detector is not None and detector.second not in (None, own.second):
            raise InputError(
                f"{type(detector).__name__} asks for a second model, which was not trained",
                fix="train with this detector",
            )
        outputs = self.outputs(task) if outputs is None else outputs
        if self.time_ is not None and task.time < self.time_:
            log.warning("the learner has adapted to later times: it may have learnt the labels of this task")
        decider = detector or own
        best = outputs.logits.argmax(1).cpu().numpy()
        return Decisions(
            ids=task.test_ids,
            time=task.time,
            best=np.array(self.classes_, object)[best],
            rejected=decider.reject(outputs, self.detector_state_).cpu().numpy(),
            score=decider.score(outputs, self.detector_state_).cpu().numpy(),
            probability=decider.probability(outputs.logits).cpu().numpy(),
            known=self.classes_,
        )

    def outputs(self, task: Task) -> Outputs:
        """What the model says of the test vertices: a column of logits for each of `classes_`."""
        if self.weights_ is None or self.vocabulary_ is None:
            raise EvergraphError("the learner has not learnt anything yet: call adapt(task) first.")
        x, graph = self._read(task.window, self.vocabulary_, task.time)
        everything = Batch(x, graph, len(graph), torch.empty(0, dtype=torch.int64))
        found = self._forward(self._model(), self.weights_, self.second_weights_, everything)[task.test]
        return replace(found, sight=self._sight(task))

    def _sight(self, task: Task) -> Sight:
        """What a detector may look at; that of the last slice is kept, for it is looked back at soon."""
        if self._seen is None or not self._seen.shows(task, self.classes_):
            self._seen = Sight(task, self.classes_)
        return self._seen

    def _forward(
        self, model: Model, weights: Parameters, second: Parameters | None, batch: Batch, noise: Noise | None = None
    ) -> Outputs:
        with torch.no_grad():
            other = None if second is None else model.forward(second, batch, noise)[0]
            return Outputs(*model.forward(weights, batch, noise), second=other)

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
        state: dict[str, Tensor],
        tasks: int,
        time: int | None,
        lr: float | None,
        losses: list[float],
        second_weights: Parameters | None = None,
        second_lr: float | None = None,
    ) -> None:
        """Go on from what was saved; weights that are not this model's are refused."""
        expected = _shapes(self._model().parameters(vocabulary.width, len(classes), Draw(0)))
        if any(_shapes(one) != expected for one in (weights, second_weights) if one is not None):
            raise InputError(
                f"the saved weights are not those of {self._model()!r}", fix="give the model that was trained"
            )
        self.weights_, self.second_weights_, self.detector_state_ = weights, second_weights, state
        self._move()
        self.classes_, self.vocabulary_ = classes, vocabulary
        self.tasks_, self.time_, self.losses_ = tasks, time, losses
        self.lr_, self.second_lr_ = lr, second_lr
        own, self._default_rates = self._detector(), {}
        for detector, rate in ((own, lr), (own.second, second_lr)):
            if detector is not None and rate is not None and self.lr is None:
                self._default_rates[type(detector)] = rate

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
        self.weights_, self.second_weights_ = (
            None if weights is None else {name: value.to(self.device) for name, value in weights.items()}
            for weights in (self.weights_, self.second_weights_)
        )
        self.detector_state_ = {name: value.to(self.device) for name, value in self.detector_state_.items()}

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
        return Softmax() if self.detector is None else self.detector

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
