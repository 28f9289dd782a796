"""Importing from CSV: dblp-hard compared with pandas, a large graph compared with polars; opening a saved graph."""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.measure import DATA, Measured, measure

VERTICES, EDGES = 5_000_000, 20_000_000  # of the large graph
_WORDS = 50_000
_BLOCK = 500_000


def write_large(folder: Path) -> None:
    """Write tables of vertices (id, time, label and a text of six words, in no order of time) and edges, as CSV."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    rng = np.random.default_rng(0)
    words = pa.array([f"{chr(97 + word % 26)}{'aeiou'[word % 5]}{word:x}" for word in range(_WORDS)])
    reached = np.cumsum(1 / np.arange(1, _WORDS + 1))

    def named(prefix: str, numbers: np.ndarray) -> pa.Array:
        return pc.binary_join_element_wise(pa.scalar(prefix), pa.array(numbers).cast(pa.string()), "")

    def text(count: int) -> pa.Array:
        drawn = np.searchsorted(reached, rng.random((6, count)) * reached[-1])
        return pc.binary_join_element_wise(*(words.take(pa.array(each)) for each in drawn), " ")

    plain = csv.WriteOptions(quoting_style="none")
    kinds = {"id": pa.string(), "time": pa.int64(), "label": pa.string(), "text": pa.string()}
    with csv.CSVWriter(folder / "vertices.csv", pa.schema(kinds), write_options=plain) as file:
        for first in range(0, VERTICES, _BLOCK):
            count = min(_BLOCK, VERTICES - first)
            ids, labels = named("p", np.arange(first, first + count)), named("class ", rng.integers(0, 30, count))
            times = pa.array(rng.integers(1990, 2020, count))
            file.write(pa.record_batch([ids, times, labels, text(count)], list(kinds)))
    kinds = {"source": pa.string(), "target": pa.string()}
    with csv.CSVWriter(folder / "edges.csv", pa.schema(kinds), write_options=plain) as file:
        for first in range(0, EDGES, _BLOCK):
            count = min(_BLOCK, EDGES - first)
            file.write(pa.record_batch([named("p", rng.integers(0, VERTICES, count)) for _ in kinds], list(kinds)))


def with_polars(folder: Path) -> int:
    import polars

    return sum(len(polars.read_csv(folder / f"{name}.csv")) for name in ("vertices", "edges"))


def with_pandas(folder: Path) -> int:
    import pandas as pd

    return sum(len(pd.read_csv(folder / f"{name}.csv.gz")) for name in ("nodes", "edges"))


def with_evergraph(vertices: Path, edges: Path, out: str) -> int:
    from evergraph.datasets.tables import read_tables

    graph = read_tables(vertices, edges)
    graph.save(out, replace=True)
    return len(graph)


def opening(folder: str) -> int:
    from evergraph.graph.evolving import EvolvingGraph

    return EvolvingGraph.open(folder).n_edges


def run() -> list[tuple[str, str, str, str, str]]:
    folder = DATA / "dblp-hard"
    with tempfile.TemporaryDirectory() as out:
        plain = measure(with_pandas, folder)
        ours = measure(with_evergraph, folder / "nodes.csv.gz", folder / "edges.csv.gz", f"{out}/graph")
        opened = measure(opening, f"{out}/graph", repeat=20)
        first = measure(opening, f"{out}/graph", repeat=1, warm=False)
    ratio = ours.median / plain.median
    return [
        ("dblp-hard: pandas read_csv of both files", *_figures(plain), ""),
        (
            "dblp-hard: import: read, check, count words, build, save with fsync",
            *_figures(ours),
            f"{ratio:.1f} times pandas (at most 10), under 1 GB",
        ),
        ("dblp-hard: open the saved graph", *_figures(opened), "under 50 ms"),
        ("dblp-hard: open it for the first time in a process", *_figures(first), "under 50 ms"),
        *_large(),
    ]


def _large() -> list[tuple[str, str, str, str, str]]:
    """Measure the large graph; the files in the folder that EVERGRAPH_BENCH_FOLDER names are kept and used again."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(os.environ.get("EVERGRAPH_BENCH_FOLDER") or temporary)
        if not (folder / "edges.csv").exists():
            write_large(folder)
        files = folder / "vertices.csv", folder / "edges.csv"
        size = sum(file.stat().st_size for file in files) / 1e6
        polars = measure(with_polars, folder, repeat=3) if find_spec("polars") else None
        ours = measure(with_evergraph, *files, f"{temporary}/graph", repeat=3, warm=False)
    name = f"{VERTICES / 1e6:g} M vertices, {EDGES / 1e6:g} M edges, {size:,.0f} MB"
    if polars is None:
        return [(f"{name}: import", *_figures(ours), "polars is not installed; 2,500 MB")]
    ratio, busy = ours.best / polars.best, ours.processor / polars.processor
    return [
        (f"{name}: polars read_csv of both files", *_figures(polars), ""),
        (f"{name}: import", *_figures(ours), f"{ratio:.1f} times polars (5), CPU {busy:.1f} times; 2,500 MB"),
    ]


def _figures(found: Measured) -> tuple[str, str, str]:
    scale, unit = (1, "s") if found.median >= 0.1 else (1000, "ms")
    times = (f"{scale * seconds:.3g} {unit}" for seconds in (found.median, found.processor))
    return *times, f"{found.peak_mb:.0f} MB"


TITLE = "Import from CSV: dblp-hard (71,439 vertices, 501,966 edges, gzipped), and a large graph"
COLUMNS = ("what", "median time", "CPU time", "peak memory", "target")
NOTE = (
    "The large graph has a text of six words for each vertex. Its import includes sorting by time, counting words, "
    "compressing the texts and saving with fsync; polars only parses. Ratios are of the best of three runs."
)
