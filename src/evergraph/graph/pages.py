"""Resident memory of this process, and the pages of memory-mapped graphs in it."""

from __future__ import annotations

import contextlib
import mmap
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evergraph.graph.adjacency import LayeredAdjacency
from evergraph.graph.blocks import Blocks
from evergraph.graph.evolving import EvolvingGraph

__all__ = ["give_back_pages", "resident"]

_FULL = 0.9  # share of the limit at which pages are given back


def resident() -> int:
    """Return the resident bytes of this process; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE
    return 0


def give_back_pages(graph: EvolvingGraph, limit: int) -> None:
    """Unmap the pages of a graph's memory maps if the process is near its limit; they are read again when needed."""
    if resident() < _FULL * limit:
        return
    links = graph.links.base if isinstance(graph.links, LayeredAdjacency) else graph.links
    for column in chain(*(vars(part).values() for part in (graph, links, *graph.features.parts.values()))):
        for array in column.blocks if isinstance(column, Blocks) else [column]:
            if isinstance(array, np.ndarray) and (mapped := _map_of(array)) is not None:
                mapped.madvise(mmap.MADV_DONTNEED)


def _map_of(array: NDArray[np.generic]) -> mmap.mmap | None:
    """The memory map that an array is a part of."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None
