"""Blocks of inputs: what is read, that it grows by name, and that nothing of the future is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergraph import EvolvingGraph, InputError, LifelongLearner, Task
from evergraph.detect import GDOC
from evergraph.graph.features import Vectors
from evergraph.inputs.vocabulary import BLOCKS, Vocabulary, blocks_of, check_inputs
from evergraph.nn import GAT, GCN, MLP, SGC, GraphSAGE, GraphSAINT, JKNet

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = ["tree", "graph", "node", "leaf", "root"]
MODELS = [
    GraphSAGE(hidden=8),
    GAT(hidden=4, heads=2),
    GCN(hidden=8),
    SGC(),
    JKNet(hidden=8),
    GraphSAINT(),
    MLP(hidden=8),
]


def mixed(seed: int = 0, *, future: int | None = None, n: int = 120, encoder: str = "test sha256:0") -> EvolvingGraph:
    """A graph with all blocks; ``future`` is another seed for what comes after period 3."""
    rng, other = np.random.default_rng(seed), np.random.default_rng(future or seed)
    times = np.arange(n) // 20
    late = times > 3

    def draw(make: Any) -> list[Any]:
        now, then = make(rng), make(other)
        return [b if after and future is not None else a for a, b, after in zip(now, then, late, strict=True)]

    texts = draw(lambda r: [" ".join(r.choice(WORDS, 3)) for _ in range(n)])
    if future is not None:
        texts = [f"{text} new{future}" if after else text for text, after in zip(texts, late, strict=True)]
    price = draw(lambda r: r.normal(10, 3, n).tolist())
    price = [None if row % 17 == 0 else value for row, value in enumerate(price)]
    vertices = {
        "id": np.arange(n),
        "time": times,
        "label": draw(lambda r: [f"c{code}" for code in r.integers(0, 4, n)]),
        "text": texts,
        "price": price,
        "size": draw(lambda r: r.integers(0, 100, n).tolist()),
        "kind": draw(lambda r: r.choice(["red", "blue", None], n).tolist()),
    }
    early = np.random.default_rng(seed + 1).integers(0, 80, (80, 2))
    pairs = other.integers(0, n, (80, 2))
    pairs = pairs[(times[pairs] > 3).any(1)]
    graph = EvolvingGraph.build(
        vertices, np.concatenate([early, pairs]), numbers=["price", "size"], categories=["kind"]
    )
    vectors = np.array(draw(lambda r: r.normal(size=(n, 6)).astype(np.float32).tolist()), np.float32)
    return replace(graph, features=replace(graph.features, vectors=Vectors(vectors, encoder)))


def read(graph: EvolvingGraph, task: Task, blocks: tuple[str, ...] = BLOCKS) -> tuple[Vocabulary, Any, Any]:
    classes = tuple(sorted({name for name in graph.names_of(task.released) if name is not None}))
    vocabulary = Vocabulary.start(graph, blocks, "past").grown(task, classes)
    dense, other = vocabulary.read(task, task.window, classes)
    return vocabulary, dense, other


# --- what is asked for -----------------------------------------------------------------------------------------------


def test_names_of_blocks() -> None:
    assert check_inputs("words, classes,words") == ("words", "classes")
    assert check_inputs(["numbers"]) == ("numbers",)
    assert check_inputs("auto") is None
    for bad in ("word", "words,auto", "", []):
        with pytest.raises(InputError, match=r"no input|is empty"):
            check_inputs(bad)


def test_auto_is_what_the_graph_has() -> None:
    graph = mixed()
    assert blocks_of(graph, "auto") == BLOCKS
    assert blocks_of(replace(graph, features=replace(graph.features, vectors=None)), "auto") == tuple(
        name for name in BLOCKS if name != "encoder"
    )
    assert "classes" not in blocks_of(graph, "auto", classes=False)
    bare = EvolvingGraph.build({"id": [1, 2], "time": [1, 2], "text": ["one thing", "two things"]}, [[1, 2]])
    with pytest.raises(InputError, match="include encoder, but the graph has only words"):
        blocks_of(bare, "words,encoder")


# --- what is read ----------------------------------------------------------------------------------------------------


def test_numbers_are_standardised_on_the_past_and_missing_ones_are_the_mean() -> None:
    graph = mixed()
    task = Task(graph, 3, 2)
    _, dense, _ = read(graph, task, ("numbers",))
    values = np.array(graph.features.numbers.values, np.float64)  # type: ignore[union-attr]
    past = values[graph.times < 3]
    expected = (values[task.window.rows] - np.nanmean(past, 0)) / np.nanstd(past, 0)
    expected[np.isnan(expected)] = 0
    np.testing.assert_allclose(dense, expected, rtol=1e-4, atol=1e-5)
    assert dense.dtype == np.float32
    assert np.isnan(values).any()


def test_extreme_and_constant_numbers_stay_bounded() -> None:
    n = 40
    vertices = {
        "id": np.arange(n),
        "time": np.arange(n) // 20,
        "label": ["x", "y"] * 20,
        "one": [5.0] * n,
        "two": [0.0, 1.0] * 19 + [1e30, -1e30],
    }
    graph = EvolvingGraph.build(vertices, [[0, 1]], numbers=["one", "two"])
    _, dense, _ = read(graph, Task(graph, 1, 1), ("numbers",))
    assert np.abs(dense).max() <= 10
    assert (dense[:, 0] == 0).all()


def test_dense_features_without_names_are_read_as_they_are() -> None:
    values = np.random.default_rng(0).normal(5, 2, (30, 3)).astype(np.float32)
    rows = {"id": np.arange(30), "time": np.arange(30) // 10, "label": ["x", "y", "z"] * 10}
    graph = EvolvingGraph.build(rows, features=values)
    task = Task(graph, 2, 1)
    _, dense, other = read(graph, task, ("numbers",))
    np.testing.assert_array_equal(dense, values[10:])
    assert other is None


def test_categories_are_columns_by_name_and_grow() -> None:
    rows = {"id": [1, 2, 3], "time": [1, 2, 3], "label": ["x", "y", "x"], "kind": ["red", "blue", "green"]}
    graph = EvolvingGraph.build(rows, categories=["kind"])
    first, _, other = read(graph, Task(graph, 2, 1), ("categories",))
    assert first.runs == (("categories", ("kind=red",)),)
    assert other.toarray().tolist() == [[1.0], [0.0]]  # blue is not known yet
    second = first.grown(Task(graph, 3, 1), ())
    assert second.runs == (("categories", ("kind=red",)), ("categories", ("kind=blue",)))


def test_the_columns_of_all_blocks_are_in_their_places() -> None:
    graph = mixed()
    task = Task(graph, 3, 2)
    vocabulary, dense, other = read(graph, task)
    assert dense.shape == (len(task.window), 8)
    assert vocabulary.dense == 8
    assert other.shape == (len(task.window), vocabulary.width - 8)
    for block in ("words", "classes", "categories"):
        alone, _, expected = read(graph, task, (block,))
        columns = [number for number, (name, _) in enumerate(vocabulary.columns()) if name == block]
        assert [column for column in vocabulary.columns() if column[0] == block] == list(alone.columns())
        np.testing.assert_array_equal(other.toarray()[:, columns], expected.toarray())


# --- nothing of the future -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_no_block_reads_the_future(model: Any) -> None:
    found = []
    for future in (None, 1, 2):
        graph = mixed(future=future)
        learner = LifelongLearner(model, GDOC(0.5), steps=4, lr=0.05)
        for time in (2, 3):
            task = Task(graph, time, 2)
            decisions = learner.adapt(task).predict(task)
        found.append((decisions, learner.weights_))
    for decisions, weights in found[1:]:
        assert decisions.classes.tolist() == found[0][0].classes.tolist()
        np.testing.assert_array_equal(decisions.score, found[0][0].score)
        assert all(np.array_equal(value, found[0][1][name]) for name, value in weights.items())


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_every_model_reads_all_blocks_and_goes_on_after_saving(model: Any, tmp_path: Path) -> None:
    graph = mixed()
    learner = LifelongLearner(model, GDOC(0.5), steps=4, lr=0.05).adapt(Task(graph, 2, 2))
    assert learner.vocabulary_ is not None
    assert learner.vocabulary_.blocks == BLOCKS
    learner.save(tmp_path / "learner")
    again = LifelongLearner.load(tmp_path / "learner")
    assert again.vocabulary_ == learner.vocabulary_
    for time in (3, 4):
        task = Task(graph, time, 2)
        one, other = learner.adapt(task).predict(task), again.adapt(task).predict(task)
        assert one.classes.tolist() == other.classes.tolist()
        np.testing.assert_array_equal(one.score, other.score)


def test_renamed_and_merged_classes_are_read_under_their_new_names() -> None:
    graph = mixed()
    task = Task(graph, 3, 2)
    learner = LifelongLearner(GraphSAGE(hidden=8), GDOC(0.5), steps=10, lr=0.05, inputs="classes").adapt(task)
    names = dict(zip(graph.class_names, ["new", *graph.class_names[1:]], strict=True))
    renamed = replace(graph, class_names=tuple(names.values()))
    np.testing.assert_array_equal(
        learner.renamed(names).outputs(Task(renamed, 3, 2)).logits, learner.outputs(task).logits
    )
    assert learner.outputs(task).logits.std() > 0


def test_a_graph_with_other_blocks_is_refused() -> None:
    graph = mixed()
    learner = LifelongLearner(MLP(hidden=4), steps=2).adapt(Task(graph, 3, 2))
    without = replace(graph, features=replace(graph.features, numbers=None))
    with pytest.raises(InputError, match=r"the learner reads words, classes, numbers, encoder, categories"):
        learner.outputs(Task(without, 3, 2))
    wider = replace(graph, features=replace(graph.features, vectors=Vectors(np.zeros((120, 9), np.float32), "x")))
    with pytest.raises(InputError, match="reads 8 dense columns, but the graph has 11"):
        learner.outputs(Task(wider, 3, 2))
    with pytest.raises(InputError, match="inputs cannot be changed after training"):
        learner.set_params(inputs="words")
