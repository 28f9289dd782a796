"""Time differences within the k-neighbourhood, and the history sizes that they suggest.

Vertices are sorted by time, so a pair {u, v} with v < u has the time difference ``time(u) - time(v) >= 0`` and belongs
to the source u alone. Two compiled kernels count these pairs, each once:

``stamp``
    One breadth-first search per source. Its cost is the number of edges visited, so it suits sparse graphs and small
    `k`. It takes 8 bytes per vertex.
``bits``
    One search for 256 sources at once: four words per vertex hold one bit per source, and a level is one sweep over all
    edges. Its cost does not depend on the size of the neighbourhoods, so it suits dense graphs and `k` >= 3. It takes
    64 bytes per vertex.

Threads (see `evergraph.compiled`) share only a queue of blocks of sources; results do not depend on their number. There
are fewer threads rather than more than `MEMORY` bytes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from evergraph.compiled import compiled
from evergraph.errors import InputError

if TYPE_CHECKING:
    from scipy import sparse

__all__ = ["TimeDifferences", "TimedGraph", "tdiff"]

BATCHES = 32  # of a sample, for its jackknife
LONGEST_SPAN = 2**20  # each thread keeps a histogram of this length per batch
BLOCK = 256  # sources per block: four words of 64 bits, as `_sweep` is written
MEMORY = 512 * 2**20
PROBES = 32  # searches that `_choose` runs to estimate their cost

# Cost of an edge per sweep and of a vertex per block, relative to an edge visited by a search (2 to 3 ns).
# Measured on graphs of 14 and 76 neighbours per vertex for k = 1 to 4, see `benchmarks/bench_tdiff.py`.
SWEPT_EDGE = 1.4
SWEPT_VERTEX = 3.0

Method = Literal["stamp", "bits"]
Vertices = NDArray[np.uint32]
Words = NDArray[np.uint64]
Counts = NDArray[np.int64]


class TimedGraph(Protocol):
    """What `tdiff` needs of a graph."""

    @property
    def adjacency(self) -> sparse.csr_array:
        """Symmetric, without diagonal, the columns of each row ascending."""

    @property
    def times(self) -> NDArray[np.integer]:
        """Time of each vertex, ascending."""


@dataclass(frozen=True, eq=False)
class TimeDifferences:
    """A multiset of time differences, as a histogram.

    Parameters
    ----------
    counts
        Number of occurrences of each difference, from 0 up; in a sample, among the pairs of the sampled vertices.
    k
        Number of edges within which pairs of vertices are counted.
    symmetric
        Whether each pair of vertices is counted twice; otherwise only pairs of equal time are.
    sources
        Number of vertices from which pairs were searched.
    vertices
        Number of vertices in the graph.
    error
        For a sample, the error of the share of differences up to any value: 1.96 standard errors of the cumulative
        distribution where they are largest, which covers about 95 % of samples. None for an exact result.

    Examples
    --------
    >>> differences = TimeDifferences(np.array([4, 6, 2]), k=2, symmetric=False, sources=5, vertices=5)
    >>> differences.pairs, differences.percentile(50)
    (12, 1.0)
    >>> differences.history_sizes()
    {25: 1, 50: 1, 75: 1, 100: 2}
    """

    counts: NDArray[np.int64]
    k: int
    symmetric: bool
    sources: int
    vertices: int
    error: float | None = None

    @property
    def pairs(self) -> int:
        """Size of the multiset over the whole graph; estimated for a sample."""
        total = int(self.counts.sum())
        return total if self.error is None else round(Fraction(total * self.vertices, self.sources))

    @property
    def distribution(self) -> NDArray[np.float64]:
        """Share of each difference, from 0 up; without time differences an `InputError`."""
        return self.counts / self._total()

    def percentile(self, q: float) -> float:
        """Return the value below which `q` percent (0 to 100) of the differences lie, as `numpy.percentile` does.

        Raises an `InputError` if there are no time differences.
        """
        return float(self._percentile(q))

    def history_sizes(self, levels: Iterable[int] = (25, 50, 75, 100)) -> dict[int, int]:
        """Return the history sizes that cover these percentages of the differences: rounded up, at least 1.

        Raises an `InputError` if there are no time differences.
        """
        return {level: max(1, math.ceil(self._percentile(level))) for level in levels}

    def _percentile(self, q: float) -> Fraction:
        # Exact, because positions in large multisets exceed the precision of floats, and rounding up amplifies errors.
        if not 0 <= q <= 100:
            raise InputError(f"{q} is not a percentage", fix="give a percentile from 0 to 100")
        position = Fraction(float(q)) * (self._total() - 1) / 100
        below, share = divmod(position, 1)
        first, second = np.searchsorted(self.counts.cumsum(), [below, math.ceil(position)], side="right").tolist()
        return first + (second - first) * share

    def _total(self) -> int:
        total = int(self.counts.sum())
        if total == 0:
            where = "the graph" if self.error is None else f"the sample of {self.sources:,} vertices"
            raise InputError(f"{where} has no time differences, because it has no edges", fix="choose a history size")
        return total


def tdiff(
    graph: TimedGraph,
    k: int = 2,
    *,
    symmetric: bool = False,
    sample: int | None = None,
    seed: int = 0,
    method: Literal["auto", "stamp", "bits"] = "auto",
) -> TimeDifferences:
    """Collect the time differences between each vertex and the vertices within `k` edges of it.

    The multiset is {time(u) - time(v) : u in V, v within `k` edges of u, v != u, time(v) <= time(u)}. Pairs of vertices
    of equal time count twice, once from each end, others once. So percentiles do not scale with the granularity of
    time: coarser time makes more pairs equal, which then count twice. Those of the symmetric multiset do scale.

    Parameters
    ----------
    graph
        An `EvolvingGraph`, or anything with a symmetric `adjacency` and ascending `times`.
    k
        Number of edges, at least 1.
    symmetric
        Collect |time(u) - time(v)| from both ends of every pair instead.
    sample
        Search from this many vertices only, drawn without replacement; each pair belongs to the vertex that is later in
        the graph. A sample of all vertices gives the exact result.
    seed
        Seed of the sample.
    method
        Kernel; all give the same result. ``"stamp"`` suits sparse graphs, ``"bits"`` dense ones and large `k`, and
        ``"auto"`` estimates the faster.

    Raises
    ------
    InputError
        If `k` or `sample` is less than 1, if there is no such `method`, or if the graph's times span more than
        1,048,576 periods.

    Examples
    --------
    A cycle of five vertices:

    >>> from types import SimpleNamespace
    >>> from scipy.sparse import csr_array
    >>> cycle = csr_array(
    ...     [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1], [1, 0, 0, 1, 0]]
    ... )
    >>> differences = tdiff(SimpleNamespace(adjacency=cycle, times=np.array([1, 1, 2, 2, 3])), k=2)
    >>> differences.counts
    array([4, 6, 2])
    >>> differences.history_sizes([50, 100])
    {50: 1, 100: 2}
    """
    if not isinstance(k, (int, np.integer)) or k < 1:
        raise InputError(f"k is {k}, but a neighbourhood has at least one edge", fix="give a k of 1 or more")
    if sample is not None and sample < 1:
        raise InputError(f"the sample has {sample} vertices", fix="sample at least one vertex, better 1,000")
    if method not in ("auto", "stamp", "bits"):
        raise InputError(f"there is no method '{method}'", fix="give 'auto', 'stamp' or 'bits'")
    n = len(graph.times)
    k = min(int(k), max(n, 1))  # no path is longer
    span = int(graph.times[-1]) - int(graph.times[0]) if n else 0
    if span >= LONGEST_SPAN:
        raise InputError(
            f"the times of the graph span {span:,} periods, more than {LONGEST_SPAN:,}",
            fix="count time in larger units, such as days or years",
        )
    adjacency = graph.adjacency
    ascend = (graph.times[1:] >= graph.times[:-1]).all()
    arrays = _prepare(adjacency.indptr, adjacency.indices, graph.times)
    if not (ascend and _is_sound(arrays)):
        raise InputError("the graph's arrays are damaged", fix="check its folder with 'evergraph inspect --verify'")
    if not adjacency.has_sorted_indices:  # scipy follows the arrays to find out, so only after they are checked
        adjacency = adjacency.sorted_indices()
        arrays = _prepare(adjacency.indptr, adjacency.indices, graph.times)
    exact = sample is None or sample >= n
    drawn = np.arange(n) if exact else np.random.default_rng(seed).choice(n, sample, replace=False)
    sources = drawn.astype(np.uint32)
    chosen = _choose(arrays, sources, k) if method == "auto" else method
    batches = [sources] if exact else np.array_split(sources, min(BATCHES, len(sources)))
    counts = _count(arrays, [np.sort(batch) for batch in batches], k, chosen)
    if symmetric:
        counts *= 2
    else:
        counts[:, 0] *= 2
    total = counts.sum(axis=0)
    total.setflags(write=False)
    return TimeDifferences(
        counts=total,
        k=k,
        symmetric=symmetric,
        sources=len(sources),
        vertices=n,
        error=None if exact else _error(counts, left=1 - len(sources) / n),
    )


def _error(counts: NDArray[np.int64], left: float) -> float:
    """1.96 standard errors of the cumulative distribution, by leaving out one batch (row) at a time.

    `left` is the share of vertices that were not drawn.
    """
    without = (counts.sum(axis=0) - counts).cumsum(axis=1)
    totals = without[:, -1:]
    if not totals.all():
        return 1.0  # one batch has all the pairs, so their variance is unknown
    variance = (without / totals).var(axis=0) * (len(counts) - 1) * left
    return min(1.0, 1.96 * math.sqrt(variance.max()))


# --- counting ---------------------------------------------------------------------------------------------------------


class _Arrays(NamedTuple):
    """A graph for the kernels: read-only and unsigned, which saves a sign test per index."""

    indptr: Words
    indices: Vertices
    times: Vertices  # relative to the first vertex

    @property
    def span(self) -> int:
        return int(self.times[-1]) if len(self.times) else 0


def _prepare(indptr: NDArray[Any], indices: NDArray[Any], times: NDArray[Any]) -> _Arrays:
    indices = np.ascontiguousarray(indices)
    arrays = _Arrays(
        indptr=indptr.astype(np.uint64),
        indices=indices.view(np.uint32) if indices.itemsize == 4 else indices.astype(np.uint32),
        times=(times - times[:1]).astype(np.uint32),
    )
    for array in arrays:
        array.setflags(write=False)  # as memory maps are, so that one compiled version serves both
    return arrays


def _is_sound(arrays: _Arrays) -> bool:
    """Whether all indices are in range. The kernels do not check, and a damaged memory map would crash them."""
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
        # The last level is not expanded, so later vertices, which other sources count, can be skipped.
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
    # LLVM compiles this sum to one instruction.
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
            # An early exit pays for large k. For all k it keeps LLVM from gathering words of several neighbours into
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
        # As in a single search, only vertices before the sources matter in the last level.
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


def _choose(arrays: _Arrays, sources: Vertices, k: int) -> Method:
    """Estimate the faster method from the edges that a few searches visit."""
    if k == 1 or not len(sources):
        return "stamp"
    probes = np.ascontiguousarray(sources[:: -(-len(sources) // PROBES)])
    visits = _stamp_block(*arrays, probes, k, *_state(arrays, "stamp"), np.zeros(arrays.span + 1, np.int64))
    searching = visits / len(probes) * len(sources)
    # On average the last sweep ends half way; and there are no more sweeps than the graph is wide.
    sweeps = min(k, 10) - 1.5
    sweeping = -(-len(sources) // BLOCK) * (
        SWEPT_EDGE * sweeps * len(arrays.indices) + SWEPT_VERTEX * len(arrays.times)
    )
    return "stamp" if searching <= sweeping else "bits"


def _count(arrays: _Arrays, batches: Sequence[Vertices], k: int, method: Method) -> Counts:
    """Count the pairs of a source and a lower vertex within `k` edges: one row of counts by difference per batch.

    Batches hold ascending vertices, each at most once.
    """
    kernel = {"stamp": _stamp_block, "bits": _bits_block}[method]
    if method == "stamp" and k > 1:
        batches = [_by_first_neighbour(arrays, batch) for batch in batches]
    blocks = deque((i, batch[j : j + BLOCK]) for i, batch in enumerate(batches) for j in range(0, len(batch), BLOCK))
    shape = len(batches), arrays.span + 1
    per_thread = {"stamp": 8, "bits": 64}[method] * len(arrays.times) + 8 * math.prod(shape)
    most = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    threads = max(1, min(most, len(blocks), MEMORY // per_thread))

    def work() -> Counts:
        state, histograms = _state(arrays, method), np.zeros(shape, np.int64)
        while True:
            try:
                batch, block = blocks.popleft()
            except IndexError:
                return histograms
            kernel(*arrays, block, k, *state, histograms[batch])

    with ThreadPoolExecutor(threads) as pool:
        try:
            parts = [future.result() for future in [pool.submit(work) for _ in range(threads)]]
        except BaseException:  # an interrupt must not wait for the rest
            blocks.clear()
            raise
    return np.sum(parts, axis=0, dtype=np.int64)


def _by_first_neighbour(arrays: _Arrays, sources: Vertices) -> Vertices:
    """Order sources so that those that visit the same rows follow each other, while the rows are in the cache."""
    if not len(arrays.indices):
        return sources
    first = arrays.indices[np.minimum(arrays.indptr[sources], len(arrays.indices) - 1)]
    # 16 bits, for which numpy has a radix sort.
    place = np.minimum(first, sources).astype(np.uint64) * 2**16 // len(arrays.times)
    return sources[np.argsort(place.astype(np.uint16), kind="stable")]


def _state(arrays: _Arrays, method: Method) -> tuple[NDArray[Any], NDArray[Any]]:
    n = len(arrays.times)
    if method == "stamp":
        return np.full(n, n, np.uint32), np.empty(n, np.uint32)
    return np.empty((n, BLOCK // 64), np.uint64), np.empty((n, BLOCK // 64), np.uint64)
