"""Labels that arrive late: the loop goes on, the model learns what there is, and warnings say what to change."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph import EvolvingGraph, InputError
from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables
from evergraph.detect import DOC
from evergraph.nn import GraphSAGE
from evergraph.storage import records as storage_records
from evergraph.workspace import Workspace
from evergraph.workspace.update import LEAST

pytestmark = pytest.mark.usefixtures("one_thread")

GRAPH = synthetic(
    vertices=900, times=12, classes=3, new_classes=0, dying_classes=0, words=90, words_per_vertex=6, drift=0, seed=3
)
FIRST = 6
OPTIONS: dict[str, Any] = {"model": GraphSAGE(hidden=8), "detector": DOC(0.5), "steps": 20, "lr": 0.05}


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    with mock.patch.object(os, "fsync"), mock.patch.object(storage_records, "SYNCHRONOUS", "OFF"):
        yield


def month(time: int) -> str:
    return f"2020-{time + 1:02d}"


def monthly(first: int, last: int, *, labelled: int = 99) -> tuple[dict[str, Any], dict[str, Any]]:
    """Vertices and edges of some months; those after ``labelled`` without labels."""
    vertices, edges = (table.to_pydict() for table in to_tables(GRAPH, first, last))
    vertices["label"] = [
        name if time <= labelled else None for name, time in zip(vertices["label"], vertices["time"], strict=True)
    ]
    vertices["time"] = [f"{month(time)}-15" for time in vertices["time"]]
    return vertices, {name: edges[name] for name in ("source", "target")}


def make(folder: Path, *, labelled: int = 99, history: Any = "auto") -> Workspace:
    old = EvolvingGraph.build(*monthly(0, FIRST - 1, labelled=labelled), every="month")
    return Workspace.create(folder / "ws", old, history=history, **OPTIONS)


def ids_of(time: int) -> list[int]:
    return GRAPH.window(time, time).ids.tolist()


def truth_of(time: int) -> list[str]:
    return GRAPH.window(time, time).labels.tolist()


def label(workspace: Workspace, time: int, most: int | None = None) -> Any:
    return workspace.label(ids_of(time)[:most], truth_of(time)[:most])


# --- the loop --------------------------------------------------------------------------------------------------------


def test_six_months_with_labels_two_months_late_have_no_dead_end(tmp_path: Path) -> None:
    workspace = make(tmp_path)
    assert workspace.state.settings.history == 1  # as `auto` chose it
    for time in range(FIRST, 12):
        workspace.add(*monthly(time, time, labelled=-1), drop_dangling=True)
        workspace.predict()
        status = workspace.status()
        assert (status.last_labelled, status.label_lag) == (month(max(FIRST - 1, time - 3)), min(time - FIRST + 1, 3))
        if (late := time - 2) < FIRST:
            continue
        outcome = label(workspace, late)
        (warning,) = outcome.facts["warnings"]
        assert warning == (
            f"the latest labelled period is {month(late)}, 2 periods before the newest, and the history is 1 month, "
            f"so the next model would train on {month(late)} only. To train on more: evergraph ws set "
            f"{workspace.store.folder} --history 3"
        )
        assert workspace.status().warnings == (warning,)
        assert workspace.status().next_command == "update"
        done = workspace.update()
        if done.facts["restart"] != "skip":
            assert done.facts["labels"] == len(ids_of(late))
            assert done.facts["trained_from"] == month(late)
            assert f"from {month(late)} on because there are none within the history" in done.what
    scores = workspace.scores()
    assert [row.latency for row in scores[:4]] == [2.0] * 4
    accuracies = [row.accuracy for row in scores[:4]]  # the last one with a model that has learnt late labels
    assert accuracies[3] > max(accuracies[:3]) + 0.1
    workspace.set(history=3)
    assert workspace.status().warnings == ()
    done = workspace.update("warm")
    assert done.facts["labels"] == len(ids_of(9)) + len(ids_of(8))
    assert done.facts["trained_from"] == month(8)
    assert workspace.predict(month(11)).num_rows == len(ids_of(11))


@settings(max_examples=12)
@given(
    lags=st.lists(st.integers(0, 4), min_size=4, max_size=4),
    history=st.sampled_from([1, 2, "auto", "full"]),
    shares=st.lists(st.sampled_from([1, 3, None]), min_size=4, max_size=4),
)
def test_whatever_labels_arrive_when_status_names_a_command_that_works(
    tmp_path_factory: pytest.TempPathFactory, lags: list[int], history: Any, shares: list[int | None]
) -> None:
    workspace = make(tmp_path_factory.mktemp("late"), history=history)
    for step, time in enumerate(range(FIRST, FIRST + 4)):
        workspace.add(*monthly(time, time, labelled=-1), drop_dangling=True)
        workspace.predict()
        for past, (lag, share) in enumerate(zip(lags, shares, strict=True)):
            if past + lag == step:
                label(workspace, FIRST + past, share)
                before = workspace.state.model.number
                if workspace.status().next_command == "update":
                    assert workspace.update("warm").facts["labels"] > 0
                    assert workspace.state.model.number == before + 1
                else:  # all new labels are older than the history: it says so, and what to do
                    (warning,) = [text for text in workspace.status().warnings if "will not be trained on" in text]
                    workspace.set(history=int(warning.rpartition(" ")[2]))
                    assert not any("will not" in text for text in workspace.status().warnings)
                    assert workspace.update("warm").facts["not_learnt"] == 0


# --- warnings --------------------------------------------------------------------------------------------------------


def test_a_workspace_whose_last_periods_have_no_labels_warns_when_it_is_created(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workspace = make(tmp_path, labelled=FIRST - 3, history=1)
    (warning,) = workspace.status().warnings
    assert f"the latest labelled period is {month(FIRST - 3)}, 2 periods before the newest" in warning
    assert f"Warning: {warning}" in caplog.text
    auto = make(tmp_path / "auto", labelled=FIRST - 3)
    assert (auto.state.settings.history, auto.status().warnings) == (2, ())


def test_a_handful_of_labels_is_warned_of_with_the_history_that_has_enough(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workspace = make(tmp_path)
    for time in (FIRST, FIRST + 1):
        workspace.add(*monthly(time, time, labelled=-1), drop_dangling=True)
    assert "warnings" not in label(workspace, FIRST, most=5).facts
    with caplog.at_level(logging.WARNING):
        done = workspace.update()
    (warning,) = done.facts["warnings"]
    assert warning.startswith(f"the model was trained on only 5 labels, from {month(FIRST)} on. Label more vertices")
    assert f"Warning: {warning}" in caplog.text
    assert warning.endswith("--history 2")
    workspace.set(history=2)
    enough = workspace.update("warm")
    assert enough.facts["labels"] >= LEAST
    assert "warnings" not in enough.facts


def test_labels_that_are_older_than_the_history_are_shown_and_can_be_used(tmp_path: Path) -> None:
    workspace = make(tmp_path, labelled=FIRST - 2, history=1)
    workspace.add(*monthly(FIRST, FIRST, labelled=-1), drop_dangling=True)
    label(workspace, FIRST, most=40)
    workspace.update("warm")
    workspace.add(*monthly(FIRST + 1, FIRST + 1, labelled=-1), drop_dangling=True)
    outcome = label(workspace, FIRST - 1)
    late = f"{len(ids_of(FIRST - 1))} new labels will not be trained on, because the history starts with {month(FIRST)}"
    assert outcome.facts["warnings"][0].startswith(late)
    with pytest.raises(InputError, match=r"train on more periods with: evergraph ws set .* --history 2"):
        workspace.update()
    workspace.set(history=2)
    assert workspace.status().warnings == ()
    assert workspace.update("warm").facts["labels"] == 40 + len(ids_of(FIRST - 1))


def test_the_restart_is_not_chosen_by_an_update_with_another_history(tmp_path: Path) -> None:
    workspace = make(tmp_path, history=1)
    for time in (FIRST, FIRST + 1):
        workspace.add(*monthly(time, time, labelled=-1), drop_dangling=True)
        label(workspace, time)
        workspace.update("warm")
    workspace.add(*monthly(FIRST + 2, FIRST + 2, labelled=-1), drop_dangling=True)
    label(workspace, FIRST + 2)
    workspace.set(history=3)
    done = workspace.update()
    assert (done.facts["restart"], done.facts["labels"]) == ("warm", sum(len(ids_of(FIRST + n)) for n in range(3)))
    assert "the history changed since the last update" in done.facts["why"]
