"""Measure time and peak memory, each measurement in a new process, so that none affects the next."""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(os.environ.get("EVERGRAPH_DATA") or Path(__file__).parents[2] / "shared" / "data")


@dataclass(frozen=True)
class Measured:
    """Seconds (best and median of several runs), seconds of all cores a run, peak memory, result of the last run."""

    best: float
    median: float
    processor: float
    peak_mb: float
    result: Any


def measure(
    function: Callable[..., Any], *arguments: Any, repeat: int = 5, warm: bool = True, spin: bool = False
) -> Measured:
    """Run a function in a new process, once to warm up (unless ``warm`` is False) and ``repeat`` times to measure.

    With ``spin``, OpenMP's threads wait actively between operations, as they do without Evergraph's setting.
    """
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measure, (function, arguments, repeat, warm, spin))


def _measure(function: Callable[..., Any], arguments: tuple[Any, ...], repeat: int, warm: bool, spin: bool) -> Measured:
    if spin:
        assert "torch" not in sys.modules
        os.environ.pop("OMP_WAIT_POLICY", None)
    result = function(*arguments) if warm else None
    seconds = []
    before = time.process_time()
    for _ in range(repeat):
        start = time.perf_counter()
        result = function(*arguments)
        seconds.append(time.perf_counter() - start)
    processor = (time.process_time() - before) / repeat
    return Measured(min(seconds), statistics.median(seconds), processor, _peak_mb(), result)


def _peak_mb() -> float:
    """Return the peak memory of this process; on Linux, getrusage would include the parent before the fork."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
