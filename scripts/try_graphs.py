"""Run the commands of the quick start with their defaults on every graph of the data folder.

Usage: ``python scripts/try_graphs.py --out FOLDER``. Graphs with more than 30,000 vertices train 5 steps per task. Each
command runs in a process of its own. The script prints its exit code, seconds, CPU seconds and peak memory and keeps
them in ``FOLDER/results.jsonl``; repeat the command to continue after an interruption. At the end it prints a table
with a row per graph. CPU seconds depend less on what else the machine does. Exits with 1 if any command failed.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LARGE = 30_000  # vertices
FEW_STEPS = 5
PLANETOID = ("cora", "citeseer", "pubmed")

Command = tuple[str, list[str]]
Row = dict[str, str]


def graph_folders(data: Path) -> dict[str, Path]:
    """Return the folders with tables of vertices and edges, by the name of the graph."""
    folders = sorted(path.parent for path in [*data.glob("*/nodes.csv.gz"), *data.glob("evolving/*/nodes.csv.gz")])
    return {folder.name: folder for folder in folders}


def read_rows(file: Path) -> Iterator[Row]:
    """Read a compressed CSV file row by row: a large parent would count as memory of the commands it starts."""
    with gzip.open(file, "rt", encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def _write(file: Path, columns: tuple[str, ...], rows: Iterable[Row]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def split(folder: Path, out: Path) -> int:
    """Split a graph before its last labelled period into files for a workspace; return the number of vertices.

    The files: ``vertices`` and ``edges`` of the past, ``new-vertices`` (without labels) and ``new-edges`` of the
    last labelled period, ``labels`` of its vertices.
    """
    vertices, edges = folder / "nodes.csv.gz", folder / "edges.csv.gz"
    last = max(int(row["time"]) for row in read_rows(vertices) if row["label"])
    # 0: of the past, 1: of the last labelled period. Later vertices are left out.
    age = {row["id"]: int(int(row["time"]) == last) for row in read_rows(vertices) if int(row["time"]) <= last}

    def rows(wanted: int) -> Iterator[Row]:
        return (row for row in read_rows(vertices) if age.get(row["id"]) == wanted)

    def links(wanted: int) -> Iterator[Row]:
        both = ((row, age.get(row["source"]), age.get(row["target"])) for row in read_rows(edges))
        return (row for row, one, other in both if None not in (one, other) and (one or other) == wanted)

    _write(out / "vertices.csv", ("id", "time", "label", "text"), rows(0))
    _write(out / "new-vertices.csv", ("id", "time", "text"), rows(1))
    _write(out / "labels.csv", ("id", "label"), (row for row in rows(1) if row["label"]))
    _write(out / "edges.csv", ("source", "target"), links(0))
    _write(out / "new-edges.csv", ("source", "target"), links(1))
    return sum(1 for _ in read_rows(vertices))


def quick_start(folder: Path, out: Path, steps: int | None) -> Iterator[Command]:
    """Yield name and arguments of each command for a graph with tables; write the files that they need."""
    vertices = split(folder, out)
    few = FEW_STEPS if steps is None and vertices > LARGE else steps
    training = [] if few is None else ["--steps", str(few)]
    graph, run, ws = (str(out / name) for name in ("graph", "run", "ws"))
    tables = ["--vertices", str(folder / "nodes.csv.gz"), "--edges", str(folder / "edges.csv.gz")]
    past, new = (
        ["--vertices", str(out / f"{prefix}vertices.csv"), "--edges", str(out / f"{prefix}edges.csv")]
        for prefix in ("", "new-")
    )
    yield "import", ["import", "tables", *tables, "--out", graph]
    yield "inspect", ["inspect", graph]
    yield "run", ["run", graph, *training, "--out", run]
    yield "run mlp", ["run", graph, "--model", "mlp", *training]
    yield "run most-frequent", ["run", graph, "--model", "most-frequent", *training]
    yield "report of run", ["report", run, "--out", f"{run}.html"]
    yield "ws init", ["ws", "init", ws, *past, *training]
    yield "ws add", ["ws", "add", ws, *new]
    yield "ws predict", ["ws", "predict", ws]
    yield "ws status", ["ws", "status", ws]
    yield "ws review", ["ws", "review", ws, "--limit", "3"]
    yield "ws label", ["ws", "label", ws, "--labels", str(out / "labels.csv")]
    yield "ws scores", ["ws", "scores", ws]
    yield "ws update", ["ws", "update", ws]
    yield "report of ws", ["report", ws, "--out", f"{ws}.html"]


def import_and_inspect(data: Path, name: str, out: Path) -> Iterator[Command]:
    """Yield the commands for a data set without time (Planetoid) or without edges (publication records)."""
    graph = str(out / "graph")
    if name in PLANETOID:
        yield "import", ["import", "planetoid", str(data / "planetoid"), "--name", name, "--out", graph]
    else:
        yield "import", ["import", "records", str(data / name / "papers.jsonl.gz"), "--out", graph]
    yield "inspect", ["inspect", graph]


@dataclass(frozen=True)
class Executed:
    """Exit code, seconds, CPU seconds and peak memory (MB) of a command, and what it printed."""

    code: int
    seconds: float
    cpu: float
    mb: int
    printed: str


def execute(arguments: list[str]) -> Executed:
    """Run a command."""
    start = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "evergraph", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert child.stdout is not None
    with child.stdout:
        printed = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds, cpu = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
    return Executed(child.returncode, round(seconds, 2), round(cpu, 2), usage.ru_maxrss // 1024, printed)


def table(results: list[dict[str, Any]]) -> str:
    """Return a table with one row per graph: CPU seconds of each part, all seconds, and the peak memory."""
    parts = {
        "import": ("import",),
        "inspect": ("inspect",),
        "run": ("run",),
        "baselines": ("run mlp", "run most-frequent"),
        "report": ("report of run", "report of ws"),
        "ws init": ("ws init",),
        "ws update": ("ws update",),
        "other ws": ("ws add", "ws predict", "ws status", "ws review", "ws label", "ws scores"),
    }
    lines = [
        f"| graph | {' | '.join(f'{name}, CPU s' for name in parts)} | all, s | peak MB | failed |",
        "|---|" + "---:|" * (len(parts) + 3),
    ]
    for graph in dict.fromkeys(result["graph"] for result in results):
        rows = [result for result in results if result["graph"] == graph]
        cells = []
        for commands in parts.values():
            cpu = [row["cpu"] for row in rows if row["command"] in commands]
            cells.append(f"{sum(cpu):.1f}" if cpu else "")
        failed = sum(row["code"] != 0 for row in rows)
        cells.append(f"{sum(row['seconds'] for row in rows):.0f}")
        cells += [f"{max(row['mb'] for row in rows):,}", f"{failed} of {len(rows)}"]
        lines.append(f"| {graph} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run all commands, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("EVERGRAPH_DATA", "../shared/data")))
    parser.add_argument("--out", type=Path, required=True, help="folder for results and temporary files")
    parser.add_argument("--graphs", nargs="+", metavar="NAME", help="only these graphs")
    parser.add_argument("--steps", type=int, help="training steps per task on every graph")
    options = parser.parse_args()
    folders = graph_folders(options.data)
    others = [name for name in PLANETOID if (options.data / "planetoid" / f"ind.{name}.x").exists()]
    others += ["dblp-records"] * (options.data / "dblp-records").exists()
    names = options.graphs or [*folders, *others]
    unknown = [name for name in names if name not in folders and name not in others]
    if unknown or not names:
        parser.error(f"{options.data} has no graph {', '.join(unknown) or 'at all'}")
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / "results.jsonl"
    results = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    for name in names:
        if any(result["graph"] == name and result["last"] for result in results):
            continue
        results = [result for result in results if result["graph"] != name]
        out = options.out / name
        subprocess.run(["rm", "-rf", str(out)], check=True)
        out.mkdir()
        if name in folders:
            commands = list(quick_start(folders[name], out, options.steps))
        else:
            commands = list(import_and_inspect(options.data, name, out))
        for number, (command, arguments) in enumerate(commands, start=1):
            done = execute(arguments)
            result = {"graph": name, "command": command, "last": number == len(commands), **asdict(done)}
            printed = str(result.pop("printed"))
            results.append(result)
            (out / f"{number:02}-{command.replace(' ', '-')}.txt").write_text(printed, encoding="utf-8")
            print(
                f"{name}: {command}: exit {done.code}, {done.seconds} s, {done.cpu} CPU s, {done.mb:,} MB", flush=True
            )
            if done.code:
                print(printed, flush=True)
        log.write_text("".join(json.dumps(result) + "\n" for result in results), encoding="utf-8")
    results = [result for result in results if result["graph"] in names]
    print(table(results))
    return int(any(result["code"] != 0 for result in results))


if __name__ == "__main__":
    sys.exit(main())
