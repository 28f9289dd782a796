"""The parameters of a model for a task: trained in steps, or computed in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.detect.base import Detector, State
from evergraph.graph import ids as id_columns
from evergraph.graph.hashed import id_codes
from evergraph.learning.data_parallel import DataParallel
from evergraph.learning.inference import BlockSizes, exact_outputs
from evergraph.learning.minibatch import MiniBatches
from evergraph.learning.regularise import Lesson, Regulariser
from evergraph.learning.task import Task
from evergraph.learning.training import OnStep, train
from evergraph.nn import Batch, Draw, Labels, Model, carry_over
from evergraph.nn.adam import Adam
from evergraph.nn.base import ActiveFeatures, Parameters, active_features

__all__ = ["Counted", "TrainingData", "solved_parameters", "trained_parameters"]

_MORE_STEPS, _MOST_STEPS = 4, 10  # times as many with mini-batches; 4 was chosen on metamath (scripts/minibatch.py)


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What the parameters for a task are computed from.

    Parameters
    ----------
    task
        The task.
    kept
        Rows in the graph of the vertices older than the window, which come first.
    batch
        The window, or its mini-batches.
    counts
        Number of labelled vertices of each class.
    inputs
        Number of columns of the features.
    blocks
        Sizes of the blocks in which outputs are computed; None for a window that is trained as a whole.
    seed
        Seed of the learner and number of the task.
    device, kernels
        Where and how to compute.
    """

    task: Task
    kept: NDArray[np.int64]
    batch: Batch | MiniBatches
    counts: Tensor
    inputs: int
    blocks: BlockSizes | None
    seed: tuple[int, int]
    device: torch.device
    kernels: Literal["numba", "torch"]

    @property
    def labelled(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places of the vertices with a label in the window, kept ones included, and their rows in the graph."""
        targets, training = self.columns, self.task.training.rows
        places = np.flatnonzero(targets >= 0)
        return places, np.concatenate([self.kept, np.arange(training.start, training.stop)])[places]

    @property
    def columns(self) -> NDArray[np.int64]:
        """Column of the class of each vertex, -1 without a label, up to the last one that has a label."""
        found = self.batch.targets.cpu() if isinstance(self.batch, Batch) else self.batch.targets
        return np.asarray(found, np.int64)

    def start(self, model: Model, before: Parameters | None) -> Parameters:
        """Return new parameters, with the values of those before in them."""
        fresh = model.parameters(self.inputs, len(self.counts), Draw(*self.seed))
        weights = {name: value.to(self.device) for name, value in fresh.items()}
        return weights if before is None else carry_over(before, weights)

    def labels(self, model: Model, weights: Parameters, places: NDArray[np.int64], rows: NDArray[np.int64]) -> Labels:
        """Return the labels of some labelled vertices. Their vectors are computed when they are read."""

        @cache
        def of_window(batch: Batch) -> Tensor:
            with torch.no_grad():
                return model.encoder.forward(weights, batch, None)[1]

        def vectors(some: NDArray[np.integer]) -> Tensor:
            if isinstance(self.batch, Batch):
                return of_window(self.batch)[torch.as_tensor(places[some], device=self.device)]
            return exact_outputs(model.encoder, weights, self.batch.source, places[some], self.blocks)[1]

        targets, times = self.columns[places], self.task.graph.times[rows]
        if isinstance(self.batch, Batch):
            return Labels(self.counts, self.task.time, targets, times, vectors)
        source = self.batch.source
        return Labels(
            self.counts, self.task.time, targets, times, vectors, lambda some: source.neighbourhood(places[some], 1)
        )


def trained_parameters(
    data: TrainingData,
    model: Model,
    detector: Detector,
    before: Parameters | None,
    *,
    lr: float,
    steps: int,
    weight_decay: float = 0.0,
    trainer: DataParallel | None = None,
    on_step: OnStep | None = None,
    regulariser: Regulariser | None = None,
    state: State | None = None,
    known: int = 0,
) -> tuple[Parameters, list[float], State]:
    """Return parameters trained with a detector's loss, the loss of each step, and the regulariser's state.

    ``before`` are the parameters to start from and ``state`` what the regulariser returned with them; None for new
    random ones. The first ``known`` classes are those that the model knew before.
    """
    weights, batch = data.start(model, before), data.batch
    # Without weight decay, weights without a gradient stay as they are: train only those that are used.
    part = _active(model, weights, batch) if weight_decay == 0 and regulariser is None else None
    changing, read = (weights, batch) if part is None else (part.weights, part.batch)
    trained = [value for name, value in changing.items() if model.trained(name)]
    adam = Adam(trained, lr, weight_decay=weight_decay, kernels=data.kernels)
    after = on_step
    if isinstance(batch, MiniBatches) and batch.model is None:
        # One pass over the labelled vertices, if that is neither too few steps nor too expensive.
        more = min(max(_MORE_STEPS * steps, batch.per_epoch), _MOST_STEPS * steps)
        after = None if on_step is None else partial(_scaled_step, on_step, steps / more)
        steps = more
    given = (model, detector, changing, read, data.counts)
    options: dict[str, Any] = {"optimiser": adam, "steps": steps, "seed": data.seed, "on_step": after}
    if regulariser is None:
        losses, state = (train if trainer is None else trainer.train)(*given, **options), {}
        weights = weights if part is None else part.merge_into(weights)
    else:
        lesson = Lesson(
            *given, data.seed, before, 0 if before is None else known, len(data.kept), data.task.graph.times[data.kept]
        )
        past = {} if before is None or state is None else state
        losses = train(*given, **options, hook=regulariser.start(lesson, past))
        state = regulariser.finish(lesson, past)
    return model.finish(weights, data.labels(model, weights, *data.labelled)), losses, state


@dataclass(frozen=True, eq=False)
class Counted:
    """The vertices whose labels the parameters of a model in closed form contain.

    Parameters
    ----------
    codes
        Codes of their ids, ascending. Rows would change if vertices are removed.
    columns
        Column of the class with which each is counted.
    """

    codes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    columns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def holds(self, codes: NDArray[np.int64], columns: NDArray[np.int64]) -> bool:
        """Whether each counted vertex is among the given ones, with the same class."""
        order = np.argsort(codes)
        place = np.minimum(np.searchsorted(codes, self.codes, sorter=order), len(codes) - 1)
        found = order[place]
        return bool((codes[found] == self.codes).all() and (columns[found] == self.columns).all())

    def with_new(self, codes: NDArray[np.int64], columns: NDArray[np.int64]) -> Counted:
        """Return them together with new ones; a vertex that is counted already keeps its class."""
        both, first = np.unique(np.concatenate([self.codes, codes]), return_index=True)
        return Counted(both, np.concatenate([self.columns, columns])[first])


def solved_parameters(
    data: TrainingData, model: Model, before: Parameters | None, counted: Counted, unused_from: int
) -> tuple[Parameters, Counted]:
    """Return parameters in closed form, and the vertices whose labels they contain.

    A label is new if its vertex was in no earlier task with a label, so labels that arrive late, but within the
    history, count once, too. If the newest slices were rolled back, those that take their place, from the period
    ``unused_from`` on, are new. If the history is the whole past and a label that was counted has changed or is gone,
    all are counted again.
    """
    places, rows = data.labelled
    codes, columns = id_codes(id_columns.take(data.task.graph.ids, rows)), data.columns[places]
    if before is None or (data.task.training.rows.start == 0 and not counted.holds(codes, columns)):
        before, counted = None, Counted()
    new = (data.task.graph.times[rows] >= unused_from) | ~np.isin(codes, counted.codes)
    weights = data.start(model, before)
    found = model.closed_form(weights, data.labels(model, weights, places[new], rows[new]))
    return found, counted.with_new(codes[new], columns[new])


def _active(model: Model, weights: Parameters, batch: Batch | MiniBatches) -> ActiveFeatures | None:
    """The part of a task that training can change; None if that is all of it."""
    if isinstance(batch, Batch):
        return active_features(model, weights, batch)
    reader = batch.source.reader
    columns, before = reader.used(batch.source.window.rows, batch.source.kept), reader.vocabulary.dense
    if not model.input_weights() or len(columns) == reader.vocabulary.width - before:
        return None
    return ActiveFeatures.of(model, weights, batch.with_reader(replace(reader, only=columns)), columns, before)


def _scaled_step(on_step: OnStep, scale: float, step: int, loss: float) -> None:
    on_step(math.ceil(step * scale), loss)
