"""Prequential scores: as labels arrive, the decisions that were made before are scored against them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evergraph.evaluation.metrics import score_task
from evergraph.graph.classes import UNSEEN, total_variation
from evergraph.storage.records import Records, Row
from evergraph.workspace.classes import supports
from evergraph.workspace.store import State, model_record

__all__ = ["SliceScores", "last_scores", "latest_decisions", "prequential", "read_models", "scored_decisions"]

# Decisions on a vertex that is gone count as well, unless another vertex has come under its id.
_COUNT = (
    "(EXISTS (SELECT 1 FROM labels WHERE labels.vertex = decisions.vertex AND until IS NULL) "
    "OR NOT EXISTS (SELECT 1 FROM labels WHERE labels.id = decisions.id AND until IS NULL))"
)


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


def read_models(records: Records, state: State) -> list[Any]:
    """All models so far, the oldest first."""
    return [model_record(row, state.classes) for row in records.select("models", "TRUE ORDER BY model")]


def latest_decisions(records: Records, state: State, times: Iterable[int] | None = None) -> dict[str, dict[str, Any]]:
    """The last decision on each vertex by its id; of some times, or of all.

    Classes have the names they have now. A vertex that was taken out and came again under its old name has not been
    decided.
    """
    chosen = "" if times is None else "AND time IN (SELECT value FROM json_each(?))"
    parameters = [] if times is None else [json.dumps(list(times))]
    rows = records.select("decisions", f"{_COUNT} {chosen} ORDER BY version, vertex", *parameters)
    return {row.id: _decision(row, state) for row in rows}


def _decision(row: Row, state: State) -> dict[str, Any]:
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
        "nearest": row.nearest,
        "neighbours": row.neighbours,
        "version": row.version,
        "period": row.time,
    }


def scored_decisions(
    records: Records, state: State, times: Iterable[int] | None = None
) -> dict[int, dict[str, dict[str, Any]]]:
    """For each time, or each of some, the last decision on each vertex before its label came, beside that label; by id.

    Classes have the names they have now; ``known`` tells whether the model that decided knew that of the label. Left
    out is what an earlier version that was returned to has undone: labels that are not in force any more, vertices
    that came again, and decisions for a class that was merged and is not any more.
    """
    resolve, name = state.classes.resolve, state.classes.name
    known = {row.model: set(map(resolve, json.loads(row.classes))) for row in records.select("models")}
    chosen, parameters = "vertex IN (SELECT vertex FROM outcomes)", []
    if times is not None:
        chosen += " AND vertex IN (SELECT vertex FROM decisions WHERE time IN (SELECT value FROM json_each(?)))"
        parameters = [json.dumps(list(times))]
    labels = {row.vertex: row.label for row in records.select("labels", f"until IS NULL AND {chosen}", *parameters)}
    decided: dict[int, list[Row]] = {}
    for row in records.select("decisions", f"{_COUNT} AND {chosen} ORDER BY version", *parameters):
        decided.setdefault(row.vertex, []).append(row)
    found: dict[int, dict[str, dict[str, Any]]] = {}
    first: dict[tuple[int, str], int] = {}
    for outcome in records.select(
        "outcomes", f"{chosen} ORDER BY version, vertex", *parameters
    ):  # corrections and later ones win
        truth, gone = resolve(outcome.truth), outcome.vertex not in labels
        label = labels.get(outcome.vertex)
        for row in decided.get(outcome.vertex, ()):
            if row.version >= outcome.version:
                break
            latency = first.setdefault((row.time, row.id), outcome.latency)  # a correction makes no label late
            in_force = gone or (label is not None and resolve(label) == truth)
            if in_force and resolve(row.best) in known[row.model]:
                facts = {"truth": name(truth), "known": truth in known[row.model], "latency": latency}
                found.setdefault(row.time, {})[row.id] = _decision(row, state) | facts
    return found


def prequential(records: Records, state: State, times: Sequence[int] | None = None) -> list[SliceScores]:
    """The scores of all slices that were decided, or of some, oldest first."""
    drifts, scored = _drifts(records, state), scored_decisions(records, state, times)
    decided: dict[int, list[dict[str, Any]]] = {}
    for row in latest_decisions(records, state, times).values():
        decided.setdefault(row["period"], []).append(row)
    return [
        _slice(state, time, decided[time], list(scored.get(time, {}).values()), drifts.get(time))
        for time in sorted(decided)
    ]


def last_scores(records: Records, state: State) -> SliceScores | None:
    """The scores of the newest slice with labels that have come for its decisions."""
    sql = "SELECT DISTINCT time FROM decisions WHERE vertex IN (SELECT vertex FROM outcomes) ORDER BY time DESC"
    for (time,) in records.query(sql):
        for row in prequential(records, state, [time]):
            if row.labelled:
                return row
    return None


def _drifts(records: Records, state: State) -> dict[int, float]:
    """For each time with labels how far the mix of classes moved since the one before; NaN at the first."""
    counts = supports(records, state)
    times = sorted({time for of_class in counts.values() for time in of_class})
    table = np.array([[counts.get(name, {}).get(time, 0) for name in state.classes.names] for time in times], float)
    return dict(zip(times, total_variation(table, table).tolist(), strict=True)) if times else {}


def _slice(
    state: State, time: int, decided: list[dict[str, Any]], rows: list[Mapping[str, Any]], moved: float | None
) -> SliceScores:
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
    return SliceScores(
        time=state.settings.axis.value(time),
        decided=len(decided),
        labelled=len(rows),
        alarm_rate=float(np.mean([row["class"] == UNSEEN for row in decided])),
        drift=_or_none(moved),
        models=tuple(sorted({row["model"] for row in decided})),
        **figures,
    )


def _or_none(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)
