"""The paper's grids: one row for each configuration, and the trials that rows and seeds make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from evergraph.detect import DOC, GDOC, Detector, Softmax
from evergraph.evaluation.configuration import Configuration
from evergraph.learning.learner import Restart
from evergraph.learning.rates import default_rate
from evergraph.learning.task import History
from evergraph.names import build_model
from evergraph_paper.lifelong import LifelongTrial
from evergraph_paper.subject import LEVELS, Subject

__all__ = [
    "ALPHAS",
    "LABEL_RATES",
    "LEVELS",
    "MODELS",
    "RESTARTS",
    "THRESHOLDS",
    "Row",
    "exp2",
    "exp2a",
    "exp3",
    "exp4",
    "exp4a",
    "exp4b",
    "exp4c",
    "rows",
]

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
    graph
        On which graph.
    model
        Name of the model, as ``evergraph run`` has it.
    level
        Share of the time differences before the first task that the history covers: 25, 50, 75 or 100 percent.
    restart, label_rate, weight_decay
        As of `Configuration`.
    detector
        ``"none"``, ``"doc"`` or ``"gdoc"``.
    lr, hops
        Learning rate and hops of SGC, where they are not the default ones.
    steps
        Of training for each task.

    Examples
    --------
    >>> from evergraph_paper.subject import subject
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
        """The number of times that the level comes to on this graph."""
        return self.graph.history(self.level)

    def trial(self, seed: int) -> LifelongTrial:
        """What to run."""
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
        )
        return LifelongTrial(self.graph.path, configuration, seed, rules)


def _detectors(row: Row) -> tuple[Detector, tuple[Detector, ...]]:
    """The detector to train with, and the rules to decide by beside it."""
    if row.detector == "none":
        return Softmax(), ()
    if row.detector == "doc":
        return DOC(0.5), (DOC(0.5), DOC(0.5, alpha=3.0), DOC(0.75))
    if row.model == "sage" and (row.level, row.restart) == (50, "warm"):  # the paper's place for its ablation
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
    """All combinations.

    Examples
    --------
    >>> from evergraph_paper.subject import subject
    >>> len(rows([subject("metamath")], models=MODELS))
    48
    """
    every = product(graphs, models, levels, restarts, detectors, label_rates)
    return [Row(*values, steps=steps) for values in every]


def exp2(graphs: Iterable[Subject], models: Sequence[str] = MODELS, *, steps: int = 200) -> list[Row]:
    """Lifelong learning: models, histories, restarts."""
    return rows(graphs, models, steps=steps)


# Learning rates of the paper's comparison of models that learn once with models that go on: (once, on).
_RATES_2A = {"mlp": (0.001, 0.001), "sage": (0.001, 0.005), "gat": (0.005, 0.01)}


def exp2a(graphs: Iterable[Subject], models: Sequence[str] = ("mlp", "sage", "gat"), *, steps: int = 200) -> list[Row]:
    """Trained once on all that was before the first task, with twice the steps, against trained on and on."""
    found = []
    for graph, model in product(graphs, models):
        once, on = _RATES_2A[model]
        found += [
            Row(graph, model, 50, "once", lr=once, steps=2 * steps),
            Row(graph, model, 50, "warm", lr=on, steps=steps),
        ]
    return found


def exp3(graphs: Iterable[Subject], label_rates: Sequence[float] = LABEL_RATES, *, steps: int = 200) -> list[Row]:
    """Fewer labels."""
    return rows(graphs, label_rates=label_rates, steps=steps)


def exp4(graphs: Iterable[Subject], *, steps: int = 200) -> list[Row]:
    """Unseen classes: DOC and gDOC; each training serves all thresholds, those of the ablation (4a) too."""
    return rows(graphs, detectors=("doc", "gdoc"), steps=steps)


def exp4a(graphs: Iterable[Subject], *, steps: int = 200) -> list[Row]:
    """Threshold and risk reduction: gDOC at the middle history, warm, decided by every rule."""
    return [row for row in exp4(graphs, steps=steps) if (row.level, row.restart, row.detector) == (50, "warm", "gdoc")]


# The script that is to have made the paper's rows of GAT trains SGC with one hop, at these rates (A2): (cold, warm).
_RATES_GAT_SCRIPT = {25: (0.005, 0.001), 50: (0.005, 0.001), 75: (0.01, 0.005), 100: (0.01, 0.01)}


def exp4b(graphs: Iterable[Subject], models: Sequence[str] = ("sage", "sgc", "gat"), *, steps: int = 200) -> list[Row]:
    """Other models under gDOC; and SGC with one hop at its own rates and at those of the GAT script (A2)."""
    graphs = list(graphs)
    found = rows(graphs, models, detectors=("gdoc",), steps=steps)
    for graph, level, restart in product(graphs, LEVELS, RESTARTS):
        script = _RATES_GAT_SCRIPT[level][restart == "warm"]
        found += [Row(graph, "sgc", level, restart, "gdoc", lr=lr, hops=1, steps=steps) for lr in (None, script)]
    return found


def exp4c(graphs: Iterable[Subject], *, steps: int = 200) -> list[Row]:
    """What detection costs: plain cross-entropy beside DOC and gDOC."""
    return rows(graphs, detectors=("none", "doc", "gdoc"), steps=steps)
