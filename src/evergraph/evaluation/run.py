"""One run: train, decide and score task by task, for each seed."""

from __future__ import annotations

import contextlib
import logging
import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph import __version__
from evergraph.analysis.description import describe
from evergraph.errors import EvergraphError, InputError
from evergraph.evaluation.configuration import Configuration, flat
from evergraph.evaluation.metrics import evaluate
from evergraph.evaluation.results import NUMERICS_VERSION, Results, Summary, TaskRow, last_inputs
from evergraph.evaluation.run_folder import RunFolder, open_run, write_from_worker
from evergraph.evaluation.workers import (
    RayEngine,
    check_jobs,
    completed,
    given,
    jobs_for,
    report,
    start_workers,
    threads_each,
)
from evergraph.graph.arrays import fingerprint
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning.checkpoint import MANIFEST as CHECKPOINT
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.task import Decisions, Task, history_reason
from evergraph.learning.training import steps_a_task
from evergraph.ray_connection import connected, import_ray

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OnProgress", "Run", "run", "run_task"]

log = logging.getLogger(__name__)

# Bytes of a process with its libraries, and of a vertex of the window with features, activations and gradients: above
# what runs on graphs of up to 200,000 vertices take.
_PROCESS, _VERTEX = 600_000_000, 6_000

_REASONS = 3  # for a decision

OnProgress = Callable[[int, int, int, int, int], object]
"""Called with the index of the seed, the index of the task, the number of tasks, the steps done, and all steps.

It is called for each seed at the start and after each step; with several processes, several times a second.
"""


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

    @property
    def inputs(self) -> dict[int, dict[str, int]]:
        """For each seed the blocks that its model reads, with their numbers of columns at the end of the run."""
        return last_inputs(self.rows)

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
        """Return a dict for JSON: the metrics of the summary by name, and configuration, seeds, inputs and tasks."""
        return {
            **self.summary(),
            "configuration": dict(self.configuration),
            "seeds": list(self.seeds),
            "inputs": {str(seed): columns for seed, columns in self.inputs.items()},
            "tasks": self.tasks(),
        }


def run(
    configuration: Configuration,
    graph: EvolvingGraph,
    seeds: Iterable[int] = (0,),
    *,
    out: str | Path | None = None,
    replace: bool = False,
    jobs: int | None = 1,
    engine: RayEngine | None = None,
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
    jobs
        Number of processes that share the seeds; None for as many as cores and memory allow. The numbers do not depend
        on it: each process uses as many threads as torch in this one (``torch.set_num_threads``). In a script, call
        this below ``if __name__ == "__main__":``.
    engine
        Run the seeds on a Ray cluster instead. ``out`` must then be a path that all nodes share.
    on_progress
        Called with the progress, see `OnProgress`.
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
    check_jobs(jobs)
    if configuration.workers > 1:
        import_ray(None if engine is None else engine.address)
        if jobs is not None and jobs > 1:
            raise InputError("jobs and workers are both above 1", fix="share the seeds or each window, not both")
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
        if configuration.history == "auto" and plan[0].history is not None:
            log.info("%s", history_reason(graph, plan[0].time, plan[0].history))
        if configuration.workers > 1:  # the seeds run here, one after the other, and their workers on the cluster
            held.enter_context(connected(None if engine is None else engine.address))
            jobs, engine = 1, None
        rows = _run_seeds(configuration, plan, seeds, store, jobs, engine, on_progress or (lambda *_: None))
    return Run(described, rows, name)


def _run_seeds(
    configuration: Configuration,
    plan: Sequence[Task],
    seeds: Sequence[int],
    store: RunFolder | None,
    jobs: int | None,
    engine: RayEngine | None,
    on_progress: OnProgress,
) -> dict[int, tuple[TaskRow, ...]]:
    import torch

    steps = steps_a_task(configuration.steps, configuration.detector)
    there = {seed: sum(of == seed for of, _ in store.rows) if store is not None else 0 for seed in seeds}
    reported = [-1] * len(seeds)

    def tell(index: int, done: int) -> None:
        if done > reported[index]:
            reported[index] = done
            task = max(done - 1, 0) // steps
            on_progress(index, task, len(plan), done - task * steps, steps)

    for index, seed in enumerate(seeds):
        tell(index, there[seed] * steps)
    rows = {seed: _run_seed(configuration, plan, seed, store) for seed in seeds if there[seed] == len(plan)}
    waiting = [seed for seed in seeds if seed not in rows]
    if jobs is None:
        jobs = _usual_jobs(plan, len(waiting))
    if engine is None and min(jobs, len(waiting)) > 1 and not _importable(configuration):
        jobs = 1
    threads = torch.get_num_threads() if engine is None else engine.threads

    def meanwhile() -> None:
        for index, done in enumerate(workers.numbers[:, 0]):
            if done == done:  # not NaN
                tell(index, int(done))

    def submit(seed: int) -> Future[tuple[TaskRow, ...]]:
        folder = None if store is None else (store.path.absolute(), store.token)
        return workers.submit(_work, seed, seeds.index(seed), folder, threads)

    if not waiting:
        return {seed: rows[seed] for seed in seeds}
    shared = (configuration, plan)  # once for all processes: each task refers to the graph
    with start_workers(
        engine, jobs, items=len(seeds), columns=1, shared=shared, on_report=lambda: meanwhile()
    ) as workers:
        with contextlib.closing(completed(waiting, submit, workers, meanwhile)) as outcomes:
            rows |= dict(outcomes)
        meanwhile()
    return {seed: rows[seed] for seed in seeds}


def _usual_jobs(plan: Sequence[Task], seeds: int) -> int:
    import torch

    times = plan[0].graph.times
    largest = max(int(times.searchsorted(task.time, "right") - times.searchsorted(task.start)) for task in plan)
    return jobs_for(seeds, threads=torch.get_num_threads(), memory=_PROCESS + largest * _VERTEX)


def _importable(configuration: Configuration) -> bool:
    """Whether other processes of this machine can read the settings."""
    try:
        settings = pickle.dumps(configuration)
    except (pickle.PicklingError, AttributeError, TypeError):  # a function or class inside of another
        settings = b"__main__"
    if b"__main__" not in settings:
        return True
    log.info(
        "The seeds run one after the other: the model or the detector is defined in a script, a notebook or a "
        "function. Move it to a module to use several processes."
    )
    return False


def _work(seed: int, index: int, folder: tuple[Path, str] | None, threads: int) -> tuple[TaskRow, ...]:
    """Run a seed in a worker, which writes all files of the seed and its lines."""
    configuration, plan = given()
    writing = contextlib.nullcontext() if folder is None else write_from_worker(*folder)
    with threads_each(threads), writing as store:
        return _run_seed(configuration, plan, seed, store, partial(report, index, 0))


def _run_seed(
    configuration: Configuration,
    plan: Sequence[Task],
    seed: int,
    store: RunFolder | None,
    on_steps: Callable[[int], object] = lambda _: None,
) -> tuple[TaskRow, ...]:
    """Return the rows of all tasks of one seed: read from the folder, or run; ``on_steps`` gets the steps done."""
    value = plan[0].graph.axis.value
    rows = {} if store is None else {time: row for (of, time), row in store.rows.items() if of == seed}
    steps = steps_a_task(configuration.steps, configuration.detector)
    missing = [index for index, task in enumerate(plan) if value(task.time) not in rows]
    if missing:
        learner = configuration.learner(seed)
        if store is not None:
            learner = _resumed(learner, store.checkpoint(seed), plan[: missing[0]])
        for index in range(learner.tasks_, len(plan)):
            # A new task object: it caches its windows, which would otherwise accumulate.
            task = replace(plan[index], seed=seed)
            # Reports show the reasons for decisions of the last task.
            explain = partial(learner.explain, task, most=_REASONS) if index == len(plan) - 1 else None
            on_decided = None if store is None else partial(store.store_decisions, task, explain=explain)
            before = index * steps
            row = run_task(learner, task, partial(_on_step, on_steps, before), on_decided=on_decided)
            rows.setdefault(row.time, row)
            if store is not None:
                store.append(row)
                if index < len(plan) - 1:
                    learner.save(store.checkpoint(seed))
            on_steps(before + steps)
    if store is not None:
        store.finish(seed)
    on_steps(len(plan) * steps)
    return tuple(rows[value(task.time)] for task in plan)


def _on_step(on_steps: Callable[[int], object], before: int, step: int, _loss: float) -> None:
    on_steps(before + step)


def _resumed(fresh: LifelongLearner, folder: Path, done: Sequence[Task]) -> LifelongLearner:
    """Return the learner of a checkpoint if it was trained on the first of the finished tasks and on nothing else."""
    if not (folder / CHECKPOINT).exists():
        return fresh
    try:
        learner = type(fresh).load(folder, model=fresh.model, detector=fresh.detector, device=fresh.device)
        learner.set_params(trainer=fresh.trainer, memory_limit=fresh.memory_limit)  # which are not saved
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
        inputs={} if learner.vocabulary_ is None else learner.vocabulary_.sizes(task.graph),
    )
