"""The same line for ever."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from evergraph.detect.past import Past
from evergraph.detect.thresholds.base import Threshold

__all__ = ["Fixed"]


@dataclass(frozen=True)
class Fixed(Threshold):
    """Whoever scores above a given value is rejected.

    Parameters
    ----------
    value
        On the scale of the score.

    Examples
    --------
    >>> import torch
    >>> Fixed(0.5).excess(torch.tensor([0.25, 0.75]), torch.tensor([0, 0]), Past.of({}))
    tensor([-0.2500,  0.2500])
    """

    value: float = 0.0

    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:  # noqa: ARG002
        """Score minus value."""
        return scores - self.value
