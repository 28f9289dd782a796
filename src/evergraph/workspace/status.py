"""Where a workspace stands, and what to do next."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evergraph.graph import ids as id_columns
from evergraph.graph.classes import UNSEEN
from evergraph.graph.evolving import EvolvingGraph
from evergraph.workspace.coming import coming_task
from evergraph.workspace.scoring import standing
from evergraph.workspace.state import State
from evergraph.workspace.store import Store
from evergraph.workspace.words import counted

__all__ = ["Status", "status"]


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


def status(store: Store, state: State, graph: EvolvingGraph) -> Status:
    """See `Workspace.status`."""
    rows = np.flatnonzero(graph.codes < 0)
    decided = standing(store, state, graph, np.unique(graph.times[rows]).tolist())
    found = [decided.get(str(id_columns.at(graph.ids, row))) for row in rows]
    undecided = sum(decision is None for decision in found)
    doubtful = sum(decision is not None and decision["class"] == UNSEEN for decision in found)
    fresh = state.fresh_since(coming_task(graph, state.settings.history).start)
    waiting = 0 if _left_out(state) else fresh
    command, why = _next(undecided, waiting, doubtful, stale=state.stale)
    return Status(
        version=state.version,
        kept=store.numbers[0],
        vertices=len(graph),
        edges=graph.n_edges,
        labelled=int((graph.codes >= 0).sum()),
        first_time=graph.axis.value(graph.first_time),
        last_time=graph.axis.value(graph.last_time),
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


def _left_out(state: State) -> bool:
    """Whether the last update found that the labels that have come would teach nothing."""
    for entry in reversed(state.log):
        if entry.command in ("update", "label", "add", "classes create", "classes merge", "classes retire", "rollback"):
            return entry.command == "update"
    return False


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
