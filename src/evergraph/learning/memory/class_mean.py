"""`ClassMean`: the vertices nearest to the mean of their class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.learning.memory.base import Candidates, MemoryPolicy, Rows

__all__ = ["ClassMean", "closeness"]


@dataclass(frozen=True)
class ClassMean(MemoryPolicy):
    """Keep the vertices of each class whose features are nearest to the mean of the class, about as many of each.

    The mean is that of the candidates. Features are scaled to length 1.

    Source: mean of features in Zhou and Cao, Overcoming Catastrophic Forgetting in Graph Neural Networks with
    Experience Replay (ER-GNN), AAAI 2021.
    """

    def choose(self, candidates: Candidates, number: int) -> Rows:
        """Return the places of the candidates nearest to the mean of their class."""
        return candidates.highest_per_class(closeness(candidates), number)


def closeness(candidates: Candidates) -> NDArray[np.float64]:
    """Return minus the squared distance of each candidate's features to the mean of its class."""
    groups, x = candidates.groups, candidates.features
    members = sparse.csr_array((np.ones(len(groups)), (groups, np.arange(len(groups)))))
    means = sparse.csr_array(sparse.diags_array(1 / members.sum(1)) @ members @ x)
    squares = np.asarray(means.multiply(means).sum(1)).ravel()
    products = np.asarray(x.multiply(means[groups]).sum(1)).ravel()
    own = np.asarray(x.multiply(x).sum(1)).ravel()  # 1 for all vertices that have features
    return -(own - 2 * products + squares[groups])
