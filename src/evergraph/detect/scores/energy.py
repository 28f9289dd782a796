"""Energy: minus the soft maximum of the logits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.base import Outputs, State
from evergraph.detect.scores.base import Score, plain_number
from evergraph.errors import InputError

__all__ = ["Energy"]


@dataclass(frozen=True)
class Energy(Score):
    """-T · log Σ exp(logit / T) over the known classes: low where some class has a large logit.

    Source: Liu et al., Energy-based Out-of-distribution Detection, NeurIPS 2020.

    Parameters
    ----------
    temperature
        T, above 0: the lower, the nearer to minus the largest logit (`MaxLogit`).

    Examples
    --------
    >>> Energy().of(Outputs(torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0]])), {})
    tensor([-9.0002, -1.0986], dtype=torch.float64)
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        temperature = plain_number(self.temperature)
        if not 0 < temperature < math.inf:
            raise InputError(
                f"the argument temperature is {self.temperature!r}, which is no number above 0",
                fix="set temperature to a number above 0 (1 is usual)",
            )
        object.__setattr__(self, "temperature", temperature)

    def of(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """See the class."""
        x = outputs.logits.double()
        top = x.amax(1, keepdim=True)
        # Differences from the largest are at most 0, so that no temperature makes them overflow.
        return -(top.squeeze(1) + self.temperature * torch.logsumexp((x - top) / self.temperature, 1))
