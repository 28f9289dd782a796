"""The paper's choice of learning rates: by accuracy on a development graph, then used for all others."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from evergraph.errors import InputError
from evergraph.presentation.table import Cell, Column, Section, Table
from evergraph.storage.files import write_atomic
from evergraph_paper.measured import Measured
from evergraph_paper.plan import LEVELS, Row, Subject, rows
from evergraph_paper.tables import Results

RATES = (0.1, 0.05, 0.01, 0.005, 0.001, 0.0005)
WEIGHT_DECAYS = (0.0, 0.0005)


@dataclass(frozen=True)
class TunedRate:
    """The best learning rate and weight decay for a model, a history and a restart."""

    model: str
    level: int
    restart: str
    lr: float
    weight_decay: float
    accuracy: float


def tune_rows(graphs: Iterable[Subject], models: Sequence[str] = ("sage",), *, steps: int = 200) -> list[Row]:
    """Return all rates and decays with the middle history, warm and cold."""
    return [
        replace(row, lr=lr, weight_decay=decay)
        for row in rows(graphs, models, (50,), steps=steps)
        for lr in RATES
        for decay in WEIGHT_DECAYS
    ]


def choose(measured: Iterable[Measured]) -> list[TunedRate]:
    """Return the best for each model, history and restart; ties go to the smaller decay, then to the smaller rate.

    With several graphs it is the best on average, among those with results on the most graphs.
    """
    tried: dict[tuple[str, int, str], dict[tuple[float, float], list[float]]] = {}
    for one in measured:
        row, accuracy = one.row, one.interval("accuracy").mean
        if row.lr is not None and not math.isnan(accuracy):
            of = tried.setdefault((row.model, row.level, row.restart), {})
            of.setdefault((row.lr, row.weight_decay), []).append(accuracy)
    best = []
    for key, of in tried.items():
        most = max(map(len, of.values()))
        found = [TunedRate(*key, *rates, sum(each) / most) for rates, each in of.items() if len(each) == most]
        best.append(max(found, key=lambda choice: (choice.accuracy, -choice.weight_decay, -choice.lr)))
    return best


def tune_table(graph: Subject, results: Results, *, steps: int = 200) -> Table:
    """Return the accuracy of each rate and decay in percent; when all have results, the best are bold."""
    grid = tune_rows([graph], steps=steps)
    found = [results[row] for row in grid if row in results]
    choices = choose(found) if len(found) == len(grid) else []
    chosen = {(choice.restart, choice.lr, choice.weight_decay) for choice in choices}
    columns = (Column("learning rate"), *(Column(f"{decay:g}", "accuracy at weight decay") for decay in WEIGHT_DECAYS))
    lines: list[Any] = []
    for restart in ("cold", "warm"):
        lines.append(Section(f"GraphSAGE, c = {graph.history(50)}, {restart}"))
        for lr in RATES:
            cells = [Cell(lr, form="g")]
            for decay in WEIGHT_DECAYS:
                one = next(
                    (
                        one
                        for one in found
                        if (one.row.restart, one.row.lr, one.row.weight_decay) == (restart, lr, decay)
                    ),
                    None,
                )
                interval = one.interval("accuracy") if one else None
                half = None if interval is None or interval.n < 2 else 100 * interval.half
                value = None if interval is None else 100 * interval.mean
                cells.append(Cell(value, half, (restart, lr, decay) in chosen, ".1f"))
            lines.append(tuple(cells))
    return Table(f"Choosing the learning rate on {graph.name}: accuracy in percent", columns, tuple(lines))


def write_rates(path: Path, choices: Sequence[TunedRate]) -> None:
    """Write tuned rates as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps([vars(choice) for choice in choices], indent=1).encode() + b"\n")


def read_rates(path: Path) -> list[TunedRate]:
    """Read tuned rates, and check them."""
    try:
        content = path.read_bytes()
        found = msgspec.json.decode(content, type=list[TunedRate])
        if msgspec.to_builtins(found) != msgspec.json.decode(content):  # unknown fields
            found = []
    except OSError as error:
        raise InputError(
            f"the file cannot be read ({error.strerror})", file=path, fix="give a file that tune wrote"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = []
    if not found or not all(one.level in LEVELS and one.lr > 0 <= one.weight_decay for one in found):
        raise InputError("the file contains no learning rates", file=path, fix="give a file that tune wrote")
    return found


def apply_rates(grid: Iterable[Row], choices: Sequence[TunedRate]) -> list[Row]:
    """Set the tuned rates of rows without a detector and without a rate of their own."""
    chosen = {(choice.model, choice.level, choice.restart): choice for choice in choices}
    found = []
    for row in grid:
        choice = chosen.get((row.model, row.level, row.restart))
        fits = choice is not None and row.lr is None and row.detector == "none"
        found.append(replace(row, lr=choice.lr, weight_decay=choice.weight_decay) if choice and fits else row)
    return found
