"""What the commands share: options of the same name everywhere, and how they speak."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from evergraph.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from evergraph.learning.task import History

_MOST_SEEDS = 1_000
_NAMED = ("metamath", "synthetic")  # written out, as below


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
    offered = dict.fromkeys([*(() if sep else _NAMED), *(f"{parent}{sep}{name}" for name in folders)])
    return [name for name in offered if name.startswith(incomplete)]


GraphArgument = Annotated[
    str,
    typer.Argument(metavar="GRAPH", help="A graph folder, or: metamath, synthetic.", autocompletion=graphs_like),
]
Out = Annotated[Path, typer.Option("--out", metavar="GRAPH", help="The graph folder to write.")]
Replace = Annotated[bool, typer.Option("--replace", help="Write over the graph that is there.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and no tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no progress and no tables.")]
HistoryOption = Annotated[
    str,
    typer.Option(
        "--history",
        metavar="auto|full|N",
        help="Times before each task that are seen; auto: as many as cover half of the time differences.",
    ),
]
SEEDS_HELP = "How often, and with which seeds: as 0-4, or 0,2,5, or 3."
Seeds = Annotated[str, typer.Option("--seeds", metavar="SEEDS", help=SEEDS_HELP)]


# Written out, because the modules that define these import torch. A test compares them.
class RestartName(StrEnum):
    """What a task starts from."""

    warm = "warm"
    cold = "cold"
    hybrid = "hybrid"
    once = "once"


class ModeName(StrEnum):
    """Whether training sees the test vertices, without their labels."""

    transductive = "transductive"
    inductive = "inductive"


class TextName(StrEnum):
    """How text becomes numbers."""

    past = "past"
    global_ = "global"


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
def working(what: str, quiet: bool) -> Iterator[None]:
    """Show on a terminal that something is being done, and for how long already."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def seconds(self) -> float:
        """Seconds passed, to the millisecond."""
        return round(time.perf_counter() - self.start, 3)
