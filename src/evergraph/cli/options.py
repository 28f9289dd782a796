"""Options of models, detectors and tables that several commands have: called and explained alike everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from evergraph.cli.common import ModeName, RestartName
from evergraph.names import known

__all__ = [
    "Alpha",
    "DetectorOption",
    "DropDangling",
    "Dropout",
    "EdgeTimeColumn",
    "Every",
    "FeatureColumns",
    "FirstTask",
    "Hidden",
    "Hops",
    "IdColumn",
    "LabelColumn",
    "LabelRate",
    "Layers",
    "LearningRate",
    "ModeOption",
    "ModelOption",
    "Most",
    "RestartOption",
    "SourceColumn",
    "Steps",
    "TargetColumn",
    "TextColumn",
    "Threshold",
    "TimeColumn",
    "column",
    "names_in",
]


def _like(kind: str) -> Callable[[str], list[str]]:
    """What Tab offers for a name of the registry."""
    return lambda incomplete: [name for name in known(kind) if name.startswith(incomplete)]


ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODEL",
        help=f"The model: {', '.join(known('model'))}. Settings may follow, as sgc:hops=3.",
        autocompletion=_like("model"),
    ),
]
Hidden = Annotated[
    int | None, typer.Option("--hidden", min=1, metavar="N", help="Its width. Default: the model's own.")
]
Layers = Annotated[
    int | None, typer.Option("--layers", min=1, metavar="N", help="Its layers. Default: the model's own.")
]
Dropout = Annotated[float | None, typer.Option("--dropout", metavar="X", help="Its dropout. Default: the model's own.")]
Hops = Annotated[
    int | None, typer.Option("--hops", min=1, metavar="N", help="Its propagation steps (sgc). Default: 2.")
]
DetectorOption = Annotated[
    str,
    typer.Option(
        "--detector",
        metavar="DETECTOR",
        help=f"Detector of unseen classes: {', '.join(known('detector'))}, or a score, as energy. Settings may follow, "
        "as gdoc:0.5 or gdoc:threshold=0.5,alpha=3; a threshold may follow a score, as energy/conformal.",
        autocompletion=_like("detector"),
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        metavar="X",
        help="Least probability of a known class (none, doc, gdoc). Default: the detector's own.",
    ),
]
Alpha = Annotated[
    float | None, typer.Option("--alpha", metavar="X", help="Risk reduction of doc and gdoc. Default: none.")
]
Most = Annotated[
    float | None,
    typer.Option("--most", metavar="X", help="Share of a slice that auto rejects at most. Default: 0.3."),
]
Steps = Annotated[int, typer.Option("--steps", min=1, metavar="N", help="Training steps for each task.")]
LearningRate = Annotated[float | None, typer.Option("--lr", metavar="X", help="Learning rate. Default: the paper's.")]
RestartOption = Annotated[RestartName, typer.Option("--restart", help="What a task starts from; see the docs.")]
FirstTask = Annotated[
    str | None,
    typer.Option("--first", metavar="TIME", help="First task. Default: once a quarter of the vertices is older."),
]
LabelRate = Annotated[
    float,
    typer.Option("--label-rate", metavar="X", help="Share of the vertices that ever release their label."),
]
ModeOption = Annotated[
    ModeName, typer.Option("--mode", help="Whether training sees the test vertices, without labels.")
]
Every = Annotated[
    str | None,
    typer.Option(
        "--every",
        metavar="year|month|week|day|N",
        help="Granularity of time. Default: years of dates, else as is.",
    ),
]
DropDangling = Annotated[bool, typer.Option("--drop-dangling", help="Drop edges to unknown ids.")]


def column(name: str, what: str) -> typer.models.OptionInfo:
    """An option that names a column of a table."""
    return typer.Option(f"--{name}", metavar="COLUMN", help=what)


# Columns of the tables that a graph or a workspace is made of; later slices are read by what was said then.
IdColumn = Annotated[str, column("id", "Vertices: the id.")]
TimeColumn = Annotated[str, column("time", "Vertices: the time, whole numbers or dates.")]
LabelColumn = Annotated[str, column("label", "Vertices: the class; empty is no label.")]
TextColumn = Annotated[
    str | None, column("text", "Vertices: the text. Default: the column 'text', if any; '' for none.")
]
FeatureColumns = Annotated[
    str | None,
    typer.Option(
        "--features", metavar="COLUMNS", help="Vertices: numbers instead of text; names or patterns, as 'x,emb_*'."
    ),
]
SourceColumn = Annotated[str, column("source", "Edges: the one end.")]
TargetColumn = Annotated[str, column("target", "Edges: the other end.")]
EdgeTimeColumn = Annotated[
    str | None, column("edge-time", "Edges: their own time. Default: the column 'time', if any; '' for none.")
]


def names_in(features: str | None) -> tuple[str, ...]:
    """The names or patterns that ``--features`` gives.

    Examples
    --------
    >>> names_in("x, emb_*,"), names_in(None)
    (('x', 'emb_*'), ())
    """
    return tuple(name.strip() for name in (features or "").split(",") if name.strip())
