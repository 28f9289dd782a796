"""Classes created, renamed, merged and retired: rows of the records, so models and decisions need not be rewritten."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from evergraph.errors import InputError
from evergraph.graph.classes import UNSEEN
from evergraph.graph.columns import Columns
from evergraph.storage.records import Records
from evergraph.workspace.change import Change, Contents, Outcome
from evergraph.workspace.store import State, read_classes

__all__ = ["ClassRow", "create_class", "list_classes", "merge_classes", "rename_class", "retire_class", "supports"]


@dataclass(frozen=True)
class ClassRow:
    """A class of a workspace.

    Parameters
    ----------
    name
        Its name.
    first, last
        Times of the first and the last vertex that has it, as the axis writes them; None where none has.
    support
        Number of vertices that have it.
    known
        Whether the model in force knows it.
    retired
        Whether it is not to be decided for any more.
    """

    name: str
    first: int | str | None
    last: int | str | None
    support: int
    known: bool
    retired: bool

    def as_dict(self) -> dict[str, Any]:
        """Fit for JSON."""
        return asdict(self)


def supports(records: Records, state: State) -> dict[str, dict[int, int]]:
    """For each class with labelled vertices, how many there are of each time."""
    found: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in records.select("supports", "until IS NULL ORDER BY time"):
        found[state.classes.name(row.label)][row.time] += row.vertices
    return found


def list_classes(records: Records, state: State) -> list[ClassRow]:
    """All classes, in the order in which they became known."""
    known, value, counts = set(state.model.classes), state.settings.axis.value, supports(records, state)
    found = []
    for name in dict.fromkeys([*state.classes.names, *state.model.classes]):
        times = counts.get(name, {})
        if times or name in known or name in state.retired:
            first, last = (value(min(times)), value(max(times))) if times else (None, None)
            found.append(ClassRow(name, first, last, sum(times.values()), name in known, name in state.retired))
    return found


def create_class(
    change: Change,
    name: str,
    ids: Iterable[str | int] | str | Path,
    *,
    groups: Iterable[int] = (),
    columns: Columns | None = None,
) -> Outcome:
    """See `Workspace.create_class`."""
    from evergraph.workspace.decisions import flagged, review_groups
    from evergraph.workspace.groups import chosen_groups
    from evergraph.workspace.labels import give_labels, rows_in

    _check_name(name)
    state, wanted = change.state, list(groups)
    ids = ids if isinstance(ids, (str, Path)) else list(ids)
    chosen = []
    if wanted:
        found = flagged(change.records, state, change.contents)
        chosen = chosen_groups(review_groups(change.graph, found), wanted)
    if chosen and ids:
        raise InputError("ids and groups were given", fix="leave one of them out: both say which vertices")
    if chosen:
        ids = [id for group in chosen for id in group.members]
    rows = rows_in(change.graph, ids, columns or state.settings.columns)
    support, back = change.graph.classes.count_of(name), name in state.retired
    if support and not back:
        raise InputError(f"there is a class {name!r} already", fix="choose another name, or label the vertices with it")
    if not len(rows) and not back:
        raise InputError("a class needs vertices", fix="give the ids of vertices that belong to it")
    if back:
        _set(change, state.classes.numbers[name], retired=None)
        change.state = replace(state, classes=read_classes(change.records), stale=state.stale or bool(support))
    if not len(rows):
        return change.commit("classes create", f"{name} is back", name=name)
    return give_labels(change, rows, [name] * len(rows), "classes create", groups=chosen)


def rename_class(change: Change, old: str, new: str) -> Outcome:
    """See `Workspace.rename_class`."""
    if any(row.name == new for row in list_classes(change.records, change.state)):
        raise InputError(f"there is a class {new!r} already", fix="choose another name, or merge the classes")
    return _rename(change, {old: new}, "classes rename", f"{old} is now {new}")


def merge_classes(change: Change, names: Sequence[str], into: str) -> Outcome:
    """See `Workspace.merge_classes`."""
    others = [name for name in dict.fromkeys(names) if name != into]
    if len({*names, into}) < 2 or not others:
        raise InputError("there is nothing to merge", fix="name two classes or more")
    return _rename(change, dict.fromkeys(others, into), "classes merge", f"{', '.join(others)} into {into}")


def retire_class(change: Change, name: str) -> Outcome:
    """See `Workspace.retire_class`."""
    state = change.state
    _check_known(change, [name])
    if name in state.retired:
        raise InputError(f"the class {name!r} is retired already", fix="see: evergraph ws classes list")
    if not set(state.model.classes) - {*state.retired, name}:
        raise InputError("no class would be left to decide for", fix="keep at least one")
    number = change.name_classes([name])[name]
    _set(change, number, retired=change.version)
    change.state = replace(state, stale=True)
    return change.commit("classes retire", name, name=name)


def _rename(change: Change, names: dict[str, str], command: str, what: str) -> Outcome:
    """Give classes new names; those of one new name become one class."""
    state = change.state
    for new in names.values():
        _check_name(new)
    _check_known(change, list(names))
    there = [row.name for row in list_classes(change.records, state)]
    merged = len(names) > 1 or not set(there).isdisjoint(names.values())
    into = next(iter(names.values()))
    numbers = change.name_classes([*names, into] if merged else names)
    if merged:
        target = numbers[into]
        # A class is retired as long as nothing that lives is part of it.
        parts = [name for name in (*names, into) if name in there]
        retired = [state.classes.rows[numbers[name]].retired for name in parts if name in state.retired]
        for old in names:
            _set(change, numbers[old], merged=target)
        _set(change, target, retired=min(retired) if len(retired) == len(parts) else None)
    else:
        (old,) = names
        if into in numbers:  # a class without vertices that no model knows
            _set(change, numbers[into], merged=numbers[old])
        # The model that has not learnt it yet will learn it after those that it was known before.
        _set(change, numbers[old], name=into, position=change.next_class()[1])
    classes = read_classes(change.records)
    change.state = replace(state, classes=classes, stale=state.stale or merged)
    before = change.contents
    change.contents = Contents.of(before.graph, before.vertices, before.labels, classes)
    return change.commit(command, what, renamed=names)


def _set(change: Change, number: int, **values: Any) -> None:
    """Change what is in force of a class."""
    records, version = change.records, change.version
    (row,) = records.select("classes", "number = ? AND until IS NULL", number)
    if row.since == version:  # made by this very command
        records.replace("classes", "number = ? AND until IS NULL", (number,), **values)
        return
    records.replace("classes", "number = ? AND until IS NULL", (number,), until=version)
    records.insert("classes", [row._replace(**values, since=version, until=None)])


def _check_name(name: str) -> None:
    if not name.strip() or name.strip().lower() == UNSEEN:
        raise InputError(f"a class cannot be called {name!r}", fix="choose another name")


def _check_known(change: Change, names: Sequence[str]) -> None:
    there = {row.name for row in list_classes(change.records, change.state)}
    for name in names:
        if name not in there:
            raise InputError(f"there is no class {name!r}", fix="see: evergraph ws classes list")
