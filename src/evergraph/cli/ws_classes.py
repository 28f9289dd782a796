"""``evergraph ws classes``: list, create, rename, merge and retire classes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evergraph.cli.common import Json, Quiet, console
from evergraph.cli.ws_common import Folder, IdColumn, Ids, change, named, one_of
from evergraph.cli.ws_look import look
from evergraph.errors import InputError

app = typer.Typer(
    help="List, create, rename, merge and retire classes.",
    epilog="Example: evergraph ws classes list ws",
    rich_markup_mode=None,
    no_args_is_help=True,
)


def _name(metavar: str, what: str) -> typer.models.ArgumentInfo:
    return typer.Argument(metavar=metavar, help=what)


@app.command("list", short_help="All classes.", epilog="Example: evergraph ws classes list ws")
def list_(ws: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show all classes: when they were first and last seen, and of how many vertices."""
    found = look(ws, quiet or as_json, lambda workspace: workspace.classes())
    if as_json:
        from evergraph.cli.common import print_json

        print_json({"workspace": str(ws), "classes": [row.as_dict() for row in found]})
    elif not quiet:
        from evergraph.cli.ws_show import show_classes

        show_classes(console(), found)


@app.command(
    short_help="A new class from reviewed vertices.",
    epilog="Example: evergraph ws classes create ws 'Graph theory' --ids p7,p9",
)
def create(
    ws: Folder,
    name: Annotated[str, _name("NAME", "Its name.")],
    ids: Ids = None,
    vertices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A table with a column of the vertices' ids.")
    ] = None,
    group: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="A group of ws review, all its vertices; may be given several times."),
    ] = None,
    id: IdColumn = None,
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
        lambda workspace, _: workspace.create_class(
            name, members, groups=group or (), columns=named(workspace.state.settings.columns, id=id)
        ),
        as_json,
        quiet,
    )


@app.command(short_help="Give a class another name.", epilog="Example: evergraph ws classes rename ws KDD SIGKDD")
def rename(
    ws: Folder,
    old: Annotated[str, _name("OLD", "What it is called.")],
    new: Annotated[str, _name("NEW", "What it will be called.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Give a class another name: in the labels, in the model and in what is said of earlier decisions."""
    change(ws, "classes rename", lambda workspace, _: workspace.rename_class(old, new), as_json, quiet)


@app.command(
    short_help="Make several classes one.",
    epilog="Example: evergraph ws classes merge ws KDD PKDD --into 'Data mining'",
)
def merge(
    ws: Folder,
    names: Annotated[list[str], _name("NAME", "Which classes.")],
    into: Annotated[str, typer.Option(metavar="NAME", help="What they become: one of them, another one or a new one.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make several classes one; the model says its name at once, and learns it as one with the next update."""
    change(ws, "classes merge", lambda workspace, _: workspace.merge_classes(names, into), as_json, quiet)


@app.command(short_help="Decide for a class no more.", epilog="Example: evergraph ws classes retire ws KDD")
def retire(
    ws: Folder,
    name: Annotated[str, _name("NAME", "Which class.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Decide for a class no more, nor learn from its labels, which stay; ws classes create brings it back."""
    change(ws, "classes retire", lambda workspace, _: workspace.retire_class(name), as_json, quiet)
