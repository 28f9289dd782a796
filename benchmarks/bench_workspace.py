"""Time of add, predict, label and update for a slice of 1,000 vertices on a workspace of dblp-hard."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from benchmarks.measure import DATA, measure

SLICE, HISTORY, RUNS = 1000, 3, 5

MODULES = (
    "nn.sage",
    "detect.doc",
    "learning.checkpoint",
    "learning.learner",
    "workspace.labels",
    "workspace.predict",
    "workspace.scores",
    "workspace.slices",
    "workspace.update",
)

Timed = tuple[float, float]


def prepare(data: Path, out: Path) -> None:
    """Create a workspace without the newest vertices, and files with these vertices, their edges and labels."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from evergraph.datasets.tables import read_tables, to_tables
    from evergraph.graph.ids import take, to_arrow
    from evergraph.workspace import Workspace

    graph = read_tables(data / "nodes.csv.gz", data / "edges.csv.gz")
    start = len(graph) - SLICE
    vertices = to_tables(graph, graph.last_time)[0][-SLICE:]
    source, target, _ = graph.links.ends()
    came = np.flatnonzero(np.maximum(source, target) >= start)
    edges = {"source": source[came], "target": target[came]}
    pq.write_table(vertices.drop_columns("label"), out / "vertices.parquet")
    pq.write_table(vertices.select(["id", "label"]), out / "labels.parquet")
    pq.write_table(
        pa.table({end: to_arrow(take(graph.ids, rows)) for end, rows in edges.items()}), out / "edges.parquet"
    )
    Workspace.create(out / "workspace", graph.remove(graph.ids[start:]), history=HISTORY)


def import_all() -> None:
    """Import what the commands import on use, so that only their work is measured."""
    for name in ("pandas", "pyarrow.dataset", "torch", *(f"evergraph.{module}" for module in MODULES)):
        import_module(name)


def deciding(out: Path) -> tuple[Timed, Timed]:
    """Add and predict on a copy of the workspace; return wall and CPU seconds of each, after imports."""
    from evergraph.workspace import Workspace

    import_all()
    shutil.rmtree(out / "copy", ignore_errors=True)
    shutil.copytree(out / "workspace", out / "copy")
    workspace = Workspace(out / "copy")
    added = timed(lambda: workspace.add(out / "vertices.parquet", out / "edges.parquet"))
    return added, timed(workspace.predict)


def learning(out: Path) -> tuple[Timed, Timed]:
    """Label and update; return wall and CPU seconds of each."""
    from evergraph.workspace import Workspace

    import_all()
    workspace = Workspace(out / "copy")
    labelled = timed(lambda: workspace.label(out / "labels.parquet"))
    updated = timed(lambda: workspace.update("warm"))
    assert workspace.scores()[-1].labelled == SLICE
    return labelled, updated


def timed(function: Callable[[], object]) -> Timed:
    wall, processor = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - processor


def run() -> list[tuple[str, str, str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        measure(prepare, DATA / "dblp-hard", out, repeat=1, warm=False)
        decided = [measure(deciding, out, repeat=1, warm=False).result for _ in range(RUNS)]
        labelled, updated = measure(learning, out, repeat=1, warm=False).result
    added, predicted = (_median([pair[place] for pair in decided]) for place in (0, 1))
    both = _median([(one[0] + other[0], one[1] + other[1]) for one, other in decided])
    share = f"{both[0] / updated[0]:.0%} of the time of an update"
    return [
        _row("add", added, ""),
        _row("predict", predicted, ""),
        _row("both", both, f"under 3 s; {share}"),
        _row("label, with the scores of what was decided", labelled, ""),
        _row("update, warm, 200 steps", updated, ""),
    ]


def _median(found: list[Timed]) -> Timed:
    wall, processor = (statistics.median(times) for times in zip(*found, strict=True))
    return wall, processor


def _row(what: str, measured: Timed, target: str) -> tuple[str, str, str, str]:
    return what, f"{measured[0]:.2f} s", f"{measured[1]:.2f} s", target


TITLE = f"A slice of {SLICE:,} vertices at a workspace of dblp-hard"
COLUMNS = ("command", "time", "of the processor", "target")
NOTE = (
    f"GraphSAGE and gDOC with a history of {HISTORY} years; the slice is the youngest {SLICE:,} of 71,439 vertices, "
    "from Parquet files. Each time in a fresh process, after imports, with all it does only once (loading compiled "
    f"loops), and with fsync; add and predict: median of {RUNS}."
)

if __name__ == "__main__":
    for line in [COLUMNS, *run()]:
        print(" | ".join(line))
