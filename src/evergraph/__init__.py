"""Lifelong learning on evolving graphs.

Names are imported when first used, so that ``import evergraph`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from evergraph import analysis, datasets
    from evergraph.analysis import drift, first_task, profile, tdiff
    from evergraph.classes import UNSEEN, ClassRegistry
    from evergraph.datasets import load
    from evergraph.errors import EvergraphError, InputError
    from evergraph.graph import EvolvingGraph, Window

_HOME = {
    "UNSEEN": "evergraph.classes",
    "ClassRegistry": "evergraph.classes",
    "EvergraphError": "evergraph.errors",
    "EvolvingGraph": "evergraph.graph",
    "InputError": "evergraph.errors",
    "Window": "evergraph.graph",
    "drift": "evergraph.analysis",
    "first_task": "evergraph.analysis",
    "load": "evergraph.datasets",
    "profile": "evergraph.analysis",
    "tdiff": "evergraph.analysis",
}
_ROOMS = ("analysis", "datasets")

__all__ = [
    "UNSEEN",
    "ClassRegistry",
    "EvergraphError",
    "EvolvingGraph",
    "InputError",
    "Window",
    "analysis",
    "datasets",
    "drift",
    "first_task",
    "load",
    "profile",
    "tdiff",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"evergraph.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'evergraph' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
