"""What the commands share: options, which are called and explained alike everywhere, and how they print."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from evergraph.errors import InputError
from evergraph.names import DATASETS, known

if TYPE_CHECKING:
    from rich.console import Console

    from evergraph.learning.task import History

_MOST_SEEDS = 1_000


def graphs_like(incomplete: str) -> list[str]:
    """What Tab offers for a graph: those that go by name, and the graph folders where the word leads so far.

    Of anything else nothing is offered, and shells go on to offer files.

    Examples
    --------
    >>> graphs_like("meta")
    ['metamath']
    """
    parent, sep, _ = incomplete.rpartition("/")
    try:
        folders = sorted(path.parent.name for path in Path(parent + sep or ".").glob("*/manifest.json"))
    except OSError:
        folders = []
    offered = dict.fromkeys([*(() if sep else DATASETS), *(f"{parent}{sep}{name}" for name in folders)])
    return [name for name in offered if name.startswith(incomplete)]


def _like(kind: str) -> Callable[[str], list[str]]:
    """What Tab offers for a name of the registry."""
    return lambda incomplete: [name for name in known(kind) if name.startswith(incomplete)]


# Written out, because the modules that define these import torch. A test compares them.
Restart = Literal["warm", "cold", "hybrid", "once"]
Mode = Literal["transductive", "inductive"]
TextMode = Literal["past", "global"]


# --- options ----------------------------------------------------------------------------------------------------------


def option(name: str, metavar: str | None, text: str, **more: Any) -> Any:
    """Return an option: its name, what stands for its value, and its help."""
    return typer.Option(f"--{name}", metavar=metavar, help=text, **more)


GRAPH_HELP = f"A graph folder, or: {', '.join(DATASETS)}."
GraphArgument = Annotated[str, typer.Argument(metavar="GRAPH", help=GRAPH_HELP, autocompletion=graphs_like)]
Out = Annotated[Path, option("out", "GRAPH", "The graph folder to write.")]
Replace = Annotated[bool, option("replace", None, "Write over the graph that is there.")]
Json = Annotated[bool, option("json", None, "Print JSON on standard output, and no tables.")]
Quiet = Annotated[bool, option("quiet", None, "Print no progress and no tables.")]
HISTORY_HELP = "Times before each task that are seen; auto: as many as cover half of the time differences."
HistoryOption = Annotated[str, option("history", "auto|full|N", HISTORY_HELP)]
SEEDS_HELP = "How often, and with which seeds: as 0-4, or 0,2,5, or 3."
Seeds = Annotated[str, option("seeds", "SEEDS", SEEDS_HELP)]

# Models and detectors
MODEL_HELP = f"The model: {', '.join(known('model'))}. Settings may follow, as sgc:hops=3."
DETECTOR_HELP = (
    f"Detector of unseen classes: {', '.join(known('detector'))}, or a score, as energy. Settings may follow, as "
    "gdoc:0.5 or gdoc:threshold=0.5,alpha=3; a threshold may follow a score, as energy/conformal."
)
THRESHOLD_HELP = "Least probability of a known class (none, doc, gdoc). Default: the detector's own."
ModelOption = Annotated[str, option("model", "MODEL", MODEL_HELP, autocompletion=_like("model"))]
Hidden = Annotated[int | None, option("hidden", "N", "Its width. Default: the model's own.", min=1)]
Layers = Annotated[int | None, option("layers", "N", "Its layers. Default: the model's own.", min=1)]
Dropout = Annotated[float | None, option("dropout", "X", "Its dropout. Default: the model's own.")]
Hops = Annotated[int | None, option("hops", "N", "Its propagation steps (sgc). Default: 2.", min=1)]
DetectorOption = Annotated[str, option("detector", "DETECTOR", DETECTOR_HELP, autocompletion=_like("detector"))]
Threshold = Annotated[float | None, option("threshold", "X", THRESHOLD_HELP)]
Alpha = Annotated[float | None, option("alpha", "X", "Risk reduction of doc and gdoc. Default: none.")]
Most = Annotated[float | None, option("most", "X", "Share of a slice that auto rejects at most. Default: 0.3.")]

# Learning
Steps = Annotated[int, option("steps", "N", "Training steps for each task.", min=1)]
LearningRate = Annotated[float | None, option("lr", "X", "Learning rate. Default: the paper's.")]
RestartOption = Annotated[Restart, option("restart", None, "What a task starts from; see the docs.")]
FirstTask = Annotated[
    str | None, option("first", "TIME", "First task. Default: once a quarter of the vertices is older.")
]
LabelRate = Annotated[float, option("label-rate", "X", "Share of the vertices that ever release their label.")]
ModeOption = Annotated[Mode, option("mode", None, "Whether training sees the test vertices, without labels.")]

# Tables that a graph or a workspace is made of. A workspace keeps the names for later slices.
EVERY_HELP = "Granularity of time. Default: years of dates, else as is."
FEATURES_HELP = "Vertices: numbers instead of text; names or patterns, as 'x,emb_*'."
TEXT_HELP = "Vertices: the text. Default: the column 'text', if any; '' for none."
EDGE_TIME_HELP = "Edges: their own time. Default: the column 'time', if any; '' for none."
Every = Annotated[str | None, option("every", "year|month|week|day|N", EVERY_HELP)]
DropDangling = Annotated[bool, option("drop-dangling", None, "Drop edges to unknown ids.")]
IdColumn = Annotated[str, option("id", "COLUMN", "Vertices: the id.")]
TimeColumn = Annotated[str, option("time", "COLUMN", "Vertices: the time, whole numbers or dates.")]
LabelColumn = Annotated[str, option("label", "COLUMN", "Vertices: the class; empty is no label.")]
TextColumn = Annotated[str | None, option("text", "COLUMN", TEXT_HELP)]
FeatureColumns = Annotated[str | None, option("features", "COLUMNS", FEATURES_HELP)]
SourceColumn = Annotated[str, option("source", "COLUMN", "Edges: the one end.")]
TargetColumn = Annotated[str, option("target", "COLUMN", "Edges: the other end.")]
EdgeTimeColumn = Annotated[str | None, option("edge-time", "COLUMN", EDGE_TIME_HELP)]


# --- values of options ------------------------------------------------------------------------------------------------


def names_in(features: str | None) -> tuple[str, ...]:
    """The names or patterns that ``--features`` gives.

    Examples
    --------
    >>> names_in("x, emb_*,"), names_in(None)
    (('x', 'emb_*'), ())
    """
    return tuple(name.strip() for name in (features or "").split(",") if name.strip())


def parse_history(text: str) -> History:
    """The history that an option names.

    Examples
    --------
    >>> parse_history("3"), parse_history("auto")
    (3, 'auto')
    """
    named: dict[str, History] = {"auto": "auto", "full": "full"}
    if text in named:
        return named[text]
    if not re.fullmatch("[0-9]{1,9}", text) or not int(text):
        raise InputError(f"--history is {text!r}", fix="give a number of times from 1 up, or auto, or full")
    return int(text)


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds that an option names, each once.

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
            raise InputError(f"--seeds is {text!r}", fix="write whole numbers, as 0-4, or 0,2,5, or 3")
        if len(seeds) + last - first >= _MOST_SEEDS:
            raise InputError(f"--seeds {text} are more than {_MOST_SEEDS:,}", fix="give fewer seeds")
        seeds |= dict.fromkeys(range(first, last + 1))
    return tuple(seeds)


# --- printing ---------------------------------------------------------------------------------------------------------


def console() -> Console:
    """Where tables go."""
    from rich.console import Console

    return Console(highlight=False)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object; what is not a number there is null."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))


def set_up_logging(quiet: bool) -> None:
    """Say on standard error what the library notes, unless it should be quiet."""
    log = logging.getLogger("evergraph")
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    log.handlers = [_ToStderr()]


class _ToStderr(logging.StreamHandler[TextIO]):
    """Writes to what standard error is at the time: while a progress bar is up, that is above the bar."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


@contextmanager
def progress(what: str, quiet: bool) -> Iterator[Callable[..., None] | None]:
    """Show on a terminal what is being done and for how long already.

    Yields what to call with ``description``, ``completed`` and ``total`` as these change; None where nothing is shown.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield partial(shown.update, shown.add_task(what, total=None))


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def seconds(self) -> float:
        """Seconds passed, to the millisecond."""
        return round(time.perf_counter() - self.start, 3)
