"""``evergraph compare``: detectors side by side on one or more graphs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evergraph.cli.common import (
    SCORES_HELP,
    AddressOption,
    Device,
    Dropout,
    EngineOption,
    FirstTask,
    Hidden,
    HistoryOption,
    Hops,
    InputsOption,
    InterruptError,
    JobsOption,
    Json,
    LabelLatency,
    LabelRate,
    Layers,
    LearningRate,
    MemoryLimit,
    MemoryOption,
    ModelOption,
    ModeOption,
    Quiet,
    ResourcesOption,
    RestartOption,
    Seeds,
    SettingsOption,
    Steps,
    chosen_settings,
    console,
    echo,
    echo_next,
    engine_of,
    graphs_like,
    parse_seeds,
    print_json,
    progress,
    refuse_workspaces,
    set_up_logging,
)
from evergraph.errors import EvergraphError, InputError, os_error
from evergraph.names import COMPARED_DETECTORS, DATASETS, DEFAULT_MODEL, DETECTORS
from evergraph.presentation.text import command_line, counted, visible

if TYPE_CHECKING:
    from evergraph.evaluation.comparison import CompareState, Comparison

EXAMPLE = "Example: evergraph compare metamath --detectors none,gdoc:0.75,energy,auto --seeds 0-2 --out compared"

_DETECTORS = f"Comma-separated detectors: {', '.join(DETECTORS)}, or {SCORES_HELP}"


def compare(
    graphs: Annotated[
        list[str],
        typer.Argument(
            metavar="GRAPH...", help=f"Graph folders, or: {', '.join(DATASETS)}.", autocompletion=graphs_like
        ),
    ],
    detectors: Annotated[str, typer.Option(metavar="DETECTORS", help=_DETECTORS)] = COMPARED_DETECTORS,
    settings: SettingsOption = None,
    model: ModelOption = DEFAULT_MODEL,
    hidden: Hidden = None,
    layers: Layers = None,
    dropout: Dropout = None,
    hops: Hops = None,
    inputs: InputsOption = "auto",
    history: HistoryOption = "auto",
    restart: RestartOption = "warm",
    steps: Steps = 200,
    lr: LearningRate = None,
    memory: MemoryOption = "none",
    first: FirstTask = None,
    label_rate: LabelRate = 1.0,
    label_latency: LabelLatency = 0,
    mode: ModeOption = "transductive",
    seeds: Seeds = "0",
    leave_one_out: Annotated[
        bool,
        typer.Option(
            "--leave-one-out", help="Fit detectors that learn from other graphs, such as auto, without each graph."
        ),
    ] = False,
    families: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --leave-one-out: JSON of graph names and families to leave out whole."),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for trainings and results; trainings are used again.")
    ] = Path("compared"),
    jobs: JobsOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    resources: ResourcesOption = None,
    device: Device = "cpu",
    memory_limit: MemoryLimit = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare detectors on one or more graphs, once per seed.

    Each training is recorded and shared by all detectors with the same loss. A stopped command continues with the
    trainings that are already recorded. If you add detectors, recorded trainings are used again.
    """
    wanted = parse_seeds(seeds)
    set_up_logging(quiet)
    on = engine_of(engine, address, resources, jobs)
    from evergraph.evaluation.comparison import candidates
    from evergraph.evaluation.comparison import compare as compare_all
    from evergraph.evaluation.configuration import TRAINING_SETTINGS, Configuration
    from evergraph.evaluation.recommendation import recommend
    from evergraph.evaluation.workers import cores_here
    from evergraph.nn.device import choose_device
    from evergraph.report.comparison import write_comparison

    refuse_workspaces(*graphs)
    if families is not None and not leave_one_out:
        raise InputError("--families is given without --leave-one-out", fix="add --leave-one-out, or leave it out")
    groups = {} if families is None else _families(families)
    chosen = candidates(detectors)
    given = {"model": model, "hidden": hidden, "layers": layers, "dropout": dropout, "hops": hops, "history": history}
    given |= {"restart": restart, "steps": steps, "lr": lr, "first": first, "label_rate": label_rate, "mode": mode}
    given |= {"inputs": inputs, "label_latency": label_latency, "memory": memory}
    configuration = Configuration(
        **chosen_settings(settings, given, also=TRAINING_SETTINGS),
        device=choose_device(device),
        memory_limit=memory_limit,
    )
    try:
        with progress("starting", quiet, lines=True) as update:

            def on_done(state: CompareState) -> None:
                if update is not None:
                    update(description=in_words(state), completed=state.done, total=state.total)

            number = jobs or cores_here()
            if leave_one_out:
                from evergraph.evaluation.leave_one_out import leave_one_out as compare_left_out

                found = compare_left_out(
                    graphs, chosen, configuration, groups, wanted, out=out, jobs=number, engine=on, on_done=on_done
                )
            else:
                found = compare_all(
                    graphs, chosen, configuration, wanted, out=out, jobs=number, engine=on, on_done=on_done
                )
        files = write_comparison(found, out) if found.outcomes else []
    except KeyboardInterrupt:
        stored = "Interrupted. Finished trainings are stored"
        raise InterruptError(stored, fix="run the same command again to continue") from None
    best = recommend(found)
    following = None if best is None else _run(graphs[0], given | {"detector": best.detector, "settings": settings})
    failed = EvergraphError(f"{counted(len(found.errors), 'training')} failed", fix="see the warnings above")
    if as_json:
        error = {"error": failed.as_dict()} if found.errors else {}
        advice = None if best is None else {"detector": best.detector, "reason": best.reason, "command": following}
        more = {"recommendation": advice, "out": str(out), "files": [str(path) for path in files]}
        print_json(found.as_dict() | more | error)
        raise typer.Exit(failed.exit_code if found.errors else 0)
    if not quiet:
        _show(found, files)
        if best is not None and following is not None:
            words = f"\nRecommended: --detector {best.detector} (for run, ws init and ws set). {best.reason}"
            console().print(visible(words, lines=True), markup=False)
            echo_next(following)
    if found.errors:
        raise failed


def _families(path: Path) -> dict[str, str]:
    """Read the family of each graph from a JSON file."""
    from evergraph.storage.decoding import parse_json

    fix = 'write graph names and families, as in {"dblp-easy": "dblp"}'
    try:
        found = parse_json(path.read_bytes())
    except OSError as error:
        raise os_error(error, "the file cannot be read", file=path, fix="check the path") from error
    except ValueError as error:
        raise InputError(f"the file is not JSON ({error})", file=path, fix=fix) from error
    if not isinstance(found, dict) or not all(isinstance(family, str) for family in found.values()):
        raise InputError("the file has no family for each graph", file=path, fix=fix)
    return found


def _show(found: Comparison, files: list[Path]) -> None:
    from evergraph.presentation.table import to_rich
    from evergraph.report.comparison import compared_table

    to = console()
    if not files:
        to.print("There are no results.")
        return
    to.print(to_rich(compared_table(found), to.width))
    to.print()
    echo(f"Written to {files[0].parent}: {', '.join(path.name for path in files)}")


def _run(graph: str, options: dict[str, Any]) -> str:
    """Return the command that runs a graph with these options; defaults are left out."""
    import inspect

    from evergraph.cli.run import run

    usual = {name: value.default for name, value in inspect.signature(run).parameters.items()}
    changed = {name.replace("_", "-"): value for name, value in options.items() if value != usual[name]}
    words = [word for name, value in changed.items() for word in (f"--{name}", value)]
    return command_line("run", Path(graph), *words)


def in_words(state: CompareState) -> str:
    """Describe the progress of a comparison.

    Examples
    --------
    >>> from evergraph.evaluation.comparison import CompareState
    >>> in_words(CompareState(6, done=2, doing="dblp-easy, loss of gdoc, seed 1"))
    '2 of 6 trainings done; dblp-easy, loss of gdoc, seed 1'
    """
    failed = f", {len(state.errors)} of them failed" if state.errors else ""
    return f"{state.done} of {state.total} trainings done{failed}" + (f"; {state.doing}" if state.doing else "")
