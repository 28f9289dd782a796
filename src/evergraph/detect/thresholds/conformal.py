"""A line that keeps the rate of false alarms near a target, and is moved when the rate is missed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from evergraph.detect.past import Past
from evergraph.detect.thresholds.base import Threshold, check_share, nobody, quantile
from evergraph.errors import InputError

__all__ = ["Conformal"]


@dataclass(frozen=True)
class Conformal(Threshold):
    """Split conformal prediction with a target that adapts.

    The line is the score that a share of the known-class vertices of the past exceed, counted so that one vertex more,
    exchangeable with them, exceeds it with at most the target's probability. Slices drift, so that does not hold for
    long; therefore each past slice is judged by the line drawn before it, and the share is raised where there were
    fewer false alarms than wanted, and lowered where there were more.

    Sources: Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005; Gibbs and Candès, Adaptive
    Conformal Inference Under Distribution Shift, NeurIPS 2021.

    Parameters
    ----------
    rate
        Share of known-class vertices that may be rejected.
    step
        How fast the share follows: it moves by ``step`` times what the last slice missed the rate by. 0: never.

    Examples
    --------
    >>> import torch
    >>> from evergraph.detect import Outputs
    >>> past = Past.of({}).grown(torch.arange(99.0), Outputs(torch.zeros(99, 1)), torch.zeros(99, dtype=torch.int64))
    >>> Conformal(0.1).excess(torch.tensor([89.0, 89.5]), torch.tensor([0, 0]), past) > 0
    tensor([False,  True])
    """

    rate: float = 0.05
    step: float = 0.2

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", check_share("rate", self.rate))
        if isinstance(self.step, bool) or not 0 <= self.step < float("inf"):
            raise InputError(f"the argument step is {self.step!r}", fix="set step to a number from 0 up (0.2 is usual)")
        object.__setattr__(self, "step", float(self.step))

    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:  # noqa: ARG002
        """Score minus the line."""
        known = past.known
        if not len(known):
            return nobody(scores)
        return scores - _line(known.scores, self.shares(past)[-1])

    def shares(self, past: Past) -> list[float]:
        """The share that the line was drawn for at each past slice but the first, and that for the slice to come."""
        known, share, found = past.known, self.rate, []
        for before, number in pairwise(sorted(set(known.slices.tolist()))):
            found.append(share)
            alarms = known.scores[known.slices == number] > _line(known.scores[known.slices <= before], share)
            share = min(max(share + self.step * (self.rate - float(alarms.double().mean())), 0.0), 1.0)
        return [*found, share]


def _line(scores: Tensor, share: float) -> Tensor:
    """The line that one vertex more crosses with at most this probability."""
    return quantile(scores, max(share * (len(scores) + 1) - 1, 0) / len(scores))
