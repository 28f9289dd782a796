"""Measuring time and peak memory in processes of their own, so that nothing bleeds from one into the next."""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(os.environ.get("EVERGRAPH_DATA") or Path(__file__).parents[2] / "shared" / "data")


@dataclass(frozen=True)
class Measured:
    """Seconds (best and median of some runs), peak memory of the process, and what the last run returned."""

    best: float
    median: float
    peak_mb: float
    result: Any


def measure(function: Callable[..., Any], *arguments: Any, repeat: int = 5, warm: bool = True) -> Measured:
    """Run a function in a fresh process, once to warm up and then some times."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measure, (function, arguments, repeat, warm))


def _measure(function: Callable[..., Any], arguments: tuple[Any, ...], repeat: int, warm: bool) -> Measured:
    result = function(*arguments) if warm else None
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        result = function(*arguments)
        seconds.append(time.perf_counter() - start)
    return Measured(min(seconds), statistics.median(seconds), _peak_mb(), result)


def _peak_mb() -> float:
    """Peak memory of this process; what getrusage says on Linux includes that of its parent before the fork."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
