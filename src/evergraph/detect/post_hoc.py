"""Any score with any threshold, on a model that is trained as a plain classifier."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from evergraph.detect.base import Decision, Detector, Outputs, Requirements, State, shares_of
from evergraph.detect.cross_entropy import cross_entropy
from evergraph.detect.scores import Energy, Relative, Score
from evergraph.detect.thresholds import BackTest, Past, Threshold

__all__ = ["PostHoc"]


@dataclass(frozen=True)
class PostHoc(Detector):
    """Cross-entropy over the known classes; flags vertices whose score is above a threshold.

    Training does not depend on either, so the classes are those of a plain classifier. Thresholds are calibrated on
    past slices; some slices before the first task are replayed, so that the first has a past, too.

    Parameters
    ----------
    by
        The score.
    threshold
        The rule that draws the line.

    Examples
    --------
    >>> import torch
    >>> from evergraph.detect.thresholds import Fixed
    >>> detector = PostHoc(Energy(), Fixed(-2.0))
    >>> detector.decide(Outputs(torch.tensor([[3.0, -1.0], [1.0, 0.0]])), {}).flagged
    tensor([False,  True])
    """

    replay: ClassVar[int] = 3

    by: Score = field(default_factory=lambda: Relative(Energy()))
    threshold: Threshold = field(default_factory=BackTest)

    @property
    def requires(self) -> Requirements:
        """What the score requires, and a past."""
        return self.by.requires | Requirements(fit=False, observe=True, replay=self.replay)

    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Cross-entropy, as a (weighted) mean over vertices; 0 where no vertex has weight."""
        return cross_entropy(logits, targets, shares_of(logits, weights))

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        """State of the score."""
        return self.by.fit(outputs, targets, state)

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        """With one slice more of the `Past`, and what the score keeps."""
        past = Past.of(state).grown(self.by.compute(outputs, state), outputs, targets)
        return {**state, **self.by.observe(outputs, targets, state), **past.as_state()}

    def decide(self, outputs: Outputs, state: State) -> Decision:
        """Score with how far each vertex is above its line, and flag those above it."""
        scores = self.by.compute(outputs, state)
        excess = self.threshold.excess(scores, outputs.logits.argmax(1), Past.of(state)).double()
        return Decision(excess, excess > 0)
