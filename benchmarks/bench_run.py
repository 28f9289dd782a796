"""A whole lifelong run on dblp-hard: 14 tasks of 200 steps."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.measure import DATA, measure
from evergraph.datasets.tables import read_tables


def convert(folder: Path, out: str) -> None:
    read_tables(folder / "nodes.csv.gz", folder / "edges.csv.gz").save(out)


def whole(path: str) -> tuple[int, float, float]:
    """Return the number of tasks, the mean accuracy and the MCC over all tasks."""
    from evergraph import EvolvingGraph, LifelongLearner, evaluate, tasks
    from evergraph.detect import GDOC
    from evergraph.evaluation.results import aggregate
    from evergraph.nn import GraphSAGE

    learner = LifelongLearner(GraphSAGE(hidden=32), GDOC(0.75), restart="warm", steps=200, seed=0, inputs="words")
    graph = EvolvingGraph.open(path)
    scores = [evaluate(task, learner.adapt(task).predict(task)) for task in tasks(graph, history=3)]
    found = aggregate({0: scores})
    return len(scores), float(found["accuracy"]["mean"] or 0), float(found["mcc"]["mean"] or 0)


def run() -> list[tuple[str, str, str, str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        measure(convert, DATA / "dblp-hard", f"{folder}/graph", repeat=1, warm=False)
        # In turn, because the speed of a shared machine varies.
        turns = [
            (spin, measure(whole, f"{folder}/graph", repeat=1, warm=False, spin=spin)) for spin in (True, False) * 2
        ]
    rows = []
    for spin, measured in turns:
        tasks, accuracy, mcc = measured.result
        what = f"GraphSAGE + gDOC (.75), {tasks} tasks of 200 steps, history 3, warm, words, seed 0"
        rows.append(
            (
                f"{what}; idle threads {'spin' if spin else 'sleep'}",
                f"{measured.best:.0f} s",
                f"{measured.processor:.0f} s",
                f"{measured.peak_mb / 1000:.2f} GB",
                f"accuracy {accuracy:.3f}, MCC {mcc:.3f}" + ("" if spin else "; half the time of 0.1, under 1.5 GB"),
            )
        )
    return rows


TITLE = "A whole run on dblp-hard (71,439 vertices, 501,966 edges)"
COLUMNS = ("what", "time", "of all cores", "peak memory", "result; target")
NOTE = (
    "Idle threads spin: without `OMP_WAIT_POLICY=passive`, which Evergraph sets. To compare with another version, run "
    "`python -m benchmarks.bench_run` with its `src` in `PYTHONPATH`, in turn with this one."
)

if __name__ == "__main__":
    for line in [COLUMNS, *run()]:
        print(" | ".join(line))
