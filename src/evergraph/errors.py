"""The error classes of Evergraph. A message says where the fault is and how to fix it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

__all__ = [
    "BusyError",
    "DamagedGraphError",
    "DamagedLearnerError",
    "DamagedWorkspaceError",
    "DownloadError",
    "EvergraphError",
    "InputError",
    "NothingToDoError",
    "Origin",
    "StaleError",
    "StorageError",
    "os_error",
]

_LONGEST = 400  # letters of a problem: a cell that it quotes can be of any length
_FIELDS = ("problem", "fix", "file", "column", "row", "line")


class EvergraphError(Exception):
    """Base class of all errors that Evergraph raises on purpose.

    Parameters
    ----------
    problem
        What is wrong, in one sentence without a full stop.
    fix
        What to do about it, in the imperative, without a full stop. The message starts it with a capital letter.
    file, column, row
        Where it is wrong, as far as known. Rows count from 1 and do not include the header.
    line
        The line of a text file on which that row starts.
    """

    exit_code: ClassVar[int] = 1
    """Exit code of a command that ends with this error."""
    kind: ClassVar[str] = "failure"
    """Name of the error for programs that read it as JSON."""

    def __init__(
        self,
        problem: str,
        *,
        fix: str | None = None,
        file: str | Path | None = None,
        column: str | None = None,
        row: int | None = None,
        line: int | None = None,
    ) -> None:
        problem = problem if len(problem) <= _LONGEST else f"{problem[: _LONGEST - 60]} … {problem[-60:]}"
        column = column if column is None or len(column) <= 80 else f"{column[:80]}…"
        self.problem, self.fix = problem, fix
        self.file, self.column, self.row, self.line = file, column, row, line
        place = [str(file)] if file is not None else []
        if column is not None:
            place.append(f"column '{column}'")
        if row is not None:
            place.append(f"row {row}" + (f" (line {line})" if line is not None else ""))
        end = "" if problem.endswith("?") else "."
        message = f"{', '.join(place)}: {problem}{end}" if place else f"{problem}{end}"
        super().__init__(f"{message} {fix[0].upper()}{fix[1:]}." if fix else message)

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the constructor with the whole message, which would be composed again.
        return _unpickled, (type(self), self.args, vars(self))

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON, as far as they are known."""
        known = {name: value for name, value in vars(self).items() if name in _FIELDS and value is not None}
        if self.file is not None:
            known["file"] = str(self.file)
        return {"code": self.exit_code, "kind": self.kind, "message": str(self), **known}


def _unpickled(kind: type[EvergraphError], args: tuple[Any, ...], state: dict[str, Any]) -> EvergraphError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(state)
    return error


class InputError(EvergraphError, ValueError):
    """A file, a column, a row or an argument that cannot be used.

    Examples
    --------
    >>> raise InputError("'soon' is not a time", fix="write a year", file="p.csv", column="time", row=7, line=8)
    Traceback (most recent call last):
    evergraph.errors.InputError: p.csv, column 'time', row 7 (line 8): 'soon' is not a time. Write a year.
    """

    exit_code = 2
    kind = "input"


class NothingToDoError(InputError):
    """A command that has nothing to do, because everything is as it should be. Nothing was changed."""

    exit_code = 0
    kind = "nothing"


class DamagedGraphError(InputError):
    """A graph folder that does not match its manifest or has none."""

    kind = "damage"


class DamagedLearnerError(InputError):
    """A learner's folder that is not as it was saved, or holds no learner."""

    kind = "damage"


class DamagedWorkspaceError(InputError):
    """A workspace that is not as it was saved, or has a newer format."""

    kind = "damage"


class BusyError(EvergraphError):
    """A folder or file that another process is writing."""

    exit_code = 3
    kind = "busy"


class StaleError(EvergraphError):
    """A change that is based on an older version of a workspace than the current one. Nothing was changed."""

    exit_code = 3
    kind = "stale"


class StorageError(EvergraphError):
    """A file that the disk refused to read or write: it is full, read-only or defective, or permission is missing."""

    exit_code = 4
    kind = "storage"


class DownloadError(EvergraphError, OSError):
    """A download that failed. What has arrived is kept for the next attempt."""

    kind = "download"


_REFUSED = {
    "change the permissions, or choose another place": ("EACCES", "EPERM"),
    "free disk space, or choose another disk": ("ENOSPC",),
    "free disk space, or ask for a larger quota": ("EDQUOT",),
    "choose a place that is not read-only": ("EROFS",),
    "raise the limit of file sizes (ulimit -f), or choose another file system": ("EFBIG",),
    "check the disk": ("EIO", "ENXIO", "ENODEV", "ESTALE", "EUCLEAN", "EREMOTEIO", "ENOMEDIUM"),
}
_FIX_OF = {getattr(errno, name): fix for fix, names in _REFUSED.items() for name in names if hasattr(errno, name)}
_WRONG_PATH = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}


def os_error(
    error: OSError,
    problem: str = "",
    *,
    file: str | Path | None = None,
    note: str = "",
    fix: str = "check the path",
    damaged: Callable[[str], EvergraphError] | None = None,
) -> EvergraphError:
    """Return the error of Evergraph for one of the operating system.

    Parameters
    ----------
    error
        If the disk refused, a `StorageError` is returned; if the path is wrong, an `InputError`.
    problem
        What could not be done.
    file
        The path, if ``error`` does not have it.
    note
        What is stored or changed, as a sentence without a full stop.
    fix
        The fix if the path is wrong.
    damaged
        For files that must be there and readable: makes the error, from the problem, unless the disk refused.
    """
    if isinstance(error, EvergraphError):
        return error
    reason = error.strerror or str(error)
    told = (f"{problem} ({reason})" if problem else reason) + (f". {note}" if note else "")
    place = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else file
    if error.errno in _FIX_OF:
        return StorageError(told, fix=f"{_FIX_OF[error.errno]}, and try again", file=place)
    if damaged is not None:
        return damaged(told)
    if error.errno in _WRONG_PATH:
        return InputError(told, fix=fix, file=place)
    return EvergraphError(told, file=place)


@dataclass(frozen=True)
class Origin:
    """The file or argument that a table came from.

    Parameters
    ----------
    file
        What an error calls the table: a path, or the name of an argument.
    line_of
        Returns the line of a text file on which a row (counted from 0) starts. Called only for errors.
    """

    file: str | Path
    line_of: Callable[[int], int | None] = lambda _: None

    def fail(self, problem: str, *, fix: str, column: str | None = None, row: int | None = None) -> NoReturn:
        """Raise an `InputError` for this table. ``row`` counts from 0 here and from 1 in the message."""
        if row is None:
            raise InputError(problem, fix=fix, file=self.file, column=column)
        raise InputError(problem, fix=fix, file=self.file, column=column, row=row + 1, line=self.line_of(row))
