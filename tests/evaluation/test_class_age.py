"""Accuracies by the age of the class, against those counted by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from evergraph import EvolvingGraph
from evergraph.evaluation.class_age import accuracy_by_age
from evergraph.learning.task import Decisions, Task


def by_hand() -> EvolvingGraph:
    """Class a: since 1 and always; b: 1 and 2 only; c: since 7; d: since 5; e: in 10 only, like a vertex unlabelled."""
    rows: list[tuple[int, str | None]] = [
        (1, "a"),
        (1, "b"),
        (2, "b"),
        (3, "a"),
        (5, "d"),
        (7, "c"),
        (9, "a"),
        (9, "d"),
        (9, "c"),
    ]
    rows += [(10, label) for label in ("a", "a", "b", "b", "b", "b", "c", "c", "d", "e", None)]
    return EvolvingGraph.build(
        {"id": list(range(len(rows))), "time": [time for time, _ in rows], "label": [label for _, label in rows]}
    )


def decided(task: Task, best: list[str]) -> Decisions:
    count = len(best)
    flat = np.zeros(count)
    return Decisions(task.test_ids, task.time, np.array(best, object), flat > 0, flat, flat, ("a", "b", "c", "d"))


BEST = ["a", "b", "b", "a", "a", "a", "c", "a", "d", "a", "a"]


def test_accuracies_by_age_are_those_counted_by_hand() -> None:
    graph = by_hand()
    task = Task(graph, time=10, history=1)
    found = accuracy_by_age(task, decided(task, BEST))
    # Ages at 10: a 9 (last label 1), b 9 (last 8), c 3, d 5; e has no label before, so its vertex is in no group.
    assert found["accuracy_old"] == pytest.approx((1 + 1) / 6)  # a: 1 of 2, b: 1 of 4
    assert found["accuracy_middle"] == pytest.approx((1 + 1) / 3)  # c: 1 of 2, d: 1 of 1
    assert math.isnan(found["accuracy_new"])
    assert found["forgetting"] == 1 / 4  # b
    counts = {name: value for name, value in found.items() if name.startswith("vertices")}
    assert counts == {"vertices_new": 0, "vertices_middle": 3, "vertices_old": 6, "vertices_forgetting": 4}


def test_with_late_labels_ages_count_from_the_newest_labels() -> None:
    task = Task(by_hand(), time=10, history=4, label_latency=2)  # labels of 1 to 7
    found = accuracy_by_age(task, decided(task, BEST))
    # At 8: a 7 (last 5), b 7 (last 6), c 1, d 3 (last 3).
    assert found["accuracy_new"] == 1 / 2
    assert found["accuracy_middle"] == 1
    assert found["accuracy_old"] == pytest.approx(2 / 6)
    assert found["forgetting"] == pytest.approx((1 + 1 + 1) / 7)  # a, b and d


def test_neither_the_numbering_of_classes_nor_the_future_matters() -> None:
    graph, task = by_hand(), Task(by_hand(), time=9, history=1)
    best = ["a", "a", "c"]
    found = accuracy_by_age(task, decided(task, best))
    other = replace(
        graph,
        class_names=tuple(reversed(graph.class_names)),
        codes=np.where(graph.codes >= 0, len(graph.class_names) - 1 - graph.codes, -1).astype(np.int32),
    )
    later = graph.relabel(graph.ids[-11:].tolist(), ["b"] * 11)
    for changed in (other, later):
        again = Task(changed, time=9, history=1)
        assert repr(accuracy_by_age(again, decided(again, best))) == repr(found)
    assert (found["accuracy_new"], found["accuracy_middle"], found["accuracy_old"]) == (1.0, 0.0, 1.0)
