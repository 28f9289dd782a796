"""A line that so many vertices of known classes would have crossed, had it been drawn before."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.past import Past
from evergraph.detect.thresholds.base import Threshold, check_share, check_weight, nobody, quantile

__all__ = ["Quantile"]


@dataclass(frozen=True)
class Quantile(Threshold):
    """Whoever scores higher than all but a share of the known-class vertices of the past is rejected.

    Each predicted class has a line of its own, shrunk to that of all: (n_c · q_c + weight · q) / (n_c + weight), where
    n_c vertices of the past were of a known class and predicted as class c. Until there is a past, nobody is rejected.

    Parameters
    ----------
    share
        Of the known-class vertices of the past that lie above the line.
    weight
        How many vertices the line of all counts for.

    Examples
    --------
    >>> from evergraph.detect import Outputs
    >>> outputs, targets = Outputs(torch.eye(2).repeat(10, 1)), torch.zeros(20, dtype=torch.int64)
    >>> past = Past.of({}).grown(torch.arange(20.0), outputs, targets)
    >>> Quantile(0.1).excess(torch.tensor([16.5, 18.5]), torch.tensor([0, 1]), past) > 0
    tensor([False,  True])
    """

    share: float = 0.05
    weight: float = 50.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", check_share("share", self.share))
        object.__setattr__(self, "weight", check_weight("weight", self.weight))

    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:
        """Score minus the line of the predicted class."""
        known = past.known
        if not len(known):
            return nobody(scores)
        overall = quantile(known.scores, self.share)
        lines = torch.full_like(scores, float(overall))
        for column in sorted(set(best.tolist())):
            own = known.scores[known.best == column]
            if len(own):
                line = (len(own) * quantile(own, self.share) + self.weight * overall) / (len(own) + self.weight)
                lines[best == column] = line
        return scores - lines
