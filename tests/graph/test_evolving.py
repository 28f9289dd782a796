from __future__ import annotations

import datetime as dt
import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from evergraph import UNSEEN, EvolvingGraph, InputError
from evergraph.graph.classes import ClassRegistry
from evergraph.graph.features import SparseFeatures, WordCounts
from evergraph.graph.ids import Strings
from evergraph.graph.times import MAX_SPAN
from tests.strategies import Model, Tables, abc, arrays_of, assert_equal, model_of, tables

build = EvolvingGraph.build


# --- building --------------------------------------------------------------------------------------------------------


@given(tables())
def test_a_graph_is_what_its_tables_say(given: Tables) -> None:
    graph, model = given.build(), Model.of(given)
    assert model_of(graph) == model
    assert graph.ids.tolist() == list(model.times)  # the order, too: by time, those of one time as they came
    assert graph.class_names == model.class_names
    assert (len(graph), graph.n_edges) == (len(model.times), len(model.edges))
    assert (graph.first_time, graph.last_time) == (min(model.times.values()), max(model.times.values()))
    if isinstance(graph.features.words, WordCounts):
        assert list(graph.features.words.columns) == model.words
        assert (graph.features.words.data > 0).all()


@given(tables())
def test_the_adjacency_is_symmetric_sorted_and_has_the_degrees_of_the_reference(given: Tables) -> None:
    graph, model = given.build(), Model.of(given)
    matrix = graph.adjacency
    names = graph.ids.tolist()
    assert (matrix != matrix.T).nnz == 0
    assert not matrix.diagonal().any()
    assert matrix.sum() == 2 * graph.n_edges
    assert matrix.has_sorted_indices
    for row, name in enumerate(names):
        neighbours = graph.links.indices[graph.links.indptr[row] : graph.links.indptr[row + 1]]
        assert (np.diff(neighbours) > 0).all()
        assert {names[other] for other in neighbours} == model.neighbours(name)
    assert graph.links.indptr.dtype == graph.links.indices.dtype == np.int32


@given(tables())
def test_classes_know_their_support_and_their_first_and_last_time(given: Tables) -> None:
    graph, model = given.build(), Model.of(given)
    registry = graph.classes
    assert tuple(registry) == registry.names == model.class_names
    assert len(registry) == len(model.class_names)
    for row, name in enumerate(registry):
        times = [model.times[vertex] for vertex, label in model.labels.items() if label == name]
        assert (registry.row(name), registry.support[row]) == (row, len(times))
        assert (registry.first[row], registry.last[row]) == (min(times), max(times))
        assert name in registry
    assert "no such class" not in registry
    with pytest.raises(InputError, match="no class named 'no such class'"):
        registry.row("no such class")


def test_a_class_that_nobody_has_is_kept_with_support_nought() -> None:
    graph = build(abc(label=["x", "y", "x"])).relabel(["b"], ["x"])
    assert (graph.classes.names, graph.classes.support.tolist()) == (("x", "y"), [3, 0])
    assert (graph.classes.first.tolist(), graph.classes.last.tolist()) == ([1, 0], [3, 0])


def test_registries_can_be_compared_and_hashed() -> None:
    registry = ClassRegistry.count(["x"], np.array([0, 0]), np.array([1, 2]))
    assert registry == registry
    assert len({registry, ClassRegistry.count([], np.array([], int), np.array([], int))}) == 2


def test_edge_times_that_say_nothing_new_are_not_kept() -> None:
    with_times = build(abc(), {"source": ["a", "b"], "target": ["b", "c"], "time": [0, 3]})
    assert with_times.links.times is None
    assert_equal(with_times, build(abc(), [("a", "b"), ("c", "b"), ("b", "a"), ("c", "c")]))


def test_of_double_edges_the_earliest_counts() -> None:
    graph = build(abc(), {"source": ["a", "b", "a"], "target": ["b", "a", "b"], "time": [9, 5, 7]})
    assert [graph.window(1, last).n_edges for last in (4, 5)] == [0, 1]


@pytest.mark.parametrize("edges", [None, [], np.empty((0, 2)), {"source": [], "target": []}, pd.DataFrame(abc())[:0]])
def test_a_graph_may_have_no_edges(edges: Any) -> None:
    if isinstance(edges, pd.DataFrame):
        edges = edges.rename(columns={"id": "source", "time": "target"})
    graph = build(abc(), edges)
    assert (graph.n_edges, graph.adjacency.shape, graph.window(1, 2).n_edges) == (0, (3, 3), 0)


def test_one_vertex_is_a_graph() -> None:
    graph = build({"id": ["only"], "time": [5], "label": [None], "text": ["word"]}, [("only", "only")])
    assert repr(graph) == "EvolvingGraph(vertices=1, edges=0, classes=0, times=5..5, features=words)"
    assert graph.up_to(5).inputs("global").toarray().tolist() == [[1.0]]
    assert (list(graph.labels), len(graph.classes)) == ([None], 0)


def test_about_is_kept() -> None:
    graph = build(abc(), about={"from": "nowhere"})
    assert graph.append({"id": ["d"], "time": [4]}).about == graph.about == {"from": "nowhere"}


def test_the_word_unseen_is_what_decisions_say() -> None:
    assert UNSEEN == "unseen"


# --- nothing changes -------------------------------------------------------------------------------------------------


@given(tables())
def test_all_arrays_of_a_graph_are_read_only(given: Tables) -> None:
    graph = given.build()
    for name, array in arrays_of(graph).items():
        assert not array.flags.writeable, name
    with pytest.raises(ValueError, match="read-only"):
        graph.times[:] = 0
    with pytest.raises(AttributeError):
        graph.times = graph.times
    for array in (graph.classes.first, graph.classes.last, graph.classes.support):
        assert not array.flags.writeable


def test_what_is_handed_out_cannot_change_the_graph() -> None:
    graph = build(abc(label=["x", "y", None]), [("a", "b")], features=np.eye(3))
    graph.labels[0] = "other"
    graph.adjacency.data[:] = False
    graph.adjacency.setdiag(True)
    assert graph.labels.tolist() == ["x", "y", None]
    assert graph.adjacency.sum() == 2
    with pytest.raises(ValueError, match="read-only"):
        graph.window(1, 3).inputs()[0] = 5


def test_what_was_given_can_change_without_the_graph() -> None:
    times, numbers = np.array([1, 2, 3]), np.array([7, 8, 9])
    for features in (np.eye(3, dtype=np.float32), sparse.csr_array(np.eye(3, dtype=np.float32))):
        graph = build({"id": numbers, "time": times}, features=features)
        times += 5
        numbers += 5
        (features if isinstance(features, np.ndarray) else features.data)[:] = 9
        assert (graph.ids.tolist(), graph.times.tolist()) == ([7, 8, 9], [1, 2, 3])
        assert np.asarray(model_of(graph).inputs[7]["0"]) == 1
        times, numbers = times - 5, numbers - 5


@given(tables())
def test_graphs_can_be_copied_and_pickled_between_processes(given: Tables) -> None:
    graph = given.build()
    assert_equal(pickle.loads(pickle.dumps(graph)), graph)
    assert_equal(deepcopy(graph), graph)


# --- appending -------------------------------------------------------------------------------------------------------


def append(graph: EvolvingGraph, more: Tables) -> EvolvingGraph:
    vertices = more.vertices if more.vertices["id"] else None
    return graph.append(vertices, more.edges, **more.more if vertices else {})


@given(tables(min_size=2), st.integers(1, 6))
def test_appending_what_is_later_equals_rebuilding(given: Tables, time: int) -> None:
    old, new = given.before(time)
    if old.vertices["id"]:
        assert_equal(append(old.build(), new), given.build())


@given(tables(min_size=2))
def test_appending_one_period_after_the_other_equals_rebuilding(given: Tables) -> None:
    graph, rest = None, given
    for time in range(1, 8):
        slice_, rest = rest.before(time) if graph is None else _next_slice(rest, given, time)
        if slice_.vertices["id"]:
            graph = slice_.build() if graph is None else append(graph, slice_)
    assert graph is not None
    assert_equal(graph, given.build())


def _next_slice(rest: Tables, whole: Tables, time: int) -> tuple[Tables, Tables]:
    """The vertices before a time with the edges whose ends are all there by then, and the rest."""
    known = {name for name, at in zip(whole.vertices["id"], whole.vertices["time"], strict=True) if at < time}
    now = [row for row, at in enumerate(rest.vertices["time"]) if at < time]
    ends = list(zip(rest.edges["source"], rest.edges["target"], strict=True))
    visible = [row for row, pair in enumerate(ends) if known.issuperset(pair)]
    later = [row for row in range(len(rest.vertices["id"])) if row not in now]
    return rest.pick(now, visible), rest.pick(later, [row for row in range(len(ends)) if row not in visible])


@given(tables(min_size=2), st.data())
def test_appending_any_part_means_the_same_as_rebuilding(given: Tables, data: st.DataObject) -> None:
    size = len(given.vertices["id"])
    old_rows = data.draw(st.lists(st.integers(0, size - 1), min_size=1, unique=True).map(sorted))
    old, new = given.divide(old_rows)
    before = old.build()
    graph = append(before, new)
    assert model_of(graph) == Model.of(given)
    assert_rows_kept(before, graph)


def assert_rows_kept(before: EvolvingGraph, after: EvolvingGraph) -> None:
    assert after.class_names[: len(before.class_names)] == before.class_names
    for part in ("words", "categories"):
        if (old := getattr(before.features, part)) is not None:
            assert list(getattr(after.features, part).columns[: old.width]) == list(old.columns)


def test_new_classes_and_words_come_last_even_if_they_are_older() -> None:
    graph = build(abc(time=[5, 6, 7], label=["x", "y", "x"], text=["one two", "two", "three"]))
    more = graph.append({"id": ["d", "e"], "time": [1, 1], "label": ["z", "y"], "text": ["zero one", "three"]})
    assert more.class_names == ("x", "y", "z")
    assert more.labels.tolist() == ["z", "y", "x", "y", "x"]
    assert list(more.features.words.columns) == ["one", "two", "three", "zero"]
    assert more.features.words.matrix.toarray().tolist()[:3] == [[1, 0, 0, 1], [0, 0, 1, 0], [1, 1, 0, 0]]


def test_edges_can_be_appended_among_old_vertices() -> None:
    graph = build(abc(), [("a", "b")]).append(edges=[("c", "a"), ("b", "a"), ("b", "b")])
    assert_equal(graph, build(abc(), [("a", "b"), ("a", "c")]))
    timed = build(abc(), [("a", "b")]).append(edges={"source": ["c"], "target": ["a"], "time": [9]})
    assert_equal(timed, build(abc(), {"source": ["a", "a"], "target": ["b", "c"], "time": [0, 9]}))
    assert [timed.window(1, last).n_edges for last in (8, 9)] == [1, 2]
    both = timed.append({"id": ["d"], "time": [1]}, [("d", "a")])
    assert [both.window(1, last).n_edges for last in (1, 8, 9)] == [1, 2, 3]


@given(tables())
def test_changes_of_nothing_change_nothing(given: Tables) -> None:
    graph = given.build()
    for same in (graph.append(), graph.append(edges=[]), graph.remove(), graph.relabel([], []), graph.remove(edges=[])):
        assert_equal(same, graph)


def test_ids_of_another_kind_are_joined_as_strings() -> None:
    numbers = build({"id": [1, 2], "time": [1, 2]}).append({"id": ["007", "x"], "time": [3, 4]}, [("1", "007")])
    assert numbers.ids.tolist() == ["1", "2", "007", "x"]
    assert numbers.n_edges == 1
    strings = build(abc()).append({"id": [7], "time": [4]}, [("a", "7")])
    assert strings.ids.tolist() == ["a", "b", "c", "7"]
    with pytest.raises(InputError, match="vertex 7 is in the graph already"):
        strings.append({"id": [7], "time": [5]})
    with pytest.raises(InputError, match="vertex '1' is in the graph already"):
        build({"id": [1], "time": [1]}).append({"id": ["1"], "time": [3]})


@pytest.mark.parametrize(
    ("columns", "features", "problem"),
    [
        ({"id": ["a"], "time": [4]}, np.ones((1, 2)), "'a' is in the graph already"),
        ({"id": ["d", "d"], "time": [4, 4]}, np.ones((2, 2)), "'d' occurs twice"),
        ({"id": ["d"], "time": [4]}, None, "features of the new vertices: none; of the graph: numbers"),
        ({"id": ["d"], "time": [4]}, np.ones((1, 3)), "the new vertices have 3 numbers, the graph has 2"),
        ({"id": ["d"], "time": [4]}, np.ones((2, 2)), "2 rows of features for 1 vertices"),
        ({"id": ["d"], "time": [4], "text": ["t"]}, None, "features of the new vertices: words; of the graph: numbers"),
        (
            {"id": ["d"], "time": [4]},
            sparse.eye_array(1, 2),
            "features of the new vertices: sparse; of the graph: numbers",
        ),
        ({"id": ["d"], "time": ["2004-01-01"]}, np.ones((1, 2)), "the times are dates, but the graph counts"),
        ({"id": ["d"], "time": [2 + MAX_SPAN]}, np.ones((1, 2)), f"time {2 + MAX_SPAN} is far from the others"),
        ({"id": [], "time": []}, np.ones((0, 2)), "there are no vertices"),
        (None, np.ones((1, 2)), "there are features, but no vertices"),
    ],
)
def test_what_cannot_be_appended_is_refused(columns: Any, features: Any, problem: str) -> None:
    graph = build(abc(), features=np.ones((3, 2)))
    with pytest.raises(InputError, match=problem):
        graph.append(columns, features=features)


def test_a_window_of_years_in_a_graph_of_months_is_refused() -> None:
    graph = build({"id": ["a", "b"], "time": ["2001-01-01", "2002-01-01"]}, every="month")
    assert len(graph.window("2001-01", "2001-12")) == 1
    assert len(graph.up_to("1999-01")) == 0
    with pytest.raises(InputError, match=r"is outside .* 24012 \(2001-01\) to 24024 \(2002-01\)"):
        graph.window(2001, 2002)


def test_sparse_features_are_appended_column_by_column() -> None:
    graph = build(abc(), features=sparse.csr_array(np.eye(3)), feature_names=["p", "q", "r"])
    more = graph.append({"id": ["d"], "time": [0]}, features=sparse.csr_array([[0, 5.0, 6]]))
    assert list(more.features.words.columns) == ["p", "q", "r"]
    assert model_of(more).inputs["d"] == {"q": 5, "r": 6}
    wider = graph.append({"id": ["d"], "time": [4]}, features=sparse.csr_array([[7.0, 8]]), feature_names=["s", "q"])
    assert list(wider.features.words.columns) == ["p", "q", "r", "s"]
    assert model_of(wider).inputs["d"] == {"s": 7, "q": 8}
    with pytest.raises(InputError, match="3 column names for 1 feature columns"):
        graph.append({"id": ["d"], "time": [4]}, features=sparse.eye_array(1))
    with pytest.raises(InputError, match="features of the new vertices: sparse; of the graph: words"):
        build(abc(text=["t", "", ""])).append({"id": ["d"], "time": [4]}, features=sparse.eye_array(1))


def test_sparse_features_with_names_bring_new_columns() -> None:
    graph = build(abc(), features=sparse.csr_array(np.eye(3)), feature_names=["p", "q", "r"])
    more = graph.append({"id": ["d"], "time": [0]}, features=sparse.csr_array([[7, 8.0]]), feature_names=["s", "q"])
    assert list(more.features.words.columns) == ["p", "q", "r", "s"]
    assert model_of(more).inputs == {"d": {"q": 8, "s": 7}, "a": {"p": 1}, "b": {"q": 1}, "c": {"r": 1}}
    with pytest.raises(InputError, match="not all different strings"):
        graph.append({"id": ["d"], "time": [4]}, features=sparse.csr_array([[7, 8.0]]), feature_names=["s", "s"])


def test_joining_sparse_features_leaves_both_parts_as_they_were() -> None:
    left = SparseFeatures.of(sparse.csr_array([[1.0, 2]]), Strings.of(["p", "q"]))
    right = SparseFeatures.of(sparse.csr_array([[3.0, 4, 5]]), Strings.of(["new", "q", "p"]))
    joined = left.stack([left.place(right)])
    assert list(joined.columns) == ["p", "q", "new"]
    assert joined.matrix.toarray().tolist() == [[1, 2, 0], [5, 4, 3]]
    assert joined.matrix.has_sorted_indices
    assert right.matrix.toarray().tolist() == [[3, 4, 5]]


# --- relabelling and removing ----------------------------------------------------------------------------------------


@given(tables(), st.data())
def test_relabelling_changes_the_named_vertices_only(given: Tables, data: st.DataObject) -> None:
    graph, model = given.build(), Model.of(given)
    labels = st.sampled_from([None, "", "KDD", "new", "newer"])
    changes = data.draw(st.dictionaries(st.sampled_from(given.vertices["id"]), labels))
    after = graph.relabel(changes, changes.values())
    expected = model.labels | {name: label or None for name, label in changes.items()}
    assert dict(zip(after.ids.tolist(), after.labels.tolist(), strict=True)) == expected
    assert after.class_names[: len(graph.class_names)] == graph.class_names
    assert graph.labels.tolist() == list(model.labels.values())
    assert not after.codes.flags.writeable


@pytest.mark.parametrize(
    ("ids", "labels", "problem"),
    [
        (["a", "z"], ["x", "x"], "there is no vertex 'z'"),
        (["a"], ["x", "y"], "2 labels for 1 vertices"),
        (["a"], [" UnSeen"], "a class is named ' UnSeen'"),
        (["a", "b"], ["x", 5], "column 'label', row 2: the values are not a column"),
        (["a"], [0.5], "fractions are not class names"),
        ("a", ["x"], r"'a' is one id, not several. Put it into a list: \['a'\]"),
        (5, ["x"], "5 is one id, not several"),
        ([["a"]], ["x"], "holds no ids"),
        (["a", 5], ["x", "x"], "column 'id', row 2: the values are not a column"),
        ([None], ["x"], "there is no vertex None"),
    ],
)
def test_what_cannot_be_relabelled_is_refused(ids: Any, labels: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        build(abc()).relabel(ids, labels)


@given(tables(min_size=2), st.data())
def test_removing_leaves_what_the_reference_leaves(given: Tables, data: st.DataObject) -> None:
    graph, model = given.build(), Model.of(given)
    names = given.vertices["id"]
    gone = data.draw(st.lists(st.sampled_from(names), max_size=len(names) - 1))
    pairs = sorted(model.edges, key=lambda pair: sorted(map(repr, pair)))
    cut = data.draw(st.lists(st.sampled_from(pairs))) if pairs else []
    edges = [data.draw(st.permutations(sorted(pair, key=repr))) for pair in cut]
    after = graph.remove(gone, edges)
    expected = model.keep(set(names).difference(gone))
    assert model_of(after) == Model(
        expected.times,
        expected.labels,
        expected.inputs,
        {pair: time for pair, time in expected.edges.items() if pair not in cut},
    )
    assert_rows_kept(graph, after)
    assert after.class_names == graph.class_names
    assert model_of(graph) == model
    for name, array in arrays_of(after).items():
        assert not array.flags.writeable, name


@pytest.mark.parametrize(
    ("vertices", "edges", "problem"),
    [
        (["z"], None, "there is no vertex 'z'"),
        ("abc", None, "'abc' is one id"),
        (["a", "b", "c", "a"], None, "no vertex would be left"),
        ([], [("a", "b"), ("a", "c")], "edges, row 2: there is no edge between 'a' and 'c'"),
        ([], [("a", "a")], "there is no edge between 'a' and 'a'"),
        ([], [("a", "z")], "an edge leads to 'z'"),
        (["a"], [("a", "c")], "there is no edge between 'a' and 'c'"),
    ],
)
def test_what_is_not_there_cannot_be_removed(vertices: Any, edges: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        build(abc(), [("a", "b"), ("c", "b")]).remove(vertices, edges)


# --- windows ---------------------------------------------------------------------------------------------------------


@given(tables(), st.integers(-2, 9), st.integers(0, 6))
def test_a_window_is_what_the_reference_has_between_two_times(given: Tables, first: int, length: int) -> None:
    window = given.build().window(first, first + length)
    model = Model.of(given).window(first, first + length)
    assert model_of(window) == model
    assert window.ids.tolist() == list(model.times)
    assert (len(window), window.n_edges) == (len(model.times), len(model.edges))
    assert window.adjacency.shape == (len(window), len(window))
    assert window.labels.tolist() == list(model.labels.values())


@given(tables(), st.integers(-2, 9))
def test_up_to_is_all_that_exists_at_a_time(given: Tables, last: int) -> None:
    assert model_of(given.build().up_to(last)) == Model.of(given).window(-10, last)


@given(tables(kinds=["dense", "sparse", "text"]), st.integers(0, 6), st.integers(0, 6))
def test_windows_share_the_memory_of_their_graph(given: Tables, first: int, length: int) -> None:
    graph = given.build()
    window = graph.window(first, first + length)
    assert np.shares_memory(window.times, graph.times) == (len(window) > 0)
    values = window.inputs("counts")
    if graph.features.numbers is not None:
        assert np.shares_memory(values, graph.features.numbers.values) == (values.size > 0)
    else:
        assert np.shares_memory(values.data, graph.features.words.data) == (values.nnz > 0)
        assert np.shares_memory(values.indices, graph.features.words.indices) == (values.nnz > 0)


def test_windows_outside_the_times_are_empty() -> None:
    graph = build(abc(text=["one", "two", "three"], label=["x", None, "y"]), [("a", "b")])
    for window in (graph.window(10, 20), graph.window(-20, 0), graph.up_to(0), graph.window(-(10**30), -(10**20))):
        assert (len(window), window.n_edges, window.inputs().shape) == (0, 0, (0, 3))
        assert (window.labels.tolist(), window.ids.tolist()) == ([], [])
    assert len(graph.window(-(10**30), 10**30)) == 3


def test_windows_take_every_way_to_write_a_time() -> None:
    graph = build(abc(time=["2004-01-31", "2004-02-01", "2005-01-01"]), every="month")
    february = 2004 * 12 + 1
    ways = ["2004-02", "2004-02-29", " 2004-02-03T10:00", dt.date(2004, 2, 2), dt.datetime(2004, 2, 2, 1)]
    ways += [pd.Timestamp("2004-02-02"), np.datetime64("2004-02"), february, np.int32(february), float(february)]
    for way in ways:
        assert graph.window(way, way).ids.tolist() == ["b"], way


@pytest.mark.parametrize("time", [None, float("nan"), 1.5, "soon", "", [1], dt.date(2004, 1, 1), "2004-01-01", "-3"])
def test_windows_refuse_what_is_no_time(time: Any) -> None:
    with pytest.raises(InputError):
        build(abc()).window(time, 3)
    with pytest.raises(InputError):
        build(abc()).up_to(time)


def test_a_window_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(InputError, match=r"the window ends \(1\) before it starts \(3\)"):
        build(abc()).window(3, 1)


def test_inputs_need_features_and_a_known_mode() -> None:
    with pytest.raises(InputError, match="no features"):
        build(abc()).window(1, 3).inputs()
    with pytest.raises(InputError, match="no text mode 'future'"):
        build(abc(text=["", "", ""])).window(1, 3).inputs("future")
