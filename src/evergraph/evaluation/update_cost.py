"""What an update costs: seconds, seconds of the CPU, peak memory, and the bytes that must be kept to continue."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evergraph.allocation import kept_memory
from evergraph.evaluation.configuration import Configuration
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import SparseFeatures
from evergraph.graph.pages import give_back_pages, resident
from evergraph.learning.checkpoint import pack
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.task import Task
from evergraph.nn.base import as_model
from evergraph.nn.sampling import Edges

__all__ = ["Meter", "bytes_kept", "rows_kept", "warm_up"]

_ENTRY = 8  # bytes of a stored word, category or edge: two numbers of 4 bytes


@dataclass
class Meter:
    """Measures updates of one process. ``baseline`` is the resident memory that it has before.

    Memory is measured on Linux only. Elsewhere it is NaN.
    """

    baseline: int
    seconds: float = math.nan
    cpu_seconds: float = math.nan
    peak_memory: float = math.nan

    @classmethod
    def of(cls, graph: EvolvingGraph) -> Meter:
        """Return a meter for updates on a graph; free memory and what was read of its files before count again."""
        with kept_memory():  # returns free memory to the system
            gc.collect()
        give_back_pages(graph, 0)
        return cls(resident())

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Measure a block: its seconds, and how far the memory of the process rose above the baseline."""
        is_reset = _reset_peak()
        start, cpu = time.perf_counter(), time.process_time()
        yield
        self.seconds, self.cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
        self.peak_memory = max(_peak() - self.baseline, 0) if is_reset and self.baseline else math.nan


def _reset_peak() -> bool:
    """Let the system forget the peak of the resident memory of this process so far."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return not math.isnan(_peak())


def _peak() -> float:
    """Return the largest number of resident bytes since the last reset; NaN if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/status").read_text(encoding="ascii").split("VmHWM:")[1].split()[0]) * 1024
    return math.nan


def warm_up(configuration: Configuration, tasks: Iterable[Task]) -> None:
    """Train a learner that is not used, for one step a task, so that no measurement includes loading compiled code.

    Two tasks are enough: the second also uses the labels of the first. This is done once in a process for learners of
    the same kinds of parts.
    """
    kinds = tuple(type(getattr(configuration, entry.name)) for entry in fields(configuration))
    if kinds not in _warm:
        learner = replace(configuration, steps=1).learner(seed=0)
        for task in itertools.islice(tasks, 2):
            learner.adapt(task).predict(task)
        _warm.add(kinds)


_warm: set[tuple[type, ...]] = set()


# --- bytes to keep ---------------------------------------------------------------------------------------------------


def bytes_kept(learner: LifelongLearner, task: Task) -> int:
    """Return how many bytes must be kept to continue after a task, besides its slice.

    These are the saved learner (JSON and weights), and of each of `rows_kept` its features and edges: 8 bytes for each
    word, category and edge, and 4 for each number of dense features. Edges are those among these vertices and to the
    slice.
    """
    content, tensors = pack(learner)
    total = len(json.dumps(content, ensure_ascii=False).encode()) + len(tensors)
    rows = rows_kept(learner, task)
    blocks = () if learner.vocabulary_ is None else learner.vocabulary_.read_blocks
    stored = task.graph.features
    for block in blocks:
        part = None if block == "classes" else getattr(stored, "vectors" if block == "encoder" else block)
        if isinstance(part, SparseFeatures):
            total += _ENTRY * int((part.indptr[rows + 1] - part.indptr[rows]).sum())
        elif part is not None:
            total += 4 * part.width * len(rows)
    if "classes" in blocks or as_model(learner.model).hops != 0:
        slice_ = task.test_window
        slices = Edges.of(slice_).degrees(np.arange(len(slice_), dtype=np.int32))
        entries = Edges.beside(slice_, rows).degrees(np.arange(len(rows) + len(slice_), dtype=np.int32))
        total += _ENTRY * (int(entries.sum()) - int(slices.sum())) // 2
    return total


def rows_kept(learner: LifelongLearner, task: Task) -> NDArray[np.int64]:
    """Return the rows, ascending, of vertices from before a task's slice that the next update reads.

    These are the vertices of the window of the next period and those that the learner's memory keeps. There are none
    for a model that is computed from the labels alone.
    """
    model = as_model(learner.model)
    if learner.restart == "once" or (model.solved and not model.hops):
        return np.empty(0, np.int64)
    times = task.graph.times
    end = int(np.searchsorted(times, task.time))
    start = 0 if task.history is None else int(np.searchsorted(times, task.time + 1 - task.history))
    return np.union1d(np.arange(min(start, end), end), learner.kept_.rows(task))
