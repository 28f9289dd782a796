"""A slice decided, each decision with its reasons: the nearest known classes, and those of the neighbours."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.analysis.explain import in_words, neighbours_of
from evergraph.detect import Outputs, Softmax
from evergraph.graph import ids as id_columns
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.task import Task
from evergraph.workspace.coming import without_labels_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["best_classes", "decide"]

_NEAREST = 3
_NEVER = -1e4  # a logit that no class wins with, and that every detector can compute with


def decide(
    learner: LifelongLearner, graph: EvolvingGraph, time: int, history: int | None, model: int, retired: Collection[str]
) -> pa.Table:
    """Decide the vertices of a time that have no label.

    Returns
    -------
    A table with the columns ``id``, ``time``, ``class`` (a known class, or `UNSEEN`), ``score`` (how unseen; higher is
    more), ``probability`` and ``best`` (the most likely known class), ``model``, ``nearest`` and ``neighbours``.
    """
    import pyarrow as pa

    # As in learning: to a detector that looks at labels, those of retired classes are not there.
    task = Task(without_labels_of(graph, retired), time, history, mode="inductive")
    outputs = _without(learner, learner.outputs(task), retired)
    if learner.time_ is not None:
        learner.time_ = min(learner.time_, time)  # no word about labels it may have learnt: these vertices have none
    decisions = learner.predict(task, outputs=outputs)
    window = replace(task.window, graph=graph)
    chosen = np.flatnonzero(window.codes[task.test] < 0)
    rows = chosen + task.test.start
    part = replace(
        decisions,
        ids=id_columns.take(decisions.ids, chosen),
        best=decisions.best[chosen],
        rejected=decisions.rejected[chosen],
        score=decisions.score[chosen],
        probability=decisions.probability[chosen],
    )
    return pa.table(
        {
            "id": id_columns.to_arrow(part.ids),
            "time": [graph.axis.value(time)] * len(part),
            "class": part.classes.tolist(),
            "score": part.score,
            "probability": part.probability,
            "best": part.best.tolist(),
            "model": np.full(len(part), model),
            "nearest": _nearest(learner, outputs, chosen),
            "neighbours": [in_words(around) for around in neighbours_of(window, rows)],
        }
    )


def best_classes(
    learner: LifelongLearner, graph: EvolvingGraph, time: int, history: int | None, retired: Collection[str] = ()
) -> NDArray[np.object_]:
    """The most likely known class of each vertex of a time."""
    task = Task(graph, time, history, mode="inductive")
    columns = _without(learner, learner.outputs(task), retired).logits.argmax(1)
    return np.array(learner.classes_, object)[columns.cpu().numpy()]


def _without(learner: LifelongLearner, outputs: Outputs, retired: Collection[str]) -> Outputs:
    """Outputs under which no vertex is of a retired class."""
    columns = [row for row, name in enumerate(learner.classes_) if name in retired]
    if not columns or len(columns) == len(learner.classes_):
        return outputs
    masked = torch.zeros(len(learner.classes_), dtype=torch.bool, device=outputs.logits.device)
    masked[columns] = True
    second = None if outputs.second is None else outputs.second.masked_fill(masked, _NEVER)
    return replace(outputs, logits=outputs.logits.masked_fill(masked, _NEVER), second=second)


def _nearest(learner: LifelongLearner, outputs: Outputs, chosen: NDArray[np.int64]) -> list[str]:
    """The most likely known classes of some vertices with their probabilities, in words."""
    logits, detector = outputs.logits[chosen], learner.detector or Softmax()
    shares = detector.probabilities(logits).cpu().numpy()
    values = logits.cpu().numpy()
    order = np.argsort(-values, axis=1, kind="stable")
    found = []
    for row, columns in enumerate(order):
        named: dict[str, float] = {}
        for column in columns[values[row, columns] > _NEVER]:  # classes that were merged have several columns
            named.setdefault(learner.classes_[column], float(shares[row, column]))
            if len(named) == _NEAREST:
                break
        found.append(", ".join(f"{name} {share:.2f}" for name, share in named.items()))
    return found
