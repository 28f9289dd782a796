"""Content-addressed objects: files that are written once, named by the hash of their content."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path

from evergraph.errors import InputError, os_error
from evergraph.storage.files import refuse_link, sync_folder, write_atomic, write_synced

__all__ = ["Objects"]

_NAME = re.compile(r"[0-9a-f]{64}\.[a-z]+")
_PENDING = ".pending"


class Objects:
    """A folder of objects.

    A writer notes the names of the objects it is about to write in the file ``.pending``. If it is killed, the next
    writer finds there what may be left over and does not have to scan the folder.

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
        if hashlib.sha256(data).hexdigest() != name[:64]:
            raise self._damaged(path, "the contents are not those that were saved")
        return data

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
                if _NAME.fullmatch(entry.name.removesuffix(".new")) or entry.name.startswith(_PENDING):
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
