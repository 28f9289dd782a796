"""Atomic, synced file writes that never follow a symbolic link, and locks for a single writer."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from evergraph.errors import BusyError, InputError, os_error

__all__ = [
    "LOCK",
    "append_line",
    "create",
    "disk_errors",
    "locked",
    "only_one",
    "refuse_link",
    "shared",
    "sync_folder",
    "write_atomic",
    "write_synced",
]

LOCK = ".lock"
"""The lock file of a folder."""

_log = logging.getLogger(__name__)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_POLL = 0.05  # seconds between two attempts to take a lock


def create(path: Path) -> BinaryIO:
    """Open a new file for writing; an existing file or link of that name is removed, not written to."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW, 0o666), "wb")


def write_synced(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a new file and wait until the disk confirms it."""
    with create(path) as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def write_atomic(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a file so that readers find either the old content or all of the new; a link at the path is replaced."""
    staged = path.with_name(f"{path.name}.new")
    write_synced(staged, data, sync=sync)
    staged.replace(path)
    if sync:
        sync_folder(path.parent)


def append_line(path: Path, line: bytes, *, cut: bool = False) -> None:
    """Append a line and wait until the disk confirms it; an unfinished last line is closed first, or ``cut`` off."""
    new = not path.exists()
    with os.fdopen(_open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "r+b") as file:
        with contextlib.suppress(ImportError):  # not on Windows
            import fcntl

            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            unfinished = file.read(1) != b"\n"
            if unfinished and cut:
                _log.info("%s: cutting off an incomplete last line", path)
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            line = b"\n" + line if unfinished and not cut else line
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the disk confirms which files a folder contains."""
    with contextlib.suppress(PermissionError):  # Windows cannot open folders and does not need this
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def refuse_link(path: Path) -> None:
    """Refuse a path that is a symbolic link, because writing to it would change another file."""
    if path.is_symlink():
        raise _link_error(path)


@contextlib.contextmanager
def disk_errors(path: Path, problem: str) -> Iterator[None]:
    """Turn an error of the disk into one that says what failed and what to do."""
    try:
        yield
    except OSError as error:
        raise os_error(error, problem, file=path, note="What was finished is not lost") from error


@contextlib.contextmanager
def locked(folder: Path, what: str, wait: float = 0) -> Iterator[None]:
    """Lock a folder for one writer; the lock is released when the process ends, even by a crash.

    Parameters
    ----------
    folder
        The lock is its file ``.lock``.
    what
        Kind of folder, for the error message.
    wait
        Seconds to wait for another writer.
    """
    with _held(folder / LOCK, wait) as held:
        if not held:
            waited = f" (waited {wait:g} s)" if wait else ""
            longer = ", or give --wait SECONDS (wait=SECONDS in Python)" if what == "workspace" else ""
            problem = f"another process is writing this {what}{waited}"
            raise BusyError(problem, file=folder, fix=f"wait until it is done{longer}")
        yield


@contextlib.contextmanager
def only_one(lock: Path, waiting: str = "", *, holder: str = "") -> Iterator[None]:
    """Hold a lock file, after waiting for other processes to release it.

    ``waiting`` is logged if that takes time, unless the other process gave the same ``holder``.
    """
    with _held(lock, 0) as held:
        if held:
            _write_holder(lock, holder)
            yield
            return
    if waiting and not (holder and lock.read_bytes() == holder.encode()):
        _log.warning(waiting)
    with _held(lock, None):
        _write_holder(lock, holder)
        yield


def _write_holder(lock: Path, holder: str) -> None:
    if holder:
        with contextlib.suppress(OSError), os.fdopen(_open(lock, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(holder.encode())


@contextlib.contextmanager
def shared(lock: Path) -> Iterator[None]:
    """Hold a lock file together with others that share it; `only_one` waits for all of them."""
    with _held(lock, None, shared=True):
        yield


@contextlib.contextmanager
def _held(path: Path, wait: float | None, *, shared: bool = False) -> Iterator[bool]:
    """Lock a file; yields False if another process holds it for longer than ``wait`` seconds (None: no limit)."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield True
        return
    handle = _open(path, os.O_RDWR | os.O_CREAT)
    try:
        if wait is None:
            fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
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


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | _NOFOLLOW, 0o666)
    except OSError as error:
        raise (_link_error(path) if error.errno == errno.ELOOP else error) from None


def _link_error(path: Path) -> InputError:
    return InputError(
        "this is a symbolic link, which is not followed when writing", file=path, fix="remove the link and try again"
    )
