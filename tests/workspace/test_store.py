"""What a workspace keeps on disk: rows in force, objects, checked, and held by one writer at a time."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from evergraph import EvergraphError, EvolvingGraph, InputError
from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables
from evergraph.detect import DOC
from evergraph.errors import BusyError, DamagedWorkspaceError
from evergraph.nn import MLP
from evergraph.report.workspace import workspace_content
from evergraph.storage import records as storage_records
from evergraph.storage.files import locked
from evergraph.storage.objects import Objects
from evergraph.workspace import Workspace
from evergraph.workspace.change import Contents
from evergraph.workspace.scores import scored_decisions
from evergraph.workspace.store import DATABASE, SCHEMA, Classes, Store, WorkspaceState, needed_objects, read_state

pytestmark = pytest.mark.usefixtures("one_thread")

GRAPH = synthetic(vertices=80, times=5, classes=3, new_classes=1, words=40, words_per_vertex=3, seed=1)
LAST = GRAPH.last_time


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    with mock.patch.object(os, "fsync"), mock.patch.object(storage_records, "SYNCHRONOUS", "OFF"):
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


def rows_of(folder: Path) -> dict[str, list[Any]]:
    with Store(folder).read() as records:
        return {table: records.select(table) for table in SCHEMA.tables}


# --- objects and versions --------------------------------------------------------------------------------------------


def test_commands_write_what_is_new_and_nothing_else(folder: Path) -> None:
    before = objects(folder)
    label_one(folder, 1)
    workspace = Workspace(folder)
    workspace.predict()
    workspace.rename_class(GRAPH.class_names[0], "another name")
    workspace.retire_class(GRAPH.class_names[1])
    assert objects(folder) == before  # labels, decisions and names are rows
    workspace.add({"id": [10_000], "time": [LAST], "text": ["w0001"]})
    (new,) = objects(folder) - before
    assert (folder / "objects" / new).stat().st_size < 3000  # of a slice of one vertex


def figures(state: WorkspaceState) -> tuple[Any, ...]:
    """All of a state, without the rows that tell since when."""
    return *replace(state, classes=Classes({}, {})).__dict__.values(), state.classes.numbers, state.retired


def test_what_is_kept_can_be_returned_to_and_nothing_else_is_there(folder: Path) -> None:
    workspace = Workspace(folder)
    seen: dict[int, Any] = {}
    for turn in range(8):
        if turn == 4:
            workspace.rollback(workspace.store.numbers[0])
        elif turn == 6:
            workspace.update("warm")
        else:
            label_one(folder, turn, -1)
        head = workspace.state.version
        seen[head] = (figures(workspace.state), workspace.graph.labels.tolist())
        store = Store(folder)
        assert store.numbers == [number for number in (head - 2, head - 1, head) if number > 0]
        with store.read() as records:
            for number in store.numbers:
                if number in seen:
                    state = read_state(records, number)
                    assert figures(state) == seen[number][0]
                    there = Contents.read(records, store.objects, state.classes, number)
                    assert there.graph.labels.tolist() == seen[number][1]
            assert objects(folder) == needed_objects(records)
            for table in ("segments", "labels", "supports", "fresh"):
                assert records.value(f"SELECT count(*) FROM {table} WHERE until <= ?", head - 2) == 0
    gone = rf"version 1 does not exist, or is not kept any more.*Choose a version from {head - 2} to {head}"
    with pytest.raises(InputError, match=gone):
        workspace.rollback(1)


def test_the_cost_of_a_command_does_not_grow(tmp_path: Path) -> None:
    """Rows that are written, objects that are written, and objects that are read by a workspace that is open.

    Not of merging segments after a command; see `test_compaction`.
    """
    base = EvolvingGraph.build(*to_tables(GRAPH, last=LAST - 1))
    workspace = Workspace.create(tmp_path / "ws", base, model=MLP(hidden=2), detector=DOC(0.5), history=2, steps=1)
    figures = []
    for turn in range(30):
        moment = LAST + turn
        ids = [f"{turn}-{number}" for number in range(5)]
        counts: list[int] = []
        real_insert, real_read = storage_records.Records.insert, Objects.read

        def insert(records: Any, table: str, rows: Any, counts: Any = counts, real: Any = real_insert) -> None:
            found = list(rows)
            counts.append(len(found))
            real(records, table, found)

        def read(there: Any, name: str, counts: Any = counts, real: Any = real_read) -> bytes:
            counts.append(1000)
            return bytes(real(there, name))

        size = sum(path.stat().st_size for path in (tmp_path / "ws" / "objects").iterdir())
        with (
            mock.patch.object(storage_records.Records, "insert", insert),
            mock.patch.object(Objects, "read", read),
            mock.patch.object(Workspace, "_compact"),
        ):
            workspace.add({"id": ids, "time": [moment] * 5, "text": ["w0001 w0002"] * 5})
            workspace.predict()
            workspace.label(ids, [GRAPH.class_names[0]] * 5)
        grown = sum(path.stat().st_size for path in (tmp_path / "ws" / "objects").iterdir()) - size
        figures.append((sum(counts), grown))
    assert max(figures[20:]) == min(figures[20:]) == figures[15]


def test_what_others_put_into_the_folder_is_left_alone(folder: Path) -> None:
    mine = [folder / "notes.txt", folder / "objects" / "notes.txt"]
    for path in mine:
        path.write_text("mine")
    (folder / "objects" / "backup").mkdir()
    names = [f"{number * 64}.segment" for number in "01"]
    left = [folder / "objects" / names[0], folder / "objects" / f"{names[1]}.new"]
    for path in left:
        path.write_text("of a command that was killed")
    (folder / "objects" / ".pending").write_text("\n".join([*names, "../../notes.txt", "../notes.txt"]))
    label_one(folder, 1)
    assert all(path.read_text() == "mine" for path in mine)
    assert (folder / "objects" / "backup").is_dir()
    assert not any(path.exists() for path in left)
    assert Workspace(folder).status().vertices == len(GRAPH)


def test_where_a_workspace_may_be_made(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        with Store.new(folder) as (records, there):
            there.put(b"it is", "txt")
            records.insert("versions", [(1, "now", "init", "")])

    (tmp_path / "file").write_text("precious")
    with pytest.raises(InputError, match="this is a file, not a folder"):
        make(tmp_path / "file")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="the folder is not empty"):
        make(tmp_path / "taken")
    assert (tmp_path / "taken" / "thesis.tex").read_text() == "precious"
    for name in ("new", "a/new/one"):
        make(tmp_path / name)
        with pytest.raises(InputError, match="this folder is a workspace already"):
            make(tmp_path / name)
        assert Store(tmp_path / name).head == 1
    with contextlib.suppress(ZeroDivisionError), Store.new(tmp_path / "never") as (_, there):
        there.put(b"something", "txt")
        raise ZeroDivisionError
    assert not (tmp_path / "never").exists()


# --- damage ----------------------------------------------------------------------------------------------------------


def read_everything(folder: Path) -> None:
    workspace = Workspace(folder)
    assert len(workspace.graph) == len(GRAPH)
    workspace.scores()
    workspace.learner()


@pytest.mark.parametrize("damage", ["missing", "empty", "shorter", "longer", "flipped"])
def test_a_damaged_object_is_named(folder: Path, damage: str) -> None:
    with Store(folder).read() as records:
        state = read_state(records)
        names = {row.object for row in records.select("segments", "until IS NULL")} | {state.learner, state.tensors}
    assert {Path(name).suffix for name in names} == {".segment", ".json", ".safetensors"}
    for name in sorted(names):
        path = folder / "objects" / name
        whole = path.read_bytes()
        path.unlink()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        if damage != "missing":
            damaged = {"empty": b"", "shorter": whole[:-1], "longer": whole + b"\0", "flipped": flipped}
            path.write_bytes(damaged[damage])
        for act in (lambda: read_everything(folder), lambda: Workspace(folder).verify()):
            with pytest.raises(DamagedWorkspaceError) as error:
                act()
            assert error.value.file == path
        path.write_bytes(whole)
    read_everything(folder)


def test_no_flipped_bit_of_the_records_changes_anything_unnoticed(folder: Path, tmp_path: Path) -> None:
    """Either `verify` tells, or all rows are what they were."""
    before, whole = rows_of(folder), (folder / DATABASE).read_bytes()
    told = 0
    used = np.flatnonzero(np.frombuffer(whole, np.uint8))  # most of a page is empty
    for place in np.random.default_rng(0).choice(used, 150).tolist():
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        (folder / DATABASE).write_bytes(damaged)
        try:
            Workspace(folder).verify()
        except DamagedWorkspaceError:
            told += 1
        else:
            assert rows_of(folder) == before
    assert told > 50


def test_a_damaged_row_never_gets_a_valid_checksum(folder: Path) -> None:
    """It is neither read nor rewritten: not by a label that ends it, nor by a return to it."""

    def flip(sql: str) -> None:
        with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection:
            connection.execute(sql)
            connection.commit()

    workspace, ids = Workspace(folder), GRAPH.ids[GRAPH.times == LAST].tolist()
    flip(f"UPDATE labels SET time = time + 1 WHERE id = '{ids[0]}'")
    with pytest.raises(DamagedWorkspaceError, match="a row of the table labels is not what was saved"):
        workspace.label([ids[0]], ["x"])
    flip(f"UPDATE labels SET time = time - 1 WHERE id = '{ids[0]}'")
    workspace.label([ids[0]], ["x"])
    flip("UPDATE labels SET id = 'other' WHERE until IS NOT NULL")
    with pytest.raises(DamagedWorkspaceError, match="labels"):
        workspace.rollback(workspace.state.version - 1)
    flip(f"UPDATE labels SET id = '{ids[0]}' WHERE id = 'other'")
    flip("UPDATE fresh SET labels = labels + 1")
    for act in (workspace.status, workspace.verify, lambda: workspace.state, lambda: workspace.label([ids[1]], ["x"])):
        with pytest.raises(DamagedWorkspaceError, match="fresh"):
            act()
    flip("UPDATE fresh SET labels = labels - 1")
    flip("UPDATE decisions SET score = score + 1")
    for act in (workspace.scores, workspace.verify, lambda: workspace.label([ids[1]], ["x"])):
        with pytest.raises(DamagedWorkspaceError, match="decisions"):
            act()


def test_periods_of_scored_decisions_may_be_an_iterator(folder: Path) -> None:
    ids = GRAPH.ids[GRAPH.times == LAST].tolist()
    Workspace(folder).label(ids[:2], ["x", "y"])
    with Store(folder).read() as records:
        found = scored_decisions(records, read_state(records), iter([LAST]))
    assert found[LAST].keys() == {str(id) for id in ids[:2]}


@pytest.mark.parametrize("content", [b"", b"{", b"SQLite format 3\0", b"\xff" * 5000])
def test_a_database_that_is_none_is_damage(folder: Path, content: bytes) -> None:
    (folder / DATABASE).write_bytes(content)
    with pytest.raises(DamagedWorkspaceError) as error:
        Workspace(folder)
    assert error.value.file == folder / DATABASE
    assert error.value.fix


@pytest.mark.parametrize("name", [DATABASE, f"{DATABASE}-journal"])
def test_a_folder_in_place_of_the_database_is_damage(folder: Path, name: str) -> None:
    """It does not end in the advice to change permissions."""
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    with pytest.raises(DamagedWorkspaceError, match="this is a folder, not a file") as error:
        Workspace(folder)
    assert error.value.file == folder / name


def test_a_database_that_was_removed_is_damage(folder: Path) -> None:
    workspace = Workspace(folder)
    (folder / DATABASE).unlink()
    with pytest.raises(DamagedWorkspaceError, match="the file is missing"):
        workspace.status()


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("DELETE FROM states WHERE version = (SELECT max(version) FROM versions)", "version 3, .*, is incomplete"),
        ("DELETE FROM models", "there is no model 1"),
    ],
)
def test_missing_rows_are_damage(folder: Path, sql: str, problem: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as connection:
        connection.execute(sql)
    with pytest.raises(DamagedWorkspaceError, match=problem) as error:
        Workspace(folder).status()
    assert error.value.file == folder / DATABASE


def test_decisions_of_a_missing_model_are_damage(folder: Path) -> None:
    workspace = Workspace(folder)
    with workspace.store.read() as records:
        row = records.one("decisions", "TRUE")
    values = row._replace(model=7)
    with contextlib.closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as connection:
        sql = "UPDATE decisions SET model = 7, checksum = ? WHERE vertex = ?"
        connection.execute(sql, [storage_records._checksum("decisions", values), row.vertex])
    for read in (workspace.decisions, workspace.scores, workspace.scored_decisions, lambda: workspace_content(folder)):
        with pytest.raises(DamagedWorkspaceError, match="there is no model 7"):
            read()


def edit(folder: Path, table: str, **changes: Any) -> None:
    """Change the first row of a table, with a right checksum."""
    with Store(folder).read() as records:
        row = records.one(table, "TRUE")._replace(**changes)
    names = ", ".join(f"{name} = ?" for name in (*row._fields, "checksum"))
    with contextlib.closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as connection:
        sql = f"UPDATE {table} SET {names} WHERE rowid = (SELECT min(rowid) FROM {table})"
        connection.execute(sql, [*row, storage_records._checksum(table, row)])


@pytest.mark.parametrize("label", [256, 2**31 - 1, 2**40, -2])
def test_a_label_of_no_class_is_damage(folder: Path, label: int) -> None:
    edit(folder, "labels", label=label, since=Store(folder).head, until=None)  # later than the segment
    with pytest.raises(DamagedWorkspaceError, match="labels are out of range"):
        _ = Workspace(folder).graph


@pytest.mark.parametrize("previous", [1, 7])
def test_a_model_after_itself_or_none_ends_the_report(folder: Path, previous: int) -> None:
    edit(folder, "models", previous=previous)
    assert workspace_content(folder).kind == "workspace"


def test_another_database_or_other_tables_are_damage(folder: Path) -> None:
    for sql in ("CREATE TRIGGER t AFTER INSERT ON labels BEGIN DELETE FROM decisions; END", "DROP INDEX labels_id"):
        copy = folder.with_name("copy")
        shutil.copytree(folder, copy)
        with contextlib.closing(sqlite3.connect(copy / DATABASE)) as connection:
            connection.execute(sql)
        with pytest.raises(DamagedWorkspaceError, match="its tables are not those of an Evergraph workspace"):
            Workspace(copy)
        shutil.rmtree(copy)
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.execute("PRAGMA application_id = 7")
    with pytest.raises(DamagedWorkspaceError, match="this is not the database of an Evergraph workspace"):
        Workspace(folder)


def test_a_newer_format_asks_for_an_update(folder: Path) -> None:
    with contextlib.closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA.version + 1}")
    with pytest.raises(DamagedWorkspaceError, match=rf"newer than {SCHEMA.version}\. Update Evergraph"):
        Workspace(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/secret", "x", "", f"{'0' * 64}.npy/../..", f"{'0' * 64}.n\0y"])
def test_no_name_of_an_object_leads_out_of_the_folder(folder: Path, name: str) -> None:
    with pytest.raises(DamagedWorkspaceError, match="is not the name of an object"):
        Store(folder).objects.read(name)


def test_a_folder_without_a_workspace_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this workspace does not exist"):
        Workspace(tmp_path / "nowhere")
    with pytest.raises(InputError, match="this folder is not a workspace"):
        Workspace(tmp_path)


# --- links -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [".lock", DATABASE, f"{DATABASE}-journal", f"{DATABASE}-wal", "objects", "objects/.pending", "pending.new"]
)
def test_no_link_in_a_received_workspace_is_followed_in_writing(folder: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "precious"
    path = folder / ("objects/.pending.new" if name == "pending.new" else name)
    if name == "objects":
        path.rename(target)
    elif path.exists():
        shutil.move(path, target)
    else:
        target.write_text("precious")
    path.symlink_to(target)
    before = {one: one.read_bytes() for one in sorted(target.rglob("*") if target.is_dir() else [target])}
    refused = None
    try:
        Workspace(folder).add({"id": [10_000], "time": [LAST], "text": ["w0001"]})
    except InputError as error:
        refused = str(error)
    if name in (".lock", "objects") or name.startswith(DATABASE):
        assert refused is not None
        assert "this is a symbolic link, which is not followed when writing" in refused
    else:
        assert refused is None  # it was replaced, or removed
    assert {one: one.read_bytes() for one in sorted(target.rglob("*") if target.is_dir() else [target])} == before


def test_links_at_objects_and_their_temporary_names_are_replaced(folder: Path, tmp_path: Path) -> None:
    target, workspace = tmp_path / "precious", Workspace(folder)
    target.write_text("precious")
    slice_ = {"id": [10_000], "time": [LAST], "text": ["w0001"]}
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    Workspace(copy).add(slice_)
    (new,) = objects(copy) - objects(folder)
    for name in (new, f"{new}.new"):
        (folder / "objects" / name).symlink_to(target)
    workspace.add(slice_)
    assert target.read_text() == "precious"
    assert not (folder / "objects" / new).is_symlink()
    assert workspace.verify()["objects"] == len(objects(folder))


# --- several processes -----------------------------------------------------------------------------------------------


def test_a_second_writer_is_told_and_harms_nothing(folder: Path) -> None:
    pytest.importorskip("fcntl")
    store = Store(folder)
    with store.write():
        store.objects.put(b"not yet named", "txt")
        before = objects(folder)
        with pytest.raises(BusyError, match=r"another process is writing this workspace\. Wait until it is done"):
            label_one(folder, 1)
        assert objects(folder) == before
        assert Workspace(folder).status().vertices == len(GRAPH)  # reading goes on
    label_one(folder, 1)


def test_a_second_writer_may_wait(folder: Path) -> None:
    pytest.importorskip("fcntl")
    holds = threading.Event()

    def hold() -> None:
        with locked(folder, "workspace"):
            holds.set()
            time.sleep(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait()
    with pytest.raises(EvergraphError, match=r"another process is writing this workspace \(waited 0\.1 s\)"):
        Workspace(folder, wait=0.1).label([GRAPH.ids[0]], ["x"])
    Workspace(folder, wait=30).label([GRAPH.ids[0]], ["x"])
    thread.join()


def test_a_writer_builds_on_what_was_done_before_it_held_the_folder(folder: Path) -> None:
    workspace = Workspace(folder)
    assert workspace.graph.labels[0] is not None
    label_one(folder, 1)  # another process is faster
    workspace.label([GRAPH.ids[1]], ["of the second"])
    assert workspace.graph.labels[:2].tolist() == ["class of turn 1", "of the second"]
    assert [entry.command for entry in workspace.log()][-2:] == ["label", "label"]


def test_readers_never_fail_while_versions_come_and_go(folder: Path) -> None:
    """Each command forgets a version."""
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


def test_a_reader_begins_anew_where_its_version_was_forgotten(folder: Path) -> None:
    workspace, real = Workspace(folder), Objects.read
    overtaken = []

    def read(there: Objects, name: str) -> bytes:
        if name.endswith(".segment") and not overtaken:
            overtaken.append(name)
            child = os.fork()
            if not child:  # in the transaction of the reader no commit of this process would come through
                os._exit(0)
            os.waitpid(child, 0)
            raise DamagedWorkspaceError("it cannot be read", file=there.folder)
        return real(there, name)

    heads = iter([3, 4, 4, 4, 4, 4])
    with (
        mock.patch.object(Objects, "read", read),
        mock.patch.object(Store, "head", property(lambda _: next(heads))),
    ):
        assert len(workspace.graph) == len(GRAPH)
    assert overtaken
    # What is damaged is told, all the same.
    with Store(folder).read() as records:
        name = records.select("segments")[0].object
    (folder / "objects" / name).unlink()
    with pytest.raises(DamagedWorkspaceError, match="it cannot be read"):
        _ = Workspace(folder).graph


# --- what is not loaded ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["status"], ["scores"], ["log"], ["status", "--json"]])
def test_looking_loads_neither_torch_nor_pandas_nor_pyarrow_nor_scipy(folder: Path, command: list[str]) -> None:
    code = (
        "import sys; from evergraph.cli import main; sys.argv = ['evergraph', 'ws', *sys.argv[1:]]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "loaded = {'torch', 'pandas', 'pyarrow', 'scipy'} & set(sys.modules)\nassert not loaded, loaded"
    )
    arguments = [sys.executable, "-c", code, command[0], str(folder), *command[1:]]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
