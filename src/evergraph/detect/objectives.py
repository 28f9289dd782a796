"""Objectives: which vertices to flag, given the probability that the class of each is unseen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError

__all__ = ["OBJECTIVES", "Objective", "expected_open_f1"]

OBJECTIVES = {
    "mcc": "the highest MCC",
    "open-f1": "the highest Open-F1; no vertex is flagged where flagging does not pay",
    "budget:N": "the N vertices of each slice that are most likely unseen",
    "false-alarms:RATE": "as many as possible, with at most this share of known vertices flagged",
}
"""Objectives as text, and what each of them flags."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Objective:
    """What flagging is for.

    Parameters
    ----------
    kind
        The first part of one of `OBJECTIVES`.
    value
        The number of vertices or the rate, if the objective has one.

    Examples
    --------
    >>> Objective.parse("budget:50")
    Objective(kind='budget', value=50.0)
    >>> Objective.parse("false-alarms:2")
    Traceback (most recent call last):
    evergraph.errors.InputError: the objective is 'false-alarms:2'. Write a rate from 0 to 1, as in false-alarms:0.05.
    """

    kind: Literal["mcc", "open-f1", "budget", "false-alarms"]
    value: float = math.nan

    @classmethod
    def parse(cls, text: object) -> Objective:
        """Read an objective from its text."""
        name, colon, rest = str(text).partition(":")
        try:
            value = float(rest) if colon else math.nan
        except ValueError:
            value = math.nan
        problem = f"the objective is {text!r}"
        if name == "budget":
            if not (value >= 0 and value.is_integer()):
                raise InputError(problem, fix="write a whole number of vertices, as in budget:50")
            return cls("budget", value)
        if name == "false-alarms":
            if not 0 <= value <= 1:
                raise InputError(problem, fix="write a rate from 0 to 1, as in false-alarms:0.05")
            return cls("false-alarms", value)
        if text == "mcc":
            return cls("mcc")
        if text == "open-f1":
            return cls("open-f1")
        raise InputError(problem, fix=f"choose from {', '.join(OBJECTIVES)}")

    def flags(
        self,
        probability: Array,
        classes: Array,
        *,
        threshold: float,
        births: float,
        known_scores: Array,
    ) -> NDArray[np.bool_]:
        """Return whether each vertex of a slice is flagged.

        Parameters
        ----------
        probability
            Probability that the class of each vertex is unseen.
        classes
            Probability of each known class, provided that the class is known.
        threshold
            Probability from which on ``mcc`` flags.
        births
            Probability that a slice has an unseen class at all.
        known_scores
            Probabilities that vertices of known classes were given in past slices.
        """
        if self.kind == "mcc":
            return probability >= threshold
        if self.kind == "budget":
            return _most_likely(probability, int(self.value))
        if self.kind == "false-alarms":
            if not len(known_scores):
                return np.zeros(len(probability), bool)
            allowed = math.floor(self.value * (len(known_scores) + 1))
            if allowed > len(known_scores):
                return np.ones(len(probability), bool)
            least = np.sort(known_scores)[::-1][allowed - 1] if allowed else math.inf
            return probability > least
        expected = expected_open_f1(probability, classes, births)
        return _most_likely(probability, int(expected.argmax()))


def _most_likely(probability: Array, number: int) -> NDArray[np.bool_]:
    """Flag a number of vertices; fewer if several share the probability at the limit."""
    if number >= len(probability):
        return np.ones(len(probability), bool)
    return probability > np.sort(probability)[::-1][number]


def expected_open_f1(probability: Array, classes: Array, births: float) -> Array:
    """Return the expected Open-F1 if the 0, 1, 2, ... vertices that are most likely unseen are flagged.

    F1 is computed with expected counts. If the slice has no unseen class, a single flagged vertex adds a class
    with an F1 of 0, which costs about as much as one known class contributes.

    Examples
    --------
    >>> sure = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    >>> expected_open_f1(np.array([0.01, 0.01, 0.95]), sure, births=0.9).argmax()
    np.int64(1)
    >>> expected_open_f1(np.array([0.01, 0.01, 0.95]), sure, births=0.1).argmax()
    np.int64(0)
    """
    order = np.argsort(-probability, kind="stable")
    known = 1 - probability
    best = classes.argmax(1) if classes.shape[1] else np.zeros(len(probability), np.int64)
    right = known * classes.max(1, initial=0)
    width = classes.shape[1]
    decided = np.bincount(best, minlength=width).astype(float)
    hits: Array = np.bincount(best, right, minlength=width).astype(float)
    true = known @ classes
    occurs = max(float(np.maximum(decided > 0, 1 - np.exp(-true)).sum()), 1e-9)
    unseen, found, total = float(probability.sum()), 0.0, float(_f1(hits, decided, true).sum())
    values = [births * total / (occurs + 1) + (1 - births) * total / occurs]
    for flagged, vertex in enumerate(order.tolist(), start=1):
        of = best[vertex]
        before = _f1(hits[of], decided[of], true[of])
        hits[of], decided[of] = hits[of] - right[vertex], decided[of] - 1
        total += float(_f1(hits[of], decided[of], true[of]) - before)
        found += float(probability[vertex])
        own = float(_f1(found, flagged, unseen))
        values.append(births * (total + own) / (occurs + 1) + (1 - births) * total / (occurs + 1))
    return np.array(values)


def _f1(hits: Array | float, decided: Array | float, true: Array | float) -> Array:
    return np.asarray(2 * np.maximum(hits, 0) / np.maximum(np.add(decided, true), 1e-9))
