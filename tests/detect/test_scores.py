# ruff: noqa: ARG002  (a score below looks away on purpose)
from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from scipy.special import logsumexp, softmax

from evergraph import names
from evergraph.detect import Outputs
from evergraph.detect.scores import MSP, Energy, Relative, Score, inner_state, outer_state
from evergraph.errors import InputError

SCORES = {name: names.load("score", name) for name in names.SCORES}

pytestmark = pytest.mark.usefixtures("one_thread")

some = settings(max_examples=40, deadline=None)

OF_OUTPUTS = ["msp", "energy"]


@dataclass(frozen=True)
class MaxLogit(Score):
    """Minus the largest logit."""

    def compute(self, outputs, state):
        return -outputs.logits.amax(1).double()


@dataclass(frozen=True)
class Centres(Score):
    """Distance to the nearest class mean, which a class keeps when it leaves the window; the logits without vectors."""

    def fit(self, outputs, targets, state):
        x = (outputs.logits if outputs.hidden is None else outputs.hidden).double()
        means = x.new_full((outputs.logits.shape[1], x.shape[1]), math.nan)
        if "means" in state and state["means"].shape[1] == x.shape[1]:
            means[: len(state["means"])] = state["means"]
        for column in targets.unique().tolist():
            means[column] = x[targets == column].mean(0)
        return {"means": means}

    def compute(self, outputs, state):
        x = (outputs.logits if outputs.hidden is None else outputs.hidden).double()
        means = state["means"][~state["means"].isnan().any(1)]
        return (
            torch.cdist(x, means, compute_mode="donot_use_mm_for_euclid_dist").amin(1) if len(means) else x.sum(1) * 0
        )


ALONE = [*(SCORES[name]() for name in OF_OUTPUTS), Energy(0.1), MaxLogit()]
ALL = [*ALONE, *map(Relative, ALONE), Relative(Relative(MSP(), 1), 0.5)]


def draw(n, classes, width=6, seed=0, dtype=torch.float64, scale=4.0):
    """Outputs of vertices whose vectors lie around the mean of their class, and targets of unequal classes."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    targets = (classes * torch.rand(n, generator=generator) ** 2).long()
    hidden = None
    if width:
        centres = 3 * torch.randn(classes, width, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
        hidden = centres[targets] + torch.randn(n, width, generator=generator, dtype=torch.float64)
        hidden = hidden.to(dtype)
    return Outputs(logits.to(dtype), hidden), targets


def take(outputs, rows):
    return Outputs(outputs.logits[rows], None if outputs.hidden is None else outputs.hidden[rows])


def near(found, expected, tolerance=1e-9):
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), np.asarray(expected), rtol=tolerance, atol=tolerance)


# --- what all have in common -----------------------------------------------------------------------------------------


@st.composite
def cases(draw):
    """Outputs to fit to, their targets, and outputs to score; few distinct values, so that much is tied or the same."""
    classes, width = draw(st.integers(1, 5)), draw(st.integers(0, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    coarse, scale = draw(st.booleans()), draw(st.sampled_from([1e-3, 1.0, 30.0, 1e4]))

    def outputs(n):
        def matrix(columns):
            values = 2 * torch.randn(n, columns, generator=generator, dtype=torch.float64)
            return scale * (values.round() if coarse else values)

        return Outputs(matrix(classes), matrix(width) if width else None)

    train = outputs(draw(st.integers(1, 30)))
    targets = torch.randint(classes, (len(train),), generator=generator)
    return train, targets, outputs(12), generator


@pytest.mark.parametrize("score", ALL, ids=repr)
@given(case=cases())
@some
def test_the_order_of_vertices_and_classes_means_nothing(score: Score, case) -> None:
    train, targets, new, generator = case
    state = score.fit(train, targets, {})
    expected = score.compute(new, state)
    assert expected.shape == (12,)
    assert expected.dtype == torch.float64
    assert expected.isfinite().all()

    rows = torch.randperm(12, generator=generator)
    near(score.compute(take(new, rows), state), expected[rows])
    rows = torch.randperm(len(train), generator=generator)
    near(score.compute(new, score.fit(take(train, rows), targets[rows], {})), expected)

    order = torch.randperm(train.logits.shape[1], generator=generator)
    renamed, moved = (replace(outputs, logits=outputs.logits[:, order]) for outputs in (train, new))
    near(score.compute(moved, score.fit(renamed, order.argsort()[targets], {})), expected)


@pytest.mark.parametrize("score", ALL, ids=repr)
@pytest.mark.parametrize("width", [0, 6])
def test_unseen_vertices_score_higher(score: Score, width: int) -> None:
    generator = torch.Generator().manual_seed(5)
    targets = torch.arange(4).repeat(20)

    def say(which):
        logits = torch.randn(len(which), 4, generator=generator) / 2
        logits[which >= 0, which[which >= 0]] += 8
        hidden = torch.randn(len(which), 6, generator=generator) / 3
        hidden[torch.arange(len(which)), which] += 4  # -1 is the last column, where no class is
        return Outputs(logits, hidden if width else None)

    new = torch.tensor([0, 1, 2, 3, -1, -1, -1, -1]).repeat(10)
    found = score.compute(say(new), score.fit(say(targets), targets, {}))
    assert found[new < 0].mean() > found[new >= 0].mean()
    assert found[new < 0].median() > found[new >= 0].median()


@pytest.mark.parametrize("score", ALL, ids=repr)
@pytest.mark.parametrize("width", [0, 6])
def test_states_are_flat_can_be_saved_and_are_left_alone(score: Score, width: int) -> None:
    train, targets = draw(30, 4, width, dtype=torch.float32)
    new, _ = draw(9, 4, width, seed=1, dtype=torch.float32)
    before = score.fit(*draw(20, 3, width, seed=2, dtype=torch.float32), {})
    given = [train.logits, targets, new.logits, *before.values(), *([train.hidden, new.hidden] if width else [])]
    kept = [value.clone() for value in given]
    state = score.fit(train, targets, before)
    found = score.compute(new, state)
    assert all(torch.equal(value, copy) for value, copy in zip(given, kept, strict=True) if not copy.isnan().any())
    assert all(isinstance(name, str) and not value.requires_grad for name, value in state.items())
    again = load(save(dict(state)))
    assert again.keys() == state.keys()
    assert torch.equal(score.compute(new, again), found)
    assert torch.equal(score.compute(new, state), found)


@pytest.mark.parametrize("score", ALL, ids=repr)
@pytest.mark.parametrize("width", [0, 6])
def test_classes_appear_and_leave(score: Score, width: int) -> None:
    state = score.fit(*draw(30, 2, width), {})
    # Two classes more, of which the last has no vertex; the first class has left.
    train, _ = draw(20, 4, width, seed=1)
    targets = torch.tensor([1] * 12 + [2] * 8)
    new, _ = draw(15, 4, width, seed=2)
    for before in (state, {}):
        found = score.compute(new, score.fit(train, targets, before))
        assert found.isfinite().all()
        assert found.unique().numel() > 1


@pytest.mark.parametrize("score", ALL, ids=repr)
@pytest.mark.parametrize("hidden", ["none", "zeros", "drawn"])
@pytest.mark.parametrize(("n", "classes"), [(1, 1), (1, 3), (5, 1), (2, 2), (0, 3), (0, 1)])
def test_little_to_fit_to(score: Score, hidden: str, n: int, classes: int) -> None:
    train, new = draw(n, classes)[0], draw(7, classes, seed=1)[0]
    if hidden != "drawn":
        train, new = (
            replace(outputs, hidden=None if hidden == "none" else torch.zeros(len(outputs), 6))
            for outputs in (train, new)
        )
    targets = torch.arange(n) % classes
    state = score.fit(train, targets, {})
    for outputs in (new, train, take(new, slice(0))):
        found = score.compute(outputs, state)
        assert found.shape == (len(outputs),)
        assert found.isfinite().all()
    assert score.compute(new, score.fit(train, targets, state)).isfinite().all()


@pytest.mark.parametrize("score", ALL, ids=repr)
@pytest.mark.parametrize("size", [1e4, 3e38, 1e-45])
@pytest.mark.parametrize("width", [0, 6])
def test_extremes_of_single_precision(score: Score, size: float, width: int) -> None:
    usual, targets = draw(20, 4, width, dtype=torch.float32)
    generator = torch.Generator().manual_seed(3)

    def extreme(n):
        signs = torch.randint(-1, 2, (n, 4 + width), generator=generator)
        values = (size * signs).float()
        return Outputs(values[:, :4], values[:, 4:] if width else None)

    states = [score.fit(usual, targets, {}), score.fit(extreme(20), targets, {})]
    for state in states:
        for new in (extreme(12), Outputs(torch.full((3, 4), size), extreme(3).hidden)):
            assert score.compute(new, state).isfinite().all()
        assert score.compute(usual, state).isfinite().all()


def test_nan_in_the_outputs_gives_nan() -> None:
    train, targets = draw(20, 3)
    new, _ = draw(4, 3, seed=1)
    new.logits[1], new.hidden[1] = math.nan, math.nan
    for score in ALL:
        found = score.compute(new, score.fit(train, targets, {}))
        assert found.isnan().tolist() == [False, True, False, False], score


@pytest.mark.parametrize("score", ALL, ids=repr)
def test_scores_are_values(score: Score) -> None:
    twin = replace(score)
    assert twin == score
    assert hash(twin) == hash(score)
    assert repr(twin) == repr(score)
    with pytest.raises(FrozenInstanceError):
        score.anything = 1


def test_scores_differ_by_kind_and_parameters() -> None:
    assert len(set(ALL)) == len(ALL)
    assert Energy(2) == Energy(np.float32(2))
    assert repr(Energy(2)) == "Energy(temperature=2.0)"
    assert repr(Relative(Energy(np.int64(3)), 1)) == "Relative(score=Energy(temperature=3.0), weight=1.0)"
    assert Relative(Energy(2)) == Relative(Energy(2.0), 10)
    assert Relative(Energy(2)) != Relative(Energy(3))
    assert list(SCORES) == OF_OUTPUTS
    assert Relative(MSP()).weight == 10


@pytest.mark.parametrize(
    ("make", "named", "fix"),
    [
        *((lambda v=v: Energy(v), "temperature", "above 0") for v in (0, -1.0, math.inf, math.nan, "1", None, True)),
        *((lambda v=v: Relative(MSP(), v), "weight", "above 0") for v in (0, -10, math.inf, math.nan, "10", None)),
        *((lambda v=v: Relative(v), "score", "evergraph.detect.scores") for v in (None, "msp", MSP)),
    ],
)
def test_bad_arguments(make, named: str, fix: str) -> None:
    with pytest.raises(InputError, match=rf"(?s)^the argument {named} is .*\. [A-Z].*{fix}"):
        make()


@pytest.mark.parametrize("score", [Relative(MSP()), Relative(Relative(Energy()))], ids=repr)
def test_nothing_can_be_scored_before_the_fit(score: Score) -> None:
    with pytest.raises(InputError, match=r"the state has no '\w+'\. Pass the state"):
        score.compute(draw(3, 2)[0], {})


def test_a_score_needs_a_way_to_score_and_no_state() -> None:
    class Half(Score):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Half()
    for score in (MSP(), Energy()):
        assert score.fit(*draw(5, 2), {}) == {}


# --- scores of the logits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [1, 2, 7])
def test_scores_of_the_logits_are_those_of_scipy(classes: int, dtype: torch.dtype) -> None:
    outputs, _ = draw(200, classes, dtype=dtype)
    x = outputs.logits.double().numpy()
    near(MSP().compute(outputs, {}), 1 - softmax(x, axis=1).max(1), 1e-12)
    for temperature in (0.01, 1.0, 3.0, 1e3):
        near(Energy(temperature).compute(outputs, {}), -temperature * logsumexp(x / temperature, axis=1), 1e-12)


def test_scores_of_huge_logits_are_exact() -> None:
    outputs = Outputs(torch.tensor([[1e4, -1e4, -1e4], [1e4, 1e4, -1e4], [-1e4, -1e4, -1e4]]))
    assert MSP().compute(outputs, {}).tolist() == pytest.approx([0, 1 / 2, 2 / 3], abs=1e-15)
    assert Energy().compute(outputs, {}).tolist() == pytest.approx(
        [-1e4, -1e4 - math.log(2), 1e4 - math.log(3)], rel=1e-15
    )


def test_scores_tell_vertices_apart_of_which_the_model_is_all_but_certain() -> None:
    gaps = torch.tensor([50.0, 60.0, 700.0], dtype=torch.float64)
    outputs = Outputs(torch.stack([gaps, torch.zeros(3), torch.zeros(3)], 1))
    assert MSP().compute(outputs, {}).tolist() == pytest.approx((2 * torch.exp(-gaps)).tolist(), rel=1e-12, abs=0)


def test_one_class_is_certain() -> None:
    outputs = Outputs(torch.tensor([[3.0], [-1e4], [0.0]]))
    assert MSP().compute(outputs, {}).tolist() == [0, 0, 0]
    assert Energy(2).compute(outputs, {}).tolist() == MaxLogit().compute(outputs, {}).tolist() == [-3, 1e4, 0]


def test_a_cold_energy_is_the_largest_logit() -> None:
    outputs, _ = draw(50, 5, dtype=torch.float32, scale=1e4)
    near(Energy(1e-300).compute(outputs, {}), MaxLogit().compute(outputs, {}), 0)


# --- relative --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FirstHidden(Score):
    """The first column of the hidden vectors."""

    def compute(self, outputs, state):
        return outputs.hidden[:, 0].double()


def with_scores(values, predicted, classes):
    """Outputs whose `FirstHidden` and predicted classes are these."""
    logits = torch.nn.functional.one_hot(torch.tensor(predicted), classes).double()
    return Outputs(logits, torch.tensor(values, dtype=torch.float64).unsqueeze(1))


def relative_of(x, classes, train, predicted, weight):
    """One vertex after the other."""
    found = []
    for value, c in zip(x, classes, strict=True):
        own = train[predicted == c]
        mean, variance = (own.mean(), own.var()) if len(own) else (0, 0)
        mean = (len(own) * mean + weight * train.mean()) / (len(own) + weight)
        variance = (len(own) * variance + weight * train.var()) / (len(own) + weight)
        found.append((value - mean) / math.sqrt(variance))
    return found


def test_relative_by_hand() -> None:
    score = Relative(FirstHidden(), weight=2)
    # All: mean 4, variance 26/3. Class 0 has 1 and 3: mean 2, variance 1. Class 1 has 8. Class 2 has none.
    train = with_scores([1, 3, 8], [0, 0, 1], 3)
    state = score.fit(train, torch.tensor([2, 2, 2]), {})  # predictions count, not targets
    variance = 26 / 3
    assert state["mean"].tolist() == pytest.approx([(2 * 2 + 2 * 4) / 4, (8 + 2 * 4) / 3, 4])
    assert state["sd"].square().tolist() == pytest.approx([(2 + 2 * variance) / 4, 2 * variance / 3, variance])
    assert (state["mean_of_all"].item(), state["sd_of_all"].item()) == pytest.approx((4, math.sqrt(variance)))
    new = with_scores([5, 5, 5], [0, 1, 2], 3)
    sd = state["sd"].tolist()
    assert score.compute(new, state).tolist() == pytest.approx([2 / sd[0], (5 - 16 / 3) / sd[1], 1 / sd[2]])


@pytest.mark.parametrize("inner", [*ALONE, Centres()], ids=repr)
@pytest.mark.parametrize("weight", [0.01, 10, 1e6])
def test_relative_is_that_of_the_formula(inner: Score, weight: float) -> None:
    train, targets = draw(60, 4, dtype=torch.float32)
    train.logits[:, 3] -= 100  # no vertex is predicted as the last class
    new, _ = draw(40, 4, seed=1, dtype=torch.float32)
    score = Relative(inner, weight)
    state = score.fit(train, targets, {})
    alone = inner.fit(train, targets, {})
    x, values = inner.compute(new, alone).numpy(), inner.compute(train, alone).numpy()
    classes, known = (outputs.logits.argmax(1).numpy() for outputs in (new, train))
    assert 3 in classes
    assert 3 not in known
    near(score.compute(new, state), relative_of(x, classes, values, known, weight))
    assert set(state) == {"mean", "sd", "mean_of_all", "sd_of_all"} | {f"score/{name}" for name in alone}
    assert all(torch.equal(state[f"score/{name}"], alone[name]) for name in alone)


@given(st.integers(0, 2**31), st.floats(0.1, 100), st.floats(-100, 100))
@some
def test_the_level_of_the_other_score_does_not_count(seed: int, factor: float, shift: float) -> None:
    train, targets = draw(40, 4, seed=seed)
    new, _ = draw(20, 4, seed=seed + 1)
    score = Relative(MaxLogit())
    expected = score.compute(new, score.fit(train, targets, {}))
    train, new = (replace(outputs, logits=factor * outputs.logits + shift) for outputs in (train, new))
    near(score.compute(new, score.fit(train, targets, {})), expected, 1e-8)


def test_training_vertices_of_a_large_class_are_standard() -> None:
    outputs, targets = draw(2000, 3)
    score = Relative(Energy(), weight=1e-9)
    found = score.compute(outputs, score.fit(outputs, targets, {})).numpy()
    for c in range(3):
        own = found[outputs.logits.argmax(1).numpy() == c]
        assert own.mean() == pytest.approx(0, abs=1e-9)
        assert own.std() == pytest.approx(1, abs=1e-9)


def test_the_other_score_gets_what_it_fitted_before() -> None:
    score = Relative(Relative(Centres()))
    first = score.fit(*draw(40, 3), {})
    later, targets = draw(30, 4, seed=1)[0], torch.tensor([1, 2, 3] * 10)
    second = score.fit(later, targets, first)
    assert torch.equal(second["score/score/means"][0], first["score/score/means"][0])
    assert score.fit(later, targets, {})["score/score/means"][0].isnan().all()


def test_a_vertex_between_classes_counts_for_each() -> None:
    score = Relative(FirstHidden(), weight=1)
    train = with_scores([1, 3, 8], [0, 0, 1], 2)
    train.logits[1] = 7.0  # half of the second vertex is of either class
    state = score.fit(train, torch.tensor([0, 0, 1]), {})
    assert state["mean"].tolist() == pytest.approx([(1 + 1.5 + 4) / 2.5, (1.5 + 8 + 4) / 2.5])
    mean, sd = state["mean"].numpy(), state["sd"].numpy()
    between = replace(with_scores([6], [0], 2), logits=torch.zeros(1, 2))
    assert score.compute(between, state).item() == pytest.approx(((6 - mean) / sd).mean())


def test_classes_that_came_after_the_fit_have_the_values_of_all() -> None:
    score = Relative(FirstHidden())
    state = score.fit(with_scores([1, 3, 8], [0, 0, 1], 2), torch.tensor([0, 0, 1]), {})
    found = score.compute(with_scores([5, 5], [2, 1], 4), state).tolist()
    sd = math.sqrt(26 / 3)
    assert found[0] == pytest.approx(1 / sd)
    assert found[1] != pytest.approx(1 / sd)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e4, -1e-30])
@pytest.mark.parametrize("n", [1, 7])
def test_if_all_scores_are_equal_the_deviation_is_1(value: float, n: int) -> None:
    score = Relative(FirstHidden())
    train = with_scores([value] * n, [row % 2 for row in range(n)], 3)
    state = score.fit(train, torch.zeros(n, dtype=torch.int64), {})
    assert state["sd"].tolist() == [1, 1, 1]
    assert state["sd_of_all"] == 1
    assert score.compute(with_scores([value + 2, value], [0, 2], 3), state).tolist() == pytest.approx([2, 0], abs=1e-9)


def test_a_spread_close_to_0_counts_as_rounding() -> None:
    # As the distance of a vector to itself may be, where it is not 0.
    score = Relative(FirstHidden())
    state = score.fit(with_scores([0, 1e-32, 3e-32], [0, 1, 1], 2), torch.tensor([0, 1, 1]), {})
    assert state["sd"].tolist() == [1, 1]
    # Small differences are differences all the same.
    state = score.fit(with_scores([0, 1e-15, 3e-15], [0, 1, 1], 2), torch.tensor([0, 1, 1]), {})
    assert (state["sd"] < 1e-14).all()


def test_a_class_whose_vertices_score_alike_does_not_take_rounding_for_a_difference() -> None:
    score = Relative(FirstHidden(), weight=1e-30)
    train = with_scores([0.1] * 30 + [5.0, 9.0], [0] * 30 + [1, 1], 2)
    state = score.fit(train, torch.zeros(32, dtype=torch.int64), {})
    assert state["sd"][0].item() == pytest.approx(9e-6)
    assert score.compute(train, state)[:30].abs().max() < 1e-9


# --- states within states --------------------------------------------------------------------------------------------


def test_states_have_names_that_tell_whose_they_are() -> None:
    state = {"mean": torch.ones(1), "past.mean": torch.zeros(2)}
    twice = outer_state(outer_state(state, "1"), "score")
    assert set(twice) == {"score/1/mean", "past.score/1/mean"}
    back = inner_state(
        inner_state({**twice, "score/10/mean": torch.ones(3), "past.scores": torch.ones(4)}, "score"), "1"
    )
    assert back.keys() == state.keys()
    assert all(back[name] is state[name] for name in state)
    assert inner_state(twice, "1") == {}
