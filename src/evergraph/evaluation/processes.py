"""Work shared out among processes, which do not outlive the one that started them."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

from evergraph.errors import EvergraphError

__all__ = ["InProcess", "completed", "executor_for", "threads_each"]

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


@contextlib.contextmanager
def executor_for(given: Executor | None, jobs: int) -> Iterator[Executor]:
    """An executor for some jobs: the given one, which is left running; this process; or several processes.

    Our own processes are ended on the way out: at once after an error or an interrupt. One that was ended from outside
    is an `EvergraphError`.

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
            "one of the processes was ended from outside, perhaps for want of memory. What was finished is not lost: "
            "run the same command again, with fewer processes (--jobs) if need be."
        ) from error
    except BaseException:  # an interrupt, too, should not wait for what takes minutes
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def completed(
    items: Iterable[_Item], submit: Callable[[_Item], Future[_Found]], at_hand: int
) -> Generator[tuple[_Item, _Found], None, None]:
    """Submit items, so many at a time, and give each with its result as it finishes.

    Examples
    --------
    >>> with executor_for(None, jobs=1) as pool:
    ...     list(completed("ab", lambda item: pool.submit(ord, item), at_hand=1))
    [('a', 97), ('b', 98)]
    """
    waiting = iter(items)
    running: dict[Future[_Found], _Item] = {}
    try:
        while True:
            for item in itertools.islice(waiting, at_hand - len(running)):
                running[submit(item)] = item
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    finally:
        for future in running:  # after an error: whoever was given to run them need not go on
            future.cancel()


@contextlib.contextmanager
def threads_each(number: int) -> Iterator[None]:
    """Let torch have a number of threads in this process, and what it had before on the way out."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class InProcess(Executor):
    """Runs work in this process, at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # whoever asks for the result gets it
            future.set_exception(error)
        return future


class _Pool(ProcessPoolExecutor):
    """Processes that leave interrupts to the one that started them, from their first moment on."""

    def __init__(self, jobs: int) -> None:
        # Spawned, for a fork of a process with threads may hang.
        super().__init__(jobs, mp_context=get_context("spawn"), initializer=_begin_worker)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if not hasattr(signal, "pthread_sigmask"):  # on Windows
            return super().submit(fn, *args, **kwargs)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which those started within inherit
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker() -> None:
    """Leave interrupts to the process that started this one, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
