"""Run work on several processes, and load each graph once per process."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evergraph.errors import EvergraphError

if TYPE_CHECKING:
    from evergraph.graph.evolving import EvolvingGraph

__all__ = ["InProcess", "completed", "executor_for", "graph_of", "name_of", "threads_each"]

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


@contextlib.contextmanager
def executor_for(given: Executor | None, jobs: int) -> Iterator[Executor]:
    """Return an executor: the given one, which is left running; this process; or new processes.

    New processes end with the block, immediately after an error or an interrupt. If one of them is killed, an
    `EvergraphError` is raised.

    Examples
    --------
    >>> with executor_for(None, jobs=1) as pool:
    ...     pool.submit(max, 2, 3).result()
    3
    """
    if given is not None or jobs == 1:
        yield given or InProcess()
        return
    pool = _Pool(jobs)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise EvergraphError(
            "one of the processes was killed, perhaps because memory ran out. Finished results are not lost",
            fix="run the same command again, with fewer processes (--jobs) if needed",
        ) from error
    except BaseException:  # also an interrupt: do not wait for work that takes minutes
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def completed(
    items: Iterable[_Item], submit: Callable[[_Item], Future[_Found]], at_once: int
) -> Generator[tuple[_Item, _Found], None, None]:
    """Submit items, ``at_once`` at a time, and yield each with its result as it finishes.

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
            for future in wait(running, return_when=FIRST_COMPLETED).done:
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

    def __init__(self, jobs: int) -> None:
        # Spawned: a fork of a process with threads may hang.
        super().__init__(jobs, mp_context=get_context("spawn"), initializer=_begin_worker)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if not hasattr(signal, "pthread_sigmask"):  # on Windows
            return super().submit(fn, *args, **kwargs)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited by processes that submit starts
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker() -> None:
    """Ignore interrupts, and end when the process that started this one ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


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
