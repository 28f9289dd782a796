"""Thresholds: rules that decide which scores are flagged, calibrated on past slices."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from evergraph.detect.base import PAST, UNKNOWN, UNLABELLED, Outputs, State, plain_number
from evergraph.errors import InputError

__all__ = ["BackTest", "Budget", "Conformal", "Fixed", "Past", "Quantile", "Threshold"]

_MOST = 200_000  # vertices, the newest: more say nothing more about a threshold
_COLUMNS = {"scores": torch.float64, "unseen": torch.bool, "best": torch.int64, "slices": torch.int64}
_DEGREES = (0.0, 0.25, 0.5, 0.75, 1.0)  # to which slices may be put on one level
_EDGE = 0.02  # MCC by which a degree must be better to count e times as much
_SLICES = 2.0  # with new classes, that degree 0 counts for
_FEW = 3  # unseen vertices that make such a slice
_SMALL = 30  # vertices of a slice with which half of its level is trusted
_ROUNDING = 1e-9  # scores nearer than this are the same
_NEARLY = 0.95  # lines that reach this share of the best coefficient are as good: the middle one is taken


@dataclass(frozen=True, eq=False)
class Past:
    """Scored vertices whose labels have come, oldest first.

    Parameters
    ----------
    scores
        How unseen each seemed when it was decided, as float64.
    unseen
        Whether the model that decided did not know its class.
    best
        The column of the class that was predicted for it.
    slices
        The number of its slice: 0 for the first that was observed, then 1 and so on.

    Examples
    --------
    >>> outputs, targets = Outputs(torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])), torch.tensor([0, -1, -2])
    >>> past = Past.of({}).grown(torch.tensor([0.25, 0.75, 0.5]), outputs, targets)  # of the last no label has come
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
        """The past in a detector's state; empty where nothing was observed yet."""
        empty = {name: torch.empty(0, dtype=dtype) for name, dtype in _COLUMNS.items()}
        return cls(**{name: state.get(PAST + name, nothing) for name, nothing in empty.items()})

    def as_state(self) -> dict[str, Tensor]:
        """Fit for a detector's state; it outlives cold restarts."""
        return {PAST + name: getattr(self, name) for name in _COLUMNS}

    def grown(self, scores: Tensor, outputs: Outputs, targets: Tensor) -> Past:
        """With one slice more; parameters as of `Detector.observe`."""
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
        """Those whose class was known."""
        return self.part(~self.unseen)

    def part(self, chosen: Tensor) -> Past:
        """Some of them."""
        return Past(self.scores[chosen], self.unseen[chosen], self.best[chosen], self.slices[chosen])


class Threshold(ABC):
    """A rule that draws a line between known and unseen; write a subclass as a frozen dataclass."""

    @abstractmethod
    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:
        """How far the score of each vertex is above its line, as float64: those above 0 are flagged.

        Parameters
        ----------
        scores
            How unseen each vertex seems, all of one slice.
        best
            The column of the class that is predicted for it.
        past
            What became of earlier decisions, on the same scale.
        """


@dataclass(frozen=True)
class Fixed(Threshold):
    """Flag vertices that score above a given value.

    Parameters
    ----------
    value
        On the scale of the score.

    Examples
    --------
    >>> Fixed(0.5).excess(torch.tensor([0.25, 0.75]), torch.tensor([0, 0]), Past.of({}))
    tensor([-0.2500,  0.2500])
    """

    value: float = 0.0

    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:  # noqa: ARG002
        """Score minus value."""
        return scores - self.value


@dataclass(frozen=True)
class Quantile(Threshold):
    """Flag vertices that score higher than all but a share of the known-class vertices of the past.

    Each predicted class has a line of its own, shrunk to that of all: (n_c · q_c + weight · q) / (n_c + weight), where
    n_c vertices of the past were of a known class and predicted as class c. Without a past no vertex is flagged.

    Parameters
    ----------
    share
        Of the known-class vertices of the past that lie above the line.
    weight
        How many vertices the line of all counts for.

    Examples
    --------
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
            return none_above(scores)
        overall = quantile(known.scores, self.share)
        lines = torch.full_like(scores, float(overall))
        for column in sorted(set(best.tolist())):
            own = known.scores[known.best == column]
            if len(own):
                line = (len(own) * quantile(own, self.share) + self.weight * overall) / (len(own) + self.weight)
                lines[best == column] = line
        return scores - lines


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
        Share of known-class vertices that may be flagged.
    step
        How fast the share follows: it moves by ``step`` times what the last slice missed the rate by. 0: never.

    Examples
    --------
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
            return none_above(scores)
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


@dataclass(frozen=True)
class Budget(Threshold):
    """Flag at most so many vertices of each slice, those with the highest scores.

    Fewer are, where several vertices share the score on which the line falls.

    Parameters
    ----------
    most
        How many.

    Examples
    --------
    >>> Budget(2).excess(torch.tensor([0.3, 0.9, 0.1, 0.5]), torch.zeros(4, dtype=torch.int64), Past.of({})) > 0
    tensor([False,  True, False,  True])
    """

    most: int = 100

    def __post_init__(self) -> None:
        if isinstance(self.most, bool) or not isinstance(self.most, int) or self.most < 0:
            raise InputError(f"the argument most is {self.most!r}", fix="set most to a whole number from 0 up")

    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:  # noqa: ARG002
        """Score minus the highest score that is not flagged."""
        if len(scores) <= self.most:
            return scores - scores.amin() + 1 if len(scores) else scores
        return scores - torch.topk(scores, self.most + 1).values[-1]


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
        Share of a slice that is flagged at most, rounded up.
    level
        How far slices are put on one level: 0 not at all, 1 wholly; None asks the past.

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
        object.__setattr__(self, "share", check_share("share", self.share))
        object.__setattr__(self, "weight", check_weight("weight", self.weight))
        object.__setattr__(self, "most", check_share("most", self.most))
        object.__setattr__(self, "level", None if self.level is None else check_share("level", self.level))

    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:  # noqa: ARG002
        """Score, put on the level of the past, minus the line."""
        if not len(past.known) or not len(scores):
            return none_above(scores)
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


def quantile(scores: Tensor, share: float) -> Tensor:
    """The least score that at most a share of these exceed; with a share of 0 the largest.

    Examples
    --------
    >>> quantile(torch.tensor([1.0, 2.0, 3.0, 4.0]), 0.25)
    tensor(3.)
    """
    place = len(scores) - int(share * len(scores) + 1e-9)
    return scores.sort().values[max(place - 1, 0)]


def none_above(scores: Tensor) -> Tensor:
    """The excess where there is no line yet: all are below it, in the order of their scores."""
    return scores - (scores.amax() + 1) if len(scores) else scores


def check_share(name: str, value: float) -> float:
    """A share as a plain float; an `InputError` where it is none."""
    if not 0 <= plain_number(value) <= 1:
        raise InputError(
            f"the argument {name} is {value!r}, which is no share", fix=f"set {name} to a number from 0 to 1"
        )
    return float(value)


def check_weight(name: str, value: float) -> float:
    """A number of vertices as a plain float; an `InputError` where it is none."""
    if not 0 <= plain_number(value) < math.inf:
        raise InputError(
            f"the argument {name} is {value!r}, which is no number of vertices", fix=f"set {name} to a number from 0 up"
        )
    return float(value)
