"""Outputs by distance (IsoMax+): any model below, and a prototype for each class on top."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.nn.base import Batch, Draw, Model, Noise, Parameters, check_settings

__all__ = ["IsoMaxOutputs", "distance_logits"]

_BELOW = "model."  # before the names of the wrapped model's parameters, so that they cannot be those of the outputs
_SHORTEST = 1e-12  # a vector whose entries are all smaller has no direction
_EXACT = "donot_use_mm_for_euclid_dist"


@dataclass(frozen=True)
class IsoMaxOutputs(Model):
    """Another model whose outputs become vectors; a class's logit is minus the distance to the class's prototype.

    Both are brought to length 1 first, and the distance, which is then at most 2, is multiplied with the absolute value
    of one scale that is learnt too. All logits are therefore 0 or less, which suits `evergraph.detect.IsoMax` and no
    threshold on a sigmoid. (Macêdo and Ludermir, "Enhanced Isotropy Maximization Loss", 2021.)

    The wrapped model's output layer has the same width for ever; with a new class comes a prototype, drawn as in the
    paper from a normal distribution, and the old ones stay. The scale starts at 1.

    Parameters
    ----------
    model
        The model. It may be one that samples, as `GraphSAINT`, but not one that needs no training.
    width
        Length of the vectors.

    Examples
    --------
    >>> from evergraph.nn import SGC
    >>> model = IsoMaxOutputs(SGC(), width=8)
    >>> {name: tuple(value.shape) for name, value in model.parameters(5, 3, Draw(0)).items()}
    {'model.weight': (5, 8), 'model.bias': (8,), 'prototypes': (3, 8), 'scale': (1,)}
    """

    model: Model
    width: int = 32

    def __post_init__(self) -> None:
        check_settings(width=self.width)
        if not isinstance(self.model, Model):
            raise InputError(
                f"model is {self.model!r}", fix="give one of evergraph.nn; a torch module of your own as Custom(module)"
            )
        if isinstance(self.model, IsoMaxOutputs):
            raise InputError(f"model is {self.model!r}, which has such outputs already", fix="give the model in it")
        if self.model.closed_form(torch.ones(1)) is not None:
            raise InputError(
                f"model is {self.model!r}, which is not trained and so cannot learn vectors", fix="give another model"
            )

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        below = self.model.parameters(inputs, self.width, draw)
        p = {_BELOW + name: value for name, value in below.items()}
        p["prototypes"] = draw.normal(outputs, self.width, deviation=1)
        p["scale"] = torch.ones(1)
        return p

    def input_weights(self) -> tuple[str, ...]:
        return tuple(_BELOW + name for name in self.model.input_weights())

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        """Logits, and the vectors as the wrapped model gives them: not yet of length 1."""
        below = {name.removeprefix(_BELOW): value for name, value in p.items() if name.startswith(_BELOW)}
        vectors, _ = self.model.forward(below, batch, noise)
        return distance_logits(vectors, p["prototypes"], p["scale"]), vectors

    def batches(self, batch: Batch, rng: np.random.Generator) -> Iterator[Batch]:
        return self.model.batches(batch, rng)

    def trained(self, name: str) -> bool:
        return not name.startswith(_BELOW) or self.model.trained(name.removeprefix(_BELOW))


def distance_logits(vectors: Tensor, prototypes: Tensor, scale: Tensor) -> Tensor:
    """Minus the scaled distance of each vector from each prototype, both at length 1.

    A vector of zeros has no direction: it is as far from every prototype, at the distance 1, and has no gradient.

    Examples
    --------
    >>> east_and_north = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> distance_logits(torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 0.0]]), east_and_north, torch.tensor([-2.0]))
    tensor([[-0.0000, -2.8284],
            [-4.0000, -2.8284],
            [-2.0000, -2.0000]])
    """
    # Difference by difference: as the root of 2 - 2 cos, which is faster, small distances would lose their digits, and
    # the root has no slope at 0. This gives 0 there.
    distances = torch.cdist(_at_length_one(vectors), _at_length_one(prototypes), compute_mode=_EXACT)
    return -scale.abs() * distances


def _at_length_one(vectors: Tensor) -> Tensor:
    # By the largest entry first, or squares of very large and very small ones would leave the range of the numbers;
    # what is no number stays so and shows in the loss. Vectors of zeros do occur: `GAT` gives them where dropout leaves
    # nothing of a vertex. Divided by infinity they have no gradient; divided by a tiny number, as torch's normalize
    # does it, they would have one of 1e12, which Adam remembers to the end of the task.
    largest = vectors.detach().abs().amax(1, keepdim=True)
    even = vectors / torch.where(largest < _SHORTEST, math.inf, largest)
    return even / torch.linalg.vector_norm(even, dim=1, keepdim=True).clamp(min=0.5)  # 1 at least, or 0
