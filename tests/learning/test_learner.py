"""The learner: restarts, growth, no leak, and what happens to bad input."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph import EvergraphError, EvolvingGraph, InputError, LifelongLearner, Task, evaluate, tasks
from evergraph.datasets import synthetic
from evergraph.detect import DOC, GDOC, AutoDetector, Softmax
from evergraph.evaluation.configuration import Configuration
from evergraph.graph.classes import UNSEEN
from evergraph.graph.features import Features, Numbers
from evergraph.learning.training import default_rate
from evergraph.nn import (
    GAT,
    GCN,
    MLP,
    SGC,
    Draw,
    GraphSAGE,
    GraphSAINT,
    JKNet,
    Labels,
    Model,
    MostFrequent,
    Ridge,
    carry_over,
)
from evergraph.nn.base import Parameters, active_features

TRAINED: list[Model] = [
    GraphSAGE(hidden=8),
    GAT(hidden=4, heads=2),
    GCN(hidden=8),
    SGC(),
    JKNet(hidden=8),
    GraphSAINT(JKNet(hidden=8)),
    MLP(hidden=8),
]
MODELS: list[Model] = [*TRAINED, MostFrequent(), Ridge(width=32), Ridge(width=32, discount=0.5, periods=2)]


def growing(seed: int = 1, vertices: int = 400) -> EvolvingGraph:
    return synthetic(vertices=vertices, times=6, classes=4, new_classes=2, seed=seed)


def run(
    graph: EvolvingGraph, learner: LifelongLearner, history: Any = 2, last: int | None = None, **how: Any
) -> list[Any]:
    """Decisions of all tasks up to a time."""
    found = []
    for task in tasks(graph, history, first=2, **how):
        if last is not None and task.time > last:
            break
        found.append(learner.adapt(task).predict(task))
    return found


def same(a: Any, b: Any) -> None:
    assert a.time == b.time
    assert list(a.ids) == list(b.ids)
    assert a.classes.tolist() == b.classes.tolist()
    np.testing.assert_array_equal(a.score, b.score)


# --- learning at all -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", TRAINED, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("detector", [None, GDOC(0.5, alpha=3.0)], ids=["none", "gdoc"])
def test_every_model_learns_with_every_detector(model: Model, detector: Any) -> None:
    graph = growing()
    learner = LifelongLearner(model, detector, steps=40, lr=0.03)
    baseline = LifelongLearner(MostFrequent(), Softmax())
    scores, base = [], []
    for task in tasks(graph, 3, first=4):
        scores.append(evaluate(task, learner.adapt(task).predict(task)))
        base.append(evaluate(task, baseline.adapt(task).predict(task)))
    assert np.mean([score.accuracy for score in scores]) > np.mean([score.accuracy for score in base]) + 0.1
    assert learner.losses_[-1] < learner.losses_[0]


def test_the_baseline_says_the_most_frequent_class() -> None:
    graph = growing()
    for task in tasks(graph, 2, first=2):
        decisions = LifelongLearner(MostFrequent(), Softmax()).adapt(task).predict(task)
        counts = np.bincount(task.targets[task.targets >= 0], minlength=len(graph.class_names))
        assert set(decisions.classes) <= {
            n for n, c in zip(graph.class_names, counts, strict=True) if c == counts.max()
        }


@dataclass(frozen=True)
class Finished(MLP):
    """Is trained as `MLP`, and predicts as `MostFrequent` from what it has counted after training."""

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        return super().parameters(inputs, outputs, draw) | {"shares": draw.zeros(outputs)}

    def trained(self, name: str) -> bool:
        return name != "shares"

    @property
    def predictor(self) -> Model:
        return MostFrequent()

    def finish(self, p: Parameters, labels: Labels) -> Parameters:
        counted = torch.from_numpy(np.bincount(labels.targets, minlength=len(labels.counts)))
        assert torch.equal(counted, labels.counts)
        assert (np.diff(labels.times) >= 0).all()
        assert labels.time > labels.times.max()
        assert labels.vectors(np.arange(2)).shape == (2, len(counted)), "the vectors of the predictor"
        return p | {"shares": counted / counted.sum()}


@pytest.mark.parametrize("model", [Finished(), GraphSAINT(Finished())], ids=["whole", "samples"])
def test_a_model_may_set_parameters_after_training_and_predict_as_another(model: Model) -> None:
    one = LifelongLearner(model, Softmax(), steps=3, inputs="words")
    other = LifelongLearner(MostFrequent(), Softmax(), inputs="words")
    for task in tasks(growing(), 2, first=2):
        same(one.adapt(task).predict(task), other.adapt(task).predict(task))
        assert len(one.losses_) == 3


def test_decisions_carry_names_and_unseen() -> None:
    graph = growing()
    learner = LifelongLearner(GraphSAGE(hidden=8), GDOC(0.9), steps=20, lr=0.02)
    decisions = run(graph, learner)[-1]
    assert decisions.flagged.any()
    assert not decisions.flagged.all()
    assert set(decisions.classes) <= {*learner.classes_, UNSEEN}
    assert set(decisions.classes[decisions.flagged]) == {UNSEEN}
    assert UNSEEN not in set(decisions.best)
    assert ((decisions.probability >= 0) & (decisions.probability <= 1)).all()
    assert repr(decisions).startswith("Decisions(vertices=")


def test_one_training_serves_every_threshold_and_alpha() -> None:
    graph = growing()
    task = next(tasks(graph, 3, first=4))
    learner = LifelongLearner(GraphSAGE(hidden=8), GDOC(0.5), steps=40, lr=0.02).adapt(task)
    strict = LifelongLearner(GraphSAGE(hidden=8), GDOC(0.8, alpha=1.0), steps=40, lr=0.02).adapt(task)
    same(learner.predict(task, GDOC(0.8, alpha=1.0)), strict.predict(task))
    assert learner.predict(task, GDOC(1.0)).flagged.all()
    assert not learner.predict(task, GDOC(0.0)).flagged.any()
    with pytest.raises(InputError, match="trained with GDOC, which cannot decide as Softmax"):
        learner.predict(task, Softmax())


@pytest.mark.parametrize("model", TRAINED, ids=lambda model: type(model).__name__)
def test_leaving_unused_words_out_of_training_changes_no_bit(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"all {'even' if i % 2 else 'odd'} old{i // 12} new{i // 12}" for i in range(60)]
    vertices = {"id": list(range(60)), "time": [i // 12 for i in range(60)], "label": list("xyz" * 20), "text": texts}
    graph = EvolvingGraph.build(vertices, [(i, i // 2) for i in range(1, 60)])
    parts: list[Any] = []
    found = []
    for leaves_out in (True, False):
        monkeypatch.setattr(
            "evergraph.learning.parameters.active_features",
            lambda *arguments, it=leaves_out: parts.append(active_features(*arguments) if it else None) or parts[-1],
        )
        learner = LifelongLearner(model, GDOC(0.5, alpha=2.0), steps=8, lr=0.05)
        for task in tasks(graph, 1, first=2):
            decisions = learner.adapt(task).predict(task)
        found.append((decisions, learner.weights_))
    assert len([part for part in parts if part is not None]) >= 2  # or there was nothing to compare
    same(found[0][0], found[1][0])
    assert all(torch.equal(value, found[1][1][name]) for name, value in found[0][1].items())


def test_weight_decay_moves_the_weights_of_unused_words_too() -> None:
    vertices = {"id": [1, 2, 3], "time": [0, 1, 2], "label": ["x", "y", "x"], "text": ["old word", "new word", "word"]}
    first, second = tasks(EvolvingGraph.build(vertices), 1, first=1)
    for decay, moves in ((0.0, False), (0.1, True)):
        learner = LifelongLearner(MLP(4), Softmax(), steps=3, weight_decay=decay).adapt(first)
        row, before = learner.vocabulary_.names.index("old"), learner.weights_["0.weight"].clone()
        assert bool((learner.adapt(second).weights_["0.weight"][row] != before[row]).any()) == moves


def test_the_same_seed_gives_the_same_numbers_and_another_others() -> None:
    graph = growing()
    one, again, other = (
        run(graph, LifelongLearner(GraphSAGE(hidden=8), GDOC(), steps=10, seed=seed), last=3)[-1] for seed in (3, 3, 4)
    )
    same(one, again)
    assert (one.score != other.score).any()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_both_kernels_train_alike(model: Model) -> None:
    graph = growing()
    task = next(tasks(graph, 2, first=3))
    one, other = (
        LifelongLearner(model, GDOC(), steps=5, lr=0.01, kernels=kernels).adapt(task) for kernels in ("numba", "torch")
    )
    # After some steps of Adam, which divides by what may be tiny, a rounding error has grown by some orders.
    np.testing.assert_allclose(one.outputs(task).logits, other.outputs(task).logits, rtol=2e-3, atol=2e-3)
    assert one.losses_ == pytest.approx(other.losses_, rel=1e-4)


# --- time never leaks ------------------------------------------------------------------------------------------------


def shuffled_future(graph: EvolvingGraph, after: int, seed: int) -> EvolvingGraph:
    """Another future: other labels (some new), other words, other edges among and to what comes after a time."""
    rng = np.random.default_rng(seed)
    late = np.flatnonzero(graph.times > after)
    rows = np.arange(len(graph))
    words = graph.features.words.columns  # type: ignore[union-attr]
    counts = graph.features.words.matrix  # type: ignore[union-attr]
    names = [*graph.class_names, "zebra", "aardvark"]
    text = []
    for row in rows:
        part = counts[[row]]
        own = [words[int(column)] for column in np.repeat(part.indices, part.data.astype(int))]
        if row in late:
            own = [*rng.permutation(own).tolist()[: rng.integers(0, 5)], f"future{rng.integers(9)}", "aaa"]
        text.append(" ".join(own))
    source, target, _ = graph.links.ends()
    kept = np.maximum(source, target) < (late[0] if len(late) else len(graph))
    edges = np.stack([source[kept], target[kept]], 1)
    if len(late):
        fresh = np.stack([rng.choice(late, 3 * len(late)), rng.integers(0, len(graph), 3 * len(late))], 1)
        edges = np.concatenate([edges, fresh])
    labels = [
        names[rng.integers(len(names))] if row in late else (names[code] if code >= 0 else None)
        for row, code in zip(rows, graph.codes, strict=True)
    ]
    order = rng.permutation(len(graph))  # also the order in which all of it is given
    # Among vertices of one time the order is that of the input: keep it, for it is no part of the future.
    order = order[np.argsort(np.where(graph.times[order] > after, 0, 1), kind="stable")]
    order = np.concatenate([order[graph.times[order] > after], np.flatnonzero(graph.times <= after)])
    ids = np.asarray([str(i) for i in graph.ids], object)
    return EvolvingGraph.build(
        {
            "id": ids[order],
            "time": graph.times[order],
            "label": [labels[row] for row in order],
            "text": [text[row] for row in order],
        },
        np.stack([ids[edges[:, 0]], ids[edges[:, 1]]], 1),
    )


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    model=st.sampled_from(MODELS),
    rate=st.sampled_from([1.0, 0.5]),
    restart=st.sampled_from(["warm", "cold", "hybrid"]),
    mode=st.sampled_from(["transductive", "inductive"]),
    history=st.sampled_from([2, "auto", "full"]),
)
def test_shuffling_the_future_moves_no_decision(
    seed: int, model: Model, rate: float, restart: Any, mode: Any, history: Any
) -> None:
    graph = growing(seed=2, vertices=250)
    last = 3
    plain, other = shuffled_future(graph, graph.last_time, 0), shuffled_future(graph, last, seed)
    assert plain.class_names != other.class_names
    for detector in (None, GDOC(0.6, alpha=2.0)):
        learners = [LifelongLearner(model, detector, steps=4, restart=restart) for _ in range(2)]
        past = [
            run(g, learner, history, last, label_rate=rate, mode=mode)
            for g, learner in zip((plain, other), learners, strict=True)
        ]
        assert len(past[0]) == 2
        for one, two in zip(*past, strict=True):
            same(one, two)
        assert learners[0].classes_ == learners[1].classes_
        assert learners[0].lr_ == learners[1].lr_


@pytest.mark.parametrize("mode", ["transductive", "inductive"])
def test_labels_of_the_task_itself_move_no_decision(mode: Any) -> None:
    graph = growing()
    now = np.flatnonzero(graph.times == 3)
    ids = graph.ids[now]
    other = graph.relabel(list(ids), ["nothing like it"] * len(now))
    one, two = (run(g, LifelongLearner(detector=Softmax(), steps=5), 2, 3, mode=mode)[-1] for g in (graph, other))
    same(one, two)


def test_permuting_class_numbers_changes_nothing() -> None:
    graph = growing()
    turned = np.random.default_rng(0).permutation(len(graph.class_names))
    names = tuple(graph.class_names[row] for row in np.argsort(turned))
    codes = np.where(graph.codes >= 0, turned[graph.codes], -1).astype(np.int32)
    other = replace(graph, class_names=names, codes=codes)
    assert other.class_names != graph.class_names
    assert other.labels.tolist() == graph.labels.tolist()
    for model in (GraphSAGE(hidden=8), GAT(hidden=4, heads=2), Ridge(width=32)):
        pairs = [run(g, LifelongLearner(model, GDOC(0.6, alpha=3.0), steps=8)) for g in (graph, other)]
        for task, one, two in zip(tasks(graph, 2, first=2), *pairs, strict=True):
            same(one, two)
            assert evaluate(task, one) == evaluate(Task(other, task.time, 2), two)


# --- restarts and growth ---------------------------------------------------------------------------------------------


def learned(model: Model, restart: Any = "warm", steps: int = 3, **settings: Any) -> tuple[EvolvingGraph, Any, Any]:
    """A learner before and after a task at which a class is new."""
    graph = EvolvingGraph.build(
        {
            "id": range(12),
            "time": [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3],
            "label": ["b", "d", "b", "d", "b", "d", "a", "b", "c", "b", "d", "a"],
            "text": ["pp qq", "rr ss", "pp qq", "rr ss", "pp qq tt", "rr ss", "uu vv", "pp qq", "ww", "pp", "rr", "uu"],
        },
        [[0, 2], [1, 3], [2, 4], [3, 5], [4, 7], [6, 11], [8, 9]],
    )
    learner = LifelongLearner(model, Softmax(), restart=restart, steps=steps, lr=0.05, **settings)
    learner.adapt(Task(graph, 2, 2))
    return graph, learner, Task(graph, 3, 2)


def snapshot(learner: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in learner.weights_.items()}


@pytest.mark.parametrize("model", TRAINED[:-1], ids=lambda model: type(model).__name__)
def test_a_warm_restart_keeps_all_that_is_known_and_draws_the_rest(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, learner, task = learned(model)
    assert learner.classes_ == ("b", "d")
    assert learner.vocabulary_.names == ("pp", "qq", "rr", "ss", "tt")
    before, drawn = snapshot(learner), {}

    def no_training(model: Any, detector: Any, weights: Any, *_: Any, **__: Any) -> list[float]:
        drawn.update({name: value.clone() for name, value in weights.items()})
        return []

    monkeypatch.setattr("evergraph.learning.parameters.train", no_training)
    learner.adapt(task)
    # New classes come after the known ones, by name; the output layer really has no rows for others.
    assert learner.classes_ == ("b", "d", "a", "c")
    assert learner.vocabulary_.names == ("pp", "qq", "rr", "ss", "tt", "uu", "vv", "ww")
    assert learner.outputs(task).logits.shape[1] == 4
    for name, old in before.items():
        new = drawn[name]
        torch.testing.assert_close(new[tuple(slice(size) for size in old.shape)], old, rtol=0, atol=0)
        if new.shape != old.shape:  # what is new is drawn, unless it starts at 0 by design
            fresh = new.clone()
            fresh[tuple(slice(size) for size in old.shape)] = 0
            assert fresh.any() or (name.endswith("bias") and isinstance(model, (SGC, GCN)))


@pytest.mark.parametrize("model", TRAINED[:-1], ids=lambda model: type(model).__name__)
def test_a_cold_restart_draws_everything_afresh(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    _, learner, task = learned(model, "cold")
    before, drawn = snapshot(learner), {}

    def no_training(model: Any, detector: Any, weights: Any, *_: Any, **__: Any) -> list[float]:
        drawn.update({name: value.clone() for name, value in weights.items()})
        return []

    monkeypatch.setattr("evergraph.learning.parameters.train", no_training)
    learner.adapt(task)
    for name, old in before.items():  # biases too, of which the authors' code keeps some
        part = drawn[name][tuple(slice(size) for size in old.shape)]
        assert not torch.equal(part, old), name
    first = model.parameters(learner.vocabulary_.width, 4, Draw(0, 0))
    # A start of its own, not the first one again.
    assert any(value.any() and not torch.equal(value, drawn[name]) for name, value in first.items())


def test_known_classes_never_shrink() -> None:
    graph, learner, _ = learned(GraphSAGE(hidden=4))
    later = graph.append({"id": [20, 21], "time": [4, 5], "label": ["c", "c"], "text": ["ww", "ww"]})
    for time in (3, 4, 5):
        learner.adapt(Task(later, time, 1))
    assert learner.classes_ == ("b", "d", "a", "c")  # though the last window has 'c' alone


def test_adam_starts_anew_with_each_task() -> None:
    """The first step of Adam moves a weight by the learning rate, whatever its gradient; a stale one does not."""
    _, learner, task = learned(MLP(hidden=4, dropout=0.0), steps=30)
    before = snapshot(learner)
    learner.set_params(steps=1).adapt(task)
    after = learner.weights_
    moved = (after["1.weight"][:, :2] - before["1.weight"]).abs()
    assert moved.max().item() == pytest.approx(0.05, rel=1e-3)


def test_the_first_task_is_trained() -> None:
    _, learner, _ = learned(MLP(hidden=4), steps=7)
    assert len(learner.losses_) == 7
    fresh = MLP(hidden=4).parameters(learner.vocabulary_.width, 2, Draw(0, 0))
    assert all(not torch.equal(learner.weights_[name], fresh[name]) for name in fresh)


def test_hybrid_is_cold_when_a_class_is_new_and_warm_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, learner, _ = learned(MLP(hidden=4), "hybrid")
    grown = graph.append({"id": [20], "time": [4], "label": ["a"], "text": ["ww"]})
    carried = []
    monkeypatch.setattr(
        "evergraph.learning.parameters.carry_over", lambda *weights: carried.append(weights) or carry_over(*weights)
    )
    learner.adapt(Task(grown, 3, 2))
    assert not carried
    learner.adapt(Task(grown, 4, 2))
    assert len(carried) == 1


def test_a_learner_trained_once_stays_as_it_is() -> None:
    graph = growing()
    learner = LifelongLearner(GraphSAGE(hidden=8), Softmax(), restart="once", steps=10)
    found = tasks(graph, 2, first=2)
    task = next(found)
    learner.adapt(task)
    before, known = snapshot(learner), learner.classes_
    for task in found:
        learner.adapt(task)
        assert set(learner.predict(task).classes) <= set(known)
    assert learner.classes_ == known
    assert learner.time_ == graph.last_time
    assert all(torch.equal(before[name], learner.weights_[name]) for name in before)  # type: ignore[index]


def test_weight_decay_pulls_weights_to_zero() -> None:
    sizes = []
    for decay in (0.0, 1.0):
        _, learner, _ = learned(MLP(hidden=4), steps=50, weight_decay=decay)
        sizes.append(float(sum(value.square().sum() for value in learner.weights_.values())))
    assert sizes[1] < 0.5 * sizes[0]


def test_the_default_rate_is_the_papers_by_restart_and_coverage() -> None:
    assert default_rate(GraphSAGE(), Softmax(), warm=False, level=75) == 0.01
    assert default_rate(GraphSAGE(), GDOC(), warm=True, level=50) == 0.001
    assert default_rate(GAT(), GDOC(), warm=True, level=100) == 0.05
    assert default_rate(GCN(), Softmax(), warm=True, level=25) == 0.005
    graph = growing()
    learner = LifelongLearner(GraphSAGE(), Softmax(), restart="cold", steps=1)
    task = Task(graph, 4, None)
    assert learner.adapt(task).lr_ == 0.01
    assert LifelongLearner(GraphSAGE(), lr=0.5, steps=1).adapt(task).lr_ == 0.5


def test_an_inductive_learner_does_not_see_the_task_in_training() -> None:
    graph = growing()
    now = np.flatnonzero(graph.times == 3)
    later = graph.ids[now]
    # Other edges among the vertices of the task: an inductive learner's weights do not move, a transductive one's do.
    source, target, _ = graph.links.ends()
    inside = [(graph.ids[u], graph.ids[v]) for u, v in zip(source, target, strict=True) if v in now]
    other = graph.remove(edges=inside)
    assert other.n_edges < graph.n_edges
    assert len(later)
    for mode, equal in (("inductive", True), ("transductive", False)):
        weights = []
        for g in (graph, other):
            learner = LifelongLearner(GraphSAGE(hidden=4), Softmax(), steps=3)
            learner.adapt(Task(g, 3, 2, mode=mode))  # type: ignore[arg-type]
            weights.append(learner.weights_["0.self.weight"])  # type: ignore[index]
        assert torch.equal(*weights) == equal


# --- scikit-learn's idioms -------------------------------------------------------------------------------------------


def test_parameters_and_repr() -> None:
    learner = LifelongLearner(GraphSAGE(hidden=8), GDOC(0.6), steps=7)
    assert (
        repr(learner)
        == "LifelongLearner(model=GraphSAGE(hidden=8, layers=2, dropout=0.5), detector=GDOC(threshold=0.6, alpha=None), steps=7)"
    )
    assert LifelongLearner(**learner.get_params()).get_params() == learner.get_params()
    assert learner.set_params(steps=9).steps == 9
    with pytest.raises(InputError, match="no argument 'stps'"):
        learner.set_params(stps=1)
    from sklearn.base import clone

    assert clone(learner, safe=False).get_params() is not None


def test_inputs_are_kept_as_one_text(tmp_path: Path) -> None:
    from sklearn.base import clone

    for wanted in (["words", "classes"], ("words", "classes", "words"), "words, classes"):
        learner = LifelongLearner(GraphSAGE(hidden=4), Softmax(), steps=2, inputs=wanted)
        assert learner.inputs == clone(learner, safe=False).inputs == "words,classes"
        assert Configuration(inputs=wanted) == Configuration(inputs="words,classes")
    task = Task(synthetic(vertices=120, times=4, classes=3, new_classes=0, seed=1), 3, 2)
    learner.adapt(task).set_params(inputs=["words", "classes"])  # the same as before
    learner.save(tmp_path)
    assert LifelongLearner.load(tmp_path).inputs == "words,classes"
    assert LifelongLearner().set_params(inputs=["auto"]).inputs == "auto"


@pytest.mark.parametrize("wrong", [5, None, {"words": 1}, [5], [], [["words"]]])
def test_inputs_of_a_wrong_type_are_refused(wrong: Any) -> None:
    for make in (LifelongLearner, Configuration, LifelongLearner().set_params):
        with pytest.raises(InputError, match=r"inputs? .*Choose auto, or some of words"):
            make(inputs=wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"restart": "lukewarm"}, "restart is 'lukewarm'"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": 2.5}, "steps is 2.5"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"lr": math.nan}, "lr is nan"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"seed": -1}, "seed is -1"),
        ({"kernels": "magic"}, "kernels is 'magic'"),
        ({"model": "sage"}, "'sage' is not a model"),
        ({"detector": "gdoc"}, "detector is 'gdoc'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LifelongLearner(**arguments)


# --- bad input -------------------------------------------------------------------------------------------------------


def small(labels: list[Any], **more: Any) -> EvolvingGraph:
    times = [0] * (len(labels) - 1) + [1]
    columns = {"id": range(len(labels)), "time": times, "label": labels}
    if "features" not in more:
        columns["text"] = [f"w{i % 3} word" for i in range(len(labels))]
    return EvolvingGraph.build(columns, more.pop("edges", [[0, 1]]), **more)


def test_a_first_task_without_labels_is_an_error_and_a_later_one_changes_nothing(caplog: Any) -> None:
    with pytest.raises(InputError, match=r"no label to train on in 0 to 0.*Choose a longer history"):
        LifelongLearner().adapt(Task(small([None, None, "x"]), 1, 1))
    graph, learner, _ = learned(MLP(hidden=4))
    bare = graph.relabel([9, 10, 11], [None] * 3).append({"id": [20], "time": [4], "label": ["a"], "text": ["ww"]})
    learner.adapt(Task(bare, 3, 2))
    before = snapshot(learner)
    learner.adapt(Task(bare, 4, 1))
    assert "no label to train on in 3 to 3" in caplog.text
    assert learner.time_ == 4
    assert all(torch.equal(before[name], learner.weights_[name]) for name in before)
    assert len(learner.predict(Task(bare, 4, 1))) == 1


@pytest.mark.parametrize("detector", [None, DOC(), GDOC(alpha=3.0)], ids=["none", "doc", "gdoc"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_one_class_or_one_example_or_no_edges(model: Model, detector: Any) -> None:
    for graph in (
        small(["x", "x", "x", "y"]),  # one class: gDOC's weight would be 0
        small(["x", "x", "x", "y", "x"]),  # a class with one example
        small(["x", "y", "x", "y"], edges=None),  # no edges: every vertex is isolated
        small(["x", "y", None, "x"], edges=[[2, 3]]),
    ):
        task = Task(graph, 1, 1)
        learner = LifelongLearner(model, detector, steps=3)
        decisions = learner.adapt(task).predict(task)
        assert np.isfinite(decisions.score).all()
        assert all(torch.isfinite(value).all() for value in learner.weights_.values())  # type: ignore[union-attr]


def test_a_window_of_one_class_still_learns_that_class() -> None:
    graph = small(["x"] * 9 + ["x"])
    task = Task(graph, 1, 1)
    learner = LifelongLearner(MLP(hidden=4), GDOC(0.5), steps=50, lr=0.05).adapt(task)
    assert learner.predict(task).classes.tolist() == ["x"]


def test_a_graph_without_features() -> None:
    graph = EvolvingGraph.build({"id": [1, 2], "time": [0, 1], "label": ["x", "y"]}, [[1, 2]])
    learner = LifelongLearner(steps=2).adapt(Task(graph, 1, 1))
    assert learner.vocabulary_.blocks == ("classes",)
    with pytest.raises(InputError, match=r"include words, but the graph has no features"):
        LifelongLearner(inputs="words").adapt(Task(graph, 1, 1))
    without_edges = EvolvingGraph.build({"id": [1, 2], "time": [0, 1], "label": ["x", "y"]})
    with pytest.raises(InputError, match=r"neither features nor edges.*Import it with a text column"):
        LifelongLearner().adapt(Task(without_edges, 1, 1))


def test_features_that_are_not_numbers_are_refused_and_nothing_is_lost() -> None:
    graph = small(["x", "y", "x", "y"], features=np.eye(4, 3, dtype=np.float32))
    learner = LifelongLearner(MLP(hidden=4), Softmax(), steps=3).adapt(Task(graph, 1, 1))
    before = snapshot(learner)
    values = np.array(graph.features.numbers.values)  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"nan|NaN|number"):
        small(["x", "y", "x", "y"], features=np.full((4, 3), np.inf, np.float32))
    # Past the border (memory that was changed by hand): told all the same, and the learner stays as it was.
    values[0, 0] = np.inf
    broken = replace(graph, features=Features(numbers=Numbers.of(values)), times=graph.times + 1)
    with pytest.raises(EvergraphError, match=r"loss of step 1 is (nan|inf)"):
        learner.adapt(Task(broken, 2, 1))
    assert learner.time_ == 1
    assert all(torch.equal(before[name], learner.weights_[name]) for name in before)  # type: ignore[index]


def test_an_interrupted_task_leaves_the_learner_as_it_was() -> None:
    _, learner, task = learned(GraphSAGE(hidden=4))
    before, known = snapshot(learner), learner.classes_

    def interrupt(step: int, loss: float) -> None:
        assert math.isfinite(loss)
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.adapt(task, on_step=interrupt)
    assert learner.classes_ == known
    assert learner.time_ == 2
    assert all(torch.equal(before[name], learner.weights_[name]) for name in before)
    other = learned(GraphSAGE(hidden=4))[1]
    same(learner.adapt(task).predict(task), other.adapt(task).predict(task))


def test_order_and_kind_of_tasks_are_checked() -> None:
    graph, learner, task = learned(MLP(hidden=4))
    with pytest.raises(InputError, match="already trained for 2"):
        learner.adapt(Task(graph, 1, 1))
    with pytest.raises(EvergraphError, match="is not trained yet"):
        LifelongLearner().predict(task)
    dense = small(["x", "y", "x", "y"], features=np.eye(4, 3, dtype=np.float32))
    with pytest.raises(InputError, match="reads words, classes, but the graph has numbers"):
        learner.predict(Task(dense, 1, 1))
    with pytest.raises(InputError, match="Pass the decisions of this task"):
        evaluate(task, learner.predict(Task(graph, 2, 1)))


def test_dense_and_sparse_features() -> None:
    rng = np.random.default_rng(0)
    from scipy import sparse

    dense = rng.random((40, 5)).astype(np.float32)
    labels = ["x" if row[0] > 0.5 else "y" for row in dense]
    columns = {"id": range(40), "time": [0] * 30 + [1] * 10, "label": labels}
    for features in (dense, sparse.csr_array(np.where(dense > 0.5, dense, 0))):
        graph = EvolvingGraph.build(columns, [[0, 1]], features=features)
        task = Task(graph, 1, 1)
        learner = LifelongLearner(MLP(hidden=16, dropout=0.0), Softmax(), steps=200, lr=0.02).adapt(task)
        assert evaluate(task, learner.predict(task)).accuracy >= 0.8


def test_the_model_cannot_be_changed_under_way() -> None:
    _, learner, _ = learned(MLP(hidden=4))
    with pytest.raises(InputError, match=r"trained with MLP\(hidden=4.*cannot continue with MLP\(hidden=8"):
        learner.set_params(model=MLP(hidden=8))
    assert learner.model == MLP(hidden=4)
    with pytest.raises(InputError, match="steps is 0"):
        learner.set_params(lr=0.5, steps=0)
    assert (learner.lr, learner.steps) == (0.05, 3)


def test_what_set_params_changes_takes_effect() -> None:
    graph = growing()
    learner = LifelongLearner(MLP(hidden=4), Softmax(), steps=2, lr=0.5).adapt(Task(graph, 2, 2))
    assert learner.set_params(lr=None).adapt(Task(graph, 3, 2)).lr_ in (0.001, 0.005)
    with pytest.raises(InputError, match="text cannot be changed"):
        learner.set_params(text="global")


def test_an_earlier_task_is_decided_with_a_warning(caplog: Any) -> None:
    graph, learner, task = learned(MLP(hidden=4))
    learner.adapt(task)
    assert caplog.text == ""
    learner.predict(Task(graph, 2, 2))
    assert "may have used the labels of this task" in caplog.text


def test_the_two_truths_are_scored_apart() -> None:
    """A class that was in the graph before, but never in the learner's windows, is unseen and not new."""
    labels = ["old", "old", "x", "y", "x", "y", "old", "new", "x"]
    graph = EvolvingGraph.build(
        {"id": range(9), "time": [0, 0, 1, 1, 1, 1, 2, 2, 2], "label": labels, "text": [f"w{i}" for i in labels]}
    )
    task = Task(graph, 2, 1)
    learner = LifelongLearner(MLP(hidden=4), GDOC(1.0), steps=2).adapt(task)
    scores = evaluate(task, learner.predict(task))
    assert (scores.confusion.tp, scores.confusion.fp) == (2, 1)  # everything is rejected
    assert (scores.confusion_never_before.tp, scores.confusion_never_before.fp) == (1, 2)


def test_samples_without_labels_are_passed_over() -> None:
    graph = growing()
    task = Task(graph, 3, 2, label_rate=0.1)
    learner = LifelongLearner(GraphSAINT(JKNet(hidden=4), sampler="node", size=2), Softmax(), steps=5).adapt(task)
    assert all(math.isfinite(loss) and loss > 0 for loss in learner.losses_)


def test_a_learner_has_the_default_detector_unless_another_is_given() -> None:
    assert LifelongLearner().detector_.detector == AutoDetector()
    assert LifelongLearner(detector=Softmax()).detector_.detector == Softmax()


def test_a_renamed_learner_decides_by_the_new_names_and_leaves_the_first_alone() -> None:
    task = next(tasks(growing(), 2, first=2))
    learner = LifelongLearner(MLP(hidden=4), Softmax(), steps=3).adapt(task)
    old = learner.classes_[0]
    names_of_graph = tuple("other" if name == old else name for name in task.graph.class_names)
    same_names = replace(task, graph=replace(task.graph, class_names=names_of_graph))
    for names in ({old: "other"}, ["other", *learner.classes_[1:]]):
        renamed = learner.renamed(names).predict(same_names)
        assert renamed.known == ("other", *learner.classes_[1:])
        expected = ["other" if name == old else name for name in learner.predict(task).best]
        assert renamed.best.tolist() == expected
    assert old in learner.classes_


def test_a_learner_without_classes_decides_for_the_others() -> None:
    task = next(tasks(growing(), 2, first=2))
    learner = LifelongLearner(MLP(hidden=4), Softmax(), steps=3).adapt(task)
    best = learner.predict(task).best[0]
    assert best not in learner.without_classes({best}).predict(task).best
    whole = learner.outputs(task).logits
    assert torch.equal(learner.without_classes(learner.classes_).outputs(task).logits, whole)
    assert torch.equal(learner.without_classes(()).outputs(task).logits, whole)


def test_a_rewound_learner_takes_an_earlier_task_again() -> None:
    first, second, *_ = tasks(growing(), 2, first=2)
    learner = LifelongLearner(MLP(hidden=4), Softmax(), steps=3).adapt(first).adapt(second)
    with pytest.raises(InputError, match="already trained for"):
        learner.adapt(first)
    assert learner.rewound(first.time).adapt(first).time_ == first.time
    assert learner.time_ == second.time
    assert LifelongLearner().rewound(3).time_ is None
