from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from collections import deque
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from evergraph.analysis.time_differences import TimeDifferences, tdiff
from evergraph.datasets import read_tables
from evergraph.errors import InputError

METHODS = ["stamp", "bits"]
LEVELS = [0, 10, 25, 33.3, 50, 75, 90, 99.9, 100]
exhaustive = settings(max_examples=40, deadline=None)  # the first call may compile


@dataclass
class Graph:
    adjacency: sparse.csr_array
    times: np.ndarray


def make(n, edges, times):
    edges = np.array([(u, v) for u, v in edges if u != v], int).reshape(-1, 2)
    both = np.concatenate([edges, edges[:, ::-1]])
    adjacency = sparse.coo_array((np.ones(len(both), np.int32), both.T), (n, n)).tocsr()
    adjacency.sum_duplicates()
    adjacency.data[:] = 1
    return Graph(adjacency, np.asarray(times))


def random_graph(seed, n, degree, span):
    rng = np.random.default_rng(seed)
    return make(n, rng.integers(0, n, (n * degree // 2, 2)), np.sort(rng.integers(2000, 2000 + span, n)))


@st.composite
def graphs(draw, most=14):
    n = draw(st.integers(1, most))
    vertex = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(vertex, vertex), max_size=2 * n))
    times = draw(st.lists(st.integers(-40, 40) | st.sampled_from([0, 1, 30]), min_size=n, max_size=n))
    return make(n, edges, sorted(times))


def ordered_pairs(graph, k):
    """All (u, v) with v != u at most k edges from u, by searches."""
    rows = np.split(graph.adjacency.indices, graph.adjacency.indptr[1:-1])
    pairs = []
    for u in range(len(graph.times)):
        distance = {u: 0}
        queue = deque([u])
        while queue:
            v = queue.popleft()
            if distance[v] < k:
                for w in rows[v].tolist():
                    if w not in distance:
                        distance[w] = distance[v] + 1
                        queue.append(w)
        pairs += [(u, v) for v in distance if v != u]
    return pairs


def by_definition(graph, k, symmetric):
    times = graph.times.tolist()
    differences = [times[u] - times[v] for u, v in ordered_pairs(graph, k)]
    kept = [abs(d) for d in differences] if symmetric else [d for d in differences if d >= 0]
    return np.bincount(np.array(kept, int), minlength=times[-1] - times[0] + 1)


def exact(counts):
    return TimeDifferences(np.asarray(counts), k=2, symmetric=False, sources=9, vertices=9)


# The multiset


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("symmetric", [False, True])
@given(graph=graphs(), k=st.integers(1, 4))
@exhaustive
def test_is_the_definition(method, symmetric, graph, k):
    found = tdiff(graph, k, symmetric=symmetric, method=method)
    np.testing.assert_array_equal(found.counts, by_definition(graph, k, symmetric))
    assert found.error is None
    assert found.pairs == found.counts.sum()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("n", "degree", "span"), [(700, 3, 4), (600, 12, 300), (257, 2, 1), (1100, 1, 40)])
def test_is_the_definition_over_several_blocks(method, n, degree, span):
    """Several blocks of sources, partial words, words of one time and of many."""
    graph = random_graph(n, n, degree, span)
    for k in (1, 2, 3):
        np.testing.assert_array_equal(tdiff(graph, k, method=method).counts, by_definition(graph, k, False))


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_is_what_powers_of_the_adjacency_reach(method):
    graph = random_graph(5, 900, 5, 12)
    near = graph.adjacency + sparse.eye_array(900, dtype=np.int32, format="csr")
    reached = near
    for k in (2, 3):
        reached = reached @ near
        u, v = sparse.tril(reached, -1).nonzero()
        expected = np.bincount(graph.times[u] - graph.times[v], minlength=12)
        expected[0] *= 2
        found = tdiff(graph, k, method=method).counts
        np.testing.assert_array_equal(found, expected[: len(found)])


@pytest.mark.parametrize("method", METHODS)
def test_five_cycle(method):
    cycle = make(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)], [1, 1, 2, 2, 3])
    found = tdiff(cycle, k=2, method=method)
    assert found.counts.tolist() == [4, 6, 2]
    assert [found.percentile(q) for q in (25, 50, 75)] == [0, 1, 1]
    assert found.history_sizes() == {25: 1, 50: 1, 75: 1, 100: 2}
    np.testing.assert_allclose(found.distribution, [4 / 12, 6 / 12, 2 / 12])
    assert tdiff(cycle, k=2, symmetric=True, method=method).counts.tolist() == [4, 12, 4]


@pytest.mark.parametrize("method", METHODS)
def test_far_beyond_the_graphs_width(method):
    path = make(300, [(i, i + 1) for i in range(299)], np.arange(300) // 7)
    everything = tdiff(path, 10**9, method=method)
    np.testing.assert_array_equal(everything.counts, by_definition(path, 299, False))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_takes_wide_and_read_only_arrays(dtype):
    graph = random_graph(1, 300, 4, 5)
    other = Graph(graph.adjacency.copy(), graph.times.astype(dtype))
    other.adjacency.indptr, other.adjacency.indices = (
        a.astype(dtype) for a in (graph.adjacency.indptr, graph.adjacency.indices)
    )
    for array in (other.times, other.adjacency.indptr, other.adjacency.indices):
        array.setflags(write=False)
    np.testing.assert_array_equal(tdiff(other).counts, tdiff(graph).counts)
    assert graph.adjacency.indices.flags.writeable


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_graph_without_edges_suggests_no_history(method, n):
    nothing = tdiff(make(n, [], np.arange(n)), method=method)
    assert nothing.pairs == 0
    for ask in (nothing.history_sizes, lambda: nothing.percentile(50), lambda: nothing.distribution):
        with pytest.raises(InputError, match=r"no time differences.*Choose a history size"):
            ask()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [({"k": 0}, "k is 0"), ({"sample": 0}, "sample has 0"), ({"method": "magic"}, "no method 'magic'")],
)
def test_bad_arguments(arguments, problem):
    with pytest.raises(InputError, match=problem):
        tdiff(random_graph(0, 9, 3, 3), **arguments)


def test_refuses_a_histogram_as_long_as_seconds():
    with pytest.raises(InputError, match="larger units"):
        tdiff(make(2, [(0, 1)], [0, 2**31]))


# Percentiles


@given(
    counts=arrays(np.int64, st.integers(1, 12), elements=st.integers(0, 9)).filter(np.any),
    q=st.floats(0, 100) | st.integers(0, 100),
)
@exhaustive
def test_percentiles_are_numpys(counts, q):
    expanded = np.repeat(np.arange(len(counts)), counts)
    assert exact(counts).percentile(q) == pytest.approx(np.percentile(expanded, q), abs=1e-9)


def test_percentiles_of_more_pairs_than_floats_can_tell_apart():
    # Of 2**60 + 1 differences the one in the middle is the only 1.
    counts = exact([2**59, 1, 2**59])
    assert counts.percentile(50) == 1
    assert counts.history_sizes([50]) == {50: 1}
    assert exact([2**59, 1, 2**59 + 2]).percentile(50) == 2


def test_history_sizes_round_up_but_not_by_dust():
    assert exact([0] * 3 + [1] * 11).history_sizes([30, 31, 70]) == {30: 6, 31: 7, 70: 10}
    assert exact([5, 1]).history_sizes([0, 50]) == {0: 1, 50: 1}


@pytest.mark.parametrize("q", [-1, 100.5, math.nan])
def test_percentiles_are_within_0_and_100(q):
    with pytest.raises(InputError, match="not a percentage"):
        exact([1, 2]).percentile(q)


# Granularity of time


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6), st.integers(1, 400))
def test_granularity_of_a_pair(u, v, a):
    assert abs(a * abs(u // a - v // a) - abs(u - v)) < a


@given(graph=graphs(), a=st.integers(1, 15), k=st.integers(1, 3))
@exhaustive
def test_granularity_of_symmetric_percentiles(graph, a, k):
    fine = tdiff(graph, k, symmetric=True)
    coarse = tdiff(Graph(graph.adjacency, graph.times // a), k, symmetric=True)
    assert fine.pairs == coarse.pairs
    for q in LEVELS if fine.pairs else []:
        assert abs(fine.percentile(q) - a * coarse.percentile(q)) <= a + 1e-9


def test_granularity_does_not_carry_over_to_the_papers_percentiles():
    """Pairs that become ties count double: the median can move further than one coarse unit."""
    near, far = 40, 50
    times = [0, 5] * near + [0, 120] * far
    order = np.argsort(times, kind="stable")
    place = np.argsort(order)
    edges = [(place[2 * i], place[2 * i + 1]) for i in range(near + far)]
    months = make(len(times), edges, np.array(times)[order])
    years = Graph(months.adjacency, months.times // 12)
    assert (tdiff(months, 1).percentile(50), tdiff(years, 1).percentile(50)) == (120, 0)
    symmetric = [tdiff(g, 1, symmetric=True).percentile(50) for g in (months, years)]
    assert abs(symmetric[0] - 12 * symmetric[1]) <= 12


# Samples


def test_a_sample_of_all_vertices_is_exact():
    graph = random_graph(2, 200, 4, 9)
    for sample in (200, 1000):
        found = tdiff(graph, sample=sample)
        np.testing.assert_array_equal(found.counts, tdiff(graph).counts)
        assert (found.error, found.sources) == (None, 200)


def test_samples_follow_the_seed():
    graph = random_graph(3, 2000, 6, 9)
    first, again, other = (tdiff(graph, sample=300, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.counts, again.counts)
    assert first.error == again.error
    assert (first.counts != other.counts).any()
    assert (first.sources, first.vertices) == (300, 2000)
    np.testing.assert_array_equal(first.counts, tdiff(graph, sample=300, seed=1, method="bits").counts)


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_stated_error_covers_the_truth(symmetric):
    graph = random_graph(4, 3000, 6, 9)
    truth = tdiff(graph, symmetric=symmetric)
    cumulative = truth.distribution.cumsum()
    errors = {}
    for size in (200, 1500):
        samples = [tdiff(graph, symmetric=symmetric, sample=size, seed=seed) for seed in range(40)]
        off = np.array([np.abs(s.distribution.cumsum() - cumulative) for s in samples])
        errors[size] = np.array([s.error for s in samples])
        assert ((off <= errors[size][:, None]).mean(axis=0) >= 0.8).all()
        # The bound is not idle either: where shares vary most, they come near it.
        assert off.max() > errors[size].mean() / 2
        assert np.mean([s.pairs for s in samples]) == pytest.approx(truth.pairs, rel=0.03)
    assert errors[1500].max() < errors[200].min()


def test_a_sample_that_cannot_tell_says_so():
    graph = make(50, [(0, 1)], np.arange(50))
    found = [tdiff(graph, sample=size, seed=0) for size in (1, 5, 49)]
    assert [f.error for f in found] == [1, 1, 1]
    with pytest.raises(InputError, match="sample of 1 vertices has no time differences"):
        found[0].history_sizes()


# How it runs


def test_several_threads_at_once():
    graph = random_graph(6, 1500, 5, 9)
    expected = tdiff(graph, 3).counts
    found = []
    threads = [threading.Thread(target=lambda: found.append(tdiff(graph, 3).counts)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all((counts == expected).all() for counts in found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_runs_in_a_forked_process_after_its_parent():
    code = (
        "import os, numpy as np\n"
        "from types import SimpleNamespace\n"
        "from scipy.sparse import csr_array\n"
        "from evergraph.analysis.time_differences import tdiff\n"
        "g = SimpleNamespace(adjacency=csr_array([[0, 1], [1, 0]]), times=np.array([0, 1]))\n"
        "tdiff(g)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(tdiff(g).pairs)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_importing_is_cheap():
    code = "import sys, evergraph.analysis.description; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# Real graphs


def test_methods_agree_on_a_real_graph(shared_data):
    folder = shared_data("dblp-easy")
    graph = read_tables(folder / "nodes.csv.gz", folder / "edges.csv.gz")
    stamp, bits = (tdiff(graph, method=method) for method in METHODS)
    np.testing.assert_array_equal(stamp.counts, bits.counts)
    guess = tdiff(graph, sample=5000)
    assert np.abs(guess.distribution.cumsum() - stamp.distribution.cumsum()).max() < 2 * guess.error < 0.1


def test_rows_may_come_unsorted():
    graph = make(30, [(u, (u * 7 + 3) % 30) for u in range(30)], np.arange(30) // 3)
    shuffled = graph.adjacency.copy()
    for row in range(30):
        part = slice(shuffled.indptr[row], shuffled.indptr[row + 1])
        shuffled.indices[part] = shuffled.indices[part][::-1]
    shuffled.has_sorted_indices = False
    np.testing.assert_array_equal(tdiff(Graph(shuffled, graph.times)).counts, tdiff(graph).counts)
