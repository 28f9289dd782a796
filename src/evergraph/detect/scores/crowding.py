"""Crowding: new vertices where there were few old ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from evergraph.detect.base import Outputs, State
from evergraph.detect.scores.base import Score, seen_in_graph
from evergraph.inputs.slice_context import Sight

__all__ = ["Crowding"]


@dataclass(frozen=True)
class Crowding(Score):
    """How many of the forty vertices nearest to it are of the slice itself, more than by chance: (k - 40·p) / sd.

    They are sought in the slice and the three times before by what a vertex and its neighbours are about
    (`Sight.vectors`); p is the share of the slice among all of these, and sd that of 40 draws. A new class forms a
    crowd where nobody was. Of who has neither words nor neighbours with words, the mean of the others.

    Examples
    --------
    >>> import torch
    >>> Crowding().of(Outputs(torch.zeros(2, 3)), {})  # without a graph to look at, all are alike
    tensor([0., 0.], dtype=torch.float64)
    """

    def of(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """See the class."""
        return seen_in_graph(outputs, _crowding)


def _crowding(sight: Sight) -> NDArray[np.float64]:
    share = (len(sight) - 1) / max(len(sight.window) - 1, 1)
    if not 0 < share < 1:
        return np.full(len(sight), np.nan)
    number = sight.crowd.shape[1]
    new = (sight.crowd >= sight.start).mean(1)
    about_something = sight.vectors[sight.start :].any(1)
    return np.where(about_something, (new - share) / np.sqrt(share * (1 - share) / number), np.nan)
