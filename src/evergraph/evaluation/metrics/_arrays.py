"""What the metrics ask of their arrays, and a mean that leaves NaN out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.errors import InputError


def names(values: ArrayLike) -> NDArray[np.object_]:
    """Class names; rows of a model's output are refused, since compared with names they would all be wrong."""
    array = np.asarray(values, dtype=object)
    for value in array.flat:
        if not isinstance(value, str):
            raise InputError(
                f"{value!r} is not a class name",
                fix="pass the names of labelled vertices, as strings, not rows or codes",
            )
    return array


def mask(values: ArrayLike) -> NDArray[np.bool_]:
    """Booleans; numbers are refused, since a list of positions would pass for a mask."""
    array = np.asarray(values)
    if array.size and array.dtype != np.bool_:
        raise InputError(f"a mask must be of booleans, not {array.dtype}", fix="pass True or False for each vertex")
    return array.astype(np.bool_)


def numbers(values: ArrayLike) -> NDArray[np.float64]:
    """Scores of vertices, none of them NaN: no threshold can be compared with NaN."""
    array = np.asarray(values, np.float64)
    if missing := int(np.isnan(array).sum()):
        raise InputError(f"{missing} of {array.size} scores are NaN", fix="look at the detector that made the scores")
    return array


def check_aligned(*arrays: NDArray[Any]) -> None:
    """Assert that the arrays tell of the same vertices."""
    shapes = [array.shape for array in arrays]
    if len(shapes[0]) != 1 or len(set(shapes)) > 1:
        told = ", ".join(map(str, shapes))
        raise InputError(f"arrays over vertices have shapes {told}", fix="pass one value for each vertex in each array")


def mean_known(values: NDArray[np.float64], axis: int | None = None) -> NDArray[np.float64]:
    """Mean without NaN; NaN where nothing is left (``np.nanmean`` would warn)."""
    known = ~np.isnan(values)
    count = known.sum(axis)
    total = np.where(known, values, 0.0).sum(axis)
    return np.divide(total, count, out=np.full(np.shape(count), np.nan), where=count > 0)
