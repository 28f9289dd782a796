"""`Degree`: the vertices with the most neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evergraph.learning.memory.base import Candidates, MemoryPolicy, Rows

__all__ = ["Degree"]


@dataclass(frozen=True)
class Degree(MemoryPolicy):
    """Keep the vertices with the most neighbours among the candidates and the vertices of the window."""

    def choose(self, candidates: Candidates, number: int) -> Rows:
        """Return the places of the candidates with the highest degrees."""
        degrees = candidates.edges.degrees(np.arange(len(candidates)))
        return candidates.highest(degrees.astype(np.float64), number)
