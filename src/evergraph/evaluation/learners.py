"""Compare learners on graphs: accuracy by age of the class, detection of unseen classes, and what an update costs.

::

    COMPARED/
      learners.jsonl     one line per graph, learner and seed, written when it is done

A learner that has a line with the same graph, configuration, seed and numerics version is not trained again, so a
comparison that was stopped continues. Tables and figures are in `evergraph.report.learners`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evergraph import __version__
from evergraph.errors import EvergraphError, InputError
from evergraph.evaluation.class_age import accuracy_by_age
from evergraph.evaluation.compared import (
    OnCompared,
    SideBySide,
    check_sees,
    graphs_by_name,
    line_key,
    read_lines,
    run_jobs,
    store_lines,
)
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.learner_specs import LearnerSpec
from evergraph.evaluation.metrics import evaluate, forward_transfer, or_none
from evergraph.evaluation.results import NUMERICS_VERSION, Results
from evergraph.evaluation.trials import check_folder
from evergraph.evaluation.update_cost import Meter, bytes_kept, warm_up
from evergraph.evaluation.workers import RayEngine, check_jobs, graph_of, name_of, report, threads_each
from evergraph.storage.decoding import parse_json

__all__ = ["LEARNER_METRICS", "LearnerComparison", "LearnerResult", "compare_learners", "stored_learners"]

RESULTS = "learners.jsonl"

LEARNER_METRICS: dict[str, str] = {
    "accuracy": "accuracy on all labelled test vertices, so on the same vertices for all learners; mean over tasks",
    "id_accuracy": "accuracy on vertices of classes that the learner knows; mean over tasks",
    "accuracy_new": "accuracy on classes whose first label is at most 2 periods old; mean over tasks",
    "accuracy_middle": "accuracy on classes whose first label is 3 to 5 periods old; mean over tasks",
    "accuracy_old": "accuracy on classes whose first label is more than 5 periods old; mean over tasks",
    "forgetting": "accuracy on classes without a label in the 2 newest periods: low is forgotten; mean over tasks",
    "forward_transfer": "accuracy minus that of the same learner with cold restarts; mean from the second task on",
    "macro_f1": "macro-F1 of the most likely known class; mean over tasks",
    "mcc": "MCC of flagged against unseen vertices, all tasks together",
    "seconds": "seconds of an update; mean over tasks",
    "seconds_total": "seconds of all updates",
    "cpu_seconds": "seconds of the CPU of an update; mean over tasks",
    "cpu_seconds_total": "seconds of the CPU of all updates",
    "peak_memory": "bytes by which an update raises the memory of the process; the most of all tasks",
    "bytes_kept": "bytes to keep to continue after the last task: the saved learner, features and edges",
}
"""All metrics of a comparison of learners and their meanings."""

_IDENTITY = ("fingerprint", "seed", "configuration", "numerics_version")
_COSTS = ("seconds", "cpu_seconds", "peak_memory", "bytes_kept")
_OF_TASKS = tuple(name for name in LEARNER_METRICS if name.removesuffix("_total") not in (*_COSTS, "forward_transfer"))


@dataclass(frozen=True)
class LearnerResult:
    """Result of one learner on one graph with one seed.

    ``metrics`` has all `LEARNER_METRICS`, NaN where undefined. ``tasks`` has for each task its time, all of
    `TaskScores`, what `accuracy_by_age` returns, and the cost of the update. ``about`` has fingerprint, configuration
    and versions.
    """

    graph: str
    learner: str
    seed: int
    metrics: Mapping[str, float]
    tasks: tuple[Mapping[str, Any], ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return a dict for JSON, with None for NaN; forward transfer is not stored, as it needs another learner."""
        figures = {name: or_none(value) for name, value in self.metrics.items() if name != "forward_transfer"}
        identity = {"graph": self.graph, "learner": self.learner, "seed": self.seed}
        return {**identity, **self.about, "figures": figures, "tasks": [dict(task) for task in self.tasks]}


@dataclass(frozen=True)
class LearnerComparison(SideBySide):
    """Results of a comparison of learners.

    ``graphs`` has the paths of the graphs by name, ``configurations`` the settings by graph and learner, and ``errors``
    the messages of trainings that failed. ``base`` has what the learners do not set, such as the detector.
    """

    graphs: Mapping[str, str]
    learners: tuple[LearnerSpec, ...]
    seeds: tuple[int, ...]
    base: Configuration
    configurations: Mapping[tuple[str, str], Configuration]
    outcomes: tuple[LearnerResult, ...]
    errors: tuple[str, ...] = ()

    shown: ClassVar[Mapping[str, str]] = LEARNER_METRICS

    def of(self, graph: str, learner: str) -> list[LearnerResult]:
        """Return the results of a learner on a graph in the order of the seeds."""
        found = [one for one in self.outcomes if one.graph == graph and one.learner == learner]
        return sorted(found, key=lambda one: self.seeds.index(one.seed))

    def as_dict(self) -> dict[str, Any]:
        """Return everything as a dict for JSON."""
        results = []
        for graph, path in self.graphs.items():
            axis = graph_of(path)[0].axis
            for one in self.learners:
                if found := self.summary(graph, one.name):
                    settings = self.configurations[graph, one.name].described(axis)
                    about = {"graph": graph, "learner": one.name, "parts": dict(one.parts)}
                    tasks = self.results(graph, one.name).task_means()
                    results.append({**about, "configuration": settings, **found, "tasks": tasks})
        means = [{"learner": one.name, **found} for one in self.learners if (found := self.over_graphs(one.name))]
        return {
            "graphs": dict(self.graphs),
            "learners": {one.name: dict(one.parts) for one in self.learners},
            "seeds": list(self.seeds),
            "figures": dict(LEARNER_METRICS),
            "results": results,
            "mean_over_graphs": means,
            "errors": list(self.errors),
            "evergraph": __version__,
            "numerics_version": NUMERICS_VERSION,
        }


# --- comparing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One learner on one graph with one seed."""

    path: str
    learner: str
    configuration: Configuration
    seed: int

    @property
    def graph(self) -> str:
        return name_of(self.path)

    def __str__(self) -> str:
        return f"{self.graph}, {self.learner}, seed {self.seed}"

    def about(self) -> dict[str, Any]:
        """Return what identifies the result beside the seed, and the version."""
        graph, fingerprint = graph_of(self.path)
        return {
            "fingerprint": fingerprint,
            "configuration": self.configuration.described(graph.axis),
            "numerics_version": NUMERICS_VERSION,
            "evergraph": __version__,
        }


def compare_learners(
    graphs: Sequence[str],
    learners: Sequence[LearnerSpec],
    base: Configuration,
    seeds: Sequence[int] = (0,),
    *,
    out: str | Path,
    jobs: int = 1,
    engine: RayEngine | None = None,
    on_done: OnCompared | None = None,
) -> LearnerComparison:
    """Compare learners on graphs, once per seed.

    A learner whose result is stored in ``out`` is not trained again. Several commands may share the folder.

    Parameters
    ----------
    graphs
        Graph folders, or names of built-in graphs.
    learners
        The learners.
    base
        What the learners do not set, such as the detector.
    seeds
        Seeds of the learners and, with a label rate below 1, of the released labels.
    out
        Folder for the results.
    jobs
        Number of processes, with one thread each. Seconds are comparable only if each has a core of its own.
    engine
        Run on a Ray cluster instead.
    on_done
        Called with the progress, see `OnCompared`.
    """
    out = Path(out)
    check_jobs(jobs)
    check_folder(out)
    plan = _Plan.of(graphs, learners, base, seeds)
    store = _Store(out / RESULTS)
    outcomes, errors = run_jobs(
        plan.jobs, _work, store.add, out=out, jobs=jobs, engine=engine, on_done=on_done, stored=store.find
    )
    return plan.compared(outcomes, errors)


def stored_learners(
    graphs: Sequence[str],
    learners: Sequence[LearnerSpec],
    base: Configuration,
    seeds: Sequence[int] = (0,),
    *,
    out: str | Path,
) -> LearnerComparison:
    """Return the results that are stored; arguments as for `compare_learners`, which has trained them."""
    plan, store = _Plan.of(graphs, learners, base, seeds), _Store(Path(out) / RESULTS)
    return plan.compared([found for job in plan.jobs if (found := store.find(job)) is not None])


@dataclass(frozen=True)
class _Plan:
    """All jobs of a comparison, and what the comparison says about graphs and learners."""

    graphs: Mapping[str, str]
    learners: tuple[LearnerSpec, ...]
    seeds: tuple[int, ...]
    base: Configuration
    configurations: Mapping[tuple[str, str], Configuration]

    @classmethod
    def of(
        cls, graphs: Sequence[str], learners: Sequence[LearnerSpec], base: Configuration, seeds: Sequence[int]
    ) -> _Plan:
        """Check everything that can be checked before anything is trained or written."""
        if not seeds or not learners or not graphs:
            raise InputError("there is nothing to compare", fix="pass at least one graph, one learner and one seed")
        named = graphs_by_name(graphs)
        configurations = dict[tuple[str, str], Configuration]()
        for name, path in named.items():
            graph = graph_of(path)[0]
            for one in learners:
                configurations[name, one.name] = found = one.configuration(base)
                next(found.tasks(graph))
        return cls(named, tuple(learners), tuple(dict.fromkeys(seeds)), base, configurations)

    @property
    def jobs(self) -> list[Job]:
        """The jobs, all learners with the first seed before the second."""
        return [
            Job(path, one.name, self.configurations[name, one.name], seed)
            for name, path in self.graphs.items()
            for seed in self.seeds
            for one in self.learners
        ]

    def compared(self, outcomes: Sequence[LearnerResult], errors: Sequence[str] = ()) -> LearnerComparison:
        """Return the comparison with these results."""
        found = _with_transfer(outcomes, self.configurations)
        return LearnerComparison(**{**vars(self), "outcomes": tuple(found), "errors": tuple(errors)})


def _with_transfer(
    outcomes: Sequence[LearnerResult], configurations: Mapping[tuple[str, str], Configuration]
) -> list[LearnerResult]:
    """Return results with their forward transfer, where the same learner with cold restarts is among them."""
    by_place = {(one.graph, one.learner, one.seed): one for one in outcomes}
    found = []
    for one in outcomes:
        own, value = configurations[one.graph, one.learner], math.nan
        wanted = replace(own, restart="cold")
        for (graph, learner), other in configurations.items():
            cold = by_place.get((graph, learner, one.seed))
            if cold is not None and graph == one.graph and other == wanted != own:
                value = forward_transfer(*(Results.of({0: result.tasks}).by_task("accuracy") for result in (one, cold)))
        found.append(replace(one, metrics={**one.metrics, "forward_transfer": value}))
    return found


def _work(job: Job, number: int, folder: Path | None) -> LearnerResult | str:
    """Run a job; returns an error as its message, which can be pickled."""
    check_sees(folder)

    def on_task(task: int, tasks: int) -> None:
        report(number, 1, tasks)
        report(number, 0, task)

    try:
        with threads_each(1):
            return result_of(job, on_task)
    except EvergraphError as error:
        return str(error)
    except Exception as error:  # of a part of a learner from another package
        return f"{type(error).__name__}: {error}"


def result_of(job: Job, on_task: Callable[[int, int], object] = lambda *_: None) -> LearnerResult:
    """Train and evaluate a learner on all tasks; ``on_task`` is called with the tasks done and their number."""
    graph, _ = graph_of(job.path)
    plan = tuple(job.configuration.tasks(graph))
    warm_up(job.configuration, (replace(task, seed=job.seed) for task in plan))
    meter = Meter.of(graph)
    learner = job.configuration.learner(job.seed)
    rows: list[dict[str, Any]] = []
    for number, planned in enumerate(plan, start=1):
        task = replace(planned, seed=job.seed)  # a new object: it caches its windows, which would otherwise accumulate
        with meter.measured():
            learner.adapt(task)
        decisions = learner.predict(task)
        rows.append(
            {
                "time": graph.axis.value(task.time),
                "known_classes": len(learner.classes_),
                "train_vertices": int((task.targets >= 0).sum()) + len(learner.kept_.rows(task)),
                **evaluate(task, decisions).as_dict(),
                **{name: or_none(value) for name, value in accuracy_by_age(task, decisions).items()},
                "seconds": meter.seconds,
                "cpu_seconds": meter.cpu_seconds,
                "peak_memory": or_none(meter.peak_memory),
                "bytes_kept": bytes_kept(learner, task),
            }
        )
        on_task(number, len(plan))
    return LearnerResult(job.graph, job.learner, job.seed, _metrics(rows), tuple(rows), job.about())


def _metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return all metrics that follow from the rows of the tasks; forward transfer is NaN."""
    results = Results.of({0: rows})
    found = {name: float(results.per_seed(name)[0]) for name in _OF_TASKS}
    costs = {name: results.by_task(name)[0] for name in _COSTS}
    for name in ("seconds", "cpu_seconds"):
        found |= {name: float(costs[name].mean()), f"{name}_total": float(costs[name].sum())}
    found["peak_memory"] = float(np.max(costs["peak_memory"]))
    found["bytes_kept"] = float(costs["bytes_kept"][-1])
    return {name: found.get(name, math.nan) for name in LEARNER_METRICS}


# --- results on disk -------------------------------------------------------------------------------------------------


class _Store:
    """The lines of results in a file, which other commands may add to at the same time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[Any, dict[str, bytes]] = (None, {})

    def add(self, result: LearnerResult) -> None:
        """Add a line."""
        store_lines(self.path, [result.as_dict()], _key, cut=True)

    def find(self, job: Job) -> LearnerResult | None:
        """Return the result of a job that is done."""
        key = _key({**job.about(), "seed": job.seed})
        line = self._lines().get(key)
        if line is None:
            return None
        try:
            row = parse_json(line)
            about = {name: row[name] for name in job.about()}
            metrics = _metrics(row["tasks"])
        except (ValueError, LookupError, TypeError, AttributeError, InputError):
            return None  # the line was edited
        return LearnerResult(job.graph, job.learner, job.seed, metrics, tuple(row["tasks"]), about)

    def _lines(self) -> dict[str, bytes]:
        """Return the lines by their keys; they are read again if the file has changed."""
        stat = self.path.stat() if self.path.exists() else None
        state = None if stat is None else (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if state != self._read[0]:
            self._read = state, read_lines(self.path, _key, cut=True)
        return self._read[1]


def _key(line: Mapping[str, Any]) -> str:
    """Return what identifies a line. Settings that are not set do not count: an earlier version may lack them."""
    given = {name: value for name, value in line["configuration"].items() if value is not None}
    return line_key({**line, "configuration": given}, _IDENTITY)
