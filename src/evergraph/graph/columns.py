"""Check the columns of tables and turn them into vertices and edges, or into an error that names the row."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError, Origin
from evergraph.graph.cells import (
    category_column,
    class_column,
    id_column,
    list_column,
    named_column,
    no_strings,
    number_block,
    refuse_gaps,
    text_column,
    vertex_ids,
)
from evergraph.graph.ids import Ids, Strings, find_all, take
from evergraph.graph.times import TimeAxis, check_span, choose_axis, time_order

if TYPE_CHECKING:
    import pyarrow as pa

    from evergraph.graph.features import Features, Numbers, SparseFeatures
    from evergraph.graph.hashed import IdIndex

log = logging.getLogger(__name__)

Ends = tuple[NDArray[np.integer], NDArray[np.integer], NDArray[np.int64] | None]
"""Source and target of edges, by row, and their times."""

_VERTICES, _EDGES = Origin("vertices"), Origin("edges")


@dataclass(frozen=True)
class Columns:
    """Names of the columns of the tables of vertices and edges, as for `read_tables`."""

    id: str = "id"
    time: str = "time"
    label: str = "label"
    text: str | None = None
    numbers: tuple[str, ...] = ()
    source: str = "source"
    target: str = "target"
    edge_time: str | None = None
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class VertexColumns:
    """Checked vertices in ascending order of time; vertices of one period keep their order.

    ``codes`` are indices into ``class_names``; -1 is no label.
    """

    ids: Ids
    times: NDArray[np.int64]
    codes: NDArray[np.int32]
    class_names: tuple[str, ...]
    features: Features
    axis: TimeAxis
    index: IdIndex | None = None
    """The rows of the ids, if there are many."""


@dataclass(frozen=True, eq=False)
class EdgeColumns:
    """Checked edges between ids. Whether the ids exist is checked by `find_ends`."""

    source: pa.Array
    target: pa.Array
    times: NDArray[np.int64] | None
    origin: Origin
    names: tuple[str, str] = ("source", "target")


def as_table(table: Any, origin: Origin) -> pa.Table:
    """Convert a mapping of columns, a pandas or polars frame, or any other Arrow-compatible table."""
    import pyarrow as pa

    if isinstance(table, pa.Table):
        return table
    named = None
    if isinstance(table, Mapping) or hasattr(table, "items"):  # pandas frames have items too
        named = [(str(name), _as_array(values, origin, str(name))) for name, values in table.items()]
    try:
        if named is None:
            return pa.table(table)
        return pa.Table.from_arrays([array for _, array in named], names=[name for name, _ in named])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"the {origin.file} are not a table ({error})",
            fix="give a mapping of columns of equal length, a data frame or an Arrow table",
        ) from error


def _as_array(values: Any, origin: Origin, name: str) -> pa.Array:
    import pyarrow as pa

    if isinstance(values, Strings):
        return values.arrow()
    kind = values.dtype.kind if isinstance(values, np.ndarray) and values.ndim == 1 else ""
    if kind and kind in "US":
        values = values.tolist()
    elif kind == "M" and np.datetime_data(values.dtype)[0] not in ("D", "s", "ms", "us", "ns"):
        values = values.astype("datetime64[s]")  # Arrow has no years and months
    try:
        if not hasattr(values, "__len__"):
            values = list(values)
        array = pa.array(values, from_pandas=True)  # NaN is a gap among strings too
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        origin.fail(
            f"the values are not a column ({error})",
            column=name,
            row=_first_other(values),
            fix="give values of one kind: strings, whole numbers below 2^63, numbers or dates",
        )
    of_objects = isinstance(values, (list, tuple)) or str(getattr(values, "dtype", "")) == "object"
    if of_objects and pa.types.is_temporal(array.type):
        # Among dates Arrow reads a number as a count of days.
        row = next((row for row, value in enumerate(values) if isinstance(value, (int, np.integer))), None)
        if row is not None:
            problem = f"{values[row]!r} is a number among dates"
            origin.fail(problem, column=name, row=row, fix="write all times in the same way")
    return array


def _first_other(values: Any) -> int | None:
    """Return the first row with text among other values, or with another value among texts."""
    if not isinstance(values, Iterable):
        return None
    kinds = [(row, isinstance(value, str)) for row, value in enumerate(values) if isinstance(value, (str, int, float))]
    return next((row for row, is_text in kinds if is_text != kinds[0][1]), None)


def check_vertices(
    vertices: Any,
    features: Any = None,
    feature_names: Sequence[str] | None = None,
    *,
    numbers: Sequence[str] = (),
    categories: Sequence[str] = (),
    every: str | int | None = None,
    axis: TimeAxis | None = None,
) -> VertexColumns:
    """Check vertices in memory, given as for `EvolvingGraph.build`."""
    from evergraph.graph.features import as_block

    table = as_table(vertices, _VERTICES)
    blocks = [as_block(features, feature_names)] if features is not None else []
    if numbers:
        names = dict.fromkeys(list_column(name, table.column_names) for name in numbers)
        blocks.append(number_block(table, list(names), _VERTICES))
    present = {wanted: wanted if wanted in table.column_names else None for wanted in ("label", "text")}
    for wanted, found in present.items():
        # Both may be missing, but not because of a typing error.
        slips = [name for name in table.column_names if name.strip().lower() in (wanted, f"{wanted}s")]
        if found is None and slips:
            _VERTICES.fail(
                f"there is a column '{slips[0]}', but no column '{wanted}'",
                column=slips[0],
                fix=f"rename it to '{wanted}'",
            )
    return vertex_columns(
        table,
        _VERTICES,
        label=present["label"],
        text=present["text"],
        blocks=blocks,
        categories=categories,
        every=every,
        axis=axis,
    )


def check_edges(edges: Any, axis: TimeAxis) -> EdgeColumns | None:
    """Check edges in memory, given as for `EvolvingGraph.build`."""
    if edges is None:
        return None
    if isinstance(edges, (np.ndarray, list, tuple)):
        pairs = np.asarray(edges, dtype=object if not isinstance(edges, np.ndarray) else None)
        if pairs.size == 0:
            return None
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise InputError(
                f"edges have the shape {pairs.shape}", fix="give an array of pairs, or columns source and target"
            )
        edges = {"source": pairs[:, 0].tolist(), "target": pairs[:, 1].tolist()}
    table = as_table(edges, _EDGES)
    return edge_columns(table, _EDGES, axis, time="time" if "time" in table.column_names else None)


def vertex_columns(
    table: pa.Table,
    origin: Origin,
    *,
    id: str = "id",
    time: str = "time",
    label: str | None = "label",
    text: str | None = "text",
    blocks: Sequence[SparseFeatures | Numbers] = (),
    categories: Sequence[str] = (),
    every: str | int | None = None,
    axis: TimeAxis | None = None,
) -> VertexColumns:
    """Check the columns of vertices; None for ``label`` or ``text`` leaves them out.

    ``blocks`` are numbers, and sparse features instead of words; ``categories`` are names of columns.
    """
    import pyarrow as pa

    from evergraph.graph.features import Features, SparseFeatures, count_words, one_hot
    from evergraph.graph.texts import Texts

    if not table.num_rows:
        origin.fail("there are no vertices", fix="give at least one")
    given = ["words" if isinstance(block, SparseFeatures) else "numbers" for block in blocks]
    if text is not None and "words" in given:
        origin.fail(
            "text and sparse features cannot be combined", fix=f"leave out the text column '{text}', or the features"
        )
    if len(set(given)) < len(given):
        origin.fail("there are numbers in columns and in a matrix", fix="give either columns or a matrix of numbers")
    with ThreadPoolExecutor(1) as pool:  # times and labels are checked while ids are
        timed = pool.submit(_parsed_times, table, time, origin, every, axis)
        labelled = pool.submit(_class_names, table, label, origin)
        ids, index = vertex_ids(named_column(table, id, origin), origin, id)
        axis, times = timed.result()
        labels = labelled.result()
    del timed, labelled  # they hold the results
    texts = text_column(named_column(table, text, origin), origin, text) if text is not None else None
    chosen = {name: category_column(named_column(table, name, origin), origin, name) for name in categories}
    for block in blocks:
        if len(block) != len(ids):
            origin.fail(f"{len(block)} rows of features for {len(ids)} vertices", fix="give one row for each vertex")
    parts: dict[str, Any] = dict(zip(given, blocks, strict=True))
    features = Features(**parts)
    del table  # and the memory of the columns once they are sorted
    if (times[1:] < times[:-1]).any():
        # Sort before anything is coded, so that classes, words and categories are numbered by their first use in time.
        order = time_order(times)
        with ThreadPoolExecutor(1) as pool:
            sorted_texts = pool.submit(texts.take, order) if texts is not None else None
            ids, times, labels = take(ids, order), times[order], labels.take(order)
            index = index.sorted_by(order, ids) if index is not None else None
            features, chosen = features.take(order), {name: column.take(order) for name, column in chosen.items()}
            texts = sorted_texts.result() if sorted_texts is not None else None
            del sorted_texts
    if texts is not None:
        texts = texts.cast(pa.large_string()).fill_null("")
        with ThreadPoolExecutor(1) as pool:
            kept = pool.submit(Texts.of, Strings.from_arrow(texts))
            features = replace(features, words=count_words(texts), texts=kept.result())
    if chosen:
        features = replace(features, categories=one_hot(chosen))
    coded = labels.dictionary_encode()
    return VertexColumns(
        ids,
        times,
        coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32),
        tuple(coded.dictionary.to_pylist()),
        features,
        axis,
        index,
    )


def _parsed_times(
    table: pa.Table, name: str, origin: Origin, every: str | int | None, axis: TimeAxis | None
) -> tuple[TimeAxis, NDArray[np.int64]]:
    column = named_column(table, name, origin)
    axis = axis or choose_axis(column, every, origin, name)
    times = axis.parse(column, origin, name)
    check_span(times, origin, name)
    return axis, times


def _class_names(table: pa.Table, name: str | None, origin: Origin) -> pa.Array:
    if name is None:
        return no_strings(table.num_rows)
    return class_column(named_column(table, name, origin), origin, name)


def edge_columns(
    table: pa.Table,
    origin: Origin,
    axis: TimeAxis,
    *,
    source: str = "source",
    target: str = "target",
    time: str | None = None,
) -> EdgeColumns:
    """Check the columns of edges; None for ``time`` leaves it out."""
    ends = []
    for name in (source, target):
        column = id_column(table, name, origin)
        refuse_gaps(column, origin, name, "an edge has no end", "give the ids of both ends, or delete the row")
        ends.append(column)
    times = None
    if time is not None and table.num_rows:
        times = axis.parse(named_column(table, time, origin), origin, time)
    return EdgeColumns(ends[0], ends[1], times, origin, (source, target))


def find_ends(
    ids: Sequence[Ids],
    edges: EdgeColumns | None,
    drop_dangling: bool,
    known: Sequence[NDArray[np.int64]] | None = None,
) -> Ends:
    """Return the rows of both ends of each edge in the joined id columns; unknown ids are refused or dropped.

    ``known`` are the rows of both ends in the first column, if they were looked up before.
    """
    if edges is None:
        return np.empty(0, np.int64), np.empty(0, np.int64), None
    ends = (edges.source, edges.target)
    source, target = find_all(ids[0], ends) if known is None else known
    before = len(ids[0])
    for more in ids[1:]:
        new_source, new_target = find_all(more, ends)
        source = np.where(new_source >= 0, before + new_source, source)
        target = np.where(new_target >= 0, before + new_target, target)
        before += len(more)
    dangling = (source < 0) | (target < 0)
    if not dangling.any():
        return source, target, edges.times
    if not drop_dangling:
        row = int(np.argmax(dangling))
        side = 0 if source[row] < 0 else 1
        unknown = (edges.source, edges.target)[side][row].as_py()
        edges.origin.fail(
            f"an edge leads to {unknown!r}, which is not a vertex ({int(dangling.sum()):,} of {len(source):,} edges)",
            column=edges.names[side],
            row=row,
            fix="add the vertices, or drop such edges with drop_dangling (--drop-dangling)",
        )
    log_dropped(int(dangling.sum()), len(source))
    stays = ~dangling
    return source[stays], target[stays], edges.times[stays] if edges.times is not None else None


def log_dropped(dropped: int, edges: int) -> None:
    """Log how many edges were dropped because they lead to unknown vertices."""
    log.info("Dropped %s of %s edges: they lead to unknown vertices", f"{dropped:,}", f"{edges:,}")
