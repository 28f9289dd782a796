"""Where a table came from, so that an error can point at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from evergraph.errors import InputError


@dataclass(frozen=True)
class Origin:
    """The file (or the argument) that a table came from.

    Parameters
    ----------
    file
        What an error calls the table: a path, or the name of an argument.
    line_of
        The line of a text file on which a row (counted from 0) starts, found only when an error needs it.
    """

    file: str | Path
    line_of: Callable[[int], int | None] = lambda _: None

    def fail(self, problem: str, *, fix: str, column: str | None = None, row: int | None = None) -> NoReturn:
        """Raise an `InputError` that points here; rows are counted from 0 and told from 1."""
        if row is None:
            raise InputError(problem, fix=fix, file=self.file, column=column)
        raise InputError(problem, fix=fix, file=self.file, column=column, row=row + 1, line=self.line_of(row))
