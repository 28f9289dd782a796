"""`Random`: a uniform sample."""

from __future__ import annotations

from dataclasses import dataclass

from evergraph.learning.memory.base import Candidates, MemoryPolicy, Rows

__all__ = ["Random"]


@dataclass(frozen=True)
class Random(MemoryPolicy):
    """Keep a uniform random sample of all vertices that have left the window.

    Each vertex has a random number, and those with the lowest stay. This gives the same samples as reservoir sampling
    (Vitter, Random Sampling with a Reservoir, 1985), and needs no counter.

    Examples
    --------
    >>> Random(500)
    Random(budget=500)
    """

    def choose(self, candidates: Candidates, number: int) -> Rows:
        """Return the places of the candidates with the lowest random numbers."""
        return candidates.highest(-candidates.draws, number)
