"""A comparison of detectors: the results of each on each graph, as tables and task by task as figures."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph import __version__
from evergraph.evaluation.candidates import Candidate
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.graphs import graph_of
from evergraph.evaluation.metrics import or_none, over_seeds
from evergraph.evaluation.results import NUMERICS_VERSION, Results, Summary, seed_ranges, summary_of
from evergraph.names import described
from evergraph.presentation import Cell, Column, Row, Section, Table, save, style, write
from evergraph.storage.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "CandidateResult", "Comparison", "compared_table", "tasks_figure", "write_comparison"]

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
class CandidateResult:
    """What came of a detector on a graph under a seed.

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


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison.

    Parameters
    ----------
    graphs
        Their paths by name.
    candidates, seeds
        What was compared, and how often.
    configuration
        How they were trained; its detector is ignored.
    outcomes
        All results that came to an end.
    errors
        What was wrong with the others.
    """

    graphs: Mapping[str, str]
    candidates: tuple[Candidate, ...]
    seeds: tuple[int, ...]
    configuration: Configuration
    outcomes: tuple[CandidateResult, ...]
    errors: tuple[str, ...] = ()

    def of(self, graph: str, detector: str) -> list[CandidateResult]:
        """The results of a detector on a graph, in the order of the seeds."""
        found = [one for one in self.outcomes if one.graph == graph and one.detector == detector]
        return sorted(found, key=lambda one: self.seeds.index(one.seed))

    def results(self, graph: str, detector: str) -> Results:
        """The results table of a detector on a graph."""
        found = self.of(graph, detector)
        return Results.of(
            {one.seed: one.tasks for one in found},
            totals={one.seed: one.figures for one in found},
            about={"graph": graph, "detector": detector},
        )

    def summary(self, graph: str, detector: str) -> dict[str, Summary]:
        """Each figure over the seeds; nothing where there is no result."""
        results = self.results(graph, detector)
        return results.aggregate(FIGURES) if results.seeds else {}

    def over_graphs(self, detector: str) -> dict[str, Summary]:
        """Each figure as its mean over graphs in each seed, and then over seeds; nothing unless all of them are there.

        Graphs where a figure is undefined are left out of it.
        """
        found = [self.results(graph, detector) for graph in self.graphs]
        if any(len(results.seeds) < len(self.seeds) for results in found):
            return {}
        per_seed = {name: np.array([results.per_seed(name) for results in found]).T for name in FIGURES}
        return {name: summary_of([over_seeds(row).mean for row in rows]) for name, rows in per_seed.items()}

    def by_task(self, graph: str, detector: str) -> list[dict[str, Any]]:
        """For each task its time, and over the seeds ``mcc``, ``flagged`` and ``unseen``.

        MCC is None where there is nothing to find.
        """
        results = self.results(graph, detector)
        if not results.seeds:
            return []
        unseen = results.by_task("unseen_share")
        figures = {
            "mcc": np.where(unseen > 0, results.by_task("mcc"), np.nan),
            "flagged": results.by_task("flagged"),
            "unseen": unseen,
        }
        return [
            {"time": time, **{name: summary_of(values[:, task]) for name, values in figures.items()}}
            for task, time in enumerate(results.times)
        ]

    def as_dict(self) -> dict[str, Any]:
        """All of it, fit for JSON."""
        pairs = [(graph, one.name) for graph in self.graphs for one in self.candidates]
        return {
            "graphs": dict(self.graphs),
            "detectors": {one.name: one.settings for one in self.candidates},
            "seeds": list(self.seeds),
            "configuration": {name: described(getattr(self.configuration, name)) for name in _TRAINING},
            "figures": dict(FIGURES),
            "results": [
                {"graph": graph, "detector": name, **found, "tasks": self.by_task(graph, name)}
                for graph, name in pairs
                if (found := self.summary(graph, name))
            ],
            "mean_over_graphs": [
                {"detector": one.name, **found} for one in self.candidates if (found := self.over_graphs(one.name))
            ],
            "errors": list(self.errors),
            "evergraph": __version__,
            "numerics_version": NUMERICS_VERSION,
        }


_TRAINING = ("model", "history", "restart", "steps", "lr", "weight_decay", "first", "label_rate", "mode", "text")


# --- tables and figures ----------------------------------------------------------------------------------------------

# Name of the figure, head of its column, its form, and whether more (1) or less (-1) is better.
_COLUMNS: tuple[tuple[str, str, str, int], ...] = (
    ("mcc", "MCC", ".3f", 1),
    ("open_f1", "Open-F1", ".3f", 1),
    ("auroc", "AUROC", ".3f", 1),
    ("aupr", "AUPR", ".3f", 1),
    ("fpr95", "FPR@95", ".3f", -1),
    ("oracle_mcc", "oracle MCC", ".3f", 1),
    ("false_alarm_rate", "false alarms", ".3f", 0),
    ("flagged", "flagged", ".3f", 0),
    ("unseen", "unseen", ".3f", 0),
    ("id_accuracy", "ID accuracy", ".3f", 1),
    ("seconds_detector", "detector, s", ".2f", 0),
    ("seconds_training", "training, s", ".1f", 0),
)
_MOST_TIMES = 8  # that are written below a panel
_GREY = "#999999"
_ROOM = 0.03  # above and below the largest and the least value, so that markers are whole


def compared_table(comparison: Comparison) -> Table:
    """A row for each detector on each graph and, where there are several graphs, the means over them.

    Bold is the best mean of a graph.
    """
    names = [one.name for one in comparison.candidates]
    rows: list[Row | Section] = []
    for graph in comparison.graphs:
        rows += _block(graph, {name: comparison.summary(graph, name) for name in names})
    if len(comparison.graphs) > 1:
        rows += _block("mean over graphs", {name: comparison.over_graphs(name) for name in names})
    columns = (Column("detector", align="left"), *(Column(head) for _, head, _, _ in _COLUMNS))
    return Table("Detectors of unseen classes compared", columns, tuple(rows), note=_note(comparison))


def _block(title: str, found: Mapping[str, Mapping[str, Summary]]) -> list[Row | Section]:
    there = {name: summary for name, summary in found.items() if summary}
    if not there:
        return []
    best = {figure: _best([one[figure]["mean"] for one in there.values()], sign) for figure, _, _, sign in _COLUMNS}
    rows: list[Row | Section] = [Section(title)]
    for name, summary in there.items():
        cells = [Cell(name)]
        for figure, _, form, _ in _COLUMNS:
            mean, half = summary[figure]["mean"], summary[figure]["ci95"]
            cells.append(Cell(mean, half, bold=mean is not None and mean == best[figure], form=form))
        rows.append(tuple(cells))
    return rows


def _best(means: Sequence[float | None], sign: int) -> float | None:
    known = [mean for mean in means if mean is not None]
    return sign * max(sign * mean for mean in known) if known and sign and len(means) > 1 else None


def _note(comparison: Comparison) -> str:
    settings, usual = comparison.configuration, type(comparison.configuration)()
    options = "".join(
        f" --{name.replace('_', '-')} {getattr(settings, name)}"
        for name in ("history", "first", "restart", "steps", "lr", "label_rate", "mode")
        if getattr(settings, name) != getattr(usual, name)
    )
    data = ", ".join(f"{name} {graph_of(path)[1][:8]}" for name, path in comparison.graphs.items())
    detectors = ",".join(one.name for one in comparison.candidates)
    spread = "; ± half the width of the 95 % interval of the mean over seeds" if len(comparison.seeds) > 1 else ""
    return (
        f"evergraph compare {' '.join(comparison.graphs)} --detectors {detectors} "
        f"--seeds {seed_ranges(comparison.seeds)}{options}\n"
        f"Model: {settings.model!r}. Data: {data}. Evergraph {__version__}, numbers version {NUMERICS_VERSION}.\n"
        f"Open-F1 and ID accuracy are means over tasks, all others are of all tasks together{spread}."
    )


def tasks_figure(comparison: Comparison, graph: str) -> Figure:
    """Task by task: above the MCC of each detector, below the share that it flags beside the share that is unseen."""
    with style.figure(2, 1, height=2.2) as (picture, axes):
        above, below = axes[:, 0]
        times: list[Any] = []
        for index, one in enumerate(comparison.candidates):
            tasks = comparison.by_task(graph, one.name)
            if not tasks:
                continue
            if not times:
                times = [task["time"] for task in tasks]
                unseen = [_number(task["unseen"]["mean"]) for task in tasks]
                below.plot(range(len(times)), unseen, color=_GREY, linewidth=4, alpha=0.6, label="unseen in truth")
            for panel, figure in ((above, "mcc"), (below, "flagged")):
                mean = np.array([_number(task[figure]["mean"]) for task in tasks])
                half = np.nan_to_num([_number(task[figure]["ci95"]) for task in tasks])
                style.lines_with_band(panel, range(len(tasks)), mean, mean - half, mean + half, one.name, index)
        ticks = range(0, len(times), max(1, -(-len(times) // _MOST_TIMES)))
        for panel, label in ((above, "MCC"), (below, "share flagged")):
            panel.set_xticks(list(ticks), [str(times[place]) for place in ticks])
            panel.set_ylabel(label)
        above.set_title(style.plain(graph))
        for panel, least in ((above, -1.0), (below, 0.0)):  # an interval of few seeds may reach beyond what can be
            low, high = panel.get_ylim()
            panel.set_ylim(max(low, least - _ROOM), min(high, 1 + _ROOM))
        style.legend_below(picture)
    return picture


def write_comparison(comparison: Comparison, out: Path) -> list[Path]:
    """Write the table, the figures and all of it as JSON into a folder; returns the files."""
    table = compared_table(comparison)
    files = write(table, out / "compared")
    data = json.dumps(comparison.as_dict(), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(out / "compared.json", data.encode() + b"\n")
    files.append(out / "compared.json")
    for graph in comparison.graphs:
        if any(one.graph == graph for one in comparison.outcomes):
            files += save(tasks_figure(comparison, graph), out / f"tasks-{graph}", table.note)
    return files


def _number(value: float | None) -> float:
    return math.nan if value is None else value
