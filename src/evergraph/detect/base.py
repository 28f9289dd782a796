"""What every detector is: a value without memory; what it has learned is a state that others keep and save."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from evergraph.inputs.slice_context import Sight

__all__ = ["PAST", "UNKNOWN", "UNLABELLED", "Detector", "Outputs", "State"]

State = Mapping[str, Tensor]
"""What a detector has fitted: tensors by name, flat, so that they can be saved as safetensors."""
UNKNOWN, UNLABELLED = -1, -2
"""In place of a column: the vertex is of a class that the model did not know; its label has not come."""
PAST = "past."
"""Begins the names of what outlives a cold restart: it is of decisions that were made, not of weights."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """What a model says of some vertices.

    Parameters
    ----------
    logits
        One row for each vertex; column ``i`` is the i-th known class. There is at least one known class.
    hidden
        The vectors below the output layer, one row for each vertex, where the model gives them.
    sight
        What there is to see of them in the graph, where they are a whole slice that is decided or looked back at.
    second
        Logits of the second model, where the detector asks for one; see `Detector.second`.

    Examples
    --------
    >>> len(Outputs(torch.zeros(5, 3)))
    5
    """

    logits: Tensor
    hidden: Tensor | None = None
    sight: Sight | None = None
    second: Tensor | None = None

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, rows: Tensor | slice) -> Outputs:
        """What it says of some of them; they are no whole slice, so there is nothing to see of them in the graph."""
        hidden, second = (None if part is None else part[rows] for part in (self.hidden, self.second))
        return Outputs(self.logits[rows], hidden, second=second)


class Detector(ABC):
    """Tells vertices of unseen classes from those of known ones; write a subclass as a frozen dataclass.

    A subclass has a loss, a score and a decision, and may fit a state after training. It holds its parameters and
    nothing else, so one training serves every threshold. `check_detector` tells whether it keeps the contract:

    * the order of the classes and the order of the vertices mean nothing;
    * a higher score means more unseen, and whoever scores higher than a rejected vertex is rejected too.

    Examples
    --------
    A detector that rejects a vertex whose largest logit is low:

    >>> from torch.nn import functional as F
    >>> @dataclass(frozen=True)
    ... class LargestLogit(Detector):
    ...     least: float = 0.0
    ...
    ...     def loss(self, logits, targets, counts, weights=None):
    ...         losses = F.cross_entropy(logits, targets, reduction="none")
    ...         return losses.mean() if weights is None else (weights * losses).sum() / weights.sum()
    ...
    ...     def score(self, outputs, state):
    ...         return -outputs.logits.amax(1).double()
    ...
    ...     def reject(self, outputs, state):
    ...         return self.score(outputs, state) > -self.least
    >>> LargestLogit(2.0).reject(Outputs(torch.tensor([[3.0, -1.0], [1.0, 0.0]])), {})
    tensor([False,  True])
    """

    version: ClassVar[int] = 0
    """Goes up when what an older one had kept would mean something else to this one; then a file of it is refused."""
    rehearsals: ClassVar[int] = 0
    """Number of times before the first task that a learner lives through, for `look_back` to have something to see."""

    @property
    def second(self) -> Detector | None:
        """Whose loss a second model is trained with, beside the first; None, as here, where one is enough.

        The learner trains it on the same vertices, from the same seed and as long, and `Outputs.second` are its logits.
        """
        return None

    @abstractmethod
    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:
        """Training loss of labelled vertices: a scalar that can be differentiated by the logits.

        Parameters
        ----------
        logits
            One row for each vertex, one column for each known class.
        targets
            The column of each vertex's class, as int64.
        counts
            Labelled training vertices of each class in the whole current window, as int64; the vertices given here
            may be a sample of them.
        weights
            Weight of each vertex in the mean over vertices; all alike where it is None.
        """

    def fit(self, outputs: Outputs, targets: Tensor, before: State) -> State:  # noqa: ARG002  # most have no state
        """State after training on a task; empty unless a subclass says otherwise.

        Parameters
        ----------
        outputs
            What the trained model says of the training vertices, in evaluation mode and without gradients.
        targets
            The column of each vertex's class, as int64. A known class may have no vertex.
        before
            The state of the last task, of as many classes or fewer; empty at first and after a cold restart.
        """
        return {}

    def look_back(self, outputs: Outputs, targets: Tensor, before: State) -> State:  # noqa: ARG002  # most do not
        """State after the labels have come of vertices that were decided; as it was unless a subclass says otherwise.

        Among them are real ones of classes that were unseen when they were decided. Whatever is to outlive a cold
        restart must have a name that begins with `PAST`.

        Parameters
        ----------
        outputs
            What the model said of a whole slice when it decided it; it has not learnt from the labels yet.
        targets
            The column of each vertex's class, as int64; `UNKNOWN` where the model did not know it, `UNLABELLED` where
            no label has come.
        before
            The state in force.
        """
        return before

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probability of each known class for each vertex, as float64; by default those of a softmax."""
        return torch.softmax(logits.double(), 1)

    def probability(self, logits: Tensor) -> Tensor:
        """Probability of each vertex's most likely known class, as float64."""
        return self.probabilities(logits).amax(1)

    @abstractmethod
    def score(self, outputs: Outputs, state: State) -> Tensor:
        """How unseen each vertex's class is, as float64: the higher, the more unseen."""

    @abstractmethod
    def reject(self, outputs: Outputs, state: State) -> Tensor:
        """Whether each vertex is held to be of an unseen class, as bool."""


def shares_of(logits: Tensor, weights: Tensor | None) -> Tensor:
    """Share of each vertex in a mean over vertices; all 0 where no vertex has weight.

    Examples
    --------
    >>> shares_of(torch.zeros(2, 5), torch.tensor([3, 1])).tolist(), shares_of(torch.zeros(2, 5), None).tolist()
    ([0.75, 0.25], [0.5, 0.5])
    """
    if weights is None:
        return logits.new_full((len(logits),), 1 / max(len(logits), 1))
    shares = weights.to(logits)
    total = shares.sum()
    return shares / torch.where(total > 0, total, 1)
