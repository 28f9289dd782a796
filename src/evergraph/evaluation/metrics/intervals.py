"""Means with the half width of their 95 % interval: over seeds, and pooled as in the paper."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.errors import InputError

__all__ = ["Interval", "over_seeds", "pooled"]


@dataclass(frozen=True)
class Interval:
    """A mean and the half width of its 95 % interval.

    Parameters
    ----------
    mean
        NaN without values.
    half
        Half width; NaN with fewer than two values.
    n
        Number of values, those that are NaN left out.

    Examples
    --------
    >>> found = Interval(mean=0.5, half=0.25, n=3)
    >>> found.low, found.high
    (0.25, 0.75)
    """

    mean: float
    half: float
    n: int

    @property
    def low(self) -> float:
        """Lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end."""
        return self.mean + self.half


def over_seeds(values: ArrayLike) -> Interval:
    """Mean over seeds, with the interval of Student's t for it.

    It tells how far the mean may be off by the chance of the seeds; the graph and its tasks are taken as given.

    Parameters
    ----------
    values
        One figure a seed; NaN is left out.

    Examples
    --------
    >>> found = over_seeds([0.70, 0.72, 0.74])
    >>> round(found.mean, 4), round(found.half, 4)
    (0.72, 0.0497)
    """
    known = _known(values, axes=1)
    if len(known) < 2:
        return _interval(known, math.nan)
    from scipy.special import stdtrit

    return _interval(known, float(stdtrit(len(known) - 1, 0.975)))


def pooled(values: ArrayLike) -> Interval:
    """Mean over all tasks of all seeds, with the paper's interval: 1.96 standard errors over the pooled values.

    It is no interval of the mean over seeds. The spread that it measures is mostly that between tasks,
    which are the same in each seed, and the tasks of one seed are counted as if they were so many independent runs.
    It may be too wide or too narrow; use `over_seeds`, and this one to compare with the paper's tables.

    Parameters
    ----------
    values
        One figure for each seed (row) and task (column); NaN is left out.

    Examples
    --------
    >>> found = pooled([[0.60, 0.80], [0.60, 0.80]])  # both seeds agree, yet the interval is wide
    >>> round(found.mean, 4), round(found.half, 4), found.n
    (0.7, 0.1132, 4)
    """
    return _interval(_known(values, axes=2), 1.96)


def _known(values: ArrayLike, axes: int) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    if array.ndim != axes:
        wanted = "one value a seed" if axes == 1 else "one row a seed and one column a task"
        raise InputError(f"values of shape {array.shape} were given, not {wanted}", fix=f"pass {wanted}")
    return array[~np.isnan(array)]


def _interval(known: NDArray[np.float64], quantile: float) -> Interval:
    n = len(known)
    half = quantile * float(known.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Interval(float(known.mean()) if n else math.nan, half, n)
