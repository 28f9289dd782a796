"""Texts per second of the text encoders, with one thread."""

from __future__ import annotations

import os
import time

import pyarrow.csv as csv

from benchmarks.measure import DATA, measure

TEXTS = 2_000
ENCODERS = ("static", "minilm")
GRAPHS = {"dblp-easy": "dblp-easy", "ansible-modules": "evolving/ansible-modules"}


def encode(encoder: str, folder: str) -> tuple[float, float, str]:
    """Return texts per second, the mean number of characters of a text, and the encoder's identity."""
    import torch

    from evergraph.inputs.encoders import load_encoder

    torch.set_num_threads(1)
    texts = csv.read_csv(DATA / folder / "nodes.csv.gz").column("text").to_pylist()
    chosen = [text or "" for text in texts[:: max(1, len(texts) // TEXTS)][:TEXTS]]
    loaded = load_encoder(encoder)
    loaded.encode(chosen[:64])  # compiles and allocates
    start = time.perf_counter()
    loaded.encode(chosen)
    return len(chosen) / (time.perf_counter() - start), sum(map(len, chosen)) / len(chosen), loaded.identity


def run() -> list[tuple[str, ...]]:
    os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    rows = []
    for graph, folder in GRAPHS.items():
        for encoder in ENCODERS:
            measured = measure(encode, encoder, folder, repeat=1, warm=False)
            rate, characters, identity = measured.result
            load = f"{os.getloadavg()[0]:.1f}"
            peak = f"{measured.peak_mb:,.0f} MB"
            rows.append((identity, graph, f"{characters:.0f}", f"{rate:,.0f}", peak, load))
    return rows


TITLE = f"Encoding {TEXTS:,} texts, one thread"
COLUMNS = ("encoder", "texts of", "characters per text", "texts per second", "peak memory", "load of the machine")
NOTE = (
    "Every n-th text of the graph. Loading the encoder and its first 64 texts are not included. The load is the mean "
    "number of processes that were running or waiting in the last minute."
)

if __name__ == "__main__":
    for line in [COLUMNS, *run()]:
        print(" | ".join(line))
