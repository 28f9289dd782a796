"""Warm, cold, or not at all: what the last update would have brought decides the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.task import Task
from evergraph.workspace.change import Change
from evergraph.workspace.coming import coming_task
from evergraph.workspace.deciding import best_classes

__all__ = ["LEAST", "Choice", "choose_restart"]

LEAST = 30
"""Labels of a slice below which it decides nothing."""


@dataclass(frozen=True)
class Choice:
    """How to update, and why, in words."""

    restart: Literal["warm", "cold", "skip"]
    why: str


def choose_restart(change: Change, learner: LifelongLearner, task: Task) -> Choice:
    """Choose by a back-test on the newest labelled slice that the model has not learnt from.

    Three models are asked for the classes of that slice: the one in force; the one it would be, had it been restarted
    the other way (this is trained, once, with the labels that there were then); and the one before it, which had not
    learnt what the last update brought. If updating would not have gained more than one standard error, it is left
    out, unless a class is new. Of the two restarts the warm one is taken unless the cold one was better by more than
    one standard error.

    Parameters
    ----------
    change
        The workspace.
    learner
        The model in force.
    task
        What the next model would learn from.
    """
    state, graph, restart = change.state, task.graph, change.state.model.restart
    slice_ = _newest_slice(graph, state.model.time)
    if slice_ is None:
        return Choice("warm", f"no slice since the last update has {LEAST} labels to choose by")
    before, alternative = change.learner_before(), change.learner_before()
    then = change.graph_at(state.model.version)
    if before is None or alternative is None or then is None:
        return Choice("warm", "there is no earlier model to compare with")
    time, chosen, truth = slice_
    other = "cold" if restart == "warm" else "warm"
    lesson = coming_task(then, state.settings.history, state.retired)
    if alternative.time_ is not None:
        alternative.time_ = min(alternative.time_, lesson.time)  # slices may have been taken back between the two
    alternative.set_params(restart=other).adapt(lesson)
    right: dict[str, NDArray[np.bool_]] = {}
    for arm, model in ((restart, learner), (other, alternative), ("skip", before)):
        best = best_classes(model, graph, time, state.settings.history, state.retired)
        right[arm] = best[chosen] == truth
    share = {arm: float(hits.mean()) for arm, hits in right.items()}
    seen = (
        f"on the {len(chosen):,} labels of {graph.axis.label(time)} a model that was updated before them was right in "
        f"{share['warm']:.1%} (warm) or {share['cold']:.1%} (cold), and one that was not in {share['skip']:.1%}"
    )
    best_arm = "cold" if share["cold"] > share["warm"] else "warm"
    gained = share[best_arm] - share["skip"] > _error(right[best_arm], right["skip"])
    if not gained and not _new_classes(task, learner) and not state.stale:
        return Choice("skip", f"{seen}: no gain beyond chance")
    if share["cold"] - share["warm"] > _error(right["cold"], right["warm"]):
        return Choice("cold", seen)
    return Choice("warm", seen)


def _new_classes(task: Task, learner: LifelongLearner) -> set[str]:
    """The classes that an update would learn: labels that have left the history teach none."""
    found = np.unique(task.targets[task.targets >= 0])
    return set(task.graph.names_of(found).tolist()) - set(learner.classes_)


def _newest_slice(graph: EvolvingGraph, since: int) -> tuple[int, NDArray[np.int64], NDArray[np.object_]] | None:
    """The newest time from one on with enough labels, its labelled vertices within it, and their classes."""
    for time in np.unique(graph.times[graph.times >= since])[::-1].tolist():
        codes = graph.codes[slice(*np.searchsorted(graph.times, [time, time + 1]).tolist())]
        chosen = np.flatnonzero(codes >= 0)
        if len(chosen) >= LEAST:
            return time, chosen, graph.names_of(codes[chosen])
    return None


def _error(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """Standard error of the difference of two shares of the same vertices."""
    return float(np.std(one.astype(float) - other.astype(float)) / np.sqrt(len(one)))
