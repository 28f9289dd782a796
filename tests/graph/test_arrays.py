"""Segments: a graph joined from its additions is the graph that was appended to, bit for bit."""

from __future__ import annotations

import hashlib
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from evergraph import EvolvingGraph, InputError
from evergraph.graph import ids as id_columns
from evergraph.graph.adjacency import Adjacency
from evergraph.graph.arrays import fingerprint
from evergraph.graph.classes import extend_names
from evergraph.graph.columns import check_edges, check_vertices
from evergraph.graph.features import Features, Numbers, SparseFeatures
from evergraph.graph.segments import (
    Segment,
    base_segment,
    decode,
    encode,
    extend,
    find_segment_damage,
    join,
    merge,
    slice_segment,
)
from evergraph.graph.texts import Texts
from tests.strategies import Tables, arrays_of, assert_equal, tables

build = EvolvingGraph.build


def segment(graph: EvolvingGraph, vertices: Any = None, edges: Any = None, **more: Any) -> Segment:
    """The segment of a slice given as for `EvolvingGraph.append`."""
    return slice_segment(graph, checked(graph, vertices, **more), check_edges(edges, graph.axis))


def checked(
    graph: EvolvingGraph, vertices: Any, features: Any = None, numbers: Any = None, categories: Any = None
) -> Any:
    if vertices is None:
        return None
    return check_vertices(vertices, **graph.features.arguments(features, None, numbers, categories), axis=graph.axis)


def rebuilt(graph: EvolvingGraph, vertices: Any, edges: Any, **more: Any) -> EvolvingGraph:
    """The graph with a slice, where everything is joined by plain loops, sorted and linked anew."""
    ids, times, codes, names, rows = graph.ids.tolist(), graph.times, graph.codes, graph.class_names, graph.features
    if vertices is not None:
        new = checked(graph, vertices, **more)
        ids, times = ids + new.ids.tolist(), np.concatenate([times, new.times])
        names, row_of = extend_names(names, new.class_names)
        codes, rows = np.concatenate([codes, row_of[new.codes]]), stacked(rows, new.features)
    if any(isinstance(name, str) for name in ids):
        ids = [str(name) for name in ids]
    place = {str(name): row for row, name in enumerate(ids)}
    old_source, old_target, old_times = graph.links.ends()
    new_edges = {"source": [], "target": []} if edges is None else edges
    source = np.append(old_source, [place[str(name)] for name in new_edges["source"]]).astype(int)
    target = np.append(old_target, [place[str(name)] for name in new_edges["target"]]).astype(int)
    old_times = np.maximum(graph.times[old_source], graph.times[old_target]) if old_times is None else old_times
    edge_times = np.append(old_times, new_edges.get("time", [0] * len(new_edges["source"]))).astype(int)
    column = id_columns.Strings.of(ids) if isinstance(ids[0], str) else np.array(ids)
    return EvolvingGraph.assemble(
        column, times, codes, names, rows, (source, target, edge_times), graph.axis, graph.about
    )


def stacked(old: Features, new: Features) -> Features:
    parts: dict[str, Any] = {}
    for name, part in old.parts.items():
        more = getattr(new, name)
        if name == "numbers":
            parts[name] = Numbers(np.concatenate([part.values, more.values]), part.columns)
        else:
            parts[name] = Texts.of([*part, *more]) if name == "texts" else stacked_columns(part, more)
    return Features(**parts)


def stacked_columns(old: SparseFeatures, new: SparseFeatures) -> SparseFeatures:
    names = list(dict.fromkeys([*old.columns, *new.columns]))
    matrix = np.zeros((len(old) + len(new), len(names)), np.float32)
    matrix[: len(old), : old.width] = old.matrix.toarray()
    for column, name in enumerate(new.columns):
        matrix[len(old) :, names.index(name)] = new.matrix.toarray()[:, column]
    return type(old).of(sparse.csr_array(matrix), id_columns.Strings.of(names))


@st.composite
def slices(draw: st.DrawFn) -> list[Tables]:
    """A graph in parts: vertices in any order of time, each edge with any part in which both its ends are known."""
    whole = draw(tables(min_size=2))
    ids, count = whole.vertices["id"], draw(st.integers(2, 5))
    part_of = [draw(st.integers(0, count - 1)) for _ in ids]
    if draw(st.booleans()):  # none arrives late
        rank = {time: row for row, time in enumerate(sorted(set(whole.vertices["time"])))}
        part_of = [rank[time] for time in whole.vertices["time"]]
        count = len(rank)
    if 0 not in part_of:
        part_of[0] = 0
    known_in = dict(zip(ids, part_of, strict=True))
    ends = zip(whole.edges["source"], whole.edges["target"], strict=True)
    edge_part = [draw(st.integers(max(known_in[a], known_in[b]), count - 1)) for a, b in ends]
    parts = []
    for part in range(count):
        picked = whole.pick(*([row for row, of in enumerate(owner) if of == part] for owner in (part_of, edge_part)))
        if part and draw(st.booleans()):
            picked.vertices["id"] = [str(name) for name in picked.vertices["id"]]
        if part and draw(st.booleans()):
            picked.edges.pop("time", None)
        parts.append(picked)
    return parts


@given(slices(), st.sampled_from([1, 4096]), st.sampled_from([2, 2**16]), st.data())
def test_joined_and_merged_segments_are_the_graph_that_was_appended_to(
    given: list[Tables], block: int, layer: int, data: st.DataObject
) -> None:
    # With small limits, arrays in blocks and edges in layers occur in small graphs too.
    with mock.patch("evergraph.graph.blocks._MAPPED", block), mock.patch("evergraph.graph.adjacency._LARGE", layer):
        check_segments(given, data)


def check_segments(given: list[Tables], data: st.DataObject) -> None:
    graph = reference = given[0].build()
    segments = [base_segment(graph)]
    for part in given[1:]:
        vertices, more = (part.vertices, part.more) if part.vertices["id"] else (None, {})
        reference = rebuilt(reference, vertices, part.edges, **more)
        segments.append(segment(graph, vertices, part.edges, **more))
        appended = graph.append(vertices, part.edges, **more)
        assert_equal(extend(graph, segments[-1]), appended)
        graph = appended
        assert fingerprint(graph) == fingerprint(reference)
    assert_equal(graph, reference)
    assert_equal(join(segments), graph)
    assert_equal(join([decode(encode(part)) for part in segments]), graph)
    assert fingerprint(join(segments)) == fingerprint(graph)
    assert [find_segment_damage(part) for part in segments] == [None] * len(segments)
    low, high = sorted((data.draw(st.integers(0, len(graph))), data.draw(st.integers(0, len(graph)))))
    at = data.draw(st.integers(0, 9))
    some, same = (of.links.part(slice(low, high), at) for of in (join(segments), reference))
    assert some.matrix().toarray().tolist() == same.matrix().toarray().tolist()
    assert some.is_timed == same.is_timed
    assert some.times is None or some.times.tolist() == same.times.tolist()
    start = data.draw(st.integers(1, len(segments)))
    stop = data.draw(st.integers(start, len(segments)))
    one = merge(join(segments[:start]), segments[start:stop]) if start < stop else None
    if one is not None:
        compacted = [*segments[:start], one, *segments[stop:]]
        assert find_segment_damage(one) is None
        assert_equal(join([decode(encode(part)) for part in compacted]), graph)


@given(tables(min_size=2), st.data())
def test_inserted_edges_are_those_of_all_at_once(given: Tables, data: st.DataObject) -> None:
    graph = given.build()
    source, target, _ = graph.links.ends()
    n = len(graph)
    pairs = st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=12)
    more = np.array(data.draw(pairs), int).reshape(-1, 2)
    times = data.draw(st.none() | st.lists(st.integers(0, 9), min_size=len(more), max_size=len(more)).map(np.array))
    before = Adjacency.of(source, target, graph.times, None if times is None else np.full(len(source), 7))
    inserted = before.insert(more[:, 0], more[:, 1], graph.times, times)
    old_times = None if times is None else np.append(np.full(len(source), 7), times).astype(int)
    both = [np.append(ends, more[:, side]) for side, ends in enumerate((source, target))]
    whole = Adjacency.of(both[0], both[1], graph.times, old_times)
    for name in ("indptr", "indices", "times"):
        left, right = getattr(inserted, name), getattr(whole, name)
        assert (left is None) == (right is None)
        assert left is None or (left.dtype == right.dtype and (left == right).all())


def test_a_segment_holds_only_what_is_new() -> None:
    words = [f"word{number}" for number in range(500)]
    graph = build({"id": range(500), "time": [1] * 500, "label": ["x"] * 500, "text": words})
    new = {"id": [500], "time": [2], "label": ["y"], "text": ["word7 news"]}
    added = segment(graph, new, [(500, 7), (3, 4)])
    assert all(array.dtype.kind in "iuf" for array in added.values())
    assert sum(array.nbytes for name, array in added.items()) < 300
    assert added["features.columns.bytes"].tobytes() == b"news"
    assert added["classes.bytes"].tobytes() == b"y"
    entries = list(zip(added["entries.rows"].tolist(), added["entries.columns"].tolist(), strict=True))
    assert entries == [(3, 4), (4, 3), (7, 500), (500, 7)]


def test_encoding_is_the_same_for_the_same_segment() -> None:
    graph = build({"id": ["a", "b"], "time": [1, 2], "text": ["on graphs", None]}, about={"from": "nöwhere"})
    first = encode(base_segment(graph))
    assert first == encode(base_segment(graph)) == encode(decode(first))
    assert join([decode(first)]).about == graph.about
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(encode(decode(first))).hexdigest()


def test_segments_in_another_order_are_refused() -> None:
    graph = build({"id": ["a"], "time": [1]})
    segments, graphs = [base_segment(graph)], [graph]
    for time, name in enumerate("bc", start=2):
        segments.append(segment(graphs[-1], {"id": [name], "time": [time]}, [(name, "a")]))
        graphs.append(extend(graphs[-1], segments[-1]))
    assert_equal(join(segments), graphs[-1])
    for wrong in (segments[::2], [segments[0], *segments[:0:-1]], [*segments, segments[-1]]):
        with pytest.raises(ValueError, match="does not follow"):
            join(wrong)


def test_what_cannot_be_appended_makes_no_segment() -> None:
    graph = build({"id": ["a", "b"], "time": [1, 2]})
    with pytest.raises(InputError, match="vertex 'a' is in the graph already"):
        segment(graph, {"id": ["a"], "time": [3]})
    with pytest.raises(InputError, match="of the new vertices: words; of the graph: none"):
        segment(graph, {"id": ["c"], "time": [3], "text": ["t"]})
    with pytest.raises(InputError, match="far from the others"):
        segment(graph, {"id": ["c"], "time": [10**6]})
    with pytest.raises(InputError, match="leads to 'z', which is not a vertex"):
        segment(graph, {"id": ["c"], "time": [3]}, [("c", "z")])


def test_arrays_of_a_joined_graph_cannot_be_written() -> None:
    graph = build({"id": [1, 2], "time": [1, 2], "text": ["a graph", None]}, [(1, 2)])
    grown = graph.append({"id": [3], "time": [3], "text": ["words"]}, {"source": [3], "target": [1], "time": [9]})
    both = [base_segment(graph), segment(graph, {"id": [3], "time": [3], "text": ["words"]})]
    for joined in (grown, join(both), join(both[:1])):
        assert [name for name, array in arrays_of(joined).items() if array.flags.writeable] == []
