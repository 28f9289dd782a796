"""``evergraph demo``: a tour on the embedded graph, from choosing a history to the production loop."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evergraph.cli.common import Json, Quiet, Stopwatch, console, echo, echo_next, print_json, set_up_logging
from evergraph.errors import InputError
from evergraph.presentation.text import command_line

if TYPE_CHECKING:
    from evergraph.graph.evolving import EvolvingGraph
    from evergraph.workspace import Workspace

EXAMPLE = "Example: evergraph demo --out demo"

_GRAPH = "metamath"
_ADDED, _COMING = 2019, 2020
_MARKER = ".evergraph-demo"
_WRITTEN = (
    "run",
    "run-words",
    "report.html",
    *(f"{name}-{kind}.csv" for name in ("past", _ADDED, _COMING) for kind in ("vertices", "edges")),
    *(f"{time}-{kind}.csv" for time in (_ADDED, _COMING) for kind in ("labels", "decisions")),
)
"""What a demo writes beside its workspace, and replaces the next time."""

_BEFORE = """\
1. The graph
The theorems of a mathematical proof database, each with the year of its
contribution. An edge means that the proof of one theorem uses the other. The
class of a theorem is its section; new sections appear over the years."""
_HISTORY = """\
2. How much history?
Training on a short history is cheap. How short may it be? These are the
differences in years between theorems within two edges of each other, before
{first}. A history that covers half of them is the default:"""
_RUN = """\

3. Prediction, year by year
Each year, the model trains on the last {years} and predicts the classes of the
theorems of the next year. The detector auto flags theorems of unseen classes."""
_INPUTS = """\

The model reads: {read}. What does it gain from more than words?"""
_GAIN = "Accuracy with words alone {alone:.3f}, with {more} too {accuracy:.3f} ({commands})"
_LOOP = """\

4. The production loop
A workspace is a folder with the graph, models, decisions and labels. This one
starts with everything up to {last}. Then {added} arrives, without labels."""
_AFTER = """\

The effect of the update on the {vertices:,} theorems of {coming}, whose labels are not in the workspace:"""

_Say = Callable[[str], Any]


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder for run, report and workspace.")] = Path(
        "demo"
    ),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tour on the embedded graph: choose a history, predict 2007 to 2020 year by year, run the production loop."""
    watch, silent = Stopwatch(), quiet or as_json
    say: _Say = (lambda _text: None) if silent else echo
    set_up_logging(quiet=True)
    from evergraph.datasets import load

    _check(out)
    graph = load(_GRAPH)
    say(f"{_BEFORE}\n{len(graph):,} theorems, {graph.n_edges:,} edges, {len(graph.class_names)} classes\n")
    size = _choose(graph, say)
    accuracy, report = _run(out, graph.axis.counted(size), say, silent)
    alone = _without_more_inputs(out, accuracy, say)
    changed = _loop(graph, out, say, silent)
    say(f"\nDone in {watch.seconds():.0f} s. Open the report in a browser: {report}")
    if not silent:
        labels = out / f"{_COMING}-labels.csv"
        echo_next(command_line("ws", "label", out / "ws", "--labels", labels), f"the labels of {_COMING}")
    if as_json:
        found = {
            "report": str(report),
            "history": size,
            "accuracy": accuracy,
            "accuracy_words": alone,
            "changed": changed,
        }
        print_json(found | {"seconds": watch.seconds()})


def _check(out: Path) -> None:
    """Delete the workspace of an earlier demo. Without the marker file, refuse to replace anything."""
    marker = out / _MARKER
    if not marker.is_file():
        if out.exists() and not out.is_dir():
            raise InputError("this is a file, not a folder", file=out, fix="choose another --out")
        for name in ("ws", *_WRITTEN):
            if (out / name).exists():
                raise InputError("it exists and is not from a demo", file=out / name, fix="choose another --out")
        out.mkdir(parents=True, exist_ok=True)
        marker.write_text("Written by evergraph demo, which replaces its own files here.\n", encoding="utf-8")
    shutil.rmtree(out / "ws", ignore_errors=True)


def _choose(graph: EvolvingGraph, say: _Say) -> int:
    from evergraph.analysis import first_task
    from evergraph.learning.task import AUTO_LEVEL, history_sizes

    first = first_task(graph) or graph.last_time
    sizes = history_sizes(graph, first)
    say(_HISTORY.format(first=graph.axis.label(first)))
    for level, years in sizes.items():
        say(f"  {level:3d} %  {graph.axis.counted(years):>8}{'   <- chosen' if level == AUTO_LEVEL else ''}")
    return sizes[AUTO_LEVEL]


def _run(out: Path, years: str, say: _Say, quiet: bool) -> tuple[float, Path]:
    from evergraph.cli.report import report
    from evergraph.cli.run import run
    from evergraph.report.run import run_content

    folder, page = out / "run", out / "report.html"
    say(f"{_RUN.format(years=years)}\n\n$ {command_line('run', _GRAPH, '--out', folder)}")
    run(_GRAPH, out=folder, replace=True, quiet=quiet)
    say(f"\n$ {command_line('report', folder, '--out', page)}")
    report(folder, out=page, quiet=quiet)
    headline = run_content(folder).headlines[0].value
    return float(headline or 0), page


def _without_more_inputs(out: Path, accuracy: float, say: _Say) -> float:
    """Repeat the run with words alone, and say what the other inputs gain."""
    from evergraph.cli.run import run
    from evergraph.evaluation.results import last_inputs
    from evergraph.evaluation.run_folder import read_run
    from evergraph.names import inputs_in_words
    from evergraph.report.run import run_content

    folder = out / "run-words"
    blocks = list(last_inputs(read_run(out / "run").rows)[0])
    command = command_line("run", _GRAPH, "--inputs", "words")
    say(f"{_INPUTS.format(read=inputs_in_words(blocks))}\n\n$ {command} --out {folder}")
    run(_GRAPH, inputs="words", out=folder, replace=True, quiet=True)
    alone = float(run_content(folder).headlines[0].value or 0)
    more = inputs_in_words(block for block in blocks if block != "words") or "nothing else"
    commands = f"{command}; {command_line('run', _GRAPH)}"
    say(_GAIN.format(alone=alone, more=more, accuracy=accuracy, commands=commands))
    return alone


def _loop(graph: EvolvingGraph, out: Path, say: _Say, quiet: bool) -> dict[str, Any]:
    from evergraph.cli import ws
    from evergraph.workspace import Workspace

    (past, new, labels, following), folder = _write_slices(graph, out), out / "ws"
    say(_LOOP.format(last=_ADDED - 1, added=_ADDED))

    def show(words: str, command: Callable[..., None], **given: Any) -> None:
        options = (part for name, value in given.items() for part in (f"--{name}", value) if part is not True)
        say(f"\n$ {command_line('ws', words, folder, *options)}")
        command(folder, **given, quiet=quiet)

    show("init", ws.init, vertices=past[0], edges=past[1], every="year")
    show("add", ws.add, vertices=new[0], edges=new[1])
    show("predict", ws.predict, out=out / f"{_ADDED}-decisions.csv", replace=True)
    show("label", ws.label, labels=labels)
    before = Workspace(folder).learner()
    show("update", ws.update)
    show("add", ws.add, vertices=following[0], edges=following[1])
    show("predict", ws.predict, out=out / f"{_COMING}-decisions.csv", replace=True)
    found = _effect_of_update(graph, Workspace(folder), before)
    say(_AFTER.format(vertices=found["vertices"], coming=_COMING))
    if not quiet:
        from rich.table import Table

        table = Table("model", box=None, pad_edge=False)
        for column in ("known classes", "accuracy", "vertices of a class unknown to it"):
            table.add_column(column, justify="right")
        for name in ("not updated", "updated"):
            row = found[name]
            table.add_row(name, str(row["classes"]), f"{row['right']:.1%}", f"{row['unseen']:,}")
        console().print(table)
    return found


def _effect_of_update(graph: EvolvingGraph, workspace: Workspace, before: Any) -> dict[str, Any]:
    """Compare the models before and after the update on the coming year."""
    from evergraph.workspace.predict import best_classes

    history, truth = workspace.state.settings.history, graph.window(_COMING, _COMING).labels
    found: dict[str, Any] = {"vertices": len(truth)}
    for name, learner in (("not updated", before), ("updated", workspace.learner())):
        best = best_classes(learner, workspace.graph, _COMING, history)
        known = set(learner.classes_)
        unseen = sum(label not in known for label in truth)
        found[name] = {"classes": len(known), "right": float((best == truth).mean()), "unseen": unseen}
    return found


_Files = tuple[Path, Path]


def _write_slices(graph: EvolvingGraph, out: Path) -> tuple[_Files, _Files, Path, _Files]:
    """Write the past, the new slice, its labels, and the slice after it as CSV files."""
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
