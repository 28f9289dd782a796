"""``evergraph ws init``: a workspace around what there is so far, and its first model."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evergraph.cli.common import (
    HistoryOption,
    Json,
    Quiet,
    graphs_like,
    parse_history,
    print_json,
    set_up_logging,
)
from evergraph.cli.options import (
    Alpha,
    DetectorOption,
    DropDangling,
    Dropout,
    EdgeTimeColumn,
    Every,
    FeatureColumns,
    Hidden,
    Hops,
    IdColumn,
    LabelColumn,
    Layers,
    LearningRate,
    ModelOption,
    Most,
    SourceColumn,
    Steps,
    TargetColumn,
    TextColumn,
    Threshold,
    TimeColumn,
    names_in,
)
from evergraph.cli.ws_common import (
    Edges,
    Folder,
    Vertices,
    interruptible,
    next_of,
    progress,
    tell,
)
from evergraph.errors import InputError
from evergraph.names import DEFAULT_DETECTOR, DEFAULT_MODEL

if TYPE_CHECKING:
    from evergraph.datasets.tables import Columns
    from evergraph.graph.evolving import EvolvingGraph


EXAMPLE = "Example: evergraph ws init ws --vertices papers.csv --edges cites.csv --time year --label venue"


def init(
    ws: Folder,
    vertices: Vertices = None,
    edges: Edges = None,
    graph: Annotated[
        str | None,
        typer.Option(
            metavar="GRAPH",
            help="Instead of files: a graph folder, or: metamath, synthetic.",
            autocompletion=graphs_like,
        ),
    ] = None,
    id: IdColumn = "id",
    time: TimeColumn = "time",
    label: LabelColumn = "label",
    text: TextColumn = None,
    features: FeatureColumns = None,
    source: SourceColumn = "source",
    target: TargetColumn = "target",
    edge_time: EdgeTimeColumn = None,
    every: Every = None,
    drop_dangling: DropDangling = False,
    model: ModelOption = DEFAULT_MODEL,
    hidden: Hidden = None,
    layers: Layers = None,
    dropout: Dropout = None,
    hops: Hops = None,
    history: HistoryOption = "auto",
    detector: DetectorOption = DEFAULT_DETECTOR,
    threshold: Threshold = None,
    alpha: Alpha = None,
    most: Most = None,
    steps: Steps = 200,
    lr: LearningRate = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Where all randomness comes from.")] = 0,
    keep: Annotated[int, typer.Option(min=2, metavar="N", help="Versions that are kept to roll back to.")] = 10,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a workspace from what there is so far, and train its first model.

    What the columns are called is kept with it, so that later commands need not be told.
    """
    sight = parse_history(history)
    set_up_logging(quiet)
    with interruptible(ws):
        with progress("init", quiet or as_json) as shown:
            from evergraph.datasets.tables import Columns, feature_columns
            from evergraph.learning.training import steps_a_task
            from evergraph.names import build_detector, build_model
            from evergraph.workspace import Workspace

            columns = Columns(id, time, label, text, names_in(features), source, target, edge_time)
            if columns.features and graph is None and vertices is not None:
                # Kept one by one: columns of later slices may come in another order.
                columns = replace(columns, features=feature_columns(vertices, columns.features))
            # Before a graph is read, which may take long.
            chosen = build_model(model, hidden=hidden, layers=layers, dropout=dropout, hops=hops)
            rejecting = build_detector(detector, threshold=threshold, alpha=alpha, most=most)
            workspace = Workspace.create(
                ws,
                _graph(vertices, edges, graph, columns, every, drop_dangling),
                model=chosen,
                detector=rejecting,
                history=sight,
                steps=steps,
                lr=lr,
                seed=seed,
                columns=columns,
                keep=keep,
                on_step=shown(steps_a_task(steps, rejecting)),
            )
            status, following = workspace.status(), next_of(workspace, ws)
        what = workspace.log()[0].what
        if as_json:
            print_json({"workspace": str(ws), "what": what} | status.as_dict() | {"next": following})
        elif not quiet:
            tell("init", 1, what.split("; "), following)


def _graph(
    vertices: Path | None, edges: Path | None, graph: str | None, columns: Columns, every: str | None, drop: bool
) -> EvolvingGraph:
    """What a workspace is made around."""
    if graph is None and (vertices is None or edges is None):
        raise InputError(
            "there is nothing to make a workspace from", fix="give --vertices and --edges, or --graph instead"
        )
    if graph is not None:
        also = {"--vertices": vertices, "--edges": edges, "--every": every, "--drop-dangling": drop or None}
        if given := [option for option, value in also.items() if value is not None]:
            raise InputError(f"--graph and {given[0]} were given", fix="leave one of them out")
        from evergraph.datasets import load

        return load(graph)
    from evergraph.datasets.tables import read_tables

    try:
        return read_tables(vertices or "", edges, every=every, drop_dangling=drop, **asdict(columns))
    except InputError as error:
        if "--no-label" not in (error.fix or ""):
            raise
        # Elsewhere one can leave labels out; the first model needs some.
        fix = str(error.fix).partition(", or leave labels out")[0]
        raise InputError(error.problem, fix=fix, file=error.file, column=error.column) from None
