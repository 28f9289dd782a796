"""A graph as named arrays, as a graph folder holds it, and what can be wrong with arrays that are read from disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.adjacency import Adjacency
from evergraph.graph.evolving import EvolvingGraph, Source
from evergraph.graph.features import Features, Numbers, SparseFeatures, Vectors, WordCounts
from evergraph.graph.ids import Ids, Strings
from evergraph.graph.texts import Texts
from evergraph.graph.times import MAX_SPAN, TimeAxis

Arrays = dict[str, NDArray[Any]]
Checks = dict[str, Callable[[], Any]]
"""Whether arrays are valid, by what is wrong otherwise."""

_TYPES: dict[str, tuple[type[np.generic], ...]] = {
    **dict.fromkeys(("times", "edge_times", "ids", "offsets", "starts", "vertices", "version", "texts"), (np.int64,)),
    **dict.fromkeys(
        ("codes", "indptr", "indices", "source", "target", "labels", "rows", "columns"), (np.int32, np.int64)
    ),
    **dict.fromkeys(("features", "vectors", "data"), (np.float32,)),
    **dict.fromkeys(("bytes", "header", "encoder"), (np.uint8,)),
}
"""The types of each array by the last part of its name; all but ``features`` and ``vectors`` have one dimension."""
_LARGEST_TIME = 2**31
_MOST_WORDS = 2**24  # how often a word occurs in a text
_WORDS: dict[str, type[SparseFeatures]] = {kind.kind: kind for kind in (SparseFeatures, WordCounts)}
Kind = Literal["none", "dense", "sparse", "words"]
"""What the arrays named ``features`` hold; "dense" are numbers without words."""


def to_arrays(graph: EvolvingGraph) -> Arrays:
    """Return all arrays of a graph by name."""
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
    arrays: Arrays, features: str, axis: TimeAxis, about: Mapping[str, str], source: Source | None = None
) -> EvolvingGraph:
    """Return the graph of these arrays; ``features`` is the `Kind` of those named ``features``."""
    check_types(arrays)
    graph = EvolvingGraph(
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
    if not len(graph) == len(graph.ids) == len(graph.codes) == len(graph.links.indptr) - 1 > 0:
        raise ValueError("the arrays have different numbers of vertices")
    return graph


def check_types(arrays: Arrays) -> None:
    """Refuse arrays of other types or dimensions than those of a graph."""
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
    checks: Checks = {
        "times do not ascend": lambda: (times[1:] >= times[:-1]).all(),
        "times are out of range": lambda: are_times(times),
        "classes are out of range": lambda: within(graph.codes, len(names), -1) and len(set(names)) == len(names),
        "edges are out of range": lambda: within(links.indices, n),
        "rows of edges are out of order": lambda: _is_pointer(links.indptr, n, len(links.indices)),
        "times of edges are out of range": lambda: (
            links.times is None or (len(links.times) == len(links.indices) and are_times(links.times))
        ),
        "ids are out of order or not text": lambda: not isinstance(graph.ids, Strings) or are_strings(graph.ids),
    }
    checks |= feature_checks(features, n)
    return first_problem(checks)


def first_problem(checks: Checks) -> str | None:
    """Return the first problem whose check fails, or None."""
    return next((problem for problem, is_valid in checks.items() if not is_valid()), None)


def feature_checks(features: Features, n: int, before: Mapping[str, int] | None = None) -> Checks:
    """Return checks of the features of ``n`` vertices; ``before`` are columns that other segments have named."""
    checks: Checks = {}
    for name, part in features.parts.items():
        if isinstance(part, SparseFeatures):
            checks |= _sparse_checks("features" if name == "words" else name, part, n, (before or {}).get(name, 0))
    if (numbers := features.numbers) is not None:
        checks["features are missing or infinite"] = lambda: (
            len(numbers) == n and numbers.width and not np.isinf(numbers.values).any()
        )
        checks["names of numbers are not text"] = lambda: (
            are_strings(numbers.columns) and len(set(numbers.columns)) == numbers.width
        )
    if (vectors := features.vectors) is not None:
        checks["vectors are missing or not finite"] = lambda: len(vectors) == n and np.isfinite(vectors.values).all()
    if (texts := features.texts) is not None:
        checks["texts are out of order"] = lambda: texts.is_valid(n)
    return checks


def _sparse_checks(name: str, part: SparseFeatures, rows: int, before: int) -> Checks:
    checks: Checks = {
        f"names of {name} are not text": lambda: are_strings(part.columns),
        f"{name} are out of range": lambda: within(part.indices, before + part.width),
        f"rows of {name} are out of order": lambda: _is_pointer(part.indptr, rows, len(part.indices)),
        f"{name} are missing or not finite": lambda: (
            len(part.data) == len(part.indices) and np.isfinite(part.data).all()
        ),
    }
    if isinstance(part, WordCounts):
        checks["words are counted wrongly"] = lambda: within(part.data, _MOST_WORDS)
    if name == "categories":
        checks["categories have no column"] = lambda: all("=" in column for column in part.columns)
    return checks


def within(indices: NDArray[Any], end: int, first: int = 0) -> bool:
    """Whether all numbers are from ``first`` to before ``end``."""
    return not len(indices) or bool(indices.min() >= first and indices.max() < end)


def _is_pointer(pointer: NDArray[Any], rows: int, end: int) -> bool:
    ascends = len(pointer) == rows + 1 and pointer[0] == 0 and pointer[-1] == end
    return bool(ascends and (pointer[1:] >= pointer[:-1]).all())


def are_times(times: NDArray[Any]) -> bool:
    """Whether all times are in the range that a graph may have."""
    low, high = int(times.min(initial=0)), int(times.max(initial=0))
    span = int(times.max()) - int(times.min()) if len(times) else 0
    return low >= -_LARGEST_TIME and high <= _LARGEST_TIME and span <= MAX_SPAN


def are_strings(strings: Strings) -> bool:
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


def pack_ids(ids: Ids) -> Arrays:
    """Return the arrays of ids."""
    return pack_strings("ids", ids) if isinstance(ids, Strings) else {"ids": ids}


def unpack_ids(arrays: Arrays) -> Ids:
    """Return the ids of arrays."""
    return arrays["ids"] if "ids" in arrays else unpack_strings("ids", arrays)


def pack_features(features: Features) -> Arrays:
    """Return the arrays of features; those of words and numbers are named as in graphs that have only one of them."""
    arrays: Arrays = {}
    for name, part in (("features", features.words), ("categories", features.categories)):
        if part is not None:
            start, stop = part.indptr[0], part.indptr[-1]
            arrays[f"{name}.indptr"] = part.indptr - start
            arrays[f"{name}.indices"], arrays[f"{name}.data"] = part.indices[start:stop], part.data[start:stop]
            arrays |= pack_strings(f"{name}.columns", part.columns)
    if features.numbers is not None:
        arrays["features"] = features.numbers.values
        if len(features.numbers.columns):
            arrays |= pack_strings("numbers.columns", features.numbers.columns)
    if features.vectors is not None:
        encoder = np.frombuffer(features.vectors.encoder.encode(), np.uint8)
        arrays |= {"vectors": features.vectors.values, "vectors.encoder": encoder}
    if (texts := features.texts) is not None:
        arrays |= {"texts.bytes": texts.data, "texts.offsets": texts.offsets, "texts.starts": texts.starts}
    return arrays


def unpack_features(kind: str, arrays: Arrays) -> Features:
    """Return the features of arrays; ``kind`` is the `Kind` of those named ``features``."""
    words = None if kind in ("none", "dense") else _unpack_sparse("features", arrays, _WORDS[kind])
    categories = _unpack_sparse("categories", arrays) if "categories.indptr" in arrays else None
    numbers = vectors = texts = None
    if kind == "dense" or "features" in arrays:
        values = arrays["features"]
        if not len(values):  # then its width may be anything
            raise ValueError("there are no rows of features")
        named = "numbers.columns.bytes" in arrays
        numbers = Numbers(values, unpack_strings("numbers.columns", arrays)) if named else Numbers.of(values)
    if "vectors" in arrays:
        vectors = Vectors(arrays["vectors"], arrays["vectors.encoder"].tobytes().decode())
    if "texts.bytes" in arrays:
        texts = Texts(arrays["texts.bytes"], arrays["texts.offsets"], arrays["texts.starts"])
    return Features(words, numbers, categories, vectors, texts)


def _unpack_sparse(name: str, arrays: Arrays, kind: type[SparseFeatures] = SparseFeatures) -> SparseFeatures:
    indptr, indices, data = (arrays[f"{name}.{part}"] for part in ("indptr", "indices", "data"))
    return kind(indptr, indices, data, unpack_strings(f"{name}.columns", arrays))


def pack_strings(name: str, strings: Strings) -> Arrays:
    """Return the arrays of a column of strings."""
    packed = strings.packed()
    return {f"{name}.bytes": packed.data, f"{name}.offsets": packed.offsets}


def unpack_strings(name: str, arrays: Arrays) -> Strings:
    """Return the column of strings of arrays."""
    return Strings(arrays[f"{name}.bytes"], arrays[f"{name}.offsets"])
