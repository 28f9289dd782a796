"""The paper's figures from measured results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.detect import GDOC
from evergraph.evaluation.metrics import Interval, over_seeds
from evergraph.presentation import style
from evergraph_paper.plan import ALPHAS, LEVELS, MODELS, RESTARTS, THRESHOLDS, Row, Subject
from evergraph_paper.tables import NAMES, Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_COLUMNS = 3
_MOST_TIMES = 4  # tick labels below a panel


def exp2_figure(graphs: Sequence[Subject], results: Results, *, steps: int = 200) -> Figure:
    """Accuracy by history: one column per graph, cold restarts above warm ones."""
    with style.figure(len(RESTARTS), len(graphs), height=2.2) as (picture, axes):
        for column, graph in enumerate(graphs):
            for line, restart in enumerate(RESTARTS):
                panel = axes[line, column]
                for index, model in enumerate(MODELS):
                    rows = [Row(graph, model, level, restart, steps=steps) for level in LEVELS]
                    found = [results[row].interval("accuracy") if row in results else None for row in rows]
                    _line(panel, range(len(LEVELS)), found, NAMES[model], index, scale=100)
                panel.set_xticks(range(len(LEVELS)), [str(graph.history(level)) for level in LEVELS])
                panel.set_title("" if line else graph.name)
                panel.set_xlabel("history, periods" if line else "")
                panel.set_ylabel("" if column else f"{restart}: accuracy, %")
        same_range(axes)
        style.legend_below(picture)
    return picture


def exp2a_figure(graphs: Sequence[Subject], rows: Sequence[Row], results: Results) -> Figure:
    """Accuracy by task, trained once and continually."""
    with _panels(graphs, "accuracy, %", height=2.8) as (picture, places):
        for graph, panel in places:
            chosen = [row for row in rows if row.graph == graph]
            for index, row in enumerate(chosen):
                if row not in results:
                    continue
                found, trained = results[row], "once" if row.restart == "once" else "continually"
                intervals = [over_seeds(values) for values in found.by_task("accuracy").T]
                _line(panel, range(len(intervals)), intervals, f"{NAMES[row.model]}, {trained}", index, scale=100)
                ticks = range(0, len(found.times), max(1, -(-len(found.times) // _MOST_TIMES)))
                panel.set_xticks(list(ticks), [str(found.times[place]) for place in ticks])
            panel.set_title(graph.name)
        style.legend_below(picture)
    return picture


def exp3_figure(graph: Subject, rates: Sequence[float], results: Results, *, steps: int = 200) -> Figure:
    """Accuracy by label rate: one panel per history."""
    with style.figure(1, len(LEVELS), height=2.6, sharey=True) as (picture, axes):
        for column, level in enumerate(LEVELS):
            panel = axes[0, column]
            for index, restart in enumerate(RESTARTS):
                rows = [Row(graph, "sage", level, restart, label_rate=rate, steps=steps) for rate in rates]
                found = [results[row].interval("accuracy") if row in results else None for row in rows]
                _line(panel, rates, found, restart, index, scale=100)
            panel.set_title(f"history {graph.history(level)} ({level} %)")
            panel.set_xticks([rates[0], rates[len(rates) // 2], rates[-1]])
            panel.set_xlabel("label rate, share of vertices")
            panel.set_ylabel("" if column else "accuracy, %")
        style.legend_below(picture)
    return picture


def exp4_figure(graphs: Sequence[Subject], results: Results, *, steps: int = 200) -> Figure:
    """Open-F1 of gDOC by history, and the same with confused classes as in the authors' code (A1)."""
    with _panels(graphs, "Open-F1 (gDOC, τ .75)", height=2.6, sharey=True) as (picture, places):
        for graph, panel in places:
            index = 0
            for figure, told in (("open_f1", "Open-F1"), ("open_f1_published", "Open-F1 as published")):
                for restart in RESTARTS:
                    rows = [Row(graph, "sage", level, restart, "gdoc", steps=steps) for level in LEVELS]
                    rules = [results[row].rule(GDOC(0.75)) if row in results else None for row in rows]
                    found = [rule.interval(figure) if rule else None for rule in rules]
                    _line(panel, range(len(LEVELS)), found, f"{told}, {restart}", index)
                    index += 1
            panel.set_xticks(range(len(LEVELS)), [str(graph.history(level)) for level in LEVELS])
            panel.set_title(graph.name)
            panel.set_xlabel("history, periods")
            panel.set_ylim(bottom=0)
        style.legend_below(picture)
    return picture


def exp4a_figure(graphs: Sequence[Subject], results: Results, *, steps: int = 200) -> Figure:
    """MCC of gDOC by risk reduction (last place: none), with one line per minimum threshold."""
    with _panels(graphs, "MCC", height=2.8) as (picture, places):
        for graph, panel in places:
            found = results.get(Row(graph, "sage", 50, "warm", "gdoc", steps=steps))
            for index, threshold in enumerate(THRESHOLDS):
                rules = [found.rule(GDOC(threshold, alpha)) if found else None for alpha in (*ALPHAS, None)]
                values = [rule.interval("mcc") if rule else None for rule in rules]
                _line(panel, range(len(values)), values, f"minimum threshold {threshold:g}", index)
            panel.set_xticks(range(len(ALPHAS) + 1), [*(f"{alpha:g}" for alpha in ALPHAS), "none"])
            panel.set_title(graph.name)
            panel.set_xlabel("alpha (risk reduction)")
        style.legend_below(picture)
    return picture


@contextmanager
def _panels(
    graphs: Sequence[Subject], ylabel: str, *, height: float, sharey: bool = False
) -> Iterator[tuple[Figure, list[tuple[Subject, Any]]]]:
    """Return a figure with one panel per graph, in rows short enough for readable ticks."""
    columns = min(len(graphs), _MOST_COLUMNS)
    with style.figure(-(-len(graphs) // columns), columns, height=height, sharey=sharey) as (picture, axes):
        for panel in axes.flat[len(graphs) :]:
            panel.set_visible(False)
        for panel in axes[:, 0]:
            panel.set_ylabel(ylabel)
        yield picture, list(zip(graphs, axes.flat, strict=False))


def _line(
    panel: Any, x: Sequence[float] | range, values: Sequence[Interval | None], label: str, index: int, scale: float = 1
) -> None:
    """Draw means with their intervals as a band; nothing without results."""
    if not any(values):
        return
    mean = np.array([math.nan if value is None else value.mean for value in values])
    half = np.array([0.0 if value is None or math.isnan(value.half) else value.half for value in values])
    style.lines_with_band(panel, list(x), scale * mean, scale * (mean - half), scale * (mean + half), label, index)


def same_range(axes: Any) -> None:
    """Give all panels of a column the same range."""
    for column in axes.T:
        limits = [panel.get_ylim() for panel in column]
        for panel in column:
            panel.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
