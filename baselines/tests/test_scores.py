"""Scores of words and neighbours and scores made of others, against plain loops over vertices, words and edges."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from evergraph import EvolvingGraph, InputError, LifelongLearner, names, tasks
from evergraph.datasets import synthetic
from evergraph.detect import Outputs, PostHoc, check_detector
from evergraph.detect.base import PAST, State
from evergraph.detect.scores import MSP, Energy, Relative, Score
from evergraph.detect.thresholds import BackTest, Conformal
from evergraph.inputs.slice_context import SliceContext
from evergraph.learning.task import Task
from evergraph.nn import GraphSAGE
from evergraph_baselines.average import SIGNALS, Average, AverageDetector, Propagated
from evergraph_baselines.scores import (
    ClassLikelihood,
    ExcessWords,
    KnownDistance,
    NewWords,
    SliceDensity,
    WordGrowth,
)

SCORES = {name: names.load("score", name) for name in names.known("score")}

pytestmark = pytest.mark.usefixtures("one_thread")

OF_GRAPHS: list[Score] = [
    NewWords(),
    WordGrowth(),
    ExcessWords(),
    ClassLikelihood(),
    KnownDistance(),
    SliceDensity(),
]
CLASSES = ("red", "blue", "green")  # "grey" has labels, too, but is not known; "green" has no recent labels


@dataclass
class Vertex:
    """All that the slow versions look at."""

    name: str
    time: int
    label: str | None
    words: frozenset[str]
    neighbours: set[str]


@dataclass
class World:
    """A small graph as Python knows it: of the slice, and of the three times before."""

    graph: EvolvingGraph
    older: list[Vertex]
    new: list[Vertex]

    @property
    def task(self) -> Task:
        return Task(self.graph, 4, history=1)

    @property
    def window(self) -> list[Vertex]:
        return [*self.older, *self.new]

    @property
    def context(self) -> SliceContext:
        return SliceContext(self.task, CLASSES)

    def labelled(self, name: str) -> list[Vertex]:
        return [vertex for vertex in self.older if vertex.label == name]

    def outputs(self, seed: int = 0) -> Outputs:
        logits = torch.randn(len(self.new), 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        logits[1] = 0.0  # any class
        logits[2, 0] = logits[2, 1] = logits[2].max()  # one of two, or of all
        return Outputs(logits, context=self.context)


def a_world(seed: int = 0, text: bool = True) -> World:
    rng = np.random.default_rng(seed)
    number = 130
    times = np.sort(rng.integers(0, 5, number))
    labels: list[str | None] = [
        None if rng.random() < 0.2 else str(rng.choice(["red", "blue", "grey", *(["green"] if time == 0 else [])]))
        for time in times
    ]
    words = [
        frozenset(f"{label or 'no'}{word}" if word < 4 else f"w{word}" for word in rng.integers(0, 12, rng.integers(6)))
        for label in labels
    ]
    words = [
        text_ | {"late"} if time == 4 and rng.random() < 0.4 else text_
        for text_, time in zip(words, times, strict=True)
    ]
    words[-1] = words[-2] = frozenset()
    names = [f"v{row}" for row in rng.permutation(number)]
    pairs = [(a, b) for a, b in rng.integers(0, number - 8, (150, 2)).tolist() if a != b]  # the last eight are alone
    vertices: dict[str, Any] = {"id": names, "time": times, "label": labels}
    if text:
        vertices["text"] = [" ".join(sorted(text_)) for text_ in words]
    more = {} if text else {"features": rng.normal(size=(number, 4)).astype(np.float32)}
    graph = EvolvingGraph.build(vertices, [(names[a], names[b]) for a, b in pairs], **more)
    found = {n: Vertex(n, int(t), x, w, set()) for n, t, x, w in zip(names, times, labels, words, strict=True)}
    seen = [vertex for vertex in found.values() if vertex.time >= 1]
    for a, b in pairs:
        one, other = found[names[a]], found[names[b]]
        if min(one.time, other.time) >= 1:
            one.neighbours.add(other.name)
            other.neighbours.add(one.name)
    return World(graph, [v for v in seen if v.time < 4], [v for v in seen if v.time == 4])


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def texts_with(word: str, vertices: list[Vertex]) -> int:
    return sum(word in vertex.words for vertex in vertices)


# --- the formulas, one vertex at a time ------------------------------------------------------------------------------


def new_words(world: World, outputs: Outputs) -> list[float]:
    return [mean([float(not texts_with(word, world.older)) for word in v.words]) for v in world.new]


def word_growth(world: World, outputs: Outputs) -> list[float]:
    def of(word: str) -> float:
        new = (texts_with(word, world.new) - 1 + 0.5) / len(world.new)
        return math.log(new / ((texts_with(word, world.older) + 0.5) / len(world.older)))

    return [mean([of(word) for word in v.words]) for v in world.new]


def excess_words(world: World, outputs: Outputs) -> list[float]:
    predicted: Counter[str] = Counter()
    for row in outputs.logits.tolist():
        best = [name for name, value in zip(CLASSES, row, strict=True) if value == max(row)]
        for name in best:
            predicted[name] += 1 / len(best)  # type: ignore[assignment]
    everyone = [v for name in CLASSES for v in world.labelled(name)]

    def of(word: str) -> float:
        overall = texts_with(word, everyone) / len(everyone)
        expected = 0.0
        for name in CLASSES:
            own = world.labelled(name)
            expected += predicted[name] * (texts_with(word, own) + 5 * overall) / (len(own) + 5)
        return math.log((texts_with(word, world.new) - 1 + 0.5) / (expected + 0.5))

    return [mean([of(word) for word in v.words]) for v in world.new]


def class_likelihood(world: World, outputs: Outputs) -> list[float]:
    everyone = [v for name in CLASSES for v in world.labelled(name)]
    vocabulary = set().union(*(v.words for v in world.window))
    all_words = sum(len(v.words) for v in everyone)

    def p(word: str) -> float:
        return (texts_with(word, everyone) + 0.1) / (all_words + 0.1 * len(vocabulary))

    def fit(vertex: Vertex, name: str) -> float:
        own = world.labelled(name)
        size = sum(len(v.words) for v in own)
        return mean([math.log((texts_with(w, own) + 50 * p(w)) / (size + 50) / p(w)) for w in vertex.words])

    there = [name for name in CLASSES if world.labelled(name)]
    return [-max(fit(v, name) for name in there) for v in world.new]


def cosines(world: World) -> dict[tuple[str, str], float]:
    """Between what vertices of the slice and their neighbours are about, and what all others are."""
    everyone, vectors = world.window, {}
    number = Counter(word for v in everyone for word in v.words)
    for v in everyone:
        weights = {w: math.log((1 + len(everyone)) / (1 + number[w])) + 1 for w in v.words}
        length = math.sqrt(sum(x * x for x in weights.values()))
        vectors[v.name] = {w: x / length for w, x in weights.items() if number[w] > 1}
    about = {}
    for v in everyone:
        total: Counter[str] = Counter()
        for name in (v.name, *v.neighbours):
            total.update(vectors[name])
        length = math.sqrt(sum(x * x for x in total.values()))
        about[v.name] = {w: x / length for w, x in total.items()} if length else {}
    return {
        (a.name, b.name): sum(x * about[b.name].get(w, 0.0) for w, x in about[a.name].items())
        for a in world.new
        for b in everyone
    }


def or_mean(values: list[float | None]) -> list[float]:
    """The values, with the mean of the others for vertices without one."""
    others = mean([x for x in values if x is not None])
    return [others if x is None else x for x in values]


def known_distance(world: World, outputs: Outputs) -> list[float]:
    like, known = cosines(world), [v.name for v in world.older if v.label in CLASSES]
    found = []
    for v in world.new:
        nearest = sorted(like[v.name, name] for name in known)[-5:]
        found.append(-mean(nearest) if like[v.name, v.name] > 0 else None)
    return or_mean(found)


def slice_density(world: World, outputs: Outputs) -> list[float]:
    like, late = cosines(world), {v.name for v in world.new}
    share = (len(world.new) - 1) / (len(world.window) - 1)
    found = []
    for v in world.new:
        others = [name for name in (u.name for u in world.window) if name != v.name]
        others.sort(key=lambda name, v=v: (-round(like[v.name, name], 8), zlib.crc32(name.encode()), name))
        near = sum(name in late for name in others[:40])
        about_something = like[v.name, v.name] > 0
        found.append((near - 40 * share) / math.sqrt(40 * share * (1 - share)) if about_something else None)
    return or_mean(found)


SLOW: dict[Score, Callable[[World, Outputs], list[float]]] = {
    NewWords(): new_words,
    WordGrowth(): word_growth,
    ExcessWords(): excess_words,
    ClassLikelihood(): class_likelihood,
    KnownDistance(): known_distance,
    SliceDensity(): slice_density,
}


@pytest.mark.parametrize("score", SLOW, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_their_formulas(score: Score, seed: int) -> None:
    world = a_world(seed)
    assert any(not v.words for v in world.new)
    assert any(not v.neighbours for v in world.new)
    assert not world.labelled("green")
    outputs = world.outputs(seed)
    expected = np.array(SLOW[score](world, outputs))
    without = np.isnan(expected)
    expected[without] = expected[~without].mean()  # vertices without a value get the mean of the others
    found = score.compute(outputs, {})
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert len(set(found.tolist())) >= 5
    assert without.sum() == (sum(not v.words for v in world.new) if score in OF_GRAPHS[:4] else 0)


# --- little to see ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", OF_GRAPHS, ids=repr)
def test_without_words_scores_of_words_are_0_and_others_are_not(score: Score) -> None:
    world = a_world(text=False)
    found = score.compute(world.outputs(), {})
    if score in OF_GRAPHS[:4]:
        assert found.tolist() == [0] * len(world.new)
    else:
        assert found.isfinite().all()
        assert len(found.unique()) > 5


@pytest.mark.parametrize("score", OF_GRAPHS, ids=repr)
@pytest.mark.parametrize("features", ["text", "no text", "dense", "nothing"])
@pytest.mark.parametrize("classes", [("x",), ("nobody", "no one")])
def test_scores_are_finite_wherever_there_is_little(score: Score, features: str, classes: tuple[str, ...]) -> None:
    rows: dict[str, Any] = {"id": range(6), "time": [0, 2, 2, 3, 9, 9], "label": ["x", "x", "y", None, "x", "y"]}
    more: dict[str, Any] = {"features": np.eye(6, 3, dtype=np.float32)} if features == "dense" else {}
    if features in ("text", "no text"):
        rows["text"] = ["a b", "b", "", "c a", "a", "d"] if features == "text" else [""] * 6
    graph = EvolvingGraph.build(rows, [(0, 1), (2, 3), (4, 5)], **more)
    for time in (0, 2, 3, 5, 9, 10):  # no older vertices, one vertex, none, only the slice, after the last
        task = Task(graph, time, 1)
        outputs = Outputs(torch.zeros(len(task.test_ids), len(classes)), context=SliceContext(task, classes))
        for one in (
            score,
            Propagated(score),
            Average((score,)),
            Relative(score),
            Propagated(Average((score, Energy()))),
        ):
            state = one.fit(Outputs(torch.zeros(3, len(classes))), torch.zeros(3, dtype=torch.int64), {})
            found = one.compute(outputs, state)
            assert found.shape == (len(task.test_ids),)
            assert found.dtype == torch.float64
            assert found.isfinite().all()
            kept = one.observe(outputs, torch.full((len(outputs),), -1), state)
            assert one.compute(outputs, {**state, **kept}).isfinite().all()


@pytest.mark.parametrize("score", OF_GRAPHS, ids=repr)
def test_without_context_all_vertices_score_0(score: Score) -> None:
    outputs = a_world().outputs()
    assert score.compute(replace(outputs, context=None), {}).tolist() == [0] * len(outputs)
    assert score.fit(outputs, torch.zeros(len(outputs), dtype=torch.int64), {}) == {}
    assert score.observe(outputs, torch.zeros(len(outputs), dtype=torch.int64), {}) == {}


def test_a_class_that_merely_grows_has_growing_words_but_no_excess() -> None:
    old = ["red fire"] * 10 + ["blue sea"] * 10
    new = ["red fire"] * 20 + ["odd thing"] * 3
    labels = ["red"] * 10 + ["blue"] * 10 + [None] * 23
    graph = EvolvingGraph.build({"id": range(43), "time": [0] * 20 + [1] * 23, "label": labels, "text": old + new})
    logits = torch.tensor([[9.0, 0.0]] * 20 + [[0.1, 0.0]] * 3)
    outputs = Outputs(logits, context=SliceContext(Task(graph, 1, 1), ("red", "blue")))
    burst, more = WordGrowth().compute(outputs, {}), ExcessWords().compute(outputs, {})
    assert burst[0] > 0.45
    assert abs(more[0]) < 0.35
    assert more[-1] > 1.5


# --- smoothed --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given(Score):
    """The first column of the hidden vectors."""

    def compute(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002
        assert outputs.hidden is not None
        return outputs.hidden[:, 0].double()


def with_values(world: World, seed: int = 0) -> Outputs:
    outputs = world.outputs(seed)
    values = torch.randn(len(outputs), 1, generator=torch.Generator().manual_seed(seed + 100), dtype=torch.float64)
    return replace(outputs, hidden=values)


@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize(("weight", "rounds"), [(0.8, 5), (0.3, 1), (1.0, 2), (0.0, 3), (0.5, 0)])
def test_propagation_is_that_of_the_formula(text: bool, weight: float, rounds: int) -> None:
    world = a_world(text=text)
    outputs = with_values(world)
    own = Given().compute(outputs, {}).tolist()
    kin = world.context.similar.toarray()
    found = list(own)
    for _ in range(rounds):
        before = list(found)
        for i in range(len(own)):
            ties = sum(kin[i])
            if ties:
                around = sum(kin[i][j] * before[j] for j in range(len(own))) / ties
                found[i] = (1 - weight) * own[i] + weight * around
    np.testing.assert_allclose(Propagated(Given(), weight, rounds).compute(outputs, {}), found, atol=1e-12)
    alone = kin.sum(1) == 0
    if text:
        assert alone.any()  # without words and neighbours
    np.testing.assert_array_equal(np.array(found)[alone], np.array(own)[alone])


def test_a_vertex_without_similar_ones_keeps_its_score_to_the_last_bit() -> None:
    world = a_world()
    outputs = with_values(world)
    found, own = Propagated(Given()).compute(outputs, {}), Given().compute(outputs, {})
    late = {v.name for v in world.new}
    alone = [not v.words and not v.neighbours & late for v in world.new]
    assert any(alone)
    assert torch.equal(found[alone], own[alone])
    others = torch.tensor([not one for one in alone])
    assert (found[others] != own[others]).double().mean() > 0.8


def test_smoothing_keeps_what_is_everywhere_the_same_and_stays_between_the_extremes() -> None:
    world = a_world(1)
    outputs = with_values(world)
    flat = replace(outputs, hidden=torch.full_like(outputs.logits, 3.0))
    np.testing.assert_allclose(Propagated(Given()).compute(flat, {}), 3.0, atol=1e-12)
    found, own = Propagated(Given(), 1.0, 9).compute(outputs, {}), Given().compute(outputs, {})
    assert own.min() <= found.min()
    assert found.max() <= own.max()
    assert torch.equal(Propagated(Given()).compute(replace(outputs, context=None), {}), own)


# --- together --------------------------------------------------------------------------------------------------------


def test_levels_of_several_slices_are_those_of_numpy() -> None:
    """Each slice counts alike; within it only vertices of known classes whose labels have come."""
    scores, counts = (Given(), WordGrowth(), NewWords(), MSP()), (1, 1e39, 0.1, 3e38)
    both, state = Average(scores, counts), {}
    means, variances = [], []
    for seed in range(4):
        world = a_world(seed)
        outputs = with_values(world, seed)
        targets = torch.from_numpy(np.random.default_rng(seed).integers(-2, 3, len(outputs)))
        raw = np.stack([score.compute(outputs, {}).numpy() for score in scores], 1)
        if seed == 0:  # before anything is observed, the slice itself standardises
            expected = np.average(np.clip((raw - raw.mean(0)) / raw.std(0), -4, 4), axis=1, weights=counts)
            np.testing.assert_allclose(both.compute(outputs, state), expected, atol=1e-12)
        known = raw[targets.numpy() >= 0]
        means.append(known.mean(0))
        variances.append(known.var(0))
        state = {**state, **both.observe(outputs, targets, state)}
        spread = np.sqrt(np.mean(variances, 0) + np.var(means, 0))
        expected = np.average(np.clip((raw - np.mean(means, 0)) / spread, -4, 4), axis=1, weights=counts)
        np.testing.assert_allclose(both.compute(outputs, state), expected, atol=1e-12)
    np.testing.assert_allclose(state["past.means"], means)
    np.testing.assert_allclose(state["past.variances"], variances)
    far = replace(outputs, hidden=torch.full_like(outputs.logits, 1e9))
    assert (both.compute(far, state) <= 4).all()


@pytest.mark.parametrize("counts", [300, (1,), (1, 0), (1, -2), (1, float("inf")), (1, "3"), (1, True)])
def test_counts_are_as_many_numbers_as_there_are_scores(counts: Any) -> None:
    with pytest.raises(InputError, match=r"the argument counts is .* for 2 scores.*as many numbers above 0"):
        Average((Energy(), MSP()), counts)


def test_a_slice_above_past_slices_scores_high_as_a_whole() -> None:
    outputs = with_values(a_world())
    score = Average((Given(),))
    state = score.observe(outputs, torch.zeros(len(outputs), dtype=torch.int64), {})
    assert score.compute(outputs, state).mean() == pytest.approx(0, abs=1e-9)
    assert outputs.hidden is not None
    assert score.compute(replace(outputs, hidden=outputs.hidden + 9), state).mean() > 3.5


def test_slices_without_known_vertices_teach_no_level() -> None:
    outputs = with_values(a_world())
    score = Average((Given(), WordGrowth()))
    for value in (-1, -2):
        assert score.observe(outputs, torch.full((len(outputs),), value), {}) == {}
    one = score.observe(outputs, torch.tensor([0] + [-1] * (len(outputs) - 1)), {})
    assert one["past.variances"].tolist() == [[0, 0]]
    assert score.compute(outputs, one).tolist() == [0] * len(outputs)  # nothing is known of how far apart vertices are


def test_a_slice_with_nothing_to_see_raises_no_alarm_and_teaches_nothing() -> None:
    world = a_world()
    outputs = with_values(world)
    targets = torch.zeros(len(outputs), dtype=torch.int64)
    score = Average((Given(), KnownDistance()))
    state = score.observe(outputs, targets, {})
    blind = replace(outputs, context=None)
    assert (KnownDistance().compute(blind, {}) == 0).all()
    assert float(KnownDistance().compute(outputs, {}).mean()) < -0.2  # so 0 would be far out
    np.testing.assert_allclose(
        score.compute(blind, state), Average((Given(),)).compute(blind, inner(state, 0)) / 2, atol=1e-12
    )
    again = {**state, **score.observe(blind, targets, state)}
    np.testing.assert_allclose(score.compute(outputs, again), score.compute(outputs, state), atol=1e-12)
    later = {**again, **score.observe(outputs, targets, again)}
    assert not score.compute(outputs, later).isnan().any()


def inner(state: State, column: int) -> dict[str, Tensor]:
    """The state of one score alone."""
    return {name: value[:, [column]] for name, value in state.items()}


def test_a_score_that_is_0_for_a_slice_counts_as_0_in_the_average() -> None:
    outputs = with_values(a_world(text=False))
    alone, both = Average((Given(),)), Average((Given(), WordGrowth()))
    np.testing.assert_allclose(both.compute(outputs, {}), alone.compute(outputs, {}) / 2, atol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Average(()),
        lambda: Average((Energy(), "energy")),  # type: ignore[arg-type]
        lambda: Average((Energy,)),  # type: ignore[arg-type]
        lambda: Propagated("energy"),  # type: ignore[arg-type]
        lambda: Propagated(Energy(), weight=1.5),
        lambda: Propagated(Energy(), weight=float("nan")),
        lambda: Propagated(Energy(), weight=True),
        lambda: Propagated(Energy(), rounds=-1),
        lambda: Propagated(Energy(), rounds=1.5),  # type: ignore[arg-type]
        lambda: Propagated(Energy(), rounds=True),
    ],
)
def test_bad_arguments_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InputError, match="the argument"):
        make()


def test_scores_of_scores_are_values() -> None:
    assert Average([Energy(), WordGrowth()]) == Average((Energy(), WordGrowth()))  # type: ignore[arg-type]
    assert hash(Propagated(Average(tuple(SIGNALS.values())))) == hash(
        Propagated(Average(tuple(SIGNALS.values()), (1,) * len(SIGNALS)), 0.7, 3)
    )
    assert (
        len({Propagated(Energy()), Propagated(Energy(), 0.5), Propagated(Energy(), rounds=1), Propagated(MSP())}) == 4
    )


# --- states within states --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", ["warm", "cold", "hybrid"])
def test_levels_survive_restarts_however_deep_they_are(restart: Any) -> None:
    graph = synthetic(vertices=360, times=9, classes=4, new_classes=2, words=120, words_per_vertex=5, seed=2)
    deep = Propagated(Average((Relative(Average((Energy(), Relative(MSP())))), WordGrowth())))
    learner = LifelongLearner(GraphSAGE(hidden=8), PostHoc(deep), steps=5, lr=0.02, restart=restart)
    before: dict[str, Tensor] = {}
    for number, task in enumerate(tasks(graph, 2, first=5)):
        learner.adapt(task)
        state = learner.detector_.state
        past = {name: value for name, value in state.items() if name.startswith(PAST)}
        for name in (
            "past.score/means",
            "past.score/variances",
            "past.score/0/score/means",
            "past.score/0/score/variances",
        ):
            assert past[name].shape == (3 + number, 2), name  # three replayed slices, and all tasks before this
            if before:
                assert torch.equal(past[name][:-1], before[name])
        assert int(past["past.slices"][-1]) == 2 + number
        assert {"score/0/mean", "score/0/score/1/mean"} <= state.keys()  # what was fitted last
        before = past
    assert number == 3


# --- as detectors ----------------------------------------------------------------------------------------------------


def test_every_score_is_registered() -> None:
    of_words = ["new_words", "word_growth", "excess_words", "class_likelihood"]
    of_neighbours = ["known_distance", "slice_density"]
    assert [type(score) for score in OF_GRAPHS] == [SCORES[name] for name in (*of_words, *of_neighbours)]
    of_literature = ["objectosphere", "odin", "outlier-exposure"]
    assert list(SCORES) == ["msp", "energy", *sorted(["auxiliary", *of_literature, *of_words, *of_neighbours])]
    of_outputs = ["msp", "energy", "auxiliary", *of_literature]
    assert [name for name, kind in SCORES.items() if kind.reads_outputs] == of_outputs


@pytest.mark.parametrize("name", [name for name in SCORES if name not in names.SCORES])
def test_every_score_makes_a_detector(name: str) -> None:
    check_detector(PostHoc(SCORES[name](), BackTest()))


@pytest.mark.parametrize(
    "wrap", [Relative, Propagated, lambda score: Average((score,))], ids=["Relative", "Propagated", "Average"]
)
@pytest.mark.parametrize("name", SCORES)
def test_every_score_of_a_score_makes_a_detector(name: str, wrap: Callable[[Score], Score]) -> None:
    check_detector(PostHoc(wrap(SCORES[name]()), BackTest()))


@pytest.mark.parametrize(
    "detector",
    [
        AverageDetector(),
        AverageDetector(most=1.0),
        PostHoc(Propagated(Average(tuple(SIGNALS.values()))), Conformal()),
        PostHoc(Average(tuple(kind() for kind in SCORES.values())), BackTest()),
        PostHoc(Propagated(Relative(Energy())), Conformal()),
    ],
    ids=lambda detector: repr(detector)[:60],
)
def test_all_together_make_detectors(detector: Any) -> None:
    check_detector(detector)
