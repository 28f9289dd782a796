"""What layers are made of, behind autograd: sparse products, sums over neighbours, attention and dropout.

Each operation asks its sparse argument which kernels to use: compiled ones, or plain torch for any device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from evergraph.compiled import SMALL, cores, one_each, over_range, over_rows, row_bounds
from evergraph.nn import plain
from evergraph.nn.base import Noise
from evergraph.nn.sparse import Neighbours, SparseMatrix

__all__ = ["attend", "drop", "linear", "mean_beside", "mix_mean", "propagate", "relu_drop"]

_NONE = np.empty(0, np.float32)
_MUCH = 32
_NOWHERE = np.empty(0, np.int32)
_ALL_KEPT = np.empty(0, np.uint8)


def _array(tensor: Tensor | None) -> NDArray[Any]:
    return _NONE if tensor is None else tensor.detach().contiguous().numpy()


def _apply(function: type[Function], *arguments: Any) -> Tensor:
    return function.apply(*arguments)  # type: ignore[no-untyped-call]  # torch's


# --- features times weights ------------------------------------------------------------------------------------------


def linear(x: Tensor | SparseMatrix, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight + bias`` for dense or sparse features.

    Examples
    --------
    >>> linear(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0], [10.0]]), torch.tensor([0.5])).tolist()
    [[21.5]]
    """
    if isinstance(x, SparseMatrix):
        return _apply(_Multiply, x, weight, bias)
    return x @ weight if bias is None else torch.addmm(bias, x, weight)


class _Multiply(Function):
    @staticmethod
    def forward(ctx: Any, x: SparseMatrix, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.x, pattern = x, x.pattern
        if x.kernels == "torch":
            out = plain.multiply(pattern.indptr, pattern.indices, x.values, pattern.columns, weight)
            return out if bias is None else out + bias
        from evergraph.nn import kernels

        indptr, width = pattern.indptr.numpy(), weight.shape[1]
        result = np.empty((len(indptr) - 1, width), np.float32)
        arrays = (indptr, pattern.indices.numpy(), x.values.numpy(), _array(weight), _array(bias))
        over_rows(kernels.multiply, indptr, width, *arrays, result)
        return torch.from_numpy(result)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor | None]:
        x, pattern, width = ctx.x, ctx.x.pattern, gradient.shape[1]
        if x.kernels == "torch":
            turned = pattern.transposed
            values = x.values[turned.place]
            to_weight = plain.multiply(turned.indptr, turned.indices, values, turned.columns, gradient)
            return None, to_weight, gradient.sum(0) if ctx.needs_input_grad[2] else None
        from evergraph.nn import kernels

        indptr = pattern.indptr.numpy()
        # Each part has a result of its own, which pays where there is much to add up for each row of it.
        much = x.values.numel() > _MUCH * pattern.columns and x.values.numel() * width > SMALL
        bounds = row_bounds(indptr, parts=min(cores(), 8) if much else 1)
        parts = len(bounds) - 1
        results = np.zeros((parts, pattern.columns, width), np.float32)
        sums = np.zeros((parts, width), np.float32)
        arrays = (bounds, indptr, pattern.indices.numpy(), x.values.numpy(), _array(gradient))
        one_each(kernels.multiply_transposed, parts, *arrays, results, sums)
        to_weight = torch.from_numpy(results[0]) if parts == 1 else torch.from_numpy(results).sum(0)
        return None, to_weight, torch.from_numpy(sums.sum(0)) if ctx.needs_input_grad[2] else None


# --- sums over neighbours --------------------------------------------------------------------------------------------


def mix_mean(graph: Neighbours, z: Tensor, rows: int) -> Tensor:
    """The left half of ``z`` plus the mean of the neighbours' right halves, for the first ``rows`` vertices.

    Examples
    --------
    >>> graph = Neighbours.of(np.array([0, 1, 2]), np.array([1, 0]))
    >>> mix_mean(graph, torch.tensor([[1.0, 10.0], [2.0, 30.0]]), 2).tolist()
    [[21.0], [22.0]]
    """
    return _apply(_MixMean, graph, z, rows)


def mean_beside(graph: Neighbours, h: Tensor, rows: int) -> Tensor:
    """``h`` and beside it the mean over the neighbours' ``h``, for the first ``rows`` vertices.

    Examples
    --------
    >>> graph = Neighbours.of(np.array([0, 1, 2]), np.array([1, 0]))
    >>> mean_beside(graph, torch.tensor([[1.0], [3.0]]), 2).tolist()
    [[1.0, 2.0], [3.0, 2.0]]
    """
    return _apply(_MeanBeside, graph, h, rows)


def propagate(graph: Neighbours, h: Tensor, rows: int) -> Tensor:
    """One step of symmetric normalisation, ``D^-1/2 A D^-1/2 h`` with self-loops, for the first ``rows`` vertices.

    Examples
    --------
    >>> graph = Neighbours.of(np.array([0, 1, 2]), np.array([1, 0]))
    >>> propagate(graph, torch.tensor([[1.0], [3.0]]), 2).round(decimals=4).tolist()
    [[2.0], [2.0]]
    """
    return _apply(_Propagate, graph, h, rows)


def _gather(
    kind: Literal["gather", "gather_onto", "gather_beside"],
    graph: Neighbours,
    source: Tensor,
    rows: int,
    *,
    row_scale: Tensor | None = None,
    column_scale: Tensor | None = None,
    back: bool = False,
) -> Tensor:
    """Sum over neighbours, for the first rows of the graph, of the rows that the source has.

    ``back`` goes along the edges the other way round: their weights need not be symmetric.
    """
    if graph.kernels == "torch":
        weights = graph.weights
        if weights is not None and back:
            weights = weights[graph.mirror]
        summed = getattr(plain, kind)
        return summed(graph.indptr, graph.indices, weights, row_scale, column_scale, source, rows)
    from evergraph.nn import kernels

    given = _array(source)
    width = {"gather": 2, "gather_onto": 1, "gather_beside": 4}[kind] * given.shape[1] // 2
    out = np.empty((rows, width), np.float32)
    indptr, place = graph.indptr.numpy()[: rows + 1], _NOWHERE
    if graph.weights is not None:
        place = graph.mirror.numpy() if back else np.arange(len(graph.indices), dtype=np.int32)
    arrays = (indptr, graph.indices.numpy(), place, *map(_array, (graph.weights, row_scale, column_scale)))
    over_rows(getattr(kernels, kind), indptr, width, *arrays, given, out)
    return torch.from_numpy(out)


class _MixMean(Function):
    @staticmethod
    def forward(ctx: Any, graph: Neighbours, z: Tensor, rows: int) -> Tensor:
        ctx.graph, ctx.size = graph, len(z)
        return _gather("gather_onto", graph, z, rows, row_scale=graph.inverse_degree)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:
        scale = ctx.graph.inverse_degree
        return None, _gather("gather_beside", ctx.graph, gradient, ctx.size, column_scale=scale, back=True), None


class _MeanBeside(Function):
    @staticmethod
    def forward(ctx: Any, graph: Neighbours, h: Tensor, rows: int) -> Tensor:
        ctx.graph, ctx.size = graph, len(h)
        return _gather("gather_beside", graph, h, rows, row_scale=graph.inverse_degree)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:
        scale = ctx.graph.inverse_degree
        return None, _gather("gather_onto", ctx.graph, gradient, ctx.size, column_scale=scale, back=True), None


class _Propagate(Function):
    @staticmethod
    def forward(ctx: Any, graph: Neighbours, h: Tensor, rows: int) -> Tensor:
        ctx.graph, ctx.size, root = graph, len(h), graph.root_degree
        return _gather("gather", graph, h, rows, row_scale=root, column_scale=root)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:
        root = ctx.graph.root_degree
        summed = _gather("gather", ctx.graph, gradient, ctx.size, row_scale=root, column_scale=root, back=True)
        return None, summed, None


# --- dropout ---------------------------------------------------------------------------------------------------------


def drop(x: Any, p: float, noise: Noise | None) -> Any:
    """Dropout: each entry is zero with probability ``p``, the others grow to make up for it.

    Of a sparse matrix its entries are meant. Without noise nothing happens.

    Examples
    --------
    >>> drop(torch.ones(1, 8), 0.5, Noise(1)).unique().tolist(), drop(torch.ones(1, 2), 0.5, None).tolist()
    ([0.0, 2.0], [[1.0, 1.0]])
    """
    if noise is None or p == 0:
        return x
    if isinstance(x, SparseMatrix):
        return x.with_values(drop(x.values, p, noise))
    keep, scale = noise.keep(x.numel(), p), 1 / (1 - p)
    return _apply(_Drop, x, keep, scale) if noise.kernels == "numba" else x * (keep.view_as(x) * scale)


def relu_drop(x: Tensor, p: float, noise: Noise | None) -> Tensor:
    """Rectify, then dropout, in one pass; the order does not matter.

    Examples
    --------
    >>> relu_drop(torch.tensor([[-1.0, 2.0]]), 0.5, None).tolist()
    [[0.0, 2.0]]
    """
    if noise is None or p == 0:
        return torch.relu(x)
    keep, scale = noise.keep(x.numel(), p), 1 / (1 - p)
    return _apply(_ReluDrop, x, keep, scale) if noise.kernels == "numba" else torch.relu(x) * (keep.view_as(x) * scale)


def _each(kernel: Callable[..., Any], x: Tensor, *arguments: Any) -> Tensor:
    """Run a compiled function over all numbers of a tensor."""
    flat = _array(x.reshape(-1))
    out = np.empty_like(flat)
    over_range(kernel, len(flat), flat, *arguments, out)
    return torch.from_numpy(out).view(x.shape)


class _Drop(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        from evergraph.nn import kernels

        ctx.save_for_backward(keep)
        ctx.scale = scale
        return _each(kernels.drop, x, keep.numpy(), scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        from evergraph.nn import kernels

        (keep,) = ctx.saved_tensors
        return _each(kernels.drop, gradient, keep.numpy(), ctx.scale), None, None


class _ReluDrop(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        from evergraph.nn import kernels

        out = _each(kernels.relu_drop, x, keep.numpy(), scale)
        ctx.save_for_backward(out)
        ctx.scale = scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        from evergraph.nn import kernels

        (out,) = ctx.saved_tensors
        return _each(kernels.relu_drop_back, gradient, _array(out.reshape(-1)), ctx.scale), None, None


# --- attention -------------------------------------------------------------------------------------------------------


def attend(
    graph: Neighbours,
    z: Tensor,
    left: Tensor,
    right: Tensor,
    rows: int,
    *,
    slope: float,
    p: float = 0.0,
    noise: Noise | None = None,
) -> Tensor:
    """Sum of the neighbours' vectors under attention, head by head, for the first ``rows`` vertices.

    Parameters
    ----------
    graph
        The neighbours; their weights do not matter here, for attention gives its own.
    z
        Vectors [n, heads * width].
    left, right
        Score of each vertex as a neighbour and as the centre, [n, heads]; an edge's score is the leaky rectified sum.
    slope
        Of the leaky rectifier.
    p, noise
        Dropout of the attention.

    Examples
    --------
    >>> graph, zero = Neighbours.of(np.array([0, 1, 2]), np.array([1, 0])), torch.zeros(2, 1)
    >>> attend(graph, torch.tensor([[1.0], [3.0]]), zero, zero, 2, slope=0.2).tolist()
    [[2.0], [2.0]]
    """
    entries, heads = int(graph.indptr[rows]), left.shape[1]
    keep = None if noise is None or p == 0 else noise.keep(entries * heads, p)
    scale = 1.0 if keep is None else 1 / (1 - p)
    if graph.kernels == "torch":
        scaled = None if keep is None else keep.view(entries, heads) * scale
        return plain.attend(graph.indptr, graph.indices, rows, z, left, right, slope, scaled)
    return _apply(_Attend, graph, z, left, right, rows, slope, keep, scale)


class _Attend(Function):
    @staticmethod
    def forward(
        ctx: Any,
        graph: Neighbours,
        z: Tensor,
        left: Tensor,
        right: Tensor,
        rows: int,
        slope: float,
        keep: Tensor | None,
        scale: float,
    ) -> Tensor:
        from evergraph.nn import kernels

        indptr, indices = graph.indptr.numpy()[: rows + 1], graph.indices.numpy()
        dropped = _ALL_KEPT if keep is None else keep.numpy()
        attention = np.empty((int(indptr[-1]), left.shape[1]), np.float32)
        out = np.empty((rows, z.shape[1]), np.float32)
        arrays = (_array(z), _array(left), _array(right), slope, dropped, scale, attention)
        over_rows(kernels.attend, indptr, z.shape[1], indptr, indices, *arrays, out)
        ctx.graph, ctx.arrays = graph, arrays
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from evergraph.nn import kernels

        graph, (z, left, right, _, keep, scale, attention) = ctx.graph, ctx.arrays
        given, rows, width = _array(gradient), len(gradient), z.shape[1]
        indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
        back = np.empty_like(attention)
        to_z, to_left, to_right = np.empty_like(z), np.empty_like(left), np.zeros_like(right)
        some = indptr[: rows + 1]
        over_rows(kernels.attend_back_to_scores, some, width, some, indices, *ctx.arrays, given, back, to_right)
        over_rows(
            kernels.attend_back_to_sources,
            indptr,
            width,
            indptr,
            indices,
            graph.mirror.numpy(),
            rows,
            keep,
            scale,
            attention,
            given,
            back,
            to_z,
            to_left,
        )
        return (
            None,
            torch.from_numpy(to_z),
            torch.from_numpy(to_left),
            torch.from_numpy(to_right),
            None,
            None,
            None,
            None,
        )
