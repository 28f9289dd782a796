"""Vectors on the way to disk: what is finished is kept, checked and used again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from evergraph.errors import BusyError, InputError
from evergraph.inputs import encoding
from evergraph.inputs.encoding import encoded
from tests.encoders import Hashed

TEXTS = [f"text {number} of graph {number % 3}" for number in range(23)]


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_PART", 5)
    monkeypatch.setattr(Hashed, "batch", 2)


class Killed(BaseException):
    pass


def stop_after(encoder: Hashed, texts: int) -> Hashed:
    """Let an encoder fail after this many texts."""
    real = encoder.encode_batch

    def failing(batch: list[str]) -> np.ndarray:
        if len(encoder.seen) >= texts:
            raise Killed
        return real(batch)

    encoder.encode_batch = failing  # type: ignore[method-assign]
    return encoder


def interrupted(folder: Path, texts: int = 12) -> None:
    with pytest.raises(Killed), encoded(TEXTS, stop_after(Hashed(), texts), folder):
        pass


def fail_to_save(texts: list[str], encoder: Hashed, folder: Path) -> None:
    with encoded(texts, encoder, folder) as vectors:
        np.testing.assert_array_equal(vectors, Hashed().encode(texts))
        raise Killed


def test_vectors_are_those_of_the_encoder_and_nothing_stays_behind(tmp_path: Path) -> None:
    calls = []
    with encoded(TEXTS, Hashed(), tmp_path / "graph", lambda *call: calls.append(call)) as vectors:
        np.testing.assert_array_equal(vectors, Hashed().encode(TEXTS))
        assert not vectors.flags.writeable
        assert [path.name for path in tmp_path.iterdir()] == ["graph.encoding"]
    assert not list(tmp_path.iterdir())
    assert [done for done, _, _ in calls] == sorted(done for done, _, _ in calls)
    assert calls[-1][:2] == (23, 23)
    assert all(rate > 0 for _, _, rate in calls)


@pytest.mark.parametrize("texts", range(0, 24, 3))
def test_an_interrupted_encoding_continues(tmp_path: Path, texts: int) -> None:
    interrupted(tmp_path / "graph", texts)
    encoder = Hashed()
    with encoded(TEXTS, encoder, tmp_path / "graph") as vectors:
        np.testing.assert_array_equal(vectors, Hashed().encode(TEXTS))
    batches = [part + done for part in range(0, 25, 5) for done in (0, 2, 4)]  # a part of 5 texts has 3 batches
    done = next(count for count in batches if count >= texts)
    assert len(encoder.seen) == 23 - done // 5 * 5
    assert not list(tmp_path.iterdir())


def test_other_texts_and_other_encoders_are_encoded_again(tmp_path: Path) -> None:
    interrupted(tmp_path / "graph")
    changed, encoder = ["changed", *TEXTS[1:]], Hashed()
    with pytest.raises(Killed):
        fail_to_save(changed, encoder, tmp_path / "graph")
    assert "changed" in encoder.seen
    assert len(encoder.seen) < len(TEXTS)
    other = Hashed("another", width=3)
    with encoded(changed, other, tmp_path / "graph") as vectors:
        np.testing.assert_array_equal(vectors, Hashed("another", width=3).encode(changed))
    assert len(other.seen) == len(TEXTS)


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda data: data[:10],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: hashlib.sha256(data[32:-24]).digest() + data[32:-24],
    ],
)
def test_damaged_parts_are_encoded_again(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    interrupted(tmp_path / "graph")
    parts = [path for path in (tmp_path / "graph.encoding").iterdir() if len(path.name) == 64]
    assert len(parts) == 2
    for path in parts:
        path.write_bytes(damage(path.read_bytes()))
    encoder = Hashed()
    with encoded(TEXTS, encoder, tmp_path / "graph") as vectors:
        np.testing.assert_array_equal(vectors, Hashed().encode(TEXTS))
    assert len(encoder.seen) == len(TEXTS)


def test_one_process_encodes_at_a_time_and_links_are_not_followed(tmp_path: Path) -> None:
    with (
        encoded(TEXTS, Hashed(), tmp_path / "graph"),
        pytest.raises(BusyError, match="another process is writing this encoding"),
        encoded(TEXTS, Hashed(), tmp_path / "graph"),
    ):
        pass
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "graph.encoding").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="symbolic link"), encoded(TEXTS, Hashed(), tmp_path / "graph"):
        pass
