"""`OpenMax`: takes from the logits of classes whose mean is far, and gives it to an unseen class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor

from evergraph.detect import Decision, Outputs, Requirements, Softmax
from evergraph.detect.base import State, set_number
from evergraph_baselines.vectors import fitted

__all__ = ["OpenMax", "weibull"]

_ALIKE = 1e-6  # relative spread of distances below which there is no tail to fit
_STEEP = 20.0  # shape of a tail without spread: close to a step at its distance
_SHAPES = (1e-2, 1e6)  # between which the shape is looked for


@dataclass(frozen=True)
class OpenMax(Softmax):
    """Flags a vertex if the logits that far classes lose make an unseen class the most likely one.

    Each class has the mean of the logits of its training vertices, of those that are predicted correctly if there are
    any. A Weibull distribution is fitted to the largest distances from it. A vertex at the distance d from the mean of
    the class with its i-th largest logit, i = 0, 1, ..., alpha - 1, loses the share (alpha - i) / alpha · F(d) of this
    logit, where F is the distribution function. The sum of what is lost is the logit of an unseen class. The score is
    this logit minus the largest of the others; a vertex is flagged if it is above 0.

    Cross-entropy leaves open a constant that is added to all logits, and the loss of a negative logit would raise it.
    So the mean of each vertex's logits is subtracted first, and only positive logits lose. The source also flags a
    vertex whose largest probability is small; this is left out, because it needs a threshold. Distances are Euclidean
    (in the source a mixture with cosines), and the location of the Weibull distribution is 0.

    The state is ``means``, one row per class, and ``shape`` and ``scale``. A class with too few vertices has the tail
    of all classes. A known class without training vertices loses nothing.

    Source: Bendale and Boult, Towards Open Set Deep Networks, CVPR 2016.

    Parameters
    ----------
    tail
        Number of distances of each class that the distribution is fitted to, from 2 up; 20 in the source.
    alpha
        Number of largest logits that can lose, from 1 up. It is 10 in the source, for 1,000 classes. With 10 of 70
        classes, nearly all vertices are flagged.

    Examples
    --------
    >>> train = Outputs(torch.tensor([[9.0, 0.0], [8.0, 0.0], [7.5, 0.0], [0.0, 9.0], [0.0, 7.0], [0.0, 8.5]]))
    >>> detector = OpenMax()
    >>> state = detector.fit(train, torch.tensor([0, 0, 0, 1, 1, 1]), {})
    >>> detector.decide(Outputs(torch.tensor([[8.2, 0.0], [2.0, 0.0]])), state).flagged
    tensor([False,  True])
    """

    tail: int = 20
    alpha: int = 1

    def __post_init__(self) -> None:
        set_number(self, "tail", 2, whole=True)
        set_number(self, "alpha", 1, whole=True)

    @property
    def requires(self) -> Requirements:
        return Requirements()

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002
        x = _centred(outputs.logits).cpu().numpy()
        of, classes = targets.cpu().numpy(), x.shape[1]
        correct = x.argmax(1) == of
        means = np.full((classes, classes), np.nan)
        tails: list[NDArray[np.float64]] = []
        for column in range(classes):
            own = x[(of == column) & correct]
            own = own if len(own) else x[of == column]
            if len(own):
                means[column] = own.mean(0)
            tails.append(np.sort(np.linalg.norm(own - means[column], axis=1))[-self.tail :])
        everyone = np.sort(np.concatenate(tails))
        usual = weibull(everyone) or (_STEEP, max(float(everyone.max(initial=0)), float(np.abs(x).mean()), 1e-9))
        shape, scale = np.array([weibull(tail) or usual for tail in tails]).T
        arrays = {"means": means, "shape": shape.copy(), "scale": scale.copy()}
        return {name: torch.from_numpy(value).to(targets.device) for name, value in arrays.items()}

    def decide(self, outputs: Outputs, state: State) -> Decision:
        x = _centred(outputs.logits)
        revised, unseen = self.revised(x, state)
        score = unseen - revised.amax(1)
        return Decision(score, score > 0)

    def revised(self, x: Tensor, state: State) -> tuple[Tensor, Tensor]:
        """The centred logits after the loss, and the logit of an unseen class."""
        means, shape, scale = (fitted(state, name).to(x) for name in ("means", "shape", "scale"))
        distance = torch.cdist(x, means, compute_mode="donot_use_mm_for_euclid_dist")
        far = torch.nan_to_num(-torch.expm1(-((distance / scale) ** shape)), nan=0.0)
        alpha = min(self.alpha, x.shape[1])
        largest = torch.topk(x, alpha, dim=1).indices
        ranks = 1 - torch.arange(alpha, dtype=x.dtype, device=x.device) / alpha
        share = torch.zeros_like(x).scatter_(1, largest, ranks.expand(len(x), alpha)) * far
        lost = x.clamp(min=0) * share
        return x - lost, lost.sum(1)


def weibull(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """Shape and scale of the Weibull distribution with location 0 of maximum likelihood; None without spread.

    Examples
    --------
    >>> print(*map("{:.4f}".format, weibull(np.array([1.0, 2.0, 3.0]))), weibull(np.array([2.0, 2.0])))
    2.7386 2.2586 None
    """
    values = values[values > 0]
    if len(values) < 2 or np.ptp(values) <= _ALIKE * values.max():
        return None
    logs = np.log(values / values.max())  # at most 0, so no power of a value overflows

    def excess(shape: float) -> float:
        powers = np.exp(shape * logs)
        return float((powers @ logs) / powers.sum() - 1 / shape - logs.mean())

    shape = float(brentq(excess, *_SHAPES, xtol=1e-14, rtol=1e-14))
    return shape, float(values.max() * np.exp(shape * logs).mean() ** (1 / shape))


def _centred(logits: Tensor) -> Tensor:
    """Logits minus their mean; of a single class, which has no other to compare with, as they are."""
    x = logits.double()
    return x - x.mean(1, keepdim=True) if x.shape[1] > 1 else x
