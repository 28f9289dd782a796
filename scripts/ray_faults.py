"""Run experiment 2 on a Ray cluster that loses processes, and compare the results with those of local processes.

    python scripts/ray_faults.py --graph metamath --models sage,mlp

The cluster is a head without cores and two worker nodes with one core each, as separate processes of this machine.
While the command runs, its workers are killed, the command itself is killed and started again, a node is removed and
another one is added. In the end each trial must be stored exactly once, with the numbers of local processes, and no
trial may have been claimed again after it was stored.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}

import psutil
from ray.cluster_utils import Cluster


def command(results: Path, given: argparse.Namespace, *more: str) -> list[str]:
    """Return the command line of the experiment."""
    start = [sys.executable, "-c", "from evergraph.cli import main; main()"]
    what = ["reproduce", given.experiment, given.graph, "--models", given.models, "--seeds", given.seeds]
    return [*start, *what, "--results", str(results), *more]


def lines(results: Path) -> list[dict[str, Any]]:
    """Return the complete lines of all results."""
    found = []
    for path in sorted((results / "trials").glob("*.jsonl")):
        found += [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1] if line.strip()]
    return found


def busy_workers() -> list[psutil.Process]:
    """Return the processes that run a trial."""
    processes = psutil.process_iter(["cmdline"])
    return [one for one in processes if (one.info["cmdline"] or [""])[0].startswith("ray::_call")]


class Watch(threading.Thread):
    """Counts trials that are claimed although they are stored: they would run twice."""

    def __init__(self, results: Path) -> None:
        super().__init__(daemon=True)
        self.results, self.claims, self.twice, self.ended = results, 0, set(), threading.Event()

    def run(self) -> None:
        """Look at claims and results until the end."""
        held: dict[str, int] = {}
        while not self.ended.wait(0.05):
            stored = {line["key"] for line in lines(self.results)}  # before the claims are read
            folder = self.results / ".claims"
            now = {path.name: path.stat().st_ino for path in folder.iterdir()} if folder.exists() else {}
            new = {key for key, inode in now.items() if held.get(key) != inode}
            self.claims += len(new)
            self.twice |= new & stored
            held = now


def main() -> None:
    """Run the experiment twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--graph", default="metamath")
    parser.add_argument("--experiment", default="exp2")
    parser.add_argument("--models", default="sage,mlp")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--out", type=Path, default=Path("ray-faults"))
    given = parser.parse_args()
    local, cluster_results = given.out / "local", given.out / "ray"

    start = time.perf_counter()
    subprocess.run(command(local, given, "--jobs", "2", "--quiet"), check=True)
    print(f"local, 2 processes: {len(lines(local))} trials, {time.perf_counter() - start:.0f} s", flush=True)

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.wait_for_nodes()
    start = time.perf_counter()
    total, rng = len(lines(local)), random.Random(0)
    on_ray = command(cluster_results, given, "--engine", "ray", "--address", cluster.address, "--quiet")
    driver = subprocess.Popen(on_ray)
    watch = Watch(cluster_results)
    watch.start()
    faults = {
        total // 6: "kill a worker",
        total // 3: "kill the command",
        total // 2: "remove a node",
        2 * total // 3: "add a node",
        5 * total // 6: "kill a worker",
    }
    events: list[str] = []
    while driver.poll() is None:
        time.sleep(0.05)
        done = len(lines(cluster_results))
        for at in [at for at in sorted(faults) if at <= done]:
            what = faults[at]
            if what == "kill a worker":
                if not (busy := busy_workers()):
                    continue
                victim = rng.choice(busy)
                victim.send_signal(signal.SIGKILL)
                what += f" (process {victim.pid})"
            elif what == "kill the command":
                driver.kill()
                driver.wait()
                driver = subprocess.Popen(on_ray)
                what += " with -9 and start it again"
            elif what == "remove a node":
                cluster.remove_node(nodes.pop(), allow_graceful=False)
            else:
                nodes.append(cluster.add_node(num_cpus=1))
            del faults[at]
            events.append(what)
            print(f"{time.perf_counter() - start:6.1f} s, {done} of {total} trials stored: {what}", flush=True)
    seconds = time.perf_counter() - start
    watch.ended.set()
    watch.join()
    cluster.shutdown()

    here, there = lines(local), lines(cluster_results)
    keys = [line["key"] for line in there]
    plain = {line["key"]: without_seconds(line["result"]) for line in here}
    same = sum(without_seconds(line["result"]) == plain.get(line["key"]) for line in there)
    print(f"Ray, two nodes of one core: exit code {driver.returncode}, {seconds:.0f} s, {len(events)} faults")
    print(f"trials: {len(plain)} local, {len(keys)} on Ray, {len(set(keys))} different")
    print(f"lost: {len(plain.keys() - set(keys))}, doubled: {len(keys) - len(set(keys))}")
    print(f"claimed again after being stored: {len(watch.twice)} (of {watch.claims} claims)")
    print(f"equal to the local result, bit for bit: {same} of {len(plain)}")
    sys.exit(driver.returncode or not (same == len(plain) == len(keys) and not watch.twice and not faults))


def without_seconds(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result without what differs from run to run."""
    return {name: value for name, value in result.items() if "seconds" not in name}


if __name__ == "__main__":
    main()
