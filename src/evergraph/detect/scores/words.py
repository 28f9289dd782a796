"""Scores of a slice's words. Older texts are those of the three times before the slice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from evergraph.detect.base import Outputs
from evergraph.detect.scores.base import ContextScore, predicted
from evergraph.inputs.slice_context import SliceContext

__all__ = ["ClassLikelihood", "ExcessWords", "NewWords", "WordGrowth"]

_TEXTS = 5.0  # by which a class's share of texts with a word is drawn to that of all classes
_WORDS = 50.0  # by which a class's distribution of words is drawn to that of all classes
_LEAST = 0.1  # count of a word that was never seen


@dataclass(frozen=True)
class NewWords(ContextScore):
    """Share of a vertex's words that occur in no older text."""

    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:  # noqa: ARG002
        """The share; NaN without words."""
        return _mean_over_words(context, (context.texts[0] == 0).astype(np.float64))


@dataclass(frozen=True)
class WordGrowth(ContextScore):
    """Mean over a vertex's words of log(share of the slice's other texts with it / share of older texts with it).

    A new class brings words that many of its vertices share. They need not be new, but their use must grow. Shares are
    of counts with 1/2 added.
    """

    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:  # noqa: ARG002
        """The mean; NaN without words or older texts."""
        if not context.start:
            return np.full(len(context), np.nan)
        older, new = context.texts
        others = np.maximum(new - 1, 0)  # a text is not its own evidence
        growth = np.log((others + 0.5) / len(context)) - np.log((older + 0.5) / context.start)
        return _mean_over_words(context, growth)


@dataclass(frozen=True)
class ExcessWords(ContextScore):
    """Mean over a vertex's words of log(other texts of the slice with it / expected number of such texts).

    The expected number is Σ_c n_c · P(word | c) with n_c vertices of the slice predicted as class c, and the share of
    texts with the word among the labelled older ones of the class. So a known class that merely grows is not taken for
    a new one, as it is by `WordGrowth`. A vertex that is predicted as several classes, because their logits are equal,
    counts for each of them in equal parts.
    """

    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:
        """The mean; NaN without words or older labels."""
        rows, columns, parts = predicted(outputs.logits)
        vertices = torch.bincount(columns, parts[rows], minlength=outputs.logits.shape[1]).cpu().numpy()
        if not (context.known >= 0).any():
            return np.full(len(context), np.nan)
        texts, words = _words_of_classes(context)
        overall = words.sum(0) / texts.sum()
        share = (words + _TEXTS * overall) / (texts + _TEXTS)[:, None]
        expected = vertices @ share
        others = np.maximum(context.texts[1] - 1, 0)  # a text is not its own evidence
        return _mean_over_words(context, np.log((others + 0.5) / (expected + 0.5)))


@dataclass(frozen=True)
class ClassLikelihood(ContextScore):
    """Minus the largest over the known classes of the mean over a vertex's words of log(P(word | class) / P(word)).

    That is the fit of naive Bayes to the best fitting class, per word. Word counts are those of older labelled
    vertices; a class that has none there is left out.
    """

    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:  # noqa: ARG002
        """Minus the likelihood; NaN without words or older labels."""
        if not (context.known >= 0).any():
            return np.full(len(context), np.nan)
        texts, words = _words_of_classes(context)
        total = words.sum(0)
        overall = (total + _LEAST) / (total.sum() + _LEAST * len(total))
        own = words[texts > 0]
        share = (own + _WORDS * overall) / (own.sum(1, keepdims=True) + _WORDS)
        return np.asarray(-_mean_over_words(context, np.log(share / overall).T).max(1))


def _mean_over_words(context: SliceContext, values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Mean over the words of each vertex of the slice, of one value or one row for each word; NaN without words."""
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
