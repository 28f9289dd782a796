"""Training a model of a workspace: the first one, and each that follows."""

from __future__ import annotations

import time as clock
from dataclasses import replace

import numpy as np

from evergraph.errors import InputError
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learner import LifelongLearner
from evergraph.task import Task
from evergraph.training import OnStep
from evergraph.workspace.backtest import Choice, choose_restart
from evergraph.workspace.change import Change, Outcome
from evergraph.workspace.keeping import keep_learner
from evergraph.workspace.naming import without_labels_of
from evergraph.workspace.state import ModelRecord
from evergraph.workspace.store import Transaction

__all__ = ["coming", "remembered", "train", "update"]


def update(change: Change, restart: str, on_step: OnStep | None) -> Outcome:
    """See `Workspace.update`."""
    if restart not in ("auto", "warm", "cold"):
        raise InputError(f"there is no restart {restart!r}", fix="choose auto, warm or cold")
    state, history = change.state, change.state.settings.history
    if not state.fresh_labels:
        raise InputError(
            "no label has come since the model was trained, so there is nothing new to learn",
            fix="give labels first: evergraph ws label",
        )
    graph = without_labels_of(change.graph, state.retired)
    learner = change.learner()
    if restart == "auto":
        choice = choose_restart(
            graph, learner, state.model.restart, change.learner_before, history, retired=state.retired
        )
    else:
        choice = Choice("cold" if restart == "cold" else "warm", "as asked for")
    if choice.restart == "skip":
        facts = {"restart": "skip", "why": choice.why, "model": state.model.number, "new_classes": []}
        return change.commit(state, "update", f"left out, model {state.model.number} stays: {choice.why}", **facts)
    number = max(record.number for record in state.models) + 1
    learner.set_params(restart=choice.restart)
    record = train(change.transaction, learner, graph, history, number, choice, on_step)
    new = [name for name in record.classes if name not in state.model.classes]
    state = replace(state, model=record, models=(*state.models, remembered(record)), fresh_labels=0)
    what = (
        f"model {number}, {choice.restart}: {choice.why}; {len(record.classes)} classes from "
        f"{record.train_vertices:,} labels"
    )
    what += f"; new: {', '.join(new)}" if new else ""
    facts = {"restart": choice.restart, "why": choice.why, "model": number, "new_classes": new}
    return change.commit(state, "update", what, **facts, seconds=record.seconds)


def coming(graph: EvolvingGraph) -> int:
    """The time that a model is trained for: the next one or, while the newest slice has no label, that slice's.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2], "time": [1, 2], "label": ["x", None]})
    >>> coming(graph), coming(graph.relabel([2], ["x"]))
    (2, 3)
    """
    newest = graph.codes[np.searchsorted(graph.times, graph.last_time) :]
    return graph.last_time + int((newest >= 0).any())


def train(
    transaction: Transaction,
    learner: LifelongLearner,
    graph: EvolvingGraph,
    history: int | None,
    number: int,
    choice: Choice,
    on_step: OnStep | None,
) -> ModelRecord:
    """Train a learner for the coming slice, and keep it."""
    task = Task(graph, coming(graph), history, mode="inductive")
    labels = int((task.targets >= 0).sum())
    if not labels:
        label = graph.axis.label
        raise InputError(
            f"there is no label to learn from between {label(task.start)} and {label(task.time - 1)}",
            fix="give labels of these times, or make the workspace with a longer history",
        )
    if learner.time_ is not None and learner.time_ > task.time:
        learner.time_ = task.time  # the newest slices were taken back
    start = clock.perf_counter()
    learner.adapt(task, on_step)
    seconds = round(clock.perf_counter() - start, 3)
    classes = tuple(dict.fromkeys(learner.classes_))  # those that were merged stand there twice
    kept = keep_learner(transaction, learner)
    return ModelRecord(number, task.time, choice.restart, choice.why, labels, classes, seconds, **kept)


def remembered(record: ModelRecord) -> ModelRecord:
    """A record without its objects, which are kept only as long as a version has them."""
    return replace(record, learner="", tensors="")
