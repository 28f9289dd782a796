"""Check the columns of tables and turn them into vertices and edges, or into an error that names the row."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import InputError, Origin
from evergraph.graph.classes import UNSEEN
from evergraph.graph.ids import Ids, Strings, at, find_all, first_duplicate, take
from evergraph.graph.times import TimeAxis, check_span, choose_axis

if TYPE_CHECKING:
    import pyarrow as pa

    from evergraph.graph.features import Features, Numbers, SparseFeatures

log = logging.getLogger(__name__)

Ends = tuple[NDArray[np.integer], NDArray[np.integer], NDArray[np.int64] | None]
"""Source and target of edges, by row, and their times."""

_STRINGS = "give strings or whole numbers"
_MISSING = ("", "na", "n/a", "nan", "null", "none")  # a number that is missing, in lower case
_TRUTH = ("false", "true")  # by the number they become
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
    ids = _ids(named_column(table, id, origin), origin, id)
    time_column = named_column(table, time, origin)
    if axis is None:
        axis = choose_axis(time_column, every, origin, time)
    times = axis.parse(time_column, origin, time)
    check_span(times, origin, time)
    labels = class_column(named_column(table, label, origin), origin, label) if label is not None else _nulls(len(ids))
    texts = _text(named_column(table, text, origin), origin, text) if text is not None else None
    chosen = {name: _categories(named_column(table, name, origin), origin, name) for name in categories}
    for block in blocks:
        if len(block) != len(ids):
            origin.fail(f"{len(block)} rows of features for {len(ids)} vertices", fix="give one row for each vertex")
    parts: dict[str, Any] = dict(zip(given, blocks, strict=True))
    features = Features(**parts)
    if (times[1:] < times[:-1]).any():
        # Sort before anything is coded, so that classes, words and categories are numbered by their first use in time.
        order = np.argsort(times, kind="stable")
        ids, times, labels = take(ids, order), times[order], labels.take(order)
        texts = texts.take(order) if texts is not None else None
        features, chosen = features.take(order), {name: column.take(order) for name, column in chosen.items()}
    if texts is not None:
        texts = texts.cast(pa.large_string()).fill_null("")
        features = replace(features, words=count_words(texts), texts=Texts.of(Strings.from_arrow(texts)))
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
    )


def number_block(table: pa.Table, names: Sequence[str], origin: Origin) -> Numbers:
    """Return columns of numbers, truth values, or lists of them of equal length; a gap or NaN is a missing number."""
    from evergraph.graph.features import as_block

    parts, columns = [], []
    for name in names:
        column = named_column(table, name, origin)
        width, flat = _lists(column, origin, name)
        columns += [name] if flat is column else [f"{name}[{place}]" for place in range(width)]
        parts.append(_numbers(flat, origin, name, width).reshape(len(column), width))
    block: Any = as_block(np.concatenate(parts, axis=1), columns, origin)
    for name, part in zip(names, parts, strict=True):
        if np.nanmax(np.abs(part), initial=0) > 2**24:
            log.info("%s, column '%s': features are float32, numbers over 2^24 are rounded", origin.file, name)
    return block


def list_column(name: str, columns: Sequence[str]) -> str:
    """Return the column of lists that numbers of this name come from (``emb`` for ``emb[0]``); else the name itself."""
    lists = re.sub(r"\[\d+\]$", "", name)
    return lists if name not in columns and lists in columns else name


def _lists(column: pa.Array, origin: Origin, name: str) -> tuple[int, pa.Array]:
    """Return the length of the lists of a column and their values; 1 and the column itself if it has none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return 1, column
    if column.null_count:
        row = column.is_null().index(True).as_py()
        origin.fail("a list of numbers is missing", column=name, row=row, fix="write a list in every row")
    lengths = np.asarray(pc.list_value_length(column))
    width = int(lengths[0]) if len(lengths) else 0
    if (lengths != width).any():
        row = int(np.argmax(lengths != width))
        origin.fail("the lists have different lengths", column=name, row=row, fix="give equal lengths")
    return width, _plain(column.flatten())


def _numbers(column: pa.Array, origin: Origin, name: str, width: int) -> NDArray[np.float32]:
    import pyarrow as pa

    kind = column.type
    if _is_text(kind):
        column = _written_numbers(column, origin, name, width)
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        origin.fail(f"a column of {kind} holds no numbers", column=name, fix="give numbers, or name it a category")
    return np.asarray(column.cast(pa.float32(), safe=False).fill_null(np.nan))


def _written_numbers(column: pa.Array, origin: Origin, name: str, width: int) -> pa.Array:
    """Return the numbers and truth values of a column of strings."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    lower = pc.utf8_lower(cells)
    truth = pc.index_in(lower, value_set=pa.array(_TRUTH, pa.large_string())).cast(pa.large_string())
    cells = pc.if_else(
        pc.is_in(lower, value_set=pa.array(_MISSING, pa.large_string())), None, pc.coalesce(truth, cells)
    )
    try:
        return cells.cast(pa.float32())
    except pa.ArrowInvalid:
        for row, cell in enumerate(cells):
            try:
                cell.cast(pa.float32())
            except pa.ArrowInvalid:
                origin.fail(
                    f"{column[row].as_py()!r} is not a number",
                    column=name,
                    row=row // width,
                    fix="write a number, leave the cell empty if it is unknown, or name the column a category",
                )
        raise


def _categories(column: pa.Array, origin: Origin, name: str) -> pa.Array:
    if "=" in name:
        origin.fail("the name of a column of categories holds '='", column=name, fix="rename the column")
    return _names(column, origin, name, "categories", "give strings or whole numbers, or name it a number")


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
    log.info("Dropped %s of %s edges: they lead to unknown vertices", f"{int(dangling.sum()):,}", f"{len(source):,}")
    stays = ~dangling
    return source[stays], target[stays], edges.times[stays] if edges.times is not None else None


def named_column(table: pa.Table, name: str, origin: Origin) -> pa.Array:
    """Return the column of this name, without dictionaries and string views."""
    if name not in table.column_names:
        present = ", ".join(table.column_names)
        origin.fail(f"there is no column '{name}'", fix=f"name the column that holds it (there are: {present})")
    if table.column_names.count(name) > 1:
        origin.fail(f"there are several columns '{name}'", fix="keep one of them")
    return _plain(table.column(name).combine_chunks())


def _plain(column: pa.Array) -> pa.Array:
    """Convert dictionaries (pandas categories) and string views (polars), which Arrow's functions hardly support."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = _plain(column.dictionary).take(column.indices)
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def id_column(table: pa.Table, name: str, origin: Origin) -> pa.Array:
    """Return a column of ids to look up with `ids.find`, which matches "7" and 7."""
    import pyarrow as pa

    column = named_column(table, name, origin)
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind):
        origin.fail(f"a column of {kind} holds no ids", column=name, fix=_STRINGS)
    return column


def _ids(column: pa.Array, origin: Origin, name: str) -> Ids:
    import pyarrow as pa

    kind = column.type
    if not _is_text(kind) and not pa.types.is_integer(kind):
        origin.fail(f"a column of {kind} holds no ids", column=name, fix=_STRINGS)
    _refuse_gaps(column, origin, name, "a vertex has no id", "give every vertex its own id")
    if pa.types.is_uint64(kind) and (large := np.array(column) > np.iinfo(np.int64).max).any():
        row = int(np.argmax(large))
        origin.fail(f"id {column[row]} is too large", column=name, row=row, fix="write such ids as strings")
    ids = Strings.from_arrow(column) if _is_text(kind) else np.array(column.cast(pa.int64()))
    if (double := first_duplicate(ids)) is not None:
        again, first = double
        problem = f"id {at(ids, again)!r} occurs twice (first in row {first + 1})"
        origin.fail(problem, column=name, row=again, fix="give every vertex its own id")
    return ids


def class_column(column: pa.Array, origin: Origin, name: str) -> pa.Array:
    """Return the class names of a column of labels; null for no label."""
    import pyarrow.compute as pc

    names = _names(column, origin, name, "class names", _STRINGS)
    reserved = pc.equal(pc.utf8_lower(pc.utf8_trim_whitespace(names)), UNSEEN).fill_null(False)
    if (row := reserved.index(True).as_py()) >= 0:
        origin.fail(
            f"a class is named {names[row].as_py()!r}, which is reserved for vertices flagged as unseen",
            column=name,
            row=row,
            fix="rename the class, or leave the label empty if it is unknown",
        )
    return names


def _names(column: pa.Array, origin: Origin, name: str, what: str, fix: str) -> pa.Array:
    """Return strings, whole numbers or truth values as strings; null for an empty one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _plain(column)
    kind = column.type
    if pa.types.is_null(kind):
        return _nulls(len(column))
    if pa.types.is_floating(kind):
        # Whole numbers beside gaps arrive as floats.
        column = pc.if_else(pc.is_nan(column), None, column)
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid:
            origin.fail(f"fractions are not {what}", column=name, fix=fix)
    elif not (_is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        origin.fail(f"a column of {kind} holds no {what}", column=name, fix=fix)
    if what == "class names" and pa.types.is_signed_integer(column.type):
        column = _without_sentinel(column, origin, name)
    names = column.cast(pa.large_string())
    return pc.if_else(pc.equal(names, ""), None, names)


def _without_sentinel(column: pa.Array, origin: Origin, name: str) -> pa.Array:
    """Take -1 among codes as "no label", as `pandas.factorize` writes it; refuse it where it may also be a class."""
    import pyarrow.compute as pc

    marked = pc.equal(column, -1).fill_null(False)
    codes = np.unique(column.drop_null().to_numpy(zero_copy_only=False))
    if not len(codes) or codes[0] != -1:  # other negative numbers are classes, and -1 with them
        return column
    if column.null_count or codes[-1] != len(codes) - 2:
        origin.fail(
            "-1 is either a class or no label",
            column=name,
            row=marked.index(True).as_py(),
            fix="leave the label empty (None) if there is none, or write the classes as strings",
        )
    log.warning(
        "%s, column '%s': %s labels are -1 and count as no label. Write the classes as strings if -1 is one.",
        origin.file,
        name,
        f"{marked.true_count:,}",
    )
    return pc.if_else(marked, None, column)


def _text(column: pa.Array, origin: Origin, name: str) -> pa.Array:
    import pyarrow as pa

    if not (_is_text(column.type) or pa.types.is_null(column.type)):
        origin.fail(f"a column of {column.type} holds no text", column=name, fix="give strings")
    return column


def _refuse_gaps(column: pa.Array, origin: Origin, name: str, problem: str, fix: str) -> None:
    import pyarrow.compute as pc

    gaps = pc.is_null(column, nan_is_null=True)
    if _is_text(column.type):
        gaps = pc.or_kleene(gaps, pc.equal(column, ""))
    if (row := gaps.fill_null(True).index(True).as_py()) >= 0:
        origin.fail(problem, column=name, row=row, fix=fix)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _nulls(count: int) -> pa.Array:
    import pyarrow as pa

    return pa.nulls(count, pa.large_string())
