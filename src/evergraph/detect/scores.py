"""Scores: one number per vertex, higher means more likely unseen. `PostHoc` combines one with a threshold.

`MSP` and `Energy` score a model's outputs; `Relative` is made of another score. The package ``evergraph_baselines``
has more scores, for comparison.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from evergraph.detect.base import PAST, Outputs, Requirements, State, set_number
from evergraph.errors import InputError

__all__ = ["MSP", "Energy", "Relative", "Score"]

_ROUNDING, _NOTHING = 1e-6, 1e-20  # a spread below this, relative to the largest score or absolute, may be rounding


class Score(ABC):
    """Base class of scores: write a subclass as a frozen dataclass that holds settings only.

    Neither the order of the classes nor the order of the vertices matters. What a score fits after training is its
    state, as in `Detector`.

    Examples
    --------
    A score that is high if the two largest logits are close to each other:

    >>> @dataclass(frozen=True)
    ... class Margin(Score):
    ...     def compute(self, outputs, state):
    ...         first, second = outputs.logits.double().topk(2, dim=1).values.T
    ...         return second - first
    >>> Margin().compute(Outputs(torch.tensor([[5.0, 0.0, 1.0], [2.0, 2.5, 0.0]])), {})
    tensor([-4.0000, -0.5000], dtype=torch.float64)
    """

    reads_outputs: ClassVar[bool] = True
    """Whether it scores a model's outputs; if not, the prefix ``relative-`` is refused."""

    @property
    def requires(self) -> Requirements:
        """What the learner must provide; by default only the call of `fit`."""
        return Requirements()

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002  # most have no state
        """Return the state after training on a task, as in `Detector.fit`; empty by default."""
        return {}

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002  # most do not
        """Return what changes in the state when labels of a decided slice arrive; nothing by default.

        Parameters are those of `Detector.observe`. Unlike there, the result is merged into the state.
        """
        return {}

    @abstractmethod
    def compute(self, outputs: Outputs, state: State) -> Tensor:
        """Return the score of each vertex, as float64."""


# --- scores of a model's outputs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MSP(Score):
    """1 minus the largest softmax probability (maximum softmax probability).

    Source: Hendrycks and Gimpel, A Baseline for Detecting Misclassified and Out-of-Distribution Examples, ICLR 2017.

    Examples
    --------
    >>> MSP().compute(Outputs(torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0], [99.0, 0.0, 0.0]])), {})
    tensor([2.4676e-04, 6.6667e-01, 2.0224e-43], dtype=torch.float64)
    """

    def compute(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        # The odds against the most likely class, (1 - p) / p, summed over the others: precise even if p is close to 1.
        x = outputs.logits.double()
        likeliest = x.argmax(1, keepdim=True)
        odds = torch.exp(x - x.gather(1, likeliest)).scatter(1, likeliest, 0.0).sum(1)
        return odds / (1 + odds)


@dataclass(frozen=True)
class Energy(Score):
    """-T · log Σ exp(logit / T) over the known classes: low if some class has a large logit.

    Source: Liu et al., Energy-based Out-of-distribution Detection, NeurIPS 2020.

    Parameters
    ----------
    temperature
        T, above 0. The lower, the closer to minus the largest logit.

    Examples
    --------
    >>> Energy().compute(Outputs(torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0]])), {})
    tensor([-9.0002, -1.0986], dtype=torch.float64)
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        set_number(self, "temperature", above=True, hint=" (1 is usual)")

    def compute(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        x = outputs.logits.double()
        top = x.amax(1, keepdim=True)
        # Differences from the largest are at most 0, so that they overflow at no temperature.
        return -(top.squeeze(1) + self.temperature * torch.logsumexp((x - top) / self.temperature, 1))


# --- scores made of other scores -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Relative(Score):
    """Another score, standardised by its values on the training vertices that are predicted as the same class.

    (x - mean_c) / sd_c, where c is the class predicted for the vertex. Raw scores drift from task to task, because a
    model under warm restarts gets more and more confident; relative scores do not.

    The state is ``mean`` and ``sd``, one float64 per known class, ``mean_of_all`` and ``sd_of_all``, and the state of
    the other score. Classes that no training vertex is predicted as have the values of all. If all training vertices
    score alike, every deviation is 1.

    Parameters
    ----------
    score
        The other score.
    weight
        Number of vertices, above 0, that the values of all training vertices count for in those of a class.

    Examples
    --------
    >>> score, train = Relative(Energy(0.01), weight=2), torch.tensor([[9.0, 0.0], [7.0, 0.0], [0.0, 2.0]])
    >>> state = score.fit(Outputs(train), torch.tensor([0, 0, 1]), state={})
    >>> state["mean"], state["mean_of_all"]
    (tensor([-7.0000, -4.6667], dtype=torch.float64), tensor(-6., dtype=torch.float64))
    >>> score.compute(Outputs(torch.tensor([[7.0, 0.0], [0.0, 7.0]])), state)
    tensor([ 0.0000, -0.9707], dtype=torch.float64)
    """

    score: Score
    weight: float = 10.0

    def __post_init__(self) -> None:
        if not isinstance(self.score, Score):
            raise InputError(f"the argument score is {self.score!r}", fix="pass a score of evergraph.detect.scores")
        set_number(self, "weight", above=True, hint=" (10 is usual)")

    @property
    def requires(self) -> Requirements:
        return self.score.requires

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        inner = self.score.fit(outputs, targets, inner_state(state, "score"))
        x = self.score.compute(outputs, inner)
        rows, columns, parts = predicted(outputs.logits)
        own, parts = x[rows], parts[rows]
        classes, everyone = outputs.logits.shape[1], max(len(x), 1)

        def sums(values: Tensor) -> Tensor:
            return torch.bincount(columns, values, minlength=classes)

        overall = x.sum() / everyone
        variance = (x - overall).square().sum() / everyone
        counts = sums(parts)
        mean = sums(parts * own) / torch.where(counts > 0, counts, 1)
        squares = sums(parts * (own - mean[columns]).square())
        sd = torch.sqrt((squares + self.weight * variance) / (counts + self.weight))
        least = torch.cat([_ROUNDING * x.abs(), x.new_full((1,), _NOTHING)]).amax()
        alike = variance.sqrt() <= least
        return {
            "mean": (counts * mean + self.weight * overall) / (counts + self.weight),
            "sd": torch.where(alike, 1, sd.clamp(min=least)),
            "mean_of_all": overall,
            "sd_of_all": torch.where(alike, 1, variance.sqrt()),
            **outer_state(inner, "score"),
        }

    def observe(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        return outer_state(self.score.observe(outputs, targets, inner_state(state, "score")), "score")

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        if "mean" not in state:
            raise InputError("the state has no 'mean'", fix="pass the state that the score's fit returned")
        x = self.score.compute(outputs, inner_state(state, "score"))
        # Classes that were added after the fit have the values of all.
        more = max(outputs.logits.shape[1] - len(state["mean"]), 0)
        mean, sd = (torch.cat([state[name], state[f"{name}_of_all"].expand(more)]).to(x) for name in ("mean", "sd"))
        rows, columns, parts = predicted(outputs.logits)
        return parts * torch.zeros_like(x).index_add_(0, rows, (x[rows] - mean[columns]) / sd[columns])


def predicted(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and columns of predicted classes, and for each row the part that each of its predicted classes gets.

    A vertex has several predicted classes if their logits are equal: they share it in equal parts.
    """
    largest = logits == logits.amax(1, keepdim=True)
    rows, columns = torch.nonzero(largest, as_tuple=True)
    return rows, columns, 1 / largest.sum(1).double()


def inner_state(state: State, label: str) -> State:
    """The part of a state that belongs to the score with a label within another score.

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
    """The state of a score within another score, with a label before its names: the reverse of `inner_state`."""
    return {
        f"{PAST}{label}/{name.removeprefix(PAST)}" if name.startswith(PAST) else f"{label}/{name}": value
        for name, value in state.items()
    }
