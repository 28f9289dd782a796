"""Encode the texts of a graph: vectors are written to disk part by part, so that an interrupted encoding continues."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import Vectors
from evergraph.graph.texts import Texts
from evergraph.inputs.encoders import Encoder, load_encoder
from evergraph.storage.files import disk_errors, locked, refuse_link, write_atomic

__all__ = ["OnEncoded", "encode_graph", "encoded", "encoded_graph"]

OnEncoded = Callable[[int, int, float], None]
"""Called with the number of texts done, the number of all texts, and how many are encoded per second."""

_PART = 2_000  # texts; the slowest encoder takes less than a minute for them
_DIGEST = hashlib.sha256().digest_size


def encode_graph(graph: EvolvingGraph, encoder: str | Path | Encoder) -> EvolvingGraph:
    """Return the graph with a vector for each text, in memory; vectors that it has are replaced.

    Parameters
    ----------
    graph
        A graph with texts.
    encoder
        Name, folder or encoder, as for `load_encoder`.
    """
    encoder, texts = load_encoder(encoder), _texts(graph)
    return _with_vectors(graph, encoder.encode(texts[:]), encoder)


@contextmanager
def encoded_graph(
    graph: EvolvingGraph, encoder: str | Path | Encoder, beside: Path, on_encoded: OnEncoded | None = None
) -> Iterator[EvolvingGraph]:
    """Yield the graph with vectors of its texts, to be saved or used before the block ends; see `encoded`."""
    encoder, texts = load_encoder(encoder), _texts(graph)
    with encoded(texts, encoder, beside, on_encoded) as vectors:
        yield _with_vectors(graph, vectors, encoder)


def _texts(graph: EvolvingGraph) -> Texts:
    if (texts := graph.features.texts) is None:
        raise InputError("the graph has no texts to encode", fix="import it again, with a column of texts")
    return texts


def _with_vectors(graph: EvolvingGraph, vectors: NDArray[np.float32], encoder: Encoder) -> EvolvingGraph:
    return replace(graph, features=replace(graph.features, vectors=Vectors(vectors, encoder.identity)))


@contextmanager
def encoded(
    texts: Texts | Sequence[str], encoder: Encoder, beside: Path, on_encoded: OnEncoded | None = None
) -> Iterator[NDArray[np.float32]]:
    """Yield the vectors of texts as a memory map, which is gone when the block has ended.

    Parameters
    ----------
    texts
        One text per vertex.
    encoder
        See `load_encoder`.
    beside
        The folder that will contain the vectors. Finished parts are kept in ``NAME.encoding`` beside it, and deleted
        when the block ends without an error. Until then the same texts are not encoded again.
    on_encoded
        Called after each batch.
    """
    beside = beside.resolve()
    folder = beside.with_name(f"{beside.name}.encoding")
    problem = "the vectors of the texts could not be stored"
    with disk_errors(folder, problem):
        refuse_link(folder)
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, "encoding"):
        with disk_errors(folder, problem):
            vectors = _encode(texts, encoder, folder, on_encoded)
        yield vectors
        shutil.rmtree(folder, ignore_errors=True)


def _encode(
    texts: Texts | Sequence[str], encoder: Encoder, folder: Path, on_encoded: OnEncoded | None
) -> NDArray[np.float32]:
    path, shape = folder / "vectors.npy", (len(texts), encoder.width)
    path.unlink(missing_ok=True)
    vectors: NDArray[Any] = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    begin, new = time.monotonic(), 0
    for start in range(0, len(texts), _PART):
        part = list(texts[start : start + _PART])
        name = folder / hashlib.sha256(json.dumps([encoder.checksum, *part]).encode()).hexdigest()
        found = _stored(name, (len(part), encoder.width))
        if found is None:

            def done(count: int, start: int = start, before: int = new) -> None:
                if on_encoded is not None:
                    seconds = max(time.monotonic() - begin, 1e-6)
                    on_encoded(start + count, len(texts), (before + count) / seconds)

            found = encoder.encode(part, done)
            data = found.astype("<f4").tobytes()
            write_atomic(name, hashlib.sha256(data).digest() + data)
            new += len(part)
        vectors[start : start + len(part)] = found
    vectors.flags.writeable = False
    return vectors.view(np.ndarray)


def _stored(path: Path, shape: tuple[int, int]) -> NDArray[Any] | None:
    """Return the vectors of a finished part; None if there is none, or if it is damaged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    digest, data = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(data).digest() != digest or len(data) != 4 * shape[0] * shape[1]:
        return None
    return np.frombuffer(data, "<f4").reshape(shape)
