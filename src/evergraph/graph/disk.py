"""A graph on disk: immutable version folders of .npy arrays, and a manifest that names the current version.

::

    GRAPH/
      manifest.json            format, counts, axis, and size and hash of each array; with a checksum
      versions/000001/*.npy    written once, never changed

Saving writes and syncs a new version folder, then replaces the manifest by an atomic rename: the commit point. A
process killed at any moment leaves the old graph or the new one, and at most a version folder that no manifest names,
which the next save deletes.

Opening checks sizes, not contents. Before a graph made from an opened one is saved, the arrays of that one are checked
against their hashes, so that damaged bytes never get a valid hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from evergraph.errors import DamagedGraphError, EvergraphError, InputError, StorageError, os_error
from evergraph.graph.arrays import Arrays, Kind, find_damage, from_arrays, kind_of, to_arrays
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.times import TimeAxis, Unit
from evergraph.storage.checksummed import dump_json, load_json
from evergraph.storage.decoding import InvalidJsonError, converted, decoding, map_array, parse_json
from evergraph.storage.files import LOCK, create, locked, refuse_link, sync_folder, write_synced

FORMAT = "evergraph graph"
FORMAT_VERSION = 4  # 3 had no texts compressed with zstd; 2 had none, and either text, numbers or sparse features
MANIFEST = "manifest.json"
VERSIONS = "versions"

_WRITERS = 2  # arrays that are written at the same time
_PIECE = 2**20  # bytes that are hashed and written at once, so that they are read from memory once
_FIX = "import the graph again, or restore the folder from a backup"


@dataclass(frozen=True)
class Entry:
    """Size and hash of the file of an array."""

    bytes: int
    sha256: str


class _Time(TypedDict):
    unit: Unit
    step: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]


@dataclass(frozen=True)
class Manifest:
    """Content of ``manifest.json``."""

    format: str
    format_version: int
    version: str
    vertices: int
    edges: int
    classes: int
    time: _Time
    features: Kind
    about: dict[str, Any]
    arrays: dict[str, Entry]


class SavedArrays:
    """The files of an opened graph. A graph made from it is saved only after they are checked."""

    def __init__(self, files: Mapping[Path, Entry], maps: Mapping[Path, NDArray[Any]]) -> None:
        self.files, self._maps = files, maps

    def __reduce__(self) -> tuple[Any, ...]:
        return SavedArrays, (self.files, {})

    def check(self) -> int:
        """Check every file against its hash; return the number of bytes read."""
        for path, entry in self.files.items():
            if self._hash(path) != entry.sha256 != self._hash_of_map(path):
                raise _damaged(path, "the contents are not those that were saved")
        return sum(entry.bytes for entry in self.files.values())

    def _hash(self, path: Path) -> str | None:
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:  # a later save has deleted it
            return None
        except OSError as error:
            raise os_error(error, "the array cannot be read", damaged=partial(_damaged, path)) from error

    def _hash_of_map(self, path: Path) -> str | None:
        base: Any = self._maps.get(path)
        while isinstance(base, np.ndarray):
            base = base.base
        return None if base is None else hashlib.sha256(base).hexdigest()


def check_destination(folder: Path, *, replace: bool) -> None:
    """Refuse a place where a graph cannot or must not be saved. Call it before expensive work."""
    if _is_there(folder, replace=replace):
        return
    if folder.exists() and not folder.is_dir():
        raise InputError("this is a file, not a folder", file=folder, fix="choose another folder")
    if folder.is_dir() and {entry.name for entry in folder.iterdir()} - {VERSIONS, LOCK, f"{MANIFEST}.new"}:
        raise InputError("the folder holds something else", file=folder, fix="choose an empty or a new folder")


def _is_there(folder: Path, *, replace: bool) -> bool:
    there = (folder / MANIFEST).exists()
    if there and not replace:
        raise InputError(
            "there is a graph already",
            file=folder,
            fix="choose another folder, or give --replace (replace=True in Python)",
        )
    return there


def save_graph(graph: EvolvingGraph, folder: Path, *, replace: bool = False) -> None:
    """Save a graph as a new version and make it the current one. Atomic, see the module's description."""
    check_destination(folder, replace=replace)
    if graph.source is not None:
        graph.source.check()
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
        with _locked(folder):
            _is_there(folder, replace=replace)  # another process may have been faster
            try:
                _save_version(graph, folder)
            except BaseException:
                # Clean up only under the lock: without it, this may be the unfinished work of another process.
                if new and not (folder / MANIFEST).exists():
                    shutil.rmtree(folder, ignore_errors=True)
                raise
    except OSError as error:
        if isinstance(error, EvergraphError):
            raise
        if new:
            with contextlib.suppress(OSError):
                folder.rmdir()  # refused if the folder is not empty
        raise os_error(error, "the graph could not be saved", file=folder, note="Nothing was changed") from error


def _save_version(graph: EvolvingGraph, folder: Path) -> None:
    versions = folder / VERSIONS
    refuse_link(versions)
    versions.mkdir(exist_ok=True)
    number = max((int(entry.name) for entry in versions.iterdir() if entry.name.isdecimal()), default=0) + 1
    version, staged = versions / f"{number:06d}", folder / f"{MANIFEST}.new"
    try:
        version.mkdir()
        entries = _write_arrays(version, to_arrays(graph))
        sync_folder(version)
        sync_folder(versions)
        manifest = Manifest(
            FORMAT,
            FORMAT_VERSION,
            version.name,
            len(graph),
            graph.n_edges,
            len(graph.class_names),
            {"unit": graph.axis.unit, "step": graph.axis.step},
            kind_of(graph.features),
            dict(graph.about),
            entries,
        )
        write_synced(staged, dump_json(asdict(manifest)))
    except BaseException:
        _discard(version, staged)
        raise
    try:
        staged.replace(folder / MANIFEST)  # the commit point
    except OSError:  # nothing else: after an interrupt the new version may be the current one
        _discard(version, staged)
        raise
    try:
        sync_folder(folder)
    except OSError as error:
        raise StorageError(
            f"the graph is saved, but the disk did not confirm it ({error.strerror or error})",
            file=folder,
            fix="save it again",
        ) from error
    with contextlib.suppress(OSError):  # the graph is saved; the next save deletes leftovers
        for entry in versions.iterdir():
            if entry != version and entry.name.isdecimal():
                shutil.rmtree(entry, ignore_errors=True)


def _discard(version: Path, staged: Path) -> None:
    shutil.rmtree(version, ignore_errors=True)
    staged.unlink(missing_ok=True)


def _write_arrays(folder: Path, arrays: Arrays) -> dict[str, Entry]:
    """Write all arrays, several at a time, because hashing one and waiting for the disk can overlap."""
    with ThreadPoolExecutor(_WRITERS) as pool:
        paths = [folder / f"{name}.npy" for name in arrays]
        return dict(zip(arrays, pool.map(_write_array, paths, arrays.values()), strict=True))


def _write_array(path: Path, array: NDArray[Any]) -> Entry:
    array = np.ascontiguousarray(array)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    content = array.reshape(-1).view(np.uint8).data
    pieces: Iterator[Any] = (content[start : start + _PIECE] for start in range(0, len(content), _PIECE))
    found, size = hashlib.sha256(), 0
    with create(path) as file:
        for piece in chain([header.getvalue()], pieces):
            found.update(piece)
            size += file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return Entry(size, found.hexdigest())


def _locked(folder: Path) -> contextlib.AbstractContextManager[None]:
    return locked(folder, "graph")


def open_graph(folder: Path) -> EvolvingGraph:
    """Open the current version as memory maps; check that all arrays exist and have their size."""
    manifest = _read_manifest(folder)
    while True:
        try:
            files, arrays = _map_arrays(folder, manifest)
            break
        except DamagedGraphError:
            # A save between reading the manifest and the arrays deletes this version.
            newer = _read_manifest(folder)
            if newer.version == manifest.version:
                raise
            manifest = newer
    source = SavedArrays(files, {path: arrays[path.stem] for path in files})
    with decoding(folder / MANIFEST, _damaged):
        graph = from_arrays(arrays, manifest.features, TimeAxis(**manifest.time), manifest.about, source)
    if (texts := graph.features.texts) is not None:
        named = replace(texts, file=folder / VERSIONS / manifest.version / "texts.bytes.npy")
        graph = replace(graph, features=replace(graph.features, texts=named))
    counts = (len(graph), graph.n_edges, len(graph.class_names))
    if counts != (manifest.vertices, manifest.edges, manifest.classes):
        raise _damaged(folder / MANIFEST, "the manifest does not agree with the arrays")
    return graph


def open_checked(folder: Path) -> EvolvingGraph:
    """Open a graph and check its arrays for damage."""
    graph = open_graph(folder)
    if (problem := find_damage(graph)) is not None:
        raise _damaged(folder, f"the arrays are damaged: {problem}")
    return graph


def verify(folder: Path) -> int:
    """Check every array against its hash; return the number of bytes read."""
    source = open_graph(folder).source
    total = 0 if source is None else source.check()
    open_checked(folder)
    return total


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    if not folder.is_dir():
        raise InputError("there is no such graph folder", file=folder, fix="give the folder of an imported graph")
    try:
        data = path.read_bytes()
        manifest = _unchecked_manifest(data) or load_json(data, FORMAT, FORMAT_VERSION, Manifest)
    except FileNotFoundError:
        raise DamagedGraphError(
            "this folder holds no graph, or its import was interrupted", file=folder, fix="import the graph again"
        ) from None
    except OSError as error:
        raise os_error(error, "the manifest cannot be read", damaged=partial(_damaged, path)) from error
    except InvalidJsonError as error:
        raise DamagedGraphError(
            f"the manifest is damaged: {error}", file=path, fix="update Evergraph" if error.newer else _FIX
        ) from error
    if not manifest.version.isdecimal() or manifest.format_version < 1:
        raise _damaged(path, "the manifest names no version")
    return manifest


def _unchecked_manifest(data: bytes) -> Manifest | None:
    """Return the manifest of a graph saved by Evergraph 0.1, which has no checksum; None if it is not one."""
    try:
        content = parse_json(data)
    except InvalidJsonError:
        return None
    if not isinstance(content, dict) or (content.get("format"), content.get("format_version")) != (FORMAT, 1):
        return None
    return converted(content, Manifest)


def _map_arrays(folder: Path, manifest: Manifest) -> tuple[dict[Path, Entry], Arrays]:
    files: dict[Path, Entry] = {}
    arrays: Arrays = {}
    for name, entry in manifest.arrays.items():
        if not re.fullmatch(r"[a-z_.]+", name):
            raise _damaged(folder / MANIFEST, f"{name!r} is not the name of an array")
        path = folder / VERSIONS / manifest.version / f"{name}.npy"
        try:
            size = path.stat().st_size
        except OSError:
            raise _damaged(path, "the array is missing") from None
        if size != entry.bytes:
            raise _damaged(path, f"the array has {size:,} bytes, not the {entry.bytes:,} that were saved")
        try:
            mapped = map_array(path)
        except OSError as error:
            raise os_error(error, "the array cannot be read", damaged=partial(_damaged, path)) from error
        except ValueError as error:
            raise _damaged(path, f"this is not an array ({error})") from error
        # A plain view, because the memmap subclass makes every later operation slower.
        files[path], arrays[name] = entry, mapped.view(np.ndarray)
    return files, arrays


def _damaged(path: Path, problem: str) -> DamagedGraphError:
    return DamagedGraphError(problem, file=path, fix=_FIX)
