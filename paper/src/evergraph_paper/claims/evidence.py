"""All that the claims are judged by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from evergraph.evaluation.trials import TrialResult
from evergraph.learning.learner import Restart
from evergraph_paper.claims.verdict import Verdict, answer, fit, seeds_in_words
from evergraph_paper.measured import Measured, collect
from evergraph_paper.plan import RESTARTS, Row, exp2, exp2a, exp3, exp4, exp4b
from evergraph_paper.static import StaticTrial
from evergraph_paper.subject import Subject

__all__ = ["Evidence", "judged"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What there is to judge the claims by; any of it may be missing.

    Parameters
    ----------
    graphs
        The graphs that results may be of, by name.
    found
        All results of lifelong trials.
    static
        Results of experiment 1: trials, each with what its ``run`` has returned.
    datasets
        Facts of graphs by name. Used are ``vertices``, ``classes`` and ``features`` (numbers), ``drift_consecutive``
        and ``drift_cumulative`` (each with ``min`` and ``max``), and ``history_sizes`` (of the whole graph, with the
        keys ``25``, ``50``, ``75`` and ``100``).
    steps
        Of training for each task in the results.

    Examples
    --------
    >>> nothing = Evidence({}, {})
    >>> nothing.measured
    {}
    """

    graphs: Mapping[str, Subject]
    found: Mapping[str, TrialResult]
    static: Sequence[tuple[StaticTrial, Mapping[str, Any]]] = ()
    datasets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    steps: int = 200

    @cached_property
    def measured(self) -> dict[Row, Measured]:
        """All rows of the paper's grids that have results."""
        graphs = list(self.graphs.values())
        grids = [grid(graphs, steps=self.steps) for grid in (exp2, exp2a, exp3, exp4, exp4b)]
        return {found.row: found for found in collect([row for grid in grids for row in grid], self.found)}

    def get(
        self,
        graph: str,
        model: str = "sage",
        level: int = 50,
        restart: Restart = "warm",
        detector: str = "none",
        label_rate: float = 1.0,
    ) -> Measured | None:
        """One row, if it has results."""
        row = Row(self.graphs[graph], model, level, restart, detector, label_rate, steps=self.steps)
        return self.measured.get(row)

    def best(self, graph: str, model: str, level: int) -> Measured | None:
        """The better of both restarts by mean accuracy, as the paper chooses; None unless both have results."""
        both = [self.get(graph, model, level, restart) for restart in RESTARTS]
        known = [found for found in both if found is not None]
        return max(known, key=mean_accuracy) if len(known) == len(both) else None


def mean_accuracy(found: Measured) -> float:
    """Over tasks and seeds."""
    return found.interval("accuracy").mean


def judged(
    claim: str,
    statement: str,
    holds: bool | None,
    *,
    numbers: Sequence[str],
    missing: str,
    paper: str,
    used: Iterable[Measured] = (),
    details: Mapping[str, Any],
) -> Verdict:
    """A verdict; what is missing is named where it keeps the claim from being judged.

    Parameters
    ----------
    claim, statement, paper, details
        As of `Verdict`.
    holds
        None if it cannot be told.
    numbers
        One text for each graph or part.
    missing
        What would be needed.
    used
        The rows that were used.
    """
    rows = list(used)
    texts = [text for text in numbers if text]
    if holds is None:
        texts.append(f"missing: {missing}")
    elif rows:
        texts.append(seeds_in_words(rows))
    return Verdict(
        claim,
        statement,
        answer(holds),
        "; ".join(texts),
        paper,
        tuple(sorted({seed for found in rows for seed in found.seeds})),
        tuple(dict.fromkeys(found.row.graph.name for found in rows)),
        fit(details),
    )
