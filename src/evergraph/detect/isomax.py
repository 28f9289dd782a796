"""IsoMax+: the further a vertex is from every known class, the more unseen it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from evergraph.detect.base import Decision, Detector, Outputs, Requirements, State, shares_of
from evergraph.detect.cross_entropy import cross_entropy
from evergraph.errors import InputError

__all__ = ["IsoMax"]


@dataclass(frozen=True)
class IsoMax(Detector):
    """Logits are minus distances from the classes' prototypes; flags a vertex where the smallest is too large.

    It goes with a model in `evergraph.nn.IsoMaxOutputs`, whose logits are such distances, each at most twice the
    learnt scale. With another model it scores by the largest logit, whatever that means there. (Macêdo and Ludermir,
    "Enhanced Isotropy Maximization Loss", 2021.)

    The loss is cross-entropy of ``scale`` times the logits. In deciding they count as they are: this is what leaves
    room for doubt. The score is the smallest distance, that is, minus the largest logit.

    Probabilities are those of a softmax over the logits as they are, too. They are not calibrated to frequencies but
    held back on purpose: with K classes and a learnt scale s, none is above 1 / (1 + (K - 1) exp(-2 |s|)), however
    clear the vertex (.29 for 4 classes at most if s is .1, .71 if it is 1). They rank the classes. It is the softmax of
    ``scale`` times the logits that training fits to the labels, as any cross-entropy does.

    Parameters
    ----------
    threshold
        The largest distance at which a vertex is still taken for one of a known class, in the units of the score: the
        learnt scale is in it, so it is best chosen from scores. None and ``inf``: no vertex is flagged.
    scale
        The entropic scale, above 0; 10 in the paper. Unlike the threshold it belongs to training.

    Examples
    --------
    >>> import torch
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
        if self.threshold is not None and not self.threshold >= 0:
            raise InputError(
                f"the argument threshold is {self.threshold}, which is no distance",
                fix="set threshold to a number from 0 up, or to None to flag no vertex",
            )
        if not 0 < self.scale < math.inf:
            raise InputError(
                f"the argument scale is {self.scale}, which is not a number above 0",
                fix="set scale to a number above 0 (10 is usual)",
            )
        # Plain numbers, and one way to say "no threshold": a detector is compared, printed and saved.
        threshold = None if self.threshold is None or math.isinf(self.threshold) else float(self.threshold)
        object.__setattr__(self, "threshold", threshold)
        object.__setattr__(self, "scale", float(self.scale))

    @property
    def requires(self) -> Requirements:
        """Nothing."""
        return Requirements(fit=False)

    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Cross-entropy of ``scale`` times the logits, as a (weighted) mean over vertices; 0 where none has weight."""
        return cross_entropy(self.scale * logits, targets, shares_of(logits, weights))

    def decide(self, outputs: Outputs, state: State) -> Decision:  # noqa: ARG002  # nothing is fitted
        """Score with the smallest distance, and flag where it is above the threshold."""
        score = -outputs.logits.amax(1).double()
        return Decision(score, score > (math.inf if self.threshold is None else self.threshold))
