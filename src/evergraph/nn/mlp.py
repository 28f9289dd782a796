"""Baselines that do not use edges: a multilayer perceptron, and the most frequent class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.nn.base import Batch, Draw, Model, Parameters, check_settings, widths
from evergraph.nn.ops import Matrix, Noise, linear, relu_drop

__all__ = ["MLP", "MostFrequent"]


@dataclass(frozen=True)
class MLP(Model):
    """Linear layers with rectifiers and dropout between them; does not use edges.

    Parameters
    ----------
    hidden, layers, dropout
        Width of hidden layers, number of layers, and share that is dropped after each but the last.

    Examples
    --------
    >>> MLP(hidden=64)
    MLP(hidden=64, layers=2, dropout=0.5)
    """

    hidden: int = 64
    layers: int = 2
    dropout: float = 0.5

    def __post_init__(self) -> None:
        check_settings(hidden=self.hidden, layers=self.layers, dropout=self.dropout)

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        p = {}
        for layer, (before, after) in enumerate(widths(inputs, self.hidden, self.layers, outputs)):
            p[f"{layer}.weight"], p[f"{layer}.bias"] = draw.linear(before, after)
        return p

    def input_weights(self) -> tuple[str, ...]:
        return ("0.weight",)

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        h: Matrix = batch.x
        for layer in range(self.layers - 1):
            h = relu_drop(linear(h, p[f"{layer}.weight"], p[f"{layer}.bias"]), self.dropout, noise)
        last = self.layers - 1
        if not isinstance(h, Tensor):  # one layer
            logits = linear(h, p["0.weight"], p["0.bias"])[: batch.rows]
            return logits, logits
        h = h[: batch.rows]
        return linear(h, p[f"{last}.weight"], p[f"{last}.bias"]), h


@dataclass(frozen=True)
class MostFrequent(Model):
    """Predict the most frequent class of the training vertices for every vertex.

    Use it as a baseline for accuracy. DOC and gDOC flag all its predictions as unseen if no class has a large share.

    Examples
    --------
    >>> MostFrequent().closed_form(torch.tensor([3, 1]))
    {'shares': tensor([0.7500, 0.2500])}
    """

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:  # noqa: ARG002
        return {"shares": torch.full((outputs,), 1 / max(outputs, 1))}

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        logits = torch.log(p["shares"] + 1e-9).expand(batch.rows, -1)
        return logits, logits

    @property
    def takes_classes(self) -> bool:
        return False

    def closed_form(self, counts: Tensor) -> Parameters:
        return {"shares": counts / counts.sum()}
