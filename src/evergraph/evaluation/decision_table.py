"""The decisions of one task as a Parquet file: what a report reads that scores do not tell."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.analysis.explain import neighbours_of, words_of
from evergraph.errors import InputError
from evergraph.graph.ids import to_arrow
from evergraph.learning.task import Decisions, Task

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DecisionTable", "read_decisions", "write_decisions"]

_TO_REVIEW = 25  # rejected vertices of a task that are described, those that look most unseen


@dataclass(frozen=True, eq=False)
class DecisionTable:
    """Decisions as a file keeps them, beside the truth; one entry a vertex.

    Parameters
    ----------
    ids, best, flagged, score, probability
        As in `Decisions`; ids are strings or whole numbers.
    truth
        Class name; None where there is no label.
    unseen, never_before
        Whether the learner did not know the class, and whether no vertex had it before; False without a label.
    words
        Of the rejected vertices that look most unseen those that say most; None of all others, or without text.
    neighbours
        Of the same vertices the classes of their neighbours, as far as labels were there to learn from, with numbers.
    """

    ids: list[str] | list[int]
    best: NDArray[np.object_]
    flagged: NDArray[np.bool_]
    score: NDArray[np.float64]
    probability: NDArray[np.float64]
    truth: NDArray[np.object_]
    unseen: NDArray[np.bool_]
    never_before: NDArray[np.bool_]
    words: list[tuple[str, ...] | None]
    neighbours: list[tuple[tuple[str, int], ...] | None]

    def __len__(self) -> int:
        return len(self.best)

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Whether the truth is known."""
        return np.array([name is not None for name in self.truth], bool)


def write_decisions(task: Task, decisions: Decisions) -> bytes:
    """The file of a task's decisions; ``truth``, ``unseen`` and ``never_before`` are null where there is no label.

    Examples
    --------
    >>> from evergraph.datasets import synthetic
    >>> from evergraph.learning.learner import LifelongLearner
    >>> from evergraph.nn import MLP
    >>> task = Task(synthetic(vertices=200, times=4, new_classes=1, seed=1), time=3, history=2)
    >>> decisions = LifelongLearner(MLP(hidden=4), steps=2).adapt(task).predict(task)
    >>> found = read_decisions(write_decisions(task, decisions))
    >>> (found.best == decisions.best).all(), (found.truth == task.truth).all(), len(found) == len(task.test_ids)
    (np.True_, np.True_, True)
    """
    import pyarrow as pa
    from pyarrow import parquet

    truth = task.truth
    known = set(decisions.known)
    unlabelled = np.array([name is None for name in truth], bool)
    described = np.flatnonzero(decisions.flagged)
    described = described[np.argsort(-decisions.score[described], kind="stable")][:_TO_REVIEW]
    words: list[Any] = [None] * len(decisions)
    neighbours: list[Any] = [None] * len(decisions)
    for row, said, around in _described(task, described):
        words[row], neighbours[row] = said, around
    table = pa.table(
        {
            "id": to_arrow(decisions.ids),
            "best": _names(decisions.best),
            "rejected": decisions.flagged,
            "score": decisions.score,
            "probability": decisions.probability,
            "truth": _names(truth),
            "unseen": pa.array(np.array([name not in known for name in truth], bool), mask=unlabelled),
            "never_before": pa.array(task.never_before, mask=unlabelled),
            "words": pa.array(words, pa.list_(pa.string())),
            "neighbours": pa.array(neighbours, pa.map_(pa.string(), pa.int64())),
        }
    )
    file = io.BytesIO()
    parquet.write_table(table, file, compression="zstd")
    return file.getvalue()


def read_decisions(data: bytes, path: Path | None = None) -> DecisionTable:
    """The decisions of a file; ``path`` is where it lies, for errors to name it."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        columns = parquet.read_table(io.BytesIO(data)).to_pydict()
        return DecisionTable(
            ids=columns["id"],
            best=np.array(columns["best"], object),
            flagged=np.array(columns["rejected"], bool),
            score=np.array(columns["score"], np.float64),
            probability=np.array(columns["probability"], np.float64),
            truth=np.array(columns["truth"], object),
            unseen=np.array(columns["unseen"], bool),  # null, without a label, becomes False
            never_before=np.array(columns["never_before"], bool),
            words=[None if said is None else tuple(said) for said in columns["words"]],
            neighbours=[None if near is None else tuple(near) for near in columns["neighbours"]],
        )
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
        fix = "run it again with --replace, or restore the file from a backup"
        raise InputError("these are no decisions of a run, or they are damaged", file=path, fix=fix) from error


def _names(names: NDArray[np.object_]) -> pa.Array:
    import pyarrow as pa

    return pa.array(names, pa.string()).dictionary_encode()


def _described(
    task: Task, chosen: NDArray[np.integer]
) -> Iterator[tuple[int, tuple[str, ...] | None, tuple[tuple[str, int], ...]]]:
    """Of some test vertices their places, words and neighbours' classes."""
    slice_, window = task.graph.window(task.time, task.time), task.window
    # Only labels that the learner could learn from: the graph has the truth of the test vertices, too.
    codes = np.full(len(window), -1, np.int32)
    codes[: len(task.targets)] = task.targets
    words = words_of(slice_, chosen, before=task.time + 1) if len(chosen) else []
    near = neighbours_of(window, chosen + task.test.start, codes)
    for row, said, around in zip(chosen.tolist(), words, near, strict=True):
        yield row, said or None, around
