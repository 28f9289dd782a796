"""Detectors trained with cross-entropy: `Softmax`, which flags no vertex, `PostHoc` and `IsoMax`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from evergraph.detect.base import Decision, Detector, Outputs, Requirements, State, set_number
from evergraph.detect.cross_entropy import cross_entropy, of_readout, shares_of
from evergraph.detect.scores import Energy, Relative, Score
from evergraph.detect.thresholds import BackTest, Past, Threshold
from evergraph.errors import InputError

__all__ = ["IsoMax", "PostHoc", "Softmax"]


@dataclass(frozen=True)
class Softmax(Detector):
    """A plain classifier: flags no vertex. The score is 1 minus the largest probability.

    Examples
    --------
    >>> outputs = Outputs(torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    >>> Softmax().decide(outputs, {}).score
    tensor([2.4676e-04, 6.6667e-01], dtype=torch.float64)
    """

    @property
    def requires(self) -> Requirements:
        return Requirements(fit=False)

    @of_readout
    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:  # noqa: ARG002
        return cross_entropy(logits, targets, shares_of(logits, weights))

    def decide(self, outputs: Outputs, state: State) -> Decision:  # noqa: ARG002  # nothing is fitted
        score = 1 - self.probability(outputs.logits)
        return Decision(score, torch.zeros_like(score, dtype=torch.bool))


@dataclass(frozen=True)
class PostHoc(Softmax):
    """A plain classifier that flags vertices whose score is above a threshold.

    Training depends on neither, so accuracy is that of `Softmax`. Thresholds are calibrated on past slices; three
    slices before the first task are replayed, so that there is a past from the start.

    Parameters
    ----------
    by
        The score, one of `evergraph.detect.scores`.
    threshold
        The threshold, one of `evergraph.detect.thresholds`.

    Examples
    --------
    >>> from evergraph.detect.thresholds import Fixed
    >>> detector = PostHoc(Energy(), Fixed(-2.0))
    >>> detector.decide(Outputs(torch.tensor([[3.0, -1.0], [1.0, 0.0]])), {}).flagged
    tensor([False,  True])
    """

    replay: ClassVar[int] = 3

    by: Score = field(default_factory=lambda: Relative(Energy()))
    threshold: Threshold = field(default_factory=BackTest)

    def __post_init__(self) -> None:
        for name, kind in (("by", Score), ("threshold", Threshold)):
            if not isinstance(value := getattr(self, name), kind):
                fix = f"pass a {kind.__name__.lower()} of evergraph.detect"
                raise InputError(f"the argument {name} is {value!r}", fix=fix)

    @property
    def requires(self) -> Requirements:
        return self.by.requires | Requirements(fit=False, observe=True, replay=self.replay)

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        return self.by.fit(outputs, targets, state)

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        past = Past.of(state).grown(self.by.compute(outputs, state), outputs, targets)
        return {**state, **self.by.observe(outputs, targets, state), **past.as_state()}

    def decide(self, outputs: Outputs, state: State) -> Decision:
        scores = self.by.compute(outputs, state)
        excess = self.threshold.excess(scores, outputs.logits.argmax(1), Past.of(state)).double()
        return Decision(excess, excess > 0)


@dataclass(frozen=True)
class IsoMax(Softmax):
    """IsoMax+: flags a vertex that is too far from the prototypes of all known classes.

    Use it with a model in `evergraph.nn.IsoMaxOutputs`, whose logits are minus the distances from the prototypes, each
    at most twice a learnt scale. The loss is cross-entropy of ``scale`` times the logits; decisions use the logits
    themselves. The score is the smallest distance, that is, minus the largest logit.

    Probabilities are a softmax over the logits themselves. They rank the classes but are not calibrated: with K classes
    and a learnt scale s, none exceeds 1 / (1 + (K - 1) exp(-2 |s|)). For 4 classes that is .29 if s is .1, and .71 if s
    is 1.

    Source: Macêdo and Ludermir, the IsoMax+ loss, 2021.

    Parameters
    ----------
    threshold
        Largest distance at which a vertex is not flagged, from 0 up. Its unit depends on the learnt scale, so choose it
        from scores. None and ``inf``: no vertex is flagged.
    scale
        Entropic scale of the loss, above 0; 10 in the paper.

    Examples
    --------
    >>> outputs = Outputs(torch.tensor([[-0.2, -1.4, -1.5], [-1.1, -1.2, -1.3]]))
    >>> detector = IsoMax(threshold=1.0)
    >>> tuple(detector.decide(outputs, {}))
    (tensor([0.2000, 1.1000], dtype=torch.float64), tensor([False,  True]))
    >>> detector.probability(outputs.logits)
    tensor([0.6354, 0.3672], dtype=torch.float64)
    """

    threshold: float | None = None
    scale: float = 10.0

    def __post_init__(self) -> None:
        if self.threshold == math.inf:
            object.__setattr__(self, "threshold", None)
        if self.threshold is not None:
            set_number(self, "threshold", hint=", or to None to flag no vertex")
        set_number(self, "scale", above=True, hint=" (10 is usual)")

    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:
        return super().loss(self.scale * logits, targets, counts, weights)

    def decide(self, outputs: Outputs, state: State) -> Decision:  # noqa: ARG002  # nothing is fitted
        score = -outputs.logits.amax(1).double()
        return Decision(score, score > (math.inf if self.threshold is None else self.threshold))
