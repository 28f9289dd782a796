"""What graphs are like: the paper's table of data sets and the figures that describe them, for any graphs."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.analysis import Profile, TimeDifferences, drift, profile, tdiff
from evergraph.errors import InputError
from evergraph.evaluation.graphs import graph_of
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import kind_of
from evergraph.learning.task import history_sizes
from evergraph.presentation.style import COLOURS, figure, legend_below, plain, save, series
from evergraph.presentation.table import Cell, Column, Row, Section, Table, replace_file, write
from evergraph_paper.as_published import with_self_pairs
from evergraph_paper.paper import COUNTERPART, printed
from evergraph_paper.subject import LEVELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "datasets_table",
    "distributions",
    "drift_per_task",
    "facts",
    "time_differences",
    "unseen_per_task",
    "write_datasets",
]

log = logging.getLogger(__name__)

Facts = Mapping[str, Any]

_HOPS = (1, 2, 3)
_LAYERS = 2  # hops that the models see, whose time differences give the histories
_DIGITS = 6  # of shares and exponents: enough for any reader, and the same on all machines
_WHISKER = 1.5  # length of a box plot's whiskers at most, in heights of its box
_LONGEST_NAME = 30
_DRIFTS = {"drift_consecutive": "against the time before", "drift_cumulative": "against all times before"}


# --- facts -----------------------------------------------------------------------------------------------------------


def facts(path: str) -> dict[str, Any]:
    """Count what describes a graph; the answer fits into JSON.

    Times are written as the graph's axis writes them, and tasks are the times with vertices from the first task on.
    Shares and exponents are rounded to six digits.

    Parameters
    ----------
    path
        A graph folder, or the name of a graph that needs none.

    Returns
    -------
    dict
        ``name``, ``fingerprint``
            The last part of the path, and what tells the graph from all others.
        ``vertices``, ``edges``, ``features``, ``feature_kind``, ``classes``, ``labelled``
            Sizes; the width of the features (0 without any) and their kind; classes that some vertex has; the share of
            the vertices with a label.
        ``time_steps``, ``first_time``, ``last_time``, ``times``, ``vertices_by_time``
            What one time after the other is called, and how many vertices there are at each.
        ``first_task``, ``tasks``, ``task_times``, ``test_vertices``
            None, 0 and empty where all vertices have one time.
        ``new_classes``, ``new_class_names``, ``new_class_times``
            Classes that first appear at a task, in the order of their appearance.
        ``discontinued_classes``, ``every_other_time_classes``, ``irregular_classes``
            Names of classes, by the times at which they have vertices. Discontinued: missing at the end for longer than
            ever before. Every other time: three times or more, always with one time between. Irregular: with other
            gaps, whatever their number. A discontinued class may be one of the others too.
        ``unseen_vertices``, ``unseen_by_task``
            Test vertices whose class no vertex of the graph had at an earlier time.
        ``class_counts``
            Vertices of each class, largest first.
        ``degrees``, ``power_law``, ``power_law_from_degree``
            How many vertices there are of each degree, as two lists; and the exponent of a power law fitted to the
            degrees from dmin = 1 up, ``1 + n / sum(ln(d / dmin))``, None where it has none.
        ``drift_consecutive``, ``drift_cumulative``
            Total variation between the classes of each task and those of the time before, or of all times before:
            ``by_task`` (None where there is nothing to compare), ``min``, ``max``, ``mean``.
        ``tdiff``
            By number of hops, "1" to "3": how many ``pairs`` there are (those of equal time count twice), their
            ``counts`` by time difference from 0 up, and ``percentiles``.
        ``history_sizes``, ``history_sizes_before_first_task``
            Histories that cover 25, 50, 75 and 100 percent of the time differences over two hops, in the whole graph as
            the paper has it, and in what there is before the first task; None without edges.
        ``with_self_pairs``
            Percentiles over two hops with each vertex paired with itself too, as the authors' code has them.

    Examples
    --------
    >>> found = facts("synthetic")
    >>> found["vertices"], found["first_task"], found["new_class_times"], found["history_sizes"]
    (3000, 3, [4, 6, 8, 10], {'25': 1, '50': 1, '75': 2, '100': 11})
    """
    graph, fingerprint = graph_of(path)
    value, count = graph.axis.value, profile(graph)
    tasks = _tasks(count)
    differences = {hops: tdiff(graph, hops) for hops in _HOPS}
    two_hops = differences[_LAYERS]
    return {
        "name": Path(path).name,
        "fingerprint": fingerprint,
        "vertices": count.vertices,
        "edges": count.edges,
        "features": 0 if graph.features is None else graph.features.width,
        "feature_kind": kind_of(graph.features),
        "classes": count.classes,
        "labelled": _rounded(count.label_rate),
        "time_steps": graph.axis.steps,
        "first_time": value(count.first_time),
        "last_time": value(count.last_time),
        "times": [value(time) for time in count.times.tolist()],
        "vertices_by_time": count.vertices_at.tolist(),
        "first_task": None if count.first_task is None else value(count.first_task),
        "tasks": int(tasks.sum()),
        "task_times": [value(time) for time in count.times[tasks].tolist()],
        "test_vertices": count.test_vertices,
        "new_classes": len(count.new_classes),
        "new_class_names": list(count.new_classes),
        "new_class_times": [value(graph.classes.first[graph.classes.row(name)]) for name in count.new_classes],
        **_rhythms(graph),
        "unseen_vertices": count.unseen_vertices,
        "unseen_by_task": count.unseen_at[tasks].tolist(),
        "class_counts": sorted(graph.classes.support[graph.classes.support > 0].tolist(), reverse=True),
        "degrees": {
            "degree": np.flatnonzero(count.degrees).tolist(),
            "vertices": count.degrees[count.degrees > 0].tolist(),
        },
        "power_law": _rounded(count.power_law),
        "power_law_from_degree": 1,
        **_drift(graph, count.times[tasks]),
        "tdiff": {
            str(hops): {"pairs": found.pairs, "counts": found.counts.tolist(), "percentiles": _percentiles(found)}
            for hops, found in differences.items()
        },
        "history_sizes": _by_level(two_hops.history_sizes(LEVELS) if two_hops.pairs else {}),
        "history_sizes_before_first_task": _by_level(
            {} if count.first_task is None else history_sizes(graph, count.first_task)
        ),
        "with_self_pairs": _percentiles(with_self_pairs(two_hops)),
    }


def _tasks(count: Profile) -> NDArray[np.bool_]:
    """Which times are tasks."""
    return np.zeros(len(count.times), bool) if count.first_task is None else count.times >= count.first_task


def _rhythms(graph: EvolvingGraph) -> dict[str, list[str]]:
    """Classes that pause or end."""
    labelled = graph.codes >= 0
    times, at = np.unique(graph.times[labelled], return_inverse=True)
    discontinued, every_other, irregular = [], [], []
    for row, name in enumerate(graph.class_names):
        seen = np.unique(at[graph.codes[labelled] == row])
        if not len(seen):
            continue
        gaps = np.diff(seen)
        longest = gaps.max(initial=1)
        if len(times) - 1 - seen[-1] > longest:
            discontinued.append(name)
        if len(gaps) > 1 and (gaps == 2).all():
            every_other.append(name)
        elif longest > 1:
            irregular.append(name)
    return {
        "discontinued_classes": sorted(discontinued),
        "every_other_time_classes": sorted(every_other),
        "irregular_classes": sorted(irregular),
    }


def _drift(graph: EvolvingGraph, tasks: NDArray[np.int64]) -> dict[str, Any]:
    moved = drift(graph)
    found = {}
    for name, moves in (("drift_consecutive", moved.consecutive), ("drift_cumulative", moved.cumulative)):
        at = dict(zip(moved.times.tolist(), moves.tolist(), strict=True))
        by_task = [at.get(time, math.nan) for time in tasks.tolist()]
        known = [move for move in by_task if not math.isnan(move)]
        found[name] = {
            "by_task": [_rounded(move) for move in by_task],
            "min": _rounded(min(known, default=None)),
            "max": _rounded(max(known, default=None)),
            "mean": _rounded(math.fsum(known) / len(known) if known else None),
        }
    return found


def _percentiles(found: TimeDifferences) -> dict[str, float] | None:
    return _by_level({level: found.percentile(level) for level in LEVELS} if found.pairs else {})


def _by_level(values: Mapping[int, Any]) -> dict[str, Any] | None:
    """The same for JSON, whose keys are strings."""
    return {str(level): value for level, value in values.items()} or None


def _rounded(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, _DIGITS)


# --- table -----------------------------------------------------------------------------------------------------------

_TABLE_NOTE = """\
New classes first appear at a task. Histories cover 25 / 50 / 75 % of the time differences over two hops: in the whole \
graph, as the paper has it, and in what there is before the first task. Drift is the smallest and largest total \
variation between the classes of a task and those before it. The paper defines it against the time before; the \
authors' code compares with all times before, unless told otherwise."""


def datasets_table(facts: Sequence[Facts], note: str = "") -> Table:
    """The paper's table of data sets: some graphs, and below them those of the paper.

    Parameters
    ----------
    facts
        What `facts` says of each graph.
    note
        Where they are from; it stands below the table.

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


# --- figures ---------------------------------------------------------------------------------------------------------


def distributions(facts: Sequence[Facts]) -> Figure:
    """For each graph a row: its vertices over time, by degree, and by class.

    Vertices without edges are left out of the degrees, for the axis is logarithmic.
    """
    from matplotlib.ticker import MaxNLocator

    with figure(max(len(facts), 1), 3, height=1.9) as (picture, rows):
        for (over_time, by_degree, by_class), found in zip(rows, facts, strict=False):
            over_time.plot(_places(over_time, found["times"]), found["vertices_by_time"], **_points(0), linewidth=1)
            over_time.set(title=_short(found["name"]), xlabel="time", ylabel="vertices", yscale="log")
            degree, vertices = (np.array(found["degrees"][name]) for name in ("degree", "vertices"))
            if degree.any():
                by_degree.loglog(degree[degree > 0], vertices[degree > 0], **_points(1), linestyle="")
            else:
                _nothing(by_degree)
            exponent = found["power_law"]
            by_degree.set(title="" if exponent is None else f"power law {exponent:.2f} (degree ≥ 1)", xlabel="degree")
            counts = found["class_counts"]
            if counts:
                edges = np.arange(len(counts) + 1) + 0.5
                by_class.stairs(counts, edges, baseline=0.8, fill=True, color=COLOURS[2])
                by_class.set(yscale="log", xlim=(edges[0], edges[-1]))
                by_class.set_ylim(bottom=0.8)  # just below 1, so that lengths can be compared
                by_class.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
            else:
                _nothing(by_class)
            by_class.set(title=f"{len(counts)} classes", xlabel="class, by its number of vertices")
    return picture


def drift_per_task(facts: Sequence[Facts]) -> Figure:
    """The drift of the classes at each task, against the time before and against all times before.

    Graphs whose times have little in common, or are dates, are laid side by side by the number of the task.
    """
    from matplotlib.ticker import MaxNLocator

    by_time = _comparable([found["task_times"] for found in facts])
    with figure(1, 2, height=2.8, sharey=True) as (picture, axes):
        for panel, (name, against) in zip(axes[0], _DRIFTS.items(), strict=True):
            for index, found in enumerate(facts):
                moves = [math.nan if move is None else move for move in found[name]["by_task"]]
                if not np.isfinite(moves).any():
                    continue
                places = found["task_times"] if by_time else range(1, len(moves) + 1)
                panel.plot(places, moves, label=_short(found["name"]), **series(index), markersize=3.5, linewidth=1.3)
            panel.set(title=against, xlabel="time of the task" if by_time else "task", ylim=(0, None))
            panel.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
            if not panel.lines:
                _nothing(panel)
        axes[0, 0].set_ylabel("drift (total variation)")
        legend_below(picture)
    return picture


def time_differences(facts: Sequence[Facts]) -> Figure:
    """Box plots of the time differences within one, two and three hops, a panel for each graph.

    Whiskers reach the furthest difference within one and a half heights of the box. Each difference beyond is one
    point, however often it occurs.
    """
    from matplotlib.ticker import MaxNLocator

    with _grid(len(facts), columns=3, height=2.3) as (picture, panels):
        for index, (panel, found) in enumerate(zip(panels, facts, strict=False)):
            boxes = [_box(hops, found["tdiff"][str(hops)]) for hops in _HOPS]
            drawn = [(hops, box) for hops, box in zip(_HOPS, boxes, strict=True) if box is not None]
            steps = "" if found["time_steps"] == "steps" else f", in {found['time_steps']}"
            panel.set(title=f"{_short(found['name'])}{steps}", xlabel="hops", xlim=(0.4, len(_HOPS) + 0.6))
            if index % 3 == 0:
                panel.set_ylabel("time difference")
            if not drawn:
                _nothing(panel)
                continue
            look: dict[str, Any] = {"facecolor": f"{COLOURS[0]}40", "edgecolor": COLOURS[0]}
            panel.bxp(
                [box for _, box in drawn],
                positions=[hops for hops, _ in drawn],
                widths=0.55,
                patch_artist=True,
                boxprops=look,
                medianprops={"color": COLOURS[1], "linewidth": 2},
                whiskerprops={"color": COLOURS[0]},
                capprops={"color": COLOURS[0]},
                flierprops={"marker": ".", "markersize": 2.5, "markerfacecolor": "#666666", "markeredgewidth": 0},
            )
            panel.set_xticks(_HOPS, [str(hops) for hops in _HOPS])
            panel.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    return picture


def unseen_per_task(facts: Sequence[Facts]) -> Figure:
    """How many vertices of each task are of a class that never occurred before, a panel for each graph."""
    from matplotlib.ticker import MaxNLocator

    with _grid(len(facts), columns=2, height=1.9) as (picture, panels):
        for index, (panel, found) in enumerate(zip(panels, facts, strict=False)):
            unseen, test = found["unseen_vertices"], found["test_vertices"]
            panel.set(title=f"{_short(found['name'])}: {unseen:,} of {test:,} vertices", xlabel="time of the task")
            if index % 2 == 0:
                panel.set_ylabel("unseen-class vertices")
            if not unseen:
                _nothing(panel)
                continue
            places = _places(panel, found["task_times"])
            width = 0.8 * (np.diff(places).min() if len(places) > 1 else 1)
            panel.bar(places, found["unseen_by_task"], color=COLOURS[1], width=width)
            panel.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    return picture


@contextmanager
def _grid(count: int, columns: int, height: float) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure of so many panels, row by row."""
    columns = max(1, min(count, columns))
    with figure(max(1, -(-count // columns)), columns, height=height) as (picture, axes):
        panels = list(axes.flat)
        for panel in panels[count:]:
            panel.remove()
        yield picture, panels[:count]


def _box(hops: int, found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Quartiles, whiskers and what is beyond them, as matplotlib wants them; None without time differences.

    Examples
    --------
    >>> found = {"counts": [0, 2, 6, 2, 0, 0, 1], "percentiles": {"25": 2.0, "50": 2.0, "75": 2.5, "100": 6.0}}
    >>> box = _box(2, found)
    >>> box["whislo"], box["whishi"], box["fliers"]
    (2, 3, [1, 6])
    """
    quartiles = found["percentiles"]
    if quartiles is None:
        return None
    low, median, high = (quartiles[level] for level in ("25", "50", "75"))
    reach = _WHISKER * (high - low)
    there = np.flatnonzero(found["counts"]).tolist()
    within = [difference for difference in there if low - reach <= difference <= high + reach]
    # As in any box plot, no whisker ends inside of the box, also where a quartile is between two differences.
    start, end = min([*within, low]), max([*within, high])
    beyond = [difference for difference in there if not start <= difference <= end]
    return {"label": str(hops), "q1": low, "med": median, "q3": high, "whislo": start, "whishi": end, "fliers": beyond}


def _places(panel: Axes, times: Sequence[int | str]) -> NDArray[Any]:
    """Where times are on the axis of a panel, which gets its ticks: whole numbers, or dates."""
    import matplotlib.dates
    from matplotlib.ticker import MaxNLocator

    dates: Any = matplotlib.dates  # has no types
    if any(isinstance(time, str) for time in times):
        locator = dates.AutoDateLocator(minticks=2, maxticks=5)
        panel.xaxis.set_major_locator(locator)
        panel.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        places: NDArray[Any] = dates.date2num(np.array(times, "datetime64[D]"))
        return places
    panel.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True, min_n_ticks=1))
    return np.array(times)


def _comparable(times: Sequence[Sequence[int | str]]) -> bool:
    """Whether all times are numbers, and those of all graphs fit on one axis.

    Examples
    --------
    >>> _comparable([[2004, 2015], [1999, 2012]]), _comparable([[2004, 2015], [3, 9]]), _comparable([["2004-03"]])
    (True, False, False)
    """
    numbers = [[time for time in some if not isinstance(time, str)] for some in times if some]
    if not all(map(len, numbers)) or not numbers:
        return False
    every = [time for some in numbers for time in some]
    longest = max(max(some) - min(some) for some in numbers)
    return max(every) - min(every) <= 3 * longest


def _points(index: int) -> dict[str, Any]:
    return {"color": COLOURS[index], "marker": "o", "markersize": 2}


def _short(name: str) -> str:
    return plain(name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…")


def _nothing(panel: Axes) -> None:
    panel.text(0.5, 0.5, "nothing to show", transform=panel.transAxes, ha="center", color="#666666")
    panel.set(xticks=[], yticks=[])


# --- files -----------------------------------------------------------------------------------------------------------


def write_datasets(paths: Iterable[str], out: str | Path, note: str = "") -> list[Path]:
    """Describe some graphs: facts, the table of data sets, and figures. The same graphs give the same bytes.

    Parameters
    ----------
    paths
        Graph folders, or names of graphs that need none.
    out
        The folder for the files; it is made if need be.
    note
        Where they are from: command, data. It stands below the table and each figure.

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
            f"two graphs are called {twice[0]}" if twice else "there is no graph to describe",
            fix="rename the folder of one" if twice else "name at least one",
        )
    found = []
    for number, path in enumerate(paths, 1):
        log.info("describing %s, graph %d of %d", path, number, len(paths))
        found.append(facts(path))
    written = [replace_file(out / "datasets", "json", f"{_json(found)}\n".encode())]
    written += write(datasets_table(found, note), out / "datasets")
    drawings: tuple[Callable[[Sequence[Facts]], Figure], ...] = (
        distributions,
        drift_per_task,
        time_differences,
        unseen_per_task,
    )
    for drawing in drawings:
        written += save(drawing(found), out / drawing.__name__, note)
    return written


def _json(value: Any, depth: int = 0) -> str:
    """JSON in which that is one line which holds nothing that has parts itself.

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
