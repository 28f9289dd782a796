"""What to keep beyond the window? Learners with memories, regularisers and other models on many graphs.

python -m studies.memory prepare          import the graphs of EVERGRAPH_DATA into FOLDER (``--graphs-in``)
python -m studies.memory small            all learners, one seed, five small graphs
python -m studies.memory large            the best eight of them, three seeds, nine graphs
python -m studies.memory show             write the tables and the figures of both

A stage imports the graphs that it needs. What is stored is not run again, so stop and continue at any time, and run
one graph only with ``--graph NAME``, also in several processes. Learners whose parts are not installed are left out.
Results of the learners are stored in studies/results/memory/STAGE/learners.jsonl.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
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
from evergraph.report.learners import write_learners

DATA = Path(os.environ.get("EVERGRAPH_DATA") or Path(__file__).parents[2] / "shared" / "data")
RESULTS = Path(__file__).parent / "results" / "memory"
PREPARED = Path("prepared-memory")
BUILT_IN = ("metamath",)
DETECTOR = "auto"

SMALL = ("sympy-files", "galaxy-tools", "metasploit-modules", "sage-files", "julia-packages")
LARGE = (*SMALL, "ansible-modules", "mathlib4-imports", "metamath", "dblp-easy")
SEEDS = {"small": (0,), "large": (0, 1, 2)}
BEST = 8

BUDGET = "10%"
MEMORIES = ("random", "recent-per-class", "class-mean", "recent-typical", "coverage", "degree", "pagerank")
REGULARISERS = ("ewc", "mas", "twp", "lwf")
ALWAYS = ("window:1", "window:full")
"""Both ends, which the large stage has in any case."""
LEARNERS = (
    *ALWAYS,
    "window:3",
    "window:auto",
    *(f"window:{window}+restart:cold" for window in ("1", "3", "full")),
    *(f"window:1+memory:{name}:{BUDGET}" for name in MEMORIES),
    *(f"window:3+memory:{name}:{BUDGET}" for name in MEMORIES),
    *(f"window:1+regulariser:{name}" for name in REGULARISERS),
    f"window:1+memory:class-mean:{BUDGET}+regulariser:ewc",  # replay and EWC, as in ContinualGNN
    f"window:1+memory:class-mean:{BUDGET}+regulariser:lwf",  # replay and distillation, as in iCaRL
    f"window:1+memory:class-mean:{BUDGET}+regulariser:gem",
    "window:full+retire:5",
    "window:full+model:ridge",
    "window:3+model:ridge",
    "window:full+model:most-frequent",
)


def learners(names: Sequence[str] = LEARNERS) -> list[LearnerSpec]:
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


def base() -> Configuration:
    """Return what all learners have in common."""
    return Configuration(detector=build_detector(DETECTOR))


def run(stage: str, specs: Sequence[LearnerSpec], graphs: Sequence[str], given: argparse.Namespace) -> None:
    """Run what is not stored of a stage."""
    paths, out = prepared(graphs, given.graphs_in), given.out / stage
    found = compare_learners(paths, specs, base(), given.seeds or SEEDS[stage], out=out, jobs=given.jobs, on_done=_tell)
    for error in found.errors:
        print(f"failed: {error}")


def _tell(state: CompareState) -> None:
    if ", task " not in state.doing:
        print(f"{state.done} of {state.total}; {state.doing}", flush=True)


def stored(stage: str, specs: Sequence[LearnerSpec], graphs: Sequence[str], given: argparse.Namespace) -> Compared:
    """Return the results of a stage on those of its graphs that are imported."""
    there = [name for name in graphs if name in BUILT_IN or (given.graphs_in / name).exists()]
    if not there:
        raise InputError(f"no graph of {stage} is imported", fix="run: python -m studies.memory prepare")
    return stored_learners(prepared(there, given.graphs_in), specs, base(), SEEDS[stage], out=given.out / stage)


def best(small: Compared) -> list[LearnerSpec]:
    """Return the learners of the large stage: both ends, and the best others by their mean accuracy over the graphs."""
    means = {one: small.over_graphs(one.name) for one in small.learners}
    known = {one: found["accuracy"]["mean"] or 0.0 for one, found in means.items() if found}
    if len(known) < BEST:
        raise InputError(
            f"only {len(known)} learners have results on all small graphs", fix="run the stage small first"
        )
    ends = [one for one in known if one.name in ALWAYS]
    return [*ends, *(one for one in sorted(known, key=lambda one: -known[one]) if one not in ends)][:BEST]


def show(compared: Compared, folder: Path) -> None:
    """Write tables and figure of a stage, and print the means and the advice."""
    missing = len(compared.graphs) * len(compared.learners) * len(compared.seeds) - len(compared.outcomes)
    print(f"{folder.name}: {len(compared.outcomes)} results, {missing} are missing")
    if not compared.outcomes:
        return
    print(*write_learners(compared, folder), sep="\n")
    advice = recommend_learner(compared)
    print("no learner has all results" if advice is None else f"{advice.learner.name}: {advice.reason}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "small", "large", "show"))
    parser.add_argument("--graph", help="only this graph of the stage")
    parser.add_argument("--graphs-in", type=Path, default=PREPARED, help="folder of the imported graphs")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--learners", help="only these learners, separated by blanks")
    parser.add_argument("--seeds", type=int, nargs="+", help="only these seeds of the stage")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    graphs = {"small": SMALL, "large": LARGE}
    if given.graph is not None:
        graphs = {stage: tuple(name for name in names if name == given.graph) for stage, names in graphs.items()}
    wanted = graphs.get(given.what, LARGE if given.graph is None else graphs["large"])
    if not wanted:
        sys.exit(f"{given.what} has no graph {given.graph}")
    specs = learners() if given.learners is None else learners(given.learners.split())
    if given.what == "prepare":
        prepared(wanted, given.graphs_in)
    elif given.what == "show":
        for stage, names in graphs.items():
            if names and (given.out / stage).exists():
                chosen = specs if stage == "small" or given.learners else best(stored("small", specs, SMALL, given))
                show(stored(stage, chosen, names, given), given.out / stage)
    else:
        if given.what == "large" and given.learners is None:
            specs = best(stored("small", specs, SMALL, given))
        run(given.what, specs, wanted, given)


if __name__ == "__main__":
    main()
