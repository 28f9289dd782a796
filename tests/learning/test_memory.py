"""Memory: what stays in training beyond the window, and what each policy chooses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph import EvolvingGraph, InputError, LifelongLearner, Task, tasks
from evergraph.datasets import synthetic
from evergraph.detect import GDOC, Softmax
from evergraph.graph.ids import Strings
from evergraph.learning import memory_limit
from evergraph.learning.memory import (
    Candidates,
    ClassMean,
    Coverage,
    Degree,
    Kept,
    MemoryPolicy,
    PageRank,
    Random,
    RecentPerClass,
    RecentTypical,
    as_memory,
    quotas,
    remember,
)
from evergraph.learning.memory_limit import Plan
from evergraph.names import MEMORIES
from evergraph.nn import GAT, SGC, GraphSAGE, GraphSAINT, Model, Ridge
from evergraph.nn.sampling import Edges
from evergraph.workspace import Workspace
from tests.learning.test_learner import growing, run, same, shuffled_future

POLICIES = [as_memory(f"{name}:25") for name in MEMORIES]

pytestmark = pytest.mark.usefixtures("one_thread")


def named(policy: MemoryPolicy) -> str:
    return type(policy).__name__


def candidates(graph: EvolvingGraph | None = None, time: int = 4, history: int = 1) -> Candidates:
    graph = growing() if graph is None else graph
    task = Task(graph, time, history)
    words = graph.features.words
    assert words is not None
    rows = np.flatnonzero(task.released[: task.window.rows.start] >= 0)
    return Candidates(task, rows, lambda some: words.matrix[some].astype(np.float64))


# --- what is in training ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [GraphSAGE(hidden=8), GAT(hidden=4, heads=2), SGC()], ids=named)
@pytest.mark.parametrize("mode", ["transductive", "inductive"])
def test_keeping_every_older_vertex_equals_the_full_history(model: Model, mode: Any) -> None:
    # Each vertex of the synthetic graph has a label, so both train on the same vertices and edges.
    graph = growing()
    learners = [LifelongLearner(model, GDOC(), steps=5, lr=0.01, memory=memory) for memory in (None, Random(10_000))]
    full, kept = (
        run(graph, learner, history, mode=mode) for learner, history in zip(learners, ("full", 1), strict=True)
    )
    for one, other in zip(full, kept, strict=True):
        same(one, other)
    for name, value in learners[0].weights_.items():
        assert torch.equal(value, learners[1].weights_[name])
    last = graph.times.searchsorted(graph.last_time - 1)
    assert list(learners[1].kept_.ids) == list(graph.ids[:last])


def test_without_a_memory_nothing_is_kept() -> None:
    learner = LifelongLearner(GraphSAGE(hidden=4), Softmax(), steps=1, memory="none")
    run(growing(), learner, 1)
    assert learner.memory is None
    assert not len(learner.kept_.ids)


@pytest.mark.parametrize("timed", [False, True])
def test_edges_beside_a_window_are_those_of_the_induced_subgraph(timed: bool) -> None:
    rng = np.random.default_rng(0)
    times = np.sort(rng.integers(0, 5, 60))
    pairs = rng.integers(0, 60, (300, 2))
    edges: dict[str, Any] = {"source": pairs[:, 0], "target": pairs[:, 1]}
    if timed:
        edges["time"] = rng.integers(0, 6, len(pairs))
    graph = EvolvingGraph.build({"id": range(60), "time": times}, edges)
    window = graph.window(3, 4)
    kept = np.flatnonzero((times < 3) & (rng.random(60) < 0.3))
    rows = np.concatenate([kept, np.arange(window.rows.start, window.rows.stop)])
    found = Edges.beside(window, kept)
    expected = graph.up_to(4).adjacency.toarray()[np.ix_(rows, rows)]
    dense = np.zeros_like(expected)
    for row in range(len(found)):
        neighbours = found.indices[found.indptr[row] : found.indptr[row + 1]]
        assert (np.diff(neighbours) > 0).all()
        dense[row, neighbours] = True
    np.testing.assert_array_equal(dense, expected)


@pytest.mark.parametrize("model", [GraphSAGE(hidden=4), GraphSAINT(GraphSAGE(hidden=4))], ids=named)
def test_mini_batches_with_every_older_vertex_equal_those_of_the_full_history(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = Plan.of
    monkeypatch.setattr(Plan, "of", lambda limit, *more, **_: of(limit, *more, sampled=True))
    monkeypatch.setattr(memory_limit, "BATCH", 64)
    graph = growing()
    full, kept = (
        run(graph, LifelongLearner(model, Softmax(), steps=2, lr=0.01, memory=memory, memory_limit=10**12), history)
        for memory, history in ((None, "full"), (Random(10_000), 1))
    )
    for one, other in zip(full, kept, strict=True):
        same(one, other)


# --- what is kept ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES, ids=named)
def test_a_policy_keeps_no_more_than_its_budget_of_older_labelled_vertices(policy: MemoryPolicy) -> None:
    graph = growing()
    learner, before = LifelongLearner(GraphSAGE(hidden=4), Softmax(), steps=1, memory=policy), set()
    for task in tasks(graph, 1, first=2, label_rate=0.7):
        learner.adapt(task)
        rows = graph.find(learner.kept_.ids.tolist())
        assert len(rows) == 25
        assert (graph.times[rows] < task.start).all()
        assert (task.released[rows] >= 0).all()
        left = {row for row in np.flatnonzero(task.released >= 0).tolist() if graph.times[row] == task.start - 1}
        if before:
            assert set(rows.tolist()) <= before | left  # never the whole past
        before = set(rows.tolist())


def test_a_budget_below_one_is_a_share_of_the_older_labelled_vertices() -> None:
    graph = growing()
    learner = LifelongLearner(GraphSAGE(hidden=4), Softmax(), steps=1, memory=Random(0.1))
    for task in tasks(graph, 1, first=2):
        learner.adapt(task)
        assert len(learner.kept_.ids) == int(0.1 * int((graph.times < task.start).sum()))


def test_a_corrected_label_is_trained_on_and_a_removed_vertex_is_dropped() -> None:
    graph = growing()
    learner = LifelongLearner(GraphSAGE(hidden=4), Softmax(), steps=1, memory=Random(30)).adapt(Task(graph, 3, 1))
    first, second, third = learner.kept_.ids[:3].tolist()
    changed = graph.relabel([first, second], ["corrected", None]).remove([third])
    task = Task(changed, 3, 1)
    rows = learner.kept_.rows(task)
    assert len(rows) == 28
    assert changed.labels[rows].tolist()[0] == "corrected"
    assert "corrected" in learner.adapt(task).classes_


def test_a_window_that_reaches_back_takes_its_vertices_from_the_memory_and_returns_them() -> None:
    graph = growing()
    unlabelled = graph.relabel(list(graph.ids[graph.times == 3]), [None] * int((graph.times == 3).sum()))
    kept = Kept()

    def features(rows: Any) -> Any:
        return unlabelled.features.words.matrix[rows].astype(float)

    for time, start in ((3, 2), (4, 2), (5, 4)):  # period 3 has no labels, so the second task reaches back to 2
        task = Task(unlabelled, time, 1, reach_back=True)
        assert task.start == start
        kept = remember(Random(10_000), kept, task, features, 0)
        older = (unlabelled.times < start) & (unlabelled.codes >= 0)
        assert list(kept.ids) == list(unlabelled.ids[np.flatnonzero(older)])


@pytest.mark.parametrize("ids", ["numbers", "strings"])
def test_a_saved_learner_continues_as_if_it_had_not_stopped(ids: str, tmp_path: Path) -> None:
    graph, policy = growing(), RecentPerClass(25)
    if ids == "strings":
        graph = replace(graph, ids=Strings.of(f"vertex {row}" for row in range(len(graph))))
    learner, through = (LifelongLearner(GraphSAGE(hidden=4), Softmax(), steps=3, memory=policy) for _ in range(2))
    for number, task in enumerate(tasks(graph, 1, first=2)):
        one, other = learner.adapt(task).predict(task), through.adapt(task).predict(task)
        same(one, other)
        through.save(tmp_path / str(number))
        through = LifelongLearner.load(tmp_path / str(number))
        assert through.memory == policy
        assert list(through.kept_.ids) == list(learner.kept_.ids)
        same(one, through.predict(task))


@pytest.mark.parametrize("policy", POLICIES, ids=named)
@settings(max_examples=2)
@given(seed=st.integers(0, 10_000), rate=st.sampled_from([1.0, 0.5]))
def test_shuffling_the_future_moves_no_decision(policy: Any, seed: int, rate: float) -> None:
    graph, last = growing(seed=2, vertices=250), 3
    graphs = shuffled_future(graph, graph.last_time, 0), shuffled_future(graph, last, seed)
    assert graphs[0].class_names != graphs[1].class_names  # so the numbers of the classes differ as well
    learners = [LifelongLearner(GraphSAGE(hidden=4), Softmax(), steps=3, memory=policy) for _ in graphs]
    past = [run(g, learner, 1, last, label_rate=rate) for g, learner in zip(graphs, learners, strict=True)]
    for one, other in zip(*past, strict=True):
        same(one, other)
    assert list(learners[0].kept_.ids) == list(learners[1].kept_.ids)


# --- what the policies choose ----------------------------------------------------------------------------------------


def per_class(found: Candidates, scores: np.ndarray, number: int) -> list[int]:
    """The vertices with the highest scores of each class, one class after the other."""
    chosen: list[int] = []
    left = {group: np.flatnonzero(found.groups == group).tolist() for group in sorted(set(found.groups.tolist()))}
    for members in left.values():
        members.sort(key=lambda place: (-scores[place], -place))
    most = quotas(np.bincount(found.groups), number)
    for group, members in left.items():
        chosen += members[: most[group]]
    return sorted(chosen)


def test_random_is_a_uniform_sample_that_only_loses_vertices() -> None:
    first = candidates()
    counts = np.zeros(len(first))
    for seed in range(300):
        found = Candidates(first.task, first.rows, first.features_of, seed)
        chosen = Random(25).choose(found, 25)
        counts[chosen] += 1
        more = Random(25).choose(found, 40)
        assert set(chosen) <= set(more)
    expected = 300 * 25 / len(counts)
    assert abs(counts - expected).max() < 6 * np.sqrt(expected)


def test_recent_per_class_takes_the_newest_of_each_class() -> None:
    found = candidates()
    chosen = RecentPerClass(30).choose(found, 30)
    assert chosen.tolist() == per_class(found, np.arange(len(found)), 30)
    counts = np.bincount(found.groups[chosen])
    assert counts.max() - counts.min() <= 1 or (counts == np.bincount(found.groups)).any()


def test_class_mean_takes_the_nearest_to_the_mean() -> None:
    found = candidates()
    x = found.features.toarray()
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1)
    distances = np.empty(len(found))
    for place, group in enumerate(found.groups):
        distances[place] = np.linalg.norm(x[place] - x[found.groups == group].mean(0))
    chosen = ClassMean(30).choose(found, 30)
    for group in set(found.groups.tolist()):  # ties may be decided by rounding
        mine = np.sort(distances[chosen[found.groups[chosen] == group]])
        np.testing.assert_allclose(mine, np.sort(distances[found.groups == group])[: len(mine)])


def test_recent_typical_takes_those_that_are_new_and_near_to_the_mean() -> None:
    found = candidates()
    x, n = found.features.toarray(), len(found)
    means = {group: x[found.groups == group].mean(0) for group in set(found.groups.tolist())}
    distances = [round(float(((row - means[group]) ** 2).sum()), 9) for row, group in zip(x, found.groups, strict=True)]
    # The number of candidates that are not better by each criterion; of equal distances, the newest is the best.
    better = [[(distances[other], -other) < (distances[one], -one) for other in range(n)] for one in range(n)]
    sums = np.array([one + n - 1 - sum(better[one]) for one in range(n)], float)
    chosen = RecentTypical(30).choose(found, 30).tolist()
    assert chosen == per_class(found, sums, 30)
    assert chosen not in ([*RecentPerClass(30).choose(found, 30)], [*ClassMean(30).choose(found, 30)])


@pytest.mark.parametrize("number", [1, 7, 200])
def test_of_equal_vertices_recent_typical_takes_the_newest(number: int) -> None:
    graph = EvolvingGraph.build(
        {"id": range(300), "time": np.repeat([1, 2, 3], 100), "label": ["a"] * 300, "text": ["x"] * 300}
    )
    found = candidates(graph, time=4)
    assert RecentTypical(number).choose(found, number).tolist() == list(range(200 - number, 200))


def test_coverage_takes_those_with_the_fewest_other_classes_near_them() -> None:
    found = candidates()
    x = found.features.toarray()
    cosines = x @ x.T
    compared = np.argsort(found.draws)  # all of them: they are fewer than 2,000
    near = np.quantile(cosines[np.sort(compared)[:: max(len(found) // 500, 1)]], 0.95)
    counts = [
        sum(cosines[one, other] > near and found.groups[one] != found.groups[other] for other in range(len(found)))
        for one in range(len(found))
    ]
    assert Coverage(30).choose(found, 30).tolist() == per_class(found, -np.array(counts, float), 30)


def test_degree_and_pagerank_agree_with_networkx() -> None:
    found = candidates()
    rows = np.concatenate([found.rows, np.arange(found.task.window.rows.start, found.task.window.rows.stop)])
    graph = networkx.from_scipy_sparse_array(found.task.graph.adjacency[rows][:, rows])
    own = len(found.rows)
    degrees = np.array([graph.degree(place) for place in range(own)])
    chosen = Degree(30).choose(found, 30)
    assert sorted(degrees[chosen]) == sorted(degrees)[-30:]
    start = {place: float(place >= own) for place in graph}
    ranks = networkx.pagerank(graph, alpha=0.85, personalization=start, dangling=start, max_iter=200, tol=1e-12)
    highest = np.sort([ranks[place] for place in range(own)])[-30:]
    mine = np.sort([ranks[place] for place in PageRank(30).choose(found, 30).tolist()])
    assert np.isclose(mine, highest, rtol=0.02).mean() > 0.9  # 20 rounds, not the limit


@given(counts=st.lists(st.integers(0, 30), min_size=1, max_size=8), total=st.integers(0, 100))
def test_quotas_are_as_equal_as_the_groups_allow(counts: list[int], total: int) -> None:
    found = quotas(np.array(counts), total)
    assert found.sum() == min(total, sum(counts))
    assert (found <= counts).all()
    full = found == counts
    if not full.all():
        assert found[~full].max() - found[~full].min() <= 1
        assert found.max() <= found[~full].max() + 1


# --- names and bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "problem"),
    [
        ("randm:5", "there is no memory 'randm'"),
        ("random:0", "the argument budget is 0"),
        ("random:-3", "the argument budget is -3"),
        ("random:many", "'many' in 'random:many' is not a number"),
        (7, "the argument memory is 7"),
    ],
)
def test_wrong_memories_are_refused(memory: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        LifelongLearner(memory=memory)


def test_a_workspace_keeps_vertices_between_commands(tmp_path: Path) -> None:
    graph = synthetic(vertices=400, times=5, classes=4, new_classes=1, seed=1)
    past = graph.remove(list(graph.ids[graph.times >= 3]))
    workspace = Workspace.create(
        tmp_path / "ws", past, model=GraphSAGE(hidden=4), detector=Softmax(), history=1, steps=2, memory="random:30"
    )
    assert workspace.settings()["memory"] == {"name": "random", "budget": 30}
    assert len(Workspace(tmp_path / "ws").learner().kept_.ids) == 30
    outcome = workspace.set(memory="recent-per-class:20")
    assert any("memory" in part for part in outcome.parts)
    workspace.update()
    assert len(workspace.learner().kept_.ids) == 20
    workspace.set(memory="none")
    workspace.update()
    assert not len(workspace.learner().kept_.ids)


# --- classes that retire ---------------------------------------------------------------------------------------------


def test_a_class_without_recent_labels_is_not_predicted_until_it_has_one_again() -> None:
    times = np.repeat(np.arange(8), 20)
    labels = np.array(["a", "b"] * 80, object)
    gone = (times >= 2) & (times < 6) & (labels == "b")
    labels[gone] = None
    words = ["apple" if label == "a" else "banana" for label in np.array(["a", "b"] * 80)]  # still two kinds of texts
    graph = EvolvingGraph.build({"id": range(160), "time": times, "label": labels, "text": words})
    learners = [
        LifelongLearner(GraphSAGE(hidden=4), Softmax(), steps=30, lr=0.05, memory="random:1000", retire_after=periods)
        for periods in (None, 2)
    ]
    predicted: list[list[bool]] = [[], []]
    for task in tasks(graph, 1, first=1):
        for found, learner in zip(predicted, learners, strict=True):
            found.append("b" in set(learner.adapt(task).predict(task).best))
        # Labels are released before the task: "b" is last labelled in period 1, and again in period 6.
        assert learners[1].retired(task) == ({"b"} if 4 <= task.time <= 6 else set())
        assert learners[1].classes_ == learners[0].classes_
    assert not any(predicted[1][3:6])
    assert predicted[1][-1]
    assert all(torch.equal(value, learners[1].weights_[name]) for name, value in learners[0].weights_.items())
    for periods in (0, -1, 1.5, "two"):
        with pytest.raises(InputError, match="the argument retire_after is"):
            LifelongLearner(retire_after=periods)  # type: ignore[arg-type]


def test_a_default_rate_follows_a_memory_that_is_set_later() -> None:
    graph = growing()
    task = next(tasks(graph, 1, first=3))
    learner = LifelongLearner(GraphSAGE(hidden=4), Softmax(), steps=1).adapt(task)
    learner.set_params(memory="random:20").adapt(task)
    assert learner.lr_ == LifelongLearner(GraphSAGE(hidden=4), Softmax(), steps=1, memory="random:20").adapt(task).lr_


@dataclass(frozen=True)
class Oldest(MemoryPolicy):
    """A policy of one's own."""

    def choose(self, candidates: Candidates, number: int) -> Any:
        return np.arange(len(candidates))[:number]


def test_a_policy_of_ones_own_works_but_a_workspace_cannot_store_it(tmp_path: Path) -> None:
    graph = growing()
    learner = LifelongLearner(GraphSAGE(hidden=4), Softmax(), steps=1, memory=Oldest(7)).adapt(Task(graph, 3, 1))
    assert list(learner.kept_.ids) == list(graph.ids[:7])
    learner.save(tmp_path / "learner")
    with pytest.raises(InputError, match="memory"):
        LifelongLearner.load(tmp_path / "learner")
    again = LifelongLearner.load(tmp_path / "learner", memory=Oldest(7))
    assert list(again.kept_.ids) == list(graph.ids[:7])
    with pytest.raises(InputError, match="Oldest"):
        Workspace.create(tmp_path / "ws", graph, model=GraphSAGE(hidden=4), steps=1, memory=Oldest(7))
    assert not (tmp_path / "ws").exists()


def test_a_solved_model_keeps_nothing() -> None:
    learner = LifelongLearner(Ridge(width=16), Softmax(), memory=Random(50))
    run(growing(), learner, 1)
    assert not len(learner.kept_.ids)
