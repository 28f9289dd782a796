"""``evergraph ws``: the production loop on disk, each command a transaction."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from evergraph.cli import common, ws_look
from evergraph.cli import ws_common as options
from evergraph.cli.common import Json, Quiet, print_json, set_up_logging
from evergraph.cli.ws_common import (
    Folder,
    change,
    check_out,
    interruptible,
    named,
    next_of,
    one_of,
    tell,
    training_steps,
)
from evergraph.errors import EvergraphError, InputError
from evergraph.names import DEFAULT_DETECTOR, DEFAULT_MODEL

if TYPE_CHECKING:
    import pyarrow as pa

    from evergraph.datasets.tables import Columns
    from evergraph.graph.evolving import EvolvingGraph
    from evergraph.workspace import Workspace

app = typer.Typer(
    help="Keep a model current on a graph that grows: slices arrive, are decided, and get their labels late.",
    short_help="The production loop: slices arrive, are decided, get labels late.",
    epilog="Example: evergraph ws init ws --vertices papers.csv --edges cites.csv. The loop after that: ws add, ws "
    "predict, ws label, ws update, and again; ws status says what is next.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
classes = typer.Typer(
    help="List, create, rename, merge and retire classes.",
    epilog="Example: evergraph ws classes list ws",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@app.command(
    short_help="Make a workspace, and train its first model.",
    epilog="Example: evergraph ws init ws --vertices papers.csv --edges cites.csv --time year --label venue",
)
def init(
    ws: Folder,
    vertices: options.Vertices = None,
    edges: options.Edges = None,
    graph: Annotated[
        str | None,
        typer.Option(
            metavar="GRAPH",
            help=f"Instead of files: {common.GRAPH_HELP[0].lower()}{common.GRAPH_HELP[1:]}",
            autocompletion=common.graphs_like,
        ),
    ] = None,
    id: common.IdColumn = "id",
    time: common.TimeColumn = "time",
    label: common.LabelColumn = "label",
    text: common.TextColumn = None,
    features: common.FeatureColumns = None,
    source: common.SourceColumn = "source",
    target: common.TargetColumn = "target",
    edge_time: common.EdgeTimeColumn = None,
    every: common.Every = None,
    drop_dangling: common.DropDangling = False,
    model: common.ModelOption = DEFAULT_MODEL,
    hidden: common.Hidden = None,
    layers: common.Layers = None,
    dropout: common.Dropout = None,
    hops: common.Hops = None,
    history: common.HistoryOption = "auto",
    detector: common.DetectorOption = DEFAULT_DETECTOR,
    threshold: common.Threshold = None,
    alpha: common.Alpha = None,
    most: common.Most = None,
    steps: common.Steps = 200,
    lr: common.LearningRate = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Where all randomness comes from.")] = 0,
    keep: Annotated[int, typer.Option(min=2, metavar="N", help="Versions that are kept to roll back to.")] = 10,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a workspace from what there is so far, and train its first model.

    What the columns are called is kept with it, so that later commands need not be told.
    """
    sight = common.parse_history(history)
    set_up_logging(quiet)
    with interruptible(ws):
        with training_steps("init", quiet or as_json) as shown:
            from evergraph.datasets.tables import Columns, feature_columns
            from evergraph.learning.training import steps_a_task
            from evergraph.names import build_detector, build_model
            from evergraph.workspace import Workspace

            columns = Columns(id, time, label, text, common.names_in(features), source, target, edge_time)
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


@app.command(
    short_help="A new slice arrives.", epilog="Example: evergraph ws add ws --vertices 2016.csv --edges cites-2016.csv"
)
def add(
    ws: Folder,
    vertices: options.Vertices = None,
    edges: options.Edges = None,
    id: options.IdColumn = None,
    time: options.TimeColumn = None,
    label: options.LabelColumn = None,
    no_label: options.NoLabel = False,
    text: options.TextColumn = None,
    features: options.Features = None,
    source: options.SourceColumn = None,
    target: options.TargetColumn = None,
    edge_time: options.EdgeTimeColumn = None,
    drop_dangling: common.DropDangling = False,
    wait: options.Wait = 0,
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
                workspace.state.settings.columns,
                named(
                    workspace,
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
        wait,
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
    vertices: options.VertexIds = None,
    ids: options.Ids = None,
    edges: options.Edges = None,
    id: options.IdColumn = None,
    source: options.SourceColumn = None,
    target: options.TargetColumn = None,
    wait: options.Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take vertices with their edges, or edges alone, out of the graph; what was decided on them is kept."""
    gone = one_of(vertices, ids)
    change(
        ws,
        "remove",
        lambda workspace, _: workspace.remove(
            gone, edges, columns=named(workspace, id=id, source=source, target=target)
        ),
        as_json,
        quiet,
        wait,
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
    replace: options.ReplaceFile = False,
    wait: options.Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Decide of each vertex without a label its class, or that its class is unseen, and why.

    What was decided is kept, to be scored once labels come.
    """
    check_out(out, replace=replace)
    set_up_logging(quiet)
    with interruptible(ws):
        with training_steps("predict", quiet or as_json):
            from evergraph.graph.classes import UNSEEN
            from evergraph.workspace import Workspace

            workspace = Workspace(ws, wait=wait)
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

            show_decisions(common.console(), table, brief=out is not None)
            what = [] if version > before else ["nothing else than what was decided before"]
            what += [] if out is None else [f"written to {out}"]
            tell("predict" if version > before else "as before", version, what, following)


def _write(out: Path, table: pa.Table) -> None:
    from evergraph.cli.ws_common import write_table

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
    id: options.IdColumn = None,
    label: options.LabelColumn = None,
    wait: options.Wait = 0,
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
        lambda workspace, _: workspace.label(labels, columns=named(workspace, id=id, label=label)),
        as_json,
        quiet,
        wait,
    )


@app.command(short_help="Retrain with the labels that have come.", epilog="Example: evergraph ws update ws")
def update(
    ws: Folder,
    restart: Annotated[
        Literal["auto", "warm", "cold"],
        typer.Option(help="Go on from the weights, start afresh, or choose by a back-test (which may leave it out)."),
    ] = "auto",
    wait: options.Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Retrain the model on its history, with the labels that have come."""
    change(
        ws,
        "update",
        lambda workspace, steps: workspace.update(restart, on_step=steps(_steps_of(workspace))),
        as_json,
        quiet,
        wait,
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
    wait: options.Wait = 0,
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
        wait,
    )


app.command(
    short_help="What looks unseen, to be looked at.", epilog="Example: evergraph ws review ws --out review.csv"
)(ws_look.review)
app.command(short_help="Where it stands, and what is next.", epilog="Example: evergraph ws status ws")(ws_look.status)
app.command(short_help="How the decisions on each slice did.", epilog="Example: evergraph ws scores ws")(ws_look.scores)
app.command(short_help="Read everything and compare it with its checksums.", epilog="Example: evergraph ws verify ws")(
    ws_look.verify
)
app.command(short_help="What was done, and what can be undone.", epilog="Example: evergraph ws log ws")(ws_look.log)
app.add_typer(classes, name="classes")
classes.command("list", short_help="All classes.", epilog="Example: evergraph ws classes list ws")(ws_look.list_classes)


def _name(metavar: str, what: str) -> typer.models.ArgumentInfo:
    return typer.Argument(metavar=metavar, help=what)


@classes.command(
    short_help="A new class from reviewed vertices.",
    epilog="Example: evergraph ws classes create ws 'Graph theory' --ids p7,p9",
)
def create(
    ws: Folder,
    name: Annotated[str, _name("NAME", "Its name.")],
    ids: options.Ids = None,
    vertices: options.VertexIds = None,
    group: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="A group of ws review, all its vertices; may be given several times."),
    ] = None,
    id: options.IdColumn = None,
    wait: options.Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a class of reviewed vertices, which get it as their label; or bring a retired class back.

    With --group these are the vertices of groups. Their numbers hold until something changes: look again before the
    next one.
    """
    members = one_of(vertices, ids)
    if group and (vertices is not None or ids is not None):
        other = "--ids" if vertices is None else "--vertices"
        raise InputError(f"--group and {other} were given", fix="leave one of them out: both say which vertices")
    change(
        ws,
        "classes create",
        lambda workspace, _: workspace.create_class(name, members, groups=group or (), columns=named(workspace, id=id)),
        as_json,
        quiet,
        wait,
    )


@classes.command(short_help="Give a class another name.", epilog="Example: evergraph ws classes rename ws KDD SIGKDD")
def rename(
    ws: Folder,
    old: Annotated[str, _name("OLD", "What it is called.")],
    new: Annotated[str, _name("NEW", "What it will be called.")],
    wait: options.Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Give a class another name: in the labels, in the model and in what is said of earlier decisions."""
    change(ws, "classes rename", lambda workspace, _: workspace.rename_class(old, new), as_json, quiet, wait)


@classes.command(
    short_help="Make several classes one.",
    epilog="Example: evergraph ws classes merge ws KDD PKDD --into 'Data mining'",
)
def merge(
    ws: Folder,
    names: Annotated[list[str], _name("NAME", "Which classes.")],
    into: Annotated[str, typer.Option(metavar="NAME", help="What they become: one of them, another one or a new one.")],
    wait: options.Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make several classes one; the model says its name at once, and learns it as one with the next update."""
    change(ws, "classes merge", lambda workspace, _: workspace.merge_classes(names, into), as_json, quiet, wait)


@classes.command(short_help="Decide for a class no more.", epilog="Example: evergraph ws classes retire ws KDD")
def retire(
    ws: Folder,
    name: Annotated[str, _name("NAME", "Which class.")],
    wait: options.Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Decide for a class no more, nor learn from its labels, which stay; ws classes create brings it back."""
    change(ws, "classes retire", lambda workspace, _: workspace.retire_class(name), as_json, quiet, wait)
