from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from evergraph import EvolvingGraph
from evergraph.datasets import read_tables, synthetic
from evergraph.datasets.export import to_tables
from evergraph.graph.arrays import fingerprint

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
    matrix, words = graph.features.matrix, list(graph.features.columns)
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
    back = read_tables(tmp_path / "v.parquet", tmp_path / "e.parquet", label="", features=["features"])
    assert back.features.values.tolist() == numbers.tolist()
