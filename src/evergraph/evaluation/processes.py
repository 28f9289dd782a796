"""Work shared out among processes, which do not outlive the one that started them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Any

from evergraph.errors import EvergraphError

__all__ = ["Here", "executor_for", "threads_each"]


@contextlib.contextmanager
def executor_for(given: Executor | None, jobs: int) -> Iterator[Executor]:
    """Whoever runs the work: processes of our own, this one if one is enough, or the executor that is given.

    Our own are ended on the way out: at once after an error or an interrupt. One that was ended from outside is told
    as an `EvergraphError`.

    Parameters
    ----------
    given
        In place of processes of our own; it is left running.
    jobs
        Number of processes.

    Examples
    --------
    >>> with executor_for(None, jobs=1) as pool:
    ...     pool.submit(max, 2, 3).result()
    3
    """
    if given is not None:
        yield given
        return
    if jobs == 1:
        yield Here()
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


@contextlib.contextmanager
def threads_each(number: int) -> Iterator[None]:
    """Let torch have a number of threads in this process, and what it had before on the way out.

    Parameters
    ----------
    number
        Of threads.

    Examples
    --------
    >>> import torch
    >>> with threads_each(1):
    ...     torch.get_num_threads()
    1
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Here(Executor):
    """Runs in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it at once."""
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
    """A worker leaves interrupts to the process that started it, and does not outlive that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
