"""Naive Bayes: how often each feature occurs in each class, as a classifier that is computed from sums.

It takes features as counts of words, as multinomial naive Bayes does (Rennie, Shih, Teevan and Karger, Tackling the
Poor Assumptions of Naive Bayes Text Classifiers, ICML 2003, on weights such as TF-IDF instead of counts). Own features
and the mean of the neighbours' features are two texts of a vertex. Dense columns and negative values do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from evergraph.nn.base import Batch
from evergraph.nn.ops import Matrix, MixedMatrix, Neighbours, SparseMatrix, linear, mix_mean

__all__ = ["Occurrences", "log_likelihoods", "log_shares", "smoothed_totals"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Occurrences:
    """The features of some vertices.

    Parameters
    ----------
    own
        Their own features.
    around
        Features of vertices among which all of their neighbours are.
    mean
        How much each of these counts in the mean of a vertex's neighbours.
    """

    own: sparse.csr_array
    around: sparse.csr_array
    mean: sparse.csr_array

    @classmethod
    def of(cls, batch: Batch) -> Occurrences:
        """Return the features of a batch's rows, of which all neighbours are in the batch."""
        columns = batch.x.shape[1]
        x = sparse.csr_array((len(batch.graph), columns), dtype=np.float32)
        if (counts := _counted(batch.x)) is not None:
            found = counts.to_scipy()
            before = columns - found.shape[1]
            x = sparse.csr_array((found.data, found.indices + before, found.indptr), shape=(found.shape[0], columns))
        rows = batch.rows
        indptr, indices = (part.cpu().numpy() for part in (batch.graph.indptr[: rows + 1], batch.graph.indices))
        counted = np.repeat(np.arange(rows), np.diff(indptr))
        others = indices[: indptr[-1]]
        proper = others != counted  # each vertex is among its neighbours
        degrees = np.maximum(np.bincount(counted[proper], minlength=rows), 1)
        values = (1 / degrees)[counted[proper]].astype(np.float32)
        mean = sparse.csr_array((values, (counted[proper], others[proper])), shape=(rows, x.shape[0]))
        return cls(x[:rows], x, mean)

    @cached_property
    def near(self) -> sparse.csr_array:
        """The mean of their neighbours' features; without neighbours 0."""
        return sparse.csr_array(self.mean @ self.around)

    def __getitem__(self, rows: NDArray[np.integer]) -> Occurrences:
        return Occurrences(self.own[rows], self.around, self.mean[rows])

    @classmethod
    def joined(cls, parts: Sequence[Occurrences]) -> Occurrences:
        """Return those of several blocks of vertices, in this order."""
        own, around = (
            sparse.csr_array(sparse.vstack([getattr(one, name) for one in parts])) for name in ("own", "around")
        )
        return cls(own, around, sparse.csr_array(sparse.block_diag([one.mean for one in parts])))

    def add_to(self, sums: NDArray[np.float32], targets: NDArray[np.integer], weights: Floats) -> None:
        """Add the features of the vertices to the sums of their classes, an array of [2, features, classes]."""
        member = sparse.csr_array((weights, (np.arange(len(targets)), targets)), shape=(len(targets), sums.shape[2]))
        # The mean of each vertex would take much more memory.
        for total, added in zip(sums, (self.own.T @ member, self.around.T @ (self.mean.T @ member)), strict=True):
            found = added.tocoo()
            total[found.row, found.col] += found.data.astype(np.float32)  # each place is there once

    def left_out(
        self, sums: NDArray[np.float32], totals: Tensor, smoothing: float, targets: NDArray[np.integer], weights: Floats
    ) -> Floats:
        """Return the log-likelihoods of the classes of vertices that the sums contain, as if they did not.

        Shares in all classes stay as they are, because they change no comparison of classes.
        """
        columns = np.unique(np.concatenate([self.own.indices, self.near.indices]))
        counts = sums[:, columns]
        shares, before = log_shares(torch.from_numpy(counts), totals, smoothing).numpy(), totals.numpy()[:, targets]
        found: Floats = np.zeros((len(targets), sums.shape[2]))
        for part, features in enumerate((self.own[:, columns], self.near[:, columns])):
            entries = features.tocoo()
            removed = weights[entries.row] * entries.data
            # A feature that no other vertex has says nothing without this one.
            shared = counts[part].sum(1)[entries.col] > removed * (1 + 1e-5)
            found += sparse.csr_array((entries.data * shared, entries.coords), shape=features.shape) @ shares[part]
            count = counts[part, entries.col, targets[entries.row]].astype(np.float64)
            change = np.log((np.maximum(count - removed, 0) + smoothing) / (count + smoothing)) * entries.data * shared
            gone = np.bincount(entries.row, removed, minlength=len(targets))
            lengths = np.bincount(entries.row, entries.data * shared, minlength=len(targets))
            shorter = lengths * np.log(np.maximum(before[part] - gone, smoothing) / before[part])
            found[np.arange(len(targets)), targets] += (
                np.bincount(entries.row, change, minlength=len(targets)) - shorter
            )
        return found


def smoothed_totals(sums: Tensor, smoothing: float) -> Tensor:
    """Return the sum over all features of each class, smoothed: [2, classes] from [2, features, classes]."""
    there = (sums > 0).any(2).sum(1, keepdim=True)
    return sums.sum(1) + smoothing * there.clamp(min=1)


def log_shares(sums: Tensor, totals: Tensor, smoothing: float) -> Tensor:
    """Return the logarithm of the share of some features in each class, relative to their share in all classes.

    So the most likely class is the same as with the shares themselves, but long texts have no large negative numbers.
    Features that no class has have 0: they say nothing.

    Examples
    --------
    >>> sums = torch.tensor([[[3.0, 1.0], [1.0, 3.0], [0.0, 0.0]]])
    >>> log_shares(sums, smoothed_totals(sums, 1.0), 1.0).exp().mul(6).round().tolist()
    [[[8.0, 4.0], [4.0, 8.0], [6.0, 6.0]]]
    """
    smoothed = sums + smoothing
    overall = torch.log(smoothed.sum(2, keepdim=True)) - torch.log(totals.sum(1))[:, None, None]
    found = torch.log(smoothed) - torch.log(totals)[:, None] - overall
    return torch.where((sums > 0).any(2, keepdim=True), found, 0.0)


def log_likelihoods(shares: Tensor, x: Matrix, graph: Neighbours, rows: int) -> Tensor:
    """Return the log-likelihood of each class for the first vertices of a graph, from `log_shares` of all features.

    It is relative to that of all classes together.
    """
    classes = shares.shape[2]
    counts = _counted(x)
    if counts is None:
        return torch.zeros(rows, classes, device=shares.device)
    own, near = shares[:, x.shape[1] - counts.shape[1] :]
    both = linear(counts, torch.cat([own, near], 1))
    # The sum over neighbours contains the vertex itself.
    mixed = mix_mean(graph, torch.cat([torch.zeros_like(both[:, classes:]), both[:, classes:]], 1), rows)
    others = graph.degree[:rows, None] - 1
    mean = (mixed * (others + 1) - both[:rows, classes:]) / others.clamp(min=1)
    return both[:rows, :classes] + torch.where(others > 0, mean, 0.0)


def _counted(x: Matrix) -> SparseMatrix | None:
    """The columns that count, without negative values."""
    found = x.sparse if isinstance(x, MixedMatrix) else x
    return None if isinstance(found, Tensor) else replace(found, stored=found.stored.clamp(min=0))
