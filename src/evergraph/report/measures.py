"""Parts of a report that count decisions: confusion, calibration, thresholds, shares with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evergraph.evaluation.metrics import over_seeds
from evergraph.graph.classes import UNSEEN
from evergraph.names import described
from evergraph.report.content import Band, Calibration, CalibrationBin, ConfusionTable, Missing, ThresholdCurve

OTHER = "other classes"

_LARGEST = 10  # classes of a confusion
_BINS = 10
_CUTS = 100  # of a threshold curve
_AXES = {
    "probability": "Threshold: vertices with a lower probability are flagged",
    "score": "Threshold: vertices with a higher score are flagged",
}
_NO_TRUTH = Missing(
    "No decided vertex has a label, so the decisions cannot be compared with the truth. Label some, and run again."
)


def band_over_seeds(values: NDArray[np.float64]) -> Band | None:
    """Mean of a share over seeds with Student's interval, cut to 0 and 1; None if all values are NaN.

    Examples
    --------
    >>> band_over_seeds(np.array([0.25, 0.75])), band_over_seeds(np.array([0.5]))
    (Band(mean=0.5, low=0.0, high=1.0), Band(mean=0.5, low=None, high=None))
    """
    found = over_seeds(values)
    if not found.n:
        return None
    if found.n == 1:
        return Band(found.mean)
    return Band(found.mean, max(0.0, found.low), min(1.0, found.high))


def band_of_share(share: float, n: int) -> Band | None:
    """Return a share of ``n`` vertices with Wilson's 95 % interval.

    Examples
    --------
    >>> band = band_of_share(0.5, 100)
    >>> round(band.low, 3), round(band.high, 3)
    (0.404, 0.596)
    """
    if not n or math.isnan(share):
        return None
    z = 1.959963984540054
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Band(share, max(0.0, centre - half), min(1.0, centre + half))


def confusion_of(
    truth: NDArray[np.object_], decided: NDArray[np.object_], unseen: NDArray[np.bool_], over: str
) -> ConfusionTable | Missing:
    """Count true classes against decisions for the largest classes; all arrays are over labelled vertices.

    ``decided`` has names of known classes or `UNSEEN`; ``unseen`` is whether the learner did not know the class.

    Examples
    --------
    >>> truth, unseen = np.array(["x", "x", "y"], object), np.array([False, False, True])
    >>> confusion_of(truth, np.array(["x", "unseen", "unseen"], object), unseen, "a test")
    ConfusionTable(names=('x', 'unseen'), counts=((1, 1), (0, 1)), over='a test')
    """
    if not len(truth):
        return _NO_TRUTH
    true = np.where(unseen, UNSEEN, truth)
    found, counts = np.unique(true[~unseen].astype(str), return_counts=True)
    largest = [str(found[row]) for row in np.argsort(-counts, kind="stable")[:_LARGEST]]
    place = {name: row for row, name in enumerate(largest)}
    other, last = len(largest), len(largest) + 1

    def places(names: NDArray[np.object_]) -> NDArray[np.int64]:
        return np.array([last if name == UNSEEN else place.get(name, other) for name in names], np.int64)

    table = np.zeros((last + 1, last + 1), np.int64)
    np.add.at(table, (places(true), places(decided)), 1)
    names = [*largest, OTHER, UNSEEN]
    if not (table[other].any() or table[:, other].any()):
        names, table = [*largest, UNSEEN], np.delete(np.delete(table, other, 0), other, 1)
    return ConfusionTable(tuple(names), tuple(tuple(row) for row in table.tolist()), over)


def calibration_of(probability: NDArray[np.float64], right: NDArray[np.bool_]) -> Calibration | Missing:
    """Compare probability and accuracy in ten bins of equal width.

    Examples
    --------
    >>> calibration_of(np.array([0.25, 0.75, 0.75]), np.array([False, True, True])).bins[-1]
    CalibrationBin(confidence=0.75, accuracy=1.0, count=2)
    """
    if not len(right):
        return _NO_TRUTH
    # A value on an edge belongs to the bin below it, as in scikit-learn.
    edges = np.linspace(0, 1, _BINS + 1)
    at = np.clip(np.searchsorted(edges[1:-1], probability), 0, _BINS - 1)
    counts = np.bincount(at, minlength=_BINS)
    confidence = np.bincount(at, probability, _BINS)
    rights = np.bincount(at, right, _BINS)
    error = float(np.abs(rights - confidence).sum() / counts.sum())
    bins = [
        CalibrationBin(float(confidence[row] / counts[row]), float(rights[row] / counts[row]), int(counts[row]))
        for row in np.flatnonzero(counts)
    ]
    return Calibration(tuple(bins), error)


def threshold_curve_of(
    values: NDArray[np.float64],
    unseen: NDArray[np.bool_],
    *,
    on: Literal["probability", "score"],
    in_force: float | None,
) -> ThresholdCurve | Missing:
    """Return false alarms, found vertices and MCC of each threshold on labelled vertices.

    A vertex is flagged if the ``probability`` of its best known class is below the threshold, or its ``score`` above.

    Examples
    --------
    >>> p, unseen = np.array([0.9, 0.6, 0.3]), np.array([False, False, True])
    >>> curve = threshold_curve_of(p, unseen, on="probability", in_force=0.5)
    >>> curve.thresholds[50], curve.found[50], curve.false_alarms[50], curve.mcc[50]
    (0.5, 1.0, 0.0, 1.0)
    """
    if not len(unseen):
        return _NO_TRUTH
    if not unseen.any() or unseen.all():
        whose = "unseen" if unseen.all() else "known"
        return Missing(f"All labelled vertices have {whose} classes, so thresholds cannot be compared.")
    steps = np.arange(_CUTS + 1) / _CUTS
    cuts = steps if on == "probability" else np.unique(np.quantile(values, steps))
    if in_force is not None:
        cuts = np.union1d(cuts, [in_force])
    found, alarms = (_flagged_at(cuts, values[part], on) for part in (unseen, ~unseen))
    positives, negatives = float(unseen.sum()), float((~unseen).sum())
    flagged = found + alarms
    below = np.sqrt(positives * flagged) * np.sqrt(negatives * (positives + negatives - flagged))
    product = found * negatives - alarms * positives
    mcc = np.divide(product, below, out=np.zeros(len(cuts)), where=below > 0)
    return ThresholdCurve(
        axis=_AXES[on],
        thresholds=tuple(cuts.tolist()),
        false_alarms=tuple((alarms / negatives).tolist()),
        found=tuple((found / positives).tolist()),
        mcc=tuple(mcc.tolist()),
        in_force=in_force,
    )


def threshold_of(
    detector: Mapping[str, Any],
    probability: NDArray[np.float64],
    score: NDArray[np.float64],
    unseen: NDArray[np.bool_],
) -> ThresholdCurve | Missing:
    """Return the thresholds of a detector by its settings: on probabilities if these alone decide, else on scores.

    Examples
    --------
    >>> p, unseen = np.array([0.9, 0.6, 0.3]), np.array([False, False, True])
    >>> threshold_of({"name": "gdoc", "threshold": 0.75, "alpha": None}, p, 0.75 - p, unseen).in_force
    0.75
    """
    ours = detector.get("name") in ("none", "doc", "gdoc")
    if ours and detector.get("alpha") is None:
        if detector.get("threshold") is not None:
            probability = detector["threshold"] - score  # the model's own, without the classes of older neighbours
        return threshold_curve_of(probability, unseen, on="probability", in_force=detector.get("threshold"))
    return threshold_curve_of(score, unseen, on="score", in_force=0.0 if ours else _in_force(detector))


def _in_force(detector: Mapping[str, Any]) -> float | None:
    """Return the threshold of the scores of `AutoDetector`; None if there is no single one, or for another detector."""
    if detector.get("name") != "auto":
        return None
    if "objective" not in detector:  # version 3 or older, whose scores are relative to a threshold
        return 0.0
    from evergraph.detect import AutoDetector
    from evergraph.detect.discriminant import probability_of, shipped_prior

    if detector != described(AutoDetector("mcc")):  # other objectives choose a threshold for each slice
        return None
    return float(probability_of(np.array(shipped_prior().threshold)))


def _flagged_at(cuts: NDArray[np.float64], values: NDArray[np.float64], on: str) -> NDArray[np.float64]:
    ordered = np.sort(values)
    if on == "probability":
        return np.searchsorted(ordered, cuts, side="left").astype(np.float64)
    return (len(ordered) - np.searchsorted(ordered, cuts, side="right")).astype(np.float64)
