"""One run: train, decide and score task by task, for each seed."""

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
from evergraph.evaluation.configuration import Configuration, flat
from evergraph.evaluation.metrics import evaluate
from evergraph.evaluation.results import NUMERICS_VERSION, Results, Summary, TaskRow
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
"""Called with the index of the seed, the index of the task, the number of tasks, the steps done, and all steps."""


@dataclass(frozen=True)
class Run:
    """Result of a run.

    Parameters
    ----------
    configuration
        All settings, as `Configuration.described` returns them.
    rows
        For each seed the rows of its tasks.
    graph
        Name of the graph, if given.
    """

    configuration: Mapping[str, Any]
    rows: Mapping[int, tuple[TaskRow, ...]]
    graph: str | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds in their given order."""
        return tuple(self.rows)

    @cached_property
    def results(self) -> Results:
        """The results table of the run."""
        return Results.of(self.rows)

    def summary(self) -> dict[str, Summary]:
        """Summarise each metric over the seeds (see `Results`); ``seconds`` covers training and prediction."""
        return self.results.aggregate()

    def tasks(self) -> list[dict[str, Any]]:
        """Return the period of each task and the mean of each column over the seeds; None if undefined in all."""
        return self.results.task_means()

    def to_frame(self) -> pd.DataFrame:
        """Return a DataFrame with one row per seed and task: graph, settings (as ``model.hidden``) and all metrics.

        Frames of several runs can be concatenated.
        """
        return replace(self.results, about={"graph": self.graph, **flat(self.configuration)}).to_frame()

    def as_dict(self) -> dict[str, Any]:
        """Return a dict for JSON: each metric of the summary by its name, and the configuration, seeds and tasks."""
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
    """Run a configuration on all tasks of a graph, once per seed.

    The seed controls the learner and, with a label rate below 1, also which labels are released. So intervals over
    seeds cover both, and configurations with the same seeds use the same labels.

    Parameters
    ----------
    configuration
        All settings.
    graph
        The graph.
    seeds
        The seeds. More seeds can be added to the same folder later.
    out
        Folder for results, decisions and the description of the graph. A run that was stopped continues in it and
        gives the same numbers. By default nothing is written.
    replace
        Start over in the folder.
    on_progress
        Called after each step; see `OnProgress`.
    name
        Name of the graph in reports.

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
        raise InputError("no seed is given", fix="pass at least one")
    for seed in seeds:
        configuration.learner(seed)  # checks the seed before anything is written
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
                log.info("%s: %d of %d tasks are already done", out, there, len(plan) * len(seeds))
            made_by = {"evergraph": __version__}
            store.store_graph(lambda: describe(graph, name or "", first=plan[0].time, past=True).as_dict() | made_by)
        rows = {}
        for index, seed in enumerate(seeds):
            on_step = _of_seed(on_progress, index, len(plan), _steps(configuration))
            rows[seed] = _run_seed(configuration, plan, seed, store, on_step)
    return Run(described, rows, name)


def _steps(configuration: Configuration) -> int:
    return steps_a_task(configuration.steps, configuration.detector)


def _of_seed(on_progress: OnProgress | None, seed: int, tasks: int, steps: int) -> Callable[..., object]:
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
    """Return the rows of all tasks of one seed: read from the folder, or run."""
    value = plan[0].graph.axis.value
    rows = {} if store is None else {time: row for (of, time), row in store.rows.items() if of == seed}
    missing = [index for index, task in enumerate(plan) if value(task.time) not in rows]
    if missing:
        learner = configuration.learner(seed)
        if store is not None:
            learner = _resumed(learner, store.checkpoint(seed), plan[: missing[0]])
        for index in range(learner.tasks_, len(plan)):
            # A new task object: it caches its windows, which would otherwise accumulate.
            task = replace(plan[index], seed=seed)
            on_decided = None if store is None else partial(store.store_decisions, task)
            row = run_task(learner, task, partial(on_step, index), on_decided=on_decided)
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


def _resumed(fresh: LifelongLearner, folder: Path, done: Sequence[Task]) -> LifelongLearner:
    """Return the learner of a checkpoint if it was trained on the first of the finished tasks and on nothing else."""
    if not (folder / CHECKPOINT).exists():
        return fresh
    try:
        learner = type(fresh).load(folder, model=fresh.model, detector=fresh.detector)
    except EvergraphError as error:
        log.warning("%s The seed starts again from its first task.", error)
        return fresh
    times = [task.time for task in done[: learner.tasks_]]
    fits = len(times) == learner.tasks_ > 0 and times[-1] == learner.time_
    if not fits or learner.get_params() != fresh.get_params():
        log.warning("%s: the learner does not match the results. The seed starts again from its first task.", folder)
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
    """Train on a task (or on ``learn_from``), decide it, and score the decisions.

    ``on_decided`` is called with the decisions before they are scored.
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
        history="full" if task.periods is None else task.periods,
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
