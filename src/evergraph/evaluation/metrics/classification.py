"""Which share of the decisions is right: accuracy, macro F1, and macro F1 where 'unseen' is an answer too."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from evergraph.evaluation.metrics._arrays import check_aligned, mask, names
from evergraph.graph.classes import UNSEEN

__all__ = ["accuracy", "macro_f1", "open_macro_f1"]


def accuracy(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Share of vertices whose class is predicted right; NaN for no vertices.

    Parameters
    ----------
    truth, predicted
        Class name by vertex.

    Examples
    --------
    >>> accuracy(["KDD", "ICML", "KDD", "WWW"], ["KDD", "ICML", "ICML", "KDD"])
    0.5
    """
    true, said = names(truth), names(predicted)
    check_aligned(true, said)
    return float(np.mean(true == said)) if true.size else math.nan


def macro_f1(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Mean F1 of the classes that occur in the truth or among the predictions; NaN for no vertices.

    Parameters
    ----------
    truth, predicted
        Class name by vertex.

    Examples
    --------
    >>> macro_f1(["KDD", "KDD", "ICML"], ["KDD", "KDD", "WWW"])  # F1 of 1, 0 and 0
    0.3333333333333333
    """
    true, said = names(truth), names(predicted)
    check_aligned(true, said)
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
    true, said, new = names(truth), names(decided), mask(unseen)
    check_aligned(true, said, new)
    return macro_f1(np.where(new, UNSEEN, true), said)
