"""Candidate groups: flagged vertices that belong together, for people to judge at once instead of one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.errors import InputError
from evergraph.graph import ids as id_columns
from evergraph.inputs.slice_context import Sight
from evergraph.workspace.groups.communities import communities
from evergraph.workspace.groups.terms import telling_words
from evergraph.workspace.groups.ties import by_id, edges_among, ties_among

__all__ = ["Group", "find_groups"]

_EXEMPLARS = 3
_TERMS = 6


@dataclass(frozen=True)
class Group:
    """Vertices that belong together.

    Parameters
    ----------
    members
        Their ids, those with most ties to the others first.
    terms
        Words that set them apart from the rest of the slice and of the recent past, most telling first; none where
        vertices have no words.
    edges
        How many edges there are among them.
    """

    members: tuple[str | int, ...]
    terms: tuple[str, ...]
    edges: int

    def __len__(self) -> int:
        return len(self.members)

    @property
    def exemplars(self) -> tuple[str | int, ...]:
        """The three most central members."""
        return self.members[:_EXEMPLARS]


def find_groups(sight: Sight, rows: ArrayLike) -> list[Group]:
    """Groups of two or more among some vertices of a slice, the largest first, of equally large ones the closest knit.

    Vertices are tied by edges and by what only few have in common: words, neighbours, or dense features of about the
    same direction (see `ties_among`). Groups are the communities of these ties (see `communities`). Vertices that no
    tie leads to are in no group. The order of the vertices, among ``rows`` or in the graph, does not matter.

    Parameters
    ----------
    sight
        The slice, among the times before it.
    rows
        The vertices that were flagged, counted from the first of the slice.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> from evergraph.learning.task import Task
    >>> texts = ["old news"] * 6 + ["deep net", "deep net", "deep learning net", "odd one"]
    >>> graph = EvolvingGraph.build({"id": list("abcdefghij"), "time": [1] * 6 + [2] * 4, "text": texts}, [["g", "i"]])
    >>> find_groups(Sight(Task(graph, time=2, history=1), classes=()), [0, 1, 2, 3])
    [Group(members=('g', 'i', 'h'), terms=('deep', 'net'), edges=1)]
    """
    rows = _checked(rows, len(sight))
    if not len(rows):
        return []
    ids = sight.window.ids[sight.start :]
    rows = rows[by_id(id_columns.take(ids, rows))]
    ties = ties_among(sight, rows)
    of = communities(ties)
    entries = ties.tocoo()
    inside = of[entries.row] == of[entries.col]
    knit = np.bincount(entries.row[inside], entries.data[inside], minlength=len(rows))  # ties to its own group
    sizes, ties_in = np.bincount(of), np.bincount(of, knit)
    # Communities are counted by their first members, so the last resort is the order of ids.
    order = [group for group in np.lexsort((np.arange(len(sizes)), -ties_in, -sizes)) if sizes[group] > 1]
    number = np.full(len(sizes), -1)
    number[order] = np.arange(len(order))
    group = number[of]
    kept = np.flatnonzero(group >= 0)
    terms = telling_words(sight, rows[kept], group[kept], _TERMS)
    one, other = edges_among(sight, rows)
    edges = np.bincount(group[one[(group[one] == group[other]) & (group[one] >= 0)]], minlength=len(order))
    central = kept[np.lexsort((kept, -knit[kept], group[kept]))]
    members = np.split(central, np.cumsum(sizes[order])[:-1]) if order else []
    return [
        Group(tuple(id_columns.at(ids, int(row)) for row in rows[places]), words, int(count))
        for places, words, count in zip(members, terms, edges, strict=True)
    ]


def _checked(rows: ArrayLike, n: int) -> NDArray[np.int64]:
    """The rows, each once."""
    found = np.asarray(rows)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise InputError("the rows are no list of whole numbers", fix="give the rows of the flagged vertices")
    found = np.unique(found).astype(np.int64)
    if len(found) and not 0 <= found[0] <= found[-1] < n:
        wrong = found[0] if found[0] < 0 else found[-1]
        raise InputError(f"there is no row {wrong} in a slice of {n}", fix="count from the first vertex of the slice")
    return found
