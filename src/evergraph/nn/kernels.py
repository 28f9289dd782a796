"""The hot loops, compiled: each writes the rows ``first`` to ``last - 1`` of its result, so that threads share them.

`evergraph.nn.ops` runs them behind autograd, or in their place the same in plain torch (`evergraph.nn.plain`).

A vector of length 0 stands for "none": of weights and scales it means that all are 1, of kept bytes that all are kept.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evergraph.compiled import compiled

__all__ = [
    "adam",
    "attend",
    "attend_back_to_scores",
    "attend_back_to_sources",
    "drop",
    "gather",
    "gather_beside",
    "gather_onto",
    "keep_bytes",
    "multiply",
    "relu_drop",
    "relu_drop_back",
]

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@compiled
def multiply(
    first: int,
    last: int,
    indptr: Ints,
    indices: Ints,
    place: Ints,
    values: Floats,
    dense: Floats,
    bias: Floats,
    out: Floats,
) -> None:
    """A sparse matrix times a dense one plus a bias; the value of entry ``e`` is ``values[place[e]]``."""
    width = dense.shape[1]
    for row in range(first, last):
        if len(bias):
            for k in range(width):
                out[row, k] = bias[k]
        else:
            for k in range(width):
                out[row, k] = 0
        for entry in range(indptr[row], indptr[row + 1]):
            value = values[place[entry]]
            if value != 0:  # dropout has set many to zero
                other = indices[entry]
                for k in range(width):
                    out[row, k] += value * dense[other, k]


@compiled
def _add_neighbours(
    row: int,
    indptr: Ints,
    indices: Ints,
    place: Ints,
    weights: Floats,
    row_scale: Floats,
    column_scale: Floats,
    limit: int,
    source: Floats,
    column: int,
    target: Floats,
) -> None:
    """Add row scale * sum(weight * column scale * source) over the neighbours below ``limit`` to ``target``."""
    scale = row_scale[row] if len(row_scale) else np.float32(1)
    width = len(target)
    for entry in range(indptr[row], indptr[row + 1]):
        other = indices[entry]
        if other >= limit:  # neighbours ascend
            break
        value = scale
        if len(column_scale):
            value *= column_scale[other]
        if len(weights):
            value *= weights[place[entry]]
        # A slice, for an index that might be negative keeps the inner loop from being vectorised.
        piece = source[other, column : column + width]
        for k in range(width):
            target[k] += value * piece[k]


@compiled
def gather(
    first: int,
    last: int,
    indptr: Ints,
    indices: Ints,
    place: Ints,
    weights: Floats,
    row_scale: Floats,
    column_scale: Floats,
    source: Floats,
    out: Floats,
) -> None:
    """The scaled sum over those neighbours that the source has."""
    for row in range(first, last):
        target = out[row]
        target[:] = 0
        _add_neighbours(row, indptr, indices, place, weights, row_scale, column_scale, len(source), source, 0, target)


@compiled
def gather_onto(
    first: int,
    last: int,
    indptr: Ints,
    indices: Ints,
    place: Ints,
    weights: Floats,
    row_scale: Floats,
    column_scale: Floats,
    source: Floats,
    out: Floats,
) -> None:
    """The left half of the source (0 beyond its end) plus the scaled sum over the neighbours' right halves."""
    width = source.shape[1] // 2
    for row in range(first, last):
        target = out[row]
        if row < len(source):
            for k in range(width):
                target[k] = source[row, k]
        else:
            target[:] = 0
        _add_neighbours(
            row, indptr, indices, place, weights, row_scale, column_scale, len(source), source, width, target
        )


@compiled
def gather_beside(
    first: int,
    last: int,
    indptr: Ints,
    indices: Ints,
    place: Ints,
    weights: Floats,
    row_scale: Floats,
    column_scale: Floats,
    source: Floats,
    out: Floats,
) -> None:
    """The source (0 beyond its end), and beside it the scaled sum over the neighbours."""
    width = source.shape[1]
    for row in range(first, last):
        out[row] = 0
        if row < len(source):
            for k in range(width):
                out[row, k] = source[row, k]
        target = out[row, width:]
        _add_neighbours(row, indptr, indices, place, weights, row_scale, column_scale, len(source), source, 0, target)


@compiled
def relu_drop(first: int, last: int, x: Floats, keep: Bytes, scale: float, out: Floats) -> None:
    """The positive part of what is kept, scaled."""
    factor = np.float32(scale)
    for place in range(first, last):
        value = x[place]
        # Not max(): a comparison with NaN is false, and NaN must pass through.
        out[place] = np.float32(0) if value <= 0 else value * np.float32(keep[place]) * factor


@compiled
def relu_drop_back(first: int, last: int, gradient: Floats, y: Floats, scale: float, out: Floats) -> None:
    """The gradient passes where the result was positive: that is, where the input was and it was kept."""
    factor = np.float32(scale)
    for place in range(first, last):
        out[place] = gradient[place] * factor if y[place] > 0 else np.float32(0)


@compiled
def drop(first: int, last: int, x: Floats, keep: Bytes, scale: float, out: Floats) -> None:
    """What is kept, scaled."""
    factor = np.float32(scale)
    for place in range(first, last):
        out[place] = x[place] * (np.float32(keep[place]) * factor)


@compiled
def keep_bytes(first: int, last: int, key: np.uint32, second: np.uint32, threshold: np.uint32, out: Bytes) -> None:
    """1 where the hash of place and keys is at or above the threshold, else 0."""
    for place in range(first, last):
        # Each step is cast: left alone, arithmetic of 32 bits becomes one of 64 bits, which is another function.
        x = np.uint32(np.uint32(place) ^ key)
        x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(16))) * np.uint32(0x7FEB352D))
        x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(15))) * np.uint32(0x846CA68B))
        x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(16))) + second)
        x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(16))) * np.uint32(0x7FEB352D))
        x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(15))) * np.uint32(0x846CA68B))
        x = np.uint32(x ^ np.uint32(x >> np.uint32(16)))
        out[place] = np.uint8(x >= threshold)


@compiled
def adam(
    first: int,
    last: int,
    weights: Floats,
    gradients: Floats,
    means: Floats,
    squares: Floats,
    rate: float,
    root: float,
    decay: float,
) -> None:
    """One step of Adam, in place; ``rate`` and ``root`` carry the corrections for its start."""
    rate32, root32, decay32 = np.float32(rate), np.float32(1 / root), np.float32(decay)
    for place in range(first, last):
        gradient = gradients[place] + decay32 * weights[place]
        mean = means[place] + np.float32(0.1) * (gradient - means[place])
        square = np.float32(0.999) * squares[place] + np.float32(0.001) * gradient * gradient
        means[place], squares[place] = mean, square
        weights[place] -= rate32 * mean / (np.sqrt(square) * root32 + np.float32(1e-8))


@compiled
def attend(
    first: int,
    last: int,
    indptr: Ints,
    indices: Ints,
    z: Floats,
    left: Floats,
    right: Floats,
    slope: float,
    keep: Bytes,
    scale: float,
    attention: Floats,
    out: Floats,
) -> None:
    """Attention of each vertex over its neighbours and the sum of their vectors under it, head by head.

    ``z`` is [n, heads * width], ``left`` and ``right`` [n, heads]: the scores of a vertex as neighbour and as centre.
    ``attention`` [entries, heads] receives the softmax before dropout; ``keep`` [entries * heads] drops some of it.
    """
    heads = left.shape[1]
    width = z.shape[1] // heads
    slope32, scale32 = np.float32(slope), np.float32(scale)
    for row in range(first, last):
        for k in range(heads * width):
            out[row, k] = 0
        start, stop = indptr[row], indptr[row + 1]
        for head in range(heads):
            top = np.float32(-np.inf)
            for entry in range(start, stop):
                score = left[indices[entry], head] + right[row, head]
                score = score if score > 0 else score * slope32
                attention[entry, head] = score
                if not score <= top:  # so that NaN passes through
                    top = score
            total = np.float32(0)
            for entry in range(start, stop):
                value = np.float32(math.exp(attention[entry, head] - top))
                attention[entry, head] = value
                total += value
            share = np.float32(1) / total
            for entry in range(start, stop):
                attention[entry, head] *= share
        for entry in range(start, stop):
            other = indices[entry]
            for head in range(heads):
                value = attention[entry, head] * scale32
                if len(keep):
                    value *= np.float32(keep[entry * heads + head])
                if value != 0:
                    for k in range(head * width, (head + 1) * width):
                        out[row, k] += value * z[other, k]


@compiled
def attend_back_to_scores(
    first: int,
    last: int,
    indptr: Ints,
    indices: Ints,
    z: Floats,
    left: Floats,
    right: Floats,
    slope: float,
    keep: Bytes,
    scale: float,
    attention: Floats,
    gradient: Floats,
    back: Floats,
    to_right: Floats,
) -> None:
    """From the gradient of the result to that of each entry's score (``back`` [entries, heads]) and of ``right``."""
    heads = left.shape[1]
    width = z.shape[1] // heads
    slope32, scale32 = np.float32(slope), np.float32(scale)
    for row in range(first, last):
        start, stop = indptr[row], indptr[row + 1]
        for entry in range(start, stop):
            other = indices[entry]
            for head in range(heads):
                value = np.float32(0)
                if not len(keep) or keep[entry * heads + head]:
                    for k in range(head * width, (head + 1) * width):
                        value += gradient[row, k] * z[other, k]
                back[entry, head] = value * scale32
        for head in range(heads):
            mean = np.float32(0)
            for entry in range(start, stop):
                mean += attention[entry, head] * back[entry, head]
            total = np.float32(0)
            for entry in range(start, stop):
                value = attention[entry, head] * (back[entry, head] - mean)
                if left[indices[entry], head] + right[row, head] <= 0:
                    value *= slope32
                back[entry, head] = value
                total += value
            to_right[row, head] = total


@compiled
def attend_back_to_sources(
    first: int,
    last: int,
    indptr: Ints,
    indices: Ints,
    mirror: Ints,
    limit: int,
    keep: Bytes,
    scale: float,
    attention: Floats,
    gradient: Floats,
    back: Floats,
    to_z: Floats,
    to_left: Floats,
) -> None:
    """From the gradients of result and scores to those of ``z`` and ``left``.

    ``mirror[e]`` is the entry of e's edge the other way round; only neighbours below ``limit`` have results.
    """
    heads = to_left.shape[1]
    width = to_z.shape[1] // heads
    scale32 = np.float32(scale)
    for row in range(first, last):
        for k in range(heads * width):
            to_z[row, k] = 0
        for head in range(heads):
            to_left[row, head] = 0
        for entry in range(indptr[row], indptr[row + 1]):
            centre = indices[entry]
            if centre >= limit:  # neighbours ascend
                break
            other = mirror[entry]
            for head in range(heads):
                to_left[row, head] += back[other, head]
                value = attention[other, head] * scale32
                if len(keep):
                    value *= np.float32(keep[other * heads + head])
                if value != 0:
                    for k in range(head * width, (head + 1) * width):
                        to_z[row, k] += value * gradient[centre, k]
