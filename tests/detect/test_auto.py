"""`AutoDetector` in a learner: classes that were labelled in the slice itself, and what it saves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from evergraph.datasets import synthetic
from evergraph.detect import AutoDetector, Outputs
from evergraph.inputs.slice_context import SliceContext
from evergraph.learning.task import Task

GRAPH = synthetic(vertices=400, times=6, classes=5, new_classes=2, words=90, words_per_vertex=5, seed=3)
TIME = 4
LABELLED = tuple(sorted({name for name in GRAPH.labels[GRAPH.times < TIME] if name is not None}))


def test_a_class_that_was_first_labelled_in_this_slice_is_not_unseen() -> None:
    task = Task(GRAPH, TIME, 1)
    count = len(task.test_ids)
    logits = torch.zeros(count, len(LABELLED) + 1)
    logits[: count // 2, -1] = 5.0  # predicted as the class of the review
    logits[count // 2 :, 0] = 1.0
    outputs = Outputs(logits, context=SliceContext(task, (*LABELLED, "found in review")))
    score, flagged = AutoDetector("budget:5").decide(outputs, {})
    assert score[: count // 2].max() < 1e-9
    assert not flagged[: count // 2].any()
    assert flagged.sum() == 5
    older = replace(outputs, context=SliceContext(task, (*LABELLED, LABELLED[0])))
    assert AutoDetector().decide(older, {}).score[: count // 2].min() > 1e-9


def test_the_stacked_logits_choose_the_class() -> None:
    task = Task(GRAPH, TIME, 1)
    logits = torch.zeros(len(task.test_ids), len(LABELLED) + 1)
    stacked = logits.clone()
    stacked[0, -1] = 9.0
    outputs = Outputs(
        logits + torch.eye(len(LABELLED) + 1)[0],
        context=SliceContext(task, (*LABELLED, "found in review")),
        stacked_logits=stacked + torch.eye(len(LABELLED) + 1)[0],
    )
    score = AutoDetector().decide(outputs, {}).score.numpy()
    assert score[0] < 1e-9 < score[1:].min()


def test_the_state_is_small_and_describes_the_past_only() -> None:
    task = Task(GRAPH, TIME, 1)
    outputs = Outputs(torch.zeros(len(task.test_ids), len(LABELLED)), context=SliceContext(task, LABELLED))
    targets = torch.from_numpy(np.array([LABELLED.index(name) if name in LABELLED else -1 for name in task.truth]))
    state = AutoDetector().observe(outputs, targets, {})
    assert all(name.startswith("past.") for name in state)
    assert sum(value.numel() for value in state.values()) < 10_000
