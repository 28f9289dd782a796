"""What a detector may look at beside a model's outputs: the slice to decide, among the last few times before it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.graph.classes import columns_among
from evergraph.graph.features import DenseFeatures, SparseFeatures
from evergraph.graph.window import Window
from evergraph.inputs.similar import nearest_by_vectors, nearest_by_words, reduced, unit, weighted

if TYPE_CHECKING:
    from evergraph.learning.task import Task

__all__ = ["SliceContext"]

_TIMES = 3  # before the slice
_SIMILAR = 5  # nearest by words
_NEAREST = 40
_SMALL = 10_000  # vertices; of no more, likeness is told in double precision, so that their order does not show
_COMMON = 0.1  # share of the slice's texts; a word that stands in more makes no vertices similar, and costs most


@dataclass(frozen=True, eq=False)
class SliceContext:
    """A slice and the three times before it, whatever the history of the task: with as much as the task may show.

    Everything is worked out when it is first asked for, and kept. Words are sparse columns of any kind.

    Parameters
    ----------
    task
        Its time is that of the slice.
    classes
        Names of the known classes, in the order of the output layer.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> from evergraph.learning.task import Task
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 2, 3], "label": ["x", "y", "x"],
    ...                              "text": ["old news", "news", "new words"]})
    >>> context = SliceContext(Task(graph, time=3, history=1), classes=("x",))
    >>> context.start, len(context), context.known.tolist(), context.words.shape
    (2, 1, [0, -1], (3, 4))
    """

    task: Task
    classes: tuple[str, ...]

    def shows(self, task: Task, classes: tuple[str, ...]) -> bool:
        """Whether it is what these would show, too."""
        mine, other = self.task, task
        same = mine.graph is other.graph and (mine.time, mine.label_rate, mine.seed) == (
            other.time,
            other.label_rate,
            other.seed,
        )
        return same and self.classes == classes

    @cached_property
    def _view(self) -> Task:
        return replace(self.task, history=_TIMES)

    @property
    def window(self) -> Window:
        """What is looked at: older vertices first, then those of the slice."""
        return self._view.window

    @property
    def start(self) -> int:
        """Number of older vertices."""
        return self._view.test.start

    def __len__(self) -> int:
        """Number of vertices in the slice."""
        return len(self.window) - self.start

    @cached_property
    def known(self) -> NDArray[np.int64]:
        """For each older vertex the column of its class; -1 where it has no label yet or a class that is not known."""
        return columns_among(self.classes, self.task.graph.class_names)[self._view.targets[: self.start]]

    @cached_property
    def words(self) -> sparse.csr_array:
        """1 where a vertex has a word, only words that occur: no column where features are dense or there are none."""
        features = self.task.graph.features
        if not isinstance(features, SparseFeatures):
            return sparse.csr_array((len(self.window), 0), dtype=np.float32)
        matrix = features.rows(self.window.rows).matrix
        used, places = np.unique(matrix.indices, return_inverse=True)
        # By name: numbers of columns depend on what else the graph holds, also on its future.
        order = np.argsort(np.array(list(features.columns.take(used)), object))
        row_of = np.empty(len(used), np.int32)
        row_of[order] = np.arange(len(used), dtype=np.int32)
        ones = np.ones(len(matrix.indices), np.float32)
        words = sparse.csr_array(
            (ones, row_of[places.ravel()], matrix.indptr.copy()), shape=(len(self.window), len(used))
        )
        words.sort_indices()
        return words

    @cached_property
    def texts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """In how many texts each word stands: of the older vertices, and of the slice."""
        words = self.words
        split = words.indptr[self.start]
        older, new = words.indices[:split], words.indices[split:]
        return np.bincount(older, minlength=words.shape[1]), np.bincount(new, minlength=words.shape[1])

    @property
    def _precision(self) -> type[np.floating]:
        return np.float64 if len(self.window) <= _SMALL else np.float32

    @cached_property
    def _ranks(self) -> NDArray[np.int64]:
        """Who goes first among the equally near: as if drawn, but always the same, whatever the order of vertices."""
        names = [str(name) for name in self.window.ids]
        order = sorted(range(len(names)), key=lambda row: (zlib.crc32(names[row].encode()), names[row]))
        return np.argsort(order)

    @cached_property
    def _rows(self) -> NDArray[np.floating]:
        """What each vertex is about, as a short vector."""
        features = self.task.graph.features
        if isinstance(features, DenseFeatures) and len(self.window):
            values = np.array(features.rows(self.window.rows).values, np.float64)
            spread = values.std(0)
            return ((values - values.mean(0)) / np.where(spread > 0, spread, 1)).astype(self._precision)
        texts = self.texts[0] + self.texts[1]
        shared = texts >= 2  # a word of one text makes it like no other
        rows = weighted(self.words.astype(self._precision), texts, len(self.window))
        return reduced(sparse.csr_array(rows[:, np.flatnonzero(shared)]))

    @cached_property
    def vectors(self) -> NDArray[np.floating]:
        """What each vertex and its neighbours are about: the mean of their vectors, of length one."""
        links = self.window.links
        n = len(self.window)
        ones = np.ones(len(links.indices), self._precision)
        total = sparse.csr_array((ones, links.indices, links.indptr), shape=(n, n)) @ self._rows + self._rows
        return unit(total / (np.diff(links.indptr)[:, None] + 1).astype(self._precision))

    @cached_property
    def nearest(self) -> NDArray[np.int64]:
        """For each vertex of the slice the forty nearest of all vertices by `vectors`."""
        return nearest_by_vectors(
            self.vectors[self.start :], self.vectors, _NEAREST, itself=self.start, ranks=self._ranks
        )[0]

    @cached_property
    def nearest_known(self) -> NDArray[np.floating]:
        """For each vertex of the slice its cosines to the five nearest older vertices of known classes by `vectors`."""
        labelled = np.flatnonzero(self.known >= 0)
        return nearest_by_vectors(self.vectors[self.start :], self.vectors[labelled], 5)[1]

    @cached_property
    def similar(self) -> sparse.csr_array:
        """Ties of each vertex of the slice to each other one: an edge, being one of its nearest by words, or both."""
        links = self.window.links
        inside = sparse.csr_array(
            (np.ones(len(links.indices)), links.indices, links.indptr), shape=(len(self.window),) * 2
        )[self.start :, self.start :]
        return sparse.csr_array(inside + self._alike())

    def _alike(self) -> sparse.csr_array:
        ranks = self._ranks[self.start :]
        if isinstance(self.task.graph.features, DenseFeatures):
            vectors = self.vectors[self.start :]
            rows, cosines = nearest_by_vectors(vectors, vectors, _SIMILAR, itself=0, ranks=ranks)
            near = cosines > 0  # as with words, what is at right angles or beyond is not alike
            return sparse.csr_array((np.ones(near.sum()), (np.nonzero(near)[0], rows[near])), shape=(len(self),) * 2)
        older, new = self.texts
        telling = np.flatnonzero((new >= 1) & (new <= max(_COMMON * len(self), 10)))
        rare = sparse.csr_array(self.words[self.start :, telling].astype(self._precision))
        return nearest_by_words(weighted(rare, (older + new)[telling], len(self.window)), _SIMILAR, ranks)
