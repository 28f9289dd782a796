"""What the commands of a workspace share: options, progress, how they end, and the files they write."""

from __future__ import annotations

import csv
import io
import shlex
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from evergraph.cli.common import FEATURES_HELP, console, names_in, option, print_json, progress, set_up_logging
from evergraph.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from evergraph.datasets.tables import Columns
    from evergraph.learning.training import OnStep
    from evergraph.workspace import Outcome, Workspace

    Steps = Callable[[int], OnStep]
    """Takes the number of steps; returns what to call after each."""

_Found = TypeVar("_Found")
_CSV, _PARQUET = ".csv", ".parquet"
_AS_AT_INIT = "or as at init."

Folder = Annotated[Path, typer.Argument(metavar="WS", help="The folder of the workspace.")]
Vertices = Annotated[Path | None, option("vertices", "FILE", "Vertices: .csv, .tsv (also .gz) or .parquet.")]
Edges = Annotated[Path | None, option("edges", "FILE", "Edges: .csv, .tsv (also .gz) or .parquet.")]
VertexIds = Annotated[Path | None, option("vertices", "FILE", "A table with a column of the vertices' ids.")]
Ids = Annotated[str | None, option("ids", "IDS", "Ids of vertices, separated by commas.")]
_WAIT = "Wait so long for another process that is writing. Default: not at all."
Wait = Annotated[float, option("wait", "SECONDS", _WAIT, min=0)]
ReplaceFile = Annotated[bool, option("replace", None, "Write over the file that is there.")]
NoLabel = Annotated[bool, option("no-label", None, "Read no labels.")]
_LABEL = f"The class; empty is no label. Default: label, {_AS_AT_INIT}"
_TEXT = f"Vertices: the text; '' for none. Default: text, if there is one, {_AS_AT_INIT}"
_EDGE_TIME = f"Edges: their own time; '' for none. Default: time, if there is one, {_AS_AT_INIT}"
IdColumn = Annotated[str | None, option("id", "COLUMN", f"The id. Default: id, {_AS_AT_INIT}")]
TimeColumn = Annotated[str | None, option("time", "COLUMN", f"Vertices: the time. Default: time, {_AS_AT_INIT}")]
LabelColumn = Annotated[str | None, option("label", "COLUMN", _LABEL)]
TextColumn = Annotated[str | None, option("text", "COLUMN", _TEXT)]
Features = Annotated[str | None, option("features", "COLUMNS", f"{FEATURES_HELP} Default: none, {_AS_AT_INIT}")]
SourceColumn = Annotated[str | None, option("source", "COLUMN", f"Edges: the one end. Default: source, {_AS_AT_INIT}")]
TargetColumn = Annotated[
    str | None, option("target", "COLUMN", f"Edges: the other end. Default: target, {_AS_AT_INIT}")
]
EdgeTimeColumn = Annotated[str | None, option("edge-time", "COLUMN", _EDGE_TIME)]


def named(
    workspace: Workspace, features: str | None = None, no_label: bool = False, **given: str | None
) -> Columns | None:
    """Return the workspace's columns with the names that options gave; None where none did."""
    changed: dict[str, Any] = {field: name for field, name in given.items() if name is not None}
    if features is not None:
        changed["features"] = names_in(features)
    if no_label:
        changed["label"] = ""
    return replace(workspace.state.settings.columns, **changed) if changed else None


def one_of(vertices: Path | None, ids: str | None) -> Path | list[str]:
    """Return the vertices that are meant: a file with their ids, or the ids.

    Examples
    --------
    >>> one_of(None, "p1, p2,")
    ['p1', 'p2']
    """
    if vertices is not None and ids is not None:
        raise InputError("--vertices and --ids were given", fix="leave one of them out: both say which vertices")
    return list(names_in(ids)) if vertices is None else vertices


# --- running a command -----------------------------------------------------------------------------------------------


def change(
    folder: Path,
    command: str,
    do: Callable[[Workspace, Steps], Outcome],
    as_json: bool,
    quiet: bool,
    wait: float = 0,
) -> None:
    """Run a command that makes a new version, and print what it did and what to do next."""
    set_up_logging(quiet)
    with interruptible(folder):
        with training_steps(command, quiet or as_json) as steps:
            from evergraph.workspace import Workspace

            workspace = Workspace(folder, wait=wait)
            outcome = do(workspace, steps)
            following = next_of(workspace, folder)
        if as_json:
            done = {"workspace": str(folder), "version": outcome.version, "what": outcome.what}
            print_json(done | outcome.facts | {"next": following})
        elif not quiet:
            tell(command, outcome.version, outcome.parts, following)


def look(folder: Path, quiet: bool, at: Callable[[Workspace], _Found]) -> _Found:
    """Return something about a workspace, which stays as it is."""
    set_up_logging(quiet)
    with interruptible(folder), progress("reading", quiet):
        from evergraph.workspace import Workspace

        return at(Workspace(folder))


@contextmanager
def interruptible(folder: Path) -> Iterator[None]:
    """On Ctrl-C say what became of the workspace, and leave with exit code 130."""
    before = _version(folder)
    try:
        yield
    except KeyboardInterrupt:
        same = _version(folder) == before
        told = "; nothing was changed" if same else f", but it was done: see {typed('log', folder)}"
        typer.echo(f"Interrupted{told}.", err=True)
        raise typer.Exit(130) from None


def _version(folder: Path) -> int | None:
    """Return the number of the version in force; None where there is none that can be read."""
    from evergraph.workspace.store import DATABASE, Store

    try:
        return Store(folder).head if (folder / DATABASE).exists() else None
    except (InputError, OSError):
        return None


@contextmanager
def training_steps(command: str, quiet: bool) -> Iterator[Steps]:
    """Show on a terminal that a command is at work and, in training, how far it is."""
    with progress(f"ws {command}", quiet) as show:

        def steps(total: int) -> OnStep:
            def on_step(step: int, _loss: float) -> None:
                if show is not None:
                    show(description=f"ws {command}, step {step}/{total}", completed=step, total=total)

            return on_step

        yield steps


def typed(command: str, folder: Path) -> str:
    """Return a command as one types it.

    Examples
    --------
    >>> typed("log", Path("my papers"))
    "evergraph ws log 'my papers'"
    """
    return f"evergraph ws {command} {shlex.quote(str(folder))}"


def next_of(workspace: Workspace, folder: Path) -> str:
    """Return what to do next, as one types it, and why."""
    status = workspace.status()
    command = typed(status.next_command, folder)
    return f"{command}, {status.next_why}" if status.next_command == "add" else f"{command} ({status.next_why})"


def tell(command: str, version: int, parts: Iterable[str], following: str) -> None:
    """Print what a command did, a line for each part of it, and what to do next."""
    width = console().width
    for line in (f"Version {version} ({command})", *(f"- {part}" for part in parts), f"Next: {following}"):
        indent = "  " if line.startswith("- ") else ""
        typer.echo(textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


# --- files -----------------------------------------------------------------------------------------------------------


def check_out(out: Path | None, *, replace: bool, parquet: bool = True) -> None:
    """Refuse a file that could not be written, before anything is done."""
    if out is None:
        return
    suffixes = [_CSV, _PARQUET] if parquet else [_CSV]
    if out.suffix.lower() not in suffixes:
        raise InputError("the name does not tell the format", file=out, fix=f"let it end in {' or '.join(suffixes)}")
    if out.is_dir():
        raise InputError("this is a folder, not a file", file=out, fix="name a file in it")
    if not out.parent.is_dir():
        raise InputError("there is no such folder", file=out.parent, fix="make it, or choose another")
    if out.exists() and not replace:
        raise InputError("there is a file already", file=out, fix="choose another name, or give --replace")


def write_table(out: Path, table: pa.Table) -> None:
    """Write a table, in the format that the file's name tells, at once or not at all."""
    if out.suffix.lower() == _CSV:
        write_csv(out, table.column_names, zip(*(column.to_pylist() for column in table.columns), strict=True))
        return
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    _write(out, buffer.getvalue())


def write_csv(out: Path, names: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write rows under their names, at once or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    _write(out, text.getvalue().encode())


def _write(out: Path, data: bytes) -> None:
    from evergraph.storage.files import write_atomic

    try:
        write_atomic(out, data)
    except BaseException:
        out.with_name(f"{out.name}.new").unlink(missing_ok=True)
        raise
