"""Compare training in mini-batches with full batch: accuracy and CPU seconds on the last tasks of real graphs.

    python scripts/minibatch.py metamath GRAPH --seeds 0-2 --tasks 2

Each graph is trained with a history of all periods, from new weights on the first of these tasks. Mini-batches are
those of a memory limit, with the same sizes; ``--batch`` and ``--fanouts`` try others.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import torch

from evergraph.cli.common import parse_seeds
from evergraph.datasets import load
from evergraph.detect import Softmax
from evergraph.graph.evolving import EvolvingGraph
from evergraph.learning import memory_limit
from evergraph.learning.learner import LifelongLearner
from evergraph.learning.minibatch import WindowSource
from evergraph.learning.task import tasks
from evergraph.names import build_model


class Sampling(LifelongLearner):
    """Trains in mini-batches whatever memory there is."""

    def _plan(self, source: WindowSource) -> memory_limit.Plan:
        classes = len(source.reader.classes)
        return memory_limit.Plan.of(None, self._model(), source.reader, source.edges, classes, sampled=True)


def accuracy(kind: type[LifelongLearner], graph: EvolvingGraph, last: int, **settings: object) -> tuple[float, float]:
    """Return the mean accuracy of the last tasks, and the CPU seconds of training and prediction."""
    learner = kind(detector=Softmax(), **settings)  # type: ignore[arg-type]
    found, start = [], time.process_time()
    for task in [*tasks(graph, "full")][-last:]:
        task = replace(task)  # it caches its windows, which would otherwise accumulate
        decisions, truth = learner.adapt(task).predict(task), task.truth
        known = np.array([name is not None for name in truth])
        found.append((decisions.best[known] == truth[known]).mean())
    return float(np.mean(found)), time.process_time() - start


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", help="names or folders of graphs")
    parser.add_argument("--model", default="sage")
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--tasks", type=int, default=2, help="number of tasks, the last ones")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=memory_limit.BATCH)
    parser.add_argument("--fanouts", default=",".join(map(str, memory_limit.FANOUTS)))
    options = parser.parse_args()
    torch.set_num_threads(1)
    memory_limit.BATCH, memory_limit.FANOUTS = (
        options.batch,
        tuple(int(number) for number in options.fanouts.split(",")),
    )
    print("| graph | seed | full batch | mini-batches | difference | CPU s | CPU s, mini-batches |")
    print("|---|---|---|---|---|---|---|")
    for name in options.graphs:
        graph, differences = load(name), []
        for seed in parse_seeds(options.seeds):
            settings = {"model": build_model(options.model), "steps": options.steps, "seed": seed}
            (one, seconds), (other, more) = (
                accuracy(kind, graph, options.tasks, **settings) for kind in (LifelongLearner, Sampling)
            )
            differences.append(other - one)
            numbers = f"{one:.3f} | {other:.3f} | {100 * (other - one):+.1f} | {seconds:.0f} | {more:.0f}"
            print(f"| {name} | {seed} | {numbers} |", flush=True)
        print(f"| {name} | mean | | | {100 * np.mean(differences):+.1f} | | |", flush=True)


if __name__ == "__main__":
    main()
