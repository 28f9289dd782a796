"""Communities: vertices that have more ties among each other than their numbers of ties would make one expect."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from evergraph.compiled import compiled

__all__ = ["communities"]

_SWEEPS = 100  # over all vertices, at each level; a few are enough
_LEAST = 1e-9  # a gain that is more than rounding


def communities(ties: sparse.csr_array) -> NDArray[np.int64]:
    """Part vertices into communities; returns the number of each one's, counted in the order of first members.

    Vertices are moved to the community that gains most in modularity, in the order of their rows, and communities
    are then moved as vertices were, until nothing gains. Nothing is drawn, so the same ties give the same communities;
    the order of rows breaks what is even. Every community is connected. A vertex without ties is one of its own.

    Source: Blondel, Guillaume, Lambiotte and Lefebvre, Fast Unfolding of Communities in Large Networks, J. Stat. Mech.
    2008; taking disconnected communities apart is from Traag, Waltman and van Eck, From Louvain to Leiden, 2019.

    Parameters
    ----------
    ties
        How strongly vertices are tied to each other: symmetric, nothing below 0.

    Examples
    --------
    >>> pairs = np.array([[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5], [2, 3]])
    >>> ties = sparse.csr_array((np.ones(7), tuple(pairs.T)), shape=(7, 7))
    >>> communities(ties + ties.T).tolist()
    [0, 0, 0, 1, 1, 1, 2]
    """
    n = ties.shape[0]
    level, found = _of_floats(ties), np.arange(n)
    while level.shape[0]:
        strength = np.asarray(level.sum(1), np.float64).ravel()
        joined = np.arange(level.shape[0])
        if not _move(level.indptr, level.indices, level.data, strength, strength.sum(), joined):
            break
        names, joined = np.unique(joined, return_inverse=True)
        found = joined[found]
        members = sparse.csr_array(
            (np.ones(len(joined)), (np.arange(len(joined)), joined)), shape=(len(joined), len(names))
        )
        level = _of_floats(members.T @ level @ members)
    return _connected(ties, found)


def _of_floats(ties: Any) -> sparse.csr_array:
    matrix = sparse.csr_array(ties, dtype=np.float64)
    matrix.sum_duplicates()
    return matrix


def _connected(ties: sparse.csr_array, found: NDArray[np.int64]) -> NDArray[np.int64]:
    """Communities of which those that hang together by nothing are several, counted by their first members."""
    entries = sparse.coo_array(ties)
    same = (found[entries.row] == found[entries.col]) & (entries.data > 0)
    inside = sparse.csr_array((np.ones(int(same.sum())), (entries.row[same], entries.col[same])), shape=ties.shape)
    _, parts = connected_components(inside, directed=False)
    _, first, names = np.unique(parts, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[names]


@compiled
def _move(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[np.float64],
    strength: NDArray[np.float64],
    total: float,
    joined: NDArray[np.int64],
) -> bool:
    """Move vertices to the communities that gain most, until none gains; whether any was moved."""
    n = len(strength)
    size = strength.copy()  # of each community
    to = np.zeros(n)  # ties of a vertex to each community around it
    around = np.empty(n, np.int64)
    moved = False
    for _ in range(_SWEEPS):
        moves = 0
        for vertex in range(n):
            here, count = joined[vertex], 0
            for place in range(indptr[vertex], indptr[vertex + 1]):
                other = indices[place]
                if other == vertex or data[place] <= 0:
                    continue
                there = joined[other]
                if to[there] == 0:
                    around[count] = there
                    count += 1
                to[there] += data[place]
            size[here] -= strength[vertex]
            best, most = here, to[here] - strength[vertex] * size[here] / total
            for place in range(count):
                there = around[place]
                gain = to[there] - strength[vertex] * size[there] / total
                if gain > most + _LEAST or (best != here and gain > most - _LEAST and there < best):
                    best, most = there, gain
            size[best] += strength[vertex]
            if best != here:
                joined[vertex] = best
                moves += 1
            for place in range(count):
                to[around[place]] = 0
        if moves == 0:
            break
        moved = True
    return moved
