"""Nearest neighbours: words as weighted and reduced vectors, and the nearest vertices by cosine."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

__all__ = ["nearest_by_vectors", "nearest_by_words", "reduced", "unit", "weighted"]

_WIDTH = 64  # columns of reduced vectors
_SPARE, _ROUNDS = 10, 3  # extra columns and power iterations of the randomised decomposition
_DECOMPOSED = 5_000  # rows whose singular vectors are computed, the last ones
_BLOCK = 80_000_000  # bytes of similarities in memory at a time
_TIE = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-9}  # similarities that differ by less may be equal

Vectors = NDArray[np.floating]


def weighted(words: sparse.csr_array, texts: NDArray[np.integer], total: int) -> sparse.csr_array:
    """Weight words by how rare they are (tf-idf), with rows of length 1; rows without words stay empty.

    ``texts`` is the number of texts with each word, ``total`` the number of all texts.

    Examples
    --------
    >>> words = sparse.csr_array(np.array([[1.0, 1.0], [0.0, 1.0]], np.float32))
    >>> weighted(words, np.array([1, 2]), 2).toarray().round(2).tolist()
    [[0.8100000023841858, 0.5799999833106995], [0.0, 1.0]]
    """
    rarity = (np.log((1 + total) / (1 + texts)) + 1).astype(words.dtype)
    values = rarity[words.indices]
    squares = np.bincount(_row_of(words), values.astype(np.float64) ** 2, minlength=words.shape[0])
    lengths = np.sqrt(np.maximum(squares, 1e-12)).astype(words.dtype)
    return sparse.csr_array((values / lengths[_row_of(words)], words.indices, words.indptr), shape=words.shape)


def reduced(matrix: sparse.csr_array, width: int = _WIDTH) -> Vectors:
    """Reduce rows to short vectors with nearly the same angles: a truncated singular value decomposition.

    The random draw is always the same. Of many rows, only the last 5,000 are decomposed, and all are projected onto
    their singular vectors. Source: Halko, Martinsson and Tropp, Finding Structure with Randomness, SIAM Review 2011.
    """
    rows, columns = matrix.shape
    if columns <= width:
        return matrix.toarray()
    if rows > _DECOMPOSED:
        return np.ascontiguousarray(matrix @ _singular_vectors(sparse.csr_array(matrix[-_DECOMPOSED:]), width))
    sample = np.random.default_rng(0).standard_normal((columns, min(width + _SPARE, rows, columns)), matrix.dtype)
    # One thread: these decompositions are many small steps, at each of which OpenBLAS's threads wait actively for each
    # other. With two threads they take over ten times as long, and the last bits differ.
    with threadpool_limits(1, "blas"):
        basis = matrix @ sample
        for _ in range(_ROUNDS):
            basis, _ = np.linalg.qr(basis)
            basis, _ = np.linalg.qr(matrix.T @ basis)
            basis = matrix @ basis
        basis, _ = np.linalg.qr(basis)
        short = matrix.T @ basis
        turn, squares, _ = np.linalg.svd(short.T @ short)
        return np.ascontiguousarray((basis @ turn)[:, :width] * np.sqrt(squares[:width]))


def _singular_vectors(matrix: sparse.csr_array, width: int) -> Vectors:
    """The leading right singular vectors, one per column."""
    columns = matrix.shape[1]
    sample = np.random.default_rng(0).standard_normal((columns, min(width + _SPARE, columns)), matrix.dtype)
    with threadpool_limits(1, "blas"):
        basis = matrix @ sample
        for _ in range(_ROUNDS - 1):
            basis = matrix @ (matrix.T @ _orthonormal(basis))
        short = matrix.T @ _orthonormal(basis)
        turn, squares, _ = np.linalg.svd(short.T @ short)
        lengths = np.sqrt(np.maximum(squares[:width], 1e-12)).astype(matrix.dtype)
        return np.asarray((short @ turn)[:, :width] / lengths)


def _orthonormal(basis: Vectors) -> Vectors:
    """Orthonormal columns that span the same space, by products of small matrices: several times as fast as QR."""
    squares, vectors = np.linalg.eigh((basis.T @ basis).astype(np.float64))
    there = squares > 1e-6 * squares[-1]
    scaled = np.where(there, vectors / np.sqrt(np.where(there, squares, 1)), 0)
    return np.asarray(basis @ scaled.astype(basis.dtype))


def unit(vectors: NDArray[np.floating]) -> Vectors:
    """Scale vectors to length 1; those that are only rounding errors become 0."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.where(lengths > 1e-6, lengths, np.inf).astype(vectors.dtype))


def nearest_by_vectors(
    vectors: Vectors,
    among: Vectors,
    number: int,
    *,
    itself: int | NDArray[np.int64] | None = None,
    ranks: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], Vectors]:
    """Return the rows, in no order, and the cosines of the vectors in ``among`` that are nearest to each vector.

    All vectors have length 1. ``itself`` is the row of each of ``vectors`` in ``among``, or only of the first if they
    have the same order there: a vector is not its own neighbour. Of equally near ones, lower ranks are taken.

    Examples
    --------
    >>> rows, cosines = nearest_by_vectors(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)[::-1].copy(), 1)
    >>> rows.tolist(), cosines.tolist()
    ([[1], [0]], [[1.0], [1.0]])
    """
    number = max(min(number, len(among) - (itself is not None)), 0)
    rows, cosines = np.zeros((len(vectors), number), np.int64), np.zeros((len(vectors), number), vectors.dtype)
    for part in _blocks(len(vectors), len(among), vectors.dtype) if number else []:
        like = vectors[part] @ among.T
        if itself is not None:
            own = itself[part] if isinstance(itself, np.ndarray) else itself + np.arange(part.start, part.stop)
            like[np.arange(len(like)), own] = -np.inf
        rows[part], cosines[part] = _largest(like, number, ranks)
    return rows, cosines


def nearest_by_words(
    rows: sparse.csr_array,
    number: int,
    ranks: NDArray[np.int64] | None = None,
    chosen: NDArray[np.int64] | None = None,
) -> sparse.csr_array:
    """Return the nearest other rows of each row that share a word with it, as a sparse matrix of ones.

    Rows are weighted words, of length 1; ranks are as in `nearest_by_vectors`. If rows are chosen, only their
    neighbours are searched, and the result has one row for each of them.

    Examples
    --------
    >>> nearest_by_words(sparse.csr_array(np.array([[1, 0], [0.6, 0.8], [0, 1], [0, 0]])), 1).toarray().tolist()
    [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    n = rows.shape[0]
    number = max(min(number, n - 1), 0)
    chosen = np.arange(n) if chosen is None else chosen
    nearest = np.full((len(chosen), number), -1)
    columns = sparse.csr_array(rows.T)
    for part in _blocks(len(chosen), n, rows.dtype) if number else []:
        product = rows[chosen[part]] @ columns
        if product.dtype == np.float64:  # in single precision ranks may be equal, and then the layout decides
            _fill_nearest(nearest[part], product, chosen[part], ranks)
            continue
        like = product.toarray()
        like[np.arange(len(like)), chosen[part]] = 0
        near, cosines = _largest(like, number, ranks)
        nearest[part] = np.where(cosines > 0, near, -1)
    there = nearest >= 0
    indptr = np.concatenate([[0], np.cumsum(there.sum(1))])
    near_to = sparse.csr_array((np.ones(int(there.sum())), nearest[there], indptr), shape=(len(chosen), n))
    near_to.sort_indices()
    return near_to


def _fill_nearest(
    nearest: NDArray[np.int64], like: sparse.csr_array, itself: NDArray[np.int64], ranks: NDArray[np.int64] | None
) -> None:
    """Write the places of the largest entries of each row, without the many rows that share no word with it."""
    number = nearest.shape[1]
    ranked = np.where((like.indices == itself[_row_of(like)]) | (like.data <= 0), -np.inf, like.data)
    if ranks is not None:
        ranked -= ranks[like.indices] * (_TIE[like.dtype] / len(ranks))
    for row, (start, stop) in enumerate(pairwise(like.indptr.tolist())):
        values, places = ranked[start:stop], like.indices[start:stop]
        if len(values) > number:
            largest = np.argpartition(values, -number)[-number:]
            values, places = values[largest], places[largest]
        nearest[row, : len(places)] = np.where(values > -np.inf, places, -1)


def _largest(
    values: NDArray[np.floating], number: int, ranks: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    ranked = values
    if ranks is not None:
        ranked = values - (ranks * (_TIE[values.dtype] / len(ranks))).astype(values.dtype)
    rows = np.argpartition(ranked, -number, axis=1)[:, -number:]
    return rows, np.take_along_axis(values, rows, 1)


def _blocks(rows: int, columns: int, dtype: np.dtype[Any]) -> list[slice]:
    size = max(1, _BLOCK // max(columns * dtype.itemsize, 1))
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def _row_of(matrix: sparse.csr_array) -> NDArray[np.int64]:
    """Row of each entry."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
