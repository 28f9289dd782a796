"""Class names and their rows: integer class codes never leave the package, names do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError

__all__ = ["UNSEEN", "ClassRegistry", "total_variation"]

UNSEEN = "unseen"
"""What a decision says of a vertex whose class was never seen before; no class may bear this name."""


@dataclass(frozen=True, eq=False)
class ClassRegistry:
    """The classes of a graph, one row each, in the order in which they became known.

    Rows never move: a graph that learns a new class appends it, so a model's output rows stay valid.

    Parameters
    ----------
    names
        Class name by row.
    first, last
        First and last time at which a vertex has the class; 0 where ``support`` is 0.
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
        """Registry of classes with the given names, counted over vertices in ascending order of time."""
        names = tuple(names)
        labelled = np.flatnonzero(codes >= 0)
        codes, times = codes[labelled], times[labelled]
        first = np.zeros(len(names), np.int64)
        last = np.zeros(len(names), np.int64)
        # Later writes win: forwards leaves the last time of each class, backwards the first.
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
        """Row of a class by its name."""
        try:
            return self._rows[name]
        except KeyError:
            raise InputError(f"there is no class named {name!r}", fix="use one of the graph's class names") from None

    def count_of(self, name: str) -> int:
        """Number of vertices of a class; 0 where there is none of that name."""
        return int(self.support[self._rows[name]]) if name in self._rows else 0

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._rows


def extend_names(names: tuple[str, ...], more: Iterable[str]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Append the names that are new, and tell the row of each of ``more``; a last -1 is the row of no label.

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
    """For each name its place among some classes, -1 where it is none of them; one more entry, -1, is for no label.

    Examples
    --------
    >>> columns_among(("y",), ["x", "y"]).tolist()
    [-1, 0, -1]
    """
    place = {name: row for row, name in enumerate(classes)}
    return np.array([*(place.get(name, -1) for name in names), -1])


def total_variation(past: NDArray[np.float64], present: NDArray[np.float64]) -> NDArray[np.float64]:
    """Total variation of each row of the present against the row before of the past."""
    past, now = (counts / counts.sum(axis=1, keepdims=True) for counts in (past[:-1], present[1:]))
    moves = np.full(len(present), np.nan)
    moves[1:] = np.abs(past - now).sum(axis=1) / 2
    return moves
