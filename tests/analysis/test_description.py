"""Descriptions and drift against plain counting, and against the tables that came with the real graphs."""

import json
from collections import Counter

import msgspec
import numpy as np
import pytest

from evergraph import EvolvingGraph
from evergraph.analysis import GraphDescription, describe, drift, first_task
from evergraph.datasets import metamath, read_tables, synthetic


def small(times, labels=None, edges=()):
    vertices = {"id": list(range(len(times))), "time": times}
    return EvolvingGraph.build(vertices | ({"label": labels} if labels else {}), list(edges))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([1, 2, 3, 4], 2),  # just a quarter before 2
        ([1, 2, 2, 2, 2], 2),  # no time has a quarter before it: the last one
        ([1] * 3 + [5] * 9, 5),
        ([1] * 2 + [5] * 9 + [9], 9),
        ([3, 3, 3], None),
    ],
)
def test_first_task(times, expected):
    assert first_task(small(times)) == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([None, None, "a", None], 4),  # a label of the task's own period is not one to train on
        ([None, "a", None, "b"], 3),
        ([None, None, None, "a"], 2),  # no period has a label before it
        ([None] * 4, 2),
    ],
)
def test_first_task_has_labels_before_it(labels, expected):
    assert first_task(small([1, 2, 3, 4], labels)) == expected


def test_profile_counts_like_a_person():
    times = [1, 1, 1, 2, 2, 3, 3, 3]
    labels = ["x", "y", None, "z", "x", "w", "w", "y"]
    found = describe(small(times, labels, [(0, 1), (0, 4), (5, 6), (2, 3)]))
    assert (found.vertices, found.edges, len(found.classes)) == (8, 4, 4)
    assert (found.first_task, found.test_vertices, found.new_classes) == (2, 5, ["z", "w"])
    assert found.unseen_vertices == 3
    assert found.unseen_at == [2, 1, 2]
    assert found.classes_at == [2, 2, 2]
    assert found.vertices_at == [3, 2, 3]
    assert found.homophily == 2 / 3
    assert found.label_rate == 7 / 8
    assert found.isolated == 1
    assert found.degrees == {"degree": [0, 1, 2], "vertices": [1, 6, 1]}


def test_profile_of_a_graph_with_nothing_to_count():
    found = describe(small([7]))
    assert (found.first_task, found.homophily, found.power_law, found.test_vertices) == (None, None, None, 0)
    assert drift(small([1, 2])).times.tolist() == []


def test_a_description_survives_json():
    graph = small([1, 1, 2, 4], ["x", None, "y", "x"], [(0, 1), (1, 2), (2, 3)])
    found = describe(graph, "g", hops=[1, 2], past=True)
    assert found.past_differences is not None
    assert GraphDescription.from_dict(json.loads(json.dumps(found.as_dict(), allow_nan=False))) == found
    with pytest.raises(msgspec.ValidationError, match="vertices"):
        GraphDescription.from_dict(found.as_dict() | {"vertices": "many"})


def test_a_class_without_vertices_does_not_count():
    graph = small([1, 2, 2], ["x", "y", "x"]).relabel([1], ["x"])
    found = describe(graph)
    assert (len(found.classes), found.new_classes, found.unseen_vertices) == (1, [], 0)


def test_drift_is_total_variation_by_hand():
    graph = synthetic(vertices=600, times=6, seed=3)
    moved = drift(graph)

    def shares(rows):
        counts = Counter(graph.labels[rows])
        counts.pop(None, None)
        return {name: n / counts.total() for name, n in counts.items()}

    for i, time in enumerate(moved.times[1:], 1):
        now = shares(graph.times == time)
        for before, found in (
            (shares(graph.times == moved.times[i - 1]), moved.consecutive[i]),
            (shares(graph.times < time), moved.cumulative[i]),
        ):
            expected = sum(abs(now.get(name, 0) - before.get(name, 0)) for name in now | before) / 2
            assert found == pytest.approx(expected, abs=1e-12)
    assert np.isnan(moved.consecutive[0])


KNOWN = {
    # what the graphs' makers counted: vertices, edges, classes, first task, new classes, unseen, test, homophily
    "dblp-easy": (43_822, 306_613, 15, 2000, 3, 151, 31_603, 0.548),
    "dblp-hard": (71_439, 501_966, 64, 1999, 21, 594, 53_281, None),
    "dblp-citation": (20_871, 27_730, 54, 2003, 9, 140, 15_020, 0.613),
    "acl": (65_184, 2_467_249, 51, 2009, 18, 1_267, 47_696, 0.162),
}


@pytest.mark.parametrize("name", KNOWN)
def test_real_graphs_have_the_known_describe(shared_data, name):
    folder = shared_data(name)
    found = describe(read_tables(folder / "nodes.csv.gz", folder / "edges.csv.gz"))
    *counts, homophily = KNOWN[name]
    assert [
        found.vertices,
        found.edges,
        len(found.classes),
        found.first_task,
        len(found.new_classes),
        found.unseen_vertices,
        found.test_vertices,
    ] == counts
    if homophily is not None:
        assert found.homophily == pytest.approx(homophily, abs=5e-4)


def test_metamath_is_as_expected():
    graph = metamath()
    found = describe(graph)
    assert (found.vertices, found.edges, len(found.classes)) == (25_729, 461_874, 74)
    assert (found.first_task, len(found.new_classes)) == (2007, 36)
    assert (found.unseen_vertices, found.test_vertices) == (2_228, 18_337)
    assert "nan" in list(graph.ids)
    assert graph.find(["nan"]).size == 1


def test_the_description_lists_all_kinds_of_features() -> None:
    vertices = {"id": [1, 2], "time": [1, 2], "text": ["old news", "new words"], "n": [1, None], "c": ["x", "y"]}
    found = describe(EvolvingGraph.build(vertices, numbers=["n"], categories=["c"]))
    assert found.features == "4 words, 1 number, 2 categories"
    assert (found.feature_kind, found.feature_width) == ("words numbers categories", 7)
