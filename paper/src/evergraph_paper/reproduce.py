"""The paper's experiments on evolving graphs: which rows each has, and what it shows of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import evergraph
from evergraph.errors import InputError
from evergraph.evaluation.results import NUMERICS_VERSION, seed_ranges
from evergraph.evaluation.trials import TrialResult
from evergraph.presentation import Table
from evergraph_paper import pictures, plan, tables
from evergraph_paper.measured import Measured, collect
from evergraph_paper.plan import Row
from evergraph_paper.subject import Subject
from evergraph_paper.tables import Results
from evergraph_paper.tune import tune_rows, tune_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENTS", "Experiment", "Extent", "Shown", "note", "show"]


@dataclass(frozen=True)
class Extent:
    """How much of an experiment to run.

    Parameters
    ----------
    seeds
        How often.
    models
        Which models; None for all of the experiment.
    label_rates
        Of experiment 3.
    steps
        Of training for each task.
    """

    seeds: tuple[int, ...] = (0,)
    models: tuple[str, ...] | None = None
    label_rates: tuple[float, ...] = plan.LABEL_RATES
    steps: int = 200

    def chosen(self, experiment: str, models: Sequence[str]) -> tuple[str, ...]:
        """Those of an experiment's models that are wanted."""
        if self.models is None:
            return tuple(models)
        if unknown := [name for name in self.models if name not in models]:
            raise InputError(
                f"{experiment} has no model {', '.join(map(repr, unknown))}", fix=f"choose from {', '.join(models)}"
            )
        return self.models

    @property
    def options(self) -> str:
        """What makes it other than usual, as the command line has it."""
        models = "" if self.models is None else f" --models {','.join(self.models)}"
        return models + (" --quick" if self.steps == QUICK.steps else "")


QUICK = Extent(seeds=(0,), label_rates=(0.1, 0.5, 0.9), steps=5)
"""A look at everything: what comes out is no result."""


@dataclass(frozen=True)
class Shown:
    """What an experiment has to show: tables and figures by the name of their file, and the note of the figures."""

    tables: Mapping[str, Table]
    figures: Mapping[str, Figure]
    note: str = ""


Subjects = Sequence[Subject]


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments.

    Parameters
    ----------
    title
        What it asks.
    repetitions
        How often the paper ran it.
    rows
        Its grid on some graphs.
    tables, figures
        What it shows of the results.
    """

    title: str
    repetitions: int
    rows: Callable[[Subjects, Extent], list[Row]]
    tables: Callable[[Subjects, Extent, Results], dict[str, Table]]
    figures: Callable[[Subjects, Extent, Results], dict[str, Figure]]


def _each(make: Callable[..., Table], name: str) -> Callable[[Subjects, Extent, Results], dict[str, Table]]:
    """One table for each graph."""
    return lambda graphs, extent, results: {
        f"{name}-{graph.name}": make(graph, results, steps=extent.steps) for graph in graphs
    }


def _nothing(*_: Any) -> dict[str, Any]:
    return {}


def _rows_2(graphs: Subjects, extent: Extent) -> list[Row]:
    return plan.exp2(graphs, extent.chosen("exp2", plan.MODELS), steps=extent.steps)


def _rows_2a(graphs: Subjects, extent: Extent) -> list[Row]:
    return plan.exp2a(graphs, extent.chosen("exp2a", ("mlp", "sage", "gat")), steps=extent.steps)


def _rows_4b(graphs: Subjects, extent: Extent) -> list[Row]:
    models = extent.chosen("exp4b", ("sage", "sgc", "gat"))
    rows = plan.exp4b(graphs, models, steps=extent.steps)
    return rows if "sgc" in models else [row for row in rows if row.hops is None]


def _rows_3(graphs: Subjects, extent: Extent) -> list[Row]:
    extent.chosen("exp3", ("sage",))
    return plan.exp3(graphs, extent.label_rates, steps=extent.steps)


def _only_sage(make: Callable[..., list[Row]], name: str) -> Callable[[Subjects, Extent], list[Row]]:
    """The rows of an experiment that has no other model."""

    def found(graphs: Subjects, extent: Extent) -> list[Row]:
        extent.chosen(name, ("sage",))
        return make(graphs, steps=extent.steps)

    return found


EXPERIMENTS: dict[str, Experiment] = {
    "exp2": Experiment(
        "Models, histories, and warm against cold restarts",
        10,
        _rows_2,
        _each(tables.exp2_table, "exp2"),
        lambda graphs, extent, results: {"exp2": pictures.exp2_figure(graphs, results, steps=extent.steps)},
    ),
    "exp2a": Experiment(
        "Trained once against trained on",
        10,
        _rows_2a,
        lambda graphs, extent, results: {
            f"exp2a-{graph.name}": tables.exp2a_table(graph, _rows_2a([graph], extent), results) for graph in graphs
        },
        lambda graphs, extent, results: {"exp2a": pictures.exp2a_figure(graphs, _rows_2a(graphs, extent), results)},
    ),
    "exp3": Experiment(
        "Fewer labels",
        5,
        _rows_3,
        lambda graphs, extent, results: {
            f"exp3-{graph.name}": tables.exp3_table(graph, extent.label_rates, results, steps=extent.steps)
            for graph in graphs
        },
        lambda graphs, extent, results: {
            f"exp3-{graph.name}": pictures.exp3_figure(graph, extent.label_rates, results, steps=extent.steps)
            for graph in graphs
        },
    ),
    "exp4": Experiment(
        "Detecting unseen classes",
        5,
        _only_sage(plan.exp4, "exp4"),
        _each(tables.exp4_table, "exp4"),
        lambda graphs, extent, results: {"exp4": pictures.exp4_figure(graphs, results, steps=extent.steps)},
    ),
    "exp4a": Experiment(
        "Threshold and risk reduction",
        5,
        _only_sage(plan.exp4a, "exp4a"),
        _each(tables.exp4a_table, "exp4a"),
        lambda graphs, extent, results: {"exp4a": pictures.exp4a_figure(graphs, results, steps=extent.steps)},
    ),
    "exp4b": Experiment("Other models under gDOC", 5, _rows_4b, _each(tables.exp4b_table, "exp4b"), _nothing),
    "exp4c": Experiment(
        "What detection costs",
        5,
        _only_sage(plan.exp4c, "exp4c"),
        _each(tables.exp4c_table, "exp4c"),
        _nothing,
    ),
    "tune": Experiment(
        "Choosing the learning rate on a development graph",
        3,
        _only_sage(tune_rows, "tune"),
        _each(tune_table, "tune"),
        _nothing,
    ),
}


def show(
    name: str,
    graphs: Subjects,
    extent: Extent,
    found: Mapping[str, TrialResult],
    *,
    all_seeds: bool = False,
    rows: Sequence[Row] | None = None,
) -> Shown:
    """Tables and figures of an experiment from the results that are there.

    Parameters
    ----------
    name, graphs, extent
        Which experiment, on which graphs, and how much of it.
    found
        All results.
    all_seeds
        Show all seeds that have results, not only those of the extent.
    rows
        The rows that were run in place of the experiment's own, in the same order: with other learning rates.
    """
    experiment = EXPERIMENTS[name]
    own = experiment.rows(graphs, extent)
    shown_as = dict(zip(rows or own, own, strict=True))
    measured = collect(shown_as, found, None if all_seeds else extent.seeds)
    with_results = [graph for graph in graphs if any(one.row.graph == graph for one in measured)]
    if not with_results:
        return Shown({}, {})
    results = {shown_as[one.row]: one for one in measured}
    options = extent.options + (" --rates FILE" if rows is not None and list(rows) != own else "")
    notes = {
        f"{name}-{graph.name}": note(name, [one for one in measured if one.row.graph == graph], options)
        for graph in with_results
    }
    made = experiment.tables(with_results, extent, results)
    return Shown(
        {key: replace(table, note=notes[key]) for key, table in made.items()},
        experiment.figures(with_results, extent, results),
        note(name, measured, options),
    )


def note(name: str, measured: Sequence[Measured], options: str = "") -> str:
    """Where figures come from: command, seeds, data, and how long it took."""
    graphs = list(dict.fromkeys(one.row.graph for one in measured))
    seeds = sorted({seed for one in measured for seed in one.seeds})
    trials = {found.key: found for one in measured for found in one.finished.values()}  # rows may share some
    hours = sum(found.made["seconds"] for found in trials.values()) / 3600
    fewer = sorted({f"{one.row.model} {seed_ranges(one.seeds)}" for one in measured if list(one.seeds) != seeds})
    told = f" (fewer in some rows: {', '.join(fewer)})" if fewer else ""
    names = " ".join(graph.name for graph in graphs)
    data = ", ".join(f"{graph.name} {graph.fingerprint[:8]}" for graph in graphs)
    return (
        f"evergraph reproduce {name} {names} --seeds {seed_ranges(seeds)}{options}{told}\n"
        f"Data: {data}. {count(len(trials), 'trial')}, {hours:.2f} hours of computing in all; "
        f"Evergraph {evergraph.__version__}, numbers version {NUMERICS_VERSION}."
    )


def count(number: int, what: str) -> str:
    """A number of things.

    Examples
    --------
    >>> count(1, "trial"), count(2, "trial")
    ('1 trial', '2 trials')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"
