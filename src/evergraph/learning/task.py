"""Tasks: what a learner may see at a time, and what it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evergraph.analysis.description import first_task
from evergraph.errors import InputError
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.ids import Ids
from evergraph.graph.window import Window

__all__ = ["AUTO_LEVEL", "History", "Mode", "Task", "choose_history", "history_sizes", "resolve_history", "tasks"]

Mode = Literal["transductive", "inductive"]
History = int | Literal["full", "auto"]

_LEVELS = (25, 50, 75, 100)
AUTO_LEVEL = 50
"""Percentage of the time differences that the history ``"auto"`` covers."""


@dataclass(frozen=True, eq=False)
class Task:
    """The question at one time: of which classes its vertices are, given what was known before.

    Training vertices are those of the history whose labels are released; test vertices are those of the time itself.

    Parameters
    ----------
    graph
        The whole graph. Only what a task may show is used: its windows, and labels from before its time.
    time
        Time of the test vertices. It may be the one after the graph's last: there is nothing to decide yet, but all to
        learn from.
    history
        Number of times before it that are seen; None for all.
    mode
        ``"transductive"``: in training the test vertices are there, without their labels. ``"inductive"``: training
        sees only the graph before the time.
    label_rate
        Share of the vertices that ever release their label.
    seed
        Of the draw that decides which do. Each vertex has one number; it releases its label if that is below the rate.
        So what is released at a low rate is released at every higher one.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3, 4], "time": [1, 2, 3, 3], "label": ["x", "x", "x", "y"]})
    >>> task = Task(graph, time=3, history=1)
    >>> task.window.times.tolist(), task.targets.tolist(), task.truth.tolist(), task.never_before.tolist()
    ([2, 3, 3], [0, -1, -1], ['x', 'y'], [False, True])
    """

    graph: EvolvingGraph
    time: int
    history: int | None
    mode: Mode = "transductive"
    label_rate: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.history is not None and self.history < 1:
            raise InputError(f"the history is {self.history}", fix="give 1 or more times, 'full' or 'auto'")
        if self.mode not in ("transductive", "inductive"):
            raise InputError(f"there is no mode {self.mode!r}", fix="choose 'transductive' or 'inductive'")
        if not 0 < self.label_rate <= 1:
            raise InputError(f"the label rate is {self.label_rate}", fix="give a share above 0 and up to 1")
        if not self.graph.first_time <= self.time <= self.graph.last_time + 1:
            label = self.graph.axis.label
            raise InputError(
                f"the graph has no vertices at time {label(self.time)}",
                fix=f"choose a time from {label(self.graph.first_time)} to {label(self.graph.last_time)}",
            )

    @property
    def start(self) -> int:
        """First time that is seen."""
        return self.graph.first_time if self.history is None else self.time - self.history

    @cached_property
    def window(self) -> Window:
        """What is seen in prediction: the history and the time itself."""
        return self.graph.window(min(self.start, self.time), self.time)

    @cached_property
    def training(self) -> Window:
        """What is seen in training."""
        if self.mode == "transductive":
            return self.window
        rows = slice(self.window.rows.start, self._end)
        return Window(self.graph, self.window.first, self.time - 1, rows)

    @property
    def _end(self) -> int:
        """The first row of the time itself."""
        return int(np.searchsorted(self.graph.times, self.time))

    @cached_property
    def targets(self) -> NDArray[np.int32]:
        """For each vertex of the training window the row of its class; -1 where there is no label to learn from."""
        rows = self.training.rows
        targets = np.array(self.graph.codes[rows])
        targets[self._end - rows.start :] = -1
        if self.label_rate < 1:
            # All draws from the first vertex on: those of older vertices do not change when younger ones arrive.
            draws = np.random.default_rng([self.seed, 0, 0, 2]).random(self._end)  # a stream of its own
            targets[: self._end - rows.start][draws[rows.start :] >= self.label_rate] = -1
        return targets

    @property
    def test(self) -> slice:
        """The test vertices within the prediction window."""
        return slice(self._end - self.window.rows.start, len(self.window))

    @property
    def test_ids(self) -> Ids:
        """Ids of the test vertices."""
        return self.window.ids[self.test]

    @property
    def truth(self) -> NDArray[np.object_]:
        """Class names of the test vertices; None where there is no label. For scoring only."""
        return self.window.labels[self.test]

    @property
    def never_before(self) -> NDArray[np.bool_]:
        """Test vertices of a class that no vertex of the graph had before. For scoring only."""
        codes = self.window.codes[self.test]
        first = np.append(self.graph.classes.first, self.time - 1)  # the last place is for -1, no label
        return first[codes] >= self.time

    @cached_property
    def level(self) -> int:
        """Share of the time differences before this time that the history covers: 25, 50, 75 or 100 percent."""
        if self.history is None:
            return _LEVELS[-1]
        sizes = history_sizes(self.graph, self.time)
        return max((level for level, size in sizes.items() if size <= self.history), default=_LEVELS[0])


def tasks(
    graph: EvolvingGraph,
    history: History = "auto",
    *,
    first: int | str | None = None,
    label_rate: float = 1.0,
    mode: Mode = "transductive",
    seed: int = 0,
) -> Iterator[Task]:
    """The tasks of a graph, one for each time that has vertices.

    Parameters
    ----------
    graph
        A graph of at least two times. A static split is one with the times 0 (training) and 1 (test).
    history
        Number of times before each task that are seen, ``"full"`` for all, or ``"auto"``: see `choose_history`.
    first
        Time of the first task; unless given, the first with a quarter of the vertices before it.
    label_rate, mode, seed
        See `Task`.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3, 4], "time": [1, 2, 3, 5]})
    >>> [(task.time, task.window.times.tolist()) for task in tasks(graph, history=2, first=3)]
    [(3, [1, 2, 3]), (5, [3, 5])]
    """
    start = first_task(graph) if first is None else graph.axis.period(first)
    if start is None:
        raise InputError(
            "all vertices have one time, so there is nothing to learn from", fix="give vertices their times"
        )
    if start > graph.last_time:
        raise InputError(
            f"the first task would be at {graph.axis.label(start)}, but the graph ends at "
            f"{graph.axis.label(graph.last_time)}",
            fix="choose an earlier first task",
        )
    start = max(start, graph.first_time + 1)  # before the first time there is nothing to learn from
    size = resolve_history(graph, start, history)
    for time in np.unique(graph.times[np.searchsorted(graph.times, start) :]).tolist():
        yield Task(graph, time, size, mode, label_rate, seed)


def resolve_history(graph: EvolvingGraph, time: int, history: History) -> int | None:
    """Return the history as a number of times, None for all."""
    if history == "full":
        return None
    if history == "auto":
        return choose_history(graph, time)
    if isinstance(history, bool) or not isinstance(history, (int, np.integer)) or history < 1:
        raise InputError(f"the history is {history!r}", fix="give 1 or more times, 'full' or 'auto'")
    return int(history)


def choose_history(graph: EvolvingGraph, before: int | str) -> int:
    """The history that covers half of the time differences over two edges, in the graph before a time.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 3, 9]}, [[1, 2], [2, 3]])
    >>> choose_history(graph, before=9)
    2
    """
    sizes = history_sizes(graph, graph.axis.period(before))
    if not sizes:
        raise InputError(
            f"the graph has no edges before {graph.axis.label(graph.axis.period(before))} to choose a history from",
            fix="give a number of times as the history, or 'full'",
        )
    return sizes[AUTO_LEVEL]


def history_sizes(graph: EvolvingGraph, before: int) -> dict[int, int]:
    """The histories that cover 25, 50, 75 and 100 percent of the time differences before a time; none without edges."""
    from evergraph.analysis.tdiff import tdiff

    past = graph.up_to(before - 1)
    differences = tdiff(past, 2) if past.n_edges else None
    return differences.history_sizes(_LEVELS) if differences is not None and differences.pairs else {}
