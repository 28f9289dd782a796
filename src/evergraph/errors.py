"""The one error tree: every message says where the fault is and what to do about it."""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "DamagedGraphError",
    "DamagedLearnerError",
    "DamagedWorkspaceError",
    "DownloadError",
    "EvergraphError",
    "InputError",
]


_LONGEST = 400


class EvergraphError(Exception):
    """The root of all errors that Evergraph raises on purpose."""


class InputError(EvergraphError, ValueError):
    """What was given cannot be used: a file, a column, a row or an argument.

    Parameters
    ----------
    problem
        What is wrong, in one sentence without a full stop.
    fix
        What to do about it, in one sentence without a full stop.
    file, column, row
        Where it is wrong, as far as that is known. Rows count from 1 and leave a header out.
    line
        The line of a text file on which that row starts.

    Examples
    --------
    >>> raise InputError("'soon' is not a time", fix="write a year", file="p.csv", column="time", row=7, line=8)
    Traceback (most recent call last):
    evergraph.errors.InputError: p.csv, column 'time', row 7 (line 8): 'soon' is not a time. To fix it: write a year.
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
        # A cell may be as long as a book; an error may not.
        problem = problem if len(problem) <= _LONGEST else f"{problem[: _LONGEST - 60]} … {problem[-60:]}"
        column = column if column is None or len(column) <= 80 else f"{column[:80]}…"
        self.problem, self.fix = problem, fix
        self.file, self.column, self.row, self.line = file, column, row, line
        place = [str(file)] if file is not None else []
        if column is not None:
            place.append(f"column '{column}'")
        if row is not None:
            place.append(f"row {row}" + (f" (line {line})" if line is not None else ""))
        message = f"{', '.join(place)}: {problem}" if place else problem
        super().__init__(f"{message}. To fix it: {fix}." if fix else f"{message}.")


class DamagedGraphError(InputError):
    """A graph folder is not what its manifest says, or has none."""


class DamagedLearnerError(InputError):
    """A learner's folder is not what was saved, or holds none."""


class DamagedWorkspaceError(InputError):
    """A workspace is not what was saved, or is of a newer version."""


class DownloadError(EvergraphError, OSError):
    """A download that was asked for could not be finished; what arrived is kept for the next try."""
