"""Attributions: exact for linear models, and what they point to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from evergraph import EvolvingGraph, LifelongLearner, Task
from evergraph.datasets import synthetic
from evergraph.detect import Softmax
from evergraph.names import MODELS, build_model
from evergraph.nn import GAT, MLP, SGC, Custom, GraphSAGE, IsoMaxOutputs

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("model", [SGC(), MLP(layers=1)], ids=["sgc", "mlp"])
def test_the_contributions_of_a_linear_model_add_up_to_its_logit(model: Any) -> None:
    graph = synthetic(vertices=200, times=5, classes=4, new_classes=1, seed=1)
    task = Task(graph, 4, 3)
    learner = LifelongLearner(model, Softmax(), steps=20, lr=0.05, inputs="words").adapt(task)
    logits = learner.outputs(task).logits
    rows = [0, 3, 7]
    bias = learner.weights_["bias" if isinstance(model, SGC) else "0.bias"]  # type: ignore[index]
    for row, found in zip(rows, learner.explain(task, rows, most=10_000), strict=True):
        # Only contributions above 0 are returned, so the sum of all is at most that of these.
        best = int(logits[row].argmax())
        margin = (logits[row] - bias)[best] - (logits[row] - bias).mean()
        assert sum(one.total for one in found) >= float(margin) - 1e-4
        assert all(one.total > 0 for one in found)
        assert [one.total for one in found] == sorted((one.total for one in found), reverse=True)


@pytest.mark.parametrize(
    "model", [GraphSAGE(hidden=16), GAT(hidden=8, heads=2), MLP(hidden=16)], ids=["sage", "gat", "mlp"]
)
def test_the_word_that_decides_comes_first(model: Any) -> None:
    rng = np.random.default_rng(0)
    n = 120
    kinds = rng.integers(0, 2, n)
    text = [f"{('alpha', 'omega')[kind]} filler{rng.integers(5)} other{rng.integers(5)}" for kind in kinds]
    graph = EvolvingGraph.build(
        {"id": np.arange(n), "time": np.arange(n) // 40, "label": [f"c{kind}" for kind in kinds], "text": text},
        rng.integers(0, n, (60, 2)),
    )
    task = Task(graph, 2, 2)
    learner = LifelongLearner(model, Softmax(), steps=150, lr=0.05, inputs="words").adapt(task)
    best = learner.outputs(task).logits.argmax(1)
    found = learner.explain(task, range(20), most=1)
    right = [
        one[0].name == {"c0": "alpha", "c1": "omega"}[learner.classes_[int(best[row])]] for row, one in enumerate(found)
    ]
    assert np.mean(right) > 0.9


def test_the_classes_of_neighbours_are_named() -> None:
    n = 150
    kinds = np.arange(n) % 3
    older = [[row, row - 50] for row in range(50, n)]
    # Without words, only the class of the one older neighbour says what a vertex is.
    labels = [f"c{kinds[row % 50]}" for row in range(n)]
    graph = EvolvingGraph.build({"id": np.arange(n), "time": np.arange(n) // 50, "label": labels}, older)
    task = Task(graph, 2, 1)
    learner = LifelongLearner(GraphSAGE(hidden=16), Softmax(), steps=150, lr=0.05).adapt(task)
    assert learner.vocabulary_ is not None
    assert learner.vocabulary_.blocks == ("classes",)
    for row, (first, *_) in enumerate(learner.explain(task, range(10), most=1)):
        assert (first.block, first.name) == ("classes", labels[100 + row])
        assert first.own > 0


def test_nothing_is_named_without_sparse_inputs() -> None:
    rng = np.random.default_rng(0)
    graph = EvolvingGraph.build(
        {"id": np.arange(30), "time": np.arange(30) // 10, "label": [f"c{row % 2}" for row in range(30)]},
        features=rng.normal(size=(30, 4)),
    )
    task = Task(graph, 2, 2)
    learner = LifelongLearner(MLP(hidden=4), Softmax(), steps=2).adapt(task)
    assert learner.explain(task, [0, 1]) == [[], []]
    assert all(value.grad_fn is None for value in (learner.weights_ or {}).values() if isinstance(value, torch.Tensor))


class _Net(torch.nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(inputs, 4)

    def forward(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x))


@pytest.mark.parametrize("name", [*MODELS, "isomax-outputs", "custom"])
def test_every_model_can_be_explained(name: str) -> None:
    graph = synthetic(vertices=120, times=4, classes=3, new_classes=0, seed=1)
    task = Task(graph, 3, 2)
    own = {"isomax-outputs": IsoMaxOutputs(MLP(hidden=4)), "custom": Custom(_Net)}
    model = own.get(name) or build_model(name)
    learner = LifelongLearner(model, Softmax(), steps=5, lr=0.05).adapt(task)
    found = learner.explain(task, [0, 5], most=2)
    assert [len(one) for one in found] == ([0, 0] if name == "most-frequent" else [2, 2])


def test_a_class_that_is_never_predicted_is_not_explained() -> None:
    graph = synthetic(vertices=200, times=5, classes=2, new_classes=0, seed=1)
    task = Task(graph, 4, 3)
    learner = LifelongLearner(MLP(layers=1), Softmax(), steps=20, lr=0.05, inputs="words").adapt(task)
    other = learner.without_classes([learner.classes_[0]])
    rows = np.flatnonzero(learner.outputs(task).logits.argmax(1).numpy() == 0)[:3]
    for before, after in zip(learner.explain(task, rows), other.explain(task, rows), strict=True):
        # What speaks for one of two classes speaks against the other.
        assert not {one.name for one in before} & {one.name for one in after}
