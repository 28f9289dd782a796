"""Classes of older neighbours: what the labels of the past say about the vertices of a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.compiled import compiled
from evergraph.graph.evolving import Window

if TYPE_CHECKING:
    from evergraph.learning.task import Task

__all__ = ["NeighbourClasses", "label_delay", "neighbour_classes"]

_BLOCK = 65_536  # vertices that are read at a time
_NO_TIMES = np.empty(0, np.int64)


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
    reader = NeighbourClasses(task, window.rows, columns, width)
    return reader.read(np.arange(window.rows.start, window.rows.stop))


class NeighbourClasses:
    """Reads what `neighbour_classes` returns for some vertices of a range, at a cost in proportion to their edges.

    Parameters
    ----------
    task, columns, width
        As in `neighbour_classes`.
    span
        The range of the graph's rows.
    """

    def __init__(self, task: Task, span: slice, columns: NDArray[np.integer], width: int) -> None:
        self.width = width
        self._span, self._links, self._times = span, task.graph.links.some(span), np.asarray(task.graph.times)
        self._released, self._columns = task.released, columns.astype(np.int32)
        self._time, self._delay = task.time, label_delay(task)

    def degree(self, rows: slice) -> float:
        """Return the mean number of neighbours of a range of the graph's rows."""
        first, last = (int(self._links.indptr[end - self._span.start]) for end in (rows.start, rows.stop))
        return (last - first) / max(rows.stop - rows.start, 1)

    def read(self, rows: NDArray[np.integer]) -> sparse.csr_array:
        """Return the shares of some vertices, given by their rows in the graph."""
        links = self._links
        times = _NO_TIMES if links.times is None else links.times
        counts = np.zeros(len(rows) + 1, np.int64)
        parts: list[tuple[NDArray[np.int32], NDArray[np.float32]]] = []
        for start in range(0, len(rows), _BLOCK):
            some = rows[start : start + _BLOCK]
            own = some - self._span.start
            most = int((links.indptr[own + 1] - links.indptr[own]).astype(np.int64).sum())
            found, shares = np.empty(most, np.int32), np.empty(most, np.float32)
            arrays = (self._span.start, links.indptr, links.indices, times, self._times, self._released, self._columns)
            limits = (self._time, self._delay, self.width)
            total = _shares(some, *arrays, *limits, counts[start + 1 : start + 1 + len(some)], found, shares)
            parts.append((found[:total].copy(), shares[:total].copy()))
        indptr = np.cumsum(counts)
        indices = np.concatenate([np.empty(0, np.int32), *(part[0] for part in parts)])
        data = np.concatenate([np.empty(0, np.float32), *(part[1] for part in parts)])
        return sparse.csr_array((data, indices, indptr), shape=(len(rows), self.width))


@compiled
def _shares(
    rows: NDArray[np.integer],
    offset: int,
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    link_times: NDArray[np.int64],
    times: NDArray[np.int64],
    released: NDArray[np.int32],
    columns: NDArray[np.int32],
    time: int,
    delay: int,
    width: int,
    counts: NDArray[np.int64],
    found: NDArray[np.int32],
    shares: NDArray[np.float32],
) -> int:
    """Write the classes of each row, ascending, with their shares; return how many were written."""
    place = np.full(width, -1, np.int64)
    end = 0
    for number in range(len(rows)):
        row = rows[number]
        own = times[row]
        before = own - delay if own < time else own
        first, total = end, 0
        for entry in range(indptr[row - offset], indptr[row - offset + 1]):
            near = indices[entry]
            if near >= len(released) or times[near] >= before:  # neighbours ascend, and so do times
                break
            column = columns[released[near]] if released[near] >= 0 else -1
            if column < 0 or (len(link_times) and link_times[entry] > own):
                continue
            total += 1
            if place[column] < first:
                place[column] = end
                found[end] = column
                shares[end] = 0
                end += 1
            shares[place[column]] += 1
        one = np.float32(1) / np.float32(max(total, 1))
        for entry in range(first, end):
            # The sum of equal numbers, not their product, because sums of shares are what was always computed here.
            value = np.float32(0)
            for _ in range(int(shares[entry])):
                value += one
            shares[entry] = value
        for entry in range(first + 1, end):  # few classes: sort by insertion
            column, value, at = found[entry], shares[entry], entry
            while at > first and found[at - 1] > column:
                found[at], shares[at] = found[at - 1], shares[at - 1]
                at -= 1
            found[at], shares[at] = column, value
        counts[number] = end - first
    return end


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
    starts = np.flatnonzero(np.diff(times, prepend=times[0] - 1))
    periods = times[starts]
    shares = np.add.reduceat(labelled, starts, dtype=np.int64) / np.diff(np.append(starts, len(times)))
    enough = periods[shares >= labelled.mean() / 10]
    return int(periods[-1] - enough[-1])
