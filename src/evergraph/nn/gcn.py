"""Graph convolution with symmetric normalisation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.nn.base import Batch, Draw, Model, Noise, Parameters, check_settings, widths
from evergraph.nn.ops import linear, propagate, relu_drop
from evergraph.nn.sparse import SparseMatrix

__all__ = ["GCN"]


@dataclass(frozen=True)
class GCN(Model):
    """Each layer is a linear map and one step of symmetrically normalised propagation.

    Parameters
    ----------
    hidden, layers, dropout
        Width of hidden layers, number of layers, and share that is dropped after each but the last.

    Examples
    --------
    >>> GCN(hidden=64)
    GCN(hidden=64, layers=2, dropout=0.5)
    """

    hidden: int = 16
    layers: int = 2
    dropout: float = 0.5

    def __post_init__(self) -> None:
        check_settings(hidden=self.hidden, layers=self.layers, dropout=self.dropout)

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        p = {}
        for number, (before, after) in enumerate(widths(inputs, self.hidden, self.layers, outputs)):
            p[f"{number}.weight"], p[f"{number}.bias"] = draw.glorot(before, after), torch.zeros(after)
        return p

    def input_weights(self) -> tuple[str, ...]:
        return ("0.weight",)

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        h: Tensor | SparseMatrix = batch.x
        for number in range(self.layers):
            last = number == self.layers - 1
            below, rows = h, batch.rows if last else len(batch.graph)
            weight, bias = p[f"{number}.weight"], p[f"{number}.bias"]
            # Whichever side of the linear map is narrower is propagated.
            if isinstance(h, Tensor) and weight.shape[0] < weight.shape[1]:
                h = linear(propagate(batch.graph, h, rows), weight, bias)
            else:
                h = propagate(batch.graph, linear(h, weight), rows) + bias
            if not last:
                h = relu_drop(h, self.dropout, noise)
        assert isinstance(h, Tensor)  # noqa: S101  # there is a layer at least
        return h, below[: batch.rows] if isinstance(below, Tensor) else h
