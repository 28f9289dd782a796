"""The embedded graph: the theorems of a mathematical proof database, from 1992 to 2020.

``scripts/build_metamath.py`` writes the file ``metamath.npz`` and documents vertices, edges, classes and words.
Vertices are in order of (year, position in the source). The arrays of the file:

========================  =================  ==========================================================
array                     type               content
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

*Text* is uint8: the UTF-8 bytes of strings joined by line ends. *Rows* are lists of ascending numbers, one for each
vertex, as two arrays: ``lengths`` (uint16, one for each vertex) and ``gaps`` (uint8, shape (2, sum of lengths)). A gap
is the difference to the previous number of the row, or the first number itself. ``gaps[0]`` holds the low bytes and
``gaps[1]`` the high bytes: they compress better apart, because most high bytes are zero.
"""

from __future__ import annotations

import io
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError
from evergraph.graph.arrays import find_damage
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import Features, WordCounts
from evergraph.graph.ids import Strings
from evergraph.graph.times import TimeAxis
from evergraph.storage.decoding import decoding, parse_json, read_array

__all__ = ["metamath"]

FILE_NAME = "metamath.npz"


def metamath() -> EvolvingGraph:
    """Return the theorems of Metamath's database ``set.mm``: a real evolving graph that needs no download.

    A vertex is a theorem, its time the year of its contribution, its class the section of the database, its text the
    words of its description. An edge means that the proof of one theorem uses the other.

    Sections and proofs are those of the snapshot (December 2020). Proofs are shortened and theorems moved over time, so
    some edges and classes are younger than their vertices.

    The database is in the public domain (CC0); ``scripts/build_metamath.py`` builds the embedded file from it.

    Examples
    --------
    >>> metamath()
    EvolvingGraph(vertices=25729, edges=461874, classes=74, times=1992..2020, features=words)
    """
    with decoding(Path(FILE_NAME), _damaged):
        file = unpack(resources.files("evergraph.datasets").joinpath(FILE_NAME).read_bytes())
        graph = EvolvingGraph.assemble(
            Strings.of(file.ids),
            file.times,
            file.codes,
            file.class_names,
            Features(WordCounts(file.counts_indptr, file.counts_indices, file.counts_data, Strings.of(file.words))),
            (file.source, file.target, None),
            TimeAxis("year"),
            {name: str(value) for name, value in file.about.items() if value is not None},
        )
        if (problem := find_damage(graph)) is not None:
            raise ValueError(problem)
    return graph


def _damaged(path: Path, problem: str) -> InputError:
    return InputError(f"the embedded file is damaged: {problem}", file=path, fix="install Evergraph again")


class MetamathArrays(NamedTuple):
    """The content of the file: each edge once, with ``source < target``; word counts as CSR."""

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


def unpack(content: bytes) -> MetamathArrays:
    """Decode the content of a file."""
    with zipfile.ZipFile(io.BytesIO(content)) as members:
        archive = {member.removesuffix(".npy"): read_array(members.read(member)) for member in members.namelist()}
        degrees = archive["edge_lengths"]
        _, target = _unpack_rows(degrees, archive["edge_gaps"])
        indptr, indices = _unpack_rows(archive["word_lengths"], archive["word_gaps"])
        return MetamathArrays(
            ids=_unpack_text(archive["labels"]),
            times=archive["times"].astype(np.int64),
            codes=archive["classes"].astype(np.int32),
            class_names=tuple(_unpack_text(archive["class_names"])),
            source=np.repeat(np.arange(len(degrees), dtype=np.int32), degrees),
            target=target,
            counts_indptr=indptr,
            counts_indices=indices,
            counts_data=archive["word_counts"].astype(np.float32),
            words=tuple(_unpack_text(archive["words"])),
            about=parse_json(archive["about"].tobytes()),
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
    # One running sum over all rows, minus its value before each row, avoids a loop over the rows.
    running = np.zeros(gaps.shape[1] + 1, dtype=np.int64)
    np.cumsum(gaps[0] + (gaps[1].astype(np.int64) << 8), out=running[1:])
    numbers = running[1:] - np.repeat(running[indptr[:-1]], lengths)
    return indptr, numbers.astype(np.int32)
