"""Are two folders of results the same? ``python scripts/same_results.py results again``.

Compares the trials that both have, number for number; times that they took aside. Leaves with 1 if any differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evergraph.evaluation.results import Shelf


def numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result without the times that it took."""
    return {name: value for name, value in result.items() if not name.startswith("seconds")}


def main() -> int:
    """Compare, and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs=2)
    one, other = (Shelf(folder).read() for folder in parser.parse_args().folders)
    shared = [key for key in one if key in other]
    different = [key for key in shared if numbers(one[key].result) != numbers(other[key].result)]
    for key in different:
        names = [name for name in one[key].result if numbers(one[key].result).get(name) != other[key].result.get(name)]
        print(f"{key}, {one[key].graph}, seed {one[key].seed}: {', '.join(names)} differ")
    print(f"{len(shared)} trials in both, {len(different)} differ")
    return 1 if different or not shared else 0


if __name__ == "__main__":
    sys.exit(main())
