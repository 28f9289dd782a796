"""The line that would have served best so far."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.past import Past
from evergraph.detect.thresholds.base import Threshold, check_share, check_weight, nobody, quantile

__all__ = ["BackTest"]

_ROUNDING = 1e-9  # scores nearer than this are the same
_NEARLY = 0.95  # lines that reach this share of the best coefficient are as good: the middle one is taken


@dataclass(frozen=True)
class BackTest(Threshold):
    """The line with the highest MCC on the past, as far as the past has vertices of unseen classes to learn it from.

    Few such vertices say little. So the line lies between that of the past and the one that a share of its known-class
    vertices exceed: with n unseen vertices the past counts n / (n + weight).

    Parameters
    ----------
    share
        Of the known-class vertices above the line as long as nothing unseen was met.
    weight
        How many unseen vertices it takes for the past to count as much as that.
    most
        Share of a slice that is rejected at most, rounded up: scores may drift from slice to slice.

    Examples
    --------
    >>> from evergraph.detect import Outputs
    >>> targets = torch.tensor([0] * 80 + [-1] * 20)
    >>> past = Past.of({}).grown(torch.arange(100.0), Outputs(torch.zeros(100, 1)), targets)
    >>> scores = torch.tensor([78.0, 81.0, 99.0])
    >>> BackTest(weight=0, most=1).excess(scores, torch.zeros(3, dtype=torch.int64), past) > 0
    tensor([False,  True,  True])
    """

    share: float = 0.1
    weight: float = 100.0
    most: float = 0.3

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", check_share("share", self.share))
        object.__setattr__(self, "weight", check_weight("weight", self.weight))
        object.__setattr__(self, "most", check_share("most", self.most))

    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:  # noqa: ARG002
        """Score minus the line."""
        known, unseen = past.known, int(past.unseen.sum())
        if not len(known) or not len(scores):
            return nobody(scores)
        line = quantile(known.scores, self.share)
        if unseen:
            counts = unseen / (unseen + self.weight)
            line = counts * best_line(past.scores, past.unseen) + (1 - counts) * line
        allowed = math.ceil(self.most * len(scores) - 1e-9)
        if allowed < len(scores):
            line = torch.maximum(line, torch.topk(scores, allowed + 1).values[-1] + _ROUNDING)
        return scores - line


def best_line(scores: Tensor, unseen: Tensor) -> Tensor:
    """The middle of the lines between two scores whose MCC is nearly the highest.

    Examples
    --------
    >>> best_line(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([False, False, True, True]))
    tensor(2.5000, dtype=torch.float64)
    """
    order = torch.argsort(scores, descending=True)
    ranked, hits = scores[order].double(), torch.cumsum(unseen[order].double(), 0)
    above = torch.arange(1, len(ranked) + 1, dtype=torch.float64, device=ranked.device)
    total, everyone = hits[-1], float(len(ranked))
    spread = torch.sqrt(above * (everyone - above) * total * (everyone - total))
    mcc = torch.where(spread > 0, (hits * everyone - above * total) / torch.where(spread > 0, spread, 1), 0)[:-1]
    lines = (ranked[:-1] + ranked[1:]) / 2
    between = ranked[:-1] > ranked[1:]  # no line falls between equal scores
    if not between.any():
        return ranked[0]
    mcc, lines = mcc[between], lines[between]
    if mcc.amax() <= 0:
        return ranked[0]  # nothing unseen stands out: nobody above the highest
    return lines[mcc >= _NEARLY * mcc.amax()].median()
