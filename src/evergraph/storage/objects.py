"""Content-addressed objects: files that are written once, named by the hash of their content."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path

from evergraph.errors import InputError, os_error
from evergraph.storage.files import refuse_link, sync_folder, write_atomic, write_synced

__all__ = ["Objects"]

_NAME = re.compile(r"[0-9a-f]{64}\.[a-z]+")
_PENDING, _CHECKED = ".pending", ".checked"
_LARGE = 2**20  # bytes; smaller objects are compared with their hash whenever they are read


class Objects:
    """A folder of objects.

    A writer notes the names of the objects it is about to write in the file ``.pending``. If it is killed, the next
    writer finds there what may be left over and does not have to scan the folder.

    Small objects are compared with their hash whenever they are read. Hashing a large one takes longer than reading a
    part of it, so `view` notes in the file ``.checked`` which large objects it has compared, with size, inode and times
    of the file. As long as these are the same, it does not read the whole object again, as git does with its index.
    `read` and `verify` always compare.

    Parameters
    ----------
    folder
        The folder; it is created with the first object.
    damaged
        Makes the error for a damaged file.

    Examples
    --------
    >>> import tempfile
    >>> objects = Objects(Path(tempfile.mkdtemp()) / "objects")
    >>> name = objects.put(b"hello", "txt")
    >>> objects.read(name), name[:8], name[-4:]
    (b'hello', '2cf24dba', '.txt')
    """

    def __init__(self, folder: Path, damaged: Callable[[Path, str], InputError] | None = None) -> None:
        self.folder = folder
        self._damaged = damaged or (lambda path, problem: InputError(problem, file=path))
        self._noted: list[str] = []

    def put(self, data: bytes, kind: str) -> str:
        """Write an object with its kind as suffix and return its name; call `sync` before relying on it."""
        name = f"{hashlib.sha256(data).hexdigest()}.{kind}"
        path = self.folder / name
        if not path.is_file() or path.is_symlink() or self._hash(path) != name[:64]:
            refuse_link(self.folder)
            self.folder.mkdir(exist_ok=True)
            self._noted.append(name)
            write_atomic(self.folder / _PENDING, "\n".join(self._noted).encode(), sync=False)
            staged = path.with_name(f"{name}.new")
            write_synced(staged, data)
            staged.replace(path)
            if len(data) >= _LARGE:
                with path.open("rb") as file:
                    self._note_checked(name, _stamp(file.fileno()))
        return name

    def sync(self) -> None:
        """Wait until the disk confirms all new objects."""
        if self._noted:
            sync_folder(self.folder)

    def read(self, name: str) -> bytes:
        """Return the bytes of an object after comparing them with its hash."""
        if not _NAME.fullmatch(name):
            raise self._damaged(self.folder, f"{name!r} is not the name of an object")
        path = self.folder / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise os_error(error, "it cannot be read", damaged=partial(self._damaged, path)) from error
        self._compare(name, data)
        return data

    def _compare(self, name: str, data: bytes | mmap.mmap) -> None:
        if hashlib.sha256(data).hexdigest() != name[:64]:
            raise self._damaged(self.folder / name, "the contents are not those that were saved")

    def view(self, name: str, check: Callable[[bytes | mmap.mmap], None]) -> bytes | mmap.mmap:
        """Return the bytes of an object, as a memory map if it is large, after comparing them with its hash.

        ``check`` raises an error if the contents are invalid. A large object that has not changed since it was last
        compared and checked is neither hashed nor checked again.
        """
        path = self.folder / name
        try:
            large = bool(_NAME.fullmatch(name)) and path.stat().st_size >= _LARGE
            if large:
                with path.open("rb") as file:
                    data, stamp = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), _stamp(file.fileno())
        except OSError as error:
            raise os_error(error, "it cannot be read", damaged=partial(self._damaged, path)) from error
        if not large:
            content = self.read(name)
            check(content)
            return content
        if self._checked().get(name) != stamp:
            self._compare(name, data)
            check(data)
            self._note_checked(name, stamp)
        return data

    def _checked(self) -> dict[str, str]:
        """Return the stamps of the objects that have been compared with their hashes."""
        try:
            lines = (self.folder / _CHECKED).read_text(errors="replace").splitlines()
        except OSError:
            return {}
        return dict(line.split(" ", 1) for line in lines if " " in line)

    def _note_checked(self, name: str, stamp: str) -> None:
        noted = {one: other for one, other in self._checked().items() if (self.folder / one).is_file()}
        text = "".join(f"{one} {other}\n" for one, other in (noted | {name: stamp}).items())
        with contextlib.suppress(OSError):  # of another user, or read-only: then it is compared again
            write_atomic(self.folder / _CHECKED, text.encode(), sync=False)

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects that are not needed any more, if they exist."""
        refuse_link(self.folder)
        for name in names:
            if _NAME.fullmatch(name):
                (self.folder / name).unlink(missing_ok=True)

    def remove_leftovers(self, needed: Callable[[str], bool]) -> None:
        """Remove the objects that the last writer noted, except those that are needed."""
        pending = self.folder / _PENDING
        if not pending.is_file():
            return
        refuse_link(self.folder)
        for name in pending.read_text(errors="replace").splitlines():
            if _NAME.fullmatch(name):
                (self.folder / f"{name}.new").unlink(missing_ok=True)
                if not needed(name):
                    (self.folder / name).unlink(missing_ok=True)
        (self.folder / f"{_PENDING}.new").unlink(missing_ok=True)
        pending.unlink(missing_ok=True)
        self._noted = []

    def clear(self) -> None:
        """Remove all objects and unfinished files."""
        if self.folder.is_dir():
            for entry in list(os.scandir(self.folder)):
                if _NAME.fullmatch(entry.name.removesuffix(".new")) or entry.name.startswith((_PENDING, _CHECKED)):
                    Path(entry.path).unlink()
        self._noted = []

    def names(self) -> Iterator[str]:
        """Yield the names of all objects in the folder; other files are ignored."""
        if self.folder.is_dir():
            yield from (entry.name for entry in os.scandir(self.folder) if _NAME.fullmatch(entry.name))

    def verify(self, names: Collection[str]) -> int:
        """Compare objects with their hashes and return the number of bytes read."""
        return sum(len(self.read(name)) for name in names)

    @staticmethod
    def _hash(path: Path) -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(handle: int) -> str:
    """Return what changes when a file is written to or replaced; the first number is the version of the checks."""
    status = os.fstat(handle)
    return f"1 {status.st_size} {status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}"
