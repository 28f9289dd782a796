"""Lifelong learning on evolving graphs.

Names are imported when first used, so that ``import evergraph`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from evergraph import analysis, datasets, detect, metrics, nn
    from evergraph.analysis import drift, first_task, profile, tdiff
    from evergraph.classes import UNSEEN, ClassRegistry
    from evergraph.datasets import load
    from evergraph.decisions import Decisions, evaluate
    from evergraph.errors import EvergraphError, InputError
    from evergraph.graph import EvolvingGraph, Window
    from evergraph.learner import LifelongLearner
    from evergraph.task import Task, tasks
    from evergraph.workspace import Workspace

_HOME = {
    "UNSEEN": "evergraph.classes",
    "ClassRegistry": "evergraph.classes",
    "Decisions": "evergraph.decisions",
    "EvergraphError": "evergraph.errors",
    "EvolvingGraph": "evergraph.graph",
    "InputError": "evergraph.errors",
    "LifelongLearner": "evergraph.learner",
    "Task": "evergraph.task",
    "Window": "evergraph.graph",
    "Workspace": "evergraph.workspace",
    "drift": "evergraph.analysis",
    "evaluate": "evergraph.decisions",
    "first_task": "evergraph.analysis",
    "load": "evergraph.datasets",
    "profile": "evergraph.analysis",
    "tasks": "evergraph.task",
    "tdiff": "evergraph.analysis",
}
_ROOMS = ("analysis", "datasets", "detect", "metrics", "nn")

__all__ = [
    "UNSEEN",
    "ClassRegistry",
    "Decisions",
    "EvergraphError",
    "EvolvingGraph",
    "InputError",
    "LifelongLearner",
    "Task",
    "Window",
    "Workspace",
    "analysis",
    "datasets",
    "detect",
    "drift",
    "evaluate",
    "first_task",
    "load",
    "metrics",
    "nn",
    "profile",
    "tasks",
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
