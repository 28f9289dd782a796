"""A slice decided, each decision with its reasons, and the vertices that a person should look at."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.analysis.explain import in_words, neighbours_of, words_of
from evergraph.detect import Outputs
from evergraph.errors import InputError
from evergraph.graph import ids as id_columns
from evergraph.graph.classes import UNSEEN
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.learner import EXCLUDED, LifelongLearner
from evergraph.learning.task import Task
from evergraph.storage.records import Records
from evergraph.workspace.change import Change, Contents, counted
from evergraph.workspace.groups import ReviewGroup, chosen_groups, group_places
from evergraph.workspace.scores import latest_decisions
from evergraph.workspace.store import State
from evergraph.workspace.update import without_labels_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ReviewRow", "best_classes", "decide", "flagged", "predict", "review", "review_groups"]

_NEAREST = 3


# --- deciding --------------------------------------------------------------------------------------------------------


def predict(change: Change, time: int | str | None) -> pa.Table:
    """See `Workspace.predict`."""
    import pyarrow as pa

    state, graph = change.state, change.graph
    times, learner = _times(change, time), change.learner()
    tables, new = [], False
    for moment in times:
        table, rows = decide(learner, graph, moment, state.settings.history, state.model.number, state.retired)
        tables.append(table)
        new |= _keep(change, moment, table, change.contents.vertices[rows].tolist())
    found = pa.concat_tables(tables)
    if new:
        unseen = found.column("class").to_pylist().count(UNSEEN)
        span = ", ".join(map(graph.axis.label, times))
        vertices = counted(found.num_rows, "vertex", "vertices")
        change.commit("predict", f"{vertices} of {span} by model {state.model.number}, {unseen:,} of them {UNSEEN}")
    return found


def _times(change: Change, time: int | str | None) -> list[int]:
    """The times to decide: the one that was asked for, those with something undecided, or the newest open one."""
    axis = change.graph.axis
    open_rows = "FROM labels WHERE label IS NULL AND until IS NULL"
    open_times = [moment for (moment,) in change.records.query(f"SELECT DISTINCT time {open_rows} ORDER BY time")]
    if not open_times:
        raise InputError("every vertex has a label, so there is nothing to decide", fix="add a slice first")
    if time is not None:
        wanted = _period(change.graph, time)
        if wanted not in open_times:
            raise InputError(
                f"no vertex of {axis.label(wanted)} is without a label",
                fix=f"choose one of {', '.join(map(axis.label, open_times[-5:]))}",
            )
        return [wanted]
    undecided = "NOT EXISTS (SELECT 1 FROM decisions WHERE decisions.vertex = labels.vertex)"
    found = change.records.query(f"SELECT DISTINCT time {open_rows} AND {undecided} ORDER BY time")
    return [moment for (moment,) in found] or open_times[-1:]


def _period(graph: EvolvingGraph, time: int | str) -> int:
    axis = graph.axis
    try:
        # A number is a time as it is written, not a period of so many of them.
        return axis.period(str(time) if axis.unit in ("integer", "year") else time)
    except InputError as error:  # which tells of columns and rows
        raise InputError(error.problem, fix=error.fix) from None


def _keep(change: Change, time: int, table: pa.Table, vertices: list[int]) -> bool:
    """Write decisions, unless they are the last ones on that time already; returns whether they are new."""
    records, numbers = change.records, {UNSEEN: None, **change.class_numbers()}
    last = records.select(
        "decisions",
        "time = ?1 AND version = (SELECT max(version) FROM decisions WHERE time = ?1) ORDER BY vertex",
        time,
    )
    rows = [
        (
            vertex,
            change.version,
            str(row["id"]),
            time,
            numbers[row["class"]],
            numbers[row["best"]],
            row["score"],
            row["probability"],
            row["model"],
            row["nearest"],
            row["neighbours"],
        )
        for vertex, row in zip(vertices, table.to_pylist(), strict=True)
    ]
    if [tuple(row._replace(version=change.version)) for row in last] == sorted(rows, key=lambda row: row[0]):
        return False
    records.insert("decisions", rows)
    return True


def decide(
    learner: LifelongLearner, graph: EvolvingGraph, time: int, history: int | None, model: int, retired: Collection[str]
) -> tuple[pa.Table, NDArray[np.int64]]:
    """Decide the vertices of a time that have no label.

    Returns
    -------
    A table with the columns ``id``, ``time``, ``class`` (a known class, or `UNSEEN`), ``score`` (how unseen; higher is
    more), ``probability`` and ``best`` (the most likely known class), ``model``, ``nearest`` and ``neighbours``; and
    the rows of the vertices in the graph.
    """
    import pyarrow as pa

    # As in learning: to a detector that looks at labels, those of retired classes are not there.
    task = Task(without_labels_of(graph, retired), time, history, mode="inductive")
    # Rewound: no warning about labels it may have learnt, because these vertices have none.
    learner = learner.without_classes(retired).rewound(time)
    outputs = learner.outputs(task)
    decisions = learner.predict(task, outputs=outputs)
    window = replace(task.window, graph=graph)
    chosen = np.flatnonzero(window.codes[task.test] < 0)
    rows = chosen + task.test.start
    part = replace(
        decisions,
        ids=id_columns.take(decisions.ids, chosen),
        best=decisions.best[chosen],
        flagged=decisions.flagged[chosen],
        score=decisions.score[chosen],
        probability=decisions.probability[chosen],
    )
    table = pa.table(
        {
            "id": id_columns.to_arrow(part.ids),
            "time": [graph.axis.value(time)] * len(part),
            "class": part.classes.tolist(),
            "score": part.score,
            "probability": part.probability,
            "best": part.best.tolist(),
            "model": np.full(len(part), model),
            "nearest": _nearest(learner, outputs, chosen),
            "neighbours": [in_words(around) for around in neighbours_of(window, rows)],
        }
    )
    return table, rows + window.rows.start


def best_classes(
    learner: LifelongLearner, graph: EvolvingGraph, time: int, history: int | None, retired: Collection[str] = ()
) -> NDArray[np.object_]:
    """The most likely known class of each vertex of a time."""
    task = Task(graph, time, history, mode="inductive")
    columns = learner.without_classes(retired).outputs(task).logits.argmax(1)
    return np.array(learner.classes_, object)[columns.cpu().numpy()]


def _nearest(learner: LifelongLearner, outputs: Outputs, chosen: NDArray[np.int64]) -> list[str]:
    """The most likely known classes of some vertices with their probabilities, in words."""
    logits, detector = outputs.logits[chosen], learner.detector_.detector
    shares = detector.probabilities(logits).cpu().numpy()
    values = logits.cpu().numpy()
    order = np.argsort(-values, axis=1, kind="stable")
    found = []
    for row, columns in enumerate(order):
        named: dict[str, float] = {}
        for column in columns[values[row, columns] > EXCLUDED]:  # classes that were merged have several columns
            named.setdefault(learner.classes_[column], float(shares[row, column]))
            if len(named) == _NEAREST:
                break
        found.append(", ".join(f"{name} {share:.2f}" for name, share in named.items()))
    return found


# --- review ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReviewRow:
    """A vertex to look at.

    Parameters
    ----------
    id, time
        Which; the time as the axis writes it.
    score
        How unseen it looks; higher is more.
    best, probability
        The most likely known class.
    words
        Those that say most about it; none without text.
    neighbours
        The classes of its neighbours and how many have each.
    model
        Number of the model that decided.
    group
        Number of its group; None where it is alone.
    """

    id: str | int
    time: int | str
    score: float
    best: str
    probability: float
    words: tuple[str, ...]
    neighbours: tuple[tuple[str, int], ...]
    model: int
    group: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Fit for JSON."""
        return asdict(self)


Flagged = list[tuple[dict[str, Any], int]]
"""Vertices to review, most unseen first: what was decided, and their rows in the graph."""


def flagged(records: Records, state: State, contents: Contents) -> Flagged:
    """The vertices without a label whose last decision was `UNSEEN`."""
    times = np.unique(contents.graph.times[contents.labels < 0]).tolist()
    unseen = [row for row in latest_decisions(records, state, times).values() if row["class"] == UNSEEN]
    unseen.sort(key=lambda row: (-row["score"], row["id"]))
    places = contents.rows_of(row["vertex"] for row in unseen).tolist()
    return [
        (row, place) for row, place in zip(unseen, places, strict=True) if place >= 0 and contents.labels[place] < 0
    ]


def review_groups(graph: EvolvingGraph, found: Flagged) -> list[ReviewGroup]:
    """The candidate groups among all vertices to review."""
    return group_places(graph, [place for _, place in found])


def review(
    graph: EvolvingGraph,
    history: int | None,
    found: Flagged,
    groups: Sequence[ReviewGroup],
    *,
    most: int | None = None,
    group: int | None = None,
) -> list[ReviewRow]:
    """The vertices to review with their words and neighbours.

    Parameters
    ----------
    graph, history
        The graph, and how many times before a slice are seen.
    found, groups
        What `flagged` and `review_groups` gave.
    most
        How many; None for all.
    group
        Number of the one group whose vertices are wanted.
    """
    chosen = groups if group is None else chosen_groups(groups, [group])
    number_of = {str(id): one.number for one in chosen for id in one.members}
    left = [(row, place) for row, place in found if group is None or row["id"] in number_of][:most]
    of_time: dict[int, list[int]] = {}
    for row, place in left:
        of_time.setdefault(row["period"], []).append(place)
    seen: dict[int, tuple[tuple[str, ...], tuple[tuple[str, int], ...]]] = {}
    for time, places in of_time.items():
        seen |= _explained(graph, time, places, history)
    return [
        ReviewRow(
            id=id_columns.at(graph.ids, place),
            time=row["time"],
            score=row["score"],
            best=row["best"],
            probability=row["probability"],
            words=seen[place][0],
            neighbours=seen[place][1],
            model=row["model"],
            group=number_of.get(row["id"]),
        )
        for row, place in left
    ]


def _explained(
    graph: EvolvingGraph, time: int, places: list[int], history: int | None
) -> dict[int, tuple[tuple[str, ...], tuple[tuple[str, int], ...]]]:
    """Words and neighbours' classes of vertices of one time, as far as the model that decided saw them."""
    rows, slice_ = np.array(places), graph.window(time, time)
    sight = Task(graph, time, history).window
    words = words_of(slice_, rows - slice_.rows.start, before=time + 1)
    around = neighbours_of(sight, rows - sight.rows.start)
    return dict(zip(places, zip(words, around, strict=True), strict=True))
