"""Workspaces of version 0.1 are converted once, whatever comes in between, and decide as they did.

``data/workspace-0.1.tar.gz`` was made by version 0.1: a synthetic graph of 160 vertices, of which four slices were
added, decided and partly labelled, with a vertex removed and added again, classes renamed, merged and retired, and a
rollback in between. Beside the folder ``full`` it has, as 0.1 told them, what there is (``full.json``), what it decides
next (``full-predict.json``), and what there is after a rollback to the oldest version (``full-back.json``).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sqlite3
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from evergraph.analysis.explain import in_words
from evergraph.errors import DamagedWorkspaceError, NothingToDoError
from evergraph.storage import records as storage_records
from evergraph.workspace import Workspace
from evergraph.workspace.store import DATABASE
from tests.faults import Faults

pytestmark = pytest.mark.usefixtures("one_thread")
ARCHIVE = Path(__file__).parent / "data" / "workspace-0.1.tar.gz"


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    with mock.patch.object(os, "fsync"), mock.patch.object(storage_records, "SYNCHRONOUS", "OFF"):
        yield


NEW = {
    "next_why",
    "next_arguments",
    "tags",
    "last_labelled",
    "label_lag",
    "warnings",
    "inputs",
}  # sentences and figures that 0.1 did not have


def unpack(root: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(root, filter="data")
    return root / "full"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpack(tmp_path)


def told(folder: Path, which: str = "") -> Any:
    """What 0.1 showed of the workspace, except for a sentence, the name of a figure and an undefined MCC."""
    found = json.loads((folder.parent / f"full{which}.json").read_text())
    if isinstance(found, dict):
        found["status"].pop("next_why")
        for row in found["scores"]:
            row["flagged"] = row.pop("alarm_rate")
            row["mcc"] = row["mcc"] if row["unseen"] else None  # it was 0 without unseen vertices
    return found


def all_of(workspace: Workspace) -> Any:
    """What `told` has of a workspace."""
    graph, kept = workspace.graph, ("class", "best", "score", "probability", "model")
    found = {
        "status": {name: value for name, value in workspace.status().as_dict().items() if name not in NEW},
        "scores": [row.as_dict() for row in workspace.scores()],
        "classes": [row.as_dict() for row in workspace.classes()],
        "review": [row.as_dict() for row in workspace.review(None)],
        "log": [(entry.version, entry.when, entry.command, entry.what) for entry in workspace.log()],
        "kept": workspace.store.numbers,
        "labels": [*map(str, graph.labels.tolist())],
        "ids": [str(id) for id in graph.ids],
        "class_of": workspace.learner().classes_,
        "standing": {id: {name: row[name] for name in kept} for id, row in workspace.decisions().items()},
    }
    return json.loads(json.dumps(found))


def as_text(decisions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Decisions with the reasons as texts, as earlier versions had them."""
    return [row | {name: in_words(row[name]) for name in ("nearest", "neighbours")} for row in decisions]


def close(found: Any, expected: Any) -> bool:
    """Whether both are the same, but for rounding: another CPU adds single-precision numbers in another order."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(close(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    if isinstance(expected, float):
        return found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    return bool(found == expected)


def test_all_is_there_and_decides_as_before(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        workspace = Workspace(folder)
    assert "converted from format 1, with 23 versions" in caplog.text
    assert all_of(workspace) == told(folder)
    assert workspace.verify()["objects"] == len(list((folder / "objects").iterdir()))
    assert {path.name for path in folder.iterdir()} == {".lock", DATABASE, "objects"}
    caplog.clear()
    assert close(as_text(workspace.predict().to_pylist()), told(folder, "-predict"))
    Workspace(folder)
    assert "converted" not in caplog.text


def test_it_reads_words_until_other_inputs_are_set(folder: Path) -> None:
    workspace = Workspace(folder)
    assert (workspace.settings()["inputs"], workspace.learner().inputs, workspace.status().inputs) == (
        "words",
        "words",
        ("words",),
    )
    with pytest.raises(NothingToDoError, match="inputs is words already"):
        workspace.set(inputs="words")
    workspace.set(inputs="auto")
    assert workspace.state.settings.pending == {"inputs": "auto"}
    workspace.update()
    assert workspace.learner().inputs == "auto"
    assert "classes" in workspace.status().inputs


def test_earlier_versions_can_be_returned_to(folder: Path) -> None:
    workspace, expected = Workspace(folder), told(folder, "-back")
    workspace.rollback(expected.pop("to"))
    found = all_of(workspace)
    for log in (found["log"], expected["log"]):
        log[-1][1] = "now"
    assert found == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")
@pytest.mark.parametrize(("dense", "step"), [(6, 37), pytest.param(10, 17, marks=pytest.mark.slow)])
def test_a_conversion_that_is_killed_is_repeated_or_finished(tmp_path: Path, dense: int, step: int) -> None:
    at = 1
    while True:
        folder = unpack(tmp_path / str(at))
        child = os.fork()
        if not child:
            with Faults(at, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                Workspace(folder)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        workspace = Workspace(folder)
        assert workspace.decisions().keys() == told(folder)["standing"].keys()
        assert workspace.verify()["objects"] == len(list((folder / "objects").iterdir()))
        assert {path.name for path in folder.iterdir()} == {".lock", DATABASE, "objects"}
        if os.WIFEXITED(status):
            break
        at += 1 if at < dense else step
    assert at > 50


def test_what_is_damaged_is_told_and_left_alone(folder: Path) -> None:
    damaged = {
        "workspace.json": (b'{"format": "a letter", "version": 3}', "cannot be read"),
        max((folder / "versions").iterdir()).relative_to(folder): (b"{]", "cannot be read"),
        next((folder / "objects").glob("*.npy")).relative_to(folder): (b"", "not those that were saved"),
        next((folder / "objects").glob("*.parquet")).relative_to(folder): (b"", "not those that were saved"),
    }
    for name, (content, words) in damaged.items():
        path = folder / name
        whole = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(DamagedWorkspaceError, match=words) as error:
            Workspace(folder)
        assert error.value.file == path
        assert not (folder / DATABASE).exists()
        path.write_bytes(whole)
    assert all_of(Workspace(folder)) == told(folder)


# --- version 0.2, whose database had another table of settings and no tags -------------------------------------------


def unpack_2(root: Path) -> tuple[Path, Any]:
    """A workspace that version 0.2 made, and what it showed of it."""
    with tarfile.open(ARCHIVE.with_name("workspace-0.2.tar.gz")) as archive:
        archive.extractall(root, filter="data")
    return root / "format-2", json.loads((root / "format-2.json").read_text())


def test_a_workspace_of_0_2_is_upgraded_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, expected = unpack_2(tmp_path)
    with caplog.at_level(logging.INFO):
        workspace = Workspace(folder)
        assert caplog.text.count("upgraded from format 2") == 1
        Workspace(folder)
        assert caplog.text.count("upgraded") == 1
    status = workspace.status().as_dict()
    assert json.loads(json.dumps({name: status[name] for name in expected["status"]})) == expected["status"]
    assert [[row.version, row.when, row.command, row.what] for row in workspace.log()] == expected["log"]
    assert [*map(str, workspace.graph.labels)] == expected["labels"]
    assert as_text([*workspace.decisions().values()]) == [*expected["decisions"].values()]
    assert workspace.store.numbers == expected["kept"]
    assert workspace.tags() == {}
    workspace.verify()
    workspace.set(history=1, keep=3)
    workspace.rollback(expected["kept"][-2])
    assert (workspace.state.settings.history, workspace.state.settings.keep) == (2, 3)  # keep stays as it is


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")
def test_an_upgrade_that_is_killed_is_repeated(tmp_path: Path) -> None:
    for at in range(1, 100):
        folder, expected = unpack_2(tmp_path / str(at))
        child = os.fork()
        if not child:
            with Faults(at, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                Workspace(folder)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        workspace = Workspace(folder)
        assert workspace.decisions().keys() == expected["decisions"].keys()
        workspace.verify()
        assert {path.name for path in folder.iterdir()} == {".lock", DATABASE, "objects"}
        if os.WIFEXITED(status):
            break
    assert at > 2


def test_a_damaged_setting_of_0_2_is_told_and_nothing_is_changed(tmp_path: Path) -> None:
    folder, _ = unpack_2(tmp_path)
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        connection.execute("UPDATE settings SET value = '9' WHERE name = 'keep'")
    before = (folder / DATABASE).read_bytes()
    with pytest.raises(DamagedWorkspaceError, match="a row of the table settings is not what was saved"):
        Workspace(folder)
    assert (folder / DATABASE).read_bytes() == before
