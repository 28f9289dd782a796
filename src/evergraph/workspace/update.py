"""Update the model with new labels: what it trains on, warm or cold or not at all; create a workspace; roll back."""

from __future__ import annotations

import json
import time as clock
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError, NothingToDoError
from evergraph.graph import ids as id_columns
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.segments import base_segment
from evergraph.learning.task import Task
from evergraph.names import DEFAULT_DETECTOR, DEFAULT_MODEL, build_detector, build_model
from evergraph.presentation.text import command_line, counted
from evergraph.storage.objects import Objects
from evergraph.storage.records import Records
from evergraph.workspace.change import (
    Change,
    Contents,
    Outcome,
    put_learner,
    put_segment,
    read_description,
    read_learner,
    unlabelled,
    untrained_learner,
    write_log,
    write_state,
)
from evergraph.workspace.scores import count_fresh
from evergraph.workspace.settings import decides_with
from evergraph.workspace.store import (
    NEW_KIND,
    ModelRecord,
    Settings,
    WorkspaceState,
    find_version,
    read_classes,
    read_settings,
    read_state,
    restore_rows,
    trained_on,
    write_settings,
)

if TYPE_CHECKING:
    from evergraph.detect import Detector
    from evergraph.learning.learner import LifelongLearner
    from evergraph.learning.training import OnStep
    from evergraph.nn.base import Model

__all__ = ["LEAST", "RestartChoice", "choose_restart", "next_task", "plan", "rollback", "run", "save", "train"]

LEAST = 30
"""Minimum number of labels of a slice that the restart is chosen by."""


def next_task(graph: EvolvingGraph, history: int | None, retired: Sequence[str] = ()) -> Task:
    """Return the task that the next model is trained for.

    If the newest slice is completely labelled, the model trains on the history before the coming slice. If it has no
    labels, the model trains on the history before it. If it is partly labelled, the model trains on both: the slice
    and the history before it. Without any label there, the task reaches back to the latest period with labels.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 2], "label": ["x", None, None]})
    >>> tasks = [next_task(graph.relabel([2, 3], labels), 1) for labels in ([None, None], ["x", None], ["x", "x"])]
    >>> [(task.start, task.time - 1) for task in tasks]
    [(1, 1), (1, 2), (2, 2)]
    """
    from evergraph.workspace.predict import without_labels_of

    labelled = graph.codes[np.searchsorted(graph.times, graph.last_time) :] >= 0
    some = bool(labelled.any())
    longer = int(some and not labelled.all())
    periods = None if history is None else history + longer
    task = Task(without_labels_of(graph, retired), graph.last_time + int(some), periods, mode="inductive")
    return task if (task.targets >= 0).any() else replace(task, reach_back=True)


# --- updating --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What an update needs from the workspace; it is trained without the workspace, which others may change meanwhile.

    Parameters
    ----------
    state
        The version that the update starts from.
    task
        The task that the model is trained for.
    own
        Model and detector of the user that cannot be stored.
    learner
        The learner to train.
    choice
        How to update the model; None if the backtest decides.
    backtest
        What the choice depends on.
    fresh
        Number of new labels within the history, and their numbers by period.
    """

    state: WorkspaceState
    task: Task
    own: tuple[Model | None, Detector | None]
    learner: LifelongLearner
    choice: RestartChoice | None
    backtest: Backtest | None
    fresh: tuple[int, dict[int, int]]


def plan(view: Change, restart: str) -> Plan:
    """Read what an update needs; see `Workspace.update`."""
    if restart not in ("auto", "warm", "cold"):
        raise InputError(f"there is no restart {restart!r}", fix="choose auto, warm or cold")
    state, own, choice, backtest = view.state, view.own, None, None
    task = next_task(view.graph, state.settings.history, state.retired)
    fresh = count_fresh(view.records, task.start)
    _refuse_nothing_new(view, task, fresh)
    if pending := state.settings.pending:
        own = (None if "model" in pending else own[0], None if "detector" in pending else own[1])
        learner = untrained_learner(view.objects, state, own, view.device)
        choice = RestartChoice("cold", f"the {' and the '.join(pending)} {NEW_KIND}")
    else:
        learner = view.learner().rewound(task.time)  # the newest slices may have been rolled back
        if restart == "auto":
            found = prepare_backtest(view, task)
            choice, backtest = (found, None) if isinstance(found, RestartChoice) else (None, found)
        else:
            choice = RestartChoice("cold" if restart == "cold" else "warm", "as requested")
    by_time = {row.time: row.labels for row in view.records.select("fresh", "until IS NULL")}
    return Plan(state, task, own, learner, choice, backtest, (fresh, by_time))


def run(planned: Plan, on_step: OnStep | None) -> tuple[RestartChoice, ModelRecord | None]:
    """Choose the restart and train the learner; return the choice, and the record of the model unless it is kept."""
    choice = planned.choice
    if choice is None and planned.backtest is not None:
        choice = choose_restart(planned.backtest, planned.learner, planned.task, stale=planned.state.stale)
    if choice is None or choice.restart == "skip":
        return choice or RestartChoice("skip", ""), None
    learner = planned.learner
    if not planned.state.settings.pending:
        learner.set_params(restart=choice.restart)
    return choice, train(learner, planned.task, choice, on_step)


def save(change: Change, planned: Plan, choice: RestartChoice, trained: ModelRecord | None) -> Outcome:
    """Save a trained model in the current version, which may have more slices and labels than the planned one."""
    change.refuse_conflicts(planned.state.version, "the update was not saved", "run the update again")
    before, state, task, graph = planned.state, change.state, planned.task, planned.task.graph
    if trained is None:
        facts = {"restart": "skip", "why": choice.why, "model": state.model.number, "new_classes": []}
        return change.finish("update", f"skipped, model {state.model.number} is kept: {choice.why}", **facts)
    number = change.records.value("SELECT max(model) FROM models") + 1
    record = replace(trained, number=number, version=change.version, before=before.model.number)
    new = [name for name in record.classes if name not in before.model.classes]
    lost = [name for name in before.model.classes if name not in record.classes]
    fresh, by_time = planned.fresh
    too_old = before.fresh_labels - fresh
    parts = [f"model {number}, {choice.restart}: {choice.why}", _trained_on(record, task)]
    parts += [f"new: {', '.join(new)}"] if new else []
    parts += [f"not known any more, because the history has no label of them: {', '.join(lost)}"] if lost else []
    parts += [f"{counted(too_old, 'label')} not used: older than the history"] if too_old else []
    facts = {"restart": choice.restart, "why": choice.why, "model": number, "new_classes": new, "not_learnt": too_old}
    facts |= {
        "lost_classes": lost,
        "labels": record.train_vertices,
        "trained_from": graph.axis.value(max(task.start, graph.first_time)),
    }
    change.warn(facts, _few_labels(task, record.train_vertices, change.store.folder))
    rest = change.records.replace("fresh", "until IS NULL", (), until=change.version)
    arrived = {row.time: row.labels - by_time.get(row.time, 0) for row in rest}  # while the model was trained
    change.records.insert("fresh", ((time, count, change.version, None) for time, count in arrived.items() if count))
    described, tensors = put_learner(change.objects, planned.learner)
    settings = replace(state.settings, pending={})
    write_settings(change.records, settings, change.version)
    change.own = planned.own
    change.state = replace(state, settings=settings, model=record, stale=False, learner=described, tensors=tensors)
    _write_model(change.records, record, planned.learner, change.class_numbers(before.model.number))
    if state.version != before.version:
        change.records.insert("snapshots", [(number, before.version)])
    return change.finish("update", *parts, **facts, seconds=record.seconds)


def _refuse_nothing_new(change: Change, task: Task, fresh: int) -> None:
    if change.state.stale or change.state.settings.pending or fresh:
        return
    if not change.state.fresh_labels:
        raise NothingToDoError("no labels have arrived since the model was trained")
    periods = task.time - change.records.value("SELECT min(time) FROM fresh WHERE until IS NULL AND labels > 0")
    longer = command_line("ws", "set", change.store.folder, "--history", periods)
    raise InputError(
        f"all new labels are older than the history, which starts with {task.graph.axis.label(task.start)}",
        fix=f"label newer vertices, or train on more periods with: {longer}",
    )


def _few_labels(task: Task, labels: int, folder: Path) -> Iterator[str]:
    """Yield a warning if a model was trained on few labels although there are more, before its history."""
    graph = task.graph
    times = graph.times[graph.codes >= 0]
    if labels < min(LEAST, len(times)):
        periods = str(task.time - int(times[-LEAST])) if len(times) >= LEAST else "full"
        yield (
            f"the model was trained on only {counted(labels, 'label')}, from {graph.axis.label(task.start)} on. Label "
            f"more vertices, or train on more periods: {command_line('ws', 'set', folder, '--history', periods)}"
        )


def _trained_on(record: ModelRecord, task: Task) -> str:
    labels = counted(record.train_vertices, "label")
    trained = f"trained on {labels} of {counted(len(record.classes), 'class', 'classes')}"
    if task.periods == task.history:
        return trained
    return f"{trained}, from {task.graph.axis.label(task.start)} on because there are none within the history"


def train(learner: LifelongLearner, task: Task, choice: RestartChoice, on_step: OnStep | None) -> ModelRecord:
    """Train a learner for the coming slice; return its record as that of the first model."""
    labels, label = int((task.targets >= 0).sum()), task.graph.axis.label
    if not labels:
        raise InputError(
            f"there are no labels from {label(task.start)} to {label(task.time - 1)} to train on",
            fix="add labels",
        )
    start = clock.perf_counter()
    learner.adapt(task, on_step)
    labels += len(learner.kept_.rows(task))
    return ModelRecord(
        number=1,
        time=task.time,
        restart=choice.restart,
        why=choice.why,
        train_vertices=labels,
        classes=tuple(dict.fromkeys(learner.classes_)),  # merged classes occur twice
        seconds=round(clock.perf_counter() - start, 3),
        version=1,
        before=0,
    )


def _write_model(records: Records, record: ModelRecord, learner: LifelongLearner, numbers: dict[str, int]) -> None:
    """Write the record of a model, with the number of the class of each output column."""
    classes = json.dumps([numbers[name] for name in learner.classes_])
    figures = (record.time, record.restart, record.why, record.train_vertices, classes, record.seconds)
    records.insert("models", [(record.number, *figures, record.version, record.before)])


# --- the first model -------------------------------------------------------------------------------------------------


def create(
    records: Records,
    objects: Objects,
    graph: EvolvingGraph,
    own: tuple[Model | None, Detector | None],
    settings: Settings,
    learning: dict[str, Any],
    on_step: OnStep | None,
) -> None:
    """Train the first model of a workspace and write its first version."""
    from evergraph.learning.learner import LifelongLearner

    learner = LifelongLearner(
        own[0] or build_model(DEFAULT_MODEL), own[1] or build_detector(DEFAULT_DETECTOR), restart="warm", **learning
    )
    task = next_task(graph, settings.history)
    record = train(learner, task, RestartChoice("cold", "first model"), on_step)
    numbers = {name: number for number, name in enumerate(graph.class_names, 1)}
    vertices = np.arange(1, len(graph) + 1)
    labels = np.where(graph.codes >= 0, graph.codes + 1, -1).astype(np.int32)
    what = (
        f"{counted(len(graph), 'vertex', 'vertices')} up to {graph.axis.label(graph.last_time)}; model 1, "
        f"{_trained_on(record, task)}; {settings.history_why}"
    )
    write_settings(records, settings)
    write_log(records, 1, "init", what)
    records.insert("classes", ((number, name, number, None, None, 1, None) for name, number in numbers.items()))
    _write_model(records, record, learner, numbers)
    name = put_segment(objects, base_segment(unlabelled(graph)), vertices, labels, 1)
    records.insert("segments", [(1, name, 1, None)])
    unlabelled_rows = np.flatnonzero(labels < 0).tolist()
    records.insert(
        "labels",
        (
            (row + 1, str(id_columns.at(graph.ids, row)), int(graph.times[row]), None, 1, None)
            for row in unlabelled_rows
        ),
    )
    known = labels >= 0
    pairs = Counter(zip(graph.times[known].tolist(), labels[known].tolist(), strict=True))
    records.insert("supports", ((*pair, count, 1, None) for pair, count in pairs.items()))
    described, tensors = put_learner(objects, learner)
    state = WorkspaceState(
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


# --- warm or cold ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RestartChoice:
    """How to update the model, and why."""

    restart: Literal["warm", "cold", "skip"]
    why: str


@dataclass(frozen=True)
class Backtest:
    """What a backtest on the newest labelled slice needs.

    Parameters
    ----------
    restart
        Restart of the current model.
    time, chosen, truth
        The slice, its labelled vertices (counted within it), and their classes.
    before, alternative
        Two copies of the model before the current one; the second is trained with the other restart.
    task
        The task that the current model was trained for.
    history, retired
        Settings of the workspace.
    """

    restart: str
    time: int
    chosen: NDArray[np.int64]
    truth: NDArray[np.object_]
    before: LifelongLearner
    alternative: LifelongLearner
    task: Task
    history: int | None
    retired: tuple[str, ...]


def prepare_backtest(view: Change, task: Task) -> Backtest | RestartChoice:
    """Read what a backtest needs, or return a warm restart if there is nothing to compare with.

    Parameters
    ----------
    view
        The workspace.
    task
        The task that the next model would be trained for.
    """
    state = view.state
    slice_ = _newest_slice(task.graph, state.model.time)
    if slice_ is None:
        return RestartChoice("warm", f"no slice since the last update has {LEAST} labels to choose by")
    before, alternative = _learner_before(view), _learner_before(view)
    version = trained_on(view.records, state.model.number)
    then = _graph_at(view, version)
    if before is None or alternative is None or then is None:
        return RestartChoice("warm", "there is no earlier model to compare with")
    if read_settings(view.records, version).history != state.settings.history:
        return RestartChoice("warm", "the history changed since the last update, so there is nothing to compare with")
    past_task = next_task(then, state.settings.history, state.retired)
    # Slices may have been rolled back between the two.
    alternative = alternative.rewound(past_task.time)
    settings = (state.settings.history, state.retired)
    return Backtest(state.model.restart, *slice_, before, alternative, past_task, *settings)


def choose_restart(backtest: Backtest, learner: LifelongLearner, task: Task, *, stale: bool) -> RestartChoice:
    """Choose the restart by a backtest on the newest labelled slice that the model was not trained on.

    Three models predict the classes of that slice: the current one; the same with the other restart, trained for this
    comparison with the labels of that time; and the model before it, which lacks the last update. The update is skipped
    if the last one gained no more than one standard error, unless there is a new class. Warm is chosen unless cold was
    better by more than one standard error.

    Parameters
    ----------
    backtest
        The slice and the models before.
    learner
        The current model.
    task
        The task that the next model would be trained for.
    stale
        Whether the model is outdated for another reason than new labels.
    """
    from evergraph.workspace.predict import best_classes

    graph, restart = task.graph, backtest.restart
    other = "cold" if restart == "warm" else "warm"
    alternative = backtest.alternative.set_params(restart=other).adapt(backtest.task)
    right: dict[str, NDArray[np.bool_]] = {}
    for arm, model in ((restart, learner), (other, alternative), ("skip", backtest.before)):
        best = best_classes(model, graph, backtest.time, backtest.history, backtest.retired)
        right[arm] = best[backtest.chosen] == backtest.truth
    share = {arm: float(hits.mean()) for arm, hits in right.items()}
    seen = (
        f"accuracy on the {len(backtest.chosen):,} labels of {graph.axis.label(backtest.time)} was "
        f"{share['warm']:.1%} with the last update warm, {share['cold']:.1%} cold, {share['skip']:.1%} without it"
    )
    best_arm = "cold" if share["cold"] > share["warm"] else "warm"
    gained = share[best_arm] - share["skip"] > _error(right[best_arm], right["skip"])
    if not gained and not _new_classes(task, learner) and not stale:
        return RestartChoice("skip", f"{seen}: no gain beyond chance")
    if share["cold"] - share["warm"] > _error(right["cold"], right["warm"]):
        return RestartChoice("cold", seen)
    return RestartChoice("warm", seen)


def _learner_before(change: Change) -> LifelongLearner | None:
    """Return the model before the current one, with current class names, if a version with it is kept.

    A model that another kind of model or detector, or one with other inputs, has replaced is no use for a comparison.
    """
    rows = change.records.select("states", "model < ? ORDER BY version DESC LIMIT 1", change.state.model.number)
    if not rows:
        return None
    state = read_state(change.records, rows[0].version)
    one, other = (read_description(change.objects, version) for version in (state, change.state))
    same_inputs = one["settings"]["inputs"] == other["settings"]["inputs"]
    if one["model"] != other["model"] or not same_inputs or not decides_with(one["detector"], other["detector"]):
        return None
    return read_learner(change.records, change.objects, state, change.own, change.state.classes, change.device)


def _graph_at(change: Change, version: int) -> EvolvingGraph | None:
    """Return the graph of a version, with current class names, if the version is kept."""
    if change.records.one("states", "version = ?", version) is None:
        return None
    return Contents.read(change.records, change.objects, change.state.classes, version).graph


def _new_classes(task: Task, learner: LifelongLearner) -> set[str]:
    """Return the classes within the history that the model does not know."""
    found = np.unique(task.targets[task.targets >= 0])
    return set(task.graph.names_of(found).tolist()) - set(learner.classes_)


def _newest_slice(graph: EvolvingGraph, since: int) -> tuple[int, NDArray[np.int64], NDArray[np.object_]] | None:
    """Return the newest period with enough labels, its labelled vertices (counted within it), and their classes."""
    for time in np.unique(graph.times[graph.times >= since])[::-1].tolist():
        codes = graph.codes[slice(*np.searchsorted(graph.times, [time, time + 1]).tolist())]
        chosen = np.flatnonzero(codes >= 0)
        if len(chosen) >= LEAST:
            return time, chosen, graph.names_of(codes[chosen])
    return None


def _error(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """Return the standard error of the difference of two shares of the same vertices."""
    return float(np.std(one.astype(float) - other.astype(float)) / np.sqrt(len(one)))


# --- rolling back ----------------------------------------------------------------------------------------------------


def rollback(change: Change, version: int | str, *, model_only: bool) -> Outcome:
    """Restore an earlier version; see `Workspace.rollback`."""
    state, records = change.state, change.records
    version = find_version(records, version)
    if version == state.version:
        raise NothingToDoError(f"version {version} is the current one")
    there = read_state(records, version)
    if not model_only:
        restore_rows(records, version, change.version)
        classes = read_classes(records)
        change.contents = Contents.read(records, change.objects, classes)
        settings = replace(there.settings, keep=state.settings.keep)
        change.state = replace(
            there, version=state.version, settings=settings, next_vertex=state.next_vertex, classes=classes
        )
    elif (there.learner, there.tensors) == (state.learner, state.tensors):
        raise NothingToDoError(f"the model of version {version} is the current one")
    else:
        stale = state.stale or there.model.number != state.model.number
        change.state = replace(state, model=there.model, learner=there.learner, tensors=there.tensors, stale=stale)
    what = f"to {'the model of ' if model_only else ''}version {version}"
    return change.finish("rollback", what, model=change.state.model.number)
