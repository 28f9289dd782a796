"""``evergraph demo``: what Evergraph does, shown on the embedded graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evergraph.cli.common import Quiet
from evergraph.cli.inspect import inspect

_BEFORE = """\
A graph that grows: the theorems of a mathematical proof database, each with the
year of its contribution. An edge: the proof of one uses the other. A class: the
section in which a theorem stands; new ones keep appearing.
"""
_AFTER = """
How to read it: of all pairs of theorems within two edges of each other, half lie
within the history size in the line "50 %". A model of two layers that is
retrained each year on so many past years sees half of what it could use.
Next (in a clone type first: . .venv/bin/activate): evergraph import --help\
"""


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the figures go.")] = Path("demo"),
    quiet: Quiet = False,
) -> None:
    """Look at the embedded graph: its profile, the history sizes its time differences suggest, and figures of both."""
    if not quiet:
        typer.echo(_BEFORE)
    inspect("metamath", k=2, sample=None, figures=out, verify=False, as_json=False, quiet=quiet)
    if not quiet:
        typer.echo(_AFTER)
