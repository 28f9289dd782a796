"""How good decisions were, once the truth is known."""

from __future__ import annotations

import numpy as np

from evergraph.errors import InputError
from evergraph.evaluation.metrics import TaskScores, score_task
from evergraph.learning.decisions import Decisions
from evergraph.learning.task import Task

__all__ = ["evaluate"]


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
