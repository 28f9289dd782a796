"""Graphs, learners and tables as objects of a store, and back."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from evergraph.detect import Detector
from evergraph.errors import DamagedWorkspaceError
from evergraph.graph.arrays import find_damage, from_arrays, to_arrays
from evergraph.graph.evolving import EvolvingGraph
from evergraph.graph.features import kind_of
from evergraph.graph.times import TimeAxis
from evergraph.learning.checkpoint import pack, unpack
from evergraph.learning.learner import LifelongLearner
from evergraph.nn.base import Model
from evergraph.workspace.state import ModelRecord
from evergraph.workspace.store import Store, Transaction

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

__all__ = ["keep_graph", "keep_learner", "keep_table", "kept_graph", "kept_learner", "kept_since", "kept_table"]


def keep_graph(change: Transaction, graph: EvolvingGraph, since: NDArray[np.int64]) -> dict[str, Any]:
    """Keep a graph and, for each vertex, the version it came with; arrays that an earlier version has are shared."""
    return {
        "since": change.put_array(since),
        "arrays": {name: change.put_array(array) for name, array in to_arrays(graph).items()},
        "features": kind_of(graph.features),
        "time": {"unit": graph.axis.unit, "step": graph.axis.step},
        "about": dict(graph.about),
    }


def kept_graph(store: Store, content: Mapping[str, Any]) -> EvolvingGraph:
    """The graph, as memory maps."""
    try:
        arrays = {name: store.array(*entry) for name, entry in content["arrays"].items()}
        graph = from_arrays(arrays, content["features"], TimeAxis(**content["time"]), content["about"])
        problem = find_damage(graph)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, DamagedWorkspaceError):
            raise
        problem = f"they lack or distort {error}"
    if problem is not None:
        raise _damaged(store, f"the arrays of the graph are damaged: {problem}")
    return graph


def kept_since(store: Store, content: Mapping[str, Any]) -> NDArray[np.int64]:
    """For each vertex of the graph, the version it came with."""
    return store.array(*content["since"])


def keep_learner(change: Transaction, learner: LifelongLearner) -> dict[str, str]:
    """Keep a learner: the fields ``learner`` and ``tensors`` of a `ModelRecord`."""
    content, tensors = pack(learner)
    described = json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    return {"learner": change.put(described, "json"), "tensors": change.put(tensors, "safetensors")}


def kept_learner(
    store: Store,
    record: ModelRecord,
    model: Model | torch.nn.Module | None = None,
    detector: Detector | None = None,
) -> LifelongLearner:
    """The learner of a record; a model or detector of one's own must be given again."""
    try:
        content = json.loads(store.read(record.learner))
        return unpack(LifelongLearner, content, store.read(record.tensors), model, detector)
    except (LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise _damaged(store, f"the learner is damaged: it lacks or distorts {error}") from error


def keep_table(change: Transaction, table: pa.Table) -> str:
    """Keep a table as Parquet; returns the object's name."""
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return change.put(buffer.getvalue(), "parquet")


def kept_table(store: Store, name: str) -> pa.Table:
    """The table of an object."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Not read_table(), which loads pandas where there is one, and takes half a second for it.
        return pq.ParquetFile(pa.BufferReader(store.read(name))).read()
    except pa.ArrowException as error:
        raise _damaged(store, f"the table {name} is damaged: {error}") from error


def _damaged(store: Store, problem: str) -> DamagedWorkspaceError:
    return DamagedWorkspaceError(problem, file=store.folder, fix="restore the folder from a backup, or roll back")
