"""`PageRank`: the vertices that random walks from the window reach most often."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from evergraph.learning.memory.base import Candidates, MemoryPolicy, Rows

__all__ = ["PageRank"]

_RESTART, _ROUNDS = 0.15, 20


@dataclass(frozen=True)
class PageRank(MemoryPolicy):
    """Keep the vertices with the highest PageRank, personalised to the vertices of the window.

    Random walks start at a vertex of the window, and start again with a probability of 15 % at each step. They walk on
    the graph of the candidates and the window.

    Source: Page, Brin, Motwani and Winograd, The PageRank Citation Ranking, 1999.  (prose: ok)
    """

    def choose(self, candidates: Candidates, number: int) -> Rows:
        """Return the places of the candidates with the highest ranks."""
        edges, own = candidates.edges, len(candidates)
        if len(edges) == own:  # the window has no vertex
            return candidates.highest(np.zeros(own), number)
        total = len(edges)
        links = sparse.csr_array((np.ones(edges.entries), edges.indices, edges.indptr), shape=(total, total))
        degrees = np.diff(edges.indptr)
        start = np.zeros(total)
        start[own:] = 1 / (total - own)
        ranks = start
        for _ in range(_ROUNDS):
            walked = links @ np.where(degrees > 0, ranks / np.maximum(degrees, 1), 0)
            lost = 1 - _RESTART - (1 - _RESTART) * walked.sum()  # at vertices without neighbours
            ranks = (1 - _RESTART) * walked + (_RESTART + lost) * start
        return candidates.highest(ranks[:own], number)
