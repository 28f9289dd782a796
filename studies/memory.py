"""What to keep beyond the window? Learners with memories, regularisers and other models on many graphs.

python -m studies.memory prepare          import the graphs of EVERGRAPH_DATA into FOLDER (``--graphs-in``)
python -m studies.memory STAGE            run what is not stored of a stage (small, large, whole, words, ridge)
python -m studies.memory show             write tables, figures and findings of all stages

small: all learners, one seed, five small graphs; large: some of them, three seeds, nine graphs; whole: the two largest
graphs, one seed; words: the nine graphs with words alone, as the papers did, one seed; ridge: ridge regression on the
nine graphs and on the seven on which its naive Bayes part was chosen, without a detector, one seed.

A stage imports the graphs that it needs. What is stored is not run again, so stop and continue at any time, and run
one graph only with ``--graph NAME``, also in several processes. Learners whose parts are not installed are left out.
Results of the learners are stored in studies/results/memory/STAGE/learners.jsonl.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evergraph.datasets.tables import read_tables
from evergraph.errors import InputError
from evergraph.evaluation.compared import CompareState
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.learner_specs import LearnerSpec
from evergraph.evaluation.learners import LearnerComparison as Compared
from evergraph.evaluation.learners import compare_learners, stored_learners
from evergraph.evaluation.recommendation import recommend_learner
from evergraph.names import build_detector
from evergraph.presentation.table import Cell, Column, Row, Table, write
from evergraph.report.learners import write_learners

DATA = Path(os.environ.get("EVERGRAPH_DATA") or Path(__file__).parents[2] / "shared" / "data")
RESULTS = Path(__file__).parent / "results" / "memory"
PREPARED = Path("prepared-memory")
BUILT_IN = ("metamath",)
NEAR = 0.5
"""Percentage points below the best history within which a cheaper learner is good enough."""

FIVE = ("sympy-files", "galaxy-tools", "metasploit-modules", "sage-files", "julia-packages")
SEVEN = (
    "airflow-providers",
    "home-assistant-platforms",
    "camel-components",
    "web-features",
    "tate-artworks",
    "iso-standards",
    "macports",
)
NINE = (*FIVE, "ansible-modules", "mathlib4-imports", "metamath", "dblp-easy")

BUDGET = "10%"
MEMORIES = ("random", "recent-per-class", "class-mean", "recent-typical", "coverage", "degree", "pagerank")
REGULARISERS = ("ewc", "mas", "twp", "lwf")
HISTORIES = ("window:1", "window:3", "window:full")
REPLAY = tuple(f"window:1+memory:{name}:{BUDGET}" for name in MEMORIES)
LEARNERS = (
    *HISTORIES,
    "window:auto",
    *(f"{history}+restart:cold" for history in HISTORIES),
    *REPLAY,
    *(f"window:3+memory:{name}:{BUDGET}" for name in MEMORIES),
    *(f"window:1+regulariser:{name}" for name in REGULARISERS),
    f"window:1+memory:class-mean:{BUDGET}+regulariser:ewc",
    f"window:1+memory:class-mean:{BUDGET}+regulariser:lwf",
    f"window:1+memory:class-mean:{BUDGET}+regulariser:lwf+model:icarl",  # iCaRL
    f"window:1+memory:random:{BUDGET}+regulariser:continual-gnn",  # ContinualGNN
    f"window:1+memory:class-mean:{BUDGET}+regulariser:gem",
    "window:full+retire:5",
    "window:full+model:ridge",
    "window:3+model:ridge",
    "window:full+model:most-frequent",
)
CHOSEN = (
    *HISTORIES,
    "window:1+restart:cold",
    "window:full+restart:cold",
    *(name for name in REPLAY if "random" not in name and "degree" not in name),
    f"window:3+memory:class-mean:{BUDGET}",
    f"window:3+memory:pagerank:{BUDGET}",
    f"window:1+memory:class-mean:{BUDGET}+regulariser:ewc",
    "window:full+model:ridge",
    "window:1+model:ridge",
)
"""The best of the small stage, histories and cold restarts to compare with, and ridge."""
FEW = (
    *HISTORIES,
    f"window:1+memory:class-mean:{BUDGET}",
    f"window:1+memory:recent-typical:{BUDGET}",
    "window:full+model:ridge",
)
CLOSED_FORM = (
    "window:1",
    "window:3",
    "window:full",
    "window:full+steps:20",
    "window:1+model:ridge",
    "window:3+model:ridge",
    "window:full+model:ridge",
    "window:full+model:ridge+restart:cold",
)


@dataclass(frozen=True)
class Stage:
    """Learners on graphs, with seeds, the inputs that all models read, and the detector."""

    graphs: Sequence[str]
    learners: Sequence[str]
    seeds: Sequence[int] = (0,)
    inputs: str = "auto"
    detector: str = "auto"

    @property
    def base(self) -> Configuration:
        """What all learners have in common."""
        return Configuration(detector=build_detector(self.detector), inputs=self.inputs)


STAGES = {
    "small": Stage(FIVE, LEARNERS),
    "large": Stage(NINE, CHOSEN, (0, 1, 2)),
    "whole": Stage(("acl", "dblp-hard"), FEW),
    "words": Stage(NINE, FEW, inputs="words"),
    "ridge": Stage((*NINE, *SEVEN), CLOSED_FORM, detector="none"),
}


def installed(names: Sequence[str]) -> list[LearnerSpec]:
    """Return the learners whose parts are installed; name the others."""
    found = []
    for name in names:
        try:
            found.append(LearnerSpec.parse(name))
        except InputError as error:
            print(f"left out: {name} ({error})")
    return found


def prepared(names: Sequence[str], folder: Path) -> list[str]:
    """Return the paths of graphs; those that are not there yet are imported from EVERGRAPH_DATA."""
    paths = []
    for name in names:
        if name in BUILT_IN:
            paths.append(name)
            continue
        there = folder / name
        if not there.exists():
            source = next((path for path in (DATA / name, DATA / "evolving" / name) if path.is_dir()), None)
            if source is None:
                raise InputError(f"{DATA} has no graph {name}", fix="set EVERGRAPH_DATA to the folder of the graphs")
            print(f"{name}: import", flush=True)
            read_tables(source / "nodes.csv.gz", source / "edges.csv.gz").save(there)
        paths.append(str(there))
    return paths


def run(name: str, given: argparse.Namespace) -> None:
    """Run what is not stored of a stage."""
    stage = STAGES[name]
    graphs = [graph for graph in stage.graphs if given.graph in (None, graph)]
    if not graphs:
        sys.exit(f"{name} has no graph {given.graph}")
    specs = installed(given.learners.split() if given.learners else stage.learners)
    paths, out, seeds = prepared(graphs, given.graphs_in), given.out / name, given.seeds or stage.seeds
    found = compare_learners(paths, specs, stage.base, seeds, out=out, jobs=given.jobs, on_done=_tell)
    for error in found.errors:
        print(f"failed: {error}")


def _tell(state: CompareState) -> None:
    if ", task " not in state.doing:
        print(f"{state.done} of {state.total}; {state.doing}", flush=True)


def show(name: str, given: argparse.Namespace) -> None:
    """Write tables and figure of a stage, and print what is missing and the advice."""
    stage = STAGES[name]
    graphs, specs = prepared(stage.graphs, given.graphs_in), installed(stage.learners)
    found = stored_learners(graphs, specs, stage.base, stage.seeds, out=given.out / name)
    missing = len(graphs) * len(specs) * len(stage.seeds) - len(found.outcomes)
    print(f"{name}: {len(found.outcomes)} results, {missing} are missing")
    if not found.outcomes:
        return
    folder = given.out / name
    print(*write_learners(found, folder, cost="cpu_seconds"), *write(findings(found), folder / "findings"), sep="\n")
    advice = recommend_learner(found)
    print("no learner has all results" if advice is None else f"{advice.learner.name}: {advice.reason}")


# --- findings --------------------------------------------------------------------------------------------------------

Summaries = Mapping[str, Mapping[str, float]]


def summaries(compared: Compared, graph: str) -> Summaries:
    """Return the means over the seeds of each learner that has all results on a graph."""
    found = {}
    for one in compared.learners:
        if len(compared.of(graph, one.name)) == len(compared.seeds):
            summary = compared.summary(graph, one.name)
            found[one.name] = {metric: value["mean"] for metric, value in summary.items() if value["mean"] is not None}
    return found


def best_history(found: Summaries) -> str:
    """Return the history with the best accuracy."""
    return max((name for name in HISTORIES if name in found), key=lambda name: found[name]["accuracy"])


def recovered(found: Summaries, name: str) -> float:
    """Return which share of the gap between ``window:1`` and the best history a learner closes; NaN without a gap."""
    low, high = (found[one]["accuracy"] for one in ("window:1", best_history(found)))
    return (found[name]["accuracy"] - low) / (high - low) if high > low else float("nan")


def cheapest(found: Summaries) -> str:
    """Return the learner with the fewest CPU seconds of those within `NEAR` points of the best history."""
    least = found[best_history(found)]["accuracy"] - NEAR / 100
    near = [name for name, one in found.items() if one["accuracy"] >= least]
    return min(near, key=lambda name: found[name]["cpu_seconds"])


def findings(compared: Compared) -> Table:
    """Return a table of the best history, the cheapest learner that is about as good, and what each memory recovers."""
    rows: list[Row] = []
    replays = [one.name for one in compared.learners if one.name in REPLAY]
    for graph in compared.graphs:
        found = summaries(compared, graph)
        if not set(HISTORIES) <= set(found):
            continue
        best, chosen = best_history(found), cheapest(found)
        rows.append((Cell(graph), *_compared(found, best, chosen), *_shares(found, replays)))
    columns = (
        Column("graph", align="left"),
        Column("learner", "best history", "left"),
        Column("accuracy", "best history"),
        Column("learner", f"cheapest within {NEAR} points", "left"),
        *(Column(head, f"cheapest within {NEAR} points") for head in ("accuracy", "CPU", "bytes")),
        *(Column(name.split(":")[2], "share of the gap") for name in replays),
    )
    note = (
        "CPU seconds of an update and bytes kept are relative to the best history. Share of the gap: how much of the "
        "difference between window:1 and the best history a memory of 10 % closes at window:1."
    )
    return Table("What it costs to be as good as the best history", columns, tuple(rows), note=note)


def _compared(found: Summaries, best: str, chosen: str) -> Iterator[Cell]:
    yield Cell(best)
    yield Cell(100 * found[best]["accuracy"], form=".1f")
    yield Cell(chosen)
    yield Cell(100 * found[chosen]["accuracy"], form=".1f")
    for metric in ("cpu_seconds", "bytes_kept"):
        yield Cell(found[chosen][metric] / found[best][metric], form=".2f")


def _shares(found: Summaries, replays: Sequence[str]) -> Iterator[Cell]:
    for name in replays:
        yield Cell(recovered(found, name) if name in found else None, form=".0%")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", *STAGES, "show"))
    parser.add_argument("--graph", help="only this graph of the stage")
    parser.add_argument("--graphs-in", type=Path, default=PREPARED, help="folder of the imported graphs")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--learners", help="only these learners, separated by blanks")
    parser.add_argument("--seeds", type=int, nargs="+", help="only these seeds of the stage")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    if given.what == "prepare":
        for stage in STAGES.values():
            prepared(stage.graphs, given.graphs_in)
    elif given.what == "show":
        for name in STAGES:
            if (given.out / name).exists():
                show(name, given)
    else:
        run(given.what, given)


if __name__ == "__main__":
    main()
