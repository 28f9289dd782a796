"""What helps to judge the decision for a vertex: its most telling words, and the classes of its neighbours."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.evolving import Window
from evergraph.graph.features import WordCounts

__all__ = ["in_words", "neighbours_of", "words_of"]


def words_of(window: Window, rows: NDArray[np.integer], before: int, most: int = 8) -> list[tuple[str, ...]]:
    """Return up to ``most`` words with the highest TF-IDF of some vertices of a window; none without text.

    Document frequencies are from the texts before the period ``before``. Give the period after the vertices' own to
    include their own words, which are what distinguishes a new class.

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
    """Return the classes of some vertices' neighbours in a window with their counts, most frequent first.

    Neighbours without a label come last. ``codes`` replace the window's own classes, because a graph may have labels
    that were unknown when a decision was made; -1 is no label.

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
        # Ties by name, because the rows of classes depend on the whole graph, including its future.
        classes = sorted(((names[code], count) for code, count in counts.items()), key=lambda one: (-one[1], one[0]))
        found.append((*classes, *([("no label", unknown)] if unknown else [])))
    return found


def in_words(neighbours: tuple[tuple[str, int], ...]) -> str:
    """Return one result of `neighbours_of` as text, such as ``x 2, no label 1``."""
    return ", ".join(f"{name} {count}" for name, count in neighbours)
