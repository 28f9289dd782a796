"""The border: columns of a table become checked vertices and edges, or an error that names the row."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evergraph.errors import InputError
from evergraph.graph.classes import UNSEEN
from evergraph.graph.features import DenseFeatures, Features, SparseFeatures, count_words
from evergraph.graph.ids import Ids, Strings, at, find_all, first_duplicate, take
from evergraph.graph.times import TimeAxis, check_span, choose_axis

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

Ends = tuple[NDArray[np.integer], NDArray[np.integer], NDArray[np.int64] | None]
"""Source and target of edges, by row, and their times."""


@dataclass(frozen=True)
class Origin:
    """The file (or the argument) that a table came from.

    Parameters
    ----------
    file
        What an error calls the table: a path, or the name of an argument.
    line_of
        The line of a text file on which a row (counted from 0) starts, found only when an error needs it.
    """

    file: str | Path
    line_of: Callable[[int], int | None] = lambda _: None

    def fail(self, problem: str, *, fix: str, column: str | None = None, row: int | None = None) -> NoReturn:
        """Raise an `InputError` that points here; rows are counted from 0 and told from 1."""
        if row is None:
            raise InputError(problem, fix=fix, file=self.file, column=column)
        raise InputError(problem, fix=fix, file=self.file, column=column, row=row + 1, line=self.line_of(row))


_VERTICES, _EDGES = Origin("vertices"), Origin("edges")


@dataclass(frozen=True, eq=False)
class VertexColumns:
    """Checked vertices in ascending order of time, those of one time in the order in which they came.

    ``codes`` point into ``class_names``; -1 is no label.
    """

    ids: Ids
    times: NDArray[np.int64]
    codes: NDArray[np.int32]
    class_names: tuple[str, ...]
    features: Features | None
    axis: TimeAxis


@dataclass(frozen=True, eq=False)
class EdgeColumns:
    """Checked edges between ids; whether the ids exist is not yet known."""

    source: pa.Array
    target: pa.Array
    times: NDArray[np.int64] | None
    origin: Origin
    names: tuple[str, str] = ("source", "target")


def as_table(table: Any, origin: Origin) -> pa.Table:
    """A mapping of columns, a pandas or polars frame, or anything else that speaks Arrow, as an Arrow table."""
    import pyarrow as pa

    if isinstance(table, pa.Table):
        return table
    named = None
    if isinstance(table, Mapping) or hasattr(table, "items"):  # a pandas frame has them, too
        named = [(str(name), _as_array(values, origin, str(name))) for name, values in table.items()]
    try:
        if named is not None:
            return pa.Table.from_arrays([array for _, array in named], names=[name for name, _ in named])
        return pa.table(table)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"the {origin.file} are no table ({error})",
            fix="give a mapping of equally long columns, a data frame or an Arrow table",
        ) from error


def _as_array(values: Any, origin: Origin, name: str) -> pa.Array:
    import pyarrow as pa

    if isinstance(values, Strings):
        return values.arrow()
    kind = values.dtype.kind if isinstance(values, np.ndarray) and values.ndim == 1 else ""
    if kind and kind in "US":
        values = values.tolist()
    elif kind == "M" and np.datetime_data(values.dtype)[0] not in ("D", "s", "ms", "us", "ns"):
        values = values.astype("datetime64[s]")  # Arrow knows no years and months
    try:
        if not hasattr(values, "__len__"):
            values = list(values)
        array = pa.array(values, from_pandas=True)  # so that NaN is a gap among strings, too
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        origin.fail(
            f"the values are no column ({error})",
            column=name,
            fix="give values of one kind: strings, whole numbers below 2^63, numbers or dates",
        )
    of_objects = isinstance(values, (list, tuple)) or str(getattr(values, "dtype", "")) == "object"
    if of_objects and pa.types.is_temporal(array.type):
        # Among dates Arrow takes a number for a count of days.
        numbers = [row for row, value in enumerate(values) if isinstance(value, (int, np.integer))]
        if numbers:
            origin.fail(
                f"{values[numbers[0]]!r} is a number among dates",
                column=name,
                row=numbers[0],
                fix="write all times in one way",
            )
    return array


def check_vertices(
    vertices: Any,
    features: Any = None,
    feature_names: list[str] | None = None,
    *,
    every: str | int | None = None,
    axis: TimeAxis | None = None,
) -> VertexColumns:
    """Checked vertices of columns in memory, as `EvolvingGraph.build` takes them."""
    table = as_table(vertices, _VERTICES)
    for wanted in ("label", "text"):
        # Both may be missing, but not by a slip of the pen.
        slips = [
            name for name in table.column_names if name != wanted and name.strip().lower() in (wanted, f"{wanted}s")
        ]
        if wanted not in table.column_names and slips:
            _VERTICES.fail(
                f"there is a column '{slips[0]}', but none '{wanted}'", column=slips[0], fix=f"call it '{wanted}'"
            )
    return vertex_columns(
        table,
        _VERTICES,
        label="label" if "label" in table.column_names else None,
        text="text" if "text" in table.column_names else None,
        features=as_features(features, feature_names) if features is not None else None,
        every=every,
        axis=axis,
    )


def check_edges(edges: Any, axis: TimeAxis) -> EdgeColumns | None:
    """Checked edges of columns in memory, as `EvolvingGraph.build` takes them."""
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
    features: Features | None = None,
    every: str | int | None = None,
    axis: TimeAxis | None = None,
) -> VertexColumns:
    """Check the columns of vertices; None for ``label`` or ``text`` leaves them out."""
    if not table.num_rows:
        origin.fail("there are no vertices", fix="give at least one")
    if text is not None and features is not None:
        origin.fail(
            "text and feature columns cannot be combined", fix=f"leave out the text column '{text}', or the features"
        )
    ids = _ids(_column(table, id, origin), origin, id)
    time_column = _column(table, time, origin)
    if axis is None:
        axis = choose_axis(time_column, every, origin, time)
    times = axis.parse(time_column, origin, time)
    check_span(times, origin, time)
    labels = class_column(_column(table, label, origin), origin, label) if label is not None else _nulls(len(ids))
    texts = _text(_column(table, text, origin), origin, text) if text is not None else None
    if features is not None and len(features) != len(ids):
        origin.fail(f"{len(features)} rows of features for {len(ids)} vertices", fix="give one row a vertex")
    if (times[1:] < times[:-1]).any():
        # Sorted before labels and words are coded, so that classes and words are numbered as they first appear in time.
        order = np.argsort(times, kind="stable")
        ids, times, labels = take(ids, order), times[order], labels.take(order)
        texts = texts.take(order) if texts is not None else None
        features = features.take(order) if features is not None else None
    coded = labels.dictionary_encode()
    return VertexColumns(
        ids,
        times,
        coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32),
        tuple(coded.dictionary.to_pylist()),
        count_words(texts) if texts is not None else features,
        axis,
    )


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
        _refuse_gaps(column, origin, name, "an edge has no end", "give the ids of both ends, or delete the row")
        ends.append(column)
    times = None
    if time is not None and table.num_rows:
        times = axis.parse(_column(table, time, origin), origin, time)
    return EdgeColumns(ends[0], ends[1], times, origin, (source, target))


def as_features(values: Any, columns: list[str] | None = None, origin: Origin | None = None) -> Features:
    """Features from a scipy sparse matrix (kept sparse) or a two-dimensional array (kept dense)."""
    origin = origin or Origin("features")
    if columns is not None and (len(set(columns)) < len(columns) or not all(isinstance(name, str) for name in columns)):
        origin.fail("the names of the columns are not all different strings", fix="give each column a name of its own")
    if sparse.issparse(values):
        if values.ndim != 2:
            origin.fail(f"features have {values.ndim} dimensions", fix="give one row a vertex and one column a feature")
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is found below
            features = SparseFeatures.of(values, None if columns is None else Strings.of(columns))
        finite = np.isfinite(features.data)
        if not finite.all():
            row = int(np.searchsorted(features.indptr, np.argmin(finite), side="right")) - 1
            _not_finite(origin, row, int(features.indices[np.argmin(finite)]), columns)
        return features
    try:
        with np.errstate(over="ignore"):
            dense = np.array(values, dtype=np.float32, order="C", ndmin=2)
    except (TypeError, ValueError) as error:
        origin.fail(f"the features are no numbers ({error})", fix="give equally long rows of numbers")
    if dense.ndim != 2:
        origin.fail(f"features have {dense.ndim} dimensions", fix="give one row a vertex and one column a feature")
    finite = np.isfinite(dense)
    if not finite.all():
        row, column = np.argwhere(~finite)[0].tolist()
        _not_finite(origin, row, column, columns)
    return DenseFeatures(dense)


def find_ends(
    ids: Sequence[Ids],
    edges: EdgeColumns | None,
    drop_dangling: bool,
    known: Sequence[NDArray[np.int64]] | None = None,
) -> Ends:
    """Rows of the ends of each edge in columns of ids, one after the other; unknown ids are refused or dropped.

    ``known`` are the rows of both ends in the first column, where they were looked up before.
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
            f"an edge leads to {unknown!r}, which is no vertex ({int(dangling.sum()):,} of {len(source):,} edges)",
            column=edges.names[side],
            row=row,
            fix="add the vertices, or drop such edges with drop_dangling (--drop-dangling)",
        )
    log.info("edges to unknown vertices dropped: %s", f"{int(dangling.sum()):,}")
    stays = ~dangling
    return source[stays], target[stays], edges.times[stays] if edges.times is not None else None


def _not_finite(origin: Origin, row: int, column: int, columns: list[str] | None) -> None:
    name = columns[column] if columns else str(column)
    origin.fail("a feature is missing, infinite or too large", column=name, row=row, fix="write a float32 number")


def _column(table: pa.Table, name: str, origin: Origin) -> pa.Array:
    if name not in table.column_names:
        present = ", ".join(table.column_names)
        origin.fail(f"there is no column '{name}'", fix=f"name the column that holds it (there are: {present})")
    if table.column_names.count(name) > 1:
        origin.fail(f"there are several columns '{name}'", fix="keep one of them")
    return _plain(table.column(name).combine_chunks())


def _plain(column: pa.Array) -> pa.Array:
    """A column without dictionaries (pandas' categories) and string views (polars'), of which Arrow can do little."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = _plain(column.dictionary).take(column.indices)
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def id_column(table: pa.Table, name: str, origin: Origin) -> pa.Array:
    """A column of ids to look up; strings among whole numbers and the other way round will do (see `ids.find`)."""
    import pyarrow as pa

    column = _column(table, name, origin)
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind):
        origin.fail(f"a column of {kind} holds no ids", column=name, fix="give strings or whole numbers")
    return column


def _ids(column: pa.Array, origin: Origin, name: str) -> Ids:
    import pyarrow as pa

    kind = column.type
    if not _is_text(kind) and not pa.types.is_integer(kind):
        origin.fail(f"a column of {kind} holds no ids", column=name, fix="give strings or whole numbers")
    _refuse_gaps(column, origin, name, "a vertex has no id", "give every vertex an id of its own")
    if pa.types.is_uint64(kind) and (large := np.array(column) > np.iinfo(np.int64).max).any():
        row = int(np.argmax(large))
        origin.fail(f"id {column[row]} is too large", column=name, row=row, fix="write such ids as strings")
    ids = Strings.from_arrow(column) if _is_text(kind) else np.array(column.cast(pa.int64()))
    if (double := first_duplicate(ids)) is not None:
        again, first = double
        origin.fail(
            f"id {at(ids, again)!r} stands a second time (first in row {first + 1})",
            column=name,
            row=again,
            fix="give every vertex an id of its own",
        )
    return ids


def class_column(column: pa.Array, origin: Origin, name: str) -> pa.Array:
    """Class names of a column of labels; null where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_null(kind):
        return _nulls(len(column))
    if pa.types.is_floating(kind):
        # Whole numbers beside gaps arrive as floats.
        column = pc.if_else(pc.is_nan(column), None, column)
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid:
            origin.fail("fractions are no class names", column=name, fix="give strings or whole numbers")
    elif not (_is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        origin.fail(f"a column of {kind} holds no class names", column=name, fix="give strings or whole numbers")
    names = column.cast(pa.large_string())
    names = pc.if_else(pc.equal(names, ""), None, names)
    reserved = (
        pc.equal(pc.utf8_lower(pc.utf8_trim_whitespace(names)), UNSEEN).fill_null(False).to_numpy(zero_copy_only=False)
    )
    if reserved.any():
        row = int(np.argmax(reserved))
        origin.fail(
            f"a class is named {names[row].as_py()!r}, the word for vertices of no known class",
            column=name,
            row=row,
            fix="rename the class, or leave the label empty where it is not known",
        )
    return names


def _text(column: pa.Array, origin: Origin, name: str) -> pa.Array:
    import pyarrow as pa

    kind = column.type
    if not (_is_text(kind) or pa.types.is_null(kind)):
        origin.fail(f"a column of {kind} holds no text", column=name, fix="give strings")
    return column


def _refuse_gaps(column: pa.Array, origin: Origin, name: str, problem: str, fix: str) -> None:
    import pyarrow.compute as pc

    gaps = pc.is_null(column, nan_is_null=True)
    if _is_text(column.type):
        gaps = pc.or_kleene(gaps, pc.equal(column, ""))
    gaps = gaps.fill_null(True).to_numpy(zero_copy_only=False)
    if gaps.any():
        origin.fail(problem, column=name, row=int(np.argmax(gaps)), fix=fix)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _nulls(count: int) -> pa.Array:
    import pyarrow as pa

    return pa.nulls(count, pa.large_string())
