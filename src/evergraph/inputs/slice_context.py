"""Slice context: a slice and its recent past, for detectors that read more than a model's outputs."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.graph.classes import columns_among
from evergraph.graph.evolving import Window
from evergraph.graph.features import DenseFeatures
from evergraph.inputs.similar import nearest_by_vectors, nearest_by_words, reduced, unit, weighted

if TYPE_CHECKING:
    from evergraph.learning.task import Task

__all__ = ["SliceContext"]

_TIMES = 3  # periods before the slice
_SIMILAR, _KNOWN, _NEAREST = 5, 5, 40  # numbers of nearest vertices
_SMALL = 10_000  # up to so many vertices, cosines have double precision, so that the order of vertices does not matter
_COMMON = 0.1  # words in more than this share of the slice's texts are ignored: they say little and cost most


@dataclass(frozen=True, eq=False)
class SliceContext:
    """A slice and the three periods before it, whatever the history of the task, with the labels that are released.

    Properties are computed on first use and cached. "Words" are sparse features of any kind. ``classes`` are the names
    of the known classes in the order of the output layer.

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
        """Whether the context of this task and these classes would be the same."""
        names = ("time", "label_rate", "label_latency", "seed")
        same = all(getattr(self.task, name) == getattr(task, name) for name in names)
        return same and self.task.graph is task.graph and self.classes == classes

    @cached_property
    def _view(self) -> Task:
        return replace(self.task, history=_TIMES)

    @property
    def window(self) -> Window:
        """The older vertices, followed by those of the slice."""
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
        """Column of the class of each older vertex; -1 without a label or if the class is not known."""
        return columns_among(self.classes, self.task.graph.class_names)[self._view.targets[: self.start]]

    @property
    def dense(self) -> DenseFeatures | None:
        """The numbers, or else the vectors, of a graph without words."""
        features = self.task.graph.features
        if features.words is not None:
            return None
        return features.vectors if features.numbers is None else features.numbers

    @cached_property
    def words(self) -> sparse.csr_array:
        """1 for each word of a vertex, one column per word that occurs; no columns without sparse features."""
        features = self.task.graph.features.words
        if features is None:
            return sparse.csr_array((len(self.window), 0), dtype=np.float32)
        matrix = features.rows(self.window.rows).matrix
        # By name: the numbers of columns depend on everything the graph contains, including its future.
        used, places = np.unique(features.name_ranks[matrix.indices], return_inverse=True)
        ones = np.ones(len(matrix.indices), np.float32)
        entries = (ones, places.ravel().astype(np.int32), matrix.indptr.copy())
        words = sparse.csr_array(entries, (len(self.window), len(used)))
        words.sort_indices()
        return words

    @cached_property
    def texts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Number of texts with each word: among the older vertices, and in the slice."""
        words = self.words
        split = words.indptr[self.start]
        older, new = words.indices[:split], words.indices[split:]
        return np.bincount(older, minlength=words.shape[1]), np.bincount(new, minlength=words.shape[1])

    @property
    def _precision(self) -> type[np.floating]:
        return np.float64 if len(self.window) <= _SMALL else np.float32

    @cached_property
    def _ranks(self) -> NDArray[np.int64]:
        """Ranks of equally near vertices: pseudo-random, but independent of the order of vertices."""
        names = [str(name) for name in self.window.ids]
        hashes = np.array([zlib.crc32(name.encode()) for name in names], np.uint32)
        order = np.argsort(hashes, kind="stable")
        shared = np.flatnonzero(np.diff(hashes[order]) == 0)  # rare: names with the same hash are in alphabetical order
        for start in shared[np.diff(shared, prepend=-2) > 1].tolist():
            stop = int(np.searchsorted(hashes, hashes[order[start]], "right", sorter=order))
            order[start:stop] = sorted(order[start:stop], key=names.__getitem__)
        ranks = np.empty(len(names), np.int64)
        ranks[order] = np.arange(len(names))
        return ranks

    @cached_property
    def _rows(self) -> NDArray[np.floating]:
        """Features or words of each vertex as a short vector."""
        if self.dense is not None and len(self.window):
            values = np.array(self.dense.rows(self.window.rows).values, np.float64)
            if (missing := np.isnan(values)).any():  # a missing number is an average one
                counts = np.maximum((~missing).sum(0), 1)
                values[missing] = (np.nansum(values, 0) / counts)[np.nonzero(missing)[1]]
            spread = values.std(0)
            return ((values - values.mean(0)) / np.where(spread > 0, spread, 1)).astype(self._precision)
        texts = self.texts[0] + self.texts[1]
        rows = weighted(self.words.astype(self._precision), texts, len(self.window))
        return reduced(sparse.csr_array(rows[:, np.flatnonzero(texts >= 2)]))  # a word of one text connects nothing

    @cached_property
    def vectors(self) -> NDArray[np.floating]:
        """Content of each vertex and its neighbours: the mean of their vectors, scaled to length 1."""
        total = self._adjacency(self._precision) @ self._rows + self._rows
        return unit(total / (np.diff(self.window.links.indptr)[:, None] + 1).astype(self._precision))

    def _adjacency(self, dtype: type[np.floating]) -> sparse.csr_array:
        links = self.window.links
        return sparse.csr_array(
            (np.ones(len(links.indices), dtype), links.indices, links.indptr), (len(self.window),) * 2
        )

    @cached_property
    def nearest(self) -> NDArray[np.int64]:
        """Rows of the forty vertices nearest to each vertex of the slice by `vectors`."""
        new = self.vectors[self.start :]
        return nearest_by_vectors(new, self.vectors, _NEAREST, itself=self.start, ranks=self._ranks)[0]

    @cached_property
    def nearest_known(self) -> NDArray[np.floating]:
        """Cosines of each vertex of the slice to the five nearest older vertices of known classes by `vectors`."""
        labelled = np.flatnonzero(self.known >= 0)
        return nearest_by_vectors(self.vectors[self.start :], self.vectors[labelled], _KNOWN)[1]

    @cached_property
    def similar(self) -> sparse.csr_array:
        """Similarity within the slice: 1 for an edge, plus 1 if a vertex is among the five nearest by words."""
        return sparse.csr_array(self._adjacency(np.float64)[self.start :, self.start :] + self._nearest_by_words())

    def _nearest_by_words(self) -> sparse.csr_array:
        ranks = self._ranks[self.start :]
        if self.dense is not None:
            vectors = self.vectors[self.start :]
            rows, cosines = nearest_by_vectors(vectors, vectors, _SIMILAR, itself=0, ranks=ranks)
            near = cosines > 0
            return sparse.csr_array((np.ones(near.sum()), (np.nonzero(near)[0], rows[near])), shape=(len(self),) * 2)
        older, new = self.texts
        telling = np.flatnonzero((new >= 1) & (new <= max(_COMMON * len(self), 10)))
        rare = sparse.csr_array(self.words[self.start :, telling].astype(self._precision))
        return nearest_by_words(weighted(rare, (older + new)[telling], len(self.window)), _SIMILAR, ranks)
