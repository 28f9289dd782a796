"""Thresholds: their values, and that each works with each score."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import matthews_corrcoef
from torch import Tensor

from evergraph import InputError, LifelongLearner, names, tasks
from evergraph.datasets import synthetic
from evergraph.detect import Outputs, PostHoc, Softmax, check_detector, thresholds
from evergraph.detect.scores import Energy
from evergraph.detect.thresholds import (
    BackTest,
    Budget,
    Conformal,
    Fixed,
    Past,
    Threshold,
    best_threshold,
    quantile,
)
from evergraph.nn import GraphSAGE

SCORES = {name: names.load("score", name) for name in names.SCORES}
THRESHOLDS = {name: names.load("threshold", name) for name in names.THRESHOLDS}

RULES: list[Threshold] = [Fixed(0.3), Conformal(0.1), Budget(7), BackTest(0.1)]


def a_past(slices: int = 4, each: int = 50, seed: int = 0, classes: int = 3) -> Past:
    """Known vertices score around 0, those of unseen classes around 1.5."""
    rng, past = np.random.default_rng(seed), Past.of({})
    for _ in range(slices):
        targets = rng.integers(-2, classes, each)
        scores = rng.normal(size=each) + 1.5 * (targets == -1)
        logits = torch.from_numpy(rng.normal(size=(each, classes)))
        past = past.grown(torch.from_numpy(scores), Outputs(logits), torch.from_numpy(targets))
    return past


def mcc(truth: np.ndarray[Any, Any], said: np.ndarray[Any, Any]) -> float:
    """That of scikit-learn, which warns where there is one class only."""
    return 0.0 if truth.all() or not truth.any() else float(matthews_corrcoef(truth, said))


# --- the past --------------------------------------------------------------------------------------------------------


def test_the_past_has_all_labelled_vertices_in_their_order() -> None:
    past, rng = Past.of({}), np.random.default_rng(3)
    rows: list[tuple[float, bool, int, int]] = []
    for number in range(3):
        targets, scores, logits = rng.integers(-2, 3, 20), rng.normal(size=20), rng.normal(size=(20, 3))
        past = past.grown(torch.from_numpy(scores), Outputs(torch.from_numpy(logits)), torch.from_numpy(targets))
        rows += [
            (s, t == -1, int(x.argmax()), number) for s, t, x in zip(scores, targets, logits, strict=True) if t > -2
        ]
    found = zip(past.scores.tolist(), past.unseen.tolist(), past.best.tolist(), past.slices.tolist(), strict=True)
    assert list(found) == rows
    again = Past.of(past.as_state())
    assert all(
        torch.equal(getattr(again, name), getattr(past, name)) for name in ("scores", "unseen", "best", "slices")
    )
    assert all(name.startswith("past.") for name in past.as_state())


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evergraph.detect.thresholds._MOST", 60)
    past = a_past(slices=6)
    assert len(past) == 60
    assert past.slices.min() > 0
    assert past.slices.max() == 5


# --- thresholds -----------------------------------------------------------------------------------------------------------


def threshold_of(rule: Threshold, past: Past, column: int = 0) -> float:
    """The threshold for a vertex with the score 0."""
    return -float(rule.excess(torch.zeros(1, dtype=torch.float64), torch.tensor([column]), past)[0])


@pytest.mark.parametrize("share", [0.0, 0.05, 0.1, 0.5, 1.0])
def test_a_share_of_the_past_lies_above_the_quantile(share: float) -> None:
    known = a_past().known.scores
    line = quantile(known, share)
    assert float((known > line).double().mean()) <= share
    lower = known[known < line].max() if (known < line).any() else None
    assert lower is None or float((known > lower).double().mean()) > share


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.sampled_from([0.01, 0.05, 0.2, 0.5]), st.integers(0, 1000))
def test_the_conformal_threshold_is_exceeded_with_at_most_the_rate(size: int, rate: float, seed: int) -> None:
    """By symmetry: of size + 1 vertices, each left out in turn, at most that share exceeds the threshold of the others."""
    scores = torch.from_numpy(np.random.default_rng(seed).normal(size=size + 1))
    zeros = torch.zeros(size, dtype=torch.int64)
    crossed = 0
    for left in range(size + 1):
        others = torch.cat([scores[:left], scores[left + 1 :]])
        past = Past.of({}).grown(others, Outputs(torch.zeros(size, 1)), zeros)
        crossed += bool(Conformal(rate).excess(scores[left : left + 1], zeros[:1], past)[0] > 0)
    # With few vertices no threshold is high enough: the highest score is used, which one of them exceeds.
    assert crossed <= max(rate * (size + 1), 1) + 1e-9


def test_the_conformal_share_follows_what_was_missed() -> None:
    past, rng = Past.of({}), np.random.default_rng(0)
    for number in range(8):  # scores rise from slice to slice, so there are more false alarms than wanted
        scores = torch.from_numpy(rng.normal(size=200) + 0.5 * number)
        past = past.grown(scores, Outputs(torch.zeros(200, 1)), torch.zeros(200, dtype=torch.int64))
    shares = Conformal(0.1, step=0.2).shares(past)
    assert len(shares) == 8
    assert shares[0] == 0.1
    assert shares[-1] < 0.05
    assert Conformal(0.1, step=0.0).shares(past) == [0.1] * 8
    assert threshold_of(Conformal(0.1, step=0.2), past) > threshold_of(Conformal(0.1, step=0.0), past)


@pytest.mark.parametrize(("most", "flagged"), [(0, 0), (1, 1), (3, 3), (8, 6), (9, 9), (50, 10)])
def test_a_budget_is_not_exceeded(most: int, flagged: int) -> None:
    scores = torch.tensor([9.0, 8, 7, 6, 5, 4, 1, 1, 1, 0], dtype=torch.float64)
    excess = Budget(most).excess(scores, torch.zeros(10, dtype=torch.int64), Past.of({}))
    assert int((excess > 0).sum()) == flagged


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=2, max_size=30))
def test_the_best_threshold_is_as_good_as_any(rows: list[tuple[int, bool]]) -> None:
    scores, unseen = (np.array(column) for column in zip(*rows, strict=True))
    line, highest = map(float, best_threshold(torch.from_numpy(scores).double(), torch.from_numpy(unseen)))
    every = [mcc(unseen, scores > value) for value in np.arange(-0.5, 13)]
    assert mcc(unseen, scores > line) >= 0.95 * max(*every, 0) - 1e-9
    assert max(highest, 0) == pytest.approx(max(*every, 0))


def test_few_unseen_vertices_change_the_threshold_little() -> None:
    few, many = a_past(slices=1, each=40), a_past(slices=20, each=200)
    for past in (few, many):
        prior, (best, reached) = float(quantile(past.known.scores, 0.1)), best_threshold(past.scores, past.unseen)
        assert 0.1 < reached < 0.9
        count = int(past.unseen.sum()) * float(reached)
        expected = (count * float(best) + 100 * prior) / (count + 100)
        assert threshold_of(BackTest(0.1, weight=100, most=1, level=0), past) == pytest.approx(expected)


def drifting(helps: bool) -> Past:
    """Slices with different medians: higher with new classes, or independent of them."""
    random, past = np.random.default_rng(5), Past.of({})
    for number in range(12):
        unseen = random.random(300) < (0.2 if number % 2 else 0)
        level = 3.0 * (number % 2) if helps else 3.0 * (number % 3)
        scores = random.normal(level, 1, 300) + 2 * unseen
        targets = torch.from_numpy(np.where(unseen, -1, 0))
        past = past.grown(torch.from_numpy(scores), Outputs(torch.zeros(300, 1)), targets)
    return past


def test_past_slices_decide_whether_slices_are_shifted() -> None:
    scores = torch.from_numpy(np.random.default_rng(6).normal(6, 1, 300))
    best = torch.zeros(300, dtype=torch.int64)
    for past, least, most in ((drifting(helps=True), 0.0, 0.3), (drifting(helps=False), 0.7, 1.0)):
        levels = thresholds._medians(past)
        degree = thresholds._degree(past, (levels - levels.mean())[past.slices])
        assert least <= degree <= most
        found, given = (BackTest(level=level).excess(scores, best, past) for level in (None, degree))
        assert torch.equal(found, given)


def test_without_unseen_vertices_slices_are_not_shifted() -> None:
    past = drifting(helps=False)
    known = Past(past.scores, torch.zeros_like(past.unseen), past.best, past.slices)
    scores, best = torch.linspace(-3, 9, 50, dtype=torch.float64), torch.zeros(50, dtype=torch.int64)
    assert torch.equal(BackTest().excess(scores, best, known), BackTest(level=0).excess(scores, best, known))


def test_with_full_shift_a_drift_of_a_whole_slice_is_ignored() -> None:
    past, scores = drifting(helps=False), torch.linspace(-3, 3, 5000, dtype=torch.float64)
    best = torch.zeros(5000, dtype=torch.int64)
    one, other = (BackTest(level=1).excess(scores + drift, best, past) for drift in (0.0, 5.0))
    assert (one - other).abs().max() < 0.05  # except for the small part by which a slice of 5,000 is not trusted
    few = BackTest(level=1).excess(torch.tensor([0.0, 50.0], dtype=torch.float64), best[:2], past)
    assert few[1] > 0  # two vertices make no median


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.sampled_from([0.0, 0.01, 0.1, 0.3, 1 / 3, 0.5, 0.7, 1.0]),
    st.integers(0, 5),
)
def test_no_more_of_a_slice_than_the_limit_is_flagged(values: list[int], most: float, slices: int) -> None:
    """Those with the highest scores, if they are above the threshold of the past."""
    scores, best = torch.tensor(values, dtype=torch.float64) - 4, torch.zeros(len(values), dtype=torch.int64)
    past = a_past(slices)
    excess, free = (BackTest(most=share).excess(scores, best, past) for share in (most, 1.0))
    rejected = excess > 0
    allowed = math.ceil(most * len(values) - 1e-9)
    assert int(rejected.sum()) <= allowed
    assert torch.equal(excess.argsort(stable=True), scores.argsort(stable=True))
    if int((free > 0).sum()) <= allowed:
        assert torch.equal(rejected, free > 0)
    else:  # as many as are allowed; of equal scores, all or none
        sizes = [int((scores >= value).sum()) for value in scores.unique()]
        assert int(rejected.sum()) == max([size for size in sizes if size <= allowed], default=0)


def test_the_limit_does_not_change_a_threshold_that_is_high_enough() -> None:
    past, scores = a_past(), torch.linspace(-3, 9, 200, dtype=torch.float64)
    best = torch.zeros(200, dtype=torch.int64)
    line = threshold_of(BackTest(most=1, level=0), past)
    few = scores[scores < line + 0.5]
    kept = BackTest(level=0).excess(few, best[: len(few)], past)
    assert torch.allclose(few - kept, torch.tensor(line).double())
    assert int((BackTest().excess(scores, best, past) > 0).sum()) == 60
    assert int((BackTest(most=0).excess(scores, best, past) > 0).sum()) == 0
    assert BackTest().most == 0.3
    one = torch.tensor([99.0], dtype=torch.float64)  # rounded up: a single vertex may be flagged
    assert bool(BackTest().excess(one, best[:1], past) > 0)


@pytest.mark.parametrize("rule", [Conformal(), BackTest()])
def test_without_a_past_no_vertex_is_flagged(rule: Threshold) -> None:
    scores = torch.tensor([0.0, 5.0, 1e9], dtype=torch.float64)
    excess = rule.excess(scores, torch.zeros(3, dtype=torch.int64), Past.of({}))
    assert (excess <= 0).all()
    assert torch.equal(excess.argsort(), scores.argsort())


@pytest.mark.parametrize("rule", RULES)
def test_an_empty_slice_is_decided(rule: Threshold) -> None:
    nobody = torch.zeros(0, dtype=torch.float64)
    assert len(rule.excess(nobody, torch.zeros(0, dtype=torch.int64), a_past())) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: BackTest(share=1.5),
        lambda: BackTest(weight=-1),
        lambda: BackTest(share="half"),  # type: ignore[arg-type]
        lambda: BackTest(level=2),
        lambda: Conformal(-0.1),
        lambda: Conformal(step=float("nan")),
        lambda: Budget(-1),
        lambda: Budget(2.5),  # type: ignore[arg-type]
        lambda: BackTest(share=True),
        lambda: BackTest(weight=float("inf")),
        lambda: BackTest(most=1.1),
        lambda: BackTest(most=-0.1),
        lambda: BackTest(most=float("nan")),
        lambda: BackTest(most=True),
        lambda: BackTest(most="all"),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InputError, match="argument"):
        make()


# --- together --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [*RULES, BackTest(most=1.0)], ids=repr)
def test_every_threshold_makes_a_detector(rule: Threshold) -> None:
    check_detector(PostHoc(Energy(), rule))


@pytest.mark.parametrize("name", SCORES)
def test_every_score_makes_a_detector(name: str) -> None:
    check_detector(PostHoc(SCORES[name](), BackTest()))


def test_thresholds_have_names() -> None:
    assert list(THRESHOLDS) == ["fixed", "conformal", "budget", "back-test"]
    assert {type(rule) for rule in RULES} == set(THRESHOLDS.values())


def test_it_finds_unseen_vertices_and_predicts_as_the_plain_classifier(one_thread: None) -> None:
    graph = synthetic(vertices=900, times=9, classes=4, new_classes=3, words=200, seed=3)
    given_tasks = list(tasks(graph, 2, first=4))
    plain = LifelongLearner(GraphSAGE(hidden=16), Softmax(), steps=40, lr=0.02)
    ours = LifelongLearner(GraphSAGE(hidden=16), PostHoc(), steps=40, lr=0.02)
    rejected: list[Tensor] = []
    unseen: list[np.ndarray[Any, Any]] = []
    for task in given_tasks:
        one, other = plain.adapt(task).predict(task), ours.adapt(task).predict(task)
        assert (one.best == other.best).all()
        rejected.append(torch.from_numpy(other.flagged))
        unseen.append(np.array([name not in other.known for name in task.truth]))
    past = Past.of(ours.detector_.state)
    assert past.slices[-1] + 1 == 3 + len(given_tasks) - 1  # the replayed slices, and all tasks but the last
    assert mcc(np.concatenate(unseen), torch.cat(rejected).numpy()) > 0.3
