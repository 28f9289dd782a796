"""Properties of a learner with each memory, regulariser and ridge: no leak, no numbering of classes, saving, growth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evergraph import EvolvingGraph, LifelongLearner
from evergraph.datasets import synthetic
from evergraph.detect import GDOC, Softmax
from evergraph.learning.task import tasks
from evergraph.names import build
from evergraph.nn import GAT, GraphSAGE, Model

pytestmark = pytest.mark.usefixtures("one_thread")

# Text as on the command line, by the learner's argument.
REGULARISERS: list[dict[str, str]] = [
    {"regulariser": "ewc:strength=1e6,draws=4"},
    {"regulariser": "mas:strength=1e3,groups=4"},
    {"regulariser": "twp:1e6"},
    {"regulariser": "lwf"},
    {"regulariser": "continual-gnn:1e6", "memory": "random:20"},
    {"regulariser": "gem", "memory": "class-mean:20"},  # without a state: it projects in cold restarts, too
]
ICARL = {"model": "icarl:hidden=8", "regulariser": "lwf", "memory": "class-mean:20"}
MEMORIES = ("random", "recent-per-class", "class-mean", "recent-typical", "coverage", "degree", "pagerank")
SYSTEMS = [*REGULARISERS, ICARL, {"model": "ridge:width=16"}, *({"memory": f"{name}:20"} for name in MEMORIES)]
GRAPH = synthetic(vertices=150, times=6, classes=4, new_classes=2, seed=1)
MODELS = [GraphSAGE(hidden=8), GAT(hidden=4, heads=2)]

with_each_system = pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: "-".join(system.values()))
with_each_regulariser = pytest.mark.parametrize("system", REGULARISERS, ids=lambda system: "-".join(system.values()))


def learner(system: dict[str, str], model: Model = MODELS[0], detector: Any = None, **settings: Any) -> LifelongLearner:
    parts = {"model": model} | {kind: build(kind, text) for kind, text in system.items()}
    return LifelongLearner(detector=detector or Softmax(), **{"steps": 3} | settings, **parts)


def plain(system: dict[str, str]) -> dict[str, str]:
    """The same system without its regulariser."""
    return {kind: text for kind, text in system.items() if kind != "regulariser"}


def run(graph: EvolvingGraph, one: LifelongLearner, last: int = 5) -> list[Any]:
    """Decisions of all tasks up to a time."""
    return [one.adapt(task).predict(task) for task in tasks(graph, 2, first=2) if task.time <= last]


def same(one: Any, other: Any) -> None:
    assert list(one.ids) == list(other.ids)
    assert one.classes.tolist() == other.classes.tolist()
    np.testing.assert_array_equal(one.score, other.score)


def assert_equal(one: Any, other: Any) -> None:
    """Compare tensors by name."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name])


def with_another_future(graph: EvolvingGraph, after: int, seed: int) -> EvolvingGraph:
    """Other labels (some new), words and edges of all that comes after a time; given first, so it is numbered first."""
    rng = np.random.default_rng(seed)
    late, counts = graph.times > after, graph.features.words  # type: ignore[union-attr]
    names = ["aardvark", *graph.class_names, "zebra"]
    labels, texts = list(graph.labels), []
    for row in range(len(graph)):
        part = counts.matrix[[row]]  # type: ignore[union-attr]
        words = [counts.columns[int(at)] for at in np.repeat(part.indices, part.data.astype(int))]  # type: ignore[union-attr]
        if late[row]:
            labels[row], words = names[rng.integers(len(names))], ["aaa", f"future{rng.integers(9)}", *words[:2]]
        texts.append(" ".join(words))
    source, target, _ = graph.links.ends()
    ids, old = np.array([str(one) for one in graph.ids], object), ~late[source] & ~late[target]
    edges = np.stack([source[old], target[old]], 1)
    if late.any():
        fresh = np.stack([rng.choice(np.flatnonzero(late), 300), rng.integers(0, len(graph), 300)], 1)
        edges = np.concatenate([fresh, edges])
    order = np.argsort(~late, kind="stable")
    columns = {"id": ids, "time": graph.times, "label": np.array(labels, object), "text": np.array(texts, object)}
    return EvolvingGraph.build({name: column[order] for name, column in columns.items()}, ids[edges])


@with_each_regulariser
def test_it_has_an_effect_from_the_second_task_on(system: dict[str, str]) -> None:
    without, changed = (run(GRAPH, learner(one)) for one in (plain(system), system))
    same(without[0], changed[0])
    assert any(
        not np.array_equal(one.probability, two.probability) for one, two in zip(without[1:], changed[1:], strict=True)
    )


@with_each_system
def test_the_same_seed_gives_the_same_numbers_and_another_others(system: dict[str, str]) -> None:
    first, again, other = (run(GRAPH, learner(system, seed=seed)) for seed in (0, 0, 1))
    for one, two in zip(first, again, strict=True):
        same(one, two)
    assert not np.array_equal(first[-1].score, other[-1].score)


@with_each_system
def test_shuffling_the_future_moves_no_decision(system: dict[str, str]) -> None:
    graphs = (with_another_future(GRAPH, GRAPH.last_time, 0), with_another_future(GRAPH, 4, 5))
    assert graphs[0].class_names != graphs[1].class_names
    learners = [learner(system) for _ in graphs]
    past = [run(graph, one, last=4) for graph, one in zip(graphs, learners, strict=True)]
    assert len(past[0]) == 3
    for one, two in zip(*past, strict=True):
        same(one, two)
    assert_equal(learners[0]._regularised, learners[1]._regularised)


@with_each_system
def test_permuting_class_numbers_changes_nothing(system: dict[str, str]) -> None:
    turned = np.random.default_rng(0).permutation(len(GRAPH.class_names))
    names = tuple(GRAPH.class_names[row] for row in np.argsort(turned))
    codes = np.where(GRAPH.codes >= 0, turned[GRAPH.codes], -1).astype(np.int32)
    other = replace(GRAPH, class_names=names, codes=codes)
    assert other.class_names != GRAPH.class_names
    pair = [run(graph, learner(system, MODELS[1], GDOC(0.6))) for graph in (GRAPH, other)]
    for one, two in zip(*pair, strict=True):
        same(one, two)


@with_each_system
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_loaded_learner_goes_on_as_if_it_had_not_been_saved(
    system: dict[str, str], model: Model, tmp_path: Path
) -> None:
    first, *others = tasks(GRAPH, 2, first=2)
    one = learner(system, model).adapt(first)
    for number, task in enumerate(others):  # saved and loaded before each task
        folder = tmp_path / str(number)
        one.save(folder)
        loaded = LifelongLearner.load(folder)
        assert loaded.get_params() == one.get_params()
        assert_equal(loaded._regularised, one._regularised)
        same(one.adapt(task).predict(task), loaded.adapt(task).predict(task))
        assert_equal(loaded.weights_ or {}, one.weights_ or {})
        one = loaded


@pytest.mark.parametrize("system", REGULARISERS[:5], ids=lambda system: "-".join(system.values()))
def test_a_cold_restart_starts_from_nothing(system: dict[str, str]) -> None:
    without, changed = (run(GRAPH, learner(one, restart="cold")) for one in (plain(system), system))
    for one, two in zip(without, changed, strict=True):
        same(one, two)


@pytest.mark.parametrize("system", [*REGULARISERS[:4], ICARL], ids=lambda system: "-".join(system.values()))
def test_mini_batches_are_trained_and_repeatable(system: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from evergraph.learning.memory_limit import Plan

    make = Plan.of
    monkeypatch.setattr(Plan, "of", lambda *given, **more: replace(make(*given, **more), whole=False, batch=32))
    found = [run(GRAPH, learner(system, steps=2)) for _ in range(2)]
    for one, two in zip(*found, strict=True):
        same(one, two)
