"""Time differences within the k-neighbourhood, and the history sizes that they suggest."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError

if TYPE_CHECKING:
    from scipy import sparse

__all__ = ["TimeDifferences", "TimedGraph", "tdiff"]

BATCHES = 32  # of a sample, for its jackknife
LONGEST_SPAN = 2**20  # a histogram of it is kept per thread and batch


class TimedGraph(Protocol):
    """What `tdiff` needs of a graph."""

    @property
    def adjacency(self) -> sparse.csr_array:
        """Symmetric, without diagonal, the columns of each row ascending."""

    @property
    def times(self) -> NDArray[np.integer]:
        """The time of each vertex, ascending."""


@dataclass(frozen=True, eq=False)
class TimeDifferences:
    """A multiset of time differences, as a histogram.

    Parameters
    ----------
    counts
        How often each difference occurs, from 0 up; in a sample, how often among the pairs of the sampled vertices.
    k
        Number of edges within which pairs of vertices are counted.
    symmetric
        Whether each pair of vertices is counted twice; otherwise only pairs of equal time are.
    sources
        Number of vertices from which pairs were searched.
    vertices
        Number of vertices in the graph.
    error
        For a sample, how far off the share of differences up to any one value may be: 1.96 standard errors of the
        cumulative distribution where they are largest. About 95 % of samples are no further off.
        None for an exact result.

    Examples
    --------
    >>> differences = TimeDifferences(np.array([4, 6, 2]), k=2, symmetric=False, sources=5, vertices=5)
    >>> differences.pairs
    12
    >>> differences.percentile(50)
    1.0
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
        """Size of the multiset over the whole graph; for a sample, its estimate."""
        total = int(self.counts.sum())
        return total if self.error is None else round(Fraction(total * self.vertices, self.sources))

    @property
    def distribution(self) -> NDArray[np.float64]:
        """Share of each difference, from 0 up.

        Raises
        ------
        InputError
            If there are no time differences.
        """
        return self.counts / self._total()

    def percentile(self, q: float) -> float:
        """Value below which `q` percent of the differences lie, interpolated as by `numpy.percentile`.

        Raises
        ------
        InputError
            If `q` is not within 0 and 100, or if there are no time differences.
        """
        return float(self._percentile(q))

    def history_sizes(self, levels: Iterable[int] = (25, 50, 75, 100)) -> dict[int, int]:
        """History sizes that cover these percentages of the differences: percentiles, rounded up, at least 1.

        Raises
        ------
        InputError
            As `percentile`: a graph without edges suggests no history size.
        """
        return {level: max(1, math.ceil(self._percentile(level))) for level in levels}

    def _percentile(self, q: float) -> Fraction:
        # Exact, for positions in large multisets are beyond floats, and rounding up must not see their dust.
        if not 0 <= q <= 100:
            raise InputError(f"{q} is not a percentage", fix="ask for a percentile from 0 to 100")
        position = Fraction(float(q)) * (self._total() - 1) / 100
        below, share = divmod(position, 1)
        first, second = np.searchsorted(self.counts.cumsum(), [below, math.ceil(position)], side="right").tolist()
        return first + (second - first) * share

    def _total(self) -> int:
        total = int(self.counts.sum())
        if total == 0:
            where = "the graph" if self.error is None else f"the sample of {self.sources:,} vertices"
            raise InputError(f"{where} has no time differences for want of edges", fix="give a history size yourself")
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

    The multiset is {time(u) - time(v) : u in V, v within `k` edges of u, v != u, time(v) <= time(u)}: pairs of vertices
    of equal time count twice, once from each end, others once. Its percentiles do not scale with the granularity of
    time, since coarser time turns pairs into ties, which then count double; those of the symmetric multiset do.

    Parameters
    ----------
    graph
        An `EvolvingGraph`, or anything with a symmetric `adjacency` and ascending `times`.
    k
        Number of edges, at least 1.
    symmetric
        Collect |time(u) - time(v)| from both ends of every pair instead.
    sample
        Search from so many vertices only, drawn without replacement; each pair belongs to the vertex that comes later
        in the graph. As many vertices as the graph has, or more, give the exact result.
    seed
        Of the sample.
    method
        How to search; all ways give the same result. ``"stamp"`` suits sparse graphs, ``"bits"`` dense ones and large
        `k`, and ``"auto"`` guesses the faster.

    Raises
    ------
    InputError
        If `k` or `sample` is less than 1, if there is no such `method`, or if the graph's times span more than
        1,048,576 units.

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
        raise InputError(f"k is {k}: a neighbourhood reaches at least one edge far", fix="give a k of 1 or more")
    if sample is not None and sample < 1:
        raise InputError(f"a sample of {sample} vertices says nothing", fix="sample at least one vertex, better 1,000")
    if method not in ("auto", "stamp", "bits"):
        raise InputError(f"there is no method '{method}'", fix="give 'auto', 'stamp' or 'bits'")
    n = len(graph.times)
    k = min(int(k), max(n, 1))  # no path is longer
    span = int(graph.times[-1]) - int(graph.times[0]) if n else 0
    if span >= LONGEST_SPAN:
        raise InputError(
            f"the times of the graph span {span:,} units, more than {LONGEST_SPAN:,}",
            fix="count time in larger units, such as days or years",
        )
    from evergraph.analysis import _pairs  # numba takes a while to load

    adjacency = graph.adjacency
    ascend = (graph.times[1:] >= graph.times[:-1]).all()
    arrays = _pairs.prepare(adjacency.indptr, adjacency.indices, graph.times)
    if not (ascend and _pairs.is_sound(arrays)):
        raise InputError("the graph's arrays are damaged", fix="check its folder with 'evergraph inspect --verify'")
    if not adjacency.has_sorted_indices:  # which scipy finds out by following the arrays, so not before they are sound
        adjacency = adjacency.sorted_indices()
        arrays = _pairs.prepare(adjacency.indptr, adjacency.indices, graph.times)
    exact = sample is None or sample >= n
    drawn = np.arange(n) if exact else np.random.default_rng(seed).choice(n, sample, replace=False)
    sources = drawn.astype(np.uint32)
    chosen = _pairs.choose(arrays, sources, k) if method == "auto" else method
    batches = [sources] if exact else np.array_split(sources, min(BATCHES, len(sources)))
    counts = _pairs.count(arrays, [np.sort(batch) for batch in batches], k, chosen)
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

    `left` is the share of vertices that were not drawn: the fewer, the smaller the error.
    """
    without = (counts.sum(axis=0) - counts).cumsum(axis=1)
    totals = without[:, -1:]
    if not totals.all():
        return 1.0  # one batch has all the pairs: nothing is known of how they vary
    variance = (without / totals).var(axis=0) * (len(counts) - 1) * left
    return min(1.0, 1.96 * math.sqrt(variance.max()))
