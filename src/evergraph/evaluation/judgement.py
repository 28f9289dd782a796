"""What becomes of a detector on a graph under a seed, in figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evergraph.evaluation.candidates import Contestant
from evergraph.evaluation.metrics import Confusion, TaskScores, aupr, auroc, evaluate, fpr_at_95, or_none, oracle_mcc
from evergraph.evaluation.recording import Recording
from evergraph.evaluation.replay import Judged
from evergraph.evaluation.results import aggregate
from evergraph.graph.evolving import EvolvingGraph

__all__ = ["FIGURES", "Judgement", "judge"]

FIGURES: dict[str, str] = {
    "mcc": "rejected against unseen, all tasks together",
    "mcc_per_task": "mean over tasks",
    "open_f1": "macro F1 of the decisions, 'unseen' being a class; mean over tasks",
    "auroc": "how well scores tell unseen from known classes, all tasks together",
    "auroc_per_task": "mean over tasks",
    "aupr": "average precision, all tasks together",
    "aupr_per_task": "mean over tasks",
    "fpr95": "false alarms where 95 % of the unseen are found, all tasks together",
    "fpr95_per_task": "mean over tasks",
    "oracle_mcc": "MCC of the best single line for all tasks, which nobody can know",
    "oracle_mcc_per_task": "that of the best line of each task; mean over tasks",
    "false_alarm_rate": "share of the known that is rejected, all tasks together",
    "flagged": "share of all that is rejected, all tasks together",
    "unseen": "share of all that is unseen, all tasks together",
    "id_accuracy": "of the best known class, where the learner knows the class; mean over tasks",
    "seconds_detector": "to look back, fit, score and reject; what detectors share counts for the first of them",
    "seconds_training": "with rehearsals and a second model, where the detector asks for them",
}
"""All figures and what they mean."""


@dataclass(frozen=True)
class Judgement:
    """What became of a detector on a graph under a seed.

    Parameters
    ----------
    graph, detector, seed
        Which, by name.
    figures
        See `FIGURES`; NaN where one is undefined.
    tasks
        For each task its time, all of `TaskScores` fit for JSON, and the detector's ``seconds``.
    about
        Of what: ``fingerprint``, ``settings`` (of the detector), ``configuration`` (of the training), and versions.
    """

    graph: str
    detector: str
    seed: int
    figures: Mapping[str, float]
    tasks: tuple[Mapping[str, Any], ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Fit for JSON: None for NaN."""
        return {
            "graph": self.graph,
            "detector": self.detector,
            "seed": self.seed,
            **self.about,
            "figures": {name: or_none(value) for name, value in self.figures.items()},
            "tasks": [dict(task) for task in self.tasks],
        }


def judge(
    recording: Recording,
    graph: EvolvingGraph,
    contestant: Contestant,
    judged: Sequence[Judged],
    second: Recording | None = None,
) -> tuple[dict[str, float], tuple[dict[str, Any], ...]]:
    """All figures of a contestant (see `FIGURES`), and those of each task.

    Parameters
    ----------
    recording, graph
        What was recorded.
    contestant, judged
        Who was judged, and what came of it; see `replay_all`.
    second
        The second model's recording, where the contestant asks for one.
    """
    scores: list[TaskScores] = []
    tasks: list[dict[str, Any]] = []
    of_all: list[tuple[Any, Any]] = []
    for one in judged:
        task = recording.task(graph, one.decisions.time)
        scores.append(evaluate(task, one.decisions))
        tasks.append({"time": graph.axis.value(task.time), **scores[-1].as_dict(), "seconds": one.seconds})
        truth, known = task.truth, set(one.decisions.known)
        labelled = np.array([name is not None for name in truth], bool)
        of_all.append((one.decisions.score[labelled], np.array([name not in known for name in truth[labelled]], bool)))
    score, unseen = (np.concatenate(parts) for parts in zip(*of_all, strict=True))
    means = {name: found["mean"] for name, found in aggregate({0: scores}).items()}
    confusion = sum((one.confusion for one in scores), Confusion())
    number = len(unseen) or math.nan
    figures = {
        "mcc": confusion.mcc,
        "auroc": auroc(score, unseen),
        "aupr": aupr(score, unseen),
        "fpr95": fpr_at_95(score, unseen),
        "oracle_mcc": oracle_mcc(score, unseen),
        "false_alarm_rate": confusion.false_alarm_rate,
        "flagged": (confusion.tp + confusion.fp) / number,
        "unseen": (confusion.tp + confusion.fn) / number,
        "seconds_detector": sum(one.seconds for one in judged),
        "seconds_training": sum(
            one.training_seconds(contestant.detector) for one in (recording, second) if one is not None
        ),
        **{name: _or_nan(means[name]) for name in ("mcc_per_task", "open_f1", "id_accuracy")},
        **{f"{name}_per_task": _or_nan(means[name]) for name in ("auroc", "aupr", "fpr95", "oracle_mcc")},
    }
    return {name: figures[name] for name in FIGURES}, tuple(tasks)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
