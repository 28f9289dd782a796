"""Compare training with Ray on several workers with one process: gradients, accuracy, seconds, and a killed worker.

    python scripts/data_parallel.py metamath --seeds 0-2

Each part uses the last task of the graph and GraphSAINT with its default settings. It starts a Ray cluster here.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import ray
import torch
from torch import distributed

from evergraph.cli.common import parse_seeds
from evergraph.datasets import load
from evergraph.detect import Softmax
from evergraph.evaluation.metrics import evaluate
from evergraph.learning.data_parallel import DataParallel
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.task import Task, tasks
from evergraph.learning.training import batch_loss, labelled_batches, step_noise
from evergraph.nn import GraphSAINT


class Gradients(DataParallel):
    """Compares the gradient of the first step with that of one process for the same batches."""

    def train(self, model: Any, detector: Any, weights: Any, batch: Any, counts: Any, **options: Any) -> list[float]:
        """Train, and print the largest difference."""
        ours = {name: value.clone().requires_grad_() for name, value in weights.items()}
        seed, losses = options["seed"], []
        for rank in range(self.workers):
            part = next(labelled_batches(model, batch, seed, rank))
            losses.append(batch_loss(model, detector, ours, part, counts, step_noise(batch, seed, 1, rank)))
        torch.stack(losses).mean().backward()
        found = super().train(model, detector, weights, batch, counts, **options)
        # After one step, Adam's mean is a tenth of the gradient.
        means = dict(zip(weights, options["optimiser"].means, strict=True))
        differences = [
            float((means[name] * 10 - value.grad).abs().max() / value.grad.abs().max()) for name, value in ours.items()
        ]
        print(f"largest difference of a gradient, relative to the largest entry of its weight: {max(differences):.1e}")
        return found


@dataclass(frozen=True)
class Fatal(GraphSAINT):
    """Kills the last worker at one of its steps; a file has as many bytes as it made steps."""

    file: str = ""
    step: int = 0

    def forward(self, p: Any, batch: Any, noise: Any) -> Any:
        """Compute as GraphSAINT does."""
        if distributed.is_initialized() and distributed.get_rank() == distributed.get_world_size() - 1:
            with Path(self.file).open("a") as file:
                file.write(".")
            if Path(self.file).stat().st_size == self.step:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(p, batch, noise)


def learn(
    task: Task, seed: int, steps: int, trainer: DataParallel | None, model: GraphSAINT | None = None
) -> tuple[LifelongLearner, float]:
    """Train on a task; return the learner and the seconds."""
    learner = LifelongLearner(model or GraphSAINT(), Softmax(), steps=steps, seed=seed, trainer=trainer)
    start = time.perf_counter()
    learner.adapt(task)
    return learner, time.perf_counter() - start


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph", nargs="?", default="metamath")
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    task = list(tasks(load(given.graph)))[-1]
    print(f"{given.graph}, task {task.graph.axis.label(task.time)}: {len(task.window):,} vertices in the window")
    learn(task, 0, 1, Gradients(given.workers))

    found: dict[int, list[float]] = {1: [], given.workers: []}
    for seed in parse_seeds(given.seeds):
        for workers, accuracies in found.items():
            learner, seconds = learn(task, seed, given.steps, None if workers == 1 else DataParallel(workers))
            accuracies.append(evaluate(task, learner.predict(task)).accuracy)
            print(f"seed {seed}, workers {workers}: accuracy {accuracies[-1]:.4f}, {seconds:.1f} s", flush=True)
    means = {workers: float(np.mean(accuracies)) for workers, accuracies in found.items()}
    print(f"mean accuracy: {means[1]:.4f} with 1 process, {means[given.workers]:.4f} with {given.workers} workers")

    trainer, learners = DataParallel(given.workers, checkpoint_every=20), []
    with TemporaryDirectory() as folder:
        for step in (0, given.steps // 2 + 5):
            file = Path(folder) / str(step)
            learner, seconds = learn(task, 0, given.steps, trainer, Fatal(file=str(file), step=step))
            learners.append(learner)
            told = f"a worker killed at step {step}" if step else "no worker killed"
            print(f"{told}: {len(learner.losses_)} steps, {file.stat().st_size} with repeated ones, {seconds:.1f} s")
    whole, again = (learner.weights_ or {} for learner in learners)
    print("the same weights:", all(torch.equal(value, again[name]) for name, value in whole.items()))
    ray.shutdown()


if __name__ == "__main__":
    main()
