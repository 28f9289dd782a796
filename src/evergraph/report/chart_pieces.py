"""What charts are made of: colours, axes, lines, bands and cells, as plotly.js takes them.

A colour is a name, such as ``var(--blue)``; the page knows what it is in its theme. Texts from data are escaped, for
plotly takes some tags for its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from evergraph.presentation.style import COLOURS
from evergraph.report.story import Band

__all__ = [
    "LONGEST",
    "LONGEST_NARROW",
    "PALETTE",
    "Chart",
    "Key",
    "banded_line",
    "cell_look",
    "escaped",
    "line_trace",
    "means_of",
    "note_at",
    "percents_of",
    "placed",
    "plain_layout",
    "row_layout",
    "shortened",
    "thinned",
    "time_layout",
    "upright",
]

PALETTE = {
    "blue": (COLOURS[0], COLOURS[5]),
    "orange": (COLOURS[1], "#F0803C"),
    "green": (COLOURS[2], "#2FBF95"),
    "ink": (COLOURS[6], "#E4E7EB"),
}
"""The colours of series by name: on a light ground, and on a dark one."""

_CLEAR = "rgba(0,0,0,0)"
LONGEST, LONGEST_NARROW, _LONGEST_HOVER = 36, 17, 70
_ROW = 24  # pixels of a row of cells
_FEWEST = 4  # intervals that make an area
_DASHES = {"line": "solid", "dashed": "8px,4px", "dotted": "2px,4px"}


@dataclass(frozen=True)
class Key:
    """An entry of a chart's legend.

    Parameters
    ----------
    text
        What it is.
    colour
        The name of its colour.
    mark
        How it is drawn: ``line``, ``dashed``, ``dotted`` or ``area``.
    short
        What it is called where there is little room; the text unless given.
    """

    text: str
    colour: str
    mark: str = "line"
    short: str = ""


@dataclass(frozen=True)
class Chart:
    """A figure with what stands around it.

    Parameters
    ----------
    name
        Its id in the page.
    label
        What is to be seen, for those who cannot see it.
    unit
        What the values are, written above them.
    data, layout
        As plotly.js takes them.
    keys
        The legend.
    narrow
        What is different on a narrow screen: values by their place in the layout, such as ``yaxis.ticktext``.
    """

    name: str
    label: str
    unit: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    keys: tuple[Key, ...] = ()
    narrow: dict[str, Any] = field(default_factory=dict)

    def figure(self) -> dict[str, Any]:
        """What the page hands to plotly.js."""
        return {"data": self.data, "layout": self.layout, "narrow": self.narrow}


def shortened(text: str, longest: int) -> str:
    """Text cut in the middle, for names often differ at their ends.

    Examples
    --------
    >>> shortened("Axiom of Extensionality", 15), shortened("Topology", 15)
    ('Axiom of…nality', 'Topology')
    """
    if len(text) <= longest:
        return text
    tail = longest * 2 // 5
    return f"{text[: longest - tail - 1]}…{text[-tail:]}"


def escaped(text: str) -> str:
    """Text that plotly shows as it stands."""
    short = shortened(text, _LONGEST_HOVER)
    return short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def plain_layout() -> dict[str, Any]:
    """The layout that all charts share."""
    axis = {
        "gridcolor": "var(--grid)",
        "linecolor": "var(--grid)",
        "zeroline": False,
        "automargin": True,
        "exponentformat": "none",
        "fixedrange": False,
        "title": {"font": {"size": 13}, "standoff": 10},
    }
    ticks = {"ticks": "outside", "tickcolor": "var(--grid)", "ticklen": 4}
    spike = {"spikecolor": "var(--soft)", "spikethickness": 1, "spikedash": "solid"}
    return {
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        "font": {"family": "var(--font)", "size": 12, "color": "var(--soft)"},
        "margin": {"l": 40, "r": 16, "t": 10, "b": 36, "pad": 4},
        "height": 300,
        "showlegend": False,
        "dragmode": "zoom",
        "hovermode": "x unified",
        "hoverlabel": {
            "bgcolor": "var(--card)",
            "bordercolor": "var(--line)",
            "font": {"family": "var(--font)", "color": "var(--text)", "size": 12},
            "namelength": -1,
        },
        "xaxis": {**deepcopy(axis), **ticks, **spike, "showgrid": False},
        "yaxis": {**deepcopy(axis), "rangemode": "tozero", "nticks": 6},
    }


def time_layout(times: Sequence[str]) -> dict[str, Any]:
    """The layout of a chart over time: whole numbers, dates, or whatever times are called."""
    layout = plain_layout()
    at = placed(times)
    if at and isinstance(at[0], int):
        few = max(at) - min(at) <= 4  # or plotly would write half a year between two years
        layout["xaxis"] |= {"type": "linear", **({"dtick": 1} if few else {})}
    else:
        dates = all(re.fullmatch(r"\d{4}-\d{2}(-\d{2})?", time) for time in times)
        layout["xaxis"] |= {"type": "date"} if dates else {"type": "category", "nticks": 6}
    return layout


def placed(times: Sequence[str]) -> list[Any]:
    """Times as the axis of `time_layout` places them: as numbers where all are."""
    return [int(time) for time in times] if all(re.fullmatch("[0-9]{1,15}", time) for time in times) else list(times)


def line_trace(
    x: Sequence[Any], y: Sequence[float | None], key: Key, *, hover: Sequence[str] | None, points: bool = True
) -> dict[str, Any]:
    """A line in the look of its key; ``hover`` is what each point says, and None lets it say nothing."""
    colour = f"var(--{key.colour})"
    few = points and len(x) <= 60
    found: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers" if few and hover is not None else "lines",
        "x": placed(x) if x and isinstance(x[0], str) else list(x),
        "y": list(y),
        "name": key.short or key.text,
        "line": {"color": colour, "width": 2, "dash": _DASHES[key.mark]},
        "marker": {"color": colour, "size": 6},
        "cliponaxis": False,  # so that a dot on the edge is whole
    }
    return found | ({"hoverinfo": "skip"} if hover is None else {"text": list(hover), "hovertemplate": "%{text}"})


def banded_line(times: Sequence[str], bands: Sequence[Band | None], key: Key) -> list[dict[str, Any]]:
    """A line of shares in its band; where there are too few intervals for an area, each is a bar at its point."""
    drawn = line_trace(times, means_of(bands), key, hover=percents_of(bands))
    low = [None if band is None else _hundred(band.low) for band in bands]
    high = [None if band is None else _hundred(band.high) for band in bands]
    known = sum(value is not None for value in low)
    if not known:
        return [drawn]
    if known < _FEWEST:
        up, down = (
            [None if end is None else abs(end - mean) for end, mean in zip(side, drawn["y"], strict=True)]
            for side in (high, low)
        )
        bar = {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1.5, "width": 4}
        return [drawn | {"error_y": bar | {"color": f"var(--{key.colour})"}}]
    edge = {"type": "scatter", "mode": "lines", "x": drawn["x"], "line": {"width": 0}, "hoverinfo": "skip"}
    area = {"fill": "tonexty", "fillcolor": f"var(--{key.colour}-band)"}
    return [edge | {"y": low}, edge | {"y": high} | area, drawn]


def means_of(bands: Sequence[Band | None]) -> list[float | None]:
    """Means in per cent."""
    return [None if band is None else _hundred(band.mean) for band in bands]


def _hundred(share: float | None) -> float | None:
    return None if share is None else 100 * share


def percents_of(bands: Sequence[Band | None]) -> list[str]:
    """Means with their intervals, in words.

    Examples
    --------
    >>> percents_of([Band(0.5, 0.25, 0.75), Band(0.5), None])
    ['50.0 % (25.0 to 75.0)', '50.0 %', '']
    """
    found = []
    for band in bands:
        if band is None:
            found.append("")
        elif band.low is None or band.high is None:
            found.append(f"{100 * band.mean:.1f} %")
        else:
            found.append(f"{100 * band.mean:.1f} % ({100 * band.low:.1f} to {100 * band.high:.1f})")
    return found


def upright(x: Any) -> dict[str, Any]:
    """A dotted line from bottom to top."""
    line = {"color": "var(--soft)", "width": 1.5, "dash": "2px,3px"}
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def note_at(x: Any, text: str, *, left: bool) -> dict[str, Any]:
    """A word at the top of an upright line, on one side of it."""
    return {
        "x": x,
        "y": 1,
        "yref": "paper",
        "yanchor": "top",
        "xanchor": "right" if left else "left",
        "xshift": -4 if left else 4,
        "text": escaped(text),
        "showarrow": False,
        "font": {"color": "var(--text)", "size": 12},
    }


def cell_look(highest: float) -> dict[str, Any]:
    """How cells look; a cell without a value is empty."""
    return {
        "colorscale": [[0, "var(--heat-low)"], [1, "var(--heat-high)"]],
        "zmin": 0,
        "zmax": highest,
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hovertemplate": "%{text}<extra></extra>",
    }


def row_layout(names: Sequence[str], marks: Sequence[str] | None = None) -> dict[str, Any]:
    """The layout of rows of cells, the first at the top; a mark stands behind its name."""
    layout = plain_layout()
    layout["hovermode"] = "closest"
    layout["height"] = _ROW * len(names) + 64
    layout["xaxis"] |= {"fixedrange": True, "ticks": "", "showline": False}
    told = [escaped(shortened(name, LONGEST)) for name in names]
    layout["yaxis"] |= {
        "fixedrange": True,
        "showgrid": False,
        "showline": False,
        "ticks": "",
        "range": [len(names) - 0.5, -0.5],
        "tickvals": list(range(len(names))),
        "ticktext": told if marks is None else [f"{name}  {mark}" for name, mark in zip(told, marks, strict=True)],
        "tickfont": {"color": "var(--text)"},
    }
    del layout["yaxis"]["nticks"], layout["yaxis"]["rangemode"]
    return layout


def thinned(times: Sequence[str], width: float) -> list[int]:
    """Places of as many times as can be written side by side in so many pixels, evenly spaced.

    Examples
    --------
    >>> thinned(["2001", "2002", "2003", "2004"], 100)
    [0, 2]
    """
    each = 16 + 7.5 * max(map(len, times), default=0)
    step = max(1, math.ceil(len(times) / max(1, int(width / each))))
    return list(range(0, len(times), step))
