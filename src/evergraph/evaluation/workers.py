"""Where the work of a command runs: in this process, in processes of this machine, or on a Ray cluster.

The main process submits work with `Workers.submit`. Work is a function of a module with arguments that can be pickled.
It can use what the main process gave to all workers (`given`), report numbers while it runs (`report`), and ask
whether it should stop (`stopped`). So the same function runs everywhere.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pickle
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import lru_cache
from logging.handlers import QueueHandler
from multiprocessing import get_context, parent_process
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import EvergraphError, InputError

if TYPE_CHECKING:
    from evergraph.graph.evolving import EvolvingGraph

__all__ = [
    "RayEngine",
    "Workers",
    "check_jobs",
    "completed",
    "cores_here",
    "given",
    "graph_of",
    "jobs_for",
    "name_of",
    "report",
    "start_workers",
    "stopped",
    "threads_each",
]

LOGGER = "evergraph"
TICK = 0.2
"""Seconds between two looks at what workers report."""

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class RayEngine:
    """Settings of work on a Ray cluster.

    Parameters
    ----------
    address
        Address of the cluster, such as ``"10.0.0.5:6379"`` or ``"auto"``; None for the one in ``RAY_ADDRESS``, or else
        a new one on this machine that ends with the command.
    resources
        What each piece of work reserves: ``cpu``, ``gpu``, ``memory`` (bytes), and any resource that the cluster
        defines. Its threads are the whole number of ``cpu``, at least one.
    jobs
        Number of pieces of work at a time; None for as many as the cluster has resources for.
    retries
        How often work starts again if its process or node dies.
    """

    address: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    jobs: int | None = None
    retries: int = 3

    def __post_init__(self) -> None:
        check_jobs(self.jobs)

    @property
    def threads(self) -> int:
        """Threads of each piece of work."""
        return max(int(self.resources.get("cpu", 1)), 1)


class Workers(ABC):
    """Workers of a command, as the main process sees them.

    ``numbers`` has what work has reported: a row for each item and a column for each of its numbers, NaN before.
    ``at_once`` is the number of items to submit at a time, and ``parallel`` how many of them run at a time.
    """

    numbers: NDArray[np.float64]
    at_once: int
    parallel: int

    @abstractmethod
    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Run a function of a module in a worker."""

    @abstractmethod
    def stop(self, item: int) -> None:
        """Ask the work on an item to stop."""

    def listen(self) -> None:  # noqa: B027  # only workers elsewhere must be asked
        """Update the numbers, and pass on what workers have logged."""

    def close(self, *, kill: bool) -> None:  # noqa: B027  # in this process there is nothing to end
        """End the workers, immediately if ``kill``."""


class Channel(ABC):
    """The connection of work to the main process."""

    @abstractmethod
    def given(self) -> Any:
        """Return what the main process gave to all workers."""

    @abstractmethod
    def report(self, item: int, column: int, value: float) -> None:
        """Set one of the numbers of an item."""

    @abstractmethod
    def stopped(self, item: int) -> bool:
        """Whether the main process asked the work on an item to stop."""

    def graph(self, path: str) -> tuple[EvolvingGraph, str] | None:  # noqa: ARG002  # by default none is shared
        """Return a graph that the main process gave to all workers, with its fingerprint; None if it did not."""
        return None


_channel: Channel | None = None
"""The channel of the work that runs in this process."""


def open_channel(channel: Channel | None) -> Channel | None:
    """Set the channel of this process, and return the one before."""
    global _channel
    before, _channel = _channel, channel
    return before


def _open() -> Channel:
    if _channel is None:
        raise RuntimeError("this function is only for work that Workers.submit runs")
    return _channel


def given() -> Any:
    """Return, in a worker, what the main process gave to all workers."""
    return _open().given()


def report(item: int, column: int, value: float) -> None:
    """Set, in a worker, one of the numbers of an item, which the main process sees in `Workers.numbers`."""
    _open().report(item, column, value)


def stopped(item: int) -> bool:
    """Whether the main process asked the work on an item to stop."""
    return _open().stopped(item)


@contextlib.contextmanager
def start_workers(
    engine: RayEngine | None,
    jobs: int,
    *,
    items: int,
    columns: int = 0,
    shared: Any = None,
    graphs: Iterable[str] = (),
    on_report: Callable[[], object] | None = None,
) -> Iterator[Workers]:
    """Start workers, and end them with the block: immediately after an error or an interrupt.

    Parameters
    ----------
    engine
        Settings of Ray; None for processes of this machine.
    jobs
        Number of processes of this machine; 1 is this process. Ray has a number of its own.
    items, columns
        Number of items, and of the numbers that the work on each may report.
    shared
        What work gets from `given`. It is sent once to each process, or on Ray once to each node.
    graphs
        Paths of the graphs that work opens with `graph_of`. On Ray they are sent once to each node; on this machine
        each process reads the files.
    on_report
        Called after each reported number if work runs in this process, where no time is left to call `listen`.

    Examples
    --------
    >>> with start_workers(None, 1, items=1) as workers:
    ...     workers.submit(max, 2, 3).result()
    3
    """
    workers: Workers
    if engine is not None:
        from evergraph.evaluation.cluster import RayWorkers

        workers = RayWorkers(engine, (items, columns), shared, graphs)
    elif (processes := min(jobs, items)) > 1:
        workers = ProcessWorkers(processes, (items, columns), shared)
    else:
        workers = InProcess((items, columns), shared, on_report)
    try:
        yield workers
    except BrokenProcessPool as error:
        workers.close(kill=True)
        raise EvergraphError(
            "one of the processes was killed, perhaps because memory ran out. Stored results are not lost",
            fix="run the same command again, with fewer processes (--jobs) if needed",
        ) from error
    except BaseException:  # also an interrupt: do not wait for work that takes minutes
        workers.close(kill=True)
        raise
    else:
        workers.close(kill=False)


def completed(
    items: Iterable[_Item],
    submit: Callable[[_Item], Future[_Found]],
    workers: Workers,
    meanwhile: Callable[[], object] | None = None,
) -> Generator[tuple[_Item, _Found], None, None]:
    """Submit items, as many at a time as there are workers, and yield each with its result as it finishes.

    ``meanwhile`` is called several times a second while they run.

    Examples
    --------
    >>> with start_workers(None, 1, items=2) as workers:
    ...     list(completed("ab", lambda item: workers.submit(ord, item), workers))
    [('a', 97), ('b', 98)]
    """
    waiting = iter(items)
    running: dict[Future[_Found], _Item] = {}
    try:
        while True:
            for item in itertools.islice(waiting, max(workers.at_once - len(running), 0)):
                running[submit(item)] = item
            if not running:
                return
            done = wait(running, timeout=TICK, return_when=FIRST_COMPLETED).done
            workers.listen()
            if meanwhile is not None:
                meanwhile()
            for future in sorted(done, key=lambda one: one.exception() is not None):  # first what can be stored
                yield running.pop(future), future.result()
    finally:
        for future in running:  # after an error
            future.cancel()


# --- this process ----------------------------------------------------------------------------------------------------


class InProcess(Workers, Channel):
    """Runs work immediately in this process."""

    at_once = parallel = 1

    def __init__(self, shape: tuple[int, int], shared: Any = None, on_report: Callable[[], object] | None = None):
        self.numbers, self._stopped = np.full(shape, np.nan), np.zeros(shape[0], bool)
        self._shared, self._on_report = shared, on_report

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        before = open_channel(self)
        try:
            future.set_result(function(*args))
        except Exception as error:  # raised by future.result()
            future.set_exception(error)
        finally:
            open_channel(before)
        return future

    def stop(self, item: int) -> None:
        self._stopped[item] = True

    def given(self) -> Any:
        return self._shared

    def report(self, item: int, column: int, value: float) -> None:
        self.numbers[item, column] = value
        if self._on_report is not None:
            self._on_report()

    def stopped(self, item: int) -> bool:
        return bool(self._stopped[item])


# --- processes of this machine ---------------------------------------------------------------------------------------


class ProcessWorkers(Workers):
    """Processes of this machine; their log appears in this one."""

    def __init__(self, jobs: int, shape: tuple[int, int], shared: Any) -> None:
        context = get_context("spawn")  # a fork of a process with threads may hang
        # Without a lock, which a killed process would keep.
        memory = RawArray("d", max(shape[0] * shape[1], 1)), RawArray("b", max(shape[0], 1))
        self.numbers, self._stopped = _arrays(memory, shape)
        self.numbers[:] = np.nan
        self._records = context.SimpleQueue()
        level = logging.getLogger(LOGGER).getEffectiveLevel()
        self.at_once = self.parallel = jobs
        self._pool = ProcessPoolExecutor(
            jobs,
            mp_context=context,
            initializer=_begin_process,
            initargs=(self._records, level, memory, shape, pickle.dumps(shared)),
        )

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        if not hasattr(signal, "pthread_sigmask"):  # on Windows
            return self._pool.submit(function, *args)
        # Processes that are started now ignore interrupts from their start: this process handles these.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self._pool.submit(function, *args)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def stop(self, item: int) -> None:
        self._stopped[item] = True

    def listen(self) -> None:
        while not self._records.empty():
            record = self._records.get()
            logging.getLogger(record.name).handle(record)

    def close(self, *, kill: bool) -> None:
        if kill:
            for process in list((getattr(self._pool, "_processes", None) or {}).values()):
                process.terminate()
        self._pool.shutdown(cancel_futures=True)
        # Not forever: a killed process may have left a record half written.
        rest = threading.Thread(target=self.listen, daemon=True)
        rest.start()
        rest.join(10 * TICK)


def _arrays(memory: tuple[Any, Any], shape: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    numbers, flags = np.frombuffer(memory[0], np.float64), np.frombuffer(memory[1], np.bool_)
    return numbers[: shape[0] * shape[1]].reshape(shape), flags[: shape[0]]


class _ProcessChannel(Channel):
    def __init__(self, memory: tuple[Any, Any], shape: tuple[int, int], shared: bytes) -> None:
        self._numbers, self._stopped = _arrays(memory, shape)
        self._shared = shared

    def given(self) -> Any:
        return _unpickled(self._shared)

    def report(self, item: int, column: int, value: float) -> None:
        self._numbers[item, column] = value

    def stopped(self, item: int) -> bool:
        return bool(self._stopped[item])


@lru_cache(maxsize=1)
def _unpickled(shared: bytes) -> Any:
    return pickle.loads(shared)  # written by the main process


class _ToParent(QueueHandler):
    queue: Any

    def enqueue(self, record: logging.LogRecord) -> None:
        self.queue.put(record)


def _begin_process(records: Any, level: int, memory: tuple[Any, Any], shape: tuple[int, int], shared: bytes) -> None:
    """Ignore interrupts, end when the process that started this one ends, and log there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    log_to(_ToParent(records), level)
    open_channel(_ProcessChannel(memory, shape, shared))


def log_to(handler: logging.Handler, level: int) -> None:
    """Send the log of this process to a handler only."""
    log = logging.getLogger(LOGGER)
    log.handlers, log.level, log.propagate = [handler], level, False


# --- cores, memory, threads ------------------------------------------------------------------------------------------


def check_jobs(jobs: int | None) -> None:
    """Refuse a number of jobs below 1."""
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}", fix="pass a whole number of at least 1, or None")


@contextlib.contextmanager
def threads_each(number: int) -> Iterator[None]:
    """Set the number of torch threads of this process for a block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def cores_here() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def jobs_for(work: int, *, threads: int = 1, memory: int = 0) -> int:
    """Return how many processes to start: as many as work, cores and memory allow, at least 1.

    Parameters
    ----------
    work
        Number of pieces of work.
    threads, memory
        Threads and bytes that each process uses.

    Examples
    --------
    >>> jobs_for(1), jobs_for(3, memory=10**18)
    (1, 1)
    """
    free = _free_memory() if memory else None
    most = work if free is None else min(work, free // memory)
    return max(min(most, cores_here() // threads), 1)


def _free_memory() -> int | None:
    """Return the bytes that new processes can use; None if unknown."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")))
    with contextlib.suppress(OSError, ValueError):  # "max" if there is no limit
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(found, default=None)


def name_of(graph: str) -> str:
    """Return the last part of a graph's path; paths such as ``.`` are resolved first.

    Examples
    --------
    >>> name_of("graphs/dblp-easy/"), name_of(".") == Path.cwd().name
    ('dblp-easy', True)
    """
    path = Path(graph)
    return (path.resolve() if path.name in ("", "..") else path).name


def graph_of(path: str) -> tuple[EvolvingGraph, str]:
    """Return a graph and its fingerprint: the one that the main process gave to all workers, or loaded once."""
    return (None if _channel is None else _channel.graph(path)) or _loaded(path)


@lru_cache(maxsize=8)
def _loaded(path: str) -> tuple[EvolvingGraph, str]:
    from evergraph.datasets import load
    from evergraph.graph.arrays import fingerprint

    graph = load(path)
    return graph, fingerprint(graph)
