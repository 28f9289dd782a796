"""Warm, cold, or not at all: what the last update would have brought decides the next one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.evolving import EvolvingGraph
from evergraph.learner import LifelongLearner
from evergraph.task import Task
from evergraph.workspace.deciding import best_classes

__all__ = ["LEAST", "Choice", "choose_restart"]

LEAST = 30
"""Labels of a slice below which it decides nothing."""


@dataclass(frozen=True)
class Choice:
    """How to update, and why, in words."""

    restart: Literal["warm", "cold", "skip"]
    why: str


def choose_restart(
    graph: EvolvingGraph,
    learner: LifelongLearner,
    restart: str,
    previous: Callable[[], LifelongLearner | None],
    history: int | None,
    retired: Collection[str] = (),
) -> Choice:
    """Choose by a back-test on the newest labelled slice that the model has not learnt from.

    Three models are asked for the classes of that slice: the one in force; the one it would be, had it been restarted
    the other way (this is trained, once); and the one before it, which had not learnt what the last update brought.
    If updating would not have gained more than one standard error, it is left out, unless a class is new. Of the two
    restarts the warm one is taken unless the cold one was better by more than one standard error.

    Parameters
    ----------
    graph
        With the labels that have come.
    learner, restart
        The model in force, and how it was restarted.
    previous
        Reads the model before it from disk, a new copy each time; None where that is not kept.
    history, retired
        As they are for deciding.
    """
    fresh = _in_sight(graph, history) - set(learner.classes_)
    slice_ = _newest_slice(graph, learner.time_ or graph.first_time)
    if slice_ is None:
        return Choice("warm", f"no slice since the last update has {LEAST} labels to choose by")
    before, alternative = previous(), previous()
    if before is None or alternative is None or learner.time_ is None:
        return Choice("warm", "there is no earlier model to compare with")
    time, chosen, truth = slice_
    other = "cold" if restart == "warm" else "warm"
    if alternative.time_ is not None:
        alternative.time_ = min(alternative.time_, learner.time_)  # slices may have been taken back between the two
    alternative.set_params(restart=other).adapt(Task(graph, learner.time_, history, mode="inductive"))
    right: dict[str, NDArray[np.bool_]] = {}
    for arm, model in ((restart, learner), (other, alternative), ("skip", before)):
        right[arm] = best_classes(model, graph, time, history, retired)[chosen] == truth
    share = {arm: float(hits.mean()) for arm, hits in right.items()}
    seen = (
        f"on the {len(chosen):,} labels of {graph.axis.label(time)} a model that was updated before them was right in "
        f"{share['warm']:.1%} (warm) or {share['cold']:.1%} (cold), and one that was not in {share['skip']:.1%}"
    )
    best = "cold" if share["cold"] > share["warm"] else "warm"
    if not fresh and share[best] - share["skip"] <= _error(right[best], right["skip"]):
        return Choice("skip", f"{seen}: no gain beyond chance")
    if share["cold"] - share["warm"] > _error(right["cold"], right["warm"]):
        return Choice("cold", seen)
    return Choice("warm", seen)


def _in_sight(graph: EvolvingGraph, history: int | None) -> set[str]:
    """The classes that an update would learn from: labels that have left the history teach no new class."""
    labelled = np.flatnonzero(graph.codes >= 0)
    times = graph.times[labelled]
    if history is not None and len(times):
        newest = graph.last_time if times[-1] == graph.last_time else graph.last_time - 1
        labelled = labelled[times > newest - history]
    return set(graph.names_of(np.unique(graph.codes[labelled])).tolist())


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
