"""Who is told to be of an unseen class, against who is: decisions by their confusion, scores by all thresholds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.evaluation.metrics._arrays import check_aligned, mask, numbers

__all__ = ["Confusion", "aupr", "auroc", "fpr_at_95", "oracle_mcc"]


@dataclass(frozen=True)
class Confusion:
    """Counts of rejected and kept vertices against unseen and known ones; counts of several tasks can be added.

    Parameters
    ----------
    tp, tn, fp, fn
        Unseen and rejected; known and kept; known but rejected; unseen but kept.

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
        said, true = mask(rejected), mask(unseen)
        check_aligned(said, true)
        return cls(*(int(np.sum(both)) for both in (said & true, ~said & ~true, said & ~true, ~said & true)))

    def __add__(self, other: Confusion) -> Confusion:
        return Confusion(self.tp + other.tp, self.tn + other.tn, self.fp + other.fp, self.fn + other.fn)

    @property
    def mcc(self) -> float:
        """Matthews correlation coefficient: 1 is right, -1 is the reverse; 0 where one side has but one kind."""
        below = (self.tp + self.fp) * (self.tp + self.fn) * (self.tn + self.fp) * (self.tn + self.fn)
        return (self.tp * self.tn - self.fp * self.fn) / math.sqrt(below) if below else 0.0

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
        values, true = numbers(score), mask(positive)
        check_aligned(values, true)
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

    Parameters
    ----------
    score, positive
        As in `auroc`. Without positives, or without negatives, the figure is NaN.

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

    Parameters
    ----------
    score, positive
        As in `auroc`. Without positives, or without negatives, the figure is NaN.

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

    Parameters
    ----------
    score, positive
        As in `auroc`.

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
