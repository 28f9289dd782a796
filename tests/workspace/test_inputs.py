"""A workspace whose model reads text, numbers, categories, vectors and classes of older neighbours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from evergraph import EvolvingGraph, InputError
from evergraph.datasets.tables import Columns
from evergraph.detect import GDOC
from evergraph.inputs.encoding import encode_graph
from evergraph.inputs.vocabulary import BLOCKS
from evergraph.nn import GraphSAGE
from evergraph.storage import records as storage_records
from evergraph.workspace import Workspace
from tests.encoders import Hashed

pytestmark = pytest.mark.usefixtures("one_thread")

EACH = 30  # vertices per period
LAST = 3
Table = dict[str, list[Any]]


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    with mock.patch.object(os, "fsync"), mock.patch.object(storage_records, "SYNCHRONOUS", "OFF"):
        yield


def class_of(id: int) -> str:
    return f"c{id % EACH % 3}"


def slice_of(time: int, **changed: Any) -> tuple[Table, list[tuple[int, int]]]:
    """A slice without labels, whose vertices have edges to the period before; ``changed`` are cells of its first."""
    ids = list(range(time * EACH, (time + 1) * EACH))
    table: Table = {
        "id": ids,
        "time": [time] * EACH,
        "text": [f"word{id % 3} other{id % 7} text" for id in ids],
        "pages": [None if id % 9 == 0 else id % 3 * 10.0 + id % 4 for id in ids],
        "kind": ["abc"[id % 3] for id in ids],
    }
    for name, value in changed.items():
        table[name][0] = value
    edges = [(id, other) for id in ids for other in (id - EACH, id - EACH - 3) if time and other >= 0]
    return table, edges


def made(folder: Path) -> Workspace:
    tables = [slice_of(time) for time in range(LAST + 1)]
    vertices = {name: [cell for table, _ in tables for cell in table[name]] for name in tables[0][0]}
    vertices["label"] = [class_of(id) for id in vertices["id"]]
    edges = [edge for _, of_slice in tables for edge in of_slice]
    graph = EvolvingGraph.build(vertices, edges, numbers=["pages"], categories=["kind"])
    return Workspace.create(
        folder / "ws",
        encode_graph(graph, Hashed()),
        model=GraphSAGE(hidden=8),
        detector=GDOC(0.5),
        inputs=",".join(BLOCKS),
        history=2,
        steps=30,
        lr=0.05,
        columns=Columns(numbers=("pages",), categories=("kind",)),
    )


def again(workspace: Workspace) -> Workspace:
    return Workspace(workspace.store.folder)


def sizes(workspace: Workspace) -> dict[str, int]:
    vocabulary = workspace.learner().vocabulary_
    assert vocabulary is not None
    return vocabulary.sizes(workspace.graph)


def test_all_blocks_go_through_the_production_loop(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    first = {"words": 11, "classes": 3, "numbers": 1, "encoder": 6, "categories": 3}
    assert sizes(workspace) == first
    assert workspace.status().inputs == BLOCKS

    new = (LAST + 1) * EACH
    workspace.add(*slice_of(LAST + 1, kind="new", pages=None, text="word0 unheard"), encoder=Hashed())
    assert sizes(workspace) == first  # what is new in a slice is learnt with the next update
    before = again(workspace).predict()
    best = dict(zip(before.column("id").to_pylist(), before.column("best").to_pylist(), strict=True))
    assert np.mean([best[id] == class_of(id) for id in best]) > 0.9
    kept = workspace.state.version

    ids = list(best)
    workspace.label(ids, ["brand new", *map(class_of, ids[1:])])
    workspace.update("warm")
    grown = {"words": 12, "classes": 4, "numbers": 1, "encoder": 6, "categories": 4}
    assert sizes(again(workspace)) == grown
    workspace.rename_class("brand new", "newer")
    workspace.merge_classes(["c1"], "c2")
    workspace.add(*slice_of(LAST + 2), encoder=Hashed())
    after = again(workspace).predict()
    assert set(after.column("best").to_pylist()) <= {"c0", "c2", "newer"}
    names = {one.name for row in again(workspace).review(None, why=True) for one in row.because or ()}
    assert not names & {"brand new", "c1"}
    workspace.retire_class("newer")
    assert workspace.predict().num_rows == EACH
    workspace.verify()

    workspace.rollback(kept)
    assert sizes(again(workspace)) == first
    assert again(workspace).predict() == before
    workspace.verify()
    assert new in best


def test_the_classes_of_older_neighbours_are_read(tmp_path: Path) -> None:
    """Words, numbers and categories of the new slice say nothing: only its neighbours do."""
    workspace = made(tmp_path)
    table, edges = slice_of(LAST + 1)
    table |= {"text": ["text"] * EACH, "pages": [None] * EACH, "kind": [None] * EACH}
    workspace.set(inputs="classes")
    workspace.update()
    workspace.add(table, edges, encoder=Hashed())
    found = workspace.predict().to_pylist()
    assert np.mean([row["best"] == class_of(row["id"]) for row in found]) > 0.9
    workspace.set(detector={"threshold": 0.999999})
    workspace.predict()
    row = workspace.review(1, why=True)[0]
    assert row.because
    assert (row.because[0].block, row.because[0].name) == ("classes", row.best)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"pages": "many"}, "column 'pages', row"),
        ({"pages": float("inf")}, "infinite"),
        ({"text": 7.5}, "text"),
        ({"kind": b"\xff"}, "column 'kind': a column of binary"),
    ],
)
def test_bad_cells_of_a_slice_are_refused_and_change_nothing(
    tmp_path: Path, changed: dict[str, Any], match: str
) -> None:
    workspace = made(tmp_path)
    with pytest.raises(InputError, match=match):
        workspace.add(*slice_of(LAST + 1, **changed), encoder=Hashed())
    with pytest.raises(InputError, match="not from other"):
        workspace.add(*slice_of(LAST + 1), encoder=Hashed("other"))
    table, edges = slice_of(LAST + 1)
    del table["pages"]
    with pytest.raises(InputError, match="pages"):
        workspace.add(table, edges, encoder=Hashed())
    assert again(workspace).state.version == 1
    workspace.verify()
