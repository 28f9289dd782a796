"""The contract of models: draw parameters of a given size, and compute outputs from parameters and a graph.

Models do not hold weights. The learner holds them, in a plain dict, so that it can keep, redraw, grow and save them
without the model's help.
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

from evergraph.errors import InputError
from evergraph.names import DEFAULT_MODEL, build_model
from evergraph.nn.ops import Matrix, MixedMatrix, Neighbours, Noise

__all__ = [
    "ActiveFeatures",
    "Batch",
    "Draw",
    "Model",
    "Parameters",
    "active_features",
    "as_model",
    "carry_over",
    "check_settings",
    "count_parameters",
    "widths",
]

_MOST_LAYERS = 1_000

Parameters = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Batch:
    """Input of a model: features and neighbours of some vertices.

    Parameters
    ----------
    x
        Features, dense, sparse or both, one row per vertex.
    graph
        The neighbours of each vertex.
    rows
        Number of vertices, from the first on, to compute outputs for. Training vertices are first because they are
        older.
    targets
        Column of the class of each of these rows; -1 if the row is not part of the loss.
    weights
        Weight of each of these rows in the loss; None if all are equal.
    """

    x: Matrix
    graph: Neighbours
    rows: int
    targets: Tensor
    weights: Tensor | None = None

    @cached_property
    def labelled(self) -> Tensor:
        """Rows that are part of the loss."""
        return torch.nonzero(self.targets >= 0).flatten()


class Model(ABC):
    """The contract of all models; subclasses are frozen dataclasses of their settings."""

    @abstractmethod
    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        """Draw new parameters for a number of features and classes.

        Features and classes must be in order along each axis: when an axis grows, the old values replace the new ones
        from the first position on.
        """

    @abstractmethod
    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        """Return logits [rows, classes] and the vectors below the output layer [rows, width].

        Noise is given in training only.
        """

    def batches(self, batch: Batch, rng: np.random.Generator) -> Iterator[Batch]:  # noqa: ARG002  # sampling needs it
        """Return the input of each training step, without end; by default always the whole batch."""
        return itertools.repeat(batch)

    def closed_form(self, counts: Tensor) -> Parameters | None:  # noqa: ARG002  # the baseline needs it
        """Return parameters computed from the class counts, or None if the model must be trained."""
        return None

    def input_weights(self) -> tuple[str, ...]:
        """Return the names of parameters whose rows are each multiplied with one feature only.

        Training cannot change rows of features that no vertex has, so it leaves them out (`active_features`).
        """
        return ()

    @property
    def takes_classes(self) -> bool:
        """Whether ``inputs="auto"`` may add the classes of older neighbours, whose number grows."""
        return True

    def trained(self, name: str) -> bool:  # noqa: ARG002  # models with buffers need it
        """Return whether training changes this parameter by its gradient; by default it changes all."""
        return True


def as_model(model: Model | torch.nn.Module | None) -> Model:
    """Return a model as it is, a torch module with an output layer on top, or the default model for None.

    Examples
    --------
    >>> as_model(None)
    GraphSAGE(hidden=32, layers=2, dropout=0.5)
    """
    if isinstance(model, torch.nn.Module):
        from evergraph.nn.custom import Custom

        return Custom(model)
    found = build_model(DEFAULT_MODEL) if model is None else model
    if not isinstance(found, Model):
        raise not_a_model(model)
    return found


def not_a_model(value: object) -> InputError:
    """Return the error for a value that is not a model; for a torch module or a class it has the line to write.

    Examples
    --------
    >>> raise not_a_model(torch.nn.Linear)
    Traceback (most recent call last):
    evergraph.errors.InputError: Linear is a torch module, not a model. Write model=evergraph.nn.Custom(Linear).
    """
    kind = value if isinstance(value, type) else type(value)
    if issubclass(kind, torch.nn.Module):
        problem, fix = (
            f"{kind.__name__} is a torch module, not a model",
            f"write model=evergraph.nn.Custom({kind.__name__})",
        )
    elif isinstance(value, type) and issubclass(kind, Model):
        problem, fix = f"{kind.__name__} is a class, not a model", f"write model={kind.__name__}()"
    else:
        problem = f"{value!r} is not a model"
        fix = "give one of evergraph.nn, or evergraph.nn.Custom(Module) for your own torch module"
    return InputError(problem, fix=fix)


def check_settings(*, dropout: float = 0.0, **at_least_one: int) -> None:
    """Raise an error if dropout is not a share, or another setting not a positive whole number."""
    for name, value in at_least_one.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} is {value!r}", fix=f"set {name} to a whole number of at least 1")
    if not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise InputError(f"dropout is {dropout!r}", fix="set dropout to a share of at least 0 and below 1")


# --- parameters ------------------------------------------------------------------------------------------------------


class Draw:
    """New parameters from a seed.

    Examples
    --------
    >>> weight = Draw(1).glorot(100, 20)
    >>> weight.shape, bool(weight.abs().max() <= math.sqrt(6 / 120))
    (torch.Size([100, 20]), True)
    """

    def __init__(self, *seed: int, most: float = math.inf) -> None:
        self.seed = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1)
        self._generator = torch.Generator().manual_seed(self.seed)
        self._left = most  # numbers that may be drawn

    def uniform(self, *shape: int, bound: float) -> Tensor:
        """Draw uniformly between ``-bound`` and ``bound``."""
        return self._empty(shape).uniform_(-bound, bound, generator=self._generator)

    def normal(self, *shape: int, deviation: float) -> Tensor:
        """Draw from a normal distribution with mean 0."""
        return self._empty(shape).normal_(0, deviation, generator=self._generator)

    def _empty(self, shape: tuple[int, ...]) -> Tensor:
        self._left -= math.prod(shape)
        if self._left < 0:
            raise ValueError("the parameters are more than allowed")
        return torch.empty(shape)

    def glorot(self, inputs: int, outputs: int, gain: float = 1.0) -> Tensor:
        """Draw a weight from Glorot's uniform distribution."""
        return self.uniform(inputs, outputs, bound=gain * math.sqrt(6 / max(inputs + outputs, 1)))

    def linear(self, inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
        """Draw weight and bias as torch's linear layer does."""
        bound = 1 / math.sqrt(max(inputs, 1))
        return self.uniform(inputs, outputs, bound=bound), self.uniform(outputs, bound=bound)


def carry_over(old: Parameters, fresh: Parameters) -> Parameters:
    """Return new parameters with the old values in them: only rows and columns beyond the old shape stay new.

    Examples
    --------
    >>> carry_over({"bias": torch.ones(2)}, {"bias": torch.zeros(3)})
    {'bias': tensor([1., 1., 0.])}
    """
    fix = "keep the model's settings, or start a new learner"
    if old.keys() != fresh.keys():
        raise InputError(f"the parameters were {', '.join(old)} and are now {', '.join(fresh)}", fix=fix)
    grown = {}
    for name, value in fresh.items():
        before = old[name]
        if before.dim() != value.dim() or any(a > b for a, b in zip(before.shape, value.shape, strict=True)):
            shapes = f"had the shape {tuple(before.shape)} and now has {tuple(value.shape)}"
            raise InputError(f"parameter {name!r} {shapes}", fix=fix)
        value = value.to(before.device, copy=True)
        value[tuple(slice(size) for size in before.shape)] = before.detach()
        grown[name] = value
    return grown


def count_parameters(model: Model, inputs: int, outputs: int) -> int:
    """Return the number of trained parameters of a model for a number of features and classes.

    Examples
    --------
    >>> from evergraph.nn import GraphSAGE
    >>> count_parameters(GraphSAGE(hidden=32), inputs=2_278, outputs=12)
    146648
    """
    drawn = model.parameters(inputs, outputs, Draw(0))
    return sum(value.numel() for name, value in drawn.items() if model.trained(name))


def widths(inputs: int, hidden: int, layers: int, outputs: int) -> list[tuple[int, int]]:
    """Return inputs and outputs of each layer, such as ``[(100, 32), (32, 32), (32, 7)]``."""
    if layers > _MOST_LAYERS:
        raise InputError(f"layers is {layers}", fix=f"set layers to at most {_MOST_LAYERS:,}")
    return list(itertools.pairwise([inputs, *[hidden] * (layers - 1), outputs]))


@dataclass(frozen=True, eq=False)
class ActiveFeatures:
    """Parameters and input of a task, reduced to the features (``columns``) that its vertices have.

    The weights of a word that no vertex has receive no gradient. A new Adam for each task does not change them. After
    some years, most words of a vocabulary are not in the window, so this halves the time of a step.
    """

    weights: Parameters
    batch: Batch
    columns: Tensor
    narrowed: tuple[str, ...]

    def merge_into(self, whole: Parameters) -> Parameters:
        """Return all parameters: the trained ones, and from ``whole`` the rows that were left out."""
        merged = dict(self.weights)
        for name in self.narrowed:
            merged[name] = whole[name].index_copy(0, self.columns, self.weights[name])
        return merged


def active_features(model: Model, weights: Parameters, batch: Batch) -> ActiveFeatures | None:
    """Return the part of a task that training can change; None if that is all of it."""
    names = model.input_weights()
    if not names or isinstance(batch.x, Tensor):
        return None
    stored = batch.x.sparse if isinstance(batch.x, MixedMatrix) else batch.x
    pattern, before = stored.pattern, batch.x.shape[1] - stored.shape[1]
    columns, indices = torch.unique(pattern.indices, return_inverse=True)
    if len(columns) == pattern.columns:
        return None
    # The columns stay in order: on one thread no sum changes (on several, fewer columns may be split differently).
    pattern = replace(pattern, indices=indices.to(pattern.indices.dtype), columns=len(columns))
    stored = replace(stored, pattern=pattern)
    x = MixedMatrix(batch.x.dense, stored) if isinstance(batch.x, MixedMatrix) else stored
    columns = torch.cat([torch.arange(before, device=columns.device), columns.long() + before])
    part = {name: value[columns] if name in names else value for name, value in weights.items()}
    return ActiveFeatures(part, replace(batch, x=x), columns, names)
