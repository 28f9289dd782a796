"""Insert tables and figures of ``paper/results`` into the research pages.

Usage: ``python paper/scripts/fill_page.py [PAGE ...]``

A page marks the places; the text between two such lines is replaced::

    <!-- table: exp2/exp2-dblp-easy -->
    <!-- end -->
    <!-- table: compared/compared | columns: detector, MCC | groups: acl -->
    <!-- end -->
    <!-- figure: exp2/exp2 | Caption -->
    <!-- end -->

Columns and groups (bold rows and the rows below them) select a part of a table; its full version stays in the results.
With ``--check`` nothing is written; the exit code is 1 if a page is out of date.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "research" / name for name in ("reproduction.md", "unseen-classes.md")]
PICTURES = Path("..") / "assets" / "reproduction"  # as a page in docs/research links them
PLACE = re.compile(r"^<!-- (table|figure): ([\w/.-]+)(?: \| (.*?))? -->\n(.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)
MISSING = "*Not run yet.*\n"


def filled(page: Path) -> str:
    """Text of a page with its tables and figures."""

    def content(place: re.Match[str]) -> str:
        kind, stem, told, _ = place.groups()
        head = place.group(0).splitlines()[0]
        if kind == "table":
            source = RESULTS / f"{stem}.md"
            inside = part_of(source.read_text(encoding="utf-8"), told or "") if source.exists() else MISSING
        else:
            picture = PICTURES / f"{Path(stem).name}.svg"
            there = (RESULTS / f"{stem}.svg").exists()
            inside = f"![{told or stem}]({picture.as_posix()})\n" if there else MISSING
        return f"{head}\n\n{inside.strip()}\n\n<!-- end -->"

    return PLACE.sub(content, page.read_text(encoding="utf-8"))


def part_of(table: str, selection: str) -> str:
    """Some columns and groups of a Markdown table, as ``columns: a, b | groups: c`` selects them."""
    wanted = dict(re.findall(r"(columns|groups): ([^|]*[^| ])", selection))
    if not wanted:
        return table
    columns, groups = (wanted.get(key, "").split(", ") for key in ("columns", "groups"))
    kept, picked, group = [], [], ""
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            kept.append(line)
            continue
        if not picked:
            picked = [cells.index(name) for name in columns] if "columns" in wanted else list(range(len(cells)))
        elif found := re.fullmatch(r"\*\*(.*)\*\*", cells[0]):
            group = found[1]
        if not group or "groups" not in wanted or group in groups:
            kept.append(f"| {' | '.join(cells[column] for column in picked)} |")
    return "\n".join(kept)


def pictures(page: Path) -> dict[Path, Path]:
    """Source of each figure of a page, by its target."""
    stems = [stem for kind, stem, _, _ in PLACE.findall(page.read_text(encoding="utf-8")) if kind == "figure"]
    found = {page.parent / PICTURES / f"{Path(stem).name}.svg": RESULTS / f"{stem}.svg" for stem in stems}
    return {goal: source for goal, source in found.items() if source.exists()}


def is_current(page: Path) -> bool:
    """Whether a page and its figures are up to date."""
    same = all(goal.exists() and goal.read_bytes() == source.read_bytes() for goal, source in pictures(page).items())
    return same and filled(page) == page.read_text(encoding="utf-8")


def main() -> int:
    """Fill the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", type=Path, nargs="*", default=PAGES)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        return 0 if all(map(is_current, arguments.pages)) else 1
    for page in arguments.pages:
        page.write_text(filled(page), encoding="utf-8")
        for goal, source in pictures(page).items():
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, goal)
    return 0


if __name__ == "__main__":
    sys.exit(main())
