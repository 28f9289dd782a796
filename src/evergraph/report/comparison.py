"""Table, figures and JSON of a comparison of detectors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph import __version__
from evergraph.evaluation.comparison import Comparison
from evergraph.evaluation.configuration import seed_ranges
from evergraph.evaluation.results import NUMERICS_VERSION, Summary
from evergraph.evaluation.workers import graph_of
from evergraph.presentation import style
from evergraph.presentation.style import save
from evergraph.presentation.table import Cell, Column, Row, Section, Table, write
from evergraph.presentation.text import command_line
from evergraph.storage.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["compared_table", "tasks_figure", "write_comparison"]

# Metric, head of its column, number format, and whether more (1) or less (-1) is better.
_COLUMNS: tuple[tuple[str, str, str, int], ...] = (
    ("mcc", "MCC", ".3f", 1),
    ("false_alarm_rate", "false alarms", ".3f", 0),
    ("auroc", "AUROC", ".3f", 1),
    ("open_f1", "Open-F1", ".3f", 1),
    ("aupr", "AUPR", ".3f", 1),
    ("fpr95", "FPR@95", ".3f", -1),
    ("oracle_mcc", "oracle MCC", ".3f", 1),
    ("flagged", "flagged", ".3f", 0),
    ("unseen", "unseen", ".3f", 0),
    ("id_accuracy", "ID accuracy", ".3f", 1),
    ("seconds_detector", "detector, s", ".2f", 0),
    ("seconds_training", "training, s", ".1f", 0),
)
_MOST_TIMES = 8  # tick labels below a panel
_GREY = "#999999"
_MARGIN = 0.03  # above and below the range of a metric, so that markers are not cut


def compared_table(comparison: Comparison) -> Table:
    """Return a table with one row per graph and detector, and their means over several graphs; the best are bold."""
    names = [one.name for one in comparison.candidates]
    rows: list[Row | Section] = []
    for graph in comparison.graphs:
        rows += _block(graph, {name: comparison.summary(graph, name) for name in names})
    if len(comparison.graphs) > 1:
        rows += _block("mean over graphs", {name: comparison.over_graphs(name) for name in names})
    columns = (Column("detector", align="left"), *(Column(head) for _, head, _, _ in _COLUMNS))
    return Table("Detection of unseen classes by detector", columns, tuple(rows), note=_note(comparison))


def _block(title: str, summaries: Mapping[str, Mapping[str, Summary]]) -> list[Row | Section]:
    found = {name: summary for name, summary in summaries.items() if summary}
    if not found:
        return []
    best = {metric: _best([one[metric]["mean"] for one in found.values()], sign) for metric, _, _, sign in _COLUMNS}
    rows: list[Row | Section] = [Section(title)]
    for name, summary in found.items():
        cells = [Cell(name)]
        for metric, _, form, _ in _COLUMNS:
            mean, half = summary[metric]["mean"], summary[metric]["ci95"]
            cells.append(Cell(mean, half, bold=mean is not None and mean == best[metric], form=form))
        rows.append(tuple(cells))
    return rows


def _best(means: Sequence[float | None], sign: int) -> float | None:
    known = [mean for mean in means if mean is not None]
    return sign * max(sign * mean for mean in known) if known and sign and len(means) > 1 else None


def _note(comparison: Comparison) -> str:
    settings, usual = comparison.configuration, type(comparison.configuration)()
    options = (
        "".join(
            f" --{name.replace('_', '-')} {getattr(settings, name)}"
            for name in ("inputs", "history", "first", "restart", "steps", "lr", "label_rate", "label_latency", "mode")
            if getattr(settings, name) != getattr(usual, name)
        )
        + " --leave-one-out" * comparison.left_out
    )
    data = ", ".join(f"{name} {graph_of(path)[1][:8]}" for name, path in comparison.graphs.items())
    detectors = ",".join(one.name for one in comparison.candidates)
    spread = "; ± is half the width of the 95 % interval of the mean over seeds" if len(comparison.seeds) > 1 else ""
    return (
        f"{command_line('compare', *comparison.graphs, '--detectors', detectors)} "
        f"--seeds {seed_ranges(comparison.seeds)}{options}\n"
        f"Model: {settings.model!r}. Data: {data}. Evergraph {__version__}, numerics version {NUMERICS_VERSION}.\n"
        f"Open-F1 and ID accuracy are means over tasks; all other metrics are over all tasks together{spread}."
    )


def tasks_figure(comparison: Comparison, graph: str) -> Figure:
    """Draw each task: the MCC of each detector above, and its flagged share next to the unseen share below."""
    with style.figure(2, 1, height=2.2) as (picture, axes):
        above, below = axes[:, 0]
        times: list[Any] = []
        for index, one in enumerate(comparison.candidates):
            tasks = comparison.by_task(graph, one.name)
            if not tasks:
                continue
            if not times:
                times = [task["time"] for task in tasks]
                unseen = [_number(task["unseen"]["mean"]) for task in tasks]
                below.plot(range(len(times)), unseen, color=_GREY, linewidth=4, alpha=0.6, label="truly unseen")
            for panel, metric in ((above, "mcc"), (below, "flagged")):
                mean = np.array([_number(task[metric]["mean"]) for task in tasks])
                half = np.nan_to_num([_number(task[metric]["ci95"]) for task in tasks])
                style.lines_with_band(panel, range(len(tasks)), mean, mean - half, mean + half, one.name, index)
        ticks = range(0, len(times), max(1, -(-len(times) // _MOST_TIMES)))
        for panel, label in ((above, "MCC (1 is perfect)"), (below, "flagged, share of vertices")):
            panel.set_xticks(list(ticks), [str(times[place]) for place in ticks])
            panel.set_ylabel(label)
        below.set_xlabel("task")
        above.set_title(f"{style.plain(graph)}: detection of unseen classes by task")
        for panel, least in ((above, -1.0), (below, 0.0)):  # intervals of few seeds may exceed the possible range
            low, high = panel.get_ylim()
            panel.set_ylim(max(low, least - _MARGIN), min(high, 1 + _MARGIN))
        style.legend_below(picture)
    return picture


def write_comparison(comparison: Comparison, out: Path) -> list[Path]:
    """Write table, figures and JSON into a folder, and return the files."""
    table = compared_table(comparison)
    files = write(table, out / "compared")
    data = json.dumps(comparison.as_dict(), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(out / "compared.json", data.encode() + b"\n")
    files.append(out / "compared.json")
    for graph in comparison.graphs:
        if any(one.graph == graph for one in comparison.outcomes):
            files += save(tasks_figure(comparison, graph), out / f"tasks-{graph}", table.note)
    return files


def _number(value: float | None) -> float:
    return math.nan if value is None else value
