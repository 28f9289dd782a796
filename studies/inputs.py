"""Which inputs pay? A grid over graphs, inputs, histories and seeds.

python -m studies.inputs prepare GRAPHS    write FOLDER/GRAPH/ENCODER for each graph folder of GRAPHS
python -m studies.inputs run               run the trials that have no result yet; stop and continue at any time
python -m studies.inputs late              the same with labels that arrive late
python -m studies.inputs show              write the table and the figure of the results

Trials use gDOC, the default detector; words and the default inputs are also run with the detector ``auto``.
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
from evergraph.datasets import load
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.results import Results
from evergraph.evaluation.run import run_task
from evergraph.evaluation.trials import GridState, TrialResult, TrialStore, run_grid
from evergraph.evaluation.workers import graph_of
from evergraph.names import build_detector
from evergraph.presentation.style import figure, legend_below, save, series

RESULTS = Path(__file__).parent / "results" / "inputs"
FIGURE = Path(__file__).parents[1] / "docs" / "assets" / "inputs" / "accuracy"
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
METRICS = ("accuracy", "macro_f1", "auroc", "mcc", "seconds")
# Graphs on which the blocks, the stacking and the backtest were developed; the others were only measured.
DEVELOPED_ON = {"airflow-providers", "ansible-modules", "galaxy-tools", "home-assistant-platforms", "julia-packages"}
DEVELOPED_ON |= {"mathlib4-imports", "metasploit-modules", "sympy-files"}
LATENCIES = (0, 1, 2, 3)
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
    for settings in ({"detector": build_detector("auto")}, {"restart": "cold"}):
        for path in graphs:
            for inputs, encoder in ends:
                yield _trial(path, encoder, 0, inputs=inputs, **settings)


def late_plan(folder: Path, seeds: Sequence[int]) -> Iterator[InputsTrial]:
    """Labels that arrive late, with and without classes as input; the same tasks for each latency."""
    for seed in seeds:
        for name in LATE:
            graph = EvolvingGraph.open(folder / name / PLAIN)
            first = graph.axis.value(_first(graph) + max(LATENCIES))
            for latency in LATENCIES:
                for inputs, encoder in (INPUTS["words"], INPUTS["auto"]):
                    yield _trial(folder / name, encoder, seed, inputs=inputs, label_latency=latency, first=first)


def _trial(path: Path, encoder: str, seed: int, **settings: Any) -> InputsTrial:
    return InputsTrial(str(path / encoder), path.name, encoder, Configuration(**settings), seed)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path / PLAIN).rglob("*.npy"))


# --- preparing -------------------------------------------------------------------------------------------------------


def prepare(sources: Path, folder: Path, encoders: Sequence[str]) -> None:
    """Write each graph and the embedded one without vectors, and with the vectors of each encoder."""
    graphs = {path.name: EvolvingGraph.open(path) for path in sorted(sources.iterdir())} | {
        "metamath": load("metamath")
    }
    for name, graph in graphs.items():
        if not (folder / name / PLAIN).exists():
            graph.save(folder / name / PLAIN)
        for encoder in encoders:
            there = folder / name / encoder
            if there.exists() or graph.features.words is None or (encoder != SVD and graph.features.texts is None):
                continue
            print(f"{name}: {encoder}", flush=True)
            _with_vectors(graph, encoder).save(there)


def _with_vectors(graph: EvolvingGraph, encoder: str) -> EvolvingGraph:
    from evergraph.graph.features import Vectors

    if encoder == SVD:
        return replace(graph, features=replace(graph.features, vectors=Vectors(svd(graph), SVD)), source=None)
    from evergraph.inputs.encoding import encode_graph

    return encode_graph(graph, encoder)


def svd(graph: EvolvingGraph) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Vectors of the texts by a truncated SVD of the TF-IDF of texts before the first task."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.preprocessing import normalize

    first = _first(graph)
    whole = graph.window(graph.first_time, graph.last_time)
    words = whole.inputs(before=graph.axis.value(first))
    known = int(np.searchsorted(graph.times, first))
    width = min(WIDTH, words.shape[1] - 1)
    return normalize(TruncatedSVD(width, random_state=0).fit(words[:known]).transform(words)).astype(np.float32)


def _first(graph: EvolvingGraph) -> int:
    first = first_task(graph)
    assert first is not None, "a graph without tasks"
    return first


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What a mean over seeds belongs to."""

    graph: str
    line: str
    history: Any = "auto"
    restart: str = "warm"
    detector: str = "gdoc"
    latency: int = 0


def means(results: Mapping[str, TrialResult], *, late: bool) -> dict[Setting, dict[str, float]]:
    """Mean over seeds of each metric, of the trials of `late_plan` or of all others."""
    lines = {value: name for name, value in INPUTS.items()}
    found: dict[Setting, list[dict[str, float]]] = defaultdict(list)
    for one in results.values():
        settings = one.trial["configuration"]
        if (settings["first"] is not None) != late or (settings["label_latency"] and not late):
            continue
        line = lines[settings["inputs"], one.trial["encoder"]]
        setting = Setting(
            one.graph,
            line,
            settings["history"],
            settings["restart"],
            settings["detector"]["name"],
            settings["label_latency"],
        )
        columns = {name: values for name, values in one.result.items() if name != "blocks"}
        scores = Results({one.seed: columns})
        metrics = {name: float(scores.per_seed(name)[0]) for name in METRICS}
        metrics["seconds"] = statistics.fmean(columns["seconds_adapt"])
        found[setting].append(metrics)
    return {
        setting: {name: statistics.fmean(row[name] for row in rows) for name in rows[0]} | {"seeds": len(rows)}
        for setting, rows in found.items()
    }


def table(found: Mapping[Setting, Mapping[str, float]], metric: str, columns: Mapping[str, Setting]) -> str:
    """A Markdown table of a metric: a row per graph, a column per setting (with any graph), and the means.

    The means are over the graphs that have all columns.
    """
    graphs = sorted({one.graph for one in found})
    cells = {
        (graph, name): found[key][metric]
        for graph in graphs
        for name, setting in columns.items()
        if (key := replace(setting, graph=graph)) in found
    }
    rows = [f"| {metric} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for graph in graphs:
        shown = (f"{cells[graph, name]:.3f}" if (graph, name) in cells else "" for name in columns)
        rows.append(f"| {graph} | {' | '.join(shown)} |")
    for title, part in (("all", set(graphs)), ("not used for development", set(graphs) - DEVELOPED_ON)):
        complete = [graph for graph in part if all((graph, name) in cells for name in columns)]
        if complete:
            shown = (f"{statistics.fmean(cells[graph, name] for graph in complete):.3f}" for name in columns)
            rows.append(f"| **mean of {len(complete)}, {title}** | {' | '.join(shown)} |")
    return "\n".join(rows)


def report(found: Mapping[Setting, Mapping[str, float]], late: Mapping[Setting, Mapping[str, float]]) -> str:
    """All tables as Markdown."""
    every = [name for name in INPUTS if any(one.line == name for one in found)]
    on_all = [name for name in every if "MiniLM" not in name]
    ends = ("words", "auto")
    parts = ["## Tables", ""]
    seeds = sorted({int(row["seeds"]) for one, row in found.items() if one == Setting(one.graph, one.line)})
    parts += ["200 steps; median history and warm restarts unless a column says otherwise."]
    parts += [f"Seeds per cell: {', '.join(map(str, seeds))}.", ""]
    for metric in METRICS:
        parts += [table(found, metric, {name: Setting("", name) for name in on_all}), ""]
    parts += ["Graphs with MiniLM's vectors:", ""]
    minilm = {one.graph for one in found if "MiniLM" in one.line}
    some = {one: row for one, row in found.items() if one.graph in minilm}
    parts += [table(some, "accuracy", {name: Setting("", name) for name in every}), ""] if some else []
    histories = {
        f"{line}, {title}": Setting("", line, history)
        for history, title in ((1, "1 period"), ("auto", "median"), ("full", "all"))
        for line in ends
    }
    parts += [table(found, "accuracy", histories), ""]
    restarts = {
        f"{line}, {restart}": Setting("", line, "auto", restart) for restart in ("warm", "cold") for line in ends
    }
    if any(one.restart == "cold" for one in found):
        parts += [table(found, "accuracy", restarts), ""]
    for metric in ("auroc", "mcc") if any(one.detector == "auto" for one in found) else ():
        detectors = {
            f"{line}, {name}": Setting("", line, "auto", "warm", name) for name in ("gdoc", "auto") for line in ends
        }
        parts += [table(found, metric, detectors), ""]
    if late:
        delays = {
            f"{line}, {latency} late": Setting("", line, latency=latency) for latency in LATENCIES for line in ends
        }
        parts += ["Labels that arrive late, from the fourth task on:", "", table(late, "accuracy", delays), ""]
    return "\n".join(parts)


def draw(found: Mapping[Setting, Mapping[str, float]], stem: Path) -> None:
    """Accuracy against history, one line per inputs, mean over the graphs that have all of them."""
    ends, histories = ("words", "auto"), {1: "1 period", "auto": "median", "full": "all"}
    graphs = [
        graph
        for graph in sorted({one.graph for one in found})
        if all(Setting(graph, line, history) in found for line in ends for history in histories)
    ]
    if not graphs:
        return
    names = {"words": "words", "auto": "auto: words and classes of older neighbours"}
    with figure(1, 1, width=5, height=2.8) as (picture, panels):
        axes = panels[0, 0]
        for index, line in enumerate(ends):
            mean = [
                statistics.fmean(found[Setting(graph, line, history)]["accuracy"] for graph in graphs)
                for history in histories
            ]
            axes.plot(list(histories.values()), mean, label=names[line], **series(index))
        axes.set(xlabel="history", ylabel="mean accuracy")
        legend_below(picture)
    save(picture, stem, f"python -m studies.inputs show; mean of {len(graphs)} graphs, seed 0 at one period and at all")


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
        results = TrialStore(given.out).read()
        found = means(results, late=False)
        (given.out / "tables.md").write_text(report(found, means(results, late=True)))
        draw(found, FIGURE)


if __name__ == "__main__":
    main()
