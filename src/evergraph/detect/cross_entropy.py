"""Cross-entropies with their gradients in one pass, so that the largest matrix of a step is read and written once.

Both are sums over vertices of ``shares[u]`` times the vertex's loss: compiled for single precision on a CPU, in plain
torch otherwise.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812  # the name that everyone gives it

from evergraph.compiled import compiled, exp_nonpositive, over_range

__all__ = ["binary_cross_entropy", "cross_entropy", "shares_of"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]

_BLOCK = 1 << 18  # entries of a block of rows, which then stays in the cache
_LINEAR = 40.0  # softplus(x) equals x beyond this, also in double precision (torch's default of 20 is off by 2e-9)


def shares_of(logits: Tensor, weights: Tensor | None) -> Tensor:
    """Share of each vertex in a weighted mean over vertices; all 0 if no vertex has weight.

    Examples
    --------
    >>> shares_of(torch.zeros(2, 5), torch.tensor([3, 1])).tolist(), shares_of(torch.zeros(2, 5), None).tolist()
    ([0.75, 0.25], [0.5, 0.5])
    """
    if weights is None:
        return logits.new_full((len(logits),), 1 / max(len(logits), 1))
    shares = weights.to(logits)
    total = shares.sum()
    return shares / torch.where(total > 0, total, 1)


def cross_entropy(logits: Tensor, targets: Tensor, shares: Tensor) -> Tensor:
    """Cross-entropy of a softmax over the classes, as a weighted sum over vertices."""
    return _CrossEntropy.apply(logits, targets, shares)  # type: ignore[no-untyped-call]  # torch's


def binary_cross_entropy(logits: Tensor, targets: Tensor, positive: Tensor, shares: Tensor) -> Tensor:
    """Binary cross-entropies of one sigmoid per class, as a weighted sum over vertices and classes.

    The term of a vertex's own class is multiplied by ``positive[u]``.
    """
    return _BinaryCrossEntropy.apply(logits, targets, positive, shares)  # type: ignore[no-untyped-call]  # torch's


def _is_compiled(logits: Tensor) -> bool:
    on_cpu = logits.device.type == "cpu" and logits.is_contiguous()
    return on_cpu and logits.dtype == torch.float32 and logits.numel() > 0


@partial(compiled, reorder=True)
def _cross_entropy_rows(
    first: int, last: int, logits: Floats, targets: Longs, shares: Floats, losses: Doubles, out: Floats
) -> None:
    width = logits.shape[1]
    for row in range(first, last):
        top = logits[row, 0]
        for k in range(1, width):
            top = max(top, logits[row, k])
        target = out[row]
        for k in range(width):
            target[k] = exp_nonpositive(logits[row, k] - top)
        total = np.float32(0)
        for k in range(width):
            total += target[k]
        share, own = shares[row], targets[row]
        losses[row] = (math.log(np.float64(total)) - np.float64(logits[row, own] - top)) * share
        factor = share / total
        for k in range(width):
            target[k] *= factor
        target[own] -= share


@partial(compiled, reorder=True)
def _binary_cross_entropy_rows(
    first: int,
    last: int,
    logits: Floats,
    targets: Longs,
    positive: Floats,
    shares: Floats,
    losses: Doubles,
    out: Floats,
) -> None:
    width = logits.shape[1]
    for row in range(first, last):
        target = out[row]
        for k in range(width):
            target[k] = exp_nonpositive(-abs(logits[row, k]))
        own, share, weight = targets[row], shares[row], positive[row]
        mine, tail = np.float64(logits[row, own]), math.log1p(np.float64(target[own]))
        missing = target[own] / (np.float32(1) + target[own])  # 1 - p of its own class, if its logit is positive
        # softplus(x) = max(x, 0) + log(1 + exp(-|x|)). The sum of the logarithms is the logarithm of a product, whose
        # factors are at most 2: 64 of them do not overflow.
        linear, logs, product = np.float64(0), np.float64(0), np.float64(1)
        for start in range(0, width, 64):
            product = np.float64(1)
            for k in range(start, min(start + 64, width)):
                product *= np.float64(1) + np.float64(target[k])
            logs += math.log(product)
        for k in range(width):
            value = logits[row, k]
            linear += np.float64(value if value > 0 else value - value)  # 0, but NaN for NaN
        others = linear + logs - (max(mine, 0.0) + tail)
        losses[row] = share * (others + weight * (max(-mine, 0.0) + tail))
        for k in range(width):
            small = target[k] / (np.float32(1) + target[k])
            target[k] = share * (small if logits[row, k] < 0 else np.float32(1) - small)
        target[own] = -weight * share * (missing if mine >= 0 else np.float32(1) - missing)


class _CrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, shares: Tensor) -> Tensor:
        if ctx.needs_input_grad[0] and _is_compiled(logits):
            gradient, losses = torch.empty_like(logits), np.empty(len(logits))
            arrays = (logits.numpy(), targets.numpy(), shares.numpy(), losses, gradient.numpy())
            over_range(_cross_entropy_rows, len(logits), *arrays, width=logits.shape[1])
            total = torch.tensor(losses.sum(), dtype=logits.dtype)
        else:
            gradient = torch.log_softmax(logits, 1)
            own = targets.unsqueeze(1)
            total = -(gradient.gather(1, own).squeeze(1) * shares).sum()
            gradient.exp_().scatter_add_(1, own, -torch.ones_like(own, dtype=logits.dtype)).mul_(shares.unsqueeze(1))
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        return _scaled(ctx.saved_tensors[0], upstream), None, None


class _BinaryCrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, positive: Tensor, shares: Tensor) -> Tensor:
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        if gradient is not None:
            ctx.save_for_backward(gradient)
        if gradient is not None and _is_compiled(logits):
            losses = np.empty(len(logits))
            arrays = (logits.numpy(), targets.numpy(), positive.numpy(), shares.numpy(), losses, gradient.numpy())
            over_range(_binary_cross_entropy_rows, len(logits), *arrays, width=logits.shape[1])
            return torch.tensor(losses.sum(), dtype=logits.dtype)
        total = logits.new_zeros((), dtype=torch.float64)
        rows = max(_BLOCK // max(logits.shape[1], 1), 1)
        for start in range(0, len(logits), rows):
            block = slice(start, start + rows)
            x, column = logits[block], targets[block].unsqueeze(1)
            weight, share = positive[block].unsqueeze(1), shares[block].unsqueeze(1)
            own = x.gather(1, column)
            terms = F.softplus(x, threshold=_LINEAR)
            terms.scatter_(1, column, weight * F.softplus(-own, threshold=_LINEAR))
            total += (terms.sum(1, keepdim=True) * share).sum(dtype=torch.float64)
            if gradient is not None:
                slopes = torch.sigmoid(x, out=gradient[block])
                slopes.scatter_(1, column, -weight * torch.sigmoid(-own)).mul_(share)
        return total.to(logits.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        return _scaled(ctx.saved_tensors[0], upstream), None, None, None


def _scaled(gradient: Tensor, upstream: Tensor) -> Tensor:
    # A loss is usually the last operation, so the factor is usually 1 and no second matrix is needed.
    return gradient if upstream == 1 else gradient * upstream
