"""Graphs of older formats are read as they were, and the fingerprint of a graph never changes."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from evergraph import EvolvingGraph
from evergraph.graph import disk
from evergraph.graph.arrays import fingerprint
from evergraph.graph.features import Numbers
from evergraph.graph.segments import decode, join
from tests.strategies import assert_equal

DATA = Path(__file__).parent / "data" / "format-2.zip"
VERTICES = {"id": ["a", "b", "c"], "time": [2001, 2002, 2002], "label": ["x", None, "y"]}
EDGES = [("a", "b"), ("b", "c")]
VALUES = np.array([[0.5, -1], [0, 2], [3, 0]], np.float32)
GIVEN: dict[str, Any] = {
    "none": {},
    "words": {"text": ["Old news", "new words, news", None]},
    "sparse": {"features": sparse.csr_array(VALUES), "feature_names": ["p", "q"]},
    "dense": {"features": VALUES},
}
MORE: dict[str, Any] = {
    "none": {},
    "words": {"text": ["newer words"]},
    "sparse": {"features": sparse.csr_array([[1.0, 2]]), "feature_names": ["q", "r"]},
    "dense": {"features": [[7.0, 8.0]]},
}
# Recorded before a graph could have several kinds of features. Results are stored with these, so they must not change.
FINGERPRINTS = {
    "none": "c4cd4306f270bf6cda7a4279305983e2892172b25ed179830d755757987f99cd",
    "words": "96870b35b23c14aa1ab5a4e08a2a1a278de7f0a18cc6a22bc6f0e810cc076fda",
    "sparse": "e8b2a1438f3b21a1ce7d91aab6b6c5d3bfbfbb9481220fbdb6248bba2f109c95",
    "dense": "4993198fa800d1b9e535639dd19562ebc74dbeddcfbf3d8e7cad1e6871de7956",
}
LONGER = {
    "none": "71b879095858430368b34e91b862c84fb3deae362e00e3d5f44246244e672d71",
    "words": "234586ac5b02d6d07da175d9baa22a2d20c4f4423cc2ed6569ab057cc37009e6",
    "sparse": "4bbf4e90e3363a6a59fc43ded71e1c379b14a2bea2833c2880d296a194739d72",
    "dense": "06f38b29973d65c4909828b673350620b0178c89483933a0eac458eb47fdd65f",
}
kinds = pytest.mark.parametrize("kind", GIVEN)


def built(kind: str) -> EvolvingGraph:
    more = dict(GIVEN[kind])
    text = {"text": more.pop("text")} if "text" in more else {}
    return EvolvingGraph.build(VERTICES | text, EDGES, **more)


def appended(graph: EvolvingGraph, kind: str) -> EvolvingGraph:
    more = dict(MORE[kind])
    text = {"text": more.pop("text")} if "text" in more else {}
    return graph.append({"id": ["d"], "time": [2003]} | text, [("d", "a")], **more)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with zipfile.ZipFile(DATA) as archive:
        archive.extractall(tmp_path)
    return tmp_path


@kinds
def test_the_fingerprint_is_what_it_always_was(kind: str) -> None:
    graph = built(kind)
    assert fingerprint(graph) == FINGERPRINTS[kind]
    assert fingerprint(appended(graph, kind)) == LONGER[kind]


def test_the_fingerprint_of_a_graph_with_text_is_that_of_its_words() -> None:
    one, other = (EvolvingGraph.build({"id": [1], "time": [1], "text": [text]}) for text in ("One two", "one, TWO!"))
    assert one.features.texts is not None
    assert fingerprint(one) == fingerprint(other)


def test_numbers_categories_and_vectors_are_part_of_the_fingerprint() -> None:
    vertices = {"id": [1, 2], "time": [1, 2], "text": ["one", "two"], "n": [1, None], "c": ["x", None]}
    graphs = [
        EvolvingGraph.build(vertices | changed, numbers=numbers, categories=categories)
        for changed in ({}, {"n": [None, 1]}, {"c": [None, "x"]}, {"c": ["y", None]})
        for numbers in ((), ("n",))
        for categories in ((), ("c",))
    ]
    assert len({fingerprint(graph) for graph in graphs}) == 1 + 2 + 3 + 4


@kinds
def test_a_folder_of_format_2_is_read_appended_to_and_saved(old: Path, kind: str) -> None:
    assert disk.verify(old / kind) > 0
    graph = disk.open_checked(old / kind)
    assert fingerprint(graph) == FINGERPRINTS[kind]
    assert graph.features.texts is None
    longer = appended(graph, kind)
    assert fingerprint(longer) == LONGER[kind]
    assert longer.features.texts is None
    longer.save(old / kind, replace=True)
    assert_equal(EvolvingGraph.open(old / kind), longer)
    assert list(graph.remove(["a"]).ids) == ["b", "c"]


@kinds
def test_segments_of_format_2_are_joined(old: Path, kind: str) -> None:
    segments = [decode((old / f"{kind}-{number}.segment").read_bytes()) for number in (0, 1)]
    assert fingerprint(join(segments[:1])) == FINGERPRINTS[kind]
    assert fingerprint(join(segments)) == LONGER[kind]


def test_numbers_without_names_take_columns_by_place(old: Path) -> None:
    graph = EvolvingGraph.open(old / "dense")
    assert isinstance(graph.features.numbers, Numbers)
    assert list(graph.features.numbers.columns) == ["0", "1"]
    more = graph.append({"id": ["d"], "time": [2003], "x": [1], "y": [2]}, numbers=["y", "x"])
    assert more.features.numbers is not None
    assert more.features.numbers.values[-1].tolist() == [2, 1]
