"""Ties among flagged vertices: edges, and being one of the nearest by words, by neighbours or by dense features."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.compiled import compiled, over_range, over_rows
from evergraph.graph.features import DenseFeatures
from evergraph.graph.ids import Ids
from evergraph.inputs.similar import weighted
from evergraph.inputs.slice_context import SliceContext

__all__ = ["by_id", "edges_among", "ties_among"]

_NEAREST = 5
_COMMON, _FEW = 0.1, 10  # what more than this share of the slice has in common, and more than so many, ties nobody
_DIGITS = 5  # of cosines of dense features: what differs beyond them is rounding
_BLOCK = 20_000_000  # cosines at once: 80 MB

_Longs = NDArray[np.int64]
_Floats = NDArray[np.float32]


def by_id(ids: Ids) -> _Longs:
    """Places of ids in their order: vertices in an order that does not depend on how they stand in a graph.

    Examples
    --------
    >>> by_id(np.array([7, 3, 5])).tolist()
    [1, 2, 0]
    """
    return np.argsort(ids if isinstance(ids, np.ndarray) else np.array(ids.tolist(), object), kind="stable")


def ties_among(context: SliceContext, rows: _Longs) -> sparse.csr_array:
    """In how many ways two of some vertices are tied: by an edge, and each as one of the five nearest to the other.

    Near are vertices with rare words in common, or rare neighbours, which may be older than the slice; where features
    are dense, those at small angles in `SliceContext.vectors`. The nearest are those of the whole slice. A vertex that
    was flagged by mistake is nearest to others of its class: unless many of them were flagged, too, it has few ties
    here, where among the flagged ones alone something would be nearest to it in any case. Of equally near ones the
    first by id count.

    Parameters
    ----------
    context
        The slice.
    rows
        Which vertices, counted from the first of the slice.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> from evergraph.learning.task import Task
    >>> texts = ["old", "same words", "same words", "others", "others"]
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3, 4, 5], "time": [1, 2, 2, 2, 2], "text": texts}, [[2, 3]])
    >>> ties_among(SliceContext(Task(graph, time=2, history=1), classes=()), np.array([0, 1, 3])).toarray().tolist()
    [[0.0, 3.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    place = np.full(len(context), -1)
    place[rows] = np.arange(len(rows))
    pairs = [edges_among(context, rows)]
    for near in _all_nearest(context, rows):
        others = np.where(near >= 0, place[near], -1).ravel()
        pairs.append((np.repeat(np.arange(len(rows)), near.shape[1])[others >= 0], others[others >= 0]))
    one, other = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    found = sparse.csr_array((np.ones(len(one)), (one, other)), shape=(len(rows), len(rows)))
    return sparse.csr_array(found + found.T)


def edges_among(context: SliceContext, rows: _Longs) -> tuple[_Longs, _Longs]:
    """The edges among some vertices of the slice, each once: both ends, as places among these vertices."""
    place = np.full(len(context), -1)
    place[rows] = np.arange(len(rows))
    older, younger, _ = context.window.links.ends()
    inside = older >= context.start
    one, other = place[older[inside] - context.start], place[younger[inside] - context.start]
    both = (one >= 0) & (other >= 0)
    return one[both], other[both]


def _all_nearest(context: SliceContext, rows: _Longs) -> list[_Longs]:
    """The nearest of some vertices, by each thing that they may have in common."""
    order = by_id(context.window.ids[context.start :])
    if isinstance(context.task.graph.features, DenseFeatures):
        alike = _nearest_by_vectors(context.vectors[context.start :], rows, order)
    else:
        alike = _nearest_by_columns(_words(context), rows, order)
    return [_nearest_by_columns(_neighbours(context), rows, order), alike]


def _words(context: SliceContext) -> sparse.csr_array:
    """The words of the slice's vertices, weighed by how rare they are in all that is seen."""
    older, new = context.texts
    return _telling(sparse.csr_array(context.words[context.start :]), older + new, new, len(context.window))


def _neighbours(context: SliceContext) -> sparse.csr_array:
    """The neighbours of the slice's vertices, weighed by how few have them; columns in the order of ids."""
    links, n = context.window.links, len(context.window)
    ones = np.ones(len(links.indices), np.float32)
    around = sparse.csr_array((ones, links.indices, links.indptr), shape=(n, n))[context.start :]
    around = sparse.csr_array(around[:, by_id(context.window.ids)])
    new = np.bincount(around.indices, minlength=n)
    return _telling(around, new, new, len(context))


def _telling(matrix: sparse.csr_array, texts: _Longs, new: _Longs, total: int) -> sparse.csr_array:
    """Rows weighed by rarity, of the columns that some of the slice's vertices share, but not too many."""
    chosen = np.flatnonzero((new >= 2) & (new <= max(_COMMON * matrix.shape[0], _FEW)))
    kept = sparse.csr_array(matrix[:, chosen])
    kept.sort_indices()
    return weighted(kept, texts[chosen], total)


def _nearest_by_columns(matrix: sparse.csr_array, rows: _Longs, order: _Longs) -> _Longs:
    """The nearest vertices of the slice to some of them; -1 where fewer have a column in common."""
    found, cosines = _none(len(rows))
    columns, asked = sparse.csc_array(matrix[order]), sparse.csr_array(matrix[rows])
    columns.sort_indices()
    shared = (columns.indptr, columns.indices, columns.data)
    arguments = (asked.indptr, asked.indices, asked.data, *shared, _rank(order)[rows], len(order), found, cosines)
    over_rows(_nearest_by_entries, asked.indptr, _FEW, *arguments)
    return np.where(found >= 0, order[found], -1)


def _nearest_by_vectors(vectors: NDArray[np.floating], rows: _Longs, order: _Longs) -> _Longs:
    """The nearest vertices of the slice to some of them; -1 where fewer are at less than a right angle."""
    found, cosines = _none(len(rows))
    among, itself = vectors[order].T.copy(), _rank(order)[rows]
    size = max(1, _BLOCK // max(len(order), 1))
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        like = np.round(vectors[rows[part]] @ among, _DIGITS).astype(np.float32)
        over_range(
            _nearest_in_rows, len(like), like, itself[part], found[part], cosines[part], width=max(len(order), 1)
        )
    return np.where(found >= 0, order[found], -1)


def _none(rows: int) -> tuple[_Longs, _Floats]:
    return np.full((rows, _NEAREST), -1), np.zeros((rows, _NEAREST), np.float32)


def _rank(order: _Longs) -> _Longs:
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank


@compiled
def _insert(found: _Longs, cosines: _Floats, other: int, cosine: float) -> None:
    """Put one among the nearest so far, if it is nearer, or as near and earlier; the nearest come first."""
    place = len(found)
    while place > 0 and (
        found[place - 1] < 0
        or cosines[place - 1] < cosine
        or (cosines[place - 1] == cosine and found[place - 1] > other)
    ):
        place -= 1
    for later in range(len(found) - 1, place, -1):
        found[later], cosines[later] = found[later - 1], cosines[later - 1]
    if place < len(found):
        found[place], cosines[place] = other, cosine


@compiled
def _nearest_by_entries(
    first: int,
    last: int,
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: _Floats,
    starts: NDArray[np.int32],
    owners: NDArray[np.int32],
    weights: _Floats,
    itself: _Longs,
    n: int,
    found: _Longs,
    cosines: _Floats,
) -> None:
    like, met = np.zeros(n, np.float32), np.empty(n, np.int64)
    for row in range(first, last):
        count = 0
        for place in range(indptr[row], indptr[row + 1]):
            column = indices[place]
            for entry in range(starts[column], starts[column + 1]):
                other = owners[entry]
                if like[other] == 0:
                    met[count] = other
                    count += 1
                like[other] += data[place] * weights[entry]
        for place in range(count):
            other = met[place]
            if other != itself[row]:
                _insert(found[row], cosines[row], other, like[other])
            like[other] = 0


@compiled
def _nearest_in_rows(first: int, last: int, like: _Floats, itself: _Longs, found: _Longs, cosines: _Floats) -> None:
    for row in range(first, last):
        for other in range(like.shape[1]):
            cosine = like[row, other]
            if cosine > 0 and cosine >= cosines[row, -1] and other != itself[row]:
                _insert(found[row], cosines[row], other, cosine)
