"""Running a grid of trials: each once, on any number of processes, each result kept as it comes.

Any number of processes may work on one grid, started by one command or by several: a trial is claimed before it is run,
and what has a result is not run again.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from evergraph.errors import EvergraphError, InputError
from evergraph.evaluation.processes import InProcess, completed, executor_for, threads_each
from evergraph.evaluation.trials import Trial, TrialResult, TrialStore, trial_key

__all__ = ["Done", "GridState", "OnDone", "run_grid", "work"]

log = logging.getLogger(__name__)

_PATIENCE = 5.0  # seconds between looks at a trial that another process is at


@dataclass(frozen=True)
class Done:
    """What became of a trial: it ``ran``, was ``there`` already, is being run ``elsewhere``, or ``failed``."""

    key: str
    outcome: Literal["ran", "there", "elsewhere", "failed"]
    seconds: float = 0.0
    accuracy: float | None = None
    error: str = ""


@dataclass
class GridState:
    """How far a grid is.

    Parameters
    ----------
    total, there
        Number of trials, and how many had a result: from the start, or since another command put them there.
    ran, failed
        How many ran here, and how many came to nothing.
    left_seconds
        About how long the rest will take; None while nothing has run.
    best
        The best trial that has run, in words.
    errors
        What was wrong with those that failed.
    """

    total: int
    there: int = 0
    ran: int = 0
    failed: int = 0
    left_seconds: float | None = None
    best: str = ""
    errors: list[str] = field(default_factory=list)

    @property
    def left(self) -> int:
        """How many are still to come."""
        return self.total - self.there - self.ran - self.failed


OnDone = Callable[[GridState], object]
"""Called at the start and after each trial."""


def run_grid(
    trials: Sequence[Trial],
    folder: Path,
    *,
    jobs: int = 1,
    threads: int | None = None,
    executor: Executor | None = None,
    on_done: OnDone | None = None,
) -> dict[str, TrialResult]:
    """Run those trials of a grid that have no result yet; returns all results of the grid by key.

    Parameters
    ----------
    trials
        The grid, in the order to run it.
    folder
        Where results are kept (`TrialStore`).
    jobs, threads
        Number of processes, and of threads in each; unless given, the cores shared out among the processes.
    executor
        Runs the trials in place of our own processes, twice ``jobs`` of them at hand: anything with the ``submit`` of
        `concurrent.futures` whose workers see the same folder.
    on_done
        Whom to tell how far it is.
    """
    if jobs < 1:
        raise InputError(f"jobs is {jobs}", fix="give a whole number from 1 up")
    store = TrialStore(folder)
    by_key = {trial_key(trial): trial for trial in trials}
    there = store.read()
    for problem in store.problems:
        log.warning("%s", problem)
    state = GridState(len(by_key), there=sum(key in there for key in by_key))
    if on_done is not None:
        on_done(state)
    waiting = [trial for key, trial in by_key.items() if key not in there]
    if waiting:
        threads = threads or max((os.cpu_count() or 1) // jobs, 1)
        tally = _Tally(state, waiting, jobs, on_done)
        for key, trial in by_key.items():
            if key in there:
                tally.learn(trial, there[key].made["seconds"])
        with executor_for(executor, min(jobs, len(waiting))) as pool:
            _run_all(waiting, folder, threads, pool, jobs, tally)
    found = store.read()
    if state.errors:
        log.warning("%d of %d trials failed; the first: %s", state.failed, state.total, state.errors[0])
    return {key: found[key] for key in by_key if key in found}


def _run_all(trials: Sequence[Trial], folder: Path, threads: int, pool: Executor, jobs: int, tally: _Tally) -> None:
    """Keep the pool busy; trials that another process is at are looked at again once all else is done."""
    at_hand = 1 if isinstance(pool, InProcess) else 2 * jobs  # one more each, so that no process waits for us
    while trials:
        elsewhere = []
        with closing(completed(trials, lambda trial: pool.submit(work, folder, trial, threads), at_hand)) as outcomes:
            for trial, done in outcomes:
                if done.outcome == "elsewhere":
                    elsewhere.append(trial)
                else:
                    tally.add(done, trial)
        if elsewhere:
            time.sleep(_PATIENCE)
        trials = elsewhere


def work(folder: Path, trial: Trial, threads: int) -> Done:
    """Run one trial, unless it has a result or another process is at it; this is what a worker does."""
    import evergraph

    store, key = TrialStore(folder), trial_key(trial)
    with store.claimed(key) as mine, threads_each(threads):
        if not mine:
            return Done(key, "elsewhere")
        if key in store.read(trial.graph_name):
            return Done(key, "there")
        start = time.perf_counter()
        try:
            result = trial.run()
        except EvergraphError as error:
            return Done(key, "failed", error=f"{in_words(trial)}: {error}")
        seconds = time.perf_counter() - start
        made = {
            "version": evergraph.__version__,
            "threads": threads,
            "seconds": round(seconds, 3),
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        store.append(trial, result, made)
    return Done(key, "ran", seconds, _accuracy(result))


def _accuracy(result: Any) -> float | None:
    found = result.get("accuracy")
    values = [value for value in (found if isinstance(found, list | tuple) else [found]) if value is not None]
    return sum(values) / len(values) if values else None


class _Tally:
    """Counts outcomes, tells of them, and guesses how long the rest will take, from trials that are most like it."""

    def __init__(self, state: GridState, waiting: Iterable[Trial], jobs: int, on_done: OnDone | None) -> None:
        self.state, self.jobs, self.on_done = state, jobs, on_done
        self.waiting = Counter(map(kinds_of, waiting))
        self.best = -1.0
        self._seconds: dict[str, tuple[float, int]] = {}

    def learn(self, trial: Trial, seconds: float) -> None:
        """Take note of how long a trial took."""
        for kind in kinds_of(trial):
            total, number = self._seconds.get(kind, (0.0, 0))
            self._seconds[kind] = total + seconds, number + 1

    def add(self, done: Done, trial: Trial) -> None:
        """Count an outcome."""
        state = self.state
        self.waiting[kinds_of(trial)] -= 1
        if done.outcome == "ran":
            state.ran += 1
            self.learn(trial, done.seconds)
            if done.accuracy is not None and done.accuracy > self.best:
                self.best, state.best = done.accuracy, f"accuracy {done.accuracy:.3f}: {in_words(trial)}"
        elif done.outcome == "there":
            state.there += 1
        else:
            state.failed += 1
            state.errors.append(done.error)
        guesses = [(self._guess(kinds), number) for kinds, number in self.waiting.items() if number]
        known = [guess * number for guess, number in guesses if guess is not None]
        state.left_seconds = sum(known) / self.jobs if len(known) == len(guesses) else None
        if self.on_done is not None:
            self.on_done(state)

    def _guess(self, kinds: Sequence[str]) -> float | None:
        known = next((self._seconds[kind] for kind in kinds if kind in self._seconds), None)
        return None if known is None else known[0] / known[1]


def kinds_of(trial: Trial) -> tuple[str, ...]:
    """What a trial's time may be guessed from, the best first: trials like it, of its model, on its graph, any."""
    settings = _settings(trial)
    graph, model = trial.graph_name, json.dumps(settings.get("model"))
    rest = json.dumps([settings.get(name) for name in ("history", "steps", "pretraining", "split")])
    return f"{graph} {model} {rest}", f"{graph} {model}", f"{graph}", ""


def _settings(trial: Trial) -> dict[str, Any]:
    described = trial.described()
    found: dict[str, Any] = described.get("configuration", described)
    return found


def in_words(trial: Trial) -> str:
    """A trial in a few words, for progress."""
    settings = _settings(trial)
    model, parts = settings.get("model"), [trial.graph_name]
    if model is not None:
        parts.append(model["name"] if isinstance(model, dict) else str(model))
    if "history" in settings:
        parts.append(f"history {settings['history']}")
    if "restart" in settings:
        parts.append(settings["restart"])
    return ", ".join([*parts, f"seed {trial.seed}"])
