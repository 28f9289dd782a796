"""What a workspace shows people: tables that fit a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.table import Table
from rich.text import Text

from evergraph.cli.ws_common import typed
from evergraph.graph.classes import UNSEEN
from evergraph.workspace.change import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console, JustifyMethod

    from evergraph.workspace.classes import ClassRow
    from evergraph.workspace.decisions import ReviewRow
    from evergraph.workspace.groups import ReviewGroup
    from evergraph.workspace.scores import SliceScores
    from evergraph.workspace.status import Status
    from evergraph.workspace.store import Entry

_Row = TypeVar("_Row")

_MOST_DECISIONS = 20
_MOST_LINES = 40
_MOST_CLASSES = 4
_MOST_GROUPS = 10


def show_decisions(to: Console, table: pa.Table, *, brief: bool) -> None:
    """The first decisions, or only how many there are."""
    classes, models = table.column("class").to_pylist(), table.column("model").to_pylist()
    times = dict.fromkeys(map(str, table.column("time").to_pylist()))
    to.print(
        Text(
            f"{counted(len(classes), 'vertex', 'vertices')} of {', '.join(times)} decided by model {models[0]}, "
            f"{classes.count(UNSEEN):,} of them {UNSEEN}"
        )
    )
    if brief:
        return
    to.print()
    rows = table.slice(0, _MOST_DECISIONS).to_pylist()
    widths = [min(most, max(len(str(row[name])) for row in rows)) for name, most in (("id", 16), ("class", 20))]
    left = max(to.width - sum(widths) - 18, 20)  # the rest is taken by numbers and gaps
    shown = _table("id", "class", "score:", "prob.:", "nearest classes", "neighbours")
    for row in rows:
        _add(
            shown,
            _cut(str(row["id"]), widths[0]),
            _cut(row["class"], widths[1]),
            f"{row['score']:.3f}",
            f"{row['probability']:.3f}",
            _cut(row["nearest"], left - left // 2),
            _cut(row["neighbours"] or "none", left // 2),
        )
    to.print(shown)
    more = len(classes) - len(rows)
    to.print(f"and {more:,} more; --out FILE writes all, in full\n" if more else "")


def show_status(to: Console, folder: Path, found: Status, last: SliceScores | None, following: str) -> None:
    """Where a workspace stands."""
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    rows = {
        "workspace": f"{folder}, version {found.version}; those from {found.kept} on can be returned to",
        "graph": f"{counted(found.vertices, 'vertex', 'vertices')} ({found.labelled:,} labelled) and "
        f"{counted(found.edges, 'edge')}, {found.first_time} to {found.last_time}",
        "history": found.history_why,
        "model": f"{found.model}, {found.model_restart}: {found.model_why}",
        "classes": f"{found.classes:,} known to the model",
        "retired": ", ".join(found.retired),
        "waiting": f"{counted(found.fresh_labels, 'label')} to learn from, "
        f"{counted(found.undecided, 'vertex', 'vertices')} to decide, {found.to_review:,} to review",
        "scores": "" if last is None else _in_words(last),
        "next": following,
    }
    for name, text in rows.items():
        if text:
            _add(facts, name, text)
    to.print(facts)


def _in_words(row: SliceScores) -> str:
    have = "has" if row.decided == 1 else "have"
    return (
        f"of {row.time}, {row.labelled:,} of {counted(row.decided, 'label')} {have} come: "
        f"accuracy {_number(row.accuracy)}, open F1 {_number(row.open_f1)}, MCC {_number(row.mcc)}, "
        f"{row.alarm_rate:.1%} held to be {UNSEEN} and {_number(row.unseen, '.1%')} truly so"
    )


def show_scores(to: Console, found: Sequence[SliceScores]) -> None:
    """The slices, the newest last."""
    if not found:
        to.print("Nothing was decided yet, so there is nothing to score.")
        return
    rows = _newest(to, found, "slices")
    # Short enough for days as times and a million vertices on 80 columns.
    heads = ("time", "decided", "labels", "acc.", "F1", "MCC", "alarms", "unseen", "late", "drift", "model")
    table = _table(*(f"{head}:" for head in heads))
    for row in rows:
        _add(
            table,
            str(row.time),
            f"{row.decided:,}",
            f"{row.labelled:,}",
            *(_number(value) for value in (row.accuracy, row.open_f1, row.mcc)),
            f"{row.alarm_rate:.1%}",
            _number(row.unseen, ".1%"),
            _number(row.latency, ".1f"),
            _number(row.drift, ".2f"),
            ",".join(map(str, row.models)) if len(row.models) < 3 else f"{row.models[0]}-{row.models[-1]}",
        )
    to.print(table)
    to.print(
        "\nOf each vertex the last decision before its label counts. acc.: accuracy; F1: open F1; alarms: held to be "
        "unseen; unseen: truly unknown to the model that decided; late: times until the label came; drift: how far the "
        "mix of classes moved."
    )


def show_groups(to: Console, groups: Sequence[ReviewGroup], waiting: int, *, only: int | None = None) -> None:
    """The groups of the vertices to look at, or one of them, and how many vertices are alone."""
    shown = groups[:_MOST_GROUPS] if only is None else groups[only - 1 : only]
    if not shown:
        return
    several = len({group.time for group in groups}) > 1
    left = max(to.width - (27 if several else 22), 30)  # the rest is taken by numbers and gaps
    table = _table("group:", "size:", "edges:", *(["time:"] if several else []), "words", "such as")
    for group in shown:
        such = (f"{id} ({', '.join(words)})" if words else str(id) for id, words in group.exemplars)
        _add(
            table,
            str(group.number),
            f"{group.size:,}",
            f"{group.edges:,}",
            *([str(group.time)] if several else []),
            ", ".join(group.terms) or "-",
            "\n".join(_cut(text, left - left // 2) for text in such),
        )
    to.print(table)
    if only is None:
        more = len(groups) - len(shown)
        told = f"and {counted(more, 'smaller group')} (--json has all); " if more else ""
        alone = waiting - sum(group.size for group in groups)
        to.print(f"{told}{counted(alone, 'vertex', 'vertices')} alone")
    to.print()


def show_review(to: Console, rows: Sequence[ReviewRow], waiting: int, *, group: int | None = None) -> None:
    """The vertices to look at, or those of one group."""
    from evergraph.analysis.explain import in_words

    if not rows:
        to.print("No vertex without a label was held to be of an unseen class.")
        return
    for row in rows:
        belongs = "alone" if row.group is None else f"group {row.group}"
        to.print(Text(f"{row.id}, {row.time}, score {row.score:.3f}, {belongs}", style="bold"))
        table = Table(show_header=False, box=None, padding=(0, 1, 0, 2))
        table.add_column(no_wrap=True)
        table.add_column()
        if row.words:
            _add(table, "words", ", ".join(row.words))
        _add(table, "nearest class", f"{row.best} {row.probability:.2f}")
        most = in_words(row.neighbours[:_MOST_CLASSES])
        left = sum(count for _, count in row.neighbours[_MOST_CLASSES:])
        _add(table, "neighbours", (f"{most}, others {left:,}" if left else most) or "none")
        to.print(table)
    more = ""
    if waiting > len(rows):
        first = "the first is" if len(rows) == 1 else f"the first {len(rows):,} are"
        more = f"; {first} shown (more: --most N; all: --out FILE)"
    which = "to review" if group is None else f"in group {group}"
    to.print(f"\n{counted(waiting, 'vertex', 'vertices')} {which}{more}")


def show_log(to: Console, entries: Sequence[Entry], kept: Sequence[int], folder: Path) -> None:
    """The commands, the newest last."""
    rows = _newest(to, entries, "commands")
    table = _table("version:", "when (UTC)", "command", "what")
    for entry in rows:
        _add(table, str(entry.version), entry.when[:16].replace("T", " "), entry.command, entry.what)
    to.print(table)
    if len(kept) > 1:
        back = f"{typed('rollback', folder)} VERSION"
        to.print(Text(f"\nVersions from {kept[0]} on can be returned to: {back}"), soft_wrap=True)


def show_classes(to: Console, found: Sequence[ClassRow]) -> None:
    """The classes, in the order in which they became known."""
    table = _table("class", "first:", "last:", "vertices:", "")
    for row in found:
        note = "retired" if row.retired else "" if row.known else "unknown to the model"
        ends = ("-" if time is None else str(time) for time in (row.first, row.last))
        _add(table, row.name, *ends, f"{row.support:,}", note)
    to.print(table)


def _newest(to: Console, rows: Sequence[_Row], what: str) -> Sequence[_Row]:
    if len(rows) > _MOST_LINES:
        to.print(f"{len(rows):,} {what}, of which the last {_MOST_LINES} are shown (--json has all)")
    return rows[-_MOST_LINES:]


def _table(*heads: str) -> Table:
    """A table; columns whose heads end in a colon are of numbers."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for head in heads:
        is_number = head.endswith(":")
        justify: JustifyMethod = "right" if is_number else "left"
        table.add_column(head.removesuffix(":"), justify=justify, no_wrap=is_number, overflow="fold")
    return table


def _add(table: Table, *cells: str) -> None:
    """A row of plain text: what stands in brackets is no markup."""
    table.add_row(*(Text(cell) for cell in cells))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _number(value: float | None, form: str = ".3f") -> str:
    return "-" if value is None else f"{value:{form}}"
