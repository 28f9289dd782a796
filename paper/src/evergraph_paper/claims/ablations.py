"""Claims of experiments 2a and 3: training once, and few labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.evaluation.metrics import pooled
from evergraph.learning.learner import Restart
from evergraph_paper.claims.evidence import Evidence, judged, mean_accuracy
from evergraph_paper.claims.verdict import (
    Gap,
    Paired,
    Verdict,
    answer,
    average,
    every_part,
    listed,
    mean_of,
    on_graphs,
    paired,
    parts_in_words,
    subtract,
)
from evergraph_paper.measured import Measured
from evergraph_paper.plan import LABEL_RATES, RESTARTS, exp2a
from evergraph_paper.subject import LEVELS

__all__ = ["c9", "c10"]

FEW_LABELS = 0.3
STANDS_STILL = 0.02


# --- trained once ----------------------------------------------------------------------------------------------------


def c9(evidence: Evidence) -> Verdict:
    """C9: a model that is trained once decays where classes appear, and training on is better.

    Both parts must hold for each model on each graph:

    - where classes appear during the tasks, accuracy of the model that was trained once falls: its slope over the
      tasks is below 0 with its interval, and the last third of the tasks is below the first. Where none appear, the
      last third is within 2 points of the first;
    - the model that is trained on is better as a mean over tasks, with the interval of the difference.
    """
    grid = exp2a(evidence.graphs.values(), steps=evidence.steps)
    pairs = [
        (once, on)
        for first, second in zip(grid[::2], grid[1::2], strict=True)
        if (once := evidence.measured.get(first)) and (on := evidence.measured.get(second)) and paired(on, once)
    ]
    by_graph: dict[str, bool | None] = {}
    numbers, details = [], dict[str, Any]()
    for graph in dict.fromkeys(once.row.graph.name for once, _ in pairs):
        here = [(once, on) for once, on in pairs if once.row.graph.name == graph]
        appear = any(bool(once.unseen_by_task("_never_before").sum()) for once, _ in here)
        texts, cells = [], {}
        for once, on in here:
            gap, slope, change = Gap.of(paired(on, once)), slope_of(once), _last_less_first(once)
            as_said = slope.below and change < 0 if appear else abs(change) <= STANDS_STILL
            cells[once.row.model] = {
                "verdict": answer(as_said and gap.above),
                "slope": slope,
                "last_third_less_first": change,
                "on_less_once": gap,
            }
            texts.append(f"{once.row.model} last third {100 * change:+.1f}, training on {gap.points}")
        by_graph[graph] = all(cell["verdict"] == "holds" for cell in cells.values())
        classes = "classes appear" if appear else "no classes appear"
        numbers.append(f"{graph} ({classes}): {', '.join(texts)}")
        details[graph] = {"verdict": answer(by_graph[graph]), "classes_appear": appear, "models": cells}
    return judged(
        "C9",
        "A model that is trained once gets worse over time where classes appear and stands still where none do; "
        "training on is better everywhere.",
        on_graphs(by_graph),
        numbers=numbers,
        missing="experiment 2a, trained once and trained on",
        paper="shown in a figure; no numbers are printed (A14)",
        used=[found for pair in pairs for found in pair],
        details={"graphs": details},
    )


def slope_of(found: Measured) -> Gap:
    """Slope of accuracy a task: over seeds, or with one seed by least squares with 1.96 standard errors."""
    fits = [_line(row) for row in found.by_task("accuracy")]
    if len(fits) > 1:
        return Gap.of_seeds([slope for slope, _ in fits])
    slope, error = fits[0]
    return Gap(slope, 1.96 * error, 1, "tasks")


def _line(values: NDArray[np.float64]) -> tuple[float, float]:
    """Slope, and its standard error."""
    x, y = np.flatnonzero(~np.isnan(values)).astype(np.float64), values[~np.isnan(values)]
    if len(x) < 3:
        return math.nan, math.nan
    spread = ((x - x.mean()) ** 2).sum()
    slope = ((x - x.mean()) * (y - y.mean())).sum() / spread
    left = y - y.mean() - slope * (x - x.mean())
    return float(slope), float(np.sqrt((left**2).sum() / (len(x) - 2) / spread))


def _last_less_first(found: Measured) -> float:
    accuracy = found.by_task("accuracy")
    third = max(accuracy.shape[1] // 3, 1)
    return pooled(accuracy[:, -third:]).mean - pooled(accuracy[:, :third]).mean


# --- few labels ------------------------------------------------------------------------------------------------------


def c10(evidence: Evidence) -> Verdict:
    """C10: accuracy falls with the label rate, and warm restarts matter more with short histories and few labels.

    All parts must hold on each graph, for GraphSAGE:

    - labels: each history and restart is better at the highest label rate than at the lowest, with the interval of the
      difference, and the mean over them falls nowhere as the rate rises;
    - warm: warm restarts are better than cold ones in each cell of history and rate (by the mean);
    - history: their gain, as a mean over rates, is larger with the smallest history than with the full one, with the
      interval of the difference;
    - rates: their gain, as a mean over histories, is larger at rates up to .3 than above, likewise.

    Both gains are compared over the rates, or the histories, that both sides have. For a part to hold all nine rates
    and four histories are needed.
    """
    by_graph: dict[str, bool | None] = {}
    numbers, details, used = [], dict[str, Any](), list[Measured]()
    for graph in evidence.graphs:
        lines = {
            (level, restart, rate): found
            for level in LEVELS
            for restart in RESTARTS
            for rate in LABEL_RATES
            if (found := evidence.get(graph, "sage", level, restart, label_rate=rate))
        }
        gains = {
            (level, rate): pair
            for level, restart, rate in lines
            if restart == "cold"
            and (level, "warm", rate) in lines
            and (pair := paired(lines[level, "warm", rate], lines[level, "cold", rate]))
        }
        if not gains:
            continue
        used += lines.values()
        ahead = {key: Gap.of(pair) for key, pair in gains.items()}
        rates = {level: {rate for lv, rate in gains if lv == level} for level in LEVELS}
        both = rates[LEVELS[0]] & rates[LEVELS[-1]]
        small, full = ([gains[level, rate] for rate in sorted(both)] for level in (LEVELS[0], LEVELS[-1]))
        whole = [level for level in LEVELS if rates[level] == set.union(*rates.values())]
        few, many = (
            [pair for (lv, r), pair in gains.items() if lv in whole and (r <= FEW_LABELS) == low]
            for low in (True, False)
        )
        by_history, by_rate, labels = _gap(small, full), _gap(few, many), _rises_with_labels(lines)
        parts = {
            "labels": labels,
            "warm": all(gap.mean > 0 for gap in ahead.values()),
            "history": by_history.above if by_history else None,
            "rates": by_rate.above if by_rate else None,
        }
        if len(gains) < len(LEVELS) * len(LABEL_RATES):
            parts = {name: None if holds else holds for name, holds in parts.items()}
        by_graph[graph] = every_part(parts.values())
        won = sum(gap.mean > 0 for gap in ahead.values())
        lost = [f"level {lv} rate {rate:g} {gap.points}" for (lv, rate), gap in ahead.items() if gap.mean <= 0]
        numbers.append(
            f"{graph}: accuracy with labels {answer(labels)}, warm ahead in {won} of {len(ahead)} cells"
            f"{f' (not {listed(lost, 3)})' if lost else ''}, gain at the smallest less the full history "
            f"{by_history.points if by_history else 'unknown'}, at few less many labels "
            f"{by_rate.points if by_rate else 'unknown'}"
        )
        details[graph] = {
            "verdict": answer(by_graph[graph]),
            "parts": parts_in_words(parts),
            "gain": {level: {rate: gap for (lv, rate), gap in ahead.items() if lv == level} for level in LEVELS},
            "accuracy": {
                f"{level} {restart}": {
                    rate: mean_accuracy(found)
                    for (lv, rs, rate), found in lines.items()
                    if (lv, rs) == (level, restart)
                }
                for level in LEVELS
                for restart in RESTARTS
            },
        }
    return judged(
        "C10",
        "Accuracy falls with the share of labels. Warm restarts are better than cold ones throughout, the more so with "
        "short histories and few labels.",
        on_graphs(by_graph),
        numbers=numbers,
        missing="experiment 3 at all label rates, with all histories, cold and warm",
        paper="shown in a figure; no numbers are printed",
        used=used if on_graphs(by_graph) is not None else (),
        details={"graphs": details},
    )


def _rises_with_labels(lines: Mapping[tuple[int, Restart, float], Measured]) -> bool | None:
    by_line: dict[tuple[int, str], dict[float, Measured]] = {}
    for (level, restart, rate), found in lines.items():
        by_line.setdefault((level, restart), {})[rate] = found
    by_line = {key: rates for key, rates in by_line.items() if len(rates) > 1}
    if not by_line:
        return None
    ends = [paired(rates[max(rates)], rates[min(rates)]) for rates in by_line.values()]
    shared = set.intersection(*(set(rates) for rates in by_line.values()))
    means = [mean_of(mean_accuracy(rates[rate]) for rates in by_line.values()) for rate in sorted(shared)]
    rises = all(later >= earlier for earlier, later in pairwise(means))
    return rises and all(bool(pair) and Gap.of(pair).above for pair in ends)


def _gap(one: Sequence[Paired], other: Sequence[Paired]) -> Gap | None:
    left = subtract(average(one), average(other))
    return Gap.of(left) if left else None
