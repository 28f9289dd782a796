"""What was measured of the rows of a grid: figures over tasks and seeds, from the results on the shelf."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.detect import Detector
from evergraph.evaluation.metrics import Confusion, Interval, forward_transfer, over_seeds, pooled
from evergraph.evaluation.trials import TrialResult
from evergraph.graph.times import TimeAxis
from evergraph.names import described
from evergraph_paper.lifelong import settings_of
from evergraph_paper.plan import Row

__all__ = ["Measured", "Rule", "collect", "mean_over_tasks", "transfer"]


@dataclass(frozen=True)
class Rule:
    """How one rule of decision did: one figure a seed.

    Parameters
    ----------
    mcc
        Of the confusions summed over tasks.
    open_f1, open_f1_published
        Mean over tasks; the latter with the classes mixed up as in the authors' code (A1).
    rejected
        Share of all vertices.
    """

    mcc: NDArray[np.float64]
    open_f1: NDArray[np.float64]
    open_f1_published: NDArray[np.float64]
    rejected: NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """The finished trials of one row, by seed.

    Parameters
    ----------
    row
        What was run.
    finished
        By seed, in their order.
    """

    row: Row
    finished: Mapping[int, TrialResult]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Those that have a result."""
        return tuple(self.finished)

    @property
    def seconds(self) -> float:
        """Time that all trials took together."""
        return float(sum(found.made["seconds"] for found in self.finished.values()))

    @property
    def times(self) -> list[int | str]:
        """Of the tasks."""
        return list(next(iter(self.finished.values())).result["time"]) if self.finished else []

    def by_task(self, figure: str) -> NDArray[np.float64]:
        """A figure by seed (row) and task (column); NaN where it is undefined."""
        values = [found.result[figure] for found in self.finished.values()]
        return np.array(values, np.float64).reshape(len(values), len(self.times))  # None becomes NaN

    def per_seed(self, figure: str) -> NDArray[np.float64]:
        """Mean over tasks of a figure, one a seed."""
        return mean_over_tasks(self.by_task(figure))

    def interval(self, figure: str) -> Interval:
        """Mean over seeds, and its interval."""
        return over_seeds(self.per_seed(figure))

    def pooled(self, figure: str) -> Interval:
        """The same with the paper's interval."""
        return pooled(self.by_task(figure))

    def unseen_by_task(self, truth: str = "") -> NDArray[np.int64]:
        """Number of test vertices of unseen classes by task; with ``_never_before`` those new in the graph."""
        found = next(iter(self.finished.values())).result
        return np.array(found["tp" + truth]) + np.array(found["fn" + truth])

    def rule(self, detector: Detector) -> Rule | None:
        """How the row would have done with this rule of decision; None if it was not tried."""
        wanted = described(detector)
        found = [_rule_of(finished, wanted) for finished in self.finished.values()]
        if not found or any(columns is None for columns in found):
            return None
        columns = [entry for entry in found if entry is not None]
        confusions = [_summed(entry) for entry in columns]
        by_seed = {name: np.array([entry[name] for entry in columns], np.float64) for name in _F1}
        return Rule(
            mcc=np.array([confusion.mcc for confusion in confusions]),
            **{name: mean_over_tasks(values) for name, values in by_seed.items()},
            rejected=np.array([_share(confusion.tp + confusion.fp, confusion) for confusion in confusions]),
        )


_F1 = ("open_f1", "open_f1_published")


def _rule_of(finished: TrialResult, wanted: Mapping[str, Any]) -> Mapping[str, Any] | None:
    rules = finished.trial["rules"]
    return finished.result["rules"][rules.index(wanted)] if wanted in rules else None


def _share(part: int, whole: Confusion) -> float:
    total = sum(vars(whole).values())
    return part / total if total else math.nan


def _summed(columns: Mapping[str, Sequence[int]]) -> Confusion:
    return Confusion(**{name: sum(columns[name]) for name in ("tp", "tn", "fp", "fn")})


def mean_over_tasks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each row without NaN; NaN where nothing is left."""
    known = ~np.isnan(values)
    sums = np.where(known, values, 0).sum(1)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / known.sum(1))


def collect(
    rows: Iterable[Row], found: Mapping[str, TrialResult], seeds: Iterable[int] | None = None
) -> list[Measured]:
    """The rows that have results, with them; of the given seeds, or of all.

    A result counts for a row if it is of the same settings and of the same graph, by its fingerprint.
    """
    index: dict[str, dict[int, TrialResult]] = {}
    for finished in found.values():
        if finished.trial.get("kind") == "lifelong":
            index.setdefault(_canonical(finished.trial), {})[finished.seed] = finished
    wanted = None if seeds is None else set(seeds)
    measured = []
    for row in dict.fromkeys(rows):
        trial = row.trial(seed=0)
        settings = settings_of(trial.configuration, trial.rules, TimeAxis())
        there = index.get(_canonical({"fingerprint": row.graph.fingerprint, **settings}), {})
        chosen = {seed: there[seed] for seed in sorted(there) if wanted is None or seed in wanted}
        if chosen:
            measured.append(Measured(row, chosen))
    return measured


def _canonical(trial: Mapping[str, Any]) -> str:
    kept = {name: trial[name] for name in ("fingerprint", "configuration", "rules", "trained_on") if name in trial}
    return json.dumps(kept, sort_keys=True)


def transfer(warm: Measured, cold: Measured) -> Interval:
    """Forward transfer over the seeds that both have, with its interval; over all seeds where they share none."""
    figure = "accuracy"
    shared = [seed for seed in warm.seeds if seed in cold.seeds]
    if not shared:
        return Interval(forward_transfer(warm.by_task(figure), cold.by_task(figure)), math.nan, 0)
    rows = [[side.by_task(figure)[[side.seeds.index(seed)]] for side in (warm, cold)] for seed in shared]
    return over_seeds([forward_transfer(*pair) for pair in rows])
