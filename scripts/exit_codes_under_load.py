"""Run ``ws add`` and ``ws predict`` many times on busy cores, and count their exit codes.

Usage: ``python scripts/exit_codes_under_load.py --runs 1000 --parallel 6``. Each pair of commands works on its own copy
of a small workspace. More commands than cores run at the same time, so a thread that a library left running when the
command is done gets no core for a while. Exits with 1 if any command ended with another code than 0.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import pyarrow.csv as pa_csv

from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables


def evergraph(*arguments: object) -> tuple[int, str]:
    """Run a command in a new process; return its exit code as a shell shows it, and what it wrote to stderr."""
    call = [sys.executable, "-m", "evergraph", *map(str, arguments)]
    done = subprocess.run(
        call, env=os.environ | {"OMP_NUM_THREADS": "2"}, capture_output=True, text=True, timeout=600, check=False
    )
    return (128 - done.returncode if done.returncode < 0 else done.returncode), done.stderr


def prepare(root: Path) -> Path:
    """Write the files of a small graph and return the folder of a workspace up to its last but one period."""
    graph = synthetic(vertices=600, times=6, classes=4, new_classes=1, seed=0)
    last = graph.last_time
    for name, span in (("old", (graph.first_time, last - 1)), ("new", (last, last))):
        vertices, edges = to_tables(graph, *span)
        pa_csv.write_csv(vertices if name == "old" else vertices.drop_columns("label"), root / f"{name}-vertices.csv")
        pa_csv.write_csv(edges, root / f"{name}-edges.csv")
    files = ("--vertices", root / "old-vertices.csv", "--edges", root / "old-edges.csv")
    code, errors = evergraph("ws", "init", root / "workspace", *files, "--history", 2, "--steps", 5)
    if code:
        raise RuntimeError(errors)
    return root / "workspace"


def add_and_predict(workspace: Path, number: int) -> Iterator[tuple[str, int, str]]:
    """Run both commands on a copy; yield the command, its exit code and what it wrote to stderr."""
    copy = workspace.with_name(f"copy-{number}")
    shutil.copytree(workspace, copy)
    files = ("--vertices", copy.with_name("new-vertices.csv"), "--edges", copy.with_name("new-edges.csv"))
    yield "add", *evergraph("ws", "add", copy, *files)
    yield "predict", *evergraph("ws", "predict", copy, "--out", copy / "decisions.parquet")
    shutil.rmtree(copy)


def main() -> int:
    """Run the commands and print how many ended with which code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="commands, half of them add and half predict")
    parser.add_argument("--parallel", type=int, default=6, help="commands at the same time; more than cores")
    options = parser.parse_args()
    counts: Counter[tuple[str, int]] = Counter()
    with tempfile.TemporaryDirectory() as root, ThreadPoolExecutor(options.parallel) as pool:
        workspace = prepare(Path(root))
        pairs = [pool.submit(lambda n: list(add_and_predict(workspace, n)), n) for n in range((options.runs + 1) // 2)]
        for done, pair in enumerate(as_completed(pairs), 1):
            for command, code, errors in pair.result():
                counts[command, code] += 1
                if code:
                    print(f"{command} ended with code {code}: {errors.strip()}", flush=True)
            if done % 25 == 0:
                print(f"{2 * done} of {2 * len(pairs)} commands done", file=sys.stderr, flush=True)
    for (command, code), count in sorted(counts.items()):
        print(f"{command:>8}  exit code {code}: {count}")
    return int(any(code for _, code in counts))


if __name__ == "__main__":
    sys.exit(main())
