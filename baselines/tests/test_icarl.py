"""iCaRL against scikit-learn's nearest centroid, and against GraphSAGE, whose training it shares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestCentroid

from evergraph import InputError, LifelongLearner, names, tasks
from evergraph.datasets import synthetic
from evergraph.detect import GDOC, Softmax
from evergraph.learning.memory import ClassMean
from evergraph.learning.memory_limit import Plan
from evergraph.learning.training import default_rate
from evergraph.names import build_detector, described, rebuilt
from evergraph.nn import (
    Batch,
    Draw,
    GraphSAGE,
    GraphSAINT,
    Labels,
    Neighbours,
    Noise,
    Readout,
    carry_over,
    count_parameters,
)
from evergraph.nn.base import Parameters
from evergraph_baselines.icarl import ICaRL
from evergraph_baselines.regularisers import LwF

pytestmark = pytest.mark.usefixtures("one_thread")

VERTICES, WORDS, CLASSES = 60, 9, 4
MODEL = ICaRL(hidden=7)
GRAPH = synthetic(vertices=200, times=7, classes=4, new_classes=2, seed=1)
SETTINGS: dict[str, Any] = {"detector": Softmax(), "steps": 4, "inputs": "words", "memory": ClassMean(20)}


@pytest.fixture
def batch() -> Batch:
    """A random graph; every third vertex has no label."""
    rng = np.random.default_rng(5)
    pairs = rng.integers(0, VERTICES, (80, 2))
    matrix = sparse.coo_array((np.ones(80), pairs.T), shape=(VERTICES, VERTICES)).tocsr()
    matrix = sparse.csr_array(((matrix + matrix.T) > 0).astype(np.int8))
    matrix.setdiag(0)
    matrix.eliminate_zeros()
    targets = torch.from_numpy(rng.integers(0, CLASSES, VERTICES))
    targets[::3] = -1
    x = torch.from_numpy(rng.normal(size=(VERTICES, WORDS)).astype(np.float32))
    return Batch(x, Neighbours.of(matrix.indptr, matrix.indices, kernels="torch"), VERTICES, targets)


def vectors_of(p: Parameters, batch: Batch) -> NDArray[np.float64]:
    """The input of the output layer, with dense matrices, scaled to length 1."""
    near = np.eye(VERTICES)
    near[tuple(batch.graph.edge_index.numpy())] = 1
    near /= near.sum(1, keepdims=True)
    own, other = (p[f"0.{end}.weight"].double().numpy() for end in ("self", "neighbours"))
    bias = (p["0.self.bias"] + p["0.neighbours.bias"]).double().numpy()
    x = np.asarray(batch.x, np.float64)
    h = np.maximum(x @ own + near @ x @ other + bias, 0)
    found = np.concatenate([h, near @ h], 1)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def labels(p: Parameters, batch: Batch, only: int = CLASSES, model: ICaRL = MODEL) -> Labels:
    """The labels of a batch, without those of the last classes."""
    rows = torch.nonzero((batch.targets >= 0) & (batch.targets < only)).flatten()
    counts = torch.bincount(batch.targets[rows], minlength=CLASSES)
    hidden = model.predictor.forward(p, batch, None)[1][rows]
    targets = batch.targets[rows].numpy()
    return Labels(counts, 1, targets, np.zeros(len(rows), np.int64), lambda places: hidden[torch.from_numpy(places)])


# --- the means -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_it_predicts_the_nearest_centroid_of_scikit_learn(batch: Batch, seed: int) -> None:
    p = MODEL.parameters(WORDS, CLASSES, Draw(seed))
    found = MODEL.finish(p, labels(p, batch))
    x, targets = vectors_of(p, batch), batch.targets.numpy()
    reference = NearestCentroid().fit(x[targets >= 0], targets[targets >= 0])
    reference.centroids_ /= np.linalg.norm(reference.centroids_, axis=1, keepdims=True)
    np.testing.assert_allclose(found["means"], reference.centroids_, atol=1e-5)
    logits, hidden = MODEL.predictor.forward(found, batch, None)
    np.testing.assert_allclose(hidden, x, atol=1e-5)
    distances = ((x[:, None] - reference.centroids_) ** 2).sum(2)
    np.testing.assert_allclose(logits, 1 - distances / 2, atol=1e-5)
    assert logits.argmax(1).tolist() == reference.predict(x).tolist()
    assert len(set(logits.argmax(1).tolist())) == CLASSES


def test_only_the_means_change_and_a_class_without_labels_keeps_its_own(batch: Batch) -> None:
    p = MODEL.parameters(WORDS, CLASSES, Draw(1))
    assert not p["means"].any()
    first = MODEL.finish(p, labels(p, batch))
    assert all(torch.equal(first[name], value) for name, value in p.items() if name != "means")
    moved = first | {"0.self.weight": first["0.self.weight"] + 0.3}
    second = MODEL.finish(moved, labels(moved, batch, only=2))
    assert torch.equal(second["means"][2:], first["means"][2:])
    assert (second["means"][:2] != first["means"][:2]).any(1).all()
    torch.testing.assert_close(second["means"].norm(dim=1), torch.ones(CLASSES))


def test_a_new_class_gets_a_row_and_is_not_predicted_before_it_has_a_vertex(batch: Batch) -> None:
    p = MODEL.parameters(WORDS, CLASSES, Draw(1))
    found = MODEL.finish(p, labels(p, batch))
    grown = carry_over(found, MODEL.parameters(WORDS, CLASSES + 1, Draw(2)))
    assert torch.equal(grown["means"][:CLASSES], found["means"])
    logits = MODEL.predictor.forward(grown, batch, None)[0]
    assert (logits[:, CLASSES] == 0).all()
    assert (logits[:, CLASSES] <= logits[:, :CLASSES].amin(1)).all(), "no vector is farther than a right angle"


def test_many_vertices_are_added_in_blocks(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    p = MODEL.parameters(WORDS, CLASSES, Draw(1))
    whole = MODEL.finish(p, labels(p, batch))
    monkeypatch.setattr("evergraph_baselines.icarl._BLOCK", 7)
    torch.testing.assert_close(MODEL.finish(p, labels(p, batch)), whole)


# --- in a learner ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded(ICaRL):
    """Notes the labels that it is given, and refuses to predict with the output layer."""

    def finish(self, p: Parameters, labels: Labels) -> Parameters:
        seen.append((labels.times, labels.targets, labels.vectors(np.arange(len(labels.targets))).numpy()))
        return super().finish(p, labels)

    def readout(self, p: Parameters, batch: Batch, noise: Noise | None) -> Readout:
        assert noise is not None, "only training reads the output layer"
        return super().readout(p, batch, noise)


seen: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []


@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")  # a hidden unit may be 0 for all vertices
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "mini-batches"])
def test_a_learner_predicts_the_nearest_mean_of_window_and_memory(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen.clear()
    make = Plan.of
    monkeypatch.setattr(Plan, "of", lambda *given, **more: replace(make(*given, **more), whole=whole, batch=32))
    one = LifelongLearner(Recorded(hidden=8), **SETTINGS | {"detector": GDOC(0.5, alpha=3.0)})  # which is fitted, too
    for task in tasks(GRAPH, 1, first=2):
        one.adapt(task)
        times, targets, vectors = seen[-1]
        window = task.graph.times[task.training.rows]
        assert len(times) == len(one.kept_.ids) + np.count_nonzero(task.targets >= 0)
        assert (times < window[0]).sum() == len(one.kept_.ids) == (20 if task.time > 2 else len(one.kept_.ids))
        outputs = one.outputs(task)
        assert outputs.hidden is not None
        reference = NearestCentroid().fit(vectors, targets)
        reference.centroids_ /= np.linalg.norm(reference.centroids_, axis=1, keepdims=True)
        best = reference.predict(outputs.hidden.numpy())
        assert one.predict(task).best.tolist() == np.array(one.classes_, object)[best].tolist()
        assert one.explain(task, [0])
    assert len(one.classes_) == len(GRAPH.class_names)


def test_training_is_that_of_graph_sage_also_with_distillation() -> None:
    for regulariser in (None, LwF()):
        pair = [LifelongLearner(model, regulariser=regulariser, **SETTINGS) for model in (MODEL, GraphSAGE(hidden=7))]
        for task in tasks(GRAPH, 1, first=2):
            weights = [one.adapt(task).weights_ or {} for one in pair]
            assert pair[0].losses_ == pair[1].losses_
            assert weights[0].keys() - weights[1].keys() == {"means"}
            assert all(torch.equal(weights[0][name], value) for name, value in weights[1].items())
        assert not torch.equal(pair[0].outputs(task).logits, pair[1].outputs(task).logits)


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("level", [25, 50, 75, 100])
def test_the_default_learning_rate_is_that_of_graph_sage(warm: bool, level: int) -> None:
    for detector in (Softmax(), GDOC(0.5)):
        rates = {default_rate(model, detector, warm=warm, level=level) for model in (MODEL, GraphSAGE())}
        assert len(rates) == 1
    assert default_rate(MODEL, Softmax(), warm=True, level=25) == 0.001


def test_mini_batches_and_whole_windows_give_the_same_means(monkeypatch: pytest.MonkeyPatch) -> None:
    task = next(iter(tasks(GRAPH, 2, first=4)))
    one = LifelongLearner(MODEL, **SETTINGS).adapt(task)
    assert one.weights_ is not None
    assert one.vocabulary_ is not None
    make = Plan.of
    monkeypatch.setattr(Plan, "of", lambda *given, **more: replace(make(*given, **more), whole=False, batch=32))
    batch, counts = one._training_batch(task, one.vocabulary_, one.classes_)
    data = one._data(task, one.kept_, batch, counts, one.vocabulary_.width)
    found = data.labels(MODEL, one.weights_, *data.labelled)
    torch.testing.assert_close(MODEL.finish(one.weights_, found)["means"], one.weights_["means"])


def test_it_can_be_trained_on_samples_and_as_an_auxiliary_model() -> None:
    task = next(iter(tasks(GRAPH, 2, first=4)))
    sampled = LifelongLearner(GraphSAINT(MODEL, size=0.5), **SETTINGS).adapt(task)
    assert sampled.weights_ is not None
    assert sampled.weights_["means"].any(1).all()
    assert sampled.outputs(task).logits.abs().max() <= 1 + 1e-6
    doubled = LifelongLearner(MODEL, **SETTINGS | {"detector": build_detector("auxiliary")}).adapt(task)
    assert doubled.auxiliary_weights_ is not None
    assert doubled.auxiliary_weights_["means"].any(1).all()
    auxiliary = doubled.outputs(task).auxiliary_logits
    assert auxiliary is not None
    assert auxiliary.abs().max() <= 1 + 1e-6


def test_it_is_registered_described_and_rebuilt() -> None:
    assert names.build("model", "icarl:hidden=8") == ICaRL(hidden=8)
    assert rebuilt(described(MODEL), "model") == MODEL
    assert count_parameters(MODEL, 5, 3) == count_parameters(GraphSAGE(hidden=7), 5, 3), "no step trains the means"
    with pytest.raises(InputError, match="layers is 1"):
        ICaRL(layers=1)
