"""How alike texts and vectors are: against scikit-learn, exact decompositions and brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer
from threadpoolctl import threadpool_limits

from evergraph.inputs import similar as likeness
from evergraph.inputs.similar import nearest_by_vectors, nearest_by_words, reduced, unit, weighted

pytestmark = pytest.mark.usefixtures("one_thread")

some = settings(max_examples=60, deadline=None)
PRECISE = {np.float32: 1e-6, np.float64: 1e-12}
Array = np.ndarray[Any, Any]


def texts(rows: int, columns: int, seed: int, dtype: Any = np.float64, share: float = 0.2) -> sparse.csr_array:
    """1 where a text has a word; some texts have none, some are the same."""
    rng = np.random.default_rng(seed)
    dense = (rng.random((rows, columns)) < share).astype(dtype)
    if rows > 4:
        dense[1], dense[3] = dense[2], 0
    return sparse.csr_array(dense)


def some_vectors(rows: int, width: int, rng: np.random.Generator, coarse: bool) -> Array:
    """Of length one; with coarse ones many angles are the same, and some vectors are zero."""
    values = rng.integers(-1, 2, (rows, width)).astype(float) if coarse else rng.normal(size=(rows, width))
    return unit(values)


# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(rows=st.integers(1, 20), columns=st.integers(1, 15), seed=st.integers(0, 10_000))
@some
def test_words_are_weighed_as_scikit_learn_does(dtype: Any, rows: int, columns: int, seed: int) -> None:
    words = texts(rows, columns, seed, dtype)
    found = weighted(words, np.asarray((words > 0).sum(0)).ravel(), rows)
    expected = TfidfTransformer(smooth_idf=True, norm="l2").fit_transform(words.astype(np.float64)).toarray()
    assert found.dtype == dtype
    np.testing.assert_allclose(found.toarray(), expected, atol=PRECISE[dtype])


def test_words_are_weighed_by_texts_that_may_be_elsewhere() -> None:
    words = sparse.csr_array(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    found = weighted(words, np.array([0, 9, 3]), 20).toarray()
    rare, common = np.log(21 / 1) + 1, np.log(21 / 10) + 1
    np.testing.assert_allclose(found[0], np.array([rare, common, 0]) / np.hypot(rare, common))
    assert found[1:].tolist() == [[0, 0, 0], [0, 0, 1]]
    assert weighted(sparse.csr_array((3, 0)), np.zeros(0, int), 3).shape == (3, 0)


# --- short vectors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("rows", "columns"), [(30, 20), (20, 300), (64, 65), (65, 64), (1, 200), (0, 200), (7, 0)])
def test_angles_are_kept_where_there_is_room_for_all(dtype: Any, rows: int, columns: int) -> None:
    matrix = texts(rows, columns, 1, dtype)
    found = reduced(matrix)
    assert found.dtype == dtype
    assert len(found) == rows
    assert found.shape[1] <= 64
    np.testing.assert_allclose(found @ found.T, (matrix @ matrix.T).toarray(), atol=1e4 * PRECISE[dtype])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_texts_of_few_topics_keep_their_angles(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    topics = sparse.random_array((12, 400), density=0.1, rng=rng)
    matrix = sparse.csr_array(sparse.csr_array(rng.random((300, 12))) @ topics).astype(dtype)  # of rank 12
    found = unit(reduced(matrix, 16))
    exact = unit(matrix.toarray().astype(np.float64))
    assert found.shape == (300, 16)
    np.testing.assert_allclose(found @ found.T, exact @ exact.T, atol=1e-5 if dtype is np.float32 else 1e-9)


def test_what_is_cut_off_is_what_an_exact_decomposition_cuts_off() -> None:
    """Singular values that fall as those of texts do; lengths and angles are then those of the best approximation."""
    rng = np.random.default_rng(3)
    left, right = (np.linalg.qr(rng.normal(size=(n, 120)))[0] for n in (250, 400))
    values = 1 / np.arange(1, 121)
    matrix = (left * values) @ right.T
    exact = (left * values)[:, :20]
    found = reduced(sparse.csr_array(matrix), 20)
    np.testing.assert_allclose(np.linalg.norm(found, axis=0), values[:20], rtol=0.01)
    assert np.linalg.norm(found @ found.T - exact @ exact.T) < 0.005
    # Of all matrices of that rank none is nearer: by Eckart and Young, the error is that of the values left out.
    left_over = np.linalg.norm(matrix) ** 2 - np.linalg.norm(found) ** 2
    assert left_over == pytest.approx((values[20:] ** 2).sum(), rel=0.02)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_empty_rows_are_like_nothing_and_equal_rows_equal(dtype: Any) -> None:
    matrix = texts(200, 150, 2, dtype)
    found = reduced(matrix)
    assert (
        np.abs(unit(found)[3]).max() < 1e-12
    )  # what little rounding has left must not be scaled up to a vector of length one
    np.testing.assert_allclose(found[1], found[2], atol=PRECISE[dtype])
    assert (np.linalg.norm(np.delete(found, 3, 0), axis=1) > 0.5).all()


@given(st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_the_order_of_rows_does_not_show(seed: int) -> None:
    matrix = texts(150, 120, seed)
    rows = np.random.default_rng(seed).permutation(150)
    one, other = unit(reduced(matrix)), unit(reduced(sparse.csr_array(matrix[rows])))
    np.testing.assert_allclose((one @ one.T)[np.ix_(rows, rows)], other @ other.T, atol=1e-10)
    assert np.array_equal(reduced(matrix), reduced(matrix.copy()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors_of_length_one(dtype: Any) -> None:
    found = unit(np.array([[3, 4], [0, 0], [1e-20, 0], [-5, 0]], dtype))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0], [0, 0], [-1, 0]], atol=1e-7)


# --- the nearest -----------------------------------------------------------------------------------------------------


def by_hand(cosines: Array, number: int, ranks: Array) -> list[set[int]]:
    """Rows of the nearest, the equally near by rank."""
    found = []
    for row in cosines:
        there = [column for column in range(len(row)) if row[column] > -np.inf]
        found.append(set(sorted(there, key=lambda c, row=row: (-round(row[c], 7), ranks[c]))[: max(number, 0)]))
    return found


@pytest.mark.parametrize("itself", [False, True])
@given(st.integers(0, 25), st.integers(1, 12), st.integers(0, 30), st.booleans(), st.integers(0, 10_000))
@some
def test_the_nearest_are_those_of_brute_force(
    itself: bool, n: int, older: int, number: int, coarse: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    among = some_vectors(older + n, 3, rng, coarse)
    vectors, ranks = among[older:], rng.permutation(older + n)
    cosines = vectors @ among.T
    if itself:
        cosines[np.arange(n), older + np.arange(n)] = -np.inf
    rows, found = nearest_by_vectors(vectors, among, number, itself=older if itself else None, ranks=ranks)
    assert rows.shape == found.shape == (n, min(number, older + n - itself))
    assert [set(row) for row in rows.tolist()] == by_hand(cosines, number, ranks)
    np.testing.assert_allclose(found, np.take_along_axis(cosines, rows, 1), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bytes_at_once", [1, 700, 10**9])
def test_blocks_change_nothing(dtype: Any, bytes_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likeness, "_BLOCK", bytes_at_once)
    rng = np.random.default_rng(0)
    among = some_vectors(40, 5, rng, coarse=False).astype(dtype)
    vectors, ranks = among[15:], rng.permutation(40)
    cosines = (vectors @ among.T).astype(float)
    cosines[np.arange(25), 15 + np.arange(25)] = -np.inf
    rows, _ = nearest_by_vectors(vectors, among, 4, itself=15, ranks=ranks)
    assert [set(row) for row in rows.tolist()] == by_hand(cosines, 4, ranks)
    words = weighted(texts(40, 12, 0, dtype), np.full(12, 3), 40)
    monkeypatch.setattr(likeness, "_BLOCK", 10**9)
    expected = nearest_by_words(words, 3, ranks)
    monkeypatch.setattr(likeness, "_BLOCK", bytes_at_once)
    assert np.array_equal(nearest_by_words(words, 3, ranks).toarray(), expected.toarray())


def test_without_ranks_any_of_the_equally_near_will_do() -> None:
    among = unit(np.array([[1.0, 0], [1, 0], [1, 0], [0, 1], [1, 0.1]]))
    rows, cosines = nearest_by_vectors(among[:1], among, 2)
    assert set(rows[0].tolist()) <= {0, 1, 2}
    assert cosines.tolist() == [[1, 1]]


@given(st.integers(0, 25), st.integers(0, 8), st.integers(0, 6), st.integers(0, 10_000))
@some
def test_the_nearest_by_words_are_those_of_brute_force(n: int, columns: int, number: int, seed: int) -> None:
    words = texts(n, columns, seed)
    rows = weighted(words, np.asarray((words > 0).sum(0)).ravel(), n)
    ranks = np.random.default_rng(seed).permutation(n)
    dense = rows.toarray()
    cosines = dense @ dense.T
    np.fill_diagonal(cosines, -np.inf)
    expected = np.zeros((n, n))
    for row, chosen in enumerate(by_hand(cosines, number, ranks)):
        for other in chosen:
            expected[row, other] = cosines[row, other] > 1e-12  # with a word in common
    found = nearest_by_words(rows, number, ranks)
    assert np.array_equal(found.toarray(), expected)
    assert found.has_sorted_indices
    assert not found.diagonal().any()


@given(st.integers(1, 25), st.integers(0, 10_000))
@some
def test_the_nearest_do_not_depend_on_the_order(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    words, order, ranks = texts(n, 6, seed, share=0.4), rng.permutation(n), rng.permutation(n)
    rows = weighted(words, np.full(6, 2), n)
    one, other = nearest_by_words(rows, 3, ranks), nearest_by_words(sparse.csr_array(rows[order]), 3, ranks[order])
    assert np.array_equal(one.toarray()[np.ix_(order, order)], other.toarray())


def test_the_vectors_do_not_depend_on_the_number_of_threads() -> None:
    matrix = sparse.random_array((6000, 800), density=0.01, dtype=np.float32, rng=np.random.default_rng(0)).tocsr()
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            found.append(reduced(sparse.csr_array(matrix)))
    assert np.array_equal(*found)
