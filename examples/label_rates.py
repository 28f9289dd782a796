"""Learn how to simulate that only some vertices ever get a label, and what that costs.

A vertex that has a label at a rate of .1 also has one at .3, so you can compare rates.
Run it with: python examples/label_rates.py
"""

import evergraph
from evergraph.nn import GraphSAGE

RATES = (0.05, 0.2, 1.0)


def labels_and_accuracy(graph: evergraph.EvolvingGraph, rate: float, restart: str) -> tuple[list[int], float]:
    """Number of training labels for each task, and the mean accuracy."""
    learner = evergraph.LifelongLearner(GraphSAGE(hidden=16), restart=restart, steps=40, lr=0.01)
    labels, accuracy = [], []
    for task in evergraph.tasks(graph, history=2, first=5, label_rate=rate):
        decisions = learner.adapt(task).predict(task)
        labels.append(int((task.targets >= 0).sum()))
        accuracy.append(evergraph.evaluate(task, decisions).accuracy)
    return labels, sum(accuracy) / len(accuracy)


def main() -> None:
    graph = evergraph.datasets.synthetic(vertices=2000, times=8, classes=6, new_classes=1, seed=1)

    few, more = (next(evergraph.tasks(graph, history=2, first=5, label_rate=rate)) for rate in RATES[:2])
    print("labels at .05 are among those at .2:", not ((few.targets >= 0) & (more.targets < 0)).any())

    print("rate  labels per task  warm   cold")
    for rate in RATES:
        labels, warm = labels_and_accuracy(graph, rate, "warm")
        _, cold = labels_and_accuracy(graph, rate, "cold")
        print(f"{rate:4}  {', '.join(map(str, labels)):15}  {warm:.3f}  {cold:.3f}")

    # On the command line, with seeds and intervals:
    #   evergraph run GRAPH --label-rate 0.2 --seeds 0-4


if __name__ == "__main__":
    main()

# prints: labels at .05 are among those at .2: True
# prints: rate  labels per task  warm   cold
# prints: 1.0  500, 500, 500
