"""How good decisions are: accuracy and F1, detection of unseen classes, forward transfer, and intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.errors import InputError
from evergraph.graph.classes import UNSEEN

if TYPE_CHECKING:
    from evergraph.learning.task import Decisions, Task

__all__ = [
    "Confusion",
    "Interval",
    "TaskScores",
    "accuracy",
    "aupr",
    "auroc",
    "evaluate",
    "forward_transfer",
    "fpr_at_95",
    "macro_f1",
    "mean_known",
    "open_macro_f1",
    "or_none",
    "oracle_mcc",
    "over_seeds",
    "pooled",
    "score_task",
]

# --- classification --------------------------------------------------------------------------------------------------


def accuracy(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Share of vertices whose class is predicted right; NaN for no vertices.

    Examples
    --------
    >>> accuracy(["KDD", "ICML", "KDD", "WWW"], ["KDD", "ICML", "ICML", "KDD"])
    0.5
    """
    true, said = _names(truth), _names(predicted)
    _check_aligned(true, said)
    return float(np.mean(true == said)) if true.size else math.nan


def macro_f1(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Mean F1 of the classes that occur in the truth or among the predictions; NaN for no vertices.

    Examples
    --------
    >>> macro_f1(["KDD", "KDD", "ICML"], ["KDD", "KDD", "WWW"])  # F1 of 1, 0 and 0
    0.3333333333333333
    """
    true, said = _names(truth), _names(predicted)
    _check_aligned(true, said)
    if not true.size:
        return math.nan
    # Rows by first occurrence, not by alphabet: other names for the same classes give the same sum to the last bit.
    row_of = {name: row for row, name in enumerate(dict.fromkeys([*true, *said]))}
    rows = np.array([[row_of[name] for name in side] for side in (true, said)])
    occurs = np.bincount(rows.ravel())  # never 0: every row occurs on one of the sides
    hits = np.bincount(rows[0, rows[0] == rows[1]], minlength=len(row_of))
    return float(np.mean(2 * hits / occurs))


def open_macro_f1(truth: ArrayLike, decided: ArrayLike, unseen: ArrayLike) -> float:
    """Macro F1 with one more class, `UNSEEN`: its vertices are those of ``unseen``, its predictions the rejections.

    As in `macro_f1`, the class counts only where it occurs. It scores 0 where vertices are rejected but none is
    unseen, or the other way round. Where nobody is unseen and nothing rejected it is left out: the figure is then
    the plain macro F1, and one single rejection costs much.

    Parameters
    ----------
    truth
        Class name by vertex, also of those whose class is unseen.
    decided
        Class name by vertex, `UNSEEN` where rejected.
    unseen
        Whether the class of the vertex is unseen.

    Examples
    --------
    >>> truth = ["KDD", "KDD", "KDD", "WWW"]
    >>> open_macro_f1(truth, ["KDD", "KDD", "KDD", "unseen"], unseen=[False, False, False, True])
    1.0
    >>> round(open_macro_f1(truth[:3], ["KDD", "KDD", "unseen"], unseen=[False] * 3), 3)  # F1 of .8 and 0
    0.4
    """
    true, said, new = _names(truth), _names(decided), _mask(unseen)
    _check_aligned(true, said, new)
    return macro_f1(np.where(new, UNSEEN, true), said)


# --- detection of unseen classes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Confusion:
    """Counts of vertices, which add up over tasks: unseen are positive, and flagged ones are taken to be unseen.

    Examples
    --------
    >>> first = Confusion.of(rejected=[True, True, False], unseen=[True, False, False])
    >>> first
    Confusion(tp=1, tn=1, fp=1, fn=0)
    >>> first.mcc, first.false_alarm_rate, first + Confusion(tn=5)
    (0.5, 0.5, Confusion(tp=1, tn=6, fp=1, fn=0))
    """

    tp: int = 0
    tn: int = 0
    fp: int = 0
    fn: int = 0

    @classmethod
    def of(cls, rejected: ArrayLike, unseen: ArrayLike) -> Confusion:
        """Counts over vertices, from a mask of the rejected and a mask of the unseen ones."""
        said, true = _mask(rejected), _mask(unseen)
        _check_aligned(said, true)
        return cls(*(int(np.sum(both)) for both in (said & true, ~said & ~true, said & ~true, ~said & true)))

    def __add__(self, other: Confusion) -> Confusion:
        return Confusion(self.tp + other.tp, self.tn + other.tn, self.fp + other.fp, self.fn + other.fn)

    @property
    def mcc(self) -> float:
        """Matthews correlation coefficient: 1 is right, -1 is the reverse; 0 where one side has but one kind."""
        below = (self.tp + self.fp) * (self.tp + self.fn) * (self.tn + self.fp) * (self.tn + self.fn)
        return (self.tp * self.tn - self.fp * self.fn) / math.sqrt(below) if below else 0.0

    def share(self, part: int) -> float:
        """A part of all vertices; NaN where there are none."""
        total = self.tp + self.tn + self.fp + self.fn
        return part / total if total else math.nan

    @property
    def false_alarm_rate(self) -> float:
        """Share of the known vertices that is rejected; NaN where none is known."""
        known = self.fp + self.tn
        return self.fp / known if known else math.nan


@dataclass(frozen=True, eq=False)
class _Sweep:
    """True and false positives at each threshold, from rejecting nothing (0, 0) to rejecting all."""

    tp: NDArray[np.int64]
    fp: NDArray[np.int64]

    @classmethod
    def of(cls, score: ArrayLike, positive: ArrayLike) -> _Sweep:
        values, true = _numbers(score), _mask(positive)
        _check_aligned(values, true)
        order = np.argsort(-values, kind="stable")
        values, true = values[order], true[order]
        # No threshold comes between equal scores: only the last of them is a cut.
        last = np.append(values[1:] != values[:-1], True)[: len(values)]
        tp, fp = (np.append(0, np.cumsum(kind)[last]).astype(np.int64) for kind in (true, ~true))
        return cls(tp, fp)

    @property
    def positives(self) -> int:
        return int(self.tp[-1])

    @property
    def negatives(self) -> int:
        return int(self.fp[-1])

    def __bool__(self) -> bool:
        return self.positives > 0 and self.negatives > 0


def auroc(score: ArrayLike, positive: ArrayLike) -> float:
    """Chance that a positive vertex scores higher than a negative one, a tie counted as half.

    Parameters
    ----------
    score
        Score by vertex, higher for the positive ones: for a detector, higher is more unseen.
    positive
        Whether the vertex is positive. Without positives, or without negatives, the figure is NaN.

    Examples
    --------
    >>> auroc([0.1, 0.4, 0.4, 0.9], [False, False, True, True])
    0.875
    """
    sweep = _Sweep.of(score, positive)
    if not sweep:
        return math.nan
    # In whole numbers as long as possible: twice the area below the steps.
    doubled = np.sum(np.diff(sweep.fp) * (sweep.tp[1:] + sweep.tp[:-1]))
    return float(doubled / (2 * sweep.positives * sweep.negatives))


def aupr(score: ArrayLike, positive: ArrayLike) -> float:
    """Average precision: the precision at each threshold, weighed by the recall that the threshold adds.

    Examples
    --------
    >>> aupr([0.1, 0.4, 0.8, 0.9], [False, True, False, True])  # precision 1 and then 2/3
    0.8333333333333333
    """
    sweep = _Sweep.of(score, positive)
    if not sweep:
        return math.nan
    precision = sweep.tp[1:] / (sweep.tp[1:] + sweep.fp[1:])
    return float(np.sum(np.diff(sweep.tp) * precision) / sweep.positives)


def fpr_at_95(score: ArrayLike, positive: ArrayLike) -> float:
    """Smallest share of negatives above a threshold that has at least 95 % of the positives above it.

    Examples
    --------
    >>> fpr_at_95([0.1, 0.4, 0.8, 0.9], [False, True, False, True])
    0.5
    """
    sweep = _Sweep.of(score, positive)
    if not sweep:
        return math.nan
    enough = 20 * sweep.tp >= 19 * sweep.positives  # 95 %, without rounding
    return float(sweep.fp[np.argmax(enough)] / sweep.negatives)


def oracle_mcc(score: ArrayLike, positive: ArrayLike) -> float:
    """Largest MCC of rejecting all vertices from some threshold on: what the scores allow, not what was decided.

    The threshold is chosen by the truth, so no detector can be trusted to reach this. Rejecting nothing has an MCC
    of 0, so it is never below 0; without positives, or without negatives, it is 0.

    Examples
    --------
    >>> oracle_mcc([0.1, 0.4, 0.8, 0.9], [False, False, True, True])
    1.0
    >>> oracle_mcc([0.9, 0.1], [False, True])
    0.0
    """
    sweep = _Sweep.of(score, positive)
    if len(sweep.tp) < 3 or not sweep:
        return 0.0
    # The first and the last cut, nothing or all rejected, have an MCC of 0 by definition. Floats do not overflow.
    tp, fp = sweep.tp[1:-1].astype(np.float64), sweep.fp[1:-1].astype(np.float64)
    rejected, all_ = tp + fp, sweep.positives + sweep.negatives
    below = np.sqrt((sweep.positives * rejected) * (sweep.negatives * (all_ - rejected)))
    return max(0.0, float(np.max((tp * sweep.negatives - fp * sweep.positives) / below)))


# --- all figures of a task -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskScores:
    """The figures of one task over its labelled test vertices; NaN where a figure is undefined.

    A vertex can be unseen in two ways: its class is unknown to the learner, or its class was never before in the graph.
    They differ where labels are missing or old ones were forgotten. Figures are of the former unless named otherwise.

    Parameters
    ----------
    vertices
        Number of labelled test vertices.
    accuracy
        Of the best known class over all vertices; for a vertex of an unseen class it cannot be right.
    id_accuracy
        The same over the vertices whose class the learner knows.
    macro_f1
        Of the best known class over all vertices.
    open_f1
        Macro F1 of the decisions, `UNSEEN` among them: see `open_macro_f1`.
    rejected
        Share of the vertices that is rejected.
    confusion, auroc, aupr, fpr95, oracle_mcc
        Rejection and score against the classes that the learner does not know.
    confusion_never_before, auroc_never_before, open_f1_never_before
        The same against the classes that were never before in the graph.

    Examples
    --------
    >>> scores = score_task(["x", "y"], ["x", "x"], ["x", "unseen"], [0.1, 0.9], [False, True], [False, True])
    >>> scores.accuracy, scores.open_f1, scores.confusion.mcc
    (0.5, 1.0, 1.0)
    >>> TaskScores.from_dict(scores.as_dict()) == scores
    True
    """

    vertices: int
    accuracy: float
    id_accuracy: float
    macro_f1: float
    open_f1: float
    rejected: float
    confusion: Confusion
    auroc: float
    aupr: float
    fpr95: float
    oracle_mcc: float
    confusion_never_before: Confusion
    auroc_never_before: float
    open_f1_never_before: float

    def as_dict(self) -> dict[str, int | float | None]:
        """Flat and fit for JSON: None for NaN, and each confusion as ``tp``, ``tn``, ``fp``, ``fn`` with its suffix."""
        flat: dict[str, int | float | None] = {}
        for name, value in vars(self).items():
            if isinstance(value, Confusion):
                flat |= {count + name.removeprefix("confusion"): number for count, number in vars(value).items()}
            else:
                flat[name] = or_none(value)
        return flat

    @classmethod
    def from_dict(cls, flat: Mapping[str, Any]) -> TaskScores:
        """The inverse of `as_dict`; other keys are passed over, so a row of a larger table will do."""
        values: dict[str, Any] = {}
        try:
            for name in (field.name for field in fields(cls)):
                if name.startswith("confusion"):
                    suffix = name.removeprefix("confusion")
                    values[name] = Confusion(**{count.name: flat[count.name + suffix] for count in fields(Confusion)})
                else:
                    values[name] = math.nan if flat[name] is None else flat[name]
        except KeyError as key:
            raise InputError(f"the scores of a task lack {key}", fix="pass all that as_dict gave") from None
        return cls(**values)


def score_task(
    truth: ArrayLike,
    argmax: ArrayLike,
    decided: ArrayLike,
    score: ArrayLike,
    unseen: ArrayLike,
    never_before: ArrayLike,
) -> TaskScores:
    """All figures of one task, from arrays over its labelled test vertices (none at all will do).

    Parameters
    ----------
    truth
        Class name by vertex.
    argmax
        Name of the best known class, before any rejection.
    decided
        Name of the class decided on, `UNSEEN` where rejected.
    score
        Higher is more unseen.
    unseen
        Whether the learner does not know the class.
    never_before
        Whether the class was never before in the graph.

    Examples
    --------
    >>> scores = score_task(
    ...     truth=["KDD", "ICML", "WWW"],
    ...     argmax=["KDD", "KDD", "KDD"],
    ...     decided=["KDD", "unseen", "unseen"],
    ...     score=[0.1, 0.6, 0.9],
    ...     unseen=[False, False, True],
    ...     never_before=[False, False, False],
    ... )
    >>> scores.id_accuracy, scores.auroc, scores.confusion, scores.auroc_never_before
    (0.5, 1.0, Confusion(tp=1, tn=1, fp=1, fn=0), nan)
    """
    true, best, said = _names(truth), _names(argmax), _names(decided)
    values, new, never = _numbers(score), _mask(unseen), _mask(never_before)
    _check_aligned(true, best, said, values, new, never)
    rejected = np.equal(said, UNSEEN).astype(np.bool_)
    return TaskScores(
        vertices=len(true),
        accuracy=accuracy(true, best),
        id_accuracy=accuracy(true[~new], best[~new]),
        macro_f1=macro_f1(true, best),
        open_f1=open_macro_f1(true, said, new),
        rejected=float(rejected.mean()) if len(true) else math.nan,
        confusion=Confusion.of(rejected, new),
        auroc=auroc(values, new),
        aupr=aupr(values, new),
        fpr95=fpr_at_95(values, new),
        oracle_mcc=oracle_mcc(values, new),
        confusion_never_before=Confusion.of(rejected, never),
        auroc_never_before=auroc(values, never),
        open_f1_never_before=open_macro_f1(true, said, never),
    )


def evaluate(task: Task, decisions: Decisions) -> TaskScores:
    """Score decisions against the truth; vertices without a label are left out.

    Two truths are told apart. A class is *unseen by the learner* if it was never among the labels it learnt from,
    which depends on its history and on which labels were released. It is *never before in the graph* if no vertex had
    it at an earlier time.
    """
    truth = task.truth
    if decisions.time != task.time or len(truth) != len(decisions):
        raise InputError(
            f"the decisions are of {len(decisions):,} vertices at {task.graph.axis.label(decisions.time)}, the task is "
            f"of {len(truth):,} at {task.graph.axis.label(task.time)}",
            fix="score decisions with the task that they answer",
        )
    labelled = np.array([name is not None for name in truth], bool)
    truth = truth[labelled]
    known = set(decisions.known)
    return score_task(
        truth,
        decisions.best[labelled],
        decisions.classes[labelled],
        decisions.score[labelled],
        np.array([name not in known for name in truth], bool),
        task.never_before[labelled],
    )


# --- tasks and seeds -------------------------------------------------------------------------------------------------


def forward_transfer(warm: ArrayLike, cold: ArrayLike) -> float:
    """Mean gain in accuracy of warm over cold starts, from the second task on; NaN with fewer than two tasks.

    The first task is dropped: nothing was learned before it that could be kept.

    Parameters
    ----------
    warm, cold
        Accuracy by seed (row) and task (column). Both have the same tasks; the numbers of seeds may differ, since each
        task is averaged over seeds first. NaN is left out, as is a task that has nothing else on one of the sides.

    Examples
    --------
    >>> round(forward_transfer(warm=[[0.1, 0.6, 0.8], [0.1, 0.8, 0.8]], cold=[[0.9, 0.6, 0.6]]), 4)
    0.15
    """
    kept, fresh = np.asarray(warm, np.float64), np.asarray(cold, np.float64)
    if kept.ndim != 2 or fresh.ndim != 2 or kept.shape[1] != fresh.shape[1]:
        raise InputError(
            f"accuracies of warm and cold starts have shapes {kept.shape} and {fresh.shape}",
            fix="pass one row a seed and one column a task, with the same tasks in both",
        )
    if kept.shape[1] < 2:
        return math.nan
    return float(mean_known((mean_known(kept, axis=0) - mean_known(fresh, axis=0))[1:]))


@dataclass(frozen=True)
class Interval:
    """A mean, the half width of its 95 % interval, and the number of values; NaN where there are too few.

    Examples
    --------
    >>> found = Interval(mean=0.5, half=0.25, n=3)
    >>> found.low, found.high
    (0.25, 0.75)
    """

    mean: float
    half: float
    n: int

    @property
    def low(self) -> float:
        """Lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end."""
        return self.mean + self.half


def over_seeds(values: ArrayLike) -> Interval:
    """Mean over seeds, with the interval of Student's t for it.

    It tells how far the mean may be off by the chance of the seeds; the graph and its tasks are taken as given. NaN is
    left out.

    Examples
    --------
    >>> found = over_seeds([0.70, 0.72, 0.74])
    >>> round(found.mean, 4), round(found.half, 4)
    (0.72, 0.0497)
    """
    known = _known(values, axes=1)
    if len(known) < 2:
        return _interval(known, math.nan)
    from scipy.special import stdtrit

    return _interval(known, float(stdtrit(len(known) - 1, 0.975)))


def pooled(values: ArrayLike) -> Interval:
    """Mean over all tasks of all seeds, with the paper's interval: 1.96 standard errors over the pooled values.

    The values have a row for each seed and a column for each task; NaN is left out.
    It is no interval of the mean over seeds. The spread that it measures is mostly that between tasks,
    which are the same in each seed, and the tasks of one seed are counted as if they were so many independent runs.
    It may be too wide or too narrow; use `over_seeds`, and this one to compare with the paper's tables.

    Examples
    --------
    >>> found = pooled([[0.60, 0.80], [0.60, 0.80]])  # both seeds agree, yet the interval is wide
    >>> round(found.mean, 4), round(found.half, 4), found.n
    (0.7, 0.1132, 4)
    """
    return _interval(_known(values, axes=2), 1.96)


def _known(values: ArrayLike, axes: int) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    if array.ndim != axes:
        wanted = "one value a seed" if axes == 1 else "one row a seed and one column a task"
        raise InputError(f"values of shape {array.shape} were given, not {wanted}", fix=f"pass {wanted}")
    return array[~np.isnan(array)]


def _interval(known: NDArray[np.float64], quantile: float) -> Interval:
    n = len(known)
    half = quantile * float(known.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Interval(float(known.mean()) if n else math.nan, half, n)


def mean_known(values: NDArray[np.float64], axis: int | None = None) -> NDArray[np.float64]:
    """Mean without NaN; NaN where nothing is left (``np.nanmean`` would warn)."""
    known = ~np.isnan(values)
    count = known.sum(axis)
    total = np.where(known, values, 0.0).sum(axis)
    return np.divide(total, count, out=np.full(np.shape(count), np.nan), where=count > 0)


def or_none(value: float) -> float | None:
    """None for NaN, which JSON has no word for."""
    return None if math.isnan(value) else value


# --- arrays ----------------------------------------------------------------------------------------------------------


def _names(values: ArrayLike) -> NDArray[np.object_]:
    """Class names; rows of a model's output are refused, since compared with names they would all be wrong."""
    array = np.asarray(values, dtype=object)
    for value in array.flat:
        if not isinstance(value, str):
            raise InputError(
                f"{value!r} is not a class name",
                fix="pass the names of labelled vertices, as strings, not rows or codes",
            )
    return array


def _mask(values: ArrayLike) -> NDArray[np.bool_]:
    """Booleans; numbers are refused, since a list of positions would pass for a mask."""
    array = np.asarray(values)
    if array.size and array.dtype != np.bool_:
        raise InputError(f"a mask must be of booleans, not {array.dtype}", fix="pass True or False for each vertex")
    return array.astype(np.bool_)


def _numbers(values: ArrayLike) -> NDArray[np.float64]:
    """Scores of vertices, none of them NaN: no threshold can be compared with NaN."""
    array = np.asarray(values, np.float64)
    if missing := int(np.isnan(array).sum()):
        raise InputError(f"{missing} of {array.size} scores are NaN", fix="look at the detector that made the scores")
    return array


def _check_aligned(*arrays: NDArray[Any]) -> None:
    """Assert that the arrays tell of the same vertices."""
    shapes = [array.shape for array in arrays]
    if len(shapes[0]) != 1 or len(set(shapes)) > 1:
        told = ", ".join(map(str, shapes))
        raise InputError(f"arrays over vertices have shapes {told}", fix="pass one value for each vertex in each array")
