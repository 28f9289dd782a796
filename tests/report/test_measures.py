"""What is counted over decisions, against other ways to compute it."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix, matthews_corrcoef

from evergraph import LifelongLearner, tasks
from evergraph.datasets import synthetic
from evergraph.detect import AutoDetector
from evergraph.names import described
from evergraph.report.content import (
    Calibration,
    ConfusionTable,
    Missing,
    ThresholdCurve,
)
from evergraph.report.measures import (
    band_of_share,
    calibration_of,
    confusion_of,
    threshold_curve_of,
    threshold_of,
)

Part = TypeVar("Part")


def is_a(part: object, kind: type[Part]) -> Part:
    assert isinstance(part, kind), part
    return part


shares = st.floats(0, 1) | st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 1.0])


@given(st.lists(st.tuples(shares, st.booleans()), min_size=1, max_size=60))
def test_calibration_is_scikit_learns(rows: list[tuple[float, bool]]) -> None:
    probability, right = (np.array(column) for column in zip(*rows, strict=True))
    found = is_a(calibration_of(probability, right), Calibration)
    accuracy, confidence = calibration_curve(
        np.append(right, [True, False]), np.append(probability, [2, 2]) / 2, n_bins=20
    )
    kept = confidence < 0.99  # two that are not ours, for scikit-learn wants both kinds
    assert [one.accuracy for one in found.bins] == pytest.approx(accuracy[kept].tolist())
    assert [one.confidence for one in found.bins] == pytest.approx((2 * confidence[kept]).tolist())
    error = sum(one.count * abs(one.accuracy - one.confidence) for one in found.bins) / len(rows)
    assert found.error == pytest.approx(error)
    assert sum(one.count for one in found.bins) == len(rows)


@given(st.integers(0, 2**32), st.integers(1, 16), st.integers(1, 300))
def test_confusion_is_scikit_learns(seed: int, classes: int, n: int) -> None:
    draw = np.random.default_rng(seed)
    names = np.array([f"class {number}" for number in range(classes)], object)
    truth, said = draw.choice(names, n), draw.choice(np.append(names, "unseen"), n)
    unseen = draw.random(n) < 0.2
    found = is_a(confusion_of(truth, said, unseen, "a test"), ConfusionTable)
    assume(len(found.names) > 1)  # scikit-learn warns of a single one
    known = truth[~unseen].tolist()
    largest = sorted(set(known), key=lambda name: (-known.count(name), name))[:10]
    kept = {name: name for name in (*largest, "unseen")}
    true = [kept.get(name, "other classes") for name in np.where(unseen, "unseen", truth)]
    decided = [kept.get(name, "other classes") for name in said]
    assert list(found.names) == [*largest, *(["other classes"] if "other classes" in true + decided else []), "unseen"]
    assert np.array(found.counts).tolist() == confusion_matrix(true, decided, labels=list(found.names)).tolist()


@pytest.mark.parametrize("on", ["probability", "score"])
@pytest.mark.parametrize("seed", range(3))
def test_the_threshold_curve_is_what_each_threshold_does(on: Any, seed: int) -> None:
    draw = np.random.default_rng(seed)
    unseen = draw.random(80) < 0.3
    values = np.round(np.clip(draw.normal(0.5, 0.2, 80) + 0.2 * (unseen == (on == "score")), 0, 1), 2)  # with ties
    found = is_a(threshold_curve_of(values, unseen, on=on, in_force=0.505), ThresholdCurve)
    assert 0.505 in found.thresholds
    assert list(found.thresholds) == sorted(found.thresholds)
    for at, alarms, share, mcc in zip(found.thresholds, found.false_alarms, found.found, found.mcc, strict=True):
        rejected = [value < at if on == "probability" else value > at for value in values.tolist()]
        pairs = list(zip(rejected, unseen.tolist(), strict=True))
        assert share == sum(said and true for said, true in pairs) / unseen.sum()
        assert alarms == sum(said and not true for said, true in pairs) / (~unseen).sum()
        assert mcc == pytest.approx(matthews_corrcoef(unseen, rejected), abs=1e-12)


def test_the_threshold_is_that_of_the_detector() -> None:
    p, unseen = np.array([0.9, 0.6, 0.3]), np.array([False, False, True])
    for detector, axis, in_force in (
        ({"name": "doc", "threshold": 0.5, "alpha": None}, "Threshold: vertices with a lower probability", 0.5),
        ({"name": "doc", "threshold": 0.5, "alpha": 3.0}, "Threshold: vertices with a higher score", 0.0),
        ({"name": "none"}, "Threshold: vertices with a lower probability", None),
        ({"name": "Mine"}, "Threshold: vertices with a higher score", None),
        ({"name": "auto", "version": 3, "most": 0.3}, "Threshold: vertices with a higher score", 0.0),
        (described(AutoDetector("open-f1")), "Threshold: vertices with a higher score", None),
        (described(AutoDetector("budget:10")), "Threshold: vertices with a higher score", None),
    ):
        found = is_a(threshold_of(detector, p, 0.5 - p, unseen), ThresholdCurve)
        assert found.axis.startswith(axis)
        assert found.in_force == in_force


def test_the_threshold_of_auto_separates_what_it_flags() -> None:
    learner = LifelongLearner(detector=AutoDetector(), steps=20)
    graph = synthetic(vertices=600, times=6, classes=4, new_classes=1, seed=1)
    decided = [learner.adapt(task).predict(task) for task in tasks(graph, history=3)]
    score, flagged = (np.concatenate([getattr(one, name) for one in decided]) for name in ("score", "flagged"))
    curve = is_a(
        threshold_of(described(AutoDetector()), 1 - score, score, np.arange(len(score)) % 2 == 0), ThresholdCurve
    )
    assert curve.in_force is not None
    assert 0 < flagged.sum() < len(flagged)
    assert np.array_equal(flagged, score >= curve.in_force)


@given(st.integers(1, 1000), st.floats(0, 1))
def test_intervals_of_shares_are_wilsons(n: int, share: float) -> None:
    hits = round(share * n)
    found = band_of_share(hits / n, n)
    wanted = binomtest(hits, n).proportion_ci(method="wilson")
    assert found is not None
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


def test_what_cannot_be_measured_is_missing() -> None:
    none, nobody = np.array([]), np.array([], bool)
    assert isinstance(calibration_of(none, nobody), Missing)
    assert isinstance(confusion_of(none.astype(object), none.astype(object), nobody, ""), Missing)
    for unseen in (nobody, np.array([True, True]), np.array([False, False])):
        assert isinstance(threshold_curve_of(np.zeros(len(unseen)), unseen, on="score", in_force=None), Missing)
    assert band_of_share(math.nan, 5) is None
    assert band_of_share(0.5, 0) is None
