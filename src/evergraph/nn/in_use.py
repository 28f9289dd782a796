"""Training only what can change: the input weights of those words that some vertex in sight has.

A word that nobody uses gives its weights no gradient, and Adam, which starts anew for each task, does not move what has
none. Over the years most words of a vocabulary are not in sight, so this saves about half of a step on text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from evergraph.nn.base import Batch, Model, Parameters
from evergraph.nn.sparse import SparseMatrix

__all__ = ["InUse", "in_use"]


@dataclass(frozen=True, eq=False)
class InUse:
    """Parameters and features of a task without the features that no vertex has.

    Parameters
    ----------
    weights, batch
        What to train, and on what.
    columns
        Which features are left.
    narrowed
        Names of the parameters that lack rows.
    """

    weights: Parameters
    batch: Batch
    columns: Tensor
    narrowed: tuple[str, ...]

    def laid_over(self, whole: Parameters) -> Parameters:
        """All parameters: the trained ones, and the rows that were left out as they were in ``whole``."""
        found = dict(self.weights)
        for name in self.narrowed:
            found[name] = whole[name].index_copy(0, self.columns, self.weights[name])
        return found


def in_use(model: Model, weights: Parameters, batch: Batch) -> InUse | None:
    """The part of a task that training can change; None where that is all.

    Examples
    --------
    >>> from scipy import sparse
    >>> from evergraph.nn import SGC, Draw, Neighbours
    >>> x = SparseMatrix.of(sparse.csr_array([[0.0, 2.0, 0.0], [0.0, 1.0, 0.0]]))
    >>> edge = sparse.csr_array([[0, 1], [1, 0]])
    >>> batch = Batch(x, Neighbours.of(edge.indptr, edge.indices), 2, torch.tensor([0, 1]))
    >>> part = in_use(SGC(), SGC().parameters(3, 2, Draw(0)), batch)
    >>> part.columns.tolist(), part.batch.x.shape, part.weights["weight"].shape
    ([1], (2, 1), torch.Size([1, 2]))
    """
    names = model.input_weights()
    if not names or not isinstance(batch.x, SparseMatrix):
        return None
    pattern = batch.x.pattern
    columns, indices = torch.unique(pattern.indices, return_inverse=True)
    if len(columns) == pattern.columns:
        return None
    # Ascending as before: on one thread no sum changes its order (on several, fewer columns may split it otherwise).
    pattern = replace(pattern, indices=indices.to(pattern.indices.dtype), columns=len(columns))
    columns = columns.long()
    part = {name: value[columns] if name in names else value for name, value in weights.items()}
    return InUse(part, replace(batch, x=replace(batch.x, pattern=pattern)), columns, names)
