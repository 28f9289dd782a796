"""What the next model of a workspace learns from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.task import Task

__all__ = ["coming_task", "without_labels_of"]


def coming_task(graph: EvolvingGraph, history: int | None, retired: Sequence[str] = ()) -> Task:
    """What the next model learns from.

    Once the newest slice has all its labels, these are the history before the coming slice. As long as it has none,
    they are the history before it. While it has some, they are both: it, and the history before it.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 2], "label": ["x", None, None]})
    >>> sight = [coming_task(graph.relabel([2, 3], labels), 1) for labels in ([None, None], ["x", None], ["x", "x"])]
    >>> [(task.start, task.time - 1) for task in sight]
    [(1, 1), (1, 2), (2, 2)]
    """
    labelled = graph.codes[np.searchsorted(graph.times, graph.last_time) :] >= 0
    some = bool(labelled.any())
    longer = int(some and not labelled.all())
    sight = None if history is None else history + longer
    return Task(without_labels_of(graph, retired), graph.last_time + int(some), sight, mode="inductive")


def without_labels_of(graph: EvolvingGraph, retired: Collection[str]) -> EvolvingGraph:
    """A graph in which vertices of retired classes have no label: what a model learns from."""
    rows = [graph.classes.row(name) for name in retired if name in graph.classes]
    if not rows:
        return graph
    codes = np.where(np.isin(graph.codes, rows), np.int32(-1), graph.codes)
    codes.flags.writeable = False
    return replace(graph, codes=codes)
