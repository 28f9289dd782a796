"""``evergraph ws``: the production loop on disk, each command a transaction."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evergraph.cli import ws_classes, ws_init, ws_look
from evergraph.cli.common import (
    Json,
    Quiet,
    console,
    print_json,
    set_up_logging,
)
from evergraph.cli.options import DropDangling
from evergraph.cli.ws_common import (
    Edges,
    EdgeTimeColumn,
    Features,
    Folder,
    IdColumn,
    Ids,
    LabelColumn,
    NoLabel,
    ReplaceFile,
    SourceColumn,
    TargetColumn,
    TextColumn,
    TimeColumn,
    Vertices,
    change,
    interruptible,
    named,
    next_of,
    one_of,
    progress,
    tell,
)
from evergraph.errors import EvergraphError, InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from evergraph.datasets.tables import Columns
    from evergraph.workspace import Workspace

app = typer.Typer(
    help="Keep a model current on a graph that grows: slices arrive, are decided, and get their labels late.",
    short_help="The production loop: slices arrive, are decided, get labels late.",
    epilog="Example: evergraph ws init ws --vertices papers.csv --edges cites.csv. The loop after that: ws add, ws "
    "predict, ws label, ws update, and again; ws status says what is next.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


app.command(short_help="Make a workspace, and train its first model.", epilog=ws_init.EXAMPLE)(ws_init.init)


class UpdateName(StrEnum):
    """How to update a model."""

    auto = "auto"
    warm = "warm"
    cold = "cold"


@app.command(
    short_help="A new slice arrives.", epilog="Example: evergraph ws add ws --vertices 2016.csv --edges cites-2016.csv"
)
def add(
    ws: Folder,
    vertices: Vertices = None,
    edges: Edges = None,
    id: IdColumn = None,
    time: TimeColumn = None,
    label: LabelColumn = None,
    no_label: NoLabel = False,
    text: TextColumn = None,
    features: Features = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    edge_time: EdgeTimeColumn = None,
    drop_dangling: DropDangling = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Add a slice: new vertices, without labels or with some, and new edges.

    No vertex may be older than the newest one that is there.
    """
    change(
        ws,
        "add",
        lambda workspace, _: workspace.add(
            vertices,
            edges,
            drop_dangling=drop_dangling,
            columns=_in_order(
                vertices,
                _columns(workspace),
                named(
                    _columns(workspace),
                    features,
                    no_label,
                    id=id,
                    time=time,
                    label=label,
                    text=text,
                    source=source,
                    target=target,
                    edge_time=edge_time,
                ),
            ),
        ),
        as_json,
        quiet,
    )


def _in_order(vertices: Path | None, kept: Columns, given: Columns | None) -> Columns | None:
    """Columns whose features stand in the order of the workspace, whatever their order in the slice.

    Other names than those of the workspace are taken in the order given; a pattern has none, so it must not bring any.
    """
    if given is None or vertices is None or given.features == kept.features:
        return given
    from evergraph.datasets.tables import feature_columns

    found = feature_columns(vertices, given.features)
    if set(found) == set(kept.features):
        return replace(given, features=kept.features)
    if kept.features and found != given.features:
        other = min(set(found) ^ set(kept.features))
        raise InputError(
            "the patterns do not mean the feature columns of the workspace: "
            + (f"'{other}' is one too many" if other in found else f"'{other}' is not among them"),
            file=vertices,
            column=other,
            fix="name the columns one by one, in the order of those of the workspace",
        )
    return given


@app.command(
    short_help="Take vertices or edges out.",
    epilog="Example: evergraph ws remove ws --ids p7,p9 --edges wrong-cites.csv",
)
def remove(
    ws: Folder,
    vertices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A table with a column of the vertices' ids.")
    ] = None,
    ids: Ids = None,
    edges: Edges = None,
    id: IdColumn = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take vertices with their edges, or edges alone, out of the graph; what was decided on them is kept."""
    gone = one_of(vertices, ids)
    change(
        ws,
        "remove",
        lambda workspace, _: workspace.remove(
            gone, edges, columns=named(_columns(workspace), id=id, source=source, target=target)
        ),
        as_json,
        quiet,
    )


@app.command(
    short_help="Decide the vertices without a label.", epilog="Example: evergraph ws predict ws --out decisions.csv"
)
def predict(
    ws: Folder,
    time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Of which vertices. Default: all never decided, else the newest."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the decisions there, as .csv or .parquet.")
    ] = None,
    replace: ReplaceFile = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Decide of each vertex without a label its class, or that its class is unseen, and why.

    What was decided is kept, to be scored once labels come.
    """
    from evergraph.cli.ws_files import check_out

    check_out(out, replace=replace)
    set_up_logging(quiet)
    with interruptible(ws):
        with progress("predict", quiet or as_json):
            from evergraph.graph.classes import UNSEEN
            from evergraph.workspace import Workspace

            workspace = Workspace(ws)
            before = workspace.store.head
            table = workspace.predict(time)
            if out is not None:
                _write(out, table)
            version, following = workspace.store.head, next_of(workspace, ws)
        if as_json:
            decisions = {"decisions": table.to_pylist()} if out is None else {"out": str(out)}
            counts = {"decided": table.num_rows, "unseen": table.column("class").to_pylist().count(UNSEEN)}
            print_json({"workspace": str(ws), "version": version, **counts, **decisions, "next": following})
        elif not quiet:
            from evergraph.cli.ws_show import show_decisions

            show_decisions(console(), table, brief=out is not None)
            what = [] if version > before else ["nothing else than what was decided before"]
            what += [] if out is None else [f"written to {out}"]
            tell("predict" if version > before else "as before", version, what, following)


def _write(out: Path, table: pa.Table) -> None:
    from evergraph.cli.ws_files import write_table

    try:
        write_table(out, table)
    except OSError as error:
        times = [f"--time {time}" for time in dict.fromkeys(table.column("time").to_pylist())]
        again = f"once for each of {', '.join(times)}, with a file for each" if len(times) > 1 else f"with {times[0]}"
        raise EvergraphError(
            f"{out}: the decisions are kept, but this file could not be written ({error.strerror or error}); make "
            f"room, and run the same command again {again}."
        ) from error


@app.command(short_help="Labels have come.", epilog="Example: evergraph ws label ws --labels reviewed.csv")
def label(
    ws: Folder,
    labels: Annotated[Path, typer.Option(metavar="FILE", help="A table with a column of ids and one of classes.")],
    id: IdColumn = None,
    label: LabelColumn = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Give vertices their labels, late ones and corrections too; a new name is a new class.

    All earlier decisions on these vertices are scored against them: see ws scores. Rows without a label are passed
    over.
    """
    change(
        ws,
        "label",
        lambda workspace, _: workspace.label(labels, columns=named(_columns(workspace), id=id, label=label)),
        as_json,
        quiet,
    )


@app.command(short_help="Retrain with the labels that have come.", epilog="Example: evergraph ws update ws")
def update(
    ws: Folder,
    restart: Annotated[
        UpdateName,
        typer.Option(help="Go on from the weights, start afresh, or choose by a back-test (which may leave it out)."),
    ] = UpdateName.auto,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Retrain the model on its history, with the labels that have come."""
    change(
        ws,
        "update",
        lambda workspace, steps: workspace.update(restart.value, on_step=steps(_steps_of(workspace))),
        as_json,
        quiet,
    )


def _steps_of(workspace: Workspace) -> int:
    from evergraph.learning.training import steps_a_task

    learner = workspace.learner()
    return steps_a_task(learner.steps, learner.detector)


@app.command(short_help="Return to an earlier version.", epilog="Example: evergraph ws rollback ws 12")
def rollback(
    ws: Folder,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="A version that is kept: see ws log.")],
    model_only: Annotated[bool, typer.Option("--model-only", help="Leave graph and labels as they are.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Return to the graph, the labels and the model of an earlier version.

    That makes a new version, from which one can return, too; decisions, their scores and the log stay.
    """
    change(
        ws,
        "rollback",
        lambda workspace, _: workspace.rollback(version, model_only=model_only),
        as_json,
        quiet,
    )


def _columns(workspace: Workspace) -> Columns:
    """What columns were called when the workspace was made."""
    return workspace.state.settings.columns


app.command(
    short_help="What looks unseen, to be looked at.", epilog="Example: evergraph ws review ws --out review.csv"
)(ws_look.review)
app.command(short_help="Where it stands, and what is next.", epilog="Example: evergraph ws status ws")(ws_look.status)
app.command(short_help="How the decisions on each slice did.", epilog="Example: evergraph ws scores ws")(ws_look.scores)
app.command(short_help="What was done, and what can be undone.", epilog="Example: evergraph ws log ws")(ws_look.log)
app.add_typer(ws_classes.app, name="classes")
