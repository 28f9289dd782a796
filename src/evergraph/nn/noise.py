"""Dropout from a counter and a hash: fast, the same on every device, and the same again when a run is resumed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from evergraph.compiled import over_range
from evergraph.nn import plain
from evergraph.nn.sparse import Kernels

__all__ = ["Noise"]


class Noise:
    """The random part of one training step: which entries each dropout keeps.

    Parameters
    ----------
    seed
        Whatever identifies the step: the same numbers give the same noise.

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
        """A byte for each of ``n`` entries: 0 with probability ``p``, else 1; other ones at each call."""
        key, second = self._rng.integers(1 << 32, size=2).tolist()
        threshold = min(round(p * 2**32), 2**32 - 1)
        if self.kernels == "torch":
            return plain.keep_bytes(n, key, second, threshold, self._device)
        from evergraph.nn import kernels

        out = np.empty(n, np.uint8)
        over_range(kernels.keep_bytes, n, np.uint32(key), np.uint32(second), np.uint32(threshold), out)
        return torch.from_numpy(out)

    def seed(self) -> int:
        """A seed for a random generator of others, another one at each call."""
        return int(self._rng.integers(1 << 62))
