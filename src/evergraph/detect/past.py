"""What became of earlier decisions: how unseen vertices seemed when they were decided, and whether they were."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.base import PAST, UNKNOWN, UNLABELLED, Outputs, State

__all__ = ["Past"]

_MOST = 200_000  # vertices, the newest: more say nothing more about a threshold


@dataclass(frozen=True, eq=False)
class Past:
    """Scored vertices whose labels have come, oldest first.

    Parameters
    ----------
    scores
        How unseen each seemed when it was decided, as float64.
    unseen
        Whether the model that decided did not know its class.
    best
        The column of the class that was predicted for it.
    slices
        The number of its slice: 0 for the first that was looked back at, then 1 and so on.

    Examples
    --------
    >>> outputs, targets = Outputs(torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])), torch.tensor([0, -1, -2])
    >>> past = Past.of({}).grown(torch.tensor([0.25, 0.75, 0.5]), outputs, targets)  # of the last no label has come
    >>> past.scores.tolist(), past.unseen.tolist(), past.best.tolist(), past.slices.tolist()
    ([0.25, 0.75], [False, True], [0, 1], [0, 0])
    >>> len(Past.of(past.as_state()))
    2
    """

    scores: Tensor
    unseen: Tensor
    best: Tensor
    slices: Tensor

    def __len__(self) -> int:
        return len(self.scores)

    @classmethod
    def of(cls, state: State) -> Past:
        """What a detector's state remembers; nothing where it has not looked back yet."""
        empty = {name: torch.empty(0, dtype=dtype) for name, dtype in _COLUMNS.items()}
        return cls(**{name: state.get(PAST + name, nothing) for name, nothing in empty.items()})

    def as_state(self) -> dict[str, Tensor]:
        """Fit for a detector's state; it outlives cold restarts."""
        return {PAST + name: getattr(self, name) for name in _COLUMNS}

    def grown(self, scores: Tensor, outputs: Outputs, targets: Tensor) -> Past:
        """With one slice more; see `Detector.look_back`."""
        there = targets != UNLABELLED
        found = {
            "scores": scores[there].double(),
            "unseen": targets[there] == UNKNOWN,
            "best": outputs.logits[there].argmax(1),
            "slices": torch.full_like(targets[there], int(self.slices[-1]) + 1 if len(self) else 0),
        }
        return Past(**{name: torch.cat([getattr(self, name).to(new), new])[-_MOST:] for name, new in found.items()})

    @property
    def known(self) -> Past:
        """Those whose class was known."""
        return self.part(~self.unseen)

    def part(self, chosen: Tensor) -> Past:
        """Some of them."""
        return Past(self.scores[chosen], self.unseen[chosen], self.best[chosen], self.slices[chosen])


_COLUMNS = {"scores": torch.float64, "unseen": torch.bool, "best": torch.int64, "slices": torch.int64}
