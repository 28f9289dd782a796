"""Take the pictures of the docs that are taken of a browser: the report in both themes.

Usage::

    python scripts/screenshots.py [--run RUN] [--out FOLDER]

Without a run one is made first (`RUN`), which takes some minutes. Each entry of `PICTURES` takes one kind of picture:
it gets a browser, a folder for what it needs on the way, and the arguments.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import Browser, browser  # noqa: E402  # found by the line above

RUN = ("run", "metamath", "--history", "3", "--steps", "60", "--seeds", "0-2")
SIZE = (1280, 1500)


def report(page: Browser, folder: Path, arguments: argparse.Namespace) -> list[Path]:
    """The top of a report."""
    run = arguments.run or folder / "run"
    if arguments.run is None:
        evergraph(*RUN, "--out", run)
    evergraph("report", run, "--out", folder / "report.html")
    taken = []
    for theme in ("light", "dark"):
        page.view(*SIZE, dark=theme == "dark")
        page.open(folder / "report.html")
        page.wait(f"document.documentElement?.dataset.drawn === '{theme} wide'")
        taken.append(arguments.out / f"report-{theme}.png")
        page.screenshot(taken[-1])
    return taken


PICTURES: dict[str, Callable[[Browser, Path, argparse.Namespace], list[Path]]] = {"report": report}


def evergraph(*words: str | Path) -> None:
    """Run the command."""
    code = "from evergraph.cli import main; main()"
    subprocess.run([sys.executable, "-c", code, *map(str, words)], check=True)


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--run", type=Path, metavar="RUN", help="report this run instead of making one")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "assets", metavar="FOLDER", help="where they go")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, browser() as page:
        for take in PICTURES.values():
            for path in take(page, Path(folder), arguments):
                print(path)


if __name__ == "__main__":
    main()
