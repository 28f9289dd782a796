"""Run all benchmarks and write RESULTS.md beside this file."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.measure import DATA

BENCHMARKS = ("bench_steps", "bench_run", "bench_tdiff", "bench_import", "bench_scale")


def main() -> None:
    if not DATA.is_dir():
        sys.exit(f"{DATA} is not there: set EVERGRAPH_DATA to the folder that holds dblp-hard and acl.")
    machine = f"{os.cpu_count()} cores ({_processor()}), Python {platform.python_version()}"
    parts = [
        f"# Benchmarks\n\nWritten by `make bench` on {datetime.date.today():%Y-%m-%d}: {machine}.\n",
        "Ratios come from one run on one machine, which may be shared with others; times alone mean little.\n",
    ]
    for name in BENCHMARKS:
        benchmark = import_module(f"benchmarks.{name}")
        print(f"{name} ...", flush=True)
        rows = benchmark.run()
        lines = [benchmark.COLUMNS, ["---"] * len(benchmark.COLUMNS), *rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        print(table, flush=True)
        parts.append(f"## {benchmark.TITLE}\n\n{table}\n")
        if note := getattr(benchmark, "NOTE", ""):
            parts.append(f"{note}\n")
    (Path(__file__).parent / "RESULTS.md").write_text("\n".join(parts), encoding="utf-8")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


if __name__ == "__main__":
    main()
