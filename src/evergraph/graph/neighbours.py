"""Rows of neighbours of many edges, built in compiled loops.

Ranges of rows are built one by one on each core, so that little memory is needed besides the result. For few edges,
`adjacency.Entries.of` does the same without importing numba; the results are equal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evergraph.compiled import compiled, one_each

_PARTS = 8  # ranges of rows; each reads all edges


def rows_of(
    source: NDArray[np.int32], target: NDArray[np.int32], n: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return where the neighbours of each of ``n`` vertices start, and the neighbours, without loops and duplicates.

    Examples
    --------
    >>> rows = rows_of(np.array([0, 2, 1, 1], np.int32), np.array([2, 0, 1, 0], np.int32), 3)
    >>> [array.tolist() for array in rows]
    [[0, 2, 3, 4], [1, 2, 0, 0]]
    """
    bounds = np.linspace(0, n, _PARTS + 1).astype(np.int64)
    starts = np.zeros(_PARTS + 1, np.int64)
    np.cumsum(_sizes(source, target, bounds), out=starts[1:])
    indptr, indices = np.zeros(n + 1, np.int32), np.empty(starts[-1], np.int32)
    written = np.zeros(_PARTS, np.int64)

    def build(part: int, _: int) -> None:
        # One sortable number for each entry (row, column), and room for one that is not used.
        keys = np.empty(starts[part + 1] - starts[part] + 1, np.int64)
        end = _collect(source, target, bounds[part], bounds[part + 1], keys)
        keys[:end].sort()
        written[part] = _write(keys[:end], indptr, indices[starts[part] :])

    one_each(build, _PARTS)
    np.cumsum(indptr, out=indptr)
    _close_gaps(indices, starts, written)
    total = written.sum()
    few = total > len(indices) * 7 // 8
    return indptr, indices[:total] if few else indices[:total].copy()


@compiled
def _sizes(source: NDArray[np.int32], target: NDArray[np.int32], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of entries between two bounds of rows, with duplicates."""
    sizes = np.zeros(len(bounds) - 1, np.int64)
    for edge in range(len(source)):
        one, other = source[edge], target[edge]
        if one != other:
            for part in range(len(sizes)):
                sizes[part] += bounds[part] <= one < bounds[part + 1]
                sizes[part] += bounds[part] <= other < bounds[part + 1]
    return sizes


@compiled
def _collect(
    source: NDArray[np.int32], target: NDArray[np.int32], first: int, last: int, keys: NDArray[np.int64]
) -> int:
    """Write the entries of a range of rows, in no order; return their number."""
    end = 0
    for edge in range(len(source)):
        one, other = np.int64(source[edge]), np.int64(target[edge])
        if one != other:
            # Written in any case, because a branch that the CPU cannot predict costs more.
            keys[end] = (one << 32) | other
            end += int(first <= one < last)
            keys[end] = (other << 32) | one
            end += int(first <= other < last)
    return end


@compiled
def _write(keys: NDArray[np.int64], indptr: NDArray[np.int32], indices: NDArray[np.int32]) -> int:
    """Count the entries of each row and write their columns; return the number of entries that differ."""
    end = 0
    for place in range(len(keys)):
        if place == 0 or keys[place] != keys[place - 1]:
            indices[end] = np.int32(keys[place] & 0x7FFFFFFF)
            indptr[(keys[place] >> 32) + 1] += 1
            end += 1
    return end


@compiled
def _close_gaps(indices: NDArray[np.int32], starts: NDArray[np.int64], written: NDArray[np.int64]) -> None:
    """Move the parts together."""
    end = 0
    for part in range(len(written)):
        if end == starts[part]:
            end += written[part]
            continue
        for place in range(starts[part], starts[part] + written[part]):
            indices[end] = indices[place]
            end += 1
