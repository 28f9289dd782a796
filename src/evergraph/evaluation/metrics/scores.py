"""All figures of one task, and their summary over the tasks and seeds of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evergraph.errors import InputError
from evergraph.evaluation.metrics._arrays import check_aligned, mask, mean_known, names, numbers
from evergraph.evaluation.metrics.classification import accuracy, macro_f1, open_macro_f1
from evergraph.evaluation.metrics.detection import Confusion, aupr, auroc, fpr_at_95, oracle_mcc
from evergraph.evaluation.metrics.intervals import over_seeds, pooled
from evergraph.graph.classes import UNSEEN

__all__ = ["Summary", "TaskScores", "score_task", "summarise"]


@dataclass(frozen=True)
class TaskScores:
    """The figures of one task over its labelled test vertices; NaN where a figure is undefined.

    A vertex can be unseen in two ways: its class is unknown to the learner, or its class was never before in the graph.
    They differ where labels are missing or old ones were forgotten. Figures are of the former unless named otherwise.

    Parameters
    ----------
    vertices
        Number of labelled test vertices.
    accuracy
        Of the best known class over all vertices; for a vertex of an unseen class it cannot be right.
    id_accuracy
        The same over the vertices whose class the learner knows.
    macro_f1
        Of the best known class over all vertices.
    open_f1
        Macro F1 of the decisions, `UNSEEN` among them: see `open_macro_f1`.
    rejected
        Share of the vertices that is rejected.
    confusion, auroc, aupr, fpr95, oracle_mcc
        Rejection and score against the classes that the learner does not know.
    confusion_never_before, auroc_never_before, open_f1_never_before
        The same against the classes that were never before in the graph.

    Examples
    --------
    >>> scores = score_task(["x", "y"], ["x", "x"], ["x", "unseen"], [0.1, 0.9], [False, True], [False, True])
    >>> scores.accuracy, scores.open_f1, scores.confusion.mcc
    (0.5, 1.0, 1.0)
    >>> TaskScores.from_dict(scores.as_dict()) == scores
    True
    """

    vertices: int
    accuracy: float
    id_accuracy: float
    macro_f1: float
    open_f1: float
    rejected: float
    confusion: Confusion
    auroc: float
    aupr: float
    fpr95: float
    oracle_mcc: float
    confusion_never_before: Confusion
    auroc_never_before: float
    open_f1_never_before: float

    def as_dict(self) -> dict[str, int | float | None]:
        """Flat and fit for JSON: None for NaN, and each confusion as ``tp``, ``tn``, ``fp``, ``fn`` with its suffix."""
        flat: dict[str, int | float | None] = {}
        for name, value in vars(self).items():
            if isinstance(value, Confusion):
                flat |= {count + name.removeprefix("confusion"): number for count, number in vars(value).items()}
            else:
                flat[name] = _or_none(value)
        return flat

    @classmethod
    def from_dict(cls, flat: Mapping[str, Any]) -> TaskScores:
        """The inverse of `as_dict`; other keys are passed over, so a row of a larger table will do."""
        values: dict[str, Any] = {}
        try:
            for name in (field.name for field in fields(cls)):
                if name.startswith("confusion"):
                    suffix = name.removeprefix("confusion")
                    values[name] = Confusion(**{count.name: flat[count.name + suffix] for count in fields(Confusion)})
                else:
                    values[name] = math.nan if flat[name] is None else flat[name]
        except KeyError as key:
            raise InputError(f"the scores of a task lack {key}", fix="pass all that as_dict gave") from None
        return cls(**values)


def score_task(
    truth: ArrayLike,
    argmax: ArrayLike,
    decided: ArrayLike,
    score: ArrayLike,
    unseen: ArrayLike,
    never_before: ArrayLike,
) -> TaskScores:
    """All figures of one task, from arrays over its labelled test vertices (none at all will do).

    Parameters
    ----------
    truth
        Class name by vertex.
    argmax
        Name of the best known class, before any rejection.
    decided
        Name of the class decided on, `UNSEEN` where rejected.
    score
        Higher is more unseen.
    unseen
        Whether the learner does not know the class.
    never_before
        Whether the class was never before in the graph.

    Examples
    --------
    >>> scores = score_task(
    ...     truth=["KDD", "ICML", "WWW"],
    ...     argmax=["KDD", "KDD", "KDD"],
    ...     decided=["KDD", "unseen", "unseen"],
    ...     score=[0.1, 0.6, 0.9],
    ...     unseen=[False, False, True],
    ...     never_before=[False, False, False],
    ... )
    >>> scores.id_accuracy, scores.auroc, scores.confusion, scores.auroc_never_before
    (0.5, 1.0, Confusion(tp=1, tn=1, fp=1, fn=0), nan)
    """
    true, best, said = names(truth), names(argmax), names(decided)
    values, new, never = numbers(score), mask(unseen), mask(never_before)
    check_aligned(true, best, said, values, new, never)
    rejected = np.equal(said, UNSEEN).astype(np.bool_)
    return TaskScores(
        vertices=len(true),
        accuracy=accuracy(true, best),
        id_accuracy=accuracy(true[~new], best[~new]),
        macro_f1=macro_f1(true, best),
        open_f1=open_macro_f1(true, said, new),
        rejected=float(rejected.mean()) if len(true) else math.nan,
        confusion=Confusion.of(rejected, new),
        auroc=auroc(values, new),
        aupr=aupr(values, new),
        fpr95=fpr_at_95(values, new),
        oracle_mcc=oracle_mcc(values, new),
        confusion_never_before=Confusion.of(rejected, never),
        auroc_never_before=auroc(values, never),
        open_f1_never_before=open_macro_f1(true, said, never),
    )


class Summary(TypedDict):
    """One figure over the seeds of a run, fit for JSON: None stands for what is undefined.

    ``mean`` is the mean over seeds and ``ci95`` the half width of its interval (`over_seeds`), ``per_seed`` has the
    seeds in the order they were given. ``pooled_ci95``, of the accuracy only, is the paper's half width (`pooled`).

    Examples
    --------
    >>> Summary(mean=0.5, ci95=None, per_seed=[0.5])
    {'mean': 0.5, 'ci95': None, 'per_seed': [0.5]}
    """

    mean: float | None
    ci95: float | None
    per_seed: list[float | None]
    pooled_ci95: NotRequired[float | None]


def summarise(tasks_by_seed: Mapping[int, Sequence[TaskScores]]) -> dict[str, Summary]:
    """Each figure as its mean over tasks in each seed, and then over seeds.

    Tasks count alike, however many vertices they have; a task where a figure is undefined is left out of it. ``mcc`` is
    one MCC a seed, of the confusions summed over tasks, as the paper's text has it; ``mcc_per_task`` is the mean over
    tasks of one MCC each, where a task without unseen vertices counts as 0. Both come with ``_never_before`` as well.

    Parameters
    ----------
    tasks_by_seed
        The scores of the tasks, by seed; each seed has the same tasks.

    Examples
    --------
    >>> right = score_task(["x"], ["x"], ["x"], [0.0], [False], [False])
    >>> wrong = score_task(["y"], ["x"], ["x"], [0.0], [False], [False])
    >>> summarise({0: [right, right], 1: [right, wrong]})["accuracy"]["per_seed"]
    [1.0, 0.5]
    """
    runs = list(tasks_by_seed.values())
    shape = (len(runs), len(runs[0]) if runs else 0)
    if any(len(tasks) != shape[1] for tasks in runs):
        told = ", ".join(f"{len(tasks)} of seed {seed}" for seed, tasks in tasks_by_seed.items())
        raise InputError(f"seeds differ in their tasks: {told}", fix="finish the run, or leave the shorter seeds out")

    def table(figures: list[list[float]]) -> NDArray[np.float64]:
        return np.array(figures, np.float64).reshape(shape)

    found: dict[str, Summary] = {}
    for field in fields(TaskScores):
        if field.name.startswith("confusion"):
            suffix = field.name.removeprefix("confusion")
            confusions: list[list[Confusion]] = [[getattr(task, field.name) for task in tasks] for tasks in runs]
            found["mcc" + suffix] = _summary([sum(tasks, Confusion()).mcc for tasks in confusions])
            each = table([[confusion.mcc for confusion in tasks] for tasks in confusions])
            found["mcc_per_task" + suffix] = _summary(mean_known(each, axis=1))
        elif field.name != "vertices":
            each = table([[getattr(task, field.name) for task in tasks] for tasks in runs])
            found[field.name] = _summary(mean_known(each, axis=1))
            if field.name == "accuracy":
                found["accuracy"]["pooled_ci95"] = _or_none(pooled(each).half)
    return found


def _summary(per_seed: ArrayLike) -> Summary:
    values = np.asarray(per_seed, np.float64)
    interval = over_seeds(values)
    return Summary(
        mean=_or_none(interval.mean),
        ci95=_or_none(interval.half),
        per_seed=[_or_none(value) for value in values.tolist()],
    )


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
