"""Measure the service under load: many clients read and write while an update trains.

    python scripts/load_service.py --seconds 120 --clients 50
    python scripts/load_service.py --seconds 15 --workspace ws --json load.json    # on a copy of a workspace

The workspace is the embedded graph metamath up to 2018; 2019 and 2020 have arrived without labels and are decided.
`evergraph serve` runs as a process of its own, with a token and the rate limit raised. Every client has one connection
and sends the next request as soon as the last one is answered. Of the requests, 95 % are reads: half of them pages of
100 decisions, the rest status, groups, neighbourhoods and scores in equal parts; 5 % label ten vertices each. An update
trains with one thread all the time: when it ends, the next one starts. Labels are random classes, so nearly every write
makes a version. It stops by itself, also the service.

The table shows requests per second and milliseconds by kind, errors, and how much of one CPU core the load generator,
the service and its worker used. On a virtual machine, look at the time that its host took: figures with much of it say
little. The exit code is 1 if there were errors or a target was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import uvloop

TARGET_RATE, TARGET_P99 = 300.0, 0.250
READS = ("status", "groups", "neighbourhood", "scores")
START, STOP = 60, 30  # seconds
TICKS = os.sysconf("SC_CLK_TCK")


def make_workspace(folder: Path) -> None:
    """Make the workspace; this takes about a minute."""
    import torch

    from evergraph import EvolvingGraph
    from evergraph.datasets import load
    from evergraph.datasets.tables import to_tables
    from evergraph.workspace import Workspace

    torch.set_num_threads(1)
    graph = load("metamath")
    workspace = Workspace.create(folder, EvolvingGraph.build(*to_tables(graph, last=2018), every="year"))
    for year in (2019, 2020):
        workspace.add(*to_tables(graph, year, year, labels=False))
        workspace.predict()


# --- the service -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def service(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run the service until the block ends; yield its process and address."""
    call = [sys.executable, "-m", "evergraph", "serve", str(folder), "--port", "0", "--json", "--quiet"]
    process = subprocess.Popen(
        [*call, "--rate", "1000000"], stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert process.stdout is not None
    try:
        shown = b""
        for line in process.stdout:
            shown += line
            if line.startswith(b"}"):
                break
        yield process, json.loads(shown)["url"]
    finally:
        process.terminate()
        try:
            process.wait(STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process."""
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def stolen() -> tuple[int, int]:
    """Return the ticks that a host of virtual machines took from this one, and all ticks."""
    ticks = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)


def children(process: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):
            found += [int(one) for one in (task / "children").read_text().split()]
    return found


# --- clients ---------------------------------------------------------------------------------------------------------


class Connection:
    """One connection that is kept open."""

    def __init__(self, address: tuple[str, int], token: str) -> None:
        self.address = address
        headers = {"Host": f"{address[0]}:{address[1]}", "Authorization": f"Bearer {token}"}
        self.head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, method: str, path: str, body: bytes = b"", key: str = "") -> tuple[int, bytes]:
        """Send a request; return the status and the body of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self.address, limit=1 << 24)
        reader, writer = self._streams
        head = f"{method} /api/v1/{path} HTTP/1.1\r\n{self.head}"
        if method != "GET":
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        if key:
            head += f"Idempotency-Key: {key}\r\n"
        writer.write(f"{head}\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return int(answer[9:12]), await reader.readexactly(int(length))

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()


class Load:
    """The clients, and what they measured."""

    def __init__(self, url: str, token: str, seed: int) -> None:
        parts = urlsplit(url)
        self.address, self.token = (str(parts.hostname), int(parts.port or 0)), token
        self.random = random.Random(seed)
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.errors: list[str] = []
        self.updates: list[str] = []
        self.bytes = 0
        self.running = False

    async def prepare(self) -> None:
        """Learn the ids, the classes, and where the pages of decisions begin."""
        connection, cursor = self.connect(), ""
        self.ids, self.cursors, self.classes = [], [""], []
        while True:
            status, data = await connection.send("GET", f"decisions?limit=100{cursor}")
            page = json.loads(data)
            assert status == 200, page
            self.ids += [row["id"] for row in page["decisions"]]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
            self.cursors.append(cursor)
        _, data = await connection.send("GET", "classes")
        self.classes = [row["name"] for row in json.loads(data)["classes"] if row["support"]]
        connection.close()

    def connect(self) -> Connection:
        """Return a new connection."""
        return Connection(self.address, self.token)

    async def client(self, number: int) -> None:
        """Send requests one after another."""
        connection, random_, sent = self.connect(), self.random, 0
        while self.running:
            sent += 1
            if random_.random() < 0.05:
                ids = random_.sample(self.ids, 10)
                labels = [{"id": id, "label": random_.choice(self.classes)} for id in ids]
                body, key = json.dumps({"labels": labels}).encode(), f"{number}-{sent}"
                await self.measure(connection, "labels", "POST", "labels", body, key)
                continue
            kind = "decisions" if random_.random() < 0.5 else random_.choice(READS)
            path = kind
            if kind == "decisions":
                path = f"decisions?limit=100{random_.choice(self.cursors)}"
            elif kind == "neighbourhood":
                path = f"graph/neighbourhood/{quote(str(random_.choice(self.ids)), safe='')}"
            await self.measure(connection, kind, "GET", path)
        connection.close()

    async def measure(self, connection: Connection, kind: str, *request: Any) -> None:
        """Send a request and note the time it took."""
        start = time.perf_counter()
        status, data = await connection.send(*request)
        self.seconds[kind].append(time.perf_counter() - start)
        self.bytes += len(data)
        if status != 200:
            self.errors.append(f"{kind}: {status} {data[:200]!r}")

    async def train(self) -> None:
        """Keep an update running."""
        connection = self.connect()
        while self.running:
            status, data = await connection.send("POST", "updates", b"{}")
            job = json.loads(data)
            if status != 202:
                self.errors.append(f"update: {status} {data[:200]!r}")
            while self.running and job["ended"] is None:
                await asyncio.sleep(0.5)
                _, data = await connection.send("GET", f"jobs/{job['id']}")
                job = json.loads(data)
            self.updates.append(f"{job['state']} {job['message']}{(job['error'] or {}).get('detail', '')}")
        if job["ended"] is None:
            await connection.send("DELETE", f"jobs/{job['id']}")
        connection.close()

    async def run(self, clients: int, seconds: float, server: int) -> dict[str, Any]:
        """Send requests for some seconds; return what was measured."""
        await self.prepare()
        self.running = True
        training = asyncio.create_task(self.train())
        workers: dict[int, tuple[float, float]] = {}
        while not children(server):
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        start, before, ticks = time.perf_counter(), (time.process_time(), cpu_seconds(server)), stolen()
        tasks = [asyncio.create_task(self.client(number)) for number in range(clients)]
        while time.perf_counter() - start < seconds and not any(task.done() for task in tasks):
            await asyncio.sleep(0.25)
            for one in children(server):
                now = cpu_seconds(one)
                workers[one] = (workers.get(one, (now, now))[0], now)
        self.running = False
        await asyncio.gather(*tasks)
        elapsed = time.perf_counter() - start
        cpu = {
            "generator": (time.process_time() - before[0]) / elapsed,
            "service": (cpu_seconds(server) - before[1]) / elapsed,
            "worker": sum(last - first for first, last in workers.values()) / elapsed,
        }
        now = stolen()
        await training
        share = (now[0] - ticks[0]) / max(now[1] - ticks[1], 1)
        return self.summary(elapsed, cpu) | {"stolen": share}

    def summary(self, elapsed: float, cpu: dict[str, float]) -> dict[str, Any]:
        """Return rates, latencies and shares."""
        reads = [one for kind, found in self.seconds.items() if kind != "labels" for one in found]
        every = {**self.seconds, "all reads": reads, "all": reads + self.seconds["labels"]}
        kinds = {kind: figures(found, elapsed) for kind, found in every.items() if found}
        return {
            "seconds": elapsed,
            "requests": len(every["all"]),
            "per_second": len(every["all"]) / elapsed,
            "megabytes_per_second": self.bytes / elapsed / 1e6,
            "kinds": kinds,
            "errors": len(self.errors),
            "first_errors": self.errors[:5],
            "updates": self.updates,
            "cpu_cores": cpu,
            "cores": os.cpu_count(),
        }


def figures(seconds: list[float], elapsed: float) -> dict[str, float]:
    """Return requests per second, and percentiles in milliseconds."""
    order = sorted(seconds)
    at = {f"p{share}": order[min(int(len(order) * share / 100), len(order) - 1)] * 1000 for share in (50, 95, 99)}
    return {"requests": len(order), "per_second": len(order) / elapsed, **at, "max": order[-1] * 1000}


def show(found: dict[str, Any]) -> None:
    """Print a table."""
    print(f"{'':16}{'requests':>10}{'a second':>10}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}{'max ms':>9}")
    for kind, row in found["kinds"].items():
        cells = "".join(f"{row[name]:9.1f}" for name in ("p50", "p95", "p99", "max"))
        print(f"{kind:16}{row['requests']:10,}{row['per_second']:10.1f}{cells}")
    cpu = ", ".join(f"{name} {share:.2f}" for name, share in found["cpu_cores"].items())
    print(f"\nCPU cores used, of {found['cores']}: {cpu}")
    print(f"CPU time that the host took from this machine: {found['stolen']:.0%}")
    print(f"answers: {found['megabytes_per_second']:.1f} MB a second; errors: {found['errors']}")
    print("updates:", "; ".join(found["updates"]) or "none ended")
    for error in found["first_errors"]:
        print("error:", error)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workspace", type=Path, help="measure on a copy of this workspace")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args()
    from evergraph.service.auth import create_token

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "ws"
        if options.workspace is None:
            make_workspace(folder)
        else:
            shutil.copytree(options.workspace, folder)
        token = create_token(folder, "load", "admin")
        with service(folder) as (process, url), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            load = Load(url, token, options.seed)
            found = runner.run(load.run(options.clients, options.seconds, process.pid))
    show(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    reached = found["per_second"] >= TARGET_RATE and found["kinds"]["all reads"]["p99"] <= TARGET_P99 * 1000
    return int(bool(found["errors"]) or not reached)


if __name__ == "__main__":
    sys.exit(main())
