"""The paper's first experiment: its trials, and what their results say.

Does a model that was trained on a labelled subgraph have to be trained again when unlabelled vertices come? The results
of the trials are turned into curves of accuracy over epochs, and into divergences between the two splits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.errors import InputError
from evergraph_paper.divergence import half_jeffreys, jensen_shannon, jensen_shannon_distance
from evergraph_paper.static import STATIC_GRAPHS, STATIC_MODELS, StaticTrial, Which, split

__all__ = [
    "Curve",
    "Divergence",
    "Results",
    "StaticRow",
    "curves",
    "divergences",
    "grid",
    "histogram_divergence",
    "static_table",
]

Results = Sequence[tuple[StaticTrial, Mapping[str, Any]]]
"""Trials, each with what its ``run`` has returned."""

_SPLITS: tuple[Which, ...] = ("A", "B")


def grid(
    folder: str | Path,
    seeds: Iterable[int],
    graphs: Sequence[str] = STATIC_GRAPHS,
    models: Sequence[str] = STATIC_MODELS,
    splits: Sequence[Which] = _SPLITS,
    pretraining: Sequence[int] = (0, 200),
    epochs: int = 35,
) -> list[StaticTrial]:
    """All trials of the experiment; nothing is run.

    Parameters
    ----------
    folder
        Where Planetoid's files are.
    seeds
        One run each; the paper has 100.
    graphs, models, splits, pretraining, epochs
        See `StaticTrial`.

    Examples
    --------
    >>> trials = grid("planetoid", seeds=range(10))
    >>> len(trials), trials[0].graph, trials[0].model, trials[-1].seed
    (600, 'cora', 'gcn', 9)
    """
    seeds = tuple(seeds)
    return [
        StaticTrial(graph, Path(folder), which, model, before, epochs, seed)
        for graph in graphs
        for which in splits
        for model in models
        for before in pretraining
        for seed in seeds
    ]


# --- accuracy over epochs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """Accuracy over the inference epochs.

    Parameters
    ----------
    graph, split, model, pretraining
        Of which trials: see `StaticTrial`.
    runs
        Number of their seeds.
    mean, sd
        Mean and standard deviation over seeds, before the first and after each inference epoch. With a single seed
        there is no deviation, and it is NaN.
    """

    graph: str
    split: str
    model: str
    pretraining: int
    runs: int
    mean: tuple[float, ...]
    sd: tuple[float, ...]


def curves(results: Results) -> list[Curve]:
    """A curve for each graph, split, model and pre-training, in the order of the results.

    Examples
    --------
    >>> trials = grid("planetoid", [0, 1], graphs=["cora"], models=["gcn"], splits=["A"], pretraining=[0], epochs=1)
    >>> (curve,) = curves([(trials[0], {"accuracy": [0.1, 0.5]}), (trials[1], {"accuracy": [0.3, 0.5]})])
    >>> [round(value, 4) for value in (*curve.mean, *curve.sd)]
    [0.2, 0.5, 0.1414, 0.0]
    """
    groups: dict[tuple[str, str, str, int], _Runs] = {}
    for trial, accuracy in _accuracies(results):
        groups.setdefault((trial.graph, trial.split, trial.model, trial.pretraining), {})[trial.seed] = accuracy
    return [_curve(*key, runs) for key, runs in groups.items()]


_Runs = dict[int, NDArray[np.float64]]  # accuracies by seed


def _curve(graph: str, which: str, model: str, pretraining: int, runs: _Runs) -> Curve:
    if len({len(run) for run in runs.values()}) > 1:
        raise InputError(
            f"the runs of {model} on {graph} {which} have different numbers of epochs",
            fix="give the results of one experiment",
        )
    values = np.stack(list(runs.values()))
    n, epochs = values.shape
    sd = values.std(axis=0, ddof=1).tolist() if n > 1 else [math.nan] * epochs
    return Curve(graph, which, model, pretraining, n, tuple(values.mean(axis=0).tolist()), tuple(sd))


# --- how far A and B are apart ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Divergence:
    """How far the accuracies of split A are from those of split B.

    Parameters
    ----------
    model, pretraining
        Of which trials; all graphs, seeds and epochs are taken together.
    half_jeffreys, jensen_shannon, jensen_shannon_distance
        Of the two vectors of accuracies, each divided by its sum: the formula that the paper prints, what it cites, and
        what the authors' code computes. These compare place by place, so the pairing of runs counts and the level of
        the accuracies does not (A13).
    histogram
        Jensen-Shannon divergence between the distributions of the accuracies, as histograms of each graph: the mean
        over graphs. This one is 0 for the same accuracies in any order, and ln 2 for accuracies that nowhere meet, be
        they near or far: what it says of narrow distributions depends on the bins.
    histogram_of
        The same for each graph.
    transport
        How far accuracies must be moved, on average, to turn those of A into those of B: the transport distance
        (Wasserstein-1) between the same distributions, the mean over graphs. It needs no bins.
    transport_of
        The same for each graph.
    values
        Number of accuracies on each side.
    """

    model: str
    pretraining: int
    half_jeffreys: float
    jensen_shannon: float
    jensen_shannon_distance: float
    histogram: float
    histogram_of: Mapping[str, float]
    transport: float
    transport_of: Mapping[str, float]
    values: int


def divergences(results: Results, bins: int = 20) -> list[Divergence]:
    """The divergences between split A and split B for each model and pre-training, in the order of the results.

    A run of split A stands opposite to that of split B on the same graph under the same seed, epoch by epoch. Which
    graph comes first does not matter: a sum over pairs does not depend on their order.

    Parameters
    ----------
    results
        Both splits of each graph and seed.
    bins
        Bins of the histograms, of equal width from 0 to 1.

    Examples
    --------
    >>> trials = grid("planetoid", [0], graphs=["cora"], models=["gcn"], pretraining=[0], epochs=1)
    >>> a, b = {"accuracy": [0.42, 0.44]}, {"accuracy": [0.84, 0.88]}  # all of B is twice as good
    >>> (found,) = divergences(list(zip(trials, [a, b])))
    >>> round(found.jensen_shannon_distance, 6), round(found.histogram, 4), round(found.transport, 4)
    (0.0, 0.6931, 0.43)
    """
    groups: dict[tuple[str, int], dict[str, dict[tuple[str, int], NDArray[np.float64]]]] = {}
    for trial, accuracy in _accuracies(results):
        sides = groups.setdefault((trial.model, trial.pretraining), {which: {} for which in _SPLITS})
        sides[trial.split][trial.graph, trial.seed] = accuracy
    return [_divergence(*key, sides["A"], sides["B"], bins) for key, sides in groups.items()]


_Side = Mapping[tuple[str, int], NDArray[np.float64]]  # accuracies by graph and seed


def _divergence(model: str, pretraining: int, a: _Side, b: _Side, bins: int) -> Divergence:
    alone = a.keys() ^ b.keys() or {run for run in a if len(a[run]) != len(b[run])}
    if alone:
        graph, seed = min(alone)
        raise InputError(
            f"the runs of {model} on {graph} under seed {seed} after {pretraining} epochs of pre-training do not come "
            "in pairs of splits A and B with as many epochs",
            fix="give the results of both splits",
        )
    one, other = (np.concatenate([side[run] for run in a]) for side in (a, b))
    of, moved = {}, {}
    for name in dict.fromkeys(graph for graph, _ in a):
        few, many = (np.concatenate([side[run] for run in a if run[0] == name]) for side in (a, b))
        of[name] = histogram_divergence(few, many, bins)
        moved[name] = float(np.abs(np.sort(few) - np.sort(many)).mean())  # there are as many of both
    return Divergence(
        model,
        pretraining,
        half_jeffreys(one, other),
        jensen_shannon(one, other),
        jensen_shannon_distance(one, other),
        sum(of.values()) / len(of),
        of,
        sum(moved.values()) / len(moved),
        moved,
        len(one),
    )


def histogram_divergence(one: ArrayLike, other: ArrayLike, bins: int = 20) -> float:
    """Jensen-Shannon divergence in nats between the histograms of two samples of shares.

    Parameters
    ----------
    one, other
        Numbers from 0 to 1, in any order; there need not be as many of both.
    bins
        Bins of equal width from 0 to 1.

    Examples
    --------
    >>> histogram_divergence([0.1, 0.9], [0.9, 0.1]), round(histogram_divergence([0.1, 0.1], [0.9]), 4)
    (0.0, 0.6931)
    """
    samples = [np.asarray(sample, np.float64) for sample in (one, other)]
    for sample in samples:
        if not len(sample) or not ((sample >= 0) & (sample <= 1)).all():
            raise InputError("a sample is empty or has numbers that are no shares", fix="pass numbers from 0 to 1")
    return jensen_shannon(*(np.histogram(sample, bins, (0.0, 1.0))[0] for sample in samples))


def _accuracies(results: Results) -> list[tuple[StaticTrial, NDArray[np.float64]]]:
    """The accuracies of each trial; no seed may have two of the same kind."""
    kinds = {(trial.graph, trial.split, trial.model, trial.pretraining, trial.seed) for trial, _ in results}
    if len(kinds) < len(results):
        raise InputError("some trials differ in nothing but their epochs, or not at all", fix="give each once")
    return [(trial, np.asarray(result["accuracy"], np.float64)) for trial, result in results]


# --- the table of the data -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StaticRow:
    """One graph in one split, in numbers; edges are undirected and without self-loops.

    Parameters
    ----------
    graph, split
        Which.
    classes, features, vertices, edges, average_degree
        Of the whole graph.
    train_vertices, train_edges
        What is there from the start.
    unseen_vertices, unseen_edges
        What comes later.
    test_vertices
        On how many of them accuracy is measured.
    label_rate
        Share of the vertices that is there from the start.
    """

    graph: str
    split: str
    classes: int
    features: int
    vertices: int
    edges: int
    average_degree: float
    train_vertices: int
    train_edges: int
    unseen_vertices: int
    unseen_edges: int
    test_vertices: int
    label_rate: float


def static_table(
    folder: str | Path, graphs: Sequence[str] = STATIC_GRAPHS, splits: Sequence[Which] = _SPLITS
) -> list[StaticRow]:
    """The rows of the paper's table of static graphs, counted in Planetoid's files.

    Parameters
    ----------
    folder
        Where these are.
    graphs, splits
        Which rows.
    """
    return [_row(Path(folder), graph, which) for graph in graphs for which in splits]


def _row(folder: Path, name: str, which: Which) -> StaticRow:
    data = split(folder, name, which)
    graph = data.graph
    return StaticRow(
        graph=name,
        split=which,
        classes=len(graph.class_names),
        features=0 if graph.features is None else graph.features.width,
        vertices=len(graph),
        edges=graph.n_edges,
        average_degree=2 * graph.n_edges / len(graph),
        train_vertices=data.train_vertices,
        train_edges=data.train_edges,
        unseen_vertices=data.unseen_vertices,
        unseen_edges=data.unseen_edges,
        test_vertices=data.test_vertices,
        label_rate=data.train_vertices / len(graph),
    )
