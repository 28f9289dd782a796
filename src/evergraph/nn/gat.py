"""Graph attention (GAT)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.nn.base import Batch, Draw, Model, Parameters, check_settings
from evergraph.nn.ops import Matrix, Noise, attend, drop, linear

__all__ = ["GAT"]


@dataclass(frozen=True)
class GAT(Model):
    """Each layer is a sum over neighbours weighted by learnt attention, with several heads in parallel.

    The last layer takes the mean over its heads. Dropout is applied before each layer and to the attention.

    Parameters
    ----------
    hidden, heads
        Width of a head and number of heads in hidden layers.
    out_heads
        Number of heads of the last layer.
    layers, dropout
        Number of layers, and share that is dropped.
    slope
        Slope of the leaky rectifier of the attention's scores below 0; at least 0 and below 1.

    Examples
    --------
    >>> GAT()
    GAT(hidden=8, heads=8, out_heads=1, layers=2, dropout=0.6, slope=0.2)
    """

    hidden: int = 8
    heads: int = 8
    out_heads: int = 1
    layers: int = 2
    dropout: float = 0.6
    slope: float = 0.2

    def __post_init__(self) -> None:
        check_settings(
            hidden=self.hidden, heads=self.heads, out_heads=self.out_heads, layers=self.layers, dropout=self.dropout
        )
        if not 0 <= self.slope < 1:
            raise InputError(f"slope is {self.slope!r}", fix="set slope to a number of at least 0 and below 1")

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        p = {}
        for number in range(self.layers):
            width, last = self.hidden * self.heads if number else inputs, number == self.layers - 1
            heads, each = (self.out_heads, outputs) if last else (self.heads, self.hidden)
            # Heads have their own axis, so that classes grow at the end of the last axis for any number of heads.
            deviation = math.sqrt(2) * math.sqrt(2 / max(width + heads * each, 1))
            p[f"{number}.weight"] = draw.normal(width, heads, each, deviation=deviation)
            # As in DGL, where attention vectors have the shape (1, heads, width).
            deviation = math.sqrt(2) * math.sqrt(2 / max((heads + 1) * each, 1))
            for end in ("left", "right"):
                p[f"{number}.{end}"] = draw.normal(heads, each, deviation=deviation)
        return p

    def input_weights(self) -> tuple[str, ...]:
        return ("0.weight",)

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        h: Matrix = batch.x
        for number in range(self.layers):
            last = number == self.layers - 1
            weight, rows = p[f"{number}.weight"], batch.rows if last else len(batch.graph)
            _, heads, each = weight.shape
            below = h
            z = linear(drop(h, self.dropout, noise), weight.flatten(1))
            # All scores in one product with a block-diagonal matrix: faster than a sum for each head.
            own = torch.eye(heads, dtype=z.dtype, device=z.device)[:, None, :]
            ends = [(p[f"{number}.{end}"][:, :, None] * own).flatten(0, 1) for end in ("left", "right")]
            scores = z @ torch.cat(ends, 1)
            left, right = scores[:, :heads], scores[:, heads:]
            h = attend(batch.graph, z, left, right, rows, slope=self.slope, p=self.dropout, noise=noise)
            h = h.view(-1, heads, each).mean(1) if last else torch.nn.functional.elu(h)
        assert isinstance(h, Tensor)  # noqa: S101  # there is at least one layer
        return h, below[: batch.rows] if isinstance(below, Tensor) else h
