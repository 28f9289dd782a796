"""What a workspace keeps on disk: shared, swept, checked, and held by one writer at a time."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from evergraph import EvergraphError, EvolvingGraph, InputError
from evergraph.datasets import synthetic
from evergraph.datasets.export import to_tables
from evergraph.detect import DOC
from evergraph.errors import DamagedWorkspaceError
from evergraph.nn import MLP
from evergraph.workspace import Workspace
from evergraph.workspace.keeping import kept_graph, kept_learner, kept_table
from evergraph.workspace.state import State
from evergraph.workspace.store import MANIFEST, Store, objects_in

pytestmark = pytest.mark.usefixtures("one_thread")

GRAPH = synthetic(vertices=80, times=5, classes=3, new_classes=1, words=40, words_per_vertex=3, seed=1)
LAST = GRAPH.last_time


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    with mock.patch.object(os, "fsync"):
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """A workspace with a decided slice, to be copied."""
    folder = tmp_path_factory.mktemp("made") / "ws"
    old = EvolvingGraph.build(*to_tables(GRAPH, last=LAST - 1))
    workspace = Workspace.create(folder, old, model=MLP(hidden=2), detector=DOC(0.5), history=2, steps=1, keep=3)
    workspace.add(*to_tables(GRAPH, LAST, LAST, labels=False))
    workspace.predict()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "ws")
    return tmp_path / "ws"


def objects(folder: Path) -> set[str]:
    return {path.name for path in (folder / "objects").iterdir()}


def label_one(folder: Path, turn: int, place: int = 0) -> None:
    """Change something, each time otherwise."""
    Workspace(folder).label([GRAPH.ids[place]], [f"class of turn {turn}"])


# --- objects and versions --------------------------------------------------------------------------------------------


def test_the_same_contents_are_kept_once(tmp_path: Path) -> None:
    with Store.new(tmp_path / "ws") as change:
        one, other = change.put(b"same", "txt"), change.put(b"same", "txt")
        assert one == other != change.put(b"same", "json")
        array = np.arange(6)
        assert change.put_array(array) == change.put_array(array[::1].copy()) != change.put_array(array.astype("i4"))
        change.commit({"all": [one, change.put_array(array)]})
    assert objects(tmp_path / "ws") == {one, *objects_in(Store(tmp_path / "ws").version())}
    assert len(objects(tmp_path / "ws")) == 2  # the others are in no version
    store = Store(tmp_path / "ws")
    assert store.array(*store.version()["all"][1]).tolist() == array.tolist()


def test_versions_share_what_is_the_same(folder: Path) -> None:
    before = objects(folder)
    label_one(folder, 1)
    new = objects(folder) - before
    assert {Path(name).suffix for name in new} == {".npy"}
    assert len(new) == 3  # the codes of the classes, and the names of the classes as bytes and offsets


def test_what_is_kept_can_be_returned_to_and_nothing_else_is_there(folder: Path) -> None:
    workspace = Workspace(folder)
    seen = {number: State.from_dict(workspace.store.version(number)) for number in workspace.store.numbers}
    for turn in range(8):
        if turn == 4:
            workspace.rollback(workspace.store.numbers[0])
        elif turn == 6:
            workspace.update("warm")
        else:
            label_one(folder, turn, -1)
        seen[workspace.state.version] = workspace.state
        store = Store(folder)
        head = workspace.state.version
        assert store.numbers == [head - 2, head - 1, head]
        named = set()
        for number in store.numbers:
            state = State.from_dict(store.version(number))
            assert state == seen[number]
            assert len(kept_graph(store, state.graph)) == len(GRAPH)
            assert kept_learner(store, state.model).classes_
            for kept in (*state.decisions, *state.scored):
                assert kept_table(store, kept.table).num_rows == kept.rows
            named |= set(objects_in(store.version(number)))
        assert objects(folder) == named
        assert {path.name for path in (folder / "versions").iterdir()} == {
            f"{number:06d}.json" for number in store.numbers
        }
    with pytest.raises(InputError, match=rf"there is no version 1, or not any more.*choose from {head - 2} to {head}"):
        workspace.rollback(1)


def test_what_others_put_into_the_folder_is_left_alone(folder: Path) -> None:
    mine = [folder / "notes.txt", folder / "objects" / "notes.txt", folder / "versions" / "notes.json"]
    for path in mine:
        path.write_text("mine")
    (folder / "objects" / "backup").mkdir()
    left = [folder / "objects" / f"{'0' * 32}.npy", folder / "objects" / f"{'1' * 32}.json.new"]
    for path in left:
        path.write_text("of a command that was killed")
    label_one(folder, 1)
    assert all(path.read_text() == "mine" for path in mine)
    assert (folder / "objects" / "backup").is_dir()
    assert not any(path.exists() for path in left)
    assert Workspace(folder).status().vertices == len(GRAPH)


def test_where_a_workspace_may_be_made(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        with Store.new(folder) as change:
            change.commit({"here": change.put(b"it is", "txt")})

    (tmp_path / "file").write_text("precious")
    with pytest.raises(InputError, match="this is a file, not a folder"):
        make(tmp_path / "file")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="the folder holds something else"):
        make(tmp_path / "taken")
    assert (tmp_path / "taken" / "thesis.tex").read_text() == "precious"
    for name in ("new", "a/new/one"):
        make(tmp_path / name)
        with pytest.raises(InputError, match="there is a workspace already"):
            make(tmp_path / name)
        assert Store(tmp_path / name).head == 1
    with Store.new(tmp_path / "never") as change:
        change.put(b"something", "txt")  # and no commit
    assert not (tmp_path / "never").exists()


# --- damage ----------------------------------------------------------------------------------------------------------


def read_everything(folder: Path) -> None:
    workspace = Workspace(folder)
    workspace.status()
    workspace.scores()
    workspace.learner()


@pytest.mark.parametrize("damage", ["missing", "empty", "shorter", "longer"])
def test_a_damaged_object_is_named(folder: Path, damage: str) -> None:
    state = Workspace(folder).store.version()
    for name in sorted(set(objects_in({key: state[key] for key in ("graph", "model", "decisions")}))):
        path = folder / "objects" / name
        whole = path.read_bytes()
        path.unlink()
        if damage != "missing":
            path.write_bytes({"empty": b"", "shorter": whole[:-1], "longer": whole + b"\0"}[damage])
        with pytest.raises(DamagedWorkspaceError) as error:
            read_everything(folder)
        assert error.value.file == path
        path.write_bytes(whole)
    read_everything(folder)


def test_a_flipped_bit_of_a_model_or_a_table_is_found(folder: Path) -> None:
    state = Workspace(folder).store.version()
    names = set(objects_in({key: state[key] for key in ("model", "decisions")}))
    assert {Path(name).suffix for name in names} == {".json", ".safetensors", ".parquet"}
    for name in names:
        path = folder / "objects" / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        with pytest.raises(DamagedWorkspaceError, match="the contents are not those that were saved") as error:
            read_everything(folder)
        assert error.value.file == path
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


def test_a_damaged_version_is_named_and_nothing_is_swept_by_it(folder: Path) -> None:
    head = Workspace(folder).state.version
    path = folder / "versions" / f"{head - 1:06d}.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"init", b"iniT"))
    with pytest.raises(DamagedWorkspaceError, match="the contents are not those that were saved") as error:
        Workspace(folder).rollback(head - 1)
    assert error.value.file == path
    before = objects(folder)
    label_one(folder, 1)  # what the damaged version needs is not known, so all is left
    assert before < objects(folder)
    path.write_bytes(whole)
    Workspace(folder).rollback(head - 1)


def test_a_version_in_force_that_is_missing_or_changed_is_named(folder: Path) -> None:
    path = folder / "versions" / f"{Workspace(folder).state.version:06d}.json"
    whole = path.read_bytes()
    for content in (None, b"", b"{}", whole[:-1], whole.replace(b"init", b"iniT"), b"[" * 100_000, b"\xff\xfe"):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(DamagedWorkspaceError) as error:
            _ = Workspace(folder).state
        assert error.value.file == path


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"7", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"format": "parquet", "version": 1}'],
)
def test_a_manifest_that_is_none_is_damage(folder: Path, content: bytes) -> None:
    (folder / MANIFEST).write_bytes(content)
    with pytest.raises(DamagedWorkspaceError) as error:
        Workspace(folder)
    assert error.value.file == folder / MANIFEST
    assert error.value.fix


@pytest.mark.parametrize("version", [0, -1, True, "3", None, 1.5])
def test_a_manifest_with_a_strange_version_is_damage(folder: Path, version: Any) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"version": version}))
    with pytest.raises(DamagedWorkspaceError, match="not the file of an Evergraph workspace"):
        Workspace(folder)


def test_a_newer_format_asks_for_an_update(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"format_version": 2}))
    with pytest.raises(DamagedWorkspaceError, match=r"newer than 1\. To fix it: update Evergraph"):
        Workspace(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/secret", "x", "", f"{'0' * 32}.npy/../..", f"{'0' * 32}.n\0y"])
def test_no_name_of_an_object_leads_out_of_the_folder(folder: Path, name: str) -> None:
    store = Store(folder)
    for read in (lambda: store.read(name), lambda: store.array(name, 1)):
        with pytest.raises(DamagedWorkspaceError, match="is no name of an object"):
            read()


def test_a_folder_without_a_workspace_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such workspace"):
        Workspace(tmp_path / "nowhere")
    with pytest.raises(InputError, match="this folder holds no workspace"):
        Workspace(tmp_path)


# --- several processes -----------------------------------------------------------------------------------------------


def test_a_second_writer_is_told_and_harms_nothing(folder: Path) -> None:
    pytest.importorskip("fcntl")
    store = Store(folder)
    with store.change() as change:
        change.put(b"not yet named", "txt")
        before = objects(folder)
        with pytest.raises(EvergraphError, match="another process is writing this workspace; wait until it is done"):
            label_one(folder, 1)
        assert objects(folder) == before
        assert Workspace(folder).status().vertices == len(GRAPH)  # reading goes on
    label_one(folder, 1)


def test_a_writer_builds_on_what_was_done_before_it_held_the_folder(folder: Path) -> None:
    real, workspace = Store.change, Workspace(folder)

    @contextlib.contextmanager
    def slow(store: Store, keep: int) -> Iterator[Any]:
        with mock.patch.object(Store, "change", real):
            label_one(folder, 1)  # another process is faster
        with real(store, keep) as change:
            yield change

    with mock.patch.object(Store, "change", slow):
        workspace.label([GRAPH.ids[1]], ["of the second"])
    assert workspace.graph.labels[:2].tolist() == ["class of turn 1", "of the second"]
    assert [entry.command for entry in workspace.log()][-2:] == ["label", "label"]


def test_readers_never_fail_while_versions_come_and_go(folder: Path) -> None:
    """Each command sweeps a version away, with its graph and its model."""
    names, failures, seen = [GRAPH.class_names[0], "another name"], [], set()
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                workspace = Workspace(folder)
                seen.add(workspace.state.version)
                assert len(set(names) & set(workspace.learner().classes_)) == 1
                assert len(set(names) & set(workspace.graph.labels.tolist())) == 1
                assert len(set(names) & {row.name for row in workspace.classes()}) == 1
                assert workspace.status().vertices == len(GRAPH)
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    writer = Workspace(folder)
    for turn in range(60):
        writer.rename_class(*(names if turn % 2 == 0 else reversed(names)))
    done.set()
    reader.join()
    assert failures == []
    assert len(seen) > 3


def test_a_reader_begins_anew_where_its_version_was_swept_away(folder: Path) -> None:
    workspace, real = Workspace(folder), Store.array
    codes, _ = workspace.state.graph["arrays"]["codes"]
    overtaken = []

    def array(store: Store, name: str, size: int) -> Any:
        if name == codes and not overtaken:
            overtaken.append(name)
            for turn in range(4):
                label_one(folder, turn)
        return real(store, name, size)

    with mock.patch.object(Store, "array", array):
        assert workspace.graph.labels[0] == "class of turn 3"
    assert overtaken
    # What is damaged is told, all the same.
    (folder / "objects" / workspace.state.graph["arrays"]["codes"][0]).unlink()
    with pytest.raises(DamagedWorkspaceError, match="it cannot be read"):
        _ = Workspace(folder).graph
