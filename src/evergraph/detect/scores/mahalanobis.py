"""Mahalanobis: distance to the nearest class mean, in units of how classes spread."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.detect.base import Outputs, State
from evergraph.detect.scores.base import Score, fitted, plain_number, vectors_of
from evergraph.errors import InputError

__all__ = ["Mahalanobis"]

_ROWS = 1 << 14  # vertices whose distances to all classes are computed at once
_ROUNDING = 1e-6  # spread, relative to the largest value, that may be nothing but rounding


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
    >>> state = score.fit(Outputs(torch.zeros(4, 2), hidden), targets, before={})
    >>> state["means"].tolist(), state["covariance"].tolist()
    ([[0.0, 2.0], [4.0, 2.0]], [[0.0, 0.0], [0.0, 1.0]])
    >>> score.of(Outputs(torch.zeros(3, 2), torch.tensor([[0.0, 2.0], [4.0, 6.0], [8.0, 2.0]])), state)
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

    def fit(self, outputs: Outputs, targets: Tensor, before: State) -> State:
        """State ``means`` and ``covariance``; see the class."""
        x = vectors_of(outputs)
        classes, width = outputs.logits.shape[1], x.shape[1]
        means = x.new_full((classes, width), torch.nan)
        covariance = torch.eye(width).to(x)
        if "means" in before and before["means"].shape[1] == width:
            means[: len(before["means"])] = before["means"]
            covariance = before["covariance"].to(x, copy=True)
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

    def of(self, outputs: Outputs, state: State) -> Tensor:
        """See the class."""
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
