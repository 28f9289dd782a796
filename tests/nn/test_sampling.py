"""Neighbour sampling against a brute-force count, and sampled batches against the whole graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from evergraph import EvolvingGraph
from evergraph.nn import (
    GAT,
    GCN,
    MLP,
    SGC,
    Batch,
    Draw,
    GraphSAGE,
    IsoMaxOutputs,
    JKNet,
    Model,
    Neighbours,
    SparseMatrix,
)
from evergraph.nn.ops import Kernels
from evergraph.nn.sampling import EVERY, Edges, NeighbourSampler

MODELS = [
    GraphSAGE(hidden=5, dropout=0.0),
    GraphSAGE(hidden=5, layers=3, dropout=0.0),
    GraphSAGE(layers=1, dropout=0.0),
    JKNet(hidden=4, dropout=0.0),
    GCN(hidden=4, dropout=0.0),
    SGC(),
    SGC(hops=3),
    GAT(hidden=3, heads=2, dropout=0.0),
    MLP(hidden=6, dropout=0.0),
    IsoMaxOutputs(GraphSAGE(hidden=4, dropout=0.0), width=4),
]


def a_graph(n: int = 60, edges: int = 150, *, timed: bool = False, seed: int = 0) -> EvolvingGraph:
    rng = np.random.default_rng(seed)
    ends = rng.integers(n, size=(edges, 2))
    ends[: n // 3, 0] = n // 2  # a vertex with many neighbours
    times = np.sort(rng.integers(6, size=n))
    columns = {"source": ends[:, 0], "target": ends[:, 1]}
    columns |= {"time": rng.integers(9, size=edges)} if timed else {}
    return EvolvingGraph.build({"id": np.arange(n), "time": times}, columns)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("fanout", [EVERY, 1, 3, 100])
def test_a_sample_has_neighbours_in_the_window_only(fanout: int, timed: bool) -> None:
    graph = a_graph(timed=timed)
    window = graph.window(1, 4)
    near = window.links.matrix().toarray()
    assert timed == (graph.links.times is not None)
    sampler = NeighbourSampler(Edges.of(window), [fanout, fanout])
    seeds = np.array([0, 3, 7, len(window) - 1])
    part = sampler.sample(seeds, key=5)
    assert not sampler._mark.any()
    assert part.vertices[:4].tolist() == seeds.tolist()
    assert len(set(part.vertices.tolist())) == len(part.vertices) == part.sizes[-1]
    assert part.graph.degree.tolist() == (near.sum(1) + 1)[part.vertices].tolist()
    indptr, indices = part.graph.indptr.numpy(), part.graph.indices.numpy()
    reached: set[int] = set()
    for row in range(part.sizes[1]):
        others = part.vertices[indices[indptr[row] : indptr[row + 1]]]
        own = int(part.vertices[row])
        expected = set(np.flatnonzero(near[own]).tolist()) | {own}
        assert sorted(set(others.tolist())) == others.tolist()  # ascending, without duplicates
        assert set(others.tolist()) <= expected
        assert own in others
        wanted = len(expected) if fanout == EVERY else min(len(expected), fanout + 1)
        assert len(others) == wanted
        reached |= set(others.tolist())
    assert reached | set(seeds.tolist()) == set(part.vertices.tolist())
    assert (np.diff(indptr)[part.sizes[1] :] == 0).all()


def test_the_window_of_edges_is_the_windows_own() -> None:
    graph = a_graph(timed=True)
    for first, last in [(0, 5), (2, 3), (1, 1)]:
        window = graph.window(first, last)
        found = Edges.of(window).degrees(np.arange(len(window)))
        np.testing.assert_array_equal(found, np.diff(window.links.indptr))


def test_each_neighbour_is_drawn_equally_often_and_sums_are_unbiased() -> None:
    graph = a_graph(n=30, edges=200)
    window = graph.window(0, 5)
    near = window.links.matrix().toarray().astype(float)
    values = np.random.default_rng(1).normal(size=len(window))
    sampler = NeighbourSampler(Edges.of(window), [4])
    rounds, everyone = 4_000, np.arange(len(window))
    drawn, sums = np.zeros_like(near), np.zeros(len(window))
    for key in range(rounds):
        part = sampler.sample(everyone, key=key)
        assert part.graph.weights is not None
        arrays = (part.graph.weights.numpy(), part.graph.indices.numpy(), part.graph.indptr.numpy())
        weights = sparse.csr_array(arrays, shape=near.shape).toarray()
        drawn += weights > 0
        sums += weights @ values
    degree = near.sum(1)
    chance = near * np.minimum(1, 4 / np.maximum(degree, 1))[:, None] + np.eye(len(near))
    assert np.abs(drawn / rounds - chance).max() < 5 * 0.5 / np.sqrt(rounds)
    exact = near @ values + values
    assert np.abs(sums / rounds - exact).max() < 0.05 * degree.max()


def test_equal_keys_draw_equal_samples() -> None:
    sampler = NeighbourSampler(Edges.of(a_graph().window(0, 5)), [2, 2])
    one, again, other = (sampler.sample(np.arange(9), key=key) for key in (1, 1, 2))
    assert torch.equal(one.graph.indices, again.graph.indices)
    assert one.vertices.tolist() == again.vertices.tolist()
    assert one.vertices.tolist() != other.vertices.tolist()


@pytest.mark.parametrize("kernels", ["numba", "torch"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: repr(model).replace(", dropout=0.0", ""))
def test_a_sample_of_everything_gives_the_outputs_and_gradients_of_the_whole_graph(
    model: Model, kernels: Kernels
) -> None:
    window = a_graph(timed=True).window(1, 5)
    links, n = window.links, len(window)
    rng = np.random.default_rng(0)
    features = sparse.random_array((n, 7), density=0.4, rng=rng, dtype=np.float32).tocsr()
    weights = model.parameters(7, 3, Draw(1))
    seeds = np.sort(rng.choice(n, 12, replace=False))
    toward = torch.from_numpy(rng.normal(size=(12, 3)).astype(np.float32))

    whole = Neighbours.of(links.indptr, links.indices, kernels=kernels)
    x = SparseMatrix.of(features, kernels=kernels)
    targets = torch.zeros(n, dtype=torch.int64)
    assert model.hops is not None
    part = NeighbourSampler(Edges.of(window), [EVERY] * model.hops).sample(seeds, kernels=kernels)
    local = SparseMatrix.of(features[part.vertices], kernels=kernels)
    batches = {
        "whole": Batch(x, whole, n, targets),
        "part": Batch(local, part.graph, len(seeds), targets[:12], sizes=part.sizes),
    }
    found = {}
    for name, batch in batches.items():
        p = {key: value.clone().requires_grad_() for key, value in weights.items()}
        logits, hidden = model.forward(p, batch, None)
        if name == "whole":
            logits, hidden = logits[seeds], hidden[seeds]
        (logits * toward).sum().backward()
        found[name] = (logits, hidden, *(value.grad for value in p.values()))
    for one, other in zip(found["whole"], found["part"], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
