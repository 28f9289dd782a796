"""A graph as named arrays: whole, as a graph folder holds it, or as immutable segments, as a workspace holds it.

The first segment holds a whole graph, each later one what a slice added. A segment is a dict of numpy arrays of numbers
and bytes, so it can be stored as it is, and never changes. `join` returns the graph of a sequence of segments: bit for
bit the graph that repeated `EvolvingGraph.append` returns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError, Origin
from evergraph.graph import ids as id_columns
from evergraph.graph.classes import extend_names
from evergraph.graph.columns import EdgeColumns, Ends, VertexColumns, find_ends
from evergraph.graph.evolving import Adjacency, EvolvingGraph
from evergraph.graph.features import Features, Numbers, SparseFeatures, Vectors, WordCounts
from evergraph.graph.ids import Ids, Strings
from evergraph.graph.texts import Texts
from evergraph.graph.times import MAX_SPAN, TimeAxis, check_span
from evergraph.storage.decoding import converted, parse_json

if TYPE_CHECKING:
    from evergraph.graph.disk import SavedArrays

Arrays = dict[str, NDArray[Any]]

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
- ``source`` and ``target``: rows of the graph before; the vertices of the segment are numbered after those;
- ``edge_times``, if edges have times of their own.
"""

_TYPES: dict[str, tuple[type[np.generic], ...]] = {
    **dict.fromkeys(("times", "edge_times", "ids", "offsets", "starts", "vertices"), (np.int64,)),
    **dict.fromkeys(("codes", "indptr", "indices", "source", "target", "labels"), (np.int32, np.int64)),
    **dict.fromkeys(("features", "vectors", "data"), (np.float32,)),
    **dict.fromkeys(("bytes", "header", "encoder"), (np.uint8,)),
}
"""The types of each array by the last part of its name; all but ``features`` and ``vectors`` have one dimension."""
_LARGEST_TIME = 2**31
_MOST_WORDS = 2**24  # how often a word occurs in a text
_WORDS: dict[str, type[SparseFeatures]] = {kind.kind: kind for kind in (SparseFeatures, WordCounts)}
Kind = Literal["none", "dense", "sparse", "words"]
"""What the arrays named ``features`` hold; "dense" are numbers without words."""
_NONE = np.empty(0, np.int64)
_NO_TIME = np.iinfo(np.int64).min  # an edge without a time of its own is as old as its younger end


def to_arrays(graph: EvolvingGraph) -> Arrays:
    """Return all arrays of a graph by name."""
    arrays: Arrays = {
        "times": graph.times,
        "codes": graph.codes,
        "indptr": graph.links.indptr,
        "indices": graph.links.indices,
        **_pack_strings("classes", Strings.of(graph.class_names)),
        **_pack_ids(graph.ids),
        **_pack_features(graph.features),
    }
    return arrays if graph.links.times is None else {**arrays, "edge_times": graph.links.times}


def from_arrays(
    arrays: Arrays, features: str, axis: TimeAxis, about: Mapping[str, str], source: SavedArrays | None = None
) -> EvolvingGraph:
    """Return the graph of these arrays; ``features`` is the `Kind` of those named ``features``."""
    _check_types(arrays)
    graph = EvolvingGraph(
        _unpack_ids(arrays),
        arrays["times"],
        arrays["codes"],
        tuple(_unpack_strings("classes", arrays)),
        Adjacency(arrays["indptr"], arrays["indices"], arrays.get("edge_times")),
        _unpack_features(features, arrays),
        axis,
        about,
        source,
    )
    if not len(graph) == len(graph.ids) == len(graph.codes) == len(graph.links.indptr) - 1 > 0:
        raise ValueError("the arrays have different numbers of vertices")
    return graph


def _check_types(arrays: Arrays) -> None:
    for name, array in arrays.items():
        kinds = _TYPES[name.rpartition(".")[2]]
        if array.dtype not in kinds or array.ndim != (2 if name in ("features", "vectors") else 1):
            raise ValueError(f"the array {name} has type {array.dtype} and shape {array.shape}")


def find_damage(graph: EvolvingGraph) -> str | None:
    """Return what is wrong with the arrays of a graph that may be damaged; None if nothing is.

    Opening a graph does not check this. Compiled code must not run on unchecked arrays: it reads out of bounds.
    """
    features, links, n = graph.features, graph.links, len(graph)
    names, times = graph.class_names, graph.times
    checks: dict[str, Callable[[], Any]] = {
        "times do not ascend": lambda: (times[1:] >= times[:-1]).all(),
        "times are out of range": lambda: _are_times(times),
        "classes are out of range": lambda: _within(graph.codes, len(names), -1) and len(set(names)) == len(names),
        "edges are out of range": lambda: _within(links.indices, n),
        "rows of edges are out of order": lambda: _is_pointer(links.indptr, n, len(links.indices)),
        "times of edges are out of range": lambda: (
            links.times is None or (len(links.times) == len(links.indices) and _are_times(links.times))
        ),
        "ids are out of order or not text": lambda: not isinstance(graph.ids, Strings) or _are_strings(graph.ids),
    }
    for name, part in features.parts.items():
        if isinstance(part, SparseFeatures):
            checks |= _sparse_checks("features" if name == "words" else name, part, n)
    if (numbers := features.numbers) is not None:
        checks["features are missing or infinite"] = lambda: (
            len(numbers) == n and numbers.width and not np.isinf(numbers.values).any()
        )
        checks["names of numbers are not text"] = lambda: (
            _are_strings(numbers.columns) and len(set(numbers.columns)) == numbers.width
        )
    if (vectors := features.vectors) is not None:
        checks["vectors are missing or not finite"] = lambda: len(vectors) == n and np.isfinite(vectors.values).all()
    if (texts := features.texts) is not None:
        checks["texts are out of order"] = lambda: texts.is_valid(n)
    return next((problem for problem, is_valid in checks.items() if not is_valid()), None)


def _sparse_checks(name: str, part: SparseFeatures, rows: int) -> dict[str, Callable[[], Any]]:
    checks: dict[str, Callable[[], Any]] = {
        f"names of {name} are not text": lambda: _are_strings(part.columns),
        f"{name} are out of range": lambda: _within(part.indices, part.width),
        f"rows of {name} are out of order": lambda: _is_pointer(part.indptr, rows, len(part.indices)),
        f"{name} are missing or not finite": lambda: (
            len(part.data) == len(part.indices) and np.isfinite(part.data).all()
        ),
    }
    if isinstance(part, WordCounts):
        checks["words are counted wrongly"] = lambda: _within(part.data, _MOST_WORDS)
    if name == "categories":
        checks["categories have no column"] = lambda: all("=" in column for column in part.columns)
    return checks


def _within(indices: NDArray[Any], end: int, first: int = 0) -> bool:
    return not len(indices) or bool(indices.min() >= first and indices.max() < end)


def _is_pointer(pointer: NDArray[Any], rows: int, end: int) -> bool:
    ascends = len(pointer) == rows + 1 and pointer[0] == 0 and pointer[-1] == end
    return bool(ascends and (pointer[1:] >= pointer[:-1]).all())


def _are_times(times: NDArray[Any]) -> bool:
    low, high = int(times.min(initial=0)), int(times.max(initial=0))
    span = int(times.max()) - int(times.min()) if len(times) else 0
    return low >= -_LARGEST_TIME and high <= _LARGEST_TIME and span <= MAX_SPAN


def _are_strings(strings: Strings) -> bool:
    """Whether all bytes are UTF-8 and no string starts within a letter."""
    data, offsets = strings.data, strings.offsets
    if not len(offsets) or not _is_pointer(offsets, len(offsets) - 1, len(data)):
        return False
    try:
        str(np.ascontiguousarray(data).data, "utf-8")
    except UnicodeDecodeError:
        return False
    starts = offsets[offsets < len(data)]
    return bool((data[starts] & 0xC0 != 0x80).all())


def fingerprint(graph: EvolvingGraph) -> str:
    """Return a SHA-256 hash of everything that a run reads of a graph: vertices, times, classes, edges and features.

    The description of the graph (`about`), the original texts and the names of numbers are not included.
    """
    found = hashlib.sha256(f"{graph.axis.unit} {graph.axis.step} {kind_of(graph.features)}".encode())
    for name, array in sorted(to_arrays(graph).items()):
        if name.startswith(("texts.", "numbers.")):
            continue
        # Little-endian, so that the hash does not depend on the machine.
        plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        found.update(f"\n{name} {plain.dtype.str} {plain.shape}\n".encode())
        found.update(plain.data if plain.size else b"")
    return found.hexdigest()


def kind_of(features: Features) -> Kind:
    """Return what the arrays named ``features`` hold."""
    if features.words is not None:
        return "words" if isinstance(features.words, WordCounts) else "sparse"
    return "dense" if features.numbers is not None else "none"


def _pack_ids(ids: Ids) -> Arrays:
    return _pack_strings("ids", ids) if isinstance(ids, Strings) else {"ids": ids}


def _unpack_ids(arrays: Arrays) -> Ids:
    return arrays["ids"] if "ids" in arrays else _unpack_strings("ids", arrays)


def _pack_features(features: Features) -> Arrays:
    """Return the arrays of features; those of words and numbers are named as in graphs that have only one of them."""
    arrays: Arrays = {}
    for name, part in (("features", features.words), ("categories", features.categories)):
        if part is not None:
            start, stop = part.indptr[0], part.indptr[-1]
            arrays[f"{name}.indptr"] = part.indptr - start
            arrays[f"{name}.indices"], arrays[f"{name}.data"] = part.indices[start:stop], part.data[start:stop]
            arrays |= _pack_strings(f"{name}.columns", part.columns)
    if features.numbers is not None:
        arrays["features"] = features.numbers.values
        if len(features.numbers.columns):
            arrays |= _pack_strings("numbers.columns", features.numbers.columns)
    if features.vectors is not None:
        encoder = np.frombuffer(features.vectors.encoder.encode(), np.uint8)
        arrays |= {"vectors": features.vectors.values, "vectors.encoder": encoder}
    if (texts := features.texts) is not None:
        arrays |= {"texts.bytes": texts.data, "texts.offsets": texts.offsets, "texts.starts": texts.starts}
    return arrays


def _unpack_features(kind: str, arrays: Arrays) -> Features:
    words = None if kind in ("none", "dense") else _unpack_sparse("features", arrays, _WORDS[kind])
    categories = _unpack_sparse("categories", arrays) if "categories.indptr" in arrays else None
    numbers = vectors = texts = None
    if kind == "dense" or "features" in arrays:
        values = arrays["features"]
        if not len(values):  # then its width may be anything
            raise ValueError("there are no rows of features")
        named = "numbers.columns.bytes" in arrays
        numbers = Numbers(values, _unpack_strings("numbers.columns", arrays)) if named else Numbers.of(values)
    if "vectors" in arrays:
        vectors = Vectors(arrays["vectors"], arrays["vectors.encoder"].tobytes().decode())
    if "texts.bytes" in arrays:
        texts = Texts(arrays["texts.bytes"], arrays["texts.offsets"], arrays["texts.starts"])
    return Features(words, numbers, categories, vectors, texts)


def _unpack_sparse(name: str, arrays: Arrays, kind: type[SparseFeatures] = SparseFeatures) -> SparseFeatures:
    indptr, indices, data = (arrays[f"{name}.{part}"] for part in ("indptr", "indices", "data"))
    return kind(indptr, indices, data, _unpack_strings(f"{name}.columns", arrays))


def _pack_strings(name: str, strings: Strings) -> Arrays:
    packed = strings.packed()
    return {f"{name}.bytes": packed.data, f"{name}.offsets": packed.offsets}


def _unpack_strings(name: str, arrays: Arrays) -> Strings:
    return Strings(arrays[f"{name}.bytes"], arrays[f"{name}.offsets"])


# --- segments ---------------------------------------------------------------------------------------------------------


def base_segment(graph: EvolvingGraph) -> Segment:
    """Return the first segment: a whole graph. The files of a saved graph are first checked against their hashes."""
    if graph.source is not None:
        graph.source.check()
    axis = {"unit": graph.axis.unit, "step": graph.axis.step}
    header = _place(0, Features()) | {"features": kind_of(graph.features), "time": axis, "about": dict(graph.about)}
    return {"header": _header(header), **to_arrays(graph)}


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
        segment |= _pack_ids(new.ids) | {"times": new.times, "codes": new.codes}
        segment |= _pack_strings("classes", Strings.of(new.class_names)) | _pack_features(features)
    ids = [graph.ids] if new is None else [graph.ids, new.ids]
    source, target, times = find_ends(ids, edges, drop_dangling, known)
    if times is None and old_edges_from is not None:
        old = (source < len(graph)) & (target < len(graph))
        times = np.where(old, old_edges_from, _NO_TIME) if old.any() else None
    if len(source):
        segment |= {"source": source.astype(np.int32), "target": target.astype(np.int32)}
        segment |= {"edge_times": times} if times is not None else {}
    return {"header": _header(_place(len(graph), graph.features)), **segment}


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
    times = [graph.times, *(part["times"] for part in rest if "times" in part)]
    if all(before[-1] <= after[0] for before, after in pairwise(times)):
        return _extend(graph, rest)
    return reduce(extend, rest, graph)


def encode(segment: Segment) -> bytes:
    """Return a segment as bytes; equal segments give equal bytes."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(array) for name, array in segment.items()})


def decode(data: bytes) -> Segment:
    """Return the segment of these bytes, sharing their memory."""
    from safetensors.numpy import load

    return dict(load(data))


def _check(graph: EvolvingGraph, new: VertexColumns, rows: NDArray[np.int64]) -> Features:
    """Refuse vertices that cannot be added; return their features with columns numbered as in the graph."""
    known = np.flatnonzero(rows >= 0)
    if len(known):
        raise InputError(
            f"vertex {id_columns.at(new.ids, known[0])!r} is in the graph already", fix="append new vertices only"
        )
    check_span(np.concatenate([graph.times, new.times]), Origin("vertices"), "time", rows=False)
    return graph.features.place(new.features)


def _extend(graph: EvolvingGraph, segments: Sequence[Segment]) -> EvolvingGraph:
    """Add segments, none of which is older than those before it; a single one may be older than the graph."""
    ids, times, codes, names = [graph.ids], [graph.times], [graph.codes], graph.class_names
    features: list[Features] = []
    ends: list[Ends] = []
    place = _place(len(graph), graph.features)
    for segment in segments:
        _check_types(segment)
        header = {"categories": 0, **_read_header(segment)}  # older segments have no categories
        if any(header[name] != value for name, value in place.items()):
            raise ValueError("a segment does not follow the one before it")
        if "times" in segment:
            ids.append(_unpack_ids(segment))
            times.append(segment["times"])
            names, rows = extend_names(names, _unpack_strings("classes", segment))
            codes.append(rows[segment["codes"]])
            part = _unpack_features(header["features"], segment)
            features.append(part)
            place["vertices"] += len(segment["times"])
            place["columns"] += len(part.words.columns) if part.words is not None else 0
            place["categories"] += len(part.categories.columns) if part.categories is not None else 0
        if "source" in segment:
            ends.append((segment["source"], segment["target"], segment.get("edge_times")))
    stacked = graph.features.stack(features) if features else graph.features
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
