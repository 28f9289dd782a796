"""``evergraph inspect``: a graph's profile, time differences, history sizes and drift."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evergraph.cli.common import GraphArgument, Json, Quiet, console, print_json, set_up_logging, working
from evergraph.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from evergraph.analysis import Drift, Profile, TimeDifferences
    from evergraph.graph.evolving import EvolvingGraph


_MOST_TASKS = 40

EXAMPLE = "Example: evergraph inspect metamath --figures figures"


def inspect(
    graph: GraphArgument,
    k: Annotated[
        int, typer.Option("-k", min=1, metavar="N", help="Hops of the neighbourhood whose time differences count.")
    ] = 2,
    sample: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Estimate the time differences from N vertices (very large graphs)."),
    ] = None,
    figures: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Draw figures there (PNG and SVG).")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check every byte of the folder against its hash.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show a graph's profile, its time differences with the history sizes they suggest, and its drift."""
    from evergraph.analysis import drift, profile, tdiff
    from evergraph.datasets import load
    from evergraph.graph.disk import verify as verify_folder

    set_up_logging(quiet)
    silent = quiet or as_json
    if figures is not None and figures.exists() and not figures.is_dir():
        raise InputError("this is a file, not a folder", file=figures, fix="choose another folder")
    if verify and Path(graph).is_dir():
        with working("checking every byte", silent):
            verify_folder(Path(graph))
    opened = load(graph)
    found, moved = profile(opened), drift(opened)
    differences = None
    if opened.n_edges:
        with working(f"time differences over {k} hops", silent):
            differences = tdiff(opened, k, sample=sample)
    drawn: list[Path] = []
    if figures is not None:
        from evergraph.analysis.figures import draw

        with working("drawing", silent):
            drawn = draw({Path(graph).name: opened}, figures, command=f"evergraph inspect {graph}", sample=sample)
    if as_json:
        print_json(
            as_object(opened, found, differences, moved)
            | {"verified": verify and Path(graph).is_dir(), "figures": [str(p) for p in drawn]}
        )
    elif not quiet:
        show(console(), graph, opened, found, differences, moved)
        if verify:
            typer.echo("Every byte is as it was saved." if Path(graph).is_dir() else "Nothing to verify: no folder.")
        for path in drawn:
            typer.echo(f"Figure: {path}")


def as_object(
    graph: EvolvingGraph, found: Profile, differences: TimeDifferences | None, moved: Drift
) -> dict[str, Any]:
    """All that `inspect` knows, for machines."""
    value = graph.axis.value
    return {
        "vertices": found.vertices,
        "edges": found.edges,
        "classes": found.classes,
        "features": found.features,
        "label_rate": found.label_rate,
        "first_time": value(found.first_time),
        "last_time": value(found.last_time),
        "time_unit": graph.axis.unit,
        "time_step": graph.axis.step,
        "first_task": None if found.first_task is None else value(found.first_task),
        "test_vertices": found.test_vertices,
        "new_classes": len(found.new_classes),
        "new_class_names": list(found.new_classes),
        "unseen_vertices": found.unseen_vertices,
        "homophily": found.homophily,
        "mean_degree": found.mean_degree,
        "isolated": found.isolated,
        "power_law": found.power_law,
        **_differences(differences),
        "per_time": [
            {"time": value(time), "vertices": vertices, "classes": classes, "unseen_vertices": unseen}
            for time, vertices, classes, unseen in zip(
                found.times.tolist(),
                found.vertices_at.tolist(),
                found.classes_at.tolist(),
                found.unseen_at.tolist(),
                strict=True,
            )
        ],
        "drift": [
            {"time": value(time), "consecutive": _number(step), "cumulative": _number(total)}
            for time, step, total in zip(
                moved.times.tolist(), moved.consecutive.tolist(), moved.cumulative.tolist(), strict=True
            )
        ],
        "about": dict(graph.about),
    }


def _differences(differences: TimeDifferences | None) -> dict[str, Any]:
    if differences is None or not differences.pairs:
        return {"k": None, "pairs": 0, "percentiles": None, "history": None, "error": None}
    history = differences.history_sizes()
    return {
        "k": differences.k,
        "pairs": differences.pairs,
        "percentiles": {str(level): differences.percentile(level) for level in history},
        "history": {str(level): size for level, size in history.items()},
        "error": differences.error,
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def show(
    to: Console,
    name: str,
    graph: EvolvingGraph,
    found: Profile,
    differences: TimeDifferences | None,
    moved: Drift,
) -> None:
    """All that `inspect` knows, for people."""
    from rich.table import Table
    from rich.text import Text

    from evergraph.analysis.profile import FIRST_TASK_SHARE

    label = graph.axis.label
    facts = Table(title=Text(name), title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    facts.add_row("vertices", f"{found.vertices:,}, {found.label_rate:.1%} of them labelled")
    facts.add_row(
        "edges", f"{found.edges:,}; {found.mean_degree:.1f} a vertex, {found.isolated:,} vertices without any"
    )
    if found.homophily is not None:
        facts.add_row("homophily", f"{found.homophily:.3f} of the edges join two vertices of one class")
    facts.add_row("classes", f"{found.classes:,}")
    facts.add_row("features", found.features)
    steps = "" if graph.axis.steps == "steps" else f", in {graph.axis.steps}"
    facts.add_row("time", f"{label(found.first_time)} to {label(found.last_time)}{steps}")
    if found.first_task is not None:
        share = found.unseen_vertices / max(found.test_vertices, 1)
        enough = found.test_vertices <= (1 - FIRST_TASK_SHARE) * found.vertices
        why = "for a quarter of the vertices are older" if enough else "the last time; fewer than a quarter are older"
        facts.add_row("first task", f"{label(found.first_task)}, {why}")
        facts.add_row("", f"{found.test_vertices:,} vertices from then on, {len(found.new_classes)} new classes")
        facts.add_row("", f"{found.unseen_vertices:,} vertices ({share:.1%}) of a class never seen before")
    to.print(facts)
    to.print()
    _show_differences(to, differences)
    _show_tasks(to, graph, found, moved)


def _show_differences(to: Console, differences: TimeDifferences | None) -> None:
    from rich.table import Table

    try:
        history = differences.history_sizes() if differences is not None else {}
    except InputError:
        history = {}
    if differences is None or not history:
        to.print("No time differences: no vertex has a neighbour. Choose a history size yourself.\n")
        return
    hops = f"{differences.k} hop{'s' if differences.k > 1 else ''}"
    title = f"Time differences over {hops}: {differences.pairs:,} pairs"
    if differences.error is not None:
        title += f" (estimated from {differences.sources:,} vertices; shares are right within {differences.error:.1%})"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("share of pairs covered")
    table.add_column("time difference", justify="right")
    table.add_column("history size", justify="right")
    for level, size in history.items():
        table.add_row(f"{level} %", f"{differences.percentile(level):g}", str(size))
    to.print(table)
    to.print()


def _show_tasks(to: Console, graph: EvolvingGraph, found: Profile, moved: Drift) -> None:
    from rich.table import Table

    if found.first_task is None:
        return
    drift_at = dict(zip(moved.times.tolist(), zip(moved.consecutive, moved.cumulative, strict=True), strict=True))
    table = Table(title="Tasks", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for head in ("time", "vertices", "classes", "of unseen class", "drift", "drift to all before"):
        table.add_column(head, justify="right")
    tasks = [(row, time) for row, time in enumerate(found.times.tolist()) if time >= found.first_task]
    if len(tasks) > _MOST_TASKS:
        to.print(f"{len(tasks):,} tasks, of which the last {_MOST_TASKS} are shown (--json has all)")
    for row, time in tasks[-_MOST_TASKS:]:
        step, total = drift_at.get(time, (math.nan, math.nan))
        counts = (found.vertices_at[row], found.classes_at[row], found.unseen_at[row])
        moves = ("-" if math.isnan(move) else f"{move:.2f}" for move in (step, total))
        table.add_row(graph.axis.label(time), *(f"{count:,}" for count in counts), *moves)
    to.print(table)
