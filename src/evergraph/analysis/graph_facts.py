"""What a report tells of a graph, as plain values: its size, its classes over time, drift and time differences."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from evergraph.analysis import drift, tdiff
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import kind_of

__all__ = ["graph_facts"]


def graph_facts(graph: EvolvingGraph, tasks: Iterable[int], name: str | None = None) -> dict[str, Any]:
    """Facts of a graph, fit for JSON; times are as its axis writes them.

    Parameters
    ----------
    graph
        The graph.
    tasks
        Times of the tasks, ascending. The time differences are those over two edges before the first of them, which
        are also those that a history is chosen by.
    name
        What the graph is called.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 4], "label": ["x", "x", "y"]}, [[1, 2], [2, 3]])
    >>> facts = graph_facts(graph, tasks=[4])
    >>> facts["classes"]
    [{'name': 'x', 'times': [1, 2], 'counts': [1, 1]}, {'name': 'y', 'times': [4], 'counts': [1]}]
    >>> facts["differences"]["counts"], facts["differences"]["history_sizes"]["50"]
    ([0, 1], 1)
    """
    value, tasks = graph.axis.value, list(tasks)
    times, at = np.unique(graph.times, return_index=True)
    moved = drift(graph)
    return {
        "name": name,
        "about": dict(graph.about),
        "vertices": len(graph),
        "edges": graph.n_edges,
        "features": kind_of(graph.features),
        "time_steps": graph.axis.steps,
        "times": [value(time) for time in times.tolist()],
        "vertices_at": np.diff(at, append=len(graph)).tolist(),
        "tasks": [value(time) for time in tasks],
        "classes": _classes(graph),
        "drift": [
            {"time": value(time), "consecutive": _or_none(step), "cumulative": _or_none(total)}
            for time, step, total in zip(
                moved.times.tolist(), moved.consecutive.tolist(), moved.cumulative.tolist(), strict=True
            )
        ],
        "differences": _differences(graph, tasks[0]),
    }


def _classes(graph: EvolvingGraph) -> list[dict[str, Any]]:
    """Each class with the times at which it has vertices, and how many."""
    labelled, span = graph.codes >= 0, graph.last_time - graph.first_time + 1
    # One sortable number a pair of class and time.
    pairs = graph.codes[labelled] * np.int64(span) + (graph.times[labelled] - graph.first_time)
    found_pairs, counts = np.unique(pairs, return_counts=True)
    codes, times = found_pairs // span, found_pairs % span + graph.first_time
    found = []
    for row, name in enumerate(graph.class_names):
        part = slice(*np.searchsorted(codes, [row, row + 1]).tolist())
        if part.start < part.stop:
            at = [graph.axis.value(time) for time in times[part].tolist()]
            found.append({"name": name, "times": at, "counts": counts[part].tolist()})
    return found


def _differences(graph: EvolvingGraph, before: int) -> dict[str, Any] | None:
    """The time differences before a time, as `evergraph.learning.task.history_sizes` sees them; None without any."""
    past = graph.up_to(before - 1)
    found = tdiff(past, 2) if past.n_edges else None
    if found is None or not found.pairs:
        return None
    counts = np.trim_zeros(found.counts, "b").tolist()
    sizes = {str(level): size for level, size in found.history_sizes().items()}
    return {"k": 2, "before": graph.axis.value(before), "counts": counts, "history_sizes": sizes}


def _or_none(number: float) -> float | None:
    return None if math.isnan(number) else number
