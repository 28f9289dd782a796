"""Labels that arrive, late ones and corrections too, and what they say of earlier decisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evergraph.datasets.tables import Columns, read_ids
from evergraph.errors import InputError
from evergraph.graph import ids as id_columns
from evergraph.graph.columns import Origin, as_table, class_column, id_column
from evergraph.graph.evolving import EvolvingGraph
from evergraph.workspace.change import Change, Outcome
from evergraph.workspace.grouping import ReviewGroup
from evergraph.workspace.keeping import keep_graph, keep_table
from evergraph.workspace.scoring import score_labels
from evergraph.workspace.state import Kept, State
from evergraph.workspace.words import counted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["give_labels", "label", "refuse_retired", "rows_in", "rows_of"]


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
    rows = rows_of(change.graph, column, origin, id_name)
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
    state, graph = change.state, change.graph
    refuse_retired(state, names)
    rows, first = np.unique(rows, return_index=True)
    given = np.array(names, object)[first]
    before = graph.names_of(graph.codes[rows])
    differs = np.flatnonzero(before != given)
    if not len(differs):
        raise InputError("these vertices have these labels already", fix="give labels that are new or corrected")
    rows, given, before = rows[differs], given[differs], before[differs]
    new = sorted({name for name in given if name not in graph.classes or not graph.classes.count_of(name)})
    grown = graph.relabel([id_columns.at(graph.ids, row) for row in rows], given.tolist())
    scored = score_labels(change.store, state, grown, change.since, rows, given.tolist(), change.version)
    count, tables = 0, state.scored
    if scored is not None:
        count = scored.num_rows
        tables = (*tables, Kept(keep_table(change.transaction, scored), change.version, grown.last_time, 0, count))
    state = replace(
        state.with_labels(graph.times[rows].tolist()),
        graph=keep_graph(change.transaction, grown, change.since),
        scored=tables,
    )
    corrected = int(sum(name is not None for name in before))
    parts = [f"{counted(len(rows), 'label')} ({corrected:,} corrected), {counted(count, 'decision')} scored"]
    parts += [group.what for group in groups]
    parts += [f"new classes: {', '.join(new)}"] if new else []
    parts += [f"{counted(without, 'row')} without a label passed over"] if without else []
    facts = {"labels": len(rows), "corrected": corrected, "scored": count, "new_classes": new, "without": without}
    if groups:
        facts["groups"] = [{"number": group.number, "size": group.size, "terms": group.terms} for group in groups]
    return change.commit(state, command, *parts, **facts)


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
    return rows_of(graph, column, origin, columns.id)


def rows_of(graph: EvolvingGraph, column: pa.Array, origin: Origin, name: str) -> NDArray[np.int64]:
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
