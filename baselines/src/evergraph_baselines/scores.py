"""Scores for comparison: of an auxiliary model, and of a slice's words and neighbours."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from evergraph.detect import GDOC, Outputs, Requirements
from evergraph.detect.base import State
from evergraph.detect.scores import Score, predicted
from evergraph.inputs.slice_context import SliceContext

__all__ = [
    "AuxiliaryModel",
    "ClassLikelihood",
    "ContextScore",
    "ExcessWords",
    "KnownDistance",
    "NewWords",
    "SliceDensity",
    "WordGrowth",
]

_TEXTS = 5.0  # texts that the share of all classes counts for, in a class's share of texts with a word
_WORDS = 50.0  # words that the distribution of all classes counts for, in a class's distribution of words
_LEAST = 0.1  # count of a word that no labelled text has


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

    reads_outputs: ClassVar[bool] = False

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
