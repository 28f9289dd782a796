"""Remote: far from every labelled vertex in what it and its neighbours are about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from evergraph.detect.base import Outputs, State
from evergraph.detect.scores.base import Score, seen_in_graph
from evergraph.inputs.slice_context import Sight

__all__ = ["Remote"]


@dataclass(frozen=True)
class Remote(Score):
    """Minus the mean cosine to the five nearest labelled vertices of known classes, of the three times before.

    Vertices are compared by what they and their neighbours are about (`Sight.vectors`), not by what a model makes of
    it: a model keeps only what tells the known classes apart. Of who has neither words nor neighbours with words, the
    mean of the others.

    Examples
    --------
    >>> import torch
    >>> Remote().of(Outputs(torch.zeros(2, 3)), {})  # without a graph to look at, all are alike
    tensor([0., 0.], dtype=torch.float64)
    """

    def of(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """See the class."""
        return seen_in_graph(outputs, _remote)


def _remote(sight: Sight) -> NDArray[np.float64]:
    cosines = sight.nearest_known
    if not cosines.shape[1]:
        return np.full(len(sight), np.nan)
    about_something = sight.vectors[sight.start :].any(1)
    return np.where(about_something, -cosines.mean(1, dtype=np.float64), np.nan)
