"""Run a sample of every experiment again and compare it with the committed results or others, bit for bit.

The sample of an experiment are its fastest committed trials that no experiment before it has in its sample; that of
`evergraph compare` is one seed on metamath. For each experiment and each folder of results it prints "N trials in both,
M differ"; the exit code is 1 if any trial differs or an experiment has no sample. Results were made with one thread::

    OMP_NUM_THREADS=1 python paper/scripts/rerun_sample.py --graphs graphs --planetoid data/planetoid
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from evergraph.evaluation.trials import Trial, TrialStore, trial_key
from evergraph_paper.plan import Subject, kept_subjects
from evergraph_paper.reproduction import EXPERIMENTS, Extent
from evergraph_paper.static import grid

RESULTS = Path(__file__).parents[1] / "results"
NO_FOLDER = ("metamath", "synthetic")
SAMPLED = ("exp1", "exp2", "exp2a", "exp3", "exp4", "exp4a", "exp4b", "exp4c", "compare")


COMPARED = {"graph": "metamath", "seed": 0}
DETECTORS = ("none", "msp", "energy", "gdoc:0.5", "gdoc:0.75", "auto")


def numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result without the times that it took."""
    return {name: value for name, value in result.items() if not name.startswith("seconds")}


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names of the figures that are not the same in both, or only in one."""
    return sorted(
        name
        for name in before.keys() | now.keys()
        if name not in before or name not in now or before[name] != now[name]
    )


def subjects(graphs: Path) -> list[Subject]:
    """The graphs of the results that are there."""
    found = [
        one if name in NO_FOLDER else replace(one, path=str(graphs / name))
        for name, one in kept_subjects(RESULTS).items()
    ]
    return [one for one in found if one.path in NO_FOLDER or Path(one.path).is_dir()]


def trials_of(name: str, graphs: list[Subject], planetoid: Path) -> list[Trial]:
    """All trials of an experiment."""
    if name == "exp1":
        return list(grid(planetoid, seeds=range(3)))
    rows = EXPERIMENTS[name].rows(graphs, Extent())
    return [row.trial(seed) for row in rows for seed in range(3)]


def compared(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The figures, and the rows of the tasks, that a comparison in a folder has of each detector of the sample."""
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        line["detector"]: [numbers(row) for row in (line["figures"], *line["tasks"])]
        for line in lines
        if COMPARED.items() <= line.items() and line["detector"] in DETECTORS
    }


def rerun_compare(results: Sequence[Path]) -> bool:
    """Run the sample of `evergraph compare`; whether it differs from any of the results."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["compare", COMPARED["graph"], "--seeds", COMPARED["seed"], "--detectors", ",".join(DETECTORS)]
        arguments = [sys.executable, "-m", "evergraph", *map(str, command), "--out", folder, "--jobs", "1", "--quiet"]
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
        now = compared(Path(folder))
    wrong = False
    for path in results:
        before = compared(path / "compared")
        changed = {
            name: [figure for old, new in zip(before[name], now[name], strict=True) for figure in differing(old, new)]
            for name in before
            if name in now
        }
        wrong |= told("compare", path, changed)
    return wrong


def told(name: str, path: Path, changed: Mapping[str, Collection[str]]) -> bool:
    """Say which figures of the trials in both differ; whether there are any, or no trials."""
    for trial, figures in changed.items():
        if figures:
            print(f"{name}, {trial}: {', '.join(sorted(set(figures)))} differ from {path}")
    different = sum(map(bool, changed.values()))
    print(f"{name}: {len(changed)} trials in both, {different} differ from {path}", flush=True)
    return bool(different) or not changed


def main() -> int:
    """Run the sample, and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=Path, required=True, help="folder of imported graphs: dblp-easy …")
    parser.add_argument("--planetoid", type=Path, required=True, help="folder of Planetoid's files")
    parser.add_argument(
        "--results",
        type=Path,
        nargs="+",
        default=[RESULTS],
        metavar="FOLDER",
        help="results to compare with; default: the committed ones",
    )
    parser.add_argument("--trials", type=int, default=1, metavar="N", help="sample of each experiment; default: 1")
    parser.add_argument("--only", nargs="+", choices=SAMPLED, metavar="NAME", help="experiments; default: all")
    given = parser.parse_args()
    torch.set_num_threads(1)
    committed = TrialStore(RESULTS).read()
    kept = {path: TrialStore(path).read() for path in given.results}
    graphs = subjects(given.graphs)
    sampled: set[str] = set()
    wrong = False
    for name in SAMPLED:
        wanted = not given.only or name in given.only
        if name == "compare":
            wrong |= wanted and rerun_compare(given.results)
            continue
        planned = {trial_key(trial): trial for trial in trials_of(name, graphs, given.planetoid)}
        there = sorted(
            (key for key in planned if key in committed),
            key=lambda key: (key in sampled, committed[key].made["seconds"]),
        )[: given.trials]
        sampled.update(there)
        if not wanted:
            continue
        again = {key: numbers(json.loads(json.dumps(planned[key].run()))) for key in there}
        for path, found in kept.items():
            changed = {
                f"{key}, {found[key].graph}, seed {found[key].seed}": differing(numbers(found[key].result), again[key])
                for key in there
                if key in found
            }
            wrong |= told(name, path, changed)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
