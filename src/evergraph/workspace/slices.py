"""Slices that arrive, and what is taken back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.datasets.tables import Columns, read_edges, read_vertices
from evergraph.errors import InputError
from evergraph.graph import ids as id_columns
from evergraph.graph.columns import EdgeColumns, VertexColumns, check_edges, check_vertices
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import SparseFeatures
from evergraph.workspace.change import Change, Outcome
from evergraph.workspace.keeping import keep_graph
from evergraph.workspace.labelling import refuse_retired, rows_in
from evergraph.workspace.words import counted

__all__ = ["add", "remove"]


def add(
    change: Change,
    vertices: Any,
    edges: Any,
    *,
    features: Any = None,
    drop_dangling: bool = False,
    columns: Columns | None = None,
) -> Outcome:
    """See `Workspace.add`."""
    graph = change.graph
    new = _vertices(change, vertices, features, columns)
    if new is not None:
        _refuse_older(graph, new, vertices)
        refuse_retired(change.state, new.class_names)
    last = graph.last_time if new is None else int(new.times[-1])
    grown = graph.append_columns(
        new, _from_now_on(graph, _edges(change, edges, columns), last), drop_dangling=drop_dangling
    )
    labels = 0 if new is None else int((new.codes >= 0).sum())
    added, joined = len(grown) - len(graph), grown.n_edges - graph.n_edges
    if not added and not joined:
        raise InputError("there is nothing new in it", fix="give vertices or edges that are not there yet")
    # None of the new vertices is older than an old one, so they come last.
    since = np.concatenate([change.since, np.full(added, change.version)])
    state = replace(change.state, graph=keep_graph(change.transaction, grown, since))
    if new is not None:
        state = state.with_labels(new.times[new.codes >= 0].tolist())
    parts = (
        f"{counted(added, 'vertex', 'vertices')} ({labels:,} labelled) and {counted(joined, 'edge')}",
        f"now up to {grown.axis.label(last)}",
    )
    return change.commit(state, "add", *parts, vertices=added, labelled=labels, edges=joined)


def remove(
    change: Change, vertices: Iterable[str | int] | str | Path, edges: Any, *, columns: Columns | None = None
) -> Outcome:
    """See `Workspace.remove`."""
    columns, graph = columns or change.state.settings.columns, change.graph
    rows = rows_in(graph, vertices, columns)
    ids = [id_columns.at(graph.ids, row) for row in rows]
    if isinstance(edges, (str, Path)):
        read = read_edges(edges, columns, graph.axis)
        edges = {"source": read.source, "target": read.target}
    left = graph.remove(ids, edges)
    gone, cut = len(graph) - len(left), graph.n_edges - left.n_edges
    if not gone and not cut:
        raise InputError("there is nothing to remove", fix="give ids of vertices, or edges")
    since = np.delete(change.since, rows)
    state = replace(change.state, graph=keep_graph(change.transaction, left, since))
    what = f"{counted(gone, 'vertex', 'vertices')} and {counted(cut, 'edge')}"
    return change.commit(state, "remove", what, vertices=gone, edges=cut)


def _vertices(change: Change, given: Any, features: Any, columns: Columns | None) -> VertexColumns | None:
    if given is None:
        return None
    axis, named, old = change.graph.axis, change.state.settings.columns, change.graph.features
    if not isinstance(given, (str, Path)):
        names = list(old.columns) if type(old) is SparseFeatures else None
        return check_vertices(given, features, names, axis=axis)
    columns = columns or named
    # A slice need not have labels; but a column that was asked for just now must be there.
    return read_vertices(given, columns, axis=axis, unlabelled=columns.label == named.label)


def _edges(change: Change, given: Any, columns: Columns | None) -> EdgeColumns | None:
    if isinstance(given, (str, Path)):
        return read_edges(given, columns or change.state.settings.columns, change.graph.axis)
    return check_edges(given, change.graph.axis)


def _refuse_older(graph: EvolvingGraph, new: VertexColumns, given: Any) -> None:
    oldest, label = int(new.times[0]), graph.axis.label
    if oldest < graph.last_time:
        raise InputError(
            f"vertex {id_columns.at(new.ids, 0)!r} is of {label(oldest)}, older than the workspace, which has come to "
            f"{label(graph.last_time)}",
            file=given if isinstance(given, (str, Path)) else None,
            fix="add slices in the order of their times",
        )


def _from_now_on(graph: EvolvingGraph, edges: EdgeColumns | None, last: int) -> EdgeColumns | None:
    """Edges of which those between old vertices, without a time of their own, are of the slice's time.

    They became known with the slice: windows of the past must not show them.
    """
    if edges is None or edges.times is not None:
        return edges
    ends = [id_columns.find(graph.ids, column) >= 0 for column in (edges.source, edges.target)]
    old = ends[0] & ends[1]
    none = np.iinfo(np.int64).min  # no time of its own: as old as its younger end
    return replace(edges, times=np.where(old, last, none)) if old.any() else edges
