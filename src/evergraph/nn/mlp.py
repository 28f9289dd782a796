"""Baselines that do not use edges: a multilayer perceptron, and the most frequent class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.nn.base import Batch, Draw, Labels, LayeredModel, Model, Parameters, Readout, check_settings, widths
from evergraph.nn.ops import Matrix, Neighbours, Noise, linear, relu_drop

__all__ = ["MLP", "MostFrequent"]


@dataclass(frozen=True)
class MLP(LayeredModel):
    """Linear layers with rectifiers and dropout between them; does not use edges.

    Parameters
    ----------
    hidden, layers, dropout
        Width of hidden layers, number of layers, and share that is dropped after each but the last.

    Examples
    --------
    >>> MLP(hidden=64)
    MLP(hidden=64, layers=2, dropout=0.5)
    """

    hidden: int = 64
    layers: int = 2
    dropout: float = 0.5

    def __post_init__(self) -> None:
        check_settings(hidden=self.hidden, layers=self.layers, dropout=self.dropout)

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        p = {}
        for layer, (before, after) in enumerate(widths(inputs, self.hidden, self.layers, outputs)):
            p[f"{layer}.weight"], p[f"{layer}.bias"] = draw.linear(before, after)
        return p

    def input_weights(self) -> tuple[str, ...]:
        return ("0.weight",)

    @property
    def hidden_layers(self) -> int:
        return self.layers - 1

    @property
    def local_output(self) -> bool:
        return True

    @property
    def hops(self) -> int:
        return 0

    def hidden_layer(
        self,
        p: Parameters,
        number: int,
        h: Matrix,
        graph: Neighbours,  # noqa: ARG002
        rows: int,
        noise: Noise | None,
    ) -> Tensor:
        found = linear(h, p[f"{number}.weight"], p[f"{number}.bias"])
        return relu_drop(found[:rows], self.dropout, noise)

    def output_layer(self, p: Parameters, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None) -> Readout:  # noqa: ARG002
        last = self.hidden_layers
        if not isinstance(h, Tensor):  # one layer only
            logits = linear(h, p["0.weight"], p["0.bias"])[:rows]
            return Readout(logits, None, None, logits)
        return Readout(h[:rows], p[f"{last}.weight"], p[f"{last}.bias"], h[:rows])


@dataclass(frozen=True)
class MostFrequent(Model):
    """Predict the most frequent class of the training vertices for every vertex.

    Use it as a baseline for accuracy. DOC and gDOC flag all its predictions as unseen if no class has a large share.

    Examples
    --------
    >>> MostFrequent().parameters(100, 2, Draw(1))
    {'shares': tensor([0.5000, 0.5000])}
    """

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:  # noqa: ARG002
        return {"shares": torch.full((outputs,), 1 / max(outputs, 1))}

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        logits = torch.log(p["shares"] + 1e-9).expand(batch.rows, -1)
        return logits, logits

    @property
    def hops(self) -> int:
        return 0

    @property
    def takes_classes(self) -> bool:
        return False

    def closed_form(self, p: Parameters, labels: Labels) -> Parameters:  # noqa: ARG002
        return {"shares": labels.counts / labels.counts.sum()}
