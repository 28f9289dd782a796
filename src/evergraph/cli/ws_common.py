"""What the commands of a workspace share: their options, how they wait, how they end, and how they are interrupted."""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evergraph.cli.common import console, print_json, set_up_logging
from evergraph.cli.options import column
from evergraph.errors import InputError

if TYPE_CHECKING:
    from evergraph.datasets.tables import Columns
    from evergraph.learning.training import OnStep
    from evergraph.workspace import Outcome, Workspace

    Steps = Callable[[int], OnStep]
    """Takes how many steps there will be; gives what is to be called after each."""


Folder = Annotated[Path, typer.Argument(metavar="WS", help="The folder of the workspace.")]
Vertices = Annotated[
    Path | None, typer.Option("--vertices", metavar="FILE", help="Vertices: .csv, .tsv (also .gz) or .parquet.")
]
Edges = Annotated[
    Path | None, typer.Option("--edges", metavar="FILE", help="Edges: .csv, .tsv (also .gz) or .parquet.")
]
Ids = Annotated[str | None, typer.Option("--ids", metavar="IDS", help="Ids of vertices, separated by commas.")]
IdColumn = Annotated[str | None, column("id", "The id. Default: id, or as at init.")]
TimeColumn = Annotated[str | None, column("time", "Vertices: the time. Default: time, or as at init.")]
LabelColumn = Annotated[str | None, column("label", "The class; empty is no label. Default: label, or as at init.")]
NoLabel = Annotated[bool, typer.Option("--no-label", help="Read no labels.")]
TextColumn = Annotated[
    str | None, column("text", "Vertices: the text; '' for none. Default: text, if there is one, or as at init.")
]
Features = Annotated[
    str | None,
    typer.Option(
        "--features",
        metavar="COLUMNS",
        help="Vertices: numbers instead of text; names or patterns, as 'x,emb_*'. Default: none, or as at init.",
    ),
]
SourceColumn = Annotated[str | None, column("source", "Edges: the one end. Default: source, or as at init.")]
TargetColumn = Annotated[str | None, column("target", "Edges: the other end. Default: target, or as at init.")]
EdgeTimeColumn = Annotated[
    str | None,
    column("edge-time", "Edges: their own time; '' for none. Default: time, if there is one, or as at init."),
]
ReplaceFile = Annotated[bool, typer.Option("--replace", help="Write over the file that is there.")]


def named(base: Columns, features: str | None = None, no_label: bool = False, **given: str | None) -> Columns | None:
    """Columns with the names that options gave; None where none did."""
    from dataclasses import replace

    changed: dict[str, Any] = {field: name for field, name in given.items() if name is not None}
    if features is not None:
        changed["features"] = tuple(name.strip() for name in features.split(",") if name.strip())
    if no_label:
        changed["label"] = ""
    return replace(base, **changed) if changed else None


def ids_of(text: str | None) -> list[str]:
    """The ids that ``--ids`` names.

    Examples
    --------
    >>> ids_of("p1, p2,")
    ['p1', 'p2']
    """
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def one_of(vertices: Path | None, ids: str | None) -> Path | list[str]:
    """The vertices that are meant: a file with their ids, or the ids."""
    if vertices is not None and ids is not None:
        raise InputError("--vertices and --ids were given", fix="leave one of them out: both say which vertices")
    return ids_of(ids) if vertices is None else vertices


@contextmanager
def interruptible(folder: Path) -> Iterator[None]:
    """On Ctrl-C say what became of the workspace, and leave with exit code 130."""
    before = _manifest(folder)
    try:
        yield
    except KeyboardInterrupt:
        told = (
            "; nothing was changed" if _manifest(folder) == before else f", but it was done: see {typed('log', folder)}"
        )
        typer.echo(f"Interrupted{told}.", err=True)
        raise typer.Exit(130) from None


def _manifest(folder: Path) -> bytes | None:
    """The file whose replacement makes a new version."""
    try:
        return (folder / "workspace.json").read_bytes()
    except OSError:
        return None


def typed(command: str, folder: Path) -> str:
    """A command as one types it.

    Examples
    --------
    >>> typed("log", Path("my papers"))
    "evergraph ws log 'my papers'"
    """
    return f"evergraph ws {command} {shlex.quote(str(folder))}"


def change(folder: Path, command: str, do: Callable[[Workspace, Steps], Outcome], as_json: bool, quiet: bool) -> None:
    """Do something that makes a new version, and say what came of it and what to do next.

    Parameters
    ----------
    folder
        The workspace.
    command
        Its name.
    do
        What to do.
    as_json, quiet
        How to speak.
    """
    set_up_logging(quiet)
    with interruptible(folder):
        with progress(command, quiet or as_json) as steps:
            from evergraph.workspace import Workspace

            workspace = Workspace(folder)
            outcome = do(workspace, steps)
            following = next_of(workspace, folder)
        if as_json:
            done = {"workspace": str(folder), "version": outcome.version, "what": outcome.what}
            print_json(done | outcome.facts | {"next": following})
        elif not quiet:
            tell(command, outcome.version, outcome.parts, following)


def next_of(workspace: Workspace, folder: Path) -> str:
    """What to do next, as one types it, and why."""
    status = workspace.status()
    command = typed(status.next_command, folder)
    return f"{command}, {status.next_why}" if status.next_command == "add" else f"{command} ({status.next_why})"


def tell(command: str, version: int, parts: Iterable[str], following: str) -> None:
    """Print what a command did, a line for each part of it, and what to do next."""
    width = console().width
    lines = [
        f"Version {version} ({command})",
        *(f"- {part}" for part in parts),
        f"Next: {following}",
    ]
    for line in lines:
        indent = "  " if line.startswith("- ") else ""
        typer.echo(textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


@contextmanager
def progress(command: str, quiet: bool) -> Iterator[Steps]:
    """Show on a terminal that something is being done, for how long already and, in training, how far it is."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: lambda _step, _loss: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task(f"ws {command}", total=None)

        def steps(total: int) -> OnStep:
            def on_step(step: int, _loss: float) -> None:
                shown.update(bar, description=f"ws {command}, step {step}/{total}", completed=step, total=total)

            return on_step

        yield steps
