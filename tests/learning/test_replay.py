"""Replay: a detector observes the outputs at the time of the decision, before the model is trained on the labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from evergraph import EvolvingGraph, LifelongLearner, names, tasks
from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables
from evergraph.detect import (
    DOC,
    GDOC,
    AutoDetector,
    Decision,
    Detector,
    IsoMax,
    Outputs,
    PostHoc,
    Requirements,
    Softmax,
)
from evergraph.detect.base import UNLABELLED
from evergraph.detect.scores import Relative, inner_state, outer_state
from evergraph.detect.thresholds import BackTest, Budget, Conformal, Fixed, Threshold
from evergraph.learning.task import Task
from evergraph.nn import GraphSAGE
from evergraph_baselines.average import Average, AverageDetector, Propagated
from tests.learning.test_learner import shuffled_future

SCORES = {name: names.load("score", name) for name in names.known("score")}

pytestmark = pytest.mark.usefixtures("one_thread")

GRAPH = synthetic(vertices=480, times=9, classes=4, new_classes=2, words=120, words_per_vertex=5, seed=2)
FIRST = 5
State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Witness(Softmax):
    """Remembers all it is shown."""

    @property
    def requires(self) -> Requirements:
        return Requirements(observe=True)

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        assert outputs.hidden is not None
        assert len(outputs) == len(outputs.hidden) == len(targets)
        number = int(state.get("past.calls", torch.zeros(()))) + 1
        kept = targets != UNLABELLED
        assert kept.any()
        seen = {f"past.{number}.logits": outputs.logits[kept], f"past.{number}.targets": targets[kept]}
        return {**state, **seen, "past.calls": torch.tensor(number), "of the weights": torch.zeros(1)}


@dataclass(frozen=True)
class Replaying(Witness):
    @property
    def requires(self) -> Requirements:
        return Requirements(observe=True, replay=3)


def learner(detector: Any = Witness(), **settings: Any) -> LifelongLearner:  # noqa: B008  # a value
    return LifelongLearner(GraphSAGE(hidden=8), detector, steps=15, lr=0.02, **settings)


def lived(of: LifelongLearner, given: list[Task]) -> list[tuple[Tensor, Tensor]]:
    """Outputs for each task at the time of the decision, for vertices with a label, and their columns."""
    said = []
    for task in given:
        of.adapt(task)
        truth = np.array([of.classes_.index(name) if name in of.classes_ else -1 for name in task.truth])
        chosen = torch.from_numpy(np.array([name is not None for name in task.truth]))
        said.append((of.outputs(task).logits[chosen], torch.from_numpy(truth)[chosen]))
    return said


def seen_by(of: LifelongLearner) -> list[tuple[Tensor, Tensor]]:
    state = of.detector_.state
    calls = int(state["past.calls"]) if "past.calls" in state else 0
    return [(state[f"past.{number}.logits"], state[f"past.{number}.targets"]) for number in range(1, calls + 1)]


def same(one: list[tuple[Tensor, Tensor]], other: list[tuple[Tensor, Tensor]]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in pairs)


@pytest.mark.parametrize("restart", ["warm", "cold", "hybrid"])
@pytest.mark.parametrize("mode", ["transductive", "inductive"])
@pytest.mark.parametrize("history", [1, 3, "full"])
def test_it_sees_what_was_said_when_it_was_decided(restart: Any, mode: Any, history: Any) -> None:
    one = learner(restart=restart)
    said = lived(one, list(tasks(GRAPH, history, first=FIRST, mode=mode)))
    seen = seen_by(one)
    assert same(seen, said[:-1])
    assert sum(int((targets < 0).sum()) for _, targets in seen) > 0  # some were of unseen classes


def test_weights_are_as_without_looking_back() -> None:
    one, other, given = learner(Replaying()), learner(Softmax()), list(tasks(GRAPH, 2, first=FIRST))
    assert same(lived(one, given), lived(other, given))
    assert other.detector_.state == {}


def test_a_cold_restart_keeps_what_was_decided_and_nothing_of_the_old_weights() -> None:
    one, two, *_ = tasks(GRAPH, 2, first=FIRST)
    cold = learner(restart="cold").adapt(one).adapt(two)
    assert len(seen_by(cold)) == 1
    assert all(name.startswith("past.") for name in cold.detector_.state)


def test_only_labels_that_were_released_are_seen() -> None:
    one, two, *_ = tasks(GRAPH, 2, first=FIRST, label_rate=0.3)
    ((logits, _),) = seen_by(learner().adapt(one).adapt(two))
    assert len(logits) == int((two.targets[two.window.times[: len(two.targets)] == one.time] >= 0).sum())
    assert 0 < len(logits) < 0.6 * len(one.test_ids)


def test_nothing_of_the_future_is_seen() -> None:
    given = list(tasks(GRAPH, 2, first=FIRST))[:3]
    past = EvolvingGraph.build(*to_tables(GRAPH, last=given[-1].time))
    one, other = learner(Replaying()), learner(Replaying())
    for task in given:
        one.adapt(task)
        other.adapt(replace(task, graph=past))
    # Sums may go in another order: the columns of words stand otherwise in another graph.
    for (logits, targets), (others, their) in zip(seen_by(one), seen_by(other), strict=True):
        torch.testing.assert_close(logits, others, atol=1e-4, rtol=1e-4)
        assert torch.equal(targets, their)


# --- the future of decisions -----------------------------------------------------------------------------------------

LAST = 4
SMALL = synthetic(vertices=300, times=7, classes=4, new_classes=2, words=120, words_per_vertex=5, seed=3)
RULES: list[Threshold] = [Fixed(0.1), Conformal(0.1), Budget(7), BackTest(0.1)]
MADE: list[Detector] = [
    *(PostHoc(kind(), rule) for kind in SCORES.values() for rule in RULES),
    PostHoc(Relative(Propagated(Average(tuple(kind() for kind in SCORES.values()))))),
    AverageDetector(),
    AverageDetector(most=1.0),
    AutoDetector(),
]


@dataclass(frozen=True)
class Everyone(Softmax):
    """Many detectors at once: they are trained alike, so one training serves all. It decides as one of them does."""

    chosen: int = 0

    @property
    def requires(self) -> Requirements:
        return reduce(Requirements.__or__, (one.requires for one in MADE))

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        return self._each(lambda one, own: one.fit(outputs, targets, own), state)

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        return self._each(lambda one, own: one.observe(outputs, targets, own), state)

    def _each(self, call: Callable[[Detector, State], State], state: State) -> State:
        found: dict[str, Tensor] = {}
        for number, one in enumerate(MADE):
            found |= outer_state(call(one, inner_state(state, str(number))), str(number))
        return found

    def decide(self, outputs: Outputs, state: State) -> Decision:
        return MADE[self.chosen].decide(outputs, inner_state(state, str(self.chosen)))


def decided(graph: EvolvingGraph, detector: Detector, others: list[Detector] | None = None, **how: Any) -> list[Any]:
    """Decisions of the tasks up to a time, by the detector or by others of its kind on the same outputs."""
    restart = how.pop("restart", "warm")
    one = LifelongLearner(GraphSAGE(hidden=8), detector, steps=4, lr=0.02, restart=restart)
    found = []
    for task in tasks(graph, 2, first=3, **how):
        if task.time > LAST:
            break
        outputs = one.adapt(task).outputs(task)
        found += [one.predict(task, other, outputs) for other in others or [detector]]
    return found


def other_futures() -> dict[str, EvolvingGraph]:
    late = [SMALL.ids[int(row)] for row in np.flatnonzero(SMALL.times > LAST)]
    return {
        "as it is": shuffled_future(SMALL, SMALL.last_time, 0),  # rebuilt, like the others
        "shuffled": shuffled_future(SMALL, LAST, 1),
        "cut off": shuffled_future(SMALL.remove(late), LAST, 0),
    }


def alike(one: list[Any], other: list[Any]) -> None:
    for a, b in zip(one, other, strict=True):
        assert list(a.ids) == list(b.ids)
        assert a.known == b.known
        assert a.classes.tolist() == b.classes.tolist()
        for name in ("score", "flagged", "probability"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize(
    "how", [{}, {"restart": "cold", "label_rate": 0.6, "mode": "inductive"}], ids=["usual", "other"]
)
@pytest.mark.parametrize(
    "detector",
    [Softmax(), DOC(), GDOC(0.6, alpha=2.0), IsoMax(), PostHoc(), AutoDetector(), AverageDetector()],
    ids=lambda d: type(d).__name__,
)
def test_another_future_moves_no_decision(detector: Detector, how: dict[str, Any]) -> None:
    graphs = other_futures()
    found = {name: decided(graph, detector, **how) for name, graph in graphs.items()}
    assert len({graph.class_names for graph in graphs.values()}) > 1
    assert len(found["as it is"]) == 2
    for name in graphs:
        alike(found["as it is"], found[name])


@pytest.mark.parametrize("rate", [1.0, 0.6])
def test_another_future_moves_no_decision_of_any_score_with_any_threshold(rate: float) -> None:
    many: list[Detector] = [Everyone(number) for number in range(len(MADE))]
    graphs = other_futures()
    expected = decided(graphs.pop("as it is"), Everyone(), many, label_rate=rate)
    for graph in graphs.values():
        alike(expected, decided(graph, Everyone(), many, label_rate=rate))
    flagged = [decisions.flagged.any() for decisions in expected]
    assert np.mean(flagged) > 0.5  # they do decide
    # And they decide as each does alone.
    for one in (AverageDetector(), AutoDetector()):
        alone = decided(other_futures()["as it is"], one, label_rate=rate)
        alike(alone, expected[MADE.index(one) :: len(MADE)])


def test_a_replay_is_a_life_before_the_first_task() -> None:
    (first, *_) = tasks(GRAPH, 2, first=FIRST)
    before = list(tasks(GRAPH, 2, first=FIRST - 3))[:3]
    twin = learner()
    said = lived(twin, before)
    assert same(seen_by(learner(Replaying()).adapt(first)), said)


def test_where_there_is_no_past_to_replay_there_is_none() -> None:
    (first, *_) = tasks(GRAPH, 2, first=1)
    assert seen_by(learner(Replaying()).adapt(first)) == []
    (second, *_) = tasks(GRAPH, 2, first=2)
    assert len(seen_by(learner(Replaying()).adapt(second))) == 1


def test_a_learner_from_disk_has_its_past(tmp_path: Path) -> None:
    one, two, three, *_ = tasks(GRAPH, 2, first=FIRST)
    here = learner().adapt(one).adapt(two)
    here.save(tmp_path / "learner")
    there = LifelongLearner.load(tmp_path / "learner", detector=Witness())
    assert same(seen_by(here.adapt(three)), seen_by(there.adapt(three)))


def test_the_same_time_again_is_not_looked_back_at_again() -> None:
    one, two, *_ = tasks(GRAPH, 2, first=FIRST)
    assert len(seen_by(learner().adapt(one).adapt(two).adapt(two))) == 1
