"""``evergraph report``: one page that tells what came of a run or a workspace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evergraph.cli.common import Json, Quiet, print_json, progress, set_up_logging
from evergraph.errors import InputError

if TYPE_CHECKING:
    from evergraph.report.story import Story

EXAMPLE = "Example: evergraph report runs/metamath --out report.html"


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN|WS", help="The folder of a run, or a workspace.")],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The page to write, as .html; one that is there is replaced.")
    ] = Path("report.html"),
    against: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="A run of the same tasks with --restart cold, for the forward transfer."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tell a run or a workspace on one page: how right it was, what was unseen, and what to look at.

    The page is a single HTML file that needs no network; it is light or dark, and reads well on a phone.
    """
    set_up_logging(quiet)
    if out.is_dir():
        raise InputError("this is a folder, not a file", file=out, fix="name the page to write, as report.html")
    if out.suffix.lower() not in (".html", ".htm"):
        # A page of that name is written over; a file of another kind must not be.
        raise InputError("a report is a page of HTML", file=out, fix="let its name end in .html or .htm")
    with progress("reading and drawing", quiet or as_json):
        story = _story(folder, against)
        from evergraph.report.page import page_of, write_page

        size = write_page(page_of(story), out)
    if as_json:
        print_json({"out": str(out), "bytes": size})
    elif not quiet:
        typer.echo(f"{out} ({size / 1e6:.1f} MB)")


def _story(folder: Path, against: Path | None) -> Story:
    """The story of whatever the folder holds."""
    from evergraph.workspace.store import is_workspace

    if not is_workspace(folder):
        from evergraph.report.run import story_of_run

        return story_of_run(folder, against)
    if against is not None:
        raise InputError("a workspace has no run to compare with", fix="leave --against out")
    from evergraph.report.workspace import story_of_workspace

    return story_of_workspace(folder)
