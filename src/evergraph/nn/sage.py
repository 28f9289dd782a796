"""GraphSAGE with the mean over neighbours, and JKNet, whose output layer reads all GraphSAGE layers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.nn.base import Batch, Draw, Model, Parameters, check_settings, widths
from evergraph.nn.ops import Matrix, Neighbours, Noise, drop, linear, mean_beside, mix_mean, relu_drop

__all__ = ["GraphSAGE", "JKNet"]

_INPUT_WEIGHTS = ("0.self.weight", "0.neighbours.weight")


@dataclass(frozen=True)
class GraphSAGE(Model):
    """Each layer adds a linear map of the vertex to one of the mean over its neighbours (including itself).

    Dropout is applied before each layer, also to the features.

    Parameters
    ----------
    hidden, layers, dropout
        Width of hidden layers, number of layers, and share that is dropped before each.

    Examples
    --------
    >>> GraphSAGE(hidden=32)
    GraphSAGE(hidden=32, layers=2, dropout=0.5)
    """

    hidden: int = 32
    layers: int = 2
    dropout: float = 0.5

    def __post_init__(self) -> None:
        check_settings(hidden=self.hidden, layers=self.layers, dropout=self.dropout)

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        p: Parameters = {}
        for number, (before, after) in enumerate(widths(inputs, self.hidden, self.layers, outputs)):
            p |= _draw_layer(number, before, after, draw)
        return p

    def input_weights(self) -> tuple[str, ...]:
        return _INPUT_WEIGHTS

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        h = drop(batch.x, self.dropout, noise)
        last = self.layers - 1
        for number in range(last):
            h = relu_drop(_layer(p, number, h, batch.graph, len(batch.graph)), self.dropout, noise)
        logits = _layer(p, last, h, batch.graph, batch.rows)
        return logits, h[: batch.rows] if isinstance(h, Tensor) else logits


@dataclass(frozen=True)
class JKNet(Model):
    """Jumping knowledge: a linear output layer reads the results of all GraphSAGE layers, concatenated.

    Parameters
    ----------
    hidden, layers, dropout
        Width and number of the GraphSAGE layers, and share that is dropped after each.

    Examples
    --------
    >>> JKNet()
    JKNet(hidden=16, layers=2, dropout=0.5)
    """

    hidden: int = 16
    layers: int = 2
    dropout: float = 0.5

    def __post_init__(self) -> None:
        check_settings(hidden=self.hidden, layers=self.layers, dropout=self.dropout)

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        p: Parameters = {}
        for number in range(self.layers):
            p |= _draw_layer(number, self.hidden if number else inputs, self.hidden, draw)
        p["out.weight"], p["out.bias"] = draw.linear(self.layers * self.hidden, outputs)
        return p

    def input_weights(self) -> tuple[str, ...]:
        return _INPUT_WEIGHTS

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        h: Matrix = batch.x
        found = []
        for number in range(self.layers):
            rows = batch.rows if number == self.layers - 1 else len(batch.graph)
            h = relu_drop(_layer(p, number, h, batch.graph, rows), self.dropout, noise)
            found.append(h[: batch.rows])
        hidden = torch.cat(found, 1)
        return linear(hidden, p["out.weight"], p["out.bias"]), hidden


def _draw_layer(number: int, inputs: int, outputs: int, draw: Draw) -> Parameters:
    p = {}
    for end in ("self", "neighbours"):
        p[f"{number}.{end}.weight"] = draw.glorot(inputs, outputs, gain=math.sqrt(2))
        p[f"{number}.{end}.bias"] = draw.uniform(outputs, bound=1 / math.sqrt(max(inputs, 1)))
    return p


def _layer(p: Parameters, number: int, h: Matrix, graph: Neighbours, rows: int) -> Tensor:
    """Compute one layer; the sum over neighbours is on the side of the linear maps that is narrower."""
    own, near = p[f"{number}.self.weight"], p[f"{number}.neighbours.weight"]
    bias = p[f"{number}.self.bias"] + p[f"{number}.neighbours.bias"]
    inputs, outputs = own.shape
    if not isinstance(h, Tensor) or outputs <= inputs:
        z = linear(h, torch.cat([own, near], 1), torch.cat([bias, torch.zeros_like(bias)]))
        return mix_mean(graph, z, rows)
    return linear(mean_beside(graph, h, rows), torch.cat([own, near]), bias)
