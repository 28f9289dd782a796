"""Compare results of two numerics versions with the spread of seeds.

Run a sample of the experiments again, with results in a new folder, and compare it with the committed results::

    evergraph reproduce exp2 dblp-easy --models sage --seeds 0-2 --results NEW
    python scripts/compare_numerics.py paper/results NEW

For each graph it compares the mean accuracy of trials that are in both folders, with the same settings and seed. The
exit code is 1 if the root mean square difference is larger than that of two seeds of the old version, or if one version
is better than the other by more than three standard errors.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from evergraph.evaluation.trials import TrialResult, TrialStore


def accuracy(found: TrialResult) -> float:
    """Return the mean accuracy over tasks; of a static graph, that after the last epoch."""
    values = found.result["accuracy"]
    return float(values[-1] if found.trial["kind"] == "static" else sum(values) / len(values))


def root_mean_square(differences: Sequence[float]) -> float:
    """Return the root of the mean square."""
    return math.sqrt(sum(value**2 for value in differences) / len(differences)) if differences else math.nan


def main(old_folder: str, new_folder: str) -> int:
    """Print one line for each graph, and return the exit code."""
    old, new = (TrialStore(Path(folder)).read() for folder in (old_folder, new_folder))
    seeds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for found in old.values():
        seeds[found.graph, json.dumps(found.trial, sort_keys=True)].append(accuracy(found))
    between_seeds: dict[str, list[float]] = defaultdict(list)
    for (graph, _), values in seeds.items():
        between_seeds[graph] += [one - other for one, other in combinations(values, 2)]
    everywhere = [value for values in between_seeds.values() for value in values]
    differences: dict[str, list[float]] = defaultdict(list)
    for key in old.keys() & new.keys():
        if old[key].numerics_version != new[key].numerics_version:
            differences[new[key].graph].append(accuracy(new[key]) - accuracy(old[key]))
    if not differences:
        print("No trial is in both folders with different numerics versions.")
        return 1
    wrong = False
    for graph, values in sorted(differences.items()):
        spread = root_mean_square(between_seeds[graph] or everywhere)
        size, mean = root_mean_square(values), sum(values) / len(values)
        error = size / math.sqrt(len(values))
        bad = size > spread or (len(values) > 1 and abs(mean) > 3 * error)
        wrong |= bad
        where = "" if between_seeds[graph] else " (of all graphs)"
        print(
            f"{graph}: {len(values)} trials; accuracy differs by {100 * size:.2f} points between the versions "
            f"(mean {100 * mean:+.2f} ± {100 * error:.2f}), by {100 * spread:.2f} between two seeds{where}: "
            f"{'more than seeds' if bad else 'within the spread of seeds'}"
        )
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
