"""Signals of unseen classes: what a slice, its past and the model's outputs say about each vertex.

A signal is one number per vertex; most are higher if the class of the vertex is unseen. They come from five sources of
evidence, each a small class below: the model's logits, labels that spread over edges, nearest vertices, a ridge
regression on contents, and words. `slice_signals` computes all of them.

Each source can also say what it would find if a class were *hidden*, that is, if the past had no label of it. So the
known vertices of past slices show how vertices of a new class would look in this graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import gammaln

from evergraph.graph.classes import columns_among
from evergraph.graph.evolving import Window
from evergraph.inputs.similar import nearest_by_vectors, unit
from evergraph.inputs.slice_context import SliceContext

__all__ = ["NAMES", "PastContext", "SliceSignals", "slice_signals"]

_PAST = 14_000  # older vertices that are read, the newest ones
_SMALL = 2_000  # up to so many vertices, vectors have double precision, so that the order of vertices does not matter
_NEAREST, _CLOSE = 50, 5  # nearest vertices, and those of them whose cosines count
_DAMPING, _ROUNDS = 0.9, 6  # of the labels that spread over edges
_SIMILAR_WEIGHT, _SIMILAR_ROUNDS = 0.7, 3  # of the mean over similar vertices
_DECAY, _OLDEST, _FLOOR = 0.7, 12, 0.05  # weight of a label by its age: 0.7 per period, down to a floor
_SHARPNESS = 8.0  # of the softmax of ridge scores
_WORDS, _PATCH, _CLASS_WORDS = 50.0, 100.0, 3_000.0  # words that the overall distribution counts for; cap of a class
_REPEATS = 25  # occurrences of a word in a patch that count
_TEXTS = 5.0  # texts that the overall share counts for, in a class's share of texts with a word
_LIMIT = 5.0  # bound of signals that compare two classes

Hidden = NDArray[np.int64] | None
"""Column of the class that is hidden for each vertex, -1 for none; None hides no class."""
Values = dict[str, NDArray[np.float64]]

_RAW = (
    *("msp", "entropy", "energy", "margin"),
    *("label_mass", "label_max", "label_other"),
    *("known_distance", "slice_excess", "slice_density", "vote_other"),
    *("ridge", "ridge_entropy", "ridge_margin", "ridge_other", "leverage"),
    *("class_likelihood", "likelihood_other", "new_words", "new_shared_words", "rarity", "growth", "excess_words"),
    "bayes_factor",
)
_CONTEXT = ("degree", "isolated", "slice_neighbours", "slice_share", "similar_vertices")
NAMES = (*_RAW, *(f"{name} of similar" for name in _RAW), *_CONTEXT)
"""Names of the columns that `SliceSignals.values` returns."""

MEANINGS = {
    "msp": "the model is unsure of the most likely class",
    "entropy": "the model spreads its probability over many classes",
    "energy": "the model's outputs are low for all classes",
    "margin": "the two most likely classes are close",
    "label_mass": "few labels reach the vertex over edges",
    "label_max": "no single class reaches it over edges",
    "label_other": "labels of classes that the model does not know reach it over edges",
    "known_distance": "it is far from the nearest vertices with a label",
    "slice_excess": "it is closer to its own slice than to older vertices with a label",
    "slice_density": "its slice is dense around it",
    "vote_other": "its nearest vertices are of classes that the model does not know",
    "ridge": "its contents fit no known class (ridge regression)",
    "ridge_entropy": "its contents fit many classes equally (ridge regression)",
    "ridge_margin": "its contents fit two classes about equally (ridge regression)",
    "ridge_other": "its contents fit a class that the model does not know (ridge regression)",
    "leverage": "its contents are unlike those of older vertices",
    "class_likelihood": "its words are unlikely in every known class",
    "likelihood_other": "its words are likely in a class that the model does not know",
    "new_words": "many of its words are new",
    "new_shared_words": "it shares new words with its slice",
    "rarity": "its words were rare before",
    "growth": "its words have become more frequent",
    "excess_words": "its words are more frequent in the slice than its likely classes explain",
    "bayes_factor": "a new class explains the words of its surroundings better than any known class",
    "degree": "it has many edges",
    "isolated": "it has no edges",
    "slice_neighbours": "it has many neighbours in its own slice",
    "slice_share": "most of its neighbours are in its own slice",
    "similar_vertices": "many vertices of the slice are similar to it",
}
"""What it means if a signal is high."""


class PastContext(SliceContext):
    """A slice and the newest 14,000 vertices before it, also those of classes that the model does not know."""

    @cached_property
    def window(self) -> Window:
        graph, time = self.task.graph, self.task.time
        start, stop = (int(row) for row in np.searchsorted(graph.times, (time, time + 1)))
        first = max(start - _PAST, 0)
        return Window(graph, int(graph.times[min(first, len(graph) - 1)]), time, slice(first, stop))

    @cached_property
    def start(self) -> int:
        return int(np.searchsorted(self.window.times, self.task.time))

    @cached_property
    def labelled_classes(self) -> tuple[str, ...]:
        """The known classes, followed by other classes with a released label."""
        names, released = self.task.graph.class_names, self.task.released
        others = {names[code] for code in np.unique(released[released >= 0])} - set(self.classes)
        return (*self.classes, *sorted(others))

    @cached_property
    def known(self) -> NDArray[np.int64]:
        """Place of the class of each older vertex among `labelled_classes`; -1 without a label."""
        columns = columns_among(self.labelled_classes, self.task.graph.class_names)
        released = self.task.released
        return columns[released[len(released) - self.start :]]

    @cached_property
    def ages(self) -> NDArray[np.int64]:
        """Periods between each older vertex and the slice."""
        return self.task.time - self.window.times[: self.start]

    @property
    def _precision(self) -> type[np.floating]:
        return np.float64 if len(self.window) <= _SMALL else np.float32

    @cached_property
    def _ranks(self) -> NDArray[np.int64]:
        new = SliceContext(self.task, self.classes)._ranks[-len(self) :] if len(self) else np.zeros(0, np.int64)
        return np.concatenate([np.arange(self.start), self.start + np.argsort(np.argsort(new))])

    @cached_property
    def contents(self) -> NDArray[np.floating]:
        """Content of each vertex without its neighbours, scaled to length 1."""
        return unit(self._rows)

    @cached_property
    def adjacency(self) -> sparse.csr_array:
        """Edges of the window as ones."""
        return self._adjacency(self._precision)


@dataclass(frozen=True, eq=False)
class SliceSignals:
    """The signals of a slice.

    Parameters
    ----------
    context
        The slice and its past.
    logits
        The model's own logits, one column for each known class.
    """

    context: PastContext
    logits: NDArray[np.floating]

    def values(self) -> NDArray[np.float64]:
        """Return one row per vertex of the slice and one column for each of `NAMES`."""
        return self._all[0]

    def hidden_values(self, targets: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the values that known vertices would have if the past had no label of their class.

        Parameters
        ----------
        targets
            Column of the class of each vertex; below 0 for vertices that stay as they are.
        """
        hidden = np.where(targets >= 0, targets, -1)
        raw, extra = self._rows(hidden)
        plain, similar = self._all[1], self._similar
        # Vertices of one class appear together: a vertex of a hidden class has similar vertices of the same class.
        entries = sparse.coo_array(similar)
        same = (hidden[entries.row] == hidden[entries.col]) & (hidden[entries.row] >= 0)
        within = sparse.csr_array((entries.data[same], (entries.row[same], entries.col[same])), shape=similar.shape)
        averaged = self._averaged(plain, similar) + self._averaged(raw - plain, within)
        return np.concatenate([raw, averaged, extra], 1)

    @cached_property
    def _all(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        raw, extra = self._rows(None)
        return np.concatenate([raw, self._averaged(raw, self._similar), extra], 1), raw

    def _rows(self, hidden: Hidden) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        found: Values = {}
        for source in self._sources:
            found |= source(hidden)
        raw, extra = (
            np.nan_to_num(np.stack([np.asarray(found[name], np.float64) for name in names], 1))
            for names in (_RAW, _CONTEXT)
        )
        return raw, extra

    @cached_property
    def _sources(self) -> tuple[Callable[[Hidden], Values], ...]:
        context, classes = self.context, self.logits.shape[1]
        logits = self.logits.astype(np.float64)
        ties = logits == logits.max(1, keepdims=True, initial=-np.inf)
        predicted = (ties / np.maximum(ties.sum(1, keepdims=True), 1)).sum(0)
        labels = _Labels(context, classes)
        nearest = _Nearest(context, classes)
        ridge = _Ridge(context, classes)
        words = _Words(context, predicted, context.similar)
        return (lambda hidden: _model(logits, hidden), labels, nearest, ridge, words)

    @cached_property
    def _similar(self) -> sparse.csr_array:
        """Similar vertices of the slice; the entries of a row have the sum 1."""
        return sparse.csr_array(_rows_of_sum_one(self.context.similar))

    def _averaged(self, values: NDArray[np.float64], similar: sparse.csr_array) -> NDArray[np.float64]:
        """Mix each vertex's values with the mean over similar vertices, several times."""
        alone = np.diff(self._similar.indptr) == 0
        found = values
        for _ in range(_SIMILAR_ROUNDS):
            found = (1 - _SIMILAR_WEIGHT) * values + _SIMILAR_WEIGHT * (similar @ found)
            found[alone] = values[alone]
        return found


def slice_signals(context: SliceContext, logits: NDArray[np.floating]) -> SliceSignals:
    """Return the signals of a slice; they are computed on first use and kept as long as the context."""
    found = _kept.get(context)
    if found is None or not np.array_equal(found.logits, logits):
        found = _kept[context] = SliceSignals(PastContext(context.task, context.classes), logits)
    return found


_kept: WeakKeyDictionary[SliceContext, SliceSignals] = WeakKeyDictionary()


# --- the model's logits ----------------------------------------------------------------------------------------------


def _model(logits: NDArray[np.float64], hidden: Hidden) -> Values:
    """The usual scores of logits. A hidden class is one whose logit is left out."""
    x = _without(logits, hidden)
    largest = np.partition(x, -2, axis=1)[:, -2:] if x.shape[1] > 1 else np.repeat(x, 2, axis=1)
    powers = np.exp(x - largest[:, 1:])
    total = powers.sum(1)
    shares = powers / total[:, None]
    return {
        "msp": np.log1p(-np.minimum(shares.max(1), 1 - 1e-9)),
        "entropy": _entropy(shares),
        "energy": -(largest[:, 1] + np.log(total)),
        "margin": np.maximum(largest[:, 0] - largest[:, 1], -20.0),
    }


# --- labels that spread over edges -----------------------------------------------------------------------------------


class _Labels:
    """Label propagation: the labels of older vertices spread over edges to vertices without a label."""

    def __init__(self, context: PastContext, classes: int) -> None:
        self.classes = classes
        labelled = np.flatnonzero(context.known >= 0)
        width, adjacency = len(context.labelled_classes), context.adjacency
        free = np.setdiff1d(np.arange(len(context.window)), labelled, assume_unique=True)
        known = sparse.csr_array(
            (np.ones(len(labelled), adjacency.dtype), (labelled, context.known[labelled])), (len(context.window), width)
        )
        rows = _rows_of_sum_one(adjacency)[free]
        start, among = (rows @ known).toarray(), sparse.csr_array(rows[:, free])
        mass = np.zeros_like(start)
        for _ in range(_ROUNDS):
            mass = _DAMPING * (among @ mass + start)
        new = np.searchsorted(free, np.arange(context.start, len(context.window)))
        self.degree = np.diff(adjacency.indptr)[context.start :].astype(np.float64)
        self.mass, self.counts = mass[new].astype(np.float64), start[new] * self.degree[:, None]
        self.inside = np.asarray(adjacency[context.start :, context.start :].sum(1)).ravel()
        self.similar = np.asarray(context.similar.sum(1)).ravel()

    def __call__(self, hidden: Hidden) -> Values:
        mass, degree = self.mass, self.degree
        if hidden is not None:  # as if the vertices of the class were not there
            rows = np.flatnonzero(hidden >= 0)
            own = np.zeros(len(mass))
            own[rows] = mass[rows, hidden[rows]]
            mass, degree = mass.copy(), degree.copy()
            mass[rows, hidden[rows]] = 0
            mass /= np.maximum(1 - own, 0.1)[:, None]
            degree[rows] -= self.counts[rows, hidden[rows]]
        known = mass[:, : self.classes]
        return {
            "label_mass": -known.sum(1),
            "label_max": -known.max(1, initial=0),
            "label_other": mass[:, self.classes :].sum(1),
            "degree": np.log1p(np.maximum(degree, 0)),
            "isolated": degree < 0.5,
            "slice_neighbours": np.log1p(self.inside),
            "slice_share": np.where(degree >= 0.5, self.inside / np.maximum(degree, 1), 0.5),
            "similar_vertices": np.log1p(self.similar),
        }


# --- nearest vertices ------------------------------------------------------------------------------------------------


class _Nearest:
    """The nearest vertices by the content of neighbourhoods, in the past and in the slice."""

    def __init__(self, context: PastContext, classes: int) -> None:
        self.classes = classes
        vectors, start = context.vectors, context.start
        ranks = context._ranks if vectors.dtype == np.float64 else None  # in single precision, rounding breaks ties
        rows, cosines = nearest_by_vectors(vectors[start:], vectors, _NEAREST, itself=start, ranks=ranks)
        order = np.argsort(-cosines, axis=1, kind="stable")
        rows, self.cosines = np.take_along_axis(rows, order, 1), np.take_along_axis(cosines, order, 1).astype(float)
        # Class of each nearest vertex: -1 without a label, -2 in the slice.
        self.of = np.append(context.known, np.full(len(context), -2))[rows]
        self.share = (len(context) - 1) / max(len(context.window) - 1, 1)

    def __call__(self, hidden: Hidden) -> Values:
        count = len(self.cosines)
        if not self.cosines.shape[1]:
            return dict.fromkeys(("known_distance", "slice_excess", "slice_density", "vote_other"), np.zeros(count))
        gone = np.zeros(self.of.shape, bool) if hidden is None else (self.of == hidden[:, None]) & (self.of >= 0)
        known = self._closest((self.of >= 0) & (self.of < self.classes) & ~gone)
        density = np.zeros(count)
        if 0 < self.share < 1:
            left = np.maximum((~gone).sum(1), 1)
            inside = (self.of == -2).sum(1) / left
            density = (inside - self.share) / np.sqrt(self.share * (1 - self.share) / left)
        votes = np.exp(10 * (self.cosines - 1)) * ((self.of >= 0) & ~gone)
        other = (votes * (self.of >= self.classes)).sum(1) / np.maximum(votes.sum(1), 1e-12)
        return {
            "known_distance": -known,
            "slice_excess": self._closest(self.of == -2) - known,
            "slice_density": density,
            "vote_other": other,
        }

    def _closest(self, chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Mean cosine to the five closest of some; those that are not on the list count as the last one on it."""
        cosines = np.where(chosen, self.cosines, self.cosines[:, -1:])
        return np.asarray(-np.sort(-cosines, axis=1)[:, :_CLOSE].mean(1))


# --- ridge regression ------------------------------------------------------------------------------------------------


class _Ridge:
    """Ridge regression of the classes on the contents of vertices and of their neighbourhoods; newer labels count more.

    The leverage of a vertex says how unusual its content is, whatever its class.
    """

    def __init__(self, context: PastContext, classes: int) -> None:
        self.classes = classes
        inputs = np.concatenate([context.contents, context.vectors, np.ones((len(context.window), 1))], 1)
        labelled = np.flatnonzero(context.known >= 0)
        weights = label_weights(context)
        past, new = inputs[labelled], inputs[context.start :]
        gram = (past.T @ (past * weights[:, None].astype(past.dtype))).astype(np.float64)
        inverse = np.linalg.inv(gram + np.eye(len(gram)))
        width = len(context.labelled_classes)
        one = sparse.csr_array((weights, (context.known[labelled], np.arange(len(labelled)))), (width, len(labelled)))
        self.scores = new @ (inverse @ (one @ past).T)
        self.leverage = np.log1p(np.einsum("ij,ij->i", new @ inverse, new) * max(len(labelled), 1))

    def __call__(self, hidden: Hidden) -> Values:
        scores = _without(self.scores, hidden)[:, : self.classes]
        largest = np.partition(scores, -2, axis=1)[:, -2:] if self.classes > 1 else np.repeat(scores, 2, axis=1)
        shares = np.exp(_SHARPNESS * (scores - largest[:, 1:]))
        shares /= shares.sum(1, keepdims=True)
        return {
            "ridge": -np.maximum(largest[:, 1], -_LIMIT),
            "ridge_entropy": _entropy(shares),
            "ridge_margin": np.maximum(largest[:, 0] - largest[:, 1], -2.0),
            "ridge_other": _other(self.scores, hidden, self.classes),
            "leverage": self.leverage,
        }


def label_weights(context: PastContext) -> NDArray[np.float64]:
    """Weight of each labelled older vertex: newer labels count more."""
    ages = context.ages[context.known >= 0]
    return np.asarray(_DECAY ** np.minimum(ages, _OLDEST) + _FLOOR)


# --- words -----------------------------------------------------------------------------------------------------------


class _Words:
    """Words of vertices and of patches: a vertex and the vertices that are similar to it.

    The Bayes factor compares two explanations of a patch's words, per word: a class that nothing is known of, and the
    best known class. Both are Dirichlet-multinomial distributions.
    """

    def __init__(self, context: PastContext, predicted: NDArray[np.float64], similar: sparse.csr_array) -> None:
        self.classes = len(predicted)
        words, start, width = context.words, context.start, len(context.labelled_classes)
        older, new = context.texts
        used = np.flatnonzero(new)  # only words of the slice matter
        place = np.full(words.shape[1], -1)
        place[used] = np.arange(len(used))
        texts = words[start:]
        self.words = sparse.csr_array(
            (np.ones(len(texts.indices)), place[texts.indices], texts.indptr), (len(context), len(used))
        )
        self.rows = np.repeat(np.arange(len(context)), np.diff(self.words.indptr))
        self.number = np.maximum(np.diff(self.words.indptr), 1)
        self.older, self.others, self.past = older[used].astype(float), np.maximum(new[used] - 1, 0), max(start, 1)
        labelled = np.flatnonzero(context.known >= 0)
        of, weights = context.known[labelled], label_weights(context)
        self.texts = np.bincount(of, minlength=width).astype(float)
        self.there = self.texts > 0
        past = sparse.csr_array(words[:start])
        lengths = np.diff(past.indptr)
        total = np.bincount(of, weights * lengths[labelled], minlength=width).astype(float)
        row = np.repeat(np.arange(start), lengths)
        counts = (context.known[row] >= 0) & (place[past.indices] >= 0)
        cell = context.known[row[counts]] * len(used) + place[past.indices[counts]]
        weight_of = np.zeros(start)
        weight_of[labelled] = weights
        shape = (width, len(used))
        self.counts = np.bincount(cell, minlength=width * len(used)).reshape(shape).astype(float)
        weighted = np.bincount(cell, weight_of[row[counts]], minlength=width * len(used)).reshape(shape).astype(float)
        overall = (weighted.sum(0) + 0.1) / (total.sum() + 0.1 * max(int((older > 0).sum()), 1))
        ratio = np.log((weighted + _WORDS * overall) / (total[:, None] + _WORDS) / overall)
        ratio[~self.there] = -20.0
        self.likelihood = (self.words @ ratio.T) / self.number[:, None]
        self.share = self.older / self.past
        self.class_share = (self.counts + _TEXTS * self.share) / (self.texts[:, None] + _TEXTS)
        self.predicted = np.pad(predicted, (0, width - len(predicted)))
        self.expected = self.predicted @ self.class_share
        frequency = (older + new)[used] + 0.5
        prior = _PATCH * frequency / (float((older + new).sum()) + 0.5 * max(words.shape[1], 1))
        self.new, self.known = self._patches(similar, prior, weighted, total)

    def _patches(
        self,
        similar: sparse.csr_array,
        prior: NDArray[np.float64],
        counts: NDArray[np.float64],
        total: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Log-likelihood per word of each vertex's patch: under a new class, and under each labelled one."""
        size = similar.shape[0]
        patch = sparse.csr_array((similar + similar.T) + sparse.eye_array(size))
        patch.data = np.ones_like(patch.data)
        words = sparse.csr_array(patch @ self.words)
        length = np.maximum(np.asarray(words.sum(1)).ravel(), 1)
        cap = np.minimum(1, _CLASS_WORDS / np.maximum(total, 1))
        weight = prior + counts * cap[:, None]
        sums = _PATCH + total * cap
        row = np.repeat(np.arange(size), np.diff(words.indptr))
        times = np.minimum(words.data, _REPEATS)
        new, known = np.zeros(size), np.zeros((size, len(total)))
        # The probability of n occurrences has the factors weight, weight + 1, ..., weight + n - 1.
        for repeat in range(int(times.max(initial=0))):
            more = times > repeat
            part = sparse.csr_array((np.ones(int(more.sum())), (row[more], words.indices[more])), words.shape)
            new += part @ np.log(prior + repeat)
            known += part @ np.log(weight + repeat).T
        new -= gammaln(_PATCH + length) - gammaln(_PATCH)
        known -= gammaln(sums + length[:, None]) - gammaln(sums)
        known[:, ~self.there] = -1e9
        return new / length, known / length[:, None]

    def __call__(self, hidden: Hidden) -> Values:
        column = self.words.indices
        older, past = self.older[column], np.full(len(column), float(self.past))
        expected = self.expected[column]
        if hidden is not None:
            own = hidden[self.rows]
            at = own >= 0
            own, word = own[at], column[at]
            older[at] -= self.counts[own, word]
            past[at] -= self.texts[own]
            expected[at] -= self.predicted[own] * (self.class_share[own, word] - self.share[word])
        others, past = self.others[column], np.maximum(past, 0) + 1
        likelihood = _without(self.likelihood, hidden)[:, : self.classes].max(1, initial=-20)
        best = _without(self.known, hidden)[:, : self.classes].max(1, initial=-1e9)
        return {
            "class_likelihood": -np.maximum(likelihood, -20),
            "likelihood_other": _other(self.likelihood, hidden, self.classes),
            "new_words": self._mean(older <= 0),
            "new_shared_words": self._mean((older <= 1) & (others >= 1)),
            "rarity": self._mean(-np.log((older + 0.5) / past)),
            "growth": self._mean(np.log((others + 0.5) / len(self.number)) - np.log((older + 0.5) / past)),
            "excess_words": self._mean(np.log((others + 0.5) / (np.maximum(expected, 0) + 0.5))),
            "bayes_factor": np.clip(self.new - best, -_LIMIT, _LIMIT),
        }

    def _mean(self, values: NDArray[np.generic]) -> NDArray[np.float64]:
        """Mean over the words of each vertex."""
        total = np.bincount(self.rows, values.astype(np.float64), minlength=len(self.number))
        return np.asarray(total / self.number)


# --- helpers ---------------------------------------------------------------------------------------------------------


def _without(values: NDArray[np.floating], hidden: Hidden) -> NDArray[np.float64]:
    """Values of each vertex and class, with a very low one for hidden classes."""
    if hidden is None:
        return values.astype(np.float64)
    found = values.astype(np.float64)  # a copy
    rows = np.flatnonzero(hidden >= 0)
    found[rows, hidden[rows]] = -1e9
    return found


def _other(values: NDArray[np.floating], hidden: Hidden, classes: int) -> NDArray[np.float64]:
    """How much better the best class that the model does not know fits than the best known one."""
    if values.shape[1] <= classes:
        return np.full(len(values), -_LIMIT)
    known = np.maximum(_without(values, hidden)[:, :classes].max(1, initial=-1e9), -50)
    return np.asarray(np.clip(values[:, classes:].max(1) - known, -_LIMIT, _LIMIT))


def _entropy(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(-(shares * np.log(np.maximum(shares, 1e-12))).sum(1))


def _rows_of_sum_one(matrix: sparse.csr_array) -> sparse.csr_array:
    totals = np.asarray(matrix.sum(1)).ravel()
    return sparse.csr_array(sparse.diags_array(1 / np.where(totals > 0, totals, 1)) @ matrix)
