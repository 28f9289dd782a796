"""Which detector of a comparison to take, in words and with the numbers that speak for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evergraph.evaluation.comparison import Candidate, Comparison
from evergraph.evaluation.metrics import over_seeds
from evergraph.names import DEFAULT_DETECTOR, build_detector

__all__ = ["Recommendation", "recommend"]

_NONE = "none"


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
