"""Metrics against scikit-learn and SciPy, against brute force, and against examples worked out by hand."""

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import average_precision_score, f1_score, matthews_corrcoef, roc_auc_score, roc_curve

from evergraph import UNSEEN, InputError
from evergraph.evaluation.metrics import (
    Confusion,
    TaskScores,
    accuracy,
    aupr,
    auroc,
    forward_transfer,
    fpr_at_95,
    macro_f1,
    open_macro_f1,
    oracle_mcc,
    over_seeds,
    pooled,
    score_task,
)

NAMES = ["KDD", "ICML", "nan", "", "naïve"]
name = st.sampled_from(NAMES)
# Few values make ties, any values make none; between them lie a zero of either sign and the extremes.
some_score = st.one_of(
    st.sampled_from([0.0, -0.0, 0.5, 1.0, -1e300, 1e300, 5e-324]), st.floats(allow_nan=False, allow_infinity=False)
)
scored = st.lists(st.tuples(some_score, st.booleans()), min_size=2, max_size=40).map(
    lambda rows: (np.array([score for score, _ in rows]), np.array([positive for _, positive in rows]))
)
both_kinds = scored.filter(lambda drawn: 0 < drawn[1].sum() < len(drawn[1]))
counts = st.builds(Confusion, *[st.integers(0, 9)] * 4)


def quietly(function, *arguments):
    """What scikit-learn says of a case that it also warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)


# --- classification


@given(st.lists(st.tuples(name, name), min_size=1, max_size=30))
@example([("KDD", "KDD")])
@example([("KDD", "ICML")])
def test_macro_f1_and_accuracy_are_those_of_scikit_learn(pairs):
    truth, predicted = map(list, zip(*pairs, strict=True))
    assert macro_f1(truth, predicted) == pytest.approx(f1_score(truth, predicted, average="macro", zero_division=0))
    assert accuracy(truth, predicted) == sum(a == b for a, b in pairs) / len(pairs)


@given(st.lists(st.tuples(name, st.sampled_from([*NAMES, UNSEEN]), st.booleans()), min_size=1, max_size=30))
def test_open_macro_f1_is_macro_f1_with_one_more_class(rows):
    truth, decided, unseen = map(list, zip(*rows, strict=True))
    mapped = [UNSEEN if new else true for true, new in zip(truth, unseen, strict=True)]
    expected = f1_score(mapped, decided, average="macro", zero_division=0)
    assert open_macro_f1(truth, decided, unseen) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("decided", "unseen", "expected"),
    [
        # KDD 2·2/(3+2), ICML 1, and an 'unseen' that is 0: one vertex is flagged and none is unseen.
        (["KDD", "KDD", UNSEEN, "ICML"], [0, 0, 0, 0], (4 / 5 + 1 + 0) / 3),
        # No vertex is flagged or unseen: two classes, KDD 2·2/(3+2) and ICML 2·1/(1+2).
        (["KDD", "KDD", "ICML", "ICML"], [0, 0, 0, 0], (4 / 5 + 2 / 3) / 2),
        # One vertex is unseen and none is flagged: 'unseen' is 0, KDD 2·2/(2+3).
        (["KDD", "KDD", "KDD", "ICML"], [0, 0, 1, 0], (4 / 5 + 1 + 0) / 3),
        # The unseen vertex is flagged, and a known one, too: KDD 2·1/(2+1), 'unseen' 2·1/(1+2).
        (["KDD", UNSEEN, UNSEEN, "ICML"], [0, 0, 1, 0], (2 / 3 + 1 + 2 / 3) / 3),
    ],
    ids=["rejected, none unseen", "neither", "unseen, none rejected", "both"],
)
def test_when_unseen_counts_in_open_macro_f1(decided, unseen, expected):
    truth = ["KDD", "KDD", "KDD", "ICML"]
    assert open_macro_f1(truth, decided, np.array(unseen, bool)) == pytest.approx(expected)


def test_names_that_numpy_would_take_for_equal_are_not():
    """An array of fixed-width strings drops zeros at the end."""
    assert accuracy(["a\0", "b"], ["a", "b"]) == 0.5
    assert macro_f1(["a\0", "b"], ["a", "b"]) == pytest.approx(1 / 3)


@pytest.mark.parametrize("metric", [accuracy, macro_f1])
def test_classification_refuses_what_is_not_names_by_vertex(metric):
    with pytest.raises(InputError, match="3 is not a class name"):
        metric(["KDD"], [3])
    with pytest.raises(InputError, match="None is not a class name"):
        metric([None], ["KDD"])
    with pytest.raises(InputError, match=r"\(1,\), \(2,\)"):
        metric(["KDD"], ["KDD", "ICML"])
    with pytest.raises(InputError, match="shapes"):
        metric("KDD", "KDD")


# --- detection: decisions


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
@example([(True, True), (False, False)])
@example([(True, False), (False, True)])
def test_mcc_is_that_of_scikit_learn(rows):
    rejected, unseen = (np.array(side) for side in zip(*rows, strict=True))
    found = Confusion.of(rejected, unseen)
    assert found.mcc == pytest.approx(quietly(matthews_corrcoef, unseen, rejected), abs=1e-12)
    assert (found.tp, found.tn) == (rows.count((True, True)), rows.count((False, False)))
    assert (found.fp, found.fn) == (rows.count((True, False)), rows.count((False, True)))
    assert -1 <= found.mcc <= 1


def test_mcc_of_very_many_vertices_is_exact():
    """The product of the four sums is beyond 64 bits."""
    assert Confusion(tp=10**7 + 19, tn=10**7 + 79).mcc == 1.0
    assert Confusion(fp=10**7 + 19, fn=10**7 + 79).mcc == -1.0


@given(st.lists(counts, max_size=5))
def test_confusions_add_up(several):
    total = sum(several, Confusion())
    for kind in ("tp", "tn", "fp", "fn"):
        assert getattr(total, kind) == sum(getattr(one, kind) for one in several)


def test_false_alarm_rate():
    assert Confusion(tp=5, tn=3, fp=1, fn=7).false_alarm_rate == 1 / 4
    assert math.isnan(Confusion(tp=5, fn=7).false_alarm_rate)


# --- detection: scores


@given(both_kinds)
@example((np.array([0.0, -0.0]), np.array([True, False])))
@example((np.zeros(5), np.array([True, False, True, False, False])))
@example((np.arange(40.0), np.arange(40) >= 20))
@example((np.arange(40.0), np.arange(40) < 20))
def test_areas_are_those_of_scikit_learn(drawn):
    score, positive = drawn
    assert auroc(score, positive) == pytest.approx(roc_auc_score(positive, score), abs=1e-12)
    assert aupr(score, positive) == pytest.approx(average_precision_score(positive, score), abs=1e-12)


@given(both_kinds)
@example((np.arange(21.0), np.arange(21) > 0))  # 19 of 20 are exactly 95 %
@example((np.r_[0.0, 2.0, 1.0, np.arange(3.0, 21.0)], np.arange(21) != 2))  # at 19 of 20 none, at 20 of 20 all
@example((np.r_[0.0, 2.0, 1.0, np.arange(3.0, 20.0)], np.arange(20) != 2))  # 18 of 19 are not enough
def test_fpr_at_95_is_read_off_the_curve_of_scikit_learn(drawn):
    score, positive = drawn
    fpr, tpr, _ = roc_curve(positive, score, drop_intermediate=False)
    assert fpr_at_95(score, positive) == pytest.approx(fpr[tpr >= 0.95].min(), abs=1e-12)


def test_fpr_at_95_at_its_edge():
    positive = np.r_[np.ones(20, bool), False]
    assert fpr_at_95(np.r_[np.arange(20.0), 0.5], positive) == 0.0  # 19 of 20 are above the negative one
    assert fpr_at_95(np.r_[np.arange(20.0), 1.5], positive) == 1.0  # only 18 are


@given(scored)
@example((np.zeros(3), np.array([True, False, False])))
@example((np.array([0.9, 0.8, 0.1]), np.array([False, False, True])))
def test_oracle_mcc_is_the_best_of_all_cuts(drawn):
    score, positive = drawn
    best = max([0.0] + [Confusion.of(score >= cut, positive).mcc for cut in score])
    assert oracle_mcc(score, positive) == pytest.approx(best, abs=1e-12)


def test_oracle_mcc_knows_which_way_scores_point():
    known, new = np.array([0.1, 0.2, 0.3]), np.array([0.3, 0.8])
    score, positive = np.r_[known, new], np.array([False] * 3 + [True] * 2)
    assert oracle_mcc(score, positive) == pytest.approx(2 / 3)  # from 0.3 on: 2 of 2, and 1 of 3
    assert oracle_mcc(-score, positive) == 0.0


@pytest.mark.parametrize("metric", [auroc, aupr, fpr_at_95])
@pytest.mark.parametrize("positive", [[], [True], [False], [True, True], [False, False]])
def test_scores_without_two_kinds_have_no_figure(metric, positive):
    assert math.isnan(metric(np.arange(len(positive)), positive))
    assert oracle_mcc(np.arange(len(positive)), positive) == 0.0


@pytest.mark.parametrize("metric", [auroc, aupr, fpr_at_95, oracle_mcc])
def test_scores_that_cannot_be_compared_are_refused(metric):
    with pytest.raises(InputError, match="1 of 2 scores are NaN"):
        metric([0.5, np.nan], [True, False])
    with pytest.raises(InputError, match=r"\(2,\), \(1,\)"):
        metric([0.5, 0.6], [True])
    with pytest.raises(InputError, match="type int64, not boolean"):
        metric([0.5, 0.6], [0, 1])


def test_infinite_scores_are_the_highest_and_the_lowest():
    score, positive = [np.inf, np.inf, 1.0, -np.inf, -np.inf], [True, False, True, False, False]
    ranks = [2, 2, 1, 0, 0]
    for metric in (auroc, aupr, fpr_at_95, oracle_mcc):
        assert metric(score, positive) == metric(ranks, positive)


# --- forward transfer


def test_forward_transfer_drops_the_first_task():
    cold = np.array([[0.2, 0.5, 0.6], [0.4, 0.7, 0.6]])
    warm = np.array([[0.9, 0.7, 0.7]])  # one seed against two
    assert forward_transfer(warm, cold) == pytest.approx(((0.7 - 0.6) + (0.7 - 0.6)) / 2)
    warm[0, 0] = 0.0
    assert forward_transfer(warm, cold) == pytest.approx(0.1)
    assert forward_transfer(cold[:, ::-1], cold) == pytest.approx((0.0 - 0.3) / 2)


def test_forward_transfer_averages_seeds_before_tasks():
    """A seed that lacks one task must not weigh more in the others."""
    warm = [[0.5, 1.0, np.nan], [0.5, 0.0, 0.0]]
    cold = [[0.5, 0.0, 0.0]]
    assert forward_transfer(warm, cold) == pytest.approx((0.5 + 0.0) / 2)


def test_forward_transfer_leaves_out_a_task_without_figures():
    assert forward_transfer([[0.5, np.nan, 0.8]], [[0.5, np.nan, 0.6]]) == pytest.approx(0.2)
    assert math.isnan(forward_transfer([[0.5, np.nan]], [[0.5, 0.1]]))


@pytest.mark.parametrize("shape", [(3, 0), (3, 1), (0, 4)])
def test_forward_transfer_of_too_little(shape):
    assert math.isnan(forward_transfer(np.ones(shape), np.ones(shape)))


@pytest.mark.parametrize(("warm", "cold"), [((2, 3), (2, 4)), ((3,), (3,)), ((1, 3), (3,))])
def test_forward_transfer_of_different_tasks(warm, cold):
    with pytest.raises(InputError, match="the same tasks in both"):
        forward_transfer(np.ones(warm), np.ones(cold))


# --- intervals


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=12))
def test_over_seeds_is_the_t_interval_of_scipy(values):
    error = float(stats.sem(values))
    assume(error > 1e-9)
    found = over_seeds(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=error)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    assert found.n == len(values)


def test_pooled_is_the_interval_of_the_paper_and_not_that_of_the_mean():
    """Seeds that agree leave no doubt about the mean, however much tasks differ, and the other way round."""
    agree = np.array([[0.2, 0.9], [0.2, 0.9], [0.2, 0.9]])
    assert over_seeds(agree.mean(axis=1)).half == pytest.approx(0, abs=1e-12)
    # 6 values, each .35 from their mean.
    assert pooled(agree).half == pytest.approx(1.96 * math.sqrt(6 * 0.35**2 / 5) / math.sqrt(6))
    differ = agree.T
    assert pooled(differ).half == pytest.approx(pooled(agree).half)
    assert over_seeds(differ.mean(axis=1)).half > 10 * pooled(differ).half


def test_intervals_leave_nan_out():
    assert over_seeds([0.1, np.nan, 0.5, 0.3]) == over_seeds([0.1, 0.5, 0.3])
    assert pooled([[0.1, np.nan], [0.5, 0.3]]) == pooled([[0.1, 0.5, 0.3]])


@pytest.mark.parametrize(("interval", "axes"), [(over_seeds, 1), (pooled, 2)])
def test_intervals_of_too_little(interval, axes):
    for values in ([], [np.nan, np.nan]):
        found = interval(np.array(values, ndmin=axes))
        assert (math.isnan(found.mean), math.isnan(found.half), found.n) == (True, True, 0)
    one = interval(np.array([0.25], ndmin=axes))
    assert (one.mean, math.isnan(one.half), one.n) == (0.25, True, 1)


def test_the_two_intervals_cannot_be_mixed_up():
    with pytest.raises(InputError, match="one value per seed"):
        over_seeds([[0.1, 0.2], [0.3, 0.4]])
    with pytest.raises(InputError, match="one column per task"):
        pooled([0.1, 0.2])


# --- one task


def a_task(**changes):
    """Six vertices: two of KDD, two of ICML, one of a class that was forgotten, one of a class that is new."""
    task = {
        "truth": ["KDD", "KDD", "ICML", "ICML", "old", "new"],
        "argmax": ["KDD", "ICML", "ICML", "ICML", "KDD", "KDD"],
        "decided": ["KDD", UNSEEN, "ICML", "ICML", "KDD", UNSEEN],
        "score": [0.1, 0.7, 0.2, 0.3, 0.4, 0.9],
        "unseen": [False, False, False, False, True, True],
        "never_before": [False, False, False, False, False, True],
    }
    return score_task(**task | changes)


EMPTY = score_task([], [], [], [], [], [])


def test_a_task_by_hand():
    found = a_task()
    assert found.vertices == 6
    assert found.accuracy == pytest.approx(3 / 6)
    assert found.id_accuracy == pytest.approx(3 / 4)
    assert found.rejected == pytest.approx(2 / 6)
    # KDD 2·1/(2+3), ICML 2·2/(2+3), old and new 0.
    assert found.macro_f1 == pytest.approx((2 / 5 + 4 / 5) / 4)
    assert found.macro_f1 == a_task(decided=[UNSEEN] * 6).macro_f1  # before any rejection
    # KDD 2·1/(2+2), ICML 1, unseen 2·1/(2+2).
    assert found.open_f1 == pytest.approx((1 / 2 + 1 + 1 / 2) / 3)
    assert found.confusion == Confusion(tp=1, tn=3, fp=1, fn=1)
    # Of 2 × 4 pairs only that of old and the second vertex is the wrong way round.
    assert found.auroc == pytest.approx(7 / 8)
    assert found.aupr == pytest.approx((1 + 2 / 3) / 2)
    assert found.fpr95 == pytest.approx(1 / 4)
    assert found.oracle_mcc == pytest.approx(Confusion(tp=2, tn=3, fp=1).mcc)
    assert found.confusion_never_before == Confusion(tp=1, tn=4, fp=1)
    assert found.auroc_never_before == 1.0
    # As open_f1, but old is a class that is never found, and unseen 2·1/(1+2).
    assert found.open_f1_never_before == pytest.approx((1 / 2 + 1 + 0 + 2 / 3) / 4)


def test_other_names_and_another_order_change_nothing():
    """Names are only names: the alphabet, on which a sort would lean, has no say."""
    new_name = {"KDD": "old", "ICML": "new", "old": "ICML", "new": "KDD", UNSEEN: UNSEEN}
    task = a_task()
    renamed = a_task(
        truth=[new_name[name] for name in ["KDD", "KDD", "ICML", "ICML", "old", "new"]],
        argmax=[new_name[name] for name in ["KDD", "ICML", "ICML", "ICML", "KDD", "KDD"]],
        decided=[new_name[name] for name in ["KDD", UNSEEN, "ICML", "ICML", "KDD", UNSEEN]],
    )
    assert renamed == task
    backwards = score_task(
        truth=["new", "old", "ICML", "ICML", "KDD", "KDD"],
        argmax=["KDD", "KDD", "ICML", "ICML", "ICML", "KDD"],
        decided=[UNSEEN, "KDD", "ICML", "ICML", UNSEEN, "KDD"],
        score=[0.9, 0.4, 0.3, 0.2, 0.7, 0.1],
        unseen=[True, True, False, False, False, False],
        never_before=[True, False, False, False, False, False],
    )
    assert backwards.as_dict() == pytest.approx(task.as_dict())


def test_a_task_of_arrays_is_that_of_lists():
    truth = np.array(["KDD", "KDD", "ICML", "ICML", "old", "new"], dtype=object)
    score = np.array([0.1, 0.7, 0.2, 0.3, 0.4, 0.9], dtype=np.float32)
    assert a_task(truth=truth, score=score) == a_task(truth=truth.astype(str)) == a_task()


def test_a_task_without_vertices():
    assert EMPTY.vertices == 0
    assert EMPTY.confusion == EMPTY.confusion_never_before == Confusion(0, 0, 0, 0)
    assert EMPTY.oracle_mcc == 0.0
    undefined = {key for key, value in EMPTY.as_dict().items() if value is None}
    assert undefined == {
        *("accuracy", "id_accuracy", "macro_f1", "open_f1", "rejected", "auroc", "aupr", "fpr95"),
        *("auroc_never_before", "open_f1_never_before"),
    }


def test_a_task_with_unseen_vertices_only():
    found = score_task(["x", "y"], ["z", "z"], [UNSEEN, "z"], [1.0, 0.0], [True, True], [True, False])
    assert (found.accuracy, math.isnan(found.id_accuracy)) == (0.0, True)
    assert (math.isnan(found.auroc), found.auroc_never_before) == (True, 1.0)


@pytest.mark.parametrize("short", ["truth", "argmax", "decided", "score", "unseen", "never_before"])
def test_a_task_refuses_arrays_of_different_lengths(short):
    value = {"score": [0.5], "unseen": [True], "never_before": [True]}.get(short, ["KDD"])
    with pytest.raises(InputError, match="one value per vertex"):
        a_task(**{short: value})


def test_a_task_refuses_scores_that_are_nan():
    with pytest.raises(InputError, match="NaN"):
        a_task(score=[0.1, 0.7, np.nan, 0.3, 0.4, 0.9])


@pytest.mark.parametrize("scores", [a_task(), EMPTY], ids=["full", "empty"])
def test_scores_of_a_task_survive_json(scores):
    written = json.dumps(scores.as_dict(), allow_nan=False)
    read = TaskScores.from_dict(json.loads(written) | {"seed": 3})
    assert repr(read) == repr(scores)  # and not ==, for which NaN differs from itself


def test_scores_are_written_flat():
    flat = a_task().as_dict()
    assert [flat[key] for key in ("tp", "tn", "fp", "fn")] == [1, 3, 1, 1]
    assert [flat[key + "_never_before"] for key in ("tp", "tn", "fp", "fn")] == [1, 4, 1, 0]
    assert {type(value) for value in flat.values()} == {int, float}


def test_scores_that_lack_a_figure_are_refused():
    flat = a_task().as_dict()
    for key in flat:
        with pytest.raises(InputError, match=f"lack '{key}'"):
            TaskScores.from_dict({other: flat[other] for other in flat if other != key})
