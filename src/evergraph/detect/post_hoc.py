"""Any score with any threshold, on a model that is trained as a plain classifier."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from evergraph.detect.base import Detector, Outputs, State, shares_of
from evergraph.detect.losses import cross_entropy
from evergraph.detect.past import Past
from evergraph.detect.scores import Energy, Relative, Score
from evergraph.detect.thresholds import BackTest, Threshold

__all__ = ["PostHoc"]


@dataclass(frozen=True)
class PostHoc(Detector):
    """Cross-entropy over the known classes; whoever a score places above a threshold's line is rejected.

    Training knows nothing of either, so the classes are those of a plain classifier. Lines are drawn from what became
    of earlier decisions; the learner rehearses some times before its first task, so that the first has a past, too.

    Parameters
    ----------
    by
        What tells how unseen a vertex is.
    threshold
        What draws the line.

    Examples
    --------
    >>> import torch
    >>> from evergraph.detect.thresholds import Fixed
    >>> detector = PostHoc(Energy(), Fixed(-2.0))
    >>> detector.reject(Outputs(torch.tensor([[3.0, -1.0], [1.0, 0.0]])), {})
    tensor([False,  True])
    """

    rehearsals: ClassVar[int] = 3

    by: Score = field(default_factory=lambda: Relative(Energy()))
    threshold: Threshold = field(default_factory=BackTest)

    @property
    def second(self) -> Detector | None:
        """Whom the score asks for."""
        return self.by.second

    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Cross-entropy, as a (weighted) mean over vertices; 0 where no vertex has weight."""
        return cross_entropy(logits, targets, shares_of(logits, weights))

    def fit(self, outputs: Outputs, targets: Tensor, before: State) -> State:
        """What the score fits."""
        return self.by.fit(outputs, targets, before)

    def look_back(self, outputs: Outputs, targets: Tensor, before: State) -> State:
        """With one slice more of the `Past`, and what the score keeps."""
        past = Past.of(before).grown(self.by.of(outputs, before), outputs, targets)
        return {**before, **self.by.look_back(outputs, targets, before), **past.as_state()}

    def score(self, outputs: Outputs, state: State) -> Tensor:
        """How far each vertex is above its line."""
        return self.threshold.excess(self.by.of(outputs, state), outputs.logits.argmax(1), Past.of(state)).double()

    def reject(self, outputs: Outputs, state: State) -> Tensor:
        """Whoever is above the line."""
        return self.score(outputs, state) > 0
