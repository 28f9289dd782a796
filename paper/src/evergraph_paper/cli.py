"""``evergraph reproduce``: the paper's experiments, tables, figures and claims."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from evergraph.cli.common import SEEDS_HELP, Json, Quiet, console, graphs_like, parse_seeds, set_up_logging
from evergraph.errors import InputError

if TYPE_CHECKING:
    from evergraph.evaluation.grid import GridState
    from evergraph_paper.reproduction import Reproduced

_BETWEEN = 30.0  # seconds

EXAMPLE = "Example: evergraph reproduce exp2 metamath --models sage,mlp --seeds 0-2 --results results"


_WHAT = (
    "exp1: static graphs; exp2: models, histories and restarts; exp2a: trained once or on; exp3: fewer labels; "
    "exp4: unseen classes, with 4a: thresholds, 4b: other models, 4c: what it costs; datasets: what graphs are like; "
    "tune: learning rates; claims: a verdict on each; all of them."
)


# Written out: the module that has these names imports torch, which help must not wait for. A test compares them.
ExperimentName = Literal[
    "exp1", "exp2", "exp2a", "exp3", "exp4", "exp4a", "exp4b", "exp4c", "datasets", "tune", "claims", "all"
]


def reproduce(
    experiment: Annotated[ExperimentName, typer.Argument(metavar="WHAT", help=_WHAT)],
    graphs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GRAPH",
            help="Graph folders, or: metamath, synthetic. Default: those with results.",
            autocompletion=graphs_like,
        ),
    ] = None,
    results: Annotated[Path, typer.Option(metavar="FOLDER", help="Keeps all results, and tables and figures.")] = Path(
        "results"
    ),
    seeds: Annotated[
        str | None, typer.Option(metavar="SEEDS", help=f"{SEEDS_HELP} Default: 0.", show_default=False)
    ] = None,
    models: Annotated[
        str | None, typer.Option(metavar="MODELS", help="As sage,mlp. Default: all of the experiment.")
    ] = None,
    planetoid: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Cora, Citeseer and PubMed as Planetoid has them (exp1).")
    ] = None,
    rates: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Learning rates that tune has chosen. Default: the paper's.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, metavar="N", help="Processes. Default: one for each core.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A look: one seed, few steps, a small graph; no result.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="As many seeds as the paper has.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Run nothing; show what the results say so far.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one of the paper's experiments, or all; print its tables beside the paper's, draw its figures.

    Results are kept as they come: what is there is not run again, and several commands can work on one grid. A command
    that was stopped goes on where it was.
    """
    given = [name for name, is_given in (("--quick", quick), ("--full", full), ("--seeds", seeds)) if is_given]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} were given", fix="leave all but one of them out: each says how often")
    wanted = parse_seeds(seeds or "0")
    set_up_logging(quiet)
    from evergraph_paper.reproduction import Reproduction

    job = Reproduction(
        results=results / "quick" if quick else results,
        graphs=tuple(graphs or ()),
        seeds=wanted,
        models=None if models is None else tuple(dict.fromkeys(name.strip() for name in models.split(","))),
        planetoid=planetoid,
        rates=rates,
        jobs=jobs or os.cpu_count() or 1,
        quick=quick,
        full=full,
        only_show=show,
    )
    names: list[str] = [experiment]
    if experiment == "all":
        names = [name for name in get_args(ExperimentName) if name != "all"]
        if planetoid is None and not show:
            names.remove("exp1")
            typer.echo("Leaving experiment 1 out, for there is no --planetoid.", err=True)
    job.check(names)
    printed: list[Any] = []
    try:
        for name in names:
            with _progress(quiet) as job.on_done:
                found = job.run(name)
            printed += found.data or [{"experiment": name, "files": [str(path) for path in found.files]}]
            if not as_json and not quiet:
                _show(found)
    except KeyboardInterrupt:
        typer.echo("Interrupted; what is finished is kept, and the same command goes on from here.", err=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(printed, ensure_ascii=False, indent=2, allow_nan=False))
    if job.failed:
        typer.echo(f"Error: {job.failed} trials failed; the warnings above say why.", err=True)
        raise typer.Exit(1)


def _show(found: Reproduced) -> None:
    from evergraph.presentation import to_rich

    to = console()
    if not found.tables:
        to.print(f"There are no results of {found.name} yet.")
    for table in found.tables.values():
        to.print(to_rich(table, to.width))
        to.print()
    if found.files:
        folder = found.files[0].parent
        to.print(f"Written to {folder}: {', '.join(path.name for path in found.files)}", soft_wrap=True)
        to.print()


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str, GridState], None] | None]:
    """Show how far a grid is: on a terminal as a bar, elsewhere as a line now and then."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(20))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("starting", total=None)

        def on_done(name: str, state: GridState) -> None:
            done = state.there + state.ran + state.failed
            progress.update(bar, description=f"{name}: {in_words(state)}", completed=done, total=state.total)

        yield on_done


class _Lines:
    """Says how far a grid is, at most once in half a minute."""

    def __init__(self) -> None:
        self.last = -_BETWEEN

    def __call__(self, name: str, state: GridState) -> None:
        now = time.monotonic()
        if state.left == 0 or now - self.last >= _BETWEEN:
            self.last = now
            typer.echo(f"{name}: {in_words(state)}", err=True)


def in_words(state: GridState) -> str:
    """How far a grid is.

    Examples
    --------
    >>> from evergraph.evaluation.grid import GridState
    >>> in_words(GridState(48, there=10, ran=20, left_seconds=5400, best="accuracy 0.63: dblp-easy, sage"))
    '30 of 48 done (10 before), 18 left, about 1:30 h; best: accuracy 0.63: dblp-easy, sage'
    """
    parts = [f"{state.there + state.ran} of {state.total} done"]
    if state.there:
        parts[0] += f" ({state.there} before)"
    if state.failed:
        parts.append(f"{state.failed} failed")
    if state.left:
        parts.append(f"{state.left} left")
        if state.left_seconds is not None:
            minutes = round(state.left_seconds / 60)
            parts.append(f"about {minutes // 60}:{minutes % 60:02} h")
    best = f"; best: {state.best}" if state.best else ""
    return ", ".join(parts) + best


def register(app: typer.Typer) -> None:
    """Add the command to the application; called through the entry point ``evergraph.commands``."""
    app.command("reproduce", short_help="The paper's experiments, tables, figures and claims.", epilog=EXAMPLE)(
        reproduce
    )
