"""Texts made safe: control characters on a terminal, formulas in a spreadsheet, words of a shell command; plurals."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SAFE_COLUMN = "spreadsheet_safe"
"""A CSV file with this column has an apostrophe before cells that a spreadsheet would run."""

# Spaces of other widths, and joiners that some scripts and emojis need.
_HARMLESS = frozenset("\u00a0\u2009\u202f\u3000\u200c\u200d")
# Spreadsheets skip spaces before a formula, and some take full-width signs for the usual ones.
_RUN = re.compile(r"'*(\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n])")
_NUMBER = re.compile(r"-[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def visible(text: str, *, lines: bool = False) -> str:
    r"""Escape what a terminal would obey or hide, such as escape sequences, C1 codes and changes of direction.

    ``lines`` keeps the ends of lines, for messages of several lines.

    Examples
    --------
    >>> visible("\x1b[2J \x9b31m \u202eb\ta")
    '\\x1b[2J \\x9b31m \\u202eb\\ta'
    """
    kept = _HARMLESS | {"\n"} if lines else _HARMLESS
    return _escaped(text, kept, lambda letter: repr(letter)[1:-1])


def visible_json(text: str) -> str:
    """Escape in JSON what `visible` escapes. The values stay the same."""
    return _escaped(text, _HARMLESS | {"\n"}, lambda letter: json.dumps(letter)[1:-1].replace("\x7f", "\\u007f"))


def _escaped(text: str, kept: frozenset[str], escape: Any) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in kept else escape(letter) for letter in text)


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun in the singular or the plural.

    Examples
    --------
    >>> counted(1, "label"), counted(1_200, "vertex", "vertices")
    ('1 label', '1,200 vertices')
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def command_line(*words: object, names: Iterable[str] = ()) -> str:
    """Return a command of Evergraph as you type it in a shell; ``names`` are arguments that may start with a dash.

    Examples
    --------
    >>> command_line("ws", "label", Path("my ws"), "--labels", Path("-new.csv"))
    "evergraph ws label 'my ws' --labels ./-new.csv"
    >>> command_line("ws", "classes", "retire", Path("ws"), names=["-x"])
    'evergraph ws classes retire ws -- -x'
    """
    plain = [f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word) for word in words]
    last = list(names)
    between = ["--"] if any(name.startswith("-") for name in last) else []
    return shlex.join(["evergraph", *plain, *between, *last])


def spreadsheet_safe(cell: Any) -> Any:
    """Put an apostrophe before a text that a spreadsheet would run as a formula; numbers stay numbers.

    A text of apostrophes before such a character gets one more, so that `spreadsheet_original` can undo it.

    Examples
    --------
    >>> [spreadsheet_safe(cell) for cell in ("=cmd()", "'=a", "-1.5", -1.5, "a-b", None)]
    ["'=cmd()", "''=a", '-1.5', -1.5, 'a-b', None]
    """
    runs = isinstance(cell, str) and _RUN.match(cell) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if runs else cell


def spreadsheet_original(cell: str | None) -> str | None:
    """Undo `spreadsheet_safe`."""
    return cell[1:] if cell and cell[0] == "'" and _RUN.match(cell) else cell


def csv_text(names: Sequence[str], rows: Iterable[Iterable[Any]], *, raw: bool = False) -> str:
    r"""Return a table as CSV, without cells that a spreadsheet would run unless ``raw``.

    If cells were changed, a last column says so, so that `evergraph.datasets.tables.read_ids` restores them.

    Examples
    --------
    >>> csv_text(["id", "n"], [["=a", 1]])
    "id,n,spreadsheet_safe\n'=a,1,yes\n"
    """
    lines = [list(names), *map(list, rows)]
    safe = lines if raw else [list(map(spreadsheet_safe, line)) for line in lines]
    if safe != lines:
        safe = [[*line, "yes" if number else SAFE_COLUMN] for number, line in enumerate(safe)]
    text = io.StringIO()
    # With this line end csv quotes cells with \r too; the text itself has plain line ends.
    rows_as_text = SimpleNamespace(write=lambda row: text.write(f"{row[:-2]}\n"))
    csv.writer(rows_as_text, lineterminator="\r\n").writerows(safe)
    return text.getvalue()
