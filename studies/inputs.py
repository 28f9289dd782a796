"""Which inputs pay? A grid over graphs, inputs, histories and seeds.

python -m studies.inputs prepare GRAPHS    write FOLDER/GRAPH/ENCODER for each graph folder of GRAPHS
python -m studies.inputs run               run the trials that have no result yet; stop and continue at any time
python -m studies.inputs late              the same with labels that arrive late
python -m studies.inputs show              write the table and the figure of the results

Trials use the default detector, whose outputs give accuracy, AUROC and MCC in one training.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evergraph import EvolvingGraph
from evergraph.analysis.description import first_task
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.processes import graph_of
from evergraph.evaluation.results import Results
from evergraph.evaluation.run import run_task
from evergraph.evaluation.trials import GridState, TrialResult, TrialStore, run_grid

RESULTS = Path(__file__).parent / "results" / "inputs"
PREPARED = Path("prepared")
PLAIN, SVD = "none", "svd"
# What a line of the table reads, and the encoder of its vectors.
INPUTS = {
    "words": ("words", PLAIN),
    "auto": ("auto", PLAIN),
    "words + classes": ("words,classes", PLAIN),
    "words + static": ("words,encoder", "static"),
    "auto with static": ("auto", "static"),
    "words + SVD": ("words,encoder", SVD),
    "words + MiniLM": ("words,encoder", "minilm"),
    "auto with MiniLM": ("auto", "minilm"),
}
WIDTH = 256
LATE = ("airflow-providers", "ansible-modules", "julia-packages", "mathlib4-imports")


@dataclass(frozen=True)
class InputsTrial:
    """One configuration on one prepared graph; ``history`` is a number, ``full`` or ``auto``."""

    path: str
    graph_name: str
    encoder: str
    configuration: Configuration
    seed: int = 0

    def described(self) -> dict[str, Any]:
        """Return what identifies the trial except the seed."""
        graph, print_ = graph_of(self.path)
        return {
            "kind": "inputs",
            "fingerprint": print_,
            "encoder": self.encoder,
            "configuration": self.configuration.described(graph.axis),
        }

    def run(self) -> dict[str, Any]:
        """Return each column of the tasks' rows, and the blocks that were read."""
        graph, _ = graph_of(self.path)
        learner = self.configuration.learner(self.seed)
        rows = [run_task(learner, replace(task, seed=self.seed)).as_dict() for task in self.configuration.tasks(graph)]
        found = {name: [row[name] for row in rows] for name in rows[0] if name != "seed"}
        blocks = [] if learner.vocabulary_ is None else list(learner.vocabulary_.blocks)
        return found | {"blocks": blocks}


def plan(folder: Path, seeds: Sequence[int], lines: Sequence[str] = tuple(INPUTS)) -> Iterator[InputsTrial]:
    """The trials in the order of their importance: all graphs with the first seed before the second."""
    chosen = [INPUTS[line] for line in lines]
    ends = [pair for pair in (INPUTS["words"], INPUTS["auto"]) if pair in chosen]
    graphs = sorted((path for path in folder.iterdir() if (path / PLAIN).is_dir()), key=_size)
    for seed in seeds:
        for path in graphs:
            for inputs, encoder in chosen:
                if (path / encoder).is_dir():
                    yield _trial(path, encoder, seed, inputs=inputs)
    for path in graphs:
        for history in (1, "full"):
            for inputs, encoder in ends:
                yield _trial(path, encoder, 0, inputs=inputs, history=history)
    for path in graphs:
        for inputs, encoder in ends:
            yield _trial(path, encoder, 0, inputs=inputs, restart="cold")


def late_plan(folder: Path, seeds: Sequence[int]) -> Iterator[InputsTrial]:
    """Labels that arrive late, with and without classes as input."""
    for seed in seeds:
        for name in LATE:
            for latency in (0, 1, 2, 3):
                for inputs, encoder in (INPUTS["words"], INPUTS["auto"]):
                    yield _trial(folder / name, encoder, seed, inputs=inputs, label_latency=latency)


def _trial(path: Path, encoder: str, seed: int, **settings: Any) -> InputsTrial:
    return InputsTrial(str(path / encoder), path.name, encoder, Configuration(**settings), seed)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path / PLAIN).rglob("*.npy"))


# --- preparing -------------------------------------------------------------------------------------------------------


def prepare(sources: Path, folder: Path, encoders: Sequence[str]) -> None:
    """Write each graph without vectors, and with the vectors of each encoder."""
    for path in sorted(sources.iterdir()):
        graph = EvolvingGraph.open(path)
        if not (folder / path.name / PLAIN).exists():
            graph.save(folder / path.name / PLAIN)
        for encoder in encoders:
            there = folder / path.name / encoder
            if there.exists() or graph.features.words is None or (encoder != SVD and graph.features.texts is None):
                continue
            print(f"{path.name}: {encoder}", flush=True)
            _with_vectors(graph, encoder).save(there)


def _with_vectors(graph: EvolvingGraph, encoder: str) -> EvolvingGraph:
    from evergraph.graph.features import Vectors

    if encoder == SVD:
        return replace(graph, features=replace(graph.features, vectors=Vectors(svd(graph), SVD)), source=None)
    from evergraph.inputs.encoders import encode_graph

    return encode_graph(graph, encoder)


def svd(graph: EvolvingGraph) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Vectors of the texts by a truncated SVD of the TF-IDF of texts before the first task."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.preprocessing import normalize

    first = first_task(graph)
    whole = graph.window(graph.first_time, graph.last_time)
    words = whole.inputs(before=graph.axis.value(first))
    known = int(np.searchsorted(graph.times, first))
    width = min(WIDTH, words.shape[1] - 1)
    return normalize(TruncatedSVD(width, random_state=0).fit(words[:known]).transform(words)).astype(np.float32)


# --- results ---------------------------------------------------------------------------------------------------------


def means(results: Mapping[str, TrialResult]) -> dict[tuple[str, str, Any, str], dict[str, float]]:
    """Mean over seeds of each metric, by graph, line of the table, history and restart."""
    lines = {value: name for name, value in INPUTS.items()}
    found: dict[tuple[str, str, Any, str], list[dict[str, float]]] = defaultdict(list)
    for one in results.values():
        settings = one.trial["configuration"]
        line = lines.get((settings["inputs"], one.trial["encoder"]), settings["inputs"])
        columns = {name: values for name, values in one.result.items() if isinstance(values, list) and name != "blocks"}
        scores = Results({one.seed: columns})
        metrics = {name: scores.per_seed(name)[0] for name in ("accuracy", "macro_f1", "auroc", "mcc", "seconds")}
        found[one.graph, line, settings["history"], settings["restart"]].append(metrics)
    return {
        key: {name: statistics.fmean(row[name] for row in rows) for name in rows[0]} | {"seeds": len(rows)}
        for key, rows in found.items()
    }


def table(found: Mapping[tuple[str, str, Any, str], Mapping[str, float]], metric: str = "accuracy") -> str:
    """A Markdown table: a row per graph, a column per inputs, at the median history."""
    names = [name for name in INPUTS if any(line == name for _, line, *_ in found)]
    rows = [f"| {metric} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for graph in sorted({graph for graph, *_ in found}):
        cells = [found.get((graph, name, "auto", "warm")) for name in names]
        rows.append(f"| {graph} | {' | '.join('' if cell is None else f'{cell[metric]:.3f}' for cell in cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "run", "late", "show"])
    parser.add_argument("graphs", nargs="?", type=Path, help="folder of graph folders, for prepare")
    parser.add_argument("--prepared", type=Path, default=PREPARED)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--encoders", default="svd,static")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lines", default=",".join(INPUTS), help="lines of the table to run")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if given.what == "prepare":
        prepare(given.graphs, given.prepared, given.encoders.split(","))
    elif given.what in ("run", "late"):

        def on_done(state: GridState) -> None:
            left = "" if state.left_seconds is None else f", about {state.left_seconds / 3600:.1f} h left"
            print(f"{state.there + state.ran} of {state.total} trials{left}", flush=True)

        trials = list(
            late_plan(given.prepared, range(given.seeds))
            if given.what == "late"
            else plan(given.prepared, range(given.seeds), given.lines.split(","))
        )
        run_grid(trials, given.out, jobs=given.jobs, threads=1, on_done=on_done)
    else:
        print(table(means(TrialStore(given.out).read())))


if __name__ == "__main__":
    main()
