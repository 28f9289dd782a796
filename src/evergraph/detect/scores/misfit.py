"""Misfit: words that fit none of the known classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from evergraph.detect.base import Outputs, State
from evergraph.detect.scores.base import Score, mean_of_words, seen_in_graph, words_of_classes
from evergraph.inputs.slice_context import Sight

__all__ = ["Misfit"]

_WEIGHT = 50.0  # words, by which a class's distribution of words is drawn to that of all classes
_LEAST = 0.1  # times that a word counts as seen, be it never


@dataclass(frozen=True)
class Misfit(Score):
    """Minus the largest over the known classes of the mean over a vertex's words of log(P(word | class) / P(word)).

    That is the fit of naive Bayes to the class that it fits best, each text alike whatever its length. The words are
    those of labelled vertices of the three times before; a class that had none there is left out.

    Examples
    --------
    >>> import torch
    >>> Misfit().of(Outputs(torch.zeros(2, 3)), {})  # without a graph to look at, all are alike
    tensor([0., 0.], dtype=torch.float64)
    """

    def of(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """See the class."""
        return seen_in_graph(outputs, _misfit)


def _misfit(sight: Sight) -> NDArray[np.float64]:
    if not (sight.known >= 0).any():
        return np.full(len(sight), np.nan)
    texts, words = words_of_classes(sight)
    total = words.sum(0)
    overall = (total + _LEAST) / (total.sum() + _LEAST * len(total))
    own = words[texts > 0]
    share = (own + _WEIGHT * overall) / (own.sum(1, keepdims=True) + _WEIGHT)
    return -mean_of_words(sight, np.log(share / overall).T).max(1)
