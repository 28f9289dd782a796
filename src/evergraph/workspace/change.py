"""A command in progress: the graph and the model it starts from, what it changes, and how it ends."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import DamagedWorkspaceError, StaleError
from evergraph.graph.blocks import joined
from evergraph.names import inputs_of_version_0_1
from evergraph.storage.decoding import InvalidContentError, converted, decoding, parse_json
from evergraph.storage.objects import Objects
from evergraph.storage.records import Records, Row
from evergraph.workspace.store import Classes, Store, WorkspaceState, class_numbers, valid_in

if TYPE_CHECKING:
    from evergraph.detect import Detector
    from evergraph.graph.evolving import EvolvingGraph
    from evergraph.graph.segments import Segment
    from evergraph.learning.learner import LifelongLearner
    from evergraph.nn.base import Model

__all__ = ["Change", "Contents", "Outcome"]

log = logging.getLogger(__name__)

_LATE = ("label", "classes create", "set")  # commands that warn if labels are late for the history
_ADDING = ("add", "label", "predict", "tag")  # commands that long work of an earlier version does not depend on
_RESTORE = "restore the folder from a backup, or roll back"


@dataclass(frozen=True)
class Outcome:
    """What a command did.

    Parameters
    ----------
    version
        The version that it made.
    parts
        What it did, as a list of phrases.
    facts
        What it did, as values for JSON.
    command
        Its name, as in the log.
    """

    version: int
    parts: tuple[str, ...]
    facts: dict[str, Any] = field(default_factory=dict)
    command: str = ""

    @property
    def what(self) -> str:
        """What it did, on one line."""
        return "; ".join(self.parts)


# --- the graph -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Contents:
    """The graph of a version, and the numbers that the records use for its vertices and classes.

    Parameters
    ----------
    graph
        The graph with the labels that have arrived.
    vertices
        For each row of the graph the number of the vertex.
    labels
        For each row of the graph the number of its class; -1 without a label.
    """

    graph: EvolvingGraph
    vertices: NDArray[np.int64]
    labels: NDArray[np.int32]

    @classmethod
    def of(
        cls, graph: EvolvingGraph, vertices: NDArray[np.int64], labels: NDArray[np.int32], classes: Classes
    ) -> Contents:
        """Set the graph's labels from the numbers of their classes; the graph's classes follow the order of those."""
        row_of = {number: row for row, number in enumerate(classes.numbers.values())}
        lookup = np.full(max([*classes.rows, *classes.gone], default=0) + 2, -1, np.int32)
        for number in classes.rows:
            lookup[number] = row_of.get(classes.resolve(number), -1)
        codes = lookup[labels]  # the last entry is for -1, no label
        codes.flags.writeable = False
        return cls(replace(graph, codes=codes, class_names=classes.names), vertices, labels)

    @classmethod
    def read(cls, records: Records, objects: Objects, classes: Classes, version: int | None = None) -> Contents:
        """Read the contents of a version (None: the current one)."""
        from evergraph.graph.arrays import are_times
        from evergraph.graph.segments import decode, join

        with decoding(objects.folder, _damaged_graph):
            rows = records.select("segments", f"{valid_in(version)} ORDER BY segment")
            files = StoredSegments({row.object: objects.view(row.object, check_segment) for row in rows})
            segments = [decode(files.contents[row.object]) for row in rows]
            graph = replace(join(segments), source=files)
            if not are_times(graph.times[[0, -1]]):
                raise InvalidContentError("times are out of range")
            parts = [part for part in segments if "vertices" in part]
            vertices = joined(parts[0]["vertices"], [part["vertices"] for part in parts[1:]])
            labels = np.concatenate([part["labels"] for part in parts])
            if not len(vertices) == len(labels) == len(graph):
                raise InvalidContentError("the numbers of vertices and labels differ")
            most = max([*classes.rows, *classes.gone], default=0)
            if labels.min() < -1 or labels.max() > most:
                raise InvalidContentError("labels are out of range")
        found = later_labels(records, parts, version)
        if not all(row.label is None or 0 <= row.label <= most for row in found):
            raise InvalidContentError("labels are out of range")
        places = cls(graph, vertices, labels).rows_of(row.vertex for row in found)
        labels[places] = [-1 if row.label is None else row.label for row in found]
        return cls.of(graph, vertices, labels, classes)

    def rows_of(self, vertices: Iterable[int]) -> NDArray[np.int64]:
        """Return the row of each vertex in the graph; -1 if it is not in the graph."""
        wanted, order = np.fromiter(vertices, np.int64), self._order
        places = np.minimum(np.searchsorted(self.vertices, wanted, sorter=order), len(self.vertices) - 1)
        places = places if order is None else order[places]
        return np.where(self.vertices[places] == wanted, places, -1)

    @cached_property
    def _order(self) -> NDArray[np.int64] | None:
        """The rows in the order of the numbers of their vertices; None if they are in that order already."""
        vertices = np.asarray(self.vertices)
        return None if (vertices[1:] > vertices[:-1]).all() else np.argsort(vertices, kind="stable")


class StoredSegments:
    """The objects that a graph has been read from: bytes, or memory maps of large ones, by name."""

    def __init__(self, contents: Mapping[str, Any]) -> None:
        self.contents = contents

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredSegments, ({},)  # the arrays of a copied graph are copies

    def check(self) -> int:
        """Compare all objects with their hashes; return the number of bytes read."""
        for name, data in self.contents.items():
            if hashlib.sha256(data).hexdigest() != name[:64]:
                raise _damaged_graph(Path(name), "the contents are not those that were saved")
        return sum(map(len, self.contents.values()))


def check_segment(data: Any) -> None:
    """Raise an error if the bytes of a segment are invalid."""
    from evergraph.graph.segments import decode, find_segment_damage

    if (problem := find_segment_damage(decode(data))) is not None:
        raise InvalidContentError(problem)


def later_labels(records: Records, segments: Iterable[Segment], version: int | None) -> list[Row]:
    """Return the rows of labels that arrived after the segments with their vertices were written."""
    found: list[Row] = []
    for part in segments:
        numbers, since = part["vertices"], int(part["version"][0]) if "version" in part else 0
        limits = (int(numbers.min()), int(numbers.max()), since)
        found += records.select("labels", f"vertex BETWEEN ? AND ? AND since > ? AND {valid_in(version)}", *limits)
    return found


def put_segment(
    objects: Objects,
    segment: Mapping[str, NDArray[Any]],
    vertices: NDArray[np.int64],
    labels: NDArray[np.int32],
    version: int,
) -> str:
    """Write a segment of the graph with the numbers of its vertices and their classes; return the object's name.

    ``version`` is the version of the labels: those of later versions are in the records.
    """
    from evergraph.graph.segments import encode

    arrays: dict[str, NDArray[Any]] = dict(segment)
    if len(vertices):
        arrays |= {"vertices": vertices, "labels": labels.astype(np.int32), "version": np.array([version])}
    return objects.put(encode(arrays), "segment")


def unlabelled(graph: EvolvingGraph) -> EvolvingGraph:
    """Return the graph without labels and classes, which are in the records."""
    return replace(graph, codes=np.full(len(graph), -1, np.int32), class_names=())


# --- the model -------------------------------------------------------------------------------------------------------


def put_learner(objects: Objects, learner: LifelongLearner) -> tuple[str, str]:
    """Write a learner; return the names of its two objects, JSON and tensors."""
    from evergraph.learning.checkpoint import pack

    content, tensors = pack(learner)
    content["settings"]["device"] = "cpu"  # the device belongs to the machine, not to the workspace
    described = json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    return objects.put(described, "json"), objects.put(tensors, "safetensors")


def read_learner(
    records: Records,
    objects: Objects,
    state: WorkspaceState,
    own: tuple[Model | None, Detector | None],
    classes: Classes,
    device: str = "cpu",
) -> LifelongLearner:
    """Read the model of a version onto a device, with the names of its classes taken from ``classes``.

    ``own`` are a model and a detector of the user that cannot be stored.
    """
    from safetensors.torch import load

    from evergraph.learning.checkpoint import unpack
    from evergraph.learning.learner import LifelongLearner

    content = read_description(objects, state)
    with decoding(objects.folder / state.tensors, _damaged_learner):
        tensors = load(objects.read(state.tensors))
    with decoding(objects.folder / state.learner, _damaged_learner):
        learner = unpack(LifelongLearner, content, tensors, *own, device)
    numbers = class_numbers(records.select("models", "model = ?", state.model.number)[0])
    if len(numbers) != len(learner.classes_):
        raise InvalidContentError(f"model {state.model.number} has {len(numbers)} classes, not those of its learner")
    return learner.renamed(list(map(classes.name, numbers)))


def untrained_learner(
    objects: Objects, state: WorkspaceState, own: tuple[Model | None, Detector | None], device: str
) -> LifelongLearner:
    """Return a new learner with the model and detector that were set; the trained ones need not be readable."""
    from evergraph.learning.checkpoint import untrained
    from evergraph.learning.learner import LifelongLearner

    content = read_description(objects, state) | state.settings.pending
    if "inputs" in state.settings.pending:
        content["settings"] = content["settings"] | {"inputs": content["inputs"]}
    with decoding(objects.folder / state.learner, _damaged_learner):
        return untrained(LifelongLearner, content, *own, device).set_params(restart="warm")


def read_description(objects: Objects, state: WorkspaceState) -> dict[str, Any]:
    """Read model, detector and settings of the learner of a version."""
    with decoding(objects.folder / state.learner, _damaged_learner):
        content = converted(parse_json(objects.read(state.learner)), dict[str, Any])
        if not all(isinstance(content[part], dict | str | None) for part in ("model", "detector")):
            raise InvalidContentError("it describes no model and detector")
        settings, vocabulary = (converted(content[part], dict[str, Any]) for part in ("settings", "vocabulary"))
        return content | {"settings": {"inputs": inputs_of_version_0_1(vocabulary), **settings}}


def read_inputs(objects: Objects, state: WorkspaceState) -> tuple[str, ...]:
    """Read which blocks the model of a version reads, without loading it."""
    with decoding(objects.folder / state.learner, _damaged_learner):
        vocabulary = converted(read_description(objects, state)["vocabulary"], dict[str, Any])
        if "names" in vocabulary:  # of version 0.1
            return ("numbers" if vocabulary["names"] is None else "words",)
        blocks, unread = (converted(vocabulary.get(name, []), tuple[str, ...]) for name in ("blocks", "unread"))
        return tuple(block for block in blocks if block not in unread or block == "classes")  # as `Vocabulary.sizes`


def _damaged_learner(path: Path, problem: str) -> DamagedWorkspaceError:
    return DamagedWorkspaceError(f"the learner is damaged: {problem}", file=path, fix=_RESTORE)


def _damaged_graph(path: Path, problem: str) -> DamagedWorkspaceError:
    return DamagedWorkspaceError(f"the arrays of the graph are damaged: {problem}", file=path, fix=_RESTORE)


# --- a command -------------------------------------------------------------------------------------------------------


@dataclass
class Change:
    """A workspace that a command is changing.

    Parameters
    ----------
    store, records
        Files and records of the workspace.
    state, contents
        The current version and its graph; a command sets the new ones.
    own
        Model and detector of the user that cannot be stored.
    device
        Device to compute on.
    outcome
        What the command did; None if it made no new version.
    """

    store: Store
    records: Records
    state: WorkspaceState
    contents: Contents
    own: tuple[Model | None, Detector | None] = (None, None)
    device: str = "cpu"
    outcome: Outcome | None = None

    @property
    def graph(self) -> EvolvingGraph:
        """The graph with the labels that have arrived."""
        return self.contents.graph

    @property
    def objects(self) -> Objects:
        """The objects of the workspace."""
        return self.store.objects

    @property
    def version(self) -> int:
        """Number of the new version."""
        return self.state.version + 1

    def learner(self) -> LifelongLearner:
        """Read the current model."""
        return read_learner(self.records, self.objects, self.state, self.own, self.state.classes, self.device)

    def finish(self, command: str, *parts: str, **facts: Any) -> Outcome:
        """Write the new version and its log entry; the transaction is committed when the command returns."""
        if command in _LATE:
            from evergraph.workspace.scores import late_warnings

            self.warn(facts, late_warnings(self.records, self.state, self.store.folder))
        self.outcome = Outcome(self.version, parts, facts, command)
        write_log(self.records, self.version, command, self.outcome.what)
        write_state(self.records, replace(self.state, version=self.version), self.graph)
        self.store.flush(self.records, self.version, self.state.settings.keep)
        return self.outcome

    def refuse_conflicts(self, version: int, problem: str, fix: str) -> None:
        """Refuse work that began with an earlier version if a command since then may have made it wrong."""
        there = self.records.select("versions", "version > ? ORDER BY version", version)
        for row in there:
            if row.command not in _ADDING:
                what = f"version {row.version}, {row.command}: {row.what}"
                raise StaleError(f"the workspace has changed meanwhile ({what}), so {problem}", fix=fix)

    def warn(self, facts: dict[str, Any], warnings: Iterable[str]) -> None:
        """Log warnings, and add them to the facts of an outcome."""
        for warning in warnings:
            log.warning("Warning: %s", warning)
            facts["warnings"] = [*facts.get("warnings", []), warning]

    def count_labels(self, old: Iterable[tuple[int, int]], new: Iterable[tuple[int, int]]) -> None:
        """Update the number of vertices per period and class; labels are pairs of both, removed and added."""
        changes = Counter(new)
        changes.subtract(Counter(old))
        rows = []
        for (time, label), number in changes.items():
            if number:
                before = self.records.replace(
                    "supports", "time = ? AND label = ? AND until IS NULL", (time, label), until=self.version
                )
                if left := number + (before[0].vertices if before else 0):
                    rows.append((time, label, left, self.version, None))
        self.records.insert("supports", rows)

    def count_fresh(self, times: Iterable[int]) -> None:
        """Count labels that the model was not trained on, given the periods of their vertices."""
        for time, number in Counter(times).items():
            before = self.records.replace("fresh", "time = ? AND until IS NULL", (time,), until=self.version)
            self.records.insert("fresh", [(time, number + (before[0].labels if before else 0), self.version, None)])

    def name_classes(self, names: Iterable[str]) -> dict[str, int]:
        """Return the numbers of all classes by name, after adding those that are new."""
        known = dict(self.state.classes.numbers)
        gone = {name: number for number, name in self.state.classes.gone.items()}  # undone by a rollback
        number, position = self.next_class()
        rows: list[tuple[Any, ...]] = []
        for name in names:
            if name not in known:
                known[name] = gone[name] if name in gone else number + len(rows)
                rows.append((known[name], name, position + len(rows), None, None, self.version, None))
        self.records.insert("classes", rows)
        return known

    def class_numbers(self, model: int | None = None) -> dict[str, int]:
        """Return the numbers of all current classes and of those a model (None: the current one) knows, by name."""
        classes = self.state.classes
        row = self.records.one("models", "model = ?", self.state.model.number if model is None else model)
        known = [] if row is None else class_numbers(row)
        return {classes.name(number): classes.resolve(number) for number in known} | classes.numbers

    def next_class(self) -> tuple[int, int]:
        """Return number and position for the next new class."""
        number, position = self.records.query("SELECT max(number), max(position) FROM classes")[0]
        return (number or 0) + 1, (position or 0) + 1


def write_log(records: Records, version: int, command: str, what: str) -> None:
    """Write the log entry of a version."""
    records.insert("versions", [(version, datetime.now(UTC).isoformat(timespec="seconds"), command, what)])


def write_state(records: Records, state: WorkspaceState, graph: EvolvingGraph) -> None:
    """Write the row that makes a version restorable."""
    figures = (len(graph), graph.n_edges, graph.first_time, graph.last_time, state.next_vertex)
    records.insert(
        "states", [(state.version, state.model.number, state.learner, state.tensors, int(state.stale), *figures)]
    )
