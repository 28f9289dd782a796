"""Each part of a story as a chart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from evergraph.report.chart_pieces import (
    LONGEST_NARROW,
    Chart,
    Key,
    banded_line,
    cell_look,
    escaped,
    line_trace,
    means_of,
    note_at,
    percents_of,
    placed,
    plain_layout,
    row_layout,
    shortened,
    thinned,
    time_layout,
    upright,
)
from evergraph.report.measures import OTHER
from evergraph.report.story import (
    Band,
    Calibration,
    ClassTimeline,
    Confusion,
    Drift,
    Slices,
    ThresholdCurve,
    TimeDifferences,
    Transfer,
)

__all__ = [
    "accuracy_chart",
    "calibration_chart",
    "confusion_chart",
    "confusion_labels",
    "differences_chart",
    "drift_chart",
    "threshold_chart",
    "timeline_chart",
    "transfer_chart",
    "unseen_chart",
]


def accuracy_chart(slices: Slices) -> Chart:
    """Accuracy at each time, with its band."""
    times = [row.time for row in slices.rows]
    known = [row.known_accuracy for row in slices.rows]
    accuracy = [row.accuracy for row in slices.rows]
    keys = (
        Key("all vertices", "blue", short="all"),
        Key("vertices of known classes", "green", "dashed", "known classes"),
    )
    data = [
        line_trace(times, means_of(known), keys[1], hover=percents_of(known)),
        *banded_line(times, accuracy, keys[0]),
    ]
    label = f"Line chart of the accuracy from {times[0]} to {times[-1]}; the numbers are in the table below."
    return Chart("accuracy-chart", label, "Right, % of vertices", data, time_layout(times), keys)


def unseen_chart(slices: Slices) -> Chart:
    """Truly unseen and rejected vertices at each time."""
    times = [row.time for row in slices.rows]
    rejected = [row.rejected for row in slices.rows]
    unseen = [None if row.unseen is None else Band(row.unseen) for row in slices.rows]
    keys = (Key("held to be unseen", "orange"), Key("truly unseen", "blue", "dashed"))
    data = [
        *banded_line(times, rejected, keys[0]),
        line_trace(times, means_of(unseen), keys[1], hover=percents_of(unseen)),
    ]
    label = f"Line chart of the share of unseen vertices from {times[0]} to {times[-1]}; the numbers are in the table."
    return Chart("unseen-chart", label, "Unseen, % of vertices", data, time_layout(times), keys)


def transfer_chart(transfer: Transfer) -> Chart:
    """The gain of keeping the weights at each time; the first time does not count."""
    gains = [None if gain is None else 100 * gain for gain in transfer.gains]
    colours = ["var(--orange)" if gain is not None and gain < 0 else "var(--blue)" for gain in gains]
    bars = {
        "type": "bar",
        "x": placed(transfer.times),
        "y": gains,
        "marker": {"color": ["var(--pale)", *colours[1:]]},
        "hovertemplate": "%{y:+.1f} points<extra></extra>",
    }
    layout = time_layout(transfer.times)
    layout["yaxis"] |= {"rangemode": "normal", "zeroline": True, "zerolinecolor": "var(--soft)"}
    layout["bargap"] = 0.35
    keys = (
        Key("keeping is better", "blue", "area"),
        Key("starting afresh is better", "orange", "area"),
        Key("does not count: nothing was learnt before", "pale", "area"),
    )
    label = "Bar chart of the gain in accuracy at each time; the numbers are in the table below."
    return Chart("transfer-chart", label, "Gain in accuracy, percentage points", [bars], layout, keys)


def drift_chart(drift: Drift) -> Chart:
    """How far the mix of classes moved."""
    keys = (
        Key("against the time before", "blue", short="the time before"),
        Key("against all times before", "green", "dashed", "all before"),
    )
    data = [
        line_trace(drift.times, values, key, hover=["" if value is None else f"{value:.2f}" for value in values])
        for key, values in zip(keys, (drift.step, drift.total), strict=True)
    ]
    layout = time_layout(drift.times)
    layout["yaxis"] |= {"range": [0, 1.02], "tickformat": ".1f"}
    if drift.first is not None:
        start = placed([*drift.times, drift.first])[-1]
        layout["shapes"] = [upright(start)]
        late = start > placed(drift.times)[len(drift.times) // 2]  # the word then goes to the left, where there is room
        layout["annotations"] = [note_at(start, "first decisions", left=late)]
    label = "Line chart of the drift over time; the numbers are in the table below."
    return Chart("drift-chart", label, "Drift, 0 to 1", data, layout, keys)


def timeline_chart(timeline: ClassTimeline) -> Chart:
    """Vertices of each class at each time, as cells."""
    names, times = [one.name for one in timeline.classes], timeline.times
    hover = [
        [f"{escaped(one.name)}<br>{escaped(time)}: {count:,}" for time, count in zip(times, one.counts, strict=True)]
        for one in timeline.classes
    ]
    # The root, so that small classes are seen beside large ones.
    roots = [[count**0.5 if count else None for count in one.counts] for one in timeline.classes]
    most = max(count for one in timeline.classes for count in one.counts)
    heat = {
        "type": "heatmap",
        "x": list(range(len(times))),
        "y": list(range(len(names))),
        "z": roots,
        "text": hover,
        **cell_look(highest=most**0.5),
    }
    layout = row_layout(names)
    ticks = {"wide": thinned(times, 450), "narrow": thinned(times, 190)}
    layout["xaxis"] |= {"tickvals": ticks["wide"], "ticktext": [escaped(times[place]) for place in ticks["wide"]]}
    layout["xaxis"]["range"] = [-0.5, len(times) - 0.5]
    narrow = {
        "yaxis.ticktext": [escaped(shortened(name, LONGEST_NARROW)) for name in names],
        "xaxis.tickvals": ticks["narrow"],
        "xaxis.ticktext": [escaped(times[place]) for place in ticks["narrow"]],
    }
    keys = (Key("few vertices", "heat-low", "area"), Key(f"{most:,} vertices", "heat-high", "area"))
    label = f"Cells of {len(names)} classes by time; first and last times are in the table below."
    return Chart("timeline-chart", label, "Vertices of a class at a time", [heat], layout, keys, narrow)


def confusion_chart(confusion: Confusion) -> Chart:
    """Truth by decision, as shares of the truth."""
    labels = confusion_labels(confusion.names)
    hover, shares = [], []
    for (_, truth), counts in zip(labels, confusion.counts, strict=True):
        total = max(sum(counts), 1)
        shares.append([count / total if count else None for count in counts])
        hover.append(
            [
                f"truly: {escaped(truth)}<br>taken for: {escaped(said)}<br>"
                f"{count:,} vertices, {100 * count / total:.0f} % of the row"
                for (_, said), count in zip(labels, counts, strict=True)
            ]
        )
    places = list(range(len(labels)))
    heat = {"type": "heatmap", "x": places, "y": places, "z": shares, "text": hover, **cell_look(highest=1)}
    layout = row_layout([name for _, name in labels], [mark for mark, _ in labels])
    marks = [mark for mark, _ in labels]
    layout["xaxis"] |= {"tickvals": places, "ticktext": marks, "side": "top"}
    layout["xaxis"]["title"]["text"] = "Taken for"
    layout["margin"] |= {"t": 56, "b": 8}
    narrow = [f"{escaped(shortened(name, LONGEST_NARROW))}  {mark}" for mark, name in labels]
    label = "Cells of true classes (rows) by decisions (columns); the numbers are in the table below."
    keys = (Key("few of the row", "heat-low", "area"), Key("all of the row", "heat-high", "area"))
    unit = "Share of a true class (row) that was taken for another (column)"
    changes = {"yaxis.ticktext": narrow, "xaxis.tickfont": {"size": 10}}
    return Chart("confusion-chart", label, unit, [heat], layout, keys, changes)


def confusion_labels(names: Sequence[str]) -> list[tuple[str, str]]:
    """A short mark for each row and column of a confusion, and its name in words.

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


def calibration_chart(calibration: Calibration) -> Chart:
    """Probability against the share that is right."""
    confidence = [100 * one.confidence for one in calibration.bins]
    most = max(one.count for one in calibration.bins)
    keys = (Key("this learner; large dots have more vertices", "blue"), Key("perfect", "soft", "dotted"))
    points = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": confidence,
        "y": [100 * one.accuracy for one in calibration.bins],
        "line": {"color": "var(--blue)", "width": 2},
        "marker": {
            "color": "var(--blue)",
            "opacity": 1,
            "line": {"width": 0},
            "size": [6 + 14 * (one.count / most) ** 0.5 for one in calibration.bins],
        },
        "text": [f"{one.count:,} vertices" for one in calibration.bins],
        "hovertemplate": "probability %{x:.1f} %<br>right %{y:.1f} %<br>%{text}<extra></extra>",
    }
    ideal = line_trace([0, 100], [0, 100], keys[1], hover=None)
    layout = plain_layout()
    layout["hovermode"] = "closest"
    layout["xaxis"]["range"] = layout["yaxis"]["range"] = [-2, 102]
    layout["xaxis"]["title"]["text"] = "Probability of the best class, %"
    label = "Line chart of probability against the share that is right; the numbers are in the table below."
    return Chart("calibration-chart", label, "Right, % of vertices", [ideal, points], layout, keys)


def threshold_chart(curve: ThresholdCurve) -> Chart:
    """What each threshold would have done."""
    keys = (
        Key("unseen vertices found", "blue"),
        Key("false alarms", "orange", "dashed"),
        Key("MCC", "green", "dotted"),
    )
    data = [
        line_trace(curve.thresholds, values, key, hover=[f"{value:.2f}" for value in values], points=False)
        for key, values in zip(keys, (curve.found, curve.false_alarms, curve.mcc), strict=True)
    ]
    layout = plain_layout()
    layout["xaxis"]["hoverformat"] = ".2f"
    layout["xaxis"]["title"]["text"] = curve.axis
    layout["yaxis"] |= {"rangemode": "tozero"}
    changes: dict[str, Any] = {"xaxis.title.text": re.sub("(.{20,}?) ", r"\1<br>", escaped(curve.axis), count=1)}
    if curve.in_force is not None:
        low, high = curve.thresholds[0], curve.thresholds[-1]
        layout["shapes"] = [upright(curve.in_force)]
        left = curve.in_force > (low + high) / 2
        layout["annotations"] = [note_at(curve.in_force, f"in force: {curve.in_force:.3g}", left=left)]
        layout["margin"] |= {"t": 28}
    label = "Line chart of what each threshold would have found; the numbers are in the table below."
    return Chart("threshold-chart", label, "Share, or MCC", data, layout, keys, changes)


def differences_chart(differences: TimeDifferences) -> Chart:
    """The distribution of time differences, and what the history covers of it."""
    shares = [100 * share for share in differences.shares]
    covered = [differences.history is None or at <= differences.history for at in range(len(shares))]
    keys = [Key("within the history", "blue", "area"), Key("all up to here", "orange", "dashed")]
    if not all(covered):
        keys.insert(1, Key("older", "pale", "area"))
    places = list(range(len(shares)))
    bars = {
        "type": "bar",
        "x": places,
        "y": shares,
        "marker": {"color": ["var(--blue)" if within else "var(--pale)" for within in covered]},
        "name": "this difference",
        "hovertemplate": "%{y:.1f} %",
    }
    total, running = [], 0.0
    for share in shares:
        running += share
        total.append(running)
    running_line = line_trace(places, total, keys[-1], hover=[f"{value:.1f} %" for value in total])
    layout = plain_layout()
    layout["xaxis"]["title"]["text"] = f"Time difference, {escaped(differences.steps)}"
    if len(shares) <= 4:
        layout["xaxis"]["dtick"] = 1
    layout["yaxis"] |= {"range": [0, 104]}
    layout["bargap"] = 0.25
    label = "Bar chart of time differences with their cumulative share; the numbers are in the table below."
    return Chart("differences-chart", label, "Pairs of vertices, %", [bars, running_line], layout, tuple(keys))
