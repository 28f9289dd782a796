"""The error classes of Evergraph. A message says where the fault is and how to fix it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

__all__ = [
    "DamagedGraphError",
    "DamagedLearnerError",
    "DamagedWorkspaceError",
    "DownloadError",
    "EvergraphError",
    "InputError",
    "Origin",
]

_LONGEST = 400  # letters of a problem: a cell that it quotes can be of any length


class EvergraphError(Exception):
    """Base class of all errors that Evergraph raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the constructor with the whole message, which would be composed again.
        return _unpickled, (type(self), self.args, vars(self))


def _unpickled(kind: type[EvergraphError], args: tuple[Any, ...], state: dict[str, Any]) -> EvergraphError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(state)
    return error


class InputError(EvergraphError, ValueError):
    """A file, a column, a row or an argument that cannot be used.

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

    Examples
    --------
    >>> raise InputError("'soon' is not a time", fix="write a year", file="p.csv", column="time", row=7, line=8)
    Traceback (most recent call last):
    evergraph.errors.InputError: p.csv, column 'time', row 7 (line 8): 'soon' is not a time. Write a year.
    """

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
        super().__init__(_sentences(f"{', '.join(place)}: {problem}" if place else problem, fix))


def _sentences(problem: str, fix: str | None) -> str:
    return f"{problem}. {fix[0].upper()}{fix[1:]}." if fix else f"{problem}."


class DamagedGraphError(InputError):
    """A graph folder that does not match its manifest or has none."""


class DamagedLearnerError(InputError):
    """A learner's folder that is not as it was saved, or holds no learner."""


class DamagedWorkspaceError(InputError):
    """A workspace that is not as it was saved, or has a newer format."""


class DownloadError(EvergraphError, OSError):
    """A download that failed. What has arrived is kept for the next attempt."""

    def __init__(self, problem: str, *, fix: str | None = None) -> None:
        super().__init__(_sentences(problem, fix))


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
