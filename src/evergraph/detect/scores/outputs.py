"""Scores of a model's outputs: probabilities, logits, distances of hidden vectors, and an auxiliary model's logits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from evergraph.detect.base import Outputs, Requirements, State, plain_number
from evergraph.detect.doc import GDOC
from evergraph.detect.scores.base import Score
from evergraph.errors import InputError

__all__ = ["MSP", "AuxiliaryModel", "Energy", "Entropy", "Mahalanobis", "MaxLogit", "Nearest"]

_FAR = 1e3  # exp of minus this is 0 in double precision
_ROWS = 1 << 14  # vertices whose distances to all classes are computed at once
_ROUNDING = 1e-6  # spread, relative to the largest value, that may be nothing but rounding
_BLOCK = 1 << 22  # distances that are in memory at once, unless a single vertex has more


@dataclass(frozen=True)
class MSP(Score):
    """1 minus the largest softmax probability.

    It is summed over the other classes, so it keeps its digits where the model is all but certain.

    Source: Hendrycks and Gimpel, A Baseline for Detecting Misclassified and Out-of-Distribution Examples, ICLR 2017.

    Examples
    --------
    >>> MSP().compute(Outputs(torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0], [99.0, 0.0, 0.0]])), {})
    tensor([2.4676e-04, 6.6667e-01, 2.0224e-43], dtype=torch.float64)
    """

    def compute(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """The score of each vertex."""
        odds = odds_against_likeliest(outputs.logits)
        return odds / (1 + odds)


@dataclass(frozen=True)
class MaxLogit(Score):
    """Minus the largest logit: unlike a softmax it does not forget how large the logits are.

    Source: Hendrycks et al., Scaling Out-of-Distribution Detection for Real-World Settings, ICML 2022.

    Examples
    --------
    >>> MaxLogit().compute(Outputs(torch.tensor([[9.0, 0.0, 0.0], [1.0, -8.0, -8.0]])), {})
    tensor([-9., -1.], dtype=torch.float64)
    """

    def compute(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """The score of each vertex."""
        return -outputs.logits.amax(1).double()


@dataclass(frozen=True)
class Energy(Score):
    """-T · log Σ exp(logit / T) over the known classes: low where some class has a large logit.

    Source: Liu et al., Energy-based Out-of-distribution Detection, NeurIPS 2020.

    Parameters
    ----------
    temperature
        T, above 0: the lower, the nearer to minus the largest logit (`MaxLogit`).

    Examples
    --------
    >>> Energy().compute(Outputs(torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0]])), {})
    tensor([-9.0002, -1.0986], dtype=torch.float64)
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        temperature = plain_number(self.temperature)
        if not 0 < temperature < math.inf:
            raise InputError(
                f"the argument temperature is {self.temperature!r}, which is no number above 0",
                fix="set temperature to a number above 0 (1 is usual)",
            )
        object.__setattr__(self, "temperature", temperature)

    def compute(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """The score of each vertex."""
        x = outputs.logits.double()
        top = x.amax(1, keepdim=True)
        # Differences from the largest are at most 0, so that no temperature makes them overflow.
        return -(top.squeeze(1) + self.temperature * torch.logsumexp((x - top) / self.temperature, 1))


@dataclass(frozen=True)
class Entropy(Score):
    """Entropy of the softmax, in nats: from 0 (certain) to log(classes) (no class is more likely than another).

    Source: Shannon, A Mathematical Theory of Communication, 1948; a usual baseline for unseen classes.

    Examples
    --------
    >>> Entropy().compute(Outputs(torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 0.0]])), {})
    tensor([0.0025, 1.0986], dtype=torch.float64)
    """

    def compute(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """The score of each vertex."""
        # With g the distances to the largest logit, -log p = g + log Σ exp(-g), which has no large terms to cancel.
        x = outputs.logits.double()
        odds = odds_against_likeliest(x)
        below = (x.amax(1, keepdim=True) - x).clamp(max=_FAR)
        return torch.log1p(odds) + (below * torch.exp(-below)).sum(1) / (1 + odds)


@dataclass(frozen=True)
class Mahalanobis(Score):
    """Distance of a vertex's hidden vector to the nearest class mean, by one covariance that all classes share.

    It ranks as the squared distances of the source do. Where the model gives no hidden vectors, the logits are used
    instead.

    The state is ``means``, a row for each known class, and ``covariance``, that of the training vertices around the
    means of their classes; both are float64. Shrinkage is not part of it, so that it can be chosen after training. A
    known class without training vertices keeps the mean fitted last, as long as the hidden vectors are as wide as they
    were; one that was never fitted has NaN and is passed over. Where no class has a mean, all vertices score 0.

    Source: Lee et al., A Simple Unified Framework for Detecting Out-of-Distribution Samples, NeurIPS 2018.

    Parameters
    ----------
    shrinkage
        Share of the identity, times the mean variance, in the covariance: above 0, so that directions in which the
        training vertices do not spread can be measured, to 1, where only the variance counts.

    Examples
    --------
    >>> score, targets = Mahalanobis(), torch.tensor([0, 0, 1, 1])
    >>> hidden = torch.tensor([[0.0, 1.0], [0.0, 3.0], [4.0, 1.0], [4.0, 3.0]])
    >>> state = score.fit(Outputs(torch.zeros(4, 2), hidden), targets, state={})
    >>> state["means"].tolist(), state["covariance"].tolist()
    ([[0.0, 2.0], [4.0, 2.0]], [[0.0, 0.0], [0.0, 1.0]])
    >>> score.compute(Outputs(torch.zeros(3, 2), torch.tensor([[0.0, 2.0], [4.0, 6.0], [8.0, 2.0]])), state)
    tensor([ 0.0000,  4.1039, 17.8885], dtype=torch.float64)
    """

    shrinkage: float = 0.1

    def __post_init__(self) -> None:
        shrinkage = plain_number(self.shrinkage)
        if not 0 < shrinkage <= 1:
            raise InputError(
                f"the argument shrinkage is {self.shrinkage!r}, which is no share above 0",
                fix="set shrinkage to a number above 0 and up to 1 (0.1 is usual)",
            )
        object.__setattr__(self, "shrinkage", shrinkage)

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:
        """State ``means`` and ``covariance``; see the class."""
        x = vectors_of(outputs)
        classes, width = outputs.logits.shape[1], x.shape[1]
        means = x.new_full((classes, width), torch.nan)
        covariance = torch.eye(width).to(x)
        if "means" in state and state["means"].shape[1] == width:
            means[: len(state["means"])] = state["means"]
            covariance = state["covariance"].to(x, copy=True)
        if not len(x):
            return {"means": means, "covariance": covariance}
        counts = torch.bincount(targets, minlength=classes).unsqueeze(1)
        # From the lowest values on, so that the mean of equal vectors is that vector to the last digit.
        lowest = torch.zeros_like(means)
        lowest.scatter_reduce_(0, targets.unsqueeze(1).expand_as(x), x, "amin", include_self=False)
        above = torch.zeros_like(means).index_add_(0, targets, x - lowest[targets])
        own = lowest + above / counts.clamp(min=1)
        away = x - own[targets]
        return {
            "means": torch.where(counts > 0, own, means),
            "covariance": _spread_out(away.T @ away / len(x), x.abs().amax()),
        }

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        """The score of each vertex."""
        x = vectors_of(outputs)
        means = fitted(state, "means", x.shape[1]).to(x)
        means = means[~means.isnan().any(1)]
        if not len(means):
            return x.new_zeros(len(x))
        variances, directions = torch.linalg.eigh(fitted(state, "covariance").to(x))
        variances = variances.clamp(min=0)
        shrunk = (1 - self.shrinkage) * variances + self.shrinkage * variances.mean()
        to_plain = directions / shrunk.sqrt()  # to coordinates in which the distance is the plain one
        return torch.cat([_to_nearest(rows, means, to_plain) for rows in torch.split(x, _ROWS)])


def _spread_out(covariance: Tensor, largest: Tensor) -> Tensor:
    """A covariance whose mean variance is more than rounding of values as large as that; 1 where all values are 0."""
    least = torch.where(largest > 0, (_ROUNDING * largest).square(), 1)
    missing = (least - covariance.diagonal().mean()).clamp(min=0)
    return covariance + missing * torch.eye(len(covariance)).to(covariance)


def _to_nearest(rows: Tensor, means: Tensor, to_plain: Tensor) -> Tensor:
    # By differences: the way by matrix products loses digits of small distances.
    distances = torch.cdist(rows @ to_plain, means @ to_plain, compute_mode="donot_use_mm_for_euclid_dist")
    return torch.linalg.vector_norm((rows - means[distances.argmin(1)]) @ to_plain, dim=1)


@dataclass(frozen=True)
class Nearest(Score):
    """Cosine distance of a vertex's hidden vector to that of the k-th nearest labelled training vertex: from 0 to 2.

    Where the model gives no hidden vectors, the logits are used instead. A vector of zeros has distance 1 from all
    others. Where there are no training vertices, all vertices score 1.

    The state is ``vectors``: the hidden vectors of training vertices, with length 1, as float32. If there are more
    than ``most``, they are put in an order that depends on their values alone, and every so many of them is kept.

    Source: Sun et al., Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022.

    Parameters
    ----------
    k
        Which neighbour counts; the farthest one where there are fewer training vertices.
    most
        Training vertices that are kept at most.

    Examples
    --------
    >>> score, train = Nearest(k=2), torch.tensor([[1.0, 0.0], [2.0, 2.0], [0.0, 3.0]])
    >>> state = score.fit(Outputs(torch.zeros(3, 1), train), torch.tensor([0, 0, 0]), state={})
    >>> score.compute(Outputs(torch.zeros(3, 1), torch.tensor([[5.0, 0.0], [7.0, 7.0], [-1.0, -1.0]])), state)
    tensor([0.2929, 0.2929, 1.7071], dtype=torch.float64)
    """

    k: int = 10
    most: int = 20_000

    def __post_init__(self) -> None:
        given: dict[str, object] = {"k": self.k, "most": self.most}
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise InputError(
                    f"the argument {name} is {value!r}, which is no whole number from 1 up",
                    fix=f"set {name} to a whole number from 1 up",
                )
            object.__setattr__(self, name, int(value))

    def fit(self, outputs: Outputs, targets: Tensor, state: State) -> State:  # noqa: ARG002  # the vertices suffice
        """State ``vectors``; see the class."""
        x = vectors_of(outputs)
        if len(x) > self.most:
            x = x[_every_so_many(x, self.most)]
        return {"vectors": _of_length_one(x).float()}

    def compute(self, outputs: Outputs, state: State) -> Tensor:
        """The score of each vertex."""
        x = vectors_of(outputs)
        known = fitted(state, "vectors", x.shape[1]).to(x)
        if not len(known):
            return x.new_ones(len(x))
        # Rounded alike, so that equal vectors are at distance 0; then again of length 1, which rounding has changed.
        x, known = _of_length_one(_of_length_one(x).float().double()), _of_length_one(known)
        k, rows = min(self.k, len(known)), max(_BLOCK // len(known), 1)
        # A copy of the last column, or else the others would stay in memory with it.
        nearest = [(block @ known.T).topk(k, dim=1).indices[:, -1].clone() for block in torch.split(x, rows)]
        return _cosine_distances(x, known[torch.cat(nearest)])


def _of_length_one(vectors: Tensor) -> Tensor:
    """Vectors with length 1; those of zeros stay as they are."""
    largest = vectors.abs().amax(1, keepdim=True)
    vectors = vectors / torch.where(largest > 0, largest, 1)  # so that squares are neither too large nor too small
    length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / torch.where(length > 0, length, 1)


def _cosine_distances(some: Tensor, others: Tensor) -> Tensor:
    """Cosine distance of each vector of length 1 (or 0) to the other in its row."""
    # By differences: 1 minus the cosine would lose the digits of small distances.
    missing = (~some.any(1)).double() + (~others.any(1)).double()
    return ((some - others).square().sum(1) + missing).clamp(max=4) / 2


def _every_so_many(vectors: Tensor, most: int) -> Tensor:
    """Rows of as many vectors, evenly along an order that depends neither on the order of rows nor of columns.

    The order of columns counts only among vectors that have the same values in different columns.

    Examples
    --------
    >>> _every_so_many(torch.tensor([[5.0, 0.0], [0.0, 1.0], [3.0, 1.0], [2.0, 3.0]]), 2)
    tensor([1, 3])
    """
    values = vectors.cpu().numpy()
    # By the largest value of each vector, then by its second largest and so on; by column where all these are alike.
    order = np.lexsort((*values.T, *np.sort(values, axis=1).T))
    return torch.from_numpy(order[np.arange(most) * len(order) // most]).to(vectors.device)


@dataclass(frozen=True)
class AuxiliaryModel(Score):
    """Minus the largest logit of an auxiliary model that is trained beside the first, with gDOC's loss.

    A plain classifier learns to tell the known classes apart. One sigmoid for each class also learns what belongs to no
    class, but tells the classes less well. With two models the first decides the class and the auxiliary one scores. It
    doubles the time of training. Without an auxiliary model all vertices score 0.

    Source of the loss: Galke et al., Lifelong Learning on Evolving Graphs Under the Constraints of Imbalanced Classes
    and New Classes, 2023.

    Examples
    --------
    >>> logits = torch.tensor([[9.0, 0.0], [8.0, 0.0]])
    >>> AuxiliaryModel().compute(Outputs(logits, auxiliary_logits=torch.tensor([[4.0, -5.0], [-3.0, -4.0]])), {})
    tensor([-4.,  3.], dtype=torch.float64)
    """

    @property
    def requires(self) -> Requirements:
        """A model with gDOC's loss."""
        return Requirements(fit=False, auxiliary=GDOC())

    def compute(self, outputs: Outputs, state: State) -> Tensor:  # noqa: ARG002  # nothing is fitted
        """The score of each vertex."""
        if outputs.auxiliary_logits is None:
            return outputs.logits.new_zeros(len(outputs), dtype=torch.float64)
        return -outputs.auxiliary_logits.amax(1).double()


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
