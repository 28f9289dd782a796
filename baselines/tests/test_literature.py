"""Detectors of the literature, against scipy, scikit-learn, autograd and plain loops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.svm import OneClassSVM as Reference
from torch import Tensor

from evergraph import InputError, LifelongLearner, names, tasks
from evergraph.datasets import synthetic
from evergraph.detect import Detector, Outputs, PostHoc, Softmax, check_detector
from evergraph.detect.base import PAST, UNKNOWN, UNLABELLED
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.replay import record, replay_all
from evergraph.nn import GraphSAGE
from evergraph_baselines.ecsminer import ECSMiner, cohesion, k_means
from evergraph_baselines.exposure import Exposed, Gained, Objectosphere, OutlierExposure
from evergraph_baselines.l2ac import L2AC
from evergraph_baselines.odin import ODIN
from evergraph_baselines.openmax import OpenMax, weibull
from evergraph_baselines.openwgl import OpenWGL
from evergraph_baselines.svm import CBSSVM, OneClassSVM, similarities, solve_one_class
from evergraph_baselines.vectors import SAMPLE, nearest, newton, output_map, sample, spread

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = ["odin", "openmax", "outlier-exposure", "objectosphere", "openwgl", "l2ac"]
NAMES += ["cbs-svm", "one-class-svm", "ecsminer"]
OURS: dict[str, Detector] = {
    "odin": PostHoc(ODIN()),
    "openmax": OpenMax(),
    "outlier-exposure": PostHoc(OutlierExposure()),
    "objectosphere": PostHoc(Objectosphere()),
    "openwgl": OpenWGL(),
    "l2ac": L2AC(),
    "cbs-svm": CBSSVM(),
    "one-class-svm": OneClassSVM(),
    "ecsminer": ECSMiner(),
}


def draw(n: int, classes: int = 4, width: int = 6, seed: int = 0, unseen: int = 0) -> tuple[Outputs, Tensor]:
    """Outputs of a linear output layer, for vertices around one centre per class; the last ``unseen`` have a new one."""
    rng = np.random.default_rng(seed)
    centres = 3 * np.random.default_rng(99).standard_normal((classes + 1, width))
    targets = np.concatenate([(classes * rng.random(n) ** 2).astype(np.int64), np.full(unseen, classes)])
    hidden = torch.from_numpy(centres[targets] + rng.standard_normal((len(targets), width)))
    weight = torch.from_numpy(centres[:classes].T / 3)
    found = torch.from_numpy(np.where(targets < classes, targets, UNKNOWN))
    return Outputs(hidden @ weight - 1, hidden), found


# --- the contract ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("detector", OURS.values(), ids=OURS)
def test_all_keep_the_contract(detector: Detector) -> None:
    check_detector(detector)


@pytest.mark.parametrize(
    "detector",
    [
        PostHoc(ODIN(1.0, 0.5)),
        OpenMax(tail=2, alpha=10),
        PostHoc(OutlierExposure(5.0)),
        PostHoc(Objectosphere(1.0, 3.0)),
        OpenWGL(weight=0, samples=3),
        L2AC(nearest=1),
        L2AC(nearest=100),
        CBSSVM(100.0),
        OneClassSVM(1.0),
        ECSMiner(clusters=1, neighbours=1),
        ECSMiner(clusters=1000, neighbours=1000),
    ],
    ids=repr,
)
def test_other_settings_keep_the_contract(detector: Detector) -> None:
    check_detector(detector)


@pytest.mark.parametrize("name", NAMES)
def test_each_has_a_name(name: str) -> None:
    kind = "detector" if name in names.known("detector") else "score"
    built = names.load(kind, name)()
    assert built == (OURS[name] if kind == "detector" else getattr(OURS[name], "by"))  # noqa: B009
    assert names.build_detector(name) == OURS[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("counts", [[1], [9], [9, 1], [9, 0, 1], [1, 1, 1]])
def test_few_classes_and_few_vertices_are_enough(name: str, hidden: bool, counts: list[int]) -> None:
    targets = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    outputs, _ = draw(len(targets), len(counts))
    new, labels = draw(12, len(counts), unseen=4)
    if not hidden:
        outputs, new = replace(outputs, hidden=None), replace(new, hidden=None)
    detector = OURS[name]
    state = detector.fit(outputs, targets, {})
    for _ in range(2):
        decision = detector.decide(new, state)
        assert decision.score.isfinite().all()
        if detector.requires.observe:
            state = detector.observe(new, labels, state)
            state = {**state, **detector.fit(outputs, targets, state)}


@pytest.mark.parametrize("name", NAMES)
def test_hidden_vectors_that_are_all_the_same_are_enough(name: str) -> None:
    outputs = Outputs(torch.zeros(6, 2), torch.zeros(6, 3))  # of a model whose units are all off
    targets = torch.tensor([0, 0, 0, 1, 1, UNKNOWN])
    detector = OURS[name]
    state = detector.fit(outputs[:5], targets[:5], {})
    if detector.requires.observe:
        state = detector.observe(outputs, targets, state)
        state = {**state, **detector.fit(outputs[:5], targets[:5], state)}
    assert detector.decide(outputs, state).score.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_the_state_is_bounded_and_does_not_depend_on_the_order_of_the_training_vertices(name: str) -> None:
    outputs, targets = draw(5000)
    new, labels = draw(300, seed=1, unseen=60)
    detector = OURS[name]
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(1))
    decisions = []
    for train, of in ((outputs, targets), (outputs[order], targets[order]), (outputs, targets)):
        state = detector.fit(train, of, {})
        if detector.requires.observe:
            for _ in range(8):
                state = detector.observe(new, labels, state)
            state = {**state, **detector.fit(train, of, state)}
        own = {key: value for key, value in state.items() if key not in OF_THRESHOLDS}
        assert max(len(value) for value in own.values() if value.ndim) <= SAMPLE
        assert sum(value.numel() for value in own.values()) <= SAMPLE * 12
        decisions.append(detector.decide(new, state))
    np.testing.assert_allclose(decisions[1].score, decisions[0].score, rtol=1e-6, atol=1e-7)
    assert torch.equal(decisions[2].score, decisions[0].score)
    assert decisions[0].score[labels < 0].mean() > decisions[0].score[labels >= 0].mean()


OF_THRESHOLDS = [PAST + name for name in ("scores", "unseen", "best", "slices")]


def test_all_run_on_a_graph(tmp_path: Path) -> None:
    graph = synthetic(vertices=360, times=7, classes=4, new_classes=2, words=80, words_per_vertex=5, seed=2)
    configuration = Configuration(model=GraphSAGE(hidden=8), detector=Softmax(), history=2, steps=5)
    recording = record(configuration, graph, 0, tmp_path / "recorded")
    plain = [detector for name, detector in OURS.items() if name != "openwgl"]
    for found in replay_all(recording, graph, plain):
        assert all(np.isfinite(task.decisions.score).all() for task in found)
    for restart in ("warm", "cold"):
        learner = LifelongLearner(GraphSAGE(hidden=8), OpenWGL(samples=5), steps=5, restart=restart)
        for task in tasks(graph, 2, first=5):
            decisions = learner.adapt(task).predict(task)
        assert learner.detector_.state["past.counts"][0] > 0
        assert len(decisions) == len(task.test_ids)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ODIN(temperature=0),
        lambda: ODIN(epsilon=-1),
        lambda: OpenMax(tail=1),
        lambda: OpenMax(alpha=0),
        lambda: OutlierExposure(0),
        lambda: Objectosphere(least=0),
        lambda: OpenWGL(samples=0),
        lambda: L2AC(nearest=0.5),  # type: ignore[arg-type]
        lambda: CBSSVM(cost=float("nan")),
        lambda: OneClassSVM(nu=0),
        lambda: OneClassSVM(nu=1.1),
        lambda: ECSMiner(clusters=0),
        lambda: ECSMiner(neighbours=True),
    ],
)
def test_bad_arguments_are_refused(make: Any) -> None:
    with pytest.raises(InputError, match="the argument"):
        make()


@pytest.mark.parametrize("name", NAMES)
def test_without_a_fit_the_error_names_what_is_missing(name: str) -> None:
    with pytest.raises(InputError, match=r"the state has no .* Pass the state that the detector's fit returned"):
        OURS[name].decide(draw(3)[0], {})


# --- what they share -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 7, 30, 99, 200])
def test_samples_have_the_wanted_size_and_do_not_depend_on_the_order(most: int) -> None:
    outputs, targets = draw(100)
    assert outputs.hidden is not None
    order = torch.randperm(100, generator=torch.Generator().manual_seed(3))
    for rows, other in (
        (spread(outputs.hidden, most), spread(outputs.hidden[order], most)),
        (sample(outputs.hidden, targets, most), sample(outputs.hidden[order], targets[order], most)),
    ):
        assert len(rows.unique()) == len(rows)
        assert sorted(order[other].tolist()) == sorted(rows.tolist())
    assert len(spread(outputs.hidden, most)) == min(most, 100)
    counts = torch.bincount(targets[sample(outputs.hidden, targets, most)], minlength=4)
    assert counts.sum() <= max(most, 4)
    assert most < 4 or counts.sum() >= min(most, 100) - 3
    assert (counts >= torch.bincount(targets, minlength=4).clamp(max=max(most // 4, 1))).all()


def test_a_frequent_vector_is_sampled_in_proportion() -> None:
    vectors = torch.cat([torch.zeros(500, 2), torch.rand(500, 2)])
    assert (vectors[spread(vectors, 100)] == 0).all(1).sum() == pytest.approx(50, abs=1)


def test_the_output_map_is_exact_for_a_linear_layer_also_if_units_are_off() -> None:
    rng = torch.Generator().manual_seed(0)
    hidden = torch.randn(50, 5, generator=rng, dtype=torch.float64)
    hidden[:, 2] = 0
    weight = torch.randn(5, 3, generator=rng, dtype=torch.float64)
    found = output_map(Outputs(hidden @ weight + 7, hidden))
    weight[2] = 0
    np.testing.assert_allclose(found, weight, atol=1e-12)


def test_newton_finds_the_minimum_of_a_function_that_is_not_convex() -> None:
    def rosenbrock(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        point = x.numpy()
        parts = (optimize.rosen(point), optimize.rosen_der(point), optimize.rosen_hess(point))
        value, slope, curvature = (torch.as_tensor(part, dtype=torch.float64) for part in parts)
        return value, slope, curvature

    start = torch.tensor([-1.2, 1.0, 0.3], dtype=torch.float64)
    np.testing.assert_allclose(newton(rosenbrock, start), 1, atol=1e-12)


# --- ODIN ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("temperature", "epsilon"), [(1000.0, 0.0014), (1.0, 0.3), (20.0, 0.0)])
def test_odin_is_that_of_autograd(temperature: float, epsilon: float) -> None:
    outputs, targets = draw(200)
    score = ODIN(temperature, epsilon)
    state = score.fit(outputs, targets, {})
    new, _ = draw(30, seed=5)
    assert new.hidden is not None
    layer = np.linalg.lstsq(np.c_[outputs.hidden, np.ones(200)], outputs.logits.numpy(), rcond=None)[0]
    weight, bias = torch.from_numpy(layer[:-1]), torch.from_numpy(layer[-1])
    extra = torch.linspace(-1, 1, 30, dtype=torch.float64).outer(torch.tensor([1.0, 0, 0, 2.0], dtype=torch.float64))

    def largest(hidden: Tensor) -> Tensor:
        return torch.softmax((hidden @ weight + bias + extra) / temperature, 1).amax(1)

    hidden = new.hidden.clone().requires_grad_()
    loss = -torch.log(largest(hidden))
    (gradient,) = torch.autograd.grad(loss.sum(), hidden)
    raised = largest(new.hidden - epsilon * outputs.hidden.std(0, correction=0) * gradient.sign())  # type: ignore[union-attr]
    found = score.compute(replace(new, logits=new.logits + extra), state)
    np.testing.assert_allclose(found, -temperature * torch.log(4 * raised), rtol=1e-7, atol=1e-9)
    assert found.argsort().equal((1 - raised).argsort())
    assert epsilon == 0 or (raised > largest(new.hidden)).all()


# --- OpenMax ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_tail_is_that_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = 10.0 ** rng.integers(-3, 4) * rng.weibull(rng.uniform(0.5, 30), 20)
    shape, _, scale = stats.weibull_min.fit(values, floc=0)
    found = weibull(values)
    assert found is not None
    likelihoods = [stats.weibull_min(c, scale=s).logpdf(values).sum() for c, s in (found, (shape, scale))]
    assert likelihoods[0] >= likelihoods[1] - 1e-9
    np.testing.assert_allclose(found, (shape, scale), rtol=1e-3)


@pytest.mark.parametrize("alpha", [1, 3, 9])
def test_openmax_is_that_of_a_loop(alpha: int) -> None:
    outputs, targets = draw(300)
    detector = OpenMax(tail=15, alpha=alpha)
    decision = detector.decide(draw(40, seed=2, unseen=20)[0], detector.fit(outputs, targets, {}))
    x, of = outputs.logits.numpy(), targets.numpy()
    x = x - x.mean(1, keepdims=True)
    means, tails = [], []
    for k in range(4):
        own = x[(of == k) & (x.argmax(1) == k)]
        means.append(own.mean(0))
        tails.append(
            stats.weibull_min(*stats.weibull_min.fit(sorted(np.linalg.norm(own - means[k], axis=1))[-15:], floc=0))
        )
    expected = []
    for row in draw(40, seed=2, unseen=20)[0].logits.numpy():
        v, unseen = row - row.mean(), 0.0
        revised = v.copy()
        for rank, k in enumerate(np.argsort(-v)[:alpha]):
            share = (min(alpha, 4) - rank) / min(alpha, 4) * tails[k].cdf(np.linalg.norm(v - means[k]))
            lost = max(v[k], 0) * share
            revised[k] -= lost
            unseen += lost
        expected.append(unseen - revised.max())
    np.testing.assert_allclose(decision.score, expected, rtol=1e-2, atol=2e-2)  # scipy fits less precisely
    assert decision.flagged[40:].double().mean() > decision.flagged[:40].double().mean()


# --- outlier exposure and objectosphere ------------------------------------------------------------------------------


def reference_loss(score: Gained, past: Exposed, gain: Any) -> float:
    """The loss of the source, with the ridge."""
    z, logits, length, unseen = (getattr(past, name).numpy() for name in ("features", "logits", "lengths", "unseen"))
    g = np.exp(4 * np.tanh((z @ gain[:4] + gain[4]) / 4))
    logs = special.log_softmax(np.where(np.isnan(logits), -np.inf, g[:, None] * np.nan_to_num(logits)), 1)
    value = np.where(unseen, -np.nanmean(np.where(np.isnan(logits), np.nan, logs), 1), -logs[:, 0])
    if isinstance(score, Objectosphere):
        value += score.weight * np.where(unseen, g * length, np.maximum(score.least - g * length, 0)) ** 2
    elif isinstance(score, OutlierExposure):
        value[unseen] *= score.weight
    return float(value[~unseen].mean() + value[unseen].mean() + 0.01 * gain @ gain)


@pytest.mark.parametrize(
    "score", [OutlierExposure(), OutlierExposure(3.0), Objectosphere(), Objectosphere(1.0, 2.0)], ids=repr
)
def test_the_gain_is_that_of_scipy(score: Gained) -> None:
    outputs, targets = draw(100)
    state = score.fit(outputs, targets, {})
    for seed, classes in ((1, 3), (2, 4)):  # an older slice with fewer classes
        new, labels = draw(20, classes, seed=seed, unseen=8)
        labels[3] = UNLABELLED
        state = {**state, **score.observe(new, labels, state)}
    past = Exposed.of(state)
    assert past is not None
    assert past.logits.shape == (54, 4)
    assert past.unseen.sum() == 16
    found = score.fit(outputs, targets, state)["gain"].numpy()
    best = optimize.minimize(lambda gain: reference_loss(score, past, gain), np.zeros(5), tol=1e-10)
    assert reference_loss(score, past, found) <= best.fun + 1e-9
    np.testing.assert_allclose(found, best.x, atol=1e-3)
    assert np.abs(found).max() > 0.05


def test_past_slices_are_kept_without_the_numbers_of_their_classes() -> None:
    score = OutlierExposure()
    outputs, targets = draw(100)
    new, labels = draw(20, unseen=8)
    kept = []
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        column = torch.argsort(torch.tensor(order))
        state = score.fit(replace(outputs, logits=outputs.logits[:, order]), column[targets], {})
        renamed = replace(new, logits=new.logits[:, order])
        kept.append(score.observe(renamed, torch.where(labels >= 0, column[labels], labels), state))
    for name, value in kept[0].items():
        assert name.startswith(f"{PAST}exposed_")
        np.testing.assert_allclose(kept[1][name], value, atol=1e-12)
    first = new.logits[torch.arange(28), torch.where(labels >= 0, labels, new.logits.argmax(1))]
    np.testing.assert_array_equal(kept[0][f"{PAST}exposed_logits"][:, 0], first)


def test_without_unseen_vertices_in_the_past_the_gain_is_1() -> None:
    outputs, targets = draw(50)
    score = OutlierExposure()
    state = score.fit(outputs, targets, {})
    for labels in (targets, torch.full_like(targets, UNLABELLED)):
        seen = {**state, **score.observe(outputs, labels, state)}
        again = {**seen, **score.fit(outputs, targets, seen)}
        assert (score.gains(outputs, again) == 1).all()


def test_exposure_lowers_the_confidence_in_vertices_like_the_unseen_ones() -> None:
    outputs, targets = draw(200)
    new, labels = draw(100, unseen=50, seed=3)
    for score in (OutlierExposure(), Objectosphere()):
        state = score.fit(outputs, targets, {})
        state = {**state, **score.observe(new, labels, state)}
        gains = score.gains(new, {**state, **score.fit(outputs, targets, state)})
        assert gains[labels < 0].mean() < 0.8 * gains[labels >= 0].mean()


# --- OpenWGL ---------------------------------------------------------------------------------------------------------


def test_the_uncertainty_loss_is_that_of_numpy() -> None:
    rng = np.random.default_rng(0)
    logits, targets, weights = rng.standard_normal((40, 5)), rng.integers(0, 5, 40), rng.random(40)
    p = special.softmax(logits, 1)
    uncertain = (p.max(1) > 0.2) & (p.max(1) < 0.5)
    assert 5 < uncertain.sum() < 35
    own = np.average(-np.log(p[np.arange(40), targets]), weights=weights)
    entropy = np.average((p * np.log(p)).mean(1)[uncertain], weights=weights[uncertain])
    parts = (torch.from_numpy(logits), torch.from_numpy(targets), torch.bincount(torch.from_numpy(targets)))
    assert OpenWGL(2.0).loss(*parts, torch.from_numpy(weights)).item() == pytest.approx(own + 2 * entropy)
    assert OpenWGL(0).loss(*parts, torch.from_numpy(weights)).item() == pytest.approx(own)


def test_certainty_is_the_mean_over_noisy_vectors() -> None:
    outputs, targets = draw(400)
    assert outputs.hidden is not None
    new, _ = draw(5, seed=7, unseen=5)
    assert new.hidden is not None
    detector = OpenWGL(samples=4000)
    found = detector.certainty(new, detector.fit(outputs, targets, {}))
    means = torch.stack([outputs.hidden[targets == k].mean(0) for k in range(4)])
    sd = (outputs.hidden - means[targets]).square().mean(0).sqrt()
    layer = np.linalg.lstsq(np.c_[outputs.hidden, np.ones(400)], outputs.logits.numpy(), rcond=None)[0]
    noisy = new.hidden.numpy() + np.random.default_rng(1).standard_normal((20_000, 1, 6)) * sd.numpy()
    expected = special.softmax(noisy @ layer[:-1] + layer[-1], 2).mean(0).max(1)
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_the_threshold_is_between_known_and_unseen_vertices_of_all_past_slices() -> None:
    outputs, targets = draw(100)
    detector = OpenWGL()
    state = detector.fit(outputs, targets, {})
    assert not detector.decide(outputs, state).flagged.any()
    known, unseen = [], []
    for seed in (1, 2):
        new, labels = draw(20 * seed, unseen=10, seed=seed)
        labels[0] = UNLABELLED
        certainty = detector.certainty(new, state).numpy()
        known.extend(certainty[labels >= 0])
        unseen.extend(certainty[labels == UNKNOWN])
        state = detector.observe(new, labels, state)
    threshold = (np.mean(known) + np.mean(unseen)) / 2
    decision = detector.decide(new, state)
    np.testing.assert_allclose(decision.score, 1 - certainty)
    np.testing.assert_array_equal(decision.flagged, certainty < threshold)
    assert 0 < decision.flagged.sum() < len(new)


# --- L2AC ------------------------------------------------------------------------------------------------------------


def test_the_matcher_is_that_of_scikit_learn() -> None:
    outputs, targets = draw(120)
    assert outputs.hidden is not None
    detector = L2AC(nearest=3)
    state = detector.fit(outputs, targets, {})
    x, of = (outputs.hidden / outputs.hidden.std(0, correction=0)).numpy(), targets.numpy()
    apart = np.linalg.norm(x[:, None] - x, axis=2)
    pairs, labels = [], []
    for i in range(120):
        others = [j for j in np.argsort(apart[i]) if j != i]
        rival = next(of[j] for j in others if of[j] != of[i])
        for label, k in ((1, of[i]), (0, rival)):
            for j in [j for j in others if of[j] == k][:3]:
                pairs.append(np.r_[np.abs(x[i] - x[j]), x[i] + x[j]])
                labels.append(label)
    counts = np.bincount(labels)
    reference = LogisticRegression(C=1000.0, tol=1e-10, max_iter=10_000).fit(
        pairs, labels, sample_weight=[0.5 / counts[label] for label in labels]
    )
    np.testing.assert_allclose(state["weight"][:-1], reference.coef_[0], atol=1e-3)
    new, _ = draw(30, seed=1, unseen=10)
    expected = []
    for a in (new.hidden / outputs.hidden.std(0, correction=0)).numpy():  # type: ignore[operator]
        found = []
        for k in range(4):
            members = x[of == k]
            near = members[np.argsort(np.linalg.norm(members - a, axis=1))[:3]]
            found.append(reference.predict_proba(np.c_[np.abs(a - near), a + near])[:, 1].mean())
        expected.append(0.5 - max(found))
    decision = detector.decide(new, state)
    np.testing.assert_allclose(decision.score, expected, atol=1e-3)
    assert decision.flagged[30:].double().mean() > decision.flagged[:30].double().mean()


# --- support vector machines -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", [0.1, 1.0, 30.0])
def test_cbs_svm_is_that_of_scikit_learn(cost: float) -> None:
    outputs, targets = draw(200)
    new, _ = draw(30, seed=1, unseen=20)
    detector = CBSSVM(cost)
    decision = detector.decide(new, detector.fit(outputs, targets, {}))
    x, of, test = outputs.hidden.numpy(), targets.numpy(), new.hidden.numpy()  # type: ignore[union-attr]
    values = []
    for k in range(4):
        centre = x[of == k].mean(0)
        scale = np.sqrt(np.mean(np.linalg.norm(x[of == k] - centre, axis=1) ** 2))

        def described(a: Any, centre: Any = centre, scale: float = scale) -> Any:
            d = np.linalg.norm(a - centre, axis=1) / scale
            cosines = [row @ centre / np.linalg.norm(row) / np.linalg.norm(centre) for row in a]
            correlations = [np.corrcoef(row, centre)[0, 1] for row in a]
            return np.c_[cosines, correlations, np.exp(-(d**2) / 2), 1 / (1 + d)]

        machine = LinearSVC(C=cost, class_weight="balanced", dual=False, tol=1e-10, max_iter=10_000)
        values.append(machine.fit(described(x), of == k).decision_function(described(test)))
    np.testing.assert_allclose(decision.score, -np.max(values, 0), atol=1e-6)
    assert decision.flagged[30:].double().mean() > decision.flagged[:30].double().mean()


def test_similarities_are_largest_at_the_centre() -> None:
    centre = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    found = similarities(torch.stack([centre, centre + 9]), centre, torch.tensor(2.0))
    np.testing.assert_allclose(found[0], [1, 1, 1, 1, 1])
    assert (found[1, [0, 2, 3]] < found[0, [0, 2, 3]]).all()


@pytest.mark.parametrize("nu", [0.05, 0.5, 0.9])
def test_the_one_class_machine_is_that_of_scikit_learn(nu: float) -> None:
    outputs, targets = draw(300)
    new, _ = draw(50, seed=1, unseen=20)
    detector = OneClassSVM(nu)
    state = detector.fit(outputs, targets, {})
    reference = Reference(kernel="rbf", gamma="scale", nu=nu, tol=1e-10).fit(outputs.hidden)
    decision = detector.decide(new, state)
    np.testing.assert_allclose(decision.score, -reference.decision_function(new.hidden), atol=1e-6)
    np.testing.assert_array_equal(decision.flagged, reference.predict(new.hidden) < 0)
    assert len(state["weights"]) == pytest.approx(len(reference.support_), abs=2)
    assert float(state["weights"].sum()) == pytest.approx(nu * 300)


def test_with_nu_of_1_all_training_vertices_are_support_vectors() -> None:
    alpha, rho = solve_one_class(np.eye(3), 1.0)
    assert (alpha.tolist(), rho) == ([1, 1, 1], 1)


# --- ECSMiner --------------------------------------------------------------------------------------------------------


def test_clusters_are_those_of_scikit_learn() -> None:
    outputs, _ = draw(200)
    assert outputs.hidden is not None
    x = outputs.hidden
    start = [int((x - x.mean(0)).norm(dim=1).argmin())]
    while len(start) < 5:
        start.append(int(torch.cdist(x, x[start]).amin(1).argmax()))
    reference = KMeans(5, init=x[start].numpy(), n_init=1, tol=0, max_iter=20).fit(x.numpy())
    np.testing.assert_allclose(k_means(x, 5), reference.cluster_centers_, atol=1e-9)
    assert len(k_means(torch.ones(4, 2), 3)) == 1


def test_cohesion_is_that_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((25, 3)))
    known = torch.linspace(0.1, 3, 25, dtype=torch.float64)
    expected = []
    for i in range(25):
        among = np.mean(sorted(float((x[i] - x[j]).norm()) for j in range(25) if j != i)[:4])
        expected.append((float(known[i]) - among) / max(float(known[i]), among))
    np.testing.assert_allclose(cohesion(x, known, 4), expected)
    monkeypatch.setattr("evergraph_baselines.ecsminer._OUTLIERS", 7)
    np.testing.assert_allclose(cohesion(x, known, 4), expected)


def test_outliers_are_flagged_if_there_are_enough_close_together() -> None:
    rng = np.random.default_rng(0)
    hidden = torch.from_numpy(np.r_[rng.standard_normal((60, 2)), rng.standard_normal((40, 2)) + np.array([20, 0])])
    targets = torch.tensor([0] * 60 + [1] * 40)
    detector = ECSMiner(clusters=4, neighbours=5)
    state = detector.fit(Outputs(torch.zeros(100, 2), hidden), targets, {})
    assert int(state["sizes"].sum()) == 100
    for column, centre, radius in zip(state["classes"], state["centres"], state["radii"], strict=True):
        assert ((hidden[targets == column] - centre).norm(dim=1) <= radius + 1e-9).any()
    group = torch.tensor([[10.0, 30.0]], dtype=torch.float64)
    for number, wanted in ((5, 0), (6, 6)):  # more than five must be cohesive
        close = group + 0.1 * torch.from_numpy(rng.standard_normal((number, 2)))
        lonely = torch.tensor([[10.0, -50.0], [-60.0, 0.0]], dtype=torch.float64)
        new = torch.cat([hidden[:10], hidden[-10:], close, lonely])
        decision = detector.decide(Outputs(torch.zeros(len(new), 2), new), state)
        assert decision.flagged.tolist() == [False] * 20 + [wanted > 0] * number + [False] * 2
        assert (decision.score[:20] <= -1).all()
        assert (decision.score[20:] >= -1).all()


def test_the_distance_to_a_class_is_that_to_its_nearest_clusters() -> None:
    state = {
        "centres": torch.tensor([[0.0], [10.0], [100.0]], dtype=torch.float64),
        "radii": torch.ones(3, dtype=torch.float64),
        "sizes": torch.tensor([2, 8, 9]),
        "classes": torch.tensor([0, 0, 1]),
    }
    new = Outputs(torch.zeros(4, 2), torch.tensor([[3.0], [4.0], [3.5], [40.0]], dtype=torch.float64))
    score = ECSMiner(neighbours=5).decide(new, state).score
    known = [(2 * 3 + 3 * 7) / 5, (2 * 4 + 3 * 6) / 5, (2 * 3.5 + 3 * 6.5) / 5, 30]
    among = [(1 + 0.5 + 37) / 3, (1 + 0.5 + 36) / 3, (0.5 + 0.5 + 36.5) / 3, (37 + 36 + 36.5) / 3]
    np.testing.assert_allclose(score, [(b - a) / max(a, b) for a, b in zip(among, known, strict=True)])


def test_the_nearest_leave_out_the_vector_itself() -> None:
    x = torch.tensor([[0.0], [1.0], [3.0]])
    assert nearest(x, x, 5, itself=True)[1].tolist() == [[1, 2], [0, 2], [1, 0]]
