"""A workspace on disk: records in SQLite, immutable objects beside them, and one commit point.

::

    WS/
      workspace.db       versions, classes, labels, decisions, models: one transaction per command
      objects/4f2a….segment, ….json, ….safetensors   parts of the graph and trained models, named by their hash
      .lock              held by the only writer

A command writes its objects, waits until the disk confirms them, and commits one transaction. If it is killed before
that, it has changed nothing; after that, it is done. No command rewrites earlier rows: a row is valid from one version
(``since``) until another (``until``), so an earlier version exists as long as its rows do.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import msgspec

from evergraph.errors import DamagedWorkspaceError, EvergraphError, InputError, StorageError, os_error
from evergraph.graph.columns import Columns
from evergraph.graph.times import TimeAxis
from evergraph.presentation.text import command_line
from evergraph.storage.decoding import InvalidContentError, converted, parse_json
from evergraph.storage.files import LOCK, locked, refuse_link, sync_folder
from evergraph.storage.objects import Objects
from evergraph.storage.records import Database, Records, Row, Schema

__all__ = ["Classes", "LogEntry", "ModelRecord", "Settings", "Store", "WorkspaceState", "is_workspace", "read_state"]

DATABASE, OBJECTS = "workspace.db", "objects"
FORMAT_1 = "workspace.json"  # of format 1; see `convert`
_MOST_CLASSES = 10_000_000
NEW_KIND = "changed, so it starts from random weights"
"""End of the reason for a cold restart after `Workspace.set`, in the table ``models``."""
VERSIONED = ("settings", "segments", "classes", "labels", "supports", "fresh")
"""The tables whose rows are valid from one version until another."""

SCHEMA = Schema(
    """
-- The log: one row per version, never deleted.
CREATE TABLE versions (version INTEGER PRIMARY KEY, made TEXT NOT NULL, command TEXT NOT NULL, what TEXT NOT NULL,
    checksum INTEGER NOT NULL) STRICT;

CREATE TABLE models (model INTEGER PRIMARY KEY, time INTEGER NOT NULL, restart TEXT NOT NULL, why TEXT NOT NULL,
    labels INTEGER NOT NULL, classes TEXT NOT NULL, seconds REAL NOT NULL,
    version INTEGER NOT NULL REFERENCES versions, previous INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT;

-- The versions that can be restored: their model, its objects, and the size of the graph.
CREATE TABLE states (version INTEGER PRIMARY KEY REFERENCES versions, model INTEGER NOT NULL REFERENCES models,
    learner TEXT NOT NULL, tensors TEXT NOT NULL, stale INTEGER NOT NULL, vertices INTEGER NOT NULL,
    edges INTEGER NOT NULL, first_time INTEGER NOT NULL, last_time INTEGER NOT NULL, next_vertex INTEGER NOT NULL,
    checksum INTEGER NOT NULL) STRICT;

-- Names of versions; these versions are kept until the name is deleted.
CREATE TABLE tags (name TEXT PRIMARY KEY, version INTEGER NOT NULL REFERENCES versions,
    checksum INTEGER NOT NULL) STRICT;

-- Rows of the following tables are valid from a version until another; NULL means until now.
CREATE TABLE settings (name TEXT NOT NULL, value TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER,
    checksum INTEGER NOT NULL, PRIMARY KEY (name, since)) STRICT;

CREATE TABLE segments (segment INTEGER NOT NULL, object TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER,
    checksum INTEGER NOT NULL, PRIMARY KEY (segment, since)) STRICT;
CREATE INDEX segments_object ON segments (object);

CREATE TABLE classes (number INTEGER NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL, merged INTEGER,
    retired INTEGER, since INTEGER NOT NULL, until INTEGER, checksum INTEGER NOT NULL,
    PRIMARY KEY (number, since)) STRICT;

-- Vertices that arrived without a label (a label of NULL), and labels that arrived after the vertex. Labels that
-- arrived with the vertex are in the segment.
CREATE TABLE labels (vertex INTEGER NOT NULL, id TEXT NOT NULL, time INTEGER NOT NULL, label INTEGER,
    since INTEGER NOT NULL, until INTEGER, checksum INTEGER NOT NULL, PRIMARY KEY (vertex, since)) STRICT;
CREATE INDEX labels_id ON labels (id) WHERE until IS NULL;
CREATE INDEX labels_open ON labels (vertex) WHERE until IS NULL AND label IS NULL;

-- Number of vertices per period and label.
CREATE TABLE supports (time INTEGER NOT NULL, label INTEGER NOT NULL, vertices INTEGER NOT NULL,
    since INTEGER NOT NULL, until INTEGER, checksum INTEGER NOT NULL, PRIMARY KEY (time, label, since)) STRICT;

-- Number of labels per period that arrived since the model was trained.
CREATE TABLE fresh (time INTEGER NOT NULL, labels INTEGER NOT NULL, since INTEGER NOT NULL, until INTEGER,
    checksum INTEGER NOT NULL, PRIMARY KEY (time, since)) STRICT;

-- Decisions and the labels that arrived for them, never deleted. A decision of NULL means unseen.
CREATE TABLE decisions (vertex INTEGER NOT NULL, version INTEGER NOT NULL REFERENCES versions, id TEXT NOT NULL,
    time INTEGER NOT NULL, decided INTEGER, best INTEGER NOT NULL, score REAL NOT NULL, probability REAL NOT NULL,
    model INTEGER NOT NULL REFERENCES models, nearest TEXT NOT NULL, neighbours TEXT NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY (vertex, version)) STRICT;
CREATE INDEX decisions_id ON decisions (id);
CREATE INDEX decisions_time ON decisions (time, version);
CREATE TABLE outcomes (vertex INTEGER NOT NULL, version INTEGER NOT NULL REFERENCES versions, truth INTEGER NOT NULL,
    latency INTEGER NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (vertex, version)) STRICT;

-- Of the service, not part of a version: who made a version, answers by idempotency key, jobs, access
-- tokens as hashes, groups that are none, and the version whose graph a model was trained on if it is not the last one.
CREATE TABLE authors (version INTEGER PRIMARY KEY REFERENCES versions, who TEXT NOT NULL,
    checksum INTEGER NOT NULL) STRICT;
CREATE TABLE requests (who TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL, status INTEGER NOT NULL,
    answer TEXT NOT NULL, made REAL NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (who, key)) STRICT;
CREATE INDEX requests_made ON requests (made);
CREATE TABLE jobs (job INTEGER PRIMARY KEY, kind TEXT NOT NULL, arguments TEXT NOT NULL, state TEXT NOT NULL,
    who TEXT NOT NULL, made REAL NOT NULL, started REAL, ended REAL, attempts INTEGER NOT NULL, result TEXT,
    checksum INTEGER NOT NULL) STRICT;
CREATE INDEX jobs_open ON jobs (job) WHERE ended IS NULL;
CREATE TABLE tokens (name TEXT PRIMARY KEY, role TEXT NOT NULL, hash TEXT NOT NULL, made TEXT NOT NULL, revoked TEXT,
    checksum INTEGER NOT NULL) STRICT;
CREATE TABLE dismissals (key TEXT PRIMARY KEY, who TEXT NOT NULL, made TEXT NOT NULL,
    checksum INTEGER NOT NULL) STRICT;
CREATE TABLE snapshots (model INTEGER PRIMARY KEY REFERENCES models, version INTEGER NOT NULL REFERENCES versions,
    checksum INTEGER NOT NULL) STRICT;

-- Objects to be removed because no row refers to them.
CREATE TABLE garbage (object TEXT PRIMARY KEY, checksum INTEGER NOT NULL) STRICT;
"""
    + "\n".join(
        f"CREATE INDEX {table}_until ON {table} (until) WHERE until IS NOT NULL;"
        f"CREATE INDEX {table}_since ON {table} (since);"
        for table in VERSIONED
    ),
    application=0x45564752,  # EVGR
    version=6,  # 5 had no texts compressed with zstd; 4 had no merged segments, and edges in another order
)


@dataclass(frozen=True)
class Settings:
    """Settings of a workspace.

    Parameters
    ----------
    history
        Number of past periods that a model trains on; None for all.
    history_why
        How the history was chosen, in words.
    columns
        Names of the columns in tables.
    keep
        Number of versions that are kept.
    axis
        The time axis of the graph.
    pending
        Descriptions of the ``"model"`` and the ``"detector"`` that the next update trains from new random weights, as
        far as they were changed since the current model was trained.
    """

    history: Annotated[int, msgspec.Meta(ge=1)] | None
    history_why: str
    columns: Columns = field(default_factory=Columns)
    keep: Annotated[int, msgspec.Meta(ge=2)] = 10
    axis: TimeAxis = field(default_factory=lambda: TimeAxis("integer", 1))
    pending: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelRecord:
    """A model of a workspace.

    Parameters
    ----------
    number
        Number of the model, from 1.
    time
        The period it was trained for: it has learnt from labels of earlier periods only.
    restart, why
        ``"cold"`` or ``"warm"``, and the reason in words.
    train_vertices
        Number of labels it was trained on.
    classes
        Names of its known classes.
    seconds
        Training time.
    version
        The version that it was created in.
    before
        Number of the model it replaced; 0 for the first.
    """

    number: int
    time: int
    restart: str
    why: str
    train_vertices: int
    classes: tuple[str, ...]
    seconds: float
    version: int
    before: int

    @property
    def is_new_kind(self) -> bool:
        """Whether the model or the detector was changed before this model was trained."""
        return self.why.endswith(NEW_KIND)


@dataclass(frozen=True)
class LogEntry:
    """One command that changed the workspace.

    Parameters
    ----------
    version
        The version that it made.
    when
        Date and time (UTC).
    command, what
        Its name, and what it did.
    tags
        Tags of the version.
    who
        The user of the service who ran it; empty for commands of this machine.
    """

    version: int
    when: str
    command: str
    what: str
    tags: tuple[str, ...] = ()
    who: str = ""


@dataclass(frozen=True)
class Classes:
    """The classes of one version; a class keeps its number when it is renamed.

    Parameters
    ----------
    rows
        Rows of the table ``classes`` by number.
    gone
        Names of classes that are not part of this version, by number.
    """

    rows: dict[int, Row]
    gone: dict[int, str]

    @cached_property
    def current(self) -> list[Row]:
        """Rows of the classes that are not merged into another, in the order in which they became known."""
        return sorted((row for row in self.rows.values() if row.merged is None), key=lambda row: row.position)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the current classes."""
        return tuple(row.name for row in self.current)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Numbers of the current classes by name."""
        return {row.name: row.number for row in self.current}

    @cached_property
    def retired(self) -> tuple[str, ...]:
        """Names of the retired classes, in the order in which they were retired."""
        found = [row for row in self.current if row.retired is not None]
        return tuple(row.name for row in sorted(found, key=lambda row: row.retired))

    def resolve(self, number: int) -> int:
        """Return the class that a class was merged into, or the class itself."""
        passed = set()
        while (row := self.rows.get(number)) is not None and row.merged is not None:
            if number in passed:
                raise InvalidContentError(f"class {number} is merged into itself")
            passed.add(number)
            number = row.merged
        return number

    def name(self, number: int) -> str:
        """Return the name of a class, or of the class it was merged into."""
        number = self.resolve(number)
        if number not in self.rows and number not in self.gone:
            raise InvalidContentError(f"there is no class {number}")
        return self.rows[number].name if number in self.rows else self.gone[number]


@dataclass(frozen=True)
class WorkspaceState:
    """A version of a workspace, without its graph.

    Parameters
    ----------
    version
        Number of the version.
    settings
        Settings of the workspace.
    model
        The current model.
    learner, tensors
        Names of the objects that store it.
    stale
        Whether the model is outdated for another reason than new labels or a pending setting: classes, history, steps
        or learning rate changed, many labels were corrected, or it was rolled back.
    fresh_labels
        Number of labels that arrived since the model was trained.
    vertices, edges, first_time, last_time
        Size and periods of the graph.
    next_vertex
        Number of the next new vertex; numbers are never reused.
    classes
        The classes.
    """

    version: int
    settings: Settings
    model: ModelRecord
    learner: str
    tensors: str
    stale: bool
    fresh_labels: int
    vertices: int
    edges: int
    first_time: int
    last_time: int
    next_vertex: int
    classes: Classes

    @property
    def retired(self) -> tuple[str, ...]:
        """Names of the retired classes."""
        return self.classes.retired


# --- rows ------------------------------------------------------------------------------------------------------------


def valid_in(version: int | None) -> str:
    """Return the SQL condition for rows that are valid in a version (None: now)."""
    return "until IS NULL" if version is None else f"since <= {version} AND (until IS NULL OR until > {version})"


def head_of(records: Records) -> int:
    """Return the number of the current version."""
    return int(records.value("SELECT max(version) FROM versions") or 0)


def kept_versions(records: Records) -> list[int]:
    """Return the numbers of the versions that can be restored, and the current one last."""
    return [number for (number,) in records.query("SELECT version FROM states ORDER BY version")]


def recent_versions(kept: Sequence[int]) -> list[int]:
    """Return the versions that are kept without a gap, up to the current one.

    Examples
    --------
    >>> recent_versions([2, 6, 7, 8])
    [6, 7, 8]
    """
    return [number for place, number in enumerate(kept) if number == kept[-1] - (len(kept) - 1 - place)]


def read_tags(records: Records) -> dict[str, int]:
    """Return the version of each tag, by name, in the order of versions."""
    return {row.name: row.version for row in records.select("tags", "TRUE ORDER BY version, name")}


def find_version(records: Records, version: int | str) -> int:
    """Return the number of a version that is given by its number or its tag."""
    if isinstance(version, int) or re.fullmatch("[0-9]{1,18}", version):
        return int(version)
    row = records.one("tags", "name = ?", version)
    if row is None:
        raise InputError(f"there is no tag {version!r}", fix=_version_fix(records))
    return int(row.version)


def _version_fix(records: Records) -> str:
    if not (kept := kept_versions(records)):
        return "restore the folder from a backup"
    tags = [f"{name} ({number})" for name, number in read_tags(records).items()]
    fix = f"choose a version from {recent_versions(kept)[0]} to {kept[-1]}"
    return f"{fix}, or a tag: {', '.join(tags)}" if tags else fix


def read_state(records: Records, version: int | None = None) -> WorkspaceState:
    """Read a version (None: the current one); raises `InputError` if it is not kept."""
    head = head_of(records)
    version = head if version is None else version
    row = records.one("states", "version = ?", version)
    if row is None and version == head:
        raise InvalidContentError(f"version {head}, the current one, is incomplete")
    if row is None:
        fix = _version_fix(records)
        raise InputError(f"version {version} does not exist, or is not kept any more", fix=fix)
    past = None if row.version == head else row.version
    classes = read_classes(records, past)
    model = records.one("models", "model = ?", row.model)
    if model is None:
        raise InvalidContentError(f"there is no model {row.model}")
    return WorkspaceState(
        version=row.version,
        settings=read_settings(records, past),
        model=model_record(model, classes),
        learner=row.learner,
        tensors=row.tensors,
        stale=bool(row.stale),
        fresh_labels=sum(row.labels for row in records.select("fresh", valid_in(past))),
        vertices=row.vertices,
        edges=row.edges,
        first_time=row.first_time,
        last_time=row.last_time,
        next_vertex=row.next_vertex,
        classes=classes,
    )


def read_classes(records: Records, version: int | None = None) -> Classes:
    """Read the classes of a version (None: the current one)."""
    rows = {row.number: row for row in records.select("classes", valid_in(version))}
    gone = {row.number: row.name for row in records.select("classes", "TRUE ORDER BY since") if row.number not in rows}
    if not all(0 < number <= _MOST_CLASSES for number in (*rows, *gone)):
        raise InvalidContentError("the number of a class is out of range")
    return Classes(rows, gone)


def read_settings(records: Records, version: int | None = None) -> Settings:
    """Read the settings of a version (None: the current one)."""
    rows = records.select("settings", valid_in(version))
    found = {row.name: parse_json(row.value) for row in rows}
    if isinstance(columns := found.get("columns"), dict) and "features" in columns:  # an older name of numbers
        columns["numbers"] = columns.pop("features")
    return converted(found, Settings)


def write_settings(records: Records, settings: Settings, version: int = 1) -> None:
    """Write the settings of a new workspace, or those that a version changes."""
    before = {row.name: row.value for row in records.select("settings", valid_in(None))}
    now = {name: json.dumps(value, allow_nan=False) for name, value in asdict(settings).items()}
    converted({name: parse_json(value) for name, value in now.items()}, Settings)  # what cannot be read is not written
    for name in (name for name in now if before.get(name) != now[name]):
        records.replace("settings", "name = ? AND until IS NULL", (name,), until=version)
        records.insert("settings", [(name, now[name], version, None)])


def model_record(row: Row, classes: Classes) -> ModelRecord:
    """Return a row of the table ``models`` with the current names of its classes."""
    names = tuple(dict.fromkeys(map(classes.name, class_numbers(row))))
    return ModelRecord(
        row.model, row.time, row.restart, row.why, row.labels, names, row.seconds, row.version, row.previous
    )


def class_numbers(row: Row) -> list[int]:
    """Return the numbers of the classes of a row of the table ``models``, in the order of the model's outputs."""
    return converted(parse_json(row.classes), list[int])


def restore_rows(records: Records, to: int, version: int) -> None:
    """Make the rows of an earlier version valid again, from a new version on.

    Not the number of versions to keep: with a smaller one, the rollback would delete the versions after that one.
    """
    for table in VERSIONED:
        rows = "name != 'keep' AND " if table == "settings" else ""
        records.replace(table, f"{rows}until IS NULL AND since > ?", [to], until=version)
        back = records.select(table, f"{rows}until IS NOT NULL AND until > ? AND since <= ?", to, to)
        records.insert(table, (row._replace(since=version, until=None) for row in back))


def drop_versions(records: Records, oldest: int) -> None:
    """Delete what only versions before ``oldest`` without a tag need, and note objects that can be removed."""
    old = "version < ? AND version NOT IN (SELECT version FROM tags)"
    freed = {name for row in records.select("states", old, oldest) for name in (row.learner, row.tensors)}
    records.delete("states", old, oldest)
    unused = "until <= ? AND NOT EXISTS (SELECT 1 FROM states WHERE version >= since AND version < until)"
    freed |= {row.object for row in records.select("segments", unused, oldest)}
    for table in VERSIONED:
        if table != "classes":  # earlier decisions need their names
            records.delete(table, unused, oldest)
    records.insert("garbage", ((name,) for name in sorted(freed) if not is_needed(records, name)))


def trained_on(records: Records, model: int) -> int:
    """Return the version whose graph a model was trained on."""
    snapshot = records.one("snapshots", "model = ?", model)
    return int(
        records.value("SELECT version FROM models WHERE model = ?", model) if snapshot is None else snapshot.version
    )


def is_needed(records: Records, name: str) -> bool:
    """Whether a row refers to an object."""
    sql = (
        "SELECT EXISTS (SELECT 1 FROM segments WHERE object = ?1) "
        "OR EXISTS (SELECT 1 FROM states WHERE learner = ?1 OR tensors = ?1)"
    )
    return bool(records.value(sql, name))


def needed_objects(records: Records) -> set[str]:
    """Return the names of all objects that rows refer to."""
    sql = "SELECT object FROM segments UNION SELECT learner FROM states UNION SELECT tensors FROM states"
    return {name for (name,) in records.query(sql)}


# --- files -----------------------------------------------------------------------------------------------------------


def is_workspace(folder: Path) -> bool:
    """Whether a folder is a workspace."""
    return (folder / DATABASE).exists() or (folder / FORMAT_1).exists()


class Store:
    """The files of a workspace.

    Parameters
    ----------
    folder
        Folder of an existing workspace; `new` creates one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = open_database(folder)
        self.objects = Objects(folder / OBJECTS, damaged)
        if not is_workspace(folder):
            problem = "this folder is not a workspace, or creating it was interrupted"
            raise InputError(
                problem if folder.is_dir() else "this workspace does not exist",
                file=folder,
                fix="create a workspace with ws init",
            )
        with self._read_errors():
            old = self.database.path.exists() and 2 <= self.database.version < SCHEMA.version
        if old:
            from evergraph.workspace.convert import upgrade

            with _disk_errors(folder):
                upgrade(folder)
        if (folder / FORMAT_1).exists():
            from evergraph.workspace.convert import convert

            with _disk_errors(folder):
                convert(folder)
        _ = self.head  # raises if it is damaged

    @property
    def head(self) -> int:
        """Number of the current version."""
        with self.read() as records:
            return head_of(records)

    @property
    def numbers(self) -> list[int]:
        """Numbers of the versions that can be restored, and the current one last."""
        with self.read() as records:
            return kept_versions(records)

    @contextlib.contextmanager
    def read(self) -> Iterator[Records]:
        """Read one consistent state of all records."""
        with self._read_errors(), self.database.read() as records:
            yield records

    @contextlib.contextmanager
    def _read_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, EvergraphError):
                raise
            raise os_error(error, "it cannot be read", damaged=partial(damaged, self.database.path)) from error

    @contextlib.contextmanager
    def write(self, wait: float = 0) -> Iterator[Records]:
        """Change the workspace in one transaction, as its only writer.

        Parameters
        ----------
        wait
            Seconds to wait for another writer.
        """
        with _disk_errors(self.folder), locked(self.folder, "workspace", wait):
            refuse_link(self.objects.folder)
            before, made = self.head, 0
            try:
                with self.database.write() as records:
                    self._remove_unneeded(records)
                    yield records
                    made = head_of(records)
            except OSError as error:
                if isinstance(error, EvergraphError) or not made or made == before:
                    raise
                raise self._commit_error(made, error) from error
            if made != before:
                # What fails now is repeated by the next command.
                with contextlib.suppress(OSError, EvergraphError), self.read() as records:
                    self._remove_unneeded(records)

    def flush(self, records: Records, version: int, keep: int) -> None:
        """Before a commit: drop versions that are not kept any more, and sync the new objects."""
        records.delete("garbage", "TRUE")
        drop_versions(records, max(version - keep + 1, 1))
        self.objects.sync()

    def _remove_unneeded(self, records: Records) -> None:
        self.objects.remove_leftovers(lambda name: is_needed(records, name))
        self.objects.remove(row.object for row in records.select("garbage"))

    def _commit_error(self, number: int, error: OSError) -> Exception:
        """Return the error for a commit during which the disk failed."""
        problem, then = "the disk failed during the commit", "whether the change was made"
        with contextlib.suppress(OSError, EvergraphError):
            if self.head != number:
                return error
            problem, then = _UNCONFIRMED
        return _unsure(self.folder, error, problem, then)

    @classmethod
    @contextlib.contextmanager
    def new(cls, folder: Path) -> Iterator[tuple[Records, Objects]]:
        """Create a workspace; atomic: on an exception nothing is left."""
        made = not folder.exists()
        with _disk_errors(folder):
            cls.check_new(folder)
            folder.mkdir(parents=True, exist_ok=True)
            try:
                with locked(folder, "workspace"):
                    yield from cls._new(folder, made=made)
            except OSError:
                if made:
                    with contextlib.suppress(OSError):
                        folder.rmdir()  # fails if the folder is not empty
                raise

    @staticmethod
    def check_new(folder: Path) -> None:
        """Refuse a place where there can be no new workspace. Call it before expensive work."""
        if not folder.exists():
            return
        if not folder.is_dir():
            raise InputError("this is a file, not a folder", file=folder, fix="choose another folder")
        if is_workspace(folder):
            raise InputError("this folder is a workspace already", file=folder, fix="choose another folder")
        others = {entry.name for entry in folder.iterdir()} - {LOCK, OBJECTS}
        if any(not name.startswith(f"{DATABASE}.new") for name in others):
            raise InputError("the folder is not empty", file=folder, fix="choose an empty or a new folder")

    @classmethod
    def _new(cls, folder: Path, *, made: bool) -> Iterator[tuple[Records, Objects]]:
        try:
            cls.check_new(folder)  # again, because another process may have been faster
            refuse_link(folder / OBJECTS)
            objects = Objects(folder / OBJECTS, damaged)
            objects.clear()
            sync_folder(folder.parent)
            with open_database(folder).create() as records:
                yield records, objects
                objects.sync()
                objects.remove_leftovers(lambda _: True)
                sync_folder(folder)
            sync_folder(folder)
        except OSError as error:
            if isinstance(error, EvergraphError) or not is_workspace(folder):
                raise
            raise _unsure(folder, error, *_UNCONFIRMED) from error
        finally:
            # Only the holder of the lock may clean up; otherwise this may be another process's unfinished work.
            if made and not is_workspace(folder):
                shutil.rmtree(folder, ignore_errors=True)

    def verify(self) -> dict[str, int]:
        """Compare everything with its checksums and return the number of rows, objects and bytes."""
        while True:
            with self.read() as records:
                head, rows, needed = head_of(records), records.verify(), needed_objects(records)
            try:
                return {"rows": rows, "objects": len(needed), "bytes": self.objects.verify(needed)}
            except DamagedWorkspaceError:
                if self.head == head:  # otherwise another process may have removed an object
                    raise


_UNCONFIRMED = ("done, but the disk did not confirm it", "after the next restart")


def _unsure(folder: Path, error: OSError, problem: str, then: str) -> StorageError:
    log = command_line("ws", "log", folder)
    return StorageError(f"{problem} ({error.strerror or error})", file=folder, fix=f"check with: {log}, {then}")


@contextlib.contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, EvergraphError):
            raise
        raise os_error(error, "the disk reported an error", file=folder, note="Nothing was changed") from error


def open_database(folder: Path) -> Database:
    """Return the database of a workspace."""
    return Database(folder / DATABASE, SCHEMA, damaged, newer)


def damaged(path: Path, problem: str) -> DamagedWorkspaceError:
    return DamagedWorkspaceError(problem, file=path, fix="restore the folder from a backup")


def newer(path: Path, problem: str) -> DamagedWorkspaceError:
    return DamagedWorkspaceError(problem, file=path, fix="update Evergraph")
