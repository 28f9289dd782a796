"""Labels that arrive, including late ones and corrections; and classes: create, rename, merge, retire."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.datasets.tables import Columns, read_ids
from evergraph.errors import InputError, NothingToDoError, Origin
from evergraph.graph import ids as id_columns
from evergraph.graph.cells import class_column, id_column, named_column
from evergraph.graph.classes import UNSEEN
from evergraph.graph.columns import as_table
from evergraph.graph.evolving import EvolvingGraph
from evergraph.presentation.text import command_line, counted
from evergraph.workspace.change import Change, Contents, Outcome
from evergraph.workspace.scores import list_classes
from evergraph.workspace.store import WorkspaceState, read_classes
from evergraph.workspace.update import LEAST

if TYPE_CHECKING:
    import pyarrow as pa

    from evergraph.workspace.review import ReviewGroup

__all__ = [
    "create_class",
    "label",
    "merge_classes",
    "read_labels",
    "refuse_retired",
    "rename_class",
    "retire_class",
    "rows_in",
    "warn_of_resembling",
]

log = logging.getLogger(__name__)

_MOST_WARNINGS = 5  # in the log; the outcome has all

Ids = Iterable[str | int] | str | Path


# --- labels ----------------------------------------------------------------------------------------------------------


def label(change: Change, ids: Any, labels: Iterable[str] | None, *, columns: Columns | None = None) -> Outcome:
    """Add labels; see `Workspace.label`."""
    file = ids if isinstance(ids, (str, Path)) else None
    column, names, origin, (id_name, label_name) = read_labels(ids, labels, columns or change.state.settings.columns)
    rows = _rows_of(change.graph, column, origin, id_name)
    given = np.array([] if names is None else names.to_pylist(), object)
    kept = np.flatnonzero([name is not None for name in given])
    if not len(kept):
        raise NothingToDoError("there are no labels", file=file)
    _refuse_contradictions(rows[kept], given[kept], kept, origin, label_name)
    return _label_rows(change, rows[kept], given[kept].tolist(), "label", places=kept, without=len(given) - len(kept))


def read_labels(
    ids: Any, labels: Iterable[str] | None, columns: Columns
) -> tuple[pa.Array, pa.Array | None, Origin, tuple[str, str]]:
    """Read ids and classes, given as for `Workspace.label`; also return their origin and the names of their columns."""
    id_name, label_name = columns.id, columns.label or "label"
    if isinstance(ids, (str, Path)):
        if labels is not None:
            raise InputError(
                "there are labels besides a file of labels", fix="give the file alone, or the ids as a list"
            )
        return *read_ids(ids, id_name, label_name), (id_name, label_name)
    origin = Origin("labels")
    if labels is None and (isinstance(ids, Mapping) or hasattr(ids, "columns")):
        table = as_table(ids, origin)
        # Columns are named as in the workspace's files, or as for `Workspace.add`.
        id_name, label_name = (
            usual if usual in table.column_names and own not in table.column_names else own
            for own, usual in ((id_name, "id"), (label_name, "label"))
        )
    else:
        id_name, label_name = "id", "label"
        table = _pair(ids, labels, origin)
    names = class_column(named_column(table, label_name, origin), origin, label_name)
    return id_column(table, id_name, origin), names, origin, (id_name, label_name)


def _pair(ids: Any, labels: Any, origin: Origin) -> pa.Table:
    """Return a table of ids and labels, or of a Series of labels whose index is the ids."""
    if labels is None:
        if not _is_series(ids):
            raise InputError("there are ids, but no labels", fix="give one label for each id")
        if type(ids.index).__name__ == "RangeIndex" and ids.index.name is None:
            raise InputError(
                "the index of the Series counts rows and has no ids",
                fix="give ids and labels, or a Series with the ids as its index",
            )
        ids, labels = ids.index, ids.array
    elif _is_series(ids) and _is_series(labels) and not ids.index.equals(labels.index):
        raise InputError(
            "ids and labels have different indexes",
            fix="take both from one frame, or give them as lists to join them by position",
        )
    ids, labels = list(ids), list(labels)
    if len(ids) != len(labels):
        raise InputError(f"{len(labels)} labels for {len(ids)} ids", fix="give one label for each id")
    return as_table({"id": ids, "label": labels}, origin)


def _is_series(values: Any) -> bool:
    """Whether this is a pandas Series, without loading pandas."""
    return hasattr(values, "index") and hasattr(values, "iloc") and values.ndim == 1


def rows_in(graph: EvolvingGraph, ids: Ids, columns: Columns) -> NDArray[np.int64]:
    """Return the rows of the vertices with these ids, or with the ids in a file."""
    if not isinstance(ids, (str, Path)):
        return graph.find(ids)
    column, _, origin = read_ids(ids, columns.id)
    return _rows_of(graph, column, origin, columns.id)


def refuse_retired(change: Change, names: Iterable[str]) -> None:
    """Refuse labels of a retired class."""
    for name in names:
        if name in change.state.retired:
            back = command_line("ws", "classes", "create", change.store.folder, names=[name])
            raise InputError(f"the class {name!r} is retired", fix=f"bring it back first with: {back}")


def warn_of_resembling(change: Change, new: Mapping[str, str], leaving: Iterable[str] = ()) -> dict[str, Any]:
    """Warn of new classes whose names differ from another one only in case, spaces, Unicode form or a typo.

    ``new`` has where each of them is first given; ``leaving`` are classes that the command removes. The result is for
    `Outcome.facts`. It is a warning and no error, because only the user knows whether both are the same class, and a
    scheduled command must not lose labels. A model learns the new class with the next update, so there is time to
    merge both.
    """
    from evergraph.workspace.spelling import find_resembling

    if not new:
        return {}
    known = {row.name for row in list_classes(change.records, change.state)} - set(leaving)
    new = {name: where for name, where in new.items() if name not in known}
    found = []
    for name, (other, how) in (find_resembling(new, sorted(known)) if new else {}).items():
        merge = command_line("ws", "classes", "merge", change.store.folder, "--into", other, names=[name])
        found.append(
            f"{new[name]}the new class {name!r} differs from {other!r} {how}. If both are the same class, merge them "
            f"before the next update: {merge}"
        )
    for text in found[:_MOST_WARNINGS]:
        log.warning("Warning: %s", text)
    if len(found) > _MOST_WARNINGS:
        log.warning("Warning: %s resemble others, too (--json shows all)", counted(len(found) - _MOST_WARNINGS, "name"))
    return {"warnings": found} if found else {}


def _rows_of(graph: EvolvingGraph, column: pa.Array, origin: Origin, name: str) -> NDArray[np.int64]:
    rows = id_columns.find(graph.ids, column)
    unknown = np.flatnonzero(rows < 0)
    if len(unknown):
        place = int(unknown[0])
        origin.fail(
            f"there is no vertex {column[place].as_py()!r} in the workspace",
            column=name,
            row=place,
            fix="add the vertex first, or delete the row",
        )
    return rows


def _refuse_contradictions(
    rows: NDArray[np.int64], names: NDArray[np.object_], places: NDArray[np.int64], origin: Origin, column: str
) -> None:
    """Refuse two different labels for one vertex."""
    first: dict[int, int] = {}
    for place, row in enumerate(rows.tolist()):
        before = first.setdefault(row, place)
        if names[before] != names[place]:
            origin.fail(
                f"a vertex has the label {names[place]!r} here and {names[before]!r} in row {places[before] + 1}",
                column=column,
                row=int(places[place]),
                fix="keep one of the two",
            )


def _label_rows(
    change: Change,
    rows: NDArray[np.int64],
    names: Sequence[str],
    command: str,
    *,
    places: NDArray[np.int64] | None = None,
    without: int = 0,
    groups: Sequence[ReviewGroup] = (),
) -> Outcome:
    """Label vertices, score the earlier decisions on them, and finish the command.

    ``places`` are the rows of the labels in their table; ``without`` is the number of ignored rows without a label;
    ``groups`` are the groups that the vertices form.
    """
    graph = change.graph
    refuse_retired(change, names)
    where: dict[str, str] = {}
    for at, name in enumerate(names):
        if name not in where:
            id = id_columns.at(graph.ids, rows[at])
            where[name] = "" if places is None else f"row {places[at] + 1}, vertex {id!r}: "
    rows, first = np.unique(rows, return_index=True)
    given = np.array(names, object)[first]
    before = graph.names_of(graph.codes[rows])
    differs = np.flatnonzero(before != given)
    if not len(differs):
        raise NothingToDoError("these vertices have these labels already")
    rows, given, before = rows[differs], given[differs], before[differs]
    used = np.bincount(graph.codes + 1, minlength=len(graph.class_names) + 1)[1:]
    new = sorted(set(given) - {name for name, count in zip(graph.class_names, used, strict=True) if count})
    warned = warn_of_resembling(change, {name: text for name, text in where.items() if name in new})
    scored = _write_labels(change, rows, given.tolist())
    was_wrong = np.array([name is not None for name in before])
    corrected = int(was_wrong.sum())
    if _learnt(change.state, graph.times[rows[was_wrong]]) >= LEAST:
        change.state = replace(change.state, stale=True)
    parts = [f"{counted(len(rows), 'label')} ({corrected:,} corrected), {counted(scored, 'decision')} scored"]
    parts += [group.what for group in groups]
    parts += [f"new classes: {', '.join(new)}"] if new else []
    parts += [f"{counted(without, 'row')} without a label ignored"] if without else []
    facts = {"labels": len(rows), "corrected": corrected, "scored": scored, "new_classes": new, "without": without}
    facts |= warned
    if groups:
        facts["groups"] = [{"number": group.number, "size": group.size, "terms": group.terms} for group in groups]
    return change.finish(command, *parts, **facts)


def _learnt(state: WorkspaceState, times: NDArray[np.int64]) -> int:
    """Return how many vertices of these periods are in the history of the current model."""
    first = -np.inf if state.settings.history is None else state.model.time - state.settings.history
    return int(((first <= times) & (times < state.model.time)).sum())


def _write_labels(change: Change, rows: NDArray[np.int64], names: Sequence[str]) -> int:
    """Write the labels of vertices; return how many earlier decisions on them can be scored now."""
    graph, contents, records, version = change.graph, change.contents, change.records, change.version
    numbers = change.name_classes(dict.fromkeys(names))
    vertices, times = contents.vertices[rows].tolist(), graph.times[rows].tolist()
    truth = [numbers[name] for name in names]
    ids = [str(id_columns.at(graph.ids, row)) for row in rows]
    wanted = json.dumps(vertices)
    chosen = "vertex IN (SELECT value FROM json_each(?))"
    records.replace("labels", f"{chosen} AND until IS NULL", (wanted,), until=version)
    records.insert("labels", ((*row, version, None) for row in zip(vertices, ids, times, truth, strict=True)))
    old = [pair for pair in zip(times, contents.labels[rows].tolist(), strict=True) if pair[1] >= 0]
    change.count_labels(old, zip(times, truth, strict=True))
    change.count_fresh(times)
    decided = Counter(row.vertex for row in records.select("decisions", chosen, wanted))
    records.insert(
        "outcomes",
        (
            (vertex, version, number, graph.last_time - time)
            for vertex, number, time in zip(vertices, truth, times, strict=True)
            if vertex in decided
        ),
    )
    labels = contents.labels.copy()
    labels[rows] = truth
    change.contents = Contents.of(graph, contents.vertices, labels, read_classes(records))
    return decided.total()


# --- classes ---------------------------------------------------------------------------------------------------------


def create_class(
    change: Change,
    name: str,
    ids: Ids,
    *,
    groups: Iterable[int] = (),
    among: Sequence[ReviewGroup] | None = None,
    columns: Columns | None = None,
) -> Outcome:
    """Create a class, or bring a retired one back; see `Workspace.create_class`.

    ``among`` are the groups that the numbers mean; by default those of the version.
    """
    from evergraph.workspace.review import chosen_groups, find_flagged, review_groups

    _check_name(name)
    state, wanted = change.state, list(groups)
    ids = ids if isinstance(ids, (str, Path)) else list(ids)
    chosen = []
    if wanted:
        if among is None:
            among = review_groups(change.graph, find_flagged(change.records, state, change.contents))
        chosen = chosen_groups(among, wanted)
    if chosen and ids:
        raise InputError("both ids and groups are given", fix="give only one of them")
    if chosen:
        ids = [id for group in chosen for id in group.members]
    rows = rows_in(change.graph, ids, columns or state.settings.columns)
    support, back = change.graph.classes.count_of(name), name in state.retired
    if support and not back:
        raise InputError(f"the class {name!r} exists already", fix="choose another name, or label the vertices with it")
    if not len(rows) and not back:
        raise InputError("a new class needs vertices", fix="give the ids of its vertices")
    if back:
        _set(change, state.classes.numbers[name], retired=None)
        change.state = replace(state, classes=read_classes(change.records), stale=state.stale or bool(support))
    if not len(rows):
        return change.finish("classes create", f"{name} is back", name=name)
    return _label_rows(change, rows, [name] * len(rows), "classes create", groups=chosen)


def rename_class(change: Change, old: str, new: str) -> Outcome:
    """Rename a class; see `Workspace.rename_class`."""
    if old == new:
        raise NothingToDoError(f"the class is already called {new!r}")
    if any(row.name == new for row in list_classes(change.records, change.state)):
        raise InputError(f"the class {new!r} exists already", fix="choose another name, or merge the classes")
    return _rename(change, {old: new}, "classes rename", f"{old} is now {new}")


def merge_classes(change: Change, names: Sequence[str], into: str) -> Outcome:
    """Merge classes; see `Workspace.merge_classes`."""
    others = [name for name in dict.fromkeys(names) if name != into]
    if not others:
        raise NothingToDoError(f"{into} is one class already")
    return _rename(change, dict.fromkeys(others, into), "classes merge", f"{', '.join(others)} into {into}")


def retire_class(change: Change, name: str) -> Outcome:
    """Retire a class; see `Workspace.retire_class`."""
    state = change.state
    _check_exists(change, [name])
    if name in state.retired:
        raise NothingToDoError(f"the class {name!r} is retired already")
    if not set(state.model.classes) - {*state.retired, name}:
        raise InputError("the model would have no class left", fix="keep at least one class")
    number = change.name_classes([name])[name]
    _set(change, number, retired=change.version)
    change.state = replace(state, stale=True)
    return change.finish("classes retire", name, name=name)


def _rename(change: Change, names: dict[str, str], command: str, what: str) -> Outcome:
    """Give classes new names; classes with the same new name become one."""
    state = change.state
    for new in names.values():
        _check_name(new)
    _check_exists(change, list(names))
    present = [row.name for row in list_classes(change.records, state)]
    merged = len(names) > 1 or not set(present).isdisjoint(names.values())
    into = next(iter(names.values()))
    numbers = change.name_classes([*names, into] if merged else names)
    if merged:
        target = numbers[into]
        # The result is retired only if all its parts are.
        parts = [name for name in (*names, into) if name in present]
        retired = [state.classes.rows[numbers[name]].retired for name in parts if name in state.retired]
        for old in names:
            _set(change, numbers[old], merged=target)
        _set(change, target, retired=min(retired) if len(retired) == len(parts) else None)
    else:
        (old,) = names
        if into in numbers:  # a class without vertices that no model knows
            _set(change, numbers[into], merged=numbers[old])
        # Last in order: a model that has not learnt it yet will learn it after its other classes.
        _set(change, numbers[old], name=into, position=change.next_class()[1])
    warned = warn_of_resembling(change, {into: ""}, leaving=names)
    classes = read_classes(change.records)
    change.state = replace(state, classes=classes, stale=state.stale or merged)
    before = change.contents
    change.contents = Contents.of(before.graph, before.vertices, before.labels, classes)
    return change.finish(command, what, renamed=names, **warned)


def _set(change: Change, number: int, **values: Any) -> None:
    """Change the current row of a class."""
    records, version = change.records, change.version
    (row,) = records.select("classes", "number = ? AND until IS NULL", number)
    if row.since == version:  # written by this command
        records.replace("classes", "number = ? AND until IS NULL", (number,), **values)
        return
    records.replace("classes", "number = ? AND until IS NULL", (number,), until=version)
    records.insert("classes", [row._replace(**values, since=version, until=None)])


def _check_name(name: str) -> None:
    if not name.strip() or name.strip().lower() == UNSEEN:
        raise InputError(f"a class cannot be called {name!r}", fix="choose another name")
    if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
        raise InputError(f"the class name {name!r} is not valid Unicode", fix="write it in UTF-8")


def _check_exists(change: Change, names: Sequence[str]) -> None:
    present = {row.name for row in list_classes(change.records, change.state)}
    for name in names:
        if name not in present:
            listed = command_line("ws", "classes", "list", change.store.folder)
            raise InputError(f"there is no class {name!r}", fix=f"list the classes with: {listed}")
