"""A graph on disk: immutable version folders of .npy arrays, and one manifest that names the version in force.

::

    GRAPH/
      manifest.json            format, counts, axis, and for each array its size and hash
      versions/000001/*.npy    written once, never changed

Saving writes a new version folder, syncs it, and then replaces the manifest by an atomic rename: that rename is the one
commit point. A process killed at any moment leaves the graph that was there or the new one, and at most a version
folder that no manifest names, which the next save sweeps away.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import DamagedGraphError, EvergraphError, InputError
from evergraph.graph.arrays import Arrays, from_arrays, to_arrays, unsound
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import kind_of
from evergraph.graph.times import TimeAxis, Unit
from evergraph.storage.files import LOCK, locked, sync_folder

FORMAT = "evergraph graph"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
VERSIONS = "versions"

_T = TypeVar("_T")


def check_destination(folder: Path, *, replace: bool) -> None:
    """Refuse a place where a graph cannot or must not be saved, before any work is done for it."""
    if _is_there(folder, replace=replace):
        return
    if folder.exists() and not folder.is_dir():
        raise InputError("this is a file, not a folder", file=folder, fix="choose another folder")
    if folder.is_dir() and {entry.name for entry in folder.iterdir()} - {VERSIONS, LOCK, f"{MANIFEST}.new"}:
        raise InputError("the folder holds something else", file=folder, fix="choose an empty or a new folder")


def _is_there(folder: Path, *, replace: bool) -> bool:
    """Whether there is a graph already, which it takes ``replace`` to save over."""
    there = (folder / MANIFEST).exists()
    if there and not replace:
        raise InputError(
            "there is a graph already",
            file=folder,
            fix="choose another folder, or say so with replace=True (--replace)",
        )
    return there


def save_graph(graph: EvolvingGraph, folder: Path, *, replace: bool = False) -> None:
    """Save a graph as a new version and make it the one in force, at once or not at all."""
    check_destination(folder, replace=replace)
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
        with _locked(folder):
            _is_there(folder, replace=replace)  # another process may have been faster
            try:
                _save_version(graph, folder)
            except BaseException:
                # Only who holds the lock may clean up: without it, this may be another process's unfinished work.
                if new and not (folder / MANIFEST).exists():
                    shutil.rmtree(folder, ignore_errors=True)
                raise
    except OSError as error:
        if isinstance(error, EvergraphError):
            raise
        if new:
            with contextlib.suppress(OSError):
                folder.rmdir()  # which it refuses if there is anything inside
        raise EvergraphError(
            f"{folder}: the graph could not be saved ({error.strerror or error}); nothing was changed."
        ) from error


def _save_version(graph: EvolvingGraph, folder: Path) -> None:
    versions = folder / VERSIONS
    versions.mkdir(exist_ok=True)
    number = max((int(entry.name) for entry in versions.iterdir() if entry.name.isdecimal()), default=0) + 1
    version, staged = versions / f"{number:06d}", folder / f"{MANIFEST}.new"
    try:
        version.mkdir()
        entries = {name: _write_array(version / f"{name}.npy", array) for name, array in to_arrays(graph).items()}
        sync_folder(version)
        sync_folder(versions)
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "version": version.name,
            "vertices": len(graph),
            "edges": graph.n_edges,
            "classes": len(graph.class_names),
            "time": {"unit": graph.axis.unit, "step": graph.axis.step},
            "features": kind_of(graph.features),
            "about": dict(graph.about),
            "arrays": entries,
        }
        with staged.open("w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        _discard(version, staged)
        raise
    try:
        staged.replace(folder / MANIFEST)  # the commit point
    except OSError:  # and nothing else: after an interrupt the new version may be the one in force
        _discard(version, staged)
        raise
    try:
        sync_folder(folder)
    except OSError as error:
        raise EvergraphError(
            f"{folder}: the graph is saved, but the disk did not confirm it ({error.strerror or error}); save it again."
        ) from error
    with contextlib.suppress(OSError):  # the graph is saved; what is left over goes with the next save
        for entry in versions.iterdir():
            if entry != version and entry.name.isdecimal():
                shutil.rmtree(entry, ignore_errors=True)


def _discard(version: Path, staged: Path) -> None:
    shutil.rmtree(version, ignore_errors=True)
    staged.unlink(missing_ok=True)


class _HashingFile:
    """A file to write to that hashes what passes through."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.hash, self.size = file, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.hash.update(data)
        self.size += len(data)
        return self.file.write(data)


def _write_array(path: Path, array: NDArray[Any]) -> dict[str, Any]:
    with path.open("wb") as file:
        hashing = _HashingFile(file)
        np.lib.format.write_array(hashing, np.ascontiguousarray(array), allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": hashing.size, "sha256": hashing.hash.hexdigest()}


def _locked(folder: Path) -> contextlib.AbstractContextManager[None]:
    return locked(folder, "graph")


def open_graph(folder: Path) -> EvolvingGraph:
    """Open the version in force as memory maps; checks that all is there and has its size."""
    manifest, arrays = _read_in_force(folder, _map_arrays)
    try:
        axis = TimeAxis(manifest["time"]["unit"], int(manifest["time"]["step"]))
        graph = from_arrays(arrays, manifest["features"], axis, dict(manifest["about"]))
        consistent = (
            (len(graph), graph.n_edges, len(graph.class_names))
            == (manifest["vertices"], manifest["edges"], manifest["classes"])
            and len(graph) == len(graph.ids) == len(graph.codes) == len(graph.links.indptr) - 1 > 0
            and (graph.features is None or len(graph.features) == len(graph))
            and graph.axis.unit in get_args(Unit)
            and graph.axis.step > 0
        )
    except (LookupError, TypeError, ValueError) as error:
        raise _damaged(folder / MANIFEST, f"the manifest lacks or distorts {error}") from error
    if not consistent:
        raise _damaged(folder / MANIFEST, "the manifest does not agree with the arrays")
    return graph


def open_checked(folder: Path) -> EvolvingGraph:
    """Open a graph and look through its arrays, so that damage is told and not stumbled over."""
    graph = open_graph(folder)
    if (problem := unsound(graph)) is not None:
        raise _damaged(folder, f"the arrays are damaged: {problem}")
    return graph


def verify(folder: Path) -> int:
    """Check every array against its hash; returns the number of bytes read."""
    open_graph(folder)
    _, total = _read_in_force(folder, _check_hashes)
    open_checked(folder)
    return total


def _check_hashes(folder: Path, manifest: Mapping[str, Any]) -> int:
    total = 0
    for name, entry in manifest["arrays"].items():
        path = _array_path(folder, manifest, name)
        _check_size(path, entry)
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise _damaged(path, f"the array cannot be read ({error.strerror or error})") from error
        if found != entry.get("sha256"):
            raise _damaged(path, "the contents are not those that were saved")
        total += entry["bytes"]
    return total


def _read_in_force(folder: Path, read: Callable[[Path, Mapping[str, Any]], _T]) -> tuple[dict[str, Any], _T]:
    """The manifest, and what is read of the version that it names."""
    manifest = _read_manifest(folder)
    while True:
        try:
            return manifest, read(folder, manifest)
        except DamagedGraphError:
            # A save between reading the manifest and reading the arrays sweeps this version away for a newer one.
            newer = _read_manifest(folder)
            if newer["version"] == manifest["version"]:
                raise
            manifest = newer


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not folder.is_dir():
        raise InputError("there is no such graph folder", file=folder, fix="give the folder of an imported graph")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DamagedGraphError(
            "this folder holds no graph, or its import was interrupted",
            file=folder,
            fix="import the graph again",
        ) from None
    except (ValueError, OSError, RecursionError) as error:
        raise _damaged(path, f"the manifest cannot be read ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _damaged(path, "this is not the manifest of an Evergraph graph")
    found = manifest.get("format_version")
    if not isinstance(found, int) or found < 1:
        raise _damaged(path, "the manifest names no version of the format")
    if found > FORMAT_VERSION:
        raise DamagedGraphError(
            f"the graph has format version {found}, newer than {FORMAT_VERSION}, the newest known here",
            file=path,
            fix="update Evergraph",
        )
    version = manifest.get("version")
    if not isinstance(manifest.get("arrays"), dict) or not isinstance(version, str) or not version.isdecimal():
        raise _damaged(path, "the manifest names no version or no arrays")
    return manifest


def _map_arrays(folder: Path, manifest: Mapping[str, Any]) -> Arrays:
    arrays: Arrays = {}
    for name, entry in manifest["arrays"].items():
        path = _array_path(folder, manifest, name)
        _check_size(path, entry)
        try:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        except PermissionError as error:
            raise InputError("the array may not be read", file=path, fix="change its permissions") from error
        except Exception as error:  # a damaged header breaks numpy's parser in more ways than it documents
            raise _damaged(path, f"this is no array ({error})") from error
        # A plain view: the memmap subclass makes every later operation slower.
        arrays[name] = mapped.view(np.ndarray)
    return arrays


def _array_path(folder: Path, manifest: Mapping[str, Any], name: str) -> Path:
    if not re.fullmatch(r"[a-z_.]+", name):
        raise _damaged(folder / MANIFEST, f"{name!r} is no name of an array")
    return folder / VERSIONS / manifest["version"] / f"{name}.npy"


def _check_size(path: Path, entry: Any) -> None:
    try:
        size = path.stat().st_size
    except OSError:
        raise _damaged(path, "the array is missing") from None
    if not isinstance(entry, dict) or size != entry.get("bytes"):
        raise _damaged(path, f"the array has {size:,} bytes, not those that were saved")


def _damaged(path: Path, problem: str) -> DamagedGraphError:
    return DamagedGraphError(problem, file=path, fix="import the graph again, or restore the folder from a backup")
