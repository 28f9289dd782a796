"""Time differences: Evergraph compared with plain Python and scipy."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.measure import DATA, measure
from evergraph.analysis.time_differences import tdiff


@dataclass(frozen=True)
class Graph:
    """The attributes of a graph that `tdiff` uses."""

    adjacency: sparse.csr_array
    times: NDArray[np.int64]


def convert(folder: Path, path: Path) -> None:
    """Write a graph's tables as arrays; in its own process, so that pandas' memory is not measured."""
    import pandas as pd

    nodes = pd.read_csv(folder / "nodes.csv.gz", usecols=["id", "time"], dtype={"id": str}, keep_default_na=False)
    edges = pd.read_csv(folder / "edges.csv.gz", dtype=str, keep_default_na=False)
    nodes = nodes.sort_values("time", kind="stable")
    u, v = (pd.Index(nodes["id"]).get_indexer(edges[end]) for end in ("source", "target"))
    ends = np.concatenate([u, v]), np.concatenate([v, u])
    adjacency = sparse.coo_array((np.ones(len(ends[0]), bool), ends), (len(nodes), len(nodes))).tocsr()
    adjacency.sort_indices()
    np.savez(path, indptr=adjacency.indptr, indices=adjacency.indices, times=nodes["time"].to_numpy())


@cache  # the first, unmeasured call of each process loads the graph
def graph_at(path: Path) -> Graph:
    with np.load(path) as stored:
        indptr, indices, times = stored["indptr"], stored["indices"], stored["times"]
    return Graph(sparse.csr_array((np.ones(len(indices), bool), indices, indptr), (len(times), len(times))), times)


def with_deque(path: Path, k: int) -> list[int]:
    graph = graph_at(path)
    rows = [row.tolist() for row in np.split(graph.adjacency.indices, graph.adjacency.indptr[1:-1])]
    times = graph.times.tolist()
    counts = [0] * (times[-1] - times[0] + 1)
    for u, now in enumerate(times):
        seen = {u}
        queue = deque([(u, 0)])
        while queue:
            v, distance = queue.popleft()
            for w in rows[v]:
                if w not in seen:
                    seen.add(w)
                    if times[w] <= now:
                        counts[now - times[w]] += 1
                    if distance + 1 < k:
                        queue.append((w, distance + 1))
    return counts


def with_scipy(path: Path, k: int, block: int = 4096) -> list[int]:
    # Vertices are in order of time: of the last product only the columns before the end of the block are needed.
    graph = graph_at(path)
    n, times = len(graph.times), graph.times
    near = graph.adjacency + sparse.eye_array(n, dtype=bool, format="csr")
    counts = np.zeros(times[-1] - times[0] + 1, np.int64)
    for start in range(0, n, block):
        stop = min(start + block, n)
        reached = near[start:stop]
        for _ in range(k - 2):
            reached = reached @ near
        if k > 1:
            reached = reached @ near[:, :stop]
        u, v = np.repeat(np.arange(start, stop), np.diff(reached.indptr)), reached.indices
        earlier = v < u
        counts += np.bincount(times[u[earlier]] - times[v[earlier]], minlength=len(counts))
    counts[0] *= 2
    return list(map(int, counts))


def with_evergraph(path: Path, k: int, method: Literal["auto", "stamp", "bits"] = "auto") -> list[int]:
    return list(map(int, tdiff(graph_at(path), k, method=method).counts))


def with_stamp(path: Path, k: int) -> list[int]:
    return with_evergraph(path, k, "stamp")


def with_bits(path: Path, k: int) -> list[int]:
    return with_evergraph(path, k, "bits")


WAYS: dict[Callable[..., list[int]], str] = {
    with_deque: "plain Python, deque",
    with_scipy: "scipy, products of row blocks",
    with_evergraph: "Evergraph",
    with_stamp: "Evergraph, method 'stamp'",
    with_bits: "Evergraph, method 'bits'",
}
CASES: list[tuple[str, int, dict[Callable[..., list[int]], int]]] = [  # graph, k, ways and how often to run each
    ("dblp-hard", 2, {with_deque: 1, with_scipy: 7, with_evergraph: 25, with_bits: 7}),
    ("dblp-hard", 3, {with_scipy: 3, with_evergraph: 7, with_bits: 3}),
    ("acl", 2, {with_scipy: 1, with_evergraph: 7, with_bits: 3}),
    ("acl", 3, {with_evergraph: 2, with_stamp: 1}),
]
TARGETS = {with_deque: "at least 30", with_scipy: "at least 5"}


def run() -> list[tuple[str, str, str, str, str, str]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, k, ways in CASES:
            path = Path(folder, f"{name}.npz")
            if not path.exists():
                measure(convert, DATA / name, path, repeat=1, warm=False)
            found = {way: measure(way, path, k, repeat=repeat) for way, repeat in ways.items()}
            ours = found[with_evergraph]
            for way, measured in found.items():
                assert measured.result == ours.result, f"{WAYS[way]} returns other counts on {name}, k={k}"
                target = TARGETS.get(way, "") if (name, k) == ("dblp-hard", 2) else ""
                rows.append(
                    (
                        f"{name}, k={k}",
                        WAYS[way],
                        f"{measured.best:.3f} s",
                        f"{measured.best / ours.best:.1f}" if way is not with_evergraph else "",
                        target if way is not with_evergraph else "under 1,000 MB",
                        f"{measured.peak_mb:.0f} MB",
                    )
                )
    return rows


TITLE = "Time differences within k edges, on dblp-hard (501,966 edges) and acl (2,467,249 edges)"
COLUMNS = ("graph", "how", "best time", "times Evergraph's", "target", "peak memory")
NOTE = (
    "Each line is a separate process that searches from every vertex of the graph: once unmeasured, to compile and "
    "load, and then several times (plain Python: once). All lines of one graph and k have the same counts. Memory "
    "includes interpreter, libraries and graph. Evergraph uses all cores; plain Python and scipy can use only one."
)

if __name__ == "__main__":
    for row in [COLUMNS, *run()]:
        print(" | ".join(row))
