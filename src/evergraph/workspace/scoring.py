"""Prequential scores: as labels arrive, the decisions that were made before are scored against them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.analysis.drift import drift
from evergraph.evaluation.metrics import score_task
from evergraph.graph import ids as id_columns
from evergraph.graph.classes import UNSEEN
from evergraph.graph.evolving import EvolvingGraph
from evergraph.workspace.keeping import kept_since, kept_table
from evergraph.workspace.renaming import current_name, renamings
from evergraph.workspace.state import State
from evergraph.workspace.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SliceScores", "prequential", "score_labels", "scored_decisions", "standing"]


@dataclass(frozen=True)
class SliceScores:
    """How the decisions on one slice did, as far as its labels have come; None where a figure is undefined.

    Of each vertex the last decision before its label counts. It is *unseen* if its class was unknown to the model that
    decided.

    Parameters
    ----------
    time
        As the axis writes it.
    decided, labelled
        Vertices that were decided, and those of them whose label has come.
    alarm_rate
        Share of the decided vertices that were held to be of an unseen class.
    accuracy, id_accuracy, open_f1, mcc, unseen
        Over the labelled ones; see `TaskScores`. ``unseen`` is the share that truly was.
    latency
        Mean number of times from a vertex to the slice that was the last when its label came.
    drift
        How far the mix of classes moved since the labelled time before.
    models
        Numbers of the models that decided.
    """

    time: int | str
    decided: int
    labelled: int
    alarm_rate: float
    accuracy: float | None
    id_accuracy: float | None
    open_f1: float | None
    mcc: float | None
    unseen: float | None
    latency: float | None
    drift: float | None
    models: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """Fit for JSON."""
        return asdict(self)


def score_labels(
    store: Store,
    state: State,
    graph: EvolvingGraph,
    since: NDArray[np.int64],
    rows: NDArray[np.int64],
    truth: Sequence[str],
    version: int,
) -> pa.Table | None:
    """All earlier decisions on vertices whose labels have just come, beside those labels; None where there are none.

    Parameters
    ----------
    store, state
        Where decisions are.
    graph, since
        The graph, and the version that each vertex came with: what was decided before was another of the same name.
    rows, truth
        The vertices and their class names.
    version
        The version that their labels come with.
    """
    import pyarrow as pa

    times, parts = graph.times[rows], []
    ids, names = id_columns.take(graph.ids, rows), np.array(truth, object)
    for kept in state.decisions:
        if not (times == kept.time).any():
            continue
        table = kept_table(store, kept.table)
        place = id_columns.find(ids, table.column("id").combine_chunks())
        found = (place >= 0) & (since[rows[place]] <= kept.version)
        if not found.any():
            continue
        place = place[found]
        table = table.filter(pa.array(found)).select(["id", "class", "score", "probability", "best", "model"])
        steps = renamings(state.renamed, state.returns, kept.version, state.version)
        for column in ("class", "best"):
            current = [current_name(name, steps) for name in table.column(column).to_pylist()]
            table = table.set_column(table.column_names.index(column), column, pa.array(current, pa.string()))
        facts = {
            "time": pa.array(np.full(len(place), kept.time)),
            "decided": pa.array(np.full(len(place), kept.version)),
            "labelled": pa.array(np.full(len(place), version)),
            "truth": pa.array(names[place].tolist(), pa.string()),
            "latency": pa.array(graph.last_time - times[place]),
        }
        for name, column in facts.items():
            table = table.append_column(name, column)
        parts.append(table)
    return pa.concat_tables(parts) if parts else None


def standing(
    store: Store, state: State, graph: EvolvingGraph, times: Iterable[int] | None = None
) -> dict[str, dict[str, Any]]:
    """The last decision on each vertex by its id, with the ``version`` it was made in; of some times, or of all.

    Classes have the names they have now. Ids are as they are written: those of a graph may have been numbers once and
    be strings now. A vertex that was taken out and came again under its old name has not been decided.
    """
    wanted = None if times is None else set(times)
    found: dict[str, dict[str, Any]] = {}
    since = kept_since(store, state.graph)
    for kept in state.decisions:
        if wanted is None or kept.time in wanted:
            steps = renamings(state.renamed, state.returns, kept.version, state.version)
            table = kept_table(store, kept.table)
            places = id_columns.find(graph.ids, table.column("id").combine_chunks())
            for row, place in zip(table.to_pylist(), places.tolist(), strict=True):
                if place < 0 or since[place] <= kept.version:
                    names = {name: current_name(row[name], steps) for name in ("class", "best")}
                    found[str(row["id"])] = row | names | {"version": kept.version, "period": kept.time}
    return found


def scored_decisions(store: Store, state: State, graph: EvolvingGraph) -> dict[int, dict[str, dict[str, Any]]]:
    """For each time, the last decision on each vertex before its label came, beside that label; by id.

    Classes have the names they have now; ``known`` tells whether the model that decided knew that of the label. Left
    out is what an earlier version that was returned to has undone: labels that are not in force any more, vertices
    that came again, and decisions for a class that was merged and is not any more.
    """
    known = {record.number: set(record.classes) for record in state.models}
    since, labels = kept_since(store, state.graph), graph.labels
    found: dict[int, dict[str, dict[str, Any]]] = {}
    first: dict[tuple[int, str], int] = {}
    for kept in state.scored:  # oldest first, so corrections and later decisions win
        steps = renamings(state.renamed, state.returns, kept.version, state.version)
        table = kept_table(store, kept.table)
        places = id_columns.find(graph.ids, table.column("id").combine_chunks())
        for row, place in zip(table.to_pylist(), places.tolist(), strict=True):
            names = {name: current_name(row[name], steps) for name in ("class", "best", "truth")}
            time, identity, gone = row["time"], str(row["id"]), place < 0
            if not gone and since[place] > row["decided"]:
                continue
            latency = first.setdefault((time, identity), row["latency"])  # a correction makes no label late
            if (gone or labels[place] == names["truth"]) and names["best"] in known[row["model"]]:
                facts = {"known": names["truth"] in known[row["model"]], "latency": latency}
                found.setdefault(time, {})[identity] = row | names | facts
    return found


def prequential(store: Store, state: State, graph: EvolvingGraph) -> list[SliceScores]:
    """The scores of all slices that were decided, oldest first."""
    moved = drift(graph)
    drifts = dict(zip(moved.times.tolist(), moved.consecutive.tolist(), strict=True))
    scored = scored_decisions(store, state, graph)
    decided: dict[int, dict[str, dict[str, Any]]] = {}
    for identity, row in standing(store, state, graph).items():
        decided.setdefault(row["period"], {})[identity] = row
    return [
        _slice(graph, time, decided[time], scored.get(time, {}), drifts.get(time, math.nan)) for time in sorted(decided)
    ]


def _slice(
    graph: EvolvingGraph,
    time: int,
    decided: Mapping[str, Mapping[str, Any]],
    scored: Mapping[str, Mapping[str, Any]],
    moved: float,
) -> SliceScores:
    rows = list(scored.values())
    figures: dict[str, float | None] = dict.fromkeys(("accuracy", "id_accuracy", "open_f1", "mcc", "unseen", "latency"))
    if rows:
        unseen = [not row["known"] for row in rows]
        scores = score_task(
            [row["truth"] for row in rows],
            [row["best"] for row in rows],
            [row["class"] for row in rows],
            [row["score"] for row in rows],
            unseen,
            unseen,
        )
        values = {
            "accuracy": scores.accuracy,
            "id_accuracy": scores.id_accuracy,
            "open_f1": scores.open_f1,
            "mcc": scores.confusion.mcc,
            "unseen": float(np.mean(unseen)),
            "latency": float(np.mean([row["latency"] for row in rows])),
        }
        figures = {name: _or_none(value) for name, value in values.items()}
    alarms = [row["class"] == UNSEEN for row in decided.values()]
    return SliceScores(
        time=graph.axis.value(time),
        decided=len(decided),
        labelled=len(rows),
        alarm_rate=float(np.mean(alarms)),
        drift=_or_none(moved),
        models=tuple(sorted({row["model"] for row in decided.values()})),
        **figures,
    )


def _or_none(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)
