"""Tables that are read part by part give the graph, and the errors, of tables that are read as a whole."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph import EvolvingGraph, InputError
from evergraph.datasets import files, read_tables
from evergraph.datasets.files import open_table
from evergraph.datasets.quoted import last_row_end
from evergraph.graph import cells, features
from evergraph.graph.arrays import to_arrays

Rows = list[list[str]]
letters = st.text(st.sampled_from("aB1 ,;\"'é\nœ\tǅ²_-x"), max_size=12)
ends = st.sampled_from(["\n", "\r\n"])


def in_parts(block: int) -> Any:
    """Read text files in blocks of some bytes."""
    return mock.patch.multiple(files, _STREAM=block, _TAIL=3)


def write(path: Path, header: list[str], rows: Rows, end: str, quoting: int, blank: bool) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end, quoting=quoting)  # type: ignore[arg-type]
    for row in [header, *rows]:
        writer.writerow(row)
        text.write(end if blank else "")
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def assert_equal(one: EvolvingGraph, other: EvolvingGraph) -> None:
    assert (one.axis, one.class_names) == (other.axis, other.class_names)
    first, second = to_arrays(one), to_arrays(other)
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert array.dtype == second[name].dtype, name
        assert np.array_equal(array, second[name]), name


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Rows, Rows]:
    ids = draw(st.lists(letters.filter(bool), min_size=1, max_size=12, unique=True))
    dates = draw(st.booleans())
    times = st.sampled_from(["2004-03-01", "2001", "2003-12"]) if dates else st.integers(0, 5).map(str)
    vertices = [[id, draw(times), draw(st.sampled_from(["", "x", "y z", "X"])), draw(letters)] for id in ids]
    if dates:
        vertices[0][1] = "2004-03-01"  # otherwise all may be numbers
    either = st.sampled_from([*ids, *([] if draw(st.booleans()) else ["nowhere"])])
    later = st.sampled_from(["2004-03-01", "2005"]) if dates else st.integers(3, 9).map(str)
    edges = [[draw(either), draw(either), draw(later)] for _ in range(draw(st.integers(0, 15)))]
    return vertices, edges


@settings(max_examples=60, deadline=None)
@given(
    graph=graphs(),
    block=st.integers(1, 60),
    end=ends,
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    blank=st.booleans(),
    ending=st.sampled_from([".csv", ".csv.gz", ".parquet"]),
    timed=st.booleans(),
)
def test_parts_of_any_size_give_the_graph_that_is_built_from_lists(
    tmp_path_factory: pytest.TempPathFactory,
    graph: tuple[Rows, Rows],
    block: int,
    end: str,
    quoting: int,
    blank: bool,
    ending: str,
    timed: bool,
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    headers = ["id", "time", "label", "text"], ["source", "target", "time"]
    tables = []
    for name, header, rows in zip(("v", "e"), headers, graph, strict=True):
        columns = {key: pa.array([row[place] for row in rows], pa.string()) for place, key in enumerate(header)}
        tables.append(columns)
        if ending == ".parquet":
            pq.write_table(pa.table(columns), folder / f"{name}{ending}", row_group_size=2)
        else:
            write(folder / f"{name}{ending}", header, rows, end, quoting, blank)
    if not timed:
        tables[1].pop("time")
    whole = EvolvingGraph.build(tables[0], tables[1], drop_dangling=True)
    paths = [folder / f"{name}{ending}" for name in ("v", "e")]
    with in_parts(block), mock.patch.multiple(cells, _MANY=1), mock.patch.multiple(features, _MANY_BYTES=0):
        edge_time = None if timed else ""
        assert_equal(read_tables(*paths, drop_dangling=True, edge_time=edge_time), whole)
        if any("nowhere" in row[:2] for row in graph[1]):
            with pytest.raises(InputError, match=rf"e{ending}.*row \d+.*'nowhere', which is not a vertex"):
                read_tables(*paths, edge_time=edge_time)


@pytest.mark.parametrize("block", [8, 30, 10_000])
def test_errors_do_not_depend_on_the_parts(tmp_path: Path, block: int) -> None:
    vertices, edges = tmp_path / "v.csv", tmp_path / "e.csv"
    vertices.write_text("id,time,label\n" + "".join(f"{n},{n % 7},x\n" for n in range(50)))
    cases = {
        "1,2\n" * 20 + "3,\n" + "1,2\n" * 9: r"e\.csv, column 'target', row 21 \(line 22\): an edge has no end",
        "1,2\n" * 20 + "3,x\n" + "y,2\n" * 9: r"'target', row 21 \(line 22\).*'x'.*\(10 of 30 edges\)",
        "1,2\n" * 20 + "3\n" + "1,2\n" * 9: r"row 21 \(line 22\): 1 cells, but the header has 2",
        "1,2\n" * 20 + '3,"2\n' + "1,2\n" * 9: r"row 21 \(line 22\): a cell that starts with \"",
        "1,2\n" * 20 + "3,\udcff\n": r"row 21 \(line 22\)?.*not UTF-8",
    }
    for text, message in cases.items():
        edges.write_bytes(b"source,target\n" + text.encode(errors="surrogateescape"))
        with in_parts(block), pytest.raises(InputError, match=message):
            read_tables(vertices, edges)


def test_a_number_among_dates_is_refused_although_each_part_is_good(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("id,time,label\na,2001-02,x\nb,2002-03,y\n")
    (tmp_path / "e.csv").write_text("source,target,time\na,b,2004-03\n" + "a,b,2005\n" * 9 + "a,b,20051\n")
    with in_parts(16), pytest.raises(InputError, match=r"row 11 \(line 12\): '20051' is a number among dates"):
        read_tables(tmp_path / "v.csv", tmp_path / "e.csv")


def test_numbers_of_which_one_is_written_otherwise_are_read_again(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("id,time,label,x\n" + "".join(f"{n},1,x,{n}.5\n" for n in range(20)) + "z,1,x,NA\n")
    with in_parts(40):
        values = read_tables(tmp_path / "v.csv", numbers=["x"]).features.numbers.values
    assert np.array_equal(values[:, 0], [*np.arange(20) + 0.5, np.nan], equal_nan=True)


def test_no_part_is_much_larger_than_a_block(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("source,target\n" + '1,"2, 3"\n' * 1000)
    with in_parts(100):
        parts = list(open_table(tmp_path / "e.csv").batches(["source", "target"]))
    assert max(part.num_rows for part in parts) <= 12
    assert sum(part.num_rows for part in parts) == 1000


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(st.lists(letters, min_size=2, max_size=3), min_size=1, max_size=4), end=ends, size=st.integers(0, 80)
)
def test_the_end_of_a_row_is_where_python_starts_the_next(rows: Rows, end: str, size: int) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end)
    bounds = [0]
    for row in rows:
        writer.writerow(row)
        bounds.append(len(text.getvalue().encode()))
    content = np.frombuffer(text.getvalue().encode()[:size], np.uint8)
    assert last_row_end(content, ord(",")) == max(bound for bound in bounds if bound <= size)
