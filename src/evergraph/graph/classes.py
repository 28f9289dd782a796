"""Class names and their rows. Codes (row numbers) stay inside the package; names are used outside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError

__all__ = ["UNSEEN", "ClassRegistry", "columns_among", "extend_names", "total_variation"]

UNSEEN = "unseen"
"""The decision for a vertex flagged as unseen. No class may have this name."""


@dataclass(frozen=True, eq=False)
class ClassRegistry:
    """The classes of a graph, one row each, in the order in which they became known.

    Rows never move: new classes are appended, so the output rows of a model stay valid.

    Parameters
    ----------
    names
        Class name by row.
    first, last
        First and last period in which a vertex has the class; 0 where ``support`` is 0.
    support
        Number of vertices of the class.

    Examples
    --------
    >>> registry = ClassRegistry.count(["KDD", "ICML"], codes=np.array([0, 1, 1, -1]), times=np.array([1, 2, 3, 4]))
    >>> registry.row("ICML"), registry.support.tolist(), registry.last.tolist()
    (1, [1, 2], [1, 3])
    """

    names: tuple[str, ...]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    support: NDArray[np.int64]

    @classmethod
    def count(cls, names: Iterable[str], codes: NDArray[np.integer], times: NDArray[np.integer]) -> ClassRegistry:
        """Count the classes with these names over vertices in ascending order of time."""
        names = tuple(names)
        labelled = np.flatnonzero(codes >= 0)
        codes, times = codes[labelled], times[labelled]
        first, last = np.zeros((2, len(names)), np.int64)
        # Later writes win: writing forwards leaves the last time of each class, backwards the first.
        last[codes] = times
        first[codes[::-1]] = times[::-1]
        support = np.bincount(codes, minlength=len(names)).astype(np.int64)
        for array in (first, last, support):
            array.flags.writeable = False
        return cls(names, first, last, support)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.names)}

    def row(self, name: str) -> int:
        """Return the row of a class."""
        try:
            return self._rows[name]
        except KeyError:
            raise InputError(f"there is no class named {name!r}", fix="use one of the graph's class names") from None

    def count_of(self, name: str) -> int:
        """Return the number of vertices of a class; 0 if there is no such class."""
        return int(self.support[self._rows[name]]) if name in self._rows else 0

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._rows


def extend_names(names: tuple[str, ...], more: Iterable[str]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Append the new names; also return the row of each of ``more``, and a last entry -1 for "no label".

    Examples
    --------
    >>> names, rows = extend_names(("KDD", "ICML"), ["WWW", "KDD"])
    >>> names, rows[[0, 1, -1]].tolist()
    (('KDD', 'ICML', 'WWW'), [2, 0, -1])
    """
    more = tuple(more)
    row_of = {name: row for row, name in enumerate(dict.fromkeys([*names, *more]))}
    return tuple(row_of), np.array([*(row_of[name] for name in more), -1], np.int32)


def columns_among(classes: tuple[str, ...], names: Iterable[str]) -> NDArray[np.int64]:
    """Return the position of each name among the classes, -1 if absent, and a last entry -1 for "no label"."""
    place = {name: row for row, name in enumerate(classes)}
    return np.array([*(place.get(name, -1) for name in names), -1])


def total_variation(past: NDArray[np.float64], present: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the total variation between each row of ``present`` and the previous row of ``past``."""
    past, now = (counts / counts.sum(axis=1, keepdims=True) for counts in (past[:-1], present[1:]))
    moves = np.full(len(present), np.nan)
    moves[1:] = np.abs(past - now).sum(axis=1) / 2
    return moves
