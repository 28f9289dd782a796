"""`RecentPerClass`: the newest vertices of each class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evergraph.learning.memory.base import Candidates, MemoryPolicy, Rows

__all__ = ["RecentPerClass"]


@dataclass(frozen=True)
class RecentPerClass(MemoryPolicy):
    """Keep the newest vertices of each class, about as many of each."""

    def choose(self, candidates: Candidates, number: int) -> Rows:
        """Return the places of the newest candidates of each class."""
        return candidates.highest_per_class(np.arange(len(candidates), dtype=np.float64), number)
