"""Drift: how far the mix of classes moves from time to time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.classes import total_variation
from evergraph.graph.evolving import EvolvingGraph

__all__ = ["Drift", "drift"]


@dataclass(frozen=True, eq=False)
class Drift:
    """Total variation between the class distribution at a time and that before; NaN at the first time.

    Parameters
    ----------
    times
        The times that have labelled vertices.
    consecutive
        Against the labelled time just before, as the paper's text has it.
    cumulative
        Against all times before, as the authors' code computes it.
    """

    times: NDArray[np.int64]
    consecutive: NDArray[np.float64]
    cumulative: NDArray[np.float64]


def drift(graph: EvolvingGraph) -> Drift:
    """Half the sum of absolute differences of class shares: 0 is no change, 1 is no class in common.

    Examples
    --------
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3, 4], "time": [1, 1, 2, 3], "label": ["x", "y", "x", "y"]})
    >>> moved = drift(graph)
    >>> moved.consecutive.tolist(), moved.cumulative.round(3).tolist()
    ([nan, 0.5, 1.0], [nan, 0.5, 0.667])
    """
    labelled = graph.codes >= 0
    times, row = np.unique(graph.times[labelled], return_inverse=True)
    counts = np.zeros((len(times), len(graph.class_names)))
    np.add.at(counts, (row, graph.codes[labelled]), 1)
    return Drift(times, total_variation(counts, counts), total_variation(np.cumsum(counts, axis=0), counts))
