"""The results table: one row per seed and task, one column per metric; and its aggregation over tasks and seeds.

Runs, comparisons and the paper's experiments all store rows of this table. Columns that follow from other columns (the
MCC from the counts, the seconds from their parts) are not stored: `Results` derives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.errors import EvergraphError, InputError
from evergraph.evaluation.metrics import Confusion, Interval, TaskScores, mean_known, or_none, over_seeds, pooled
from evergraph.names import inputs_in_words

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COMPARABLE_VERSIONS",
    "NUMERICS_VERSION",
    "Results",
    "Summary",
    "TaskRow",
    "aggregate",
    "histories",
    "inputs_read",
    "last_inputs",
    "summary_of",
]

# With inputs="words", the numbers are those of versions that read nothing else; see `configuration.complete_settings`.
NUMERICS_VERSION = 2
"""Raised whenever the same run gives different numbers than before; a run is not continued by another version.

Version 2 computes loss and gradients in blocks of rows, which changes the last digits.
"""
COMPARABLE_VERSIONS = (1, 2)
"""Versions whose numbers differ by less than those of different seeds (`scripts/compare_numerics.py`).

Finished trials of them are read, and marked with their version.
"""

_MOST_NAMED = 5
_COUNTS = tuple(entry.name for entry in fields(Confusion))
_WHOLE = {"seed", "window_vertices", "train_vertices", "test_vertices", "known_classes", "vertices"}
_WHOLE |= {count + suffix for count in _COUNTS for suffix in ("", "_never_before")}
_OTHER: dict[str, tuple[type, ...]] = {"time": (int, str), "history": (int, str), "new_classes": (list,)}
_OTHER |= {"seconds_adapt": (float, int), "inputs": (dict,)}
_OTHER["seconds_predict"] = _OTHER["seconds_adapt"]


@dataclass(frozen=True)
class TaskRow:
    """A row of the table: one task with one seed.

    Parameters
    ----------
    seed, time
        The seed, and the period of the task as the graph's time axis writes it.
    history
        Number of past periods that the model trains on, or ``"full"``. It is larger than the configured number for a
        task that reaches back to the latest labels.
    window_vertices, train_vertices, test_vertices
        Number of vertices in the window, of labelled vertices to train on, and of vertices to decide.
    known_classes
        Number of classes that the learner knows after training.
    new_classes
        Names of the classes that it learned in this task.
    scores
        Metrics of the decisions.
    lr, loss
        Learning rate and last loss of the training; None for a model that is not trained.
    seconds_adapt, seconds_predict
        Seconds of training and of prediction.
    inputs
        The blocks that the model reads (`evergraph.inputs.vocabulary.BLOCKS`) with their numbers of columns; empty in
        rows of version 0.1.

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
    inputs: Mapping[str, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds of training and prediction."""
        return self.seconds_adapt + self.seconds_predict

    def as_dict(self) -> dict[str, Any]:
        """Return a flat dict for JSON, with the columns of `TaskScores` in place of ``scores``."""
        found: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            found |= value.as_dict() if isinstance(value, TaskScores) else {entry.name: value}
        return found | {"new_classes": list(self.new_classes), "inputs": dict(self.inputs)}

    @classmethod
    def from_dict(cls, flat: Mapping[str, Any]) -> TaskRow:
        """Read and check what `as_dict` returns."""
        scores = TaskScores.from_dict(flat)
        flat = {"inputs": {}, **flat}
        names = [entry.name for entry in fields(cls) if entry.name != "scores"]
        if missing := [name for name in names if name not in flat]:
            raise InputError(f"the row lacks {', '.join(missing)}", fix="pass everything that as_dict returned")
        for name, value in flat.items():
            kinds = _OTHER.get(name) or ((int,) if name in _WHOLE else (int, float, type(None)))
            columns = value.values() if isinstance(value, dict) else ()
            if isinstance(value, bool) or not isinstance(value, kinds) or not all(type(one) is int for one in columns):
                raise InputError(f"{name} is {value!r} in the row", fix="pass what as_dict returned")
            if name in _WHOLE and isinstance(value, int) and value < 0:
                raise InputError(f"{name} is {value!r} in the row", fix="pass what as_dict returned")
        values = {name: flat[name] for name in names}
        return cls(**(values | {"new_classes": tuple(flat["new_classes"]), "scores": scores}))


class Summary(TypedDict):
    """One metric over seeds, for JSON; None where it is undefined.

    ``mean`` and ``ci95`` are the mean over seeds and half the width of its 95 % interval (`over_seeds`); ``per_seed``
    has the seeds in their given order. ``pooled_ci95``, for the accuracy only, is the paper's half width (`pooled`).
    """

    mean: float | None
    ci95: float | None
    per_seed: list[float | None]
    pooled_ci95: NotRequired[float | None]


@dataclass(frozen=True)
class Results:
    """Results of one configuration on one graph: each metric by seed and task.

    A metric of a seed (`per_seed`) is its mean over tasks. Tasks count equally, whatever their number of vertices; a
    task where the metric is undefined is left out. Exceptions: ``mcc``, ``false_alarm_rate``, ``flagged`` and
    ``unseen_share`` are computed from counts summed over tasks (``mcc_per_task`` is the mean of one MCC per task, 0 for
    a task without unseen vertices); ``seconds`` is a sum; metrics in ``totals`` are taken from there. MCCs also exist
    with the suffix ``_never_before``, see `TaskScores`.

    Parameters
    ----------
    columns
        By seed: the values of each column, one per task. All seeds have the same tasks.
    totals
        By seed: metrics of all tasks together that do not follow from the columns, such as an AUROC over all vertices.
    about
        What all rows share, such as the graph and the settings: further columns of `records` and `to_frame`.

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
            counts = ", ".join(f"{number} of seed {seed}" for seed, number in tasks.items())
            fix = "finish the run, or leave out the seeds with fewer tasks"
            raise InputError(f"the seeds have different numbers of tasks: {counts}", fix=fix)

    @classmethod
    def of(
        cls,
        rows: Mapping[int, Sequence[TaskRow | TaskScores | Mapping[str, Any]]],
        totals: Mapping[int, Mapping[str, float]] | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> Results:
        """Build the table from rows by seed."""
        columns = {}
        for seed, of_seed in rows.items():
            flat = [row.as_dict() if isinstance(row, TaskRow | TaskScores) else row for row in of_seed]
            names = [name for name in (flat[0] if flat else ()) if name != "inputs"]  # not a metric
            columns[seed] = {name: [row[name] for row in flat] for name in names}
        return cls(columns, totals or {}, about or {})

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds in their given order."""
        return tuple(self.columns)

    @property
    def times(self) -> list[int | str]:
        """The periods of the tasks."""
        return list(self._first.get("time", ()))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of seeds and number of tasks."""
        return len(self.columns), len(next(iter(self._first.values()), ()))

    @property
    def _first(self) -> Mapping[str, Sequence[Any]]:
        return next(iter(self.columns.values()), {})

    def by_task(self, metric: str) -> NDArray[np.float64]:
        """Return a stored or derived column by seed (row) and task (column); NaN where it is undefined."""
        values = [self._column(columns, metric) for columns in self.columns.values()]
        return np.array(values, np.float64).reshape(self.shape)  # None becomes NaN

    def confusions(self, suffix: str = "") -> list[Confusion]:
        """Return the counts summed over tasks, one `Confusion` per seed."""
        return [sum(_confusions(columns, suffix), Confusion()) for columns in self.columns.values()]

    def per_seed(self, metric: str) -> NDArray[np.float64]:
        """Return one value per seed, over all its tasks."""
        if self.totals and metric in next(iter(self.totals.values())):
            return np.array([self.totals[seed][metric] for seed in self.columns], np.float64)
        if metric == "seconds":
            return np.array([sum(self._column(columns, metric)) for columns in self.columns.values()], np.float64)
        if metric.startswith("mcc_per_task"):
            return mean_known(self.by_task(metric.replace("_per_task", "")), axis=1)
        stem = metric.removesuffix("_never_before")
        if stem in _OF_COUNTS:
            of_counts = _OF_COUNTS[stem]
            return np.array([of_counts(counts) for counts in self.confusions(metric.removeprefix(stem))], np.float64)
        return mean_known(self.by_task(metric), axis=1)

    def interval(self, metric: str) -> Interval:
        """Return the mean over seeds with its confidence interval."""
        return over_seeds(self.per_seed(metric))

    def pooled(self, metric: str) -> Interval:
        """Return the mean over all tasks of all seeds with the paper's interval, see `pooled`."""
        return pooled(self.by_task(metric))

    def aggregate(self, metrics: Iterable[str] | None = None) -> dict[str, Summary]:
        """Summarise metrics over the seeds, by default all of the table. An MCC without unseen vertices is None."""
        found = {metric: summary_of(self.per_seed(metric)) for metric in metrics or self._metrics()}
        for metric in {"mcc", "mcc_never_before"} & set(found):
            unseen = [counts.tp + counts.fn for counts in self.confusions(metric.removeprefix("mcc"))]
            found[metric] = summary_of(np.where(np.array(unseen) > 0, self.per_seed(metric), np.nan))
        if metrics is None and "accuracy" in found:
            found["accuracy"]["pooled_ci95"] = or_none(self.pooled("accuracy").half)
        return found

    def _metrics(self) -> list[str]:
        stored = self._first
        names: list[str] = []
        for entry in fields(TaskScores):
            if entry.name.startswith("confusion"):
                suffix = entry.name.removeprefix("confusion")
                names += [f"mcc{suffix}", f"mcc_per_task{suffix}"] if not stored or "tp" + suffix in stored else []
            elif entry.name != "vertices" and (not stored or entry.name in stored):
                names.append(entry.name)
        return [*names, *(["seconds"] if "seconds_adapt" in stored else [])]

    def records(self) -> list[dict[str, Any]]:
        """Return all rows with derived columns; the shared columns, ``seed`` and ``time`` come first."""
        found = []
        for seed, columns in self.columns.items():
            derived = [name for name, needs in _DERIVED.items() if needs in columns]
            whole = {**columns, **{name: self._column(columns, name) for name in derived}}
            for number in range(self.shape[1]):
                row = {name: values[number] for name, values in whole.items()}
                found.append({**self.about, "seed": seed, **row})
        return found

    def task_means(self) -> list[dict[str, Any]]:
        """Return the period of each task and the mean of each column over the seeds; None if undefined in all.

        ``mcc`` is None for a task without unseen vertices.
        """
        rows, tasks = self.records(), self.shape[1]
        found = [_mean_row(rows[number::tasks], (*self.about, "seed")) for number in range(tasks)]
        return [row | {"mcc": None} if row.get("unseen") == 0 else row for row in found]

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a pandas DataFrame; ``new_classes`` is their number."""
        try:
            import pandas as pd
        except ImportError as error:
            raise EvergraphError("a DataFrame needs pandas", fix="install it with: pip install pandas") from error
        return pd.DataFrame([_countable(row) for row in self.records()])

    @staticmethod
    def _column(columns: Mapping[str, Sequence[Any]], name: str) -> Sequence[Any]:
        if name in columns or not columns:
            return columns.get(name, ())
        stem = name.removesuffix("_never_before")
        suffix = name.removeprefix(stem)
        if stem == "seconds":
            return [sum(pair) for pair in zip(columns["seconds_adapt"], columns["seconds_predict"], strict=True)]
        if stem == "unseen":
            return [counts.tp + counts.fn for counts in _confusions(columns, suffix)]
        return [_OF_COUNTS[stem](counts) for counts in _confusions(columns, suffix)]


_OF_COUNTS: dict[str, Any] = {
    "mcc": lambda counts: counts.mcc,
    "false_alarm_rate": lambda counts: counts.false_alarm_rate,
    "flagged": lambda counts: counts.share(counts.tp + counts.fp),
    "unseen_share": lambda counts: counts.share(counts.tp + counts.fn),
}
_DERIVED = {"unseen": "tp", "mcc": "tp", "mcc_never_before": "tp_never_before", "seconds": "seconds_adapt"}


def aggregate(rows: Mapping[int, Sequence[TaskRow | TaskScores | Mapping[str, Any]]]) -> dict[str, Summary]:
    """Summarise all metrics of rows by seed, first over tasks and then over seeds; see `Results`.

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
    """Return mean, interval and values of one metric from one value per seed."""
    values = np.asarray(per_seed, np.float64)
    interval = over_seeds(values)
    return Summary(
        mean=or_none(interval.mean), ci95=or_none(interval.half), per_seed=[or_none(value) for value in values.tolist()]
    )


def _confusions(columns: Mapping[str, Sequence[int]], suffix: str) -> list[Confusion]:
    counts = (columns[name + suffix] if columns else () for name in _COUNTS)
    return [Confusion(*numbers) for numbers in zip(*counts, strict=True)]


def histories(wanted: int | str, rows: Mapping[int, Sequence[TaskRow]]) -> tuple[int | str, str]:
    """Return the history of a run, and a note on the tasks that reached back to the latest labels ("" without any).

    Parameters
    ----------
    wanted
        The configured history. For ``"auto"``, it is the shortest one of the rows.
    rows
        The rows of each seed.
    """
    every = [row for of_seed in rows.values() for row in of_seed]
    known = [row.history for row in every if isinstance(row.history, int)]
    size = min(known, default="full") if wanted == "auto" else wanted
    longer: dict[int | str, int] = {}
    for row in every:
        if isinstance(size, int) and isinstance(row.history, int) and row.history > size:
            longer[row.time] = max(row.history, longer.get(row.time, 0))
    if not longer:
        return size, ""
    some = ", ".join(f"{time}: {periods}" for time, periods in list(longer.items())[:_MOST_NAMED])
    more = f" and {len(longer) - _MOST_NAMED:,} more" if len(longer) > _MOST_NAMED else ""
    tasks = len({row.time for row in every})
    return size, (
        f"{len(longer):,} of {tasks:,} tasks have no label to train on within the history of {size}. "
        f"They reach back to the latest one (task: history): {some}{more}."
    )


def last_inputs(rows: Mapping[int, Sequence[TaskRow]]) -> dict[int, dict[str, int]]:
    """Return the blocks that the model of each seed reads in its last task, with their numbers of columns."""
    return {seed: dict(of_seed[-1].inputs) if of_seed else {} for seed, of_seed in rows.items()}


def inputs_read(rows: Mapping[int, Sequence[TaskRow]]) -> str:
    """Return the inputs of all seeds as text; "" if an earlier Evergraph did not store them."""
    of_seeds: dict[str, list[str]] = {}
    for seed, columns in last_inputs(rows).items():
        of_seeds.setdefault(inputs_in_words(columns), []).append(str(seed))
    if len(of_seeds) == 1:
        return next(iter(of_seeds))
    return "; ".join(f"{text or 'not stored'} (seed {', '.join(seeds)})" for text, seeds in of_seeds.items())


def _countable(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: len(value) if name == "new_classes" else value for name, value in row.items()}


def _mean_row(rows: Sequence[Mapping[str, Any]], without: Iterable[str]) -> dict[str, Any]:
    """Average the rows of one task over the seeds."""
    countable = [_countable(row) for row in rows]
    kept = {name: rows[0][name] for name in ("time", "history") if name in rows[0]}
    names = [name for name in rows[0] if name not in {*without, *kept}]
    return kept | {name: _mean([row[name] for row in countable]) for name in names}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    # A count that is the same for all seeds remains a whole number.
    return known[0] if len(set(known)) == 1 else sum(known) / len(known)
