"""What every threshold is: a rule that draws the line between known and unseen, given earlier decisions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from torch import Tensor

from evergraph.detect.past import Past
from evergraph.detect.scores.base import plain_number
from evergraph.errors import InputError

__all__ = ["Threshold"]


class Threshold(ABC):
    """Draws a line; write a subclass as a frozen dataclass."""

    @abstractmethod
    def excess(self, scores: Tensor, best: Tensor, past: Past) -> Tensor:
        """How far the score of each vertex is above its line, as float64: rejected is who is above 0.

        Parameters
        ----------
        scores
            How unseen each vertex seems, all of one slice.
        best
            The column of the class that is predicted for it.
        past
            What became of earlier decisions, on the same scale.
        """


def quantile(scores: Tensor, share: float) -> Tensor:
    """The least score that at most a share of these exceed; with a share of 0 the largest.

    Examples
    --------
    >>> import torch
    >>> quantile(torch.tensor([1.0, 2.0, 3.0, 4.0]), 0.25)
    tensor(3.)
    """
    place = len(scores) - int(share * len(scores) + 1e-9)
    return scores.sort().values[max(place - 1, 0)]


def nobody(scores: Tensor) -> Tensor:
    """The excess where there is no line yet: all are below it, in the order of their scores."""
    return scores - (scores.amax() + 1) if len(scores) else scores


def check_share(name: str, value: float) -> float:
    """A share as a plain float; an `InputError` where it is none."""
    if not 0 <= plain_number(value) <= 1:
        raise InputError(
            f"the argument {name} is {value!r}, which is no share", fix=f"set {name} to a number from 0 to 1"
        )
    return float(value)


def check_weight(name: str, value: float) -> float:
    """A number of vertices as a plain float; an `InputError` where it is none."""
    if not 0 <= plain_number(value) < math.inf:
        raise InputError(
            f"the argument {name} is {value!r}, which is no number of vertices", fix=f"set {name} to a number from 0 up"
        )
    return float(value)
