"""Record one training, then replay any number of detectors on it, as if each had been there during the training.

::

    RECORDING/
      recording.json                settings, fingerprint of the graph, and the list of events
      0000-fit.safetensors          outputs of the model at one event, and classes of the vertices

Training is slow and, apart from its loss, does not depend on the detector. A recording is written to a temporary folder
and renamed when it is complete.
"""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import os
import shutil
import time as clock
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Required, TypedDict

import msgspec
import numpy as np
import torch
from safetensors.torch import load as tensors_from
from safetensors.torch import save as tensors_to
from torch import Tensor

from evergraph import __version__
from evergraph.detect import Decision, Detector, FittedDetector, Outputs, Requirements
from evergraph.detect.base import State as DetectorState
from evergraph.errors import InputError, os_error
from evergraph.evaluation.configuration import Configuration, complete_settings, differences
from evergraph.evaluation.results import NUMERICS_VERSION
from evergraph.graph.arrays import fingerprint
from evergraph.graph.evolving import EvolvingGraph
from evergraph.inputs.slice_context import SliceContext
from evergraph.inputs.vocabulary import Vocabulary
from evergraph.learning.backtest import BlockGain
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.memory import Kept
from evergraph.learning.minibatch import MiniBatches
from evergraph.learning.task import Decisions, Task
from evergraph.names import described
from evergraph.nn import Batch, Model
from evergraph.storage.checksummed import dump_json, load_json
from evergraph.storage.decoding import InvalidContentError, InvalidJsonError, decoding
from evergraph.storage.files import disk_errors, only_one, sync_folder, write_synced

__all__ = ["Event", "OnTask", "Recording", "ReplayedTask", "open_recording", "record", "replay", "replay_all"]

log = logging.getLogger(__name__)

FORMAT = "evergraph recording"
FORMAT_VERSION = 1
MANIFEST = "recording.json"

OnTask = Callable[[int, int, int, int], object]
"""Called with the index of the task, the number of tasks, the steps done, and the number of steps."""

EventKind = Literal["observe", "fit", "decide"]

_FITTED = "fitted"  # in the recorder's state: there was a fit before, and no cold restart since
_AGAIN = "remove the folder and run the same command again, which records it again"


class Event(msgspec.Struct, frozen=True, rename={"backtest": "rehearsal"}):
    """A call of the detector during the training, with the file of the model's outputs.

    ``time`` is the period of the slice (None for a fit, which uses a window), and ``classes`` are the known classes.
    A ``cold`` fit keeps nothing but what the detector observed in past slices. ``backtest`` marks the replay of slices
    before the first task, whose model is discarded. ``seconds`` is the training time before a decision. ``unread`` are
    the blocks of inputs that the model did not read at a fit, because they did not pay.
    """

    kind: EventKind
    file: Annotated[str, msgspec.Meta(pattern=r"^[0-9]+-[a-z_]+\.safetensors$")]
    sha256: str
    time: int | None = None
    classes: tuple[str, ...] = ()
    cold: bool = False
    backtest: bool = False
    seconds: float = 0.0
    unread: tuple[str, ...] = ()


class _View(TypedDict, total=False):
    history: Required[int | None]
    mode: Literal["transductive", "inductive"]
    label_rate: float
    reach_back: bool
    label_latency: int


class _Manifest(msgspec.Struct, rename={"backtest_slices": "rehearsals", "backtest_seconds": "rehearsal_seconds"}):
    configuration: dict[str, Any]
    seed: int
    fingerprint: str
    numerics_version: int
    backtest_slices: int
    view: _View
    backtest_seconds: float
    events: tuple[Event, ...]
    evergraph: str = __version__
    format: str = FORMAT
    format_version: int = FORMAT_VERSION


_IDENTITY = ("configuration", "seed", "fingerprint", "numerics_version", "backtest_slices")


@dataclass(frozen=True)
class Recording:
    """A recorded training.

    ``view`` has ``history``, ``mode``, ``label_rate``, ``reach_back`` and ``label_latency`` of its tasks.
    ``backtest_seconds`` is the time of training on slices before the first task, which only some detectors need.
    """

    folder: Path
    identity: Mapping[str, Any]
    view: Mapping[str, Any]
    events: tuple[Event, ...]
    backtest_seconds: float

    @property
    def seconds(self) -> float:
        """Seconds of training, without the slices before the first task."""
        return sum(event.seconds for event in self.events)

    def training_seconds(self, detector: Detector) -> float:
        """Seconds that training takes with a detector."""
        return self.seconds + (self.backtest_seconds if _needs_backtest(detector) else 0.0)

    def unread(self, *, backtest: bool) -> Iterator[tuple[str, ...]]:
        """Yield for each fit, before the first task or from it on, the blocks that the model did not read."""
        return (event.unread for event in self.events if event.kind == "fit" and event.backtest == backtest)

    def reads_the_same(self, other: Recording) -> bool:
        """Whether the models read the same blocks of inputs at each fit."""
        return all(list(self.unread(backtest=kind)) == list(other.unread(backtest=kind)) for kind in (True, False))

    def task(self, graph: EvolvingGraph, time: int) -> Task:
        """Return a task as it was in the training."""
        return Task(graph, time, seed=self.identity["seed"], **self.view)

    def read(self, event: Event) -> dict[str, Tensor]:
        """Return ``logits`` and, if recorded, ``hidden`` and ``targets`` of an event."""
        path = self.folder / event.file
        try:
            data = path.read_bytes()
        except OSError as error:
            raise os_error(error, "the file cannot be read", file=path, fix=_AGAIN) from error
        if hashlib.sha256(data).hexdigest() != event.sha256:
            raise InputError("the file was changed after it was recorded", file=path, fix=_AGAIN)
        with decoding(path, _damaged):
            found = {name: value.clone() for name, value in tensors_from(data).items()}
            logits, targets = found["logits"], found.get("targets")
            if logits.ndim != 2 or not logits.is_floating_point():
                raise InvalidContentError("it has no rows of logits")
            if targets is not None and (targets.shape != logits.shape[:1] or targets.dtype != torch.int64):
                raise InvalidContentError("it has no class for each vertex")
            if event.kind != "decide" and targets is None:
                raise InvalidContentError("it has no targets")
            if (stacked := found.get("stacked")) is not None and stacked.shape != logits.shape:
                raise InvalidContentError("it has stacked logits of another shape")
            if event.kind == "decide" and logits.shape[1] != len(event.classes):
                raise InvalidContentError("it has not one logit for each class")
            return found


def _damaged(path: Path, problem: str) -> InputError:
    return InputError(f"the file is damaged: {problem}", file=path, fix=_AGAIN)


def _needs_backtest(detector: Detector) -> bool:
    return detector.requires.observe and detector.requires.replay > 0


def open_recording(folder: str | Path) -> Recording:
    """Open a recording; raises an `InputError` if there is none or it is damaged."""
    folder = Path(folder)
    path = folder / MANIFEST
    try:
        content = msgspec.convert(load_json(path.read_bytes(), FORMAT, FORMAT_VERSION), _Manifest)
    except FileNotFoundError:
        raise InputError(
            "this folder contains no recording", file=folder, fix="give the folder of a recording, or a new one"
        ) from None
    except InvalidJsonError as error:
        raise InputError(str(error), file=path, fix="update Evergraph" if error.newer else _AGAIN) from error
    except msgspec.ValidationError as error:
        raise InputError(f"the recording is damaged ({error})", file=path, fix=_AGAIN) from error
    except OSError as error:
        raise os_error(error, "the file cannot be read", file=path, fix=_AGAIN) from error
    if any(event.time is None for event in content.events if event.kind != "fit"):
        raise InputError("the recording is damaged (an event has no time)", file=path, fix=_AGAIN)
    identity = {name: getattr(content, name) for name in _IDENTITY}
    identity["configuration"] = complete_settings(content.configuration)
    return Recording(folder, identity, {"label_latency": 0, **content.view}, content.events, content.backtest_seconds)


# --- recording -------------------------------------------------------------------------------------------------------


class _EventWriter:
    """Writes events to a folder, and measures the seconds of training without the writing."""

    def __init__(self, folder: Path, beside: Recording | None) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.beside = None if beside is None else {kind: beside.unread(backtest=kind) for kind in (True, False)}
        self.unread: tuple[str, ...] = ()  # blocks that the model of the next fit does not read
        self.asked: tuple[int | None, tuple[str, ...]] = (None, ())  # period and classes of the latest outputs
        self.began: list[float] = []  # seconds at which each event since `start` happened
        self._started, self._writing = clock.perf_counter(), 0.0

    def start(self) -> None:
        self._started, self._writing, self.began = clock.perf_counter(), 0.0, []

    def seconds(self) -> float:
        return clock.perf_counter() - self._started - self._writing

    def write(self, kind: EventKind, outputs: Outputs, targets: Tensor | None = None, **facts: Any) -> None:
        self.began.append(self.seconds())
        begun = clock.perf_counter()
        tensors = {"logits": outputs.logits, "hidden": outputs.hidden, "targets": targets}
        tensors["stacked"] = outputs.stacked_logits
        # Copies: a model without hidden vectors may return its logits in their place.
        data = tensors_to({name: x.detach().cpu().contiguous().clone() for name, x in tensors.items() if x is not None})
        name = f"{len(self.events):04}-{kind}.safetensors"
        write_synced(self.folder / name, data)
        self.events.append(Event(kind, name, hashlib.sha256(data).hexdigest(), **facts))
        self._writing += clock.perf_counter() - begun


@dataclass(frozen=True)
class _Recorder(Detector):
    """Has the loss of another detector, writes every call as an event, and flags no vertex."""

    replay: ClassVar[int] = 3

    inner: Detector
    writer: _EventWriter = field(repr=False, compare=False)

    @property
    def requires(self) -> Requirements:
        return Requirements(observe=True, replay=self.replay)

    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:
        return self.inner.loss(logits, targets, counts, weights)

    def fit(self, outputs: Outputs, targets: Tensor, state: DetectorState) -> DetectorState:
        self.writer.write("fit", outputs, targets, cold=_FITTED not in state, unread=self.writer.unread)
        return {_FITTED: torch.ones(1)}  # a cold restart removes it

    def observe(self, outputs: Outputs, targets: Tensor, state: DetectorState) -> DetectorState:
        time, classes = self.writer.asked
        self.writer.write("observe", outputs, targets, time=time, classes=classes)
        return state

    def decide(self, outputs: Outputs, state: DetectorState) -> Decision:  # noqa: ARG002
        return Decision(
            outputs.logits.new_zeros(len(outputs), dtype=torch.float64),
            outputs.logits.new_zeros(len(outputs), dtype=torch.bool),
        )


class _RecordedLearner(LifelongLearner):
    """Passes period, classes and unread blocks on to its recorder, and uses the recorded detector's learning rate."""

    def outputs(self, task: Task) -> Outputs:
        if isinstance(self.detector, _Recorder):
            self.detector.writer.asked = (task.time, self.classes_)
        return super().outputs(task)

    def _rate(self, model: Model, detector: Detector, task: Task) -> float:
        return super()._rate(model, detector.inner if isinstance(detector, _Recorder) else detector, task)

    def _chosen(self, gains: Mapping[str, BlockGain], task: Task) -> Vocabulary:
        beside = self.detector.writer.beside if isinstance(self.detector, _Recorder) else None
        if beside is None:
            return super()._chosen(gains, task)
        # An auxiliary model reads what the model does. The learner that replays slices before the first task chooses
        # after the learner itself, but is fitted before it.
        return replace(self.vocabulary_ or self._start(task), unread=next(beside[not self._replays]))

    def _training_batch(
        self, task: Task, vocabulary: Vocabulary, classes: tuple[str, ...], kept: Kept | None = None
    ) -> tuple[Batch | MiniBatches, Tensor]:
        if isinstance(self.detector, _Recorder):
            self.detector.writer.unread = vocabulary.unread
        return super()._training_batch(task, vocabulary, classes, kept)


def record(
    configuration: Configuration,
    graph: EvolvingGraph,
    seed: int,
    folder: str | Path,
    *,
    beside: Recording | None = None,
    on_progress: OnTask | None = None,
) -> Recording:
    """Train on all tasks of a graph and record the outputs of the model, unless the folder already has them.

    A recording of other settings, of another graph or of another numerics version is replaced, and so is a damaged one;
    both are logged. Of the configuration's detector only the loss, and the learning rate for that loss, matter.
    An auxiliary model is recorded ``beside`` the model whose backtest chooses the inputs of both.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from evergraph.datasets import synthetic
    >>> from evergraph.detect import PostHoc, Softmax
    >>> graph = synthetic(vertices=400, times=6, classes=4, new_classes=1, seed=1)
    >>> with TemporaryDirectory() as folder:
    ...     recording = record(Configuration(detector=Softmax(), history=3, steps=5), graph, 0, Path(folder) / "one")
    ...     tasks = replay(recording, graph, PostHoc())
    >>> [task.decisions.time for task in tasks]
    [2, 3, 4, 5]
    """
    folder = Path(folder)
    identity = {
        "configuration": configuration.described(graph.axis),
        "seed": seed,
        "fingerprint": fingerprint(graph),
        "numerics_version": NUMERICS_VERSION,
        "backtest_slices": _Recorder.replay,
    }
    if folder.exists() and not folder.is_dir():
        raise InputError("this is a file, not a folder", file=folder, fix="choose another folder")
    with disk_errors(folder, "the recording could not be written"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        waiting = f"Waiting for another process that records the same training in {folder}"
        parent = multiprocessing.parent_process()
        command = str(os.getpid() if parent is None else parent.pid)
        with only_one(folder.parent / f".{folder.name}.lock", waiting, holder=command):
            usable = _usable(folder, identity, beside)
            return usable or _write_recording(configuration, graph, identity, folder, beside, on_progress)


def _usable(folder: Path, identity: Mapping[str, Any], beside: Recording | None) -> Recording | None:
    """Return the recording in a folder if it is complete and has this identity."""
    if not folder.exists() or not any(folder.iterdir()):
        return None
    if not (folder / MANIFEST).exists():
        raise InputError("the folder contains other files", file=folder, fix="choose an empty or a new folder")
    try:
        found = open_recording(folder)
        for event in found.events:
            found.read(event)
    except InputError as error:
        log.warning("%s: %s. The training is recorded again.", error.file, error.problem)
        return None
    problem = _difference(found.identity, identity)
    if problem is None and beside is not None and not found.reads_the_same(beside):
        problem = "other inputs"
    if problem:
        log.warning("%s: the recording has %s. The training is recorded again.", folder, problem)
        return None
    return found


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    if there["fingerprint"] != here["fingerprint"]:
        return "another graph"
    if changed := differences(there["configuration"], here["configuration"]):
        return f"other settings ({changed})"
    parts = [
        f"{name.replace('_', ' ')} is {there[name]} there and {here[name]} here"
        for name in _IDENTITY
        if name != "configuration" and there[name] != here[name]
    ]
    return f"other settings ({', '.join(parts)})" if parts else None


def _write_recording(
    configuration: Configuration,
    graph: EvolvingGraph,
    identity: Mapping[str, Any],
    folder: Path,
    beside: Recording | None,
    on_progress: OnTask | None,
) -> Recording:
    staged, old = folder.with_name(f"{folder.name}.new"), folder.with_name(f"{folder.name}.old")
    for left in (staged, old):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    staged.mkdir()
    try:
        view, events, backtest_seconds = _train(
            configuration, graph, identity["seed"], _EventWriter(staged, beside), on_progress
        )
        content = _Manifest(**identity, view=view, backtest_seconds=backtest_seconds, events=tuple(events))
        write_synced(staged / MANIFEST, dump_json(msgspec.to_builtins(content)))
        sync_folder(staged)
        if folder.exists():
            folder.replace(old)
        staged.replace(folder)
        sync_folder(folder.parent)
    finally:
        for left in (staged, old):
            shutil.rmtree(left, ignore_errors=True)
    return open_recording(folder)


def _train(
    configuration: Configuration, graph: EvolvingGraph, seed: int, writer: _EventWriter, on_progress: OnTask | None
) -> tuple[_View, list[Event], float]:
    """Train on all tasks; return the view of the tasks, the events, and the seconds before the first task."""
    backtest_seconds = 0.0
    recorder = _Recorder(configuration.detector, writer)
    learner = _RecordedLearner(**configuration.learner(seed).get_params() | {"detector": recorder})
    plan = tuple(configuration.tasks(graph))
    for number, planned in enumerate(plan):
        task = replace(planned, seed=seed)  # a new object: it caches its windows, which would otherwise accumulate
        on_step = None if on_progress is None else partial(_report, on_progress, number, len(plan), configuration.steps)
        writer.start()
        learner.adapt(task, on_step)
        seconds = writer.seconds()
        if number == 0:  # all events but the last, the learner's own first fit, are of the discarded model
            *before, own = writer.events
            writer.events = [*(msgspec.structs.replace(event, backtest=True) for event in before), own]
            backtest_seconds = writer.began[-2] if before else 0.0
        outputs = learner.outputs(task)
        spent = seconds - (backtest_seconds if number == 0 else 0.0)
        writer.write("decide", outputs, time=task.time, classes=learner.classes_, seconds=spent)
    first = plan[0]
    view = _View(
        history=first.history,
        mode=first.mode,
        label_rate=first.label_rate,
        reach_back=first.reach_back,
        label_latency=first.label_latency,
    )
    return view, writer.events, backtest_seconds


def _report(on_progress: OnTask, task: int, tasks: int, steps: int, step: int, _loss: float) -> None:
    on_progress(task, tasks, step, steps)


# --- replay ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ReplayedTask:
    """Decisions of a detector on one task, and the seconds it took to observe, fit and decide since the last task."""

    decisions: Decisions
    seconds: float


def replay(
    recording: Recording,
    graph: EvolvingGraph,
    detector: Detector,
    auxiliaries: Mapping[Detector, Recording] | None = None,
) -> list[ReplayedTask]:
    """Return the decisions of a detector on all tasks, bit for bit those of a learner with this detector.

    The recording must be of a training with the loss of the detector, which is not checked. ``auxiliaries`` are
    recordings of the same training with the losses of auxiliary models, if the detector requires one.
    """
    return replay_all(recording, graph, [detector], auxiliaries)[0]


def replay_all(
    recording: Recording,
    graph: EvolvingGraph,
    detectors: Sequence[Detector],
    auxiliaries: Mapping[Detector, Recording] | None = None,
) -> list[list[ReplayedTask]]:
    """Replay several detectors together: each event is read once, and they share what is computed from the graph.

    What they share counts towards the seconds of the first detector that needs it.
    """
    if fingerprint(graph) != recording.identity["fingerprint"]:
        raise InputError("the recording is of another graph", file=recording.folder, fix="pass the recorded graph")
    others = {
        auxiliary: _auxiliary_recording(recording, one, auxiliaries or {})
        for one in detectors
        if (auxiliary := one.requires.auxiliary) is not None
    }
    replayed = [_ReplayedDetector(detector, recording.identity["backtest_slices"]) for detector in detectors]

    @lru_cache(maxsize=2)  # a slice is decided and, two events later, observed
    def context_of(time: int, classes: tuple[str, ...]) -> SliceContext:
        return SliceContext(recording.task(graph, time), classes)

    found: list[list[ReplayedTask]] = [[] for _ in detectors]
    for number, event in enumerate(recording.events):
        tensors = recording.read(event)
        context = None if event.time is None else context_of(event.time, event.classes)
        plain = Outputs(tensors["logits"], tensors.get("hidden"), context, stacked_logits=tensors.get("stacked"))
        with_auxiliary: dict[Detector | None, Outputs] = {
            auxiliary: replace(plain, auxiliary_logits=other.read(other.events[number])["logits"])
            for auxiliary, other in others.items()
        }
        for one, tasks in zip(replayed, found, strict=True):
            outputs = with_auxiliary.get(one.detector.requires.auxiliary, plain)
            if context is not None and event.kind == "decide":
                tasks.append(one.decide(outputs, context))
            else:
                one.learn(event, outputs, tensors["targets"])
    return found


def _auxiliary_recording(
    recording: Recording, detector: Detector, auxiliaries: Mapping[Detector, Recording]
) -> Recording:
    """Return the recording of a detector's auxiliary model: the same training but for the loss."""
    auxiliary = detector.requires.auxiliary
    found = None if auxiliary is None else auxiliaries.get(auxiliary)
    loss = None if found is None else found.identity["configuration"]["detector"]
    if found is None or loss != described(auxiliary) or _without_loss(found) != _without_loss(recording):
        raise InputError(
            f"{type(detector).__name__} requires an auxiliary model, but there is no matching recording of one",
            file=recording.folder,
            fix="record the same training with the loss of the auxiliary model, and pass that recording",
        )
    return found


def _without_loss(recording: Recording) -> list[object]:
    """Return what recordings of the same training with different losses share."""
    events = [msgspec.structs.replace(event, file="", sha256="", seconds=0.0) for event in recording.events]
    configuration = {**recording.identity["configuration"], "detector": None}
    return [{**recording.identity, "configuration": configuration}, recording.view, *events]


class _ReplayedDetector:
    """A detector that is fitted, observes and decides as in a learner."""

    def __init__(self, detector: Detector, recorded: int) -> None:
        self._backtests, slices = _needs_backtest(detector), detector.requires.replay
        if self._backtests and slices != recorded:
            raise InputError(
                f"{type(detector).__name__} requires a replay of {slices} slices, but {recorded} were recorded",
                fix=f"use detectors that require {recorded} or none",
            )
        self.fitted, self.seconds = FittedDetector(detector), 0.0

    @property
    def detector(self) -> Detector:
        return self.fitted.detector

    def learn(self, event: Event, outputs: Outputs, targets: Tensor) -> None:
        if event.backtest and not self._backtests:
            return
        begun = clock.perf_counter()
        if event.kind == "observe":
            self.fitted = self.fitted.observe(outputs, targets)
        else:
            self.fitted = self.fitted.fit(outputs, targets, cold=event.cold)
        self.seconds += clock.perf_counter() - begun

    def decide(self, outputs: Outputs, context: SliceContext) -> ReplayedTask:
        begun = clock.perf_counter()
        score, flagged = self.fitted.decide(outputs)
        seconds, self.seconds = self.seconds + clock.perf_counter() - begun, 0.0
        decisions = Decisions(
            ids=context.task.test_ids,
            time=context.task.time,
            best=np.array(context.classes, object)[outputs.best_logits.argmax(1).numpy()],
            flagged=flagged.numpy(),
            score=score.numpy(),
            probability=self.detector.class_probabilities(outputs).amax(1).numpy(),
            known=context.classes,
        )
        return ReplayedTask(decisions, seconds)
