"""Trials and where their results are kept: lines of JSON that are only ever appended to.

A trial is a configuration on a graph under one seed, which any process can run; a grid is a list of them.

::

    RESULTS/
      trials/dblp-easy.jsonl      one line for each finished trial on that graph
      .claims/                    a file for each trial that some process is at

A line is there once it ends. Each carries a checksum; a line that is half-written, changed, foreign or of another
version of the numbers is reported and left out, and its trial is run again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from evergraph.errors import InputError
from evergraph.evaluation.results import NUMERICS_VERSION
from evergraph.storage.files import append_line, disk_errors

__all__ = ["CLAIMS", "Problem", "Trial", "TrialResult", "TrialStore", "trial_key"]

TRIALS = "trials"
CLAIMS = ".claims"
_SUFFIX = ".jsonl"
_FIELDS = ("key", "graph", "trial", "seed", "result", "made")


class Trial(Protocol):
    """Something to run once: a value that can be sent to another process.

    What comes of it may depend on nothing but its description and its seed.
    """

    @property
    def graph_name(self) -> str:
        """Name of its graph; results of one graph are kept together."""

    @property
    def seed(self) -> int:
        """All its randomness."""

    def described(self) -> dict[str, Any]:
        """All that makes it this one but the seed, fit for JSON."""

    def run(self) -> dict[str, Any]:
        """What comes of it, fit for JSON."""


def trial_key(trial: Trial) -> str:
    """What a result is found by: a hash of the description, the seed and the version of the numbers."""
    identity = {"trial": trial.described(), "seed": trial.seed, "numerics_version": NUMERICS_VERSION}
    canonical = json.dumps(identity, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class TrialResult:
    """A trial that has run.

    Parameters
    ----------
    key
        See `trial_key`.
    graph, trial, seed
        Its graph's name, its description and its seed.
    result
        What came of it.
    made
        How: version of this package, number of threads, seconds, and when.
    """

    key: str
    graph: str
    trial: Mapping[str, Any]
    seed: int
    result: Mapping[str, Any]
    made: Mapping[str, Any]


@dataclass(frozen=True)
class Problem:
    """Something in a store that is not used.

    Parameters
    ----------
    file, line, what
        Where it is, and what is wrong with it.
    again
        Whether its trial has no other result.

    Examples
    --------
    >>> str(Problem(Path("trials/x.jsonl"), 3, "it is half-written"))
    'trials/x.jsonl, line 3: it is half-written; it is not used, and its trial will be run again'
    """

    file: Path
    line: int | None
    what: str
    again: bool = True

    def __str__(self) -> str:
        place = str(self.file) if self.line is None else f"{self.file}, line {self.line}"
        again = self.line is not None and self.again
        after = "it is not used" + (", and its trial will be run again" if again else "")
        return f"{place}: {self.what}; {after}"


@dataclass
class TrialStore:
    """The results in a folder.

    Examples
    --------
    >>> import tempfile
    >>> store = TrialStore(Path(tempfile.mkdtemp()))
    >>> store.read(), store.problems
    ({}, [])
    """

    folder: Path
    problems: list[Problem] = field(default_factory=list)

    def read(self, graph: str | None = None) -> dict[str, TrialResult]:
        """All finished trials by their key, or those on one graph; what cannot be used is in `problems` afterwards."""
        self.problems = []
        found: dict[str, TrialResult] = {}
        for path, content in _contents(self.folder / TRIALS, graph):
            if content is None:
                self.problems.append(Problem(path, None, "this is no file of results"))
                continue
            *lines, rest = content.split(b"\n")
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                row = _read(line)
                if isinstance(row, str):
                    self.problems.append(Problem(path, number, row))
                elif row.key in found:
                    self.problems.append(Problem(path, number, "the same trial has an earlier line", again=False))
                else:
                    found[row.key] = row
            if rest:
                self.problems.append(Problem(path, len(lines) + 1, "it is half-written"))
        return found

    def append(self, trial: Trial, result: Mapping[str, Any], made: Mapping[str, Any]) -> TrialResult:
        """Keep what came of a trial, and have the disk confirm it."""
        given: dict[str, Any] = {
            "key": trial_key(trial),
            "graph": trial.graph_name,
            "trial": trial.described(),
            "seed": trial.seed,
            "numerics_version": NUMERICS_VERSION,
            "result": result,
            "made": made,
        }
        row: dict[str, Any] = json.loads(_dumped(given))  # as it will be read: keys are strings, tuples are lists
        path = self.folder / TRIALS / f"{trial.graph_name}{_SUFFIX}"
        with disk_errors(path, "the result could not be kept"):
            path.parent.mkdir(parents=True, exist_ok=True)
            append_line(path, _dumped(row | {"check": _check(row)}))
        return TrialResult(**{name: row[name] for name in _FIELDS})

    @contextlib.contextmanager
    def claimed(self, key: str) -> Iterator[bool]:
        """Hold a trial, so that no other process runs it too; False if one is at it.

        A claim goes with its process, however that ends.
        """
        path = self.folder / CLAIMS / key
        with contextlib.ExitStack() as held:
            with disk_errors(path, "the trial could not be started"):
                path.parent.mkdir(parents=True, exist_ok=True)
                file = held.enter_context(path.open("w"))
                try:
                    _lock(file.fileno(), wait=False)
                    mine = _is_named(file.fileno(), path)  # else whoever had it has just let go of it
                except BlockingIOError:
                    mine = False
            yield mine
            if mine:
                with contextlib.suppress(OSError):  # Windows removes no file that is open
                    path.unlink()


def _contents(folder: Path, graph: str | None) -> Iterator[tuple[Path, bytes | None]]:
    """The files in a folder, or that of one graph, with what is in them; None for what cannot be results."""
    try:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if graph is not None and path.name != graph + _SUFFIX:
                continue
            if not path.name.endswith(_SUFFIX) or not path.is_file():
                yield path, None
                continue
            with path.open("rb") as file:
                with contextlib.suppress(OSError):  # not every disk can lock
                    _lock(file.fileno(), wait=True, shared=True)  # a line that is being written is not half-written
                content = file.read()
            yield path, content
    except OSError as error:
        raise InputError(
            f"the results could not be read ({error.strerror or error})",
            file=error.filename or folder,
            fix="change permissions, or choose another folder of results",
        ) from error


def _dumped(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _check(row: Mapping[str, Any]) -> str:
    canonical = json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _read(line: bytes) -> TrialResult | str:
    """A line as a finished trial, or what is wrong with it."""
    try:
        row = json.loads(line)
        check = row.pop("check")
        found = TrialResult(**{name: row[name] for name in _FIELDS})
        version, right = row["numerics_version"], _check(row)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "it is no result, or is half-written"
    if check != right:
        return "it was changed after it was written"
    if version != NUMERICS_VERSION:
        return f"it has version {version} of the numbers, and {NUMERICS_VERSION} is the one here"
    return found


def _lock(handle: int, *, wait: bool, shared: bool = False) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows, where one process should write at a time
        return
    fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))


def _is_named(handle: int, path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def check_folder(folder: Path) -> None:
    """Refuse a place that cannot be a folder of results."""
    if folder.exists() and not folder.is_dir():
        raise InputError("this is a file, not a folder", file=folder, fix="choose another folder")
