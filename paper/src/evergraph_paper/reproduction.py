"""Reproduce the paper: run the missing trials of an experiment, then write its tables and figures."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import evergraph
from evergraph.errors import InputError
from evergraph.evaluation.configuration import seed_ranges
from evergraph.evaluation.results import NUMERICS_VERSION
from evergraph.evaluation.trials import GridState, Trial, TrialResult, TrialStore, check_folder, run_grid
from evergraph.evaluation.workers import RayEngine, graph_of
from evergraph.presentation.style import save
from evergraph.presentation.table import Table, write
from evergraph.storage.files import write_atomic
from evergraph_paper import exp1, figures, plan, static, tables
from evergraph_paper.claims import Evidence, claims_table, judge
from evergraph_paper.datasets import datasets_table, write_datasets
from evergraph_paper.measured import Measured, collect
from evergraph_paper.plan import Row, Subject, keep_subjects, kept_subjects, subject
from evergraph_paper.static import StaticTrial
from evergraph_paper.tables import Results
from evergraph_paper.tune import apply_rates, choose, read_rates, tune_rows, tune_table, write_rates

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Extent:
    """How much of an experiment to run."""

    seeds: tuple[int, ...] = (0,)
    models: tuple[str, ...] | None = None
    label_rates: tuple[float, ...] = plan.LABEL_RATES
    steps: int = 200

    def chosen(self, experiment: str, models: Sequence[str]) -> tuple[str, ...]:
        """Return the wanted models of an experiment."""
        if self.models is None:
            return tuple(models)
        if unknown := [name for name in self.models if name not in models]:
            raise InputError(
                f"{experiment} has no model {', '.join(map(repr, unknown))}", fix=f"choose from {', '.join(models)}"
            )
        return self.models

    @property
    def options(self) -> str:
        """Return the command line options that differ from the defaults."""
        models = "" if self.models is None else f" --models {','.join(self.models)}"
        return models + (" --quick" if self.steps == QUICK.steps else "")


QUICK = Extent(seeds=(0,), label_rates=(0.1, 0.5, 0.9), steps=5)
"""For a quick test of everything; its numbers are not results."""


@dataclass(frozen=True)
class Shown:
    """Tables and figures of an experiment by file name, and the note of the figures."""

    tables: Mapping[str, Table]
    figures: Mapping[str, Figure]
    note: str = ""


Subjects = Sequence[Subject]


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments: repetitions in the paper, grid, models, table and figure."""

    name: str
    repetitions: int
    plan: Callable[[Subjects, Sequence[str], Extent], list[Row]]
    table: Callable[[Subject, list[Row], Extent, Results], Table]
    figure: Callable[[Subjects, list[Row], Extent, Results], Figure] | None = None
    models: Sequence[str] = ("sage",)
    figure_each: bool = False

    def rows(self, graphs: Subjects, extent: Extent) -> list[Row]:
        """Return the grid on some graphs."""
        return self.plan(graphs, extent.chosen(self.name, self.models), extent)

    def tables(self, graphs: Subjects, extent: Extent, results: Results) -> dict[str, Table]:
        """Return one table per graph."""
        return {
            f"{self.name}-{graph.name}": self.table(graph, self.rows([graph], extent), extent, results)
            for graph in graphs
        }

    def figures(self, graphs: Subjects, extent: Extent, results: Results) -> dict[str, Figure]:
        """Return one figure of all graphs, or one per graph."""
        parts = {f"{self.name}-{one.name}": [one] for one in graphs} if self.figure_each else {self.name: graphs}
        draw = self.figure
        return (
            {}
            if draw is None
            else {key: draw(part, self.rows(part, extent), extent, results) for key, part in parts.items()}
        )


def _planned(make: Callable[..., list[Row]]) -> Callable[[Subjects, Sequence[str], Extent], list[Row]]:
    """Return the plan of a grid with GraphSAGE only."""
    return lambda graphs, _, extent: make(graphs, steps=extent.steps)


def _shown(make: Callable[..., Any]) -> Callable[[Any, list[Row], Extent, Results], Any]:
    """Return a table or figure function that needs only the graphs and the results."""
    return lambda graphs, _, extent, results: make(graphs, results, steps=extent.steps)


def _exp4b(graphs: Subjects, models: Sequence[str], extent: Extent) -> list[Row]:
    rows = plan.exp4b(graphs, models, steps=extent.steps)
    return rows if "sgc" in models else [row for row in rows if row.hops is None]


EXPERIMENTS = {
    one.name: one
    for one in (
        Experiment(
            "exp2",
            10,
            lambda graphs, models, extent: plan.exp2(graphs, models, steps=extent.steps),
            _shown(tables.exp2_table),
            _shown(figures.exp2_figure),
            plan.MODELS,
        ),
        Experiment(
            "exp2a",
            10,
            lambda graphs, models, extent: plan.exp2a(graphs, models, steps=extent.steps),
            lambda graph, rows, _, results: tables.exp2a_table(graph, rows, results),
            lambda graphs, rows, _, results: figures.exp2a_figure(graphs, rows, results),
            ("mlp", "sage", "gat"),
        ),
        Experiment(
            "exp3",
            5,
            lambda graphs, _, extent: plan.exp3(graphs, extent.label_rates, steps=extent.steps),
            lambda graph, _, extent, results: tables.exp3_table(graph, extent.label_rates, results, steps=extent.steps),
            lambda graphs, _, extent, results: figures.exp3_figure(
                graphs[0], extent.label_rates, results, steps=extent.steps
            ),
            figure_each=True,
        ),
        Experiment("exp4", 5, _planned(plan.exp4), _shown(tables.exp4_table), _shown(figures.exp4_figure)),
        Experiment("exp4a", 5, _planned(plan.exp4a), _shown(tables.exp4a_table), _shown(figures.exp4a_figure)),
        Experiment("exp4b", 5, _exp4b, _shown(tables.exp4b_table), models=("sage", "sgc", "gat")),
        Experiment("exp4c", 5, _planned(plan.exp4c), _shown(tables.exp4c_table)),
        Experiment("tune", 3, _planned(tune_rows), _shown(tune_table)),
    )
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
    """Return the tables and figures of an experiment from the stored results."""
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
    """Return the note below tables and figures: command, seeds, data and hours."""
    graphs = list(dict.fromkeys(one.row.graph for one in measured))
    seeds = sorted({seed for one in measured for seed in one.seeds})
    trials = {found.key: found for one in measured for found in one.trials.values()}  # rows may share some
    hours = sum(found.made["seconds"] for found in trials.values()) / 3600
    fewer = sorted({f"{one.row.model} {seed_ranges(one.seeds)}" for one in measured if list(one.seeds) != seeds})
    told = f" (fewer in some rows: {', '.join(fewer)})" if fewer else ""
    names = " ".join(graph.name for graph in graphs)
    data = ", ".join(f"{graph.name} {graph.fingerprint[:8]}" for graph in graphs)
    return (
        f"evergraph reproduce {name} {names} --seeds {seed_ranges(seeds)}{options}{told}\n"
        f"Data: {data}. {count(len(trials), 'trial')}, {hours:.2f} hours of computing in all; "
        f"Evergraph {evergraph.__version__}, {numbers(trials.values())}."
    )


def numbers(trials: Iterable[TrialResult]) -> str:
    """Return which numerics versions trials have, such as ``numbers version 1 (80 trials) and 2 (4 trials)``."""
    versions = Counter(found.numerics_version for found in trials)
    if len(versions) < 2:
        return f"numbers version {min(versions, default=NUMERICS_VERSION)}"
    parts = (f"{version} ({count(versions[version], 'trial')})" for version in sorted(versions))
    return f"numbers version {' and '.join(parts)}"


def count(number: int, what: str) -> str:
    """Return a number with its noun, such as ``2 trials``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


log = logging.getLogger("evergraph.paper")  # below "evergraph", whose messages the commands show

_QUICK_GRAPH = "synthetic"
_STATIC_REPETITIONS = 100


@dataclass(frozen=True)
class Reproduced:
    """Tables, written files and further data (claims) of one experiment."""

    name: str
    tables: Mapping[str, Table]
    files: Sequence[Path]
    data: Any = None


@dataclass
class Reproduction:
    """Settings of a reproduction, and its progress."""

    results: Path
    graphs: Sequence[str] = ()
    seeds: tuple[int, ...] = (0,)
    models: tuple[str, ...] | None = None
    planetoid: Path | None = None
    rates: Path | None = None
    jobs: int = 1
    engine: RayEngine | None = None
    device: str = "cpu"
    quick: bool = False
    full: bool = False
    only_show: bool = False
    on_done: Callable[[str, GridState], object] | None = None
    failed: int = 0

    def __post_init__(self) -> None:
        check_folder(next(path for path in (self.results, *self.results.absolute().parents) if path.exists()))

    def check(self, names: Sequence[str]) -> None:
        """Check all settings before anything runs."""
        if self.rates is not None:
            read_rates(self.rates)
        for name in names:
            if name in EXPERIMENTS:
                EXPERIMENTS[name].rows((), self._extent(repetitions=1))
            elif name == "exp1":
                self._static_trials()

    def run(self, name: str) -> Reproduced:
        """Run and show one experiment."""
        if name == "exp1":
            return self._exp1()
        if name == "datasets":
            return self._datasets()
        if name == "claims":
            return self._claims()
        return self._lifelong(name)

    def _lifelong(self, name: str) -> Reproduced:
        experiment = EXPERIMENTS[name]
        subjects, extent = self._subjects(), self._extent(experiment.repetitions)
        rows = experiment.rows(subjects, extent)
        if self.rates is not None:
            rows = apply_rates(rows, read_rates(self.rates))
        trials = [row.trial(seed).on(self.device) for seed in extent.seeds for row in rows]
        found = self._run(name, trials, subjects)
        shown = show(name, subjects, extent, found, all_seeds=self.only_show, rows=rows)
        files = self._write(name, shown)
        if name == "tune" and shown.tables:
            measured = collect(rows, found, None if self.only_show else extent.seeds)
            if len(measured) == len(rows):  # otherwise a better one may follow
                write_rates(self.results / name / "rates.json", choose(measured))
                files.append(self.results / name / "rates.json")
        return Reproduced(name, shown.tables, files)

    def _extent(self, repetitions: int) -> Extent:
        extent = replace(QUICK if self.quick else Extent(), models=self.models)
        if self.full:
            return replace(extent, seeds=tuple(range(repetitions)))
        return extent if self.quick else replace(extent, seeds=self.seeds)

    def _subjects(self) -> list[Subject]:
        kept = kept_subjects(self.results)
        if self.graphs:
            # Results of a graph that is not available can still be shown by its name.
            return [
                kept[path] if self.only_show and path in kept else subject(path) for path in dict.fromkeys(self.graphs)
            ]
        if self.quick:
            return [subject(_QUICK_GRAPH)]
        if self.only_show:
            return list(kept.values())
        if not kept:
            raise InputError("there are no results yet", fix="name a graph folder, or metamath")
        # If a graph has changed since, its old results are not used.
        return [replace(one, fingerprint=graph_of(one.path)[1]) for one in kept.values()]

    def _run(self, name: str, trials: Sequence[Trial], subjects: Sequence[Subject] = ()) -> dict[str, TrialResult]:
        """Run the missing trials, and return all stored results."""
        if not self.only_show:
            keep_subjects(self.results, subjects)

            def on_done(state: GridState) -> None:
                self._last = state
                if self.on_done is not None:
                    self.on_done(name, state)

            # For a quick test, starting processes takes longer than running.
            quick = self.quick and self.engine is None
            jobs, threads = (1, 1) if quick else (self.jobs, None)
            run_grid(trials, self.results, jobs=jobs, threads=threads, engine=self.engine, on_done=on_done)
            self.failed += self._last.failed
        store = TrialStore(self.results)
        found = store.read()
        if self.only_show:  # otherwise run_grid has logged them
            for problem in store.problems:
                log.warning("%s", problem)
        return found

    def _write(self, name: str, shown: Shown) -> list[Path]:
        files: list[Path] = []
        for key, table in shown.tables.items():
            files += write(table, self.results / name / key)
        for key, picture in shown.figures.items():
            files += save(picture, self.results / name / key, shown.note)
        return files

    def _exp1(self) -> Reproduced:
        seeds = None if self.only_show else self._static_seeds()
        found = self._run("exp1", self._static_trials())
        results = exp1.static_results(found, seeds)
        if not results:
            return Reproduced("exp1", {}, [])
        made = [one for one in found.values() if one.trial.get("kind") == "static" and (not seeds or one.seed in seeds)]
        hours = sum(one.made["seconds"] for one in made) / 3600
        run_seeds = seed_ranges(sorted({trial.seed for trial, _ in results}))
        note = (
            f"evergraph reproduce exp1 --planetoid FOLDER --seeds {run_seeds}{self._extent(1).options}\n"
            f"Data: Planetoid's files. {count(len(results), 'trial')}, {hours:.2f} hours of computing in all; "
            f"Evergraph {evergraph.__version__}, {numbers(made)}."
        )
        tables = {
            "exp1-accuracy": exp1.accuracy_table(results),
            "exp1-divergence": exp1.divergence_table(results),
        }
        if self.planetoid is not None:
            graphs = tuple(dict.fromkeys(trial.graph for trial, _ in results))
            tables["exp1-splits"] = exp1.splits_table(static.static_table(self.planetoid, graphs))
        shown = Shown(
            {key: replace(table, note=note) for key, table in tables.items()}, exp1.exp1_figures(results), note
        )
        return Reproduced("exp1", shown.tables, self._write("exp1", shown))

    def _static_seeds(self) -> tuple[int, ...]:
        return tuple(range(_STATIC_REPETITIONS)) if self.full else self.seeds

    def _static_trials(self) -> list[StaticTrial]:
        if self.planetoid is None and not self.only_show:
            raise InputError(
                "experiment 1 needs Cora, Citeseer and PubMed in the Planetoid format",
                fix="give the folder of its files: --planetoid FOLDER",
            )
        if self.planetoid is not None and not self.planetoid.is_dir():
            raise InputError(
                "this folder does not exist", file=self.planetoid, fix="give the folder of the Planetoid files"
            )
        small: dict[str, Any] = {"graphs": ("cora",), "pretraining": (0, 5), "epochs": 5} if self.quick else {}
        if self.models is not None:
            small["models"] = self.models
        return static.grid(self.planetoid or Path(), self._static_seeds(), **small)

    def _datasets(self) -> Reproduced:
        folder = self.results / "datasets"
        if not self.only_show:
            subjects = self._subjects()
            keep_subjects(self.results, subjects)
            note = f"evergraph reproduce datasets {' '.join(one.name for one in subjects)}"
            files = write_datasets([one.path for one in subjects], folder, note)
        else:
            files = []
        facts = _facts(folder)
        return Reproduced("datasets", {"datasets": datasets_table(facts)} if facts else {}, files)

    def _claims(self) -> Reproduced:
        store = TrialStore(self.results)
        found = store.read()
        for problem in store.problems:
            log.warning("%s", problem)
        evidence = Evidence(
            graphs=kept_subjects(self.results),
            found=found,
            static=exp1.static_results(found),
            datasets={facts["name"]: facts for facts in _facts(self.results / "datasets")},
        )
        verdicts = judge(evidence)
        table = replace(claims_table(verdicts), note="evergraph reproduce claims")
        files = write(table, self.results / "claims" / "claims")
        data = [verdict.as_dict() for verdict in verdicts]
        path = self.results / "claims" / "claims.json"
        write_atomic(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        return Reproduced("claims", {"claims": table}, [*files, path], data)


def _facts(folder: Path) -> list[dict[str, Any]]:
    path = folder / "datasets.json"
    if not path.exists():
        return []
    try:
        found: list[dict[str, Any]] = json.loads(path.read_bytes())
        _ = [facts["name"] for facts in found]
    except (ValueError, TypeError, LookupError) as error:
        raise InputError("this is not a list of graphs", file=path, fix="run: evergraph reproduce datasets") from error
    return found
