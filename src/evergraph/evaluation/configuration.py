"""The configuration of a run: model, detector and learning settings; and helpers that describe and compare settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from evergraph.errors import InputError
from evergraph.names import DEFAULT_DETECTOR, DEFAULT_MODEL, build_detector, build_model, described

if TYPE_CHECKING:
    from evergraph.detect import Detector
    from evergraph.graph.evolving import EvolvingGraph, TextMode
    from evergraph.graph.times import TimeAxis
    from evergraph.learning.learner import LifelongLearner, Restart
    from evergraph.learning.memory import MemoryPolicy
    from evergraph.learning.regularise import Regulariser
    from evergraph.learning.task import History, Mode, Task
    from evergraph.nn import Model

__all__ = ["TRAINING_SETTINGS", "Configuration", "complete_settings", "differences", "flat", "seed_ranges"]


@dataclass(frozen=True)
class Configuration:
    """All settings of a run except the graph and the seeds.

    Parameters
    ----------
    model, detector, restart, steps, lr, weight_decay, text, inputs, memory, regulariser,
    retire_after
        See `LifelongLearner`.
    history, first, label_rate, mode, label_latency
        See `tasks`.
    workers
        Number of workers that train each window with Ray (`DataParallel`); 1 trains without Ray. The numbers depend on
        it.
    device
        Device to compute on, as in `LifelongLearner`. It is a property of the machine: neither descriptions nor
        comparisons of configurations contain it.
    memory_limit
        As in `LifelongLearner`, and a property of the machine like the device.

    Examples
    --------
    >>> from evergraph.detect import DOC
    >>> from evergraph.graph.times import TimeAxis
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
    inputs: str | Sequence[str] = "auto"
    label_latency: int = 0
    workers: int = 1
    memory: MemoryPolicy | str | None = None
    regulariser: Regulariser | None = None
    retire_after: int | None = None
    device: str = field(default="cpu", compare=False)
    memory_limit: str | int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        from evergraph.detect import Detector
        from evergraph.nn.base import Model, not_a_model

        if not isinstance(self.model, Model):
            raise not_a_model(self.model)
        if not isinstance(self.detector, Detector):
            raise InputError(f"{self.detector!r} is not a detector", fix="pass one from evergraph.detect")
        learner = self.learner(seed=0)  # checks the other settings
        object.__setattr__(self, "inputs", learner.inputs)
        object.__setattr__(self, "memory", learner.memory)

    def tasks(self, graph: EvolvingGraph) -> Iterator[Task]:
        """Return the tasks of a graph."""
        from evergraph.learning.task import tasks

        return tasks(
            graph,
            self.history,
            first=self.first,
            label_rate=self.label_rate,
            mode=self.mode,
            label_latency=self.label_latency,
        )

    def learner(self, seed: int) -> LifelongLearner:
        """Return an untrained learner."""
        from evergraph.learning.data_parallel import DataParallel
        from evergraph.learning.learner import LifelongLearner

        trainer = DataParallel(self.workers)  # checks the number
        return LifelongLearner(
            self.model,
            self.detector,
            restart=self.restart,
            steps=self.steps,
            lr=self.lr,
            weight_decay=self.weight_decay,
            text=self.text,
            inputs=self.inputs,
            seed=seed,
            device=self.device,
            trainer=None if self.workers == 1 else trainer,
            memory_limit=self.memory_limit,
            memory=self.memory,
            regulariser=self.regulariser,
            retire_after=self.retire_after,
        )

    def described(self, axis: TimeAxis) -> dict[str, Any]:
        """Return all settings but device and memory limit as a dict for JSON; periods as the time axis writes them."""
        found = {entry.name: described(getattr(self, entry.name)) for entry in fields(self) if entry.compare}
        found["first"] = None if self.first is None else axis.value(axis.period(self.first))
        for name, value in flat(found).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{name} is {value}", fix="pass a finite number, or leave it out")
        return found


TRAINING_SETTINGS = tuple(entry.name for entry in fields(Configuration) if entry.compare and entry.name != "detector")
"""Names of all settings but the detector, the device and the memory limit."""


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings, with names like ``model.hidden``."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Describe which settings differ between a stored configuration and the current one.

    Examples
    --------
    >>> differences({"model": {"name": "sage", "hidden": 32}}, {"model": {"name": "sage", "hidden": 16}})
    'model.hidden is 32 there and 16 here'
    >>> differences({"steps": 200}, {"steps": 200, "inputs": "auto", "label_latency": 0})  # an earlier version
    'inputs is words there and auto here'
    """
    old, new = flat(complete_settings(there, here)), flat(complete_settings(here, there))
    changed = [name for name in dict.fromkeys([*new, *old]) if old.get(name) != new.get(name)]
    for part in ("model", "detector", "memory", "regulariser"):
        if f"{part}.name" in changed:  # a different model has different settings anyway
            changed = [name for name in changed if not name.startswith(f"{part}.") or name == f"{part}.name"]
    return ", ".join(
        f"{name.removesuffix('.name')} is {_word(old.get(name))} there and {_word(new.get(name))} here"
        for name in changed
    )


def complete_settings(stored: Mapping[str, Any], other: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Add the settings that an earlier version, which read words or else numbers, did not store.

    ``other`` is the configuration to compare with: on the same graph, only one of words and numbers is possible.
    """
    numbers = other is not None and other.get("inputs") == "numbers"
    return {
        "inputs": "numbers" if numbers else "words",
        "label_latency": 0,
        "workers": 1,
        "memory": None,
        "regulariser": None,
        "retire_after": None,
        **stored,
    }


def _word(value: object) -> str:
    return "not set" if value is None else str(value)


def seed_ranges(seeds: Iterable[int]) -> str:
    """Return seeds as the option ``--seeds`` takes them.

    Examples
    --------
    >>> seed_ranges([0, 1, 2, 7])
    '0-2,7'
    """
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
