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
time difference. The number of threads is lowered rather than spending more than `MEMORY` bytes on it.

The threads are Python's: the kernels release the interpreter lock and share nothing but a queue of blocks of sources.
That leaves numba's own threading layers alone, of which one (workqueue) ends the process when two threads use it at
once and another (GNU OpenMP) when a forked child uses it. Sums of integers do not depend on their order, so neither do
the results on the number of threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["Arrays", "Method", "choose", "count", "prepare"]

Method = Literal["stamp", "bits"]

BLOCK = 256  # sources per block: four words of 64 bits, which the code of `_sweep` spells out
MEMORY = 512 * 2**20
PROBES = 32  # searches that `choose` runs to see how far they reach

# What an edge costs each sweep, and a vertex each block, in units of an edge that a search looks at (about 3 ns).
# Measured on graphs of 14 and 76 neighbours a vertex for k = 1 to 4; `benchmarks/bench_tdiff.py` shows both kernels.
SWEPT_EDGE = 1.2
SWEPT_VERTEX = 2.7

Vertices = NDArray[np.uint32]
Words = NDArray[np.uint64]
Counts = NDArray[np.int64]


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    kernel: Callable[..., Any] = numba.njit(cache=True, nogil=True)(function)
    return kernel


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


@_compiled
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


@_compiled
def _ones(word: np.uint64) -> np.int64:
    # LLVM knows this sum and makes one instruction of it.
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@_compiled
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


@_compiled
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
    stamp, queue, histogram = _stamp_state(arrays)
    visits = _stamp_block(*arrays, probes, k, stamp, queue, histogram)
    searching = visits / len(probes) * len(sources)
    # On average the last sweep ends half way; and there are no more of them than the graph is wide.
    sweeps = min(k, 10) - 1.5
    sweeping = -(-len(sources) // BLOCK) * (
        SWEPT_EDGE * sweeps * len(arrays.indices) + SWEPT_VERTEX * len(arrays.times)
    )
    return "stamp" if searching <= sweeping else "bits"


def count(arrays: Arrays, sources: Vertices, k: int, method: Method) -> Counts:
    """Count, by time difference, the pairs of a source and a vertex of lower index within `k` edges of it.

    Parameters
    ----------
    arrays
        From `prepare`.
    sources
        Vertices, ascending, each at most once.
    k
        Number of edges, at least 1.
    method
        Which kernel to use; both find the same.

    Returns
    -------
    Counts by time difference, from 0 to the graph's span.
    """
    kernel = {"stamp": _stamp_block, "bits": _bits_block}[method]
    new_state = {"stamp": _stamp_state, "bits": _bits_state}[method]
    blocks = deque(sources[i : i + BLOCK] for i in range(0, len(sources), BLOCK))
    per_thread = {"stamp": 8, "bits": 64}[method] * len(arrays.times) + 8 * (arrays.span + 1)
    most = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    threads = max(1, min(most, len(blocks), MEMORY // per_thread))

    def take() -> Vertices | None:
        try:
            return blocks.pop()  # from the end, where the blocks that look back furthest are
        except IndexError:
            return None

    def work() -> Counts:
        *state, histogram = new_state(arrays)
        while (block := take()) is not None:
            kernel(*arrays, block, k, *state, histogram)
        return histogram

    with ThreadPoolExecutor(threads) as pool:
        try:
            parts = [future.result() for future in [pool.submit(work) for _ in range(threads)]]
        except BaseException:  # an interrupt should not wait for the rest
            blocks.clear()
            raise
    return np.sum(parts, axis=0, dtype=np.int64)


def _stamp_state(arrays: Arrays) -> tuple[NDArray[Any], NDArray[Any], Counts]:
    n = len(arrays.times)
    return np.full(n, n, np.uint32), np.empty(n, np.uint32), np.zeros(arrays.span + 1, np.int64)


def _bits_state(arrays: Arrays) -> tuple[NDArray[Any], NDArray[Any], Counts]:
    n = len(arrays.times)
    return np.empty((n, 4), np.uint64), np.empty((n, 4), np.uint64), np.zeros(arrays.span + 1, np.int64)
