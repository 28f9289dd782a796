"""Time of a training step at the size of the paper's DBLP-hard, compared with PyTorch Geometric, and by size."""

from __future__ import annotations

import platform
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.measure import Measured, measure

DENSE = 128  # numbers of a vertex with dense features
VERTICES, EDGES, FEATURES, WORDS_EACH, CLASSES, HIDDEN = 198_675, 643_734, 4_043, 7, 73, 32
FIGURE = Path(__file__).parents[1] / "docs" / "assets" / "step_cost.svg"
STEPS = 10  # per measured run of Evergraph


def make(path: Path, vertices: int) -> None:
    """Write a random graph with the paper's ratios: neighbours close in time, words by a power law."""
    rng = np.random.default_rng(0)
    share = vertices / VERTICES
    edges = round(EDGES * share)
    found = np.empty(0, np.int64)
    while len(found) < edges:
        u = rng.integers(0, vertices, 2 * edges)
        v = np.clip(u + (rng.standard_normal(2 * edges) * vertices / 10).astype(np.int64), 0, vertices - 1)
        low, high = np.minimum(u, v), np.maximum(u, v)
        found = np.unique(np.concatenate([found, (low * vertices + high)[low != high]]))
    u, v = np.divmod(rng.choice(found, edges, replace=False), vertices)
    ends = np.concatenate([u, v]), np.concatenate([v, u])
    links = sparse.coo_array((np.ones(2 * edges, bool), ends), (vertices, vertices)).tocsr()
    links.sort_indices()
    words = (FEATURES * rng.random((vertices, WORDS_EACH)) ** 2).astype(np.int32)
    rows = np.arange(vertices + 1, dtype=np.int32) * WORDS_EACH
    x = sparse.csr_array((rng.random(words.size, np.float32), words.ravel(), rows), shape=(vertices, FEATURES))
    x.sum_duplicates()
    y = rng.integers(0, CLASSES, vertices)
    np.savez(path, indptr=links.indptr, indices=links.indices, x0=x.indptr, x1=x.indices, x2=x.data, y=y)


@cache  # the first, unmeasured call of each process loads the graph
def loaded(path: Path) -> dict[str, Any]:
    with np.load(path) as stored:
        return dict(stored)


def features(path: Path, inputs: str) -> Any:
    """Return what a vertex has: words alone, words and the classes of older neighbours, or 128 dense numbers."""
    arrays = loaded(path)
    n = len(arrays["y"])
    if inputs == "dense":
        return np.random.default_rng(1).standard_normal((n, DENSE), np.float32)
    words = sparse.csr_array((arrays["x2"], arrays["x1"], arrays["x0"]), shape=(n, FEATURES))
    if inputs == "words":
        return words
    links = sparse.csr_array((np.ones(len(arrays["indices"]), np.float32), arrays["indices"], arrays["indptr"]), (n, n))
    classes = sparse.csr_array((np.ones(n, np.float32), arrays["y"], np.arange(n + 1)), shape=(n, CLASSES))
    counts = (sparse.tril(links, -1).tocsr() @ classes).tocsr()  # vertices are sorted by time
    counts.data /= np.repeat(np.maximum(np.diff(sparse.tril(links, -1).tocsr().indptr), 1), np.diff(counts.indptr))
    both = sparse.csr_array(sparse.hstack([words, counts], format="csr", dtype=np.float32))
    both.sort_indices()
    return both


# --- Evergraph -------------------------------------------------------------------------------------------------------


@cache
def prepared(path: Path, name: str, kernels: Any, inputs: str) -> Any:
    import torch

    from evergraph.detect import Softmax
    from evergraph.learning.training import train
    from evergraph.names import build_model
    from evergraph.nn import Batch, Draw, Neighbours, SparseMatrix
    from evergraph.nn.adam import Adam

    arrays = loaded(path)
    n, matrix = len(arrays["y"]), features(path, inputs)
    x = torch.from_numpy(matrix) if inputs == "dense" else SparseMatrix.of(matrix, kernels=kernels)
    graph = Neighbours.of(arrays["indptr"], arrays["indices"], kernels=kernels)
    targets = torch.from_numpy(arrays["y"])
    batch, counts = Batch(x, graph, n, targets), torch.bincount(targets, minlength=CLASSES)
    model = build_model(name)
    weights = model.parameters(matrix.shape[1], CLASSES, Draw(0))
    optimiser = Adam(list(weights.values()), 0.005, kernels=kernels)
    return lambda: train(model, Softmax(), weights, batch, counts, optimiser=optimiser, steps=STEPS, seed=(0, 0))


def evergraph(path: Path, name: str, kernels: str = "numba", inputs: str = "words") -> float:
    from evergraph.allocation import kept_memory

    with kept_memory():
        return prepared(path, name, kernels, inputs)()[-1]


# --- PyTorch Geometric -----------------------------------------------------------------------------------------------


@cache
def prepared_pyg(path: Path, name: str, dropout: float, inputs: str) -> Any:
    import warnings

    import torch
    from torch.nn import functional as F  # noqa: N812
    from torch_geometric.nn import GATConv, SAGEConv

    warnings.simplefilter("ignore")  # that sparse CSR is in beta
    torch.manual_seed(0)
    arrays = loaded(path)
    n = len(arrays["y"])
    matrix = features(path, inputs)
    x = torch.from_numpy(matrix if inputs == "dense" else matrix.toarray())
    y = torch.from_numpy(arrays["y"])
    links = sparse.csr_array((np.ones(len(arrays["indices"]), np.float32), arrays["indices"], arrays["indptr"]), (n, n))
    looped = (links + sparse.eye_array(n, dtype=np.float32, format="csr")).tocsr()
    if name == "sage":
        graph = torch.sparse_csr_tensor(
            torch.from_numpy(looped.indptr.astype(np.int64)),
            torch.from_numpy(looped.indices.astype(np.int64)),
            torch.from_numpy(looped.data),
            (n, n),
        )
        first, second = SAGEConv(x.shape[1], HIDDEN), SAGEConv(HIDDEN, CLASSES)
    else:
        graph = torch.from_numpy(np.stack(links.nonzero()).astype(np.int64))
        first = GATConv(x.shape[1], 8, heads=8, dropout=dropout)
        second = GATConv(64, CLASSES, heads=1, dropout=dropout)
    weights = [*first.parameters(), *second.parameters()]
    optimiser = torch.optim.Adam(weights, lr=0.005)

    def step() -> float:
        h = F.dropout(x, dropout)
        h = first(h, graph)
        h = F.dropout(F.relu(h) if name == "sage" else F.elu(h), dropout)
        loss = F.cross_entropy(second(h, graph), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    return step


def pyg(path: Path, name: str, dropout: float, inputs: str = "words") -> float:
    return prepared_pyg(path, name, dropout, inputs)()


# --- memory bound ---------------------------------------------------------------------------------------------------


def traffic(n: int, entries: int, nonzeros: int) -> int:
    """Return the bytes that a GraphSAGE step must move at least: each array once per read and once per write.

    With ``a = 4 n h`` (a hidden layer) and ``c = 4 n C`` (the logits). Forward: product 2a, mean 3a, rectifier with
    dropout 2.5a, mean beside 3a, output layer 2a + c. Loss: 2c. Backward: output layer 4a + 2c, mean 3a, rectifier 3a,
    mean 3a, product 2a. And indices, values and masks: twice 9 bytes a nonzero, four times 4 bytes an entry. It is the
    bound of separate operations, as version 0.1 had them; a step that computes some of them together can be below it.
    """
    a, c = 4 * n * HIDDEN, 4 * n * CLASSES
    return round(27.5 * a + 5 * c) + 18 * nonzeros + 16 * entries


def copying(megabytes: int = 400) -> float:
    """Return the bytes per second that a plain copy reads and writes."""
    import torch

    source = torch.ones(megabytes * 250_000)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(9):
        start = time.perf_counter()
        target.copy_(source)
        seconds.append(time.perf_counter() - start)
    return 2 * 4 * source.numel() / min(seconds)


def processor() -> str:
    """Return the name of the CPU, its longest vectors, and the number of threads."""
    import torch

    info = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    vectors = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in info), "neither AVX")
    return f"{names[0] if names else platform.processor()}, {vectors}, {torch.get_num_threads()} threads"


# --- the tables ------------------------------------------------------------------------------------------------------


def run() -> list[tuple[str, str, str, str, str, str]]:
    rows = []

    def row(what: str, measured: Measured, steps: int, base: float | None, target: str) -> float:
        each = measured.best / steps
        ratio = f"{base / each:.0f} times faster" if base is not None else ""
        processor = 1000 * measured.processor / steps
        memory = f"{measured.peak_mb / 1000:.2f} GB"
        rows.append((what, f"{1000 * each:,.0f} ms", f"{processor:,.0f} ms", memory, ratio, target))
        return each

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.npz")
        measure(make, path, VERTICES, repeat=1, warm=False)
        rows.append((measure(processor, repeat=1, warm=False).result, "", "", "", "", ""))
        # Evergraph before and after PyTorch Geometric, because the speed of a shared machine varies.
        before = measure(evergraph, path, "sage")
        theirs = measure(pyg, path, "sage", 0.5, repeat=2, spin=True)
        after = measure(evergraph, path, "sage")
        base = row("GraphSAGE, PyTorch Geometric, dense features, CSR adjacency", theirs, 1, None, "")
        row("the same without input dropout", measure(pyg, path, "sage", 0.0, repeat=2, spin=True), 1, None, "")
        best = min(
            row("GraphSAGE, Evergraph", before, STEPS, base, "200 times"),
            row("GraphSAGE, Evergraph, measured again", after, STEPS, base, "200 times"),
        )
        least = bound(path)
        rows.append((*least[0], f"Evergraph takes {best / least[1]:.1f} times that", "2.2 times"))
        row(
            "GraphSAGE, Evergraph, words and classes",
            measure(evergraph, path, "sage", "numba", "both"),
            STEPS,
            None,
            "",
        )
        base = row(
            f"GraphSAGE on {DENSE} dense features, PyTorch Geometric, CSR adjacency",
            measure(pyg, path, "sage", 0.5, "dense", repeat=3, spin=True),
            1,
            None,
            "",
        )
        found = measure(evergraph, path, "sage", "numba", "dense")
        row(f"GraphSAGE on {DENSE} dense features, Evergraph", found, STEPS, base, "4 times")
        for spin in (True, False) * 2:
            found = measure(evergraph, path, "sage", spin=spin)
            row(f"sage, Evergraph, idle threads {'spin' if spin else 'sleep'}", found, STEPS, None, "")
        row("GraphSAGE, Evergraph, kernels='torch'", measure(evergraph, path, "sage", "torch"), STEPS, None, "")
        base = row("GAT, PyTorch Geometric", measure(pyg, path, "gat", 0.6, repeat=2, spin=True), 1, None, "")
        row("GAT, Evergraph", measure(evergraph, path, "gat"), STEPS, base, "60 times")
        row("SGC, Evergraph", measure(evergraph, path, "sgc"), STEPS, None, "under 2 GB")
        for name in ("gcn", "jknet", "mlp", "saint"):
            row(f"{name}, Evergraph", measure(evergraph, path, name, repeat=3), STEPS, None, "")
        rows += by_size(Path(folder))
    return rows


def bound(path: Path) -> tuple[tuple[str, str, str, str], float]:
    """Return the memory bound of a GraphSAGE step as the first cells of a row, and in seconds."""
    bytes_a_second = measure(copying, repeat=1, warm=False).result
    arrays = loaded(path)
    least = traffic(VERTICES, len(arrays["indices"]) + VERTICES, len(arrays["x2"]))
    seconds = least / bytes_a_second
    what = f"memory bound: {least / 1e9:.2f} GB at {bytes_a_second / 1e9:.1f} GB/s"
    return (what, f"{1000 * seconds:.0f} ms", "", ""), seconds


def by_size(folder: Path) -> list[tuple[str, str, str, str, str, str]]:
    """Measure and draw the time of a step by the size of the window."""
    found: dict[str, dict[int, float]] = {}
    for factor in (1, 2, 4, 8):
        vertices = VERTICES * factor // 8
        path = folder / f"part{factor}.npz"
        measure(make, path, vertices, repeat=1, warm=False)
        for name in ("sage", "gat"):
            found.setdefault(name, {})[vertices] = measure(evergraph, path, name).best / STEPS
    draw(found)
    rows = []
    for name, times in found.items():
        sizes = sorted(times)
        cells = ", ".join(f"{1000 * times[size]:.0f}" for size in sizes)
        ratio = times[sizes[-1]] / times[sizes[0]]
        rows.append(
            (
                f"{name} at 1, 2, 4 and 8 times {sizes[0]:,} vertices",
                f"{cells} ms",
                "",
                "",
                f"8 times the size: {ratio:.1f} times the time",
                "linear",
            )
        )
    return rows


def draw(found: dict[str, dict[int, float]]) -> None:
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "evergraph"
    figure, axes = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
    for (name, times), colour, marker in zip(found.items(), ("#0072B2", "#D55E00"), "os", strict=True):
        sizes = np.array(sorted(times))
        values = np.array([1000 * times[size] for size in sizes])
        label = {"sage": "GraphSAGE", "gat": "GAT"}[name]
        axes.plot(sizes / 1000, values, marker=marker, color=colour, label=label)
        axes.plot(sizes / 1000, values[0] * sizes / sizes[0], color=colour, linestyle=":", linewidth=1)
    axes.set_xlabel("vertices in the window (thousands)")
    axes.set_ylabel("one step of training (ms)")
    axes.set_xlim(0)
    axes.set_ylim(0)
    axes.legend(title="dotted: linear from the smallest", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)


TITLE = f"One step of training on {VERTICES:,} vertices, {EDGES:,} edges, {FEATURES:,} features, {CLASSES} classes"
COLUMNS = ("what", "one step", "of all cores", "peak memory", "ratio", "target")
NOTE = (
    "Synthetic graph (seed 0), 7 words per vertex; full batch, forward, backward and Adam; hidden 32 (GAT 8 heads of "
    "8), dropout .5 (GAT .6) also on the input, cross-entropy over all vertices. Each line is a separate process; best "
    f"of 5 runs of {STEPS} steps (PyTorch Geometric: of 2 runs of one step), after one unmeasured run. The memory "
    "bound counts each array once per read and once per write (`traffic` in `benchmarks/bench_steps.py`), at the speed "
    "of a plain copy, without the time for matrix products and random access to neighbours. Idle threads spin: without "
    "`OMP_WAIT_POLICY=passive`, which Evergraph sets; PyTorch Geometric is measured without it."
)

if __name__ == "__main__":
    for line in [COLUMNS, *run()]:
        print(" | ".join(line))
