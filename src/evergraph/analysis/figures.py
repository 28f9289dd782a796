"""Figures of graphs from their descriptions, as in the paper: each graph is a panel, a row or a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.analysis.description import DifferenceSummary, GraphDescription
from evergraph.presentation.style import COLOURS, figure, legend_below, plain, save, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["HOPS", "draw"]

HOPS = (1, 2, 3)
"""Numbers of hops whose time differences are drawn, if a description has them."""
_WHISKER = 1.5  # maximum length of a box plot's whiskers, in heights of its box
_LONGEST_NAME = 30


def draw(graphs: Sequence[GraphDescription], folder: str | Path, note: str = "") -> list[Path]:
    """Draw all figures of some graphs into a folder, as SVG and PNG with a note below; return the files."""
    drawings: tuple[Callable[[Sequence[GraphDescription]], Figure], ...]
    drawings = (distributions, drift_per_task, time_differences, unseen_per_task)
    return [path for drawing in drawings for path in save(drawing(graphs), Path(folder) / drawing.__name__, note)]


def distributions(graphs: Sequence[GraphDescription]) -> Figure:
    """Draw the number of vertices over time, by degree and by class, one row of panels per graph.

    Degrees leave out vertices without edges, because the axis is logarithmic.
    """
    from matplotlib.ticker import MaxNLocator

    with figure(max(len(graphs), 1), 3, height=1.9) as (picture, rows):
        for (over_time, by_degree, by_class), found in zip(rows, graphs, strict=False):
            over_time.plot(_places(over_time, found.times), found.vertices_at, **_points(0), linewidth=1)
            over_time.set(title=_short(found.name), xlabel="time", ylabel="vertices", yscale="log")
            degree, vertices = (np.array(found.degrees[name]) for name in ("degree", "vertices"))
            if degree.any():
                by_degree.loglog(degree[degree > 0], vertices[degree > 0], **_points(1), linestyle="")
            else:
                _nothing(by_degree)
            exponent = found.power_law
            by_degree.set(title="" if exponent is None else f"power law {exponent:.2f} (degree ≥ 1)", xlabel="degree")
            counts = sorted((one.vertices for one in found.classes), reverse=True)
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


def drift_per_task(graphs: Sequence[GraphDescription]) -> Figure:
    """Draw the drift of the classes at each task, against the period before and against all periods before.

    If the times of the graphs hardly overlap, or are dates, the axis is the number of the task.
    """
    from matplotlib.ticker import MaxNLocator

    by_time = _comparable([found.times[found.tasks] for found in graphs])
    with figure(1, 2, height=2.8, sharey=True) as (picture, axes):
        for panel, against in zip(axes[0], ("against the period before", "against all periods before"), strict=True):
            for index, found in enumerate(graphs):
                tasks = found.times[found.tasks]
                at = {one.time: one.consecutive if panel is axes[0, 0] else one.cumulative for one in found.drift}
                moves = np.array([at.get(time) for time in tasks], np.float64)
                if np.isfinite(moves).any():
                    places = tasks if by_time else range(1, len(tasks) + 1)
                    look = series(index) | {"markersize": 3.5, "linewidth": 1.3}
                    panel.plot(places, moves, label=_short(found.name), **look)
            panel.set(title=against, xlabel="time of the task" if by_time else "task", ylim=(0, None))
            panel.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
            if not panel.lines:
                _nothing(panel)
        axes[0, 0].set_ylabel("drift (total variation)")
        legend_below(picture)
    return picture


def time_differences(graphs: Sequence[GraphDescription]) -> Figure:
    """Draw box plots of the time differences within one, two and three hops, one panel per graph.

    Whiskers end at the furthest difference within 1.5 heights of the box. Each difference beyond is one point, however
    often it occurs.
    """
    from matplotlib.ticker import MaxNLocator

    with _grid(len(graphs), columns=3, height=2.3) as (picture, panels):
        for index, (panel, found) in enumerate(zip(panels, graphs, strict=False)):
            drawn = [(one.hops, _box(one)) for hops in HOPS if (one := found.differences.get(str(hops))) and one.pairs]
            steps = "" if found.time_steps == "periods" else f", in {found.time_steps}"
            steps += " (estimated)" if any(one.error is not None for one in found.differences.values()) else ""
            panel.set(title=f"{_short(found.name)}{steps}", xlabel="hops", xlim=(0.4, len(HOPS) + 0.6))
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
            panel.set_xticks(HOPS, [str(hops) for hops in HOPS])
            panel.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    return picture


def unseen_per_task(graphs: Sequence[GraphDescription]) -> Figure:
    """Draw the number of vertices of an unseen class at each task, one panel per graph."""
    from matplotlib.ticker import MaxNLocator

    with _grid(len(graphs), columns=2, height=1.9) as (picture, panels):
        for index, (panel, found) in enumerate(zip(panels, graphs, strict=False)):
            unseen, test = found.unseen_vertices, found.test_vertices
            panel.set(title=f"{_short(found.name)}: {unseen:,} of {test:,} vertices", xlabel="time of the task")
            if index % 2 == 0:
                panel.set_ylabel("unseen-class vertices")
            if not unseen:
                _nothing(panel)
                continue
            places = _places(panel, found.times[found.tasks])
            width = 0.8 * (np.diff(places).min() if len(places) > 1 else 1)
            panel.bar(places, found.unseen_at[found.tasks], color=COLOURS[1], width=width)
            panel.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    return picture


@contextmanager
def _grid(count: int, columns: int, height: float) -> Iterator[tuple[Figure, list[Axes]]]:
    columns = max(1, min(count, columns))
    with figure(max(1, -(-count // columns)), columns, height=height) as (picture, axes):
        panels = list(axes.flat)
        for panel in panels[count:]:
            panel.remove()
        yield picture, panels[:count]


def _box(found: DifferenceSummary) -> dict[str, Any]:
    """Return quartiles, whiskers and outliers for matplotlib."""
    low, median, high = (found.percentiles[level] for level in ("25", "50", "75"))
    reach = _WHISKER * (high - low)
    there = np.flatnonzero(found.counts).tolist()
    within = [difference for difference in there if low - reach <= difference <= high + reach]
    # No whisker ends inside the box, also if a quartile is between two differences.
    start, end = min([*within, low]), max([*within, high])
    beyond = [difference for difference in there if not start <= difference <= end]
    box = {"q1": low, "med": median, "q3": high, "whislo": start, "whishi": end, "fliers": beyond}
    return box | {"label": str(found.hops)}


def _places(panel: Axes, times: Sequence[int | str]) -> NDArray[Any]:
    """Return the positions of times (whole numbers or dates) on the axis of a panel, and set its ticks."""
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
    """Whether all times are numbers that fit on one axis."""
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
