"""What a learner decides, and how good that was once the truth is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.classes import UNSEEN
from evergraph.graph.ids import Ids

__all__ = ["Decisions"]


@dataclass(frozen=True, eq=False)
class Decisions:
    """A learner's decision on each test vertex of a task.

    Parameters
    ----------
    ids
        Ids of the vertices.
    time
        Time of the task.
    best
        Name of the most likely known class.
    flagged
        Whether the vertex is flagged as one of a class never seen before.
    score
        How unseen it looks: higher is more. Comparable within a task only.
    probability
        Of the most likely known class.
    known
        Names of the classes that the learner knew.
    """

    ids: Ids
    time: int
    best: NDArray[np.object_]
    flagged: NDArray[np.bool_]
    score: NDArray[np.float64]
    probability: NDArray[np.float64]
    known: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.best)

    @property
    def classes(self) -> NDArray[np.object_]:
        """The decision: the name of a known class, or `UNSEEN`."""
        return np.where(self.flagged, UNSEEN, self.best)

    def __repr__(self) -> str:
        return f"Decisions(vertices={len(self)}, unseen={int(self.flagged.sum())}, known classes={len(self.known)})"
