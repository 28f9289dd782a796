"""Sentinel: minus the largest logit of a second model, which keeps watch and decides no class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.base import Detector, Outputs, State
from evergraph.detect.doc import GDOC
from evergraph.detect.scores.base import Score

__all__ = ["Sentinel"]


@dataclass(frozen=True)
class Sentinel(Score):
    """Minus the largest logit of a second model that is trained beside the first, with gDOC's loss.

    A plain classifier learns to tell the known classes apart; one sigmoid for each class learns, too, what belongs to
    none of the others, and so is stranger to strangers. But it tells the classes less well. With two models the first
    decides the class and the second keeps watch. It costs as much training again. Without a second model all are 0.

    Source of the loss: Galke et al., Lifelong Learning on Evolving Graphs Under the Constraints of Imbalanced Classes
    and New Classes, 2023.

    Examples
    --------
    >>> logits = torch.tensor([[9.0, 0.0], [8.0, 0.0]])
    >>> Sentinel().of(Outputs(logits, second=torch.tensor([[4.0, -5.0], [-3.0, -4.0]])), {})
    tensor([-4.,  3.], dtype=torch.float64)
    """

    @property
    def second(self) -> Detector:
        """That of gDOC."""
        return GDOC()

    def of(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """See the class."""
        if outputs.second is None:
            return outputs.logits.new_zeros(len(outputs), dtype=torch.float64)
        return -outputs.second.amax(1).double()
