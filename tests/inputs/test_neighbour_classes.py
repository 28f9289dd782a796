"""Classes of older neighbours: against a definition in plain Python, and what must not change them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph import EvolvingGraph, LifelongLearner
from evergraph.datasets import synthetic
from evergraph.detect import GDOC
from evergraph.graph.classes import columns_among
from evergraph.inputs.neighbour_classes import label_delay, neighbour_classes
from evergraph.learning.task import Task
from evergraph.nn import GraphSAGE

pytestmark = pytest.mark.usefixtures("one_thread")

CLASSES = ("a", "b", "c")


@st.composite
def small_graphs(draw: Any) -> EvolvingGraph:
    n = draw(st.integers(2, 14))
    times = sorted(draw(st.lists(st.integers(0, 6), min_size=n, max_size=n)))
    labels = draw(st.lists(st.sampled_from([*CLASSES, None]), min_size=n, max_size=n))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1, max_size=30))
    edges: dict[str, Any] = {"source": [one for one, _ in pairs], "target": [other for _, other in pairs]}
    if draw(st.booleans()):
        edges["time"] = draw(st.lists(st.integers(0, 8), min_size=len(pairs), max_size=len(pairs)))
    return EvolvingGraph.build({"id": list(range(n)), "time": times, "label": labels}, edges)


def by_definition(task: Task, delay: int) -> list[list[float]]:
    graph, window = task.graph, task.window
    visible: dict[frozenset[int], int] = {}
    source, target, times = graph.links.ends()
    for number, (one, other) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        own = max(int(graph.times[one]), int(graph.times[other])) if times is None else int(times[number])
        visible[frozenset((one, other))] = own
    found = []
    for row in range(window.rows.start, window.rows.stop):
        time, counts = int(graph.times[row]), dict.fromkeys(CLASSES, 0)
        for edge, since in visible.items():
            if row not in edge or since > time:
                continue
            (other,) = edge - {row}
            name = graph.names_of(task.released[[other]])[0] if other < len(task.released) else None
            if name is not None and graph.times[other] < time - (delay if time < task.time else 0):
                counts[name] += 1
        total = sum(counts.values())
        found.append([counts[name] / max(total, 1) for name in CLASSES])
    return found


@settings(max_examples=200, deadline=None)
@given(small_graphs(), st.data())
def test_shares_are_those_of_the_definition(graph: EvolvingGraph, data: Any) -> None:
    time = data.draw(st.integers(graph.first_time, graph.last_time + 1))
    history = data.draw(st.sampled_from([1, 2, None]))
    rate, latency = data.draw(st.sampled_from([1.0, 0.5])), data.draw(st.integers(0, 2))
    task = Task(graph, time, history, label_rate=rate, label_latency=latency)
    columns = columns_among(CLASSES, graph.class_names)
    shares = neighbour_classes(task, task.window, columns, len(CLASSES)).toarray()
    expected = np.reshape(by_definition(task, label_delay(task)), (-1, len(CLASSES)))
    np.testing.assert_allclose(shares, expected, rtol=1e-6)
    # The training window of inductive training is the beginning of the window.
    training = replace(task, mode="inductive").training
    fewer = neighbour_classes(task, training, columns, len(CLASSES)).toarray()
    np.testing.assert_array_equal(fewer, shares[: len(fewer)])


def test_classes_without_a_column_are_left_out_of_the_shares() -> None:
    graph = EvolvingGraph.build(
        {"id": [0, 1, 2, 3], "time": [1, 1, 1, 2], "label": ["a", "b", "c", None]}, [[0, 3], [1, 3], [2, 3]]
    )
    task = Task(graph, 2, 1)
    shares = neighbour_classes(task, task.window, columns_among(("a", "c"), graph.class_names), 2)
    assert shares.toarray()[-1].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("late", [0, 1, 2])
def test_the_delay_is_that_of_the_labels(late: int) -> None:
    graph = synthetic(vertices=300, times=8, seed=1)
    for time in (5, 7):
        assert label_delay(Task(graph, time, 2, label_latency=late)) == late


def test_a_few_early_labels_do_not_hide_that_most_are_late() -> None:
    graph = synthetic(vertices=400, times=8, seed=1)
    newest = np.flatnonzero(graph.times >= 6)
    early = newest[:3]
    late = graph.relabel([graph.ids[row] for row in newest if row not in early], [None] * (len(newest) - len(early)))
    assert label_delay(Task(late, 8, 3)) == 2


def test_periods_without_vertices_are_not_a_delay() -> None:
    graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 9], "label": ["a", "b", None]}, [[1, 2], [2, 3]])
    assert label_delay(Task(graph, 9, 1)) == 0


# --- nothing leaks ---------------------------------------------------------------------------------------------------


def flipped(graph: EvolvingGraph, row: int) -> EvolvingGraph:
    """The graph with another class for one vertex."""
    code = int(graph.codes[row])
    other = next(name for number, name in enumerate(graph.class_names) if number != code)
    return graph.relabel([graph.ids[row]], [other])


@pytest.mark.parametrize("inputs", ["classes", "words,classes"])
def test_flipping_one_class_changes_only_what_may_read_it(inputs: str) -> None:
    graph = synthetic(vertices=300, times=6, classes=4, new_classes=0, seed=2)
    task = Task(graph, 5, 2)
    learner = LifelongLearner(GraphSAGE(hidden=8), GDOC(0.5), steps=15, lr=0.02, inputs=inputs).adapt(task)

    def seen(of: EvolvingGraph) -> tuple[Any, Any, Any]:
        view = Task(of, 5, 2)
        vocabulary = learner.vocabulary_
        assert vocabulary is not None
        _, read = vocabulary.read(view, view.window, learner.classes_)
        assert read is not None
        return read.toarray(), learner.outputs(view).logits.numpy(), view

    read, logits, _ = seen(graph)
    rng = np.random.default_rng(0)
    new = np.flatnonzero(graph.times == 5)
    for row in rng.choice(new, 5, replace=False):  # of the slice that is decided: no input and no decision changes
        other_read, other_logits, _ = seen(flipped(graph, int(row)))
        np.testing.assert_array_equal(other_read, read)
        np.testing.assert_array_equal(other_logits, logits)
    old = np.flatnonzero((graph.times < 5) & (np.diff(graph.links.indptr) > 0))
    changed_any = False
    for row in rng.choice(old, 12, replace=False):
        other_read, other_logits, view = seen(flipped(graph, int(row)))
        start = view.window.rows.start
        changed = np.flatnonzero((other_read != read).any(1))
        near = graph.links.indices[slice(*graph.links.indptr[row : row + 2])]
        newer = {int(one) - start for one in near if graph.times[one] > graph.times[row]}
        assert set(changed.tolist()) <= newer  # only its newer neighbours
        words = [block == "words" for block, _ in learner.vocabulary_.columns()]  # type: ignore[union-attr]
        assert not (other_read != read)[:, words].any()  # only the block of classes
        reached = np.zeros(len(read), bool)
        reached[changed] = True
        for _ in range(2):  # two layers
            reached |= view.window.adjacency @ reached.astype(int) > 0
        moved = np.flatnonzero((other_logits != logits).any(1)) + view.test.start
        assert set(moved.tolist()) <= set(np.flatnonzero(reached).tolist())
        changed_any |= bool(len(moved))
    assert changed_any  # otherwise the test shows nothing


def test_labels_that_are_not_released_change_nothing_even_with_training() -> None:
    graph = synthetic(vertices=300, times=6, classes=4, new_classes=0, seed=3)
    hidden = np.flatnonzero(graph.times == 4)[:8]
    other = graph
    for row in hidden:
        other = flipped(other, int(row))
    found = []
    for one in (graph, other):
        task = Task(one, 5, 3, label_latency=1)
        learner = LifelongLearner(GraphSAGE(hidden=8), GDOC(0.5), steps=15, lr=0.02).adapt(task)
        found.append(learner.predict(task))
    assert found[0].classes.tolist() == found[1].classes.tolist()
    np.testing.assert_array_equal(found[0].score, found[1].score)


def test_the_order_of_classes_does_not_matter() -> None:
    graph = synthetic(vertices=200, times=5, classes=4, new_classes=1, seed=3)
    task = Task(graph, 4, 2)
    names = tuple(sorted(graph.class_names))
    one = neighbour_classes(task, task.window, columns_among(names, graph.class_names), len(names)).toarray()
    back = names[::-1]
    other = neighbour_classes(task, task.window, columns_among(back, graph.class_names), len(back)).toarray()
    np.testing.assert_array_equal(one, other[:, ::-1])
