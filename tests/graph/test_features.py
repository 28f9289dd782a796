from __future__ import annotations

import pickle
import re
import unicodedata
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer

from evergraph import EvolvingGraph
from evergraph.errors import InputError
from evergraph.graph.arrays import fingerprint
from evergraph.graph.features import Vectors, count_words, tfidf
from evergraph.graph.segments import base_segment, decode, encode, join
from tests.strategies import Tables, tables, texts

# Letters that existed long ago: newer ones may be unknown to one of the two tables of Unicode that are compared.
ASSIGNED = [chr(code) for code in range(0xD7FF) if unicodedata.ucd_3_2_0.category(chr(code)) not in ("Cn", "Co", "Cs")]
# Letters whose lower case depends on their neighbours, has two letters, or was added to Unicode later.
CHANGING = {letter for letter in ASSIGNED if len(letter.lower()) != 1 or "\u10a0" <= letter <= "\u10ff"}


def words_of(text: str) -> list[str]:
    """Words as a person would find them: runs of letters, marks and digits, two and more."""
    lowered = "".join(letter.lower() for letter in text)  # one by one: no final sigma
    inside = "".join(letter if unicodedata.category(letter)[0] in "LMN" else " " for letter in lowered)
    return [word for word in re.split(" +", inside) if len(word) > 1]


def rows_of(counts: Any) -> list[dict[str, float]]:
    names, dense = list(counts.columns), counts.matrix.toarray()
    return [{names[column]: value for column, value in enumerate(row) if value} for row in dense]


letters = st.sampled_from([letter for letter in ASSIGNED if letter not in CHANGING]) | st.sampled_from(
    "aAzZ09 ,.-_'ßéÅσς"
)


@given(st.lists(st.none() | st.text(letters, max_size=12), max_size=6))
def test_words_are_runs_of_letters_and_digits(given: list[str | None]) -> None:
    counts = count_words(pa.array(given, pa.string()))
    expected = [words_of(text or "") for text in given]
    assert rows_of(counts) == [Counter(words) for words in expected]
    assert list(counts.columns) == list(dict.fromkeys(word for words in expected for word in words))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Graphs on graphs", ["graphs", "on", "graphs"]),
        ("I, a x", []),
        ("state-of-the-art don't snake_case", ["state", "of", "the", "art", "don", "snake", "case"]),
        ("C++ 3D 42 7 word2vec", ["3d", "42", "word2vec"]),
        ("Größe NAÏVE", ["größe", "naïve"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("Привет мир", ["привет", "мир"]),
        ("图神经网络 学习", ["图神经网络", "学习"]),
        ("हिन्दी", ["हिन्दी"]),
        ("🦋🦋 butterfly", ["butterfly"]),
        ("tab\tline\nnul\0end", ["tab", "line", "nul", "end"]),
        ("", []),
        (None, []),
    ],
)
def test_words_of_many_languages(text: str | None, words: list[str]) -> None:
    assert rows_of(count_words(pa.array([text], pa.large_string()))) == [Counter(words)]


@pytest.mark.parametrize("given", [[], [None], [None, None], ["", " "], ["a"]])
def test_texts_without_words_have_no_columns(given: list[str | None]) -> None:
    counts = count_words(pa.array(given, pa.string()))
    assert counts.matrix.shape == (len(given), 0)


def test_texts_that_are_part_of_a_longer_column_are_counted_alone() -> None:
    column = pa.array(["first words", "second words", None, "third"])
    assert rows_of(count_words(column.slice(1))) == [{"second": 1, "words": 1}, {}, {"third": 1}]


# --- TF-IDF ----------------------------------------------------------------------------------------------------------

texted = tables(kinds=["text"], last=4)


def sklearn_tfidf(known: Any, rows: Any) -> np.ndarray:
    if not known.shape[0] or not known.shape[1] or not rows.shape[0]:
        return np.zeros(rows.shape)
    fitted = TfidfTransformer(norm="l2", smooth_idf=True).fit(sparse.csr_matrix(known, dtype=np.float64))
    return fitted.transform(sparse.csr_matrix(rows, dtype=np.float64)).toarray()


def assert_rows_have_length_one(matrix: Any) -> None:
    lengths = np.sqrt((matrix.toarray().astype(np.float64) ** 2).sum(axis=1))
    assert np.allclose(lengths[np.diff(matrix.indptr) > 0], 1, atol=1e-6)


@given(texted, st.integers(0, 4), st.integers(0, 4))
def test_global_tfidf_is_that_of_scikit_learn(given: Tables, first: int, length: int) -> None:
    graph = given.build()
    window = graph.window(first, first + length)
    found = window.inputs("global")
    counts = graph.features.words.matrix
    assert found.dtype == np.float32
    assert np.allclose(found.toarray(), sklearn_tfidf(counts, counts[window.rows]), atol=1e-6)
    assert_rows_have_length_one(found)


@given(texted, st.integers(0, 4), st.integers(0, 4), st.integers(1, 3))
def test_past_tfidf_is_scikit_learn_fitted_on_the_past(given: Tables, first: int, length: int, min_df: int) -> None:
    graph = given.build()
    window = graph.window(first, first + length)
    counts = graph.features.words.matrix
    past = counts[graph.times < window.last]
    seen = (past > 0).sum(axis=0) >= min_df
    rows = counts[window.rows].toarray() * seen  # words that were not seen are removed
    found = window.inputs("past", min_df=min_df)
    assert found.shape == (len(window), graph.features.words.width)
    assert np.allclose(found.toarray(), sklearn_tfidf(past, rows), atol=1e-6)
    assert_rows_have_length_one(found)
    assert window.inputs().toarray().tolist() == window.inputs("past").toarray().tolist()


@given(texted, st.integers(0, 5))
def test_before_moves_the_time_of_knowledge(given: Tables, before: int) -> None:
    graph = given.build()
    window = graph.window(0, 2)
    known = int((graph.times < before).sum())
    expected = tfidf(graph.features.words, window.rows, known)
    assert (window.inputs(before=before) != expected).nnz == 0
    assert (window.inputs(before=str(before)) != expected).nnz == 0


@given(texted, st.integers(1, 4), st.data())
def test_texts_of_the_future_do_not_move_the_past(given: Tables, time: int, data: st.DataObject) -> None:
    changed = {**given.vertices, "text": list(given.vertices["text"])}
    for row, at in enumerate(changed["time"]):
        if at >= time:
            changed["text"][row] = data.draw(texts | st.just("entirely new words"))
    other = Tables(changed, given.edges).build()
    graph = given.build()
    past = graph.times < time
    words = graph.features.words.matrix[past].sum(axis=0) > 0
    width = int(words.sum())
    # Words are numbered as they first appear, so those of the past are the first columns whatever the future brings.
    assert words[:width].all()
    assert list(graph.features.words.columns[:width]) == list(other.features.words.columns[:width])
    for before in range(1, time + 1):
        for first in range(before):
            one, two = (which.window(first, before - 1).inputs(before=before) for which in (graph, other))
            assert one[:, :width].toarray().tolist() == two[:, :width].toarray().tolist()
            assert not one[:, width:].nnz
            assert not two[:, width:].nnz


@given(texted, st.integers(1, 4))
def test_vertices_of_the_future_do_not_move_the_past(given: Tables, time: int) -> None:
    graph = given.build()
    past, _ = given.before(time)
    if not past.vertices["id"]:
        return
    alone = past.build()
    for first in range(time):
        whole, part = graph.window(first, time - 1).inputs(), alone.window(first, time - 1).inputs()
        assert whole[:, : part.shape[1]].toarray().tolist() == part.toarray().tolist()
        assert not whole[:, part.shape[1] :].nnz


@given(texted)
def test_weighing_leaves_the_counts_alone(given: Tables) -> None:
    graph = given.build()
    before = graph.features.words.matrix.toarray().copy()
    for mode in ("past", "global", "counts"):
        graph.window(0, 3).inputs(mode, min_df=2)
    assert np.array_equal(graph.features.words.matrix.toarray(), before)
    assert np.array_equal(graph.window(0, 9).inputs("counts").toarray(), before)


def test_words_in_few_texts_are_masked() -> None:
    given = {"id": range(4), "time": [1, 1, 1, 2], "text": ["both once", "both", "", "both once never"]}
    window = EvolvingGraph.build(given).window(2, 2)
    assert [window.inputs(min_df=least).toarray().astype(float).round(3).tolist() for least in (1, 2, 3)] == [
        [[0.605, 0.796, 0.0]],
        [[1.0, 0.0, 0.0]],
        [[0.0, 0.0, 0.0]],
    ]


def test_texts_without_known_words_are_empty_rows() -> None:
    given = {"id": range(5), "time": [1, 2, 2, 2, 2], "text": ["old", "new", "old new", "", None]}
    inputs = EvolvingGraph.build(given).window(1, 2).inputs()
    assert inputs.toarray().tolist() == [[1, 0], [0, 0], [1, 0], [0, 0], [0, 0]]
    assert np.isfinite(inputs.data).all()


def test_nothing_is_known_before_the_first_time() -> None:
    graph = EvolvingGraph.build({"id": [1, 2], "time": [1, 1], "text": ["one two", "two"]})
    assert graph.window(1, 1).inputs().nnz == 0
    assert graph.window(1, 1).inputs(before=2).nnz == 3


def test_appending_copies_only_new_sparse_features() -> None:
    def slice_of(time: int) -> dict[str, Any]:
        return {"id": [f"{time}-{row}" for row in range(4)], "time": [time] * 4, "text": ["one two", "two", "", "six"]}

    graph = EvolvingGraph.build({"id": ["a"], "time": [0], "label": ["x"], "text": ["one two three " * 9]})
    wide = {"id": [f"w{row}" for row in range(50)], "time": [0] * 50, "text": ["one two three four five"] * 50}
    graph = graph.append(wide)
    for time in (1, 2):
        larger = graph.append(slice_of(time))
        for name in ("indptr", "indices", "data"):
            assert np.shares_memory(getattr(graph.features.words, name), getattr(larger.features.words, name)), name
        graph = larger


def test_counts_of_texts_cannot_be_changed() -> None:
    counts = count_words(pa.array(["one two", "two"]))
    assert counts.count_texts(2).tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        counts.count_texts(2)[0] = 7


# --- several kinds of features ---------------------------------------------------------------------------------------

MIXED = {
    "id": ["a", "b", "c"],
    "time": [1, 2, 2],
    "text": ["Old news", "New words", None],
    "pages": [3, None, 0.5],
    "open": [True, False, None],
    "kind": ["paper", "", "book"],
}


def mixed(**changed: Any) -> EvolvingGraph:
    return EvolvingGraph.build(MIXED | changed, numbers=["pages", "open"], categories=["kind"])


def with_vectors(graph: EvolvingGraph, encoder: str = "some sha256:1", width: int = 2) -> EvolvingGraph:
    vectors = Vectors(np.ones((len(graph), width), np.float32), encoder)
    return replace(graph, features=replace(graph.features, vectors=vectors))


def test_a_graph_may_have_text_numbers_and_categories() -> None:
    graph = mixed()
    features = graph.features
    assert features.kinds == ("words", "numbers", "categories")
    assert features.summary == "4 words, 2 numbers, 2 categories"
    assert features.texts is not None
    assert list(features.texts) == ["Old news", "New words", ""]
    assert np.array_equal(features.numbers.values, [[3, 1], [np.nan, 0], [0.5, np.nan]], equal_nan=True)
    assert list(features.categories.columns) == ["kind=paper", "kind=book"]
    assert features.categories.matrix.toarray().tolist() == [[1, 0], [0, 0], [0, 1]]
    assert repr(graph).endswith("features=words, numbers, categories)")
    assert with_vectors(graph).features.summary.endswith("2 categories, vectors of 2 dimensions")


def test_the_inputs_are_words_categories_and_numbers_side_by_side() -> None:
    window = mixed().window(2, 2)
    parts = [window.words("counts").toarray(), [[0, 0], [0, 1]], [[np.nan, 0], [0.5, np.nan]]]
    assert np.array_equal(window.inputs("counts").toarray(), np.hstack(parts), equal_nan=True)
    bare = EvolvingGraph.build({"id": [1], "time": [1], "c": ["x"]}, categories=["c"])
    assert bare.window(1, 1).inputs().toarray().tolist() == [[1]]
    assert with_vectors(EvolvingGraph.build({"id": [1], "time": [1]})).window(1, 1).inputs().tolist() == [[1, 1]]
    with pytest.raises(InputError, match="the graph has no words"):
        bare.window(1, 1).words()
    assert bare.window(1, 1).known_columns().tolist() == []


def test_a_graph_without_features_is_empty() -> None:
    graph = EvolvingGraph.build({"id": [1], "time": [1]})
    assert not graph.features
    assert mixed().features
    assert (graph.features.kinds, graph.features.summary, graph.features.main) == ((), "none", None)


def test_appended_columns_are_matched_by_name_and_new_categories_are_appended() -> None:
    more = {"time": [3], "id": ["d"], "kind": ["film"], "open": [0], "pages": [8], "text": ["newer news"]}
    graph = mixed().append(more)
    assert graph.features.numbers.values[-1].tolist() == [8, 0]
    assert list(graph.features.categories.columns) == ["kind=paper", "kind=book", "kind=film"]
    assert graph.features.texts[-1] == "newer news"
    permuted = mixed().append(more, numbers=["open", "pages"], categories=["kind"])
    assert permuted.features.numbers.values[-1].tolist() == [8, 0]
    by_place = EvolvingGraph.build({"id": [1], "time": [1]}, features=[[1, 2.0]], feature_names=["p", "q"])
    assert by_place.append({"id": [2], "time": [1]}, features=[[3, 4.0]]).features.numbers.values.tolist() == [
        [1, 2],
        [3, 4],
    ]
    named = by_place.append({"id": [2], "time": [1]}, features=[[3, 4.0]], feature_names=["q", "p"])
    assert named.features.numbers.values.tolist() == [[1, 2], [4, 3]]


@pytest.mark.parametrize(
    ("changed", "more", "problem"),
    [
        (
            {},
            {"numbers": ["pages"]},
            "column of numbers 'open' is missing. Name the columns of the graph one by one: pages",
        ),
        ({"x": [1]}, {"numbers": ["pages", "open", "x"]}, "the graph has no column of numbers 'x'"),
        ({}, {"categories": ()}, "new vertices: words, numbers; of the graph: words, numbers, categories"),
        ({}, {"numbers": (), "features": [[1.0]]}, "the new vertices have 1 numbers, the graph has 2"),
    ],
)
def test_slices_with_other_features_are_refused(changed: Any, more: Any, problem: str) -> None:
    row = {"id": ["d"], "time": [3], "text": ["t"], "pages": [1], "open": [1], "kind": ["x"]}
    with pytest.raises(InputError, match=problem):
        mixed().append(row | changed, **more)


def test_vectors_of_another_encoder_are_refused() -> None:
    graph = with_vectors(mixed())
    own = graph.features
    for other in (with_vectors(mixed(), "other sha256:2"), with_vectors(mixed(), width=3)):
        vectors = other.features.vectors
        assert vectors is not None
        with pytest.raises(
            InputError, match=rf"{vectors.encoder} \({vectors.width} .* of some sha256:1 \(2 dimensions"
        ):
            own.place(other.features)
    with pytest.raises(InputError, match=r"of the new vertices: words, numbers, categories; of the graph: .*vectors"):
        own.place(mixed().features)
    assert len(own.stack([own.place(own)]).vectors) == 6


def test_all_parts_survive_folder_segments_and_changes(tmp_path: Path) -> None:
    graph = with_vectors(mixed())
    graph.save(tmp_path / "graph")
    opened = EvolvingGraph.open(tmp_path / "graph")
    segments = join([decode(encode(base_segment(graph)))])
    for other in (
        opened,
        segments,
        pickle.loads(pickle.dumps(opened)),
        graph.relabel(["a"], ["x"]).relabel(["a"], [None]),
    ):
        assert list(other.features.parts) == ["words", "numbers", "categories", "vectors", "texts"]
        assert other.features.vectors.encoder == "some sha256:1"
        assert list(other.features.numbers.columns) == ["pages", "open"]
        assert len(other.class_names) or fingerprint(other) == fingerprint(graph)
    left = opened.remove(["a"])
    assert list(left.features.texts) == ["New words", ""]
    assert len(left.features.vectors) == len(left.features.categories) == 2
