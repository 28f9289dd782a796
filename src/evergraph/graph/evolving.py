"""The evolving graph: one immutable value that everything else reads."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError
from evergraph.graph import ids as id_columns
from evergraph.graph.adjacency import Adjacency
from evergraph.graph.classes import ClassRegistry, extend_names
from evergraph.graph.columns import (
    EdgeColumns,
    Ends,
    Origin,
    VertexColumns,
    as_table,
    check_edges,
    check_vertices,
    class_column,
    find_ends,
    id_column,
)
from evergraph.graph.features import Features, SparseFeatures, kind_of
from evergraph.graph.ids import Ids
from evergraph.graph.times import TimeAxis
from evergraph.graph.window import Window

if TYPE_CHECKING:
    from evergraph.graph.disk import SavedArrays

log = logging.getLogger(__name__)


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
        checked = check_vertices(vertices, features, feature_names, every=every)
        return cls.from_columns(
            checked, check_edges(edges, checked.axis), drop_dangling=drop_dangling, about=about or {}
        )

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
        new = vertices
        ends = find_ends([new.ids], edges, drop_dangling)
        graph = cls.assemble(new.ids, new.times, new.codes, new.class_names, new.features, ends, new.axis, about)
        loops = int((ends[0] == ends[1]).sum())
        if repeated := len(ends[0]) - loops - graph.n_edges:
            log.info("repeated edges dropped: %s", f"{repeated:,}")
        if loops:
            log.info("self-loops dropped: %s", f"{loops:,}")
        return graph

    @classmethod
    def assemble(
        cls,
        ids: Ids,
        times: NDArray[np.int64],
        codes: NDArray[np.int32],
        class_names: tuple[str, ...],
        features: Features | None,
        ends: Ends,
        axis: TimeAxis,
        about: Mapping[str, str],
        source: SavedArrays | None = None,
    ) -> EvolvingGraph:
        """Build a graph from its arrays and from edges between rows, all in any order.

        Vertices are sorted by time; those of one time keep their order.
        """
        one, other, edge_times = ends
        if (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            ids, times, codes = id_columns.take(ids, order), times[order], codes[order]
            features = features.take(order) if features is not None else None
            one, other = place[one], place[other]
        links = Adjacency.of(one, other, times, edge_times)
        return cls(ids, times, codes, class_names, links, features, axis, dict(about), source).frozen()

    def frozen(self) -> EvolvingGraph:
        """Make all arrays read-only; returns the graph itself."""
        for array in chain(*(vars(part).values() for part in (self, self.links, self.features) if part is not None)):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        return self

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
        if isinstance(ids, (str, int)):
            raise InputError(f"{ids!r} is one id, not several", fix=f"put it into a list: [{ids!r}]")
        origin = Origin("ids")
        wanted = id_column(as_table({"id": list(ids)}, origin), "id", origin)
        rows = id_columns.find(self.ids, wanted)
        unknown = np.flatnonzero(rows < 0)
        if len(unknown):
            raise InputError(
                f"there is no vertex {wanted[int(unknown[0])].as_py()!r}", fix="give ids of vertices in the graph"
            )
        return rows

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
        if vertices is None and features is not None:
            raise InputError("there are features, but no vertices", fix="give the vertices that have these features")
        new = None
        if vertices is not None:
            if feature_names is None and type(self.features) is SparseFeatures:
                feature_names = list(self.features.columns)
            new = check_vertices(vertices, features, feature_names, axis=self.axis)
        return self.append_columns(new, check_edges(edges, self.axis), drop_dangling=drop_dangling)

    def append_columns(
        self, vertices: VertexColumns | None, edges: EdgeColumns | None, *, drop_dangling: bool = False
    ) -> EvolvingGraph:
        """Append columns that are checked already."""
        from evergraph.graph.segments import extend, slice_segment

        return extend(self, slice_segment(self, vertices, edges, drop_dangling=drop_dangling))

    def relabel(self, ids: Iterable[str | int], labels: Iterable[str | None]) -> EvolvingGraph:
        """A new graph in which these vertices have these class names (None for no label)."""
        rows, origin = self.find(ids), Origin("labels")
        table = as_table({"label": list(labels)}, origin)
        coded = class_column(table.column("label").combine_chunks(), origin, "label").dictionary_encode()
        if len(coded) != len(rows):
            raise InputError(f"{len(coded)} labels for {len(rows)} vertices", fix="give one label a vertex")
        names, row_of = extend_names(self.class_names, coded.dictionary.to_pylist())
        codes = self.codes.copy()
        codes[rows] = row_of[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        return replace(self, codes=codes, class_names=names).frozen()

    def remove(self, vertices: Iterable[str | int] = (), edges: Any = None) -> EvolvingGraph:
        """A new graph without these vertices (nor their edges) and without these edges."""
        keep = np.ones(len(self), bool)
        keep[self.find(vertices)] = False
        if not keep.any():
            raise InputError("no vertex would be left", fix="keep at least one")
        source, target, times = self.links.ends()
        stays = keep[source] & keep[target]
        if edges is not None:
            gone_source, gone_target, _ = find_ends([self.ids], check_edges(edges, self.axis), False)
            n = len(self)
            gone = np.minimum(gone_source, gone_target) * n + np.maximum(gone_source, gone_target)
            present = source.astype(np.int64) * n + target
            absent = np.flatnonzero(~np.isin(gone, present))
            if len(absent):
                pair = [id_columns.at(self.ids, ends[absent[0]]) for ends in (gone_source, gone_target)]
                Origin("edges").fail(
                    f"there is no edge between {pair[0]!r} and {pair[1]!r}",
                    row=int(absent[0]),
                    fix="remove edges that exist",
                )
            stays &= ~np.isin(present, gone)
        place = np.cumsum(keep) - 1
        rows = np.flatnonzero(keep)
        return self.assemble(
            id_columns.take(self.ids, rows),
            self.times[rows],
            self.codes[rows],
            self.class_names,
            self.features.take(rows) if self.features is not None else None,
            (place[source[stays]], place[target[stays]], times[stays] if times is not None else None),
            self.axis,
            self.about,
            self.source,
        )

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
