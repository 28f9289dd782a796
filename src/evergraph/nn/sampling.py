"""Sample neighbourhoods from the adjacency of a graph that may be larger than memory.

The adjacency is read where it is, which may be a memory map, and only the rows of the vertices that are reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.compiled import compiled
from evergraph.graph.evolving import Window
from evergraph.nn.ops import Kernels, Neighbours

__all__ = ["EVERY", "Draw", "Edges", "LocalGraph", "NeighbourSampler", "induced", "squared_norms", "walked"]

Ints = NDArray[np.int32]

EVERY = -1
"""As the number of neighbours to draw: all of them."""
_NO_TIMES = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges among the vertices of a window, without a copy of them.

    Parameters
    ----------
    indptr, indices
        Compressed rows of the window. Neighbours have the numbers of the whole graph and ascend; no self-loops.
    first, stop
        Rows of the window. Neighbours outside of it are ignored.
    times, last
        Time of each entry, and the latest one that is visible; no times if all are visible.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 3]}, [[1, 2], [2, 3]])
    >>> edges = Edges.of(graph.window(2, 3))
    >>> len(edges), edges.degrees(np.array([0, 1])).tolist()
    (2, [1, 1])
    """

    indptr: NDArray[np.integer]
    indices: Ints
    first: int
    stop: int
    times: NDArray[np.int64] = field(default_factory=lambda: _NO_TIMES)
    last: int = 0

    @classmethod
    def of(cls, window: Window) -> Edges:
        """Return the edges of a window."""
        links = window.graph.links.some(window.rows)
        times = _NO_TIMES if links.times is None else links.times
        return cls(links.indptr, links.indices, window.rows.start, window.rows.stop, times, window.last)

    @classmethod
    def beside(cls, window: Window, kept: NDArray[np.integer]) -> Edges:
        """Return a copy of the edges among a window and some older vertices, which are numbered first.

        ``kept`` are their rows in the graph, ascending.
        """
        if not len(kept):
            return cls.of(window)
        start, stop = int(kept[0]), window.rows.stop
        links = window.graph.links.some(slice(start, stop))
        times = _NO_TIMES if links.times is None else links.times
        rows = np.concatenate([kept, np.arange(window.rows.start, stop)]).astype(np.int32)
        place = np.full(stop - start, -1, np.int32)
        place[rows - start] = np.arange(len(rows), dtype=np.int32)
        arrays = (links.indptr, links.indices, start, stop, times, window.last)
        counts = np.zeros(len(rows) + 1, np.int32)
        _among(*arrays, rows, place, counts, np.empty(0, np.int32))
        indptr = np.cumsum(counts, dtype=np.int32)
        indices = np.empty(indptr[-1], np.int32)
        _among(*arrays, rows, place, counts, indices)
        return cls(indptr, indices, 0, len(rows))

    def __len__(self) -> int:
        """Number of vertices."""
        return self.stop - self.first

    @property
    def entries(self) -> int:
        """Number of entries in the rows of the window: at least two for each of its edges."""
        return int(self.indptr[-1])

    def degrees(self, vertices: NDArray[np.integer]) -> Ints:
        """Return the number of neighbours of some vertices of the window, without themselves."""
        found = np.empty(len(vertices), np.int32)
        _degrees(*self.arrays(), vertices, found)
        return found

    def arrays(self) -> tuple[NDArray[np.integer], Ints, int, int, NDArray[np.int64], int]:
        return self.indptr, self.indices, self.first, self.stop, self.times, self.last


@dataclass(frozen=True, eq=False)
class LocalGraph:
    """Some vertices of a window with neighbours of theirs, and new numbers: given ones first, then hop by hop.

    Parameters
    ----------
    vertices
        Their numbers in the window. Those of each hop ascend.
    sizes
        Number of vertices up to each hop, from 0 hops up.
    graph
        The neighbours of all vertices but those of the last hop, which have empty rows.
    """

    vertices: Ints
    sizes: tuple[int, ...]
    graph: Neighbours


Draw = Callable[[np.random.Generator], LocalGraph]
"""Draws a subgraph of a window."""


def walked(edges: Edges, roots: NDArray[np.integer], choices: NDArray[np.float64], mark: Ints) -> Ints:
    """Return the vertices of random walks, ascending, each once; ``choices`` [walks, steps] are from 0 to 1.

    ``mark`` has a 0 for each vertex of the window, and keeps it.
    """
    met = np.empty(min(len(roots) * (choices.shape[1] + 1), len(edges)), np.int32)
    vertices = met[: _walk(*edges.arrays(), roots.astype(np.int32), choices, mark, met)]
    vertices.sort()
    return vertices


def induced(edges: Edges, vertices: Ints, mark: Ints, *, device: torch.device, kernels: Kernels) -> LocalGraph:
    """Return some vertices, which must ascend, with all edges among them; ``mark`` is as in `walked`."""
    mark[vertices] = np.arange(1, len(vertices) + 1, dtype=np.int32)
    counts = np.zeros(len(vertices) + 1, np.int32)
    _induce(*edges.arrays(), vertices, mark, counts, np.empty(0, np.int32))
    indptr = np.cumsum(counts, dtype=np.int32)
    indices = np.empty(indptr[-1], np.int32)
    _induce(*edges.arrays(), vertices, mark, counts, indices)
    mark[vertices] = 0
    graph = Neighbours(torch.from_numpy(indptr).to(device), torch.from_numpy(indices).to(device), kernels=kernels)
    return LocalGraph(vertices, (len(vertices),), graph)


def squared_norms(edges: Edges, degrees: Ints) -> NDArray[np.float64]:
    """Return the squared norm of each vertex's column in the matrix that takes the mean over neighbours."""
    found = np.empty(len(edges), np.float64)
    _squared_norms(*edges.arrays(), degrees, found)
    return found


class NeighbourSampler:
    """Draws neighbours of vertices, and neighbours of these, without replacement.

    Of more than ``fanouts[hop]`` neighbours, so many are drawn, and weighted such that the mean and the sum over the
    neighbours are those of all neighbours on average.

    Parameters
    ----------
    edges
        The edges of a window.
    fanouts
        Number of neighbours to draw at each hop, or `EVERY`.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3, 4], "time": [1, 2, 3, 4]}, [[1, 2], [2, 3], [3, 4]])
    >>> sampler = NeighbourSampler(Edges.of(graph.window(1, 4)), [EVERY])
    >>> part = sampler.sample(np.array([1]))
    >>> part.vertices.tolist(), part.graph.indices.tolist(), part.graph.degree.tolist()
    ([1, 0, 2], [1, 0, 2], [3.0, 2.0, 3.0])
    """

    def __init__(self, edges: Edges, fanouts: Sequence[int]) -> None:
        self.edges, self.fanouts = edges, tuple(fanouts)
        self._mark = np.zeros(len(edges), np.int32)  # 1 + the new number of each vertex; 0 between calls

    def sample(
        self,
        vertices: NDArray[np.integer],
        key: int = 0,
        *,
        device: torch.device | None = None,
        kernels: Kernels = "numba",
    ) -> LocalGraph:
        """Return vertices of the window, which must ascend, with sampled neighbours; equal keys draw equal samples."""
        arrays = self.edges.arrays()
        reached = [vertices.astype(np.int32)]
        sizes = [len(vertices)]
        self._mark[reached[0]] = np.arange(1, sizes[0] + 1, dtype=np.int32)
        pointers, entries, weights = [np.zeros(1, np.int32)], [], []
        try:
            for hop, fanout in enumerate(self.fanouts):
                counts = np.empty(len(reached[hop]), np.int32)
                _degrees(*arrays, reached[hop], counts)
                if fanout != EVERY:
                    np.minimum(counts, fanout, out=counts)
                ends = np.cumsum(counts + 1, dtype=np.int64)
                total = int(ends[-1]) if len(ends) else 0
                found, weight = np.empty(total, np.int32), np.empty(total, np.float32)
                new = np.empty(max(min(total, len(self.edges) - sizes[-1]), 0), np.int32)
                stream = np.uint64(key & 0xFFFFFFFFFFFFFFFF)
                new = new[: _draw(*arrays, reached[hop], counts, stream, self._mark, found, weight, new)]
                new.sort()
                self._mark[new] = np.arange(sizes[-1] + 1, sizes[-1] + 1 + len(new), dtype=np.int32)
                found = self._mark[found] - 1
                pointers.append(int(pointers[-1][-1]) + ends.astype(np.int32))
                reached, sizes = [*reached, new], [*sizes, sizes[-1] + len(new)]
                entries.append(found)
                weights.append(weight)
        finally:
            for part in reached:
                self._mark[part] = 0
        everything = np.concatenate(reached)
        indptr = np.concatenate(
            [*pointers, np.repeat(pointers[-1][-1:], len(reached[-1]) if self.fanouts else sizes[0])]
        )
        degrees = self.edges.degrees(everything).astype(np.float32) + 1
        sampled = any(fanout != EVERY for fanout in self.fanouts)
        columns = [
            np.concatenate([np.empty(0, kind), *parts]) for kind, parts in ((np.int32, entries), (np.float32, weights))
        ]
        tensors = [
            torch.from_numpy(array).to(device) for array in (indptr.astype(np.int32, copy=False), *columns, degrees)
        ]
        graph = Neighbours(
            tensors[0], tensors[1], tensors[2] if sampled else None, kernels, degrees=tensors[3], symmetric=False
        )
        return LocalGraph(everything, tuple(sizes), graph)


@compiled
def _among(
    indptr: NDArray[np.integer],
    indices: Ints,
    first: int,
    stop: int,
    times: NDArray[np.int64],
    last: int,
    rows: Ints,
    place: Ints,
    counts: Ints,
    found: Ints,
) -> None:
    """Write the neighbours of some rows that have a place, or only count them if there is no room to write."""
    end = 0
    for number in range(len(rows)):
        row = rows[number] - first
        before = end
        for entry in range(indptr[row], indptr[row + 1]):
            other = indices[entry]
            if first <= other < stop and place[other - first] >= 0 and (not len(times) or times[entry] <= last):
                if len(found):
                    found[end] = place[other - first]
                end += 1
        counts[number + 1] = end - before


@compiled
def _span(indptr: NDArray[np.integer], indices: Ints, first: int, stop: int, row: int) -> tuple[int, int]:
    """Return the range of a row's entries whose neighbours are in the window."""
    start, end = int(indptr[row]), int(indptr[row + 1])
    if start == end:
        return start, end
    if indices[start] < first:
        low, high = start, end
        while low < high:
            middle = (low + high) // 2
            if indices[middle] < first:
                low = middle + 1
            else:
                high = middle
        start = low
    if start < end and indices[end - 1] >= stop:
        low, high = start, end
        while low < high:
            middle = (low + high) // 2
            if indices[middle] < stop:
                low = middle + 1
            else:
                high = middle
        end = low
    return start, end


@compiled
def _degrees(
    indptr: NDArray[np.integer],
    indices: Ints,
    first: int,
    stop: int,
    times: NDArray[np.int64],
    last: int,
    vertices: NDArray[np.integer],
    degrees: Ints,
) -> None:
    """Write the number of neighbours in the window."""
    for number in range(len(vertices)):
        start, end = _span(indptr, indices, first, stop, vertices[number])
        degree = end - start
        if len(times):
            for entry in range(start, end):
                degree -= times[entry] > last
        degrees[number] = degree


@compiled
def _mix(x: np.uint64) -> np.uint64:
    """Return a pseudo-random number (the finaliser of splitmix64)."""
    x = np.uint64(x + np.uint64(0x9E3779B97F4A7C15))
    x = np.uint64((x ^ np.uint64(x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9))
    x = np.uint64((x ^ np.uint64(x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB))
    return np.uint64(x ^ np.uint64(x >> np.uint64(31)))


@compiled
def _draw(
    indptr: NDArray[np.integer],
    indices: Ints,
    first: int,
    stop: int,
    times: NDArray[np.int64],
    last: int,
    vertices: Ints,
    counts: Ints,
    key: np.uint64,
    mark: Ints,
    found: Ints,
    weights: NDArray[np.float32],
    new: Ints,
) -> int:
    """Write drawn neighbours of each vertex and itself, ascending, and list those that have no mark yet.

    ``counts`` is the number to draw. Returns how many are listed; they get a mark that is below 0.
    """
    end, listed = 0, 0
    for number in range(len(vertices)):
        vertex, wanted = vertices[number], counts[number]
        start, stop_at = _span(indptr, indices, first, stop, vertex)
        degree = stop_at - start
        if len(times):
            for entry in range(start, stop_at):
                degree -= times[entry] > last
        begin = end
        if wanted == degree:
            for entry in range(start, stop_at):
                if not len(times) or times[entry] <= last:
                    found[end] = indices[entry] - first
                    end += 1
        else:
            # Floyd's algorithm: all sets of this size are equally likely. Places count visible entries only.
            state = _mix(key ^ _mix(np.uint64(vertex)))
            for upper in range(degree - wanted, degree):
                state = _mix(state)
                place = int(state % np.uint64(upper + 1))
                for at in range(begin, end):
                    if found[at] == place:
                        place = upper
                        break
                at = end
                while at > begin and found[at - 1] > place:  # keep them in order
                    found[at] = found[at - 1]
                    at -= 1
                found[at] = place
                end += 1
            if len(times):
                at, place = begin, 0
                for entry in range(start, stop_at):
                    if at < end and times[entry] <= last:
                        if found[at] == place:
                            found[at] = indices[entry] - first
                            at += 1
                        place += 1
            else:
                for at in range(begin, end):
                    found[at] = indices[start + found[at]] - first
        share = np.float32(degree) / np.float32(wanted) if wanted else np.float32(1)
        at = end  # the vertex itself, at its place in the order
        while at > begin and found[at - 1] > vertex:
            found[at] = found[at - 1]
            at -= 1
        found[at] = vertex
        end += 1
        for entry in range(begin, end):
            weights[entry] = np.float32(1) if entry == at else share
            other = found[entry]
            if mark[other] == 0:
                mark[other] = -1
                new[listed] = other
                listed += 1
    return listed


@compiled
def _walk(
    indptr: NDArray[np.integer],
    indices: Ints,
    first: int,
    stop: int,
    times: NDArray[np.int64],
    last: int,
    roots: Ints,
    choices: NDArray[np.float64],
    mark: Ints,
    met: Ints,
) -> int:
    """Walk from each root, one step per column of choices; list each vertex once and return their number."""
    count = 0
    for walk in range(len(roots)):
        vertex = roots[walk]
        for step in range(choices.shape[1] + 1):
            if mark[vertex] == 0:
                mark[vertex] = 1
                met[count] = vertex
                count += 1
            if step == choices.shape[1]:
                break
            start, end = _span(indptr, indices, first, stop, vertex)
            degree = end - start
            if len(times):
                for entry in range(start, end):
                    degree -= times[entry] > last
            if degree == 0:
                break
            place = int(choices[walk, step] * degree)
            entry = start + place
            if len(times):
                entry = start - 1
                for _ in range(place + 1):
                    entry += 1
                    while times[entry] > last:
                        entry += 1
            vertex = indices[entry] - first
    for place in range(count):
        mark[met[place]] = 0
    return count


@compiled
def _squared_norms(
    indptr: NDArray[np.integer],
    indices: Ints,
    first: int,
    stop: int,
    times: NDArray[np.int64],
    last: int,
    degrees: Ints,
    found: NDArray[np.float64],
) -> None:
    for vertex in range(len(degrees)):
        total = 1 / (np.float64(degrees[vertex]) + 1) ** 2
        start, end = _span(indptr, indices, first, stop, vertex)
        for entry in range(start, end):
            if not len(times) or times[entry] <= last:
                total += 1 / (np.float64(degrees[indices[entry] - first]) + 1) ** 2
        found[vertex] = total


@compiled
def _induce(
    indptr: NDArray[np.integer],
    indices: Ints,
    first: int,
    stop: int,
    times: NDArray[np.int64],
    last: int,
    vertices: Ints,
    mark: Ints,
    counts: Ints,
    found: Ints,
) -> None:
    """Count the marked neighbours of each vertex and itself, or write them if there is room."""
    at = 0
    for number in range(len(vertices)):
        vertex, begin, own = vertices[number], at, False
        start, end = _span(indptr, indices, first, stop, vertex)
        for entry in range(start, end):
            other = indices[entry] - first
            if other > vertex and not own:
                own = True
                if len(found):
                    found[at] = number
                at += 1
            if mark[other] > 0 and (not len(times) or times[entry] <= last):
                if len(found):
                    found[at] = mark[other] - 1
                at += 1
        if not own:
            if len(found):
                found[at] = number
            at += 1
        counts[number + 1] = at - begin
