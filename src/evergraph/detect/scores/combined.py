"""Scores made of other scores: standardised, propagated and averaged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from evergraph.detect.base import PAST, Outputs, Requirements, State, plain_number
from evergraph.detect.scores.base import Score, predicted
from evergraph.detect.scores.outputs import fitted
from evergraph.errors import InputError

__all__ = ["Average", "Propagated", "Relative"]

_INNER = "score"
_ROUNDING, _NOTHING = 1e-6, 1e-20  # spread, relative to the largest score or at all, that may be nothing but rounding
_INNER = "score"
_MEANS, _VARIANCES = f"{PAST}means", f"{PAST}variances"
_MOST = 4.0  # deviations; what lies further out counts no more


@dataclass(frozen=True)
class _OfOne(Score):
    """A score made of one other score, whose state it keeps under names that start with ``score/``."""

    score: Score

    def __post_init__(self) -> None:
        if not isinstance(self.score, Score):
            raise InputError(
                f"the argument score is {self.score!r}, which is no score", fix="give one of evergraph.detect.scores"
            )

    @property
    def requires(self) -> Requirements:
        """Those of the other score."""
        return self.score.requires

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        """State of the other score."""
        return outer_state(self.score.fit(outputs, targets, inner_state(state, _INNER)), _INNER)

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        """What the other score keeps."""
        return outer_state(self.score.observe(outputs, targets, inner_state(state, _INNER)), _INNER)


@dataclass(frozen=True)
class Relative(_OfOne):
    """Another score, standardised by its values on the training vertices that are predicted as the same class.

    (x - mean_c) / sd_c, where c is the class predicted for the vertex. Raw scores move from task to task as a model
    that is trained on and on grows more confident; relative to its own training vertices they do not.

    The state is ``mean`` and ``sd``, one float64 for each known class, ``mean_of_all`` and ``sd_of_all``, and the state
    of the other score under names that start with ``score/``. Classes that no training vertex is predicted as have the
    values of all. Where all training vertices score alike, every deviation is 1. A vertex that is predicted as several
    classes, because their logits are the same, counts for each of them in equal parts.

    Parameters
    ----------
    score
        The other score.
    weight
        How many vertices of its own it takes for a class to count as much as all training vertices together; above 0.

    Examples
    --------
    >>> from evergraph.detect.scores import MaxLogit
    >>> score, train = Relative(MaxLogit(), weight=2), torch.tensor([[9.0, 0.0], [7.0, 0.0], [0.0, 2.0]])
    >>> state = score.fit(Outputs(train), torch.tensor([0, 0, 1]), state={})
    >>> state["mean"], state["mean_of_all"]
    (tensor([-7.0000, -4.6667], dtype=torch.float64), tensor(-6., dtype=torch.float64))
    >>> score.compute(Outputs(torch.tensor([[7.0, 0.0], [0.0, 7.0]])), state)
    tensor([ 0.0000, -0.9707], dtype=torch.float64)
    """

    weight: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        weight = plain_number(self.weight)
        if not 0 < weight < math.inf:
            raise InputError(
                f"the argument weight is {self.weight!r}, which is no number above 0",
                fix="set weight to a number of vertices above 0 (10 is usual)",
            )
        object.__setattr__(self, "weight", weight)

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        """State of this score and of the other."""
        inner = self.score.fit(outputs, targets, inner_state(state, _INNER))
        x = self.score.compute(outputs, inner)
        rows, columns, parts = predicted(outputs.logits)
        own, parts = x[rows], parts[rows]
        classes, everyone = outputs.logits.shape[1], max(len(x), 1)

        def sums(values: Tensor) -> Tensor:
            return torch.bincount(columns, values, minlength=classes)

        overall = x.sum() / everyone
        variance = (x - overall).square().sum() / everyone
        counts = sums(parts)
        mean = sums(parts * own) / torch.where(counts > 0, counts, 1)
        squares = sums(parts * (own - mean[columns]).square())
        sd = torch.sqrt((squares + self.weight * variance) / (counts + self.weight))
        least = torch.cat([_ROUNDING * x.abs(), x.new_full((1,), _NOTHING)]).amax()
        alike = variance.sqrt() <= least
        return {
            "mean": (counts * mean + self.weight * overall) / (counts + self.weight),
            "sd": torch.where(alike, 1, sd.clamp(min=least)),
            "mean_of_all": overall,
            "sd_of_all": torch.where(alike, 1, variance.sqrt()),
            **outer_state(inner, _INNER),
        }

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        """The score of each vertex."""
        x = self.score.compute(outputs, inner_state(state, _INNER))
        mean, sd = (_of_classes(state, name, outputs.logits.shape[1]).to(x) for name in ("mean", "sd"))
        rows, columns, parts = predicted(outputs.logits)
        return parts * torch.zeros_like(x).index_add_(0, rows, (x[rows] - mean[columns]) / sd[columns])


def _of_classes(state: State, name: str, classes: int) -> Tensor:
    """A value for each class; that of all for those that came after the state was fitted."""
    values = fitted(state, name)
    return torch.cat([values, fitted(state, f"{name}_of_all").expand(max(classes - len(values), 0))])


@dataclass(frozen=True)
class Propagated(_OfOne):
    """x ← (1 - weight) · score + weight · mean of x over similar vertices, repeated; with none, the score itself.

    A new class comes as a group: its vertices link to each other and share words. Similar are the neighbours within the
    slice and the five nearest by words (`SliceContext.similar`). Older vertices do not take part, because their classes
    are known.

    Source of the idea: energy propagation in Wu et al., Energy-based Out-of-Distribution Detection for Graph Neural
    Networks, ICLR 2023, which goes over all edges.

    Parameters
    ----------
    score
        The other score.
    weight
        Weight of the similar vertices, from 0 up to 1.
    rounds
        How many times.

    Examples
    --------
    >>> from evergraph.detect.scores import Energy
    >>> Propagated(Energy()).compute(Outputs(torch.zeros(1, 2)), {})  # without a graph to look at, the score itself
    tensor([-0.6931], dtype=torch.float64)
    """

    weight: float = 0.7
    rounds: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        weight = plain_number(self.weight)
        if not 0 <= weight <= 1:
            raise InputError(f"the argument weight is {self.weight!r}", fix="set weight to a number from 0 to 1")
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 0:
            raise InputError(f"the argument rounds is {self.rounds!r}", fix="set rounds to a whole number from 0 up")
        object.__setattr__(self, "weight", weight)

    @property
    def requires(self) -> Requirements:
        """Those of the other score, and the context of the slice."""
        return self.score.requires | Requirements(fit=False, context=True)

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        """The score of each vertex."""
        x = self.score.compute(outputs, inner_state(state, _INNER))
        if outputs.context is None or not len(x):
            return x
        similar = outputs.context.similar
        ties = np.asarray(similar.sum(1)).ravel()
        mean = sparse.diags_array(1 / np.where(ties > 0, ties, 1)) @ similar
        own = x.cpu().numpy()
        found = own
        for _ in range(self.rounds):
            found = np.where(ties > 0, (1 - self.weight) * own + self.weight * (mean @ found), own)
        return torch.from_numpy(found).to(x.device)


@dataclass(frozen=True)
class Average(Score):
    """Weighted mean of several scores, each in standard deviations from the known-class vertices of the past.

    All observed slices count alike. A score that is 0 for a whole slice is ignored there, and nothing is learnt of it.
    Levels are kept from slice to slice: where a whole slice scores higher than ever before, its average is high. Before
    anything was observed, scores are standardised by the slice itself.

    The state has for each slice of the past a row of ``past.means`` and ``past.variances`` of known-class vertices, one
    column a score, and the states of the scores under their numbers.

    Parameters
    ----------
    scores
        One or more.
    counts
        How much each counts; all the same unless given.

    Examples
    --------
    >>> from evergraph.detect.scores import Energy, MaxLogit
    >>> both, outputs = Average((Energy(), MaxLogit())), Outputs(torch.tensor([[0.0], [2.0]]))
    >>> both.compute(outputs, both.observe(outputs, torch.tensor([0, 0]), {}))
    tensor([ 1., -1.], dtype=torch.float64)
    """

    scores: tuple[Score, ...]
    counts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        scores = tuple(self.scores)
        if not scores or not all(isinstance(score, Score) for score in scores):
            raise InputError(
                f"the argument scores is {self.scores!r}", fix="give one or more of evergraph.detect.scores"
            )
        given = tuple(self.counts) if isinstance(self.counts, (tuple, list)) else (self.counts,)
        counts = tuple(map(plain_number, given)) or (1.0,) * len(scores)
        if len(counts) != len(scores) or not all(0 < count < math.inf for count in counts):
            raise InputError(
                f"the argument counts is {self.counts!r} for {len(scores)} scores",
                fix="give as many numbers above 0 as there are scores, or none",
            )
        if len({score.requires.auxiliary for score in scores} - {None}) > 1:
            raise InputError("the scores require different auxiliary models", fix="leave all but one kind of them out")
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "counts", counts)

    @property
    def requires(self) -> Requirements:
        """Those of all scores."""
        return reduce(Requirements.__or__, (score.requires for score in self.scores))

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        """States of the scores."""
        found: dict[str, Tensor] = {}
        for number, score in enumerate(self.scores):
            found |= outer_state(score.fit(outputs, targets, inner_state(state, str(number))), str(number))
        return found

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        """With means and variances of one slice more, and what the scores keep."""
        found: dict[str, Tensor] = {}
        for number, score in enumerate(self.scores):
            found |= outer_state(score.observe(outputs, targets, inner_state(state, str(number))), str(number))
        raw = self._raw(outputs, state)
        known = raw[targets >= 0]
        if len(known):
            for name, row in ((_MEANS, known.mean(0)), (_VARIANCES, known.var(0, correction=0))):
                row[_silent(raw)] = torch.nan
                found[name] = torch.cat([state.get(name, row.new_empty(0, *row.shape)).to(row), row[None]])
        return found

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        """The score of each vertex."""
        raw = self._raw(outputs, state)
        if not len(raw):
            return raw.sum(1)
        if _MEANS in state:
            means, variances = state[_MEANS].to(raw), state[_VARIANCES].to(raw)
        else:
            means, variances = raw.mean(0, keepdim=True), raw.var(0, correction=0, keepdim=True)
        middle = means.nanmean(0)
        spread = torch.sqrt(variances.nanmean(0) + (means - middle).square().nanmean(0))
        says = ~_silent(raw) & (spread > 1e-9 * raw.abs().amax(0))  # not where all were alike
        middle, spread = torch.where(says, middle, 0), torch.where(says, spread, 1)
        deviations = torch.where(says, ((raw - middle) / spread).clamp(-_MOST, _MOST), 0)
        counts = torch.tensor(self.counts, dtype=raw.dtype, device=raw.device)
        return deviations @ (counts / counts.sum())

    def _raw(self, outputs: Outputs, state: State) -> Tensor:
        """One column a score."""
        return torch.stack(
            [score.compute(outputs, inner_state(state, str(number))) for number, score in enumerate(self.scores)], 1
        )


def _silent(raw: Tensor) -> Tensor:
    """Scores that had nothing to see in a slice."""
    return (raw == 0).all(0)


def inner_state(state: State, label: str) -> State:
    """The part of a state that belongs to a score within another one.

    Examples
    --------
    >>> state = {"a/mean": torch.ones(1), "past.a/mean": torch.ones(1), "b/mean": torch.ones(1)}
    >>> sorted(inner_state(state, "a"))
    ['mean', 'past.mean']
    """
    found = {}
    for name, value in state.items():
        past, own = (PAST, name.removeprefix(PAST)) if name.startswith(PAST) else ("", name)
        if own.startswith(f"{label}/"):
            found[past + own.removeprefix(f"{label}/")] = value
    return found


def outer_state(state: State, label: str) -> dict[str, Tensor]:
    """The state of a score within another one, by names that tell it apart: the reverse of `inner_state`.

    Examples
    --------
    >>> sorted(outer_state({"mean": torch.ones(1), "past.mean": torch.ones(1)}, "a"))
    ['a/mean', 'past.a/mean']
    """
    return {
        f"{PAST}{label}/{name.removeprefix(PAST)}" if name.startswith(PAST) else f"{label}/{name}": value
        for name, value in state.items()
    }
