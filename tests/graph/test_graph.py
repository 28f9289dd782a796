from __future__ import annotations

import datetime as dt
import io
import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from evergraph import UNSEEN, EvolvingGraph, InputError
from evergraph.graph.classes import ClassRegistry
from evergraph.graph.features import DenseFeatures, SparseFeatures, WordCounts
from evergraph.graph.ids import Strings
from evergraph.graph.times import MAX_SPAN, TimeAxis
from tests.strategies import Model, Tables, arrays_of, assert_equal, model_of, tables

build = EvolvingGraph.build


def abc(**columns: Any) -> dict[str, Any]:
    """Columns of three vertices a, b and c of the years 1, 2 and 3."""
    return {"id": ["a", "b", "c"], "time": [1, 2, 3]} | columns


# --- building --------------------------------------------------------------------------------------------------------


@given(tables())
def test_a_graph_is_what_its_tables_say(given: Tables) -> None:
    graph, model = given.build(), Model.of(given)
    assert model_of(graph) == model
    assert graph.ids.tolist() == list(model.times)  # the order, too: by time, those of one time as they came
    assert graph.class_names == model.class_names
    assert (len(graph), graph.n_edges) == (len(model.times), len(model.edges))
    assert (graph.first_time, graph.last_time) == (min(model.times.values()), max(model.times.values()))
    if isinstance(graph.features, WordCounts):
        assert list(graph.features.columns) == model.words
        assert (graph.features.data > 0).all()


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
    if isinstance(graph.features, DenseFeatures):
        assert np.shares_memory(values, graph.features.values) == (values.size > 0)
    else:
        assert np.shares_memory(values.data, graph.features.data) == (values.nnz > 0)
        assert np.shares_memory(values.indices, graph.features.indices) == (values.nnz > 0)


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
    return graph.append(vertices, more.edges, features=more.features if vertices else None)


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
    if isinstance(before.features, SparseFeatures):
        assert isinstance(after.features, SparseFeatures)
        assert list(after.features.columns[: before.features.width]) == list(before.features.columns)


def test_new_classes_and_words_come_last_even_if_they_are_older() -> None:
    graph = build(abc(time=[5, 6, 7], label=["x", "y", "x"], text=["one two", "two", "three"]))
    more = graph.append({"id": ["d", "e"], "time": [1, 1], "label": ["z", "y"], "text": ["zero one", "three"]})
    assert more.class_names == ("x", "y", "z")
    assert more.labels.tolist() == ["z", "y", "x", "y", "x"]
    assert list(more.features.columns) == ["one", "two", "three", "zero"]
    assert more.features.matrix.toarray().tolist()[:3] == [[1, 0, 0, 1], [0, 0, 1, 0], [1, 1, 0, 0]]


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
        ({"id": ["d", "d"], "time": [4, 4]}, np.ones((2, 2)), "'d' stands a second time"),
        ({"id": ["d"], "time": [4]}, None, "features of the new vertices: none; of the graph: dense"),
        ({"id": ["d"], "time": [4]}, np.ones((1, 3)), "the new vertices have 3 features, the graph 2"),
        ({"id": ["d"], "time": [4]}, np.ones((2, 2)), "2 rows of features for 1 vertices"),
        ({"id": ["d"], "time": [4], "text": ["t"]}, None, "features of the new vertices: words; of the graph: dense"),
        (
            {"id": ["d"], "time": [4]},
            sparse.eye_array(1, 2),
            "features of the new vertices: sparse; of the graph: dense",
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
    with pytest.raises(InputError, match=r"lies outside .* 24012 \(2001-01\) to 24024 \(2002-01\)"):
        graph.window(2001, 2002)


def test_sparse_features_are_appended_column_by_column() -> None:
    graph = build(abc(), features=sparse.csr_array(np.eye(3)), feature_names=["p", "q", "r"])
    more = graph.append({"id": ["d"], "time": [0]}, features=sparse.csr_array([[0, 5.0, 6]]))
    assert list(more.features.columns) == ["p", "q", "r"]
    assert model_of(more).inputs["d"] == {"q": 5, "r": 6}
    wider = graph.append({"id": ["d"], "time": [4]}, features=sparse.csr_array([[7.0, 8]]), feature_names=["s", "q"])
    assert list(wider.features.columns) == ["p", "q", "r", "s"]
    assert model_of(wider).inputs["d"] == {"s": 7, "q": 8}
    with pytest.raises(InputError, match="3 column names for 1 feature columns"):
        graph.append({"id": ["d"], "time": [4]}, features=sparse.eye_array(1))
    with pytest.raises(InputError, match="features of the new vertices: sparse; of the graph: words"):
        build(abc(text=["t", "", ""])).append({"id": ["d"], "time": [4]}, features=sparse.eye_array(1))


def test_sparse_features_with_names_bring_new_columns() -> None:
    graph = build(abc(), features=sparse.csr_array(np.eye(3)), feature_names=["p", "q", "r"])
    more = graph.append({"id": ["d"], "time": [0]}, features=sparse.csr_array([[7, 8.0]]), feature_names=["s", "q"])
    assert list(more.features.columns) == ["p", "q", "r", "s"]
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
        (["a", "b"], ["x", 5], "column 'label': the values are no column"),
        (["a"], [0.5], "fractions are no class names"),
        ("a", ["x"], r"'a' is one id, not several. To fix it: put it into a list: \['a'\]"),
        (5, ["x"], "5 is one id, not several"),
        ([["a"]], ["x"], "holds no ids"),
        (["a", 5], ["x", "x"], "column 'id': the values are no column"),
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


# --- ids -------------------------------------------------------------------------------------------------------------


@given(tables(), st.data())
def test_ids_are_found_in_whatever_order_they_are_asked_for(given: Tables, data: st.DataObject) -> None:
    graph = given.build()
    wanted = data.draw(st.lists(st.sampled_from(given.vertices["id"])))
    rows = graph.find(wanted)
    assert [graph.ids[row] for row in rows] == wanted
    assert graph.find(name for name in wanted).tolist() == rows.tolist()
    as_strings = [str(name) for name in wanted]
    assert graph.find(as_strings).tolist() == rows.tolist()


@pytest.mark.parametrize("wanted", ["007", "1e0", "+1", "1.0", " 1", "01", "-0", "1234567890123456780", "٧", 2, 1.5])
def test_ids_that_are_only_nearly_right_are_not_found(wanted: Any) -> None:
    graph = build({"id": [1, 7, 0, 1234567890123456789], "time": [1, 1, 1, 1]})
    with pytest.raises(InputError, match="there is no vertex"):
        graph.find([wanted])


def test_nasty_ids_stay_what_they_are() -> None:
    names = ["nan", "NA", "None", "null", "007", "7", "1e5", "100000", " ", "a\0", "a", "é", "e\u0301"]
    graph = build({"id": names, "time": [1] * len(names)}, [("7", "007"), ("nan", "NA"), ("a", "a\0")])
    assert graph.ids.tolist() == names
    assert graph.n_edges == 3
    assert graph.find([7, 100000]).tolist() == [5, 7]


def test_whole_numbers_are_found_in_every_dress() -> None:
    graph = build({"id": [1, 10**15, 1234567890123456789, -5], "time": [1, 1, 1, 1]})
    for wanted in (
        np.array([10**15, 1], np.uint64),
        [10.0**15, 1.0],
        ["1000000000000000", "1"],
        np.array(["1000000000000000", "1"]),
        pd.Categorical([10**15, 1]),
        pd.Series([10**15, 1]),
    ):
        assert graph.find(wanted).tolist() == [1, 0]
    assert graph.find(["1234567890123456789", "-5"]).tolist() == [2, 3]


def test_columns_of_strings_are_sequences() -> None:
    names = ["nan", "", "größer", "🦋", "a\0"]
    strings = Strings.of(names)
    assert [strings[row] for row in range(-5, 5)] == names + names
    assert [list(strings[part]) for part in (slice(1, 3), slice(9, 9), slice(3, 1), slice(None, None, -2))] == [
        names[1:3],
        [],
        [],
        names[::-2],
    ]
    assert strings[1:][1:].tolist() == names[2:]
    assert strings[1:4].packed().offsets[0] == 0
    assert ("größer" in strings, "gr" in strings, strings.index("🦋")) == (True, False, 3)
    assert repr(strings[2:]) == "Strings(['größer', '🦋', 'a\\x00'], length=3)"
    assert repr(strings) == "Strings(['nan', '', 'größer', …], length=5)"
    with pytest.raises(IndexError):
        strings[5]


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vertices", "problem"),
    [
        ({}, "there are no vertices"),
        ({"id": [], "time": []}, "there are no vertices"),
        ({"id": ["a"]}, "there is no column 'time'.*there are: id"),
        ({"time": [1]}, "there is no column 'id'"),
        (None, "the vertices are no table"),
        (7, "the vertices are no table"),
        ([{"id": "a", "time": 1}], "the vertices are no table"),
        ({"id": ["a", "b"], "time": [1]}, "the vertices are no table"),
        ({"id": ["a"], "time": 1}, "column 'time': the values are no column"),
        (
            {"id": ["a", "b", "a"], "time": [1, 2, 3]},
            r"column 'id', row 3: id 'a' stands a second time \(first in row 1\)",
        ),
        ({"id": [5, 5], "time": [1, 2]}, "row 2: id 5 stands a second time"),
        ({"id": ["a", ""], "time": [1, 2]}, "column 'id', row 2: a vertex has no id"),
        ({"id": ["a", None], "time": [1, 2]}, "row 2: a vertex has no id"),
        ({"id": ["a", float("nan")], "time": [1, 2]}, "row 2: a vertex has no id"),
        ({"id": [None, None], "time": [1, 2]}, "holds no ids"),
        ({"id": [1, None], "time": [1, 2]}, "row 2: a vertex has no id"),
        ({"id": [1.0, 2.0], "time": [1, 2]}, "column 'id': a column of double holds no ids"),
        ({"id": [True, False], "time": [1, 2]}, "a column of bool holds no ids"),
        ({"id": [b"a", b"b"], "time": [1, 2]}, "a column of binary holds no ids"),
        ({"id": [["a"], ["b"]], "time": [1, 2]}, "holds no ids"),
        ({"id": ["a", 1], "time": [1, 2]}, "column 'id': the values are no column"),
        ({"id": [1, 2**70], "time": [1, 2]}, "column 'id': the values are no column"),
        ({"id": np.array([1, 2**63], np.uint64), "time": [1, 2]}, "row 2: id 9223372036854775808 is too large"),
        ({"id": ["a", "\ud800"], "time": [1, 2]}, "column 'id': the values are no column"),
        (abc(label=["x", "unseen", "y"]), "column 'label', row 2: a class is named 'unseen'"),
        (abc(label=["x", "y", " UNSEEN\t"]), "row 3: a class is named ' UNSEEN"),
        (abc(label=[1.5, 2, None]), "fractions are no class names"),
        (abc(label=[float("inf"), 2, None]), "no class names"),
        (abc(label=["x", 2, None]), "column 'label': the values are no column"),
        (abc(label=[["x"], ["y"], None]), "holds no class names"),
        (abc(label=[dt.date(2004, 1, 1)] * 3), "holds no class names"),
        (abc(label=["x", "y"]), "the vertices are no table"),
        (abc(text=[1, 2, 3]), "column 'text': a column of int64 holds no text"),
    ],
)
def test_bad_vertices_are_refused_with_column_and_row(vertices: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as error:
        build(vertices)
    assert error.value.fix


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        ([1, -1, 3], "column 'time', row 2: -1 is negative"),
        ([1, 2, None], "row 3: an empty cell is not a time"),
        ([None, None, None], "row 1: an empty cell is not a time"),
        ([1, float("nan"), 3], "row 2: an empty cell is not a time"),
        (np.array([1, np.nan, 3]), "row 2: an empty cell is not a time"),
        (pa.array([1, float("nan"), 3]), "row 2: nan is not a time"),
        ([1, 2.5, 3], "row 2: 2.5 is not a time"),
        ([1, float("inf"), 3], "row 2: inf is not a time"),
        ([1, 2, 2**31], "row 3: 2147483648 is too large"),
        ([1, 2, 2.0**31], "row 3: 2147483648.0 is too large"),
        ([1, 2, 2**70], "column 'time': the values are no column"),
        (np.array([1, 2, 2**64 - 1], np.uint64), "row 3: 18446744073709551615 is too large"),
        ([1, 2, -(2**63)], "row 3: -9223372036854775808 is negative"),
        ([1, 2, 2**31 - 1], "row 3: time 2147483647 is far from the others"),
        (["1", "2", "soon"], "row 3: 'soon' is not a time"),
        (["1", "", "3"], "row 2: an empty cell is not a time"),
        (["1", "0x10", "3"], "row 2: '0x10' is not a time"),
        (["1", "1e3", "3"], "row 2: '1e3' is not a time"),
        (["1", "9" * 30, "3"], "row 2: '9+' is too large"),
        (["1", "2147483648", "3"], "row 2: '2147483648' is too large"),
        (["1", "-2", "3"], "row 2: '-2' is negative"),
        (["2004-01-01", "2004-02-30", "2004-01-01"], "row 2: '2004-02-30' is not a day of the calendar"),
        (["2004-01-01", "2004-13", "2004-01-01"], "row 2: '2004-13' is not a day of the calendar"),
        (["2004-01-01", "31.12.2004", "2004-01-01"], "row 2: '31.12.2004' is not a time"),
        (["2004-01-01", "20045", "2004-01-01"], "row 2: '20045' is a number among dates"),
        ([dt.date(2004, 1, 1), dt.date(2004, 1, 1), 2004], "row 3: 2004 is a number among dates"),
        ([dt.date(2004, 1, 1), np.int64(5), None], "row 2: .*5.* is a number among dates"),
        (pd.Series([dt.date(2004, 1, 1), 5, None], dtype=object), "row 2: 5 is a number among dates"),
        (np.array(["2004-01-01", "NaT", "2004-01-02"], "datetime64[ns]"), "row 2: an empty cell is not a time"),
        ([True, False, True], "a column of bool holds no times"),
        ([dt.timedelta(1)] * 3, "holds no times"),
        ([dt.time(1)] * 3, "holds no times"),
        ([["x"]] * 3, "holds no times"),
    ],
)
def test_bad_times_are_refused_with_column_and_row(times: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as error:
        build(abc(time=times))
    assert error.value.column == "time"


@pytest.mark.parametrize(
    ("edges", "problem"),
    [
        (
            [("a", "z"), ("z", "b")],
            r"column 'target', row 1: an edge leads to 'z', which is no vertex \(2 of 2 edges\)",
        ),
        ([("a", "b"), ("A", "b")], "column 'source', row 2: an edge leads to 'A'"),
        ([("a", None)], "column 'target', row 1: an edge has no end"),
        ([("", "a")], "column 'source', row 1: an edge has no end"),
        ({"source": [float("nan")], "target": ["a"]}, "an edge has no end"),
        ({"source": ["a"]}, "there is no column 'target'"),
        ({"source": ["a"], "target": ["b", "c"]}, "the edges are no table"),
        ({"source": [["a"]], "target": ["b"]}, "holds no ids"),
        ({"source": [dt.date(2004, 1, 1)], "target": ["b"]}, "holds no ids"),
        ({"source": [True], "target": ["b"]}, "holds no ids"),
        ([("a", "b", "c")], r"edges have the shape \(1, 3\)"),
        ([("a", "b"), ("c",)], r"edges have the shape \(2,\)"),
        (["ab", "bc"], r"edges have the shape \(2,\)"),
        ({("a", "b")}, "the edges are no table"),
        ({"source": ["a"], "target": ["b"], "time": [-1]}, "edges, column 'time', row 1: -1 is negative"),
        ({"source": ["a"], "target": ["b"], "time": [None]}, "edges, column 'time', row 1: an empty cell"),
        ({"source": ["a"], "target": ["b"], "time": ["2004-01-01"]}, "the times are dates, but the graph counts"),
    ],
)
def test_bad_edges_are_refused_with_column_and_row(edges: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        build(abc(), edges)
    with pytest.raises(InputError, match=problem):
        build(abc()).append(edges=edges)


def test_dangling_edges_are_dropped_on_demand() -> None:
    edges = {"source": ["a", "z", "a"], "target": ["z", "b", "b"], "time": [1, 1, 8]}
    graph = build(abc(), edges, drop_dangling=True)
    assert_equal(graph, build(abc(), {"source": ["a"], "target": ["b"], "time": [8]}))
    assert_equal(build(abc()).append(edges=edges, drop_dangling=True), graph)


@pytest.mark.parametrize(
    ("features", "problem"),
    [
        (np.ones((2, 2)), "2 rows of features for 3 vertices"),
        ([1, 2, 3], "1 rows of features for 3 vertices"),
        (np.ones((3, 1, 1)), "features have 3 dimensions"),
        ([[1], [1, 2], [3]], "the features are no numbers"),
        ([["a"], ["b"], ["c"]], "the features are no numbers"),
        ([[1j], [2], [3]], "the features are no numbers"),
        ([[1, 2], [1, np.nan], [1, 2]], "features, column '1', row 2: a feature is missing, infinite or too large"),
        ([[1, 2], [1, None], [1, 2]], "features, column '1', row 2: a feature is missing"),
        ([[1, 2], [1, 2], [1e300, 2]], "features, column '0', row 3: a feature is missing, infinite"),
        (sparse.csr_array([[0, 1], [0, np.inf], [3, 0]]), "features, column '1', row 2: a feature is missing"),
        (sparse.csr_array([[0, 0], [0, 0], [1e300, 0]]), "features, column '0', row 3: a feature is missing"),
        (sparse.coo_array(np.array([1.0, 0, 3])), "features have 1 dimensions"),
        (sparse.eye_array(2), "2 rows of features for 3 vertices"),
    ],
)
def test_bad_features_are_refused(features: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        build(abc(), features=features)


def test_bad_names_of_features_are_refused() -> None:
    for names, problem in (
        (["p"], "1 column names for 3 feature columns"),
        (["p", "q", "p"], "not all different strings"),
        ([1, 2, 3], "not all different strings"),
    ):
        with pytest.raises(InputError, match=problem):
            build(abc(), features=sparse.eye_array(3), feature_names=names)
    with pytest.raises(InputError, match="text and feature columns cannot be combined"):
        build(abc(text=["", "", ""]), features=np.eye(3))


def test_features_without_columns_are_features() -> None:
    assert build(abc(), features=np.zeros((3, 0))).window(1, 2).inputs().shape == (2, 0)
    assert build(abc(), features=sparse.csr_array((3, 0))).window(1, 2).inputs().shape == (2, 0)


def test_several_columns_of_one_name_are_refused() -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array([1])], names=["id", "id", "time"])
    for vertices in (table, pd.DataFrame([["a", "b", 1]], columns=["id", "id", "time"])):
        with pytest.raises(InputError, match="there are several columns 'id'"):
            build(vertices)


# --- time ------------------------------------------------------------------------------------------------------------


@settings(max_examples=5 * settings().max_examples)
@given(
    st.lists(st.dates(dt.date(1900, 1, 1), dt.date(2100, 12, 31)), min_size=1, max_size=5),
    st.sampled_from([None, "year", "month", "week", "day", 5, "7"]),
    st.sampled_from(["strings", "dates", "timestamps", "numpy", "pandas"]),
)
def test_dates_become_the_periods_that_the_calendar_says(days: list[dt.date], every: Any, dress: str) -> None:
    column: Any = {
        "strings": [day.isoformat() for day in days],
        "dates": days,
        "timestamps": [dt.datetime.combine(day, dt.time(23, 59, 59)) for day in days],
        "numpy": np.array(days, "datetime64[D]"),
        "pandas": pd.Series(pd.to_datetime([day.isoformat() for day in days])) + pd.Timedelta("13h"),
    }[dress]
    graph = build({"id": range(len(days)), "time": column}, every=every)
    starts = [_start(day, every) for day in days]
    order = sorted(range(len(days)), key=starts.__getitem__)
    assert graph.ids.tolist() == order
    assert [graph.axis.label(time) for time in graph.times] == [_label(days[row], every) for row in order]
    if every in ("week", "day"):  # periods follow each other without gaps
        steps = [(starts[row] - starts[order[0]]).days // (7 if every == "week" else 1) for row in order]
        assert (graph.times - graph.times[0]).tolist() == steps


def _start(day: dt.date, every: Any) -> dt.date:
    """First day of the period of a day."""
    if every == "day":
        return day
    if every == "week":
        return dt.date.fromisocalendar(*day.isocalendar()[:2], 1)
    if every == "month":
        return day.replace(day=1)
    step = int(every) if str(every).isdigit() else 1
    return dt.date(day.year // step * step, 1, 1)


def _label(day: dt.date, every: Any) -> str:
    start = _start(day, every).isoformat()
    return start if every in ("day", "week") else start[:7] if every == "month" else start[:4]


@given(st.sampled_from(["integer", "year", "month", "week", "day"]), st.sampled_from([1, 5]), st.integers(0, 30_000))
def test_labels_of_periods_are_read_back(unit: Any, step: int, period: int) -> None:
    axis = TimeAxis(unit, step if unit in ("integer", "year") else 1)
    assert axis.period(axis.label(period)) == period
    assert axis.label(axis.period(axis.label(period))) == axis.label(period)
    assert axis.value(period) == (period * axis.step if unit in ("integer", "year") else axis.label(period))


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=5), st.sampled_from([None, 1, 2, 10, "10", "year"]))
def test_whole_numbers_become_periods_in_every_dress(numbers: list[int], every: Any) -> None:
    step = int(every) if every not in (None, "year") else 1
    dresses: list[Any] = [
        numbers,
        [str(number) for number in numbers],
        [f" {number}.0 " for number in numbers],
        [float(number) for number in numbers],
        np.array(numbers, np.uint16),
        pd.Series(numbers, dtype="Int32"),
        pd.Categorical(numbers),
        pa.array(numbers, pa.int8() if max(numbers) < 128 else pa.int64()),
    ]
    for dress in dresses:
        graph = build({"id": range(len(numbers)), "time": dress}, every=every)
        assert graph.times.tolist() == sorted(number // step for number in numbers)
        assert graph.axis.unit == ("year" if every == "year" else "integer")


def test_years_and_months_stand_for_their_first_day_among_dates() -> None:
    graph = build(abc(time=["2004", "2004-02", "2004-02-29 10:00"]), every="day")
    assert [graph.axis.label(time) for time in graph.times] == ["2004-01-01", "2004-02-01", "2004-02-29"]


def test_numpy_and_zoned_times_are_read_as_their_own_calendar_day() -> None:
    for unit in ("Y", "M", "D", "h", "ns"):
        assert build({"id": [1], "time": np.array(["2004-01-01"], f"datetime64[{unit}]")}).times.tolist() == [2004]
    evening = pd.to_datetime(["2003-12-31 23:00"]).tz_localize("America/New_York")
    assert build({"id": [1], "time": evening}).times.tolist() == [2003]


@pytest.mark.parametrize("every", ["Year", "", "fortnight", 0, -1, 2.5, [1], 10**20, float("nan"), "1.5"])
def test_unknown_granularities_are_refused(every: Any) -> None:
    with pytest.raises(InputError, match="there is no granularity"):
        build(abc(), every=every)


@pytest.mark.parametrize("every", ["month", "week", "day"])
def test_whole_numbers_have_no_months(every: str) -> None:
    with pytest.raises(InputError, match=f"the times are whole numbers, which have no {every}s"):
        build(abc(), every=every)


def test_a_graph_of_dates_takes_dates_for_all_that_comes() -> None:
    graph = build(abc(time=["2004-01-05", "2004-02-01", "2004-03-01"]), [("a", "b")], every="month")
    more = graph.append(
        {"id": ["d"], "time": [dt.date(2004, 4, 30)]}, {"source": ["d"], "target": ["c"], "time": ["2004-06-01"]}
    )
    assert [more.window("2004-01", last).n_edges for last in ("2004-05", "2004-06")] == [1, 2]
    with pytest.raises(InputError, match="the times are whole numbers, which have no months"):
        graph.append({"id": ["d"], "time": [2004]})


def test_the_span_of_time_is_bounded() -> None:
    assert len(build({"id": [1, 2], "time": [0, MAX_SPAN]})) == 2
    with pytest.raises(InputError, match="far from the others"):
        build({"id": [1, 2], "time": [0, MAX_SPAN + 1]})
    assert len(build({"id": [1, 2], "time": [0, MAX_SPAN + 1]}, every=1000)) == 2


# --- what users pass -------------------------------------------------------------------------------------------------


class Stream:
    """A frame that speaks Arrow as polars does: by a stream, with views of strings."""

    def __init__(self, columns: dict[str, Any]) -> None:
        arrays = {name: pa.array(values) for name, values in columns.items()}
        self.table = pa.table(
            {
                name: array.cast(pa.string_view()) if pa.types.is_string(array.type) else array
                for name, array in arrays.items()
            }
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def _batches(columns: dict[str, Any]) -> pa.Table:
    halves = [pa.table({name: values[part] for name, values in columns.items()}) for part in (slice(2), slice(2, None))]
    return pa.concat_tables(halves)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame,
        lambda columns: pd.DataFrame(columns, index=[9, 8, 7, 6]),
        lambda columns: pd.DataFrame(columns).astype("category"),
        lambda columns: pd.DataFrame(columns).astype(object),
        lambda columns: pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
        lambda columns: {name: pd.Series(values) for name, values in columns.items()},
        lambda columns: {name: (value for value in values) for name, values in columns.items()},
        lambda columns: {name: tuple(values) for name, values in columns.items()},
        lambda columns: {name: np.array(values, object) for name, values in columns.items()},
        lambda columns: {name: pd.Series(values).tolist() for name, values in columns.items()},
        pa.table,
        lambda columns: pa.table(columns).slice(0),
        lambda columns: pa.concat_tables([pa.table(columns), pa.table(columns)]).slice(4),
        _batches,
        pa.RecordBatch.from_pydict,
        lambda columns: pa.table(columns).to_reader(),
        lambda columns: {name: pa.chunked_array([values[:1], values[1:]]) for name, values in columns.items()},
        lambda columns: {name: pa.array(values).dictionary_encode() for name, values in columns.items()},
        Stream,
        lambda columns: {name: Stream({name: values}).table.column(0) for name, values in columns.items()},
    ],
)
def test_every_kind_of_frame_gives_the_same_graph(frame: Any) -> None:
    vertices = {
        "id": ["007", "nan", "b", "c"],
        "time": ["2004", "2002", "2003", "2001"],
        "label": ["x", None, "nan", "x"],
        "text": ["Hello, world", None, "hello", ""],
    }
    edges = {"source": ["007", "nan", "b", "b"], "target": ["nan", "b", "007", "b"]}
    plain = build(vertices, edges)
    assert plain.labels.tolist() == ["x", None, "nan", "x"]
    assert_equal(build(frame(vertices), frame(edges)), plain)
    assert_equal(build(Stream(vertices), frame(edges)), plain)


def test_a_frame_as_it_comes_from_a_csv_file_is_read() -> None:
    text = "id,time,label\n3,2004,\n1,2003,1\n2,2003,0\n"
    frame = pd.read_csv(io.StringIO(text))  # labels become floats with gaps
    graph = build(frame, pd.DataFrame({"source": [3.0, 1.0], "target": [1, 2]}))
    assert (graph.ids.tolist(), graph.labels.tolist(), graph.n_edges) == ([1, 2, 3], ["1", "0", None], 2)


def test_string_views_in_dictionaries_are_read() -> None:
    names = pa.array(["x", "y"]).cast(pa.string_view())
    labels = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint32()), names)
    assert build(pa.table(abc(label=labels))).labels.tolist() == ["y", None, "x"]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([True, None, False], ["true", None, "false"]),
        ([0, 1, None], ["0", "1", None]),
        ([0.0, float("nan"), 2.0], ["0", None, "2"]),
        (np.array([2, 1, 0], np.uint8), ["2", "1", "0"]),
        (["x", float("nan"), None], ["x", None, None]),
        (np.array(["x", np.nan, ""], object), ["x", None, None]),
        (pd.Categorical(["y", None, "x"], categories=["never", "x", "y"]), ["y", None, "x"]),
        (pd.Categorical([3, None, 1]), ["3", None, "1"]),
        (np.array(["x", "", "ß"]), ["x", None, "ß"]),
        ([None, None, None], [None, None, None]),
        (["", "", ""], [None, None, None]),
        (["seen", "unseen class", "not unseen"], ["seen", "unseen class", "not unseen"]),
        ((label for label in "xyx"), ["x", "y", "x"]),
    ],
)
def test_labels_in_many_dresses_become_names(labels: Any, expected: list[str | None]) -> None:
    graph = build(abc(label=labels))
    assert graph.labels.tolist() == expected
    assert graph.class_names == tuple(dict.fromkeys(name for name in expected if name is not None))


@pytest.mark.parametrize(
    "edges",
    [
        [("1", "2"), ("2", "3")],
        [(1, 2), (2, 3)],
        ((1, 2), (2, 3)),
        [["1", "2"], ["2", "3"]],
        np.array([[1, 2], [2, 3]]),
        np.array([[1, 2], [2, 3]], np.uint64),
        np.array([["1", "2"], ["2", "3"]]),
        np.array([["1", "2"], ["2", "3"]], object),
        {"source": range(1, 3), "target": range(2, 4)},
        {"target": ["2", "3"], "source": [1.0, 2.0]},
        pd.DataFrame({"source": pd.Categorical(["1", "2"]), "target": [2, 3]}),
    ],
)
@pytest.mark.parametrize(
    "names", [["1", "2", "3"], [1, 2, 3], np.array([1, 2, 3], np.uint8), np.array(["1", "2", "3"])]
)
def test_edges_in_many_dresses_join_ids_of_both_kinds(names: Any, edges: Any) -> None:
    graph = build({"id": names, "time": [1, 2, 3]}, edges)
    assert graph.adjacency.toarray().astype(int).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_features_are_taken_from_frames_lists_and_all_sparse_formats() -> None:
    values = [[0, 1.5], [2, 0], [0, 0]]
    dense = build(abc(), features=np.array(values))
    assert_equal(build(abc(), features=values), dense)
    assert_equal(build(abc(), features=pd.DataFrame(values)), dense)
    assert_equal(build(abc(), features=np.array(values, order="F", dtype=np.float16)), dense)
    sparse_graph = build(abc(), features=sparse.csr_array(values))
    for kind in (sparse.coo_array, sparse.csc_array, sparse.lil_array, sparse.dok_array, sparse.csr_matrix):
        assert_equal(build(abc(), features=kind(np.array(values))), sparse_graph)
    twice = sparse.coo_array(([1.0, 0.5, 2, 7, -7], ([0, 0, 1, 2, 2], [1, 1, 0, 0, 0])), shape=(3, 2))
    assert_equal(build(abc(), features=twice), sparse_graph)
    assert build(abc(), features=np.eye(3, dtype=bool)).features.values.tolist() == np.eye(3).tolist()


@pytest.mark.parametrize("slip", ["Label", "labels", " label"])
def test_a_label_column_by_another_name_is_not_passed_over(slip: str) -> None:
    with pytest.raises(InputError, match=f"there is a column '{slip}', but none 'label'"):
        build({"id": ["a"], "time": [1], slip: ["x"]})
