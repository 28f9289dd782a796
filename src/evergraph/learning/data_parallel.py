"""Train one window on several workers with Ray: each computes the gradient of its own batch, and all take the mean.

The workers are processes of Ray Train, on one machine or many, and average their gradients with torch's DDP. While they
train, they write checkpoints, from which Ray Train continues if a worker dies. Ray is an optional dependency and is
imported only to train.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from evergraph.allocation import kept_memory
from evergraph.detect import Detector
from evergraph.errors import EvergraphError, InputError
from evergraph.learning.minibatch import MiniBatches
from evergraph.learning.training import OnStep, batch_loss, check_loss, labelled_batches, step_noise, step_rate
from evergraph.nn import Batch, Model, Noise
from evergraph.nn.adam import Adam
from evergraph.nn.base import Parameters
from evergraph.nn.ops import Kernels
from evergraph.ray_connection import connect

__all__ = ["DataParallel", "LossModule", "read_checkpoint", "write_checkpoint"]

_TENSORS, _PROGRESS = "tensors.safetensors", "progress.json"


@dataclass(frozen=True)
class DataParallel:
    """Trains on several workers with Ray: one step averages the gradients of one batch from each worker.

    Pass it to `LifelongLearner` as ``trainer``. Models of layers train on mini-batches with sampled neighbours,
    `GraphSAINT` on its own samples. The same
    seed and the same number of workers give the same numbers, and one worker gives those of training without Ray on one
    thread. If a worker dies, all start again from the last checkpoint and give the same numbers as without the loss.
    Each worker uses one thread, or as many as ``OMP_NUM_THREADS`` says.

    Parameters
    ----------
    workers
        Number of processes. Each needs a core, or a GPU if the learner's device is ``"cuda"``.
    storage
        Folder for checkpoints during training, which must be shared if the workers are on several machines; by default
        one for temporary files. What is written there is removed after each task.
    checkpoint_every
        Steps between two checkpoints.
    retries
        How often workers may die during one task, and how often they may fail to start.

    Examples
    --------
    >>> from evergraph import LifelongLearner
    >>> from evergraph.nn import GraphSAINT
    >>> LifelongLearner(GraphSAINT(size=1000), trainer=DataParallel(workers=4)).trainer.workers
    4
    """

    workers: int = 2
    storage: str | Path | None = None
    checkpoint_every: int = 50
    retries: int = 3

    def __post_init__(self) -> None:
        for name, least in (("workers", 1), ("checkpoint_every", 1), ("retries", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{name} is {value!r}", fix=f"set {name} to a whole number of at least {least}")

    def check(self, model: Model) -> None:
        """Refuse a model that trains on the whole window: all workers would compute the same."""
        if not model.samples and model.hops is None:
            raise InputError(
                f"{type(model).__name__} trains on the whole window at each step, which workers cannot share",
                fix="use a model that trains on mini-batches (--model saint), or one worker",
            )

    def train(
        self,
        model: Model,
        detector: Detector,
        weights: Parameters,
        batch: Batch | MiniBatches,
        counts: Tensor,
        *,
        optimiser: Adam,
        steps: int,
        seed: tuple[int, int],
        on_step: OnStep | None = None,
    ) -> list[float]:
        """Train parameters in place, as `evergraph.learning.training.train` does; the losses are means of the workers.

        ``on_step`` is called for all steps at the end.
        """
        self.check(model)
        # A worker that reports waits until Ray Train looks, by default every two seconds.
        os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
        use_gpu = _device_of(batch).type == "cuda"
        ray = _connected(self.workers, "GPU" if use_gpu else "CPU")
        from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer

        lesson = _Lesson(
            model,
            detector,
            {name: value.cpu() for name, value in weights.items()},
            _moved(batch, "cpu"),
            counts.cpu(),
            lr=optimiser.lr,
            weight_decay=optimiser.weight_decay,
            kernels=optimiser.kernels,
            steps=steps,
            seed=seed,
            checkpoint_every=self.checkpoint_every,
            threads=torch.get_num_threads() if "OMP_NUM_THREADS" in os.environ else 1,
        )
        with tempfile.TemporaryDirectory(prefix="evergraph-train-", dir=self.storage) as folder:
            build = partial(
                TorchTrainer,
                _work,
                train_loop_config={"lesson": ray.put(lesson)},
                torch_config=TorchConfig(backend="nccl" if use_gpu else "gloo"),
                scaling_config=ScalingConfig(num_workers=self.workers, use_gpu=use_gpu),
                run_config=RunConfig(
                    name="task",
                    storage_path=folder,
                    failure_config=FailureConfig(max_failures=self.retries),
                    checkpoint_config=CheckpointConfig(num_to_keep=1),
                ),
            )
            with _fit(build, self.retries).checkpoint.as_directory() as found:
                losses = read_checkpoint(Path(found), weights, optimiser)
        for step, loss in enumerate(losses, 1):
            check_loss(loss, step, optimiser.lr)
            if on_step is not None:
                on_step(step, loss)
        return losses


def _connected(workers: int, resource: str) -> Any:
    """Return the package ray, connected to a cluster that has room for the workers."""
    ray = connect(None)
    there = int(ray.cluster_resources().get(resource, 0))
    if there < workers:  # Ray would wait for them without end
        raise InputError(
            f"{workers} workers need {workers} {resource}s, but the Ray cluster has {there}",
            fix="set fewer workers, or add machines",
        )
    return ray


def _fit(build: Callable[[], Any], retries: int) -> Any:
    """Run a trainer of Ray; an interrupt ends its workers and is raised here.

    Ray Train starts workers again that die while they train, but not those that die while they start. A new trainer
    with the same folder continues from the last checkpoint.
    """
    from ray.train import ControllerError, TrainingFailedError

    in_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    try:
        for _ in range(retries):
            with suppress(ControllerError):
                return build().fit()
        return build().fit()
    except TrainingFailedError as error:
        failures = getattr(error, "worker_failures", None) or {0: error}
        raise EvergraphError(
            f"training on several workers failed: {next(iter(failures.values()))}",
            fix="see the last lines above, and try with one worker",
        ) from error
    except SystemExit:  # Ray turns an interrupt into this
        raise KeyboardInterrupt from None
    finally:
        if in_main:
            signal.signal(signal.SIGINT, before)  # Ray leaves its own handler


# --- on the workers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Lesson:
    """What the workers need, sent once; tensors are on the CPU."""

    model: Model
    detector: Detector
    weights: Parameters
    batch: Batch | MiniBatches
    counts: Tensor
    lr: float
    weight_decay: float
    kernels: Kernels
    steps: int
    seed: tuple[int, int]
    checkpoint_every: int
    threads: int


class LossModule(torch.nn.Module):
    """A model with its parameters, and a detector's loss, as a module that returns the loss of a batch.

    DDP averages the gradients of its parameters and copies its buffers from the first worker. ``weights`` has both by
    their names in Evergraph.

    Examples
    --------
    >>> from evergraph.detect import Softmax
    >>> from evergraph.nn import MLP
    >>> weights = {"weight": torch.ones(2, 2), "bias": torch.zeros(2)}
    >>> module = LossModule(MLP(layers=1), Softmax(), weights, torch.tensor([1, 1]))
    >>> sorted(module.weights), len([*module.parameters()])
    (['bias', 'weight'], 2)
    """

    def __init__(self, model: Model, detector: Detector, weights: Parameters, counts: Tensor) -> None:
        super().__init__()
        self.model, self.detector, self.counts = model, detector, counts
        self.weights: Parameters = {}
        for number, (name, value) in enumerate(weights.items()):  # torch does not allow dots in names
            if model.trained(name):
                parameter = torch.nn.Parameter(value)
                self.register_parameter(str(number), parameter)
                self.weights[name] = parameter
            else:
                self.register_buffer(str(number), value)
                self.weights[name] = value

    def forward(self, part: Batch, noise: Noise) -> Tensor:
        """Return the loss of a batch."""
        return batch_loss(self.model, self.detector, self.weights, part, self.counts, noise)


def _work(config: dict[str, Any]) -> None:
    """Train on one worker; Ray Train starts it on all of them."""
    import ray
    from ray.train import get_checkpoint, get_context
    from ray.train.torch import get_device

    lesson: _Lesson = ray.get(config["lesson"])
    torch.set_num_threads(lesson.threads)
    rank, device = get_context().get_world_rank(), get_device()
    weights = {name: value.to(device, copy=True) for name, value in lesson.weights.items()}
    module = LossModule(lesson.model, lesson.detector, weights, lesson.counts.to(device))
    adam = Adam([*module.parameters()], lesson.lr, weight_decay=lesson.weight_decay, kernels=lesson.kernels)
    losses: list[float] = []
    if (checkpoint := get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            losses = read_checkpoint(Path(folder), module.weights, adam)
    with kept_memory():
        for _ in _steps(lesson, module, adam, _moved(lesson.batch, device), losses, rank):
            last = len(losses) == lesson.steps or not math.isfinite(losses[-1])
            if last or len(losses) % lesson.checkpoint_every == 0:
                _report(module.weights, adam, losses, first=rank == 0)


def _steps(
    lesson: _Lesson, module: LossModule, adam: Adam, batch: Batch | MiniBatches, losses: list[float], rank: int
) -> Iterator[None]:
    """Take the steps that are not done yet, and add the loss of each; end after one that is not finite."""
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    # Models may have parameters that a batch does not use. They have no gradient then, as with one process.
    parallel = DistributedDataParallel(module, find_unused_parameters=True)
    batches = labelled_batches(lesson.model, batch, lesson.seed, rank)
    # Batches of steps that are done are drawn again: a sampler may have a state beyond its random numbers.
    for part in itertools.islice(batches, len(losses), lesson.steps):
        if losses and not math.isfinite(losses[-1]):
            return
        loss = parallel(part, step_noise(part, lesson.seed, len(losses) + 1, rank))
        adam.lr = step_rate(batch, lesson.lr, len(losses) + 1, lesson.steps)
        adam.zero_grad()
        loss.backward()
        adam.step()
        total = loss.detach()
        distributed.all_reduce(total)
        losses.append(float(total / distributed.get_world_size()))
        yield


def _report(weights: Parameters, adam: Adam, losses: list[float], *, first: bool) -> None:
    """Hand a checkpoint to Ray Train; all workers must call this, and the first one writes."""
    from ray.train import Checkpoint, report

    metrics = {"step": len(losses), "loss": losses[-1]}
    if not first:
        report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), weights, adam, losses)
        report(metrics, checkpoint=Checkpoint.from_directory(folder))


# --- checkpoints -----------------------------------------------------------------------------------------------------


def write_checkpoint(folder: Path, weights: Parameters, optimiser: Adam, losses: list[float]) -> None:
    """Write parameters, the optimiser's moments and the loss of each step so far."""
    tensors = {f"weights/{name}": value for name, value in weights.items()}
    for kind in ("means", "squares"):
        tensors |= {f"{kind}/{number}": value for number, value in enumerate(getattr(optimiser, kind))}
    save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, folder / _TENSORS)
    (folder / _PROGRESS).write_text(json.dumps({"losses": losses}))


def read_checkpoint(folder: Path, weights: Parameters, optimiser: Adam) -> list[float]:
    """Read a checkpoint into parameters and optimiser, in place, and return the losses."""
    tensors = load_file(folder / _TENSORS)
    losses: list[float] = json.loads((folder / _PROGRESS).read_text())["losses"]
    with torch.no_grad():
        for name, value in weights.items():
            value.copy_(tensors[f"weights/{name}"])
        for kind in ("means", "squares"):
            for number, value in enumerate(getattr(optimiser, kind)):
                value.copy_(tensors[f"{kind}/{number}"])
    optimiser.steps = len(losses)
    return losses


def _device_of(batch: Batch | MiniBatches) -> torch.device:
    return batch.source.device if isinstance(batch, MiniBatches) else batch.graph.indptr.device


def _moved(value: Any, device: str | torch.device) -> Any:
    """Return a batch, or a part of one, on another device."""
    if isinstance(value, MiniBatches):
        return replace(value, source=replace(value.source, device=torch.device(device)))
    if isinstance(value, Tensor):
        return value.to(device)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{entry.name: _moved(getattr(value, entry.name), device) for entry in fields(value)})
    return value
