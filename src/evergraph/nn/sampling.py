"""Sampling of subgraphs: some vertices, drawn in one of three ways, and all edges between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from evergraph.compiled import compiled
from evergraph.errors import InputError
from evergraph.nn.sparse import Neighbours, SparseMatrix

__all__ = ["Sampler", "Subgraph", "Subgraphs", "row_slicer"]

Ints = NDArray[np.int32]
Sampler = Literal["walk", "node", "edge"]


@dataclass(frozen=True, eq=False)
class Subgraph:
    """Some vertices and all edges between them.

    Parameters
    ----------
    vertices
        Which vertices of the whole graph, ascending.
    indptr, indices
        Their neighbours in compressed rows, counted within the sample.
    entries
        For each neighbour the place of the same entry in the whole graph.

    Examples
    --------
    >>> path = Neighbours.of(np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1]))
    >>> some = Subgraphs(path, "node", 1).between(np.array([1, 2], np.int32))
    >>> some.indptr.tolist(), some.indices.tolist(), some.entries.tolist()
    ([0, 2, 4], [0, 1, 0, 1], [3, 4, 5, 6])
    """

    vertices: Ints
    indptr: Ints
    indices: Ints
    entries: Ints


class Subgraphs:
    """Draws subgraphs of one graph.

    All three ways are random walks, which differ in where they start and how long they are; a sample has every vertex
    that was met. Starts are drawn with replacement.

    Parameters
    ----------
    graph
        The whole graph.
    kind
        ``"walk"``: from the roots, all alike, ``walk_length`` steps to a neighbour. ``"node"``: vertices in proportion
        to the squared norm of their column in the matrix that takes the mean over neighbours. ``"edge"``: edges in
        proportion to the sum of their ends' inverse degrees, both ends; this is one step from any vertex with edges.
    size
        How many walks, vertices or edges; with a decimal point, which share of all roots, vertices or edges.
    walk_length
        Steps of a walk.
    roots
        Where walks may start; None for anywhere.

    Examples
    --------
    >>> path = Neighbours.of(np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1]))
    >>> Subgraphs(path, "edge", 1).draw(np.random.default_rng(1)).tolist()
    [1, 2]
    """

    def __init__(
        self,
        graph: Neighbours,
        kind: Sampler,
        size: int | float,
        walk_length: int = 2,
        roots: NDArray[np.integer] | None = None,
    ) -> None:
        self._indptr, self._indices = graph.indptr.cpu().numpy(), graph.indices.cpu().numpy()
        n, entries = len(graph), len(self._indices)
        if not n:
            raise InputError("the graph to sample from has no vertices", fix="train on a graph that has some")
        self.degree = np.diff(self._indptr)
        self._roots: NDArray[np.integer] = np.arange(n) if roots is None else roots
        if kind == "node":
            # A row is as its column: neighbours are mutual. No row is empty, for each vertex is its own neighbour.
            norms = np.add.reduceat(self.degree[self._indices] ** -2.0, self._indptr[:-1])
            self._up_to, self._steps, population = np.cumsum(norms), 0, n
        elif kind == "edge":
            self._roots, self._steps, population = np.flatnonzero(self.degree > 1), 1, (entries - n) // 2
            if not population:
                raise InputError("the graph has no edges to sample", fix='use the sampler "walk" or "node"')
        else:
            self._steps, population = walk_length, len(self._roots)
            if not population:
                raise InputError("there is no vertex to walk from", fix="give some roots")
        self._kind = kind
        self._number = size if isinstance(size, int) else max(round(size * population), 1)
        # Used over and over: clearing arrays of the graph's size would cost more than drawing a small sample.
        self._position = np.zeros(n, np.int32)
        self._buffers = np.empty(entries, np.int32), np.empty(entries, np.int32)

    def draw(self, rng: np.random.Generator) -> Ints:
        """The vertices of one sample, ascending."""
        if self._kind == "node":
            # Sorted, they are found several times faster, for each search starts where the last one ended.
            wanted = np.sort(rng.random(self._number)) * self._up_to[-1]
            roots = np.searchsorted(self._up_to, wanted, side="right")
        else:
            roots = self._roots[rng.integers(len(self._roots), size=self._number)]
        choices = rng.random((self._number, self._steps))
        met = np.empty(min(self._number * (self._steps + 1), len(self._position)), np.int32)
        vertices = met[: _walk(self._indptr, self._indices, roots.astype(np.int32), choices, self._position, met)]
        vertices.sort()
        return vertices

    def between(self, vertices: Ints) -> Subgraph:
        """The subgraph of some vertices, which must ascend."""
        indptr, (indices, entries) = np.empty(len(vertices) + 1, np.int32), self._buffers
        _induce(self._indptr, self._indices, vertices, self._position, indptr, indices, entries)
        last = indptr[-1]
        return Subgraph(vertices, indptr, indices[:last].copy(), entries[:last].copy())

    def count(self, rng: np.random.Generator, coverage: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """In how many samples each vertex and each entry is, when a vertex is in ``coverage`` of them on average."""
        n = len(self._position)
        of_vertex, of_entry = np.zeros(n, np.int64), np.zeros(len(self._indices), np.int64)
        seen = 0
        while seen < coverage * n:
            vertices = self.draw(rng)
            of_vertex[vertices] += 1
            _count(self._indptr, self._indices, vertices, self._position, of_entry)
            seen += len(vertices)
        return of_vertex, of_entry


def row_slicer(x: Tensor | SparseMatrix) -> Callable[[Ints], Tensor | SparseMatrix]:
    """A function that takes rows of features, as often as wanted.

    Examples
    --------
    >>> x = SparseMatrix.of(sparse.csr_array([[0.0, 2.0], [1.0, 0.0], [0.0, 3.0]]))
    >>> row_slicer(x)(np.array([0, 2], np.int32)).to_dense().tolist()
    [[0.0, 2.0], [0.0, 3.0]]
    """
    if isinstance(x, Tensor):
        return lambda rows: x.index_select(0, torch.from_numpy(rows).to(x.device))
    pattern = x.pattern
    arrays = (part.cpu().numpy() for part in (x.values[pattern.place], pattern.indices, pattern.indptr))
    matrix, device, kernels = sparse.csr_array(tuple(arrays), shape=x.shape), x.device, x.kernels
    return lambda rows: SparseMatrix.of(matrix[rows], device=device, kernels=kernels)


@compiled
def _walk(indptr: Ints, indices: Ints, roots: Ints, choices: NDArray[np.float64], position: Ints, met: Ints) -> int:
    """Walk from each root, a step for each column of choices; list each vertex once and return how many there are."""
    count = 0
    for walk in range(len(roots)):
        vertex = roots[walk]
        if position[vertex] == 0:
            position[vertex] = 1
            met[count] = vertex
            count += 1
        for step in range(choices.shape[1]):
            start = indptr[vertex]
            others = indptr[vertex + 1] - start - 1
            if others == 0:
                break
            entry = start + int(choices[walk, step] * others)
            if indices[entry] >= vertex:  # neighbours ascend: the vertex itself, which is no step, comes before
                entry += 1
            vertex = indices[entry]
            if position[vertex] == 0:
                position[vertex] = 1
                met[count] = vertex
                count += 1
    for place in range(count):
        position[met[place]] = 0
    return count


@compiled
def _induce(
    indptr: Ints, indices: Ints, vertices: Ints, position: Ints, new_indptr: Ints, new_indices: Ints, entries: Ints
) -> None:
    """Write the neighbours of vertices among themselves, and where they stand in the whole graph."""
    for place in range(len(vertices)):
        position[vertices[place]] = place + 1
    count = 0
    new_indptr[0] = 0
    for place in range(len(vertices)):
        vertex = vertices[place]
        for entry in range(indptr[vertex], indptr[vertex + 1]):
            other = position[indices[entry]]
            # Written in any case, and over again if it was none: a branch that cannot be foreseen costs more.
            new_indices[count] = other - 1
            entries[count] = entry
            count += other > 0
        new_indptr[place + 1] = count
    for place in range(len(vertices)):
        position[vertices[place]] = 0


@compiled
def _count(indptr: Ints, indices: Ints, vertices: Ints, position: Ints, counts: NDArray[np.int64]) -> None:
    """Add one to each entry between vertices."""
    for place in range(len(vertices)):
        position[vertices[place]] = 1
    for place in range(len(vertices)):
        vertex = vertices[place]
        for entry in range(indptr[vertex], indptr[vertex + 1]):
            counts[entry] += position[indices[entry]]
    for place in range(len(vertices)):
        position[vertices[place]] = 0
