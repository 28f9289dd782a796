"""Graphs by their path: loaded once a process, with their fingerprint."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from evergraph.datasets import load
from evergraph.graph.arrays import fingerprint
from evergraph.graph.evolving import EvolvingGraph

__all__ = ["graph_of", "name_of"]


def name_of(graph: str) -> str:
    """The last part of a graph's path, also where the path is but dots.

    Examples
    --------
    >>> name_of("graphs/dblp-easy/"), name_of(".") == Path.cwd().name
    ('dblp-easy', True)
    """
    path = Path(graph)
    return (path.resolve() if path.name in ("", "..") else path).name


@lru_cache(maxsize=8)
def graph_of(path: str) -> tuple[EvolvingGraph, str]:
    """A graph and its fingerprint."""
    graph = load(path)
    return graph, fingerprint(graph)
