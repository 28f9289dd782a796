"""Claims of experiments 2, 2a and 3: warm restarts, limited histories, training once, and few labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evergraph.evaluation.metrics import Interval, over_seeds, pooled
from evergraph.learning.learner import Restart
from evergraph_paper.claims.evidence import (
    Evidence,
    Gap,
    Paired,
    Verdict,
    answer,
    average,
    every_part,
    judged,
    listed,
    mean_accuracy,
    mean_of,
    on_graphs,
    paired,
    parts_in_words,
    subtract,
)
from evergraph_paper.measured import Measured
from evergraph_paper.paper import COUNTERPART, exp2_printed, printed
from evergraph_paper.plan import LABEL_RATES, LEVELS, MODELS, RESTARTS, exp2a

ALMOST_ALL = 0.8
ENOUGH = 4
"""Number of the six models that must have results on a graph before a claim about all of them is tested."""
T = TypeVar("T")
Cell = tuple[str, str]
"""A graph and a model."""


def c4(evidence: Evidence) -> Verdict:
    """C4: at the smallest history warm restarts beat cold ones, by five points.

    At level 25 both parts must hold:

    - direction: on each graph forward transfer, as a mean over models, is above 0 with its interval;
    - size: the mean over all models and graphs rounds to at least 5 points.

    Graphs with results of fewer than four models are left out.
    """
    level = LEVELS[0]
    cells, used = _transfers(evidence, [level])
    cells, used = _of_enough(cells, used)
    gaps = {graph: Gap.of(average(pairs)) for graph, pairs in _by_graph(cells).items() if average(pairs)}
    by_graph = {graph: gap.above for graph, gap in gaps.items()}
    each = {cell[:2]: Gap.of(pair).mean for cell, pair in cells.items()}
    mean = mean_of(each.values())
    direction = on_graphs(by_graph)
    size = five_points(each.values())
    numbers = [f"{graph}: {gap.points}{_models(each, graph)}" for graph, gap in gaps.items()]
    if each:
        numbers.append(f"the mean of all graphs and models is {100 * mean:.2f} points")
    theirs = {cell[:2]: value for cell, value in _printed_transfers().items() if cell[2] == level}
    return judged(
        "C4",
        "At the smallest history warm restarts beat cold ones; forward transfer is five points on average.",
        every_part([direction, size]),
        numbers=numbers,
        missing="experiment 2 at the smallest history, cold and warm, for at least four models",
        paper=f"the mean of the {len(theirs)} cells is {100 * mean_of(theirs.values()):.2f} points"
        f"{'' if five_points(theirs.values()) else ', not 5'}; {sum(value < 0 for value in theirs.values())} below 0",
        used=used,
        details={
            "parts": {"direction": answer(direction), "size": answer(size)},
            "graphs": {graph: {"verdict": answer(by_graph[graph]), "transfer": gap} for graph, gap in gaps.items()},
            "cells": _nested(each),
            "mean": mean,
        },
    )


def five_points(transfers: Iterable[float]) -> bool | None:
    """Whether the mean rounds to five points or more."""
    values = list(transfers)
    return mean_of(values) >= 0.045 if values else None


def c5(evidence: Evidence) -> Verdict:
    """C5: forward transfer shrinks as the history grows.

    On each graph, over the models that have all four histories and both restarts, which must be at least four:

    - mean forward transfer does not rise from one history to the next longer one, and
    - it is larger with the smallest history than with the full one, by more than the interval of the difference.
    """
    cells, used = _transfers(evidence, LEVELS)
    complete = [cell for cell in dict.fromkeys(key[:2] for key in cells) if all((*cell, lv) in cells for lv in LEVELS)]
    kept, used = _of_enough({key: pair for key, pair in cells.items() if key[:2] in complete}, used)
    complete = list(dict.fromkeys(key[:2] for key in kept))
    by_graph: dict[str, bool | None] = {}
    numbers, details = [], dict[str, Any]()
    for graph in dict.fromkeys(graph for graph, _ in complete):
        lines = {level: average([kept[g, m, level] for g, m in complete if g == graph]) for level in LEVELS}
        fall = subtract(lines[LEVELS[0]], lines[LEVELS[-1]])
        if not fall or not all(lines.values()):  # no shared seed
            continue
        means = {level: Gap.of(pair).mean for level, pair in lines.items()}
        gap = Gap.of(fall)
        by_graph[graph] = falls(means) and gap.above
        shown = ", ".join(f"{100 * mean:+.1f}" for mean in means.values())
        numbers.append(f"{graph}: {shown}, smallest less full {gap.points}{_models(complete, graph)}")
        details[graph] = {"verdict": answer(by_graph[graph]), "means": means, "smallest_less_full": gap}
    theirs = _printed_transfers()
    their_means = {level: mean_of(value for key, value in theirs.items() if key[2] == level) for level in LEVELS}
    return judged(
        "C5",
        "Forward transfer shrinks as the history grows.",
        on_graphs(by_graph),
        numbers=numbers,
        missing="experiment 2 with all four histories, cold and warm, for at least four models",
        paper=f"means of {', '.join(f'{100 * mean:+.2f}' for mean in their_means.values())} points: "
        f"{answer(falls(their_means))}",
        used=[found for found in used if (found.row.graph.name, found.row.model) in complete],
        details={"graphs": details},
    )


def falls(by_level: Mapping[int, float]) -> bool:
    """Whether the values do not rise with the level."""
    values = [by_level[level] for level in sorted(by_level)]
    return all(later <= earlier for earlier, later in pairwise(values))


def c6(evidence: Evidence) -> Verdict:
    """C6: half of the time differences are enough for 95 % of the accuracy.

    Each model on each graph has at level 50 at least 95 % of its accuracy with full history.

    For each history the better of both restarts counts, as in the paper; a cell without both is left out. One cell that
    fails is enough to refute the claim; a graph with at least four models is needed to confirm it.
    """
    return _kept(evidence, "C6", 50, printed()["relative_accuracy_claims"]["rf50"])


def c7(evidence: Evidence) -> Verdict:
    """C7: three quarters of the time differences are enough for 99 %; the criterion is that of C6 at level 75."""
    return _kept(evidence, "C7", 75, printed()["relative_accuracy_claims"]["rf75"])


def _kept(evidence: Evidence, claim: str, level: int, least: float) -> Verdict:
    pairs = {
        (graph, model): (short, full)
        for graph in evidence.graphs
        for model in MODELS
        if (short := evidence.best(graph, model, level)) and (full := evidence.best(graph, model, LEVELS[-1]))
    }
    best = {cell: {level: mean_accuracy(short), 100: mean_accuracy(full)} for cell, (short, full) in pairs.items()}
    shares = relative(best, level)
    fine = {cell: share >= least for cell, share in shares.items()}
    by_graph = {
        graph: False if not all(fine[cell] for cell in cells) else True if len(cells) >= ENOUGH else None
        for graph, cells in _cells_of(fine).items()
    }
    few = [f"{graph} {len(cells)} of {len(MODELS)} models" for graph, cells in _cells_of(fine).items()]
    numbers = [_cells_text(shares, fine), ", ".join(few)] if shares else []
    theirs = relative(_printed_best(), level)
    details: dict[str, Any] = {
        "graphs": {graph: {"verdict": answer(holds)} for graph, holds in by_graph.items()},
        "relative": _nested({cell: _relative_interval(*pair) for cell, pair in pairs.items()}),
    }
    return judged(
        claim,
        f"A history that covers {level} % of the time differences keeps at least {100 * least:.0f} % of the accuracy "
        "with full history, whatever the model.",
        on_graphs(by_graph),
        numbers=numbers,
        missing=f"experiment 2 at level {level} and with full history, cold and warm, for at least four models",
        paper=_cells_text(theirs, {cell: share >= least for cell, share in theirs.items()}),
        used=[found for pair in pairs.values() for found in pair],
        details=details,
    )


def relative(best: Mapping[Cell, Mapping[int, float]], level: int) -> dict[Cell, float]:
    """Return the accuracy at a level as a share of the accuracy with full history."""
    return {cell: levels[level] / levels[LEVELS[-1]] for cell, levels in best.items()}


def _relative_interval(short: Measured, full: Measured) -> dict[str, float]:
    a, b = (dict(zip(found.seeds, found.per_seed("accuracy"), strict=True)) for found in (short, full))
    found = over_seeds([a[seed] / b[seed] for seed in a if seed in b])
    return {"share": mean_accuracy(short) / mean_accuracy(full), "half": found.half, "seeds": found.n}


def _cells_text(shares: Mapping[Cell, float], fine: Mapping[Cell, bool]) -> str:
    low = sorted((share, cell) for cell, share in shares.items() if not fine[cell])
    named = listed([f"{graph} {model} {100 * share:.2f} %" for share, (graph, model) in low])
    smallest = f"smallest {100 * min(shares.values()):.1f} %"
    return f"{sum(fine.values())} of {len(fine)} cells keep it ({f'not {named}' if low else smallest})"


def c8(evidence: Evidence) -> Verdict:
    """C8: the full history and GraphSAGE are best.

    Both parts must hold on each graph, with the better of both restarts:

    - in at least 80 % of the models that have all four histories no shorter one beats the full one;
    - at each history no other model beats GraphSAGE, but on dblp-hard SGC may.

    Each needs at least four models.

    One beats another if its mean is above it and so is the interval of their difference; in the paper's tables, if
    their intervals do not overlap.
    """
    best = {
        (graph, model, level): found
        for graph in evidence.graphs
        for model in MODELS
        for level in LEVELS
        if (found := evidence.best(graph, model, level))
    }
    full, winners = full_is_best(best, _beats), better_than_sage(best, _beats)
    by_graph: dict[str, bool | None] = {}
    numbers, details = [], dict[str, Any]()
    for graph in dict.fromkeys(key[0] for key in best):
        parts, text, numbers_of = _best_parts(graph, full, winners)
        by_graph[graph] = every_part(parts.values())
        numbers.append(f"{graph}: {text}" if by_graph[graph] is not None else "")
        details[graph] = {"verdict": answer(by_graph[graph]), "parts": parts_in_words(parts), **numbers_of}
    theirs = _printed_best_intervals()
    their_full, their_winners = full_is_best(theirs, _apart), better_than_sage(theirs, _apart)
    paper = [f"{graph}: {_best_parts(graph, their_full, their_winners)[1]}" for graph in _paper_graphs()]
    return judged(
        "C8",
        "The full history is best in almost all cases. GraphSAGE is the best model, but on dblp-hard SGC competes.",
        on_graphs(by_graph),
        numbers=numbers,
        missing="experiment 2 with all four histories, cold and warm, for GraphSAGE and three other models",
        paper="; ".join(paper),
        used=best.values() if on_graphs(by_graph) is not None else (),
        details={"graphs": details},
    )


def full_is_best(best: Mapping[tuple[str, str, int], T], beats: Callable[[T, T], bool]) -> dict[Cell, list[int]]:
    """Return the levels that beat the full history, by graph (with enough models) and model (with all levels)."""
    cells = [cell for cell in dict.fromkeys(key[:2] for key in best) if all((*cell, lv) in best for lv in LEVELS)]
    cells = [cell for part in _cells_of(cells).values() if len(part) >= ENOUGH for cell in part]
    return {
        cell: [level for level in LEVELS[:-1] if beats(best[*cell, level], best[*cell, LEVELS[-1]])] for cell in cells
    }


def better_than_sage(
    best: Mapping[tuple[str, str, int], T], beats: Callable[[T, T], bool]
) -> dict[tuple[str, int], list[str]]:
    """Return the models that beat GraphSAGE, for each graph and level with GraphSAGE and enough other models."""
    found = {}
    for graph, level in dict.fromkeys((key[0], key[2]) for key in best):
        others = [model for model in MODELS if model != "sage" and (graph, model, level) in best]
        if len(others) + 1 >= ENOUGH and (graph, "sage", level) in best:
            sage = best[graph, "sage", level]
            found[graph, level] = [model for model in others if beats(best[graph, model, level], sage)]
    return found


def _best_parts(
    graph: str, full: Mapping[Cell, list[int]], winners: Mapping[tuple[str, int], list[str]]
) -> tuple[dict[str, bool | None], str, dict[str, Any]]:
    here = {model: levels for (name, model), levels in full.items() if name == graph}
    fine = sum(not levels for levels in here.values())
    over_sage = {level: models for (name, level), models in winners.items() if name == graph}
    may = {"sgc"} if graph == "dblp-hard" else set()
    parts: dict[str, bool | None] = {
        "full history": fine >= ALMOST_ALL * len(here) if here else None,
        "sage": all(set(models) <= may for models in over_sage.values()) if over_sage else None,
    }
    beaten = [f"{'/'.join(models)} at {level}" for level, models in over_sage.items() if models]
    text = (
        f"full history is not beaten for {fine} of {len(here)} models, GraphSAGE at "
        f"{len(over_sage) - len(beaten)} of {len(over_sage)} levels{f' (by {listed(beaten)})' if beaten else ''}"
    )
    return parts, text, {"levels_that_beat_full": here, "models_that_beat_sage": over_sage}


def _beats(one: Measured, other: Measured) -> bool:
    pair = paired(one, other)
    return bool(pair) and Gap.of(pair).above


def _apart(one: Interval, other: Interval) -> bool:
    return one.low > other.high


def _transfers(evidence: Evidence, levels: Sequence[int]) -> tuple[dict[tuple[str, str, int], Paired], list[Measured]]:
    """Return the gains of warm over cold restarts from the second task on, and the rows behind them."""
    cells: dict[tuple[str, str, int], Paired] = {}
    used = []
    for graph in evidence.graphs:
        for model in MODELS:
            for level in levels:
                cold, warm = (evidence.get(graph, model, level, restart) for restart in RESTARTS)
                pair = paired(warm, cold) if cold and warm else {}
                if cold and warm and pair:
                    cells[graph, model, level] = {seed: gains[1:] for seed, gains in pair.items()}
                    used += [cold, warm]
    return cells, used


def _printed_rows() -> dict[tuple[str, str, int], dict[str, Any]]:
    return {
        (theirs, model, level): row
        for ours, theirs in COUNTERPART.items()
        for model in MODELS
        for level in LEVELS
        if (row := exp2_printed(ours, model, level))
    }


def _printed_transfers() -> dict[tuple[str, str, int], float]:
    return {key: row["fwt"] / 100 for key, row in _printed_rows().items()}


def _printed_best_intervals() -> dict[tuple[str, str, int], Interval]:
    """Return the better of both restarts with its interval."""
    each = {
        key: [Interval(row[f"{restart}_acc"] / 100, row[f"{restart}_ci"] / 100, 1) for restart in RESTARTS]
        for key, row in _printed_rows().items()
    }
    return {key: max(both, key=lambda found: found.mean) for key, both in each.items()}


def _printed_best() -> dict[Cell, dict[int, float]]:
    found: dict[Cell, dict[int, float]] = {}
    for (graph, model, level), interval in _printed_best_intervals().items():
        found.setdefault((graph, model), {})[level] = interval.mean
    return found


def _paper_graphs() -> list[str]:
    return list(COUNTERPART.values())


def _by_graph(cells: Mapping[tuple[str, str, int], Paired]) -> dict[str, list[Paired]]:
    found: dict[str, list[Paired]] = {}
    for key, pair in cells.items():
        found.setdefault(key[0], []).append(pair)
    return found


def _of_enough(
    cells: Mapping[tuple[str, str, int], Paired], used: Iterable[Measured]
) -> tuple[dict[tuple[str, str, int], Paired], list[Measured]]:
    """Return cells and rows of the graphs with enough models."""
    models = {graph: {model for name, model, _ in cells if name == graph} for graph, _, _ in cells}
    graphs = [graph for graph, names in models.items() if len(names) >= ENOUGH]
    kept = {key: pair for key, pair in cells.items() if key[0] in graphs}
    return kept, [found for found in used if found.row.graph.name in graphs]


def _cells_of(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell[0], []).append(cell)
    return found


def _nested(cells: Mapping[Cell, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (graph, model), value in cells.items():
        found.setdefault(graph, {})[model] = value
    return found


def _models(cells: Iterable[Cell], graph: str) -> str:
    """Describe the models, unless all are there."""
    there = [model for name, model in cells if name == graph]
    return "" if len(there) == len(MODELS) else f" ({', '.join(there)} alone)"


FEW_LABELS = 0.3
STANDS_STILL = 0.02


def c9(evidence: Evidence) -> Verdict:
    """C9: a model that is trained once gets worse where classes appear, and continual training is better.

    Both parts must hold for each model on each graph:

    - where classes appear during the tasks, accuracy of the model that was trained once falls: its slope over the
      tasks is below 0 with its interval, and the last third of the tasks is below the first. Where none appear, the
      last third is within 2 points of the first;
    - the continually trained model is better as a mean over tasks, with the interval of the difference.
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
        appear = any(bool(once.by_task("unseen_never_before")[0].any()) for once, _ in here)
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
        "A model that is trained once gets worse over time where classes appear and does not change where none do; "
        "continuous training is better everywhere.",
        on_graphs(by_graph),
        numbers=numbers,
        missing="experiment 2a, trained once and trained on",
        paper="shown in a figure; no numbers are printed (A14)",
        used=[found for pair in pairs for found in pair],
        details={"graphs": details},
    )


def slope_of(found: Measured) -> Gap:
    """Return the slope of the accuracy per task; with one seed, its interval is 1.96 standard errors of the fit."""
    fits = [_line(row) for row in found.by_task("accuracy")]
    if len(fits) > 1:
        return Gap.of_seeds([slope for slope, _ in fits])
    slope, error = fits[0]
    return Gap(slope, 1.96 * error, 1, "tasks")


def _line(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the slope and its standard error."""
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
        "Accuracy falls with the share of labels. Warm restarts are better than cold ones throughout, especially with "
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
