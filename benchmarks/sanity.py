"""Train some configurations on real graphs and write docs/research/sanity.md: ``python -m benchmarks.sanity``.

Finished runs are kept in ``.sanity`` and not repeated.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.measure import DATA
from evergraph.datasets.tables import read_tables
from evergraph.detect import DOC, GDOC, Softmax
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.run import Run, run
from evergraph.graph.evolving import EvolvingGraph
from evergraph.nn import MLP, GraphSAGE, MostFrequent

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".sanity"
PAGE = ROOT / "docs" / "research" / "sanity.md"
GRAPHS = ("dblp-easy", "dblp-hard")
LONG = "history 6"  # on the larger graph only
RUNS = {
    "most frequent class, history 3": Configuration(MostFrequent(), Softmax(), 3),
    "MLP, history 3, warm": Configuration(MLP(), Softmax(), 3),
    "GraphSAGE, history 3, warm": Configuration(GraphSAGE(), Softmax(), 3),
    "GraphSAGE, history 1, cold": Configuration(GraphSAGE(), Softmax(), 1, "cold"),
    "GraphSAGE, history 1, warm": Configuration(GraphSAGE(), Softmax(), 1),
    "GraphSAGE + DOC .5, history 3, warm": Configuration(GraphSAGE(), DOC(0.5), 3),
    "GraphSAGE + gDOC .75, history 3, warm": Configuration(GraphSAGE(), GDOC(0.75), 3),
    "GraphSAGE, history 6, warm": Configuration(GraphSAGE(), Softmax(), 6),
    "GraphSAGE + gDOC .75, history 6, warm": Configuration(GraphSAGE(), GDOC(0.75), 6),
}


def graph_of(name: str) -> EvolvingGraph:
    folder = KEPT / "graphs" / name
    if not (folder / "manifest.json").exists():
        read_tables(DATA / name / "nodes.csv.gz", DATA / name / "edges.csv.gz").save(folder)
    return EvolvingGraph.open(folder)


def result(name: str, what: str, seeds: list[int]) -> Run:
    folder = "".join(letter if letter.isalnum() else "-" for letter in f"{name}-{what}")
    return run(RUNS[what], graph_of(name), seeds, out=KEPT / "runs" / folder)


def table(seeds: list[int]) -> str:
    head = ["run", "accuracy", "ID accuracy", "flagged", "Open-F1", "MCC", "AUROC", "seconds"]
    lines = []
    for name in GRAPHS:
        lines += [f"\n## {name}\n", f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
        for what in RUNS:
            if LONG in what and name != GRAPHS[-1]:
                continue
            found = result(name, what, seeds).summary()
            cells = [what]
            for key in ("accuracy", "id_accuracy", "rejected", "open_f1", "mcc", "auroc"):
                mean = found[key]["mean"]
                cells.append("" if mean is None else f"{mean:.3f}")
            cells.append(f"{found['seconds']['mean']:.0f}")
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from 0 up")
    seeds = list(range(parser.parse_args().seeds))
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    text = (
        "# Sanity checks\n\n"
        "Does training work on real graphs? Better models must be more accurate, warm restarts must help with a short "
        "history, and detectors must flag some vertices but not all. `make sanity` checks this (half an hour).\n\n"
        f"Written by `python -m benchmarks.sanity --seeds {len(seeds)}` ({which}). The graphs are DBLP papers, the "
        "classes venues. Tasks start with the first year that has a quarter of the vertices before it. Default "
        "settings, 200 steps per task. Values are means over tasks and seeds, MCC is over all vertices. Seconds are "
        "for training and prediction on two shared cores.\n"
    )
    PAGE.write_text(f"{text}{table(seeds)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
