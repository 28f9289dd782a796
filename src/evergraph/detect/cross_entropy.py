"""Cross-entropies with their gradients, in blocks of rows that stay in the cache.

Both are sums over vertices of ``shares[u]`` times the vertex's loss. If a model gives a `Readout`, the output layer,
the loss and both gradients are computed for one block of rows after the other, so that the logits, the largest matrix
of a step, are never stored. All of it is compiled for single precision on a CPU, and in plain torch otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812  # the name that everyone gives it

from evergraph.compiled import compiled, floats, floats_in_lines, one_each, over_range
from evergraph.detect.base import Detector
from evergraph.nn.base import Readout
from evergraph.nn.dense import BLOCK, add_product, copy, is_compiled, padded, part_bounds, rounded_rows
from evergraph.nn.kernels import NO_DROPOUT, NO_NEIGHBOURS, gather
from evergraph.nn.ops import Neighbours, mean_beside, mean_beside_back, mean_entries
from evergraph.nn.vectors import (
    broadcast,
    exp,
    largest,
    load,
    maximum,
    positive,
    store,
    times_one_plus,
    total,
    where_negative,
    wide_ones,
    wide_product,
)

__all__ = ["binary_cross_entropy", "cross_entropy", "of_readout", "shares_of", "takes_readout"]

_Loss = TypeVar("_Loss", bound=Callable[..., Tensor])

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]

_NO_FLOATS, _NO_LONGS = np.empty(0, np.float32), np.empty(0, np.int64)
_ENTRIES = 1 << 18  # of a block of rows in plain torch
_LINEAR = 40.0  # softplus(x) equals x beyond this, also in double precision (torch's default of 20 is off by 2e-9)
_FACTORS = 512  # of a product that does not overflow in double precision, although each can be 2


def of_readout(loss: _Loss) -> _Loss:
    """Mark a detector's loss that only passes its logits on to a loss of this module: it gets a `Readout` instead.

    The mark belongs to the function, not to the detector: one that overrides the loss of another detector gets logits.
    """
    loss.takes_readout = True  # type: ignore[attr-defined]
    return loss


def takes_readout(detector: Detector) -> bool:
    """Return whether a detector's loss takes a `Readout`."""
    return getattr(type(detector).loss, "takes_readout", False)


def shares_of(outputs: Tensor | Readout, weights: Tensor | None) -> Tensor:
    """Share of each vertex in a weighted mean over vertices; all 0 if no vertex has weight.

    Examples
    --------
    >>> shares_of(torch.zeros(2, 5), torch.tensor([3, 1])).tolist(), shares_of(torch.zeros(2, 5), None).tolist()
    ([0.75, 0.25], [0.5, 0.5])
    """
    kind = outputs.vectors if isinstance(outputs, Readout) else outputs
    if weights is None:
        return kind.new_full((len(outputs),), 1 / max(len(outputs), 1))
    shares = weights.to(kind)
    total = shares.sum()
    return shares / torch.where(total > 0, total, 1)


def cross_entropy(outputs: Tensor | Readout, targets: Tensor, shares: Tensor) -> Tensor:
    """Cross-entropy of a softmax over the classes, as a weighted sum over vertices."""
    return _loss(outputs, targets, shares, None)


def binary_cross_entropy(outputs: Tensor | Readout, targets: Tensor, positive: Tensor, shares: Tensor) -> Tensor:
    """Binary cross-entropies of one sigmoid per class, as a weighted sum over vertices and classes.

    The term of a vertex's own class is multiplied by ``positive[u]``.
    """
    return _loss(outputs, targets, shares, positive)


def _loss(outputs: Tensor | Readout, targets: Tensor, shares: Tensor, positive: Tensor | None) -> Tensor:
    if isinstance(outputs, Readout):
        graph, rows = outputs.graph, outputs.rows
        if graph is not None and (rows is not None or graph.kernels != "numba"):
            beside = mean_beside(graph, outputs.vectors, len(outputs.hidden))
            outputs, graph = replace(outputs, vectors=beside, graph=None), None
        parts = (outputs.vectors, outputs.weight, outputs.bias)
        if torch.is_grad_enabled() and len(targets) and _fits(outputs) and is_compiled(*parts):
            count = len(outputs.vectors if graph is None else outputs.hidden)
            about = (graph, count, rows, targets, shares, positive)
            return _ReadoutLoss.apply(*parts, *about)  # type: ignore[no-untyped-call]
        outputs = outputs.logits
    return _LogitsLoss.apply(outputs, targets, shares, positive)  # type: ignore[no-untyped-call]  # torch's


def _fits(outputs: Readout) -> bool:
    """Whether the compiled loops, which check nothing, can read the vectors; if not, torch finds the error."""
    if outputs.weight is None:
        return False
    return outputs.vectors.shape[1] * (1 if outputs.graph is None else 2) == outputs.weight.shape[0]


# --- compiled --------------------------------------------------------------------------------------------------------
# Rows of a block are filled up to a multiple of 16 with logits of minus infinity, which add nothing to any sum.


@compiled
def _softmax_row(block: Floats, row: int, own: int, share: np.float32) -> float:
    """Replace a row of logits by their gradient, and return the loss."""
    width = block.shape[1]
    start = row * width
    tops = load(block, start, 16)
    for k in range(start + 16, start + width, 16):
        tops = maximum(tops, load(block, k, 16))
    top, mine, sums = largest(tops), block[row, own], broadcast(0, 16)
    for k in range(start, start + width, 16):
        power = exp(load(block, k, 16) - broadcast(top, 16))
        store(block, k, power)
        sums = sums + power
    found = total(sums)
    factor = broadcast(share / found, 16)
    for k in range(start, start + width, 16):
        store(block, k, load(block, k, 16) * factor)
    block[row, own] -= share
    return (math.log(np.float64(found)) - np.float64(mine - top)) * share


@compiled
def _sigmoid_row(block: Floats, row: int, own: int, share: np.float32, weight: np.float32) -> float:
    """Do the same for one sigmoid per class."""
    width = block.shape[1]
    start, mine = row * width, block[row, own]
    # softplus(x) = max(x, 0) + log(1 + exp(-|x|)). The sum of the logarithms is the logarithm of a product.
    above, logs, shares, ones = broadcast(0, 16), 0.0, broadcast(share, 16), broadcast(1, 16)
    for first in range(start, start + width, _FACTORS):
        product = wide_ones(16)
        for k in range(first, min(first + _FACTORS, start + width), 16):
            x = load(block, k, 16)
            above = above + positive(x, x)
            power = exp(where_negative(x, x, broadcast(0, 16) - x))
            product = times_one_plus(product, power)
            small = power / (ones + power)
            store(block, k, shares * where_negative(x, small, ones - small))
        logs += math.log(wide_product(product))
    tail = math.log1p(math.exp(-abs(np.float64(mine))))
    high, low = max(np.float64(mine), 0.0), max(-np.float64(mine), 0.0)
    p = 1 / (1 + math.exp(-np.float64(mine))) if mine >= 0 else 1 - 1 / (1 + math.exp(np.float64(mine)))
    block[row, own] = -weight * share * np.float32(1 - p)
    return share * (np.float64(total(above)) + logs - (high + tail) + weight * (low + tail))


@compiled
def _block_loss(
    block: Floats,
    rows: int,
    start: int,
    targets: Longs,
    shares: Floats,
    positive: Floats,
    losses: Doubles,
) -> None:
    """Replace the first rows of a block of logits by their gradients; rows of ``targets`` from ``start`` on."""
    for row in range(rows):
        u = start + row
        if len(positive):
            losses[u] = _sigmoid_row(block, row, targets[u], shares[u], positive[u])
        else:
            losses[u] = _softmax_row(block, row, targets[u], shares[u])


@compiled
def _logits_rows(
    first: int,
    last: int,
    logits: Floats,
    targets: Longs,
    shares: Floats,
    positive: Floats,
    losses: Doubles,
    out: Floats,
) -> None:
    classes = np.uint64(logits.shape[1])
    block = np.full((BLOCK, -(-logits.shape[1] // 16) * 16), -np.inf, np.float32)
    for start in range(first, last, BLOCK):
        stop = min(start + BLOCK, last)
        for row in range(start, stop):
            for k in range(classes):
                block[row - start, k] = logits[row, k]
        _block_loss(block, stop - start, start, targets, shares, positive, losses)
        for row in range(start, stop):
            for k in range(classes):
                out[row, k] = block[row - start, k]
            for k in range(classes, np.uint64(block.shape[1])):
                block[row - start, k] = -np.inf


@compiled
def _readout_parts(
    first: int,
    last: int,
    bounds: Longs,
    vectors: Floats,
    neighbours: Any,
    chosen: Longs,
    weight: Floats,
    turned: Floats,
    bias: Floats,
    targets: Longs,
    shares: Floats,
    positive: Floats,
    losses: Doubles,
    to_vectors: Floats,
    to_weight: Floats,
) -> None:
    """Compute the loss and its gradients for parts of the rows.

    If the vectors are narrower than the weight, the means of the neighbours' vectors are put beside them; then all
    rows are computed, and ``chosen`` is empty.
    ``to_weight[p]`` is for the rows from ``bounds[p]`` on. Its row after those of the weight is for the bias.
    """
    depth, width, classes, own = weight.shape[0], weight.shape[1], turned.shape[0], vectors.shape[1]
    x = floats_in_lines(BLOCK, to_weight.shape[1])
    found, back = floats_in_lines(BLOCK, width), floats_in_lines(BLOCK, turned.shape[1])
    x[:] = 0
    for part in range(first, last):
        for start in range(bounds[part], bounds[part + 1], BLOCK):
            count = min(BLOCK, bounds[part + 1] - start)
            if own < depth:
                near = (vectors, 0, len(vectors), vectors, True, x, start, own, own, False, NO_DROPOUT)
                gather(start, start + count, *neighbours, *near)
            for i in range(count):
                row = chosen[start + i] if len(chosen) else start + i
                if own == depth:
                    copy(vectors, row * depth, depth, x, i * x.shape[1])
                x[i, depth] = 1
            x[count:] = 0
            for i in range(BLOCK):
                copy(bias, 0, width, found, i * width)
            add_product(x, BLOCK, x.shape[1], depth, 1, weight, width, found)
            _block_loss(found, count, start, targets, shares, positive, losses)
            found[count:] = 0
            add_product(x, x.shape[1], 1, BLOCK, x.shape[1], found, width, to_weight[part])
            back[:] = 0
            add_product(found, BLOCK, width, classes, 1, turned, back.shape[1], back)
            for i in range(count):
                row = chosen[start + i] if len(chosen) else start + i
                copy(back, i * back.shape[1], depth, to_vectors, row * depth)


# --- differentiable --------------------------------------------------------------------------------------------------


class _ReadoutLoss(Function):
    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        graph: Neighbours | None,
        count: int,
        rows: Tensor | None,
        targets: Tensor,
        shares: Tensor,
        positive: Tensor | None,
    ) -> Tensor:
        depth, classes = weight.shape
        right, turned = padded(weight.numpy()), padded(weight.numpy().T)
        added = np.full(right.shape[1], -np.inf, np.float32)
        added[:classes] = 0 if bias is None else bias.numpy()
        bounds = part_bounds(len(targets), len(targets) * right.size)
        parts, losses = len(bounds) - 1, np.empty(len(targets))
        to_vectors = floats(count, depth, zero=rows is not None)
        to_weight = floats(parts, rounded_rows(depth + 1), right.shape[1], zero=True)
        neighbours = NO_NEIGHBOURS if graph is None else mean_entries(graph)
        chosen = _NO_LONGS if rows is None else rows.numpy()
        given = (vectors.contiguous().numpy(), neighbours, chosen, right, turned, added)
        about = (targets.numpy(), shares.numpy(), _NO_FLOATS if positive is None else positive.numpy(), losses)
        one_each(_readout_parts, parts, bounds, *given, *about, to_vectors, to_weight)
        to_all = torch.from_numpy(to_vectors)
        if graph is not None:
            to_all = mean_beside_back(graph, to_all, len(vectors))
        found = torch.from_numpy(to_weight.sum(0)[:, :classes])
        ctx.gradients = (to_all, found[:depth].contiguous(), None if bias is None else found[depth])
        return torch.tensor(losses.sum(), dtype=vectors.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        found = (None if part is None else _scaled(part, upstream) for part in ctx.gradients)
        return *found, None, None, None, None, None, None


class _LogitsLoss(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, shares: Tensor, positive: Tensor | None) -> Tensor:
        wanted = ctx.needs_input_grad[0]
        if wanted and is_compiled(logits) and logits.is_contiguous():
            gradient, losses = floats(*logits.shape), np.empty(len(logits))
            weights = _NO_FLOATS if positive is None else positive.numpy()
            arrays = (logits.numpy(), targets.numpy(), shares.numpy(), weights, losses, gradient)
            over_range(_logits_rows, len(logits), *arrays, width=logits.shape[1])
            ctx.save_for_backward(torch.from_numpy(gradient))
            return torch.tensor(losses.sum(), dtype=logits.dtype)
        found, slopes = _torch_loss(logits, targets, shares, positive, wanted=wanted)
        ctx.save_for_backward(slopes)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        return _scaled(ctx.saved_tensors[0], upstream), None, None, None


def _torch_loss(
    logits: Tensor, targets: Tensor, shares: Tensor, positive: Tensor | None, *, wanted: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the loss and, if it is wanted, its gradient."""
    if positive is None:
        gradient = torch.log_softmax(logits, 1)
        column = targets.unsqueeze(1)
        found = -(gradient.gather(1, column).squeeze(1) * shares).sum()
        minus = -torch.ones_like(column, dtype=logits.dtype)
        return found, gradient.exp_().scatter_add_(1, column, minus).mul_(shares.unsqueeze(1))
    slopes = torch.empty_like(logits) if wanted else None
    found = logits.new_zeros((), dtype=torch.float64)
    rows = max(_ENTRIES // max(logits.shape[1], 1), 1)
    for start in range(0, len(logits), rows):
        block = slice(start, start + rows)
        x, column = logits[block], targets[block].unsqueeze(1)
        weight, share = positive[block].unsqueeze(1), shares[block].unsqueeze(1)
        own = x.gather(1, column)
        terms = F.softplus(x, threshold=_LINEAR)
        terms.scatter_(1, column, weight * F.softplus(-own, threshold=_LINEAR))
        found += (terms.sum(1, keepdim=True) * share).sum(dtype=torch.float64)
        if slopes is not None:
            part = torch.sigmoid(x, out=slopes[block])
            part.scatter_(1, column, -weight * torch.sigmoid(-own)).mul_(share)
    return found.to(logits.dtype), slopes


def _scaled(gradient: Tensor, upstream: Tensor) -> Tensor:
    # A loss is usually the last operation, so the factor is usually 1 and no second matrix is needed.
    return gradient if upstream == 1 else gradient * upstream
