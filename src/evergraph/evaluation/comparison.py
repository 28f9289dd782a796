"""Compare detectors on graphs: one recorded training per loss serves any number of detectors.

::

    COMPARED/
      results.jsonl                       one line per graph, detector and seed; each command adds lines
      recordings/GRAPH/LOSS/seed-0/       recorded trainings, used again by later commands
      recordings/GRAPH/LOSS/seed-0-beside-OTHER/  an auxiliary model that reads what the model of another loss does

Tables and figures of a comparison are in `evergraph.report.comparison`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evergraph import __version__
from evergraph.detect import Detector, Softmax
from evergraph.errors import EvergraphError, InputError
from evergraph.evaluation.compared import (
    CompareState,
    OnCompared,
    SideBySide,
    check_sees,
    graphs_by_name,
    line_key,
    run_jobs,
    store_lines,
)
from evergraph.evaluation.configuration import TRAINING_SETTINGS, Configuration
from evergraph.evaluation.metrics import aupr, auroc, calibration_error, evaluate, fpr_at_95, or_none, oracle_mcc
from evergraph.evaluation.replay import OnTask, Recording, ReplayedTask, record, replay_all
from evergraph.evaluation.results import NUMERICS_VERSION, Results, summary_of
from evergraph.evaluation.workers import RayEngine, check_jobs, graph_of, name_of, report, threads_each
from evergraph.graph.evolving import EvolvingGraph
from evergraph.names import COMPARED_DETECTORS, build_detector, described, split_detectors

__all__ = [
    "METRICS",
    "Candidate",
    "CandidateResult",
    "CompareState",
    "Comparison",
    "candidate",
    "candidates",
    "compare",
]

RECORDINGS = "recordings"
RESULTS = "results.jsonl"

METRICS: dict[str, str] = {
    "mcc": "MCC of flagged against unseen vertices, all tasks together",
    "mcc_per_task": "mean over tasks",
    "open_f1": "macro-F1 of the decisions with 'unseen' as a class; mean over tasks",
    "auroc": "how well the scores separate unseen from known classes, all tasks together",
    "auroc_per_task": "mean over tasks",
    "aupr": "average precision, all tasks together",
    "aupr_per_task": "mean over tasks",
    "fpr95": "false alarms at the threshold that finds 95 % of the unseen vertices, all tasks together",
    "fpr95_per_task": "mean over tasks",
    "oracle_mcc": "MCC of the best single threshold for all tasks, chosen with the true classes",
    "oracle_mcc_per_task": "MCC of the best threshold of each task; mean over tasks",
    "false_alarm_rate": "share of the vertices of known classes that is flagged, all tasks together",
    "flagged": "share of all vertices that is flagged, all tasks together",
    "unseen": "share of all vertices that is unseen, all tasks together",
    "flagged_with_unseen": "share flagged in tasks with an unseen class; mean over tasks",
    "flagged_without_unseen": "share flagged in tasks without an unseen class; mean over tasks",
    "task_auroc": "how well the shares flagged separate tasks with an unseen class from tasks without one",
    "calibration_error": "expected calibration error of scores that are probabilities, all tasks together",
    "id_accuracy": "accuracy on vertices of known classes; mean over tasks",
    "seconds_detector": "seconds to observe, fit and decide; shared computations count for the first detector",
    "seconds_training": "seconds of training, with backtest and auxiliary model if the detector requires them",
}
"""All metrics of a comparison and their meanings."""

_IDENTITY = ("graph", "fingerprint", "detector", "settings", "seed", "configuration", "numerics_version")
# Metrics that follow from the rows of the tasks, and their names in `Results`.
_OF_TASKS = {name: name for name in ("mcc", "mcc_per_task", "open_f1", "id_accuracy", "false_alarm_rate", "flagged")}
_OF_TASKS |= {f"{name}_per_task": name for name in ("auroc", "aupr", "fpr95", "oracle_mcc")}
_OF_TASKS["unseen"] = "unseen_share"


# --- candidates ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A detector in a comparison; candidates with the same ``trained_with`` loss share a training.

    Examples
    --------
    >>> candidate("gdoc:0.5")
    Candidate(name='gdoc:0.5', detector=GDOC(threshold=0.5, alpha=None), trained_with=GDOC(threshold=0.75, alpha=None))
    >>> candidate("relative-energy/budget:50").detector.threshold
    Budget(most=50)
    """

    name: str
    detector: Detector
    trained_with: Detector = field(default_factory=Softmax)

    @property
    def settings(self) -> str:
        """The detector with all its settings."""
        return repr(getattr(self.detector, "made_of", self.detector))


def candidates(names: str = COMPARED_DETECTORS) -> tuple[Candidate, ...]:
    """Return the candidates of a comma-separated list, each once.

    Examples
    --------
    >>> [one.name for one in candidates("none, energy,none")]
    ['none', 'energy']
    """
    found = tuple(candidate(name) for name in split_detectors(names))
    if not found:
        raise InputError("there is no detector to compare", fix=f"name some, such as {COMPARED_DETECTORS}")
    return found


def candidate(name: str) -> Candidate:
    """Return the candidate for a name that `build_detector` reads."""
    detector = build_detector(name)
    is_softmax = isinstance(detector, Softmax) and type(detector).loss is Softmax.loss
    return Candidate(name, detector, Softmax() if is_softmax else type(detector)())


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CandidateResult:
    """Result of one detector on one graph with one seed.

    ``metrics`` has all `METRICS`, NaN where undefined. ``tasks`` has for each task its time, all of `TaskScores`, and
    the detector's ``seconds``. ``about`` has fingerprint, settings of the detector, configuration and versions.
    """

    graph: str
    detector: str
    seed: int
    metrics: Mapping[str, float]
    tasks: tuple[Mapping[str, Any], ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return a dict for JSON, with None for NaN."""
        return {
            "graph": self.graph,
            "detector": self.detector,
            "seed": self.seed,
            **self.about,
            "figures": {name: or_none(value) for name, value in self.metrics.items()},
            "tasks": [dict(task) for task in self.tasks],
        }


@dataclass(frozen=True)
class Comparison(SideBySide):
    """Results of a comparison.

    ``graphs`` has the paths of the graphs by name, ``errors`` the messages of trainings that failed. ``left_out`` is
    whether detectors that learn from other graphs were fitted without the graph's family (`leave_one_out`). The
    detector of the configuration is ignored.
    """

    graphs: Mapping[str, str]
    candidates: tuple[Candidate, ...]
    seeds: tuple[int, ...]
    configuration: Configuration
    outcomes: tuple[CandidateResult, ...]
    errors: tuple[str, ...] = ()
    left_out: bool = False

    shown: ClassVar[Mapping[str, str]] = METRICS

    def of(self, graph: str, detector: str) -> list[CandidateResult]:
        """Return the results of a detector on a graph in the order of the seeds."""
        found = [one for one in self.outcomes if one.graph == graph and one.detector == detector]
        return sorted(found, key=lambda one: self.seeds.index(one.seed))

    def by_task(self, graph: str, detector: str) -> list[dict[str, Any]]:
        """Return time, ``mcc``, ``flagged`` and ``unseen`` of each task; MCC is None without unseen vertices."""
        results = self.results(graph, detector)
        if not results.seeds:
            return []
        unseen = results.by_task("unseen_share")
        columns = {
            "mcc": np.where(unseen > 0, results.by_task("mcc"), np.nan),
            "flagged": results.by_task("flagged"),
            "unseen": unseen,
        }
        return [
            {"time": time, **{name: summary_of(values[:, task]) for name, values in columns.items()}}
            for task, time in enumerate(results.times)
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as a dict for JSON."""
        pairs = [(graph, one.name) for graph in self.graphs for one in self.candidates]
        return {
            "graphs": dict(self.graphs),
            "detectors": {one.name: one.settings for one in self.candidates},
            "seeds": list(self.seeds),
            "configuration": {name: described(getattr(self.configuration, name)) for name in TRAINING_SETTINGS},
            "figures": dict(METRICS),
            "results": [
                {"graph": graph, "detector": name, **found, "tasks": self.by_task(graph, name)}
                for graph, name in pairs
                if (found := self.summary(graph, name))
            ],
            "mean_over_graphs": [
                {"detector": one.name, **found} for one in self.candidates if (found := self.over_graphs(one.name))
            ],
            "errors": list(self.errors),
            "evergraph": __version__,
            "numerics_version": NUMERICS_VERSION,
        }


# --- comparing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One training and all detectors that use it."""

    path: str
    configuration: Configuration
    seed: int
    candidates: tuple[Candidate, ...]
    out: Path

    @property
    def graph(self) -> str:
        return name_of(self.path)

    @property
    def loss(self) -> str:
        return str(described(self.configuration.detector)["name"])

    @property
    def folder(self) -> Path:
        return self.out / RECORDINGS / self.graph / self.loss / f"seed-{self.seed}"

    def __str__(self) -> str:
        return f"{self.graph}, loss of {self.loss}, seed {self.seed}"


def compare(
    graphs: Sequence[str],
    candidates: Sequence[Candidate],
    configuration: Configuration,
    seeds: Sequence[int] = (0,),
    *,
    out: str | Path,
    jobs: int = 1,
    engine: RayEngine | None = None,
    on_done: OnCompared | None = None,
) -> Comparison:
    """Compare detectors on graphs, once per seed.

    Trainings are recorded in ``out``; existing recordings are used again. Results are written as they finish.

    Parameters
    ----------
    graphs
        Graph folders, or names of built-in graphs.
    candidates
        The detectors.
    configuration
        Settings of the training. Its detector is ignored.
    seeds
        Seeds of the learners and, with a label rate below 1, of the released labels.
    out
        Folder for recordings and results.
    jobs
        Number of processes, with one thread each.
    engine
        Run the trainings on a Ray cluster instead. ``out`` must then be a path that all nodes share.
    on_done
        Called with the progress, see `OnCompared`.
    """
    out, seeds = Path(out), tuple(dict.fromkeys(seeds))
    check_jobs(jobs)
    if not seeds or not candidates or not graphs:
        raise InputError("there is nothing to compare", fix="pass at least one graph, one detector and one seed")
    if out.exists() and not out.is_dir():
        raise InputError("this is a file, not a folder", file=out, fix="choose another folder")
    named = graphs_by_name(graphs)
    for path in named.values():
        next(configuration.tasks(graph_of(path)[0]))  # checks the settings before anything is written
    by_loss: dict[Detector, list[Candidate]] = {}
    for one in candidates:
        by_loss.setdefault(one.trained_with, []).append(one)
    todo = [
        Job(path, replace(configuration, detector=loss), seed, tuple(served), out if engine is None else out.absolute())
        for path in named.values()
        for seed in seeds
        for loss, served in by_loss.items()
    ]
    found, errors = run_jobs(
        todo, _work, partial(store_results, out), out=out, jobs=jobs, engine=engine, on_done=on_done
    )
    outcomes = tuple(itertools.chain.from_iterable(found))
    return Comparison(named, tuple(candidates), seeds, configuration, outcomes, tuple(errors))


def recorded_job(path: str, configuration: Configuration, seed: int, out: Path) -> Job:
    """Return the job of a training, without candidates."""
    return Job(path, configuration, seed, (), out)


def _work(job: Job, number: int, folder: Path | None) -> list[CandidateResult] | str:
    """Record a training and replay all its detectors; returns an error as its message, which can be pickled."""
    check_sees(folder)

    def on_task(task: int, tasks: int, step: int, steps: int) -> None:
        if step == steps:
            report(number, 1, tasks)
            report(number, 0, task + 1)

    try:
        return results_of(job, on_task)
    except EvergraphError as error:
        return str(error)


def results_of(job: Job, on_task: OnTask | None = None) -> list[CandidateResult]:
    graph, graph_fingerprint = graph_of(job.path)
    with threads_each(1):
        recording = record(job.configuration, graph, job.seed, job.folder, on_progress=on_task)
        auxiliaries: dict[Detector, Recording] = {}
        for auxiliary in (one.detector.requires.auxiliary for one in job.candidates):
            if auxiliary is not None and auxiliary not in auxiliaries:
                other = replace(job, configuration=replace(job.configuration, detector=auxiliary))
                trained = record(other.configuration, graph, job.seed, other.folder, on_progress=on_task)
                if not trained.reads_the_same(recording):  # by itself, it reads other inputs than the model does
                    folder = other.folder.with_name(f"{other.folder.name}-beside-{job.loss}")
                    trained = record(
                        other.configuration, graph, job.seed, folder, beside=recording, on_progress=on_task
                    )
                auxiliaries[auxiliary] = trained
        replayed = replay_all(recording, graph, [one.detector for one in job.candidates], auxiliaries)
    about = {
        "fingerprint": graph_fingerprint,
        "configuration": recording.identity["configuration"],
        "numerics_version": NUMERICS_VERSION,
        "evergraph": __version__,
    }
    found = []
    for one, decided in zip(job.candidates, replayed, strict=True):
        needed = [
            recording,
            *(trained for loss, trained in auxiliaries.items() if loss == one.detector.requires.auxiliary),
        ]
        metrics, tasks = _metrics(recording, graph, decided)
        metrics["seconds_training"] = sum(each.training_seconds(one.detector) for each in needed)
        ordered = {name: metrics[name] for name in METRICS}
        found.append(
            CandidateResult(job.graph, one.name, job.seed, ordered, tasks, {**about, "settings": one.settings})
        )
    return found


def _metrics(
    recording: Recording, graph: EvolvingGraph, decided: Sequence[ReplayedTask]
) -> tuple[dict[str, float], tuple[dict[str, Any], ...]]:
    """Return all metrics of a detector except the seconds of training, and the rows of its tasks."""
    tasks: list[dict[str, Any]] = []
    scores, unseens = [], []
    for one in decided:
        task = recording.task(graph, one.decisions.time)
        row = evaluate(task, one.decisions).as_dict()
        tasks.append({"time": graph.axis.value(task.time), **row, "seconds": one.seconds})
        truth, known = task.truth, set(one.decisions.known)
        labelled = np.array([name is not None for name in truth], bool)
        scores.append(one.decisions.score[labelled])
        unseens.append(np.array([name not in known for name in truth[labelled]], bool))
    score, unseen = np.concatenate(scores), np.concatenate(unseens)
    results = Results.of({0: tasks})
    metrics = {
        "auroc": auroc(score, unseen),
        "aupr": aupr(score, unseen),
        "fpr95": fpr_at_95(score, unseen),
        "oracle_mcc": oracle_mcc(score, unseen),
        "seconds_detector": sum(one.seconds for one in decided),
        "calibration_error": calibration_error(score, unseen),
        **_flagged_by_births(np.stack([results.by_task(name)[0] for name in ("flagged", "unseen_share")], 1)),
    }
    return metrics | {name: float(results.per_seed(column)[0]) for name, column in _OF_TASKS.items()}, tuple(tasks)


def _flagged_by_births(tasks: NDArray[np.float64]) -> dict[str, float]:
    """Compare tasks with and without an unseen class by the share that was flagged; columns: flagged and unseen."""
    flagged, births = tasks[:, 0], tasks[:, 1] > 0
    return {
        "flagged_with_unseen": float(flagged[births].mean()) if births.any() else math.nan,
        "flagged_without_unseen": float(flagged[~births].mean()) if not births.all() else math.nan,
        "task_auroc": auroc(flagged, births),
    }


def store_results(out: Path, results: Sequence[CandidateResult]) -> None:
    """Add lines to the results of earlier commands; lines of the same detectors and trainings are replaced."""
    store_lines(out / RESULTS, [one.as_dict() for one in results], partial(line_key, identity=_IDENTITY))
