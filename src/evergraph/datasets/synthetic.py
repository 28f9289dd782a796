"""Made-up evolving graphs of which the truth is known, from a hundred vertices to millions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError
from evergraph.graph import EvolvingGraph
from evergraph.graph.columns import EdgeColumns, Origin, VertexColumns
from evergraph.graph.features import WordCounts
from evergraph.graph.ids import Strings
from evergraph.graph.times import MAX_SPAN, TimeAxis

__all__ = ["Synthetic", "SyntheticGraph", "synthetic"]

_Rng = np.random.Generator
_Floats = NDArray[np.float64]
_Longs = NDArray[np.int64]
_Ints = NDArray[np.int32]

_MOST = 2**31 - 1
# Of the parameters not named here, whole numbers may be anything from 0, and shares go up to 1.
_RANGES = {
    "vertices": (1, _MOST),
    "times": (1, MAX_SPAN),
    "classes": (1, _MOST),
    "growth": (0.01, 100),
    "imbalance": (0, 10),
    "degree": (0, 100_000),
}
_TRIES = 6  # how often a link looks for a partner before it is given up


@dataclass(frozen=True, eq=False)
class SyntheticGraph:
    """A generated graph and the truth about it; classes stand in order of birth, as in the graph.

    Parameters
    ----------
    graph
        The graph.
    births, deaths
        First and last time at which there are vertices of each class, by its name.
    classes
        The true class of each vertex (its row in the graph's classes), also where the graph has no label for it.
    class_share
        Probability of each class at each time, ``class_share[time, class]``, from which the classes were drawn.
    topics
        Columns of the words that each class uses at each time, from frequent to rare: ``topics[time, class, place]``.

    Examples
    --------
    >>> made = Synthetic(vertices=400, label_rate=0.5).generate()
    >>> int((made.graph.codes == -1).sum()), int((made.classes == -1).sum()), made.births["class 11"]
    (188, 0, 10)
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
    (500, {'class 00': 0, 'class 01': 0, 'class 02': 0, 'class 03': 4, 'class 04': 8}, 9)
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
        for field in fields(self):
            name, value, whole = field.name, getattr(self, field.name), isinstance(field.default, int)
            low, high = _RANGES.get(name, (0, _MOST if whole else 1))
            numbers = (int, np.integer) if whole else (int, float, np.integer, np.floating)
            if isinstance(value, bool) or not isinstance(value, numbers) or not low <= value <= high:
                _refuse(name, value, f"a {'whole ' if whole else ''}number from {low} to {high}")
        if self.dying_classes >= self.classes:
            _refuse("dying_classes", self.dying_classes, f"fewer than classes ({self.classes}), so that some live on")
        if self.dying_classes and self.times == 1:
            _refuse("dying_classes", self.dying_classes, "0, or more times than 1")
        if self.words < 4 * self.total:
            _refuse("words", self.words, f"at least {4 * self.total}, four for each class")
        if self.new_classes > (room := self.times - self._mature):
            _refuse(
                "new_classes", self.new_classes, f"at most {room}, for so many times follow a quarter of the vertices"
            )
        for time, count in enumerate(np.diff(self._starts).tolist()):
            if count < (needed := max(1, len(self._ending(time)))):
                fix = f"more, or growth nearer to 1: time {time} gets {count}, but needs {needed} for its classes"
                _refuse("vertices", self.vertices, fix)

    @property
    def total(self) -> int:
        """Number of classes, old and new."""
        return self.classes + self.new_classes

    def generate(self) -> SyntheticGraph:
        """Make the graph."""
        import pyarrow as pa

        for_share, for_class, for_links, for_topics, for_words, for_labels = np.random.default_rng(self.seed).spawn(6)
        times = np.repeat(np.arange(self.times), np.diff(self._starts))
        share = self._class_share(for_share)
        classes = self._draw_classes(for_class, share)
        source, target = self._draw_links(for_links, times, classes)
        topics = self._draw_topics(for_topics)
        features = self._draw_words(for_words, times, classes, topics) if self.words_per_vertex else None
        labelled = for_labels.random(self.vertices) < self.label_rate
        labelled[np.unique(classes, return_index=True)[1]] = True
        codes = np.where(labelled, classes, np.int32(-1))
        names = tuple(f"class {row:02d}" for row in range(self.total))
        vertices = VertexColumns(np.arange(self.vertices), times, codes, names, features, TimeAxis())
        edges = EdgeColumns(pa.array(source), pa.array(target), None, Origin("edges"))
        graph = EvolvingGraph.from_columns(vertices, edges, about={"source": repr(self)})
        births, deaths = (dict(zip(names, of_class.tolist(), strict=True)) for of_class in self._lives)
        return SyntheticGraph(graph, births, deaths, classes, share, topics)

    @cached_property
    def _starts(self) -> _Longs:
        """First vertex of each time, and the number of vertices."""
        steps = np.arange(self.times)
        # The largest power is 1, whichever way the growth goes, so that none overflows.
        weights = np.power(self.growth, steps - (self.times - 1 if self.growth > 1 else 0), dtype=np.float64)
        reached = np.cumsum(weights)
        return np.concatenate([[0], np.rint(reached / reached[-1] * self.vertices)]).astype(np.int64)

    @property
    def _mature(self) -> int:
        """The first time at which a quarter of the vertices are there already."""
        return int(np.searchsorted(self._starts, self.vertices / 4))

    @cached_property
    def _lives(self) -> tuple[_Longs, _Longs]:
        """First and last time of each class."""
        births, deaths = np.zeros(self.total, np.int64), np.full(self.total, self.times - 1, np.int64)
        births[self.classes :] = _spread(self._mature, self.times, self.new_classes)
        deaths[: self.dying_classes] = _spread(self.times // 4, self.times - 1, self.dying_classes)
        return births, deaths

    def _ending(self, time: int) -> _Longs:
        """Classes of which this is the first or the last time."""
        births, deaths = self._lives
        return np.flatnonzero((births == time) | (deaths == time))

    def _class_share(self, rng: _Rng) -> _Floats:
        steps = self.drift * rng.standard_normal((self.times, self.total))
        steps[0] = -self.imbalance * np.log(rng.permutation(self.total) + 1.0)
        births, deaths = self._lives
        time = np.arange(self.times)[:, None]
        walk = np.where((births <= time) & (time <= deaths), np.cumsum(steps, axis=0), -np.inf)
        weights = np.exp(walk - walk.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def _draw_classes(self, rng: _Rng, share: _Floats) -> _Ints:
        classes = np.empty(self.vertices, np.int32)
        for time in range(self.times):
            part = classes[self._starts[time] : self._starts[time + 1]]
            part[:] = _draw(rng, share[time], len(part))
            # However rare, a class has a vertex at its birth and at its death. These come first in their time, so that
            # classes appear in the order of their numbers.
            ending = self._ending(time)
            part[: len(ending)] = ending
        return classes

    def _draw_links(self, rng: _Rng, times: _Longs, classes: _Ints) -> tuple[_Longs, _Longs]:
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
            left = np.arange(len(source))
            for _ in range(_TRIES):
                one, alike = source[left], like[left]
                cell = _draw_cells(rng, weights, classes[one], alike)
                other = by_cell[first[cell] + (rng.random(len(left)) * cells[cell]).astype(np.int64)]
                fits = (one != other) & ((classes[one] == classes[other]) == alike)
                pair[left] = np.where(fits, np.minimum(one, other) * self.vertices + np.maximum(one, other), -1)
                values, places = np.unique(pair, return_index=True)
                left = np.delete(np.arange(len(pair)), places[values >= 0])
                if not len(left):
                    break
            pairs.append(np.delete(pair, left))
        return np.divmod(np.concatenate(pairs), self.vertices)

    def _draw_topics(self, rng: _Rng) -> _Ints:
        common = self.words // 4
        own = (self.words - common) // self.total
        # Only a quarter of a class's words is in use at a time: there are others to drift to.
        shape = self.times, self.total, (own + 3) // 4
        mine = common + own * np.arange(self.total)[:, None] + rng.integers(own, size=shape)
        # Every second word is common, so that classes overlap, and new ones bring partly new words.
        fresh = np.where(np.arange(shape[2]) % 2, rng.integers(common, size=shape), mine)
        changed = np.where(rng.random(shape) < self.drift, np.arange(self.times)[:, None, None], 0)
        return np.take_along_axis(fresh, np.maximum.accumulate(changed), axis=0).astype(np.int32)

    def _draw_words(self, rng: _Rng, times: _Longs, classes: _Ints, topics: _Ints) -> WordCounts:
        size = self.vertices, self.words_per_vertex
        words = topics[times[:, None], classes[:, None], _draw(rng, _zipf(topics.shape[2]), size)]
        noise = rng.random(size) < self.text_noise
        words[noise] = _draw(rng, _zipf(self.words // 4), int(noise.sum()))
        rows = np.arange(self.vertices + 1) * self.words_per_vertex
        entries = np.ones(words.size, np.float32), words.ravel(), rows
        counts = sparse.csr_array(entries, shape=(self.vertices, self.words))
        digits = max(4, len(str(self.words - 1)))
        return WordCounts.of(counts, Strings.of(f"w{word:0{digits}d}" for word in range(self.words)))


def synthetic(**parameters: Any) -> EvolvingGraph:
    """Return a made-up graph, without the truth about it; the parameters are those of `Synthetic`.

    Examples
    --------
    >>> synthetic(vertices=500, degree=0, words_per_vertex=0)
    EvolvingGraph(vertices=500, edges=0, classes=12, times=0..11, features=none)
    """
    return Synthetic(**parameters).generate().graph


def _refuse(name: str, value: object, fix: str) -> NoReturn:
    raise InputError(f"{name} cannot be {value!r}", fix=f"let {name} be {fix}")


def _spread(first: int, stop: int, count: int) -> _Longs:
    """So many times from ``first`` to before ``stop``, evenly spaced."""
    return first + (2 * np.arange(count) + 1) * (stop - first) // (2 * max(count, 1))


def _zipf(count: int) -> _Floats:
    return 1 / np.arange(1.0, count + 1)


def _draw(rng: _Rng, weights: _Floats, size: int | tuple[int, int]) -> _Longs:
    """Numbers of weights, drawn in proportion to these; a weight of zero is never drawn."""
    reached = np.cumsum(weights)
    return np.searchsorted(reached / reached[-1], rng.random(size), side="right")


def _draw_cells(rng: _Rng, weights: _Floats, own: _Ints, alike: NDArray[np.bool_]) -> tuple[_Longs, _Longs]:
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
