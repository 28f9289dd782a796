"""Vertex ids, strings or whole numbers: looking them up, joining them, finding doubles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.strings import Strings

if TYPE_CHECKING:
    import pyarrow as pa

Ids = Strings | NDArray[np.int64]


def to_arrow(ids: Ids) -> pa.Array:
    """The ids as an Arrow array, sharing memory."""
    import pyarrow as pa

    return ids.arrow() if isinstance(ids, Strings) else pa.array(ids)


def find(ids: Ids, wanted: pa.Array) -> NDArray[np.int64]:
    """Row of each wanted id; -1 where there is none.

    Numbers among strings, and strings among numbers, are found by how they are written: "7" is 7, "007" is not.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    known = to_arrow(ids)
    if isinstance(ids, Strings):
        wanted = _written(wanted)
    elif pa.types.is_integer(wanted.type) and not pa.types.is_uint64(wanted.type):
        wanted = wanted.cast(pa.int64())
    else:
        known, wanted = _written(known), _written(wanted)
    rows = pc.index_in(wanted, value_set=known, skip_nulls=True).fill_null(-1)
    return rows.to_numpy(zero_copy_only=False).astype(np.int64)


def _written(column: pa.Array) -> pa.Array:
    """Ids as they are written; whole numbers that became floats (beside gaps they do) as whole numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = column.cast(pa.large_string())
    if not pa.types.is_floating(column.type):
        return text
    is_whole = pc.and_(pc.equal(pc.floor(column), column), pc.less(pc.abs(column), 2.0**53))
    whole = pc.if_else(is_whole, column, None).cast(pa.int64()).cast(pa.large_string())
    return pc.coalesce(whole, text)


def first_duplicate(ids: Ids) -> tuple[int, int] | None:
    """The first row whose id occurred before, and the row where it did."""
    codes = to_arrow(ids).dictionary_encode()
    if len(codes.dictionary) == len(ids):
        return None
    values = codes.indices.to_numpy()
    _, first = np.unique(values, return_index=True)
    again = np.setdiff1d(np.arange(len(ids)), first)[0]
    return int(again), int(first[values[again]])


def join(ids: Ids, more: Ids) -> Ids:
    """One column of both; whole numbers are written as strings where the other column is strings."""
    import pyarrow as pa

    if isinstance(ids, Strings) or isinstance(more, Strings):
        parts = [to_arrow(part).cast(pa.large_string()) for part in (ids, more)]
        return Strings.from_arrow(pa.concat_arrays(parts))
    return np.concatenate([ids, more])


def at(ids: Ids, row: int | np.integer) -> str | int:
    """The id of one row, as Python's own string or number."""
    return ids[int(row)] if isinstance(ids, Strings) else int(ids[row])


def take(ids: Ids, rows: NDArray[np.integer]) -> Ids:
    """The ids of these rows, in this order."""
    return ids.take(rows) if isinstance(ids, Strings) else ids[rows]
