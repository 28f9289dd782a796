"""Graph attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.nn.base import Batch, Draw, Model, Noise, Parameters, check_settings
from evergraph.nn.ops import attend, drop, linear
from evergraph.nn.sparse import SparseMatrix

__all__ = ["GAT"]


@dataclass(frozen=True)
class GAT(Model):
    """Each layer sums over neighbours under an attention that it learns, in several heads side by side.

    The last layer takes the mean over its heads. Dropout stands before each layer and on the attention.

    Parameters
    ----------
    hidden, heads
        Width of a head and number of heads of hidden layers.
    out_heads
        Heads of the last layer.
    layers, dropout
        Number of layers, and share that is dropped.
    slope
        Of the leaky rectifier of the attention's scores.

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
            raise InputError(f"slope is {self.slope!r}", fix="give a slope from 0 to below 1")

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        p = {}
        before = [inputs, *[self.hidden * self.heads] * (self.layers - 1), 0]
        for number, (width, _) in enumerate(pairwise(before)):
            last = number == self.layers - 1
            heads, each = (self.out_heads, outputs) if last else (self.heads, self.hidden)
            # Heads have an axis of their own: classes then grow at the end of the last axis, however many heads.
            deviation = math.sqrt(2) * math.sqrt(2 / max(width + heads * each, 1))
            p[f"{number}.weight"] = draw.normal(width, heads, each, deviation=deviation)
            # As in DGL, whose attention vectors have the shape (1, heads, width).
            deviation = math.sqrt(2) * math.sqrt(2 / max((heads + 1) * each, 1))
            for end in ("left", "right"):
                p[f"{number}.{end}"] = draw.normal(heads, each, deviation=deviation)
        return p

    def input_weights(self) -> tuple[str, ...]:
        return ("0.weight",)

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        h: Tensor | SparseMatrix = batch.x
        for number in range(self.layers):
            last = number == self.layers - 1
            weight, rows = p[f"{number}.weight"], batch.rows if last else len(batch.graph)
            _, heads, each = weight.shape
            below = h
            z = linear(drop(h, self.dropout, noise), weight.flatten(1))
            # Scores as one product with a matrix that is 0 outside of its heads: faster than sums over each head.
            own = torch.eye(heads, dtype=z.dtype, device=z.device)[:, None, :]
            ends = [(p[f"{number}.{end}"][:, :, None] * own).flatten(0, 1) for end in ("left", "right")]
            scores = z @ torch.cat(ends, 1)
            h = attend(
                batch.graph,
                z,
                scores[:, :heads],
                scores[:, heads:],
                rows,
                slope=self.slope,
                p=self.dropout,
                noise=noise,
            )
            h = h.view(-1, heads, each).mean(1) if last else torch.nn.functional.elu(h)
        assert isinstance(h, Tensor)  # noqa: S101  # there is a layer at least
        return h, below[: batch.rows] if isinstance(below, Tensor) else h
