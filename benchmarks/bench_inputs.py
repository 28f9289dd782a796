"""What inputs cost: a task of dblp-hard with words alone, with classes of older neighbours, and with a dense block."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.bench_run import convert
from benchmarks.measure import DATA, measure

STEPS, WIDTH, TASKS = 100, 256, 3
TARGETS = {"words,classes": "1.15 times", "words,encoder": "1.6 times", "auto": "1.25 times, with the choice"}


def trained(path: str, inputs: str) -> tuple[float, float]:
    """Return seconds of the steps, and of all else that training for the last task takes."""
    from evergraph import EvolvingGraph, LifelongLearner, tasks
    from evergraph.graph.features import Vectors
    from evergraph.nn import GraphSAGE

    graph = EvolvingGraph.open(path)
    if "encoder" in inputs:
        vectors = np.random.default_rng(0).normal(size=(len(graph), WIDTH)).astype(np.float32)
        graph = replace(graph, features=replace(graph.features, vectors=Vectors(vectors, "random")))
    learner = LifelongLearner(GraphSAGE(hidden=32), steps=STEPS, inputs=inputs)
    *earlier, last = list(tasks(graph, history=3))[-TASKS:]
    for task in earlier:
        learner.adapt(task)
    times: list[float] = []
    start = time.perf_counter()
    learner.adapt(last, lambda *_: times.append(time.perf_counter()))
    whole = time.perf_counter() - start
    steps = (times[-1] - times[0]) / (STEPS - 1)
    return steps, whole


def run() -> list[tuple[str, str, str, str, str, str]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "graph"))
        measure(convert, DATA / "dblp-hard", path, repeat=1, warm=False)
        found: dict[str, list[tuple[float, float, float]]] = {}
        for _ in range(3):  # in turn, because the speed of a shared machine varies
            for inputs in ("words", *TARGETS):
                measured = measure(trained, path, inputs, repeat=1, warm=False)
                found.setdefault(inputs, []).append((*measured.result, measured.peak_mb))
        base = np.min(found["words"], axis=0)
        for inputs, values in found.items():
            step, whole, peak = np.min(values, axis=0)
            ratios = f"{step / base[0]:.2f}", f"{whole / base[1]:.2f}", f"{peak / base[2]:.2f}"
            rows.append((inputs, f"{1000 * step:.0f} ms", *ratios, TARGETS.get(inputs, "")))
    return rows


TITLE = f"Inputs on dblp-hard, history 3, {STEPS} steps; the encoder's vectors are random, of {WIDTH} columns"
COLUMNS = ("inputs", "a step", "ratio of steps", "ratio of the whole task", "ratio of peak memory", "target of a step")
NOTE = (
    "The best of three turns. A whole task includes the choice of inputs by past slices. Target of memory: 1.3 times."
)

if __name__ == "__main__":
    for line in [COLUMNS, *run()]:
        print(" | ".join(line))
