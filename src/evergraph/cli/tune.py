"""``evergraph tune``: search for better settings on the past of a graph."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from evergraph.cli.common import (
    AddressOption,
    DetectorOption,
    Device,
    EngineOption,
    FirstTask,
    GraphArgument,
    InterruptError,
    Json,
    ModelOption,
    Quiet,
    ResourcesOption,
    Seeds,
    Steps,
    console,
    echo,
    echo_next,
    engine_of,
    option,
    parse_seeds,
    print_json,
    progress,
    refuse_workspaces,
    set_up_logging,
)
from evergraph.names import DEFAULT_DETECTOR, DEFAULT_MODEL
from evergraph.presentation.text import command_line

if TYPE_CHECKING:
    from evergraph.evaluation.tuning import Later, Tuning, TuningState

EXAMPLE = "Example: evergraph tune metamath --trials 20 --out tuned"

SETTINGS, STUDY = "settings.json", "study.db"
_UNTIL = "Last period to tune on; later tasks evaluate the settings found. Default: the tasks are split in the middle."
_METRIC = "What to maximise on the tuning tasks: the mean accuracy, the mean Open-F1, or the MCC of all tasks together."
_TRIALS = "Number of finished trials in total, those of earlier and of other commands included."
_STORAGE = (
    "Database of the trials: a file (SQLite), or a URL that Optuna takes. Commands with the same one share the trials. "
    f"Default: {STUDY} in the folder of --out."
)
_JOBS = (
    "Trials, and then runs on later tasks, at a time. Default: 1, where the same seed gives the same trials; on Ray "
    "as many as the cluster has resources for."
)


def tune(
    graph: GraphArgument,
    model: ModelOption = DEFAULT_MODEL,
    detector: DetectorOption = DEFAULT_DETECTOR,
    metric: Annotated[Literal["accuracy", "open-f1", "mcc"], option("metric", None, _METRIC)] = "accuracy",
    trials: Annotated[int, option("trials", "N", _TRIALS, min=1)] = 40,
    until: Annotated[str | None, option("until", "TIME", _UNTIL)] = None,
    first: FirstTask = None,
    steps: Steps = 200,
    seed: Annotated[int, option("seed", "N", "Seed of the search and of its trainings.", min=0)] = 0,
    seeds: Seeds = "0-2",
    out: Annotated[
        Path, option("out", "FOLDER", "Folder for settings, figure and trials; a stopped search continues in it.")
    ] = Path("tuned"),
    storage: Annotated[str | None, option("storage", "FILE|URL", _STORAGE)] = None,
    jobs: Annotated[int | None, option("jobs", "N", _JOBS, min=1)] = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    resources: ResourcesOption = None,
    device: Device = "cpu",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search for better settings on the earlier tasks of a graph, and evaluate them on the later ones.

    The search changes learning rate, history, restart, inputs and width of the model, and for Open-F1 and MCC also
    threshold or objective of the detector. It starts with the defaults. Hopeless trials are stopped early. The result
    is a settings file for run, compare and ws init. --seeds are those of the evaluation.
    """
    wanted = parse_seeds(seeds)
    set_up_logging(quiet)
    on = engine_of(engine, address, resources, jobs)
    from evergraph.cli.run import _threads
    from evergraph.datasets import load
    from evergraph.errors import InputError
    from evergraph.evaluation.configuration import Configuration
    from evergraph.evaluation.settings_file import write_settings
    from evergraph.evaluation.tuning import evaluate_later
    from evergraph.evaluation.tuning import tune as search
    from evergraph.evaluation.workers import threads_each
    from evergraph.names import build_detector, build_model
    from evergraph.nn.device import choose_device
    from evergraph.report.tuning import draw_tuning

    configuration = Configuration(
        build_model(model), build_detector(detector), steps=steps, first=first, device=choose_device(device)
    )
    refuse_workspaces(graph)
    if out.exists() and not out.is_dir():
        raise InputError("this is a file, not a folder", file=out, fix="choose another folder with --out")
    opened = load(graph)
    try:
        with threads_each(_threads()):
            with progress("starting", quiet, remaining=True, lines=True) as update:

                def on_progress(state: TuningState) -> None:
                    if update is not None:
                        done = state.finished + state.running
                        update(description=in_words(state, metric), completed=done, total=state.total)

                found = search(
                    configuration,
                    opened,
                    storage=storage or out / STUDY,
                    until=until,
                    metric=metric,
                    trials=trials,
                    seed=seed,
                    jobs=jobs or 1,
                    engine=on,
                    on_progress=on_progress,
                )
            out.mkdir(parents=True, exist_ok=True)
            write_settings(out / SETTINGS, found.configuration, found.source(graph), opened.axis)
            note = f"{command_line('tune', Path(graph), '--metric', metric)}: {len(found.trials)} trials, seed {seed}"
            files = [out / SETTINGS, *draw_tuning(found, out, note)]
            with progress("evaluating on later tasks", quiet, remaining=True, lines=True) as update:
                steps_done: dict[int, int] = {}
                runs = len(wanted) * (1 if found.is_default else 2)

                def on_step(run: int, task: int, tasks: int, step: int, steps: int) -> None:
                    steps_done[run] = task * steps + step
                    if update is not None:
                        description = f"evaluating on later tasks ({runs} runs)"
                        update(description=description, completed=sum(steps_done.values()), total=runs * tasks * steps)

                later = evaluate_later(found, opened, wanted, jobs=jobs or 1, engine=on, on_progress=on_step)
    except KeyboardInterrupt:
        fix = "run the same command again to continue"
        raise InterruptError("Interrupted. Finished trials are stored", fix=fix) from None
    following = command_line("run", Path(graph), "--settings", out / SETTINGS)
    if as_json:
        print_json(_as_dict(found, later, graph) | {"out": str(out), "files": list(map(str, files)), "next": following})
    elif not quiet:
        _show(found, later)
        echo(f"\nWritten to {out}: {', '.join(path.name for path in files)}")
        echo_next(following)


def in_words(state: TuningState, metric: str) -> str:
    """Describe the progress of a search.

    Examples
    --------
    >>> from evergraph.evaluation.tuning import TuningState
    >>> in_words(TuningState(40, finished=12, pruned=5, running=0.5, best=0.6431), "accuracy")
    '12 of 40 trials done, 5 of them stopped early; best accuracy 0.643'
    """
    pruned = f", {state.pruned} of them stopped early" if state.pruned else ""
    best = "" if state.best is None else f"; best {metric} {state.best:.3f}"
    return f"{state.finished} of {state.total} trials done{pruned}{best}"


def _as_dict(found: Tuning, later: Later | None, graph: str) -> dict[str, Any]:
    return {
        "graph": graph,
        "settings": found.configuration.described(found.search.past.axis),
        "source": found.source(graph),
        "is_default": found.is_default,
        "trials": [trial.as_dict() for trial in found.trials],
        "importances": dict(found.importances),
        "later": None if later is None else later.as_dict(),
    }


def _show(found: Tuning, later: Later | None) -> None:
    from evergraph.presentation.table import to_rich
    from evergraph.report.tuning import best_table, found_table, later_table

    to, label = console(), found.search.past.axis.label
    span = f"{label(found.search.first)} to {label(found.search.until)}"
    to.print(f"Tuned on {len(found.search.tasks)} tasks ({span}) for {found.search.metric}\n", markup=False)
    tables = [best_table(found), found_table(found), *([] if later is None else [later_table(found, later)])]
    for table in tables:
        to.print(to_rich(replace(table, note=""), to.width))
        to.print(f"{table.note}\n" if table.note else "", markup=False)
    to.print(_advice(found, later), markup=False)


def _advice(found: Tuning, later: Later | None) -> str:
    """Say whether the settings found pay on later tasks."""
    import numpy as np

    from evergraph.evaluation.metrics import over_seeds

    if found.is_default:
        return "No trial was better than the defaults: keep them."
    if later is None:
        return "There are no later tasks, so nothing is known about tasks that the search has not seen."
    metric = found.search.metric
    tuned, usual = (side[metric.replace("-", "_")]["per_seed"] for side in (later.tuned, later.defaults))
    gain = over_seeds(np.array(tuned, np.float64) - np.array(usual, np.float64))  # None becomes NaN
    if not math.isfinite(gain.mean):
        return f"The {metric} of the later tasks is undefined, so the settings cannot be compared."
    shown = f"{gain.mean:+.3f} {metric}" + (f" ± {gain.half:.3f}" if math.isfinite(gain.half) else "")
    if math.isfinite(gain.half) and abs(gain.mean) <= gain.half:
        return f"Settings found against defaults on later tasks: {shown}. This is no clear difference."
    better = "use the settings found" if gain.mean > 0 else "keep the defaults"
    return f"Settings found against defaults on later tasks: {shown}: {better}."
