"""Tables from CSV and Parquet: what is read is what stands there."""

import gzip
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from evergraph import EvolvingGraph, InputError
from evergraph.datasets import read_tables, synthetic
from evergraph.datasets.tables import find_columns, to_tables
from evergraph.graph.arrays import fingerprint

STRANGE_IDS = ["nan", "NA", "007", "1e5", "null", "None", "1.0", "-", "größe", "a,b", 'say "hi"', " padded ", "true"]


def write(path, text):
    data = text.encode() if isinstance(text, str) else text
    if path.suffix == ".gz":
        data = gzip.compress(data)
    path.write_bytes(data)
    return path


@pytest.fixture
def strange(tmp_path):
    times = np.arange(len(STRANGE_IDS)) % 4 + 2000
    frame = pd.DataFrame({"id": STRANGE_IDS, "time": times, "label": STRANGE_IDS, "text": STRANGE_IDS})
    links = pd.DataFrame({"source": STRANGE_IDS[:-1], "target": STRANGE_IDS[1:]})
    return frame, links


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv", ".parquet"])
def test_strange_ids_and_labels_survive_file_and_folder(tmp_path, strange, ending):
    paths = [tmp_path / f"{name}{ending}" for name in ("vertices", "edges")]
    for path, frame in zip(paths, strange, strict=True):
        if ending == ".parquet":
            frame.to_parquet(path)
        else:
            frame.to_csv(path, index=False, sep="\t" if ending == ".tsv" else ",")
    graph = read_tables(*paths)
    graph.save(tmp_path / "graph")
    opened = EvolvingGraph.open(tmp_path / "graph")
    for found in (graph, opened):
        assert sorted(found.ids) == sorted(STRANGE_IDS)
        assert list(found.labels) == list(found.ids)
        assert found.n_edges == len(STRANGE_IDS) - 1
    assert opened.find(["007"]).tolist() == [list(opened.ids).index("007")]


def test_columns_can_have_other_names(tmp_path):
    papers = write(tmp_path / "p.csv", "year,venue,key,title,unused\n2002,KDD,a,Some graphs,1\n2001,,b,,2\n")
    links = write(tmp_path / "l.csv", "from,to,since\na,b,2005\n")
    graph = read_tables(
        papers, links, id="key", time="year", label="venue", text="title", source="from", target="to", edge_time="since"
    )
    assert list(graph.ids) == ["b", "a"]
    assert graph.labels.tolist() == [None, "KDD"]
    assert list(graph.features.words.columns) == ["some", "graphs"]
    assert graph.up_to(2004).n_edges == 0
    assert graph.up_to(2005).n_edges == 1


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_columns_of_numbers_by_pattern(tmp_path, ending):
    frame = pd.DataFrame({"id": ["a", "b"], "time": [2, 1], "label": "x", "emb_0": [1.5, 2.5], "emb_1": [0, -1]})
    path = tmp_path / f"v{ending}"
    frame.to_parquet(path) if ending == ".parquet" else frame.to_csv(path, index=False)
    graph = read_tables(path, numbers=["emb_*"])
    assert graph.window(1, 2).inputs().tolist() == [[2.5, -1], [1.5, 0]]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_columns_of_numbers_come_in_the_order_in_which_they_are_named(tmp_path, ending):
    columns = {"id": ["a"], "b_1": [1.0], "x[0]": [2.0], "time": [1], "b_0": [3.0], "a": [4.0], "label": ["y"]}
    frame = pd.DataFrame(columns)
    path = tmp_path / f"v{ending}"
    frame.to_parquet(path) if ending == ".parquet" else frame.to_csv(path, index=False)
    for patterns, names in (
        (["b_*"], ["b_1", "b_0"]),  # of one pattern as in the file
        (["b_0", "b_1"], ["b_0", "b_1"]),
        (["a", "b_*", "?_1", "a"], ["a", "b_1", "b_0"]),  # each once
        (["x[0]"], ["x[0]"]),  # a name before it is a pattern
    ):
        assert find_columns(path, patterns) == tuple(names)
        found = read_tables(path, numbers=patterns).window(1, 1).inputs()
        assert found.tolist() == frame[names].to_numpy().tolist()
    shuffled = tmp_path / f"w{ending}"
    other = frame[["a", "b_0", "label", "time", "b_1", "id"]]
    other.to_parquet(shuffled) if ending == ".parquet" else other.to_csv(shuffled, index=False)
    named = find_columns(path, ["b_*", "a"])
    graphs = [read_tables(each, numbers=named) for each in (path, shuffled)]
    assert graphs[0].window(1, 1).inputs().tolist() == graphs[1].window(1, 1).inputs().tolist() == [[1, 3, 4]]
    with pytest.raises(InputError, match=r"no column is named 'b_7'"):
        find_columns(path, ["a", "b_7"])


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("features", [["time"], ["id", "time"], ["emb", "time"]])
def test_a_column_used_twice_keeps_its_values_in_both_uses(tmp_path, ending, features):
    frame = pd.DataFrame({"id": [2**24 + 1, 2**24 + 3], "time": [20240129, 20240131], "label": "x", "emb": [0.5, 1.5]})
    path = tmp_path / f"v{ending}"
    frame.to_parquet(path) if ending == ".parquet" else frame.to_csv(path, index=False)
    graph = read_tables(path, numbers=features)
    assert graph.times.tolist() == [20240129, 20240131]
    assert [int(name) for name in graph.ids] == frame["id"].tolist()
    wanted = frame[features].to_numpy(np.float32)
    assert graph.window(20240129, 20240131).inputs().tolist() == wanted.tolist()


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_one_column_may_be_id_label_and_text(tmp_path, ending):
    frame = pd.DataFrame({"id": ["one", "two"], "time": [2001, 2002]})
    path = tmp_path / f"v{ending}"
    frame.to_parquet(path) if ending == ".parquet" else frame.to_csv(path, index=False)
    graph = read_tables(path, label="id", text="id")
    assert graph.labels.tolist() == list(graph.ids) == list(graph.features.words.columns) == ["one", "two"]


def test_a_feature_that_is_also_the_time_is_refused_with_its_row(tmp_path):
    path = write(tmp_path / "v.csv", "id,time,label\na,2024-01,x\nb,2024-02,y\n")
    with pytest.raises(InputError, match=r"column 'time', row 1 \(line 2\): '2024-01' is not a number"):
        read_tables(path, numbers=["time"])


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float64(), 3), pa.large_list(pa.int32())])
def test_embedding_column_of_lists(tmp_path, kind):
    lists = pa.array([[1, 2, 3], [4, 5, 6]], kind)
    pq.write_table(
        pa.table({"id": [7, 5], "time": [2001, 2000], "label": ["x", None], "e": lists}), tmp_path / "v.parquet"
    )
    graph = read_tables(tmp_path / "v.parquet", numbers=["e"])
    assert graph.ids.tolist() == [5, 7]
    assert graph.window(2000, 2001).inputs().tolist() == [[4, 5, 6], [1, 2, 3]]


def test_integer_ids_of_parquet_meet_text_ids_of_csv(tmp_path):
    pq.write_table(pa.table({"id": [7, 5], "time": [1, 2], "label": ["x", "y"]}), tmp_path / "v.parquet")
    graph = read_tables(tmp_path / "v.parquet", write(tmp_path / "e.csv", "source,target\n7,5\n"))
    assert graph.n_edges == 1
    with pytest.raises(InputError, match=r"e\.csv, column 'source', row 1 \(line 2\).*'07'"):
        read_tables(tmp_path / "v.parquet", write(tmp_path / "e.csv", "source,target\n07,5\n"))


def test_quoted_line_ends_crlf_bom_and_blank_lines(tmp_path):
    text = '\ufeffid,time,label,text\r\n"a",2001,x,"two\r\nlines"\r\n\r\nb,2002,"y, z","say ""hi"""\r\n'
    graph = read_tables(write(tmp_path / "v.csv", text))
    assert list(graph.ids) == ["a", "b"]
    assert graph.labels.tolist() == ["x", "y, z"]
    assert list(graph.features.words.columns) == ["two", "lines", "say", "hi"]


def test_line_in_errors_is_the_line_of_the_file_even_with_line_ends_in_cells(tmp_path):
    text = 'id,time,label,text\na,2001,x,"two\nlines"\n\nb,soon,y,z\n'
    with pytest.raises(InputError, match=r"row 2 \(line 5\): 'soon'"):
        read_tables(write(tmp_path / "v.csv", text))


@pytest.mark.parametrize(
    ("every", "periods", "labels"),
    [
        (None, [2003, 2004], ["2003", "2004"]),
        ("year", [2003, 2004], ["2003", "2004"]),
        ("2", [1001, 1002], ["2002", "2004"]),
        ("month", [24047, 24050], ["2003-12", "2004-03"]),
        ("week", [1774, 1783], ["2003-12-29", "2004-03-01"]),
        ("day", [12417, 12479], ["2003-12-31", "2004-03-02"]),
    ],
)
def test_granularity_of_dates(tmp_path, every, periods, labels):
    graph = read_tables(
        write(tmp_path / "v.csv", "id,time,label\na,2003-12-31,x\nb,2004-03-02T10:00:00,y\n"), every=every
    )
    assert graph.times.tolist() == periods
    assert [graph.axis.label(time) for time in periods] == labels


def test_columns_taken_by_name_can_be_left_out(tmp_path):
    vertices = write(tmp_path / "v.csv", "id,time,label,text\na,1,x,words\nb,2,y,more\n")
    edges = write(tmp_path / "e.csv", "source,target,time\na,b,17:05\n")
    graph = read_tables(vertices, edges, label="", text="", edge_time="")
    assert (graph.n_edges, graph.features.kinds, graph.class_names) == (1, (), ())


def test_letters_of_two_bytes_may_lie_anywhere_in_long_lines(tmp_path):
    for shift in range(3):
        text = "x" * shift + "é" * 9_001
        file = write(tmp_path / "v.csv", f"id,time,label,text,{text}\na,1,x,{text},1\n\nb,2,y,more,2\n")
        assert list(read_tables(file).features.words.columns) == [text, "more"]


def test_cells_of_many_megabytes(tmp_path):
    text = "word " * 1_000_000
    graph = read_tables(write(tmp_path / "v.csv", f"id,time,label,text\na,1,x,{text}\nb,2,y,more\n"))
    assert graph.window(1, 2).inputs("counts").toarray().tolist() == [[1_000_000, 0], [0, 1]]


def test_real_table_equals_pandas(shared_data):
    folder = shared_data("dblp-citation")
    graph = read_tables(folder / "nodes.csv.gz", folder / "edges.csv.gz")
    vertices = pd.read_csv(folder / "nodes.csv.gz", dtype=str, keep_default_na=False)
    edges = pd.read_csv(folder / "edges.csv.gz", dtype=str, keep_default_na=False)
    vertices = vertices.assign(time=vertices.time.astype(int)).sort_values("time", kind="stable")
    assert list(graph.ids) == vertices.id.tolist()
    assert graph.times.tolist() == vertices.time.tolist()
    assert graph.labels.tolist() == vertices.label.tolist()
    ids = np.array(list(graph.ids))
    source, target, _ = graph.links.ends()
    ours = {frozenset(pair) for pair in zip(ids[source], ids[target], strict=True)}
    assert ours == {frozenset(pair) for pair in zip(edges.source, edges.target, strict=True)}


# --- writing tables --------------------------------------------------------------------------------------------------

GRAPH = synthetic(vertices=120, times=5, classes=3, new_classes=1, seed=2)


def same(one: EvolvingGraph, other: EvolvingGraph) -> None:
    assert list(map(str, one.ids)) == list(map(str, other.ids))
    assert np.array_equal(one.times, other.times)
    assert one.labels.tolist() == other.labels.tolist()
    assert (one.adjacency != other.adjacency).nnz == 0
    for time in range(one.first_time, one.last_time + 1):
        assert one.up_to(time).n_edges == other.up_to(time).n_edges
    assert counted(one) == counted(other)


def counted(graph: EvolvingGraph) -> list[dict[str, float]]:
    matrix, words = graph.features.words.matrix, list(graph.features.words.columns)
    rows = [slice(*matrix.indptr[row : row + 2]) for row in range(len(graph))]
    return [{words[i]: n for i, n in zip(matrix.indices[r], matrix.data[r], strict=True)} for r in rows]


def test_a_graph_goes_through_csv_and_comes_back(tmp_path: Path) -> None:
    vertices, edges = to_tables(GRAPH)
    pa_csv.write_csv(vertices, tmp_path / "v.csv")
    pa_csv.write_csv(edges, tmp_path / "e.csv")
    same(GRAPH, read_tables(tmp_path / "v.csv", tmp_path / "e.csv"))


def test_slices_put_together_are_the_graph() -> None:
    late = GRAPH.append(edges={"source": [GRAPH.ids[0]], "target": [GRAPH.ids[5]], "time": [3]})
    built = EvolvingGraph.build(*to_tables(late, last=1))
    for time in range(2, 5):
        built = built.append(*to_tables(late, time, time))
    same(late, built)
    assert fingerprint(built) == fingerprint(EvolvingGraph.build(*to_tables(late)))


def test_labels_are_left_out_on_request() -> None:
    assert "label" not in to_tables(GRAPH, labels=False)[0].column_names


@pytest.mark.parametrize("sparse", [False, True])
def test_numbers_come_as_lists(tmp_path: Path, sparse: bool) -> None:
    from scipy import sparse as sp

    numbers = np.array([[1.0, 0.0], [0.0, 2.5], [3.0, 4.0]], np.float32)
    graph = EvolvingGraph.build(
        {"id": [1, 2, 3], "time": [1, 1, 2]}, [(1, 2)], features=sp.csr_array(numbers) if sparse else numbers
    )
    vertices, edges = to_tables(graph, labels=False)
    pq.write_table(vertices, tmp_path / "v.parquet")
    pq.write_table(edges, tmp_path / "e.parquet")
    back = read_tables(tmp_path / "v.parquet", tmp_path / "e.parquet", label="", numbers=["features"])
    assert back.features.numbers.values.tolist() == numbers.tolist()


def test_a_pattern_of_many_brackets_takes_no_time(tmp_path):
    (tmp_path / "v.csv").write_text("id,time,x\n1,2001,0.5\n")
    with mock.patch("evergraph.datasets.tables.fnmatchcase") as match, pytest.raises(InputError, match="no column"):
        find_columns(tmp_path / "v.csv", ["[" * 10_000])
    assert not match.called  # it would take more than a second


# --- numbers and categories ------------------------------------------------------------------------------------------

MIXED = "id,time,label,text,pages,open,kind\na,1,x,Old news,3,true,paper\nb,2,y,,,False,\nc,2,x,New words,0.5,NA,book\n"


@pytest.mark.parametrize("ending", [".csv", ".tsv.gz", ".parquet"])
def test_a_table_of_text_numbers_and_categories(tmp_path, ending):
    path = tmp_path / f"v{ending}"
    if ending == ".parquet":
        pa_csv_bytes = pa.BufferReader(MIXED.encode())
        pq.write_table(pa_csv.read_csv(pa_csv_bytes), path)
    else:
        write(path, MIXED if ending == ".csv" else MIXED.replace(",", "\t"))
    graph = read_tables(path, numbers=["pages", "open"], categories=["kind"])
    assert graph.features.kinds == ("words", "numbers", "categories")
    expected = [[3, 1], [np.nan, 0], [0.5, np.nan]]
    assert np.array_equal(graph.features.numbers.values, expected, equal_nan=True)
    assert list(graph.features.categories.columns) == ["kind=paper", "kind=book"]
    vertices, _ = to_tables(graph)
    assert vertices.column("text").to_pylist() == ["Old news", "", "New words"]
    assert vertices.column("pages").to_pylist() == [3, None, 0.5]
    assert vertices.column("kind").to_pylist() == ["paper", None, "book"]
    again = EvolvingGraph.build(vertices, numbers=["pages", "open"], categories=["kind"])
    assert fingerprint(again) == fingerprint(graph)


def test_text_among_numbers_is_refused_with_its_row(tmp_path):
    path = write(tmp_path / "v.csv", MIXED.replace("0.5", "many"))
    with pytest.raises(InputError, match=r"v\.csv, column 'pages', row 3 \(line 4\): 'many' is not a number"):
        read_tables(path, numbers=["pages"])


def test_columns_named_as_those_of_the_graph_keep_both(tmp_path):
    path = write(tmp_path / "v.csv", "id,time,label,features\na,1,x,3\n")
    graph = read_tables(path, numbers=["time", "features"], categories=["label"])
    vertices, _ = to_tables(graph)
    assert vertices.to_pylist() == [
        {"id": "a", "time": 1, "label": "x", "time_": 1, "features_": 3, "label_": "x"},
    ]
