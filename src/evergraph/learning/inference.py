"""Exact outputs of a model for some vertices of a window, layer by layer and block by block.

Only the vertices that the outputs depend on are read: those within as many hops as the model has layers. A layer is
computed for blocks of vertices, each from the results of the layer below for the block and all its neighbours.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.compiled import compiled
from evergraph.learning.minibatch import WindowSource
from evergraph.nn import LayeredModel, Matrix, Model
from evergraph.nn.base import Parameters
from evergraph.nn.sampling import EVERY, Edges, NeighbourSampler

__all__ = ["BlockSizes", "exact_outputs"]


@dataclass(frozen=True)
class BlockSizes:
    """How much is computed at a time.

    Parameters
    ----------
    entries
        Vertices and neighbours in a block; a block has at least one vertex with all its neighbours.
    in_memory
        Bytes of results of a hidden layer that stay in memory; more are in a temporary file.
    """

    entries: int = 2_000_000
    in_memory: int = 2_000_000_000


def exact_outputs(
    model: Model, weights: Parameters, source: WindowSource, rows: NDArray[np.integer], blocks: BlockSizes | None = None
) -> tuple[Tensor, Tensor]:
    """Return logits and hidden vectors of some vertices, which must ascend, without noise and gradients.

    The model must say how many hops it reads (`Model.hops`).
    """
    blocks = blocks or BlockSizes()
    model = model.predictor
    with torch.no_grad():
        if isinstance(model, LayeredModel):
            return _layerwise(model, weights, source, rows, blocks)
        assert model.hops is not None  # noqa: S101  # the caller has checked
        found = []
        edges = source.edges
        size = max(blocks.entries // max(_reached(edges, model.hops), 1), 1)
        for start in range(0, max(len(rows), 1), size):
            batch = source.neighbourhood(rows[start : start + size], model.hops)
            found.append(model.forward(weights, batch, None))
        logits, hidden = (torch.cat(parts) for parts in zip(*found, strict=True))
        return logits, hidden


def _layerwise(
    model: LayeredModel, p: Parameters, source: WindowSource, rows: NDArray[np.integer], blocks: BlockSizes
) -> tuple[Tensor, Tensor]:
    edges = source.edges
    one_hop = NeighbourSampler(edges, [EVERY] if model.hops else [])
    needed = _needed(edges, rows, model.hops)
    below: _Results | None = None

    def inputs(vertices: NDArray[np.int32]) -> Matrix:
        return source.features(vertices) if below is None else below.take(vertices).to(source.device)

    for number in range(model.hidden_layers):
        wanted = needed[max(model.hops - 1 - number, 0)]
        results = _Results(wanted, blocks.in_memory)
        for block in _split(edges, wanted, blocks.entries):
            part = one_hop.sample(wanted[block], device=source.device, kernels=source.kernels)
            h = inputs(part.vertices)
            results.put(block, model.hidden_layer(p, number, h, part.graph, part.sizes[0], None))
        below = results
    sampler = NeighbourSampler(edges, []) if model.local_output else one_hop
    logits, hidden = [], []
    for block in _split(edges, needed[0], blocks.entries):
        part = sampler.sample(needed[0][block], device=source.device, kernels=source.kernels)
        found = model.output_layer(p, inputs(part.vertices), part.graph, part.sizes[0], None)
        logits.append(found.logits)
        hidden.append(found.hidden)
    return torch.cat(logits), torch.cat(hidden)


class _Results:
    """Results of a layer for some vertices, ascending, in memory or in a temporary file."""

    def __init__(self, vertices: NDArray[np.int32], in_memory: int) -> None:
        self.vertices, self._most = vertices, in_memory
        self._values: NDArray[np.float32] | None = None

    def put(self, block: slice, values: Tensor) -> None:
        """Store the results of a range of the vertices."""
        array = values.cpu().numpy()
        if self._values is None:
            shape = (len(self.vertices), array.shape[1])
            if shape[0] * shape[1] * 4 <= self._most:
                self._values = np.empty(shape, np.float32)
            else:
                with tempfile.TemporaryFile(prefix="evergraph-layer-") as file:
                    file.truncate(shape[0] * shape[1] * 4)
                    self._values = np.memmap(file, np.float32, "r+", shape=shape)
        self._values[block] = array

    def take(self, vertices: NDArray[np.int32]) -> Tensor:
        """Return the results of some of the vertices."""
        assert self._values is not None  # noqa: S101  # `put` was called
        return torch.from_numpy(self._values[np.searchsorted(self.vertices, vertices)])


def _needed(edges: Edges, rows: NDArray[np.integer], hops: int) -> list[NDArray[np.int32]]:
    """The vertices within each number of hops, from 0 up, but those of the last hop."""
    found = [rows.astype(np.int32)]
    reached = np.zeros(len(edges) if hops > 1 else 0, np.bool_)
    for _ in range(hops - 1):
        reached[found[-1]] = True
        _mark_neighbours(*edges.arrays(), found[-1], reached)
        found.append(np.flatnonzero(reached).astype(np.int32))
    return found


def _reached(edges: Edges, hops: int) -> int:
    """About how many vertices a vertex reads, from the mean degree of the window."""
    mean = edges.entries / max(len(edges), 1)
    return int(min(sum(mean**hop for hop in range(hops + 1)), len(edges)))


def _split(edges: Edges, vertices: NDArray[np.int32], entries: int) -> Iterator[slice]:
    """Cut vertices into ranges that have at most so many entries, as far as single vertices allow."""
    if not len(vertices):
        yield slice(0, 0)
        return
    start = 0
    while start < len(vertices):
        some = vertices[start : start + max(entries, 1)]
        cost = np.cumsum(edges.degrees(some) + np.int64(1))
        stop = start + max(int(np.searchsorted(cost, entries, "right")), 1)
        yield slice(start, stop)
        start = stop


@compiled
def _mark_neighbours(
    indptr: NDArray[np.integer],
    indices: NDArray[np.int32],
    first: int,
    stop: int,
    times: NDArray[np.int64],
    last: int,
    vertices: NDArray[np.int32],
    reached: NDArray[np.bool_],
) -> None:
    """Mark the neighbours of some vertices in the window."""
    for vertex in vertices:
        for entry in range(indptr[vertex], indptr[vertex + 1]):
            other = indices[entry]
            if first <= other < stop and (not len(times) or times[entry] <= last):
                reached[other - first] = True
