"""What a person should look at: the vertices that look unseen, with their words and neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evergraph.analysis.explain import neighbours_of, words_of
from evergraph.graph.classes import UNSEEN
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.task import Task
from evergraph.workspace.grouping import ReviewGroup, chosen_groups, group_places
from evergraph.workspace.scoring import standing
from evergraph.workspace.state import State
from evergraph.workspace.store import Store

__all__ = ["ReviewRow", "review", "review_groups"]


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


def review(
    store: Store,
    state: State,
    graph: EvolvingGraph,
    most: int | None = None,
    *,
    groups: Sequence[ReviewGroup],
    group: int | None = None,
) -> list[ReviewRow]:
    """The vertices without a label whose last decision was `UNSEEN`, most unseen first.

    Parameters
    ----------
    store, state, graph
        The workspace.
    most
        How many; None for all.
    groups
        What `review_groups` gave.
    group
        Number of the one group whose vertices are wanted.
    """
    chosen = groups if group is None else chosen_groups(groups, [group])
    number_of = {str(id): one.number for one in chosen for id in one.members}
    left = _flagged(store, state, graph)
    if group is not None:
        left = [(row, place) for row, place in left if str(row["id"]) in number_of]
    left = left[:most]
    of_time: dict[int, list[int]] = {}
    for _, place in left:
        of_time.setdefault(int(graph.times[place]), []).append(place)
    seen: dict[int, tuple[tuple[str, ...], tuple[tuple[str, int], ...]]] = {}
    for time, places in of_time.items():
        seen |= _explained(graph, time, places, state.settings.history)
    return [
        ReviewRow(
            id=row["id"],
            time=row["time"],
            score=row["score"],
            best=row["best"],
            probability=row["probability"],
            words=seen[place][0],
            neighbours=seen[place][1],
            model=row["model"],
            group=number_of.get(str(row["id"])),
        )
        for row, place in left
    ]


def review_groups(store: Store, state: State, graph: EvolvingGraph) -> list[ReviewGroup]:
    """The candidate groups among all vertices to review."""
    return group_places(graph, [place for _, place in _flagged(store, state, graph)])


def _flagged(store: Store, state: State, graph: EvolvingGraph) -> list[tuple[dict[str, Any], int]]:
    """The vertices to review, most unseen first: what was decided, and their rows in the graph."""
    open_times = np.unique(graph.times[graph.codes < 0]).tolist()
    doubtful = [row for row in standing(store, state, graph, open_times).values() if row["class"] == UNSEEN]
    doubtful.sort(key=lambda row: (-row["score"], str(row["id"])))
    placed = [(row, place) for row, place in zip(doubtful, _places(graph, doubtful), strict=True) if place >= 0]
    return [(row, place) for row, place in placed if graph.codes[place] < 0]


def _explained(
    graph: EvolvingGraph, time: int, places: list[int], history: int | None
) -> dict[int, tuple[tuple[str, ...], tuple[tuple[str, int], ...]]]:
    """Words and neighbours' classes of vertices of one time, as far as the model that decided saw them."""
    rows, slice_ = np.array(places), graph.window(time, time)
    sight = Task(graph, time, history).window
    words = words_of(slice_, rows - slice_.rows.start, before=time + 1)
    around = neighbours_of(sight, rows - sight.rows.start)
    return dict(zip(places, zip(words, around, strict=True), strict=True))


def _places(graph: EvolvingGraph, rows: list[dict[str, Any]]) -> list[int]:
    """Row of each vertex in the graph; -1 where it was removed."""
    import pyarrow as pa

    from evergraph.graph.ids import find

    return find(graph.ids, pa.array([str(row["id"]) for row in rows])).tolist() if rows else []
