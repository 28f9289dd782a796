"""Which words, categories and classes of older neighbours contribute most to a decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from evergraph.detect.base import Outputs
from evergraph.names import INPUTS
from evergraph.nn import Batch, MixedMatrix, SparseMatrix

if TYPE_CHECKING:
    from evergraph.learning.learner import LifelongLearner
    from evergraph.learning.task import Task

__all__ = ["Attribution", "explain"]


@dataclass(frozen=True)
class Attribution:
    """How much one input raises the logit of the predicted class above the mean of all classes.

    Parameters
    ----------
    block, name
        The input: a word, a category, or a class of older neighbours.
    own
        The part of the vertex itself.
    neighbours
        The part of the vertices around it that have this input, too.
    """

    block: str
    name: str
    own: float
    neighbours: float

    @property
    def in_words(self) -> str:
        """Name and block, as in ``lemma (word)``."""
        return f"{self.name} ({INPUTS.get(self.block, (self.block,))[0]})"

    @property
    def total(self) -> float:
        """The sum of both parts."""
        return self.own + self.neighbours


def explain(learner: LifelongLearner, task: Task, rows: Sequence[int], most: int) -> list[list[Attribution]]:
    """Return the inputs that contribute most to the most likely class of some test vertices, the largest first."""
    weights, vocabulary = learner._learnt()
    model, classes, stacking = learner._model().predictor, learner.classes_, learner.stacking_
    names = [(block, classes[int(name)] if block == "classes" else name) for block, name in vocabulary.columns()]
    if not rows:
        return []
    batch, places = learner._neighbourhood(task, rows)
    evidence = added = None
    scale = 1.0
    if stacking is not None:
        evidence = stacking.evidence(task, task.test_window, classes)
        added = stacking.combined(np.zeros(1), evidence)
        scale = float(stacking.weights[0])

    def forward(batch: Batch) -> Tensor:
        logits, hidden = model.forward(weights, batch, None)
        logits = scale * logits
        if added is not None:
            above = np.zeros(logits.shape, np.float32)
            above[places] = added[list(rows)]
            logits = logits + torch.from_numpy(above).to(logits.device)
        return learner._retire(learner._exclude(Outputs(logits, hidden)), task).best_logits

    found = _attribute(forward, batch, names, places, most)
    if evidence is None or added is None:
        return found
    best = learner.outputs(task).best_logits.argmax(1).tolist()
    for row, parts in zip(rows, found, strict=True):
        gain = float(added[row, best[row]] - added[row].mean())
        name = classes[int(evidence[0, row].argmax())]
        _add_stacked(parts, name, gain if evidence[0, row].any() else 0.0, most)
    return found


def _attribute(
    forward: Callable[[Batch], Tensor], batch: Batch, names: Sequence[tuple[str, str]], rows: Sequence[int], most: int
) -> list[list[Attribution]]:
    """Return the inputs that contribute most to the predicted class of each of these rows, the largest first.

    A contribution is the input times the gradient. That is exact for linear models and an approximation for others.
    Each row takes one pass backwards through the model. Dense inputs have no names and are left out.
    """
    x = batch.x
    stored = x.sparse if isinstance(x, MixedMatrix) else x
    if not isinstance(stored, SparseMatrix) or not rows:
        return [[] for _ in rows]
    values = stored.values.detach().clone().requires_grad_()
    stored = replace(stored, stored=values, dropout=None)
    whole = MixedMatrix(x.dense, stored) if isinstance(x, MixedMatrix) else stored
    logits = forward(replace(batch, x=whole, rows=max(rows) + 1))
    if not logits.requires_grad:  # the model reads no input
        return [[] for _ in rows]
    indptr, indices = stored.pattern.indptr.cpu().numpy(), stored.pattern.indices.cpu().numpy()
    found = []
    for row in rows:
        margin = logits[row].max() - logits[row].mean()
        (gradient,) = torch.autograd.grad(margin, values, retain_graph=True, allow_unused=True)
        parts = np.zeros(len(indices)) if gradient is None else (gradient * values).detach().cpu().numpy()
        inside = slice(indptr[row], indptr[row + 1])
        total = np.bincount(indices, parts, minlength=len(names))
        own = np.bincount(indices[inside], parts[inside], minlength=len(names))
        largest = np.argsort(-total, kind="stable")[:most]
        found.append(
            [
                Attribution(names[column][0], names[column][1], float(own[column]), float(total[column] - own[column]))
                for column in largest.tolist()
                if total[column] > 0
            ]
        )
    return found


def _add_stacked(parts: list[Attribution], name: str, gain: float, most: int) -> None:
    """Add what the classes of older neighbours contribute beside the model, under the most frequent of them."""
    if gain <= 0:
        return
    there = next((part for part in parts if (part.block, part.name) == ("classes", name)), None)
    if there is not None:
        parts.remove(there)
        gain += there.own
    parts.append(Attribution("classes", name, gain, 0.0 if there is None else there.neighbours))
    parts.sort(key=lambda part: -part.total)
    del parts[most:]
