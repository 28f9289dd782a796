"""Properties of graphs: the paper's table of data sets and its figures, for any graphs."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.analysis import GraphDescription, TimeDifferences, describe
from evergraph.analysis.figures import HOPS, draw
from evergraph.errors import InputError
from evergraph.evaluation.workers import graph_of
from evergraph.presentation.table import Cell, Column, Row, Section, Table, replace_file, write
from evergraph_paper.as_published import with_self_pairs
from evergraph_paper.paper import COUNTERPART, printed
from evergraph_paper.plan import LEVELS

log = logging.getLogger("evergraph.paper")  # below "evergraph", whose messages the commands show

Facts = Mapping[str, Any]

_LAYERS = 2  # hops of the models; histories follow from the time differences over these hops
_DIGITS = 6  # of shares and exponents: few enough to be the same on all machines
_DRIFTS = {"drift_consecutive": "against the time before", "drift_cumulative": "against all times before"}


def facts(path: str) -> dict[str, Any]:
    """Return the properties of a graph as a dict for JSON.

    Periods are written as the graph's time axis writes them; tasks are the periods with vertices from the first task
    on. Shares and exponents are rounded to six digits.

    In addition to `GraphDescription`: ``discontinued_classes`` are absent at the end for longer than ever before,
    ``every_other_time_classes`` occur in three or more periods with exactly one period between, ``irregular_classes``
    have other gaps. ``drift_consecutive`` is the total variation between the classes of each task and of the period
    before, ``drift_cumulative`` and of all periods before. ``history_sizes`` are those of the whole graph, as in the
    paper; ``with_self_pairs`` are the percentiles of the authors' code.

    Examples
    --------
    >>> found = facts("synthetic")
    >>> found["vertices"], found["first_task"], found["new_class_times"], found["history_sizes"]
    (3000, 3, [4, 6, 8, 10], {'25': 1, '50': 1, '75': 2, '100': 11})
    """
    return _facts(*_described(path))


def _described(path: str) -> tuple[GraphDescription, str]:
    """Return the description of a graph and its fingerprint."""
    graph, fingerprint = graph_of(path)
    return describe(graph, Path(path).name, hops=HOPS, past=True), fingerprint


def _facts(found: GraphDescription, fingerprint: str) -> dict[str, Any]:
    tasks, two_hops = found.times[found.tasks], found.differences[str(_LAYERS)]
    first = {one.name: one.times[0] for one in found.classes}
    past = found.past_differences
    counts = np.array(two_hops.counts)
    with_self = with_self_pairs(TimeDifferences(counts, _LAYERS, False, found.vertices, found.vertices))
    return {
        "name": found.name,
        "fingerprint": fingerprint,
        "vertices": found.vertices,
        "edges": found.edges,
        "features": found.feature_width,
        "feature_kind": found.feature_kind,
        "classes": len(found.classes),
        "labelled": _rounded(found.label_rate),
        "time_steps": found.time_steps,
        "first_time": found.times[0],
        "last_time": found.times[-1],
        "times": found.times,
        "vertices_by_time": found.vertices_at,
        "first_task": found.first_task,
        "tasks": len(tasks),
        "task_times": tasks,
        "test_vertices": found.test_vertices,
        "new_classes": len(found.new_classes),
        "new_class_names": found.new_classes,
        "new_class_times": [first[name] for name in found.new_classes],
        **_rhythms(found),
        "unseen_vertices": found.unseen_vertices,
        "unseen_by_task": found.unseen_at[found.tasks],
        "class_counts": sorted((one.vertices for one in found.classes), reverse=True),
        "degrees": found.degrees,
        "power_law": _rounded(found.power_law),
        "power_law_from_degree": 1,
        **_drift(found, tasks),
        "tdiff": {
            hops: {"pairs": one.pairs, "counts": one.counts, "percentiles": one.percentiles or None}
            for hops, one in found.differences.items()
        },
        "history_sizes": two_hops.history_sizes or None,
        "history_sizes_before_first_task": None if past is None else past.history_sizes,
        "with_self_pairs": {str(level): with_self.percentile(level) for level in LEVELS} or None,
    }


def _rhythms(found: GraphDescription) -> dict[str, list[str]]:
    """Return the classes that pause or end."""
    place = {one.time: at for at, one in enumerate(found.drift)}  # of the periods with labels
    discontinued, every_other, irregular = [], [], []
    for one in found.classes:
        seen = [place[time] for time in one.times]
        gaps = np.diff(seen)
        longest = gaps.max(initial=1)
        if len(place) - 1 - seen[-1] > longest:
            discontinued.append(one.name)
        if len(gaps) > 1 and (gaps == 2).all():
            every_other.append(one.name)
        elif longest > 1:
            irregular.append(one.name)
    return {
        "discontinued_classes": sorted(discontinued),
        "every_other_time_classes": sorted(every_other),
        "irregular_classes": sorted(irregular),
    }


def _drift(found: GraphDescription, tasks: Sequence[int | str]) -> dict[str, Any]:
    found_drift = {}
    for name in ("consecutive", "cumulative"):
        at = {one.time: getattr(one, name) for one in found.drift}
        by_task = [at.get(time) for time in tasks]
        known = [move for move in by_task if move is not None]
        found_drift[f"drift_{name}"] = {
            "by_task": [_rounded(move) for move in by_task],
            "min": _rounded(min(known, default=None)),
            "max": _rounded(max(known, default=None)),
            "mean": _rounded(math.fsum(known) / len(known) if known else None),
        }
    return found_drift


def _rounded(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, _DIGITS)


_TABLE_NOTE = """\
New classes first appear at a task. Histories cover 25 / 50 / 75 % of the time differences over two hops: in the whole \
graph, as the paper has it, and in what there is before the first task. Drift is the smallest and largest total \
variation between the classes of a task and those before it. The paper defines it against the time before; the \
authors' code compares with all times before by default."""


def datasets_table(facts: Sequence[Facts], note: str = "") -> Table:
    """Return the paper's table of data sets: the given graphs, and below them those of the paper.

    Examples
    --------
    >>> table = datasets_table([])
    >>> [cell.text for cell in table.rows[-1]]
    ['pharmabio', '68,068', '2.1M', '4,829', '7', '0', '1999', '18', '1 / 4 / 8', '-', '< 0.07', '-']
    """
    columns = (
        Column("graph", align="left"),
        *(Column(name) for name in ("vertices", "edges", "features", "classes", "new", "first task", "tasks")),
        Column("whole graph", "history"),
        Column("before first task", "history"),
        Column("to time before", "drift"),
        Column("to all before", "drift"),
    )
    ours = [_our_row(found) for found in facts]
    stands_for = {COUNTERPART.get(found["name"]): found["name"] for found in facts}
    theirs = [_their_row(name, stands_for.get(name, name)) for name in printed()["table_temporal_datasets"]]
    rows: list[Row | Section] = [Section("ours"), *ours] if ours else []
    rows += [Section("paper"), *theirs]
    return Table("Evolving graphs", columns, tuple(rows), note=f"{_TABLE_NOTE}\n{note}".strip())


def _our_row(found: Facts) -> Row:
    return (
        Cell(found["name"]),
        *(Cell(found[name], form=",") for name in ("vertices", "edges", "features", "classes", "new_classes")),
        *(Cell(found[name]) for name in ("first_task", "tasks")),
        *(_sizes_cell(found[name]) for name in ("history_sizes", "history_sizes_before_first_task")),
        *(_range_cell(found[name]["min"], found[name]["max"]) for name in _DRIFTS),
    )


def _their_row(name: str, ours: str) -> Row:
    found = printed()["table_temporal_datasets"][name]
    numbers = (found[what] for what in ("vertices", "edges", "features", "classes", "new_classes"))
    return (
        Cell(name if name == ours else f"{name} (beside {ours})"),
        *(Cell(number) if isinstance(number, str) else Cell(number, form=",") for number in numbers),
        *(Cell(found[what]) for what in ("first_task_year", "tasks")),
        _sizes_cell(dict(zip(map(str, LEVELS), found["history_sizes"], strict=True))),
        Cell(),
        _printed_drift(name),
        Cell(),
    )


def _printed_drift(name: str) -> Cell:
    for names, drifts in printed()["drift_magnitude"].items():
        if name in names.split(","):
            return _range_cell(*drifts)
        if names == f"{name}_upper":
            return Cell(f"< {drifts:.2f}")
    return Cell()


def _sizes_cell(sizes: Mapping[str, int] | None) -> Cell:
    return Cell() if sizes is None else Cell(" / ".join(str(sizes[str(level)]) for level in LEVELS[:-1]))


def _range_cell(low: float | None, high: float | None) -> Cell:
    return Cell() if low is None else Cell(f"{low:.2f} to {high:.2f}")


def write_datasets(paths: Iterable[str], out: str | Path, note: str = "") -> list[Path]:
    """Write the properties of graphs as JSON, table and figures; the same graphs give the same bytes.

    Returns
    -------
    list of Path
        ``datasets.json``; ``datasets.md``, ``.tex`` and ``.csv``; ``distributions``, ``drift_per_task``,
        ``time_differences`` and ``unseen_per_task``, each as ``.svg`` and ``.png``.
    """
    paths, out = list(paths), Path(out)
    names = [Path(path).name for path in paths]
    twice = [name for name in names if names.count(name) > 1]
    if not paths or twice:
        raise InputError(
            f"two graphs are named {twice[0]}" if twice else "there is no graph to describe",
            fix="rename the folder of one of them" if twice else "name at least one",
        )
    described = []
    for number, path in enumerate(paths, 1):
        log.info("Describing graph %s (%d of %d)", path, number, len(paths))
        described.append(_described(path))
    found = [_facts(*one) for one in described]
    written = [replace_file(out / "datasets", "json", f"{_json(found)}\n".encode())]
    written += write(datasets_table(found, note), out / "datasets")
    return written + draw([description for description, _ in described], out, note)


def _json(value: Any, depth: int = 0) -> str:
    """Return JSON with one line for each list or dict that contains no other.

    Examples
    --------
    >>> print(_json({"name": "x", "counts": [1, 2], "sizes": {"25": 1}}))
    {
     "name": "x",
     "counts": [1, 2],
     "sizes": {"25": 1}
    }
    """
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(part, (dict, list)) for part in parts):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    if isinstance(value, dict):
        lines = [f"{json.dumps(name, ensure_ascii=False)}: {_json(part, depth + 1)}" for name, part in value.items()]
    else:
        lines = [_json(part, depth + 1) for part in value]
    start, end = "{}" if isinstance(value, dict) else "[]"
    inside = ",\n".join(" " * (depth + 1) + line for line in lines)
    return f"{start}\n{inside}\n{' ' * depth}{end}"
