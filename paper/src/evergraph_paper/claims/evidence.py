"""What claims are judged by, paired differences with their intervals, and the verdict on a claim."""

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
    """What became of a claim."""

    claim: str
    statement: str
    verdict: Answer
    numbers: str
    paper: str
    seeds: tuple[int, ...] = ()
    graphs: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Fit for JSON.

        Examples
        --------
        >>> Verdict("C0", "It is.", "holds", "1", "1", details={"mean": math.nan, 25: (1,)}).as_dict()["details"]
        {'mean': None, '25': [1]}
        """
        found: dict[str, Any] = fit(vars(self))
        return found


def fit(value: Any) -> Any:
    """A value fit for JSON: keys are texts, and numbers that are not finite are None."""
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
    """In words; None is what cannot be told."""
    return "not testable here" if holds is None else "holds" if holds else "fails"


def every_part(parts: Iterable[bool | None]) -> bool | None:
    """Whether all parts of a claim hold: one that fails decides, else one that cannot be told.

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
    """Whether a claim holds on every graph where it can be told.

    Examples
    --------
    >>> on_graphs({"one": True, "other": None}), on_graphs({"one": True, "other": False}), on_graphs({"one": None})
    (True, False, None)
    """
    return every_part(holds for holds in by_graph.values() if holds is not None)


def parts_in_words(parts: Mapping[str, bool | None]) -> dict[str, Answer]:
    """The answer of each part."""
    return {name: answer(holds) for name, holds in parts.items()}


Paired = Mapping[int, NDArray[np.float64]]
"""By seed: a figure of each task, most often the difference of two runs."""


@dataclass(frozen=True)
class Gap:
    """A mean difference with the half width of its 95 % interval.

    Parameters
    ----------
    mean, half
        The half width is NaN where there is no interval.
    seeds
        Number of seeds that both sides have.
    over
        What the interval is over: ``"seeds"``; with a single seed ``"tasks"``, for they are the same on both sides;
        ``"nothing"`` where there is no interval, and then the sign alone decides.

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
        """Of differences by seed and task."""
        rows = list(differences.values())
        if len(rows) > 1:
            return cls.of_seeds([pooled(row[None]).mean for row in rows])
        found = pooled(rows[0][None])
        return cls(found.mean, found.half, 1, "tasks")

    @classmethod
    def of_seeds(cls, differences: Sequence[float]) -> Gap:
        """Of one difference a seed."""
        found = over_seeds(differences)
        return cls(found.mean, found.half, len(differences), "seeds" if len(differences) > 1 else "nothing")

    @property
    def above(self) -> bool:
        """Whether it is above 0, the whole interval with it."""
        return self.mean > (0 if math.isnan(self.half) else self.half)

    @property
    def below(self) -> bool:
        """Whether it is below 0, the whole interval with it."""
        return -self.mean > (0 if math.isnan(self.half) else self.half)

    @property
    def points(self) -> str:
        """In percentage points; whether the interval is over tasks, and whether it includes 0."""
        if math.isnan(self.half):
            return f"{100 * self.mean:+.1f} points"
        told = ["over tasks"] * (self.over == "tasks") + ["includes 0"] * (not (self.above or self.below))
        notes = f" ({', '.join(told)})" if told else ""
        return f"{100 * self.mean:+.1f} ± {100 * self.half:.1f} points{notes}"


def paired(one: Measured, other: Measured, figure: str = "accuracy") -> Paired:
    """By how much a figure of one is above that of the other, for the seeds that both have."""
    a, b = (dict(zip(side.seeds, side.by_task(figure), strict=True)) for side in (one, other))
    return {seed: a[seed] - b[seed] for seed in a if seed in b}


def average(cells: Sequence[Paired]) -> Paired:
    """Mean over cells of the same tasks, for the seeds that all have."""
    shared = [seed for seed in cells[0] if all(seed in cell for cell in cells)] if cells else []
    return {seed: np.mean([cell[seed] for cell in cells], axis=0) for seed in shared}


def subtract(one: Paired, other: Paired) -> Paired:
    """Difference of two, for the seeds that both have."""
    return {seed: one[seed] - other[seed] for seed in one if seed in other}


def mean_of(values: Iterable[float]) -> float:
    """NaN without values."""
    known = list(values)
    return sum(known) / len(known) if known else math.nan


def listed(names: Sequence[str], most: int = 6) -> str:
    """Some of the names, and how many more there are.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def seeds_in_words(used: Iterable[Measured]) -> str:
    """How many seeds the rows have."""
    counts = {len(found.seeds) for found in used}
    if not counts:
        return "no seeds"
    few, many = min(counts), max(counts)
    return f"{few} to {many} seeds" if few < many else "1 seed" if few == 1 else f"{few} seeds"


@dataclass(frozen=True, eq=False)
class Evidence:
    """What there is to judge the claims by; any of it may be missing.

    Parameters
    ----------
    graphs
        The graphs that results may be of, by name.
    found
        All results of lifelong trials.
    static
        Results of experiment 1: trials, each with what its ``run`` has returned.
    datasets
        Facts of graphs by name. Used are ``vertices``, ``classes`` and ``features`` (numbers), ``drift_consecutive``
        and ``drift_cumulative`` (each with ``min`` and ``max``), and ``history_sizes`` (of the whole graph, with the
        keys ``25``, ``50``, ``75`` and ``100``).
    steps
        Of training for each task in the results.
    """

    graphs: Mapping[str, Subject]
    found: Mapping[str, TrialResult]
    static: Sequence[tuple[StaticTrial, Mapping[str, Any]]] = ()
    datasets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    steps: int = 200

    @cached_property
    def measured(self) -> dict[Row, Measured]:
        """All rows of the paper's grids that have results."""
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
        """One row, if it has results."""
        row = Row(self.graphs[graph], model, level, restart, detector, label_rate, steps=self.steps)
        return self.measured.get(row)

    def best(self, graph: str, model: str, level: int) -> Measured | None:
        """The better of both restarts by mean accuracy, as the paper chooses; None unless both have results."""
        both = [self.get(graph, model, level, restart) for restart in RESTARTS]
        known = [found for found in both if found is not None]
        return max(known, key=mean_accuracy) if len(known) == len(both) else None


def mean_accuracy(found: Measured) -> float:
    """Over tasks and seeds."""
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
    """A verdict; what is missing is named where it keeps the claim from being judged."""
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
