"""Ridge regression in closed form: the recursion equals scikit-learn from scratch, and each label counts once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax
from sklearn.linear_model import Ridge as Reference  # type: ignore[import-untyped]

from evergraph import EvergraphError, EvolvingGraph, InputError, LifelongLearner, Task, tasks
from evergraph.datasets import synthetic
from evergraph.detect import DOC, GDOC, Softmax
from evergraph.detect.base import Detector
from evergraph.nn import Batch, Draw, Labels, Neighbours, Ridge, SparseMatrix, carry_over
from evergraph.nn.base import Parameters
from evergraph.nn.naive_bayes import log_likelihoods, log_shares, smoothed_totals
from evergraph.nn.ridge import Moments, Solution, fitted_scales

WIDTH = 6


class Lives:
    """Random vertices of some periods, of which new ones arrive at each task; later periods have more classes."""

    def __init__(self, model: Ridge, per_period: int = 30, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.model, self.periods = model, np.repeat(np.arange(2, 8), per_period)
        self.targets = np.concatenate([rng.integers(0, 2 + time // 3, per_period) for time in range(2, 8)])
        centres = rng.normal(size=(4, WIDTH))
        self.vectors = (centres[self.targets] + rng.normal(size=(len(self.targets), WIDTH))).astype(np.float32)
        self.p: Parameters = {}

    def learn(self, time: int, rows: NDArray[np.integer], *, cold: bool = False) -> Parameters:
        """Update with new rows at a task's time; the features and classes grow."""
        classes = int(self.targets[self.periods < time].max()) + 1
        fresh = self.model.parameters(time, classes, Draw(1, time))
        p = fresh if cold or not self.p else carry_over(self.p, fresh)
        labels = Labels(
            torch.ones(classes),
            time,
            self.targets[rows],
            self.periods[rows],
            lambda part: torch.from_numpy(self.vectors[rows[part]]),
        )
        found = self.model.closed_form(p, labels)
        if not cold:
            self.p = found
        return found

    def rows(self, first: int, stop: int) -> NDArray[np.integer]:
        return np.flatnonzero((self.periods >= first) & (self.periods < stop))

    def live(self, stop: int = 8) -> None:
        """Three periods at first, then one at a time; of the second-last period, half of the labels come late."""
        self.learn(5, self.rows(2, 5))
        for time in range(6, stop + 1):
            on_time, late = self.rows(time - 1, time)[::2], self.rows(time - 2, time - 1)[1::2]
            self.learn(time, np.concatenate([late if time > 6 else late[:0], on_time]))

    @property
    def counted(self) -> NDArray[np.integer]:
        """The rows whose labels arrived."""
        return np.concatenate([self.rows(2, 5), self.rows(5, 7), self.rows(7, 8)[::2]])


def total(lives: Lives, p: Parameters, time: int = 8) -> Moments:
    ages = lives.model._ages(p["newest"].numpy(), time)
    return Moments(*(np.tensordot(ages, p[name].numpy(), 1) for name in ("products", "sums")))


def assert_like_scikit_learn(lives: Lives, rows: NDArray[np.integer], weights: NDArray[np.floating]) -> None:
    """Compare the scores with scikit-learn's from scratch, and the logits with a discriminant analysis from scratch."""
    found = Solution.of(total(lives, lives.p), lives.model.penalty)
    vectors, targets = lives.vectors[rows].astype(np.float64), lives.targets[rows]
    own = np.eye(int(lives.targets.max()) + 1)[targets]
    mean = np.average(vectors, axis=0, weights=weights)
    spread = np.average(((vectors - mean) ** 2).sum(1), weights=weights)
    assert found.penalty == pytest.approx(lives.model.penalty * spread)
    reference = Reference(alpha=found.penalty).fit(vectors, own, sample_weight=weights)
    np.testing.assert_allclose(found.weight, reference.coef_.T, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.intercept, reference.intercept_, rtol=0, atol=1e-6)

    # The posterior of Gaussian classes with one covariance.
    there = np.flatnonzero(own.sum(0))
    sizes = (weights[:, None] * own).sum(0)[there]
    means = np.stack([np.average(vectors[targets == one], axis=0, weights=weights[targets == one]) for one in there])
    away = vectors - means[np.searchsorted(there, targets)]
    covariance = ((weights[:, None] * away).T @ away + found.penalty * np.eye(WIDTH)) / weights.sum()
    # Around the mean of all, because the penalty treats the origin of the vectors as it does no other point.
    centred = means - mean
    prior = np.log(sizes / sizes.sum()) * (1 - lives.model.balance)
    logits = (vectors - mean) @ np.linalg.solve(covariance, centred.T)
    logits += prior - (centred * np.linalg.solve(covariance, centred.T).T).sum(1) / 2
    weight, bias = found.head(lives.model.balance)
    ours = vectors @ weight + bias
    np.testing.assert_allclose(softmax(ours, 1)[:, there], softmax(logits, 1), rtol=0, atol=1e-6)
    absent = np.setdiff1d(np.arange(own.shape[1]), there)
    assert softmax(ours, 1)[:, absent].sum() < 1e-6


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("penalty", [0.01, 1.0, 30.0])
def test_the_recursion_equals_ridge_from_scratch(penalty: float, balance: float) -> None:
    lives = Lives(Ridge(width=WIDTH, smoothing=0, penalty=penalty, balance=balance))
    lives.live()
    assert_like_scikit_learn(lives, lives.counted, np.ones(len(lives.counted)))


def test_periods_that_leave_the_window_are_subtracted() -> None:
    lives = Lives(Ridge(width=WIDTH, smoothing=0, periods=2))
    lives.live()
    rows = lives.counted[lives.periods[lives.counted] >= 6]
    assert_like_scikit_learn(lives, rows, np.ones(len(rows)))
    # Nothing new for some time, and then two periods at once.
    assert total(lives, lives.learn(20, lives.rows(0, 0), cold=False), 20).sums.sum() == 0


def test_a_discount_weakens_each_vertex_by_its_age() -> None:
    lives = Lives(Ridge(width=WIDTH, smoothing=0, discount=0.5))
    lives.live()
    assert_like_scikit_learn(lives, lives.counted, 0.5 ** (7 - lives.periods[lives.counted]))
    lives = Lives(Ridge(width=WIDTH, smoothing=0, discount=0.5, periods=3))
    lives.live()
    rows = lives.counted[lives.periods[lives.counted] >= 5]
    assert_like_scikit_learn(lives, rows, 0.5 ** (7 - lives.periods[rows]))


def test_a_scratch_computation_has_the_same_head() -> None:
    lives = Lives(Ridge(width=WIDTH, smoothing=0, penalty=1.0))
    lives.live()
    scratch = lives.learn(8, lives.counted, cold=True)
    for name in ("products", "sums"):
        torch.testing.assert_close(scratch[name], lives.p[name], rtol=0, atol=1e-6 * float(scratch[name].abs().max()))
    # The scale is fitted to the vertices of each update.
    once, again = (p["weight"] / p["scales"][0] for p in (scratch, lives.p))
    torch.testing.assert_close(once, again, rtol=0, atol=1e-6 * float(once.abs().max()))


def test_growth_keeps_the_projection_and_the_sums_of_known_classes() -> None:
    lives = Lives(Ridge(width=WIDTH, smoothing=0))
    before = lives.learn(4, lives.rows(2, 4))
    after = lives.learn(8, lives.rows(4, 4))
    assert torch.equal(after["projection"][:4], before["projection"])
    assert after["projection"].shape == (8, WIDTH)
    assert set(after["projection"].flatten().tolist()) == {-1, 1}
    known = before["sums"].shape[2]
    assert after["sums"].shape[2] > known
    assert torch.equal(after["sums"][..., :known], before["sums"])
    assert not after["sums"][..., known:].any()


def test_scores_of_left_out_vertices_are_those_of_a_regression_without_them() -> None:
    lives = Lives(Ridge(width=WIDTH, smoothing=0, discount=0.9), per_period=8)
    rows, vectors = np.arange(len(lives.targets)), lives.vectors.astype(np.float64)
    weights: NDArray[np.float64] = np.power(0.9, 7 - lives.periods).astype(np.float64)
    own = np.eye(4)[lives.targets]
    found = Solution.of(Moments.of(vectors, lives.targets, 4, weights), 1.0)
    ours = found._left_out(vectors, lives.targets, weights)
    for row in rows[::5]:
        rest = rows[rows != row]
        reference = Reference(alpha=found.penalty).fit(vectors[rest], own[rest], sample_weight=weights[rest])
        mean = np.average(own[rest], axis=0, weights=weights[rest])
        np.testing.assert_allclose(ours[row], reference.predict(vectors[[row]])[0] - mean, atol=1e-8)


def test_the_scale_makes_probabilities_hold() -> None:
    """New vertices of the same kind are as often of their most likely class as the probabilities say."""
    lives = Lives(Ridge(width=WIDTH, smoothing=0, penalty=0.1, balance=0.0), per_period=400)
    p = lives.learn(8, lives.rows(6, 8)[::2])
    test = lives.rows(6, 8)[1::2]
    shares = softmax(lives.vectors[test] @ p["weight"].numpy() + p["bias"].numpy(), 1)
    assert (shares.argmax(1) == lives.targets[test]).mean() == pytest.approx(shares.max(1).mean(), abs=0.04)


def test_vectors_that_are_not_numbers_are_refused() -> None:
    lives = Lives(Ridge(width=WIDTH, smoothing=0))
    lives.vectors[3, 2] = np.nan
    with pytest.raises(EvergraphError, match=r"not finite\. Check the features"):
        lives.learn(8, lives.rows(2, 8))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "width is 0"),
        ({"width": 10_000}, "width is 10000. Set width to at most 8,192"),
        ({"periods": 0}, "periods is 0"),
        ({"periods": 5_000}, "at most 1,000"),
        ({"penalty": 0}, "penalty is 0.*from 0.000001 up"),
        ({"penalty": np.inf}, "penalty is inf"),
        ({"discount": 0.0}, "discount is 0.0"),
        ({"discount": 1.5}, "discount is 1.5"),
        ({"balance": -0.1}, "balance is -0.1.*from 0 to 1"),
        ({"balance": "x"}, "balance is 'x'"),
        ({"smoothing": -1}, "smoothing is -1.*from 0 up"),
    ],
)
def test_settings_that_make_no_model_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Ridge(**settings)


# --- in a learner ----------------------------------------------------------------------------------------------------

GRAPH = synthetic(vertices=400, times=6, classes=4, new_classes=2, seed=1)


def counts(learner: LifelongLearner) -> dict[str, float]:
    assert learner.weights_ is not None
    return dict(zip(learner.classes_, learner.weights_["sums"][:, -1].sum(0).tolist(), strict=True))


def labels_before(graph: EvolvingGraph, time: int, first: int = 0) -> dict[str, int]:
    names, sizes = np.unique(
        [name for name, at in zip(graph.labels, graph.times, strict=True) if first <= at < time and name],
        return_counts=True,
    )
    return dict(zip(names.tolist(), sizes.tolist(), strict=True))


@pytest.mark.parametrize("history", [1, 3, "full"])
@pytest.mark.parametrize("latency", [0, 1])
def test_each_label_counts_once_however_much_windows_overlap(history: Any, latency: int) -> None:
    learner = LifelongLearner(Ridge(width=16), Softmax())
    first: int | None = None
    for task in tasks(GRAPH, history, first=3, label_latency=latency):
        first = task.start if first is None else first
        learner.adapt(task).adapt(task)
        assert counts(learner) == labels_before(GRAPH, task.time - latency, first)


def test_periods_are_counted_beyond_the_history_and_a_cold_restart_counts_the_window() -> None:
    learner = LifelongLearner(Ridge(width=16, periods=3), Softmax())
    for task in tasks(GRAPH, 1, first=2):
        learner.adapt(task)
    found = {name: count for name, count in counts(learner).items() if count}
    assert task.time == 5
    # Older labels are still in a part of the sums that the next period will replace.
    newest, sums = (learner.weights_[name].numpy() for name in ("newest", "sums"))  # type: ignore[index]
    inside = np.tensordot(Ridge(width=16, periods=3)._ages(newest, task.time), sums, 1)[-1]
    assert {name: n for name, n in zip(learner.classes_, inside, strict=True) if n} == labels_before(GRAPH, 5, 2)
    assert sum(found.values()) >= sum(inside)
    learner.set_params(restart="cold").adapt(task)
    assert {name: n for name, n in counts(learner).items() if n} == labels_before(GRAPH, 5, 4)


def test_labels_that_arrive_late_count_once() -> None:
    ids = GRAPH.window(3, 3).ids.tolist()
    hidden = GRAPH.relabel(ids[::2], [None] * len(ids[::2]))
    learner = LifelongLearner(Ridge(width=16), Softmax()).adapt(Task(hidden, 4, None))
    assert counts(learner) == labels_before(hidden, 4)
    learner.adapt(Task(GRAPH, 4, None))
    assert counts(learner) == labels_before(GRAPH, 4)


@pytest.mark.parametrize("label", [GRAPH.class_names[0], None])
def test_with_the_whole_past_corrected_and_removed_labels_are_counted_again(label: str | None) -> None:
    ids = GRAPH.window(2, 3).ids.tolist()[::3]
    learner = LifelongLearner(Ridge(width=16), Softmax()).adapt(Task(GRAPH, 4, None))
    other = GRAPH.relabel(ids, [label] * len(ids))
    assert counts(learner.adapt(Task(other, 5, None))) == labels_before(other, 5)
    scratch = LifelongLearner(Ridge(width=16), Softmax()).adapt(Task(other, 5, None))
    assert learner.weights_ is not None
    assert scratch.weights_ is not None
    torch.testing.assert_close(learner.weights_["sums"][:, -1], scratch.weights_["sums"][:, -1])


def test_with_a_short_history_corrected_labels_are_not_counted_again() -> None:
    learner = LifelongLearner(Ridge(width=16), Softmax()).adapt(Task(GRAPH, 4, 2))
    ids = GRAPH.window(3, 3).ids.tolist()[:3]
    other = GRAPH.relabel(ids, [GRAPH.class_names[0]] * 3)
    assert counts(learner.adapt(Task(other, 4, 2))) == labels_before(GRAPH, 4, 2)


def test_removed_vertices_are_not_counted_with_the_whole_past_but_stay_with_a_short_history() -> None:
    fewer = GRAPH.remove(GRAPH.window(1, 1).ids.tolist()[:20])
    learner = LifelongLearner(Ridge(width=16), Softmax()).adapt(Task(GRAPH, 4, None)).adapt(Task(fewer, 5, None))
    assert counts(learner) == labels_before(fewer, 5)
    learner = LifelongLearner(Ridge(width=16), Softmax()).adapt(Task(GRAPH, 4, 3)).adapt(Task(fewer, 5, 3))
    assert counts(learner) == labels_before(GRAPH, 5, 1)


def test_an_interrupted_life_goes_on_exactly(tmp_path: Path) -> None:
    learner = whole = LifelongLearner(Ridge(width=16, discount=0.9), Softmax())
    whole = LifelongLearner(Ridge(width=16, discount=0.9), Softmax())
    for task in tasks(GRAPH, 3, first=2):
        learner.adapt(task).save(tmp_path / "learner")
        learner = LifelongLearner.load(tmp_path / "learner")
        whole.adapt(task)
        assert torch.equal(learner.outputs(task).logits, whole.outputs(task).logits)
    assert learner.weights_ is not None
    assert whole.weights_ is not None
    assert all(torch.equal(value, whole.weights_[name]) for name, value in learner.weights_.items())
    for name, value in vars(whole._counted).items():
        np.testing.assert_array_equal(getattr(learner._counted, name), value)


def test_smaller_blocks_change_no_number_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(GRAPH, 4, None)
    whole = LifelongLearner(Ridge(width=16), Softmax()).adapt(task)
    monkeypatch.setattr("evergraph.nn.ridge._BLOCK", 37)
    parts = LifelongLearner(Ridge(width=16), Softmax()).adapt(task)
    torch.testing.assert_close(parts.outputs(task).logits, whole.outputs(task).logits, rtol=0, atol=1e-4)


def test_it_learns_and_takes_part_in_nothing_that_needs_steps() -> None:
    said: list[int] = []
    learner = LifelongLearner(Ridge(width=64), Softmax(), steps=7)
    for task in tasks(GRAPH, 2, first=3):
        learner.adapt(task, lambda step, _: said.append(step))
    assert not said
    assert learner.losses_ == []
    assert learner.lr_ is None
    best = learner.predict(task).best
    assert (best == task.truth)[~task.never_before].mean() > 0.5
    outputs = learner.outputs(task)
    assert outputs.hidden is not None
    assert outputs.hidden.shape == (len(best), 64)
    torch.testing.assert_close(outputs.hidden.norm(dim=1), torch.ones(len(best)))


def test_it_is_a_value() -> None:
    assert Ridge() == replace(Ridge(width=4), width=512)
    assert not any(Ridge().trained(name) for name in Ridge().parameters(3, 2, Draw(0)))


# --- with naive Bayes ------------------------------------------------------------------------------------------------


class Texts:
    """Random words of the vertices of `Lives`, and edges between vertices of the same period."""

    def __init__(self, lives: Lives, words: int = 9) -> None:
        rng, n = np.random.default_rng(2), len(lives.targets)
        self.features = sparse.csr_array(rng.random((n, words)) * (rng.random((n, words)) < 0.4))
        pairs = np.triu((rng.random((n, n)) < 0.1) & (lives.periods[:, None] == lives.periods), 1)
        self.edges = sparse.csr_array((pairs | pairs.T).astype(np.float64))

    @property
    def near(self) -> NDArray[np.floating]:
        """The mean of the neighbours' words."""
        return (self.edges @ self.features).toarray() / np.maximum(self.edges.sum(1), 1)[:, None]

    def batch(self, rows: NDArray[np.integer]) -> Batch:
        """Some vertices, and all others behind them."""
        order = np.concatenate([rows, np.setdiff1d(np.arange(self.edges.shape[0]), rows)])
        edges = sparse.csr_array(self.edges[order][:, order])
        edges.sort_indices()
        x = SparseMatrix.of(sparse.csr_array(self.features[order]))
        return Batch(x, Neighbours.of(edges.indptr, edges.indices), len(rows), torch.empty(0, dtype=torch.int64))

    def learn(self, lives: Lives, p: Parameters, time: int, classes: int) -> Parameters:
        """Update with the vertices of the period before a task's."""
        rows = lives.rows(time - 1, time)
        vectors = torch.from_numpy(lives.vectors[rows])
        labels = Labels(
            torch.ones(classes),
            time,
            lives.targets[rows],
            lives.periods[rows],
            lambda part: vectors[part],
            lambda part: self.batch(rows[part]),
        )
        return lives.model.closed_form(p, labels)


@pytest.mark.parametrize("settings", [{}, {"discount": 0.5}, {"periods": 2}, {"periods": 3, "discount": 0.9}])
def test_sums_of_words_by_recursion_are_those_from_scratch(settings: dict[str, Any]) -> None:
    lives, classes = Lives(Ridge(width=WIDTH, hops=1, **settings)), 4
    texts = Texts(lives)
    p = lives.model.parameters(texts.features.shape[1], classes, Draw(1))
    for time in range(3, 9):
        before = {name: value.clone() for name, value in p.items()}
        after = texts.learn(lives, p, time, classes)
        assert all(torch.equal(value, p[name]) for name, value in before.items())  # nothing is changed in place
        p = after
    weights = lives.model.discount ** (7.0 - lives.periods)
    if lives.model.periods is not None:
        weights[lives.periods < 8 - lives.model.periods] = 0
    own = weights[:, None] * np.eye(classes)[lives.targets]
    found = np.tensordot(p["ages"].numpy(), p["words"].numpy(), 1)
    np.testing.assert_allclose(found, [texts.features.T @ own, texts.near.T @ own], rtol=1e-5, atol=1e-5)
    assert found[1].any()

    # The logits are the weighted sum of those of ridge regression and naive Bayes.
    batch = texts.batch(np.arange(10))
    readout = lives.model.readout(p, batch, None)
    _, scale = p["scales"].tolist()
    ridge = readout.hidden @ p["weight"] + p["bias"]
    sums, smoothing = torch.from_numpy(found).float(), lives.model.smoothing
    naive = log_likelihoods(log_shares(sums, smoothed_totals(sums, smoothing), smoothing), batch.x, batch.graph, 10)
    there = sums.any(1).any(0)
    torch.testing.assert_close(readout.logits[:, there], (ridge + scale * naive)[:, there], rtol=1e-4, atol=1e-4)


def test_no_text_looks_like_a_class_without_vertices() -> None:
    lives, classes = Lives(Ridge(width=WIDTH, hops=1, periods=2)), 5  # the last class never has a vertex
    texts = Texts(lives)
    p = lives.model.parameters(texts.features.shape[1], classes, Draw(1))
    for time in range(3, 9):
        p = texts.learn(lives, p, time, classes)
    texts.features = 1_000 * texts.features
    assert (lives.model.readout(p, texts.batch(np.arange(40)), None).logits.argmax(1) < 4).all()


def test_vertices_whose_weight_is_too_small_to_count_are_left_out() -> None:
    lives = Lives(Ridge(width=WIDTH, discount=0.4))
    lives.periods = np.arange(len(lives.periods)) * 10
    lives.targets = np.arange(len(lives.periods)) % 3 + 1
    lives.targets[0] = 0  # its weight is 0
    p = lives.learn(int(lives.periods[-1]) + 1, np.arange(len(lives.periods)))
    assert p["bias"][0] < -1_000
    assert torch.isfinite(p["weight"]).all()


def test_equal_vectors_can_be_solved() -> None:
    vectors = np.full((5_000, 3), 3.0**-0.5)
    found = Solution.of(Moments.of(vectors, np.arange(5_000) % 2, 2, np.ones(5_000)), 1e-6)
    assert np.isfinite(found.weight).all()


@pytest.mark.parametrize(("name", "value"), [("scales", -1.0), ("scales", np.nan), ("words", np.nan)])
def test_state_that_cannot_be_is_refused(name: str, value: float) -> None:
    lives, classes = Lives(Ridge(width=WIDTH, hops=1)), 4
    texts = Texts(lives)
    p = texts.learn(lives, lives.model.parameters(texts.features.shape[1], classes, Draw(1)), 3, classes)
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=r"the sums are not|finite|NaN|invalid"):
        texts.learn(lives, p | {name: torch.full_like(p[name], value)}, 4, classes)


def test_sums_of_words_in_too_many_periods_are_refused() -> None:
    with pytest.raises(InputError, match="60,000 features in 75 classes take too much memory for 1,000 periods"):
        Ridge(periods=1_000, width=4).parameters(60_000, 75, Draw(0))


@pytest.mark.parametrize("detector", [DOC(), GDOC()])
def test_detectors_of_probabilities_tell_vertices_apart(detector: Detector) -> None:
    learner = LifelongLearner(Ridge(width=32), detector)
    found: list[tuple[bool, bool, float]] = []
    for task in tasks(GRAPH, "full", first=3):
        decisions = learner.adapt(task).predict(task)
        found += zip(task.never_before, decisions.flagged, decisions.score, strict=True)
    unseen, flagged, score = (np.array(column) for column in zip(*found, strict=True))
    assert 0 < flagged[~unseen].mean() < 0.75
    assert score[unseen].mean() > score[~unseen].mean()


def test_a_learner_that_goes_back_counts_no_label_twice() -> None:
    learner = LifelongLearner(Ridge(width=16), Softmax())
    for task in tasks(GRAPH, "full", first=3):
        learner.adapt(task)
    back = learner.rewound(4)
    assert counts(back.adapt(Task(GRAPH, 4, None))) == labels_before(GRAPH, 4)
    assert counts(back.adapt(Task(GRAPH, 5, None))) == labels_before(GRAPH, 5)


def test_scales_are_the_most_likely_ones() -> None:
    """Logits that say nothing get the smallest factor, true ones their own; few vertices change them little."""
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(20_000, 3))
    targets = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    found = fitted_scales([logits / 2, rng.normal(size=logits.shape)], targets, np.ones(2))
    assert found[0] == pytest.approx(2, abs=0.1)
    assert found[1] < 0.05
    few = fitted_scales([logits[:3] / 2], targets[:3], np.ones(1))
    assert few[0] == pytest.approx(1, abs=0.3)


def test_words_help_where_the_projection_is_too_narrow() -> None:
    accuracy = {}
    for smoothing in (0.0, 0.02):
        learner, right = LifelongLearner(Ridge(width=4, smoothing=smoothing), Softmax()), []
        for task in tasks(GRAPH, "full", first=3):
            right += [*(learner.adapt(task).predict(task).best == task.truth)[~task.never_before]]
        accuracy[smoothing] = np.mean(right)
    assert accuracy[0.02] > accuracy[0.0] + 0.05
