"""SQLite records: strict tables whose rows have checksums, read and changed in transactions; links are not followed."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import time
import zlib
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from evergraph.errors import BusyError
from evergraph.storage.decoding import InvalidContentError
from evergraph.storage.files import create, refuse_link

__all__ = ["Database", "Records", "Schema"]

SYNCHRONOUS = "EXTRA"
"""How SQLite waits for the disk: EXTRA also confirms that the journal of a commit is deleted."""

_BUSY = 60.0  # seconds to wait while another process commits, which takes milliseconds
_COMPANIONS = ("-journal", "-wal", "-shm")
_DISK_ERRORS = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
}

Row = Any
"""A row as a named tuple, without its checksum."""


class Schema:
    """Tables and indices as SQL; the last column of every table is ``checksum``.

    Parameters
    ----------
    sql
        Statements, separated by semicolons.
    application, version
        Application id and format version, written to the file's header.
    """

    def __init__(self, sql: str, application: int, version: int) -> None:
        self.sql, self.application, self.version = sql, application, version

    @cached_property
    def tables(self) -> dict[str, Callable[..., Row]]:
        """The named-tuple class for the rows of each table."""
        connection = self._empty
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {
            name: namedtuple(name, [row[1] for row in connection.execute(f"PRAGMA table_info({name})")][:-1])
            for name in names
        }

    @cached_property
    def definition(self) -> list[tuple[str, ...]]:
        """The schema as SQLite stores it."""
        return _definition(self._empty)

    @cached_property
    def _empty(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.executescript(self.sql)
        return connection


class Records:
    """The tables of a database within one transaction; rows are compared with their checksums when read."""

    def __init__(self, connection: sqlite3.Connection, schema: Schema, damaged: Callable[[str], Exception]) -> None:
        self._connection, self._schema, self._damaged = connection, schema, damaged

    def select(self, table: str, condition: str = "TRUE", *parameters: Any) -> list[Row]:
        """Return the rows that meet a condition, which may end in ORDER BY and LIMIT."""
        row_of, columns = self._schema.tables[table], self._columns(table)
        found = []
        for *values, checksum in self._connection.execute(
            f"SELECT {columns}, checksum FROM {table} WHERE {condition}",  # noqa: S608  # names are ours
            parameters,
        ):
            if _checksum(table, values) != checksum:
                raise self._damaged(f"a row of the table {table} is not what was saved: {values}"[:300])
            found.append(row_of(*values))
        return found

    def one(self, table: str, condition: str, *parameters: Any) -> Row | None:
        """Return the first row that meets a condition, or None."""
        return next(iter(self.select(table, f"{condition} LIMIT 1", *parameters)), None)

    def value(self, sql: str, *parameters: Any) -> Any:
        """Return the first value of a query, or None."""
        row = self._connection.execute(sql, parameters).fetchone()
        return None if row is None else row[0]

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query over several tables, or of counts."""
        return self._connection.execute(sql, parameters).fetchall()

    def insert(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Write rows with a value for each column."""
        marks = ", ".join("?" * (len(self._schema.tables[table]._fields) + 1))  # type: ignore[attr-defined]
        self._connection.executemany(
            f"INSERT INTO {table} ({self._columns(table)}, checksum) VALUES ({marks})",  # noqa: S608
            ((*row, _checksum(table, row)) for row in rows),
        )

    def replace(self, table: str, condition: str, parameters: Sequence[Any], **changes: Any) -> list[Row]:
        """Change the rows that meet a condition and return them as they were."""
        found = self.select(table, condition, *parameters)
        self.delete(table, condition, *parameters)
        self.insert(table, (row._replace(**changes) for row in found))
        return found

    def delete(self, table: str, condition: str, *parameters: Any) -> None:
        """Delete the rows that meet a condition."""
        self._connection.execute(f"DELETE FROM {table} WHERE {condition}", parameters)  # noqa: S608

    def verify(self) -> int:
        """Check the file, references and checksums of all rows; return the number of rows."""
        problems = [text for (text,) in self._connection.execute("PRAGMA integrity_check(3)") if text != "ok"]
        if not problems and self._connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
            problems = ["a row refers to a missing row"]
        if problems:
            raise self._damaged("; ".join(problems))
        return sum(len(self.select(table)) for table in self._schema.tables)

    def _columns(self, table: str) -> str:
        return ", ".join(self._schema.tables[table]._fields)  # type: ignore[attr-defined]


class Database:
    """A SQLite file with a schema; each transaction has its own connection, unless `reuse` is set.

    Parameters
    ----------
    path, schema
        The file and its schema.
    damaged, newer
        Make the errors for a damaged file and for a newer format.
    """

    def __init__(
        self,
        path: Path,
        schema: Schema,
        damaged: Callable[[Path, str], Exception],
        newer: Callable[[Path, str], Exception],
    ) -> None:
        self.path, self.schema, self._damaged, self._newer = path, schema, damaged, newer
        self.reuse = 0.0
        """Seconds for which a connection serves further reads without new checks of the file."""
        self._idle: list[tuple[float, sqlite3.Connection]] = []

    @property
    def version(self) -> int:
        """Format version of the file, which may be older than that of the schema."""
        with self._opened("BEGIN") as connection:
            return _number(connection, "user_version")

    def upgrade(self, older: Schema, convert: Callable[[Row], Sequence[Any]]) -> bool:
        """Upgrade a file of an older format in one transaction; return False if another process has done it.

        Parameters
        ----------
        older
            The older format; of its tables only those that have changed since.
        convert
            Returns the new values of a row of these tables.
        """
        with self._opened("BEGIN IMMEDIATE") as connection:
            if _number(connection, "user_version") != older.version:
                return False
            before, after = (Records(connection, schema, self._error) for schema in (older, self.schema))
            rows = {table: before.select(table) for table in older.tables}
            for table in older.tables:
                connection.execute(f"DROP TABLE {table}")
            there = {entry[:2] for entry in _definition(connection)}
            for kind, name, sql in sorted(self.schema.definition, key=lambda entry: entry[0] != "table"):
                if (kind, name) not in there:
                    connection.execute(sql)
            for table, found in rows.items():
                after.insert(table, map(convert, found))
            connection.execute(f"PRAGMA user_version = {self.schema.version}")
            self._check(connection)
            commit(connection)
        return True

    @contextlib.contextmanager
    def read(self) -> Iterator[Records]:
        """Read one consistent state of all tables, even while other processes commit."""
        if self.reuse:
            with self._reused() as connection:
                yield Records(connection, self.schema, self._error)
            return
        with self._connected("BEGIN") as connection:
            yield Records(connection, self.schema, self._error)
            connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def write(self) -> Iterator[Records]:
        """Change tables; commits at the end, or changes nothing on an exception. Readers are not blocked."""
        with self._connected("BEGIN IMMEDIATE") as connection:
            connection.execute("PRAGMA defer_foreign_keys = ON")  # checked with the commit
            yield Records(connection, self.schema, self._error)
            commit(connection)

    @contextlib.contextmanager
    def create(self) -> Iterator[Records]:
        """Build a new file under another name; it gets its own name when it is complete and on disk."""
        staged = self.path.with_name(f"{self.path.name}.new")
        for suffix in _COMPANIONS:
            staged.with_name(f"{staged.name}{suffix}").unlink(missing_ok=True)
            self.path.with_name(f"{self.path.name}{suffix}").unlink(missing_ok=True)
        create(staged).close()
        with contextlib.closing(_connect(staged)) as connection, self._sqlite_errors():
            connection.executescript(self.schema.sql)
            connection.execute(f"PRAGMA application_id = {self.schema.application}")
            connection.execute(f"PRAGMA user_version = {self.schema.version}")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("PRAGMA defer_foreign_keys = ON")  # checked with the commit
            yield Records(connection, self.schema, self._error)
            commit(connection)
        staged.replace(self.path)

    @contextlib.contextmanager
    def _connected(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._opened(begin) as connection:
            self._check(connection)
            yield connection

    @contextlib.contextmanager
    def _reused(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction on a connection that another read used a moment ago, or else on a new one."""
        made, connection = 0.0, None
        with contextlib.suppress(IndexError):
            made, connection = self._idle.pop()
        if connection is not None and time.monotonic() - made > self.reuse:
            connection.close()
            connection = None
        with self._sqlite_errors():
            is_new = connection is None
            if connection is None:
                self._check_files()
                made, connection = time.monotonic(), _connect(self.path, any_thread=True)
            try:
                connection.execute("BEGIN")
                if is_new:
                    self._check(connection)
                yield connection
                connection.execute("ROLLBACK")
            except BaseException:
                connection.close()
                raise
            self._idle.append((made, connection))

    def close(self) -> None:
        """Close the connections that wait for further reads."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop()[1].close()

    def _check_files(self) -> None:
        for suffix in ("", *_COMPANIONS):
            path = self.path.with_name(f"{self.path.name}{suffix}")
            refuse_link(path)
            if path.is_dir():  # SQLite's error would be that of missing permissions
                raise self._damaged(path, "this is a folder, not a file")
        if not self.path.exists():
            raise self._error("the file is missing")

    @contextlib.contextmanager
    def _opened(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Open the file, of any format, and begin a transaction."""
        self._check_files()
        with self._sqlite_errors(), contextlib.closing(_connect(self.path)) as connection:
            connection.execute(begin)
            yield connection

    def _check(self, connection: sqlite3.Connection) -> None:
        application, version = (_number(connection, name) for name in ("application_id", "user_version"))
        if application != self.schema.application:
            raise self._error("this is not the database of an Evergraph workspace")
        if version > self.schema.version:
            raise self._newer(self.path, f"it has format version {version}, newer than {self.schema.version}")
        if version != self.schema.version or _definition(connection) != self.schema.definition:
            raise self._error("its tables are not those of an Evergraph workspace")

    @contextlib.contextmanager
    def _sqlite_errors(self) -> Iterator[None]:
        """Turn SQLite's errors of the disk into ``OSError``, locks into `BusyError`, all others into damage."""
        try:
            yield
        except UnicodeError as error:
            raise self._error(f"it cannot be read ({error})") from error
        except InvalidContentError as error:
            raise self._error(str(error)) from error
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise BusyError(str(error), file=self.path, fix="wait until the other process is done") from error
            if code in _DISK_ERRORS:
                raise OSError(_DISK_ERRORS[code], str(error), str(self.path)) from error
            raise self._error(f"it cannot be read ({error})") from error

    def _error(self, problem: str) -> Exception:
        return self._damaged(self.path, problem)


def commit(connection: sqlite3.Connection) -> None:
    """Commit the transaction: the commit point of every change."""
    connection.execute("COMMIT")


def _connect(path: Path, *, any_thread: bool = False) -> sqlite3.Connection:
    uri = f"file:{quote(str(path))}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY, check_same_thread=not any_thread)
    try:
        for pragma in (
            f"synchronous = {SYNCHRONOUS}",
            "foreign_keys = ON",
            "trusted_schema = OFF",
            "cache_spill = OFF",
        ):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _definition(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    found = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
    return [tuple(row) for row in found]


def _checksum(table: str, values: Iterable[Any]) -> int:
    return zlib.crc32(repr((table, *values)).encode())
