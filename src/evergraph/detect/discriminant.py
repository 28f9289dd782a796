"""A linear discriminant of unseen classes: where its means come from, and how a prior and a graph's own past combine.

Signals are standardised by the vertices of known classes in past slices. A vertex is then compared with two means, that
of known classes and that of unseen ones (Fisher's linear discriminant). The mean of unseen classes combines three
sources:

* other graphs (`Prior`), which counts as much as ten vertices;
* the known vertices of this graph's past, as they would look if their class were hidden: twenty vertices;
* the vertices of this graph's past whose class was indeed unseen, as soon as there are any.

So the graph's own past overrules the prior once it has seen new classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.detect.signals import NAMES
from evergraph.storage.checksummed import dump_json, load_json

__all__ = ["Prior", "SignalRecord", "discriminant", "log_odds", "probability_of", "shipped_prior", "standardised"]

FORMAT, FORMAT_VERSION = "evergraph prior of unseen classes", 1
FILE = "prior.json"
_PRIOR_WEIGHT, _HIDDEN_WEIGHT = 10.0, 20.0  # vertices that the prior and the hidden classes count for
_RIDGE = 3.0  # of the covariance, relative to the variances
_FAR = 6.0  # standard deviations; values beyond it are clipped
_KEEP, _KEEP_UNSEEN = 0.9, 0.95  # what earlier slices count at each new one
_SMALL = 100.0  # vertices of a slice at which it counts half
_CROWD = 0.3  # n unseen vertices of one slice count as n ** (1 - 0.3): they resemble each other
_KNOWN_SCORES = 20_000  # scores of known vertices that are kept, the newest

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Prior:
    """What other graphs have taught: the mean of unseen vertices, and how scores become probabilities.

    Parameters
    ----------
    unseen
        Mean standardised signals of unseen vertices, in the order of `NAMES`.
    weights
        Weights of the two discriminant scores and the intercept: their sum is the log-odds of an unseen class.
    threshold
        Log-odds above which flagging gave the highest mean MCC.
    births
        Slices with an unseen class, and slices without any, that the prior counts for.
    graphs
        Names of the graphs it was fitted on.
    """

    unseen: Array
    weights: Array
    threshold: float
    births: tuple[float, float]
    graphs: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Prior(graphs={len(self.graphs)}, sha256={hashlib.sha256(self.to_json()).hexdigest()[:8]})"

    def to_json(self) -> bytes:
        """Return the prior as checksummed JSON."""
        return dump_json(
            {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "signals": dict(zip(NAMES, self.unseen.round(4).tolist(), strict=True)),
                "weights": self.weights.round(4).tolist(),
                "threshold": round(self.threshold, 4),
                "births": list(self.births),
                "graphs": list(self.graphs),
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> Prior:
        """Read what `to_json` wrote."""
        content: Mapping[str, Any] = load_json(data, FORMAT, FORMAT_VERSION)
        signals = content["signals"]
        if tuple(signals) != NAMES:
            raise ValueError("the prior was fitted to other signals")
        yes, no = content["births"]
        return cls(
            np.array(list(signals.values())),
            np.array(content["weights"]),
            float(content["threshold"]),
            (float(yes), float(no)),
            tuple(content["graphs"]),
        )


@cache
def shipped_prior() -> Prior:
    """The prior in the package."""
    return Prior.from_json(resources.files("evergraph.detect").joinpath(FILE).read_bytes())


@dataclass(frozen=True, eq=False)
class SignalRecord:
    """What past slices have shown of the signals. Each slice adds to it when its labels arrive.

    Parameters
    ----------
    slices
        Number of slices, and how many of them had an unseen class.
    means, squares
        Sums over slices of the mean signals of known vertices, and of their mean squares.
    weight
        Weight of the slices in the next four.
    known, known_products
        Sums of standardised signals of known vertices, and of their products.
    hidden, hidden_products
        The same, as if the class of each vertex were hidden.
    unseen, unseen_weight
        Sum of the standardised signals of unseen vertices, and their weight.
    known_scores
        Probabilities of an unseen class that known vertices had, the newest last.
    """

    slices: Array
    means: Array
    squares: Array
    weight: Array
    known: Array
    known_products: Array
    hidden: Array
    hidden_products: Array
    unseen: Array
    unseen_weight: Array
    known_scores: Array

    @classmethod
    def start(cls) -> SignalRecord:
        """Return a record without slices."""
        width = len(NAMES)
        vector, matrix, none = (width,), (width, width), (1,)
        shapes = ((2,), vector, vector, none, vector, matrix, vector, matrix, vector, none, (0,))
        return cls(*map(np.zeros, shapes))  # each its own memory: safetensors refuses shared memory

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> SignalRecord:
        """Return the record of these arrays, one for each field; a new one without any."""
        if not arrays:
            return cls.start()
        found, usual = cls(**{entry.name: arrays[entry.name] for entry in fields(cls)}), cls.start()
        for entry in fields(cls):
            shape, expected = getattr(found, entry.name).shape, getattr(usual, entry.name).shape
            if len(shape) != len(expected) or (shape != expected and entry.name != "known_scores"):
                raise ValueError(f"the record's {entry.name} has another shape")
        return found

    def arrays(self) -> dict[str, Array]:
        """Return all fields by name."""
        return dict(vars(self))

    @property
    def spread(self) -> tuple[Array, Array]:
        """Mean and standard deviation of the signals of known vertices; a deviation of 0 means that it is silent."""
        count = max(self.slices[0], 1.0)
        mean = self.means / count
        deviation = np.sqrt(np.maximum(self.squares / count - mean**2, 0))
        return mean, np.where(deviation > 1e-7 * np.maximum(np.abs(mean), 1e-3), deviation, 0)

    def grown(
        self, values: Array, hidden_values: Array, known: NDArray[np.bool_], unseen: NDArray[np.bool_], score: Array
    ) -> SignalRecord:
        """Return the record after the labels of a slice.

        Parameters
        ----------
        values, hidden_values
            Signals of all vertices of the slice, as they are and as if their class were hidden.
        known, unseen
            Which vertices have a label of a class that the model knew, or did not know.
        score
            Probability of an unseen class that each vertex was given.
        """
        births = np.array([0.0, float(unseen.any())])
        if known.sum() < 2:
            return replace(self, slices=self.slices + births * (self.slices[0] > 0))
        own, other = values[known], hidden_values[known]
        found = replace(
            self,
            slices=self.slices + np.array([1.0, 0.0]) + births,
            means=self.means + own.mean(0),
            squares=self.squares + (own**2).mean(0),
        )
        counts = len(own) / (len(own) + _SMALL)
        own, other = standardised(own, found), standardised(other, found)
        unseen_values = standardised(values[unseen], found)
        each = float(len(unseen_values)) ** -_CROWD if len(unseen_values) else 0.0
        return replace(
            found,
            weight=_KEEP * self.weight + counts,
            known=_KEEP * self.known + counts * own.mean(0),
            known_products=_KEEP * self.known_products + counts * own.T @ own / len(own),
            hidden=_KEEP * self.hidden + counts * other.mean(0),
            hidden_products=_KEEP * self.hidden_products + counts * other.T @ other / len(other),
            unseen=_KEEP_UNSEEN * self.unseen + each * unseen_values.sum(0) if each else self.unseen,
            unseen_weight=_KEEP_UNSEEN * self.unseen_weight + each * len(unseen_values) if each else self.unseen_weight,
            known_scores=np.concatenate([self.known_scores, score[known]])[-_KNOWN_SCORES:],
        )


def standardised(values: Array, record: SignalRecord) -> Array:
    """Return signals in standard deviations from known vertices of the past; 0 for silent signals.

    Before anything is observed, the slice itself standardises.
    """
    if record.slices[0]:
        mean, deviation = record.spread
    else:
        mean, deviation = (values.mean(0), values.std(0)) if len(values) else (np.zeros(values.shape[1]),) * 2
        deviation = np.where(deviation > 1e-9, deviation, 0)
    scaled = (values - mean) / np.where(deviation > 0, deviation, np.inf)
    return np.asarray(np.clip(scaled, -_FAR, _FAR))


def discriminant(values: Array, record: SignalRecord, unseen: Array) -> Array:
    """Return two scores for each vertex: the log-likelihood ratio of the two means, and deviations from known vertices.

    Parameters
    ----------
    values
        Standardised signals.
    record
        What past slices have shown.
    unseen
        Mean of unseen vertices in other graphs.
    """
    known, away, direction, deviation = _direction(record, unseen)
    along = (values - known) @ direction
    return np.stack([along - away @ direction / 2, along / deviation], 1)


def contributions(values: Array, record: SignalRecord, prior: Prior) -> Array:
    """Return how much each signal of each vertex adds to the log-odds; the rest is the same for all vertices.

    Parameters
    ----------
    values
        Standardised signals.
    record, prior
        What past slices, and other graphs, have shown.
    """
    known, _, direction, deviation = _direction(record, prior.unseen)
    return np.asarray((values - known) * direction * (prior.weights[0] + prior.weights[1] / deviation))


def _direction(record: SignalRecord, unseen: Array) -> tuple[Array, Array, Array, float]:
    """Return the mean of known vertices, the way from it to that of unseen ones, the discriminant, and its spread."""
    silent = record.spread[1] <= 0 if record.slices[0] else np.zeros(len(unseen), bool)
    if record.weight[0] > 0:
        weight = record.weight[0]
        known, hidden = record.known / weight, record.hidden / weight
        spread = record.known_products / weight - np.outer(known, known)
        spread_hidden = record.hidden_products / weight - np.outer(hidden, hidden)
        own = record.unseen_weight[0]
        total = _PRIOR_WEIGHT + _HIDDEN_WEIGHT + own
        mean = (_PRIOR_WEIGHT * unseen + _HIDDEN_WEIGHT * hidden + record.unseen) / total
        pooled = (spread + spread_hidden) / 2
    else:
        known, mean = np.zeros_like(unseen), unseen
        spread = pooled = np.eye(len(unseen))
    away = np.where(silent, 0, mean - known)
    pooled = pooled + _RIDGE * np.diag(np.diag(pooled)) + 1e-3 * np.eye(len(away))
    direction = np.linalg.solve(pooled, away)
    return known, away, direction, float(np.sqrt(direction @ spread @ direction + 1e-6))


def log_odds(scores: Array, prior: Prior) -> Array:
    """Return the log-odds of an unseen class from the scores of `discriminant`."""
    return np.asarray(scores @ prior.weights[:2] + prior.weights[2])


def probability_of(odds: Array) -> Array:
    """Return the probabilities of log-odds, strictly between 0 and 1."""
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -30, 30))))
