"""Compile loops with numba and run them on several cores.

The threads are Python's, because compiled code releases the interpreter lock. Of numba's own threading layers, one
(workqueue) ends the process when two threads use it at once, another (GNU OpenMP) when a forked child uses it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["SMALL", "compiled", "cores", "exp_nonpositive", "one_each", "over_range", "over_rows", "row_bounds"]

SMALL = 200_000
"""Amount of numbers to process below which a second thread does not pay."""
_PIECES = 4  # per thread, because rows differ in cost, and another process may slow one core down


def compiled(function: Callable[..., Any], *, reorder: bool = False) -> Callable[..., Any]:
    """Compile a function of arrays and numbers, cached on disk if possible.

    Fused multiply-add is allowed and, with ``reorder``, another order of sums, so that they can be vectorised. NaN and
    infinity are respected.
    """
    allowed = {"contract", "reassoc", "nsz"} if reorder else {"contract"}
    compiler = partial(numba.njit, nogil=True, fastmath=allowed, error_model="numpy")
    try:
        kernel: Callable[..., Any] = compiler(cache=True)(function)
    except RuntimeError:  # no writable folder: compile each time
        kernel = compiler()(function)
    return kernel


_POWERS = np.ldexp(np.float32(1), -np.arange(128))
_LEAST = np.float32(-87)  # exp() of less is not a normal number


@compiled
def exp_nonpositive(x: np.float32) -> np.float32:
    """Return the exponential of a number up to 0, exact to 3e-7; 0 below -87.

    It uses a table of powers of two and a series, so that a loop over it can be vectorised, unlike the library's.
    """
    value = _LEAST if x <= _LEAST else x  # noqa: FURB136  # not max(): NaN must stay
    whole = np.floor(value * np.float32(1.4426950408889634) + np.float32(0.5))
    # The logarithm of 2 in two parts; the product with the first is exact.
    f = value - whole * np.float32(0.693359375) - whole * np.float32(-2.12194440e-4)
    series = np.float32(1 / 24) + f * (np.float32(1 / 120) + f * np.float32(1 / 720))
    series = np.float32(1) + f * (np.float32(1) + f * (np.float32(0.5) + f * (np.float32(1 / 6) + f * series)))
    power = _POWERS[np.uint32(-whole) & np.uint32(127)]
    return np.float32(0) if x <= _LEAST else series * power


def over_rows(kernel: Callable[..., Any], indptr: NDArray[Any], width: int, *arguments: Any) -> None:
    """Run ``kernel(first, last, *arguments)``, which computes independent rows, over ranges of about equal cost.

    ``indptr`` holds the number of entries before each row, and ``width`` the cost of an entry in numbers.
    """
    rows, threads = len(indptr) - 1, cores()
    if threads == 1 or (int(indptr[-1] - indptr[0]) + rows) * width < SMALL:
        kernel(0, rows, *arguments)
        return
    _share(kernel, row_bounds(indptr, _PIECES * threads).tolist(), arguments)


def row_bounds(indptr: NDArray[Any], parts: int) -> NDArray[np.int64]:
    """Return the bounds that cut rows into parts of about equal cost.

    Examples
    --------
    >>> row_bounds(np.array([0, 7, 8, 9, 10]), 2).tolist()
    [0, 1, 4]
    """
    rows = len(indptr) - 1
    # A row costs its entries and one more, so that empty rows are not free.
    cost = indptr.astype(np.int64) - int(indptr[0]) + np.arange(rows + 1)
    cuts = np.searchsorted(cost, np.linspace(0, cost[-1], parts + 1)[1:-1])
    return np.unique(np.concatenate([[0], cuts, [rows]]))


def one_each(kernel: Callable[..., Any], parts: int, *arguments: Any) -> None:
    """Run ``kernel(part, part + 1, *arguments)`` for each part, in parallel."""
    _share(kernel, list(range(parts + 1)), arguments)


def over_range(kernel: Callable[..., Any], n: int, *arguments: Any, width: int = 1) -> None:
    """Run ``kernel(first, last, *arguments)`` over ranges of ``n`` places of ``width`` numbers each."""
    threads = cores()
    pieces = 1 if n * width < SMALL else _PIECES * threads
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
    """Return the number of threads: that of torch, so that one setting governs both."""
    import torch

    return torch.get_num_threads()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:  # noqa: ARG001  # a forked child needs threads of its own
    return ThreadPoolExecutor(threads, thread_name_prefix="evergraph")
