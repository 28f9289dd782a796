"""The decisions of one task as a Parquet file: what a report reads that scores do not tell."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evergraph.decisions import Decisions
from evergraph.errors import InputError
from evergraph.graph.features import WordCounts
from evergraph.graph.ids import to_arrow
from evergraph.task import Task

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Decided", "read_decided", "write_decided"]

_TO_REVIEW = 25  # rejected vertices of a task that are described, those that look most unseen
_MOST_WORDS = 8
_MOST_CLASSES = 3


@dataclass(frozen=True, eq=False)
class Decided:
    """Decisions as a file keeps them, beside the truth; one entry a vertex.

    Parameters
    ----------
    ids, best, rejected, score, probability
        As in `Decisions`; ids are strings or whole numbers.
    truth
        Class name; None where there is no label.
    unseen, never_before
        Whether the learner did not know the class, and whether no vertex had it before; False without a label.
    words
        Of the rejected vertices that look most unseen the rarest words; None of all others, or without text.
    neighbours
        Of the same vertices the commonest classes of neighbours whose label was known, with their number.
    """

    ids: list[str] | list[int]
    best: NDArray[np.object_]
    rejected: NDArray[np.bool_]
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


def write_decided(task: Task, decisions: Decisions) -> bytes:
    """The file of a task's decisions; ``truth``, ``unseen`` and ``never_before`` are null where there is no label.

    Examples
    --------
    >>> from evergraph.datasets import synthetic
    >>> from evergraph.learner import LifelongLearner
    >>> from evergraph.nn import MLP
    >>> task = Task(synthetic(vertices=200, times=4, new_classes=1, seed=1), time=3, history=2)
    >>> decisions = LifelongLearner(MLP(hidden=4), steps=2).adapt(task).predict(task)
    >>> found = read_decided(write_decided(task, decisions))
    >>> (found.best == decisions.best).all(), (found.truth == task.truth).all(), len(found) == len(task.test_ids)
    (np.True_, np.True_, True)
    """
    import pyarrow as pa
    from pyarrow import parquet

    truth = task.truth
    known = set(decisions.known)
    unlabelled = np.array([name is None for name in truth], bool)
    described = np.flatnonzero(decisions.rejected)
    described = described[np.argsort(-decisions.score[described], kind="stable")][:_TO_REVIEW]
    words: list[Any] = [None] * len(decisions)
    neighbours: list[Any] = [None] * len(decisions)
    for row, said, near in zip(described, _words(task, described), _neighbours(task, described), strict=True):
        words[row], neighbours[row] = said, near
    table = pa.table(
        {
            "id": to_arrow(decisions.ids),
            "best": _names(decisions.best),
            "rejected": decisions.rejected,
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


def read_decided(data: bytes, path: Path | None = None) -> Decided:
    """The decisions of a file; ``path`` is where it lies, for errors to name it."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        columns = parquet.read_table(io.BytesIO(data)).to_pydict()
        return Decided(
            ids=columns["id"],
            best=np.array(columns["best"], object),
            rejected=np.array(columns["rejected"], bool),
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


def _words(task: Task, chosen: NDArray[np.integer]) -> list[list[str] | None]:
    """The words of some test vertices, those first that fewest vertices before had."""
    features = task.graph.features
    if not isinstance(features, WordCounts) or not len(chosen):
        return [None] * len(chosen)
    first = int(np.searchsorted(task.graph.times, task.time))
    before = features.indices[: features.indptr[first]]
    frequency = np.bincount(before, minlength=features.width)
    found: list[list[str] | None] = []
    for row in (chosen + first).tolist():
        columns = features.indices[features.indptr[row] : features.indptr[row + 1]]
        rarest = columns[np.argsort(frequency[columns], kind="stable")][:_MOST_WORDS]
        found.append([features.columns[int(column)] for column in rarest])
    return found


def _neighbours(task: Task, chosen: NDArray[np.integer]) -> list[list[tuple[str, int]]]:
    """The classes of the neighbours of some test vertices, as far as their labels were there to learn from."""
    window = task.window
    links, targets = window.links, task.targets
    found = []
    for row in (chosen + task.test.start).tolist():
        near = links.indices[links.indptr[row] : links.indptr[row + 1]]
        codes = targets[near[near < len(targets)]]
        counted = Counter(task.graph.names_of(codes[codes >= 0]).tolist())
        found.append(sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))[:_MOST_CLASSES])
    return found
