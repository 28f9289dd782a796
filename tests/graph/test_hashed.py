from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.graph import features, hashed
from evergraph.graph.features import _count_many_words, count_words
from evergraph.graph.hashed import IdIndex
from evergraph.graph.ids import Strings

words = st.text(st.one_of(st.sampled_from("aAbB12 -_'ßÉé²Ⅷǅ́中İ\t"), st.characters(codec="utf-8")), max_size=20)


def on_cores(count: int) -> Any:
    """Count the words of short texts in as many parts as for long ones on a computer with some cores."""
    return mock.patch.multiple(hashed, _SHARED=1, cores=lambda: count)


@settings(max_examples=200, deadline=None)
@given(st.lists(words, max_size=12), st.integers(1, 4))
def test_words_are_counted_as_arrow_counts_them(texts: list[str], cores: int) -> None:
    column = pa.array(texts, pa.large_string())
    assert column.nbytes < features._MANY_BYTES
    with on_cores(cores):
        plain, many = count_words(column), _count_many_words(column)
    assert list(plain.columns) == list(many.columns)
    for name in ("indptr", "indices", "data"):
        one, other = getattr(plain, name), getattr(many, name)
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_the_table_of_words_grows(cores: int) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{n}" for n in rng.integers(0, 40_000, size=size)) for size in (3, 50_000, 0, 40, 30_000, 1)]
    column = pa.array([*texts, "x" * 200_000, "yy " * 100], pa.large_string())
    with on_cores(cores):
        plain, many = count_words(column), _count_many_words(column)
    assert list(plain.columns) == list(many.columns)
    assert (plain.matrix != many.matrix).nnz == 0


@settings(max_examples=100, deadline=None)
@given(st.data(), st.booleans())
def test_an_index_finds_what_a_dict_finds(data: st.DataObject, numbers: bool) -> None:
    kind = st.integers(-(2**63), 2**63 - 1) if numbers else st.text(min_size=1, max_size=6)
    known = data.draw(st.lists(kind, min_size=1, max_size=40, unique=True))
    wanted = data.draw(st.lists(st.one_of(st.sampled_from(known), kind), max_size=80))

    def column(values: list) -> Strings | np.ndarray:
        return np.array(values, np.int64) if numbers else Strings.of(values)

    index = IdIndex.of(column(known))
    assert index is not None
    place = {value: row for row, value in enumerate(known)}
    assert index.find(column(wanted)).tolist() == [place.get(value, -1) for value in wanted]
    order = np.array(data.draw(st.permutations(range(len(known)))))
    moved = [known[row] for row in order]
    place = {value: row for row, value in enumerate(moved)}
    assert index.sorted_by(order, column(moved)).find(column(wanted)).tolist() == [place.get(v, -1) for v in wanted]
    assert IdIndex.of(column([*known, known[-1]])) is None


def test_an_index_of_many() -> None:
    rng = np.random.default_rng(1)
    known = rng.permutation(300_000)[:100_000]
    wanted = rng.integers(0, 300_000, 200_000)
    row_of = np.full(300_000, -1)
    row_of[known] = np.arange(len(known))
    index = IdIndex.of(Strings.of(map(str, known.tolist())))
    assert index is not None
    assert np.array_equal(index.find(Strings.of(map(str, wanted.tolist()))), row_of[wanted])
