"""What a workspace shows without its graph: status, classes, decisions, and scores as labels arrive."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evergraph.evaluation.metrics import Confusion, accuracy, open_macro_f1
from evergraph.graph.classes import UNSEEN, total_variation
from evergraph.presentation.text import command_line, counted
from evergraph.storage.decoding import InvalidContentError, InvalidJsonError, converted, parse_json
from evergraph.storage.records import Records, Row
from evergraph.workspace.store import (
    ModelRecord,
    WorkspaceState,
    class_numbers,
    kept_versions,
    model_record,
    read_tags,
    recent_versions,
)

__all__ = [
    "ClassRow",
    "SliceScores",
    "Status",
    "all_scores",
    "as_dict",
    "last_scores",
    "latest_decisions",
    "list_classes",
    "read_models",
    "scored_decisions",
    "status",
]


# --- status ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Status:
    """Status of a workspace.

    Parameters
    ----------
    version, kept
        The current version, and the oldest one that can be restored without a tag.
    vertices, edges, labelled
        Size of the graph.
    first_time, last_time
        First and last period of the graph.
    classes, retired
        Number of classes that the model knows, and names of the retired ones.
    model, model_restart, model_why
        Number of the current model, its restart, and the reason for it.
    history, history_why
        Number of past periods that the model trains on (None for all), and how it was chosen.
    fresh_labels
        Number of labels that arrived since the model was trained, within the history.
    undecided, to_review
        Number of unlabelled vertices without a decision, and of those flagged as unseen.
    next_command, next_arguments, next_why
        What to do next, and why. The argument ``FILE`` is a file of yours.
    tags
        Tagged versions: their numbers by tag.
    last_labelled, label_lag
        The latest period with a label that a model can train on (None without any), and how many periods it is before
        the newest.
    warnings
        What will go wrong unless you change something: labels that arrive too late for the history.
    inputs
        Names of the blocks that the model reads (`evergraph.inputs.vocabulary.BLOCKS`).
    """

    version: int
    kept: int
    vertices: int
    edges: int
    labelled: int
    first_time: int | str
    last_time: int | str
    classes: int
    retired: tuple[str, ...]
    model: int
    model_restart: str
    model_why: str
    history: int | None
    history_why: str
    fresh_labels: int
    undecided: int
    to_review: int
    next_command: str
    next_arguments: tuple[str, ...]
    next_why: str
    tags: dict[str, int] = field(default_factory=dict)
    last_labelled: int | str | None = None
    label_lag: int | None = None
    warnings: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    def next_line(self, folder: str | Path) -> str:
        """Return the next command as you type it in a shell, for the workspace in this folder."""
        return command_line("ws", self.next_command, Path(folder), *self.next_arguments)

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return asdict(self)


def status(records: Records, state: WorkspaceState, folder: Path, inputs: Sequence[str] = ()) -> Status:
    """Return the status of the workspace in a folder, whose model reads these blocks."""
    undecided, flagged = _count_unlabelled(records)
    latest = _latest_labelled(records, state)
    fresh = count_fresh(records, _history_start(records, state, latest))
    (command, *arguments), why = _next(
        undecided,
        0 if _update_was_skipped(records) else fresh,
        flagged,
        stale=state.stale or bool(state.settings.pending),
        labelled=latest is not None,
    )
    axis = state.settings.axis
    return Status(
        version=state.version,
        kept=recent_versions(kept_versions(records))[0],
        vertices=state.vertices,
        edges=state.edges,
        labelled=int(records.value("SELECT sum(vertices) FROM supports WHERE until IS NULL") or 0),
        first_time=axis.value(state.first_time),
        last_time=axis.value(state.last_time),
        classes=len(state.model.classes),
        retired=state.retired,
        model=state.model.number,
        model_restart=state.model.restart,
        model_why=state.model.why,
        history=state.settings.history,
        history_why=state.settings.history_why,
        fresh_labels=fresh,
        undecided=undecided,
        to_review=flagged,
        next_command=command,
        next_arguments=tuple(arguments),
        next_why=why,
        tags=read_tags(records),
        last_labelled=None if latest is None else axis.value(latest),
        label_lag=None if latest is None else state.last_time - latest,
        warnings=tuple(late_warnings(records, state, folder)),
        inputs=tuple(inputs),
    )


def _count_unlabelled(records: Records) -> tuple[int, int]:
    """Return the numbers of unlabelled vertices without a decision and of those last flagged as unseen."""
    sql = (
        "SELECT count(*), count(decisions.vertex), count(decisions.vertex) - count(decisions.decided) FROM labels "
        "LEFT JOIN decisions ON decisions.vertex = labels.vertex AND decisions.version = "
        "(SELECT max(version) FROM decisions AS other WHERE other.vertex = labels.vertex) "
        "WHERE label IS NULL AND until IS NULL"
    )
    (vertices, decided, flagged), *_ = records.query(sql)
    return vertices - decided, flagged


def _history_start(records: Records, state: WorkspaceState, latest: int | None) -> int:
    """Return the first period that the next model trains on; see `next_task`."""
    if state.settings.history is None:
        return state.first_time
    labelled = records.value("SELECT sum(vertices) FROM supports WHERE until IS NULL AND time = ?", state.last_time)
    unlabelled = "SELECT 1 FROM labels WHERE until IS NULL AND label IS NULL AND time = ?"
    longer = labelled and records.value(unlabelled, state.last_time) is not None
    start = state.last_time + bool(labelled) - state.settings.history - bool(longer)
    return start if latest is None else min(start, latest)


def _latest_labelled(records: Records, state: WorkspaceState) -> int | None:
    """Return the latest period with a label of a class that is not retired."""
    retired = [number for number in state.classes.rows if state.classes.name(number) in state.retired]
    sql = "SELECT max(time) FROM supports WHERE until IS NULL AND label NOT IN (SELECT value FROM json_each(?))"
    found = records.value(sql, json.dumps(retired))
    return None if found is None else int(found)


def late_warnings(records: Records, state: WorkspaceState, folder: Path) -> Iterator[str]:
    """Yield warnings about labels that arrived, or will arrive, too late for the history."""
    history, axis, latest = state.settings.history, state.settings.axis, _latest_labelled(records, state)
    if history is None or latest is None:
        return
    start, command = _history_start(records, state, latest), command_line("ws", "set", folder, "--history")
    if (lag := state.last_time - latest) > history:
        late = f"the latest labelled period is {axis.label(latest)}, {counted(lag, 'period')} before the newest"
        only = f"the history is {axis.counted(history)}, so the next model would train on {axis.label(latest)} only"
        yield f"{late}, and {only}. To train on more: {command} {lag + history}"
    if too_old := records.select("fresh", "until IS NULL AND time < ?", start):
        labels, oldest = sum(row.labels for row in too_old), min(row.time for row in too_old)
        yield (
            f"{counted(labels, 'new label')} will not be trained on, because the history starts with "
            f"{axis.label(start)}. To train on all labels: {command} {state.last_time + (lag == 0) - oldest}"
        )


def count_fresh(records: Records, first: int) -> int:
    """Return how many labels of vertices from a period on arrived since the model was trained."""
    return sum(row.labels for row in records.select("fresh", "until IS NULL AND time >= ?", first))


def _update_was_skipped(records: Records) -> bool:
    """Whether the last update kept the model, because the new labels would not improve it."""
    commands = ["update", "label", "add", "classes create", "classes merge", "classes retire", "rollback"]
    last = "command IN (SELECT value FROM json_each(?)) ORDER BY version DESC LIMIT 1"
    found = records.select("versions", last, json.dumps(commands))
    return any(row.command == "update" and row.what.startswith("skipped") for row in found)


def _next(undecided: int, fresh: int, flagged: int, *, stale: bool, labelled: bool) -> tuple[list[str], str]:
    """Return the next command with its arguments, and why. It is one that succeeds in this state."""
    if fresh and labelled:
        return ["update"], f"{counted(fresh, 'new label')} to train on"
    if stale and labelled:
        return ["update"], "settings, classes or many labels changed, or an older model was restored"
    if undecided:
        return ["predict"], f"{counted(undecided, 'vertex', 'vertices')} without a decision"
    if flagged:
        return ["review"], f"{counted(flagged, 'vertex', 'vertices')} flagged as unseen"
    if not labelled:
        return ["label", "--labels", "FILE"], "there are no labels to train on"
    return ["add", "--vertices", "FILE", "--edges", "FILE"], "when a new slice arrives"


# --- classes and models ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassRow:
    """A class: its name, period of its first and last vertex, number of vertices, known to the model, retired."""

    name: str
    first: int | str | None
    last: int | str | None
    support: int
    known: bool
    retired: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return asdict(self)


def list_classes(records: Records, state: WorkspaceState) -> list[ClassRow]:
    """Return all classes in the order in which they became known."""
    known, value, counts = set(state.model.classes), state.settings.axis.value, _supports(records, state)
    found = []
    for name in dict.fromkeys([*state.classes.names, *state.model.classes]):
        times = counts.get(name, {})
        if times or name in known or name in state.retired:
            first, last = (value(min(times)), value(max(times))) if times else (None, None)
            found.append(ClassRow(name, first, last, sum(times.values()), name in known, name in state.retired))
    return found


def _supports(records: Records, state: WorkspaceState) -> dict[str, dict[int, int]]:
    """Return the number of labelled vertices by class and period."""
    found: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in records.select("supports", "until IS NULL ORDER BY time"):
        found[state.classes.name(row.label)][row.time] += row.vertices
    return found


def read_models(records: Records, state: WorkspaceState) -> list[ModelRecord]:
    """Return all models, oldest first."""
    return [model_record(row, state.classes) for row in records.select("models", "TRUE ORDER BY model")]


# --- decisions -------------------------------------------------------------------------------------------------------


class _Scored(NamedTuple):
    """A decision, the class of the label that arrived later, and whether the model that decided knew that class."""

    row: Row
    truth: int
    known: bool
    latency: int


def latest_decisions(
    records: Records, state: WorkspaceState, times: Iterable[int] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the latest decision on each vertex by id; of some periods, or of all.

    Classes have their current names. A decision on a removed vertex does not count for a new vertex with its id.
    """
    return {row.id: as_dict(row, state) for row in _read_decisions(records, times)}


def scored_decisions(
    records: Records, state: WorkspaceState, times: Iterable[int] | None = None
) -> dict[int, dict[str, dict[str, Any]]]:
    """Return the last decision on each vertex before its label arrived, with the label, by period and id.

    Classes have their current names; ``known`` is whether the model that decided knew the label's class. What a
    rollback has undone is left out: labels that are not valid any more, vertices that were added again, and decisions
    for a class that was merged.
    """
    times = None if times is None else list(times)
    scored = _score(records, state, _read_decisions(records, times), times)
    return {
        time: {
            id: as_dict(one.row, state)
            | {"truth": state.classes.name(one.truth), "known": one.known, "latency": one.latency}
            for id, one in found.items()
        }
        for time, found in scored.items()
    }


def _read_decisions(records: Records, times: Iterable[int] | None) -> list[Row]:
    """Return the decisions that count, in the order in which they were made."""
    # Decisions on a removed vertex count unless another vertex was added with its id.
    condition = (
        "(EXISTS (SELECT 1 FROM labels WHERE labels.vertex = decisions.vertex AND until IS NULL) "
        "OR NOT EXISTS (SELECT 1 FROM labels WHERE labels.id = decisions.id AND until IS NULL))"
    )
    parameters = []
    if times is not None:
        condition += " AND time IN (SELECT value FROM json_each(?))"
        parameters = [json.dumps(list(times))]
    found = records.select("decisions", f"{condition} ORDER BY version, vertex", *parameters)
    models = {number for (number,) in records.query("SELECT model FROM models")}
    if missing := {row.model for row in found} - models:
        raise InvalidContentError(f"there is no model {min(missing)}, but decisions of it")
    return found


def _score(
    records: Records, state: WorkspaceState, decisions: Sequence[Row], times: Iterable[int] | None
) -> dict[int, dict[str, _Scored]]:
    resolve = state.classes.resolve
    known = {row.model: set(map(resolve, class_numbers(row))) for row in records.select("models")}
    condition, parameters = "vertex IN (SELECT vertex FROM outcomes)", []
    if times is not None:
        condition += " AND vertex IN (SELECT vertex FROM decisions WHERE time IN (SELECT value FROM json_each(?)))"
        parameters = [json.dumps(list(times))]
    labels = {row.vertex: row.label for row in records.select("labels", f"until IS NULL AND {condition}", *parameters)}
    decided: dict[int, list[Row]] = defaultdict(list)
    for row in decisions:
        decided[row.vertex].append(row)
    found: dict[int, dict[str, _Scored]] = defaultdict(dict)
    first: dict[tuple[int, str], int] = {}
    # In this order corrections and later decisions replace earlier ones.
    for outcome in records.select("outcomes", f"{condition} ORDER BY version, vertex", *parameters):
        truth, removed = resolve(outcome.truth), outcome.vertex not in labels
        label = labels.get(outcome.vertex)
        valid = removed or (label is not None and resolve(label) == truth)
        for row in decided.get(outcome.vertex, ()):
            if row.version >= outcome.version:
                break
            latency = first.setdefault((row.time, row.id), outcome.latency)  # a correction does not change the latency
            if valid and resolve(row.best) in known[row.model]:
                found[row.time][row.id] = _Scored(row, truth, truth in known[row.model], latency)
    return found


def as_dict(row: Row, state: WorkspaceState) -> dict[str, Any]:
    """Return a row of the table ``decisions`` with the current names of its classes."""
    name = state.classes.name
    return {
        "vertex": row.vertex,
        "id": row.id,
        "time": state.settings.axis.value(row.time),
        "class": UNSEEN if row.decided is None else name(row.decided),
        "score": row.score,
        "probability": row.probability,
        "best": name(row.best),
        "model": row.model,
        "nearest": _listed(row.nearest, "probability"),
        "neighbours": _listed(row.neighbours, "count"),
        "version": row.version,
        "period": row.time,
    }


def _listed(text: str, name: str) -> list[dict[str, Any]]:
    """Read classes with their probabilities or counts: JSON, or the text that early versions stored.

    Examples
    --------
    >>> _listed('[["x, y",2]]', "count"), _listed("x, y 2, no label 1", "count")
    ([{'class': 'x, y', 'count': 2}], [{'class': 'x, y', 'count': 2}, {'class': 'no label', 'count': 1}])
    """
    try:
        pairs = converted(parse_json(text), list[tuple[str, int | float]])
    except InvalidJsonError:
        found = re.findall(r"(.+?) ([0-9.]+)(?:, |$)", text)
        pairs = [(name, float(value) if "." in value else int(value)) for name, value in found]
    return [{"class": one, name: value} for one, value in pairs]


# --- scores ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SliceScores:
    """Scores of the decisions on one slice, for the labels that have arrived; None where a score is undefined.

    The last decision before the label counts. A vertex is *unseen* if the model that decided did not know its class.

    Parameters
    ----------
    time
        The period of the slice.
    decided, labelled
        Number of vertices with a decision, and of those whose label has arrived.
    flagged
        Share of the decided vertices that were flagged as unseen.
    accuracy, id_accuracy, open_f1, mcc, unseen
        Over the labelled vertices; see `TaskScores`. ``unseen`` is the share that is truly unseen.
    latency
        Mean label latency, in periods.
    drift
        Total variation of the class distribution since the previous labelled period.
    models
        Numbers of the models that decided.
    """

    time: int | str
    decided: int
    labelled: int
    flagged: float
    accuracy: float | None
    id_accuracy: float | None
    open_f1: float | None
    mcc: float | None
    unseen: float | None
    latency: float | None
    drift: float | None
    models: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return asdict(self)


def all_scores(records: Records, state: WorkspaceState, times: Sequence[int] | None = None) -> list[SliceScores]:
    """Return the prequential scores of all slices with decisions, or of some, oldest first."""
    drifts, decisions = _drifts(records, state), _read_decisions(records, times)
    scored = _score(records, state, decisions, times)
    latest: dict[int, list[Row]] = defaultdict(list)
    for row in {row.id: row for row in decisions}.values():
        latest[row.time].append(row)
    return [
        _slice_scores(state, time, latest[time], list(scored.get(time, {}).values()), drifts.get(time))
        for time in sorted(latest)
    ]


def last_scores(records: Records, state: WorkspaceState) -> SliceScores | None:
    """Return the scores of the newest slice whose decisions have labels."""
    sql = "SELECT DISTINCT time FROM decisions WHERE vertex IN (SELECT vertex FROM outcomes) ORDER BY time DESC"
    for (time,) in records.query(sql):
        for row in all_scores(records, state, [time]):
            if row.labelled:
                return row
    return None


def _drifts(records: Records, state: WorkspaceState) -> dict[int, float]:
    """Return for each labelled period how much the class distribution changed; NaN for the first."""
    counts = _supports(records, state)
    times = sorted({time for of_class in counts.values() for time in of_class})
    table = np.array([[counts.get(name, {}).get(time, 0) for name in state.classes.names] for time in times], float)
    return dict(zip(times, total_variation(table, table).tolist(), strict=True)) if times else {}


def _slice_scores(
    state: WorkspaceState, time: int, decided: list[Row], scored: list[_Scored], drift: float | None
) -> SliceScores:
    figures: dict[str, float | None] = dict.fromkeys(("accuracy", "id_accuracy", "open_f1", "mcc", "unseen", "latency"))
    if scored:
        name = state.classes.name
        truth, best, decisions = (
            np.array([UNSEEN if number is None else name(number) for number in numbers], object)
            for numbers in zip(*((one.truth, one.row.best, one.row.decided) for one in scored), strict=True)
        )
        unseen = np.array([not one.known for one in scored])
        values = {
            "accuracy": accuracy(truth, best),
            "id_accuracy": accuracy(truth[~unseen], best[~unseen]),
            "open_f1": open_macro_f1(truth, decisions, unseen),
            # 0 by definition without unseen vertices, which would look like a bad detector
            "mcc": Confusion.of(np.array([one.row.decided is None for one in scored]), unseen).mcc
            if unseen.any()
            else None,
            "unseen": float(unseen.mean()),
            "latency": float(np.mean([one.latency for one in scored])),
        }
        figures = {name: _or_none(value) for name, value in values.items()}
    return SliceScores(
        time=state.settings.axis.value(time),
        decided=len(decided),
        labelled=len(scored),
        flagged=float(np.mean([row.decided is None for row in decided])),
        drift=_or_none(drift),
        models=tuple(sorted({row.model for row in decided})),
        **figures,
    )


def _or_none(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)
