"""Keeping freed memory for the next step of training instead of fetching it anew from the system."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator

__all__ = ["kept_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of the options in malloc.h
_DEFAULT = 128 * 1024


@contextlib.contextmanager
def kept_memory() -> Iterator[None]:
    """Within, large arrays come from memory that the process has already, where the C library is GNU's.

    Left alone, it maps each array of more than 32 MB anew, and the system clears every page of it: at two hundred
    thousand vertices that costs about as much as the training itself. Afterwards what is free is given back.
    """
    libc = _gnu()
    if libc is None:
        yield
        return
    libc.mallopt(_MMAP_THRESHOLD, 1 << 30)
    libc.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_THRESHOLD, _DEFAULT)
        libc.mallopt(_TRIM_THRESHOLD, _DEFAULT)
        libc.malloc_trim(0)


def _gnu() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
