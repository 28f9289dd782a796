"""Counting the vertex pairs within `k` edges of each other by their time difference.

Vertices are sorted by time, so a pair {u, v} with v < u has the time difference ``time(u) - time(v) >= 0`` and belongs
to the source u alone. Both kernels below count just these pairs, each once, and only differ in what they are good at:

``stamp``
    One breadth-first search per source. Its cost is the number of edges that the searches look at, hence it suits
    sparse graphs and small `k`.
``bits``
    One search for 256 sources at once: four words per vertex hold one bit per source, and a level is one sweep over
    all edges. Its cost does not depend on how large the neighbourhoods are, hence it suits dense graphs and `k` >= 3.

Memory per thread, whatever the number of pairs: 8 bytes (``stamp``) or 64 bytes (``bits``) per vertex, and 8 bytes per
time difference and batch. The number of threads is lowered rather than spending more than `MEMORY` bytes on it.

The threads are Python's (see `evergraph.compiled`) and share nothing but a queue of blocks of sources. Sums of integers
do not depend on their order, so neither do the results on the number of threads.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from evergraph.compiled import compiled

__all__ = ["Arrays", "Method", "choose", "count", "prepare"]

Method = Literal["stamp", "bits"]

BLOCK = 256  # sources per block: four words of 64 bits, which the code of `_sweep` spells out
MEMORY = 512 * 2**20
PROBES = 32  # searches that `choose` runs to see how far they reach

# What an edge costs each sweep, and a vertex each block, in units of an edge that a search looks at (2 to 3 ns).
# Measured on graphs of 14 and 76 neighbours a vertex for k = 1 to 4; `benchmarks/bench_tdiff.py` shows both kernels.
SWEPT_EDGE = 1.4
SWEPT_VERTEX = 3.0

Vertices = NDArray[np.uint32]
Words = NDArray[np.uint64]
Counts = NDArray[np.int64]


class Arrays(NamedTuple):
    """A graph as the kernels want it: read-only and unsigned, which spares each index a test for its sign."""

    indptr: Words
    indices: Vertices
    times: Vertices  # counted from the first vertex's

    @property
    def span(self) -> int:
        """The largest time difference there can be."""
        return int(self.times[-1]) if len(self.times) else 0


def prepare(indptr: NDArray[Any], indices: NDArray[Any], times: NDArray[Any]) -> Arrays:
    """Bring a symmetric adjacency (rows sorted, no diagonal) and ascending times into the kernels' types."""
    indices = np.ascontiguousarray(indices)
    arrays = Arrays(
        indptr=indptr.astype(np.uint64),
        indices=indices.view(np.uint32) if indices.itemsize == 4 else indices.astype(np.uint32),
        times=(times - times[:1]).astype(np.uint32),
    )
    for array in arrays:
        array.setflags(write=False)  # as memory maps are: one compiled version serves both
    return arrays


def is_sound(arrays: Arrays) -> bool:
    """Whether all indices lead somewhere; the kernels do not notice, and a damaged memory map would crash them."""
    indptr, indices, times = arrays
    return bool(
        len(indptr) == len(times) + 1
        and indptr[0] == 0
        and indptr[-1] == len(indices)
        and (indptr[1:] >= indptr[:-1]).all()
        and (not len(indices) or indices.max() < len(times))
    )


@compiled
def _stamp_block(
    indptr: Words,
    indices: Vertices,
    times: Vertices,
    sources: Vertices,
    k: int,
    stamp: Vertices,
    queue: Vertices,
    histogram: Counts,
) -> np.int64:
    visits = np.int64(0)
    for u in sources:
        now = times[u]
        stamp[u] = u
        queue[0] = u
        head, tail = 0, 1
        for _ in range(1, k):
            if head == tail:
                break
            end = tail
            for i in range(head, end):
                v = queue[i]
                visits += np.int64(indptr[v + 1] - indptr[v])
                for e in range(indptr[v], indptr[v + 1]):
                    w = indices[e]
                    if stamp[w] != u:
                        stamp[w] = u
                        queue[tail] = w
                        tail += 1
                        if w < u:
                            histogram[now - times[w]] += 1
            head = end
        # From the last level nothing goes on, so later vertices, which others count, need not be looked at.
        for i in range(head, tail):
            v = queue[i]
            for e in range(indptr[v], indptr[v + 1]):
                w = indices[e]
                if w >= u:
                    break
                visits += 1
                if stamp[w] != u:
                    stamp[w] = u
                    histogram[now - times[w]] += 1
    return visits


@compiled
def _ones(word: np.uint64) -> np.int64:
    # LLVM knows this sum and makes one instruction of it.
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def _sweep(indptr: Words, indices: Vertices, reached: Words, further: Words, rows: int) -> bool:
    changed = False
    for v in range(rows):
        a, b, c, d = reached[v, 0], reached[v, 1], reached[v, 2], reached[v, 3]
        for e in range(indptr[v], indptr[v + 1]):
            w = indices[e]
            a |= reached[w, 0]
            b |= reached[w, 1]
            c |= reached[w, 2]
            d |= reached[w, 3]
            # Leaving early pays for large k; for all k it stops LLVM from gathering words of several neighbours into
            # one register, which takes twice as long.
            if a & b & c & d == np.uint64(0xFFFFFFFFFFFFFFFF):
                break
        changed |= (a ^ reached[v, 0]) | (b ^ reached[v, 1]) | (c ^ reached[v, 2]) | (d ^ reached[v, 3]) != 0
        further[v, 0], further[v, 1], further[v, 2], further[v, 3] = a, b, c, d
    return changed


@compiled
def _bits_block(
    indptr: Words,
    indices: Vertices,
    times: Vertices,
    sources: Vertices,
    k: int,
    reached: Words,
    further: Words,
    histogram: Counts,
) -> None:
    n, m = len(times), len(sources)
    one = np.uint64(1)
    reached[:] = 0
    for i in range(m):
        u = sources[i]
        bit = one << np.uint64(i % 64)
        reached[u, i // 64] |= bit
        for e in range(indptr[u], indptr[u + 1]):
            reached[indices[e], i // 64] |= bit
    last = np.int64(sources[m - 1])
    for level in range(2, k + 1):
        # As in a single search, what the last level finds only matters before the sources.
        if not _sweep(indptr, indices, reached, further, n if level < k else last):
            break
        reached, further = further, reached
    begin = 0  # the first source after v
    for v in range(last):
        while sources[begin] <= v:
            begin += 1
        for j in range(begin // 64, (m + 63) // 64):
            word = reached[v, j]
            if j == begin // 64:
                word &= ~np.uint64(0) << np.uint64(begin % 64)
            youngest = times[sources[min(64 * j + 63, m - 1)]]
            if times[sources[64 * j]] == youngest:
                histogram[youngest - times[v]] += _ones(word)
            else:
                while word != 0:
                    rest = word & (word - one)
                    i = 64 * j + _ones((word ^ rest) - one)
                    histogram[times[sources[i]] - times[v]] += 1
                    word = rest


def choose(arrays: Arrays, sources: Vertices, k: int) -> Method:
    """Guess the faster method, by counting the edges that a few of the searches look at."""
    if k == 1 or not len(sources):
        return "stamp"
    probes = np.ascontiguousarray(sources[:: -(-len(sources) // PROBES)])
    visits = _stamp_block(*arrays, probes, k, *_stamp_state(arrays), np.zeros(arrays.span + 1, np.int64))
    searching = visits / len(probes) * len(sources)
    # On average the last sweep ends half way; and there are no more of them than the graph is wide.
    sweeps = min(k, 10) - 1.5
    sweeping = -(-len(sources) // BLOCK) * (
        SWEPT_EDGE * sweeps * len(arrays.indices) + SWEPT_VERTEX * len(arrays.times)
    )
    return "stamp" if searching <= sweeping else "bits"


def count(arrays: Arrays, batches: Sequence[Vertices], k: int, method: Method) -> Counts:
    """Count, by time difference, the pairs of a source and a vertex of lower index within `k` edges of it.

    Parameters
    ----------
    arrays
        From `prepare`.
    batches
        Sources whose pairs are counted together: vertices, ascending, each at most once.
    k
        Number of edges, at least 1.
    method
        Which kernel to use; both find the same.

    Returns
    -------
    For each batch, counts by time difference, from 0 to the graph's span.
    """
    kernel = {"stamp": _stamp_block, "bits": _bits_block}[method]
    new_state = {"stamp": _stamp_state, "bits": _bits_state}[method]
    if method == "stamp" and k > 1:
        batches = [_by_first_neighbour(arrays, batch) for batch in batches]
    blocks = deque((i, batch[j : j + BLOCK]) for i, batch in enumerate(batches) for j in range(0, len(batch), BLOCK))
    shape = len(batches), arrays.span + 1
    per_thread = {"stamp": 8, "bits": 64}[method] * len(arrays.times) + 8 * math.prod(shape)
    most = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    threads = max(1, min(most, len(blocks), MEMORY // per_thread))

    def work() -> Counts:
        state, histograms = new_state(arrays), np.zeros(shape, np.int64)
        while True:
            try:
                batch, block = blocks.popleft()
            except IndexError:
                return histograms
            kernel(*arrays, block, k, *state, histograms[batch])

    with ThreadPoolExecutor(threads) as pool:
        try:
            parts = [future.result() for future in [pool.submit(work) for _ in range(threads)]]
        except BaseException:  # an interrupt should not wait for the rest
            blocks.clear()
            raise
    return np.sum(parts, axis=0, dtype=np.int64)


def _by_first_neighbour(arrays: Arrays, sources: Vertices) -> Vertices:
    """Put sources next to each other that look at the same rows of the graph, which are then still in the cache."""
    if not len(arrays.indices):
        return sources
    first = arrays.indices[np.minimum(arrays.indptr[sources], len(arrays.indices) - 1)]
    # As 16 bits, for which numpy has a radix sort.
    place = np.minimum(first, sources).astype(np.uint64) * 2**16 // len(arrays.times)
    return sources[np.argsort(place.astype(np.uint16), kind="stable")]


def _stamp_state(arrays: Arrays) -> tuple[Vertices, Vertices]:
    n = len(arrays.times)
    return np.full(n, n, np.uint32), np.empty(n, np.uint32)


def _bits_state(arrays: Arrays) -> tuple[Words, Words]:
    n = len(arrays.times)
    return np.empty((n, BLOCK // 64), np.uint64), np.empty((n, BLOCK // 64), np.uint64)
