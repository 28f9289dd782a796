"""Compare training with Ray on several workers with one process: gradients, accuracy, seconds, and a killed worker.

    python scripts/data_parallel.py metamath --seeds 0-2

Each part uses the last task of the graph and GraphSAINT with its default settings. Starts a Ray cluster on this machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import ray
import torch

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
        print(
            f"largest difference of a gradient, relative to the largest entry of its parameter: {max(differences):.1e}"
        )
        return found


def learn(task: Task, seed: int, steps: int, trainer: DataParallel | None) -> tuple[LifelongLearner, float]:
    """Train on a task; return the learner and the seconds."""
    learner = LifelongLearner(GraphSAINT(), Softmax(), steps=steps, seed=seed, trainer=trainer)
    start = time.perf_counter()
    learner.adapt(task)
    return learner, time.perf_counter() - start


def kill_a_worker(storage: Path, killed: list[int]) -> None:
    """Kill one worker of Ray Train after the first checkpoint, without mercy."""
    from ray.util.state import list_actors

    while not any(storage.glob("*/task/checkpoint_*")):
        time.sleep(0.05)
    alive = [actor for actor in list_actors(detail=True) if "RayTrainWorker" in actor.class_name and actor.pid]
    pid = next(actor.pid for actor in alive if actor.state == "ALIVE")
    os.kill(pid, signal.SIGKILL)
    killed.append(pid)


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
    ray.init(include_dashboard=True, log_to_driver=False, logging_level="ERROR")  # the dashboard lists the workers
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

    with TemporaryDirectory() as folder:
        trainer = DataParallel(given.workers, storage=folder, checkpoint_every=10)
        whole, _ = learn(task, 0, given.steps, trainer)
        killed: list[int] = []
        killer = threading.Thread(target=kill_a_worker, args=(Path(folder), killed), daemon=True)
        killer.start()
        again, seconds = learn(task, 0, given.steps, trainer)
    same = all(torch.equal(value, (again.weights_ or {})[name]) for name, value in (whole.weights_ or {}).items())
    print(f"killed worker {killed}: {len(again.losses_)} steps done in {seconds:.1f} s, the same weights: {same}")
    ray.shutdown()


if __name__ == "__main__":
    main()
