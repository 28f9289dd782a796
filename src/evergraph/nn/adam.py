"""The Adam optimiser.

Our own, for torch's takes seconds to load (it brings a compiler along) and several passes over the weights; the numbers
are the same.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from evergraph.compiled import over_range
from evergraph.nn.sparse import Kernels

__all__ = ["Adam"]

_FIRST, _SECOND, _SMALL = 0.9, 0.999, 1e-8


class Adam:
    """Adam with the usual decay rates (.9 and .999); weight decay is added to the gradient.

    Parameters
    ----------
    parameters
        What to train, in place.
    lr, weight_decay
        Learning rate, and share of each weight that is added to its gradient.

    Examples
    --------
    >>> weight = torch.tensor([1.0, 1.0], requires_grad=True)
    >>> optimiser = Adam([weight], lr=0.1)
    >>> (weight * torch.tensor([3.0, -1e-3])).sum().backward()
    >>> optimiser.step()
    >>> weight.detach()  # the first step is the learning rate, whatever the gradient
    tensor([0.9000, 1.1000])
    """

    def __init__(
        self, parameters: list[Tensor], lr: float, *, weight_decay: float = 0.0, kernels: Kernels = "numba"
    ) -> None:
        self.parameters, self.lr, self.weight_decay, self.kernels = parameters, lr, weight_decay, kernels
        self.steps = 0
        self.means = [torch.zeros_like(value, requires_grad=False) for value in parameters]
        self.squares = [torch.zeros_like(value, requires_grad=False) for value in parameters]

    def forget_gradients(self) -> None:
        """Before each step."""
        for value in self.parameters:
            value.grad = None

    def step(self) -> None:
        """Move each parameter that has a gradient."""
        self.steps += 1
        rate = self.lr / (1 - _FIRST**self.steps)
        root = math.sqrt(1 - _SECOND**self.steps)
        with torch.no_grad():
            for value, mean, square in zip(self.parameters, self.means, self.squares, strict=True):
                if value.grad is None:
                    continue
                gradient = value.grad.contiguous()
                if self.kernels == "numba" and value.dtype == torch.float32 and value.is_contiguous():
                    from evergraph.nn import kernels

                    arrays = (part.detach().view(-1).numpy() for part in (value, gradient, mean, square))
                    over_range(kernels.adam, value.numel(), *arrays, rate, root, self.weight_decay)
                    continue
                if self.weight_decay:
                    gradient = gradient + self.weight_decay * value
                mean.lerp_(gradient, 1 - _FIRST)
                square.mul_(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
                value.addcdiv_(mean, (square.sqrt() / root).add_(_SMALL), value=-rate)
