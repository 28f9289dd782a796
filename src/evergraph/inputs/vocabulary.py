"""The vocabulary: which features are columns of the input layer, by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError
from evergraph.graph.evolving import TextMode, Window
from evergraph.graph.features import DenseFeatures, Numbers, SparseFeatures

__all__ = ["Vocabulary"]


@dataclass(frozen=True)
class Vocabulary:
    """The features that a learner knows, in the order of the input layer. It only grows.

    ``names`` are those of sparse features (words), None for dense features, which do not change; ``width`` is the
    number of features; ``text`` is as in `Window.inputs`.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> graph = EvolvingGraph.build({"id": [1, 2], "time": [1, 2], "text": ["old news", "new words are news"]})
    >>> known = Vocabulary.start(graph.window(1, 2), "past").grown(graph.window(1, 2), before=2)
    >>> known.names, (known.read(graph.window(1, 2), before=2).toarray() > 0).tolist()
    (('news', 'old'), [[True, True], [True, False]])
    """

    names: tuple[str, ...] | None
    width: int
    text: TextMode

    @classmethod
    def start(cls, window: Window, text: TextMode) -> Vocabulary:
        """Return the vocabulary of an untrained learner."""
        if _features(window) is None:
            raise InputError(
                "the graph has no features, which a model needs",
                fix="import it with a text column or feature columns",
            )
        if isinstance(features := _features(window), DenseFeatures):
            return cls(None, features.width, text)
        return cls((), 0, text)

    def grown(self, window: Window, before: int) -> Vocabulary:
        """Add the features that occur before a period; with text ``"global"`` all features, as in the paper."""
        features = self._check(window)
        if self.names is None or isinstance(features, DenseFeatures):
            return self
        columns = features.columns
        if self.text != "global":
            columns = columns.take(window.known_columns(before=before))
        # By name: the numbers of columns depend on everything the graph contains, including its future.
        names = (*self.names, *sorted(set(columns) - set(self.names)))
        return Vocabulary(names, len(names), self.text)

    def read(self, window: Window, before: int) -> NDArray[np.float32] | sparse.csr_array:
        """Return the features of a window's vertices in the order of the input layer, without unknown ones."""
        features = self._check(window)
        if self.names is None or isinstance(features, DenseFeatures):
            values = window.graph.features.numbers.values[window.rows]  # type: ignore[union-attr]
            return np.where(missing, np.float32(0), values) if (missing := np.isnan(values)).any() else values
        matrix = window.words(self.text, before=before)
        place = {name: number for number, name in enumerate(self.names)}
        found = np.array([place.get(name, -1) for name in features.columns], np.int32)[matrix.indices]
        kept = found >= 0
        indptr = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr]
        read = sparse.csr_array((matrix.data[kept], found[kept], indptr), shape=(len(window), self.width))
        read.sort_indices()
        return read

    def _check(self, window: Window) -> DenseFeatures | SparseFeatures:
        features = _features(window)
        dense = isinstance(features, DenseFeatures)
        if features is None or dense != (self.names is None) or (dense and features.width != self.width):
            expected = f"{self.width:,} dense features" if self.names is None else "sparse features or text"
            found = "none" if features is None else f"{features.width:,} {features.kind}"
            raise InputError(
                f"the learner was trained on {expected}, but the graph's features are: {found}",
                fix="use a graph with the same kind of features, or start a new learner",
            )
        return features


def _features(window: Window) -> SparseFeatures | Numbers | None:
    features = window.graph.features
    return features.numbers if features.words is None else features.words
