"""Forward transfer: what a model gains from keeping its weights from task to task."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from evergraph.errors import InputError
from evergraph.evaluation.metrics._arrays import mean_known

__all__ = ["forward_transfer"]


def forward_transfer(warm: ArrayLike, cold: ArrayLike) -> float:
    """Mean gain in accuracy of warm over cold starts, from the second task on.

    The first task is dropped: nothing was learned before it that could be kept.

    Parameters
    ----------
    warm, cold
        Accuracy by seed (row) and task (column). Both have the same tasks; the numbers of seeds may differ, since each
        task is averaged over seeds first. NaN is left out, as is a task that has nothing else on one of the sides.

    Returns
    -------
    float
        NaN with fewer than two tasks.

    Examples
    --------
    >>> round(forward_transfer(warm=[[0.1, 0.6, 0.8], [0.1, 0.8, 0.8]], cold=[[0.9, 0.6, 0.6]]), 4)
    0.15
    """
    kept, fresh = np.asarray(warm, np.float64), np.asarray(cold, np.float64)
    if kept.ndim != 2 or fresh.ndim != 2 or kept.shape[1] != fresh.shape[1]:
        raise InputError(
            f"accuracies of warm and cold starts have shapes {kept.shape} and {fresh.shape}",
            fix="pass one row a seed and one column a task, with the same tasks in both",
        )
    if kept.shape[1] < 2:
        return math.nan
    return float(mean_known((mean_known(kept, axis=0) - mean_known(fresh, axis=0))[1:]))
