"""Undirected, unweighted edges in compressed sparse rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError

_MOST = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Each edge is in the rows of both its ends; neighbours ascend; no self-loops, no duplicates."""

    indptr: NDArray[np.int32]
    indices: NDArray[np.int32]
    times: NDArray[np.int64] | None = None
    """Time from which each entry's edge is visible; None if every edge is as old as its younger end."""

    @classmethod
    def of(
        cls,
        source: NDArray[np.integer],
        target: NDArray[np.integer],
        vertex_times: NDArray[np.int64],
        edge_times: NDArray[np.int64] | None = None,
    ) -> Adjacency:
        """Build the rows from edges in any direction and order; of duplicate edges the earliest is kept."""
        n = len(vertex_times)
        proper = source != target
        source, target = source[proper].astype(np.int64), target[proper].astype(np.int64)
        _check_size(len(source), n)
        # One sortable number for each entry (row, column): sorting these is much faster than sorting pairs.
        keys = np.concatenate([source * n + target, target * n + source])
        visible = None
        if edge_times is None:
            keys.sort()
        else:
            own = np.maximum(edge_times[proper], np.maximum(vertex_times[source], vertex_times[target]))
            visible = np.concatenate([own, own])
            order = np.lexsort((visible, keys))
            keys, visible = keys[order], visible[order]
        first = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        keys, visible = keys[first], visible[first] if visible is not None else None
        rows, columns = np.divmod(keys, n) if n else (keys, keys)
        if visible is not None and (visible == np.maximum(vertex_times[rows], vertex_times[columns])).all():
            visible = None
        indptr = np.zeros(n + 1, np.int32)
        np.cumsum(np.bincount(rows, minlength=n), out=indptr[1:])
        return cls(indptr, columns.astype(np.int32), visible)

    def insert(
        self,
        source: NDArray[np.integer],
        target: NDArray[np.integer],
        vertex_times: NDArray[np.int64],
        edge_times: NDArray[np.int64] | None = None,
    ) -> Adjacency:
        """Add edges, given as for `of`, and vertices at the end.

        The result equals that of `of` with all edges, but only the new ones are sorted.
        """
        added, n = Adjacency.of(source, target, vertex_times, edge_times), len(vertex_times)
        _check_size(self.edges + added.edges, n)
        rows, columns = added.rows(), added.indices
        indptr = np.append(self.indptr, np.full(n + 1 - len(self.indptr), self.indptr[-1]))
        places = _places(self.indices, indptr[rows], indptr[rows + 1], columns)
        known = places < indptr[rows + 1]
        known[known] = self.indices[places[known]] == columns[known]
        again, new = places[known], places[~known]
        times = None
        if self.times is not None or added.times is not None:
            times, own = np.array(self._visible(vertex_times)), added._visible(vertex_times)
            times[again] = np.minimum(times[again], own[known])
            times = np.insert(times, new, own[~known])
        indptr[1:] += np.cumsum(np.bincount(rows[~known], minlength=n)).astype(np.int32)
        links = Adjacency(indptr, np.insert(self.indices, new, columns[~known]), times)
        if len(again) and times is not None and (times == replace(links, times=None)._visible(vertex_times)).all():
            return replace(links, times=None)
        return links

    @property
    def edges(self) -> int:
        """Number of edges."""
        return len(self.indices) // 2

    def matrix(self) -> sparse.csr_array:
        """Return the edges as a symmetric scipy matrix of ones."""
        n = len(self.indptr) - 1
        return sparse.csr_array((np.ones(len(self.indices), np.bool_), self.indices, self.indptr), shape=(n, n))

    def rows(self) -> NDArray[np.int32]:
        """Return the row of each entry."""
        return np.repeat(np.arange(len(self.indptr) - 1, dtype=np.int32), np.diff(self.indptr))

    def _visible(self, vertex_times: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.times is not None:
            return self.times
        return np.maximum(vertex_times[self.rows()], vertex_times[self.indices])

    def ends(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64] | None]:
        """Return each edge once: older end, younger end and, if edges have times of their own, the time."""
        rows = self.rows()
        once = np.flatnonzero(rows < self.indices)
        return rows[once], self.indices[once], None if self.times is None else self.times[once]

    def part(self, rows: slice, last: int) -> Adjacency:
        """Return the edges within a range of vertices that are visible at time ``last``, renumbered from 0."""
        start, stop = self.indptr[rows.start], self.indptr[rows.stop]
        columns = self.indices[start:stop]
        kept = (columns >= rows.start) & (columns < rows.stop)
        times = None
        if self.times is not None:
            kept &= self.times[start:stop] <= last
            times = self.times[start:stop][kept]
        before = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
        indptr = before[self.indptr[rows.start : rows.stop + 1] - start]
        return Adjacency(indptr, columns[kept] - np.int32(rows.start), times)


def _check_size(edges: int, vertices: int) -> None:
    if 2 * edges > _MOST or vertices > _MOST:
        raise InputError(f"the graph has {edges:,} edges, too many", fix=f"use at most {_MOST // 2:,} edges")


def _places(
    values: NDArray[np.int32], low: NDArray[np.int32], high: NDArray[np.int32], wanted: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Search each wanted value in its own ascending range ``[low, high)`` of the values, as `numpy.searchsorted`."""
    while (open_ := low < high).any():
        middle = low + (high - low) // 2
        less = open_.copy()
        less[open_] = values[middle[open_]] < wanted[open_]
        low = np.where(less, middle + 1, low)
        high = np.where(open_ & ~less, middle, high)
    return low
