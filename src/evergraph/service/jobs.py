"""Long work in the background: jobs in the database of the workspace, run one at a time by a worker process."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evergraph.errors import EvergraphError, StaleError
from evergraph.service.problems import NotFoundError, problem
from evergraph.service.served import Order, Served
from evergraph.storage.records import Records, Row

__all__ = ["Jobs", "Worker"]

log = logging.getLogger("evergraph.service")

_ATTEMPTS = 3  # of a job that the end of the service interrupts
_KEPT = 1000  # jobs that have ended


class Worker:
    """A worker process; see `evergraph.service.worker`.

    Parameters
    ----------
    folder
        Folder of the workspace.
    threads
        Threads that it computes with.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        code = "from evergraph.service.worker import main; main()"  # not -m, which would run the module twice
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", code, str(folder), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], on_progress: Callable[[float | None, str], None]) -> dict[str, Any]:
        """Send a request and wait for its end: a dictionary with ``result`` or ``problem``."""
        assert self._process.stdin is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            message: dict[str, Any] = json.loads(line)
            if "message" not in message:
                return message
            on_progress(message["progress"], message["message"])
        code = self._process.wait()
        why = f"signal {-code}" if code < 0 else f"code {code}"
        return {"problem": problem(500, f"The process that did the work ended unexpectedly ({why}).")}

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()


class Jobs:
    """The jobs of a workspace.

    Parameters
    ----------
    served
        The workspace.
    threads
        Threads that a job computes with.
    on_end
        Called after each job.
    """

    def __init__(self, served: Served, threads: int, on_end: Callable[[], None] = lambda: None) -> None:
        self.served, self.threads, self.on_end = served, threads, on_end
        self._wake, self._stopping = threading.Event(), False
        self._running: tuple[int, Worker] | None = None
        self._progress: dict[int, tuple[float | None, str]] = {}
        self._explainer: Worker | None = None
        self._explaining = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="evergraph-jobs", daemon=True)

    def start(self) -> None:
        """Continue the jobs that the end of the service interrupted, and run those that wait."""
        with self.served.store.database.write() as records:
            for row in records.select("jobs", "ended IS NULL AND state = 'running'"):
                if row.attempts < _ATTEMPTS:
                    records.replace("jobs", "job = ?", [row.job], state="queued")
                else:
                    records.replace("jobs", "job = ?", [row.job], state="interrupted", ended=time.time())
        self._thread.start()

    def stop(self) -> None:
        """End the worker; its job runs again when the service starts the next time."""
        self._stopping = True
        self._wake.set()
        if self._running is not None:
            self._running[1].kill()
        if self._explainer is not None:
            self._explainer.kill()
        self._thread.join(5)

    # --- requests ----------------------------------------------------------------------------------------------------

    def create(self, order: Order, kind: str, arguments: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Create a job; return the HTTP status and the job."""

        def write(records: Records) -> tuple[int, dict[str, Any]]:
            number = int(records.value("SELECT max(job) FROM jobs") or 0) + 1
            values = (number, kind, json.dumps(arguments), "queued", order.who, time.time(), None, None, 0, None)
            records.insert("jobs", [values])
            records.delete("jobs", "ended IS NOT NULL AND job <= ?", number - _KEPT)
            return 202, self._shown(records.select("jobs", "job = ?", number)[0])

        answer = self.served.record(order, write)
        self._wake.set()
        return answer

    def list(self, limit: int) -> list[dict[str, Any]]:
        """Return the last jobs, newest first."""
        with self.served.store.read() as records:
            return [self._shown(row) for row in records.select("jobs", "TRUE ORDER BY job DESC LIMIT ?", limit)]

    def get(self, number: int) -> dict[str, Any]:
        """Return a job."""
        with self.served.store.read() as records:
            row = records.one("jobs", "job = ?", number) if abs(number) < 2**62 else None
        if row is None:
            raise NotFoundError(f"there is no job {number}", fix="list the jobs with GET /api/v1/jobs")
        return self._shown(row)

    def current(self) -> dict[str, Any] | None:
        """Return the job that runs or waits first; None if there is none."""
        row = self.served.cached("job", lambda records: records.one("jobs", "ended IS NULL ORDER BY job"))
        return None if row is None else self._shown(row)

    def cancel(self, number: int) -> dict[str, Any]:
        """Cancel a job; refuse if it has ended."""
        self.get(number)
        with self.served.store.database.write() as records:
            (row,) = records.select("jobs", "job = ?", number)
            if row.ended is not None:
                raise StaleError(f"job {number} has ended already: {row.state}", fix="nothing is left to cancel")
            records.replace("jobs", "job = ?", [number], state="cancelled", ended=time.time())
        running = self._running
        if running is not None and running[0] == number:
            running[1].kill()  # it cannot commit any more, because its job does not run
        return self.get(number)

    def explain(self, id: str) -> dict[str, Any]:
        """Explain the decision on a vertex."""
        with self._explaining:
            if self._explainer is None or not self._explainer.alive:
                self._explainer = Worker(self.served.folder, self.threads)
            found = self._explainer.ask({"do": "explain", "id": id}, lambda *_: None)
        if "problem" in found:
            raise ExplanationError(found["problem"]["detail"].rstrip("."))
        result: dict[str, Any] = found["result"]
        return result

    def _shown(self, row: Row) -> dict[str, Any]:
        progress, message = self._progress.get(row.job, (None, ""))
        result = None if row.result is None else json.loads(row.result)
        failed = row.state == "failed"
        if row.state == "queued":
            message = "waiting"
        return {
            "id": row.job,
            "kind": row.kind,
            "state": row.state,
            "progress": 1.0 if row.state == "done" else progress if row.state == "running" else None,
            "message": "" if row.ended is not None else message,
            "result": None if failed else result,
            "error": result if failed else None,
            "who": row.who,
            "made": _when(row.made),
            "started": _when(row.started),
            "ended": _when(row.ended),
        }

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                row = self._next()
                if row is None:
                    self._wake.wait()
                    continue
                self._do(row)
                self.on_end()
            except (EvergraphError, OSError):
                log.exception("a job could not be run")
                self._wake.wait(5)

    def _next(self) -> Row | None:
        with self.served.store.read() as records:
            waiting = records.one("jobs", "ended IS NULL AND state = 'queued' ORDER BY job")
        if waiting is None:
            return None
        with self.served.store.database.write() as records:
            if records.one("jobs", "job = ? AND state = 'queued'", waiting.job) is None:
                return self._next()
            changes = {"state": "running", "started": time.time(), "attempts": waiting.attempts + 1}
            records.replace("jobs", "job = ?", [waiting.job], **changes)
            return records.select("jobs", "job = ?", waiting.job)[0]

    def _do(self, row: Row) -> None:
        worker = Worker(self.served.folder, self.threads)
        self._running = (row.job, worker)
        request = {"do": row.kind, "job": row.job, "attempt": row.attempts, "who": row.who}
        self._progress[row.job] = (None, "starting")

        def on_progress(share: float | None, message: str) -> None:
            self._progress[row.job] = (share, message)

        try:
            found = worker.ask(request | {"arguments": json.loads(row.arguments)}, on_progress)
        finally:
            self._running = None
            worker.kill()
            self._progress.pop(row.job, None)
        if self._stopping:
            return
        with self.served.store.database.write() as records:
            # A change and the end of its job are one transaction; what has not ended by now has changed nothing.
            if records.one("jobs", "job = ? AND state = 'running'", row.job) is not None:
                state = "failed" if "problem" in found else "done"
                text = json.dumps(found.get("problem") or found["result"], ensure_ascii=False)
                records.replace("jobs", "job = ?", [row.job], state=state, ended=time.time(), result=text)
                if state == "failed":
                    log.warning("job %s (%s) of %s failed: %s", row.job, row.kind, row.who, found["problem"]["detail"])


class ExplanationError(EvergraphError):
    """A decision that cannot be explained."""

    kind = "input"


def _when(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
