"""Figure and tables of a search for settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.presentation.style import COLOURS, figure, save
from evergraph.presentation.table import Cell, Column, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evergraph.evaluation.results import Summary
    from evergraph.evaluation.tuning import Later, Tuning

__all__ = ["best_table", "draw_tuning", "found_table", "later_table"]

_NAMES = {"lr": "learning rate", "hidden": "width (hidden)"}
_METRICS = {"accuracy": "accuracy", "open_f1": "Open-F1", "mcc": "MCC"}


def draw_tuning(found: Tuning, folder: str | Path, note: str = "") -> list[Path]:
    """Draw the value of each trial, the best so far, and the importance of each parameter; as SVG and PNG."""
    from matplotlib.ticker import MaxNLocator

    with figure(1, 2, height=2.8) as (picture, axes):
        trials, shares = axes[0]
        places = np.array([trial.number for trial in found.trials])
        values = np.array([np.nan if trial.value is None else trial.value for trial in found.trials])
        pruned = np.array([trial.outcome == "pruned" for trial in found.trials])
        best = np.maximum.accumulate(np.where(pruned | np.isnan(values), -np.inf, values))
        known = np.isfinite(best)
        trials.step(places[known], best[known], where="post", color=COLOURS[0], label="best so far")
        trials.plot(places[~pruned], values[~pruned], "o", color=COLOURS[0], markersize=3.5, label="trial")
        if pruned.any():
            trials.plot(places[pruned], values[pruned], "x", color="#666666", markersize=4, label="stopped early")
        if found.default_value is not None:
            trials.axhline(found.default_value, color=COLOURS[1], linestyle="--", linewidth=1.2, label="defaults")
        trials.set(title="Trials", xlabel="trial", ylabel=f"{found.search.metric} on the tuning tasks")
        trials.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        trials.legend(frameon=False, fontsize=7, loc="best")
        names = list(found.importances)[::-1]
        shares.set(title="What mattered", xlabel="importance")
        if names:
            shares.barh([_NAMES.get(name, name) for name in names], [found.importances[name] for name in names])
            for bar in shares.patches:
                bar.set_color(COLOURS[2])
        else:
            shares.text(0.5, 0.5, "too few trials", ha="center", transform=shares.transAxes)
            shares.set(xticks=[], yticks=[])
    return save(picture, Path(folder) / "tuning", note)


def best_table(found: Tuning, most: int = 5) -> Table:
    """Return the best trials."""
    names = list(found.search.space)
    rows = [
        (
            Cell(str(trial.number)),
            Cell(trial.value, form=".3f"),
            *(Cell(_shown(trial.parameters[name])) for name in names),
            Cell(trial.seconds, form=".1f"),
        )
        for trial in found.best[:most]
    ]
    words = {"pruned": "stopped early", "reused": "with the same settings as another", "failed": "failed"}
    numbers = {word: sum(trial.outcome == outcome for trial in found.trials) for outcome, word in words.items()}
    counts = ", ".join(f"{number} {word}" for word, number in numbers.items() if number)
    note = f"{len(found.trials)} trials{f' ({counts})' if counts else ''}. Trial 0 has the defaults."
    heads = [Column("trial"), Column(found.search.metric), *map(Column, names), Column("seconds")]
    return Table("Best trials", tuple(heads), tuple(rows), note)


def found_table(found: Tuning) -> Table:
    """Return the settings found beside the defaults."""
    best, start = found.best[0].parameters, found.search.start
    rows = [(Cell(name), Cell(_shown(best[name])), Cell(_shown(start[name]))) for name in found.search.space]
    values = (Cell(found.value, form=".3f"), Cell(found.default_value, form=".3f"))
    rows.append((Cell(f"{found.search.metric} on the tuning tasks"), *values))
    heads = (Column("setting", align="left"), Column("found"), Column("default"))
    return Table("Settings", heads, tuple(rows))


def later_table(found: Tuning, later: Later) -> Table:
    """Return the results on later tasks, with the settings found and with the defaults."""
    metrics = dict.fromkeys(["accuracy", found.search.metric.replace("-", "_")])

    def row(name: str, one: Mapping[str, Summary]) -> tuple[Cell, ...]:
        cells = [Cell(one[metric]["mean"], one[metric]["ci95"], form=".3f") for metric in metrics]
        return (Cell(name), *cells, Cell(one["seconds"]["mean"], form=".1f"))

    rows = (row("found", later.tuned), row("defaults", later.defaults))
    heads = (Column("settings", align="left"), *(Column(_METRICS[metric]) for metric in metrics), Column("seconds"))
    span = str(later.times[0]) if len(later.times) == 1 else f"{later.times[0]} to {later.times[-1]}"
    seeds = ", ".join(map(str, later.seeds))
    spread = "; ± is half the width of the 95 % interval of the mean" if len(later.seeds) > 1 else ""
    note = f"On {span}, which the search has not seen. Means over seeds {seeds}{spread}."
    return Table("Later tasks", heads, rows, note)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
