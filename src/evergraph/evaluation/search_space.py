"""What a search for settings changes, and on which tasks of a graph it judges them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from evergraph.errors import InputError
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.results import NUMERICS_VERSION
from evergraph.graph.arrays import fingerprint
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.past import past_of
from evergraph.inputs.vocabulary import blocks_of
from evergraph.learning.task import Task, history_sizes
from evergraph.learning.training import default_rate
from evergraph.names import with_settings

try:
    from optuna import distributions
except ImportError as error:
    raise InputError("Optuna is not installed", fix="run: pip install 'evergraph[tune]'") from error

__all__ = ["METRICS", "Search"]

METRICS = {"accuracy": "accuracy", "open-f1": "open_f1", "mcc": "mcc"}
"""Metrics to tune for, and their names in `Results`."""

RATES = (0.0005, 0.05)
"""Lowest and highest learning rate, on a logarithmic scale: the range of the defaults."""
HIDDEN = (16, 32, 64, 128)
"""Widths of the model, besides its own default."""
RESTARTS = ("warm", "cold")
THRESHOLDS = (0.1, 0.9)
"""Lowest and highest threshold of a detector such as gDOC."""
OBJECTIVES = ("mcc", "open-f1")
"""Objectives of the detector ``auto``."""


@dataclass(frozen=True, eq=False)
class Search:
    """What is searched, and on which tasks.

    Parameters
    ----------
    base
        The defaults: all settings that are not searched, and where the search starts.
    past
        The graph without the later periods.
    first, until
        Periods of the first and of the last task that judges trials.
    metric
        Name of the metric (`METRICS`).
    seed
        Seed of the search and of the trainings.
    """

    base: Configuration
    past: EvolvingGraph
    first: int
    until: int
    metric: str
    seed: int

    @classmethod
    def of(
        cls,
        configuration: Configuration,
        graph: EvolvingGraph,
        *,
        until: int | str | None = None,
        metric: str = "accuracy",
        seed: int = 0,
    ) -> Search:
        """Split the tasks of a graph; by default in the middle."""
        if metric not in METRICS:
            raise InputError(f"there is no metric {metric!r}", fix=f"choose one of: {', '.join(METRICS)}")
        configuration.learner(seed)  # checks the seed
        label = graph.axis.label
        # Only the periods: nothing else of the later ones is read here.
        times = [task.time for task in replace(configuration, history="full").tasks(graph)]
        if until is None and len(times) < 2:
            raise InputError(
                f"the graph has one task, {label(times[0])}, so none is left to evaluate the settings on",
                fix="choose an earlier first task, or the last period to tune on",
            )
        last = times[len(times) // 2 - 1] if until is None else graph.axis.period(until)
        if last < times[0]:
            raise InputError(
                f"the last period to tune on is {label(last)}, but the first task is {label(times[0])}",
                fix=f"choose a period from {label(times[0])} to {label(times[-1])}",
            )
        last = max(time for time in times if time <= last)
        return cls(configuration, past_of(graph, last), times[0], last, metric, seed)

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks that judge the defaults."""
        return tuple(replace(self.base, first=self.past.axis.value(self.first)).tasks(self.past))

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The parameters of the defaults."""
        task = self.tasks[0]
        model, detector = self.base.model, self.base.detector
        rate = default_rate(model, detector, warm=self.base.restart != "cold", level=task.level)
        found: dict[str, Any] = {
            "lr": self.base.lr or rate,
            "history": "full" if task.history is None else task.history,
            "restart": self.base.restart,
            "inputs": self.base.inputs,
        }
        if (hidden := getattr(getattr(model, "base", model), "hidden", None)) is not None:
            found["hidden"] = hidden
        if self.metric != "accuracy":  # which does not depend on what is flagged
            settings = {entry.name: getattr(detector, entry.name) for entry in fields(detector)}  # type: ignore[arg-type]
            if isinstance(settings.get("threshold"), float):
                found["threshold"] = settings["threshold"]
            if "objective" in settings:
                found["objective"] = settings["objective"]
        return found

    @cached_property
    def space(self) -> dict[str, distributions.BaseDistribution]:
        """The range of each parameter; it contains the default."""
        defaults = self.defaults
        found: dict[str, distributions.BaseDistribution] = {
            "lr": distributions.FloatDistribution(
                min(RATES[0], defaults["lr"]), max(RATES[1], defaults["lr"]), log=True
            )
        }
        sizes = {*history_sizes(self.past, self.first).values(), defaults["history"]} - {"full"}
        choices: dict[str, Sequence[Any]] = {
            "history": [*sorted(sizes), "full"],
            "restart": RESTARTS,
            "inputs": ["auto", *self._inputs()],
            "hidden": HIDDEN,
            "objective": OBJECTIVES,
        }
        for name, values in choices.items():
            listed = [*values, *([] if defaults.get(name) in values else [defaults.get(name)])]
            if name in defaults and len(listed) > 1:
                found[name] = distributions.CategoricalDistribution(listed)
        if "threshold" in defaults:
            value = defaults["threshold"]
            found["threshold"] = distributions.FloatDistribution(min(THRESHOLDS[0], value), max(THRESHOLDS[1], value))
        return found

    def _inputs(self) -> list[str]:
        """Return what a model can read besides ``"auto"``: all blocks, all but classes, and words only."""
        blocks = blocks_of(self.past, "auto", classes=self.base.model.takes_classes)
        kinds = [blocks, [name for name in blocks if name != "classes"], [name for name in blocks if name == "words"]]
        return list(dict.fromkeys(",".join(kind) for kind in kinds if kind))

    @property
    def start(self) -> dict[str, Any]:
        """The parameters of the first trial."""
        return {name: self.defaults[name] for name in self.space}

    def rounded(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters with two digits of the learning rate and of the threshold, unless they are the defaults."""
        found = {name: parameters[name] for name in self.space if name in parameters}
        if found != self.start:
            found |= {name: float(f"{found[name]:.2g}") for name in ("lr", "threshold") if name in found}
        return found

    def configuration(self, parameters: Mapping[str, Any]) -> Configuration:
        """Return the settings of a trial."""
        parameters = self.rounded(parameters)
        if parameters == self.start:
            return self.base
        model, detector = self.base.model, self.base.detector
        if "hidden" in parameters:
            model = with_settings("model", model, hidden=parameters["hidden"])
        flagging = {name: parameters[name] for name in ("threshold", "objective") if name in parameters}
        return replace(
            self.base,
            model=model,
            detector=with_settings("detector", detector, **flagging) if flagging else detector,
            **{name: parameters[name] for name in ("lr", "history", "restart", "inputs") if name in parameters},
        )

    @cached_property
    def name(self) -> str:
        """Name of the study: a hash of the past of the graph and of everything that the trials depend on."""
        identity = {
            "graph": fingerprint(self.past),
            "base": self.base.described(self.past.axis),
            "space": {name: repr(values) for name, values in self.space.items()},
            "tasks": [self.first, self.until],
            "metric": self.metric,
            "seed": self.seed,
            "numerics_version": NUMERICS_VERSION,
        }
        canonical = json.dumps(identity, sort_keys=True, ensure_ascii=False)
        return f"evergraph {hashlib.sha256(canonical.encode()).hexdigest()[:16]}"
