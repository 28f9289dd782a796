"""Looking back before learning on: how the model in force did on the vertices whose labels have come since.

A model decides a slice; later the labels come, and it is about to learn from them. That is the moment to ask it again:
it says the same as then, and now one knows what was true. So no decision needs to be kept, and no future is seen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from evergraph.detect.base import UNLABELLED, Detector, State
from evergraph.graph.classes import columns_among
from evergraph.learning.task import Task

if TYPE_CHECKING:
    from evergraph.learning.learner import LifelongLearner

__all__ = ["looked_back"]


def looked_back(learner: LifelongLearner, task: Task) -> State:
    """State of a learner's detector before the learner adapts to a task.

    Parameters
    ----------
    learner
        As it stands, before it learns what the task has to teach.
    task
        The task to come. Slices are looked back at from the one that the learner was trained for up to the one before
        the task, as far as the task's history reaches.
    """
    detector = learner.detector
    state: State = learner.detector_state_
    if detector is None or type(detector).look_back is Detector.look_back:
        return state
    if learner.time_ is None:
        return _rehearsed(learner, task, detector.rehearsals)
    if detector.second is not None and learner.second_weights_ is None:
        return state  # the detector came later, and has nobody to ask yet
    columns = columns_among(learner.classes_, task.graph.class_names)
    for time in range(max(learner.time_, task.start), task.time):
        past = replace(task, time=time)
        first = past.window.rows.start + past.test.start - task.training.rows.start
        codes = task.targets[first : first + len(past.test_ids)]
        if (codes >= 0).any():
            targets = torch.from_numpy(np.where(codes >= 0, columns[codes], UNLABELLED)).to(learner.device)
            state = detector.look_back(learner.outputs(past), targets, state)
    return state


def _rehearsed(learner: LifelongLearner, task: Task, number: int) -> State:
    """What there is to look back at from the first task: another learner lives through so many times before it."""
    twin = type(learner)(**learner.get_params())
    labelled = task.graph.times[(task.graph.codes >= 0) & (task.graph.times < task.time)]
    times = np.unique(labelled).tolist()[1:]  # before the first there is nothing to learn from
    for past in (replace(task, time=time) for time in times[len(times) - min(number, len(times)) :]):
        if (past.targets >= 0).any():
            twin.time_ = past.time if twin.time_ is None else twin.time_  # it does not rehearse for its own first task
            twin.adapt(past)
    return {} if twin.weights_ is None else looked_back(twin, task)
