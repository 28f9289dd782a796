"""Lifelong learning on evolving graphs.

Names are imported when first used, so that ``import evergraph`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from evergraph.classes import UNSEEN, ClassRegistry
    from evergraph.errors import EvergraphError, InputError
    from evergraph.graph import EvolvingGraph, Window

_HOME = {
    "UNSEEN": "evergraph.classes",
    "ClassRegistry": "evergraph.classes",
    "EvergraphError": "evergraph.errors",
    "InputError": "evergraph.errors",
    "EvolvingGraph": "evergraph.graph",
    "Window": "evergraph.graph",
}

__all__ = ["UNSEEN", "ClassRegistry", "EvergraphError", "EvolvingGraph", "InputError", "Window"]


def __getattr__(name: str) -> Any:
    if name in ("analysis", "datasets"):
        return import_module(f"evergraph.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'evergraph' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "analysis", "datasets"])
