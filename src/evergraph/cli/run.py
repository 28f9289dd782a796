"""``evergraph run``: one configuration on one graph, for one or more seeds."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evergraph.cli.common import (
    AddressOption,
    Alpha,
    DetectorOption,
    Device,
    Dropout,
    EngineOption,
    FirstTask,
    GraphArgument,
    Hidden,
    HistoryOption,
    Hops,
    InputsOption,
    InterruptError,
    Json,
    LabelLatency,
    LabelRate,
    Layers,
    LearningRate,
    MemoryLimit,
    MemoryOption,
    ModelOption,
    ModeOption,
    ObjectiveOption,
    Quiet,
    RegulariserOption,
    ResourcesOption,
    RestartOption,
    RetireOption,
    Seeds,
    SettingsOption,
    Steps,
    TextMode,
    Threshold,
    chosen_settings,
    console,
    echo,
    echo_next,
    engine_of,
    parse_seeds,
    print_json,
    progress,
    refuse_workspaces,
    set_up_logging,
)
from evergraph.names import DEFAULT_DETECTOR, DEFAULT_MODEL
from evergraph.presentation.text import command_line, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from evergraph.evaluation.run import Run

EXAMPLE = "Example: evergraph run metamath --history 3 --seeds 0-4 --out runs/metamath"

_JOBS = (
    "Processes that share the seeds. Default: as many as cores and memory allow. The results do not depend on it: each "
    "seed uses one thread, or as many as OMP_NUM_THREADS says."
)

_WORKERS = (
    "Train each window on N workers with Ray (data-parallel); needs evergraph[ray]. Models of layers train on "
    "mini-batches with sampled neighbours then, saint on its own samples. A step averages the gradients of one batch "
    "from each worker, so the results depend on N."
)

_MOST_TASKS = 40
_HEADLINE = {
    "accuracy": ("accuracy", "share of vertices whose most likely known class is correct"),
    "id_accuracy": ("ID accuracy", "the same for vertices of known classes"),
    "mcc": ("MCC", "flagged against truly unseen vertices, all tasks together"),
    "open_f1": ("Open-F1", "macro-F1 of the decisions, with 'unseen' as a class"),
    "auroc": ("AUROC", "how well the scores separate unseen from known classes, mean over tasks"),
    "seconds": ("seconds", "training and prediction, all tasks"),
}


def run(
    graph: GraphArgument,
    settings: SettingsOption = None,
    model: ModelOption = DEFAULT_MODEL,
    hidden: Hidden = None,
    layers: Layers = None,
    dropout: Dropout = None,
    hops: Hops = None,
    inputs: InputsOption = "auto",
    history: HistoryOption = "auto",
    restart: RestartOption = "warm",
    regulariser: RegulariserOption = None,
    retire_after: RetireOption = None,
    detector: DetectorOption = DEFAULT_DETECTOR,
    threshold: Threshold = None,
    alpha: Alpha = None,
    objective: ObjectiveOption = None,
    steps: Steps = 200,
    lr: LearningRate = None,
    memory: MemoryOption = "none",
    weight_decay: Annotated[float, typer.Option(metavar="X", help="Weight decay.")] = 0.0,
    first: FirstTask = None,
    label_rate: LabelRate = 1.0,
    label_latency: LabelLatency = 0,
    mode: ModeOption = "transductive",
    text: Annotated[TextMode, typer.Option(help="Vocabulary: words of the past only, or of all periods.")] = "past",
    seeds: Seeds = "0",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder for the results; a stopped run continues in it."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Start over in the folder of --out.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, metavar="N", help=_JOBS)] = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    resources: ResourcesOption = None,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help=_WORKERS)] = 1,
    device: Device = "cpu",
    memory_limit: MemoryLimit = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train and evaluate a model and a detector on all tasks of a graph, once per seed.

    For each task the model trains on the past and predicts the new slice. The results show accuracy, detection of
    unseen classes, and seconds.
    """
    wanted = parse_seeds(seeds)
    set_up_logging(quiet)
    on = engine_of(engine, address, resources, jobs)
    from evergraph.datasets import load
    from evergraph.evaluation.configuration import Configuration
    from evergraph.evaluation.run import run as run_configuration
    from evergraph.evaluation.run_folder import RESULTS
    from evergraph.evaluation.workers import threads_each
    from evergraph.nn.device import choose_device

    options = {"model": model, "hidden": hidden, "layers": layers, "dropout": dropout, "hops": hops, "inputs": inputs}
    options |= {"detector": detector, "threshold": threshold, "alpha": alpha, "objective": objective, "steps": steps}
    options |= {"history": history, "restart": restart, "lr": lr, "weight_decay": weight_decay, "first": first}
    options |= {"label_rate": label_rate, "label_latency": label_latency, "mode": mode, "text": text}
    options |= {"workers": workers, "memory": memory, "regulariser": regulariser}
    options |= {"retire_after": retire_after}
    chosen = chosen_settings(settings, options)
    configuration = Configuration(**chosen, device=choose_device(device), memory_limit=memory_limit)
    refuse_workspaces(graph)
    opened = load(graph)
    try:
        with progress("starting", quiet, remaining=True, lines=True) as update, threads_each(_threads()):
            done = dict.fromkeys(range(len(wanted)), 0)  # steps by seed

            def on_progress(seed: int, task: int, tasks: int, step: int, steps: int) -> None:
                done[seed] = task * steps + step
                if update is not None:
                    finished = sum(of_seed // steps for of_seed in done.values())
                    seeds = f" ({len(wanted)} seeds)" if len(wanted) > 1 else ""
                    update(
                        description=f"{finished:,} of {len(wanted) * tasks:,} tasks done{seeds}",
                        completed=sum(done.values()),
                        total=len(wanted) * tasks * steps,
                    )

            result = run_configuration(
                configuration,
                opened,
                wanted,
                out=out,
                replace=replace,
                jobs=jobs,
                engine=on,
                on_progress=on_progress,
                name=graph,
            )
    except KeyboardInterrupt:
        again = "" if not replace else ", without --replace,"
        if out is None:
            after = "Nothing was stored: --out was not given"
        elif (out / RESULTS).exists() and (out / RESULTS).stat().st_size:
            after = f"Run the same command again{again} to continue"
        else:
            after = "Nothing was stored: no task was finished"
        raise InterruptError(f"Interrupted. {after}") from None
    if as_json:
        print_json(result.as_dict() | {"graph": graph, "out": None if out is None else str(out)})
    elif not quiet:
        show(console(), graph, result)
        if out is not None:
            echo(f"\nStored in {out}")
            echo_next(command_line("report", out))


def _threads() -> int:
    """Return the threads of a seed: one, so that numbers depend neither on the machine nor on the other seeds."""
    import torch

    return torch.get_num_threads() if "OMP_NUM_THREADS" in os.environ else 1


def show(to: Console, graph: str, result: Run) -> None:
    """Print the tasks and the summary of a run."""
    from rich.text import Text

    from evergraph.evaluation.results import histories, inputs_read
    from evergraph.workspace.settings import in_words

    settings = result.configuration
    size, note = histories(settings["history"], result.rows)
    history = f"{size} (auto)" if settings["history"] == "auto" else str(size)
    threshold = f" {settings['detector']['threshold']:g}" if "threshold" in settings["detector"] else ""
    parts = [
        f"{graph}: {settings['model']['name']}",
        f"history {history}",
        *([f"memory {in_words(settings['memory'])}"] if settings["memory"] else []),
        f"{settings['restart']} restarts",
        f"{settings['detector']['name']}{threshold}",
        f"{settings['steps']} steps",
        settings["mode"],
    ]
    if settings.get("regulariser") is not None:
        parts.insert(3, settings["regulariser"]["name"])
    to.print(Text(visible(", ".join(parts))))
    if read := inputs_read(result.rows):
        to.print(Text(f"Inputs{' (auto)' if settings['inputs'] == 'auto' else ''}: {read}"))
    to.print()
    _show_tasks(to, result)
    if note:
        to.print(Text(note + "\n"))
    _show_headline(to, result)


def _show_tasks(to: Console, result: Run) -> None:
    tasks = result.tasks()
    if len(tasks) > _MOST_TASKS:
        to.print(f"Last {_MOST_TASKS} of {len(tasks):,} tasks (--json prints all)")
    table = _table("time", "vertices", "test", "known", "accuracy", "Open-F1", "flagged", "unseen", "MCC", "seconds")
    for task in tasks[-_MOST_TASKS:]:
        table.add_row(
            str(task["time"]),
            _number(task["window_vertices"], ",.0f"),
            _number(task["test_vertices"], ",.0f"),
            _number(task["known_classes"], ",.0f"),
            _number(task["accuracy"], ".3f"),
            _number(task["open_f1"], ".3f"),
            _number(task["rejected"], ".1%"),
            _number(task["unseen"] if task["vertices"] else None, ",.0f"),  # not known without labels
            _number(task["mcc"], ".3f"),
            _number(task["seconds"], ".2f"),
        )
    to.print(table)
    to.print(
        "vertices: in the window; test: to predict; known: known classes; flagged: share flagged as unseen; unseen: "
        "number of labelled vertices of unseen classes.\n"
    )


def _show_headline(to: Console, result: Run) -> None:
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    summary = result.summary()
    for name, (shown, meaning) in _HEADLINE.items():
        form = ".2f" if name == "seconds" else ".3f"
        half = summary[name]["ci95"]
        spread = "" if half is None else f" ± {half:{form}}"
        table.add_row(shown, _number(summary[name]["mean"], form) + spread, meaning)
    to.print(table)
    seeds = ", ".join(map(str, result.seeds))
    if len(result.seeds) == 1:
        to.print(f"\nSeed {seeds}.")
    else:
        to.print(f"\nMeans over seeds {seeds}; ± is half the width of the 95 % interval of the mean.")


def _table(*heads: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0))
    for head in heads:
        table.add_column(head, justify="right")
    return table


def _number(value: Any, form: str) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:{form}}"
