"""Surplus: words that come up in a slice more than the classes which the model predicts there explain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.detect.base import Outputs, State
from evergraph.detect.scores.base import Score, mean_of_words, predicted, seen_in_graph, words_of_classes
from evergraph.inputs.slice_context import Sight

__all__ = ["Surplus"]

_WEIGHT = 5.0  # texts, by which a class's share of texts with a word is drawn to that of all classes


@dataclass(frozen=True)
class Surplus(Score):
    """Mean over a vertex's words of log(other texts of the slice with it / as many as one would expect).

    One would expect Σ_c n_c · P(word | c) with n_c vertices of the slice predicted as class c, and the share of texts
    with the word among the labelled ones of the class in the three times before. So a known class that merely grows,
    and its words with it, is not taken for a new one, as it is by `Bursting`. A vertex that is predicted as several
    classes, because their logits are the same, counts for each of them in equal parts.

    Examples
    --------
    >>> Surplus().of(Outputs(torch.zeros(2, 3)), {})  # without a graph to look at, all are alike
    tensor([0., 0.], dtype=torch.float64)
    """

    def of(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """See the class."""
        rows, columns, parts = predicted(outputs.logits)
        vertices = torch.bincount(columns, parts[rows], minlength=outputs.logits.shape[1])
        return seen_in_graph(outputs, partial(_surplus, vertices=vertices.cpu().numpy()))


def _surplus(sight: Sight, vertices: NDArray[np.float64]) -> NDArray[np.float64]:
    """With so many vertices of the slice predicted as each class."""
    if not (sight.known >= 0).any():
        return np.full(len(sight), np.nan)
    texts, words = words_of_classes(sight)
    overall = words.sum(0) / texts.sum()
    share = (words + _WEIGHT * overall) / (texts + _WEIGHT)[:, None]
    expected = vertices @ share
    others = np.maximum(sight.texts[1] - 1, 0)  # a text is not its own evidence
    return mean_of_words(sight, np.log((others + 0.5) / (expected + 0.5)))
