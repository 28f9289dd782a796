"""The regularisers against the formulas of their papers, written down again for small models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from torch import Tensor

from evergraph import InputError, LifelongLearner, names, tasks
from evergraph.datasets import synthetic
from evergraph.detect import GDOC, Softmax
from evergraph.learning.minibatch import MiniBatches
from evergraph.learning.regularise import Lesson, Regulariser, State
from evergraph.names import described, rebuilt
from evergraph.nn import GAT, GCN, MLP, Batch, GraphSAGE, GraphSAINT, JKNet, Model, Neighbours, Noise
from evergraph.nn.base import Draw, Parameters
from evergraph_baselines.regularisers import EWC, GEM, MAS, TWP, ContinualGNN, LwF
from evergraph_baselines.regularisers.gem import projected
from evergraph_baselines.regularisers.importance import WeightImportance
from evergraph_baselines.regularisers.twp import edge_weights

pytestmark = pytest.mark.usefixtures("one_thread")

LINEAR = MLP(layers=1, dropout=0.0)
ALL: list[Regulariser] = [EWC(), MAS(), TWP(), LwF(), GEM(), ContinualGNN()]
VERTICES, WORDS, CLASSES = 9, 4, 3


def lesson(
    model: Model = LINEAR,
    seed: int = 0,
    before: Parameters | None = None,
    words: int = WORDS,
    classes: int = CLASSES,
) -> Lesson:
    """A random task: nine vertices in a ring with a chord; two of them have no label."""
    rng = np.random.default_rng(seed)
    ring = np.zeros((VERTICES, VERTICES))
    for one in range(VERTICES):
        ring[one, (one + 1) % VERTICES] = ring[(one + 1) % VERTICES, one] = 1
    ring[0, 4] = ring[4, 0] = 1
    path = sparse.csr_array(ring)
    targets = torch.from_numpy(rng.integers(0, classes, VERTICES))
    targets[[2, 7]] = -1
    x = torch.from_numpy(rng.normal(size=(VERTICES, words)).astype(np.float32))
    batch = Batch(x, Neighbours.of(path.indptr, path.indices, kernels="torch"), VERTICES, targets)
    counts = torch.bincount(targets[targets >= 0], minlength=classes)
    weights = model.parameters(words, classes, Draw(seed, 1))
    return Lesson(model, Softmax(), weights, batch, counts, (seed, 0), before)


def of(one: Lesson) -> Batch:
    assert isinstance(one.batch, Batch)
    return one.batch


def arrays(one: Lesson) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Features, one-hot targets and probabilities of the labelled vertices of a linear model, in numpy."""
    rows = of(one).labelled.numpy()
    x = np.asarray(of(one).x, np.float64)[rows]
    weight, bias = (one.weights[f"0.{part}"].numpy().astype(np.float64) for part in ("weight", "bias"))
    powers = np.exp(x @ weight + bias)
    classes = np.eye(weight.shape[1])[of(one).targets.numpy()[rows]]
    return x, classes, powers / powers.sum(1, keepdims=True)


def added(regulariser: Regulariser, one: Lesson, state: State) -> Parameters | None:
    """What the hook adds to gradients of 1."""
    hook = regulariser.start(one, state)
    if hook is None:
        return None
    for value in one.trained.values():
        value.requires_grad_()
        value.grad = torch.ones_like(value)
    hook(of(one), Noise(1))
    found = {name: value.grad - 1 for name, value in one.trained.items() if value.grad is not None}
    for value in one.trained.values():
        value.requires_grad_(False)
    return found


def moved(one: Lesson, seed: int) -> Lesson:
    """The same task with weights as after some training."""
    draw = Draw(seed, 2)
    return replace(
        one, weights={name: value + draw.normal(*value.shape, deviation=0.3) for name, value in one.weights.items()}
    )


# --- importance of the weights ---------------------------------------------------------------------------------------


def test_ewc_estimates_the_diagonal_of_the_fisher_information() -> None:
    one = lesson()
    x, _, p = arrays(one)
    found = EWC(draws=2_000).importance(one)
    # The variance of the score of a softmax: of weight (i, c), the mean of x_i² p_c (1 - p_c).
    np.testing.assert_allclose(found["0.weight"], (x**2).T @ (p * (1 - p)) / len(x), rtol=0.12)
    np.testing.assert_allclose(found["0.bias"], (p * (1 - p)).mean(0), rtol=0.12)
    few, again, other = (EWC().importance(replace(one, seed=seed))["0.bias"] for seed in ((0, 0), (0, 0), (0, 1)))
    assert torch.equal(few, again)
    assert not torch.equal(few, other)


def test_mas_with_a_group_for_each_vertex_is_the_mean_size_of_the_gradients() -> None:
    one = lesson(GraphSAGE(hidden=3, dropout=0.0))
    leaves = one.leaves()
    logits = one.model.forward(leaves, of(one), None)[0]
    wanted = {name: torch.zeros_like(value) for name, value in leaves.items()}
    for row in of(one).labelled:
        squared = logits[row].square().sum()
        for name, part in zip(leaves, torch.autograd.grad(squared, [*leaves.values()], retain_graph=True), strict=True):
            wanted[name] += part.abs() / len(of(one).labelled)
    for groups in (len(of(one).labelled), 1_000):
        found = MAS(groups=groups).importance(one)
        for name, value in wanted.items():
            torch.testing.assert_close(found[name], value)
    whole = MAS(groups=1).importance(one)
    together = torch.autograd.grad(logits[of(one).labelled].square().sum(), leaves["1.self.weight"])[0]
    torch.testing.assert_close(whole["1.self.weight"], together.abs() / len(of(one).labelled))


def test_twp_squares_the_gradient_of_the_loss() -> None:
    one = lesson()
    x, classes, p = arrays(one)
    found = TWP(loss=3.0, topology=0.0).importance(one)
    np.testing.assert_allclose(found["0.weight"], 3 * (x.T @ (p - classes) / len(x)) ** 2, rtol=1e-4)
    np.testing.assert_allclose(found["0.bias"], 3 * (p - classes).mean(0) ** 2, rtol=1e-4)


def attention(one: Lesson, p: Parameters) -> Tensor:
    """Attention of the first layer of a GAT as [vertex, neighbour, head]; 0 if there is no edge."""
    x, projection = torch.as_tensor(of(one).x), p["0.weight"]
    z = torch.einsum("nf,fhw->nhw", x, projection)
    left, right = ((z * p[f"0.{end}"]).sum(2) for end in ("left", "right"))
    scores = torch.nn.functional.leaky_relu(left[None, :, :] + right[:, None, :], 0.2)
    return torch.softmax(scores.masked_fill(~edges(one)[:, :, None], -torch.inf), 1)


def similarity(one: Lesson, p: Parameters) -> Tensor:
    """The softmax over the neighbours of h_j · tanh(h_i), of the vectors below the output layer."""
    hidden = one.model.forward(p, of(one), None)[1]
    scores = torch.nn.functional.leaky_relu(hidden.tanh() @ hidden.T, 0.2)
    return torch.softmax(scores.masked_fill(~edges(one), -torch.inf), 1)


def edges(one: Lesson) -> Tensor:
    near = torch.eye(VERTICES, dtype=torch.bool)
    near[tuple(of(one).graph.edge_index)] = True
    return near


@pytest.mark.parametrize(
    ("model", "dense"),
    [(GAT(hidden=2, heads=3, dropout=0.5), attention), (GraphSAGE(hidden=3), similarity), (GCN(hidden=3), similarity)],
    ids=["gat", "sage", "gcn"],
)
def test_twp_squares_the_gradient_of_the_weights_of_the_edges(
    model: Model, dense: Callable[[Lesson, Parameters], Tensor]
) -> None:
    one = lesson(model)
    leaves = one.leaves()
    matrix = dense(one, leaves)
    found = edge_weights(one, of(one), leaves)
    centres, near = edges(one).nonzero().T
    torch.testing.assert_close(found, matrix[centres, near])
    wanted = torch.autograd.grad(matrix.norm(), [*leaves.values()], allow_unused=True, materialize_grads=True)
    topology, both = TWP(0.0, 7.0).importance(one), TWP(2.0, 7.0).importance(one)
    for name, value in zip(leaves, wanted, strict=True):
        torch.testing.assert_close(topology[name], 7 * value**2)
        torch.testing.assert_close(both[name], topology[name] + TWP(2.0, 0.0).importance(one)[name])
    assert sum(float(value.sum()) for value in topology.values()) > 0
    assert not any(value.any() for value in TWP(0.0, 7.0).importance(lesson()).values())  # features only


# --- the penalty -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("regulariser", [EWC(5.0), TWP(5.0, 2.0), MAS(5.0)], ids=lambda one: type(one).__name__)
def test_the_penalty_is_the_sum_over_tasks_and_new_rows_are_free(regulariser: WeightImportance) -> None:
    lessons = [
        moved(lesson(seed=1, words=3, classes=2), 1),
        moved(lesson(seed=2), 2),
        moved(lesson(seed=3, words=6), 3),
    ]
    state: State = {}
    assert added(regulariser, lessons[0], state) is None
    for one in lessons:
        state = regulariser.finish(one, state)
    assert all(value.shape == lessons[-1].weights[name.partition("/")[2]].shape for name, value in state.items())
    coming = lesson(seed=4, words=7, classes=5)
    found = added(regulariser, coming, state)
    assert found is not None
    latest = isinstance(regulariser, MAS)
    factor = 2.5 if isinstance(regulariser, EWC) else 5.0 if latest else 1.0
    weights = coming.leaves()
    penalty = torch.zeros(())
    for one in lessons:
        for name, importance in regulariser.importance(one).items():
            rows = tuple(slice(size) for size in importance.shape)
            anchor = (lessons[-1] if latest else one).weights[name][rows]
            penalty = penalty + factor * (importance * (weights[name][rows] - anchor) ** 2).sum()
    for name, value in zip(weights, torch.autograd.grad(penalty, [*weights.values()]), strict=True):
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-5)
        assert value.abs().sum() > 0
    assert not found["0.weight"][6:].any()
    assert not found["0.weight"][:, 3:].any()
    assert not found["0.bias"][3:].any()


def test_weights_without_a_gradient_are_pulled_too() -> None:
    one = moved(lesson(), 1)
    state = EWC(3.0).finish(one, {})
    other = moved(one, 2)
    hook = EWC(3.0).start(other, state)
    assert hook is not None
    hook(of(other), Noise(0))
    for name, value in other.weights.items():
        wanted = 3 * state[f"importance/{name}"] * (value - one.weights[name])
        torch.testing.assert_close(value.grad, wanted)


def test_lwf_adds_the_gradient_of_the_distillation() -> None:
    old = lesson(seed=1, words=3, classes=2).weights
    one = replace(lesson(seed=2, words=5, classes=4), before=old, classes=2)
    found = added(LwF(1.5, temperature=4.0), one, {})
    assert found is not None
    rows = of(one).labelled.numpy()
    x = np.asarray(of(one).x, np.float64)[rows]

    def soft(weights: Parameters, width: int) -> NDArray[Any]:
        logits = x[:, :width] @ weights["0.weight"].numpy().astype(float) + weights["0.bias"].numpy().astype(float)
        powers = np.exp(logits[:, :2] / 4.0)
        return powers / powers.sum(1, keepdims=True)

    difference = (soft(one.weights, 5) - soft(old, 3)) / 4.0 / len(rows)
    np.testing.assert_allclose(found["0.weight"][:, :2], 1.5 * x.T @ difference, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(found["0.bias"][:2], 1.5 * difference.sum(0), rtol=1e-3, atol=1e-6)
    assert not found["0.weight"][:, 2:].any()  # classes that are new
    assert not found["0.bias"][2:].any()
    assert added(LwF(), replace(one, before=None, classes=0), {}) is None


def test_lwf_of_a_sample_is_that_of_its_vertices() -> None:
    """A step on other vertices than the whole window computes their previous answers then."""
    old = lesson(seed=1).weights
    one, other = replace(lesson(seed=2), before=old, classes=3), lesson(seed=3)
    hook = LwF().start(one, {})
    assert hook is not None
    for value in one.weights.values():
        value.requires_grad_()
    hook(of(other), Noise(0))
    weights = {name: value.detach().clone() for name, value in one.weights.items()}
    wanted = added(LwF(), replace(other, weights=weights, before=old, classes=3), {})
    assert wanted is not None
    for name, value in one.weights.items():
        torch.testing.assert_close(value.grad, wanted[name])


def test_continual_gnn_holds_what_the_previous_model_needs_for_the_vertices_that_are_kept() -> None:
    old = lesson(seed=1, words=3, classes=2).weights
    one = replace(lesson(seed=2, words=5, classes=4), before=old, classes=2, kept=5)
    rows = [row for row in of(one).labelled.tolist() if row < 5]
    assert 0 < len(rows) < len(of(one).labelled)
    x = np.asarray(of(one).x, np.float64)[rows]
    weight, bias = np.zeros((5, 4)), np.zeros(4)  # the previous model knows neither new words nor new classes
    weight[:3, :2], bias[:2] = old["0.weight"], old["0.bias"]
    powers = np.exp(x @ weight + bias)
    errors = (powers / powers.sum(1, keepdims=True) - np.eye(4)[of(one).targets.numpy()[rows]]) / len(rows)
    change = one.weights["0.weight"][:3, :2].double().numpy() - weight[:3, :2]
    found = added(ContinualGNN(6.0), one, {})
    assert found is not None
    np.testing.assert_allclose(
        found["0.weight"][:3, :2], 6 * (x[:, :3].T @ errors[:, :2]) ** 2 * change, rtol=2e-3, atol=1e-6
    )
    shift = one.weights["0.bias"][:2].double().numpy() - bias[:2]
    np.testing.assert_allclose(found["0.bias"][:2], 6 * errors.sum(0)[:2] ** 2 * shift, rtol=2e-3, atol=1e-6)
    assert not found["0.weight"][3:].any()
    assert not found["0.weight"][:, 2:].any()


def test_continual_gnn_needs_a_past_and_kept_vertices_and_refuses_mini_batches() -> None:
    one = lesson()
    assert ContinualGNN().start(replace(one, kept=5), {}) is None
    assert ContinualGNN().start(replace(one, before=one.weights, classes=3), {}) is None
    assert ContinualGNN().finish(one, {}) == {}
    source: Any = None
    batches = MiniBatches(source, np.zeros(3, np.int32), 2, (2,))
    with pytest.raises(InputError, match="continual-gnn needs a window that is trained as a whole"):
        ContinualGNN().start(replace(one, before=one.weights, classes=3, kept=5, batch=batches), {})
    with pytest.raises(InputError, match="needs vertices that are older than the window"):
        LifelongLearner(regulariser=ContinualGNN())


# --- gradient episodic memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_the_projection_solves_the_quadratic_program(seed: int, margin: float) -> None:
    rng = np.random.default_rng(seed)
    gradient, past = rng.normal(size=6), rng.normal(size=(3, 6))
    past[0] -= gradient  # at least one constraint is violated
    found = projected(torch.from_numpy(gradient), torch.from_numpy(past), margin).numpy()

    def dual(v: NDArray[Any]) -> float:
        return float(0.5 * v @ past @ past.T @ v + (past @ gradient) @ v)

    best = minimize(dual, np.full(3, 1.0), bounds=[(margin, None)] * 3, tol=1e-12).x
    np.testing.assert_allclose(found, gradient + past.T @ best, atol=1e-4)
    if margin == 0:  # the primal problem: the nearest vector that fulfils all constraints
        nearest = minimize(
            lambda g: float(((g - gradient) ** 2).sum()),
            np.zeros(6),
            constraints={"type": "ineq", "fun": lambda g: past @ g},
            method="SLSQP",
            tol=1e-12,
        ).x
        np.testing.assert_allclose(found, nearest, atol=1e-4)
        assert (past @ found >= -1e-6).all()


def test_a_gradient_that_violates_nothing_stays_and_equal_constraints_are_no_problem() -> None:
    gradient = torch.tensor([1.0, 2.0])
    assert torch.equal(projected(gradient, torch.tensor([[1.0, 0.0]]), 0.5), gradient)
    found = projected(gradient, torch.tensor([[-1.0, 0.0]] * 3 + [[0.0, 0.0]]), 0.0)
    torch.testing.assert_close(found, torch.tensor([0.0, 2.0]), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("most", "groups"), [(5, [[0, 1], [3], [4]]), (2, [[0, 1, 3], [4]]), (1, [[0, 1, 3, 4]])])
def test_gem_has_a_constraint_for_each_period_of_the_vertices_that_are_kept(most: int, groups: list[list[int]]) -> None:
    times = np.array([2001, 2001, 2003, 2003, 2007])
    one = replace(lesson(seed=5), kept=5, kept_times=times)
    x, classes, p = arrays(one)
    rows = of(one).labelled.tolist()

    def slope(chosen: list[int]) -> NDArray[Any]:
        places = [rows.index(row) for row in chosen]
        weight = x[places].T @ (p - classes)[places] / len(places)
        return np.concatenate([weight.ravel(), (p - classes)[places].mean(0)])

    current = slope([row for row in rows if row >= 5])
    past = np.stack([slope(group) for group in groups])
    wanted = projected(torch.from_numpy(current), torch.from_numpy(past), 0.5).numpy()
    assert (past @ current < 0).any()
    found = added(GEM(most=most), one, {})
    assert found is not None
    mine = np.concatenate([(found[name] + 1).flatten() for name in ("0.weight", "0.bias")])
    np.testing.assert_allclose(mine, wanted, rtol=1e-3, atol=1e-5)


def test_gem_waits_for_vertices_that_are_kept_and_refuses_mini_batches() -> None:
    one = lesson()
    assert GEM().start(one, {}) is None
    assert GEM().start(replace(one, kept=VERTICES, kept_times=np.zeros(VERTICES, np.int64)), {}) is None
    assert GEM().finish(one, {}) == {}
    source: Any = None
    with pytest.raises(InputError, match="gem needs a window that is trained as a whole"):
        GEM().start(replace(one, batch=MiniBatches(source, np.zeros(3, np.int32), 2, (2,))), {})


def test_gem_uses_the_detectors_loss_and_the_noise_of_the_step() -> None:
    model = GraphSAGE(hidden=30, dropout=0.5)
    one = replace(lesson(model, seed=3), detector=GDOC(), kept=5, kept_times=np.zeros(5, np.int64))
    first, again = (added(GEM(), one, {}) for _ in range(2))
    other = added(GEM(), replace(one, detector=Softmax()), {})
    assert first is not None
    assert again is not None
    assert other is not None
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not torch.equal(first["0.self.weight"], other["0.self.weight"])


@dataclass(frozen=True)
class OldestAreKept(GEM):
    """Treats the oldest third of the window as vertices that are kept, of two periods."""

    requires_memory: ClassVar[bool] = False

    def start(self, lesson: Lesson, state: State) -> Any:
        count = of(lesson).rows // 3
        return super().start(replace(lesson, kept=count, kept_times=np.arange(count) % 2), state)


@pytest.mark.parametrize("model", [GAT(hidden=3, heads=2), GraphSAINT(JKNet(hidden=4), size=60)], ids=["gat", "saint"])
def test_a_learner_trains_with_projected_gradients(model: Model) -> None:
    graph = synthetic(vertices=150, times=5, classes=3, new_classes=1, seed=1)
    found = []
    for regulariser in (OldestAreKept(), OldestAreKept(), None):
        one = LifelongLearner(model, Softmax(), steps=5, regulariser=regulariser)
        for task in tasks(graph, 2, first=3):
            one.adapt(task)
        found.append(one.weights_ or {})
    first, again, plain = found
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert any(not torch.equal(value, plain[name]) for name, value in first.items())
    assert all(value.isfinite().all() for value in first.values())


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("regulariser", ALL, ids=lambda one: type(one).__name__)
def test_all_are_registered_described_and_rebuilt(regulariser: Regulariser) -> None:
    name = {ContinualGNN: "continual-gnn"}.get(type(regulariser), type(regulariser).__name__.lower())
    assert names.load("regulariser", name) is type(regulariser)
    assert names.build("regulariser", name) == regulariser
    assert described(regulariser)["name"] == name
    assert rebuilt(described(regulariser), "regulariser") == regulariser
    assert names.build("regulariser", f"{name}:3") != regulariser


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (EWC, {"strength": -1}),
        (EWC, {"draws": 0}),
        (MAS, {"groups": 1.5}),
        (TWP, {"loss": float("nan")}),
        (TWP, {"topology": -1}),
        (LwF, {"temperature": 0}),
        (GEM, {"most": 0}),
        (GEM, {"margin": -0.5}),
        (ContinualGNN, {"strength": -1}),
    ],
)
def test_wrong_settings_are_refused(kind: type[Regulariser], wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"the argument {next(iter(wrong))} is"):
        kind(**wrong)
