"""How a graph changes over time: a description with time differences, history sizes, drift and classes, and figures.

Names are imported on first use: the time differences need numba, which takes a while to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergraph.analysis.description import Drift, GraphDescription, describe, drift, first_task
    from evergraph.analysis.time_differences import TimeDifferences, tdiff

__all__ = ["Drift", "GraphDescription", "TimeDifferences", "describe", "drift", "first_task", "tdiff"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'evergraph.analysis' has no attribute {name!r}")
    home = "time_differences" if name in ("TimeDifferences", "tdiff") else "description"
    return getattr(import_module(f"evergraph.analysis.{home}"), name)
