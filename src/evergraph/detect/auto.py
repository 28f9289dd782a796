"""The detector to begin with: several signals, pooled over kin, decided by what became of earlier decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from evergraph.detect.base import Detector, Outputs, State
from evergraph.detect.post_hoc import PostHoc
from evergraph.detect.scores import (
    Bursting,
    Crowding,
    Energy,
    Misfit,
    Relative,
    Remote,
    Score,
    Smoothed,
    Surplus,
    Together,
)
from evergraph.detect.thresholds import BackTest

__all__ = ["SIGNALS", "AutoDetector"]

SIGNALS: dict[str, Score] = {
    "energy": Relative(Energy()),
    "bursting": Bursting(),
    "surplus": Surplus(),
    "remote": Remote(),
    "crowding": Crowding(),
    "misfit": Misfit(),
}
"""What `AutoDetector` looks at: the model, bursting words (at all, beyond the classes), distance, crowd and fit."""


@dataclass(frozen=True)
class AutoDetector(Detector):
    """Six signals of a new class, weighed by the past, smoothed over the slice, and a line that the past has drawn.

    It trains as a plain classifier does, so it tells classes as well as one. What is strange about a slice is seen in
    the model's energy, in words and in neighbours. Each signal is measured against the vertices of known classes in
    earlier slices, when these were decided. The line is the one that would have served best so far, drawn to a cautious
    one as long as few new classes were met. It needs no labels but those that come anyway.

    It is ``PostHoc(Smoothed(Together(SIGNALS.values())), BackTest(most=most))``.

    Parameters
    ----------
    most
        Share of a slice that is rejected at most.

    Examples
    --------
    >>> import evergraph
    >>> from evergraph import LifelongLearner
    >>> graph = evergraph.datasets.synthetic(vertices=600, times=6, classes=4, new_classes=1, seed=1)
    >>> learner = LifelongLearner(detector=AutoDetector(), steps=20)
    >>> for task in evergraph.tasks(graph, history=3):
    ...     decisions = learner.adapt(task).predict(task)
    >>> decisions.rejected.mean() <= 0.3
    np.True_
    """

    rehearsals: ClassVar[int] = PostHoc.rehearsals

    most: float = 0.3

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", BackTest(most=self.most).most)

    @property
    def made_of(self) -> PostHoc:
        """Its score and its threshold."""
        return PostHoc(Smoothed(Together(tuple(SIGNALS.values()))), BackTest(most=self.most))

    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:
        """Cross-entropy."""
        return self.made_of.loss(logits, targets, counts, weights)

    def fit(self, outputs: Outputs, targets: Tensor, before: State) -> State:
        """What the signals fit."""
        return self.made_of.fit(outputs, targets, before)

    def look_back(self, outputs: Outputs, targets: Tensor, before: State) -> State:
        """With one slice more of the past."""
        return self.made_of.look_back(outputs, targets, before)

    def score(self, outputs: Outputs, state: State) -> Tensor:
        """How far each vertex is above the line."""
        return self.made_of.score(outputs, state)

    def reject(self, outputs: Outputs, state: State) -> Tensor:
        """Whoever is above the line."""
        return self.made_of.reject(outputs, state)
