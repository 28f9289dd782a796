"""Features, neighbours and dropout noise, and the differentiable operations on them that layers are made of.

Each operation has two implementations in `evergraph.nn.kernels`: compiled loops for the CPU, and plain torch for any
device. The ``kernels`` of its sparse argument says which one runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from evergraph.compiled import SMALL, cores, floats, one_each, over_range, over_rows, row_bounds
from evergraph.nn import kernels
from evergraph.nn.dense import dense_linear
from evergraph.nn.kernels import (
    NO_DROPOUT,
    NO_NEIGHBOURS,
    Dropout,
    add_loops,
)  # inside a class, `kernels` is an attribute

__all__ = [
    "Kernels",
    "Matrix",
    "MixedMatrix",
    "Neighbours",
    "Noise",
    "SparseMatrix",
    "attend",
    "choose_kernels",
    "drop",
    "linear",
    "linear_mix_mean_relu",
    "mean_beside",
    "mix_mean",
    "propagate",
    "relu_drop",
]

Kernels = Literal["numba", "torch"]

_NO_FLOATS, _NO_INTS = np.empty(0, np.float32), np.empty(0, np.int32)
_MUCH = 32


def choose_kernels(wanted: Literal["auto", "numba", "torch"], device: torch.device) -> Kernels:
    """Return the kernels to use: compiled ones on a CPU, plain torch elsewhere."""
    if wanted != "auto":
        return wanted
    return "numba" if device.type == "cpu" else "torch"


def _tensor(array: NDArray[Any], device: torch.device | None) -> Tensor:
    if not array.flags.writeable:
        array = array.copy()  # torch has no read-only tensors, and the graph's memory must not be written to
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def _array(tensor: Tensor | None) -> NDArray[Any]:
    return _NO_FLOATS if tensor is None else tensor.detach().contiguous().numpy()


def _apply(function: type[Function], *arguments: Any) -> Tensor:
    return function.apply(*arguments)  # type: ignore[no-untyped-call]  # torch's


# --- sparse matrices -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pattern:
    """Positions of a sparse matrix's entries, in compressed sparse rows."""

    indptr: Tensor
    indices: Tensor
    columns: int

    @cached_property
    def transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row pointers and indices of the transposed matrix, and the place of each of its entries in this one."""
        places = np.arange(len(self.indices), dtype=np.int32)
        arrays = (places, self.indices.cpu().numpy(), self.indptr.cpu().numpy())
        # A conversion to columns sorts in linear time.
        turned = sparse.csr_array(arrays, shape=(len(self.indptr) - 1, self.columns)).tocsc()
        device = self.indices.device
        return _tensor(turned.indptr, device), _tensor(turned.indices, device), _tensor(turned.data, device)


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """Constant features; a layer multiplies them with its weights.

    Examples
    --------
    >>> x = SparseMatrix.of(sparse.csr_array([[0.0, 2.0], [1.0, 0.0]]))
    >>> x.shape, x.values.tolist()
    ((2, 2), [2.0, 1.0])
    """

    pattern: Pattern
    stored: Tensor
    kernels: Kernels = "numba"
    dropout: Dropout | None = None

    @classmethod
    def of(
        cls, matrix: sparse.csr_array, *, device: torch.device | None = None, kernels: Kernels = "numba"
    ) -> SparseMatrix:
        """Convert a scipy matrix; memory is shared where types and device allow."""
        indptr = _tensor(matrix.indptr.astype(np.int32, copy=False), device)
        indices = _tensor(matrix.indices.astype(np.int32, copy=False), device)
        values = _tensor(matrix.data.astype(np.float32, copy=False), device)
        return cls(Pattern(indptr, indices, matrix.shape[1]), values, kernels)

    @cached_property
    def values(self) -> Tensor:
        """The entries after dropout. A product with weights applies the dropout by itself and does not need them."""
        if self.dropout is None:
            return self.stored
        return _each(kernels.drop, self.stored, self.dropout, False)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.pattern.indptr) - 1, self.pattern.columns

    @property
    def device(self) -> torch.device:
        """Device of the values."""
        return self.stored.device

    def __len__(self) -> int:
        return self.shape[0]

    def to_scipy(self) -> sparse.csr_array:
        """Convert to a scipy matrix."""
        parts = (self.values, self.pattern.indices, self.pattern.indptr)
        return sparse.csr_array(tuple(part.cpu().numpy() for part in parts), shape=self.shape)

    def to_dense(self) -> Tensor:
        """Convert to a dense tensor; gradients reach the values."""
        lengths = self.pattern.indptr[1:] - self.pattern.indptr[:-1]
        rows = torch.repeat_interleave(torch.arange(len(self), device=self.device), lengths)
        zeros = self.stored.new_zeros(self.shape)
        return zeros.index_put((rows, self.pattern.indices.long()), self.values, accumulate=True)


@dataclass(frozen=True, eq=False)
class MixedMatrix:
    """Constant features with dense columns, followed by sparse ones; a layer multiplies them with its weights.

    Examples
    --------
    >>> x = MixedMatrix(torch.tensor([[5.0], [6.0]]), SparseMatrix.of(sparse.csr_array([[0.0, 2.0], [1.0, 0.0]])))
    >>> x.shape, x.to_dense().tolist()
    ((2, 3), [[5.0, 0.0, 2.0], [6.0, 1.0, 0.0]])
    """

    dense: Tensor
    sparse: SparseMatrix

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.dense), self.dense.shape[1] + self.sparse.shape[1]

    @property
    def device(self) -> torch.device:
        """Device of the values."""
        return self.dense.device

    def __len__(self) -> int:
        return len(self.dense)

    def to_dense(self) -> Tensor:
        """Convert to a dense tensor."""
        return torch.cat([self.dense, self.sparse.to_dense()], 1)


Matrix = Tensor | SparseMatrix | MixedMatrix
"""Features of vertices, one row each."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The neighbours of each vertex in ascending order, including itself: a symmetric pattern without empty rows.

    A sample of neighbours is not symmetric, and has empty rows for vertices whose neighbours are not sampled.

    Parameters
    ----------
    indptr, indices
        Compressed sparse rows.
    weights
        Weight of each entry, as sampling sets them; None if all are 1.
    kernels
        Implementation of the operations on them.
    degrees
        Number of neighbours of each vertex, including itself, if the rows have only some of them.
    symmetric
        Whether each edge is in the rows of both ends.

    Examples
    --------
    >>> path = sparse.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> graph = Neighbours.of(path.indptr, path.indices)
    >>> graph.indices.tolist(), graph.degree.tolist()
    ([0, 1, 0, 1, 2, 1, 2], [2.0, 3.0, 2.0])
    """

    indptr: Tensor
    indices: Tensor
    weights: Tensor | None = None
    kernels: Kernels = "numba"
    degrees: Tensor | None = None
    symmetric: bool = True

    @classmethod
    def of(
        cls,
        indptr: NDArray[np.integer],
        indices: NDArray[np.integer],
        *,
        device: torch.device | None = None,
        kernels: Kernels = "numba",
    ) -> Neighbours:
        """Convert symmetric compressed rows without self-loops, neighbours ascending; adds the self-loops."""
        n = len(indptr) - 1
        pointers = np.arange(n + 1, dtype=np.int32)
        pointers += indptr
        looped = np.empty(len(indices) + n, np.int32)
        over_rows(add_loops, indptr, 1, indptr, indices, looped)
        return cls(_tensor(pointers, device), _tensor(looped, device), kernels=kernels)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def degree(self) -> Tensor:
        """Number of neighbours of each vertex, including itself."""
        return (self.indptr[1:] - self.indptr[:-1]).float() if self.degrees is None else self.degrees

    @cached_property
    def inverse_degree(self) -> Tensor:
        """Factor that turns a sum over neighbours into a mean."""
        return 1 / self.degree

    @cached_property
    def root_degree(self) -> Tensor:
        """Inverse root of the degree, the factor on both sides of symmetric normalisation."""
        return self.degree.rsqrt()

    @property
    def mirror(self) -> Tensor:
        """Place of the edge of each entry of `reverse`."""
        return self._transposed[2]

    @property
    def reverse(self) -> tuple[Tensor, Tensor]:
        """Row pointers and indices of the edges in the opposite direction."""
        return (self.indptr, self.indices) if self.symmetric else self._transposed[:2]

    @cached_property
    def _transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        return Pattern(self.indptr, self.indices, len(self)).transposed

    @cached_property
    def edge_index(self) -> Tensor:
        """Edges in both directions without self-loops, in the format of PyTorch Geometric."""
        counts = (self.indptr[1:] - self.indptr[:-1]).long()
        target = torch.repeat_interleave(torch.arange(len(self), device=self.indices.device), counts)
        source = self.indices.long()
        proper = source != target
        return torch.stack([source[proper], target[proper]])


def used_columns(x: Matrix) -> tuple[Matrix, Tensor]:
    """Return features without the sparse columns that no row has, and the numbers of the columns that are left.

    Examples
    --------
    >>> x, columns = used_columns(SparseMatrix.of(sparse.csr_array([[0.0, 2.0, 0.0], [0.0, 1.0, 0.0]])))
    >>> x.shape, columns.tolist()
    ((2, 1), [1])
    """
    stored = x.sparse if isinstance(x, MixedMatrix) else x
    everything = torch.arange(x.shape[1], device=stored.device)
    if isinstance(stored, Tensor):
        return x, everything
    columns, indices = torch.unique(stored.pattern.indices, return_inverse=True)
    if len(columns) == stored.pattern.columns:
        return x, everything
    # The columns stay in order: on one thread no sum changes (on several, fewer columns may be split differently).
    pattern = replace(stored.pattern, indices=indices.to(stored.pattern.indices.dtype), columns=len(columns))
    narrow, before = replace(stored, pattern=pattern), x.shape[1] - stored.shape[1]
    whole = narrow if not isinstance(x, MixedMatrix) else MixedMatrix(x.dense, narrow)
    return whole, torch.cat([everything[:before], columns.long() + before])


# --- features times weights ------------------------------------------------------------------------------------------


def linear(x: Matrix, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x @ weight + bias`` for dense, sparse or mixed features.

    Examples
    --------
    >>> linear(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0], [10.0]]), torch.tensor([0.5])).tolist()
    [[21.5]]
    """
    if isinstance(x, SparseMatrix):
        return _apply(_Multiply, x, x.stored, weight, bias)
    if isinstance(x, MixedMatrix):
        above, below = torch.split(weight, [x.dense.shape[1], x.sparse.shape[1]])
        return linear(x.dense, above) + linear(x.sparse, below, bias)
    return dense_linear(x, weight, bias)


class _Multiply(Function):
    @staticmethod
    def forward(ctx: Any, x: SparseMatrix, stored: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # Training needs no gradient with respect to the features; attributions do.
        ctx.x, ctx.weight, pattern = x, weight if stored.requires_grad else None, x.pattern
        if x.kernels == "numba":
            return torch.from_numpy(_multiply(x, _array(weight), _array(bias)))
        out = kernels.torch_multiply(pattern.indptr, pattern.indices, x.values, pattern.columns, weight)
        return out if bias is None else out + bias

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, Tensor | None, Tensor | None]:
        x, pattern = ctx.x, ctx.x.pattern
        to_values = to_weight = to_bias = None
        if ctx.needs_input_grad[1]:
            counts = (pattern.indptr[1:] - pattern.indptr[:-1]).long()
            rows = torch.repeat_interleave(torch.arange(len(x), device=gradient.device), counts)
            to_values = (gradient[rows] * ctx.weight[pattern.indices.long()]).sum(1)
        if ctx.needs_input_grad[2] and x.kernels == "numba":
            parts, sums = _multiply_back(x, _array(gradient))
            to_weight = torch.from_numpy(parts[0] if len(parts) == 1 else parts.sum(0))
            to_bias = torch.from_numpy(sums.sum(0))
        elif ctx.needs_input_grad[2]:
            turned, indices, place = pattern.transposed
            to_weight = kernels.torch_multiply(turned, indices, x.values[place], len(x), gradient)
        if ctx.needs_input_grad[3] and to_bias is None:
            to_bias = gradient.sum(0)
        return None, to_values, to_weight, to_bias if ctx.needs_input_grad[3] else None


def _multiply(x: SparseMatrix, weight: NDArray[np.float32], bias: NDArray[np.float32]) -> NDArray[np.float32]:
    indptr, width = x.pattern.indptr.numpy(), weight.shape[1]
    out = floats(len(x), width)
    arrays = (indptr, x.pattern.indices.numpy(), _array(x.stored), x.dropout or NO_DROPOUT)
    over_rows(kernels.multiply, indptr, width, *arrays, weight, bias, out)
    return out


def _in_parts(x: SparseMatrix, width: int) -> bool:
    """Return whether threads compute a gradient of the weights each, to be added; else one thread computes it.

    That is worth it only if each row of it is a sum of many entries.
    """
    return x.stored.numel() > _MUCH * x.pattern.columns and x.stored.numel() * width > SMALL


def _multiply_back(
    x: SparseMatrix, gradient: NDArray[np.float32], beside: tuple[NDArray[Any], ...] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return parts of the gradients of weight and bias, which are to be added.

    With ``beside``, the gradient that is given is the left half only; the right one are its sums over neighbours.
    """
    indptr, width = x.pattern.indptr.numpy(), gradient.shape[1] * (1 if beside is None else 2)
    bounds = row_bounds(indptr, parts=min(cores(), 8) if _in_parts(x, width) else 1)
    parts = len(bounds) - 1
    results, sums = floats(parts, x.pattern.columns, width, zero=True), floats(parts, width, zero=True)
    arrays = (bounds, indptr, x.pattern.indices.numpy(), _array(x.stored), x.dropout or NO_DROPOUT)
    one_each(kernels.multiply_transposed, parts, *arrays, gradient, beside or NO_NEIGHBOURS, results, sums)
    return results, sums


# --- sums over neighbours --------------------------------------------------------------------------------------------


def mix_mean(graph: Neighbours, z: Tensor, rows: int) -> Tensor:
    """Return the left half of ``z`` plus the mean of the neighbours' right halves, for the first ``rows`` vertices.

    Examples
    --------
    >>> graph = Neighbours.of(np.array([0, 1, 2]), np.array([1, 0]))
    >>> mix_mean(graph, torch.tensor([[1.0, 10.0], [2.0, 30.0]]), 2).tolist()
    [[21.0], [22.0]]
    """
    return _apply(_Gather, graph, z, rows, "mix")


def mean_beside(graph: Neighbours, h: Tensor, rows: int) -> Tensor:
    """Return ``h``, and to its right the mean of the neighbours' ``h``, for the first ``rows`` vertices.

    Examples
    --------
    >>> graph = Neighbours.of(np.array([0, 1, 2]), np.array([1, 0]))
    >>> mean_beside(graph, torch.tensor([[1.0], [3.0]]), 2).tolist()
    [[1.0, 2.0], [3.0, 2.0]]
    """
    return _apply(_Gather, graph, h, rows, "beside")


def propagate(graph: Neighbours, h: Tensor, rows: int) -> Tensor:
    """Return ``D^-1/2 A D^-1/2 h`` with self-loops (symmetric normalisation), for the first ``rows`` vertices.

    Examples
    --------
    >>> graph = Neighbours.of(np.array([0, 1, 2]), np.array([1, 0]))
    >>> propagate(graph, torch.tensor([[1.0], [3.0]]), 2).round(decimals=4).tolist()
    [[2.0], [2.0]]
    """
    return _apply(_Gather, graph, h, rows, "propagate")


def linear_mix_mean_relu(
    graph: Neighbours,
    x: Matrix,
    own: Tensor,
    near: Tensor,
    bias: Tensor,
    rows: int,
    p: float,
    noise: Noise | None,
) -> Tensor:
    """Add ``x @ own + bias`` to the mean of the neighbours' ``x @ near``, rectify and apply dropout.

    Compiled for a sparse matrix, the gradient of the products is not stored.

    Examples
    --------
    >>> graph = Neighbours.of(np.array([0, 1, 2]), np.array([1, 0]))
    >>> x, (own, near) = torch.tensor([[-30.0, 10.0], [2.0, 30.0]]), torch.eye(2).T[:, :, None]
    >>> linear_mix_mean_relu(graph, x, own, near, torch.zeros(1), 2, 0.5, None).tolist()
    [[0.0], [22.0]]
    """
    dropout = NO_DROPOUT
    if graph.kernels == "numba" and noise is not None and p > 0:
        dropout = noise.dropout(rows * own.shape[1], p)
    if graph.kernels == "numba" and isinstance(x, SparseMatrix) and not x.stored.requires_grad:
        return _apply(_SparseMixRelu, graph, x, own, near, bias, rows, dropout)
    z = linear(x, torch.cat([own, near], 1), torch.cat([bias, torch.zeros_like(bias)]))
    if graph.kernels == "torch":
        return relu_drop(mix_mean(graph, z, rows), p, noise)
    return _apply(_MixRelu, graph, z, rows, dropout)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, graph: Neighbours, source: Tensor, rows: int, kind: str) -> Tensor:
        ctx.graph, ctx.size, ctx.kind = graph, len(source), kind
        return _gather(kind, graph, source, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None, None]:
        turned = {"mix": "beside", "beside": "mix", "propagate": "propagate"}[ctx.kind]
        return None, _gather(turned, ctx.graph, gradient, ctx.size, back=True), None, None


class _MixRelu(Function):
    @staticmethod
    def forward(ctx: Any, graph: Neighbours, z: Tensor, rows: int, dropout: Dropout) -> Tensor:
        ctx.graph, ctx.size, ctx.scale, ctx.out = graph, len(z), dropout[3], _mix_relu(graph, _array(z), rows, dropout)
        return torch.from_numpy(ctx.out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None, None]:
        found = _each(kernels.relu_drop_back, gradient, ctx.out.reshape(-1), ctx.scale)
        return None, _gather("beside", ctx.graph, found, ctx.size, back=True), None, None


class _SparseMixRelu(Function):
    @staticmethod
    def forward(
        ctx: Any,
        graph: Neighbours,
        x: SparseMatrix,
        own: Tensor,
        near: Tensor,
        bias: Tensor,
        rows: int,
        dropout: Dropout,
    ) -> Tensor:
        ctx.graph, ctx.x, ctx.scale = graph, x, dropout[3]
        width = own.shape[1]
        both, added = floats(len(own), 2 * width), floats(2 * width, zero=True)
        both[:, :width], both[:, width:], added[:width] = own.numpy(), near.numpy(), bias.numpy()
        ctx.out = _mix_relu(graph, _multiply(x, both, added), rows, dropout)
        return torch.from_numpy(ctx.out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        found = _each(kernels.relu_drop_back, gradient, ctx.out.reshape(-1), ctx.scale)
        width = gradient.shape[1]
        if _in_parts(ctx.x, 2 * width):
            beside = _entries(ctx.graph, None, ctx.graph.inverse_degree, back=True)
            parts, sums = _multiply_back(ctx.x, _array(found), beside)
        else:  # threads compute the sums over neighbours, but one thread the product
            parts, sums = _multiply_back(ctx.x, _array(_gather("beside", ctx.graph, found, len(ctx.x), back=True)))
        to_own, to_near = (parts[:, :, half].sum(0) for half in (slice(width), slice(width, None)))
        to_bias = sums.sum(0)[:width]
        return None, None, *map(torch.from_numpy, (to_own, to_near, to_bias)), None, None


def _mix_relu(graph: Neighbours, z: NDArray[np.float32], rows: int, dropout: Dropout) -> NDArray[np.float32]:
    width = z.shape[1] // 2
    out = floats(rows, width)
    _sum_neighbours(graph, z, width, out, 0, own=z, row_scale=graph.inverse_degree, relu=dropout)
    return out


def _gather(kind: str, graph: Neighbours, source: Tensor, rows: int, *, back: bool = False) -> Tensor:
    """Sum over neighbours; ``back`` follows the edges in the opposite direction, whose weights may differ."""
    width = source.shape[1]
    # How many columns of the vertex itself are copied, the first column to sum, and the columns of the result.
    own, column, columns = {
        "propagate": (0, 0, width),
        "mix": (width // 2, width // 2, width // 2),
        "beside": (width, 0, 2 * width),
    }[kind]
    scales: tuple[Tensor | None, Tensor | None] = (graph.root_degree, graph.root_degree)
    if kind != "propagate":
        scales = (None, graph.inverse_degree) if back else (graph.inverse_degree, None)
    pattern = graph.reverse if back else (graph.indptr, graph.indices)
    if graph.kernels == "torch":
        weights = graph.weights if graph.weights is None or not back else graph.weights[graph.mirror]
        return kernels.torch_gather(*pattern, weights, *scales, source, rows, own, column)
    out, values = floats(rows, columns), _array(source)
    _sum_neighbours(
        graph,
        values,
        column,
        out,
        own if kind == "beside" else 0,
        own=None if kind == "propagate" else values,
        row_scale=scales[0],
        column_scale=scales[1],
        back=back,
    )
    return torch.from_numpy(out)


def _sum_neighbours(
    graph: Neighbours,
    source: NDArray[np.float32],
    column: int,
    out: NDArray[np.float32],
    out_column: int,
    *,
    own: NDArray[np.float32] | None = None,
    row_scale: Tensor | None = None,
    column_scale: Tensor | None = None,
    back: bool = False,
    relu: Dropout | None = None,
) -> None:
    """Run `kernels.gather` for all rows of ``out``; ``relu`` rectifies the result and applies dropout."""
    indptr, *entries = _entries(graph, row_scale, column_scale, back=back)
    indptr, width = indptr[: len(out) + 1], out.shape[1] - out_column
    base, beside = np.empty((0, 0), np.float32) if own is None else own, own is not None and out_column > 0
    columns = (source, column, len(source), base, beside, out, 0, out_column, width)
    over_rows(kernels.gather, indptr, width, indptr, *entries, *columns, relu is not None, relu or NO_DROPOUT)


def _entries(
    graph: Neighbours, row_scale: Tensor | None, column_scale: Tensor | None, *, back: bool
) -> tuple[NDArray[Any], ...]:
    """Return the arguments of `kernels.gather` that describe the neighbours."""
    pattern, place = graph.reverse if back else (graph.indptr, graph.indices), _NO_INTS
    if graph.weights is not None:
        place = graph.mirror.numpy() if back else np.arange(len(graph.indices), dtype=np.int32)
    return pattern[0].numpy(), pattern[1].numpy(), place, *map(_array, (graph.weights, row_scale, column_scale))


def mean_entries(graph: Neighbours) -> tuple[NDArray[Any], ...]:
    """Return the arguments of `kernels.gather` for means over neighbours."""
    return _entries(graph, graph.inverse_degree, None, back=False)


def mean_beside_back(graph: Neighbours, gradient: Tensor, rows: int) -> Tensor:
    """Return the gradient of ``h`` from the one of `mean_beside`; ``h`` has ``rows`` rows."""
    return _gather("mix", graph, gradient, rows, back=True)


# --- dropout ---------------------------------------------------------------------------------------------------------


class Noise:
    """The random part of one training step: which entries each dropout keeps.

    A counter and a hash: fast, the same on every device, and the same again when a run is resumed.

    Parameters
    ----------
    seed
        Numbers that identify the step: the same numbers give the same noise.

    Examples
    --------
    >>> first, again = Noise(7, 1), Noise(7, 1)
    >>> bool((first.keep(1000, 0.5) == again.keep(1000, 0.5)).all())
    True
    """

    def __init__(self, *seed: int, device: torch.device | None = None, kernels: Kernels = "numba") -> None:
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._device, self.kernels = device or torch.device("cpu"), kernels

    def keep(self, n: int, p: float) -> Tensor:
        """Return a byte for each of ``n`` entries: 0 with probability ``p``, else 1; different at each call."""
        keys = self._keys(p)
        if self.kernels == "torch":
            return kernels.torch_keep_bytes(n, *keys, self._device)
        out = np.empty(n, np.uint8)
        over_range(kernels.keep_bytes, n, *map(np.uint32, keys), out)
        return torch.from_numpy(out)

    def dropout(self, n: int, p: float) -> Dropout:  # noqa: ARG002  # for a noise that records its calls
        """Return what a compiled loop needs to drop the entries that `keep` would return as 0 for ``n`` entries."""
        key, second, threshold = map(np.uint32, self._keys(p))
        return key, second, threshold, np.float32(1 / (1 - p))

    def drop(self, x: Tensor, p: float) -> Tensor:
        """Return constant features after dropout, which needs no gradient."""
        if self.kernels == "torch":
            return x * (self.keep(x.numel(), p).view_as(x) * (1 / (1 - p)))
        return _each(kernels.drop, x, self.dropout(x.numel(), p), False)

    def _keys(self, p: float) -> tuple[int, int, int]:
        key, second = self._rng.integers(1 << 32, size=2).tolist()
        return key, second, min(round(p * 2**32), 2**32 - 1)

    def seed(self) -> int:
        """Return a seed for another random generator, different at each call."""
        return int(self._rng.integers(1 << 62))


def drop(x: Any, p: float, noise: Noise | None) -> Any:
    """Apply dropout: set each entry to 0 with probability ``p`` and scale the others by ``1 / (1 - p)``.

    Of sparse features, only stored entries are dropped. Without noise, ``x`` is returned as it is.
    """
    if noise is None or p == 0:
        return x
    if isinstance(x, SparseMatrix):
        if noise.kernels == "numba" and not x.stored.requires_grad:
            return replace(x, stored=x.values, dropout=noise.dropout(x.stored.numel(), p))
        return replace(x, stored=drop(x.values, p, noise), dropout=None)
    if isinstance(x, MixedMatrix):
        return MixedMatrix(drop(x.dense, p, noise), drop(x.sparse, p, noise))
    if not x.requires_grad:
        return noise.drop(x, p)
    if noise.kernels == "torch":
        return x * (noise.keep(x.numel(), p).view_as(x) / (1 - p))
    return _apply(_Drop, x, noise.dropout(x.numel(), p))


def relu_drop(x: Tensor, p: float, noise: Noise | None) -> Tensor:
    """Apply the rectifier and dropout in one pass; their order does not matter."""
    if noise is None or p == 0:
        return torch.relu(x)
    if noise.kernels == "torch":
        return torch.relu(x) * (noise.keep(x.numel(), p).view_as(x) / (1 - p))
    return _apply(_ReluDrop, x, noise.dropout(x.numel(), p))


def _each(kernel: Callable[..., Any], x: Tensor, *arguments: Any) -> Tensor:
    """Run a compiled function over all numbers of a tensor."""
    flat = _array(x.reshape(-1))
    out = floats(len(flat))
    over_range(kernel, len(flat), flat, *arguments, out)
    return torch.from_numpy(out).view(x.shape)


class _Drop(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dropout: Dropout) -> Tensor:
        ctx.dropout = dropout
        return _each(kernels.drop, x, dropout, False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _each(kernels.drop, gradient, ctx.dropout, False), None


class _ReluDrop(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dropout: Dropout) -> Tensor:
        ctx.scale, out = dropout[3], _each(kernels.drop, x, dropout, True)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        out = _array(ctx.saved_tensors[0].reshape(-1))
        return _each(kernels.relu_drop_back, gradient, out, ctx.scale), None


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
    """Return the attention-weighted sum of the neighbours' vectors, per head, for the first ``rows`` vertices.

    ``z`` is [n, heads * width]; ``left`` and ``right`` are [n, heads], each vertex's score as a neighbour and as the
    centre. The softmax is over their leaky rectified sum, whose slope below 0 is ``slope``. Dropout with probability
    ``p`` is applied to the attention. Weights of the neighbours are ignored.
    """
    entries, heads = int(graph.indptr[rows]), left.shape[1]
    dropped = noise is not None and p > 0
    if graph.kernels == "torch":
        scaled = noise.keep(entries * heads, p).view(entries, heads) / (1 - p) if dropped and noise else None
        return kernels.torch_attend(graph.indptr, graph.indices, rows, z, left, right, slope, scaled)
    dropout = noise.dropout(entries * heads, p) if dropped and noise else NO_DROPOUT
    return _apply(_Attend, z, left, right, graph, rows, slope, dropout)


class _Attend(Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, left: Tensor, right: Tensor, graph: Neighbours, rows: int, slope: float, dropout: Dropout
    ) -> Tensor:
        n, heads = left.shape
        full = -(-heads // 8) * 8  # the number of heads, filled up
        scores, state = floats(n, full, zero=True), floats(rows, 4 * full, zero=True)
        scores[:, :heads], state[:, :heads] = left.detach().numpy(), right.detach().numpy()[:rows]
        indptr, out = graph.indptr.numpy()[: rows + 1], floats(rows, z.shape[1])
        ctx.graph, ctx.arrays = graph, (_array(z), scores, heads, slope, dropout, state)
        ctx.out = out
        over_rows(kernels.attend, indptr, z.shape[1], indptr, graph.indices.numpy(), *ctx.arrays, out)
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        graph, (z, scores, heads, *_) = ctx.graph, ctx.arrays
        given, rows, width = _array(gradient), len(gradient), z.shape[1]
        indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
        to_z, to_left = floats(*z.shape), floats(*scores.shape)
        to_right = floats(*scores.shape, zero=True)
        some = indptr[: rows + 1]
        over_rows(kernels.attend_back_to_centres, some, width, some, indices, *ctx.arrays, ctx.out, given, to_right)
        indptr, indices = (part.numpy() for part in graph.reverse)
        entries = (indptr[: len(z) + 1], indices, graph.mirror.numpy())
        over_rows(kernels.attend_back_to_sources, entries[0], width, *entries, *ctx.arrays, given, to_z, to_left)
        found = (to_z, to_left[:, :heads], to_right[:, :heads])
        return *map(torch.from_numpy, found), None, None, None, None
