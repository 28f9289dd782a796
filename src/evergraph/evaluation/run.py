"""The protocol of one run: task after task, adapt, decide, score; and again under each seed."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph import __version__
from evergraph.analysis.description import describe
from evergraph.errors import EvergraphError, InputError
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.decision_table import write_decisions
from evergraph.evaluation.metrics import evaluate
from evergraph.evaluation.results import NUMERICS_VERSION, Results, Summary, TaskRow, flat
from evergraph.evaluation.run_folder import RunFolder, open_run
from evergraph.graph.arrays import fingerprint
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.checkpoint import MANIFEST as CHECKPOINT
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.task import Decisions, Task
from evergraph.learning.training import steps_a_task

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OnProgress", "Run", "run", "run_task"]

log = logging.getLogger(__name__)

OnProgress = Callable[[int, int, int, int, int], object]
"""Called with the number of the seed, that of the task, how many tasks, the steps done, and how many steps."""


@dataclass(frozen=True)
class Run:
    """What came of a run.

    Parameters
    ----------
    configuration
        All settings, as `Configuration.described` gives them.
    rows
        For each seed the rows of its tasks.
    graph
        Name of the graph, if it was given.
    """

    configuration: Mapping[str, Any]
    rows: Mapping[int, tuple[TaskRow, ...]]
    graph: str | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds in the order they were given."""
        return tuple(self.rows)

    @cached_property
    def results(self) -> Results:
        """The results table of the run."""
        return Results.of(self.rows)

    def summary(self) -> dict[str, Summary]:
        """Each figure over the seeds (see `Results`), and ``seconds``: those of training and prediction."""
        return self.results.aggregate()

    def tasks(self) -> list[dict[str, Any]]:
        """For each task its time and the mean of each column over the seeds; None where it is undefined in all."""
        return self.results.task_means()

    def to_frame(self) -> pd.DataFrame:
        """One row for each seed and task: graph, settings (as ``model.hidden``), seed, time, and all figures.

        Frames of several runs can be concatenated.
        """
        return replace(self.results, about={"graph": self.graph, **flat(self.configuration)}).to_frame()

    def as_dict(self) -> dict[str, Any]:
        """All of it, fit for JSON: each figure of the summary by its name, and the configuration, seeds and tasks."""
        return {
            **self.summary(),
            "configuration": dict(self.configuration),
            "seeds": list(self.seeds),
            "tasks": self.tasks(),
        }


def run(
    configuration: Configuration,
    graph: EvolvingGraph,
    seeds: Iterable[int] = (0,),
    *,
    out: str | Path | None = None,
    replace: bool = False,
    on_progress: OnProgress | None = None,
    name: str | None = None,
) -> Run:
    """Take a learner through all tasks of a graph, under each seed.

    A seed is that of the learner and, with a label rate below 1, also of the draw of labels: so the intervals over
    seeds cover both, and configurations that share their seeds share their labels.

    Parameters
    ----------
    configuration
        What to run.
    graph
        On what.
    seeds
        How often, and how differently; they are no part of what makes a run this one: more can be run later.
    out
        Folder that keeps the results, and what a report tells of them. A run that was killed goes on in it where it
        stopped and comes to the same numbers. Without one nothing is written.
    replace
        Start over in the folder.
    on_progress
        Called after each step; see `OnProgress`.
    name
        What a report calls the graph; no part of what makes a run this one.

    Examples
    --------
    >>> from evergraph.datasets import synthetic
    >>> graph = synthetic(vertices=400, times=6, classes=4, new_classes=1, seed=1)
    >>> result = run(Configuration(history=3, steps=5), graph, seeds=[0, 1])
    >>> [task["time"] for task in result.tasks()], len(result.summary()["accuracy"]["per_seed"])
    ([2, 3, 4, 5], 2)
    """
    plan = tuple(configuration.tasks(graph))
    seeds = tuple(dict.fromkeys(seeds))
    if not seeds:
        raise InputError("there is no seed", fix="give at least one")
    for seed in seeds:
        configuration.learner(seed)  # which looks at the seed, before anything is written
    described = configuration.described(graph.axis)
    with contextlib.ExitStack() as held:
        store = None
        if out is not None:
            identity = {
                "numerics_version": NUMERICS_VERSION,
                "configuration": described,
                "fingerprint": fingerprint(graph),
            }
            times = {graph.axis.value(task.time) for task in plan}
            store = held.enter_context(open_run(Path(out), identity, times, replace=replace))
            there = sum(seed in seeds for seed, _ in store.rows)
            if there:
                log.info("%s: %d of %d tasks are there already", out, there, len(plan) * len(seeds))
            made_by = {"evergraph": __version__}
            store.keep_graph(lambda: describe(graph, name or "", first=plan[0].time, past=True).as_dict() | made_by)
        rows = {}
        for index, seed in enumerate(seeds):
            on_step = _of_seed(on_progress, index, len(plan), _steps(configuration))
            rows[seed] = _run_seed(configuration, plan, seed, store, on_step)
    return Run(described, rows, name)


def _steps(configuration: Configuration) -> int:
    return steps_a_task(configuration.steps, configuration.detector)


def _of_seed(on_progress: OnProgress | None, seed: int, tasks: int, steps: int) -> Callable[..., object]:
    """What to call with the number of the task and the steps done."""

    def on_step(task: int, step: int, _loss: float | None = None) -> None:
        if on_progress is not None:
            on_progress(seed, task, tasks, step, steps)

    return on_step


def _run_seed(
    configuration: Configuration,
    plan: Sequence[Task],
    seed: int,
    store: RunFolder | None,
    on_step: Callable[..., object],
) -> tuple[TaskRow, ...]:
    """The rows of all tasks under one seed: those that are in the store, and the others by running them."""
    value = plan[0].graph.axis.value
    rows = {} if store is None else {time: row for (of, time), row in store.rows.items() if of == seed}
    missing = [index for index, task in enumerate(plan) if value(task.time) not in rows]
    if missing:
        learner = configuration.learner(seed)
        if store is not None:
            learner = _resumed(learner, store.checkpoint(seed), plan[: missing[0]])
        for index in range(learner.tasks_, len(plan)):
            # A task of its own for each seed; it also keeps its windows, which must not pile up.
            task = replace(plan[index], seed=seed)
            keep = None if store is None else partial(_keep, store, task)
            row = run_task(learner, task, partial(on_step, index), on_decided=keep)
            rows.setdefault(row.time, row)
            if store is not None:
                store.append(row)
                if index < len(plan) - 1:
                    learner.save(store.checkpoint(seed))
            on_step(index, _steps(configuration))
    if store is not None:
        store.finish(seed)
    on_step(len(plan) - 1, _steps(configuration))
    return tuple(rows[value(task.time)] for task in plan)


def _keep(store: RunFolder, task: Task, decisions: Decisions) -> None:
    store.keep_decisions(task.seed, task.graph.axis.value(task.time), lambda: write_decisions(task, decisions))


def _resumed(fresh: LifelongLearner, folder: Path, done: Sequence[Task]) -> LifelongLearner:
    """The learner of a checkpoint, if it has adapted to some of the tasks that are done and to nothing else."""
    if not (folder / CHECKPOINT).exists():
        return fresh
    try:
        learner = type(fresh).load(folder, model=fresh.model, detector=fresh.detector)
    except EvergraphError as error:
        log.warning("%s The seed is run again from its first task.", error)
        return fresh
    times = [task.time for task in done[: learner.tasks_]]
    fits = len(times) == learner.tasks_ > 0 and times[-1] == learner.time_
    if not fits or learner.get_params() != fresh.get_params():
        log.warning("%s: the learner does not fit the results. The seed is run again from its first task.", folder)
        return fresh
    return learner


def run_task(
    learner: LifelongLearner,
    task: Task,
    on_step: Callable[[int, float], object] | None = None,
    *,
    learn_from: Task | None = None,
    on_decided: Callable[[Decisions], object] | None = None,
) -> TaskRow:
    """Adapt to a task, or to what is given in its place, then decide the task, and score that.

    ``on_decided`` is called with the decisions before there is a row.
    """
    studied = learn_from or task
    before = set(learner.classes_)
    start = time.perf_counter()
    learner.adapt(studied, on_step)
    adapted = time.perf_counter()
    decisions = learner.predict(task)
    decided = time.perf_counter()
    if on_decided is not None:
        on_decided(decisions)
    return TaskRow(
        seed=learner.seed,
        time=task.graph.axis.value(task.time),
        history="full" if task.history is None else task.history,
        window_vertices=len(task.window),
        train_vertices=int((studied.targets >= 0).sum()),
        test_vertices=len(decisions),
        known_classes=len(learner.classes_),
        new_classes=tuple(name for name in learner.classes_ if name not in before),
        scores=evaluate(task, decisions),
        lr=learner.lr_,
        loss=learner.losses_[-1] if learner.losses_ else None,
        seconds_adapt=adapted - start,
        seconds_predict=decided - adapted,
    )
