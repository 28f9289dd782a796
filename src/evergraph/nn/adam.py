"""The Adam optimiser.

torch's Adam gives the same numbers, but takes seconds to import and several passes over the weights at each step.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from evergraph.compiled import over_range
from evergraph.nn import kernels as loops
from evergraph.nn.ops import Kernels

__all__ = ["Adam"]

_FIRST, _SECOND, _SMALL = 0.9, 0.999, 1e-8


class Adam:
    """Adam with the usual decay rates (0.9 and 0.999), in place; weight decay is added to the gradient.

    Examples
    --------
    >>> weight = torch.tensor([1.0, 1.0], requires_grad=True)
    >>> optimiser = Adam([weight], lr=0.1)
    >>> (weight * torch.tensor([3.0, -1e-3])).sum().backward()
    >>> optimiser.step()
    >>> weight.detach()  # the size of the first step is the learning rate for any gradient
    tensor([0.9000, 1.1000])
    """

    def __init__(
        self, parameters: list[Tensor], lr: float, *, weight_decay: float = 0.0, kernels: Kernels = "numba"
    ) -> None:
        self.parameters, self.lr, self.weight_decay, self.kernels = parameters, lr, weight_decay, kernels
        self.steps = 0
        self.means = [torch.zeros_like(value, requires_grad=False) for value in parameters]
        self.squares = [torch.zeros_like(value, requires_grad=False) for value in parameters]

    def zero_grad(self) -> None:
        """Remove the gradients of the previous step."""
        for value in self.parameters:
            value.grad = None

    def step(self) -> None:
        """Update each parameter that has a gradient."""
        self.steps += 1
        rate = self.lr / (1 - _FIRST**self.steps)
        root = math.sqrt(1 - _SECOND**self.steps)
        with torch.no_grad():
            for value, mean, square in zip(self.parameters, self.means, self.squares, strict=True):
                if value.grad is None:
                    continue
                gradient = value.grad.contiguous()
                if self.kernels == "numba" and value.dtype == torch.float32 and value.is_contiguous():
                    arrays = (part.detach().view(-1).numpy() for part in (value, gradient, mean, square))
                    over_range(loops.adam, value.numel(), *arrays, rate, root, self.weight_decay)
                    continue
                if self.weight_decay:
                    gradient = gradient + self.weight_decay * value
                mean.lerp_(gradient, 1 - _FIRST)
                square.mul_(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
                value.addcdiv_(mean, (square.sqrt() / root).add_(_SMALL), value=-rate)
