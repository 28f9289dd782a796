"""Graph convolution: GCN, and SGC (simple graph convolution) with a single linear map."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.nn.base import Draw, LayeredModel, Parameters, Readout, check_settings, widths
from evergraph.nn.ops import Matrix, Neighbours, Noise, linear, propagate, relu_drop

__all__ = ["GCN", "SGC"]


@dataclass(frozen=True)
class GCN(LayeredModel):
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

    @property
    def hidden_layers(self) -> int:
        return self.layers - 1

    def hidden_layer(
        self, p: Parameters, number: int, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None
    ) -> Tensor:
        return relu_drop(self._layer(p, number, h, graph, rows), self.dropout, noise)

    def output_layer(self, p: Parameters, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None) -> Readout:  # noqa: ARG002
        last = self.hidden_layers
        if not isinstance(h, Tensor):  # one layer only
            logits = self._layer(p, last, h, graph, rows)
            return Readout(logits, None, None, logits)
        return Readout(propagate(graph, h, rows), p[f"{last}.weight"], p[f"{last}.bias"], h[:rows])

    def _layer(self, p: Parameters, number: int, h: Matrix, graph: Neighbours, rows: int) -> Tensor:
        """Compute one layer; the propagation is on the side of the linear map that is narrower."""
        weight, bias = p[f"{number}.weight"], p[f"{number}.bias"]
        if isinstance(h, Tensor) and weight.shape[0] < weight.shape[1]:
            return linear(propagate(graph, h, rows), weight, bias)
        return propagate(graph, linear(h, weight), rows) + bias


@dataclass(frozen=True)
class SGC(LayeredModel):
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

    @property
    def hidden_layers(self) -> int:
        return self.hops - 1

    def hidden_layer(
        self,
        p: Parameters,
        number: int,
        h: Matrix,
        graph: Neighbours,
        rows: int,
        noise: Noise | None,  # noqa: ARG002
    ) -> Tensor:
        return propagate(graph, self._mapped(p, number, h), rows)

    def output_layer(self, p: Parameters, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None) -> Readout:  # noqa: ARG002
        logits = propagate(graph, self._mapped(p, self.hidden_layers, h), rows) + p["bias"]
        return Readout(logits, None, None, logits)

    def _mapped(self, p: Parameters, number: int, h: Matrix) -> Tensor:
        if not number:
            return linear(h, p["weight"])
        assert isinstance(h, Tensor)  # noqa: S101  # the result of a propagation
        return h
