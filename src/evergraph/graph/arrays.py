"""A graph as named arrays, and back: what the folder on disk holds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.adjacency import Adjacency
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import DenseFeatures, Features, SparseFeatures, WordCounts, kind_of
from evergraph.graph.ids import Ids, Strings
from evergraph.graph.times import TimeAxis

if TYPE_CHECKING:
    from evergraph.graph.disk import SavedArrays

Arrays = dict[str, NDArray[Any]]

_SPARSE_KINDS: dict[str, type[SparseFeatures]] = {kind.kind: kind for kind in (SparseFeatures, WordCounts)}


def to_arrays(graph: EvolvingGraph) -> Arrays:
    """All arrays of a graph by name."""
    arrays: Arrays = {
        "times": graph.times,
        "codes": graph.codes,
        "indptr": graph.links.indptr,
        "indices": graph.links.indices,
        **pack_strings("classes", Strings.of(graph.class_names)),
        **pack_ids(graph.ids),
        **pack_features(graph.features),
    }
    return arrays if graph.links.times is None else {**arrays, "edge_times": graph.links.times}


def from_arrays(
    arrays: Arrays, features: str, axis: TimeAxis, about: Mapping[str, str], source: SavedArrays | None = None
) -> EvolvingGraph:
    """The graph of these arrays, whose features are of this kind."""
    return EvolvingGraph(
        unpack_ids(arrays),
        arrays["times"],
        arrays["codes"],
        tuple(unpack_strings("classes", arrays)),
        Adjacency(arrays["indptr"], arrays["indices"], arrays.get("edge_times")),
        unpack_features(features, arrays),
        axis,
        about,
        source,
    )


def find_damage(graph: EvolvingGraph) -> str | None:
    """What is wrong with the arrays of a graph, were they written by something else or damaged; None if all is well.

    Opening a graph does not look at this; whoever follows the arrays with compiled code must, for it does not notice
    when they lead out of bounds.
    """
    features, indices, n = graph.features, graph.links.indices, len(graph)
    checks = {
        "times do not ascend": (graph.times[1:] >= graph.times[:-1]).all(),
        "classes are out of range": graph.codes.min() >= -1 and graph.codes.max() < len(graph.class_names),
        "edges are out of range": not len(indices) or (indices.min() >= 0 and indices.max() < n),
        "rows of edges are out of order": _is_pointer(graph.links.indptr, len(indices)),
    }
    if isinstance(features, SparseFeatures):
        entries = features.indices
        checks["features are out of range"] = not len(entries) or (
            entries.min() >= 0 and entries.max() < features.width
        )
        checks["rows of features are out of order"] = _is_pointer(features.indptr, len(entries))
    if isinstance(graph.ids, Strings):
        checks["ids are out of order"] = _is_pointer(graph.ids.offsets, len(graph.ids.data))
    return next((problem for problem, well in checks.items() if not well), None)


def fingerprint(graph: EvolvingGraph) -> str:
    """SHA-256 over all that a run can see of a graph: vertices, times, classes, edges and features.

    What is said about the graph, as its name or source, has no part in it.

    Examples
    --------
    >>> one = EvolvingGraph.build({"id": [1, 2], "time": [1, 2]}, about={"name": "one"})
    >>> two = EvolvingGraph.build({"id": [1, 2], "time": [1, 2]}, about={"name": "two"})
    >>> three = EvolvingGraph.build({"id": [1, 2], "time": [1, 3]})
    >>> fingerprint(one) == fingerprint(two), fingerprint(one) == fingerprint(three)
    (True, False)
    """
    found = hashlib.sha256(f"{graph.axis.unit} {graph.axis.step} {kind_of(graph.features)}".encode())
    for name, array in sorted(to_arrays(graph).items()):
        # Little-endian: the numbers count, not how a machine keeps them.
        plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        found.update(f"\n{name} {plain.dtype.str} {plain.shape}\n".encode())
        found.update(plain.data if plain.size else b"")
    return found.hexdigest()


def _is_pointer(pointer: NDArray[Any], end: int) -> bool:
    return bool(pointer[0] == 0 and pointer[-1] == end and (pointer[1:] >= pointer[:-1]).all())


def pack_ids(ids: Ids) -> Arrays:
    """Ids as arrays."""
    return pack_strings("ids", ids) if isinstance(ids, Strings) else {"ids": ids}


def unpack_ids(arrays: Arrays) -> Ids:
    """Ids from arrays."""
    return arrays["ids"] if "ids" in arrays else unpack_strings("ids", arrays)


def pack_features(features: Features | None) -> Arrays:
    """Features as arrays."""
    if features is None:
        return {}
    if isinstance(features, DenseFeatures):
        return {"features": features.values}
    start, stop = features.indptr[0], features.indptr[-1]
    return {
        "features.indptr": features.indptr - start,
        "features.indices": features.indices[start:stop],
        "features.data": features.data[start:stop],
        **pack_strings("features.columns", features.columns),
    }


def unpack_features(kind: str, arrays: Arrays) -> Features | None:
    """Features of a kind from arrays."""
    if kind == "none":
        return None
    if kind == DenseFeatures.kind:
        return DenseFeatures(arrays["features"])
    return _SPARSE_KINDS[kind](
        arrays["features.indptr"],
        arrays["features.indices"],
        arrays["features.data"],
        unpack_strings("features.columns", arrays),
    )


def pack_strings(name: str, strings: Strings) -> Arrays:
    """A column of strings as two arrays."""
    packed = strings.packed()
    return {f"{name}.bytes": packed.data, f"{name}.offsets": packed.offsets}


def unpack_strings(name: str, arrays: Arrays) -> Strings:
    """A column of strings from two arrays."""
    return Strings(arrays[f"{name}.bytes"], arrays[f"{name}.offsets"])
