"""Stacking: the evidence against its definition, the fit, and when it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from evergraph import EvolvingGraph, LifelongLearner, Task, evaluate, tasks
from evergraph.datasets import synthetic
from evergraph.detect import GDOC, Softmax
from evergraph.graph.classes import columns_among
from evergraph.inputs.neighbour_classes import neighbour_classes
from evergraph.learning.stacking import Stacking
from evergraph.nn import MLP, GraphSAGE

pytestmark = pytest.mark.usefixtures("one_thread")


def test_evidence_is_counted_over_the_whole_past() -> None:
    graph = synthetic(vertices=200, times=6, classes=4, new_classes=1, seed=3)
    task = Task(graph, 4, 1)
    classes = tuple(sorted({name for name in graph.names_of(task.released) if name is not None}))
    columns, k = columns_among(classes, graph.class_names), len(classes)
    stacking = Stacking.start().counted(task, classes)
    shares, odds = stacking.evidence(task, task.test_window, classes)
    np.testing.assert_array_equal(shares, neighbour_classes(task, task.test_window, columns, k).toarray())
    whole = Task(graph, 4, None)
    own = neighbour_classes(whole, whole.window, columns, k).toarray()
    counts, prior = np.zeros((k, k)), np.zeros(k)
    for row, code in enumerate(task.released.tolist()):
        prior[columns[code]] += 1
        for one in range(k):
            counts[one, columns[code]] += own[row, one]
    prior /= prior.sum()
    follows = (counts + 2 * prior) / (counts.sum(1, keepdims=True) + 2)
    expected = np.log(shares @ follows + 0.01) - np.log(prior + 0.01)
    expected[shares.sum(1) == 0] = 0
    np.testing.assert_allclose(odds, expected, rtol=1e-4, atol=1e-5)
    assert (shares.sum(1) == 0).any()


def case(seed: int, use: float, n: int = 400, k: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, evidence and targets, where the evidence is right with a probability."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, k, n)
    logits = rng.normal(size=(n, k)) + 1.0 * np.eye(k)[targets]
    said = np.where(rng.random(n) < use, targets, rng.integers(0, k, n))
    shares = np.eye(k)[said]
    return logits, np.stack([shares, 2 * shares - 0.5]).astype(np.float32), targets


def test_the_first_fit_is_a_penalised_logistic_regression() -> None:
    logits, evidence, targets = case(0, use=0.7)

    def loss(weights: np.ndarray) -> float:
        z = weights[0] * logits + weights[1] * evidence[0] + weights[2] * evidence[1]
        z = z - z.max(1, keepdims=True)
        picked = z[np.arange(len(z)), targets] - np.log(np.exp(z).sum(1))
        return float(-picked.sum() + 2 * ((weights - [1, 2, 0.5]) ** 2).sum())

    found = Stacking.start().fitted(logits, evidence, targets).weights
    best = minimize(loss, [1, 1, 1], method="Nelder-Mead", options={"maxiter": 2000, "xatol": 1e-6, "fatol": 1e-6}).x
    np.testing.assert_allclose(found, best, atol=5e-3)


def test_useless_evidence_loses_its_weight_and_useful_keeps_it() -> None:
    useless = useful = Stacking.start()
    for seed in range(5):
        useless, useful = useless.fitted(*case(seed, use=0.0)), useful.fitted(*case(seed, use=0.9))
    evidence, nothing = case(9, use=1.0)[1], np.zeros(1)
    assert np.abs(useless.combined(nothing, evidence)).max() < 0.3
    assert useful.combined(nothing, evidence).max() > 2


def test_later_slices_count_more() -> None:
    early, late = Stacking.start(), Stacking.start()
    for seed in range(6):
        early = early.fitted(*case(seed, use=0.9 if seed < 3 else 0.0))
        late = late.fitted(*case(seed, use=0.0 if seed < 3 else 0.9))
    evidence = case(9, use=1.0)[1]
    nothing = np.zeros(1)
    assert late.combined(nothing, evidence).max() > early.combined(nothing, evidence).max() + 0.5


def test_unlabelled_vertices_change_nothing() -> None:
    logits, evidence, targets = case(0, use=0.7)
    one = Stacking.start().fitted(logits, evidence, targets)
    more = Stacking.start().fitted(
        np.concatenate([logits, logits]),
        np.concatenate([evidence, evidence], 1),
        np.concatenate([targets, np.full(len(targets), -1)]),
    )
    np.testing.assert_array_equal(one.weights, more.weights)
    nothing = Stacking.start().fitted(logits, evidence, np.full(len(targets), -1))
    np.testing.assert_array_equal(nothing.weights, Stacking.start().weights)


def followers(n: int = 900, periods: int = 6) -> EvolvingGraph:
    """A graph in which a vertex has the class that follows that of its older neighbour, and words say nothing."""
    rng = np.random.default_rng(0)
    each = n // periods
    codes = np.zeros(n, int)
    edges = []
    for row in range(n):
        if row < each:
            codes[row] = rng.integers(0, 5)
            continue
        other = int(rng.integers(row // each * each - each, row // each * each))
        codes[row] = (codes[other] + 1) % 5
        edges.append([row, other])
    text = [f"word{rng.integers(20)}" for _ in range(n)]
    return EvolvingGraph.build(
        {"id": np.arange(n), "time": np.arange(n) // each, "label": [f"c{code}" for code in codes], "text": text}, edges
    )


def test_it_learns_which_classes_follow_which_without_many_steps() -> None:
    graph = followers()
    found = {}
    for inputs in ("words", "words,classes"):
        learner = LifelongLearner(GraphSAGE(hidden=8), Softmax(), steps=3, inputs=inputs)
        for task in tasks(graph, 1, first=2):
            score = evaluate(task, learner.adapt(task).predict(task))
        found[inputs] = score.accuracy
        assert (learner.stacking_ is None) == (inputs == "words")
    assert found["words"] < 0.5
    assert found["words,classes"] > 0.95


def test_a_saved_learner_goes_on_with_its_weights(tmp_path: Path) -> None:
    graph = followers()
    learner = LifelongLearner(MLP(hidden=8), GDOC(0.5, alpha=2.0), steps=3)
    for time in (2, 3):
        learner.adapt(Task(graph, time, 1))
    learner.save(tmp_path / "learner")
    again = LifelongLearner.load(tmp_path / "learner")
    assert learner.stacking_ is not None
    assert again.stacking_ is not None
    np.testing.assert_array_equal(again.stacking_.weights, learner.stacking_.weights)
    assert again.block_gains_ == learner.block_gains_
    for time in (4, 5):
        task = Task(graph, time, 1)
        one, other = learner.adapt(task).predict(task), again.adapt(task).predict(task)
        np.testing.assert_array_equal(one.score, other.score)
        np.testing.assert_array_equal(again.stacking_.precision, learner.stacking_.precision)  # type: ignore[union-attr]


def test_a_block_that_does_not_pay_is_left_out_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(1)
    n = 3000
    kinds = rng.integers(0, 3, n)
    graph = EvolvingGraph.build(  # words say everything, edges nothing
        {
            "id": np.arange(n),
            "time": np.arange(n) // 500,
            "label": [f"c{kind}" for kind in kinds],
            "text": [f"name{kind}" for kind in kinds],
        },
        rng.integers(0, n, (2 * n, 2)),
    )
    caplog.set_level("INFO", "evergraph")
    learner = LifelongLearner(MLP(hidden=8), Softmax(), steps=40, lr=0.05)
    for task in tasks(graph, 1, first=1):
        learner.adapt(task)
    assert learner.vocabulary_ is not None
    assert learner.vocabulary_.blocks == ("words", "classes")
    assert learner.vocabulary_.read_blocks == ("words",)
    assert learner.block_gains_["classes"].vertices >= 1000
    assert "the model does not read classes of older neighbours from" in caplog.text
    asked = LifelongLearner(MLP(hidden=8), Softmax(), steps=4, inputs="words,classes")
    for task in tasks(graph, 1, first=1):
        asked.adapt(task)
    assert asked.vocabulary_ is not None
    assert asked.vocabulary_.read_blocks == ("words", "classes")  # as requested


class Spy(LifelongLearner):
    """Notes which slices are backtested, and the latest label that their tasks see."""

    def _new_slices(self, task: Task) -> Any:
        for past, codes in super()._new_slices(task):
            seen = past.graph.times[: len(past.released)][past.released >= 0]
            NOTES.append((task.time, past.time, int(seen.max(initial=-1))))
            yield past, codes


NOTES: list[tuple[int, int, int]] = []


@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.parametrize("known", [True, False], ids=["latency", "natural"])
def test_each_slice_is_backtested_once_when_its_labels_arrive(late: int, known: bool) -> None:
    graph, found = followers(n=1200, periods=8), []
    NOTES.clear()
    learner = Spy(MLP(hidden=8), Softmax(), steps=2)
    for time in range(3, 8):
        # Either the task hides the newest labels, or they are not in the graph yet.
        newest = [graph.ids[row] for row in np.flatnonzero(graph.times >= time - late)]
        now = graph if known else graph.relabel(newest, [None] * len(newest))
        learner.adapt(Task(now, time, 3, label_latency=late if known else 0))
        found.append(time)
    # The first task is trained on all labels there are; each later one finds the labels of one more slice.
    assert [(time, time - 1 - late, max(time - 2 - 2 * late, -1)) for time in range(4, 8)] == NOTES
    assert learner.stacking_ is not None
    assert not np.array_equal(learner.stacking_.weights, Stacking.start().weights)


def test_a_slice_that_is_labelled_bit_by_bit_is_backtested_with_its_first_labels_only() -> None:
    graph = followers()
    NOTES.clear()
    learner = Spy(MLP(hidden=8), Softmax(), steps=2).adapt(Task(graph, 3, 2))
    ids = [graph.ids[row] for row in np.flatnonzero(graph.times == 3)]
    learner.adapt(Task(graph.relabel(ids[30:], [None] * len(ids[30:])), 4, 2))
    learner.adapt(Task(graph, 4, 2))
    assert [past for _, past, _ in NOTES] == [3]


def test_counts_follow_labels_that_change() -> None:
    graph, ids = followers(), np.arange(900)
    both = ids[np.isin(graph.labels.astype(str), ["c0", "c1"])]
    learner = LifelongLearner(MLP(hidden=8), Softmax(), steps=2, retire_after=100)
    learner.adapt(Task(graph.relabel(both.tolist(), ["c0 + c1"] * len(both)), 3, 2)).adapt(task := Task(graph, 4, 2))
    classes, found = learner.classes_, learner.stacking_
    assert classes == ("c0 + c1", "c2", "c3", "c4", "c0", "c1")
    assert found is not None
    known = graph.times < 4
    prior = np.array([(graph.labels[known] == name).mean() for name in classes])
    np.testing.assert_allclose(found.prior, prior)
    counts = np.zeros((6, 6))
    for row in ids[known]:
        for near in graph.adjacency[[row]].indices:
            if graph.times[near] < graph.times[row]:  # each vertex has at most one older neighbour
                counts[classes.index(graph.labels[near]), classes.index(graph.labels[row])] += 1
    np.testing.assert_allclose(found.follows, (counts + 2 * prior) / (counts.sum(1, keepdims=True) + 2), rtol=1e-6)
    # The class that no vertex has any more is retired at once.
    assert learner.retired(task) == {"c0 + c1"}
    assert "c0 + c1" not in learner.predict(task).best


def test_detectors_judge_the_models_own_logits() -> None:
    graph = followers()
    task = Task(graph, 4, 2)
    learner = LifelongLearner(MLP(hidden=8), GDOC(0.5), steps=3).adapt(Task(graph, 3, 2)).adapt(task)
    outputs = learner.outputs(task)
    assert outputs.stacked_logits is not None
    assert learner.stacking_ is not None
    evidence = learner.stacking_.evidence(task, task.test_window, learner.classes_)
    expected = learner.stacking_.combined(outputs.logits.numpy(), evidence)
    np.testing.assert_array_equal(outputs.stacked_logits, expected)
    decisions = learner.predict(task)
    own = 1 / (1 + np.exp(-outputs.logits.double().numpy().max(1)))
    np.testing.assert_array_equal(decisions.flagged, own < 0.5)
    assert decisions.best.tolist() == [learner.classes_[column] for column in expected.argmax(1)]
    shares = np.exp(expected - expected.max(1, keepdims=True))
    np.testing.assert_allclose(decisions.probability, (shares / shares.sum(1, keepdims=True)).max(1), rtol=1e-5)
