"""Commands on a workspace of two million vertices when a slice of 1,000 is added: time, memory and disk of each.

Usage: ``python -m benchmarks.bench_append --vertices 200000``; ``--folder`` keeps the workspace for the next time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_workspace import import_all
from benchmarks.measure import measure

VERTICES, SLICE, HISTORY, STEPS, RUNS = 2_000_000, 1000, 3, 10, 3
EDGES = 4  # of each new vertex
COMMANDS: dict[str, Callable[[Any, Path], object]] = {
    "add": lambda workspace, files: workspace.add(files / "vertices.parquet", files / "edges.parquet"),
    "predict": lambda workspace, _: workspace.predict(),
    "label": lambda workspace, files: workspace.label(files / "labels.parquet"),
    "status": lambda workspace, _: workspace.status(),
    "review": lambda workspace, _: workspace.review(),
    "log": lambda workspace, _: workspace.log(),
}


def prepare(out: Path, vertices: int) -> None:
    """Create a workspace with a synthetic graph, and files with a slice after its last period and its labels."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from evergraph.datasets.synthetic import synthetic
    from evergraph.workspace import Workspace

    graph = synthetic(vertices=vertices, times=25, classes=50, new_classes=10, degree=8.0, words=20_000)
    out.mkdir(parents=True)
    rng = np.random.default_rng(0)
    last = np.flatnonzero(graph.times == graph.last_time)
    # New vertices copy the words and the class of vertices of the last period, and have edges to others of it.
    like, near = rng.choice(last, SLICE), rng.choice(last, EDGES * SLICE)
    words = graph.features.words
    assert words is not None
    names, matrix = np.array(list(words.columns), object), words.matrix
    texts = [" ".join(names[matrix[[int(row)]].indices]) for row in like]
    ids = np.arange(len(graph), len(graph) + SLICE)
    columns = {"id": ids, "time": np.full(SLICE, graph.last_time + 1), "text": texts}
    pq.write_table(pa.table(columns), out / "vertices.parquet")
    pq.write_table(pa.table({"source": np.repeat(ids, EDGES), "target": graph.ids[near]}), out / "edges.parquet")
    pq.write_table(pa.table({"id": ids, "label": graph.labels[like].tolist()}), out / "labels.parquet")
    Workspace.create(out / "workspace", graph, history=HISTORY, steps=STEPS)


def run_command(name: str, large: Path, small: Path) -> tuple[tuple[float, float], tuple[float, float], int]:
    """Run a command after imports, on a small workspace and then on the large one.

    Return wall and CPU seconds of both, and the growth of the large one on disk in bytes.
    """
    from evergraph.workspace import Workspace

    import_all()
    seconds = []
    before = _bytes(large / "copy")
    for folder in (small, large):
        start = time.perf_counter(), time.process_time()
        COMMANDS[name](Workspace(folder / "copy"), folder)
        seconds.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return seconds[0], seconds[1], _bytes(large / "copy") - before


def _bytes(folder: Path) -> int:
    return sum(entry.stat().st_size for root, _, names in os.walk(folder) for entry in (Path(root, n) for n in names))


def run(vertices: int = VERTICES, folder: Path | None = None) -> list[tuple[str, ...]]:
    """Measure every command, each in a fresh process."""
    with tempfile.TemporaryDirectory() as temporary:
        large = (folder or Path(temporary)) / f"vertices-{vertices}"
        small = (folder or Path(temporary)) / "vertices-5000"
        for out, size in ((large, vertices), (small, 5000)):
            if not out.exists():
                measure(prepare, out, size, repeat=1, warm=False)
        found: dict[str, list[Any]] = {name: [] for name in COMMANDS}
        for _ in range(RUNS):
            for out in (large, small):
                shutil.rmtree(out / "copy", ignore_errors=True)
                shutil.copytree(out / "workspace", out / "copy")
            # The copy is compared with its hashes once, as after any copy of the folder.
            measure(run_command, "review", large, small, repeat=1, warm=False)
            for name in COMMANDS:
                measured = measure(run_command, name, large, small, repeat=1, warm=False)
                found[name].append((*measured.result, measured.peak_mb))
        size = sum((large / name).stat().st_size for name in ("vertices.parquet", "edges.parquet"))
    rows = []
    for name, runs in found.items():
        first, own, grown, peak = (list(values) for values in zip(*runs, strict=True))
        times = [f"{statistics.median(values):.2f} s" for pair in (own, first) for values in zip(*pair, strict=True)]
        rows.append((name, *times, f"{max(peak):,.0f} MB", f"{max(grown):,}", ""))
    both = [
        [add[1][kind] + predict[1][kind] for add, predict in zip(found["add"], found["predict"], strict=True)]
        for kind in (0, 1)
    ]
    grown = max(add[2] + predict[2] for add, predict in zip(found["add"], found["predict"], strict=True))
    target = f"under 1.5 s; {grown / size:.1f} times the slice's {size:,} bytes (under 20)"
    both_times = [f"{statistics.median(values):.2f} s" for values in both]
    return [*rows, ("add and predict", *both_times, "", "", "", f"{grown:,}", target)]


TITLE = f"A slice of {SLICE:,} vertices at a workspace of {VERTICES:,} vertices and about 8,000,000 edges"
COLUMNS = (
    "command",
    "time",
    "of the processor",
    "start-up",
    "of the processor",
    "peak memory",
    "bytes on disk",
    "target",
)
NOTE = (
    f"Synthetic graph (seed 0) of 25 periods with texts, default model and detector, history {HISTORY}; the slice has "
    f"{EDGES:,} edges per vertex, from Parquet files. Each command in a fresh process, after imports, with fsync; "
    f"median of {RUNS}. Start-up: the same command on a workspace of 5,000 vertices just before in the same process, "
    "which loads the compiled loops."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=VERTICES)
    parser.add_argument("--folder", type=Path, help="where the workspaces are kept, to use them again")
    options = parser.parse_args()
    for line in [COLUMNS, *run(options.vertices, options.folder)]:
        print(" | ".join(line), flush=True)


if __name__ == "__main__":
    main()
