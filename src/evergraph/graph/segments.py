"""A graph as a sequence of immutable segments, as a workspace holds it.

The first segment holds a whole graph, each later one what a slice added. A segment is a dict of numpy arrays of numbers
and bytes, so it can be stored as it is, and never changes. `join` returns the graph of a sequence of segments: bit for
bit the graph that repeated `EvolvingGraph.append` returns. It copies a few numbers per vertex; ids, features and edges
stay in the segments, which may be memory maps, and are read for the rows that are used. `merge` returns one segment
instead of several neighbouring ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError, Origin
from evergraph.graph import ids as id_columns
from evergraph.graph.adjacency import Adjacency, Entries, merged
from evergraph.graph.arrays import (
    Arrays,
    Checks,
    are_strings,
    are_times,
    check_types,
    feature_checks,
    find_damage,
    first_problem,
    from_arrays,
    kind_of,
    pack_features,
    pack_ids,
    pack_strings,
    to_arrays,
    unpack_features,
    unpack_ids,
    unpack_strings,
    within,
)
from evergraph.graph.blocks import append_rows, joined
from evergraph.graph.classes import extend_names
from evergraph.graph.columns import EdgeColumns, Ends, VertexColumns, find_ends
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import Features
from evergraph.graph.ids import Ids, Strings
from evergraph.graph.times import TimeAxis, check_span
from evergraph.storage.decoding import converted, parse_json

__all__ = [
    "Segment",
    "base_segment",
    "decode",
    "encode",
    "extend",
    "find_segment_damage",
    "join",
    "merge",
    "slice_segment",
]

Segment = Arrays
"""The arrays of a segment by name.

``header`` is JSON as bytes: the number of vertices and of columns of words (``columns``; of numbers if there are no
words) and of categories before the segment, and the kind of its words or numbers; in the first segment also the time
axis and the description of the graph. The first segment has the arrays that `to_arrays` returns. The others have

- ``ids`` (numbers) or ``ids.bytes`` and ``ids.offsets`` (strings), ``times``, and ``codes``, which are indices into the
  class names of the segment, ``classes.bytes`` and ``classes.offsets``: the vertices in ascending order of time;
- what the features have: ``features`` (numbers); ``features.indptr``, ``.indices`` and ``.data`` with
  ``features.columns.bytes`` and ``.offsets``, the names of the new columns (words); ``categories.*`` likewise;
  ``vectors`` and ``vectors.encoder``; ``texts.bytes``, ``.offsets`` and ``.starts`` (see `Texts`);
- in large segments, ``features.texts``: the number of texts with each word up to the end of the segment;
- ``entries.rows``, ``entries.columns`` and, if edges have times of their own, ``entries.times``: each edge in both
  directions, in the order of rows (see `Entries`). Rows are those of the graph before; the vertices of the segment are
  numbered after those. If the header says ``"known": true``, some of the edges may be in the graph before, and get an
  earlier time. Segments of older versions have ``source`` and ``target``, in any order, and ``edge_times`` instead.

A workspace adds ``vertices`` and ``labels``, the numbers of the vertices and of their classes, and ``version``, the
version of which these labels are.
"""

_NONE = np.empty(0, np.int64)
_NO_TIME = np.iinfo(np.int64).min  # an edge without a time of its own is as old as its younger end
_DTYPES = {"F32": np.float32, "I64": np.int64, "I32": np.int32, "U8": np.uint8}


def base_segment(graph: EvolvingGraph) -> Segment:
    """Return the first segment: a whole graph. The files of a saved graph are first checked against their hashes."""
    if graph.source is not None:
        graph.source.check()
    axis = {"unit": graph.axis.unit, "step": graph.axis.step}
    header = _place(0, Features()) | {"features": kind_of(graph.features), "time": axis, "about": dict(graph.about)}
    return {"header": _header(header), **to_arrays(graph), **_count_texts(graph.features, len(graph))}


def slice_segment(
    graph: EvolvingGraph,
    new: VertexColumns | None,
    edges: EdgeColumns | None,
    *,
    drop_dangling: bool = False,
    old_edges_from: int | None = None,
) -> Segment:
    """Return the segment that adds vertices and edges to a graph, or raise an error if they cannot be added.

    ``old_edges_from`` is the time of edges between vertices of the graph that have no time of their own; by default
    they are as old as their younger end.
    """
    segment: Segment = {}
    columns = [] if new is None else [id_columns.to_arrow(new.ids)]
    columns += [] if edges is None else [edges.source, edges.target]
    known = id_columns.find_all(graph.ids, columns)  # in one pass over all ids of the graph
    if new is not None:
        features = _check(graph, new, known.pop(0))
        segment |= pack_ids(new.ids) | {"times": new.times, "codes": new.codes}
        segment |= pack_strings("classes", Strings.of(new.class_names)) | pack_features(features)
    ids = [graph.ids] if new is None else [graph.ids, new.ids]
    source, target, times = find_ends(ids, edges, drop_dangling, known)
    if times is None and old_edges_from is not None:
        old = (source < len(graph)) & (target < len(graph))
        times = np.where(old, old_edges_from, _NO_TIME) if old.any() else None
    header = _place(len(graph), graph.features)
    if len(source):
        vertex_times = graph.times if new is None else joined(graph.times, [new.times])
        entries, earlier = _new_entries(graph.links, Entries.of(source, target, vertex_times, times), vertex_times)
        header |= {"known": True} if earlier else {}
        segment |= _pack_entries(entries)
    return {"header": _header(header), **segment}


def _new_entries(links: Adjacency, entries: Entries, vertex_times: NDArray[np.int64]) -> tuple[Entries, bool]:
    """Return the entries that change a graph, and whether some are there already and become visible earlier."""
    known, earlier = links.find(entries, vertex_times)
    changes = ~known | earlier
    return entries if changes.all() else entries.take(changes), bool(earlier.any())


def extend(graph: EvolvingGraph, segment: Segment) -> EvolvingGraph:
    """Return the graph with one more segment."""
    return _extend(graph, [segment])


def join(segments: Sequence[Segment]) -> EvolvingGraph:
    """Return the graph of these segments, of which the first is a `base_segment`.

    Labels are those of the segments; classes are numbered in the order of their first use.
    """
    first, rest = segments[0], segments[1:]
    about = _read_header(first)
    graph = from_arrays(first, about["features"], converted(about["time"], TimeAxis), about["about"]).frozen()
    _note_texts(graph.features, len(graph), first)
    times = [graph.times, *(part["times"] for part in rest if "times" in part)]
    if all(before[-1] <= after[0] for before, after in pairwise(times)):
        return _extend(graph, rest) if rest else graph
    return reduce(extend, rest, graph)


def merge(before: EvolvingGraph, segments: Sequence[Segment]) -> Segment | None:
    """Return one segment that adds to a graph what several neighbouring segments add.

    Return None if they cannot be merged: one is older than the one before it, or gives an edge an earlier time.
    """
    vertex_times = np.concatenate([before.times, *(part["times"] for part in segments if "times" in part)])
    if (vertex_times[len(before) :] < vertex_times[len(before) - 1 : -1]).any():
        return None
    links, added = before.links, list[Entries]()
    for segment in segments:
        entries = _read_entries(segment)
        if entries is None:
            entries, earlier = _new_entries(links, _all_entries(segment, vertex_times), vertex_times)
            if earlier:
                return None
        added.append(entries)
        links = links.on_top(entries, vertex_times)
    merged_: Segment = {"header": _header(_place(len(before), before.features))}
    filled = [part for part in segments if "times" in part]
    if filled:
        names: tuple[str, ...] = ()
        codes = []
        for part in filled:
            names, rows = extend_names(names, unpack_strings("classes", part))
            codes.append(rows[part["codes"]])
        first, *others = (unpack_features(_read_header(part)["features"], part) for part in filled)
        features = first.stack(others)
        if features.numbers is not None:
            features = replace(features, numbers=replace(features.numbers, columns=Strings.of([])))
        merged_ |= pack_ids(id_columns.join([unpack_ids(part) for part in filled]))
        merged_ |= {"times": vertex_times[len(before) :], "codes": np.concatenate(codes)}
        merged_ |= pack_strings("classes", Strings.of(names)) | pack_features(features)
        merged_ |= _count_texts(before.features.stack([features]), len(vertex_times))
    if any(map(len, added)):
        merged_ |= _pack_entries(merged(added, vertex_times))
    return merged_


def encode(segment: Segment) -> bytes:
    """Return a segment as bytes; equal segments give equal bytes."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(array) for name, array in segment.items()})


def decode(data: Any) -> Segment:
    """Return the segment of these bytes or this memory map, sharing their memory; any damage is a ``ValueError``."""
    size = int.from_bytes(bytes(data[:8]), "little")
    if not 0 < size <= len(data) - 8:
        raise ValueError("the header is cut off")
    start, segment = 8 + size, {}
    described = parse_json(bytes(data[8:start]))
    for name, entry in described.items():
        if name == "__metadata__":
            continue
        dtype, (first, stop) = np.dtype(_DTYPES[entry["dtype"]]), entry["data_offsets"]
        if not 0 <= first <= stop <= len(data) - start or (stop - first) % dtype.itemsize:
            raise ValueError(f"the array {name} is cut off")
        count = (stop - first) // dtype.itemsize
        segment[name] = np.frombuffer(data, dtype, count, start + first).reshape(entry["shape"])
    return segment


def find_segment_damage(segment: Segment) -> str | None:
    """Return what is wrong with the arrays of a segment that may be damaged; None if nothing is.

    That a segment follows the ones before it is checked by `join`.
    """
    check_types(segment)
    if not within(segment.get("features.texts", _NONE), 2**31):
        return "texts are counted wrongly"
    header = {"categories": 0, **_read_header(segment)}
    if "time" in header:
        graph = from_arrays(
            {name: array for name, array in segment.items() if name not in _RECORDS},
            header["features"],
            converted(header["time"], TimeAxis),
            header["about"],
        )
        return find_damage(graph)
    places = converted({name: header[name] for name in ("vertices", "columns", "categories")}, dict[str, int])
    times = segment.get("times", _NONE)
    n = len(times)
    checks: Checks = {}
    if n:
        ids, codes, names = unpack_ids(segment), segment["codes"], unpack_strings("classes", segment)
        checks = {
            "times do not ascend": lambda: (times[1:] >= times[:-1]).all(),
            "times are out of range": lambda: are_times(times),
            "there are other numbers of ids and classes": lambda: len(ids) == len(codes) == n,
            "ids are out of order or not text": lambda: not isinstance(ids, Strings) or are_strings(ids),
            "classes are out of range": lambda: are_strings(names) and within(codes, len(names), -1),
        }
        before = {"words": places["columns"], "categories": places["categories"]}
        checks |= feature_checks(unpack_features(header["features"], segment), n, before)
    checks |= _edge_checks(segment, places["vertices"] + n)
    return first_problem(checks)


def _edge_checks(segment: Segment, vertices: int) -> Checks:
    sorted_ = "entries.rows" in segment
    names = ("entries.rows", "entries.columns", "entries.times") if sorted_ else ("source", "target", "edge_times")
    rows, columns, times = (segment.get(name) for name in names)
    if rows is None or columns is None:
        return {}
    checks: Checks = {
        "edges are out of range": lambda: (
            len(rows) == len(columns) and within(rows, vertices) and within(columns, vertices)
        ),
        "times of edges are missing": lambda: times is None or len(times) == len(rows),
    }
    if sorted_:
        checks["edges are out of order"] = lambda: (
            (rows[1:] > rows[:-1]) | ((rows[1:] == rows[:-1]) & (columns[1:] > columns[:-1]))
        ).all()
        checks["times of edges are out of range"] = lambda: times is None or are_times(times)
    return checks


_RECORDS = ("header", "features.texts", "vertices", "labels", "version")


def _check(graph: EvolvingGraph, new: VertexColumns, rows: NDArray[np.int64]) -> Features:
    """Refuse vertices that cannot be added; return their features with columns numbered as in the graph."""
    known = np.flatnonzero(rows >= 0)
    if len(known):
        raise InputError(
            f"vertex {id_columns.at(new.ids, known[0])!r} is in the graph already", fix="append new vertices only"
        )
    ends = np.array([graph.first_time, graph.last_time])  # the others lie between
    check_span(np.concatenate([ends, new.times]), Origin("vertices"), "time", rows=False)
    return graph.features.place(new.features)


def _extend(graph: EvolvingGraph, segments: Sequence[Segment]) -> EvolvingGraph:
    """Add segments, none of which is older than those before it; a single one may be older than the graph."""
    ids: list[Ids] = [graph.ids]
    times, codes, names = [graph.times], [graph.codes], graph.class_names
    features: list[Features] = []
    counted: list[tuple[int, Segment]] = []
    place = _place(len(graph), graph.features)
    for segment in segments:
        check_types(segment)
        header = {"categories": 0, **_read_header(segment)}  # older segments have no categories
        if any(header[name] != value for name, value in place.items()):
            raise ValueError("a segment does not follow the one before it")
        if "times" in segment:
            ids.append(unpack_ids(segment))
            times.append(segment["times"])
            names, rows = extend_names(names, unpack_strings("classes", segment))
            codes.append(rows[segment["codes"]])
            part = unpack_features(header["features"], segment)
            features.append(part)
            place["vertices"] += len(segment["times"])
            counted.append((place["vertices"], segment))
            place["columns"] += len(part.words.columns) if part.words is not None else 0
            place["categories"] += len(part.categories.columns) if part.categories is not None else 0
    stacked = graph.features.stack(features) if features else graph.features
    for rows_, segment in counted:
        _note_texts(stacked, rows_, segment)
    all_times, all_codes = (append_rows(first, rest) for first, *rest in (times, codes))
    columns = id_columns.join(ids), all_times, all_codes
    if len(times) > 1 and times[1][0] < graph.last_time:
        every = _concat([graph.links.ends(), *(_ends_of(segment) for segment in segments)])
        return EvolvingGraph.assemble(*columns, names, stacked, every, graph.axis, graph.about, graph.source)
    links = graph.links
    for segment in segments:
        entries = _read_entries(segment)
        if entries is None:
            links = links.layered(_all_entries(segment, all_times), all_times)
        else:
            links = links.on_top(entries, all_times)
    return EvolvingGraph(*columns, names, links, stacked, graph.axis, dict(graph.about), graph.source).frozen()


def _count_texts(features: Features, rows: int) -> Arrays:
    """Return the number of texts with each word among the first rows, if counting them takes longer than reading it."""
    words = features.words
    if words is None or len(words.indices) < 4 * words.width:
        return {}
    return {"features.texts": words.count_texts(rows)}


def _note_texts(features: Features, rows: int, segment: Segment) -> None:
    if features.words is not None and "features.texts" in segment:
        if len(counts := segment["features.texts"]) > features.words.width:
            raise ValueError("more words are counted than there are")
        features.words.note_texts(rows, counts)


def _pack_entries(entries: Entries) -> Arrays:
    if not len(entries):
        return {}
    arrays: Arrays = {"entries.rows": entries.rows, "entries.columns": entries.columns}
    return arrays if entries.times is None else {**arrays, "entries.times": entries.times}


def _read_entries(segment: Segment) -> Entries | None:
    """Return the entries of a segment that the graph before it does not have; None if it may have some."""
    if "source" in segment or _read_header(segment).get("known"):
        return None
    if "entries.rows" not in segment:
        return Entries(np.empty(0, np.int32), np.empty(0, np.int32))
    return Entries(segment["entries.rows"], segment["entries.columns"], segment.get("entries.times"))


def _all_entries(segment: Segment, vertex_times: NDArray[np.int64]) -> Entries:
    source, target, times = _ends_of(segment)
    return Entries.of(source, target, vertex_times, times)


def _ends_of(segment: Segment) -> Ends:
    """Return the edges of a segment, each once."""
    if "entries.rows" in segment:
        rows, columns, times = (segment.get(f"entries.{name}") for name in ("rows", "columns", "times"))
        once = np.flatnonzero(rows < columns)  # type: ignore[operator]
        return rows[once], columns[once], None if times is None else times[once]  # type: ignore[index]
    return segment.get("source", _NONE), segment.get("target", _NONE), segment.get("edge_times")


def _concat(ends: Sequence[Ends]) -> Ends:
    source, target = (np.concatenate([_NONE, *(part[side] for part in ends)]) for side in (0, 1))
    if all(part[2] is None for part in ends):
        return source, target, None
    times = [np.full(len(part[0]), _NO_TIME) if part[2] is None else part[2] for part in ends]
    return source, target, np.concatenate(times)


def _place(vertices: int, features: Features) -> dict[str, Any]:
    """Return what a header says of the graph before its segment."""
    main = features.words if features.words is not None else features.numbers
    categories = 0 if features.categories is None else features.categories.width
    columns = 0 if main is None else main.width
    return {"vertices": vertices, "columns": columns, "categories": categories, "features": kind_of(features)}


def _header(content: Mapping[str, Any]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(content, ensure_ascii=False).encode(), np.uint8)


def _read_header(segment: Segment) -> dict[str, Any]:
    return dict(parse_json(segment["header"].tobytes()))
