"""Training in mini-batches and prediction in blocks, against the whole window; and the memory limit that chooses."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from evergraph import EvolvingGraph, LifelongLearner
from evergraph.datasets import synthetic
from evergraph.detect import GDOC, Detector, Softmax
from evergraph.errors import InputError
from evergraph.graph.blocks import Blocks
from evergraph.graph.pages import _map_of, give_back_pages
from evergraph.graph.past import past_of
from evergraph.learning import memory_limit
from evergraph.learning.inference import BlockSizes, exact_outputs
from evergraph.learning.memory_limit import Plan, parse_size
from evergraph.learning.minibatch import MiniBatches, WindowSource, prefetched
from evergraph.learning.task import Task, tasks
from evergraph.learning.training import batch_loss, step_noise
from evergraph.names import build_detector
from evergraph.nn import GAT, GCN, MLP, SGC, Batch, Custom, Draw, GraphSAGE, GraphSAINT, IsoMaxOutputs, JKNet, Model
from evergraph.nn.sampling import EVERY, Edges, squared_norms

MODELS = [
    GraphSAGE(hidden=8, dropout=0.0),
    GraphSAGE(hidden=4, layers=3, dropout=0.0),
    GraphSAGE(layers=1, dropout=0.0),
    JKNet(hidden=6, dropout=0.0),
    GCN(hidden=6, dropout=0.0),
    SGC(),
    GAT(hidden=4, heads=2, dropout=0.0),
    MLP(hidden=6, dropout=0.0),
    GraphSAINT(GraphSAGE(hidden=4, dropout=0.0)),
    IsoMaxOutputs(GraphSAGE(hidden=4, dropout=0.0), width=4),
]
GRAPH = synthetic(vertices=600, times=6, classes=4, new_classes=1, words=200, seed=1)


def a_task(graph: EvolvingGraph = GRAPH, history: int | str = 3) -> Task:
    return [*tasks(graph, history)][-1]  # type: ignore[arg-type]


class Sum(torch.nn.Module):
    """Adds up neighbours."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(inputs, 4)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        h: torch.Tensor = self.inner(x)
        return h.index_add(0, edge_index[1], h[edge_index[0]])


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Train in mini-batches of 64 vertices, although these windows would fit into memory."""
    of = Plan.of
    monkeypatch.setattr(Plan, "of", lambda limit, *more, **_: of(limit, *more, sampled=limit is not None))
    monkeypatch.setattr(memory_limit, "BATCH", 64)
    return {"memory_limit": 10**12}


def parts_of(
    model: Model, task: Task, **settings: Any
) -> tuple[LifelongLearner, Any, torch.Tensor, dict[str, torch.Tensor]]:
    learner = LifelongLearner(model, Softmax(), **settings)
    classes = tuple(learner._new_classes(task))
    vocabulary = learner._start(task).grown(task, classes)
    batch, counts = learner._training_batch(task, vocabulary, classes)
    return learner, batch, counts, model.parameters(vocabulary.width, len(classes), Draw(3))


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_batch_of_everything_has_the_loss_and_gradients_of_full_batch(model: Model, little: dict[str, Any]) -> None:
    task = a_task()
    _, whole, counts, weights = parts_of(model, task)
    _, small, same, _ = parts_of(model, task, **little)
    assert isinstance(whole, Batch)
    assert isinstance(small, MiniBatches)
    assert torch.equal(counts, same)
    everything = MiniBatches(small.source, small.targets, len(small.labelled), (EVERY,) * (model.hops or 0), ahead=0)
    found = []
    for batch in (whole, next(everything.batches((0, 0)))):
        p = {name: value.clone().requires_grad_() for name, value in weights.items()}
        loss = batch_loss(model, Softmax(), p, batch, counts, step_noise(batch, (0, 0), 1))
        loss.backward()  # type: ignore[no-untyped-call]
        found.append((loss.detach(), *(value.grad for value in p.values())))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "blocks", [BlockSizes(), BlockSizes(entries=40, in_memory=0)], ids=["one block", "many, on disk"]
)
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_prediction_in_blocks_equals_that_of_the_whole_window(model: Model, blocks: Blocks) -> None:
    task = a_task()
    learner, batch, _, weights = parts_of(model, task)
    rows = np.array([0, 5, 6, 40, len(task.window) - 1], np.int32)
    with torch.no_grad():
        everything = torch.empty(0, dtype=torch.int64)
        logits, hidden = model.forward(weights, Batch(batch.x, batch.graph, len(batch.graph), everything), None)
    classes = tuple(learner._new_classes(task))
    source = learner._source(task, task.window, learner._start(task).grown(task, classes), classes)
    found = exact_outputs(model, weights, source, rows, blocks)
    torch.testing.assert_close(found[0], logits[rows], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[1], hidden[rows], rtol=1e-5, atol=1e-6)


def test_an_epoch_has_each_labelled_vertex_once_and_the_thread_changes_nothing(little: dict[str, Any]) -> None:
    _, small, _, _ = parts_of(GraphSAGE(hidden=4), a_task(), **little)
    alone = MiniBatches(small.source, small.targets, 50, (3, 2), ahead=0)
    ahead = MiniBatches(small.source, small.targets, 50, (3, 2), ahead=3)
    ones, others = ([*islice(batches.batches((1, 2)), 2 * alone.per_epoch)] for batches in (alone, ahead))
    for one, other in zip(ones, others, strict=True):
        assert torch.equal(one.graph.indices, other.graph.indices)
        assert torch.equal(one.targets, other.targets)
        assert torch.equal(one.x.to_dense(), other.x.to_dense())  # type: ignore[union-attr]
    counts = torch.cat([one.targets for one in ones[: alone.per_epoch]]).bincount()
    assert counts.tolist() == np.bincount(small.targets[small.targets >= 0]).tolist()
    first = next(alone.batches((1, 3)))
    assert not torch.equal(first.graph.indices, ones[0].graph.indices)


def test_errors_of_the_thread_are_raised_and_no_thread_is_left() -> None:
    def make(number: int) -> int:
        if number == 2:
            raise InputError("no more", fix="stop")
        return number

    batches = prefetched(make, 2)
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(InputError, match="no more"):
        next(batches)
    other = prefetched(lambda number: number, 2)
    assert next(other) == 0
    other.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("evergraph-batches")]


@pytest.mark.parametrize(
    "detector", [Softmax(), GDOC(0.5), build_detector("auxiliary")], ids=["none", "gdoc", "auxiliary"]
)
@pytest.mark.parametrize("model", [GraphSAGE(hidden=8), GAT(hidden=4, heads=2), MLP(hidden=8)], ids=repr)
def test_a_run_in_mini_batches_learns_and_is_repeatable(
    model: Model, detector: Detector, little: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    task = a_task()
    found = []
    with caplog.at_level(logging.INFO, "evergraph"):
        for _ in range(2):
            seen: list[int] = []
            learner = LifelongLearner(model, detector, steps=30, lr=0.01, **little)
            learner.adapt(task, lambda step, _, seen=seen: seen.append(step))
            found.append(learner.predict(task))
    assert len(learner.losses_) == 120
    assert seen[-1] == (60 if detector.requires.auxiliary is not None else 30)
    assert learner.losses_[-1] < learner.losses_[0]
    assert (found[0].score == found[1].score).all()
    assert (found[0].best == found[1].best).all()
    assert (found[0].best == task.truth).mean() > 0.5
    assert "it is trained in mini-batches of 64 vertices with" in caplog.text


def test_the_future_changes_no_decision(little: dict[str, Any]) -> None:
    time = GRAPH.last_time - 1
    past = past_of(GRAPH, time)
    decisions = [
        LifelongLearner(GraphSAGE(hidden=8), Softmax(), steps=10, **little).adapt(task).predict(task)
        for task in (Task(GRAPH, time, 3), Task(past, time, 3))
    ]
    assert decisions[0].best.tolist() == decisions[1].best.tolist()
    np.testing.assert_array_equal(decisions[0].probability, decisions[1].probability)


def test_the_limit_is_a_setting_that_is_not_saved(tmp_path: Path, little: dict[str, Any]) -> None:
    task = a_task()
    learner = LifelongLearner(GraphSAGE(hidden=8), Softmax(), steps=5, **little).adapt(task)
    learner.save(tmp_path / "learner")
    again = LifelongLearner.load(tmp_path / "learner")
    assert again.memory_limit is None
    assert learner.get_params()["memory_limit"] == 10**12
    assert learner.predict(task).best.tolist() == again.predict(task).best.tolist()


@pytest.mark.parametrize("value", ["", "lots", "-1GB", "0", 0, -5, True, 1.5, "4 apples", "iB"])
def test_a_limit_that_is_not_a_size_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"the memory limit is .*800MB"):
        LifelongLearner(memory_limit=value)


def test_sizes() -> None:
    assert [parse_size(text) for text in ("4GB", "4g", "512MiB", "1.5k", "12")] == [
        4 * 10**9,
        4 * 10**9,
        2**29,
        1500,
        12,
    ]


def a_source(model: Model, vertices: int) -> tuple[WindowSource, int]:
    task = a_task(synthetic(vertices=vertices, times=3, classes=4, new_classes=0, words=2000, seed=1), "full")
    learner = LifelongLearner(model, Softmax())
    classes = tuple(learner._new_classes(task))
    return learner._source(task, task.window, learner._start(task).grown(task, classes), classes), len(classes)


def test_the_plan_follows_from_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "resident", lambda: 10**8)
    model = GraphSAGE(hidden=32)
    source, classes = a_source(model, 60_000)

    def plan(limit: int | None) -> Plan:
        return Plan.of(limit, model, source.reader, source.edges, classes)

    assert plan(None).whole
    needed = plan(None).needed
    assert plan(needed).whole
    mini = plan(needed - 1)
    assert not mini.whole
    assert mini.limit == needed - 1
    assert 16 <= plan(needed - 10**7).batch <= mini.batch <= memory_limit.BATCH
    assert plan(needed - 10**7).blocks.entries <= mini.blocks.entries
    with pytest.raises(
        InputError, match=r"the memory limit of 90 MB is too small: the process has 100 MB.*at least 1\d\d MB"
    ):
        plan(9 * 10**7)


def test_pages_of_a_saved_graph_are_given_back(tmp_path: Path) -> None:
    graph = synthetic(vertices=20_000, times=3, classes=4, new_classes=0, seed=1)
    graph.save(tmp_path / "graph")
    opened = EvolvingGraph.open(tmp_path / "graph")
    assert opened.features.words is not None
    before = float(opened.features.words.data.sum())
    pages = {mapped for array in (opened.links.indices, opened.features.words.data) if (mapped := _map_of(array))}
    assert len(pages) == 2
    give_back_pages(opened, 0)
    assert float(opened.features.words.data.sum()) == before
    grown = opened.append({"id": ["new"], "time": [3], "text": ["w1"]}, [["new", str(opened.ids[0])]])
    assert grown.features.words is not None
    assert isinstance(grown.features.words.indices, Blocks)
    give_back_pages(grown, 0)
    assert float(np.asarray(grown.features.words.data).sum()) == before + 1


def test_a_model_that_reads_the_whole_window_is_refused_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "resident", lambda: 10**8)
    source, classes = a_source(MLP(), 1_000)
    with pytest.raises(InputError, match="reads the whole window at each step"):
        Plan.of(10**7, Custom(Sum), source.reader, source.edges, classes)


@pytest.mark.parametrize("sampler", ["walk", "node", "edge"])
def test_subgraphs_are_those_of_the_window(sampler: Any) -> None:
    graph = synthetic(vertices=300, times=6, classes=3, new_classes=0, seed=2)
    window = graph.window(2, 5)
    near = window.links.matrix().toarray() | np.eye(len(window), dtype=bool)
    model = GraphSAINT(sampler=sampler, size=30)
    draw = model.subgraphs(Edges.of(window), np.arange(0, len(window), 3), 60, torch.device("cpu"), "numba")
    sizes = set()
    for seed in range(5):
        part = draw(np.random.default_rng(seed))
        assert (np.diff(part.vertices) > 0).all()
        shape, ones = (len(part.vertices),) * 2, np.ones(len(part.graph.indices), bool)
        found = sparse.csr_array((ones, part.graph.indices.numpy(), part.graph.indptr.numpy()), shape=shape)
        np.testing.assert_array_equal(found.toarray(), near[np.ix_(part.vertices, part.vertices)])
        sizes.add(len(part.vertices))
    assert max(sizes) <= 60
    assert len(sizes) > 1


def test_the_sampler_of_vertices_follows_their_norms() -> None:
    window = synthetic(vertices=60, times=3, classes=2, new_classes=0, seed=2).window(0, 2)
    edges = Edges.of(window)
    mean = window.links.matrix().toarray() + np.eye(len(window))
    mean /= mean.sum(1, keepdims=True)
    expected = (mean**2).sum(0)
    found = squared_norms(edges, edges.degrees(np.arange(len(edges))))
    np.testing.assert_allclose(found, expected)


def test_saint_draws_its_own_samples(little: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    task = a_task()
    with caplog.at_level(logging.INFO, "evergraph"):
        learner = LifelongLearner(GraphSAINT(GraphSAGE(hidden=8), size=50), Softmax(), steps=30, lr=0.02, **little)
        decisions = learner.adapt(task).predict(task)
    assert len(learner.losses_) == 30
    assert "in samples of at most" in caplog.text
    assert (decisions.best == task.truth).mean() > 0.5


_MEASURE = """
import sys, torch
from pathlib import Path
torch.set_num_threads(1)
from evergraph import LifelongLearner, tasks
from evergraph.datasets import synthetic
from evergraph.detect import Softmax
from evergraph.learning import learner as module
from evergraph.names import build_model
graph = synthetic(vertices=60_000, times=3, classes=8, degree=12.0, words=4_000, words_per_vertex=20, new_classes=0)
plans = []
of = module.Plan.of
class Recorded(module.Plan):
    @classmethod
    def of(cls, *arguments, **more):
        plans.append(of(*arguments, **more))
        return plans[-1]
module.Plan = Recorded
(task,) = tasks(graph, "full", first=2)
LifelongLearner(build_model(sys.argv[1]), Softmax(), steps=2).adapt(task)
peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
print(plans[0].needed, peak)
"""


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sage", "gat", "gcn", "mlp"])
def test_the_estimate_is_near_the_peak(model: str) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    found = subprocess.run([sys.executable, "-c", _MEASURE, model], capture_output=True, text=True, check=True)
    needed, peak = map(int, found.stdout.split()[-2:])
    assert 0.75 < needed / peak < 1.5, (needed, peak)
