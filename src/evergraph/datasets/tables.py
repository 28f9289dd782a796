"""Graphs from two tables: vertices and edges, as CSV or Parquet."""

from __future__ import annotations

import difflib
import logging
import textwrap
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evergraph.datasets.files import TableFile, open_table
from evergraph.graph.column_names import Columns
from evergraph.graph.columns import (
    EdgeColumns,
    Origin,
    VertexColumns,
    as_features,
    class_column,
    edge_columns,
    id_column,
    vertex_columns,
)
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.times import TimeAxis

if TYPE_CHECKING:
    import pyarrow as pa

    from evergraph.graph.features import Features

__all__ = ["Columns", "feature_columns", "read_edges", "read_ids", "read_tables", "read_vertices"]

log = logging.getLogger(__name__)


def read_tables(
    vertices: str | Path,
    edges: str | Path | None = None,
    *,
    id: str = "id",
    time: str = "time",
    label: str = "label",
    text: str | None = None,
    features: Sequence[str] = (),
    source: str = "source",
    target: str = "target",
    edge_time: str | None = None,
    every: str | int | None = None,
    drop_dangling: bool = False,
) -> EvolvingGraph:
    r"""Read a graph from a table of vertices and a table of edges: CSV, TSV (both also .gz) or Parquet.

    In text files every id is a string, just as it stands: ``007``, ``1e5``, ``nan`` and ``NA`` are four different ids.

    Parameters
    ----------
    vertices, edges
        The files.
    id, time, label, text
        Columns of the vertices. An empty label is no label. A column called ``text`` is taken without being named,
        unless there are ``features``. ``label=""`` and ``text=""`` leave labels or text out.
    features
        Columns of numbers instead of text, by name or pattern (``emb_*``), in this order; see `feature_columns`. One
        Parquet column of lists will also do.
    source, target, edge_time
        Columns of the edges; a column called ``time`` is taken without being named, unless ``edge_time=""``.
    every
        Granularity of time: ``"year"``, ``"month"``, ``"week"``, ``"day"`` or a number; see `EvolvingGraph.build`.
    drop_dangling
        Drop edges to unknown ids instead of refusing them.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "papers.csv").write_text("id,time,label\n007,2001,KDD\nnan,2002,\n")
    >>> _ = (folder / "links.csv").write_text("source,target\nnan,007\n")
    >>> graph = read_tables(folder / "papers.csv", folder / "links.csv")
    >>> list(graph.ids), graph.labels.tolist(), graph.n_edges
    (['007', 'nan'], ['KDD', None], 1)
    """
    columns = Columns(id, time, label, text, tuple(features), source, target, edge_time)
    checked = read_vertices(vertices, columns, every=every)
    links = read_edges(edges, columns, checked.axis) if edges is not None else None
    about = {"source": "tables", "vertices": Path(vertices).name, "edges": Path(edges).name if edges else "none"}
    return EvolvingGraph.from_columns(checked, links, drop_dangling=drop_dangling, about=about)


def read_vertices(
    path: str | Path,
    columns: Columns,
    *,
    every: str | int | None = None,
    axis: TimeAxis | None = None,
    unlabelled: bool = False,
) -> VertexColumns:
    """Checked vertices of a table.

    Parameters
    ----------
    path, columns
        The file, and what its columns are called.
    every, axis
        Granularity of time; or the axis of the graph that the vertices are for.
    unlabelled
        Whether the column of labels may be missing.
    """
    table = open_table(path)
    wanted = _features(table, columns.features)
    text, label = columns.text, columns.label or None
    if text is None and not wanted and "text" in table.names:
        text = "text"
    if unlabelled and label not in table.names:
        label = None
    named = {"id": columns.id, "time": columns.time, "label": label, "text": text or None}
    _check_names(table, named, {"label": ", or leave labels out with --no-label"})
    used = [column for column in named.values() if column is not None]
    read = table.read(used, wanted)
    checked = vertex_columns(
        read,
        table.origin,
        id=columns.id,
        time=columns.time,
        label=label,
        text=text or None,
        features=_numbers(read, wanted, table) if wanted else None,
        every=every,
        axis=axis,
    )
    ignored = [name for name in table.names if name not in (*used, *wanted)]
    if ignored:
        log.info("%s: columns not used: %s", path, textwrap.shorten(", ".join(ignored), 400, placeholder=" …"))
    return checked


def read_edges(path: str | Path, columns: Columns, axis: TimeAxis) -> EdgeColumns:
    """Checked edges of a table."""
    table = open_table(path)
    time = columns.edge_time
    if time is None and "time" in table.names:
        time = "time"
    time = time or None
    named = {"source": columns.source, "target": columns.target, "edge-time": time}
    _check_names(table, named, {})
    read = table.read([column for column in named.values() if column is not None])
    return edge_columns(read, table.origin, axis, source=columns.source, target=columns.target, time=time)


def read_ids(path: str | Path, id: str = "id", label: str | None = None) -> tuple[pa.Array, pa.Array | None, Origin]:
    """Ids of a table and, where a column of labels is named, a class name beside each; and where they came from."""
    table = open_table(path)
    _check_names(table, {"id": id, "label": label}, {})
    read = table.read([name for name in (id, label) if name is not None])
    names = class_column(read.column(label).combine_chunks(), table.origin, label) if label is not None else None
    return id_column(read, id, table.origin), names, table.origin


def feature_columns(path: str | Path, patterns: Sequence[str]) -> tuple[str, ...]:
    r"""The columns of a table that names or patterns mean, each once, in the order in which features are read.

    Features have no names once they are read, only places. Whoever reads a second table for the same graph should
    therefore name its columns one by one, as this function does, and not by patterns.

    Parameters
    ----------
    path
        The file.
    patterns
        Names or patterns. Their order counts; columns of one pattern come in the order of the file.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "papers.csv"
    >>> _ = file.write_text("id,time,emb_0,emb_1,age\n1,2001,0.5,0.25,3\n")
    >>> feature_columns(file, ["age", "emb_*"])
    ('age', 'emb_0', 'emb_1')
    """
    return tuple(_features(open_table(path), patterns))


def _check_names(table: TableFile, named: dict[str, str | None], hints: dict[str, str]) -> None:
    for option, column in named.items():
        if column is None or column in table.names:
            continue
        near = difflib.get_close_matches(column, table.names, 1)
        guess = f" (perhaps '{near[0]}')" if near else ""
        table.origin.fail(
            f"there is no column '{column}' (there are: {', '.join(table.names)})",
            column=column,
            fix=f"say which column it is with --{option}{guess}{hints.get(option, '')}",
        )


def _features(table: TableFile, patterns: Sequence[str]) -> list[str]:
    """Columns that the patterns name, in the order of the patterns; those of one pattern in the order of the file."""
    found: dict[str, None] = {}
    for pattern in patterns:
        # A name is itself before it is a pattern: that of a column may have brackets, as emb[0].
        meant = [pattern] if pattern in table.names else [name for name in table.names if fnmatchcase(name, pattern)]
        if not meant:
            table.origin.fail(
                f"no column is called '{pattern}' (there are: {', '.join(table.names)})",
                column=pattern,
                fix="name the feature columns with --features",
            )
        found |= dict.fromkeys(meant)
    return list(found)


def _numbers(columns: pa.Table, wanted: list[str], table: TableFile) -> Features:
    """Dense features of number columns, or of one column of equally long lists."""
    import pyarrow as pa

    parts, names = [], []
    for name in wanted:
        column = columns.column(name).combine_chunks()
        kind = column.type
        if column.null_count:
            table.origin.fail(
                "a feature is missing", column=name, row=column.is_null().index(True).as_py(), fix="write a number"
            )
        if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            flat = column.flatten()
            width = len(flat) // max(len(column), 1)
            lengths = np.diff(column.offsets) if not pa.types.is_fixed_size_list(kind) else np.array([width])
            if (lengths != width).any():
                row = int(np.argmax(lengths != lengths[0]))
                table.origin.fail("the lists are not equally long", column=name, row=row, fix="give one length to all")
            column, kind, shape = flat, flat.type, (len(column), width)
            names += [f"{name}[{place}]" for place in range(width)]
        else:
            shape = (len(column), 1)
            names.append(name)
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            table.origin.fail(f"a column of {kind} holds no numbers", column=name, fix="give numbers")
        parts.append(np.asarray(column.cast(pa.float32(), safe=False)).reshape(shape))
    return as_features(np.concatenate(parts, axis=1), names, table.origin)
