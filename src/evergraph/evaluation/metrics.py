"""Metrics of decisions: accuracy and F1, detection of unseen classes, forward transfer, confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
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
    "calibration_error",
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
    """Share of vertices whose class is predicted correctly; NaN for no vertices.

    Examples
    --------
    >>> accuracy(["KDD", "ICML", "KDD", "WWW"], ["KDD", "ICML", "ICML", "KDD"])
    0.5
    """
    true, best = _names(truth), _names(predicted)
    _check_aligned(true, best)
    return float(np.mean(true == best)) if true.size else math.nan


def macro_f1(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Mean F1 of the classes that occur in the truth or in the predictions; NaN for no vertices.

    Examples
    --------
    >>> macro_f1(["KDD", "KDD", "ICML"], ["KDD", "KDD", "WWW"])  # F1 of 1, 0 and 0
    0.3333333333333333
    """
    true, best = _names(truth), _names(predicted)
    _check_aligned(true, best)
    if not true.size:
        return math.nan
    # Rows by first occurrence, not by alphabet: renaming the classes does not change the sum in the last bit.
    row_of = {name: row for row, name in enumerate(dict.fromkeys([*true, *best]))}
    rows = np.array([[row_of[name] for name in side] for side in (true, best)])
    occurs = np.bincount(rows.ravel())  # never 0: every row occurs on one of the sides
    hits = np.bincount(rows[0, rows[0] == rows[1]], minlength=len(row_of))
    return float(np.mean(2 * hits / occurs))


def open_macro_f1(truth: ArrayLike, decided: ArrayLike, unseen: ArrayLike) -> float:
    """Macro-F1 of the decisions, with "unseen" as one more class (Open-F1).

    As in `macro_f1`, a class counts only where it occurs. If no vertex is unseen, a single flagged vertex adds a class
    with an F1 of 0; if none is flagged either, the result is the plain macro-F1.

    Parameters
    ----------
    truth
        Class name of each vertex, also if that class is unseen.
    decided
        Decided class name of each vertex, `UNSEEN` where it is flagged.
    unseen
        Whether the class of each vertex is unseen.

    Examples
    --------
    >>> truth = ["KDD", "KDD", "KDD", "WWW"]
    >>> open_macro_f1(truth, ["KDD", "KDD", "KDD", "unseen"], unseen=[False, False, False, True])
    1.0
    >>> round(open_macro_f1(truth[:3], ["KDD", "KDD", "unseen"], unseen=[False] * 3), 3)  # F1 of .8 and 0
    0.4
    """
    true, chosen, new = _names(truth), _names(decided), _mask(unseen)
    _check_aligned(true, chosen, new)
    return macro_f1(np.where(new, UNSEEN, true), chosen)


# --- detection of unseen classes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Confusion:
    """Counts of flagged against truly unseen vertices; positive means unseen. Counts of several tasks can be added.

    Examples
    --------
    >>> first = Confusion.of(flagged=[True, True, False], unseen=[True, False, False])
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
    def of(cls, flagged: ArrayLike, unseen: ArrayLike) -> Confusion:
        """Count from two boolean masks over vertices."""
        said, true = _mask(flagged), _mask(unseen)
        _check_aligned(said, true)
        return cls(*(int(np.sum(both)) for both in (said & true, ~said & ~true, said & ~true, ~said & true)))

    def __add__(self, other: Confusion) -> Confusion:
        return Confusion(self.tp + other.tp, self.tn + other.tn, self.fp + other.fp, self.fn + other.fn)

    @property
    def mcc(self) -> float:
        """Matthews correlation coefficient, from -1 to 1; 0 if all or no vertices are flagged, or unseen."""
        below = (self.tp + self.fp) * (self.tp + self.fn) * (self.tn + self.fp) * (self.tn + self.fn)
        return (self.tp * self.tn - self.fp * self.fn) / math.sqrt(below) if below else 0.0

    def share(self, part: int) -> float:
        """Share of all vertices; NaN if there are none."""
        total = self.tp + self.tn + self.fp + self.fn
        return part / total if total else math.nan

    @property
    def false_alarm_rate(self) -> float:
        """Share of the vertices of known classes that is flagged; NaN if there are none."""
        known = self.fp + self.tn
        return self.fp / known if known else math.nan


def _sweep(score: ArrayLike, positive: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64], int, int]:
    """Return true and false positives at each threshold, from flagging none (0, 0) to all, and their totals."""
    values, true = _numbers(score), _mask(positive)
    _check_aligned(values, true)
    order = np.argsort(-values, kind="stable")
    values, true = values[order], true[order]
    # A threshold cannot separate equal scores: only the last of them is a cut.
    last = np.append(values[1:] != values[:-1], True)[: len(values)]
    tp, fp = (np.append(0, np.cumsum(kind)[last]).astype(np.int64) for kind in (true, ~true))
    return tp, fp, int(tp[-1]), int(fp[-1])


def auroc(score: ArrayLike, positive: ArrayLike) -> float:
    """Probability that a positive vertex scores higher than a negative one; a tie counts as half.

    Parameters
    ----------
    score
        Score of each vertex; higher means more likely positive (for a detector: unseen).
    positive
        Whether each vertex is positive. The result is NaN without positives or without negatives.

    Examples
    --------
    >>> auroc([0.1, 0.4, 0.4, 0.9], [False, False, True, True])
    0.875
    """
    tp, fp, positives, negatives = _sweep(score, positive)
    if not positives or not negatives:
        return math.nan
    # Twice the area below the steps, in whole numbers: exact up to the division.
    doubled = np.sum(np.diff(fp) * (tp[1:] + tp[:-1]))
    return float(doubled / (2 * positives * negatives))


def aupr(score: ArrayLike, positive: ArrayLike) -> float:
    """Average precision: the precision at each threshold, weighted by the recall that it adds.

    Examples
    --------
    >>> aupr([0.1, 0.4, 0.8, 0.9], [False, True, False, True])  # precision 1 and then 2/3
    0.8333333333333333
    """
    tp, fp, positives, negatives = _sweep(score, positive)
    if not positives or not negatives:
        return math.nan
    precision = tp[1:] / (tp[1:] + fp[1:])
    return float(np.sum(np.diff(tp) * precision) / positives)


def fpr_at_95(score: ArrayLike, positive: ArrayLike) -> float:
    """False positive rate at the highest threshold that finds at least 95 % of the positives.

    Examples
    --------
    >>> fpr_at_95([0.1, 0.4, 0.8, 0.9], [False, True, False, True])
    0.5
    """
    tp, fp, positives, negatives = _sweep(score, positive)
    if not positives or not negatives:
        return math.nan
    enough = 20 * tp >= 19 * positives  # 95 %, without rounding
    return float(fp[np.argmax(enough)] / negatives)


def calibration_error(probability: ArrayLike, unseen: ArrayLike, bins: int = 10) -> float:
    """Expected calibration error: how far the mean probability of a bin is from its share of unseen vertices.

    Bins have equally many vertices, so that rare high probabilities get bins of their own. NaN if a score is not
    between 0 and 1, or without vertices.

    Examples
    --------
    >>> round(calibration_error([0.1, 0.1, 0.9, 0.9], [False, False, True, False], bins=2), 2)
    0.25
    """
    p, truth = np.asarray(probability, np.float64), _mask(unseen)
    _check_aligned(p, truth)
    if not len(p) or p.min() < 0 or p.max() > 1:
        return math.nan
    parts = np.array_split(np.argsort(p, kind="stable"), min(bins, len(p)))
    return float(sum(len(part) * abs(p[part].mean() - truth[part].mean()) for part in parts) / len(p))


def oracle_mcc(score: ArrayLike, positive: ArrayLike) -> float:
    """Return the largest MCC that any threshold on the scores reaches.

    The threshold is chosen with the truth, so this is an upper bound, not a result. It is never below 0, the MCC of
    flagging nothing; without positives or without negatives it is 0.

    Examples
    --------
    >>> oracle_mcc([0.1, 0.4, 0.8, 0.9], [False, False, True, True])
    1.0
    >>> oracle_mcc([0.9, 0.1], [False, True])
    0.0
    """
    counts, other, positives, negatives = _sweep(score, positive)
    if len(counts) < 3 or not positives or not negatives:
        return 0.0
    # The first and the last cut, nothing or all flagged, have an MCC of 0 by definition. Floats do not overflow.
    tp, fp = counts[1:-1].astype(np.float64), other[1:-1].astype(np.float64)
    flagged = tp + fp
    below = np.sqrt((positives * flagged) * (negatives * (positives + negatives - flagged)))
    return max(0.0, float(np.max((tp * negatives - fp * positives) / below)))


# --- all figures of a task -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskScores:
    """All metrics of one task over its labelled test vertices; NaN where a metric is undefined.

    A vertex can be unseen in two ways: the learner does not know its class, or no earlier vertex of the graph has it
    (``never_before``). The two differ where labels are missing or the history is short. Metrics refer to the former
    unless their names say ``never_before``.

    Parameters
    ----------
    vertices
        Number of labelled test vertices.
    accuracy
        Accuracy of the most likely known class; always wrong for a vertex of an unseen class.
    id_accuracy
        Accuracy on the vertices of known classes.
    macro_f1, open_f1
        `macro_f1` of the most likely known class, and `open_macro_f1` of the decisions.
    rejected
        Share of the decided vertices that is flagged as unseen; those without a label count, too.
    confusion, auroc, aupr, fpr95, oracle_mcc
        Flagged vertices and scores against unseen classes.
    confusion_never_before, auroc_never_before, open_f1_never_before
        The same against classes that never occurred before in the graph.

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
        """Return a flat dict for JSON: None for NaN, and each confusion as ``tp``, ``tn``, ``fp`` and ``fn``."""
        flat: dict[str, int | float | None] = {}
        for name, value in vars(self).items():
            if isinstance(value, Confusion):
                flat |= {count + name.removeprefix("confusion"): number for count, number in vars(value).items()}
            else:
                flat[name] = or_none(value)
        return flat

    @classmethod
    def from_dict(cls, flat: Mapping[str, Any]) -> TaskScores:
        """Read what `as_dict` returns; other keys are ignored."""
        values: dict[str, Any] = {}
        try:
            for name in (field.name for field in fields(cls)):
                if name.startswith("confusion"):
                    suffix = name.removeprefix("confusion")
                    values[name] = Confusion(**{count.name: flat[count.name + suffix] for count in fields(Confusion)})
                else:
                    values[name] = math.nan if flat[name] is None else flat[name]
        except KeyError as key:
            raise InputError(f"the scores of a task lack {key}", fix="pass everything that as_dict returned") from None
        return cls(**values)


def score_task(
    truth: ArrayLike,
    argmax: ArrayLike,
    decided: ArrayLike,
    score: ArrayLike,
    unseen: ArrayLike,
    never_before: ArrayLike,
) -> TaskScores:
    """Compute all metrics of one task from arrays over its labelled test vertices, which may be empty.

    Parameters
    ----------
    truth
        Class name of each vertex.
    argmax
        Most likely known class of each vertex.
    decided
        Decided class of each vertex, `UNSEEN` where it is flagged.
    score
        Score of each vertex; higher means more likely unseen.
    unseen
        Whether the learner does not know the class of each vertex.
    never_before
        Whether the class of each vertex never occurred before in the graph.

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
    true, best, chosen = _names(truth), _names(argmax), _names(decided)
    values, new, never = _numbers(score), _mask(unseen), _mask(never_before)
    _check_aligned(true, best, chosen, values, new, never)
    flagged = np.equal(chosen, UNSEEN).astype(np.bool_)
    return TaskScores(
        vertices=len(true),
        accuracy=accuracy(true, best),
        id_accuracy=accuracy(true[~new], best[~new]),
        macro_f1=macro_f1(true, best),
        open_f1=open_macro_f1(true, chosen, new),
        rejected=float(flagged.mean()) if len(true) else math.nan,
        confusion=Confusion.of(flagged, new),
        auroc=auroc(values, new),
        aupr=aupr(values, new),
        fpr95=fpr_at_95(values, new),
        oracle_mcc=oracle_mcc(values, new),
        confusion_never_before=Confusion.of(flagged, never),
        auroc_never_before=auroc(values, never),
        open_f1_never_before=open_macro_f1(true, chosen, never),
    )


def evaluate(task: Task, decisions: Decisions) -> TaskScores:
    """Compute all metrics of a task's decisions; vertices without a label count only for ``rejected``.

    A class counts as unseen if it was never among the labels that the learner trained on, which depends on the history
    and on the released labels. It counts as ``never_before`` if no vertex of an earlier period has it.
    """
    truth = task.truth
    if decisions.time != task.time or len(truth) != len(decisions):
        raise InputError(
            f"the decisions are on {len(decisions):,} vertices of {task.graph.axis.label(decisions.time)}, but the "
            f"task has {len(truth):,} of {task.graph.axis.label(task.time)}",
            fix="pass the decisions of this task",
        )
    labelled = np.array([name is not None for name in truth], bool)
    truth = truth[labelled]
    known = set(decisions.known)
    scores = score_task(
        truth,
        decisions.best[labelled],
        decisions.classes[labelled],
        decisions.score[labelled],
        np.array([name not in known for name in truth], bool),
        task.never_before[labelled],
    )
    return replace(scores, rejected=float(decisions.flagged.mean()) if len(decisions) else math.nan)


# --- tasks and seeds -------------------------------------------------------------------------------------------------


def forward_transfer(warm: ArrayLike, cold: ArrayLike) -> float:
    """Mean gain in accuracy of warm over cold restarts, from the second task on; NaN with fewer than two tasks.

    Parameters
    ----------
    warm, cold
        Accuracy by seed (row) and task (column), with the same tasks. The numbers of seeds may differ: each task is
        averaged over the seeds first, without NaN.

    Examples
    --------
    >>> round(forward_transfer(warm=[[0.1, 0.6, 0.8], [0.1, 0.8, 0.8]], cold=[[0.9, 0.6, 0.6]]), 4)
    0.15
    """
    kept, fresh = np.asarray(warm, np.float64), np.asarray(cold, np.float64)
    if kept.ndim != 2 or fresh.ndim != 2 or kept.shape[1] != fresh.shape[1]:
        raise InputError(
            f"the accuracies with warm and cold restarts have shapes {kept.shape} and {fresh.shape}",
            fix="pass one row per seed and one column per task, with the same tasks in both",
        )
    if kept.shape[1] < 2:
        return math.nan
    return float(mean_known((mean_known(kept, axis=0) - mean_known(fresh, axis=0))[1:]))


@dataclass(frozen=True)
class Interval:
    """A mean, half the width of its 95 % confidence interval, and the number of values; NaN for too few values."""

    mean: float
    half: float
    n: int

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half


def over_seeds(values: ArrayLike) -> Interval:
    """Mean over seeds with Student's 95 % interval, which covers the randomness of the seeds; NaN is left out.

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
    """Mean over all tasks of all seeds (rows: seeds, columns: tasks) with the paper's interval; NaN is left out.

    The interval is 1.96 standard errors of the pooled values. It mostly measures how tasks differ and treats the tasks
    of one seed as independent runs. Use `over_seeds` instead, except to compare with the paper's tables.

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
        wanted = "one value per seed" if axes == 1 else "one row per seed and one column per task"
        raise InputError(f"the values have shape {array.shape}", fix=f"pass {wanted}")
    return array[~np.isnan(array)]


def _interval(known: NDArray[np.float64], quantile: float) -> Interval:
    n = len(known)
    half = quantile * float(known.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Interval(float(known.mean()) if n else math.nan, half, n)


def mean_known(values: NDArray[np.float64], axis: int | None = None) -> NDArray[np.float64]:
    """Mean without NaN; NaN if nothing is left, without the warning of ``np.nanmean``."""
    known = ~np.isnan(values)
    count = known.sum(axis)
    total = np.where(known, values, 0.0).sum(axis)
    return np.divide(total, count, out=np.full(np.shape(count), np.nan), where=count > 0)


def or_none(value: float) -> float | None:
    """Return None for NaN, which JSON cannot represent."""
    return None if math.isnan(value) else value


# --- arrays ----------------------------------------------------------------------------------------------------------


def _names(values: ArrayLike) -> NDArray[np.object_]:
    """Check that all values are class names: rows or codes would silently never match."""
    array = np.asarray(values, dtype=object)
    for value in array.flat:
        if not isinstance(value, str):
            raise InputError(
                f"{value!r} is not a class name",
                fix="pass the class names of labelled vertices as strings, not rows or codes",
            )
    return array


def _mask(values: ArrayLike) -> NDArray[np.bool_]:
    """Check that all values are booleans: a list of positions is not a mask."""
    array = np.asarray(values)
    if array.size and array.dtype != np.bool_:
        raise InputError(f"a mask has type {array.dtype}, not boolean", fix="pass True or False for each vertex")
    return array.astype(np.bool_)


def _numbers(values: ArrayLike) -> NDArray[np.float64]:
    """Check that no score is NaN: it would be neither above nor below a threshold."""
    array = np.asarray(values, np.float64)
    if missing := int(np.isnan(array).sum()):
        raise InputError(f"{missing} of {array.size} scores are NaN", fix="check the detector that computed the scores")
    return array


def _check_aligned(*arrays: NDArray[Any]) -> None:
    shapes = [array.shape for array in arrays]
    if len(shapes[0]) != 1 or len(set(shapes)) > 1:
        listed = ", ".join(map(str, shapes))
        raise InputError(f"the arrays have shapes {listed}", fix="pass one value per vertex in each array")
