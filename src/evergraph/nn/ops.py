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

from evergraph.compiled import SMALL, cores, one_each, over_range, over_rows, row_bounds
from evergraph.nn import kernels

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
    "mean_beside",
    "mix_mean",
    "propagate",
    "relu_drop",
]

Kernels = Literal["numba", "torch"]

_NO_FLOATS, _NO_INTS, _NO_BYTES = np.empty(0, np.float32), np.empty(0, np.int32), np.empty(0, np.uint8)
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
    values: Tensor
    kernels: Kernels = "numba"

    @classmethod
    def of(
        cls, matrix: sparse.csr_array, *, device: torch.device | None = None, kernels: Kernels = "numba"
    ) -> SparseMatrix:
        """Convert a scipy matrix; memory is shared where types and device allow."""
        indptr = _tensor(matrix.indptr.astype(np.int32, copy=False), device)
        indices = _tensor(matrix.indices.astype(np.int32, copy=False), device)
        values = _tensor(matrix.data.astype(np.float32, copy=False), device)
        return cls(Pattern(indptr, indices, matrix.shape[1]), values, kernels)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.pattern.indptr) - 1, self.pattern.columns

    @property
    def device(self) -> torch.device:
        """Device of the values."""
        return self.values.device

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
        zeros = self.values.new_zeros(self.shape)
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

    Parameters
    ----------
    indptr, indices
        Compressed sparse rows.
    weights
        Weight of each entry, as sampling sets them; None if all are 1.
    kernels
        Implementation of the operations on them.

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
        rows = np.repeat(np.arange(n, dtype=np.int32), np.diff(indptr))
        above = indices > rows
        looped = np.empty(len(indices) + n, np.int32)
        # Before an entry are the self-loops of all rows above it, and its own row's if that is smaller.
        looped[np.arange(len(indices)) + rows + above] = indices
        smaller = np.bincount(rows[~above], minlength=n)
        looped[indptr[:-1] + np.arange(n) + smaller] = np.arange(n, dtype=np.int32)
        pointers = (indptr + np.arange(n + 1)).astype(np.int32)
        return cls(_tensor(pointers, device), _tensor(looped, device), kernels=kernels)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def degree(self) -> Tensor:
        """Number of neighbours of each vertex, including itself."""
        return (self.indptr[1:] - self.indptr[:-1]).float()

    @cached_property
    def inverse_degree(self) -> Tensor:
        """Factor that turns a sum over neighbours into a mean."""
        return 1 / self.degree

    @cached_property
    def root_degree(self) -> Tensor:
        """Inverse root of the degree, the factor on both sides of symmetric normalisation."""
        return self.degree.rsqrt()

    @cached_property
    def mirror(self) -> Tensor:
        """Place of each entry's edge in the opposite direction."""
        return Pattern(self.indptr, self.indices, len(self)).transposed[2]

    @cached_property
    def edge_index(self) -> Tensor:
        """Edges in both directions without self-loops, in the format of PyTorch Geometric."""
        counts = (self.indptr[1:] - self.indptr[:-1]).long()
        target = torch.repeat_interleave(torch.arange(len(self), device=self.indices.device), counts)
        source = self.indices.long()
        proper = source != target
        return torch.stack([source[proper], target[proper]])


# --- features times weights ------------------------------------------------------------------------------------------


def linear(x: Matrix, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x @ weight + bias`` for dense, sparse or mixed features.

    Examples
    --------
    >>> linear(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0], [10.0]]), torch.tensor([0.5])).tolist()
    [[21.5]]
    """
    if isinstance(x, SparseMatrix):
        return _apply(_Multiply, x, x.values, weight, bias)
    if isinstance(x, MixedMatrix):
        above, below = torch.split(weight, [x.dense.shape[1], x.sparse.shape[1]])
        return torch.addmm(_apply(_Multiply, x.sparse, x.sparse.values, below, bias), x.dense, above)
    return x @ weight if bias is None else torch.addmm(bias, x, weight)


class _Multiply(Function):
    @staticmethod
    def forward(ctx: Any, x: SparseMatrix, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # Training needs no gradient with respect to the features; attributions do.
        ctx.x, ctx.weight, pattern = x, weight if values.requires_grad else None, x.pattern
        if x.kernels == "torch":
            out = kernels.torch_multiply(pattern.indptr, pattern.indices, values, pattern.columns, weight)
            return out if bias is None else out + bias
        indptr, width = pattern.indptr.numpy(), weight.shape[1]
        result = np.empty((len(indptr) - 1, width), np.float32)
        arrays = (indptr, pattern.indices.numpy(), _array(values), _array(weight), _array(bias))
        over_rows(kernels.multiply, indptr, width, *arrays, result)
        return torch.from_numpy(result)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor | None, Tensor | None, Tensor | None]:
        x, pattern, width = ctx.x, ctx.x.pattern, gradient.shape[1]
        to_values = None
        if ctx.needs_input_grad[1]:
            counts = (pattern.indptr[1:] - pattern.indptr[:-1]).long()
            rows = torch.repeat_interleave(torch.arange(len(x), device=gradient.device), counts)
            to_values = (gradient[rows] * ctx.weight[pattern.indices.long()]).sum(1)
        if not ctx.needs_input_grad[2]:
            return None, to_values, None, gradient.sum(0) if ctx.needs_input_grad[3] else None
        if x.kernels == "torch":
            turned, indices, place = pattern.transposed
            to_weight = kernels.torch_multiply(turned, indices, x.values[place], len(x), gradient)
            return None, to_values, to_weight, gradient.sum(0) if ctx.needs_input_grad[3] else None
        indptr = pattern.indptr.numpy()
        # Each part has its own result, which is worth it only if each row of it is a sum of many entries.
        much = x.values.numel() > _MUCH * pattern.columns and x.values.numel() * width > SMALL
        bounds = row_bounds(indptr, parts=min(cores(), 8) if much else 1)
        parts = len(bounds) - 1
        results = np.zeros((parts, pattern.columns, width), np.float32)
        sums = np.zeros((parts, width), np.float32)
        arrays = (bounds, indptr, pattern.indices.numpy(), _array(x.values), _array(gradient))
        one_each(kernels.multiply_transposed, parts, *arrays, results, sums)
        to_weight = torch.from_numpy(results[0]) if parts == 1 else torch.from_numpy(results).sum(0)
        return None, to_values, to_weight, torch.from_numpy(sums.sum(0)) if ctx.needs_input_grad[3] else None


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
    if graph.kernels == "torch":
        weights = graph.weights if graph.weights is None or not back else graph.weights[graph.mirror]
        return kernels.torch_gather(graph.indptr, graph.indices, weights, *scales, source, rows, own, column)
    out = np.empty((rows, columns), np.float32)
    indptr, place = graph.indptr.numpy()[: rows + 1], _NO_INTS
    if graph.weights is not None:
        place = graph.mirror.numpy() if back else np.arange(len(graph.indices), dtype=np.int32)
    arrays = (indptr, graph.indices.numpy(), place, *map(_array, (graph.weights, *scales, source)))
    over_rows(kernels.gather, indptr, columns, *arrays, own, column, out)
    return torch.from_numpy(out)


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

    def drop(self, x: Tensor, p: float) -> Tensor:
        """Return constant features after dropout, which needs no gradient."""
        if self.kernels == "torch":
            return x * (self.keep(x.numel(), p).view_as(x) * (1 / (1 - p)))
        return _each(kernels.drop_by_hash, x, *map(np.uint32, self._keys(p)), 1 / (1 - p))

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
        return replace(x, values=drop(x.values, p, noise))
    if isinstance(x, MixedMatrix):
        return MixedMatrix(drop(x.dense, p, noise), drop(x.sparse, p, noise))
    if not x.requires_grad:
        return noise.drop(x, p)
    keep, scale = noise.keep(x.numel(), p), 1 / (1 - p)
    return _apply(_Drop, x, keep, scale) if noise.kernels == "numba" else x * (keep.view_as(x) * scale)


def relu_drop(x: Tensor, p: float, noise: Noise | None) -> Tensor:
    """Apply the rectifier and dropout in one pass; their order does not matter."""
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
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return _each(kernels.drop, x, keep.numpy(), scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _each(kernels.drop, gradient, ctx.saved_tensors[0].numpy(), ctx.scale), None, None


class _ReluDrop(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        out = _each(kernels.relu_drop, x, keep.numpy(), scale)
        ctx.save_for_backward(out)
        ctx.scale = scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        out = _array(ctx.saved_tensors[0].reshape(-1))
        return _each(kernels.relu_drop_back, gradient, out, ctx.scale), None, None


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
    keep = None if noise is None or p == 0 else noise.keep(entries * heads, p)
    scale = 1.0 if keep is None else 1 / (1 - p)
    if graph.kernels == "torch":
        scaled = None if keep is None else keep.view(entries, heads) * scale
        return kernels.torch_attend(graph.indptr, graph.indices, rows, z, left, right, slope, scaled)
    return _apply(_Attend, z, left, right, graph, rows, slope, keep, scale)


class _Attend(Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, left: Tensor, right: Tensor, graph: Neighbours, rows: int, *options: Any
    ) -> Tensor:
        slope, keep, scale = options
        indptr, indices = graph.indptr.numpy()[: rows + 1], graph.indices.numpy()
        dropped = _NO_BYTES if keep is None else keep.numpy()
        attention = np.empty((int(indptr[-1]), left.shape[1]), np.float32)
        out = np.empty((rows, z.shape[1]), np.float32)
        arrays = (_array(z), _array(left), _array(right), slope, dropped, scale, attention)
        over_rows(kernels.attend, indptr, z.shape[1], indptr, indices, *arrays, out)
        ctx.graph, ctx.arrays = graph, arrays
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        graph, (z, left, right, _, keep, scale, attention) = ctx.graph, ctx.arrays
        given, rows, width = _array(gradient), len(gradient), z.shape[1]
        indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
        back = np.empty_like(attention)
        to_z, to_left, to_right = np.empty_like(z), np.empty_like(left), np.zeros_like(right)
        some = indptr[: rows + 1]
        over_rows(kernels.attend_back_to_scores, some, width, some, indices, *ctx.arrays, given, back, to_right)
        entries = (indptr, indices, graph.mirror.numpy(), rows, keep, scale, attention)
        over_rows(kernels.attend_back_to_sources, indptr, width, *entries, given, back, to_z, to_left)
        return *map(torch.from_numpy, (to_z, to_left, to_right)), None, None, None, None, None
