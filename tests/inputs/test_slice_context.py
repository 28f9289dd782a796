"""What a detector may look at: against the graph itself, and nothing of the future."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from evergraph import EvolvingGraph
from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables
from evergraph.inputs import slice_context as module
from evergraph.inputs.slice_context import SliceContext
from evergraph.learning.task import Task
from tests.learning.test_learner import shuffled_future

pytestmark = pytest.mark.usefixtures("one_thread")

GRAPH = synthetic(vertices=300, times=7, classes=4, new_classes=2, words=150, words_per_vertex=4, seed=4)
TIME = 5
SHOWN = ("known", "words", "texts", "vectors", "nearest", "nearest_known", "similar")
Array = np.ndarray[Any, Any]


def plain(values: Any) -> list[Array]:
    """As arrays, to the last bit."""
    if isinstance(values, tuple):
        return [array for value in values for array in plain(value)]
    if isinstance(values, sparse.csr_array):
        return [np.array(values.shape), values.indptr, values.indices, values.data]
    return [values]


def same(one: SliceContext, other: SliceContext) -> None:
    assert one.start == other.start
    assert len(one) == len(other)
    for name in SHOWN:
        for a, b in zip(plain(getattr(one, name)), plain(getattr(other, name)), strict=True):
            assert a.dtype == b.dtype, name
            np.testing.assert_array_equal(a, b, err_msg=name)


def text_of(graph: EvolvingGraph, row: int) -> set[str]:
    features: Any = graph.features.words
    return {features.columns[int(column)] for column in features.matrix[[row]].indices}


def kinds_of_graphs() -> dict[str, EvolvingGraph]:
    rng = np.random.default_rng(0)
    rows = {"id": np.arange(60), "time": np.arange(60) // 12, "label": [f"c{row % 3}" for row in range(60)]}
    edges = rng.integers(0, 60, (90, 2))
    values = rng.normal(size=(60, 5)).astype(np.float32)
    values[:, 3], values[59] = 7, values[58]
    return {
        "text": EvolvingGraph.build({**rows, "text": [f"w{row % 7} v{row % 5}" for row in range(60)]}, edges),
        "empty text": EvolvingGraph.build({**rows, "text": [""] * 60}, edges),
        "dense": EvolvingGraph.build(rows, edges, features=values),
        "sparse": EvolvingGraph.build(rows, edges, features=sparse.csr_array(np.maximum(values, 0))),
        "nothing": EvolvingGraph.build(rows, edges),
        "no edges": EvolvingGraph.build({**rows, "text": ["a b", "b c", "c"] * 20}),
        "not even that": EvolvingGraph.build(rows),
    }


# --- against the graph -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", [1, 2, 6, None])
@pytest.mark.parametrize("mode", ["transductive", "inductive"])
def test_it_shows_the_slice_and_three_times_before_whatever_the_history(history: Any, mode: Any) -> None:
    task = Task(GRAPH, TIME, history, mode)
    context = SliceContext(task, ("a", "b"))
    assert np.array_equal(context.window.times, GRAPH.times[(GRAPH.times >= TIME - 3) & (GRAPH.times <= TIME)])
    assert context.window.times[context.start :].tolist() == [TIME] * len(context)
    assert list(context.window.ids[context.start :]) == list(task.test_ids)
    same(context, SliceContext(Task(GRAPH, TIME, 3), ("a", "b")))


def test_words_and_texts_are_those_of_the_graph() -> None:
    context = SliceContext(Task(GRAPH, TIME, 1), ())
    texts = [text_of(GRAPH, row) for row in range(context.window.rows.start, context.window.rows.stop)]
    names = sorted(set().union(*texts))
    expected = np.array([[name in text for name in names] for text in texts], float)
    assert np.array_equal(context.words.toarray(), expected)
    older, new = context.texts
    assert older.tolist() == expected[: context.start].sum(0).tolist()
    assert new.tolist() == expected[context.start :].sum(0).tolist()
    assert len(names) < GRAPH.features.words.width  # type: ignore[union-attr]  # or else other times were looked at


@pytest.mark.parametrize("rate", [1.0, 0.5, 0.1])
def test_known_are_labels_that_were_released_of_classes_that_are_known(rate: float) -> None:
    names = sorted(GRAPH.class_names)
    classes = (names[2], names[0])
    gone = [GRAPH.ids[int(row)] for row in np.flatnonzero(GRAPH.times == TIME - 2)]
    graph = GRAPH.relabel(gone, [None] * len(gone))  # a time without labels
    task = Task(graph, TIME, 1, label_rate=rate, seed=3)
    context = SliceContext(task, classes)
    released = Task(graph, TIME, None, label_rate=rate, seed=3).targets
    expected = []
    for row in range(context.window.rows.start, context.window.rows.start + context.start):
        label = graph.labels[row] if released[row] >= 0 else None
        expected.append(classes.index(label) if label in classes else -1)
    assert context.known.tolist() == expected
    assert (context.known[context.window.times[: context.start] == TIME - 2] == -1).all()
    assert len(context.known) == context.start  # nothing of the slice's own labels
    assert {-1, 0, 1} >= set(expected) > {-1}


def exact_vectors(graph: EvolvingGraph, first: int, last: int) -> Array:
    """By the words of the window, weighed and averaged over neighbours one vertex at a time."""
    rows = np.flatnonzero((graph.times >= first) & (graph.times <= last))
    texts = [text_of(graph, row) for row in rows]
    names = sorted(set().union(*texts))
    number = {name: sum(name in text for text in texts) for name in names}
    single = np.zeros((len(rows), len(names)))
    for place, text in enumerate(texts):
        weights = {name: np.log((1 + len(rows)) / (1 + number[name])) + 1 for name in text}
        length = np.sqrt(sum(weight**2 for weight in weights.values()))
        for name in text:
            single[place, names.index(name)] = weights[name] / length if number[name] > 1 else 0
    links = graph.links.matrix().toarray()[np.ix_(rows, rows)]
    mean = np.array([np.mean([single[i], *(single[j] for j in np.flatnonzero(links[i]))], 0) for i in range(len(rows))])
    length = np.linalg.norm(mean, axis=1, keepdims=True)
    return mean / np.where(length > 1e-9, length, 1)


def few_words(seed: int = 0, words: int = 40, edges: int = 150) -> EvolvingGraph:
    """So few words that no short vector loses anything; some vertices have none, and some the same."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(f"w{word}" for word in rng.integers(0, words, rng.integers(0, 5))) for _ in range(150)]
    rows = {"id": [f"v{row}" for row in rng.permutation(150)], "time": np.arange(150) // 30, "text": texts}
    ends = rng.integers(0, 150, (edges, 2))
    names = np.array(rows["id"])
    return EvolvingGraph.build({**rows, "label": [f"c{x}" for x in rng.integers(0, 4, 150)]}, names[ends])


@pytest.mark.parametrize("seed", range(3))
def test_angles_between_vectors_are_those_of_weighed_words(seed: int) -> None:
    graph = few_words(seed)
    context = SliceContext(Task(graph, 4, 1), ("c0", "c1", "c2"))
    exact = exact_vectors(graph, 1, 4)
    cosines = exact @ exact.T
    np.testing.assert_allclose(context.vectors @ context.vectors.T, cosines, atol=1e-12)

    ids = [str(name) for name in context.window.ids]
    drawn = sorted(range(len(ids)), key=lambda row: (zlib.crc32(ids[row].encode()), ids[row]))
    for row in range(len(context)):
        near = cosines[context.start + row]
        others = [other for other in drawn if other != context.start + row]
        others.sort(key=lambda other, near=near: -round(near[other], 8))
        assert set(context.nearest[row].tolist()) == set(others[:40])
        known = sorted(near[: context.start][context.known >= 0])[-5:]
        np.testing.assert_allclose(np.sort(context.nearest_known[row]), known, atol=1e-12)


def test_similar_are_neighbours_in_the_slice_and_the_nearest_by_rare_words() -> None:
    graph = few_words(words=60, edges=900)
    context = SliceContext(Task(graph, 4, 1), ())
    slice_rows = range(context.window.rows.start + context.start, context.window.rows.stop)
    texts = [text_of(graph, row) for row in range(context.window.rows.start, context.window.rows.stop)]
    own = texts[context.start :]
    number = {name: sum(name in text for text in texts) for text in own for name in text}
    assert max(sum(name in text for text in own) for name in number) <= 10  # all words are rare: 10 texts are few
    weight = {name: np.log((1 + len(texts)) / (1 + count)) + 1 for name, count in number.items()}
    length = [np.sqrt(sum(weight[name] ** 2 for name in text)) for text in own]
    expected = np.zeros((len(context), len(context)))
    for i, row in enumerate(slice_rows):
        for j, other in enumerate(slice_rows):
            expected[i, j] += bool(graph.links.matrix()[[row]].toarray()[0, other])
        like = {
            j: sum(weight[name] ** 2 for name in own[i] & own[j]) / (length[i] * length[j])
            for j in range(len(context))
            if j != i and own[i] & own[j]
        }
        ids = [str(name) for name in context.window.ids[context.start :]]
        for j in sorted(like, key=lambda j: (-round(like[j], 8), zlib.crc32(ids[j].encode())))[:5]:
            expected[i, j] += 1
    assert np.array_equal(context.similar.toarray(), expected)
    assert expected.max() == 2


def test_common_words_make_no_vertices_similar() -> None:
    texts = ["old"] * 5 + ["all"] * 20 + ["all rare", "rare", "other"]
    graph = EvolvingGraph.build({"id": range(28), "time": [0] * 5 + [1] * 23, "text": texts})
    kin = SliceContext(Task(graph, 1, 1), ()).similar.toarray()
    assert kin.sum() == 2
    assert kin[20, 21] == kin[21, 20] == 1


def test_dense_features_are_compared_by_deviations() -> None:
    graph = kinds_of_graphs()["dense"]
    context = SliceContext(Task(graph, 4, 1), ())
    values = np.asarray(graph.features.numbers.values, float)[12:]  # type: ignore[union-attr]
    spread = values.std(0)
    scaled = (values - values.mean(0)) / np.where(spread > 0, spread, 1)
    links = graph.links.matrix().toarray()[12:, 12:]
    mean = (links @ scaled + scaled) / (links.sum(1, keepdims=True) + 1)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    np.testing.assert_allclose(context.vectors, mean, atol=1e-9)
    assert context.words.shape == (48, 0)
    near = mean[36:] @ mean[36:].T
    np.fill_diagonal(near, -1)
    expected = links[36:, 36:].astype(float)
    for row in range(12):
        best = np.argsort(near[row])[-5:]
        expected[row, best[near[row, best] > 0]] += 1
    assert np.array_equal(context.similar.toarray(), expected)


# --- nothing of the future -------------------------------------------------------------------------------------------


def renamed_future(graph: EvolvingGraph, after: int) -> EvolvingGraph:
    """Vertices that come later have other names, and stand first in the table: words and classes get other numbers."""
    rows = np.argsort(graph.times <= after, kind="stable")
    ids = np.array([f"{'A' if graph.times[row] > after else ''}{graph.ids[row]}" for row in range(len(graph))], object)
    texts = [" ".join(sorted(text_of(graph, row), reverse=True)) for row in range(len(graph))]
    source, target, _ = graph.links.ends()
    vertices = {
        "id": ids[rows],
        "time": graph.times[rows],
        "label": graph.labels[rows],
        "text": [texts[r] for r in rows],
    }
    return EvolvingGraph.build(vertices, np.stack([ids[source], ids[target]], 1))


FUTURES: dict[str, Callable[[EvolvingGraph], EvolvingGraph]] = {
    "cut off": lambda graph: graph.remove([graph.ids[int(row)] for row in np.flatnonzero(graph.times > TIME)]),
    "built without it": lambda graph: EvolvingGraph.build(*to_tables(graph, last=TIME)),
    "shuffled": lambda graph: shuffled_future(graph, TIME, 1),
    "shuffled otherwise": lambda graph: shuffled_future(graph, TIME, 2),
    "renamed": lambda graph: renamed_future(graph, TIME),
}


@pytest.mark.parametrize("future", FUTURES.values(), ids=FUTURES)
@pytest.mark.parametrize("rate", [1.0, 0.5])
@pytest.mark.parametrize("mode", ["transductive", "inductive"])
def test_nothing_of_the_future_is_seen(
    future: Callable[[EvolvingGraph], EvolvingGraph], rate: float, mode: Any
) -> None:
    classes = tuple(sorted(GRAPH.class_names)[:3])
    task = Task(GRAPH, TIME, 2, mode, label_rate=rate, seed=1)
    other = future(GRAPH)
    columns: list[Any] = [list(graph.features.words.columns) for graph in (GRAPH, other)]  # type: ignore[union-attr]
    assert columns[0] != columns[1] or future is FUTURES["cut off"]
    same(SliceContext(task, classes), SliceContext(replace(task, graph=other), classes))


def test_labels_of_the_slice_are_not_seen() -> None:
    ids = [GRAPH.ids[int(row)] for row in np.flatnonzero(GRAPH.times == TIME)]
    other = GRAPH.relabel(ids, ["nothing like it"] * len(ids))
    classes = (*sorted(GRAPH.class_names)[:3], "nothing like it")
    same(SliceContext(Task(GRAPH, TIME, 2), classes), SliceContext(Task(other, TIME, 2), classes))


def test_edges_that_come_later_are_not_seen() -> None:
    rows = {"id": [1, 2, 3, 4], "time": [0, 1, 1, 2], "text": ["a", "b", "c", "a"]}
    graph = EvolvingGraph.build(rows, {"source": [1, 2], "target": [2, 3], "time": [1, 2]})
    context = SliceContext(Task(graph, 1, 1), ())
    assert context.similar.toarray().tolist() == [[0, 0], [0, 0]]
    assert context.window.n_edges == 1


# --- little to see ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", kinds_of_graphs())
@pytest.mark.parametrize("time", [0, 1, 4, 5], ids=lambda time: f"time {time}")
def test_every_kind_of_graph_can_be_seen(kind: str, time: int) -> None:
    """At time 0 nothing is older, at time 5 there is nothing to decide."""
    context = SliceContext(Task(kinds_of_graphs()[kind], time, 1), ("c1", "c0"))
    older, new = 12 * min(time, 3), 0 if time == 5 else 12
    assert (context.start, len(context)) == (older, new)
    assert len(context.known) == older
    assert context.words.shape[0] == len(context.vectors) == older + new
    lengths = np.linalg.norm(context.vectors, axis=1)
    assert (np.isclose(lengths, 1) | (lengths == 0)).all()
    assert context.nearest.shape == (new, min(40, max(older + new - 1, 0)))
    assert all(context.start + row not in near for row, near in enumerate(context.nearest.tolist()))
    assert context.nearest_known.shape == (new, min(5, int((context.known >= 0).sum())))
    assert context.similar.shape == (new, new)
    assert not context.similar.diagonal().any()
    if kind in ("empty text", "nothing", "not even that"):
        assert context.words.shape[1] == 0
        assert not lengths.any()
        inside = context.window.adjacency[older:, older:].toarray()
        assert np.array_equal(context.similar.toarray(), inside)  # a vertex without features is similar to none


@pytest.mark.parametrize("features", ["text", "dense", "nothing"])
def test_one_vertex_and_none(features: str) -> None:
    rows: dict[str, Any] = {"id": [1, 2], "time": [0, 9]}
    more = {"features": np.ones((2, 3), np.float32)} if features == "dense" else {}
    graph = EvolvingGraph.build({**rows, "text": ["a b", "b"]} if features == "text" else rows, **more)
    for time, number in ((0, 1), (5, 0), (9, 1)):
        context = SliceContext(Task(graph, time, 1), ("c",))
        assert (context.start, len(context)) == (0, number)  # no vertices in the three periods before
        assert context.known.tolist() == []
        assert context.vectors.shape[0] == number
        assert context.nearest.shape == (number, 0)
        assert context.nearest_known.shape == (number, 0)
        assert context.similar.shape == (number, number)
        assert context.similar.nnz == 0


# --- order, precision and memory -------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.sampled_from(["text", "dense", "no edges", "nothing"]))
@settings(max_examples=25, deadline=None)
def test_the_order_of_vertices_does_not_show(seed: int, kind: str) -> None:
    graph = kinds_of_graphs()[kind]
    order = np.random.default_rng(seed).permutation(len(graph))
    source, target, _ = graph.links.ends()
    table = {"id": graph.ids[order], "time": graph.times[order], "label": graph.labels[order]}
    features: Any = graph.features.numbers
    given_features = {}
    if kind == "dense":
        given_features["features"] = features.values[order]
    elif kind != "nothing":
        table["text"] = [" ".join(sorted(text_of(graph, row))) for row in order]
    other = EvolvingGraph.build(table, np.stack([graph.ids[source], graph.ids[target]], 1), **given_features)
    one, two = (SliceContext(Task(g, 4, 1), ("c0", "c1")) for g in (graph, other))
    where = np.array([list(two.window.ids).index(name) for name in one.window.ids])
    late = where[one.start :] - one.start
    np.testing.assert_allclose(
        one.vectors @ one.vectors.T, (two.vectors @ two.vectors.T)[np.ix_(where, where)], atol=1e-12
    )
    assert np.array_equal(one.similar.toarray(), two.similar.toarray()[np.ix_(late, late)])
    assert [set(where[row]) for row in one.nearest] == [set(row) for row in two.nearest[late]]
    np.testing.assert_allclose(np.sort(one.nearest_known, 1), np.sort(two.nearest_known[late], 1), atol=1e-12)


def test_many_vertices_are_seen_in_single_precision_and_nearly_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    precise = SliceContext(Task(GRAPH, TIME, 1), ("a",))
    assert precise.vectors.dtype == np.float64
    expected = precise.vectors @ precise.vectors.T
    monkeypatch.setattr(module, "_SMALL", 10)
    rough = SliceContext(Task(GRAPH, TIME, 1), ("a",))
    assert rough.vectors.dtype == rough.nearest_known.dtype == np.float32
    # Each draws its own sample of directions, and what is cut off differs a little.
    assert np.abs(rough.vectors @ rough.vectors.T - expected).mean() < 0.05
    assert (rough.similar != precise.similar).mean() < 0.01


def test_what_is_shown_twice_is_worked_out_once() -> None:
    context = SliceContext(Task(GRAPH, TIME, 1), ("a", "b"))
    for name in SHOWN:
        assert getattr(context, name) is getattr(context, name)


def test_whether_it_shows_the_same() -> None:
    task = Task(GRAPH, TIME, 1)
    context = SliceContext(task, ("a",))
    assert context.shows(Task(GRAPH, TIME, 4, "inductive"), ("a",))
    assert not context.shows(task, ("a", "b"))
    assert not context.shows(replace(task, time=TIME - 1), ("a",))
    assert not context.shows(replace(task, label_rate=0.5), ("a",))
    assert not context.shows(replace(task, seed=1), ("a",))
    assert not context.shows(replace(task, graph=FUTURES["cut off"](GRAPH)), ("a",))


def test_ranks_are_by_hash_and_then_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.zlib, "crc32", len)  # so that many names share a hash
    graph = few_words()
    context = SliceContext(Task(graph, graph.last_time, None), ())
    names = [str(name) for name in context.window.ids]
    by_rank = [names[row] for row in np.argsort(context._ranks)]
    assert by_rank == sorted(names, key=lambda name: (len(name.encode()), name))
    assert len({len(name) for name in names}) < len(names)
