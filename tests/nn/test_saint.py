from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError
from evergraph.nn import (
    GAT,
    GCN,
    MLP,
    SGC,
    Batch,
    Draw,
    GraphSAGE,
    GraphSAINT,
    JKNet,
    Model,
    MostFrequent,
    Neighbours,
    Noise,
    SparseMatrix,
)
from evergraph.nn.ops import mean_beside
from evergraph.nn.saint import Sampler, SubgraphSampler, row_slicer
from tests.nn.cases import labels, store

SAMPLERS: tuple[Sampler, ...] = get_args(Sampler)
# A hub (0), a triangle (0, 1, 2), a tail (0, 3, 4, 5) and an isolated vertex (7).
EDGES = [(0, 1), (0, 2), (1, 2), (0, 3), (3, 4), (4, 5), (0, 6)]


def dense(n: int, edges: Any) -> NDArray[np.float64]:
    """Return the adjacency matrix without self-loops."""
    matrix = np.zeros((n, n))
    for one, other in edges:
        if one != other:
            matrix[one, other] = matrix[other, one] = 1
    return matrix


def neighbours(matrix: NDArray[np.float64], kernels: Any = "numba") -> Neighbours:
    adjacency = sparse.csr_array(matrix)
    return Neighbours.of(adjacency.indptr, adjacency.indices, kernels=kernels)


def batch_of(
    matrix: NDArray[np.float64],
    rows: int | None = None,
    *,
    stored: str = "sparse",
    kernels: Any = "numba",
    seed: int = 0,
) -> Batch:
    """Return a batch in which each vertex has its own number as a feature and every third row no label."""
    n = len(matrix)
    rows = n if rows is None else rows
    values = np.random.default_rng(seed).normal(size=(n, 5)).astype(np.float32)
    values[:, 0], values[:, 1] = np.arange(n), 0
    features = store(torch.from_numpy(values), stored, kernels)
    targets = torch.arange(rows) % 3 - 1
    return Batch(features, neighbours(matrix, kernels), rows, targets)


def first(batches: Iterator[Batch], number: int) -> list[Batch]:
    return list(itertools.islice(batches, number))


def content(batch: Batch) -> tuple[Any, ...]:
    """Return everything in a batch as lists."""
    x = batch.x if isinstance(batch.x, torch.Tensor) else batch.x.to_dense()
    tensors = (x, batch.graph.indptr, batch.graph.indices, batch.graph.weights, batch.targets, batch.weights)
    return batch.rows, *(None if tensor is None else tensor.tolist() for tensor in tensors)


# --- which vertices are drawn ----------------------------------------------------------------------------------------


def assert_drawn_as(expected: dict[frozenset[int], float], sampler: SubgraphSampler, draws: int = 20_000) -> None:
    """Assert that samples occur with the expected frequencies, within five standard errors."""
    rng = np.random.default_rng(5)
    found = Counter(frozenset(sampler.draw(rng).tolist()) for _ in range(draws))
    assert set(found) == set(expected)
    assert sum(expected.values()) == pytest.approx(1)
    for sample, chance in expected.items():
        assert abs(found[sample] / draws - chance) < 5 * np.sqrt(chance * (1 - chance) / draws) + 1e-12, sample


@pytest.mark.parametrize("length", [1, 2, 3])
def test_walks_step_to_every_neighbour_alike_and_never_stay(length: int) -> None:
    matrix = dense(8, EDGES)
    expected: Counter[frozenset[int]] = Counter()
    walks = {(root,): 1 / 3 for root in (0, 4, 7)}
    for _ in range(length):
        longer = {}
        for walk, chance in walks.items():
            steps = np.flatnonzero(matrix[walk[-1]]).tolist() or [walk[-1]]  # an isolated vertex stays
            longer |= {(*walk, step): chance / len(steps) for step in steps}
        walks = longer
    for walk, chance in walks.items():
        expected[frozenset(walk)] += chance
    assert_drawn_as(dict(expected), SubgraphSampler(neighbours(matrix), "walk", 1, length, np.array([0, 4, 7])))


def test_vertices_are_drawn_by_the_squared_norm_of_their_column_in_the_mean() -> None:
    matrix = dense(8, EDGES) + np.eye(8)
    norms = ((matrix / matrix.sum(1, keepdims=True)) ** 2).sum(0)
    expected = {frozenset([vertex]): norm / norms.sum() for vertex, norm in enumerate(norms)}
    assert_drawn_as(expected, SubgraphSampler(neighbours(dense(8, EDGES)), "node", 1))


def test_edges_are_drawn_by_the_inverse_degrees_of_their_ends() -> None:
    degree = dense(8, EDGES).sum(1)
    weight = {frozenset(edge): 1 / degree[edge[0]] + 1 / degree[edge[1]] for edge in EDGES}
    expected = {edge: value / sum(weight.values()) for edge, value in weight.items()}
    assert_drawn_as(expected, SubgraphSampler(neighbours(dense(8, EDGES)), "edge", 1))


def test_draws_are_independent_and_with_replacement() -> None:
    # Two draws of three roots: the same root twice in a third of all cases.
    expected = {frozenset(pair): 2 / 9 for pair in ([0, 1], [0, 2], [1, 2])} | {frozenset([v]): 1 / 9 for v in range(3)}
    assert_drawn_as(expected, SubgraphSampler(neighbours(dense(4, [])), "walk", 2, 2, np.arange(3)))


@pytest.mark.parametrize(
    ("sampler", "size", "most"),
    [
        ("walk", 0.5, 10),  # of 20 roots: half of the rows have no label
        ("walk", 7, 7),
        ("walk", 0.001, 1),
        ("node", 0.5, 30),
        ("node", 7, 7),
        ("edge", 1.0, 20),  # ten separate edges
        ("edge", 3, 6),
    ],
)
def test_size_is_a_number_or_a_share(sampler: Sampler, size: float, most: int) -> None:
    edges = [(40 + 2 * pair, 41 + 2 * pair) for pair in range(10)]
    batch = batch_of(dense(60, edges), 40)
    targets = torch.where(torch.arange(40) % 2 == 0, 1, -1)
    batch = Batch(batch.x, batch.graph, 40, targets)
    samples = first(GraphSAINT(sampler=sampler, size=size).batches(batch, np.random.default_rng(0)), 300)
    largest = max(sample.rows for sample in samples)
    # With replacement, that many different ones are rare if there are many.
    assert most * 0.6 <= largest <= most
    if sampler == "walk":
        assert {int(v) for sample in samples for v in sample.x.to_dense()[:, 0]} <= set(range(0, 40, 2))


def test_all_rows_are_roots_if_none_has_a_label() -> None:
    for rows, roots in ((3, {0, 1, 2}), (0, {0, 1, 2, 3})):
        batch = batch_of(dense(4, []), rows)
        batch = Batch(batch.x, batch.graph, rows, torch.full((rows,), -1))
        samples = first(GraphSAINT(size=1).batches(batch, np.random.default_rng(0)), 100)
        assert {int(sample.x.to_dense()[0, 0]) for sample in samples} == roots
        assert all(sample.targets.tolist() == [-1] for sample in samples)


# --- what a sample holds ---------------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> NDArray[np.float64]:
    n = draw(st.integers(2, 12))
    vertex = st.integers(0, n - 1)
    return dense(n, [(0, 1), *draw(st.lists(st.tuples(vertex, vertex), max_size=25))])


@given(
    graphs(),
    st.sampled_from(SAMPLERS),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from(["dense", "sparse", "mixed"]),
    st.data(),
)
def test_a_sample_is_a_slice_of_everything(
    matrix: NDArray[np.float64], sampler: Sampler, size: int, normalise: bool, stored: str, data: st.DataObject
) -> None:
    n, rows = len(matrix), data.draw(st.integers(0, len(matrix)))
    whole = batch_of(matrix, rows, stored=stored)
    looped, all_targets = sparse.csr_array(matrix + np.eye(n)), np.r_[whole.targets.numpy(), np.full(n - rows, -1)]
    x = whole.x if isinstance(whole.x, torch.Tensor) else whole.x.to_dense()
    model = GraphSAINT(sampler=sampler, size=size, normalise=normalise, coverage=2)
    for part in first(model.batches(whole, np.random.default_rng(1)), 3):
        got = part.x if isinstance(part.x, torch.Tensor) else part.x.to_dense()
        vertices = got[:, 0].numpy().astype(int)
        assert (np.diff(vertices) > 0).all()
        assert len(vertices) == part.rows == len(part.graph) == len(part.targets) >= 1
        assert torch.equal(got, x[torch.from_numpy(vertices)])
        assert part.targets.tolist() == all_targets[vertices].tolist()
        expected = sparse.csr_array(looped[vertices][:, vertices])
        expected.sort_indices()
        assert part.graph.indptr.tolist() == expected.indptr.tolist()
        assert part.graph.indices.tolist() == expected.indices.tolist()
        assert (part.weights is None) == (part.graph.weights is None) == (not normalise)
        assert [t.dtype for t in (part.graph.indptr, part.graph.indices, got)] == [torch.int32] * 2 + [torch.float32]


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_same_seed_gives_the_same_samples_and_another_one_others(sampler: Sampler, normalise: bool) -> None:
    model, batch = GraphSAINT(sampler=sampler, size=3, normalise=normalise, coverage=5), batch_of(dense(8, EDGES))
    one, again, other = (
        [content(part) for part in first(model.batches(batch, np.random.default_rng(seed)), 8)] for seed in (1, 1, 2)
    )
    assert one == again != other
    assert len({part[0] for part in one}) > 1  # samples differ from each other
    state = np.random.get_state()[1].tolist()  # noqa: NPY002  # must not change
    first(model.batches(batch, np.random.default_rng(1)), 2)
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002


def test_samples_stay_as_they_are_when_others_are_drawn() -> None:
    batches = GraphSAINT(size=2).batches(batch_of(dense(8, EDGES)), np.random.default_rng(0))
    kept = next(batches)
    before = content(kept)
    first(batches, 20)
    assert content(kept) == before


def test_two_streams_do_not_disturb_each_other() -> None:
    model, batch = GraphSAINT(size=2), batch_of(dense(8, EDGES))
    alone = [content(part) for part in first(model.batches(batch, np.random.default_rng(0)), 5)]
    one, other = (model.batches(batch, np.random.default_rng(seed)) for seed in (0, 1))
    assert [content(pair[0]) for pair in itertools.islice(zip(one, other, strict=True), 5)] == alone


def test_weights_that_were_given_go_with_their_vertices() -> None:
    given_weights = torch.arange(1.0, 6.0)
    batch = batch_of(dense(8, EDGES), 5)
    batch = Batch(batch.x, batch.graph, 5, batch.targets, given_weights)
    for part in first(GraphSAINT(sampler="node", size=4).batches(batch, np.random.default_rng(0)), 5):
        vertices = part.x.to_dense()[:, 0].long()
        assert part.weights.tolist() == [float(v) + 1 if v < 5 else 0 for v in vertices]


def test_rows_of_sparse_features() -> None:
    matrix = sparse.csr_array(np.array([[0, 2.0, 1], [0, 0, 0], [3, 0, 4]]))
    x = SparseMatrix.of(matrix, kernels="torch")
    part = row_slicer(x)(np.array([0, 2], np.int32))
    assert isinstance(part, SparseMatrix)
    assert (part.to_dense().tolist(), part.kernels) == ([[0, 2, 1], [3, 0, 4]], "torch")
    assert row_slicer(x)(np.empty(0, np.int32)).shape == (0, 3)


# --- normalisation ---------------------------------------------------------------------------------------------------


def bipartite(seed: int = 0) -> NDArray[np.float64]:
    """Return three hubs and nine vertices of low degree: the neighbours in a sample depend on their degree."""
    rng = np.random.default_rng(seed)
    edges = [(hub, leaf) for hub in range(3) for leaf in range(3, 12) if rng.random() < 0.6]
    return dense(12, [*edges, *((leaf, leaf + 1) for leaf in range(3, 11, 2)), (0, 11)])


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_normalised_means_are_right_on_average_and_others_are_not(sampler: Sampler) -> None:
    matrix = bipartite()
    batch = batch_of(matrix, stored="dense")
    values = np.r_[np.full(3, 10.0), np.linspace(-3, 3, 9)]
    looped = matrix + np.eye(12)
    expected = looped @ values / looped.sum(1)

    def errors(normalise: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the difference between the average over samples and the true mean, and its standard error."""
        model = GraphSAINT(sampler=sampler, size=4, walk_length=1, normalise=normalise, coverage=4_000)
        found: list[list[float]] = [[] for _ in range(12)]
        for part in first(model.batches(batch, np.random.default_rng(1)), 2_000):
            vertices = part.x[:, 0].long()
            h = torch.from_numpy(values).float()[vertices][:, None]
            for vertex, value in zip(
                vertices.tolist(), mean_beside(part.graph, h, part.rows)[:, 1].tolist(), strict=True
            ):
                found[vertex].append(value)
        averages = np.array([np.mean(some) for some in found])
        return averages - expected, np.array([np.std(some) / np.sqrt(len(some)) for some in found])

    error, deviation = errors(normalise=True)
    assert (np.abs(error) < 4 * deviation + 0.1).all()
    error, deviation = errors(normalise=False)
    assert (np.abs(error) > 8 * deviation).sum() >= 3
    assert np.abs(error).max() > 0.5


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_normalised_loss_is_the_mean_over_training_vertices(sampler: Sampler) -> None:
    star = dense(12, [(1, leaf) for leaf in range(12)])
    batch, losses = batch_of(star, 9), torch.from_numpy(star.sum(1))  # larger for vertices that are drawn more often
    labelled = torch.nonzero(batch.targets >= 0).flatten()
    true = float(losses[labelled].mean())

    def averages(normalise: bool) -> tuple[float, float]:
        model = GraphSAINT(sampler=sampler, size=4, walk_length=1, normalise=normalise, coverage=2_000)
        total, weight, number = 0.0, 0.0, 0
        for part in first(model.batches(batch, np.random.default_rng(0)), 2_000):
            vertices, chosen = part.x.to_dense()[:, 0].long(), part.targets >= 0
            share = torch.ones(part.rows) if part.weights is None else part.weights
            total += float((losses[vertices] * share)[chosen].sum())
            weight += float(share[chosen].sum())
            number += int(chosen.sum())
        return total / weight, weight / number

    estimate, mean_weight = averages(normalise=True)
    assert estimate == pytest.approx(true, rel=0.03)
    assert mean_weight == pytest.approx(1, rel=0.03)
    assert abs(averages(normalise=False)[0] / true - 1) > 0.08


def test_counts_are_of_what_was_drawn() -> None:
    sampler = SubgraphSampler(neighbours(bipartite()), "walk", 3)
    vertices, entries = sampler.count(np.random.default_rng(3), 40)
    rng, again, pairs = np.random.default_rng(3), np.zeros(12, int), np.zeros((12, 12), int)
    while again.sum() < 40 * 12:
        drawn = sampler.draw(rng)
        again[drawn] += 1
        pairs[np.ix_(drawn, drawn)] += 1
    assert vertices.tolist() == again.tolist()
    assert entries.tolist() == pairs[(bipartite() + np.eye(12)) > 0].tolist()


def test_vertices_that_the_trials_missed_have_finite_weights() -> None:
    # One trial with one walk; almost all vertices and edges are drawn only later.
    model = GraphSAINT(size=1, walk_length=1, normalise=True, coverage=1)
    path = dense(400, [(v, v + 1) for v in range(0, 400, 2)])
    batch = batch_of(path)
    part = Batch(batch.x, batch.graph, 400, torch.zeros(400, dtype=torch.long))
    for sample in first(model.batches(part, np.random.default_rng(0)), 200):
        assert sample.weights is not None
        assert sample.graph.weights is not None
        assert bool(torch.isfinite(sample.weights).all())
        assert bool(torch.isfinite(sample.graph.weights).all())
        # A vertex and its only neighbour are always in a sample together.
        assert sample.graph.weights.tolist() == [1.0] * 4


# --- as a model ------------------------------------------------------------------------------------------------------

BASES: list[Model] = [
    MLP(hidden=4),
    GCN(hidden=4),
    GraphSAGE(hidden=4),
    GAT(hidden=2, heads=2),
    SGC(),
    JKNet(hidden=4),
    JKNet(hidden=9, layers=3),
]


@pytest.mark.parametrize("base", BASES, ids=repr)
def test_a_model_predicts_as_its_base(base: Model) -> None:
    model, batch = GraphSAINT(base), batch_of(dense(8, EDGES), 6)
    p, own = (some.parameters(5, 2, Draw(3)) for some in (model, base))
    assert p.keys() == own.keys()
    assert all(torch.equal(p[name], own[name]) for name in p)
    for noise in (None, 1):
        for got, expected in zip(
            *(some.forward(p, batch, noise and Noise(noise)) for some in (model, base)), strict=True
        ):
            assert torch.equal(got, expected)
    assert all(model.trained(name) for name in p)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("stored", ["dense", "sparse", "mixed"])
@pytest.mark.parametrize("base", BASES, ids=repr)
def test_samples_can_be_learnt_from_by_either_kernels(base: Model, stored: str, normalise: bool) -> None:
    gradients = []
    for kernels in ("numba", "torch"):
        model = GraphSAINT(base, size=3, normalise=normalise, coverage=5)
        whole = batch_of(dense(8, EDGES), 7, stored=stored, kernels=kernels)
        p = {name: value.requires_grad_() for name, value in model.parameters(5, 2, Draw(0)).items()}
        for step, part in enumerate(first(model.batches(whole, np.random.default_rng(2)), 3)):
            assert part.graph.kernels == kernels
            logits, _ = model.forward(p, part, Noise(step, kernels=kernels))
            assert logits.shape == (part.rows, 2)
            losses = torch.nn.functional.cross_entropy(logits, part.targets, ignore_index=-1, reduction="none")
            (losses if part.weights is None else losses * part.weights).sum().backward()
        found = [value.grad for value in p.values()]
        assert all(gradient is not None and bool(torch.isfinite(gradient).all()) for gradient in found)
        gradients.append(torch.cat([gradient.flatten() for gradient in found]))
    assert bool((gradients[0] != 0).any())
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_a_baseline_stays_one() -> None:
    assert GraphSAINT(MostFrequent()).closed_form({}, labels([1, 3]))["shares"].tolist() == [0.25, 0.75]
    assert GraphSAINT(MostFrequent()).solved
    assert not GraphSAINT().solved


def test_models_are_values() -> None:
    assert GraphSAINT() == GraphSAINT(JKNet(), "walk", 0.5, 2, normalise=False, coverage=50)
    assert len({GraphSAINT(size=1), GraphSAINT(size=1), GraphSAINT(size=2)}) == 2


# --- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"size": 0},
        {"size": -1},
        {"size": 0.0},
        {"size": 1.5},
        {"size": float("nan")},
        {"size": True},
        {"size": "all"},
        {"walk_length": 0},
        {"walk_length": 2.0},
        {"coverage": 0},
        {"sampler": "walks"},
        {"base": "jknet"},
        {"base": GraphSAINT()},
    ],
    ids=repr,
)
def test_settings_that_make_no_model_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"(?i)^{next(iter(settings))} is .*\. .*(set|use|give)"):
        GraphSAINT(**settings)


def test_graphs_with_nothing_to_draw_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=r'has no edges to sample.*"walk" or "node"'):
        GraphSAINT(sampler="edge").batches(batch_of(dense(3, [])), rng)
    empty = Batch(torch.empty(0, 2), Neighbours.of(np.array([0]), np.empty(0, np.int32)), 0, torch.empty(0).long())
    for sampler in SAMPLERS:
        with pytest.raises(InputError, match="has no vertices"):
            GraphSAINT(sampler=sampler).batches(empty, rng)
    with pytest.raises(InputError, match="no roots to start walks at"):
        SubgraphSampler(neighbours(dense(3, [])), "walk", 1, roots=np.empty(0, np.int64))
