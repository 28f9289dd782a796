"""Read CSV and Parquet files. If the fast reader fails, a second, slow pass finds the row."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import itertools
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError, Origin, os_error

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_FORMATS = "name it .csv, .csv.gz, .tsv, .tsv.gz or .parquet, according to its format"
_AGAIN = "copy or download it again"
_LONGEST_FIELD = 2**30
_CHUNK = 2**20
LEAST_LIMIT = 256_000_000
_LIMIT = "EVERGRAPH_MAX_UNPACKED"
_PROBE = 2**12  # bytes that Arrow reads of each column to check what the file declares
_BLOCK = 2**26  # bytes of the longest row
_STREAM = 2**24  # bytes of a text file that are parsed at once
_TAIL = 2**12  # bytes in which the end of a row is looked for first
_AHEAD = 2  # blocks that are parsed before they are used
_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12}  # bytes of a value; 8 of all others
_ONCE = {
    "PLAIN",
    "RLE",
    "BIT_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
}  # encodings that hold each string as often as it occurs
_DICTIONARY = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}
_SEPARATORS = {";": "';'", "\t": "tabs", "|": "'|'", ",": "commas"}


@dataclass(frozen=True)
class TableFile:
    """A table in a file whose header has been read: the names of its columns, and its origin for errors."""

    path: Path
    names: list[str]
    origin: Origin

    @property
    def is_parquet(self) -> bool:
        """Whether it is a Parquet file, not a text file."""
        return _is_parquet(self.path)

    def read(self, columns: Sequence[str], numbers: Sequence[str] = ()) -> pa.Table:
        """Read some columns; from a text file as strings, unchanged, but ``numbers`` as float32 if all cells are."""
        import pyarrow as pa

        if self.is_parquet:
            return self._as_text(read_parquet(self.path, list(dict.fromkeys([*columns, *numbers]))))
        if numbers:
            with contextlib.suppress(pa.ArrowInvalid):  # there is a cell that is not a number
                return _joined(list(csv_batches(self, columns, numbers)))
        return _joined(list(self.batches([*columns, *numbers])))

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read some columns part by part, from a text file as strings; an error may follow parts that are good."""
        import pyarrow as pa

        if self.is_parquet:
            yield from map(self._as_text, parquet_batches(self.path, list(dict.fromkeys(columns))))
            return
        try:
            yield from csv_batches(self, columns)
        except pa.ArrowInvalid as error:
            raise _diagnosis(self, error) from error

    def _as_text(self, table: pa.Table) -> pa.Table:
        """Return a table in which bytes are text, as some programs store it."""
        import pyarrow as pa

        for place, field in enumerate(table.schema):
            if "binary" in str(field.type):
                try:
                    text = table.column(place).cast(pa.large_binary()).cast(pa.large_string())
                except (pa.ArrowException, UnicodeError):
                    self.origin.fail("the text is not UTF-8", column=field.name, fix="write it as UTF-8")
                table = table.set_column(place, field.name, text)
        return table


def _joined(parts: list[pa.Table]) -> pa.Table:
    """Concatenate tables; a column's memory in the parts is freed before the next column is copied."""
    import pyarrow as pa

    columns = {}
    for name in parts[0].column_names:
        columns[name] = pa.concat_arrays([chunk for part in parts for chunk in part.column(name).chunks])
        parts[:] = [part.drop_columns([name]) for part in parts]
    return pa.table(columns)


def open_table(path: str | Path) -> TableFile:
    """Read the header of a table; an error says what is wrong with it."""
    path = Path(path)
    if _is_parquet(path):
        with open_parquet(path) as file:
            names = file.schema_arrow.names
        origin = Origin(path)
    else:
        with reading(path), open_bytes(path) as file:
            start = b"" if _is_gzip(path) else file.read(2)
        if not path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv")):
            raise InputError("the file name does not end in a known format", file=path, fix=_FORMATS)
        if start == b"\x1f\x8b":
            raise InputError("the file is compressed", file=path, fix="let its name end in .gz")
        with _csv_rows(path) as rows:
            names = next(iter(rows), [])
        if not names:
            raise InputError("the file is empty", file=path, fix="give a table with a header and rows")
        other = [word for mark, word in _SEPARATORS.items() if mark in names[0]]
        if len(names) == 1 and other:
            raise InputError(
                f"the cells seem to be separated by {other[0]}",
                file=path,
                fix="separate them by commas, or by tabs in a .tsv file",
            )
        origin = Origin(path, lambda row: _line_of(path, row))
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        origin.fail(f"two columns are named '{double}'", column=double, fix="give each column its own name")
    return TableFile(path, names, origin)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn failures to read a file into errors that say what to do."""
    try:
        yield
    except FileNotFoundError:
        raise InputError("there is no such file", file=path, fix="check the path") from None
    except IsADirectoryError:
        raise InputError("this is a folder, not a file", file=path, fix="name the file inside it") from None
    except PermissionError as error:
        raise os_error(error, "the file cannot be read", file=path) from None
    except UnicodeDecodeError as error:
        raise InputError(f"the text is not UTF-8 ({error.reason})", file=path, fix="save it as UTF-8") from error
    except EOFError:
        raise InputError("the compressed file ends too early: it is truncated", file=path, fix=_AGAIN) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"the compressed file is damaged ({error})", file=path, fix="copy it again, or name it without .gz"
        ) from error


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file to read bytes, decompressed if its name ends in .gz."""
    if path.is_dir():
        raise IsADirectoryError(path)
    return io.BufferedReader(_Decompressed(path), _CHUNK) if _is_gzip(path) else path.open("rb")


def unpacked_limit(path: Path, least: int = LEAST_LIMIT) -> int:
    """Return how many bytes a compressed file may unpack to: 100 times its size or ``least``, whichever is more.

    The environment variable ``EVERGRAPH_MAX_UNPACKED``, in GB, replaces this limit. Tables and text rarely shrink to
    less than a twentieth.
    """
    given = os.environ.get(_LIMIT)
    if not given:
        return max(100 * path.stat().st_size, least)
    try:
        if (limit := int(float(given) * 1e9)) > 0:
            return limit
        raise ValueError
    except (ValueError, OverflowError):
        raise InputError(f"{_LIMIT} is {given!r}", fix="set it to a number of GB, such as 8") from None


def raise_limit(limit: int) -> str:
    """Return the advice for a file that unpacks to more than the limit."""
    return f"if you trust it, raise the limit: set {_LIMIT}, in GB, to more than {limit / 1e9:g}"


class _Decompressed(io.RawIOBase):
    """The content of a .gz file, refused where it exceeds the limit."""

    def __init__(self, path: Path) -> None:
        self.path, self.limit, self.count = path, unpacked_limit(path), 0
        self.file = gzip.open(path, "rb")  # noqa: SIM115 (closed by close)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self.file.readinto(buffer)
        self.count += size
        if self.count > self.limit:
            raise _too_large(self.path, self.limit)
        return size

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(_CHUNK) or b"", b""))

    def close(self) -> None:
        self.file.close()
        super().close()


def _is_gzip(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _delimiter(path: Path) -> str:
    return "\t" if ".tsv" in path.name.lower() else ","


@contextmanager
def open_parquet(path: Path, **options: Any) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; errors while it is used say what is wrong with it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path):
        path.open("rb").close()  # Arrow's errors of the disk do not differ from those of damage
        try:
            file = pq.ParquetFile(path, **options)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            problem = "this is not a Parquet file, or it is damaged"
            raise _parquet_error(path, error, problem, f"{_AGAIN}, or {_FORMATS}") from error
        try:
            with file:
                yield file
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise _parquet_error(path, error, "the Parquet file is damaged", _AGAIN) from error


def _parquet_error(path: Path, error: Exception, problem: str, fix: str) -> InputError:
    if "crypt" in str(error):
        problem, fix = "the Parquet file is encrypted, or damaged", "write it without encryption"
    return InputError(f"{problem} ({_first_line(error)})", file=path, fix=fix)


def read_parquet(path: Path, columns: Sequence[str]) -> pa.Table:
    """Read columns of a Parquet file, refused where they exceed `unpacked_limit`."""
    import pyarrow as pa

    return pa.concat_tables(list(parquet_batches(path, columns)))


def parquet_batches(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Read columns of a Parquet file in batches, refused where they exceed `unpacked_limit`; at least one batch."""
    import pyarrow as pa

    limit = unpacked_limit(path)
    with open_parquet(path, buffer_size=_PROBE) as file:
        size, rows, texts = _parquet_sizes(file, columns, limit)
    with open_parquet(path, read_dictionary=texts) as file:
        if size > limit:
            raise _too_large(path, limit, size)
        fields = [file.schema_arrow.field(name) for name in columns]
        types = [field.type.value_type if field.name in texts else field.type for field in fields]
        schema = pa.schema(list(zip(columns, types, strict=True)))
        yield schema.empty_table()
        size = 0
        for batch in file.iter_batches(rows, columns=list(columns), use_threads=False):
            batch.validate(full=True)  # Arrow does not check that text is UTF-8
            part = []
            for name in columns:
                column = batch.column(name)
                size += _unpacked_size(column)
                if size > limit:
                    raise _too_large(path, limit)
                part.append(column.dictionary_decode() if name in texts else column)
            yield pa.table(part, schema=schema)


def _parquet_sizes(file: pq.ParquetFile, columns: Sequence[str], limit: int) -> tuple[int, int, list[str]]:
    """Return the declared size, how many rows can be read at once, and the columns with dictionaries of strings.

    A dictionary can repeat a long string at the cost of some bits, so these columns are not expanded before their size
    is known. Other encodings of strings that can repeat parts are read in few rows, each shorter than the column.
    """
    import pyarrow as pa

    paths = {place: file.schema.column(place).path for place in range(len(file.schema))}
    paths = {place: path for place, path in paths.items() if any(f"{path}.".startswith(f"{name}.") for name in columns)}
    if not paths:
        raise pa.ArrowInvalid("its columns hold no values")
    size, rows, texts = 0, 65_536, set()
    for number in range(file.metadata.num_row_groups):
        # If the footer contradicts itself, `column` below aborts the process. Arrow checks the same before it reads
        # rows, but then raises an error. This reads none.
        for _ in file.reader.iter_batches(0, [number], column_indices=list(paths), use_threads=False):
            pass
        group = file.metadata.row_group(number)
        for place, path in paths.items():
            chunk = group.column(place)
            kind = chunk.physical_type
            width = _WIDTHS.get(kind, 8) if kind != "FIXED_LEN_BYTE_ARRAY" else file.schema.column(place).length
            size += max(chunk.total_uncompressed_size, chunk.num_values * width, 0)
            if kind == "BYTE_ARRAY":
                is_column = path in file.schema_arrow.names
                texts |= {path} if is_column and chunk.has_dictionary_page else set()
                if not set(chunk.encodings) <= (_ONCE | _DICTIONARY if is_column else _ONCE):
                    rows = min(rows, max(1, limit // max(1, chunk.total_uncompressed_size)))
    return size, rows, sorted(texts)


def _unpacked_size(column: pa.Array) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return column.nbytes
    lengths = pc.binary_length(column.dictionary).cast(pa.int64())
    return 8 * len(column) + (pc.sum(lengths.take(column.indices)).as_py() or 0)


def _too_large(path: Path, limit: int, declared: int = 0) -> InputError:
    size = f"{declared:,} or more" if declared > limit else f"more than {limit:,}"
    return InputError(
        f"the file has {path.stat().st_size:,} bytes, but unpacks to {size}",
        file=path,
        fix=raise_limit(max(declared, limit)),
    )


def csv_batches(table: TableFile, columns: Sequence[str], numbers: Sequence[str] = ()) -> Iterator[pa.Table]:
    """Read columns of a text file block by block: as strings, and ``numbers`` as float32; at least one batch.

    Blocks are parsed in threads, a few ahead of the one that is used, so memory is bounded. Cells that cannot be read
    raise `pyarrow.ArrowInvalid`.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    kinds = dict.fromkeys(columns, pa.large_string()) | dict.fromkeys(numbers, pa.float32())
    chosen = arrow_csv.ConvertOptions(include_columns=list(kinds), column_types=kinds, strings_can_be_null=False)
    lines = rows = 0

    def parse(numbered: tuple[int, tuple[pa.Buffer, int, bool]]) -> tuple[pa.Table, int]:
        number, (block, newlines, has_quotes) = numbered
        # One block for Arrow too, in which it cuts no row.
        read = arrow_csv.ReadOptions(
            use_threads=False, block_size=max(block.size, 1), column_names=table.names if number else None
        )
        parsed = arrow_csv.ParseOptions(delimiter=_delimiter(table.path), newlines_in_values=has_quotes)
        return arrow_csv.read_csv(pa.BufferReader(block), read, parsed, chosen), newlines

    with reading(table.path), open_bytes(table.path) as raw:
        for found, newlines in map_ahead(parse, enumerate(_blocks(table, raw))):
            lines += newlines
            rows += found.num_rows
            yield found
    if lines > rows + 1:
        _check_quotes(table)


def map_ahead(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yield the result of each item, in order; a few items ahead of the one that is used are computed in threads."""
    with ThreadPoolExecutor(_AHEAD) as pool:
        waiting: deque[Future[_Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _blocks(table: TableFile, raw: IO[bytes]) -> Iterator[tuple[pa.Buffer, int, bool]]:
    """Yield blocks of whole rows, how many line ends each has, and whether it has quotes."""
    import pyarrow as pa

    rest, is_last, lines = b"", False, 0
    while not is_last:
        size = max(_STREAM, 2 * len(rest)) - len(rest)
        # Memory of Arrow. If it were Python's, the last of Arrow's threads to let go of it would need the interpreter's
        # lock, and abort the process if the interpreter is about to end.
        memory = pa.allocate_buffer(len(rest) + size)
        view = memoryview(memory).cast("B")
        view[: len(rest)] = rest
        end = len(rest)
        while end < len(view) and (count := raw.readinto(view[end:])):  # type: ignore[attr-defined]
            end += count
        is_last = end < len(view)
        content = np.frombuffer(view, np.uint8, end)
        has_quotes = bool((content == _QUOTE).any())
        mark = len(codecs.BOM_UTF8) if not lines and content[:3].tobytes() == codecs.BOM_UTF8 else 0
        cut = end if is_last else mark + _row_end(content[mark:], has_quotes, _delimiter(table.path))
        if cut == mark and end > _BLOCK:
            while raw.read(_CHUNK):  # it may unpack to more than is allowed, which is the more useful error
                pass
            raise InputError(f"a row is longer than {_BLOCK >> 20} MB", file=table.path, fix="shorten its cells")
        cut = cut if cut > mark else 0
        rest = content[cut:].tobytes()
        if cut:
            lines = int(np.count_nonzero(content[:cut] == _NEWLINE))
            yield memory.slice(0, cut), lines, has_quotes


def _row_end(content: NDArray[np.uint8], has_quotes: bool, delimiter: str) -> int:
    """Return the end of the last whole row; 0 if there is none."""
    if has_quotes:
        from evergraph.datasets.quoted import last_row_end

        return int(last_row_end(content, ord(delimiter)))
    ends = np.flatnonzero(content[-_TAIL:] == _NEWLINE) + max(len(content) - _TAIL, 0)
    if not len(ends):
        ends = np.flatnonzero(content == _NEWLINE)
    if not len(ends):  # of a file in which lines end with \r only
        ends = np.flatnonzero(content[:-1] == _RETURN)
    return int(ends[-1]) + 1 if len(ends) else 0


def _check_quotes(table: TableFile) -> None:
    """Refuse a quote that is never closed: the fast reader reads everything after it as one long cell.

    The sign is more lines than rows, which quoted line ends and empty lines cause too. Few tables need this pass.
    """
    row = -1
    with _csv_rows(table.path, strict=True) as rows:
        try:
            for _ in rows:
                row += 1
        except csv.Error:
            table.origin.fail(
                'a cell that starts with " is not closed with " before the next comma or line end',
                row=row,
                fix='close it, and write " inside of quotes as ""',
            )


def _diagnosis(table: TableFile, failure: Exception) -> InputError:
    """Read again row by row, to find where the fast reader failed."""
    if "straddl" in str(failure):
        return InputError(f"a row is longer than {_BLOCK >> 20} MB", file=table.path, fix="shorten its cells")
    with _csv_rows(table.path) as rows:
        for row, cells in enumerate(itertools.islice(rows, 1, None)):
            if len(cells) != len(table.names):
                table.origin.fail(
                    f"{len(cells)} cells, but the header has {len(table.names)}",
                    row=row,
                    fix='give each row as many, and put cells with commas or line ends into "quotes"',
                )
    return InputError(f"the table cannot be read ({_first_line(failure)})", file=table.path, fix=_FORMATS)


@contextmanager
def _csv_rows(path: Path, *, strict: bool = False) -> Iterator[Any]:
    """Yield rows of cells, header first, without empty lines, from Python's own reader."""
    csv.field_size_limit(_LONGEST_FIELD)
    with reading(path), open_bytes(path) as raw:
        text = io.TextIOWrapper(_Utf8Lines(raw, path), encoding="utf-8-sig", newline="")  # type: ignore[type-var]
        try:
            yield _Rows(csv.reader(text, delimiter=_delimiter(path), strict=strict))
        except csv.Error as error:
            raise InputError(f"the table cannot be read ({error})", file=path, fix=_FORMATS) from error
        finally:
            text.detach()


class _Rows:
    """Rows that are not empty, and the line on which the last one started."""

    def __init__(self, reader: Any) -> None:
        self.reader, self.line = reader, 0

    def __iter__(self) -> Iterator[list[str]]:
        while True:
            before = self.reader.line_num
            cells = next(self.reader, None)
            if cells is None:
                return
            if cells:
                self.line = before + 1
                yield cells


class _Utf8Lines(io.RawIOBase):
    """Pass bytes on line by line, so that an error for bytes that are not UTF-8 names the line."""

    def __init__(self, raw: IO[bytes], path: Path) -> None:
        self.raw, self.path, self.line = raw, path, 1
        self.decoder = codecs.getincrementaldecoder("utf-8")()  # a letter may be cut between two pieces of a line

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.raw.readline(len(buffer))
        try:
            self.decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise InputError(
                f"the text is not UTF-8 (byte {error.object[error.start : error.end]!r})",
                file=self.path,
                row=self.line - 1 or None,
                line=self.line,
                fix="save the file as UTF-8",
            ) from None
        self.line += data.endswith(b"\n")
        buffer[: len(data)] = data
        return len(data)


def _line_of(path: Path, row: int) -> int | None:
    """Return the line on which a row (counted from 0, without the header) starts."""
    try:
        with _csv_rows(path) as rows:
            for _ in itertools.islice(rows, row + 2):
                pass
            return int(rows.line)
    except InputError:
        return None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")
