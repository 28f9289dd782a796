"""The graphs that are experimented on: what grids and tables need to know, also where a graph is not at hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evergraph.analysis.description import first_task
from evergraph.errors import InputError
from evergraph.evaluation.graphs import graph_of, name_of
from evergraph.evaluation.trials import CLAIMS
from evergraph.learning.task import History, history_sizes
from evergraph.storage.files import only_one, write_atomic

__all__ = ["LEVELS", "Subject", "keep_subjects", "kept_subjects", "subject"]

LEVELS = (25, 50, 75, 100)
"""Shares of the time differences that the four histories cover, in percent."""
FILE = "graphs.json"


@dataclass(frozen=True)
class Subject:
    """A graph to experiment on.

    Parameters
    ----------
    path
        Where it is: a graph folder, or the name of one that needs none.
    fingerprint
        Tells it from all others.
    sizes
        The histories that cover 25, 50 and 75 percent of the time differences before its first task.

    Examples
    --------
    >>> found = subject("metamath")
    >>> found.name, [found.history(level) for level in LEVELS]
    ('metamath', [1, 2, 7, 'full'])
    """

    path: str
    fingerprint: str
    sizes: tuple[int, int, int]

    @property
    def name(self) -> str:
        """The last part of its path."""
        return name_of(self.path)

    def history(self, level: int) -> History:
        """The history of a level; all of it for 100 percent."""
        return "full" if level == LEVELS[-1] else self.sizes[LEVELS.index(level)]


def subject(path: str) -> Subject:
    """Look at a graph."""
    graph, fingerprint = graph_of(path)
    start = first_task(graph)
    sizes = {} if start is None else history_sizes(graph, start)
    if not sizes:
        raise InputError(
            "the graph has no edges before its first task to choose histories from",
            file=path,
            fix="choose a graph with edges and at least two times",
        )
    return Subject(path, fingerprint, (sizes[25], sizes[50], sizes[75]))


def kept_subjects(folder: Path) -> dict[str, Subject]:
    """The graphs whose results are in a folder, by name."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        entries: Mapping[str, Any] = json.loads(path.read_bytes())
        return {name: _subject_of(entry) for name, entry in entries.items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            "this is not the list of graphs of our results", file=path, fix="remove it, and name the graphs once more"
        ) from error


def _subject_of(entry: Mapping[str, Any]) -> Subject:
    path, fingerprint, sizes = entry["path"], entry["fingerprint"], tuple(entry["sizes"])
    if not isinstance(path, str) or not isinstance(fingerprint, str) or len(sizes) != len(LEVELS) - 1:
        raise TypeError
    if not all(type(size) is int and size > 0 for size in sizes):
        raise TypeError
    return Subject(path, fingerprint, sizes)


def keep_subjects(folder: Path, subjects: Sequence[Subject]) -> None:
    """Add graphs to those of a folder of results; another graph of the same name is refused, and nothing written."""
    if _merged(folder, subjects) == kept_subjects(folder):
        return
    (folder / CLAIMS).mkdir(parents=True, exist_ok=True)
    with only_one(folder / CLAIMS / FILE):  # for another command may be adding its own
        entries = {name: asdict(found) for name, found in sorted(_merged(folder, subjects).items())}
        write_atomic(folder / FILE, json.dumps(entries, indent=1).encode() + b"\n")


def _merged(folder: Path, subjects: Sequence[Subject]) -> dict[str, Subject]:
    there = kept_subjects(folder)
    merged = dict(there)
    for found in subjects:
        before = merged.get(found.name)
        if before is not None and before.fingerprint != found.fingerprint:
            told = "the results are of another graph" if found.name in there else "two different graphs are"
            raise InputError(
                f"{told} named {found.name}",
                file=folder,
                fix="rename the folder of the graph, or keep its results elsewhere (--results)",
            )
        merged[found.name] = found
    return merged
