"""What one run does: a model, a detector, and how they learn; everything but the graph and the seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from evergraph.detect import Detector
from evergraph.errors import InputError
from evergraph.evaluation.results import flat
from evergraph.graph.evolving import EvolvingGraph, TextMode
from evergraph.graph.times import TimeAxis
from evergraph.learning.learner import LifelongLearner, Restart
from evergraph.learning.task import History, Mode, Task, tasks
from evergraph.names import DEFAULT_DETECTOR, DEFAULT_MODEL, build_detector, build_model, described
from evergraph.nn import Model

__all__ = ["Configuration"]


@dataclass(frozen=True)
class Configuration:
    """All settings of a run.

    Parameters
    ----------
    model, detector, restart, steps, lr, weight_decay, text
        See `LifelongLearner`.
    history, first, label_rate, mode
        See `tasks`.

    Examples
    --------
    >>> from evergraph.detect import DOC
    >>> from evergraph.nn import GraphSAGE
    >>> configuration = Configuration(GraphSAGE(hidden=16), DOC(0.6), history=3)
    >>> configuration.described(TimeAxis())["detector"]
    {'name': 'doc', 'threshold': 0.6, 'alpha': None}
    """

    model: Model = field(default_factory=lambda: build_model(DEFAULT_MODEL))
    detector: Detector = field(default_factory=lambda: build_detector(DEFAULT_DETECTOR))
    history: History = "auto"
    restart: Restart = "warm"
    steps: int = 200
    lr: float | None = None
    weight_decay: float = 0.0
    first: int | str | None = None
    label_rate: float = 1.0
    mode: Mode = "transductive"
    text: TextMode = "past"

    def __post_init__(self) -> None:
        for value, kind, home in ((self.model, Model, "nn"), (self.detector, Detector, "detect")):
            if not isinstance(value, kind):
                raise InputError(f"{value!r} is no {kind.__name__.lower()}", fix=f"give one of evergraph.{home}")
        self.learner(seed=0)  # which looks at its settings

    def tasks(self, graph: EvolvingGraph) -> Iterator[Task]:
        """The tasks of a graph."""
        return tasks(graph, self.history, first=self.first, label_rate=self.label_rate, mode=self.mode)

    def learner(self, seed: int) -> LifelongLearner:
        """A learner that has not learnt anything yet."""
        return LifelongLearner(
            self.model,
            self.detector,
            restart=self.restart,
            steps=self.steps,
            lr=self.lr,
            weight_decay=self.weight_decay,
            text=self.text,
            seed=seed,
        )

    def described(self, axis: TimeAxis) -> dict[str, Any]:
        """All settings with their values, defaults too, fit for JSON; times as the axis writes them."""
        found = {entry.name: described(getattr(self, entry.name)) for entry in fields(self)}
        found["first"] = None if self.first is None else axis.value(axis.period(self.first))
        for name, value in flat(found).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{name} is {value}", fix="give a finite number, or leave it out")
        return found
