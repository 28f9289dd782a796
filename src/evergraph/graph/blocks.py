"""Arrays that grow at their end: without copying what is there, in memory with room behind it or in several blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from threading import Lock
from typing import Any, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

__all__ = ["Blocks", "append_rows", "joined", "pieces"]

_MAPPED = 2**12  # rows; fewer are copied rather than kept as a block of their own


class _Buffer(np.ndarray[Any, Any]):
    """Memory with room at the end, of which ``used`` rows are in use."""

    used = 0


_claim = Lock()  # so that of several threads only one uses the room behind the same rows


def append_rows(rows: NDArray[Any], parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Append the rows of several parts to an array; amortised, this copies only the parts.

    The result has room behind it for the next call. Rows never change: if another result uses that room already, all
    rows are copied.

    Examples
    --------
    >>> first = append_rows(np.array([1, 2]), [np.array([3])])
    >>> append_rows(first, [np.array([4])]).tolist(), append_rows(first, [np.array([5])]).tolist(), first.tolist()
    ([1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3])
    """
    start, end, dtype = len(rows), len(rows) + sum(map(len, parts)), np.result_type(rows, *parts)
    buffer: Any = rows.base
    fits = (
        _is_owned(rows)
        and buffer.ctypes.data == rows.ctypes.data
        and buffer.dtype == rows.dtype == dtype
        and end <= len(buffer)
        and rows.flags.c_contiguous
    )
    if fits:
        with _claim:
            fits = buffer.used == start
            if fits:
                buffer.used = end
    if not fits:
        buffer = _Buffer((end + end // 4, *rows.shape[1:]), dtype)
        buffer[:start] = rows
        buffer.used = end
    if parts:
        np.concatenate(parts, out=buffer[start:end].view(np.ndarray))
    return np.ndarray((end, *rows.shape[1:]), dtype, buffer)


def _is_owned(rows: Any) -> bool:
    return isinstance(rows, np.ndarray) and isinstance(rows.base, _Buffer)


class Blocks(NDArrayOperatorsMixin):
    """A read-only array in several blocks of rows, for example memory maps of several files.

    A slice is a plain array: a view if it lies within one block, a copy of these rows otherwise. Everything else that
    numpy can do with an array works as well, after the blocks have been joined once, which copies them.

    Parameters
    ----------
    blocks
        Arrays of equal type and width, none of which changes.
    shifts
        What to add to the values of each block, for arrays that point into another one.

    Examples
    --------
    >>> array = Blocks([np.array([0, 2, 5]), np.array([1, 4])], shifts=[0, 5])
    >>> array[1:4].tolist(), int(array[4]), array[np.array([3, 0])].tolist(), len(array), (array + 1).tolist()
    ([2, 5, 6], 9, [6, 0], 5, [1, 3, 6, 7, 10])
    """

    def __init__(self, blocks: Sequence[NDArray[Any]], shifts: Sequence[int] | None = None) -> None:
        self.blocks = tuple(blocks)
        self.shifts = (0,) * len(self.blocks) if shifts is None else tuple(map(int, shifts))
        self._starts = np.cumsum([0, *map(len, self.blocks)])
        self.dtype: np.dtype[Any] = self.blocks[0].dtype
        self.shape: tuple[int, ...] = (int(self._starts[-1]), *self.blocks[0].shape[1:])

    @cached_property
    def whole(self) -> NDArray[Any]:
        """All blocks in one array."""
        rows = self[:]
        rows.flags.writeable = False
        return rows

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.whole)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (int, np.integer)):
            row = range(len(self))[int(index)]
            block = int(np.searchsorted(self._starts, row, side="right")) - 1
            value = self.blocks[block][row - self._starts[block]]
            return value + self.shifts[block] if self.shifts[block] else value
        if "whole" in vars(self):
            return self.whole[index]
        if isinstance(index, slice) and index.step in (None, 1):
            start, stop, _ = index.indices(len(self))
            return self._rows(start, max(start, stop))
        if isinstance(index, np.ndarray) and index.dtype.kind in "iu" and index.ndim == 1:
            return self._take(index)
        return self.whole[index]

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        found = []
        for block, shift, (first, end) in zip(self.blocks, self.shifts, pairwise(self._starts.tolist()), strict=True):
            if first < stop and start < end:
                rows = block[max(start - first, 0) : stop - first]
                found.append(rows + self.dtype.type(shift) if shift else rows)
        if not found:
            return np.empty((0, *self.shape[1:]), self.dtype)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _take(self, rows: NDArray[np.integer]) -> NDArray[Any]:
        rows = np.where(rows < 0, rows + len(self), rows)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError("a row is out of range")
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        block_of = np.searchsorted(self._starts, rows, side="right") - 1
        for block in np.unique(block_of).tolist():
            here = block_of == block
            found[here] = self.blocks[block][rows[here] - self._starts[block]]
            if self.shifts[block]:
                found[here] += self.dtype.type(self.shifts[block])
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.whole, dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(part.whole if isinstance(part, Blocks) else part for part in inputs), **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "whole":
            raise AttributeError(name)
        return getattr(self.whole, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return Blocks, (self.blocks, self.shifts)


def joined(rows: Any, parts: Sequence[NDArray[Any]], shifts: Sequence[int] | None = None) -> NDArray[Any]:
    """Append parts to an array without copying it: as blocks if it is large, with room for more behind the last one.

    The result is used like an array, so it has the type of one; see `Blocks`. ``shifts`` are added to the values of
    the parts.

    Examples
    --------
    >>> joined(np.array([1, 2]), [np.array([1])], [2]).tolist()
    [1, 2, 3]
    >>> large = joined(np.arange(5000), [np.array([1])], [4999])
    >>> type(large).__name__, large[4998:].tolist()
    ('Blocks', [4998, 4999, 5000])
    """
    pairs = zip(parts, [0] * len(parts) if shifts is None else shifts, strict=True)
    moved = [(part, int(move)) for part, move in pairs if len(part)]
    if not moved:
        return rows
    if np.result_type(rows.dtype, *(part.dtype for part, _ in moved)) != rows.dtype:
        return append_rows(np.asarray(rows), [_moved(part, move) for part, move in moved])
    blocks = [*rows.blocks] if isinstance(rows, Blocks) else [rows]
    own = [*rows.shifts] if isinstance(rows, Blocks) else [0]
    for part, move in moved:
        last = blocks[-1]
        if min(len(part), len(last)) >= _MAPPED:
            blocks.append(part)
            own.append(move)
        elif _is_owned(last) or len(last) < _MAPPED:
            blocks[-1] = append_rows(last, [_moved(part, move - own[-1])])
        else:
            blocks.append(append_rows(part[:0], [part]))
            own.append(move)
    if len(blocks) == 1:
        return blocks[0]
    return cast(NDArray[Any], Blocks(blocks, own))


def pieces(rows: Any, start: int, stop: int, most: int) -> Iterator[NDArray[Any]]:
    """Yield the rows of a range in pieces of at most so many rows, without a copy of blocks that have no shift."""
    ends = np.cumsum([0, *map(len, rows.blocks)]).tolist() if isinstance(rows, Blocks) else [0, len(rows)]
    for first, end in pairwise(ends):
        for piece in range(max(start, first), min(stop, end), most):
            yield rows[piece : min(piece + most, stop, end)]


def _moved(part: NDArray[Any], move: int) -> NDArray[Any]:
    return part + part.dtype.type(move) if move else part
