"""A comparison with the detectors auto and average on dblp-easy."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.bench_run import convert
from benchmarks.measure import DATA, measure

STEPS = 20


def compared(path: str, out: str, detector: str) -> dict[str, float]:
    """Return MCC and AUROC of the detector for seed 0."""
    from evergraph.evaluation.comparison import candidate, compare
    from evergraph.evaluation.configuration import Configuration
    from evergraph.nn import GraphSAGE

    settings = Configuration(GraphSAGE(), history=3, steps=STEPS, inputs="words")
    found = compare([path], [candidate(detector)], settings, out=out)
    return {name: found.outcomes[0].metrics[name] for name in ("mcc", "auroc")}


def run() -> list[tuple[str, str, str, str]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        measure(convert, DATA / "dblp-easy", f"{folder}/graph", repeat=1, warm=False)
        for turn, detector in enumerate(("auto", "average") * 2):  # in turn: the speed of a shared machine varies
            out = str(Path(folder, str(turn)))
            measured = measure(compared, f"{folder}/graph", out, detector, repeat=1, warm=False)
            result = ", ".join(f"{name} {value:.4f}" for name, value in measured.result.items())
            rows.append((detector, f"{measured.best:.0f} s", f"{measured.processor:.0f} s", result))
    return rows


TITLE = f"A comparison with one detector on dblp-easy, {STEPS} steps a task"
COLUMNS = ("detector", "time", "of all cores", "result")

if __name__ == "__main__":
    for line in [COLUMNS, *run()]:
        print(" | ".join(line))
