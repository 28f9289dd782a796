"""What results are shown with: tables for the terminal, pages and papers, and one style for all figures."""

from evergraph.presentation.style import (
    COLOURS,
    figure,
    legend_below,
    lines_with_band,
    panels,
    plain,
    save,
    series,
    styled,
)
from evergraph.presentation.table import (
    Cell,
    Column,
    Row,
    Section,
    Table,
    fitted,
    to_csv,
    to_latex,
    to_markdown,
    to_rich,
    write,
)

__all__ = [
    "COLOURS",
    "Cell",
    "Column",
    "Row",
    "Section",
    "Table",
    "figure",
    "fitted",
    "legend_below",
    "lines_with_band",
    "panels",
    "plain",
    "save",
    "series",
    "styled",
    "to_csv",
    "to_latex",
    "to_markdown",
    "to_rich",
    "write",
]
