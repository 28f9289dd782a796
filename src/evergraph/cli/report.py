"""``evergraph report``: a run or a workspace as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evergraph.cli.common import Json, Quiet, echo, print_json, progress, set_up_logging
from evergraph.errors import InputError

if TYPE_CHECKING:
    from evergraph.report.content import ReportContent

EXAMPLE = "Example: evergraph report runs/metamath --out report.html"


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN|WS", help="Folder of a run, or a workspace.")],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="HTML file to write. An existing file is overwritten.")
    ] = Path("report.html"),
    against: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Run of the same tasks with --restart cold, for the forward transfer."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a report on a run or a workspace: accuracy, unseen classes, drift, and vertices to review.

    The report is a single HTML file that needs no network, with a light and a dark theme.
    """
    set_up_logging(quiet)
    if out.is_dir():
        raise InputError("this is a folder, not a file", file=out, fix="give the file to write, such as report.html")
    if out.suffix.lower() not in (".html", ".htm"):
        # An existing page is replaced; a file of another kind must not be.
        raise InputError("a report is an HTML file", file=out, fix="give a name that ends in .html or .htm")
    with progress("writing the report", quiet or as_json):
        content = _content(folder, against)
        from evergraph.report.page import page_of, write_page

        size = write_page(page_of(content), out)
    if as_json:
        print_json({"out": str(out), "bytes": size})
    elif not quiet:
        echo(f"Written to {out} ({size / 1e6:.1f} MB)")


def _content(folder: Path, against: Path | None) -> ReportContent:
    from evergraph.workspace.store import is_workspace

    if not is_workspace(folder):
        from evergraph.report.run import run_content

        if (folder / "manifest.json").exists():
            fix = "give a folder that 'evergraph run GRAPH --out RUN' or 'evergraph ws init WS' wrote"
            raise InputError("this is a graph, neither a run nor a workspace", file=folder, fix=fix)

        return run_content(folder, against)
    if against is not None:
        raise InputError("--against compares two runs, but this is a workspace", fix="leave out --against")
    from evergraph.report.workspace import workspace_content

    return workspace_content(folder)
