from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn

from evergraph import LifelongLearner, Workspace, tasks
from evergraph.datasets import synthetic
from evergraph.errors import InputError
from evergraph.evaluation.configuration import Configuration
from evergraph.nn import (
    GCN,
    MLP,
    Batch,
    Custom,
    Draw,
    GraphSAINT,
    Neighbours,
    Noise,
    carry_over,
    count_parameters,
)
from tests.nn.cases import store

EDGES = [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)]
N = 6  # the last vertex is isolated


class Sum(nn.Module):
    """Two linear maps with a sum over neighbours between them, dropout and optional batch normalisation."""

    def __init__(self, inputs: int, hidden: int = 7, *, dropout: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(inputs, hidden), nn.Linear(hidden, 4)
        self.norm = nn.BatchNorm1d(hidden) if norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.dropout(torch.relu(self.norm(self.one(x))))
        return self.two(h.index_add(0, edge_index[1], h[edge_index[0]]))


def graph() -> Neighbours:
    matrix = np.zeros((N, N))
    for one, other in EDGES:
        matrix[one, other] = matrix[other, one] = 1
    adjacency = sparse.csr_array(matrix)
    return Neighbours.of(adjacency.indptr, adjacency.indices)


def batch_of(width: int = 5, *, stored: str = "dense", rows: int = 4) -> Batch:
    values = np.random.default_rng(0).normal(size=(N, width)).astype(np.float32)
    values[values < 0] = 0
    return Batch(store(torch.from_numpy(values), stored), graph(), rows, torch.arange(rows) % 2)


def loaded(module: nn.Module, p: dict[str, Tensor]) -> nn.Module:
    """Return a module with the parameters of a dict."""
    state = {
        name.split(".", 1)[1]: value.detach() for name, value in p.items() if name.startswith(("module.", "buffer."))
    }
    module.load_state_dict(state)
    return module


# --- a module computes what it computes elsewhere --------------------------------------------------------------------


@pytest.mark.parametrize("stored", ["dense", "sparse", "mixed"])
@pytest.mark.parametrize("given", [Sum(5), Sum, lambda inputs: Sum(inputs, 9)], ids=["module", "class", "function"])
def test_hidden_vectors_are_the_modules_and_the_head_is_ours(given: Any, stored: str) -> None:
    model, batch = Custom(given), batch_of(stored=stored)
    p = model.parameters(5, 3, Draw(1))
    logits, hidden = model.forward(p, batch, None)
    module = loaded(given if isinstance(given, nn.Module) else given(5), p)
    x = batch.x if isinstance(batch.x, Tensor) else batch.x.to_dense()
    expected = module(x, batch.graph.edge_index)[:4]
    torch.testing.assert_close(hidden, expected)
    torch.testing.assert_close(logits, expected @ p["head.weight"] + p["head.bias"])
    assert (logits.shape, hidden.shape) == ((4, 3), (4, 4))
    assert (p["head.weight"].shape, p["head.bias"].shape) == ((4, 3), (3,))


def test_edges_come_in_both_directions_without_self_loops_and_once() -> None:
    edges = graph()
    expected = sorted([*EDGES, *((other, one) for one, other in EDGES)])
    assert sorted(map(tuple, edges.edge_index.T.tolist())) == expected
    assert edges.edge_index is edges.edge_index
    assert edges.edge_index.dtype == torch.int64


@pytest.mark.parametrize("layer", ["SAGEConv", "GCNConv"])
def test_layers_of_pytorch_geometric(layer: str) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")

    class Stack(nn.Module):
        def __init__(self, inputs: int) -> None:
            super().__init__()
            conv = getattr(pyg, layer)
            self.one, self.two = conv(inputs, 8), conv(8, 6)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.two(torch.relu(self.one(x, edge_index)), edge_index)

    batch = batch_of(rows=N)
    for model in (Custom(Stack), Custom(Stack(5)), Custom(lambda _: Stack(-1))):
        p = {name: value.requires_grad_() for name, value in model.parameters(5, 2, Draw(1)).items()}
        logits, hidden = model.forward(p, batch, Noise(1))
        torch.testing.assert_close(hidden, loaded(Stack(5), p)(batch.x, batch.graph.edge_index))
        nn.functional.cross_entropy(logits, torch.arange(N) % 2).backward()
        assert all(value.grad is not None and bool(value.grad.isfinite().all()) for value in p.values())


def test_a_whole_network_of_pytorch_geometric_can_be_given_and_learns() -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    model, batch = Custom(pyg.GraphSAGE(5, 16, num_layers=2, dropout=0.2, norm="batch_norm")), batch_of(rows=N)
    p, targets = model.parameters(5, 2, Draw(1)), torch.tensor([0, 0, 0, 1, 1, 1])
    trained = [value.requires_grad_() for name, value in p.items() if model.trained(name)]
    optimiser, losses = torch.optim.Adam(trained, lr=0.05), []
    for step in range(30):
        loss = nn.functional.cross_entropy(model.forward(p, batch, Noise(step))[0], targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


def test_a_custom_model_can_be_trained_on_samples() -> None:
    model, batch = GraphSAINT(Custom(Sum(5, norm=True)), size=3), batch_of()
    p = model.parameters(5, 2, Draw(0))
    assert not model.trained("buffer.norm.running_mean")
    for part in itertools.islice(model.batches(batch, np.random.default_rng(0)), 3):
        logits, _ = model.forward(p, part, Noise(1))
        assert logits.shape == (part.rows, 2)


# --- fresh parameters ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [Sum(5, norm=True), Sum], ids=["module", "class"])
def test_parameters_are_drawn_from_the_seed_alone(given: Any) -> None:
    model = Custom(given)
    p, again, other = (model.parameters(5, 3, Draw(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(p[name], again[name]) for name in p)
    assert not torch.equal(p["module.one.weight"], other["module.one.weight"])
    assert not any(value.requires_grad for value in p.values())
    # The default draw of a linear layer is uniform up to the inverse root of its inputs.
    assert 0.3 < float(p["module.one.weight"].abs().max()) <= 5**-0.5
    p["module.one.weight"].zero_()
    assert torch.equal(model.parameters(5, 3, Draw(1))["module.one.weight"], again["module.one.weight"])


def test_module_and_head_are_not_drawn_from_the_same_numbers() -> None:
    p = Custom(lambda _: Sum(4, 4)).parameters(4, 4, Draw(1))
    assert float((p["head.weight"].flatten() - p["module.one.weight"].flatten()).abs().max()) > 0.1


def test_the_given_module_is_neither_changed_nor_followed() -> None:
    module = Sum(5, norm=True)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = Custom(module)
    p = model.parameters(5, 3, Draw(1))
    model.forward(p, batch_of(), Noise(1))
    model.forward(p, batch_of(), None)
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    expected = model.forward(p, batch_of(), None)[0]
    module.two = nn.Linear(7, 4, bias=False)
    assert torch.equal(model.forward(p, batch_of(), None)[0], expected)


def test_torchs_own_random_numbers_are_left_alone() -> None:
    givens = Sum(5, dropout=0.5), lambda inputs: Sum(inputs, dropout=0.5)
    state = torch.get_rng_state()
    for given in givens:
        model = Custom(given, project=5)
        p = model.parameters(8, 3, Draw(1))
        model.forward(p, batch_of(8), Noise(1))
        model.forward(p, batch_of(8), None)
    assert torch.equal(torch.get_rng_state(), state)


def test_an_outer_part_has_the_last_word_on_its_inner_ones() -> None:
    class Own(Sum):
        def reset_parameters(self) -> None:
            nn.init.constant_(self.two.weight, 3.0)

    p = Custom(Own(5)).parameters(5, 2, Draw(0))
    assert p["module.two.weight"].unique().tolist() == [3.0]
    assert len(p["module.one.weight"].unique()) > 10


class Bare(nn.Module):
    """A module with a parameter that no method draws."""

    def __init__(self, inputs: int = 5) -> None:
        super().__init__()
        self.weight, self.inner = nn.Parameter(torch.randn(inputs, 3)), nn.Linear(3, 3)

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        return self.inner(x @ self.weight)


def test_a_parameter_that_nothing_draws_needs_a_function() -> None:
    class Forgetful(Bare):
        def reset_parameters(self) -> None:
            self.inner.reset_parameters()

    for module in (Bare(), Forgetful(), nn.Sequential(Bare())):
        with pytest.raises(
            InputError,
            match=r"reset_parameters method of the module draws the parameter '(0\.)?weight'.*Give a function",
        ):
            Custom(module).parameters(5, 2, Draw(0))
    one, other = (Custom(Bare).parameters(5, 2, Draw(seed))["module.weight"] for seed in (0, 1))
    assert not torch.equal(one, other)


def test_lazy_layers_need_a_function() -> None:
    class Lazy(nn.Module):
        def __init__(self, _: int) -> None:
            super().__init__()
            self.inner = nn.LazyLinear(4)

        def forward(self, x: Tensor, _: Tensor) -> Tensor:
            return self.inner(x)

    with pytest.raises(InputError, match=r"lazy layers.*Give a function"):
        Custom(Lazy(5))
    model = Custom(Lazy)
    p, again = (model.parameters(5, 2, Draw(1)) for _ in range(2))
    assert p["module.inner.weight"].shape == (4, 5)
    assert torch.equal(p["module.inner.weight"], again["module.inner.weight"])
    assert model.forward(p, batch_of(), None)[0].shape == (4, 2)


def test_parameters_that_two_parts_share_stay_shared() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(5, 5), nn.Linear(5, 5)
            self.two.weight = self.one.weight

        def forward(self, x: Tensor, _: Tensor) -> Tensor:
            return self.two(self.one(x))

    model, batch = Custom(Tied()), batch_of()
    p = model.parameters(5, 2, Draw(0))
    assert [name for name in p if name.startswith("module")] == [
        "module.one.weight",
        "module.one.bias",
        "module.two.bias",
    ]
    weight = p["module.one.weight"]
    expected = (batch.x @ weight.T + p["module.one.bias"]) @ weight.T + p["module.two.bias"]
    torch.testing.assert_close(model.forward(p, batch, None)[1], expected[:4])


# --- buffers and randomness ------------------------------------------------------------------------------------------


def test_buffers_are_in_the_dict_and_move_in_training_only() -> None:
    model, batch = Custom(Sum(5, norm=True)), batch_of(rows=N)
    p = model.parameters(5, 2, Draw(0))
    buffers = {name: value.clone() for name, value in p.items() if not model.trained(name)}
    assert sorted(buffers) == [f"buffer.norm.{name}" for name in ("num_batches_tracked", "running_mean", "running_var")]
    assert not any(value.requires_grad for value in buffers.values())
    model.forward(p, batch, None)
    assert all(torch.equal(p[name], value) for name, value in buffers.items())
    expected = loaded(Sum(5, norm=True), p)
    expected.train()(batch.x, batch.graph.edge_index)
    model.forward(p, batch, Noise(1))
    assert p["buffer.norm.num_batches_tracked"].item() == 1
    for name, value in expected.named_buffers():
        torch.testing.assert_close(p[f"buffer.{name}"], value)
    expected.eval()
    torch.testing.assert_close(model.forward(p, batch, None)[1], expected(batch.x, batch.graph.edge_index))
    # New ones equal the initial ones, and those of a dict can be carried over.
    assert model.parameters(5, 2, Draw(0))["buffer.norm.num_batches_tracked"].item() == 0
    assert carry_over(p, model.parameters(5, 3, Draw(1)))["buffer.norm.num_batches_tracked"].item() == 1
    assert count_parameters(model, 5, 2) == 5 * 7 + 7 + 2 * 7 + 7 * 4 + 4 + 4 * 2 + 2


def test_parameters_without_a_gradient_keep_their_values() -> None:
    module = Sum(5)
    module.one.requires_grad_(False)
    before = module.one.weight.clone()
    model = Custom(module)
    p = model.parameters(5, 2, Draw(0))
    assert torch.equal(p["buffer.one.weight"], before)
    assert "module.one.weight" not in p
    assert not model.trained("buffer.one.weight")
    torch.testing.assert_close(
        model.forward(p, batch_of(), None)[1], loaded(Sum(5), p)(batch_of().x, graph().edge_index)[:4]
    )


def test_dropout_follows_the_noise() -> None:
    model, batch = Custom(Sum(5, dropout=0.5)), batch_of()
    p = model.parameters(5, 2, Draw(0))
    torch.manual_seed(1)
    one = model.forward(p, batch, Noise(1))[0]
    torch.manual_seed(2)
    again, other, calm = (model.forward(p, batch, noise)[0] for noise in (Noise(1), Noise(2), None))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(calm, model.forward(p, batch, None)[0])
    noise = Noise(1)
    assert not torch.equal(model.forward(p, batch, noise)[0], model.forward(p, batch, noise)[0])


def test_a_module_that_is_random_at_all_times_still_decides_the_same() -> None:
    class Restless(Sum):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return nn.functional.dropout(super().forward(x, edge_index), 0.5, training=True)

    model = Custom(Restless)
    p = model.parameters(5, 2, Draw(0))
    assert torch.equal(*(model.forward(p, batch_of(), None)[0] for _ in range(2)))


# --- features that are sparse or grow --------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [Sum(3), Sum], ids=["module", "class"])
def test_project_reads_sparse_features_as_dense_ones(given: Any) -> None:
    model = Custom(given, project=3)
    p = {name: value.requires_grad_() for name, value in model.parameters(5, 2, Draw(0)).items()}
    assert (p["project.weight"].shape, p["project.bias"].shape) == ((5, 3), (3,))
    assert p["module.one.weight"].shape == (7, 3)
    found = []
    for stored in ("dense", "sparse", "mixed"):
        logits, _ = model.forward(p, batch_of(stored=stored), Noise(1))
        found.append([logits, *torch.autograd.grad(logits.square().sum(), list(p.values()))])
    for one, *others in zip(*found, strict=True):
        for other in others:
            torch.testing.assert_close(one, other)


def wider(batch: Batch) -> Batch:
    """Return the same features and two more, which are zero."""
    return Batch(nn.functional.pad(batch.x, (0, 2)), batch.graph, batch.rows, batch.targets)


@pytest.mark.parametrize(("given", "project"), [(Sum(3), 3), (Sum, 3), (Sum, None)], ids=["module", "both", "class"])
def test_new_features_and_classes_leave_old_logits_alone(given: Any, project: int | None) -> None:
    model, batch = Custom(given, project), batch_of()
    old = model.parameters(5, 2, Draw(0))
    before, _ = model.forward(old, batch, None)
    grown = carry_over(old, model.parameters(7, 3, Draw(1)))
    after, _ = model.forward(grown, wider(batch), None)
    torch.testing.assert_close(after[:, :2], before)
    assert after.shape == (4, 3)
    torch.testing.assert_close(model.forward(old, batch, None)[0], before)  # the older width still works


def test_a_module_that_shrinks_cannot_be_carried_over() -> None:
    model = Custom(lambda inputs: Sum(inputs, hidden=20 - inputs))
    with pytest.raises(InputError, match=r"'module.one.weight' had the shape \(15, 5\) and now has \(14, 6\)"):
        carry_over(model.parameters(5, 2, Draw(0)), model.parameters(6, 2, Draw(0)))


def test_a_module_of_another_width_is_refused_with_the_ways_out() -> None:
    with pytest.raises(
        InputError, match=r"fails on features of width 8: .*project=.*a function that returns"
    ) as caught:
        Custom(Sum(5)).parameters(8, 2, Draw(0))
    assert isinstance(caught.value.__cause__, RuntimeError)


# --- what cannot be --------------------------------------------------------------------------------------------------


class Returns(nn.Module):
    """A module that applies a function to the features."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, _: Tensor) -> Any:
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda x: x[:1], r"torch.float32 of shape \[1, 5\]"),
        (lambda x: x[:, 0], r"torch.float32 of shape \[2\]"),
        (lambda x: x[None], r"torch.float32 of shape \[1, 2, 5\]"),
        (lambda x: x.double(), r"torch.float64 of shape \[2, 5\]"),
        (lambda x: (x, x), "a tuple"),
        (lambda _: None, "a NoneType"),
    ],
)
def test_modules_that_return_something_else_are_refused(function: Any, what: str) -> None:
    with pytest.raises(InputError, match=rf"^the module returned {what} for 2 vertices"):
        Custom(Returns(function)).parameters(5, 2, Draw(0))


def test_the_same_holds_for_each_graph() -> None:
    model = Custom(Returns(lambda x: x[:2]))
    p = model.parameters(5, 2, Draw(0))
    with pytest.raises(InputError, match=r"shape \[2, 5\] for 6 vertices"):
        model.forward(p, batch_of(), None)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(InputError, match=r"module is 'sage'.*Give a torch module, or a function"):
        Custom("sage")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"returned 5.*Return a torch module"):
        Custom(lambda inputs: inputs).parameters(5, 2, Draw(0))  # type: ignore[arg-type,return-value]
    for project in (0, 2.0, True):
        with pytest.raises(InputError, match="project is"):
            Custom(Sum, project)  # type: ignore[arg-type]


def test_customs_are_values() -> None:
    module = Sum(5)
    assert Custom(module) == Custom(module) != Custom(module, project=5)
    assert len({Custom(Sum), Custom(Sum), Custom(Sum, 3)}) == 2
    assert "_copy" not in repr(Custom(module))
    model = Custom(nn.Linear(5, 4))
    assert pickle.loads(pickle.dumps(model)).project is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (Sum, r"Sum is a torch module, not a model\. Write model=evergraph\.nn\.Custom\(Sum\)\."),
        (GCN, r"model=GCN\(\)"),
    ],
)
def test_a_class_without_custom_is_told_the_line_to_write(given: Any, told: str, tmp_path: Path) -> None:
    graph = synthetic(vertices=60, times=4, classes=2, new_classes=0, seed=1)
    uses: list[Callable[[], object]] = [
        lambda: LifelongLearner(given),
        lambda: LifelongLearner().set_params(model=given).adapt(next(tasks(graph, history=1))),
        lambda: Configuration(model=given),
        lambda: Workspace.create(tmp_path / "ws", graph, model=given),
    ]
    for use in uses:
        with pytest.raises(InputError, match=told):
            use()
    Workspace.create(tmp_path / "ws", graph, model=MLP(hidden=4), steps=1)
    with pytest.raises(InputError, match=told):
        Workspace(tmp_path / "ws", model=given).learner()


def test_a_module_instance_is_refused_by_a_configuration() -> None:
    """A learner accepts it; a run is described by its settings, and an instance is not."""
    with pytest.raises(InputError, match=r"Custom\(Linear\)"):
        Configuration(model=nn.Linear(2, 2))  # type: ignore[arg-type]
