"""Measured results of the rows of a grid: one results table for each row with finished trials."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evergraph.detect import Detector
from evergraph.evaluation.metrics import Interval, forward_transfer, over_seeds
from evergraph.evaluation.results import Results
from evergraph.evaluation.trials import TrialResult
from evergraph.graph.times import TimeAxis
from evergraph.names import described
from evergraph_paper.plan import Row, settings_of

__all__ = ["Measured", "collect", "transfer"]


@dataclass(frozen=True)
class Measured(Results):
    """The results of one row of a grid.

    Parameters
    ----------
    row
        The row of the grid.
    trials
        Its finished trials by seed, in the order of the seeds.
    """

    row: Row = field(kw_only=True)
    trials: Mapping[int, TrialResult] = field(kw_only=True)

    @classmethod
    def of_trials(cls, row: Row, trials: Mapping[int, TrialResult]) -> Measured:
        """Build the table from finished trials by seed."""
        columns = {
            seed: {name: values for name, values in trial.result.items() if name != "rules"}
            for seed, trial in trials.items()
        }
        return cls(columns, row=row, trials=trials)

    def of_seeds(self, seeds: Collection[int]) -> Measured:
        """Return the results of some seeds."""
        return self.of_trials(self.row, {seed: trial for seed, trial in self.trials.items() if seed in seeds})

    def rule(self, detector: Detector) -> Results | None:
        """Return the results of a detector that decided on the same outputs; None if there are none.

        The table has the counts, ``open_f1``, and ``open_f1_published`` with confused classes as in the authors' code
        (A1).
        """
        wanted = described(detector)
        if not self.trials or any(wanted not in trial.trial["rules"] for trial in self.trials.values()):
            return None
        return Results(
            {seed: trial.result["rules"][trial.trial["rules"].index(wanted)] for seed, trial in self.trials.items()}
        )


def collect(
    rows: Iterable[Row], found: Mapping[str, TrialResult], seeds: Iterable[int] | None = None
) -> list[Measured]:
    """Return the results of all rows that have any, for the given seeds or for all.

    A result belongs to a row if settings and fingerprint of the graph are the same.
    """
    index: dict[str, dict[int, TrialResult]] = {}
    for trial in found.values():
        if trial.trial.get("kind") == "lifelong":
            index.setdefault(_canonical(trial.trial), {})[trial.seed] = trial
    wanted = None if seeds is None else set(seeds)
    measured = []
    for row in dict.fromkeys(rows):
        planned = row.trial(seed=0)
        settings = settings_of(planned.configuration, planned.rules, TimeAxis())
        there = index.get(_canonical({"fingerprint": row.graph.fingerprint, **settings}), {})
        chosen = {seed: there[seed] for seed in sorted(there) if wanted is None or seed in wanted}
        if chosen:
            measured.append(Measured.of_trials(row, chosen))
    return measured


def _canonical(trial: Mapping[str, Any]) -> str:
    kept = {name: trial[name] for name in ("fingerprint", "configuration", "rules", "trained_on") if name in trial}
    return json.dumps(kept, sort_keys=True)


def transfer(warm: Measured, cold: Measured) -> Interval:
    """Return the forward transfer over the shared seeds with its interval, or over all seeds if none are shared."""
    shared = [seed for seed in warm.seeds if seed in cold.seeds]
    if not shared:
        return Interval(forward_transfer(warm.by_task("accuracy"), cold.by_task("accuracy")), math.nan, 0)
    rows = [[side.of_seeds([seed]).by_task("accuracy") for side in (warm, cold)] for seed in shared]
    return over_seeds([forward_transfer(*pair) for pair in rows])
