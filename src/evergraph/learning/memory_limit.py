"""The memory limit of a learner: whether a window is trained as a whole or in mini-batches, and how large parts are.

The limit counts the resident memory of the process, as ``top`` shows it. What training the whole window would take is
estimated from the numbers of vertices, edges, stored features and classes, and from the widths of the model's layers.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

from evergraph.errors import InputError
from evergraph.graph.pages import give_back_pages, resident
from evergraph.inputs.vocabulary import FeatureReader
from evergraph.learning.inference import BlockSizes
from evergraph.nn import Model
from evergraph.nn.sampling import Edges

__all__ = ["Plan", "free_memory", "limit_of", "limit_process", "parse_size", "size_in_words"]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_FIX = 'write a number of bytes, or a size such as "800MB" or "4GB"'

BATCH = 1_024
"""Labelled vertices of a mini-batch, if the limit allows it."""
FANOUTS = (10, 10, 5)
"""Neighbours that are sampled at the first, the second and every further hop."""
_AHEAD = 2  # batches that wait; one more is being made, and one more trains
_LEAST = 16  # vertices of the smallest batch
_SHARE = 0.8  # of the free memory, if no limit is given


def parse_size(value: str | int) -> int:
    """Return a size in bytes.

    Examples
    --------
    >>> parse_size("4GB"), parse_size("1.5 MB"), parse_size("2GiB"), parse_size(7)
    (4000000000, 1500000, 2147483648, 7)
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = (
        re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([KMGT]?)(i?)B?\s*", value, re.IGNORECASE)
        if isinstance(value, str)
        else None
    )
    if found is None or (found[3] and not found[2]):
        raise InputError(f"the memory limit is {value!r}", fix=_FIX)
    power = len("KMGT"[: "KMGT".index(found[2].upper()) + 1]) if found[2] else 0
    size = int(float(found[1]) * (1024**power if found[3] else 1000**power))
    if size < 1:
        raise InputError(f"the memory limit is {value!r}", fix=_FIX)
    return size


_of_process: int | None = None


def limit_process(value: str | int | None) -> None:
    """Set the memory limit of learners in this process that have none of their own, such as those of workspaces."""
    global _of_process  # a property of the process
    _of_process = None if value is None else parse_size(value)


def limit_of(value: str | int | None) -> int | None:
    """Return a learner's limit in bytes, or that of the process; None if there is none."""
    return _of_process if value is None else parse_size(value)


def size_in_words(size: float) -> str:
    """Return a size for people.

    Examples
    --------
    >>> size_in_words(1_234_567_890), size_in_words(5_000_000)
    ('1.2 GB', '5 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def free_memory() -> int | None:
    """Return the bytes that this and new processes can still use; None if unknown."""
    found = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")))
    with contextlib.suppress(OSError, ValueError):  # "max" if there is no limit
        most = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
        found.append(max(most - used, 0))
    return min(found, default=None)


@dataclass(frozen=True)
class Plan:
    """How a window is trained and predicted within a memory limit.

    Parameters
    ----------
    limit
        Resident bytes of the process.
    needed
        Estimated bytes of training the whole window at each step.
    whole
        Whether the whole window is trained at each step.
    batch, fanouts, ahead
        Labelled vertices of a mini-batch, neighbours at each hop, and batches that wait.
    vertices
        Vertices of a mini-batch.
    blocks
        Parts of exact prediction.
    """

    limit: int
    needed: int
    whole: bool
    batch: int
    fanouts: tuple[int, ...]
    ahead: int
    vertices: int
    blocks: BlockSizes

    @classmethod
    def of(
        cls,
        limit: int | None,
        model: Model,
        reader: FeatureReader,
        edges: Edges,
        classes: int,
        *,
        sampled: bool = False,
    ) -> Plan:
        """Plan a window; with ``sampled``, mini-batches are wanted in any case."""
        if limit is not None:
            give_back_pages(reader.task.graph, 0)
        used = resident()
        if limit is None:
            most = used + int(_SHARE * free) if (free := free_memory()) is not None else 2**62
        else:
            most = limit
        of_vertex, of_entry = model.step_memory(reader.vocabulary.width, classes)
        n = max(len(edges), 1)
        of_features = reader.bytes_per_vertex(reader.task.window.rows)
        # Features are read into arrays of their final size; neighbours get self-loops.
        needed = used + int(n * (of_features + of_vertex + 8) + (edges.entries + n) * (of_entry + 8))
        hops = model.hops
        fanouts = tuple(FANOUTS[min(hop, len(FANOUTS) - 1)] for hop in range(hops or 0))
        whole = needed <= most and not sampled
        if hops is None and not whole:
            if limit is not None and needed > most:
                raise InputError(
                    f"training {type(model).__name__} takes about {size_in_words(needed)}, more than the memory limit "
                    f"of {size_in_words(limit)}, and the model reads the whole window at each step",
                    fix="raise the limit, choose a shorter history, or train it on samples (--model saint)",
                )
            whole = True
        # Marks, targets, labelled vertices and their order: arrays of one number for each vertex of the window.
        fixed = 24 * n
        room = most - used - fixed
        degree = edges.entries / n
        per_seed, reach = 1.0, 1.0
        for fanout in fanouts:
            reach *= min(fanout, degree) + 1
            per_seed += reach
        of_seed = per_seed * (2 * of_features + of_vertex + of_entry + 24)
        batch = int(min(BATCH, room / 2 / ((_AHEAD + 2) * of_seed)))
        if not whole and batch < _LEAST:
            least = used + fixed + 2 * (_AHEAD + 2) * _LEAST * of_seed
            raise InputError(
                f"the memory limit of {size_in_words(most)} is too small: the process has {size_in_words(used)}, and "
                f"mini-batches of a window of {n:,} vertices take more",
                fix=f"set it to at least {size_in_words(least)}, or choose a shorter history",
            )
        of_read = 2 * of_features + of_vertex + of_entry + 24
        blocks = BlockSizes(
            entries=int(max(min(room / 4 / of_read, 4_000_000), 1_000)), in_memory=int(max(room / 4, 0))
        )
        return cls(most, needed, whole, max(batch, 1), fanouts, _AHEAD, int(max(batch, 1) * per_seed), blocks)
