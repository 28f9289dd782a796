"""A model and a detector that Evergraph finds by name once this package is installed."""

from dataclasses import dataclass

import torch

from evergraph.detect import Decision, Softmax
from evergraph.nn import Model
from evergraph.nn.ops import linear


@dataclass(frozen=True)
class Logistic(Model):
    """Logistic regression on the features; reads no edges."""

    def parameters(self, inputs, outputs, draw):
        return {"weight": draw.glorot(inputs, outputs), "bias": torch.zeros(outputs)}

    def input_weights(self):
        return ("weight",)

    def forward(self, p, batch, noise):
        logits = linear(batch.x, p["weight"], p["bias"])[: batch.rows]
        return logits, logits


@dataclass(frozen=True)
class Margin(Softmax):
    """Flag a vertex if its two most likely classes differ by less than ``least`` in probability."""

    least: float = 0.2

    def decide(self, outputs, state):
        probabilities = self.probabilities(outputs.logits)
        best = probabilities.topk(min(2, probabilities.shape[1]), 1).values
        score = 1 - (best[:, 0] - best[:, 1] if best.shape[1] > 1 else best[:, 0])
        return Decision(score, score > 1 - self.least)
