"""Jumping knowledge: the output layer sees what every layer found."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.nn import sage
from evergraph.nn.base import Batch, Draw, Model, Noise, Parameters, check_settings
from evergraph.nn.ops import linear, relu_drop
from evergraph.nn.sparse import SparseMatrix

__all__ = ["JKNet"]


@dataclass(frozen=True)
class JKNet(Model):
    """Layers of GraphSAGE whose results, side by side, a linear map turns into outputs.

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
            p |= sage.draw_layer(number, self.hidden if number else inputs, self.hidden, draw)
        p["out.weight"], p["out.bias"] = draw.linear(self.layers * self.hidden, outputs)
        return p

    def input_weights(self) -> tuple[str, ...]:
        return sage.INPUT_WEIGHTS

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        h: Tensor | SparseMatrix = batch.x
        found = []
        for number in range(self.layers):
            rows = batch.rows if number == self.layers - 1 else len(batch.graph)
            h = relu_drop(sage.layer(p, number, h, batch.graph, rows), self.dropout, noise)
            found.append(h[: batch.rows])
        hidden = torch.cat(found, 1)
        return linear(hidden, p["out.weight"], p["out.bias"]), hidden
