"""GraphSAGE with the mean over neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.nn.base import Batch, Draw, Model, Noise, Parameters, check_settings, widths
from evergraph.nn.ops import drop, linear, mean_beside, mix_mean, relu_drop
from evergraph.nn.sparse import Neighbours, SparseMatrix

__all__ = ["INPUT_WEIGHTS", "GraphSAGE", "draw_layer", "layer"]

INPUT_WEIGHTS = ("0.self.weight", "0.neighbours.weight")


@dataclass(frozen=True)
class GraphSAGE(Model):
    """Each layer adds a linear map of a vertex to one of the mean over its neighbours (itself among them).

    Dropout stands before each layer, also on the raw features.

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
            p |= draw_layer(number, before, after, draw)
        return p

    def input_weights(self) -> tuple[str, ...]:
        return INPUT_WEIGHTS

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        h = drop(batch.x, self.dropout, noise)
        last = self.layers - 1
        for number in range(last):
            h = relu_drop(layer(p, number, h, batch.graph, len(batch.graph)), self.dropout, noise)
        logits = layer(p, last, h, batch.graph, batch.rows)
        return logits, h[: batch.rows] if isinstance(h, Tensor) else logits


def draw_layer(number: int, inputs: int, outputs: int, draw: Draw) -> Parameters:
    """Parameters of one layer: a weight and a bias for the vertex itself, and as much for its neighbours."""
    p = {}
    for end in ("self", "neighbours"):
        p[f"{number}.{end}.weight"] = draw.glorot(inputs, outputs, gain=math.sqrt(2))
        p[f"{number}.{end}.bias"] = draw.uniform(outputs, bound=1 / math.sqrt(max(inputs, 1)))
    return p


def layer(p: Parameters, number: int, h: Tensor | SparseMatrix, graph: Neighbours, rows: int) -> Tensor:
    """One layer, summed over neighbours on whichever side of the linear maps is narrower."""
    own, near = p[f"{number}.self.weight"], p[f"{number}.neighbours.weight"]
    bias = p[f"{number}.self.bias"] + p[f"{number}.neighbours.bias"]
    inputs, outputs = own.shape
    if isinstance(h, SparseMatrix) or outputs <= inputs:
        z = linear(h, torch.cat([own, near], 1), torch.cat([bias, torch.zeros_like(bias)]))
        return mix_mean(graph, z, rows)
    return linear(mean_beside(graph, h, rows), torch.cat([own, near]), bias)
