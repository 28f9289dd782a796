"""What Ray costs: the same trials on local processes and on Ray, and many short trials through the results table."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.trials import Measurement, measure, run_grid
from evergraph.evaluation.workers import RayEngine, graph_of
from evergraph.nn import GraphSAGE
from evergraph.ray_connection import import_ray
from evergraph_paper.plan import LifelongTrial

TITLE = "Ray against local processes, and many short trials"
COLUMNS = ("what", "local", "Ray", "ratio", "target")
NOTE = (
    "Real trials: metamath, GraphSAGE, history 6, 60 steps, one thread each, two at a time. Short trials sleep 0.1 s, "
    "20 at a time as logical cores of one machine; memory is that of the main process. Figure: "
    "docs/assets/ray_scale.svg."
)
FIGURE = Path(__file__).parents[1] / "docs" / "assets" / "ray_scale"
TRIALS, ROUNDS, SIZES = 6, 2, (100, 1_000, 10_000)
MARK = "measured:"


@dataclass(frozen=True)
class Sleep:
    """A trial that takes a given time."""

    number: int
    seconds: float = 0.1
    graph_name: str = "sleep"
    seed: int = 0

    def described(self) -> dict[str, Any]:
        """Return what identifies the trial."""
        return {"kind": "sleep", "number": self.number, "seconds": self.seconds}

    def run(self) -> dict[str, Any]:
        """Sleep, and return when that began."""
        start = time.time()
        time.sleep(self.seconds)
        return {"start": start}


def real_trials() -> list[LifelongTrial]:
    configuration = Configuration(GraphSAGE(hidden=32), history=6, steps=60)
    return [LifelongTrial("metamath", configuration, seed=seed) for seed in range(TRIALS)]


def seconds_of(trials: list[Any], engine: RayEngine | None) -> tuple[float, dict[str, Any]]:
    """Return the seconds of a grid of two trials at a time, and its results."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        found = run_grid(trials, Path(folder), jobs=2, threads=1, engine=engine)
        return time.perf_counter() - start, found


def first_start(engine: RayEngine | None) -> float:
    """Return the seconds until the first trial begins."""
    now = time.time()
    _, found = seconds_of([Sleep(0), Sleep(1)], engine)
    return float(min(row.result["start"] for row in found.values())) - now


def scale(number: int) -> dict[str, float]:
    """Run short trials in a process of its own, and measure it."""
    code = f"from benchmarks.bench_ray import measured; measured({number})"
    text = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    names = ("seconds", "resume", "memory", "before")
    line = next(line for line in text.splitlines() if line.startswith(MARK))  # Ray prints other lines
    return dict(zip(names, map(float, line.removeprefix(MARK).split()), strict=True))


def measured(number: int) -> None:
    ray = import_ray()
    ray.init(address="local", num_cpus=20, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    graph_of("metamath")  # what any command has loaded
    with tempfile.TemporaryDirectory() as folder:
        run_grid([Sleep(place, seconds=0.5) for place in range(40)], Path(folder, "warm"), engine=RayEngine())
        before = _memory()
        trials = [Sleep(place) for place in range(number)]
        start = time.perf_counter()
        found = run_grid(trials, Path(folder, "r"), engine=RayEngine())
        middle = time.perf_counter()
        assert len(found) == number
        run_grid(trials, Path(folder, "r"), engine=RayEngine())
        print(MARK, middle - start, time.perf_counter() - middle, _memory(), before)
    ray.shutdown()


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run() -> list[tuple[str, str, str, str, str]]:
    ray = import_ray()
    rows = []
    new = RayEngine(jobs=2)
    local, on_ray = first_start(None), first_start(new)
    rows.append(("seconds until the first trial begins; Ray starts a cluster", f"{local:.1f}", f"{on_ray:.1f}", "", ""))
    times: dict[str, list[float]] = {"local": [], "ray": []}
    ray.init(address="local", num_cpus=2, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    running = first_start(new)
    rows.append(("the same; the cluster is running", f"{local:.1f}", f"{running:.1f}", "", ""))
    trials, found = real_trials(), {}
    for _ in range(ROUNDS):  # in turn, because the speed of a shared machine varies
        for name, engine in (("local", None), ("ray", new)):
            seconds, found = seconds_of(trials, engine)
            times[name].append(seconds)
    size = statistics.mean(row.made["seconds"] for row in found.values())
    one = min(times["local"]), min(times["ray"])
    what = f"{TRIALS} trials of {size:.0f} s, running cluster, best of {ROUNDS}"
    rows.append((what, f"{one[0]:.1f} s", f"{one[1]:.1f} s", f"{one[1] / one[0]:.3f}", "1.15"))
    sent = len(ray.cloudpickle.dumps((measure, (trials[0], 1))))
    row = next(iter(found.values()))
    back = len(ray.cloudpickle.dumps(Measurement(row.result, row.made)))
    rows.append(("bytes moved for each trial: to the worker, back", "", f"{sent:,}, {back:,}", "", ""))
    buffers: list[Any] = []
    head = len(ray.cloudpickle.dumps(graph_of("metamath"), protocol=5, buffer_callback=buffers.append))
    whole = head + sum(buffer.raw().nbytes for buffer in buffers)
    rows.append(("bytes of the graph, once for each node", "", f"{whole:,}", "", ""))
    ray.shutdown()
    found_at = {number: scale(number) for number in SIZES}
    for number, one_size in found_at.items():
        rate, ideal = number / one_size["seconds"], 20 / 0.1
        grown = one_size["memory"] - one_size["before"]
        values = f"{rate:.0f} a second, {one_size['memory']:.0f} MB (+{grown:.0f}), resume {one_size['resume']:.2f} s"
        rows.append((f"{number:,} short trials", f"{ideal:.0f} a second at most", values, f"{rate / ideal:.2f}", ""))
    draw(found_at)
    return rows


def draw(found: dict[int, dict[str, float]]) -> None:
    """Draw seconds, seconds of resuming and memory against the number of trials."""
    from evergraph.presentation.style import figure, save

    panels = (("seconds", "seconds"), ("resume", "seconds to resume"), ("memory", "memory of the main process, MB"))
    sizes = sorted(found)
    with figure(columns=3) as (picture, axes_of):
        for axes, (name, label) in zip(axes_of.flat, panels, strict=True):
            axes.plot(sizes, [found[size][name] for size in sizes], marker="o")
            axes.set(xscale="log", xlabel="trials", title=label)
            if name == "memory":
                axes.set_ylim(bottom=0)
                continue
            each = found[sizes[-1]][name] / sizes[-1]
            axes.plot(sizes, [each * size for size in sizes], linestyle=":", color="grey")
            axes.set(yscale="log")
        save(picture, FIGURE, "python -m benchmarks bench_ray; dotted: proportional to the number of trials")
