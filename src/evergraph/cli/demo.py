"""``evergraph demo``: what Evergraph does, shown on the embedded graph from the first look to the production loop."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evergraph.cli.common import Json, Quiet, Stopwatch, console, print_json, set_up_logging
from evergraph.errors import InputError

if TYPE_CHECKING:
    from evergraph.graph.evolving import EvolvingGraph
    from evergraph.workspace import Workspace

EXAMPLE = "Example: evergraph demo --out demo"

_GRAPH = "metamath"
_ADDED, _COMING = 2019, 2020

_MARKER = ".evergraph-demo"
_WRITTEN = (
    "run",
    "report.html",
    *(f"{name}-{kind}.csv" for name in ("past", _ADDED, _COMING) for kind in ("vertices", "edges")),
    *(f"{time}-{kind}.csv" for time in (_ADDED, _COMING) for kind in ("labels", "decisions")),
)
"""What a demo writes beside its workspace, and writes over the next time."""

_BEFORE = """\
A graph that grows: the theorems of a mathematical proof database, each with the
year of its contribution. An edge: the proof of one uses the other. A class: the
section in which a theorem stands; new ones keep appearing."""
_HISTORY = """\
A model that is retrained each year on a short history is cheap. How short? Of
all pairs of theorems within two edges of each other before {first}, so many lie at
most so many years apart:"""
_RUN = """\
Now year after year: learn from the last {years}, decide the theorems of the
next one, or say that their class was never seen before (detector gdoc)."""
_LOOP = """\
And in production? A workspace is a folder that holds graph, models, decisions
and labels. It starts with all up to {last}; then {added} arrives, without labels."""
_AFTER = """\
What the update changed, on the {vertices:,} theorems of {coming}, whose labels nobody knew:"""


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where run, report and workspace go.")] = Path(
        "demo"
    ),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show it all on the embedded graph: a history is chosen, a model lives from 2007 to 2020, and the loop turns."""
    watch, say = Stopwatch(), _silent if quiet or as_json else typer.echo
    set_up_logging(quiet=True)
    from evergraph.datasets import load

    _check(out)
    graph = load(_GRAPH)
    say(f"1. The graph\n{_BEFORE}")
    say(f"{len(graph):,} theorems, {graph.n_edges:,} edges, {len(graph.class_names)} classes\n")
    size = _choose(graph, say)
    accuracy, report = _run(out, graph.axis.counted(size), say, quiet or as_json)
    changed = _loop(graph, out, say, quiet or as_json)
    say(f"\nDone in {watch.seconds():.0f} s. Open the report in a browser: {report}")
    say(f"Next: evergraph ws label {out / 'ws'} --labels {out / f'{_COMING}-labels.csv'} (the labels of {_COMING})")
    if as_json:
        print_json(
            {
                "report": str(report),
                "history": size,
                "accuracy": accuracy,
                "changed": changed,
                "seconds": watch.seconds(),
            }
        )


def _silent(_text: str = "") -> None:
    """Say nothing."""


def _check(out: Path) -> None:
    """Make room for what an earlier demo left, and for nothing else: without its mark all is somebody's own."""
    marker = out / _MARKER
    if not marker.is_file():
        if out.exists() and not out.is_dir():
            raise InputError("this is a file, not a folder", file=out, fix="choose another --out")
        for name in ("ws", *_WRITTEN):
            if (out / name).exists():
                raise InputError("it is there already, and of no demo", file=out / name, fix="choose another --out")
        out.mkdir(parents=True, exist_ok=True)
        marker.write_text("Written by evergraph demo, which replaces what it wrote here.\n", encoding="utf-8")
    shutil.rmtree(out / "ws", ignore_errors=True)


def _choose(graph: EvolvingGraph, say: Callable[[str], Any]) -> int:
    """Choose a history by the time differences, and say why."""
    from evergraph.analysis import first_task
    from evergraph.learning.task import AUTO_LEVEL, history_sizes

    first = first_task(graph) or graph.last_time
    sizes = history_sizes(graph, first)
    say(f"2. How much history?\n{_HISTORY.format(first=graph.axis.label(first))}")
    for level, years in sizes.items():
        say(f"  {level:3d} %  {graph.axis.counted(years):>8}{'   <- chosen' if level == AUTO_LEVEL else ''}")
    return sizes[AUTO_LEVEL]


def _run(out: Path, years: str, say: Callable[[str], Any], quiet: bool) -> tuple[float, Path]:
    """Take a learner through all years, and report on that."""
    from evergraph.cli.report import report
    from evergraph.cli.run import run
    from evergraph.report.run import story_of_run

    say(f"\n3. Learning for life\n{_RUN.format(years=years)}")
    folder, page = out / "run", out / "report.html"
    say(f"\n$ evergraph run {_GRAPH} --out {folder}")
    run(_GRAPH, out=folder, replace=True, quiet=quiet)
    say(f"\n$ evergraph report {folder} --out {page}")
    report(folder, out=page, quiet=quiet)
    headline = story_of_run(folder).headlines[0].value
    return float(headline or 0), page


def _loop(graph: EvolvingGraph, out: Path, say: Callable[[str], Any], quiet: bool) -> dict[str, Any]:
    """The production loop: a slice arrives, is decided, labelled and learnt, and the next one is decided."""
    from evergraph.cli import ws
    from evergraph.workspace import Workspace

    files, folder = _write_slices(graph, out), out / "ws"
    say(f"\n4. The loop\n{_LOOP.format(last=_ADDED - 1, added=_ADDED)}")

    def show(words: str, command: Callable[..., None], **given: Any) -> None:
        options = " ".join(f"--{name}" if value is True else f"--{name} {value}" for name, value in given.items())
        say(f"\n$ evergraph ws {words} {folder} {options}")
        command(folder, **given, quiet=quiet)

    past, new, labels, following = files
    show("init", ws.init, vertices=past[0], edges=past[1], every="year")
    show("add", ws.add, vertices=new[0], edges=new[1])
    show("predict", ws.predict, out=out / f"{_ADDED}-decisions.csv", replace=True)
    show("label", ws.label, labels=labels)
    before = Workspace(folder).learner()
    show("update", ws.update)
    show("add", ws.add, vertices=following[0], edges=following[1])
    show("predict", ws.predict, out=out / f"{_COMING}-decisions.csv", replace=True)
    return _what_changed(graph, Workspace(folder), before, say)


def _what_changed(graph: EvolvingGraph, workspace: Workspace, before: Any, say: Callable[[str], Any]) -> dict[str, Any]:
    """How the model before the update would have done on the coming year, beside the one after it."""
    from rich.table import Table

    from evergraph.workspace.decisions import best_classes

    history, truth = workspace.state.settings.history, graph.window(_COMING, _COMING).labels
    found: dict[str, Any] = {"vertices": len(truth)}
    for name, learner in (("not updated", before), ("updated", workspace.learner())):
        best = best_classes(learner, workspace.graph, _COMING, history)
        known = set(learner.classes_)
        found[name] = {
            "classes": len(known),
            "right": float((best == truth).mean()),
            "unseen": sum(label not in known for label in truth),
        }
    say(f"\n{_AFTER.format(vertices=len(truth), coming=_COMING)}")
    if say is not _silent:
        table = Table("model", box=None, pad_edge=False)
        for column in ("classes known", "right", "of a class it did not know"):
            table.add_column(column, justify="right")
        for name in ("not updated", "updated"):
            row = found[name]
            table.add_row(name, str(row["classes"]), f"{row['right']:.1%}", f"{row['unseen']:,}")
        console().print(table)
    return found


_Files = tuple[Path, Path]


def _write_slices(graph: EvolvingGraph, out: Path) -> tuple[_Files, _Files, Path, _Files]:
    """The past, the slice that arrives, its labels, and the slice after it, as the files that people have."""
    import pyarrow.csv as pa_csv

    from evergraph.datasets.tables import to_tables

    def write(name: str, *, first: int | None = None, last: int, labels: bool) -> _Files:
        paths = out / f"{name}-vertices.csv", out / f"{name}-edges.csv"
        for path, table in zip(paths, to_tables(graph, first, last, labels=labels), strict=True):
            pa_csv.write_csv(table, path)
        return paths

    past = write("past", last=_ADDED - 1, labels=True)
    new = write(str(_ADDED), first=_ADDED, last=_ADDED, labels=False)
    following = write(str(_COMING), first=_COMING, last=_COMING, labels=False)
    for time in (_ADDED, _COMING):
        pa_csv.write_csv(to_tables(graph, time, time)[0].select(["id", "label"]), out / f"{time}-labels.csv")
    return past, new, out / f"{_ADDED}-labels.csv", following
