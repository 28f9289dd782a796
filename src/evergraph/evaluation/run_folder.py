"""A run on disk, which can be killed at any moment and gone on with.

::

    RUN/
      run.json                  what was run: the configuration, and the fingerprint of the graph
      graph.json                what a report tells of the graph
      results.jsonl             one line for each task of each seed, only ever appended to
      decisions/seed-0/         the decisions of a seed, one file for each task
      checkpoints/seed-0/       the learner of a seed that is not finished, as of its last task

A line is there once it ends; what a kill has left of one is cut off. Decisions are written before their line, and a
line before its checkpoint: decisions without a line are written again, a learner that is behind the lines adapts once
more to what it has missed, and one that is ahead of them is not used.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.errors import InputError
from evergraph.evaluation.results import TaskRow, differences
from evergraph.storage.files import LOCK, append_line, disk_errors, locked, sync_folder, write_atomic

__all__ = ["KeptRun", "RunFolder", "open_run", "read_run"]

log = logging.getLogger(__name__)

FORMAT = "evergraph run"
FORMAT_VERSION = 1
MANIFEST = "run.json"
GRAPH = "graph.json"
RESULTS = "results.jsonl"
DECISIONS = "decisions"
CHECKPOINTS = "checkpoints"

_SeedAndTime = tuple[int, int | str]

_NOT_KEPT = "the run could not be kept"
_REMOVE = "remove the file and run the same command again, which writes it anew"
_ELSEWHERE = "choose another folder (--out), or start over in this one (--replace)"


class RunFolder:
    """A run's folder while it is held; see `open_run`.

    Parameters
    ----------
    path
        The folder.
    rows
        The rows that are there.
    """

    def __init__(self, path: Path, rows: dict[_SeedAndTime, TaskRow]) -> None:
        self.path, self.rows = path, rows

    def append(self, row: TaskRow) -> None:
        """Add a row, unless there is one of its seed and time, and have the disk confirm it."""
        if (row.seed, row.time) in self.rows:
            return
        path = self.path / RESULTS
        with disk_errors(path, _NOT_KEPT):
            append_line(path, json.dumps(row.as_dict(), ensure_ascii=False, allow_nan=False).encode())
        self.rows[row.seed, row.time] = row

    def keep_graph(self, facts: Callable[[], Mapping[str, Any]]) -> None:
        """Keep what a report tells of the graph, unless it is there."""
        path = self.path / GRAPH
        if not path.exists():
            data = json.dumps(facts(), ensure_ascii=False, allow_nan=False).encode() + b"\n"
            with disk_errors(path, _NOT_KEPT):
                write_atomic(path, data)

    def keep_decisions(self, seed: int, time: int | str, decided: Callable[[], bytes]) -> None:
        """Keep the decisions of a task, unless they are there with their row."""
        path = decisions_file(self.path, seed, time)
        if (seed, time) in self.rows and path.exists():
            return
        data = decided()
        with disk_errors(path, _NOT_KEPT):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, data)

    def checkpoint(self, seed: int) -> Path:
        """Folder of a seed's learner."""
        return self.path / CHECKPOINTS / f"seed-{seed}"

    def finish(self, seed: int) -> None:
        """Remove the learner of a seed that has all its rows."""
        shutil.rmtree(self.checkpoint(seed), ignore_errors=True)
        with contextlib.suppress(OSError):
            self.checkpoint(seed).parent.rmdir()  # which it refuses if there is anything inside


def decisions_file(folder: Path, seed: int, time: int | str) -> Path:
    """The file of the decisions of a task under a seed."""
    return folder / DECISIONS / f"seed-{seed}" / f"{time}.parquet"


@dataclass(frozen=True)
class KeptRun:
    """A run as its folder has it, finished or not.

    Parameters
    ----------
    path
        The folder.
    identity
        What was run: ``configuration``, ``fingerprint`` and ``numerics_version``.
    graph
        What is told of the graph, see `GraphDescription`; None where a run was made before such was kept.
    rows
        For each seed its rows, in the order of their tasks.
    """

    path: Path
    identity: Mapping[str, Any]
    graph: Mapping[str, Any] | None
    rows: Mapping[int, tuple[TaskRow, ...]]

    def decisions(self, seed: int, time: int | str) -> Path | None:
        """The file of the decisions of a task; None where it is not there."""
        path = decisions_file(self.path, seed, time)
        return path if path.is_file() else None


def read_run(folder: Path) -> KeptRun:
    """Read the folder of a run without holding or changing it; a run under way is read as far as it is."""
    manifest = folder / MANIFEST
    if not folder.is_dir():
        problem = "this is a file, not a folder" if folder.exists() else "there is no such folder"
        raise InputError(problem, file=folder, fix="give the folder of a run ('evergraph run … --out RUN')")
    if not manifest.is_file():
        raise InputError(
            "this is not the folder of a run", file=folder, fix="give one that 'evergraph run --out' wrote"
        )
    identity = _read_identity(manifest, ("configuration", "fingerprint", "numerics_version"))
    if not isinstance(identity["configuration"], dict):
        raise InputError("this is not the file of a run, or it is damaged", file=manifest, fix=_ELSEWHERE)
    try:
        data = (folder / RESULTS).read_bytes()
    except FileNotFoundError:
        data = b""
    rows: dict[int, list[TaskRow]] = {}
    for (seed, _), row in _parse_rows(folder / RESULTS, data).items():
        rows.setdefault(seed, []).append(row)
    # Lines are in the order of their writing, which after a repair need not be that of the tasks.
    ordered = {seed: tuple(sorted(rows[seed], key=_place)) for seed in sorted(rows)}
    return KeptRun(folder, identity, _read_graph(folder / GRAPH), ordered)


def _place(row: TaskRow) -> tuple[bool, int | str]:
    """What rows are ordered by; numbers and strings, which one run cannot both have, are kept apart."""
    return isinstance(row.time, str), row.time


def _read_graph(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError("this is not what a run keeps of its graph, or it is damaged", file=path, fix=_REMOVE)
    return found


@contextlib.contextmanager
def open_run(
    folder: Path, identity: Mapping[str, Any], times: Collection[int | str], *, replace: bool = False
) -> Iterator[RunFolder]:
    """Hold the folder of a run, a new one or one to go on with; no other process can.

    Parameters
    ----------
    folder
        Where it is or will be.
    identity
        What makes it this run and no other: ``configuration``, ``fingerprint`` and ``numerics_version``.
    times
        Those of its tasks.
    replace
        Remove the rows and learners that are there.
    """
    _check_destination(folder)
    with contextlib.ExitStack() as held:
        with disk_errors(folder, _NOT_KEPT):
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(folder, "run"))
            _check_destination(folder)  # another process may have been faster
            rows = _prepare(folder, identity, times, replace=replace)
        yield RunFolder(folder, rows)


def _check_destination(folder: Path) -> None:
    """Refuse a folder that is not a run's, and would not be looked for in one."""
    if folder.exists() and not folder.is_dir():
        raise InputError("this is a file, not a folder", file=folder, fix="choose another folder")
    if not folder.is_dir() or (folder / MANIFEST).exists():
        return
    if {entry.name for entry in folder.iterdir()} - {LOCK, f"{MANIFEST}.new"}:
        raise InputError("the folder holds something else", file=folder, fix="choose an empty or a new folder")


def _prepare(
    folder: Path, identity: Mapping[str, Any], times: Collection[int | str], *, replace: bool
) -> dict[_SeedAndTime, TaskRow]:
    """The rows that are there, in a folder that is from now on of this identity."""
    manifest = folder / MANIFEST
    if manifest.exists() and replace:
        _check_format(manifest)
    elif manifest.exists():
        problem = _other(manifest, identity)
        if problem is None:
            return _read_rows(folder / RESULTS, times)
        if (folder / RESULTS).exists() and b"\n" in (folder / RESULTS).read_bytes():  # else there is nothing to lose
            raise InputError(problem, file=folder, fix=_ELSEWHERE)
    # What is left of another run goes first, so that it can never pass for this one's.
    (folder / RESULTS).unlink(missing_ok=True)
    for kept in (CHECKPOINTS, DECISIONS):
        if (folder / kept).exists():
            shutil.rmtree(folder / kept)
    (folder / GRAPH).unlink(missing_ok=True)
    sync_folder(folder)
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **identity}
    write_atomic(manifest, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n")
    return {}


def _check_format(manifest: Path) -> None:
    """Refuse to start over where another program keeps its own."""
    try:
        ours = json.loads(manifest.read_bytes())["format"] == FORMAT
    except (ValueError, LookupError, TypeError, RecursionError):
        ours = False
    if not ours:
        raise InputError("this is not the file of a run of ours", file=manifest, fix="choose an empty or a new folder")


def _other(manifest: Path, identity: Mapping[str, Any]) -> str | None:
    """In what the run that is there is not this one; None if it is."""
    there = _read_identity(manifest, identity)
    if there["fingerprint"] != identity["fingerprint"]:
        return "there is a run on another graph"
    if there["configuration"] != identity["configuration"]:
        return f"there is another run: {differences(there['configuration'], identity['configuration'])}"
    if there["numerics_version"] != identity["numerics_version"]:
        return (
            "the run was started by an Evergraph that computes other numbers "
            f"(numerics version {there['numerics_version']}, here {identity['numerics_version']})"
        )
    return None


def _read_identity(manifest: Path, keys: Collection[str]) -> dict[str, Any]:
    """What the run in a folder is."""
    try:
        content = json.loads(manifest.read_bytes())
        version = content["format_version"] if content["format"] == FORMAT else 0
        there = {key: content[key] for key in keys} if version == FORMAT_VERSION else {}
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise InputError("this is not the file of a run, or it is damaged", file=manifest, fix=_ELSEWHERE) from error
    if not there:
        raise InputError(
            f"the run has format version {version}, but {FORMAT_VERSION} is the one known here",
            file=manifest,
            fix=f"use the Evergraph that made it, or {_ELSEWHERE}",
        )
    return there


def _read_rows(path: Path, times: Collection[int | str]) -> dict[_SeedAndTime, TaskRow]:
    """The rows of a file, after cutting off a half-written last line."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        log.info("%s: cutting off a half-written last line", path)
        with path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
    rows = _parse_rows(path, data)
    for number, row in enumerate(rows.values(), start=1):
        if row.time not in times:
            raise _broken(path, number, f"this is a row of {row.time}, at which the run has no task")
    return rows


def _parse_rows(path: Path, data: bytes) -> dict[_SeedAndTime, TaskRow]:
    """The rows of all lines that end, in their order."""
    rows: dict[_SeedAndTime, TaskRow] = {}
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            row = TaskRow.from_dict(json.loads(line))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            what = error.problem if isinstance(error, InputError) else "it is no JSON object"
            raise _broken(path, number, f"this is no row of a run ({what})") from error
        if (row.seed, row.time) in rows:
            raise _broken(path, number, f"this is a second row of seed {row.seed} at {row.time}")
        rows[row.seed, row.time] = row
    return rows


def _broken(path: Path, line: int, problem: str) -> InputError:
    fix = "remove that line, which has the task run again, or restore the file from a backup"
    return InputError(problem, file=f"{path}, line {line}", fix=fix)
