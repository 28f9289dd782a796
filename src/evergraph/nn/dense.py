"""Products of dense matrices in blocks of rows that stay in the cache, compiled.

They are written here, not left to a BLAS library, for two reasons. Work on a block, such as a loss and its gradient,
can be done between two products, so that large matrices are neither written nor read again. And torch's library is
several times slower on some CPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from evergraph.compiled import PIECES, SMALL, compiled, cores, floats, floats_in_lines, one_each, over_range
from evergraph.nn.vectors import WIDE, broadcast, fma, load, store

__all__ = ["BLOCK", "add_product", "dense_linear", "is_compiled", "padded", "part_bounds"]

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]

BLOCK = 96
"""Rows of a block; a multiple of 6."""
_ROWS, _LANES = 6, 16  # of a narrow tile; the sums of a tile take 12 registers with AVX2 and with AVX-512


def is_compiled(*tensors: Tensor | None) -> bool:
    """Return whether the compiled products work on these tensors: single precision on a CPU, not empty."""
    there = [tensor for tensor in tensors if tensor is not None]
    return all(part.device.type == "cpu" and part.dtype == torch.float32 and part.numel() for part in there)


def padded(matrix: NDArray[Any]) -> Floats:
    """Return a copy of a matrix or vector whose last axis is filled with zeros, up to a multiple of 16.

    Examples
    --------
    >>> padded(np.ones((2, 5))).shape, padded(np.ones(32)).shape
    ((2, 16), (32,))
    """
    width = matrix.shape[-1]
    out = floats(*matrix.shape[:-1], -(-width // _LANES) * _LANES, zero=True)
    out[..., :width] = matrix
    return out


def part_bounds(rows: int, work: int) -> Longs:
    """Return the bounds of parts of whole blocks, some for each thread; a single part if there is little work.

    Examples
    --------
    >>> part_bounds(1000, work=1).tolist()
    [0, 1000]
    """
    blocks = max(-(-rows // BLOCK), 1)
    parts = min(PIECES * min(cores(), 8), blocks) if work > SMALL else 1
    return np.array([min(blocks * part // parts * BLOCK, rows) for part in range(parts + 1)])


def _tiles(lanes: int) -> Callable[..., None]:
    """Return a loop over the tiles of some columns of a product."""

    @compiled
    def loop(
        a: Floats, rows: int, row_step: int, depth: int, depth_step: int, b: Floats, width: int, out: Floats, j: int
    ) -> None:
        flat, down, across = a.reshape(-1), np.uint64(row_step), np.uint64(depth_step)
        for i in range(0, rows, _ROWS):
            place = i * width + j
            c0 = load(out, place, lanes)
            c1 = load(out, place + width, lanes)
            c2 = load(out, place + 2 * width, lanes)
            c3 = load(out, place + 3 * width, lanes)
            c4 = load(out, place + 4 * width, lanes)
            c5 = load(out, place + 5 * width, lanes)
            q = np.uint64(i) * down
            for k in range(depth):
                right = load(b, k * width + j, lanes)
                c0 = fma(broadcast(flat[q], lanes), right, c0)
                c1 = fma(broadcast(flat[q + down], lanes), right, c1)
                c2 = fma(broadcast(flat[q + np.uint64(2) * down], lanes), right, c2)
                c3 = fma(broadcast(flat[q + np.uint64(3) * down], lanes), right, c3)
                c4 = fma(broadcast(flat[q + np.uint64(4) * down], lanes), right, c4)
                c5 = fma(broadcast(flat[q + np.uint64(5) * down], lanes), right, c5)
                q += across
            store(out, place, c0)
            store(out, place + width, c1)
            store(out, place + 2 * width, c2)
            store(out, place + 3 * width, c3)
            store(out, place + 4 * width, c4)
            store(out, place + 5 * width, c5)

    return loop


_wide_tiles = _tiles(WIDE)
_narrow_tiles = _tiles(_LANES)


@compiled
def add_product(
    a: Floats, rows: int, row_step: int, depth: int, depth_step: int, b: Floats, width: int, out: Floats
) -> None:
    """Add a product to ``out`` [rows, width]; element i, k of its left factor is ``a[i * row_step + k * depth_step]``.

    ``rows`` is a multiple of 6, and ``width`` one of 16. Arrays are contiguous, of any shape.
    """
    j = 0
    while j < width:
        if width - j >= WIDE:
            _wide_tiles(a, rows, row_step, depth, depth_step, b, width, out, j)
            j += WIDE
        else:
            _narrow_tiles(a, rows, row_step, depth, depth_step, b, width, out, j)
            j += _LANES


@compiled
def copy(source: Floats, place: int, count: int, target: Floats, to: int) -> None:
    """Copy some numbers from a place of a contiguous array to a place of another."""
    whole = count - count % _LANES
    for k in range(0, whole, _LANES):
        store(target, to + k, load(source, place + k, _LANES))
    for k in range(whole, count):
        store(target, to + k, load(source, place + k, 1))


@compiled
def _multiply(first: int, last: int, a: Floats, b: Floats, bias: Floats, out: Floats) -> None:
    depth, width, columns = a.shape[1], b.shape[1], out.shape[1]
    block, found = floats_in_lines(BLOCK, depth), floats_in_lines(BLOCK, width)
    for start in range(first, last, BLOCK):
        count = min(BLOCK, last - start)
        copy(a, start * depth, count * depth, block, 0)
        block[count:] = 0
        for row in range(BLOCK):
            copy(bias, 0, width, found, row * width)
        add_product(block, BLOCK, depth, depth, 1, b, width, found)
        for row in range(count):
            copy(found, row * width, columns, out, (start + row) * columns)


@compiled
def _multiply_transposed(first: int, last: int, bounds: Longs, a: Floats, b: Floats, out: Floats) -> None:
    depth, columns, rows, width = a.shape[1], b.shape[1], out.shape[1], out.shape[2]
    left, right = floats_in_lines(BLOCK, rows), floats_in_lines(BLOCK, width)
    left[:], right[:] = 0, 0
    for part in range(first, last):
        for start in range(bounds[part], bounds[part + 1], BLOCK):
            count = min(BLOCK, bounds[part + 1] - start)
            for i in range(count):
                copy(a, (start + i) * depth, depth, left, i * rows)
                left[i, depth] = 1  # the sum of the right rows is the gradient of the bias
                copy(b, (start + i) * columns, columns, right, i * width)
            left[count:] = 0
            add_product(left, rows, 1, BLOCK, rows, right, width, out[part])


def rounded_rows(rows: int) -> int:
    """Return the number of rows that `add_product` can compute: up to a multiple of 6."""
    return -(-rows // _ROWS) * _ROWS


def dense_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x @ weight + bias``."""
    if not is_compiled(x, weight, bias):
        return x @ weight if bias is None else torch.addmm(bias, x, weight)
    return _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]  # torch's


def _product(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    left, right = a.detach().contiguous().numpy(), padded(b.detach().numpy())
    added = np.zeros(right.shape[1], np.float32) if bias is None else padded(bias.detach().numpy())
    out = floats(len(a), b.shape[1])
    over_range(_multiply, len(a), left, right, added, out, width=left.shape[1] * right.shape[1])
    return torch.from_numpy(out)


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        to_x = _product(gradient, weight.T, None) if ctx.needs_input_grad[0] else None
        to_weight = to_bias = None
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            rows, columns = weight.shape
            bounds = part_bounds(len(x), x.numel() * columns)
            parts = len(bounds) - 1
            out = floats(parts, rounded_rows(rows + 1), -(-columns // _LANES) * _LANES, zero=True)
            arrays = (part.detach().contiguous().numpy() for part in (x, gradient))
            one_each(_multiply_transposed, parts, bounds, *arrays, out)
            found = out.sum(0)[:, :columns]
            to_weight = torch.from_numpy(np.ascontiguousarray(found[:rows]))
            to_bias = torch.from_numpy(found[rows]) if ctx.needs_input_grad[2] else None
        return to_x, to_weight, to_bias
