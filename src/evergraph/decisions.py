"""What a learner decides, and how good that was once the truth is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evergraph.classes import UNSEEN
from evergraph.errors import InputError
from evergraph.graph.ids import Ids
from evergraph.metrics import TaskScores, score_task
from evergraph.task import Task

__all__ = ["Decisions", "evaluate"]


@dataclass(frozen=True, eq=False)
class Decisions:
    """A learner's word on each test vertex of a task.

    Parameters
    ----------
    ids
        Ids of the vertices.
    time
        Time of the task.
    best
        Name of the most likely known class.
    rejected
        Whether the vertex is held to be of a class never seen before.
    score
        How unseen it looks: higher is more. Comparable within a task only.
    probability
        Of the most likely known class.
    known
        Names of the classes that the learner knew.
    """

    ids: Ids
    time: int
    best: NDArray[np.object_]
    rejected: NDArray[np.bool_]
    score: NDArray[np.float64]
    probability: NDArray[np.float64]
    known: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.best)

    @property
    def classes(self) -> NDArray[np.object_]:
        """The decision: the name of a known class, or `UNSEEN`."""
        return np.where(self.rejected, UNSEEN, self.best)

    def __repr__(self) -> str:
        return f"Decisions(vertices={len(self)}, unseen={int(self.rejected.sum())}, known classes={len(self.known)})"


def evaluate(task: Task, decisions: Decisions) -> TaskScores:
    """Score decisions against the truth; vertices without a label are left out.

    Two truths are told apart. A class is *unseen by the learner* if it was never among the labels it learnt from,
    which depends on its history and on which labels were released. It is *never before in the graph* if no vertex had
    it at an earlier time.
    """
    truth = task.truth
    if decisions.time != task.time or len(truth) != len(decisions):
        raise InputError(
            f"the decisions are of {len(decisions):,} vertices at {task.graph.axis.label(decisions.time)}, the task is "
            f"of {len(truth):,} at {task.graph.axis.label(task.time)}",
            fix="score decisions with the task that they answer",
        )
    labelled = np.array([name is not None for name in truth], bool)
    truth = truth[labelled]
    known = set(decisions.known)
    return score_task(
        truth,
        decisions.best[labelled],
        decisions.classes[labelled],
        decisions.score[labelled],
        np.array([name not in known for name in truth], bool),
        task.never_before[labelled],
    )
