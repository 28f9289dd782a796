"""Candidate groups among the vertices to look at, with numbers by which they can be named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evergraph.analysis.explain import words_of
from evergraph.errors import InputError
from evergraph.graph.evolving import EvolvingGraph
from evergraph.inputs.slice_context import Sight
from evergraph.learning.task import Task
from evergraph.workspace.groups import Group, find_groups
from evergraph.workspace.words import counted

__all__ = ["ReviewGroup", "chosen_groups", "group_places"]


@dataclass(frozen=True)
class ReviewGroup:
    """Vertices to look at that belong together: perhaps a new class.

    Parameters
    ----------
    number
        Counted from 1, the largest group first. It holds as long as no command changes the workspace.
    time
        Of its vertices, as the axis writes it.
    size
        How many they are.
    terms
        Words that set them apart from the rest of the slice and of the three times before it; none without text.
    exemplars
        The most central members, each with the words that say most about it.
    edges
        How many edges there are among them.
    members
        Their ids, the most central first.
    """

    number: int
    time: int | str
    size: int
    terms: tuple[str, ...]
    exemplars: tuple[tuple[str | int, tuple[str, ...]], ...]
    edges: int
    members: tuple[str | int, ...]

    @property
    def what(self) -> str:
        """Which group it is, in words.

        Examples
        --------
        >>> ReviewGroup(2, 2018, 1, ("matrix", "cell"), (("p", ()),), 0, ("p",)).what
        'group 2: 1 vertex of 2018 (matrix, cell)'
        """
        about = f" ({', '.join(self.terms)})" if self.terms else ""
        return f"group {self.number}: {counted(self.size, 'vertex', 'vertices')} of {self.time}{about}"

    def as_dict(self) -> dict[str, Any]:
        """Fit for JSON."""
        exemplars = [{"id": id, "words": words} for id, words in self.exemplars]
        return asdict(self) | {"exemplars": exemplars}


def group_places(graph: EvolvingGraph, places: Iterable[int]) -> list[ReviewGroup]:
    """The groups among some vertices, slice by slice; the largest first, of equally large ones the newest.

    Parameters
    ----------
    graph
        The graph.
    places
        Rows of the vertices.
    """
    of_time: dict[int, list[int]] = {}
    for place in places:
        of_time.setdefault(int(graph.times[place]), []).append(place)
    found: list[tuple[int, Group, tuple[tuple[str, ...], ...]]] = []
    for time in sorted(of_time, reverse=True):
        sight = Sight(Task(graph, time, None), classes=())
        first = sight.window.rows.start + sight.start
        groups = find_groups(sight, np.array(of_time[time]) - first)
        words = iter(_words(graph, time, [id for group in groups for id in group.exemplars]))
        found += [(time, group, tuple(next(words) for _ in group.exemplars)) for group in groups]
    found.sort(key=lambda one: -len(one[1]))
    return [
        ReviewGroup(
            number=number,
            time=graph.axis.value(time),
            size=len(group),
            terms=group.terms,
            exemplars=tuple(zip(group.exemplars, words, strict=True)),
            edges=group.edges,
            members=group.members,
        )
        for number, (time, group, words) in enumerate(found, 1)
    ]


def chosen_groups(groups: Sequence[ReviewGroup], numbers: Iterable[int]) -> list[ReviewGroup]:
    """The groups of these numbers, each once."""
    for number in numbers:
        if not groups:
            raise InputError(
                f"there is no group {number}, for there is no group of vertices to review",
                fix="see: evergraph ws review",
            )
        if not 1 <= number <= len(groups):
            range_ = "1" if len(groups) == 1 else f"one from 1 to {len(groups):,}"
            raise InputError(f"there is no group {number}", fix=f"choose {range_}; evergraph ws review shows them")
    return [groups[number - 1] for number in dict.fromkeys(numbers)]


def _words(graph: EvolvingGraph, time: int, ids: list[str | int]) -> list[tuple[str, ...]]:
    """The words that say most about vertices of one time."""
    if not ids:
        return []
    slice_ = graph.window(time, time)
    return words_of(slice_, graph.find(ids) - slice_.rows.start, before=time + 1)
