"""A small workspace, and ``evergraph serve`` on it as a process of its own that ends with the test."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from evergraph import EvolvingGraph
from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables
from evergraph.detect import DOC
from evergraph.nn import MLP
from evergraph.workspace import Workspace

GRAPH = synthetic(vertices=480, times=8, classes=4, new_classes=2, words=120, words_per_vertex=5, seed=2)
FIRST = 4  # the first slice after the workspace was created
START_SECONDS, STOP_SECONDS = 120, 30

# The service ends when this process closes the pipe or ends, however it ends.
_RUN = (
    "import os, threading\n"
    "def watch():\n    os.read(0, 1)\n    os._exit(9)\n"
    "threading.Thread(target=watch, daemon=True).start()\n"
    "from evergraph.cli import main\nmain()\n"
)


def make_workspace(folder: Path, **settings: Any) -> Workspace:
    """Create a workspace with one decided slice, part of which is flagged and all of which has no labels."""
    old = EvolvingGraph.build(*to_tables(GRAPH, last=FIRST - 1))
    how = {"model": MLP(hidden=8), "detector": DOC(0.75), "steps": 20, "lr": 0.05, "history": 2, **settings}
    workspace = Workspace.create(folder, old, **how)
    workspace.add(*to_tables(GRAPH, FIRST, FIRST, labels=False))
    workspace.predict()
    return workspace


@dataclass
class Serving:
    """A running service."""

    process: subprocess.Popen[str]
    url: str
    signin: str | None
    log: list[str] = field(default_factory=list)
    """Lines of standard error so far."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 0)

    def call(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, headers: Mapping[str, str] = {}
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request on a new connection; return status, headers and body. No redirect is followed."""
        sent = {"Accept": "application/json", **headers}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        if body is not None and not isinstance(body, bytes):
            sent.setdefault("Content-Type", "application/json")
            body = json.dumps(body).encode()
        with contextlib.closing(http.client.HTTPConnection(*self.address, timeout=60)) as connection:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()

    def stop(self) -> int:
        """Stop it as SIGTERM does and return its exit code."""
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)


@contextlib.contextmanager
def serving(folder: Path, *options: object) -> Iterator[Serving]:
    """Serve a workspace on a free port of this machine until the block ends."""
    call = [sys.executable, "-c", _RUN, "serve", str(folder), "--port", "0", "--json", *map(str, options)]
    process = subprocess.Popen(
        call,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    log: list[str] = []
    reader = threading.Thread(target=lambda: log.extend(process.stderr), daemon=True)  # type: ignore[arg-type]
    reader.start()
    too_late = threading.Timer(START_SECONDS, process.kill)
    too_late.start()
    try:
        started = ""
        for line in process.stdout:
            started += line
            if line.startswith("}"):
                break
        too_late.cancel()
        if not started:
            process.wait(STOP_SECONDS)
            reader.join(STOP_SECONDS)
            raise RuntimeError(f"the service did not start:\n{''.join(log)}")
        found = json.loads(started)
        yield Serving(process, found["url"], found["signin"], log)
    finally:
        too_late.cancel()
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_SECONDS)
        reader.join(STOP_SECONDS)
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
