"""The paper's claims C1 to C19, each judged by measured results.

Each claim is a function of the `Evidence` that returns a `Verdict`. Its docstring has the criterion. Criteria were
written before the results were known, with four exceptions. Two were added after the first 18 trials (one seed,
GraphSAGE on dblp-easy): claims about all models need at least four models (C4 to C8; C4 had used one), and detection
metrics have an interval over tasks if there is one seed (C13 had used signs; its verdict was the same). Two were added
later: C3 uses a distance without bins (it had used histograms; its verdict was the same, but not the results of single
models), and C19 needs a graph where SGC has clearly more parameters (it had passed on a graph where SGC has fewer). If
the paper prints the numbers behind a claim, the same criterion is applied to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from evergraph.presentation.table import Cell, Column, Table
from evergraph_paper.claims.accuracy import c4, c5, c6, c7, c8, c9, c10
from evergraph_paper.claims.detection import c11, c12, c13, c14, c15, c16
from evergraph_paper.claims.evidence import Answer, Evidence, Verdict
from evergraph_paper.claims.other import c1, c2, c3, c17, c18, c19

__all__ = ["CLAIMS", "Answer", "Evidence", "Verdict", "claims_table", "judge"]

CLAIMS: tuple[Callable[[Evidence], Verdict], ...] = (
    *(c1, c2, c3, c4, c5, c6, c7, c8, c9, c10),
    *(c11, c12, c13, c14, c15, c16, c17, c18, c19),
)
"""One function per claim, in order."""


def judge(evidence: Evidence) -> list[Verdict]:
    """Return the verdicts on all claims, from C1 to C19."""
    return [claim(evidence) for claim in CLAIMS]


def claims_table(verdicts: Iterable[Verdict]) -> Table:
    """Return a table with one row per claim."""
    columns = tuple(Column(name, align="left") for name in ("claim", "statement", "verdict", "measured", "paper"))
    rows = tuple(
        tuple(Cell(text) for text in (found.claim, found.statement, found.verdict, found.numbers, found.paper))
        for found in verdicts
    )
    return Table("The paper's claims", columns, rows)
