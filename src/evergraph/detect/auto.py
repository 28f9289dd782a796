"""`AutoDetector`: the average of six scores, propagated over similar vertices, with a back-tested threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from evergraph.detect.base import Decision, Outputs, Requirements, State
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
from evergraph.detect.softmax import PostHoc, Softmax
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
"""Weights in the average that are not 1."""


def average_signals(without: str | None = None) -> Average:
    """The average of all signals, or of all but one."""
    names = [name for name in SIGNALS if name != without]
    return Average(tuple(SIGNALS[name] for name in names), tuple(COUNTS.get(name, 1.0) for name in names))


@dataclass(frozen=True)
class AutoDetector(Softmax):
    """Six scores, propagated over the slice, and a threshold calibrated on past slices.

    The model is trained as a plain classifier, so its accuracy is that of `Softmax`. An auxiliary model is trained with
    gDOC's loss (`AuxiliaryModel`), which doubles the training time. The other scores read words and neighbours. Each
    score is standardised by the known-class vertices of past slices, as they were scored then. The threshold is chosen
    by `BackTest`. It needs no labels but those that arrive anyway.

    It equals ``PostHoc(Propagated(Average(SIGNALS.values(), counts)), BackTest(most=most))``, where the auxiliary model
    has the weight 3 and all other scores the weight 1.

    Parameters
    ----------
    most
        Largest share of a slice to flag, from 0 to 1.

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
        """The score and the threshold."""
        return PostHoc(Propagated(average_signals()), BackTest(most=self.most))

    @property
    def requires(self) -> Requirements:
        return self.made_of.requires

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        return self.made_of.fit(outputs, targets, state)

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        return self.made_of.observe(outputs, targets, state)

    def decide(self, outputs: Outputs, state: State) -> Decision:
        return self.made_of.decide(outputs, state)
