"""``evergraph compare``: detectors of unseen classes on some graphs, under some seeds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evergraph.cli.common import (
    Dropout,
    FirstTask,
    Hidden,
    HistoryOption,
    Hops,
    Json,
    LabelRate,
    Layers,
    LearningRate,
    ModelOption,
    ModeOption,
    Quiet,
    RestartOption,
    Seeds,
    Steps,
    console,
    graphs_like,
    parse_history,
    parse_seeds,
    print_json,
    set_up_logging,
)
from evergraph.names import COMPARED_DETECTORS, DATASETS, DEFAULT_MODEL

if TYPE_CHECKING:
    from evergraph.evaluation.compare import CompareState
    from evergraph.evaluation.comparison import Comparison

EXAMPLE = "Example: evergraph compare metamath --detectors none,gdoc:0.75,energy,auto --seeds 0-2 --out compared"

_BETWEEN = 30.0  # seconds
_DETECTORS = (
    "Which, with commas: none, auto, doc, gdoc (a threshold as gdoc:0.5), or a score, as energy or relative-energy, "
    "perhaps with a threshold, as energy/conformal or msp/fixed:0.5."
)


def compare(
    graphs: Annotated[
        list[str],
        typer.Argument(
            metavar="GRAPH...", help=f"Graph folders, or: {', '.join(DATASETS)}.", autocompletion=graphs_like
        ),
    ],
    detectors: Annotated[str, typer.Option(metavar="DETECTORS", help=_DETECTORS)] = COMPARED_DETECTORS,
    model: ModelOption = DEFAULT_MODEL,
    hidden: Hidden = None,
    layers: Layers = None,
    dropout: Dropout = None,
    hops: Hops = None,
    history: HistoryOption = "auto",
    restart: RestartOption = "warm",
    steps: Steps = 200,
    lr: LearningRate = None,
    first: FirstTask = None,
    label_rate: LabelRate = 1.0,
    mode: ModeOption = "transductive",
    seeds: Seeds = "0",
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Keeps trainings and results; what is trained is not trained again.")
    ] = Path("compared"),
    jobs: Annotated[int | None, typer.Option(min=1, metavar="N", help="Processes. Default: one for each core.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Judge detectors of unseen classes side by side: a training is recorded once and serves all that share its loss.

    A command that was stopped goes on with the trainings that are there. So does one with other detectors.
    """
    wanted, sight = parse_seeds(seeds), parse_history(history)
    set_up_logging(quiet)
    from evergraph.evaluation.candidates import candidates
    from evergraph.evaluation.compare import compare as compare_all
    from evergraph.evaluation.comparison import write_comparison
    from evergraph.evaluation.configuration import Configuration
    from evergraph.names import build_model

    chosen = candidates(detectors)
    configuration = Configuration(
        model=build_model(model, hidden=hidden, layers=layers, dropout=dropout, hops=hops),
        history=sight,
        restart=restart,
        steps=steps,
        lr=lr,
        first=first,
        label_rate=label_rate,
        mode=mode,
    )
    try:
        with _progress(quiet) as on_done:
            number = jobs or os.cpu_count() or 1
            found = compare_all(graphs, chosen, configuration, wanted, out=out, jobs=number, on_done=on_done)
        files = write_comparison(found, out) if found.outcomes else []
    except KeyboardInterrupt:
        typer.echo("Interrupted; what is finished is kept, and the same command goes on from here.", err=True)
        raise typer.Exit(130) from None
    if as_json:
        print_json(found.as_dict() | {"out": str(out), "files": [str(path) for path in files]})
    elif not quiet:
        _show(found, files)
    if found.errors:
        typer.echo(f"Error: trainings that came to nothing: {len(found.errors)}. The warnings above say why.", err=True)
        raise typer.Exit(1)


def _show(found: Comparison, files: list[Path]) -> None:
    from evergraph.evaluation.comparison import compared_table
    from evergraph.presentation import to_rich

    to = console()
    if not files:
        to.print("There are no results.")
        return
    to.print(to_rich(compared_table(found), to.width))
    to.print()
    to.print(f"Written to {files[0].parent}: {', '.join(path.name for path in files)}", soft_wrap=True)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[CompareState], None] | None]:
    """Show how far it is: on a terminal as a bar, elsewhere as a line now and then."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("starting", total=None)

        def on_done(state: CompareState) -> None:
            progress.update(bar, description=in_words(state), completed=state.done, total=state.total)

        yield on_done


class _Lines:
    """Says how far it is, at most once in half a minute."""

    def __init__(self) -> None:
        self.last = -_BETWEEN

    def __call__(self, state: CompareState) -> None:
        now = time.monotonic()
        if state.done == state.total or now - self.last >= _BETWEEN:
            self.last = now
            typer.echo(in_words(state), err=True)


def in_words(state: CompareState) -> str:
    """How far a comparison is.

    Examples
    --------
    >>> from evergraph.evaluation.compare import CompareState
    >>> in_words(CompareState(6, done=2, doing="dblp-easy, loss of gdoc, seed 1"))
    '2 of 6 trainings judged; dblp-easy, loss of gdoc, seed 1'
    """
    failed = f", {len(state.errors)} of them failed" if state.errors else ""
    return f"{state.done} of {state.total} trainings judged{failed}" + (f"; {state.doing}" if state.doing else "")
