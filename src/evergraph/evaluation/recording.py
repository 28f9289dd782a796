"""One training on record: what a model said whenever a detector would have listened, for any detector to be judged by.

::

    RECORDING/
      recording.json                what was recorded: settings, the graph's fingerprint, and the list of events
      0000-fit.safetensors          what the model said at one event, and of which classes the vertices are

Training is what costs, and it does not know how classes are told apart afterwards. A recording is written beside its
place and renamed when it is whole, so one that was interrupted is never taken for one.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import time as clock
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from
from safetensors.torch import save as tensors_to
from torch import Tensor

from evergraph import __version__
from evergraph.detect import Decision, Detector, Outputs, Requirements
from evergraph.detect.base import State
from evergraph.errors import InputError
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.results import NUMERICS_VERSION, differences
from evergraph.graph.arrays import fingerprint
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.task import Task
from evergraph.nn import Model
from evergraph.storage.checksummed import InvalidJsonError, dump_json, load_json
from evergraph.storage.files import disk_errors, only_one, sync_folder, write_synced

__all__ = ["Event", "OnTask", "Recorder", "Recording", "open_recording", "record"]

log = logging.getLogger(__name__)

FORMAT = "evergraph recording"
FORMAT_VERSION = 1
MANIFEST = "recording.json"

OnTask = Callable[[int, int, int, int], object]
"""Called with the number of the task, how many tasks, the steps done, and how many steps."""

Kind = Literal["observe", "fit", "decide"]

_FITTED = "fitted"  # in the recorder's state: there was a fit before, and the restart since then was warm
_IDENTITY = ("configuration", "seed", "fingerprint", "numerics_version", "rehearsals")
_AGAIN = "remove the folder, and run the same command again, which records it anew"


@dataclass(frozen=True)
class Event:
    """A moment at which a detector would have been called.

    Parameters
    ----------
    kind
        What it would have been called for; to ``decide`` is to score and to reject.
    file, sha256
        Where it is kept what the model said, and a hash of that.
    time
        Time of the slice; None for a fit, which is of a whole window.
    classes
        Names of the classes known to the model; none for a fit.
    cold
        Of a fit: whether nothing but the past outlives it.
    rehearsal
        Whether it was before the first task, and is thrown away but for the past.
    seconds
        Of a decision: how long the training before it took.
    """

    kind: Kind
    file: str
    sha256: str
    time: int | None = None
    classes: tuple[str, ...] = ()
    cold: bool = False
    rehearsal: bool = False
    seconds: float = 0.0


class _Tape:
    """Where events are written to, one after another; the writing is no part of the time that training takes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.asked: tuple[int | None, tuple[str, ...]] = (None, ())
        self.began: list[float] = []  # seconds at which each event of late was there to be written
        self._started, self._writing = clock.perf_counter(), 0.0

    def start(self) -> None:
        """Count seconds from now on."""
        self._started, self._writing, self.began = clock.perf_counter(), 0.0, []

    def seconds(self) -> float:
        """How many have passed."""
        return clock.perf_counter() - self._started - self._writing

    def write(self, kind: Kind, outputs: Outputs, targets: Tensor | None = None, **facts: Any) -> None:
        """Add an event."""
        self.began.append(self.seconds())
        begun = clock.perf_counter()
        tensors = {"logits": outputs.logits, "hidden": outputs.hidden, "targets": targets}
        # Copies, for a model without hidden vectors of its own may give its logits for them.
        data = tensors_to({name: x.detach().cpu().contiguous().clone() for name, x in tensors.items() if x is not None})
        name = f"{len(self.events):04}-{kind}.safetensors"
        write_synced(self.folder / name, data)
        self.events.append(Event(kind, name, hashlib.sha256(data).hexdigest(), **facts))
        self._writing += clock.perf_counter() - begun


@dataclass(frozen=True)
class Recorder(Detector):
    """Trains as another detector does, writes down whatever a detector gets to see, and flags none.

    Parameters
    ----------
    inner
        The detector whose loss it has.
    tape
        Where to write.
    """

    replay: ClassVar[int] = 3

    inner: Detector
    tape: _Tape = field(repr=False, compare=False)

    @property
    def requires(self) -> Requirements:
        """All events; the context is not recorded."""
        return Requirements(observe=True, replay=self.replay)

    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:
        """That of the other detector."""
        return self.inner.loss(logits, targets, counts, weights)

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        """Write it down, and leave a mark that a cold restart removes."""
        self.tape.write("fit", outputs, targets, cold=_FITTED not in state)
        return {_FITTED: torch.ones(1)}

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        """Write it down."""
        time, classes = self.tape.asked
        self.tape.write("observe", outputs, targets, time=time, classes=classes)
        return state

    def decide(self, outputs: Outputs, state: State) -> Decision:  # noqa: ARG002
        """Score all alike, and flag none."""
        return Decision(torch.zeros(len(outputs), dtype=torch.float64), torch.zeros(len(outputs), dtype=torch.bool))


class _OnTape(LifelongLearner):
    """Tells its recorder what it is asked, and learns at the rate of the detector that is recorded."""

    def outputs(self, task: Task) -> Outputs:
        if isinstance(self.detector, Recorder):
            self.detector.tape.asked = (task.time, self.classes_)
        return super().outputs(task)

    def _rate(self, model: Model, detector: Detector, task: Task) -> float:
        return super()._rate(model, detector.inner if isinstance(detector, Recorder) else detector, task)


@dataclass(frozen=True)
class Recording:
    """A training that was recorded.

    Parameters
    ----------
    folder
        Where it is.
    identity
        What makes it this one: ``configuration``, ``seed``, ``fingerprint``, ``numerics_version``, ``rehearsals``.
    view
        What its tasks show: ``history``, ``mode`` and ``label_rate``.
    events
        In the order in which they happened.
    rehearsal_seconds
        How long the life before the first task took, which detectors without a past have no need of.
    """

    folder: Path
    identity: Mapping[str, Any]
    view: Mapping[str, Any]
    events: tuple[Event, ...]
    rehearsal_seconds: float

    @property
    def seconds(self) -> float:
        """How long training took, without rehearsals."""
        return sum(event.seconds for event in self.events)

    def training_seconds(self, detector: Detector) -> float:
        """How long training would have taken with a detector."""
        return self.seconds + (self.rehearsal_seconds if rehearses(detector) else 0.0)

    def task(self, graph: EvolvingGraph, time: int) -> Task:
        """A task as it was."""
        return Task(graph, time, seed=self.identity["seed"], **self.view)

    def read(self, event: Event) -> dict[str, Tensor]:
        """What was said, and the columns of the classes: ``logits``, and ``hidden`` and ``targets`` where there are."""
        path = self.folder / event.file
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"it cannot be read ({error.strerror or error})", file=path, fix=_AGAIN) from error
        if hashlib.sha256(data).hexdigest() != event.sha256:
            raise InputError("the contents are not those that were recorded", file=path, fix=_AGAIN)
        try:
            return {name: value.clone() for name, value in tensors_from(data).items()}
        except SafetensorError as error:
            raise InputError(f"these are no tensors ({error})", file=path, fix=_AGAIN) from error


def rehearses(detector: Detector) -> bool:
    """Whether a detector has a use for what was before the first task."""
    return detector.requires.observe and detector.requires.replay > 0


def open_recording(folder: str | Path) -> Recording:
    """Open a recording; an `InputError` where it is damaged, or none."""
    folder = Path(folder)
    path = folder / MANIFEST
    try:
        content = load_json(path.read_bytes(), FORMAT, FORMAT_VERSION)
        events = tuple(Event(**{**event, "classes": tuple(event["classes"])}) for event in content["events"])
        for event in events:
            if not re.fullmatch(r"[0-9]+-[a-z_]+\.safetensors", event.file):
                raise InvalidJsonError(f"{event.file!r} is no name of an event's file")
            if event.kind not in get_args(Kind):
                raise InvalidJsonError(f"it has events of a kind that is not known here ({event.kind})")
        identity = {name: content[name] for name in _IDENTITY}
        return Recording(folder, identity, content["view"], events, content["rehearsal_seconds"])
    except FileNotFoundError:
        raise InputError(
            "this folder holds no recording", file=folder, fix="give the folder of one, an empty one or a new one"
        ) from None
    except InvalidJsonError as error:
        raise InputError(str(error), file=path, fix="update Evergraph" if error.newer else _AGAIN) from error
    except (LookupError, TypeError, AttributeError) as error:
        raise InputError(f"it lacks or distorts {error}", file=path, fix=_AGAIN) from error
    except OSError as error:
        raise InputError(f"it cannot be read ({error.strerror or error})", file=path, fix=_AGAIN) from error


# --- recording -------------------------------------------------------------------------------------------------------


def record(
    configuration: Configuration,
    graph: EvolvingGraph,
    seed: int,
    folder: str | Path,
    *,
    on_progress: OnTask | None = None,
) -> Recording:
    """Take a learner through all tasks of a graph and keep what it says; a recording that is there is not made again.

    One of other settings, another graph or another version of the numbers is replaced, and so is a damaged one; that
    is logged.

    Parameters
    ----------
    configuration
        What to run. Of its detector only the loss and the learning rate that goes with it matter.
    graph
        On what.
    seed
        Of the learner and, with a label rate below 1, of the draw of labels.
    folder
        Where to keep it.
    on_progress
        Called after each step; see `OnTask`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from evergraph.datasets import synthetic
    >>> from evergraph.detect import PostHoc, Softmax
    >>> from evergraph.evaluation.replay import replay
    >>> graph = synthetic(vertices=400, times=6, classes=4, new_classes=1, seed=1)
    >>> with TemporaryDirectory() as folder:
    ...     recording = record(Configuration(detector=Softmax(), history=3, steps=5), graph, 0, Path(folder) / "one")
    ...     judged = replay(recording, graph, PostHoc())
    >>> [one.decisions.time for one in judged]
    [2, 3, 4, 5]
    """
    folder = Path(folder)
    identity = {
        "configuration": configuration.described(graph.axis),
        "seed": seed,
        "fingerprint": fingerprint(graph),
        "numerics_version": NUMERICS_VERSION,
        "rehearsals": Recorder.replay,
    }
    if folder.exists() and not folder.is_dir():
        raise InputError("this is a file, not a folder", file=folder, fix="choose another folder")
    with disk_errors(folder, "the recording could not be kept"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with only_one(folder.parent / f".{folder.name}.lock"):
            there = _usable(folder, identity)
            return there or _recorded(configuration, graph, identity, folder, on_progress)


def _usable(folder: Path, identity: Mapping[str, Any]) -> Recording | None:
    """The recording in a folder, if it is the one that is wanted and whole."""
    if not folder.exists() or not any(folder.iterdir()):
        return None
    if not (folder / MANIFEST).exists():  # not ours to remove
        raise InputError("the folder holds something else", file=folder, fix="choose an empty or a new folder")
    try:
        found = open_recording(folder)
        for event in found.events:
            found.read(event)
    except InputError as error:
        log.warning("%s: %s. It is recorded again.", error.file, error.problem)
        return None
    if problem := _other(found.identity, identity):
        log.warning("%s: the recording is of %s. It is made again.", folder, problem)
        return None
    return found


def _other(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """In what one recording is not another; None if it is."""
    if there["fingerprint"] != here["fingerprint"]:
        return "another graph"
    changed = {name: (there[name], here[name]) for name in _IDENTITY if there[name] != here[name]}
    if old_and_new := changed.pop("configuration", None):
        return f"other settings ({differences(*old_and_new)})"
    told = [f"{name.replace('_', ' ')} is {old} there and {new} here" for name, (old, new) in changed.items()]
    return f"another kind ({', '.join(told)})" if told else None


def _recorded(
    configuration: Configuration,
    graph: EvolvingGraph,
    identity: Mapping[str, Any],
    folder: Path,
    on_progress: OnTask | None,
) -> Recording:
    staged, old = folder.with_name(f"{folder.name}.new"), folder.with_name(f"{folder.name}.old")
    for left in (staged, old):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    staged.mkdir()
    try:
        view, tape, rehearsal_seconds = _live(configuration, graph, identity["seed"], staged, on_progress)
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "evergraph": __version__,
            **identity,
            "view": view,
            "rehearsal_seconds": rehearsal_seconds,
            "events": [asdict(event) for event in tape.events],
        }
        write_synced(staged / MANIFEST, dump_json(content))
        sync_folder(staged)
        if folder.exists():
            folder.replace(old)
        staged.replace(folder)
        sync_folder(folder.parent)
    finally:
        for left in (staged, old):
            shutil.rmtree(left, ignore_errors=True)
    return open_recording(folder)


def _live(
    configuration: Configuration, graph: EvolvingGraph, seed: int, folder: Path, on_progress: OnTask | None
) -> tuple[dict[str, Any], _Tape, float]:
    """Live through all tasks; returns what they show, the tape, and the seconds of the rehearsals."""
    tape, rehearsal_seconds = _Tape(folder), 0.0
    learner = _OnTape(**configuration.learner(seed).get_params() | {"detector": Recorder(configuration.detector, tape)})
    plan = tuple(configuration.tasks(graph))
    for number, planned in enumerate(plan):
        task = replace(planned, seed=seed)  # of its own: it keeps its windows, which must not pile up
        on_step = None if on_progress is None else partial(_tell, on_progress, number, len(plan), configuration.steps)
        tape.start()
        learner.adapt(task, on_step)
        seconds = tape.seconds()
        if number == 0:  # the last event is the learner's own first fit; what came before was another one's
            *rehearsed, own = tape.events
            tape.events = [*(replace(event, rehearsal=True) for event in rehearsed), own]
            rehearsal_seconds = tape.began[-2] if rehearsed else 0.0
        outputs = learner.outputs(task)
        spent = seconds - (rehearsal_seconds if number == 0 else 0.0)
        tape.write("decide", outputs, time=task.time, classes=learner.classes_, seconds=spent)
    view = {"history": plan[0].history, "mode": configuration.mode, "label_rate": configuration.label_rate}
    return view, tape, rehearsal_seconds


def _tell(on_progress: OnTask, task: int, tasks: int, steps: int, step: int, _loss: float) -> None:
    on_progress(task, tasks, step, steps)
