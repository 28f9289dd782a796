"""The page of a report: one self-contained HTML file whose tables need no script.

Each part of the content becomes a `Body` (a chart, a sentence, a table), which the templates turn into HTML.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import Any

from evergraph import __version__
from evergraph.analysis import GraphDescription
from evergraph.errors import os_error
from evergraph.report import charts
from evergraph.report.content import (
    Band,
    Calibration,
    ConfusionTable,
    Groups,
    Headline,
    Missing,
    ReportContent,
    Review,
    Slices,
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
    """A table; the first cell of a row is its head, and columns in ``words`` are left-aligned and may wrap.

    ``name`` is the CSS class: ``cards`` shows each row as a card on a narrow screen.
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = ()
    name: str = "table"


@dataclass(frozen=True)
class Body:
    """What a section shows below its introduction; a ``folded`` table opens on a click."""

    chart: charts.Chart | None = None
    after: str | None = None
    table: Numbers | None = None
    folded: bool = True
    headlines: Sequence[dict[str, Any]] = ()
    commands: Sequence[str] = ()


def page_of(content: ReportContent) -> str:
    """Return the page of a report; the same content gives the same bytes.

    A content security policy forbids loading anything and running any script but the two of the page.
    """
    bodies = {name: _body(content, *part) for name, part in _PARTS.items()}
    script = (files("evergraph.report") / "templates" / "report.js").read_text(encoding="utf-8").strip()
    drawn = any(isinstance(body, Body) and body.chart for body in bodies.values())
    packed, hashed = _library() if drawn else (None, "")
    scripts = f"'sha256-{_hash(script.encode())}' {hashed}".strip()
    template = _environment().get_template("report.html")
    rows = () if isinstance(content.slices, Missing) else content.slices.rows
    partly = any(row.labelled < row.vertices for row in rows)
    return template.render(
        content=content,
        bodies=bodies,
        partly=partly,
        script=script,
        packed=packed,
        scripts=scripts,
        version=__version__,
    )


def write_page(page: str, path: Path) -> int:
    """Write a page atomically, create its folder if needed, and return its size in bytes."""
    data = page.encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except OSError as error:
        raise os_error(error, "the file could not be written", file=path) from error
    return len(data)


@cache
def _environment() -> Any:
    import jinja2

    loader = jinja2.PackageLoader("evergraph.report")
    made = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    made.filters["prose"] = _prose
    made.tests["missing"] = lambda part: isinstance(part, Missing)
    return made


def _prose(text: str) -> Any:
    """Escape a text, without line breaks before % and inside an option such as --against."""
    from markupsafe import Markup, escape

    return Markup(re.sub("(--[a-z-]+)", r"<span>\1</span>", str(escape(text.replace(" %", "\u00a0%")))))  # noqa: S704


@cache
def _library() -> tuple[str, str]:
    """Return plotly.js compressed, and the hash of the uncompressed script for the content security policy."""
    code = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return base64.b64encode(gzip.compress(code, 9, mtime=0)).decode(), f"'sha256-{_hash(code)}'"


def _hash(code: bytes) -> str:
    return base64.b64encode(hashlib.sha256(code).digest()).decode()


# --- parts -----------------------------------------------------------------------------------------------------------


def _body(
    content: ReportContent, field: str, show: Callable[[Any, ReportContent], Body | Missing]
) -> Body | Missing | None:
    part = getattr(content, field)
    return part if part is None or isinstance(part, Missing) else show(part, content)


def _headlines(headlines: Sequence[Headline], _: ReportContent) -> Body:
    return Body(headlines=[_headline(one) for one in headlines])


def _headline(one: Headline) -> dict[str, Any]:
    value, half = _written(one.value, one.kind), None
    if one.value is not None and one.half is not None:
        half = _written(one.half, one.kind).split("\u00a0")[0]  # without its unit
    return {"name": one.name, "value": value, "half": half, "meaning": one.meaning}


def _all_periods(slices: Slices, _: ReportContent) -> Body:
    versions = any(row.version is not None for row in slices.rows)
    heads = ["period", "vertices", "labelled", "known classes", "accuracy", "95 % interval", "unseen classes"]
    heads += ["truly unseen", "flagged", "MCC", "Open-F1", "drift", *(["model"] if versions else [])]
    rows = [
        [
            row.time,
            *(f"{count:,}" for count in (row.vertices, row.labelled, row.known_classes)),
            *(_mean(row.accuracy), _interval(row.accuracy)),
            _NONE if row.unseen_classes is None else f"{row.unseen_classes:,.3g}",
            *(_share(row.unseen), _mean(row.flagged)),
            *(_score(row.mcc), _score(row.open_f1), _score(row.drift)),
            *([row.version or _NONE] if versions else []),
        ]
        for row in slices.rows
    ]
    return Body(table=Numbers("All periods in numbers", heads, rows), folded=False)


def _accuracy(slices: Slices, content: ReportContent) -> Body | Missing:
    if all(row.accuracy is None for row in slices.rows):
        if isinstance(content.confusion, Missing):
            return content.confusion  # for the same reason
        return Missing("No new vertex of these periods has a label, so the accuracy is unknown.")
    return Body(charts.accuracy_chart(slices), slices.intervals)


def _unseen(slices: Slices, _: ReportContent) -> Body | Missing:
    if all(row.flagged is None and row.unseen is None for row in slices.rows):
        return Missing("An earlier Evergraph made this run and did not store what was flagged without a label.")
    return Body(charts.unseen_chart(slices), slices.intervals)


def _transfer(transfer: Transfer, _: ReportContent) -> Body | Missing:
    if all(gain is None for gain in transfer.gains):
        return Missing(f"The accuracy of no period is known in both runs. {transfer.against}")
    half = "" if transfer.half is None else f" ± {100 * transfer.half:.1f}"
    value = _signed(transfer.value)
    mean = f"From the second task on, warm restarts change the accuracy by {value}{half} percentage points on average."
    rows = [[time, _signed(gain)] for time, gain in zip(transfer.times, transfer.gains, strict=True)]
    numbers = Numbers("Gain by period", ["period", "gain, percentage points"], rows)
    return Body(charts.transfer_chart(transfer), f"{mean} {transfer.against}", numbers)


def _drift(graph: GraphDescription, _: ReportContent) -> Body | Missing:
    if sum(one.consecutive is not None for one in graph.drift) < 1:
        return Missing("Fewer than two periods have labels, so there is no drift to measure.")
    first = None if graph.first_task is None else str(graph.first_task)
    rows = [[str(one.time), _score(one.consecutive), _score(one.cumulative)] for one in graph.drift]
    heads = ["period", "from the previous period", "from all previous periods"]
    return Body(charts.drift_chart(graph.drift, first), table=Numbers("Drift by period", heads, rows))


def _timeline(graph: GraphDescription, _: ReportContent) -> Body | Missing:
    if not graph.classes:
        return Missing("No vertex of the graph has a label, so there are no classes to show.")
    largest = sorted(graph.classes, key=lambda one: (-one.vertices, one.name))[:_LARGEST]
    born = {time: at for at, time in enumerate(graph.times)}
    shown = sorted(largest, key=lambda one: (born[one.times[0]], -one.vertices, one.name))
    others = len(graph.classes) - len(shown)
    rows = [[one.name, str(one.times[0]), str(one.times[-1]), f"{one.vertices:,}"] for one in shown]
    heads = ["class", "first period", "last period", "vertices"]
    numbers = Numbers("First and last period of each class", heads, rows, words=[0])
    after = f"{others:,} smaller classes are not shown." if others else None
    return Body(charts.timeline_chart([str(time) for time in graph.times], shown), after, numbers)


def _differences(graph: GraphDescription, content: ReportContent) -> Body | Missing:
    found, steps, history = graph.past_differences, graph.time_steps, content.history
    if found is None:
        return Missing("The graph has no edges before the first task, so there are no time differences.")
    last = max(at for at, count in enumerate(found.counts) if count)
    shares = [count / sum(found.counts) for count in found.counts[: last + 1]]
    if history is None:
        in_use = "The full history is in use."
    else:
        covered = _share(sum(shares[: history + 1]))
        in_use = f"The history in use, {_long(history, steps)}, covers {covered} of the pairs."
    levels = {size: level for level, size in found.history_sizes.items()}  # the highest level of each size
    sizes = ", ".join(f"{size} covers {level} %" for size, level in levels.items())
    after = f"{in_use} A history of {sizes} of the pairs. Only vertices before {graph.first_task} are counted."
    totals = accumulate(shares)
    rows = [
        [str(at), _share(share), _share(total)] for at, (share, total) in enumerate(zip(shares, totals, strict=True))
    ]
    numbers = Numbers("Time differences", [f"difference, {steps}", "pairs", "cumulative"], rows)
    return Body(charts.differences_chart(shares, steps, history), after, numbers)


def _confusion(confusion: ConfusionTable, _: ReportContent) -> Body:
    labels = charts.confusion_labels(confusion.names)
    rows = [
        [name, mark, *(f"{count:,}" for count in counts)]
        for (mark, name), counts in zip(labels, confusion.counts, strict=True)
    ]
    heads = ["true class", "", *(mark for mark, _ in labels)]
    numbers = Numbers("Vertices by true class (rows) and decision (columns)", heads, rows, words=[0])
    return Body(charts.confusion_chart(confusion), f"Counted over {confusion.over}.", numbers)


def _calibration(calibration: Calibration, _: ReportContent) -> Body:
    error = f"The expected calibration error is {100 * calibration.error:.1f} percentage points."
    rows = [[_share(one.confidence), _share(one.accuracy), f"{one.count:,}"] for one in calibration.bins]
    numbers = Numbers("Probability and accuracy", ["mean probability", "correct", "vertices"], rows)
    return Body(charts.calibration_chart(calibration), error, numbers)


def _threshold(curve: ThresholdCurve, _: ReportContent) -> Body:
    best = max(range(len(curve.mcc)), key=lambda row: curve.mcc[row])
    result = f"The best MCC, {_score(curve.mcc[best])}, is at a threshold of {curve.thresholds[best]:.3g}."
    if curve.in_force is None:
        result += " The detector uses no single threshold."
    else:
        now = curve.mcc[curve.thresholds.index(curve.in_force)]
        result += f" The threshold in use is {curve.in_force:.3g}, with an MCC of {_score(now)}."
    columns = zip(curve.thresholds, curve.found, curve.false_alarms, curve.mcc, strict=True)
    rows = [
        [f"{at:.3g}", _share(found), _share(alarms), _score(mcc)]
        for row, (at, found, alarms, mcc) in enumerate(columns)
        if row % 5 == 0 or at == curve.in_force
    ]
    numbers = Numbers("Thresholds", ["threshold", "unseen found", "false alarms", "MCC"], rows)
    return Body(charts.threshold_chart(curve), result, numbers)


def _review(review: Review, _: ReportContent) -> Body:
    columns: dict[str, list[str]] = {
        "vertex": [row.id for row in review.rows],
        "period": [row.time for row in review.rows],
        "score": [_score(row.score) for row in review.rows],
        "most likely class": [row.best for row in review.rows],
        "probability, if known": [_share(row.probability) for row in review.rows],
    }
    if any(row.text is not None for row in review.rows):
        columns["text"] = [row.text or _NONE for row in review.rows]
    elif any(row.words is not None for row in review.rows):
        columns["words"] = [" ".join(row.words or ()) or _NONE for row in review.rows]
    if any(row.neighbours is not None for row in review.rows):
        columns["neighbours"] = [_neighbours(row.neighbours or ()) for row in review.rows]
    if any(row.because for row in review.rows):
        columns["because of"] = [", ".join(row.because or ()) or _NONE for row in review.rows]
    if any(row.truth is not None for row in review.rows):
        columns["true class"] = [row.truth or _NONE for row in review.rows]
    rows = list(zip(*columns.values(), strict=True))
    words = [0, 3, *range(5, len(columns))]
    return Body(None, review.which, Numbers("Vertices to review", list(columns), rows, words, "cards"), folded=False)


def _groups(groups: Groups, _: ReportContent) -> Body:
    heads = ["group", "period", "size", "edges", "words", "examples", "nearest known classes"]
    rows = [
        [
            *(f"group {row.number}", row.time, f"{row.size:,}", f"{row.edges:,}", " ".join(row.words) or _NONE),
            "; ".join(f"{id} ({what})" if what else id for id, what in row.examples),
            _neighbours(row.nearest),
        ]
        for row in groups.rows
    ]
    table = Numbers("Groups to review", heads, rows, [0, 4, 5, 6], "cards")
    return Body(None, groups.which, table, folded=False, commands=groups.commands)


def _neighbours(classes: Sequence[tuple[str, int]]) -> str:
    shown = [f"{name} ×\u00a0{count}" for name, count in classes[:_MOST_CLASSES]]
    more = [f"{len(classes) - _MOST_CLASSES} more"] if len(classes) > _MOST_CLASSES else []
    return ", ".join(shown + more) or _NONE


def _details(details: Sequence[tuple[str, str]], _: ReportContent) -> Body:
    return Body(table=Numbers("Details", ["name", "value"], details, [0, 1], "details"), folded=False)


_PARTS: dict[str, tuple[str, Callable[[Any, ReportContent], Body | Missing]]] = {
    "glance": ("headlines", _headlines),
    "accuracy": ("slices", _accuracy),
    "unseen": ("slices", _unseen),
    "numbers": ("slices", _all_periods),
    "transfer": ("transfer", _transfer),
    "drift": ("graph", _drift),
    "classes": ("graph", _timeline),
    "confusion": ("confusion", _confusion),
    "calibration": ("calibration", _calibration),
    "threshold": ("threshold", _threshold),
    "history": ("graph", _differences),
    "groups": ("groups", _groups),
    "review": ("review", _review),
    "details": ("details", _details),
}
"""For each section of the template: the field of the content, and the function that returns its body."""


# --- numbers in words ------------------------------------------------------------------------------------------------


def _long(history: int, steps: str) -> str:
    """Return a length of time, such as ``"1 step of 5 years"``."""
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
