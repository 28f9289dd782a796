"""Check that a workspace makes the same decisions as a run, over the years of a graph.

Usage: ``python scripts/simulate_workspace.py metamath --first 2017 --steps 10``. Each year the slice
arrives without labels, the labels of the year before arrive, the model is updated and predicts. A run with the same
settings and ``--mode inductive`` must make the same decisions. Exits with 1 if any decision differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from evergraph import EvolvingGraph
from evergraph.datasets import load, read_tables
from evergraph.datasets.tables import Columns, to_tables
from evergraph.evaluation.configuration import Configuration
from evergraph.names import build_detector, build_model
from evergraph.workspace import Workspace


@dataclass(frozen=True)
class Compared:
    """Comparison for one slice: numbers of vertices and of different decisions, largest score difference, seconds."""

    time: int | str
    vertices: int
    different: int
    apart: float
    seconds: float
    seconds_of_run: float


def simulate(
    graph: EvolvingGraph, configuration: Configuration, folder: Path, *, seed: int = 0, at_once: bool = False
) -> Iterator[Compared]:
    """Run a workspace through the tasks of a run.

    Parameters
    ----------
    graph
        The graph with all labels; every year needs vertices and labels.
    configuration
        Configuration of the run; inductive.
    folder
        A new folder for the workspace and its files.
    seed
        Seed of the run.
    at_once
        Whether labels arrive before the next slice instead of after it.
    """
    files = _Files(graph, folder)
    # From the same tables: words are numbered as they come, and the last bit of a sum over them depends on that.
    plan = list(configuration.tasks(files.graph_up_to(graph.last_time)))
    workspace = Workspace.create(
        folder / "workspace",
        files.graph_up_to(plan[0].time - 1),
        model=configuration.model,
        detector=configuration.detector,
        history=configuration.history,
        steps=configuration.steps,
        lr=configuration.lr,
        text=configuration.text,
        seed=seed,
        columns=files.columns,
    )
    learner = configuration.learner(seed)
    late = None
    for task in plan:
        start = time.perf_counter()
        expected = learner.adapt(task).predict(task)
        between = time.perf_counter()
        workspace.add(*files.slice_of(task.time))
        if late is not None and not at_once:
            _learn(workspace, late)
        decided = workspace.predict()
        seconds = time.perf_counter() - between
        late = files.labels_of(task.time)
        if at_once:
            _learn(workspace, late)
        found = dict(zip(map(str, decided.column("id").to_pylist()), decided.to_pylist(), strict=True))
        wanted = dict(zip(map(str, expected.ids), zip(expected.classes, expected.score, strict=True), strict=True))
        both = [(found[identity], *wanted[identity]) for identity in found.keys() & wanted.keys()]
        yield Compared(
            graph.axis.value(task.time),
            len(wanted),
            sum(row["class"] != name for row, name, _ in both) + len(found.keys() ^ wanted.keys()),
            max((abs(row["score"] - float(score)) for row, _, score in both), default=0.0),
            seconds,
            between - start,
        )


def _learn(workspace: Workspace, labels: Path) -> None:
    workspace.label(labels)
    workspace.update("warm")


class _Files:
    """A graph as a sequence of files."""

    def __init__(self, graph: EvolvingGraph, folder: Path) -> None:
        self.graph, self.folder = graph, folder
        names = to_tables(graph, last=graph.first_time)[0].column_names
        categories = graph.features.arguments(None, None, None, None)["categories"]
        numbers = [name for name in names if name not in ("id", "time", "label", "text", *categories)]
        self.columns = Columns(numbers=tuple(numbers), categories=tuple(categories))
        folder.mkdir(parents=True, exist_ok=True)

    def graph_up_to(self, moment: int) -> EvolvingGraph:
        """Return the graph up to a period, as it is imported."""
        axis = self.graph.axis
        every = axis.step if axis.unit in ("integer", "year") else axis.unit
        files = self._write("graph", to_tables(self.graph, last=moment))
        named = {"numbers": self.columns.numbers, "categories": self.columns.categories}
        return read_tables(*files, **named, every=None if every == 1 else every)

    def slice_of(self, moment: int) -> tuple[Path, Path]:
        """Return the files of a slice: vertices without labels, and their edges."""
        vertices, edges = self._write("slice", to_tables(self.graph, moment, moment, labels=False))
        return vertices, edges

    def labels_of(self, moment: int) -> Path:
        """Return the file of a slice's labels."""
        (path,) = self._write("labels", to_tables(self.graph, moment, moment)[:1])
        return path

    def _write(self, name: str, tables: tuple[Any, ...]) -> list[Path]:
        paths = [self.folder / f"{name}-{number}.parquet" for number in range(len(tables))]
        for path, table in zip(paths, tables, strict=True):
            pq.write_table(table, path)
        return paths


def main() -> int:
    """Compare all slices and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", help="a graph folder, or: metamath, synthetic")
    parser.add_argument("--history", default="auto", help="auto, full or a number of times")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--model", default="sage")
    parser.add_argument("--detector", default="gdoc")
    parser.add_argument("--first", help="time of the first task")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    configuration = Configuration(
        build_model(options.model),
        build_detector(options.detector),
        history=options.history if options.history in ("auto", "full") else int(options.history),
        steps=options.steps,
        first=options.first,
        mode="inductive",
    )
    head = ("time", "vertices", "different", "scores apart", "seconds", "of the run")
    print("".join(f"{cell:>13}" for cell in head))
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        for row in simulate(load(options.graph), configuration, Path(folder) / "simulation", seed=options.seed):
            seconds = (f"{one:.1f}" for one in (row.seconds, row.seconds_of_run))
            cells = (row.time, row.vertices, row.different, f"{row.apart:.1e}", *seconds)
            print("".join(f"{cell!s:>13}" for cell in cells), flush=True)
            different += row.different
    print(f"{different} decisions differ")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
