"""Check one column of a table: ids, class names, text, numbers or categories. An error names the row."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.errors import Origin
from evergraph.graph.classes import UNSEEN
from evergraph.graph.ids import Ids, Strings, at, first_duplicate

if TYPE_CHECKING:
    import pyarrow as pa

    from evergraph.graph.features import Numbers
    from evergraph.graph.hashed import IdIndex

log = logging.getLogger(__name__)

_MANY = 2**17  # ids from which compiled code pays
_STRINGS = "give strings or whole numbers"
_MISSING = ("", "na", "n/a", "nan", "null", "none")  # a number that is missing, in lower case
_TRUTH = ("false", "true")  # by the number they become


def named_column(table: pa.Table, name: str, origin: Origin) -> pa.Array:
    """Return the column of this name, without dictionaries and string views."""
    if name not in table.column_names:
        present = ", ".join(table.column_names)
        origin.fail(f"there is no column '{name}'", fix=f"name the column that holds it (there are: {present})")
    if table.column_names.count(name) > 1:
        origin.fail(f"there are several columns '{name}'", fix="keep one of them")
    column = table.column(name)
    return _plain(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())


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


def vertex_ids(column: pa.Array, origin: Origin, name: str) -> tuple[Ids, IdIndex | None]:
    """Return unique ids of vertices and, if there are many, their index."""
    import pyarrow as pa

    kind = column.type
    if not _is_text(kind) and not pa.types.is_integer(kind):
        origin.fail(f"a column of {kind} holds no ids", column=name, fix=_STRINGS)
    refuse_gaps(column, origin, name, "a vertex has no id", "give every vertex its own id")
    if pa.types.is_uint64(kind) and (large := np.array(column) > np.iinfo(np.int64).max).any():
        row = int(np.argmax(large))
        origin.fail(f"id {column[row]} is too large", column=name, row=row, fix="write such ids as strings")
    ids = Strings.from_arrow(column) if _is_text(kind) else np.array(column.cast(pa.int64()))
    index = None
    if len(ids) >= _MANY:
        from evergraph.graph.hashed import IdIndex

        index = IdIndex.of(ids)
    if index is None and (double := first_duplicate(ids)) is not None:
        again, first = double
        problem = f"id {at(ids, again)!r} occurs twice (first in row {first + 1})"
        origin.fail(problem, column=name, row=again, fix="give every vertex its own id")
    return ids, index


def class_column(column: pa.Array, origin: Origin, name: str) -> pa.Array:
    """Return the class names of a column of labels; null for no label."""
    import pyarrow.compute as pc

    names = _names(column, origin, name, "class names", _STRINGS)
    distinct = names.unique()
    reserved = distinct.filter(pc.equal(pc.utf8_lower(pc.utf8_trim_whitespace(distinct)), UNSEEN))
    if len(reserved):
        row = pc.is_in(names, value_set=reserved).index(True).as_py()
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
        return no_strings(len(column))
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


def text_column(column: pa.Array, origin: Origin, name: str) -> pa.Array:
    """Return a column of texts."""
    import pyarrow as pa

    if not (_is_text(column.type) or pa.types.is_null(column.type)):
        origin.fail(f"a column of {column.type} holds no text", column=name, fix="give strings")
    return column


def refuse_gaps(column: pa.Array, origin: Origin, name: str, problem: str, fix: str) -> None:
    """Refuse an empty cell."""
    import pyarrow.compute as pc

    if _is_text(column.type) and not column.null_count and pc.min(pc.binary_length(column)).as_py() != 0:
        return  # most columns, and much faster
    gaps = pc.is_null(column, nan_is_null=True)
    if _is_text(column.type):
        gaps = pc.or_kleene(gaps, pc.equal(column, ""))
    if (row := gaps.fill_null(True).index(True).as_py()) >= 0:
        origin.fail(problem, column=name, row=row, fix=fix)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def no_strings(count: int) -> pa.Array:
    """Return a column of nulls."""
    import pyarrow as pa

    return pa.nulls(count, pa.large_string())


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


def category_column(column: pa.Array, origin: Origin, name: str) -> pa.Array:
    """Return the categories of a column; null for a missing one."""
    if "=" in name:
        origin.fail("the name of a column of categories holds '='", column=name, fix="rename the column")
    return _names(column, origin, name, "categories", "give strings or whole numbers, or name it a number")
