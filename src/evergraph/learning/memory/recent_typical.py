"""`RecentTypical`: the vertices of each class that are new and near to the mean of their class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evergraph.learning.memory.base import Candidates, MemoryPolicy, Rows
from evergraph.learning.memory.class_mean import closeness

__all__ = ["RecentTypical"]


@dataclass(frozen=True)
class RecentTypical(MemoryPolicy):
    """Keep the vertices of each class that are new and near to the mean of their class, about as many of each.

    All candidates are put in order twice: by age, and by the distance to the mean of their class (`ClassMean`). The
    higher the sum of both places, the better, so a vertex that is old stays only if it is very typical.
    """

    def choose(self, candidates: Candidates, number: int) -> Rows:
        """Return the places of the candidates of each class with the highest sums."""
        places = np.arange(len(candidates))
        # Rounded, because the last digits depend on the order of the features. Of equal ones, the newest is the best.
        order = np.lexsort((places, np.round(closeness(candidates), 9)))
        total = places.astype(np.float64)
        total[order] += places
        return candidates.highest_per_class(total, number)
