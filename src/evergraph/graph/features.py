"""Features of vertices: dense vectors, sparse named columns, or word counts with TF-IDF."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError, Origin
from evergraph.graph.ids import Strings, append_rows, find

if TYPE_CHECKING:
    import pyarrow as pa

_NOT_IN_A_WORD = r"[^\p{L}\p{M}\p{N}]+"


@dataclass(frozen=True, eq=False)
class DenseFeatures:
    """One float32 vector per vertex, such as an embedding."""

    kind: ClassVar[Kind] = "dense"

    values: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.values.shape[1])

    def rows(self, part: slice) -> DenseFeatures:
        """Return a range of vertices, without a copy."""
        return DenseFeatures(self.values[part])

    def take(self, rows: NDArray[np.integer]) -> DenseFeatures:
        """Return the vertices of these rows, in this order."""
        return DenseFeatures(self.values[rows])

    def place(self, more: DenseFeatures) -> DenseFeatures:
        """Return the features of new vertices as `stack` takes them."""
        if self.width != more.width:
            raise InputError(
                f"the new vertices have {more.width} features, the graph has {self.width}",
                fix=f"give {self.width} features for each vertex",
            )
        return more

    def stack(self, parts: Iterable[DenseFeatures]) -> DenseFeatures:
        """Append the rows of the parts."""
        return DenseFeatures(append_rows(self.values, [part.values for part in parts]))


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """Named float32 columns in compressed sparse rows. New columns are appended, so columns keep their places."""

    kind: ClassVar[Kind] = "sparse"

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
        # A slice would not have the room behind the array that `append_rows` uses.
        indices, data = self.indices, self.data
        if (own.start, own.stop) != (0, len(data)):
            indices, data = indices[own], data[own]
        pointers = [part.indptr[1:] - part.indptr[0] + end for part, end in zip(parts, ends, strict=False)]
        stacked = type(self)(
            append_rows(self.indptr - own.start if own.start else self.indptr, pointers),
            append_rows(indices, [part.indices[span] for part, span in zip(parts, spans, strict=True)]),
            append_rows(data, [part.data[span] for part, span in zip(parts, spans, strict=True)]),
            Strings.concat([self.columns, *new])
            if (new := [part.columns for part in parts if len(part.columns)])
            else self.columns,
        )
        vars(stacked)["_counted"] = vars(self).get("_counted")
        return stacked

    def count_texts(self, rows: int) -> NDArray[np.int64]:
        """Return the number of texts with each column among the first rows; counted rows are not read again."""
        before, counts = vars(self).get("_counted") or (0, np.zeros(0, np.int64))
        if before > rows:
            before, counts = 0, counts[:0]
        start, end = self.indptr[before], self.indptr[rows]
        found = np.bincount(self.indices[start:end], minlength=self.width)
        found[: len(counts)] += counts
        found.flags.writeable = False  # it is used again
        vars(self)["_counted"] = (rows, found)
        return found


class WordCounts(SparseFeatures):
    """Number of occurrences of each word of the vocabulary in each vertex's text; see `tfidf`."""

    kind: ClassVar[Kind] = "words"


Features = DenseFeatures | SparseFeatures | WordCounts
Kind = Literal["none", "dense", "sparse", "words"]


def kind_of(features: Features | None) -> Kind:
    """Return the kind of features."""
    return "none" if features is None else features.kind


def as_features(values: Any, columns: list[str] | None = None, origin: Origin | None = None) -> Features:
    """Check a scipy sparse matrix (kept sparse) or a two-dimensional array (kept dense) and return its features."""
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
        features: Features
        if is_sparse:
            features = SparseFeatures.of(matrix, None if columns is None else Strings.of(columns))
            finite = np.isfinite(features.data)
        else:
            features, finite = DenseFeatures(matrix), np.isfinite(matrix)
    if not finite.all():
        if isinstance(features, DenseFeatures):
            row, column = np.argwhere(~finite)[0].tolist()
        else:
            entry = int(np.argmin(finite))
            row = int(np.searchsorted(features.indptr, entry, side="right")) - 1
            column = int(features.indices[entry])
        name = columns[column] if columns else str(column)
        origin.fail("a feature is missing, infinite or too large", column=name, row=row, fix="write a float32 number")
    return features


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
    split = pc.split_pattern_regex(pc.utf8_lower(texts), _NOT_IN_A_WORD)
    words, owners = split.flatten(), pc.list_parent_indices(split)
    long_enough = pc.greater_equal(pc.utf8_length(words), 2)
    coded = words.filter(long_enough).dictionary_encode()
    rows = owners.filter(long_enough).to_numpy()
    codes = coded.indices.to_numpy()
    ones = np.ones(len(codes), np.float32)
    matrix = sparse.csr_array((ones, (rows, codes)), shape=(len(texts), len(coded.dictionary)))
    return WordCounts.of(matrix, Strings.from_arrow(coded.dictionary))


def tfidf(counts: WordCounts, part: slice, known: int, *, min_df: int = 1) -> sparse.csr_array:
    """Return the TF-IDF of a range of vertices, with document frequencies from the first ``known`` vertices only.

    Words in fewer than ``min_df`` known texts are masked; the default masks words that are new at that time. The
    inverse document frequency is ``ln((1 + n) / (1 + df)) + 1``, as in scikit-learn. Rows have length one.

    Examples
    --------
    >>> import pyarrow as pa
    >>> counts = count_words(pa.array(["old word", "old news", "new word"]))
    >>> tfidf(counts, part=slice(2, 3), known=2).toarray().round(2).tolist()
    [[0.0, 1.0, 0.0, 0.0]]
    """
    df = counts.count_texts(known)
    weight = (np.log((1 + known) / (1 + df)) + 1).astype(np.float32)
    weight[df < min_df] = 0
    rows = counts.rows(part).matrix
    # A copy, because masking moves entries and the counts are shared.
    matrix = sparse.csr_array(
        (rows.data * weight[rows.indices], rows.indices, rows.indptr), shape=rows.shape, copy=True
    )
    matrix.eliminate_zeros()
    norms = np.sqrt(np.add.reduceat(np.append(matrix.data**2, np.float32(0)), matrix.indptr[:-1]))
    matrix.data /= np.repeat(norms, np.diff(matrix.indptr))
    return matrix
