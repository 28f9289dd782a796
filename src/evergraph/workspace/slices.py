"""Add a slice to a workspace, and remove vertices and edges: checks of the input, and what is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.datasets.tables import Columns, read_edges, read_vertices
from evergraph.errors import InputError, NothingToDoError
from evergraph.graph import ids as id_columns
from evergraph.graph.blocks import append_rows, joined
from evergraph.graph.columns import EdgeColumns, VertexColumns, check_edges, check_vertices
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import Numbers, Vectors
from evergraph.graph.segments import base_segment, extend, slice_segment
from evergraph.inputs.encoders import Encoder, same_encoder
from evergraph.inputs.encoding import OnEncoded, encoded
from evergraph.presentation.text import command_line, counted
from evergraph.workspace.change import Change, Contents, Outcome, put_segment, unlabelled
from evergraph.workspace.labels import refuse_retired, rows_in, warn_of_resembling
from evergraph.workspace.store import read_classes

__all__ = ["add", "remove"]


def add(
    change: Change,
    vertices: Any,
    edges: Any,
    *,
    features: Any = None,
    drop_dangling: bool = False,
    columns: Columns | None = None,
    encoder: str | Path | Encoder | None = None,
    on_encoded: OnEncoded | None = None,
) -> Outcome:
    """Add a slice; see `Workspace.add`."""
    graph, state = change.graph, change.state
    new = _read_vertices(change, vertices, features, columns)
    if new is not None:
        _refuse_older(graph, new, vertices)
        refuse_retired(change, new.class_names)
        new = _encoded(change, new, encoder, on_encoded)
    last = graph.last_time if new is None else int(new.times[-1])
    bare = None if new is None else replace(new, codes=np.full(len(new.times), -1, np.int32), class_names=())
    # Edges between old vertices became known with the slice: windows of the past must not show them.
    joins = _read_edges(change, edges, columns)
    try:
        segment = slice_segment(
            _with_names(graph, state.settings.columns), bare, joins, drop_dangling=drop_dangling, old_edges_from=last
        )
    except InputError:
        _refuse_known(change, new, vertices)  # says more of it
        raise
    grown = extend(graph, segment)
    added, edges_ = len(grown) - len(graph), grown.n_edges - graph.n_edges
    if not added and not edges_:
        raise NothingToDoError("there are no new vertices or edges")
    numbers, labels = np.arange(state.next_vertex, state.next_vertex + added), np.empty(0, np.int32)
    labelled, warned = 0, dict[str, Any]()
    if new is not None:
        codes, first = np.unique(new.codes, return_index=True)
        where = {
            new.class_names[code]: f"vertex {id_columns.at(new.ids, row)!r}: "
            for code, row in zip(codes, first, strict=True)
            if code >= 0
        }
        warned = warn_of_resembling(change, where)
        labels = _class_numbers(change, new)
        labelled = int((labels >= 0).sum())
        _write_labels(change, new, numbers, labels)
    name = put_segment(change.objects, segment, numbers, labels, change.version)
    number = change.records.value("SELECT max(segment) FROM segments") + 1
    change.records.insert("segments", [(number, name, change.version, None)])
    # No new vertex is older than an old one, so the new ones are the last rows.
    change.contents = Contents.of(
        grown,
        joined(change.contents.vertices, [numbers]),
        append_rows(change.contents.labels, [labels]),
        read_classes(change.records) if labelled else state.classes,
    )
    parts = (
        f"{counted(added, 'vertex', 'vertices')} ({labelled:,} labelled) and {counted(edges_, 'edge')}",
        f"now up to {grown.axis.label(last)}",
    )
    change.state = replace(state, next_vertex=state.next_vertex + added)
    return change.finish("add", *parts, vertices=added, labelled=labelled, edges=edges_, **warned)


def _class_numbers(change: Change, new: VertexColumns) -> NDArray[np.int32]:
    """Return the number of each new vertex's class; -1 without a label."""
    numbers = change.name_classes(new.class_names)
    lookup = np.array([*(numbers[name] for name in new.class_names), -1], np.int32)
    return lookup[new.codes]


def _write_labels(change: Change, new: VertexColumns, numbers: NDArray[np.int64], labels: NDArray[np.int32]) -> None:
    records, times = change.records, new.times.tolist()
    rows = []
    for vertex, id, time, label in zip(numbers.tolist(), new.ids.tolist(), times, labels.tolist(), strict=True):
        # A row also for a labelled vertex whose id an earlier, removed vertex had: decisions on that one do not count.
        if label < 0 or records.value("SELECT 1 FROM decisions WHERE id = ? LIMIT 1", str(id)):
            rows.append((vertex, str(id), time, None if label < 0 else label, change.version, None))
    records.insert("labels", rows)
    given = [(time, label) for time, label in zip(times, labels.tolist(), strict=True) if label >= 0]
    change.count_labels([], given)
    change.count_fresh(time for time, _ in given)


def remove(
    change: Change, vertices: Iterable[str | int] | str | Path, edges: Any, *, columns: Columns | None = None
) -> Outcome:
    """Remove vertices and edges; see `Workspace.remove`."""
    columns, graph, before = columns or change.state.settings.columns, change.graph, change.contents
    rows = rows_in(graph, vertices, columns)
    ids = [id_columns.at(graph.ids, row) for row in rows]
    if isinstance(edges, (str, Path)):
        read = read_edges(edges, columns, graph.axis)
        edges = {"source": read.source, "target": read.target}
    left = graph.remove(ids, edges)
    gone, cut = len(graph) - len(left), graph.n_edges - left.n_edges
    if not gone and not cut:
        if edges is None and not isinstance(vertices, (str, Path)):
            raise InputError("no vertices or edges to remove", fix="give ids of vertices, or edges")
        raise NothingToDoError("there are no vertices or edges to remove in the file")
    records, version = change.records, change.version
    for vertex in before.vertices[rows].tolist():
        records.replace("labels", "vertex = ? AND until IS NULL", (vertex,), until=version)
    labelled = rows[before.labels[rows] >= 0]
    change.count_labels(zip(graph.times[labelled].tolist(), before.labels[labelled].tolist(), strict=True), [])
    numbers, labels = np.delete(before.vertices, rows), np.delete(before.labels, rows)
    # The rest becomes one new segment, so that the removed data is deleted together with the older versions.
    name = put_segment(change.objects, base_segment(unlabelled(left)), numbers, labels, version)
    records.replace("segments", "until IS NULL", (), until=version)
    records.insert("segments", [(records.value("SELECT max(segment) FROM segments") + 1, name, version, None)])
    change.contents = Contents(left, numbers, labels)
    what = f"{counted(gone, 'vertex', 'vertices')} and {counted(cut, 'edge')}"
    return change.finish("remove", what, vertices=gone, edges=cut)


def _with_names(graph: EvolvingGraph, columns: Columns) -> EvolvingGraph:
    """Return the graph with names of its numbers, which workspaces of older versions have only in their settings."""
    numbers = graph.features.numbers
    if numbers is None or not numbers.is_numbered or numbers.width != len(columns.numbers):
        return graph
    named = replace(numbers, columns=id_columns.Strings.of(columns.numbers))
    return replace(graph, features=replace(graph.features, numbers=named))


def _read_vertices(change: Change, given: Any, features: Any, columns: Columns | None) -> VertexColumns | None:
    if given is None:
        return None
    axis, named, old = change.graph.axis, change.state.settings.columns, change.graph.features
    if not isinstance(given, (str, Path)):
        return check_vertices(given, **old.arguments(features, None, None, named.categories or None), axis=axis)
    columns = columns or named
    if columns.text is None and old.words is None:
        columns = replace(columns, text="")  # a column named text was not read at first either
    # A slice may have no labels, but a label column that was given explicitly must exist.
    read = read_vertices(given, columns, axis=axis, unlabelled=columns.label == named.label)
    numbers = read.features.numbers
    if numbers is not None and tuple(numbers.columns) == columns.numbers and not {*numbers.columns} & {*named.numbers}:
        # Columns of other names, named one by one, are in the order of the workspace.
        return replace(read, features=replace(read.features, numbers=Numbers.of(numbers.values)))
    return read


def _encoded(
    change: Change, new: VertexColumns, encoder: str | Path | Encoder | None, on_encoded: OnEncoded | None
) -> VertexColumns:
    """Return the vertices with vectors of their texts if those of the graph have some."""
    vectors, texts = change.graph.features.vectors, new.features.texts
    if vectors is None and encoder is not None:
        raise InputError(
            "an encoder is given, but the vertices of the workspace have no vectors",
            fix="leave the encoder out, or create another workspace with it",
        )
    if vectors is None or texts is None or new.features.vectors is not None:
        return new  # what does not fit the graph is refused with the other features
    with encoded(texts, same_encoder(vectors.encoder, encoder), change.store.folder, on_encoded) as found:
        own = Vectors(np.array(found), vectors.encoder)
    return replace(new, features=replace(new.features, vectors=own))


def _read_edges(change: Change, given: Any, columns: Columns | None) -> EdgeColumns | None:
    if isinstance(given, (str, Path)):
        return read_edges(given, columns or change.state.settings.columns, change.graph.axis)
    return check_edges(given, change.graph.axis)


def _refuse_older(graph: EvolvingGraph, new: VertexColumns, given: Any) -> None:
    oldest, label = int(new.times[0]), graph.axis.label
    if oldest < graph.last_time:
        raise InputError(
            f"vertex {id_columns.at(new.ids, 0)!r} is of {label(oldest)}, before the newest slice of the workspace, "
            f"{label(graph.last_time)}",
            file=given if isinstance(given, (str, Path)) else None,
            fix="add slices in the order of time",
        )


def _refuse_known(change: Change, new: VertexColumns | None, given: Any) -> None:
    if new is None:
        return
    known = np.flatnonzero(id_columns.find(change.graph.ids, id_columns.to_arrow(new.ids)) >= 0)
    if not len(known):
        return
    in_order = new.times[0] == new.times[-1]  # else rows of the file are sorted by time
    predict = command_line("ws", "predict", change.store.folder)
    before = f"; if the slice was added before, continue with: {predict}" if len(known) == len(new.ids) else ""
    raise InputError(
        f"vertex {id_columns.at(new.ids, known[0])!r} is in the graph already "
        f"({len(known):,} of {counted(len(new.ids), 'vertex', 'vertices')} {'is' if len(known) == 1 else 'are'})",
        file=given if isinstance(given, (str, Path)) else None,
        row=int(known[0]) + 1 if in_order else None,
        fix=f"add new vertices only{before}",
    )
