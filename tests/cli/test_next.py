"""``Next:`` names a command that succeeds, exactly as printed, after whatever the user did before."""

from __future__ import annotations

import csv
import random
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from evergraph import Workspace
from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables
from evergraph.nn import MLP

pytestmark = pytest.mark.usefixtures("one_thread")

Command = Callable[..., tuple[int, str, str]]
NAMES = ["x", "two words", "-dash", "it's", "Ünïcode"]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setattr("evergraph.storage.records.SYNCHRONOUS", "OFF")


def write(path: Path, heads: Iterable[str], rows: Iterable[Iterable[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(heads), *map(list, rows)])
    return path


class Walk:
    """Random commands on one workspace, in a folder with a blank and a quote in its name."""

    def __init__(self, command: Command, folder: Path, seed: int) -> None:
        self.command, self.folder, self.random = command, folder, random.Random(seed)
        self.ws = folder / "it's my ws"
        self.done: list[str] = []
        self.files = 0
        graph = synthetic(vertices=60, times=3, classes=2, new_classes=0, seed=seed)
        Workspace.create(self.ws, graph, model=MLP(hidden=4), history=self.random.choice([1, 2, "full"]), steps=2)

    def file(self, name: str) -> Path:
        self.files += 1
        return self.folder / f"{name} {self.files}.csv"

    def slice(self, *, labels: bool = False) -> tuple[Path, Path]:
        graph = Workspace(self.ws).graph
        time, number = graph.last_time + self.random.choice([0, 1, 1, 3]), self.random.randint(1, 6)
        ids = [1000 * (self.files + 1) + place for place in range(number)]
        rows = [(id, time, self.random.choice([*NAMES, ""]) if labels else "", "some words") for id in ids]
        edges = [(id, self.random.choice(graph.ids.tolist())) for id in ids]
        vertices = write(self.file("vertices"), ["id", "time", "label", "text"], rows)
        return vertices, write(self.file("edges"), ["source", "target"], edges)

    def labels(self, *, most: int = 8, valid: bool = False) -> Path:
        graph = Workspace(self.ws).graph
        names = self.random.choice([NAMES, [*graph.class_names] or NAMES])
        if valid:
            names = [name for name in NAMES if name not in Workspace(self.ws).state.retired] or ["new"]
        ids = self.random.sample(graph.ids.tolist(), min(most, len(graph)))
        unlabelled = [id for id, code in zip(graph.ids.tolist(), graph.codes, strict=True) if code < 0]
        ids = self.random.choice([ids, unlabelled or ids])
        return write(self.file("labels"), ["id", "label"], [(id, self.random.choice(names)) for id in ids])

    def some_command(self) -> list[object]:
        """Return a command that a user could give; some are refused."""
        ws, pick, graph = self.ws, self.random.choice, Workspace(self.ws).graph
        classes = [row.name for row in Workspace(ws).classes()]
        some = self.random.sample(graph.ids.tolist(), min(3, len(graph)))
        latest, label = self.slice(labels=pick([True, False])), self.labels(most=pick([1, 20]))
        chosen: list[object] = pick(
            [
                ["add", ws, "--vertices", latest[0], "--edges", latest[1]],
                ["predict", ws],
                ["predict", ws, "--time", graph.last_time],
                ["label", ws, "--labels", label],
                ["label", ws, "--labels", label],
                ["update", ws, "--restart", pick(["auto", "warm", "cold"])],
                ["classes", "create", ws, "--ids", ",".join(map(str, some)), "--", pick(NAMES)],
                ["classes", "rename", ws, "--", pick(classes), pick(NAMES)],
                ["classes", "merge", ws, "--into", pick([*classes, *NAMES]), "--", pick(classes), pick(classes)],
                ["classes", "merge", ws, "--into", pick(classes), "--", *classes],
                ["classes", "retire", ws, "--", pick(classes)],
                ["remove", ws, "--ids", ",".join(map(str, some))],
                ["remove", ws, "--ids", ",".join(map(str, self.labelled(graph)))],
                ["rollback", ws, pick(Workspace(ws).store.numbers)],
                ["rollback", ws, pick(Workspace(ws).store.numbers), "--model-only"],
                ["review", ws, "--out", self.file("review")],
                ["set", ws, "--history", pick(["1", "3", "full"])],
                ["set", ws, "--keep", pick(["2", "5"])],
                ["tag", ws, pick(["one", "two"])],
                ["status", ws],
            ]
        )
        return chosen

    def labelled(self, graph: Any) -> list[int]:
        """Return the labelled vertices of the newest periods, at most all but one."""
        first = self.random.randint(graph.first_time, graph.last_time)
        found = [
            id
            for id, time, code in zip(graph.ids.tolist(), graph.times, graph.codes, strict=True)
            if code >= 0 and time >= first
        ]
        return found[:-1] or found

    def run(self, arguments: Iterable[object]) -> str | None:
        """Run a command; return what it printed, None if it was refused."""
        words = list(map(str, arguments))
        code, out, err = self.command(*words)
        self.done.append(shlex.join(words))
        assert code in (0, 2), f"{self.told()}\n{err}"
        assert "Traceback" not in err, f"{self.told()}\n{err}"
        return out if code == 0 else None

    def follow(self, out: str) -> None:
        """Run the command after ``Next:`` as printed, and return to the state before it."""
        if "Next: " not in out:
            return
        words = following(out)
        if "FILE" in words:
            latest = dict(zip(("--vertices", "--edges"), self.slice(), strict=True))
            files: Mapping[str, Path] = latest | {"--labels": self.labels(valid=True)}
            for place, word in enumerate(words):
                if word == "FILE":
                    words[place] = str(files[words[place - 1]])
        kept = self.folder / "kept"
        shutil.copytree(self.ws, kept)
        code, _, err = self.command(*words)
        assert code == 0, f"{self.told()}\nNext: {shlex.join(words)}\n{err}"
        shutil.rmtree(self.ws)
        kept.rename(self.ws)

    def told(self) -> str:
        return "\n".join(["", *self.done])


@pytest.mark.parametrize("seed", range(6))
def test_the_next_command_of_a_workspace_succeeds(command: Command, tmp_path: Path, seed: int) -> None:
    walk = Walk(command, tmp_path, seed)
    for _ in range(15):
        out = walk.run(["ws", *walk.some_command()])
        if out is not None:
            walk.follow(out)


def test_without_labels_to_train_on_no_update_is_suggested(command: Command, tmp_path: Path) -> None:
    """Found by a walk: the labels that are left are all of a retired class."""
    walk = Walk(command, tmp_path, 0)
    graph = Workspace(walk.ws).graph
    kept, gone = graph.class_names
    others = [id for id, label in zip(graph.ids.tolist(), graph.labels, strict=True) if label == gone]
    for arguments in (["classes", "retire", walk.ws, kept], ["remove", walk.ws, "--ids", ",".join(map(str, others))]):
        out = walk.run(["ws", *arguments])
        assert out is not None
        walk.follow(out)
    assert "ws label" in out
    assert "there are no labels to train on" in out


def following(out: str) -> list[str]:
    """Return the words of the command after ``Next:``, without the program."""
    (line,) = (line for line in out.splitlines() if line.startswith("Next: "))
    program, *words = shlex.split(line.removeprefix("Next: "))
    assert program == "evergraph"
    return words


@pytest.mark.parametrize("name", ["it's a graph", "-dash"])
def test_the_next_command_after_import_run_and_review_succeeds(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    vertices, edges = to_tables(synthetic(vertices=60, times=4, classes=2, new_classes=0, seed=1))
    files = [
        write(tmp_path / f"{what}.csv", table.column_names, zip(*table.to_pydict().values(), strict=True))
        for what, table in (("v", vertices), ("e", edges))
    ]
    given, quick = ["--vertices", files[0], "--edges", files[1]], ["--model", "mlp", "--steps", 1, "--history", 1]
    steps = [
        ["import", "tables", *given, "--out", f"{name} g"],
        ["run", f"./{name} g", *quick, "--out", f"{name} run"],
        ["compare", "--detectors", "none,gdoc", "--steps", 1, "--history", 1, "--jobs", 1, "--", f"{name} g"],
        ["inspect", "--", f"{name} g"],
        ["ws", "init", f"./{name} ws", *given, *quick, "--detector", "gdoc", "--threshold", 0.9],
    ]
    for step in steps:
        code, out, err = command(*step)
        assert code == 0, err
        words = following(out)
        if "FILE" not in words:
            short = ["--steps", 1, "--jobs", 1] if words[0] == "run" else []  # the last option of a name counts
            code, _, err = command(*words, *short)
            assert code == 0, (words, err)
    new = write(
        tmp_path / "new.csv", ["id", "time", "label", "text"], [(f"n{row}", 4, "", "words") for row in range(9)]
    )
    assert command("ws", "add", f"./{name} ws", "--vertices", new)[0] == 0
    assert command("ws", "predict", f"./{name} ws")[0] == 0
    code, out, err = command("ws", "review", f"./{name} ws", "--out", f"{name}.csv")
    assert code == 0, err
    code, out, err = command(*following(out))
    assert (code, out.splitlines()[0]) == (0, f"Nothing to do: {Path(f'./{name}.csv')}: there are no labels."), err


def test_a_run_of_the_graph_in_this_folder_is_named_after_it(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic(vertices=60, times=4, classes=2, new_classes=0, seed=1).save(tmp_path / "g")
    monkeypatch.chdir(tmp_path / "g")
    assert following(command("inspect", ".")[1])[-2:] == ["--out", "g-run"]
