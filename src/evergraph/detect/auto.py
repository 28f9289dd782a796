"""`AutoDetector`: six scores, averaged, propagated over similar vertices, and decided by a back-test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from evergraph.detect.base import Decision, Detector, Outputs, Requirements, State
from evergraph.detect.post_hoc import PostHoc
from evergraph.detect.scores import (
    MSP,
    AuxiliaryModel,
    Average,
    ClassLikelihood,
    ExcessWords,
    KnownDistance,
    Propagated,
    Score,
    SliceDensity,
)
from evergraph.detect.thresholds import BackTest

__all__ = ["COUNTS", "SIGNALS", "AutoDetector", "average_signals"]

SIGNALS: dict[str, Score] = {
    "msp": MSP(),
    "auxiliary": AuxiliaryModel(),
    "excess_words": ExcessWords(),
    "class_likelihood": ClassLikelihood(),
    "known_distance": KnownDistance(),
    "slice_density": SliceDensity(),
}
"""The scores of `AutoDetector`."""
COUNTS = {"auxiliary": 3.0}
"""Weight of a score in the average, if not 1."""


def average_signals(without: str | None = None) -> Average:
    """The average of the signals, without one."""
    names = [name for name in SIGNALS if name != without]
    return Average(tuple(SIGNALS[name] for name in names), tuple(COUNTS.get(name, 1.0) for name in names))


@dataclass(frozen=True)
class AutoDetector(Detector):
    """Six scores, propagated over the slice, and a threshold calibrated on past slices.

    The model that decides classes is trained as a plain classifier, so it tells them as well as one. An auxiliary model
    is trained beside it with gDOC's loss (`AuxiliaryModel`), which doubles the time of training. Other scores read
    words and neighbours. Each score is standardised by the vertices of known classes in past slices, when these were
    decided. The threshold is the one that would have served best so far, drawn to one that a fifth of the known
    vertices exceed, as long as few unseen vertices were observed or these hardly stood out. It needs no labels but
    those that come anyway.

    It is ``PostHoc(Propagated(Average(SIGNALS.values(), counts)), BackTest(most=most))``, where the auxiliary model
    counts 3 and all others count 1.

    Parameters
    ----------
    most
        Share of a slice that is flagged at most.

    Examples
    --------
    >>> import evergraph
    >>> from evergraph import LifelongLearner
    >>> graph = evergraph.datasets.synthetic(vertices=600, times=6, classes=4, new_classes=1, seed=1)
    >>> learner = LifelongLearner(detector=AutoDetector(), steps=20)
    >>> for task in evergraph.tasks(graph, history=3):
    ...     decisions = learner.adapt(task).predict(task)
    >>> decisions.flagged.mean() <= 0.3
    np.True_
    """

    version: ClassVar[int] = 3

    most: float = 0.3

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", BackTest(most=self.most).most)

    @property
    def made_of(self) -> PostHoc:
        """Its score and its threshold."""
        return PostHoc(Propagated(average_signals()), BackTest(most=self.most))

    @property
    def requires(self) -> Requirements:
        """What its parts require."""
        return self.made_of.requires

    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:
        """Cross-entropy."""
        return self.made_of.loss(logits, targets, counts, weights)

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        """State of the scores."""
        return self.made_of.fit(outputs, targets, state)

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        """With one slice more of the past."""
        return self.made_of.observe(outputs, targets, state)

    def decide(self, outputs: Outputs, state: State) -> Decision:
        """Score with how far each vertex is above the threshold, and flag those above it."""
        return self.made_of.decide(outputs, state)
