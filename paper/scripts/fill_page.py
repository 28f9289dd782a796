"""Put tables and figures of ``paper/results`` into a page: ``python paper/scripts/fill_page.py docs/reproduction.md``.

A page says where they go, and all between two such lines is written anew::

    <!-- table: exp2/exp2-dblp-easy -->
    <!-- end -->
    <!-- figure: exp2/exp2 | What is to be seen -->
    <!-- end -->

With ``--check`` nothing is written, and the answer is whether the page is up to date.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
PICTURES = Path("assets") / "reproduction"
PLACE = re.compile(r"^<!-- (table|figure): ([\w/.-]+)(?: \| (.*?))? -->\n(.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)
MISSING = "*Not run yet.*\n"


def filled(page: Path) -> str:
    """The text of a page with everything in its place."""

    def content(place: re.Match[str]) -> str:
        kind, stem, told, _ = place.groups()
        head = place.group(0).splitlines()[0]
        if kind == "table":
            source = RESULTS / f"{stem}.md"
            inside = source.read_text(encoding="utf-8") if source.exists() else MISSING
        else:
            picture = PICTURES / f"{Path(stem).name}.svg"
            there = (RESULTS / f"{stem}.svg").exists()
            inside = f"![{told or stem}]({picture.as_posix()})\n" if there else MISSING
        return f"{head}\n\n{inside.strip()}\n\n<!-- end -->"

    return PLACE.sub(content, page.read_text(encoding="utf-8"))


def pictures(page: Path) -> dict[Path, Path]:
    """Where each figure of a page comes from, by where it goes."""
    stems = [stem for kind, stem, _, _ in PLACE.findall(page.read_text(encoding="utf-8")) if kind == "figure"]
    found = {page.parent / PICTURES / f"{Path(stem).name}.svg": RESULTS / f"{stem}.svg" for stem in stems}
    return {goal: source for goal, source in found.items() if source.exists()}


def main() -> int:
    """Fill a page, or say whether it is filled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    page: Path = arguments.page
    text, drawn = filled(page), pictures(page)
    if arguments.check:
        same = all(goal.exists() and goal.read_bytes() == source.read_bytes() for goal, source in drawn.items())
        return 0 if same and text == page.read_text(encoding="utf-8") else 1
    page.write_text(text, encoding="utf-8")
    for goal, source in drawn.items():
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, goal)
    return 0


if __name__ == "__main__":
    sys.exit(main())
