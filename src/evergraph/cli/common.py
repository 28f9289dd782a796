"""What the commands share: options of the same name everywhere, and how they speak."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

GraphArgument = Annotated[str, typer.Argument(metavar="GRAPH", help="A graph folder, or: metamath, synthetic.")]
Out = Annotated[Path, typer.Option("--out", metavar="GRAPH", help="The graph folder to write.")]
Replace = Annotated[bool, typer.Option("--replace", help="Write over the graph that is there.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no progress and no tables.")]


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
    log.handlers = [logging.StreamHandler()]


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
