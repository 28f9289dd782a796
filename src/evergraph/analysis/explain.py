"""What helps to judge the decision for a vertex: its most telling words, and the classes of its neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.evolving import Window
from evergraph.graph.features import WordCounts

__all__ = ["STOP_WORDS", "in_words", "neighbours_of", "shortened", "texts_of", "words_of"]

STOP_WORDS = frozenset(
    """
    about above after again against all also although am among an and any are as at be because been before being below
    between both but by can cannot could did do does doing done down due during each either else etc even ever every few
    for from further had has have having he her here hers herself him himself his how however if in into is it its
    itself just like many may me might more moreover most much must my myself neither no nor not of off often on once
    one only or other others otherwise our ours ourselves out over own per rather same see shall she should since so
    some such than that the their theirs them themselves then there therefore these they this those through to too
    toward towards under until up upon us very via was we were what when where whether which while who whose why
    will with within without would yet you your yours yourself
    """.split()  # noqa: SIM905
) | {"hence", "thus", "whom"}  # prose: ok
"""English words that say nothing about a class. They are never shown, but models and detectors read all words."""


def words_of(window: Window, rows: NDArray[np.integer], before: int, most: int = 8) -> list[tuple[str, ...]]:
    """Return up to ``most`` words with the highest TF-IDF of some vertices of a window, without `STOP_WORDS`.

    There are none without text.
    Document frequencies are from the texts before the period ``before``. Give the period after the vertices' own to
    include their own words, which are what distinguishes a new class.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> texts = ["a common word", "a word", "the rare word"]
    >>> graph = EvolvingGraph.build({"id": [1, 2, 3], "time": [1, 1, 2], "text": texts})
    >>> words_of(graph.window(1, 2), np.array([2]), before=3)
    [('rare', 'word')]
    """
    counts = window.graph.features.words
    if not isinstance(counts, WordCounts):
        return [()] * len(rows)
    matrix = window.words(before=before)
    found = []
    for row in rows:
        start, stop = matrix.indptr[row], matrix.indptr[row + 1]
        order = np.argsort(-matrix.data[start:stop], kind="stable")
        words = (counts.columns[int(column)] for column in matrix.indices[start:stop][order])
        found.append(tuple(islice((word for word in words if word not in STOP_WORDS), most)))
    return found


def texts_of(window: Window, rows: NDArray[np.integer]) -> list[str | None]:
    """Return the original texts of some vertices of a window; None where there is none.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> graph = EvolvingGraph.build({"id": [1, 2], "time": [1, 2], "text": ["Old news.", ""]})
    >>> texts_of(graph.window(1, 2), np.array([1, 0]))
    [None, 'Old news.']
    """
    texts = window.graph.features.texts
    if texts is None:
        return [None] * len(rows)
    return [text if text.strip() else None for text in texts[rows + window.rows.start]]


def shortened(text: str, most: int = 300) -> str:
    """Return a text on one line, with at most this number of letters.

    Examples
    --------
    >>> shortened("a  text of lines", 8)
    'a text …'
    """
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else f"{line[: most - 2].rstrip()} …"


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


def in_words(classes: Iterable[tuple[str, float]] | Iterable[Mapping[str, Any]]) -> str:
    """Return classes with their counts or probabilities as text.

    Examples
    --------
    >>> in_words([("x", 2), ("no label", 1)]), in_words([{"class": "x", "probability": 0.516}])
    ('x 2, no label 1', 'x 0.52')
    """
    pairs = (one.values() if isinstance(one, Mapping) else one for one in classes)
    return ", ".join(f"{name} {value if isinstance(value, int) else f'{value:.2f}'}" for name, value in pairs)
