"""Classes of older neighbours: what the labels of the past say about the vertices of a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.graph.evolving import Window

if TYPE_CHECKING:
    from evergraph.learning.task import Task

__all__ = ["label_delay", "neighbour_classes"]


def neighbour_classes(task: Task, window: Window, columns: NDArray[np.integer], width: int) -> sparse.csr_array:
    """Return the share of each class among the labelled older neighbours of each vertex of a window.

    A vertex reads the labels of neighbours from strictly earlier periods, anywhere in the past, if they are released by
    the task's time. If labels arrive late, a vertex of an earlier period than the task's reads only those that had
    arrived in its own period (`label_delay`), as the test vertices do now. An edge counts from the period in which it
    is visible. The rows of vertices without such neighbours are empty.

    Parameters
    ----------
    task
        The task, whose released labels are read.
    window
        Vertices up to the task's period.
    columns
        Column of each class of the graph; -1 for classes that are left out.
    width
        Number of columns.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> from evergraph.learning.task import Task
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3, 4], "time": [1, 1, 2, 3], "label": ["x", "y", "y", "y"]},
    ...                             [[1, 3], [2, 4], [3, 4], [1, 2]])
    >>> task = Task(graph, time=3, history=1)
    >>> neighbour_classes(task, task.window, np.array([0, 1, -1]), 2).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    graph, rows = task.graph, window.rows
    links, times = graph.links, graph.times
    start, stop = links.indptr[rows.start], links.indptr[rows.stop]
    near = links.indices[start:stop]
    row = np.repeat(np.arange(len(window), dtype=np.int32), np.diff(links.indptr[rows.start : rows.stop + 1]))
    own = times[rows.start + row]
    released = task.released
    codes = columns[np.append(released, np.int32(-1))[np.minimum(near, len(released))]]
    read = (codes >= 0) & (times[near] < own - np.where(own < task.time, label_delay(task), 0))
    if links.times is not None:
        read &= links.times[start:stop] <= own
    row, codes = row[read], codes[read]
    totals = np.bincount(row, minlength=len(window))
    counted = (1 / np.maximum(totals, 1)).astype(np.float32)[row]
    shares = sparse.csr_array((counted, (row, codes.astype(np.int32))), shape=(len(window), width))
    shares.sum_duplicates()
    return shares


def label_delay(task: Task) -> int:
    """Return by how many periods labels arrive late, judged by the labels that are released by the task's time.

    It is the number of newest periods with hardly any labels: a share of less than a tenth of that of the whole past.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> from evergraph.learning.task import Task
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3, 4], "time": [1, 2, 3, 4], "label": ["x", "y", None, None]})
    >>> [label_delay(Task(graph, time, history=1)) for time in (2, 3, 4)]
    [0, 0, 1]
    """
    labelled = task.released >= 0
    times = task.graph.times[: len(labelled)]
    if not labelled.any():
        return 0
    periods, starts = np.unique(times, return_index=True)
    shares = np.add.reduceat(labelled, starts, dtype=np.int64) / np.diff(np.append(starts, len(times)))
    enough = periods[shares >= labelled.mean() / 10]
    return int(periods[-1] - enough[-1])
