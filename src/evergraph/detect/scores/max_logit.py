"""MaxLogit: minus the largest logit."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from evergraph.detect.base import Outputs, State
from evergraph.detect.scores.base import Score

__all__ = ["MaxLogit"]


@dataclass(frozen=True)
class MaxLogit(Score):
    """Minus the largest logit: unlike a softmax it does not forget how large the logits are.

    Source: Hendrycks et al., Scaling Out-of-Distribution Detection for Real-World Settings, ICML 2022.

    Examples
    --------
    >>> import torch
    >>> MaxLogit().of(Outputs(torch.tensor([[9.0, 0.0, 0.0], [1.0, -8.0, -8.0]])), {})
    tensor([-9., -1.], dtype=torch.float64)
    """

    def of(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """See the class."""
        return -outputs.logits.amax(1).double()
