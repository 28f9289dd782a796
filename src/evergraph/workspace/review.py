"""Flagged vertices for review, and groups of similar ones: candidates for new classes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from evergraph.analysis.explain import STOP_WORDS, neighbours_of, shortened, texts_of, words_of
from evergraph.compiled import compiled
from evergraph.errors import InputError
from evergraph.graph import ids as id_columns
from evergraph.graph.classes import UNSEEN
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import WordCounts
from evergraph.graph.ids import Ids
from evergraph.inputs.similar import nearest_by_vectors, nearest_by_words, weighted
from evergraph.inputs.slice_context import SliceContext
from evergraph.learning.task import Task
from evergraph.presentation.text import counted
from evergraph.storage.records import Records
from evergraph.workspace.change import Contents
from evergraph.workspace.scores import latest_decisions
from evergraph.workspace.store import WorkspaceState

if TYPE_CHECKING:
    from evergraph.learning.attribution import Attribution

__all__ = [
    "FlaggedVertex",
    "Group",
    "ReviewGroup",
    "chosen_groups",
    "communities",
    "edges_among",
    "find_flagged",
    "find_groups",
    "review",
    "review_groups",
    "telling_words",
    "ties_among",
]

_EXEMPLARS = 3
_TERMS = 6
_SHORT = 120  # letters of a text of an example
_LEAST = 1.64  # standard errors; one in twenty random words exceeds this
_SUPPORT = 2  # members that must have a word
_NEAREST = 5
_COMMON, _FEW = 0.1, 10  # words and neighbours that more vertices share (share of the slice, number) are ignored
_SWEEPS = 100  # over all vertices, at each level; a few are enough
_ROUNDING = 1e-9  # smaller gains of modularity are rounding errors

_Longs = NDArray[np.int64]


# --- vertices for review ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FlaggedVertex:
    """A vertex that was flagged as unseen and has no label yet.

    Parameters
    ----------
    id, time
        Its id and period.
    score
        The detector's score; higher means more likely unseen.
    best, probability
        The most likely known class, and its probability if the class is known at all.
    words
        Its most characteristic words; none without text.
    neighbours
        Classes of its neighbours, with the number of neighbours.
    model
        Number of the model that decided.
    group
        Number of its group; None if it is in no group.
    text
        Its original text; None if it has none.
    because
        The inputs that contribute most to the most likely class; None unless they are asked for, or if an earlier model
        decided.
    """

    id: str | int
    time: int | str
    score: float
    best: str
    probability: float
    words: tuple[str, ...]
    neighbours: tuple[tuple[str, int], ...]
    model: int
    group: int | None = None
    text: str | None = None
    because: tuple[Attribution, ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return asdict(self) | {"neighbours": [{"class": name, "count": count} for name, count in self.neighbours]}


Flagged = list[tuple[dict[str, Any], int]]
"""Decisions on vertices for review, highest score first, with the vertices' rows in the graph."""


def find_flagged(records: Records, state: WorkspaceState, contents: Contents) -> Flagged:
    """Return the unlabelled vertices whose latest decision is `UNSEEN`."""
    times = np.unique(contents.graph.times[contents.labels < 0]).tolist()
    unseen = [row for row in latest_decisions(records, state, times).values() if row["class"] == UNSEEN]
    unseen.sort(key=lambda row: (-row["score"], row["id"]))
    places = contents.rows_of(row["vertex"] for row in unseen).tolist()
    return [
        (row, place) for row, place in zip(unseen, places, strict=True) if place >= 0 and contents.labels[place] < 0
    ]


def review(
    graph: EvolvingGraph,
    history: int | None,
    found: Flagged,
    groups: Sequence[ReviewGroup],
    *,
    most: int | None = None,
    group: int | None = None,
    explain: Callable[[Flagged], Mapping[int, tuple[Attribution, ...]]] = lambda _: {},
) -> list[FlaggedVertex]:
    """Return flagged vertices with their words and neighbours: at most ``most``, or those of one group.

    ``explain`` returns reasons for decisions, by row in the graph.
    """
    chosen = groups if group is None else chosen_groups(groups, [group])
    number_of = {str(id): one.number for one in chosen for id in one.members}
    left = [(row, place) for row, place in found if group is None or row["id"] in number_of][:most]
    of_time: dict[int, list[int]] = defaultdict(list)
    for row, place in left:
        of_time[row["period"]].append(place)
    words: dict[int, tuple[str, ...]] = {}
    texts: dict[int, str | None] = {}
    neighbours: dict[int, tuple[tuple[str, int], ...]] = {}
    for time, places in of_time.items():
        rows, slice_, window = np.array(places), graph.window(time, time), Task(graph, time, history).window
        words |= zip(places, words_of(slice_, rows - slice_.rows.start, before=time + 1), strict=True)
        texts |= zip(places, texts_of(slice_, rows - slice_.rows.start), strict=True)
        neighbours |= zip(places, neighbours_of(window, rows - window.rows.start), strict=True)
    because = explain(left)
    return [
        FlaggedVertex(
            id=id_columns.at(graph.ids, place),
            time=row["time"],
            score=row["score"],
            best=row["best"],
            probability=row["probability"],
            words=words[place],
            neighbours=neighbours[place],
            model=row["model"],
            group=number_of.get(row["id"]),
            text=texts[place],
            because=because.get(place),
        )
        for row, place in left
    ]


# --- groups for review -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReviewGroup:
    """Flagged vertices of one slice that are similar to each other: a candidate new class.

    Parameters
    ----------
    number
        Number of the group, from 1, the largest first. It is valid until the workspace changes.
    time
        The period of its vertices.
    size
        Number of vertices.
    terms
        Words that distinguish them from the rest of the slice and the three periods before; none without text.
    exemplars
        The most central vertices, each with its most characteristic words.
    edges
        Number of edges among them.
    nearest
        The most likely known classes, with the number of vertices for which each is; the most frequent three.
    members
        Their ids, the most central first.
    texts
        The original texts of the exemplars; None where there is none.
    """

    number: int
    time: int | str
    size: int
    terms: tuple[str, ...]
    exemplars: tuple[tuple[str | int, tuple[str, ...]], ...]
    edges: int
    nearest: tuple[tuple[str, int], ...]
    members: tuple[str | int, ...]
    texts: tuple[str | None, ...] = ()

    @property
    def what(self) -> str:
        """The group on one line.

        Examples
        --------
        >>> ReviewGroup(2, 2018, 1, ("matrix", "cell"), (("p", ()),), 0, (), ("p",)).what
        'group 2: 1 vertex of 2018 (matrix, cell)'
        """
        about = f" ({', '.join(self.terms)})" if self.terms else ""
        return f"group {self.number}: {counted(self.size, 'vertex', 'vertices')} of {self.time}{about}"

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        texts = self.texts or [None] * len(self.exemplars)
        exemplars = [
            {"id": id, "words": words, "text": text} for (id, words), text in zip(self.exemplars, texts, strict=True)
        ]
        nearest = [{"class": name, "count": count} for name, count in self.nearest]
        found = asdict(self) | {"exemplars": exemplars, "nearest": nearest}
        del found["texts"]
        return found

    @property
    def examples(self) -> list[tuple[str | int, str]]:
        """The exemplars, each with its original text, shortened, or with its most characteristic words."""
        texts = self.texts or [None] * len(self.exemplars)
        return [
            (id, ", ".join(words) if text is None else shortened(text, _SHORT))
            for (id, words), text in zip(self.exemplars, texts, strict=True)
        ]


def review_groups(graph: EvolvingGraph, flagged: Flagged) -> list[ReviewGroup]:
    """Return the groups among flagged vertices, slice by slice; the largest first, then the newest."""
    of_time: dict[int, list[int]] = defaultdict(list)
    for _, place in flagged:
        of_time[int(graph.times[place])].append(place)
    best = {str(graph.ids[place]): row["best"] for row, place in flagged}
    found: list[tuple[int, Group, tuple[tuple[str, ...], ...], tuple[str | None, ...]]] = []
    for time in sorted(of_time, reverse=True):
        context = SliceContext(Task(graph, time, None), classes=())
        first = context.window.rows.start + context.start
        groups = find_groups(context, np.array(of_time[time]) - first)
        ids = [id for group in groups for id in group.exemplars]
        slice_ = graph.window(time, time)
        rows = graph.find(ids) - slice_.rows.start if ids else np.empty(0, np.int64)
        words = iter(words_of(slice_, rows, before=time + 1) if ids else [])
        texts = iter(texts_of(slice_, rows))
        for group in groups:
            those = [(next(words), next(texts)) for _ in group.exemplars]
            found.append((time, group, tuple(one for one, _ in those), tuple(text for _, text in those)))
    found.sort(key=lambda one: -len(one[1]))
    return [
        ReviewGroup(
            number=number,
            time=graph.axis.value(time),
            size=len(group),
            terms=group.terms,
            exemplars=tuple(zip(group.exemplars, words, strict=True)),
            edges=group.edges,
            nearest=_most_frequent(best[str(id)] for id in group.members),
            members=group.members,
            texts=texts if any(texts) else (),
        )
        for number, (time, group, words, texts) in enumerate(found, 1)
    ]


def _most_frequent(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(names).items(), key=lambda one: (-one[1], one[0]))[:_EXEMPLARS])


def chosen_groups(groups: Sequence[ReviewGroup], numbers: Iterable[int]) -> list[ReviewGroup]:
    """Return the groups with these numbers, each once."""
    for number in numbers:
        if not 1 <= number <= len(groups):
            there = f"there are groups 1 to {len(groups):,}" if len(groups) > 1 else "there is only group 1"
            raise InputError(
                f"there is no group {number}: {there if groups else 'no vertices to review are similar'}",
                fix="choose a group that ws review shows",
            )
    return [groups[number - 1] for number in dict.fromkeys(numbers)]


# --- groups in a slice -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Similar vertices: their ids (most ties first), the words that distinguish them, and the edges among them."""

    members: tuple[str | int, ...]
    terms: tuple[str, ...]
    edges: int

    def __len__(self) -> int:
        return len(self.members)

    @property
    def exemplars(self) -> tuple[str | int, ...]:
        """The most central members."""
        return self.members[:_EXEMPLARS]


def find_groups(context: SliceContext, rows: ArrayLike) -> list[Group]:
    """Return groups of two or more flagged vertices of a slice, the largest first, then those with most ties.

    Groups are the communities (`communities`) of the ties between vertices (`ties_among`). Vertices without ties are
    in no group. The result does not depend on the order of the vertices.

    Parameters
    ----------
    context
        The slice.
    rows
        The flagged vertices, counted from the first of the slice.

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
    rows = rows[_by_id(id_columns.take(ids, rows))]
    ties = ties_among(context, rows)
    of = communities(ties)
    entries = ties.tocoo()
    inside = of[entries.row] == of[entries.col]
    knit = np.bincount(entries.row[inside], entries.data[inside], minlength=len(rows))  # ties to its own group
    sizes, ties_in = np.bincount(of), np.bincount(of, knit)
    # Communities are numbered by their first members, so the last criterion is the order of ids.
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


def _checked(rows: ArrayLike, n: int) -> _Longs:
    """Return the rows, each once."""
    found = np.asarray(rows)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise InputError("rows must be a list of integers", fix="give the rows of the flagged vertices")
    found = np.unique(found).astype(np.int64)
    if len(found) and not 0 <= found[0] <= found[-1] < n:
        wrong = found[0] if found[0] < 0 else found[-1]
        raise InputError(f"there is no row {wrong} in a slice of {n}", fix="count from the first vertex of the slice")
    return found


def _by_id(ids: Ids) -> _Longs:
    """Return the order of the ids, so that results do not depend on the order of vertices in the graph."""
    return np.argsort(ids if isinstance(ids, np.ndarray) else np.array(ids.tolist(), object), kind="stable")


def telling_words(context: SliceContext, rows: _Longs, group: _Longs, most: int) -> list[tuple[str, ...]]:
    """Return for each group the words that distinguish its members from the rest of the context, best first.

    Words are sorted by the logarithm of their odds ratio in standard errors, with half a text added to each count
    (Gart, 1966), so that neither rare nor common words have an advantage. At least two members must have a word.
    `STOP_WORDS` are left out.

    Parameters
    ----------
    context
        The slice and the periods before it.
    rows, group
        Vertices, counted from the first of the slice, and the number of each one's group, from 0.
    most
        Maximum number of words per group.

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
    names, (older, new) = _word_names(context), context.texts
    ignored = STOP_WORDS if isinstance(context.task.graph.features.words, WordCounts) else frozenset()
    shown = np.array([name not in ignored for name in names], bool)
    members = sparse.csr_array((np.ones(len(rows)), (group, rows)), shape=(number, len(context)))
    counts = sparse.csr_array(members @ context.words[context.start :])
    counts.sort_indices()
    sizes, total, found = np.bincount(group, minlength=number), older + new, []
    for row, size in enumerate(sizes):
        part = slice(counts.indptr[row], counts.indptr[row + 1])
        columns, inside = counts.indices[part], counts.data[part]
        telling = _odds(inside, size, total[columns] - inside, len(context.window) - size)
        telling[(inside < _SUPPORT) | ~shown[columns]] = 0
        order = np.argsort(-telling, kind="stable")[:most]  # ties by name
        found.append(tuple(names[column] for column in columns[order[telling[order] >= _LEAST]]))
    return found


def _odds(inside: NDArray[np.float64], size: int, outside: NDArray[np.float64], others: int) -> NDArray[np.float64]:
    """Return the logarithms of odds ratios, in standard errors."""
    cells = [count + 0.5 for count in (inside, size - inside, outside, others - outside)]
    ratio = np.log(cells[0] * cells[3] / (cells[1] * cells[2]))
    return ratio / np.sqrt(sum(1 / cell for cell in cells))


def _word_names(context: SliceContext) -> list[str]:
    """Return the names of the columns of `SliceContext.words`."""
    words = context.task.graph.features.words
    if words is None:
        return []
    used = np.unique(words.rows(context.window.rows).matrix.indices)
    return sorted(words.columns.take(used))


# --- ties ------------------------------------------------------------------------------------------------------------


def ties_among(context: SliceContext, rows: _Longs) -> sparse.csr_array:
    """Return how strongly flagged vertices are tied: an edge, and each being one of the five nearest to the other.

    Two vertices are near if they share rare words or rare neighbours (which may be older than the slice), or, with
    dense features, if the angle between their vectors is small. The nearest are searched in the whole slice, not only
    among flagged vertices: a vertex that was flagged by mistake is nearest to unflagged vertices of its class, so it
    has few ties. Equally near vertices are taken in the order of their ids.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> from evergraph.learning.task import Task
    >>> texts = ["old", "same words", "same words", "others", "others"]
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3, 4, 5], "time": [1, 2, 2, 2, 2], "text": texts}, [[2, 3]])
    >>> ties_among(SliceContext(Task(graph, time=2, history=1), classes=()), np.array([0, 1, 3])).toarray().tolist()
    [[0.0, 3.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    place = np.full(len(context), -1)
    place[rows] = np.arange(len(rows))
    pairs = [edges_among(context, rows)]
    for one, near in _nearest(context, rows):
        other = place[near]
        pairs.append((one[other >= 0], other[other >= 0]))
    one, other = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    found = sparse.csr_array((np.ones(len(one)), (one, other)), shape=(len(rows), len(rows)))
    return sparse.csr_array(found + found.T)


def edges_among(context: SliceContext, rows: _Longs) -> tuple[_Longs, _Longs]:
    """Return the edges among some vertices of the slice, each once, as two arrays of places in ``rows``."""
    place = np.full(len(context), -1)
    place[rows] = np.arange(len(rows))
    older, younger, _ = context.window.links.ends()
    inside = older >= context.start
    one, other = place[older[inside] - context.start], place[younger[inside] - context.start]
    both = (one >= 0) & (other >= 0)
    return one[both], other[both]


def _nearest(context: SliceContext, rows: _Longs) -> list[tuple[_Longs, _Longs]]:
    """Return pairs of a place in ``rows`` and a near vertex of the slice, by neighbours and by features."""
    ranks = np.empty(len(context), np.int64)
    ranks[_by_id(context.window.ids[context.start :])] = np.arange(len(context))
    matrices = [_neighbours(context)]
    found = []
    if context.dense is not None:
        vectors = context.vectors[context.start :].astype(np.float64)  # so that ranks decide between equally near ones
        near, cosines = nearest_by_vectors(vectors[rows], vectors, _NEAREST, itself=rows, ranks=ranks)
        one, place = np.nonzero(cosines > 0)
        found.append((one, near[one, place]))
    else:
        older, new = context.texts
        words = sparse.csr_array(context.words[context.start :], dtype=np.float64)
        matrices.append(_rare(words, older + new, new, len(context.window)))
    for matrix in matrices:
        near_to = nearest_by_words(matrix, _NEAREST, ranks, rows).tocoo()
        found.append((near_to.row, near_to.col))
    return found


def _neighbours(context: SliceContext) -> sparse.csr_array:
    """Return the neighbours of the slice's vertices, weighted by rarity; columns in the order of ids."""
    links, n = context.window.links, len(context.window)
    ones = np.ones(len(links.indices))  # in double precision, so that ranks decide between equally near ones
    around = sparse.csr_array((ones, links.indices, links.indptr), shape=(n, n))[context.start :]
    around = sparse.csr_array(around[:, _by_id(context.window.ids)])
    new = np.bincount(around.indices, minlength=n)
    return _rare(around, new, new, len(context))


def _rare(matrix: sparse.csr_array, texts: _Longs, new: _Longs, total: int) -> sparse.csr_array:
    """Return rows weighted by rarity, with the columns that some but not too many vertices of the slice share."""
    chosen = np.flatnonzero((new >= 2) & (new <= max(_COMMON * matrix.shape[0], _FEW)))
    kept = sparse.csr_array(matrix[:, chosen])
    kept.sort_indices()
    return weighted(kept, texts[chosen], total)


# --- communities -----------------------------------------------------------------------------------------------------


def communities(ties: sparse.csr_array) -> _Longs:
    """Return the number of each vertex's community, numbered in the order of first members (Louvain).

    Vertices are moved to the community that increases modularity most, in the order of their rows; then communities
    are moved in the same way, until nothing improves. There is no randomness: the same ties give the same communities,
    and ties in gain are resolved by row. Communities are connected. A vertex without ties has its own community.

    Sources: Blondel, Guillaume, Lambiotte and Lefebvre, Fast Unfolding of Communities in Large Networks, J. Stat. Mech.
    2008; splitting disconnected communities: Traag, Waltman and van Eck, From Louvain to Leiden, 2019.

    Parameters
    ----------
    ties
        Symmetric matrix of weights, none below 0.

    Examples
    --------
    >>> pairs = np.array([[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5], [2, 3]])
    >>> ties = sparse.csr_array((np.ones(7), tuple(pairs.T)), shape=(7, 7))
    >>> communities(ties + ties.T).tolist()
    [0, 0, 0, 1, 1, 1, 2]
    """
    level, found = _summed(ties), np.arange(ties.shape[0])
    while level.shape[0]:
        strength = np.asarray(level.sum(1), np.float64).ravel()
        joined = np.arange(level.shape[0])
        if not _move(level.indptr, level.indices, level.data, strength, strength.sum(), joined):
            break
        names, joined = np.unique(joined, return_inverse=True)
        found = joined[found]
        members = sparse.csr_array(
            (np.ones(len(joined)), (np.arange(len(joined)), joined)), shape=(len(joined), len(names))
        )
        level = _summed(members.T @ level @ members)
    return _connected(ties, found)


def _summed(ties: Any) -> sparse.csr_array:
    matrix = sparse.csr_array(ties, dtype=np.float64)
    matrix.sum_duplicates()
    return matrix


def _connected(ties: sparse.csr_array, found: _Longs) -> _Longs:
    """Split disconnected communities, and number all by their first members."""
    entries = sparse.coo_array(ties)
    same = (found[entries.row] == found[entries.col]) & (entries.data > 0)
    inside = sparse.csr_array((np.ones(int(same.sum())), (entries.row[same], entries.col[same])), shape=ties.shape)
    _, parts = connected_components(inside, directed=False)
    _, first, names = np.unique(parts, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[names]


@compiled
def _move(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[np.float64],
    strength: NDArray[np.float64],
    total: float,
    joined: _Longs,
) -> bool:
    """Move vertices to the communities that gain most, until none gains; return whether any was moved."""
    n = len(strength)
    size = strength.copy()  # of each community
    to = np.zeros(n)  # weight of a vertex's ties to each community around it
    around = np.empty(n, np.int64)
    moved = False
    for _ in range(_SWEEPS):
        moves = 0
        for vertex in range(n):
            here, count = joined[vertex], 0
            for place in range(indptr[vertex], indptr[vertex + 1]):
                other = indices[place]
                if other == vertex or data[place] <= 0:
                    continue
                there = joined[other]
                if to[there] == 0:
                    around[count] = there
                    count += 1
                to[there] += data[place]
            size[here] -= strength[vertex]
            best, most = here, to[here] - strength[vertex] * size[here] / total
            for place in range(count):
                there = around[place]
                gain = to[there] - strength[vertex] * size[there] / total
                if gain > most + _ROUNDING or (best != here and gain > most - _ROUNDING and there < best):
                    best, most = there, gain
            size[best] += strength[vertex]
            if best != here:
                joined[vertex] = best
                moves += 1
            for place in range(count):
                to[around[place]] = 0
        if moves == 0:
            break
        moved = True
    return moved
