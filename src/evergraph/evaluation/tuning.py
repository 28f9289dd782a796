"""Search for better settings with Optuna, on the past of a graph only.

The tasks of a graph are split: the earlier ones judge the trials, the later ones are for `evaluate_later`. Workers get
a graph without the later periods. The main process gets trials from Optuna and returns their values; workers only
compute. The study is in a database, so a search that was stopped continues, and several commands can share one.

Which trials count: the first N that have not failed, by number. Numbers are given by the database, so several
commands agree on them. A trial whose command died fails, and its parameters are tried again under a new number.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from evergraph import __version__
from evergraph.errors import EvergraphError, InputError, os_error
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.results import Results, Summary, TaskRow
from evergraph.evaluation.run import OnProgress, run, run_task
from evergraph.evaluation.search_space import METRICS, Search  # also the clear error if Optuna is missing
from evergraph.evaluation.workers import (
    RayEngine,
    Workers,
    check_jobs,
    completed,
    given,
    report,
    start_workers,
    stopped,
    threads_each,
)
from evergraph.graph.arrays import fingerprint
from evergraph.graph.evolving import EvolvingGraph
from evergraph.presentation.text import counted
from evergraph.storage.files import only_one

import optuna  # isort: skip
from optuna.distributions import BaseDistribution  # isort: skip
from optuna.samplers import BaseSampler, TPESampler  # isort: skip
from optuna.trial import FrozenTrial, TrialState  # isort: skip

__all__ = ["METRICS", "Later", "Search", "TriedSettings", "Tuning", "TuningState", "evaluate_later", "tune"]

log = logging.getLogger(__name__)

_STARTUP = 10  # trials at random before the sampler learns from them
_BEFORE_PRUNING = 5  # trials that finish before hopeless ones are stopped
_MOST_DEATHS = 3  # of commands that run the same parameters
_BEAT, _GRACE = 10.0, 60.0  # seconds between two signs of life, and without one until a command counts as dead
_POLL = 1.0  # seconds between two looks at trials of other commands


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TriedSettings:
    """A finished trial.

    ``value`` is its metric after the last of its ``tasks``; None if it failed. ``outcome`` is ``"done"``, ``"pruned"``
    (stopped because it was hopeless), ``"reused"`` (an earlier trial had the same settings) or ``"failed"``.
    """

    number: int
    parameters: Mapping[str, Any]
    value: float | None
    outcome: str
    tasks: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)} | {"parameters": dict(self.parameters)}


@dataclass(frozen=True)
class TuningState:
    """Progress: trials in total, finished, and pruned among these; how much of running ones is done; the best value."""

    total: int
    finished: int
    pruned: int
    running: float
    best: float | None


@dataclass(frozen=True, eq=False)
class Tuning:
    """Result of a search.

    Parameters
    ----------
    search
        What was searched.
    configuration
        The best settings; the defaults if no trial was better.
    value, default_value
        Metric on the tuning tasks with these settings, and with the defaults.
    trials
        All trials, in the order of their numbers.
    importances
        Share of each parameter in the differences between good and other trials, largest first. Empty after few trials.
    """

    search: Search
    configuration: Configuration
    value: float
    default_value: float | None
    trials: tuple[TriedSettings, ...]
    importances: Mapping[str, float]

    @property
    def is_default(self) -> bool:
        """Whether no trial was better than the defaults."""
        return self.configuration is self.search.base

    @property
    def best(self) -> list[TriedSettings]:
        """The finished trials, best first."""
        done = [trial for trial in self.trials if trial.outcome == "done" and trial.value is not None]
        return sorted(done, key=lambda trial: (-(trial.value or 0.0), trial.number))

    def source(self, graph: str | None = None) -> dict[str, Any]:
        """Return where the settings come from, for a settings file."""
        axis = self.search.past.axis
        return {
            "graph": graph,
            "fingerprint": fingerprint(self.search.past),
            "tuned_on": [axis.value(self.search.first), axis.value(self.search.until)],
            "metric": self.search.metric,
            "value": self.value,
            "default_value": self.default_value,
            "trials": len(self.trials),
            "seed": self.search.seed,
            "evergraph": __version__,
        }


# --- tuning ----------------------------------------------------------------------------------------------------------


def tune(
    configuration: Configuration,
    graph: EvolvingGraph,
    *,
    storage: str | Path,
    until: int | str | None = None,
    metric: str = "accuracy",
    trials: int = 40,
    seed: int = 0,
    jobs: int = 1,
    engine: RayEngine | None = None,
    on_progress: Callable[[TuningState], object] | None = None,
) -> Tuning:
    """Search for better settings on the earlier tasks of a graph.

    The first trial has the given settings. Later ones change learning rate, history, restart, inputs, width of the
    model and, unless the metric is the accuracy, threshold or objective of the detector.

    Parameters
    ----------
    configuration
        Model, detector, and all settings to start from.
    graph
        The graph. Later periods are removed before anything is computed.
    storage
        File of an SQLite database, or a database URL that Optuna takes. A search that was stopped continues, and
        several commands can share one.
    until
        Period of the last task to tune on; by default the tasks are split in the middle.
    metric
        ``"accuracy"`` or ``"open-f1"``, means over the tasks; or ``"mcc"``, over all tasks together.
    trials
        Number of finished trials in total, those of earlier and of other commands included.
    seed
        Seed of the search and of the trainings. With one job, the same seed gives the same trials.
    jobs, engine
        Number of processes of this machine, each with a trial at a time; or the settings of Ray.
    on_progress
        Called at the start, after each task, and after each trial.

    Examples
    --------
    >>> import tempfile
    >>> from evergraph.datasets import synthetic
    >>> graph = synthetic(vertices=300, times=6, classes=3, seed=1)
    >>> found = tune(Configuration(steps=3), graph, storage=Path(tempfile.mkdtemp()) / "study.db", trials=2)
    >>> len(found.trials), found.trials[0].value == found.default_value, found.value >= found.default_value
    (2, True, True)
    """
    check_jobs(jobs)
    if trials < 1:
        raise InputError(f"trials is {trials}", fix="pass a whole number of at least 1")
    search = Search.of(configuration, graph, until=until, metric=metric, seed=seed)
    study, lock = _open(search, storage)
    tuner = _Tuner(search, study, lock, trials, on_progress or (lambda _: None))
    with tuner.signs_of_life():
        try:
            tuner.run(jobs, engine)
        except BaseException:  # also an interrupt
            tuner.give_back()
            raise
    return tuner.result()


def _open(search: Search, storage: str | Path) -> tuple[optuna.Study, Path | None]:
    """Open the study, and return it with the lock file of commands that share it; servers have none."""
    text = str(storage)
    path = None if "://" in text else Path(text).absolute()
    if path is None and text.startswith("sqlite:///") and ":memory:" not in text:
        path = Path(text.removeprefix("sqlite:///").partition("?")[0]).absolute()
    lock = None
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise os_error(error, "the study cannot be stored here", file=path) from error
        lock = path.with_name(f".{path.name}.lock")
        text = f"sqlite:///{path}"
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # our own messages say the same
    try:
        with _turn(lock):
            # Other commands may be writing: wait for them.
            waiting = {"connect_args": {"timeout": 120}} if text.startswith("sqlite") else {}
            opened = optuna.storages.RDBStorage(text, engine_kwargs=waiting)
            others = [name for name in optuna.get_all_study_names(opened) if name != search.name]
            study = optuna.create_study(
                storage=opened,
                study_name=search.name,
                sampler=_Sampler(search.seed),
                pruner=optuna.pruners.MedianPruner(n_startup_trials=_BEFORE_PRUNING, n_warmup_steps=1),
                direction="maximize",
                load_if_exists=True,
            )
            there = [trial for trial in study.get_trials(deepcopy=False) if _is_finished(trial)]
            if not study.get_trials(deepcopy=False):
                study.enqueue_trial(search.start)
                if others:
                    there_are = counted(len(others), "other search", "other searches")
                    log.info("The storage has %s, of other graphs or settings. This is a new one.", there_are)
            elif there:
                log.info("The storage has %s of this search. It continues.", counted(len(there), "finished trial"))
    except EvergraphError:
        raise
    except Exception as error:  # of the database's driver, in as many kinds as there are drivers
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        fix = "give the path of a new file, or the URL of a database, as in postgresql://user@host/name"
        raise InputError(f"the storage cannot be opened ({reason})", file=path, fix=fix) from error
    finally:
        optuna.logging.set_verbosity(level)
    return study, lock


@contextlib.contextmanager
def _turn(lock: Path | None) -> Iterator[None]:
    """Let one command at a time choose trials, if they share a file."""
    with contextlib.nullcontext() if lock is None else only_one(lock):
        yield


# User attributes of trials: "owner" and "beat" of the command that runs it, "seconds", "error", "same_as" (number of
# the trial whose value it has), "duplicate" (it was given up, because an equal one was running), "died" (how often).


def _counts(trial: FrozenTrial) -> bool:
    """Whether a trial counts for the number of trials, now or when it is finished."""
    return trial.state != TrialState.FAIL or "error" in trial.user_attrs


def _is_finished(trial: FrozenTrial) -> bool:
    return trial.state.is_finished() and _counts(trial)


class _Sampler(BaseSampler):
    """TPE whose random numbers depend on the seed and on the trials before only: not on commands that died."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def _tpe(self, study: optuna.Study, trial: FrozenTrial, name: str = "") -> TPESampler:
        before = [one for one in study.get_trials(deepcopy=False) if one.number < trial.number]
        place = sum(map(_counts, before)), sum("duplicate" in one.user_attrs for one in before)
        digest = hashlib.sha256(f"{self.seed} {place} {name}".encode()).digest()
        return TPESampler(seed=int.from_bytes(digest[:4], "big"), n_startup_trials=_STARTUP)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._tpe(study, trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._tpe(study, trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._tpe(study, trial, param_name).sample_independent(study, trial, param_name, param_distribution)


@dataclass
class _Running:
    """A trial that runs here, by the number of its row in the workers' numbers, and the tasks that Optuna knows."""

    trial: optuna.Trial
    configuration: Configuration
    item: int
    reported: int = 0


class _Tuner:
    """Gets trials from Optuna, has them computed, and returns their values."""

    def __init__(
        self,
        search: Search,
        study: optuna.Study,
        lock: Path | None,
        trials: int,
        on_progress: Callable[[TuningState], object],
    ) -> None:
        self.search, self.study, self.lock, self.trials, self.on_progress = search, study, lock, trials, on_progress
        self.running: dict[int, _Running] = {}
        self.me = f"{platform.node()} {os.getpid()}"
        self._seen: dict[int, tuple[Any, float]] = {}
        self._keys: dict[int, str] = {}

    # --- the loop ----------------------------------------------------------------------------------------------------

    def run(self, jobs: int, engine: RayEngine | None) -> None:
        """Work until all trials are finished, here or elsewhere."""
        self._show()
        warned = False
        while sum(map(_is_finished, self._all())) < self.trials:
            if self._has_free():
                self._work(jobs, engine)
                continue
            if not warned:
                log.info("Another command runs the last trials. Waiting for them.")
                warned = True
            self._show()
            time.sleep(_POLL)
        self._show()

    def _work(self, jobs: int, engine: RayEngine | None) -> None:
        import torch

        threads = torch.get_num_threads() if engine is None else engine.threads
        tasks = len(self.search.tasks)
        shared = (
            self.search.past,
            self.search.past.axis.value(self.search.first),
            self.search.metric,
            self.search.seed,
        )

        def submit(one: _Running) -> Future[TaskValues]:
            return workers.submit(measure, one.item, one.configuration, threads)

        def meanwhile() -> None:
            self._listen(workers)

        with (
            start_workers(
                engine, jobs, items=self.trials, columns=tasks, shared=shared, on_report=lambda: meanwhile()
            ) as workers,
            contextlib.closing(completed(self._asked(), submit, workers, meanwhile)) as outcomes,
        ):
            for one, measured in outcomes:
                self._finish(one, measured)

    def _listen(self, workers: Workers) -> None:
        """Pass on what workers have reported, and stop trials that are hopeless."""
        changed = False
        for one in list(self.running.values()):
            values = workers.numbers[one.item]
            new = [task for task in np.flatnonzero(~np.isnan(values)).tolist() if task >= one.reported]
            for task in new:
                self._report(one.trial, float(values[task]), task)
                one.reported, changed = task + 1, True
            hopeful = not new or one.reported == len(values) or one.configuration is self.search.base
            if not hopeful and one.trial.should_prune():
                workers.stop(one.item)
        if changed:
            self._show()

    def _finish(self, one: _Running, measured: TaskValues) -> None:
        trial, values = one.trial, measured.values
        seconds = round(measured.seconds, 3)
        if measured.error:
            log.warning("Trial %d failed: %s", trial.number, measured.error)
            self._tell(trial, TrialState.FAIL, error=measured.error, seconds=seconds)
        else:
            for task, value in enumerate(values[one.reported :], start=one.reported):
                if value is not None:
                    self._report(trial, value, task)
            if len(values) < len(self.search.tasks):
                self._tell(trial, TrialState.PRUNED, seconds=seconds)
            elif values[-1] is None:
                raise InputError(
                    f"the metric {self.search.metric} is undefined on the tasks to tune on: no vertex of them has an "
                    "unseen class, or none has a label",
                    fix="choose the metric accuracy, or a later period to tune until",
                )
            else:
                self._tell(trial, TrialState.COMPLETE, values[-1], seconds=seconds)
        del self.running[trial.number]
        self._show()

    def _report(self, trial: optuna.Trial, value: float, task: int) -> None:
        with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):  # `_tell` warns at the end
            trial.report(value, task)

    def _tell(self, trial: optuna.Trial, state: TrialState, value: float | None = None, **attributes: Any) -> None:
        try:
            for name, attribute in attributes.items():
                trial.set_user_attr(name, attribute)
            self.study.tell(trial, value, state)
        except (ValueError, optuna.exceptions.UpdateFinishedTrialError):
            log.warning("Trial %d is not counted: another command took this one for dead.", trial.number)

    # --- asking ------------------------------------------------------------------------------------------------------

    def _all(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _has_free(self) -> bool:
        """Whether there is a trial to start, after those of dead commands were given up."""
        with _turn(self.lock):
            self._give_up_dead()
        return self._number_taken() < self.trials

    def _number_taken(self) -> int:
        return sum(_counts(trial) and trial.state != TrialState.WAITING for trial in self._all())

    def _asked(self) -> Iterator[_Running]:
        """Ask for trials one by one, as long as there are some to start, and yield those to compute."""
        item = 0
        while item < self.trials:
            with _turn(self.lock):
                self._give_up_dead()
                if self._number_taken() >= self.trials:
                    return
                trial = self.study.ask(self.search.space)
                trial.set_user_attr("owner", self.me)
            one = _Running(trial, self.search.configuration(trial.params), item)
            if self._is_new(one):
                self.running[trial.number] = one
                item += 1
                yield one

    def _is_new(self, one: _Running) -> bool:
        """Whether a trial must be computed; if not, it is finished here."""
        trial, key = one.trial, self._key(one.trial.number, one.configuration)
        others = [other for other in self._all() if other.number != trial.number and _counts(other)]
        if sum(other.number < trial.number for other in others) >= self.trials:
            self._tell(trial, TrialState.FAIL)  # others were faster
            return False
        if trial.user_attrs.get("died", 0) >= _MOST_DEATHS:
            died = f"the command died {_MOST_DEATHS} times with these settings, perhaps because memory ran out"
            log.warning("Trial %d failed: %s", trial.number, died)
            self._tell(trial, TrialState.FAIL, error=died)
            return False
        equal = [
            other
            for other in others
            if other.state != TrialState.WAITING
            and self._key(other.number, self.search.configuration(other.params)) == key
        ]
        if not equal:
            return True
        twin = min(equal, key=lambda other: not other.state.is_finished())
        if twin.state == TrialState.RUNNING:
            self._tell(trial, TrialState.FAIL, duplicate=twin.number)
            return False
        for task, after in twin.intermediate_values.items():
            trial.report(after, task)
        error = {"error": twin.user_attrs["error"]} if "error" in twin.user_attrs else {}
        value = twin.value if twin.state == TrialState.COMPLETE else None
        self._tell(trial, twin.state, value, same_as=twin.number, **error)
        self._show()
        return False

    def _key(self, number: int, configuration: Configuration) -> str:
        if number not in self._keys:
            self._keys[number] = json.dumps(configuration.described(self.search.past.axis), sort_keys=True)
        return self._keys[number]

    # --- commands that died ------------------------------------------------------------------------------------------

    def _give_up_dead(self) -> None:
        """Fail the trials of commands that died, and queue their parameters again; needs the lock."""
        for trial in self._all():
            if trial.state == TrialState.RUNNING and trial.number not in self.running and self._is_dead(trial):
                try:
                    self.study.tell(trial.number, state=TrialState.FAIL)
                except (ValueError, optuna.exceptions.UpdateFinishedTrialError):
                    continue  # it has just finished, or another command was faster
                if trial.params:
                    log.info("Trial %d was not finished by its command, which died. It runs again.", trial.number)
                    died = trial.user_attrs.get("died", 0) + 1
                    self.study.enqueue_trial(trial.params, user_attrs={"died": died})

    def give_back(self) -> None:
        """Queue the parameters of running trials again; the end of this command does not count against them."""
        for one in self.running.values():
            died = one.trial.user_attrs.get("died", 0)
            with contextlib.suppress(Exception):  # such as a database that is gone: the error of the search counts
                self.study.tell(one.trial, state=TrialState.FAIL)
                self.study.enqueue_trial(one.trial.params, user_attrs={"died": died} if died else None)

    def _is_dead(self, trial: FrozenTrial) -> bool:
        if self.lock is not None and "owner" not in trial.user_attrs:
            return True  # a command that runs would hold the lock between asking for a trial and signing it
        host, _, process = str(trial.user_attrs.get("owner", "")).rpartition(" ")
        if self.lock is not None and os.name == "posix" and host == platform.node() and not _is_alive(int(process)):
            return True
        if trial.user_attrs.get("owner") == self.me:  # an earlier search of this process, which was interrupted
            return True
        beat = trial.user_attrs.get("beat")
        before = self._seen.get(trial.number)
        if before is None or before[0] != beat:
            self._seen[trial.number] = beat, time.monotonic()
            return False
        return time.monotonic() - before[1] > _GRACE

    @contextlib.contextmanager
    def signs_of_life(self) -> Iterator[None]:
        """Show other commands every few seconds that this one is alive."""
        ended = threading.Event()

        def beat() -> None:
            number = 0
            while not ended.wait(_BEAT):
                number += 1
                for one in list(self.running.values()):
                    with contextlib.suppress(Exception):  # it may have finished, or the database may be busy
                        one.trial.set_user_attr("beat", number)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    # --- results -----------------------------------------------------------------------------------------------------

    def _counted(self) -> list[FrozenTrial]:
        """Return the finished trials that count."""
        return [trial for trial in self._all() if _is_finished(trial)]

    def _show(self) -> None:
        finished = self._counted()
        done = [trial.value for trial in finished if trial.state == TrialState.COMPLETE and trial.value is not None]
        pruned = sum(trial.state == TrialState.PRUNED for trial in finished)
        running = sum(one.reported for one in self.running.values()) / (len(self.search.tasks) + 1)
        best = max(done, default=None)
        self.on_progress(TuningState(self.trials, min(len(finished), self.trials), pruned, running, best))

    def result(self) -> Tuning:
        """Return the best settings and all trials."""
        finished = self._counted()
        rows = tuple(_row(trial, self.search) for trial in finished)
        errors = [trial.user_attrs["error"] for trial in finished if "error" in trial.user_attrs]
        done = [row for row in rows if row.outcome == "done" and row.value is not None]
        if not done:
            raise EvergraphError(f"no trial finished; the first error: {errors[0] if errors else 'none'}")
        best = max(done, key=lambda row: (row.value, -row.number))
        start = self.search.start
        default = next((row.value for row in done if row.parameters == start), None)
        configuration = self.search.configuration(best.parameters)
        return Tuning(self.search, configuration, float(best.value or 0), default, rows, _importances(self.study))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _row(trial: FrozenTrial, search: Search) -> TriedSettings:
    names = {TrialState.COMPLETE: "done", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
    outcome = "reused" if "same_as" in trial.user_attrs else names[trial.state]
    tasks = len(trial.intermediate_values)
    parameters = search.rounded(trial.params)
    return TriedSettings(trial.number, parameters, trial.value, outcome, tasks, trial.user_attrs.get("seconds", 0.0))


def _importances(study: optuna.Study) -> dict[str, float]:
    """Return the importance of each parameter; empty if there are too few trials."""
    values = {trial.value for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))}
    if len(values) < _BEFORE_PRUNING:
        return {}
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()  # the others need scikit-learn
    return {
        name: float(share)
        for name, share in optuna.importance.get_param_importances(study, evaluator=evaluator).items()
    }


# --- in workers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskValues:
    """What a worker returns of a trial: the metric after each task (None if undefined), seconds, or an error."""

    values: tuple[float | None, ...]
    seconds: float
    error: str = ""


def measure(item: int, configuration: Configuration, threads: int) -> TaskValues:
    """Run a trial in a worker, task by task, until it is done or stopped."""
    graph, first, metric, seed = given()
    start = time.perf_counter()
    values: list[float | None] = []
    rows: list[TaskRow] = []
    try:
        with threads_each(threads), _without_remarks():
            learner = configuration.learner(seed)
            for index, task in enumerate(replace(configuration, first=first).tasks(graph)):
                rows.append(run_task(learner, replace(task, seed=seed)))
                values.append(_value(rows, seed, metric))
                if values[-1] is not None:
                    report(item, index, values[-1])
                if stopped(item):
                    break
    except EvergraphError as error:
        return TaskValues((), time.perf_counter() - start, str(error))
    return TaskValues(tuple(values), time.perf_counter() - start)


@contextlib.contextmanager
def _without_remarks() -> Iterator[None]:
    """Log no remarks on single trainings, of which there are many; warnings only."""
    levels = {name: logging.getLogger(f"evergraph.{name}").level for name in ("learning", "detect")}
    for name in levels:
        logging.getLogger(f"evergraph.{name}").setLevel(logging.WARNING)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(f"evergraph.{name}").setLevel(level)


def _value(rows: Sequence[TaskRow], seed: int, metric: str) -> float | None:
    column = METRICS[metric]
    return Results.of({seed: rows}).aggregate([column])[column]["mean"]


# --- on later tasks --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Later:
    """Results on the tasks after the search, with the settings found and with the defaults, over the same seeds.

    ``tuned`` and ``defaults`` have each metric (see `Results`); ``seconds`` covers these tasks only.
    """

    seeds: tuple[int, ...]
    times: tuple[int | str, ...]
    tuned: Mapping[str, Summary]
    defaults: Mapping[str, Summary]

    def as_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "seeds": list(self.seeds),
            "times": list(self.times),
            "tuned": dict(self.tuned),
            "defaults": dict(self.defaults),
        }


def evaluate_later(
    found: Tuning,
    graph: EvolvingGraph,
    seeds: Sequence[int] = (0, 1, 2),
    *,
    jobs: int = 1,
    engine: RayEngine | None = None,
    on_progress: OnProgress | None = None,
) -> Later | None:
    """Evaluate the settings found, and the defaults, on the tasks that the search has not seen; None without any.

    A learner goes through all tasks, because later ones continue from earlier ones; only the later ones are scored.
    The seeds of the defaults come after those of the settings found in ``on_progress``.
    """
    search = found.search
    if graph.last_time <= search.until:
        return None
    first, value = search.past.axis.value(search.first), graph.axis.value
    later = {value(task.time) for task in replace(search.base, first=first).tasks(graph) if task.time > search.until}
    if not later:
        return None
    summaries: list[dict[str, Summary]] = []
    for number, configuration in enumerate(
        [found.configuration] if found.is_default else [found.configuration, search.base]
    ):

        def shown(seed: int, *rest: int, before: int = number * len(seeds)) -> None:
            if on_progress is not None:
                on_progress(before + seed, *rest)

        with _without_remarks():
            done = run(replace(configuration, first=first), graph, seeds, jobs=jobs, engine=engine, on_progress=shown)
        rows = {seed: [row for row in of_seed if row.time in later] for seed, of_seed in done.rows.items()}
        results = Results.of(rows)
        summaries.append(results.aggregate())
        times = tuple(results.times)
    return Later(tuple(seeds), times, summaries[0], summaries[-1])
