"""Comparing detectors of unseen classes on some graphs: one training for each loss, any number of judgements.

::

    COMPARED/
      results.jsonl                       one line for each graph, detector and seed, added to by each command
      recordings/GRAPH/LOSS/seed-0/       a training on record, which detectors to come are judged by, too
      compared.md, .tex, .csv, .json      the last comparison as a table, and all of it
      tasks-GRAPH.svg, .png               task by task
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evergraph import __version__
from evergraph.detect import Detector
from evergraph.errors import EvergraphError, InputError
from evergraph.evaluation.candidates import Contestant
from evergraph.evaluation.compare_results import keep
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.graphs import graph_of, name_of
from evergraph.evaluation.judgement import FIGURES, Judgement, judge
from evergraph.evaluation.metrics import TaskScores, over_seeds
from evergraph.evaluation.processes import executor_for, threads_each
from evergraph.evaluation.recording import OnTask, Recording, record
from evergraph.evaluation.replay import replay_all
from evergraph.evaluation.results import NUMERICS_VERSION, Summary, summary_of
from evergraph.names import described

__all__ = ["CompareState", "Comparison", "OnCompared", "compare"]

log = logging.getLogger(__name__)

RECORDINGS = "recordings"


@dataclass(frozen=True)
class CompareState:
    """How far a comparison is.

    Parameters
    ----------
    total, done
        Number of trainings (second models aside), and of how many all detectors are judged.
    errors
        What was wrong with those that came to nothing.
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
class Comparison:
    """What came of a comparison.

    Parameters
    ----------
    graphs
        Their paths by name.
    contestants, seeds
        Who took part, and how often.
    configuration
        How they were trained; its detector is of no account.
    judgements
        All that came to an end.
    errors
        What was wrong with the others.
    """

    graphs: Mapping[str, str]
    contestants: tuple[Contestant, ...]
    seeds: tuple[int, ...]
    configuration: Configuration
    judgements: tuple[Judgement, ...]
    errors: tuple[str, ...] = ()

    def of(self, graph: str, detector: str) -> list[Judgement]:
        """The judgements of a detector on a graph, in the order of the seeds."""
        found = [one for one in self.judgements if one.graph == graph and one.detector == detector]
        return sorted(found, key=lambda one: self.seeds.index(one.seed))

    def summary(self, graph: str, detector: str) -> dict[str, Summary]:
        """Each figure over the seeds; nothing where there is no judgement."""
        found = self.of(graph, detector)
        return {name: summary_of([one.figures[name] for one in found]) for name in FIGURES} if found else {}

    def over_graphs(self, detector: str) -> dict[str, Summary]:
        """Each figure as its mean over graphs in each seed, and then over seeds; nothing unless all of them are there.

        Graphs where a figure is undefined are left out of it.
        """
        found = [self.of(graph, detector) for graph in self.graphs]
        if any(len(judgements) < len(self.seeds) for judgements in found):
            return {}
        return {
            name: summary_of([_mean([one.figures[name] for one in each]) for each in zip(*found, strict=True)])
            for name in FIGURES
        }

    def by_task(self, graph: str, detector: str) -> list[dict[str, Any]]:
        """For each task its time, and over the seeds ``mcc``, ``flagged`` and ``unseen``.

        MCC is None where there is nothing to find.
        """
        return [_task_summary(tasks) for tasks in zip(*(one.tasks for one in self.of(graph, detector)), strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """All of it, fit for JSON."""
        pairs = [(graph, one.name) for graph in self.graphs for one in self.contestants]
        return {
            "graphs": dict(self.graphs),
            "detectors": {one.name: _settings(one) for one in self.contestants},
            "seeds": list(self.seeds),
            "configuration": _training(self.configuration),
            "figures": dict(FIGURES),
            "results": [
                {"graph": graph, "detector": name, **self.summary(graph, name), "tasks": self.by_task(graph, name)}
                for graph, name in pairs
                if self.of(graph, name)
            ],
            "mean_over_graphs": [
                {"detector": one.name, **found} for one in self.contestants if (found := self.over_graphs(one.name))
            ],
            "errors": list(self.errors),
            "evergraph": __version__,
            "numerics_version": NUMERICS_VERSION,
        }


# --- comparing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """One training, and all whom it is for; their second models are other trainings, and perhaps on record already."""

    path: str
    configuration: Configuration
    seed: int
    contestants: tuple[Contestant, ...]
    out: Path

    @property
    def graph(self) -> str:
        return name_of(self.path)

    @property
    def loss(self) -> str:
        return str(described(self.configuration.detector)["name"])

    @property
    def folder(self) -> Path:
        """Where the training is on record."""
        return self.out / RECORDINGS / self.graph / self.loss / f"seed-{self.seed}"

    @property
    def words(self) -> str:
        return f"{self.graph}, loss of {self.loss}, seed {self.seed}"


def compare(
    graphs: Sequence[str],
    contestants: Sequence[Contestant],
    configuration: Configuration,
    seeds: Sequence[int] = (0,),
    *,
    out: str | Path,
    jobs: int = 1,
    on_done: OnCompared | None = None,
) -> Comparison:
    """Judge detectors on graphs, under each seed.

    Trainings are recorded under ``out``, and those that are there are not made again. Detectors are judged anew each
    time. What is finished is on disk at once.

    Parameters
    ----------
    graphs
        Graph folders, or names of graphs that need none.
    contestants
        Whom to compare.
    configuration
        How to train. Its detector is of no account: each contestant has its own.
    seeds
        Of the learners and, with a label rate below 1, of the draws of labels.
    out
        Folder that keeps recordings and results.
    jobs
        Number of processes, each of one thread.
    on_done
        Whom to tell how far it is.
    """
    out, seeds = Path(out), tuple(dict.fromkeys(seeds))
    if jobs < 1:
        raise InputError(f"jobs is {jobs}", fix="give a whole number from 1 up")
    if not seeds or not contestants or not graphs:
        raise InputError("there is nothing to compare", fix="give at least one graph, one detector and one seed")
    if out.exists() and not out.is_dir():
        raise InputError("this is a file, not a folder", file=out, fix="choose another folder")
    named = _by_name(graphs)
    for path in named.values():
        next(configuration.tasks(graph_of(path)[0]))  # which looks at the settings, before anything is written
    losses = list(dict.fromkeys(one.trained_with for one in contestants))
    todo = [
        _Job(path, replace(configuration, detector=loss), seed, _trained_with(loss, contestants), out)
        for path in named.values()
        for seed in seeds
        for loss in losses
    ]
    found, errors = _run_all(todo, out, jobs, on_done)
    return Comparison(named, tuple(contestants), seeds, configuration, tuple(found), tuple(errors))


def _by_name(paths: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        before = named.setdefault(name_of(path), path)
        if graph_of(before)[1] != graph_of(path)[1]:
            raise InputError(f"two different graphs are named {name_of(path)}", fix="rename the folder of one of them")
    return named


def _trained_with(loss: Any, contestants: Sequence[Contestant]) -> tuple[Contestant, ...]:
    return tuple(one for one in contestants if one.trained_with == loss)


def _run_all(
    todo: Sequence[_Job], out: Path, jobs: int, on_done: OnCompared | None
) -> tuple[list[Judgement], list[str]]:
    """The judgements of all jobs, each kept as it comes, and what was wrong with the others."""
    tell = on_done or (lambda _: None)
    found: list[Judgement] = []
    errors: list[str] = []
    queue, running = list(reversed(todo)), dict[Future[list[Judgement] | str], _Job]()
    jobs = min(jobs, len(todo))
    tell(CompareState(len(todo)))
    with executor_for(None, jobs) as pool:
        done = 0
        while queue or running:
            while queue and len(running) < jobs:
                job = queue.pop()
                state = CompareState(len(todo), done, tuple(errors), job.words)
                on_task = _teller(tell, state) if jobs == 1 else None  # what others do is not heard of here
                running[pool.submit(_work, job, on_task)] = job
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                job = running.pop(future)
                judged = future.result()
                if isinstance(judged, str):
                    errors.append(f"{job.words}: {judged}")
                    log.warning("%s", errors[-1])
                else:
                    keep(out, judged)
                    found += judged
                done += 1
                tell(CompareState(len(todo), done, tuple(errors), job.words))
    return found, errors


def _teller(tell: OnCompared, state: CompareState) -> OnTask:
    def on_task(task: int, tasks: int, step: int, steps: int) -> None:
        if step == steps:
            tell(replace(state, doing=f"{state.doing}, task {task + 1} of {tasks}"))

    return on_task


def _work(job: _Job, on_task: OnTask | None = None) -> list[Judgement] | str:
    """Record a training, unless it is there, and judge all whom it is for; or what went wrong, in words."""
    try:
        return _judgements(job, on_task)
    except EvergraphError as error:  # which loses its parts on the way between processes
        return str(error)


def _judgements(job: _Job, on_task: OnTask | None) -> list[Judgement]:
    graph, print_ = graph_of(job.path)
    with threads_each(1):
        recording = record(job.configuration, graph, job.seed, job.folder, on_progress=on_task)
        seconds: dict[Detector, Recording] = {}
        for second in (one.detector.second for one in job.contestants):
            if second is None or second in seconds:
                continue
            beside = replace(job, configuration=replace(job.configuration, detector=second))
            seconds[second] = record(beside.configuration, graph, job.seed, beside.folder, on_progress=on_task)
        replayed = replay_all(recording, graph, [one.detector for one in job.contestants], seconds)
    found = []
    for one, judged in zip(job.contestants, replayed, strict=True):
        second_model = None if one.detector.second is None else seconds[one.detector.second]
        figures, tasks = judge(recording, graph, one, judged, second_model)
        about = {
            "fingerprint": print_,
            "settings": _settings(one),
            "configuration": recording.identity["configuration"],
            "numerics_version": NUMERICS_VERSION,
            "evergraph": __version__,
        }
        found.append(Judgement(job.graph, one.name, job.seed, figures, tasks, about))
    return found


def _settings(one: Contestant) -> str:
    return repr(getattr(one.detector, "made_of", one.detector))


def _training(configuration: Configuration) -> dict[str, Any]:
    """How all were trained, whatever the loss."""
    names = ("model", "history", "restart", "steps", "lr", "weight_decay", "first", "label_rate", "mode", "text")
    return {name: described(getattr(configuration, name)) for name in names}


# --- numbers ---------------------------------------------------------------------------------------------------------


def _task_summary(tasks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One task under several seeds."""
    confusions = [TaskScores.from_dict(task).confusion for task in tasks]
    numbers = [one.tp + one.tn + one.fp + one.fn or math.nan for one in confusions]
    return {
        "time": tasks[0]["time"],
        "mcc": summary_of([one.mcc if one.tp + one.fn else math.nan for one in confusions]),
        "flagged": summary_of([(one.tp + one.fp) / n for one, n in zip(confusions, numbers, strict=True)]),
        "unseen": summary_of([(one.tp + one.fn) / n for one, n in zip(confusions, numbers, strict=True)]),
    }


def _mean(values: Sequence[float]) -> float:
    return over_seeds(values).mean
