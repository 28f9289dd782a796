"""GraphSAINT: any model, trained on sampled subgraphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.errors import InputError
from evergraph.nn.base import Batch, Draw, Model, Noise, Parameters, check_settings
from evergraph.nn.jknet import JKNet
from evergraph.nn.sampling import Sampler, Subgraph, Subgraphs, row_slicer
from evergraph.nn.sparse import Neighbours

__all__ = ["GraphSAINT"]

_LARGEST = 1e4  # of an entry's weight: an edge that is hardly ever drawn must not take over when it is


@dataclass(frozen=True)
class GraphSAINT(Model):
    """Another model whose training steps each see a sampled subgraph; it predicts on the whole graph.

    Parameters
    ----------
    base
        The model.
    sampler
        ``"walk"``: all vertices that random walks from training vertices meet. ``"node"``: vertices in proportion to
        their weight in the means over neighbours. ``"edge"``: ends of edges, of which those between vertices of few
        neighbours are more likely; never a vertex without edges. With these two a sample may have no training vertex.
    size
        Number of walks, vertices or edges that are drawn, with replacement; with a decimal point, share of the training
        vertices, of all vertices or of all edges.
    walk_length
        Steps of each random walk.
    normalise
        Undo the bias of sampling. How often each vertex and each edge is drawn is found by trial before training, anew
        for each task. Vertices then count in the loss, and neighbours in the mean over neighbours, the more the less
        often they are drawn. This makes the mean of `GraphSAGE` and `JKNet` right in expectation. `GCN` and `SGC` also
        divide by the neighbour's degree, for which a sample's stands; attention and custom models take no weights.
    coverage
        How many times a vertex is drawn on average in these trials.

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
            raise InputError(f"base is {self.base!r}", fix="give a model that does not sample itself")
        if self.sampler not in get_args(Sampler):
            raise InputError(f"sampler is {self.sampler!r}", fix=f"give one of {', '.join(get_args(Sampler))}")
        whole = isinstance(self.size, int) and not isinstance(self.size, bool) and self.size >= 1
        if not whole and not (isinstance(self.size, float) and 0 < self.size <= 1):
            raise InputError(
                f"size is {self.size!r}", fix="give a whole number from 1 up, or a share above 0 up to 1.0"
            )

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        return self.base.parameters(inputs, outputs, draw)

    def input_weights(self) -> tuple[str, ...]:
        return self.base.input_weights()

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        return self.base.forward(p, batch, noise)

    def closed_form(self, counts: Tensor) -> Parameters | None:
        return self.base.closed_form(counts)

    def trained(self, name: str) -> bool:
        return self.base.trained(name)

    def batches(self, batch: Batch, rng: np.random.Generator) -> Iterator[Batch]:
        """A sample for each step: its vertices in their order, all of them as rows."""
        n = len(batch.graph)
        labelled = np.flatnonzero(batch.targets.cpu().numpy() >= 0)
        if not len(labelled):
            labelled = np.arange(batch.rows or n)
        subgraphs = Subgraphs(batch.graph, self.sampler, self.size, self.walk_length, labelled)
        weights, entry_weights = _padded(batch.weights, n, 0), None
        if self.normalise:
            loss_weights, entry_weights = _normalisation(subgraphs, batch.graph, labelled, rng, self.coverage)
            weights = loss_weights if weights is None else loss_weights * weights
        return _samples(batch, subgraphs, weights, entry_weights, rng)


def _padded(values: Tensor | None, n: int, value: int) -> Tensor | None:
    return None if values is None else torch.nn.functional.pad(values, (0, n - len(values)), value=value)


def _samples(
    batch: Batch,
    subgraphs: Subgraphs,
    weights: Tensor | None,
    entry_weights: NDArray[np.float32] | None,
    rng: np.random.Generator,
) -> Iterator[Batch]:
    slice_rows, whole = row_slicer(batch.x), batch.graph
    targets = _padded(batch.targets, len(whole), -1)
    assert targets is not None  # noqa: S101  # they were given
    while True:
        part = subgraphs.between(subgraphs.draw(rng))
        rows = torch.from_numpy(part.vertices).to(targets.device)
        yield Batch(
            x=slice_rows(part.vertices),
            graph=_neighbours(part, whole, entry_weights),
            rows=len(rows),
            # Not targets[rows], which wakes threads that have hardly anything to do.
            targets=targets.index_select(0, rows),
            weights=None if weights is None else weights.index_select(0, rows),
        )


def _neighbours(part: Subgraph, whole: Neighbours, entry_weights: NDArray[np.float32] | None) -> Neighbours:
    device = whole.indices.device
    indptr, indices = (torch.from_numpy(array).to(device) for array in (part.indptr, part.indices))
    if entry_weights is None:
        return Neighbours(indptr, indices, kernels=whole.kernels)
    # The mean over neighbours will divide by the degree within the sample, but it is the whole degree that counts.
    degree = np.diff(part.indptr)
    values = entry_weights[part.entries] * np.repeat(degree, degree).astype(np.float32)
    return Neighbours(indptr, indices, torch.from_numpy(values).to(device), whole.kernels)


def _normalisation(
    subgraphs: Subgraphs, graph: Neighbours, labelled: NDArray[np.integer], rng: np.random.Generator, coverage: int
) -> tuple[Tensor, NDArray[np.float32]]:
    """Weights of vertices in the loss, and of all entries in the sum that estimates the mean over neighbours.

    The former are 1 on average over the training vertices as they are drawn.
    """
    # What was never drawn may be drawn later: it counts as drawn once.
    of_vertex, of_entry = (np.maximum(counts, 1) for counts in subgraphs.count(rng, coverage))
    loss_weights = (of_vertex[labelled].mean() / of_vertex).astype(np.float32)
    degree = subgraphs.degree
    inverse_chance = np.minimum(np.repeat(of_vertex, degree) / of_entry, _LARGEST)
    entry_weights = (inverse_chance / np.repeat(degree, degree)).astype(np.float32)
    return torch.from_numpy(loss_weights).to(graph.indices.device), entry_weights
