"""The paper's claims, C1 to C19, each judged by what was measured.

Each claim is a function of the `Evidence` that returns a `Verdict`. Its docstring has the criterion. Criteria were
written before the results were looked at, with four exceptions. Two came after a look at the first 18 trials (one
seed, GraphSAGE on dblp-easy): that claims about all models need at least four of them (C4 to C8; C4 had been judged by
one), and that figures of detection have an interval over tasks where there is one seed (C13 had been judged by signs;
its verdict was the same). Two came later: that C3 is judged by a distance without bins (it had been judged by
histograms; its verdict was the same, but not what it said of single models), and that C19 needs a graph where SGC has
clearly more parameters (it had been held to be true on one where it has fewer). Where the paper prints the numbers
that a claim rests on, they go through the same criterion, and what comes of it stands beside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from evergraph.presentation import Cell, Column, Table
from evergraph_paper.claims.accuracy import c4, c5, c6, c7, c8, c9, c10
from evergraph_paper.claims.detection import c11, c12, c13, c14, c15, c16
from evergraph_paper.claims.evidence import Answer, Evidence, Verdict
from evergraph_paper.claims.other import c1, c2, c3, c17, c18, c19

__all__ = ["CLAIMS", "Answer", "Evidence", "Verdict", "claims_table", "judge"]

CLAIMS: tuple[Callable[[Evidence], Verdict], ...] = (
    *(c1, c2, c3, c4, c5, c6, c7, c8, c9, c10),
    *(c11, c12, c13, c14, c15, c16, c17, c18, c19),
)
"""A function for each claim, in their order."""


def judge(evidence: Evidence) -> list[Verdict]:
    """All claims, from C1 to C19."""
    return [claim(evidence) for claim in CLAIMS]


def claims_table(verdicts: Iterable[Verdict]) -> Table:
    """A line for each claim."""
    columns = tuple(Column(name, align="left") for name in ("claim", "statement", "verdict", "measured", "paper"))
    rows = tuple(
        tuple(Cell(text) for text in (found.claim, found.statement, found.verdict, found.numbers, found.paper))
        for found in verdicts
    )
    return Table("The paper's claims", columns, rows)
