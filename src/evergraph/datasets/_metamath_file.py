"""Read the embedded data set of mathematical theorems, ``metamath.npz``.

The file is written by ``scripts/build_metamath.py``, which says what the vertices, edges, classes and words
are.  Vertices are in order of (year, place in the source).  The arrays of the file:

========================  =================  ==========================================================
array                     type               holds
========================  =================  ==========================================================
``about``                 text               a JSON object: source, package, date, sha256 and licence
``labels``                text               the label of each vertex
``times``                 int16              the year of each vertex
``classes``               uint8              the class number of each vertex
``class_names``           text               the classes by first appearance
``edge_lengths/_gaps``    rows               for each vertex, its later neighbours: each edge once
``words``                 text               the words by first use
``word_lengths/_gaps``    rows               for each vertex, the numbers of the words in its description
``word_counts``           uint8              how often each of these words occurs
========================  =================  ==========================================================

*Text* is uint8, the UTF-8 bytes of strings joined by line ends.

*Rows* are lists of rising numbers, one list for each vertex, as two arrays: ``lengths`` (uint16, one for
each vertex) and ``gaps`` (uint8, shape (2, sum of lengths)).  A gap is the difference of a number to the one
before it in its row, or the number itself at a row's start.  ``gaps[0]`` holds the low bytes of the gaps and
``gaps[1]`` the high bytes: they compress better apart, as most high bytes are zero.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILE_NAME = "metamath.npz"


@dataclass(frozen=True)
class MetamathArrays:
    """The data set as plain arrays.

    Attributes
    ----------
    ids : list of str
        Theorem labels, one for each vertex.
    times : ndarray of int64
        Year of each vertex, not decreasing.
    codes : ndarray of int32
        Class number of each vertex, an index of `class_names`.
    class_names : tuple of str
        Section titles, by first appearance.
    source, target : ndarray of int32
        Ends of the undirected edges, each edge once and with ``source < target``.
    counts_indptr : ndarray of int64
        Row pointers of the word counts (CSR, vertices by words).
    counts_indices : ndarray of int32
        Word numbers, rising within each row.
    counts_data : ndarray of float32
        Numbers of occurrences.
    words : tuple of str
        The words, by first use.
    about : dict
        Where the data come from: ``source``, ``package``, ``date``, ``sha256`` and ``licence``.
    """

    ids: list[str]
    times: NDArray[np.int64]
    codes: NDArray[np.int32]
    class_names: tuple[str, ...]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    counts_indptr: NDArray[np.int64]
    counts_indices: NDArray[np.int32]
    counts_data: NDArray[np.float32]
    words: tuple[str, ...]
    about: dict[str, str | None]


def read_metamath() -> MetamathArrays:
    """Read the data set that comes with the package.

    Returns
    -------
    MetamathArrays
        Newly made arrays, which the caller may change.
    """
    return unpack(resources.files("evergraph.datasets").joinpath(FILE_NAME).read_bytes())


def unpack(content: bytes) -> MetamathArrays:
    """Unpack the content of a file that is encoded as this module's docstring says.

    Parameters
    ----------
    content : bytes
        The bytes of the file.

    Returns
    -------
    MetamathArrays
        The arrays.
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        degrees = archive["edge_lengths"]
        _, target = _unpack_rows(degrees, archive["edge_gaps"])
        counts_indptr, counts_indices = _unpack_rows(archive["word_lengths"], archive["word_gaps"])
        return MetamathArrays(
            ids=_unpack_text(archive["labels"]),
            times=archive["times"].astype(np.int64),
            codes=archive["classes"].astype(np.int32),
            class_names=tuple(_unpack_text(archive["class_names"])),
            source=np.repeat(np.arange(len(degrees), dtype=np.int32), degrees),
            target=target,
            counts_indptr=counts_indptr,
            counts_indices=counts_indices,
            counts_data=archive["word_counts"].astype(np.float32),
            words=tuple(_unpack_text(archive["words"])),
            about=json.loads(archive["about"].tobytes()),
        )


def _unpack_text(data: NDArray[np.uint8]) -> list[str]:
    text = data.tobytes().decode()
    return text.split("\n") if text else []


def _unpack_rows(
    lengths: NDArray[np.integer[Any]], gaps: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return row pointers and numbers."""
    indptr = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=indptr[1:])
    # One running sum over all rows, less what it had reached before each row, spares a loop over the rows.
    running = np.zeros(gaps.shape[1] + 1, dtype=np.int64)
    np.cumsum(gaps[0] + (gaps[1].astype(np.int64) << 8), out=running[1:])
    numbers = running[1:] - np.repeat(running[indptr[:-1]], lengths)
    return indptr, numbers.astype(np.int32)
