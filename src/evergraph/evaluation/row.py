"""One line of a run's results: a task under a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from evergraph.errors import InputError
from evergraph.evaluation.metrics import TaskScores

__all__ = ["TaskRow"]

_WHOLE = {"seed", "window_vertices", "train_vertices", "test_vertices", "known_classes", "vertices"}
_WHOLE |= {count + truth for count in ("tp", "tn", "fp", "fn") for truth in ("", "_never_before")}
_OTHER = {"time": (int, str), "history": (int, str), "new_classes": (list,), "seconds_adapt": (float, int)}
_OTHER["seconds_predict"] = _OTHER["seconds_adapt"]


@dataclass(frozen=True)
class TaskRow:
    """What came of one task under one seed.

    Parameters
    ----------
    seed, time
        Which; the time as the graph's axis writes it.
    history
        Number of times before it that were seen, or ``"full"``.
    window_vertices, train_vertices, test_vertices
        Vertices in sight, those with a label to learn from, and those that were asked for.
    known_classes
        Number of classes that the learner knew once it had adapted.
    new_classes
        Names of those that it learnt in this task.
    scores
        How good the decisions were.
    lr, loss
        Learning rate and last loss of the last training; None for a model that needs none.
    seconds_adapt, seconds_predict
        Time it took.

    Examples
    --------
    >>> from evergraph.evaluation.metrics import score_task
    >>> scores = score_task(["x"], ["x"], ["x"], [0.0], [False], [False])
    >>> row = TaskRow(0, 2004, 3, 30, 20, 10, 1, ("x",), scores, 0.01, 0.7, 1.5, 0.2)
    >>> row.as_dict()["accuracy"], row.seconds, TaskRow.from_dict(row.as_dict()) == row
    (1.0, 1.7, True)
    """

    seed: int
    time: int | str
    history: int | str
    window_vertices: int
    train_vertices: int
    test_vertices: int
    known_classes: int
    new_classes: tuple[str, ...]
    scores: TaskScores
    lr: float | None
    loss: float | None
    seconds_adapt: float
    seconds_predict: float

    @property
    def seconds(self) -> float:
        """Time of training and prediction."""
        return self.seconds_adapt + self.seconds_predict

    def as_dict(self) -> dict[str, Any]:
        """Flat and fit for JSON; ``vertices`` and all that follows it up to the learning rate are the scores."""
        found: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            found |= value.as_dict() if isinstance(value, TaskScores) else {field.name: value}
        return found | {"new_classes": list(self.new_classes)}

    @classmethod
    def from_dict(cls, flat: Mapping[str, Any]) -> TaskRow:
        """The inverse of `as_dict`; refuses what it cannot have given."""
        scores = TaskScores.from_dict(flat)
        names = [field.name for field in fields(cls) if field.name != "scores"]
        if missing := [name for name in names if name not in flat]:
            raise InputError(f"the row lacks {', '.join(missing)}", fix="pass all that as_dict gave")
        for name, value in flat.items():
            kinds = _OTHER.get(name) or ((int,) if name in _WHOLE else (int, float, type(None)))
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise InputError(f"{name} is {value!r} in the row", fix="pass what as_dict gave")
        values = {name: flat[name] for name in names}
        return cls(**(values | {"new_classes": tuple(flat["new_classes"]), "scores": scores}))
