"""Tables in all their forms, read back by other means than wrote them."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from evergraph.errors import EvergraphError
from evergraph.presentation.table import Cell, Column, Section, Table, to_csv, to_latex, to_markdown, to_rich, write
from evergraph.presentation.text import spreadsheet_original

NOTE = "evergraph run dblp-easy --history 3 --seeds 0-4\nMeans over 5 seeds; ± 95 % interval"
TABLE = Table(
    "Accuracy & open F1",
    (
        Column("model", align="left"),
        Column("accuracy", "cold"),
        Column("open F1", "cold"),
        Column("accuracy", "warm"),
        Column("seconds"),
    ),
    (
        Section("dblp-easy"),
        (
            Cell("as_published"),
            Cell(2 / 3, half=0.0123, form=".3f"),
            Cell(),
            Cell(0.75, bold=True, form=".2f"),
            Cell(1234, form=","),
        ),
        (Cell("a|b*"), Cell(-0.5, form=".3f"), Cell(0.25, half=math.nan), Cell(math.nan, math.nan), Cell(7)),
        Section("c=3"),
        (Cell("mlp"), Cell(0.1, half=0.2, bold=True, form=".1f"), Cell(None, bold=True), Cell(1), Cell("n/a")),
    ),
    NOTE,
)
SHOWN = [  # the rows as people read them, a section by its name alone
    ["dblp-easy"],
    ["as_published", "0.667 ± 0.012", "-", "0.75", "1,234"],
    ["a|b*", "-0.500", "0.25", "-", "7"],
    ["c=3"],
    ["mlp", "0.1 ± 0.2", "-", "1", "n/a"],
]
NAMES = ["model", "cold accuracy", "cold open F1", "warm accuracy", "seconds"]

texts = st.text(st.characters(codec="utf-8") | st.sampled_from("\\`*_{}[]()#+-.!|&<>~^$%\n \"'±"), max_size=30)


def in_one_line(text: str) -> str:
    words = (
        "".join(letter if letter.isprintable() or letter in "\u200c\u200d" else repr(letter)[1:-1] for letter in word)
        for word in text.split()
    )
    return " ".join(words)


# --- Markdown --------------------------------------------------------------------------------------------------------


def cells_of(source: str) -> list[list[tuple[str, bool]]]:
    """The text of each cell that a reader of GitHub's Markdown sees, and whether it is bold; the head first."""
    rows: list[list[tuple[str, bool]]] = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(source):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows and token.level > 2:
            parts = token.children or []
            text = "".join(part.content for part in parts)
            assert {part.type for part in parts} <= {"text", "strong_open", "strong_close", "text_special"}, token
            rows[-1].append((text, any(part.type == "strong_open" for part in parts)))
    return rows


def test_markdown_is_read_back_as_it_was_meant() -> None:
    head, *rows = cells_of(to_markdown(TABLE))
    assert [text for text, _ in head] == NAMES
    for row, shown in zip(rows, SHOWN, strict=True):
        assert [text for text, _ in row] == shown + [""] * (len(NAMES) - len(shown))
    bold = {(i, j) for i, row in enumerate(rows) for j, (_, is_bold) in enumerate(row) if is_bold}
    assert bold == {(0, 0), (1, 3), (3, 0), (4, 1), (4, 2)}


def test_markdown_lines_up_and_has_title_and_note() -> None:
    source = to_markdown(TABLE)
    lines = [line for line in source.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1
    # Bars of the table, not those of a text.
    assert len({tuple(bar.start() for bar in re.finditer(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert re.fullmatch(r"\| :-+ (\| -+: ){4}\|", lines[1])
    assert source.startswith("**Accuracy &amp; open F1**\n\n|")
    assert source.endswith(
        "|\n\nevergraph run dblp-easy --history 3 --seeds 0-4  \nMeans over 5 seeds; ± 95 % interval\n"
    )


@given(texts, texts, texts)
def test_any_text_stands_in_markdown_as_it_is(name: str, value: str, note: str) -> None:
    source = to_markdown(Table("t", (Column(name), Column("y", name)), ((Cell(value), Cell(1)), Section(value)), note))
    rows = cells_of(source)
    assert [[text for text, _ in row] for row in rows] == [
        [in_one_line(name), in_one_line(f"{name} y")],
        [in_one_line(value), "1"],
        [in_one_line(value), ""],
    ]
    after = MarkdownIt("commonmark").parse(source.rpartition("|\n")[2])
    assert [token.type for token in after] in ([], ["paragraph_open", "inline", "paragraph_close"])


# --- LaTeX -----------------------------------------------------------------------------------------------------------

# What may stand for one letter, and for which.
LATEX = {
    **{rf"\{letter}": letter for letter in "&%$#_{}"},
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"\ldots{}": "…",
    r"$\pm$": "±",
    r"$\times$": "×",
    r"$\leq$": "≤",
    r"$\geq$": "≥",
    "$-$": "−",
    **{f"{{{letter}}}": letter for letter in "[]*"},
    "-{}": "-",
}
LATEX_TOKEN = re.compile("|".join(re.escape(token) for token in LATEX) + r"|[^\\&%$#_{}~^\[\]*]")


def read_latex(source: str) -> str:
    """The text that LaTeX shows; fails where a letter that means something to LaTeX stands bare."""
    text, place = "", 0
    while place < len(source):
        token = LATEX_TOKEN.match(source, place)
        assert token, source[place:]
        assert not source.startswith("--", place), "would become a dash"
        text, place = text + LATEX.get(token[0], token[0]), token.end()
    return text


def columns_of(line: str) -> int:
    """How many columns a row fills."""
    spans = [int(span) for span in re.findall(r"\\multicolumn\{(\d+)\}", line)]
    return len(re.findall(r"(?<!\\)&", line)) + 1 + sum(span - 1 for span in spans)


def test_latex_has_the_rows_rules_and_groups() -> None:
    source = to_latex(TABLE)
    lines = [line.strip() for line in source.splitlines()]
    rows = [line for line in lines if line.endswith(r"\\")]
    assert [columns_of(row) for row in rows] == [5] * 7
    assert rows[0] == r"& \multicolumn{2}{c}{cold} & \multicolumn{1}{c}{warm} &  \\"
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}" in lines
    assert rows[1] == r"model & accuracy & open F1 & accuracy & seconds \\"
    assert rows[2] == r"\multicolumn{5}{@{}l@{}}{\textit{dblp-easy}} \\"
    assert rows[3] == r"as\_published & 0.667 $\pm$ 0.012 & -- & \textbf{0.75} & 1,234 \\"
    assert rows[4] == r"a\textbar{}b{*} & $-$0.500 & 0.25 & -- & 7 \\"
    assert rows[6] == r"mlp & \textbf{0.1 $\pm$ 0.2} & -- & 1 & n/a \\"
    assert [lines.count(rule) for rule in (r"\toprule", r"\midrule", r"\addlinespace", r"\bottomrule")] == [1] * 4
    assert r"\caption{Accuracy \& open F1}" in lines
    assert r"\label{tab:accuracy-open-f1}" in lines
    assert r"evergraph run dblp-easy -{}-history 3 -{}-seeds 0-4\par" in lines
    assert r"Means over 5 seeds; $\pm$ 95 \% interval\par" in lines


def test_latex_closes_what_it_opens() -> None:
    source = to_latex(TABLE)
    depth = np.cumsum([(c == "{") - (c == "}") for c in re.sub(r"\\[{}]", "", source)])
    assert depth.min() == 0 == depth[-1]
    for environment in ("table", "tabular"):
        assert source.count(rf"\begin{{{environment}}}") == 1 == source.count(rf"\end{{{environment}}}")


@given(texts, texts, texts, st.booleans())
def test_any_text_stands_in_latex_as_it_is(title: str, value: str, note: str, bold: bool) -> None:
    columns = (Column("x", value), Column("y"))
    source = to_latex(Table(title, columns, (Section(value), (Cell(value, bold=bold), Cell("end"))), note))
    lines = [line.strip() for line in source.split("\n")]
    shown = in_one_line(value)

    def only(start: str, end: str) -> str:
        found = [line[len(start) : -len(end)] for line in lines if line.startswith(start) and line.endswith(end)]
        assert len(found) == 1, (start, found)
        return found[0]

    assert read_latex(only(r"\caption{", "}")) == in_one_line(title)
    assert re.fullmatch(r"\\label\{tab:[a-z0-9-]+\}", next(line for line in lines if line.startswith(r"\label")))
    section = only(r"\multicolumn{2}{@{}l@{}}{", r"} \\")
    row = only("", r"& end \\").strip()
    if shown:
        assert section.startswith(r"\textit{")
        assert read_latex(section[len(r"\textit{") : -1]) == shown
        assert read_latex(only(r"\multicolumn{1}{c}{", r"} &  \\")) == shown
        assert read_latex(row[len(r"\textbf{") : -1] if bold else row) == shown
    else:
        assert section == row == ""
    wanted = [line for line in map(in_one_line, note.splitlines()) if line]
    assert [read_latex(line.removesuffix(r"\par")) for line in lines if line.endswith(r"\par")] == wanted


# --- CSV -------------------------------------------------------------------------------------------------------------


def test_csv_keeps_every_digit() -> None:
    head, *rows = csv.reader(io.StringIO(to_csv(TABLE)))
    assert head == ["section", "model", "cold accuracy", "cold accuracy half", *NAMES[2:]]
    assert rows == [
        ["dblp-easy", "as_published", str(2 / 3), "0.0123", "", "0.75", "1234"],
        ["dblp-easy", "a|b*", "-0.5", "", "0.25", "", "7"],
        ["c=3", "mlp", "0.1", "0.2", "", "1", "n/a"],
    ]


def test_csv_has_no_sections_and_halves_where_there_are_none() -> None:
    assert to_csv(Table("t", (Column("x"), Column("y", "g")), ((Cell(np.float64(0.5)), Cell(1)),))) == "x,g y\n0.5,1\n"


@given(st.lists(st.tuples(texts, st.floats() | st.none()), max_size=4))
def test_csv_is_read_back(values: list[tuple[str, float | None]]) -> None:
    table = Table("t", (Column("x"), Column("y")), tuple((Cell(text), Cell(number)) for text, number in values))
    _, *rows = csv.reader(io.StringIO(to_csv(table)))
    assert not any(text.startswith(("=", "+", "@")) for text, _ in rows)
    assert [spreadsheet_original(text) for text, _ in rows] == [in_one_line(text) for text, _ in values]
    for (_, read), (_, number) in zip(rows, values, strict=True):
        assert read == "" if number is None or math.isnan(number) else float(read) == number


# --- terminal --------------------------------------------------------------------------------------------------------


def on_terminal(table: Table, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(to_rich(table, width))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_terminal_shows_everything() -> None:
    lines = [line.rstrip() for line in on_terminal(TABLE).splitlines()]
    assert lines[0] == TABLE.title
    assert lines[1].split() == ["cold", "cold", "warm"]
    assert lines[2].split() == ["model", "accuracy", "open", "F1", "accuracy", "seconds"]
    found = [re.split(r"(?<!±) +(?!±)", line) for line in lines[3:9] if line]
    assert found == SHOWN
    assert " ".join(lines[9:]) == " ".join(NOTE.split("\n"))


def test_nine_narrow_columns_fit_a_terminal() -> None:
    names = ["accuracy", "open F1", "MCC", "seconds"]
    columns = (Column("model", align="left"), *(Column(name, group) for group in ("cold", "warm") for name in names))
    rows = tuple(
        (Cell(model), *(Cell(0.1 + i / 7, form=".3f") for i in range(8))) for model in ("GraphSAGE", "most-frequent")
    )
    text = on_terminal(Table("Two models", columns, (Section("dblp-hard"), *rows)))
    lines = text.splitlines()
    assert "…" not in text
    assert max(map(len, lines)) <= 80
    assert len(lines) == 6, "each row in one line"
    for line, row in zip(lines[-2:], rows, strict=True):
        assert line.split() == [cell.text for cell in row]


@pytest.mark.parametrize("width", [24, 40, 60, 80])
def test_a_narrow_terminal_drops_the_last_columns_and_says_so(width: int) -> None:
    numbers = tuple(Column(f"x{i}") for i in range(6))
    row = (Cell("most-frequent"), *(Cell(0.099, half=0.208, form=".3f") for _ in range(6)))
    text = on_terminal(Table("t", (Column("model", align="left"), *numbers), (row,)), width)
    assert max(map(len, text.splitlines())) <= max(width, 28)
    fits = max(1, (width + 1 - 14) // 14)
    assert text.count("0.099 ± 0.208") == text.count("0.099") == text.count("0.208") == min(6, fits)
    dropped = "; ".join(column.name for column in numbers[fits:])
    assert " ".join(text.split()).endswith(f"Not shown at this width: {dropped}" if dropped else "0.208")


def test_heads_of_several_words_are_not_broken() -> None:
    names = ("MCC", "Open-F1", "AUROC", "AUPR", "FPR@95", "oracle MCC", "false alarms", "flagged", "ID accuracy")
    row = (Cell("relative-energy"), *(Cell(0.5, form=".3f") for _ in names))
    lines = on_terminal(Table("", (Column("detector", align="left"), *map(Column, names)), (row,))).splitlines()
    assert lines[0].split() == ["detector", *" ".join(names[:-1]).split()]
    assert lines[1].split() == ["relative-energy", *["0.500"] * 8]
    assert max(map(len, lines)) <= 80
    assert "Not shown at this width: ID accuracy" in "\n".join(lines)


def test_long_texts_wrap_and_lose_nothing() -> None:
    words = " ".join(f"word{i}" for i in range(30))
    text = on_terminal(Table("t", (Column("claim", align="left"), Column("x")), ((Cell(words), Cell(0.5, 0.1)),)), 40)
    assert max(map(len, text.splitlines())) <= 40
    assert "0.5 ± 0.1" in text
    assert all(word in text for word in words.split())
    assert "Not shown" not in text


def test_terminal_takes_no_text_for_markup() -> None:
    assert "[bold]x[/bold]" in on_terminal(Table("t", (Column("a"),), ((Cell("[bold]x[/bold]"),),)))


# --- making and writing tables ---------------------------------------------------------------------------------------


def test_a_table_is_written_in_three_ways(tmp_path: Path) -> None:
    stem = tmp_path / "new" / "c=0.5"
    for _ in range(2):  # the second time over the first
        paths = write(TABLE, stem)
    assert [path.name for path in paths] == ["c=0.5.md", "c=0.5.tex", "c=0.5.csv"]
    assert {*stem.parent.iterdir()} == {*paths}
    texts = [path.read_bytes().decode() for path in paths]
    assert texts == [to_markdown(TABLE), to_latex(TABLE, "c=0.5"), to_csv(TABLE)]
    assert r"\label{tab:c-0-5}" in texts[1]
    (tmp_path / "file").touch()
    with pytest.raises(EvergraphError, match="could not be written"):
        write(TABLE, tmp_path / "file" / "table")
