"""Claims of experiment 1: growth of a static graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evergraph_paper.claims.evidence import Evidence, judged
from evergraph_paper.claims.verdict import Verdict, answer, every_part, on_graphs
from evergraph_paper.exp1 import Curve, Divergence, Results, curves, divergences
from evergraph_paper.paper import printed
from evergraph_paper.static import Which

__all__ = ["c1", "c2", "c3"]

PLATEAU_EPOCH, SMALL = 10, 0.01
_FIGURE = "shown in a figure; no numbers are printed"
_STATISTICS = {
    "transport": "transport distance",
    "histogram": "histograms of 20 bins",
    "jensen_shannon_distance": "authors' statistic",
}


def c1(evidence: Evidence) -> Verdict:
    """C1: training on with unlabelled vertices gains nothing.

    Holds on a graph if, for the pre-trained models,

    - each curve (split and model) is after 10 inference epochs within 1 point of where it ends, and
    - the mean gain over the curves from before the first epoch to the last is below 1 point.
    """
    known = [curve for curve in curves(evidence.static) if curve.pretraining and len(curve.mean) > PLATEAU_EPOCH + 1]
    by_graph: dict[str, bool | None] = {}
    numbers, details = [], dict[str, Any]()
    for graph in dict.fromkeys(curve.graph for curve in known):
        here = [curve for curve in known if curve.graph == graph]
        late = {_name(curve): curve.mean[-1] - curve.mean[PLATEAU_EPOCH] for curve in here}
        gains = {_name(curve): curve.mean[-1] - curve.mean[0] for curve in here}
        gain = sum(gains.values()) / len(gains)
        flat = [name for name, change in late.items() if abs(change) <= SMALL]
        by_graph[graph] = len(flat) == len(here) and gain < SMALL
        worst = max(late, key=lambda name: abs(late[name]))
        numbers.append(
            f"{graph}: {len(flat)} of {len(here)} curves change by at most 1 point after epoch {PLATEAU_EPOCH} (most: "
            f"{worst} {100 * late[worst]:+.1f}), mean gain from the first epoch on {100 * gain:+.1f}"
        )
        details[graph] = {"verdict": answer(by_graph[graph]), "after_epoch_10": late, "gain": gains, "mean_gain": gain}
    statement = (
        "Once a model is trained on the labelled subgraph, training it on with unlabelled vertices gains nothing: "
        "accuracy stands still within about 10 epochs."
    )
    return _static("C1", statement, on_graphs(by_graph), numbers, evidence, known, _FIGURE, details)


def c2(evidence: Evidence) -> Verdict:
    """C2: pre-trained models are better and steadier, more training data is better, and graph models beat MLP.

    Holds on a graph if all of its parts do:

    - in each split and model the pre-trained mean is at least the other at every inference epoch;
    - its standard deviation over seeds is lower, as a mean over epochs;
    - split B is above split A as a mean over epochs, for each model with and without pre-training;
    - after the last epoch each pre-trained graph model is above the pre-trained MLP, in each split.
    """
    known = curves(evidence.static)
    by_graph: dict[str, bool | None] = {}
    numbers, details = [], dict[str, Any]()
    for graph in dict.fromkeys(curve.graph for curve in known):
        of = {(curve.split, curve.model, curve.pretraining > 0): curve for curve in known if curve.graph == graph}
        parts = {
            "pre-trained is at least the other": _higher(of),
            "its deviation is lower": _steadier(of),
            "B is above A": _larger(of),
            "graph models are above MLP": _over_mlp(of),
        }
        by_graph[graph] = every_part(_all(cells) for cells in parts.values())
        counts = [f"{name} in {sum(cells.values())} of {len(cells)}" for name, cells in parts.items()]
        numbers.append(f"{graph}: {', '.join(counts)} cells")
        failing = {name: [cell for cell, fine in cells.items() if not fine] for name, cells in parts.items()}
        details[graph] = {
            "verdict": answer(by_graph[graph]),
            "parts": {name: answer(_all(cells)) for name, cells in parts.items()},
            "failing": failing,
        }
    statement = (
        "Pre-trained models are at least as good as others at every inference epoch and vary less; much training data "
        "(split B) is better than little (A); pre-trained graph models are better than MLP."
    )
    return _static("C2", statement, on_graphs(by_graph), numbers, evidence, known, _FIGURE, details)


def c3(evidence: Evidence) -> Verdict:
    """C3: pre-training makes the accuracies of splits A and B more alike.

    Holds if for every model the distributions of accuracies in splits A and B are less far apart with pre-training.

    Judged by the transport distance, as a mean over graphs. The authors' statistic compares place by place and cannot
    tell (A13), and a divergence of histograms depends on their bins: both are reported.
    """
    found = divergences(_in_pairs(evidence.static))
    with_, without = (
        {entry.model: entry for entry in found if (entry.pretraining > 0) == before} for before in (True, False)
    )
    models = [model for model in with_ if model in without]
    smaller = {
        figure: {model: getattr(with_[model], figure) < getattr(without[model], figure) for model in models}
        for figure in _STATISTICS
    }
    closer = smaller["transport"]
    numbers = []
    if models:
        numbers = [
            f"{name}: smaller with pre-training for {sum(smaller[figure].values())} of {len(models)} models "
            f"({_range(with_, models, figure)} with, {_range(without, models, figure)} without)"
            for figure, name in _STATISTICS.items()
        ]
    js = printed()["exp1_js"]
    ranges = [
        f"{js[key]['min'][1]} ({js[key]['min'][0]}) to {js[key]['max'][1]} ({js[key]['max'][0]})"
        for key in ("pretrained", "no_pretraining")
    ]
    kinds = {"with": with_, "without": without}
    details = {
        model: {
            "verdict": answer(closer[model]),
            **{kind: _divergence(entries[model]) for kind, entries in kinds.items()},
        }
        for model in models
    }
    statement = "With pre-training the accuracies of the two splits are distributed more alike than without."
    known = [curve for curve in curves(evidence.static) if curve.model in models]
    paper = f"{ranges[0]} with, {ranges[1]} without, in a statistic that cannot tell (A13)"
    return _static("C3", statement, every_part(closer.values()), numbers, evidence, known, paper, details)


# --- parts -----------------------------------------------------------------------------------------------------------

_Curves = Mapping[tuple[str, str, bool], Curve]  # by split, model, and whether pre-trained


def _higher(of: _Curves) -> dict[str, bool]:
    return {
        f"{split} {model} epoch {epoch}": ours >= theirs
        for split, model, curve, other in _with_and_without(of)
        for epoch, (ours, theirs) in enumerate(zip(curve.mean, other.mean, strict=False))
    }


def _steadier(of: _Curves) -> dict[str, bool]:
    return {
        f"{split} {model}": sum(curve.sd) / len(curve.sd) < sum(other.sd) / len(other.sd)
        for split, model, curve, other in _with_and_without(of)
        if min(curve.runs, other.runs) > 1
    }


def _larger(of: _Curves) -> dict[str, bool]:
    return {
        f"{model}{' pre-trained' if before else ''}": sum(of["B", model, before].mean) > sum(curve.mean)
        for (split, model, before), curve in of.items()
        if split == "A" and ("B", model, before) in of
    }


def _over_mlp(of: _Curves) -> dict[str, bool]:
    return {
        f"{split} {model}": curve.mean[-1] > of[split, "mlp", True].mean[-1]
        for (split, model, before), curve in of.items()
        if before and model != "mlp" and (split, "mlp", True) in of
    }


def _with_and_without(of: _Curves) -> list[tuple[str, str, Curve, Curve]]:
    return [
        (split, model, curve, of[split, model, False])
        for (split, model, before), curve in of.items()
        if before and (split, model, False) in of
    ]


def _all(cells: Mapping[str, bool]) -> bool | None:
    return all(cells.values()) if cells else None


def _in_pairs(results: Results) -> Results:
    """Those runs that have both splits, with as many epochs."""
    there = {(trial, len(result["accuracy"])) for trial, result in results}
    other: dict[Which, Which] = {"A": "B", "B": "A"}
    return [
        (trial, result)
        for trial, result in results
        if (replace(trial, split=other[trial.split]), len(result["accuracy"])) in there
    ]


def _divergence(found: Divergence) -> dict[str, Any]:
    return {
        "transport": found.transport,
        "transport_of": found.transport_of,
        "histogram": found.histogram,
        "histogram_of": found.histogram_of,
        "jensen_shannon_distance": found.jensen_shannon_distance,
    }


def _range(found: Mapping[str, Divergence], models: Sequence[str], figure: str) -> str:
    values = [getattr(found[model], figure) for model in models]
    return f"{min(values):.4f} to {max(values):.4f}"


def _name(curve: Curve) -> str:
    return f"{curve.split} {curve.model}"


def _static(
    claim: str,
    statement: str,
    holds: bool | None,
    numbers: Sequence[str],
    evidence: Evidence,
    used: Sequence[Curve],
    paper: str,
    details: Mapping[str, Any],
) -> Verdict:
    runs = {curve.runs for curve in used}
    if runs and holds is not None:
        numbers = [*numbers, f"{min(runs)} to {max(runs)} seeds" if len(runs) > 1 else f"seeds: {min(runs)}"]
    missing = "results of experiment 1 with both splits, with and without pre-training"
    found = judged(claim, statement, holds, numbers=numbers, missing=missing, paper=paper, details=details)
    return replace(
        found,
        graphs=tuple(dict.fromkeys(curve.graph for curve in used)),
        seeds=tuple(sorted({trial.seed for trial, _ in evidence.static})) if used else (),
    )
