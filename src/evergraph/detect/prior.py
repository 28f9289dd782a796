"""Fit the prior of `AutoDetector` to recorded trainings of many graphs.

Graphs count alike, whatever their size. Everything that is chosen, weights and threshold, is chosen on scores that
graphs get from models that have not seen their family.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from evergraph.detect.base import UNKNOWN, UNLABELLED, PastGraph
from evergraph.detect.discriminant import Prior, SignalRecord, discriminant, standardised
from evergraph.detect.signals import slice_signals
from evergraph.errors import InputError

__all__ = ["TracedGraph", "fit_prior", "traced"]

_UNSEEN_SHARE = 0.05  # unseen vertices are weighted towards this share of a graph, by half on the log scale
_PENALTY = 0.01  # of the weights of the discriminant scores
_THRESHOLDS = np.linspace(-12, 6, 361)
_SMOOTHING = 9  # neighbouring thresholds that are averaged
_BIRTH_SLICES = 4.0  # slices that the prior share of slices with an unseen class counts for

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TracedSlice:
    """Standardised signals of a slice, the record before its labels, and which vertices were unseen."""

    values: Array
    record: SignalRecord
    unseen: NDArray[np.bool_]
    task: bool


@dataclass(frozen=True, eq=False)
class TracedGraph:
    """The slices of a graph, as a detector would have seen them one after the other; labelled vertices only."""

    name: str
    family: str
    slices: tuple[TracedSlice, ...]

    @property
    def unseen(self) -> NDArray[np.bool_]:
        """Whether each vertex was unseen."""
        return np.concatenate([part.unseen for part in self.slices])

    @property
    def task(self) -> NDArray[np.bool_]:
        """Whether each vertex was decided in a task."""
        return np.concatenate([np.full(len(part.unseen), part.task) for part in self.slices])

    @property
    def mean(self) -> Array:
        """Mean signals of unseen vertices, of which there must be some; slices count by the root of their number."""
        parts = [part for part in self.slices if part.unseen.any()]
        counts = np.sqrt([part.unseen.sum() for part in parts])
        return np.average([part.values[part.unseen].mean(0) for part in parts], axis=0, weights=counts)

    @property
    def weights(self) -> Array:
        """Weight of each vertex: the graph has the sum 1, slices count by the root of their size."""
        found = np.concatenate(
            [np.full(len(part.unseen), 1 / np.sqrt(max(len(part.unseen), 1))) for part in self.slices]
        )
        found /= found.sum()
        share, unseen = found[self.unseen].sum(), self.unseen
        if 0 < share < 1:
            target = np.sqrt(share * _UNSEEN_SHARE)
            found[unseen] *= target / share
            found[~unseen] *= (1 - target) / (1 - share)
        return np.asarray(found)

    def scores(self, mean: Array) -> Array:
        """Discriminant scores of all vertices with a mean of unseen vertices."""
        return np.concatenate([discriminant(part.values, part.record, mean) for part in self.slices])


@lru_cache(maxsize=256)
def traced(graph: PastGraph) -> TracedGraph:
    """Return a graph's slices as the detector sees them; each graph is traced once."""
    record, found = SignalRecord.start(), []
    for outputs, targets, task in graph.slices():
        if outputs.context is None or not len(outputs):
            continue
        columns = targets.numpy()
        signals = slice_signals(outputs.context, outputs.logits.numpy())
        values, labelled = signals.values(), columns != UNLABELLED
        if record.slices[0] or task:
            found.append(
                TracedSlice(standardised(values, record)[labelled], record, columns[labelled] == UNKNOWN, task)
            )
        nothing = np.zeros(len(columns))
        record = record.grown(values, signals.hidden_values(columns), columns >= 0, columns == UNKNOWN, nothing)
    return TracedGraph(graph.name, graph.family, tuple(found))


def fit_prior(graphs: Sequence[TracedGraph]) -> Prior:
    """Return the prior that these graphs teach."""
    usable = [graph for graph in graphs if graph.slices and graph.unseen.any()]
    families = sorted({graph.family for graph in usable})
    if len(families) < 2:
        raise InputError(
            f"the graphs with unseen classes are of {len(families)} families", fix="add graphs of other families"
        )
    outside = {}
    for family in families:
        weights, means = _fitted(usable, {family})
        for graph in usable:
            if graph.family == family:
                outside[graph.name] = _odds(graph.scores(means[""]), weights)
    slope, shift = _calibration(usable, outside)
    weights, means = _fitted(usable, ())
    weights = np.array([slope * weights[0], slope * weights[1], slope * weights[2] + shift])
    curves = [
        _mcc_curve(slope * outside[graph.name][graph.task] + shift, graph.unseen[graph.task])
        for graph in usable
        if graph.unseen[graph.task].any()
    ]
    kernel = np.ones(_SMOOTHING) / _SMOOTHING
    smooth = np.convolve(np.pad(np.mean(curves, 0), _SMOOTHING // 2, mode="edge"), kernel, "valid")
    with_unseen = [np.mean([part.unseen.any() for part in graph.slices]) for graph in usable]
    share = float(np.mean(with_unseen))
    births = (round(_BIRTH_SLICES * share, 2), round(_BIRTH_SLICES * (1 - share), 2))
    names = tuple(sorted(graph.name for graph in usable))
    return Prior(means[""], weights, float(_THRESHOLDS[smooth.argmax()]), births, names)


def _fitted(graphs: Sequence[TracedGraph], without: Collection[str]) -> tuple[Array, Mapping[str, Array]]:
    """Weights of the discriminant scores, and the mean of unseen vertices without each family ("": without none).

    The scores of a graph use the mean of the other families, as those of a new graph will.
    """
    used = [graph for graph in graphs if graph.family not in without]
    own = {graph.name: graph.mean for graph in used}
    means = {}
    for family in ["", *sorted({graph.family for graph in used})]:
        others = [own[graph.name] for graph in used if graph.family != family]
        means[family] = np.mean(others or list(own.values()), axis=0)  # a single family has no others
    scores = np.concatenate([graph.scores(means[graph.family]) for graph in used])
    unseen = np.concatenate([graph.unseen for graph in used])
    weights = np.concatenate([graph.weights for graph in used]) / len(used)
    return _logistic_regression(scores, unseen, weights, _PENALTY), means


def _calibration(graphs: Sequence[TracedGraph], odds: Mapping[str, Array]) -> tuple[float, float]:
    """Slope and shift that calibrate the log-odds, with the natural share of unseen vertices (Platt scaling)."""
    x = np.concatenate([odds[graph.name] for graph in graphs])
    unseen = np.concatenate([graph.unseen for graph in graphs])
    weights = np.concatenate([np.full(len(graph.unseen), 1 / len(graph.unseen)) for graph in graphs]) / len(graphs)
    slope, shift = _logistic_regression(x[:, None], unseen, weights, 1e-6)
    return float(slope), float(shift)


def _logistic_regression(inputs: Array, targets: NDArray[np.bool_], weights: Array, penalty: float) -> Array:
    """Weights of the inputs and the intercept, by Newton's method; the penalty is relative to standardised inputs."""
    mean = np.average(inputs, axis=0, weights=weights)
    spread = np.sqrt(np.average((inputs - mean) ** 2, axis=0, weights=weights)) + 1e-9
    x = np.column_stack([(inputs - mean) / spread, np.ones(len(inputs))])
    ridge = np.diag([*np.full(inputs.shape[1], penalty), 0.0])
    found = np.zeros(x.shape[1])
    for _ in range(50):
        probability = 1 / (1 + np.exp(-np.clip(x @ found, -30, 30)))
        gradient = x.T @ (weights * (probability - targets)) + ridge @ found
        curvature = (x * (weights * probability * (1 - probability))[:, None]).T @ x + ridge
        step = np.linalg.solve(curvature + 1e-12 * np.eye(len(found)), gradient)
        found = found - step
        if np.abs(step).max() < 1e-8:
            break
    return np.append(found[:-1] / spread, found[-1] - (found[:-1] * mean / spread).sum())


def _odds(scores: Array, weights: Array) -> Array:
    return np.asarray(scores @ weights[:-1] + weights[-1])


def _mcc_curve(odds: Array, unseen: NDArray[np.bool_]) -> Array:
    """MCC of flagging vertices from each of `_THRESHOLDS` on."""
    order = np.argsort(odds)
    ranked, hits = odds[order], np.append(np.cumsum(unseen[order][::-1])[::-1], 0)
    at = np.searchsorted(ranked, _THRESHOLDS)
    flagged, right = len(odds) - at, hits[at]
    total, everyone = unseen.sum(), len(odds)
    spread = np.sqrt(flagged * (everyone - flagged) * float(total) * float(everyone - total))
    return np.asarray(np.where(spread > 0, (right * everyone - flagged * total) / np.where(spread > 0, spread, 1), 0))
