"""``evergraph ws status``, ``review``, ``scores``, ``log`` and ``classes list``: what a workspace shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evergraph.cli.common import Json, Quiet, console, print_json
from evergraph.cli.ws_common import Folder, ReplaceFile, check_out, look, next_of, typed, write_csv

if TYPE_CHECKING:
    from evergraph.workspace.decisions import ReviewRow

_MOST_SHOWN = 20


def status(ws: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show where a workspace stands: graph, model, what waits, how the last decisions did, and what to do next."""
    found, last, following = look(
        ws,
        quiet or as_json,
        lambda workspace: (workspace.status(), workspace.last_scores(), next_of(workspace, ws)),
    )
    if as_json:
        known = {"scores": None if last is None else last.as_dict(), "next": following}
        print_json({"workspace": str(ws)} | found.as_dict() | known)
    elif not quiet:
        from evergraph.cli import ws_show as tables

        tables.show_status(console(), ws, found, last, following)


def review(
    ws: Folder,
    most: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many vertices. Default: 20, with --out all.")
    ] = None,
    group: Annotated[int | None, typer.Option(metavar="N", help="Only the vertices of this group.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write them there, as .csv with an empty column for labels."),
    ] = None,
    replace: ReplaceFile = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the vertices that were held to be of an unseen class, most unseen first, with their words and neighbours.

    Before them stand the groups that they make: vertices that belong together by edges, words and neighbours, and may
    be a new class, which ws classes create makes of them.

    The file of --out has a column for labels: fill it in, and give it to ws label.
    """
    check_out(out, replace=replace, parquet=False)
    if most is None and out is None:
        most = _MOST_SHOWN
    rows, groups, status, columns = look(
        ws,
        quiet or as_json,
        lambda workspace: (
            workspace.review(most, group=group),
            workspace.groups(),
            workspace.status(),
            workspace.state.settings.columns,
        ),
    )
    there = status.to_review if group is None else groups[group - 1].size
    if out is not None:
        # Under the names that ws label looks for; where another column has one of them, that one steps aside.
        taken = (columns.id, columns.label or "label")
        heads = ("time", "score", "best", "probability", "words", "neighbours", "model", "group")
        others = [f"{name}_" if name in taken else name for name in heads]
        write_csv(out, [taken[0], *others, taken[1]], map(_cells, rows))
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
    elif not quiet:
        from evergraph.cli import ws_show as tables
        from evergraph.workspace.change import counted

        if out is None:
            tables.show_groups(console(), groups, status.to_review, only=group)
            tables.show_review(console(), rows, there, group=group)
        else:
            typer.echo(f"{len(rows):,} of {counted(there, 'vertex', 'vertices')} written to {out}")
            typer.echo(f"Next: fill in its column {taken[1]}, then {typed('label', ws)} --labels {out}")


def _cells(row: ReviewRow) -> list[object]:
    from evergraph.analysis.explain import in_words

    words, neighbours = ", ".join(row.words), in_words(row.neighbours)
    return [row.id, row.time, row.score, row.best, row.probability, words, neighbours, row.model, row.group, ""]


def scores(ws: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show how the decisions on each slice did, as far as labels have come.

    Of each vertex the last decision before its label counts. It is unseen if its class was unknown to the model that
    decided.
    """
    found = look(ws, quiet or as_json, lambda workspace: workspace.scores())
    if as_json:
        print_json({"workspace": str(ws), "slices": [row.as_dict() for row in found]})
    elif not quiet:
        from evergraph.cli import ws_show as tables

        tables.show_scores(console(), found)


def log(ws: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show all commands that changed something, and which versions can be returned to."""
    entries, kept = look(ws, quiet or as_json, lambda workspace: (workspace.log(), workspace.store.numbers))
    if as_json:
        from dataclasses import asdict

        print_json({"workspace": str(ws), "kept": kept, "log": [asdict(entry) for entry in entries]})
    elif not quiet:
        from evergraph.cli import ws_show as tables

        tables.show_log(console(), entries, kept, ws)


def verify(ws: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Read everything that a workspace keeps and compare it with its checksums."""
    found = look(ws, quiet or as_json, lambda workspace: workspace.verify())
    if as_json:
        print_json({"workspace": str(ws)} | found)
    elif not quiet:
        typer.echo(
            f"All is as it was saved: {found['rows']:,} rows, {found['objects']:,} objects, {found['bytes']:,} bytes"
        )


def list_classes(ws: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show all classes: when they were first and last seen, and of how many vertices."""
    found = look(ws, quiet or as_json, lambda workspace: workspace.classes())
    if as_json:
        print_json({"workspace": str(ws), "classes": [row.as_dict() for row in found]})
    elif not quiet:
        from evergraph.cli import ws_show as tables

        tables.show_classes(console(), found)
