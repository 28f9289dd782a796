from __future__ import annotations

import datetime as dt
import io
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from evergraph import EvolvingGraph, InputError
from tests.strategies import abc, assert_equal

build = EvolvingGraph.build


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vertices", "problem"),
    [
        ({}, "there are no vertices"),
        ({"id": [], "time": []}, "there are no vertices"),
        ({"id": ["a"]}, "there is no column 'time'.*there are: id"),
        ({"time": [1]}, "there is no column 'id'"),
        (None, "the vertices are not a table"),
        (7, "the vertices are not a table"),
        ([{"id": "a", "time": 1}], "the vertices are not a table"),
        ({"id": ["a", "b"], "time": [1]}, "the vertices are not a table"),
        ({"id": ["a"], "time": 1}, "column 'time': the values are not a column"),
        (
            {"id": ["a", "b", "a"], "time": [1, 2, 3]},
            r"column 'id', row 3: id 'a' occurs twice \(first in row 1\)",
        ),
        ({"id": [5, 5], "time": [1, 2]}, "row 2: id 5 occurs twice"),
        ({"id": ["a", ""], "time": [1, 2]}, "column 'id', row 2: a vertex has no id"),
        ({"id": ["a", None], "time": [1, 2]}, "row 2: a vertex has no id"),
        ({"id": ["a", float("nan")], "time": [1, 2]}, "row 2: a vertex has no id"),
        ({"id": [None, None], "time": [1, 2]}, "holds no ids"),
        ({"id": [1, None], "time": [1, 2]}, "row 2: a vertex has no id"),
        ({"id": [1.0, 2.0], "time": [1, 2]}, "column 'id': a column of double holds no ids"),
        ({"id": [True, False], "time": [1, 2]}, "a column of bool holds no ids"),
        ({"id": [b"a", b"b"], "time": [1, 2]}, "a column of binary holds no ids"),
        ({"id": [["a"], ["b"]], "time": [1, 2]}, "holds no ids"),
        ({"id": ["a", 1], "time": [1, 2]}, "column 'id', row 2: the values are not a column"),
        ({"id": [1, 2**70], "time": [1, 2]}, "column 'id': the values are not a column"),
        ({"id": np.array([1, 2**63], np.uint64), "time": [1, 2]}, "row 2: id 9223372036854775808 is too large"),
        ({"id": ["a", "\ud800"], "time": [1, 2]}, "column 'id': the values are not a column"),
        (abc(label=["x", "unseen", "y"]), "column 'label', row 2: a class is named 'unseen'"),
        (abc(label=["x", "y", " UNSEEN\t"]), "row 3: a class is named ' UNSEEN"),
        (abc(label=[1.5, 2, None]), "fractions are not class names"),
        (abc(label=[float("inf"), 2, None]), "not class names"),
        (abc(label=["x", 2, None]), "column 'label', row 2: the values are not a column"),
        (abc(label=[["x"], ["y"], None]), "holds no class names"),
        (abc(label=[dt.date(2004, 1, 1)] * 3), "holds no class names"),
        (abc(label=["x", "y"]), "the vertices are not a table"),
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
        ([1, 2, 2**70], "column 'time': the values are not a column"),
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
            r"column 'target', row 1: an edge leads to 'z', which is not a vertex \(2 of 2 edges\)",
        ),
        ([("a", "b"), ("A", "b")], "column 'source', row 2: an edge leads to 'A'"),
        ([("a", None)], "column 'target', row 1: an edge has no end"),
        ([("", "a")], "column 'source', row 1: an edge has no end"),
        ({"source": [float("nan")], "target": ["a"]}, "an edge has no end"),
        ({"source": ["a"]}, "there is no column 'target'"),
        ({"source": ["a"], "target": ["b", "c"]}, "the edges are not a table"),
        ({"source": [["a"]], "target": ["b"]}, "holds no ids"),
        ({"source": [dt.date(2004, 1, 1)], "target": ["b"]}, "holds no ids"),
        ({"source": [True], "target": ["b"]}, "holds no ids"),
        ([("a", "b", "c")], r"edges have the shape \(1, 3\)"),
        ([("a", "b"), ("c",)], r"edges have the shape \(2,\)"),
        (["ab", "bc"], r"edges have the shape \(2,\)"),
        ({("a", "b")}, "the edges are not a table"),
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
        ([[1], [1, 2], [3]], "the features are not numbers"),
        ([["a"], ["b"], ["c"]], "the features are not numbers"),
        ([[1j], [2], [3]], "the features are not numbers"),
        ([[1, 2], [1, -np.inf], [1, 2]], "features, column '1', row 2: a feature is infinite or too large"),
        ([[1, 2], [1, 2], [1e300, 2]], "features, column '0', row 3: a feature is infinite or too large"),
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
    with pytest.raises(InputError, match="text and sparse features cannot be combined"):
        build(abc(text=["", "", ""]), features=sparse.eye_array(3))


def test_features_without_columns_are_features() -> None:
    assert build(abc(), features=np.zeros((3, 0))).window(1, 2).inputs().shape == (2, 0)
    assert build(abc(), features=sparse.csr_array((3, 0))).window(1, 2).inputs().shape == (2, 0)


def test_several_columns_of_one_name_are_refused() -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array([1])], names=["id", "id", "time"])
    for vertices in (table, pd.DataFrame([["a", "b", 1]], columns=["id", "id", "time"])):
        with pytest.raises(InputError, match="there are several columns 'id'"):
            build(vertices)


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
    assert build(abc(), features=np.eye(3, dtype=bool)).features.numbers.values.tolist() == np.eye(3).tolist()


@pytest.mark.parametrize("slip", ["Label", "labels", " label"])
def test_a_label_column_by_another_name_is_not_passed_over(slip: str) -> None:
    with pytest.raises(InputError, match=f"there is a column '{slip}', but no column 'label'"):
        build({"id": ["a"], "time": [1], slip: ["x"]})


# --- codes with -1 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, lambda codes: np.array(codes, float), pd.Categorical])
def test_minus_one_of_factorize_is_no_label(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    codes, _ = pd.factorize(pd.Series(["x", None, "y"]))
    assert codes.tolist() == [0, -1, 1]
    graph = build(abc(label=kind(codes.tolist())))
    assert (graph.class_names, graph.labels.tolist()) == (("0", "1"), ["0", None, "1"])
    assert "column 'label': 1 labels are -1 and count as no label" in caplog.text
    assert build(abc(label=[-1, -1, -1])).class_names == ()
    assert graph.relabel(graph.ids[:2], [-1, 0]).labels.tolist() == [None, "0", "1"]


@pytest.mark.parametrize("labels", [["-1", "0", "1"], [-2, -1, 0], [0, 1, 2]])
def test_other_numbers_are_classes(labels: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    assert build(abc(label=labels)).class_names == tuple(map(str, labels))
    assert not caplog.records


@pytest.mark.parametrize("labels", [[1, -1, 1], [0, -1, 2], [0, -1, None]])
def test_minus_one_that_may_be_a_class_is_refused(labels: list[Any]) -> None:
    with pytest.raises(InputError, match="column 'label', row 2: -1 is either a class or no label"):
        build(abc(label=labels))


# --- numbers and categories ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [
        [1.5, None, 1],
        [1.5, float("nan"), True],
        ["1.5", "", "1"],
        [" 1.5", "NA", "true"],
        np.array([1.5, np.nan, 1], np.float16),
        pd.Series([1.5, None, 1.0]),
        pd.array([1.5, None, 1.0], dtype="Float64"),
        pa.array([1.5, None, 1.0], pa.float32()),
    ],
)
def test_numbers_in_many_dresses(column: Any) -> None:
    values = build(abc(x=column), numbers=["x"]).features.numbers.values
    assert np.array_equal(values, [[1.5], [np.nan], [1]], equal_nan=True)


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (["1", "few", "3"], "vertices, column 'x', row 2: 'few' is not a number. Write a number, leave the cell empty"),
        ([1, "few", 3], "vertices, column 'x', row 2: the values are not a column"),
        ([1, 2, float("inf")], "vertices, column 'x', row 3: a feature is infinite or too large"),
        ([1, 2, 1e300], "vertices, column 'x', row 3: a feature is infinite or too large"),
        (
            pd.to_datetime(["2001-01-01"] * 3),
            "column 'x': a column of timestamp.* holds no numbers. Give numbers, or name",
        ),
        ([[1, 2], [3], [4, 5]], "column 'x', row 2: the lists have different lengths"),
        ([[1, 2], None, [4, 5]], "column 'x', row 2: a list of numbers is missing"),
        ([["1", "2"], ["3", "few"], ["4", "5"]], "column 'x', row 2: 'few' is not a number"),
    ],
)
def test_bad_numbers_are_refused_with_their_row(column: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        build(abc(x=column), numbers=["x"])


@pytest.mark.parametrize(
    ("column", "names"),
    [
        (["b", None, "a"], ["x=b", "x=a"]),
        (["b", "", "b"], ["x=b"]),
        ([7, None, -1], ["x=7", "x=-1"]),
        ([7.0, float("nan"), 1.0], ["x=7", "x=1"]),
        ([True, False, None], ["x=true", "x=false"]),
        (pd.Categorical(["b", None, "a"]), ["x=b", "x=a"]),
        (["b=c", None, "unseen"], ["x=b=c", "x=unseen"]),
        ([None, None, None], []),
    ],
)
def test_categories_in_many_dresses(column: Any, names: list[str]) -> None:
    assert list(build(abc(x=column), categories=["x"]).features.categories.columns) == names


def test_bad_categories_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"column 'x': fractions are not categories. Give strings or whole numbers, or name"
    ):
        build(abc(x=[0.5, 1, 2]), categories=["x"])
    with pytest.raises(
        InputError, match=r"column 'x=y': the name of a column of categories holds '='. Rename the column"
    ):
        build(abc(**{"x=y": ["a", "b", "c"]}), categories=["x=y"])
    with pytest.raises(InputError, match="there is no column 'y'"):
        build(abc(), categories=["y"])
    with pytest.raises(InputError, match="numbers in columns and in a matrix"):
        build(abc(x=[1, 2, 3]), features=np.eye(3), numbers=["x"])


@pytest.mark.parametrize("frame", [pd.DataFrame, pa.table, Stream])
def test_frames_of_mixed_columns(frame: Any) -> None:
    columns = abc(text=["one", "two", None], n=[1, 2, 3], b=[True, False, True], c=["x", "y", None], e=[[1.0, 2]] * 3)
    graph = build(frame(columns), numbers=["n", "b", "e"], categories=["c"])
    assert graph.features.numbers.values.tolist() == [[1, 1, 1, 2], [2, 0, 1, 2], [3, 1, 1, 2]]
    assert list(graph.features.numbers.columns) == ["n", "b", "e[0]", "e[1]"]
    more = graph.append(frame({name: column[:1] for name, column in columns.items()} | {"id": ["d"]}))
    assert more.features.numbers.values.tolist()[1] == [1, 1, 1, 2]
