"""Simple graph convolution: propagation and one linear map."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.nn.base import Batch, Draw, Model, Noise, Parameters, check_settings
from evergraph.nn.ops import linear, propagate

__all__ = ["SGC"]


@dataclass(frozen=True)
class SGC(Model):
    """Several steps of symmetrically normalised propagation of a linear map of the features; no dropout.

    The linear map comes first: as many columns as there are classes are propagated at each step, and never the
    features, whose propagated rows would fill up (the reason why others run out of memory here).

    Parameters
    ----------
    hops
        Number of steps.

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
