"""The evolving graph: windows, columns, features and the graph folder. Names are imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergraph.graph.evolving import EvolvingGraph, Window

__all__ = ["EvolvingGraph", "Window"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'evergraph.graph' has no attribute {name!r}")
    return getattr(import_module("evergraph.graph.evolving"), name)
