"""Encoders in commands: import, encode, ws init and ws add."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergraph
from evergraph import names
from evergraph.inputs import encoding
from evergraph.workspace import Workspace
from tests.encoders import Hashed

Command = Callable[..., tuple[int, str, str]]
ROWS = 24


class Wider(Hashed):
    def __init__(self) -> None:
        super().__init__("wider", 9)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Register two encoders, encode few texts at a time, and write tables."""
    monkeypatch.setitem(names.ENCODERS, "hashed", "tests.encoders:Hashed")
    monkeypatch.setitem(names.ENCODERS, "wider", "tests.cli.test_encode:Wider")
    monkeypatch.setattr(encoding, "_PART", 5)
    monkeypatch.chdir(tmp_path)
    write("vertices.csv", range(ROWS))
    write("more.csv", range(ROWS, ROWS + 3))
    edges = "".join(f"v{row},v{row - 1}\n" for row in range(1, ROWS))
    Path("edges.csv").write_text(f"source,target\n{edges}")


def text_of(row: int) -> str:
    return f"graph {row} of kind {row % 2}" if row % 7 else ""


def write(path: str, rows: range) -> None:
    lines = (f"v{row},{2000 + row // 8},class {row % 2},{text_of(row)}\n" for row in rows)
    Path(path).write_text("id,time,label,text\n" + "".join(lines))


def expected(*rows: int) -> np.ndarray[Any, Any]:
    return Hashed().encode([text_of(row) for row in range(*rows)])


TABLES = ("import", "tables", "--vertices", "vertices.csv", "--edges", "edges.csv", "--out", "graph")
INIT = ("ws", "init", "ws", "--vertices", "vertices.csv", "--edges", "edges.csv", "--steps", 2)


def test_an_import_stores_vectors_and_their_encoder(command: Command) -> None:
    assert command(*TABLES, "--encoder", "hashed")[0] == 0
    vectors = evergraph.load("graph").features.vectors
    assert vectors is not None
    assert vectors.encoder == Hashed().identity
    np.testing.assert_array_equal(vectors.values, expected(ROWS))
    assert not list(Path().glob("*.encoding"))


def test_a_graph_is_encoded_later_and_again(command: Command) -> None:
    command(*TABLES)
    plain = evergraph.load("graph")
    assert plain.features.vectors is None
    code, out, _ = command("encode", "graph", "--encoder", "hashed")
    assert (code, f"{ROWS} vectors of 6 columns by {Hashed().identity}" in out) == (0, True)
    np.testing.assert_array_equal(evergraph.load("graph").features.vectors.values, expected(ROWS))
    code, out, _ = command("encode", "graph", "--encoder", "wider", "--json")
    assert json.loads(out)["encoder"] == Wider().identity
    found = evergraph.load("graph")
    assert found.features.vectors.width == 9
    assert list(found.features.texts) == [text_of(row) for row in range(ROWS)]
    assert (found.features.words.matrix != plain.features.words.matrix).nnz == 0


@pytest.mark.parametrize("words", [TABLES, INIT])
def test_an_interrupted_encoding_continues(
    words: tuple[object, ...], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = Hashed.encode_batch, list[str]()

    def interrupted(self: Hashed, texts: list[str]) -> np.ndarray[Any, Any]:
        if len(seen) > 11:
            raise KeyboardInterrupt
        seen.extend(texts)
        return real(self, texts)

    monkeypatch.setattr(Hashed, "encode_batch", interrupted)
    code, _, err = command(*words, "--encoder", "hashed")
    assert (code, "Interrupted" in err) == (130, True)
    assert not Path("graph").exists()
    before = set(seen)
    assert before
    seen.clear()
    monkeypatch.setattr(Hashed, "encode_batch", lambda self, texts: seen.extend(texts) or real(self, texts))
    assert command(*words, "--encoder", "hashed")[0] == 0
    assert before.isdisjoint(seen)
    assert not list(Path().glob("*.encoding"))


def test_what_cannot_be_encoded_is_refused_and_changes_nothing(command: Command) -> None:
    code, _, err = command(*TABLES, "--encoder", "statik")
    assert (code, "did you mean 'static'?" in err) == (2, True)
    code, _, err = command(*TABLES, "--text", "", "--encoder", "hashed")
    assert (code, "no texts to encode" in err) == (2, True)
    assert not Path("graph").exists()
    command(*INIT)
    code, _, err = command(*INIT, "--encoder", "hashed")
    assert (code, "a workspace already" in err) == (2, True)
    code, _, err = command("encode", "ws", "--encoder", "hashed")
    assert (code, "this is a workspace, not a graph" in err) == (2, True)
    assert not list(Path().glob("*.encoding"))


def test_a_workspace_encodes_new_slices(command: Command) -> None:
    assert command(*INIT, "--encoder", "hashed")[0] == 0
    add = ("ws", "add", "ws", "--vertices", "more.csv")
    code, _, err = command(*add, "--encoder", "wider")
    assert code == 2
    assert Hashed().identity in err
    assert Wider().identity in err
    code, _, err = command(*add)
    assert code == 0, err
    vectors = Workspace("ws").graph.features.vectors
    assert (vectors.encoder, len(vectors)) == (Hashed().identity, ROWS + 3)
    np.testing.assert_array_equal(vectors.values[ROWS:], expected(ROWS, ROWS + 3))
    assert command("ws", "verify", "ws")[0] == 0
    assert command("ws", "rollback", "ws", 1)[0] == 0
    np.testing.assert_array_equal(Workspace("ws").graph.features.vectors.values, expected(ROWS))
    assert not list(Path().glob("*.encoding"))


def test_a_workspace_whose_encoder_is_gone_says_so(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command(*INIT, "--encoder", "hashed")
    monkeypatch.delitem(names.ENCODERS, "hashed")
    code, _, err = command("ws", "add", "ws", "--vertices", "more.csv")
    assert code == 2
    assert f"from the encoder {Hashed().identity}" in err
    assert Workspace("ws").state.version == 1


def test_a_workspace_without_vectors_refuses_an_encoder(command: Command) -> None:
    command(*INIT)
    code, _, err = command("ws", "add", "ws", "--vertices", "more.csv", "--encoder", "hashed")
    assert (code, "the vertices of the workspace have no vectors" in err) == (2, True)
    assert command("ws", "add", "ws", "--vertices", "more.csv")[0] == 0
