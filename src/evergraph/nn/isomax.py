"""IsoMax+ outputs: logits are distances to one prototype per class, on top of any model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.errors import InputError
from evergraph.nn.base import Batch, Draw, Model, Parameters, check_settings, not_a_model
from evergraph.nn.ops import Kernels, Noise
from evergraph.nn.sampling import Edges, LocalGraph

__all__ = ["IsoMaxOutputs", "distance_logits"]

_BELOW = "model."  # prefix that keeps the wrapped model's parameter names apart from those of the outputs
_SHORTEST = 1e-12  # a vector whose entries are all smaller counts as zero
_EXACT = "donot_use_mm_for_euclid_dist"


@dataclass(frozen=True)
class IsoMaxOutputs(Model):
    """Use another model's outputs as vectors; a class's logit is minus the distance to the class's prototype.

    Vectors and prototypes are normalised to length 1. Their distance, at most 2, is multiplied with the absolute value
    of a learnt scale, which starts at 1. All logits are therefore 0 or less: use them with `evergraph.detect.IsoMax`,
    not with a threshold on a sigmoid. (Macêdo and Ludermir, `Enhanced Isotropy Maximization Loss`, 2021.)

    The wrapped model's output layer keeps its width. A new class adds a prototype, drawn from a normal distribution as
    in the paper; the other prototypes do not change.

    Parameters
    ----------
    model
        The model. It may sample, as `GraphSAINT` does, but it must be one that is trained.
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
            raise not_a_model(self.model)
        if isinstance(self.model, IsoMaxOutputs):
            raise InputError(f"model is {self.model!r}, which already has IsoMax outputs", fix="give the model in it")
        if self.model.solved:
            raise InputError(
                f"model is {self.model!r}, which is not trained and cannot learn vectors", fix="give another model"
            )

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        below = self.model.parameters(inputs, self.width, draw)
        p = {_BELOW + name: value for name, value in below.items()}
        p["prototypes"] = draw.normal(outputs, self.width, deviation=1)
        p["scale"] = torch.ones(1)
        return p

    @property
    def hops(self) -> int | None:
        return self.model.hops

    @property
    def samples(self) -> bool:
        return self.model.samples

    def subgraphs(
        self, edges: Edges, labelled: NDArray[np.integer], most: int, device: torch.device, kernels: Kernels
    ) -> Callable[[np.random.Generator], LocalGraph] | None:
        return self.model.subgraphs(edges, labelled, most, device, kernels)

    def input_weights(self) -> tuple[str, ...]:
        return tuple(_BELOW + name for name in self.model.input_weights())

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        """Return logits, and the wrapped model's vectors before normalisation."""
        below = {name.removeprefix(_BELOW): value for name, value in p.items() if name.startswith(_BELOW)}
        vectors, _ = self.model.forward(below, batch, noise)
        return distance_logits(vectors, p["prototypes"], p["scale"]), vectors

    def batches(self, batch: Batch, rng: np.random.Generator) -> Iterator[Batch]:
        return self.model.batches(batch, rng)

    @property
    def takes_classes(self) -> bool:
        return self.model.takes_classes

    def trained(self, name: str) -> bool:
        return not name.startswith(_BELOW) or self.model.trained(name.removeprefix(_BELOW))


def distance_logits(vectors: Tensor, prototypes: Tensor, scale: Tensor) -> Tensor:
    """Return minus the scaled distance between each vector and each prototype, both normalised to length 1.

    A vector of zeros has distance 1 to every prototype, and no gradient.

    Examples
    --------
    >>> east_and_north = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> distance_logits(torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 0.0]]), east_and_north, torch.tensor([-2.0]))
    tensor([[-0.0000, -2.8284],
            [-4.0000, -2.8284],
            [-2.0000, -2.0000]])
    """
    # Computed from differences. The root of 2 - 2 cos is faster, but inexact for small distances and not differentiable
    # at 0; this has gradient 0 there.
    distances = torch.cdist(_normalised(vectors), _normalised(prototypes), compute_mode=_EXACT)
    return -scale.abs() * distances


def _normalised(vectors: Tensor) -> Tensor:
    # Divide by the largest entry first, or squares of very large and very small entries would overflow or underflow.
    # NaN stays NaN and shows in the loss. Vectors of zeros occur: `GAT` returns them where dropout removes all of a
    # vertex. Divided by infinity they have no gradient; divided by a tiny number, as in torch's ``normalize``, they
    # would have one of 1e12, which distorts Adam's moments until the end of the task.
    largest = vectors.detach().abs().amax(1, keepdim=True)
    even = vectors / torch.where(largest < _SHORTEST, math.inf, largest)
    return even / torch.linalg.vector_norm(even, dim=1, keepdim=True).clamp(min=0.5)  # at least 1, or exactly 0
