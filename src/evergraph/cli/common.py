"""Options, parsing and printing that all commands share."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from evergraph.errors import EvergraphError, InputError
from evergraph.names import DATASETS, DETECTORS, ENCODERS, MEMORIES, MODELS, SCORES, THRESHOLDS, known
from evergraph.presentation.text import command_line, visible, visible_json

if TYPE_CHECKING:
    from rich.console import Console

    from evergraph.evaluation.workers import RayEngine
    from evergraph.learning.task import History

_MOST_SEEDS = 1_000
_SECONDS_BETWEEN_LINES = 30.0


def graphs_like(incomplete: str) -> list[str]:
    """Complete a graph: names of graphs, and graph folders; for anything else the shell offers files."""
    parent, sep, _ = incomplete.rpartition("/")
    try:
        folders = sorted(path.parent.name for path in Path(parent + sep or ".").glob("*/manifest.json"))
    except OSError:
        folders = []
    offered = dict.fromkeys([*(() if sep else DATASETS), *(f"{parent}{sep}{name}" for name in folders)])
    return [name for name in offered if name.startswith(incomplete)]


def _like(kind: str) -> Callable[[str], list[str]]:
    return lambda incomplete: [name for name in known(kind) if name.startswith(incomplete)]


# Copies, because the modules that define these import torch. A test compares them.
Restart = Literal["warm", "cold", "hybrid", "once"]
Mode = Literal["transductive", "inductive"]
TextMode = Literal["past", "global"]


# --- options ----------------------------------------------------------------------------------------------------------


def _and(names: Iterable[str], word: str = "and") -> str:
    """Join names: a, b and c."""
    *others, last = names
    return f"{', '.join(others)} {word} {last}"


def option(name: str, metavar: str | None, text: str, *, also: str | None = None, **more: Any) -> Any:
    """Return an option with its name (or two), the placeholder of its value and its help."""
    names = [f"--{name}", *([f"--{also}"] if also else [])]
    return typer.Option(*names, metavar=metavar, help=text, **more)


GRAPH_HELP = f"A graph folder, or: {', '.join(DATASETS)}."
GraphArgument = Annotated[str, typer.Argument(metavar="GRAPH", help=GRAPH_HELP, autocompletion=graphs_like)]
Out = Annotated[Path, option("out", "GRAPH", "The graph folder to write.")]
Replace = Annotated[bool, option("replace", None, "Replace the graph that is there.")]
Json = Annotated[bool, option("json", None, "Print JSON instead of tables.")]
Quiet = Annotated[bool, option("quiet", None, "Print no progress and no tables.")]
HISTORY_HELP = "Past periods to train on; auto: as many as cover half of the time differences."
HistoryOption = Annotated[str, option("history", "auto|full|N", HISTORY_HELP)]
SEEDS_HELP = "Seeds, one run for each: 0-4, or 0,2,5, or 3."
Seeds = Annotated[str, option("seeds", "SEEDS", SEEDS_HELP)]

# Where the work runs
Engine = Literal["local", "ray"]
EngineOption = Annotated[
    Engine, option("engine", None, "Run on processes of this machine (local), or on a Ray cluster (ray).")
]
AddressOption = Annotated[
    str | None,
    option(
        "address",
        "ADDRESS",
        "Only for --engine ray: a running cluster, such as 10.0.0.5:6379, or auto. Default: RAY_ADDRESS, or else a new "
        "cluster on this machine that ends with the command.",
    ),
]
JOBS_HELP = (
    "How many to run at a time. Default: as many as cores and memory allow; with --engine ray, as many as the cluster "
    "has resources for."
)
JobsOption = Annotated[int | None, option("jobs", "N", JOBS_HELP, min=1)]
ResourcesOption = Annotated[
    str | None,
    option(
        "resources",
        "RESOURCES",
        "Only for --engine ray: what each one reserves, such as cpu=2,memory=4GB,gpu=1, or any resource that the "
        "cluster defines. Default: cpu=1.",
    ),
]

# Models and detectors
MODEL_HELP = f"Model: {', '.join(MODELS)}. Settings may follow, as in sgc:hops=3."
SCORES_HELP = (
    f"a score: {_and(SCORES, 'or')}, also with the prefix relative-, as in relative-energy, or one of an installed "
    f"plug-in. A score may be followed by / and a threshold ({_and(THRESHOLDS, 'or')}), as in energy/conformal. "
    "Settings may follow, as in auto:budget:50 or gdoc:threshold=0.5,alpha=3. The page Configuration of the "
    "documentation explains all of them."
)
DETECTOR_HELP = f"Detector of unseen classes: {', '.join(DETECTORS)}, or {SCORES_HELP}"
THRESHOLD_HELP = (
    "Only for doc and gdoc: flag a vertex if the probability of every known class is below X. Default: 0.75 for gdoc, "
    "0.5 for doc."
)
ALPHA_HELP = (
    "Only for doc and gdoc: one threshold per class (risk reduction). The surer the model is of a class's training "
    "vertices, the higher its threshold. A smaller X (above 0) flags more. The paper uses 3. Default: off."
)
OBJECTIVE_HELP = (
    "Only for auto: what to flag for. mcc (the default); open-f1, which flags nothing where that does not pay; "
    "budget:N, the N most likely vertices of each slice; false-alarms:RATE, at most this share of known vertices."
)
ModelOption = Annotated[str, option("model", "MODEL", MODEL_HELP, autocompletion=_like("model"))]
Hidden = Annotated[int | None, option("hidden", "N", "Width of the model. Default: the model's own.", min=1)]
Layers = Annotated[int | None, option("layers", "N", "Layers of the model. Default: the model's own.", min=1)]
Dropout = Annotated[
    float | None, option("dropout", "X", "Dropout of the model, from 0 to below 1. Default: the model's own.")
]
Hops = Annotated[int | None, option("hops", "N", "Propagation steps of the model (sgc). Default: 2.", min=1)]
DetectorOption = Annotated[str, option("detector", "DETECTOR", DETECTOR_HELP, autocompletion=_like("detector"))]
Threshold = Annotated[float | None, option("threshold", "X", THRESHOLD_HELP)]
Alpha = Annotated[float | None, option("alpha", "X", ALPHA_HELP)]
ObjectiveOption = Annotated[str | None, option("objective", "OBJECTIVE", OBJECTIVE_HELP)]

# Learning
Steps = Annotated[int, option("steps", "N", "Training steps per task.", min=1)]
LR_HELP = (
    "Learning rate. Default: the paper's value, 0.0005 to 0.05, which depends on model, detector, restart and history. "
    "With the other defaults: 0.005."
)
LearningRate = Annotated[float | None, option("lr", "X", LR_HELP)]
RestartOption = Annotated[
    Restart, option("restart", None, "Weights that a task starts from: warm, cold, hybrid or once.")
]
FIRST_HELP = (
    "First task. Default: the earliest period that has at least a quarter of all vertices, and a label, before it."
)
FirstTask = Annotated[str | None, option("first", "TIME", FIRST_HELP)]
LabelRate = Annotated[float, option("label-rate", "X", "Share of the vertices whose labels are released.")]
LATENCY_HELP = "Periods by which labels arrive late: those of the last N periods before a task are not released yet."
LabelLatency = Annotated[int, option("label-latency", "N", LATENCY_HELP, min=0)]
INPUTS_HELP = (
    "What the model reads of a vertex, as in words,classes: words of its text, classes of its older neighbours, "
    "numbers, encoder (vectors), categories. auto: what the graph has and what pays on its past."
)
InputsOption = Annotated[str, option("inputs", "BLOCKS", INPUTS_HELP)]
POLICY_HELP = (
    f"Labelled vertices older than the history that stay in training, as in class-mean:2000: {_and(MEMORIES, 'or')}, "
    "with the number of vertices to keep, or as a percentage of the labelled vertices older than the history (10%). "
    "Default: none."
)
MemoryOption = Annotated[str, option("memory", "NAME[:BUDGET]", POLICY_HELP, autocompletion=_like("memory"))]
RETIRE_HELP = (
    "Number of periods without a label after which a class is not predicted any more, until it has a label again. "
    "Default: none retires."
)
RetireOption = Annotated[int | None, option("retire-after", "N", RETIRE_HELP, min=1)]
DEVICE_HELP = (
    "Device to compute on, as torch names it: cpu, cuda, cuda:1. auto: cuda if there is one, else cpu. It is not "
    "stored with the results."
)
Device = Annotated[str, option("device", "NAME", DEVICE_HELP)]
MEMORY_HELP = (
    "Memory that the process may use, as in 800MB or 4GB. A window that takes more to train as a whole is trained in "
    "mini-batches with sampled neighbours. It is not stored with the results. Default: most of what is free."
)
MemoryLimit = Annotated[str | None, option("memory-limit", "SIZE", MEMORY_HELP)]
REGULARISER_HELP = (
    "Hold the model near what it has learnt: a name, or NAME:VALUE with its first setting. The package "
    "evergraph-baselines has ewc, mas, twp, lwf, gem and continual-gnn. Default: none."
)
RegulariserOption = Annotated[
    str | None, option("regulariser", "NAME", REGULARISER_HELP, autocompletion=_like("regulariser"))
]
MODE_HELP = "transductive: train with the unlabelled test vertices in the graph; inductive: without them."
ModeOption = Annotated[Mode, option("mode", None, MODE_HELP)]

# Columns of tables
EVERY_HELP = "Length of a period. Default: years for dates; whole numbers unchanged."
NUMBERS_HELP = "Vertices: columns of numbers; names or patterns, as in 'x,emb_*'. An empty cell is a missing number."
CATEGORIES_HELP = "Vertices: columns of categories; names or patterns. Each value becomes a column."
TEXT_HELP = "Vertices: column of the text. Default: 'text', if there is one; '' for none."
EDGE_TIME_HELP = "Edges: column of their time. Default: 'time', if there is one; '' for none."
ENCODER_HELP = (
    f"Text encoder, whose vectors the vertices get: {', '.join(ENCODERS)}, or the folder of a model. The page "
    "Encode text of the documentation says what each needs."
)
ENCODER = option("encoder", "NAME|FOLDER", ENCODER_HELP, autocompletion=_like("encoder"))
EncoderOption = Annotated[str | None, ENCODER]
Every = Annotated[str | None, option("every", "year|month|week|day|N", EVERY_HELP)]
DropDangling = Annotated[bool, option("drop-dangling", None, "Drop edges to unknown ids.")]
IdColumn = Annotated[str, option("id", "COLUMN", "Vertices: column of the id.")]
TimeColumn = Annotated[str, option("time", "COLUMN", "Vertices: column of the time, whole numbers or dates.")]
LabelColumn = Annotated[str, option("label", "COLUMN", "Vertices: column of the class; empty is no label.")]
TextColumn = Annotated[str | None, option("text", "COLUMN", TEXT_HELP)]
NumberColumns = Annotated[str | None, option("numbers", "COLUMNS", NUMBERS_HELP, also="features")]
CategoryColumns = Annotated[str | None, option("categories", "COLUMNS", CATEGORIES_HELP)]
SourceColumn = Annotated[str, option("source", "COLUMN", "Edges: column of one end.")]
TargetColumn = Annotated[str, option("target", "COLUMN", "Edges: column of the other end.")]
EdgeTimeColumn = Annotated[str | None, option("edge-time", "COLUMN", EDGE_TIME_HELP)]


# --- values of options ------------------------------------------------------------------------------------------------


def names_in(columns: str | None) -> tuple[str, ...]:
    """Split the value of ``--numbers`` or ``--categories``.

    Examples
    --------
    >>> names_in("x, emb_*,"), names_in(None)
    (('x', 'emb_*'), ())
    """
    return tuple(name.strip() for name in (columns or "").split(",") if name.strip())


def parse_history(text: str) -> History:
    """Parse the value of ``--history``."""
    named: dict[str, History] = {"auto": "auto", "full": "full"}
    if text in named:
        return named[text]
    if not re.fullmatch("[0-9]{1,9}", text) or not int(text):
        raise InputError(f"--history is {text!r}", fix="give a number of periods from 1 up, or auto, or full")
    return int(text)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse the value of ``--seeds``; each seed once.

    Examples
    --------
    >>> parse_seeds("0-2,7,1")
    (0, 1, 2, 7)
    """
    seeds: dict[int, None] = {}
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,15})\s*(?:-\s*([0-9]{1,15})\s*)?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last:
            raise InputError(f"--seeds is {text!r}", fix="write whole numbers, as in 0-4, or 0,2,5, or 3")
        if len(seeds) + last - first >= _MOST_SEEDS:
            raise InputError(f"--seeds {text} are more than {_MOST_SEEDS:,}", fix="give fewer seeds")
        seeds |= dict.fromkeys(range(first, last + 1))
    return tuple(seeds)


_PARTS = {"model": ("hidden", "layers", "dropout", "hops"), "detector": ("threshold", "alpha", "objective")}
"""Options that are settings of the model or of the detector."""


def chosen_settings(file: SettingsFile | None, options: Mapping[str, Any], also: Iterable[str] = ()) -> dict[str, Any]:
    """Return settings as `Configuration` takes them: of options that are given, else of the file, else the defaults.

    Parameters
    ----------
    file
        The value of ``--settings``.
    options
        Values of the options by name: settings, and those of model and detector.
    also
        Settings of the file that are used too, although there are no options for them.
    """
    from evergraph.learning.memory import as_memory
    from evergraph.names import build, build_detector, build_model, with_settings

    stored = {} if file is None else file.settings
    found = {name: stored[name] for name in also if name in stored}
    for name, value in options.items():
        if any(name in parts for parts in _PARTS.values()):
            continue
        parts = {part: options[part] for part in _PARTS.get(name, ()) if part in options}
        if file is not None and name in stored and not file.is_overridden(name):
            changed = {part: own for part, own in parts.items() if own is not None}
            found[name] = with_settings(name, stored[name], **changed) if changed else stored[name]
        elif name in _PARTS:
            found[name] = (build_model if name == "model" else build_detector)(value, **parts)
        elif name == "memory":
            found[name] = as_memory(value)
        elif name == "regulariser":
            found[name] = None if value is None else build(name, value)
        else:
            found[name] = parse_history(value) if name == "history" else value
    if file is not None:
        file.log_use(found)
    return found


class SettingsFile:
    """The value of ``--settings``; it knows which options were given besides."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.context: typer.Context | None = None

    def __str__(self) -> str:
        return str(self.path)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings, as `Configuration` takes them."""
        from evergraph.evaluation.settings_file import read_settings

        return read_settings(self.path)

    def is_overridden(self, name: str) -> bool:
        """Whether an option was given."""
        source = None if self.context is None else self.context.get_parameter_source(name)
        return source is not None and source.name != "DEFAULT"

    def log_use(self, used: Mapping[str, Any]) -> None:
        """Say which settings come from the file, which options override it, and which settings are not used."""
        from evergraph.evaluation.configuration import Configuration
        from evergraph.names import described
        from evergraph.workspace.settings import in_words

        log, stored, usual = logging.getLogger("evergraph"), self.settings, Configuration()
        mine = [name for name in stored if name in used and not self.is_overridden(name)]
        listed = ", ".join(f"{name} {in_words(described(stored[name]))}" for name in mine)
        log.info("Settings of %s: %s.", self, listed or "none")
        given = [name for name in stored if self.is_overridden(name)]
        given += [part for name in mine for part in _PARTS.get(name, ()) if self.is_overridden(part)]
        if given:
            log.info("Options override it: %s.", ", ".join(f"--{name.replace('_', '-')}" for name in given))
        unused = [name for name, value in stored.items() if name not in used and value != getattr(usual, name)]
        if unused:
            log.info("This command does not use its settings: %s.", ", ".join(unused))


def _with_context(context: typer.Context, file: SettingsFile | None) -> SettingsFile | None:
    if file is not None:
        file.context = context
    return file


SETTINGS_HELP = "Settings file, as 'evergraph tune' writes it. Options that you give override it."
SettingsOption = Annotated[
    SettingsFile | None, option("settings", "FILE", SETTINGS_HELP, parser=SettingsFile, callback=_with_context)
]


_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_resources(text: str) -> dict[str, float]:
    """Parse the value of ``--resources``.

    Examples
    --------
    >>> parse_resources("cpu=2,memory=4GB")
    {'cpu': 2.0, 'memory': 4000000000.0}
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([A-Za-z][\w.-]*)\s*=\s*(\d{1,15}(?:\.\d{1,6})?)\s*([KMGT]B)?\s*", part)
        name = "" if match is None else match[1]
        name = name.lower() if name.lower() in ("cpu", "gpu", "memory") else name  # Ray writes CPU
        if match is None or (match[3] and name != "memory"):
            raise InputError(f"--resources is {text!r}", fix="write it as in cpu=2,memory=4GB")
        found[name] = float(match[2]) * _UNITS[match[3] or ""]
    return found


def engine_of(engine: Engine, address: str | None, resources: str | None, jobs: int | None) -> RayEngine | None:
    """Return the settings of Ray; None if the work runs on this machine."""
    if engine == "local":
        for name, value in (("--address", address), ("--resources", resources)):
            if value is not None:
                raise InputError(f"{name} is given without --engine ray", fix="add --engine ray, or leave it out")
        return None
    from evergraph.evaluation.workers import RayEngine
    from evergraph.ray_connection import import_ray

    import_ray(address)  # a clear error before any work
    return RayEngine(address, {} if resources is None else parse_resources(resources), jobs)


def refuse_workspaces(*graphs: str) -> None:
    """Refuse workspaces where graphs are expected."""
    from evergraph.workspace.store import is_workspace

    for graph in graphs:
        if is_workspace(Path(graph)):
            shown = " or ".join(command_line(*words, Path(graph)) for words in (("ws", "status"), ("report",)))
            fix = f"give the folder of a graph, which 'evergraph import' writes; a workspace is shown by: {shown}"
            raise InputError("this is a workspace, not a graph", file=graph, fix=fix)


# --- printing ---------------------------------------------------------------------------------------------------------


def console() -> Console:
    """Return the console for tables."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with code 1

    return Plain(highlight=False)


class InterruptError(EvergraphError):
    """The command was interrupted with Ctrl-C; the message says what is stored."""

    exit_code = 130
    kind = "interrupted"


def echo(text: object, *, err: bool = False) -> None:
    """Print a message with the control characters of names and paths escaped."""
    typer.echo(visible(str(text), lines=True), err=err)


def echo_next(command: str, why: str = "") -> None:
    """Print what to do next: a command on a line of its own, so that it can be copied, and the reason."""
    echo(f"Next: {command}" + (f"\n      {why}" if why else ""))


def print_json(value: Mapping[str, Any] | list[Any]) -> None:
    """Print one JSON value."""
    typer.echo(visible_json(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)))


def set_up_logging(quiet: bool) -> None:
    """Print the library's log on standard error; only warnings if quiet."""
    log = logging.getLogger("evergraph")
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    log.handlers = [_ToStderr()]


class _ToStderr(logging.StreamHandler[TextIO]):
    """Write to the current ``sys.stderr``, which a progress bar replaces to keep lines above it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record), lines=True)


@contextmanager
def progress(
    what: str, quiet: bool, *, remaining: bool = False, lines: bool = False
) -> Iterator[Callable[..., None] | None]:
    """Show a progress bar on a terminal, with the time elapsed or ``remaining``.

    Yields a function to call with ``description``, ``completed`` and ``total``. Without a terminal it prints a line
    every half minute if ``lines`` is set; otherwise None is yielded and nothing is shown.
    """
    if quiet or not sys.stderr.isatty():
        yield _ProgressLines(remaining) if lines and not quiet else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    clock = TimeRemainingColumn() if remaining else TimeElapsedColumn()
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(20), clock)
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        update = partial(shown.update, shown.add_task(visible(what), total=None))
        yield lambda *, description, **counts: update(description=visible(description), **counts)


def show_encoding(update: Callable[..., None] | None) -> Callable[[int, int, float], None]:
    """Return a function that shows how many texts are encoded, with what `progress` yields."""

    def on_encoded(done: int, total: int, per_second: float) -> None:
        if update is not None:
            description = f"Encoding text {done:,} of {total:,} ({per_second:,.0f} per second)"
            update(description=description, completed=done, total=total)

    return on_encoded


class _ProgressLines:
    """Prints progress as lines, at most one every half minute and always the first and the last one."""

    def __init__(self, remaining: bool) -> None:
        self.remaining = remaining
        self.last, self.ended = -_SECONDS_BETWEEN_LINES, False
        self.start: tuple[float, int] | None = None

    def __call__(self, *, description: str, completed: int, total: int) -> None:
        now = time.monotonic()
        self.start = self.start or (now, completed)
        if not self.ended and (completed == total or now - self.last >= _SECONDS_BETWEEN_LINES):
            self.last, self.ended = now, completed == total
            seconds, done = now - self.start[0], completed - self.start[1]
            known = self.remaining and done > 0 and completed < total
            left = f"; about {in_time(seconds / done * (total - completed))} left" if known else ""
            echo(description + left, err=True)


def in_time(seconds: float) -> str:
    """Write a duration in words.

    Examples
    --------
    >>> in_time(42.3), in_time(2.5 * 60), in_time(5 * 3600)
    ('42 s', '3 min', '5.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60 + 0.001:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


class Stopwatch:
    """Measure the seconds since it was created."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def seconds(self) -> float:
        """Return the seconds passed, to the millisecond."""
        return round(time.perf_counter() - self.start, 3)
