"""A view of the vertices between two times and the edges among them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError
from evergraph.graph.adjacency import Adjacency
from evergraph.graph.features import DenseFeatures, WordCounts, tfidf
from evergraph.graph.ids import Ids

if TYPE_CHECKING:
    from evergraph.graph.evolving import EvolvingGraph

TextMode = Literal["past", "global", "counts"]


@dataclass(frozen=True, eq=False)
class Window:
    """The part of a graph with times in ``[first, last]``: a run of its vertices, and the edges with both ends inside.

    Made by `EvolvingGraph.window`. Nothing is copied but the edges, and these only when asked for.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> graph = EvolvingGraph.build({"id": ["a", "b", "c"], "time": [1, 2, 3], "label": ["x", "y", None]},
    ...                             {"source": ["a", "b"], "target": ["b", "c"]})
    >>> window = graph.window(2, 3)
    >>> list(window.ids), window.times.tolist(), window.n_edges
    (['b', 'c'], [2, 3], 1)
    """

    graph: EvolvingGraph
    first: int
    last: int
    rows: slice

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)

    @property
    def times(self) -> NDArray[np.int64]:
        """Time of each vertex, ascending."""
        return self.graph.times[self.rows]

    @property
    def codes(self) -> NDArray[np.int32]:
        """Row of each vertex's class in the graph's registry; -1 where there is no label."""
        return self.graph.codes[self.rows]

    @property
    def labels(self) -> NDArray[np.object_]:
        """Class name of each vertex; None where there is no label."""
        return self.graph.names_of(self.codes)

    @property
    def ids(self) -> Ids:
        """Id of each vertex."""
        return self.graph.ids[self.rows]

    @cached_property
    def links(self) -> Adjacency:
        """The edges among the window's vertices, numbered from the window's first vertex."""
        return self.graph.links.part(self.rows, self.last)

    @property
    def adjacency(self) -> sparse.csr_array:
        """The edges as a symmetric scipy matrix."""
        return self.links.matrix()

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return self.links.edges

    def inputs(
        self, text: TextMode = "past", *, before: int | str | None = None, min_df: int = 1
    ) -> NDArray[np.float32] | sparse.csr_array:
        """What a model reads of the vertices: one row a vertex.

        Dense and sparse features come as they are, sharing memory. Of text comes the TF-IDF of its words.

        Parameters
        ----------
        text
            ``"past"`` knows document frequencies from the whole graph before the time ``before`` and masks words that
            did not occur until then, so nothing of the future leaks; ``"global"`` knows all times, as the paper does;
            ``"counts"`` gives the bare counts.
        before
            The time of the task; the last of the window unless given.
        min_df
            Mask words that stand in fewer known texts than this.
        """
        features = self.graph.features
        if features is None:
            raise InputError("the graph has no features", fix="import it with a text column or feature columns")
        if isinstance(features, DenseFeatures):
            return features.rows(self.rows).values
        if not isinstance(features, WordCounts) or text == "counts":
            return features.rows(self.rows).matrix
        if text == "global":
            return tfidf(features, self.rows, len(self.graph), min_df=min_df)
        if text != "past":
            raise InputError(f"there is no text mode {text!r}", fix="choose 'past', 'global' or 'counts'")
        return tfidf(features, self.rows, self._known(before), min_df=min_df)

    def known_columns(self, *, before: int | str | None = None) -> NDArray[np.int64]:
        """Columns of the features that are in use before a time; of dense features all.

        The features of a graph are as wide as all it ever holds. A model must not be: its width would tell the future.

        Parameters
        ----------
        before
            The time of the task; the last of the window unless given.

        Examples
        --------
        >>> from evergraph import EvolvingGraph
        >>> graph = EvolvingGraph.build({"id": [1, 2], "time": [1, 2], "text": ["old news", "new words"]})
        >>> graph.window(1, 2).known_columns().tolist(), graph.features.width
        ([0, 1], 4)
        """
        features = self.graph.features
        if features is None:
            raise InputError("the graph has no features", fix="import it with a text column or feature columns")
        if isinstance(features, DenseFeatures):
            return np.arange(features.width)
        return np.flatnonzero(features.count_texts(self._known(before)))

    def _known(self, before: int | str | None) -> int:
        """Number of vertices of the whole graph that are older than the task; they are its first ones."""
        limit = self.last if before is None else self.graph.axis.period(before)
        return int(np.searchsorted(self.graph.times, limit))

    def to_pyg(self, **inputs: Any) -> Any:
        """As a PyTorch Geometric ``Data``; see `evergraph.graph.interop.to_pyg`."""
        from evergraph.graph.interop import to_pyg

        return to_pyg(self, **inputs)

    def to_networkx(self) -> Any:
        """As a networkx ``Graph``; see `evergraph.graph.interop.to_networkx`."""
        from evergraph.graph.interop import to_networkx

        return to_networkx(self)
