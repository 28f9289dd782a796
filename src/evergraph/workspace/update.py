"""Models that follow each other: what the next one learns from, warm or cold or not at all, and going back."""

from __future__ import annotations

import json
import time as clock
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evergraph.detect import Detector
from evergraph.errors import InputError
from evergraph.graph import ids as id_columns
from evergraph.graph.arrays import base_segment
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.task import Task
from evergraph.learning.training import OnStep
from evergraph.names import DEFAULT_DETECTOR, DEFAULT_MODEL, build_detector, build_model
from evergraph.nn.base import Model
from evergraph.storage.objects import Objects
from evergraph.storage.records import Records
from evergraph.workspace.change import (
    Change,
    Contents,
    Outcome,
    counted,
    put_learner,
    put_segment,
    read_learner,
    unlabelled,
    write_state,
    write_version,
)
from evergraph.workspace.status import fresh_since
from evergraph.workspace.store import (
    ModelRecord,
    Settings,
    State,
    read_classes,
    read_state,
    return_to,
    write_settings,
)

__all__ = ["LEAST", "Choice", "choose_restart", "next_task", "rollback", "train", "update", "without_labels_of"]

LEAST = 30
"""Labels of a slice below which it decides nothing."""


# --- what to learn from ----------------------------------------------------------------------------------------------


def next_task(graph: EvolvingGraph, history: int | None, retired: Sequence[str] = ()) -> Task:
    """What the next model learns from.

    Once the newest slice has all its labels, these are the history before the coming slice. As long as it has none,
    they are the history before it. While it has some, they are both: it, and the history before it.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 2], "label": ["x", None, None]})
    >>> tasks = [next_task(graph.relabel([2, 3], labels), 1) for labels in ([None, None], ["x", None], ["x", "x"])]
    >>> [(task.start, task.time - 1) for task in tasks]
    [(1, 1), (1, 2), (2, 2)]
    """
    labelled = graph.codes[np.searchsorted(graph.times, graph.last_time) :] >= 0
    some = bool(labelled.any())
    longer = int(some and not labelled.all())
    sight = None if history is None else history + longer
    return Task(without_labels_of(graph, retired), graph.last_time + int(some), sight, mode="inductive")


def without_labels_of(graph: EvolvingGraph, retired: Collection[str]) -> EvolvingGraph:
    """A graph in which vertices of retired classes have no label: what a model learns from."""
    rows = [graph.classes.row(name) for name in retired if name in graph.classes]
    if not rows:
        return graph
    codes = np.where(np.isin(graph.codes, rows), np.int32(-1), graph.codes)
    codes.flags.writeable = False
    return replace(graph, codes=codes)


# --- updating --------------------------------------------------------------------------------------------------------


def update(change: Change, restart: str, on_step: OnStep | None) -> Outcome:
    """See `Workspace.update`."""
    if restart not in ("auto", "warm", "cold"):
        raise InputError(f"there is no restart {restart!r}", fix="choose auto, warm or cold")
    state = change.state
    task = next_task(change.graph, state.settings.history, state.retired)
    fresh = fresh_since(change.records, task.start)
    _refuse_nothing_new(state, task, fresh)
    learner = change.learner().rewound(task.time)  # the newest slices may have been taken back
    if restart == "auto":
        choice = choose_restart(change, learner, task)
    else:
        choice = Choice("cold" if restart == "cold" else "warm", "as asked for")
    if choice.restart == "skip":
        facts = {"restart": "skip", "why": choice.why, "model": state.model.number, "new_classes": []}
        return change.commit("update", f"left out, model {state.model.number} stays: {choice.why}", **facts)
    number = change.records.value("SELECT max(model) FROM models") + 1
    learner.set_params(restart=choice.restart)
    record = train(learner, task, choice, on_step, number=number, version=change.version, before=state.model.number)
    new = [name for name in record.classes if name not in state.model.classes]
    too_old = state.fresh_labels - fresh
    parts = [
        f"model {number}, {choice.restart}: {choice.why}",
        f"{counted(len(record.classes), 'class', 'classes')} from {counted(record.train_vertices, 'label')}",
    ]
    parts += [f"new: {', '.join(new)}"] if new else []
    parts += [f"{counted(too_old, 'label')} not learnt: older than the history"] if too_old else []
    facts = {"restart": choice.restart, "why": choice.why, "model": number, "new_classes": new, "not_learnt": too_old}
    change.records.replace("fresh", "until IS NULL", (), until=change.version)
    described, tensors = put_learner(change.objects, learner)
    change.state = replace(state, model=record, stale=False, learner=described, tensors=tensors)
    write_model(change.records, record, learner, change.class_numbers())
    return change.commit("update", *parts, **facts, seconds=record.seconds)


def _refuse_nothing_new(state: State, task: Task, fresh: int) -> None:
    if state.stale or fresh:
        return
    if not state.fresh_labels:
        raise InputError(
            "no label has come since the model was trained, so there is nothing new to learn",
            fix="give labels first: evergraph ws label",
        )
    raise InputError(
        f"all labels that have come are older than the history, which begins with {task.graph.axis.label(task.start)}",
        fix="label newer vertices, or make a workspace with a longer history",
    )


def train(
    learner: LifelongLearner,
    task: Task,
    choice: Choice,
    on_step: OnStep | None,
    *,
    number: int = 1,
    version: int = 1,
    before: int = 0,
) -> ModelRecord:
    """Train a learner for the coming slice."""
    labels, label = int((task.targets >= 0).sum()), task.graph.axis.label
    if not labels:
        raise InputError(
            f"there is no label to learn from between {label(task.start)} and {label(task.time - 1)}",
            fix="give labels of these times, or make the workspace with a longer history",
        )
    start = clock.perf_counter()
    learner.adapt(task, on_step)
    return ModelRecord(
        number=number,
        time=task.time,
        restart=choice.restart,
        why=choice.why,
        train_vertices=labels,
        classes=tuple(dict.fromkeys(learner.classes_)),  # those that were merged stand there twice
        seconds=round(clock.perf_counter() - start, 3),
        version=version,
        before=before,
    )


def make_first(
    records: Records,
    objects: Objects,
    graph: EvolvingGraph,
    own: tuple[Model | None, Detector | None],
    settings: Settings,
    learning: dict[str, Any],
    on_step: OnStep | None,
) -> None:
    """Train the first model of a workspace, and write its first version."""
    learner = LifelongLearner(
        own[0] or build_model(DEFAULT_MODEL), own[1] or build_detector(DEFAULT_DETECTOR), restart="warm", **learning
    )
    choice = Choice("cold", "it is the first")
    record = train(learner, next_task(graph, settings.history), choice, on_step)
    numbers = {name: number for number, name in enumerate(graph.class_names, 1)}
    labels = np.where(graph.codes >= 0, graph.codes + 1, -1).astype(np.int32)
    what = (
        f"{counted(len(graph), 'vertex', 'vertices')} up to {graph.axis.label(graph.last_time)}; model 1 has "
        f"learnt {counted(len(record.classes), 'class', 'classes')} from "
        f"{counted(record.train_vertices, 'label')}; {settings.history_why}"
    )
    write_settings(records, settings)
    write_version(records, 1, "init", what)
    records.insert("classes", ((number, name, number, None, None, 1, None) for name, number in numbers.items()))
    write_model(records, record, learner, numbers)
    vertices = np.arange(1, len(graph) + 1)
    write_graph(records, objects, graph, vertices, labels, version=1)
    described, tensors = put_learner(objects, learner)
    state = State(
        version=1,
        settings=settings,
        model=record,
        learner=described,
        tensors=tensors,
        stale=False,
        fresh_labels=0,
        vertices=len(graph),
        edges=graph.n_edges,
        first_time=graph.first_time,
        last_time=graph.last_time,
        next_vertex=len(graph) + 1,
        classes=read_classes(records),
    )
    write_state(records, state, graph)


def write_graph(
    records: Records,
    objects: Objects,
    graph: EvolvingGraph,
    vertices: NDArray[np.int64],
    labels: NDArray[np.int32],
    *,
    version: int,
) -> None:
    """Write a whole graph as its first segment, with the vertices that wait for a label and counts of the labels."""
    name = put_segment(objects, base_segment(unlabelled(graph)), vertices, labels)
    records.insert("segments", [(1, name, version, None)])
    waiting = np.flatnonzero(labels < 0).tolist()
    records.insert(
        "labels",
        (
            (int(vertices[row]), str(id_columns.at(graph.ids, row)), int(graph.times[row]), None, version, None)
            for row in waiting
        ),
    )
    known = labels >= 0
    pairs = Counter(zip(graph.times[known].tolist(), labels[known].tolist(), strict=True))
    records.insert("supports", ((*pair, count, version, None) for pair, count in pairs.items()))


def write_model(records: Records, record: ModelRecord, learner: LifelongLearner, numbers: dict[str, int]) -> None:
    """Write what is remembered of a model: also the numbers of its classes, one a column of its outputs."""
    classes = json.dumps([numbers[name] for name in learner.classes_])
    figures = (record.time, record.restart, record.why, record.train_vertices, classes, record.seconds)
    records.insert("models", [(record.number, *figures, record.version, record.before)])


# --- warm or cold ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """How to update, and why, in words."""

    restart: Literal["warm", "cold", "skip"]
    why: str


def choose_restart(change: Change, learner: LifelongLearner, task: Task) -> Choice:
    """Choose by a back-test on the newest labelled slice that the model has not learnt from.

    Three models are asked for the classes of that slice: the one in force; the one it would be, had it been restarted
    the other way (this is trained, once, with the labels that there were then); and the one before it, which had not
    learnt what the last update brought. If updating would not have gained more than one standard error, it is left
    out, unless a class is new. Of the two restarts the warm one is taken unless the cold one was better by more than
    one standard error.

    Parameters
    ----------
    change
        The workspace.
    learner
        The model in force.
    task
        What the next model would learn from.
    """
    from evergraph.workspace.decisions import best_classes

    state, graph, restart = change.state, task.graph, change.state.model.restart
    slice_ = _newest_slice(graph, state.model.time)
    if slice_ is None:
        return Choice("warm", f"no slice since the last update has {LEAST} labels to choose by")
    before, alternative = _learner_before(change), _learner_before(change)
    then = _graph_at(change, state.model.version)
    if before is None or alternative is None or then is None:
        return Choice("warm", "there is no earlier model to compare with")
    time, chosen, truth = slice_
    other = "cold" if restart == "warm" else "warm"
    lesson = next_task(then, state.settings.history, state.retired)
    alternative = alternative.rewound(lesson.time)  # slices may have been taken back between the two
    alternative.set_params(restart=other).adapt(lesson)
    right: dict[str, NDArray[np.bool_]] = {}
    for arm, model in ((restart, learner), (other, alternative), ("skip", before)):
        best = best_classes(model, graph, time, state.settings.history, state.retired)
        right[arm] = best[chosen] == truth
    share = {arm: float(hits.mean()) for arm, hits in right.items()}
    seen = (
        f"on the {len(chosen):,} labels of {graph.axis.label(time)} a model that was updated before them was right in "
        f"{share['warm']:.1%} (warm) or {share['cold']:.1%} (cold), and one that was not in {share['skip']:.1%}"
    )
    best_arm = "cold" if share["cold"] > share["warm"] else "warm"
    gained = share[best_arm] - share["skip"] > _error(right[best_arm], right["skip"])
    if not gained and not _new_classes(task, learner) and not state.stale:
        return Choice("skip", f"{seen}: no gain beyond chance")
    if share["cold"] - share["warm"] > _error(right["cold"], right["warm"]):
        return Choice("cold", seen)
    return Choice("warm", seen)


def _learner_before(change: Change) -> LifelongLearner | None:
    """The model before the one in force, where a version that had it is kept; its classes by their names of now."""
    rows = change.records.select("states", "model < ? ORDER BY version DESC LIMIT 1", change.state.model.number)
    if not rows:
        return None
    there = read_state(change.records, rows[0].version)
    return read_learner(change.records, change.objects, there, change.own, change.state.classes)


def _graph_at(change: Change, version: int) -> EvolvingGraph | None:
    """The graph as it was in a version, with classes by their names of now; None where that is not kept."""
    if change.records.one("states", "version = ?", version) is None:
        return None
    return Contents.read(change.records, change.objects, change.state.classes, version).graph


def _new_classes(task: Task, learner: LifelongLearner) -> set[str]:
    """The classes that an update would learn: labels that have left the history teach none."""
    found = np.unique(task.targets[task.targets >= 0])
    return set(task.graph.names_of(found).tolist()) - set(learner.classes_)


def _newest_slice(graph: EvolvingGraph, since: int) -> tuple[int, NDArray[np.int64], NDArray[np.object_]] | None:
    """The newest time from one on with enough labels, its labelled vertices within it, and their classes."""
    for time in np.unique(graph.times[graph.times >= since])[::-1].tolist():
        codes = graph.codes[slice(*np.searchsorted(graph.times, [time, time + 1]).tolist())]
        chosen = np.flatnonzero(codes >= 0)
        if len(chosen) >= LEAST:
            return time, chosen, graph.names_of(codes[chosen])
    return None


def _error(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """Standard error of the difference of two shares of the same vertices."""
    return float(np.std(one.astype(float) - other.astype(float)) / np.sqrt(len(one)))


# --- going back ------------------------------------------------------------------------------------------------------


def rollback(change: Change, version: int, *, model_only: bool) -> Outcome:
    """See `Workspace.rollback`."""
    state, records = change.state, change.records
    if version == state.version:
        raise InputError(f"version {version} is the one in force", fix="choose an earlier one: evergraph ws log")
    there = read_state(records, version)
    if not model_only:
        return_to(records, version, change.version)
        classes = read_classes(records)
        change.contents = Contents.read(records, change.objects, classes)
        change.state = replace(there, version=state.version, next_vertex=state.next_vertex, classes=classes)
    elif there.model.number == state.model.number:
        raise InputError(f"the model of version {version} is the one in force", fix="choose an earlier version")
    else:
        change.state = replace(state, model=there.model, learner=there.learner, tensors=there.tensors, stale=True)
    what = f"to {'the model of ' if model_only else ''}version {version}"
    return change.commit("rollback", what, model=change.state.model.number)
