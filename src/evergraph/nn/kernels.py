"""The hot loops, compiled: each writes the rows ``first`` to ``last - 1`` of its result, so that threads share them.

`evergraph.nn.ops` runs them behind autograd, or in their place the same in plain torch (`evergraph.nn.plain`).

A vector of length 0 stands for "none": of weights and scales it means that all are 1, of kept bytes that all are kept.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from evergraph.compiled import compiled, exp_nonpositive

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
    "multiply_transposed",
    "relu_drop",
    "relu_drop_back",
]

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@compiled
def multiply(
    first: int, last: int, indptr: Ints, indices: Ints, values: Floats, dense: Floats, bias: Floats, out: Floats
) -> None:
    """A sparse matrix times a dense one, plus a bias."""
    width = dense.shape[1]
    for row in range(first, last):
        if len(bias):
            for k in range(width):
                out[row, k] = bias[k]
        else:
            for k in range(width):
                out[row, k] = 0
        for entry in range(indptr[row], indptr[row + 1]):
            value = values[entry]
            if value != 0:  # dropout has set many to zero
                other = indices[entry]
                for k in range(width):
                    out[row, k] += value * dense[other, k]


@compiled
def multiply_transposed(
    first: int,
    last: int,
    bounds: NDArray[np.int64],
    indptr: Ints,
    indices: Ints,
    values: Floats,
    dense: Floats,
    out: Floats,
    sums: Floats,
) -> None:
    """The transposed matrix times a dense one, in parts: ``out[p]`` is that of the rows from ``bounds[p]`` on.

    Each row of the dense matrix is read once and added to rows of the result, of which the frequent ones stay in the
    cache: gathering by a transposed pattern is slower. ``sums[p]`` is the sum of the rows.
    """
    width = dense.shape[1]
    for part in range(first, last):
        for row in range(bounds[part], bounds[part + 1]):
            for k in range(width):
                sums[part, k] += dense[row, k]
            for entry in range(indptr[row], indptr[row + 1]):
                value = values[entry]
                if value != 0:
                    other = indices[entry]
                    for k in range(width):
                        out[part, other, k] += value * dense[row, k]


@compiled
def _add_neighbours(
    row: int,
    indptr: Ints,
    indices: Ints,
    place: Ints,
    weights: Floats,
    row_scale: Floats,
    column_scale: Floats,
    source: Floats,
    column: np.uint64,
    width: np.uint64,
    out: Floats,
    out_column: np.uint64,
) -> None:
    """Add row scale * sum(weight * column scale * source) over those neighbours that the source has.

    It reads so many columns of the source from one on, and adds to as many of the result from another on. Columns are
    unsigned: an index that might be negative, or a slice, keeps the inner loop from being vectorised.
    """
    scale = row_scale[row] if len(row_scale) else np.float32(1)
    for entry in range(indptr[row], indptr[row + 1]):
        other = np.uint32(indices[entry])
        if other >= len(source):  # neighbours ascend
            break
        value = scale
        if len(column_scale):
            value *= column_scale[other]
        if len(weights):
            value *= weights[place[entry]]
        for k in range(width):
            out[row, out_column + k] += value * source[other, column + k]


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
    width, zero = np.uint64(source.shape[1]), np.uint64(0)
    for row in range(first, last):
        for k in range(width):
            out[row, k] = 0
        _add_neighbours(row, indptr, indices, place, weights, row_scale, column_scale, source, zero, width, out, zero)


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
    width, zero = np.uint64(source.shape[1] // 2), np.uint64(0)
    for row in range(first, last):
        if row < len(source):
            for k in range(width):
                out[row, k] = source[row, k]
        else:
            for k in range(width):
                out[row, k] = 0
        _add_neighbours(row, indptr, indices, place, weights, row_scale, column_scale, source, width, width, out, zero)


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
    width, zero = np.uint64(source.shape[1]), np.uint64(0)
    for row in range(first, last):
        if row < len(source):
            for k in range(width):
                out[row, k] = source[row, k]
        else:
            for k in range(width):
                out[row, k] = 0
        for k in range(width):
            out[row, width + k] = 0
        _add_neighbours(row, indptr, indices, place, weights, row_scale, column_scale, source, zero, width, out, width)


@compiled
def relu_drop(first: int, last: int, x: Floats, keep: Bytes, scale: float, out: Floats) -> None:
    """The positive part of what is kept, scaled."""
    factor = np.float32(scale)
    for place in range(first, last):
        # Computed in any case, so that there is no branch; not max(), for NaN must pass through.
        value = x[place] * (np.float32(keep[place]) * factor)
        out[place] = np.float32(0) if x[place] <= 0 else value


@compiled
def relu_drop_back(first: int, last: int, gradient: Floats, y: Floats, scale: float, out: Floats) -> None:
    """The gradient passes where the result was positive: that is, where the input was and it was kept."""
    factor = np.float32(scale)
    for place in range(first, last):
        value = gradient[place] * factor
        out[place] = value if y[place] > 0 else np.float32(0)


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
    heads = np.uint64(left.shape[1])
    width = np.uint64(z.shape[1] // left.shape[1])
    slope32, scale32 = np.float32(slope), np.float32(scale)
    top, share = np.empty(left.shape[1], np.float32), np.empty(left.shape[1], np.float32)
    for row in range(first, last):
        for k in range(heads * width):
            out[row, k] = 0
        start, stop = indptr[row], indptr[row + 1]
        for head in range(heads):
            top[head] = -np.inf
            share[head] = 0
        for entry in range(start, stop):
            other = indices[entry]
            for head in range(heads):
                score = left[other, head] + right[row, head]
                score = score if score > 0 else score * slope32
                attention[entry, head] = score
                top[head] = top[head] if score <= top[head] else score  # noqa: FURB136  # not max(): NaN must stay
        for entry in range(start, stop):
            for head in range(heads):
                value = exp_nonpositive(attention[entry, head] - top[head])
                attention[entry, head] = value
                share[head] += value
        for head in range(heads):
            share[head] = np.float32(1) / share[head]
        for entry in range(start, stop):
            other = indices[entry]
            for head in range(heads):
                value = attention[entry, head] * share[head]
                attention[entry, head] = value
                value *= scale32
                if len(keep):
                    value *= np.float32(keep[np.uint64(entry) * heads + head])
                if value != 0:
                    base = head * width
                    if width == 8:  # by far the most frequent width: known to the compiler, it is one instruction
                        for k in range(np.uint64(8)):
                            out[row, base + k] += value * z[other, base + k]
                    else:
                        for k in range(width):
                            out[row, base + k] += value * z[other, base + k]


@partial(compiled, reorder=True)
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
    heads = np.uint64(left.shape[1])
    width = np.uint64(z.shape[1] // left.shape[1])
    slope32, scale32 = np.float32(slope), np.float32(scale)
    mean, total = np.empty(left.shape[1], np.float32), np.empty(left.shape[1], np.float32)
    for row in range(first, last):
        start, stop = indptr[row], indptr[row + 1]
        for head in range(heads):
            mean[head] = 0
            total[head] = 0
        for entry in range(start, stop):
            other = indices[entry]
            for head in range(heads):
                value = np.float32(0)
                if not len(keep) or keep[np.uint64(entry) * heads + head]:
                    base = head * width
                    if width == 8:
                        for k in range(np.uint64(8)):
                            value += gradient[row, base + k] * z[other, base + k]
                    else:
                        for k in range(width):
                            value += gradient[row, base + k] * z[other, base + k]
                value *= scale32
                back[entry, head] = value
                mean[head] += attention[entry, head] * value
        for entry in range(start, stop):
            other = indices[entry]
            for head in range(heads):
                value = attention[entry, head] * (back[entry, head] - mean[head])
                value *= np.float32(1) if left[other, head] + right[row, head] > 0 else slope32
                back[entry, head] = value
                total[head] += value
        for head in range(heads):
            to_right[row, head] = total[head]


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
    heads = np.uint64(to_left.shape[1])
    width = np.uint64(to_z.shape[1] // to_left.shape[1])
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
                    value *= np.float32(keep[np.uint64(other) * heads + head])
                if value != 0:
                    base = head * width
                    if width == 8:
                        for k in range(np.uint64(8)):
                            to_z[row, base + k] += value * gradient[centre, base + k]
                    else:
                        for k in range(width):
                            to_z[row, base + k] += value * gradient[centre, base + k]
