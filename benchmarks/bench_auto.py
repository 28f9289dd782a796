"""A comparison with the detector auto on dblp-easy, with one and with all threads in the decomposition of its words."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from benchmarks.bench_run import convert
from benchmarks.measure import DATA, measure

STEPS = 20


def compared(path: str, out: str, all_threads: bool) -> dict[str, float]:
    """Return MCC and AUROC of the detector for seed 0."""
    from evergraph.evaluation.comparison import candidate, compare
    from evergraph.evaluation.configuration import Configuration
    from evergraph.inputs import similar
    from evergraph.nn import GraphSAGE

    if all_threads:
        similar.threadpool_limits = lambda *_: contextlib.nullcontext()  # type: ignore[assignment, misc]
    found = compare(
        [path], [candidate("auto")], Configuration(GraphSAGE(), history=3, steps=STEPS, inputs="words"), out=out
    )
    return {name: found.outcomes[0].metrics[name] for name in ("mcc", "auroc")}


def run() -> list[tuple[str, str, str, str]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        measure(convert, DATA / "dblp-easy", f"{folder}/graph", repeat=1, warm=False)
        for turn, all_threads in enumerate((True, False) * 2):  # in turn, because the speed of a shared machine varies
            measured = measure(
                compared, f"{folder}/graph", str(Path(folder, str(turn))), all_threads, repeat=1, warm=False
            )
            what = f"{os.cpu_count()} threads, as before" if all_threads else "one thread"
            result = ", ".join(f"{name} {value:.4f}" for name, value in measured.result.items())
            rows.append((what, f"{measured.best:.0f} s", f"{measured.processor:.0f} s", result))
    return rows


TITLE = f"A comparison with detector auto on dblp-easy, {STEPS} steps a task"
COLUMNS = ("decomposition of words", "time", "of all cores", "result")

if __name__ == "__main__":
    for line in [COLUMNS, *run()]:
        print(" | ".join(line))
