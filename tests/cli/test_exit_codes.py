"""Exit codes and errors as JSON, through the command itself."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from evergraph import Workspace
from evergraph.datasets import synthetic
from evergraph.nn import MLP
from tests.faults import Faults

EVERGRAPH = [sys.executable, "-m", "evergraph"]
Command = Callable[..., tuple[int, str, str]]


def evergraph(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*EVERGRAPH, *map(str, arguments)], capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the graph g, the workspace ws and the tables v.csv and e.csv."""
    folder = tmp_path_factory.mktemp("made")
    graph = synthetic(vertices=60, times=4, classes=2, new_classes=0, seed=1)
    graph.save(folder / "g")
    Workspace.create(folder / "ws", graph, model=MLP(hidden=4), history=2, steps=2)
    (folder / "v.csv").write_text("id,time,label\na,1,x\nb,2,y\n")
    (folder / "e.csv").write_text("source,target\na,b\n")
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


IMPORT = ("import", "tables", "--vertices", "v.csv", "--edges", "e.csv", "--out", "new")
RUN = ("run", "g", "--model", "mlp", "--steps", "1", "--out", "runs")
WRITERS = {"workspace": ("ws", "remove", "ws", "--ids", "0"), "graph": IMPORT, "run": RUN}


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold a lock in another process that is alive."""
    lock.parent.mkdir(exist_ok=True)
    code = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(); time.sleep(99)"
    with subprocess.Popen([sys.executable, "-uc", code, str(lock)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            yield
        finally:
            holder.kill()


def refused(done: tuple[int, str, str], code: int, *words: str) -> None:
    """Check a refusal in text, of a command without --json."""
    assert done[0] == code, done
    assert done[1] == ""
    assert done[2].startswith("Error: ")
    assert all(word in done[2] for word in words), done[2]
    assert "Traceback" not in done[2]


def refused_as_json(done: tuple[int, str, str], code: int, kind: str) -> dict[str, Any]:
    """Return the error of a command with --json, which prints nothing else."""
    error: dict[str, Any] = json.loads(done[1])["error"]
    assert (done[0], error["code"], error["kind"]) == (code, code, kind), done
    assert "Error" not in done[2]
    assert "Usage" not in done[2]
    return error


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks on Windows")
@pytest.mark.parametrize(("what", "lock"), [("workspace", "ws"), ("graph", "new"), ("run", "runs")])
def test_a_lock_that_another_process_holds_is_3(here: Path, command: Command, what: str, lock: str) -> None:
    with held(here / lock / ".lock"):
        refused(command(*WRITERS[what]), 3, f"another process is writing this {what}")
        error = refused_as_json(command(*WRITERS[what], "--json"), 3, "busy")
    longer = ", or give --wait SECONDS (wait=SECONDS in Python)" if what == "workspace" else ""
    assert (error["file"], error["fix"]) == (lock, f"wait until it is done{longer}")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit on Windows")
@pytest.mark.parametrize("what", WRITERS)
def test_files_that_may_not_grow_are_4(here: Path, what: str) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    # Without bytecode: Python would store files that end at the limit, and the next command would fail on them.
    done = evergraph(*WRITERS[what], "--json", preexec_fn=limit, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
    error = refused_as_json((done.returncode, done.stdout, done.stderr), 4, "storage")
    assert error["file"]


@pytest.mark.parametrize("number", ["ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "EIO", "EFBIG", "ESTALE"])
@pytest.mark.parametrize("what", WRITERS)
def test_a_disk_that_refuses_is_4(
    here: Path, command: Command, what: str, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(errno, number):
        pytest.skip(f"this system has no {number}")
    real, reason = os.open, os.strerror(getattr(errno, number))

    def refuse(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(getattr(errno, number), reason, path)
        return real(path, flags, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        done = command(*WRITERS[what])
    refused(done, 4, reason)


def test_a_full_disk_is_4_at_every_call(here: Path, command: Command) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert command(*IMPORT)[0] == 0  # everything is imported
    for at in count(1):
        shutil.rmtree("new")
        with Faults(at, fail) as faults:
            code, _, err = command(*IMPORT, "--json")
        assert code in (0, 4), err
        if faults.count < at:
            assert at > 20
            break
        shutil.rmtree("new", ignore_errors=True)
        Path("new").mkdir()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that even root may not write to")
@pytest.mark.parametrize("arguments", [IMPORT[:-1], ("report", "runs", "--out"), ("ws", "init", "--graph", "g")])
def test_a_folder_that_may_not_be_written_is_4(here: Path, command: Command, arguments: tuple[str, ...]) -> None:
    if arguments[0] == "report":
        assert command(*RUN)[0] == 0
    place = "/sys/kernel/report.html" if arguments[0] == "report" else "/sys/kernel/new"
    error = refused_as_json(command(*arguments, place, "--json"), 4, "storage")
    assert error["file"].startswith("/sys/kernel")


@pytest.mark.parametrize(
    ("arguments", "kind", "told"),
    [
        (("inspect", "nowhere"), "input", {"problem": "there is no such graph", "file": "nowhere"}),
        (("ws", "status", "nowhere"), "input", {"problem": "this workspace does not exist", "file": "nowhere"}),
        (("inspect", "empty"), "damage", {"fix": "import the graph again"}),
        ((*IMPORT[:3], "no.csv", *IMPORT[4:]), "input", {"problem": "there is no such file", "file": "no.csv"}),
        (
            (*IMPORT[:3], "bad.csv", *IMPORT[4:]),
            "input",
            {"file": "bad.csv", "column": "time", "row": 2, "line": 3},
        ),
        (("ws", "label", "ws", "--labels", "g"), "input", {"problem": "this is a folder, not a file"}),
        (("run", "g", "--history", "none"), "input", {"problem": "--history is 'none'"}),
        # wrong usage
        (("inspect", "g", "--no-such-option"), "input", {"problem": "No such option: --no-such-option"}),
        (("inspect",), "input", {"problem": "Missing argument 'GRAPH'"}),
        (("nonsense",), "input", {"problem": "No such command 'nonsense'"}),
        (("ws", "statu", "ws"), "input", {}),
        (("run", "g", "--steps", "many"), "input", {}),
        (("run", "g", "--restart", "luke\x1b[2Jwarm"), "input", {}),
    ],
)
def test_bad_input_is_2(
    here: Path, command: Command, arguments: tuple[str, ...], kind: str, told: dict[str, Any]
) -> None:
    (here / "empty").mkdir()
    (here / "bad.csv").write_text("id,time,label\na,1,x\nb,soon,y\n")
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert "Error: " in err
    assert "\x1b" not in err
    error = refused_as_json(command(*arguments, "--json"), 2, kind)
    assert error["problem"] in error["message"]
    for name, value in told.items():
        assert error[name].startswith(value) if isinstance(value, str) else error[name] == value, error


def test_after_two_dashes_json_is_a_name(here: Path, command: Command) -> None:
    code, out, err = command("inspect", "--", "--json")
    assert (code, out) == (2, "")
    assert "Error: --json: there is no such graph" in err


@pytest.mark.parametrize("what", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")])
def test_no_memory_is_1(here: Path, command: Command, monkeypatch: pytest.MonkeyPatch, what: Exception) -> None:
    def fail(*_: object) -> None:
        raise what

    monkeypatch.setattr("evergraph.datasets.load", fail)
    refused(command("run", "g"), 1, "not enough memory")
    assert refused_as_json(command("run", "g", "--json"), 1, "failure")["fix"].startswith("choose a shorter history")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("inspect", "g"), "Interrupted."),
        (RUN, "Interrupted. Nothing was stored: no task was finished."),
        (("ws", "update", "ws"), "Interrupted; nothing was changed."),
        (("ws", "init", "new", "--graph", "g"), "Interrupted; nothing was changed."),
        (("compare", "g", "--detectors", "none", "--jobs", "1"), "Interrupted. Finished trainings are stored."),
    ],
)
def test_an_interrupt_is_130(
    here: Path, command: Command, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for place in (
        "evergraph.datasets.load",
        "evergraph.evaluation.run_folder.RunFolder.append",
        "evergraph.workspace.workspace.Workspace.update",
        "evergraph.workspace.workspace.Workspace.create",
        "evergraph.evaluation.replay._train",
    ):
        if arguments[0] == "inspect" or not place.endswith("load"):
            monkeypatch.setattr(place, stop)
    code, out, err = command(*arguments)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1].startswith(told)
    error = refused_as_json(command(*arguments, "--json"), 130, "interrupted")
    assert error["message"].startswith(told)


def heed_interrupts() -> None:
    """A shell starts background jobs so that they ignore interrupts, and so would the command."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_reaches_the_command() -> None:
    """With the signal, at whatever it is doing."""
    with subprocess.Popen(
        [*EVERGRAPH, "run", "synthetic", "--steps", "99999", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heed_interrupts,
    ) as child:
        try:
            assert child.stderr is not None
            child.stderr.readline()  # the first line of progress: the command has started
            child.send_signal(signal.SIGINT)
            out, _ = child.communicate(timeout=60)
        finally:
            child.kill()
    assert child.returncode == 130
    assert json.loads(out)["error"]["code"] == 130


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes on Windows")
@pytest.mark.parametrize("arguments", [("inspect", "g"), ("inspect", "g", "--json"), ("--help",), ("ws", "log", "ws")])
def test_a_reader_that_is_gone_ends_the_command_quietly(here: Path, arguments: tuple[str, ...]) -> None:
    end, start = os.pipe()
    os.close(end)
    done = subprocess.run([*EVERGRAPH, *arguments], stdout=start, stderr=subprocess.PIPE, check=False)
    os.close(start)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", [("inspect", "ws"), ("run", "ws"), ("compare", "g", "ws")])
def test_a_workspace_is_no_graph(here: Path, command: Command, arguments: tuple[str, ...]) -> None:
    refused(command(*arguments), 2, "ws: this is a workspace, not a graph", "evergraph ws status ws")


def test_a_graph_has_no_report(here: Path, command: Command) -> None:
    refused(command("report", "g"), 2, "g: this is a graph, neither a run nor a workspace")


def test_a_question_has_no_full_stop(here: Path, command: Command) -> None:
    assert refused_as_json(command("ws", "lable", "ws", "--json"), 2, "input")["message"].endswith("'label'?")


def test_a_slice_that_was_added_before(here: Path, command: Command) -> None:
    (here / "new.csv").write_text("id,time,text\n900,9,w1\n901,9,w2\n902,9,w1\n")
    (here / "more.csv").write_text("id,time,text\n903,9,w1\n901,9,w2\n")
    assert command("ws", "add", "ws", "--vertices", "new.csv")[0] == 0
    again = command("ws", "add", "ws", "--vertices", "new.csv")
    refused(again, 2, "new.csv, row 1: vertex '900' is in the graph already (3 of 3 vertices are)")
    assert "if the slice was added before, continue with: evergraph ws predict ws" in again[2]
    partly = command("ws", "add", "ws", "--vertices", "more.csv")
    refused(partly, 2, "more.csv, row 2: vertex '901' is in the graph already (1 of 2 vertices is)")
    assert "ws predict" not in partly[2]


def test_without_unseen_vertices_there_is_no_mcc(here: Path, command: Command) -> None:
    found = json.loads(command(*RUN, "--json")[1])
    assert {task["unseen"] for task in found["tasks"]} == {0}
    assert {task["mcc"] for task in found["tasks"]} == {None} == {found["mcc"]["mean"]}
    shown = command(*RUN)[1]
    assert re.search(r"^MCC +- ", shown, re.MULTILINE)
    assert "transductive" in shown.splitlines()[0] + shown.splitlines()[1]
