"""Time of add, predict and label for many small slices: neither a round nor a command in a new process gets slower.

Usage: ``python -m benchmarks.bench_slices --slices 1000``; ``--draw docs/assets/slices`` draws the figure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_workspace import import_all
from benchmarks.measure import measure

SLICES, SIZE, SKIPPED = 1000, 50, 10
STOPS = (10, 100, 1000)
COMMANDS = ("add", "predict", "label", "status", "review", "log")

Fresh = dict[str, tuple[float, float]]
"""CPU seconds and peak memory of each command in a process of its own."""


def rounds(
    folder: Path, slices: int, *, seed: int = 0
) -> tuple[list[list[float]], list[int], dict[int, tuple[int, Fresh]]]:
    """Return the seconds of each command and the bytes on disk, for each round on a workspace of metamath.

    Also return, after some numbers of slices, the number of segments and what each command costs in a new process.
    """
    from evergraph.datasets import metamath
    from evergraph.workspace import Workspace

    graph, rng = metamath(), np.random.default_rng(seed)
    # New vertices copy the words and the class of random vertices of metamath's last year.
    last = np.flatnonzero(graph.times == graph.last_time)
    names, words = graph.labels[last], list(graph.features.words.columns)  # type: ignore[union-attr]
    workspace = Workspace.create(folder, graph, history=3, steps=20)
    older = [str(id) for id in np.array(graph.ids.tolist(), object)[last]]
    seconds, sizes, fresh = [], [], {}
    for number in range(slices):
        chosen = rng.integers(0, len(last), SIZE)
        ids = [f"slice {number} vertex {row}" for row in range(SIZE)]
        matrix = graph.features.words.matrix  # type: ignore[union-attr]
        texts = [" ".join(words[column] for column in matrix[[int(last[row])]].indices) for row in chosen]
        vertices = {"id": ids, "time": [graph.last_time + 1 + number] * SIZE, "text": texts}
        edges = [(id, older[place]) for id in ids for place in rng.integers(0, len(older), 3)]
        start = [time.perf_counter()]
        workspace.add(vertices, edges)
        start.append(time.perf_counter())
        workspace.predict()
        start.append(time.perf_counter())
        workspace.label(ids, names[chosen].tolist())
        start.append(time.perf_counter())
        seconds.append(np.diff(start).tolist())
        sizes.append(_bytes(folder))
        if number + 1 in STOPS or number + 1 == slices:
            with workspace.store.read() as records:
                segments = records.value("SELECT count(*) FROM segments WHERE until IS NULL")
            next_ids = [f"next vertex {row}" for row in range(SIZE)]
            vertices |= {"id": next_ids, "time": [graph.last_time + 2 + number] * SIZE}
            more = vertices, list(zip(next_ids, ids, strict=True)), names[chosen].tolist()
            shutil.copytree(folder, folder.with_name("copy"))
            fresh[number + 1] = (segments, {})
            for name in COMMANDS:
                measured = measure(run_command, name, folder.with_name("copy"), *more, repeat=1, warm=False)
                fresh[number + 1][1][name] = (measured.result, measured.peak_mb)
            shutil.rmtree(folder.with_name("copy"))
        older = ids
    return seconds, sizes, fresh


def run_command(name: str, folder: Path, vertices: dict[str, Any], edges: list[Any], labels: list[str]) -> float:
    """Run a command after imports, and return its CPU seconds."""
    from evergraph.workspace import Workspace

    import_all()
    arguments = {"add": (vertices, edges), "label": (vertices["id"], labels)}.get(name, ())
    start = time.process_time()
    getattr(Workspace(folder), name)(*arguments)
    return time.process_time() - start


def _bytes(folder: Path) -> int:
    return sum(entry.stat().st_size for root, _, names in os.walk(folder) for entry in (Path(root, n) for n in names))


def ratio(seconds: list[list[float]]) -> tuple[float, float, float]:
    """Return the mean seconds of the first hundred rounds after the tenth and of the last hundred, and their ratio.

    With fewer than a thousand rounds, a tenth of them is used instead of a hundred.
    """
    totals = [sum(parts) for parts in seconds]
    part = max(1, min(100, len(totals) // 3))
    first, last = (statistics.fmean(found) for found in (totals[SKIPPED : SKIPPED + part], totals[-part:]))
    return first, last, last / first


def bend(sizes: list[int]) -> float:
    """Return the bytes per slice of the second half divided by those of the first half; 1 is linear."""
    middle = len(sizes) // 2
    return (sizes[-1] - sizes[middle]) / (len(sizes) - 1 - middle) / ((sizes[middle] - sizes[0]) / middle)


def draw(seconds: list[list[float]], sizes: list[int], stem: Path) -> None:
    """Draw the time of each command and the bytes on disk."""
    from evergraph.presentation.style import COLOURS, figure, legend_below, save

    with figure(1, 2) as (picture, axes):
        left, right = axes[0]
        for name, parts, colour in zip(("add", "predict", "label"), zip(*seconds, strict=True), COLOURS, strict=False):
            smooth = np.convolve(parts, np.ones(SKIPPED) / SKIPPED, mode="valid")
            left.plot(np.arange(len(smooth)) + SKIPPED, smooth * 1000, color=colour, label=name)
        left.set(xlabel="slice", ylabel="milliseconds (mean of ten)", ylim=(0, None))
        right.plot(np.array(sizes) / 1e6, color=COLOURS[0])
        right.set(xlabel="slice", ylabel="megabytes on disk", ylim=(0, None))
        legend_below(picture)
    save(picture, stem, f"python -m benchmarks.bench_slices --slices {len(sizes)}")


def run(slices: int = SLICES, picture: Path | None = None) -> list[tuple[str, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        seconds, sizes, fresh = rounds(Path(folder) / "ws", slices)
    if picture is not None:
        draw(seconds, sizes, picture)
    first, last, grown = ratio(seconds)
    per_slice = (sizes[-1] - sizes[0]) / max(len(sizes) - 1, 1)
    return [
        *(_fresh_row(count, *fresh[count]) for count in fresh),
        ("a round, early", f"{first * 1000:.0f} ms", ""),
        ("a round, late", f"{last * 1000:.0f} ms", f"{grown:.2f} times the early one; at most 1.3"),
        ("bytes a slice", f"{per_slice:,.0f}", f"second half {bend(sizes):.2f} times the first; 1 is linear"),
    ]


def _fresh_row(count: int, segments: int, costs: Fresh) -> tuple[str, ...]:
    times = ", ".join(f"{name} {seconds * 1000:.0f}" for name, (seconds, _) in costs.items())
    peak = max(peak for _, peak in costs.values())
    return (f"after {count:,} slices", f"{times} ms; {peak:,.0f} MB", f"the same after all; {segments} segments")


TITLE = f"{SLICES:,} slices of {SIZE} vertices at a workspace of metamath"
COLUMNS = ("what", "measured", "target")
NOTE = (
    "Each slice is added, predicted and labelled by the Python API in one process; early are the first hundred rounds "
    "after the tenth, late the last hundred. After some numbers of slices: CPU time of each command for one more slice "
    "in a new process, after imports, and the highest peak memory."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=SLICES)
    parser.add_argument("--draw", type=Path, help="where the figure goes, without a suffix: docs/assets/slices")
    options = parser.parse_args()
    rows: list[Any] = [COLUMNS, *run(options.slices, options.draw)]
    for line in rows:
        print(" | ".join(line))


if __name__ == "__main__":
    main()
