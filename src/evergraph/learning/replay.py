"""Replay of past slices: what a model said of vertices whose labels have come since, before it learns from them.

A model decides a slice; later its labels come, and the model is about to learn from them. At that moment it still gives
the same outputs as then, so no decision needs to be stored, and no future is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from evergraph.detect.base import UNLABELLED, FittedDetector, Outputs
from evergraph.graph.classes import columns_among
from evergraph.learning.task import Task

__all__ = ["observe_slices", "tasks_before"]


def observe_slices(
    fitted: FittedDetector, outputs: Callable[[Task], Outputs], classes: tuple[str, ...], since: int, task: Task
) -> FittedDetector:
    """Show a detector the labels that have come of slices since the last task.

    Parameters
    ----------
    fitted
        The detector in force.
    outputs
        Gives the outputs of the model in force for the test vertices of a task.
    classes
        Names of the classes that this model knows.
    since
        Time of the task that the model was trained for. Slices are replayed from there up to the one before ``task``,
        as far as its history reaches.
    task
        The task to come.
    """
    columns = columns_among(classes, task.graph.class_names)
    for time in range(max(since, task.start), task.time):
        past = replace(task, time=time)
        first = past.window.rows.start + past.test.start - task.training.rows.start
        codes = task.targets[first : first + len(past.test_ids)]
        if (codes >= 0).any():
            found = outputs(past)
            targets = torch.from_numpy(np.where(codes >= 0, columns[codes], UNLABELLED)).to(found.logits.device)
            fitted = fitted.observe(found, targets)
    return fitted


def tasks_before(task: Task, number: int) -> list[Task]:
    """The last tasks before one, at times with labels, that have something to learn from."""
    labelled = task.graph.times[(task.graph.codes >= 0) & (task.graph.times < task.time)]
    times = np.unique(labelled).tolist()[1:]  # before the first there is nothing to learn from
    found = [replace(task, time=time) for time in times[len(times) - min(number, len(times)) :]]
    return [past for past in found if (past.targets >= 0).any()]
