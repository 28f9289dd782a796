"""Which detector or learner of a comparison to take, in words and with the numbers that speak for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evergraph.evaluation.comparison import Candidate, Comparison
from evergraph.evaluation.learner_specs import LearnerSpec
from evergraph.evaluation.learners import LearnerComparison
from evergraph.evaluation.metrics import over_seeds
from evergraph.names import DEFAULT_DETECTOR, build_detector

__all__ = ["LearnerAdvice", "Recommendation", "recommend", "recommend_learner"]

_NONE = "none"
_POINTS = 0.5  # percentage points of accuracy that are given up for a cheaper learner


@dataclass(frozen=True)
class Recommendation:
    """A detector, as ``--detector`` takes it, and the reason in sentences."""

    detector: str
    reason: str


@dataclass(frozen=True)
class _Measured:
    """MCC and false alarms of a candidate, one number per seed; means over the graphs."""

    candidate: Candidate
    mcc: NDArray[np.float64]
    false_alarms: NDArray[np.float64]

    @property
    def name(self) -> str:
        return self.candidate.name

    @property
    def is_simple(self) -> bool:
        return self.candidate.detector.requires.auxiliary is None

    def __str__(self) -> str:
        found = over_seeds(self.mcc)
        spread = "" if math.isnan(found.half) else f" ± {found.half:.3f}"
        return f"{found.mean:.3f}{spread} (false alarms: {self.false_alarms.mean():.1%})"


def recommend(comparison: Comparison) -> Recommendation | None:
    """Return the detector with the best MCC, or a simpler one that differs from it by less than the spread of seeds.

    The default detector is preferred, then those without an auxiliary model. None if a result is missing, or no vertex
    that was decided has a label.
    """
    measured = []
    for one in comparison.candidates:
        summary = comparison.over_graphs(one.name)
        if not summary or summary["unseen"]["mean"] is None:
            return None
        if summary["unseen"]["mean"] == 0:
            return Recommendation(_NONE, "No vertex of these tasks is of an unseen class: there is nothing to detect.")
        if one.name != _NONE:
            values = (np.array(summary[name]["per_seed"], np.float64) for name in ("mcc", "false_alarm_rate"))
            measured.append(_Measured(one, *values))
    if not measured:
        return None
    best = max(measured, key=lambda one: float(one.mcc.mean()))
    if best.mcc.mean() <= 0:
        why = f"No detector is better than chance: the best MCC, of {best.name}, is {best}."
        return Recommendation(_NONE, why)
    return Recommendation(*_choose(best, measured, len(comparison.seeds)))


def _choose(best: _Measured, measured: list[_Measured], seeds: int) -> tuple[str, str]:
    others = sorted((one for one in measured if one is not best), key=lambda one: -float(one.mcc.mean()))
    if seeds == 1:
        against = f" Next best: {others[0].name} with {others[0]}." if others else ""
        more = " One seed does not show the spread: compare several seeds, such as --seeds 0-4, before you decide."
        return best.name, f"{best.name} has the best MCC, {best}.{against}{more}"
    equal = [best, *(one for one in others if not _differs(best.mcc - one.mcc))]
    usual = build_detector(DEFAULT_DETECTOR)
    chosen = min(equal, key=lambda one: (one.candidate.detector != usual, not one.is_simple))
    if chosen is not best:
        what = "the default" if chosen.candidate.detector == usual else "without an auxiliary model"
        reason = (
            f"The MCC of {chosen.name}, {what}, is {chosen}. That of {best.name} is the best, {best}, but the "
            f"difference is within the spread of {seeds} seeds."
        )
    else:
        reason = f"{best.name} has the best MCC, {best}."
        if len(equal) > 1:
            reason += f" {_named(equal[1:])} within the spread of {seeds} seeds of it."
        elif others:
            reason += (
                f" The next best, {others[0].name} with {others[0]}, is worse by more than the spread of {seeds} seeds."
            )
    calmest = min(equal, key=lambda one: float(one.false_alarms.mean()))
    if calmest is not chosen and _differs(chosen.false_alarms - calmest.false_alarms):
        reason += f" If false alarms are expensive, take {calmest.name}: {calmest.false_alarms.mean():.1%}."
    if not _differs(chosen.mcc):
        reason += (
            f" The MCC of {chosen.name} does not differ from chance (0) by more than the spread: compare more seeds."
        )
    return chosen.name, reason


def _differs(differences: NDArray[np.float64]) -> bool:
    """Whether the mean over seeds is positive by more than half of its 95 % interval."""
    found = over_seeds(differences)
    return bool(found.mean > found.half)


def _named(some: list[_Measured]) -> str:
    names = [f"{one.name} ({one.mcc.mean():.3f})" for one in some]
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} are"


# --- learners --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LearnerAdvice:
    """A learner, and the reason in sentences."""

    learner: LearnerSpec
    reason: str


def recommend_learner(comparison: LearnerComparison) -> LearnerAdvice | None:
    """Return the learner with the fastest updates of those within 0.5 points of the best accuracy.

    Accuracies and seconds are means over the graphs. Learners without all results are left out; None if none is left.
    """
    found: dict[LearnerSpec, tuple[float, float]] = {}
    for one in comparison.learners:
        summary = comparison.over_graphs(one.name)
        accuracy, seconds = (summary[name]["mean"] if summary else None for name in ("accuracy", "seconds"))
        if accuracy is not None and seconds is not None:
            found[one] = accuracy, seconds
    if not found:
        return None
    best = max(found, key=lambda one: found[one][0])
    near = [one for one in found if found[best][0] - found[one][0] <= _POINTS / 100 + 1e-12]
    chosen = min(near, key=lambda one: found[one][1])

    def in_words(one: LearnerSpec) -> str:
        accuracy, seconds = found[one]
        return f"accuracy {accuracy:.1%}, {seconds:.3g} s an update"

    if chosen is best:
        reason = f"It has the best accuracy, and no learner within {_POINTS} points of it is faster: {in_words(best)}."
    else:
        reason = (
            f"It is the fastest within {_POINTS} points of the best accuracy: {in_words(chosen)}. "
            f"The best is {best.name}: {in_words(best)}."
        )
    if len(comparison.seeds) == 1:
        reason += " One seed does not show the spread: compare several seeds, such as --seeds 0-4, before you decide."
    return LearnerAdvice(chosen, reason)
