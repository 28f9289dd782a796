"""Building and changing a graph."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError
from evergraph.graph import ids as id_columns
from evergraph.graph.classes import extend_names
from evergraph.graph.columns import (
    EdgeColumns,
    Origin,
    VertexColumns,
    as_features,
    as_table,
    class_column,
    edge_columns,
    id_column,
    vertex_columns,
)
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import SparseFeatures
from evergraph.graph.segments import assemble, extend, find_ends, slice_segment
from evergraph.graph.times import TimeAxis

log = logging.getLogger(__name__)

_VERTICES, _EDGES, _IDS = Origin("vertices"), Origin("edges"), Origin("ids")


def build(
    vertices: Any,
    edges: Any,
    features: Any,
    feature_names: list[str] | None,
    every: str | int | None,
    drop_dangling: bool,
    about: Mapping[str, str],
) -> EvolvingGraph:
    """See `EvolvingGraph.build`."""
    checked = check_vertices(vertices, features, feature_names, every=every)
    return from_columns(checked, check_edges(edges, checked.axis), drop_dangling, about)


def from_columns(
    vertices: VertexColumns, edges: EdgeColumns | None, drop_dangling: bool, about: Mapping[str, str]
) -> EvolvingGraph:
    """Build a graph from checked columns."""
    ends = find_ends([vertices.ids], edges, drop_dangling)
    graph = assemble(
        vertices.ids,
        vertices.times,
        vertices.codes,
        vertices.class_names,
        vertices.features,
        ends,
        vertices.axis,
        about,
    )
    loops = int((ends[0] == ends[1]).sum())
    if repeated := len(ends[0]) - loops - graph.n_edges:
        log.info("repeated edges dropped: %s", f"{repeated:,}")
    if loops:
        log.info("self-loops dropped: %s", f"{loops:,}")
    return graph


def append(
    graph: EvolvingGraph,
    vertices: Any,
    edges: Any,
    features: Any,
    feature_names: list[str] | None,
    drop_dangling: bool,
) -> EvolvingGraph:
    """See `EvolvingGraph.append`."""
    if vertices is None and features is not None:
        raise InputError("there are features, but no vertices", fix="give the vertices that have these features")
    new = None
    if vertices is not None:
        if feature_names is None and type(graph.features) is SparseFeatures:
            feature_names = list(graph.features.columns)
        new = check_vertices(vertices, features, feature_names, axis=graph.axis)
    return append_columns(graph, new, check_edges(edges, graph.axis), drop_dangling)


def append_columns(
    graph: EvolvingGraph, new: VertexColumns | None, edges: EdgeColumns | None, drop_dangling: bool
) -> EvolvingGraph:
    """Append checked columns."""
    return extend(graph, slice_segment(graph, new, edges, drop_dangling=drop_dangling))


def relabel(graph: EvolvingGraph, ids: Iterable[str | int], labels: Iterable[str | None]) -> EvolvingGraph:
    """See `EvolvingGraph.relabel`."""
    rows = find(graph, ids)
    table = as_table({"label": list(labels)}, Origin("labels"))
    coded = class_column(table.column("label").combine_chunks(), Origin("labels"), "label").dictionary_encode()
    if len(coded) != len(rows):
        raise InputError(f"{len(coded)} labels for {len(rows)} vertices", fix="give one label a vertex")
    names, row_of = extend_names(graph.class_names, coded.dictionary.to_pylist())
    codes = graph.codes.copy()
    codes[rows] = row_of[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    codes.flags.writeable = False
    return replace(graph, codes=codes, class_names=names)


def remove(graph: EvolvingGraph, vertices: Iterable[str | int], edges: Any) -> EvolvingGraph:
    """See `EvolvingGraph.remove`."""
    keep = np.ones(len(graph), bool)
    keep[find(graph, vertices)] = False
    if not keep.any():
        raise InputError("no vertex would be left", fix="keep at least one")
    source, target, times = graph.links.ends()
    stays = keep[source] & keep[target]
    if edges is not None:
        gone_source, gone_target, _ = find_ends([graph.ids], check_edges(edges, graph.axis), False)
        n = len(graph)
        gone = np.minimum(gone_source, gone_target) * n + np.maximum(gone_source, gone_target)
        present = source.astype(np.int64) * n + target
        absent = np.flatnonzero(~np.isin(gone, present))
        if len(absent):
            pair = [id_columns.at(graph.ids, ends[absent[0]]) for ends in (gone_source, gone_target)]
            _EDGES.fail(
                f"there is no edge between {pair[0]!r} and {pair[1]!r}",
                row=int(absent[0]),
                fix="remove edges that exist",
            )
        stays &= ~np.isin(present, gone)
    place = np.cumsum(keep) - 1
    rows = np.flatnonzero(keep)
    return assemble(
        id_columns.take(graph.ids, rows),
        graph.times[rows],
        graph.codes[rows],
        graph.class_names,
        graph.features.take(rows) if graph.features is not None else None,
        (place[source[stays]], place[target[stays]], times[stays] if times is not None else None),
        graph.axis,
        graph.about,
        graph.source,
    )


def find(graph: EvolvingGraph, ids: Iterable[str | int]) -> NDArray[np.int64]:
    """See `EvolvingGraph.find`."""
    if isinstance(ids, (str, int)):
        raise InputError(f"{ids!r} is one id, not several", fix=f"put it into a list: [{ids!r}]")
    wanted = id_column(as_table({"id": list(ids)}, _IDS), "id", _IDS)
    rows = id_columns.find(graph.ids, wanted)
    unknown = np.flatnonzero(rows < 0)
    if len(unknown):
        raise InputError(
            f"there is no vertex {wanted[int(unknown[0])].as_py()!r}", fix="give ids of vertices in the graph"
        )
    return rows


def check_vertices(
    vertices: Any,
    features: Any = None,
    feature_names: list[str] | None = None,
    *,
    every: str | int | None = None,
    axis: TimeAxis | None = None,
) -> VertexColumns:
    """Checked vertices of columns in memory, as `EvolvingGraph.build` takes them."""
    table = as_table(vertices, _VERTICES)
    for wanted in ("label", "text"):
        # Both may be missing, but not by a slip of the pen.
        slips = [
            name for name in table.column_names if name != wanted and name.strip().lower() in (wanted, f"{wanted}s")
        ]
        if wanted not in table.column_names and slips:
            _VERTICES.fail(
                f"there is a column '{slips[0]}', but none '{wanted}'", column=slips[0], fix=f"call it '{wanted}'"
            )
    return vertex_columns(
        table,
        _VERTICES,
        label="label" if "label" in table.column_names else None,
        text="text" if "text" in table.column_names else None,
        features=as_features(features, feature_names) if features is not None else None,
        every=every,
        axis=axis,
    )


def check_edges(edges: Any, axis: TimeAxis) -> EdgeColumns | None:
    """Checked edges of columns in memory, as `EvolvingGraph.build` takes them."""
    if edges is None:
        return None
    if isinstance(edges, (np.ndarray, list, tuple)):
        pairs = np.asarray(edges, dtype=object if not isinstance(edges, np.ndarray) else None)
        if pairs.size == 0:
            return None
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise InputError(
                f"edges have the shape {pairs.shape}",
                fix="give an array of pairs, or columns source and target",
            )
        edges = {"source": pairs[:, 0].tolist(), "target": pairs[:, 1].tolist()}
    table = as_table(edges, _EDGES)
    return edge_columns(table, _EDGES, axis, time="time" if "time" in table.column_names else None)
