"""Encoders for tests: one without files and packages, and the folder of a small static table."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergraph.inputs.encoders import Encoder

WORDS = ("graph", "neural", "network", "text", "protein", "folding", "a", "of")


class Hashed(Encoder):
    """The sum of a pseudo-random vector for each word of a text."""

    def __init__(self, name: str = "hashed", width: int = 6) -> None:
        self.name, self.width, self.seen = name, width, list[str]()
        self.checksum = hashlib.sha256(f"{name} {width}".encode()).hexdigest()

    def encode_batch(self, texts: list[str]) -> np.ndarray[Any, Any]:
        self.seen += texts
        rows = []
        for text in texts:
            seeds = [int.from_bytes(hashlib.sha256(word.encode()).digest()[:4]) for word in text.split()]
            rows.append(np.sum([np.random.default_rng(seed).normal(size=self.width) for seed in seeds], axis=0))
        return np.array(rows)


def static_folder(folder: Path, *, seed: int = 0, **more: Any) -> Path:
    """Write a static table in the format of model2vec; ``more`` are further arrays of the file."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra text: pip install 'evergraph[text]'")
    from safetensors.numpy import save_file

    folder.mkdir()
    vocabulary = {word: row for row, word in enumerate(("[UNK]", *WORDS))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    table = np.random.default_rng(seed).normal(size=(len(vocabulary), 5)).astype(np.float32)
    save_file({"embeddings": table, **more}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    return folder
