"""Time of the basic operations on a graph with two million vertices."""

from __future__ import annotations

import tempfile
import time

from benchmarks.measure import measure
from evergraph.analysis.time_differences import tdiff
from evergraph.datasets.synthetic import synthetic
from evergraph.graph.evolving import EvolvingGraph

PLAN = {"vertices": 2_000_000, "times": 25, "classes": 50, "new_classes": 10, "degree": 8.0, "words": 20_000}


def steps() -> list[tuple[str, float]]:
    """Run the steps in one process, because each needs the result of the one before."""
    found = []

    def timed(what: str, start: float) -> None:
        found.append((what, time.perf_counter() - start))

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        graph = synthetic(**PLAN)  # type: ignore[arg-type]
        timed("generate", start)
        start = time.perf_counter()
        graph.save(f"{folder}/graph")
        timed("save with hashes and fsync", start)
        start = time.perf_counter()
        graph = EvolvingGraph.open(f"{folder}/graph")
        timed("open", start)
        start = time.perf_counter()
        window = graph.window(graph.last_time - 3, graph.last_time)
        edges = window.n_edges
        timed(f"window of the last 4 times with its {edges:,} edges", start)
        start = time.perf_counter()
        window.inputs()
        timed(f"TF-IDF of its {len(window):,} texts from all before", start)
        tdiff(synthetic(vertices=1000), 2)  # compiles
        start = time.perf_counter()
        exact = tdiff(graph, 2)
        timed(f"tdiff_2, exact, {exact.pairs:,} pairs", start)
        start = time.perf_counter()
        sampled = tdiff(graph, 2, sample=10_000)
        timed(f"tdiff_2 from 10,000 vertices, stated error {sampled.error:.4f}", start)
        start = time.perf_counter()
        new = {"id": range(10**7, 10**7 + 1000), "time": [graph.last_time + 1] * 1000, "label": ["class 00"] * 1000}
        graph.append(new | {"text": ["w0001 w0002"] * 1000}, [(10**7 + i, i) for i in range(1000)])
        timed("append 1,000 vertices and edges", start)
    return found


def run() -> list[tuple[str, str]]:
    measured = measure(steps, repeat=1, warm=False)
    rows = [(what, f"{seconds:.3f} s") for what, seconds in measured.result]
    return [*rows, ("peak memory of all", f"{measured.peak_mb:,.0f} MB")]


TITLE = "A synthetic graph of 2,000,000 vertices and about 8,000,000 edges (seed 0)"
COLUMNS = ("step", "time")
