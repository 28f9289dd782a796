"""Importing dblp-hard from CSV, compared with pandas' ``read_csv`` of the same files; opening the saved graph."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.measure import DATA, measure
from evergraph.datasets.tables import read_tables
from evergraph.graph.evolving import EvolvingGraph


def with_pandas(folder: Path) -> int:
    import pandas as pd

    return sum(len(pd.read_csv(folder / f"{name}.csv.gz")) for name in ("nodes", "edges"))


def with_evergraph(folder: Path, out: str) -> int:
    graph = read_tables(folder / "nodes.csv.gz", folder / "edges.csv.gz")
    graph.save(out, replace=True)
    return len(graph)


def opening(folder: str) -> int:
    return EvolvingGraph.open(folder).n_edges


def run() -> list[tuple[str, str, str, str]]:
    folder = DATA / "dblp-hard"
    with tempfile.TemporaryDirectory() as out:
        plain = measure(with_pandas, folder)
        ours = measure(with_evergraph, folder, f"{out}/graph")
        opened = measure(opening, f"{out}/graph", repeat=20)
        first = measure(opening, f"{out}/graph", repeat=1, warm=False)
    ratio = ours.median / plain.median
    return [
        ("pandas read_csv of both files", f"{plain.median:.2f} s", f"{plain.peak_mb:.0f} MB", ""),
        (
            "import: read, check, count words, build, save with fsync",
            f"{ours.median:.2f} s",
            f"{ours.peak_mb:.0f} MB",
            f"{ratio:.1f} times pandas (at most 10), under 1 GB",
        ),
        ("open the saved graph", f"{1000 * opened.median:.1f} ms", f"{opened.peak_mb:.0f} MB", "under 50 ms"),
        (
            "open it for the first time in a process",
            f"{1000 * first.median:.1f} ms",
            f"{first.peak_mb:.0f} MB",
            "under 50 ms",
        ),
    ]


TITLE = "Import of dblp-hard (71,439 vertices, 501,966 edges) from gzipped CSV"
COLUMNS = ("what", "median time", "peak memory", "target")
