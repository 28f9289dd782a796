"""Models compared with PyTorch Geometric and with dense matrices; their parameters and their growth."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from evergraph import InputError
from evergraph.nn import (
    GAT,
    GCN,
    MLP,
    SGC,
    Batch,
    Draw,
    GraphSAGE,
    GraphSAINT,
    JKNet,
    Matrix,
    Model,
    MostFrequent,
    Noise,
    SparseMatrix,
    carry_over,
    count_parameters,
)
from evergraph.nn.ops import Neighbours, drop, relu_drop
from tests.nn.cases import (
    KERNELS,
    MODELS,
    Case,
    assert_close,
    batch_of,
    dense,
    expected,
    features,
    fixed,
    labels,
    parameters,
    store,
)

INPUTS, OUTPUTS = 10, 4
KINDS = [MLP, GCN, GraphSAGE, GAT, SGC, JKNet]
LONELY = Case(12, frozenset(), rows=12)  # no edges: each vertex is its own mean and gets all its attention

both_kernels = pytest.mark.parametrize("kernels", KERNELS)
however_stored = pytest.mark.parametrize("stored", ["dense", "sparse", "mixed"])
every_model = pytest.mark.parametrize("model", MODELS, ids=repr)
every_kind = pytest.mark.parametrize("model", [kind() for kind in KINDS], ids=lambda model: type(model).__name__)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Use one thread, which is faster for small matrices."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def with_gradients(p: dict[str, Tensor], dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return {name: value.to(dtype).clone().requires_grad_() for name, value in p.items()}


def assert_gradients_close(ours: dict[str, Tensor], exact: dict[str, Tensor]) -> None:
    """Compare gradients of attention vectors with their layer's weight, because much cancels in them."""
    assert ours.keys() == exact.keys()
    for name, value in exact.items():
        layer, _, end = name.partition(".")
        scale = float(exact[f"{layer}.weight"].abs().max()) if end in ("left", "right") else 0.0
        assert_close(ours[name], value, scale)


def gradients(p: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.grad for name, value in p.items() if value.grad is not None}


# --- against PyTorch Geometric ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pyg() -> Any:
    """Import the layers of PyTorch Geometric, which takes long, only for the tests that need them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of its own imports
        return pytest.importorskip("torch_geometric.nn")


def copied(layer: Any, **weights: Tensor) -> Any:
    """Return a layer with these weights, in double precision."""
    layer = layer.double()
    with torch.no_grad():
        for name, value in weights.items():
            target = layer.get_parameter(name.replace("__", "."))
            target.copy_(value.double().reshape(target.shape))
    return layer


def theirs(pyg: Any, model: Any, p: dict[str, Tensor], case: Case, x: Tensor) -> Tensor:
    """Return the logits of all vertices from the layers of PyTorch Geometric."""
    looped = case.adjacency.nonzero().T.flip(0)
    edges = looped[:, looped[0] != looped[1]]

    def sage(layer: int, h: Tensor) -> Tensor:
        own, near = p[f"{layer}.self.weight"], p[f"{layer}.neighbours.weight"]
        bias = p[f"{layer}.self.bias"] + p[f"{layer}.neighbours.bias"]  # PyTorch Geometric has one for both
        made = copied(
            pyg.SAGEConv(*own.shape, aggr="mean"), lin_l__weight=near.T, lin_l__bias=bias, lin_r__weight=own.T
        )
        return made(h, looped)  # it adds no self-loops

    def gat(layer: int, h: Tensor) -> Tensor:
        weight, last = p[f"{layer}.weight"], layer == model.layers - 1
        inputs, heads, width = weight.shape
        made = pyg.GATConv(inputs, width, heads, concat=not last, negative_slope=model.slope, bias=False)
        ends = {"att_src": p[f"{layer}.left"], "att_dst": p[f"{layer}.right"]}
        return copied(made, lin__weight=weight.flatten(1).T, **ends)(h, edges)

    if isinstance(model, SGC):
        made = pyg.SGConv(*p["weight"].shape, K=model.hops)
        return copied(made, lin__weight=p["weight"].T, lin__bias=p["bias"])(x, edges)
    if isinstance(model, JKNet):
        found = [x]
        for layer in range(model.layers):
            found.append(torch.relu(sage(layer, found[-1])))
        side_by_side = pyg.JumpingKnowledge("cat")(found[1:])
        return torch.nn.functional.linear(side_by_side, p["out.weight"].T.double(), p["out.bias"].double())
    h = x
    for layer in range(model.layers):
        if layer:
            h = torch.nn.functional.elu(h) if isinstance(model, GAT) else torch.relu(h)
        if isinstance(model, GAT):
            h = gat(layer, h)
        elif isinstance(model, GraphSAGE):
            h = sage(layer, h)
        else:
            weight, bias = p[f"{layer}.weight"], p[f"{layer}.bias"]
            if isinstance(model, GCN):
                h = copied(pyg.GCNConv(*weight.shape), lin__weight=weight.T, bias=bias)(h, edges)
            else:
                h = copied(torch.nn.Linear(*weight.shape), weight=weight.T, bias=bias)(h)
    return h


@every_model
def test_forward_is_that_of_pytorch_geometric(pyg: Any, model: Model) -> None:
    p = parameters(model, INPUTS, OUTPUTS)
    for kernels, stored, rows in product(KERNELS, ("dense", "sparse", "mixed"), (14, 9)):
        case = fixed(rows=rows)
        x = features(case, INPUTS, stored=stored, kernels=kernels)
        logits, _ = model.forward(p, batch_of(case, x, kernels), None)
        assert_close(logits, theirs(pyg, model, p, case, dense(x))[:rows])


# --- against dense matrices, in training -----------------------------------------------------------------------------


@every_model
@both_kernels
def test_a_step_and_its_gradients(model: Model, kernels: Any) -> None:
    p = parameters(model, INPUTS, OUTPUTS)
    for rows, stored, training in product((14, 9), ("dense", "sparse", "mixed"), (False, True)):
        case = fixed(rows=rows)
        x = features(case, INPUTS, stored=stored, kernels=kernels)
        ours, exact = with_gradients(p), with_gradients(p, torch.float64)
        noise = Noise(5, kernels=kernels) if training else None
        logits, hidden = model.forward(ours, batch_of(case, x, kernels), noise)
        reference, below = expected(model, exact, case, x, Noise(5) if training else None)
        assert logits.shape == (rows, OUTPUTS)
        assert_close(logits, reference)
        assert len(hidden) == rows
        if below is not None:
            assert_close(hidden, below)
        gradient = case.normal(rows, OUTPUTS)
        logits.backward(gradient)
        reference.backward(gradient.double())
        assert gradients(ours).keys() == p.keys()
        assert_gradients_close(gradients(ours), gradients(exact))


@every_model
@however_stored
def test_kernels_agree(model: Model, stored: str) -> None:
    found = []
    for kernels in KERNELS:
        case = fixed(n=60, edges=150, rows=41)
        x = features(case, INPUTS, stored=stored, kernels=kernels)
        p = with_gradients(model.parameters(INPUTS, OUTPUTS, Draw(8)))
        logits, hidden = model.forward(p, batch_of(case, x, kernels), Noise(1, 2, kernels=kernels))
        torch.nn.functional.cross_entropy(logits, torch.arange(41) % OUTPUTS).backward()
        assert gradients(p).keys() == p.keys()
        found.append((logits, hidden, gradients(p)))
    (logits, hidden, given), (other_logits, other_hidden, other_given) = found
    assert_close(logits, other_logits)
    assert_close(hidden, other_hidden)
    assert_gradients_close(given, other_given)


# --- sizes and fresh parameters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "outputs", "sage", "sgc"),
    [(2278, 12, 146_648, 27_348), (4043, 73, 263_634, 295_212), (4829, 7, 309_582, 33_810)],
    ids=["DBLP-easy", "DBLP-hard", "PharmaBio"],
)
def test_parameter_counts_of_the_paper(inputs: int, outputs: int, sage: int, sgc: int) -> None:
    assert count_parameters(GraphSAGE(hidden=32), inputs, outputs) == sage
    assert count_parameters(SGC(), inputs, outputs) == sgc


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("out_heads", [1, 3])
def test_parameter_counts_by_formula(layers: int, out_heads: int) -> None:
    def dense_layers(width: int) -> int:
        return sum((a + 1) * b for a, b in pairwise([100, *[width] * (layers - 1), 7]))

    below = 100 if layers == 1 else 64
    hidden = (100 * 64 + 2 * 64 if layers > 1 else 0) + max(layers - 2, 0) * (64 * 64 + 2 * 64)
    gat = GAT(layers=layers, out_heads=out_heads)
    assert count_parameters(gat, 100, 7) == hidden + out_heads * 7 * (below + 2)
    assert count_parameters(MLP(layers=layers), 100, 7) == dense_layers(64)
    assert count_parameters(GCN(layers=layers), 100, 7) == dense_layers(16)
    assert count_parameters(GraphSAGE(layers=layers), 100, 7) == 2 * dense_layers(32)
    convolutions = 2 * (101 * 16 + (layers - 1) * 17 * 16)
    assert count_parameters(JKNet(layers=layers), 100, 7) == convolutions + (layers * 16 + 1) * 7


def assert_uniform(values: Tensor, limit: float) -> None:
    """Assert that values are within the limits, reach them, and have the spread of a uniform distribution."""
    n = values.numel()
    assert float(values.abs().max()) <= limit
    assert float(values.max()) > limit * (1 - 20 / n)
    assert float(values.min()) < -limit * (1 - 20 / n)
    # Five standard errors; the square of a uniform draw has the mean 1/3 and the variance 4/45.
    assert abs(float(values.double().mean())) < 5 * limit / math.sqrt(3 * n)
    assert abs(float((values.double() / limit).square().mean()) - 1 / 3) < 5 * math.sqrt(4 / 45 / n)


def assert_normal(values: Tensor, deviation: float) -> None:
    z, n = values.double().flatten() / deviation, values.numel()
    assert abs(float(z.mean())) < 5 / math.sqrt(n)
    assert abs(float(z.square().mean()) - 1) < 5 * math.sqrt(2 / n)
    assert abs(float((z.abs() < 1).double().mean()) - 0.6827) < 5 * math.sqrt(0.6827 * 0.3173 / n)


def test_fresh_weights_of_graphsage() -> None:
    p = GraphSAGE(hidden=400).parameters(500, 300, Draw(1))
    for layer, inputs, outputs in ((0, 500, 400), (1, 400, 300)):
        for end in ("self", "neighbours"):
            assert_uniform(p[f"{layer}.{end}.weight"], math.sqrt(2) * math.sqrt(6 / (inputs + outputs)))
            assert_uniform(p[f"{layer}.{end}.bias"], 1 / math.sqrt(inputs))
        assert not torch.equal(p[f"{layer}.self.weight"], p[f"{layer}.neighbours.weight"])


def test_fresh_weights_of_jknet() -> None:
    p = JKNet(hidden=400).parameters(500, 300, Draw(1))
    assert_uniform(p["0.self.weight"], math.sqrt(2) * math.sqrt(6 / 900))
    assert_uniform(p["1.neighbours.weight"], math.sqrt(2) * math.sqrt(6 / 800))
    assert_uniform(p["1.neighbours.bias"], 1 / math.sqrt(400))
    assert_uniform(p["out.weight"], 1 / math.sqrt(800))
    assert_uniform(p["out.bias"], 1 / math.sqrt(800))


def test_fresh_weights_of_gat() -> None:
    p = GAT(hidden=40, heads=30, out_heads=20).parameters(60, 90, Draw(1))
    assert [tuple(p[f"{layer}.weight"].shape) for layer in (0, 1)] == [(60, 30, 40), (1200, 20, 90)]
    assert_normal(p["0.weight"], math.sqrt(2) * math.sqrt(2 / (60 + 1200)))
    assert_normal(p["1.weight"], math.sqrt(2) * math.sqrt(2 / (1200 + 1800)))
    for end in ("left", "right"):
        assert_normal(p[f"0.{end}"], math.sqrt(2) * math.sqrt(2 / (31 * 40)))  # as in torch for the shape (1, 30, 40)
        assert_normal(p[f"1.{end}"], math.sqrt(2) * math.sqrt(2 / (21 * 90)))


@pytest.mark.parametrize(("model", "prefix"), [(SGC(), ""), (GCN(layers=1), "0."), (GCN(hidden=300), "0.")])
def test_fresh_weights_of_sgc_and_gcn(model: Model, prefix: str) -> None:
    p = model.parameters(500, 300, Draw(1))
    assert_uniform(p[f"{prefix}weight"], math.sqrt(6 / 800))
    assert not p[f"{prefix}bias"].any()


def test_fresh_weights_of_the_mlp_are_those_of_torch() -> None:
    p = MLP(hidden=400).parameters(500, 300, Draw(1))
    for layer, inputs, outputs in ((0, 500, 400), (1, 400, 300)):
        limit = float(np.float32(1 / math.sqrt(inputs)))  # as torch stores it
        assert_uniform(p[f"{layer}.weight"], limit)
        assert_uniform(p[f"{layer}.bias"], limit)
        torch_layer = torch.nn.Linear(inputs, outputs)
        assert_uniform(torch_layer.weight.detach(), limit)
        assert_uniform(torch_layer.bias.detach(), limit)


@every_model
def test_a_seed_is_a_draw(model: Model) -> None:
    before = torch.get_rng_state()
    one, again, other = (model.parameters(INPUTS, OUTPUTS, Draw(*seed)) for seed in ((1, 2), (1, 2), (1, 3)))
    assert torch.equal(torch.get_rng_state(), before), "the draw must not depend on what others draw"
    assert one.keys() == again.keys() == other.keys()
    drawn = [name for name, value in one.items() if value.any()]
    assert any("weight" in name for name in drawn)
    for name in one:
        assert torch.equal(one[name], again[name])
        assert (name not in drawn) or not torch.isclose(one[name], other[name]).any(), name


# --- where dropout stands --------------------------------------------------------------------------------------------


def identity(model: Model, width: int) -> dict[str, Tensor]:
    """Return parameters with which each layer returns its input, apart from sums over neighbours."""
    p = {name: torch.zeros_like(value) for name, value in model.parameters(width, width, Draw(0)).items()}
    for name, value in p.items():
        if name.endswith("weight") and "neighbours" not in name:
            value.copy_(torch.eye(width).repeat(len(value) // width, 1).reshape(value.shape))
    return p


def positive(width: int, stored: str, kernels: Any) -> tuple[Tensor, Matrix]:
    values = 1 + torch.rand(LONELY.n, width, generator=torch.Generator().manual_seed(1))
    return values, store(values, stored, kernels)


@pytest.mark.parametrize("stored", ["dense", "sparse"])
@both_kernels
def test_graphsage_drops_raw_features(stored: str, kernels: Any) -> None:
    values, x = positive(20, stored, kernels)
    model = GraphSAGE(layers=1)
    logits, _ = model.forward(identity(model, 20), batch_of(LONELY, x, kernels), Noise(3, kernels=kernels))
    keep = Noise(3).keep(values.numel(), 0.5).view_as(values)
    assert 0.3 < float(keep.float().mean()) < 0.7
    assert_close(logits, values * keep * 2)


@however_stored
@both_kernels
@pytest.mark.parametrize("model", [GCN(layers=1), MLP(layers=1), SGC()], ids=repr)
def test_others_of_one_layer_drop_nothing(model: Model, stored: str, kernels: Any) -> None:
    values, x = positive(20, stored, kernels)
    batch, p = batch_of(LONELY, x, kernels), identity(model, 20)
    logits, _ = model.forward(p, batch, Noise(3, kernels=kernels))
    assert torch.equal(logits, model.forward(p, batch, None)[0])
    assert_close(logits, values)


@however_stored
@both_kernels
@pytest.mark.parametrize("model", [GCN(hidden=20), MLP(hidden=20), JKNet(hidden=20, layers=1)], ids=repr)
def test_hidden_layers_are_dropped_once(model: Model, stored: str, kernels: Any) -> None:
    """If the features were dropped too, there would be entries of four times the value."""
    values, x = positive(20, stored, kernels)
    batch, p = batch_of(LONELY, x, kernels), identity(model, 20)
    logits, hidden = model.forward(p, batch, Noise(3, kernels=kernels))
    kept = values * Noise(3).keep(values.numel(), 0.5).view_as(values) * 2
    assert_close(hidden, kept)
    assert_close(logits, kept)
    logits, hidden = model.forward(p, batch, None)
    assert_close(hidden, values)
    assert_close(logits, values)


@both_kernels
def test_graphsage_drops_each_layer_with_new_noise(kernels: Any) -> None:
    values, x = positive(20, "sparse", kernels)
    model, noise = GraphSAGE(hidden=20), Noise(3)
    logits, hidden = model.forward(identity(model, 20), batch_of(LONELY, x, kernels), Noise(3, kernels=kernels))
    for _ in range(2):
        values = values * noise.keep(values.numel(), 0.5).view_as(values) * 2
    assert_close(hidden, values)
    assert_close(logits, values)
    assert sorted({round(float(share)) for share in (logits / positive(20, "dense", kernels)[0]).unique()}) == [0, 4]


@pytest.mark.parametrize("stored", ["dense", "sparse"])
@both_kernels
def test_gat_drops_features_and_attention(stored: str, kernels: Any) -> None:
    values, x = positive(20, stored, kernels)
    model = GAT(layers=1, dropout=0.5)
    logits, _ = model.forward(identity(model, 20), batch_of(LONELY, x, kernels), Noise(3, kernels=kernels))
    noise = Noise(3)
    kept = values * noise.keep(values.numel(), 0.5).view_as(values) * 2
    attended = noise.keep(LONELY.n, 0.5)[:, None] * 2
    assert 0 < int(attended.count_nonzero()) < LONELY.n
    assert_close(logits, kept * attended)


class Recorder(Noise):
    """Noise that records the number of entries of each call."""

    def __init__(self, *seed: int, kernels: Any = "numba") -> None:
        super().__init__(*seed, kernels=kernels)
        self.asked: list[tuple[int, float]] = []

    def keep(self, n: int, p: float) -> Tensor:
        self.asked.append((n, p))
        return super().keep(n, p)

    def dropout(self, n: int, p: float) -> Any:
        self.asked.append((n, p))
        return super().dropout(n, p)


@both_kernels
def test_dropout_is_drawn_where_it_is_needed_and_nowhere_else(kernels: Any) -> None:
    case = fixed(rows=9)
    x = features(case, INPUTS, stored="sparse", kernels=kernels)
    stored, entries, some = len(x.values), int(case.adjacency.sum()), int(case.adjacency[:9].sum())
    asked: list[tuple[Model, list[tuple[int, float]]]] = [
        (MLP(hidden=6), [(9 * 6, 0.5)]),
        (GCN(hidden=6, dropout=0.3), [(14 * 6, 0.3)]),
        (GraphSAGE(hidden=6), [(stored, 0.5), (14 * 6, 0.5)]),
        (GAT(hidden=3, heads=4), [(stored, 0.6), (entries * 4, 0.6), (14 * 12, 0.6), (some, 0.6)]),
        (SGC(), []),
        (JKNet(hidden=6), [(14 * 6, 0.5), (9 * 6, 0.5)]),
    ]
    for model, expected_calls in asked:
        noise = Recorder(1, kernels=kernels)
        model.forward(parameters(model, INPUTS, OUTPUTS), batch_of(case, x, kernels), noise)
        assert noise.asked == expected_calls, model


@every_model
@both_kernels
def test_without_noise_nothing_is_dropped(model: Any, kernels: Any) -> None:
    p = parameters(model, INPUTS, OUTPUTS)
    undropped = model if isinstance(model, SGC) else replace(model, dropout=0.0)
    for stored in ("dense", "sparse", "mixed"):
        case = fixed(rows=9)
        batch = batch_of(case, features(case, INPUTS, stored=stored, kernels=kernels), kernels)
        logits, hidden = model.forward(p, batch, None)
        for noise in (None, Noise(1, kernels=kernels)):
            found = undropped.forward(p, batch, noise)
            assert torch.equal(found[0], logits)
            assert torch.equal(found[1], hidden)


@both_kernels
def test_dropout_before_or_after_the_rectifier_is_the_same(kernels: Any) -> None:
    """The authors apply it before the rectifier in the perceptron; we apply it after."""
    x = fixed().normal(40, 30)
    one, other = (x.clone().requires_grad_() for _ in range(2))
    before = torch.relu(drop(one, 0.5, Noise(4, kernels=kernels)))
    after = relu_drop(other, 0.5, Noise(4, kernels=kernels))
    assert torch.equal(before, after)
    assert bool((before > 0).any())
    gradient = fixed().normal(40, 30)
    before.backward(gradient)
    after.backward(gradient)
    assert torch.equal(one.grad, other.grad)


# --- growth ----------------------------------------------------------------------------------------------------------


@every_model
def test_growth_keeps_what_was_and_draws_the_rest(model: Model) -> None:
    old, fresh = parameters(model, 6, 3, 1), parameters(model, 9, 5, 2)
    before, drawn = ({name: value.clone() for name, value in p.items()} for p in (old, fresh))
    grown = carry_over(old, fresh)
    assert grown.keys() == fresh.keys()
    for name, value in grown.items():
        assert value.shape == fresh[name].shape
        kept = torch.zeros(value.shape, dtype=torch.bool)
        kept[tuple(slice(size) for size in old[name].shape)] = True
        assert torch.equal(value[kept], old[name].flatten())
        assert torch.equal(value[~kept], fresh[name][~kept])
        value.zero_()
        assert torch.equal(old[name], before[name]), "the old parameters must stay"
        assert torch.equal(fresh[name], drawn[name]), "the fresh ones too"


def test_growth_holds_no_gradients() -> None:
    old, fresh = with_gradients(parameters(GCN(), 6, 3, 1)), parameters(GCN(), 9, 5, 2)
    assert not any(value.requires_grad for value in carry_over(old, fresh).values())


@every_model
@however_stored
def test_old_classes_keep_their_logits(model: Model, stored: str) -> None:
    """Vertices without the new features keep their logits for known classes."""
    case = fixed()
    x = features(case, 6, stored="dense", kernels="numba")
    wider: Any = torch.cat([x, torch.zeros(case.n, 3)], 1)
    if stored == "sparse":
        x, wider = (SparseMatrix.of(sparse.csr_array(value.numpy())) for value in (x, wider))
    old = parameters(model, 6, 3, 1)
    grown = carry_over(old, parameters(model, 9, 5, 2))
    if isinstance(model, GAT):
        # The last layer's attention reads the outputs of all classes, including new ones. With zero attention to those,
        # it must be unchanged; it would not be if a known class lost its own (A5 of docs/research/errata.md).
        for end in ("left", "right"):
            grown[f"{model.layers - 1}.{end}"][:, 3:] = 0
    before, _ = model.forward(old, batch_of(case, x, "numba"), None)
    after, _ = model.forward(grown, batch_of(case, wider, "numba"), None)
    assert after.shape == (case.n, 5)
    assert_close(after[:, :3], before)
    assert float((after[:, 3:]).abs().min()) > 0


@pytest.mark.parametrize("out_heads", [1, 2])
def test_growth_keeps_the_attention_of_known_classes(out_heads: int) -> None:
    """A5 of docs/research/errata.md: the authors' code redraws it, and takes rows of another head when there are several."""
    model = GAT(out_heads=out_heads)
    old, fresh = model.parameters(6, 3, Draw(1)), model.parameters(6, 5, Draw(2))
    grown = carry_over(old, fresh)
    for name in ("1.left", "1.right", "1.weight"):
        assert torch.equal(grown[name][..., :3], old[name])
        assert torch.equal(grown[name][..., 3:], fresh[name][..., 3:])
    for name in ("0.left", "0.right", "0.weight"):
        assert torch.equal(grown[name], old[name])


@every_model
@pytest.mark.parametrize(("inputs", "outputs"), [(5, 3), (6, 2), (9, 2)])
def test_shrinking_is_refused(model: Model, inputs: int, outputs: int) -> None:
    with pytest.raises(InputError, match="had the shape"):
        carry_over(parameters(model, 6, 3), parameters(model, inputs, outputs))


def test_another_number_of_axes_is_refused() -> None:
    with pytest.raises(InputError, match=r"'weight' had the shape \(2,\) and now has \(2, 2\)"):
        carry_over({"weight": torch.ones(2)}, {"weight": torch.ones(2, 2)})


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [MLP, GCN, GraphSAGE, GAT, JKNet])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden", 0),
        ("hidden", -1),
        ("hidden", 1.5),
        ("layers", 0),
        ("layers", True),
        ("layers", "2"),
        ("dropout", 1),
        ("dropout", 1.5),
        ("dropout", -0.1),
        ("dropout", math.nan),
    ],
)
def test_settings_that_make_no_model_are_refused(kind: type[Model], name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"(?i)^{name} is {value!r}\..*set {name} to"):
        kind(**{name: value})


@pytest.mark.parametrize(
    ("kind", "name"), [(SGC, "hops"), (GAT, "heads"), (GAT, "out_heads")], ids=["hops", "heads", "out_heads"]
)
@pytest.mark.parametrize("value", [0, -2, 1.0, True, None])
def test_so_are_those_of_some_models_only(kind: type[Model], name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"^{name} is "):
        kind(**{name: value})


@every_kind
def test_models_are_values(model: Any) -> None:
    assert model == type(model)()
    assert hash(model) == hash(type(model)())
    with pytest.raises(AttributeError):
        model.hidden = 3


@every_kind
def test_by_default_each_step_reads_all_and_there_is_no_closed_form(model: Model) -> None:
    batch = batch_of(LONELY, torch.ones(12, 2), "torch")
    batches = model.batches(batch, np.random.default_rng(0))
    assert [next(batches) is batch for _ in range(3)] == [True] * 3
    assert not model.solved


# --- what is not a number --------------------------------------------------------------------------------------------


@every_model
@both_kernels
def test_nan_in_features_is_not_hidden(model: Model, kernels: Any) -> None:
    """One vertex has a NaN: its logits are NaN, and those of an unconnected vertex are not."""
    case = Case(6, frozenset({(0, 1), (1, 2)}), rows=6)
    values = 1 + torch.rand(6, INPUTS, generator=torch.Generator().manual_seed(1))
    values[1, 4] = torch.nan
    p = parameters(model, INPUTS, OUTPUTS)
    heard = () if isinstance(model, MLP) else (0, 2)
    for stored, seed in product(("dense", "sparse", "mixed"), (None, 0, 1, 2)):
        x = store(values, stored, kernels)
        noise = None if seed is None else Noise(seed, kernels=kernels)
        logits, hidden = model.forward(p, batch_of(case, x, kernels), noise)
        assert logits[1].isnan().all()
        assert hidden[1].isnan().any()
        assert not logits[3:].isnan().any()
        assert all(logits[vertex].isnan().any() for vertex in heard)


# --- the baseline ----------------------------------------------------------------------------------------------------


def batch_without_features(rows: int) -> Batch:
    return batch_of(replace(LONELY, rows=rows), torch.full((12, 2), torch.nan), "torch")


def test_most_frequent_predicts_the_most_frequent_class() -> None:
    model = MostFrequent()
    p = model.closed_form({}, labels([2, 7, 0, 1]))
    assert p["shares"].tolist() == pytest.approx([0.2, 0.7, 0, 0.1])
    for rows in (0, 5, 12):
        logits, hidden = model.forward(p, batch_without_features(rows), Noise(1))
        assert logits.shape == (rows, 4)
        assert len(hidden) == rows
        assert logits.argmax(1).tolist() == [1] * rows
        assert bool(logits.isfinite().all()), "a class that is not there is unlikely, not impossible"
    assert_close(logits.softmax(1), p["shares"].expand(12, -1), tolerance=1e-6)


def test_most_frequent_before_it_has_seen_anything() -> None:
    p = MostFrequent().parameters(100, 4, Draw(1))
    assert p["shares"].tolist() == [0.25] * 4
    assert count_parameters(MostFrequent(), 100, 4) == 4
    assert MostFrequent().parameters(0, 0, Draw(1))["shares"].shape == (0,)


def test_most_frequent_grows_by_its_closed_form() -> None:
    model = MostFrequent()
    before, after = (model.closed_form({}, labels(counts)) for counts in ([3, 1], [3, 1, 12]))
    grown = carry_over(before, after)
    assert grown["shares"].shape == after["shares"].shape
    assert model.forward(after, batch_without_features(1), None)[0].argmax(1).tolist() == [2]


def test_a_subclass_that_overrides_forward_is_trained_by_it() -> None:
    class Halved(GraphSAINT):
        def forward(self, p: Any, batch: Batch, noise: Any) -> tuple[Tensor, Tensor]:
            logits, hidden = super().forward(p, batch, noise)
            return logits / 2, hidden

    batch = Batch(torch.eye(3), Neighbours.of(np.array([0, 1, 2, 2]), np.array([1, 0])), 3, torch.tensor([0, 1, 0]))
    p = GraphSAINT().parameters(3, 2, Draw(0))
    torch.testing.assert_close(2 * Halved().readout(p, batch, None).logits, GraphSAINT().readout(p, batch, None).logits)
    with pytest.raises(TypeError, match="override hidden_layer and output_layer"):
        type("Wrong", (GraphSAGE,), {"forward": Halved.forward})
