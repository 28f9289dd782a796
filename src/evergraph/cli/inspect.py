"""``evergraph inspect``: describe a graph with its time differences, history sizes and drift."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evergraph.cli.common import (
    GraphArgument,
    Json,
    Quiet,
    console,
    echo,
    echo_next,
    print_json,
    progress,
    refuse_workspaces,
    set_up_logging,
)
from evergraph.errors import InputError
from evergraph.presentation.text import command_line, counted, visible

if TYPE_CHECKING:
    from rich.console import Console

    from evergraph.analysis.description import DifferenceSummary, GraphDescription
    from evergraph.graph.evolving import EvolvingGraph

_MOST_TASKS = 40
_LARGE = 200_000  # from this many vertices on, figures estimate the time differences from a sample
_SAMPLE = 10_000
_VERTICES = ("vertex", "vertices")
_FEW = 1_000  # vertices per task below which a shorter history is not worth its loss
_AS_THEY_ARE = (
    *("vertices", "edges", "features", "label_rate", "time_unit", "time_step", "first_task", "test_vertices"),
    *("unseen_vertices", "homophily", "mean_degree", "isolated", "power_law"),
)

EXAMPLE = "Example: evergraph inspect metamath --figures figures"


def inspect(
    graph: GraphArgument,
    k: Annotated[
        int, typer.Option("-k", min=1, metavar="N", help="Hops of the neighbourhood for the time differences.")
    ] = 2,
    sample: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Estimate the time differences from N vertices (very large graphs)."),
    ] = None,
    figures: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder for figures (PNG and SVG).")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check every byte of the folder against its hash.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the size, classes, time differences, suggested history sizes and drift of a graph."""
    from evergraph.analysis import describe
    from evergraph.analysis.figures import HOPS, draw
    from evergraph.datasets import load
    from evergraph.graph.disk import verify as verify_folder

    set_up_logging(quiet)
    silent = quiet or as_json
    if figures is not None and figures.exists() and not figures.is_dir():
        raise InputError("this is a file, not a folder", file=figures, fix="choose another folder")
    refuse_workspaces(graph)
    is_folder = Path(graph).is_dir()
    if verify and is_folder:
        with progress("Checking every byte", silent):
            verify_folder(Path(graph))
    opened = load(graph)
    if sample is None and figures is not None and len(opened) >= _LARGE:
        sample = _SAMPLE
    hops = {k} if figures is None else {k, *HOPS}
    with progress(f"Counting time differences over {counted(k, 'hop')}", silent):
        found = describe(opened, Path(graph).name, hops=sorted(hops), past=True, sample=sample)
        advice = advise(graph, opened, found)
    drawn: list[Path] = []
    if figures is not None:
        with progress("Drawing", silent):
            drawn = draw([found], figures, f"$ {command_line('inspect', graph)}")
    if as_json:
        more = {"verified": verify and is_folder, "figures": [str(path) for path in drawn]}
        print_json(as_object(found, k) | asdict(advice) | more)
    elif not quiet:
        show(console(), graph, found, k, advice)
        if verify:
            echo(
                "Verified: every byte is as it was saved." if is_folder else "Nothing to verify: this is not a folder."
            )
        for path in drawn:
            echo(f"Figure: {path}")
        console().print(f"\n{advice.reason}", markup=False)
        if advice.command is not None:
            echo_next(advice.command)


@dataclass(frozen=True)
class Advice:
    """Which history to take, why, and the command to run next.

    ``past_history`` has the history sizes by the percentage of time differences before the first task that they cover;
    ``window_vertices`` the mean number of vertices per task with each of these sizes and with all periods (``"full"``).
    """

    past_history: dict[str, int] | None
    window_vertices: dict[str, int]
    auto_history: int | None
    reason: str
    command: str | None


def advise(name: str, graph: EvolvingGraph, found: GraphDescription) -> Advice:
    """Recommend a history for the tasks of a graph."""
    import numpy as np

    from evergraph.analysis import first_task
    from evergraph.evaluation.workers import name_of
    from evergraph.learning.task import AUTO_LEVEL, extend_to_labels

    first = first_task(graph)
    if first is None:
        return Advice(None, {}, None, "All vertices are of one period, so there is no task to run.", None)
    if not (graph.codes[graph.times < first] >= 0).any():
        why = (
            f"No vertex before the first task ({graph.axis.label(first)}) has a label, so there is nothing to train on."
        )
        return Advice(None, {}, None, why, None)
    times = np.unique(graph.times[graph.times >= first])
    last = np.searchsorted(graph.times, times, "right")

    def vertices(size: int) -> int:
        return round(float((last - np.searchsorted(graph.times, times - size)).mean()))

    whole = max(graph.last_time - graph.first_time, 1)
    sizes = found.past_differences.history_sizes if found.past_differences is not None else None
    auto = max(first - graph.first_time, 1) if sizes is None else extend_to_labels(graph, first, sizes[str(AUTO_LEVEL)])
    label = graph.axis.label(first)
    history, few = str(auto), vertices(auto) < _FEW and vertices(auto) < vertices(whole)
    if few:
        enough = (size for size in sorted((sizes or {}).values()) if size > auto and vertices(size) >= _FEW)
        history = str(next(enough, "full"))
        left = counted(vertices(auto), *_VERTICES)
        reason = f"Recommended history: {history}. --history auto takes {auto}, which leaves only {left} per task"
        is_full = history == "full"
        reason += " to train and predict." if is_full else f"; {history} is the smallest of these sizes with {_FEW:,}."
    elif sizes is None:
        reason = f"Recommended history: {auto}, all periods before the first task ({label}): it has no edges before it."
    else:
        why = "is as far back as the latest labels" if auto > sizes[str(AUTO_LEVEL)] else "covers half of the pairs"
        reason = f"Recommended history: {auto}, as --history auto takes. It {why} before the first task ({label})."
        if sizes["75"] > auto:
            reason += f" To see whether longer is better, run --history {sizes['75']} too and compare the accuracy."
    out = f"{name_of(name)}-run"
    stored = [] if Path(out).exists() else ["--out", out]
    command = command_line("run", Path(name), "--history", history, "--seeds", "0-2", *stored)
    window_vertices = {level: vertices(size) for level, size in (sizes or {}).items()} | {"full": vertices(whole)}
    return Advice(sizes, window_vertices, auto, reason, command)


def as_object(found: GraphDescription, k: int) -> dict[str, Any]:
    """Return the description as ``--json`` prints it."""
    differences = found.differences.get(str(k))
    per_time = zip(found.times, found.vertices_at, found.classes_at, found.unseen_at, strict=True)
    heads = ("time", "vertices", "classes", "unseen_vertices")
    return {
        **{name: getattr(found, name) for name in _AS_THEY_ARE},
        "classes": len(found.classes),
        "first_time": found.times[0],
        "last_time": found.times[-1],
        "new_classes": len(found.new_classes),
        "new_class_names": found.new_classes,
        "k": differences.hops if differences and differences.pairs else None,
        "pairs": differences.pairs if differences else 0,
        "percentiles": (differences.percentiles or None) if differences else None,
        "history": (differences.history_sizes or None) if differences else None,
        "error": differences.error if differences else None,
        "per_time": [dict(zip(heads, row, strict=True)) for row in per_time],
        "drift": [asdict(one) for one in found.drift],
        "about": found.about,
    }


def show(to: Console, name: str, found: GraphDescription, k: int, advice: Advice) -> None:
    """Print the description as tables."""
    from rich.table import Table
    from rich.text import Text

    from evergraph.analysis.description import FIRST_TASK_SHARE

    facts = Table(title=Text(visible(name)), title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    facts.add_row("vertices", f"{found.vertices:,}, {found.label_rate:.1%} of them labelled")
    degree = f"{found.mean_degree:.1f} per vertex, {counted(found.isolated, *_VERTICES)} without edges"
    facts.add_row("edges", f"{found.edges:,}; {degree}")
    if found.homophily is not None:
        facts.add_row("homophily", f"{found.homophily:.3f} of the edges join vertices of the same class")
    facts.add_row("classes", f"{len(found.classes):,}")
    facts.add_row("features", Text(visible(found.features)))
    steps = "" if found.time_steps == "periods" else f", in {found.time_steps}"
    facts.add_row("time", f"{found.times[0]} to {found.times[-1]}{steps}")
    if found.first_task is not None:
        share = found.unseen_vertices / max(found.test_vertices, 1)
        enough = found.test_vertices <= (1 - FIRST_TASK_SHARE) * found.vertices
        why = "a quarter of the vertices are older" if enough else "the last time; fewer than a quarter are older"
        facts.add_row("first task", f"{found.first_task}, {why}")
        new = counted(len(found.new_classes), "new class", "new classes")
        facts.add_row("", f"{counted(found.test_vertices, *_VERTICES)} from then on, {new}")
        facts.add_row("", f"{counted(found.unseen_vertices, *_VERTICES)} ({share:.1%}) of an unseen class")
    to.print(facts)
    to.print()
    _show_differences(to, found.differences.get(str(k)))
    _show_histories(to, found, advice)
    _show_tasks(to, found)


def _show_differences(to: Console, found: DifferenceSummary | None) -> None:
    from rich.table import Table

    if found is None or not found.history_sizes:
        to.print("There are no time differences, because the graph has no edges.\n")
        return
    title = f"Time differences over {counted(found.hops, 'hop')}: {counted(found.pairs, 'pair')}"
    if found.error is not None:
        title += f" (estimated from {counted(found.sources, *_VERTICES)}; error of shares at most {found.error:.1%})"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("share of pairs covered")
    table.add_column("time difference", justify="right")
    table.add_column("history size", justify="right")
    for level, size in found.history_sizes.items():
        table.add_row(f"{level} %", f"{found.percentiles[level]:g}", str(size))
    to.print(table)
    to.print()


def _show_histories(to: Console, found: GraphDescription, advice: Advice) -> None:
    from rich.table import Table

    if advice.past_history is None:
        return
    title = f"The same over 2 hops before the first task, {found.first_task} (--history auto takes the row 50 %)"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("share of pairs covered")
    for head in ("history size", "vertices per task"):
        table.add_column(head, justify="right")
    for level, size in advice.past_history.items():
        table.add_row(f"{level} %", str(size), f"{advice.window_vertices[level]:,}")
    table.add_row("all periods", "full", f"{advice.window_vertices['full']:,}")
    to.print(table)
    to.print()


def _show_tasks(to: Console, found: GraphDescription) -> None:
    from rich.table import Table

    if found.first_task is None:
        return
    drift_at = {one.time: (one.consecutive, one.cumulative) for one in found.drift}
    table = Table(title="Tasks", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for head in ("time", "vertices", "classes", "of unseen class", "drift", "drift to all before"):
        table.add_column(head, justify="right")
    tasks = list(zip(found.times, found.vertices_at, found.classes_at, found.unseen_at, strict=True))[found.tasks]
    if len(tasks) > _MOST_TASKS:
        to.print(f"The last {_MOST_TASKS} of {len(tasks):,} tasks (--json prints all)")
    for time, *counts in tasks[-_MOST_TASKS:]:
        moves = ("-" if move is None else f"{move:.2f}" for move in drift_at.get(time, (None, None)))
        table.add_row(str(time), *(f"{count:,}" for count in counts), *moves)
    to.print(table)
