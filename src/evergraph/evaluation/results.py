"""The results table: one row for each seed and task, one column for each figure; and its aggregation.

Runs, comparisons and the paper's experiments all keep rows of this table. What can be computed from other columns (the
MCC from the counts, the seconds from their parts) is not stored: `Results` derives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.errors import EvergraphError, InputError
from evergraph.evaluation.metrics import Confusion, Interval, TaskScores, mean_known, or_none, over_seeds, pooled

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "NUMERICS_VERSION",
    "Results",
    "Summary",
    "TaskRow",
    "aggregate",
    "differences",
    "flat",
    "seed_ranges",
    "summary_of",
]

NUMERICS_VERSION = 1
"""Raised whenever the same run gives other numbers than before; results of another version are not used."""

_TRUTHS = ("", "_never_before")
_COUNTS = tuple(entry.name for entry in fields(Confusion))
_WHOLE = {"seed", "window_vertices", "train_vertices", "test_vertices", "known_classes", "vertices"}
_WHOLE |= {count + truth for count in _COUNTS for truth in _TRUTHS}
_OTHER = {"time": (int, str), "history": (int, str), "new_classes": (list,), "seconds_adapt": (float, int)}
_OTHER["seconds_predict"] = _OTHER["seconds_adapt"]


@dataclass(frozen=True)
class TaskRow:
    """A row of the table: one task under one seed.

    Parameters
    ----------
    seed, time
        Which; the time as the graph's axis writes it.
    history
        Number of times before it that were seen, or ``"full"``.
    window_vertices, train_vertices, test_vertices
        Vertices in the window, those with a label to learn from, and those to decide.
    known_classes
        Number of classes that the learner knew once it had adapted.
    new_classes
        Names of those that it learnt in this task.
    scores
        How good the decisions were.
    lr, loss
        Learning rate and last loss of the last training; None for a model that needs none.
    seconds_adapt, seconds_predict
        Time it took.

    Examples
    --------
    >>> from evergraph.evaluation.metrics import score_task
    >>> scores = score_task(["x"], ["x"], ["x"], [0.0], [False], [False])
    >>> row = TaskRow(0, 2004, 3, 30, 20, 10, 1, ("x",), scores, 0.01, 0.7, 1.5, 0.2)
    >>> row.as_dict()["accuracy"], row.seconds, TaskRow.from_dict(row.as_dict()) == row
    (1.0, 1.7, True)
    """

    seed: int
    time: int | str
    history: int | str
    window_vertices: int
    train_vertices: int
    test_vertices: int
    known_classes: int
    new_classes: tuple[str, ...]
    scores: TaskScores
    lr: float | None
    loss: float | None
    seconds_adapt: float
    seconds_predict: float

    @property
    def seconds(self) -> float:
        """Time of training and prediction."""
        return self.seconds_adapt + self.seconds_predict

    def as_dict(self) -> dict[str, Any]:
        """Flat and fit for JSON; ``vertices`` and all that follows it up to the learning rate are the scores."""
        found: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            found |= value.as_dict() if isinstance(value, TaskScores) else {entry.name: value}
        return found | {"new_classes": list(self.new_classes)}

    @classmethod
    def from_dict(cls, flat: Mapping[str, Any]) -> TaskRow:
        """The inverse of `as_dict`; refuses what it cannot have given."""
        scores = TaskScores.from_dict(flat)
        names = [entry.name for entry in fields(cls) if entry.name != "scores"]
        if missing := [name for name in names if name not in flat]:
            raise InputError(f"the row lacks {', '.join(missing)}", fix="pass all that as_dict gave")
        for name, value in flat.items():
            kinds = _OTHER.get(name) or ((int,) if name in _WHOLE else (int, float, type(None)))
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise InputError(f"{name} is {value!r} in the row", fix="pass what as_dict gave")
        values = {name: flat[name] for name in names}
        return cls(**(values | {"new_classes": tuple(flat["new_classes"]), "scores": scores}))


class Summary(TypedDict):
    """One figure over seeds, fit for JSON: None stands for what is undefined.

    ``mean`` is the mean over seeds and ``ci95`` the half width of its interval (`over_seeds`), ``per_seed`` has the
    seeds in the order they were given. ``pooled_ci95``, of the accuracy only, is the paper's half width (`pooled`).
    """

    mean: float | None
    ci95: float | None
    per_seed: list[float | None]
    pooled_ci95: NotRequired[float | None]


@dataclass(frozen=True)
class Results:
    """Results of one setting on one graph: each figure by seed and task.

    Tasks count alike, however many vertices they have; a task where a figure is undefined is left out of it. The one
    figure a seed (`per_seed`) is the mean over tasks. The exceptions: ``mcc``, ``false_alarm_rate``, ``flagged`` and
    ``unseen_share`` are of the counts summed over tasks (``mcc_per_task`` is the mean over tasks of one MCC each, 0 for
    a task without unseen vertices); ``seconds`` is their sum; and what is in ``totals`` is taken from there.
    MCCs come with ``_never_before`` as well, see `TaskScores`.

    Parameters
    ----------
    columns
        By seed: each column's values, one a task. Seeds have the same tasks.
    totals
        By seed: figures of all tasks together that the columns cannot give, as an AUROC over all vertices.
    about
        What all rows share, as the graph and the settings; columns of `records` and `to_frame`.

    Examples
    --------
    >>> from evergraph.evaluation.metrics import score_task
    >>> right = score_task(["x"], ["x"], ["x"], [0.0], [False], [False])
    >>> wrong = score_task(["y"], ["x"], ["x"], [0.0], [False], [False])
    >>> results = Results.of({0: [right, right], 1: [right, wrong]})
    >>> results.by_task("accuracy").tolist(), results.interval("accuracy").mean
    ([[1.0, 1.0], [1.0, 0.0]], 0.75)
    """

    columns: Mapping[int, Mapping[str, Sequence[Any]]]
    totals: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tasks = {seed: len(next(iter(columns.values()), ())) for seed, columns in self.columns.items()}
        if len(set(tasks.values())) > 1:
            told = ", ".join(f"{number} of seed {seed}" for seed, number in tasks.items())
            fix = "finish the run, or leave the shorter seeds out"
            raise InputError(f"seeds differ in their tasks: {told}", fix=fix)

    @classmethod
    def of(
        cls,
        rows: Mapping[int, Sequence[TaskRow | TaskScores | Mapping[str, Any]]],
        totals: Mapping[int, Mapping[str, float]] | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> Results:
        """The table of some rows by seed."""
        flat_rows = {seed: [_as_mapping(row) for row in found] for seed, found in rows.items()}
        columns = {
            seed: {name: [row[name] for row in found] for name in (found[0] if found else ())}
            for seed, found in flat_rows.items()
        }
        return cls(columns, totals or {}, about or {})

    @property
    def seeds(self) -> tuple[int, ...]:
        """In the order they were given."""
        return tuple(self.columns)

    @property
    def times(self) -> list[int | str]:
        """Of the tasks."""
        return list(self._first.get("time", ()))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of seeds and of tasks."""
        return len(self.columns), len(next(iter(self._first.values()), ()))

    @property
    def _first(self) -> Mapping[str, Sequence[Any]]:
        return next(iter(self.columns.values()), {})

    def by_task(self, figure: str) -> NDArray[np.float64]:
        """A column, stored or derived, by seed (row) and task (column); NaN where it is undefined."""
        values = [self._column(columns, figure) for columns in self.columns.values()]
        return np.array(values, np.float64).reshape(self.shape)  # None becomes NaN

    def confusions(self, truth: str = "") -> list[Confusion]:
        """The counts summed over tasks, one a seed."""
        return [sum(_confusions(columns, truth), Confusion()) for columns in self.columns.values()]

    def per_seed(self, figure: str) -> NDArray[np.float64]:
        """One figure a seed, of all its tasks."""
        if self.totals and figure in next(iter(self.totals.values())):
            return np.array([self.totals[seed][figure] for seed in self.columns], np.float64)
        if figure == "seconds":
            return np.array([sum(self._column(columns, figure)) for columns in self.columns.values()], np.float64)
        if figure.startswith("mcc_per_task"):
            return mean_known(self.by_task(figure.replace("_per_task", "")), axis=1)
        stem = figure.removesuffix("_never_before")
        if stem in _OF_COUNTS:
            pick = _OF_COUNTS[stem]
            return np.array([pick(found) for found in self.confusions(figure.removeprefix(stem))], np.float64)
        return mean_known(self.by_task(figure), axis=1)

    def interval(self, figure: str) -> Interval:
        """Mean over seeds, and its interval."""
        return over_seeds(self.per_seed(figure))

    def pooled(self, figure: str) -> Interval:
        """Mean over all tasks of all seeds with the paper's interval, see `pooled`."""
        return pooled(self.by_task(figure))

    def aggregate(self, figures: Iterable[str] | None = None) -> dict[str, Summary]:
        """Each figure over the seeds; unless named, all that there are."""
        found = {figure: summary_of(self.per_seed(figure)) for figure in figures or self._figures()}
        if figures is None and "accuracy" in found:
            found["accuracy"]["pooled_ci95"] = or_none(self.pooled("accuracy").half)
        return found

    def _figures(self) -> list[str]:
        there = self._first
        names: list[str] = []
        for entry in fields(TaskScores):
            if entry.name.startswith("confusion"):
                truth = entry.name.removeprefix("confusion")
                names += [f"mcc{truth}", f"mcc_per_task{truth}"] if not there or "tp" + truth in there else []
            elif entry.name != "vertices" and (not there or entry.name in there):
                names.append(entry.name)
        return [*names, *(["seconds"] if "seconds_adapt" in there else [])]

    def records(self) -> list[dict[str, Any]]:
        """All rows, derived columns among them: the shared columns, ``seed`` and ``time`` first."""
        found = []
        for seed, columns in self.columns.items():
            derived = [name for name, needs in _DERIVED.items() if needs in columns]
            whole = {**columns, **{name: self._column(columns, name) for name in derived}}
            for number in range(self.shape[1]):
                row = {name: values[number] for name, values in whole.items()}
                found.append({**self.about, "seed": seed, **row})
        return found

    def task_means(self) -> list[dict[str, Any]]:
        """For each task its time and the mean of each column over the seeds; None where it is undefined in all."""
        rows = self.records()
        tasks = self.shape[1]
        return [_mean_row(rows[number::tasks], (*self.about, "seed")) for number in range(tasks)]

    def to_frame(self) -> pd.DataFrame:
        """The table as a pandas DataFrame; ``new_classes`` is their number."""
        try:
            import pandas as pd
        except ImportError as error:
            raise EvergraphError("A DataFrame needs pandas. Install it with: pip install pandas.") from error
        return pd.DataFrame([_countable(row) for row in self.records()])

    @staticmethod
    def _column(columns: Mapping[str, Sequence[Any]], name: str) -> Sequence[Any]:
        if name in columns or not columns:
            return columns.get(name, ())
        stem = name.removesuffix("_never_before")
        truth = name.removeprefix(stem)
        if stem == "seconds":
            return [sum(pair) for pair in zip(columns["seconds_adapt"], columns["seconds_predict"], strict=True)]
        if stem == "unseen":
            return [found.tp + found.fn for found in _confusions(columns, truth)]
        return [_OF_COUNTS[stem](found) for found in _confusions(columns, truth)]


_OF_COUNTS: dict[str, Any] = {
    "mcc": lambda found: found.mcc,
    "false_alarm_rate": lambda found: found.false_alarm_rate,
    "flagged": lambda found: found.share(found.tp + found.fp),
    "unseen_share": lambda found: found.share(found.tp + found.fn),
}
_DERIVED = {"unseen": "tp", "mcc": "tp", "mcc_never_before": "tp_never_before", "seconds": "seconds_adapt"}


def aggregate(rows: Mapping[int, Sequence[TaskRow | TaskScores | Mapping[str, Any]]]) -> dict[str, Summary]:
    """Each figure over tasks and then over seeds, from rows by seed: see `Results`.

    Examples
    --------
    >>> from evergraph.evaluation.metrics import score_task
    >>> right = score_task(["x"], ["x"], ["x"], [0.0], [False], [False])
    >>> wrong = score_task(["y"], ["x"], ["x"], [0.0], [False], [False])
    >>> aggregate({0: [right, right], 1: [right, wrong]})["accuracy"]["per_seed"]
    [1.0, 0.5]
    """
    return Results.of(rows).aggregate()


def summary_of(per_seed: ArrayLike) -> Summary:
    """One figure a seed as its mean, interval and values."""
    values = np.asarray(per_seed, np.float64)
    interval = over_seeds(values)
    return Summary(
        mean=or_none(interval.mean), ci95=or_none(interval.half), per_seed=[or_none(value) for value in values.tolist()]
    )


def _as_mapping(row: TaskRow | TaskScores | Mapping[str, Any]) -> Mapping[str, Any]:
    return row.as_dict() if isinstance(row, TaskRow | TaskScores) else row


def _confusions(columns: Mapping[str, Sequence[int]], truth: str) -> list[Confusion]:
    counts = (columns[name + truth] if columns else () for name in _COUNTS)
    return [Confusion(*numbers) for numbers in zip(*counts, strict=True)]


def _countable(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: len(value) if name == "new_classes" else value for name, value in row.items()}


def _mean_row(rows: Sequence[Mapping[str, Any]], without: Iterable[str]) -> dict[str, Any]:
    """The rows of one task under several seeds as one."""
    countable = [_countable(row) for row in rows]
    kept = {name: rows[0][name] for name in ("time", "history") if name in rows[0]}
    names = [name for name in rows[0] if name not in {*without, *kept}]
    return kept | {name: _mean([row[name] for row in countable]) for name in names}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    # A count that all seeds share stays a whole number.
    return known[0] if len(set(known)) == 1 else sum(known) / len(known)


# --- descriptions of settings ----------------------------------------------------------------------------------------


def flat(described: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested description as one level, with names like ``model.hidden``."""
    found: dict[str, Any] = {}
    for name, value in described.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Which settings of two descriptions differ, in words.

    Examples
    --------
    >>> differences({"model": {"name": "sage", "hidden": 32}}, {"model": {"name": "sage", "hidden": 16}})
    'model.hidden is 32 there and 16 here'
    """
    old, new = flat(there), flat(here)
    changed = [name for name in dict.fromkeys([*new, *old]) if old.get(name) != new.get(name)]
    for part in ("model", "detector"):
        if f"{part}.name" in changed:  # other settings of another model go without saying
            changed = [name for name in changed if not name.startswith(f"{part}.") or name == f"{part}.name"]
    return ", ".join(
        f"{name.removesuffix('.name')} is {_word(old.get(name))} there and {_word(new.get(name))} here"
        for name in changed
    )


def _word(value: object) -> str:
    return "not set" if value is None else str(value)


def seed_ranges(seeds: Iterable[int]) -> str:
    """Seeds as the command line takes them.

    Examples
    --------
    >>> seed_ranges([0, 1, 2, 7])
    '0-2,7'
    """
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
