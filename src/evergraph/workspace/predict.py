"""Decide vertices without a label: predicted class or unseen, with scores and reasons."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.analysis.explain import neighbours_of
from evergraph.detect import Outputs
from evergraph.errors import InputError, NothingToDoError
from evergraph.graph import ids as id_columns
from evergraph.graph.classes import UNSEEN
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.attribution import Attribution
from evergraph.learning.learner import EXCLUDED, LifelongLearner
from evergraph.learning.task import Task
from evergraph.presentation.text import counted
from evergraph.workspace.change import Change, Contents
from evergraph.workspace.store import WorkspaceState

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["best_classes", "decide", "explain", "plan", "save", "without_labels_of"]

_NEAREST, _DIGITS = 3, 6


@dataclass(frozen=True)
class Plan:
    """What a prediction needs from the workspace: its state, the graph, the learner, and the periods to decide."""

    state: WorkspaceState
    contents: Contents
    learner: LifelongLearner
    times: list[int]


def plan(view: Change, time: int | str | None) -> Plan:
    """Read what a prediction needs; see `Workspace.predict`."""
    return Plan(view.state, view.contents, view.learner(), _choose_times(view, time))


def decide(planned: Plan) -> list[tuple[int, pa.Table, list[int]]]:
    """Decide the unlabelled vertices; return for each period the decisions and the numbers of the vertices."""
    state, contents = planned.state, planned.contents
    found = []
    for time in planned.times:
        history, model = state.settings.history, state.model.number
        table, rows = _decide(planned.learner, contents.graph, time, history, model, state.retired)
        found.append((time, table, contents.vertices[rows].tolist()))
    return found


def save(change: Change, planned: Plan, decided: list[tuple[int, pa.Table, list[int]]]) -> pa.Table:
    """Store decisions, except on vertices that have got a label meanwhile; return them as one table."""
    import pyarrow as pa

    change.refuse_conflicts(planned.state.version, "the decisions were not saved", "predict again")
    tables, new = [], False
    for time, table, vertices in decided:
        if change.state.version != planned.state.version:
            labels = change.contents.labels[change.contents.rows_of(vertices)]
            left = np.flatnonzero(labels < 0).tolist()
            table, vertices = table.take(left), [vertices[place] for place in left]
        tables.append(table)
        new |= _write_decisions(change, time, table, vertices)
    found = pa.concat_tables(tables)
    if new:
        axis, model = change.graph.axis, planned.state.model.number
        flagged = found.column("class").to_pylist().count(UNSEEN)
        vertices_ = counted(found.num_rows, "vertex", "vertices")
        span = ", ".join(axis.label(time) for time, _, _ in decided)
        facts = {"decided": found.num_rows, "unseen": flagged, "slices": [axis.value(time) for time, _, _ in decided]}
        change.finish("predict", f"{flagged:,} of {vertices_} of {span} flagged as unseen by model {model}", **facts)
    return found


def without_labels_of(graph: EvolvingGraph, classes: Collection[str]) -> EvolvingGraph:
    """Return the graph without the labels of some (retired) classes."""
    rows = [graph.classes.row(name) for name in classes if name in graph.classes]
    if not rows:
        return graph
    codes = np.where(np.isin(graph.codes, rows), np.int32(-1), graph.codes)
    codes.flags.writeable = False
    return replace(graph, codes=codes)


def best_classes(
    learner: LifelongLearner, graph: EvolvingGraph, time: int, history: int | None, retired: Collection[str] = ()
) -> NDArray[np.object_]:
    """Return the most likely known class of each vertex of a slice."""
    task = Task(graph, time, history, mode="inductive")
    columns = learner.without_classes(retired).outputs(task).best_logits.argmax(1)
    return np.array(learner.classes_, object)[columns.cpu().numpy()]


def explain(
    learner: LifelongLearner,
    graph: EvolvingGraph,
    rows: Sequence[int],
    history: int | None,
    retired: Collection[str],
    most: int = 3,
) -> dict[int, tuple[Attribution, ...]]:
    """Return the inputs that contribute most to the most likely known class of vertices, given their rows."""
    found: dict[int, tuple[Attribution, ...]] = {}
    times = graph.times[rows].tolist()
    for time in dict.fromkeys(times):
        task = _task(graph, time, history, retired)
        those = [row for row, own in zip(rows, times, strict=True) if own == time]
        first = task.window.rows.start + task.test.start
        reasons = learner.without_classes(retired).explain(task, [row - first for row in those], most)
        found |= zip(those, map(tuple, reasons), strict=True)
    return found


def _task(graph: EvolvingGraph, time: int, history: int | None, retired: Collection[str]) -> Task:
    # As in training: a detector or an input that uses labels must not see those of retired classes.
    return Task(without_labels_of(graph, retired), time, history, mode="inductive")


def _choose_times(change: Change, time: int | str | None) -> list[int]:
    """Return the periods to decide: the given one, those with undecided vertices, or the newest unlabelled one."""
    axis = change.graph.axis
    unlabelled = "FROM labels WHERE label IS NULL AND until IS NULL"
    open_times = [moment for (moment,) in change.records.query(f"SELECT DISTINCT time {unlabelled} ORDER BY time")]
    if not open_times:
        raise NothingToDoError("every vertex has a label")
    if time is not None:
        try:
            # A number is a time as it is written, not a number of periods.
            wanted = axis.period(str(time) if axis.unit in ("integer", "year") else time)
        except InputError as error:  # without the column and row it names
            raise InputError(error.problem, fix=error.fix) from None
        if wanted not in open_times and wanted in change.graph.times:
            raise NothingToDoError(f"every vertex of {axis.label(wanted)} has a label")
        if wanted not in open_times:
            raise InputError(
                f"there are no vertices of {axis.label(wanted)}",
                fix=f"choose one of {', '.join(map(axis.label, open_times[-5:]))}",
            )
        return [wanted]
    undecided = "NOT EXISTS (SELECT 1 FROM decisions WHERE decisions.vertex = labels.vertex)"
    found = change.records.query(f"SELECT DISTINCT time {unlabelled} AND {undecided} ORDER BY time")
    return [moment for (moment,) in found] or open_times[-1:]


def _decide(
    learner: LifelongLearner, graph: EvolvingGraph, time: int, history: int | None, model: int, retired: Collection[str]
) -> tuple[pa.Table, NDArray[np.int64]]:
    """Decide the unlabelled vertices of a slice; return the decisions and the vertices' rows in the graph."""
    import pyarrow as pa

    task = _task(graph, time, history, retired)
    # Rewound, so that there is no warning about labels it may have learnt: these vertices have none.
    learner = learner.without_classes(retired).rewound(time)
    outputs = learner.outputs(task)
    decisions = learner.predict(task, outputs=outputs)
    window = replace(task.window, graph=graph)
    chosen = np.flatnonzero(window.codes[task.test] < 0)
    rows = chosen + task.test.start

    def listed(classes: Iterable[Iterable[tuple[str, Any]]], name: str, kind: pa.DataType) -> pa.Array:
        pairs = [[{"class": one, name: value} for one, value in row] for row in classes]
        return pa.array(pairs, pa.list_(pa.struct([("class", pa.string()), (name, kind)])))

    table = pa.table(
        {
            "id": id_columns.to_arrow(id_columns.take(decisions.ids, chosen)),
            "time": [graph.axis.value(time)] * len(chosen),
            "class": decisions.classes[chosen].tolist(),
            "score": decisions.score[chosen],
            "probability": decisions.probability[chosen],
            "best": decisions.best[chosen].tolist(),
            "model": np.full(len(chosen), model),
            "nearest": listed(_nearest_classes(learner, outputs, chosen), "probability", pa.float64()),
            "neighbours": listed(neighbours_of(window, rows), "count", pa.int64()),
        }
    )
    return table, rows + window.rows.start


def _nearest_classes(
    learner: LifelongLearner, outputs: Outputs, chosen: NDArray[np.int64]
) -> list[list[tuple[str, float]]]:
    """Return the most likely known classes of some vertices with their probabilities."""
    shares = learner.detector_.detector.class_probabilities(outputs)[chosen].cpu().numpy()
    values = outputs.best_logits[chosen].cpu().numpy()
    order = np.argsort(-values, axis=1, kind="stable")
    found = []
    for row, columns in enumerate(order):
        named: dict[str, float] = {}
        for column in columns[values[row, columns] > EXCLUDED]:  # merged classes have several columns
            named.setdefault(learner.classes_[column], float(shares[row, column]))
            if len(named) == _NEAREST:
                break
        found.append([(name, round(share, _DIGITS)) for name, share in named.items()])
    return found


def packed(classes: Collection[tuple[str, float]]) -> str:
    """Return classes with their probabilities or counts as the records store them."""
    return json.dumps(classes, ensure_ascii=False, separators=(",", ":"))


def _write_decisions(change: Change, time: int, table: pa.Table, vertices: list[int]) -> bool:
    """Write decisions, unless they equal the last ones on that slice; return whether they are new."""
    records, numbers = change.records, {UNSEEN: None, **change.class_numbers()}
    last = records.select(
        "decisions",
        "time = ?1 AND version = (SELECT max(version) FROM decisions WHERE time = ?1) ORDER BY vertex",
        time,
    )
    reasons = ("score", "probability", "model")
    rows = [
        (
            vertex,
            change.version,
            str(row["id"]),
            time,
            numbers[row["class"]],
            numbers[row["best"]],
            *(row[name] for name in reasons),
            *(packed([tuple(one.values()) for one in row[name]]) for name in ("nearest", "neighbours")),
        )
        for vertex, row in zip(vertices, table.to_pylist(), strict=True)
    ]
    if [tuple(row._replace(version=change.version)) for row in last] == sorted(rows, key=lambda row: row[0]):
        return False
    records.insert("decisions", rows)
    return True
