"""What a model reads of a vertex: blocks of features, and which column of the input layer each one has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError
from evergraph.graph.classes import columns_among
from evergraph.graph.evolving import EvolvingGraph, TextMode, Window
from evergraph.graph.features import Numbers, SparseFeatures, WordCounts, inverse_frequencies
from evergraph.inputs.neighbour_classes import NeighbourClasses
from evergraph.inputs.rows import SparseBlock, assemble
from evergraph.names import INPUTS

if TYPE_CHECKING:
    from evergraph.learning.task import Task

__all__ = ["BLOCKS", "BLOCK_NAMES", "FeatureReader", "Vocabulary", "as_inputs", "blocks_of", "check_inputs"]

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
_BLOCK, _ENTRIES = 65_536, 1 << 22  # rows of numbers, and entries of words, that are read at a time
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

    def places(self, block: str, names: Iterable[str]) -> NDArray[np.int32]:
        """Return the column of each name of a block, counted after the dense columns; -1 for an unknown one."""
        place = self._places[block]
        return np.array([place.get(name, -1) for name in names], np.int32)

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
                columns: Iterable[str] = features.names
                if block == "categories" or self.text != "global":
                    columns = [
                        features.names[place] for place in np.flatnonzero(features.count_texts(len(task.released)))
                    ]
                # By name: the numbers of columns depend on everything the graph contains, including its future.
                runs.append((block, tuple(sorted(set(columns) - known.keys()))))
            elif block == "classes":
                runs.append((block, tuple(str(number) for number in range(len(known), len(classes)))))
        return replace(self, runs=(*self.runs, *(run for run in runs if run[1])))

    def read(
        self, task: Task, window: Window, classes: tuple[str, ...]
    ) -> tuple[NDArray[np.float32] | None, sparse.csr_array | None]:
        """Return the dense and the other columns of a window's vertices, without names that are not known."""
        return FeatureReader(self, task, classes).read(window.rows)

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


@dataclass(frozen=True, eq=False)
class FeatureReader:
    """Reads the columns of any vertices of a task's window, at a cost in proportion to what these vertices have.

    What depends on the whole past, such as document frequencies and the mean of numbers, is computed once, in passes
    over blocks of the graph's arrays.

    Parameters
    ----------
    vocabulary
        The columns.
    task
        The task, whose past is known.
    classes
        Names of the known classes in the order of the output layer.
    only
        The columns to read of those after the dense ones, ascending; None for all.
    first
        Row of the oldest vertex to read; by default the first one of the task's window.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> from evergraph.learning.task import Task
    >>> graph = EvolvingGraph.build({"id": [1, 2], "time": [1, 2], "text": ["old news", "new words are news"]})
    >>> task = Task(graph, time=2, history=1)
    >>> reader = FeatureReader(Vocabulary.start(graph, ("words",), "past").grown(task, ()), task, ())
    >>> reader.read(np.array([1]))[1].toarray().tolist()
    [[1.0, 0.0]]
    """

    vocabulary: Vocabulary
    task: Task
    classes: tuple[str, ...]
    only: NDArray[np.int64] | None = None
    first: int | None = None

    def __post_init__(self) -> None:
        self.vocabulary._check(self.task.graph)

    def read(self, rows: slice | NDArray[np.integer]) -> tuple[NDArray[np.float32] | None, sparse.csr_array | None]:
        """Return the dense and the other columns of some vertices, given by their rows in the graph."""
        own, features = self.vocabulary, self.task.graph.features
        chosen = np.arange(rows.start, rows.stop, dtype=np.int32) if isinstance(rows, slice) else rows
        dense: list[NDArray[np.float32]] = []
        for block in own.blocks:
            width = _dense_width(self.task.graph, [block])
            if width and block in own.unread:
                dense.append(np.zeros((len(chosen), width), np.float32))
            elif block == "numbers" and features.numbers is not None:
                dense.append(self._standardised(features.numbers, rows))
            elif block == "encoder" and features.vectors is not None:
                dense.append(features.vectors.values[rows])
        total = None
        if own.width > own.dense or not dense:
            own_rows = chosen - self._span.start
            parts = [(block, own_rows) for block in self._blocks.values()]
            if self._neighbours is not None:
                shares, place = (
                    self._neighbours.read(chosen),
                    self._places("classes", map(str, range(len(self.classes)))),
                )
                scaled = SparseBlock(shares.indptr, shares.indices, _CLASS_SCALE * shares.data, place)
                parts.append((scaled, np.arange(len(chosen))))
            width = own.width - own.dense if self.only is None else len(self.only)
            total = assemble(parts, len(chosen), width)
        return (dense[0] if len(dense) == 1 else np.concatenate(dense, 1)) if dense else None, total

    def bytes_per_vertex(self, rows: slice) -> float:
        """Return about how many bytes the features of a vertex take on average over a range of vertices."""
        total = 4.0 * self.vocabulary.dense + 8
        for block in self._blocks.values():
            total += 8 * block.entries(self._own(rows)) / max(rows.stop - rows.start, 1)
        if self._neighbours is not None:  # at most one class for each edge
            total += 8 * min(self._neighbours.degree(rows), len(self.classes))
        return total

    def used(self, rows: slice, others: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the columns, after the dense ones, that any vertex of a range or of others can have, ascending."""
        own = self.vocabulary
        found = np.zeros(own.width - own.dense, np.bool_)
        for block in self._blocks.values():
            there = np.zeros(len(block.place), np.bool_)
            for some in (rows, *(slice(row, row + 1) for row in others.tolist())):
                own_rows = self._own(some)
                first, last = int(block.indptr[own_rows.start]), int(block.indptr[own_rows.stop])
                for start in range(first, last, _ENTRIES):
                    there[block.indices[start : min(start + _ENTRIES, last)]] = True
            places = block.place[there]
            found[places[places >= 0]] = True
        if self._neighbours is not None:
            found[own.places("classes", map(str, range(len(self.classes))))] = True
        return np.flatnonzero(found)

    @property
    def _span(self) -> slice:
        rows = self.task.window.rows
        return rows if self.first is None else slice(self.first, rows.stop)

    def _own(self, rows: slice) -> slice:
        """The rows of a range of vertices in the blocks."""
        return slice(rows.start - self._span.start, rows.stop - self._span.start)

    @cached_property
    def _blocks(self) -> dict[str, SparseBlock]:
        """The sparse blocks of the window that are read."""
        own, graph = self.vocabulary, self.task.graph
        found = {}
        for block in own.read_blocks:
            if block not in ("words", "categories"):
                continue
            stored, weight = own._sparse(graph, block), None
            if isinstance(stored, WordCounts) and own.text != "counts":
                known = len(graph) if own.text == "global" else len(self.task.released)
                weight = inverse_frequencies(stored, known)
            place = self._places(block, stored.names)
            found[block] = SparseBlock.of(stored.indptr, stored.indices, stored.data, self._span, place, weight)
        return found

    def _places(self, block: str, names: Iterable[str]) -> NDArray[np.int32]:
        """The column of each name; -1 if it is not read."""
        places = self.vocabulary.places(block, names)
        if self.only is None:
            return places
        moved = np.full(self.vocabulary.width - self.vocabulary.dense + 1, -1, np.int32)  # the last is for -1
        moved[self.only] = np.arange(len(self.only), dtype=np.int32)
        return moved[places]

    @cached_property
    def _neighbours(self) -> NeighbourClasses | None:
        if "classes" not in self.vocabulary.read_blocks:
            return None
        columns = columns_among(self.classes, self.task.graph.class_names)
        return NeighbourClasses(self.task, self._span, columns, len(self.classes))

    @cached_property
    def _moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """Mean and deviation of each column of numbers in the past, and whether it has any number there."""
        numbers = self.task.graph.features.numbers
        assert numbers is not None  # noqa: S101  # they are read
        known, width = len(self.task.released), numbers.width
        count, total, squares = (np.zeros(width) for _ in range(3))
        for past in _blocks_of(numbers.values, known):
            there = np.isfinite(past)
            count, total = count + there.sum(0), total + np.where(there, past, 0).sum(0)
        mean = total / np.maximum(count, 1)
        for past in _blocks_of(numbers.values, known):
            squares += np.where(np.isfinite(past), (past - mean) ** 2, 0).sum(0)
        return mean, np.sqrt(squares / np.maximum(count, 1)), count > 0

    def _standardised(self, numbers: Numbers, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
        """Scale numbers by mean and deviation of the past; a missing number becomes the mean.

        Columns without names are an embedding or the like: they are only filled, not scaled.
        """
        values = numbers.values[rows]
        if numbers.is_numbered:
            return _filled(values)
        mean, deviation, there = self._moments
        scaled = np.where(there, (values - mean) / np.where(deviation > 0, deviation, 1), 0)
        return np.clip(_filled(scaled), -_CLIP, _CLIP).astype(np.float32)


def _blocks_of(values: NDArray[np.float32], known: int) -> Iterator[NDArray[np.float64]]:
    bounds = ((start, min(start + _BLOCK, known)) for start in range(0, known, _BLOCK))
    return (values[start:stop].astype(np.float64) for start, stop in bounds)


def _filled(values: NDArray[Any]) -> NDArray[Any]:
    missing = np.isnan(values)
    return np.where(missing, 0, values) if missing.any() else values
