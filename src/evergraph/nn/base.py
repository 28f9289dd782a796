"""What a model is: a rule that draws parameters of a given size, and a function of parameters and a graph.

Models are values and hold no weights. The learner holds those, in a plain dict: so they can be kept, redrawn, grown and
saved without the model's help.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from evergraph.compiled import over_range
from evergraph.errors import InputError
from evergraph.nn import plain
from evergraph.nn.sparse import Kernels, Neighbours, SparseMatrix

__all__ = [
    "Batch",
    "Draw",
    "InUse",
    "Model",
    "Noise",
    "Parameters",
    "carry_over",
    "check_settings",
    "count_parameters",
    "in_use",
    "widths",
]

Parameters = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Batch:
    """What a model reads: features and neighbours of some vertices.

    Parameters
    ----------
    x
        Features, dense or sparse, one row a vertex.
    graph
        The neighbours of each vertex.
    rows
        Outputs are wanted for so many vertices from the first on: training vertices come first, for they are older.
    targets
        For each of these rows the column of its class; -1 where it has no part in the loss.
    weights
        Weight of each of these rows in the loss; None where all are alike.
    """

    x: Tensor | SparseMatrix
    graph: Neighbours
    rows: int
    targets: Tensor
    weights: Tensor | None = None

    @cached_property
    def labelled(self) -> Tensor:
        """The rows that have a part in the loss."""
        return torch.nonzero(self.targets >= 0).flatten()


class Model(ABC):
    """The contract of all models; subclasses are frozen dataclasses of their settings."""

    @abstractmethod
    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        """Parameters drawn afresh for so many features and classes.

        An axis that runs over features or classes must be in their order: on growth the old values are laid over the
        fresh ones from the first place on.
        """

    @abstractmethod
    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        """Logits [rows, classes] and the vectors below the output layer [rows, width].

        Noise is there in training and None otherwise.
        """

    def batches(self, batch: Batch, rng: np.random.Generator) -> Iterator[Batch]:  # noqa: ARG002  # sampling needs it
        """What each step of training reads, without end; by default all."""
        return itertools.repeat(batch)

    def closed_form(self, counts: Tensor) -> Parameters | None:  # noqa: ARG002  # the baseline needs it
        """Parameters from the class counts alone, for a model that needs no training; None for all others."""
        return None

    def input_weights(self) -> tuple[str, ...]:
        """Names of the parameters with a row for each feature that meets nothing but that feature's values.

        Rows of features that no vertex has cannot change in training, so they are left out of it (`in_use`).
        """
        return ()

    def trained(self, name: str) -> bool:  # noqa: ARG002  # models with tensors that only accompany need it
        """Whether training changes this parameter by its gradient; by default all are."""
        return True


class Draw:
    """Fresh parameters from a seed.

    Examples
    --------
    >>> weight = Draw(1).glorot(100, 20)
    >>> weight.shape, bool(weight.abs().max() <= math.sqrt(6 / 120))
    (torch.Size([100, 20]), True)
    """

    def __init__(self, *seed: int) -> None:
        self.seed = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1)
        self._generator = torch.Generator().manual_seed(self.seed)

    def uniform(self, *shape: int, bound: float) -> Tensor:
        """Uniform between minus and plus ``bound``."""
        return torch.empty(shape).uniform_(-bound, bound, generator=self._generator)

    def normal(self, *shape: int, deviation: float) -> Tensor:
        """Normal around 0."""
        return torch.empty(shape).normal_(0, deviation, generator=self._generator)

    def glorot(self, inputs: int, outputs: int, gain: float = 1.0) -> Tensor:
        """Glorot's uniform weights."""
        return self.uniform(inputs, outputs, bound=gain * math.sqrt(6 / max(inputs + outputs, 1)))

    def linear(self, inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
        """Weight and bias of torch's linear layer."""
        bound = 1 / math.sqrt(max(inputs, 1))
        return self.uniform(inputs, outputs, bound=bound), self.uniform(outputs, bound=bound)


class Noise:
    """The random part of one training step: which entries each dropout keeps.

    A counter and a hash: fast, the same on every device, and the same again when a run is resumed.

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


def carry_over(old: Parameters, fresh: Parameters) -> Parameters:
    """Lay old parameters over fresh ones: what has grown is fresh at its end, all else is kept.

    Examples
    --------
    >>> carry_over({"bias": torch.ones(2)}, {"bias": torch.zeros(3)})
    {'bias': tensor([1., 1., 0.])}
    """
    if old.keys() != fresh.keys():
        raise InputError(
            f"the parameters were {', '.join(old)} and now are {', '.join(fresh)}",
            fix="keep the model's settings, or start a new learner",
        )
    grown = {}
    for name, value in fresh.items():
        before = old[name]
        if before.dim() != value.dim() or any(a > b for a, b in zip(before.shape, value.shape, strict=True)):
            raise InputError(
                f"parameter {name!r} had the shape {tuple(before.shape)} and now has {tuple(value.shape)}",
                fix="keep the model's settings, or start a new learner",
            )
        value = value.to(before.device, copy=True)
        value[tuple(slice(size) for size in before.shape)] = before.detach()
        grown[name] = value
    return grown


def count_parameters(model: Model, inputs: int, outputs: int) -> int:
    """Number of trained parameters of a model for so many features and classes.

    Examples
    --------
    >>> from evergraph.nn import GraphSAGE
    >>> count_parameters(GraphSAGE(hidden=32), inputs=2_278, outputs=12)
    146648
    """
    drawn = model.parameters(inputs, outputs, Draw(0))
    return sum(value.numel() for name, value in drawn.items() if model.trained(name))


def widths(inputs: int, hidden: int, layers: int, outputs: int) -> list[tuple[int, int]]:
    """Inputs and outputs of each layer.

    Examples
    --------
    >>> widths(100, 32, 3, 7)
    [(100, 32), (32, 32), (32, 7)]
    """
    return list(itertools.pairwise([inputs, *[hidden] * (layers - 1), outputs]))


def check_settings(*, dropout: float = 0.0, **at_least_one: int) -> None:
    """Refuse settings that make no model."""
    for name, value in at_least_one.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} is {value!r}", fix=f"give {name} a whole number from 1 up")
    if not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise InputError(f"dropout is {dropout!r}", fix="give a share from 0 to below 1")


@dataclass(frozen=True, eq=False)
class InUse:
    """Parameters and features of a task without the features that no vertex has.

    A word that no vertex has gives its weights no gradient, and Adam, which starts anew for each task, does not move
    what has none. Over the years most words of a vocabulary are not in sight, so this saves about half of a step.

    Parameters
    ----------
    weights, batch
        What to train, and on what.
    columns
        Which features are left.
    narrowed
        Names of the parameters that lack rows.
    """

    weights: Parameters
    batch: Batch
    columns: Tensor
    narrowed: tuple[str, ...]

    def laid_over(self, whole: Parameters) -> Parameters:
        """All parameters: the trained ones, and the rows that were left out as they were in ``whole``."""
        found = dict(self.weights)
        for name in self.narrowed:
            found[name] = whole[name].index_copy(0, self.columns, self.weights[name])
        return found


def in_use(model: Model, weights: Parameters, batch: Batch) -> InUse | None:
    """The part of a task that training can change; None where that is all.

    Examples
    --------
    >>> from scipy import sparse
    >>> from evergraph.nn import SGC, Draw, Neighbours
    >>> x = SparseMatrix.of(sparse.csr_array([[0.0, 2.0, 0.0], [0.0, 1.0, 0.0]]))
    >>> edge = sparse.csr_array([[0, 1], [1, 0]])
    >>> batch = Batch(x, Neighbours.of(edge.indptr, edge.indices), 2, torch.tensor([0, 1]))
    >>> part = in_use(SGC(), SGC().parameters(3, 2, Draw(0)), batch)
    >>> part.columns.tolist(), part.batch.x.shape, part.weights["weight"].shape
    ([1], (2, 1), torch.Size([1, 2]))
    """
    names = model.input_weights()
    if not names or not isinstance(batch.x, SparseMatrix):
        return None
    pattern = batch.x.pattern
    columns, indices = torch.unique(pattern.indices, return_inverse=True)
    if len(columns) == pattern.columns:
        return None
    # Ascending as before: on one thread no sum changes its order (on several, fewer columns may split it otherwise).
    pattern = replace(pattern, indices=indices.to(pattern.indices.dtype), columns=len(columns))
    columns = columns.long()
    part = {name: value[columns] if name in names else value for name, value in weights.items()}
    return InUse(part, replace(batch, x=replace(batch.x, pattern=pattern)), columns, names)
