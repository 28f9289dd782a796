"""Text: counting words over an append-only vocabulary, and TF-IDF from what is known before a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from evergraph.graph.features import WordCounts
from evergraph.graph.strings import Strings

if TYPE_CHECKING:
    import pyarrow as pa

_NOT_IN_A_WORD = r"[^\p{L}\p{M}\p{N}]+"


def count_words(texts: pa.Array) -> WordCounts:
    """Count the lower-cased words (two letters or digits and more) of each text, in the order of first use.

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


def tfidf(counts: WordCounts, part: slice, known: slice, *, min_df: int = 1) -> sparse.csr_array:
    """TF-IDF of a run of vertices with document frequencies from the known ones only; rows have length one.

    Words in fewer than ``min_df`` known texts are masked: with the default those never seen before, about which nothing
    was known at that time. The inverse document frequency is ``ln((1 + n) / (1 + df)) + 1``, as in scikit-learn.

    Examples
    --------
    >>> import pyarrow as pa
    >>> counts = count_words(pa.array(["old word", "old news", "new word"]))
    >>> tfidf(counts, part=slice(2, 3), known=slice(0, 2)).toarray().round(2).tolist()
    [[0.0, 1.0, 0.0, 0.0]]
    """
    seen = counts.rows(known)
    df = np.bincount(seen.indices[seen.indptr[0] : seen.indptr[-1]], minlength=counts.width)
    weight = (np.log((1 + len(seen)) / (1 + df)) + 1).astype(np.float32)
    weight[df < min_df] = 0
    rows = counts.rows(part).matrix
    # A copy, for masking moves entries and the counts are shared.
    matrix = sparse.csr_array(
        (rows.data * weight[rows.indices], rows.indices, rows.indptr), shape=rows.shape, copy=True
    )
    matrix.eliminate_zeros()
    norms = np.sqrt(np.add.reduceat(np.append(matrix.data**2, np.float32(0)), matrix.indptr[:-1]))
    matrix.data /= np.repeat(norms, np.diff(matrix.indptr))
    return matrix
