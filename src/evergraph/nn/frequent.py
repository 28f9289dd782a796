"""The baseline that reads nothing: the most frequent class of the window."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.nn.base import Batch, Draw, Model, Parameters
from evergraph.nn.noise import Noise

__all__ = ["MostFrequent"]


@dataclass(frozen=True)
class MostFrequent(Model):
    """Always the most frequent class among the training vertices.

    Meant for accuracies: DOC and gDOC reject everything that it says, for no class has a large share.

    Examples
    --------
    >>> MostFrequent().closed_form(torch.tensor([3, 1]))
    {'shares': tensor([0.7500, 0.2500])}
    """

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:  # noqa: ARG002
        """See `Model`."""
        return {"shares": torch.full((outputs,), 1 / max(outputs, 1))}

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """See `Model`."""
        logits = torch.log(p["shares"] + 1e-9).expand(batch.rows, -1)
        return logits, logits

    def closed_form(self, counts: Tensor) -> Parameters:
        """See `Model`."""
        return {"shares": counts / counts.sum()}
