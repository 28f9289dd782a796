"""Accuracy by the age of the class: on classes that are new, on old ones, and on those that were not seen lately.

Ages are counted in periods back from the newest period whose labels are released, from 1 up. They depend on the graph
and on the released labels only, so that all learners are judged on the same vertices. A vertex whose class a learner
does not know, because its window is short or because it has retired the class, is decided wrongly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evergraph.evaluation.metrics import accuracy
from evergraph.graph.classes import ClassRegistry
from evergraph.learning.task import Decisions, Task

__all__ = ["ABSENT", "NEW", "OLD", "accuracy_by_age", "class_ages"]

NEW = 2
"""A class is new if its first label is at most this many periods old."""
OLD = 5
"""A class is old if its first label is more than this many periods old."""
ABSENT = 2
"""A class counts for forgetting if its last label is more than this many periods old."""


def class_ages(task: Task) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each class of the graph the ages of its first and its last released label; 0 without labels.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> graph = EvolvingGraph.build(
    ...     {"id": [1, 2, 3, 4], "time": [1, 3, 3, 4], "label": ["x", "x", "y", "z"]}
    ... )
    >>> [ages.tolist() for ages in class_ages(Task(graph, time=4, history=1))]
    [[3, 1, 0], [1, 1, 0]]
    """
    graph, released = task.graph, task.released
    seen = ClassRegistry.count(graph.class_names, released, graph.times[: len(released)])
    labelled = np.flatnonzero(released >= 0)
    newest = int(graph.times[labelled[-1]]) + 1 if len(labelled) else task.time
    first, last = (np.where(seen.support > 0, newest - times, 0) for times in (seen.first, seen.last))
    return first, last


def accuracy_by_age(task: Task, decisions: Decisions) -> dict[str, float]:
    """Return accuracies on test vertices by the age of their class, and the numbers of these vertices.

    ``accuracy_new``, ``accuracy_middle`` and ``accuracy_old`` are those on classes whose first label is up to 2, 3 to
    5, and more than 5 periods old. ``forgetting`` is the accuracy on classes without a label in the 2 newest periods
    that have labels: the higher, the less is forgotten. All are NaN without such vertices. ``vertices_new`` and so on
    are the numbers of vertices.
    """
    codes = task.window.codes[task.test]
    first, last = (np.append(ages, 0)[codes] for ages in class_ages(task))
    groups = {
        "accuracy_new": (first > 0) & (first <= NEW),
        "accuracy_middle": (first > NEW) & (first <= OLD),
        "accuracy_old": first > OLD,
        "forgetting": last > ABSENT,
    }
    truth, found = task.truth, dict[str, float]()
    for name, chosen in groups.items():
        found[name] = accuracy(truth[chosen], decisions.best[chosen])
        found[f"vertices_{name.removeprefix('accuracy_')}"] = int(chosen.sum())
    return found
