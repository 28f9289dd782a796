"""Files that are there afterwards, whatever happens, and that never follow a symbolic link when they are written."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from evergraph.errors import EvergraphError, InputError

__all__ = [
    "LOCK",
    "append_line",
    "create",
    "disk_errors",
    "locked",
    "only_one",
    "refuse_link",
    "sync_folder",
    "write_atomic",
    "write_synced",
]

LOCK = ".lock"
"""The file in a folder that its writer holds."""

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_POLL = 0.05  # seconds between two tries to get a lock


def create(path: Path) -> BinaryIO:
    """Open a new file to write; what is there under its name, a link too, is removed first and not written to."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW, 0o666), "wb")


def write_synced(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a new file and have the disk confirm it."""
    with create(path) as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def write_atomic(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a file so that, whenever it is looked at, it is what it was or whole; a link at the path is replaced."""
    staged = path.with_name(f"{path.name}.new")
    write_synced(staged, data, sync=sync)
    staged.replace(path)
    if sync:
        sync_folder(path.parent)


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file and have the disk confirm it; what a kill left of another gets a line of its own."""
    new = not path.exists()
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _NOFOLLOW, 0o666)
    except OSError as error:
        raise (_link(path) if error.errno == errno.ELOOP else error) from None
    with os.fdopen(handle, "r+b") as file:
        with contextlib.suppress(ImportError):  # not on Windows
            import fcntl

            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            line = (b"" if file.read(1) == b"\n" else b"\n") + line
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the disk confirm which files a folder holds."""
    with contextlib.suppress(PermissionError):  # Windows cannot open folders, and has no need to
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def refuse_link(path: Path) -> None:
    """Refuse a path that is a symbolic link: what is written there would go elsewhere."""
    if path.is_symlink():
        raise _link(path)


@contextlib.contextmanager
def disk_errors(path: Path, problem: str) -> Iterator[None]:
    """Turn a failure of the disk into an error that says what could not be done, and what to do."""
    try:
        yield
    except OSError as error:
        raise EvergraphError(
            f"{error.filename or path}: {problem} ({error.strerror or error}). What was finished is not lost: make "
            "room, or change permissions, and run the same command again."
        ) from error


@contextlib.contextmanager
def locked(folder: Path, what: str, wait: float = 0) -> Iterator[None]:
    """Hold a folder for one writer; the lock goes with the process, however that ends.

    Parameters
    ----------
    folder
        Its file ``.lock`` is what is held.
    what
        What the folder holds, for the error.
    wait
        Seconds to wait for another writer.
    """
    with _held(folder / LOCK, wait) as held:
        if not held:
            waited = f" (waited {wait:g} s)" if wait else ""
            raise EvergraphError(f"{folder}: another process is writing this {what}{waited}; wait until it is done.")
        yield


@contextlib.contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Hold a file of its own, waiting for any other process that does."""
    with _held(lock, None):
        yield


@contextlib.contextmanager
def _held(path: Path, wait: float | None) -> Iterator[bool]:
    """Lock a file; gives False where another process has it for longer than the seconds to wait (None: for ever)."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield True
        return
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link(path) from None
        raise
    try:
        if wait is None:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield True
            return
        end = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    yield False
                    return
                time.sleep(_POLL)
        yield True
    finally:
        os.close(handle)


def _link(path: Path) -> InputError:
    return InputError(
        "this is a symbolic link, which is not followed when writing", file=path, fix="remove the link and try again"
    )
