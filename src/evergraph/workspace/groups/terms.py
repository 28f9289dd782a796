"""Words that set a group apart from all else that is seen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.graph.features import SparseFeatures
from evergraph.inputs.slice_context import Sight

__all__ = ["telling_words"]

_LEAST = 1.64  # standard errors: what one in twenty words of no meaning would exceed
_SUPPORT = 2  # members that must have a word


def telling_words(sight: Sight, rows: NDArray[np.int64], group: NDArray[np.int64], most: int) -> list[tuple[str, ...]]:
    """For each group the words that its members have more often than all others that are seen, most telling first.

    Words are in the order of the logarithm of their odds ratio in its standard errors, with half a text added to each
    count (Gart, 1966), so neither rare nor common ones win for that alone. At least two members must have a word.

    Parameters
    ----------
    sight
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
    >>> telling_words(Sight(Task(graph, time=2, history=1), classes=()), np.arange(3), np.zeros(3, np.int64), most=5)
    [('new', 'thing')]
    """
    number = int(group.max()) + 1 if len(group) else 0
    names, words, (older, new) = _names(sight), sight.words, sight.texts
    members = sparse.csr_array((np.ones(len(rows)), (group, rows)), shape=(number, len(sight)))
    counts = sparse.csr_array(members @ words[sight.start :])
    counts.sort_indices()
    sizes, total, found = np.bincount(group, minlength=number), older + new, []
    for row, size in enumerate(sizes):
        part = slice(counts.indptr[row], counts.indptr[row + 1])
        columns, inside = counts.indices[part], counts.data[part]
        telling = _odds(inside, size, total[columns] - inside, len(sight.window) - size)
        telling[inside < _SUPPORT] = 0
        order = np.argsort(-telling, kind="stable")[:most]  # of equally telling ones the first by name
        found.append(tuple(names[column] for column in columns[order[telling[order] >= _LEAST]]))
    return found


def _odds(inside: NDArray[np.float64], size: int, outside: NDArray[np.float64], others: int) -> NDArray[np.float64]:
    """Logarithms of odds ratios, in standard errors."""
    cells = [count + 0.5 for count in (inside, size - inside, outside, others - outside)]
    ratio = np.log(cells[0] * cells[3] / (cells[1] * cells[2]))
    return ratio / np.sqrt(sum(1 / cell for cell in cells))


def _names(sight: Sight) -> list[str]:
    """The names of the columns of `Sight.words`."""
    features = sight.task.graph.features
    if not isinstance(features, SparseFeatures):
        return []
    used = np.unique(features.rows(sight.window.rows).matrix.indices)
    return sorted(features.columns.take(used))
