"""Nearest: distance to the k-th nearest training vertex."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from evergraph.detect.base import Outputs, State
from evergraph.detect.scores.base import Score, fitted, vectors_of
from evergraph.errors import InputError

__all__ = ["Nearest"]

_BLOCK = 1 << 22  # distances that are in memory at once, unless a single vertex has more


@dataclass(frozen=True)
class Nearest(Score):
    """Cosine distance of a vertex's hidden vector to that of the k-th nearest labelled training vertex: from 0 to 2.

    Where the model gives no hidden vectors, the logits are used instead. A vector of zeros has distance 1 from all
    others. Where there are no training vertices, all vertices score 1.

    The state is ``vectors``: the hidden vectors of training vertices, with length 1, as float32. If there are more
    than ``most``, they are put in an order that depends on their values alone, and every so many of them is kept.

    Source: Sun et al., Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022.

    Parameters
    ----------
    k
        Which neighbour counts; the farthest one where there are fewer training vertices.
    most
        Training vertices that are kept at most.

    Examples
    --------
    >>> score, train = Nearest(k=2), torch.tensor([[1.0, 0.0], [2.0, 2.0], [0.0, 3.0]])
    >>> state = score.fit(Outputs(torch.zeros(3, 1), train), torch.tensor([0, 0, 0]), before={})
    >>> score.of(Outputs(torch.zeros(3, 1), torch.tensor([[5.0, 0.0], [7.0, 7.0], [-1.0, -1.0]])), state)
    tensor([0.2929, 0.2929, 1.7071], dtype=torch.float64)
    """

    k: int = 10
    most: int = 20_000

    def __post_init__(self) -> None:
        given: dict[str, object] = {"k": self.k, "most": self.most}
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise InputError(
                    f"the argument {name} is {value!r}, which is no whole number from 1 up",
                    fix=f"set {name} to a whole number from 1 up",
                )
            object.__setattr__(self, name, int(value))

    def fit(self, outputs: Outputs, targets: Tensor, before: State) -> State:  # noqa: ARG002  # the vertices suffice
        """State ``vectors``; see the class."""
        x = vectors_of(outputs)
        if len(x) > self.most:
            x = x[_every_so_many(x, self.most)]
        return {"vectors": _of_length_one(x).float()}

    def of(self, outputs: Outputs, state: State) -> Tensor:
        """See the class."""
        x = vectors_of(outputs)
        known = fitted(state, "vectors", x.shape[1]).to(x)
        if not len(known):
            return x.new_ones(len(x))
        # Rounded alike, so that equal vectors are at distance 0; then again of length 1, which rounding has changed.
        x, known = _of_length_one(_of_length_one(x).float().double()), _of_length_one(known)
        k, rows = min(self.k, len(known)), max(_BLOCK // len(known), 1)
        # A copy of the last column, or else the others would stay in memory with it.
        nearest = [(block @ known.T).topk(k, dim=1).indices[:, -1].clone() for block in torch.split(x, rows)]
        return _cosine_distances(x, known[torch.cat(nearest)])


def _of_length_one(vectors: Tensor) -> Tensor:
    """Vectors with length 1; those of zeros stay as they are."""
    largest = vectors.abs().amax(1, keepdim=True)
    vectors = vectors / torch.where(largest > 0, largest, 1)  # so that squares are neither too large nor too small
    length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / torch.where(length > 0, length, 1)


def _cosine_distances(some: Tensor, others: Tensor) -> Tensor:
    """Cosine distance of each vector of length 1 (or 0) to the other in its row."""
    # By differences: 1 minus the cosine would lose the digits of small distances.
    missing = (~some.any(1)).double() + (~others.any(1)).double()
    return ((some - others).square().sum(1) + missing).clamp(max=4) / 2


def _every_so_many(vectors: Tensor, most: int) -> Tensor:
    """Rows of as many vectors, evenly along an order that depends neither on the order of rows nor of columns.

    The order of columns counts only among vectors that have the same values in different columns.

    Examples
    --------
    >>> _every_so_many(torch.tensor([[5.0, 0.0], [0.0, 1.0], [3.0, 1.0], [2.0, 3.0]]), 2)
    tensor([1, 3])
    """
    values = vectors.cpu().numpy()
    # By the largest value of each vector, then by its second largest and so on; by column where all these are alike.
    order = np.lexsort((*values.T, *np.sort(values, axis=1).T))
    return torch.from_numpy(order[np.arange(most) * len(order) // most]).to(vectors.device)
