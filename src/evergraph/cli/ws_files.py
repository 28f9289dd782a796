"""Tables that the commands of a workspace write: CSV or Parquet, at once or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_CSV, _PARQUET = ".csv", ".parquet"


def check_out(out: Path | None, *, replace: bool, parquet: bool = True) -> None:
    """Refuse a file that could not be written, before anything is done."""
    if out is None:
        return
    known = [_CSV, _PARQUET] if parquet else [_CSV]
    if out.suffix.lower() not in known:
        raise InputError("the name does not tell the format", file=out, fix=f"let it end in {' or '.join(known)}")
    if out.is_dir():
        raise InputError("this is a folder, not a file", file=out, fix="name a file in it")
    if not out.parent.is_dir():
        raise InputError("there is no such folder", file=out.parent, fix="make it, or choose another")
    if out.exists() and not replace:
        raise InputError("there is a file already", file=out, fix="choose another name, or give --replace")


def write_table(out: Path, table: pa.Table) -> None:
    """Write a table, in the format that the file's name tells."""
    if out.suffix.lower() == _CSV:
        write_csv(out, table.column_names, zip(*(column.to_pylist() for column in table.columns), strict=True))
        return
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    _write(out, buffer.getvalue())


def write_csv(out: Path, names: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write rows under their names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    _write(out, text.getvalue().encode())


def _write(out: Path, data: bytes) -> None:
    from evergraph.storage.files import write_atomic

    try:
        write_atomic(out, data)
    except BaseException:
        out.with_name(f"{out.name}.new").unlink(missing_ok=True)
        raise
