"""What comparisons share: names of graphs, jobs with their progress, lines of results, means over seeds and graphs."""

from __future__ import annotations

import json
import logging
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar
from uuid import uuid4

import numpy as np

from evergraph.errors import InputError
from evergraph.evaluation.configuration import complete_settings
from evergraph.evaluation.metrics import over_seeds
from evergraph.evaluation.results import Results, Summary, summary_of
from evergraph.evaluation.workers import RayEngine, completed, graph_of, name_of, start_workers
from evergraph.storage.decoding import parse_json
from evergraph.storage.files import disk_errors, only_one, write_atomic

__all__ = [
    "CompareState",
    "GraphJob",
    "OnCompared",
    "SideBySide",
    "check_sees",
    "graphs_by_name",
    "line_key",
    "read_lines",
    "run_jobs",
    "store_lines",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CompareState:
    """Progress of a comparison: trainings (without auxiliary models) in total and done, errors, and the current one."""

    total: int
    done: int = 0
    errors: tuple[str, ...] = ()
    doing: str = ""


OnCompared = Callable[[CompareState], object]
"""Called at the start, after each training and, with one process, after each task."""


class GraphJob(Protocol):
    """A picklable piece of work on one graph; as text it says what it is."""

    @property
    def path(self) -> str:
        """Path or name of the graph."""


_Job = TypeVar("_Job", bound=GraphJob)
_Found = TypeVar("_Found")


def graphs_by_name(paths: Sequence[str]) -> dict[str, str]:
    """Return the paths of graphs by their names; two different graphs of one name are refused."""
    named: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        before = named.setdefault(name_of(path), path)
        if graph_of(before)[1] != graph_of(path)[1]:
            raise InputError(f"two different graphs are named {name_of(path)}", fix="rename the folder of one of them")
    return named


# --- jobs ------------------------------------------------------------------------------------------------------------


def run_jobs(
    todo: Sequence[_Job],
    work: Callable[[_Job, int, Path | None], _Found | str],
    store: Callable[[_Found], object],
    *,
    out: Path,
    jobs: int,
    engine: RayEngine | None,
    on_done: OnCompared | None,
    stored: Callable[[_Job], _Found | None] = lambda _: None,
) -> tuple[list[_Found], list[str]]:
    """Run all jobs and store the result of each when it finishes; return results and errors.

    Parameters
    ----------
    todo
        The jobs.
    work
        A function of a module that runs a job in a worker. It gets the job's number and the folder that it must see
        (`check_sees`), and returns an error as its message, which can be pickled. It may report the number of the task
        that is done, and that of all tasks, as numbers 0 and 1 of the job.
    store
        Stores a result.
    out, jobs, engine, on_done
        As in `compare`.
    stored
        Returns a result that is there already, for which no job is run. It is asked when it is the job's turn, so that
        several commands can share the work.
    """
    tell = on_done or (lambda _: None)
    found: list[_Found] = []
    errors: list[str] = []
    done = current = 0
    tell(CompareState(len(todo)))

    def waiting() -> Iterator[int]:
        nonlocal done
        for number, job in enumerate(todo):
            if (there := stored(job)) is None:
                yield number
                continue
            found.append(there)
            done += 1
            tell(CompareState(len(todo), done, tuple(errors), str(job)))

    def on_report() -> None:
        """Report which task of the current job is done; only if the jobs run in this process."""
        task, tasks = workers.numbers[current]
        if task == task:
            tell(CompareState(len(todo), done, tuple(errors), f"{todo[current]}, task {task:.0f} of {tasks:.0f}"))

    def submit(number: int) -> Future[_Found | str]:
        nonlocal current
        current = number
        return workers.submit(work, todo[number], number, folder)

    paths = [job.path for job in todo]
    with (
        _shared_folder(out, engine) as folder,
        start_workers(engine, jobs, items=len(todo), columns=2, graphs=paths, on_report=on_report) as workers,
        closing(completed(waiting(), submit, workers)) as outcomes,
    ):
        for number, result in outcomes:
            if isinstance(result, str):
                errors.append(f"{todo[number]}: {result}")
                log.warning("%s", errors[-1])
            else:
                store(result)
                found.append(result)
            done += 1
            tell(CompareState(len(todo), done, tuple(errors), str(todo[number])))
    return found, errors


@contextmanager
def _shared_folder(out: Path, engine: RayEngine | None) -> Iterator[Path | None]:
    """Return a file in the folder that workers on other machines must see; None if there are none."""
    if engine is None:
        yield None
        return
    path = out / f".command-{uuid4().hex}"
    with disk_errors(path, "the folder could not be written"):
        out.mkdir(parents=True, exist_ok=True)
        path.touch()
    try:
        yield path.absolute()
    finally:
        path.unlink(missing_ok=True)


def check_sees(folder: Path | None) -> None:
    """Refuse, in a worker, a machine that does not see the folder of the results."""
    if folder is not None and not folder.exists():
        raise InputError(
            f"the machine {platform.node()} does not see this folder",
            file=folder.parent,
            fix="choose a folder (--out) that all machines share under the same path",
        )


# --- lines of results ------------------------------------------------------------------------------------------------


def store_lines(
    path: Path, lines: Iterable[Mapping[str, Any]], key: Callable[[Mapping[str, Any]], str], *, cut: bool = False
) -> None:
    """Add lines to the results of earlier commands; lines with the same key are replaced.

    ``cut`` is as in `read_lines`. Several commands may store in one file.
    """
    with disk_errors(path, "the results could not be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with only_one(path.with_name(f".{path.name}.lock")):
            kept = read_lines(path, key, cut=cut)
            for line in lines:
                kept[key(line)] = json.dumps(line, ensure_ascii=False, allow_nan=False).encode()
            write_atomic(path, b"".join(line + b"\n" for line in kept.values()))


def read_lines(path: Path, key: Callable[[Mapping[str, Any]], str], *, cut: bool = False) -> dict[str, bytes]:
    """Return the lines of a file by their keys; other lines are kept as they are.

    With ``cut``, a last line that is incomplete is left out.
    """
    found = {}
    content = path.read_bytes() if path.exists() else b""
    lines = content.splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            name = key(parse_json(line))
        except (ValueError, LookupError, TypeError):
            if cut and number == len(lines) and not content.endswith(b"\n"):
                log.warning("%s, line %d: the line is incomplete; it is left out.", path, number)
                continue
            log.warning("%s, line %d: this is not a result of a comparison; it is ignored.", path, number)
            name = f"line {number}"
        found[name] = line
    return found


def line_key(line: Mapping[str, Any], identity: Sequence[str]) -> str:
    """Return the key of a line: the values of the fields that identify it."""
    line = {**line, "configuration": complete_settings(line["configuration"])}
    return json.dumps([line[name] for name in identity], sort_keys=True)


# --- means -----------------------------------------------------------------------------------------------------------


class Outcome(Protocol):
    """Result of one candidate on one graph with one seed."""

    @property
    def seed(self) -> int:
        """The seed."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics of all tasks together, NaN where undefined."""

    @property
    def tasks(self) -> tuple[Mapping[str, Any], ...]:
        """The rows of the tasks."""


class SideBySide(ABC):
    """Means over the seeds and graphs of a comparison; what is compared is called by its name."""

    graphs: Mapping[str, str]
    """Paths of the graphs by name."""
    seeds: tuple[int, ...]
    shown: ClassVar[Mapping[str, str]]
    """The metrics and their meanings."""

    @abstractmethod
    def of(self, graph: str, name: str, /) -> Sequence[Outcome]:
        """Return the results on a graph in the order of the seeds."""

    def results(self, graph: str, name: str) -> Results:
        """Return the results table of what is compared on a graph."""
        found = self.of(graph, name)
        return Results.of(
            {one.seed: one.tasks for one in found},
            totals={one.seed: one.metrics for one in found},
            about={"graph": graph, "name": name},
        )

    def summary(self, graph: str, name: str) -> dict[str, Summary]:
        """Summarise each metric over the seeds; empty without results."""
        results = self.results(graph, name)
        return results.aggregate(self.shown) if results.seeds else {}

    def over_graphs(self, name: str) -> dict[str, Summary]:
        """Average each metric over the graphs, then over the seeds; empty unless all results are there.

        Graphs where a metric is undefined are left out of its mean.
        """
        found = [self.results(graph, name) for graph in self.graphs]
        if any(len(results.seeds) < len(self.seeds) for results in found):
            return {}
        per_seed = {metric: np.array([results.per_seed(metric) for results in found]).T for metric in self.shown}
        return {metric: summary_of([over_seeds(row).mean for row in rows]) for metric, rows in per_seed.items()}
