"""Insert 42 faults into the code, one at a time, and check that the tests fail: ``make mutations``.

Each fault in ``tests/mutations/faults.toml`` replaces text in one file of a temporary copy. The listed test files run
until the first failure. A fault that survives them is tried once with the whole suite. Results are written to
``tests/mutations/results.json`` and ``tests/mutations/RESULTS.md``.

    python scripts/mutate.py                    # all faults, in this code
    python scripts/mutate.py --only mcc-sign    # one fault
    python scripts/mutate.py --check            # only check that each text occurs exactly once
    python scripts/mutate.py --version before --source OLD --python OLD/.venv/bin/python    # in version 0.1
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "mutations"
LEFT_OUT = (".git", ".venv", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".sanity", "graphs", "site")
MOST = 900  # seconds for the listed files; a fault that makes tests hang counts as caught


def read_faults() -> list[dict[str, Any]]:
    """Read all faults: ``id``, ``package``, ``meaning``, ``after`` and, if the code is that old, ``before``."""
    return tomllib.loads((FOLDER / "faults.toml").read_text(encoding="utf-8"))["fault"]


def problems_of(fault: dict[str, Any], version: str, source: Path) -> list[str]:
    """Return the reasons why a fault cannot be applied to a source tree."""
    if version not in fault:
        return [f"{fault['id']}: no entry for the version {version!r}"]
    where = fault[version]
    missing = [name for name in (where["file"], *where["tests"]) if not (source / name).is_file()]
    if missing:
        return [f"{fault['id']}: {name} does not exist" for name in missing]
    found = (source / where["file"]).read_text(encoding="utf-8").count(where["old"])
    return [] if found == 1 else [f"{fault['id']}: the text occurs {found} times in {where['file']}"]


def copy_of(source: Path) -> Path:
    """Copy a source tree to a temporary folder."""
    target = Path(tempfile.mkdtemp(prefix="mutations-")) / "copy"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    return target


def run_tests(copy: Path, python: str, *arguments: str, limit: float | None = MOST) -> tuple[int, str]:
    """Run pytest in a copy; return its exit code and the first test that failed."""
    data = os.environ.get("EVERGRAPH_DATA") or str(ROOT.parent / "shared" / "data")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(copy / part) for part in ("src", "paper/src", "baselines/src")),
        "OMP_NUM_THREADS": "1",
        "EVERGRAPH_DATA": data,
    }
    call = [python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", *arguments]
    try:
        done = subprocess.run(
            call, cwd=copy, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return 1, f"not finished after {limit} seconds"
    failed = [
        line.split(" - ")[0].split(" ", 1)[1]
        for line in done.stdout.splitlines()
        if line.startswith(("FAILED", "ERROR "))
    ]
    return done.returncode, failed[0] if failed else done.stdout.strip()[-200:]


def try_fault(fault: dict[str, Any], version: str, copy: Path, python: str, *, quick: bool) -> dict[str, Any]:
    """Insert a fault, run the tests and return the result."""
    where, start = fault[version], time.monotonic()
    path = copy / where["file"]
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(where["old"], where["new"]), encoding="utf-8")
    try:
        code, test = run_tests(copy, python, "-n0", *where["tests"])
        result = "caught"
        if code == 0 and quick:
            result = "survived the listed files"
        elif code == 0:
            code, test = run_tests(copy, python, "-n2", "-m", "not (packaging or sanity)", limit=None)
            result = "survived" if code == 0 else "caught by the whole suite"
    finally:
        path.write_text(text, encoding="utf-8")
    if code not in (0, 1):
        result, test = "no result", f"pytest ended with {code}: {test}"
    return {"result": result, "by": "" if code == 0 else test, "seconds": round(time.monotonic() - start)}


def write_table(faults: list[dict[str, Any]], results: dict[str, dict[str, Any]]) -> None:
    """Write the results as a Markdown page."""

    def caught(version: str) -> str:
        found = [results.get(fault["id"], {}).get(version) for fault in faults]
        number = sum(one is not None and one["result"].startswith("caught") for one in found)
        return f"{number} of {sum(one is not None for one in found)}"

    lines = [
        "# Faults that the tests catch",
        "",
        "Written by `make mutations` from `faults.toml`. Before: version 0.1. After: this code with its fast suite.",
        f"Caught before: {caught('before')}; after: {caught('after')}.",
        "",
        "| package | fault | before | after |",
        "| --- | --- | --- | --- |",
    ]
    for fault in faults:
        cells = [results.get(fault["id"], {}).get(version, {}).get("result", "") for version in ("before", "after")]
        lines.append(f"| {fault['package']} | {fault['meaning']} | {cells[0]} | {cells[1]} |")
    (FOLDER / "RESULTS.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Try the faults; return 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--version", choices=("before", "after"), default="after", help="version of the texts to replace"
    )
    parser.add_argument("--source", type=Path, default=ROOT, help="folder of the code; it is copied first")
    parser.add_argument("--python", default=sys.executable, help="interpreter of an environment that can run the tests")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="try only these faults")
    parser.add_argument("--missing", action="store_true", help="try only faults that were not caught so far")
    parser.add_argument("--jobs", type=int, default=2, help="number of faults to try in parallel")
    parser.add_argument(
        "--quick", action="store_true", help="skip the run without faults, and the whole suite for survivors"
    )
    parser.add_argument("--check", action="store_true", help="only check that each text occurs exactly once")
    given = parser.parse_args()
    faults, kept = read_faults(), FOLDER / "results.json"
    results: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    chosen = [fault for fault in faults if not given.only or fault["id"] in given.only]
    if given.missing:
        chosen = [
            fault
            for fault in chosen
            if not results.get(fault["id"], {}).get(given.version, {}).get("result", "").startswith("caught")
        ]
    problems = [problem for fault in chosen for problem in problems_of(fault, given.version, given.source)]
    print(*problems, sep="\n")
    if problems or given.check:
        return int(bool(problems))

    first = copy_of(given.source)
    code, test = 0, ""
    tests = sorted({name for fault in chosen for name in fault[given.version]["tests"]})
    if not given.quick:
        code, test = run_tests(first, given.python, f"-n{given.jobs}", *tests, limit=None)
    if code:
        print(f"A test fails without any fault: {test}")
        return 2
    copies: SimpleQueue[Path] = SimpleQueue()
    for copy in [first, *(copy_of(first) for _ in range(given.jobs - 1))]:
        copies.put(copy)

    def one(fault: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        copy = copies.get()
        try:
            return fault, try_fault(fault, given.version, copy, given.python, quick=given.quick)
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(given.jobs) as pool:
        for fault, found in pool.map(one, chosen):
            print(f"{fault['id']}: {found['result']} ({found['seconds']} s) {found['by']}", flush=True)
            results = json.loads(kept.read_text()) if kept.exists() else {}  # another run may have written to it
            results.setdefault(fault["id"], {})[given.version] = found
            kept.write_text(json.dumps(results, indent=1) + "\n")
            write_table(faults, results)
    while not copies.empty():
        shutil.rmtree(copies.get().parent)
    return int(any(not results[fault["id"]][given.version]["result"].startswith("caught") for fault in chosen))


if __name__ == "__main__":
    sys.exit(main())
