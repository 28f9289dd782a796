"""`Coverage`: the vertices with the fewest vertices of other classes around them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evergraph.learning.memory.base import Candidates, MemoryPolicy, Rows

__all__ = ["Coverage"]

_COMPARED = 2_000  # candidates that all others are compared with, drawn at random
_BLOCK = 2_000  # candidates that are compared at a time
_NEAR = 0.05  # share of the pairs that are near


@dataclass(frozen=True)
class Coverage(MemoryPolicy):
    """Keep the vertices of each class that have the fewest vertices of other classes near them, about as many of each.

    Near are the closest 5 % of all pairs by the cosine of their features. All candidates are compared with at most
    2,000 of them, so the cost is in proportion to their number.

    Source: coverage maximisation in Zhou and Cao, Overcoming Catastrophic Forgetting in Graph Neural Networks with
    Experience Replay (ER-GNN), AAAI 2021. There, near means closer than a fixed distance.
    """

    def choose(self, candidates: Candidates, number: int) -> Rows:
        """Return the places of the candidates with the fewest near vertices of other classes."""
        groups, x = candidates.groups, candidates.features
        compared = np.sort(np.argsort(candidates.draws, kind="stable")[:_COMPARED])
        others = x[compared].T.tocsr()
        near = 1 - np.quantile((x[compared[:: max(len(compared) // 500, 1)]] @ others).toarray(), 1 - _NEAR)
        counts = np.empty(len(candidates))
        for start in range(0, len(candidates), _BLOCK):
            some = slice(start, start + _BLOCK)
            closer = 1 - (x[some] @ others).toarray() < near
            counts[some] = (closer & (groups[some, None] != groups[compared])).sum(1)
        return candidates.highest_per_class(-counts, number)
