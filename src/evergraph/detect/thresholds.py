"""Thresholds: they decide above which score a vertex is flagged, calibrated on past slices."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from evergraph.detect.base import PAST, UNKNOWN, UNLABELLED, Outputs, State, set_number
from evergraph.errors import InputError

__all__ = ["BackTest", "Budget", "Conformal", "Fixed", "Past", "Threshold"]

_MOST = 200_000  # newest vertices that are kept: more would not change a threshold
_COLUMNS = {"scores": torch.float64, "unseen": torch.bool, "best": torch.int64, "slices": torch.int64}
_DEGREES = (0.0, 0.25, 0.5, 0.75, 1.0)  # candidates for how far slices are shifted to one median
_EDGE = 0.02  # difference in MCC that multiplies the weight of a degree by e
_SLICES = 2.0  # slices with unseen classes that degree 0 counts for
_FEW = 3  # unseen vertices that a slice with unseen classes has at least
_SMALL = 30  # vertices of a slice at which its median is trusted by half
_ROUNDING = 1e-9  # scores closer than this are equal
_NEARLY = 0.95  # thresholds that reach this share of the best MCC are equally good: the median of them is used


@dataclass(frozen=True, eq=False)
class Past:
    """Scored vertices of past slices whose labels have arrived, oldest first.

    Parameters
    ----------
    scores
        Score of each vertex when it was decided, as float64.
    unseen
        Whether its class was unseen then.
    best
        Column of the class that was predicted for it.
    slices
        Number of its slice, from 0 in the order of observation.

    Examples
    --------
    >>> outputs, targets = Outputs(torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])), torch.tensor([0, -1, -2])
    >>> past = Past.of({}).grown(torch.tensor([0.25, 0.75, 0.5]), outputs, targets)  # the last has no label yet
    >>> past.scores.tolist(), past.unseen.tolist(), past.best.tolist(), past.slices.tolist()
    ([0.25, 0.75], [False, True], [0, 1], [0, 0])
    >>> len(Past.of(past.as_state()))
    2
    """

    scores: Tensor
    unseen: Tensor
    best: Tensor
    slices: Tensor

    def __len__(self) -> int:
        return len(self.scores)

    @classmethod
    def of(cls, state: State) -> Past:
        """The past in a detector's state; empty if nothing was observed yet."""
        columns = {name: state.get(PAST + name, torch.empty(0, dtype=dtype)) for name, dtype in _COLUMNS.items()}
        rows = columns["scores"].shape
        fits = len(rows) == 1 and all(column.shape == rows for column in columns.values())
        if not fits or not torch.isin(columns["slices"].diff(), torch.tensor([0, 1]).to(columns["slices"])).all():
            raise InputError("the state has no past slices in order", fix="pass the state that observe returned")
        return cls(**columns)

    def as_state(self) -> dict[str, Tensor]:
        """The past as part of a detector's state, which survives cold restarts."""
        return {PAST + name: getattr(self, name) for name in _COLUMNS}

    def grown(self, scores: Tensor, outputs: Outputs, targets: Tensor) -> Past:
        """The past with one more slice; parameters as in `Detector.observe`."""
        there = targets != UNLABELLED
        found = {
            "scores": scores[there].double(),
            "unseen": targets[there] == UNKNOWN,
            "best": outputs.logits[there].argmax(1),
            "slices": torch.full_like(targets[there], int(self.slices[-1]) + 1 if len(self) else 0),
        }
        return Past(**{name: torch.cat([getattr(self, name).to(new), new])[-_MOST:] for name, new in found.items()})

    @property
    def known(self) -> Past:
        """The vertices whose class was known."""
        return Past(**{name: getattr(self, name)[~self.unseen] for name in _COLUMNS})


class Threshold(ABC):
    """Base class of thresholds: write a subclass as a frozen dataclass that holds settings only."""

    @abstractmethod
    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:
        """Return how far each score is above the threshold, as float64: vertices above 0 are flagged.

        Parameters
        ----------
        scores
            Score of each vertex of one slice.
        best
            Column of the class that is predicted for each vertex.
        past
            Scores of past slices, on the same scale.
        """


@dataclass(frozen=True)
class Fixed(Threshold):
    """Flag vertices that score above a fixed value.

    Parameters
    ----------
    value
        The threshold, on the scale of the score.
    """

    value: float = 0.0

    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:  # noqa: ARG002
        return scores - self.value


@dataclass(frozen=True)
class Budget(Threshold):
    """Flag the vertices of a slice with the highest scores, up to a fixed number.

    Fewer are flagged if several vertices share the score at the limit.

    Parameters
    ----------
    most
        Largest number of vertices to flag per slice.

    Examples
    --------
    >>> Budget(2).excess(torch.tensor([0.3, 0.9, 0.1, 0.5]), torch.zeros(4, dtype=torch.int64), Past.of({})) > 0
    tensor([False,  True, False,  True])
    """

    most: int = 100

    def __post_init__(self) -> None:
        set_number(self, "most", whole=True)

    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:  # noqa: ARG002
        if len(scores) <= self.most:
            return scores - scores.amin() + 1 if len(scores) else scores
        return scores - torch.topk(scores, self.most + 1).values[-1]


@dataclass(frozen=True)
class Conformal(Threshold):
    """Keep false alarms at a rate: split conformal prediction with a target that adapts.

    The threshold is the score that a share of the past known-class vertices exceed, counted so that one more vertex,
    exchangeable with them, exceeds it with at most that probability. Because slices drift, the share adapts: it is
    raised after a slice with fewer false alarms than the rate, and lowered after a slice with more.

    Sources: Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005; Gibbs and Candès, Adaptive
    Conformal Inference Under Distribution Shift, NeurIPS 2021.

    Parameters
    ----------
    rate
        Share of known-class vertices that may be flagged, from 0 to 1.
    step
        How fast the share adapts: after each slice it changes by ``step`` times the difference between the rate and
        the slice's share of false alarms. 0: never.

    Examples
    --------
    >>> past = Past.of({}).grown(torch.arange(99.0), Outputs(torch.zeros(99, 1)), torch.zeros(99, dtype=torch.int64))
    >>> Conformal(0.1).excess(torch.tensor([89.0, 89.5]), torch.tensor([0, 0]), past) > 0
    tensor([False,  True])
    """

    rate: float = 0.05
    step: float = 0.2

    def __post_init__(self) -> None:
        set_number(self, "rate", 0, 1)
        set_number(self, "step", hint=" (0.2 is usual)")

    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:  # noqa: ARG002
        known = past.known
        if not len(known):
            return _all_below(scores)
        return scores - _conformal(known.scores, self.shares(past)[-1])

    def shares(self, past: Past) -> list[float]:
        """The adapted share at each past slice but the first, and that for the next slice."""
        known, share, found = past.known, self.rate, []
        for before, number in pairwise(sorted(set(known.slices.tolist()))):
            found.append(share)
            alarms = known.scores[known.slices == number] > _conformal(known.scores[known.slices <= before], share)
            share = min(max(share + self.step * (self.rate - float(alarms.double().mean())), 0.0), 1.0)
        return [*found, share]


def _conformal(scores: Tensor, share: float) -> Tensor:
    """The threshold that one more vertex exceeds with at most this probability."""
    return quantile(scores, max(share * (len(scores) + 1) - 1, 0) / len(scores))


@dataclass(frozen=True)
class BackTest(Threshold):
    """The threshold with the highest MCC on past slices, as far as they had enough unseen vertices.

    A few unseen vertices say little, and even less if their scores are low. So the threshold is a weighted mean of
    two: the one with the highest MCC m on the past, and the one that a fixed share of past known-class vertices exceed.
    With n unseen vertices in the past, the first has the weight n m / (n m + weight).

    The scores of a whole slice may be high because of drift, or because it has many vertices of a new class. Past
    slices show which: the more it would have raised their MCC to shift them to one median, the further this slice is
    shifted. Until some slices had new classes, none is shifted.

    Parameters
    ----------
    share
        Share of past known-class vertices above the threshold as long as there were no unseen vertices, from 0 to 1.
    weight
        Number of unseen vertices, perfectly separated, at which both thresholds count the same.
    most
        Largest share of a slice to flag, rounded up to whole vertices.
    level
        How far slices are shifted to one median: 0 not at all, 1 completely; None learns it from past slices.

    Examples
    --------
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
        set_number(self, "share", 0, 1)
        set_number(self, "weight")
        set_number(self, "most", 0, 1)
        if self.level is not None:
            set_number(self, "level", 0, 1)

    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:  # noqa: ARG002
        if not len(past.known) or not len(scores):
            return _all_below(scores)
        medians = _medians(past)
        above = (medians - medians.mean())[past.slices - past.slices[0]]
        degree = _degree(past, above) if self.level is None else self.level
        then = past.scores - degree * above
        trusted = len(scores) / (len(scores) + _SMALL)
        now = scores - degree * trusted * (scores.median() - medians.mean())
        threshold = quantile(then[~past.unseen], self.share)
        if unseen := int(past.unseen.sum()):
            best_so_far, mcc = best_threshold(then, past.unseen)
            evidence = unseen * float(mcc)
            counts = evidence / (evidence + self.weight) if evidence > 0 else 0.0
            threshold = counts * best_so_far + (1 - counts) * threshold
        allowed = math.ceil(self.most * len(now) - 1e-9)
        if allowed < len(now):
            threshold = torch.maximum(threshold, torch.topk(now, allowed + 1).values[-1] + _ROUNDING)
        return now - threshold


def _medians(past: Past) -> Tensor:
    """Median score of each past slice."""
    number = past.slices - past.slices[0]
    return torch.stack([past.scores[number == one].median() for one in range(int(number[-1]) + 1)])


def _degree(past: Past, above: Tensor) -> float:
    """How far to shift slices to one median: the mean of some degrees, weighted by the MCC that each reaches.

    ``above`` is, for each vertex, how far the median of its slice is above the mean of all medians.
    """
    births = int((torch.bincount(past.slices[past.unseen]) >= _FEW).sum())
    if not births:
        return 0.0
    reached = torch.stack([best_threshold(past.scores - degree * above, past.unseen)[1] for degree in _DEGREES])
    counts = torch.softmax(reached / _EDGE, 0)
    learnt = float(counts @ torch.tensor(_DEGREES).to(counts))
    return births * learnt / (births + _SLICES)


def best_threshold(scores: Tensor, unseen: Tensor) -> tuple[Tensor, Tensor]:
    """The median of the thresholds between two scores whose MCC is nearly the highest, and the highest MCC."""
    order = torch.argsort(scores, descending=True)
    ranked, hits = scores[order].double(), torch.cumsum(unseen[order].double(), 0)
    above = torch.arange(1, len(ranked) + 1, dtype=torch.float64, device=ranked.device)
    total, everyone = hits[-1], float(len(ranked))
    spread = torch.sqrt(above * (everyone - above) * total * (everyone - total))
    mcc = torch.where(spread > 0, (hits * everyone - above * total) / torch.where(spread > 0, spread, 1), 0)[:-1]
    middles = (ranked[:-1] + ranked[1:]) / 2
    between = ranked[:-1] > ranked[1:]  # no threshold is between equal scores
    if not between.any():
        return ranked[0], ranked.new_zeros(())
    mcc, middles = mcc[between], middles[between]
    if mcc.amax() <= 0:
        return ranked[0], mcc.amax()  # unseen vertices do not score higher: flag none
    return middles[mcc >= _NEARLY * mcc.amax()].median(), mcc.amax()


def quantile(scores: Tensor, share: float) -> Tensor:
    """The smallest score that at most a share of the scores exceed; with a share of 0 the largest."""
    place = len(scores) - int(share * len(scores) + 1e-9)
    return scores.sort().values[max(place - 1, 0)]


def _all_below(scores: Tensor) -> Tensor:
    """The excess before there is a threshold: all below 0, in the order of the scores."""
    return scores - (scores.amax() + 1) if len(scores) else scores
