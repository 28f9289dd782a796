"""Tasks: windows, labels and truths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph import EvolvingGraph, InputError, first_task, tasks
from evergraph.datasets import synthetic
from evergraph.learning.task import Task, choose_history


def timeline(times: list[int], labels: list[Any] | None = None, edges: Any = None) -> EvolvingGraph:
    columns: dict[str, Any] = {"id": list(range(len(times))), "time": times}
    if labels is not None:
        columns["label"] = labels
    return EvolvingGraph.build(columns, edges, features=np.ones((len(times), 2), np.float32))


@given(
    times=st.lists(st.integers(0, 8), min_size=4, max_size=40).filter(lambda values: len(set(values)) > 2),
    history=st.integers(1, 5),
    mode=st.sampled_from(["transductive", "inductive"]),
)
def test_windows_by_definition(times: list[int], history: int, mode: Any) -> None:
    graph = timeline(times, ["x"] * len(times))
    first = sorted(set(times))[1]
    for task in tasks(graph, history, first=first, mode=mode):
        t = task.time
        start = min(t - history, max(time for time in times if time < t))
        assert sorted(task.window.times.tolist()) == sorted(time for time in times if start <= time <= t)
        assert sorted(task.test_ids) == sorted(i for i, time in enumerate(times) if time == t)
        learnt = task.training.times[task.targets >= 0]
        # In both modes there are `history` labelled times, not one more in one of them.
        assert sorted(learnt.tolist()) == sorted(time for time in times if start <= time < t)
        seen = set(task.training.times.tolist())
        assert (t in seen) == (mode == "transductive")


@given(
    vertices=st.lists(st.tuples(st.integers(0, 12), st.sampled_from([None, "x", "y"])), min_size=4, max_size=30).filter(
        lambda rows: len({time for time, _ in rows}) > 2
    ),
    history=st.integers(1, 4),
    mode=st.sampled_from(["transductive", "inductive"]),
    label_rate=st.sampled_from([0.2, 0.6, 1.0]),
    seed=st.integers(0, 5),
)
def test_a_task_without_labels_reaches_back_to_the_latest_released_ones(
    vertices: list[tuple[int, str | None]], history: int, mode: Any, label_rate: float, seed: int
) -> None:
    graph = timeline([time for time, _ in vertices], [label for _, label in vertices])
    for task in tasks(graph, history, first=graph.first_time + 1, label_rate=label_rate, mode=mode, seed=seed):
        everything = replace(task, history=None)
        released = everything.training.times[everything.targets >= 0]
        assert (released < task.time).all()  # no label of the slice or of later ones
        plain = replace(task, reach_back=False)
        if (plain.targets >= 0).any() or not len(released):  # the history as given
            assert task.start == plain.start == task.time - history
            assert task.window.rows == plain.window.rows
            assert task.targets.tolist() == plain.targets.tolist()
        else:
            assert task.start == released.max() < plain.start
        assert task.periods == task.time - task.start
        learnt = task.training.times[task.targets >= 0]
        assert learnt.tolist() == released[released >= task.start].tolist()
        assert len(learnt) > 0 or not len(released)
        assert task.window.times.max() == task.time
        # The labels of the slice and of later ones change nothing.
        later = graph.ids[task._end :]
        then = replace(task, graph=graph.relabel(later, [None] * len(later)))
        assert then.start == task.start
        assert (then.targets >= 0).tolist() == (task.targets >= 0).tolist()


def test_labels_that_arrive_late_are_reached_when_they_are_there() -> None:
    late = timeline([0, 1, 2, 3, 4], ["x", "x", None, None, None])
    assert Task(late, 4, 1, reach_back=True).start == 1
    assert Task(late.relabel([2], ["x"]), 4, 1, reach_back=True).start == 2
    assert Task(late.relabel([3], ["x"]), 4, 1, reach_back=True).start == 3
    assert Task(late, 4, 1).start == 3  # unless asked to, a task keeps its history


def test_auto_never_chooses_a_history_without_labels(caplog: Any) -> None:
    edges = [[1, 0], [3, 2], [4, 5]]
    graph = timeline([0, 0, 3, 3, 6, 6], ["x", "y", "x", "y", "x", "y"], edges)
    caplog.set_level("INFO", "evergraph")
    assert choose_history(graph, before=6) == 3
    assert "The history is 3 periods instead of 1 period, to reach the latest labels before 6" in caplog.text
    assert [task.periods for task in tasks(graph, "auto", first=6)] == [3]
    assert choose_history(graph.relabel([2, 3], [None, None]), before=6) == 6
    assert choose_history(graph.relabel(range(6), [None] * 6), before=6) == 1  # there is nothing to reach
    # The labels of the task and of later ones do not count.
    assert choose_history(graph.relabel([4, 5], [None, None]), before=6) == 3


def test_auto_takes_all_periods_if_there_are_no_edges_before_the_task(caplog: Any) -> None:
    caplog.set_level("INFO", "evergraph")
    for edges in (None, [[1, 1]], [[5, 4]]):
        found = list(tasks(timeline([0, 0, 3, 3, 6, 6], ["x", "y"] * 3, edges), "auto", first=6))
        assert [(task.time, task.history) for task in found] == [(6, 6)]
    assert "The graph has no edges before 6 to choose a history from: it is 6 periods, all before it." in caplog.text


def test_one_task_for_each_time_that_has_vertices() -> None:
    graph = timeline([0, 1, 1, 4, 4, 7])
    assert [task.time for task in tasks(graph, 1, first=1)] == [1, 4, 7]
    assert [task.time for task in tasks(graph, 1, first=2)] == [4, 7]
    assert next(task.time for task in tasks(graph, "full")) == first_task(graph)


@pytest.mark.parametrize("first", [-5, 0])
def test_a_first_task_with_nothing_before_it_is_refused(first: int) -> None:
    with pytest.raises(InputError, match=f"first task is {first}, but the graph starts at 0") as error:
        next(tasks(timeline([0, 1, 4]), 1, first=first))
    assert error.value.fix == "choose a first task after 0, up to 4"


def test_full_history_sees_all_that_came_before() -> None:
    graph = timeline([0, 1, 5, 9])
    assert [len(task.window) for task in tasks(graph, "full", first=5)] == [3, 4]
    assert next(tasks(graph, "full", first=5)).level == 100


def test_a_static_split_is_a_graph_of_two_times() -> None:
    graph = timeline([0, 0, 0, 1, 1], ["x", "y", None, "x", "y"], [[0, 3], [1, 4]])
    (task,) = tasks(graph, "full")
    assert task.time == 1
    assert (task.targets >= 0).tolist() == [True, True, False, False, False]
    assert task.truth.tolist() == ["x", "y"]


def test_label_rates_are_nested_and_uniform_and_do_not_depend_on_the_future() -> None:
    graph = synthetic(vertices=3000, times=6, classes=4, seed=3)
    released = {
        rate: Task(graph, graph.last_time, None, label_rate=rate, seed=5).targets >= 0 for rate in (0.1, 0.3, 0.7, 1.0)
    }
    for rate in (0.1, 0.3, 0.7):
        assert released[rate].sum() / released[1.0].sum() == pytest.approx(rate, abs=0.04)
    assert (released[0.1] <= released[0.3]).all()
    assert (released[0.3] <= released[0.7]).all()
    assert (released[0.7] <= released[1.0]).all()
    middle = graph.last_time - 2
    early = Task(graph, middle, None, label_rate=0.3, seed=5)
    grown = graph.append({"id": ["new"], "time": [graph.last_time + 1], "label": [None], "text": ["w"]})
    late = Task(grown, middle, None, label_rate=0.3, seed=5)
    assert early.targets.tolist() == late.targets.tolist()
    # Of a vertex the draw is the same at every task.
    latest = Task(graph, graph.last_time, None, label_rate=0.3, seed=5)
    before = np.flatnonzero(graph.times < middle)
    assert ((early.targets[before] >= 0) == (latest.targets[before] >= 0)).all()
    assert (Task(graph, middle, None, label_rate=0.3, seed=6).targets != early.targets).any()


def test_the_two_truths_differ_with_a_short_history() -> None:
    graph = timeline([0, 1, 2, 3, 3], ["old", "x", "x", "old", "new"])
    task = Task(graph, 3, 1)
    assert task.never_before.tolist() == [False, True]  # 'old' was there at 0, though out of this window


def test_the_history_is_chosen_from_the_past_alone() -> None:
    # Pairs two years apart before 10; afterwards ten years apart.
    times = [0, 2, 4, 6, 8, 18, 28, 38]
    edges = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 7]]
    graph = timeline(times, None, edges)
    assert choose_history(graph, before=10) == choose_history(timeline(times[:5], None, edges[:4]), before=10)
    assert next(tasks(graph, "auto", first=10)).history == choose_history(graph, before=18 - 8)
    assert choose_history(graph, before=39) > choose_history(graph, before=10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"history": 0}, "the history is 0"),
        ({"history": True}, "the history is True"),
        ({"history": "some"}, "the history is 'some'"),
        ({"history": 1, "label_rate": 0.0}, "label rate is 0.0"),
        ({"history": 1, "label_rate": 1.5}, "label rate is 1.5"),
        ({"history": 1, "mode": "other"}, "no mode 'other'"),
        ({"history": 1, "first": 9}, "the graph ends at 3"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    graph = timeline([0, 1, 2, 3], ["x"] * 4)
    with pytest.raises(InputError, match=message):
        list(tasks(graph, **arguments))


def test_a_graph_of_one_time_has_no_tasks() -> None:
    with pytest.raises(InputError, match="all vertices are of one period"):
        list(tasks(timeline([3, 3]), 1))


def test_a_task_outside_of_the_graph() -> None:
    with pytest.raises(InputError, match="no vertices in period 7"):
        Task(timeline([0, 1]), 7, 1)
    with pytest.raises(InputError, match="no vertices in period 3"):
        Task(timeline([0, 1]), 3, 1)


@pytest.mark.parametrize("mode", ["transductive", "inductive"])
def test_the_coming_task_has_all_to_learn_from_and_nothing_to_decide(mode: str) -> None:
    coming = Task(timeline([0, 1, 1]), 2, 1, mode)
    assert coming.targets.tolist() == Task(timeline([0, 1, 1, 2]), 2, 1, "inductive").targets.tolist()
    assert len(coming.test_ids) == len(coming.truth) == len(coming.never_before) == 0


@pytest.mark.parametrize(
    ("history", "level"), [(1, 25), (2, 25), (3, 50), (4, 50), (5, 75), (7, 75), (8, 100), (None, 100)]
)
def test_the_level_is_the_share_of_time_differences_covered(history: int | None, level: int) -> None:
    # Pairs of neighbours, alone in the world: differences 1, 2, 4 and 8 in equal number; percentiles 1.75, 3, 5 and 8.
    times, edges = [], []
    for number, difference in enumerate([1, 2, 4, 8] * 5):
        times += [10, 10 + difference]
        edges.append([2 * number, 2 * number + 1])
    graph = timeline([*times, 30], None, edges)
    assert Task(graph, 30, history).level == level


def test_a_graph_without_classes_has_nothing_new() -> None:
    assert Task(timeline([0, 1]), 1, 1).never_before.tolist() == [False]
