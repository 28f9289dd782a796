"""Which slices to decide, and keeping what was decided."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from evergraph.errors import InputError
from evergraph.graph import ids as id_columns
from evergraph.graph.classes import UNSEEN
from evergraph.graph.evolving import EvolvingGraph
from evergraph.workspace.change import Change
from evergraph.workspace.deciding import decide
from evergraph.workspace.keeping import keep_table
from evergraph.workspace.scoring import standing
from evergraph.workspace.state import Kept
from evergraph.workspace.words import counted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["predict"]


def predict(change: Change, time: int | str | None) -> pa.Table:
    """See `Workspace.predict`."""
    import pyarrow as pa

    state, graph = change.state, change.graph
    times, learner = _times(change, time), change.learner()
    tables, kept = [], list(state.decisions)
    last = {entry.time: entry.table for entry in kept}
    for moment in times:
        table = decide(learner, graph, moment, state.settings.history, state.model.number, state.retired)
        tables.append(table)
        name = keep_table(change.transaction, table)
        if name != last.get(moment):
            kept.append(Kept(name, change.version, moment, state.model.number, table.num_rows))
    found = pa.concat_tables(tables)
    if len(kept) > len(state.decisions):
        unseen = found.column("class").to_pylist().count(UNSEEN)
        span = ", ".join(map(graph.axis.label, times))
        vertices = counted(found.num_rows, "vertex", "vertices")
        what = f"{vertices} of {span} by model {state.model.number}, {unseen:,} of them {UNSEEN}"
        change.commit(replace(state, decisions=tuple(kept)), "predict", what)
    return found


def _times(change: Change, time: int | str | None) -> list[int]:
    """The times to decide: the one that was asked for, those with something undecided, or the newest open one."""
    state, graph = change.state, change.graph
    open_times = np.unique(graph.times[graph.codes < 0]).tolist()
    if not open_times:
        raise InputError("every vertex has a label, so there is nothing to decide", fix="add a slice first")
    if time is not None:
        wanted = _period(graph, time)
        if wanted not in open_times:
            raise InputError(
                f"no vertex of {graph.axis.label(wanted)} is without a label",
                fix=f"choose one of {', '.join(map(graph.axis.label, open_times[-5:]))}",
            )
        return [wanted]
    decided = standing(change.store, state, graph, open_times)
    rows = np.flatnonzero(graph.codes < 0)
    undecided = {int(graph.times[row]) for row in rows if str(id_columns.at(graph.ids, row)) not in decided}
    return sorted(undecided) or open_times[-1:]


def _period(graph: EvolvingGraph, time: int | str) -> int:
    axis = graph.axis
    try:
        # A number is a time as it is written, not a period of so many of them.
        return axis.period(str(time) if axis.unit in ("integer", "year") else time)
    except InputError as error:  # which tells of columns and rows
        raise InputError(error.problem, fix=error.fix) from None
