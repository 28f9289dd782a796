"""Bursting: words that come up in a slice more than in the times before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from evergraph.detect.base import Outputs, State
from evergraph.detect.scores.base import Score, mean_of_words, seen_in_graph
from evergraph.inputs.slice_context import Sight

__all__ = ["Bursting"]


@dataclass(frozen=True)
class Bursting(Score):
    """Mean over a vertex's words of log(share of the slice's other texts with it / share of older texts with it).

    Older texts are those of the three times before. A new class brings words along that many of its vertices share;
    here they need not be words that were never seen, but their use must grow. Shares are of counts with 1/2 added.

    Examples
    --------
    >>> import torch
    >>> Bursting().of(Outputs(torch.zeros(2, 3)), {})  # without a graph to look at, all are alike
    tensor([0., 0.], dtype=torch.float64)
    """

    def of(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """See the class."""
        return seen_in_graph(outputs, _bursting)


def _bursting(sight: Sight) -> NDArray[np.float64]:
    if not sight.start:
        return np.full(len(sight), np.nan)
    older, new = sight.texts
    others = np.maximum(new - 1, 0)  # a text is not its own evidence
    return mean_of_words(sight, np.log((others + 0.5) / len(sight)) - np.log((older + 0.5) / sight.start))
