"""`ClassMean`: the vertices nearest to the mean of their class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from evergraph.learning.memory.base import Candidates, MemoryPolicy, Rows

__all__ = ["ClassMean"]


@dataclass(frozen=True)
class ClassMean(MemoryPolicy):
    """Keep the vertices of each class whose features are nearest to the mean of the class, about as many of each.

    The mean is that of the candidates. Features are scaled to length 1.

    Source: mean of features in Zhou and Cao, Overcoming Catastrophic Forgetting in Graph Neural Networks with
    Experience Replay (ER-GNN), AAAI 2021.
    """

    def choose(self, candidates: Candidates, number: int) -> Rows:
        """Return the places of the candidates nearest to the mean of their class."""
        groups, x = candidates.groups, candidates.features
        members = sparse.csr_array((np.ones(len(groups)), (groups, np.arange(len(groups)))))
        means = sparse.csr_array(sparse.diags_array(1 / members.sum(1)) @ members @ x)
        squares = np.asarray(means.multiply(means).sum(1)).ravel()
        products = np.asarray(x.multiply(means[groups]).sum(1)).ravel()
        # |x - mean|² without |x|², which is 1 for all vertices that have features.
        own = np.asarray(x.multiply(x).sum(1)).ravel()
        return candidates.highest_per_class(-(own - 2 * products + squares[groups]), number)
