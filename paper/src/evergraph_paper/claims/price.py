"""Claims of experiments 4b and 4c: gDOC with other models, and what detection costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from evergraph.learning.learner import Restart
from evergraph_paper.claims.evidence import Evidence, judged
from evergraph_paper.claims.verdict import (
    Gap,
    Verdict,
    answer,
    average,
    every_part,
    mean_of,
    on_graphs,
    paired,
    parts_in_words,
)
from evergraph_paper.measured import Measured
from evergraph_paper.paper import exp2_printed, exp4b_printed, exp4c_printed
from evergraph_paper.plan import RESTARTS
from evergraph_paper.subject import LEVELS

__all__ = ["c15", "c16"]

BASES = ("sage", "sgc", "gat")


def c15(evidence: Evidence) -> Verdict:
    """C15: on each graph no two of GraphSAGE, SGC and GAT change places under gDOC.

    Accuracies are averaged over the histories and restarts that all three have, with gDOC and without. Two models
    change places if one is ahead without gDOC and the other with it, both by more than the interval of the difference.
    """
    by_graph: dict[str, bool | None] = {}
    numbers, details, used = [], dict[str, Any](), list[Measured]()
    for graph in evidence.graphs:
        rows = {
            (model, detector, level, restart): found
            for model in BASES
            for detector in ("none", "gdoc")
            for level in LEVELS
            for restart in RESTARTS
            if (found := evidence.get(graph, model, level, restart, detector))
        }
        places = [
            (level, restart)
            for level in LEVELS
            for restart in RESTARTS
            if all((model, detector, level, restart) in rows for model in BASES for detector in ("none", "gdoc"))
        ]
        gaps = {
            (one, other): [
                Gap.of(pair) if pair else None
                for pair in (
                    average([paired(rows[one, kind, *place], rows[other, kind, *place]) for place in places])
                    for kind in ("none", "gdoc")
                )
            ]
            for one, other in combinations(BASES, 2)
        }
        known = {pair: (plain, under) for pair, (plain, under) in gaps.items() if plain and under}
        if not places or len(known) < len(gaps):
            continue
        swapped = [f"{one} and {other}" for (one, other), both in known.items() if _swap(*both)]
        by_graph[graph] = not swapped
        texts = [f"{one} less {other} {a.points}, under gDOC {b.points}" for (one, other), (a, b) in known.items()]
        numbers.append(f"{graph}, {len(places)} of 8 places: {'; '.join(texts)}")
        details[graph] = {
            "verdict": answer(by_graph[graph]),
            "places": places,
            "swapped": swapped,
            "gaps": {f"{one} less {other}": {"plain": a, "gdoc": b} for (one, other), (a, b) in known.items()},
        }
        used += [found for key, found in rows.items() if key[2:] in places]
    plain, under = _printed_order()
    order = {"plain": plain, "gdoc": under}
    return judged(
        "C15",
        "gDOC works with GraphSAGE, SGC and GAT; they rank as they do without it.",
        on_graphs(by_graph),
        numbers=numbers,
        missing="experiments 2 and 4b for GraphSAGE, SGC and GAT in one place",
        paper=f"dblp-hard: {' > '.join(plain)} without gDOC, {' > '.join(under)} with it; its rows of GAT are doubtful "
        "(A2)",
        used=used,
        details={"graphs": details, "paper": order},
    )


def _swap(plain: Gap, under: Gap) -> bool:
    return (plain.above and under.below) or (plain.below and under.above)


def _printed_order() -> tuple[list[str], list[str]]:
    """The models from the best down, by the mean over the places that all three have."""
    graph, plain, under = "dblp-hard", dict[str, list[float]](), dict[str, list[float]]()
    for level in LEVELS:
        rows = {model: exp4b_printed(graph, level, model) or {} for model in BASES}
        if all("id_acc_cold" in row for row in rows.values()):
            for model, row in rows.items():
                without = exp2_printed(graph, model, level) or {}
                plain.setdefault(model, []).extend(without[f"{restart}_acc"] for restart in RESTARTS)
                under.setdefault(model, []).extend(row[f"id_acc_{restart}"] for restart in RESTARTS)
    return (
        sorted(plain, key=lambda model: -mean_of(plain[model])),
        sorted(under, key=lambda model: -mean_of(under[model])),
    )


def c16(evidence: Evidence) -> Verdict:
    """C16: detection costs accuracy, except with the smallest history.

    For GraphSAGE both parts must hold on each graph, in plain accuracy over all test vertices:

    - price: at levels 50, 75 and 100, in each place that was measured, training with gDOC is worse than plain training,
      with the interval of the difference; all three levels are needed;
    - exception: at level 25 it is not worse, by the mean, with cold and with warm restarts; both are needed.

    DOC is reported.
    """
    by_graph: dict[str, bool | None] = {}
    numbers, details, used = [], dict[str, Any](), list[Measured]()
    for graph in evidence.graphs:
        gaps: dict[str, dict[tuple[int, Restart], Gap]] = {"gdoc": {}, "doc": {}}
        for level in LEVELS:
            for restart in RESTARTS:
                plain = evidence.get(graph, "sage", level, restart)
                for detector, cells in gaps.items():
                    other = evidence.get(graph, "sage", level, restart, detector)
                    pair = paired(other, plain) if plain and other else {}
                    if plain and other and pair:
                        cells[level, restart] = Gap.of(pair)
                        used += [plain, other]
        if not gaps["gdoc"]:
            continue
        parts = {
            "price": _price({key: gap.below for key, gap in gaps["gdoc"].items()}),
            "exception": _exception({key: gap.mean for key, gap in gaps["gdoc"].items()}),
        }
        by_graph[graph] = every_part(parts.values())
        small = [f"{rs} {gap.points}" for (lv, rs), gap in gaps["gdoc"].items() if lv == LEVELS[0]]
        longer = {key: gap for key, gap in gaps["gdoc"].items() if key[0] != LEVELS[0]}
        worse = sum(gap.below for gap in longer.values())
        mean = mean_of(gap.mean for gap in longer.values())
        doc = mean_of(gap.mean for key, gap in gaps["doc"].items() if key[0] != LEVELS[0])
        beside = "" if math.isnan(doc) else f", DOC {100 * doc:+.1f}"
        costs = f"{worse} of {len(longer)} places above level 25 (mean {100 * mean:+.1f} points{beside})"
        texts = [f"costs accuracy in {costs}"] * bool(longer) + [f"at level 25 {', '.join(small)}"] * bool(small)
        numbers.append(f"{graph}: gDOC {', '.join(texts)}")
        details[graph] = {
            "verdict": answer(by_graph[graph]),
            "parts": parts_in_words(parts),
            "less_plain": {
                name: {f"{level} {restart}": gap for (level, restart), gap in cells.items()}
                for name, cells in gaps.items()
            },
        }
    theirs = {
        (level, restart): (row[f"id_acc_{restart}"] - plain_row[f"id_acc_{restart}"]) / 100
        for level in LEVELS
        for restart in RESTARTS
        if (row := exp4c_printed("dblp-hard", level, "gdoc"))
        and (plain_row := exp4c_printed("dblp-hard", level, "none"))
    }
    cost = sum(gap < 0 for key, gap in theirs.items() if key[0] != LEVELS[0])
    small_ = ", ".join(f"{restart} {100 * theirs[LEVELS[0], restart]:+.1f}" for restart in RESTARTS)
    return judged(
        "C16",
        "Training to detect unseen classes costs accuracy, except with the smallest history.",
        on_graphs(by_graph),
        numbers=numbers,
        missing="experiments 2 and 4 for GraphSAGE with all histories, and at the smallest with both restarts",
        paper=f"dblp-hard: gDOC costs accuracy in {cost} of {len(theirs) - 2} places above level 25; at level 25 "
        f"{small_} points: the exception {answer(_exception(theirs))}",
        used=used if on_graphs(by_graph) is not None else (),
        details={"graphs": details},
    )


def _price(worse: Mapping[tuple[int, Restart], bool]) -> bool | None:
    longer = {key: value for key, value in worse.items() if key[0] != LEVELS[0]}
    if not all(longer.values()):
        return False
    return True if {level for level, _ in longer} == set(LEVELS[1:]) else None


def _exception(gaps: Mapping[tuple[int, Restart], float]) -> bool | None:
    return every_part([gaps[LEVELS[0], rs] >= 0 if (LEVELS[0], rs) in gaps else None for rs in RESTARTS])
