"""Tables in requests: JSON, CSV and Parquet bodies as the workspace reads them."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from python_multipart.multipart import parse_options_header
from starlette.requests import Request

from evergraph.errors import InputError
from evergraph.graph.columns import Columns
from evergraph.service.problems import UPLOAD, TooLargeError, UnknownFormatError

__all__ = [
    "CSV",
    "JSON",
    "MULTIPART",
    "PARQUET",
    "TSV",
    "columns_of",
    "content_type",
    "remove_leftovers",
    "saved",
    "uploads",
]

JSON, CSV, TSV, PARQUET, MULTIPART = (
    "application/json",
    "text/csv",
    "text/tab-separated-values",
    "application/vnd.apache.parquet",
    "multipart/form-data",
)
_SUFFIXES = {CSV: ".csv", TSV: ".tsv", PARQUET: ".parquet"}


def content_type(request: Request, *allowed: str) -> str:
    """Return the type of the body; refuse those that are not allowed."""
    given = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if given not in allowed:
        raise UnknownFormatError(f"the body is of the type {given!r}", fix=f"send one of {', '.join(allowed)}")
    return given


def columns_of(rows: list[dict[str, Any]], names: dict[str, str], most: int) -> dict[str, list[Any]] | None:
    """Return the columns of rows, with the usual names instead of those of the workspace; None without rows."""
    if not rows:
        return None
    check_rows(len(rows), most)
    keys = dict.fromkeys(key for row in rows for key in row)
    usual = {own: name for name, own in names.items() if own in keys and name not in keys}
    return {usual.get(key, key): [row.get(key) for row in rows] for key in keys}


def own_names(columns: Columns) -> dict[str, str]:
    """Return the names of the workspace's columns by their usual names."""
    named = {"id": columns.id, "time": columns.time, "label": columns.label, "text": columns.text}
    named |= {"source": columns.source, "target": columns.target}
    return {name: own for name, own in named.items() if own}


def check_rows(number: int, most: int) -> None:
    """Refuse tables with too many rows."""
    if number > most:
        raise TooLargeError(
            f"a table has {number:,} rows, and the service accepts {most:,}",
            fix="send it in several parts, or start the service with a larger --max-rows",
        )


@contextmanager
def saved(parts: dict[str, tuple[str, bytes]], most: int) -> Iterator[dict[str, Path]]:
    """Save tables, given as type and bytes by name, in a folder that exists only inside the ``with``."""
    folder = Path(tempfile.mkdtemp(prefix=f"{UPLOAD}{os.getpid()}-"))
    try:
        found = {}
        for name, (kind, data) in parts.items():
            path = found[name] = folder / f"{name}{_SUFFIXES[kind]}"
            path.write_bytes(data)
            check_rows(_count(kind, data), most)
        yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers() -> None:
    """Remove the folders of services that were killed; call it before the first request."""
    for folder in Path(tempfile.gettempdir()).glob(f"{UPLOAD}*-*"):
        process = folder.name.removeprefix(UPLOAD).partition("-")[0]
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.getuid() and process.isdigit() and not _runs(int(process)):
                shutil.rmtree(folder)


def _runs(process: int) -> bool:
    """Whether another process with this number runs."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OverflowError, OSError):
        return True
    return True


def _count(kind: str, data: bytes) -> int:
    """Return the number of rows, or an upper bound; 0 for a damaged table, which is refused when it is read."""
    if kind != PARQUET:
        return data.count(b"\n") + data.count(b"\r")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.ParquetFile(io.BytesIO(data)).metadata.num_rows)
    except (pa.ArrowException, OSError, ValueError):
        return 0


async def uploads(request: Request, *names: str) -> dict[str, tuple[str, bytes]]:
    """Return the files of a multipart body by name, each with its type and content."""
    found = {}
    await _check_end(request)
    async with request.form(max_files=len(names), max_fields=8) as form:
        for name in form:
            if name not in names:
                raise InputError(f"there is no part {name!r}", fix=f"name the parts {' and '.join(names)}")
            part = form[name]
            if isinstance(part, str):
                raise InputError(f"the part {name!r} is a field, not a file", fix="send it as a file")
            suffix = Path(part.filename or "").suffix.lower()
            given = (part.content_type or "").partition(";")[0].strip().lower()
            known = () if suffix == ".gz" else _SUFFIXES.items()  # a compressed table may have any number of rows
            kind = next((kind for kind, one in known if one == suffix or kind == given), None)
            if kind is None:
                raise InputError(
                    f"the format of the part {name!r} is not known",
                    fix="let its file name end in .csv, .tsv or .parquet",
                )
            found[name] = (kind, await part.read())
    return found


async def _check_end(request: Request) -> None:
    """Refuse a multipart body that is cut off, whose last part would be lost or incomplete."""
    boundary = parse_options_header(request.headers.get("content-type"))[1].get(b"boundary")
    if boundary and b"--" + boundary + b"--" not in (await request.body())[-1000:]:
        raise InputError("the multipart body has no end", fix="send all of it, up to its last boundary")
