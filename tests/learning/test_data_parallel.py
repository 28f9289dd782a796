"""Data-parallel training. Tests with Ray start a cluster of their own and are slow: a task takes some 15 seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from evergraph.datasets import synthetic
from evergraph.detect import DOC, Softmax
from evergraph.errors import EvergraphError, InputError
from evergraph.evaluation.configuration import Configuration, complete_settings, differences
from evergraph.evaluation.run import run
from evergraph.graph.times import TimeAxis
from evergraph.learning.data_parallel import DataParallel, LossModule, read_checkpoint, write_checkpoint
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.minibatch import MiniBatches
from evergraph.learning.task import Task
from evergraph.learning.training import batch_loss, labelled_batches, step_noise, step_rate, train
from evergraph.nn import Batch, Custom, GraphSAGE, GraphSAINT, Model
from evergraph.nn.adam import Adam
from evergraph.nn.base import Draw, Parameters

GRAPH = synthetic(vertices=300, times=5, classes=4, new_classes=1, seed=1)
TASK = Task(GRAPH, 4, 3)
SEED = (3, 1)

pytestmark = pytest.mark.usefixtures("one_thread")


class Odd(nn.Module):
    """A module with buffers that training changes and a parameter that it does not use."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(inputs, 5), nn.BatchNorm1d(5)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.inner(x)
        return self.norm(h.index_add(0, edge_index[1], h[edge_index[0]])).relu()


@dataclass(frozen=True)
class Fatal(GraphSAINT):
    """Kills the second worker in one of its steps."""

    folder: str = ""
    killed_in: int = 8

    def forward(self, p: Parameters, batch: Batch, noise: Any) -> tuple[Tensor, Tensor]:
        if torch.distributed.get_rank() == 1:
            calls = Path(self.folder) / "calls"
            with calls.open("a") as file:
                file.write(".")
            if calls.stat().st_size == self.killed_in:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(p, batch, noise)


MODELS = {
    "walk": GraphSAINT(size=20),
    "normalised": GraphSAINT(GraphSAGE(hidden=8), sampler="node", size=40, normalise=True, coverage=2),
    "custom": GraphSAINT(Custom(Odd, project=6), size=20),
}


def lesson(model: Model) -> tuple[Parameters, Batch, Tensor]:
    """Return new weights, the batch of a task and the counts of its classes."""
    learner = LifelongLearner(model, Softmax())
    classes = tuple(learner._new_classes(TASK))
    vocabulary = learner._start(TASK).grown(TASK, classes)
    batch, counts = learner._training_batch(TASK, vocabulary, classes)
    return model.parameters(vocabulary.width, len(classes), Draw(*SEED)), batch, counts


def trained(
    how: Callable[..., list[float]], model: Model, steps: int = 10, **more: Any
) -> tuple[list[float], Parameters, Adam]:
    weights, batch, counts = lesson(model)
    adam = Adam([value for name, value in weights.items() if model.trained(name)], 0.01)
    losses = how(model, Softmax(), weights, batch, counts, optimiser=adam, steps=steps, seed=SEED, **more)
    return losses, weights, adam


def assert_same(one: tuple[list[float], Parameters, Adam], other: tuple[list[float], Parameters, Adam]) -> None:
    """Assert that two trainings gave the same numbers, bit for bit."""
    assert one[0] == other[0]
    for name, value in one[1].items():
        assert torch.equal(value, other[1][name]), name
    for mine, yours in zip(one[2].means + one[2].squares, other[2].means + other[2].squares, strict=True):
        assert torch.equal(mine, yours)


# --- without Ray -----------------------------------------------------------------------------------------------------


def test_the_first_worker_has_the_random_numbers_of_one_process_and_others_have_their_own() -> None:
    model = MODELS["walk"]
    _, batch, _ = lesson(model)

    def vertices(rank: int, seed: tuple[int, int] = SEED) -> list[list[float]]:
        return [part.x.to_dense().sum(1).tolist() for part in islice(labelled_batches(model, batch, seed, rank), 3)]  # type: ignore[union-attr]

    expected = islice(model.batches(batch, np.random.default_rng([*SEED, 0, 1])), 3)
    assert vertices(0) == [part.x.to_dense().sum(1).tolist() for part in expected]  # type: ignore[union-attr]
    assert vertices(1) != vertices(0)
    assert vertices(1) == vertices(1)
    assert vertices(2) != vertices(1)
    noise = [step_noise(batch, SEED, 5, rank).keep(100, 0.5).tolist() for rank in (0, 1, 2, 1)]
    assert noise[1] == noise[3]
    assert noise[0] != noise[1] != noise[2]


@pytest.mark.parametrize("detector", [Softmax(), DOC()], ids=["softmax", "doc"])
@pytest.mark.parametrize("name", MODELS)
def test_the_module_has_the_loss_and_the_gradients_of_the_model(name: str, detector: Any) -> None:
    model = MODELS[name]
    weights, batch, counts = lesson(model)
    part = next(labelled_batches(model, batch, SEED))
    own = {key: value.clone().requires_grad_(model.trained(key)) for key, value in weights.items()}
    expected = batch_loss(model, detector, own, part, counts, step_noise(batch, SEED, 1))
    expected.backward()  # type: ignore[no-untyped-call]
    module = LossModule(model, detector, weights, counts)
    found = module(part, step_noise(batch, SEED, 1))
    found.backward()
    assert found.item() == expected.item()
    assert len([*module.parameters()]) + len([*module.buffers()]) == len(weights)
    for key, value in own.items():
        assert (value.grad is None) == (module.weights[key].grad is None)
        if value.grad is not None:
            assert torch.equal(value.grad, module.weights[key].grad)
        assert torch.equal(value, module.weights[key])  # buffers of a custom module change in both
        assert module.weights[key].data_ptr() == weights[key].data_ptr()


@given(
    losses=st.lists(st.floats(width=32), min_size=1, max_size=5),
    shapes=st.lists(st.lists(st.integers(0, 3), max_size=2), min_size=1, max_size=4),
    trained=st.data(),
)
def test_checkpoints_restore_every_bit(
    tmp_path_factory: pytest.TempPathFactory, losses: list[float], shapes: list[list[int]], trained: Any
) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")
    weights = {f"part.{number}": torch.randn(shape) for number, shape in enumerate(shapes)}
    weights["buffer.count"] = torch.tensor(len(losses))
    chosen = trained.draw(st.sets(st.sampled_from(sorted(weights.keys() - {"buffer.count"}))))

    def adam(of: Parameters) -> Adam:
        return Adam([value for name, value in of.items() if name in chosen], 0.1, kernels="torch")

    one = adam(weights)
    for value in one.parameters:
        value.grad = torch.randn(value.shape)
    for _ in losses:
        one.step()
    write_checkpoint(folder, weights, one, losses)
    assert {path.name for path in folder.iterdir()} == {"tensors.safetensors", "progress.json"}  # no pickle
    fresh = {name: torch.zeros_like(value) for name, value in weights.items()}
    other = adam(fresh)
    found = read_checkpoint(folder, fresh, other)
    np.testing.assert_array_equal(found, losses)
    assert other.steps == one.steps
    assert_same(([], weights, one), ([], fresh, other))


def test_models_that_read_the_whole_window_are_refused() -> None:
    with pytest.raises(InputError, match=r"Custom trains on the whole window .*--model saint"):
        LifelongLearner(Custom(Odd, project=6), trainer=DataParallel())
    learner = LifelongLearner(GraphSAINT(), trainer=DataParallel())
    with pytest.raises(InputError, match="--model saint"):
        learner.set_params(model=Custom(Odd, project=6))
    assert learner.model == GraphSAINT()
    with pytest.raises(InputError, match="--model saint"):
        Configuration(Custom(Odd, project=6), workers=2)


def test_models_of_layers_train_on_mini_batches() -> None:
    learner = LifelongLearner(GraphSAGE(hidden=8), Softmax(), trainer=DataParallel())
    classes = tuple(learner._new_classes(TASK))
    batch, _ = learner._training_batch(TASK, learner._start(TASK).grown(TASK, classes), classes)
    assert isinstance(batch, MiniBatches)
    one, other, again = (next(labelled_batches(GraphSAGE(), batch, SEED, rank)) for rank in (0, 1, 0))
    assert torch.equal(one.graph.indices, again.graph.indices)
    assert not torch.equal(one.graph.indices, other.graph.indices)
    assert [step_rate(batch, 0.01, step, 4) for step in (1, 3)] == [0.02, 0.01]
    assert step_rate(one, 0.01, 3, 4) == 0.01


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"workers": True}, {"checkpoint_every": 0}, {"retries": -1}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))} is"):
        DataParallel(**wrong)
    with pytest.raises(InputError, match="trainer is 2"):
        LifelongLearner(trainer=2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="workers is 0"):
        Configuration(workers=0)


def test_a_configuration_describes_its_workers_and_old_ones_had_one() -> None:
    one, two = (Configuration(GraphSAINT(), workers=workers).described(TimeAxis()) for workers in (1, 2))
    assert two["workers"] == 2
    old = {name: value for name, value in one.items() if name != "workers"}
    assert complete_settings(old)["workers"] == 1
    assert differences(old, one) == ""
    assert differences(old, two) == "workers is 1 there and 2 here"


def test_the_trainer_is_an_argument_that_is_not_saved(tmp_path: Path) -> None:
    learner = LifelongLearner(GraphSAINT(), Softmax(), steps=2).adapt(TASK)
    learner.set_params(trainer=DataParallel(4))
    assert type(learner)(**learner.get_params()).trainer == DataParallel(4)
    learner.save(tmp_path)
    assert LifelongLearner.load(tmp_path).trainer is None


def test_seeds_and_windows_are_not_shared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evergraph.evaluation.run.import_ray", lambda _: None)
    with pytest.raises(InputError, match="jobs and workers are both above 1"):
        run(Configuration(GraphSAINT(), workers=2), GRAPH, [0, 1], jobs=2)


def test_without_ray_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for use in (
        lambda: run(Configuration(GraphSAINT(), workers=2), GRAPH, out=tmp_path / "run"),
        lambda: LifelongLearner(GraphSAINT(), Softmax(), trainer=DataParallel()).adapt(TASK),
    ):
        with pytest.raises(InputError, match=r"Ray is not installed\. Run: pip install 'evergraph\[ray\]'"):
            use()
    assert not (tmp_path / "run").exists()


# --- with Ray --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(ray: Any) -> Iterator[Any]:
    """A cluster whose workers know the classes of this file."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield ray
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore")  # of Ray
class TestWithRay:
    def test_two_workers_average_the_gradients_of_their_batches(self) -> None:
        model = MODELS["walk"]
        weights, batch, counts = lesson(model)
        for value in weights.values():
            value.requires_grad_()
        losses = []
        for rank in (0, 1):
            part = next(labelled_batches(model, batch, SEED, rank))
            losses.append(batch_loss(model, Softmax(), weights, part, counts, step_noise(batch, SEED, 1, rank)))
        torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]
        (loss,), _, adam = trained(DataParallel(2).train, model, steps=1)
        assert loss == pytest.approx(float(torch.stack(losses).mean()), rel=1e-6)
        # After the first step, Adam's mean is a tenth of the gradient.
        for value, mean in zip(weights.values(), adam.means, strict=True):
            assert value.grad is not None
            assert float((mean * 10 - value.grad).abs().max()) <= 1e-6 * float(value.grad.abs().max())

    @pytest.mark.parametrize("name", MODELS)
    def test_one_worker_gives_the_numbers_of_one_process(self, name: str) -> None:
        steps: list[tuple[int, float]] = []
        found = trained(DataParallel(1).train, MODELS[name], on_step=lambda *step: steps.append(step))
        assert_same(found, trained(train, MODELS[name]))
        assert steps == [*enumerate(found[0], 1)]

    def test_the_same_seed_gives_the_same_numbers(self) -> None:
        # Batch normalisation and a parameter without gradient included.
        once, again = (trained(DataParallel(2).train, MODELS["custom"]) for _ in range(2))
        assert_same(once, again)
        assert once[0] != trained(train, MODELS["custom"])[0]
        assert torch.equal(once[1]["module.unused"], torch.ones(2))

    def test_after_a_worker_was_killed_training_ends_with_the_same_numbers(self, tmp_path: Path) -> None:
        for name in ("killed", "whole"):
            (tmp_path / name).mkdir()
        how = DataParallel(2, storage=tmp_path, checkpoint_every=3, retries=1).train
        killed = trained(how, Fatal(size=20, folder=str(tmp_path / "killed"), killed_in=8))
        whole = trained(how, Fatal(size=20, folder=str(tmp_path / "whole"), killed_in=0))
        assert_same(killed, whole)
        # Steps 1 to 8, and then those after the checkpoint of step 6, or of step 3 if Ray had not seen the later one.
        assert (tmp_path / "killed" / "calls").stat().st_size in (8 + 4, 8 + 7)
        assert (tmp_path / "whole" / "calls").stat().st_size == 10
        assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "whole"]  # the checkpoints are removed

    def test_a_worker_that_dies_too_often_is_an_error(self, tmp_path: Path) -> None:
        before = signal.getsignal(signal.SIGINT)
        with pytest.raises(EvergraphError, match="training on several workers failed"):
            trained(DataParallel(2, retries=0).train, Fatal(size=20, folder=str(tmp_path), killed_in=1))
        assert signal.getsignal(signal.SIGINT) is before

    def test_more_workers_than_cores_are_refused(self) -> None:
        with pytest.raises(InputError, match="3 workers need 3 CPUs, but the Ray cluster has 2"):
            trained(DataParallel(3).train, MODELS["walk"])

    def test_a_learner_that_workers_trained_loads_without_ray(self, tmp_path: Path) -> None:
        model = GraphSAINT(size=20)
        learner = LifelongLearner(model, Softmax(), steps=3, trainer=DataParallel(2)).adapt(TASK)
        assert len(learner.losses_) == 3
        learner.save(tmp_path)
        code = (
            "import sys; sys.modules['ray'] = None\n"
            "from evergraph import LifelongLearner\n"
            f"print(repr(LifelongLearner.load({str(tmp_path)!r}).losses_))"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == repr(learner.losses_)

    def test_a_stopped_run_continues_with_its_workers(self, tmp_path: Path) -> None:
        configuration = Configuration(
            GraphSAINT(size=20), Softmax(), history=2, steps=2, first=3, inputs="words", workers=2
        )
        whole = run(configuration, GRAPH, out=tmp_path)
        results = tmp_path / "results.jsonl"
        lines = results.read_text().splitlines(keepends=True)
        assert len(lines) == 2
        assert whole.configuration["workers"] == 2
        results.write_text(lines[0])
        again = run(configuration, GRAPH, out=tmp_path)
        assert again.rows[0][1].loss == whole.rows[0][1].loss
        with pytest.raises(InputError, match="workers is 2 there and 1 here"):
            run(
                Configuration(GraphSAINT(size=20), Softmax(), history=2, steps=2, first=3, inputs="words"),
                GRAPH,
                out=tmp_path,
            )
