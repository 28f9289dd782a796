"""Objectives: what is flagged, given the probability that a class is unseen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph import InputError
from evergraph.detect import AutoDetector
from evergraph.detect.objectives import Objective, expected_open_f1

some = settings(max_examples=60, deadline=None)
NONE = np.zeros(0)


def flags(text: str, probability: np.ndarray, **facts: object) -> np.ndarray:
    usual = {"threshold": 0.2, "births": 0.7, "known_scores": NONE}
    classes = facts.pop("classes", np.full((len(probability), 2), 0.5))
    return Objective.parse(text).flags(probability, classes, **{**usual, **facts})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["f1", "budget", "budget:-1", "budget:1.5", "false-alarms:1.1", "false-alarms", "mcc:1", None, 3]
)
def test_other_objectives_are_refused(text: object) -> None:
    with pytest.raises(InputError, match=r"the objective is .*\. (Write|Choose)"):
        Objective.parse(text)
    with pytest.raises(InputError, match="the objective is"):
        AutoDetector(text)  # type: ignore[arg-type]


def test_mcc_flags_from_the_threshold_on() -> None:
    assert flags("mcc", np.array([0.1, 0.2, 0.9])).tolist() == [False, True, True]


@some
@given(st.lists(st.floats(0.01, 0.99), max_size=30, unique=True), st.integers(0, 40))
def test_a_budget_is_used_and_kept(probability: list[float], number: int) -> None:
    p = np.array(probability)
    found = flags(f"budget:{number}", p)
    assert found.sum() == min(number, len(p))
    assert not found.any() or found.all() or p[found].min() > p[~found].max()


def test_a_budget_flags_fewer_if_vertices_share_the_limit() -> None:
    assert flags("budget:2", np.array([0.9, 0.5, 0.5, 0.1])).tolist() == [True, False, False, False]


@some
@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.floats(0, 1))
def test_false_alarms_of_the_past_are_at_most_the_rate(scores: list[float], rate: float) -> None:
    known = np.array(scores)
    found = flags(f"false-alarms:{rate}", known, known_scores=known)
    assert found.sum() <= rate * (len(known) + 1)


def test_without_a_past_no_false_alarm_is_risked() -> None:
    assert not flags("false-alarms:0.5", np.array([0.9, 0.99])).any()


@some
@given(st.integers(1, 12), st.integers(1, 4), st.floats(0, 1), st.integers(0, 99))
def test_the_expected_open_f1_is_that_of_expected_counts(vertices: int, width: int, births: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, classes = rng.random(vertices), rng.dirichlet(np.ones(width), vertices)
    found = expected_open_f1(p, classes, births)
    order, best = np.argsort(-p, kind="stable"), classes.argmax(1)
    true = ((1 - p)[:, None] * classes).sum(0)
    occurs = sum(max(float((best == c).any()), 1 - np.exp(-true[c])) for c in range(width))
    for number in range(vertices + 1):
        flagged = np.isin(np.arange(vertices), order[:number])
        total = 0.0
        for c in range(width):
            own = (best == c) & ~flagged
            total += 2 * ((1 - p) * classes[:, c])[own].sum() / (own.sum() + true[c])
        unseen = 2 * p[flagged].sum() / max(number + p.sum(), 1e-9) if number else 0.0
        alone = total / occurs if not number else total / (occurs + 1)
        assert np.isclose(found[number], births * (total + unseen) / (occurs + 1) + (1 - births) * alone)


def test_open_f1_flags_nothing_where_novelty_is_rare() -> None:
    rng = np.random.default_rng(0)
    classes = rng.dirichlet(np.full(5, 0.2), 300)
    rare = np.clip(rng.normal(0.01, 0.005, 300), 0.001, 0.05)
    assert not flags("open-f1", rare, classes=classes).any()
    group = np.where(np.arange(300) < 40, 0.9, rare)
    found = flags("open-f1", group, classes=classes)
    assert found[:40].all()
    assert not found[40:].any()
