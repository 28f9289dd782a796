"""The evolving graph, its windows, its words and its folder on disk.

Names are imported when first used, so that a module of this package costs no more than itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergraph.graph.evolving import EvolvingGraph
    from evergraph.graph.window import Window

__all__ = ["EvolvingGraph", "Window"]

_HOME = {"EvolvingGraph": "evergraph.graph.evolving", "Window": "evergraph.graph.window"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'evergraph.graph' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
