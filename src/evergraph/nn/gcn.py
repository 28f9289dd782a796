"""Graph convolution: GCN, and SGC (simple graph convolution) with a single linear map."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.nn.base import Batch, Draw, Model, Parameters, check_settings, widths
from evergraph.nn.ops import Matrix, Noise, linear, propagate, relu_drop

__all__ = ["GCN", "SGC"]


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
        h: Matrix = batch.x
        for number in range(self.layers):
            last = number == self.layers - 1
            below, rows = h, batch.rows if last else len(batch.graph)
            weight, bias = p[f"{number}.weight"], p[f"{number}.bias"]
            # Propagate on the side of the linear map that is narrower.
            if isinstance(h, Tensor) and weight.shape[0] < weight.shape[1]:
                h = linear(propagate(batch.graph, h, rows), weight, bias)
            else:
                h = propagate(batch.graph, linear(h, weight), rows) + bias
            if not last:
                h = relu_drop(h, self.dropout, noise)
        assert isinstance(h, Tensor)  # noqa: S101  # there is at least one layer
        return h, below[: batch.rows] if isinstance(below, Tensor) else h


@dataclass(frozen=True)
class SGC(Model):
    """Several steps of symmetrically normalised propagation of a linear map of the features; no dropout.

    The linear map comes first, so that only one column per class is propagated. Propagated features would be dense
    and take much more memory.

    Parameters
    ----------
    hops
        Number of propagation steps.

    Examples
    --------
    >>> SGC()
    SGC(hops=2)
    """

    hops: int = 2

    def __post_init__(self) -> None:
        check_settings(hops=self.hops)

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        return {"weight": draw.glorot(inputs, outputs), "bias": torch.zeros(outputs)}

    def input_weights(self) -> tuple[str, ...]:
        return ("weight",)

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        h = linear(batch.x, p["weight"])
        for hop in range(self.hops):
            h = propagate(batch.graph, h, batch.rows if hop == self.hops - 1 else len(batch.graph))
        logits = h + p["bias"]
        return logits, logits
