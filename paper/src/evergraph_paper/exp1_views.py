"""What experiment 1 shows: its tables beside the paper's, and accuracy over inference epochs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.evaluation.trials import TrialResult
from evergraph.presentation import Cell, Column, Section, Table, style
from evergraph_paper.exp1 import Results, StaticRow, curves, divergences
from evergraph_paper.paper import printed
from evergraph_paper.static import STATIC_GRAPHS, STATIC_MODELS, StaticTrial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["accuracy_table", "divergence_table", "exp1_figures", "splits_table", "static_results"]

_NAMES = {"gcn": "GCN", "gcn-64": "GCN-64", "gat": "GAT", "sage": "GraphSAGE", "mlp": "MLP"}
_PLATEAU = 10


def static_results(found: Mapping[str, TrialResult], seeds: Sequence[int] | None = None) -> list[Any]:
    """The trials of experiment 1 that have run, each with its result, in the order of its grid."""
    by_settings = {
        _canonical(trial.described()): trial
        for graph in STATIC_GRAPHS
        for split in ("A", "B")
        for model in STATIC_MODELS
        for pretraining in {one.trial["pretraining"] for one in found.values() if one.trial.get("kind") == "static"}
        for epochs in {one.trial["epochs"] for one in found.values() if one.trial.get("kind") == "static"}
        for trial in [StaticTrial(graph, Path(), split, model, pretraining, epochs)]
    }
    results = []
    for one in found.values():
        trial = by_settings.get(_canonical(one.trial))
        if trial is not None and (seeds is None or one.seed in seeds):
            fields = (trial.graph, Path(), trial.split, trial.model, trial.pretraining, trial.epochs, one.seed)
            results.append((StaticTrial(*fields), one.result))
    order = {name: place for place, name in enumerate((*STATIC_GRAPHS, *STATIC_MODELS))}
    return sorted(
        results,
        key=lambda pair: (
            order[pair[0].graph],
            pair[0].split,
            order[pair[0].model],
            pair[0].pretraining,
            pair[0].seed,
        ),
    )


def _canonical(description: Mapping[str, Any]) -> str:
    return json.dumps(description, sort_keys=True)


def accuracy_table(results: Results) -> Table:
    """Accuracy before, after ten, and after all inference epochs, with its deviation over the runs."""
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
    """How far the accuracies of A and B are apart: in the paper's three ways, and in two that compare distributions."""
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
    both = [  # while the grid runs, some have no counterpart yet
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
    """The paper's table of static graphs: our count, and the paper's."""
    names = ("vertices", "edges", "train_vertices", "train_edges", "unseen_vertices", "unseen_edges", "test_vertices")
    columns = (
        Column("graph", align="left"),
        Column("split", align="left"),
        *(
            Column(
                name.replace("_", " ").removesuffix(" vertices") if name == "test_vertices" else name.replace("_", " ")
            )
            for name in names
        ),
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
    """Accuracy over inference epochs for each split: without pre-training above, with it below, a column a graph."""
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
            for column in axes.T:
                limits = [panel.get_ylim() for panel in column]
                for panel in column:
                    panel.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
            style.legend_below(picture)
        figures[f"exp1-{split}"] = picture
    return figures
