"""Windows larger than memory: one task on synthetic graphs of up to 10 million vertices within a memory limit."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Measured, measure

TITLE = "Windows larger than memory: one task with a window of the whole graph, within 6 GB"
NOTE = (
    "Synthetic graphs with text, 12 periods and 20 classes. One task, the last period, with a history of all periods, "
    "no detector, seed 0, each in a process of its own with one thread for training and one that prepares batches. "
    "Peak: VmHWM of the process. Epoch: one pass over the labelled vertices, from the time of a step; training takes "
    "200 full-batch steps, or 800 to 2,000 mini-batches. Read: what the batches of an epoch contain, "
    "and in brackets what the process read from disk (/proc/self/io), which is less if the graph is in the page cache. "
    "EVERGRAPH_STREAM=0.1 scales the numbers of vertices. The figure is docs/assets/stream_scale.svg."
)
COLUMNS = [
    "model",
    "vertices",
    "edges",
    "limit",
    "mode",
    "peak memory",
    "training",
    "epoch (of all cores)",
    "read per epoch",
    "accuracy",
]

SCALE = float(os.environ.get("EVERGRAPH_STREAM", "1"))
LIMIT = "6GB"
SIZES = (1_000_000, 3_000_000, 10_000_000)
PLAN = {"times": 12, "classes": 16, "new_classes": 4, "words": 20_000, "words_per_vertex": 10, "seed": 1}
PLAN |= {"homophily": 0.6, "text_noise": 0.8}
FIGURE = Path(__file__).parents[1] / "docs" / "assets" / "stream_scale"


@dataclass(frozen=True)
class Task:
    """What one training was like."""

    edges: int
    whole: bool
    seconds: float
    wall: float
    per_epoch: int
    steps: int
    contents: float
    from_disk: int
    accuracy: float


def write(folder: str, vertices: int, degree: float) -> None:
    """Write a graph."""
    from evergraph.datasets.synthetic import synthetic

    synthetic(vertices=vertices, degree=degree, **PLAN).save(folder)  # type: ignore[arg-type]


def train(folder: str, model: str, sampled: bool) -> Task:
    """Train and decide the last task, in mini-batches or as a whole."""
    import torch

    from evergraph.detect import Softmax
    from evergraph.graph.evolving import EvolvingGraph
    from evergraph.learning.learner import LifelongLearner
    from evergraph.learning.memory_limit import Plan, parse_size
    from evergraph.learning.minibatch import WindowSource
    from evergraph.learning.task import tasks
    from evergraph.names import build_model
    from evergraph.nn import Batch

    torch.set_num_threads(1)
    contents: list[int] = []

    class Learner(LifelongLearner):
        """Measures the training alone."""

        def _trained(self, *arguments: Any) -> Any:
            self.batch = arguments[3]
            self.seconds, self.wall = -time.process_time(), -time.perf_counter()
            found = super()._trained(*arguments)
            self.seconds += time.process_time()
            self.wall += time.perf_counter()
            return found

        def _plan(self, source: WindowSource) -> Plan:
            """Take mini-batches also where the whole window would fit, so that sizes can be compared."""
            limit, classes = parse_size(LIMIT) if sampled else None, len(source.reader.classes)
            return Plan.of(limit, self._model(), source.reader, source.edges, classes, sampled=sampled)

    make = WindowSource.batch

    def counted(self: WindowSource, *arguments: Any) -> Batch:
        batch = make(self, *arguments)
        stored = getattr(batch.x, "sparse", batch.x)
        contents.append(sum(8 * len(part.indices) + 8 * len(part.indptr) for part in (stored.pattern, batch.graph)))
        return batch

    WindowSource.batch = counted  # type: ignore[method-assign]
    graph = EvolvingGraph.open(folder)
    (task,) = tasks(graph, "full", first=graph.last_time)
    learner = Learner(build_model(model), Softmax(), memory_limit=LIMIT if sampled else None)
    before = _read_from_disk()
    learner.adapt(task)
    decisions, truth = learner.predict(task), task.truth
    known = np.array([name is not None for name in truth])
    whole = isinstance(learner.batch, Batch)
    per_epoch = 1 if whole else learner.batch.per_epoch
    return Task(
        graph.n_edges,
        whole,
        learner.seconds,
        learner.wall,
        per_epoch,
        len(learner.losses_),
        float(np.mean(contents)) * per_epoch if contents else 0.0,
        _read_from_disk() - before,
        float((decisions.best[known] == truth[known]).mean()),
    )


def _read_from_disk() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def run() -> list[tuple[str, ...]]:
    """Measure each graph in a process of its own."""
    rows, found = [], {}
    cases = [(SIZES[0], 10.0, "sage", False), *((size, 10.0, "sage", True) for size in SIZES)]
    cases.append((4_000_000, 32.0, "gat", True))
    with tempfile.TemporaryDirectory() as folder:
        for size, degree, model, sampled in cases:
            vertices, path = int(size * SCALE), f"{folder}/{size}-{degree}"
            if not Path(path).exists():
                measure(write, path, vertices, degree, repeat=1, warm=False)
            measured = measure(train, path, model, sampled, repeat=1, warm=False)
            rows.append(_row(model, vertices, measured))
            print(rows[-1], flush=True)
            if sampled and model == "sage":
                found[vertices] = measured
    if SCALE == 1:
        draw(found)
    return rows


def _row(model: str, vertices: int, measured: Measured) -> tuple[str, ...]:
    task: Task = measured.result
    return (
        model,
        f"{vertices:,}",
        f"{task.edges:,}",
        "none" if task.whole else LIMIT,
        f"{task.steps:,} {'steps of full batch' if task.whole else 'mini-batches'}",
        f"{measured.peak_mb:,.0f} MB",
        f"{task.wall:,.0f} s",
        f"{task.wall / task.steps * task.per_epoch:,.1f} s ({task.seconds / task.steps * task.per_epoch:,.1f} s)",
        f"{task.contents / 1e6:,.0f} MB ({task.from_disk / 1e6:,.0f} MB)",
        f"{task.accuracy:.3f}",
    )


def draw(found: dict[int, Measured]) -> None:
    """Draw seconds of an epoch and peak memory against the number of vertices."""
    from evergraph.presentation.style import figure, save

    sizes = sorted(found)
    millions = [size / 1e6 for size in sizes]
    tasks = [found[size].result for size in sizes]
    seconds = [task.wall / task.steps * task.per_epoch for task in tasks]
    with figure(columns=2) as (picture, axes_of):
        for axes, values, title in zip(
            axes_of.flat,
            (seconds, [found[size].peak_mb / 1e3 for size in sizes]),
            ("seconds per epoch", "peak memory, GB"),
            strict=True,
        ):
            axes.plot(millions, values, marker="o")
            axes.set(xlabel="million vertices", title=title, xlim=(0, None), ylim=(0, None))
        axes_of.flat[0].plot(millions, [seconds[-1] / millions[-1] * size for size in millions], ":", color="grey")
        axes_of.flat[1].axhline(6, linestyle="--", color="grey")
        save(picture, FIGURE, "python -m benchmarks bench_stream; dotted: proportional to the vertices; dashed: limit")
