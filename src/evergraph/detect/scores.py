"""Scores: one number per vertex, higher means more likely unseen. `PostHoc` combines one with a threshold.

Three kinds: scores of a model's outputs (`MSP`, `Energy`, `AuxiliaryModel`); scores of a slice's words and neighbours
(the subclasses of `ContextScore`); and scores made of other scores (`Relative`, `Propagated`, `Average`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import reduce
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from evergraph.detect.base import PAST, Outputs, Requirements, State, set_number
from evergraph.detect.doc import GDOC
from evergraph.errors import InputError
from evergraph.inputs.slice_context import SliceContext

__all__ = [
    "MSP",
    "AuxiliaryModel",
    "Average",
    "ClassLikelihood",
    "ContextScore",
    "Energy",
    "ExcessWords",
    "KnownDistance",
    "NewWords",
    "Propagated",
    "Relative",
    "Score",
    "SliceDensity",
    "WordGrowth",
]

_TEXTS = 5.0  # texts that the share of all classes counts for, in a class's share of texts with a word
_WORDS = 50.0  # words that the distribution of all classes counts for, in a class's distribution of words
_LEAST = 0.1  # count of a word that no labelled text has
_ROUNDING, _NOTHING = 1e-6, 1e-20  # a spread below this, relative to the largest score or absolute, may be rounding
_MEANS, _VARIANCES = f"{PAST}means", f"{PAST}variances"
_FARTHEST = 4.0  # standard deviations; values beyond it are clipped


class Score(ABC):
    """Base class of scores: write a subclass as a frozen dataclass that holds settings only.

    Neither the order of the classes nor the order of the vertices matters. What a score fits after training is its
    state, as in `Detector`.

    Examples
    --------
    A score that is high if the two largest logits are close to each other:

    >>> @dataclass(frozen=True)
    ... class Margin(Score):
    ...     def compute(self, outputs, state):
    ...         first, second = outputs.logits.double().topk(2, dim=1).values.T
    ...         return second - first
    >>> Margin().compute(Outputs(torch.tensor([[5.0, 0.0, 1.0], [2.0, 2.5, 0.0]])), {})
    tensor([-4.0000, -0.5000], dtype=torch.float64)
    """

    @property
    def requires(self) -> Requirements:
        """What the learner must provide; by default only the call of `fit`."""
        return Requirements()

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002  # most have no state
        """Return the state after training on a task, as in `Detector.fit`; empty by default."""
        return {}

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002  # most do not
        """Return what changes in the state when labels of a decided slice arrive; nothing by default.

        Parameters are those of `Detector.observe`. Unlike there, the result is merged into the state.
        """
        return {}

    @abstractmethod
    def compute(self, outputs: Outputs, state: State) -> Tensor:
        """Return the score of each vertex, as float64."""


# --- scores of a model's outputs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MSP(Score):
    """1 minus the largest softmax probability (maximum softmax probability).

    Source: Hendrycks and Gimpel, A Baseline for Detecting Misclassified and Out-of-Distribution Examples, ICLR 2017.

    Examples
    --------
    >>> MSP().compute(Outputs(torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0], [99.0, 0.0, 0.0]])), {})
    tensor([2.4676e-04, 6.6667e-01, 2.0224e-43], dtype=torch.float64)
    """

    def compute(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        # The odds against the most likely class, (1 - p) / p, summed over the others: precise even if p is close to 1.
        x = outputs.logits.double()
        likeliest = x.argmax(1, keepdim=True)
        odds = torch.exp(x - x.gather(1, likeliest)).scatter(1, likeliest, 0.0).sum(1)
        return odds / (1 + odds)


@dataclass(frozen=True)
class Energy(Score):
    """-T · log Σ exp(logit / T) over the known classes: low if some class has a large logit.

    Source: Liu et al., Energy-based Out-of-distribution Detection, NeurIPS 2020.

    Parameters
    ----------
    temperature
        T, above 0. The lower, the closer to minus the largest logit.

    Examples
    --------
    >>> Energy().compute(Outputs(torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0]])), {})
    tensor([-9.0002, -1.0986], dtype=torch.float64)
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        set_number(self, "temperature", above=True, hint=" (1 is usual)")

    def compute(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        x = outputs.logits.double()
        top = x.amax(1, keepdim=True)
        # Differences from the largest are at most 0, so that they overflow at no temperature.
        return -(top.squeeze(1) + self.temperature * torch.logsumexp((x - top) / self.temperature, 1))


@dataclass(frozen=True)
class AuxiliaryModel(Score):
    """Minus the largest logit of an auxiliary model that is trained with gDOC's loss.

    A plain classifier learns to separate the known classes. One sigmoid per class also learns what belongs to no class,
    but separates the classes less well. So the model predicts the class, and the auxiliary model scores. It doubles the
    training time. Without an auxiliary model all vertices score 0.

    Source of the loss: Galke et al., Lifelong Learning on Evolving Graphs Under the Constraints of Imbalanced Classes
    and New Classes, 2023.

    Examples
    --------
    >>> logits = torch.tensor([[9.0, 0.0], [8.0, 0.0]])
    >>> AuxiliaryModel().compute(Outputs(logits, auxiliary_logits=torch.tensor([[4.0, -5.0], [-3.0, -4.0]])), {})
    tensor([-4.,  3.], dtype=torch.float64)
    """

    @property
    def requires(self) -> Requirements:
        return Requirements(fit=False, auxiliary=GDOC())

    def compute(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        if outputs.auxiliary_logits is None:
            return outputs.logits.new_zeros(len(outputs), dtype=torch.float64)
        return -outputs.auxiliary_logits.amax(1).double()


# --- scores of a slice in its graph; older vertices are those of the three periods before it -------------------------


class ContextScore(Score):
    """Base class of scores that read the slice and its recent past (`SliceContext`); nothing is fitted.

    Without context all vertices score 0. A vertex without a value gets the mean of the others.

    Examples
    --------
    >>> NewWords().compute(Outputs(torch.zeros(2, 3)), {})
    tensor([0., 0.], dtype=torch.float64)
    """

    @property
    def requires(self) -> Requirements:
        return Requirements(fit=False, context=True)

    @abstractmethod
    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:
        """Return a value for each vertex of the slice; NaN if there is nothing to measure."""

    def compute(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        if outputs.context is None or not len(outputs):
            return outputs.logits.new_zeros(len(outputs), dtype=torch.float64)
        found = np.asarray(self.values(outputs.context, outputs), np.float64)
        there = np.isfinite(found)
        found = np.where(there, found, found[there].mean() if there.any() else 0.0)
        return torch.from_numpy(found).to(outputs.logits.device)


@dataclass(frozen=True)
class NewWords(ContextScore):
    """Share of a vertex's words that occur in no older text."""

    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:  # noqa: ARG002
        return _mean_over_words(context, (context.texts[0] == 0).astype(np.float64))


@dataclass(frozen=True)
class WordGrowth(ContextScore):
    """Mean over a vertex's words of log(share of the slice's other texts with it / share of older texts with it).

    A new class uses words that many of its vertices share. They need not be new, but their use must grow. 1/2 is added
    to each count.
    """

    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:  # noqa: ARG002
        if not context.start:
            return np.full(len(context), np.nan)
        older, new = context.texts
        others = np.maximum(new - 1, 0)  # the vertex's own text is no evidence
        growth = np.log((others + 0.5) / len(context)) - np.log((older + 0.5) / context.start)
        return _mean_over_words(context, growth)


@dataclass(frozen=True)
class ExcessWords(ContextScore):
    """Mean over a vertex's words of log(other texts of the slice with it / expected number of such texts).

    The expected number is Σ_c n_c · P(word | c), where n_c vertices of the slice are predicted as class c, and
    P(word | c) is the share of texts with the word among the class's labelled older ones. So a known class that merely
    grows does not score high, as it does with `WordGrowth`.
    """

    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:
        rows, columns, parts = predicted(outputs.logits)
        vertices = torch.bincount(columns, parts[rows], minlength=outputs.logits.shape[1]).cpu().numpy()
        if not (context.known >= 0).any():
            return np.full(len(context), np.nan)
        texts, words = _words_of_classes(context)
        overall = words.sum(0) / texts.sum()
        share = (words + _TEXTS * overall) / (texts + _TEXTS)[:, None]
        expected = vertices @ share
        others = np.maximum(context.texts[1] - 1, 0)  # the vertex's own text is no evidence
        return _mean_over_words(context, np.log((others + 0.5) / (expected + 0.5)))


@dataclass(frozen=True)
class ClassLikelihood(ContextScore):
    """Minus the largest over the known classes of the mean over a vertex's words of log(P(word | class) / P(word)).

    This is the fit of naive Bayes to the best class, per word. Words are counted in older labelled texts; classes
    without any are left out.
    """

    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:  # noqa: ARG002
        if not (context.known >= 0).any():
            return np.full(len(context), np.nan)
        texts, words = _words_of_classes(context)
        total = words.sum(0)
        overall = (total + _LEAST) / (total.sum() + _LEAST * len(total))
        own = words[texts > 0]
        share = (own + _WORDS * overall) / (own.sum(1, keepdims=True) + _WORDS)
        return np.asarray(-_mean_over_words(context, np.log(share / overall).T).max(1))


@dataclass(frozen=True)
class KnownDistance(ContextScore):
    """Minus the mean cosine to the five nearest older vertices with labels of known classes.

    Vertices are compared by the content of their neighbourhoods (`SliceContext.vectors`). A model's hidden vectors
    would not do: they keep only what separates the known classes.
    """

    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:  # noqa: ARG002
        cosines = context.nearest_known
        if not cosines.shape[1]:
            return np.full(len(context), np.nan)
        return np.where(_has_content(context), -cosines.mean(1, dtype=np.float64), np.nan)


@dataclass(frozen=True)
class SliceDensity(ContextScore):
    """How many of a vertex's forty nearest vertices are in the slice itself, compared to chance: (k - 40·p) / sd.

    The nearest are searched in the slice and among older vertices by `SliceContext.vectors`; p is the slice's share of
    these vertices, and sd that of 40 draws. A new class forms a cluster in which there are no older vertices.
    """

    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:  # noqa: ARG002
        share = (len(context) - 1) / max(len(context.window) - 1, 1)
        if not 0 < share < 1:
            return np.full(len(context), np.nan)
        number = context.nearest.shape[1]
        new = (context.nearest >= context.start).mean(1)
        excess = (new - share) / np.sqrt(share * (1 - share) / number)
        return np.where(_has_content(context), excess, np.nan)


def _has_content(context: SliceContext) -> NDArray[np.bool_]:
    """Whether each vertex of the slice has words or features, or neighbours with some."""
    return np.asarray(context.vectors[context.start :].any(1))


def _mean_over_words(context: SliceContext, values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Mean over the words of each vertex of the slice, of one value or one row per word; NaN without words."""
    words = context.words[context.start :]
    number = np.diff(words.indptr).astype(np.float64)
    number[number == 0] = np.nan
    total = words @ values
    return np.asarray(total / (number if total.ndim == 1 else number[:, None]))


def _words_of_classes(context: SliceContext) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Number of older labelled texts of each known class, and in how many of them each word occurs."""
    labelled = np.flatnonzero(context.known >= 0)
    columns = context.known[labelled]
    number = len(context.classes)
    member = sparse.csr_array((np.ones(len(labelled)), (columns, labelled)), shape=(number, context.start))
    return np.bincount(columns, minlength=number), (member @ context.words[: context.start]).toarray()


# --- scores made of other scores -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Wrapper(Score):
    """A score made of one other score, whose state has names that start with ``score/``."""

    score: Score

    def __post_init__(self) -> None:
        if not isinstance(self.score, Score):
            raise InputError(f"the argument score is {self.score!r}", fix="pass a score of evergraph.detect.scores")

    @property
    def requires(self) -> Requirements:
        return self.score.requires

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        return outer_state(self.score.fit(outputs, targets, inner_state(state, "score")), "score")

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        return outer_state(self.score.observe(outputs, targets, inner_state(state, "score")), "score")


@dataclass(frozen=True)
class Relative(_Wrapper):
    """Another score, standardised by its values on the training vertices that are predicted as the same class.

    (x - mean_c) / sd_c, where c is the class predicted for the vertex. Raw scores drift from task to task, because a
    model under warm restarts gets more and more confident; relative scores do not.

    The state is ``mean`` and ``sd``, one float64 per known class, ``mean_of_all`` and ``sd_of_all``, and the state of
    the other score. Classes that no training vertex is predicted as have the values of all. If all training vertices
    score alike, every deviation is 1.

    Parameters
    ----------
    score
        The other score.
    weight
        Number of vertices, above 0, that the values of all training vertices count for in those of a class.

    Examples
    --------
    >>> score, train = Relative(Energy(0.01), weight=2), torch.tensor([[9.0, 0.0], [7.0, 0.0], [0.0, 2.0]])
    >>> state = score.fit(Outputs(train), torch.tensor([0, 0, 1]), state={})
    >>> state["mean"], state["mean_of_all"]
    (tensor([-7.0000, -4.6667], dtype=torch.float64), tensor(-6., dtype=torch.float64))
    >>> score.compute(Outputs(torch.tensor([[7.0, 0.0], [0.0, 7.0]])), state)
    tensor([ 0.0000, -0.9707], dtype=torch.float64)
    """

    weight: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        set_number(self, "weight", above=True, hint=" (10 is usual)")

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        inner = self.score.fit(outputs, targets, inner_state(state, "score"))
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
            **outer_state(inner, "score"),
        }

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        if "mean" not in state:
            raise InputError("the state has no 'mean'", fix="pass the state that the score's fit returned")
        x = self.score.compute(outputs, inner_state(state, "score"))
        # Classes that were added after the fit have the values of all.
        more = max(outputs.logits.shape[1] - len(state["mean"]), 0)
        mean, sd = (torch.cat([state[name], state[f"{name}_of_all"].expand(more)]).to(x) for name in ("mean", "sd"))
        rows, columns, parts = predicted(outputs.logits)
        return parts * torch.zeros_like(x).index_add_(0, rows, (x[rows] - mean[columns]) / sd[columns])


@dataclass(frozen=True)
class Propagated(_Wrapper):
    """x ← (1 - weight) · score + weight · mean of x over similar vertices, repeated; without any, the score itself.

    A new class appears as a group of vertices that are linked and share words. Similar vertices are the neighbours
    within the slice and the five nearest by words (`SliceContext.similar`). Older vertices are left out, because their
    classes are known.

    Source of the idea: energy propagation in Wu et al., Energy-based Out-of-Distribution Detection for Graph Neural
    Networks, ICLR 2023, which propagates over all edges.

    Parameters
    ----------
    score
        The other score.
    weight
        Weight of the similar vertices, from 0 to 1.
    rounds
        Number of repetitions.

    Examples
    --------
    >>> Propagated(Energy()).compute(Outputs(torch.zeros(1, 2)), {})  # without context, the score itself
    tensor([-0.6931], dtype=torch.float64)
    """

    weight: float = 0.7
    rounds: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        set_number(self, "weight", 0, 1)
        set_number(self, "rounds", whole=True)

    @property
    def requires(self) -> Requirements:
        return self.score.requires | Requirements(fit=False, context=True)

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        x = self.score.compute(outputs, inner_state(state, "score"))
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
    """Weighted mean of several scores, each in standard deviations from the known-class vertices of past slices.

    All observed slices count alike. A score that is 0 for a whole slice is ignored there. If a whole slice scores
    higher than past slices, its average is high. Before anything is observed, the slice itself standardises.

    The state is ``past.means`` and ``past.variances`` of known-class vertices, one row per observed slice and one
    column per score, and the states of the scores under their numbers.

    Parameters
    ----------
    scores
        One or more.
    counts
        Weight of each score; equal by default.

    Examples
    --------
    >>> both, outputs = Average((Energy(), Energy(2.0))), Outputs(torch.tensor([[0.0], [2.0]]))
    >>> both.compute(outputs, both.observe(outputs, torch.tensor([0, 0]), {}))
    tensor([ 1., -1.], dtype=torch.float64)
    """

    scores: tuple[Score, ...]
    counts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        scores = tuple(self.scores)
        if not scores or not all(isinstance(score, Score) for score in scores):
            raise InputError(f"the argument scores is {self.scores!r}", fix="pass scores of evergraph.detect.scores")
        counts: tuple[Any, ...] = tuple(self.counts) if isinstance(self.counts, (tuple, list)) else (self.counts,)
        valid = all(isinstance(one, Real) and 0 < float(one) < math.inf for one in counts)
        if not valid or bool in map(type, counts) or len(counts) not in (0, len(scores)):
            raise InputError(
                f"the argument counts is {self.counts!r} for {len(scores)} scores",
                fix="pass as many numbers above 0 as there are scores, or none",
            )
        if len({score.requires.auxiliary for score in scores} - {None}) > 1:
            raise InputError("the scores require different auxiliary models", fix="leave out all but one of them")
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "counts", tuple(map(float, counts)) or (1.0,) * len(scores))

    @property
    def requires(self) -> Requirements:
        return reduce(Requirements.__or__, (score.requires for score in self.scores))

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        found: dict[str, Tensor] = {}
        for number, score in enumerate(self.scores):
            found |= outer_state(score.fit(outputs, targets, inner_state(state, str(number))), str(number))
        return found

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        found: dict[str, Tensor] = {}
        for number, score in enumerate(self.scores):
            found |= outer_state(score.observe(outputs, targets, inner_state(state, str(number))), str(number))
        raw = self._raw(outputs, state)
        known = raw[targets >= 0]
        if len(known):
            for name, row in ((_MEANS, known.mean(0)), (_VARIANCES, known.var(0, correction=0))):
                row[(raw == 0).all(0)] = torch.nan
                found[name] = torch.cat([state.get(name, row.new_empty(0, *row.shape)).to(row), row[None]])
        return found

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        raw = self._raw(outputs, state)
        if not len(raw):
            return raw.sum(1)
        if _MEANS in state:
            means, variances = state[_MEANS].to(raw), state[_VARIANCES].to(raw)
        else:
            means, variances = raw.mean(0, keepdim=True), raw.var(0, correction=0, keepdim=True)
        middle = means.nanmean(0)
        spread = torch.sqrt(variances.nanmean(0) + (means - middle).square().nanmean(0))
        used = ~(raw == 0).all(0) & (spread > 1e-9 * raw.abs().amax(0))
        middle, spread = torch.where(used, middle, 0), torch.where(used, spread, 1)
        deviations = torch.where(used, ((raw - middle) / spread).clamp(-_FARTHEST, _FARTHEST), 0)
        counts = torch.tensor(self.counts, dtype=raw.dtype, device=raw.device)
        return deviations @ (counts / counts.sum())

    def _raw(self, outputs: Outputs, state: State) -> Tensor:
        """The scores before standardisation, one column each."""
        return torch.stack(
            [score.compute(outputs, inner_state(state, str(number))) for number, score in enumerate(self.scores)], 1
        )


def predicted(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and columns of predicted classes, and for each row the part that each of its predicted classes gets.

    A vertex has several predicted classes if their logits are equal: they share it in equal parts.
    """
    largest = logits == logits.amax(1, keepdim=True)
    rows, columns = torch.nonzero(largest, as_tuple=True)
    return rows, columns, 1 / largest.sum(1).double()


def inner_state(state: State, label: str) -> State:
    """The part of a state that belongs to the score with a label within another score.

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
    """The state of a score within another score, with a label before its names: the reverse of `inner_state`."""
    return {
        f"{PAST}{label}/{name.removeprefix(PAST)}" if name.startswith(PAST) else f"{label}/{name}": value
        for name, value in state.items()
    }
