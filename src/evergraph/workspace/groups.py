"""Candidate groups: flagged vertices that belong together, for people to judge at once instead of one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from evergraph.analysis.explain import words_of
from evergraph.errors import InputError
from evergraph.graph import ids as id_columns
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import SparseFeatures
from evergraph.inputs.slice_context import SliceContext
from evergraph.learning.task import Task
from evergraph.workspace.change import counted
from evergraph.workspace.communities import communities
from evergraph.workspace.ties import by_id, edges_among, ties_among

__all__ = ["Group", "ReviewGroup", "chosen_groups", "find_groups", "group_places", "telling_words"]

_EXEMPLARS = 3
_TERMS = 6
_LEAST = 1.64  # standard errors: what one in twenty words of no meaning would exceed
_SUPPORT = 2  # members that must have a word


# --- groups for review ---------------------------------------------------------------------------------------------


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
        context = SliceContext(Task(graph, time, None), classes=())
        first = context.window.rows.start + context.start
        groups = find_groups(context, np.array(of_time[time]) - first)
        words = iter(_exemplar_words(graph, time, [id for group in groups for id in group.exemplars]))
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


def _exemplar_words(graph: EvolvingGraph, time: int, ids: list[str | int]) -> list[tuple[str, ...]]:
    """The words that say most about vertices of one time."""
    if not ids:
        return []
    slice_ = graph.window(time, time)
    return words_of(slice_, graph.find(ids) - slice_.rows.start, before=time + 1)


# --- groups in a slice ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Vertices that belong together.

    Parameters
    ----------
    members
        Their ids, those with most ties to the others first.
    terms
        Words that set them apart from the rest of the slice and of the recent past, most telling first; none where
        vertices have no words.
    edges
        How many edges there are among them.
    """

    members: tuple[str | int, ...]
    terms: tuple[str, ...]
    edges: int

    def __len__(self) -> int:
        return len(self.members)

    @property
    def exemplars(self) -> tuple[str | int, ...]:
        """The three most central members."""
        return self.members[:_EXEMPLARS]


def find_groups(context: SliceContext, rows: ArrayLike) -> list[Group]:
    """Groups of two or more among some vertices of a slice, the largest first, of equally large ones the closest knit.

    Vertices are tied by edges and by what only few have in common: words, neighbours, or dense features of about the
    same direction (see `ties_among`). Groups are the communities of these ties (see `communities`). Vertices that no
    tie leads to are in no group. The order of the vertices, among ``rows`` or in the graph, does not matter.

    Parameters
    ----------
    context
        The slice, among the times before it.
    rows
        The vertices that were flagged, counted from the first of the slice.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> from evergraph.learning.task import Task
    >>> texts = ["old news"] * 6 + ["deep net", "deep net", "deep learning net", "odd one"]
    >>> graph = EvolvingGraph.build({"id": list("abcdefghij"), "time": [1] * 6 + [2] * 4, "text": texts}, [["g", "i"]])
    >>> find_groups(SliceContext(Task(graph, time=2, history=1), classes=()), [0, 1, 2, 3])
    [Group(members=('g', 'i', 'h'), terms=('deep', 'net'), edges=1)]
    """
    rows = _checked(rows, len(context))
    if not len(rows):
        return []
    ids = context.window.ids[context.start :]
    rows = rows[by_id(id_columns.take(ids, rows))]
    ties = ties_among(context, rows)
    of = communities(ties)
    entries = ties.tocoo()
    inside = of[entries.row] == of[entries.col]
    knit = np.bincount(entries.row[inside], entries.data[inside], minlength=len(rows))  # ties to its own group
    sizes, ties_in = np.bincount(of), np.bincount(of, knit)
    # Communities are counted by their first members, so the last resort is the order of ids.
    order = [group for group in np.lexsort((np.arange(len(sizes)), -ties_in, -sizes)) if sizes[group] > 1]
    number = np.full(len(sizes), -1)
    number[order] = np.arange(len(order))
    group = number[of]
    kept = np.flatnonzero(group >= 0)
    terms = telling_words(context, rows[kept], group[kept], _TERMS)
    one, other = edges_among(context, rows)
    edges = np.bincount(group[one[(group[one] == group[other]) & (group[one] >= 0)]], minlength=len(order))
    central = kept[np.lexsort((kept, -knit[kept], group[kept]))]
    members = np.split(central, np.cumsum(sizes[order])[:-1]) if order else []
    return [
        Group(tuple(id_columns.at(ids, int(row)) for row in rows[places]), words, int(count))
        for places, words, count in zip(members, terms, edges, strict=True)
    ]


def _checked(rows: ArrayLike, n: int) -> NDArray[np.int64]:
    """The rows, each once."""
    found = np.asarray(rows)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise InputError("the rows are no list of whole numbers", fix="give the rows of the flagged vertices")
    found = np.unique(found).astype(np.int64)
    if len(found) and not 0 <= found[0] <= found[-1] < n:
        wrong = found[0] if found[0] < 0 else found[-1]
        raise InputError(f"there is no row {wrong} in a slice of {n}", fix="count from the first vertex of the slice")
    return found


# --- words of a group ----------------------------------------------------------------------------------------------


def telling_words(
    context: SliceContext, rows: NDArray[np.int64], group: NDArray[np.int64], most: int
) -> list[tuple[str, ...]]:
    """For each group the words that its members have more often than all others that are seen, most telling first.

    Words are in the order of the logarithm of their odds ratio in its standard errors, with half a text added to each
    count (Gart, 1966), so neither rare nor common ones win for that alone. At least two members must have a word.

    Parameters
    ----------
    context
        The slice, among the times before it: others are those of the slice and of the recent past.
    rows, group
        Vertices, counted from the first of the slice, and the number of each one's group, from 0.
    most
        How many words of each group; fewer where not so many are telling, none where there are no words.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> from evergraph.learning.task import Task
    >>> texts = ["the old news"] * 8 + ["the new thing"] * 3
    >>> graph = EvolvingGraph.build({"id": list(range(11)), "time": [1] * 8 + [2] * 3, "text": texts})
    >>> context = SliceContext(Task(graph, time=2, history=1), classes=())
    >>> telling_words(context, np.arange(3), np.zeros(3, np.int64), most=5)
    [('new', 'thing')]
    """
    number = int(group.max()) + 1 if len(group) else 0
    names, words, (older, new) = _names(context), context.words, context.texts
    members = sparse.csr_array((np.ones(len(rows)), (group, rows)), shape=(number, len(context)))
    counts = sparse.csr_array(members @ words[context.start :])
    counts.sort_indices()
    sizes, total, found = np.bincount(group, minlength=number), older + new, []
    for row, size in enumerate(sizes):
        part = slice(counts.indptr[row], counts.indptr[row + 1])
        columns, inside = counts.indices[part], counts.data[part]
        telling = _odds(inside, size, total[columns] - inside, len(context.window) - size)
        telling[inside < _SUPPORT] = 0
        order = np.argsort(-telling, kind="stable")[:most]  # of equally telling ones the first by name
        found.append(tuple(names[column] for column in columns[order[telling[order] >= _LEAST]]))
    return found


def _odds(inside: NDArray[np.float64], size: int, outside: NDArray[np.float64], others: int) -> NDArray[np.float64]:
    """Logarithms of odds ratios, in standard errors."""
    cells = [count + 0.5 for count in (inside, size - inside, outside, others - outside)]
    ratio = np.log(cells[0] * cells[3] / (cells[1] * cells[2]))
    return ratio / np.sqrt(sum(1 / cell for cell in cells))


def _names(context: SliceContext) -> list[str]:
    """The names of the columns of `SliceContext.words`."""
    features = context.task.graph.features
    if not isinstance(features, SparseFeatures):
        return []
    used = np.unique(features.rows(context.window.rows).matrix.indices)
    return sorted(features.columns.take(used))
