"""The page: one HTML file that needs nothing else, neither a network nor, for its tables, a script."""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from importlib.resources import files
from pathlib import Path

from evergraph import __version__
from evergraph.errors import EvergraphError
from evergraph.report.chart_pieces import PALETTE
from evergraph.report.html import Safe, data_block, joined, prose, tag
from evergraph.report.sections import SECTIONS, Section
from evergraph.report.story import Missing, Story
from evergraph.storage.files import write_atomic

__all__ = ["page_of", "write_page"]

_THEMES = (
    {
        "ground": "#FAF9F7",
        "card": "#FFFFFF",
        "text": "#1D2126",
        "soft": "#59616B",
        "line": "#DEDCD6",
        "grid": "#ECEAE5",
        "hover": "#F5F4F0",
        "link": "#005A8C",
        "pale": "#C4CFD7",
        "heat-low": "#DCEAF4",
        "heat-high": "#0067A3",
        "blue-band": "rgba(0,114,178,.14)",
        "orange-band": "rgba(213,94,0,.13)",
    },
    {
        "ground": "#14171A",
        "card": "#1B1F23",
        "text": "#E4E7EB",
        "soft": "#A4ADB7",
        "line": "#343A41",
        "grid": "#2A3036",
        "hover": "#22272C",
        "link": "#7CC4F0",
        "pale": "#46515B",
        "heat-low": "#1D3442",
        "heat-high": "#7CC8F5",
        "blue-band": "rgba(86,180,233,.17)",
        "orange-band": "rgba(240,128,60,.16)",
    },
)


def page_of(story: Story) -> str:
    """The page of a story; the same story gives the same page.

    It is told not to load anything and to run no script but its own two, so nothing in the data can.
    """
    shown = tag("main", *(_section(story, section) for section in SECTIONS))
    script = (files("evergraph.report") / "page.js").read_text(encoding="utf-8").strip()
    packed, hashed = _library() if 'class="chart"' in shown else (None, "")
    scripts = f"'sha256-{_hash(script.encode())}' {hashed}".strip()
    policy = f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:"
    head = tag(
        "head",
        Safe('<meta charset="utf-8">'),
        Safe(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Safe('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Safe('<meta name="color-scheme" content="light dark">'),
        Safe(f'<meta name="generator" content="Evergraph {__version__}">'),
        tag("title", f"{story.title} – Evergraph report"),
        Safe(f"<style>\n{_style()}</style>"),
    )
    body = tag(
        "body",
        tag("div", _header(story), _notices(story), _navigation(), shown, _footer(), class_="page"),
        packed and data_block("plotly", "application/gzip", packed),
        Safe(f"<script>{script}</script>"),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def write_page(page: str, path: Path) -> int:
    """Write a page, at once or not at all, and tell its size in bytes; its folder is made if need be."""
    data = page.encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except OSError as error:
        raise EvergraphError(f"{path} could not be written ({error.strerror or error}).") from error
    return len(data)


@cache
def _library() -> tuple[str, str]:
    """plotly.js, packed, and the hash of what is unpacked, as a browser wants it told."""
    code = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return base64.b64encode(gzip.compress(code, 9, mtime=0)).decode(), f"'sha256-{_hash(code)}'"


def _hash(code: bytes) -> str:
    return base64.b64encode(hashlib.sha256(code).digest()).decode()


def _style() -> str:
    light, dark = (
        "".join(f"--{name}:{value};" for name, value in colours.items())
        for colours in (
            theme | {name: both[number] for name, both in PALETTE.items()} for number, theme in enumerate(_THEMES)
        )
    )
    sheet = (files("evergraph.report") / "page.css").read_text(encoding="utf-8")
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n{sheet}"
    )


def _header(story: Story) -> Safe:
    kind = {"run": "Report of a run", "workspace": "Report of a workspace"}[story.kind]
    words = (tag("p", kind, class_="kind"), tag("h1", story.title), tag("p", story.summary, class_="summary"))
    return tag("header", tag("div", *words), tag("button", "Dark", id="theme", type="button", hidden=True))


def _notices(story: Story) -> Safe:
    sorry = "This browser cannot unpack the charts. All their numbers are in the tables."
    return tag(
        "div",
        *(tag("p", note, class_="notice") for note in story.notes),
        tag("p", sorry, class_="notice", id="sorry", hidden=True),
        tag("noscript", tag("p", "Charts need JavaScript. All their numbers are in the tables.", class_="notice")),
        class_="notices",
    )


def _navigation() -> Safe:
    links = [tag("li", tag("a", section.word, href=f"#{section.name}")) for section in SECTIONS]
    return tag("nav", tag("ul", *links), aria_label="Parts of this page")


def _section(story: Story, section: Section) -> Safe:
    told, name = getattr(story, section.part), section.name
    body = tag("p", prose(told.reason), class_="missing") if isinstance(told, Missing) else section.show(told)
    title, lead = (
        tag("h2", section.heading, id=f"{name}-title"),
        tag("p", prose(section.lead_for(story.kind)), class_="lead"),
    )
    return tag("section", title, lead, body, id=name, aria_labelledby=f"{name}-title")


def _footer() -> Safe:
    words = f"Made by Evergraph {__version__}. This page is complete in itself and loads nothing."
    hint = " Charts: point at them for values, drag to zoom, double-click to go back."
    return tag("footer", joined([words, hint]))
