"""Merge small segments of the graph into larger ones, so that there are few, whatever the number of slices.

Segments are merged in tiers, as in a log-structured merge tree: as soon as there are four neighbouring segments of
about one size, they become one. So the number of segments grows with the logarithm of the size of the graph, and the
data of a slice is written again once per tier. Labels that have arrived meanwhile are written into the new segment, so
that readers need not look them up.

It happens after a slice has been added and committed. The new segment is prepared while others can change the
workspace, and replaces the old ones in a transaction of its own that makes no new version: a process killed at any
moment leaves the old segments or the new one. Earlier versions keep the old segments, which are removed with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evergraph.graph.segments import base_segment, decode, join, merge
from evergraph.storage.records import Row
from evergraph.workspace.change import Contents, check_segment, put_segment, unlabelled
from evergraph.workspace.store import Store, head_of

__all__ = ["choose_merge", "compact"]

_FAN = 4


def choose_merge(sizes: Sequence[int]) -> slice | None:
    """Return which segments to merge, given the sizes of all in bytes; None if there are few of each size.

    Examples
    --------
    >>> choose_merge([10**9, 900, 800, 1000, 700]), choose_merge([10**9, 900, 800, 1000])
    (slice(1, 5, None), None)
    >>> choose_merge([10**9, 10**4, 9000, 8000, 900, 800, 1000, 700])  # the result would be the fourth of its size
    slice(1, 8, None)
    """
    levels = [(max(size, 1).bit_length() - 1) // 2 for size in sizes]
    best = None
    for level in sorted(set(levels)):
        start = len(levels)
        while start and levels[start - 1] <= level:
            start -= 1
        # A run that is merged for a lower level counts as one of this level.
        if best is not None and start < best.start:
            count = sum(one == level for one in levels[start : best.start]) + 1
        else:
            count = sum(one == level for one in levels[start:])
        if count >= _FAN:
            best = slice(start, len(levels))
    return best


def compact(store: Store, contents: Contents, version: int, wait: float = 0) -> bool:
    """Merge segments if there are many of one size; return whether it was done.

    Parameters
    ----------
    store
        The workspace.
    contents, version
        The graph and the labels of a version.
    wait
        Seconds to wait for another writer.
    """
    with store.read() as records:
        if head_of(records) != version:
            return False
        # The segment of the newest version is left alone, so that each version keeps its segments.
        rows = records.select("segments", "until IS NULL AND since < ? ORDER BY segment", version)
        newer = records.value("SELECT count(*) FROM segments WHERE until IS NULL AND since >= ?", version)
    sizes = [(store.objects.folder / row.object).stat().st_size for row in rows]
    chosen = choose_merge(sizes) if newer <= 1 else None
    if chosen is None:
        return False
    made = _merged(store, contents, rows, chosen)
    if made is None:
        return False
    old = rows[chosen]
    with store.write(wait) as records:
        now = records.select("segments", "until IS NULL ORDER BY segment")
        if [row for row in now if row in old] != old:  # removed or rolled back meanwhile
            return False
        segment, vertices, labels = made
        name = put_segment(store.objects, segment, vertices, labels, version)
        head = head_of(records)
        numbers = [row.segment for row in old]
        marks = ", ".join("?" * len(numbers))
        records.replace("segments", f"until IS NULL AND segment IN ({marks})", numbers, until=head)
        records.insert("segments", [(numbers[0], name, head, None)])
        store.objects.sync()
    return True


def _merged(store: Store, contents: Contents, rows: Sequence[Row], chosen: slice) -> tuple[Any, Any, Any] | None:
    """Return the segment instead of those chosen, the numbers of its vertices and their labels; None if impossible."""
    below = [decode(store.objects.view(row.object, check_segment)) for row in rows[: chosen.start]]
    # Data that is written again is first compared with its hash, which `view` does not do each time.
    parts = [decode(store.objects.read(row.object)) for row in rows[chosen]]
    first, count = (sum(len(part.get("times", ())) for part in of) for of in (below, parts))
    numbers, labels = contents.vertices[first : first + count], contents.labels[first : first + count]
    own = np.concatenate([np.empty(0, np.int64), *(part["vertices"] for part in parts if "vertices" in part)])
    if not np.array_equal(numbers, own):  # the rows of the graph are in another order than the segments
        return None
    segment = merge(join(below), parts) if below else base_segment(unlabelled(join(parts)))
    return None if segment is None else (segment, numbers, labels)
