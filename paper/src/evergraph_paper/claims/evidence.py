"""Evidence for the claims, paired differences with their intervals, and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evergraph.evaluation.metrics import over_seeds, pooled
from evergraph.evaluation.trials import TrialResult
from evergraph.learning.learner import Restart
from evergraph_paper.measured import Measured, collect
from evergraph_paper.plan import RESTARTS, Row, Subject, exp2, exp2a, exp3, exp4, exp4b
from evergraph_paper.static import StaticTrial

Answer = Literal["holds", "fails", "not testable here"]


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, with the numbers behind it."""

    claim: str
    statement: str
    verdict: Answer
    numbers: str
    paper: str
    seeds: tuple[int, ...] = ()
    graphs: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return a dict for JSON.

        Examples
        --------
        >>> Verdict("C0", "It is.", "holds", "1", "1", details={"mean": math.nan, 25: (1,)}).as_dict()["details"]
        {'mean': None, '25': [1]}
        """
        found: dict[str, Any] = fit(vars(self))
        return found


def fit(value: Any) -> Any:
    """Convert a value for JSON: keys become strings, and numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {str(key): fit(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [fit(entry) for entry in value]
    if isinstance(value, Gap):
        return fit({"mean": value.mean, "half": value.half, "seeds": value.seeds, "over": value.over})
    if isinstance(value, np.generic):
        return fit(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def answer(holds: bool | None) -> Answer:
    """Return the verdict in words; None means not testable."""
    return "not testable here" if holds is None else "holds" if holds else "fails"


def every_part(parts: Iterable[bool | None]) -> bool | None:
    """Whether all parts of a claim hold: False if one fails, otherwise None if one is not testable.

    Examples
    --------
    >>> every_part([True, True]), every_part([True, None]), every_part([None, False]), every_part([])
    (True, None, False, None)
    """
    found = list(parts)
    if False in found:
        return False
    return None if None in found or not found else True


def on_graphs(by_graph: Mapping[str, bool | None]) -> bool | None:
    """Whether a claim holds on every graph where it is testable.

    Examples
    --------
    >>> on_graphs({"one": True, "other": None}), on_graphs({"one": True, "other": False}), on_graphs({"one": None})
    (True, False, None)
    """
    return every_part(holds for holds in by_graph.values() if holds is not None)


def parts_in_words(parts: Mapping[str, bool | None]) -> dict[str, Answer]:
    """Return the verdict of each part in words."""
    return {name: answer(holds) for name, holds in parts.items()}


Paired = Mapping[int, NDArray[np.float64]]
"""By seed: one value per task, usually the difference of two runs."""


@dataclass(frozen=True)
class Gap:
    """A mean difference with half the width of its 95 % interval.

    Parameters
    ----------
    mean, half
        Mean, and half the width; NaN without an interval.
    seeds
        Number of shared seeds.
    over
        What the interval is over: ``"seeds"``; ``"tasks"`` with a single seed, because both sides have the same tasks;
        ``"nothing"`` without an interval: then only the sign counts.

    Examples
    --------
    >>> gap = Gap.of({0: np.array([0.02, 0.04]), 1: np.array([0.03, 0.03])})
    >>> gap.points, gap.over, gap.above
    ('+3.0 ± 0.0 points', 'seeds', True)
    >>> gap = Gap.of({0: np.array([0.02, -0.04, 0.03])})
    >>> gap.points, gap.over, gap.above, gap.below
    ('+0.3 ± 4.3 points (over tasks, includes 0)', 'tasks', False, False)
    """

    mean: float
    half: float
    seeds: int
    over: Literal["seeds", "tasks", "nothing"]

    @classmethod
    def of(cls, differences: Paired) -> Gap:
        """Summarise differences by seed and task."""
        rows = list(differences.values())
        if len(rows) > 1:
            return cls.of_seeds([pooled(row[None]).mean for row in rows])
        found = pooled(rows[0][None])
        return cls(found.mean, found.half, 1, "tasks")

    @classmethod
    def of_seeds(cls, differences: Sequence[float]) -> Gap:
        """Summarise one difference per seed."""
        found = over_seeds(differences)
        return cls(found.mean, found.half, len(differences), "seeds" if len(differences) > 1 else "nothing")

    @property
    def above(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.mean > (0 if math.isnan(self.half) else self.half)

    @property
    def below(self) -> bool:
        """Whether the whole interval is below 0."""
        return -self.mean > (0 if math.isnan(self.half) else self.half)

    @property
    def points(self) -> str:
        """The difference in percentage points, with notes on its interval."""
        if math.isnan(self.half):
            return f"{100 * self.mean:+.1f} points"
        notes = ["over tasks"] * (self.over == "tasks") + ["includes 0"] * (not (self.above or self.below))
        noted = f" ({', '.join(notes)})" if notes else ""
        return f"{100 * self.mean:+.1f} ± {100 * self.half:.1f} points{noted}"


def paired(one: Measured, other: Measured, figure: str = "accuracy") -> Paired:
    """Return the difference of a metric by seed and task, for the shared seeds."""
    a, b = (dict(zip(side.seeds, side.by_task(figure), strict=True)) for side in (one, other))
    return {seed: a[seed] - b[seed] for seed in a if seed in b}


def average(cells: Sequence[Paired]) -> Paired:
    """Return the mean over cells with the same tasks, for the shared seeds."""
    shared = [seed for seed in cells[0] if all(seed in cell for cell in cells)] if cells else []
    return {seed: np.mean([cell[seed] for cell in cells], axis=0) for seed in shared}


def subtract(one: Paired, other: Paired) -> Paired:
    """Return the difference of two, for the shared seeds."""
    return {seed: one[seed] - other[seed] for seed in one if seed in other}


def mean_of(values: Iterable[float]) -> float:
    """Return the mean; NaN without values."""
    known = list(values)
    return sum(known) / len(known) if known else math.nan


def listed(names: Sequence[str], most: int = 6) -> str:
    """Return some of the names, and how many more there are.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def seeds_in_words(used: Iterable[Measured]) -> str:
    """Describe the number of seeds of the rows."""
    counts = {len(found.seeds) for found in used}
    if not counts:
        return "no seeds"
    few, many = min(counts), max(counts)
    return f"{few} to {many} seeds" if few < many else "1 seed" if few == 1 else f"{few} seeds"


@dataclass(frozen=True, eq=False)
class Evidence:
    """All results for judging the claims; any part may be missing.

    Parameters
    ----------
    graphs
        Graphs by name.
    found
        All results of lifelong trials.
    static
        Results of experiment 1: trials with the results of their ``run``.
    datasets
        Properties of graphs by name: ``vertices``, ``classes`` and ``features`` (numbers), ``drift_consecutive``
        and ``drift_cumulative`` (each with ``min`` and ``max``), and ``history_sizes`` (of the whole graph, with the
        keys ``25``, ``50``, ``75`` and ``100``).
    steps
        Training steps per task.
    """

    graphs: Mapping[str, Subject]
    found: Mapping[str, TrialResult]
    static: Sequence[tuple[StaticTrial, Mapping[str, Any]]] = ()
    datasets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    steps: int = 200

    @cached_property
    def measured(self) -> dict[Row, Measured]:
        """Return all rows of the paper's grids with results."""
        graphs = list(self.graphs.values())
        grids = [grid(graphs, steps=self.steps) for grid in (exp2, exp2a, exp3, exp4, exp4b)]
        return {found.row: found for found in collect([row for grid in grids for row in grid], self.found)}

    def get(
        self,
        graph: str,
        model: str = "sage",
        level: int = 50,
        restart: Restart = "warm",
        detector: str = "none",
        label_rate: float = 1.0,
    ) -> Measured | None:
        """Return the results of one row, if there are any."""
        row = Row(self.graphs[graph], model, level, restart, detector, label_rate, steps=self.steps)
        return self.measured.get(row)

    def best(self, graph: str, model: str, level: int) -> Measured | None:
        """Return the better of both restarts by mean accuracy, as in the paper; None unless both have results."""
        both = [self.get(graph, model, level, restart) for restart in RESTARTS]
        known = [found for found in both if found is not None]
        return max(known, key=mean_accuracy) if len(known) == len(both) else None


def mean_accuracy(found: Measured) -> float:
    """Return the mean accuracy over tasks and seeds."""
    return found.interval("accuracy").mean


def judged(
    claim: str,
    statement: str,
    holds: bool | None,
    *,
    numbers: Sequence[str],
    missing: str,
    paper: str,
    used: Iterable[Measured] = (),
    details: Mapping[str, Any],
) -> Verdict:
    """Return a verdict, which names the missing results if the claim is not testable."""
    rows = list(used)
    texts = [text for text in numbers if text]
    if holds is None:
        texts.append(f"missing: {missing}")
    elif rows:
        texts.append(seeds_in_words(rows))
    return Verdict(
        claim,
        statement,
        answer(holds),
        "; ".join(texts),
        paper,
        tuple(sorted({seed for found in rows for seed in found.seeds})),
        tuple(dict.fromkeys(found.row.graph.name for found in rows)),
        fit(details),
    )
