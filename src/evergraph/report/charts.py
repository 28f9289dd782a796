"""The charts of a report as Plotly figures, in the JSON that plotly.js reads.

Figures are plain dicts, because Plotly's Python package is slow to import. Colours are variables of the style sheet,
such as ``var(--blue)``, so that they follow the theme. Texts from data are escaped, because Plotly interprets tags.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Any

from evergraph.analysis.description import ClassHistory, DriftAt
from evergraph.report.content import Band, Calibration, ConfusionTable, Slices, ThresholdCurve, Transfer
from evergraph.report.measures import OTHER

_LONGEST, _LONGEST_NARROW, _LONGEST_HOVER = 36, 17, 70
_ROW = 24  # pixels of a row of cells
_FEWEST = 4  # intervals that make an area
_DASHES = {"line": "solid", "dashed": "8px,4px", "dotted": "2px,4px"}
_AXIS = {
    "gridcolor": "var(--grid)",
    "linecolor": "var(--grid)",
    "zeroline": False,
    "automargin": True,
    "exponentformat": "none",
    "fixedrange": False,
    "title": {"font": {"size": 13}, "standoff": 10},
}
_TICKS = {"ticks": "outside", "tickcolor": "var(--grid)", "ticklen": 4, "showgrid": False}
_SPIKES = {"spikecolor": "var(--soft)", "spikethickness": 1, "spikedash": "solid"}
_LAYOUT: dict[str, Any] = {
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
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
    "xaxis": {**_AXIS, **_TICKS, **_SPIKES},
    "yaxis": {**deepcopy(_AXIS), "rangemode": "tozero", "nticks": 6},
}


@dataclass(frozen=True)
class Key:
    """An entry of a legend; ``mark`` is ``line``, ``dashed``, ``dotted`` or ``area``."""

    text: str
    colour: str
    mark: str = "line"
    short: str = ""


@dataclass(frozen=True)
class Chart:
    """A figure with its id, a description for screen readers, the title of its y axis and its legend.

    ``narrow`` has what differs on a narrow screen: values by their path in the layout (``yaxis.ticktext``).
    """

    name: str
    label: str
    unit: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    keys: Sequence[Key] = ()
    narrow: dict[str, Any] = field(default_factory=dict)

    @property
    def figure(self) -> dict[str, Any]:
        """The figure for plotly.js."""
        return {"data": self.data, "layout": self.layout, "narrow": self.narrow}


# --- charts over time ------------------------------------------------------------------------------------------------


def accuracy_chart(slices: Slices) -> Chart:
    """Accuracy by period with its band."""
    times = [row.time for row in slices.rows]
    known = [row.known_accuracy for row in slices.rows]
    keys = (
        Key("all vertices", "blue", short="all"),
        Key("vertices of known classes", "green", "dashed", "known classes"),
    )
    data = [
        _line(times, _means(known), keys[1], _percents(known)),
        *_banded(times, [row.accuracy for row in slices.rows], keys[0]),
    ]
    label = f"Line chart of the accuracy from {times[0]} to {times[-1]}; the numbers are in the table below."
    return Chart("accuracy-chart", label, "Accuracy, % of vertices", data, _shares_over_time(times, data), keys)


def unseen_chart(slices: Slices) -> Chart:
    """Truly unseen and flagged vertices by period."""
    times = [row.time for row in slices.rows]
    unseen = [None if row.unseen is None else Band(row.unseen) for row in slices.rows]
    keys = [Key("flagged as unseen", "orange", short="flagged"), Key("truly unseen", "blue", "dashed")]
    data = _banded(times, [row.flagged for row in slices.rows], keys[0])
    if any(unseen):
        data.append(_line(times, _means(unseen), keys[1], _percents(unseen)))
    else:  # there are no labels
        del keys[1]
    label = (
        f"Line chart of flagged and unseen vertices from {times[0]} to {times[-1]}; the numbers are in the table below."
    )
    return Chart("unseen-chart", label, "Share of vertices, %", data, _shares_over_time(times, data), keys)


def transfer_chart(transfer: Transfer) -> Chart:
    """Gain of warm over cold restarts by period; the first task does not count."""
    gains = [None if gain is None else 100 * gain for gain in transfer.gains]
    colours = ["var(--orange)" if gain is not None and gain < 0 else "var(--blue)" for gain in gains]
    marker = {"color": ["var(--pale)", *colours[1:]]}
    bars = {"type": "bar", "x": _placed(transfer.times), "y": gains, "marker": marker}
    bars["hovertemplate"] = "%{y:+.1f} points<extra></extra>"
    layout = _over_time(transfer.times)
    layout["yaxis"] |= {"rangemode": "normal", "zeroline": True, "zerolinecolor": "var(--soft)"}
    layout["bargap"] = 0.35
    keys = (
        Key("warm restarts are better", "blue", "area"),
        Key("cold restarts are better", "orange", "area"),
        Key("first task, not counted", "pale", "area"),
    )
    label = "Bar chart of the gain in accuracy by period; the numbers are in the table below."
    return Chart("transfer-chart", label, "Gain in accuracy, percentage points", [bars], layout, keys)


def drift_chart(drift: Sequence[DriftAt], first: str | None) -> Chart:
    """Drift of the class distribution, with a mark at the first task."""
    keys = (
        Key("from the previous period", "blue", short="from previous"),
        Key("from all previous periods", "green", "dashed", "from all previous"),
    )
    times = [str(one.time) for one in drift]
    columns = ([one.consecutive for one in drift], [one.cumulative for one in drift])
    data = [
        _line(times, values, key, ["" if value is None else f"{value:.2f}" for value in values])
        for key, values in zip(keys, columns, strict=True)
    ]
    layout = _over_time(times)
    layout["yaxis"] |= {"range": [0, 1.02], "tickformat": ".1f"}
    if first is not None:
        start = _placed([*times, first])[-1]
        layout |= _mark(start, "first task", left=start > _placed(times)[len(times) // 2])
        layout["margin"] |= {"t": 28}
    label = "Line chart of the drift by period; the numbers are in the table below."
    return Chart("drift-chart", label, "Drift, from 0 to 1", data, layout, keys)


# --- charts of cells -------------------------------------------------------------------------------------------------


def timeline_chart(times: Sequence[str], classes: Sequence[ClassHistory]) -> Chart:
    """Number of vertices by class and period, as cells."""
    counts = [dict(zip(map(str, one.times), one.counts, strict=True)) for one in classes]
    most = max(count for one in classes for count in one.counts)
    hover = [
        [f"{_escaped(one.name)}<br>{_escaped(time)}: {at.get(time, 0):,}" for time in times]
        for one, at in zip(classes, counts, strict=True)
    ]
    # Square roots, so that small classes are visible next to large ones.
    roots = [[at[time] ** 0.5 if at.get(time) else None for time in times] for at in counts]
    names = [one.name for one in classes]
    layout, narrow = _rows(names, [""] * len(names))
    for place, width in ((layout["xaxis"], 450), (narrow, 190)):
        ticks = thinned(times, width)
        prefix = "" if width == 450 else "xaxis."
        place |= {f"{prefix}tickvals": ticks, f"{prefix}ticktext": [_escaped(times[at]) for at in ticks]}
    layout["xaxis"]["range"] = [-0.5, len(times) - 0.5]
    keys = (
        Key("few vertices", "heat-low", "area"),
        Key(f"{most:,} {'vertex' if most == 1 else 'vertices'}", "heat-high", "area"),
    )
    label = f"Cells of {len(names)} classes by period; first and last periods are in the table below."
    data = [_cells(roots, hover, most**0.5)]
    return Chart("timeline-chart", label, "Number of vertices by class and period", data, layout, keys, narrow)


def confusion_chart(confusion: ConfusionTable) -> Chart:
    """Decisions by true class, as shares of each true class."""
    labels = confusion_labels(confusion.names)
    hover, shares = [], []
    for (_, truth), counts in zip(labels, confusion.counts, strict=True):
        total = max(sum(counts), 1)
        shares.append([count / total if count else None for count in counts])
        hover.append(
            [
                f"true class: {_escaped(truth)}<br>decision: {_escaped(decision)}<br>"
                f"{count:,} vertices, {100 * count / total:.0f} % of the row"
                for (_, decision), count in zip(labels, counts, strict=True)
            ]
        )
    marks = [mark for mark, _ in labels]
    layout, narrow = _rows([name for _, name in labels], [f"  {mark}" for mark in marks])
    layout["xaxis"] |= {"tickvals": list(range(len(marks))), "ticktext": marks, "side": "top"}
    layout["xaxis"]["title"]["text"] = "Decision"
    layout["margin"] |= {"t": 56, "b": 8}
    narrow["xaxis.tickfont"] = {"size": 10}
    label = "Cells of true classes (rows) by decisions (columns); the numbers are in the table below."
    keys = (Key("few of the row", "heat-low", "area"), Key("all of the row", "heat-high", "area"))
    unit = "Decisions (columns) by true class (rows), share of the row"
    return Chart("confusion-chart", label, unit, [_cells(shares, hover, 1)], layout, keys, narrow)


def confusion_labels(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return a short mark and a name for each row and column of a confusion.

    Examples
    --------
    >>> confusion_labels(["x", "y", "other classes", "unseen"])
    [('1', 'x'), ('2', 'y'), ('O', 'other classes'), ('U', 'an unseen class')]
    """
    *classes, _ = names
    tail = [("U", "an unseen class")]
    if classes and classes[-1] == OTHER:
        tail.insert(0, ("O", classes.pop()))
    return [(str(number), name) for number, name in enumerate(classes, start=1)] + tail


# --- other charts ----------------------------------------------------------------------------------------------------


def calibration_chart(calibration: Calibration) -> Chart:
    """Accuracy by probability."""
    most = max(one.count for one in calibration.bins)
    keys = (Key("decisions (larger dot: more vertices)", "blue"), Key("perfect calibration", "soft", "dotted"))
    points = _line(
        [100 * one.confidence for one in calibration.bins],
        [100 * one.accuracy for one in calibration.bins],
        keys[0],
        [f"{one.count:,} vertices" for one in calibration.bins],
    )
    sizes = [6 + 14 * (one.count / most) ** 0.5 for one in calibration.bins]
    points["marker"] |= {"opacity": 1, "line": {"width": 0}, "size": sizes}
    points["hovertemplate"] = "probability %{x:.1f} %<br>correct %{y:.1f} %<br>%{text}<extra></extra>"
    layout = deepcopy(_LAYOUT) | {"hovermode": "closest"}
    layout["xaxis"]["range"] = layout["yaxis"]["range"] = [-2, 102]
    layout["xaxis"]["title"]["text"] = "Probability of the most likely class, %"
    label = "Line chart of accuracy by probability; the numbers are in the table below."
    data = [_line([0, 100], [0, 100], keys[1], None), points]
    return Chart("calibration-chart", label, "Correct, % of vertices", data, layout, keys)


def threshold_chart(curve: ThresholdCurve) -> Chart:
    """Found vertices, false alarms and MCC by threshold."""
    keys = (
        Key("unseen vertices found", "blue", short="found"),
        Key("false alarms", "orange", "dashed"),
        Key("MCC", "green", "dotted"),
    )
    data = [
        _line(curve.thresholds, values, key, [f"{value:.2f}" for value in values]) | {"mode": "lines"}
        for key, values in zip(keys, (curve.found, curve.false_alarms, curve.mcc), strict=True)
    ]
    layout = deepcopy(_LAYOUT)
    layout["xaxis"]["hoverformat"] = ".2f"
    layout["xaxis"]["title"]["text"] = curve.axis
    narrow = {"xaxis.title.text": re.sub("(.{20,}?) ", r"\1<br>", _escaped(curve.axis), count=1)}
    if curve.in_force is not None:
        left = curve.in_force > (curve.thresholds[0] + curve.thresholds[-1]) / 2
        layout |= _mark(curve.in_force, f"in use: {curve.in_force:.3g}", left=left)
        layout["margin"] |= {"t": 28}
    label = "Line chart of the results by threshold; the numbers are in the table below."
    return Chart("threshold-chart", label, "Share from 0 to 1, or MCC", data, layout, keys, narrow)


def differences_chart(shares: Sequence[float], steps: str, history: int | None) -> Chart:
    """Distribution of the time differences, and the part that the history covers."""
    covered = [history is None or at <= history for at in range(len(shares))]
    keys = [Key("within the history", "blue", "area"), Key("cumulative", "orange", "dashed")]
    if not all(covered):
        keys.insert(1, Key("older", "pale", "area"))
    places, total = list(range(len(shares))), [100 * share for share in accumulate(shares)]
    bars = {
        "type": "bar",
        "x": places,
        "y": [100 * share for share in shares],
        "marker": {"color": ["var(--blue)" if within else "var(--pale)" for within in covered]},
        "name": "this difference",
        "hovertemplate": "%{y:.1f} %",
    }
    running = _line(places, total, keys[-1], [f"{value:.1f} %" for value in total])
    layout = deepcopy(_LAYOUT) | {"bargap": 0.25}
    layout["xaxis"]["title"]["text"] = f"Time difference, {_escaped(steps)}"
    layout["xaxis"] |= {"dtick": 1} if len(shares) <= 4 else {}
    layout["yaxis"] |= {"range": [0, 104]}
    label = "Bar chart of time differences and their cumulative share; the numbers are in the table below."
    return Chart("differences-chart", label, "Pairs of vertices, %", [bars, running], layout, keys)


# --- pieces ----------------------------------------------------------------------------------------------------------


def shortened(text: str, longest: int) -> str:
    """Shorten a text in the middle, because names often differ at their ends.

    Examples
    --------
    >>> shortened("Axiom of Extensionality", 15), shortened("Topology", 15)
    ('Axiom of…nality', 'Topology')
    """
    tail = longest * 2 // 5
    return text if len(text) <= longest else f"{text[: longest - tail - 1]}…{text[-tail:]}"


def thinned(times: Sequence[str], width: float) -> list[int]:
    """Return evenly spaced places of as many labels as fit side by side into a width in pixels.

    Examples
    --------
    >>> thinned(["2001", "2002", "2003", "2004"], 100)
    [0, 2]
    """
    each = 16 + 7.5 * max(map(len, times), default=0)
    return list(range(0, len(times), max(1, math.ceil(len(times) / max(1, int(width / each))))))


def _escaped(text: str) -> str:
    short = shortened(text, _LONGEST_HOVER)
    return short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _placed(times: Sequence[str]) -> list[Any]:
    """Return times as numbers if all are numbers."""
    return [int(time) for time in times] if all(re.fullmatch("[0-9]{1,15}", time) for time in times) else list(times)


def _over_time(times: Sequence[str]) -> dict[str, Any]:
    """Return the layout of a chart over periods: whole numbers, dates or names."""
    layout, at = deepcopy(_LAYOUT), _placed(times)
    layout["xaxis"]["title"]["text"] = "Period"
    if at and isinstance(at[0], int):
        few = max(at) - min(at) <= 4  # without it, plotly labels half years
        layout["xaxis"] |= {"type": "linear", **({"dtick": 1} if few else {})}
    else:
        dates = all(re.fullmatch(r"\d{4}-\d{2}(-\d{2})?", time) for time in times)
        layout["xaxis"] |= {"type": "date"} if dates else {"type": "category", "nticks": 6}
    return layout


def _shares_over_time(times: Sequence[str], data: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the layout of shares in percent over periods, from 0 to a round number above the highest."""
    layout = _over_time(times)
    highest = max((value for line in data for value in _reached(line) if value is not None), default=0)
    top = next(top for top in (10, 20, 50, 100) if highest <= top or top == 100)
    layout["yaxis"] |= {"range": [0, 1.02 * top]}  # with room for a dot at the top
    return layout


def _reached(line: Mapping[str, Any]) -> list[float | None]:
    """Return the values of a line, with its error bars."""
    ends = line.get("error_y", {}).get("array", [None] * len(line["y"]))
    return [None if y is None else y + (up or 0) for y, up in zip(line["y"], ends, strict=True)]


def _rows(names: Sequence[str], marks: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the layout of rows of cells, and what differs on a narrow screen."""
    layout = deepcopy(_LAYOUT) | {"hovermode": "closest", "height": _ROW * len(names) + 64}
    layout["xaxis"] |= {"fixedrange": True, "ticks": "", "showline": False}
    wide, narrow = (
        [_escaped(shortened(name, longest)) + mark for name, mark in zip(names, marks, strict=True)]
        for longest in (_LONGEST, _LONGEST_NARROW)
    )
    layout["yaxis"] = {
        **deepcopy(_AXIS),
        "fixedrange": True,
        "showgrid": False,
        "showline": False,
        "ticks": "",
        "range": [len(names) - 0.5, -0.5],
        "tickvals": list(range(len(names))),
        "ticktext": wide,
        "tickfont": {"color": "var(--text)"},
    }
    return layout, {"yaxis.ticktext": narrow}


def _cells(values: Sequence[Sequence[float | None]], hover: Sequence[Sequence[str]], highest: float) -> dict[str, Any]:
    look = {"colorscale": [[0, "var(--heat-low)"], [1, "var(--heat-high)"]], "showscale": False, "xgap": 2, "ygap": 2}
    found = {"type": "heatmap", "z": values, "zmin": 0, "zmax": highest, "text": hover, **look}
    places = {"x": list(range(len(values[0]))), "y": list(range(len(values)))}
    return found | places | {"hovertemplate": "%{text}<extra></extra>"}


def _line(x: Sequence[Any], y: Sequence[float | None], key: Key, hover: Sequence[str] | None) -> dict[str, Any]:
    """Return a line in the style of its legend entry; ``hover`` has the text of each point, None for no text."""
    colour = f"var(--{key.colour})"
    found: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers" if len(x) <= 60 and hover is not None else "lines",
        "x": _placed(x) if x and isinstance(x[0], str) else list(x),
        "y": list(y),
        "name": key.short or key.text,
        "line": {"color": colour, "width": 2, "dash": _DASHES[key.mark]},
        "marker": {"color": colour, "size": 6},
        "cliponaxis": False,  # do not cut a dot at the edge
    }
    return found | ({"hoverinfo": "skip"} if hover is None else {"text": list(hover), "hovertemplate": "%{text}"})


def _banded(times: Sequence[str], bands: Sequence[Band | None], key: Key) -> list[dict[str, Any]]:
    """Return a line of shares with its band; too few intervals for an area become error bars."""
    drawn = _line(times, _means(bands), key, _percents(bands))
    low, high = (
        [None if band is None or (end := getattr(band, side)) is None else 100 * end for band in bands]
        for side in ("low", "high")
    )
    # Neighbours with intervals make an area; the others, and all if they are few, have error bars.
    runs = [list(run) for there, run in groupby(range(len(low)), key=lambda at: low[at] is not None) if there]
    areas = [run for run in runs if len(run) > 1] if sum(map(len, runs)) >= _FEWEST else []
    found = [drawn]
    if lone := [at for run in runs if run not in areas for at in run]:
        mean = [drawn["y"][at] for at in lone]
        up, down = ([abs(side[at] - drawn["y"][at]) for at in lone] for side in (high, low))
        bar = {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1.5, "width": 4}
        dots = {"type": "scatter", "mode": "markers", "x": [drawn["x"][at] for at in lone], "y": mean}
        look = {"marker": drawn["marker"], "hoverinfo": "skip", "error_y": bar | {"color": f"var(--{key.colour})"}}
        found.insert(0, dots | look)
    if not areas:
        return found
    # Each area is closed by itself: with "tonexty", plotly.js joins the edges across a gap.
    xs, ys = [], []
    for run in areas:
        xs += [*(drawn["x"][at] for at in run), *(drawn["x"][at] for at in reversed(run)), None]
        ys += [*(high[at] for at in run), *(low[at] for at in reversed(run)), None]
    area = {"fill": "toself", "fillcolor": f"var(--{key.colour}-band)", "line": {"width": 0}, "hoverinfo": "skip"}
    return [{"type": "scatter", "mode": "lines", "x": xs[:-1], "y": ys[:-1]} | area, *found]


def _means(bands: Sequence[Band | None]) -> list[float | None]:
    return [None if band is None else 100 * band.mean for band in bands]


def _percents(bands: Sequence[Band | None]) -> list[str]:
    """Return means with their intervals as text.

    Examples
    --------
    >>> _percents([Band(0.5, 0.25, 0.75), Band(0.5), None])
    ['50.0 % (25.0 to 75.0)', '50.0 %', '']
    """
    found = []
    for band in bands:
        text = "" if band is None else f"{100 * band.mean:.1f} %"
        if band is not None and band.low is not None and band.high is not None:
            text += f" ({100 * band.low:.1f} to {100 * band.high:.1f})"
        found.append(text)
    return found


def _mark(x: Any, text: str, *, left: bool) -> dict[str, Any]:
    """Return a vertical dotted line with a text above the plot, which needs a top margin."""
    line = {"color": "var(--soft)", "width": 1.5, "dash": "2px,3px"}
    note = {"x": x, "y": 1, "yref": "paper", "yanchor": "bottom", "text": _escaped(text), "showarrow": False}
    note |= {"xanchor": "right" if left else "left", "xshift": -4 if left else 4}
    note["font"] = {"color": "var(--text)", "size": 12}
    shape = {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line}
    return {"shapes": [shape], "annotations": [note]}
