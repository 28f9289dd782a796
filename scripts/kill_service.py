"""Kill the service with SIGKILL at random moments while clients write; nothing may be lost, doubled or damaged.

    python scripts/kill_service.py --kills 300

Clients add labels, slices, tags and answers of a review, and start jobs, each request with an idempotency key. After
each kill the service starts again, and the clients repeat what was not answered with the same key, until it is. At the
end:

- every acknowledged write is there exactly once: the versions that the clients made are those of their answers, one for
  each key, and vertices, labels, tags and jobs are what the answers say;
- ``Workspace.verify`` finds no damage, and the folder has no other files than those of the current versions;
- no process of the service is left, and no temporary folder.

The exit code is 1 if something is wrong. It stops by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from evergraph import EvolvingGraph
from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables
from evergraph.detect import DOC
from evergraph.nn import MLP
from evergraph.service.auth import create_token
from evergraph.workspace import Workspace
from evergraph.workspace.store import Store, needed_objects

WHO = "load"
START, LAST = 120.0, 180.0  # seconds for a start, and for the last answers
SHORT, LONG = 0.9, 8.0  # share of kills within the usual time, and seconds until the others, so that jobs can end
WARM = 0.8  # share of kills of a service that has answered
JOBS = ("predictions", "updates", "reports")

# Imports everything, waits for a line, and becomes the service: so the next one is ready when this one is killed.
_STANDBY = (
    "import sys\nimport evergraph.service.app, evergraph.service.server\nfrom evergraph.cli import main\n"
    "sys.stdin.readline()\nmain()\n"
)


def make_workspace(folder: Path) -> list[int]:
    """Make a workspace with a decided slice; return the ids of its vertices."""
    graph = synthetic(vertices=480, times=8, classes=4, new_classes=2, words=120, words_per_vertex=5, seed=2)
    old = EvolvingGraph.build(*to_tables(graph, last=3))
    workspace = Workspace.create(folder, old, model=MLP(hidden=8), detector=DOC(0.75), steps=5, lr=0.05, history=2)
    vertices, edges = to_tables(graph, 4, 4, labels=False)
    workspace.add(vertices, edges)
    workspace.predict()
    ids: list[int] = vertices.column("id").to_pylist()
    return ids


# --- the service -----------------------------------------------------------------------------------------------------


class Service:
    """The service, and another process that waits to follow it."""

    def __init__(self, folder: Path, temporary: Path) -> None:
        self.folder, self.temporary = folder, temporary
        self.address: tuple[str, int] | None = None
        self.seconds: list[float] = []
        self._next = self._standby()
        self._process: subprocess.Popen[bytes] | None = None

    def _standby(self) -> subprocess.Popen[bytes]:
        options = ("serve", str(self.folder), "--port", "0", "--json", "--quiet", "--rate", "1000000")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(self.temporary)}
        return subprocess.Popen(
            [sys.executable, "-c", _STANDBY, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )

    def start(self) -> None:
        """Start the process that waits, and prepare the one after it."""
        process, self._next = self._next, self._standby()
        assert process.stdin is not None
        assert process.stdout is not None
        too_late = threading.Timer(START, process.kill)
        too_late.start()
        begin = time.monotonic()
        process.stdin.write(b"\n")
        process.stdin.flush()
        shown = b""
        for line in process.stdout:
            shown += line
            if line.startswith(b"}"):
                break
        too_late.cancel()
        host, _, port = json.loads(shown)["url"].removeprefix("http://").partition(":")
        self.seconds.append(time.monotonic() - begin)
        self._process, self.address = process, (host, int(port))

    def kill(self) -> None:
        """Kill the service."""
        if self._process is not None:
            self.address = None
            self._process.kill()
            _close(self._process)
            self._process = None

    def stop(self) -> int:
        """Stop the service as a user does; return its exit code."""
        assert self._process is not None
        self.address = None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(60)
        _close(self._process)
        self._process = None
        return code

    def close(self) -> None:
        """End what is running."""
        self.kill()
        self._next.kill()
        _close(self._next)


def _close(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def processes_of(folder: Path) -> list[int]:
    """Return the processes that have the folder among their arguments, other than this one."""
    found, wanted = [], str(folder).encode()
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdigit() and int(path.name) != os.getpid():
                state = (path / "stat").read_bytes().rpartition(b")")[2].split()[0]
                if wanted in (path / "cmdline").read_bytes().split(b"\0") and state != b"Z":
                    found.append(int(path.name))
    return found


# --- clients ---------------------------------------------------------------------------------------------------------


@dataclass
class Sent:
    """A request and its answer."""

    key: str
    kind: str
    path: str
    body: bytes
    kind_of_body: str = "application/json"
    facts: Any = None
    tries: int = 0
    status: int = 0
    answer: dict[str, Any] = field(default_factory=dict)


class Clients:
    """Threads that write, each request until it is answered."""

    def __init__(self, service: Service, token: str, ids: list[int], seed: int) -> None:
        self.service, self.token, self.ids = service, token, ids
        self.sent: list[Sent] = []
        self.problems: list[str] = []
        self._lock, self._number, self._random = threading.Lock(), 0, random.Random(seed)
        self.running, self.answered = True, 0

    def run(self) -> None:
        """Write until the campaign ends."""
        while self.running:
            try:
                self.send_until_answered(self.next())
            except Exception as error:
                self.problems.append(f"{type(error).__name__}: {error}")
                return

    def wait_for_answer(self) -> None:
        """Wait until a request is answered, at most ten seconds: a service that has just started answers late."""
        before, until = self.answered, time.monotonic() + 10
        while self.answered == before and time.monotonic() < until and not self.problems:
            time.sleep(0.002)

    def next(self) -> Sent:
        """Return a new request."""
        with self._lock:
            self._number += 1
            number, random_ = self._number, self._random
            key = f"key-{number}"
            kind = random_.choices(
                ("labels", "csv", "slices", "files", "answers", "tags", "jobs"), (8, 3, 3, 3, 4, 2, 1)
            )[0]
            ids = random_.sample(self.ids, 3)
        name = f"class {number}"
        if kind == "labels":
            rows = [{"id": id, "label": name} for id in ids]
            found = Sent(key, kind, "labels", json.dumps({"labels": rows}).encode(), facts=(ids, name))
        elif kind == "csv":
            table = "id,label\n" + "".join(f"{id},{name}\n" for id in ids)
            found = Sent(key, kind, "labels", table.encode(), "text/csv", (ids, name))
        elif kind == "answers":
            body = {"answers": [{"label": name, "ids": ids}], "conflicts": "overwrite"}
            found = Sent(key, kind, "answers", json.dumps(body).encode(), facts=(ids, name))
        elif kind == "slices":
            vertex = {"id": 1_000_000 + number, "time": 4, "text": "w1 w2"}
            body = {"vertices": [vertex], "edges": [{"source": vertex["id"], "target": ids[0]}]}
            found = Sent(key, kind, "slices", json.dumps(body).encode(), facts=vertex["id"])
        elif kind == "files":
            id = 1_000_000 + number
            parts = {"vertices": f"id,time,text\n{id},4,w1 w2\n", "edges": f"source,target\n{id},{ids[0]}\n"}
            body_, type_ = multipart(parts)
            found = Sent(key, kind, "slices", body_, type_, id)
        elif kind == "tags":
            found = Sent(key, kind, "tags", json.dumps({"name": f"tag-{number}"}).encode(), facts=f"tag-{number}")
        else:
            found = Sent(key, kind, JOBS[number % 3], b"{}")
        with self._lock:
            self.sent.append(found)
        return found

    def send_until_answered(self, one: Sent) -> None:
        """Send a request, again with the same key if the service is killed before it answers."""
        until = None
        while True:
            if not self.running:
                until = until or time.monotonic() + LAST
                if time.monotonic() > until:
                    raise RuntimeError(f"{one.key} ({one.kind}) was not answered")
            if (address := self.service.address) is None:
                time.sleep(0.005)
                continue
            connection = http.client.HTTPConnection(*address, timeout=60)
            headers = {
                "Authorization": f"Bearer {self.token}",
                "Content-Type": one.kind_of_body,
                "Idempotency-Key": one.key,
            }
            try:
                one.tries += 1
                connection.request("POST", f"/api/v1/{one.path}", one.body, headers)
                response = connection.getresponse()
                data = response.read()
            except (OSError, http.client.HTTPException):
                time.sleep(0.005)
                continue
            finally:
                connection.close()
            one.status, one.answer = response.status, json.loads(data)
            self.answered += 1
            if response.status not in (200, 202):
                self.problems.append(f"{one.key} ({one.kind}, try {one.tries}): {response.status} {data[:300]!r}")
            return


def multipart(parts: dict[str, str]) -> tuple[bytes, str]:
    """Return CSV files as a multipart body, and its type."""
    lines = []
    for name, text in parts.items():
        lines += ["--cut", f'Content-Disposition: form-data; name="{name}"; filename="{name}.csv"', "", text]
    return "\r\n".join([*lines, "--cut--", ""]).encode(), "multipart/form-data; boundary=cut"


# --- the judge -------------------------------------------------------------------------------------------------------


def judge(folder: Path, clients: Clients, before: int) -> list[str]:
    """Return what is wrong with the workspace; ``before`` is its version before the clients."""
    wrong = list(clients.problems)
    workspace = Workspace(folder)
    workspace.verify()
    with Store(folder).read() as records:
        authors = {row.version: row.who for row in records.select("authors")}
        stored = {row.key: row for row in records.select("requests")}
        jobs = {row.job: row for row in records.select("jobs")}
        needed = needed_objects(records)
    log = {row.version: row for row in workspace.log()}
    writes = [one for one in clients.sent if one.kind != "jobs" and one.answer.get("command")]
    made = [one.answer["version"] for one in writes]
    ended = [json.loads(row.result) for row in jobs.values() if row.state == "done"]
    by_jobs = [result["version"] for result in ended if result.get("command")]
    if len(set(made)) != len(made):
        wrong.append("two answers name one version")
    if set(log) != set(range(1, max(log) + 1)):
        wrong.append("a version is missing")
    others = [version for version in log if version > before and version not in {*made, *by_jobs}]
    if others:
        wrong.append(f"versions without an answer: {[(v, log[v].command, log[v].what) for v in others[:5]]}")
    if len(set(by_jobs)) != len(by_jobs) or set(by_jobs) & set(made):
        wrong.append("a version belongs to two jobs")
    wrong += [f"version {v} has no author" for v in log if v > before and authors.get(v) != WHO]
    wrong += [f"{one.key}: the stored answer differs" for one in clients.sent if not _same(stored.get(one.key), one)]
    numbers = [one.answer.get("id") for one in clients.sent if one.kind == "jobs"]
    if len(set(numbers)) != len(numbers) or set(numbers) != set(jobs):
        wrong.append(f"{len(jobs)} jobs for {len(set(numbers))} answers to {len(numbers)} requests")
    wrong += [
        f"job {row.job} is {row.state}" for row in jobs.values() if row.state not in ("done", "failed", "interrupted")
    ]
    return wrong + _judge_contents(workspace, writes) + _leftovers(folder, needed)


def _same(stored: Any, one: Sent) -> bool:
    return stored is not None and json.loads(stored.answer) == one.answer and stored.status == one.status


def _judge_contents(workspace: Workspace, writes: list[Sent]) -> list[str]:
    """Compare vertices, labels and tags with the answers, in the order of their versions."""
    graph, labels, wrong = workspace.graph, dict[int, str](), []
    for one in sorted(writes, key=lambda one: one.answer["version"]):
        if one.kind in ("labels", "csv", "answers"):
            labels |= dict.fromkeys(one.facts[0], one.facts[1])
    ids = [int(id) for id in graph.ids]
    there = dict(zip(ids, graph.labels, strict=True))
    counts = Counter(ids)
    added = [one.facts for one in writes if one.kind in ("slices", "files")]
    wrong += [f"vertex {id} is there {counts[id]} times" for id in added if counts[id] != 1]
    if (extra := sum(id >= 1_000_000 for id in ids)) != len(added):
        wrong.append(f"{extra} vertices were added, and {len(added)} acknowledged")
    wrong += [f"vertex {id} is {there[id]!r}, not {name!r}" for id, name in labels.items() if there[id] != name]
    tags = {one.facts for one in writes if one.kind == "tags"}
    if set(workspace.tags()) != tags:
        wrong.append("tags differ")
    return wrong


def _leftovers(folder: Path, needed: set[str]) -> list[str]:
    beside = {path.name for path in folder.iterdir()} - {".lock", "workspace.db", "objects", "report.html"}
    objects = {path.name for path in (folder / "objects").iterdir()} - needed
    return [f"left behind: {name}" for name in sorted(beside | objects)]


# --- the campaign ----------------------------------------------------------------------------------------------------


def campaign(root: Path, kills: int, seed: int, threads: int = 4, longest: float = 0.6) -> dict[str, Any]:
    """Kill the service; return counts, and what is wrong."""
    folder, temporary = root / "ws", root / "tmp"
    temporary.mkdir()
    ids, random_ = make_workspace(folder), random.Random(seed)
    token, before = create_token(folder, WHO, "admin"), Workspace(folder).state.version
    service = Service(folder, temporary)
    clients = Clients(service, token, ids, seed)
    workers = [threading.Thread(target=clients.run) for _ in range(threads)]
    start = time.monotonic()
    try:
        for number in range(kills):
            service.start()
            if not number:
                for worker in workers:
                    worker.start()
            if random_.random() < WARM:
                clients.wait_for_answer()
            time.sleep(random_.uniform(0, longest if random_.random() < SHORT else LONG))
            service.kill()
        service.start()
        clients.running = False
        for worker in workers:
            worker.join()
        _wait_for_jobs(folder)
        code = service.stop()
    finally:
        clients.running = False
        service.close()
    seconds = time.monotonic() - start
    time.sleep(1)  # workers notice the end of the service
    wrong = judge(folder, clients, before)
    wrong += [f"the service ended with code {code}"] if code else []
    wrong += [f"process {one} is left" for one in processes_of(folder)]
    wrong += [f"left behind: {path.name}" for path in temporary.iterdir()]
    with Store(folder).read() as records:
        states = Counter(f"{row.kind} {row.state}" for row in records.select("jobs"))
    return {
        "kills": kills,
        "seconds": seconds,
        "start_seconds": sorted(service.seconds)[len(service.seconds) // 2],
        "acknowledged": dict(Counter(one.kind for one in clients.sent if one.status)),
        "repeated": sum(one.tries > 1 for one in clients.sent),
        "versions": Workspace(folder).state.version - before,
        "jobs": dict(states),
        "wrong": wrong,
    }


def _wait_for_jobs(folder: Path) -> None:
    until = time.monotonic() + LAST
    while time.monotonic() < until:
        with Store(folder).read() as records:
            if not records.select("jobs", "ended IS NULL"):
                return
        time.sleep(0.2)


def main() -> int:
    """Kill the service and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=4, help="clients")
    parser.add_argument("--longest", type=float, default=0.6, help="seconds until a kill")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        found = campaign(Path(root), options.kills, options.seed, options.threads, options.longest)
    for name, value in found.items():
        if name != "wrong":
            print(f"{name}: {value:.2f}" if isinstance(value, float) else f"{name}: {value}")
    for text in found["wrong"][:20]:
        print("wrong:", text)
    print(
        f"{len(found['wrong'])} things are wrong" if found["wrong"] else "nothing lost, doubled, damaged or left behind"
    )
    return int(bool(found["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
