"""Learn how to write a detector of unseen classes, check it, and try thresholds without training again.

It uses the energy score: a vertex with small logits is probably of no known class.
Run it with: python examples/own_detector.py
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

import evergraph
from evergraph.detect import Decision, Detector, check_detector
from evergraph.nn import GraphSAGE


@dataclass(frozen=True)
class Energy(Detector):
    """Flag vertices whose log-sum-exp of the logits is below that of all but ``share`` of the training vertices."""

    share: float = 0.1

    def loss(self, logits, targets, counts, weights=None):  # gDOC uses counts to weight rare classes
        losses = cross_entropy(logits, targets, reduction="none")
        return losses.mean() if weights is None else (weights * losses).sum() / weights.sum()

    def fit(self, outputs, targets, state):  # called after training; the learner saves the result
        return {"energies": outputs.logits.double().logsumexp(1)}

    def decide(self, outputs, state):  # a higher score means more likely unseen
        score = -outputs.logits.double().logsumexp(1)
        return Decision(score, score > -torch.quantile(state["energies"], self.share))


class UpsideDown(Energy):
    """The same with the sign reversed: a typical mistake."""

    def decide(self, outputs, state):
        score, flagged = super().decide(outputs, state)
        return Decision(-score, flagged)


def main() -> None:
    for detector in (Energy(), UpsideDown()):
        try:
            check_detector(detector)
            print(f"{detector}: the contract is kept")
        except AssertionError as broken:
            print(broken)

    graph = evergraph.datasets.synthetic(vertices=1500, times=8, classes=4, new_classes=5, seed=3)
    learner = evergraph.LifelongLearner(GraphSAGE(hidden=16), Energy(), steps=60, lr=0.01)
    for task in evergraph.tasks(graph, history=3, first=6):
        outputs = learner.adapt(task).outputs(task)
        for share in (0.02, 0.1, 0.3):  # no training in between
            scores = evergraph.evaluate(task, learner.predict(task, Energy(share), outputs))
            found, unseen = scores.confusion.tp, scores.confusion.tp + scores.confusion.fn
            print(f"time {task.time}, share {share}: flags {scores.rejected:.0%}, finds {found} of {unseen} unseen")


if __name__ == "__main__":
    main()

# prints: Energy(share=0.1): the contract is kept
# prints: UpsideDown(share=0.1): unseen vertices must score higher
# prints: time 6, share 0.02: flags
# prints: time 7, share 0.3: flags
