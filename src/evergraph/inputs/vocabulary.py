"""What a model reads of a vertex: blocks of features, and which column of the input layer each one has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError
from evergraph.graph.classes import columns_among
from evergraph.graph.evolving import EvolvingGraph, TextMode, Window
from evergraph.graph.features import Numbers, SparseFeatures, WordCounts, tfidf
from evergraph.inputs.neighbour_classes import neighbour_classes
from evergraph.names import INPUTS

if TYPE_CHECKING:
    from evergraph.learning.task import Task

__all__ = ["BLOCKS", "BLOCK_NAMES", "Vocabulary", "as_inputs", "blocks_of", "check_inputs"]

_DENSE = ("numbers", "encoder")
_STORED = ("words", *_DENSE, "categories")
BLOCKS = ("words", "classes", *_DENSE, "categories")
"""The blocks that a model can read.

``words``: TF-IDF of the text, or the sparse features that you gave. ``classes``: the share of each known class among
the older neighbours. ``numbers``: named numbers, standardised, or dense features without names, as they are.
``encoder``: vectors of a text encoder. ``categories``: one column per value.
"""
BLOCK_NAMES = {block: several for block, (_, several) in INPUTS.items()}
"""The blocks in words."""
_CLIP = 10.0  # standard deviations
# Few columns with large values are learnt in fewer steps. Of 1, 2 and 4, the factor 2 was best on 8 graphs.
_CLASS_SCALE = 2.0


def check_inputs(inputs: str | Sequence[str]) -> tuple[str, ...] | None:
    """Return the blocks that are asked for, without duplicates; None for ``"auto"``.

    Examples
    --------
    >>> check_inputs("words,classes"), check_inputs("auto")
    (('words', 'classes'), None)
    """
    fix = f"choose auto, or some of {', '.join(BLOCKS)}"
    if not isinstance(inputs, str | list | tuple):
        raise InputError(f"the argument inputs is {inputs!r}", fix=fix)
    names = inputs.split(",") if isinstance(inputs, str) else list(inputs)
    names = [name.strip() if isinstance(name, str) else name for name in names]
    if names == ["auto"]:
        return None
    for name in names:
        if not isinstance(name, str) or name not in BLOCKS:
            raise InputError(f"there is no input {name!r}", fix=fix)
    if not names:
        raise InputError("the list of inputs is empty", fix=fix)
    return tuple(dict.fromkeys(names))


def as_inputs(inputs: str | Sequence[str]) -> str:
    """Return inputs as the text that is stored.

    Examples
    --------
    >>> as_inputs(["words", "classes"]), as_inputs("words, classes, words"), as_inputs("auto")
    ('words,classes', 'words,classes', 'auto')
    """
    text = ",".join(check_inputs(inputs) or ["auto"])
    return inputs if isinstance(inputs, str) and inputs == text else text  # scikit-learn's clone compares by identity


def blocks_of(graph: EvolvingGraph, inputs: str | Sequence[str], *, classes: bool = True) -> tuple[str, ...]:
    """Return the blocks that a model reads of a graph; with ``"auto"`` all that the graph has.

    With ``classes=False``, ``"auto"`` has no classes of older neighbours, unless there is nothing else.
    """
    there = [name for name in _STORED if _stored(graph, name) is not None]
    wanted = check_inputs(inputs)
    if wanted is None:
        classes = bool(graph.n_edges) and (classes or not there)
        wanted = tuple(name for name in BLOCKS if name in there or (name == "classes" and classes))
        if not wanted:
            raise InputError(
                "the graph has neither features nor edges, and a model needs some of them",
                fix="import it with a text column, feature columns or edges",
            )
    for name in wanted:
        if name in _STORED and name not in there:
            has = f"has only {' and '.join(there)}" if there else "has no features"
            raise InputError(
                f"the inputs include {name}, but the graph {has}",
                fix="choose other inputs, or import the graph with them",
            )
    return wanted


def _stored(graph: EvolvingGraph, block: str) -> object:
    return getattr(graph.features, "vectors" if block == "encoder" else block)


@dataclass(frozen=True)
class Vocabulary:
    """The columns of the input layer. Dense ones are the first and stay as they are; others are added at the end.

    Parameters
    ----------
    blocks
        Names of the blocks (`BLOCKS`).
    dense
        Number of columns of the dense blocks ``numbers`` and ``encoder``.
    runs
        The columns of the other blocks in their order: pairs of a block and names. A class is named by its place in
        the learner's ``classes_``, so that it can be renamed.
    text
        How text becomes numbers, as in `Window.inputs`.
    unread
        Blocks that are not read any more. They keep their columns, without values.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> from evergraph.learning.task import Task
    >>> graph = EvolvingGraph.build({"id": [1, 2], "time": [1, 2], "text": ["old news", "new words are news"]})
    >>> task = Task(graph, time=2, history=1)
    >>> known = Vocabulary.start(graph, ("words",), "past").grown(task, classes=())
    >>> known.runs, (known.read(task, task.window, ())[1].toarray() > 0).tolist()
    ((('words', ('news', 'old')),), [[True, True], [True, False]])
    """

    blocks: tuple[str, ...]
    dense: int
    runs: tuple[tuple[str, tuple[str, ...]], ...]
    text: TextMode
    unread: tuple[str, ...] = ()

    @classmethod
    def start(cls, graph: EvolvingGraph, blocks: Sequence[str], text: TextMode) -> Vocabulary:
        """Return the vocabulary of an untrained learner."""
        return cls(tuple(blocks), _dense_width(graph, blocks), (), text)

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.dense + sum(len(names) for _, names in self.runs)

    def sizes(self, graph: EvolvingGraph) -> dict[str, int]:
        """Return the number of columns of each block that decisions depend on; those of dense ones are the graph's."""
        return {
            block: _dense_width(graph, [block]) if block in _DENSE else len(self._places[block])
            for block in self.blocks
            if block not in self.unread or block == "classes"  # the stacking reads classes in any case
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the words, in the order of their columns."""
        return tuple(name for block, names in self.runs if block == "words" for name in names)

    @property
    def read_blocks(self) -> tuple[str, ...]:
        """The blocks that are read."""
        return tuple(block for block in self.blocks if block not in self.unread)

    def without(self, block: str) -> Vocabulary:
        """Return a vocabulary with the same columns that does not read a block."""
        return replace(self, unread=(*self.unread, block))

    @cached_property
    def _places(self) -> dict[str, dict[str, int]]:
        """Column of each name of each block, counted after the dense columns."""
        places: dict[str, dict[str, int]] = {block: {} for block in self.blocks}
        start = 0
        for block, names in self.runs:
            places[block] |= {name: start + number for number, name in enumerate(names)}
            start += len(names)
        return places

    def columns(self) -> Iterator[tuple[str, str]]:
        """Yield block and name of each column after the dense ones."""
        return ((block, name) for block, names in self.runs for name in names)

    def grown(self, task: Task, classes: tuple[str, ...]) -> Vocabulary:
        """Add what occurs before a task's period; with text ``"global"`` all words, as in the paper."""
        self._check(task.graph)
        runs = []
        for block in self.read_blocks:
            known = self._places[block]
            if block in ("words", "categories"):
                features = self._sparse(task.graph, block)
                columns = features.columns
                if block == "categories" or self.text != "global":
                    columns = columns.take(np.flatnonzero(features.count_texts(len(task.released))))
                # By name: the numbers of columns depend on everything the graph contains, including its future.
                runs.append((block, tuple(sorted(set(columns) - known.keys()))))
            elif block == "classes":
                runs.append((block, tuple(str(number) for number in range(len(known), len(classes)))))
        return replace(self, runs=(*self.runs, *(run for run in runs if run[1])))

    def read(
        self, task: Task, window: Window, classes: tuple[str, ...]
    ) -> tuple[NDArray[np.float32] | None, sparse.csr_array | None]:
        """Return the dense and the other columns of a window's vertices, without names that are not known."""
        self._check(task.graph)
        features = task.graph.features
        dense: list[NDArray[np.float32]] = []
        others: list[sparse.csr_array] = []
        for block in self.blocks:
            if block in self.unread:
                dense += (
                    [np.zeros((len(window), width), np.float32)] if (width := _dense_width(task.graph, [block])) else []
                )
            elif block == "numbers" and features.numbers is not None:
                dense.append(_standardised(features.numbers, window.rows, len(task.released)))
            elif block == "encoder" and features.vectors is not None:
                dense.append(features.vectors.values[window.rows])
            elif block == "classes":
                columns = columns_among(classes, task.graph.class_names)
                shares = neighbour_classes(task, window, columns, len(classes))
                others.append(self._placed(block, _CLASS_SCALE * shares, None))
            else:
                counts = self._sparse(task.graph, block)
                matrix = counts.rows(window.rows).matrix
                if isinstance(counts, WordCounts) and self.text != "counts":
                    known = len(task.graph) if self.text == "global" else len(task.released)
                    matrix = tfidf(counts, window.rows, known)
                others.append(self._placed(block, matrix, counts))
        total = None
        if self.width > self.dense or not dense:
            total = others[0] if others else sparse.csr_array((len(window), self.width - self.dense), dtype=np.float32)
            for other in others[1:]:
                total = total + other
        return (dense[0] if len(dense) == 1 else np.concatenate(dense, 1)) if dense else None, total

    def _placed(self, block: str, matrix: sparse.csr_array, features: SparseFeatures | None) -> sparse.csr_array:
        """The columns of a block in their places; those without a place are left out."""
        names = map(str, range(matrix.shape[1])) if features is None else iter(features.columns)
        place = self._places[block]
        found = np.array([place.get(name, -1) for name in names], np.int32)[matrix.indices]
        kept = found >= 0
        indptr = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr]
        shape = (matrix.shape[0], self.width - self.dense)
        placed = sparse.csr_array((matrix.data[kept], found[kept], indptr), shape=shape)
        placed.sort_indices()
        return placed

    def _sparse(self, graph: EvolvingGraph, block: str) -> SparseFeatures:
        features: SparseFeatures = getattr(graph.features, block)
        return features

    def _check(self, graph: EvolvingGraph) -> None:
        missing = [block for block in self.blocks if block in _STORED and _stored(graph, block) is None]
        if missing or _dense_width(graph, self.blocks) != self.dense:
            there = [name for name in _STORED if _stored(graph, name) is not None]
            problem = (
                f"the learner reads {', '.join(self.blocks)}, but the graph has {' and '.join(there) or 'no features'}"
                if missing
                else f"the learner reads {self.dense:,} dense columns, but the graph has "
                f"{_dense_width(graph, self.blocks):,}"
            )
            raise InputError(problem, fix="use a graph with the same kind of features, or start a new learner")


def _dense_width(graph: EvolvingGraph, blocks: Sequence[str]) -> int:
    found = [_stored(graph, block) for block in blocks if block in _DENSE]
    return sum(block.width for block in found if block is not None)  # type: ignore[attr-defined]


def _standardised(numbers: Numbers, rows: slice, known: int) -> NDArray[np.float32]:
    """Scale numbers by mean and deviation of the first ``known`` vertices; a missing number becomes the mean.

    Columns without names are an embedding or the like: they are only filled, not scaled.
    """
    values = numbers.values
    if numbers.is_numbered:
        return _filled(values[rows])
    past = values[:known].astype(np.float64)
    there = np.isfinite(past)
    count = np.maximum(there.sum(0), 1)
    mean = np.where(there, past, 0).sum(0) / count
    deviation = np.sqrt(np.where(there, (past - mean) ** 2, 0).sum(0) / count)
    scaled = np.where(there.any(0), (values[rows] - mean) / np.where(deviation > 0, deviation, 1), 0)
    return np.clip(_filled(scaled), -_CLIP, _CLIP).astype(np.float32)


def _filled(values: NDArray[Any]) -> NDArray[Any]:
    missing = np.isnan(values)
    return np.where(missing, 0, values) if missing.any() else values
