"""GraphSAGE with the mean over neighbours, and JKNet, whose output layer reads all GraphSAGE layers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.nn.base import Draw, LayeredModel, Parameters, Readout, check_settings, widths
from evergraph.nn.ops import (
    Matrix,
    Neighbours,
    Noise,
    drop,
    linear,
    linear_mix_mean_relu,
    mean_beside,
    mix_mean,
    relu_drop,
)

__all__ = ["GraphSAGE", "JKNet"]

_INPUT_WEIGHTS = ("0.self.weight", "0.neighbours.weight")


@dataclass(frozen=True)
class GraphSAGE(LayeredModel):
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

    @property
    def hidden_layers(self) -> int:
        return self.layers - 1

    def hidden_layer(
        self, p: Parameters, number: int, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None
    ) -> Tensor:
        if not number:
            h = drop(h, self.dropout, noise)
        return _hidden_layer(p, number, h, graph, rows, self.dropout, noise)

    def output_layer(self, p: Parameters, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None) -> Readout:
        if not isinstance(h, Tensor):  # one layer only: the sum over neighbours is narrower after the linear map
            own, near, bias = _parameters(p, 0)
            weight, added = torch.cat([own, near], 1), torch.cat([bias, torch.zeros_like(bias)])
            logits = mix_mean(graph, linear(drop(h, self.dropout, noise), weight, added), rows)
            return Readout(logits, None, None, logits)
        vectors = h if self.hidden_layers else drop(h, self.dropout, noise)
        own, near, bias = _parameters(p, self.hidden_layers)
        return Readout(vectors, torch.cat([own, near]), bias, h[:rows], graph=graph)


@dataclass(frozen=True)
class JKNet(LayeredModel):
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

    @property
    def hidden_layers(self) -> int:
        return self.layers

    @property
    def local_output(self) -> bool:
        return True

    def hidden_layer(
        self, p: Parameters, number: int, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None
    ) -> Tensor:
        """Return the results of all layers so far, side by side."""
        below = h[:, -self.hidden :] if number and isinstance(h, Tensor) else h
        found = _hidden_layer(p, number, below, graph, rows, self.dropout, noise)
        return torch.cat([h[:rows], found], 1) if number and isinstance(h, Tensor) else found

    def output_layer(self, p: Parameters, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None) -> Readout:  # noqa: ARG002
        assert isinstance(h, Tensor)  # noqa: S101  # there is at least one hidden layer
        return Readout(h[:rows], p["out.weight"], p["out.bias"], h[:rows])


def _draw_layer(number: int, inputs: int, outputs: int, draw: Draw) -> Parameters:
    p = {}
    for end in ("self", "neighbours"):
        p[f"{number}.{end}.weight"] = draw.glorot(inputs, outputs, gain=math.sqrt(2))
        p[f"{number}.{end}.bias"] = draw.uniform(outputs, bound=1 / math.sqrt(max(inputs, 1)))
    return p


def _parameters(p: Parameters, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """The weights of a layer for the vertex and for its neighbours, and the bias."""
    bias = p[f"{number}.self.bias"] + p[f"{number}.neighbours.bias"]
    return p[f"{number}.self.weight"], p[f"{number}.neighbours.weight"], bias


def _hidden_layer(
    p: Parameters, number: int, h: Matrix, graph: Neighbours, rows: int, dropout: float, noise: Noise | None
) -> Tensor:
    """Compute one layer; the sum over neighbours is on the side of the linear maps that is narrower."""
    own, near, bias = _parameters(p, number)
    if isinstance(h, Tensor) and own.shape[0] < own.shape[1]:
        found = linear(mean_beside(graph, h, rows), torch.cat([own, near]), bias)
        return relu_drop(found, dropout, noise)
    return linear_mix_mean_relu(graph, h, own, near, bias, rows, dropout, noise)
