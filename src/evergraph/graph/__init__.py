"""The evolving graph, its windows, its words and its folder on disk."""

from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.window import Window

__all__ = ["EvolvingGraph", "Window"]
