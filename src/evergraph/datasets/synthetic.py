"""Made-up evolving graphs of which the truth is known, from a hundred vertices to millions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from numbers import Integral, Real
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError
from evergraph.graph import EvolvingGraph
from evergraph.graph.columns import EdgeColumns, VertexColumns
from evergraph.graph.features import WordCounts
from evergraph.graph.origin import Origin
from evergraph.graph.strings import Strings
from evergraph.graph.times import MAX_SPAN, TimeAxis

__all__ = ["Synthetic", "SyntheticGraph", "synthetic"]

_DRAWS = 6  # how often a link looks for a partner before it is given up


@dataclass(frozen=True, eq=False)
class SyntheticGraph:
    """A generated graph and the truth about it. Classes are in order of birth, which is `graph.class_names`.

    Parameters
    ----------
    graph
        The graph.
    births, deaths
        First and last time at which there are vertices of each class, by its name.
    classes
        The true class of each vertex, also where the graph has no label for it.
    class_share
        Probability of each class at each time, ``class_share[time, class]``, from which the classes were drawn.
    topics
        Columns of the words that each class uses at each time, from frequent to rare: ``topics[time, class, place]``.
    """

    graph: EvolvingGraph
    births: Mapping[str, int]
    deaths: Mapping[str, int]
    classes: NDArray[np.int32]
    class_share: NDArray[np.float64]
    topics: NDArray[np.int32]


@dataclass(frozen=True)
class Synthetic:
    """What an evolving graph should be like; `generate` makes one.

    The same parameters give the same graph. Vertices, links, texts and labels are drawn apart from each other, so that
    another ``label_rate``, say, leaves all else as it was. Vertices are numbered from 0, and so are times.

    Parameters
    ----------
    vertices
        Number of vertices.
    times
        Number of times over which they come.
    classes
        Number of classes that exist from the start.
    new_classes
        Number of classes born later, evenly spread and one at a time, when a quarter of the vertices exist or more.
    dying_classes
        How many of the first classes end before the last time.
    growth
        How many times as many vertices come at each time as at the one before.
    imbalance
        Exponent of Zipf's law for the sizes of classes, whatever their age: 0 makes them alike.
    homophily
        Probability that both ends of an edge have the same class.
    degree
        Mean degree. Edges without a partner (the only vertex of a class has no like) are left out.
    recency
        By which share a vertex gets less attractive to new ones with each time: with 0 age does not matter, with 1
        vertices link within their own time only.
    words
        Size of the vocabulary: a quarter is common to all, and each class has its own part of the rest.
    words_per_vertex
        Number of words in each text; with 0 the graph has no features.
    text_noise
        Share of common words that say nothing about the class.
    drift
        How fast the past becomes stale: the deviation of the random walk of the logarithmic class weights, and the
        share of its words that a class exchanges, from one time to the next.
    label_rate
        Share of the vertices with a label. The first vertex of each class always has one.
    seed
        Seed of all that is random.

    Examples
    --------
    >>> made = Synthetic(vertices=500, times=10, classes=3, new_classes=2, dying_classes=1).generate()
    >>> len(made.graph), made.births, made.deaths["class 04"]
    (500, {'class 00': 0, 'class 01': 0, 'class 02': 0, 'class 03': 4, 'class 04': 7}, 9)
    >>> made.class_share.shape, made.graph.features.width
    ((10, 5), 2000)
    """

    vertices: int = 3000
    times: int = 12
    classes: int = 8
    new_classes: int = 4
    dying_classes: int = 1
    growth: float = 1.0
    imbalance: float = 1.0
    homophily: float = 0.7
    degree: float = 6.0
    recency: float = 0.3
    words: int = 2000
    words_per_vertex: int = 8
    text_noise: float = 0.6
    drift: float = 0.1
    label_rate: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        most = {"vertices": 2**31 - 1, "times": MAX_SPAN, "growth": 100, "imbalance": 10, "words_per_vertex": 10_000}
        least = {"vertices": 1, "times": 1, "classes": 1, "growth": 0.01}
        for field in fields(self):
            name, value, whole = field.name, getattr(self, field.name), isinstance(field.default, int)
            low, high = least.get(name, 0), most.get(name, 2**31 - 1 if whole else 1)
            if name == "degree":
                high = self.vertices
            if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
                _refuse(name, value, f"a {'whole ' if whole else ''}number")
            if not low <= value <= high:
                _refuse(name, value, f"a number from {low} to {high}")
        if self.dying_classes >= self.classes:
            _refuse("dying_classes", self.dying_classes, f"fewer than classes ({self.classes}), so that some live on")
        if self.dying_classes and self.times == 1:
            _refuse("dying_classes", self.dying_classes, "0, or more times than 1")
        if self.words < 4 * self.total:
            _refuse("words", self.words, f"at least {4 * self.total}, four for each class")
        if self.new_classes > (room := self.times - self._maturity):
            _refuse(
                "new_classes", self.new_classes, f"at most {room}, one for each time after a quarter of the vertices"
            )
        births, deaths = self._births, self._deaths
        for time, count in enumerate(np.diff(self._starts).tolist()):
            if count < (needed := max(1, int(((births == time) | (deaths == time)).sum()))):
                _refuse("vertices", self.vertices, f"more: there are {count} for time {time}, which needs {needed}")

    @property
    def total(self) -> int:
        """Number of classes, old and new."""
        return self.classes + self.new_classes

    def generate(self) -> SyntheticGraph:
        """Make the graph."""
        for_share, for_class, for_links, for_topics, for_words, for_labels = np.random.default_rng(self.seed).spawn(6)
        times = np.repeat(np.arange(self.times), np.diff(self._starts))
        share = self._class_share(for_share)
        classes = self._draw_classes(for_class, share)
        source, target = self._draw_links(for_links, times, classes)
        topics = self._draw_topics(for_topics)
        features = self._draw_words(for_words, times, classes, topics) if self.words_per_vertex else None
        labelled = for_labels.random(self.vertices) < self.label_rate
        labelled[np.unique(classes, return_index=True)[1]] = True
        names = tuple(f"class {row:02d}" for row in range(self.total))
        codes = np.where(labelled, classes, np.int32(-1))
        columns = VertexColumns(np.arange(self.vertices), times, codes, names, features, TimeAxis())
        return SyntheticGraph(
            EvolvingGraph.from_columns(columns, _edges(source, target), about={"source": repr(self)}),
            dict(zip(names, self._births.tolist(), strict=True)),
            dict(zip(names, self._deaths.tolist(), strict=True)),
            classes,
            share,
            topics,
        )

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """First vertex of each time, and the number of vertices."""
        steps = np.arange(self.times)
        # The largest count is the one, whichever way the growth goes: no power overflows.
        weights = np.power(self.growth, steps - (self.times - 1 if self.growth > 1 else 0), dtype=np.float64)
        reached = np.cumsum(weights)
        return np.concatenate([[0], np.rint(reached / reached[-1] * self.vertices)]).astype(np.int64)

    @property
    def _maturity(self) -> int:
        """The first time before which a quarter of the vertices exist."""
        return int(np.searchsorted(self._starts, self.vertices / 4))

    @property
    def _births(self) -> NDArray[np.int64]:
        later = _spread(self._maturity, self.times, self.new_classes)
        return np.concatenate([np.zeros(self.classes, np.int64), later])

    @property
    def _deaths(self) -> NDArray[np.int64]:
        deaths = np.full(self.total, self.times - 1)
        deaths[: self.dying_classes] = _spread(self.times // 4, self.times - 1, self.dying_classes)
        return deaths

    def _class_share(self, rng: np.random.Generator) -> NDArray[np.float64]:
        start = np.log(rng.permutation(self.total) + 1.0) * -self.imbalance
        steps = self.drift * rng.standard_normal((self.times, self.total))
        steps[0] = start
        walk = np.cumsum(steps, axis=0)
        time = np.arange(self.times)[:, None]
        alive = (self._births <= time) & (time <= self._deaths)
        weights = np.where(alive, np.exp(walk - walk.max(axis=1, keepdims=True)), 0.0)
        return weights / weights.sum(axis=1, keepdims=True)

    def _draw_classes(self, rng: np.random.Generator, share: NDArray[np.float64]) -> NDArray[np.int32]:
        classes = np.empty(self.vertices, np.int32)
        births, deaths = self._births, self._deaths
        for time in range(self.times):
            part = classes[self._starts[time] : self._starts[time + 1]]
            part[:] = _draw(rng, share[time], len(part))
            # However rare, a class has a vertex at its birth and at its death. These come first in their time, so that
            # classes appear in the order of their numbers.
            ends = np.flatnonzero((births == time) | (deaths == time))
            part[: len(ends)] = ends
        return classes

    def _draw_links(
        self, rng: np.random.Generator, times: NDArray[np.int64], classes: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Links from each vertex to others of its own or an earlier time."""
        # A cell is a class at a time. Its vertices are alike, so that a link draws a cell and then any vertex of it.
        by_cell = np.argsort(classes, kind="stable")
        cells = np.bincount(classes.astype(np.int64) * self.times + times, minlength=self.total * self.times)
        first = (np.cumsum(cells) - cells).reshape(self.total, self.times)
        cells = cells.reshape(first.shape)
        pairs = []
        for time in range(self.times):
            new = np.arange(self._starts[time], self._starts[time + 1])
            source = np.repeat(new, rng.poisson(self.degree / 2, len(new)))
            like = rng.random(len(source)) < self.homophily
            weights = cells[:, : time + 1] * (1 - self.recency) ** np.arange(time, -1, -1.0)
            pair = np.full(len(source), -1)
            open = np.arange(len(source))
            for _ in range(_DRAWS):
                one, alike = source[open], like[open]
                cell = _draw_cells(rng, weights, classes[one], alike)
                other = by_cell[first[cell] + (rng.random(len(open)) * cells[cell]).astype(np.int64)]
                fits = (one != other) & ((classes[one] == classes[other]) == alike)
                pair[open] = np.where(fits, np.minimum(one, other) * self.vertices + np.maximum(one, other), -1)
                kept, places = np.unique(pair, return_index=True)
                settled = np.zeros(len(pair), bool)
                settled[places[kept >= 0]] = True
                open = np.flatnonzero(~settled)
            pair[open] = -1
            pairs.append(pair[pair >= 0])
        return np.divmod(np.concatenate(pairs), self.vertices)

    def _draw_topics(self, rng: np.random.Generator) -> NDArray[np.int32]:
        common = self.words // 4
        own = (self.words - common) // self.total
        # Only a quarter of a class's words is in use at a time: there are others to drift to.
        shape = self.times, self.total, (own + 3) // 4
        mine = common + own * np.arange(self.total)[:, None] + rng.integers(own, size=shape)
        # Every second word is common, so that classes overlap, and new ones bring partly new words.
        fresh = np.where(np.arange(shape[2]) % 2, rng.integers(common, size=shape), mine)
        changed = np.where(rng.random(shape) < self.drift, np.arange(self.times)[:, None, None], 0)
        return np.take_along_axis(fresh, np.maximum.accumulate(changed), axis=0).astype(np.int32)

    def _draw_words(
        self,
        rng: np.random.Generator,
        times: NDArray[np.int64],
        classes: NDArray[np.int32],
        topics: NDArray[np.int32],
    ) -> WordCounts:
        size = self.vertices, self.words_per_vertex
        words = topics[times[:, None], classes[:, None], _draw(rng, _zipf(topics.shape[2]), size)]
        noise = rng.random(size) < self.text_noise
        words[noise] = _draw(rng, _zipf(self.words // 4), int(noise.sum()))
        rows = np.arange(self.vertices + 1) * self.words_per_vertex
        counts = sparse.csr_array(
            (np.ones(words.size, np.float32), words.ravel(), rows), shape=(self.vertices, self.words)
        )
        digits = max(4, len(str(self.words - 1)))
        return WordCounts.of(counts, Strings.of(f"w{word:0{digits}d}" for word in range(self.words)))


def synthetic(**parameters: Any) -> EvolvingGraph:
    """A made-up graph, without the truth about it.

    Parameters
    ----------
    parameters
        Those of `Synthetic`.

    Examples
    --------
    >>> synthetic(vertices=500, degree=0, words_per_vertex=0)
    EvolvingGraph(vertices=500, edges=0, classes=12, times=0..11, features=none)
    """
    return Synthetic(**parameters).generate().graph


def _refuse(name: str, value: object, fix: str) -> NoReturn:
    raise InputError(f"{name} cannot be {value!r}", fix=f"let {name} be {fix}")


def _spread(first: int, stop: int, count: int) -> NDArray[np.int64]:
    """So many times from ``first`` to before ``stop``, evenly spaced."""
    return first + (2 * np.arange(count) + 1) * (stop - first) // (2 * max(count, 1))


def _zipf(count: int) -> NDArray[np.float64]:
    return 1 / np.arange(1.0, count + 1)


def _draw(rng: np.random.Generator, weights: NDArray[np.float64], size: int | tuple[int, int]) -> NDArray[np.int64]:
    """Numbers of weights, drawn in proportion to these; a weight of zero is never drawn."""
    reached = np.cumsum(weights)
    return np.searchsorted(reached / reached[-1], rng.random(size), side="right")


def _draw_cells(
    rng: np.random.Generator, weights: NDArray[np.float64], own: NDArray[np.int32], alike: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows (classes) and columns of weights, drawn in proportion to these from one's own row or from all others."""
    # The weights are laid end to end on a line, row after row, so that a point drawn on it falls into a cell.
    line = np.cumsum(weights)
    ends = line[weights.shape[1] - 1 :: weights.shape[1]]
    start = np.concatenate([[0], ends[:-1]])[own]
    length = ends[own] - start
    at = rng.random(len(own)) * np.where(alike, length, line[-1] - length)
    at += np.where(alike, start, np.where(at < start, 0, length))
    # Nobody else there, or an unlucky rounding: the caller sees that the class is wrong.
    at = np.minimum(at, np.nextafter(line[-1], 0))
    return np.divmod(np.searchsorted(line, at, side="right"), weights.shape[1])


def _edges(source: NDArray[np.int64], target: NDArray[np.int64]) -> EdgeColumns:
    import pyarrow as pa

    return EdgeColumns(pa.array(source), pa.array(target), None, Origin("edges"))
