"""Original texts: compressed in chunks, read one by one, and never trusted."""

from __future__ import annotations

import zlib
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.errors import DamagedGraphError
from evergraph.graph import texts as module
from evergraph.graph.texts import Texts

any_text = st.text(max_size=30) | st.sampled_from(["", "\0", "é\u0301 🦋", "a" * 70_000, "two\nlines"])
lists = st.lists(any_text, max_size=12)


def zstd(content: bytes, size: int | None = None) -> bytes:
    """Compress a chunk; ``size`` is the one it says it has."""
    size = len(content) if size is None else size
    return b"zstd" + size.to_bytes(8, "little") + pa.compress(content, codec="zstd", asbytes=True)


@given(lists, st.data())
def test_texts_are_what_was_given(given: list[str], data: st.DataObject) -> None:
    with mock.patch.object(module, "_TEXTS", data.draw(st.integers(1, 4))):
        texts = Texts.of(given)
    assert list(texts) == given == texts[:]
    assert len(texts) == len(given)
    assert texts.is_valid(len(given))
    if given:
        rows = np.array(data.draw(st.lists(st.integers(0, len(given) - 1))), np.int64)
        assert texts[rows] == [given[row] for row in rows]
        assert list(texts.take(rows)) == texts[rows]
        assert texts[-1] == given[-1]
    assert list(texts.rows(slice(1, 3))) == given[1:3]


@given(st.lists(lists, min_size=1, max_size=4))
def test_appending_leaves_older_chunks_as_they_are(given: list[list[str]]) -> None:
    first, *rest = map(Texts.of, given)
    stacked = first.stack(rest)
    assert list(stacked) == [text for part in given for text in part]
    assert stacked.data[: len(first.data)].tobytes() == first.data.tobytes()
    assert stacked.is_valid(len(stacked))


def test_only_the_chunks_of_the_rows_are_decompressed() -> None:
    texts = Texts.of([f"text number {number}" for number in range(5_000)])
    assert len(texts.starts) > 9
    with mock.patch.object(Texts, "_chunk", autospec=True, side_effect=Texts._chunk) as chunk:
        assert texts[np.array([4_999, 3, 4_998, 0])] == [f"text number {number}" for number in (4_999, 3, 4_998, 0)]
    assert chunk.call_count == 2
    for row in (5_000, -1):
        with pytest.raises(IndexError):
            texts[[row]]


def test_what_unpacks_to_far_more_than_its_size_is_stored_as_it_is_and_otherwise_refused() -> None:
    texts = Texts.of(["a" * 10_000_000])
    assert len(texts.data) > 9_000_000
    assert texts[0] == "a" * 10_000_000
    content = np.uint32(50_000_000).tobytes() + b"a" * 50_000_000
    for packed in (zlib.compress(content), zstd(content)):
        assert len(packed) < 100_000
        bomb = np.frombuffer(packed, np.uint8)
        hostile = Texts(bomb, np.array([0, len(bomb)]), np.array([0, 1]))
        assert hostile.is_valid(1)
        with pytest.raises(DamagedGraphError, match="texts are damaged"):
            hostile[0]


def test_texts_of_older_graphs_are_read_and_stacked_with_new_ones() -> None:
    packed = np.frombuffer(zlib.compress(np.array([3, 0], np.uint32).tobytes() + b"one"), np.uint8)
    older = Texts(packed, np.array([0, len(packed)]), np.array([0, 2]))
    assert list(older) == ["one", ""]
    assert list(older.stack([Texts.of(["two"])])) == ["one", "", "two"]


@pytest.mark.parametrize("size", [-1, 1, 2**62])
def test_a_chunk_of_another_size_than_it_says_is_refused(size: int) -> None:
    content = np.uint32(300).tobytes() + bytes(range(100)) * 3
    packed = np.frombuffer(zstd(content, len(content) + size), np.uint8)
    with pytest.raises(DamagedGraphError, match="texts are damaged"):
        Texts(packed, np.array([0, len(packed)]), np.array([0, 1]))[0]


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (b"", 1),
        (b"\1\0\0\0", 1),
        (b"\1\0\0\0ab", 1),
        (b"\1\0\0\0\xff", 1),
        (b"\xff\xff\xff\xffa", 1),
        (b"\1\0\0\0a", 2**40),
        (b"\1\0\0\0a", 0),
        (b"\1\0\0\0a", -3),
    ],
)
def test_damaged_chunks_are_refused(content: bytes, count: int) -> None:
    for chunk in (zlib.compress(content), zstd(content)):
        packed = np.frombuffer(chunk, np.uint8)
        with pytest.raises(DamagedGraphError, match=r"texts are damaged .*Import the graph again"):
            Texts(packed, np.array([0, len(packed)]), np.array([0, count]))._chunk(0)


@given(st.data())
def test_changed_bytes_give_an_error_or_texts(data: st.DataObject) -> None:
    texts = Texts.of(["one text", "", "another text, longer than the first"])
    changed = np.array(texts.data)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = list(Texts(changed, texts.offsets, texts.starts))
    except DamagedGraphError:
        return
    assert len(found) == 3
