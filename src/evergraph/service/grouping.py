"""Groups of flagged vertices for review. Their numbers stay fixed while labels arrive.

A grouping is computed once for a set of decisions. Labels that arrive later only reduce the number of vertices that are
left in a group. A new prediction or a removal makes another grouping, with another name; so does a rollback that
brings back flagged vertices of another grouping.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from evergraph.analysis.explain import shortened
from evergraph.errors import InputError, StaleError
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import WordCounts
from evergraph.inputs.slice_context import SliceContext
from evergraph.learning.task import Task
from evergraph.service.problems import NotFoundError
from evergraph.workspace.change import Contents
from evergraph.workspace.review import (
    Flagged,
    ReviewGroup,
    communities,
    review_groups,
    telling_words,
    ties_among,
)

__all__ = ["Grouping", "Part", "became", "split"]

_TERMS = 6
_SHARED = 2  # of a group's words that an earlier vertex must have to be similar


@dataclass(frozen=True)
class Part:
    """A part of a group that was split: its members, and the words that distinguish them."""

    members: tuple[str | int, ...]
    terms: tuple[str, ...]


class Grouping:
    """The groups of one set of decisions.

    Parameters
    ----------
    version
        The version that made the decisions.
    contents
        The graph.
    flagged
        The flagged vertices without a label.
    earlier
        Rows in the graph of all vertices that were ever flagged.
    """

    def __init__(self, version: int, contents: Contents, flagged: Flagged, earlier: NDArray[np.int64]) -> None:
        graph = contents.graph
        self.version, self.groups = version, review_groups(graph, flagged)
        place = {str(row["id"]): (at, row["best"]) for row, at in flagged}
        self.vertices = [
            contents.vertices[[place[str(id)][0] for id in group.members]].tolist() for group in self.groups
        ]
        """Numbers of the members of each group."""
        self.group_of = {vertex: number for number, found in enumerate(self.vertices, 1) for vertex in found}
        self.keys = [_hash(map(str, sorted(map(str, group.members)))) for group in self.groups]
        self.name = _hash(self.keys)[:12]
        self.flagged = frozenset(contents.vertices[[at for _, at in flagged]].tolist())
        """Numbers of all flagged vertices, also of those in no group."""
        self.similar = _earlier(contents, self.groups, earlier)
        """For each group the numbers of earlier flagged vertices that share its words."""

    @cached_property
    def shown(self) -> list[dict[str, Any]]:
        """What is always the same of each group, with short texts."""
        found = []
        for group in self.groups:
            one = group.as_dict()
            for exemplar in one["exemplars"]:
                exemplar["text"] = None if exemplar["text"] is None else shortened(exemplar["text"], 300)
            found.append({name: value for name, value in one.items() if name != "members"})
        return found

    @cached_property
    def members(self) -> NDArray[np.int64]:
        """Numbers of the vertices in groups."""
        return np.array(list(self.group_of), np.int64)

    def check(self, name: str | None) -> None:
        """Refuse a request for groups that have changed."""
        if name is not None and name != self.name:
            raise StaleError(
                f"the groups have changed: this request is for the groups {name}, and the current ones are {self.name}",
                fix="load the groups again",
            )

    def at(self, number: int) -> int:
        """Return the place of a group."""
        if not 1 <= number <= len(self.groups):
            there = f"there are groups 1 to {len(self.groups):,}" if self.groups else "there are no groups"
            raise NotFoundError(f"there is no group {number}: {there}", fix="load the groups again")
        return number - 1

    def left(self, number: int, contents: Contents) -> NDArray[np.int64]:
        """Return the rows in the graph of a group's members without a label."""
        rows = contents.rows_of(self.vertices[self.at(number)])
        rows = rows[rows >= 0]
        return rows[contents.labels[rows] < 0]


def _hash(parts: Any) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _earlier(contents: Contents, groups: Sequence[ReviewGroup], earlier: NDArray[np.int64]) -> list[list[int]]:
    """Return for each group the numbers of vertices flagged in earlier slices that have two of its words."""
    graph = contents.graph
    words = graph.features.words
    if not isinstance(words, WordCounts) or not len(earlier):
        return [[] for _ in groups]
    earlier = np.unique(earlier[earlier >= 0])
    column_of = {name: column for column, name in enumerate(words.columns.tolist())}
    matrix = sparse.csc_array(words.matrix[earlier] > 0)
    found: list[list[int]] = []
    for group in groups:
        columns = [column_of[term] for term in group.terms if term in column_of]
        time = graph.axis.period(str(group.time) if graph.axis.unit in ("integer", "year") else group.time)
        if len(columns) < _SHARED:
            found.append([])
            continue
        shared = np.asarray(matrix[:, columns].sum(axis=1)).ravel()
        chosen = earlier[(shared >= _SHARED) & (graph.times[earlier] < time)]
        found.append(contents.vertices[chosen].tolist())
    return found


def became(contents: Contents, vertices: Sequence[int]) -> list[dict[str, Any]]:
    """Return the classes that vertices have now, most frequent first; None for those without a label."""
    rows = contents.rows_of(vertices)
    codes = contents.graph.codes[rows[rows >= 0]]
    names = ["" if code < 0 else contents.graph.class_names[code] for code in codes.tolist()]
    counts = sorted(Counter(names).items(), key=lambda one: (not one[0], -one[1], one[0]))
    return [{"class": name or None, "count": count} for name, count in counts]


def split(graph: EvolvingGraph, rows: NDArray[np.int64]) -> list[Part]:
    """Split vertices of one slice into two or more parts of similar ones, the largest first.

    The parts are the communities of the ties among these vertices alone. If they are one community, they are cut in two
    where the ties are weakest (the signs of the Fiedler vector).
    """
    if len(rows) < 2:
        raise InputError("a group of one vertex cannot be split", fix="label the vertex")
    context = SliceContext(Task(graph, int(graph.times[rows[0]]), None), classes=())
    first = context.window.rows.start + context.start
    places = np.sort(rows) - first
    ties = ties_among(context, places)
    of = communities(ties)
    if len(np.unique(of)) < 2:
        of = _cut(ties)
    _, of = np.unique(of, return_inverse=True)
    sizes = np.bincount(of)
    order = np.argsort(-sizes, kind="stable")
    number = np.empty(len(sizes), np.int64)
    number[order] = np.arange(len(sizes))
    terms = telling_words(context, places, number[of], _TERMS)
    ids = context.window.ids[context.start :]
    return [
        Part(tuple(_plain(ids[int(place)]) for place in places[number[of] == part]), terms[part])
        for part in range(len(sizes))
    ]


def _plain(id: Any) -> str | int:
    return id if isinstance(id, str) else int(id)


def _cut(ties: sparse.csr_array) -> NDArray[np.int64]:
    """Return two parts of a connected graph."""
    n, parts = connected_components(ties, directed=False)
    if n > 1:
        return np.asarray(parts)
    if ties.shape[0] > 2_000:  # an eigenvector of a large dense matrix takes long
        from scipy.sparse.linalg import eigsh

        start = np.cos(np.arange(ties.shape[0]))
        _, vectors = eigsh(sparse.csgraph.laplacian(ties).asfptype(), 2, sigma=-1e-3, v0=start)
        fiedler = vectors[:, 1]
    else:
        fiedler = np.linalg.eigh(sparse.csgraph.laplacian(ties).toarray())[1][:, 1]
    fiedler = fiedler * np.sign(fiedler[np.argmax(np.abs(fiedler))])
    above = fiedler > np.median(fiedler)
    return above.astype(np.int64) if above.any() else (np.arange(len(fiedler)) == 0).astype(np.int64)
