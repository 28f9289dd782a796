"""Mini-batches of a window that is larger than memory, read from the memory maps of its graph.

A batch is some labelled vertices with sampled neighbours (`evergraph.nn.sampling`) and the features of all of these. A
second thread samples and reads the next batches while the current one trains. Each batch has a random stream of its
own, so the numbers do not depend on the thread.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.graph.evolving import Window
from evergraph.graph.pages import give_back_pages
from evergraph.inputs.vocabulary import FeatureReader
from evergraph.nn import Batch, Matrix, MixedMatrix, Model, Neighbours, SparseMatrix
from evergraph.nn.ops import Kernels
from evergraph.nn.sampling import EVERY, Edges, LocalGraph, NeighbourSampler

__all__ = ["MiniBatches", "WindowSource", "prefetched"]

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class WindowSource:
    """Reads features and neighbours of any vertices of a window, as tensors.

    Vertices are numbered from 0: first those that are kept from before the window, then those of the window.

    Parameters
    ----------
    window
        The window.
    reader
        Reads features.
    device, kernels
        Of the tensors.
    limit
        Resident bytes of the process, near which pages of the graph's files are given back.
    kept
        Rows in the graph of vertices older than the window, ascending.
    """

    window: Window
    reader: FeatureReader
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    kernels: Kernels = "numba"
    limit: int = 2**62
    kept: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @cached_property
    def edges(self) -> Edges:
        """The edges among the vertices."""
        return Edges.beside(self.window, self.kept)

    def graph(self) -> Neighbours:
        """Return the neighbours of all vertices."""
        links = self.edges if len(self.kept) else self.window.links
        return Neighbours.of(links.indptr, links.indices, device=self.device, kernels=self.kernels)

    def rows(self, vertices: NDArray[np.integer] | None = None) -> slice | NDArray[np.integer]:
        """Return the rows in the graph of some vertices, or of all."""
        start = self.window.rows.start
        if not len(self.kept):
            return self.window.rows if vertices is None else start + vertices
        everything = np.concatenate([self.kept, np.arange(start, self.window.rows.stop)])
        return everything if vertices is None else everything[vertices]

    def features(self, vertices: NDArray[np.integer] | None = None) -> Matrix:
        """Return the features of some vertices, or of all."""
        give_back_pages(self.window.graph, self.limit)
        dense, other = self.reader.read(self.rows(vertices))
        # A copy, because the graph's memory is read-only.
        parts: list[Matrix] = []
        if dense is not None:
            parts.append(torch.from_numpy(np.array(dense, np.float32)).to(self.device))
        if other is not None:
            parts.append(SparseMatrix.of(other, device=self.device, kernels=self.kernels))
        return MixedMatrix(*parts) if len(parts) == 2 else parts[0]  # type: ignore[arg-type]  # in this order

    def neighbourhood(self, vertices: NDArray[np.integer], hops: int) -> Batch:
        """Return some vertices, which must ascend, with all vertices within a number of hops."""
        sampler = NeighbourSampler(self.edges, [EVERY] * hops)
        part = sampler.sample(vertices, device=self.device, kernels=self.kernels)
        return self.batch(part, torch.empty(0, dtype=torch.int64))

    def batch(self, part: LocalGraph, targets: torch.Tensor) -> Batch:
        """Return the batch of a sample."""
        return Batch(self.features(part.vertices), part.graph, part.sizes[0], targets, sizes=part.sizes)


@dataclass(frozen=True, eq=False)
class MiniBatches:
    """The labelled vertices of a window in batches, each vertex once per epoch in random order.

    Parameters
    ----------
    source
        The window.
    targets
        Column of the class of each vertex of the window; -1 without a label to train on.
    size
        Labelled vertices per batch.
    fanouts
        Number of neighbours to sample at each hop.
    ahead
        Number of batches that a second thread prepares in advance; with 0 there is no such thread.
    model
        If given, a model that draws samples of its own (`Model.subgraphs`), of at most ``vertices`` vertices.
    """

    source: WindowSource
    targets: NDArray[np.integer]
    size: int
    fanouts: tuple[int, ...]
    ahead: int = 2
    model: Model | None = None
    vertices: int = 0

    @cached_property
    def labelled(self) -> NDArray[np.int32]:
        """The vertices with a label to train on."""
        return np.flatnonzero(self.targets >= 0).astype(np.int32)

    @property
    def per_epoch(self) -> int:
        """Number of batches in which each labelled vertex is once."""
        return max(-(-len(self.labelled) // self.size), 1)

    def batches(self, seed: tuple[int, int], rank: int = 0) -> Generator[Batch, None, None]:
        """Return the batches, without end; each worker of several has its own, by its ``rank`` from 0 up."""
        stream = (*seed, 0, 1 + rank)  # that of `labelled_batches`, with further numbers behind it
        if self.model is not None:
            return prefetched(partial(self._subgraph, self._draw(self.model), stream), self.ahead)
        sampler = NeighbourSampler(self.source.edges, self.fanouts)
        order: tuple[int, NDArray[np.int32]] = (-1, self.labelled)

        def make(number: int) -> Batch:
            nonlocal order
            epoch, place = divmod(number, self.per_epoch)
            if order[0] != epoch:
                order = (epoch, np.random.default_rng([*stream, 1, epoch]).permutation(self.labelled))
            first, last = (len(self.labelled) * bound // self.per_epoch for bound in (place, place + 1))
            seeds = np.sort(order[1][first:last])
            key = int(np.random.SeedSequence([*stream, 2, number]).generate_state(1, np.uint64)[0])
            source = self.source
            part = sampler.sample(seeds, key, device=source.device, kernels=source.kernels)
            targets = torch.from_numpy(self.targets[seeds].astype(np.int64)).to(source.device)
            _ = part.graph.reverse  # computed here, so that the training thread does not have to
            return source.batch(part, targets)

        return prefetched(make, self.ahead)

    def _draw(self, model: Model) -> Callable[[np.random.Generator], LocalGraph]:
        source = self.source
        draw = model.subgraphs(source.edges, self.labelled, self.vertices, source.device, source.kernels)
        assert draw is not None  # noqa: S101  # or the model would not be given
        return draw

    def _subgraph(
        self, draw: Callable[[np.random.Generator], LocalGraph], stream: tuple[int, ...], number: int
    ) -> Batch:
        """A sample with at least one label."""
        rng = np.random.default_rng([*stream, 2, number])
        while True:
            part = draw(rng)
            inside = np.flatnonzero(part.vertices < len(self.targets))
            targets = np.full(len(part.vertices), -1, np.int64)
            targets[inside] = self.targets[part.vertices[inside]]
            if (targets >= 0).any():
                found = self.source.batch(part, torch.from_numpy(targets).to(self.source.device))
                return replace(found, sizes=None)

    def with_reader(self, reader: FeatureReader) -> MiniBatches:
        """Return the same batches with features from another reader."""
        return replace(self, source=replace(self.source, reader=reader))


def prefetched(make: Callable[[int], _T], ahead: int) -> Generator[_T, None, None]:
    """Yield ``make(0)``, ``make(1)`` and so on, of which another thread makes the next ones in advance.

    Errors of the other thread are raised here. Closing the iterator ends the thread.

    Examples
    --------
    >>> [*itertools.islice(prefetched(lambda number: number**2, ahead=2), 4)]
    [0, 1, 4, 9]
    """
    if not ahead:
        yield from map(make, itertools.count())
        return
    with ThreadPoolExecutor(1, thread_name_prefix="evergraph-batches") as pool:
        waiting: deque[Future[_T]] = deque()
        try:
            for number in itertools.count():
                while len(waiting) < ahead:
                    waiting.append(pool.submit(make, number + len(waiting)))
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
