"""Damage to folders: bytes of a file, or content that is edited and gets a right checksum again."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from evergraph.storage.records import _checksum
from evergraph.workspace.store import DATABASE, SCHEMA
from tests.fuzz.mutate import EDGES, as_json, edited, garbled, odd_array, odd_npy, odd_tensors

Damage = Callable[[Random, Path], None]


def write(path: Path, data: bytes) -> None:
    """Write a new file: the old one may be mapped into memory."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def files(folder: Path, pattern: str = "*") -> list[Path]:
    """Return the files of a folder in a fixed order."""
    return sorted(path for path in folder.rglob(pattern) if path.is_file() and path.name != ".lock")


def some_bytes(rng: Random, folder: Path) -> None:
    """Change the bytes of one file, or remove it."""
    path = rng.choice(files(folder))
    if rng.random() < 0.01:
        path.unlink()
        if rng.random() < 0.5:
            path.mkdir()
        return
    write(path, garbled(rng, path.read_bytes(), [rng.choice(files(folder)).read_bytes()]))


def changing(pattern: str, change: Callable[[Random, bytes], bytes]) -> Damage:
    """Return a damage that changes the content of one file that matches a pattern."""

    def damage(rng: Random, folder: Path) -> None:
        path = rng.choice(files(folder, pattern))
        write(path, change(rng, path.read_bytes()))

    return damage


def json_values(rng: Random, data: bytes) -> bytes:
    """Edit a JSON document."""
    return as_json(rng, edited(rng, json.loads(data)))


def json_lines(rng: Random, data: bytes) -> bytes:
    """Edit one of the JSON documents that are lines."""
    lines = data.splitlines()
    place = rng.randrange(len(lines))
    lines[place] = json_values(rng, lines[place])
    return b"\n".join([*lines, b""])


def gzipped(rng: Random, data: bytes) -> bytes:
    """Change the content of a .gz file."""
    return gzip.compress(garbled(rng, gzip.decompress(data)), mtime=0)


def checksummed(rng: Random, data: bytes) -> bytes:
    """Edit the content of checksummed JSON and compute the checksum again."""
    return _sealed(rng, edited(rng, json.loads(json.loads(data)["content"])))


def _sealed(rng: Random, content: Any) -> bytes:
    text = as_json(rng, content).decode("utf-8", "surrogatepass")
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return json.dumps({"sha256": digest, "content": text}).encode()


def cells(rng: Random, data: bytes) -> bytes:
    """Change one cell of a CSV or TSV file."""
    mark = b"\t" if b"\t" in data else b","
    lines = [line.split(mark) for line in data.split(b"\n")]
    row = rng.choice(lines)
    row[rng.randrange(len(row))] = garbled(rng, rng.choice(row))
    return b"\n".join(map(mark.join, lines))


# --- graphs and learners ---------------------------------------------------------------------------------------------


def array_of_graph(rng: Random, folder: Path) -> None:
    """Change an array of a saved graph and write its size and hash into the manifest."""
    path = rng.choice(files(folder, "*.npy"))
    data = path.read_bytes()
    data = odd_npy(rng, data) if rng.random() < 0.7 else data[:128] + garbled(rng, data[128:])
    write(path, data)
    manifest = path.parents[2] / "manifest.json"
    content = json.loads(json.loads(manifest.read_bytes())["content"])
    content["arrays"][path.stem] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    write(manifest, _sealed(rng, content))


def unchecked_manifest(rng: Random, folder: Path) -> None:
    """Write an edited manifest as version 0.1 wrote it: without a checksum."""
    path = rng.choice(files(folder, "manifest.json"))
    content = json.loads(json.loads(path.read_bytes())["content"]) | {"format_version": 1}
    write(path, as_json(rng, edited(rng, content)))


def tensors_of(manifest: str, *place: str) -> Damage:
    """Return a damage that changes tensors and writes their hash into a manifest, at a place in its content."""

    def damage(rng: Random, folder: Path) -> None:
        path = rng.choice(files(folder, "*.safetensors"))
        old = path.read_bytes()
        data = odd_tensors(rng, old) if rng.random() < 0.8 else garbled(rng, old)
        write(path, data)
        one = path.parent / manifest
        was, now = (hashlib.sha256(part).hexdigest() for part in (old, data))
        content = json.loads(one.read_bytes())["content"].replace(was, now)
        write(one, _sealed(rng, json.loads(content)))

    return damage


def npz(rng: Random, data: bytes) -> bytes:
    """Change one array of an .npz file."""
    with np.load(io.BytesIO(data)) as archive:
        arrays = dict(archive)
    name = rng.choice(sorted(arrays))
    arrays[name] = odd_array(rng, arrays[name])
    if rng.random() < 0.1:
        del arrays[name]
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


# --- workspaces ------------------------------------------------------------------------------------------------------


def database(folder: Path) -> contextlib.closing[sqlite3.Connection]:
    """Return the database of a workspace."""
    return contextlib.closing(sqlite3.connect(folder / DATABASE, isolation_level=None))


def row_of_workspace(rng: Random, folder: Path) -> None:
    """Change a value of a row, or remove or repeat a row, with a right checksum."""
    with database(folder) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        table = rng.choice([name for name in SCHEMA.tables if _count(connection, name)])
        names = SCHEMA.tables[table]._fields
        rowid = rng.choice([row for (row,) in connection.execute(f"SELECT rowid FROM {table} ORDER BY rowid")])
        values = list(connection.execute(f"SELECT {', '.join(names)} FROM {table} WHERE rowid = ?", [rowid]).fetchone())
        if rng.random() < 0.07:
            connection.execute(f"DELETE FROM {table} WHERE rowid = ?", [rowid])
            return
        place = rng.randrange(len(values))
        values[place] = _odd_cell(rng, values[place])
        changes = ", ".join(f"{name} = ?" for name in (*names, "checksum"))
        with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeError):  # refused by the schema
            checksum = _checksum(table, values)
            connection.execute(f"UPDATE {table} SET {changes} WHERE rowid = ?", [*values, checksum, rowid])


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _odd_cell(rng: Random, value: Any) -> Any:
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return as_json(rng, edited(rng, json.loads(value))).decode("utf-8", "replace")
        return rng.choice(("", "x", "\0", "[" * 2_000, "cold", "2004", garbled(rng, value.encode()).decode("latin1")))
    if isinstance(value, float):
        return rng.choice((float("inf"), -1.0, 1e308, 0.0, 2.0))
    return rng.choice((*EDGES, *range(8), None, value))


def object_of_workspace(rng: Random, folder: Path) -> None:
    """Change an object, give it the name of its hash, and change the rows that refer to it."""
    path = rng.choice(files(folder / "objects", "[0-9a-f]*"))
    data, kind = path.read_bytes(), path.suffix
    change = json_values if kind == ".json" else odd_segment if kind == ".segment" else odd_tensors
    data = change(rng, data) if rng.random() < 0.9 else garbled(rng, data)
    name = f"{hashlib.sha256(data).hexdigest()}{kind}"
    write(path.parent / name, data)
    with database(folder) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for table, column in (("segments", "object"), ("states", "learner"), ("states", "tensors")):
            names = SCHEMA.tables[table]._fields
            found = connection.execute(
                f"SELECT rowid, {', '.join(names)} FROM {table} WHERE {column} = ?", [path.name]
            ).fetchall()
            for rowid, *values in found:
                values[names.index(column)] = name
                connection.execute(
                    f"UPDATE {table} SET {column} = ?, checksum = ? WHERE rowid = ?",
                    [name, _checksum(table, values), rowid],
                )


def odd_segment(rng: Random, data: bytes) -> bytes:
    """Change an array of a segment of a graph, or its header."""
    from safetensors import SafetensorError
    from safetensors.numpy import load, save

    if rng.random() < 0.2:
        return odd_tensors(rng, data)
    arrays = load(data)
    name = rng.choice(sorted(arrays))
    if name == "header":
        text = as_json(rng, edited(rng, json.loads(arrays[name].tobytes())))
        arrays[name] = np.frombuffer(text, np.uint8)
    else:
        arrays[name] = np.ascontiguousarray(odd_array(rng, arrays[name]))
    if rng.random() < 0.05:
        del arrays[name]
    try:
        return bytes(save(arrays))
    except (KeyError, ValueError, TypeError, SafetensorError):  # a type that safetensors does not have
        return data[:-1]


def old_version(rng: Random, folder: Path) -> None:
    """Edit a version of a workspace of 0.1, or one of its objects, which then gets a new name."""
    version = rng.choice(files(folder / "versions", "*.json"))
    if rng.random() < 0.6:
        write(version, checksummed(rng, version.read_bytes()))
        return
    path = rng.choice(files(folder / "objects"))
    data = path.read_bytes()
    data = (odd_npy if path.suffix == ".npy" else json_values if path.suffix == ".json" else garbled)(rng, data)
    name = f"{hashlib.sha256(data).hexdigest()[:32]}{path.suffix}"
    write(path.parent / name, data)
    for version in files(folder / "versions", "*.json"):
        content = json.loads(version.read_bytes())["content"]
        if path.name in content:
            write(version, _sealed(rng, json.loads(content.replace(path.name, name))))


# --- archives, Parquet -----------------------------------------------------------------------------------------------


def members(rng: Random, data: bytes) -> bytes:
    """Write a zip archive with odd names, methods and sizes."""
    names = ("a.txt", "a.txt/b", "b/", "b", "../x", "/x", "", ".", "a\\b", "c:x", "nul", "é", "x" * 300, "a\0b", "b//c")
    file = io.BytesIO()
    methods = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED] * 3 + [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    with zipfile.ZipFile(file, "w") as archive:
        for _ in range(rng.randrange(4)):
            member = zipfile.ZipInfo(rng.choice(names) or "x")
            member.compress_type = rng.choice(methods)
            member.external_attr = rng.choice((0, 0o644 << 16, 0o120777 << 16))
            with contextlib.suppress(UserWarning):
                archive.writestr(member, rng.choice((b"", b"text", data)))
    return garbled(rng, file.getvalue()) if rng.random() < 0.5 else file.getvalue()


def odd_parquet(rng: Random, data: bytes) -> bytes:
    """Write a Parquet file in which one column has another type or odd values."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))
    place, rows = rng.randrange(table.num_columns), table.num_rows
    column = _odd_column(rng, rows)
    table = table.set_column(place, table.column_names[place], column)
    if rng.random() < 0.1:
        table = table.append_column(rng.choice((table.column_names[0], "", "é\0")), column)
    file = io.BytesIO()
    try:
        pq.write_table(
            table.slice(0, rng.choice((rows, rows, rows, 1, 0))),
            file,
            compression=rng.choice(("none", "snappy", "zstd", "gzip", "brotli")),
            use_dictionary=rng.random() < 0.5,
            row_group_size=rng.choice((1, 3, 1000)),
        )
    except (pa.ArrowException, OSError, ValueError):
        return garbled(rng, data)
    return file.getvalue() if rng.random() < 0.8 else garbled(rng, file.getvalue())


def _odd_column(rng: Random, rows: int) -> Any:
    import decimal

    import pyarrow as pa

    offsets = np.arange(rows + 1, dtype=np.int32)
    raw = np.full(rows, rng.choice((0xFF, 0xC3, 0x41)), np.uint8)
    big = [rng.choice((*EDGES[:15], None)) for _ in range(rows)]
    match rng.randrange(12):
        case 0:
            return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(raw))
        case 1:
            return pa.array([decimal.Decimal(10**30)] * rows, pa.decimal128(38, 0))
        case 2:
            return pa.array([2**64 - 1] * rows, pa.uint64())
        case 3:
            return pa.array([None if number is None else float(number) for number in big])
        case 4:
            return pa.array([rng.choice((-(2**63), 2**63 - 1, 0)) for _ in range(rows)], pa.int64()).cast(
                pa.timestamp(rng.choice(("s", "ms", "us", "ns")), rng.choice((None, "UTC")))
            )
        case 5:
            return pa.array([rng.choice(([], [1.0], [None], None)) for _ in range(rows)], pa.list_(pa.float32()))
        case 6:
            return pa.array([{"a": 1}] * rows)
        case 7:
            return pa.array([None] * rows)
        case 8:
            return pa.array([b"\xff"] * rows, rng.choice((pa.binary(), pa.large_binary(), pa.binary_view())))
        case 9:
            return pa.array([rng.choice(("x", "", None, "\0")) for _ in range(rows)]).dictionary_encode()
        case 10:
            return pa.array([rng.choice((True, False)) for _ in range(rows)])
        case _:
            return pa.array([rng.choice((float("nan"), 1e300, 2001.5, 2001.0)) for _ in range(rows)])


def trial_lines(rng: Random, data: bytes) -> bytes:
    """Edit a finished trial and compute its checksum again."""
    from evergraph.evaluation.trials import _check

    lines = data.splitlines()
    place = rng.randrange(len(lines))
    row = json.loads(lines[place])
    row.pop("check")
    row = edited(rng, row)
    if isinstance(row, dict):
        with contextlib.suppress(UnicodeError):
            row["check"] = _check(row)
    lines[place] = as_json(rng, row)
    return b"\n".join([*lines, b""])
