"""Where a workspace stands, and what to do next."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from evergraph.storage.records import Records
from evergraph.workspace.change import counted
from evergraph.workspace.store import State

__all__ = ["Status", "fresh_since", "status"]


@dataclass(frozen=True)
class Status:
    """A workspace in a few numbers.

    Parameters
    ----------
    version, kept
        The version in force, and the oldest one that can be returned to.
    vertices, edges, labelled
        Of the graph.
    first_time, last_time
        Of the graph, as the axis writes them.
    classes, retired
        Number of classes that the model knows, and names of those that are retired.
    model, model_restart, model_why
        Number of the model in force, what it was restarted from, and why.
    history, history_why
        Times that are seen (None for all), and how they were chosen.
    fresh_labels
        Labels that have come since the model was trained and that an update could learn from.
    undecided, to_review
        Vertices without a label that were never decided, and those that were held to be of an unseen class.
    next_command, next_why
        What to do next, and why.
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
    next_why: str

    @property
    def next(self) -> str:
        """What to do next, in words."""
        return f"evergraph ws {self.next_command}: {self.next_why}"

    def as_dict(self) -> dict[str, Any]:
        """Fit for JSON."""
        return asdict(self)


def status(records: Records, state: State) -> Status:
    """See `Workspace.status`."""
    undecided, doubtful = _waiting(records)
    fresh = fresh_since(records, _start(records, state))
    waiting = 0 if _left_out(records) else fresh
    command, why = _next(undecided, waiting, doubtful, stale=state.stale)
    axis = state.settings.axis
    return Status(
        version=state.version,
        kept=int(records.value("SELECT min(version) FROM states")),
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
        to_review=doubtful,
        next_command=command,
        next_why=why,
    )


def _waiting(records: Records) -> tuple[int, int]:
    """How many vertices without a label were never decided, and how many look unseen by their last decision."""
    sql = (
        "SELECT count(*), count(decisions.vertex), count(decisions.vertex) - count(decisions.decided) FROM labels "
        "LEFT JOIN decisions ON decisions.vertex = labels.vertex AND decisions.version = "
        "(SELECT max(version) FROM decisions AS other WHERE other.vertex = labels.vertex) "
        "WHERE label IS NULL AND until IS NULL"
    )
    (vertices, decided, unseen), *_ = records.query(sql)
    return vertices - decided, unseen


def _start(records: Records, state: State) -> int:
    """The first time that the next model learns from; see `next_task`."""
    if state.settings.history is None:
        return state.first_time
    some = records.value("SELECT sum(vertices) FROM supports WHERE until IS NULL AND time = ?", state.last_time)
    waiting = "SELECT 1 FROM labels WHERE until IS NULL AND label IS NULL AND time = ?"
    longer = some and records.value(waiting, state.last_time) is not None
    return state.last_time + bool(some) - state.settings.history - bool(longer)


def fresh_since(records: Records, time: int) -> int:
    """How many labels of vertices from a time on have come since the model was trained."""
    return int(records.value("SELECT sum(labels) FROM fresh WHERE until IS NULL AND time >= ?", time) or 0)


def _left_out(records: Records) -> bool:
    """Whether the last update found that the labels that have come would teach nothing."""
    commands = ["update", "label", "add", "classes create", "classes merge", "classes retire", "rollback"]
    last = "command IN (SELECT value FROM json_each(?)) ORDER BY version DESC LIMIT 1"
    return any(row.command == "update" for row in records.select("versions", last, json.dumps(commands)))


def _next(undecided: int, fresh: int, doubtful: int, *, stale: bool) -> tuple[str, str]:
    if fresh:
        return "update", f"{counted(fresh, 'label')} not learnt yet"
    if stale:
        return "update", "the model is behind the classes, or an older one again"
    if undecided:
        return "predict", f"{counted(undecided, 'vertex', 'vertices')} not decided yet"
    if doubtful:
        return "review", f"{counted(doubtful, 'vertex', 'vertices')} held to be of a class never seen before"
    return "add", "once a new slice arrives"
