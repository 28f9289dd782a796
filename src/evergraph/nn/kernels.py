"""The hot loops: compiled for the CPU, and at the end the same operations in plain torch for any device.

A compiled loop writes the rows ``first`` to ``last - 1`` of its result, so that several threads can work on it.
An empty array of weights or scales means that all are 1, one of kept bytes that all are kept.
"""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.compiled import compiled, exp_nonpositive

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

_WORD = 0xFFFFFFFF


@compiled
def multiply(
    first: int, last: int, indptr: Ints, indices: Ints, values: Floats, dense: Floats, bias: Floats, out: Floats
) -> None:
    """Multiply a sparse matrix with a dense one and add a bias."""
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
            if value != 0:  # dropout sets many to zero
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
    """Multiply the transposed matrix with a dense one, in parts: ``out[p]`` is for the rows from ``bounds[p]`` on.

    Each row of the dense matrix is read once and added to rows of the result, of which the frequent ones stay in the
    cache; gathering by a transposed pattern is slower. ``sums[p]`` is the sum of the dense rows.
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
    own: int,
    column: int,
    out: Floats,
) -> None:
    """Copy the first ``own`` columns of the source, and add row scale * sum(weight * column scale * source).

    The sum is over the neighbours that the source contains and its columns from ``column`` on. It is added to the last
    columns of the result.
    """
    # Column numbers are unsigned: an index that might be negative, or a slice, prevents vectorising the inner loop.
    copied, start, columns = np.uint64(own), np.uint64(column), np.uint64(out.shape[1])
    width = np.uint64(source.shape[1]) - start
    shift = columns - width
    for row in range(first, last):
        known = copied if row < len(source) else np.uint64(0)
        for k in range(known):
            out[row, k] = source[row, k]
        for k in range(known, columns):
            out[row, k] = 0
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
                out[row, shift + k] += value * source[other, start + k]


@compiled
def relu_drop(first: int, last: int, x: Floats, keep: Bytes, scale: float, out: Floats) -> None:
    """Rectify, drop and scale."""
    factor = np.float32(scale)
    for place in range(first, last):
        # Always computed, which avoids a branch. Not max(), because NaN must pass through.
        value = x[place] * (np.float32(keep[place]) * factor)
        out[place] = np.float32(0) if x[place] <= 0 else value


@compiled
def relu_drop_back(first: int, last: int, gradient: Floats, y: Floats, scale: float, out: Floats) -> None:
    """Pass the gradient where the result is positive, which means a positive input that was kept."""
    factor = np.float32(scale)
    for place in range(first, last):
        value = gradient[place] * factor
        out[place] = value if y[place] > 0 else np.float32(0)


@compiled
def drop(first: int, last: int, x: Floats, keep: Bytes, scale: float, out: Floats) -> None:
    """Drop and scale."""
    factor = np.float32(scale)
    for place in range(first, last):
        out[place] = x[place] * (np.float32(keep[place]) * factor)


@compiled
def _hash(place: int, key: np.uint32, second: np.uint32) -> np.uint32:
    # Each step is cast, because numba would otherwise compute in 64 bits, which is a different hash.
    x = np.uint32(np.uint32(place) ^ key)
    x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(15))) * np.uint32(0x846CA68B))
    x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(16))) + second)
    x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(16))) * np.uint32(0x7FEB352D))
    x = np.uint32(np.uint32(x ^ np.uint32(x >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(x ^ np.uint32(x >> np.uint32(16)))


@compiled
def keep_bytes(first: int, last: int, key: np.uint32, second: np.uint32, threshold: np.uint32, out: Bytes) -> None:
    """Write 1 where the hash of place and keys is at least the threshold, else 0."""
    for place in range(first, last):
        out[place] = np.uint8(_hash(place, key, second) >= threshold)


@compiled
def drop_by_hash(
    first: int,
    last: int,
    x: Floats,
    key: np.uint32,
    second: np.uint32,
    threshold: np.uint32,
    scale: float,
    out: Floats,
) -> None:
    """Drop and scale in one pass, as `keep_bytes` and `drop` do in two."""
    factor = np.float32(scale)
    for place in range(first, last):
        out[place] = x[place] * (np.float32(_hash(place, key, second) >= threshold) * factor)


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
    """Make one step of Adam in place; ``rate`` and ``root`` include the bias corrections."""
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
    """Compute each vertex's attention over its neighbours and the weighted sum of their vectors, per head.

    ``z`` is [n, heads * width], ``left`` and ``right`` [n, heads]: scores of a vertex as neighbour and as centre.
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
                    if width == 8:  # the most frequent width; as a constant it compiles to one instruction
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
    """Compute the gradients of each entry's score (``back`` [entries, heads]) and of ``right``."""
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
    """Compute the gradients of ``z`` and ``left`` from those of result and scores.

    ``mirror[e]`` is the entry of e's edge in the opposite direction; only neighbours below ``limit`` have results.
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


# --- plain torch -----------------------------------------------------------------------------------------------------


def torch_multiply(indptr: Tensor, indices: Tensor, values: Tensor, columns: int, dense: Tensor) -> Tensor:
    """Multiply a sparse matrix in compressed rows with a dense one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        shape = (len(indptr) - 1, columns)
        return torch.sparse_csr_tensor(indptr, indices, values, shape, check_invariants=False) @ dense


def torch_gather(
    indptr: Tensor,
    indices: Tensor,
    weights: Tensor | None,
    row_scale: Tensor | None,
    column_scale: Tensor | None,
    source: Tensor,
    rows: int,
    own: int,
    column: int,
) -> Tensor:
    """Do what `gather` does."""
    last, missing = int(indptr[rows]), max(len(indptr) - 1 - len(source), 0)
    values = torch.ones(last, device=source.device) if weights is None else weights[:last]
    padded = torch.nn.functional.pad(source, (0, 0, 0, missing))
    scaled = padded[:, column:] if column_scale is None else padded[:, column:] * column_scale[:, None]
    out = torch_multiply(indptr[: rows + 1], indices[:last], values, len(indptr) - 1, scaled.contiguous())
    if row_scale is not None:
        out = out * row_scale[:rows, None]
    if not own:
        return out
    return padded[:rows, :own] + out if column else torch.cat([padded[:rows, :own], out], 1)


def torch_keep_bytes(n: int, key: int, second: int, threshold: int, device: torch.device) -> Tensor:
    """Return the same bytes as `keep_bytes`."""
    x = torch.arange(n, device=device) ^ key
    for added in (second, 0):
        x = ((x ^ (x >> 16)) * 0x7FEB352D) & _WORD
        x = ((x ^ (x >> 15)) * 0x846CA68B) & _WORD
        x = ((x ^ (x >> 16)) + added) & _WORD
    return (x >= threshold).to(torch.uint8)


def torch_attend(
    indptr: Tensor,
    indices: Tensor,
    rows: int,
    z: Tensor,
    left: Tensor,
    right: Tensor,
    slope: float,
    keep: Tensor | None,
) -> Tensor:
    """Do what `attend` does; ``keep`` [entries, heads] contains the scaled dropout of the attention."""
    heads = left.shape[1]
    target = torch.repeat_interleave(torch.arange(rows, device=z.device), indptr[1 : rows + 1] - indptr[:rows])
    source = indices[: int(indptr[rows])].long()
    score = torch.nn.functional.leaky_relu(left[source] + right[target], slope)
    top = torch.full((rows, heads), -torch.inf, device=z.device, dtype=z.dtype)
    top = top.scatter_reduce(0, target[:, None].expand_as(score), score.detach(), "amax")
    weight = torch.exp(score - top[target])
    share = weight / torch.zeros_like(top).index_add(0, target, weight)[target]
    if keep is not None:
        share = share * keep
    parts = z.reshape(len(z), heads, z.shape[1] // heads)[source] * share[:, :, None]
    return torch.zeros((rows, z.shape[1]), device=z.device, dtype=z.dtype).index_add(0, target, parts.flatten(1))
