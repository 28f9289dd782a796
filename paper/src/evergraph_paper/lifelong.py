"""A lifelong run on an evolving graph as a trial of a grid; one training serves all thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evergraph.detect import Detector
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.graphs import graph_of, name_of
from evergraph.evaluation.metrics import Confusion, open_macro_f1
from evergraph.evaluation.results import TaskRow
from evergraph.evaluation.run import run_task
from evergraph.graph.times import TimeAxis
from evergraph.learning.task import Task
from evergraph.names import described
from evergraph_paper.as_published import unmapped_open_f1

__all__ = ["LifelongTrial", "rows_of", "settings_of"]


@dataclass(frozen=True)
class LifelongTrial:
    """A configuration on a graph under one seed, decided by its detector and by other rules beside.

    A model that is trained once is trained on all that is before the first task, as in the paper, and decides with the
    history of the configuration.

    Parameters
    ----------
    graph
        A graph folder, or the name of a graph that needs none.
    configuration
        What to run.
    seed
        Of the learner and, with a label rate below 1, of the draw of labels.
    rules
        Detectors of the same kind with other settings: they decide on the same outputs, at no further training.

    Examples
    --------
    >>> from evergraph.detect import GDOC
    >>> from evergraph.nn import MLP
    >>> small = Configuration(MLP(hidden=4), GDOC(0.5), history=1, steps=2)
    >>> result = LifelongTrial("metamath", small, rules=(GDOC(0.75),)).run()
    >>> result["time"][:2], len(result["rules"]), sum(result["rules"][0]["tp"]) >= sum(result["tp"])
    ([2007, 2008], 1, True)
    """

    graph: str
    configuration: Configuration
    seed: int = 0
    rules: tuple[Detector, ...] = ()

    @property
    def graph_name(self) -> str:
        """See `name_of`."""
        return name_of(self.graph)

    def described(self) -> dict[str, Any]:
        """See `Trial`; the graph by its fingerprint, wherever it lies."""
        graph, print_ = graph_of(self.graph)
        return {
            "kind": "lifelong",
            "fingerprint": print_,
            **settings_of(self.configuration, self.rules, graph.axis),
        }

    def run(self) -> dict[str, Any]:
        """All figures of `TaskRow`, each a list over the tasks; and so for each rule, under ``rules``."""
        graph, _ = graph_of(self.graph)
        learner = self.configuration.learner(self.seed)
        rows: list[TaskRow] = []
        by_rule: list[list[dict[str, Any]]] = [[] for _ in self.rules]
        for planned in self.configuration.tasks(graph):
            task = replace(planned, seed=self.seed)
            everything = replace(task, history=None) if self.configuration.restart == "once" else None
            rows.append(run_task(learner, task, learn_from=everything))
            outputs = learner.outputs(task) if self.rules else None
            for rule, kept in zip(self.rules, by_rule, strict=True):
                kept.append(_decided(task, learner.predict(task, rule, outputs)))
        columns = _columns([row.as_dict() for row in rows])
        del columns["seed"]
        return columns | {"rules": [_columns(kept) for kept in by_rule]}


def settings_of(configuration: Configuration, rules: Sequence[Detector], axis: TimeAxis) -> dict[str, Any]:
    """What is done, whatever the graph and the seed."""
    found = {"configuration": configuration.described(axis), "rules": [described(rule) for rule in rules]}
    return found | ({"trained_on": "all before the first task"} if configuration.restart == "once" else {})


def rows_of(result: Mapping[str, Any], seed: int) -> list[TaskRow]:
    """The rows that a result was made of."""
    names = [name for name in result if name != "rules"]
    return [
        TaskRow.from_dict(dict(zip(names, values, strict=True)) | {"seed": seed})
        for values in zip(*(result[name] for name in names), strict=True)
    ]


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _decided(task: Task, decisions: Any) -> dict[str, Any]:
    """How good the decisions of one rule are: what changes with the threshold, and nothing else."""
    labelled = np.array([name is not None for name in task.truth], bool)
    truth, known = task.truth[labelled], set(decisions.known)
    decisions = replace(
        decisions, best=decisions.best[labelled], rejected=decisions.rejected[labelled], score=decisions.score[labelled]
    )
    unseen, never = np.array([name not in known for name in truth], bool), task.never_before[labelled]
    order = tuple(sorted(task.graph.class_names))
    counts = vars(Confusion.of(decisions.rejected, unseen))
    never_before = vars(Confusion.of(decisions.rejected, never))
    return {
        **counts,
        **{f"{name}_never_before": count for name, count in never_before.items()},
        "open_f1": open_macro_f1(truth, decisions.classes, unseen) if len(truth) else None,
        "open_f1_published": unmapped_open_f1(truth, decisions.classes, decisions.known, order, unseen)
        if len(truth)
        else None,
    }
