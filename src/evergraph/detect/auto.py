"""The detector to begin with: several signals, pooled over kin, decided by what became of earlier decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from evergraph.detect.base import Detector, Outputs, State
from evergraph.detect.post_hoc import PostHoc
from evergraph.detect.scores import MSP, Crowding, Misfit, Remote, Score, Sentinel, Smoothed, Surplus, Together
from evergraph.detect.thresholds import BackTest

__all__ = ["COUNTS", "SIGNALS", "AutoDetector", "together"]

SIGNALS: dict[str, Score] = {
    "msp": MSP(),
    "sentinel": Sentinel(),
    "surplus": Surplus(),
    "misfit": Misfit(),
    "remote": Remote(),
    "crowding": Crowding(),
}
"""What `AutoDetector` looks at: two models, words that burst beyond the classes, fit, distance and crowd."""
COUNTS = {"sentinel": 3.0}
"""How much a signal counts, if not 1."""


def together(without: str | None = None) -> Together:
    """The signals, but for one."""
    names = [name for name in SIGNALS if name != without]
    return Together(tuple(SIGNALS[name] for name in names), tuple(COUNTS.get(name, 1.0) for name in names))


@dataclass(frozen=True)
class AutoDetector(Detector):
    """Six signals of a new class, smoothed over the slice, and a line that the past has drawn.

    The model that decides classes is trained as a plain classifier, so it tells them as well as one. A second one is
    trained beside it with gDOC's loss and keeps watch (`Sentinel`), which doubles the time of training. What else is
    strange about a slice is seen in words and in neighbours. Each signal is measured against the vertices of known
    classes in earlier slices, when these were decided. The line is the one that would have served best so far, drawn to
    one above which a fifth of the known vertices were, as long as few unseen vertices were met or these hardly stood
    out. It needs no labels but those that come anyway.

    It is ``PostHoc(Smoothed(Together(SIGNALS.values(), counts)), BackTest(most=most))``, where the sentinel counts 3
    and all others count 1.

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

    version: ClassVar[int] = 3
    rehearsals: ClassVar[int] = PostHoc.rehearsals

    most: float = 0.3

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", BackTest(most=self.most).most)

    @property
    def made_of(self) -> PostHoc:
        """Its score and its threshold."""
        return PostHoc(Smoothed(together()), BackTest(most=self.most))

    @property
    def second(self) -> Detector | None:
        """Whom the sentinel asks for."""
        return self.made_of.second

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
