"""Measure the size of the code, and how many files a reader must follow for one command.

    python scripts/metrics.py                                          # this code
    python scripts/metrics.py --root OLD --python OLD/.venv/bin/python # another version

A file counts for a command if one of its functions runs during the command; imports do not count.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ("red cat", "blue dog", "green bird")

# Runs `evergraph` with a profiler that collects the files of all functions of the package called after import.
TRACED = """
import json, os, sys, threading
folder, out = os.environ["TRACED_FOLDER"], os.environ["TRACED_OUT"]
files = set()

def profile(frame, event, _):
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(folder) or code.co_name.startswith("<"):
        return
    while (frame := frame.f_back) is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(folder):
            return
    files.add(os.path.relpath(code.co_filename, folder))

from evergraph.cli import main
threading.setprofile(profile)
sys.setprofile(profile)
try:
    main()
except SystemExit as end:
    sys.setprofile(None)
    with open(out, "w") as file:
        json.dump(sorted(files), file)
    raise
"""


def size(files: list[Path]) -> list[str]:
    """Return the number of files, lines, median and longest file, and public functions and classes."""
    lines = [len(path.read_text(encoding="utf-8").splitlines()) for path in files]
    public = 0
    for path in files:
        nodes = ast.parse(path.read_text(encoding="utf-8")).body
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        public += sum(isinstance(node, kinds) and not node.name.startswith("_") for node in nodes)
    longest = f"{max(lines)} ({files[lines.index(max(lines))].name})"
    return [f"{len(files)}", f"{sum(lines):,}", f"{statistics.median(lines):.0f}", longest, f"{public}"]


def sizes(root: Path) -> list[list[str]]:
    """Return a row for each package of the product, for the product, paper, baselines and tests."""
    package = root / "src" / "evergraph"
    groups: dict[str, list[Path]] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        groups.setdefault(parts[0] if len(parts) > 1 else "(top)", []).append(path)
    groups["product"] = sorted(package.rglob("*.py"))
    for other in ("paper", "baselines"):
        groups[other] = sorted((root / other / "src").rglob("*.py"))
    groups["tests"] = [path for part in ("", "paper", "baselines") for path in (root / part / "tests").rglob("*.py")]
    return [[name, *size(files)] for name, files in groups.items() if files]


def call(root: Path, python: str, folder: Path, *arguments: str) -> list[str]:
    """Run a command; return the files whose functions ran."""
    out = folder / "files.json"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(root / part) for part in ("src", "paper/src", "baselines/src")),
        "TRACED_FOLDER": f"{root / 'src' / 'evergraph'}{os.sep}",
        "TRACED_OUT": str(out),
    }
    command = [python, "-c", TRACED, *arguments, "--quiet"]
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    return json.loads(out.read_text(encoding="utf-8"))


def write_slice(folder: Path, name: str, times: list[int], *, labels: bool) -> tuple[str, ...]:
    """Write a vertex and an edge file; return the options that name them."""
    rows = [(f"{name}{i}", time, "xyz"[i % 3] if labels else "", TEXTS[i % 3]) for i, time in enumerate(times)]
    vertices = ["id,time,label,text", *(",".join(map(str, row)) for row in rows)]
    edges = ["source,target", *(f"{name}{i},{name}{i - 3}" for i in range(3, len(rows)))]
    (folder / f"{name}-vertices.csv").write_text("\n".join(vertices) + "\n", encoding="utf-8")
    (folder / f"{name}-edges.csv").write_text("\n".join(edges) + "\n", encoding="utf-8")
    return "--vertices", f"{name}-vertices.csv", "--edges", f"{name}-edges.csv"


def main() -> None:
    """Print the table and the files of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of the code to measure")
    parser.add_argument("--python", default=sys.executable, help="interpreter of an environment that can run it")
    given = parser.parse_args()
    root = given.root.resolve()
    head = ["package", "files", "lines", "median", "longest", "public functions and classes"]
    for row in [head, ["---"] * len(head), *sizes(root)]:
        print(f"| {' | '.join(row)} |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        past = write_slice(folder, "a", [2000 + i // 20 for i in range(100)], labels=True)
        new = write_slice(folder, "b", [2005] * 12, labels=False)
        ran = call(root, given.python, folder, "run", "metamath", "--steps", "1")
        call(root, given.python, folder, "ws", "init", "ws", *past, "--steps", "5")
        call(root, given.python, folder, "ws", "add", "ws", *new)
        predicted = call(root, given.python, folder, "ws", "predict", "ws")
    for command, files in (("run", ran), ("ws predict", predicted)):
        print(f"\n`{command}` runs functions of {len(files)} files: {', '.join(files)}")


if __name__ == "__main__":
    main()
