"""DOC and gDOC: one sigmoid per known class; a vertex is flagged if every class is too unlikely."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.base import Decision, Detector, Outputs, State, set_number
from evergraph.detect.cross_entropy import binary_cross_entropy, of_readout, shares_of

__all__ = ["DOC", "GDOC"]


@dataclass(frozen=True)
class DOC(Detector):
    """Deep open classification: flags a vertex if the probability of every known class is below its threshold.

    The probability p_i of class i is the sigmoid of its logit. The loss is binary cross-entropy, averaged over vertices
    and known classes. The score is the smallest τ_i - p_i, so a vertex is flagged if its score is above 0. Without
    ``alpha`` the score ranks vertices like 1 minus the largest p_i.

    The state is ``sd``, one float64 per known class: the distance of p_i from 1 on the class's own training vertices,
    as the standard deviation of these p_i and their mirror images 2 - p_i (2n points, 2n - 1 degrees of freedom). It
    is fitted even without ``alpha``, so that you can choose ``alpha`` after training. A known class without training
    vertices in the window keeps its last ``sd``. A class that was never fitted has NaN and the plain ``threshold``.
    (The authors' code uses 0 in both cases, so that a class that leaves the window is never predicted again.)

    Parameters
    ----------
    threshold
        Smallest probability, from 0 to 1, at which a class is accepted.
    alpha
        Risk reduction, above 0: τ_i = max(threshold, 1 - alpha · sd_i). It can only flag more vertices than the plain
        threshold; the smaller ``alpha``, the more. None and ``inf`` keep the plain threshold.

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
        set_number(self, "threshold", 0, 1)
        if self.alpha == math.inf:
            object.__setattr__(self, "alpha", None)
        if self.alpha is not None:
            set_number(self, "alpha", above=True, hint=" (3 is usual), or to None for the plain threshold")

    def positive_weights(self, counts: Tensor) -> Tensor:
        """Weight of each class in the loss of its own vertices, as float64: 1."""
        return torch.ones(len(counts), dtype=torch.float64, device=counts.device)

    @of_readout
    def loss(self, logits: Tensor, targets: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:
        shares = shares_of(logits, weights) / max(logits.shape[1], 1)
        positive = self.positive_weights(counts).to(shares)[targets]
        return binary_cross_entropy(logits, targets, positive, shares)

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        classes = outputs.logits.shape[1]
        own = outputs.logits.gather(1, targets.unsqueeze(1)).squeeze(1).double()
        # 1 - p is computed as sigmoid(-x), which is precise even if p is close to 1.
        squares = torch.bincount(targets, torch.sigmoid(-own).square(), minlength=classes)
        counts = torch.bincount(targets, minlength=classes)
        sd = torch.sqrt(2 * squares / (2 * counts - 1).clamp(min=1))
        return {"sd": torch.where(counts > 0, sd, _deviations(state, classes, sd.device))}

    def thresholds(self, state: State, n_classes: int) -> Tensor:
        """Threshold τ_i of each of ``n_classes`` known classes, as float64."""
        sd = _deviations(state, n_classes, None)
        plain = torch.full_like(sd, self.threshold)
        if self.alpha is None:
            return plain
        reduced = 1 - self.alpha * sd
        # Not maximum(): NaN must give the plain threshold.
        return torch.where(reduced > plain, reduced, plain)

    def probabilities(self, logits: Tensor) -> Tensor:
        return torch.sigmoid(logits.double())

    def probability(self, logits: Tensor) -> Tensor:
        return torch.sigmoid(logits.amax(1).double())

    def decide(self, outputs: Outputs, state: State) -> Decision:
        logits = outputs.logits
        if self.alpha is None:
            score = self.threshold - self.probability(logits)
        else:
            limits = self.thresholds(state, logits.shape[1]).to(logits.device)
            score = (limits - torch.sigmoid(logits.double())).amin(1)
        return Decision(score, score > 0)


@dataclass(frozen=True)
class GDOC(DOC):
    """DOC for graphs: the loss compensates for the imbalance between a class and all others.

    The loss of a vertex's own class i is weighted by w_i = (n - n_i) / n_i, where n_i of the n labelled training
    vertices of the window belong to that class. As in the authors' code, the weight applies to the vertices of the
    class only; the paper's text applies it to the whole output. If the window has a single class, its weight is 1
    instead of 0, as in `DOC`, or nothing would raise its output.

    Parameters
    ----------
    threshold, alpha
        As in `DOC`. The default threshold has the highest mean MCC over 21 graphs (`paper/results/thresholds`).

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
        """Weight w_i of each class in the loss of its own vertices, as float64; 0 for classes without vertices.

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
    """The state's ``sd``, with NaN for classes that were added after it was fitted."""
    sd = torch.full((n_classes,), torch.nan, dtype=torch.float64, device=device)
    if "sd" in state:
        sd[: len(state["sd"])] = state["sd"]
    return sd
