"""IsoMax+: distances compared with numpy, the loss with torch's, and learning over several tasks."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from evergraph import EvergraphError, EvolvingGraph, InputError, LifelongLearner, Task, evaluate, tasks
from evergraph.datasets import synthetic
from evergraph.detect import GDOC, IsoMax, Outputs, Softmax, check_detector
from evergraph.names import DETECTORS, described, load, rebuilt
from evergraph.nn import (
    GAT,
    GCN,
    MLP,
    SGC,
    Custom,
    Draw,
    GraphSAGE,
    GraphSAINT,
    IsoMaxOutputs,
    JKNet,
    Model,
    MostFrequent,
    Noise,
    carry_over,
    count_parameters,
)
from evergraph.nn.base import Readout, active_features
from evergraph.nn.isomax import distance_logits
from tests.nn.cases import KERNELS, assert_close, batch_of, expected, features, fixed, parameters
from tests.nn.cases import MODELS as SMALL

MODELS: list[Model] = [
    GraphSAGE(hidden=8),
    GAT(hidden=4, heads=2),
    GCN(hidden=8),
    SGC(),
    JKNet(hidden=8),
    GraphSAINT(JKNet(hidden=8)),
    MLP(hidden=8),
]
WIDTH = 5

every_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
pytestmark = pytest.mark.usefixtures("one_thread")


def brute_force(vectors: Any, prototypes: Any, scale: float) -> np.ndarray:
    """Compute logits by definition; a vector of zeros stays zero."""
    found = np.empty((len(vectors), len(prototypes)))
    for row, vector in enumerate(np.asarray(vectors, np.float64)):
        for column, prototype in enumerate(np.asarray(prototypes, np.float64)):
            lengths = [math.sqrt(sum(x * x for x in part)) or 1.0 for part in (vector, prototype)]
            parts = [(x / lengths[0] - y / lengths[1]) ** 2 for x, y in zip(vector, prototype, strict=True)]
            found[row, column] = -abs(scale) * math.sqrt(sum(parts))
    return found


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


# --- distances -------------------------------------------------------------------------------------------------------


@given(
    n=st.integers(0, 6),
    classes=st.integers(1, 5),
    width=st.integers(1, 40),
    scale=st.floats(-3, 3),
    size=st.sampled_from([1e-10, 1e-3, 1.0, 1e6, 1e30]),
    seed=st.integers(0, 10**6),
)
def test_logits_are_those_of_the_formula(
    n: int, classes: int, width: int, scale: float, size: float, seed: int
) -> None:
    vectors, prototypes = size * normal(n, width, seed=seed), normal(classes, width, seed=seed + 1)
    vectors[2:3] = 0
    vectors[3:4] = prototypes[0]
    vectors[4:5] = -2 * prototypes[-1]
    reference = brute_force(vectors, prototypes, scale)
    exact = distance_logits(vectors, prototypes, torch.tensor([scale], dtype=torch.float64))
    single = distance_logits(vectors.float(), prototypes.float(), torch.tensor([scale]))
    assert single.dtype == torch.float32
    np.testing.assert_allclose(exact, reference, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(single, reference, rtol=1e-5, atol=2e-6)
    assert (single <= 0).all()
    assert (single >= -2 * abs(scale) * (1 + 1e-6)).all()
    if n > 4:
        assert np.allclose(exact[2], -abs(scale))  # a vector of zeros has the same distance to all
        assert exact[3, 0] == 0
        assert exact[4, -1].item() == pytest.approx(-2 * abs(scale))


def test_small_distances_keep_their_digits() -> None:
    """The root of 2 - 2 cos would have errors of about 1e-4 in single precision."""
    angle = 1e-5
    vector, prototype = torch.tensor([[math.cos(angle), math.sin(angle)]]), torch.tensor([[1.0, 0.0]])
    assert distance_logits(vector, prototype, torch.ones(1)).item() == pytest.approx(-angle, rel=1e-3)


@pytest.mark.parametrize("large", [1e-10, 1e20, 3e38])
def test_very_short_and_very_long_vectors_have_their_direction(large: float) -> None:
    given, unit = torch.tensor([[large, -large, 0.0]]), torch.tensor([[1.0, -1.0, 0.0]])
    prototypes = normal(3, 3, dtype=torch.float32)
    torch.testing.assert_close(
        distance_logits(given, prototypes, torch.ones(1)), distance_logits(unit, prototypes, torch.ones(1))
    )
    given.requires_grad_()
    distance_logits(given, prototypes, torch.ones(1)).sum().backward()
    assert given.grad.isfinite().all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("where", [0, 1])
def test_what_is_no_number_shows_in_the_loss(bad: float, where: int) -> None:
    both = [normal(3, 4, dtype=torch.float32), normal(2, 4, dtype=torch.float32)]
    both[where][0, 1] = bad
    logits = distance_logits(*both, torch.ones(1)).requires_grad_()
    loss = IsoMax().loss(logits, torch.tensor([0, 1, 0]), torch.tensor([2, 1]))
    assert not math.isfinite(loss.item())


# --- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, -0.3])
@pytest.mark.parametrize("classes", [1, 4])
def test_gradients_are_the_numerical_ones(scale: float, classes: int) -> None:
    given = [normal(6, WIDTH), normal(classes, WIDTH, seed=1), torch.tensor([scale], dtype=torch.float64)]
    given = [value.requires_grad_() for value in given]
    assert torch.autograd.gradcheck(distance_logits, given)
    targets = torch.arange(6) % classes
    weights = torch.linspace(0, 2, 6, dtype=torch.float64)

    def loss(*given: Tensor) -> Tensor:
        return IsoMax().loss(distance_logits(*given), targets, torch.bincount(targets), weights)

    assert torch.autograd.gradcheck(loss, given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tiny", [0.0, 1e-30, 1e-13])
def test_gradients_are_finite_where_there_is_no_direction_or_no_distance(dtype: torch.dtype, tiny: float) -> None:
    vectors, prototypes = normal(5, WIDTH, dtype=dtype), normal(4, WIDTH, seed=1, dtype=dtype)
    vectors[0] *= tiny  # 0 or almost 0
    vectors[1] = prototypes[1]  # distance 0
    vectors[2] = -prototypes[1]  # the largest distance
    prototypes[2] *= tiny
    prototypes[3] = prototypes[0]  # two equal prototypes
    scale = torch.ones(1, dtype=dtype)
    given = [value.requires_grad_() for value in (vectors, prototypes, scale)]
    targets = torch.tensor([0, 1, 2, 3, 2])
    loss = IsoMax().loss(distance_logits(*given), targets, torch.bincount(targets))
    loss.backward()
    assert loss.isfinite()
    for value in given:
        assert value.grad.isfinite().all()
        # None is huge, because it would distort Adam's moments until the end of the task.
        assert value.grad.abs().max() < 100
    assert not vectors.grad[0].any()
    assert not prototypes.grad[2].any()
    assert (vectors.grad[1:].abs().sum(1) > 0).all()
    assert scale.grad.abs() > 0


def test_only_the_direction_counts_and_so_the_gradient_has_none_along_it() -> None:
    vectors = normal(6, WIDTH).requires_grad_()
    F.cross_entropy(distance_logits(vectors, normal(3, WIDTH, seed=1), torch.ones(1)), torch.arange(6) % 3).backward()
    along = (vectors.grad * vectors).sum(1)
    torch.testing.assert_close(along, torch.zeros_like(along), rtol=0, atol=1e-15)


@pytest.mark.parametrize("inner", SMALL, ids=repr)
@pytest.mark.parametrize("kernels", KERNELS)
def test_a_step_and_its_gradients_are_those_of_dense_matrices(inner: Model, kernels: Any) -> None:
    model = IsoMaxOutputs(inner, width=WIDTH)
    p = {f"model.{name}": value for name, value in parameters(inner, 10, WIDTH).items()}
    p |= {"prototypes": normal(4, WIDTH, dtype=torch.float32), "scale": torch.tensor([-1.5])}
    for stored, training in (("dense", False), ("sparse", True)):
        case = fixed(rows=9)
        x = features(case, 10, stored=stored, kernels=kernels)
        ours = {name: value.clone().requires_grad_() for name, value in p.items()}
        exact = {name: value.double().requires_grad_() for name, value in p.items()}
        noise = Noise(5, kernels=kernels) if training else None
        logits, hidden = model.forward(ours, batch_of(case, x, kernels), noise)

        below = {name.removeprefix("model."): value for name, value in exact.items() if name.startswith("model.")}
        vectors, _ = expected(inner, below, case, x, Noise(5) if training else None)
        # Attention without a bias is a vector of zeros if all neighbours are dropped; it stays zero.
        there = vectors.detach().any(1, keepdim=True)
        lengths = torch.where(there, vectors, 1).square().sum(1, keepdim=True).sqrt()
        units = [torch.where(there, vectors, 0) / lengths, F.normalize(exact["prototypes"])]
        reference = (units[0][:, None] - units[1]).square().sum(2).sqrt() * -exact["scale"].abs()
        assert logits.shape == (9, 4)
        assert_close(hidden, vectors)
        assert_close(logits, reference)
        logits.backward(gradient := case.normal(9, 4))
        reference.backward(gradient.double())
        for name, value in exact.items():
            # In the gradients of attention vectors much cancels: compare with the gradient of their layer's weight.
            layer = f"{name.rpartition('.')[0]}.weight"
            end = name.endswith((".left", ".right"))
            scale = float(exact[layer].grad.abs().max()) if end else 0.0
            assert_close(ours[name].grad, value.grad, scale, tolerance=3e-5)


# --- the model as a value --------------------------------------------------------------------------------------------


def test_fresh_parameters() -> None:
    model = IsoMaxOutputs(GraphSAGE(hidden=16))
    p = model.parameters(10, 3000, Draw(1))
    assert model.width == 32
    assert p["scale"].tolist() == [1.0]
    assert p["prototypes"].shape == (3000, 32)
    drawn = p["prototypes"].double()
    n = drawn.numel()
    assert abs(drawn.mean().item()) < 5 / math.sqrt(n)
    assert abs(drawn.square().mean().item() - 1) < 5 * math.sqrt(2 / n)
    inner = GraphSAGE(hidden=16).parameters(10, 32, Draw(1))
    assert p.keys() == {*(f"model.{name}" for name in inner), "prototypes", "scale"}
    assert all(torch.equal(p[f"model.{name}"], value) for name, value in inner.items())
    assert count_parameters(model, 10, 4) == count_parameters(GraphSAGE(hidden=16), 10, 32) + 4 * 32 + 1
    again, other = (model.parameters(10, 3, Draw(seed))["prototypes"] for seed in (1, 2))
    assert torch.equal(again, model.parameters(10, 3, Draw(1))["prototypes"])
    assert not torch.isclose(again, other).any()


def test_growth_appends_prototypes_and_keeps_all_else() -> None:
    model = IsoMaxOutputs(GraphSAGE(hidden=16), width=8)
    old = model.parameters(10, 3, Draw(1)) | {"scale": torch.tensor([1.7])}
    fresh = model.parameters(10, 5, Draw(2))
    grown = carry_over(old, fresh)
    assert torch.equal(grown["prototypes"][:3], old["prototypes"])
    assert torch.equal(grown["prototypes"][3:], fresh["prototypes"][3:])
    assert all(torch.equal(grown[name], value) for name, value in old.items() if name != "prototypes")


def test_names_of_the_wrapped_model_cannot_collide() -> None:
    class Clashing(SGC):
        def parameters(self, inputs: int, outputs: int, draw: Draw) -> dict[str, Tensor]:
            return super().parameters(inputs, outputs, draw) | {"prototypes": torch.zeros(7), "scale": torch.zeros(7)}

        def trained(self, name: str) -> bool:
            return name not in ("prototypes", "scale")

    model = IsoMaxOutputs(Clashing(), width=3)
    p = model.parameters(4, 2, Draw(0))
    assert p["prototypes"].shape == (2, 3)
    assert p["model.prototypes"].shape == (7,)
    assert {name for name in p if not model.trained(name)} == {"model.prototypes", "model.scale"}


def test_what_the_wrapped_model_says_is_passed_on() -> None:
    assert IsoMaxOutputs(GraphSAGE()).input_weights() == ("model.0.self.weight", "model.0.neighbours.weight")
    batch = batch_of(fixed(), features(fixed(), 4, stored="dense", kernels="numba"), "numba")
    inner = GraphSAINT(sampler="node", size=5)
    ours, theirs = (model.batches(batch, np.random.default_rng(1)) for model in (IsoMaxOutputs(inner), inner))
    for _ in range(3):
        one, other = next(ours), next(theirs)
        assert 0 < len(one.graph) <= 5
        assert one.x.tolist() == other.x.tolist()
    assert next(IsoMaxOutputs(SGC()).batches(batch, np.random.default_rng(1))) is batch
    assert not IsoMaxOutputs(SGC()).solved


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SGC(), 0), "width is 0.*whole number of at least 1"),
        ((SGC(), 2.5), "width is 2.5"),
        (("sage",), "'sage' is not a model.*one of evergraph.nn"),
        ((torch.nn.Linear(1, 1),), r"Linear is a torch module, not a model.*Custom\(Linear\)"),
        ((MostFrequent(),), "not trained and cannot learn vectors"),
        ((GraphSAINT(MostFrequent()),), "not trained and cannot learn vectors"),
        ((IsoMaxOutputs(SGC()),), "already has IsoMax outputs.*the model in it"),
    ],
    ids=str,
)
def test_models_that_make_no_sense(arguments: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        IsoMaxOutputs(*arguments)


# --- the detector ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "detector", [IsoMax(), IsoMax(0.8), IsoMax(0), IsoMax(3.0, scale=1), IsoMax(scale=100.0)], ids=repr
)
def test_it_keeps_the_contract(detector: IsoMax) -> None:
    check_detector(detector)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [1, 2, 7])
def test_the_loss_is_torchs_of_ten_times_the_logits(dtype: torch.dtype, weighted: bool, classes: int) -> None:
    logits = distance_logits(normal(40, WIDTH), normal(classes, WIDTH, seed=1), torch.tensor([1.3]).double())
    targets = torch.arange(40) % classes
    weights = normal(40, seed=2).abs() if weighted else None
    ours, exact = logits.to(dtype, copy=True).requires_grad_(), logits.clone().requires_grad_()
    loss = IsoMax().loss(ours, targets, torch.bincount(targets), weights)
    each = F.cross_entropy(10 * exact, targets, reduction="none")
    reference = each.mean() if weights is None else (weights * each).sum() / weights.sum()
    loss.backward()
    reference.backward()
    assert loss.dtype == dtype
    assert loss.item() == pytest.approx(reference.item(), rel=1e-5, abs=1e-9)
    torch.testing.assert_close(ours.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)
    other = IsoMax(scale=3.0).loss(logits, targets, torch.bincount(targets))
    assert other.item() == pytest.approx(F.cross_entropy(3 * logits, targets).item(), abs=1e-12)


def test_score_decision_and_probabilities() -> None:
    logits = torch.tensor([[-0.25, -1.5], [-1.5, -0.5], [-0.75, -0.75]])
    outputs = Outputs(logits)
    assert IsoMax().decide(outputs, {}).score.tolist() == [0.25, 0.5, 0.75]
    assert IsoMax(0.5).decide(outputs, {}).flagged.tolist() == [
        False,
        False,
        True,
    ]  # a score equal to the threshold is not above it
    assert IsoMax(0.25).decide(outputs, {}).flagged.tolist() == [False, True, True]
    assert not IsoMax().decide(outputs, {}).flagged.any()
    assert IsoMax(0).decide(outputs, {}).flagged.all()
    e = np.exp(logits.double().numpy())
    np.testing.assert_allclose(IsoMax(scale=7).probabilities(logits), e / e.sum(1, keepdims=True))
    np.testing.assert_allclose(IsoMax().probability(logits), (e / e.sum(1, keepdims=True)).max(1))
    nobody = Outputs(torch.zeros(0, 3))
    assert IsoMax(1.0).decide(nobody, {}).score.shape == IsoMax(1.0).decide(nobody, {}).flagged.shape == (0,)


@pytest.mark.parametrize("classes", [2, 4, 30])
def test_no_probability_is_above_the_bound_that_is_documented(classes: int) -> None:
    """The bound is reached if a vertex is at its prototype and all others are opposite."""
    scale = 1.2
    prototypes = torch.tensor([[1.0, 0.0]] + [[-1.0, 0.0]] * (classes - 1))
    clearest = distance_logits(torch.tensor([[2.0, 0.0]]), prototypes, torch.tensor([scale]))
    bound = 1 / (1 + (classes - 1) * math.exp(-2 * scale))
    assert IsoMax().probability(clearest).item() == pytest.approx(bound, rel=1e-6)
    logits = distance_logits(normal(200, 2), normal(classes, 2, seed=1), torch.tensor([scale]).double())
    assert (IsoMax().probability(logits) <= bound).all()


@pytest.mark.parametrize(
    ("arguments", "named", "fix"),
    [
        ({"threshold": -0.1}, "threshold is -0.1", "from 0 up"),
        ({"threshold": math.nan}, "threshold is nan", "from 0 up"),
        ({"scale": 0}, "scale is 0", "above 0"),
        ({"scale": -10.0}, "scale is -10.0", "above 0"),
        ({"scale": math.inf}, "scale is inf", "above 0"),
        ({"scale": math.nan}, "scale is nan", "above 0"),
    ],
)
def test_bad_arguments(arguments: dict[str, float], named: str, fix: str) -> None:
    with pytest.raises(InputError, match=rf"argument {named}.*\. [A-Z].*{fix}"):
        IsoMax(**arguments)


def test_no_threshold_has_one_spelling() -> None:
    assert IsoMax(math.inf) == IsoMax()
    assert repr(IsoMax(np.float32(1), scale=5)) == "IsoMax(threshold=1.0, scale=5.0)"


# --- a life ----------------------------------------------------------------------------------------------------------

GRAPH = synthetic(vertices=600, times=6, classes=4, new_classes=1, seed=1)


def learner(model: Model | None = None, threshold: float | None = None, **settings: Any) -> LifelongLearner:
    below = GraphSAGE(hidden=16) if model is None else model
    return LifelongLearner(IsoMaxOutputs(below), IsoMax(threshold), **{"steps": 50, **settings})


def test_learning_over_several_tasks() -> None:
    one, baseline = learner(), LifelongLearner(MostFrequent())
    scores, base, known = [], [], []
    for task in tasks(GRAPH, history=3):
        decisions = one.adapt(task).predict(task)
        scores.append(evaluate(task, decisions))
        base.append(evaluate(task, baseline.adapt(task).predict(task)))
        known.append(len(one.classes_))
        assert one.outputs(task).logits.shape == (len(task.test_ids), known[-1])
        assert one.outputs(task).hidden.shape == (len(task.test_ids), 32)
        assert one.weights_["prototypes"].shape == (known[-1], 32)
        assert one.losses_[-1] < one.losses_[0]
        # Distances are at most 2, times the learnt scale.
        assert 0 < decisions.score.min() <= decisions.score.max() <= 2 * abs(one.weights_["scale"].item())
        assert not decisions.flagged.any()
    assert sorted(set(known)) == [4, 5]
    assert np.mean([score.accuracy for score in scores]) > 0.75
    assert np.mean([score.accuracy for score in scores]) > np.mean([score.accuracy for score in base]) + 0.2
    assert np.nanmean([score.auroc for score in scores]) > 0.7  # the vertices of the new class at its birth
    assert one.weights_["scale"].item() != 1


def test_a_threshold_can_be_chosen_after_training() -> None:
    one = learner()
    task = next(task for task in tasks(GRAPH, history=3) if evaluate(task, one.adapt(task).predict(task)).auroc > 0)
    plain = one.predict(task)
    middle = float(np.median(plain.score))
    strict = one.predict(task, IsoMax(middle))
    assert strict.flagged.tolist() == (plain.score > middle).tolist()
    assert 0.4 < strict.flagged.mean() < 0.6
    assert evaluate(task, strict).confusion.mcc > 0.2
    with pytest.raises(InputError, match="trained with IsoMax, which cannot decide as Softmax"):
        one.predict(task, Softmax())


@pytest.mark.parametrize("restart", ["warm", "cold", "hybrid"])
def test_a_warm_restart_keeps_old_prototypes_and_a_cold_one_none(restart: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, before, drawn = learner(restart=restart, steps=5), {}, {}

    def no_training(model: Any, detector: Any, weights: Any, *_: Any, **__: Any) -> list[float]:
        drawn.update({name: value.clone() for name, value in weights.items()})
        return []

    for task in tasks(GRAPH, history=3):
        if before and len(set(task.targets[task.targets >= 0])) > len(one.classes_):
            monkeypatch.setattr("evergraph.learning.parameters.train", no_training)
            one.adapt(task)
            break
        before = {name: value.clone() for name, value in one.adapt(task).weights_.items()}
    assert len(one.classes_) == len(before["prototypes"]) + 1
    assert drawn["prototypes"].shape == (len(one.classes_), 32)
    assert before["scale"].item() != 1
    if restart == "warm":
        assert torch.equal(drawn["prototypes"][:-1], before["prototypes"])
        assert torch.equal(drawn["scale"], before["scale"])
        assert drawn["prototypes"][-1].abs().sum() > 0
    else:
        assert not torch.isclose(drawn["prototypes"][:-1], before["prototypes"]).any()
        assert drawn["scale"].item() == 1


def test_the_same_seed_gives_the_same_numbers_and_another_others() -> None:
    found = []
    for seed in (3, 3, 4):
        one = learner(steps=8, seed=seed, threshold=0.9)
        for task in tasks(GRAPH, history=3):
            decisions = one.adapt(task).predict(task)
        found.append((decisions, one.weights_))
    (first, weights), (again, same_weights), (other, _) = found
    np.testing.assert_array_equal(first.score, again.score)
    assert first.classes.tolist() == again.classes.tolist()
    assert all(torch.equal(value, same_weights[name]) for name, value in weights.items())
    assert (first.score != other.score).any()


@every_model
def test_every_model_learns_with_it(model: Model) -> None:
    one, baseline = learner(model, steps=40, lr=0.02, inputs="words"), LifelongLearner(MostFrequent())
    found = [
        [evaluate(task, which.adapt(task).predict(task)).accuracy for which in (one, baseline)]
        for task in tasks(GRAPH, 3, first=4)
    ]
    ours, base = np.mean(found, 0)
    assert ours > base + 0.1
    assert one.losses_[-1] < one.losses_[0]


@every_model
def test_both_kernels_train_alike(model: Model) -> None:
    task = next(tasks(GRAPH, 2, first=3))
    one, other = (learner(model, steps=5, lr=0.01, kernels=kernels).adapt(task) for kernels in ("numba", "torch"))
    np.testing.assert_allclose(one.outputs(task).logits, other.outputs(task).logits, rtol=2e-3, atol=2e-3)
    assert one.losses_ == pytest.approx(other.losses_, rel=1e-3)


def test_sampling_may_be_outside_or_inside() -> None:
    task = next(tasks(GRAPH, 3))
    inside = LifelongLearner(IsoMaxOutputs(GraphSAINT(JKNet(), normalise=True)), IsoMax(), steps=5, lr=0.01)
    outside = LifelongLearner(GraphSAINT(IsoMaxOutputs(JKNet()), normalise=True), IsoMax(), steps=5, lr=0.01)
    whole = LifelongLearner(IsoMaxOutputs(JKNet()), IsoMax(), steps=5, lr=0.01)
    for one in (inside, outside, whole):
        one.adapt(task)
    assert inside.losses_ == outside.losses_ != whole.losses_


@every_model
def test_leaving_unused_words_out_of_training_changes_no_bit(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"all {'even' if i % 2 else 'odd'} old{i // 12} new{i // 12}" for i in range(60)]
    vertices = {"id": list(range(60)), "time": [i // 12 for i in range(60)], "label": list("xyz" * 20), "text": texts}
    graph = EvolvingGraph.build(vertices, [(i, i // 2) for i in range(1, 60)])
    parts: list[Any] = []
    found = []
    for leaves_out in (True, False):
        seen = (lambda *given: parts.append(active_features(*given)) or parts[-1]) if leaves_out else lambda *_: None
        monkeypatch.setattr("evergraph.learning.parameters.active_features", seen)
        one = learner(model, steps=8, lr=0.05)
        for task in tasks(graph, 1, first=2):
            decisions = one.adapt(task).predict(task)
        found.append((decisions.score, one.weights_))
    assert len([part for part in parts if part is not None]) >= 2  # otherwise there is nothing to compare
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert all(torch.equal(value, found[1][1][name]) for name, value in found[0][1].items())


@every_model
def test_one_class_or_one_vertex_or_nothing_to_read(model: Model) -> None:
    """Without features and with biases that start at 0 (GCN, SGC), vectors are zero at first."""
    for labels, width in ((["x", "x", "x", "y"], 3), (["x", "y"], 3), (["x", "y", "x", "y"], 0)):
        n = len(labels)
        values = np.eye(n, max(width, 1), dtype=np.float32) * bool(width)
        vertices = {"id": list(range(n)), "time": [0] * (n - 1) + [1], "label": labels}
        graph = EvolvingGraph.build(vertices, [[0, n - 1]], features=values)
        task = Task(graph, 1, 1)
        one = learner(model, threshold=0.5, steps=3).adapt(task)
        decisions = one.predict(task)
        assert np.isfinite(decisions.score).all()
        assert np.isfinite(one.losses_).all()
        assert all(value.isfinite().all() for value in one.weights_.values())


def test_features_that_are_nan_are_reported() -> None:
    class Broken(MLP):
        def output_layer(self, *arguments: Any) -> Readout:
            found = super().output_layer(*arguments)
            return replace(found, vectors=found.vectors * math.nan)

    with pytest.raises(EvergraphError, match="loss of step 1 is nan"):
        learner(Broken(hidden=4)).adapt(next(tasks(GRAPH, 3)))


class Net(torch.nn.Module):
    """The module has buffers, which are not trained but must be saved."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(inputs, 8), torch.nn.BatchNorm1d(8)

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        return torch.relu(self.norm(self.layer(x)))


def test_a_module_of_the_users_own(tmp_path: Path) -> None:
    one, task = learner(Custom(Net), steps=30, lr=0.02), next(tasks(GRAPH, 3))
    one.adapt(task)
    assert one.weights_["model.buffer.norm.num_batches_tracked"].item() == 30
    assert one.weights_["model.head.weight"].shape == (8, 32)
    assert evaluate(task, one.predict(task)).accuracy > 0.6
    one.save(tmp_path)
    with pytest.raises(InputError, match=r"your own \(Custom\).*model="):
        LifelongLearner.load(tmp_path)
    loaded = LifelongLearner.load(tmp_path, model=IsoMaxOutputs(Custom(Net)))
    np.testing.assert_array_equal(loaded.predict(task).score, one.predict(task).score)


# --- names and files -------------------------------------------------------------------------------------------------


def test_descriptions_and_back() -> None:
    model = IsoMaxOutputs(GraphSAINT(SGC(hops=3)), width=7)
    assert described(model)["model"]["base"] == {"name": "sgc", "hops": 3}
    assert described(IsoMax(0.5)) == {"name": "isomax", "threshold": 0.5, "scale": 10.0}
    assert rebuilt(described(model), "model") == model
    assert rebuilt(described(IsoMax(0.5, scale=3)), "detector") == IsoMax(0.5, scale=3)
    for kind in (GDOC, *(load("detector", name) for name in DETECTORS)):
        assert rebuilt(described(kind()), "detector") == kind()


@pytest.mark.parametrize("model", [GraphSAGE(hidden=16), GraphSAINT(JKNet(hidden=4), sampler="node", size=50)])
def test_a_loaded_learner_continues_with_the_same_numbers(tmp_path: Path, model: Model) -> None:
    one = LifelongLearner(IsoMaxOutputs(model, width=12), IsoMax(0.9, scale=8.0), steps=4)
    first, *later = tasks(GRAPH, history=3)
    one.adapt(first).save(tmp_path / "learner")
    loaded = LifelongLearner.load(tmp_path / "learner")
    assert loaded.get_params() == one.get_params()
    assert loaded.model == IsoMaxOutputs(model, width=12)
    assert loaded.detector == IsoMax(0.9, scale=8.0)
    for task in (first, *later):
        if task is not first:
            one.adapt(task)
            loaded.adapt(task)
        ours, theirs = one.predict(task), loaded.predict(task)
        assert ours.classes.tolist() == theirs.classes.tolist()
        np.testing.assert_array_equal(ours.score, theirs.score)
    assert len(loaded.classes_) == 5
    assert loaded.losses_ == one.losses_
    with pytest.raises(InputError, match="the saved weights are not those of"):
        LifelongLearner.load(tmp_path / "learner", model=IsoMaxOutputs(model, width=13))
