"""Experiment 1: accuracy by epoch, divergences between the two splits, tables and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.errors import InputError
from evergraph.evaluation.trials import TrialResult
from evergraph.presentation import style
from evergraph.presentation.table import Cell, Column, Section, Table
from evergraph_paper.figures import same_range
from evergraph_paper.paper import printed
from evergraph_paper.static import STATIC_GRAPHS, STATIC_MODELS, StaticRow, StaticTrial, Which

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def half_jeffreys(p: ArrayLike, q: ArrayLike) -> float:
    """Half of the Jeffreys divergence, ½ KL(p‖q) + ½ KL(q‖p): the paper's printed formula.

    Examples
    --------
    >>> round(half_jeffreys([1, 3], [3, 1]), 4), half_jeffreys([1, 0], [1, 1])
    (0.5493, inf)
    """
    p, q = _shares(p, q)
    if np.any((p > 0) != (q > 0)):
        return math.inf
    p, q = p[p > 0], q[q > 0]
    return float(np.sum((p - q) * (np.log(p) - np.log(q))) / 2)


def jensen_shannon(p: ArrayLike, q: ArrayLike) -> float:
    """Jensen-Shannon divergence in nats, ½ KL(p‖m) + ½ KL(q‖m) with m = (p + q) / 2: from 0 to ln 2 (Lin, 1991).

    Examples
    --------
    >>> round(jensen_shannon([1, 3], [3, 1]), 4), round(jensen_shannon([1, 0], [0, 1]), 4)
    (0.1308, 0.6931)
    """
    p, q = _shares(p, q)
    both = p + q
    halves = [np.sum(side[side > 0] * np.log(2 * side[side > 0] / both[side > 0])) / 2 for side in (p, q)]
    return max(0.0, float(sum(halves)))  # rounding may give a value just below 0


def jensen_shannon_distance(p: ArrayLike, q: ArrayLike) -> float:
    """Square root of `jensen_shannon`, which the authors' code computes with SciPy's ``jensenshannon``.

    Examples
    --------
    >>> round(jensen_shannon_distance([1, 3], [3, 1]), 4)
    0.3617
    >>> jensen_shannon_distance([0.8, 0.9], [0.9, 0.8]) > 0  # the same two accuracies in another order
    True
    """
    return math.sqrt(jensen_shannon(p, q))


def _shares(p: ArrayLike, q: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both vectors divided by their sums."""
    one, other = np.asarray(p, np.float64), np.asarray(q, np.float64)
    if one.ndim != 1 or one.shape != other.shape:
        raise InputError(
            f"the vectors have shapes {one.shape} and {other.shape}", fix="pass two vectors of the same length"
        )
    for vector in (one, other):
        if not (np.all(np.isfinite(vector)) and np.all(vector >= 0) and np.any(vector > 0)):
            raise InputError(
                "a vector has a negative, infinite or missing value, or no value above 0",
                fix="pass counts or shares",
            )
    return one / one.sum(), other / other.sum()


Results = Sequence[tuple[StaticTrial, Mapping[str, Any]]]
"""Trials with the results of their ``run``."""

_SPLITS: tuple[Which, ...] = ("A", "B")


@dataclass(frozen=True)
class Curve:
    """Accuracy before the first and after each inference epoch: mean and deviation over seeds (NaN for one seed)."""

    graph: str
    split: str
    model: str
    pretraining: int
    runs: int
    mean: tuple[float, ...]
    sd: tuple[float, ...]


def curves(results: Results) -> list[Curve]:
    """Return a curve for each graph, split, model and pre-training, in the order of the results.

    Examples
    --------
    >>> from evergraph_paper.static import grid
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
            fix="pass the results of one experiment",
        )
    values = np.stack(list(runs.values()))
    n, epochs = values.shape
    sd = values.std(axis=0, ddof=1).tolist() if n > 1 else [math.nan] * epochs
    return Curve(graph, which, model, pretraining, n, tuple(values.mean(axis=0).tolist()), tuple(sd))


@dataclass(frozen=True)
class Divergence:
    """Distances between the accuracies of split A and of split B.

    Parameters
    ----------
    model, pretraining
        Model and pre-training of the trials; all graphs, seeds and epochs are taken together.
    half_jeffreys, jensen_shannon, jensen_shannon_distance
        Of the two vectors of accuracies, each divided by its sum: the paper's printed formula, the formula it cites,
        and what the authors' code computes. They compare pairs of runs, so the order of the runs matters and the level
        of the accuracies does not (A13).
    histogram
        Jensen-Shannon divergence between histograms of the accuracies, mean over graphs. It is 0 for the same
        accuracies in any order, and ln 2 for disjoint ones, however close: for narrow distributions it depends on the
        bins.
    transport
        Transport distance (Wasserstein-1) between the same distributions, mean over graphs. It needs no bins.
    histogram_of, transport_of
        The same by graph.
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
    """Return the divergences between split A and split B by model and pre-training, in the order of the results.

    Runs of both splits are paired by graph, seed and epoch.

    Examples
    --------
    >>> from evergraph_paper.static import grid
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
            f"the runs of {model} on {graph} with seed {seed} after {pretraining} epochs of pre-training are not pairs "
            "of splits A and B with the same number of epochs",
            fix="pass the results of both splits",
        )
    one, other = (np.concatenate([side[run] for run in a]) for side in (a, b))
    of, moved = {}, {}
    for name in dict.fromkeys(graph for graph, _ in a):
        few, many = (np.concatenate([side[run] for run in a if run[0] == name]) for side in (a, b))
        of[name] = histogram_divergence(few, many, bins)
        moved[name] = float(np.abs(np.sort(few) - np.sort(many)).mean())  # both have the same length
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

    Examples
    --------
    >>> histogram_divergence([0.1, 0.9], [0.9, 0.1]), round(histogram_divergence([0.1, 0.1], [0.9]), 4)
    (0.0, 0.6931)
    """
    samples = [np.asarray(sample, np.float64) for sample in (one, other)]
    for sample in samples:
        if not len(sample) or not ((sample >= 0) & (sample <= 1)).all():
            raise InputError("a sample is empty or has values outside 0 to 1", fix="pass numbers from 0 to 1")
    return jensen_shannon(*(np.histogram(sample, bins, (0.0, 1.0))[0] for sample in samples))


def _accuracies(results: Results) -> list[tuple[StaticTrial, NDArray[np.float64]]]:
    """Return the accuracies of each trial, and check that no trial occurs twice."""
    kinds = {(trial.graph, trial.split, trial.model, trial.pretraining, trial.seed) for trial, _ in results}
    if len(kinds) < len(results):
        raise InputError("some trials are the same except for their epochs", fix="pass each trial once")
    return [(trial, np.asarray(result["accuracy"], np.float64)) for trial, result in results]


_NAMES = {"gcn": "GCN", "gcn-64": "GCN-64", "gat": "GAT", "sage": "GraphSAGE", "mlp": "MLP"}
_PLATEAU = 10


def static_results(found: Mapping[str, TrialResult], seeds: Sequence[int] | None = None) -> list[Any]:
    """Return the finished trials of experiment 1 with their results, in the order of the grid."""
    grid: dict[tuple[Any, ...], tuple[StaticTrial, Mapping[str, Any]]] = {}
    for one in found.values():
        if one.trial.get("kind") != "static" or (seeds is not None and one.seed not in seeds):
            continue
        graph, which, pretraining, epochs = (one.trial[name] for name in ("graph", "split", "pretraining", "epochs"))
        for place, model in enumerate(STATIC_MODELS):
            trial = StaticTrial(graph, Path(), which, model, pretraining, epochs, one.seed)
            if trial.described() == one.trial:
                grid[STATIC_GRAPHS.index(graph), which, place, pretraining, one.seed, epochs] = trial, one.result
    return [grid[key] for key in sorted(grid)]


def accuracy_table(results: Results) -> Table:
    """Return the accuracy before, after ten, and after all inference epochs, with standard deviations."""
    found = curves(results)
    last = max((len(curve.mean) for curve in found), default=1) - 1
    places = sorted({0, min(_PLATEAU, last), last})
    columns = [Column("model", align="left"), Column("runs")]
    columns += [Column(str(place), f"epochs, {told}") for told in ("without", "pre-trained") for place in places]
    lines: list[Any] = []
    for graph in STATIC_GRAPHS:
        for split in ("A", "B"):
            chosen = [curve for curve in found if (curve.graph, curve.split) == (graph, split)]
            if chosen:
                lines.append(Section(f"{graph}, {split}"))
            for model in STATIC_MODELS:
                sides = [
                    next((curve for curve in chosen if curve.model == model and bool(curve.pretraining) == pre), None)
                    for pre in (False, True)
                ]
                if not any(sides):
                    continue
                cells = [Cell(_NAMES[model]), Cell(max(side.runs for side in sides if side))]
                for side in sides:
                    cells += [
                        Cell(100 * side.mean[place], 100 * side.sd[place], form=".1f") if side else Cell()
                        for place in places
                    ]
                lines.append(tuple(cells))
    return Table(
        "Experiment 1: accuracy after so many inference epochs, in percent (± standard deviation over runs)",
        tuple(columns),
        tuple(lines),
    )


def divergence_table(results: Results) -> Table:
    """Return the divergences of the paper, and two that compare distributions."""
    columns = (
        Column("model", align="left"),
        Column("authors' code"),
        Column("paper's formula"),
        Column("textbook"),
        Column("histograms"),
        Column("transport, points"),
    )
    lines: list[Any] = []
    paper = printed()["exp1_js"]
    told = {0: "no_pretraining", 200: "pretrained"}
    runs = {(trial.graph, trial.split, trial.model, trial.pretraining, trial.seed) for trial, _ in results}
    both = [  # some may not have a counterpart yet
        (trial, result)
        for trial, result in results
        if (trial.graph, "BA"[trial.split == "B"], trial.model, trial.pretraining, trial.seed) in runs
    ]
    found = divergences(both)
    for pretraining in sorted({one.pretraining for one in found}):
        bounds = paper.get(told.get(pretraining, ""))
        limits = f"; paper: {bounds['min'][1]} to {bounds['max'][1]}" if bounds else ""
        lines.append(Section(f"{pretraining} epochs of pre-training{limits}"))
        lines += [
            (
                Cell(_NAMES[one.model]),
                Cell(one.jensen_shannon_distance, form=".4f"),
                Cell(one.half_jeffreys, form=".4f"),
                Cell(one.jensen_shannon, form=".4f"),
                Cell(one.histogram, form=".3f"),
                Cell(100 * one.transport, form=".1f"),
            )
            for one in found
            if one.pretraining == pretraining
        ]
    return Table("Experiment 1: divergence between the accuracies of split A and split B", columns, tuple(lines))


def splits_table(rows: Sequence[StaticRow]) -> Table:
    """Return the paper's table of static graphs: our counts and the paper's."""
    names = ("vertices", "edges", "train_vertices", "train_edges", "unseen_vertices", "unseen_edges", "test_vertices")
    columns = (
        Column("graph", align="left"),
        Column("split", align="left"),
        *(Column("test" if name == "test_vertices" else name.replace("_", " ")) for name in names),
        Column("label rate"),
    )
    lines: list[Any] = [Section("ours")]
    lines += [
        (
            Cell(row.graph),
            Cell(row.split),
            *(Cell(getattr(row, name), form=",") for name in names),
            Cell(row.label_rate, form=".3f"),
        )
        for row in rows
    ]
    lines.append(Section("paper"))
    for row in rows:
        theirs = printed()["table_static_datasets"][row.graph]
        of_split = theirs[row.split] | {"vertices": theirs["vertices"], "edges": theirs["edges"]}
        of_split["test_vertices"] = of_split["test"]
        cells = [Cell(of_split[name], form=",") for name in names]
        lines.append((Cell(row.graph), Cell(row.split), *cells, Cell(of_split["label_rate"], form=".3f")))
    return Table("Experiment 1: the static graphs and their splits", columns, tuple(lines))


def exp1_figures(results: Results) -> dict[str, Figure]:
    """Accuracy by inference epoch for each split: without pre-training above, with it below; one column per graph."""
    found = curves(results)
    figures = {}
    for split in ("A", "B"):
        chosen = [curve for curve in found if curve.split == split]
        graphs = [graph for graph in STATIC_GRAPHS if any(curve.graph == graph for curve in chosen)]
        rows = sorted({curve.pretraining for curve in chosen})
        if not chosen:
            continue
        with style.figure(len(rows), len(graphs), height=2.2) as (picture, axes):
            for line, pretraining in enumerate(rows):
                for column, graph in enumerate(graphs):
                    panel = axes[line, column]
                    for curve in chosen:
                        if (curve.graph, curve.pretraining) != (graph, pretraining):
                            continue
                        mean, sd = (100 * np.array(values) for values in (curve.mean, curve.sd))
                        sd = np.nan_to_num(sd)
                        index = STATIC_MODELS.index(curve.model)
                        epochs = np.arange(len(mean))
                        style.lines_with_band(panel, epochs, mean, mean - sd, mean + sd, _NAMES[curve.model], index)
                    panel.set_title(f"{graph}, {split}, {pretraining or 'no'} epochs before")
                    panel.set_xlabel("inference epoch" if line == len(rows) - 1 else "")
                    panel.set_ylabel("" if column else "accuracy, %")
            same_range(axes)
            style.legend_below(picture)
        figures[f"exp1-{split}"] = picture
    return figures
