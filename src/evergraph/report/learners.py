"""Table, figure and JSON of a comparison of learners."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evergraph import __version__
from evergraph.evaluation.class_age import ABSENT, NEW, OLD
from evergraph.evaluation.configuration import seed_ranges
from evergraph.evaluation.learners import LearnerComparison
from evergraph.evaluation.results import NUMERICS_VERSION, Summary
from evergraph.evaluation.workers import graph_of
from evergraph.names import described
from evergraph.presentation import style
from evergraph.presentation.table import Cell, Column, Row, Section, Table, write
from evergraph.presentation.text import command_line
from evergraph.storage.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["cost_figure", "learners_table", "pareto_front", "write_learners"]

_MB = 1e6
# Metric, group and head of its column, number format, whether more (1) or less (-1) is better, and its unit.
_COLUMNS: tuple[tuple[str, str, str, str, int, float], ...] = (
    ("accuracy", "accuracy", "all", ".3f", 1, 1),
    ("forgetting", "accuracy", "absent", ".3f", 1, 1),
    ("accuracy_new", "accuracy", "new", ".3f", 1, 1),
    ("accuracy_old", "accuracy", "old", ".3f", 1, 1),
    ("seconds", "update", "s", ".3g", -1, 1),
    ("bytes_kept", "", "kept, MB", ".2f", -1, _MB),
    ("mcc", "", "MCC", ".3f", 1, 1),
    ("macro_f1", "", "macro-F1", ".3f", 1, 1),
    ("forward_transfer", "", "transfer", "+.3f", 1, 1),
    ("accuracy_middle", "accuracy", "middle", ".3f", 1, 1),
    ("id_accuracy", "accuracy", "known", ".3f", 1, 1),
    ("cpu_seconds", "update", "CPU, s", ".3g", -1, 1),
    ("peak_memory", "update", "peak, MB", ".0f", -1, _MB),
    ("seconds_total", "all updates", "s", ".3g", -1, 1),
)
Cost = Literal["seconds", "cpu_seconds"]
_UNITS = {"seconds": "seconds", "cpu_seconds": "CPU seconds"}
_GREY = "#999999"
_MOST_COLUMNS = 3  # panels beside each other


def learners_table(comparison: LearnerComparison) -> Table:
    """Return a table with one row per graph and learner, and their means over several graphs; the best are bold."""
    names = [one.name for one in comparison.learners]
    rows: list[Row | Section] = []
    for graph in comparison.graphs:
        rows += _block(graph, {name: comparison.summary(graph, name) for name in names})
    if len(comparison.graphs) > 1:
        rows += _block("mean over graphs", {name: comparison.over_graphs(name) for name in names})
    columns = (Column("learner", align="left"), *(Column(head, group) for _, group, head, _, _, _ in _COLUMNS))
    return Table(
        "Learners: accuracy by age of the class, and cost of an update", columns, tuple(rows), note=_note(comparison)
    )


def _block(title: str, summaries: Mapping[str, Mapping[str, Summary]]) -> list[Row | Section]:
    found = {name: summary for name, summary in summaries.items() if summary}
    if not found:
        return []
    rows: list[Row | Section] = [Section(title)]
    best = {
        metric: _best([one[metric]["mean"] for one in found.values()], sign) for metric, _, _, _, sign, _ in _COLUMNS
    }
    for name, summary in found.items():
        cells = [Cell(name)]
        for metric, _, _, form, _, unit in _COLUMNS:
            mean, half = summary[metric]["mean"], summary[metric]["ci95"]
            bold = mean is not None and mean == best[metric]
            cells.append(Cell(_in(unit, mean), _in(unit, half), bold=bold, form=form))
        rows.append(tuple(cells))
    return rows


def _in(unit: float, value: float | None) -> float | None:
    return None if value is None else value / unit


def _best(means: Sequence[float | None], sign: int) -> float | None:
    known = [mean for mean in means if mean is not None]
    return sign * max(sign * mean for mean in known) if len(means) > 1 and known else None


def _note(comparison: LearnerComparison) -> str:
    base, usual = comparison.base, type(comparison.base)()
    options = "".join(
        f" --{name.replace('_', '-')} {getattr(base, name)}"
        for name in (
            "inputs",
            "history",
            "first",
            "restart",
            "steps",
            "lr",
            "label_rate",
            "label_latency",
            "mode",
            "retire_after",
        )
        if getattr(base, name) != getattr(usual, name)
    )
    for name in ("detector", "memory", "regulariser"):
        if (part := getattr(base, name)) is not None and part != getattr(usual, name):
            options += f" --{'detectors' if name == 'detector' else name} {_as_text(described(part))}"
    learners = ",".join(one.name for one in comparison.learners)
    data = ", ".join(f"{name} {graph_of(path)[1][:8]}" for name, path in comparison.graphs.items())
    spread = "; ± is half the width of the 95 % interval of the mean over seeds" if len(comparison.seeds) > 1 else ""
    return (
        f"{command_line('compare', *comparison.graphs, '--learners', learners)} "
        f"--seeds {seed_ranges(comparison.seeds)}{options}\n"
        f"Model: {base.model!r}. Detector: {described(base.detector)['name']}. Data: {data}. Evergraph {__version__}, "
        f"numerics version {NUMERICS_VERSION}.\n"
        f"Classes are new if their first label is at most {NEW} periods old, old if it is more than {OLD} periods old, "
        f"and absent without a label in the {ABSENT} newest periods, where forgetting shows. All: all labelled "
        "vertices; known: classes that the learner knows. MCC is over all tasks together. Peak: rise of the memory of "
        "the process; kept: saved learner, features and edges that are needed to continue. Other metrics are means "
        f"over tasks{spread}."
    )


def _as_text(part: Mapping[str, Any]) -> str:
    """Return a part as the command line takes it."""
    settings = ",".join(f"{name}={value}" for name, value in part.items() if name not in ("name", "version") and value)
    return f"{part['name']}:{settings}" if settings else str(part["name"])


# --- figure ----------------------------------------------------------------------------------------------------------


def pareto_front(costs: Sequence[float], values: Sequence[float]) -> list[int]:
    """Return the places of the points that no other point beats: cheaper and at least as good; ascending by cost.

    Examples
    --------
    >>> pareto_front([1.0, 2.0, 3.0, 4.0], [0.5, 0.4, 0.7, 0.7])
    [0, 2]
    """
    front: list[int] = []
    for place in sorted(range(len(costs)), key=lambda one: (costs[one], -values[one])):
        if not front or values[place] > values[front[-1]]:
            front.append(place)
    return front


def cost_figure(comparison: LearnerComparison, cost: Cost = "seconds") -> Figure:
    """Draw accuracy against the cost of an update: a panel for each graph, a point for each learner.

    A line joins the learners than which none is both cheaper and better (the Pareto front).
    """
    names = list(comparison.graphs)
    columns = min(len(names), _MOST_COLUMNS)
    rows = -(-len(names) // columns)
    legend = 0.2 * (-(-len(comparison.learners) // 2)) / rows  # inches of a row that the legend may take
    with style.figure(rows, columns, height=2.2 + legend) as (picture, grid):
        panels = list(grid.flat)
        for panel in panels[len(names) :]:
            panel.remove()
        for place, (panel, graph) in enumerate(zip(panels, names, strict=False)):
            _panel(panel, comparison, graph, cost)
            panel.set_title(style.plain(graph))
            if place % columns == 0:
                panel.set_ylabel("accuracy")
            if place >= len(names) - columns:
                panel.set_xlabel(f"{_UNITS[cost]} of an update")
        style.legend_below(picture)
    return picture


def _panel(panel: Axes, comparison: LearnerComparison, graph: str, cost: Cost) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    costs, values, looks = [], [], []
    for index, one in enumerate(comparison.learners):
        summary = comparison.summary(graph, one.name)
        spent, value = (summary[name]["mean"] if summary else None for name in (cost, "accuracy"))
        if spent is not None and value is not None:
            costs.append(spent)
            values.append(value)
            looks.append((one.name, style.series(index)))
    front = pareto_front(costs, values)
    panel.plot(
        [costs[one] for one in front],
        [values[one] for one in front],
        color=_GREY,
        linewidth=1,
        zorder=1,
        label="no learner is cheaper and better",
    )
    for number, (name, look) in enumerate(looks):
        look = {"linestyle": "", "color": look["color"], "marker": look["marker"], "markersize": 5.5}
        face = look["color"] if number in front else "white"
        panel.plot([], [], label=style.plain(name), **look)  # the legend shows a filled marker
        panel.plot(costs[number], values[number], markerfacecolor=face, zorder=2, **look)
    panel.set_xscale("log")
    few = bool(costs) and max(costs) / min(costs) < 30  # too few powers of ten for labels
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.margins(0.12)


def write_learners(comparison: LearnerComparison, out: Path, cost: Cost = "seconds") -> list[Path]:
    """Write table, figure and JSON into a folder, and return the files.

    On a busy machine, let the figure show ``"cpu_seconds"``.
    """
    table = learners_table(comparison)
    files = write(table, out / "learners")
    data = json.dumps(comparison.as_dict(), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(out / "learners.json", data.encode() + b"\n")
    files.append(out / "learners.json")
    note = "\n".join(table.note.splitlines()[:2])
    return files + style.save(cost_figure(comparison, cost), out / "accuracy-cost", note)
