"""Synthetic evolving graphs with known classes, drift and homophily, from a hundred vertices to millions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError
from evergraph.graph import EvolvingGraph
from evergraph.graph.features import Features, WordCounts
from evergraph.graph.ids import Strings
from evergraph.graph.times import MAX_SPAN, TimeAxis

__all__ = ["Synthetic", "SyntheticGraph", "synthetic"]

_Rng = np.random.Generator
_Floats = NDArray[np.float64]
_Longs = NDArray[np.int64]
_Ints = NDArray[np.int32]
_Show = Callable[[str, int, int], None]

_MOST = 2**31 - 1
# Other whole numbers start at 0 without a limit; other numbers are shares from 0 to 1.
_RANGES = {
    "vertices": (1, _MOST),
    "times": (1, MAX_SPAN),
    "classes": (1, _MOST),
    "growth": (0.01, 100),
    "imbalance": (0, 10),
    "degree": (0, 100_000),
}
_BLOCK = 2**18  # vertices whose words are drawn at once
_TRIES = 6  # draws of a partner for an edge before the edge is left out


@dataclass(frozen=True, eq=False)
class SyntheticGraph:
    """A synthetic graph and what it was drawn from. Classes are in order of birth, as in the graph.

    ``births`` and ``deaths`` are the first and last period of each class by its name. ``classes`` is the true class of
    each vertex (its row in the graph's classes), also without a label. ``class_share[period, class]`` are the
    probabilities of the classes, and ``topics[period, class, place]`` the word columns of a class, frequent ones first.

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
    """The parameters of a synthetic graph; `generate` makes one.

    Equal parameters give equal graphs. Vertices, edges, texts and labels are drawn independently, so changing
    ``label_rate``, for example, changes nothing else. Ids and periods count from 0.

    Parameters
    ----------
    vertices, times
        Number of vertices and of periods.
    classes
        Number of classes that exist from the start.
    new_classes
        Number of later classes, born one at a time at even intervals once a quarter of the vertices exist.
    dying_classes
        How many of the first classes end before the last period.
    growth
        Ratio of the number of vertices in a period to that in the period before.
    imbalance
        Exponent of Zipf's law for the sizes of classes, independent of their age; 0 makes them equal.
    homophily
        Probability that both ends of an edge have the same class.
    degree
        Mean degree. Edges without a possible partner are left out.
    recency
        Share by which a vertex becomes less attractive to new ones with each period. At 0 age does not matter, at 1
        edges stay within a period.
    words
        Size of the vocabulary: a quarter is common to all classes, the rest is divided among them.
    words_per_vertex
        Number of words in each text; 0 makes a graph without features.
    text_noise
        Share of common words, which are independent of the class.
    drift
        Change from one period to the next: the standard deviation of the random walk of the logarithmic class weights,
        and the share of its words that a class exchanges.
    label_rate
        Share of the vertices with a label. The first vertex of each class always has one.
    seed
        Seed of the random numbers.

    Examples
    --------
    >>> made = Synthetic(vertices=500, times=10, classes=3, new_classes=2, dying_classes=1).generate()
    >>> len(made.graph), made.births, made.deaths["class 04"]
    (500, {'class 00': 0, 'class 01': 0, 'class 02': 0, 'class 03': 4, 'class 04': 8}, 9)
    >>> made.class_share.shape, made.graph.features.words.width
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
            _refuse("dying_classes", self.dying_classes, f"fewer than classes ({self.classes})")
        if self.dying_classes and self.times == 1:
            _refuse("dying_classes", self.dying_classes, "0, or more times than 1")
        if self.words < 4 * self.total:
            _refuse("words", self.words, f"at least {4 * self.total}, four for each class")
        if self.new_classes > (room := self.times - self._mature):
            _refuse(
                "new_classes", self.new_classes, f"at most {room}, the number of times after a quarter of the vertices"
            )
        for time, count in enumerate(np.diff(self._starts).tolist()):
            if count < (needed := max(1, len(self._ending(time)))):
                fix = f"more, or growth nearer to 1: time {time} gets {count}, but needs {needed} for its classes"
                _refuse("vertices", self.vertices, fix)

    @property
    def total(self) -> int:
        """Number of classes, old and new."""
        return self.classes + self.new_classes

    def generate(self, on_progress: Callable[[str, int, int], None] | None = None) -> SyntheticGraph:
        """Generate the graph.

        ``on_progress`` is called with what is drawn ("edges", then "words"), for how many vertices, and of how many.
        """
        show = on_progress or (lambda *_: None)
        for_share, for_class, for_links, for_topics, for_words, for_labels = np.random.default_rng(self.seed).spawn(6)
        times = np.repeat(np.arange(self.times), np.diff(self._starts))
        share = self._class_share(for_share)
        classes = self._draw_classes(for_class, share)
        source, target = self._draw_links(for_links, times, classes, show)
        topics = self._draw_topics(for_topics)
        features = self._draw_words(for_words, times, classes, topics, show) if self.words_per_vertex else None
        labelled = for_labels.random(self.vertices) < self.label_rate
        labelled[np.unique(classes, return_index=True)[1]] = True
        codes = np.where(labelled, classes, np.int32(-1))
        names = tuple(f"class {row:02d}" for row in range(self.total))
        graph = EvolvingGraph.assemble(
            np.arange(self.vertices),
            times,
            codes,
            names,
            Features(features),
            (source, target, None),
            TimeAxis(),
            {"source": repr(self)},
        )
        births, deaths = (dict(zip(names, of_class.tolist(), strict=True)) for of_class in self._spans)
        return SyntheticGraph(graph, births, deaths, classes, share, topics)

    @cached_property
    def _starts(self) -> _Longs:
        """First vertex of each period, and the number of vertices."""
        steps = np.arange(self.times)
        # The largest power is 1, so that none overflows.
        weights = np.power(self.growth, steps - (self.times - 1 if self.growth > 1 else 0), dtype=np.float64)
        reached = np.cumsum(weights)
        return np.concatenate([[0], np.rint(reached / reached[-1] * self.vertices)]).astype(np.int64)

    @property
    def _mature(self) -> int:
        """The first period before which a quarter of the vertices exist."""
        return int(np.searchsorted(self._starts, self.vertices / 4))

    @cached_property
    def _spans(self) -> tuple[_Longs, _Longs]:
        """First and last period of each class."""
        births, deaths = np.zeros(self.total, np.int64), np.full(self.total, self.times - 1, np.int64)
        births[self.classes :] = _spread(self._mature, self.times, self.new_classes)
        deaths[: self.dying_classes] = _spread(self.times // 4, self.times - 1, self.dying_classes)
        return births, deaths

    def _ending(self, time: int) -> _Longs:
        """Classes whose first or last period this is."""
        births, deaths = self._spans
        return np.flatnonzero((births == time) | (deaths == time))

    def _class_share(self, rng: _Rng) -> _Floats:
        steps = self.drift * rng.standard_normal((self.times, self.total))
        steps[0] = -self.imbalance * np.log(rng.permutation(self.total) + 1.0)
        births, deaths = self._spans
        time = np.arange(self.times)[:, None]
        walk = np.where((births <= time) & (time <= deaths), np.cumsum(steps, axis=0), -np.inf)
        weights = np.exp(walk - walk.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def _draw_classes(self, rng: _Rng, share: _Floats) -> _Ints:
        classes = np.empty(self.vertices, np.int32)
        for time in range(self.times):
            part = classes[self._starts[time] : self._starts[time + 1]]
            part[:] = _draw(rng, share[time], len(part))
            # Every class has a vertex in its first and last period, however rare it is. These come first in their
            # period, so that classes first occur in the order of their numbers.
            ending = self._ending(time)
            part[: len(ending)] = ending
        return classes

    def _draw_links(self, rng: _Rng, times: _Longs, classes: _Ints, show: _Show) -> tuple[_Ints, _Ints]:
        """Draw edges from each vertex to others of its own or an earlier period."""
        # A cell is a class in a period. An edge draws a cell and then any vertex of it.
        by_cell = np.argsort(classes, kind="stable")
        cells = np.bincount(classes.astype(np.int64) * self.times + times, minlength=self.total * self.times)
        first = (np.cumsum(cells) - cells).reshape(self.total, self.times)
        cells = cells.reshape(first.shape)
        sources, targets = [], []
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
            one, other = np.divmod(np.delete(pair, left), self.vertices)
            sources.append(one.astype(np.int32))
            targets.append(other.astype(np.int32))
            show("edges", int(self._starts[time + 1]), self.vertices)
        return np.concatenate(sources), np.concatenate(targets)

    def _draw_topics(self, rng: _Rng) -> _Ints:
        common = self.words // 4
        own = (self.words - common) // self.total
        # Only a quarter of a class's words is in use in a period, so that there are others to drift to.
        shape = self.times, self.total, (own + 3) // 4
        mine = common + own * np.arange(self.total)[:, None] + rng.integers(own, size=shape)
        # Every second word is common, so that classes overlap and new classes share words with old ones.
        fresh = np.where(np.arange(shape[2]) % 2, rng.integers(common, size=shape), mine)
        changed = np.where(rng.random(shape) < self.drift, np.arange(self.times)[:, None, None], 0)
        return np.take_along_axis(fresh, np.maximum.accumulate(changed), axis=0).astype(np.int32)

    def _draw_words(self, rng: _Rng, times: _Longs, classes: _Ints, topics: _Ints, show: _Show) -> WordCounts:
        digits = max(4, len(str(self.words - 1)))
        names = Strings.of(f"w{word:0{digits}d}" for word in range(self.words))
        # In blocks of vertices, each of which reads the numbers that it would read if all were drawn at once.
        total = self.vertices * self.words_per_vertex
        for_own, for_noise, for_common = (_ahead(rng, count) for count in (0, total, 2 * total))
        own, common = _zipf(topics.shape[2]), _zipf(self.words // 4)
        blocks = []
        for first in range(0, self.vertices, _BLOCK):
            part = slice(first, min(first + _BLOCK, self.vertices))
            size = part.stop - part.start, self.words_per_vertex
            words = topics[times[part, None], classes[part, None], _draw(for_own, own, size)]
            noise = for_noise.random(size) < self.text_noise
            words[noise] = _draw(for_common, common, int(noise.sum()))
            rows = np.arange(size[0] + 1) * size[1]
            entries = np.ones(words.size, np.float32), words.ravel(), rows
            blocks.append(WordCounts.of(sparse.csr_array(entries, shape=(size[0], self.words)), names))
            show("words", part.stop, self.vertices)
        counts = np.concatenate([np.diff(block.indptr) for block in blocks])
        return WordCounts(
            np.concatenate([[0], np.cumsum(counts)]),
            np.concatenate([block.indices for block in blocks]),
            np.concatenate([block.data for block in blocks]),
            names,
        )


def synthetic(**parameters: Any) -> EvolvingGraph:
    """Return a synthetic graph; the parameters are those of `Synthetic`.

    Examples
    --------
    >>> synthetic(vertices=500, degree=0, words_per_vertex=0)
    EvolvingGraph(vertices=500, edges=0, classes=12, times=0..11, features=none)
    """
    return Synthetic(**parameters).generate().graph


def _refuse(name: str, value: object, fix: str) -> NoReturn:
    raise InputError(f"{name} is {value!r}", fix=f"let {name} be {fix}")


def _spread(first: int, stop: int, count: int) -> _Longs:
    """Return ``count`` evenly spaced periods from ``first`` to before ``stop``."""
    return first + (2 * np.arange(count) + 1) * (stop - first) // (2 * max(count, 1))


def _ahead(rng: _Rng, count: int) -> _Rng:
    """Return a copy of a generator that has drawn ``count`` numbers more."""
    state: Any = deepcopy(rng.bit_generator)  # PCG64, which draws one state for each number
    return np.random.Generator(state.advance(count))


def _zipf(count: int) -> _Floats:
    return 1 / np.arange(1.0, count + 1)


def _draw(rng: _Rng, weights: _Floats, size: int | tuple[int, int]) -> _Longs:
    """Draw indices in proportion to weights; a weight of zero is never drawn."""
    reached = np.cumsum(weights)
    return np.searchsorted(reached / reached[-1], rng.random(size), side="right")


def _draw_cells(rng: _Rng, weights: _Floats, own: _Ints, alike: NDArray[np.bool_]) -> tuple[_Longs, _Longs]:
    """Draw rows (classes) and columns in proportion to weights, from a vertex's own row or from all others."""
    # The weights are laid end to end on a line, row after row; a point drawn on it falls into a cell.
    line = np.cumsum(weights)
    ends = line[weights.shape[1] - 1 :: weights.shape[1]]
    start = np.concatenate([[0], ends[:-1]])[own]
    length = ends[own] - start
    at = rng.random(len(own)) * np.where(alike, length, line[-1] - length)
    at += np.where(alike, start, np.where(at < start, 0, length))
    # Without other vertices, or by rounding, the class may be wrong; the caller checks that.
    at = np.minimum(at, np.nextafter(line[-1], 0))
    return np.divmod(np.searchsorted(line, at, side="right"), weights.shape[1])
