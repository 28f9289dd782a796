"""Three divergences that go by one name: what the paper prints, what it cites, and what its code computes.

All of them compare two vectors place by place, after each is divided by its sum. Given two samples of accuracies, as in
the paper's first experiment, they do not compare the distributions of the accuracies: another order of the same
accuracies is not 0 away, and accuracies that are all lower by the same factor are.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.errors import InputError

__all__ = ["half_jeffreys", "jensen_shannon", "jensen_shannon_distance"]


def half_jeffreys(p: ArrayLike, q: ArrayLike) -> float:
    """Half of the Jeffreys divergence, ½ KL(p‖q) + ½ KL(q‖p): the formula that the paper prints.

    Parameters
    ----------
    p, q
        Weights that are not negative; each vector is divided by its sum. Where one of them is 0 and the other is not,
        the divergence is infinite.

    Examples
    --------
    >>> round(half_jeffreys([1, 3], [3, 1]), 4), half_jeffreys([1, 0], [1, 1])
    (0.5493, inf)
    """
    p, q = _shares(p, q)
    if np.any((p > 0) != (q > 0)):
        return math.inf
    p, q = p[p > 0], q[q > 0]
    return float(np.sum((p - q) * (np.log(p) - np.log(q))) / 2)


def jensen_shannon(p: ArrayLike, q: ArrayLike) -> float:
    """Jensen-Shannon divergence in nats, ½ KL(p‖m) + ½ KL(q‖m) with m midway: from 0 to ln 2, as in Lin (1991).

    Parameters
    ----------
    p, q
        Weights that are not negative; each vector is divided by its sum.

    Examples
    --------
    >>> round(jensen_shannon([1, 3], [3, 1]), 4), round(jensen_shannon([1, 0], [0, 1]), 4)
    (0.1308, 0.6931)
    """
    p, q = _shares(p, q)
    both = p + q
    halves = [np.sum(side[side > 0] * np.log(2 * side[side > 0] / both[side > 0])) / 2 for side in (p, q)]
    return max(0.0, float(sum(halves)))  # rounding may leave a little less than 0


def jensen_shannon_distance(p: ArrayLike, q: ArrayLike) -> float:
    """Square root of `jensen_shannon`: what the authors' code computes, by SciPy's function ``jensenshannon``.

    Parameters
    ----------
    p, q
        Weights that are not negative; each vector is divided by its sum.

    Examples
    --------
    >>> round(jensen_shannon_distance([1, 3], [3, 1]), 4)
    0.3617
    >>> jensen_shannon_distance([0.8, 0.9], [0.9, 0.8]) > 0  # the same two accuracies in another order
    True
    """
    return math.sqrt(jensen_shannon(p, q))


def _shares(p: ArrayLike, q: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both vectors divided by their sums."""
    one, other = np.asarray(p, np.float64), np.asarray(q, np.float64)
    if one.ndim != 1 or one.shape != other.shape:
        raise InputError(
            f"vectors of shapes {one.shape} and {other.shape} cannot be compared", fix="pass two of the same length"
        )
    for vector in (one, other):
        if not (np.all(np.isfinite(vector)) and np.all(vector >= 0) and np.any(vector > 0)):
            raise InputError(
                "a vector of weights has a negative, infinite or missing one, or none above 0",
                fix="pass counts or shares",
            )
    return one / one.sum(), other / other.sum()
