"""The page: one HTML file that needs nothing else, neither a network nor, for its tables, a script.

Each part of a story becomes a `Body` (a chart, a sentence, a table) here; the templates make HTML of it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import Any

from evergraph import __version__
from evergraph.analysis import GraphDescription
from evergraph.errors import EvergraphError
from evergraph.report import charts
from evergraph.report.story import (
    Band,
    Calibration,
    ConfusionTable,
    Headline,
    Missing,
    Review,
    Slices,
    Story,
    ThresholdCurve,
    Transfer,
)
from evergraph.storage.files import write_atomic

__all__ = ["page_of", "write_page"]

_NONE = "–"
_MOST_CLASSES = 3  # around a vertex to review
_LARGEST = 20  # classes of a timeline


@dataclass(frozen=True)
class Numbers:
    """A table: the first cell of a row heads it; columns of ``words`` are aligned left and may break.

    ``name`` is the class of the table: ``cards`` becomes one card for each row on a narrow screen.
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = ()
    name: str = "table"


@dataclass(frozen=True)
class Body:
    """What a section shows below its lead; ``folded`` tables are opened by a click."""

    chart: charts.Chart | None = None
    after: str | None = None
    table: Numbers | None = None
    folded: bool = True
    headlines: Sequence[dict[str, Any]] = ()


def page_of(story: Story) -> str:
    """Return the page of a story; the same story gives the same page.

    The page is told not to load anything and to run no script but its own two, so nothing in the data can.
    """
    bodies = {name: _body(story, *part) for name, part in _PARTS.items()}
    script = (files("evergraph.report") / "templates" / "report.js").read_text(encoding="utf-8").strip()
    drawn = any(isinstance(body, Body) and body.chart for body in bodies.values())
    packed, hashed = _library() if drawn else (None, "")
    scripts = f"'sha256-{_hash(script.encode())}' {hashed}".strip()
    template = _environment().get_template("report.html")
    return template.render(
        story=story, bodies=bodies, script=script, packed=packed, scripts=scripts, version=__version__
    )


def write_page(page: str, path: Path) -> int:
    """Write a page in one step, with its folder if need be; return its size in bytes."""
    data = page.encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except OSError as error:
        raise EvergraphError(f"{path} could not be written ({error.strerror or error}).") from error
    return len(data)


@cache
def _environment() -> Any:
    import jinja2

    loader = jinja2.PackageLoader("evergraph.report")
    made = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    made.filters["prose"] = lambda text: text.replace(" %", "\u00a0%")  # a per cent sign stays with its number
    made.tests["missing"] = lambda part: isinstance(part, Missing)
    return made


@cache
def _library() -> tuple[str, str]:
    """Return plotly.js, packed, and the hash of what is unpacked, as a browser wants it told."""
    code = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return base64.b64encode(gzip.compress(code, 9, mtime=0)).decode(), f"'sha256-{_hash(code)}'"


def _hash(code: bytes) -> str:
    return base64.b64encode(hashlib.sha256(code).digest()).decode()


# --- parts -----------------------------------------------------------------------------------------------------------


def _body(story: Story, field: str, show: Callable[[Any, Story], Body | Missing]) -> Body | Missing:
    part = getattr(story, field)
    return part if isinstance(part, Missing) else show(part, story)


def _headlines(headlines: Sequence[Headline], _: Story) -> Body:
    return Body(headlines=[_headline(one) for one in headlines])


def _headline(one: Headline) -> dict[str, Any]:
    value, half = _written(one.value, one.kind), None
    if one.value is not None and one.half is not None:
        half = _written(one.half, one.kind).split("\u00a0")[0]  # its unit stands with the value
    return {"name": one.name, "value": value, "half": half, "meaning": one.meaning}


def _all_times(slices: Slices, _: Story) -> Body:
    versions = any(row.version is not None for row in slices.rows)
    heads = ["time", "vertices", "labelled", "known classes", "new classes", "accuracy", "95 % interval"]
    heads += ["truly unseen", "held to be unseen", "MCC", "open F1", "drift", *(["model"] if versions else [])]
    rows = [
        [
            row.time,
            *(f"{count:,}" for count in (row.vertices, row.labelled, row.known_classes, row.new_classes)),
            *(_mean(row.accuracy), _interval(row.accuracy), _share(row.unseen), _mean(row.rejected)),
            *(_score(row.mcc), _score(row.open_f1), _score(row.drift)),
            *([row.version or _NONE] if versions else []),
        ]
        for row in slices.rows
    ]
    return Body(table=Numbers("All times in numbers", heads, rows), folded=False)


def _transfer(transfer: Transfer, _: Story) -> Body:
    half = "" if transfer.half is None else f" ± {100 * transfer.half:.1f}"
    value = _signed(transfer.value)
    told = f"From the second time on, keeping the weights changes accuracy by {value}{half} percentage points."
    rows = [[time, _signed(gain)] for time, gain in zip(transfer.times, transfer.gains, strict=True)]
    numbers = Numbers("Gain at each time", ["time", "gain, percentage points"], rows)
    return Body(charts.transfer_chart(transfer), f"{told} {transfer.against}", numbers)


def _drift(graph: GraphDescription, _: Story) -> Body | Missing:
    if len(graph.drift) < 2:
        return Missing("Only one time has labels, so there is nothing to compare it with.")
    first = None if graph.first_task is None else str(graph.first_task)
    rows = [[str(one.time), _score(one.consecutive), _score(one.cumulative)] for one in graph.drift]
    heads = ["time", "against the time before", "against all times before"]
    return Body(charts.drift_chart(graph.drift, first), table=Numbers("Drift at each time", heads, rows))


def _timeline(graph: GraphDescription, _: Story) -> Body | Missing:
    if not graph.classes:
        return Missing("No vertex of the graph has a label, so there are no classes to follow.")
    largest = sorted(graph.classes, key=lambda one: (-one.vertices, one.name))[:_LARGEST]
    born = {time: at for at, time in enumerate(graph.times)}
    shown = sorted(largest, key=lambda one: (born[one.times[0]], -one.vertices, one.name))
    others = len(graph.classes) - len(shown)
    rows = [[one.name, str(one.times[0]), str(one.times[-1]), f"{one.vertices:,}"] for one in shown]
    heads = ["class", "first", "last", "vertices"]
    numbers = Numbers("Classes with their first and last time", heads, rows, words=[0])
    after = f"{others:,} smaller classes are not shown." if others else None
    return Body(charts.timeline_chart([str(time) for time in graph.times], shown), after, numbers)


def _differences(graph: GraphDescription, story: Story) -> Body | Missing:
    found, steps, history = graph.past_differences, graph.time_steps, story.history
    if found is None:
        return Missing("The graph has no edges before the first task, so no history size could be read off them.")
    last = max(at for at, count in enumerate(found.counts) if count)
    shares = [count / sum(found.counts) for count in found.counts[: last + 1]]
    if history is None:
        told = "The history in use is all there is."
    else:
        covered = _share(sum(shares[: history + 1]))
        told = f"The history in use is {_long(history, steps)}; it covers {covered} of the pairs."
    sizes = ", ".join(f"{level} % by {size}" for level, size in found.history_sizes.items())
    after = f"{told} Covered are {sizes}. Only what is older than {graph.first_task} was looked at."
    totals = accumulate(shares)
    rows = [
        [str(at), _share(share), _share(total)] for at, (share, total) in enumerate(zip(shares, totals, strict=True))
    ]
    numbers = Numbers("Time differences", [f"difference, {steps}", "pairs", "all up to here"], rows)
    return Body(charts.differences_chart(shares, steps, history), after, numbers)


def _confusion(confusion: ConfusionTable, _: Story) -> Body:
    labels = charts.confusion_labels(confusion.names)
    rows = [
        [name, mark, *(f"{count:,}" for count in counts)]
        for (mark, name), counts in zip(labels, confusion.counts, strict=True)
    ]
    heads = ["truly", "", *(mark for mark, _ in labels)]
    numbers = Numbers("Vertices by true class (rows) and decision (columns)", heads, rows, words=[0])
    return Body(charts.confusion_chart(confusion), f"Counted over {confusion.over}.", numbers)


def _calibration(calibration: Calibration, _: Story) -> Body:
    told = f"On average a probability is {100 * calibration.error:.1f} percentage points off (calibration error)."
    rows = [[_share(one.confidence), _share(one.accuracy), f"{one.count:,}"] for one in calibration.bins]
    numbers = Numbers("Probability and truth", ["mean probability", "right", "vertices"], rows)
    return Body(charts.calibration_chart(calibration), told, numbers)


def _threshold(curve: ThresholdCurve, _: Story) -> Body:
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
    numbers = Numbers("Thresholds", ["threshold", "unseen found", "false alarms", "MCC"], rows)
    return Body(charts.threshold_chart(curve), told, numbers)


def _review(review: Review, _: Story) -> Body:
    columns: dict[str, list[str]] = {
        "vertex": [row.id for row in review.rows],
        "time": [row.time for row in review.rows],
        "score": [_score(row.score) for row in review.rows],
        "most likely class": [row.best for row in review.rows],
        "probability": [_share(row.probability) for row in review.rows],
    }
    if any(row.words is not None for row in review.rows):
        columns["words"] = [" ".join(row.words or ()) or _NONE for row in review.rows]
    if any(row.neighbours is not None for row in review.rows):
        columns["neighbours"] = [_neighbours(row.neighbours or ()) for row in review.rows]
    if any(row.truth is not None for row in review.rows):
        columns["truly"] = [row.truth or _NONE for row in review.rows]
    rows = list(zip(*columns.values(), strict=True))
    words = [0, 3, *range(5, len(columns))]
    return Body(None, review.which, Numbers("Vertices to review", list(columns), rows, words, "cards"), folded=False)


def _neighbours(classes: Sequence[tuple[str, int]]) -> str:
    told = [f"{name} ×\u00a0{count}" for name, count in classes[:_MOST_CLASSES]]
    more = [f"{len(classes) - _MOST_CLASSES} more"] if len(classes) > _MOST_CLASSES else []
    return ", ".join(told + more) or _NONE


def _details(details: Sequence[tuple[str, str]], _: Story) -> Body:
    return Body(table=Numbers("Details", ["what", "value"], details, [0, 1], "details"), folded=False)


_PARTS: dict[str, tuple[str, Callable[[Any, Story], Body | Missing]]] = {
    "glance": ("headlines", _headlines),
    "accuracy": ("slices", lambda slices, _: Body(charts.accuracy_chart(slices), slices.intervals)),
    "unseen": ("slices", lambda slices, _: Body(charts.unseen_chart(slices), slices.intervals)),
    "numbers": ("slices", _all_times),
    "transfer": ("transfer", _transfer),
    "drift": ("graph", _drift),
    "classes": ("graph", _timeline),
    "confusion": ("confusion", _confusion),
    "calibration": ("calibration", _calibration),
    "threshold": ("threshold", _threshold),
    "history": ("graph", _differences),
    "review": ("review", _review),
    "details": ("details", _details),
}
"""By section of the template: the field of the story that it shows, and what makes its body."""


# --- numbers in words ------------------------------------------------------------------------------------------------


def _long(history: int, steps: str) -> str:
    """Return a length of time; of one step in the singular: ``"1 step of 5 years"``."""
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
    return _share(None if band is None else band.mean)


def _score(value: float | None) -> str:
    return _NONE if value is None else f"{value:.3f}".replace("-", "−")


def _signed(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:+.1f}".replace("-", "−")


def _interval(band: Band | None) -> str:
    if band is None or band.low is None or band.high is None:
        return _NONE
    return f"{100 * band.low:.1f} to {100 * band.high:.1f}"
