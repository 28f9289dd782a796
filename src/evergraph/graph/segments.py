"""A graph as immutable segments: the first holds a whole graph, each later one what a slice added.

A segment is a dict of numpy arrays of numbers and bytes, so it can be stored as it is, and never changes. `join` gives
the graph of a sequence of segments; it is the graph that repeated `EvolvingGraph.append` gives, bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError
from evergraph.graph import ids as id_columns
from evergraph.graph.arrays import (
    Arrays,
    from_arrays,
    pack_features,
    pack_ids,
    pack_strings,
    to_arrays,
    unpack_features,
    unpack_ids,
    unpack_strings,
)
from evergraph.graph.classes import extend_names
from evergraph.graph.columns import EdgeColumns, Ends, Origin, VertexColumns, find_ends
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import DenseFeatures, Features, kind_of
from evergraph.graph.ids import Ids, Strings
from evergraph.graph.times import TimeAxis, check_span

__all__ = ["Segment", "base_segment", "decode", "encode", "extend", "join", "slice_segment"]

Segment = Arrays
"""The arrays of a segment by name.

``header`` is JSON as bytes: how many vertices and feature columns come before the segment, and what kind of features it
has; of the first segment also the time axis and what is said about the graph. The first segment has the arrays that
`evergraph.graph.arrays.to_arrays` gives. The others have

- ``ids`` (numbers) or ``ids.bytes`` and ``ids.offsets`` (strings), ``times``, and ``codes``, which point into the class
  names of the segment, ``classes.bytes`` and ``classes.offsets``: the vertices in ascending order of time;
- ``features`` (dense), or ``features.indptr``, ``.indices`` and ``.data`` with ``features.columns.bytes`` and
  ``.offsets``, the names of the columns (the words) that are new;
- ``source`` and ``target``: rows of the graph before; the vertices of the segment are numbered after those;
- ``edge_times``, where edges have times of their own.
"""

_NONE = np.empty(0, np.int64)
_NO_TIME = np.iinfo(np.int64).min  # an edge without a time of its own is as old as its younger end


def base_segment(graph: EvolvingGraph) -> Segment:
    """The first segment: a whole graph; if it is from a saved one, its files are checked against their hashes."""
    if graph.source is not None:
        graph.source.check()
    axis = {"unit": graph.axis.unit, "step": graph.axis.step}
    return {"header": _header(0, 0, graph.features, time=axis, about=dict(graph.about)), **to_arrays(graph)}


def slice_segment(
    graph: EvolvingGraph,
    new: VertexColumns | None,
    edges: EdgeColumns | None,
    *,
    drop_dangling: bool = False,
    old_edges_from: int | None = None,
) -> Segment:
    """Return the segment that adds vertices and edges to a graph; what cannot be added is an error.

    ``old_edges_from`` is the time of edges between vertices of the graph that have no time of their own; by default
    they are as old as their younger end.
    """
    width = 0 if graph.features is None else graph.features.width
    segment: Segment = {}
    known = _find_all(graph.ids, new, edges)  # in one pass over all ids of the graph
    if new is not None:
        features = _check(graph, new, known.pop(0))
        segment |= pack_ids(new.ids) | {"times": new.times, "codes": new.codes}
        segment |= pack_strings("classes", Strings.of(new.class_names)) | pack_features(features)
    ids = [graph.ids] if new is None else [graph.ids, new.ids]
    source, target, times = find_ends(ids, edges, drop_dangling, known)
    if times is None and old_edges_from is not None:
        old = (source < len(graph)) & (target < len(graph))
        times = np.where(old, old_edges_from, _NO_TIME) if old.any() else None
    if len(source):
        segment |= {"source": source.astype(np.int32), "target": target.astype(np.int32)}
        segment |= {"edge_times": times} if times is not None else {}
    return {"header": _header(len(graph), width, graph.features), **segment}


def extend(graph: EvolvingGraph, segment: Segment) -> EvolvingGraph:
    """The graph with one more segment."""
    return _extend(graph, [segment])


def join(segments: Sequence[Segment]) -> EvolvingGraph:
    """The graph of these segments, of which the first is a `base_segment`.

    Labels are those that came with the segments; classes are numbered as they first appear in them.
    """
    first, rest = segments[0], segments[1:]
    about = _read_header(first)
    graph = from_arrays(first, about["features"], TimeAxis(**about["time"]), about["about"]).frozen()
    times = [graph.times, *(part["times"] for part in rest if "times" in part)]
    if all(before[-1] <= after[0] for before, after in pairwise(times)):
        return _extend(graph, rest)
    return reduce(extend, rest, graph)


def encode(segment: Segment) -> bytes:
    """A segment as bytes, the same for the same segment."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(array) for name, array in segment.items()})


def decode(data: bytes) -> Segment:
    """The segment of these bytes, sharing their memory."""
    from safetensors.numpy import load

    return dict(load(data))


def _find_all(ids: Ids, new: VertexColumns | None, edges: EdgeColumns | None) -> list[NDArray[np.int64]]:
    columns = [] if new is None else [id_columns.to_arrow(new.ids)]
    return id_columns.find_all(ids, columns if edges is None else [*columns, edges.source, edges.target])


def _check(graph: EvolvingGraph, new: VertexColumns, rows: NDArray[np.int64]) -> Features | None:
    """Refuse vertices that cannot be added; returns their features with columns numbered as in the graph."""
    known = np.flatnonzero(rows >= 0)
    if len(known):
        raise InputError(
            f"vertex {id_columns.at(new.ids, known[0])!r} is in the graph already", fix="append new vertices only"
        )
    if type(new.features) is not type(graph.features):
        raise InputError(
            f"features of the new vertices: {kind_of(new.features)}; of the graph: {kind_of(graph.features)}",
            fix="give the new vertices the same kind of features",
        )
    check_span(np.concatenate([graph.times, new.times]), Origin("vertices"), "time", rows=False)
    if graph.features is None or new.features is None:
        return None
    return graph.features.place(new.features)  # type: ignore[arg-type]  # same types, see above


def _extend(graph: EvolvingGraph, segments: Sequence[Segment]) -> EvolvingGraph:
    """The graph with segments of which each is at least as young as those before it; a single one may be older."""
    ids, times, codes, names, features = [graph.ids], [graph.times], [graph.codes], graph.class_names, []
    ends: list[Ends] = []
    vertices, width = len(graph), 0 if graph.features is None else graph.features.width
    for segment in segments:
        header = _read_header(segment)
        if (header["vertices"], header["columns"], header["features"]) != (vertices, width, kind_of(graph.features)):
            raise ValueError("a segment does not follow the one before it")
        if "times" in segment:
            ids.append(unpack_ids(segment))
            times.append(segment["times"])
            names, rows = extend_names(names, unpack_strings("classes", segment))
            codes.append(rows[segment["codes"]])
            vertices += len(segment["times"])
            if (part := unpack_features(header["features"], segment)) is not None:
                features.append(part)
                width += 0 if isinstance(part, DenseFeatures) else len(part.columns)
        if "source" in segment:
            ends.append((segment["source"], segment["target"], segment.get("edge_times")))
    stacked = graph.features.stack(features) if features else graph.features  # type: ignore[union-attr,arg-type]
    all_times, all_codes = (id_columns.append_rows(first, rest) for first, *rest in (times, codes))
    columns = id_columns.join(ids), all_times, all_codes
    if len(times) > 1 and times[1][0] < graph.last_time:
        every = _concat([graph.links.ends(), *ends])
        return EvolvingGraph.assemble(*columns, names, stacked, every, graph.axis, graph.about, graph.source)
    source, target, edge_times = _concat(ends)
    links = graph.links.insert(source, target, columns[1], edge_times)
    return EvolvingGraph(*columns, names, links, stacked, graph.axis, dict(graph.about), graph.source).frozen()


def _concat(ends: Sequence[Ends]) -> Ends:
    source, target = (np.concatenate([_NONE, *(part[side] for part in ends)]) for side in (0, 1))
    if all(part[2] is None for part in ends):
        return source, target, None
    times = [np.full(len(part[0]), _NO_TIME) if part[2] is None else part[2] for part in ends]
    return source, target, np.concatenate(times)


def _header(vertices: int, columns: int, features: Features | None, **more: Any) -> NDArray[np.uint8]:
    content = {"vertices": vertices, "columns": columns, "features": kind_of(features), **more}
    return np.frombuffer(json.dumps(content, ensure_ascii=False).encode(), np.uint8)


def _read_header(segment: Segment) -> dict[str, Any]:
    return dict(json.loads(segment["header"].tobytes()))
