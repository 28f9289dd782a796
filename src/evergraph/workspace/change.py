"""A command in progress: the graph it starts from, what it changes, and how it ends."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import DamagedWorkspaceError
from evergraph.storage.objects import Objects
from evergraph.storage.records import Records
from evergraph.workspace.store import Classes, State, Store, in_force

if TYPE_CHECKING:
    from evergraph.detect import Detector
    from evergraph.graph.evolving import EvolvingGraph
    from evergraph.learning.learner import LifelongLearner
    from evergraph.nn.base import Model

__all__ = ["Change", "Contents", "Outcome", "counted"]


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with the word for one or for several.

    Examples
    --------
    >>> counted(1, "label"), counted(1_200, "vertex", "vertices")
    ('1 label', '1,200 vertices')
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


@dataclass(frozen=True)
class Outcome:
    """What a command did.

    Parameters
    ----------
    version
        The version in force afterwards.
    parts
        In words, one thing a part.
    facts
        In numbers and names, fit for JSON.
    """

    version: int
    parts: tuple[str, ...]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def what(self) -> str:
        """All in one line."""
        return "; ".join(self.parts)


# --- the graph -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Contents:
    """The graph of a version, and what the records say of its vertices.

    Parameters
    ----------
    graph
        With the labels that have come.
    vertices
        For each row of the graph the number that the vertex has in the records.
    labels
        For each row the number of its class; -1 where there is no label.
    """

    graph: EvolvingGraph
    vertices: NDArray[np.int64]
    labels: NDArray[np.int32]

    @classmethod
    def of(
        cls, graph: EvolvingGraph, vertices: NDArray[np.int64], labels: NDArray[np.int32], classes: Classes
    ) -> Contents:
        """The contents with labels by the names that classes have; rows of the graph's classes follow their order."""
        row_of = {number: row for row, number in enumerate(classes.numbers.values())}
        lookup = np.full(max([*classes.rows, *classes.gone], default=0) + 2, -1, np.int32)
        for number in classes.rows:
            lookup[number] = row_of.get(classes.resolve(number), -1)
        codes = lookup[labels]  # whose last place is for -1, no label
        codes.flags.writeable = False
        return cls(replace(graph, codes=codes, class_names=classes.names), vertices, labels)

    @classmethod
    def read(cls, records: Records, objects: Objects, classes: Classes, version: int | None = None) -> Contents:
        """The contents of a version, or of that in force."""
        from evergraph.graph.arrays import decode, find_damage, join

        rows = records.select("segments", f"{in_force(version)} ORDER BY segment")
        try:
            segments = [decode(objects.read(row.object)) for row in rows]
            graph = join(segments)
            vertices, labels = (
                np.concatenate([part[name] for part in segments if name in part]) for name in ("vertices", "labels")
            )
            problem = find_damage(graph)
            if problem is None and not len(vertices) == len(labels) == len(graph):
                problem = "vertices and labels are not of the same number"
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, DamagedWorkspaceError):
                raise
            problem = f"they lack or distort {error}"
        if problem is not None:
            raise DamagedWorkspaceError(
                f"the arrays of the graph are damaged: {problem}",
                file=objects.folder,
                fix="restore the folder from a backup, or roll back",
            )
        found = records.select("labels", in_force(version))
        labels = np.array(labels)
        places = cls(graph, vertices, labels).rows_of(row.vertex for row in found)
        labels[places] = [-1 if row.label is None else row.label for row in found]
        return cls.of(graph, vertices, labels, classes)

    def rows_of(self, vertices: Iterable[int]) -> NDArray[np.int64]:
        """The row of each vertex in the graph; -1 where it is not there."""
        wanted = np.fromiter(vertices, np.int64)
        order = np.argsort(self.vertices, kind="stable")  # which is fast where they ascend, as they nearly always do
        places = order[np.minimum(np.searchsorted(self.vertices, wanted, sorter=order), len(order) - 1)]
        return np.where(self.vertices[places] == wanted, places, -1)


def put_segment(
    objects: Objects, segment: Mapping[str, NDArray[Any]], vertices: NDArray[np.int64], labels: NDArray[np.int32]
) -> str:
    """Write a segment of the graph with the numbers of its vertices and their classes; returns the object's name."""
    from evergraph.graph.arrays import encode

    arrays: dict[str, NDArray[Any]] = dict(segment)
    if len(vertices):
        arrays |= {"vertices": vertices, "labels": labels.astype(np.int32)}
    return objects.put(encode(arrays), "segment")


def unlabelled(graph: EvolvingGraph) -> EvolvingGraph:
    """The graph without labels and classes, which the records have."""
    return replace(graph, codes=np.full(len(graph), -1, np.int32), class_names=())


# --- models ----------------------------------------------------------------------------------------------------------


def put_learner(objects: Objects, learner: LifelongLearner) -> tuple[str, str]:
    """Write a learner; returns the names of its objects: what JSON can hold, and its tensors."""
    from evergraph.learning.checkpoint import pack

    content, tensors = pack(learner)
    described = json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    return objects.put(described, "json"), objects.put(tensors, "safetensors")


def read_learner(
    records: Records, objects: Objects, state: State, own: tuple[Model | None, Detector | None], classes: Classes
) -> LifelongLearner:
    """The model in force in a state, with classes by the names that they have; what a file cannot hold is given."""
    from safetensors import SafetensorError

    from evergraph.learning.checkpoint import unpack
    from evergraph.learning.learner import LifelongLearner

    try:
        content = json.loads(objects.read(state.learner))
        learner = unpack(LifelongLearner, content, objects.read(state.tensors), *own)
    except (LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise DamagedWorkspaceError(
            f"the learner is damaged: it lacks or distorts {error}",
            file=objects.folder,
            fix="restore the folder from a backup, or roll back",
        ) from error
    numbers = json.loads(records.select("models", "model = ?", state.model.number)[0].classes)
    return learner.renamed(list(map(classes.name, numbers)))


# --- a command -------------------------------------------------------------------------------------------------------


@dataclass
class Change:
    """A workspace that is held to be changed.

    Parameters
    ----------
    store, records
        Where things are read from and written to.
    state, contents
        The version in force and its graph; a command that changes them sets the new ones.
    own
        Model and detector of the user's own, which a file cannot hold.
    """

    store: Store
    records: Records
    state: State
    contents: Contents
    own: tuple[Model | None, Detector | None] = (None, None)
    made: bool = False

    @property
    def graph(self) -> EvolvingGraph:
        """The graph with the labels that have come."""
        return self.contents.graph

    @property
    def objects(self) -> Objects:
        """Where objects are written."""
        return self.store.objects

    @property
    def version(self) -> int:
        """The number of the version that it makes."""
        return self.state.version + 1

    def learner(self) -> LifelongLearner:
        """The model in force."""
        return read_learner(self.records, self.objects, self.state, self.own, self.state.classes)

    def commit(self, command: str, *parts: str, **facts: Any) -> Outcome:
        """Make the state the one in force, and say in words what was done; the transaction ends with the command."""
        outcome = Outcome(self.version, parts, facts)
        write_version(self.records, self.version, command, outcome.what)
        write_state(self.records, replace(self.state, version=self.version), self.graph)
        self.store.commit(self.records, self.version, self.state.settings.keep)
        self.made = True
        return outcome

    def count_labels(self, old: Iterable[tuple[int, int]], new: Iterable[tuple[int, int]]) -> None:
        """Count labels that are gone and labels that are there now: pairs of a time and a number of a class."""
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
        """Count labels that the model has not learnt from, by the times of their vertices."""
        for time, number in Counter(times).items():
            before = self.records.replace("fresh", "time = ? AND until IS NULL", (time,), until=self.version)
            self.records.insert("fresh", [(time, number + (before[0].labels if before else 0), self.version, None)])

    def name_classes(self, names: Iterable[str]) -> dict[str, int]:
        """The numbers of classes by name; new ones get one, and those that a rollback undid are back."""
        known = dict(self.state.classes.numbers)
        gone = {name: number for number, name in self.state.classes.gone.items()}
        number, position = self.next_class()
        rows: list[tuple[Any, ...]] = []
        for name in names:
            if name not in known:
                known[name] = gone[name] if name in gone else number + len(rows)
                rows.append((known[name], name, position + len(rows), None, None, self.version, None))
        self.records.insert("classes", rows)
        return known

    def class_numbers(self) -> dict[str, int]:
        """The numbers of all classes that there are or that the model in force knows, by name."""
        classes = self.state.classes
        row = self.records.one("models", "model = ?", self.state.model.number)
        known = [] if row is None else json.loads(row.classes)
        return {classes.name(number): classes.resolve(number) for number in known} | classes.numbers

    def next_class(self) -> tuple[int, int]:
        """Number and place of the next new class."""
        number, position = self.records.query("SELECT max(number), max(position) FROM classes")[0]
        return (number or 0) + 1, (position or 0) + 1


def write_version(records: Records, version: int, command: str, what: str, made: str | None = None) -> None:
    """Write a line of the log."""
    made = made or datetime.now(UTC).isoformat(timespec="seconds")
    records.insert("versions", [(version, made, command, what)])


def write_state(records: Records, state: State, graph: EvolvingGraph) -> None:
    """Write what makes a version, beside the rows that are in force in it."""
    figures = (len(graph), graph.n_edges, graph.first_time, graph.last_time, state.next_vertex)
    records.insert(
        "states", [(state.version, state.model.number, state.learner, state.tensors, int(state.stale), *figures)]
    )
