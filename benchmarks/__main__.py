"""Run all or the named benchmarks and write RESULTS.md."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.measure import DATA

HEAD = (
    "# Benchmarks\n\nWritten by `make bench` (one section: `python -m benchmarks NAME`). Ratios come from one run on "
    "one machine, which may be shared with others. Times of different runs are not comparable."
)
BENCHMARKS = (
    "bench_steps",
    "bench_run",
    "bench_inputs",
    "bench_auto",
    "bench_workspace",
    "bench_append",
    "bench_slices",
    "bench_tdiff",
    "bench_import",
    "bench_encode",
    "bench_scale",
    "bench_stream",
    "bench_ray",
)


def main() -> None:
    if not DATA.is_dir():
        sys.exit(f"{DATA} does not exist. Set EVERGRAPH_DATA to the folder that contains dblp-hard and acl.")
    names = sys.argv[1:] or BENCHMARKS
    if unknown := set(names) - set(BENCHMARKS):
        sys.exit(f"Unknown benchmark {', '.join(sorted(unknown))}. Choose from {', '.join(BENCHMARKS)}.")
    path = Path(__file__).parent / "RESULTS.md"
    sections = _sections(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name in names:
        benchmark = import_module(f"benchmarks.{name}")
        print(f"{name} ...", flush=True)
        rows = benchmark.run()
        lines = [benchmark.COLUMNS, ["---"] * len(benchmark.COLUMNS), *rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        print(table, flush=True)
        machine = f"{os.cpu_count()} cores ({_processor()}), Python {platform.python_version()}"
        note = getattr(benchmark, "NOTE", "")
        measured = f"Measured on {datetime.date.today():%Y-%m-%d}: {machine}."
        sections[benchmark.TITLE] = "\n\n".join(part for part in (measured, table, note) if part)
    order = [import_module(f"benchmarks.{name}").TITLE for name in BENCHMARKS]
    parts = [HEAD, *(f"## {title}\n\n{sections[title]}" for title in order if title in sections)]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _sections(text: str) -> dict[str, str]:
    """Return the sections of an earlier page by title."""
    parts = (part.split("\n", 1) for part in text.split("\n## ")[1:])
    return {title.strip(): body.strip() for title, body in parts}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


if __name__ == "__main__":
    main()
