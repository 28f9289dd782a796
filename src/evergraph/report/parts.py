"""Each part of a story as the body of its section: a chart, what to say of it, and its numbers as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from evergraph.report.chart_pieces import Chart, Key
from evergraph.report.charts import (
    accuracy_chart,
    calibration_chart,
    confusion_chart,
    confusion_labels,
    differences_chart,
    drift_chart,
    threshold_chart,
    timeline_chart,
    transfer_chart,
    unseen_chart,
)
from evergraph.report.html import Safe, data_block, joined, prose, table, tag
from evergraph.report.story import (
    Band,
    Calibration,
    ClassTimeline,
    Confusion,
    Drift,
    Headline,
    Review,
    Slices,
    ThresholdCurve,
    TimeDifferences,
    Transfer,
)

__all__ = [
    "accuracy_part",
    "calibration_part",
    "confusion_part",
    "details_part",
    "differences_part",
    "drift_part",
    "headlines_part",
    "numbers_part",
    "review_part",
    "threshold_part",
    "timeline_part",
    "transfer_part",
    "unseen_part",
]

_NONE = "–"
_MOST_CLASSES = 3  # around a vertex to review


def headlines_part(headlines: Iterable[Headline]) -> Safe:
    """The figures at the top."""
    items = []
    for one in headlines:
        value, half = _written(one.value, one.kind), None
        if one.value is not None and one.half is not None:
            spread = _written(one.half, one.kind).split("\u00a0")[0]  # its unit stands with the value
            half = tag("span", f" ± {spread}", class_="half")
        meaning = tag("p", prose(one.meaning))
        items.append(tag("li", tag("h3", one.name), tag("p", value, half, class_="value"), meaning))
    return tag("ul", *items, class_="figures")


def accuracy_part(slices: Slices) -> Safe:
    """Accuracy over time."""
    return joined([_drawn(accuracy_chart(slices)), _after(slices.intervals)])


def unseen_part(slices: Slices) -> Safe:
    """Unseen vertices over time."""
    return joined([_drawn(unseen_chart(slices)), _after(slices.intervals)])


def numbers_part(slices: Slices) -> Safe:
    """Everything that is known of each time."""
    versions = any(row.version is not None for row in slices.rows)
    heads = ["time", "vertices", "labelled", "known classes", "new classes", "accuracy", "95 % interval"]
    heads += ["truly unseen", "held to be unseen", "MCC", "open F1", "drift", *(["model"] if versions else [])]
    rows = [
        [
            row.time,
            f"{row.vertices:,}",
            f"{row.labelled:,}",
            f"{row.known_classes:,}",
            f"{row.new_classes:,}",
            _mean(row.accuracy),
            _interval(row.accuracy),
            _share(row.unseen),
            _mean(row.rejected),
            _score(row.mcc),
            _score(row.open_f1),
            _score(row.drift),
            *([row.version or _NONE] if versions else []),
        ]
        for row in slices.rows
    ]
    return table("All times in numbers", heads, rows)


def transfer_part(transfer: Transfer) -> Safe:
    """Forward transfer."""
    half = "" if transfer.half is None else f" ± {100 * transfer.half:.1f}"
    value = _NONE if transfer.value is None else _signed(100 * transfer.value)
    told = f"From the second time on, keeping the weights changes accuracy by {value}{half} percentage points."
    rows = [
        [time, _NONE if gain is None else _signed(100 * gain)]
        for time, gain in zip(transfer.times, transfer.gains, strict=True)
    ]
    numbers = _numbers("Gain at each time", ["time", "gain, percentage points"], rows)
    return joined([_drawn(transfer_chart(transfer)), _after(f"{told} {transfer.against}"), numbers])


def drift_part(drift: Drift) -> Safe:
    """Drift over time."""
    rows = [
        [time, _score(step), _score(total)]
        for time, step, total in zip(drift.times, drift.step, drift.total, strict=True)
    ]
    heads = ["time", "against the time before", "against all times before"]
    return joined([_drawn(drift_chart(drift)), _numbers("Drift at each time", heads, rows)])


def timeline_part(timeline: ClassTimeline) -> Safe:
    """Birth, growth and death of classes."""
    others = f"{timeline.others:,} smaller classes are not shown." if timeline.others else None
    rows = [[one.name, one.first, one.last, f"{sum(one.counts):,}"] for one in timeline.classes]
    heads = ["class", "first", "last", "vertices"]
    numbers = _numbers("Classes with their first and last time", heads, rows, words=[0])
    return joined([_drawn(timeline_chart(timeline)), _after(others), numbers])


def confusion_part(confusion: Confusion) -> Safe:
    """Who was taken for whom."""
    labels = confusion_labels(confusion.names)
    rows = [
        [name, mark, *(f"{count:,}" for count in counts)]
        for (mark, name), counts in zip(labels, confusion.counts, strict=True)
    ]
    heads = ["truly", "", *(mark for mark, _ in labels)]
    numbers = _numbers("Vertices by true class (rows) and decision (columns)", heads, rows, words=[0])
    return joined([_drawn(confusion_chart(confusion)), _after(f"Counted over {confusion.over}."), numbers])


def calibration_part(calibration: Calibration) -> Safe:
    """Whether probabilities can be believed."""
    told = f"On average a probability is {100 * calibration.error:.1f} percentage points off (calibration error)."
    rows = [[_share(one.confidence), _share(one.accuracy), f"{one.count:,}"] for one in calibration.bins]
    numbers = _numbers("Probability and truth", ["mean probability", "right", "vertices"], rows)
    return joined([_drawn(calibration_chart(calibration), class_="square"), _after(told), numbers])


def threshold_part(curve: ThresholdCurve) -> Safe:
    """What another threshold would have done."""
    best = max(range(len(curve.mcc)), key=lambda row: curve.mcc[row])
    told = f"The best MCC, {_score(curve.mcc[best])}, would have been at {curve.thresholds[best]:.3g}"
    if curve.in_force is None:
        told = f"{told}. No single threshold was in force."
    else:
        now = curve.mcc[curve.thresholds.index(curve.in_force)]
        told = f"{told}; in force was {curve.in_force:.3g}, with an MCC of {_score(now)}."
    columns = zip(curve.thresholds, curve.found, curve.false_alarms, curve.mcc, strict=True)
    rows = [
        [f"{at:.3g}", _share(found), _share(alarms), _score(mcc)]
        for row, (at, found, alarms, mcc) in enumerate(columns)
        if row % 5 == 0 or at == curve.in_force
    ]
    numbers = _numbers("Thresholds", ["threshold", "unseen found", "false alarms", "MCC"], rows)
    return joined([_drawn(threshold_chart(curve)), _after(told), numbers])


def differences_part(differences: TimeDifferences) -> Safe:
    """Time differences and the history."""
    shares, history, steps = differences.shares, differences.history, differences.steps
    if history is None:
        told = "The history in use is all there is."
    else:
        within = sum(shares[: history + 1])
        told = f"The history in use is {_long(history, steps)}; it covers {_share(within)} of the pairs."
    sizes = ", ".join(f"{level} % by {size}" for level, size in differences.sizes)
    before = "" if differences.before is None else f" Only what is older than {differences.before} was looked at."
    rows, total = [], 0.0
    for at, share in enumerate(shares):
        total += share
        rows.append([str(at), _share(share), _share(total)])
    heads = [f"difference, {steps}", "pairs", "all up to here"]
    after = _after(f"{told} Covered are {sizes}.{before}")
    return joined([_drawn(differences_chart(differences)), after, _numbers("Time differences", heads, rows)])


def review_part(review: Review) -> Safe:
    """Vertices to look at."""
    words = any(row.words is not None for row in review.rows)
    near = any(row.neighbours is not None for row in review.rows)
    truth = any(row.truth is not None for row in review.rows)
    heads = ["vertex", "time", "score", "most likely class", "probability"]
    heads += [*(["words"] if words else []), *(["neighbours"] if near else []), *(["truly"] if truth else [])]
    rows = []
    for row in review.rows:
        cells = [row.id, row.time, _score(row.score), row.best, _share(row.probability)]
        cells += [" ".join(row.words or ()) or _NONE] if words else []
        cells += [_neighbours(row.neighbours or ())] if near else []
        rows.append([*cells, *([row.truth or _NONE] if truth else [])])
    columns = [0, 3, *range(5, len(heads))]
    return joined([_after(review.which), table("Vertices to review", heads, rows, words=columns, name="cards")])


def _neighbours(classes: Sequence[tuple[str, int]]) -> str:
    """The commonest classes around a vertex, and how many others there are."""
    told = [f"{name} ×\u00a0{count}" for name, count in classes[:_MOST_CLASSES]]
    more = [f"{len(classes) - _MOST_CLASSES} more"] if len(classes) > _MOST_CLASSES else []
    return ", ".join(told + more) or _NONE


def details_part(details: Iterable[tuple[str, str]]) -> Safe:
    """All settings and circumstances."""
    rows = [[name, _code(value) if name == "command" else value] for name, value in details]
    return table("Details", ["what", "value"], rows, words=[0, 1], name="details")


def _code(command: str) -> Safe:
    """A command whose options are not torn apart at the end of a line."""
    words = (Safe(" ") if odd else tag("span", word) for word in command.split(" ") for odd in (False, True))
    return tag("code", *words)


# --- pieces ----------------------------------------------------------------------------------------------------------


def _drawn(chart: Chart, class_: str | None = None) -> Safe:
    """A place for a chart, with its data; without a script it says where the numbers are."""
    keys = tag("ul", *(tag("li", _swatch(key), key.text) for key in chart.keys), class_="keys")
    caption = tag("figcaption", tag("p", chart.unit, class_="unit"), keys)
    sorry = tag("p", "This chart is drawn by a script. Its numbers are in the table.")
    # Plotly takes no heights from the style, so the place has the height of its chart beforehand.
    height = f"min-height:{chart.layout['height']}px"
    place = tag("div", sorry, class_="chart", id=chart.name, role="img", aria_label=chart.label, style=height)
    text = json.dumps(chart.figure(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    data = data_block(f"{chart.name}-data", "application/json", text)
    return joined([tag("figure", caption, place, class_=class_), data])


def _swatch(key: Key) -> Safe:
    """A sample of a line or an area."""
    colour = f"var(--{key.colour})"
    if key.mark == "area":
        shape = tag("rect", x="4", y="1", width="10", height="10", rx="2", style=f"fill:{colour}")
    else:
        dash = {"dashed": ";stroke-dasharray:6 3", "dotted": ";stroke-dasharray:2 3"}.get(key.mark, "")
        shape = tag("path", d="M0 6H24", style=f"stroke:{colour};stroke-width:2.5{dash}")
    width = "18" if key.mark == "area" else "24"
    return tag("svg", shape, width=width, height="12", aria_hidden="true")


def _numbers(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: Sequence[int] = ()) -> Safe:
    return tag("details", tag("summary", "Numbers"), table(caption, heads, rows, words=words))


def _after(text: str | None) -> Safe | None:
    return tag("p", prose(text), class_="after") if text else None


def _long(history: int, steps: str) -> str:
    """A length of time; of one step in the singular: ``"1 step of 5 years"``."""
    first, *rest = steps.split(" ", 1)
    return " ".join([str(history), first[:-1] if history == 1 else first, *rest])


def _written(value: float | None, kind: str) -> str:
    if kind == "share":
        return _share(value)
    if kind == "score" or value is None:
        return _score(value)
    return f"{value:,.0f}" if kind == "count" else f"{value:,.1f}\u00a0s"


def _share(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.1f}\u00a0%"


def _mean(band: Band | None) -> str:
    return _NONE if band is None else _share(band.mean)


def _score(value: float | None) -> str:
    return _NONE if value is None else f"{value:.3f}".replace("-", "−")


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _interval(band: Band | None) -> str:
    if band is None or band.low is None or band.high is None:
        return _NONE
    return f"{100 * band.low:.1f} to {100 * band.high:.1f}"
