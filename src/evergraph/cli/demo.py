"""``evergraph demo``: what Evergraph does, shown on the embedded graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evergraph.cli.common import Quiet
from evergraph.cli.inspect import inspect


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the figures go.")] = Path("demo"),
    quiet: Quiet = False,
) -> None:
    """Look at the embedded graph: its profile, the history sizes its time differences suggest, and figures of both."""
    inspect("metamath", k=2, sample=None, figures=out, verify=False, as_json=False, quiet=quiet)
