"""The paper's experiments as grids: graphs, rows of settings, and one trial per row and seed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from evergraph.analysis.description import first_task
from evergraph.detect import DOC, GDOC, Detector, Softmax
from evergraph.errors import InputError
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.metrics import Confusion, open_macro_f1
from evergraph.evaluation.results import TaskRow
from evergraph.evaluation.run import run_task
from evergraph.evaluation.trials import CLAIMS
from evergraph.evaluation.workers import graph_of, name_of
from evergraph.graph.times import TimeAxis
from evergraph.learning.learner import Restart
from evergraph.learning.task import History, Task, history_sizes
from evergraph.learning.training import default_rate
from evergraph.names import build_model, described
from evergraph.storage.files import only_one, write_atomic
from evergraph_paper.as_published import unmapped_open_f1

LEVELS = (25, 50, 75, 100)
"""Percentages of the time differences that the four histories cover."""
FILE = "graphs.json"


Size = Annotated[int, msgspec.Meta(gt=0)]


@dataclass(frozen=True)
class Subject:
    """A graph of the experiments, with the histories that cover 25, 50 and 75 % of its time differences.

    Examples
    --------
    >>> found = subject("metamath")
    >>> found.name, [found.history(level) for level in LEVELS]
    ('metamath', [1, 2, 7, 'full'])
    """

    path: str
    fingerprint: str
    sizes: tuple[Size, Size, Size]

    @property
    def name(self) -> str:
        """Name of the graph: the last part of its path."""
        return name_of(self.path)

    def history(self, level: int) -> History:
        """Return the history of a level; the full history for 100 %."""
        return "full" if level == LEVELS[-1] else self.sizes[LEVELS.index(level)]


def subject(path: str) -> Subject:
    """Load a graph and determine its histories."""
    graph, fingerprint = graph_of(path)
    start = first_task(graph)
    sizes = {} if start is None else history_sizes(graph, start)
    if not sizes:
        raise InputError(
            "the graph has no edges before its first task, so its histories cannot be determined",
            file=path,
            fix="choose a graph with edges and at least two periods",
        )
    return Subject(path, fingerprint, (sizes[25], sizes[50], sizes[75]))


def kept_subjects(folder: Path) -> dict[str, Subject]:
    """Return the graphs of a folder of results by name."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Subject])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(
            "this is not a list of graphs with results", file=path, fix="remove the file, and name the graphs again"
        ) from error


def keep_subjects(folder: Path, subjects: Sequence[Subject]) -> None:
    """Add graphs to a folder of results; a different graph of the same name is an error, and nothing is written."""
    if _merged(folder, subjects) == kept_subjects(folder):
        return
    (folder / CLAIMS).mkdir(parents=True, exist_ok=True)
    with only_one(folder / CLAIMS / FILE):  # another command may add graphs, too
        entries = {name: asdict(found) for name, found in sorted(_merged(folder, subjects).items())}
        write_atomic(folder / FILE, json.dumps(entries, indent=1).encode() + b"\n")


def _merged(folder: Path, subjects: Sequence[Subject]) -> dict[str, Subject]:
    there = kept_subjects(folder)
    merged = dict(there)
    for found in subjects:
        before = merged.get(found.name)
        if before is not None and before.fingerprint != found.fingerprint:
            what = "the results are of another graph" if found.name in there else "two different graphs are"
            raise InputError(
                f"{what} named {found.name}",
                file=folder,
                fix="rename the folder of the graph, or choose another folder for its results (--results)",
            )
        merged[found.name] = found
    return merged


@dataclass(frozen=True)
class LifelongTrial:
    """A configuration on a graph with one seed, decided by its detector and by further rules.

    With restart ``once`` the model trains on everything before the first task, as in the paper, and decides with the
    history of the configuration.

    Parameters
    ----------
    seed
        Seed of the learner and, with a label rate below 1, of the released labels.
    rules
        Detectors of the same kind with other settings, which decide on the same outputs without further training.

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
        """Name of the graph."""
        return name_of(self.graph)

    @property
    def graph_path(self) -> str:
        """Path of the graph."""
        return self.graph

    def on(self, device: str) -> LifelongTrial:
        """Return the same trial, computed on a device."""
        return replace(self, configuration=replace(self.configuration, device=device))

    def described(self) -> dict[str, Any]:
        """Return what identifies the trial: settings and fingerprint of the graph, whatever its path."""
        graph, print_ = graph_of(self.graph)
        return {
            "kind": "lifelong",
            "fingerprint": print_,
            **settings_of(self.configuration, self.rules, graph.axis),
        }

    def run(self) -> dict[str, Any]:
        """Return each column of `TaskRow` as a list over tasks, and the same for each rule in ``rules``."""
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
    """Return all settings except graph and seed, and except those that the paper does not vary."""
    settings = configuration.described(axis)
    for name in ("inputs", "label_latency", "workers", "memory", "regulariser", "retire_after"):
        del settings[name]
    found = {"configuration": settings, "rules": [described(rule) for rule in rules]}
    return found | ({"trained_on": "all before the first task"} if configuration.restart == "once" else {})


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _decided(task: Task, decisions: Any) -> dict[str, Any]:
    """Return the metrics of one rule that depend on the threshold."""
    labelled = np.array([name is not None for name in task.truth], bool)
    truth, known = task.truth[labelled], set(decisions.known)
    decisions = replace(
        decisions, best=decisions.best[labelled], flagged=decisions.flagged[labelled], score=decisions.score[labelled]
    )
    unseen, never = np.array([name not in known for name in truth], bool), task.never_before[labelled]
    order = tuple(sorted(task.graph.class_names))
    counts = vars(Confusion.of(decisions.flagged, unseen))
    never_before = vars(Confusion.of(decisions.flagged, never))
    return {
        **counts,
        **{f"{name}_never_before": count for name, count in never_before.items()},
        "open_f1": open_macro_f1(truth, decisions.classes, unseen) if len(truth) else None,
        "open_f1_published": unmapped_open_f1(truth, decisions.classes, decisions.known, order, unseen)
        if len(truth)
        else None,
    }


MODELS = ("gat", "sage", "sgc", "saint", "jknet", "mlp")
LABEL_RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
THRESHOLDS = (0.0, 0.25, 0.5, 0.75, 1.0)
RESTARTS: tuple[Restart, ...] = ("cold", "warm")
ALPHAS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)


@dataclass(frozen=True)
class Row:
    """One configuration of a grid.

    Parameters
    ----------
    level
        Percentage of the time differences before the first task that the history covers: 25, 50, 75 or 100.
    detector
        ``"none"``, ``"doc"`` or ``"gdoc"``.
    lr, hops
        Learning rate and hops of SGC; None for the defaults.

    Examples
    --------
    >>> row = Row(subject("metamath"), "sage", 50)
    >>> row.history, row.trial(seed=3).configuration.lr
    (2, 0.005)
    """

    graph: Subject
    model: str = "sage"
    level: int = 50
    restart: Restart = "warm"
    detector: str = "none"
    label_rate: float = 1.0
    lr: float | None = None
    weight_decay: float = 0.0
    hops: int | None = None
    steps: int = 200

    @property
    def history(self) -> History:
        """History of the level on this graph."""
        return self.graph.history(self.level)

    def trial(self, seed: int) -> LifelongTrial:
        """Return the trial of one seed."""
        model = build_model(self.model, hops=self.hops)
        detector, rules = _detectors(self)
        warm = self.restart != "cold"
        configuration = Configuration(
            model,
            detector,
            history=self.history,
            restart=self.restart,
            steps=self.steps,
            lr=default_rate(model, detector, warm=warm, level=self.level) if self.lr is None else self.lr,
            weight_decay=self.weight_decay,
            label_rate=self.label_rate,
            mode="inductive" if self.model == "saint" else "transductive",
            inputs="words",
        )
        return LifelongTrial(self.graph.path, configuration, seed, rules)


def _detectors(row: Row) -> tuple[Detector, tuple[Detector, ...]]:
    """Return the detector to train with, and further rules to decide by."""
    if row.detector == "none":
        return Softmax(), ()
    if row.detector == "doc":
        return DOC(0.5), (DOC(0.5), DOC(0.5, alpha=3.0), DOC(0.75))
    if row.model == "sage" and (row.level, row.restart) == (50, "warm"):  # the setting of the paper's ablation
        return GDOC(0.75), tuple(GDOC(*rule) for rule in product(THRESHOLDS, (None, *ALPHAS)))
    return GDOC(0.75), (GDOC(0.5), GDOC(0.5, alpha=3.0), GDOC(0.75))


def rows(
    graphs: Iterable[Subject],
    models: Sequence[str] = ("sage",),
    levels: Sequence[int] = LEVELS,
    restarts: Sequence[Restart] = RESTARTS,
    detectors: Sequence[str] = ("none",),
    label_rates: Sequence[float] = (1.0,),
    steps: int = 200,
) -> list[Row]:
    """Return all combinations of settings.

    Examples
    --------
    >>> len(rows([subject("metamath")], models=MODELS))
    48
    """
    every = product(graphs, models, levels, restarts, detectors, label_rates)
    return [Row(*values, steps=steps) for values in every]


def exp2(graphs: Iterable[Subject], models: Sequence[str] = MODELS, *, steps: int = 200) -> list[Row]:
    """Experiment 2: models, histories, restarts."""
    return rows(graphs, models, steps=steps)


# The paper's learning rates for models trained once and trained continually: (once, continually).
_RATES_2A = {"mlp": (0.001, 0.001), "sage": (0.001, 0.005), "gat": (0.005, 0.01)}


def exp2a(graphs: Iterable[Subject], models: Sequence[str] = ("mlp", "sage", "gat"), *, steps: int = 200) -> list[Row]:
    """Experiment 2a: trained once on everything before the first task with twice the steps, or continually."""
    found = []
    for graph, model in product(graphs, models):
        once, on = _RATES_2A[model]
        found += [
            Row(graph, model, 50, "once", lr=once, steps=2 * steps),
            Row(graph, model, 50, "warm", lr=on, steps=steps),
        ]
    return found


def exp3(graphs: Iterable[Subject], label_rates: Sequence[float] = LABEL_RATES, *, steps: int = 200) -> list[Row]:
    """Experiment 3: fewer labels."""
    return rows(graphs, label_rates=label_rates, steps=steps)


def exp4(graphs: Iterable[Subject], *, steps: int = 200) -> list[Row]:
    """Experiment 4: DOC and gDOC; each training serves all thresholds, also those of the ablation (4a)."""
    return rows(graphs, detectors=("doc", "gdoc"), steps=steps)


def exp4a(graphs: Iterable[Subject], *, steps: int = 200) -> list[Row]:
    """Experiment 4a: gDOC with the middle history and warm restarts, decided by every rule."""
    return [row for row in exp4(graphs, steps=steps) if (row.level, row.restart, row.detector) == (50, "warm", "gdoc")]


# The authors' script for the GAT rows trains SGC with one hop, at these rates (A2): (cold, warm).
_RATES_GAT_SCRIPT = {25: (0.005, 0.001), 50: (0.005, 0.001), 75: (0.01, 0.005), 100: (0.01, 0.01)}


def exp4b(graphs: Iterable[Subject], models: Sequence[str] = ("sage", "sgc", "gat"), *, steps: int = 200) -> list[Row]:
    """Experiment 4b: models with gDOC; and SGC with one hop at its own rates and at those of the GAT script (A2)."""
    graphs = list(graphs)
    found = rows(graphs, models, detectors=("gdoc",), steps=steps)
    for graph, level, restart in product(graphs, LEVELS, RESTARTS):
        script = _RATES_GAT_SCRIPT[level][restart == "warm"]
        found += [Row(graph, "sgc", level, restart, "gdoc", lr=lr, hops=1, steps=steps) for lr in (None, script)]
    return found


def exp4c(graphs: Iterable[Subject], *, steps: int = 200) -> list[Row]:
    """Experiment 4c: cross-entropy, DOC and gDOC, to measure the cost of detection."""
    return rows(graphs, detectors=("none", "doc", "gdoc"), steps=steps)
