"""The contract of every detector, and a detector together with what it has fitted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from evergraph.inputs.slice_context import SliceContext

__all__ = [
    "PAST",
    "UNKNOWN",
    "UNLABELLED",
    "Decision",
    "Detector",
    "FittedDetector",
    "Outputs",
    "Requirements",
    "State",
]

State = Mapping[str, Tensor]
"""All that a detector has fitted and observed: a flat dict of tensors by name, which can be saved as safetensors."""
UNKNOWN, UNLABELLED = -1, -2
"""In place of a column: the model did not know the vertex's class; the vertex has no label yet."""
PAST = "past."
"""Prefix of state that a cold restart keeps, because it describes past decisions and not the weights."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """A model's outputs for some vertices.

    Parameters
    ----------
    logits
        One row for each vertex; column ``i`` is the i-th known class. There is at least one known class.
    hidden
        The vectors below the output layer, one row for each vertex, where the model gives them.
    context
        The slice in its graph, where the vertices are a whole slice and the detector requires it.
    auxiliary_logits
        Logits of the auxiliary model, where the detector requires one.

    Examples
    --------
    >>> len(Outputs(torch.zeros(5, 3)))
    5
    """

    logits: Tensor
    hidden: Tensor | None = None
    context: SliceContext | None = None
    auxiliary_logits: Tensor | None = None

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, rows: Tensor | slice) -> Outputs:
        """The outputs for some of the vertices; without context, because they are no whole slice."""
        hidden, auxiliary = (None if part is None else part[rows] for part in (self.hidden, self.auxiliary_logits))
        return Outputs(self.logits[rows], hidden, auxiliary_logits=auxiliary)


class Decision(NamedTuple):
    """A detector's decision on some vertices.

    Attributes
    ----------
    score
        How unseen each vertex's class looks, as float64: higher means more unseen.
    flagged
        Whether each vertex is flagged as unseen, as bool.
    """

    score: Tensor
    flagged: Tensor


@dataclass(frozen=True)
class Requirements:
    """What a detector or a score needs from the learner.

    Parameters
    ----------
    fit
        Call `Detector.fit` after training. It costs one forward pass over the training vertices.
    observe
        Call `Detector.observe` when labels of a decided slice have come.
    replay
        Number of slices before the first task that are decided and observed by a second learner first, so that the
        first task has a past.
    context
        Set `Outputs.context` when a slice is decided or observed.
    auxiliary
        Train an auxiliary model with this detector's loss, on the same vertices, from the same seed and for as many
        steps, and set `Outputs.auxiliary_logits`.

    Examples
    --------
    >>> Requirements(fit=False, context=True) | Requirements(fit=False, replay=3)
    Requirements(fit=False, observe=False, replay=3, context=True, auxiliary=None)
    """

    fit: bool = True
    observe: bool = False
    replay: int = 0
    context: bool = False
    auxiliary: Detector | None = None

    def __or__(self, other: Requirements) -> Requirements:
        """The requirements of both; if both need an auxiliary model, that of the first."""
        return Requirements(
            self.fit or other.fit,
            self.observe or other.observe,
            max(self.replay, other.replay),
            self.context or other.context,
            self.auxiliary or other.auxiliary,
        )


class Detector(ABC):
    """Tells vertices of unseen classes from those of known classes; write a subclass as a frozen dataclass.

    A subclass holds its settings and nothing else. It has a loss and a decision, and may fit a state after training and
    update it when labels come. The learner keeps the state (`FittedDetector`), so one training serves every threshold.
    `check_detector` checks the contract:

    * the order of the classes and the order of the vertices do not matter;
    * a higher score means more unseen, and every vertex that scores higher than a flagged one is flagged.

    Examples
    --------
    A detector that flags a vertex whose largest logit is low:

    >>> from torch.nn import functional as F
    >>> @dataclass(frozen=True)
    ... class LargestLogit(Detector):
    ...     least: float = 0.0
    ...
    ...     def loss(self, logits, targets, counts, weights=None):
    ...         losses = F.cross_entropy(logits, targets, reduction="none")
    ...         return losses.mean() if weights is None else (weights * losses).sum() / weights.sum()
    ...
    ...     def decide(self, outputs, state):
    ...         score = -outputs.logits.amax(1).double()
    ...         return Decision(score, score > -self.least)
    >>> LargestLogit(2.0).decide(Outputs(torch.tensor([[3.0, -1.0], [1.0, 0.0]])), {}).flagged
    tensor([False,  True])
    """

    version: ClassVar[int] = 0
    """Increase it when the state of an older version would be misread; files of other versions are refused."""

    @property
    def requires(self) -> Requirements:
        """What the learner must provide; by default only the call of `fit`."""
        return Requirements()

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

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002  # most have no state
        """State after training on a task; empty by default.

        Parameters
        ----------
        outputs
            The trained model's outputs for the labelled training vertices, in evaluation mode and without gradients.
        targets
            The column of each vertex's class, as int64. A known class may have no vertex.
        state
            The state of the last task, of as many classes or fewer; after a cold restart only the names with `PAST`.
        """
        return {}

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002  # most do not
        """State after labels of a decided slice have come; unchanged by default.

        Some of these vertices are of classes that were unseen when they were decided. State that must outlive a cold
        restart needs a name that starts with `PAST`. Set ``observe`` in `requires`, or this is never called.

        Parameters
        ----------
        outputs
            The model's outputs for a whole slice when it was decided; it has not learnt from the labels yet.
        targets
            The column of each vertex's class, as int64; `UNKNOWN` where the model did not know it, `UNLABELLED` where
            no label has come.
        state
            The state in force.
        """
        return state

    @abstractmethod
    def decide(self, outputs: Outputs, state: State) -> Decision:
        """Score each vertex, and flag those that are taken for unseen."""

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probability of each known class for each vertex, as float64; by default those of a softmax."""
        return torch.softmax(logits.double(), 1)

    def probability(self, logits: Tensor) -> Tensor:
        """Probability of each vertex's most likely known class, as float64."""
        return self.probabilities(logits).amax(1)


@dataclass(frozen=True, eq=False)
class FittedDetector:
    """A detector with its state: what a learner keeps and saves. Each step returns a new one.

    Parameters
    ----------
    detector
        The settings.
    state
        All that was fitted and observed.

    Examples
    --------
    >>> from evergraph.detect import GDOC
    >>> outputs = Outputs(torch.tensor([[3.0, -1.0], [0.0, 0.5]]))
    >>> fitted = FittedDetector(GDOC(0.75)).fit(outputs, torch.tensor([0, 1]))
    >>> sorted(fitted.state), fitted.decide(outputs).flagged
    (['sd'], tensor([False,  True]))
    """

    detector: Detector
    state: State = field(default_factory=dict)

    def fit(self, outputs: Outputs | None, targets: Tensor, *, cold: bool = False) -> FittedDetector:
        """Fit to the outputs for training vertices; after a cold restart only what was observed is kept."""
        state = {name: value for name, value in self.state.items() if name.startswith(PAST)}
        if outputs is not None and self.detector.requires.fit:
            state |= self.detector.fit(outputs, targets, state if cold else self.state)
        return replace(self, state=state)

    def observe(self, outputs: Outputs, targets: Tensor) -> FittedDetector:
        """Take in the labels of a decided slice."""
        if not self.detector.requires.observe:
            return self
        return replace(self, state=self.detector.observe(outputs, targets, self.state))

    def decide(self, outputs: Outputs) -> Decision:
        """Score each vertex, and flag those that are taken for unseen."""
        return self.detector.decide(outputs, self.state)

    def to(self, device: str | torch.device) -> FittedDetector:
        """The same with its state on a device."""
        return replace(self, state={name: value.to(device) for name, value in self.state.items()})


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


def plain_number(value: object) -> float:
    """A number as a plain float, for parameters are compared, printed and saved; NaN for what is no number.

    Examples
    --------
    >>> plain_number(3), plain_number("3")
    (3.0, nan)
    """
    return math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
