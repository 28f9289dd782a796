"""The past of a graph, as a graph of its own that contains nothing of what came later."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from evergraph.errors import InputError
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import Features, SparseFeatures

__all__ = ["past_of"]

_Sparse = TypeVar("_Sparse", bound=SparseFeatures)


def past_of(graph: EvolvingGraph, last: int | str) -> EvolvingGraph:
    """Return the graph as it was after a period, without the original texts.

    Vertices, edges, labels, words and categories of later periods are left out. The rest is in an order that does not
    depend on them: classes and columns by their names. A task gives the same results on it as on the whole graph.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 3], "label": ["y", "x", "z"]}, [[1, 2], [2, 3]])
    >>> past_of(graph, 2), past_of(graph, 2).class_names
    (EvolvingGraph(vertices=2, edges=1, classes=2, times=1..2, features=none), ('x', 'y'))
    """
    time = graph.axis.period(last)
    rows = slice(0, int(np.searchsorted(graph.times, time, "right")))
    if not rows.stop:
        label = graph.axis.label
        raise InputError(
            f"the graph starts at {label(graph.first_time)}, after {label(time)}", fix="choose a later period"
        )
    codes = graph.codes[rows]
    used = np.unique(codes[codes >= 0])
    order = used[np.argsort(np.array([graph.class_names[code] for code in used], object))]
    place = np.full(len(graph.class_names) + 1, -1, np.int32)  # the last is for -1, no label
    place[order] = np.arange(len(order))
    source, target, times = graph.links.part(rows, time).ends()
    parts = {name: part.rows(rows) for name, part in graph.features.parts.items() if name != "texts"}
    parts = {name: _used(part) if isinstance(part, SparseFeatures) else part for name, part in parts.items()}
    return EvolvingGraph.assemble(
        graph.ids[rows],
        np.array(graph.times[rows]),
        place[codes],
        tuple(graph.class_names[code] for code in order),
        Features(**parts),
        (source, target, times),
        graph.axis,
        graph.about,
    )


def _used(part: _Sparse) -> _Sparse:
    """Leave out columns without values, and sort the others by name."""
    matrix = part.matrix
    used = np.unique(matrix.indices)
    used = used[np.argsort(part.name_ranks[used])]
    matrix = matrix[:, used]
    matrix.sort_indices()
    return replace(
        part,
        indptr=matrix.indptr.astype(np.int64),
        indices=matrix.indices.astype(np.int32),
        data=matrix.data,
        columns=part.columns.take(used),
    )
