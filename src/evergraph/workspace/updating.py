"""Training a model of a workspace: the first one, and each that follows."""

from __future__ import annotations

import time as clock
from dataclasses import replace

from evergraph.errors import InputError
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.task import Task
from evergraph.learning.training import OnStep
from evergraph.workspace.backtest import Choice, choose_restart
from evergraph.workspace.change import Change, Outcome
from evergraph.workspace.coming import coming_task
from evergraph.workspace.keeping import keep_learner
from evergraph.workspace.state import ModelRecord, State
from evergraph.workspace.store import Transaction
from evergraph.workspace.words import counted

__all__ = ["remembered", "train", "update"]


def update(change: Change, restart: str, on_step: OnStep | None) -> Outcome:
    """See `Workspace.update`."""
    if restart not in ("auto", "warm", "cold"):
        raise InputError(f"there is no restart {restart!r}", fix="choose auto, warm or cold")
    state = change.state
    task = coming_task(change.graph, state.settings.history, state.retired)
    _refuse_nothing_new(state, task)
    learner = change.learner()
    if restart == "auto":
        choice = choose_restart(change, learner, task)
    else:
        choice = Choice("cold" if restart == "cold" else "warm", "as asked for")
    if choice.restart == "skip":
        facts = {"restart": "skip", "why": choice.why, "model": state.model.number, "new_classes": []}
        return change.commit(state, "update", f"left out, model {state.model.number} stays: {choice.why}", **facts)
    number = max(record.number for record in state.models) + 1
    learner.set_params(restart=choice.restart)
    record = train(
        change.transaction,
        learner,
        task,
        choice,
        on_step,
        number=number,
        version=change.version,
        before=state.model.number,
    )
    new = [name for name in record.classes if name not in state.model.classes]
    too_old = state.fresh_labels - state.fresh_since(task.start)
    models = (*state.models, remembered(record))
    parts = [
        f"model {number}, {choice.restart}: {choice.why}",
        f"{counted(len(record.classes), 'class', 'classes')} from {counted(record.train_vertices, 'label')}",
    ]
    parts += [f"new: {', '.join(new)}"] if new else []
    parts += [f"{counted(too_old, 'label')} not learnt: older than the history"] if too_old else []
    facts = {"restart": choice.restart, "why": choice.why, "model": number, "new_classes": new, "not_learnt": too_old}
    state = replace(state, model=record, models=models, fresh=(), stale=False)
    return change.commit(state, "update", *parts, **facts, seconds=record.seconds)


def _refuse_nothing_new(state: State, task: Task) -> None:
    if state.stale or state.fresh_since(task.start):
        return
    if not state.fresh:
        raise InputError(
            "no label has come since the model was trained, so there is nothing new to learn",
            fix="give labels first: evergraph ws label",
        )
    raise InputError(
        f"all labels that have come are older than the history, which begins with {task.graph.axis.label(task.start)}",
        fix="label newer vertices, or make a workspace with a longer history",
    )


def train(
    transaction: Transaction,
    learner: LifelongLearner,
    task: Task,
    choice: Choice,
    on_step: OnStep | None,
    *,
    number: int = 1,
    version: int = 1,
    before: int = 0,
) -> ModelRecord:
    """Train a learner for the coming slice, and keep it."""
    labels, label = int((task.targets >= 0).sum()), task.graph.axis.label
    if not labels:
        raise InputError(
            f"there is no label to learn from between {label(task.start)} and {label(task.time - 1)}",
            fix="give labels of these times, or make the workspace with a longer history",
        )
    if learner.time_ is not None and learner.time_ > task.time:
        learner.time_ = task.time  # the newest slices were taken back
    start = clock.perf_counter()
    learner.adapt(task, on_step)
    return ModelRecord(
        number=number,
        time=task.time,
        restart=choice.restart,
        why=choice.why,
        train_vertices=labels,
        classes=tuple(dict.fromkeys(learner.classes_)),  # those that were merged stand there twice
        seconds=round(clock.perf_counter() - start, 3),
        version=version,
        before=before,
        **keep_learner(transaction, learner),
    )


def remembered(record: ModelRecord) -> ModelRecord:
    """A record without its objects, which are kept only as long as a version has them."""
    return replace(record, learner="", tensors="")
