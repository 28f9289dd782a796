"""New words: the share of a vertex's words that no older vertex had."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from evergraph.detect.base import Outputs, State
from evergraph.detect.scores.base import Score, mean_of_words, seen_in_graph
from evergraph.inputs.slice_context import Sight

__all__ = ["NewWords"]


@dataclass(frozen=True)
class NewWords(Score):
    """Share of its words that stand in no text of the three times before; of a vertex without words, the mean.

    Examples
    --------
    >>> import torch
    >>> NewWords().of(Outputs(torch.zeros(2, 3)), {})  # without a graph to look at, all are alike
    tensor([0., 0.], dtype=torch.float64)
    """

    def of(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """See the class."""
        return seen_in_graph(outputs, _new_words)


def _new_words(sight: Sight) -> NDArray[np.float64]:
    return mean_of_words(sight, (sight.texts[0] == 0).astype(np.float64))
