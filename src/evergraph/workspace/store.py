"""The files of a workspace: records in SQLite, immutable objects beside them, and one commit point.

::

    WS/
      workspace.db       versions, classes, labels, decisions, models: one transaction a command
      objects/4f2a….segment, ….model   what a slice added to the graph, and trained models, by the hash of the contents
      .lock              held by the one writer

A command writes its objects, has the disk confirm them, and commits one transaction. Killed before that, it has changed
nothing; killed after it, it is done. No command rewrites what came before it: a row is in force from one version
(``since``) until another (``until``), so an earlier version is there as long as its rows are.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from evergraph.errors import DamagedWorkspaceError, EvergraphError, InputError
from evergraph.graph.columns import Columns
from evergraph.graph.times import TimeAxis
from evergraph.storage.checksummed import InvalidJsonError, converted
from evergraph.storage.files import LOCK, locked, refuse_link, sync_folder
from evergraph.storage.objects import Objects
from evergraph.storage.records import Database, Records, Row, Schema

__all__ = ["Classes", "Entry", "ModelRecord", "Settings", "State", "Store", "is_workspace", "read_state"]

DATABASE, OBJECTS = "workspace.db", "objects"
FORMAT_1 = "workspace.json"  # of version 0.1; see `convert`

SCHEMA = Schema(
    """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL) STRICT;

-- The log: one row a version, for good.
CREATE TABLE versions (version INTEGER PRIMARY KEY, made TEXT NOT NULL, command TEXT NOT NULL, what TEXT NOT NULL,
    checksum INTEGER NOT NULL) STRICT;

CREATE TABLE models (model INTEGER PRIMARY KEY, time INTEGER NOT NULL, restart TEXT NOT NULL, why TEXT NOT NULL,
    labels INTEGER NOT NULL, classes TEXT NOT NULL, seconds REAL NOT NULL,
    version INTEGER NOT NULL REFERENCES versions, previous INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT;

-- The versions that can be returned to: the model in force, its objects, and the graph in numbers.
CREATE TABLE states (version INTEGER PRIMARY KEY REFERENCES versions, model INTEGER NOT NULL REFERENCES models,
    learner TEXT NOT NULL, tensors TEXT NOT NULL, stale INTEGER NOT NULL, vertices INTEGER NOT NULL,
    edges INTEGER NOT NULL, first_time INTEGER NOT NULL, last_time INTEGER NOT NULL, next_vertex INTEGER NOT NULL,
    checksum INTEGER NOT NULL) STRICT;

-- From here on rows are in force from a version until another one; NULL is until now.
CREATE TABLE segments (segment INTEGER NOT NULL, object TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER,
    checksum INTEGER NOT NULL, PRIMARY KEY (segment, since)) STRICT;
CREATE INDEX segments_object ON segments (object);

CREATE TABLE classes (number INTEGER NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL, merged INTEGER,
    retired INTEGER, since INTEGER NOT NULL, until INTEGER, checksum INTEGER NOT NULL,
    PRIMARY KEY (number, since)) STRICT;

-- Vertices that came without a label (a label of NULL), and labels that came after the vertex. Those that came with it
-- are in the segment.
CREATE TABLE labels (vertex INTEGER NOT NULL, id TEXT NOT NULL, time INTEGER NOT NULL, label INTEGER,
    since INTEGER NOT NULL, until INTEGER, checksum INTEGER NOT NULL, PRIMARY KEY (vertex, since)) STRICT;
CREATE INDEX labels_id ON labels (id) WHERE until IS NULL;
CREATE INDEX labels_open ON labels (vertex) WHERE until IS NULL AND label IS NULL;

-- How many vertices of a time have a label.
CREATE TABLE supports (time INTEGER NOT NULL, label INTEGER NOT NULL, vertices INTEGER NOT NULL,
    since INTEGER NOT NULL, until INTEGER, checksum INTEGER NOT NULL, PRIMARY KEY (time, label, since)) STRICT;

-- Labels that have come since the model was trained.
CREATE TABLE fresh (time INTEGER NOT NULL, labels INTEGER NOT NULL, since INTEGER NOT NULL, until INTEGER,
    checksum INTEGER NOT NULL, PRIMARY KEY (time, since)) STRICT;

-- Decisions and the labels that came for them, for good. A decision of NULL is that the class is unseen.
CREATE TABLE decisions (vertex INTEGER NOT NULL, version INTEGER NOT NULL REFERENCES versions, id TEXT NOT NULL,
    time INTEGER NOT NULL, decided INTEGER, best INTEGER NOT NULL, score REAL NOT NULL, probability REAL NOT NULL,
    model INTEGER NOT NULL REFERENCES models, nearest TEXT NOT NULL, neighbours TEXT NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY (vertex, version)) STRICT;
CREATE INDEX decisions_id ON decisions (id);
CREATE INDEX decisions_time ON decisions (time, version);
CREATE TABLE outcomes (vertex INTEGER NOT NULL, version INTEGER NOT NULL REFERENCES versions, truth INTEGER NOT NULL,
    latency INTEGER NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (vertex, version)) STRICT;

-- Objects that no row names any more, to be removed.
CREATE TABLE garbage (object TEXT PRIMARY KEY, checksum INTEGER NOT NULL) STRICT;
"""
    + "\n".join(
        f"CREATE INDEX {table}_until ON {table} (until) WHERE until IS NOT NULL;"
        f"CREATE INDEX {table}_since ON {table} (since);"
        for table in ("segments", "classes", "labels", "supports", "fresh")
    ),
    application=0x45564752,  # EVGR
    version=2,
)
VERSIONED = ("segments", "classes", "labels", "supports", "fresh")
"""The tables whose rows are in force from a version until another."""


@dataclass(frozen=True)
class Settings:
    """What was chosen when the workspace was made.

    Parameters
    ----------
    history
        Number of times before a slice that are seen; None for all.
    history_why
        How it was chosen, in words.
    columns
        What the columns of tables are called.
    keep
        How many versions are kept.
    axis
        The time axis of the graph.
    """

    history: int | None
    history_why: str
    columns: Columns = field(default_factory=Columns)
    keep: int = 10
    axis: TimeAxis = field(default_factory=lambda: TimeAxis("integer", 1))


@dataclass(frozen=True)
class ModelRecord:
    """A model that was in force.

    Parameters
    ----------
    number
        Counted from 1.
    time
        The time it was trained for, as the axis counts: it has learnt from labels of earlier times only.
    restart
        What it started from: ``"cold"`` or ``"warm"``.
    why
        Why so, in words.
    train_vertices
        Number of labels it has learnt from.
    classes
        Names of the classes it knows.
    seconds
        That training took.
    version
        In which it was made.
    before
        Number of the model that it followed; 0 for the first.
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


@dataclass(frozen=True)
class Entry:
    """A line of the log: one command that changed something.

    Parameters
    ----------
    version
        What it made.
    when
        In coordinated universal time, to the second.
    command, what
        Its name, and what came of it, in words.
    """

    version: int
    when: str
    command: str
    what: str


@dataclass(frozen=True)
class Classes:
    """The classes in one version; each has a number for good, whatever its name is.

    Parameters
    ----------
    rows
        Of the table ``classes``, by number.
    gone
        Names of classes that are not in force.
    """

    rows: dict[int, Row]
    gone: dict[int, str]

    @cached_property
    def alive(self) -> list[Row]:
        """Those that are part of no other one, in the order in which they became known."""
        return sorted((row for row in self.rows.values() if row.merged is None), key=lambda row: row.position)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(row.name for row in self.alive)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Their numbers by name."""
        return {row.name: row.number for row in self.alive}

    @cached_property
    def retired(self) -> tuple[str, ...]:
        """Those that are not to be decided for any more, in the order in which they were retired."""
        found = [row for row in self.alive if row.retired is not None]
        return tuple(row.name for row in sorted(found, key=lambda row: row.retired))

    def resolve(self, number: int) -> int:
        """The class that one is part of: itself unless it was merged."""
        row = self.rows.get(number)
        return number if row is None or row.merged is None else self.resolve(row.merged)

    def name(self, number: int) -> str:
        """What a class is called."""
        number = self.resolve(number)
        return self.rows[number].name if number in self.rows else self.gone[number]


@dataclass(frozen=True)
class State:
    """A version in a few values.

    Parameters
    ----------
    version
        Its number.
    settings
        What was chosen when the workspace was made.
    model
        The model in force.
    learner, tensors
        Objects that hold it.
    stale
        Whether the model is behind for another reason than fresh labels: classes were changed, or it is an older one.
    fresh_labels
        How many labels have come since the model was trained.
    vertices, edges, first_time, last_time
        Of the graph.
    next_vertex
        The number that the next new vertex gets; no number is given twice.
    classes
        All classes.
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
        """Classes that are not to be decided for any more."""
        return self.classes.retired


def in_force(version: int | None) -> str:
    """The condition for rows that are in force in a version, or now."""
    return "until IS NULL" if version is None else f"since <= {version} AND (until IS NULL OR until > {version})"


def head_of(records: Records) -> int:
    """Number of the version in force."""
    return int(records.value("SELECT max(version) FROM versions") or 0)


def read_state(records: Records, version: int | None = None) -> State:
    """The state of a version, or of that in force; an `InputError` where it is not kept."""
    head = head_of(records)
    row = records.one("states", "version = ?", head if version is None else version)
    if row is None:
        kept = [number for (number,) in records.query("SELECT version FROM states ORDER BY version")]
        fix = f"choose from {kept[0]} to {kept[-1]}" if kept else "restore the folder from a backup"
        raise InputError(f"there is no version {version}, or not any more", fix=fix)
    classes = read_classes(records, None if row.version == head else row.version)
    where = in_force(None if row.version == head else row.version)
    return State(
        version=row.version,
        settings=read_settings(records),
        model=model_record(records.select("models", "model = ?", row.model)[0], classes),
        learner=row.learner,
        tensors=row.tensors,
        stale=bool(row.stale),
        fresh_labels=records.value(f"SELECT sum(labels) FROM fresh WHERE {where}") or 0,  # noqa: S608
        vertices=row.vertices,
        edges=row.edges,
        first_time=row.first_time,
        last_time=row.last_time,
        next_vertex=row.next_vertex,
        classes=classes,
    )


def read_classes(records: Records, version: int | None = None) -> Classes:
    """The classes of a version, or of that in force."""
    rows = {row.number: row for row in records.select("classes", in_force(version))}
    gone = {row.number: row.name for row in records.select("classes", "TRUE ORDER BY since") if row.number not in rows}
    return Classes(rows, gone)


def read_settings(records: Records) -> Settings:
    """What was chosen when the workspace was made."""
    return converted({row.name: json.loads(row.value) for row in records.select("settings")}, Settings)


def write_settings(records: Records, settings: Settings) -> None:
    """Write what was chosen."""
    records.insert("settings", ((name, json.dumps(value)) for name, value in asdict(settings).items()))


def model_record(row: Row, classes: Classes) -> ModelRecord:
    """A model as a row tells it, its classes by the names that they have."""
    names = tuple(dict.fromkeys(classes.name(number) for number in json.loads(row.classes)))
    return ModelRecord(
        row.model, row.time, row.restart, row.why, row.labels, names, row.seconds, row.version, row.previous
    )


def return_to(records: Records, to: int, version: int) -> None:
    """Have all rows of an earlier version in force again, from a new version on."""
    for table in VERSIONED:
        records.replace(table, "until IS NULL AND since > ?", [to], until=version)
        back = records.select(table, "until IS NOT NULL AND until > ? AND since <= ?", to, to)
        records.insert(table, (row._replace(since=version, until=None) for row in back))


def drop_versions(records: Records, oldest: int) -> None:
    """Forget how to return to versions before one; objects that no row names any more are noted to be removed."""
    dropped = records.select("states", "version < ?", oldest)
    freed = {name for row in dropped for name in (row.learner, row.tensors)}
    records.delete("states", "version < ?", oldest)
    for table in VERSIONED:
        if table == "segments":
            freed |= {row.object for row in records.select(table, "until <= ?", oldest)}
        if table != "classes":  # whose names are needed for earlier decisions
            records.delete(table, "until <= ?", oldest)
    records.insert("garbage", ((name,) for name in sorted(freed) if not is_needed(records, name)))


def is_needed(records: Records, name: str) -> bool:
    """Whether a row names an object."""
    sql = (
        "SELECT EXISTS (SELECT 1 FROM segments WHERE object = ?1) "
        "OR EXISTS (SELECT 1 FROM states WHERE learner = ?1 OR tensors = ?1)"
    )
    return bool(records.value(sql, name))


def needed_objects(records: Records) -> set[str]:
    """The names of all objects that rows name."""
    sql = "SELECT object FROM segments UNION SELECT learner FROM states UNION SELECT tensors FROM states"
    return {name for (name,) in records.query(sql)}


def is_workspace(folder: Path) -> bool:
    """Whether a folder holds a workspace."""
    return (folder / DATABASE).exists() or (folder / FORMAT_1).exists()


class Store:
    """The files of a workspace.

    Parameters
    ----------
    folder
        Where they are; `new` makes one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = Database(folder / DATABASE, SCHEMA, damaged, newer)
        self.objects = Objects(folder / OBJECTS, damaged)
        if not folder.is_dir():
            raise InputError("there is no such workspace", file=folder, fix="make one with: evergraph ws init")
        if not is_workspace(folder):
            raise InputError(
                "this folder holds no workspace, or making it was interrupted",
                file=folder,
                fix="make one with: evergraph ws init",
            )
        if (folder / FORMAT_1).exists():
            from evergraph.workspace.convert import convert

            with _disk_errors(folder):
                convert(folder)
        _ = self.head  # which looks at whether it is one

    @property
    def head(self) -> int:
        """Number of the version in force."""
        with self.read() as records:
            return head_of(records)

    @property
    def numbers(self) -> list[int]:
        """Numbers of the versions that are kept, the one in force last."""
        with self.read() as records:
            return [number for (number,) in records.query("SELECT version FROM states ORDER BY version")]

    @contextlib.contextmanager
    def read(self) -> Iterator[Records]:
        """All records, as they are now."""
        try:
            with self.database.read() as records:
                yield records
        except InvalidJsonError as error:
            raise damaged(self.database.path, str(error)) from error
        except OSError as error:
            if isinstance(error, EvergraphError):
                raise
            raise damaged(self.database.path, f"it cannot be read ({error.strerror or error})") from error

    @contextlib.contextmanager
    def write(self, wait: float = 0) -> Iterator[Records]:
        """Hold the workspace to change it in one transaction; no other process can meanwhile.

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
                    self.objects.settle(lambda name: is_needed(records, name))
                    self.objects.remove(row.object for row in records.select("garbage"))
                    yield records
                    made = head_of(records)
            except OSError as error:
                if isinstance(error, EvergraphError) or not made or made == before:
                    raise
                raise self._in_the_end(made, error) from error
            if made != before:
                self._tidy()

    def commit(self, records: Records, version: int, keep: int) -> None:
        """Have the disk confirm the objects of a version, and forget versions that are too old."""
        records.delete("garbage", "TRUE")
        drop_versions(records, version - keep + 1)
        self.objects.sync()

    def _tidy(self) -> None:
        """Remove objects that are not needed any more; what fails now goes with the next command."""
        with contextlib.suppress(OSError, EvergraphError), self.read() as records:
            self.objects.settle(lambda name: is_needed(records, name))
            self.objects.remove(row.object for row in records.select("garbage"))

    def _in_the_end(self, number: int, error: OSError) -> Exception:
        """What came of a commit that the disk failed at."""
        told = "the disk failed in the very moment of the change; 'evergraph ws log' tells whether it was made"
        with contextlib.suppress(OSError, EvergraphError):
            if self.head != number:
                return error
            told = "it is done, but the disk did not confirm it; look at 'evergraph ws log' after the next start"
        return EvergraphError(f"{self.folder}: {told} ({error.strerror or error}).")

    @classmethod
    @contextlib.contextmanager
    def new(cls, folder: Path) -> Iterator[tuple[Records, Objects]]:
        """Make a workspace: there is one when this ends without an error, and else nothing."""
        if folder.exists() and not folder.is_dir():
            raise InputError("this is a file, not a folder", file=folder, fix="choose another folder")
        made = not folder.exists()
        with _disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                with locked(folder, "workspace"):
                    yield from cls._new(folder, made=made)
            except OSError:
                if made:
                    with contextlib.suppress(OSError):
                        folder.rmdir()  # which it refuses if there is anything inside
                raise

    @classmethod
    def _new(cls, folder: Path, *, made: bool) -> Iterator[tuple[Records, Objects]]:
        try:
            if is_workspace(folder):
                raise InputError("there is a workspace already", file=folder, fix="choose another folder")
            others = {entry.name for entry in folder.iterdir()} - {LOCK, OBJECTS}
            if any(not name.startswith(f"{DATABASE}.new") for name in others):
                raise InputError("the folder holds something else", file=folder, fix="choose an empty or a new folder")
            refuse_link(folder / OBJECTS)
            objects = Objects(folder / OBJECTS, damaged)
            objects.clear()
            sync_folder(folder.parent)
            with Database(folder / DATABASE, SCHEMA, damaged, newer).create() as records:
                yield records, objects
                objects.sync()
                objects.settle(lambda _: True)
                sync_folder(folder)
            sync_folder(folder)
        except OSError as error:
            if isinstance(error, EvergraphError) or not is_workspace(folder):
                raise
            told = "it is done, but the disk did not confirm it; look at 'evergraph ws log' after the next start"
            raise EvergraphError(f"{folder}: {told} ({error.strerror or error}).") from error
        finally:
            # Only who holds the lock may clean up: without it, this may be another process's unfinished work.
            if made and not is_workspace(folder):
                shutil.rmtree(folder, ignore_errors=True)

    def verify(self) -> dict[str, int]:
        """Read everything and compare it with its checksums; returns how much was read."""
        while True:
            with self.read() as records:
                head, rows, needed = head_of(records), records.verify(), needed_objects(records)
            try:
                return {"rows": rows, "objects": len(needed), "bytes": self.objects.verify(needed)}
            except DamagedWorkspaceError:
                if self.head == head:  # else another process may have removed it
                    raise


@contextlib.contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, EvergraphError):
            raise
        raise EvergraphError(
            f"{error.filename or folder}: the disk refused ({error.strerror or error}); nothing was changed. Make "
            "room, or change permissions, and run the same command again."
        ) from error


def damaged(path: Path, problem: str) -> DamagedWorkspaceError:
    return DamagedWorkspaceError(problem, file=path, fix="restore the folder from a backup")


def newer(path: Path, problem: str) -> DamagedWorkspaceError:
    return DamagedWorkspaceError(problem, file=path, fix="update Evergraph")
