"""Lifelong learning on evolving graphs. Names are imported on first use, so ``import evergraph`` is fast."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# After an operation, OpenMP's threads wait actively for the next one, which takes a core from the compiled kernels.
# This setting makes them sleep. It is read when torch is loaded, so it has to be set before any module imports torch.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

__version__ = "0.1.0"

if TYPE_CHECKING:
    from evergraph import analysis, datasets, detect, nn
    from evergraph.analysis import describe, drift, first_task, tdiff
    from evergraph.client import Client
    from evergraph.datasets import load
    from evergraph.errors import EvergraphError, InputError
    from evergraph.evaluation import metrics
    from evergraph.evaluation.metrics import evaluate
    from evergraph.graph import EvolvingGraph, Window
    from evergraph.graph.classes import UNSEEN, ClassRegistry
    from evergraph.learning.learner import LifelongLearner
    from evergraph.learning.task import Decisions, Task, tasks
    from evergraph.workspace import Workspace

_HOME = {
    "UNSEEN": "evergraph.graph.classes",
    "ClassRegistry": "evergraph.graph.classes",
    "Client": "evergraph.client",
    "Decisions": "evergraph.learning.task",
    "EvergraphError": "evergraph.errors",
    "EvolvingGraph": "evergraph.graph",
    "InputError": "evergraph.errors",
    "LifelongLearner": "evergraph.learning.learner",
    "Task": "evergraph.learning.task",
    "Window": "evergraph.graph",
    "Workspace": "evergraph.workspace",
    "describe": "evergraph.analysis",
    "drift": "evergraph.analysis",
    "evaluate": "evergraph.evaluation.metrics",
    "first_task": "evergraph.analysis",
    "load": "evergraph.datasets",
    "tasks": "evergraph.learning.task",
    "tdiff": "evergraph.analysis",
}
_PACKAGES = ("analysis", "datasets", "detect", "nn")

__all__ = [
    "UNSEEN",
    "ClassRegistry",
    "Client",
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
    "describe",
    "detect",
    "drift",
    "evaluate",
    "first_task",
    "load",
    "metrics",
    "nn",
    "tasks",
    "tdiff",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"evergraph.{name}")
    if name == "metrics":
        return import_module("evergraph.evaluation.metrics")
    if name not in _HOME:
        raise AttributeError(f"module 'evergraph' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
