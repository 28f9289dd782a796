"""The embedded graph: the theorems of a mathematical proof database, from 1992 to 2020."""

from __future__ import annotations

from evergraph.datasets._metamath_file import read_metamath
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import WordCounts
from evergraph.graph.ids import Strings
from evergraph.graph.times import TimeAxis

__all__ = ["metamath"]


def metamath() -> EvolvingGraph:
    """The theorems of Metamath's database ``set.mm``: a real evolving graph that needs no download.

    A vertex is a theorem, its time the year in which it was contributed, its class the section of the database in which
    it stands, its text the words of its description. An edge says that the proof of one theorem uses the other.

    Sections and proofs are those of the snapshot (December 2020), not of the year of the theorem: proofs are shortened
    and theorems moved later on, so some edges and some classes are younger than the vertices that bear them.

    The database is in the public domain (CC0); ``scripts/build_metamath.py`` builds the embedded file from it.

    Examples
    --------
    >>> metamath()
    EvolvingGraph(vertices=25729, edges=461874, classes=74, times=1992..2020, features=words)
    """
    file = read_metamath()
    return EvolvingGraph.assemble(
        Strings.of(file.ids),
        file.times,
        file.codes,
        file.class_names,
        WordCounts(file.counts_indptr, file.counts_indices, file.counts_data, Strings.of(file.words)),
        (file.source, file.target, None),
        TimeAxis("year"),
        {name: str(value) for name, value in file.about.items() if value is not None},
    )
