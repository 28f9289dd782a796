"""Losses that are computed together with the output layer, against plain torch in double precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from evergraph.detect import DOC, GDOC, IsoMax, Softmax
from evergraph.detect import cross_entropy as module
from evergraph.detect.cross_entropy import takes_readout
from evergraph.learning.training import batch_loss
from evergraph.nn import GAT, GCN, MLP, SGC, Batch, Draw, GraphSAGE, JKNet, Neighbours, Noise, SparseMatrix
from evergraph.nn.base import Readout

DETECTORS = [Softmax(), DOC(), GDOC()]


@dataclass(frozen=True)
class Doubled(Softmax):
    """A detector of a third party, which knows only logits."""

    def loss(self, logits: Any, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:
        assert isinstance(logits, Tensor)
        return super().loss(2 * logits, targets, counts, weights)


def expected(detector: Any, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None) -> Tensor:
    """Return the loss in plain torch."""
    if isinstance(detector, DOC):
        positive = detector.positive_weights(counts).to(logits)
        goal = F.one_hot(targets, logits.shape[1]).to(logits)
        losses = F.binary_cross_entropy_with_logits(logits, goal, pos_weight=positive, reduction="none").mean(1)
    else:
        losses = F.cross_entropy(logits, targets, reduction="none")
    share = torch.ones(len(targets)) if weights is None else weights
    return (losses * share.to(losses)).sum() / share.sum()


def drawn(n: int, depth: int, classes: int, seed: int, scale: float = 1.0) -> tuple[Tensor, ...]:
    draw = torch.Generator().manual_seed(seed)
    shapes = ((n, depth), (depth, classes), (classes,))
    parts = [scale * torch.randn(*shape, generator=draw) for shape in shapes]
    return *parts, torch.randint(classes, (n,), generator=draw)


def gradients_of(loss: Tensor, *parts: Tensor | None) -> list[Tensor]:
    return list(torch.autograd.grad(loss, [part for part in parts if part is not None]))


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda one: type(one).__name__)
@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 230),
    depth=st.integers(1, 70),
    classes=st.integers(1, 90),
    seed=st.integers(0, 99),
    chosen=st.booleans(),
    weighted=st.booleans(),
    biased=st.booleans(),
    factor=st.sampled_from([1.0, -3.0]),
)
def test_loss_and_gradients_are_those_of_torch(
    detector, n, depth, classes, seed, chosen, weighted, biased, factor
) -> None:
    vectors, weight, bias, targets = drawn(n, depth, classes, seed)
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(np.sort(rng.choice(n, max(n // 2, 1), replace=False))) if chosen else None
    some = targets if rows is None else targets[rows]
    weights = torch.from_numpy(rng.random(len(some))).float() + 0.1 if weighted else None
    counts = torch.bincount(some, minlength=classes)
    parts = [part.requires_grad_() for part in (vectors, weight, bias)]
    readout = Readout(vectors, weight, bias if biased else None, vectors, rows)
    found = factor * detector.loss(readout, some, counts, weights)
    exact = [part.detach().double().requires_grad_() for part in parts]
    logits = exact[0] @ exact[1] + (exact[2] if biased else 0)
    true = factor * expected(detector, logits if rows is None else logits[rows], some, counts, weights)
    torch.testing.assert_close(found.double(), true, rtol=1e-5, atol=1e-6)
    mine = gradients_of(found, *parts[: 2 + biased])
    for part, other in zip(mine, gradients_of(true, *exact[: 2 + biased]), strict=True):
        torch.testing.assert_close(part.double(), other, rtol=1e-4, atol=2e-6)
    if rows is not None:
        left_out = torch.ones(n, dtype=torch.bool).index_fill(0, rows, False)
        assert not mine[0][left_out].any()


@pytest.mark.parametrize("kernels", ["numba", "torch"])
@pytest.mark.parametrize("detector", DETECTORS, ids=lambda one: type(one).__name__)
@settings(max_examples=20, deadline=None)
@given(
    n=st.integers(1, 230), depth=st.integers(1, 40), seed=st.integers(0, 99), chosen=st.booleans(), whole=st.booleans()
)
def test_means_of_neighbours_beside_the_vectors(detector, kernels, n, depth, seed, chosen, whole) -> None:
    rng = np.random.default_rng(seed)
    links = sparse.triu(sparse.random_array((n, n), density=min(4 / n, 1), rng=rng), 1)
    links = sparse.csr_array(links + links.T)
    links.sort_indices()
    graph = Neighbours.of(links.indptr, links.indices, kernels=kernels)
    count = n if whole else max(n - n // 3, 1)  # vertices that have logits; the others are neighbours only
    vectors, _, bias, targets = drawn(n, depth, 7, seed)
    weight = drawn(1, 2 * depth, 7, seed + 1)[1]
    rows = torch.from_numpy(np.sort(rng.choice(count, max(count // 2, 1), replace=False))) if chosen else None
    some = targets[:count] if rows is None else targets[rows]
    counts = torch.bincount(some, minlength=7)
    parts = [part.requires_grad_() for part in (vectors, weight, bias)]
    readout = Readout(vectors, weight, bias, vectors[:count], rows, graph)
    assert readout.shape == (len(some), 7)
    found = detector.loss(readout, some, counts)
    exact = [part.detach().double().requires_grad_() for part in parts]
    means = (links != 0).astype(float) + sparse.eye_array(n)
    means = torch.from_numpy((means / means.sum(1)[:, None]).toarray()) @ exact[0]
    logits = (torch.cat([exact[0], means], 1) @ exact[1] + exact[2])[:count]
    logits = logits if rows is None else logits[rows]
    torch.testing.assert_close(readout.logits.double(), logits, rtol=1e-4, atol=1e-4)
    true = expected(detector, logits, some, counts, None)
    torch.testing.assert_close(found.double(), true, rtol=1e-5, atol=1e-6)
    for part, other in zip(gradients_of(found, *parts), gradients_of(true, *exact), strict=True):
        torch.testing.assert_close(part.double(), other, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda one: type(one).__name__)
def test_the_logits_are_never_computed_as_a_whole(detector, monkeypatch) -> None:
    monkeypatch.setattr(Readout, "logits", property(lambda _: pytest.fail("logits were computed")))
    vectors, weight, bias, targets = drawn(50, 6, 5, 0)
    readout = Readout(vectors.requires_grad_(), weight, bias, vectors)
    assert detector.loss(readout, targets, torch.bincount(targets, minlength=5)).isfinite()


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda one: type(one).__name__)
def test_large_logits_give_neither_denormal_nor_lost_numbers(detector) -> None:
    vectors, weight, bias, targets = drawn(300, 8, 20, 1, scale=9.0)
    readout = Readout(vectors.requires_grad_(), weight.requires_grad_(), bias, vectors)
    counts = torch.bincount(targets, minlength=20)
    found = detector.loss(readout, targets, counts)
    true = expected(
        detector, vectors.detach().double() @ weight.detach().double() + bias.double(), targets, counts, None
    )
    torch.testing.assert_close(found.double(), true, rtol=1e-5, atol=0)
    for part in gradients_of(found, vectors, weight):
        assert not ((part != 0) & (part.abs() < torch.finfo(torch.float32).tiny)).any()


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_number_that_is_not_finite_shows_in_the_loss(detector, bad) -> None:
    vectors, weight, bias, targets = drawn(200, 6, 5, 2)
    vectors[150, 3] = bad
    readout = Readout(vectors.requires_grad_(), weight, bias, vectors)
    assert not detector.loss(readout, targets, torch.bincount(targets, minlength=5)).isfinite()


@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_threads_give_the_same_bits(threads, monkeypatch) -> None:
    monkeypatch.setattr("evergraph.nn.dense.cores", lambda: threads)
    monkeypatch.setattr("evergraph.compiled.cores", lambda: threads)
    vectors, weight, bias, targets = drawn(3_000, 20, 30, 3)
    parts = [part.requires_grad_() for part in (vectors, weight, bias)]

    def run() -> list[Tensor]:
        loss = module.cross_entropy(Readout(*parts, vectors), targets, torch.full((3_000,), 1 / 3_000))
        return [loss.detach(), *gradients_of(loss, *parts)]

    first = run()
    assert all(torch.equal(one, again) for _ in range(3) for one, again in zip(first, run(), strict=True))


def test_only_a_loss_that_says_so_gets_a_readout() -> None:
    assert all(takes_readout(detector) for detector in DETECTORS)
    assert not takes_readout(Doubled())
    assert not takes_readout(IsoMax())


@pytest.mark.parametrize("detector", [*DETECTORS, Doubled(), IsoMax()], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize(
    "model",
    [
        GraphSAGE(hidden=7),
        GraphSAGE(layers=1),
        JKNet(hidden=5),
        GCN(hidden=9),
        SGC(),
        MLP(hidden=11),
        GAT(hidden=3, heads=3),
        GAT(hidden=8, heads=8),
        GAT(hidden=2, heads=9, out_heads=2, layers=3),
    ],
    ids=str,
)
def test_a_training_step_has_the_same_gradients_with_both_kernels(model, detector) -> None:
    n, inputs, classes, rng = 130, 19, 11, np.random.default_rng(5)
    links = sparse.random_array((n, n), density=0.04, rng=rng)
    links = ((links + links.T) > 0).tolil()
    links.setdiag(0)
    links = links.tocsr()
    links.eliminate_zeros()
    x = sparse.random_array((n, inputs), density=0.3, rng=rng, format="csr", dtype=np.float32)
    targets = torch.from_numpy(rng.integers(-1, classes, 120))
    weights = torch.from_numpy(rng.random(120)).float()
    counts = torch.bincount(targets[targets >= 0], minlength=classes)
    found = []
    for kernels in ("numba", "torch"):
        graph = Neighbours.of(links.indptr, links.indices, kernels=kernels)
        batch = Batch(SparseMatrix.of(x, kernels=kernels), graph, 120, targets, weights)
        p = {name: value.requires_grad_() for name, value in model.parameters(inputs, classes, Draw(0)).items()}
        loss = batch_loss(model, detector, p, batch, counts, Noise(1, kernels=kernels))
        loss.backward()
        found.append([loss.detach(), *(value.grad for value in p.values())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-6)
