"""What every score is: a value without memory; what it has fitted is a state that others keep and save."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from numbers import Real

import torch
from torch import Tensor

from evergraph.detect.base import Outputs, State
from evergraph.errors import InputError

__all__ = ["Score"]


class Score(ABC):
    """Tells how unseen a vertex's class is from what a trained model says of it.

    Write a subclass as a frozen dataclass. It holds its parameters and nothing else; what it fits after training is a
    state. The order of the classes and the order of the vertices mean nothing.

    Examples
    --------
    A score that finds vertices strange whose two largest logits are near each other:

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Margin(Score):
    ...     def of(self, outputs, state):
    ...         first, second = outputs.logits.double().topk(2, dim=1).values.T
    ...         return second - first
    >>> Margin().of(Outputs(torch.tensor([[5.0, 0.0, 1.0], [2.0, 2.5, 0.0]])), {})
    tensor([-4.0000, -0.5000], dtype=torch.float64)
    """

    def fit(self, outputs: Outputs, targets: Tensor, before: State) -> State:  # noqa: ARG002  # most have no state
        """State after training on a task; empty unless a subclass says otherwise.

        Parameters
        ----------
        outputs
            What the trained model says of the labelled training vertices, in evaluation mode and without gradients.
        targets
            The column of each vertex's class, as int64. A known class may have no vertex.
        before
            The state of the last task, of as many classes or fewer; empty at first and after a cold restart.
        """
        return {}

    @abstractmethod
    def of(self, outputs: Outputs, state: State) -> Tensor:
        """How unseen each vertex's class is, as float64: the higher, the more unseen."""


def odds_against_likeliest(logits: Tensor) -> Tensor:
    """What all other classes have together for each 1 of the likeliest class, as float64.

    With p the largest probability of a softmax this is (1 - p) / p, but keeps its digits where p is near 1.

    Examples
    --------
    >>> odds_against_likeliest(torch.tensor([[0.0, 0.0, 0.0], [100.0, 0.0, 0.0]]))
    tensor([2.0000e+00, 7.4402e-44], dtype=torch.float64)
    """
    x = logits.double()
    likeliest = x.argmax(1, keepdim=True)
    return torch.exp(x - x.gather(1, likeliest)).scatter(1, likeliest, 0.0).sum(1)


def vectors_of(outputs: Outputs) -> Tensor:
    """The vectors below the output layer, as float64; the logits of a model that does not give them.

    Examples
    --------
    >>> vectors_of(Outputs(torch.zeros(5, 3), hidden=torch.zeros(5, 32))).shape
    torch.Size([5, 32])
    >>> vectors_of(Outputs(torch.zeros(5, 3))).shape
    torch.Size([5, 3])
    """
    return (outputs.logits if outputs.hidden is None else outputs.hidden).double()


def fitted(state: State, name: str, width: int | None = None) -> Tensor:
    """A tensor of the state, whose rows must be as wide as the vectors that are to be scored.

    Examples
    --------
    >>> fitted({}, "means", width=32)
    Traceback (most recent call last):
    evergraph.errors.InputError: the state has no 'means'. To fix it: give the state that the score's fit has returned.
    """
    if name not in state:
        raise InputError(f"the state has no {name!r}", fix="give the state that the score's fit has returned")
    if width is not None and state[name].shape[1] != width:
        raise InputError(
            f"the vectors have {width} columns, but the score was fitted to {state[name].shape[1]}",
            fix="fit the score to outputs of the model that it is to judge",
        )
    return state[name]


def plain_number(value: object) -> float:
    """A number as a plain float, for parameters are compared, printed and saved; NaN for what is no number.

    Examples
    --------
    >>> plain_number(3), plain_number("3")
    (3.0, nan)
    """
    return math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
