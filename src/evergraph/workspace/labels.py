"""Labels that arrive, late ones and corrections too, and what they say of earlier decisions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evergraph.datasets.tables import Columns, read_ids
from evergraph.errors import InputError, Origin
from evergraph.graph import ids as id_columns
from evergraph.graph.columns import as_table, class_column, id_column
from evergraph.graph.evolving import EvolvingGraph
from evergraph.workspace.change import Change, Contents, Outcome, counted
from evergraph.workspace.store import State, read_classes

if TYPE_CHECKING:
    import pyarrow as pa

    from evergraph.workspace.groups import ReviewGroup

__all__ = ["give_labels", "label", "refuse_retired", "rows_in"]


def label(
    change: Change,
    ids: Iterable[str | int] | str | Path,
    labels: Iterable[str] | None,
    *,
    columns: Columns | None = None,
) -> Outcome:
    """See `Workspace.label`."""
    columns, file = columns or change.state.settings.columns, ids if isinstance(ids, (str, Path)) else None
    id_name, label_name = ("id", "label") if file is None else (columns.id, columns.label or "label")
    if isinstance(ids, (str, Path)):
        column, names, origin = read_ids(ids, id_name, label_name)
    else:
        origin = Origin("labels")
        table = as_table({"id": list(ids), "label": list(labels or ())}, origin)
        column = id_column(table, "id", origin)
        names = class_column(table.column("label").combine_chunks(), origin, "label")
    rows = _rows_of(change.graph, column, origin, id_name)
    given = np.array([] if names is None else names.to_pylist(), object)
    kept = np.flatnonzero([name is not None for name in given])
    if not len(kept):
        raise InputError("there is no label in it", file=file, fix="give at least one vertex its class")
    _refuse_contradictions(rows[kept], given[kept], kept, origin, label_name)
    return give_labels(change, rows[kept], given[kept].tolist(), "label", without=len(given) - len(kept))


def give_labels(
    change: Change,
    rows: NDArray[np.int64],
    names: Sequence[str],
    command: str,
    *,
    without: int = 0,
    groups: Sequence[ReviewGroup] = (),
) -> Outcome:
    """Give vertices their labels, and score what was decided on them.

    Parameters
    ----------
    change
        The workspace.
    rows, names
        The vertices and their classes.
    command
        Which it is, for the log.
    without
        How many rows had no label.
    groups
        The groups that these vertices are, if they were given so: told, for their numbers change.
    """
    graph = change.graph
    refuse_retired(change.state, names)
    rows, first = np.unique(rows, return_index=True)
    given = np.array(names, object)[first]
    before = graph.names_of(graph.codes[rows])
    differs = np.flatnonzero(before != given)
    if not len(differs):
        raise InputError("these vertices have these labels already", fix="give labels that are new or corrected")
    rows, given, before = rows[differs], given[differs], before[differs]
    new = sorted({name for name in given if name not in graph.classes or not graph.classes.count_of(name)})
    scored = _write(change, rows, given.tolist())
    corrected = int(sum(name is not None for name in before))
    parts = [f"{counted(len(rows), 'label')} ({corrected:,} corrected), {counted(scored, 'decision')} scored"]
    parts += [group.what for group in groups]
    parts += [f"new classes: {', '.join(new)}"] if new else []
    parts += [f"{counted(without, 'row')} without a label passed over"] if without else []
    facts = {"labels": len(rows), "corrected": corrected, "scored": scored, "new_classes": new, "without": without}
    if groups:
        facts["groups"] = [{"number": group.number, "size": group.size, "terms": group.terms} for group in groups]
    return change.commit(command, *parts, **facts)


def _write(change: Change, rows: NDArray[np.int64], names: Sequence[str]) -> int:
    """Write the labels of vertices; returns how many earlier decisions on them can be scored now."""
    graph, contents, records, version = change.graph, change.contents, change.records, change.version
    numbers = change.name_classes(dict.fromkeys(names))
    vertices, times = contents.vertices[rows].tolist(), graph.times[rows].tolist()
    truth = [numbers[name] for name in names]
    ids = [str(id_columns.at(graph.ids, row)) for row in rows]
    wanted = json.dumps(vertices)
    chosen = "vertex IN (SELECT value FROM json_each(?))"
    records.replace("labels", f"{chosen} AND until IS NULL", (wanted,), until=version)
    records.insert(
        "labels",
        ((*row, version, None) for row in zip(vertices, ids, times, truth, strict=True)),
    )
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


def refuse_retired(state: State, names: Iterable[str]) -> None:
    """Refuse labels of a class that was retired."""
    for name in names:
        if name in state.retired:
            raise InputError(
                f"the class {name!r} is retired", fix=f"bring it back first: evergraph ws classes create WS {name!r}"
            )


def rows_in(graph: EvolvingGraph, ids: Iterable[str | int] | str | Path, columns: Columns) -> NDArray[np.int64]:
    """Rows of the vertices with these ids, or with those in a file."""
    if not isinstance(ids, (str, Path)):
        return graph.find(ids)
    column, _, origin = read_ids(ids, columns.id)
    return _rows_of(graph, column, origin, columns.id)


def _rows_of(graph: EvolvingGraph, column: pa.Array, origin: Origin, name: str) -> NDArray[np.int64]:
    """Rows of the vertices with these ids; an unknown one is named with its row in the table."""
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
