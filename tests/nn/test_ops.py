"""Operations and gradients compared with dense autograd in double precision; noise, threads, memory and Adam."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from torch import Tensor

from evergraph import compiled
from evergraph.allocation import kept_memory
from evergraph.compiled import over_range, over_rows
from evergraph.nn import Neighbours, Noise, SparseMatrix
from evergraph.nn.adam import Adam
from evergraph.nn.ops import attend, drop, linear, mean_beside, mix_mean, propagate, relu_drop
from tests.nn.cases import KERNELS, Case, assert_close, cases, dense_attention, fixed

both_kernels = pytest.mark.parametrize("kernels", KERNELS)
fewer = settings(max_examples=30)
shares = st.sampled_from([0.1, 0.5, 0.9])
ISOLATED = Case(4, frozenset(), rows=3, width=2, heads=2, weighted=True)
ALONE = Case(1, frozenset(), rows=1)
NO_ROWS = Case(3, frozenset({(0, 2)}), rows=0, heads=2)
COMPLETE = Case(5, frozenset((i, j) for i in range(5) for j in range(i)), rows=4, heads=3, weighted=True)
LOPSIDED = Case(6, frozenset({(0, 1), (1, 2), (0, 5), (4, 5)}), rows=5, width=1, weighted=True, seed=1)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Use one thread, which is faster for small matrices; the tests of threads set their own number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def special(function: Callable[..., Any]) -> Callable[..., Any]:
    for case in (ISOLATED, ALONE, NO_ROWS, COMPLETE, LOPSIDED):
        function = example(case)(function)
    return function


def assert_same_function(
    ours: Callable[..., Tensor], reference: Callable[..., Tensor], case: Case, *inputs: Tensor, together: bool = False
) -> None:
    """Assert that values and gradients agree; ``together`` compares all errors with the largest of all gradients."""
    single = [value.clone().requires_grad_() for value in inputs]
    double = [value.double().requires_grad_() for value in inputs]
    out, expected = ours(*single), reference(*double)
    assert out.dtype == torch.float32
    assert_close(out, expected)
    gradient = case.normal(*out.shape)
    out.backward(gradient)
    expected.backward(gradient.double())
    scale = max(float(value.grad.abs().max()) for value in double) if together else 0.0
    for value, exact in zip(single, double, strict=True):
        assert_close(value.grad, exact.grad, scale)


# --- features times weights ------------------------------------------------------------------------------------------


@st.composite
def sparse_features(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st.tuples(st.integers(1, 8), st.integers(1, 6)))
    values = st.sampled_from([0, 0, 0, 1, -0.5, 3.25, 1e-3])
    entries = draw(st.lists(values, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return np.array(entries, np.float32).reshape(shape)


@both_kernels
@pytest.mark.parametrize("biased", [False, True])
@given(values=sparse_features(), width=st.integers(1, 5), seed=st.integers(0, 99))
@example(values=np.zeros((3, 2), np.float32), width=2, seed=0)
def test_sparse_linear_is_the_dense_one(kernels: Any, biased: bool, values: np.ndarray, width: int, seed: int) -> None:
    x, case = SparseMatrix.of(sparse.csr_array(values), kernels=kernels), Case(1, frozenset(), 1, seed=seed)
    exact = torch.from_numpy(values).double()
    inputs = [case.normal(values.shape[1], width), *([case.normal(width)] if biased else [])]
    assert_same_function(
        lambda weight, bias=None: linear(x, weight, bias),
        lambda weight, bias=0.0: exact @ weight + bias,
        case,
        *inputs,
    )


@both_kernels
def test_a_bias_may_need_a_gradient_without_the_weight(kernels: Any) -> None:
    x = SparseMatrix.of(sparse.csr_array(np.float32([[0, 2], [1, 0]])), kernels=kernels)
    bias = torch.zeros(3, requires_grad=True)
    linear(x, torch.ones(2, 3), bias).backward(torch.tensor([[1.0, 2, 3], [10, 20, 30]]))
    assert bias.grad.tolist() == [11, 22, 33]


def test_dense_linear_is_that_of_torch() -> None:
    x, weight, bias = fixed().normal(5, 4), fixed().normal(4, 3), torch.ones(3)
    assert_close(linear(x, weight, bias), x.double() @ weight.double() + 1)
    assert_close(linear(x, weight), x.double() @ weight.double())


# --- sums over neighbours --------------------------------------------------------------------------------------------


@both_kernels
@special
@fewer
@given(cases())
def test_mix_mean(kernels: Any, case: Case) -> None:
    graph, width, mean = case.graph(kernels), case.width, case.mean
    assert_same_function(
        lambda z: mix_mean(graph, z, case.rows),
        lambda z: (z[:, :width] + mean @ z[:, width:])[: case.rows],
        case,
        case.normal(case.n, 2 * width),
    )


@both_kernels
@special
@fewer
@given(cases())
def test_mean_beside(kernels: Any, case: Case) -> None:
    graph, mean = case.graph(kernels), case.mean
    assert_same_function(
        lambda h: mean_beside(graph, h, case.rows),
        lambda h: torch.cat([h, mean @ h], 1)[: case.rows],
        case,
        case.normal(case.n, case.width),
    )


@both_kernels
@special
@fewer
@given(cases())
def test_propagate(kernels: Any, case: Case) -> None:
    graph, normalised = case.graph(kernels), case.normalised
    assert_same_function(
        lambda h: propagate(graph, h, case.rows),
        lambda h: (normalised @ h)[: case.rows],
        case,
        case.normal(case.n, case.width),
    )


@given(cases())
def test_neighbours_are_those_of_the_dense_matrix(case: Case) -> None:
    graph = case.graph("numba")
    places = (np.ones(len(graph.indices)), graph.indices.numpy(), graph.indptr.numpy())
    assert np.array_equal(sparse.csr_array(places, shape=(case.n, case.n)).toarray(), case.adjacency.numpy())
    assert all((np.diff(row) > 0).all() for row in np.split(graph.indices.numpy(), graph.indptr[1:-1].numpy()))
    assert graph.degree.tolist() == case.degree.tolist()
    pairs = {(int(i), int(j)) for i, j in case.adjacency.nonzero() if i != j}
    found = graph.edge_index.T.tolist()
    assert len(found) == len(pairs)
    assert {tuple(pair) for pair in found} == pairs
    rows = np.repeat(np.arange(case.n), np.diff(graph.indptr))
    there, back = np.stack([rows, graph.indices]), np.stack([graph.indices, rows])[:, graph.mirror.numpy()]
    assert np.array_equal(there, back)


# --- dropout ---------------------------------------------------------------------------------------------------------


@both_kernels
@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=3), p=shares, seed=st.integers(0, 99))
def test_drop_and_relu_drop(kernels: Any, shape: list[int], p: float, seed: int) -> None:
    case = Case(1, frozenset(), 1, seed=seed)
    x = case.normal(*shape)
    x[torch.rand(shape, generator=case.generator) < 0.2] = 0  # the kink of the rectifier: no gradient there
    keep = Noise(seed).keep(x.numel(), p).view(shape).double() / (1 - p)

    def noise() -> Noise:
        return Noise(seed, kernels=kernels)

    assert_same_function(lambda x: drop(x, p, noise()), lambda x: x * keep, case, x)
    assert_same_function(lambda x: relu_drop(x, p, noise()), lambda x: torch.relu(x) * keep, case, x)


@both_kernels
def test_constant_features_are_dropped_as_others_are(kernels: Any) -> None:
    x = torch.randn(300, 50, generator=torch.Generator().manual_seed(1))
    constant = drop(x, 0.3, Noise(5, kernels=kernels))
    assert (constant == 0).any()
    assert torch.equal(constant, drop(x.clone().requires_grad_(), 0.3, Noise(5, kernels=kernels)).detach())


@both_kernels
@pytest.mark.parametrize("operation", [drop, relu_drop])
def test_a_second_dropout_takes_other_bytes(kernels: Any, operation: Callable[..., Tensor]) -> None:
    x, noise, same = torch.ones(200), Noise(5, kernels=kernels), Noise(5)
    for _ in range(2):
        assert torch.equal(operation(x, 0.5, noise), 2 * same.keep(200, 0.5).float())


@both_kernels
def test_dropout_of_a_sparse_matrix_drops_its_entries(kernels: Any) -> None:
    matrix = sparse.random_array((30, 20), density=0.3, rng=np.random.default_rng(0), dtype=np.float32).tocsr()
    x = SparseMatrix.of(matrix, kernels=kernels)
    found = drop(x, 0.5, Noise(1, kernels=kernels))
    expected = matrix.copy()
    expected.data = matrix.data * 2 * Noise(1).keep(matrix.nnz, 0.5).numpy()
    assert np.array_equal(found.to_dense().numpy(), expected.toarray())
    assert np.array_equal(x.to_dense().numpy(), matrix.toarray()), "the features themselves must stay"
    case = Case(1, frozenset(), 1)
    exact = torch.from_numpy(expected.toarray()).double()
    assert_same_function(lambda w: linear(found, w), lambda w: exact @ w, case, case.normal(20, 4))


@both_kernels
def test_without_noise_or_share_nothing_is_dropped_and_nothing_drawn(kernels: Any) -> None:
    case, noise = fixed(), Noise(3, kernels=kernels)
    x, graph = case.normal(case.n, 4), case.graph(kernels)
    features = SparseMatrix.of(sparse.csr_array(x.numpy()), kernels=kernels)
    scores = case.normal(2, case.n, 2)
    for p, given_noise in ((0.5, None), (0.0, noise)):
        assert drop(x, p, given_noise) is x
        assert drop(features, p, given_noise) is features
        assert torch.equal(relu_drop(x, p, given_noise), torch.relu(x))
        found = attend(graph, x, *scores, case.n, slope=0.2, p=p, noise=given_noise)
        assert torch.equal(found, attend(graph, x, *scores, case.n, slope=0.2))
    assert torch.equal(noise.keep(100, 0.5), Noise(3).keep(100, 0.5)), "the noise must not have moved on"


# --- attention -------------------------------------------------------------------------------------------------------


@both_kernels
@pytest.mark.parametrize("p", [0.0, 0.6])
@special
@fewer
@given(cases(weighted=False))
def test_attend(kernels: Any, p: float, case: Case) -> None:
    graph, heads, rows = case.graph(kernels), case.heads, case.rows
    entries = int(case.adjacency[:rows].sum())
    keep = case.attention_mask(Noise(case.seed).keep(entries * heads, p), heads, rows) / (1 - p) if p else None

    def ours(z: Tensor, left: Tensor, right: Tensor) -> Tensor:
        noise = Noise(case.seed, kernels=kernels)
        return attend(graph, z, left, right, rows, slope=0.2, p=p, noise=noise)

    def reference(z: Tensor, left: Tensor, right: Tensor) -> Tensor:
        vectors = z.view(case.n, heads, case.width)
        return dense_attention(case, vectors, left, right, rows, 0.2, keep).flatten(1)

    # The gradients of the scores of a row cancel if all of them have the same sign.
    inputs = [case.normal(case.n, heads * case.width), case.normal(case.n, heads), case.normal(case.n, heads)]
    assert_same_function(ours, reference, case, *inputs, together=True)


@both_kernels
def test_attention_of_large_scores_does_not_overflow(kernels: Any) -> None:
    case = fixed()
    z, left, right = case.normal(case.n, 3), 1000 * case.normal(case.n, 1), 1000 * case.normal(case.n, 1)
    assert_same_function(
        lambda z: attend(case.graph(kernels), z, left, right, case.n, slope=0.2),
        lambda z: dense_attention(case, z[:, None], left.double(), right.double(), case.n, 0.2)[:, 0],
        case,
        z,
    )


# --- all of them -----------------------------------------------------------------------------------------------------


def every_operation(case: Case, kernels: Any, rows: int | None = None) -> dict[str, Callable[[Tensor], Tensor]]:
    """Return each operation as a function of one matrix [n, 4]."""
    graph, rows = case.graph(kernels), case.rows if rows is None else rows
    features = SparseMatrix.of(sparse.csr_array(case.adjacency.float().numpy()), kernels=kernels)

    def attended(z: Tensor, p: float) -> Tensor:
        noise = Noise(1, kernels=kernels)
        return attend(graph, z, z[:, :2], z[:, 2:], rows, slope=0.2, p=p, noise=noise)

    return {
        "linear": lambda z: linear(features, z, z[0]),
        "mix_mean": lambda z: mix_mean(graph, z, rows),
        "mean_beside": lambda z: mean_beside(graph, z, rows),
        "propagate": lambda z: propagate(graph, z, rows),
        "drop": lambda z: drop(z, 0.5, Noise(1, kernels=kernels)),
        "relu_drop": lambda z: relu_drop(z, 0.5, Noise(1, kernels=kernels)),
        "attend": lambda z: attended(z, 0.0),
        "attend and drop": lambda z: attended(z, 0.6),
    }


OPERATIONS = list(every_operation(fixed(), "torch"))


@both_kernels
@pytest.mark.parametrize("name", OPERATIONS)
def test_matrices_need_not_lie_in_order(kernels: Any, name: str) -> None:
    case = replace(fixed(rows=9), weighted=not name.startswith("attend"))
    operation, z = every_operation(case, kernels)[name], case.normal(case.n, 4)
    straight, turned = z.clone().requires_grad_(), z.T.contiguous().T.requires_grad_()
    assert not turned.is_contiguous()
    # The gradient of a sum is an expanded number, not a contiguous matrix.
    for value in (straight, turned):
        operation(value).sum().backward()
    third = z.clone().requires_grad_()
    out = operation(third)
    out.backward(torch.ones_like(out))
    assert torch.equal(operation(straight), operation(turned))
    assert torch.equal(straight.grad, third.grad)
    assert_close(turned.grad, third.grad)


@pytest.mark.parametrize("name", OPERATIONS)
def test_results_do_not_depend_on_the_number_of_threads(
    name: str, threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "SMALL", 0)
    case = replace(fixed(n=300, edges=2000, rows=211), weighted=True)
    operation, z = every_operation(case, "numba")[name], case.normal(case.n, 4)
    found = []
    for count in (1, 2, 3):
        threads(count)
        value = z.clone().requires_grad_()
        out = operation(value)
        out.backward(torch.linspace(-1, 1, out.numel()).view_as(out))
        found.append((out.detach(), value.grad))
    for out, gradient in found[1:]:
        assert torch.equal(out, found[0][0])
        assert torch.equal(gradient, found[0][1])


@both_kernels
@pytest.mark.parametrize("name", OPERATIONS)
def test_nan_passes_through(kernels: Any, name: str) -> None:
    """Vertex 2 of the path 0 - 1 - 2 is NaN: 1 and 2 become NaN, 0 and the isolated vertex 3 do not."""
    case = Case(4, frozenset({(0, 1), (1, 2)}), rows=4)
    z = torch.ones(4, 4)
    z[2] = torch.nan
    found = every_operation(case, kernels)[name](z).isnan()
    seen = [2] if name in ("drop", "relu_drop") else [1, 2]
    assert found.any(1).nonzero().flatten().tolist() == seen
    assert found[2].all()


@both_kernels
@pytest.mark.parametrize("what", ["vector", "left", "right"])
def test_nan_passes_through_attention_from_any_input(kernels: Any, what: str) -> None:
    case = Case(4, frozenset({(0, 1), (1, 2)}), rows=4)
    given = {"vector": torch.ones(4, 3), "left": torch.ones(4, 1), "right": torch.ones(4, 1)}
    given[what][2] = torch.nan
    found = attend(case.graph(kernels), *given.values(), 4, slope=0.2).isnan()
    assert found.all(1).nonzero().flatten().tolist() == ([2] if what == "right" else [1, 2])
    assert not found[[0, 3]].any()


@both_kernels
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_nan_among_stored_features_passes_through(kernels: Any, p: float) -> None:
    values = np.ones((3, 8), np.float32)
    values[1] = np.nan
    x = SparseMatrix.of(sparse.csr_array(values), kernels=kernels)
    found = linear(drop(x, p, Noise(1, kernels=kernels)), torch.ones(8, 2))
    assert found.isnan().all(1).tolist() == [False, True, False]


@both_kernels
@pytest.mark.parametrize("name", OPERATIONS)
def test_no_vertices_at_all(kernels: Any, name: str) -> None:
    if name == "linear":
        x, z = SparseMatrix.of(sparse.csr_array((0, 5), dtype=np.float32), kernels=kernels), torch.ones(5, 4)
        z.requires_grad_()
        out = linear(x, z, None)
    else:
        graph = Neighbours.of(np.zeros(1, np.int32), np.zeros(0, np.int32), kernels=kernels)
        assert len(graph) == 0
        z = torch.empty(0, 4, requires_grad=True)
        out = every_operation(Case(0, frozenset(), rows=0), kernels)[name](z)
    assert len(out) == 0
    out.sum().backward()
    assert torch.equal(z.grad, torch.zeros_like(z))


# --- noise -----------------------------------------------------------------------------------------------------------

MANY = 1 << 20


def bound(n: int = MANY) -> float:
    """Five standard errors of a mean of signs."""
    return 5 / math.sqrt(n)


def signs(*seed: int, n: int = MANY, calls: int = 1) -> np.ndarray:
    noise = Noise(*seed)
    for _ in range(calls):
        found = noise.keep(n, 0.5)
    return 2.0 * found.numpy() - 1


@pytest.mark.parametrize("n", [0, 1, 1000, 300_001])
@pytest.mark.parametrize("p", [0.0, 1e-9, 0.3, 0.5, 0.999999])
def test_both_kernels_keep_the_same_entries(n: int, p: float) -> None:
    one, other = Noise(9, 4), Noise(9, 4, kernels="torch")
    for _ in range(2):
        found = one.keep(n, p)
        assert (found.dtype, found.shape) == (torch.uint8, (n,))
        assert torch.equal(found, other.keep(n, p))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.6, 0.99])
@pytest.mark.parametrize("seed", range(3))
def test_the_share_that_is_kept(p: float, seed: int) -> None:
    kept = Noise(seed).keep(MANY, p)
    assert set(kept.unique().tolist()) == {0, 1}
    assert abs(float(kept.double().mean()) - (1 - p)) < 5 * math.sqrt(p * (1 - p) / MANY)


def test_a_share_of_nothing_keeps_all() -> None:
    assert all(Noise(seed).keep(10_000, 0.0).all() for seed in range(20))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"seed": (7, 1)}, {"seed": (7, 2)}),
        ({"seed": (7, 1)}, {"seed": (1, 7)}),
        ({"seed": (0,)}, {"seed": (1,)}),
        ({"seed": (0,)}, {"seed": (0, 0, 1)}),
        ({"seed": (7,), "calls": 1}, {"seed": (7,), "calls": 2}),
        ({"seed": (7,), "calls": 2}, {"seed": (7,), "calls": 3}),
    ],
)
def test_other_seeds_and_calls_are_uncorrelated(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = (signs(*which["seed"], calls=which.get("calls", 1)) for which in (one, other))
    assert abs((first * second).mean()) < bound()
    # Neither is a shifted or mirrored copy of the other.
    for lag in (1, 2, 8, 1024):
        assert abs((first[lag:] * second[:-lag]).mean()) < bound(MANY - lag)
        assert abs((first[:-lag] * second[lag:]).mean()) < bound(MANY - lag)
    assert abs((first * second[::-1]).mean()) < bound()


def test_places_are_uncorrelated() -> None:
    values = signs(11)
    for lag in (1, 2, 3, 4, 8, 31, 32, 64, 1000, 65_536):
        assert abs((values[lag:] * values[:-lag]).mean()) < bound(MANY - lag), lag
    # All patterns of eight adjacent bits are equally frequent: 255 degrees of freedom.
    counts = np.bincount(np.packbits((values > 0).reshape(-1, 8)).ravel(), minlength=256)
    statistic = ((counts - MANY / 8 / 256) ** 2).sum() / (MANY / 8 / 256)
    assert abs(statistic - 255) < 5 * math.sqrt(2 * 255)


def test_the_same_place_varies_over_steps() -> None:
    kept = np.stack([Noise(3, step).keep(8, 0.5).numpy() for step in range(2000)])
    assert np.abs(kept.mean(0) - 0.5).max() < 5 * 0.5 / math.sqrt(2000)
    assert np.abs(np.corrcoef(kept.T) - np.eye(8)).max() < bound(2000)


def test_what_is_kept_at_one_share_is_kept_at_a_smaller_one() -> None:
    often, seldom = Noise(2).keep(1000, 0.2), Noise(2).keep(1000, 0.7)
    assert bool((often >= seldom).all())
    assert bool((often > seldom).any())


def test_seeds_for_others() -> None:
    noise, again = Noise(1, 2), Noise(1, 2)
    drawn = [noise.seed() for _ in range(5)]
    assert drawn == [again.seed() for _ in range(5)]
    assert len({*drawn, Noise(1, 3).seed()}) == 6


# --- threads ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def shared_out(threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two threads share any amount of work."""
    monkeypatch.setattr(compiled, "SMALL", 0)
    threads(2)


class BrokenError(Exception):
    """Error that a kernel raises in these tests."""


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 7, 1000])
@pytest.mark.parametrize("small", [0, 10**9])
def test_a_range_is_covered_once(
    n: int, count: int, small: int, threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "SMALL", small)
    threads(count)
    times, given = np.zeros(n, int), []

    def kernel(first: int, last: int, *arguments: Any) -> None:
        times[first:last] += 1
        given.append(arguments)

    over_range(kernel, n, "one", 2)
    assert (times == 1).all()
    assert set(given) <= {("one", 2)}


@pytest.mark.parametrize("count", [1, 2, 5])
@given(
    entries=st.lists(st.sampled_from([0, 0, 1, 3, 1000]), max_size=30),
    offset=st.integers(0, 5),
    small=st.sampled_from([0, 10**9]),
)
@example(entries=[], offset=0, small=0)
@example(entries=[0] * 30, offset=0, small=0)
def test_rows_are_covered_once(count: int, entries: list[int], offset: int, small: int) -> None:
    times, before = np.zeros(len(entries), int), torch.get_num_threads()

    def kernel(first: int, last: int) -> None:
        times[first:last] += 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "SMALL", small)
        torch.set_num_threads(count)
        try:
            over_rows(kernel, np.cumsum([offset, *entries]).astype(np.int32), 3)
        finally:
            torch.set_num_threads(before)
    assert (times == 1).all()


@pytest.mark.usefixtures("shared_out")
def test_empty_and_heavy_rows_are_shared_out_alike() -> None:
    pieces = []
    heavy_then_empty = np.concatenate([np.arange(100) * 50, np.full(5001, 4950)]).astype(np.int32)
    over_rows(lambda first, last: pieces.append((first, last)), heavy_then_empty, 1)
    costs = [heavy_then_empty[last] - heavy_then_empty[first] + last - first for first, last in pieces]
    assert len(costs) == 8
    assert max(costs) <= 2 * min(costs)


@pytest.mark.usefixtures("shared_out")
@pytest.mark.parametrize("error", [BrokenError, IndexError, StopIteration])
@pytest.mark.parametrize("where", ["here", "in the helper"])
def test_what_a_kernel_raises_is_raised(error: type[Exception], where: str) -> None:
    met = threading.Event()

    def kernel(first: int, last: int) -> None:
        here = threading.current_thread() is threading.main_thread()
        if here == (where == "here"):
            met.set()
            raise error("of the kernel")
        assert met.wait(30)  # so that both threads have a piece

    with pytest.raises(error, match="of the kernel"):
        over_range(kernel, 100)
    met.clear()
    with pytest.raises(error, match="of the kernel"):
        over_rows(kernel, np.arange(101), 1)
    # The threads are available for the next call.
    done: list[int] = []
    over_range(lambda first, last: done.extend(range(first, last)), 100)
    assert sorted(done) == list(range(100))


@pytest.mark.parametrize("n", [3, 1000])
def test_an_index_error_is_raised_without_helpers_too(n: int, threads: Callable[[int], None]) -> None:
    def kernel(first: int, last: int) -> None:
        raise IndexError("of the kernel")

    threads(1)
    for run in (lambda: over_range(kernel, n), lambda: over_rows(kernel, np.arange(n + 1), 1)):
        with pytest.raises(IndexError, match="of the kernel"):
            run()


@pytest.mark.usefixtures("shared_out")
def test_many_callers_at_once() -> None:
    """A caller works on its own pieces, so that it never waits for a thread."""
    results = [np.zeros(1000, int) for _ in range(6)]

    def kernel(first: int, last: int, out: np.ndarray) -> None:
        out[first:last] += 1

    callers = [threading.Thread(target=over_range, args=(kernel, 1000, out), daemon=True) for out in results]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
    assert all((out == 1).all() for out in results)


# --- memory ----------------------------------------------------------------------------------------------------------


def test_results_within_kept_memory_are_the_same() -> None:
    case = fixed()
    graph, h = case.graph("numba"), case.normal(case.n, 4)
    expected = propagate(graph, h, case.n)
    with kept_memory():
        with kept_memory():
            inside = propagate(graph, h, case.n)
            large = torch.ones(20_000_000)  # larger than what the C library reuses by default
        between = propagate(graph, h, case.n)
        assert float(large[::1000].sum()) == 20_000
    assert float(large[::1000].sum()) == 20_000, "memory from inside the context must stay valid"
    assert all(torch.equal(found, expected) for found in (inside, between, propagate(graph, h, case.n)))


def test_kept_memory_lets_errors_out() -> None:
    with pytest.raises(BrokenError), kept_memory():
        raise BrokenError
    with kept_memory():
        pass


def test_kept_memory_does_nothing_where_the_c_library_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with kept_memory():
        assert float(torch.ones(3).sum()) == 3


# --- the optimiser ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_is_torchs(kernels: Any, decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator) for shape in ((5, 3), (7,), (2, 2, 2))]
    ours = [value.clone().requires_grad_() for value in start]
    theirs = [value.double().requires_grad_() for value in start]
    mine = Adam(ours, 0.03, weight_decay=decay, kernels=kernels)
    torchs = torch.optim.Adam(theirs, lr=0.03, weight_decay=decay)
    for _ in range(30):
        gradients = [
            10 ** float(torch.randn(1, generator=generator)) * torch.randn(value.shape, generator=generator)
            for value in start
        ]
        for one, other, gradient in zip(ours, theirs, gradients, strict=True):
            one.grad, other.grad = gradient.clone(), gradient.double()
        mine.step()
        torchs.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-6)
    mine.zero_grad()
    assert all(value.grad is None for value in ours)
    before = [value.clone() for value in ours]
    mine.step()  # without gradients nothing changes
    assert all(torch.equal(one, other) for one, other in zip(ours, before, strict=True))
