"""New neighbours: the share of a vertex's neighbours that are themselves of the slice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from evergraph.detect.base import Outputs, State
from evergraph.detect.scores.base import Score, seen_in_graph
from evergraph.inputs.slice_context import Sight

__all__ = ["NewNeighbours"]


@dataclass(frozen=True)
class NewNeighbours(Score):
    """(new neighbours + 1/2) / (neighbours + 1), among the slice and the three times before: 1/2 for who has none.

    Examples
    --------
    >>> import torch
    >>> NewNeighbours().of(Outputs(torch.zeros(2, 3)), {})  # without a graph to look at, all are alike
    tensor([0., 0.], dtype=torch.float64)
    """

    def of(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """See the class."""
        return seen_in_graph(outputs, _new_neighbours)


def _new_neighbours(sight: Sight) -> NDArray[np.float64]:
    links = sight.window.links
    sums = np.concatenate([[0], np.cumsum(links.indices >= sight.start)])[links.indptr]
    new, all_of = (np.diff(counts)[sight.start :] for counts in (sums, links.indptr))
    return (new + 0.5) / (all_of + 1)
