"""What a workspace keeps on disk: immutable objects, numbered versions that name them, and one commit point.

::

    WS/
      workspace.json          format, and which version is in force: replacing it is the commit
      versions/000012.json    all that makes up a version; sealed, written once
      objects/4f2a….npy       arrays, tensors and tables by the hash of their contents; written once

A command writes its new objects and its version, has the disk confirm them, and then replaces ``workspace.json`` by an
atomic rename. Killed before that, it has changed nothing, and what it left is swept away by the next command; killed
after it, it is done. Versions share the objects that are the same, so keeping older ones costs little.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import DamagedWorkspaceError, EvergraphError, InputError
from evergraph.storage.checksummed import InvalidJsonError, dump_json, load_json
from evergraph.storage.files import LOCK, locked, sync_folder, write_atomic, write_synced

__all__ = ["MANIFEST", "Store", "Transaction", "is_workspace", "objects_in"]

FORMAT = "evergraph workspace"
FORMAT_VERSION = 1
MANIFEST = "workspace.json"
VERSIONS = "versions"
OBJECTS = "objects"

_OBJECT = re.compile(r"[0-9a-f]{32}\.[a-z]+")

Content = dict[str, Any]


def is_workspace(folder: Path) -> bool:
    """Whether a folder holds a workspace."""
    return (folder / MANIFEST).exists()


class Store:
    """The files of a workspace; it knows nothing of what is in them.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "ws"
    >>> with Store.new(folder) as change:
    ...     number = change.commit({"greeting": change.put(b"hello", "txt")})
    >>> store = Store(folder)
    >>> number, store.head, store.read(store.version()["greeting"])
    (1, 1, b'hello')
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _ = self.head  # which looks at whether there is one

    @classmethod
    @contextlib.contextmanager
    def new(cls, folder: Path) -> Iterator[Transaction]:
        """Make a workspace; there is one once the transaction is committed, and else nothing."""
        if folder.exists() and not folder.is_dir():
            raise InputError("this is a file, not a folder", file=folder, fix="choose another folder")
        made = not folder.exists()
        with _disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                with locked(folder, "workspace"):
                    yield from _new(folder, made=made)
            except OSError:
                if made:
                    with contextlib.suppress(OSError):
                        folder.rmdir()  # which it refuses if there is anything inside
                raise

    @property
    def head(self) -> int:
        """Number of the version in force."""
        path = self.folder / MANIFEST
        if not self.folder.is_dir():
            raise InputError("there is no such workspace", file=self.folder, fix="make one with: evergraph ws init")
        try:
            manifest = json.loads(path.read_bytes())
            known, version = manifest["format"] == FORMAT, manifest["format_version"]
            number = manifest["version"]
        except FileNotFoundError:
            raise InputError(
                "this folder holds no workspace, or making it was interrupted",
                file=self.folder,
                fix="make one with: evergraph ws init",
            ) from None
        except (ValueError, LookupError, TypeError, OSError, RecursionError) as error:
            raise _damaged(path, f"it cannot be read ({error})") from error
        if known and isinstance(version, int) and version > FORMAT_VERSION:
            raise _newer(path, f"the workspace has format version {version}, newer than {FORMAT_VERSION}")
        if not known or not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise _damaged(path, "this is not the file of an Evergraph workspace")
        return number

    def version(self, number: int | None = None) -> Content:
        """What a version consists of; that in force unless a number is given."""
        head = self.head
        if number is not None and number > head:  # a command that was killed may have left one that never was in force
            raise self._missing(number)
        path = _version_path(self.folder, head if number is None else number)
        try:
            return load_json(path.read_bytes(), FORMAT, FORMAT_VERSION)["content"]
        except FileNotFoundError:
            if number is not None:
                raise self._missing(number) from None
            if self.head != head:  # commands of other processes have come in between, and swept it away
                return self.version()
            raise _damaged(path, "the version in force is missing") from None
        except OSError as error:
            raise _damaged(path, f"it cannot be read ({error})") from error
        except InvalidJsonError as error:
            raise (_newer if error.newer else _damaged)(path, str(error)) from error

    @property
    def numbers(self) -> list[int]:
        """Numbers of the versions that are kept, the one in force last."""
        return [number for number in _numbers(self.folder) if number <= self.head]

    def _missing(self, number: int) -> InputError:
        kept = self.numbers
        fix = f"choose from {kept[0]} to {kept[-1]}" if kept else "restore the folder from a backup"
        return InputError(f"there is no version {number}, or not any more", fix=fix)

    def read(self, name: str) -> bytes:
        """The bytes of an object, compared with its hash."""
        path = self._path(name)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise _damaged(path, f"it cannot be read ({error.strerror or error})") from error
        if _name(data, path.suffix[1:]) != name:
            raise _damaged(path, "the contents are not those that were saved")
        return data

    def array(self, name: str, size: int) -> NDArray[Any]:
        """An array as a memory map; its size is looked at, not its contents."""
        path = self._path(name)
        try:
            if path.stat().st_size != size:
                raise _damaged(path, f"it has {path.stat().st_size:,} bytes, not those that were saved")
            return np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
        except DamagedWorkspaceError:
            raise
        except OSError as error:
            raise _damaged(path, f"it cannot be read ({error.strerror or error})") from error
        except ValueError as error:
            raise _damaged(path, f"this is no array ({error})") from error

    def _path(self, name: str) -> Path:
        if not _OBJECT.fullmatch(name):
            raise _damaged(self.folder / VERSIONS, f"{name!r} is no name of an object")
        return self.folder / OBJECTS / name

    @contextlib.contextmanager
    def change(self, keep: int = 10) -> Iterator[Transaction]:
        """Hold the workspace to change it; no other process can meanwhile. What is not committed did not happen."""
        with _disk_errors(self.folder), locked(self.folder, "workspace"):
            yield from _transaction(self.folder, self.head, keep)


class Transaction:
    """New objects, and the version that names them."""

    def __init__(self, folder: Path, base: int) -> None:
        self.folder, self.base = folder, base

    def put(self, data: bytes, kind: str) -> str:
        """Keep bytes as an object of a kind, which is its suffix; returns its name."""
        name = _name(data, kind)
        path = self.folder / OBJECTS / name
        if not path.exists():  # else it is there, whole and confirmed: it got its name after that
            staged = path.with_name(f"{name}.new")
            write_synced(staged, data)
            staged.replace(path)
        return name

    def put_array(self, array: NDArray[Any]) -> tuple[str, int]:
        """Keep an array; returns the object's name and its size in bytes."""
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
        return self.put(buffer.getvalue(), "npy"), buffer.tell()

    def commit(self, content: Mapping[str, Any]) -> int:
        """Make this the version in force; returns its number."""
        number = self.base + 1
        path = _version_path(self.folder, number)
        sealed = dump_json({"format": FORMAT, "format_version": FORMAT_VERSION, "content": content})
        write_synced(path, sealed)
        for folder in (self.folder / OBJECTS, self.folder / VERSIONS, self.folder):
            sync_folder(folder)
        manifest = {"format": FORMAT, "format_version": FORMAT_VERSION, "version": number}
        try:
            write_atomic(self.folder / MANIFEST, json.dumps(manifest).encode())  # the commit point
        except OSError as error:
            told = _in_the_end(self.folder, number)
            if told is None:
                raise
            raise EvergraphError(f"{self.folder}: {told} ({error.strerror or error}).") from error
        return number


def _in_the_end(folder: Path, number: int) -> str | None:
    """What came of a commit that the disk failed at; None where nothing did."""
    try:
        if not is_workspace(folder) or Store(folder).head != number:
            return None
    except (OSError, EvergraphError):
        return "the disk failed in the very moment of the change; 'evergraph ws log' tells whether it was made"
    return "it is done, but the disk did not confirm it; look at 'evergraph ws log' after the machine's next start"


def _new(folder: Path, *, made: bool) -> Iterator[Transaction]:
    """The transaction that makes a workspace, in a folder that is held."""
    try:
        if is_workspace(folder):
            raise InputError("there is a workspace already", file=folder, fix="choose another folder")
        if {entry.name for entry in folder.iterdir()} - {LOCK, VERSIONS, OBJECTS, f"{MANIFEST}.new"}:
            raise InputError("the folder holds something else", file=folder, fix="choose an empty or a new folder")
        sync_folder(folder.parent)
        yield from _transaction(folder, 0)
    finally:
        # Only who holds the lock may clean up: without it, this may be another process's unfinished work.
        if made and not is_workspace(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _transaction(folder: Path, base: int, keep: int = 10) -> Iterator[Transaction]:
    for name in (OBJECTS, VERSIONS):
        (folder / name).mkdir(exist_ok=True)
    try:
        yield Transaction(folder, base)
    finally:  # done or not: what is left over now goes with the next command
        with contextlib.suppress(OSError, EvergraphError):
            sweep(folder, keep)


def sweep(folder: Path, keep: int) -> None:
    """Remove versions older than the last few, and objects that no kept version names; for who holds the lock.

    Which version is in force is read anew: a command that was interrupted cannot know whether it was committed.
    """
    store, numbers = Store(folder), _numbers(folder)
    head = store.head
    kept = [number for number in numbers if head - keep < number <= head]
    named = {name for number in kept for name in objects_in(store.version(number))}
    for number in set(numbers) - set(kept):
        _version_path(folder, number).unlink(missing_ok=True)
    for path in (folder / OBJECTS).iterdir():
        # What has another name than ours, someone else has put there.
        if path.name not in named and _OBJECT.fullmatch(path.name.removesuffix(".new")):
            path.unlink(missing_ok=True)


def objects_in(content: Any) -> Iterator[str]:
    """All names of objects that stand anywhere in a version."""
    if isinstance(content, str):
        if _OBJECT.fullmatch(content):
            yield content
    elif isinstance(content, Mapping):
        for value in content.values():
            yield from objects_in(value)
    elif isinstance(content, (list, tuple)):
        for value in content:
            yield from objects_in(value)


def _numbers(folder: Path) -> list[int]:
    names = [path.name for path in (folder / VERSIONS).iterdir()]
    return sorted(int(name[:-5]) for name in names if re.fullmatch(r"[0-9]{6,}\.json", name))


def _version_path(folder: Path, number: int) -> Path:
    return folder / VERSIONS / f"{number:06d}.json"


def _name(data: bytes, kind: str) -> str:
    return f"{hashlib.sha256(data).hexdigest()[:32]}.{kind}"


@contextlib.contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, EvergraphError):
            raise
        raise EvergraphError(
            f"{error.filename or folder}: the disk refused ({error.strerror or error}); nothing was changed. Make "
            "room, or change permissions, and run the same command again."
        ) from error


def _damaged(path: Path, problem: str) -> DamagedWorkspaceError:
    return DamagedWorkspaceError(problem, file=path, fix="restore the folder from a backup")


def _newer(path: Path, problem: str) -> DamagedWorkspaceError:
    return DamagedWorkspaceError(problem, file=path, fix="update Evergraph")
