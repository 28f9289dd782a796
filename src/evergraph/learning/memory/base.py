"""The contract of memory policies: choose which labelled vertices older than the window stay in training.

A policy sees the vertices that were kept so far and those that have left the window since, never the whole past. What
is kept are ids; labels, features and edges are read from the graph when they are needed, so a corrected label is
corrected here, too.

Of the edges of a kept vertex, those to kept vertices and to vertices of the window stay.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.detect.base import set_number
from evergraph.errors import InputError
from evergraph.graph import ids as id_columns
from evergraph.graph.ids import Ids
from evergraph.names import build
from evergraph.nn.sampling import Edges

if TYPE_CHECKING:
    from evergraph.learning.task import Task

__all__ = ["Candidates", "Kept", "MemoryPolicy", "as_memory", "quotas", "remember"]

Rows = NDArray[np.int64]
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]*)?)%")


@dataclass(frozen=True, eq=False)
class Candidates:
    """Vertices that a policy chooses from.

    Parameters
    ----------
    task
        The task that is trained next.
    rows
        Their rows in the graph, ascending, so the oldest are first. All are older than the window and have a label.
    features_of
        Reads what the model reads of them.
    seed
        Seed of the learner.
    """

    task: Task
    rows: Rows
    features_of: Callable[[Rows], sparse.csr_array]
    seed: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """Number of each vertex's class, from 0 up in the order of the names."""
        names = np.array(self.task.graph.class_names, object)[self.task.released[self.rows]]
        return np.unique(names.astype(str), return_inverse=True)[1].astype(np.int64)

    @cached_property
    def features(self) -> sparse.csr_array:
        """What the model reads of each vertex, scaled to length 1."""
        found = self.features_of(self.rows)
        lengths = np.sqrt(np.asarray(found.multiply(found).sum(1)).ravel())
        return sparse.csr_array(sparse.diags_array(1 / np.where(lengths > 0, lengths, 1)) @ found)

    @cached_property
    def edges(self) -> Edges:
        """The edges among these vertices, which are numbered first, and those of the window."""
        return Edges.beside(self.task.training, self.rows)

    @cached_property
    def draws(self) -> NDArray[np.float64]:
        """A random number for each vertex, the same in every task."""
        # From the first vertex on, so that those of older vertices stay the same when new ones arrive.
        rng = np.random.default_rng([self.seed, 0, 0, 3])  # a stream of its own
        return rng.random(int(self.rows[-1]) + 1)[self.rows] if len(self) else np.empty(0)

    def highest(self, scores: NDArray[np.floating], number: int) -> Rows:
        """Return the places of the vertices with the highest scores, ascending; of equal ones the newest."""
        return np.sort(np.lexsort((np.arange(len(self)), scores))[len(self) - number :])

    def highest_per_class(self, scores: NDArray[np.floating], number: int) -> Rows:
        """Return the places of the vertices with the highest scores of each class, about as many of each."""
        most = quotas(np.bincount(self.groups), number)
        order = np.lexsort((-np.arange(len(self)), -scores, self.groups))  # class by class, the best first
        ranks = np.arange(len(self)) - np.searchsorted(self.groups[order], self.groups[order])
        return np.sort(order[ranks < most[self.groups[order]]])


@dataclass(frozen=True)
class MemoryPolicy(ABC):
    """Base class of memory policies: frozen dataclasses of their settings.

    Parameters
    ----------
    budget
        Number of vertices that are kept; below 1, their share of the labelled vertices older than the window.
    """

    budget: float = 1_000

    def __post_init__(self) -> None:
        set_number(self, "budget", above=True, hint=", a number of vertices or, below 1, a share of the older ones")
        if self.budget >= 1:
            object.__setattr__(self, "budget", int(self.budget))

    @abstractmethod
    def choose(self, candidates: Candidates, number: int) -> Rows:
        """Return the places of ``number`` of the candidates, which are more, ascending."""


@dataclass(frozen=True, eq=False)
class Kept:
    """The vertices that a learner keeps.

    Parameters
    ----------
    ids
        Their ids.
    since
        First period whose vertices were in the latest window or come after it: they have not been candidates yet.
    """

    ids: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    since: int | None = None

    def rows(self, task: Task) -> Rows:
        """Return the rows of those older than a task's window that have a released label, ascending."""
        if not len(self.ids):
            return np.empty(0, np.int64)
        found = np.sort(id_columns.find(task.graph.ids, id_columns.to_arrow(self.ids)))
        found = found[(found >= 0) & (found < task.window.rows.start)]
        return found[task.released[found] >= 0]


def remember(
    policy: MemoryPolicy, kept: Kept, task: Task, features_of: Callable[[Rows], sparse.csr_array], seed: int
) -> Kept:
    """Return what is kept for a task: chosen from what was kept before and the vertices that left the window since."""
    start, times = task.window.rows.start, task.graph.times
    first = 0 if kept.since is None else int(np.searchsorted(times, kept.since))
    left = np.arange(min(first, start), start)
    left = left[task.released[left] >= 0]
    rows = np.union1d(kept.rows(task), left)
    older = int(np.count_nonzero(task.released[:start] >= 0)) if policy.budget < 1 else 0
    number = int(policy.budget if policy.budget >= 1 else policy.budget * older)
    if len(rows) > number:
        rows = rows[policy.choose(Candidates(task, rows, features_of, seed), number)] if number else rows[:0]
    return Kept(id_columns.take(task.graph.ids, rows), task.window.first)


def as_memory(value: MemoryPolicy | str | None) -> MemoryPolicy | None:
    """Return the policy with a name and budget, which may be a percentage; None for ``"none"``.

    Examples
    --------
    >>> as_memory("random:2000"), as_memory("class-mean:10%"), as_memory("none")
    (Random(budget=2000), ClassMean(budget=0.1), None)
    """
    if value is None or value == "none":
        return None
    if isinstance(value, str) and (share := _PERCENT.search(value)):
        if not 0 < float(share[1]) < 100:
            raise InputError(f"the budget is {share[0]}", fix="set it above 0 % and below 100 %")
        value = value.replace(share[0], str(float(share[1]) / 100))
    found = build("memory", value) if isinstance(value, str) else value
    if not isinstance(found, MemoryPolicy):
        raise InputError(
            f"the argument memory is {value!r}",
            fix='pass a policy of evergraph.learning.memory, or its name, as in "random:2000"',
        )
    return found


def quotas(counts: NDArray[np.integer], total: int) -> NDArray[np.int64]:
    """Share a total among groups as equally as their sizes allow; the first groups get what is left.

    Examples
    --------
    >>> quotas(np.array([1, 10, 10]), 8).tolist()
    [1, 4, 3]
    """
    found = np.zeros(len(counts), np.int64)
    left = min(total, int(np.sum(counts)))
    while left:
        open_ = np.flatnonzero(found < counts)
        each = max(left // len(open_), 1)
        for group in open_[:left] if each == 1 else open_:
            added = min(each, int(counts[group] - found[group]), left)
            found[group] += added
            left -= added
    return found
