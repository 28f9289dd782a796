"""Comparing detectors of unseen classes on some graphs: one training for each loss serves any number of detectors.

::

    COMPARED/
      results.jsonl                       one line for each graph, detector and seed, added to by each command
      recordings/GRAPH/LOSS/seed-0/       a recorded training, which later commands use as well
      compared.md, .tex, .csv, .json      the last comparison as a table, and all of it
      tasks-GRAPH.svg, .png               task by task
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evergraph import __version__
from evergraph.detect import Detector
from evergraph.errors import EvergraphError, InputError
from evergraph.evaluation.candidates import Candidate
from evergraph.evaluation.comparison import FIGURES, CandidateResult, Comparison
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.graphs import graph_of, name_of
from evergraph.evaluation.metrics import aupr, auroc, evaluate, fpr_at_95, oracle_mcc
from evergraph.evaluation.processes import completed, executor_for, threads_each
from evergraph.evaluation.recording import OnTask, Recording, record
from evergraph.evaluation.replay import Judged, replay_all
from evergraph.evaluation.results import NUMERICS_VERSION, Results
from evergraph.graph.evolving import EvolvingGraph
from evergraph.names import described
from evergraph.storage.files import disk_errors, only_one, write_atomic

__all__ = ["CompareState", "OnCompared", "compare"]

log = logging.getLogger(__name__)

RECORDINGS = "recordings"
RESULTS = "results.jsonl"

_IDENTITY = ("graph", "fingerprint", "detector", "settings", "seed", "configuration", "numerics_version")


@dataclass(frozen=True)
class CompareState:
    """How far a comparison is.

    Parameters
    ----------
    total, done
        Number of trainings (second models aside), and of how many all detectors are judged.
    errors
        What was wrong with those that failed.
    doing
        What was finished last, or is under way.
    """

    total: int
    done: int = 0
    errors: tuple[str, ...] = ()
    doing: str = ""


OnCompared = Callable[[CompareState], object]
"""Called at the start, after each training and, where there is but one process, after each of its tasks."""


@dataclass(frozen=True)
class _Job:
    """One training, and all detectors it is for; second models are other trainings, and perhaps recorded already."""

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
        """Where the training is recorded."""
        return self.out / RECORDINGS / self.graph / self.loss / f"seed-{self.seed}"

    @property
    def words(self) -> str:
        return f"{self.graph}, loss of {self.loss}, seed {self.seed}"


def compare(
    graphs: Sequence[str],
    candidates: Sequence[Candidate],
    configuration: Configuration,
    seeds: Sequence[int] = (0,),
    *,
    out: str | Path,
    jobs: int = 1,
    on_done: OnCompared | None = None,
) -> Comparison:
    """Compare detectors on graphs, under each seed.

    Trainings are recorded under ``out``, and those that are there are not made again. Detectors are judged anew each
    time. What is finished is on disk at once.

    Parameters
    ----------
    graphs
        Graph folders, or names of graphs that need none.
    candidates
        What to compare.
    configuration
        How to train. Its detector is ignored: each candidate has its own.
    seeds
        Of the learners and, with a label rate below 1, of the draws of labels.
    out
        Folder that keeps recordings and results.
    jobs
        Number of processes, each of one thread.
    on_done
        Called with how far it is.
    """
    out, seeds = Path(out), tuple(dict.fromkeys(seeds))
    if jobs < 1:
        raise InputError(f"jobs is {jobs}", fix="give a whole number from 1 up")
    if not seeds or not candidates or not graphs:
        raise InputError("there is nothing to compare", fix="give at least one graph, one detector and one seed")
    if out.exists() and not out.is_dir():
        raise InputError("this is a file, not a folder", file=out, fix="choose another folder")
    named = _by_name(graphs)
    for path in named.values():
        next(configuration.tasks(graph_of(path)[0]))  # which looks at the settings, before anything is written
    by_loss: dict[Detector, list[Candidate]] = {}
    for one in candidates:
        by_loss.setdefault(one.trained_with, []).append(one)
    todo = [
        _Job(path, replace(configuration, detector=loss), seed, tuple(served), out)
        for path in named.values()
        for seed in seeds
        for loss, served in by_loss.items()
    ]
    found, errors = _run_all(todo, out, jobs, on_done)
    return Comparison(named, tuple(candidates), seeds, configuration, tuple(found), tuple(errors))


def _by_name(paths: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        before = named.setdefault(name_of(path), path)
        if graph_of(before)[1] != graph_of(path)[1]:
            raise InputError(f"two different graphs are named {name_of(path)}", fix="rename the folder of one of them")
    return named


def _run_all(
    todo: Sequence[_Job], out: Path, jobs: int, on_done: OnCompared | None
) -> tuple[list[CandidateResult], list[str]]:
    """The results of all jobs, each kept as it comes, and what was wrong with the others."""
    tell = on_done or (lambda _: None)
    found: list[CandidateResult] = []
    errors: list[str] = []
    done, jobs = 0, min(jobs, len(todo))
    tell(CompareState(len(todo)))
    with executor_for(None, jobs) as pool:

        def submit(job: _Job) -> Future[list[CandidateResult] | str]:
            state = CompareState(len(todo), done, tuple(errors), job.words)
            return pool.submit(_work, job, _teller(tell, state) if jobs == 1 else None)  # others cannot be heard here

        with closing(completed(todo, submit, at_hand=jobs)) as outcomes:
            for job, judged in outcomes:
                if isinstance(judged, str):
                    errors.append(f"{job.words}: {judged}")
                    log.warning("%s", errors[-1])
                else:
                    _keep(out, judged)
                    found += judged
                done += 1
                tell(CompareState(len(todo), done, tuple(errors), job.words))
    return found, errors


def _teller(tell: OnCompared, state: CompareState) -> OnTask:
    def on_task(task: int, tasks: int, step: int, steps: int) -> None:
        if step == steps:
            tell(replace(state, doing=f"{state.doing}, task {task + 1} of {tasks}"))

    return on_task


def _work(job: _Job, on_task: OnTask | None = None) -> list[CandidateResult] | str:
    """Record a training, unless it is there, and judge all detectors it is for; or what went wrong, in words."""
    try:
        return _results(job, on_task)
    except EvergraphError as error:  # which loses its parts on the way between processes
        return str(error)


def _results(job: _Job, on_task: OnTask | None) -> list[CandidateResult]:
    graph, print_ = graph_of(job.path)
    with threads_each(1):
        recording = record(job.configuration, graph, job.seed, job.folder, on_progress=on_task)
        seconds: dict[Detector, Recording] = {}
        for second in (one.detector.requires.auxiliary for one in job.candidates):
            if second is None or second in seconds:
                continue
            beside = replace(job, configuration=replace(job.configuration, detector=second))
            seconds[second] = record(beside.configuration, graph, job.seed, beside.folder, on_progress=on_task)
        replayed = replay_all(recording, graph, [one.detector for one in job.candidates], seconds)
    found = []
    for one, judged in zip(job.candidates, replayed, strict=True):
        auxiliary = one.detector.requires.auxiliary
        beside_it = [] if auxiliary is None else [seconds[auxiliary]]
        trained = sum(each.training_seconds(one.detector) for each in (recording, *beside_it))
        figures, tasks = _figures(recording, graph, judged)
        about = {
            "fingerprint": print_,
            "settings": one.settings,
            "configuration": recording.identity["configuration"],
            "numerics_version": NUMERICS_VERSION,
            "evergraph": __version__,
        }
        figures = {name: trained if name == "seconds_training" else figures[name] for name in FIGURES}
        found.append(CandidateResult(job.graph, one.name, job.seed, figures, tasks, about))
    return found


def _figures(
    recording: Recording, graph: EvolvingGraph, judged: Sequence[Judged]
) -> tuple[dict[str, float], tuple[dict[str, Any], ...]]:
    """All figures of a detector that its decisions give (see `FIGURES`), and the rows of its tasks."""
    tasks: list[dict[str, Any]] = []
    scores, unseens = [], []
    for one in judged:
        task = recording.task(graph, one.decisions.time)
        row = evaluate(task, one.decisions).as_dict()
        tasks.append({"time": graph.axis.value(task.time), **row, "seconds": one.seconds})
        truth, known = task.truth, set(one.decisions.known)
        labelled = np.array([name is not None for name in truth], bool)
        scores.append(one.decisions.score[labelled])
        unseens.append(np.array([name not in known for name in truth[labelled]], bool))
    score, unseen = np.concatenate(scores), np.concatenate(unseens)
    results = Results.of({0: tasks})
    of_tasks = {name: float(results.per_seed(name)[0]) for name in _OF_TASKS.values()}
    figures = {
        "auroc": auroc(score, unseen),
        "aupr": aupr(score, unseen),
        "fpr95": fpr_at_95(score, unseen),
        "oracle_mcc": oracle_mcc(score, unseen),
        "seconds_detector": sum(one.seconds for one in judged),
    }
    return figures | {name: of_tasks[column] for name, column in _OF_TASKS.items()}, tuple(tasks)


# Figures that the rows of the tasks give, and what `Results` calls them.
_OF_TASKS = {name: name for name in ("mcc", "mcc_per_task", "open_f1", "id_accuracy", "false_alarm_rate", "flagged")}
_OF_TASKS |= {f"{name}_per_task": name for name in ("auroc", "aupr", "fpr95", "oracle_mcc")}
_OF_TASKS["unseen"] = "unseen_share"


# --- results on disk -------------------------------------------------------------------------------------------------


def _keep(out: Path, judged: Sequence[CandidateResult]) -> None:
    """Add lines to those of earlier commands, in place of those of the same detectors on the same trainings."""
    path = out / RESULTS
    with disk_errors(path, "the results could not be kept"), only_one(out / f".{RESULTS}.lock"):
        lines = _read(path)
        for line in (one.as_dict() for one in judged):
            lines[_key(line)] = json.dumps(line, ensure_ascii=False, allow_nan=False).encode()
        write_atomic(path, b"".join(line + b"\n" for line in lines.values()))


def _read(path: Path) -> dict[str, bytes]:
    """The lines of a file by what they are of; other lines are kept as they are."""
    found = {}
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else [], start=1):
        try:
            key = _key(json.loads(line))
        except (ValueError, LookupError, TypeError):
            log.warning("%s, line %d: this is no result of a comparison; it is left alone.", path, number)
            key = f"line {number}"
        found[key] = line
    return found


def _key(line: Mapping[str, Any]) -> str:
    return json.dumps([line[name] for name in _IDENTITY], sort_keys=True)
