"""Trials and grids: run each trial once, on any number of processes, and store each result as it finishes.

A trial is one configuration with one seed on one graph; a grid is a list of trials. A command claims a trial, has a
worker run it (a process of this machine, or a task on a Ray cluster), and stores the result. Several commands can work
on one grid: finished trials are skipped, and trials that another command has claimed are left to it.

::

    RESULTS/
      trials/dblp-easy.jsonl      one line per finished trial on that graph, only ever appended to
      .claims/                    one file per trial that a command is running

Each line has a checksum. A line that is incomplete, changed, foreign or of a numerics version that cannot be compared
with this one is reported and ignored, and its trial runs again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from evergraph.errors import EvergraphError, InputError, os_error
from evergraph.evaluation.results import COMPARABLE_VERSIONS, NUMERICS_VERSION
from evergraph.evaluation.workers import RayEngine, Workers, check_jobs, completed, start_workers, threads_each
from evergraph.storage.decoding import converted, parse_json
from evergraph.storage.files import append_line, disk_errors

__all__ = ["CLAIMS", "GridState", "Problem", "Trial", "TrialResult", "TrialStore", "run_grid", "trial_key"]

log = logging.getLogger(__name__)

TRIALS = "trials"
CLAIMS = ".claims"
_SUFFIX = ".jsonl"
_FIELDS = ("key", "graph", "trial", "seed", "result", "made")
_WAIT = 5.0  # seconds before checking again on a trial that another process is running


class Trial(Protocol):
    """A picklable unit of work whose result depends only on its description and its seed.

    A trial that opens a graph with `graph_of` has its path in ``graph_path``, so that a cluster gets the graph once.
    """

    @property
    def graph_name(self) -> str:
        """Name of the graph; results on one graph share a file."""

    @property
    def seed(self) -> int:
        """Seed of all randomness."""

    def described(self) -> dict[str, Any]:
        """Return everything that identifies the trial except the seed, for JSON."""

    def run(self) -> dict[str, Any]:
        """Run the trial and return its result, for JSON."""


def trial_key(trial: Trial) -> str:
    """Return the key of a result: a hash of description, seed and numerics version."""
    return _key(trial.described(), trial.seed)


def _key(described: Mapping[str, Any], seed: int) -> str:
    identity = {"trial": described, "seed": seed, "numerics_version": NUMERICS_VERSION}
    canonical = json.dumps(identity, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class TrialResult:
    """A finished trial: key (`trial_key`), graph name, description, seed and result.

    ``made`` records the package version, number of threads, seconds and date.
    """

    key: str
    graph: str
    trial: Mapping[str, Any]
    seed: int
    result: Mapping[str, Any]
    made: Mapping[str, Any]
    numerics_version: int = NUMERICS_VERSION


@dataclass(frozen=True)
class Problem:
    """A file or line of a store that is ignored; ``again`` is whether its trial has no other result.

    Examples
    --------
    >>> str(Problem(Path("trials/x.jsonl"), 3, "the line is incomplete"))
    'trials/x.jsonl, line 3: the line is incomplete; it is ignored, and its trial will run again'
    """

    file: Path
    line: int | None
    what: str
    again: bool = True

    def __str__(self) -> str:
        place = str(self.file) if self.line is None else f"{self.file}, line {self.line}"
        again = self.line is not None and self.again
        after = "it is ignored" + (", and its trial will run again" if again else "")
        return f"{place}: {self.what}; {after}"


@dataclass
class TrialStore:
    """The results of finished trials in a folder."""

    folder: Path
    problems: list[Problem] = field(default_factory=list)
    _found: dict[str, TrialResult] = field(default_factory=dict)
    _places: dict[Path, tuple[int, int]] = field(default_factory=dict)  # bytes and lines that were read

    def read(self) -> dict[str, TrialResult]:
        """Return all finished trials by key; sets `problems` to what had to be ignored."""
        self.problems, self._found, self._places = [], {}, {}
        for path, rest in self._read_on():
            if rest is None:
                self.problems.append(Problem(path, None, "this is not a file of results"))
            elif rest:
                self.problems.append(Problem(path, self._places[path][1] + 1, "the line is incomplete"))
        return dict(self._found)

    def has(self, key: str) -> bool:
        """Whether a trial is finished; reads only what was appended since the last look."""
        if key not in self._found:
            for _ in self._read_on():
                pass
        return key in self._found

    def _read_on(self) -> Iterator[tuple[Path, bytes | None]]:
        """Read what was appended to each file; yields the file with its incomplete last line, or None if foreign."""
        for path, start, content in _contents(self.folder / TRIALS, self._places):
            if content is None:
                yield path, None
                continue
            *lines, rest = content.split(b"\n")
            first = self._places.get(path, (0, 0))[1] + 1
            self._places[path] = start + len(content) - len(rest), first - 1 + len(lines)
            for number, line in enumerate(lines, start=first):
                if not line.strip():
                    continue
                row = _read(line)
                if isinstance(row, str):
                    self.problems.append(Problem(path, number, row))
                elif row.key in self._found and self._found[row.key].numerics_version >= row.numerics_version:
                    self.problems.append(Problem(path, number, "the same trial has an earlier line", again=False))
                else:
                    self._found[row.key] = row
            yield path, rest

    def append(self, trial: Trial, result: Mapping[str, Any], made: Mapping[str, Any]) -> TrialResult:
        """Append the result of a trial and sync it to disk."""
        given: dict[str, Any] = {
            "key": trial_key(trial),
            "graph": trial.graph_name,
            "trial": trial.described(),
            "seed": trial.seed,
            "numerics_version": NUMERICS_VERSION,
            "result": result,
            "made": made,
        }
        row: dict[str, Any] = json.loads(_dumped(given))  # as it will be read: string keys, lists
        path = self.folder / TRIALS / f"{trial.graph_name}{_SUFFIX}"
        with disk_errors(path, "the result could not be written"):
            path.parent.mkdir(parents=True, exist_ok=True)
            append_line(path, _dumped(row | {"check": _check(row)}))
        return TrialResult(**{name: row[name] for name in _FIELDS})

    @contextlib.contextmanager
    def claimed(self, key: str) -> Iterator[bool]:
        """Claim a trial until the block ends; gives False if another process has it.

        The operating system releases the claim of a process that ends, however it ends.
        """
        path = self.folder / CLAIMS / key
        with contextlib.ExitStack() as held:
            with disk_errors(path, "the trial could not be started"):
                path.parent.mkdir(parents=True, exist_ok=True)
                file = held.enter_context(path.open("w"))
                try:
                    _lock(file.fileno(), wait=False)
                    mine = _is_named(file.fileno(), path)  # else the other process has just removed it
                except BlockingIOError:
                    mine = False
            yield mine
            if mine:
                with contextlib.suppress(OSError):  # Windows does not remove open files
                    path.unlink()


def _contents(folder: Path, places: Mapping[Path, tuple[int, int]]) -> Iterator[tuple[Path, int, bytes | None]]:
    """Return the files of a folder with their content after the bytes already read; None for other files."""
    try:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if not path.name.endswith(_SUFFIX) or not path.is_file():
                yield path, 0, None
                continue
            start = places.get(path, (0, 0))[0]
            if start and path.stat().st_size == start:
                continue
            with path.open("rb") as file:
                with contextlib.suppress(OSError):  # not every file system can lock
                    _lock(file.fileno(), wait=True, shared=True)  # waits until a line is written completely
                file.seek(start)
                content = file.read()
            yield path, start, content
    except OSError as error:
        raise os_error(error, "the results could not be read", file=folder) from error


def _dumped(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _check(row: Mapping[str, Any]) -> str:
    canonical = json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _read(line: bytes) -> TrialResult | str:
    """Return a finished trial, or what is wrong with the line."""
    try:
        row = parse_json(line)
        check = row.pop("check")
        found = converted({name: row[name] for name in _FIELDS}, TrialResult)
        version, right = row["numerics_version"], _check(row)
    except (ValueError, LookupError, TypeError, AttributeError):
        return "the line is not a result, or is incomplete"
    if check != right:
        return "the line was changed after it was written"
    if version == NUMERICS_VERSION:
        return found
    if version not in COMPARABLE_VERSIONS:
        return f"the line has numerics version {version}, but this Evergraph computes version {NUMERICS_VERSION}"
    return replace(found, key=_key(found.trial, found.seed), numerics_version=version)


def _lock(handle: int, *, wait: bool, shared: bool = False) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: run one process at a time
        return
    fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))


def _is_named(handle: int, path: Path) -> bool:
    """Whether an open file still has this path."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def check_folder(folder: Path) -> None:
    """Refuse a path that is a file."""
    if folder.exists() and not folder.is_dir():
        raise InputError("this is a file, not a folder", file=folder, fix="choose another folder")


# --- grids -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    """Outcome of a trial: it ``ran``, was ``there`` already, or ``failed``."""

    outcome: Literal["ran", "there", "failed"]
    seconds: float = 0.0
    accuracy: float | None = None
    error: str = ""


@dataclass
class GridState:
    """Progress of a grid.

    Parameters
    ----------
    total, there
        Number of trials, and how many had a result before, or got one from another command.
    ran, failed
        Number of trials that ran here, and that failed.
    left_seconds
        Estimated seconds for the rest; None until a trial has run.
    best
        Description of the best trial that ran.
    errors
        Messages of the failed trials.
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
        """Number of trials that are not done yet."""
        return self.total - self.there - self.ran - self.failed


def run_grid(
    trials: Sequence[Trial],
    folder: Path,
    *,
    jobs: int = 1,
    threads: int | None = None,
    engine: RayEngine | None = None,
    on_done: Callable[[GridState], object] | None = None,
) -> dict[str, TrialResult]:
    """Run all trials of a grid that have no result yet, and return all results of the grid by key.

    Parameters
    ----------
    trials
        The grid, in the order to run it.
    folder
        Folder of the results (`TrialStore`).
    jobs, threads
        Number of processes, and of threads of each; by default they share all cores. A trial on Ray has as many threads
        as it reserves cores.
    engine
        Run the trials on a Ray cluster instead. Only this process writes to the folder.
    on_done
        Called with the progress at the start and after each trial.
    """
    check_jobs(jobs)
    store = TrialStore(folder)
    by_key = {trial_key(trial): trial for trial in trials}
    there = store.read()
    for problem in store.problems:
        log.warning("%s", problem)
    state = GridState(len(by_key), there=sum(key in there for key in by_key))
    if on_done is not None:
        on_done(state)
    waiting = {key: trial for key, trial in by_key.items() if key not in there}
    if waiting:
        if threads is None:
            threads = max((os.cpu_count() or 1) // jobs, 1) if engine is None else engine.threads
        tally = _Tally(state, waiting.values(), jobs, on_done)
        for key, trial in by_key.items():
            if key in there:
                tally.learn(trial, there[key].made["seconds"])
        paths = [path for trial in waiting.values() if (path := getattr(trial, "graph_path", None)) is not None]
        with start_workers(engine, jobs, items=len(waiting), graphs=paths) as workers:
            _run_all(waiting, store, workers, threads, tally)
    found = store.read()
    if state.errors:
        log.warning("%d of %d trials failed; the first: %s", state.failed, state.total, state.errors[0])
    return {key: found[key] for key in by_key if key in found}


def _run_all(waiting: Mapping[str, Trial], store: TrialStore, workers: Workers, threads: int, tally: _Tally) -> None:
    """Run all trials; look again at those that other commands have claimed when all others are done."""
    while True:
        with contextlib.closing(_Claims(waiting, store, tally)) as claims:
            for (key, trial), found in completed(
                claims, lambda item: workers.submit(measure, item[1], threads), workers
            ):
                if found.error:
                    tally.add(Done("failed", error=found.error), trial)
                else:
                    store.append(trial, found.result, found.made)
                    tally.add(Done("ran", found.made["seconds"], _accuracy(found.result)), trial)
                claims.release(key)
        waiting = claims.elsewhere
        if not waiting:
            return
        time.sleep(_WAIT)


class _Claims:
    """Claims trials one by one, just before they are submitted; ``elsewhere`` are those that other commands have."""

    def __init__(self, waiting: Mapping[str, Trial], store: TrialStore, tally: _Tally) -> None:
        self._waiting, self._store, self._tally = waiting, store, tally
        self._held: dict[str, contextlib.ExitStack] = {}
        self.elsewhere: dict[str, Trial] = {}

    def __iter__(self) -> Iterator[tuple[str, Trial]]:
        for key, trial in self._waiting.items():
            self._held[key] = contextlib.ExitStack()
            if not self._held[key].enter_context(self._store.claimed(key)):
                self.elsewhere[key] = trial
            elif self._store.has(key):
                self._tally.add(Done("there"), trial)
            else:
                yield key, trial
                continue
            self.release(key)

    def release(self, key: str) -> None:
        self._held.pop(key).close()

    def close(self) -> None:
        for key in list(self._held):
            self.release(key)


@dataclass(frozen=True)
class Measurement:
    """What a worker returns of a trial: its result and how it was made, or the message of its error."""

    result: Mapping[str, Any] = field(default_factory=dict)
    made: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


def measure(trial: Trial, threads: int) -> Measurement:
    """Run one trial in a worker."""
    import evergraph

    start = time.perf_counter()
    try:
        with threads_each(threads):
            result = trial.run()
    except EvergraphError as error:
        return Measurement(error=f"{in_words(trial)}: {error}")
    made = {
        "version": evergraph.__version__,
        "threads": threads,
        "seconds": round(time.perf_counter() - start, 3),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return Measurement(result, made)


def _accuracy(result: Any) -> float | None:
    found = result.get("accuracy")
    values = [value for value in (found if isinstance(found, list | tuple) else [found]) if value is not None]
    return sum(values) / len(values) if values else None


class _Tally:
    """Counts outcomes, reports them, and estimates the seconds left from the most similar trials."""

    def __init__(
        self, state: GridState, waiting: Iterable[Trial], jobs: int, on_done: Callable[[GridState], object] | None
    ) -> None:
        self.state, self.jobs, self.on_done = state, jobs, on_done
        self.waiting = Counter(map(kinds_of, waiting))
        self.best = -1.0
        self._seconds: dict[str, tuple[float, int]] = {}

    def learn(self, trial: Trial, seconds: float) -> None:
        for kind in kinds_of(trial):
            total, number = self._seconds.get(kind, (0.0, 0))
            self._seconds[kind] = total + seconds, number + 1

    def add(self, done: Done, trial: Trial) -> None:
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
        estimates = [(self._estimate(kinds), number) for kinds, number in self.waiting.items() if number]
        known = [seconds * number for seconds, number in estimates if seconds is not None]
        state.left_seconds = sum(known) / self.jobs if len(known) == len(estimates) else None
        if self.on_done is not None:
            self.on_done(state)

    def _estimate(self, kinds: Sequence[str]) -> float | None:
        known = next((self._seconds[kind] for kind in kinds if kind in self._seconds), None)
        return None if known is None else known[0] / known[1]


def kinds_of(trial: Trial) -> tuple[str, ...]:
    """Return groups of similar trials for the estimate: same settings, same model, same graph, any."""
    settings = _settings(trial)
    graph, model = trial.graph_name, json.dumps(settings.get("model"))
    rest = json.dumps([settings.get(name) for name in ("history", "steps", "pretraining", "split")])
    return f"{graph} {model} {rest}", f"{graph} {model}", f"{graph}", ""


def _settings(trial: Trial) -> dict[str, Any]:
    described = trial.described()
    found: dict[str, Any] = described.get("configuration", described)
    return found


def in_words(trial: Trial) -> str:
    """Describe a trial in a few words."""
    settings = _settings(trial)
    model, parts = settings.get("model"), [trial.graph_name]
    if model is not None:
        parts.append(model["name"] if isinstance(model, dict) else str(model))
    if "history" in settings:
        parts.append(f"history {settings['history']}")
    if "restart" in settings:
        parts.append(settings["restart"])
    return ", ".join([*parts, f"seed {trial.seed}"])
