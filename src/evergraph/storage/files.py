"""Writing files so that they are there afterwards, whatever happens."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from evergraph.errors import EvergraphError

__all__ = ["LOCK", "locked", "only_one", "replace_synced", "sync_folder", "write_synced"]

LOCK = ".lock"
"""The file in a folder that its writer holds."""


@contextlib.contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Hold the folder for one writer; the lock goes with the process, however that ends."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EvergraphError(f"{folder}: another process is writing this {what}; wait until it is done.") from None
        yield


@contextlib.contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Hold a file of its own, waiting for any other process that does."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sync_folder(folder: Path) -> None:
    """Have the disk confirm which files a folder holds."""
    with contextlib.suppress(PermissionError):  # Windows cannot open folders, and has no need to
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and have the disk confirm it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_synced(path: Path, data: bytes) -> None:
    """Write a file so that, whenever it is looked at, it is what it was or whole."""
    staged = path.with_name(f"{path.name}.new")
    write_synced(staged, data)
    staged.replace(path)
    sync_folder(path.parent)
