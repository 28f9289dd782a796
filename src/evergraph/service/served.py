"""A workspace that many requests read and write at once.

Readers get the current version from memory; a new one is noticed by the change counter in the header of the database
file, also if another process made it. Writers take turns. An answer is stored in the transaction that it reports, so a
repeated request with the same idempotency key gets the first answer, also after a kill.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from evergraph.errors import DamagedWorkspaceError, NothingToDoError, StaleError
from evergraph.storage.records import Records
from evergraph.workspace import Outcome, Workspace
from evergraph.workspace.change import Change, Contents
from evergraph.workspace.store import Store, WorkspaceState, read_state

__all__ = ["Cached", "Order", "OrderedWorkspace", "Served", "View"]

_WAIT = 30.0  # seconds that a request waits for another process that writes
_REUSE = 1.0  # seconds for which a connection to the database is used again
_KEEP_ANSWERS = 7 * 24 * 3600.0  # seconds
_DECIDING = "('init', 'predict', 'remove')"
_LABELLING = "('label', 'add', 'tag', 'classes create')"

_T = TypeVar("_T")


@dataclass(frozen=True)
class Order:
    """Who asks for a change, and on which terms.

    Parameters
    ----------
    who
        Name of the user.
    key, fingerprint
        Idempotency key of the request, and a hash of what it asks for.
    expected
        The version that the change is based on; None for any.
    job, attempt
        The job that makes the change, and how often it was started.
    """

    who: str
    key: str | None = None
    fingerprint: str = ""
    expected: int | None = None
    job: int | None = None
    attempt: int = 0


class StaleRequestError(StaleError):
    """A request that is based on an older version; ``facts`` has the current one and what changed since."""

    def __init__(self, expected: int, version: int, changes: list[dict[str, Any]]) -> None:
        what = "; ".join(f"version {one['version']}, {one['command']}: {one['what']}" for one in changes[-3:])
        since = f" ({what})" if what else ""
        problem = f"the request is based on version {expected}, but the workspace has version {version}{since}"
        super().__init__(problem, fix="look at the changes, and send the request again with the current version")
        self.facts = {"version": version, "changes": changes}


class _AnsweredError(Exception):
    """The request was answered before."""

    def __init__(self, status: int, answer: dict[str, Any]) -> None:
        super().__init__()
        self.status, self.answer = status, answer


class OrderedWorkspace(Workspace):
    """A workspace that checks and records the order of each change in the transaction of the change."""

    order: Order = Order("")
    published: tuple[WorkspaceState, Contents] | None = None
    """The last version that this object made, for readers."""
    last: Outcome | None = None
    """What the last command did; None if it made no version."""

    def apply(self, command: Callable[[Change], Outcome]) -> Outcome:
        """Run a command that reads the workspace in the transaction that changes it."""
        with self._change() as change:
            return command(change)

    @property
    def is_stopped(self) -> bool:
        """Whether the job of the order was stopped."""
        with self.store.read() as records:
            row = records.one("jobs", "job = ?", self.order.job)
        return row is None or row.state != "running" or row.attempts != self.order.attempt

    @contextlib.contextmanager
    def _change(self, wait: float | None = None) -> Iterator[Change]:
        order, made = self.order, None
        with super()._change(wait) as change:
            records = change.records
            check_order(records, order, change.state.version)
            yield change
            if change.outcome is not None:
                if order.who:
                    records.insert("authors", [(change.version, order.who)])
                answer = answer_of(change.outcome)
                store_answer(records, order, 200, answer)
                if order.job is not None:
                    end_job(records, order, "done", answer)
                made = (read_state(records), change.contents)
        self.published, self.last = made or self.published, change.outcome


def answer_of(outcome: Outcome) -> dict[str, Any]:
    """Return what a command did, as the API answers it."""
    facts = {"warnings": []} | outcome.facts
    return {
        "version": outcome.version,
        "command": outcome.command,
        "what": outcome.what,
        "parts": outcome.parts,
    } | facts


def check_key(records: Records, order: Order) -> None:
    """Refuse an order that was answered before, or whose key was used for another request."""
    if order.key is not None and (row := records.one("requests", "who = ? AND key = ?", order.who, order.key)):
        if row.fingerprint != order.fingerprint:
            raise StaleError(
                f"the idempotency key {order.key!r} was used for another request",
                fix="use a new key for each request, and the same one only to repeat it",
            )
        raise _AnsweredError(row.status, json.loads(row.answer))


def check_order(records: Records, order: Order, version: int) -> None:
    """Refuse an order that was answered before, is based on another version, or belongs to a job that was stopped."""
    check_key(records, order)
    if order.expected is not None and order.expected != version:
        raise StaleRequestError(order.expected, version, changes_since(records, order.expected))
    if order.job is not None:
        row = records.one("jobs", "job = ?", order.job)
        if row is None or row.state != "running" or row.attempts != order.attempt:
            raise StaleError("the job was stopped", fix="start it again")


def store_answer(records: Records, order: Order, status: int, answer: dict[str, Any]) -> None:
    """Store the answer to a request with an idempotency key; forget those of more than a week ago."""
    if order.key is not None:
        now = time.time()
        records.delete("requests", "made < ?", now - _KEEP_ANSWERS)
        text = json.dumps(answer, ensure_ascii=False)
        records.insert("requests", [(order.who, order.key, order.fingerprint, status, text, now)])


def end_job(records: Records, order: Order, state: str, result: dict[str, Any]) -> None:
    """Write how a job ended."""
    text = json.dumps(result, ensure_ascii=False)
    records.replace("jobs", "job = ?", (order.job,), state=state, ended=time.time(), result=text)


def changes_since(records: Records, version: int, most: int = 50) -> list[dict[str, Any]]:
    """Return the commands since a version, oldest first; only the last ones if there are many."""
    rows = records.select("versions", "version > ? ORDER BY version DESC LIMIT ?", version, most)[::-1]
    who = authors_of(records, version)
    return [
        {"version": row.version, "command": row.command, "what": row.what, "who": who.get(row.version)} for row in rows
    ]


def authors_of(records: Records, after: int) -> dict[int, str]:
    """Return who made each version after one, as far as it is known."""
    return {row.version: row.who for row in records.select("authors", "version > ?", after)}


@dataclass(frozen=True)
class View:
    """The current version, for readers.

    Parameters
    ----------
    state
        The version.
    decided
        The last version that may have changed decisions or names of classes.
    predicted, restored
        The last version that made or removed decisions on the graph, and the last rollback.
    """

    state: WorkspaceState
    decided: int
    predicted: int
    restored: int

    @property
    def version(self) -> int:
        """Number of the version."""
        return self.state.version


class Served:
    """A workspace for many readers and writers at once.

    Parameters
    ----------
    folder
        Folder of the workspace.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(folder)
        self._path = self.store.database.path
        self._writer = OrderedWorkspace(folder, wait=_WAIT)
        self._writing, self._loading, self._opening = threading.Lock(), threading.Lock(), threading.Lock()
        for store in (self.store, self._writer.store):
            store.database.reuse = _REUSE
        self._file: tuple[tuple[int, int], int] | None = None
        self._kept: dict[str, tuple[bytes, Any]] = {}
        self._reading = threading.Lock()
        self._basis: bytes | None = None
        self._loaded: tuple[WorkspaceState, Contents] | None = None

    # --- reading -----------------------------------------------------------------------------------------------------

    def view(self) -> View:
        """Return the current version."""
        return self.cached("view", _read_view)

    def mark(self) -> bytes:
        """Return the change counter and the size of the database, which every commit changes.

        The file stays open, because closing it would release the locks that SQLite holds on it in this process.
        """
        found, file = self._path.stat(), self._file
        if file is None or file[0] != (found.st_dev, found.st_ino):
            with self._opening:
                number = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                opened = os.fstat(number)
                file = self._file = ((opened.st_dev, opened.st_ino), number)
        return os.pread(file[1], 8, 24)

    def close(self) -> None:
        """Close the files that stay open for readers."""
        for store in (self.store, self._writer.store):
            store.database.close()
        file, self._file = self._file, None
        if file is not None:
            os.close(file[1])

    def cached(self, name: str, read: Callable[[Records], _T]) -> _T:
        """Return what is read from the records; from memory if nothing was committed since it was read.

        While this process writes, the state before the write is current, so readers do not wait for the commit.
        """
        found = self._kept.get(name)
        if found is None or (found[0] != self._basis and found[0] != self.mark()):
            with self._reading:  # after a commit, one thread reads for all
                mark, found = self.mark(), self._kept.get(name)
                if found is None or found[0] != mark:
                    with self.store.read() as records:
                        found = self._kept[name] = (mark, read(records))
        kept: _T = found[1]
        return kept

    def snapshot(self, least: int = 0) -> tuple[WorkspaceState, Contents]:
        """Return the current version with its graph.

        While a write is in progress, it may be a slightly older version, but not one before ``least``.
        """
        version, busy = self.view().version, self._writing.locked()
        there = [one for one in (self._writer.published, self._loaded) if one is not None]
        newest = max(there, key=lambda one: one[0].version, default=None)
        if newest is not None and (newest[0].version == version or (busy and newest[0].version >= least)):
            return newest
        with self._loading:
            if self._loaded is None or self._loaded[0].version < version:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> tuple[WorkspaceState, Contents]:
        while True:
            head = self.store.head
            try:
                with self.store.read() as records:
                    state = read_state(records)
                    return state, Contents.read(records, self.store.objects, state.classes)
            except DamagedWorkspaceError:
                if self.store.head == head:  # otherwise another process has removed an object of an older version
                    raise

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, order: Order, command: Callable[[OrderedWorkspace], Outcome]) -> tuple[int, dict[str, Any]]:
        """Run a command of the workspace; return the HTTP status and the answer."""
        with self._writing:
            if (found := self.answered(order)) is not None:
                return found
            self._writer.order = order
            try:
                with self._writes():
                    outcome = command(self._writer)
            except _AnsweredError as before:
                return before.status, before.answer
            except NothingToDoError as nothing:
                version = self._writer.state.version
                answer = {"version": version, "command": "", "what": f"nothing to do: {nothing.problem}", "parts": []}
                if order.key is not None:
                    with self.store.database.write() as records:
                        store_answer(records, order, 200, answer)
                return 200, answer
            return 200, answer_of(outcome)

    @contextlib.contextmanager
    def _writes(self) -> Iterator[None]:
        self.view()
        self._basis = self._kept["view"][0]
        try:
            yield
        finally:
            self._basis = None

    def answered(self, order: Order) -> tuple[int, dict[str, Any]] | None:
        """Return the first answer to a request that is repeated; None if it is new."""
        if order.key is None:
            return None
        try:
            with self.store.read() as records:
                check_key(records, order)
        except _AnsweredError as before:
            return before.status, before.answer
        return None

    def record(
        self, order: Order, write: Callable[[Records], tuple[int, dict[str, Any]]]
    ) -> tuple[int, dict[str, Any]]:
        """Change tables that are not part of a version; return the HTTP status and the answer."""
        with self._writing:
            try:
                with self.store.database.write() as records:
                    check_order(records, order, read_state(records).version)
                    status, answer = write(records)
                    store_answer(records, order, status, answer)
            except _AnsweredError as before:
                return before.status, before.answer
            return status, answer


def _read_view(records: Records) -> View:
    state = read_state(records)
    last = "SELECT max(version) FROM versions WHERE command"
    conditions = (f"NOT IN {_LABELLING}", f"IN {_DECIDING}", "= 'rollback'")
    return View(state, *(int(records.value(f"{last} {condition}") or 0) for condition in conditions))


class Cached(Generic[_T]):
    """A value that depends on a version; it is computed at most a twentieth of the time.

    Usually the value is that of the current version. If so many versions are made that computing it for each would
    take too long, or if another thread is computing it, the value of a slightly older version is returned.

    Parameters
    ----------
    compute
        Returns the value of the current version.
    """

    _SHARE, _BURST = 0.05, 1.0  # of the time, and seconds

    def __init__(self, compute: Callable[[], _T]) -> None:
        self._compute, self._lock = compute, threading.Lock()
        self._found: tuple[Any, _T] | None = None
        self._budget, self._since = self._BURST, time.monotonic()

    def get(self, key: Any) -> tuple[Any, _T]:
        """Return the value and its key, usually this one."""
        found = self._found
        if found is not None and found[0] == key:
            return found
        if found is not None and (self._exhausted() or not self._lock.acquire(blocking=False)):
            return found
        if found is None:
            self._lock.acquire()
        try:
            if self._found is None or self._found[0] != key:
                start = time.monotonic()
                self._found = (key, self._compute())
                self._budget -= time.monotonic() - start
            return self._found
        finally:
            self._lock.release()

    def _exhausted(self) -> bool:
        now = time.monotonic()
        self._budget = min(self._BURST, self._budget + self._SHARE * (now - self._since))
        self._since = now
        return self._budget < 0
