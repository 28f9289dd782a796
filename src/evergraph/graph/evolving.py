"""The evolving graph, its windows and its edges: immutable values that everything else reads."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError, Origin
from evergraph.graph import ids as id_columns
from evergraph.graph.adjacency import Adjacency
from evergraph.graph.cells import class_column, id_column
from evergraph.graph.classes import ClassRegistry, extend_names
from evergraph.graph.columns import EdgeColumns, Ends, VertexColumns, as_table, check_edges, check_vertices, find_ends
from evergraph.graph.features import Features, WordCounts, tfidf
from evergraph.graph.ids import Ids
from evergraph.graph.times import TimeAxis


class Source(Protocol):
    """Where the arrays of a graph come from: files that may be damaged."""

    def check(self) -> int:
        """Compare the files with their hashes, or raise an error; return the number of bytes read."""


TextMode = Literal["past", "global", "counts"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, repr=False)
class EvolvingGraph:
    """An undirected, unweighted graph whose vertices have a time and, optionally, a class.

    Vertices are sorted by time, so a range of periods is a range of rows. A graph is never changed: `append`,
    `relabel` and `remove` return a new one. Make a graph with `build`, `open`, or a function of `evergraph.datasets`.

    Parameters
    ----------
    ids
        Ids of the vertices: strings or whole numbers.
    times
        Period of each vertex, ascending; `axis` defines the periods.
    codes
        Row of each vertex's class in `classes`; -1 for no label.
    class_names
        Class name by row.
    links
        The edges.
    features
        Words, numbers, categories, vectors of an encoder and the original texts, as far as there are any.
    axis
        Unit and step of the time.
    about
        Where the graph came from, in words.
    source
        The files on disk that the arrays come from; they are checked before something is saved that has been read.

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
    features: Features = Features()  # noqa: RUF009  # immutable
    axis: TimeAxis = field(default_factory=TimeAxis)
    about: Mapping[str, str] = field(default_factory=dict)
    source: Source | None = None

    @classmethod
    def build(
        cls,
        vertices: Any,
        edges: Any = None,
        *,
        features: Any = None,
        feature_names: Sequence[str] | None = None,
        numbers: Sequence[str] = (),
        categories: Sequence[str] = (),
        every: str | int | None = None,
        drop_dangling: bool = False,
        about: Mapping[str, str] | None = None,
    ) -> EvolvingGraph:
        """Build a graph from columns in memory.

        Parameters
        ----------
        vertices
            Columns ``id`` and ``time``, optionally ``label`` and ``text``: a mapping, a pandas or polars frame, or an
            Arrow table. A missing or empty label is no label. Nor is -1 among the whole numbers 0, 1, …, k, as
            ``pandas.factorize`` writes it (with a warning). Among other numbers from 0 up, -1 is refused.
        edges
            Columns ``source`` and ``target``, optionally ``time``; or an array of pairs of ids. Direction, duplicates
            and self-loops are dropped.
        features
            A matrix with one row for each vertex: a two-dimensional array of numbers (NaN is a missing one), or,
            instead of text, a scipy sparse matrix.
        feature_names
            Names of the columns of ``features``; by default their numbers.
        numbers
            Columns of ``vertices`` with numbers, truth values (0 and 1) or lists of them. An empty value or NaN is a
            missing number; infinite ones are refused. Numbers are float32: whole numbers over 2^24 are rounded.
        categories
            Columns of ``vertices`` with strings, whole numbers or truth values, of which each value becomes a column.
            An empty value is a missing category.
        every
            Granularity of time: ``"year"``, ``"month"``, ``"week"``, ``"day"``, or a number of years (of units, if
            times are whole numbers). By default dates become years, and whole numbers stay as they are.
        drop_dangling
            Drop edges to unknown ids instead of raising an error.
        about
            Where the graph came from, in words.
        """
        checked = check_vertices(vertices, features, feature_names, numbers=numbers, categories=categories, every=every)
        return cls.from_columns(
            checked, check_edges(edges, checked.axis), drop_dangling=drop_dangling, about=about or {}
        )

    @classmethod
    def from_columns(
        cls, new: VertexColumns, edges: EdgeColumns | None, *, drop_dangling: bool = False, about: Mapping[str, str]
    ) -> EvolvingGraph:
        """Build a graph from checked columns."""
        return cls.from_ends(new, find_ends([new.ids], edges, drop_dangling), about=about)

    @classmethod
    def from_ends(cls, new: VertexColumns, ends: Ends, *, about: Mapping[str, str]) -> EvolvingGraph:
        """Build a graph from checked vertices and edges between their rows."""
        graph = cls.assemble(new.ids, new.times, new.codes, new.class_names, new.features, ends, new.axis, about)
        loops = int(np.count_nonzero(ends[0] == ends[1]))
        if repeated := len(ends[0]) - loops - graph.n_edges:
            log.info("Dropped %s duplicate edges", f"{repeated:,}")
        if loops:
            log.info("Dropped %s self-loops", f"{loops:,}")
        return graph

    @classmethod
    def assemble(
        cls,
        ids: Ids,
        times: NDArray[np.int64],
        codes: NDArray[np.int32],
        class_names: tuple[str, ...],
        features: Features,
        ends: Ends,
        axis: TimeAxis,
        about: Mapping[str, str],
        source: Source | None = None,
    ) -> EvolvingGraph:
        """Build a graph from arrays and edges between rows, in any order; sorts the vertices by time, stably."""
        one, other, edge_times = ends
        if (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            ids, times, codes = id_columns.take(ids, order), times[order], codes[order]
            features = features.take(order)
            one, other = place[one], place[other]
        links = Adjacency.of(one, other, times, edge_times)
        return cls(ids, times, codes, class_names, links, features, axis, dict(about), source).frozen()

    def frozen(self) -> EvolvingGraph:
        """Make all arrays read-only and return the graph itself."""
        for array in chain(*(vars(part).values() for part in (self, self.links, *self.features.parts.values()))):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        return self

    @classmethod
    def open(cls, folder: str | Path) -> EvolvingGraph:
        """Open a saved graph as memory maps, in milliseconds; checks sizes but not contents (see `disk.verify`)."""
        from evergraph.graph.disk import open_graph

        return open_graph(Path(folder))

    def save(self, folder: str | Path, *, replace: bool = False) -> None:
        """Save into a folder. Atomic: it either succeeds completely or changes nothing.

        With ``replace`` it replaces a graph that is already there.
        """
        from evergraph.graph.disk import save_graph

        save_graph(self, Path(folder), replace=replace)

    def __len__(self) -> int:
        return len(self.times)

    def __repr__(self) -> str:
        first, last = self.axis.label(self.first_time), self.axis.label(self.last_time)
        return (
            f"EvolvingGraph(vertices={len(self)}, edges={self.n_edges}, classes={len(self.class_names)}, "
            f"times={first}..{last}, features={', '.join(self.features.kinds) or 'none'})"
        )

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return self.links.edges

    @property
    def first_time(self) -> int:
        """Period of the oldest vertex."""
        return int(self.times[0])

    @property
    def last_time(self) -> int:
        """Period of the youngest vertex."""
        return int(self.times[-1])

    @property
    def adjacency(self) -> sparse.csr_array:
        """The edges as a symmetric scipy matrix of ones."""
        return self.links.matrix()

    @cached_property
    def classes(self) -> ClassRegistry:
        """The classes with their first and last period and their number of vertices."""
        return ClassRegistry.count(self.class_names, self.codes, self.times)

    @property
    def labels(self) -> NDArray[np.object_]:
        """Class name of each vertex; None for no label."""
        return self.names_of(self.codes)

    def names_of(self, codes: NDArray[np.integer]) -> NDArray[np.object_]:
        """Return the class names of codes; None for -1."""
        return np.array([*self.class_names, None], dtype=object)[codes]

    def find(self, ids: Iterable[str | int]) -> NDArray[np.int64]:
        """Return the rows of the vertices with these ids; an unknown id is an error."""
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
        """Return the vertices with times from ``first`` to ``last``, both included, and the edges among them.

        Numbers are periods of the `axis`, as in `times`; strings are times as people write them (``"2004-03"``).
        """
        low, high = self.axis.period(first), self.axis.period(last)
        if high < low:
            raise InputError(f"the window ends ({high}) before it starts ({low})", fix="give the earlier time first")
        outside = high < self.first_time or low > self.last_time
        written = isinstance(first, str) or isinstance(last, str)
        if outside and not written and self.axis not in (TimeAxis("integer"), TimeAxis("year")):
            # Period numbers differ from written times here, so these are most likely years.
            start, end = (f"{t} ({self.axis.label(t)})" for t in (self.first_time, self.last_time))
            raise InputError(
                f"the window {low} to {high} is outside the graph, whose periods are {start} to {end}",
                fix="give periods, or write the times as strings",
            )
        start, stop = np.searchsorted(self.times, [low, high + 1]).tolist()
        return Window(self, low, high, slice(start, stop))

    def up_to(self, last: int | str) -> Window:
        """Return the window of everything up to a time, included."""
        return self.window(min(self.first_time, self.axis.period(last)), last)

    def append(
        self,
        vertices: Any = None,
        edges: Any = None,
        *,
        features: Any = None,
        feature_names: Sequence[str] | None = None,
        numbers: Sequence[str] | None = None,
        categories: Sequence[str] | None = None,
        drop_dangling: bool = False,
    ) -> EvolvingGraph:
        """Return a graph with more vertices and edges, given as for `build`; edges may also join old vertices.

        The new vertices need the same kinds of features. Classes, words, categories and columns of sparse features keep
        their places; new ones are appended. Numbers are matched by the names of their columns. Without
        ``feature_names``, the columns of ``features`` are those of the graph; without ``numbers`` and ``categories``,
        the vertices have the columns that the graph was built from.

        Give a time to a new edge between old vertices. Without one the edge is as old as its younger end, and windows
        of the past include it.
        """
        if vertices is None and features is not None:
            raise InputError("there are features, but no vertices", fix="give the vertices that have these features")
        new = None
        if vertices is not None:
            new = check_vertices(
                vertices, **self.features.arguments(features, feature_names, numbers, categories), axis=self.axis
            )
        from evergraph.graph.segments import extend, slice_segment

        return extend(self, slice_segment(self, new, check_edges(edges, self.axis), drop_dangling=drop_dangling))

    def relabel(self, ids: Iterable[str | int], labels: Iterable[str | None]) -> EvolvingGraph:
        """Return a graph in which these vertices have these class names (None for no label)."""
        rows, origin = self.find(ids), Origin("labels")
        table = as_table({"label": list(labels)}, origin)
        coded = class_column(table.column("label").combine_chunks(), origin, "label").dictionary_encode()
        if len(coded) != len(rows):
            raise InputError(f"{len(coded)} labels for {len(rows)} vertices", fix="give one label for each vertex")
        names, row_of = extend_names(self.class_names, coded.dictionary.to_pylist())
        codes = self.codes.copy()
        codes[rows] = row_of[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        return replace(self, codes=codes, class_names=names).frozen()

    def remove(self, vertices: Iterable[str | int] = (), edges: Any = None) -> EvolvingGraph:
        """Return a graph without these vertices (and their edges) and without these edges."""
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
                row = int(absent[0])
                one, other = (id_columns.at(self.ids, ends[row]) for ends in (gone_source, gone_target))
                problem = f"there is no edge between {one!r} and {other!r}"
                Origin("edges").fail(problem, row=row, fix="remove edges that exist")
            stays &= ~np.isin(present, gone)
        place = np.cumsum(keep) - 1
        rows = np.flatnonzero(keep)
        return self.assemble(
            id_columns.take(self.ids, rows),
            self.times[rows],
            self.codes[rows],
            self.class_names,
            self.features.take(rows),
            (place[source[stays]], place[target[stays]], times[stays] if times is not None else None),
            self.axis,
            self.about,
            self.source,
        )

    def to_pyg(self, **inputs: Any) -> Any:
        """Convert to a PyTorch Geometric ``Data`` (`interop.to_pyg`), by default with TF-IDF over all times."""
        return self._whole().to_pyg(**{"text": "global", **inputs})

    def to_networkx(self) -> Any:
        """Convert to a networkx ``Graph`` (`interop.to_networkx`)."""
        return self._whole().to_networkx()

    def _whole(self) -> Window:
        """Window of everything, including edges that are younger than the youngest vertex."""
        times = self.links.times
        latest = self.last_time if times is None else max(self.last_time, int(times.max()))
        return Window(self, self.first_time, latest, slice(0, len(self)))


@dataclass(frozen=True, eq=False)
class Window:
    """The vertices of a graph with times in ``[first, last]``, and the edges with both ends among them.

    Made by `EvolvingGraph.window`. Only edges are copied, when first used.

    Examples
    --------
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
        """Period of each vertex, ascending."""
        return self.graph.times[self.rows]

    @property
    def codes(self) -> NDArray[np.int32]:
        """Row of each vertex's class in the graph's registry; -1 for no label."""
        return self.graph.codes[self.rows]

    @property
    def labels(self) -> NDArray[np.object_]:
        """Class name of each vertex; None for no label."""
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

    def words(self, text: TextMode = "past", *, before: int | str | None = None, min_df: int = 1) -> sparse.csr_array:
        """Return the words of each vertex, one row for each: TF-IDF of texts, sparse features as they are.

        Parameters
        ----------
        text
            ``"past"`` takes document frequencies from the whole graph before the time ``before`` and masks words that
            do not occur until then, so nothing of the future leaks. ``"global"`` uses all times, as the paper does.
            ``"counts"`` returns the word counts.
        before
            The time of the task; by default the last period of the window.
        min_df
            Mask words that occur in fewer known texts than this.
        """
        words = self.graph.features.words
        if words is None:
            raise InputError("the graph has no words", fix="import it with a text column")
        if not isinstance(words, WordCounts) or text == "counts":
            return words.rows(self.rows).matrix
        if text == "global":
            return tfidf(words, self.rows, len(self.graph), min_df=min_df)
        if text != "past":
            raise InputError(f"there is no text mode {text!r}", fix="choose 'past', 'global' or 'counts'")
        return tfidf(words, self.rows, self._known(before), min_df=min_df)

    def inputs(
        self, text: TextMode = "past", *, before: int | str | None = None, min_df: int = 1
    ) -> NDArray[np.float32] | sparse.csr_array:
        """Return the words, categories and numbers of each vertex side by side, in this order, one row for each vertex.

        Numbers alone are dense, with NaN for a missing one; everything else is sparse. If there is only one of the
        three, it shares memory with the graph where it can. Vectors of an encoder are returned if there is nothing
        else. The arguments are those of `words`.
        """
        features = self.graph.features
        parts: list[Any] = [] if features.words is None else [self.words(text, before=before, min_df=min_df)]
        parts += [] if features.categories is None else [features.categories.rows(self.rows).matrix]
        parts += [] if features.numbers is None else [features.numbers.values[self.rows]]
        if not parts and features.vectors is not None:
            return features.vectors.values[self.rows]
        if not parts:
            raise InputError(
                "the graph has no features",
                fix="import it with a text column, or with columns of numbers or categories",
            )
        return parts[0] if len(parts) == 1 else sparse.hstack(parts, format="csr")

    def known_columns(self, *, before: int | str | None = None) -> NDArray[np.int64]:
        """Return the columns of words in use before a time (by default the last period of the window).

        The features of a graph have a column for every word it ever holds. A model must not, because its width would
        reveal the future.

        Examples
        --------
        >>> graph = EvolvingGraph.build({"id": [1, 2], "time": [1, 2], "text": ["old news", "new words"]})
        >>> graph.window(1, 2).known_columns().tolist(), graph.features.words.width
        ([0, 1], 4)
        """
        words = self.graph.features.words
        return np.empty(0, np.int64) if words is None else np.flatnonzero(words.count_texts(self._known(before)))

    def _known(self, before: int | str | None) -> int:
        """Number of vertices of the whole graph that are older than the task; they are its first ones."""
        limit = self.last if before is None else self.graph.axis.period(before)
        return int(np.searchsorted(self.graph.times, limit))

    def to_pyg(self, **inputs: Any) -> Any:
        """Convert to a PyTorch Geometric ``Data`` (`interop.to_pyg`)."""
        from evergraph.graph.interop import to_pyg

        return to_pyg(self, **inputs)

    def to_networkx(self) -> Any:
        """Convert to a networkx ``Graph`` (`interop.to_networkx`)."""
        from evergraph.graph.interop import to_networkx

        return to_networkx(self)
