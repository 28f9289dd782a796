# ruff: noqa: ARG002, N812  (the broken detectors below look away on purpose; F is what everyone calls it)
from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from evergraph.detect import (
    DOC,
    GDOC,
    Decision,
    Detector,
    Outputs,
    Requirements,
    Softmax,
    check_detector,
    cross_entropy,
)
from evergraph.errors import InputError
from evergraph.names import DETECTORS, build_detector

some = settings(max_examples=60, deadline=None)


def draw(n, classes, dtype=torch.float64, seed=0, scale=4.0):
    """Logits, targets of unequal classes, and their counts."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    targets = (classes * torch.rand(n, generator=generator) ** 2).long()
    return logits.to(dtype), targets, torch.bincount(targets, minlength=classes)


def logit(*probabilities):
    return torch.logit(torch.tensor(probabilities, dtype=torch.float64))


# --- the conformance suite -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "detector",
    [
        *map(build_detector, DETECTORS),
        DOC(alpha=3.0),
        GDOC(alpha=3.0),
        GDOC(0.5, alpha=1.0),
        DOC(0.0, alpha=math.inf),
        GDOC(1.0),
    ],
    ids=repr,
)
def test_ours_keep_the_contract(detector: Detector) -> None:
    check_detector(detector)


def test_the_suite_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    check_detector(GDOC())
    assert torch.equal(torch.get_rng_state(), before)


class InParts:
    """Decides by `score` and `reject`, so that the detectors below can break one of them."""

    requires = Requirements(observe=True, context=True)

    def decide(self, outputs, state):
        return Decision(self.score(outputs, state), self.reject(outputs, state))

    def score(self, outputs, state):
        return super().decide(outputs, state).score

    def reject(self, outputs, state):
        return super().decide(outputs, state).flagged


class SoftmaxInParts(InParts, Softmax):
    pass


class DocInParts(InParts, DOC):
    def reject(self, outputs, state):
        return self.score(outputs, state) > 0


class ObservesInSecret(Softmax):
    def observe(self, outputs, targets, state):
        return state


class RequiresAnything(Softmax):
    requires = None


class DecidesWithScoresAlone(Softmax):
    def decide(self, outputs, state):
        return super().decide(outputs, state).score


class WrongSign(DocInParts):
    def score(self, outputs, state):
        return -super().score(outputs, state)

    def reject(self, outputs, state):
        return ~super().reject(outputs, state)


class FlagsAgainstItsScore(DocInParts):
    def reject(self, outputs, state):
        return ~super().reject(outputs, state)


class IgnoresWeights(DocInParts):
    def loss(self, logits, targets, counts, weights=None):
        return super().loss(logits, targets, counts)


class WeightsAreAMask(DocInParts):
    def loss(self, logits, targets, counts, weights=None):
        return super().loss(logits, targets, counts, None if weights is None else (weights > 0).to(logits))


class WeightsAreNotNormalised(DocInParts):
    def loss(self, logits, targets, counts, weights=None):
        return super().loss(logits, targets, counts, weights) * (1 if weights is None else weights.mean())


class LossKnowsTheClassOrder(DocInParts):
    def positive_weights(self, counts):
        return torch.arange(1.0, 1 + len(counts))


class ScoreKnowsTheClassOrder(DocInParts):
    def score(self, outputs, state):
        return 0.5 - (outputs.logits[:, 0].double() / 2).sigmoid() / 2 - outputs.logits.amax(1).double().sigmoid() / 2


class ScoreKnowsTheRowOrder(DocInParts):
    def score(self, outputs, state):
        return super().score(outputs, state) + torch.linspace(0, 1e-6, len(outputs), dtype=torch.float64)


class DecisionKnowsTheRowOrder(SoftmaxInParts):
    def reject(self, outputs, state):
        score = self.score(outputs, state)
        if not len(score):
            return score > 0
        return score >= (score.max() if outputs.logits[0, 0] < outputs.logits[-1, 0] else score.median())


class LossChangesLogits(SoftmaxInParts):
    def loss(self, logits, targets, counts, weights=None):
        if not logits.requires_grad:
            logits -= logits.amax(1, keepdim=True)
        return super().loss(logits, targets, counts, weights)


class ScoreChangesLogits(SoftmaxInParts):
    def score(self, outputs, state):
        outputs.logits.sub_(1.0)
        return super().score(outputs, state)


class ScoreChangesState(DocInParts):
    def score(self, outputs, state):
        state["sd"].mul_(0.5)
        return super().score(outputs, state)


class FitChangesTheStateBefore(DocInParts):
    def fit(self, outputs, targets, before):
        before.clear()
        return super().fit(outputs, targets, before)


class FitCannotGrow(DocInParts):
    def fit(self, outputs, targets, before):
        state = super().fit(outputs, targets, {})
        return {"sd": torch.fmax(state["sd"], before["sd"])} if before else state


class AbsentClassesAreNaN(DocInParts):
    def score(self, outputs, state):
        return (1 - state["sd"] - outputs.logits.double().sigmoid()).amin(1)


class StateIsNested(DocInParts):
    def fit(self, outputs, targets, before):
        return {"classes": {"sd": torch.zeros(outputs.logits.shape[1])}}


class LossIsDetached(SoftmaxInParts):
    def loss(self, logits, targets, counts, weights=None):
        return super().loss(logits.detach(), targets, counts, weights)


class LossIsOfTheNextClass(SoftmaxInParts):
    def loss(self, logits, targets, counts, weights=None):
        return super().loss(logits.roll(1, 1), targets, counts, weights)


class LossGoesUphill(SoftmaxInParts):
    def loss(self, logits, targets, counts, weights=None):
        loss = super().loss(logits, targets, counts, weights)
        return 2 * loss.detach() - loss


class LossIsOneNumberEach(SoftmaxInParts):
    def loss(self, logits, targets, counts, weights=None):
        return F.cross_entropy(logits, targets, reduction="none")


class AbsentClassesSpoilTheLoss(DocInParts):
    def loss(self, logits, targets, counts, weights=None):
        return super().loss(logits, targets, counts, weights) + 0 * (1 / counts).sum()


class OverflowsAtLargeLogits(SoftmaxInParts):
    def score(self, outputs, state):
        return -outputs.logits.double().exp().sum(1).log()


class SinglePrecision(SoftmaxInParts):
    def score(self, outputs, state):
        return super().score(outputs, state).float()


class ScoreIsAColumn(SoftmaxInParts):
    def score(self, outputs, state):
        return super().score(outputs, state).unsqueeze(1)


class DecisionIsANumber(SoftmaxInParts):
    def reject(self, outputs, state):
        return super().reject(outputs, state).long()


class DecisionIsOne(SoftmaxInParts):
    def reject(self, outputs, state):
        return super().reject(outputs, state).any()


class CannotTakeNobody(SoftmaxInParts):
    def score(self, outputs, state):
        return super().score(outputs, state) if len(outputs) else torch.zeros(1, dtype=torch.float64)


class ObservesNested(SoftmaxInParts):
    def observe(self, outputs, targets, before):
        return {**before, "past": {"slices": torch.zeros(1)}}


class ObserveChangesTheStateBefore(DocInParts):
    def observe(self, outputs, targets, before):
        before["sd"] += 1
        return before


class ObserveKnowsTheRowOrder(SoftmaxInParts):
    def observe(self, outputs, targets, before):
        return {"past.first": outputs.logits[0].amax().double()}

    def score(self, outputs, state):
        return super().score(outputs, state) + state.get("past.first", 0)


class ObserveKnowsTheClassOrder(SoftmaxInParts):
    def observe(self, outputs, targets, before):
        return {"past.first": outputs.logits[:, 0].mean().double()}

    def score(self, outputs, state):
        return super().score(outputs, state) + state.get("past.first", 0)


class TakesNoLabelForAClass(SoftmaxInParts):
    def observe(self, outputs, targets, before):
        return {
            "past.means": outputs.logits.double()
            .new_zeros(outputs.logits.shape[1])
            .index_add(0, targets, outputs.logits[:, 0].double())
        }


class PastDoesNotGrow(SoftmaxInParts):
    def observe(self, outputs, targets, before):
        return {"past.mean": outputs.logits.mean(0).double() + before.get("past.mean", 0)}


class ObservingTurnsItUpsideDown(SoftmaxInParts):
    def observe(self, outputs, targets, before):
        return {**before, "past.sign": torch.tensor(-1.0)}

    def score(self, outputs, state):
        return super().score(outputs, state) * state.get("past.sign", 1.0)


class ChangesWhatIsSeen(SoftmaxInParts):
    def score(self, outputs, state):
        if outputs.context is not None:
            outputs.context.vectors[:] = 0
        return super().score(outputs, state)


class ChangesWordsThatAreSeen(SoftmaxInParts):
    def score(self, outputs, state):
        if outputs.context is not None and len(outputs):
            outputs.context.words.data *= 2
        return super().score(outputs, state)


class ContextKnowsTheRowOrder(SoftmaxInParts):
    def score(self, outputs, state):
        if outputs.context is None or not len(outputs):
            return super().score(outputs, state)
        return super().score(outputs, state) + torch.from_numpy(outputs.context.nearest.mean(1)) * 1e-6


class ContextKnowsTheClassOrder(SoftmaxInParts):
    def score(self, outputs, state):
        known = np.zeros(0) if outputs.context is None else outputs.context.known
        return super().score(outputs, state) + float((known == 0).sum())


@dataclass
class NotFrozen(Detector):
    loss, decide = Softmax.loss, Softmax.decide


@dataclass(frozen=True, eq=False)
class NeverEqual(Detector):
    loss, decide = Softmax.loss, Softmax.decide


@dataclass(frozen=True)
class Remembers(SoftmaxInParts):
    calls: list[int] = field(default_factory=lambda: [0], compare=False, repr=False)

    def score(self, outputs, state):
        self.calls[0] += 1
        return super().score(outputs, state) + self.calls[0]


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (ObservesInSecret, "observe is overridden, so requires.observe must be set"),
        (RequiresAnything, "requires must be Requirements"),
        (DecidesWithScoresAlone, "decide must return a Decision"),
        (WrongSign, "must score higher on average"),
        (FlagsAgainstItsScore, "a vertex that scores higher than a flagged one"),
        (IgnoresWeights, "ignore vertices of weight 0"),
        (WeightsAreAMask, "weight 2 as two vertices"),
        (WeightsAreNotNormalised, "(ignore vertices of weight 0|all weights are doubled)"),
        (LossKnowsTheClassOrder, "the loss must not depend on the order of the classes"),
        (ScoreKnowsTheClassOrder, "the score must not depend on the order of the classes"),
        (ScoreKnowsTheRowOrder, "the score must not depend on the order of the vertices"),
        (DecisionKnowsTheRowOrder, "the decision must not depend on the order of the vertices"),
        (LossChangesLogits, "loss must not change what it is given"),
        (ScoreChangesLogits, "decide must not change what it is given"),
        (ScoreChangesState, "decide must not change what it is given"),
        (FitChangesTheStateBefore, "fit must not change what it is given"),
        (AbsentClassesAreNaN, "the score must be finite"),
        (StateIsNested, "flat dict of tensors"),
        (LossIsDetached, "must be differentiable"),
        (LossIsOfTheNextClass, "lower if the right classes"),
        (LossGoesUphill, "step against the gradient"),
        (LossIsOneNumberEach, "must be a scalar"),
        (AbsentClassesSpoilTheLoss, r"finite if the classes have \[40, 0, 0\] vertices"),
        (OverflowsAtLargeLogits, "the score must be finite"),
        (SinglePrecision, "float64"),
        (ScoreIsAColumn, "one number for each"),
        (DecisionIsANumber, "must be bool"),
        (DecisionIsOne, "must have one flag for each"),
        (CannotTakeNobody, "the score of 0 vertices"),
        (ObservesNested, "flat dict of tensors"),
        (ObserveChangesTheStateBefore, "observe must not change what it is given"),
        (ObserveKnowsTheRowOrder, "the score must not depend on the order of the vertices observed"),
        (ObserveKnowsTheClassOrder, "the score must not depend on the order of the classes"),
        (ObservingTurnsItUpsideDown, "must score higher on average"),
        (ChangesWhatIsSeen, "decide must not change what it is given"),
        (ChangesWordsThatAreSeen, "decide must not change what it is given"),
        (ContextKnowsTheRowOrder, "the score must not depend on the order of the vertices"),
        (ContextKnowsTheClassOrder, "the score must not depend on the order of the classes"),
        (NotFrozen, "frozen dataclass"),
        (NeverEqual, "must equal a detector"),
        (Remembers, "in a second call"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_suite_finds_what_is_broken(broken: type[Detector], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_detector(broken())


def test_the_suite_finds_a_state_that_cannot_grow() -> None:
    with pytest.raises(RuntimeError, match="size"):
        check_detector(FitCannotGrow())
    with pytest.raises(RuntimeError, match="size"):
        check_detector(PastDoesNotGrow())


def test_the_suite_has_missing_labels() -> None:
    with pytest.raises(IndexError, match="index"):
        check_detector(TakesNoLabelForAClass())


def test_the_suite_shows_slices_and_no_training_vertices() -> None:
    seen = []

    class Watches(SoftmaxInParts):
        def fit(self, outputs, targets, before):
            assert outputs.context is None
            return {}

        def observe(self, outputs, targets, before):
            seen.append((len(outputs), set(targets.tolist())))
            assert len(outputs.context) == len(outputs) == len(targets)
            assert len(outputs.context.classes) == outputs.logits.shape[1]
            return before

        def score(self, outputs, state):
            assert len(outputs.context) == len(outputs)
            assert outputs.context.start == 40
            return super().score(outputs, state)

    check_detector(Watches())
    assert {-2, -1, 0, 2} <= set.union(*(targets for _, targets in seen))
    assert {-1} in [targets for _, targets in seen]


# --- the base --------------------------------------------------------------------------------------------------------


def test_detectors_are_values() -> None:
    assert DOC(0.75) != GDOC(0.75)
    assert GDOC() == GDOC(0.75, None)
    assert len({DOC(), DOC(0.5), DOC(alpha=3.0)}) == 2
    assert repr(GDOC(alpha=3.0)) == "GDOC(threshold=0.75, alpha=3.0)"
    with pytest.raises(FrozenInstanceError):
        DOC().threshold = 0.1


def test_a_detector_without_a_loss_cannot_be_made() -> None:
    class Half(Detector):
        def decide(self, outputs, state):
            return Decision(outputs.logits.sum(1).double(), outputs.logits.sum(1) > 0)

    with pytest.raises(TypeError, match="abstract"):
        Half()


def test_the_default_state_is_empty() -> None:
    logits, targets, _ = draw(9, 3)
    assert Softmax().fit(Outputs(logits), targets, {}) == {}


# --- softmax ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_softmax_is_cross_entropy(weighted: bool) -> None:
    logits, targets, counts = draw(50, 6)
    weights = torch.rand(50, generator=torch.Generator().manual_seed(1), dtype=torch.float64) if weighted else None
    losses = F.cross_entropy(logits, targets, reduction="none")
    expected = np.average(losses, weights=weights)
    assert Softmax().loss(logits, targets, counts, weights).item() == pytest.approx(expected, abs=1e-12)


def test_softmax_scores_and_never_rejects() -> None:
    outputs = Outputs(torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [1e4, -1e4]]))
    assert Softmax().decide(outputs, {}).score.tolist() == pytest.approx([0.5, 0.25, 0.0], abs=1e-7)
    assert not Softmax().decide(outputs, {}).flagged.any()


@pytest.mark.parametrize("detector", [Softmax(), DOC(), GDOC()], ids=repr)
def test_the_loss_of_no_vertices_is_0(detector: Detector) -> None:
    logits, targets, counts = draw(4, 3)
    logits.requires_grad_()
    for rows, weights in ((slice(0), None), (slice(0), torch.zeros(0)), (slice(None), torch.zeros(4))):
        loss = detector.loss(logits[rows], targets[rows], counts, weights)
        (gradient,) = torch.autograd.grad(loss, logits)
        assert loss == 0
        assert (gradient == 0).all()


# --- the loss of DOC and gDOC ----------------------------------------------------------------------------------------


def reference(logits, targets, pos_weight, weights):
    """The way of the authors: a matrix of targets, and torch's own loss."""
    one_hot = F.one_hot(targets, logits.shape[1]).to(logits)
    losses = F.binary_cross_entropy_with_logits(logits, one_hot, pos_weight=pos_weight, reduction="none").mean(1)
    return losses.mean() if weights is None else (weights * losses).sum() / weights.sum()


def value_and_gradient(function, logits):
    logits = logits.clone().requires_grad_()
    loss = function(logits)
    return loss.detach(), torch.autograd.grad(loss, logits)[0]


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("detector", [DOC(), GDOC()], ids=repr)
@pytest.mark.parametrize("block", [1, 100, 1 << 18])
def test_the_loss_is_torchs(dtype, near, weighted, detector, block, monkeypatch) -> None:
    monkeypatch.setattr(cross_entropy, "_ENTRIES", block)
    logits, targets, counts = draw(200, 7, dtype, scale=12.0)
    weights = torch.rand(200, generator=torch.Generator().manual_seed(1), dtype=dtype) if weighted else None
    pos_weight = None
    if isinstance(detector, GDOC):
        pos_weight = ((counts.sum() - counts).double() / counts).to(dtype)
    ours, our_gradient = value_and_gradient(lambda x: detector.loss(x, targets, counts, weights), logits)
    theirs, their_gradient = value_and_gradient(lambda x: reference(x, targets, pos_weight, weights), logits)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, theirs, rtol=near, atol=near)
    torch.testing.assert_close(our_gradient, their_gradient, rtol=near, atol=near / 200)


@pytest.mark.parametrize("transposed", [False, True])
def test_the_gradient_is_right(transposed: bool) -> None:
    logits, targets, counts = draw(12, 4)
    weights = torch.arange(12.0, dtype=torch.float64)
    logits = logits.T.contiguous().T if transposed else logits
    assert logits.is_contiguous() != transposed
    for detector in (DOC(), GDOC()):
        for given_weights in (None, weights):
            args = (logits.requires_grad_(),)
            assert torch.autograd.gradcheck(lambda x, d=detector, w=given_weights: d.loss(x, targets, counts, w), args)


def test_the_gradient_is_the_same_in_each_call_and_scales() -> None:
    logits, targets, counts = draw(30, 4)
    logits.requires_grad_()
    loss = GDOC().loss(logits, targets, counts)
    loss.backward(retain_graph=True)
    once = logits.grad.clone()
    loss.backward(retain_graph=True)
    torch.testing.assert_close(logits.grad, 2 * once)
    logits.grad = None
    (3 * loss).backward()
    torch.testing.assert_close(logits.grad, 3 * once)


def test_the_loss_is_finite_and_exact_for_huge_logits() -> None:
    logits = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    loss = DOC().loss(logits, torch.tensor([0, 0]), torch.tensor([2, 0]))
    loss.backward()
    assert loss.item() == 2e4 / 4  # the first vertex adds nothing
    assert logits.grad.tolist() == [[0, 0], [-0.25, 0.25]]


class Sizes(TorchDispatchMode):
    """Notes the memory of every tensor that an operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.matrices: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.untyped_storage().nbytes() >= 4 * 20_000 * 30:
            self.matrices.add(out.untyped_storage().data_ptr())
        return out


def test_the_loss_makes_one_matrix_and_no_matrix_of_targets() -> None:
    logits, targets, counts = draw(20_000, 30, torch.float32)
    logits.requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x), Sizes() as sizes:
        torch.autograd.grad(GDOC().loss(logits, targets, counts), logits)
    assert kept == [logits.numel()]
    assert len(sizes.matrices - {logits.data_ptr()}) == 1
    with torch.no_grad(), Sizes() as sizes:
        GDOC().loss(logits.detach(), targets, counts)
    assert sizes.matrices <= {logits.data_ptr()}


def test_only_positives_are_weighted_as_in_the_authors_code() -> None:
    # A7 of docs/research/errata.md. Two vertices of class 0 and one of class 1, every p = 1/2, so every term is log 2.
    logits, targets, counts = torch.zeros(3, 2, dtype=torch.float64), torch.tensor([0, 0, 1]), torch.tensor([2, 1])
    weights = GDOC().positive_weights(counts)
    assert weights.tolist() == [0.5, 2.0]
    positives, negatives = 0.5 + 0.5 + 2.0, 1 + 1 + 1
    ours = GDOC().loss(logits, targets, counts).item()
    assert ours == pytest.approx((positives + negatives) * math.log(2) / 6)
    one_hot = F.one_hot(targets).double()
    papers = (F.binary_cross_entropy_with_logits(logits, one_hot, reduction="none") * weights).mean().item()
    assert papers == pytest.approx(3 * (0.5 + 2.0) * math.log(2) / 6)
    assert ours != pytest.approx(papers)


def test_the_class_weights_are_those_of_the_window_not_of_the_batch() -> None:
    logits, targets, counts = draw(40, 3)
    batch = torch.arange(0, 40, 3)
    pos_weight = (40 - counts).double() / counts
    expected = reference(logits[batch], targets[batch], pos_weight, None)
    torch.testing.assert_close(GDOC().loss(logits[batch], targets[batch], counts), expected)


def test_absent_classes_weigh_nothing_and_are_pushed_down() -> None:
    counts = torch.tensor([3, 0, 1])
    assert GDOC().positive_weights(counts).tolist() == pytest.approx([1 / 3, 0, 3])
    logits = torch.zeros(4, 3, requires_grad=True)
    GDOC().loss(logits, torch.tensor([0, 0, 0, 2]), counts).backward()
    assert (logits.grad[:, 1] > 0).all()


@pytest.mark.parametrize("counts", [[5], [5, 0, 0], [0, 5]])
def test_a_window_of_one_class_gives_plain_doc(counts: list[int]) -> None:
    counts = torch.tensor(counts)
    targets = torch.full((5,), int(counts.argmax()))
    logits, _, _ = draw(5, len(counts))
    assert GDOC().positive_weights(counts)[targets[0]] == 1
    assert GDOC().loss(logits, targets, counts) == DOC().loss(logits, targets, counts)


# --- thresholds and decisions ----------------------------------------------------------------------------------------


def test_sd_is_that_of_the_mirrored_sample() -> None:
    logits, targets, counts = draw(60, 4)
    sd = DOC().fit(Outputs(logits), targets, {})["sd"]
    assert counts.min() > 1
    for row in range(4):
        p = torch.sigmoid(logits[targets == row, row]).numpy()
        assert sd[row].item() == pytest.approx(np.std(np.concatenate([p, 2 - p]), ddof=1), rel=1e-12)


def test_sd_does_not_depend_on_the_detectors_parameters() -> None:
    logits, targets, _ = draw(60, 4, torch.float32)
    states = [d.fit(Outputs(logits), targets, {})["sd"] for d in (DOC(), DOC(0.9, 3.0), GDOC(), GDOC(alpha=1.0))]
    assert all(torch.equal(states[0], state) for state in states)


def test_thresholds_by_hand() -> None:
    # Class 0: p = .9 and .7: sd = sqrt(2 (.01 + .09) / 3). Class 1: p = .8 alone: sd = sqrt(2 (.04) / 1).
    logits = torch.stack([logit(0.9, 0.1), logit(0.7, 0.2), logit(0.3, 0.8)])
    state = DOC().fit(Outputs(logits), torch.tensor([0, 0, 1]), {})
    assert state["sd"].tolist() == pytest.approx([math.sqrt(0.2 / 3), math.sqrt(0.08)])
    assert DOC(0.5, alpha=1.0).thresholds(state, 2).tolist() == pytest.approx(
        [1 - math.sqrt(0.2 / 3), 1 - math.sqrt(0.08)]
    )
    assert DOC(0.73, alpha=1.0).thresholds(state, 2).tolist() == pytest.approx([1 - math.sqrt(0.2 / 3), 0.73])
    assert DOC(0.5, alpha=3.0).thresholds(state, 2).tolist() == [0.5, 0.5]
    assert DOC(0.5).thresholds(state, 2).tolist() == [0.5, 0.5]

    # Thresholds .742 and .717.
    new = Outputs(torch.stack([logit(0.74, 0.1), logit(0.74, 0.72), logit(0.1, 0.71), logit(0.75, 0.1)]))
    detector = DOC(0.5, alpha=1.0)
    assert detector.decide(new, state).flagged.tolist() == [True, False, True, False]
    assert detector.decide(new, state).score.tolist() == pytest.approx([0.0018, -0.0028, 0.0072, -0.0082], abs=1e-4)
    assert not DOC(0.5).decide(new, state).flagged.any()


def test_a_vertex_is_rejected_strictly_below_the_threshold() -> None:
    new = Outputs(torch.tensor([[0.0, -9.0], [-1e-9, -9.0], [1e-9, -9.0]], dtype=torch.float64))
    assert DOC(0.5).decide(new, {}).flagged.tolist() == [False, True, False]
    assert not DOC(0.0).decide(new, {}).flagged.any()


def test_without_alpha_the_score_ranks_as_the_largest_probability() -> None:
    logits, _, _ = draw(100, 5, torch.float32)
    largest = torch.sigmoid(logits.double()).amax(1)
    for detector in (DOC(), GDOC(), DOC(0.2)):
        score = detector.decide(Outputs(logits), {}).score
        assert torch.equal(score.argsort(), (1 - largest).argsort())
        torch.testing.assert_close(score, detector.threshold - largest)


@given(st.integers(0, 2**31), st.integers(1, 6), st.floats(0, 1), st.floats(1e-3, 1e3))
@some
def test_risk_reduction_only_rejects_more(seed: int, classes: int, threshold: float, alpha: float) -> None:
    logits, targets, _ = draw(30, classes, torch.float32, seed)
    new = Outputs(draw(30, classes, torch.float32, seed + 1)[0])
    state = DOC().fit(Outputs(logits), targets, {})
    plain, reduced, more = DOC(threshold), DOC(threshold, alpha), DOC(threshold, alpha / 2)
    limits = reduced.thresholds(state, classes)
    assert ((limits >= threshold) & (limits <= 1)).all()
    assert (plain.decide(new, state).flagged <= reduced.decide(new, state).flagged).all()
    assert (reduced.decide(new, state).flagged <= more.decide(new, state).flagged).all()
    p = torch.sigmoid(new.logits.double())
    assert torch.equal(reduced.decide(new, state).flagged, (p < limits).all(1))


@pytest.mark.parametrize("alpha", [math.inf, 1e9])
def test_an_infinite_alpha_is_the_plain_threshold(alpha: float) -> None:
    logits, targets, _ = draw(50, 4, torch.float32)
    outputs = Outputs(logits)
    state = DOC().fit(outputs, targets, {})
    assert DOC(0.6, alpha).thresholds(state, 4).tolist() == [0.6] * 4
    assert torch.equal(DOC(0.6, alpha).decide(outputs, state).score, DOC(0.6).decide(outputs, state).score)
    assert torch.equal(DOC(0.6, alpha).decide(outputs, state).flagged, DOC(0.6).decide(outputs, state).flagged)
    assert DOC(0.6, math.inf).thresholds({"sd": torch.zeros(4)}, 4).tolist() == [0.6] * 4


@pytest.mark.parametrize("alpha", [None, 3.0])
def test_a_threshold_of_one_rejects_all_but_certainty(alpha: float | None) -> None:
    outputs = Outputs(torch.tensor([[5.0, -5.0], [30.0, 0.0], [1e4, -1e4]]))
    state = DOC().fit(outputs, torch.tensor([0, 0, 1]), {})
    assert DOC(1.0, alpha).decide(outputs, state).flagged.tolist() == [True, True, False]


def test_a_class_that_left_the_window_keeps_its_last_value() -> None:
    detector = GDOC(0.5, alpha=1.0)
    logits, targets, _ = draw(40, 3)
    first = detector.fit(Outputs(logits), targets, {})
    assert not first["sd"].isnan().any()

    # Two classes more; class 0 has left, class 3 has one vertex, class 4 none yet.
    logits, _, _ = draw(12, 5, seed=1)
    targets = torch.tensor([1] * 6 + [2] * 5 + [3])
    second = detector.fit(Outputs(logits), targets, first)
    assert second["sd"].dtype == torch.float64
    assert second["sd"][0] == first["sd"][0]
    assert (second["sd"][1:3] != first["sd"][1:]).all()
    assert second["sd"][3].item() == pytest.approx(math.sqrt(2) * torch.sigmoid(-logits[-1, 3]).item())
    assert second["sd"].isnan().tolist() == [False, False, False, False, True]
    assert detector.thresholds(second, 5)[4] == 0.5
    assert detector.decide(Outputs(logits), second).score.isfinite().all()

    # After a cold restart nothing is left of the former value.
    assert detector.fit(Outputs(logits), targets, {})["sd"].isnan().tolist() == [True, False, False, False, True]


def test_classes_that_came_after_the_fit_have_the_plain_threshold() -> None:
    detector = DOC(0.5, alpha=1.0)
    assert detector.thresholds({"sd": torch.tensor([0.25])}, 3).tolist() == [0.75, 0.5, 0.5]
    assert detector.thresholds({}, 2).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("detector", [Softmax(), DOC(), DOC(alpha=3.0), GDOC()], ids=repr)
def test_an_empty_slice_is_decided(detector: Detector) -> None:
    nobody = Outputs(torch.zeros(0, 3))
    state = detector.fit(nobody, torch.zeros(0, dtype=torch.int64), {})
    assert len(nobody) == 0
    assert detector.decide(nobody, state).score.shape == detector.decide(nobody, state).flagged.shape == (0,)


@pytest.mark.parametrize("kind", [DOC, GDOC])
@pytest.mark.parametrize(
    ("arguments", "named", "fix"),
    [
        ({"threshold": -0.1}, "threshold is -0.1", "from 0 to 1"),
        ({"threshold": 1.5}, "threshold is 1.5", "from 0 to 1"),
        ({"threshold": math.nan}, "threshold is nan", "from 0 to 1"),
        ({"alpha": 0}, "alpha is 0", "above 0"),
        ({"alpha": -3.0}, "alpha is -3.0", "above 0"),
        ({"alpha": math.nan}, "alpha is nan", "above 0"),
    ],
)
def test_bad_arguments(kind: type[DOC], arguments: dict[str, float], named: str, fix: str) -> None:
    with pytest.raises(InputError, match=rf"argument {named}.*\. [A-Z].*{fix}"):
        kind(**arguments)


# --- the compiled losses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [1, 2, 7, 64, 65, 130])
@pytest.mark.parametrize("size", [0.01, 1.0, 30.0, 200.0])
def test_the_compiled_cross_entropy_is_torchs(classes: int, size: float) -> None:
    generator = torch.Generator().manual_seed(classes)
    logits = (size * torch.randn(50, classes, generator=generator)).requires_grad_()
    exact = logits.detach().double().requires_grad_()
    targets = torch.randint(classes, (50,), generator=generator)
    shares = torch.rand(50, generator=generator)
    shares /= shares.sum()
    ours = cross_entropy.cross_entropy(logits, targets, shares)
    truth = (F.cross_entropy(exact, targets, reduction="none") * shares).sum()
    ours.backward()
    truth.backward()
    assert ours.item() == pytest.approx(truth.item(), rel=1e-5, abs=1e-7)
    torch.testing.assert_close(logits.grad, exact.grad.float(), rtol=1e-5, atol=1e-6 * shares.max().item())


@pytest.mark.parametrize("classes", [1, 2, 7, 64, 65, 130])
@pytest.mark.parametrize("size", [0.01, 1.0, 30.0, 200.0])
def test_the_compiled_binary_cross_entropy_is_torchs(classes: int, size: float) -> None:
    generator = torch.Generator().manual_seed(classes)
    logits = (size * torch.randn(50, classes, generator=generator)).requires_grad_()
    exact = logits.detach().double().requires_grad_()
    targets = torch.randint(classes, (50,), generator=generator)
    positive, shares = 5 * torch.rand(50, generator=generator), torch.rand(50, generator=generator)
    shares[3] = 0
    ours = cross_entropy.binary_cross_entropy(logits, targets, positive, shares)
    one_hot = F.one_hot(targets, classes).double()
    terms = F.binary_cross_entropy_with_logits(exact, one_hot, reduction="none")
    truth = (torch.where(one_hot > 0, positive[:, None], 1) * terms * shares[:, None]).sum()
    ours.backward()
    truth.backward()
    assert ours.item() == pytest.approx(truth.item(), rel=1e-5, abs=1e-6)
    torch.testing.assert_close(logits.grad, exact.grad.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("detector", [Softmax(), DOC()], ids=repr)
def test_a_logit_that_is_no_number_shows_in_the_loss(detector, bad) -> None:
    logits = torch.zeros(3, 4)
    logits[1, 2] = bad
    logits.requires_grad_()
    loss = detector.loss(logits, torch.tensor([0, 1, 2]), torch.tensor([1, 1, 1, 0]))
    assert not math.isfinite(loss.item())
