"""Tables of results: made once, shown on the terminal, in Markdown, in LaTeX and as CSV."""

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

from evergraph.errors import EvergraphError, InputError

if TYPE_CHECKING:
    from rich.table import Table as RichTable

__all__ = [
    "Cell",
    "Column",
    "Row",
    "Section",
    "Table",
    "fitted",
    "replace_file",
    "to_csv",
    "to_latex",
    "to_markdown",
    "to_rich",
    "write",
]

Value = TypeVar("Value", bound=str | float)

_LONGEST_NAME = 24  # that stays in one line on a narrow terminal


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    Parameters
    ----------
    value
        A text or a number. Nothing and NaN show as a dash.
    half
        Half the width of the interval of a number, shown after ±. Nothing and NaN do not show.
    bold
        Whether it stands out, as the best of its column may.
    form
        How the number and its half width are written, such as ``.3f``.

    Examples
    --------
    >>> Cell(0.81234, half=0.0101, form=".3f").text
    '0.812 ± 0.010'
    >>> Cell(1.5, half=0.25, form="+.1f").text
    '+1.5 ± 0.2'
    >>> Cell(float("nan")).text
    '-'
    """

    value: str | float | None = None
    half: float | None = None
    bold: bool = False
    form: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.value, str) and self.half is not None:
            raise InputError(f"the text {self.value!r} has a half width", fix="give one to numbers only")
        if (_known(self.half) or 0) < 0:
            raise InputError(f"the half width {self.half} is negative", fix="give half the width of the interval")
        try:
            _ = self.text
        except (TypeError, ValueError):
            fix = "use one of Python's, such as .3f for a number"
            raise InputError(f"{self.value!r} cannot be written in the form {self.form!r}", fix=fix) from None

    @property
    def text(self) -> str:
        """What is shown, in one line."""
        if _known(self.value) is None:
            return "-"
        spread = "" if _known(self.half) is None else f" ± {self.half:{self.form.lstrip('+')}}"
        return _in_one_line(f"{self.value:{self.form}}{spread}")


@dataclass(frozen=True)
class Column:
    """The head of a column.

    Parameters
    ----------
    name
        What the column holds.
    group
        What it has in common with its neighbours; shown above them all.
    align
        On which side its cells end.

    Examples
    --------
    >>> Column("accuracy", group="cold").full_name
    'cold accuracy'
    """

    name: str
    group: str = ""
    align: Literal["left", "right"] = "right"

    def __post_init__(self) -> None:
        if self.align not in ("left", "right"):
            raise InputError(f"a column cannot be aligned {self.align!r}", fix="choose 'left' or 'right'")

    @property
    def full_name(self) -> str:
        """Group and name together."""
        return _in_one_line(f"{self.group} {self.name}")


@dataclass(frozen=True)
class Section:
    """A heading between rows, such as the name of a dataset; it holds for the rows below it."""

    name: str


Row: TypeAlias = tuple[Cell, ...]
"""One cell for each column."""


@dataclass(frozen=True)
class Table:
    """What a table shows, whatever it is shown on.

    Parameters
    ----------
    title
        What the table is about.
    columns
        Its columns. No two may have both name and group in common.
    rows
        Its rows, and the sections that they belong to.
    note
        Where it is from: command, seeds, data. Each line stays a line.

    Examples
    --------
    >>> table = Table(
    ...     "Two models",
    ...     (Column("model", align="left"), Column("accuracy", "cold"), Column("accuracy", "warm")),
    ...     (
    ...         Section("dblp-easy"),
    ...         (Cell("sage"), Cell(0.61), Cell(0.64, half=0.01, bold=True)),
    ...         (Cell("mlp"), Cell(0.5), Cell()),
    ...     ),
    ...     note="evergraph run dblp-easy, seeds 0-4",
    ... )
    >>> print(to_markdown(table), end="")
    **Two models**
    <BLANKLINE>
    | model         | cold accuracy |   warm accuracy |
    | :------------ | ------------: | --------------: |
    | **dblp-easy** |               |                 |
    | sage          |          0.61 | **0.64 ± 0.01** |
    | mlp           |           0.5 |               - |
    <BLANKLINE>
    evergraph run dblp-easy, seeds 0-4
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row | Section, ...]
    note: str = ""

    def __post_init__(self) -> None:
        names = [column.full_name for column in self.columns]
        if not names:
            raise InputError("a table has no columns", fix="give it at least one")
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise InputError(f"two columns are called {twice[0]!r}", fix="give them different names or groups")
        for number, row in enumerate(self.rows, 1):
            if not isinstance(row, Section) and len(row) != len(names):
                problem = f"{len(row)} cells for {len(names)} columns"
                raise InputError(problem, fix="give one cell for each column", row=number)


def to_rich(table: Table) -> RichTable:
    """The table for a terminal. Where it does not fit, cells go on in the next line.

    Examples
    --------
    >>> from rich.console import Console
    >>> columns = (Column("model", align="left"), Column("F1", "cold"), Column("F1", "warm"))
    >>> Console(width=80).print(to_rich(Table("Models compared", columns, ((Cell("sage"), Cell(0.61), Cell(0.64)),))))
    Models compared
          cold warm
    model   F1   F1
    sage  0.61 0.64
    """
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(
        title=Text(_in_one_line(table.title), "bold") if table.title else None,
        title_justify="left",
        caption=Text("\n".join(_lines(table.note)), "dim") if table.note else None,
        caption_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    grouped = any(column.group for column in table.columns)
    cells = [cell for row in table.rows if not isinstance(row, Section) for cell in row]
    prose = any(isinstance(cell.value, str) and len(cell.text) > _LONGEST_NAME for cell in cells)
    for number, column in enumerate(table.columns):
        group = f"{_in_one_line(column.group)}\n" if grouped else ""
        head = Text(group + _in_one_line(column.name), no_wrap=False)
        texts = [row[number].text for row in table.rows if not isinstance(row, Section)]
        texts += [_in_one_line(row.name) for row in table.rows if isinstance(row, Section) and not number]
        # Names give way last: numbers in two lines are easier to read than names in two.
        keeps = column.align == "left" and max(map(len, texts), default=0) <= _LONGEST_NAME
        where: Literal["top", "bottom"] = "top" if prose else "bottom"
        shown.add_column(head, justify=column.align, vertical=where, overflow="fold", no_wrap=keeps)
    for row in table.rows:
        if isinstance(row, Section):
            if shown.row_count:
                shown.add_row()
            shown.add_row(Text(_in_one_line(row.name), "bold", justify="left", no_wrap=False))
        else:
            shown.add_row(*(Text(cell.text, "bold" if cell.bold else "", no_wrap=False) for cell in row))
    return shown


def fitted(table: Table, width: int) -> list[Table]:
    """The table as one or more that fit on a terminal, each with the first column and some of the others.

    Columns of a group stay together where they can. Only the first has the title and only the last the note.

    Examples
    --------
    >>> columns = (Column("model", align="left"), Column("one long name"), Column("another"))
    >>> table = Table("Models", columns, ((Cell("sage"), Cell(0.5, form=".10f"), Cell(0.25, form=".10f")),))
    >>> [len(part.columns) for part in fitted(table, 80)], [len(part.columns) for part in fitted(table, 20)]
    ([3], [2, 2])
    """
    widths = [_width(table, number) for number in range(len(table.columns))]
    groups = [list(members) for _, members in groupby(range(1, len(widths)), lambda n: table.columns[n].group or n)]
    parts: list[list[int]] = [[]]
    for members in groups:
        pieces = [members] if widths[0] + sum(widths[n] for n in members) <= width else [[n] for n in members]
        for piece in pieces:
            if parts[-1] and widths[0] + sum(widths[n] for n in (*parts[-1], *piece)) > width:
                parts.append([])
            parts[-1] += piece
    found = []
    for number, part in enumerate(parts):
        kept = [0, *part] if table.columns else []
        rows = tuple(row if isinstance(row, Section) else tuple(row[n] for n in kept) for row in table.rows)
        title, note = (table.title if number == 0 else ""), (table.note if number == len(parts) - 1 else "")
        found.append(Table(title, tuple(table.columns[n] for n in kept), rows, note))
    return found


def _width(table: Table, number: int) -> int:
    """Letters that a column needs on a terminal, with the space after it; heads and long names may wrap."""
    column = table.columns[number]
    cells = [len(row[number].text) for row in table.rows if not isinstance(row, Section)]
    if column.align == "left":
        cells = [min(length, _LONGEST_NAME) for length in cells]
    words = [len(word) for word in column.full_name.split()]
    return 1 + max([*cells, *words], default=0)


def to_markdown(table: Table) -> str:
    """The table as GitHub and MkDocs read it, with columns that line up in the source too.

    A group stands before each name (``cold accuracy``), a section is a row with its name in bold.
    """
    width = len(table.columns)
    lines = [[_markdown(column.full_name) for column in table.columns]]
    for row in table.rows:
        if isinstance(row, Section):
            lines.append([_emphasised(_markdown(_in_one_line(row.name)), "**{}**"), *[""] * (width - 1)])
        else:
            texts = ((_markdown(cell.text), cell.bold) for cell in row)
            lines.append([_emphasised(text, "**{}**") if bold else text for text, bold in texts])
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(width)]
    right = [column.align == "right" for column in table.columns]
    rule = [f"{'-' * (wide - 1)}:" if end else f":{'-' * (wide - 1)}" for wide, end in zip(widths, right, strict=True)]
    source = [
        [text.rjust(wide) if end else text.ljust(wide) for text, wide, end in zip(line, widths, right, strict=True)]
        for line in (lines[0], rule, *lines[1:])
    ]
    parts = [
        _emphasised(_markdown(_in_one_line(table.title)), "**{}**"),
        "\n".join(f"| {' | '.join(line)} |" for line in source),
        "  \n".join(_MARKDOWN_START.sub(r"\1\\\2", _markdown(line)) for line in _lines(table.note)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def to_latex(table: Table, label: str = "") -> str:
    r"""The table for a paper that uses the package ``booktabs``; its number is ``\ref{tab:...}``.

    Parameters
    ----------
    table
        What to show.
    label
        What follows ``tab:``. By default it is made from the title.

    Examples
    --------
    >>> columns = (Column("model", align="left"), Column("R&D", "cold"), Column("F1", "cold"))
    >>> print(to_latex(Table("A test", columns, ((Cell("sage"), Cell(-0.5), Cell()),))), end="")
    \begin{table}
      \centering
      \caption{A test}
      \label{tab:a-test}
      \begin{tabular}{@{}lrr@{}}
        \toprule
         & \multicolumn{2}{c}{cold} \\
        \cmidrule(lr){2-3}
        model & R\&D & F1 \\
        \midrule
        sage & $-$0.5 & -- \\
        \bottomrule
      \end{tabular}
    \end{table}
    """
    width = len(table.columns)
    slug = re.sub(r"[^a-z0-9]+", "-", (label or table.title).lower()).strip("-") or "table"
    body = [r"\toprule", *_latex_groups(table)]
    body += [" & ".join(_latex(_in_one_line(column.name)) for column in table.columns) + r" \\", r"\midrule"]
    for number, row in enumerate(table.rows):
        if isinstance(row, Section):
            body += [r"\addlinespace"] if number else []
            name = _emphasised(_latex(_in_one_line(row.name)), r"\textit{{{}}}")
            body.append(rf"\multicolumn{{{width}}}{{@{{}}l@{{}}}}{{{name}}} \\")
        else:
            body.append(" & ".join(map(_latex_cell, row)) + r" \\")
    body.append(r"\bottomrule")
    sides = "".join(column.align[0] for column in table.columns)
    note = "".join(f"{_latex(line)}\\par\n  " for line in _lines(table.note))
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_latex(_in_one_line(table.title))}}}",
        rf"  \label{{tab:{slug}}}",
        rf"  \begin{{tabular}}{{@{{}}{sides}@{{}}}}",
        *(f"    {line}" for line in body),
        r"  \end{tabular}",
        *([f"  \\par\\smallskip\n  {{\\footnotesize\\raggedright\n  {note}}}"] if note else []),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """The table for programs: one line of names, then one line for each row, its numbers unrounded.

    Where a column has half widths, they are a column of their own (``accuracy half``). If there are sections, their
    names are the first column. What is unknown is empty. There is no title and no note: nothing but the table is here.

    Examples
    --------
    >>> columns = (Column("model"), Column("F1", "cold"))
    >>> rows = (Section("dblp"), (Cell("sage"), Cell(2 / 3, half=0.01, form=".2f")), (Cell("mlp"), Cell()))
    >>> print(to_csv(Table("A test", columns, rows)), end="")
    section,model,cold F1,cold F1 half
    dblp,sage,0.6666666666666666,0.01
    dblp,mlp,,
    """
    rows = [row for row in table.rows if not isinstance(row, Section)]
    sections = len(rows) < len(table.rows)
    halves = [any(_known(row[i].half) is not None for row in rows) for i in range(len(table.columns))]
    head = ["section"] if sections else []
    for column, half in zip(table.columns, halves, strict=True):
        head += [column.full_name, f"{column.full_name} half"] if half else [column.full_name]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    section = ""
    for row in table.rows:
        if isinstance(row, Section):
            section = _in_one_line(row.name)
            continue
        line = [section] if sections else []
        for cell, half in zip(row, halves, strict=True):
            line += [_raw(cell.value), _raw(cell.half)] if half else [_raw(cell.value)]
        writer.writerow(line)
    return text.getvalue()


def write(table: Table, stem: str | Path) -> list[Path]:
    """Write a table as Markdown, LaTeX and CSV; the note is in the first two.

    Parameters
    ----------
    table
        What to write.
    stem
        The files without their ending. The folder is made if need be.

    Returns
    -------
    list of Path
        The files, ``stem.md``, ``stem.tex`` and ``stem.csv``.
    """
    stem = Path(stem)
    texts = {"md": to_markdown(table), "tex": to_latex(table, stem.name), "csv": to_csv(table)}
    return [replace_file(stem, kind, text.encode()) for kind, text in texts.items()]


def replace_file(stem: Path, kind: str, data: bytes) -> Path:
    """Write a file of some kind so that it is either what it was or whole; its folder is made if need be."""
    path = stem.with_name(f"{stem.name}.{kind}")  # a name such as c=0.5 keeps what is behind its dot
    new = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(data)
        new.replace(path)
    except OSError as error:
        raise EvergraphError(f"{path} could not be written ({error.strerror or error}).") from error
    return path


# --- text ------------------------------------------------------------------------------------------------------------


def _known(value: Value | None) -> Value | None:
    """The value, or nothing if it is NaN."""
    return None if value is None or (not isinstance(value, str) and math.isnan(value)) else value


def _raw(value: str | float | None) -> str:
    return "" if _known(value) is None else _in_one_line(str(value))


def _in_one_line(text: str) -> str:
    """Text without line breaks and other characters that no one sees."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _lines(text: str) -> list[str]:
    return [line for line in map(_in_one_line, text.splitlines()) if line]


def _emphasised(text: str, how: str) -> str:
    return how.format(text) if text else ""


# An underscore inside a word is no emphasis, and stays readable.
_MARKDOWN_SPECIAL = re.compile(r"[\\`*\[\]{|]|(?<![^\W_])_|_(?![^\W_])")
_MARKDOWN_START = re.compile(r"^(\d*)([#>+.)-])")


def _markdown(text: str) -> str:
    """Text that Markdown shows as it stands."""
    text = _MARKDOWN_SPECIAL.sub(r"\\\g<0>", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("~", "&#126;")  # not all know a backslash before ~


_LATEX = {
    **{letter: rf"\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "−": "$-$",
    "…": r"\ldots{}",
    # The end of a row would take these for an option of its own.
    **{letter: f"{{{letter}}}" for letter in "[]*"},
}


def _latex(text: str) -> str:
    """Text that LaTeX shows as it stands. Two hyphens, as options of commands have them, do not become a dash."""
    return re.sub("-(?=-)", "-{}", "".join(_LATEX.get(letter, letter) for letter in text))


def _latex_cell(cell: Cell) -> str:
    if _known(cell.value) is None:
        return "--"
    text = _latex(cell.text)
    if not isinstance(cell.value, str):
        text = text.replace("-", "$-$")
    return _emphasised(text, r"\textbf{{{}}}") if cell.bold else text


def _latex_groups(table: Table) -> Iterator[str]:
    """The groups above the names, with a rule below each."""
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
        yield " & ".join(cells) + r" \\"
        yield " ".join(rules)
