"""The commands ``evergraph ws``: the production loop on disk."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from evergraph.cli import common
from evergraph.cli.common import (
    InterruptError,
    Json,
    Quiet,
    console,
    echo,
    echo_next,
    names_in,
    option,
    print_json,
    progress,
    set_up_logging,
    show_encoding,
)
from evergraph.errors import InputError, NothingToDoError, StorageError
from evergraph.names import DEFAULT_DETECTOR, DEFAULT_MODEL
from evergraph.presentation.text import command_line, counted, visible

if TYPE_CHECKING:
    import pyarrow as pa

    from evergraph.datasets.tables import Columns
    from evergraph.graph.evolving import EvolvingGraph
    from evergraph.learning.training import OnStep
    from evergraph.workspace import Outcome, Workspace
    from evergraph.workspace.scores import Status

_Found = TypeVar("_Found")
_MOST_SHOWN = 20

app = typer.Typer(rich_markup_mode=None)  # `evergraph.cli` has its help
classes = typer.Typer(
    help="List, create, rename, merge and retire classes.",
    epilog="Example: evergraph ws classes list ws",
    rich_markup_mode=None,
    no_args_is_help=True,
)
app.add_typer(classes, name="classes")


# --- options ---------------------------------------------------------------------------------------------------------

_AT_INIT = "as given to init, or"
Folder = Annotated[Path, typer.Argument(metavar="WS", help="Folder of the workspace.")]
Vertices = Annotated[Path | None, option("vertices", "FILE", "Vertices: .csv, .tsv (also .gz) or .parquet.")]
Edges = Annotated[Path | None, option("edges", "FILE", "Edges: .csv, .tsv (also .gz) or .parquet.")]
VertexIds = Annotated[Path | None, option("vertices", "FILE", "Table with a column of vertex ids.")]
Ids = Annotated[str | None, option("ids", "IDS", "Vertex ids, separated by commas.")]
_LIMIT = "Number of single vertices shown after the groups, or written with --out. Default: 20; with --out all."
_WHY = (
    "Also show which words, categories and classes of older neighbours contribute most to the nearest class. This "
    "loads the model."
)
_WAIT = "Seconds to wait for another process that is writing. Default: do not wait."
Wait = Annotated[float, option("wait", "SECONDS", _WAIT, min=0, show_default=False)]
ReplaceFile = Annotated[bool, option("replace", None, "Overwrite an existing file.")]
_RAW_CELLS = (
    "CSV: write cells that start with = + - @, a tab or a line end unchanged. Default: an apostrophe before them, "
    "because spreadsheets may run them."
)
RawCells = Annotated[bool, option("raw-cells", None, _RAW_CELLS)]
NoLabel = Annotated[bool, option("no-label", None, "Ignore the label column.")]
_LABEL = f"Column of classes; empty means no label. Default: {_AT_INIT} label."
_TEXT = f"Vertices: column of texts; '' for none. Default: {_AT_INIT} text, if it exists."
_EDGE_TIME = f"Edges: column of their times; '' for none. Default: {_AT_INIT} time, if it exists."
_SOURCE, _TARGET = (f"Edges: column of {end} ids. Default: {_AT_INIT} {end}." for end in ("source", "target"))
IdColumn = Annotated[str | None, option("id", "COLUMN", f"Column of ids. Default: {_AT_INIT} id.")]
TimeColumn = Annotated[str | None, option("time", "COLUMN", f"Vertices: column of times. Default: {_AT_INIT} time.")]
LabelColumn = Annotated[str | None, option("label", "COLUMN", _LABEL)]
TextColumn = Annotated[str | None, option("text", "COLUMN", _TEXT)]
_NUMBERS, _CATEGORIES = (f"{text} Default: {_AT_INIT} none." for text in (common.NUMBERS_HELP, common.CATEGORIES_HELP))
NumberColumns = Annotated[str | None, option("numbers", "COLUMNS", _NUMBERS, also="features")]
CategoryColumns = Annotated[str | None, option("categories", "COLUMNS", _CATEGORIES)]
SourceColumn = Annotated[str | None, option("source", "COLUMN", _SOURCE)]
TargetColumn = Annotated[str | None, option("target", "COLUMN", _TARGET)]
EdgeTimeColumn = Annotated[str | None, option("edge-time", "COLUMN", _EDGE_TIME)]
_ENCODER = "Text encoder, if it is a model in a folder. Default: as given to init."
Encoder = Annotated[str | None, option("encoder", "FOLDER", _ENCODER)]


def _columns(
    workspace: Workspace,
    numbers: str | None = None,
    categories: str | None = None,
    no_label: bool = False,
    **given: str | None,
) -> Columns | None:
    """Return the workspace's columns with the names from options; None if there are none."""
    changed: dict[str, Any] = {field: name for field, name in given.items() if name is not None}
    changed |= {
        field: names_in(names)
        for field, names in (("numbers", numbers), ("categories", categories))
        if names is not None
    }
    if no_label:
        changed["label"] = ""
    return replace(workspace.state.settings.columns, **changed) if changed else None


def _one_of(vertices: Path | None, ids: str | None) -> Path | list[str]:
    """Return the chosen vertices: a file with their ids, or the ids.

    Examples
    --------
    >>> _one_of(None, "p1, p2,")
    ['p1', 'p2']
    """
    if vertices is not None and ids is not None:
        raise InputError("--vertices and --ids are both given", fix="give only one of them")
    return list(names_in(ids)) if vertices is None else vertices


# --- running a command -----------------------------------------------------------------------------------------------


def _change(
    folder: Path,
    command: str,
    do: Callable[[Workspace, Steps], Outcome],
    as_json: bool,
    quiet: bool,
    wait: float = 0,
    device: str = "cpu",
) -> None:
    """Run a command that makes a new version; print what it did and what to do next."""
    set_up_logging(quiet)
    with _interruptible(folder):
        with _training_steps(command, quiet or as_json) as steps:
            from evergraph.workspace import Workspace

            workspace = Workspace(folder, wait=wait, device=_device(device))
            try:
                outcome = do(workspace, steps)
            except NothingToDoError as nothing:
                _print_nothing(folder, workspace, nothing, as_json, quiet)
                return
            status = workspace.status()
        if as_json:
            done = {"workspace": str(folder), "version": outcome.version, "what": outcome.what}
            print_json(done | outcome.facts | _next(folder, status))
        elif not quiet:
            _print_outcome(command, outcome.version, outcome.parts, folder, status)


def _device(name: str) -> str:
    """Return the device to use; only another than the CPU loads torch to look for it."""
    if name == "cpu":
        return name
    from evergraph.nn.device import choose_device

    return choose_device(name)


def _limit(memory: str | None) -> None:
    """Set the memory limit of this process, if one is given."""
    if memory is not None:
        from evergraph.learning.memory_limit import limit_process

        limit_process(memory)


def _look(folder: Path, quiet: bool, at: Callable[[Workspace], _Found]) -> _Found:
    """Run a command that only reads."""
    set_up_logging(quiet)
    with _interruptible(folder), progress("reading", quiet):
        from evergraph.workspace import Workspace

        return at(Workspace(folder))


@contextmanager
def _interruptible(folder: Path) -> Iterator[None]:
    """On Ctrl-C say whether the workspace was changed, and exit with code 130."""
    before = _version(folder)
    try:
        yield
    except KeyboardInterrupt:
        log = command_line("ws", "log", folder)
        told = "; nothing was changed" if _version(folder) == before else f", but the change was made: see {log}"
        raise InterruptError(f"Interrupted{told}") from None


def _version(folder: Path) -> int | None:
    """Return the current version; None if there is no workspace or it cannot be read."""
    from evergraph.workspace.store import DATABASE, Store

    try:
        return Store(folder).head if (folder / DATABASE).exists() else None
    except (InputError, OSError):
        return None


class Steps:
    """Shows the training steps of a command, and the texts that it encodes."""

    def __init__(self, command: str, show: Callable[..., None] | None) -> None:
        self.command, self.show, self.on_encoded = command, show, show_encoding(show)

    def __call__(self, total: int) -> OnStep:
        """Return the callback for each of the steps."""

        def on_step(step: int, _loss: float) -> None:
            if self.show is not None:
                self.show(description=f"ws {self.command}, step {step}/{total}", completed=step, total=total)

        return on_step


@contextmanager
def _training_steps(command: str, quiet: bool) -> Iterator[Steps]:
    """Show the progress of a command, and of its training steps, on a terminal."""
    with progress(f"ws {command}", quiet) as show:
        yield Steps(command, show)


def _next(folder: Path, status: Status) -> dict[str, str]:
    """Return the next command and why, for JSON."""
    return {"next": status.next_line(folder), "next_why": status.next_why}


def _print_outcome(command: str, version: int, parts: Iterable[str], folder: Path, status: Status) -> None:
    width = console().width
    for line in (f"Version {version} ({command})", *(f"- {part}" for part in parts)):
        indent = "  " if line.startswith("- ") else ""
        how: dict[str, Any] = {"subsequent_indent": indent, "break_long_words": False, "break_on_hyphens": False}
        echo(textwrap.fill(visible(line), width, **how))
    echo_next(status.next_line(folder), status.next_why)


def _print_nothing(folder: Path, workspace: Workspace, nothing: NothingToDoError, as_json: bool, quiet: bool) -> None:
    """Print that a command has nothing to do, and what to do next."""
    what, status = f"nothing to do: {nothing}", workspace.status()
    if as_json:
        print_json({"workspace": str(folder), "version": status.version, "what": what} | _next(folder, status))
    elif not quiet:
        echo(f"N{what[1:]}")
        echo_next(status.next_line(folder), status.next_why)


# --- commands that change the workspace ------------------------------------------------------------------------------


@app.command(
    short_help="Create a workspace and train its first model.",
    epilog="Example: evergraph ws init ws --vertices papers.csv --edges citations.csv --time year --label venue "
    "--text title",
)
def init(
    ws: Folder,
    vertices: Vertices = None,
    edges: Edges = None,
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
    numbers: common.NumberColumns = None,
    categories: common.CategoryColumns = None,
    source: common.SourceColumn = "source",
    target: common.TargetColumn = "target",
    edge_time: common.EdgeTimeColumn = None,
    every: common.Every = None,
    drop_dangling: common.DropDangling = False,
    encoder: common.EncoderOption = None,
    settings: common.SettingsOption = None,
    model: common.ModelOption = DEFAULT_MODEL,
    hidden: common.Hidden = None,
    layers: common.Layers = None,
    dropout: common.Dropout = None,
    hops: common.Hops = None,
    inputs: common.InputsOption = "auto",
    history: common.HistoryOption = "auto",
    detector: common.DetectorOption = DEFAULT_DETECTOR,
    threshold: common.Threshold = None,
    alpha: common.Alpha = None,
    objective: common.ObjectiveOption = None,
    steps: common.Steps = 200,
    lr: common.LearningRate = None,
    memory: common.MemoryOption = "none",
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Random seed.")] = 0,
    keep: Annotated[int, typer.Option(min=2, metavar="N", help="Number of versions kept for ws rollback.")] = 10,
    device: common.Device = "cpu",
    memory_limit: common.MemoryLimit = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Create a workspace from a graph, and train its first model.

    The workspace stores the names of the columns, so you do not have to repeat them later.
    """
    set_up_logging(quiet)
    with _interruptible(ws):
        with _training_steps("init", quiet or as_json) as shown:
            from evergraph.datasets.tables import Columns, find_columns
            from evergraph.inputs.encoders import load_encoder
            from evergraph.inputs.encoding import encoded_graph
            from evergraph.learning.training import steps_a_task
            from evergraph.workspace import Workspace
            from evergraph.workspace.store import Store

            columns = Columns(id, time, label, text, names_in(numbers), source, target, edge_time, names_in(categories))
            if (columns.numbers or columns.categories) and graph is None and vertices is not None:
                # Patterns are stored as names: later slices may have other columns that match them.
                columns = replace(
                    columns,
                    numbers=find_columns(vertices, columns.numbers),
                    categories=find_columns(vertices, columns.categories, "categories"),
                )
            # Checked before the graph is read, which may take long.
            Store.check_new(ws)
            computing = _device(device)
            _limit(memory_limit)
            options = {"model": model, "hidden": hidden, "layers": layers, "dropout": dropout, "hops": hops}
            options |= {"detector": detector, "threshold": threshold, "alpha": alpha, "objective": objective}
            options |= {"history": history, "inputs": inputs, "steps": steps, "lr": lr, "memory": memory}
            chosen = common.chosen_settings(settings, options)
            loaded = None if encoder is None else load_encoder(encoder)
            read = _read_graph(vertices, edges, graph, columns, every, drop_dangling)
            with nullcontext(read) if loaded is None else encoded_graph(read, loaded, ws, shown.on_encoded) as whole:
                workspace = Workspace.create(
                    ws,
                    whole,
                    **chosen,
                    seed=seed,
                    columns=columns,
                    keep=keep,
                    device=computing,
                    on_step=shown(steps_a_task(chosen["steps"], chosen["detector"])),
                )
            status = workspace.status()
        what = workspace.log()[0].what
        if as_json:
            print_json({"workspace": str(ws), "what": what} | status.as_dict() | _next(ws, status))
        elif not quiet:
            _print_outcome("init", 1, what.split("; "), ws, status)


def _read_graph(
    vertices: Path | None, edges: Path | None, graph: str | None, columns: Columns, every: str | None, drop: bool
) -> EvolvingGraph:
    if graph is None and (vertices is None or edges is None):
        raise InputError("no graph is given", fix="give --vertices and --edges, or --graph")
    if graph is not None:
        also = {"--vertices": vertices, "--edges": edges, "--every": every, "--drop-dangling": drop or None}
        if given := [option for option, value in also.items() if value is not None]:
            raise InputError(f"--graph and {given[0]} are both given", fix="give only one of them")
        from evergraph.datasets import load

        return load(graph)
    from evergraph.datasets.tables import read_tables

    try:
        return read_tables(vertices or "", edges, every=every, drop_dangling=drop, **asdict(columns))
    except InputError as error:
        if "--no-label" not in (error.fix or ""):
            raise
        # Other commands can do without labels; the first model cannot.
        fix = str(error.fix).partition(", or leave labels out")[0]
        raise InputError(error.problem, fix=fix, file=error.file, column=error.column) from None


@app.command(
    short_help="Add a slice.",
    epilog="Example: evergraph ws add ws --vertices papers-2006.csv --edges citations-2006.csv",
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
    numbers: NumberColumns = None,
    categories: CategoryColumns = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    edge_time: EdgeTimeColumn = None,
    drop_dangling: common.DropDangling = False,
    encoder: Encoder = None,
    wait: Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Add a slice: new vertices, with or without labels, and new edges.

    No vertex may be older than the newest slice of the workspace.
    """
    names = {"id": id, "time": time, "label": label, "text": text}
    names |= {"source": source, "target": target, "edge_time": edge_time}

    def do(workspace: Workspace, shown: Steps) -> Outcome:
        columns = _columns(workspace, numbers, categories, no_label, **names)
        on_encoded = shown.on_encoded
        return workspace.add(
            vertices, edges, drop_dangling=drop_dangling, columns=columns, encoder=encoder, on_encoded=on_encoded
        )

    _change(ws, "add", do, as_json, quiet, wait)


@app.command(
    short_help="Remove vertices or edges.",
    epilog="Example: evergraph ws remove ws --ids p7,p9 --edges wrong-citations.csv",
)
def remove(
    ws: Folder,
    vertices: VertexIds = None,
    ids: Ids = None,
    edges: Edges = None,
    id: IdColumn = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    wait: Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Remove vertices with their edges, or only edges; decisions on removed vertices are kept."""
    gone = _one_of(vertices, ids)

    def do(workspace: Workspace, _: Steps) -> Outcome:
        return workspace.remove(gone, edges, columns=_columns(workspace, id=id, source=source, target=target))

    _change(ws, "remove", do, as_json, quiet, wait)


@app.command(
    short_help="Predict the classes of unlabelled vertices.",
    epilog="Example: evergraph ws predict ws --out decisions.csv",
)
def predict(
    ws: Folder,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Period to predict. Default: every period in which an unlabelled vertex has no decision yet; if there "
            "is none, the newest period with unlabelled vertices.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the decisions to this .csv or .parquet file.")
    ] = None,
    replace: ReplaceFile = False,
    raw_cells: RawCells = False,
    device: common.Device = "cpu",
    memory_limit: common.MemoryLimit = None,
    wait: Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict the class of each unlabelled vertex, or flag it as unseen, with the reasons.

    The decisions are stored, and scored when labels arrive. Probabilities are those of the known classes, provided
    that the class is known at all: they can be high for a flagged vertex.
    """
    from evergraph.cli import ws_output

    ws_output.check_out(out, replace=replace)
    set_up_logging(quiet)
    with _interruptible(ws):
        with _training_steps("predict", quiet or as_json):
            from evergraph.graph.classes import UNSEEN
            from evergraph.workspace import Workspace

            _limit(memory_limit)
            workspace = Workspace(ws, wait=wait, device=_device(device))
            try:
                table = workspace.predict(time)
            except NothingToDoError as nothing:
                _print_nothing(ws, workspace, nothing, as_json, quiet)
                return
            if out is not None:
                _write_decisions(out, table, raw_cells)
            status = workspace.status()
            version = workspace.made or status.version  # another process may have made one since
        if as_json:
            decisions = {"decisions": table.to_pylist()} if out is None else {"out": str(out)}
            counts = {"decided": table.num_rows, "unseen": table.column("class").to_pylist().count(UNSEEN)}
            print_json({"workspace": str(ws), "version": version, **counts, **decisions} | _next(ws, status))
        elif not quiet:
            ws_output.show_decisions(console(), table, brief=out is not None)
            what = [] if workspace.made else ["the same decisions as before"]
            what += [] if out is None else [f"written to {out}"]
            _print_outcome("predict" if workspace.made else "unchanged", version, what, ws, status)


def _write_decisions(out: Path, table: pa.Table, raw: bool = False) -> None:
    from evergraph.cli.ws_output import write_table

    try:
        write_table(out, table, raw=raw)
    except OSError as error:
        times = [f"--time {time}" for time in dict.fromkeys(table.column("time").to_pylist())]
        again = f"once for each of {', '.join(times)}, with a file for each" if len(times) > 1 else f"with {times[0]}"
        raise StorageError(
            f"the decisions are stored, but this file could not be written ({error.strerror or error})",
            file=out,
            fix=f"free disk space, and run the same command again {again}",
        ) from error


@app.command(short_help="Add labels.", epilog="Example: evergraph ws label ws --labels venues-2006.csv")
def label(
    ws: Folder,
    labels: Annotated[Path, typer.Option(metavar="FILE", help="Table with a column of ids and one of classes.")],
    id: IdColumn = None,
    label: LabelColumn = None,
    wait: Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Add labels, including late ones and corrections; a new name is a new class.

    Earlier decisions on these vertices are scored: see ws scores. Rows without a label are ignored.
    """

    def do(workspace: Workspace, _: Steps) -> Outcome:
        return workspace.label(labels, columns=_columns(workspace, id=id, label=label))

    _change(ws, "label", do, as_json, quiet, wait)


@app.command(short_help="Train the model with the new labels.", epilog="Example: evergraph ws update ws")
def update(
    ws: Folder,
    restart: Annotated[
        Literal["auto", "warm", "cold"],
        typer.Option(
            help="Start from the previous weights (warm), from new ones (cold), or choose by a backtest, which may "
            "also keep the model (auto)."
        ),
    ] = "auto",
    device: common.Device = "cpu",
    memory_limit: common.MemoryLimit = None,
    wait: Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train the model on its history, with the labels that have arrived."""

    def do(workspace: Workspace, steps: Steps) -> Outcome:
        from evergraph.learning.training import steps_a_task
        from evergraph.names import rebuilt

        _limit(memory_limit)
        settings = workspace.settings()
        total = steps_a_task(settings["steps"], rebuilt(settings["detector"], "detector"))
        return workspace.update(restart, on_step=steps(total))

    _change(ws, "update", do, as_json, quiet, wait, device)


@app.command(short_help="Restore an earlier version.", epilog="Example: evergraph ws rollback ws 12")
def rollback(
    ws: Folder,
    version: Annotated[
        str, typer.Argument(metavar="VERSION", help="Number or tag of a version that is kept: see ws log.")
    ],
    model_only: Annotated[bool, typer.Option("--model-only", help="Restore only the model with its detector.")] = False,
    wait: Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Restore graph, labels, settings and model of an earlier version.

    This makes a new version, so you can undo it. Decisions, scores, tags and the log are kept, and the number of
    versions to keep stays as it is.
    """
    _change(ws, "rollback", lambda w, _: w.rollback(version, model_only=model_only), as_json, quiet, wait)


def _name(metavar: str, what: str) -> typer.models.ArgumentInfo:
    return typer.Argument(metavar=metavar, help=what)


@classes.command(
    short_help="Create a class from vertices.",
    epilog="Example: evergraph ws classes create ws 'Graph theory' --ids p7,p9",
)
def create(
    ws: Folder,
    name: Annotated[str, _name("NAME", "Name of the class.")],
    ids: Ids = None,
    vertices: VertexIds = None,
    group: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Number of a group in ws review; may be given several times."),
    ] = None,
    id: IdColumn = None,
    wait: Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Create a class and label vertices with it; or bring a retired class back.

    With --group, all vertices of a group get the label. The numbers of groups change with every command that changes
    the workspace: run ws review again before you name another group.
    """
    members = _one_of(vertices, ids)
    if group and (vertices is not None or ids is not None):
        other = "--ids" if vertices is None else "--vertices"
        raise InputError(f"--group and {other} are both given", fix="give only one of them")

    def do(workspace: Workspace, _: Steps) -> Outcome:
        return workspace.create_class(name, members, groups=group or (), columns=_columns(workspace, id=id))

    _change(ws, "classes create", do, as_json, quiet, wait)


@classes.command(short_help="Rename a class.", epilog="Example: evergraph ws classes rename ws KDD SIGKDD")
def rename(
    ws: Folder,
    old: Annotated[str, _name("OLD", "Current name.")],
    new: Annotated[str, _name("NEW", "New name.")],
    wait: Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Rename a class, also in the model and in earlier decisions."""
    _change(ws, "classes rename", lambda w, _: w.rename_class(old, new), as_json, quiet, wait)


@classes.command(
    short_help="Merge classes.", epilog="Example: evergraph ws classes merge ws KDD PKDD --into 'Data mining'"
)
def merge(
    ws: Folder,
    names: Annotated[list[str], _name("NAME", "Names of the classes.")],
    into: Annotated[str, typer.Option(metavar="NAME", help="Name of the merged class, new or existing.")],
    wait: Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Merge classes; predictions use the new name immediately, the next update trains it as one class."""
    _change(ws, "classes merge", lambda w, _: w.merge_classes(names, into), as_json, quiet, wait)


@classes.command(short_help="Retire a class.", epilog="Example: evergraph ws classes retire ws KDD")
def retire(
    ws: Folder,
    name: Annotated[str, _name("NAME", "Name of the class.")],
    wait: Wait = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Retire a class: do not predict it and do not train on its labels, which are kept.

    Bring it back with ws classes create.
    """
    _change(ws, "classes retire", lambda w, _: w.retire_class(name), as_json, quiet, wait)


# --- commands that only read -----------------------------------------------------------------------------------------


@app.command(short_help="Show flagged vertices and groups.", epilog="Example: evergraph ws review ws --out review.csv")
def review(
    ws: Folder,
    limit: Annotated[int | None, option("limit", "N", _LIMIT, min=1)] = None,
    group: Annotated[int | None, typer.Option(metavar="N", help="Show only the vertices of this group.")] = None,
    why: Annotated[bool, typer.Option("--why", help=_WHY)] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the vertices to this .csv file, with an empty column for labels."),
    ] = None,
    replace: ReplaceFile = False,
    raw_cells: RawCells = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show unlabelled vertices that were flagged as unseen: first in groups, then one by one, highest score first.

    A group may be a new class: create it with ws classes create --group. Its vertices are similar: they are joined by
    edges, or share rare words or rare neighbours (numeric features: close vectors instead of words).

    The probability of the nearest class holds if the class is known at all: it can be high for a flagged vertex.

    With --out, fill in the label column of the file and pass it to ws label.
    """
    from evergraph.cli import ws_output

    ws_output.check_out(out, replace=replace, parquet=False)
    if limit is None and out is None:
        limit = _MOST_SHOWN
    rows, groups, status, columns = _look(
        ws,
        quiet or as_json,
        lambda w: (w.review(limit, group=group, why=why), w.groups(), w.status(), w.state.settings.columns),
    )
    total = status.to_review if group is None else groups[group - 1].size
    label = columns.label or "label"
    if out is not None:
        ws_output.write_review(out, rows, columns.id, label, raw=raw_cells)
    if as_json:
        print_json(
            {
                "workspace": str(ws),
                "to_review": status.to_review,
                "groups": [one.as_dict() for one in groups if group in (None, one.number)],
                "alone": status.to_review - sum(one.size for one in groups),
                "vertices": [row.as_dict() for row in rows],
                "out": None if out is None else str(out),
            }
        )
    elif out is not None and not quiet:
        echo(f"{len(rows):,} of {counted(total, 'vertex', 'vertices')} written to {out}")
        if rows:
            echo_next(command_line("ws", "label", ws, "--labels", out), f"after you have filled in the column {label}")
    elif not quiet:
        ws_output.show_groups(console(), groups, status.to_review, only=group)
        ws_output.show_review(console(), rows, total, group=group, why=why)


@app.command(short_help="Show the status and what to do next.", epilog="Example: evergraph ws status ws")
def status(ws: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show the graph, the model, what is waiting, the scores of the last decisions, and what to do next."""
    found, last = _look(ws, quiet or as_json, lambda w: (w.status(), w.last_scores()))
    if as_json:
        scored = {"scores": None if last is None else last.as_dict()}
        print_json({"workspace": str(ws)} | found.as_dict() | scored | _next(ws, found))
    elif not quiet:
        from evergraph.cli import ws_output

        ws_output.show_status(console(), ws, found, last)
        echo_next(found.next_line(ws), found.next_why)


@app.command(short_help="Show the scores of each slice.", epilog="Example: evergraph ws scores ws")
def scores(ws: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show the scores of the decisions on each slice, for the labels that have arrived.

    The last decision before the label counts. A vertex is unseen if the model that predicted it did not know its class.
    """
    found = _look(ws, quiet or as_json, lambda w: w.scores())
    if as_json:
        print_json({"workspace": str(ws), "slices": [row.as_dict() for row in found]})
    elif not quiet:
        from evergraph.cli import ws_output

        ws_output.show_scores(console(), found)


@app.command(short_help="Compare all files with their checksums.", epilog="Example: evergraph ws verify ws")
def verify(ws: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Read everything in the workspace and compare it with its checksums."""
    found = _look(ws, quiet or as_json, lambda w: w.verify())
    if as_json:
        print_json({"workspace": str(ws)} | found)
    elif not quiet:
        echo(f"No damage: {found['rows']:,} rows, {found['objects']:,} objects, {found['bytes']:,} bytes")


@app.command(short_help="Show the commands so far and the versions kept.", epilog="Example: evergraph ws log ws")
def log(ws: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show all commands that changed the workspace, and which versions you can restore."""
    entries, kept = _look(ws, quiet or as_json, lambda w: (w.log(), w.store.numbers))
    if as_json:
        print_json({"workspace": str(ws), "kept": kept, "log": [asdict(entry) for entry in entries]})
    elif not quiet:
        from evergraph.cli import ws_output

        ws_output.show_log(console(), entries, kept, command_line("ws", "rollback", ws, "VERSION"))


@classes.command("list", short_help="List all classes.", epilog="Example: evergraph ws classes list ws")
def list_classes(ws: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """List all classes with the periods of their first and last vertex and the number of vertices."""
    found = _look(ws, quiet or as_json, lambda w: w.classes())
    if as_json:
        print_json({"workspace": str(ws), "classes": [row.as_dict() for row in found]})
    elif not quiet:
        from evergraph.cli import ws_output

        ws_output.show_classes(console(), found)
