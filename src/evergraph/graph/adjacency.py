"""The edges of a graph as rows of neighbours, and rows of neighbours that grow without being rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError

__all__ = ["Adjacency", "Entries", "LayeredAdjacency", "merged"]

_MOST = np.iinfo(np.int32).max
_MANY = 2**18  # edges from which compiled code pays
_LARGE = 2**16  # entries of a layer that is not merged with later ones


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
        if edge_times is None and len(source) >= _MANY:
            return cls._of_many(source, target, n)
        found = Entries.of(source, target, vertex_times, edge_times)
        indptr = np.zeros(n + 1, np.int32)
        np.cumsum(np.bincount(found.rows, minlength=n), out=indptr[1:])
        return cls(indptr, found.columns, found.times)

    @classmethod
    def _of_many(cls, source: NDArray[np.integer], target: NDArray[np.integer], n: int) -> Adjacency:
        from evergraph.graph.neighbours import rows_of

        _check_size(int(np.count_nonzero(source != target)), n)
        return cls(*rows_of(source.astype(np.int32, copy=False), target.astype(np.int32, copy=False), n))

    def insert(
        self,
        source: NDArray[np.integer],
        target: NDArray[np.integer],
        vertex_times: NDArray[np.int64],
        edge_times: NDArray[np.int64] | None = None,
    ) -> Adjacency:
        """Add edges, given as for `of`, and vertices at the end; the rows that are there are not copied.

        The result equals that of `of` with all edges.
        """
        return self.layered(Entries.of(source, target, vertex_times, edge_times), vertex_times)

    def layered(self, added: Entries, vertex_times: NDArray[np.int64]) -> Adjacency:
        """Add entries, and vertices at the end, as `insert` does with their edges."""
        return LayeredAdjacency(self, (), vertex_times).layered(added, vertex_times)

    def on_top(self, added: Entries, vertex_times: NDArray[np.int64]) -> Adjacency:
        """Add entries that are not there yet, and vertices at the end."""
        return LayeredAdjacency(self, (), vertex_times).on_top(added, vertex_times)

    def find(self, wanted: Entries, vertex_times: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which entries are there already, and which of these are visible earlier than the ones there."""
        inside = wanted.rows < len(self.indptr) - 1
        rows = np.where(inside, wanted.rows, 0)
        low, high = (np.where(inside, self.indptr[rows + end], 0) for end in (0, 1))
        known, places = _found(self.indices, low, high, wanted.columns)
        earlier = np.zeros(len(wanted), bool)
        if known.any() and self.times is not None:  # else those there are as old as an edge can be
            earlier[known] = wanted.visible(vertex_times)[known] < self.times[places[known]]
        return known, earlier

    def _with_earlier(self, added: Entries, vertex_times: NDArray[np.int64]) -> Adjacency:
        rows = np.concatenate([self.rows(), added.rows])
        columns = np.concatenate([self.indices, added.columns])
        times = np.concatenate([self._visible(vertex_times), added.visible(vertex_times)])
        return Adjacency.of(rows, columns, vertex_times, times)

    @property
    def edges(self) -> int:
        """Number of edges."""
        return len(self.indices) // 2

    @property
    def is_timed(self) -> bool:
        """Whether some edge is younger than both its ends."""
        return self.times is not None

    def matrix(self) -> sparse.csr_array:
        """Return the edges as a symmetric scipy matrix of ones."""
        n = len(self.indptr) - 1
        return sparse.csr_array((np.ones(len(self.indices), np.bool_), self.indices, self.indptr), shape=(n, n))

    def rows(self) -> NDArray[np.int32]:
        """Return the row of each entry."""
        return np.repeat(np.arange(len(self.indptr) - 1, dtype=np.int32), np.diff(self.indptr))

    def _visible(self, vertex_times: NDArray[np.int64], first: int = 0) -> NDArray[np.int64]:
        """Return the time from which each entry's edge is visible; ``first`` is the vertex of the first row."""
        if self.times is not None:
            return self.times
        return np.maximum(vertex_times[first + self.rows()], vertex_times[self.indices])

    def ends(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64] | None]:
        """Return each edge once: older end, younger end and, if edges have times of their own, the time."""
        rows = self.rows()
        once = np.flatnonzero(rows < self.indices)
        return rows[once], self.indices[once], None if self.times is None else self.times[once]

    def some(self, rows: slice) -> Adjacency:
        """Return the rows of a range of vertices with all their neighbours, which keep their numbers."""
        start, stop = self.indptr[rows.start], self.indptr[rows.stop]
        pointers = self.indptr[rows.start : rows.stop + 1]
        return Adjacency(
            pointers - start if start else pointers,
            self.indices[start:stop],
            None if self.times is None else self.times[start:stop],
        )

    def near(self, row: int) -> NDArray[np.int32]:
        """Return the neighbours of one vertex."""
        return self.some(slice(row, row + 1)).indices

    def part(self, rows: slice, last: int) -> Adjacency:
        """Return the edges within a range of vertices that are visible at time ``last``, renumbered from 0."""
        some = self.some(rows)
        kept = (some.indices >= rows.start) & (some.indices < rows.stop)
        times = None
        if some.times is not None:
            kept &= some.times <= last
            times = some.times[kept]
        before = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
        return Adjacency(before[some.indptr], some.indices[kept] - np.int32(rows.start), times)


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of rows of neighbours, in the order of rows and columns; each edge is in the rows of both its ends."""

    rows: NDArray[np.int32]
    columns: NDArray[np.int32]
    times: NDArray[np.int64] | None = None
    """Time from which each entry's edge is visible; None if every edge is as old as its younger end."""

    @classmethod
    def of(
        cls,
        source: NDArray[np.integer],
        target: NDArray[np.integer],
        vertex_times: NDArray[np.int64],
        edge_times: NDArray[np.int64] | None = None,
    ) -> Entries:
        """Return the entries of edges in any direction and order; of duplicate edges the earliest is kept."""
        n = len(vertex_times)
        proper = source != target
        if not proper.all():
            source, target = source[proper], target[proper]
        edges = len(source)
        _check_size(edges, n)
        # One sortable number for each entry (row, column): sorting these is much faster than sorting pairs.
        keys = np.empty(2 * edges, np.int64)
        for half, (row, column) in ((keys[:edges], (source, target)), (keys[edges:], (target, source))):
            np.left_shift(row, 32, out=half, dtype=np.int64)
            half |= column
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
        if not first.all():
            keys, visible = keys[first], visible[first] if visible is not None else None
        rows, columns = (keys >> 32).astype(np.int32), np.bitwise_and(keys, _MOST, out=keys).astype(np.int32)
        if visible is not None and (visible == np.maximum(vertex_times[rows], vertex_times[columns])).all():
            visible = None
        return cls(rows, columns, visible)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: NDArray[np.bool_] | slice) -> Entries:
        """Return some of the entries."""
        return Entries(self.rows[chosen], self.columns[chosen], None if self.times is None else self.times[chosen])

    def visible(self, vertex_times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the time from which each entry's edge is visible."""
        if self.times is not None:
            return self.times
        return np.maximum(vertex_times[self.rows], vertex_times[self.columns])

    def within(self, rows: slice) -> Entries:
        """Return the entries of a range of rows."""
        start, stop = np.searchsorted(self.rows, [rows.start, rows.stop]).tolist()
        return self.take(slice(start, stop))


def merged(parts: Sequence[Entries], vertex_times: NDArray[np.int64]) -> Entries:
    """Merge entries, none of which is in two parts."""
    rows, columns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "columns"))
    order = np.lexsort((columns, rows))
    times = None
    if any(part.times is not None for part in parts):
        times = np.concatenate([part.visible(vertex_times) for part in parts])[order]
    return Entries(rows[order], columns[order], times)


class LayeredAdjacency(Adjacency):
    """Rows of neighbours, and layers of entries that came later. They are merged for the rows that are read.

    No entry is in two layers. Reading `indptr`, `indices` or `times` of all rows merges everything, once.

    Parameters
    ----------
    base
        The rows of the first vertices.
    layers
        Later entries, also in rows of the base.
    vertex_times
        Period of each vertex.
    """

    base: Adjacency
    layers: tuple[Entries, ...]
    vertex_times: NDArray[np.int64]

    def __init__(self, base: Adjacency, layers: tuple[Entries, ...], vertex_times: NDArray[np.int64]) -> None:
        vars(self).update(base=base, layers=layers, vertex_times=vertex_times)

    @cached_property
    def _whole(self) -> Adjacency:
        whole = self.some(slice(0, len(self.vertex_times)))
        for array in (whole.indptr, whole.indices, whole.times):
            if array is not None:
                array.flags.writeable = False
        return whole

    @property
    def indptr(self) -> NDArray[np.int32]:
        """Where the neighbours of each vertex start in `indices`, and their end."""
        return self._whole.indptr

    @property
    def indices(self) -> NDArray[np.int32]:
        """The neighbours of all vertices."""
        return self._whole.indices

    @property
    def times(self) -> NDArray[np.int64] | None:
        """Time from which each entry's edge is visible; None if every edge is as old as its younger end."""
        return self._whole.times if self.is_timed else None

    @property
    def edges(self) -> int:
        """Number of edges."""
        return self.base.edges + sum(map(len, self.layers)) // 2

    @property
    def is_timed(self) -> bool:
        """Whether some edge is younger than both its ends."""
        return self.base.is_timed or any(layer.times is not None for layer in self.layers)

    def layered(self, added: Entries, vertex_times: NDArray[np.int64]) -> Adjacency:
        """Add entries, and vertices at the end, as `insert` does with their edges."""
        known, earlier = self.find(added, vertex_times)
        if earlier.any():
            return self._with_earlier(added, vertex_times)
        return self.on_top(added.take(~known) if known.any() else added, vertex_times)

    def find(self, wanted: Entries, vertex_times: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which entries are there already, and which of these are visible earlier than the ones there."""
        known, earlier = self.base.find(wanted, vertex_times)
        for layer in self.layers:
            low, high = (np.searchsorted(layer.rows, wanted.rows, side) for side in ("left", "right"))
            here, places = _found(layer.columns, low, high, wanted.columns)
            known |= here
            earlier[here] = wanted.visible(vertex_times)[here] < layer.visible(vertex_times)[places[here]]
        return known, earlier

    def on_top(self, added: Entries, vertex_times: NDArray[np.int64]) -> Adjacency:
        """Add entries that are not there yet, and vertices at the end."""
        _check_size(self.edges + len(added) // 2, len(vertex_times))
        layers = (*self.layers, added) if len(added) else self.layers
        # Small layers are merged, so that there are few; amortised, an entry is merged a few times only.
        while len(layers) > 1 and len(layers[-2]) <= min(2 * len(layers[-1]), _LARGE):
            layers = (*layers[:-2], merged(layers[-2:], vertex_times))
        return LayeredAdjacency(self.base, layers, vertex_times)

    def some(self, rows: slice) -> Adjacency:
        """Return the rows of a range of vertices with all their neighbours, which keep their numbers."""
        end, count = len(self.base.indptr) - 1, rows.stop - rows.start
        below = self.base.some(slice(min(rows.start, end), min(rows.stop, end)))
        indptr = np.append(below.indptr, np.full(count + 1 - len(below.indptr), below.indptr[-1], np.int32))
        below = replace(below, indptr=indptr)
        if self.is_timed and below.times is None:
            below = replace(below, times=below._visible(self.vertex_times, rows.start))
        parts = [found for layer in self.layers if len(found := layer.within(rows))]
        if not parts:
            return below
        more = merged(parts, self.vertex_times) if len(parts) > 1 else parts[0]
        own = more.rows - rows.start
        _, places = _found(below.indices, indptr[own], indptr[own + 1], more.columns)
        times = None
        if below.times is not None:
            times = np.insert(below.times, places, more.visible(self.vertex_times))
        indptr[1:] += np.cumsum(np.bincount(own, minlength=count)).astype(np.int32)
        return Adjacency(indptr, np.insert(below.indices, places, more.columns), times)


def _check_size(edges: int, vertices: int) -> None:
    if 2 * edges > _MOST or vertices > _MOST:
        raise InputError(f"the graph has {edges:,} edges, too many", fix=f"use at most {_MOST // 2:,} edges")


def _found(
    values: NDArray[np.int32], low: NDArray[np.integer], high: NDArray[np.integer], wanted: NDArray[np.int32]
) -> tuple[NDArray[np.bool_], NDArray[np.integer]]:
    """Search each wanted value in its own ascending range ``[low, high)`` of the values.

    Return whether it is there, and its place or, as `numpy.searchsorted` does, where it would be.
    """
    end = high
    while (open_ := low < high).any():
        middle = low + (high - low) // 2
        less = open_.copy()
        less[open_] = values[middle[open_]] < wanted[open_]
        low = np.where(less, middle + 1, low)
        high = np.where(open_ & ~less, middle, high)
    there = low < end
    there[there] = values[low[there]] == wanted[there]
    return there, low
