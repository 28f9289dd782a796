"""A graph's fingerprint: the same for the same graph, wherever it comes from."""

from __future__ import annotations

import hashlib

import numpy as np

from evergraph.graph.arrays import to_arrays
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import kind_of

__all__ = ["fingerprint"]


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
