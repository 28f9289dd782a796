"""Take the pictures of the docs: the report in both themes, the demo in a terminal of 80 columns, pages of the service.

Usage::

    python scripts/screenshots.py [report] [demo] [service] [--run RUN] [--out FOLDER]

Without a run one is made first (`RUN`), which takes some minutes; so does the demo. Each entry of `PICTURES` takes one
kind of picture: it gets a browser, a folder for what it needs on the way, and the arguments.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.report.browser import Page, browser  # noqa: E402  # found by the line above
from tests.service.serving import serving  # noqa: E402

RUN = ("run", "metamath", "--history", "3", "--steps", "60", "--seeds", "0-2")
SIZE = (1280, 1500)
FIRST, LAST = 2016, 2019  # years that arrive in the workspace of the service
CODE = "from evergraph.cli import main; main()"
TERMINAL = """<!doctype html><meta charset="utf-8"><style>{stylesheet}
body {{ /* prose: ok */ margin: 0; padding: 20px; color: {foreground}; background: {background}; }}
pre {{ margin: 0; font: 14px/20px "DejaVu Sans Mono", monospace; white-space: pre; }}
</style><pre>{code}</pre>"""


def report(chromium: Any, folder: Path, arguments: argparse.Namespace) -> list[Path]:
    """The top of a report."""
    run = arguments.run or folder / "run"
    if arguments.run is None:
        evergraph(*RUN, "--out", run)
    evergraph("report", run, "--out", folder / "report.html")
    taken = []
    for theme in ("light", "dark"):
        page = Page(chromium, *SIZE, dark=theme == "dark")
        page.open(folder / "report.html")
        page.wait(f"document.documentElement.dataset.drawn === '{theme} wide'")
        taken.append(arguments.out / f"report-{theme}.png")
        page.page.screenshot(path=taken[-1])
        page.close()
    return taken


def demo(chromium: Any, folder: Path, arguments: argparse.Namespace) -> list[Path]:
    """What the demo prints, as a terminal shows it."""
    command = [sys.executable, "-c", CODE, "demo", "--out", "demo"]
    shown = subprocess.run(
        command,
        check=True,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        env=os.environ | {"COLUMNS": "80", "FORCE_COLOR": "1"},
    ).stdout
    terminal = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    terminal.print(Text("$ evergraph demo"))
    terminal.print(Text.from_ansi(shown))
    html = folder / "demo.html"
    html.write_text(terminal.export_html(theme=MONOKAI, code_format=TERMINAL), encoding="utf-8")
    page = Page(chromium, 840, 600)
    page.open(html)
    path = arguments.out / "demo.png"
    page.page.screenshot(path=path, full_page=True)  # long lines are wrapped
    page.close()
    return [path]


def service(chromium: Any, folder: Path, arguments: argparse.Namespace) -> list[Path]:
    """Pages of the service: 2019 of the embedded graph was decided, and has no labels yet."""
    from evergraph import EvolvingGraph
    from evergraph.datasets import load
    from evergraph.datasets.tables import to_tables
    from evergraph.workspace import Workspace

    graph = load("metamath")
    workspace = Workspace.create(folder / "metamath", EvolvingGraph.build(*to_tables(graph, last=FIRST - 1)))
    for year in range(FIRST, LAST + 1):
        workspace.add(*to_tables(graph, year, year, labels=False))
        workspace.predict()
        if year < LAST:
            workspace.label(to_tables(graph, year, year)[0].select(["id", "label"]))
            workspace.update()
    vertex = workspace.groups()[0].exemplars[0][0]
    taken = []
    with serving(folder / "metamath", "--no-auth") as served:
        for name, path, width, dark in (
            ("overview-light", "", 1280, False),
            ("review-light", "review", 1280, False),
            ("review-dark", "review", 1280, True),
            ("review-phone", "review", 390, False),
            ("vertex-light", f"vertex?id={vertex}", 1280, False),
        ):
            page = Page(chromium, width, 844 if width < 700 else 960, dark=dark)
            page.page.goto(f"{served.url.rstrip('/')}/{path}")
            page.wait("document.documentElement.dataset.ready === 'yes'")
            if path == "review":
                page.wait("document.querySelectorAll('.drawing svg').length > 0")
            if path.startswith("vertex"):
                page.page.keyboard.press("e")
                page.wait("document.querySelector('#why li') !== null")
            page.page.wait_for_timeout(500)
            taken.append(arguments.out / f"{name}.png")
            page.page.screenshot(path=taken[-1], full_page=path.startswith("vertex"))
            page.close()
    return taken


PICTURES: dict[str, Callable[[Any, Path, argparse.Namespace], list[Path]]] = {
    "report": report,
    "demo": demo,
    "service": service,
}


def evergraph(*words: str | Path) -> None:
    """Run the command."""
    subprocess.run([sys.executable, "-c", CODE, *map(str, words)], check=True)


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help=f"which ones: {', '.join(PICTURES)} (or all)")
    parser.add_argument("--run", type=Path, metavar="RUN", help="report this run instead of making one")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "assets", metavar="FOLDER", help="where they go")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        for name in arguments.pictures or PICTURES:
            for path in PICTURES[name](chromium, Path(folder), arguments):
                print(path)


if __name__ == "__main__":
    main()
