"""The paper's tables from measured results, next to the paper's own numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.detect import DOC, GDOC
from evergraph.evaluation.metrics import Interval, mean_known, over_seeds
from evergraph.presentation.table import Cell, Column, Section, Table
from evergraph_paper.measured import Measured, transfer
from evergraph_paper.paper import (
    COUNTERPART,
    exp2_printed,
    exp4_printed,
    exp4b_printed,
    exp4c_printed,
    history_of,
)
from evergraph_paper.plan import ALPHAS, LEVELS, MODELS, RESTARTS, THRESHOLDS, Row, Subject, exp4b

Results = Mapping[Row, Measured]
NAMES = {
    "sage": "GraphSAGE",
    "gat": "GAT",
    "gcn": "GCN",
    "sgc": "SGC",
    "jknet": "JKNet",
    "saint": "GraphSAINT",
    "mlp": "MLP",
}
_METHODS: tuple[tuple[str, str, DOC], ...] = (
    ("DOC, τ .5", "doc", DOC(0.5)),
    ("DOC, τ .5, α 3", "doc", DOC(0.5, alpha=3.0)),
    ("DOC, τ .75", "doc", DOC(0.75)),
    ("gDOC, τ .5", "gdoc", GDOC(0.5)),
    ("gDOC, τ .5, α 3", "gdoc", GDOC(0.5, alpha=3.0)),
    ("gDOC, τ .75", "gdoc", GDOC(0.75)),
)
_NOTHING: Mapping[str, Any] = {}


def exp2_table(graph: Subject, results: Results, *, steps: int = 200) -> Table:
    """Accuracy of cold and warm restarts with 95 % intervals, and forward transfer, in percent.

    For each history the best mean is bold, and so are all means whose intervals overlap its interval.
    """
    columns = [Column("model", align="left")]
    columns += [Column(name, "accuracy") for name in RESTARTS] + [Column("transfer")]
    with_paper = history_of(graph.name, LEVELS[0]) is not None
    if with_paper:
        theirs = COUNTERPART[graph.name]
        paper = "paper" if theirs == graph.name else f"paper's {theirs}"
        columns += [Column(name, paper) for name in ("cold", "warm", "transfer")]
    lines: list[Any] = []
    for level in LEVELS:
        lines.append(_section(graph, level))
        measured = {
            (model, restart): found
            for model in MODELS
            for restart in RESTARTS
            if (found := results.get(Row(graph, model, level, restart, steps=steps))) is not None
        }
        best = _best({key: found.interval("accuracy") for key, found in measured.items()})
        for model in MODELS:
            both = [measured.get((model, restart)) for restart in RESTARTS]
            if not any(both):
                continue
            cells = [Cell(NAMES[model])]
            for restart, found in zip(RESTARTS, both, strict=True):
                cells.append(_percent(found.interval("accuracy"), (model, restart) in best) if found else Cell())
            cold, warm = both
            cells.append(_percent(transfer(warm, cold), signed=True) if cold and warm else Cell())
            if with_paper:
                cells += _paper_exp2(graph.name, model, level)
            lines.append(tuple(cells))
    title = f"Experiment 2, {graph.name}: accuracy and forward transfer, in percent"
    return Table(title, tuple(columns), _filled(lines))


def _paper_exp2(graph: str, model: str, level: int) -> list[Cell]:
    row = exp2_printed(graph, model, level) or _NOTHING
    cells = [
        Cell(row.get(f"{restart}_acc"), row.get(f"{restart}_ci"), row.get(f"{restart}_bold", False), ".1f")
        for restart in RESTARTS
    ]
    return [*cells, Cell(row.get("fwt"), form="+.1f")]


def exp2a_table(graph: Subject, rows: Sequence[Row], results: Results) -> Table:
    """Accuracy of training once and continually: mean over all tasks, the first third and the last third of them."""
    columns = (
        Column("model", align="left"),
        Column("trained", align="left"),
        Column("all tasks"),
        Column("first third"),
        Column("last third"),
    )
    lines: list[Any] = []
    for row in rows:
        found = results.get(row)
        if found is None or row.graph != graph:
            continue
        accuracy = found.by_task("accuracy")
        third = max(accuracy.shape[1] // 3, 1)
        parts = (accuracy, accuracy[:, :third], accuracy[:, -third:])
        cells = [_percent(over_seeds(mean_known(part, axis=1))) for part in parts]
        lines.append((Cell(NAMES[row.model]), Cell("once" if row.restart == "once" else "on and on"), *cells))
    return Table(
        f"Experiment 2a, {graph.name}: trained once against trained on, accuracy in percent", columns, _filled(lines)
    )


def exp3_table(graph: Subject, rates: Sequence[float], results: Results, *, steps: int = 200) -> Table:
    """Accuracy by label rate for each history and restart, and the gain of warm over cold, in percent."""
    columns = [Column("label rate")]
    columns += [
        Column(name, f"{_history(graph, level)} ({level} %)") for level in LEVELS for name in ("cold", "warm", "gain")
    ]
    lines: list[Any] = []
    for rate in rates:
        cells = [Cell(rate, form="g")]
        for level in LEVELS:
            rows = [Row(graph, "sage", level, restart, label_rate=rate, steps=steps) for restart in RESTARTS]
            cold, warm = (results.get(row) for row in rows)
            cells += [_percent(found.interval("accuracy")) if found else Cell() for found in (cold, warm)]
            gain = over_seeds(_paired(warm, cold, "accuracy")) if cold and warm else None
            cells.append(_percent(gain, signed=True) if gain else Cell())
        lines.append(tuple(cells))
    return Table(f"Experiment 3, {graph.name}: accuracy by label rate, in percent", tuple(columns), _filled(lines))


def exp4_table(graph: Subject, results: Results, *, steps: int = 200) -> Table:
    """Detection of unseen classes: MCC, Open-F1, and Open-F1 with confused classes as in the authors' code (A1)."""
    groups = ("MCC", "Open-F1", "Open-F1, as published")
    columns = [Column("method", align="left"), *(Column(name, group) for group in groups for name in RESTARTS)]
    with_paper = exp4_printed(graph.name, 25, "gdoc", 0.5, None) is not None
    if with_paper:
        columns += [Column(name, f"paper's {group}") for group in groups[:2] for name in RESTARTS]
    lines: list[Any] = []
    for level in LEVELS:
        lines.append(_section(graph, level))
        block = []
        for name, detector, rule in _METHODS:
            rows = [Row(graph, "sage", level, restart, detector, steps=steps) for restart in RESTARTS]
            found = [results[row].rule(rule) if row in results else None for row in rows]
            if any(found):
                figures = [
                    one.interval(figure) if one else None
                    for figure in ("mcc", "open_f1", "open_f1_published")
                    for one in found
                ]
                block.append((name, detector, rule, figures))
        best = [_largest([figures[place] for _, _, _, figures in block]) for place in range(6)]
        for number, (name, detector, rule, figures) in enumerate(block):
            cells = [Cell(name), *(_figure(value, number == best[place]) for place, value in enumerate(figures))]
            if with_paper:
                printed = exp4_printed(graph.name, level, detector, rule.threshold, rule.alpha) or _NOTHING
                cells += [
                    Cell(printed.get(f"{figure}_{restart}"), form=".2f")
                    for figure in ("mcc", "open_f1")
                    for restart in RESTARTS
                ]
            lines.append(tuple(cells))
    return Table(
        f"Experiment 4, {graph.name}: detection of unseen classes with GraphSAGE", tuple(columns), _filled(lines)
    )


def exp4a_table(graph: Subject, results: Results, *, steps: int = 200) -> Table:
    """MCC of gDOC by minimum threshold and alpha, with the middle history and warm restarts."""
    names = [*(f"{alpha:g}" for alpha in ALPHAS), "none"]
    columns = (Column("least threshold"), *(Column(name, "MCC at alpha") for name in names))
    found = results.get(Row(graph, "sage", 50, "warm", "gdoc", steps=steps))
    every = [
        [found.rule(GDOC(threshold, alpha)) if found else None for alpha in (*ALPHAS, None)] for threshold in THRESHOLDS
    ]
    means = [[rule.interval("mcc") if rule else None for rule in line] for line in every]
    best = _largest([value for line in means for value in line])
    lines = tuple(
        (
            Cell(threshold, form="g"),
            *(_figure(value, number * len(names) + place == best) for place, value in enumerate(means[number])),
        )
        for number, threshold in enumerate(THRESHOLDS)
    )
    return Table(f"Experiment 4a, {graph.name}: MCC of gDOC, c = {graph.history(50)}, warm", columns, lines)


def exp4b_table(graph: Subject, results: Results, *, steps: int = 200) -> Table:
    """Models with gDOC (τ .75), and SGC with one hop at the authors' rates and at those of their GAT script."""
    groups = ("accuracy", "MCC", "Open-F1")
    columns = [Column("model", align="left"), *(Column(name, group) for group in groups for name in RESTARTS)]
    with_paper = exp4b_printed(graph.name, 25, "sage") is not None
    if with_paper:
        columns += [Column(name, f"paper's {group}") for group in groups for name in RESTARTS]
    variants = [row for row in exp4b([graph], (), steps=steps) if row.hops == 1]
    lines: list[Any] = []
    for level in LEVELS:
        lines.append(_section(graph, level))
        for model in ("sage", "sgc", "gat"):
            rows = [Row(graph, model, level, restart, "gdoc", steps=steps) for restart in RESTARTS]
            cells = _gdoc_cells(NAMES[model], rows, results)
            if cells and with_paper:
                cells += _paper_4b(exp4b_printed(graph.name, level, model))
            lines += [tuple(cells)] if cells else []
        for name, own in (("SGC, 1 hop", True), ("SGC, 1 hop, rates of the GAT script", False)):
            rows = [row for row in variants if row.level == level and (row.lr is None) == own]
            cells = _gdoc_cells(name, rows, results)
            if cells and with_paper:
                cells += _paper_4b(exp4b_printed(graph.name, level, "sgc" if own else "gat"))
            lines += [tuple(cells)] if cells else []
    title = f"Experiment 4b, {graph.name}: models under gDOC with threshold .75 (accuracy in percent)"
    return Table(title, tuple(columns), _filled(lines))


def _gdoc_cells(name: str, rows: Sequence[Row], results: Results) -> list[Cell]:
    """Return the name and six metrics of the cold and warm rows; empty without results."""
    found = [results.get(row) for row in rows]
    if not any(found):
        return []
    rules = [one.rule(GDOC(0.75)) if one else None for one in found]
    accuracy = [_percent(one.interval("accuracy")) if one else Cell() for one in found]
    rest = [_figure(rule.interval(figure) if rule else None) for figure in ("mcc", "open_f1") for rule in rules]
    return [Cell(name), *accuracy, *rest]


def _paper_4b(printed: Mapping[str, Any] | None) -> list[Cell]:
    row = printed or _NOTHING
    return [
        Cell(row.get(f"{figure}_{restart}"), form=form)
        for figure, form in (("id_acc", ".1f"), ("mcc", ".2f"), ("open_f1", ".2f"))
        for restart in RESTARTS
    ]


def exp4c_table(graph: Subject, results: Results, *, steps: int = 200) -> Table:
    """Cost of detection: accuracy of the best known class, flagged or not, and MCC."""
    groups = ("accuracy", "MCC")
    columns = [Column("method", align="left"), *(Column(name, group) for group in groups for name in RESTARTS)]
    with_paper = exp4c_printed(graph.name, 25, "none") is not None
    if with_paper:
        columns += [Column(name, f"paper's {group}") for group in groups for name in RESTARTS]
    methods: tuple[tuple[str, str, DOC | None], ...] = (
        ("GraphSAGE", "none", None),
        ("with DOC, τ .5, α 3", "doc", DOC(0.5, alpha=3.0)),
        ("with gDOC, τ .75", "gdoc", GDOC(0.75)),
    )
    lines: list[Any] = []
    for level in LEVELS:
        lines.append(_section(graph, level))
        for name, detector, rule in methods:
            rows = [Row(graph, "sage", level, restart, detector, steps=steps) for restart in RESTARTS]
            found = [results.get(row) for row in rows]
            if not any(found):
                continue
            cells = [Cell(name), *(_percent(one.interval("accuracy")) if one else Cell() for one in found)]
            decided = [one.rule(rule) if one and rule else None for one in found]
            cells += [_figure(one.interval("mcc") if one else None) for one in decided]
            if with_paper:
                printed = exp4c_printed(graph.name, level, detector) or _NOTHING
                cells += [Cell(printed.get(f"id_acc_{restart}"), form=".1f") for restart in RESTARTS]
                cells += [Cell(printed.get(f"mcc_{restart}"), form=".2f") for restart in RESTARTS]
            lines.append(tuple(cells))
    return Table(
        f"Experiment 4c, {graph.name}: what detection costs (accuracy in percent)", tuple(columns), _filled(lines)
    )


def _filled(lines: Sequence[Any]) -> tuple[Any, ...]:
    """Remove empty sections."""
    pairs = zip(lines, [*lines[1:], Section("")], strict=False)
    return tuple(line for line, after in pairs if not (isinstance(line, Section) and isinstance(after, Section)))


def _history(graph: Subject, level: int) -> str:
    return f"c = {graph.history(level)}"


def _section(graph: Subject, level: int) -> Section:
    printed = history_of(graph.name, level)
    paper = f"; paper {printed}" if printed is not None and printed != graph.history(level) else ""
    return Section(f"{_history(graph, level)} ({level} %{paper})")


def _percent(interval: Interval, bold: bool = False, *, signed: bool = False) -> Cell:
    half = None if math.isnan(interval.half) else 100 * interval.half
    return Cell(100 * interval.mean, half, bold, "+.1f" if signed else ".1f")


def _figure(interval: Interval | None, bold: bool = False) -> Cell:
    return Cell(form=".3f") if interval is None else Cell(interval.mean, interval.half, bold, ".3f")


def _best(intervals: Mapping[Any, Interval]) -> set[Any]:
    """Return the largest mean, and those whose intervals overlap its interval."""
    known = {key: value for key, value in intervals.items() if not math.isnan(value.mean)}
    if not known:
        return set()
    top = max(known.values(), key=lambda value: value.mean)
    least = top.mean if math.isnan(top.half) else top.low
    return {key for key, value in known.items() if (value.mean if math.isnan(value.half) else value.high) >= least}


def _largest(values: Iterable[Interval | None]) -> int | None:
    means = [-math.inf if value is None or math.isnan(value.mean) else value.mean for value in values]
    return int(np.argmax(means)) if means and max(means) > -math.inf else None


def _paired(one: Measured, other: Measured, figure: str) -> NDArray[np.float64]:
    """Return the differences of a metric over the shared seeds."""
    shared = [seed for seed in one.seeds if seed in other.seeds]
    return np.asarray(one.of_seeds(shared).per_seed(figure) - other.of_seeds(shared).per_seed(figure))
