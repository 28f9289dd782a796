"""Columns of strings as UTF-8 bytes and offsets: they map from disk at once and cost no Python object a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


class Strings(Sequence[str]):
    """An immutable column of strings.

    The layout is that of Arrow's ``large_string``, so that `arrow` hands the column to Arrow's compute functions
    without a copy, while opening a graph does not need Arrow at all.

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
        """Column of Python strings."""
        encoded = [value.encode() for value in values]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(value) for value in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    @classmethod
    def from_arrow(cls, array: pa.Array | pa.ChunkedArray) -> Strings:
        """Column of an Arrow array of strings without nulls."""
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
        """The same column as an Arrow array, sharing memory."""
        import pyarrow as pa

        buffers = [
            None,
            pa.py_buffer(np.ascontiguousarray(self.offsets)),
            pa.py_buffer(np.ascontiguousarray(self.data)),
        ]
        return pa.Array.from_buffers(pa.large_string(), len(self), buffers)

    def packed(self) -> Strings:
        """The same strings with no bytes of others around them."""
        start, stop = int(self.offsets[0]), int(self.offsets[-1])
        return Strings(self.data[start:stop], self.offsets - start)

    def take(self, rows: NDArray[np.integer]) -> Strings:
        """The strings of these rows, in this order."""
        return Strings.from_arrow(self.arrow().take(_indices(rows)))

    def tolist(self) -> list[str]:
        """All strings as a list."""
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


def _indices(rows: NDArray[np.integer]) -> pa.Array:
    import pyarrow as pa

    return pa.array(np.asarray(rows))
