"""Vertex ids (strings or whole numbers): look up, join, find duplicates; and immutable columns of strings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.blocks import Blocks, joined

if TYPE_CHECKING:
    import pyarrow as pa

    from evergraph.graph.hashed import IdIndex


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
        for part in (data, offsets):
            if isinstance(part, np.ndarray):
                part.flags.writeable = False

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
        offsets = joined(first.offsets, [part.offsets[1:] for part in others], starts[:-1].tolist())
        return cls(joined(first.data, [part.data for part in others]), offsets)

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


Ids = Strings | NDArray[np.int64]


def to_arrow(ids: Ids) -> pa.Array:
    """Return the ids as an Arrow array, sharing memory."""
    import pyarrow as pa

    return ids.arrow() if isinstance(ids, Strings) else pa.array(np.asarray(ids))


def find(ids: Ids, wanted: pa.Array) -> NDArray[np.int64]:
    """Return the row of each wanted id; -1 if there is none.

    Between numbers and strings, ids match as they are written: "7" matches 7, "007" does not.
    """
    rows, start = np.full(len(wanted), -1, np.int64), 0
    for part in _parts(ids):
        found = _find(part, wanted)
        rows = np.where(found >= 0, found + start, rows) if start else found
        start += len(part)
    return rows


def _parts(ids: Ids) -> Iterator[Ids]:
    """Yield the ids block by block, so that large blocks are not copied."""
    column: Any = ids.offsets if isinstance(ids, Strings) else ids
    start = 0
    for block in column.blocks if isinstance(column, Blocks) else (column,):
        # The first block of offsets has one entry more than it has strings.
        stop = start + len(block) - int(isinstance(ids, Strings) and not start)
        yield ids[start:stop]
        start = stop


def _find(ids: Ids, wanted: pa.Array) -> NDArray[np.int64]:
    import pyarrow as pa
    import pyarrow.compute as pc

    known = to_arrow(ids.packed() if isinstance(ids, Strings) else ids)
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


def find_rows(ids: Ids, index: IdIndex | None, columns: Sequence[pa.Array]) -> list[NDArray[np.int32]]:
    """Return the row of each id of several columns, as `find` does, with the index of the ids if there is one."""
    import pyarrow as pa

    if index is not None and isinstance(ids, Strings):
        return [index.find(Strings.from_arrow(_written(column))) for column in columns]
    kinds = [column.type for column in columns]
    if index is not None and all(pa.types.is_integer(kind) and not pa.types.is_uint64(kind) for kind in kinds):
        return [index.find(np.array(column.cast(pa.int64()))) for column in columns]
    return [rows.astype(np.int32) for rows in find_all(ids, columns)]


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
    numbers = [part for part in parts if not isinstance(part, Strings)]
    if len(numbers) == len(parts):
        return joined(numbers[0], numbers[1:])
    return Strings.concat(part if isinstance(part, Strings) else Strings.of(map(str, part.tolist())) for part in parts)


def at(ids: Ids, row: int | np.integer) -> str | int:
    """Return the id of one row as a Python string or number."""
    return ids[int(row)] if isinstance(ids, Strings) else int(ids[row])


def as_ids(values: Sequence[int] | Sequence[str]) -> Ids:
    """Return Python strings or whole numbers as a column of ids."""
    if values and isinstance(values[0], str):
        return Strings.of(map(str, values))
    return np.array(values, np.int64)


def take(ids: Ids, rows: NDArray[np.integer]) -> Ids:
    """Return the ids of these rows, in this order."""
    return ids.take(rows) if isinstance(ids, Strings) else ids[rows]
