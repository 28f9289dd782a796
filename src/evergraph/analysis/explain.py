"""What a person needs to see of a vertex to judge a decision: its words, and the classes of its neighbours."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.features import WordCounts
from evergraph.graph.window import Window

__all__ = ["in_words", "neighbours_of", "words_of"]


def words_of(window: Window, rows: NDArray[np.integer], before: int, most: int = 8) -> list[tuple[str, ...]]:
    """The words that say most about some vertices of a window; none where the graph has no text.

    Parameters
    ----------
    window
        Where the vertices are.
    rows
        Which of its vertices.
    before
        Words are weighed by the texts before this time. The one after the vertices' own lets their own words count,
        which are what tells a new class.
    most
        How many words of each vertex, those of the highest TF-IDF first.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> texts = ["a common word", "a word", "rare word"]
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 1, 2], "text": texts})
    >>> words_of(graph.window(1, 2), np.array([2]), before=3)
    [('rare', 'word')]
    """
    features = window.graph.features
    if not isinstance(features, WordCounts):
        return [()] * len(rows)
    matrix: Any = window.inputs(before=before)
    found = []
    for row in rows:
        start, stop = matrix.indptr[row], matrix.indptr[row + 1]
        order = np.argsort(-matrix.data[start:stop], kind="stable")[:most]
        found.append(tuple(features.columns[int(column)] for column in matrix.indices[start:stop][order]))
    return found


def neighbours_of(
    window: Window, rows: NDArray[np.integer], codes: NDArray[np.integer] | None = None
) -> list[tuple[tuple[str, int], ...]]:
    """The classes of some vertices' neighbours in a window with their numbers, most frequent first, no label last.

    Parameters
    ----------
    window
        Where vertices and neighbours are.
    rows
        Which of its vertices.
    codes
        The row of each vertex's class, instead of the window's own; -1 where no label is known yet. A graph may have
        labels that nobody knew when a decision was made.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> graph = EvolvingGraph.build(
    ...     {"id": [1, 2, 3, 4], "time": [1, 1, 2, 2], "label": ["x", "x", "y", None]}, [[4, 1], [4, 2], [4, 3]]
    ... )
    >>> neighbours_of(graph.window(1, 2), np.array([3]))
    [(('x', 2), ('y', 1))]
    >>> neighbours_of(graph.window(1, 2), np.array([3]), codes=np.array([0, 0, -1, -1]))
    [(('x', 2), ('no label', 1))]
    """
    links, names = window.links, window.graph.class_names
    codes = window.codes if codes is None else codes
    found = []
    for row in rows:
        counts = Counter(codes[links.indices[links.indptr[row] : links.indptr[row + 1]]].tolist())
        unknown = counts.pop(-1, 0)
        # Of equally many by name: rows of classes depend on all that a graph holds, also on its future.
        classes = sorted(((names[code], count) for code, count in counts.items()), key=lambda one: (-one[1], one[0]))
        found.append((*classes, *([("no label", unknown)] if unknown else [])))
    return found


def in_words(neighbours: tuple[tuple[str, int], ...]) -> str:
    """What `neighbours_of` gave, on a line.

    Examples
    --------
    >>> in_words((("x", 2), ("no label", 1)))
    'x 2, no label 1'
    """
    return ", ".join(f"{name} {count}" for name, count in neighbours)
