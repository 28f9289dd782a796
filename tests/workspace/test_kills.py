"""Each command of a workspace happens wholly or not at all, whatever becomes of the process or the disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from evergraph import EvergraphError, InputError
from evergraph.storage import objects, records
from evergraph.workspace import Workspace
from evergraph.workspace.store import DATABASE, Store
from tests.faults import Faults
from tests.workspace.kills import Command, contents, judge_again, judge_kill, tiny

pytestmark = pytest.mark.usefixtures("one_thread")
needs_posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")
NAMES = ["init", "add", "predict", "label", "update", "set", "tag"]


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    with mock.patch.object(os, "fsync"), mock.patch.object(records, "SYNCHRONOUS", "OFF"):
        yield


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> dict[str, Command]:
    return {command.name: command for command in tiny(tmp_path_factory.mktemp("commands"))}


def run(*arguments: object) -> Any:
    """Run `tests.workspace.kills` as a process of its own; returns what it found."""
    command = [sys.executable, "-m", "tests.workspace.kills", *map(str, arguments)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- killed ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def some_calls(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Results of kills at some calls, and of a full disk, from one process."""
    return run("every", tmp_path_factory.mktemp("killed"), 6)


@needs_posix
@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_a_command_killed_at_any_call_leaves_the_state_before_it_or_after_it(
    some_calls: Any, tmp_path: Path, step: int
) -> None:
    found = (some_calls if step > 1 else run("every", tmp_path, step))["killed"]
    assert list(found) == NAMES
    for name, kills in found.items():
        states = [left for left, _ in kills]
        # One moment at which everything changes, and what is killed after it has changed everything.
        assert states == sorted(states, key=["before", "after"].index), name
        assert set(states) == {"before", "after"}
        assert [wrong for _, wrong in kills if wrong is not None] == []
    assert step * sum(map(len, found.values())) > 120


@pytest.mark.slow
@needs_posix
def test_commands_killed_at_random_moments_lose_and_double_nothing(tmp_path: Path) -> None:
    found = run("random", tmp_path, 3 * len(NAMES), 0)
    assert [name for name, _, _ in found] == NAMES * 3
    assert {left for _, left, _ in found} <= {"before", "after"}
    assert [wrong for _, _, wrong in found if wrong is not None] == []


def test_the_judges_see_what_is_lost_corrupt_or_doubled(commands: dict[str, Command], tmp_path: Path) -> None:
    command = commands["label"]

    def prepared(name: str) -> Path:
        command.prepare(tmp_path / name)
        return tmp_path / name

    assert judge_kill(command, prepared("as it was")) == "before"
    assert judge_again(command, tmp_path / "as it was") is None
    assert judge_kill(command, tmp_path / "as it was") == "after"
    older = prepared("older")
    with Store(older).write() as rows:
        rows.delete("decisions", "TRUE")
    assert judge_kill(command, older) == "corrupt"
    gone = prepared("gone")
    shutil.rmtree(gone)
    assert judge_kill(command, gone) == "lost"
    for path in sorted(prepared("damaged").glob("objects/*.*")):
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert judge_kill(command, tmp_path / "damaged") == "corrupt"
        path.write_bytes(whole)
    assert judge_kill(command, tmp_path / "damaged") == "before"
    left = prepared("something left")
    (left / "objects" / f"{'0' * 64}.segment").touch()
    assert judge_again(command, left) == "corrupt"
    twice = prepared("twice")
    command.run(twice)
    twice_labelled = Workspace(twice).graph
    Workspace(twice).label([twice_labelled.ids[0]], ["another"])
    assert judge_again(command, twice) == "doubled"


# --- full disks, failing disks, interrupts ---------------------------------------------------------------------------


class Dead(Faults):
    """From the n-th call on nothing reaches the disk."""

    def tick(self) -> bool:
        self.count += 1
        return self.count >= self.at


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("kind", "what", "name", "step"),
    [
        *((Faults, full, name, 1) for name in NAMES),
        *((Faults, interrupt, name, 3) for name in NAMES),  # the calls are the same as those of a full disk
        *((Dead, full, name, 2) for name in ("init", "label")),
        *(pytest.param(Faults, interrupt, name, 1, marks=pytest.mark.slow) for name in NAMES),
        *(pytest.param(Dead, full, name, 1, marks=pytest.mark.slow) for name in ("init", "label")),
    ],
)
def test_a_failure_at_any_call_leaves_the_state_before_or_after(
    commands: dict[str, Command], tmp_path: Path, kind: type[Faults], what: Callable[[], None], name: str, step: int
) -> None:
    command, failures = commands[name], 0
    for at in count(1, step):
        folder = tmp_path / str(at)
        command.prepare(folder)
        told = None
        with kind(at, what) as faults:
            try:
                command.run(folder)
            except (EvergraphError, KeyboardInterrupt) as error:
                told = str(error)
        left = judge_kill(command, folder)
        assert left in ("before", "after"), (at, told)
        if told is not None:
            failures += 1
            if what is full:
                assert ("Nothing was changed" in told) <= (left == "before"), told
                assert ("done, but the disk" in told) <= (left == "after"), told
                # A workspace that was just made is opened, and that may fail too.
                words = (
                    "done, but the disk",
                    "whether the change was made",
                    *(["it cannot be read"] if name == "init" else []),
                )
                assert left == "before" or any(word in told for word in words), told
                if left == "before" and name == "init" and kind is Faults:
                    assert not folder.exists()
        elif kind is Faults:
            assert left == "after"
        assert judge_again(command, folder) is None, (at, told)
        if faults.count < at:
            break
    assert step * failures > 10


@needs_posix
def test_a_disk_that_is_really_full_is_told_and_leaves_what_was_there(some_calls: Any) -> None:
    found = some_calls["room"]
    assert list(found) == NAMES
    for told, left, wrong in found.values():
        assert "the disk reported an error (" in told
        assert "Nothing was changed" in told
        assert (left, wrong) == ("before", "None")


def test_a_folder_that_cannot_be_written_to_is_told_and_can_be_read(
    commands: dict[str, Command], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = commands["add"]
    command.prepare(tmp_path / "ws")
    real = os.open

    def refuse(path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)  # for root, the mode of a folder means nothing
    with pytest.raises(
        EvergraphError, match=r"\.lock: the disk reported an error \(Permission denied\)\. Nothing was changed"
    ):
        command.run(tmp_path / "ws")
    workspace = Workspace(tmp_path / "ws")
    assert workspace.status().vertices == len(workspace.graph)
    assert workspace.log()[0].command == "init"
    assert contents(tmp_path / "ws") == command.before


def test_everything_is_synced_before_the_commit(commands: dict[str, Command], tmp_path: Path) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("there is no way to see which file is synced")
    command, folder = commands["add"], tmp_path / "ws"
    command.prepare(folder)
    before = {path.name for path in (folder / "objects").iterdir()}
    events: list[str] = []
    real, commit = os.replace, records.commit

    def note_sync(handle: int) -> None:
        events.append(Path(f"/proc/self/fd/{handle}").readlink().name)

    def note_replace(source: Any, target: Any, **options: Any) -> None:
        events.append(f"{Path(source).name} -> {Path(target).name}")
        real(source, target, **options)

    def note_commit(connection: Any) -> None:
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        events.append("commit")
        commit(connection)

    with (
        mock.patch.multiple(os, fsync=note_sync, replace=note_replace),
        mock.patch.multiple(records, commit=note_commit, SYNCHRONOUS="EXTRA"),
    ):
        command.run(folder)
    new = {path.name for path in (folder / "objects").iterdir()} - before
    assert {Path(name).suffix for name in new} == {".segment"}
    for name in new:
        written, renamed = events.index(f"{name}.new"), events.index(f"{name}.new -> {name}")
        assert written < renamed < events.index("objects") < events.index("commit")
    assert events[-1] == "commit"


@needs_posix
def test_a_commit_that_was_cut_in_the_middle_is_taken_back(commands: dict[str, Command], tmp_path: Path) -> None:
    """SQLite has begun to write its pages into the file: its journal has what was there."""
    command, folder = commands["predict"], tmp_path / "ws"
    command.prepare(folder)
    whole = (folder / DATABASE).read_bytes()
    connect, commit = records._connect, records.commit

    def spilling(path: Path) -> Any:
        connection = connect(path)
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("PRAGMA cache_spill = 1")
        return connection

    def die(connection: Any) -> None:
        if connection.total_changes:
            os._exit(0)
        commit(connection)

    child = os.fork()
    if not child:
        with mock.patch.multiple(records, _connect=spilling, commit=die):
            command.run(folder)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert (folder / f"{DATABASE}-journal").stat().st_size > 0
    assert (folder / DATABASE).read_bytes() != whole
    assert judge_kill(command, folder) == "before"
    assert judge_again(command, folder) is None


# --- making one ------------------------------------------------------------------------------------------------------


def test_who_makes_a_workspace_where_another_is_at_it_is_told_and_harms_nothing(
    commands: dict[str, Command], tmp_path: Path
) -> None:
    """Both have seen that there is no folder yet: only who holds it may clean up."""
    pytest.importorskip("fcntl")
    command, folder, real = commands["init"], tmp_path / "ws", Path.exists
    tried = []

    def create_while_another_tries(*arguments: Any, **options: Any) -> Any:
        if not tried:
            tried.append(True)
            unseen = lambda path, **_: path != folder and real(path)  # noqa: E731
            with (
                mock.patch.object(Path, "exists", unseen),
                pytest.raises(EvergraphError, match="another process is writing this workspace"),
            ):
                command.run(folder)
        return write(*arguments, **options)

    write = objects.write_synced
    with mock.patch.object(objects, "write_synced", create_while_another_tries):
        command.run(folder)
    assert tried
    assert contents(folder) == command.after
    with pytest.raises(InputError, match="this folder is a workspace already"):
        command.run(folder)
    assert contents(folder) == command.after


def test_a_workspace_whose_making_was_interrupted_is_none_and_can_be_made(
    commands: dict[str, Command], tmp_path: Path
) -> None:
    for name in (".lock", "objects", f"{DATABASE}.new", f"{DATABASE}.new-journal"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).touch() if "." in name else (folder / name).mkdir()
        with pytest.raises(InputError, match="this folder is not a workspace, or creating it was interrupted"):
            Workspace(folder)
        commands["init"].run(folder)
        assert contents(folder) == commands["init"].after
