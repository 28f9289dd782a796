"""What one run does: a model, a detector, and how they learn; everything but the graph and the seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from evergraph.detect import DETECTORS, GDOC, Detector
from evergraph.errors import InputError
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.times import TimeAxis
from evergraph.graph.window import TextMode
from evergraph.learning.describe import described
from evergraph.learning.learner import LifelongLearner, Restart
from evergraph.learning.task import History, Mode, Task, tasks
from evergraph.nn import GraphSAGE, Model
from evergraph.nn.catalogue import MODELS

__all__ = ["Configuration", "build_detector", "build_model", "differences"]


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
    >>> configuration = Configuration(GraphSAGE(hidden=16), DOC(0.6), history=3)
    >>> configuration.described(TimeAxis())["detector"]
    {'name': 'doc', 'threshold': 0.6, 'alpha': None}
    """

    model: Model = field(default_factory=GraphSAGE)
    detector: Detector = field(default_factory=GDOC)
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


def build_model(name: str, **settings: float | None) -> Model:
    """A model by its name, with some settings of its own; those that are None have their defaults.

    A model around another one, as GraphSAINT, hands on what it does not know itself.

    Examples
    --------
    >>> build_model("sgc", hops=1, hidden=None)
    SGC(hops=1)
    >>> build_model("saint", hidden=64).base
    JKNet(hidden=64, layers=2, dropout=0.5)
    >>> build_model("sgc", hidden=8)
    Traceback (most recent call last):
    evergraph.errors.InputError: the model sgc has no setting 'hidden'. To fix it: leave it out; sgc has: hops.
    """
    return _build("model", name, MODELS, settings)


def build_detector(name: str, **settings: float | None) -> Detector:
    """A detector by its name, with some settings of its own; those that are None have their defaults.

    Examples
    --------
    >>> build_detector("gdoc", alpha=3.0)
    GDOC(threshold=0.75, alpha=3.0)
    """
    return _build("detector", name, DETECTORS, settings)


def _build(what: str, name: str, catalogue: Mapping[str, type], settings: Mapping[str, float | None]) -> Any:
    if name not in catalogue:
        raise InputError(f"there is no {what} {name!r}", fix=f"choose one of {', '.join(catalogue)}")
    built: Any = catalogue[name]()
    base: Any = getattr(built, "base", None)
    own, inner = ([entry.name for entry in fields(part)] if part is not None else [] for part in (built, base))
    given = {key: value for key, value in settings.items() if value is not None}
    known = [key for key in (*own, *inner) if key != "base"]
    for key in given:
        if key not in known:
            has = f"leave it out; {name} has: {', '.join(known)}" if known else f"leave it out; {name} has no settings"
            raise InputError(f"the {what} {name} has no setting {key!r}", fix=has)
    if handed_on := {key: value for key, value in given.items() if key not in own}:
        built = replace(built, base=replace(base, **handed_on))
    return replace(built, **{key: value for key, value in given.items() if key in own})


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Which settings of two descriptions differ, in words.

    Examples
    --------
    >>> differences({"model": {"name": "sage", "hidden": 32}}, {"model": {"name": "sage", "hidden": 16}})
    'model.hidden is 32 there and 16 here'
    """
    old, new = flat(there), flat(here)
    changed = [name for name in dict.fromkeys([*new, *old]) if old.get(name) != new.get(name)]
    if "model.name" in changed:  # other settings of another model go without saying
        changed = [name for name in changed if not name.startswith("model.") or name == "model.name"]
    if "detector.name" in changed:
        changed = [name for name in changed if not name.startswith("detector.") or name == "detector.name"]
    return ", ".join(
        f"{name.removesuffix('.name')} is {_word(old.get(name))} there and {_word(new.get(name))} here"
        for name in changed
    )


def flat(described: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested description as one level, with names like ``model.hidden``."""
    found: dict[str, Any] = {}
    for name, value in described.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def _word(value: object) -> str:
    return "not set" if value is None else str(value)
