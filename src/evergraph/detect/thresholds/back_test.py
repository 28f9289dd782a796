"""The line that would have served best so far."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.past import Past
from evergraph.detect.thresholds.base import Threshold, check_share, check_weight, nobody, quantile

__all__ = ["BackTest"]

_DEGREES = (0.0, 0.25, 0.5, 0.75, 1.0)  # to which slices may be put on one level
_EDGE = 0.02  # MCC by which a degree must be better to count e times as much
_SLICES = 2.0  # with new classes, that degree 0 counts for
_FEW = 3  # unseen vertices that make such a slice
_SMALL = 30  # vertices of a slice with which half of its level is trusted
_ROUNDING = 1e-9  # scores nearer than this are the same
_NEARLY = 0.95  # lines that reach this share of the best coefficient are as good: the middle one is taken


@dataclass(frozen=True)
class BackTest(Threshold):
    """The line with the highest MCC on the past, as far as the past has vertices of unseen classes to learn it from.

    Few such vertices say little, and the less so the less they stand out. So the line lies between that of the past and
    the one that a share of its known-class vertices exceed: with n unseen vertices, of which its line reaches an MCC of
    m, the past counts n m / (n m + weight).

    Scores may drift from slice to slice, or be high all over a slice in which a class is born. Which of the two it is,
    the past tells, too: the more it helped there to put slices on one level (the median of their scores), the further
    this one is. As long as few slices had new classes, levels are left as they are.

    Parameters
    ----------
    share
        Of the known-class vertices above the line as long as nothing unseen was met.
    weight
        How many unseen vertices that stand out perfectly it takes for the past to count as much as that.
    most
        Share of a slice that is rejected at most, rounded up.
    level
        How far slices are put on one level: 0 not at all, 1 wholly; None asks the past.

    Examples
    --------
    >>> from evergraph.detect import Outputs
    >>> targets = torch.tensor([0] * 80 + [-1] * 20)
    >>> past = Past.of({}).grown(torch.arange(100.0), Outputs(torch.zeros(100, 1)), targets)
    >>> scores = torch.tensor([78.0, 81.0, 99.0])
    >>> BackTest(weight=0, most=1, level=0).excess(scores, torch.zeros(3, dtype=torch.int64), past) > 0
    tensor([False,  True,  True])
    """

    share: float = 0.2
    weight: float = 100.0
    most: float = 0.3
    level: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", check_share("share", self.share))
        object.__setattr__(self, "weight", check_weight("weight", self.weight))
        object.__setattr__(self, "most", check_share("most", self.most))
        object.__setattr__(self, "level", None if self.level is None else check_share("level", self.level))

    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:  # noqa: ARG002
        """Score, put on the level of the past, minus the line."""
        if not len(past.known) or not len(scores):
            return nobody(scores)
        levels = _levels(past)
        above = (levels - levels.mean())[past.slices - past.slices[0]]
        degree = _degree(past, above) if self.level is None else self.level
        then = past.scores - degree * above
        trusted = len(scores) / (len(scores) + _SMALL)  # a few vertices make no level
        now = scores - degree * trusted * (scores.median() - levels.mean())
        line = quantile(then[~past.unseen], self.share)
        if unseen := int(past.unseen.sum()):
            best_so_far, mcc = best_line(then, past.unseen)
            says = unseen * float(mcc)
            counts = says / (says + self.weight) if says > 0 else 0.0
            line = counts * best_so_far + (1 - counts) * line
        allowed = math.ceil(self.most * len(now) - 1e-9)
        if allowed < len(now):
            line = torch.maximum(line, torch.topk(now, allowed + 1).values[-1] + _ROUNDING)
        return now - line


def _levels(past: Past) -> Tensor:
    """The level of each slice."""
    number = past.slices - past.slices[0]
    return torch.stack([past.scores[number == one].median() for one in range(int(number[-1]) + 1)])


def _degree(past: Past, above: Tensor) -> float:
    """How far to put slices on one level: the mean of some degrees, each counting by the MCC that it reached.

    ``above`` is, for each vertex, how far the level of its slice is above that of all slices.
    """
    births = int((torch.bincount(past.slices[past.unseen]) >= _FEW).sum())
    if not births:
        return 0.0
    reached = torch.stack([best_line(past.scores - degree * above, past.unseen)[1] for degree in _DEGREES])
    counts = torch.softmax(reached / _EDGE, 0)
    learnt = float(counts @ torch.tensor(_DEGREES).to(counts))
    return births * learnt / (births + _SLICES)


def best_line(scores: Tensor, unseen: Tensor) -> tuple[Tensor, Tensor]:
    """The middle of the lines between two scores whose MCC is nearly the highest, and the highest.

    Examples
    --------
    >>> best_line(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([False, False, True, True]))
    (tensor(2.5000, dtype=torch.float64), tensor(1., dtype=torch.float64))
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
        return ranked[0], ranked.new_zeros(())
    mcc, lines = mcc[between], lines[between]
    if mcc.amax() <= 0:
        return ranked[0], mcc.amax()  # nothing unseen stands out: nobody above the highest
    return lines[mcc >= _NEARLY * mcc.amax()].median(), mcc.amax()
