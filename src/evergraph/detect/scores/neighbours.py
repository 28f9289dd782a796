"""Scores of a slice's neighbourhoods, by edges and by content. Older vertices are of the three times before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evergraph.detect.base import Outputs
from evergraph.detect.scores.base import ContextScore
from evergraph.inputs.slice_context import SliceContext

__all__ = ["KnownDistance", "NewNeighbours", "SliceDensity"]


@dataclass(frozen=True)
class NewNeighbours(ContextScore):
    """(neighbours in the slice + 1/2) / (neighbours + 1)."""

    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:  # noqa: ARG002
        """The share; 1/2 without neighbours."""
        links = context.window.links
        sums = np.concatenate([[0], np.cumsum(links.indices >= context.start)])[links.indptr]
        new, all_of = (np.diff(counts)[context.start :] for counts in (sums, links.indptr))
        return np.asarray((new + 0.5) / (all_of + 1))


@dataclass(frozen=True)
class KnownDistance(ContextScore):
    """Minus the mean cosine to the five nearest older vertices with labels of known classes.

    Vertices are compared by the content of their neighbourhoods (`SliceContext.vectors`), not by a model's hidden
    vectors, which keep only what tells the known classes apart.
    """

    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:  # noqa: ARG002
        """Minus the mean; NaN without content or older labels."""
        cosines = context.nearest_known
        if not cosines.shape[1]:
            return np.full(len(context), np.nan)
        return np.where(_has_content(context), -cosines.mean(1, dtype=np.float64), np.nan)


@dataclass(frozen=True)
class SliceDensity(ContextScore):
    """How many of a vertex's forty nearest vertices are in the slice itself, more than by chance: (k - 40·p) / sd.

    They are searched in the slice and among older vertices by `SliceContext.vectors`; p is the share of the slice among
    all of these, and sd that of 40 draws. A new class forms a cluster where no older vertices are.
    """

    def values(self, context: SliceContext, outputs: Outputs) -> NDArray[np.float64]:  # noqa: ARG002
        """The excess in standard deviations; NaN without content or older vertices."""
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
