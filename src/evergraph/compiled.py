"""Compile loops with numba and run them on several cores.

The threads are Python's, because compiled code releases the interpreter lock. Of numba's own threading layers, one
(workqueue) ends the process when two threads use it at once, another (GNU OpenMP) when a forked child uses it.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numpy.typing import NDArray

__all__ = [
    "PIECES",
    "SMALL",
    "compiled",
    "cores",
    "floats",
    "floats_in_lines",
    "one_each",
    "over_range",
    "over_rows",
    "row_bounds",
]

_LINE = 16  # floats of a cache line
SMALL = 200_000
"""Amount of numbers to process below which a second thread does not pay."""
PIECES = 4
"""Pieces of work per thread: rows differ in cost, and another process may slow one core down."""


def compiled(function: Callable[..., Any], *, inline: bool = False) -> Callable[..., Any]:
    """Compile a function of arrays and numbers, cached on disk if possible.

    Fused multiply-add is allowed. NaN and infinity are respected. With ``inline``, it becomes part of the compiled
    functions that call it; LLVM does the same by itself for small functions.
    """
    kernel: Any = numba.njit(nogil=True, fastmath={"contract"}, error_model="numpy", forceinline=inline)(function)
    with contextlib.suppress(RuntimeError):  # no writable folder: compile each time
        kernel._cache = _Cache(function)
    return kernel


class _Cache(FunctionCache):
    """Numba's cache of compiled functions, with files that several processes can write at the same time."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]  # numba's
        about = (self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp())
        self._cache_file = _CodeFiles(*about)  # type: ignore[no-untyped-call]  # numba's


class _CodeFiles(IndexDataCacheFile):
    """The compiled code of a function: one file per signature and closure, whose name is a hash of these.

    Numba's own index gives a number to each. Two processes that compile different signatures at the same time can give
    them the same number, and then a third process runs code that expects other arguments, which can end it.
    """

    def save(self, key: Any, data: Any) -> None:
        """Write the code for a key, unless the disk is full."""
        with contextlib.suppress(OSError):
            self._save_data(self._name(key), (self._source_stamp, key, data))  # type: ignore[no-untyped-call]

    def load(self, key: Any) -> Any:
        """Return the code for a key; None if there is none, or if it is of another source or cannot be read."""
        try:
            stamp, stored, data = self._load_data(self._name(key))  # type: ignore[no-untyped-call]
        except Exception:  # a damaged pickle can raise any error, and compiling again is right for all
            return None
        return data if (stamp, stored) == (self._source_stamp, key) else None

    def _name(self, key: Any) -> str:
        digest = hashlib.sha256(repr((self._version, key)).encode()).hexdigest()
        return str(self._index_name.removesuffix(".nbi") + f".{digest[:16]}.nbc")


def floats(*shape: int, zero: bool = False) -> NDArray[np.float32]:
    """Return an array of single precision that begins with a cache line, so that 16 numbers are never in two lines.

    Examples
    --------
    >>> floats(3, 16).ctypes.data % 64, floats(2, zero=True).tolist()
    (0, [0.0, 0.0])
    """
    size = math.prod(shape)
    room = (np.zeros if zero else np.empty)(size + _LINE, np.float32)
    start = -(room.ctypes.data // room.itemsize) % _LINE
    return room[start : start + size].reshape(shape)


@compiled
def floats_in_lines(rows: int, columns: int) -> NDArray[np.float32]:
    """Return an array as `floats` does; for compiled functions."""
    room = np.empty(rows * columns + _LINE, np.float32)
    start = -(room.ctypes.data // 4) % _LINE
    return room[start : start + rows * columns].reshape(rows, columns)


def over_rows(kernel: Callable[..., Any], indptr: NDArray[Any], width: int, *arguments: Any) -> None:
    """Run ``kernel(first, last, *arguments)``, which computes independent rows, over ranges of about equal cost.

    ``indptr`` holds the number of entries before each row, and ``width`` the cost of an entry in numbers.
    """
    rows, threads = len(indptr) - 1, cores()
    if threads == 1 or (int(indptr[-1] - indptr[0]) + rows) * width < SMALL:
        kernel(0, rows, *arguments)
        return
    _share(kernel, row_bounds(indptr, PIECES * threads).tolist(), arguments)


def row_bounds(indptr: NDArray[Any], parts: int) -> NDArray[np.int64]:
    """Return the bounds that cut rows into parts of about equal cost.

    Examples
    --------
    >>> row_bounds(np.array([0, 7, 8, 9, 10]), 2).tolist()
    [0, 1, 4]
    """
    rows, before = len(indptr) - 1, int(indptr[0])
    # A row costs its entries and one more, so that empty rows are not free.
    costs = np.linspace(0, int(indptr[-1]) - before + rows, parts + 1)[1:-1]
    cuts = [bisect_left(range(rows), cost, key=lambda row: int(indptr[row]) - before + row) for cost in costs]
    return np.unique([0, *cuts, rows])


def one_each(kernel: Callable[..., Any], parts: int, *arguments: Any) -> None:
    """Run ``kernel(part, part + 1, *arguments)`` for each part, in parallel."""
    _share(kernel, list(range(parts + 1)), arguments)


def over_range(kernel: Callable[..., Any], n: int, *arguments: Any, width: int = 1) -> None:
    """Run ``kernel(first, last, *arguments)`` over ranges of ``n`` places of ``width`` numbers each."""
    threads = cores()
    pieces = 1 if n * width < SMALL else PIECES * threads
    _share(kernel, [n * piece // pieces for piece in range(pieces + 1)], arguments)


def _share(kernel: Callable[..., Any], bounds: list[int], arguments: tuple[Any, ...]) -> None:
    """Run over the pieces between bounds, in this thread too, so that one less has to be started."""
    pieces = deque(pairwise(bounds))

    def work() -> None:
        while True:
            try:
                first, last = pieces.popleft()
            except IndexError:
                return
            kernel(first, last, *arguments)

    threads = min(cores(), len(pieces))
    helpers = [_pool(os.getpid(), threads - 1).submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:  # no thread may write to arrays after this returns
        for helper in helpers:
            helper.result()


def cores() -> int:
    """Return the number of threads: that of torch, so that one setting governs both; torch is not imported for it."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):  # it has not while it is being imported
        return int(torch.get_num_threads())
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:  # noqa: ARG001  # a forked child needs threads of its own
    return ThreadPoolExecutor(threads, thread_name_prefix="evergraph")
