"""Rows of neighbours that are built in compiled loops are those of scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from evergraph.graph import adjacency
from evergraph.graph.adjacency import Adjacency


@pytest.mark.parametrize(("vertices", "edges"), [(1, 3), (5, 0), (5, 40), (300, 20), (1000, 5000)])
def test_rows_of_many_edges_equal_the_symmetric_matrix(
    vertices: int, edges: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adjacency, "_MANY", 0)
    rng = np.random.default_rng(edges)
    source, target = rng.integers(0, vertices, (2, edges))
    found = Adjacency.of(source, target, np.zeros(vertices, np.int64))

    matrix = sparse.coo_array((np.ones(edges), (source, target)), shape=(vertices, vertices)).tolil()
    matrix.setdiag(0)
    matrix = sparse.csr_array(matrix + matrix.T)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    assert found.indptr.tolist() == matrix.indptr.tolist()
    assert found.indices.tolist() == matrix.indices.tolist()
    assert found.indptr.dtype == found.indices.dtype == np.int32


def test_a_vertex_with_most_of_the_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adjacency, "_MANY", 0)
    others = np.arange(1, 1001)
    found = Adjacency.of(np.zeros(1000, np.int64), others[::-1], np.zeros(1001, np.int64))
    assert found.near(0).tolist() == others.tolist()
    assert all(found.near(row).tolist() == [0] for row in others)
