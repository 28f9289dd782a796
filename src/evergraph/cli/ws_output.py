"""Tables and files that the commands ``evergraph ws`` write."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.table import Table
from rich.text import Text

from evergraph.errors import InputError
from evergraph.graph.classes import UNSEEN
from evergraph.names import inputs_in_words
from evergraph.presentation.table import Cell, Column, to_rich
from evergraph.presentation.table import Table as ResultTable
from evergraph.presentation.text import counted, csv_text, visible
from evergraph.workspace.store import recent_versions

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console, JustifyMethod

    from evergraph.workspace.review import FlaggedVertex, ReviewGroup
    from evergraph.workspace.scores import ClassRow, SliceScores, Status
    from evergraph.workspace.store import LogEntry

_Row = TypeVar("_Row")
_CSV, _PARQUET = ".csv", ".parquet"

_EARLIER = "not known: an earlier model decided; run ws predict again"
_MOST_DECISIONS = 20
_MOST_LINES = 40
_MOST_CLASSES = 4
_MOST_GROUPS = 10


# --- tables ----------------------------------------------------------------------------------------------------------


def show_decisions(to: Console, table: pa.Table, *, brief: bool) -> None:
    """Print how many vertices were decided and flagged and, unless brief, the first decisions."""
    from evergraph.analysis.explain import in_words

    decided, models = table.column("class").to_pylist(), table.column("model").to_pylist()
    times = dict.fromkeys(map(str, table.column("time").to_pylist()))
    vertices = counted(len(decided), "vertex", "vertices")
    to.print(
        Text(f"{decided.count(UNSEEN):,} of {vertices} of {', '.join(times)} flagged as {UNSEEN} by model {models[0]}")
    )
    if brief:
        return
    to.print()
    rows = table.slice(0, _MOST_DECISIONS).to_pylist()
    widths = [
        min(most, max(len(visible(str(row[name]))) for row in rows)) for name, most in (("id", 16), ("class", 20))
    ]
    left = max(to.width - sum(widths) - 21, 20)  # the rest is for numbers and gaps
    shown = _table("id", "class", "score:", "if known:", "nearest classes", "neighbours")
    for row in rows:
        _add(
            shown,
            _cut(str(row["id"]), widths[0]),
            _cut(row["class"], widths[1]),
            f"{row['score']:.3f}",
            f"{row['probability']:.3f}",
            _cut(in_words(row["nearest"]), left - left // 2),
            _cut(in_words(row["neighbours"]) or "none", left // 2),
        )
    to.print(shown)
    more = len(decided) - len(rows)
    to.print(f"and {more:,} more; --out FILE writes all, in full\n" if more else "")


def show_status(to: Console, folder: Path, found: Status, last: SliceScores | None) -> None:
    """Print the status of a workspace."""
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    lag = f", {counted(found.label_lag, 'period')} before the newest" if found.label_lag else ""
    rows = {
        "workspace": f"{folder}, version {found.version}; you can restore versions from {found.kept}",
        "tags": ", ".join(f"{name} (version {version})" for name, version in found.tags.items()),
        "graph": f"{counted(found.vertices, 'vertex', 'vertices')} ({found.labelled:,} labelled) and "
        f"{counted(found.edges, 'edge')}, {found.first_time} to {found.last_time}",
        "history": found.history_why.removeprefix("history of "),
        "labels": "none to train on" if found.last_labelled is None else f"up to {found.last_labelled}{lag}",
        "model": f"{found.model}, {found.model_restart}: {found.model_why}",
        "inputs": inputs_in_words(found.inputs),
        "classes": f"{found.classes:,} known to the model",
        "retired": ", ".join(found.retired),
        "waiting": f"{counted(found.fresh_labels, 'label')} to train on, "
        f"{counted(found.undecided, 'vertex', 'vertices')} to predict, {found.to_review:,} to review",
        "scores": "" if last is None else _describe(last),
        "warning": "\n".join(found.warnings),
    }
    for name, text in rows.items():
        if text:
            _add(facts, name, text)
    to.print(facts)


def _describe(row: SliceScores) -> str:
    return (
        f"{row.time}, with {row.labelled:,} of {counted(row.decided, 'label')}: accuracy {_number(row.accuracy)}, "
        f"Open-F1 {_number(row.open_f1)}, MCC {_number(row.mcc)}; {row.flagged:.1%} flagged as {UNSEEN}, "
        f"{_number(row.unseen, '.1%')} truly {UNSEEN}"
    )


def show_scores(to: Console, found: Sequence[SliceScores]) -> None:
    """Print the scores of the slices, the newest last."""
    if not found:
        to.print("There are no decisions yet, so there are no scores.")
        return
    # All fit 80 columns with months as times; with days and a million vertices, to_rich leaves out the last ones.
    heads = ("time", "decided", "labels", "accuracy", "Open-F1", "MCC", "flagged", "unseen %", "drift", "late", "model")
    rows = tuple(
        (
            Cell(str(row.time)),
            *(Cell(count, form=",") for count in (row.decided, row.labelled)),
            *(Cell(value, form=".3f") for value in (row.accuracy, row.open_f1, row.mcc)),
            *(Cell(share, form=".1%") for share in (row.flagged, row.unseen)),
            Cell(row.drift, form=".2f"),
            Cell(row.latency, form=".1f"),
            Cell(",".join(map(str, row.models)) if len(row.models) < 3 else f"{row.models[0]}-{row.models[-1]}"),
        )
        for row in _newest(to, found, "slices")
    )
    to.print(to_rich(ResultTable("", tuple(map(Column, heads)), rows), to.width))
    to.print(
        "\nThe last decision before the label counts. flagged: share flagged as unseen; unseen %: share whose class "
        "the model did not know; drift: change of the class distribution (0 to 1); late: label latency in periods."
    )


def show_groups(to: Console, groups: Sequence[ReviewGroup], total: int, *, only: int | None = None) -> None:
    """Print the groups of flagged vertices, or one of them."""
    shown = groups[:_MOST_GROUPS] if only is None else groups[only - 1 : only]
    if not shown:
        return
    several = len({group.time for group in groups}) > 1
    left = max(to.width - (27 if several else 22), 30)  # the rest is for numbers and gaps
    table = _table("group:", "size:", "edges:", *(["time:"] if several else []), "words", "examples")
    for group in shown:
        such = (f"{id} ({what})" if what else str(id) for id, what in group.examples)
        _add(
            table,
            str(group.number),
            f"{group.size:,}",
            f"{group.edges:,}",
            *([str(group.time)] if several else []),
            ", ".join(group.terms) or "-",
            Text("\n".join(_cut(text, left - left // 2) for text in such)),
        )
    to.print(table)
    if only is None:
        more = len(groups) - len(shown)
        smaller = f"and {counted(more, 'smaller group')} (--json shows all); " if more else ""
        alone = total - sum(group.size for group in groups)
        to.print(f"{smaller}{counted(alone, 'vertex', 'vertices')} in no group")
    to.print()


def show_review(
    to: Console, rows: Sequence[FlaggedVertex], total: int, *, group: int | None = None, why: bool = False
) -> None:
    """Print flagged vertices, or those of one group."""
    from evergraph.analysis.explain import in_words, shortened

    if not rows:
        to.print("No unlabelled vertex is flagged as unseen.")
        return
    for row in rows:
        belongs = "no group" if row.group is None else f"group {row.group}"
        to.print(Text(visible(f"{row.id}, {row.time}, score {row.score:.3f}, {belongs}"), style="bold"))
        table = Table(show_header=False, box=None, padding=(0, 1, 0, 2))
        table.add_column(no_wrap=True)
        table.add_column()
        if row.text is not None:
            _add(table, "text", shortened(row.text))
        elif row.words:
            _add(table, "words", ", ".join(row.words))
        _add(table, "nearest class", f"{row.best} {row.probability:.2f}, if known")
        most = in_words(row.neighbours[:_MOST_CLASSES])
        left = sum(count for _, count in row.neighbours[_MOST_CLASSES:])
        _add(table, "neighbours", (f"{most}, others {left:,}" if left else most) or "none")
        if why:
            reasons = None if row.because is None else ", ".join(one.in_words for one in row.because)
            _add(table, "because of", _EARLIER if reasons is None else reasons or "no word, category or class")
        to.print(table)
    more = f"; {len(rows):,} shown (more: --limit N; all: --out FILE)" if total > len(rows) else ""
    which = "to review" if group is None else f"in group {group}"
    to.print(f"\n{counted(total, 'vertex', 'vertices')} {which}{more}")


def show_log(to: Console, entries: Sequence[LogEntry], kept: Sequence[int], rollback: str) -> None:
    """Print the commands, the newest last, and how to restore a version."""
    rows = _newest(to, entries, "commands")
    table = _table("version:", "when (UTC)", "command", "what")
    for entry in rows:
        what = f"[{', '.join(entry.tags)}] {entry.what}" if entry.tags else entry.what
        what = f"{what} (by {entry.who})" if entry.who else what
        _add(table, str(entry.version), entry.when[:16].replace("T", " "), entry.command, what)
    to.print(table)
    recent = recent_versions(kept)[0]
    tags = ", ".join(name for entry in entries if entry.version < recent for name in entry.tags)
    if len(kept) > 1:
        also = f" and those with the tag {tags}" if tags else ""
        to.print(Text(f"\nYou can restore versions from {recent}{also}: {visible(rollback)}"), soft_wrap=True)


def show_tags(to: Console, entries: Sequence[LogEntry]) -> None:
    """Print the tagged versions."""
    table = _table("tag", "version:", "when (UTC)", "command", "what")
    for entry in entries:
        for tag in entry.tags:
            _add(table, tag, str(entry.version), entry.when[:16].replace("T", " "), entry.command, entry.what)
    to.print(table)


def show_settings(to: Console, settings: Mapping[str, Any], pending: Sequence[str], inputs: Sequence[str]) -> None:
    """Print the settings of a workspace; those that are pending apply from the next update on.

    ``inputs`` are the blocks that the model reads now.
    """
    from evergraph.workspace.settings import in_words

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in settings.items():
        text = in_words(value) + (", from the next update on" if name in pending else "")
        if name == "inputs" and (value == "auto" or name in pending):
            text += f" (the model reads: {inputs_in_words(inputs)})"
        _add(table, name, text)
    to.print(table)


def show_classes(to: Console, found: Sequence[ClassRow]) -> None:
    """Print the classes, in the order in which they became known."""
    table = _table("class", "first:", "last:", "vertices:", "")
    for row in found:
        note = "retired" if row.retired else "" if row.known else "unknown to the model"
        ends = ("-" if time is None else str(time) for time in (row.first, row.last))
        _add(table, row.name, *ends, f"{row.support:,}", note)
    to.print(table)


def _newest(to: Console, rows: Sequence[_Row], what: str) -> Sequence[_Row]:
    if len(rows) > _MOST_LINES:
        to.print(f"The last {_MOST_LINES} of {len(rows):,} {what} (--json shows all)")
    return rows[-_MOST_LINES:]


def _table(*heads: str) -> Table:
    """Return an empty table; columns of numbers have a colon after their name."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for head in heads:
        is_number = head.endswith(":")
        justify: JustifyMethod = "right" if is_number else "left"
        table.add_column(head.removesuffix(":"), justify=justify, no_wrap=is_number, overflow="fold")
    return table


def _add(table: Table, *cells: str | Text) -> None:
    """Add a row of plain text, in which brackets are not markup and control characters are escaped."""
    table.add_row(*((Text(visible(cell)) if isinstance(cell, str) else cell) for cell in cells))


def _cut(text: str, width: int) -> str:
    text = visible(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _number(value: float | None, form: str = ".3f") -> str:
    return "-" if value is None else f"{value:{form}}"


# --- files -----------------------------------------------------------------------------------------------------------


def check_out(out: Path | None, *, replace: bool, parquet: bool = True) -> None:
    """Refuse a file that could not be written, before anything is done."""
    if out is None:
        return
    suffixes = [_CSV, _PARQUET] if parquet else [_CSV]
    if out.suffix.lower() not in suffixes:
        raise InputError(
            "this file format is not known", file=out, fix=f"use a name that ends in {' or '.join(suffixes)}"
        )
    if out.is_dir():
        raise InputError("this is a folder, not a file", file=out, fix="give a file in it")
    if not out.parent.is_dir():
        raise InputError("this folder does not exist", file=out.parent, fix="create it, or choose another")
    if out.exists() and not replace:
        raise InputError("this file exists already", file=out, fix="choose another name, or give --replace")


def write_table(out: Path, table: pa.Table, *, raw: bool = False) -> None:
    """Write a table as CSV or Parquet, depending on the file's name; atomic. ``raw`` is for CSV: see `_write_csv`."""
    if out.suffix.lower() == _CSV:
        from evergraph.analysis.explain import in_words

        columns = [
            list(map(in_words, column.to_pylist())) if name in ("nearest", "neighbours") else column.to_pylist()
            for name, column in zip(table.column_names, table.columns, strict=True)
        ]
        _write_csv(out, table.column_names, zip(*columns, strict=True), raw)
        return
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    _write(out, buffer.getvalue())


def write_review(
    out: Path, rows: Sequence[FlaggedVertex], id_column: str, label_column: str, *, raw: bool = False
) -> None:
    """Write flagged vertices as CSV with an empty column for labels, under the names that ws label reads."""
    from evergraph.analysis.explain import in_words

    texts, why = (any(getattr(row, name) is not None for row in rows) for name in ("text", "because"))
    heads = [
        "time",
        "score",
        "best",
        "probability",
        *(["text"] if texts else []),
        "words",
        "neighbours",
        *(["because_of"] if why else []),
        "model",
        "group",
    ]
    others = [f"{name}_" if name in (id_column, label_column) else name for name in heads]
    cells = (
        (
            row.id,
            row.time,
            row.score,
            row.best,
            row.probability,
            *([row.text or ""] if texts else []),
            ", ".join(row.words),
            in_words(row.neighbours),
            *([", ".join(one.in_words for one in row.because or ())] if why else []),
            row.model,
            row.group,
            "",
        )
        for row in rows
    )
    _write_csv(out, [id_column, *others, label_column], cells, raw)


def _write_csv(out: Path, names: Sequence[str], rows: Iterable[Iterable[Any]], raw: bool) -> None:
    _write(out, csv_text(names, rows, raw=raw).encode())


def _write(out: Path, data: bytes) -> None:
    from evergraph.storage.files import write_atomic

    try:
        write_atomic(out, data)
    except BaseException:
        out.with_name(f"{out.name}.new").unlink(missing_ok=True)
        raise
