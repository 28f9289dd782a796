"""Ridge regression and naive Bayes: a model that is computed from sums over its vertices, without gradient steps.

The vectors are features after a random projection and some steps of propagation (SGC), which nothing trains. Ridge
regression of the classes on them needs only sums: of the products of the vectors with each other, and of the vectors
of each class. So an update adds the vertices whose labels are new, and subtracts or weakens old ones. It equals a
computation from scratch on the same vertices.

The scores of a ridge regression are no probabilities: they depend on the size of each class, and large classes mask
others. A linear map between the classes turns them into the log-probabilities of a linear discriminant analysis with
the same penalty (Hastie, Tibshirani and Buja, Flexible Discriminant Analysis by Optimal Scoring, JASA 89, 1994).

A random projection loses what rare words say. Naive Bayes (`evergraph.nn.naive_bayes`) reads each word, and its sums
are updated in the same way. The logits are a weighted sum of those of both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.special import softmax
from torch import Tensor

from evergraph.errors import EvergraphError, InputError
from evergraph.nn.base import Draw, Labels, LayeredModel, Parameters, Readout, check_settings
from evergraph.nn.naive_bayes import Occurrences, log_likelihoods, log_shares, smoothed_totals
from evergraph.nn.ops import Matrix, Neighbours, Noise, linear, propagate, used_columns

__all__ = ["Moments", "Ridge", "Solution", "fitted_scales"]

Floats = NDArray[np.float64]

_BLOCK = 16_384  # vertices that are added at a time
_MOST = {"width": 8_192, "periods": 1_000}  # memory grows with width² · periods, and with words · classes · periods
_MOST_NUMBERS = 1 << 29  # in the sums of words: 2 GB
_NOT_YET = np.iinfo(np.int64).min  # period of sums without vertices
_FEWEST = 1e-9  # sum of the weights of vertices, below which there is nothing to solve
_ABSENT = -1e4  # log-probability of a class without vertices
_SCALED_ON = 500  # vertices on which the logits are scaled
_FIRST_SCALES, _SCALE_PRECISION = (0.3, 0.5), 10.0  # of ridge and naive Bayes; of a scale's logarithm between updates
_SCALE_BOUNDS = (-7.0, 3.0)


@dataclass(frozen=True)
class Ridge(LayeredModel):
    """Ridge regression of the classes on propagated features and naive Bayes, updated without training steps.

    Each labelled vertex counts once, with the vector that it had when its label was first used. If labels change, all
    vertices are counted again, provided that the history is the whole past, or in a cold restart. A learner's
    ``steps``, learning rate, detector and memory have no effect on it.

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
    smoothing
        Added to the sum of each word in each class for naive Bayes; with 0, there is ridge regression only.

    Examples
    --------
    >>> Ridge(periods=3)
    Ridge(hops=2, width=512, penalty=10.0, balance=0.5, discount=1.0, periods=3, smoothing=0.02)
    """

    hops: int = 2
    width: int = 512
    penalty: float = 10.0
    balance: float = 0.5
    discount: float = 1.0
    periods: int | None = None
    smoothing: float = 0.02

    def __post_init__(self) -> None:
        check_settings(hops=self.hops, width=self.width, **({} if self.periods is None else {"periods": self.periods}))
        for name, most in _MOST.items():
            if (value := getattr(self, name)) is not None and value > most:
                raise InputError(f"{name} is {value}", fix=f"set {name} to at most {most:,}")
        tiny, large = sys.float_info.min, sys.float_info.max
        ranges = {
            "penalty": (1e-6, large, "a number from 0.000001 up"),
            "balance": (0, 1, "a number from 0 to 1"),
            "discount": (tiny, 1, "a factor above 0 and up to 1"),
            "smoothing": (0, large, "a number from 0 up"),
        }
        for name, (least, most_, what) in ranges.items():
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not least <= value <= most_:
                raise InputError(f"{name} is {value!r}", fix=f"set {name} to {what}")

    # --- the encoder --------------------------------------------------------------------------------------------------

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        parts, size = self.periods or 1, self.width + 1
        if self.smoothing and 2 * parts * inputs * outputs > _MOST_NUMBERS:
            raise InputError(
                f"sums of {inputs:,} features in {outputs:,} classes take too much memory for {parts:,} periods each",
                fix="count fewer periods, or leave naive Bayes out (ridge:smoothing=0)",
            )
        return {
            # Signs project as well as normal numbers (Achlioptas, 2003) and take a byte each.
            "projection": draw.signs(inputs, self.width),
            "products": draw.zeros(parts, size, size, dtype=torch.float64),
            "sums": draw.zeros(parts, size, outputs, dtype=torch.float64),
            "words": draw.zeros(parts, 2, inputs if self.smoothing else 0, outputs),
            "totals": torch.ones(2, outputs),
            "newest": torch.full((parts,), _NOT_YET),
            "ages": draw.zeros(parts, dtype=torch.float64),
            "scales": torch.tensor(_FIRST_SCALES, dtype=torch.float64),
            "weight": draw.zeros(self.width, outputs),
            "bias": draw.zeros(outputs),
        }

    def trained(self, name: str) -> bool:  # noqa: ARG002
        return False

    def step_memory(self, inputs: int, outputs: int) -> tuple[float, float]:  # noqa: ARG002
        return 12.0 * (self.width + 3 * outputs), 0.0  # there are no gradients

    @property
    def hidden_layers(self) -> int:
        return self.hops

    @property
    def local_output(self) -> bool:
        return True

    @property
    def encoder(self) -> Ridge:
        return replace(self, smoothing=0.0)

    def hidden_layer(
        self,
        p: Parameters,
        number: int,
        h: Matrix,
        graph: Neighbours,
        rows: int,
        noise: Noise | None,  # noqa: ARG002
    ) -> Tensor:
        if number:
            assert isinstance(h, Tensor)  # noqa: S101  # the result of layer 0
            projected, likelihoods = h[:, : self.width], h[:rows, self.width :]
        else:
            h, columns = used_columns(h)  # most words do not occur in a slice
            projected = linear(h, p["projection"].index_select(0, columns).float())
            likelihoods = torch.empty(rows, 0, device=projected.device)
            if self.smoothing:
                words = torch.tensordot(p["ages"].float(), p["words"].index_select(2, columns), 1)
                likelihoods = log_likelihoods(log_shares(words, p["totals"], self.smoothing), h, graph, rows)
        return torch.cat([propagate(graph, projected, rows), likelihoods], 1)

    def output_layer(self, p: Parameters, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None) -> Readout:  # noqa: ARG002
        assert isinstance(h, Tensor)  # noqa: S101  # the result of a hidden layer
        vectors = torch.nn.functional.normalize(h[:rows, : self.width])
        if not self.smoothing:
            return Readout(vectors, p["weight"], p["bias"], vectors)
        likelihoods = h[:rows, self.width :]
        if len(p["bias"]):  # no text may look like a class without vertices
            likelihoods = torch.where(p["bias"] <= _ABSENT, likelihoods.amin(1, keepdim=True), likelihoods)
        both = torch.cat([p["weight"], p["scales"][1].float() * torch.eye(len(p["bias"]), device=vectors.device)])
        return Readout(torch.cat([vectors, likelihoods], 1), both, p["bias"], vectors)

    # --- the head -----------------------------------------------------------------------------------------------------

    def closed_form(self, p: Parameters, labels: Labels) -> Parameters:
        sums = _Sums(**{name: p[name].cpu().numpy().copy() for name in _SUMS})
        newest = self._add_new(sums, labels)
        ages = self._ages(sums.newest, labels.time)
        total = Moments(np.tensordot(ages, sums.products, 1), np.tensordot(ages, sums.sums, 1))
        if total.sums[-1].sum() < _FEWEST:
            return p | _tensors(p, **vars(sums), ages=ages)
        words = np.tensordot(ages.astype(np.float32), sums.words, 1)
        totals = smoothed_totals(torch.from_numpy(words), self.smoothing)
        solution, scales = Solution.of(total, self.penalty), p["scales"].cpu().numpy().copy()
        if (solution.counts[newest.targets] > 0).any():
            scales = self._scaled(scales, solution, words, totals, newest)
        weight, bias = solution.head(self.balance)
        bias = scales[0] * bias + (scales[1] * solution.prior(self.balance) if self.smoothing else 0.0)
        bias = np.where(solution.counts > 0, bias, _ABSENT)
        head = {"weight": (scales[0] * weight).astype(np.float32), "bias": bias.astype(np.float32)}
        if (
            not all(np.isfinite(part).all() for part in (*head.values(), totals.numpy(), scales))
            or not (scales > 0).all()
        ):
            raise ValueError("the sums are not those of any vertices")
        return p | _tensors(p, **vars(sums), ages=ages, totals=totals.numpy(), scales=scales, **head)

    def _add_new(self, sums: _Sums, labels: Labels) -> _Newest:
        """Add vertices to the sums; returns the newest of them."""
        first = _NOT_YET if self.periods is None else labels.time - self.periods
        rows = np.flatnonzero(labels.times >= first)
        newest = rows[max(len(rows) - _SCALED_ON, 0) :]
        vectors, words = [np.empty((0, self.width))], list[Occurrences]()
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            found = labels.vectors(block).cpu().numpy().astype(np.float64)
            if not np.isfinite(found).all():
                raise EvergraphError(
                    "the vectors are not finite", fix="check the features for values that are very large or not numbers"
                )
            occurrences = Occurrences.of(labels.batch(block)) if self.smoothing and labels.batch is not None else None
            self._add(sums, found, occurrences, labels.targets[block], labels.times[block])
            kept = np.flatnonzero(block >= newest[0])
            vectors.append(found[kept])
            if occurrences is not None and len(kept):
                words.append(occurrences[kept])
        weights = self._weights(labels.time - 1, labels.times[newest])
        joined = Occurrences.joined(words) if words else None
        return _Newest(labels.targets[newest], weights, np.concatenate(vectors), joined)

    def _add(
        self,
        sums: _Sums,
        vectors: Floats,
        words: Occurrences | None,
        targets: NDArray[np.int64],
        times: NDArray[np.int64],
    ) -> None:
        """Add a block of vertices to the sums."""
        parts = np.zeros_like(times) if self.periods is None else times % self.periods
        for part in np.unique(parts):
            rows = np.flatnonzero(parts == part)
            self._renew(sums, part, int(times[rows].max()))
            weights = self._weights(sums.newest[part], times[rows])
            found = Moments.of(vectors[rows], targets[rows], sums.sums.shape[2], weights)
            sums.products[part] += found.products
            sums.sums[part] += found.sums
            if words is not None:
                words[rows].add_to(sums.words[part], targets[rows], weights)

    def _scaled(
        self, before: Floats, solution: Solution, words: NDArray[np.float32], totals: Tensor, newest: _Newest
    ) -> Floats:
        """The factors of the logits of ridge and of naive Bayes, fitted to the newest vertices."""
        there = np.flatnonzero(solution.counts > 0)
        newest = newest[np.flatnonzero(solution.counts[newest.targets] > 0)]  # weights may be too small to count
        logits = [solution.left_out(newest.vectors, newest.targets, newest.weights, self.balance)]
        if newest.words is not None:
            likelihoods = newest.words.left_out(words, totals, self.smoothing, newest.targets, newest.weights)
            logits.append(likelihoods + solution.prior(self.balance))
        targets = np.searchsorted(there, newest.targets)
        found = fitted_scales([part[:, there] for part in logits], targets, before[: len(logits)])
        return np.append(found, before[len(logits) :])

    def _weights(self, time: int | np.int64, times: NDArray[np.int64]) -> Floats:
        """The weight at a period of vertices of other periods."""
        found: Floats = self.discount ** (time - times).astype(np.float64)
        return found

    def _renew(self, sums: _Sums, part: int, time: int) -> None:
        """Let a part of the sums be of a later period: weaken it, or empty it if it is of one period only."""
        before = sums.newest[part]
        if time <= before:
            return
        kept = 0.0 if self.periods is not None or before == _NOT_YET else self.discount ** float(time - before)
        if kept < 1:
            sums.products[part] *= kept
            sums.sums[part] *= kept
            sums.words[part] *= kept
        sums.newest[part] = time

    def _ages(self, newest: NDArray[np.int64], time: int) -> Floats:
        """The weight of each part of the sums at a period."""
        first = _NOT_YET + 1 if self.periods is None else time - self.periods
        return np.array([self.discount ** float(time - 1 - at) if at >= first else 0.0 for at in newest.tolist()])


_SUMS = ("products", "sums", "words", "newest")


@dataclass(frozen=True, eq=False)
class _Sums:
    """The sums over vertices, in parts: one for each period if only the last ones count.

    Parameters
    ----------
    products, sums
        As in `Moments`.
    words
        Sums of own features and of neighbours' features for each class (`Occurrences.add_to`).
    newest
        Newest period of the vertices of each part.
    """

    products: Floats
    sums: Floats
    words: NDArray[np.float32]
    newest: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Newest:
    """Vertices that the sums contain, for fitting the factors of the logits."""

    targets: NDArray[np.int64]
    weights: Floats
    vectors: Floats
    words: Occurrences | None

    def __getitem__(self, rows: NDArray[np.integer]) -> _Newest:
        words = None if self.words is None else self.words[rows]
        return _Newest(self.targets[rows], self.weights[rows], self.vectors[rows], words)


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
        spread = np.trace(total), 1e-9 * np.trace(moments.products)  # vectors may be equal but for rounding
        absolute = penalty * max(*spread, 1e-12 * n) / n
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

    def prior(self, balance: float) -> Floats:
        """Return the log-probability of each class before anything is known of a vertex; 0 for an absent class."""
        found: Floats = (1 - balance) * np.log(
            np.where(self.counts > 0, self.counts, self.counts.sum()) / self.counts.sum()
        )
        return found

    def _bias(self, balance: float) -> Floats:
        """The log-probability of each class at the mean vector."""
        there, centres = self.counts > 0, self.scatter / np.maximum(self.counts, 1e-300)
        distances = (centres * (self.weight @ self._between)).sum(0) / 2
        return np.where(there, self.prior(balance) - distances, _ABSENT)

    def _left_out(self, vectors: Floats, targets: NDArray[np.integer], weights: Floats) -> Floats:
        """Scores, less the intercept of the mean vector, of vertices from a regression on all others.

        The leverage of a vertex is the share of its score that its own label decides, so nothing is solved again.
        """
        n = self.counts.sum()
        away, mean = vectors - self.mean, self.counts / n
        own = np.zeros((len(targets), len(self.counts)))
        own[np.arange(len(targets)), targets] = 1
        share = (np.minimum(weights / n, 0.5))[:, None]
        half = solve_triangular(self.factor[0], away.T, lower=True, check_finite=False)
        leverage = weights * (half**2).sum(0)
        leverage = np.minimum(leverage[:, None] + share, 1 - 1e-6)
        found: Floats = (away @ self.weight + mean - leverage * own) / (1 - leverage)
        return found - (mean - share * own) / (1 - share)

    def left_out(self, vectors: Floats, targets: NDArray[np.integer], weights: Floats, balance: float) -> Floats:
        """Return the logits that vertices, which the sums contain, have without them."""
        return self._left_out(vectors, targets, weights) @ self._between + self._bias(balance)


def fitted_scales(logits: Sequence[Floats], targets: NDArray[np.integer], before: Floats) -> Floats:
    """Return the factors of several logits whose weighted sum makes the targets most likely.

    The factors of the last update count like some vertices.

    Examples
    --------
    >>> fitted_scales([np.array([[2.0, 0.0]] * 1000)], np.repeat([0, 1], [900, 100]), np.ones(1)).round(1).tolist()
    [1.1]
    """
    own, start = np.arange(len(targets)), np.log(before)

    def loss(log_scales: Floats) -> tuple[float, Floats]:
        scales = np.exp(log_scales)
        total = sum(scale * part for scale, part in zip(scales, logits, strict=True))
        shares = softmax(total, axis=1)
        away = _SCALE_PRECISION * (log_scales - start)
        surprise = -np.log(shares[own, targets] + 1e-300).sum() + away @ (log_scales - start) / 2
        slopes = [((shares * part).sum() - part[own, targets].sum()) for part in logits]
        return float(surprise), scales * slopes + away

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[_SCALE_BOUNDS] * len(logits))
    scales: Floats = np.exp(found.x)
    return scales
