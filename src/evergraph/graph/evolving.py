"""The evolving graph: one immutable value that everything else reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError
from evergraph.graph.adjacency import Adjacency
from evergraph.graph.classes import ClassRegistry
from evergraph.graph.features import Features, kind_of
from evergraph.graph.ids import Ids
from evergraph.graph.times import TimeAxis
from evergraph.graph.window import Window

if TYPE_CHECKING:
    from evergraph.graph.columns import EdgeColumns, VertexColumns
    from evergraph.graph.disk import SavedArrays

__all__ = ["EvolvingGraph"]


@dataclass(frozen=True, eq=False, repr=False)
class EvolvingGraph:
    """A vertex-labelled graph that grows in time; undirected and unweighted.

    Vertices are sorted by time, so that a stretch of time is a run of rows. Values are never changed: `append`,
    `relabel` and `remove` return a new graph. Make one with `build`, `open`, or one of `evergraph.datasets`.

    Parameters
    ----------
    ids
        Names of the vertices: strings or whole numbers.
    times
        Period of each vertex, ascending; `axis` says what a period is.
    codes
        Row of each vertex's class in `classes`; -1 where there is no label.
    class_names
        Class name by row.
    links
        The edges.
    features
        Dense, sparse, or counted words; None where there are none.
    axis
        Unit and step of the time.
    about
        Where the graph came from, in words.
    source
        The files on disk that the arrays come from.

    Examples
    --------
    >>> graph = EvolvingGraph.build(
    ...     {"id": ["a", "b", "c"], "time": [2003, 2001, 2002], "label": ["KDD", "ICML", None]},
    ...     {"source": ["a", "b"], "target": ["b", "c"]},
    ... )
    >>> graph
    EvolvingGraph(vertices=3, edges=2, classes=2, times=2001..2003, features=none)
    >>> list(graph.ids), graph.window(2001, 2002).n_edges
    (['b', 'c', 'a'], 1)
    >>> graph.append({"id": ["d"], "time": [2004], "label": ["KDD"]}, {"source": ["d"], "target": ["a"]}).n_edges
    3
    """

    ids: Ids
    times: NDArray[np.int64]
    codes: NDArray[np.int32]
    class_names: tuple[str, ...]
    links: Adjacency
    features: Features | None = None
    axis: TimeAxis = field(default_factory=TimeAxis)
    about: Mapping[str, str] = field(default_factory=dict)
    source: SavedArrays | None = None

    @classmethod
    def build(
        cls,
        vertices: Any,
        edges: Any = None,
        *,
        features: Any = None,
        feature_names: list[str] | None = None,
        every: str | int | None = None,
        drop_dangling: bool = False,
        about: Mapping[str, str] | None = None,
    ) -> EvolvingGraph:
        """Build a graph from columns in memory.

        Parameters
        ----------
        vertices
            Columns ``id`` and ``time``, optionally ``label`` and ``text``: a mapping, a pandas or polars frame, or an
            Arrow table. A missing or empty label is no label.
        edges
            Columns ``source`` and ``target``, optionally ``time``; or an array of pairs of ids. Direction, doubles and
            self-loops are dropped.
        features
            Instead of text: a two-dimensional array or a scipy sparse matrix with one row a vertex.
        feature_names
            Names of the columns of sparse features.
        every
            Granularity of time: ``"year"``, ``"month"``, ``"week"``, ``"day"``, or a number of years (of units, where
            times are whole numbers). By default years of dates, and whole numbers as they are.
        drop_dangling
            Drop edges to unknown ids instead of refusing them.
        about
            Where the graph came from, in words.
        """
        from evergraph.graph.change import build

        return build(vertices, edges, features, feature_names, every, drop_dangling, about or {})

    @classmethod
    def from_columns(
        cls,
        vertices: VertexColumns,
        edges: EdgeColumns | None,
        *,
        drop_dangling: bool = False,
        about: Mapping[str, str],
    ) -> EvolvingGraph:
        """Build a graph from columns that are checked already (this is what imports use)."""
        from evergraph.graph.change import from_columns

        return from_columns(vertices, edges, drop_dangling, about)

    @classmethod
    def open(cls, folder: str | Path) -> EvolvingGraph:
        """Open a saved graph as memory maps, in milliseconds; checks sizes, not contents (see `graph.disk.verify`)."""
        from evergraph.graph.disk import open_graph

        return open_graph(Path(folder))

    def save(self, folder: str | Path, *, replace: bool = False) -> None:
        """Save into a folder, at once or not at all; with ``replace`` over the graph that is there."""
        from evergraph.graph.disk import save_graph

        save_graph(self, Path(folder), replace=replace)

    def __len__(self) -> int:
        return len(self.times)

    def __repr__(self) -> str:
        first, last = self.axis.label(self.first_time), self.axis.label(self.last_time)
        return (
            f"EvolvingGraph(vertices={len(self)}, edges={self.n_edges}, classes={len(self.class_names)}, "
            f"times={first}..{last}, features={kind_of(self.features)})"
        )

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return self.links.edges

    @property
    def first_time(self) -> int:
        """Time of the oldest vertex."""
        return int(self.times[0])

    @property
    def last_time(self) -> int:
        """Time of the youngest vertex."""
        return int(self.times[-1])

    @property
    def adjacency(self) -> sparse.csr_array:
        """The edges as a symmetric scipy matrix of ones."""
        return self.links.matrix()

    @cached_property
    def classes(self) -> ClassRegistry:
        """The classes with their first and last time and their support."""
        return ClassRegistry.count(self.class_names, self.codes, self.times)

    @property
    def labels(self) -> NDArray[np.object_]:
        """Class name of each vertex; None where there is no label."""
        return self.names_of(self.codes)

    def names_of(self, codes: NDArray[np.integer]) -> NDArray[np.object_]:
        """Class names of rows of the registry; None for -1."""
        return np.array([*self.class_names, None], dtype=object)[codes]

    def find(self, ids: Iterable[str | int]) -> NDArray[np.int64]:
        """Rows of the vertices with these ids; an unknown id is an error."""
        from evergraph.graph.change import find

        return find(self, ids)

    def window(self, first: int | str, last: int | str) -> Window:
        """View of the vertices with times from ``first`` to ``last``, both included, and of the edges among them.

        Numbers are periods of the `axis`, as in `times`; strings are times as a person writes them (``"2004-03"``).
        """
        low, high = self.axis.period(first), self.axis.period(last)
        if high < low:
            raise InputError(f"the window ends ({high}) before it starts ({low})", fix="give the earlier time first")
        outside = high < self.first_time or low > self.last_time
        written = isinstance(first, str) or isinstance(last, str)
        if outside and not written and self.axis not in (TimeAxis("integer"), TimeAxis("year")):
            # Where periods are not what a person writes, someone has most likely given years.
            start, end = (f"{t} ({self.axis.label(t)})" for t in (self.first_time, self.last_time))
            raise InputError(
                f"the window {low} to {high} lies outside of the graph, which has the periods {start} to {end}",
                fix="give periods, or write the times as strings",
            )
        start, stop = np.searchsorted(self.times, [low, high + 1]).tolist()
        return Window(self, low, high, slice(start, stop))

    def up_to(self, last: int | str) -> Window:
        """View of all that exists at a time."""
        return self.window(min(self.first_time, self.axis.period(last)), last)

    def append(
        self,
        vertices: Any = None,
        edges: Any = None,
        *,
        features: Any = None,
        feature_names: list[str] | None = None,
        drop_dangling: bool = False,
    ) -> EvolvingGraph:
        """A new graph with more vertices and edges, given as for `build`; edges may join old vertices too.

        Rows of classes and columns of words keep their places; new ones come last. So do sparse features by their
        names; without names they are the columns that the graph has.

        An edge between old vertices that became known only now should have its time: without one it counts as old as
        its younger end, and windows of the past will show it.
        """
        from evergraph.graph.change import append

        return append(self, vertices, edges, features, feature_names, drop_dangling)

    def relabel(self, ids: Iterable[str | int], labels: Iterable[str | None]) -> EvolvingGraph:
        """A new graph in which these vertices have these class names (None for no label)."""
        from evergraph.graph.change import relabel

        return relabel(self, ids, labels)

    def remove(self, vertices: Iterable[str | int] = (), edges: Any = None) -> EvolvingGraph:
        """A new graph without these vertices (nor their edges) and without these edges."""
        from evergraph.graph.change import remove

        return remove(self, vertices, edges)

    def to_pyg(self, **inputs: Any) -> Any:
        """As a PyTorch Geometric ``Data``, text as TF-IDF over all times; see `evergraph.graph.interop.to_pyg`."""
        return self._whole().to_pyg(**{"text": "global", **inputs})

    def to_networkx(self) -> Any:
        """As a networkx ``Graph``; see `evergraph.graph.interop.to_networkx`."""
        return self._whole().to_networkx()

    def _whole(self) -> Window:
        """View of everything, also of edges that are younger than the youngest vertex."""
        latest = self.last_time if self.links.times is None else max(self.last_time, int(self.links.times.max()))
        return Window(self, self.first_time, latest, slice(0, len(self)))
