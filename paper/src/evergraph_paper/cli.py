"""``evergraph reproduce``: run the paper's experiments and compare tables, figures and claims."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from evergraph.cli.common import (
    SEEDS_HELP,
    AddressOption,
    Device,
    EngineOption,
    InterruptError,
    JobsOption,
    Json,
    Quiet,
    ResourcesOption,
    console,
    echo,
    engine_of,
    graphs_like,
    parse_seeds,
    print_json,
    progress,
    set_up_logging,
)
from evergraph.errors import EvergraphError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from evergraph.evaluation.trials import GridState
    from evergraph_paper.reproduction import Reproduced

EXAMPLE = "Example: evergraph reproduce exp2 metamath --models sage,mlp --seeds 0-2 --results results"

_WHAT = (
    "exp1: static graphs; exp2: models, histories and restarts; exp2a: training once or always; exp3: fewer labels; "
    "exp4: unseen classes (4a: thresholds, 4b: other models, 4c: costs); datasets: properties of the graphs; tune: "
    "learning rates; claims: a verdict on each claim; all."
)

# Written out, because the module that defines these names imports torch. A test compares them.
ExperimentName = Literal[
    "exp1", "exp2", "exp2a", "exp3", "exp4", "exp4a", "exp4b", "exp4c", "datasets", "tune", "claims", "all"
]


def reproduce(
    experiment: Annotated[ExperimentName, typer.Argument(metavar="WHAT", help=_WHAT)],
    graphs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GRAPH",
            help="Graph folders, or: metamath, synthetic. Default: graphs with results.",
            autocompletion=graphs_like,
        ),
    ] = None,
    results: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for results, tables and figures.")] = Path(
        "results"
    ),
    seeds: Annotated[
        str | None, typer.Option(metavar="SEEDS", help=f"{SEEDS_HELP} Default: 0.", show_default=False)
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(metavar="MODELS", help="Models, such as sage,mlp. Default: all models of the experiment."),
    ] = None,
    planetoid: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Cora, Citeseer and PubMed in the Planetoid format (exp1).")
    ] = None,
    rates: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Learning rates chosen by tune. Default: the paper's.")
    ] = None,
    jobs: JobsOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    resources: ResourcesOption = None,
    device: Device = "cpu",
    quick: Annotated[
        bool, typer.Option("--quick", help="Quick test: one seed, few steps; a small graph if none is named.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="As many seeds as in the paper.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Run nothing; show the results so far.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one of the paper's experiments, or all, and compare their tables and figures with the paper's.

    Results are stored as they finish and never computed twice. Several commands can work on one experiment, and a
    stopped command continues where it stopped.
    """
    given = [name for name, is_given in (("--quick", quick), ("--full", full), ("--seeds", seeds)) if is_given]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} were given", fix="give only one of them: each sets the seeds")
    wanted = parse_seeds(seeds or "0")
    set_up_logging(quiet)
    on = engine_of(engine, address, resources, jobs)
    from evergraph.nn.device import choose_device
    from evergraph_paper.reproduction import Reproduction

    job = Reproduction(
        results=results / "quick" if quick else results,
        graphs=tuple(graphs or ()),
        seeds=wanted,
        models=None if models is None else tuple(dict.fromkeys(name.strip() for name in models.split(","))),
        planetoid=planetoid,
        rates=rates,
        jobs=jobs or os.cpu_count() or 1,
        engine=on,
        device=choose_device(device),
        quick=quick,
        full=full,
        only_show=show,
    )
    names: list[str] = [experiment]
    if experiment == "all":
        names = [name for name in get_args(ExperimentName) if name != "all"]
        if planetoid is None and not show:
            names.remove("exp1")
            echo("Experiment 1 is skipped because --planetoid is not given.", err=True)
    job.check(names)
    printed: list[Any] = []
    try:
        for name in names:
            with progress("starting", quiet, lines=True) as update:

                def on_done(running: str, state: GridState, update: Callable[..., None] | None = update) -> None:
                    if update is not None:
                        done = state.there + state.ran + state.failed
                        update(description=f"{running}: {in_words(state)}", completed=done, total=state.total)

                job.on_done = on_done
                found = job.run(name)
            printed += found.data or [{"experiment": name, "files": [str(path) for path in found.files]}]
            if not as_json and not quiet:
                _show(found)
    except KeyboardInterrupt:
        stored = "Interrupted. Finished trials are stored"
        raise InterruptError(stored, fix="run the same command again to continue") from None
    failed = EvergraphError(f"{job.failed} trials failed", fix="see the warnings above")
    if as_json:
        print_json([*printed, {"error": failed.as_dict()}] if job.failed else printed)
        raise typer.Exit(failed.exit_code if job.failed else 0)
    if job.failed:
        raise failed


def _show(found: Reproduced) -> None:
    from evergraph.presentation.table import to_rich

    to = console()
    if not found.tables:
        to.print(f"{found.name} has no results yet.")
    for table in found.tables.values():
        to.print(to_rich(table, to.width))
        to.print()
    if found.files:
        folder = found.files[0].parent
        echo(f"Written to {folder}: {', '.join(path.name for path in found.files)}\n")


def in_words(state: GridState) -> str:
    """Describe the progress of a grid.

    Examples
    --------
    >>> from evergraph.evaluation.trials import GridState
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
    """Add the command to the application; called by the entry point ``evergraph.commands``."""
    app.command(
        "reproduce", short_help="Reproduce the paper's experiments, tables, figures and claims.", epilog=EXAMPLE
    )(reproduce)
