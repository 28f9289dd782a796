"""The folder of a run: its settings, results and decisions. A run that was killed continues in it.

::

    RUN/
      run.json                  configuration of the run, and fingerprint of the graph
      graph.json                description of the graph, for reports
      results.jsonl             one line per seed and task, only ever appended to
      decisions/seed-0/         decisions of a seed, one Parquet file per task
      checkpoints/seed-0/       learner of an unfinished seed after its last task

A line counts once it ends in a newline; an incomplete last line is cut off. The decisions of a task are written before
its line, and its line before the checkpoint. So decisions without a line are written again, a learner that is behind
the lines repeats the tasks it lacks, and a learner that is ahead of them is not used.

One process holds the lock of the folder. Its workers, one for each seed, write the files of their seed and append
lines. They share a second lock, so that after a kill a new run waits until the last of them has ended. The file of that
lock contains a token of the run: a worker that finds another one belongs to a run that has ended, and a worker that
finds no file is on a machine that does not see the folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import platform
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import EvergraphError, InputError
from evergraph.evaluation.configuration import differences
from evergraph.evaluation.results import TaskRow
from evergraph.storage.decoding import InvalidJsonError, parse_json
from evergraph.storage.files import LOCK, append_line, disk_errors, locked, only_one, shared, sync_folder, write_atomic

if TYPE_CHECKING:
    from evergraph.learning.attribution import Attribution
    from evergraph.learning.task import Decisions, Task

__all__ = ["DecisionTable", "RunFolder", "StoredRun", "open_run", "read_decisions", "read_run", "write_decisions"]

FORMAT = "evergraph run"
FORMAT_VERSION = 1
MANIFEST = "run.json"
GRAPH = "graph.json"
RESULTS = "results.jsonl"
DECISIONS = "decisions"
CHECKPOINTS = "checkpoints"
PROCESSES = ".processes"

_SeedAndTime = tuple[int, int | str]
Explain = Callable[[Sequence[int]], "list[list[Attribution]]"]
"""Returns what contributes most to the most likely class of test vertices, given their numbers."""

_NOT_WRITTEN = "the run could not be written"
_NO_RUN = "this is not the file of a run, or it is damaged"
_ELSEWHERE = "choose another folder (--out), or start over in this one (--replace)"
_DESCRIBED = 25  # flagged vertices per task that get words and neighbours: those with the highest scores


class RunFolder:
    """The folder of a run while `open_run` locks it, with the rows that it already has."""

    def __init__(self, path: Path, rows: dict[_SeedAndTime, TaskRow], token: str) -> None:
        self.path, self.rows, self.token = path, rows, token

    def append(self, row: TaskRow) -> None:
        """Append a row and sync it to disk, unless its seed and time are already there."""
        if (row.seed, row.time) in self.rows:
            return
        path = self.path / RESULTS
        with disk_errors(path, _NOT_WRITTEN):
            append_line(path, json.dumps(row.as_dict(), ensure_ascii=False, allow_nan=False).encode(), cut=True)
        self.rows[row.seed, row.time] = row

    def store_graph(self, description: Callable[[], Mapping[str, Any]]) -> None:
        """Write the description of the graph, unless it is already there."""
        path = self.path / GRAPH
        if not path.exists():
            data = json.dumps(description(), ensure_ascii=False, allow_nan=False).encode() + b"\n"
            with disk_errors(path, _NOT_WRITTEN):
                write_atomic(path, data)

    def store_decisions(self, task: Task, decisions: Decisions, explain: Explain | None = None) -> None:
        """Write the decisions of a task, unless they are already there together with their row."""
        time = task.graph.axis.value(task.time)
        path = decisions_file(self.path, task.seed, time)
        if (task.seed, time) in self.rows and path.exists():
            return
        data = write_decisions(task, decisions, explain)
        with disk_errors(path, _NOT_WRITTEN):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, data)

    def checkpoint(self, seed: int) -> Path:
        """Return the folder for the learner of a seed."""
        return self.path / CHECKPOINTS / f"seed-{seed}"

    def finish(self, seed: int) -> None:
        """Remove the learner of a seed that has all its rows."""
        shutil.rmtree(self.checkpoint(seed), ignore_errors=True)


@contextlib.contextmanager
def write_from_worker(folder: Path, token: str) -> Iterator[RunFolder]:
    """Open the folder of a run in a worker of the process that holds the lock and made the token."""
    lock = folder / PROCESSES
    if not lock.exists():
        raise InputError(
            f"the machine {platform.node()} does not see this folder of a run",
            file=folder,
            fix="choose a folder (--out) that all machines share under the same path",
        )
    with contextlib.ExitStack() as held:
        with disk_errors(folder, _NOT_WRITTEN):
            held.enter_context(shared(lock))
            current = lock.read_text(encoding="ascii")
        if current != token:
            raise EvergraphError("the run has ended")
        # From the file, because an earlier attempt at the same work may have died after it had written rows.
        yield RunFolder(folder, _parse_rows(folder / RESULTS, _bytes_of(folder / RESULTS)), token)


def decisions_file(folder: Path, seed: int, time: int | str) -> Path:
    """Return the path of the decisions of one task with one seed."""
    return folder / DECISIONS / f"seed-{seed}" / f"{time}.parquet"


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredRun:
    """A run as read from its folder, finished or not.

    ``identity`` has ``configuration``, ``fingerprint`` and ``numerics_version``; ``graph`` is a `GraphDescription` as a
    dict, None in folders of early versions; ``rows`` has the rows of each seed in the order of their tasks.
    """

    path: Path
    identity: Mapping[str, Any]
    graph: Mapping[str, Any] | None
    rows: Mapping[int, tuple[TaskRow, ...]]


def read_run(folder: Path) -> StoredRun:
    """Read the folder of a run without locking or changing it; an unfinished run is read as far as it is."""
    if not (folder / MANIFEST).is_file():
        if not folder.is_dir():
            problem = "this is a file, not a folder" if folder.exists() else "this folder does not exist"
        else:
            problem = "this is not the folder of a run"
        raise InputError(problem, file=folder, fix="give a folder that 'evergraph run … --out RUN' wrote")
    identity = _read_identity(folder / MANIFEST, ("configuration", "fingerprint", "numerics_version"))
    configuration = identity["configuration"]
    if not isinstance(configuration, dict) or not all(
        isinstance(configuration.get(part, {}), dict) for part in ("model", "detector")
    ):
        raise InputError(_NO_RUN, file=folder / MANIFEST, fix=_ELSEWHERE)
    rows: dict[int, list[TaskRow]] = {}
    for (seed, _), row in _parse_rows(folder / RESULTS, _bytes_of(folder / RESULTS)).items():
        rows.setdefault(seed, []).append(row)
    # After a repair, lines need not be in the order of the tasks. A run has either numbers or strings as times.
    ordered = {
        seed: tuple(sorted(rows[seed], key=lambda row: (isinstance(row.time, str), row.time))) for seed in sorted(rows)
    }
    return StoredRun(folder, identity, _read_graph(folder / GRAPH), ordered)


def _read_graph(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        found = parse_json(_bytes_of(path))
    except InvalidJsonError:
        found = None
    if not isinstance(found, dict):
        fix = "remove the file and run the same command again, which writes it again"
        raise InputError("this is not the description of a graph, or it is damaged", file=path, fix=fix)
    return found


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.exists() else b""
    except IsADirectoryError:
        raise InputError("this is a folder, not a file", file=path, fix=_ELSEWHERE) from None


def _read_identity(manifest: Path, keys: Collection[str]) -> dict[str, Any]:
    try:
        content = parse_json(_bytes_of(manifest))
        version = content["format_version"] if content["format"] == FORMAT else 0
        found = {key: content[key] for key in keys} if version == FORMAT_VERSION else {}
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(_NO_RUN, file=manifest, fix=_ELSEWHERE) from error
    if not found:
        raise InputError(
            f"the run has format version {version}, but this Evergraph reads version {FORMAT_VERSION}",
            file=manifest,
            fix=f"use the Evergraph that wrote it, or {_ELSEWHERE}",
        )
    return found


def _parse_rows(path: Path, data: bytes) -> dict[_SeedAndTime, TaskRow]:
    """Parse all complete lines."""
    rows: dict[_SeedAndTime, TaskRow] = {}
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            row = TaskRow.from_dict(parse_json(line))
        except (ValueError, TypeError, AttributeError) as error:
            what = error.problem if isinstance(error, InputError) else "it is not a JSON object"
            raise _broken(path, number, f"this is not a row of a run ({what})") from error
        if (row.seed, row.time) in rows:
            raise _broken(path, number, f"this is a second row of seed {row.seed} at {row.time}")
        rows[row.seed, row.time] = row
    return rows


def _broken(path: Path, line: int, problem: str) -> InputError:
    fix = "remove this line, so that its task runs again, or restore the file from a backup"
    return InputError(problem, file=f"{path}, line {line}", fix=fix)


# --- writing ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_run(
    folder: Path, identity: Mapping[str, Any], times: Collection[int | str], *, replace: bool = False
) -> Iterator[RunFolder]:
    """Lock the folder of a new or unfinished run.

    Parameters
    ----------
    folder
        The folder of the run; it is created if needed.
    identity
        ``configuration``, ``fingerprint`` and ``numerics_version``: a folder with other values is refused.
    times
        Times of the tasks.
    replace
        Remove existing rows and learners.
    """
    _check_destination(folder)
    with contextlib.ExitStack() as held:
        with disk_errors(folder, _NOT_WRITTEN):
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(folder, "run"))
            _check_destination(folder)  # again: another process may have written to it before the lock
            if (folder / PROCESSES).exists():
                with only_one(folder / PROCESSES, f"{folder}: waiting for the processes of a killed run to end"):
                    pass
            rows = _prepare(folder, identity, times, replace=replace)
            with only_one(folder / PROCESSES, holder=(token := uuid4().hex)):
                pass
        yield RunFolder(folder, rows, token)
        with contextlib.suppress(OSError):
            (folder / PROCESSES).unlink(missing_ok=True)
            (folder / CHECKPOINTS).rmdir()  # unless another seed has a learner


def _check_destination(folder: Path) -> None:
    """Refuse a folder with files that are not those of a run."""
    if folder.exists() and not folder.is_dir():
        raise InputError("this is a file, not a folder", file=folder, fix="choose another folder")
    if not folder.is_dir() or (folder / MANIFEST).exists():
        return
    if {entry.name for entry in folder.iterdir()} - {LOCK, PROCESSES, f"{MANIFEST}.new"}:
        raise InputError("the folder contains other files", file=folder, fix="choose an empty or a new folder")


def _prepare(
    folder: Path, identity: Mapping[str, Any], times: Collection[int | str], *, replace: bool
) -> dict[_SeedAndTime, TaskRow]:
    """Return the rows in the folder, after starting it over if that is wanted or nothing is lost by it."""
    manifest, results = folder / MANIFEST, folder / RESULTS
    if manifest.exists() and replace:
        _check_format(manifest)
    elif manifest.exists():
        problem = _difference(_read_identity(manifest, identity), identity)
        if problem is None:
            return _read_rows(results, times)
        if b"\n" in _bytes_of(results):
            raise InputError(problem, file=folder, fix=_ELSEWHERE)
    # Everything of another run is removed first, so that it can never be mistaken for a part of this one.
    results.unlink(missing_ok=True)
    for stored in (CHECKPOINTS, DECISIONS):
        if (folder / stored).exists():
            shutil.rmtree(folder / stored)
    (folder / GRAPH).unlink(missing_ok=True)
    sync_folder(folder)
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **identity}
    write_atomic(manifest, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n")
    return {}


def _check_format(manifest: Path) -> None:
    """Refuse to start over in a folder of another program."""
    try:
        is_run = parse_json(_bytes_of(manifest))["format"] == FORMAT
    except (ValueError, LookupError, TypeError):
        is_run = False
    if not is_run:
        raise InputError("Evergraph did not write this file", file=manifest, fix="choose an empty or a new folder")


def _difference(there: Mapping[str, Any], identity: Mapping[str, Any]) -> str | None:
    """Describe how the run in a folder differs from this one; None if it is the same."""
    if there["fingerprint"] != identity["fingerprint"]:
        return "the folder contains a run on another graph"
    if changed := differences(there["configuration"], identity["configuration"]):
        return f"the folder contains a run with other settings: {changed}"
    if there["numerics_version"] != identity["numerics_version"]:
        return (
            "the run was started by an Evergraph that computes different numbers "
            f"(numerics version {there['numerics_version']}, here {identity['numerics_version']})"
        )
    return None


def _read_rows(path: Path, times: Collection[int | str]) -> dict[_SeedAndTime, TaskRow]:
    rows = _parse_rows(path, _bytes_of(path))
    for number, row in enumerate(rows.values(), start=1):
        if row.time not in times:
            raise _broken(path, number, f"this is a row of {row.time}, but the run has no such task")
    return rows


# --- decisions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DecisionTable:
    """Stored decisions of one task with the true classes, one entry per vertex.

    Parameters
    ----------
    ids, best, flagged, score, probability
        As in `Decisions`; ids are strings or whole numbers.
    truth
        Class name; None without a label.
    unseen, never_before
        Whether the learner did not know the class, and whether no earlier vertex has it; False without a label.
    words, neighbours, texts
        For the flagged vertices with the highest scores: characteristic words (None without text), the known classes of
        their neighbours with counts, and the original texts, shortened. None for all others.
    because
        For the same vertices of the last task: the inputs that contribute most to the most likely class, as text.
    """

    ids: list[str] | list[int]
    best: NDArray[np.object_]
    flagged: NDArray[np.bool_]
    score: NDArray[np.float64]
    probability: NDArray[np.float64]
    truth: NDArray[np.object_]
    unseen: NDArray[np.bool_]
    never_before: NDArray[np.bool_]
    words: list[tuple[str, ...] | None]
    neighbours: list[tuple[tuple[str, int], ...] | None]
    texts: list[str | None]
    because: list[tuple[str, ...] | None]

    def __len__(self) -> int:
        return len(self.best)

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Whether each vertex has a label."""
        return np.array([name is not None for name in self.truth], bool)


def write_decisions(task: Task, decisions: Decisions, explain: Explain | None = None) -> bytes:
    """Return the Parquet file of a task's decisions; ``truth``, ``unseen`` and ``never_before`` are null without label.

    With ``explain``, it has the reasons for the decisions that are described.

    Examples
    --------
    >>> from evergraph.datasets import synthetic
    >>> from evergraph.learning.learner import LifelongLearner
    >>> from evergraph.learning.task import Task
    >>> from evergraph.nn import MLP
    >>> task = Task(synthetic(vertices=200, times=4, new_classes=1, seed=1), time=3, history=2)
    >>> decisions = LifelongLearner(MLP(hidden=4), steps=2).adapt(task).predict(task)
    >>> found = read_decisions(write_decisions(task, decisions))
    >>> (found.best == decisions.best).all(), (found.truth == task.truth).all(), len(found) == len(task.test_ids)
    (np.True_, np.True_, True)
    """
    import pyarrow as pa
    from pyarrow import parquet

    from evergraph.analysis.explain import neighbours_of, shortened, texts_of, words_of
    from evergraph.graph.ids import to_arrow

    truth, known = task.truth, set(decisions.known)
    unlabelled = np.array([name is None for name in truth], bool)
    flagged = np.flatnonzero(decisions.flagged)
    chosen = flagged[np.argsort(-decisions.score[flagged], kind="stable")][:_DESCRIBED]
    # Only labels that the learner could train on: the graph also has the labels of the test vertices.
    window = task.window
    codes = np.full(len(window), -1, np.int32)
    codes[: len(task.targets)] = task.targets
    slice_ = task.graph.window(task.time, task.time)
    found_words = words_of(slice_, chosen, before=task.time + 1) if len(chosen) else []
    words: list[Any] = [None] * len(decisions)
    neighbours: list[Any] = [None] * len(decisions)
    texts: list[Any] = [None] * len(decisions)
    for row, text in zip(chosen.tolist(), texts_of(slice_, chosen), strict=True):
        texts[row] = None if text is None else shortened(text)
    around = neighbours_of(window, chosen + task.test.start, codes)
    for row, row_words, row_neighbours in zip(chosen.tolist(), found_words, around, strict=True):
        words[row], neighbours[row] = row_words or None, row_neighbours
    because: list[Any] = [None] * len(decisions)
    for row, reasons in zip(chosen.tolist(), explain(chosen.tolist()) if explain else (), strict=explain is not None):
        because[row] = [one.in_words for one in reasons]

    def names(column: NDArray[np.object_]) -> pa.Array:
        return pa.array(column, pa.string()).dictionary_encode()

    table = pa.table(
        {
            "id": to_arrow(decisions.ids),
            "best": names(decisions.best),
            "rejected": decisions.flagged,
            "score": decisions.score,
            "probability": decisions.probability,
            "truth": names(truth),
            "unseen": pa.array(np.array([name not in known for name in truth], bool), mask=unlabelled),
            "never_before": pa.array(task.never_before, mask=unlabelled),
            "words": pa.array(words, pa.list_(pa.string())),
            "neighbours": pa.array(neighbours, pa.map_(pa.string(), pa.int64())),
            "text": pa.array(texts, pa.string()),
            "because": pa.array(because, pa.list_(pa.string())),
        }
    )
    file = io.BytesIO()
    parquet.write_table(table, file, compression="zstd")
    return file.getvalue()


def read_decisions(data: bytes, path: Path | None = None) -> DecisionTable:
    """Read a file of `write_decisions`; ``path`` is named in errors."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        # Without threads: at the end of the interpreter, a thread that holds memory of Python aborts the process.
        table = parquet.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
        table.validate(full=True)
        for name in ("best", "truth"):
            if table.schema.field(name).type not in (pa.dictionary(pa.int32(), pa.string()), pa.string()):
                raise TypeError(f"the column {name} holds no names")
        if "text" in table.column_names and table.schema.field("text").type != pa.string():
            raise TypeError("the column text holds no texts")
        if "because" in table.column_names and table.schema.field("because").type != pa.list_(pa.string()):
            raise TypeError("the column because holds no lists of texts")
        columns = table.to_pydict()
        return DecisionTable(
            ids=columns["id"],
            best=np.array(columns["best"], object),
            flagged=np.array(columns["rejected"], bool),
            score=np.array(columns["score"], np.float64),
            probability=np.array(columns["probability"], np.float64),
            truth=np.array(columns["truth"], object),
            unseen=np.array(columns["unseen"], bool),  # null becomes False
            never_before=np.array(columns["never_before"], bool),
            words=[None if words is None else tuple(words) for words in columns["words"]],
            neighbours=[None if near is None else tuple(near) for near in columns["neighbours"]],
            texts=columns.get("text", [None] * len(table)),  # older files have none
            because=[None if one is None else tuple(one) for one in columns.get("because", [None] * len(table))],
        )
    except MemoryError:
        raise
    except Exception as error:  # Arrow's own errors, and those of columns that were changed
        fix = "run the same command again with --replace, or restore the file from a backup"
        raise InputError("this is not a file of decisions, or it is damaged", file=path, fix=fix) from error
