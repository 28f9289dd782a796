"""Long work (update, predict) does not hold the lock: what others do meanwhile is accepted, or makes the work stale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from evergraph.datasets import synthetic
from evergraph.errors import StaleError
from evergraph.nn import MLP
from evergraph.workspace import Workspace, predict

GRAPH = synthetic(vertices=200, times=6, classes=3, new_classes=0, seed=3)
NEW = np.flatnonzero(GRAPH.times == GRAPH.last_time)
IDS, TRUTH = GRAPH.ids[NEW].tolist(), GRAPH.labels[NEW].tolist()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace whose newest slice has 10 labels that the model was not trained on."""
    graph = GRAPH.relabel(IDS, [None] * len(IDS))
    workspace = Workspace.create(tmp_path / "ws", graph, model=MLP(hidden=4), history=3, steps=3)
    workspace.predict()
    workspace.label(IDS[:10], TRUTH[:10])
    return tmp_path / "ws"


def update_while(folder: Path, act: Callable[[Workspace], Any]) -> Any:
    """Update, and change the workspace from elsewhere during the first training step."""
    acted = []

    def on_step(_step: int, _loss: float) -> None:
        if not acted:
            acted.append(act(Workspace(folder)))

    return Workspace(folder).update("warm", on_step=on_step)


def test_labels_that_arrive_during_an_update_belong_to_the_next_one(folder: Path) -> None:
    alone = Workspace(folder).state.version
    outcome = update_while(folder, lambda other: other.label(IDS[10:15], TRUTH[10:15]))
    workspace = Workspace(folder)
    assert (outcome.version, workspace.state.version) == (alone + 2, alone + 2)
    labelled = int((workspace.graph.codes >= 0).sum())
    assert outcome.facts["labels"] == labelled - 5 - (GRAPH.times < GRAPH.last_time - 3).sum()
    assert workspace.status().fresh_labels == 5
    assert workspace.status().next_command == "update"
    assert workspace.update("warm").facts["labels"] == outcome.facts["labels"] + 5
    assert workspace.status().fresh_labels == 0
    workspace.verify()


def test_a_slice_that_arrives_during_an_update_is_kept(folder: Path) -> None:
    slice_ = {"id": ["new"], "time": [GRAPH.axis.value(GRAPH.last_time + 1)], "text": ["w0001"]}
    outcome = update_while(folder, lambda other: other.add(slice_))
    workspace = Workspace(folder)
    assert workspace.state.version == outcome.version
    assert "new" in map(str, workspace.graph.ids)
    assert workspace.state.model.time == GRAPH.last_time + 1
    workspace.predict()
    workspace.label(IDS[10:], TRUTH[10:])
    workspace.update("auto")  # its backtest reads the graph that the model was trained on, not the one it was saved in
    workspace.verify()


@pytest.mark.parametrize(
    "act",
    [
        lambda other: other.rename_class(GRAPH.class_names[0], "renamed"),
        lambda other: other.merge_classes(GRAPH.class_names[:2], "both"),
        lambda other: other.retire_class(GRAPH.class_names[0]),
        lambda other: other.rollback(1),
        lambda other: other.remove(IDS[:1]),
        lambda other: other.set(steps=7),
        lambda other: other.update("cold"),
    ],
    ids=["rename", "merge", "retire", "rollback", "remove", "set", "update"],
)
def test_an_update_is_not_saved_after_another_change(folder: Path, act: Callable[[Workspace], Any]) -> None:
    before = Workspace(folder).state.version
    with pytest.raises(
        StaleError, match=rf"version {before + 1}, .* so the update was not saved\. Run the update again"
    ):
        update_while(folder, act)
    workspace = Workspace(folder)
    assert workspace.state.version == before + 1
    workspace.verify()


def test_vertices_that_get_a_label_during_a_prediction_are_not_decided(folder: Path) -> None:
    decide = predict.decide

    def while_others_label(plan: predict.Plan) -> Any:
        Workspace(folder).label(IDS[10:15], TRUTH[10:15])
        return decide(plan)

    workspace = Workspace(folder)
    workspace.set(detector={"objective": "open-f1"})
    before = {row.vertex: row.version for row in rows(workspace)}
    with mock.patch.object(predict, "decide", while_others_label):
        table = workspace.predict()
    assert table.num_rows == len(IDS) - 15
    now = {row.vertex for row in rows(workspace) if row.version > max(before.values())}
    assert len(now) in (0, len(IDS) - 15)
    assert set(map(str, table.column("id").to_pylist())).isdisjoint(map(str, IDS[:15]))


def rows(workspace: Workspace) -> list[Any]:
    with workspace.store.read() as records:
        return records.select("decisions")
