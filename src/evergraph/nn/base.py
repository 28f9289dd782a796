"""The contract of models: draw parameters of a given size, and compute outputs from parameters and a graph.

Models do not hold weights. The learner holds them, in a plain dict, so that it can keep, redraw, grow and save them
without the model's help.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.errors import InputError
from evergraph.names import DEFAULT_MODEL, build_model
from evergraph.nn.ops import Kernels, Matrix, Neighbours, Noise, linear, mean_beside, used_columns

if TYPE_CHECKING:
    from evergraph.nn.sampling import Edges, LocalGraph

__all__ = [
    "ActiveFeatures",
    "Batch",
    "Draw",
    "Labels",
    "LayeredModel",
    "Model",
    "Parameters",
    "Readout",
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
    sizes
        Number of vertices up to each hop from the rows, from 0 hops up, if the others are only neighbours of them. A
        `LayeredModel` then computes its lower layers for the vertices that the upper ones read.
    """

    x: Matrix
    graph: Neighbours
    rows: int
    targets: Tensor
    weights: Tensor | None = None
    sizes: tuple[int, ...] | None = None

    @cached_property
    def labelled(self) -> Tensor:
        """Rows that are part of the loss."""
        return torch.nonzero(self.targets >= 0).flatten()


@dataclass(frozen=True, eq=False)
class Readout:
    """The last step of a model: logits are a linear map of vectors. A loss can be computed without storing them.

    Parameters
    ----------
    vectors
        One row per vertex.
    weight, bias
        The linear map. Without a weight, the vectors are the logits.
    hidden
        The vectors below the output layer, which detectors read, of the vertices that have logits.
    rows
        The vertices whose logits are meant; None for all.
    graph
        If given, the map is of each vector and, beside it, the mean of the neighbours' vectors.
    """

    vectors: Tensor
    weight: Tensor | None
    bias: Tensor | None
    hidden: Tensor
    rows: Tensor | None = None
    graph: Neighbours | None = None

    def __len__(self) -> int:
        if self.rows is not None:
            return len(self.rows)
        return len(self.vectors if self.graph is None else self.hidden)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of vertices and of classes."""
        return len(self), (self.vectors if self.weight is None else self.weight).shape[1]

    @property
    def logits(self) -> Tensor:
        """Logits, one row per vertex and one column per class."""
        found = self.vectors if self.graph is None else mean_beside(self.graph, self.vectors, len(self.hidden))
        found = found if self.rows is None else found.index_select(0, self.rows)
        return found if self.weight is None else linear(found, self.weight, self.bias)


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of a task, for parameters in closed form (`Model.closed_form`, `Model.finish`).

    Parameters
    ----------
    counts
        Number of labelled vertices of each class in the window.
    time
        Period of the task.
    targets
        Column of the class of each vertex, the oldest first: for `Model.closed_form` of those whose label the
        parameters do not contain yet, for `Model.finish` of all training vertices with a label.
    times
        Periods of these vertices.
    vectors
        Returns the hidden vectors of some of them, given by their places in ascending order, with the parameters that
        the method is given.
    batch
        Returns the features of some of them, which are the rows of the batch, and of all their neighbours. For
        `Model.closed_form` only.
    """

    counts: Tensor
    time: int
    targets: NDArray[np.int64]
    times: NDArray[np.int64]
    vectors: Callable[[NDArray[np.integer]], Tensor]
    batch: Callable[[NDArray[np.integer]], Batch] | None = None


class Model(ABC):
    """The contract of all models; subclasses are frozen dataclasses of their settings.

    A model of layers should be a `LayeredModel`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Train a model by its own `forward` if a subclass of another model overrides only that."""
        super().__init_subclass__(**options)
        if "forward" in vars(cls) and "readout" not in vars(cls):
            cls.readout = Model.readout  # type: ignore[method-assign]

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

    def readout(self, p: Parameters, batch: Batch, noise: Noise | None) -> Readout:
        """Return what the logits are computed from; by default, the logits themselves."""
        logits, hidden = self.forward(p, batch, noise)
        return Readout(logits, None, None, hidden)

    def batches(self, batch: Batch, rng: np.random.Generator) -> Iterator[Batch]:  # noqa: ARG002  # sampling needs it
        """Return the input of each training step, without end; by default always the whole batch."""
        return itertools.repeat(batch)

    def closed_form(self, p: Parameters, labels: Labels) -> Parameters:
        """Return parameters computed from those before and a task's labels, for a model without training steps.

        Like the weights of a warm restart, the parameters before are those of the last task, grown with new features
        and classes; the first time, and in a cold restart, they are new. Vectors must not depend on what this method
        changes, and the model must say how many `hops` it reads.
        """
        raise NotImplementedError(f"{type(self).__name__} is trained in steps")

    def finish(self, p: Parameters, labels: Labels) -> Parameters:  # noqa: ARG002  # few need the labels
        """Return the parameters after the training steps of a task; by default they stay as they are.

        A model may set parameters here that no step trains (`trained`), from the vectors of its `predictor`, which must
        not depend on them.
        """
        return p

    @property
    def solved(self) -> bool:
        """Whether `closed_form` computes the parameters; otherwise they are trained in steps."""
        return type(self).closed_form is not Model.closed_form

    @property
    def hops(self) -> int | None:
        """Number of hops from which an output reads vertices; None if it may read the whole graph."""
        return None

    @property
    def samples(self) -> bool:
        """Whether `batches` returns samples, so that several workers can share a window."""
        return type(self).batches is not Model.batches

    @property
    def predictor(self) -> Model:
        """The model that predicts with the same parameters; by default this one.

        Another one is needed if prediction differs from training in more than noise. Losses and regularisers read the
        outputs of this one, detectors those of the predictor.
        """
        return self

    @property
    def encoder(self) -> Model:
        """The model whose vectors `closed_form` and `finish` read; by default the predictor."""
        return self.predictor

    def subgraphs(
        self,
        edges: Edges,  # noqa: ARG002  # sampling needs these
        labelled: NDArray[np.integer],  # noqa: ARG002
        most: int,  # noqa: ARG002
        device: torch.device,  # noqa: ARG002
        kernels: Kernels,  # noqa: ARG002
    ) -> Callable[[np.random.Generator], LocalGraph] | None:
        """Return what draws a sample of at most so many vertices from edges that may not fit into memory.

        None, the default, leaves the sampling of neighbours to the learner.
        """
        return None

    def step_memory(self, inputs: int, outputs: int) -> tuple[float, float]:
        """Return about how many bytes a training step takes for each vertex and for each of its neighbours.

        By default each layer has its result, the result after the activation, and the gradients of both.
        """
        drawn = self.parameters(inputs, outputs, Draw(0))
        width = sum(math.prod(value.shape[1:]) for value in drawn.values() if value.dim() > 1)
        return 16.0 * width, 0.0

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


class LayeredModel(Model):
    """A model of hidden layers and an output layer, each of which reads its vertices and their neighbours.

    Each layer can be computed for some vertices at a time, so prediction works on graphs larger than memory. Subclasses
    define the layers, not `forward`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        if "forward" in vars(cls):
            raise TypeError(
                f"{cls.__name__} overrides forward, but is computed by its layers: override hidden_layer and "
                "output_layer, or derive it from Model"
            )
        super().__init_subclass__(**options)

    @property
    @abstractmethod
    def hidden_layers(self) -> int:
        """Number of layers below the output layer."""

    @property
    def local_output(self) -> bool:
        """Whether the output layer reads only the vertex itself, not its neighbours."""
        return False

    @property
    def hops(self) -> int:
        return self.hidden_layers + (not self.local_output)

    @abstractmethod
    def hidden_layer(
        self, p: Parameters, number: int, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None
    ) -> Tensor:
        """Return the result of a hidden layer, from 0 up, for the first ``rows`` vertices.

        ``h`` is the result of the layer below for all vertices of the graph; that of layer 0 are the features.
        """

    @abstractmethod
    def output_layer(self, p: Parameters, h: Matrix, graph: Neighbours, rows: int, noise: Noise | None) -> Readout:
        """Return the readout of the first ``rows`` vertices, from the results of the layer below."""

    def readout(self, p: Parameters, batch: Batch, noise: Noise | None) -> Readout:
        h: Matrix = batch.x
        for number in range(self.hidden_layers):
            last = number == self.hidden_layers - 1
            rows = batch.rows if last and self.local_output else len(batch.graph)
            if batch.sizes is not None:
                rows = batch.sizes[max(self.hops - 1 - number, 0)]
            h = self.hidden_layer(p, number, h, batch.graph, rows, noise)
        return self.output_layer(p, h, batch.graph, batch.rows, noise)

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        found = self.readout(p, batch, noise)
        return found.logits, found.hidden


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

    def signs(self, rows: int, columns: int) -> Tensor:
        """Draw -1 or 1, each with probability one half, in a byte each."""
        self._count(rows * columns)
        # A byte has eight of them, so that one for each of many features takes little time.
        drawn = torch.randint(256, (rows, -(-columns // 8)), generator=self._generator, dtype=torch.uint8).numpy()
        bits = np.unpackbits(drawn, axis=1, count=columns).view(np.int8)
        return torch.from_numpy(2 * bits - 1)

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return zeros; they count as drawn numbers, so that an edited file cannot ask for any number of them."""
        self._count(math.prod(shape))
        return torch.zeros(shape, dtype=dtype)

    def _empty(self, shape: tuple[int, ...]) -> Tensor:
        self._count(math.prod(shape))
        return torch.empty(shape)

    def _count(self, numbers: int) -> None:
        self._left -= numbers
        if self._left < 0:
            raise ValueError("the parameters are more than allowed")

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
    batch: Any
    columns: Tensor
    narrowed: tuple[str, ...]

    @classmethod
    def of(
        cls, model: Model, weights: Parameters, batch: Any, columns: Tensor | NDArray[np.int64], before: int
    ) -> ActiveFeatures:
        """Return the part for a batch that has only some of the columns, which are counted after ``before`` others."""
        names = model.input_weights()
        device = weights[names[0]].device
        after = torch.as_tensor(columns, device=device).long() + before
        all_columns = torch.cat([torch.arange(before, device=device), after])
        part = {name: value[all_columns] if name in names else value for name, value in weights.items()}
        return cls(part, batch, all_columns, names)

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
    x, columns = used_columns(batch.x)
    return None if x is batch.x else ActiveFeatures.of(model, weights, replace(batch, x=x), columns, 0)
