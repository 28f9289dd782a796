"""The original texts of vertices, compressed in chunks that can be read one by one from a memory map."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import DamagedGraphError
from evergraph.graph.blocks import joined
from evergraph.graph.ids import Strings

__all__ = ["Texts"]

_TEXTS = 512  # in a chunk, at most
_BYTES = 2**16  # in a chunk before compression; a chunk of one text may be larger
_RATIO = 100  # a chunk that would shrink more is stored uncompressed, so a reader can refuse what unpacks to more
_ZSTD = b"zstd"  # how a chunk starts that is not compressed with zlib
_MANY_CHUNKS = 16  # from which threads pay
_LENGTH = np.dtype("<u4")
_OTHER_SIZE = "a chunk has another size"


@dataclass(frozen=True, eq=False)
class Texts:
    """One text per vertex; empty where a vertex has none.

    A chunk holds the lengths of its texts in bytes, followed by the texts. It is "zstd", its size before compression as
    eight bytes, and the data as zstd compresses it. In older graphs, and if it is stored uncompressed, it is in the
    format of zlib. Appending adds chunks and leaves the others as they are.

    Parameters
    ----------
    data
        The chunks, one behind the other.
    offsets
        Where each chunk starts in ``data``, and the end of the last one.
    starts
        The first text of each chunk, and the number of texts.
    file
        The file that holds the chunks, to name it in errors.

    Examples
    --------
    >>> texts = Texts.of(["One text.", "", "Größer"])
    >>> texts[2], texts[:2], texts[np.array([2, 0])], len(texts)
    ('Größer', ['One text.', ''], ['Größer', 'One text.'], 3)
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    starts: NDArray[np.int64]
    file: Path | None = None

    @classmethod
    def of(cls, texts: Iterable[str] | Strings) -> Texts:
        """Compress texts."""
        column = (texts if isinstance(texts, Strings) else Strings.of(texts)).packed()
        ends, raw = column.offsets, column.data
        lengths = np.diff(ends).astype(_LENGTH)
        starts = [0]
        while (start := starts[-1]) < len(column):
            fits = int(np.searchsorted(ends, ends[start] + _BYTES, side="right")) - 1
            starts.append(min(max(fits, start + 1), start + _TEXTS, len(column)))

        def chunk(start: int, stop: int) -> bytes:
            return _compress(lengths[start:stop].tobytes() + raw[ends[start] : ends[stop]].tobytes())

        if len(starts) <= _MANY_CHUNKS:
            chunks = list(map(chunk, starts[:-1], starts[1:]))
        else:
            with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # compressing releases the interpreter lock
                chunks = list(pool.map(chunk, starts[:-1], starts[1:]))
        offsets = np.cumsum([0, *map(len, chunks)], dtype=np.int64)
        return cls(np.frombuffer(b"".join(chunks), np.uint8), offsets, np.array(starts, np.int64))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __iter__(self) -> Iterator[str]:
        for chunk in range(len(self.starts) - 1):
            yield from self._chunk(chunk)

    @overload
    def __getitem__(self, rows: int) -> str: ...
    @overload
    def __getitem__(self, rows: slice | NDArray[np.integer] | Sequence[int]) -> list[str]: ...
    def __getitem__(self, rows: Any) -> str | list[str]:
        """Return the text of a row, or the texts of several; only the chunks that hold them are decompressed."""
        if isinstance(rows, (int, np.integer)):
            return self[[range(len(self))[rows]]][0]
        wanted = np.arange(len(self))[rows] if isinstance(rows, slice) else np.asarray(rows, np.int64)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise IndexError("a row is out of range")
        if not len(wanted):
            return []
        order = np.argsort(wanted, kind="stable")
        chunks = np.searchsorted(self.starts, wanted[order], side="right") - 1
        first = np.flatnonzero(np.diff(chunks, prepend=-1))
        found: list[str] = [""] * len(wanted)
        for chunk, places in zip(chunks[first].tolist(), np.split(order, first[1:]), strict=True):
            texts, inside = self._chunk(chunk), wanted[places] - self.starts[chunk]
            if not 0 <= inside.min() <= inside.max() < len(texts):
                raise self._damaged("a chunk has other texts")
            for place, row in zip(places.tolist(), inside.tolist(), strict=True):
                found[place] = texts[row]
        return found

    def rows(self, part: slice) -> Texts:
        """Return a range of vertices in new chunks."""
        return Texts.of(self[part])

    def take(self, rows: NDArray[np.integer]) -> Texts:
        """Return the vertices of these rows, in this order, in new chunks."""
        return Texts.of(self[rows])

    def place(self, more: Texts) -> Texts:
        """Return the texts of new vertices as `stack` takes them."""
        return more

    def stack(self, parts: Iterable[Texts]) -> Texts:
        """Append the chunks of the parts."""
        parts = list(parts)
        bytes_before = np.cumsum([self.offsets[-1], *(part.offsets[-1] for part in parts)])
        texts_before = np.cumsum([len(self), *map(len, parts)])
        return Texts(
            joined(self.data, [part.data for part in parts]),
            joined(self.offsets, [part.offsets[1:] for part in parts], bytes_before[:-1].tolist()),
            joined(self.starts, [part.starts[1:] for part in parts], texts_before[:-1].tolist()),
        )

    def is_valid(self, count: int) -> bool:
        """Whether there are chunks for this number of texts; what they hold is checked when it is read."""
        return len(self.offsets) == len(self.starts) and all(
            len(ends) and ends[0] == 0 and ends[-1] == last and (ends[1:] > ends[:-1]).all()
            for ends, last in ((self.offsets, len(self.data)), (self.starts, count))
        )

    def _chunk(self, chunk: int) -> list[str]:
        packed = self.data[self.offsets[chunk] : self.offsets[chunk + 1]].tobytes()
        count = int(self.starts[chunk + 1] - self.starts[chunk])
        try:
            raw = _decompress(packed)
            if not 0 < count <= len(raw) // _LENGTH.itemsize:
                raise ValueError(_OTHER_SIZE)
            ends = np.cumsum([_LENGTH.itemsize * count, *np.frombuffer(raw, _LENGTH, count).tolist()]).tolist()
            if ends[-1] != len(raw):
                raise ValueError("the lengths do not add up")
            return [raw[start:stop].decode() for start, stop in pairwise(ends)]
        except (zlib.error, OSError, ValueError) as error:
            raise self._damaged(error) from error

    def _damaged(self, problem: object) -> DamagedGraphError:
        fix = "import the graph again, or restore it from a backup"
        return DamagedGraphError(f"the texts are damaged ({problem})", file=self.file, fix=fix)


def _compress(raw: bytes) -> bytes:
    import pyarrow as pa

    packed = _ZSTD + len(raw).to_bytes(8, "little") + pa.compress(raw, codec="zstd", asbytes=True)
    return packed if len(raw) <= _RATIO * len(packed) else zlib.compress(raw, 0)


def _decompress(packed: bytes) -> bytes:
    """Return the content of a chunk; raise an error if it is damaged or unpacks to far more than its size."""
    if packed.startswith(_ZSTD):
        import pyarrow as pa

        start = len(_ZSTD) + 8
        size = int.from_bytes(packed[len(_ZSTD) : start], "little")
        if size > _RATIO * len(packed):
            raise ValueError(_OTHER_SIZE)
        found: bytes = pa.decompress(packed[start:], size, codec="zstd", asbytes=True)
        return found
    unpacker = zlib.decompressobj()
    raw = unpacker.decompress(packed, _RATIO * len(packed) + 1)
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError(_OTHER_SIZE)
    return raw
