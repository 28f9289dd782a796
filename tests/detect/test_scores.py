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
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, softmax
from scipy.stats import entropy
from sklearn.covariance import empirical_covariance, shrunk_covariance
from sklearn.neighbors import NearestNeighbors
from torch.utils._python_dispatch import TorchDispatchMode

from evergraph import names
from evergraph.detect import Outputs
from evergraph.detect.scores import (
    MSP,
    Energy,
    Entropy,
    Mahalanobis,
    MaxLogit,
    Nearest,
    Relative,
    Score,
)
from evergraph.detect.scores import (
    outputs as outputs_module,
)
from evergraph.errors import InputError

SCORES = {name: names.load("score", name) for name in names.SCORES}

pytestmark = pytest.mark.usefixtures("one_thread")

some = settings(max_examples=40, deadline=None)

OF_OUTPUTS = [
    "msp",
    "max_logit",
    "energy",
    "entropy",
    "mahalanobis",
    "nearest",
]  # the others: test_graph_scores.py, test_second.py
ALONE = [
    *(SCORES[name]() for name in OF_OUTPUTS),
    Energy(0.1),
    Mahalanobis(1.0),
    Mahalanobis(1e-3),
    Nearest(1),
    Nearest(2, most=19),
]
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


def vectors(outputs):
    return (outputs.logits if outputs.hidden is None else outputs.hidden).double().numpy()


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

    sorted_rows = train.logits.sort(1).values
    if "most=19" in repr(score) and train.hidden is None and len(sorted_rows.unique(dim=0)) < len(train):
        return  # of (0, 1) and (1, 0) only one is kept: that cannot be but by the order of the columns
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
def test_classes_come_and_go(score: Score, width: int) -> None:
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


def test_a_thing_that_is_no_number_shows() -> None:
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
    assert Nearest(np.int64(3)) == Nearest(3)
    assert repr(Energy(2)) == "Energy(temperature=2.0)"
    assert repr(Relative(Nearest(np.int64(3)), 1)) == "Relative(score=Nearest(k=3, most=20000), weight=1.0)"
    assert Relative(Energy(2)) == Relative(Energy(2.0), 10)
    assert Relative(Energy(2)) != Relative(Energy(3))
    of_words = ["new_words", "word_growth", "excess_words", "class_likelihood"]
    of_neighbours = ["new_neighbours", "known_distance", "slice_density"]
    assert list(SCORES) == [*OF_OUTPUTS, "auxiliary", *of_words, *of_neighbours]
    assert (Mahalanobis().shrinkage, Nearest().k, Nearest().most, Relative(MSP()).weight) == (0.1, 10, 20_000, 10)


@pytest.mark.parametrize(
    ("make", "named", "fix"),
    [
        *((lambda v=v: Energy(v), "temperature", "above 0") for v in (0, -1.0, math.inf, math.nan, "1", None, True)),
        *((lambda v=v: Mahalanobis(v), "shrinkage", "up to 1") for v in (0, -0.1, 1.5, math.nan, "0.1", None)),
        *((lambda v=v: Nearest(v), "k", "whole number from 1 up") for v in (0, -1, 2.0, math.nan, "3", None, True)),
        *((lambda v=v: Nearest(most=v), "most", "whole number from 1 up") for v in (0, -5, 1e4, None)),
        *((lambda v=v: Relative(MSP(), v), "weight", "above 0") for v in (0, -10, math.inf, math.nan, "10", None)),
        *((lambda v=v: Relative(v), "score", "evergraph.detect.scores") for v in (None, "msp", MSP)),
    ],
)
def test_bad_arguments(make, named: str, fix: str) -> None:
    with pytest.raises(InputError, match=rf"(?s)^the argument {named} is .*To fix it: .*{fix}"):
        make()


@pytest.mark.parametrize("score", [Mahalanobis(), Nearest(), Relative(MSP()), Relative(Nearest())], ids=repr)
def test_nothing_can_be_scored_before_the_fit(score: Score) -> None:
    with pytest.raises(InputError, match=r"the state has no '\w+'\. To fix it"):
        score.compute(draw(3, 2)[0], {})


@pytest.mark.parametrize("score", [Mahalanobis(), Nearest()], ids=repr)
def test_vectors_must_be_as_wide_as_those_of_the_fit(score: Score) -> None:
    state = score.fit(*draw(9, 2, width=6), {})
    with pytest.raises(InputError, match="the vectors have 5 columns, but the score was fitted to 6"):
        score.compute(draw(3, 2, width=5)[0], state)


def test_a_score_needs_a_way_to_score_and_no_state() -> None:
    class Half(Score):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Half()
    for score in (MSP(), MaxLogit(), Energy(), Entropy()):
        assert score.fit(*draw(5, 2), {}) == {}


# --- scores of the logits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [1, 2, 7])
def test_scores_of_the_logits_are_those_of_scipy(classes: int, dtype: torch.dtype) -> None:
    outputs, _ = draw(200, classes, dtype=dtype)
    x = outputs.logits.double().numpy()
    near(MSP().compute(outputs, {}), 1 - softmax(x, axis=1).max(1), 1e-12)
    near(MaxLogit().compute(outputs, {}), -x.max(1), 0)
    near(Entropy().compute(outputs, {}), entropy(softmax(x, axis=1), axis=1), 1e-12)
    for temperature in (0.01, 1.0, 3.0, 1e3):
        near(Energy(temperature).compute(outputs, {}), -temperature * logsumexp(x / temperature, axis=1), 1e-12)


def test_scores_of_huge_logits_are_exact() -> None:
    outputs = Outputs(torch.tensor([[1e4, -1e4, -1e4], [1e4, 1e4, -1e4], [-1e4, -1e4, -1e4]]))
    assert MSP().compute(outputs, {}).tolist() == pytest.approx([0, 1 / 2, 2 / 3], abs=1e-15)
    assert MaxLogit().compute(outputs, {}).tolist() == [-1e4, -1e4, 1e4]
    assert Entropy().compute(outputs, {}).tolist() == pytest.approx([0, math.log(2), math.log(3)], abs=1e-15)
    assert Energy().compute(outputs, {}).tolist() == pytest.approx(
        [-1e4, -1e4 - math.log(2), 1e4 - math.log(3)], rel=1e-15
    )


def test_scores_tell_vertices_apart_of_which_the_model_is_all_but_certain() -> None:
    gaps = torch.tensor([50.0, 60.0, 700.0], dtype=torch.float64)
    outputs = Outputs(torch.stack([gaps, torch.zeros(3), torch.zeros(3)], 1))
    assert MSP().compute(outputs, {}).tolist() == pytest.approx((2 * torch.exp(-gaps)).tolist(), rel=1e-12, abs=0)
    # Of each other class -p log p is p times the gap, and of the likeliest one it is the sum of the others.
    expected = (2 * torch.exp(-gaps) * (gaps + 1)).tolist()
    assert Entropy().compute(outputs, {}).tolist() == pytest.approx(expected, rel=1e-12, abs=0)


def test_one_class_is_certain() -> None:
    outputs = Outputs(torch.tensor([[3.0], [-1e4], [0.0]]))
    assert MSP().compute(outputs, {}).tolist() == [0, 0, 0]
    assert Entropy().compute(outputs, {}).tolist() == [0, 0, 0]
    assert Energy(2).compute(outputs, {}).tolist() == MaxLogit().compute(outputs, {}).tolist() == [-3, 1e4, 0]


def test_a_cold_energy_is_the_largest_logit() -> None:
    outputs, _ = draw(50, 5, dtype=torch.float32, scale=1e4)
    near(Energy(1e-300).compute(outputs, {}), MaxLogit().compute(outputs, {}), 0)


# --- Mahalanobis -----------------------------------------------------------------------------------------------------


def mahalanobis_of(x, train, targets, shrinkage, kept=()):
    """The way of scikit-learn and scipy: its covariance of what is left of each class, and its distances."""
    means = {c: train[targets == c].mean(0) for c in np.unique(targets)} | dict(kept)
    left = np.stack([row - means[c] for row, c in zip(train, targets, strict=True)])
    covariance = shrunk_covariance(empirical_covariance(left, assume_centered=True), shrinkage)
    return cdist(x, np.stack(list(means.values())), "mahalanobis", VI=np.linalg.inv(covariance)).min(1)


@pytest.mark.parametrize("shrinkage", [1e-3, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("classes", "width"), [(1, 6), (4, 6), (4, 0), (1, 0), (3, 1)])
def test_mahalanobis_is_that_of_scikit_learn(shrinkage, dtype, classes, width) -> None:
    train, targets = draw(60, classes, width, dtype=dtype)
    new, _ = draw(40, classes, width, seed=1, dtype=dtype)
    state = Mahalanobis(shrinkage).fit(train, targets, {})
    assert {value.dtype for value in state.values()} == {torch.float64}
    expected = mahalanobis_of(vectors(new), vectors(train), targets.numpy(), shrinkage)
    near(Mahalanobis(shrinkage).compute(new, state), expected)


def test_directions_without_spread_can_be_measured() -> None:
    # Fewer vertices than columns, and a column in which all are alike.
    train, targets = draw(5, 2, width=20)
    train.hidden[:, 7] = 3
    new, _ = draw(10, 2, width=20, seed=1)
    score = Mahalanobis()
    near(
        score.compute(new, score.fit(train, targets, {})),
        mahalanobis_of(vectors(new), vectors(train), targets.numpy(), 0.1),
    )


def test_shrinkage_is_chosen_after_the_fit() -> None:
    train, targets = draw(40, 3)
    states = [Mahalanobis(shrinkage).fit(train, targets, {}) for shrinkage in (0.1, 0.9)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in ("means", "covariance"))
    assert not torch.equal(Mahalanobis(0.1).compute(train, states[0]), Mahalanobis(0.9).compute(train, states[0]))


def test_small_distances_far_from_nought_keep_their_digits() -> None:
    # On a grid that doubles hold exactly around 2^12, so that the shift changes nothing.
    train, targets = draw(60, 3)
    new, _ = draw(20, 3, seed=1)
    train, new = (replace(outputs, hidden=(outputs.hidden * 2**20).round() / 2**20) for outputs in (train, new))
    score, shift = Mahalanobis(), 2.0**12
    expected = score.compute(new, score.fit(train, targets, {}))
    train, new = (replace(outputs, hidden=outputs.hidden + shift) for outputs in (train, new))
    near(score.compute(new, score.fit(train, targets, {})), expected, 1e-10)


def test_a_class_that_left_the_window_keeps_its_mean() -> None:
    score = Mahalanobis()
    train, targets = draw(40, 3)
    first = score.fit(train, targets, {})
    assert not first["means"].isnan().any()

    later, _ = draw(30, 5, seed=1)
    targets = torch.tensor([1] * 15 + [2] * 14 + [3])
    second = score.fit(later, targets, first)
    assert torch.equal(second["means"][0], first["means"][0])
    assert (second["means"][1:3] != first["means"][1:]).all()
    assert torch.equal(second["means"][3], later.hidden[-1])
    assert second["means"][4].isnan().all()

    new, _ = draw(50, 5, seed=2)
    kept = {0: first["means"][0].numpy()}
    expected = mahalanobis_of(vectors(new), vectors(later), targets.numpy(), 0.1, kept)
    near(score.compute(new, second), expected)
    # The mean that was kept is nearest to some, and after a cold restart nothing is left of it.
    cold = score.fit(later, targets, {})
    assert cold["means"].isnan().any(1).tolist() == [True, False, False, False, True]
    near(score.compute(new, cold), mahalanobis_of(vectors(new), vectors(later), targets.numpy(), 0.1))
    assert (score.compute(new, cold) > score.compute(new, second) + 0.1).any()


@pytest.mark.parametrize("width", [0, 5])
def test_means_of_another_width_are_dropped(width: int) -> None:
    score = Mahalanobis()
    first = score.fit(*draw(40, 3, width=6), {})
    later, targets = draw(30, 4, width, seed=1)[0], torch.tensor([1, 2] * 15)
    found = score.fit(later, targets, first)
    assert found["means"].isnan().any(1).tolist() == [True, False, False, True]
    near(found["covariance"], score.fit(later, targets, {})["covariance"], 0)


def test_mahalanobis_in_one_go_and_in_parts(monkeypatch) -> None:
    train, targets = draw(60, 4)
    new, _ = draw(50, 4, seed=1)
    score = Mahalanobis()
    state = score.fit(train, targets, {})
    whole = score.compute(new, state)
    monkeypatch.setattr(outputs_module, "_ROWS", 7)
    near(score.compute(new, state), whole, 1e-13)


def test_training_vertices_that_do_not_spread_are_at_distance_nought() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 8, generator=generator, dtype=torch.float64).repeat(7, 1)
    outputs, targets = Outputs(torch.zeros(21, 3), hidden), torch.arange(3).repeat(7)
    score = Mahalanobis()
    state = score.fit(outputs, targets, {})
    assert score.compute(outputs, state).tolist() == [0] * 21
    away = score.compute(Outputs(torch.zeros(2, 3), hidden[:2] + torch.tensor([[0.01], [0.02]])), state)
    assert away.isfinite().all()
    assert 0 < away[0] < away[1]


def test_vectors_of_nought_are_measured_plainly() -> None:
    score = Mahalanobis()
    state = score.fit(Outputs(torch.zeros(4, 2), torch.zeros(4, 2)), torch.tensor([0, 0, 1, 1]), {})
    assert score.compute(Outputs(torch.zeros(2, 2), torch.tensor([[3.0, 4.0], [0.0, 0.0]])), state).tolist() == [5, 0]


def test_without_any_mean_nobody_stands_out() -> None:
    score, nobody = Mahalanobis(), torch.zeros(0, dtype=torch.int64)
    state = score.fit(Outputs(torch.zeros(0, 2), torch.zeros(0, 6)), nobody, {})
    new, _ = draw(3, 2)
    assert score.compute(new, state).tolist() == [0, 0, 0]
    # Whoever has learnt before, and now finds nobody to learn from, knows what was known.
    first = score.fit(*draw(30, 2), {})
    again = score.fit(Outputs(torch.zeros(0, 2), torch.zeros(0, 6)), nobody, first)
    assert torch.equal(score.compute(new, again), score.compute(new, first))


# --- nearest ---------------------------------------------------------------------------------------------------------


def nearest_of(x, train, k):
    """The way of scikit-learn."""
    found = NearestNeighbors(n_neighbors=min(k, len(train)), metric="cosine", algorithm="brute").fit(train)
    return found.kneighbors(x)[0][:, -1]


@pytest.mark.parametrize("k", [1, 2, 10, 39, 40, 41, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [0, 2, 6])
def test_nearest_is_that_of_scikit_learn(k, dtype, width) -> None:
    train, targets = draw(40, 3, width, dtype=dtype)
    new, _ = draw(30, 3, width, seed=1, dtype=dtype)
    score = Nearest(k)
    state = score.fit(train, targets, {})
    assert state["vectors"].dtype == torch.float32
    assert state["vectors"].shape == vectors(train).shape
    np.testing.assert_allclose(np.linalg.norm(state["vectors"].numpy(), axis=1), 1, atol=1e-6)
    near(score.compute(new, state), nearest_of(vectors(new), vectors(train), k), 1e-6)
    # Of what single precision has left of the vectors, to all digits.
    rounded = vectors(new) / np.linalg.norm(vectors(new), axis=1, keepdims=True)
    near(score.compute(new, state), nearest_of(rounded.astype(np.float32).astype(float), state["vectors"].double(), k))


def test_length_does_not_count() -> None:
    train, targets = draw(40, 3)
    new, _ = draw(30, 3, seed=1)
    score = Nearest()
    expected = score.compute(new, score.fit(train, targets, {}))
    lengths = torch.logspace(-290, 290, 40, dtype=torch.float64).unsqueeze(1)
    train, new = replace(train, hidden=train.hidden * lengths), replace(new, hidden=new.hidden * lengths[:30])
    near(score.compute(new, score.fit(train, targets, {})), expected, 1e-7)


def test_small_distances_keep_their_digits() -> None:
    angles = torch.tensor([0.0, 1e-3, 1e-4, 1e-5], dtype=torch.float64)
    new = Outputs(torch.zeros(4, 1), torch.stack([angles.cos(), angles.sin()], 1))
    score = Nearest(1)
    state = score.fit(Outputs(torch.zeros(1, 1), torch.tensor([[2.0, 0.0]])), torch.tensor([0]), {})
    assert score.compute(new, state).tolist() == pytest.approx((angles.square() / 2).tolist(), rel=1e-6, abs=0)


def test_equal_vectors_are_at_distance_nought_and_opposite_ones_at_two() -> None:
    train, targets = draw(40, 3, dtype=torch.float32)
    state = Nearest(1).fit(train, targets, {})
    assert Nearest(1).compute(train, state).tolist() == pytest.approx([0] * 40, abs=1e-30)
    assert Nearest(40).compute(replace(train, hidden=-train.hidden), state).max() == pytest.approx(2, abs=1e-15)


def test_a_vector_of_nought_is_at_right_angles_to_all() -> None:
    hidden = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    state = Nearest(1).fit(Outputs(torch.zeros(2, 1), hidden), torch.tensor([0, 0]), {})
    new = Outputs(torch.zeros(4, 1), torch.tensor([[0.0, 0.0], [0.0, 5.0], [-1.0, 0.0], [3.0, 0.0]]))
    assert Nearest(1).compute(new, state).tolist() == [1, 1, 1, 0]
    assert Nearest(2).compute(new, state).tolist() == [1, 1, 2, 1]


@pytest.mark.parametrize("block", [1, 41, 100, 1000])
def test_nearest_in_one_go_and_in_parts(block: int, monkeypatch) -> None:
    train, targets = draw(40, 3)
    new, _ = draw(33, 3, seed=1)
    state = Nearest(4).fit(train, targets, {})
    whole = Nearest(4).compute(new, state)
    monkeypatch.setattr(outputs_module, "_BLOCK", block)
    near(Nearest(4).compute(new, state), whole, 1e-13)


class Largest(TorchDispatchMode):
    """Notes how many numbers the largest tensor has that an operation makes."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(each, torch.Tensor):
                self.numbers = max(self.numbers, each.numel())
        return out


def test_the_memory_of_nearest_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(outputs_module, "_BLOCK", 20_000)
    train, targets = draw(500, 3)
    new, _ = draw(3000, 3, seed=1)
    state = Nearest(2).fit(train, targets, {})
    with Largest() as largest:
        Nearest(2).compute(new, state)
    assert largest.numbers == 20_000  # not 500 times 3000


@pytest.mark.parametrize("n", [19, 20, 21, 39, 40, 41, 200])
def test_no_more_vectors_than_most_are_kept(n: int) -> None:
    train, targets = draw(n, 3)
    score = Nearest(3, most=20)
    state = score.fit(train, targets, {})
    found = state["vectors"].numpy()
    assert len(found) == min(n, 20)
    assert len(np.unique(found, axis=0)) == len(found)
    everyone = Nearest(3).fit(train, targets, {})["vectors"].numpy()
    assert {tuple(row) for row in found} <= {tuple(row) for row in everyone}
    if n <= 20:
        assert np.array_equal(found, everyone)
    new, _ = draw(30, 3, seed=1)
    near(score.compute(new, state), nearest_of(vectors(new), found.astype(float), 3), 1e-6)
    assert torch.equal(score.fit(train, targets, {})["vectors"], state["vectors"])


def test_vectors_are_kept_evenly() -> None:
    # Larger vectors have larger angles, so those kept must have even angles: every 91st of 1001.
    angles = torch.linspace(0, math.pi / 4, 1001, dtype=torch.float64)
    hidden = torch.stack([angles.cos(), angles.sin()], 1) * (1 + 10 * angles.unsqueeze(1))
    shuffled = torch.randperm(1001, generator=torch.Generator().manual_seed(0))
    train = Outputs(torch.zeros(1001, 1), hidden[shuffled])
    kept = Nearest(most=11).fit(train, torch.zeros(1001, dtype=torch.int64), {})["vectors"].double()
    steps = torch.atan2(kept[:, 1], kept[:, 0]).sort().values.diff()
    near(steps, [91 * math.pi / 4000] * 10, 1e-6)


@given(cases(), st.integers(1, 10))
@some
def test_which_vectors_are_kept_does_not_depend_on_order(case, most: int) -> None:
    train, targets, _, generator = case
    rows = torch.randperm(len(train), generator=generator)
    score = Nearest(most=most)
    one, other = (score.fit(outputs, targets, {})["vectors"] for outputs in (train, take(train, rows)))
    assert sorted(map(tuple, one.tolist())) == sorted(map(tuple, other.tolist()))


def test_without_training_vertices_all_are_equally_far() -> None:
    state = Nearest().fit(Outputs(torch.zeros(0, 2), torch.zeros(0, 6)), torch.zeros(0, dtype=torch.int64), {})
    assert Nearest().compute(draw(3, 2)[0], state).tolist() == [1, 1, 1]


# --- relative --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FirstHidden(Score):
    """Whatever stands in the first column of the hidden vectors."""

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


@pytest.mark.parametrize("inner", ALONE, ids=repr)
@pytest.mark.parametrize("weight", [0.01, 10, 1e6])
def test_relative_is_that_of_the_formula(inner: Score, weight: float) -> None:
    train, targets = draw(60, 4, dtype=torch.float32)
    train.logits[:, 3] -= 100  # nobody is predicted as the last class
    new, _ = draw(40, 4, seed=1, dtype=torch.float32)
    score = Relative(inner, weight)
    state = score.fit(train, targets, {})
    alone = inner.fit(train, targets, {})
    if inner != Nearest(1):  # of which every training vertex has 0
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
    score = Relative(Relative(Mahalanobis()))
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
def test_where_all_score_alike_the_deviation_is_one(value: float, n: int) -> None:
    score = Relative(FirstHidden())
    train = with_scores([value] * n, [row % 2 for row in range(n)], 3)
    state = score.fit(train, torch.zeros(n, dtype=torch.int64), {})
    assert state["sd"].tolist() == [1, 1, 1]
    assert state["sd_of_all"] == 1
    assert score.compute(with_scores([value + 2, value], [0, 2], 3), state).tolist() == pytest.approx([2, 0], abs=1e-9)


def test_what_is_next_to_nought_is_nought() -> None:
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
