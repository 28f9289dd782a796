"""Assemble the sparse columns of some vertices from several blocks, in one pass over the entries of each block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.compiled import compiled, over_range

__all__ = ["SparseBlock", "assemble"]

_NO_WEIGHTS = np.empty(0, np.float32)
_WIDTH = 40  # numbers that a row costs, on average, for the division among threads


@dataclass(frozen=True, eq=False)
class SparseBlock:
    """Compressed rows, which may be a memory map, and the column of the result that each column belongs to.

    Parameters
    ----------
    indptr, indices, data
        The rows.
    place
        Column of the result for each column; -1 leaves it out.
    weight
        Factor of each column; None for 1. Rows are then scaled to length 1, before columns are left out.
    """

    indptr: NDArray[np.integer]
    indices: NDArray[np.int32]
    data: NDArray[np.float32]
    place: NDArray[np.int32]
    weight: NDArray[np.float32] | None = None

    @classmethod
    def of(
        cls,
        indptr: NDArray[np.integer],
        indices: NDArray[np.int32],
        data: NDArray[np.float32],
        rows: slice,
        place: NDArray[np.int32],
        weight: NDArray[np.float32] | None = None,
    ) -> SparseBlock:
        """Return a range of rows, numbered from 0; entries are not copied if they are in one memory map."""
        pointers = indptr[rows.start : rows.stop + 1]
        start, stop = int(pointers[0]), int(pointers[-1])
        pointers = pointers - pointers[0] if start else pointers
        return cls(pointers, indices[start:stop], data[start:stop], place, weight)

    def entries(self, rows: slice) -> int:
        """Return the number of entries of a range of rows."""
        return int(self.indptr[rows.stop]) - int(self.indptr[rows.start])

    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """Return all arrays; no weights for None."""
        weight = _NO_WEIGHTS if self.weight is None else self.weight
        return self.indptr, self.indices, self.data, self.place, weight


def assemble(parts: Sequence[tuple[SparseBlock, NDArray[np.integer]]], rows: int, columns: int) -> sparse.csr_array:
    """Return the rows of several blocks side by side, columns ascending.

    Each block comes with the numbers of its rows to read; the columns of different blocks must differ.

    Examples
    --------
    >>> words = SparseBlock(np.array([0, 1, 3]), np.array([1, 0, 1], np.int32), np.ones(3, np.float32),
    ...                     np.array([2, 0], np.int32), np.array([3, 4], np.float32))
    >>> assemble([(words, np.array([1, 0]))], rows=2, columns=3).toarray().round(1).tolist()
    [[0.800000011920929, 0.0, 0.6000000238418579], [1.0, 0.0, 0.0]]
    """
    counts = np.zeros(rows + 1, np.int64)
    for block, chosen in parts:
        over_range(_count, rows, chosen, *block.arrays(), counts[1:], width=_WIDTH)
    indptr = np.cumsum(counts)
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    cursor = indptr[:-1].copy()
    for block, chosen in parts:
        over_range(_fill, rows, chosen, *block.arrays(), cursor, indices, data, width=_WIDTH)
    over_range(_sort, rows, indptr, indices, data, width=_WIDTH)
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    matrix = sparse.csr_array((rows, columns), dtype=np.float32)
    matrix.indptr, matrix.indices, matrix.data = indptr, indices, data  # the constructor may copy
    return matrix


@compiled
def _count(
    first: int,
    last: int,
    rows: NDArray[np.integer],
    indptr: NDArray[np.integer],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    place: NDArray[np.int32],
    weight: NDArray[np.float32],
    counts: NDArray[np.int64],
) -> None:
    """Add the number of entries of each row that have a place and are not 0."""
    for number in range(first, last):
        found = 0
        for entry in range(indptr[rows[number]], indptr[rows[number] + 1]):
            column = indices[entry]
            value = data[entry] * weight[column] if len(weight) else data[entry]
            found += place[column] >= 0 and value != 0
        counts[number] += found


@compiled
def _fill(
    first: int,
    last: int,
    rows: NDArray[np.integer],
    indptr: NDArray[np.integer],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    place: NDArray[np.int32],
    weight: NDArray[np.float32],
    cursor: NDArray[np.int64],
    new_indices: NDArray[np.int32],
    new_data: NDArray[np.float32],
) -> None:
    """Write the entries of each row at its cursor, which moves on."""
    for number in range(first, last):
        start, stop = indptr[rows[number]], indptr[rows[number] + 1]
        length = np.float32(1)
        if len(weight):
            squares = 0.0
            for entry in range(start, stop):
                value = data[entry] * weight[indices[entry]]
                squares += np.float64(value) * np.float64(value)
            length = np.float32(np.sqrt(squares))
        at = cursor[number]
        for entry in range(start, stop):
            column = indices[entry]
            value = data[entry] * weight[column] if len(weight) else data[entry]
            if place[column] >= 0 and value != 0:
                new_indices[at] = place[column]
                new_data[at] = value / length
                at += 1
        cursor[number] = at


@compiled
def _sort(
    first: int, last: int, indptr: NDArray[np.int64], indices: NDArray[np.int32], data: NDArray[np.float32]
) -> None:
    """Sort the entries of each row by column."""
    for row in range(first, last):
        start, stop = indptr[row], indptr[row + 1]
        if stop - start > 64:
            order = np.argsort(indices[start:stop])
            indices[start:stop] = indices[start:stop][order]
            data[start:stop] = data[start:stop][order]
            continue
        for entry in range(start + 1, stop):
            column, value, at = indices[entry], data[entry], entry
            while at > start and indices[at - 1] > column:
                indices[at], data[at] = indices[at - 1], data[at - 1]
                at -= 1
            indices[at], data[at] = column, value
