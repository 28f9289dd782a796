"""How a graph moves in time: one description (time differences, history sizes, drift, classes), and its figures."""

from evergraph.analysis.description import GraphDescription, describe, first_task
from evergraph.analysis.drift import Drift, drift
from evergraph.analysis.tdiff import TimeDifferences, tdiff

__all__ = ["Drift", "GraphDescription", "TimeDifferences", "describe", "drift", "first_task", "tdiff"]
