"""Tasks, the history that they cover, and the decisions on their test vertices."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evergraph.analysis.description import first_task
from evergraph.errors import InputError
from evergraph.graph.classes import UNSEEN
from evergraph.graph.evolving import EvolvingGraph, Window
from evergraph.graph.ids import Ids

__all__ = [
    "AUTO_LEVEL",
    "Decisions",
    "History",
    "Mode",
    "Task",
    "choose_history",
    "extend_to_labels",
    "history_reason",
    "history_sizes",
    "resolve_history",
    "tasks",
    "tasks_before",
]

log = logging.getLogger(__name__)

Mode = Literal["transductive", "inductive"]
History = int | Literal["full", "auto"]

_LEVELS = (25, 50, 75, 100)
AUTO_LEVEL = 50
"""Percentage of the time differences that the history ``"auto"`` covers."""


@dataclass(frozen=True, eq=False)
class Task:
    """Predict the classes of one slice, after training on the periods before it.

    Training vertices are those of the history whose labels are released; test vertices are those of the slice.

    Parameters
    ----------
    graph
        The whole graph. A task uses its windows and the labels before its period, nothing else.
    time
        Period of the test vertices. It may be the one after the graph's last: then there are no test vertices, but the
        learner can train.
    history
        Number of periods before it to train on; None for all.
    mode
        ``"transductive"``: training sees the test vertices without their labels. ``"inductive"``: training sees only
        the graph before the period.
    label_rate
        Share of the vertices that ever release their label, above 0 and up to 1.
    seed
        Seed of the draw of these vertices. A vertex that releases its label at a low rate does so at every higher one.
    label_latency
        Number of periods by which labels arrive late: the labels of this many periods before the task are not released.
    reach_back
        If no label of the history is released, extend it back to the latest period before the task with a released
        label. By default the history stays as given; `tasks` reaches back.

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
    reach_back: bool = False
    label_latency: int = 0

    def __post_init__(self) -> None:
        if self.history is not None and self.history < 1:
            raise _bad_history(self.history)
        if self.mode not in ("transductive", "inductive"):
            raise InputError(f"there is no mode {self.mode!r}", fix="choose 'transductive' or 'inductive'")
        if not 0 < self.label_rate <= 1:
            raise InputError(f"the label rate is {self.label_rate}", fix="set it to a number above 0 and up to 1")
        if isinstance(self.label_latency, bool) or not isinstance(self.label_latency, int) or self.label_latency < 0:
            raise InputError(
                f"the label latency is {self.label_latency!r}", fix="set it to a number of periods from 0 up"
            )
        if not self.graph.first_time <= self.time <= self.graph.last_time + 1:
            label = self.graph.axis.label
            raise InputError(
                f"the graph has no vertices in period {label(self.time)}",
                fix=f"choose a period from {label(self.graph.first_time)} to {label(self.graph.last_time)}",
            )

    @cached_property
    def start(self) -> int:
        """First period of the history; earlier than given if the task reaches back."""
        if self.history is None:
            return self.graph.first_time
        start = self.time - self.history
        if not self.reach_back or (self.released[int(np.searchsorted(self.graph.times, start)) :] >= 0).any():
            return start
        labelled = np.flatnonzero(self.released >= 0)
        return int(self.graph.times[labelled[-1]]) if len(labelled) else start

    @property
    def periods(self) -> int | None:
        """Number of past periods that the task trains on, None for all: the history, or more if it reaches back."""
        return None if self.history is None else self.time - self.start

    @cached_property
    def window(self) -> Window:
        """The history and the slice."""
        return self.graph.window(min(self.start, self.time), self.time)

    @cached_property
    def training(self) -> Window:
        """What the model sees in training."""
        if self.mode == "transductive":
            return self.window
        rows = slice(self.window.rows.start, self._end)
        return Window(self.graph, self.window.first, self.time - 1, rows)

    @property
    def _end(self) -> int:
        """First row of the slice in the graph."""
        return int(np.searchsorted(self.graph.times, self.time))

    @cached_property
    def targets(self) -> NDArray[np.int32]:
        """Row of the class of each vertex of the training window; -1 without a label to train on."""
        targets = np.full(len(self.training), -1, np.int32)
        released = self.released[self.training.rows.start :]
        targets[: len(released)] = released
        return targets

    @cached_property
    def released(self) -> NDArray[np.int32]:
        """Row of the class of each vertex of the graph before the slice; -1 if its label is not released."""
        codes = np.array(self.graph.codes[: self._end])
        if self.label_rate < 1:
            # Draw from the first vertex on, so that the draws of older vertices stay the same when new ones arrive.
            draws = np.random.default_rng([self.seed, 0, 0, 2]).random(self._end)  # a stream of its own
            codes[draws >= self.label_rate] = -1
        if self.label_latency:
            codes[np.searchsorted(self.graph.times, self.time - self.label_latency) :] = -1
        return codes

    @property
    def test(self) -> slice:
        """Rows of the test vertices in the window."""
        return slice(self._end - self.window.rows.start, len(self.window))

    @property
    def test_window(self) -> Window:
        """The test vertices as a window."""
        start = self.window.rows.start
        return Window(self.graph, self.time, self.time, slice(start + self.test.start, start + self.test.stop))

    @property
    def test_ids(self) -> Ids:
        """Ids of the test vertices."""
        return self.window.ids[self.test]

    @property
    def truth(self) -> NDArray[np.object_]:
        """Class names of the test vertices; None without a label. For evaluation only."""
        return self.window.labels[self.test]

    @property
    def never_before(self) -> NDArray[np.bool_]:
        """Whether each test vertex has a class that no vertex of the graph had before. For evaluation only."""
        codes = self.window.codes[self.test]
        first = np.append(self.graph.classes.first, self.time - 1)  # the last entry is for -1, no label
        return first[codes] >= self.time

    @cached_property
    def level(self) -> int:
        """Percentage of the time differences before this period that the history covers: 25, 50, 75 or 100."""
        if self.history is None:
            return _LEVELS[-1]
        sizes = history_sizes(self.graph, self.time)
        return max((level for level, size in sizes.items() if size <= self.history), default=_LEVELS[0])


@dataclass(frozen=True, eq=False)
class Decisions:
    """A learner's decisions on the test vertices of a task.

    Parameters
    ----------
    ids
        Ids of the vertices.
    time
        Period of the task.
    best
        Name of each vertex's most likely known class.
    flagged
        Whether each vertex is flagged as unseen.
    score
        The detector's score: the higher, the more likely unseen. That of `AutoDetector` is the probability that the
        class is unseen; other scores are comparable within a task only.
    probability
        Probability of the most likely known class, provided that the class is known at all: it can be high for a
        flagged vertex. It counts the classes of older neighbours, if they are read; detectors do not.
    known
        Names of the classes that the learner knew.
    """

    ids: Ids
    time: int
    best: NDArray[np.object_]
    flagged: NDArray[np.bool_]
    score: NDArray[np.float64]
    probability: NDArray[np.float64]
    known: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.best)

    @property
    def classes(self) -> NDArray[np.object_]:
        """The decision for each vertex: the name of a known class, or `UNSEEN`."""
        return np.where(self.flagged, UNSEEN, self.best)

    def __repr__(self) -> str:
        return f"Decisions(vertices={len(self)}, unseen={int(self.flagged.sum())}, known classes={len(self.known)})"


def tasks(
    graph: EvolvingGraph,
    history: History = "auto",
    *,
    first: int | str | None = None,
    label_rate: float = 1.0,
    mode: Mode = "transductive",
    seed: int = 0,
    label_latency: int = 0,
) -> Iterator[Task]:
    """Yield the tasks of a graph, one for each period that has vertices.

    Parameters
    ----------
    graph
        A graph of at least two periods. A static split is a graph with the periods 0 (training) and 1 (test).
    history
        Number of periods before each task to train on, ``"full"`` for all, or ``"auto"`` (`choose_history`). A task
        without labels in these periods reaches back to the latest period before it that has some.
    first
        Period of the first task, after the graph's first period; by default that of `first_task`.
    label_rate, mode, seed, label_latency
        As in `Task`.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3, 4], "time": [1, 2, 3, 5]})
    >>> [(task.time, task.window.times.tolist()) for task in tasks(graph, history=2, first=3)]
    [(3, [1, 2, 3]), (5, [3, 5])]
    """
    start = first_task(graph) if first is None else graph.axis.period(first)
    if start is None:
        raise InputError("all vertices are of one period, so there is no past to train on", fix="give vertices times")
    if start > graph.last_time:
        raise InputError(
            f"the first task is {graph.axis.label(start)}, but the graph ends at {graph.axis.label(graph.last_time)}",
            fix="choose an earlier first task",
        )
    if start <= graph.first_time:
        first_time, last_time = graph.axis.label(graph.first_time), graph.axis.label(graph.last_time)
        raise InputError(
            f"the first task is {graph.axis.label(start)}, but the graph starts at {first_time}: there is nothing "
            "before it to train on",
            fix=f"choose a first task after {first_time}, up to {last_time}",
        )
    size = resolve_history(graph, start, history)
    for time in np.unique(graph.times[np.searchsorted(graph.times, start) :]).tolist():
        yield Task(graph, time, size, mode, label_rate, seed, reach_back=True, label_latency=label_latency)


def tasks_before(task: Task, number: int) -> list[Task]:
    """Return the last tasks before one, in periods with labels, that have labels to train on."""
    labelled = task.graph.times[: len(task.released)][task.released >= 0]
    times = np.unique(labelled).tolist()[1:]  # before the first there is nothing to train on
    found = [replace(task, time=time) for time in times[len(times) - min(number, len(times)) :]]
    return [past for past in found if (past.targets >= 0).any()]


def resolve_history(graph: EvolvingGraph, time: int, history: History) -> int | None:
    """Return the history as a number of periods, None for all."""
    if history == "full":
        return None
    if history == "auto":
        return choose_history(graph, time)
    if isinstance(history, bool) or not isinstance(history, (int, np.integer)) or not 0 < history < 2**31:
        raise _bad_history(history)
    return int(history)


def choose_history(graph: EvolvingGraph, before: int | str) -> int:
    """Return the number of periods that covers half of the time differences within two hops, before a period.

    It is larger if there would be no label in these periods: then it reaches back to the latest one with labels.
    Without edges before the period, it is all periods before it.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 3, 9]}, [[1, 2], [2, 3]])
    >>> choose_history(graph, before=9)
    2
    """
    time = graph.axis.period(before)
    sizes = history_sizes(graph, time)
    if not sizes:
        size = max(time - graph.first_time, 1)
        shown = (graph.axis.label(time), graph.axis.counted(size))
        log.info("The graph has no edges before %s to choose a history from: it is %s, all before it.", *shown)
        return size
    return extend_to_labels(graph, time, sizes[AUTO_LEVEL])


def history_reason(graph: EvolvingGraph, time: int, size: int) -> str:
    """Say why the history ``"auto"`` is this many periods before the first task, and what longer ones would cover."""
    sizes, label = history_sizes(graph, time), graph.axis.label(time)
    if not sizes:
        return f"History {size}: all periods before the first task ({label}), which has no edges before it."
    if size > sizes[AUTO_LEVEL]:
        return f"History {size}: the latest labels before the first task ({label}) are that far back."
    covered = f"half of the time differences within two hops before the first task ({label})"
    return f"History {size}: it covers {covered}; 75 % take {sizes[75]}, all {sizes[100]}."


def extend_to_labels(graph: EvolvingGraph, time: int, size: int) -> int:
    """Return a history that contains the latest labels before a period: the given one, or a longer one."""
    labelled = graph.times[graph.codes >= 0]
    latest = labelled[labelled < time][-1:].tolist()
    longer = max([size, *(time - found for found in latest)])
    if longer > size:
        log.info(
            "The history is %s instead of %s, to reach the latest labels before %s.",
            *(graph.axis.counted(longer), graph.axis.counted(size), graph.axis.label(time)),
        )
    return longer


def history_sizes(graph: EvolvingGraph, before: int) -> dict[int, int]:
    """Histories that cover 25, 50, 75 and 100 percent of the time differences before a period; none without edges."""
    from evergraph.analysis.time_differences import tdiff

    past = graph.up_to(before - 1)
    differences = tdiff(past, 2) if past.n_edges else None
    return differences.history_sizes(_LEVELS) if differences is not None and differences.pairs else {}


def _bad_history(history: object) -> InputError:
    return InputError(f"the history is {history!r}", fix="set it to a number of periods from 1 up, 'full' or 'auto'")
