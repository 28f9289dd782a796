"""Graph attention (GAT)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.nn.base import Draw, LayeredModel, Parameters, Readout, check_settings
from evergraph.nn.ops import Matrix, Neighbours, Noise, attend, drop, linear

__all__ = ["GAT"]


@dataclass(frozen=True)
class GAT(LayeredModel):
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

    def step_memory(self, inputs: int, outputs: int) -> tuple[float, float]:
        """Add the attention, its dropout and its gradient, for each head."""
        of_vertex, _ = super().step_memory(inputs, outputs)
        return of_vertex, 10.0 * ((self.layers - 1) * self.heads + self.out_heads)

    @property
    def hidden_layers(self) -> int:
        return self.layers - 1

    def hidden_layer(
        self, p: Parameters, number: int, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None
    ) -> Tensor:
        return torch.nn.functional.elu(self._attended(p, number, h, graph, rows, noise))

    def output_layer(self, p: Parameters, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None) -> Readout:
        last = self.hidden_layers
        weight = p[f"{last}.weight"]
        _, heads, each = weight.shape
        if not isinstance(h, Tensor) or heads > 1:
            logits = self._attended(p, last, h, graph, rows, noise).view(-1, heads, each).mean(1)
            return Readout(logits, None, None, h[:rows] if isinstance(h, Tensor) else logits)
        # The sum over neighbours comes before the linear map, because hidden vectors are narrower than the logits of
        # many classes. The scores are products with the linear map, too.
        dropped, weight = drop(h, self.dropout, noise), weight[:, 0]
        scores = linear(dropped, weight @ torch.cat([p[f"{last}.left"], p[f"{last}.right"]]).T)
        left, right = scores[:, :1], scores[:, 1:]
        vectors = attend(graph, dropped, left, right, rows, slope=self.slope, p=self.dropout, noise=noise)
        return Readout(vectors, weight, None, h[:rows])

    def _attended(
        self, p: Parameters, number: int, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None
    ) -> Tensor:
        """Map linearly and sum over the neighbours, per head."""
        weight = p[f"{number}.weight"]
        _, heads, _ = weight.shape
        z = linear(drop(h, self.dropout, noise), weight.flatten(1))
        # All scores in one product with a block-diagonal matrix: faster than a sum for each head.
        own = torch.eye(heads, dtype=z.dtype, device=z.device)[:, None, :]
        ends = [(p[f"{number}.{end}"][:, :, None] * own).flatten(0, 1) for end in ("left", "right")]
        scores = linear(z, torch.cat(ends, 1))
        left, right = scores[:, :heads], scores[:, heads:]
        return attend(graph, z, left, right, rows, slope=self.slope, p=self.dropout, noise=noise)
