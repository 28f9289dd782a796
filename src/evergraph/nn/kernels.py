"""The hot loops: compiled for the CPU, and at the end the same operations in plain torch for any device.

A compiled loop writes the rows ``first`` to ``last - 1`` of its result, so that several threads can work on it.
An empty array of weights or scales means that all are 1, one of kept bytes that all are kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.compiled import compiled, floats_in_lines
from evergraph.nn.vectors import (
    broadcast,
    exp,
    fma,
    keep,
    load,
    maximum,
    pair_totals,
    positive,
    prefetch,
    repeat,
    sqrt,
    store,
    total,
    where_negative,
)

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

Dropout = tuple[np.uint32, np.uint32, np.uint32, np.float32]
"""Two keys of the hash, the threshold below which an entry is dropped (0 keeps all), and the scale of the others."""
NO_DROPOUT: Dropout = (np.uint32(0), np.uint32(0), np.uint32(0), np.float32(1))
NO_NEIGHBOURS = (*(np.empty(0, np.int32),) * 3, *(np.empty(0, np.float32),) * 3)
"""The first arguments of `gather` if nothing is gathered."""

_WORD = 0xFFFFFFFF


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
def _kept(value: np.float32, place: int, dropout: Dropout) -> np.float32:
    """Return a value after dropout, by its place."""
    key, second, threshold, scale = dropout
    if threshold == 0:
        return value
    return value * (np.float32(_hash(place, key, second) >= threshold) * scale)


# --- sums of rows -----------------------------------------------------------------------------------------------------
# Each loop below keeps some columns of a row's sum in registers: 64 if there are as many, else 32, 8 or 1.
# `_in_columns` makes a loop over all columns of it. Places are unsigned, because numba checks whether a signed one is
# below 0.

_LINE = 16  # floats of a cache line
_AHEAD = 12  # entries; reading memory takes about as long as so many additions
_TOGETHER = 64  # rows whose columns are computed one range after the other, so that they stay in the cache


def _in_columns(make: Callable[[int], Callable[..., None]]) -> Callable[..., None]:
    """Return a loop over rows and columns; ``make`` returns one over rows for a constant number of columns."""
    widest, wide, few, one = make(64), make(32), make(8), make(1)

    @compiled
    def loop(first: int, last: int, width: int, arguments: Any) -> None:
        done = 0
        while done < width:
            left = width - done
            if left >= 64:
                widest(first, last, done, *arguments)
                done += 64
            elif left >= 32:
                wide(first, last, done, *arguments)
                done += 32
            elif left >= 8:
                few(first, last, done, *arguments)
                done += 8
            else:
                one(first, last, done, *arguments)
                done += 1

    return loop


def _gather_columns(lanes: int) -> Callable[..., None]:
    @compiled
    def loop(
        first: int,
        last: int,
        done: int,
        indptr: Ints,
        indices: Ints,
        place: Ints,
        weights: Floats,
        row_scale: Floats,
        column_scale: Floats,
        source: Floats,
        column: int,
        limit: int,
        own: Floats,
        beside: bool,
        out: Floats,
        out_row: int,
        out_column: int,
        relu: bool,
        dropout: Dropout,
        width: int,
    ) -> None:
        step, start = np.uint64(source.shape[1]), np.uint64(column + done)
        end, below, ahead = np.uint64(len(indices) - 1), np.uint64(limit), np.uint64(_AHEAD)
        skipped = np.uint64(out_row)
        key, second, threshold, dropout_scale = dropout
        for row in range(np.uint64(first), np.uint64(last)):
            total = broadcast(0, lanes)
            for entry in range(np.uint64(indptr[row]), np.uint64(indptr[row + np.uint64(1)])):
                other = np.uint64(indices[entry])
                if other >= below:  # neighbours ascend
                    break
                soon = np.uint64(indices[min(entry + ahead, end)]) * step + start
                prefetch(source, soon)
                if lanes > _LINE:
                    prefetch(source, soon + np.uint64(_LINE))
                if lanes > 2 * _LINE:
                    prefetch(source, soon + np.uint64(2 * _LINE))
                    prefetch(source, soon + np.uint64(3 * _LINE))
                found = load(source, other * step + start, lanes)
                if len(weights):
                    value = weights[np.uint64(place[entry])]
                    if len(column_scale):
                        value *= column_scale[other]
                    total = fma(broadcast(value, lanes), found, total)
                elif len(column_scale):
                    total = fma(broadcast(column_scale[other], lanes), found, total)
                else:
                    total = total + found
            if len(row_scale):
                total = total * broadcast(row_scale[row], lanes)
            if beside or len(own):
                copied = broadcast(0, lanes)
                if row < np.uint64(len(own)):
                    copied = load(own, row * np.uint64(own.shape[1]) + np.uint64(done), lanes)
                if beside:
                    store(out, (row - skipped) * np.uint64(out.shape[1]) + np.uint64(done), copied)
                else:
                    total = total + copied
            if relu:
                total = positive(total, total)
                if threshold > np.uint32(0):
                    where = row * np.uint64(width) + np.uint64(done)
                    scaled = total * broadcast(dropout_scale, lanes)
                    dropped = scaled * broadcast(0, lanes)  # NaN must stay
                    total = keep(scaled, where, key, second, threshold, dropped)
            store(out, (row - skipped) * np.uint64(out.shape[1]) + np.uint64(out_column + done), total)

    return loop


_gather = _in_columns(_gather_columns)


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
    column: int,
    limit: int,
    own: Floats,
    beside: bool,
    out: Floats,
    out_row: int,
    out_column: int,
    width: int,
    relu: bool,
    dropout: Dropout,
) -> None:
    """Compute row scale * sum(weight * column scale * source) over the neighbours before ``limit``.

    The sum has ``width`` columns: those of ``source`` from ``column`` on. It is written to the columns of ``out`` from
    ``out_column`` on; the first row of ``out`` is that of vertex ``out_row``. The first columns of ``own``, if there is
    any, are added to it or, with ``beside``, copied to the first columns of ``out``. With ``relu``, the result is
    rectified, and dropout is applied by its place in a matrix of ``width`` columns.
    """
    scaled = (indptr, indices, place, weights, row_scale, column_scale)
    arguments = (*scaled, source, column, limit, own, beside, out, out_row, out_column, relu, dropout, width)
    for start in range(first, last, _TOGETHER):
        _gather(start, min(start + _TOGETHER, last), width, arguments)


def _multiply_columns(lanes: int) -> Callable[..., None]:
    @compiled
    def loop(
        first: int,
        last: int,
        done: int,
        indptr: Ints,
        indices: Ints,
        values: Floats,
        dropout: Dropout,
        dense: Floats,
        bias: Floats,
        out: Floats,
    ) -> None:
        step, start = np.uint64(dense.shape[1]), np.uint64(done)
        for row in range(np.uint64(first), np.uint64(last)):
            total = load(bias, done, lanes) if len(bias) else broadcast(0, lanes)
            for entry in range(np.uint64(indptr[row]), np.uint64(indptr[row + np.uint64(1)])):
                # Dropped entries are added as 0: a branch that the CPU cannot predict costs more.
                value = _kept(values[entry], entry, dropout)
                total = fma(
                    broadcast(value, lanes), load(dense, np.uint64(indices[entry]) * step + start, lanes), total
                )
            store(out, row * step + start, total)

    return loop


_multiply = _in_columns(_multiply_columns)


@compiled
def multiply(
    first: int,
    last: int,
    indptr: Ints,
    indices: Ints,
    values: Floats,
    dropout: Dropout,
    dense: Floats,
    bias: Floats,
    out: Floats,
) -> None:
    """Multiply a sparse matrix, after dropout of its entries, with a dense one and add a bias."""
    arguments = (indptr, indices, values, dropout, dense, bias, out)
    for start in range(first, last, _TOGETHER):
        _multiply(start, min(start + _TOGETHER, last), dense.shape[1], arguments)


def _transposed_columns(lanes: int) -> Callable[..., None]:
    @compiled
    def loop(
        first: int,
        last: int,
        done: int,
        indptr: Ints,
        indices: Ints,
        values: Floats,
        dropout: Dropout,
        dense: Floats,
        dense_row: int,
        out: Floats,
        sums: Floats,
    ) -> None:
        step, start, skipped = np.uint64(dense.shape[1]), np.uint64(done), np.uint64(dense_row)
        total = load(sums, done, lanes)
        for row in range(np.uint64(first), np.uint64(last)):
            given = load(dense, (row - skipped) * step + start, lanes)
            total = total + given
            for entry in range(np.uint64(indptr[row]), np.uint64(indptr[row + np.uint64(1)])):
                value = _kept(values[entry], entry, dropout)
                place = np.uint64(indices[entry]) * step + start
                store(out, place, fma(broadcast(value, lanes), given, load(out, place, lanes)))
        store(sums, done, total)

    return loop


_multiply_transposed = _in_columns(_transposed_columns)


@compiled
def multiply_transposed(
    first: int,
    last: int,
    bounds: NDArray[np.int64],
    indptr: Ints,
    indices: Ints,
    values: Floats,
    dropout: Dropout,
    dense: Floats,
    neighbours: Any,
    out: Floats,
    sums: Floats,
) -> None:
    """Multiply the transposed matrix with a dense one, in parts: ``out[p]`` is for the rows from ``bounds[p]`` on.

    Each row of the dense matrix is read once and added to rows of the result, of which the frequent ones stay in the
    cache; gathering by a transposed pattern is slower. ``sums[p]`` is the sum of the dense rows. If the dense matrix is
    narrower than the result, the sums over neighbours, which the arguments of `gather` describe, are put beside it.
    """
    width, own = out.shape[2], dense.shape[1]
    block = floats_in_lines(_TOGETHER, width)
    for part in range(first, last):
        for start in range(bounds[part], bounds[part + 1], _TOGETHER):
            stop = min(start + _TOGETHER, bounds[part + 1])
            if own < width:
                near = (dense, 0, len(dense), dense, True, block, start, own, own, False, NO_DROPOUT)
                gather(start, stop, *neighbours, *near)
                arguments = (indptr, indices, values, dropout, block, start, out[part], sums[part])
            else:
                arguments = (indptr, indices, values, dropout, dense, 0, out[part], sums[part])
            _multiply_transposed(start, stop, width, arguments)


@compiled
def relu_drop_back(first: int, last: int, gradient: Floats, y: Floats, scale: float, out: Floats) -> None:
    """Pass the gradient where the result is positive, which means a positive input that was kept."""
    factor = np.float32(scale)
    for place in range(first, last):
        value = gradient[place] * factor
        out[place] = value if y[place] > 0 else np.float32(0)


@compiled
def add_loops(first: int, last: int, indptr: Ints, indices: Ints, out: Ints) -> None:
    """Insert each row's own number among its neighbours, which ascend."""
    for row in range(first, last):
        place = np.int64(indptr[row]) + row
        waiting = True
        for entry in range(indptr[row], indptr[row + 1]):
            if waiting and indices[entry] > row:
                out[place] = row
                place += 1
                waiting = False
            out[place] = indices[entry]
            place += 1
        if waiting:
            out[place] = row


def _drop_some(lanes: int) -> Callable[..., None]:
    @partial(compiled, inline=True)
    def loop(place: int, x: Floats, dropout: Dropout, relu: bool, out: Floats) -> None:
        key, second, threshold, scale = dropout
        value = load(x, place, lanes) * broadcast(scale, lanes)
        if relu:
            value = positive(value, value)
        dropped = value * broadcast(0, lanes)  # NaN must stay
        store(out, place, keep(value, place, key, second, threshold, dropped))

    return loop


_drop_16, _drop_1 = _drop_some(_LINE), _drop_some(1)


@compiled
def keep_bytes(first: int, last: int, key: np.uint32, second: np.uint32, threshold: np.uint32, out: Bytes) -> None:
    """Write 1 where the hash of place and keys is at least the threshold, else 0."""
    for place in range(first, last):
        out[place] = np.uint8(_hash(place, key, second) >= threshold)


@compiled
def drop(first: int, last: int, x: Floats, dropout: Dropout, relu: bool, out: Floats) -> None:
    """Drop and scale the numbers from place ``first`` on, and with ``relu`` rectify them."""
    place = first
    while place + _LINE <= last:
        _drop_16(place, x, dropout, relu, out)
        place += _LINE
    while place < last:
        _drop_1(place, x, dropout, relu, out)
        place += 1


def _adam_some(lanes: int) -> Callable[..., None]:
    @partial(compiled, inline=True)
    def loop(
        place: int,
        weights: Floats,
        gradients: Floats,
        means: Floats,
        squares: Floats,
        rate: np.float32,
        root: np.float32,
        decay: np.float32,
    ) -> None:
        weight, mean, square = load(weights, place, lanes), load(means, place, lanes), load(squares, place, lanes)
        gradient = fma(broadcast(decay, lanes), weight, load(gradients, place, lanes))
        mean = fma(broadcast(np.float32(0.1), lanes), gradient - mean, mean)
        square = (
            broadcast(np.float32(0.999), lanes) * square + broadcast(np.float32(0.001), lanes) * gradient * gradient
        )
        store(means, place, mean)
        store(squares, place, square)
        below = fma(sqrt(square), broadcast(root, lanes), broadcast(np.float32(1e-8), lanes))
        store(weights, place, weight - broadcast(rate, lanes) * mean / below)

    return loop


_adam_16, _adam_1 = _adam_some(_LINE), _adam_some(1)


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
    place = first
    while place + _LINE <= last:
        _adam_16(place, weights, gradients, means, squares, rate32, root32, decay32)
        place += _LINE
    while place < last:
        _adam_1(place, weights, gradients, means, squares, rate32, root32, decay32)
        place += 1


# --- attention --------------------------------------------------------------------------------------------------------
# Nothing is stored for an entry: the attention is computed again in the gradient, from what is stored for each vertex.
# The scores of all heads of an entry are vectors of 8, so the number of heads is filled up to a multiple of 8.
# `state` [rows, 4 * heads] holds of each centre its score, the largest score of a neighbour, 1 / the sum of the
# exponentials, and in the gradient the mean gradient of the attention.

_HEADS = 8


@compiled
def _longest(indptr: Ints, first: int, last: int) -> int:
    found = 0
    for row in range(first, last):
        found = max(found, indptr[row + 1] - indptr[row])
    return found


@partial(compiled, inline=True)
def _prefetch_row(array: int, row: int, width: int) -> None:
    """Ask for the first floats of a row, given the array's address."""
    for k in range(np.uint64(0), min(np.uint64(width), np.uint64(128)), np.uint64(_LINE)):
        prefetch(array, np.uint64(row) * np.uint64(width) + k)


def _weigh_columns(lanes: int) -> Callable[..., None]:
    @compiled
    def loop(
        first: int,
        last: int,
        done: int,
        indices: Ints,
        weights: Floats,
        head: int,
        vectors: Floats,
        column: int,
        scale: np.float32,
        out: Floats,
        place: int,
    ) -> None:
        step, start, where = np.uint64(vectors.shape[1]), np.uint64(column + done), np.uint64(head)
        total = broadcast(0, lanes)
        for entry in range(np.uint64(first), np.uint64(last)):
            found = load(vectors, np.uint64(indices[entry]) * step + start, lanes)
            total = fma(broadcast(weights[where], lanes), found, total)
            where += np.uint64(_HEADS)
        store(out, place + done, total * broadcast(scale, lanes))

    return loop


_weigh_64, _weigh_32, _weigh_8, _weigh_1 = map(_weigh_columns, (64, 32, 8, 1))


@compiled
def _weigh(
    first: int,
    last: int,
    indices: Ints,
    weights: Floats,
    head: int,
    vectors: Floats,
    column: int,
    width: int,
    scale: np.float32,
    out: Floats,
    place: int,
) -> None:
    """Write the sum of some columns of the neighbours' vectors, weighted by ``weights`` [entries, 8].

    There is no tuple of arguments as in `_in_columns`, because numba counts the references to the arrays of a tuple.
    """
    done = 0
    while done < width:
        left = width - done
        if left >= 64:
            _weigh_64(first, last, done, indices, weights, head, vectors, column, scale, out, place)
            done += 64
        elif left >= 32:
            _weigh_32(first, last, done, indices, weights, head, vectors, column, scale, out, place)
            done += 32
        elif left >= 8:
            _weigh_8(first, last, done, indices, weights, head, vectors, column, scale, out, place)
            done += 8
        else:
            _weigh_1(first, last, done, indices, weights, head, vectors, column, scale, out, place)
            done += 1


@compiled
def attend(
    first: int,
    last: int,
    indptr: Ints,
    indices: Ints,
    z: Floats,
    left: Floats,
    heads: int,
    slope: float,
    dropout: Dropout,
    state: Floats,
    out: Floats,
) -> None:
    """Compute each vertex's attention over its neighbours and the weighted sum of their vectors, per head.

    ``z`` is [n, heads * width], ``left`` [n, heads filled up]: the score of a vertex as neighbour; ``state`` has its
    score as centre.
    """
    full, width, end = left.shape[1], z.shape[1] // heads, len(indices) - 1
    key, second, threshold, scale = dropout
    down, none = broadcast(np.float32(slope), _HEADS), broadcast(0, _HEADS)
    weights = np.empty(_longest(indptr, first, last) * _HEADS, np.float32)
    for row in range(first, last):
        start, stop = indptr[row], indptr[row + 1]
        to = np.int64(row) * out.shape[1]
        for group in range(0, full, _HEADS):
            place, column = row * 4 * full + group, group * width
            together = width == 8 and group + _HEADS <= heads
            right, top, sums = load(state, place, _HEADS), broadcast(-np.inf, _HEADS), none
            for entry in range(start, stop):
                if group == 0:
                    soon = indices[np.uint64(min(entry + _AHEAD, end))]
                    prefetch(left, soon * np.int64(full))
                    _prefetch_row(z.ctypes.data, soon, z.shape[1])
                score = load(left, indices[np.uint64(entry)] * np.int64(full) + group, _HEADS) + right
                score = where_negative(score, score * down, score)
                store(weights, (entry - start) * _HEADS, score)
                top = maximum(score, top)
            vector = broadcast(0, 64)
            for entry in range(start, stop):
                value = exp(load(weights, (entry - start) * _HEADS, _HEADS) - top)
                sums = sums + value
                if threshold > np.uint32(0):
                    dropped = value * none  # NaN must stay
                    value = keep(value, np.int64(entry) * heads + group, key, second, threshold, dropped)
                if together:
                    found = load(z, indices[np.uint64(entry)] * np.int64(z.shape[1]) + column, 64)
                    vector = fma(repeat(value, 8), found, vector)
                else:
                    store(weights, (entry - start) * _HEADS, value)
            share = broadcast(1, _HEADS) / sums if stop > start else none
            store(state, place + full, top)
            store(state, place + 2 * full, share)
            if together:
                store(out, to + column, vector * repeat(share * broadcast(scale, _HEADS), 8))
            else:
                for head in range(group, min(group + _HEADS, heads)):
                    factor, column = scale * state[row, 2 * full + head], head * width
                    _weigh(start, stop, indices, weights, head - group, z, column, width, factor, out, to + column)


@partial(compiled, inline=True)
def _products(a: int, b: int, heads: int, width: int, group: int, out: int) -> None:
    """Write the products of two rows, given by their addresses, for up to 8 heads."""
    if width == 8 and group + _HEADS <= heads:
        found = load(a, group * 8, 64) * load(b, group * 8, 64)
        store(out, 0, pair_totals(pair_totals(pair_totals(found))))
    else:
        for head in range(group, min(group + _HEADS, heads)):
            sums, k = np.float32(0), head * width
            end = k + width
            while k + 64 <= end:
                sums += total(load(a, k, 64) * load(b, k, 64))
                k += 64
            while k + 8 <= end:
                sums += total(load(a, k, 8) * load(b, k, 8))
                k += 8
            while k < end:
                sums += total(load(a, k, 1) * load(b, k, 1))
                k += 1
            store(out, head - group, broadcast(sums, 1))


@compiled
def attend_back_to_centres(
    first: int,
    last: int,
    indptr: Ints,
    indices: Ints,
    z: Floats,
    left: Floats,
    heads: int,
    slope: float,
    dropout: Dropout,
    state: Floats,
    out: Floats,
    gradient: Floats,
    to_right: Floats,
) -> None:
    """Compute the gradient of the centres' scores (``to_right``), and complete the state."""
    full, width, end = left.shape[1], z.shape[1] // heads, len(indices) - 1
    key, second, threshold, scale = dropout
    down, ones, none = broadcast(np.float32(slope), _HEADS), broadcast(1, _HEADS), broadcast(0, _HEADS)
    products, step = np.zeros(_HEADS, np.float32), np.int64(4 * z.shape[1])
    for row in range(first, last):
        for group in range(0, full, _HEADS):
            place, sums = np.int64(row) * 4 * full + group, none
            right, top = load(state, place, _HEADS), load(state, place + full, _HEADS)
            inverse = load(state, place + 2 * full, _HEADS)
            # The mean over the neighbours, weighted by the attention, of the gradient of each one's attention.
            given = gradient.ctypes.data + np.int64(row) * step
            _products(out.ctypes.data + np.int64(row) * step, given, heads, width, group, products.ctypes.data)
            mean = load(products, 0, _HEADS)
            store(state, place + 3 * full, mean)
            for entry in range(indptr[row], indptr[row + 1]):
                other = np.int64(indices[np.uint64(entry)])
                if group == 0:
                    soon = indices[np.uint64(min(entry + _AHEAD, end))]
                    prefetch(left, soon * np.int64(full))
                    _prefetch_row(z.ctypes.data, soon, z.shape[1])
                _products(z.ctypes.data + other * step, given, heads, width, group, products.ctypes.data)
                score = load(left, other * full + group, _HEADS) + right
                share = exp(where_negative(score, score * down, score) - top) * inverse
                kept = broadcast(scale, _HEADS)
                if threshold > np.uint32(0):
                    kept = keep(kept, np.int64(entry) * heads + group, key, second, threshold, none)
                back = share * (load(products, 0, _HEADS) * kept - mean)
                sums = sums + back * where_negative(none - score, ones, down)
            store(to_right, np.int64(row) * full + group, sums)


@compiled
def attend_back_to_sources(
    first: int,
    last: int,
    indptr: Ints,
    indices: Ints,
    mirror: Ints,
    z: Floats,
    left: Floats,
    heads: int,
    slope: float,
    dropout: Dropout,
    state: Floats,
    gradient: Floats,
    to_z: Floats,
    to_left: Floats,
) -> None:
    """Compute the gradients of ``z`` and ``left``, from the state that `attend_back_to_centres` has completed.

    The pattern is the transposed one: ``indices`` are the centres that read a vertex, and ``mirror`` the place of the
    entry in the centre's row. Only the first centres, as many as ``gradient`` has rows, have results.
    """
    full, width, end, limit = left.shape[1], z.shape[1] // heads, len(indices) - 1, len(gradient)
    key, second, threshold, scale = dropout
    down, ones, none = broadcast(np.float32(slope), _HEADS), broadcast(1, _HEADS), broadcast(0, _HEADS)
    products, step = np.zeros(_HEADS, np.float32), np.int64(4 * z.shape[1])
    weights = np.empty(_longest(indptr, first, last) * _HEADS, np.float32)
    for row in range(first, last):
        to = np.int64(row) * z.shape[1]
        for group in range(0, full, _HEADS):
            start, stop, column = indptr[row], indptr[row], group * width
            together = width == 8 and group + _HEADS <= heads
            own, sums, vector = load(left, np.int64(row) * full + group, _HEADS), none, broadcast(0, 64)
            for entry in range(start, indptr[row + 1]):
                centre, where = np.int64(indices[np.uint64(entry)]), np.int64(mirror[np.uint64(entry)])
                if centre >= limit:  # neighbours ascend
                    break
                stop = entry + 1
                if group == 0:
                    soon = min(np.int64(indices[np.uint64(min(entry + _AHEAD, end))]), limit - 1)
                    _prefetch_row(state.ctypes.data, soon, state.shape[1])
                    _prefetch_row(gradient.ctypes.data, soon, z.shape[1])
                given = gradient.ctypes.data + centre * step
                _products(z.ctypes.data + np.int64(row) * step, given, heads, width, group, products.ctypes.data)
                place = centre * 4 * full + group
                score = own + load(state, place, _HEADS)
                power = exp(where_negative(score, score * down, score) - load(state, place + full, _HEADS))
                share = power * load(state, place + 2 * full, _HEADS)
                kept = broadcast(scale, _HEADS)
                if threshold > np.uint32(0):
                    kept = keep(kept, where * heads + group, key, second, threshold, none)
                back = share * (load(products, 0, _HEADS) * kept - load(state, place + 3 * full, _HEADS))
                sums = sums + back * where_negative(none - score, ones, down)
                if together:
                    found = load(gradient, centre * z.shape[1] + column, 64)
                    vector = fma(repeat(share * kept, 8), found, vector)
                else:
                    store(weights, (entry - start) * _HEADS, share * kept)
            store(to_left, np.int64(row) * full + group, sums)
            if together:
                store(to_z, to + column, vector)
            else:
                for head in range(group, min(group + _HEADS, heads)):
                    column, one = head * width, np.float32(1)
                    _weigh(start, stop, indices, weights, head - group, gradient, column, width, one, to_z, to + column)


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
