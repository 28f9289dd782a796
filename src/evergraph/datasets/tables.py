"""Graphs as two tables, vertices and edges: read them from CSV or Parquet, and turn a graph into tables."""

from __future__ import annotations

import difflib
import logging
import textwrap
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.allocation import kept_memory
from evergraph.datasets.files import TableFile, map_ahead, open_table
from evergraph.errors import InputError, Origin
from evergraph.graph import ids as id_columns
from evergraph.graph.cells import class_column, id_column, list_column, number_block
from evergraph.graph.columns import (
    Columns,
    EdgeColumns,
    Ends,
    VertexColumns,
    edge_columns,
    find_ends,
    log_dropped,
    vertex_columns,
)
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import Features, SparseFeatures, WordCounts
from evergraph.graph.ids import find_rows
from evergraph.graph.times import TimeAxis, are_dates
from evergraph.presentation.text import SAFE_COLUMN, spreadsheet_original, spreadsheet_safe

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Columns", "find_columns", "read_edges", "read_ids", "read_tables", "read_vertices", "to_tables"]

_LONGEST_PATTERN = 1_000  # characters; the time to translate a pattern grows with the square of its brackets

log = logging.getLogger(__name__)


def read_tables(
    vertices: str | Path,
    edges: str | Path | None = None,
    *,
    id: str = "id",
    time: str = "time",
    label: str = "label",
    text: str | None = None,
    numbers: Sequence[str] = (),
    categories: Sequence[str] = (),
    source: str = "source",
    target: str = "target",
    edge_time: str | None = None,
    every: str | int | None = None,
    drop_dangling: bool = False,
) -> EvolvingGraph:
    r"""Read a graph from a table of vertices and a table of edges: CSV, TSV (both also .gz) or Parquet.

    In text files every id is a string, unchanged: ``007``, ``1e5``, ``nan`` and ``NA`` are four different ids.

    Parameters
    ----------
    vertices, edges
        The files.
    id, time, label, text
        Columns of the vertices. An empty label is no label. A column named ``text`` is used by default. ``label=""``
        and ``text=""`` leave labels or text out.
    numbers
        Columns of numbers or of ``true`` and ``false``, by name or pattern (``emb_*``), in this order; see
        `find_columns`. In Parquet, columns of lists also work. An empty cell, ``NA`` or ``NaN`` is a missing number;
        text and infinite numbers are refused. Numbers are float32: whole numbers over 2^24 are rounded. A column may
        also be another one, such as the time, which stays exact.
    categories
        Columns of which each value becomes a column of the features, by name or pattern. An empty cell is a missing
        category.
    source, target, edge_time
        Columns of the edges. A column named ``time`` is used by default; ``edge_time=""`` leaves it out.
    every
        Granularity of time: ``"year"``, ``"month"``, ``"week"``, ``"day"`` or a number; see `EvolvingGraph.build`.
    drop_dangling
        Drop edges to unknown ids instead of raising an error.

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
    columns = Columns(id, time, label, text, tuple(numbers), source, target, edge_time, tuple(categories))
    about = {"source": "tables", "vertices": Path(vertices).name, "edges": Path(edges).name if edges else "none"}
    with kept_memory():
        checked = read_vertices(vertices, columns, every=every)
        ends = _read_ends(edges, columns, checked, drop_dangling) if edges is not None else find_ends([], None, False)
        return EvolvingGraph.from_ends(checked, ends, about=about)


def read_vertices(
    path: str | Path,
    columns: Columns,
    *,
    every: str | int | None = None,
    axis: TimeAxis | None = None,
    unlabelled: bool = False,
) -> VertexColumns:
    """Read and check the vertices of a table.

    Give the period (``every``), or the ``axis`` of the graph that the vertices are for. With
    ``unlabelled``, the column of labels may be missing.
    """
    table = open_table(path)
    numbers, categories = (
        _matching(table, columns.numbers, "numbers"),
        _matching(table, columns.categories, "categories"),
    )
    text, label = columns.text, columns.label or None
    if text is None and "text" in table.names and "text" not in (*numbers, *categories):
        text = "text"
    if unlabelled and label not in table.names:
        label = None
    named = {"id": columns.id, "time": columns.time, "label": label, "text": text or None}
    _check_names(table, named, {"label": ", or leave labels out with --no-label"})
    used = [*(column for column in named.values() if column is not None), *categories]
    # A text file's column that is used twice is read twice: float32 would change times and ids over 2^24.
    twice = not set(used).isdisjoint(numbers)
    read = [table.read(used, () if twice else numbers)]
    of_numbers = table.read((), numbers) if twice else read[0]
    blocks = [number_block(of_numbers, numbers, table.origin)] if numbers else []
    del of_numbers
    checked = vertex_columns(
        read.pop(),  # nothing else refers to it, so that its memory can be freed early
        table.origin,
        id=columns.id,
        time=columns.time,
        label=label,
        text=text or None,
        blocks=blocks,
        categories=categories,
        every=every,
        axis=axis,
    )
    if unused := [name for name in table.names if name not in (*used, *numbers)]:
        log.info("%s: unused columns: %s", path, textwrap.shorten(", ".join(unused), 400, placeholder=" …"))
    return checked


def read_edges(path: str | Path, columns: Columns, axis: TimeAxis) -> EdgeColumns:
    """Read and check the edges of a table."""
    table, named = _open_edges(path, columns)
    return edge_columns(table.read(list(named.values())), table.origin, axis, **named)


def _open_edges(path: str | Path, columns: Columns) -> tuple[TableFile, dict[str, str]]:
    """Open a table of edges; return it and the names of its columns ``source``, ``target`` and perhaps ``time``."""
    table = open_table(path)
    time = columns.edge_time
    if time is None and "time" in table.names:
        time = "time"
    _check_names(table, {"source": columns.source, "target": columns.target, "edge-time": time or None}, {})
    return table, {"source": columns.source, "target": columns.target} | ({"time": time} if time else {})


def _read_ends(path: str | Path, columns: Columns, vertices: VertexColumns, drop_dangling: bool) -> Ends:
    """Read edges part by part, and return the rows of their ends.

    If anything is wrong, or times of different parts are written differently, the table is read as a whole: then an
    error names the row.
    """
    try:
        table, named = _open_edges(path, columns)
        return _stream_ends(table, named, vertices, drop_dangling)
    except (InputError, _ReadWholeError):
        return find_ends([vertices.ids], read_edges(path, columns, vertices.axis), drop_dangling)


class _ReadWholeError(Exception):
    """A part of a table does not show how to read it."""


def _stream_ends(table: TableFile, named: dict[str, str], vertices: VertexColumns, drop_dangling: bool) -> Ends:
    place = Origin(table.path)  # finds no line, which would read the file
    years = vertices.axis.unit == "year"

    def rows(part: pa.Table) -> tuple[Ends, int, bool | None]:
        """Return the ends of the edges of a part, how many were dropped, and whether their times are dates."""
        edges = edge_columns(part, place, vertices.axis, **named)
        dates = None
        if edges.times is not None and years:
            dates = are_dates(part.column(named["time"]).combine_chunks(), place, named["time"])
        source, target = find_rows(vertices.ids, vertices.index, [edges.source, edges.target])
        known = (source >= 0) & (target >= 0)
        if known.all():
            return (source, target, edges.times), 0, dates
        if not drop_dangling:
            raise _ReadWholeError
        own = edges.times[known] if edges.times is not None else None
        return (source[known], target[known], own), len(known) - int(known.sum()), dates

    parts = list(map_ahead(rows, table.batches(list(named.values()))))
    if len({dates for _, _, dates in parts} - {None}) > 1:
        raise _ReadWholeError
    sources, targets, times = zip(*(ends for ends, _, _ in parts), strict=True)
    source, target = np.concatenate(sources), np.concatenate(targets)
    if dropped := sum(count for _, count, _ in parts):
        log_dropped(dropped, dropped + len(source))
    own = [part for part in times if part is not None]
    return source, target, np.concatenate(own) if own else None


def read_ids(path: str | Path, id: str = "id", label: str | None = None) -> tuple[pa.Array, pa.Array | None, Origin]:
    """Read the ids of a table and, if a column of labels is named, their class names; also return the origin.

    A text file that was written with apostrophes before formulas is read as it was before.
    """
    table = open_table(path)
    safe = SAFE_COLUMN in table.names and SAFE_COLUMN not in (id, label) and not table.is_parquet
    if safe:
        id, label = (name if name in table.names else spreadsheet_safe(name) for name in (id, label))
    _check_names(table, {"id": id, "label": label}, {})
    read = table.read([name for name in (id, label) if name is not None])
    if safe:
        import pyarrow as pa

        originals = ([spreadsheet_original(cell) for cell in column.to_pylist()] for column in read.columns)
        read = read.from_arrays([pa.array(column, pa.large_string()) for column in originals], read.column_names)
    names = class_column(read.column(label).combine_chunks(), table.origin, label) if label is not None else None
    return id_column(read, id, table.origin), names, table.origin


def find_columns(path: str | Path, patterns: Sequence[str], option: str = "numbers") -> tuple[str, ...]:
    r"""Return the columns of a table that match names or patterns, each once.

    The order of the patterns counts; columns of one pattern are in the order of the file.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "papers.csv"
    >>> _ = file.write_text("id,time,emb_0,emb_1,age\n1,2001,0.5,0.25,3\n")
    >>> find_columns(file, ["age", "emb_*"])
    ('age', 'emb_0', 'emb_1')
    """
    return tuple(_matching(open_table(path), patterns, option))


def _check_names(table: TableFile, named: dict[str, str | None], hints: dict[str, str]) -> None:
    for option, column in named.items():
        if column is None or column in table.names:
            continue
        near = difflib.get_close_matches(column, table.names, 1)
        guess = f" (perhaps '{near[0]}')" if near else ""
        table.origin.fail(
            f"there is no column '{column}' (there are: {', '.join(table.names)})",
            column=column,
            fix=f"name the column with --{option}{guess}{hints.get(option, '')}",
        )


def _matching(table: TableFile, patterns: Sequence[str], option: str) -> list[str]:
    found: dict[str, None] = {}
    for pattern in (list_column(pattern, table.names) for pattern in patterns):
        # An exact name is not a pattern: column names may have brackets, as emb[0].
        meant = [pattern] if pattern in table.names else []
        if not meant and len(pattern) <= _LONGEST_PATTERN:
            meant = [name for name in table.names if fnmatchcase(name, pattern)]
        if not meant:
            table.origin.fail(
                f"no column is named '{pattern}' (there are: {', '.join(table.names)})",
                column=pattern,
                fix=f"name columns of {option} with --{option}",
            )
        found |= dict.fromkeys(meant)
    return list(found)


def to_tables(
    graph: EvolvingGraph, first: int | str | None = None, last: int | str | None = None, *, labels: bool = True
) -> tuple[pa.Table, pa.Table]:
    """Return a graph, or its slices from ``first`` to ``last``, as tables that `read_tables` reads once written.

    Vertices have ``id``, ``time`` and, if the graph has any, ``label``, ``text`` (the original one; without it words as
    often as they are counted, in no order), columns of numbers and of categories by their names, and ``features``
    (lists of numbers without names, or the rows of a sparse matrix). Edges have ``source``, ``target`` and ``time``. A
    slice has the edges that become visible in it, so the tables of all slices make up the graph.

    Examples
    --------
    >>> graph = EvolvingGraph.build(
    ...     {"id": ["a", "b", "c"], "time": [1, 2, 2], "label": ["x", None, "y"], "text": ["one", "two two", ""]},
    ...     [("a", "b"), ("b", "c")],
    ... )
    >>> vertices, edges = to_tables(graph, 2, 2)
    >>> vertices.to_pydict()
    {'id': ['b', 'c'], 'time': [2, 2], 'label': [None, 'y'], 'text': ['two two', '']}
    >>> edges.num_rows, to_tables(graph, 1, 1)[1].num_rows
    (2, 0)
    """
    import pyarrow as pa

    low = graph.first_time if first is None else graph.axis.period(first)
    high = graph.last_time if last is None else graph.axis.period(last)
    rows = slice(*np.searchsorted(graph.times, [low, high + 1]).tolist())
    value = graph.axis.value
    columns: dict[str, Any] = {
        "id": id_columns.to_arrow(graph.ids[rows]),
        "time": [value(time) for time in graph.times[rows]],
    }
    if labels:
        columns["label"] = pa.array(graph.names_of(graph.codes[rows]).tolist(), pa.string())
    columns |= _feature_tables(graph.features, rows)
    source, target, own = graph.links.ends()
    seen = np.maximum(graph.times[source], graph.times[target]) if own is None else own
    shown = np.flatnonzero((seen >= low) & (seen <= high))
    edges = {
        "source": id_columns.to_arrow(id_columns.take(graph.ids, source[shown])),
        "target": id_columns.to_arrow(id_columns.take(graph.ids, target[shown])),
        "time": [value(time) for time in seen[shown]],
    }
    return pa.table(columns), pa.table(edges)


def _feature_tables(features: Features, rows: slice) -> dict[str, Any]:
    import pyarrow as pa

    columns: dict[str, Any] = {}
    if features.texts is not None:
        columns["text"] = features.texts[rows]
    elif isinstance(features.words, WordCounts):
        columns["text"] = _words(features.words, rows)
    lists: dict[str, Any] = {}
    if features.words is not None and "text" not in columns:
        lists["features"] = features.words.rows(rows).matrix.toarray()
    if (numbers := features.numbers) is not None:
        names, values = list(numbers.columns), numbers.values[rows]
        base = "features" if numbers.is_numbered else names[0].removesuffix("[0]")
        is_list = numbers.is_numbered or names == [f"{base}[{place}]" for place in range(len(names))]
        if is_list and base not in lists:
            lists[_free_name(base) if base != "features" else base] = values
        else:
            cells = (pa.array(column, from_pandas=True) for column in values.T)
            columns |= dict(zip(map(_free_name, names), cells, strict=True))
    for name, values in lists.items():
        columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), max(values.shape[1], 1))
    return columns | _category_columns(features.categories, rows)


def _category_columns(categories: SparseFeatures | None, rows: slice) -> dict[str, Any]:
    if categories is None:
        return {}
    found: dict[str, list[str | None]] = {}
    part = categories.rows(rows).matrix.tocoo()
    names = [name.partition("=")[::2] for name in categories.columns]
    for column, _ in names:
        found.setdefault(_free_name(column), [None] * (rows.stop - rows.start))
    for row, column in zip(part.row.tolist(), part.col.tolist(), strict=True):
        found[_free_name(names[column][0])][row] = names[column][1]
    return found


def _free_name(column: str) -> str:
    """Return a name that is not the name of another column of `to_tables`."""
    return f"{column}_" if column.rstrip("_") in ("id", "time", "label", "text", "features") else column


def _words(features: WordCounts, rows: slice) -> list[str]:
    matrix, words = features.rows(rows).matrix, np.array(features.columns.tolist(), object)
    counts = np.rint(matrix.data).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(counts)])[matrix.indptr]
    return [" ".join(part) for part in np.split(np.repeat(words[matrix.indices], counts), ends[1:])[:-1]]
