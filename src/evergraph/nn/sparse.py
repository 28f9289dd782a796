"""Matrices in compressed sparse rows as tensors: the features, and the neighbours of each vertex."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

__all__ = ["Kernels", "Neighbours", "SparseMatrix", "choose_kernels"]

Kernels = Literal["numba", "torch"]


def choose_kernels(wanted: Literal["auto", "numba", "torch"], device: torch.device) -> Kernels:
    """The kernels to use: compiled ones on a processor, plain torch elsewhere."""
    if wanted != "auto":
        return wanted
    return "numba" if device.type == "cpu" else "torch"


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where a sparse matrix has entries, and at which place of an array of values each entry's value stands."""

    indptr: Tensor
    indices: Tensor
    place: Tensor
    columns: int

    @cached_property
    def transposed(self) -> Pattern:
        """The pattern of the transposed matrix over the same array of values."""
        rows = len(self.indptr) - 1
        places = np.arange(len(self.indices), dtype=np.int32)
        arrays = (places, self.indices.cpu().numpy(), self.indptr.cpu().numpy())
        turned = sparse.csr_array(arrays, shape=(rows, self.columns)).tocsc()
        device = self.indices.device
        indptr, indices, place = (_tensor(part, device) for part in (turned.indptr, turned.indices, turned.data))
        return Pattern(indptr, indices, place, rows)


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
        """From a scipy matrix, sharing its memory where types and device allow."""
        places = np.arange(matrix.nnz, dtype=np.int32)
        indptr, indices = (
            _tensor(part.astype(np.int32, copy=False), device) for part in (matrix.indptr, matrix.indices)
        )
        values = _tensor(matrix.data.astype(np.float32, copy=False), device)
        return cls(Pattern(indptr, indices, _tensor(places, device), matrix.shape[1]), values, kernels)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.pattern.indptr) - 1, self.pattern.columns

    @property
    def device(self) -> torch.device:
        """Where the values are."""
        return self.values.device

    def __len__(self) -> int:
        return self.shape[0]

    def with_values(self, values: Tensor) -> SparseMatrix:
        """The same entries with other values."""
        return replace(self, values=values)

    def to_dense(self) -> Tensor:
        """As a dense tensor."""
        rows, columns = self.shape
        entries = (self.values.cpu().numpy(), self.pattern.indices.cpu().numpy(), self.pattern.indptr.cpu().numpy())
        return torch.from_numpy(sparse.csr_array(entries, shape=(rows, columns)).toarray()).to(self.device)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The neighbours of each vertex in ascending order, itself among them: a symmetric pattern without isolated rows.

    Parameters
    ----------
    indptr, indices
        Compressed sparse rows.
    weights
        A weight for each entry, as sampling gives them; None where all are 1.
    kernels
        Which implementation works on them.

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
        """From symmetric compressed rows without self-loops, neighbours ascending; adds the self-loops."""
        n = len(indptr) - 1
        rows = np.repeat(np.arange(n, dtype=np.int32), np.diff(indptr))
        above = indices > rows
        looped = np.empty(len(indices) + n, np.int32)
        # Before an entry come the self-loops of all rows above it, and its own row's if that is smaller.
        looped[np.arange(len(indices)) + rows + above] = indices
        smaller = np.bincount(rows[~above], minlength=n)
        looped[indptr[:-1] + np.arange(n) + smaller] = np.arange(n, dtype=np.int32)
        pointers = (indptr + np.arange(n + 1)).astype(np.int32)
        return cls(_tensor(pointers, device), _tensor(looped, device), kernels=kernels)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def degree(self) -> Tensor:
        """Number of neighbours of each vertex, itself included."""
        return (self.indptr[1:] - self.indptr[:-1]).float()

    @cached_property
    def inverse_degree(self) -> Tensor:
        """What turns a sum over neighbours into a mean."""
        return 1 / self.degree

    @cached_property
    def root_degree(self) -> Tensor:
        """Inverse root of the degree: on both sides it normalises symmetrically."""
        return self.degree.rsqrt()

    @cached_property
    def mirror(self) -> Tensor:
        """For each entry the place of the same edge's entry the other way round."""
        places = np.arange(len(self.indices), dtype=np.int32)
        arrays = (places, self.indices.cpu().numpy(), self.indptr.cpu().numpy())
        turned = sparse.csr_array(arrays, shape=(len(self), len(self))).tocsc()  # sorts by columns, in linear time
        return _tensor(turned.data, self.indices.device)

    @cached_property
    def edge_index(self) -> Tensor:
        """The edges in both directions without self-loops, as PyTorch Geometric has them."""
        counts = (self.indptr[1:] - self.indptr[:-1]).long()
        target = torch.repeat_interleave(torch.arange(len(self), device=self.indices.device), counts)
        source = self.indices.long()
        proper = source != target
        return torch.stack([source[proper], target[proper]])


def _tensor(array: NDArray[Any], device: torch.device | None) -> Tensor:
    if not array.flags.writeable:
        array = array.copy()  # torch has no read-only tensors, and the graph's memory must not be written to
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
