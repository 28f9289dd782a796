"""A graph, or the slices that came at some times, as the two tables that `read_tables` reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.graph import ids as id_columns
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import DenseFeatures, WordCounts

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["to_tables"]


def to_tables(
    graph: EvolvingGraph, first: int | str | None = None, last: int | str | None = None, *, labels: bool = True
) -> tuple[pa.Table, pa.Table]:
    """Vertices of some times, and the edges that came with them; of successive times, the tables make up the graph.

    Vertices have ``id``, ``time`` and, as far as there are any, ``label``, ``text`` (words as often as they are
    counted, in no order) or ``features`` (lists of numbers); edges have ``source``, ``target`` and ``time``.

    Examples
    --------
    >>> graph = EvolvingGraph.build(
    ...     {"id": ["a", "b", "c"], "time": [1, 2, 2], "label": ["x", None, "y"], "text": ["one", "two two", ""]},
    ...     [("a", "b"), ("b", "c")],
    ... )
    >>> vertices, edges = to_tables(graph, 2, 2)
    >>> vertices.to_pydict()
    {'id': ['b', 'c'], 'time': [2, 2], 'label': [None, 'y'], 'text': ['two two', '']}
    >>> edges.num_rows, to_tables(graph, 1, 1)[1].num_rows
    (2, 0)
    """
    import pyarrow as pa

    low = graph.first_time if first is None else graph.axis.period(first)
    high = graph.last_time if last is None else graph.axis.period(last)
    rows = slice(*np.searchsorted(graph.times, [low, high + 1]).tolist())
    value = graph.axis.value
    columns: dict[str, Any] = {
        "id": id_columns.to_arrow(graph.ids[rows]),
        "time": [value(time) for time in graph.times[rows]],
    }
    if labels:
        columns["label"] = pa.array(graph.names_of(graph.codes[rows]).tolist(), pa.string())
    if isinstance(graph.features, WordCounts):
        columns["text"] = _texts(graph.features, rows)
    elif graph.features is not None:
        part = graph.features.rows(rows)
        dense = part.values if isinstance(part, DenseFeatures) else part.matrix.toarray()
        columns["features"] = pa.FixedSizeListArray.from_arrays(pa.array(dense.ravel()), max(dense.shape[1], 1))
    source, target, own = graph.links.ends()
    seen = np.maximum(graph.times[source], graph.times[target]) if own is None else own
    came = np.flatnonzero((seen >= low) & (seen <= high))
    edges = {
        "source": id_columns.to_arrow(id_columns.take(graph.ids, source[came])),
        "target": id_columns.to_arrow(id_columns.take(graph.ids, target[came])),
        "time": [value(time) for time in seen[came]],
    }
    return pa.table(columns), pa.table(edges)


def _texts(features: WordCounts, rows: slice) -> list[str]:
    matrix, words = features.rows(rows).matrix, list(features.columns)
    found = []
    for start, stop in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        counted = zip(matrix.indices[start:stop].tolist(), matrix.data[start:stop].tolist(), strict=True)
        found.append(" ".join(word for column, count in counted for word in [words[column]] * round(count)))
    return found
