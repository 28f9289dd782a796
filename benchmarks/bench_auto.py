"""What the detector auto costs beside the training, in one process with one thread."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.bench_run import convert
from benchmarks.measure import DATA, measure

GRAPHS = ("sympy-files", "ansible-modules", "airflow-providers", "julia-packages", "metasploit-modules", "sage-files")
GRAPHS += ("galaxy-tools", "home-assistant-platforms", "mathlib4-imports", "web-features", "iso-standards", "macports")
GRAPHS += ("camel-components", "go-commits", "zephyr-commits", "tate-artworks")


def decided(path: str, out: str) -> dict[str, float]:
    """Return the seconds of training and of the detector with all defaults, for seed 0."""
    import torch

    from evergraph.detect import AutoDetector, Softmax
    from evergraph.evaluation.configuration import Configuration
    from evergraph.evaluation.replay import record, replay
    from evergraph.evaluation.workers import graph_of

    torch.set_num_threads(1)
    graph, _ = graph_of(path)
    detector = AutoDetector()
    recording = record(Configuration(detector=Softmax()), graph, 0, out)
    tasks = replay(recording, graph, detector)
    return {"training": recording.training_seconds(detector), "detector": sum(task.seconds for task in tasks)}


def run() -> list[tuple[str, str, str, str]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in GRAPHS:
            graph = str(Path(folder, name))
            measure(convert, DATA / "evolving" / name, graph, repeat=1, warm=False)
            found = measure(decided, graph, f"{graph}-recorded", repeat=1, warm=False).result
            share = f"{found['detector'] / found['training']:.0%}"
            rows.append((name, f"{found['training']:.1f} s", f"{found['detector']:.1f} s", share))
    return rows


TITLE = "The detector auto: seconds of training, seconds to observe and decide, and their ratio"
COLUMNS = ("graph", "training", "detector", "ratio")

if __name__ == "__main__":
    for line in [COLUMNS, *run()]:
        print(" | ".join(line))
