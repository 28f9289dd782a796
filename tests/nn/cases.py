"""Small random graphs, and reference models with dense matrices in double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from scipy import sparse
from torch import Tensor

from evergraph.nn import (
    GAT,
    GCN,
    MLP,
    SGC,
    Batch,
    Draw,
    GraphSAGE,
    JKNet,
    Labels,
    Matrix,
    MixedMatrix,
    Model,
    Neighbours,
    Noise,
    SparseMatrix,
)

KERNELS = ["numba", "torch"]

# Hidden layers narrower and wider than their input, because layers sum on the narrower side.
MODELS: list[Model] = [
    *(MLP(hidden=6, layers=layers) for layers in (1, 2, 3)),
    *(GCN(hidden=6, layers=layers) for layers in (1, 2, 3)),
    GCN(hidden=20),
    *(GraphSAGE(hidden=6, layers=layers) for layers in (1, 2, 3)),
    GraphSAGE(hidden=20),
    *(GAT(hidden=3, heads=4, layers=layers) for layers in (1, 2, 3)),
    GAT(hidden=3, heads=2, out_heads=3, slope=0.1),
    GAT(hidden=3, layers=1, out_heads=2),
    *(SGC(hops=hops) for hops in (1, 2, 3)),
    *(JKNet(hidden=6, layers=layers) for layers in (1, 2, 3)),
    JKNet(hidden=20),
]


def assert_close(ours: Tensor, expected: Tensor, scale: float = 0.0, tolerance: float = 1e-5) -> None:
    """Assert that the error is small relative to the largest entry, or to ``scale`` where larger terms cancel."""
    assert ours.shape == expected.shape
    if not expected.numel():
        return
    error = (ours.detach().double() - expected.detach().double()).abs().max()
    bound = tolerance * max(float(expected.detach().abs().max()), scale)
    assert error <= bound, f"error {float(error)} beside {bound}"


# --- graphs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A graph and the other arguments of an operation, generated from a few numbers."""

    n: int
    edges: frozenset[tuple[int, int]]
    rows: int
    width: int = 3
    heads: int = 1
    weighted: bool = False
    seed: int = 0

    @cached_property
    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    @cached_property
    def adjacency(self) -> Tensor:
        """Neighbours of each vertex, including itself."""
        matrix = torch.eye(self.n, dtype=torch.bool)
        for one, other in self.edges:
            matrix[one, other] = matrix[other, one] = True
        return matrix

    @cached_property
    def weighted_adjacency(self) -> Tensor:
        """The weight of each entry; the two directions may differ."""
        weights = self.normal(self.n, self.n) if self.weighted else torch.ones(self.n, self.n)
        return (weights * self.adjacency).double()

    @cached_property
    def degree(self) -> Tensor:
        return self.adjacency.sum(1).double()

    @cached_property
    def mean(self) -> Tensor:
        return self.weighted_adjacency / self.degree[:, None]

    @cached_property
    def normalised(self) -> Tensor:
        return self.weighted_adjacency / (self.degree[:, None] * self.degree).sqrt()

    def graph(self, kernels: Any) -> Neighbours:
        matrix = sparse.csr_array((self.adjacency & ~torch.eye(self.n, dtype=torch.bool)).numpy().astype(np.int8))
        found = Neighbours.of(matrix.indptr, matrix.indices, kernels=kernels)
        if not self.weighted:
            return found
        return replace(found, weights=self.weighted_adjacency[self.adjacency].float())

    def attention_mask(self, keep: Tensor, heads: int, rows: int) -> Tensor:
        """Return the bytes for the entries of the first rows as [row, neighbour, head]."""
        mask = torch.zeros(rows, self.n, heads, dtype=torch.float64)
        mask[self.adjacency[:rows]] = keep.double().view(-1, heads)
        return mask


@st.composite
def cases(draw: st.DrawFn, *, weighted: bool = True) -> Case:
    n = draw(st.integers(1, 9))
    vertex = st.integers(0, n - 1)
    edges = draw(st.frozensets(st.tuples(vertex, vertex), max_size=16))
    numbers = {"width": st.integers(1, 4), "heads": st.integers(1, 3), "seed": st.integers(0, 10**6)}
    return Case(
        n,
        edges,
        rows=draw(st.just(n) | st.integers(0, n)),
        weighted=weighted and draw(st.booleans()),
        **{name: draw(value) for name, value in numbers.items()},
    )


def fixed(rows: int = 14, n: int = 14, edges: int = 20, seed: int = 3) -> Case:
    """Return a graph whose last vertex, and perhaps others, is isolated."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, n - 1, (edges, 2)).tolist()
    return Case(n, frozenset((one, other) for one, other in pairs), rows=rows, seed=seed)


# --- models ----------------------------------------------------------------------------------------------------------


def features(case: Case, columns: int, *, stored: str, kernels: Any) -> Matrix:
    """Return features of which two in three are zero, one of them stored explicitly."""
    values = case.normal(case.n, columns)
    values[torch.rand(case.n, columns, generator=case.generator) < 2 / 3] = 0
    if stored != "sparse":
        return store(values, stored, kernels)
    matrix = sparse.csr_array(values.numpy())
    matrix.data[:1] = 0
    return SparseMatrix.of(matrix, kernels=kernels)


def store(values: Tensor, stored: str, kernels: Any = "numba") -> Matrix:
    """Return values as dense, sparse or mixed features; mixed ones are dense in their first half."""
    if stored == "dense":
        return values
    dense = values.shape[1] // 2 if stored == "mixed" else 0
    other = SparseMatrix.of(sparse.csr_array(values[:, dense:].numpy()), kernels=kernels)
    return MixedMatrix(values[:, :dense], other) if dense else other


def dense(x: Matrix) -> Tensor:
    return (x if isinstance(x, Tensor) else x.to_dense()).double()


def batch_of(case: Case, x: Matrix, kernels: Any) -> Batch:
    return Batch(x, case.graph(kernels), case.rows, torch.zeros(case.rows, dtype=torch.long))


def labels(counts: Sequence[int]) -> Labels:
    """Return labels of a task of which nothing but the counts is known."""
    nothing = np.empty(0, np.int64)
    return Labels(torch.tensor(counts), 1, nothing, nothing, lambda _: torch.empty(0, 0))


def parameters(model: Model, inputs: int, outputs: int, *seed: int) -> dict[str, Tensor]:
    """Draw parameters whose biases are not zero."""
    p = model.parameters(inputs, outputs, Draw(1, *seed))
    draw = Draw(2, *seed)
    return {name: draw.normal(*value.shape, deviation=1) if "bias" in name else value for name, value in p.items()}


def dropped(x: Tensor, p: float, noise: Noise | None) -> Tensor:
    return x if noise is None else x * noise.keep(x.numel(), p).view_as(x).double() / (1 - p)


def dropped_features(x: Matrix, p: float, noise: Noise | None) -> Tensor:
    """Apply dropout; for sparse features, bytes are drawn for the stored entries only."""
    if isinstance(x, Tensor) or noise is None:
        return dropped(dense(x), p, noise)
    if isinstance(x, MixedMatrix):
        return torch.cat([dropped(x.dense.double(), p, noise), dropped_features(x.sparse, p, noise)], 1)
    places = (x.values.numpy(), x.pattern.indices.numpy(), x.pattern.indptr.numpy())
    entries = sparse.csr_array(places, shape=x.shape).tocoo()
    keep = torch.zeros(x.shape, dtype=torch.float64)
    keep[entries.row, entries.col] = noise.keep(len(entries.data), p).double()
    return dense(x) * keep / (1 - p)


def expected(
    model: Model, p: dict[str, Tensor], case: Case, x: Matrix, noise: Noise | None
) -> tuple[Tensor, Tensor | None]:
    """Return logits and the vectors below the output layer (None if there is no layer below), by definition."""
    forward: dict[type, Callable[..., tuple[Tensor, Tensor | None]]] = {
        MLP: _mlp,
        GCN: _gcn,
        GraphSAGE: _sage,
        GAT: _gat,
        SGC: _sgc,
        JKNet: _jknet,
    }
    return forward[type(model)](model, p, case, x, noise)


def _mlp(model, p, case, x, noise):
    h, below = dense(x), None
    for layer in range(model.layers):
        h = h @ p[f"{layer}.weight"] + p[f"{layer}.bias"]
        if layer < model.layers - 1:
            h = below = torch.relu(dropped(h, model.dropout, noise))
    return h[: case.rows], below if below is None else below[: case.rows]


def _gcn(model, p, case, x, noise):
    h, below = dense(x), None
    for layer in range(model.layers):
        h = case.normalised @ h @ p[f"{layer}.weight"] + p[f"{layer}.bias"]
        if layer < model.layers - 1:
            h = below = dropped(torch.relu(h), model.dropout, noise)
    return h[: case.rows], below if below is None else below[: case.rows]


def _sage_layer(p, layer, case, h):
    own = h @ p[f"{layer}.self.weight"] + p[f"{layer}.self.bias"]
    return own + case.mean @ h @ p[f"{layer}.neighbours.weight"] + p[f"{layer}.neighbours.bias"]


def _sage(model, p, case, x, noise):
    h = dropped_features(x, model.dropout, noise)
    for layer in range(model.layers - 1):
        h = dropped(torch.relu(_sage_layer(p, layer, case, h)), model.dropout, noise)
    below = h[: case.rows] if model.layers > 1 else None
    return _sage_layer(p, model.layers - 1, case, h)[: case.rows], below


def _jknet(model, p, case, x, noise):
    h, found = dense(x), []
    for layer in range(model.layers):
        h = torch.relu(_sage_layer(p, layer, case, h))
        if layer == model.layers - 1:
            h = h[: case.rows]
        h = dropped(h, model.dropout, noise)
        found.append(h[: case.rows])
    below = torch.cat(found, 1)
    return below @ p["out.weight"] + p["out.bias"], below


def _sgc(model, p, case, x, noise):
    h = dense(x)
    for _ in range(model.hops):
        h = case.normalised @ h
    return (h @ p["weight"] + p["bias"])[: case.rows], None


def dense_attention(case, z, left, right, rows, slope, keep=None):
    """``z`` is [n, heads, width], the scores [n, heads]; ``keep`` [rows, n, heads] is already scaled."""
    score = torch.nn.functional.leaky_relu(left[None] + right[:rows, None], slope)
    share = score.masked_fill(~case.adjacency[:rows, :, None], -torch.inf).softmax(1)
    return torch.einsum("ijh,jhk->ihk", share if keep is None else share * keep, z)


def _gat(model, p, case, x, noise):
    h = below = None
    for layer in range(model.layers):
        last = layer == model.layers - 1
        below, rows = h, case.rows if last else case.n
        h = dropped_features(x, model.dropout, noise) if layer == 0 else dropped(h, model.dropout, noise)
        z = torch.einsum("ni,ihk->nhk", h, p[f"{layer}.weight"])
        left, right = ((z * p[f"{layer}.{end}"]).sum(2) for end in ("left", "right"))
        keep, heads = None, z.shape[1]
        if noise is not None:
            entries = int(case.adjacency[:rows].sum())
            keep = case.attention_mask(noise.keep(entries * heads, model.dropout), heads, rows) / (1 - model.dropout)
        h = dense_attention(case, z, left, right, rows, model.slope, keep)
        h = h.mean(1) if last else torch.nn.functional.elu(h).flatten(1)
    return h, below if below is None else below[: case.rows]
