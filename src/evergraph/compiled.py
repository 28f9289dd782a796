"""Compile loops with numba and run them on several cores.

The threads are Python's, because compiled code releases the interpreter lock. Of numba's own threading layers, one
(workqueue) ends the process when two threads use it at once, another (GNU OpenMP) when a forked child uses it.
"""

from __future__ import annotations

import math
import os
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numba
import numpy as np
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
    compiler = partial(numba.njit, nogil=True, fastmath={"contract"}, error_model="numpy", forceinline=inline)
    try:
        kernel: Callable[..., Any] = compiler(cache=True)(function)
    except RuntimeError:  # no writable folder: compile each time
        kernel = compiler()(function)
    return kernel


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
