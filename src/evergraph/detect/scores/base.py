"""What every score is: a value without memory; what it has fitted is a state that others keep and save."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from evergraph.detect.base import PAST, Detector, Outputs, State
from evergraph.errors import InputError

if TYPE_CHECKING:
    from evergraph.inputs.slice_context import Sight

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

    def look_back(self, outputs: Outputs, targets: Tensor, before: State) -> State:  # noqa: ARG002  # most do not
        """What the score keeps once the labels have come of a slice that was decided; see `Detector.look_back`."""
        return {}

    @property
    def second(self) -> Detector | None:
        """Whose loss a second model must be trained with for this score; None, as here, where it needs none."""
        return None

    @abstractmethod
    def of(self, outputs: Outputs, state: State) -> Tensor:
        """How unseen each vertex's class is, as float64: the higher, the more unseen."""


def seen_in_graph(outputs: Outputs, look: Callable[[Sight], NDArray[np.floating]]) -> Tensor:
    """What is to be seen of each vertex in the graph, as float64; of whom nothing is (NaN), the mean of the others.

    Where there is nothing to see of anybody, all are 0.

    Examples
    --------
    >>> seen_in_graph(Outputs(torch.zeros(2, 3)), look=lambda sight: np.arange(2.0))
    tensor([0., 0.], dtype=torch.float64)
    """
    if outputs.sight is None or not len(outputs):
        return outputs.logits.new_zeros(len(outputs), dtype=torch.float64)
    found = np.asarray(look(outputs.sight), np.float64)
    there = np.isfinite(found)
    found = np.where(there, found, found[there].mean() if there.any() else 0.0)
    return torch.from_numpy(found).to(outputs.logits.device)


def mean_of_words(sight: Sight, values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Mean over the words of each vertex of the slice; NaN where it has none.

    Parameters
    ----------
    sight
        What there is to see.
    values
        One for each word, or one row for each word.
    """
    words = sight.words[sight.start :]
    number = np.diff(words.indptr).astype(np.float64)
    number[number == 0] = np.nan
    total = words @ values
    return np.asarray(total / (number if total.ndim == 1 else number[:, None]))


def words_of_classes(sight: Sight) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Labelled texts of each known class in the times before the slice, and in how many of them each word stands."""
    labelled = np.flatnonzero(sight.known >= 0)
    columns = sight.known[labelled]
    number = len(sight.classes)
    member = sparse.csr_array((np.ones(len(labelled)), (columns, labelled)), shape=(number, sight.start))
    return np.bincount(columns, minlength=number), (member @ sight.words[: sight.start]).toarray()


def inner_state(state: State, label: str) -> State:
    """The part of a state that belongs to a score within another one.

    Examples
    --------
    >>> state = {"a/mean": torch.ones(1), "past.a/mean": torch.ones(1), "b/mean": torch.ones(1)}
    >>> sorted(inner_state(state, "a"))
    ['mean', 'past.mean']
    """
    found = {}
    for name, value in state.items():
        past, own = (PAST, name.removeprefix(PAST)) if name.startswith(PAST) else ("", name)
        if own.startswith(f"{label}/"):
            found[past + own.removeprefix(f"{label}/")] = value
    return found


def outer_state(state: State, label: str) -> dict[str, Tensor]:
    """The state of a score within another one, by names that tell it apart: the reverse of `inner_state`.

    Examples
    --------
    >>> sorted(outer_state({"mean": torch.ones(1), "past.mean": torch.ones(1)}, "a"))
    ['a/mean', 'past.a/mean']
    """
    return {
        f"{PAST}{label}/{name.removeprefix(PAST)}" if name.startswith(PAST) else f"{label}/{name}": value
        for name, value in state.items()
    }


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


def predicted(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Vertices and columns of the classes predicted for them, and the part of each vertex that a class gets.

    Examples
    --------
    >>> predicted(torch.tensor([[3.0, 1.0], [2.0, 2.0]]))
    (tensor([0, 1, 1]), tensor([0, 0, 1]), tensor([1.0000, 0.5000], dtype=torch.float64))
    """
    largest = logits == logits.amax(1, keepdim=True)
    rows, columns = torch.nonzero(largest, as_tuple=True)
    return rows, columns, 1 / largest.sum(1).double()
