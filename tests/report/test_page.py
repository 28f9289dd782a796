"""The page as text."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.analysis import GraphDescription
from evergraph.analysis.description import DriftAt
from evergraph.report import charts
from evergraph.report.charts import shortened
from evergraph.report.content import (
    Band,
    Calibration,
    ConfusionTable,
    ReportContent,
    Review,
    Slices,
)
from evergraph.report.page import page_of
from tests.report import contents

Part = TypeVar("Part")


def is_a(part: object, kind: type[Part]) -> Part:
    assert isinstance(part, kind), part
    return part


class Reader(HTMLParser):
    """What a browser would take for scripts, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.ids: list[str | None] = []
        self._in: dict[str, str | None] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        self._in = dict(attrs) if tag == "script" else None

    def handle_data(self, data: str) -> None:
        if self._in is not None:
            self.scripts.append((self._in, data))
            self._in = None
        else:
            self.texts.append(data)


def read(content: ReportContent) -> Reader:
    reader = Reader()
    reader.feed(page_of(content))
    return reader


@pytest.mark.parametrize("name", ["ordinary", "hostile", "empty", "single"])
def test_the_page_is_complete_and_harmless(name: str) -> None:
    content = getattr(contents, name)()
    reader = read(content)
    kinds = [attrs.get("type") for attrs, _ in reader.scripts]
    assert kinds.count(None) == 1, "one script, ours"
    assert kinds.count("application/gzip") == (name != "empty"), "where there are charts"
    for attrs, text in reader.scripts:
        assert "alert(" not in text or attrs.get("type") == "application/json"
        if attrs.get("type") == "application/json":
            json.loads(text)
    for tag_name, attribute, value in reader.attributes:
        assert not attribute.startswith("on"), (tag_name, attribute)
        assert attribute not in ("src", "srcset", "action"), (tag_name, attribute)
        assert attribute != "href" or (value or "").startswith("#")
    assert len(reader.ids) == len(set(reader.ids))
    links = {value[1:] for _, attribute, value in reader.attributes if attribute == "href" and value}
    assert links <= set(reader.ids)
    policy = next(
        value for _, attribute, value in reader.attributes if attribute == "content" and "default-src" in (value or "")
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert content.title in reader.texts
    if name == "empty":
        assert sum("There is none of it" in text for text in reader.texts) == 12


def test_every_number_is_in_a_table() -> None:
    texts = set(read(contents.ordinary()).texts)
    content = contents.ordinary()
    for row in is_a(content.slices, Slices).rows:
        assert {row.time, f"{row.vertices}", f"{100 * (row.unseen or 0):.1f}\u00a0%"} <= texts
    largest = sorted(is_a(content.graph, GraphDescription).classes, key=lambda one: -one.vertices)[:20]
    for one in largest:
        assert {one.name, str(one.times[0]), str(one.times[-1]), f"{one.vertices:,}"} <= texts
    assert any("3 smaller classes are not shown." in text for text in texts)
    for counts in is_a(content.confusion, ConfusionTable).counts:
        assert {f"{count:,}" for count in counts} <= texts
    for one in is_a(content.calibration, Calibration).bins:
        assert f"{100 * one.confidence:.1f}\u00a0%" in texts
    for review in is_a(content.review, Review).rows:
        assert {review.id, review.best} <= texts
    assert {"76.5\u00a0%", " ± 1.2", "12,345.6\u00a0s", "12,345"} <= texts


def test_the_same_story_gives_the_same_bytes_and_not_too_many() -> None:
    code = (
        "import sys, hashlib; from tests.report import contents; from evergraph.report.page import page_of\n"
        "page = page_of(contents.ordinary()).encode(); slow = {'torch', 'plotly.graph_objs', 'pyarrow', 'matplotlib'}\n"
        "assert not slow & {*sys.modules}; sys.stdout.write(hashlib.sha256(page).hexdigest() + ' ' + str(len(page)))"
    )
    root = Path(__file__).parents[2]
    seen = {
        subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    }
    assert len(seen) == 1
    assert 1_000_000 < int(seen.pop().split()[1]) < 3_000_000


@given(st.text(max_size=40))
@settings(max_examples=20)
def test_any_text_is_escaped(text: str) -> None:
    details = (("graph", text), ("command", text), (text, text))
    content = dataclasses.replace(contents.empty(), title=text, summary=text, notes=(text,), details=details)
    reader, harmless = read(content), read(dataclasses.replace(contents.empty(), notes=("",), details=(("", ""),) * 3))
    assert sorted(name for name, _, _ in reader.attributes) == sorted(name for name, _, _ in harmless.attributes)
    assert [kind for kind, _ in reader.scripts] == [kind for kind, _ in harmless.scripts]


@given(st.text(max_size=60), st.integers(5, 40))
def test_names_are_cut_in_the_middle(text: str, longest: int) -> None:
    short = shortened(text, longest)
    assert len(short) == min(len(text), longest)
    assert short == text or (text.startswith(short.split("…")[0]) and "…" in short)


def test_every_colour_of_a_chart_is_in_the_style() -> None:
    page = page_of(contents.ordinary())
    used = set(re.findall(r"var\((--[a-z-]+)\)", page))
    defined = set(re.findall(r"(--[a-z-]+):", page))
    assert used <= defined
    assert {"--blue", "--orange", "--green", "--heat-low"} <= used


@pytest.mark.parametrize(
    ("history", "steps", "told"),
    [
        (1, "years", "in use, 1 year, covers"),
        (2, "years", "in use, 2 years, covers"),
        (1, "steps", "in use, 1 step, covers"),
        (1, "steps of 5 years", "in use, 1 step of 5 years, covers"),
        (3, "steps of 5 years", "in use, 3 steps of 5 years, covers"),
    ],
)
def test_one_step_is_told_in_the_singular(history: int, steps: str, told: str) -> None:
    graph = contents.described(("x",), ("1", "2"), steps)
    assert told in page_of(dataclasses.replace(contents.empty(), graph=graph, history=history))


@pytest.mark.parametrize("highest", [0.0, 0.04, 0.11, 0.3, 0.51, 1.0])
def test_axes_of_shares_start_at_0_and_end_above_the_highest(highest: float) -> None:
    slices = contents.ordinary().slices
    rows = [dataclasses.replace(row, unseen=highest / 2, flagged=Band(highest)) for row in slices.rows]
    chart = charts.unseen_chart(dataclasses.replace(slices, rows=tuple(rows)))
    low, high = chart.layout["yaxis"]["range"]
    assert low == 0
    assert 100 * highest < high <= max(102, 1)
    assert high <= max(10.2, 300 * highest)
    few = tuple(dataclasses.replace(row, flagged=Band(highest, 0, min(1, highest + 0.2))) for row in rows[:2])
    bars = charts.unseen_chart(dataclasses.replace(slices, rows=few)).layout["yaxis"]["range"]
    assert bars[1] > 100 * min(1, highest + 0.2)


def test_bands_end_at_a_gap() -> None:
    """plotly.js would join the edges of one area across periods without a value."""
    slices = contents.ordinary().slices
    gaps = {3, 5}  # the period between them has no neighbour
    rows = [dataclasses.replace(row, accuracy=None) if at in gaps else row for at, row in enumerate(slices.rows)]
    chart = charts.accuracy_chart(dataclasses.replace(slices, rows=tuple(rows)))
    area, dots, line = chart.data[-3:]
    years = [int(row.time) for row in rows]
    parts = [years[:3], years[6:]]
    assert area["x"] == [*parts[0], *parts[0][::-1], None, *parts[1], *parts[1][::-1]]
    assert area["fill"] == "toself"
    highs = [100 * row.accuracy.high for row in rows if row.accuracy is not None]
    assert area["y"][:3] == highs[:3]
    alone = rows[4].accuracy
    assert (dots["x"], dots["y"]) == ([years[4]], [100 * alone.mean])
    assert dots["error_y"]["array"] == [pytest.approx(100 * (alone.high - alone.mean))]
    assert [at for at, value in enumerate(line["y"]) if value is None] == sorted(gaps)


def test_no_chart_is_empty() -> None:
    """Without a number to draw, a sentence says what is missing."""
    content = contents.ordinary()
    bare = tuple(
        dataclasses.replace(row, accuracy=None, known_accuracy=None, unseen=None, flagged=None)
        for row in content.slices.rows
    )
    graph = dataclasses.replace(content.graph, drift=[DriftAt(time, None, None) for time in content.graph.times])
    transfer = dataclasses.replace(content.transfer, gains=(None,) * len(content.transfer.times))
    slices = dataclasses.replace(content.slices, rows=bare)
    nothing = dataclasses.replace(content, slices=slices, graph=graph, transfer=transfer)
    page = page_of(nothing)
    for name in ("accuracy", "unseen", "drift", "transfer"):
        assert f'id="{name}-chart"' not in page, name
        assert f'id="{name}-chart"' in page_of(content), name
    flagged = dataclasses.replace(slices, rows=tuple(dataclasses.replace(row, flagged=Band(0.2)) for row in bare))
    page = page_of(dataclasses.replace(nothing, slices=flagged))
    assert 'id="unseen-chart"' in page
    assert 'id="accuracy-chart"' not in page


def test_parts_of_a_graph_that_has_none() -> None:
    graph = dataclasses.replace(contents.described(("x",), ("1", "2")), classes=[], drift=[], past_differences=None)
    page = page_of(dataclasses.replace(contents.empty(), graph=graph))
    for told in ("Fewer than two periods have labels", "no classes to show", "no edges before the first task"):
        assert told in page
