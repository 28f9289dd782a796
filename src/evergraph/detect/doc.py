"""DOC and gDOC: one sigmoid for each known class; a vertex that no class claims is of an unseen one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.base import Decision, Detector, Outputs, State, shares_of
from evergraph.detect.cross_entropy import binary_cross_entropy
from evergraph.errors import InputError

__all__ = ["DOC", "GDOC"]


@dataclass(frozen=True)
class DOC(Detector):
    """Deep open classification: flags a vertex for which every known class is less likely than its threshold.

    The probability p_i of class i is the sigmoid of its logit, and the loss is binary cross-entropy, averaged over
    vertices and known classes. The score is the smallest τ_i - p_i, so a vertex is flagged exactly where its score is
    above 0; without ``alpha`` it ranks vertices as 1 minus the largest p_i does.

    The state is ``sd``, one float64 for each known class: how far p_i is from 1 on the class's own training vertices,
    as the standard deviation of these p_i and their mirror images 2 - p_i (2n points, 2n - 1 degrees of freedom). It
    is fitted whether ``alpha`` is set or not, so that ``alpha`` can be chosen after training. A known class without
    training vertices in the window keeps the ``sd`` fitted last, and one that was never fitted has NaN and is held to
    the plain ``threshold``. (The authors' code takes 0 for both, so that a class which leaves the window can never be
    predicted again.)

    Parameters
    ----------
    threshold
        The least probability that a class needs to claim a vertex, from 0 to 1.
    alpha
        Risk reduction: τ_i = max(threshold, 1 - alpha · sd_i). It can only flag more vertices than the plain
        threshold, the more so the smaller ``alpha`` is; ``inf`` and None leave the plain threshold.

    Examples
    --------
    >>> detector = DOC(threshold=0.5, alpha=3.0)
    >>> train = Outputs(torch.tensor([[6.0, -6.0], [4.0, -5.0], [-3.0, 2.0]]))
    >>> state = detector.fit(train, torch.tensor([0, 0, 1]), state={})
    >>> detector.thresholds(state, 2)
    tensor([0.9555, 0.5000], dtype=torch.float64)
    >>> new = Outputs(torch.tensor([[3.0, -1.0], [-2.0, 1.0]]))
    >>> detector.decide(new, state).flagged, DOC(0.5).decide(new, state).flagged
    (tensor([ True, False]), tensor([False, False]))
    """

    threshold: float = 0.5
    alpha: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise InputError(
                f"the argument threshold is {self.threshold}, which is no probability",
                fix="set threshold to a number from 0 to 1",
            )
        if self.alpha is not None and not self.alpha > 0:
            raise InputError(
                f"the argument alpha is {self.alpha}, which is not above 0",
                fix="set alpha to a number above 0 (3 is usual), or to None for the plain threshold",
            )
        # Plain numbers, and one way to say "plain threshold": a detector is compared, printed and saved.
        object.__setattr__(self, "threshold", float(self.threshold))
        alpha = None if self.alpha is None or math.isinf(self.alpha) else float(self.alpha)
        object.__setattr__(self, "alpha", alpha)

    def positive_weights(self, counts: Tensor) -> Tensor:
        """Weight of each class in the loss of its own vertices, as float64: 1.

        Examples
        --------
        >>> DOC().positive_weights(torch.tensor([8, 2, 0]))
        tensor([1., 1., 1.], dtype=torch.float64)
        """
        return torch.ones(len(counts), dtype=torch.float64, device=counts.device)

    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:
        """Binary cross-entropy, averaged over known classes and (weighted) over vertices; 0 where none has weight."""
        shares = shares_of(logits, weights) / max(logits.shape[1], 1)
        positive = self.positive_weights(counts).to(logits)[targets]
        return binary_cross_entropy(logits, targets, positive, shares)

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        """State ``sd`` of the known classes."""
        classes = outputs.logits.shape[1]
        own = outputs.logits.gather(1, targets.unsqueeze(1)).squeeze(1).double()
        # 1 - p is computed as sigmoid(-x), which keeps its digits where p is near 1.
        squares = torch.bincount(targets, torch.sigmoid(-own).square(), minlength=classes)
        counts = torch.bincount(targets, minlength=classes)
        sd = torch.sqrt(2 * squares / (2 * counts - 1).clamp(min=1))
        return {"sd": torch.where(counts > 0, sd, _deviations(state, classes, sd.device))}

    def thresholds(self, state: State, n_classes: int) -> Tensor:
        """Threshold τ_i of each of ``n_classes`` known classes, as float64.

        Examples
        --------
        >>> DOC(0.5, alpha=2.0).thresholds({"sd": torch.tensor([0.1, 0.4, torch.nan])}, 3)
        tensor([0.8000, 0.5000, 0.5000], dtype=torch.float64)
        """
        sd = _deviations(state, n_classes, None)
        plain = torch.full_like(sd, self.threshold)
        if self.alpha is None:
            return plain
        reduced = 1 - self.alpha * sd
        # Not maximum(): NaN (never fitted, or infinity times 0) must give the plain threshold.
        return torch.where(reduced > plain, reduced, plain)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Each p_i; they need not add up to 1."""
        return torch.sigmoid(logits.double())

    def probability(self, logits: Tensor) -> Tensor:
        """The largest p_i."""
        return torch.sigmoid(logits.amax(1).double())

    def decide(self, outputs: Outputs, state: State) -> Decision:
        """Score with the smallest τ_i - p_i over the known classes, and flag where p_i < τ_i for all of them."""
        logits = outputs.logits
        if self.alpha is None:
            score = self.threshold - self.probability(logits)
        else:
            limits = self.thresholds(state, logits.shape[1]).to(logits.device)
            score = (limits - torch.sigmoid(logits.double())).amin(1)
        return Decision(score, score > 0)


@dataclass(frozen=True)
class GDOC(DOC):
    """DOC for graphs: the loss makes up for the imbalance between a class and all the others.

    The loss of a vertex's own class i is weighted with w_i = (n - n_i) / n_i, where n_i of the n labelled training
    vertices of the window are of that class. As in the authors' code, the weight is on the vertices of the class only;
    the paper's text puts it on the whole output. Where the window has a single class, w_i would be 0 and nothing
    would pull its output up; there w_i is 1, as in `DOC`.

    Parameters
    ----------
    threshold
        The least probability that a class needs to claim a vertex, from 0 to 1.
    alpha
        Risk reduction, as in `DOC`.

    Examples
    --------
    >>> logits, targets = torch.tensor([[2.0, -2.0], [1.0, 0.0]]), torch.tensor([0, 1])
    >>> GDOC().loss(logits, targets, counts=torch.tensor([80, 20]))
    tensor(1.0611)
    >>> DOC().loss(logits, targets, counts=torch.tensor([80, 20]))
    tensor(0.5651)
    """

    threshold: float = 0.75

    def positive_weights(self, counts: Tensor) -> Tensor:
        """Weight w_i of each class in the loss of its own vertices, as float64; 0 for classes without any.

        Examples
        --------
        >>> GDOC().positive_weights(torch.tensor([8, 2, 0]))
        tensor([0.2500, 4.0000, 0.0000], dtype=torch.float64)
        >>> GDOC().positive_weights(torch.tensor([8, 0, 0]))
        tensor([1., 0., 0.], dtype=torch.float64)
        """
        n = counts.sum()
        weights = (n - counts).double() / counts.clamp(min=1)
        weights = torch.where(counts > 0, weights, 0)
        return torch.where((counts > 0) & (counts == n), 1, weights)


def _deviations(state: State, n_classes: int, device: torch.device | None) -> Tensor:
    """The state's ``sd`` for that many classes; NaN for those that came after it was fitted."""
    sd = torch.full((n_classes,), torch.nan, dtype=torch.float64, device=device)
    if "sd" in state:
        sd[: len(state["sd"])] = state["sd"]
    return sd
