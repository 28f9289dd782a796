"""The detector contract. Read this page before you write a detector.

A detector decides which vertices are flagged as unseen. Write it as a frozen dataclass that derives from `Detector` and
holds settings only. For each task the learner calls:

1. `Detector.observe`, if labels of decided slices have arrived since and `Requirements.observe` is set;
2. `Detector.loss`, in each training step;
3. `Detector.fit`, once after training, unless `Requirements.fit` is turned off;
4. `Detector.decide`, which returns a score and a flag for each vertex of the slice.

What `fit` and `observe` return is the detector's state. The learner keeps it (`FittedDetector`), saves it, and passes
it to the next call. Call `check_detector` in the tests of your own detector: it checks all of this.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from evergraph.errors import InputError

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
    "PastGraph",
    "Requirements",
    "State",
]

State = Mapping[str, Tensor]
"""What a detector has fitted and observed: tensors by name, not nested, so that they can be saved as safetensors."""
UNKNOWN, UNLABELLED = -1, -2
"""Targets in `Detector.observe` that are not columns: a class that the model did not know; no label yet."""
PAST = "past."
"""Prefix of names in the state that survive a cold restart: they describe past decisions, not the weights."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs of a model for some vertices.

    Parameters
    ----------
    logits
        One row per vertex, one column per known class. There is at least one known class.
    hidden
        Vectors below the output layer, one row per vertex; None if the model has none.
    context
        The slice in its graph; set if the vertices are a whole slice and the detector requires it.
    auxiliary_logits
        Logits of the auxiliary model; set if the detector requires one.
    stacked_logits
        The logits together with the classes of older neighbours, from which the most likely class follows; None if
        they are not read. Detectors judge the model's own logits.
    """

    logits: Tensor
    hidden: Tensor | None = None
    context: SliceContext | None = None
    auxiliary_logits: Tensor | None = None
    stacked_logits: Tensor | None = None

    @property
    def best_logits(self) -> Tensor:
        """The logits from which the most likely class follows."""
        return self.logits if self.stacked_logits is None else self.stacked_logits

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, rows: Tensor | slice) -> Outputs:
        """Outputs for some of the vertices, without context, because they are not a whole slice."""
        hidden, auxiliary, stacked = (
            None if part is None else part[rows] for part in (self.hidden, self.auxiliary_logits, self.stacked_logits)
        )
        return Outputs(self.logits[rows], hidden, auxiliary_logits=auxiliary, stacked_logits=stacked)


class Decision(NamedTuple):
    """A detector's decision on some vertices.

    Attributes
    ----------
    score
        One float64 per vertex: the higher, the more likely is its class unseen.
    flagged
        One bool per vertex: whether it is flagged as unseen.
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
        Call `Detector.observe` when labels of a decided slice have arrived.
    replay
        Number of slices before the first task that a temporary learner decides and observes, so that the detector has
        observed something before the first task.
    context
        Set `Outputs.context` when a slice is decided or observed.
    graphs
        Fit the detector to other graphs (`Detector.fitted_on`) where detectors are compared by leaving graphs out.
    auxiliary
        Train an auxiliary model with this detector's loss, on the same vertices, from the same seed and for as many
        steps, and set `Outputs.auxiliary_logits`. It doubles the training time.

    Examples
    --------
    >>> Requirements(fit=False, context=True) | Requirements(fit=False, replay=3)
    Requirements(fit=False, observe=False, replay=3, context=True, auxiliary=None, graphs=False)
    """

    fit: bool = True
    observe: bool = False
    replay: int = 0
    context: bool = False
    auxiliary: Detector | None = None
    graphs: bool = False

    def __or__(self, other: Requirements) -> Requirements:
        """The requirements of both; if both need an auxiliary model, that of the first."""
        return Requirements(
            self.fit or other.fit,
            self.observe or other.observe,
            max(self.replay, other.replay),
            self.context or other.context,
            self.auxiliary or other.auxiliary,
            self.graphs or other.graphs,
        )


class PastGraph(Protocol):
    """A graph that a detector can learn from: its slices, with the outputs of a model and the true classes."""

    @property
    def name(self) -> str:
        """Name of the graph."""

    @property
    def family(self) -> str:
        """Name of its family: graphs of one kind."""

    def slices(self) -> Iterable[tuple[Outputs, Tensor, bool]]:
        """Yield outputs and targets of each slice, as in `Detector.observe`, and whether it was a task."""


class Detector(ABC):
    """Base class of detectors: a loss to train with and a decision for each vertex.

    The contract, which `check_detector` checks:

    * neither the order of the classes nor the order of the vertices matters;
    * a higher score means more likely unseen, and a vertex that scores higher than a flagged one is flagged, too;
    * no method changes what it is given.

    Examples
    --------
    A detector that flags a vertex if its largest logit is low:

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
    """Increase it when the state has a new meaning. Saved learners with another version are refused."""

    @property
    def requires(self) -> Requirements:
        """What the learner must provide; by default only the call of `fit`."""
        return Requirements()

    @abstractmethod
    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the training loss of labelled vertices: a scalar that is differentiable with respect to the logits.

        Parameters
        ----------
        logits
            One row per vertex, one column per known class.
        targets
            Column of each vertex's class, as int64.
        counts
            Number of labelled training vertices of each class in the whole window, as int64. The vertices passed here
            may be a sample of them.
        weights
            Weight of each vertex in the mean over vertices; None for equal weights.
        """

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002  # most have no state
        """Return the state after training on a task; empty by default.

        Parameters
        ----------
        outputs
            The trained model's outputs for the labelled training vertices, in evaluation mode and without gradients.
        targets
            Column of each vertex's class, as int64. A known class may have no vertex.
        state
            State of the previous task, which had at most as many classes. After a cold restart it has only the names
            that start with `PAST`.
        """
        return {}

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002  # most do not
        """Return the state after labels of a decided slice have arrived; by default unchanged.

        Some of these vertices belong to classes that were unseen when they were decided: real examples to calibrate
        on. Give names that start with `PAST` to what must survive a cold restart. The learner calls this method only
        if ``observe`` is set in `requires`.

        Parameters
        ----------
        outputs
            Outputs for the whole slice of the model that decided it, before it is trained on the new labels.
        targets
            Column of each vertex's class, as int64; `UNKNOWN` if the model did not know the class, `UNLABELLED` if
            there is no label yet.
        state
            The current state.
        """
        return state

    @abstractmethod
    def decide(self, outputs: Outputs, state: State) -> Decision:
        """Return a score and a flag for each vertex."""

    def fitted_on(self, graphs: Sequence[PastGraph]) -> Self:  # noqa: ARG002  # most learn from one graph only
        """Return the detector after it has learnt from other graphs; by default unchanged.

        `evergraph compare --leave-one-out` calls it if ``graphs`` is set in `requires`, with the graphs of all other
        families. Choose thresholds and other settings here, too, so that they are chosen without the family.
        """
        return self

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probability of each known class for each vertex, as float64; by default those of a softmax."""
        return torch.softmax(logits.double(), 1)

    def probability(self, logits: Tensor) -> Tensor:
        """Probability of each vertex's most likely known class, as float64."""
        return self.probabilities(logits).amax(1)

    def class_probabilities(self, outputs: Outputs) -> Tensor:
        """Probability of each known class, with the classes of older neighbours if they are read."""
        stacked = outputs.stacked_logits
        return self.probabilities(outputs.logits) if stacked is None else torch.softmax(stacked.double(), 1)


@dataclass(frozen=True, eq=False)
class FittedDetector:
    """A detector and its state, as a learner keeps and saves them. Each method returns a new object.

    Parameters
    ----------
    detector
        The settings.
    state
        What was fitted and observed.

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
        """Fit to the outputs for training vertices; a cold restart drops all of the state but the past."""
        state = {name: value for name, value in self.state.items() if name.startswith(PAST)}
        if outputs is not None and self.detector.requires.fit:
            state |= self.detector.fit(outputs, targets, state if cold else self.state)
        return replace(self, state=state)

    def observe(self, outputs: Outputs, targets: Tensor) -> FittedDetector:
        """Observe the labels of a decided slice, if the detector requires it."""
        if not self.detector.requires.observe:
            return self
        return replace(self, state=self.detector.observe(outputs, targets, self.state))

    def decide(self, outputs: Outputs) -> Decision:
        """Return a score and a flag for each vertex."""
        return self.detector.decide(outputs, self.state)

    def to(self, device: str | torch.device) -> FittedDetector:
        """Move the state to a device."""
        return replace(self, state={name: value.to(device) for name, value in self.state.items()})


def set_number(
    part: object,
    name: str,
    low: float = 0,
    high: float = math.inf,
    *,
    above: bool = False,
    whole: bool = False,
    hint: str = "",
) -> None:
    """Check a number among the settings of a frozen dataclass, and store it as a plain float or int.

    Plain numbers make equal settings compare, print and save alike. ``above`` leaves out the lower limit.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Half:
    ...     share: float = 0.5
    >>> set_number(Half(2.0), "share", 0, 1)
    Traceback (most recent call last):
    evergraph.errors.InputError: the argument share is 2.0. Set share to a number from 0 to 1.
    """
    value: Any = getattr(part, name)
    valid = not isinstance(value, bool) and isinstance(value, Integral if whole else Real) and math.isfinite(value)
    if not valid or not low <= value <= high or (above and value == low):
        limits = f"{'above' if above else 'from'} {low:g}" + (
            f" to {high:g}" if math.isfinite(high) else " up" * (not above)
        )
        raise InputError(
            f"the argument {name} is {value!r}",
            fix=f"set {name} to a {'whole ' if whole else ''}number {limits}{hint}",
        )
    object.__setattr__(part, name, int(value) if whole else float(value))
