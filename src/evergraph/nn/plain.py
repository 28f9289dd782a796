"""The operations of `evergraph.nn.kernels` in plain torch, for any device."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

__all__ = ["attend", "gather", "gather_beside", "gather_onto", "keep_bytes", "multiply"]

_WORD = 0xFFFFFFFF


def multiply(indptr: Tensor, indices: Tensor, values: Tensor, columns: int, dense: Tensor) -> Tensor:
    """A sparse matrix in compressed rows times a dense one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        shape = (len(indptr) - 1, columns)
        return torch.sparse_csr_tensor(indptr, indices, values, shape, check_invariants=False) @ dense


def gather(
    indptr: Tensor,
    indices: Tensor,
    weights: Tensor | None,
    row_scale: Tensor | None,
    column_scale: Tensor | None,
    source: Tensor,
    rows: int,
) -> Tensor:
    """Row scale * sum over those neighbours that the source has of (weight * column scale * source)."""
    last, vertices = int(indptr[rows]), len(indptr) - 1
    values = torch.ones(last, device=source.device) if weights is None else weights[:last]
    scaled = source if column_scale is None else source * column_scale[: len(source), None]
    if len(source) < vertices:
        scaled = torch.nn.functional.pad(scaled, (0, 0, 0, vertices - len(source)))
    out = multiply(indptr[: rows + 1], indices[:last], values, vertices, scaled.contiguous())
    return out if row_scale is None else out * row_scale[:rows, None]


def gather_onto(
    indptr: Tensor,
    indices: Tensor,
    weights: Tensor | None,
    row_scale: Tensor | None,
    column_scale: Tensor | None,
    source: Tensor,
    rows: int,
) -> Tensor:
    """The left half of the source plus the sum over the neighbours' right halves."""
    width = source.shape[1] // 2
    out = gather(indptr, indices, weights, row_scale, column_scale, source[:, width:], rows)
    out[: len(source)] += source[:rows, :width]
    return out


def gather_beside(
    indptr: Tensor,
    indices: Tensor,
    weights: Tensor | None,
    row_scale: Tensor | None,
    column_scale: Tensor | None,
    source: Tensor,
    rows: int,
) -> Tensor:
    """The source, and beside it the sum over the neighbours."""
    out = gather(indptr, indices, weights, row_scale, column_scale, source, rows)
    own = torch.nn.functional.pad(source[:rows], (0, 0, 0, max(rows - len(source), 0)))
    return torch.cat([own, out], 1)


def keep_bytes(n: int, key: int, second: int, threshold: int, device: torch.device) -> Tensor:
    """1 where the hash of place and keys is at or above the threshold, else 0: the very bits of the compiled one."""
    x = torch.arange(n, device=device) ^ key
    for added in (second, 0):
        x = ((x ^ (x >> 16)) * 0x7FEB352D) & _WORD
        x = ((x ^ (x >> 15)) * 0x846CA68B) & _WORD
        x = ((x ^ (x >> 16)) + added) & _WORD
    return (x >= threshold).to(torch.uint8)


def attend(
    indptr: Tensor,
    indices: Tensor,
    rows: int,
    z: Tensor,
    left: Tensor,
    right: Tensor,
    slope: float,
    keep: Tensor | None,
) -> Tensor:
    """Attention over neighbours, edge by edge; ``keep`` [entries, heads] has the scaled dropout of the attention."""
    heads = left.shape[1]
    last = int(indptr[rows])
    target = torch.repeat_interleave(torch.arange(rows, device=z.device), indptr[1 : rows + 1] - indptr[:rows])
    source = indices[:last].long()
    score = torch.nn.functional.leaky_relu(left[source] + right[target], slope)
    spread = target[:, None].expand_as(score)
    top = torch.full((rows, heads), -torch.inf, device=z.device, dtype=z.dtype)
    top = top.scatter_reduce(0, spread, score.detach(), "amax")
    weight = torch.exp(score - top[target])
    total = torch.zeros_like(top).index_add(0, target, weight)
    share = weight / total[target]
    if keep is not None:
        share = share * keep
    parts = z.reshape(len(z), heads, z.shape[1] // heads)[source] * share[:, :, None]
    return torch.zeros((rows, z.shape[1]), device=z.device, dtype=z.dtype).index_add(0, target, parts.flatten(1))
