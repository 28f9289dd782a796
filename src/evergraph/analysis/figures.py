"""Figures of how graphs move in time, after those of the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.analysis.drift import drift
from evergraph.analysis.profile import Profile, profile
from evergraph.analysis.tdiff import tdiff
from evergraph.errors import InputError
from evergraph.graph.evolving import EvolvingGraph
from evergraph.presentation.style import COLOURS, plain, save, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]


def panels(*shape: int, **options: Any) -> Any:
    """Open a figure inside `styled`."""
    from evergraph.presentation.style import figure

    with figure(*shape, **options) as found:
        return found


_STYLES = ("-", "--", ":")
_HOPS = (1, 2, 3)
_LARGE = 200_000  # vertices from which on time differences are estimated from a sample
_SAMPLE = 10_000


def draw(
    graphs: Mapping[str, EvolvingGraph], folder: str | Path, *, command: str = "", sample: int | None = None
) -> list[Path]:
    """Draw time differences, drift, distributions and unseen vertices of some graphs, as PNG and SVG.

    Parameters
    ----------
    graphs
        Graphs by name; each is a row of the figures, or a line.
    folder
        Where the files go; it is made if need be.
    command
        What made the figures; it stands below each.
    sample
        Estimate time differences from so many vertices; by default of large graphs only (10,000 of 200,000 or more).

    Returns
    -------
    list of Path
        The PNG files; beside each is an SVG of the same name.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError("this is a file, not a folder", file=folder, fix="choose another folder") from None
    graphs = {plain(name if len(name) <= 30 else f"{name[:29]}…"): graph for name, graph in graphs.items()}
    profiles = {name: profile(graph) for name, graph in graphs.items()}
    drawings: dict[str, Callable[[], Figure]] = {
        "time_differences": lambda: _time_differences(graphs, sample),
        "drift": lambda: _drift(graphs, profiles),
        "distributions": lambda: _distributions(graphs, profiles),
        "unseen": lambda: _unseen(graphs, profiles),
    }
    written = []
    with styled():
        for name, drawing in drawings.items():
            _, png = save(drawing(), folder / name, f"$ {command}" if command else "")
            written.append(png)
    return written


def _time_differences(graphs: Mapping[str, EvolvingGraph], sample: int | None) -> Figure:
    figure, axes = panels(len(graphs), 1)
    for ax, (name, graph) in zip(axes[:, 0], graphs.items(), strict=True):
        sources = sample or (_SAMPLE if len(graph) >= _LARGE else None)
        for hops, colour, style in zip(_HOPS, COLOURS, _STYLES, strict=False):
            found = tdiff(graph, hops, sample=sources)
            if not found.pairs:
                continue
            median = found.percentile(50)
            share = np.cumsum(found.distribution)
            about = "" if found.error is None else "about "
            label = f"{hops} hop{'s' if hops > 1 else ''}: {about}{found.pairs:,} pairs, median {about}{median:g}"
            ax.step(np.arange(len(share)), share, where="post", color=colour, linestyle=style, label=label)
            ax.plot(median, share[int(median)], "o", color=colour, markersize=4)
        ax.set(
            title=name, xlabel=f"time difference ({graph.axis.steps})", ylabel="share of pairs within", ylim=(0, 1.03)
        )
        ax.set_xlim(left=0)
        _whole_ticks(ax)
        _legend(ax, "lower right")
        if not graph.n_edges:
            _nothing(ax)
    return figure


def _drift(graphs: Mapping[str, EvolvingGraph], profiles: Mapping[str, Profile]) -> Figure:
    figure, axes = panels(1, 1, height=3.2)
    ax = axes[0, 0]
    for (name, graph), colour in zip(graphs.items(), _cycle(len(graphs)), strict=True):
        moved, start = drift(graph), profiles[name].first_task
        if start is None or not len(moved.times):
            continue
        tasks = moved.times >= start
        times = moved.times[tasks] * graph.axis.step
        ax.plot(times, moved.consecutive[tasks], "o-", color=colour, markersize=3, label=f"{name}, to the time before")
        ax.plot(
            times,
            moved.cumulative[tasks],
            "s--",
            color=colour,
            alpha=0.5,
            markersize=4,
            label=f"{name}, to all times before",
        )
        _time_axis(ax, graph)
    ax.set(ylabel="total variation of classes", xlabel="time of the task", ylim=(0, None))
    _legend(ax, "best")
    if not ax.lines:
        _nothing(ax)
    return figure


def _distributions(graphs: Mapping[str, EvolvingGraph], profiles: Mapping[str, Profile]) -> Figure:
    figure, axes = panels(len(graphs), 3)
    for (over_time, degrees, classes), (name, graph) in zip(axes, graphs.items(), strict=True):
        found = profiles[name]
        over_time.plot(found.times * graph.axis.step, found.vertices_at, "o-", color=COLOURS[0], markersize=3)
        over_time.set(title=name, yscale="log", xlabel="time", ylabel="vertices")
        _time_axis(over_time, graph)
        degree = np.flatnonzero(found.degrees[1:]) + 1
        if len(degree):
            degrees.loglog(degree, found.degrees[degree], ".", color=COLOURS[1], markersize=3)
        else:
            _nothing(degrees)
        title = "" if found.power_law is None else f"power law {found.power_law:.2f}"
        degrees.set(title=title, xlabel="degree", ylabel="vertices")
        support = np.sort(graph.classes.support[graph.classes.support > 0])[::-1]
        if len(support):
            classes.bar(np.arange(1, len(support) + 1), support, color=COLOURS[2], width=1.0)
            classes.set_yscale("log")
            classes.set_ylim(bottom=0.8)  # bars from 1, so that their lengths can be compared
            _whole_ticks(classes)
        else:
            _nothing(classes)
        classes.set(title=f"{len(support)} classes", xlabel="rank of the class", ylabel="vertices")
    return figure


def _unseen(graphs: Mapping[str, EvolvingGraph], profiles: Mapping[str, Profile]) -> Figure:
    figure, axes = panels(len(graphs), 1)
    for ax, (name, graph) in zip(axes[:, 0], graphs.items(), strict=True):
        found = profiles[name]
        if found.first_task is None:
            _nothing(ax)
            continue
        tasks = found.times >= found.first_task
        times = found.times[tasks] * graph.axis.step
        ax.bar(times, found.vertices_at[tasks], color="#BBBBBB", width=0.8 * graph.axis.step, label="all vertices")
        ax.bar(
            times,
            found.unseen_at[tasks],
            color=COLOURS[1],
            width=0.8 * graph.axis.step,
            label="of a class never seen before",
        )
        title = (
            f"{name}: {found.unseen_vertices:,} of {found.test_vertices:,} vertices are of a class never seen before"
        )
        ax.set(title=title, xlabel="time of the task", ylabel="vertices")
        _time_axis(ax, graph)
        _legend(ax, "best")
    return figure


def _cycle(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _time_axis(ax: Axes, graph: EvolvingGraph) -> None:
    """Whole numbers, or for months, weeks and days how a person writes them."""
    from matplotlib.ticker import FuncFormatter

    _whole_ticks(ax)
    if graph.axis.unit not in ("integer", "year"):
        step = graph.axis.step
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: graph.axis.label(int(value) // step)))
        ax.tick_params(axis="x", labelrotation=30)


def _whole_ticks(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True, min_n_ticks=1))


def _legend(ax: Axes, place: Any) -> None:
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=7, loc=place)


def _nothing(ax: Axes) -> None:
    ax.text(0.5, 0.5, "nothing to show", transform=ax.transAxes, ha="center", color="#666666")
