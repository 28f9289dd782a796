"""``evergraph compare``: detectors, or learners, side by side on one or more graphs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    RegulariserOption,
    ResourcesOption,
    RestartOption,
    RetireOption,
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
from evergraph.names import (
    COMPARED_DETECTORS,
    DATASETS,
    DEFAULT_DETECTOR,
    DEFAULT_MODEL,
    DETECTORS,
    build_detector,
    split_detectors,
)
from evergraph.presentation.text import command_line, counted, visible

if TYPE_CHECKING:
    from evergraph.evaluation.compared import CompareState
    from evergraph.evaluation.comparison import Comparison
    from evergraph.evaluation.configuration import Configuration
    from evergraph.evaluation.learners import LearnerComparison
    from evergraph.presentation.table import Table

EXAMPLE = "Example: evergraph compare metamath --detectors none,gdoc:0.75,energy,auto --seeds 0-2 --out compared"

_DETECTORS = (
    f"Comma-separated detectors: {', '.join(DETECTORS)}, or {SCORES_HELP} Default: {COMPARED_DETECTORS}; with "
    f"--learners one detector, {DEFAULT_DETECTOR}."
)
_LEARNERS = (
    "Compare learners instead, comma-separated: parts joined by +, as in window:1,window:full+restart:cold. Parts are "
    "window:N (or full, auto), memory:NAME:BUDGET (a number of vertices, or a percentage of the labelled ones older "
    "than the window), regulariser:NAME:VALUE, retire:N, model:NAME, restart:NAME, steps:N and lr:X. Other options are "
    "the same for all learners."
)


def compare(
    graphs: Annotated[
        list[str],
        typer.Argument(
            metavar="GRAPH...", help=f"Graph folders, or: {', '.join(DATASETS)}.", autocompletion=graphs_like
        ),
    ],
    detectors: Annotated[str | None, typer.Option(metavar="DETECTORS", help=_DETECTORS)] = None,
    learners: Annotated[str | None, typer.Option(metavar="LEARNERS", help=_LEARNERS)] = None,
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
    regulariser: RegulariserOption = None,
    retire_after: RetireOption = None,
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
    """Compare detectors on one or more graphs, once per seed; or learners (--learners).

    Each training is recorded and shared by all detectors with the same loss. A stopped command continues with the
    trainings that are already recorded. If you add detectors, recorded trainings are used again. With --learners,
    results that are stored are not computed again.
    """
    wanted = parse_seeds(seeds)
    set_up_logging(quiet)
    on = engine_of(engine, address, resources, jobs)
    from evergraph.evaluation.configuration import TRAINING_SETTINGS, Configuration
    from evergraph.evaluation.workers import cores_here
    from evergraph.nn.device import choose_device

    refuse_workspaces(*graphs)
    if families is not None and not leave_one_out:
        raise InputError("--families is given without --leave-one-out", fix="add --leave-one-out, or leave it out")
    if learners is not None and leave_one_out:
        raise InputError(
            "--learners and --leave-one-out are both given",
            fix="compare learners without --leave-one-out, or detectors with it",
        )
    groups = {} if families is None else _families(families)
    given = {"model": model, "hidden": hidden, "layers": layers, "dropout": dropout, "hops": hops, "history": history}
    given |= {"restart": restart, "steps": steps, "lr": lr, "first": first, "label_rate": label_rate, "mode": mode}
    given |= {"inputs": inputs, "label_latency": label_latency, "memory": memory}
    given |= {"regulariser": regulariser, "retire_after": retire_after}
    compared = _Learners(learners, detectors) if learners is not None else _Detectors(detectors, leave_one_out, groups)
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

            places = {"out": out, "jobs": jobs or cores_here(), "engine": on, "on_done": on_done}
            found = compared.run(graphs, configuration, wanted, **places)
        files = compared.write(found, out) if found.outcomes else []
    except KeyboardInterrupt:
        stored = "Interrupted. Finished trainings are stored"
        raise InterruptError(stored, fix="run the same command again to continue") from None
    advice = compared.advice(found, graphs[0], given | {"settings": settings})
    failed = EvergraphError(f"{counted(len(found.errors), 'training')} failed", fix="see the warnings above")
    if as_json:
        error = {"error": failed.as_dict()} if found.errors else {}
        more = {"recommendation": advice, "out": str(out), "files": [str(path) for path in files]}
        print_json(found.as_dict() | more | error)
        raise typer.Exit(failed.exit_code if found.errors else 0)
    if not quiet:
        _show(compared.table(found) if files else None, files)
        if advice is not None:
            words = f"\nRecommended: {compared.recommended(advice)} {advice['reason']}"
            console().print(visible(words, lines=True), markup=False)
            if advice["command"] is not None:
                echo_next(advice["command"])
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


# --- detectors and learners ------------------------------------------------------------------------------------------


class _Detectors:
    """What differs between comparisons of detectors and of learners."""

    def __init__(self, names: str | None, left_out: bool, groups: Mapping[str, str]) -> None:
        from evergraph.evaluation.comparison import candidates

        self.candidates, self.left_out, self.groups = candidates(names or COMPARED_DETECTORS), left_out, groups

    def run(
        self, graphs: Sequence[str], configuration: Configuration, seeds: Sequence[int], **places: Any
    ) -> Comparison:
        from evergraph.evaluation.comparison import compare
        from evergraph.evaluation.leave_one_out import leave_one_out

        if self.left_out:
            return leave_one_out(graphs, self.candidates, configuration, self.groups, seeds, **places)
        return compare(graphs, self.candidates, configuration, seeds, **places)

    def write(self, found: Any, out: Path) -> list[Path]:
        from evergraph.report.comparison import write_comparison

        return write_comparison(found, out)

    def table(self, found: Any) -> Table:
        from evergraph.report.comparison import compared_table

        return compared_table(found)

    def advice(self, found: Any, graph: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
        from evergraph.evaluation.recommendation import recommend

        best = recommend(found)
        if best is None:
            return None
        command = _run(graph, {**given, "detector": best.detector})
        return {"detector": best.detector, "reason": best.reason, "command": command}

    def recommended(self, advice: Mapping[str, Any]) -> str:
        return f"--detector {advice['detector']} (for run, ws init and ws set)."


class _Learners:
    """The same for learners, with one detector."""

    def __init__(self, text: str, detectors: str | None) -> None:
        from evergraph.evaluation.learner_specs import learner_specs

        self.specs = learner_specs(text)
        names = [DEFAULT_DETECTOR] if detectors is None else split_detectors(detectors)
        if len(names) != 1:
            raise InputError(f"--learners is given with {len(names)} detectors", fix="give one, as in --detectors none")
        (self.name,) = names
        self.detector = build_detector(self.name)

    def run(
        self, graphs: Sequence[str], configuration: Configuration, seeds: Sequence[int], **places: Any
    ) -> LearnerComparison:
        from evergraph.evaluation.learners import compare_learners

        base = replace(configuration, detector=self.detector)
        return compare_learners(graphs, self.specs, base, seeds, **places)

    def write(self, found: Any, out: Path) -> list[Path]:
        from evergraph.report.learners import write_learners

        return write_learners(found, out)

    def table(self, found: Any) -> Table:
        from evergraph.report.learners import learners_table

        return learners_table(found)

    def advice(self, found: Any, graph: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
        from evergraph.evaluation.learner_specs import PARTS
        from evergraph.evaluation.recommendation import recommend_learner

        best = recommend_learner(found)
        if best is None:
            return None
        parts = {PARTS[kind]: value for kind, value in best.learner.parts.items()}
        command = _run(graph, {**given, "detector": self.name}, parts)
        return {"learner": best.learner.name, "reason": best.reason, "command": command}

    def recommended(self, advice: Mapping[str, Any]) -> str:
        return f"{advice['learner']}."


def _show(table: Table | None, files: list[Path]) -> None:
    from evergraph.presentation.table import to_rich

    to = console()
    if table is None:
        to.print("There are no results.")
        return
    to.print(to_rich(table, to.width))
    to.print()
    echo(f"Written to {files[0].parent}: {', '.join(path.name for path in files)}")


def _run(graph: str, options: Mapping[str, Any], parts: Mapping[str, Any] | None = None) -> str | None:
    """Return the command that runs a graph with these options; defaults are left out.

    ``parts`` are those of a learner, which override options. None if ``run`` has no option for one of them.
    """
    from evergraph.cli.run import run

    usual = {name: value.default for name, value in inspect.signature(run).parameters.items()}
    parts = parts or {}
    if not parts.keys() <= usual.keys():
        return None
    if "model" in parts:
        options = {
            name: value for name, value in options.items() if name not in ("hidden", "layers", "dropout", "hops")
        }
    changed = {name: value for name, value in {**options, **parts}.items() if str(value) != str(usual[name])}
    if options.get("settings") is not None:  # which may have another value than the default
        changed |= parts
    words = [word for name, value in changed.items() for word in (f"--{name.replace('_', '-')}", value)]
    return command_line("run", Path(graph), *words)


def in_words(state: CompareState) -> str:
    """Describe the progress of a comparison.

    Examples
    --------
    >>> from evergraph.evaluation.compared import CompareState
    >>> in_words(CompareState(6, done=2, doing="dblp-easy, loss of gdoc, seed 1"))
    '2 of 6 trainings done; dblp-easy, loss of gdoc, seed 1'
    """
    failed = f", {len(state.errors)} of them failed" if state.errors else ""
    return f"{state.done} of {state.total} trainings done{failed}" + (f"; {state.doing}" if state.doing else "")
