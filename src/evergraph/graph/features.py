"""Features of vertices: counted words with TF-IDF, numbers, categories, vectors of an encoder, and the texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError, Origin
from evergraph.graph.blocks import joined, pieces
from evergraph.graph.ids import Strings, find
from evergraph.graph.texts import Texts
from evergraph.presentation.text import counted

if TYPE_CHECKING:
    import pyarrow as pa

_MANY_BYTES = 2**23  # of texts from which compiled code pays
_NOT_IN_A_WORD = r"[^\p{L}\p{M}\p{N}]+"
_COUNTED = 1 << 22  # entries that are counted at a time


@dataclass(frozen=True, eq=False)
class DenseFeatures:
    """One float32 vector per vertex."""

    values: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.values.shape[1])

    def rows(self, part: slice) -> Self:
        """Return a range of vertices, without a copy."""
        return replace(self, values=self.values[part])

    def take(self, rows: NDArray[np.integer]) -> Self:
        """Return the vertices of these rows, in this order."""
        return replace(self, values=self.values[rows])

    def stack(self, parts: Iterable[Self]) -> Self:
        """Append the rows of the parts that `place` returned."""
        return replace(self, values=joined(self.values, [part.values for part in parts]))


@dataclass(frozen=True, eq=False)
class Numbers(DenseFeatures):
    """Named columns of numbers, as they were given; NaN for a missing one. Columns without names are numbered."""

    kind: ClassVar[str] = "numbers"

    columns: Strings

    @classmethod
    def of(cls, values: NDArray[np.float32], columns: Iterable[str] | None = None) -> Numbers:
        """Name the columns of an array."""
        return cls(values, Strings.of(map(str, range(values.shape[1])) if columns is None else columns))

    @property
    def is_numbered(self) -> bool:
        """Whether the columns have no names of their own."""
        return all(name == str(place) for place, name in enumerate(self.columns))

    def place(self, more: Numbers) -> Numbers:
        """Return the numbers of new vertices as `stack` takes them: columns by name, or by place if either has none.

        ``columns`` of the result is empty, because there are no new ones.
        """
        if self.is_numbered or more.is_numbered:
            if self.width != more.width:
                raise InputError(
                    f"the new vertices have {more.width} numbers, the graph has {self.width}",
                    fix=f"give {self.width} numbers for each vertex",
                )
            return Numbers(more.values, Strings.of([]))
        own, new = list(self.columns), {name: place for place, name in enumerate(more.columns)}
        if other := sorted(set(own) ^ new.keys()):
            raise InputError(
                f"the graph has no column of numbers '{other[0]}'"
                if other[0] in new
                else f"the column of numbers '{other[0]}' is missing",
                fix=f"name the columns of the graph one by one: {', '.join(own)}",
            )
        order = [new[name] for name in own]
        in_order = order == list(range(len(order)))
        return Numbers(more.values if in_order else np.ascontiguousarray(more.values[:, order]), Strings.of([]))


@dataclass(frozen=True, eq=False)
class Vectors(DenseFeatures):
    """One vector of a text encoder per vertex; ``encoder`` is its name and checksum, "name sha256:…"."""

    kind: ClassVar[str] = "vectors"

    encoder: str

    def place(self, more: Vectors) -> Vectors:
        """Return the vectors of new vertices as `stack` takes them; they must be of the same encoder."""
        if self.encoder != more.encoder or self.width != more.width:
            one, other = (f"{part.encoder} ({part.width} dimensions)" for part in (more, self))
            raise InputError(
                f"the vectors of the new vertices are of encoder {one}, those of the graph of {other}",
                fix="encode the texts of the new vertices with the encoder of the graph",
            )
        return more


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """Named float32 columns in compressed sparse rows. New columns are appended, so columns keep their places."""

    kind: ClassVar[str] = "sparse"

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: NDArray[np.float32]
    columns: Strings

    @classmethod
    def of(cls, matrix: sparse.sparray | sparse.spmatrix, columns: Strings | None = None) -> Self:
        """Convert a scipy sparse matrix; columns without names are numbered."""
        csr = sparse.csr_array(matrix, dtype=np.float32, copy=True)
        csr.sum_duplicates()
        csr.eliminate_zeros()
        if columns is None:
            columns = Strings.of(str(column) for column in range(csr.shape[1]))
        if len(columns) != csr.shape[1]:
            raise InputError(
                f"{len(columns)} column names for {csr.shape[1]} feature columns", fix="give one name for each column"
            )
        return cls(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data, columns)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns. Unlike those of `columns`, they are decoded only once."""
        return tuple(self.columns)

    @cached_property
    def name_ranks(self) -> NDArray[np.int32]:
        """Rank of each column by its name. The order of two columns does not depend on the others."""
        ranks = np.empty(self.width, np.int32)
        ranks[np.argsort(np.array(self.names, object))] = np.arange(self.width, dtype=np.int32)
        return ranks

    @property
    def matrix(self) -> sparse.csr_array:
        """The rows as a scipy matrix that shares the features' memory."""
        start, stop = self.indptr[0], self.indptr[-1]
        # Set, not passed to the constructor, which copies small parts and indices of another type than indptr.
        matrix = sparse.csr_array((len(self), self.width), dtype=np.float32)
        small = stop - start <= np.iinfo(np.int32).max
        matrix.indptr = (self.indptr - start).astype(np.int32 if small else np.int64, copy=False)
        matrix.indices = self.indices[start:stop].astype(matrix.indptr.dtype, copy=False)
        matrix.data = self.data[start:stop]
        return matrix

    def rows(self, part: slice) -> Self:
        """Return a range of vertices, without a copy."""
        start, stop, _ = part.indices(len(self))
        return type(self)(self.indptr[start : max(start, stop) + 1], self.indices, self.data, self.columns)

    def take(self, rows: NDArray[np.integer]) -> Self:
        """Return the vertices of these rows, in this order."""
        csr = self.matrix[rows]
        return type(self)(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data, self.columns)

    def place(self, more: Self) -> Self:
        """Return the features of new vertices as `stack` takes them.

        Column numbers are those of ``self``, with new columns at the end; ``columns`` are the new names only.
        """
        target = find(self.columns, more.columns.arrow())
        new = np.flatnonzero(target < 0)
        target[new] = np.arange(self.width, self.width + len(new))
        matrix = more.matrix
        # A copy, because sorting moves entries and the data is shared.
        entries = (matrix.data.copy(), target[matrix.indices], matrix.indptr)
        moved = sparse.csr_array(entries, shape=(len(more), self.width + len(new)))
        moved.sort_indices()
        names = more.columns.take(new) if len(new) else Strings.of([])
        return type(self)(moved.indptr.astype(np.int64), moved.indices.astype(np.int32), moved.data, names)

    def stack(self, parts: Iterable[Self]) -> Self:
        """Append the rows of the parts that `place` returned."""
        parts = list(parts)
        spans = [slice(part.indptr[0], part.indptr[-1]) for part in parts]
        own = slice(self.indptr[0], self.indptr[-1])
        ends = np.cumsum([own.stop - own.start, *(span.stop - span.start for span in spans)])
        # A slice would not have the room behind the array that `joined` uses.
        indices, data = self.indices, self.data
        if (own.start, own.stop) != (0, len(data)):
            indices, data = indices[own], data[own]
        shifts = [int(end - part.indptr[0]) for part, end in zip(parts, ends, strict=False)]
        stacked = type(self)(
            joined(self.indptr - own.start if own.start else self.indptr, [part.indptr[1:] for part in parts], shifts),
            joined(indices, [part.indices[span] for part, span in zip(parts, spans, strict=True)]),
            joined(data, [part.data[span] for part, span in zip(parts, spans, strict=True)]),
            Strings.concat([self.columns, *new])
            if (new := [part.columns for part in parts if len(part.columns)])
            else self.columns,
        )
        vars(stacked)["_counted"] = vars(self).get("_counted")
        return stacked

    def count_texts(self, rows: int) -> NDArray[np.int64]:
        """Return the number of texts with each column among the first rows.

        The last result is kept, and only the rows between that one and this one are read.
        """
        before, counts = vars(self).get("_counted") or (0, np.zeros(0, np.int64))
        if rows < before // 2:
            before, counts = 0, counts[:0]
        start, stop = (int(self.indptr[end]) for end in sorted((before, rows)))
        found = np.zeros(self.width, np.int64)
        for part in pieces(self.indices, start, stop, most=_COUNTED):  # `bincount` makes a copy of twice the size
            found += np.bincount(part, minlength=self.width)
        if rows < before:
            found = -found
        found[: len(counts)] += counts
        found.flags.writeable = False  # it is used again
        self.note_texts(rows, found)
        return found

    def note_texts(self, rows: int, counts: NDArray[np.int64]) -> None:
        """Note the number of texts with each column among the first rows, so that `count_texts` can start from it."""
        vars(self)["_counted"] = (rows, counts)


class WordCounts(SparseFeatures):
    """Number of occurrences of each word of the vocabulary in each vertex's text; see `tfidf`."""

    kind: ClassVar[str] = "words"


Block = SparseFeatures | Numbers | Vectors
"""What a model can read of each vertex: one part of `Features`."""


@dataclass(frozen=True, eq=False)
class Features:
    """What a graph has of each vertex besides time, class and edges. Each part has one row per vertex, or is missing.

    Parameters
    ----------
    words
        Counted words of the texts, or a sparse matrix that was given instead.
    numbers
        Columns of numbers; NaN is a missing one.
    categories
        1 in the column "column=value" for each category of a vertex; no entry for a missing one.
    vectors
        Vectors of a text encoder.
    texts
        The original texts, to encode and to show. Models do not read them. Graphs of older versions have none.

    Examples
    --------
    >>> from evergraph import EvolvingGraph
    >>> graph = EvolvingGraph.build(
    ...     {"id": [1, 2], "time": [1, 2], "text": ["Old news", "New words"], "pages": [3, None], "kind": ["a", "b"]},
    ...     numbers=["pages"], categories=["kind"],
    ... )
    >>> graph.features.kinds, list(graph.features.categories.columns), graph.features.texts[1]
    (('words', 'numbers', 'categories'), ['kind=a', 'kind=b'], 'New words')
    """

    words: SparseFeatures | None = None
    numbers: Numbers | None = None
    categories: SparseFeatures | None = None
    vectors: Vectors | None = None
    texts: Texts | None = None

    def __bool__(self) -> bool:
        return bool(self.kinds)

    @property
    def parts(self) -> dict[str, Any]:
        """The parts that are not missing, by name."""
        return {name: part for name, part in vars(self).items() if part is not None}

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the parts that a model can read; ``sparse`` for words that are not counted from texts."""
        return tuple(part.kind if name == "words" else name for name, part in self.parts.items() if name != "texts")

    @property
    def main(self) -> Block | None:
        """The first of words, numbers, categories and vectors that is not missing."""
        return next((part for name, part in self.parts.items() if name != "texts"), None)

    @property
    def summary(self) -> str:
        """The parts with their numbers of columns."""
        words = [] if self.words is None else [f"{self.words.width:,} {self.words.kind}"]
        numbers = [] if self.numbers is None else [counted(self.numbers.width, "number")]
        categories = [] if self.categories is None else [counted(self.categories.width, "category", "categories")]
        vectors = [] if self.vectors is None else [f"vectors of {self.vectors.width:,} dimensions"]
        return ", ".join([*words, *numbers, *categories, *vectors]) or "none"

    def rows(self, part: slice) -> Features:
        """Return a range of vertices, without a copy of anything but the texts."""
        return Features(**{name: own.rows(part) for name, own in self.parts.items()})

    def arguments(
        self,
        features: Any,
        feature_names: Sequence[str] | None,
        numbers: Sequence[str] | None,
        categories: Sequence[str] | None,
    ) -> dict[str, Any]:
        """Return how to read new vertices for the same graph: what is not given is as in the graph."""
        is_sparse = sparse.issparse(features)
        if feature_names is None and is_sparse and type(self.words) is SparseFeatures:
            feature_names = list(self.words.columns)
        if numbers is None:
            wanted = self.numbers is not None and not self.numbers.is_numbered and (features is None or is_sparse)
            numbers = list(self.numbers.columns) if self.numbers is not None and wanted else ()
        if categories is None:
            names = () if self.categories is None else self.categories.columns
            categories = list(dict.fromkeys(name.partition("=")[0] for name in names))
        return {"features": features, "feature_names": feature_names, "numbers": numbers, "categories": categories}

    def take(self, rows: NDArray[np.integer]) -> Features:
        """Return the vertices of these rows, in this order."""
        return Features(**{name: own.take(rows) for name, own in self.parts.items()})

    def place(self, more: Features) -> Features:
        """Return the features of new vertices as `stack` takes them.

        They must be of the same kinds. Texts are left out if the graph has none, and empty if they have none.
        """
        if self.kinds != more.kinds:
            new, own = (", ".join(part.kinds) or "none" for part in (more, self))
            raise InputError(
                f"features of the new vertices: {new}; of the graph: {own}",
                fix="give the new vertices the same kinds of features",
            )
        if self.texts is not None and more.texts is None:
            more = replace(more, texts=Texts.of([""] * len(more.main or ())))
        return Features(**{name: own.place(getattr(more, name)) for name, own in self.parts.items()})

    def stack(self, parts: Sequence[Features]) -> Features:
        """Append the rows of the parts that `place` returned."""
        return Features(
            **{name: own.stack([getattr(part, name) for part in parts]) for name, own in self.parts.items()}
        )


def as_block(
    values: Any, columns: Sequence[str] | None = None, origin: Origin | None = None
) -> SparseFeatures | Numbers:
    """Check a scipy sparse matrix (kept sparse) or a two-dimensional array of numbers (NaN is a missing one)."""
    origin = origin or Origin("features")
    if columns is not None and (len(set(columns)) < len(columns) or not all(isinstance(name, str) for name in columns)):
        origin.fail("the column names are not all different strings", fix="give each column its own name")
    is_sparse = sparse.issparse(values)
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite, which is refused below
        try:
            matrix = values if is_sparse else np.array(values, dtype=np.float32, order="C", ndmin=2)
        except (TypeError, ValueError) as error:
            origin.fail(f"the features are not numbers ({error})", fix="give rows of numbers of equal length")
        if matrix.ndim != 2:
            origin.fail(f"features have {matrix.ndim} dimensions", fix="give one row for each vertex")
        if is_sparse:
            block = SparseFeatures.of(matrix, None if columns is None else Strings.of(columns))
            if not (finite := np.isfinite(block.data)).all():
                entry = int(np.argmin(finite))
                row = int(np.searchsorted(block.indptr, entry, side="right")) - 1
                _refuse_number(origin, columns, row, int(block.indices[entry]), "missing, infinite or too large")
            return block
    if columns is not None and len(columns) != matrix.shape[1]:
        origin.fail(
            f"{len(columns)} column names for {matrix.shape[1]} feature columns", fix="give one name for each column"
        )
    if (infinite := np.isinf(matrix)).any():
        row, column = np.argwhere(infinite)[0].tolist()
        _refuse_number(origin, columns, row, column, "infinite or too large")
    matrix[np.isnan(matrix)] = np.nan  # one of many, so that equal graphs have equal bytes
    return Numbers.of(matrix, columns)


def _refuse_number(origin: Origin, columns: Sequence[str] | None, row: int, column: int, problem: str) -> NoReturn:
    name = columns[column] if columns else str(column)
    origin.fail(f"a feature is {problem}", column=name, row=row, fix="write a float32 number")


def one_hot(columns: Mapping[str, pa.Array]) -> SparseFeatures:
    """Return one column "name=value" for each value of some columns of strings, in the order of first use.

    Examples
    --------
    >>> import pyarrow as pa
    >>> block = one_hot({"kind": pa.array(["b", None, "a"]), "open": pa.array(["1", "0", "1"])})
    >>> list(block.columns), block.matrix.toarray().tolist()
    (['kind=b', 'open=1', 'open=0', 'kind=a'], [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = pa.large_string()
    named = [
        pc.binary_join_element_wise(pa.scalar(name, kind), values.cast(kind), pa.scalar("=", kind))
        for name, values in columns.items()
    ]
    rows = len(named[0])
    # Row by row, so that appended vertices get the columns they would have in a graph that is built at once.
    order = np.arange(len(named) * rows).reshape(len(named), rows).T.ravel()
    coded = pa.concat_arrays(named).take(order).dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).reshape(rows, len(named))
    present = codes >= 0
    indptr = np.concatenate([[0], np.cumsum(present.sum(1))])
    ones = np.ones(indptr[-1], np.float32)
    matrix = sparse.csr_array((ones, codes[present], indptr), shape=(rows, len(coded.dictionary)))
    matrix.sort_indices()
    return SparseFeatures.of(matrix, Strings.from_arrow(coded.dictionary))


def count_words(texts: pa.Array) -> WordCounts:
    """Count the lower-case words of each text, with columns in the order of first use.

    A word has at least two letters or digits.

    Examples
    --------
    >>> import pyarrow as pa
    >>> counts = count_words(pa.array(["Graphs on graphs", "A big graph"]))
    >>> list(counts.columns), counts.matrix.toarray().tolist()
    (['graphs', 'on', 'big', 'graph'], [[2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = texts.cast(pa.large_string()).fill_null("")
    if texts.nbytes >= _MANY_BYTES:
        return _count_many_words(texts)
    split = pc.split_pattern_regex(pc.utf8_lower(texts), _NOT_IN_A_WORD)
    words, owners = split.flatten(), pc.list_parent_indices(split)
    long_enough = pc.greater_equal(pc.utf8_length(words), 2)
    coded = words.filter(long_enough).dictionary_encode()
    rows = owners.filter(long_enough).to_numpy()
    codes = coded.indices.to_numpy()
    ones = np.ones(len(codes), np.float32)
    matrix = sparse.csr_array((ones, (rows, codes)), shape=(len(texts), len(coded.dictionary)))
    return WordCounts.of(matrix, Strings.from_arrow(coded.dictionary))


def _count_many_words(texts: pa.LargeStringArray) -> WordCounts:
    """Count words as `count_words` does, in a compiled loop that takes all bytes outside of ASCII for letters."""
    import pyarrow.compute as pc

    from evergraph.graph.hashed import count_words

    other = pc.invert(pc.string_is_ascii(texts))
    if other.true_count:
        plain = pc.replace_substring_regex(pc.utf8_lower(texts.filter(other)), _NOT_IN_A_WORD, " ")
        texts = pc.replace_with_mask(texts, other, plain)
    return WordCounts(*count_words(Strings.from_arrow(texts)))


def inverse_frequencies(counts: WordCounts, known: int, *, min_df: int = 1) -> NDArray[np.float32]:
    """Return the inverse document frequency of each word in the first ``known`` texts; 0 for masked words.

    It is ``ln((1 + n) / (1 + df)) + 1``, as in scikit-learn. Words in fewer than ``min_df`` known texts are masked.
    """
    df = counts.count_texts(known)
    weight = (np.log((1 + known) / (1 + df)) + 1).astype(np.float32)
    weight[df < min_df] = 0
    return weight


def tfidf(counts: WordCounts, part: slice, known: int, *, min_df: int = 1) -> sparse.csr_array:
    """Return the TF-IDF of a range of vertices, with document frequencies from the first ``known`` vertices only.

    Words in fewer than ``min_df`` known texts are masked; the default masks words that are new at that time. The
    weights are those of `inverse_frequencies`. Rows have length one.

    Examples
    --------
    >>> import pyarrow as pa
    >>> counts = count_words(pa.array(["old word", "old news", "new word"]))
    >>> tfidf(counts, part=slice(2, 3), known=2).toarray().round(2).tolist()
    [[0.0, 1.0, 0.0, 0.0]]
    """
    weight = inverse_frequencies(counts, known, min_df=min_df)
    rows = counts.rows(part).matrix
    # A copy, because masking moves entries and the counts are shared.
    matrix = sparse.csr_array(
        (rows.data * weight[rows.indices], rows.indices, rows.indptr), shape=rows.shape, copy=True
    )
    matrix.eliminate_zeros()
    norms = np.sqrt(np.add.reduceat(np.append(matrix.data**2, np.float32(0)), matrix.indptr[:-1]))
    matrix.data /= np.repeat(norms, np.diff(matrix.indptr))
    return matrix
