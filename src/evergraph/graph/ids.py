"""Vertex ids (strings or whole numbers): look up, join, find duplicates; and immutable columns of strings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


class Strings(Sequence[str]):
    """An immutable column of strings.

    The layout is that of Arrow's ``large_string``: `arrow` shares the memory with Arrow's compute functions, and
    opening a graph does not import Arrow.

    Examples
    --------
    >>> words = Strings.of(["nan", "007", "größer"])
    >>> words[2], len(words), list(words[:2])
    ('größer', 3, ['nan', '007'])
    """

    __slots__ = ("data", "offsets")

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self.data = data
        self.offsets = offsets
        data.flags.writeable = offsets.flags.writeable = False

    @classmethod
    def of(cls, values: Iterable[str]) -> Strings:
        """Convert Python strings."""
        encoded = [value.encode() for value in values]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(value) for value in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    @classmethod
    def concat(cls, parts: Iterable[Strings]) -> Strings:
        """Concatenate columns."""
        first, *others = (part.packed() for part in parts)
        starts = np.cumsum([len(first.data), *(len(part.data) for part in others)])
        offsets = [part.offsets[1:] + start for part, start in zip(others, starts, strict=False)]
        return cls(append_rows(first.data, [part.data for part in others]), append_rows(first.offsets, offsets))

    @classmethod
    def from_arrow(cls, array: pa.Array | pa.ChunkedArray) -> Strings:
        """Convert an Arrow array of strings without nulls."""
        import pyarrow as pa

        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        array = array.cast(pa.large_string())
        _, offsets, data = array.buffers()
        if offsets is None or not len(array):
            return cls.of([])
        rows = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        return cls(np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), rows)

    def arrow(self) -> pa.LargeStringArray:
        """Return the column as an Arrow array, sharing memory."""
        import pyarrow as pa

        buffers = [pa.py_buffer(np.ascontiguousarray(part)) for part in (self.offsets, self.data)]
        return pa.Array.from_buffers(pa.large_string(), len(self), [None, *buffers])

    def packed(self) -> Strings:
        """Return the same strings without unused bytes before and after them."""
        start, stop = int(self.offsets[0]), int(self.offsets[-1])
        if start == 0 and stop == len(self.data):
            return self
        return Strings(self.data[start:stop], self.offsets - start)

    def take(self, rows: NDArray[np.integer]) -> Strings:
        """Return the strings of these rows, in this order."""
        return Strings.from_arrow(self.arrow().take(np.asarray(rows)))

    def tolist(self) -> list[str]:
        """Return all strings as a list."""
        packed = self.packed()
        raw, ends = packed.data.tobytes(), packed.offsets.tolist()
        return [raw[start:stop].decode() for start, stop in pairwise(ends)]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Strings: ...
    def __getitem__(self, index: int | slice) -> str | Strings:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return self.take(np.arange(start, stop, step))
            return Strings(self.data, self.offsets[start : max(start, stop) + 1])
        row = range(len(self))[index]
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes().decode()

    def __repr__(self) -> str:
        shown = ", ".join(repr(value) for value in self[:3])
        return f"Strings([{shown}{', …' if len(self) > 3 else ''}], length={len(self)})"


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
        isinstance(buffer, _Buffer)
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


Ids = Strings | NDArray[np.int64]


def to_arrow(ids: Ids) -> pa.Array:
    """Return the ids as an Arrow array, sharing memory."""
    import pyarrow as pa

    return ids.arrow() if isinstance(ids, Strings) else pa.array(ids)


def find(ids: Ids, wanted: pa.Array) -> NDArray[np.int64]:
    """Return the row of each wanted id; -1 if there is none.

    Between numbers and strings, ids match as they are written: "7" matches 7, "007" does not.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    known = to_arrow(ids)
    if isinstance(ids, Strings):
        wanted = _written(wanted)
    elif pa.types.is_integer(wanted.type) and not pa.types.is_uint64(wanted.type):
        wanted = wanted.cast(pa.int64())
    else:
        known, wanted = _written(known), _written(wanted)
    if len(wanted) > len(known) // 8:
        rows = pc.index_in(wanted, value_set=known, skip_nulls=True).fill_null(-1)
        return rows.to_numpy(zero_copy_only=False).astype(np.int64)
    # For a few ids: hash these, not all known ids.
    coded = wanted.dictionary_encode()
    places = pc.index_in(known, value_set=coded.dictionary.cast(known.type), skip_nulls=True)
    row_of = np.full(len(coded.dictionary) + 1, -1)
    present = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
    row_of[places.drop_null().to_numpy()] = present
    return row_of[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]


def find_all(ids: Ids, columns: Sequence[pa.Array]) -> list[NDArray[np.int64]]:
    """Return the row of each id of several columns, as `find` does, in one pass over the ids if possible."""
    import pyarrow as pa

    if isinstance(ids, Strings):
        columns = [_written(column) for column in columns]
    if len({column.type for column in columns}) != 1:
        return [find(ids, column) for column in columns]
    rows = find(ids, pa.concat_arrays(columns))
    return np.split(rows, np.cumsum([len(column) for column in columns[:-1]]))


def _written(column: pa.Array) -> pa.Array:
    """Return ids as strings; whole numbers that became floats (because of gaps) as whole numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = column.cast(pa.large_string())
    if not pa.types.is_floating(column.type):
        return text
    is_whole = pc.and_(pc.equal(pc.floor(column), column), pc.less(pc.abs(column), 2.0**53))
    whole = pc.if_else(is_whole, column, None).cast(pa.int64()).cast(pa.large_string())
    return pc.coalesce(whole, text)


def first_duplicate(ids: Ids) -> tuple[int, int] | None:
    """Return the first row whose id occurs before, and the row where it does; None if all ids differ."""
    codes = to_arrow(ids).dictionary_encode()
    if len(codes.dictionary) == len(ids):
        return None
    values = codes.indices.to_numpy()
    _, first = np.unique(values, return_index=True)
    again = np.setdiff1d(np.arange(len(ids)), first)[0]
    return int(again), int(first[values[again]])


def join(parts: Sequence[Ids]) -> Ids:
    """Concatenate columns; if one has strings, whole numbers become strings."""
    numbers = [part for part in parts if isinstance(part, np.ndarray)]
    if len(numbers) == len(parts):
        return append_rows(numbers[0], numbers[1:])
    return Strings.concat(part if isinstance(part, Strings) else Strings.of(map(str, part.tolist())) for part in parts)


def at(ids: Ids, row: int | np.integer) -> str | int:
    """Return the id of one row as a Python string or number."""
    return ids[int(row)] if isinstance(ids, Strings) else int(ids[row])


def take(ids: Ids, rows: NDArray[np.integer]) -> Ids:
    """Return the ids of these rows, in this order."""
    return ids.take(rows) if isinstance(ids, Strings) else ids[rows]
