"""Ridge regression of fixed features: a model that is computed from sums over its vertices, without gradient steps.

The vectors are features after a random projection and some steps of propagation (SGC), which nothing trains. Ridge
regression of the classes on them needs only sums: of the products of the vectors with each other, and of the vectors
of each class. So an update adds the vertices whose labels are new, and subtracts or weakens old ones. It equals a
computation from scratch on the same vertices.

The scores of a ridge regression are no probabilities: they depend on the size of each class, and large classes mask
others. A linear map between the classes turns them into the log-probabilities of a linear discriminant analysis with
the same penalty (Hastie, Tibshirani and Buja, Flexible Discriminant Analysis by Optimal Scoring, JASA 89, 1994).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from torch import Tensor

from evergraph.errors import EvergraphError, InputError
from evergraph.nn.base import Draw, Labels, LayeredModel, Parameters, Readout, check_settings
from evergraph.nn.ops import Matrix, Neighbours, Noise, linear, propagate

__all__ = ["Moments", "Ridge", "Solution"]

Floats = NDArray[np.float64]

_BLOCK = 16_384  # vertices that are added at a time
_MOST = {"width": 8_192, "periods": 1_000}  # memory grows with width² · periods
_NOT_YET = np.iinfo(np.int64).min  # period of sums without vertices
_FEWEST = 1e-9  # sum of the weights of vertices, below which there is nothing to solve
_ABSENT = -100.0  # log-probability of a class without vertices
_SCALED_ON = 256  # vertices on which the logits are scaled
_FIRST_SCALE, _SCALE_PRECISION = 0.3, 10.0  # of the scale's logarithm, before and between updates


@dataclass(frozen=True)
class Ridge(LayeredModel):
    """Ridge regression of the classes on propagated features, updated without training steps.

    Each labelled vertex counts once, with the vector that it had when its label was first used; labels that change
    later count in a cold restart only. A learner's ``steps``, learning rate, detector and memory have no effect on it.

    Parameters
    ----------
    hops
        Number of propagation steps.
    width
        Width of the vectors, to which a random projection maps the features. A new word gets a new row of it, so the
        sums keep their size.
    penalty
        Penalty of the weights, in vertices: that many vertices in each direction, as long as an average vector.
    balance
        From 0, where the probability of a class grows with its number of vertices, to 1, where all classes are equally
        probable.
    discount
        Factor, above 0 and up to 1, by which vertices count less with each period; with 1, old ones count in full.
    periods
        Number of periods before a task whose vertices count, however long the history is; None for all.

    Examples
    --------
    >>> Ridge(periods=3)
    Ridge(hops=2, width=512, penalty=10.0, balance=0.5, discount=1.0, periods=3)
    """

    hops: int = 2
    width: int = 512
    penalty: float = 10.0
    balance: float = 0.5
    discount: float = 1.0
    periods: int | None = None

    def __post_init__(self) -> None:
        check_settings(hops=self.hops, width=self.width, **({} if self.periods is None else {"periods": self.periods}))
        for name, most in _MOST.items():
            if (value := getattr(self, name)) is not None and value > most:
                raise InputError(f"{name} is {value}", fix=f"set {name} to at most {most:,}")
        ranges = {
            "penalty": (np.inf, "a number above 0"),
            "balance": (1, "a number from 0 to 1"),
            "discount": (1, "a factor above 0 and up to 1"),
        }
        for name, (most_, what) in ranges.items():
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not (0 <= value <= most_) or value == np.inf or (value == 0 and name != "balance"):
                raise InputError(f"{name} is {value!r}", fix=f"set {name} to {what}")

    # --- the encoder --------------------------------------------------------------------------------------------------

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        parts, size = self.periods or 1, self.width + 1
        return {
            # Signs project as well as normal numbers (Achlioptas, 2003) and take a byte each.
            "projection": draw.signs(inputs, self.width),
            "products": draw.zeros(parts, size, size, dtype=torch.float64),
            "sums": draw.zeros(parts, size, outputs, dtype=torch.float64),
            "newest": torch.full((parts,), _NOT_YET),
            "scale": torch.tensor(_FIRST_SCALE, dtype=torch.float64),
            "weight": draw.zeros(self.width, outputs),
            "bias": draw.zeros(outputs),
        }

    def trained(self, name: str) -> bool:  # noqa: ARG002
        return False

    def step_memory(self, inputs: int, outputs: int) -> tuple[float, float]:  # noqa: ARG002
        return 12.0 * self.width, 0.0  # there are no gradients

    @property
    def hidden_layers(self) -> int:
        return self.hops

    @property
    def local_output(self) -> bool:
        return True

    def hidden_layer(
        self,
        p: Parameters,
        number: int,
        h: Matrix,
        graph: Neighbours,
        rows: int,
        noise: Noise | None,  # noqa: ARG002
    ) -> Tensor:
        if not number:
            h = linear(h, p["projection"] * self.width**-0.5)
        assert isinstance(h, Tensor)  # noqa: S101  # the result of a projection or propagation
        return propagate(graph, h, rows)

    def output_layer(self, p: Parameters, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None) -> Readout:  # noqa: ARG002
        assert isinstance(h, Tensor)  # noqa: S101  # the result of a hidden layer
        vectors = torch.nn.functional.normalize(h[:rows])
        return Readout(vectors, p["weight"], p["bias"], vectors)

    # --- the head -----------------------------------------------------------------------------------------------------

    def closed_form(self, p: Parameters, labels: Labels) -> Parameters:
        products, sums, newest = (p[name].cpu().numpy().copy() for name in ("products", "sums", "newest"))
        first = _NOT_YET if self.periods is None else labels.time - self.periods
        rows = np.flatnonzero(labels.times >= first)
        recent = np.empty((0, self.width))
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            vectors = labels.vectors(block).cpu().numpy().astype(np.float64)
            if not np.isfinite(vectors).all():
                raise EvergraphError(
                    "the vectors are not finite", fix="check the features for values that are very large or not numbers"
                )
            self._add(products, sums, newest, vectors, labels.targets[block], labels.times[block])
            recent = np.concatenate([recent, vectors])[-_SCALED_ON:]
        total = self._total(products, sums, newest, labels.time)
        if total.sums[-1].sum() < _FEWEST:
            return p | _tensors(p, products=products, sums=sums, newest=newest)
        solution, scale = Solution.of(total, self.penalty), float(p["scale"])
        if len(recent):
            last = rows[-len(recent) :]
            weights = self._weights(labels.time - 1, labels.times[last])
            scale = solution.scale(recent, labels.targets[last], weights, self.balance, scale)
        weight, bias = solution.head(self.balance)
        head = {"weight": (scale * weight).astype(np.float32), "bias": (scale * bias).astype(np.float32)}
        return p | _tensors(p, products=products, sums=sums, newest=newest, scale=np.array(scale), **head)

    def _add(
        self,
        products: Floats,
        sums: Floats,
        newest: NDArray[np.int64],
        vectors: Floats,
        targets: NDArray[np.int64],
        times: NDArray[np.int64],
    ) -> None:
        """Add vertices to the sums."""
        parts = self._parts(times)
        for part in np.unique(parts):
            rows = np.flatnonzero(parts == part)
            self._renew(products[part], sums[part], newest[part : part + 1], int(times[rows].max()))
            found = Moments.of(vectors[rows], targets[rows], sums.shape[2], self._weights(newest[part], times[rows]))
            products[part] += found.products
            sums[part] += found.sums

    def _parts(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """The part of the sums in which vertices of a period are counted."""
        return np.zeros_like(times) if self.periods is None else times % self.periods

    def _weights(self, time: int | np.int64, times: NDArray[np.int64]) -> Floats:
        """The weight at a period of vertices of other periods."""
        found: Floats = self.discount ** (time - times).astype(np.float64)
        return found

    def _renew(self, products: Floats, sums: Floats, newest: NDArray[np.int64], time: int) -> None:
        """Let a part of the sums be of a later period: weaken it, or empty it if it is of one period only."""
        if time <= newest[0]:
            return
        kept = 0.0 if self.periods is not None or newest[0] == _NOT_YET else self.discount ** float(time - newest[0])
        products *= kept
        sums *= kept
        newest[0] = time

    def _total(self, products: Floats, sums: Floats, newest: NDArray[np.int64], time: int) -> Moments:
        """The sums of all vertices that count at a period."""
        first = _NOT_YET + 1 if self.periods is None else time - self.periods
        weights = [self.discount ** float(time - 1 - at) if at >= first else 0.0 for at in newest.tolist()]
        return Moments(np.tensordot(weights, products, 1), np.tensordot(weights, sums, 1))


def _tensors(p: Parameters, **arrays: NDArray[Any]) -> Parameters:
    return {name: torch.from_numpy(value).to(p[name].device) for name, value in arrays.items()}


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over vertices, from which a ridge regression follows. Each vector has a 1 at its end, for the intercept.

    Parameters
    ----------
    products
        Sum of the products of the vectors with themselves.
    sums
        Sum of the vectors of each class, one column each.

    Examples
    --------
    >>> found = Moments.of(np.array([[2.0], [3.0]]), np.array([0, 1]), classes=2, weights=np.ones(2))
    >>> found.products.tolist(), found.sums.tolist()
    ([[13.0, 5.0], [5.0, 2.0]], [[2.0, 3.0], [1.0, 1.0]])
    """

    products: Floats
    sums: Floats

    @classmethod
    def of(cls, vectors: Floats, targets: NDArray[np.integer], classes: int, weights: Floats) -> Moments:
        """Return the sums of some vertices."""
        longer = np.concatenate([vectors, np.ones((len(vectors), 1))], 1)
        weighted = longer * weights[:, None]
        sums = np.zeros((longer.shape[1], classes))
        order = np.argsort(targets, kind="stable")
        there, starts = np.unique(targets[order], return_index=True)
        if len(there):
            sums[:, there] = np.add.reduceat(weighted[order], starts, axis=0).T
        return cls(weighted.T @ longer, sums)


@dataclass(frozen=True, eq=False)
class Solution:
    """A ridge regression of the classes (1 for the own class, 0 for others) with an intercept, from its sums.

    Parameters
    ----------
    mean
        Mean of the vectors.
    counts
        Sum of the weights of each class's vertices.
    penalty
        Factor of the squared weights.
    factor
        The Cholesky factor of the penalised scatter of the vectors.
    scatter
        For each class the sum of its vectors, each less the mean.
    weight
        The weights, one column for each class. The intercepts follow from them, the mean and the counts.
    """

    mean: Floats
    counts: Floats
    penalty: float
    factor: tuple[Any, bool]
    scatter: Floats
    weight: Floats

    @classmethod
    def of(cls, moments: Moments, penalty: float) -> Solution:
        """Solve; the penalty is relative to the mean squared length of a vector."""
        n, counts = moments.products[-1, -1], moments.sums[-1]
        mean = moments.products[:-1, -1] / n
        total = moments.products[:-1, :-1] - np.outer(mean, n * mean)
        absolute = penalty * max(float(np.trace(total)) / n, 1e-12)
        total[np.diag_indices_from(total)] += absolute
        factor = cho_factor(total, lower=True, overwrite_a=True, check_finite=False)
        scatter = moments.sums[:-1] - np.outer(mean, counts)
        return cls(mean, counts, absolute, factor, scatter, cho_solve(factor, scatter, check_finite=False))

    @property
    def intercept(self) -> Floats:
        """The intercept of each class."""
        return self.counts / self.counts.sum() - self.mean @ self.weight

    def head(self, balance: float) -> tuple[Floats, Floats]:
        """Return weights and biases of the log-probabilities, up to a number that is the same for all classes."""
        weight = self.weight @ self._between
        return weight, self._bias(balance) - self.mean @ weight

    @cached_property
    def _between(self) -> Floats:
        """The map from scores of the classes to those of a discriminant analysis with the same penalty.

        The scatter within classes is the total one less that of the classes' means, a matrix of low rank, so this takes
        an inverse of the size of the number of classes.
        """
        inverse = 1 / np.maximum(self.counts, 1e-300)
        inside = np.eye(len(self.counts)) - (self.scatter.T @ self.weight) * inverse
        found: Floats = inverse[:, None] * np.linalg.inv(inside) * self.counts.sum()
        return found

    def _bias(self, balance: float) -> Floats:
        """The log-probability of each class at the mean vector."""
        there, centres = self.counts > 0, self.scatter / np.maximum(self.counts, 1e-300)
        prior = (1 - balance) * np.log(np.where(there, self.counts, 1) / self.counts.sum())
        return np.where(there, prior - (centres * (self.weight @ self._between)).sum(0) / 2, _ABSENT)

    def _left_out(self, vectors: Floats, targets: NDArray[np.integer], weights: Floats) -> Floats:
        """Scores, less the intercept of the mean vector, of vertices from a regression on all others.

        The leverage of a vertex is the share of its score that its own label decides, so nothing is solved again.
        """
        n = self.counts.sum()
        away, mean = vectors - self.mean, self.counts / n
        own = np.zeros((len(targets), len(self.counts)))
        own[np.arange(len(targets)), targets] = 1
        share = (np.minimum(weights / n, 0.5))[:, None]
        leverage = weights * (away * cho_solve(self.factor, away.T, check_finite=False).T).sum(1)
        leverage = np.minimum(leverage[:, None] + share, 1 - 1e-6)
        found: Floats = (away @ self.weight + mean - leverage * own) / (1 - leverage)
        return found - (mean - share * own) / (1 - share)

    def scale(
        self, vectors: Floats, targets: NDArray[np.integer], weights: Floats, balance: float, before: float
    ) -> float:
        """Return the factor of the logits with which vertices are most likely that the sums contain.

        The scores of each vertex are those without it: they follow from its leverage. The factor of the last update
        counts like some vertices.
        """
        logits = self._left_out(vectors, targets, weights) @ self._between + self._bias(balance)
        chosen = logits[np.arange(len(targets)), targets]

        def loss(log_scale: float) -> float:
            scale = np.exp(log_scale)
            surprise = (logsumexp(scale * logits, axis=1) - scale * chosen).sum()
            return float(surprise + _SCALE_PRECISION * (log_scale - np.log(before)) ** 2 / 2)

        return float(np.exp(minimize_scalar(loss, bounds=(-7, 3), method="bounded", options={"xatol": 0.01}).x))
