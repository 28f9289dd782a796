"""GraphSAINT: train any model on sampled subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.compiled import compiled
from evergraph.errors import InputError
from evergraph.nn.base import Batch, Draw, Labels, Model, Parameters, Readout, check_settings
from evergraph.nn.ops import Kernels, Matrix, MixedMatrix, Neighbours, Noise, SparseMatrix
from evergraph.nn.sage import JKNet
from evergraph.nn.sampling import Edges, LocalGraph, induced, squared_norms, walked

__all__ = ["GraphSAINT", "Sampler", "SubgraphSampler", "row_slicer"]

Ints = NDArray[np.int32]
Sampler = Literal["walk", "node", "edge"]

_LARGEST = 1e4  # limit of an entry's weight, or a rarely drawn edge would dominate the step in which it is drawn


@dataclass(frozen=True)
class GraphSAINT(Model):
    """Train another model on a sampled subgraph at each step; predict on the whole graph.

    Parameters
    ----------
    base
        The model.
    sampler
        ``"walk"``: all vertices on random walks from training vertices. ``"node"``: vertices in proportion to their
        weight in the means over neighbours. ``"edge"``: both ends of edges, preferring edges between vertices of low
        degree; never a vertex without edges. With ``"node"`` and ``"edge"`` a sample may contain no training vertex.
    size
        Number of walks, vertices or edges to draw, with replacement. A float is a share of the training vertices, of
        all vertices or of all edges.
    walk_length
        Steps of each random walk.
    normalise
        Correct the bias of sampling: vertices in the loss, and neighbours in the mean over neighbours, are weighted by
        the inverse of how often they are drawn, which trial samples measure before each task. The mean of `GraphSAGE`
        and `JKNet` is then unbiased. `GCN` and `SGC` also divide by the neighbour's degree, which remains that of the
        sample. Attention and custom models ignore the weights of neighbours.
    coverage
        How often each vertex is drawn on average in these trial samples.

    Examples
    --------
    >>> model = GraphSAINT(sampler="edge", size=1)
    >>> model.base
    JKNet(hidden=16, layers=2, dropout=0.5)
    >>> path = Neighbours.of(np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1]))
    >>> batch = Batch(torch.eye(3), path, 2, torch.tensor([1, 0]))
    >>> sample = next(model.batches(batch, np.random.default_rng(1)))
    >>> sample.x.tolist(), sample.targets.tolist()
    ([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [0, -1])
    """

    base: Model = field(default_factory=JKNet)
    sampler: Sampler = "walk"
    size: int | float = 0.5
    walk_length: int = 2
    normalise: bool = False
    coverage: int = 50

    def __post_init__(self) -> None:
        check_settings(walk_length=self.walk_length, coverage=self.coverage)
        if not isinstance(self.base, Model) or isinstance(self.base, GraphSAINT):
            raise InputError(f"base is {self.base!r}", fix="give a model other than GraphSAINT")
        if self.sampler not in get_args(Sampler):
            raise InputError(f"sampler is {self.sampler!r}", fix=f"use one of {', '.join(get_args(Sampler))}")
        whole = isinstance(self.size, int) and not isinstance(self.size, bool) and self.size >= 1
        if not (whole or (isinstance(self.size, float) and 0 < self.size <= 1)):
            fix = "set size to a whole number of at least 1, or to a share above 0 and up to 1.0"
            raise InputError(f"size is {self.size!r}", fix=fix)

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        return self.base.parameters(inputs, outputs, draw)

    @property
    def hops(self) -> int | None:
        return self.base.hops

    @property
    def predictor(self) -> Model:
        return self.base.predictor

    def step_memory(self, inputs: int, outputs: int) -> tuple[float, float]:
        return self.base.step_memory(inputs, outputs)

    def subgraphs(
        self, edges: Edges, labelled: NDArray[np.integer], most: int, device: torch.device, kernels: Kernels
    ) -> Callable[[np.random.Generator], LocalGraph]:
        """Return what draws the samples of `batches`, smaller ones if they would be too large."""
        if self.normalise:
            raise InputError(
                "normalise needs counts of all edges, which do not fit into the memory limit",
                fix="set normalise=False, or raise the limit",
            )
        degrees = edges.degrees(np.arange(len(edges), dtype=np.int32))
        roots, steps, population = labelled, self.walk_length, len(labelled)
        up_to: NDArray[np.float64] | None = None
        if self.sampler == "node":
            up_to, steps, population = np.cumsum(squared_norms(edges, degrees)), 0, len(edges)
        elif self.sampler == "edge":
            roots, steps, population = np.flatnonzero(degrees > 0), 1, int(degrees.sum(dtype=np.int64)) // 2
            if not population:
                raise InputError("the graph has no edges to sample", fix='use the sampler "walk" or "node"')
        number = self.size if isinstance(self.size, int) else max(round(self.size * population), 1)
        number = max(min(number, most // (steps + 1)), 1)
        mark = np.zeros(len(edges), np.int32)

        def draw(rng: np.random.Generator) -> LocalGraph:
            if up_to is None:
                chosen = roots[rng.integers(len(roots), size=number)]
            else:
                chosen = np.searchsorted(up_to, np.sort(rng.random(number)) * up_to[-1], side="right")
            vertices = walked(edges, chosen, rng.random((number, steps)), mark)
            return induced(edges, vertices, mark, device=device, kernels=kernels)

        return draw

    def input_weights(self) -> tuple[str, ...]:
        return self.base.input_weights()

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        return self.base.forward(p, batch, noise)

    def readout(self, p: Parameters, batch: Batch, noise: Noise | None) -> Readout:
        return self.base.readout(p, batch, noise)

    def closed_form(self, p: Parameters, labels: Labels) -> Parameters:
        return self.base.closed_form(p, labels)

    def finish(self, p: Parameters, labels: Labels) -> Parameters:
        return self.base.finish(p, labels)

    @property
    def solved(self) -> bool:
        return self.base.solved

    @property
    def takes_classes(self) -> bool:
        return self.base.takes_classes

    def trained(self, name: str) -> bool:
        return self.base.trained(name)

    def batches(self, batch: Batch, rng: np.random.Generator) -> Iterator[Batch]:
        """Return a sample for each step, its vertices in their order and with outputs for all of them."""
        n = len(batch.graph)
        labelled = np.flatnonzero(batch.targets.cpu().numpy() >= 0)
        if not len(labelled):
            labelled = np.arange(batch.rows or n)
        sampler = SubgraphSampler(batch.graph, self.sampler, self.size, self.walk_length, labelled)
        weights, entry_weights = _padded(batch.weights, n, 0), None
        if self.normalise:
            loss_weights, entry_weights = _normalisation(sampler, batch.graph, labelled, rng, self.coverage)
            weights = loss_weights if weights is None else loss_weights * weights
        return _samples(batch, sampler, weights, entry_weights, rng)


def _padded(values: Tensor | None, n: int, value: int) -> Tensor | None:
    return None if values is None else torch.nn.functional.pad(values, (0, n - len(values)), value=value)


def _samples(
    batch: Batch,
    sampler: SubgraphSampler,
    weights: Tensor | None,
    entry_weights: NDArray[np.float32] | None,
    rng: np.random.Generator,
) -> Iterator[Batch]:
    slice_rows, whole = row_slicer(batch.x), batch.graph
    targets = _padded(batch.targets, len(whole), -1)
    assert targets is not None  # noqa: S101  # they were given
    while True:
        part = sampler.induce(sampler.draw(rng))
        rows = torch.from_numpy(part.vertices).to(targets.device)
        yield Batch(
            x=slice_rows(part.vertices),
            graph=_neighbours(part, whole, entry_weights),
            rows=len(rows),
            # Not targets[rows], which starts threads for very little work.
            targets=targets.index_select(0, rows),
            weights=None if weights is None else weights.index_select(0, rows),
        )


def _neighbours(part: Subgraph, whole: Neighbours, entry_weights: NDArray[np.float32] | None) -> Neighbours:
    device = whole.indices.device
    indptr, indices = (torch.from_numpy(array).to(device) for array in (part.indptr, part.indices))
    if entry_weights is None:
        return Neighbours(indptr, indices, kernels=whole.kernels)
    # The mean over neighbours divides by the degree in the sample, but the degree in the whole graph is needed.
    degree = np.diff(part.indptr)
    values = entry_weights[part.entries] * np.repeat(degree, degree).astype(np.float32)
    return Neighbours(indptr, indices, torch.from_numpy(values).to(device), whole.kernels)


def _normalisation(
    sampler: SubgraphSampler, graph: Neighbours, labelled: NDArray[np.integer], rng: np.random.Generator, coverage: int
) -> tuple[Tensor, NDArray[np.float32]]:
    """Return weights of vertices in the loss, and of entries in the sum that estimates the mean over neighbours.

    The weights in the loss are 1 on average over the training vertices as they are drawn.
    """
    # A count of 0 becomes 1, because a vertex or edge that the trials miss may be drawn later.
    of_vertex, of_entry = (np.maximum(counts, 1) for counts in sampler.count(rng, coverage))
    loss_weights = (of_vertex[labelled].mean() / of_vertex).astype(np.float32)
    degree = sampler.degree
    inverse_chance = np.minimum(np.repeat(of_vertex, degree) / of_entry, _LARGEST)
    entry_weights = (inverse_chance / np.repeat(degree, degree)).astype(np.float32)
    return torch.from_numpy(loss_weights).to(graph.indices.device), entry_weights


# --- sampling --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Subgraph:
    """Some vertices, ascending, and all edges between them as compressed rows, numbered within the sample.

    ``entries`` are the places of the same entries in the whole graph.
    """

    vertices: Ints
    indptr: Ints
    indices: Ints
    entries: Ints


class SubgraphSampler:
    """Draw subgraphs of one graph, with the settings of `GraphSAINT`; walks start at ``roots`` (None: at any vertex).

    All three samplers are random walks. ``"node"`` makes no steps; its starts are in proportion to the squared norm of
    their column in the matrix that takes the mean over neighbours. ``"edge"`` makes one step from any vertex with
    edges, which draws edges in proportion to the sum of the inverse degrees of their ends.

    Examples
    --------
    >>> path = Neighbours.of(np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1]))
    >>> sampler = SubgraphSampler(path, "edge", 1)
    >>> part = sampler.induce(sampler.draw(np.random.default_rng(1)))
    >>> part.vertices.tolist(), part.indptr.tolist(), part.indices.tolist(), part.entries.tolist()
    ([1, 2], [0, 2, 4], [0, 1, 0, 1], [3, 4, 5, 6])
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
            raise InputError("the graph to sample from has no vertices", fix="train on a graph with vertices")
        self.degree = np.diff(self._indptr)
        self._roots: NDArray[np.integer] = np.arange(n) if roots is None else roots
        if kind == "node":
            # Rows equal columns because the pattern is symmetric. No row is empty because of the self-loops.
            norms = np.add.reduceat(self.degree[self._indices] ** -2.0, self._indptr[:-1])
            self._up_to, self._steps, population = np.cumsum(norms), 0, n
        elif kind == "edge":
            self._roots, self._steps, population = np.flatnonzero(self.degree > 1), 1, (entries - n) // 2
            if not population:
                raise InputError("the graph has no edges to sample", fix='use the sampler "walk" or "node"')
        else:
            self._steps, population = walk_length, len(self._roots)
            if not population:
                raise InputError("there are no roots to start walks at", fix="give at least one root")
        self._kind = kind
        self._number = size if isinstance(size, int) else max(round(size * population), 1)
        # Allocated once: clearing arrays of the graph's size would cost more than drawing a small sample.
        self._position = np.zeros(n, np.int32)
        self._buffers = np.empty(entries, np.int32), np.empty(entries, np.int32)

    def draw(self, rng: np.random.Generator) -> Ints:
        """Draw the vertices of one sample, ascending."""
        if self._kind == "node":
            # Sorted numbers are found several times faster, because each search starts where the last one ended.
            wanted = np.sort(rng.random(self._number)) * self._up_to[-1]
            roots = np.searchsorted(self._up_to, wanted, side="right")
        else:
            roots = self._roots[rng.integers(len(self._roots), size=self._number)]
        choices = rng.random((self._number, self._steps))
        met = np.empty(min(self._number * (self._steps + 1), len(self._position)), np.int32)
        vertices = met[: _walk(self._indptr, self._indices, roots.astype(np.int32), choices, self._position, met)]
        vertices.sort()
        return vertices

    def induce(self, vertices: Ints) -> Subgraph:
        """Return the subgraph of some vertices, which must be in ascending order."""
        indptr, (indices, entries) = np.empty(len(vertices) + 1, np.int32), self._buffers
        _induce(self._indptr, self._indices, vertices, self._position, indptr, indices, entries)
        last = indptr[-1]
        return Subgraph(vertices, indptr, indices[:last].copy(), entries[:last].copy())

    def count(self, rng: np.random.Generator, coverage: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count in how many samples each vertex and entry is, until a vertex is in ``coverage`` samples on average."""
        n = len(self._position)
        of_vertex, of_entry = np.zeros(n, np.int64), np.zeros(len(self._indices), np.int64)
        seen = 0
        while seen < coverage * n:
            vertices = self.draw(rng)
            of_vertex[vertices] += 1
            _count(self._indptr, self._indices, vertices, self._position, of_entry)
            seen += len(vertices)
        return of_vertex, of_entry


def row_slicer(x: Matrix) -> Callable[[Ints], Matrix]:
    """Return a function that selects rows of features.

    Examples
    --------
    >>> from scipy import sparse
    >>> x = SparseMatrix.of(sparse.csr_array([[0.0, 2.0], [1.0, 0.0], [0.0, 3.0]]))
    >>> row_slicer(x)(np.array([0, 2], np.int32)).to_dense().tolist()
    [[0.0, 2.0], [0.0, 3.0]]
    """
    if isinstance(x, Tensor):
        return lambda rows: x.index_select(0, torch.from_numpy(rows).to(x.device))
    if isinstance(x, MixedMatrix):
        dense, stored = row_slicer(x.dense), row_slicer(x.sparse)
        return lambda rows: MixedMatrix(dense(rows), stored(rows))  # type: ignore[arg-type]  # of the same types
    matrix = x.to_scipy()
    return lambda rows: SparseMatrix.of(matrix[rows], device=x.device, kernels=x.kernels)


@compiled
def _walk(indptr: Ints, indices: Ints, roots: Ints, choices: NDArray[np.float64], position: Ints, met: Ints) -> int:
    """Walk from each root, one step per column of choices; list each vertex once and return their number."""
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
            if indices[entry] >= vertex:  # neighbours ascend: skip the vertex itself
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
    """Write the neighbours of vertices among themselves, and their places in the whole graph."""
    for place in range(len(vertices)):
        position[vertices[place]] = place + 1
    count = 0
    new_indptr[0] = 0
    for place in range(len(vertices)):
        vertex = vertices[place]
        for entry in range(indptr[vertex], indptr[vertex + 1]):
            other = position[indices[entry]]
            # Always written, and overwritten if it is no neighbour: an unpredictable branch costs more.
            new_indices[count] = other - 1
            entries[count] = entry
            count += other > 0
        new_indptr[place + 1] = count
    for place in range(len(vertices)):
        position[vertices[place]] = 0


@compiled
def _count(indptr: Ints, indices: Ints, vertices: Ints, position: Ints, counts: NDArray[np.int64]) -> None:
    """Add 1 to each entry between vertices."""
    for place in range(len(vertices)):
        position[vertices[place]] = 1
    for place in range(len(vertices)):
        vertex = vertices[place]
        for entry in range(indptr[vertex], indptr[vertex + 1]):
            counts[entry] += position[indices[entry]]
    for place in range(len(vertices)):
        position[vertices[place]] = 0
