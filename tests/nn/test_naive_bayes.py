"""Naive Bayes from sums: like scikit-learn's, also after updates, for neighbours, and without single vertices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.naive_bayes import MultinomialNB  # type: ignore[import-untyped]

from evergraph.nn import Batch, Matrix, MixedMatrix, Neighbours, SparseMatrix
from evergraph.nn.naive_bayes import Occurrences, log_likelihoods, log_shares, smoothed_totals

VERTICES, WORDS, CLASSES, SMOOTHING = 40, 15, 3, 0.1


def graph(seed: int = 0, *, isolated: int = 3) -> sparse.csr_array:
    """A random graph whose last vertices have no neighbours."""
    rng = np.random.default_rng(seed)
    found = np.triu(rng.random((VERTICES, VERTICES)) < 0.1, 1)
    found[:, VERTICES - isolated :] = False
    return sparse.csr_array((found | found.T).astype(np.float64))


def words(seed: int = 0) -> sparse.csr_array:
    rng = np.random.default_rng([seed, 1])
    return sparse.csr_array(rng.random((VERTICES, WORDS)) * (rng.random((VERTICES, WORDS)) < 0.3))


def batch(x: sparse.csr_array, edges: sparse.csr_array, rows: int = VERTICES) -> Batch:
    neighbours = Neighbours.of(edges.indptr, edges.indices)
    return Batch(SparseMatrix.of(x), neighbours, rows, torch.empty(0, dtype=torch.int64))


def assert_same_comparisons(ours: np.ndarray, expected: np.ndarray, tolerance: float = 1e-4) -> None:
    """Assert that differences between classes are the same."""
    ours, expected = (found - found.mean(1, keepdims=True) for found in (ours, expected))
    np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=tolerance)


def shares_of(sums: torch.Tensor) -> torch.Tensor:
    return log_shares(sums, smoothed_totals(sums, SMOOTHING), SMOOTHING)


def likelihoods(sums: torch.Tensor, x: Matrix, neighbours: Neighbours, rows: int) -> torch.Tensor:
    return log_likelihoods(shares_of(sums), x, neighbours, rows)


def mean_of_neighbours(x: sparse.csr_array, edges: sparse.csr_array) -> np.ndarray:
    degrees = edges.sum(1)
    return np.asarray((edges @ x).toarray() / np.maximum(degrees, 1)[:, None])


def learnt(
    parts: list[np.ndarray], targets: np.ndarray, weights: np.ndarray | None = None
) -> tuple[torch.Tensor, Batch]:
    """Sums to which vertices were added part by part, and the batch of all of them."""
    sums = np.zeros((2, WORDS, CLASSES), np.float32)
    whole = batch(words(), graph())
    weights = np.ones(VERTICES) if weights is None else weights
    for rows in parts:
        Occurrences.of(whole)[rows].add_to(sums, targets[rows], weights[rows])
    return torch.from_numpy(sums), whole


def reference(texts: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None) -> MultinomialNB:
    return MultinomialNB(alpha=SMOOTHING).fit(texts, targets, sample_weight=weights)


def test_likelihoods_are_those_of_scikit_learn_for_own_words_and_for_those_of_neighbours() -> None:
    rng = np.random.default_rng(3)
    targets, weights = rng.integers(0, CLASSES, VERTICES), rng.random(VERTICES)
    sums, whole = learnt(np.array_split(rng.permutation(VERTICES), 4), targets, weights)
    ours = likelihoods(sums, whole.x, whole.graph, VERTICES).numpy()
    own, near = words().toarray(), mean_of_neighbours(words(), graph())
    expected = sum(texts @ reference(texts, targets, weights).feature_log_prob_.T for texts in (own, near))
    assert_same_comparisons(ours, np.asarray(expected))
    assert (near[-3:] == 0).all()  # some vertices have no neighbours


def test_the_first_vertices_of_a_sample_need_only_their_neighbours() -> None:
    targets = np.arange(VERTICES) % CLASSES
    sums, whole = learnt([np.arange(VERTICES)], targets)
    few = likelihoods(sums, whole.x, whole.graph, 5)
    torch.testing.assert_close(few, likelihoods(sums, whole.x, whole.graph, VERTICES)[:5])


def test_likelihoods_of_vertices_that_are_left_out_are_those_of_a_classifier_without_them() -> None:
    targets = np.random.default_rng(4).integers(0, CLASSES, VERTICES)
    sums, whole = learnt([np.arange(VERTICES)], targets)
    ours = Occurrences.of(whole).left_out(
        sums.numpy(), smoothed_totals(sums, SMOOTHING), SMOOTHING, targets, np.ones(VERTICES)
    )
    own, near = words().toarray(), mean_of_neighbours(words(), graph())
    for row in range(0, VERTICES, 3):
        rest = np.arange(VERTICES) != row
        expected = sum(texts[row] @ reference(texts[rest], targets[rest]).feature_log_prob_.T for texts in (own, near))
        assert_same_comparisons(ours[[row]], np.asarray(expected)[None], 1e-3)


def test_words_that_only_one_vertex_has_say_nothing_without_it() -> None:
    rare = sparse.csr_array(sparse.hstack([words(), sparse.eye_array(VERTICES)]))
    lonely = Neighbours.of(np.zeros(VERTICES + 1, np.int64), np.empty(0, np.int64))
    whole = Batch(SparseMatrix.of(rare), lonely, VERTICES, torch.empty(0, dtype=torch.int64))
    targets, ones = np.arange(VERTICES) % CLASSES, np.ones(VERTICES)
    sums = np.zeros((2, rare.shape[1], CLASSES), np.float32)
    found = Occurrences.of(whole)
    found.add_to(sums, targets, ones)
    ours = found.left_out(sums, smoothed_totals(torch.from_numpy(sums), SMOOTHING), SMOOTHING, targets, ones)
    for row in range(VERTICES):
        rest = np.flatnonzero(np.arange(VERTICES) != row)
        without = np.zeros_like(sums)
        found[rest].add_to(without, targets[rest], ones[rest])
        expected = log_likelihoods(shares_of(torch.from_numpy(without)), whole.x, lonely, VERTICES)[row].numpy()
        assert_same_comparisons(ours[[row]], expected[None], 0.02)  # the number of features differs by one


def test_words_that_were_never_seen_say_nothing() -> None:
    sums = torch.zeros(2, 3, 2)
    sums[:, 0] = 2.0
    sums[:, 1, 0] = 1.0
    shares = shares_of(sums)
    assert (shares[:, 2] == 0).all()
    assert (shares[:, 1, 0] > 0).all()
    assert (shares[:, 1, 1] < 0).all()
    assert not shares_of(torch.zeros(2, 3, 2)).any()


def test_dense_columns_and_negative_values_do_not_count() -> None:
    x = sparse.csr_array([[0.0, -3.0], [1.0, 0.0]])
    mixed = MixedMatrix(torch.tensor([[5.0], [7.0]]), SparseMatrix.of(x))
    two = sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])
    found = Occurrences.of(Batch(mixed, Neighbours.of(two.indptr, two.indices), 2, torch.empty(0, dtype=torch.int64)))
    assert found.own.toarray().tolist() == [[0, 0, 0], [0, 1, 0]]
    assert found.near.toarray().tolist() == [[0, 1, 0], [0, 0, 0]]
    sums = torch.zeros(2, 3, 2)
    sums[:, 1:, 0] = 1.0
    sums[:, 2, 1] = 1.0
    with_words = likelihoods(sums, mixed, Neighbours.of(two.indptr, two.indices), 2)
    assert with_words[0].tolist() == pytest.approx(shares_of(sums)[1, 1].tolist())
    dense = likelihoods(sums, torch.ones(2, 3), Neighbours.of(two.indptr, two.indices), 2)
    assert not dense.any()
