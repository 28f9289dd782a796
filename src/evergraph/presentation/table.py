"""Tables of results for the terminal (rich), Markdown, LaTeX (booktabs) and CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from evergraph.errors import os_error
from evergraph.presentation.text import spreadsheet_safe, visible
from evergraph.storage.files import write_atomic

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_LONGEST_NAME = 24  # texts up to this length are not wrapped on a narrow terminal


@dataclass(frozen=True)
class Cell:
    """A text, or a number with the half width of its interval; a dash for missing values and NaN.

    Examples
    --------
    >>> Cell(0.81234, half=0.0101, form=".3f").text, Cell(float("nan")).text
    ('0.812 ± 0.010', '-')
    """

    value: str | float | None = None
    half: float | None = None
    bold: bool = False
    form: str = ""

    @property
    def text(self) -> str:
        """The cell in one line."""
        if _known(self.value) is None:
            return "-"
        spread = "" if _known(self.half) is None else f" ± {self.half:{self.form.lstrip('+')}}"
        return _in_one_line(f"{self.value:{self.form}}{spread}")


@dataclass(frozen=True)
class Column:
    """The head of a column; adjacent columns of one group share a head above their names."""

    name: str
    group: str = ""
    align: Literal["left", "right"] = "right"

    @property
    def full_name(self) -> str:
        """Group and name."""
        return _in_one_line(f"{self.group} {self.name}")


@dataclass(frozen=True)
class Section:
    """A heading between rows, such as the name of a data set."""

    name: str


Row: TypeAlias = tuple[Cell, ...]
"""One cell for each column."""


@dataclass(frozen=True)
class Table:
    """A table with its columns in order of importance; the note gives the source of the numbers."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row | Section, ...]
    note: str = ""

    def cells(self, number: int) -> list[Cell]:
        """Return the cells of a column."""
        return [row[number] for row in self.rows if not isinstance(row, Section)]

    def texts(self, number: int) -> list[str]:
        """Return the texts of a column that are not numbers."""
        sections = [] if number else [_in_one_line(row.name) for row in self.rows if isinstance(row, Section)]
        return sections + [cell.text for cell in self.cells(number) if isinstance(cell.value, str)]


def to_rich(table: Table, width: int = 80) -> RichTable:
    """Return the table for a terminal of some width.

    Columns that do not fit are left out, the last first, and named in the caption. Long texts may wrap; numbers and
    their heads never do.
    """
    from rich.table import Table as RichTable
    from rich.text import Text

    widths = [_width(table, number) for number in range(len(table.columns))]
    shown = max([2, *(n for n in range(len(widths) + 1) if sum(widths[:n]) <= width + 1)])
    columns, dropped = table.columns[:shown], [column.full_name for column in table.columns[shown:]]
    notes = [f"Not shown at this width: {'; '.join(dropped)}"] if dropped else []
    found = RichTable(
        title=Text(_in_one_line(table.title), "bold") if table.title else None,
        title_justify="left",
        caption=Text("\n".join(notes + _lines(table.note)), "dim") if notes or table.note else None,
        caption_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    grouped = any(column.group for column in columns)
    wraps = [max(map(len, table.texts(number)), default=0) > _LONGEST_NAME for number in range(len(columns))]
    wraps[0] |= sum(widths[:shown]) > width + 1  # wrap the name rather than a number
    for column, wrap in zip(columns, wraps, strict=False):
        head = Text((f"{_in_one_line(column.group)}\n" if grouped else "") + _in_one_line(column.name), no_wrap=False)
        vertical: Literal["top", "bottom"] = "top" if any(wraps) else "bottom"
        found.add_column(head, justify=column.align, vertical=vertical, overflow="fold", no_wrap=not wrap)
    for row in table.rows:
        if isinstance(row, Section):
            if found.row_count:
                found.add_row()
            found.add_row(Text(_in_one_line(row.name), "bold", justify="left", no_wrap=False))
        else:
            found.add_row(*(Text(cell.text, "bold" if cell.bold else "") for cell in row[:shown]))
    return found


def _width(table: Table, number: int) -> int:
    """Width of a column on a terminal in letters, with the space after it."""
    numbers = [len(cell.text) for cell in table.cells(number) if not isinstance(cell.value, str)]
    texts = [min(len(text), _LONGEST_NAME) for text in table.texts(number)]
    heads = [len(_in_one_line(head)) for head in (table.columns[number].group, table.columns[number].name)]
    return 1 + max([*numbers, *texts, *heads])


def to_markdown(table: Table) -> str:
    """Return the table for GitHub and MkDocs; a section is a row with its name in bold."""
    width = len(table.columns)
    lines = [[_markdown(column.full_name) for column in table.columns]]
    for row in table.rows:
        if isinstance(row, Section):
            lines.append([_wrap(_markdown(_in_one_line(row.name)), "**{}**"), *[""] * (width - 1)])
        else:
            lines.append([_wrap(_markdown(cell.text), "**{}**" if cell.bold else "{}") for cell in row])
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(width)]
    right = [column.align == "right" for column in table.columns]
    rule = [f"{'-' * (wide - 1)}:" if end else f":{'-' * (wide - 1)}" for wide, end in zip(widths, right, strict=True)]
    source = [
        [text.rjust(wide) if end else text.ljust(wide) for text, wide, end in zip(line, widths, right, strict=True)]
        for line in (lines[0], rule, *lines[1:])
    ]
    parts = [
        _wrap(_markdown(_in_one_line(table.title)), "**{}**"),
        "\n".join(f"| {' | '.join(line)} |" for line in source),
        "  \n".join(_MARKDOWN_START.sub(r"\1\\\2", _markdown(line)) for line in _lines(table.note)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def to_latex(table: Table, label: str = "") -> str:
    r"""Return the table for the package ``booktabs``, with the label ``tab:LABEL`` (by default from its title)."""
    slug = re.sub(r"[^a-z0-9]+", "-", (label or table.title).lower()).strip("-") or "table"
    body = [r"\toprule", *_latex_groups(table)]
    body += [" & ".join(_latex(_in_one_line(column.name)) for column in table.columns) + r" \\", r"\midrule"]
    for number, row in enumerate(table.rows):
        if isinstance(row, Section):
            name = _wrap(_latex(_in_one_line(row.name)), r"\textit{{{}}}")
            body += [r"\addlinespace"] if number else []
            body.append(rf"\multicolumn{{{len(table.columns)}}}{{@{{}}l@{{}}}}{{{name}}} \\")
        else:
            body.append(" & ".join(map(_latex_cell, row)) + r" \\")
    note = "".join(f"{_latex(line)}\\par\n  " for line in _lines(table.note))
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_latex(_in_one_line(table.title))}}}",
        rf"  \label{{tab:{slug}}}",
        rf"  \begin{{tabular}}{{@{{}}{''.join(column.align[0] for column in table.columns)}@{{}}}}",
        *(f"    {line}" for line in [*body, r"\bottomrule"]),
        r"  \end{tabular}",
        *([f"  \\par\\smallskip\n  {{\\footnotesize\\raggedright\n  {note}}}"] if note else []),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_groups(table: Table) -> Iterator[str]:
    cells, rules, first = [], [], 1
    for group, columns in groupby(_in_one_line(column.group) for column in table.columns):
        span = len(list(columns))
        if group:
            cells.append(rf"\multicolumn{{{span}}}{{c}}{{{_latex(group)}}}")
            rules.append(rf"\cmidrule(lr){{{first}-{first + span - 1}}}")
        else:
            cells += [""] * span
        first += span
    if rules:
        yield from (" & ".join(cells) + r" \\", " ".join(rules))


def _latex_cell(cell: Cell) -> str:
    if _known(cell.value) is None:
        return "--"
    text = _latex(cell.text) if isinstance(cell.value, str) else _latex(cell.text).replace("-", "$-$")
    return _wrap(text, r"\textbf{{{}}}" if cell.bold else "{}")


def to_csv(table: Table) -> str:
    """Return the table for programs: unrounded numbers, half widths and sections as separate columns.

    Texts that a spreadsheet would run have an apostrophe before them.
    """
    sections = any(isinstance(row, Section) for row in table.rows)
    halves = [any(_known(cell.half) is not None for cell in table.cells(i)) for i in range(len(table.columns))]
    head = ["section"] if sections else []
    for column, half in zip(table.columns, halves, strict=True):
        name = str(spreadsheet_safe(column.full_name))
        head += [name, f"{name} half"] if half else [name]
    text, section = io.StringIO(), ""
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    for row in table.rows:
        if isinstance(row, Section):
            section = _raw(row.name)
            continue
        line = [section] if sections else []
        for cell, half in zip(row, halves, strict=True):
            line += [_raw(cell.value), _raw(cell.half)] if half else [_raw(cell.value)]
        writer.writerow(line)
    return text.getvalue()


def write(table: Table, stem: str | Path) -> list[Path]:
    """Write a table as ``stem.md``, ``stem.tex`` and ``stem.csv``; return the files."""
    stem = Path(stem)
    texts = {"md": to_markdown(table), "tex": to_latex(table, stem.name), "csv": to_csv(table)}
    return [replace_file(stem, kind, text.encode()) for kind, text in texts.items()]


def replace_file(stem: Path, kind: str, data: bytes) -> Path:
    """Write ``stem.kind`` atomically, create its folder if necessary, and return its path."""
    path = stem.with_name(f"{stem.name}.{kind}")  # a name such as c=0.5 keeps its ending
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data, sync=False)
    except OSError as error:
        raise os_error(error, "the file could not be written", file=path) from error
    return path


# --- text ------------------------------------------------------------------------------------------------------------

Value = TypeVar("Value", bound=str | float)


def _known(value: Value | None) -> Value | None:
    """Return the value, or None if it is NaN."""
    return None if value is None or (not isinstance(value, str) and math.isnan(value)) else value


def _raw(value: str | float | None) -> str:
    if _known(value) is None:
        return ""
    text = _in_one_line(str(value))
    return str(spreadsheet_safe(text)) if isinstance(value, str) else text


def _in_one_line(text: str) -> str:
    return " ".join(map(visible, text.split()))


def _lines(text: str) -> list[str]:
    return [line for line in map(_in_one_line, text.splitlines()) if line]


def _wrap(text: str, how: str) -> str:
    return how.format(text) if text else ""


# An underscore inside a word is not emphasis and needs no escape.
_MARKDOWN_SPECIAL = re.compile(r"[\\`*\[\]{|]|(?<![^\W_])_|_(?![^\W_])")
_MARKDOWN_START = re.compile(r"^(\d*)([#>+.)-])")


def _markdown(text: str) -> str:
    text = _MARKDOWN_SPECIAL.sub(r"\\\g<0>", text)
    return (
        text.replace("&", "&amp;").replace("<", "&lt;").replace("~", "&#126;")
    )  # not all renderers know a backslash before ~


_SYMBOLS = {"\\": r"\textbackslash", "~": r"\textasciitilde", "^": r"\textasciicircum", "<": r"\textless"}
_SYMBOLS |= {">": r"\textgreater", "|": r"\textbar", "…": r"\ldots"}
_LATEX = {
    **{letter: rf"\{letter}" for letter in "&%$#_{}"},
    **{letter: f"{command}{{}}" for letter, command in _SYMBOLS.items()},
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "−": "$-$",
    **{letter: f"{{{letter}}}" for letter in "[]*"},  # after the end of a row LaTeX reads these as its option
}


def _latex(text: str) -> str:
    """Escape a text. Two hyphens, as in command options, do not become a dash."""
    return re.sub("-(?=-)", "-{}", "".join(_LATEX.get(letter, letter) for letter in text))
