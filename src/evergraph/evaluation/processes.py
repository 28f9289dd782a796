"""Run work on several processes, and load each graph once per process."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from logging.handlers import QueueHandler
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evergraph.errors import EvergraphError

if TYPE_CHECKING:
    from evergraph.graph.evolving import EvolvingGraph

__all__ = ["InProcess", "completed", "cores_here", "executor_for", "graph_of", "jobs_for", "name_of", "threads_each"]

_LOGGER = "evergraph"
_TICK = 0.2  # seconds between two looks at what processes report

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


@contextlib.contextmanager
def executor_for(
    given: Executor | None, jobs: int, initializer: Callable[..., object] | None = None, initargs: tuple[Any, ...] = ()
) -> Iterator[Executor]:
    """Return an executor: the given one, which is left running; this process; or new processes.

    New processes start with ``initializer(*initargs)``, and their log appears in this one. They end with the block,
    immediately after an error or an interrupt. If one of them is killed, an `EvergraphError` is raised.

    Examples
    --------
    >>> with executor_for(None, jobs=1) as pool:
    ...     pool.submit(max, 2, 3).result()
    3
    """
    if given is not None or jobs == 1:
        yield given or InProcess()
        return
    pool = _Pool(jobs, initializer, initargs)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise EvergraphError(
            "one of the processes was killed, perhaps because memory ran out. Stored results are not lost",
            fix="run the same command again, with fewer processes (--jobs) if needed",
        ) from error
    except BaseException:  # also an interrupt: do not wait for work that takes minutes
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def completed(
    items: Iterable[_Item],
    submit: Callable[[_Item], Future[_Found]],
    at_once: int,
    meanwhile: Callable[[], object] | None = None,
) -> Generator[tuple[_Item, _Found], None, None]:
    """Submit items, ``at_once`` at a time, and yield each with its result as it finishes.

    ``meanwhile`` is called several times a second while they run.

    Examples
    --------
    >>> with executor_for(None, jobs=1) as pool:
    ...     list(completed("ab", lambda item: pool.submit(ord, item), at_once=1))
    [('a', 97), ('b', 98)]
    """
    waiting = iter(items)
    running: dict[Future[_Found], _Item] = {}
    try:
        while True:
            for item in itertools.islice(waiting, at_once - len(running)):
                running[submit(item)] = item
            if not running:
                return
            done = wait(running, timeout=None if meanwhile is None else _TICK, return_when=FIRST_COMPLETED).done
            if meanwhile is not None:
                meanwhile()
            for future in done:
                yield running.pop(future), future.result()
    finally:
        for future in running:  # after an error
            future.cancel()


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


class InProcess(Executor):
    """Runs work immediately in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the function and return a finished future."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # raised by future.result()
            future.set_exception(error)
        return future


class _Pool(ProcessPoolExecutor):
    """Processes that ignore interrupts from their start; the process that started them handles these."""

    def __init__(self, jobs: int, initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> None:
        context = get_context("spawn")  # a fork of a process with threads may hang
        self._records, self._ended = context.SimpleQueue(), threading.Event()
        level = logging.getLogger(_LOGGER).getEffectiveLevel()
        super().__init__(
            jobs,
            mp_context=context,
            initializer=_begin_worker,
            initargs=(self._records, level, initializer, initargs),
        )
        self._log = threading.Thread(target=self._pass_on, daemon=True)
        self._log.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if not hasattr(signal, "pthread_sigmask"):  # on Windows
            return super().submit(fn, *args, **kwargs)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited by processes that submit starts
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait, cancel_futures=cancel_futures)
        self._ended.set()
        self._log.join(10 * _TICK)  # not longer: a killed process may have left a record half written

    def _pass_on(self) -> None:
        """Log what the processes log."""
        while not (ended := self._ended.wait(_TICK)) or not self._records.empty():
            while not self._records.empty():
                record = self._records.get()
                logging.getLogger(record.name).handle(record)
            if ended:
                return


class _ToParent(QueueHandler):
    queue: Any

    def enqueue(self, record: logging.LogRecord) -> None:
        self.queue.put(record)


def _begin_worker(records: Any, level: int, then: Callable[..., object] | None, arguments: tuple[Any, ...]) -> None:
    """Ignore interrupts, end when the process that started this one ends, and log there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    log = logging.getLogger(_LOGGER)
    log.handlers, log.level, log.propagate = [_ToParent(records)], level, False
    if then is not None:
        then(*arguments)


def is_orphan() -> bool:
    """Whether the process that started this one has ended."""
    parent = parent_process()
    return parent is not None and not parent.is_alive()


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


@lru_cache(maxsize=8)
def graph_of(path: str) -> tuple[EvolvingGraph, str]:
    """Return a graph and its fingerprint; each process loads it once."""
    from evergraph.datasets import load
    from evergraph.graph.arrays import fingerprint

    graph = load(path)
    return graph, fingerprint(graph)
