"""Run the commands of a workspace from several processes at the same time, and check that no change is lost or doubled.

Usage: ``python scripts/race_workspace.py --processes 8 --minutes 3``. Each process runs random commands one after the
other, most of them with ``--wait``. A command must be acknowledged (code 0) or refused with the code for bad input or
for a folder in use; a command that only reads must succeed. At the end, every acknowledged change is one entry of the
log, every entry is one acknowledged change, the vertices and labels are those that the log gives, and ``verify`` finds
no damage. Exits with 1 otherwise; ``--out`` keeps the folder.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evergraph.cli import main as evergraph
from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables
from evergraph.detect import GDOC
from evergraph.graph.evolving import EvolvingGraph
from evergraph.nn import GraphSAGE
from evergraph.workspace import Workspace

REFUSED = {2: ("input",), 3: ("busy", "stale")}
LONGEST = 300  # seconds for one command, with waiting
PERIOD = 10  # seconds after which new slices are of the next period

Labels = dict[str, str | None]


@dataclass
class Command:
    """A command, its effect on the vertices and labels, and its end: exit code, JSON, and what it wrote to stderr."""

    name: str
    arguments: list[str]
    effect: dict[str, Any] = field(default_factory=dict)
    reads: bool = False
    code: int = -1
    answer: dict[str, Any] = field(default_factory=dict)
    errors: str = ""

    @property
    def problem(self) -> str | None:
        """What is wrong with how it ended, or None."""
        if "Traceback" in self.errors:
            return "traceback"
        if self.code == 0:
            return None
        kind = self.answer.get("error", {}).get("kind")
        refused = not self.reads and kind in REFUSED.get(self.code, ())
        return None if refused else f"code {self.code} ({kind})"


class Racer:
    """One of the processes: chooses commands, and knows the ids that it has added."""

    def __init__(self, number: int, folder: Path, first_period: int, start: float) -> None:
        self.number, self.folder, self.first_period, self.start = number, folder, first_period, start
        self.rng = np.random.default_rng(number)
        self.ids: list[str] = []
        self.count, self.version = 0, 1

    def run(self, until: float) -> None:
        """Run commands until a moment; append each to a file of this process."""
        choices = [getattr(self, name) for name in dir(self) if name.startswith("do_")]
        with (self.folder / f"racer-{self.number}.jsonl").open("w", encoding="utf-8") as file:
            while time.monotonic() < until:
                self.count += 1
                command = choices[self.rng.integers(len(choices))]()
                if not command.reads:
                    command.arguments += ["--wait", "0" if self.rng.random() < 0.1 else "120"]
                run_in_child(command, self.folder / f"racer-{self.number}")
                self.version = max(self.version, command.answer.get("version", 0))
                if command.name == "add" and command.code == 0:
                    self.ids += command.effect["add"]
                file.write(json.dumps(asdict(command)) + "\n")
                file.flush()

    def do_add(self) -> Command:
        """Add three vertices, which may be older than those of another process by now."""
        ids = [f"v{self.number}-{self.count}-{i}" for i in range(3)]
        now = self.first_period + int((time.monotonic() - self.start) / PERIOD)
        vertices = self._table(["id", "time", "text"], [[one, now, "w0001 w0002 w0003"] for one in ids])
        return self._command("add", "--vertices", vertices, add=ids)

    def do_remove(self) -> Command:
        """Remove a vertex."""
        return self._command("remove", "--ids", one := self._one_id(), remove=[one])

    def do_label(self) -> Command:
        """Label a vertex, with a new class now and then."""
        name = f"class 0{self.rng.integers(4)}" if self.rng.random() < 0.8 else f"label {self.number}-{self.count}"
        table = self._table(["id", "label"], [[one := self._one_id(), name]])
        return self._command("label", "--labels", table, label={one: name})

    def do_create(self) -> Command:
        """Create a class from a vertex."""
        name = f"created {self.number}-{self.count}"
        return self._command("classes create", name, "--ids", one := self._one_id(), label={one: name})

    def do_rename(self) -> Command:
        """Rename a class of the beginning; another process may have done that already."""
        old, new = f"class 0{self.rng.integers(4)}", f"renamed {self.number}-{self.count}"
        return self._command("classes rename", old, new, rename={old: new})

    def do_rollback(self) -> Command:
        """Restore a version of a short time ago, sometimes only its model."""
        version = max(1, self.version - int(self.rng.integers(1, 5)))
        if self.rng.random() < 0.5:
            return self._command("rollback", version, "--model-only")
        return self._command("rollback", version, rollback=version)

    def do_set(self) -> Command:
        """Change a setting."""
        if self.rng.random() < 0.5:
            return self._command("set", "--threshold", round(self.rng.uniform(0.2, 0.8), 6))
        return self._command("set", "--keep", self.rng.integers(5, 15))

    def do_tag(self) -> Command:
        """Name a version of a short time ago, or delete such a name."""
        name = f"tag{self.number}-{self.rng.integers(3)}"
        if self.rng.random() < 0.3:
            return self._command("tag", name, "--delete")
        return self._command("tag", name, "--version", max(1, self.version - int(self.rng.integers(5))))

    def do_predict(self) -> Command:
        """Predict, and write the decisions to a file."""
        out = self.folder / f"decisions-{self.number}.csv"
        return self._command("predict", "--out", out, "--replace")

    def do_update(self) -> Command:
        """Train the model."""
        return self._command("update", "--restart", "warm")

    def do_look(self) -> Command:
        """Run a command that only reads."""
        name = str(self.rng.choice(["status", "log", "scores", "verify", "classes list", "review", "export", "report"]))
        out = self.folder / f"{name}-{self.number}"
        if name == "report":
            arguments = ["report", str(self.folder / "workspace"), "--out", f"{out}.html", "--json"]
            return Command(name, arguments, reads=True)
        if name == "export":
            command = self._command("review", "--out", f"{out}.csv", "--replace")
        else:
            command = self._command(name)
        command.reads = True
        return command

    do_add_again, do_label_again, do_look_again, do_look_more = do_add, do_label, do_look, do_look  # more often

    def _one_id(self) -> str:
        """Return an id that this process has added, or an unknown one."""
        return str(self.rng.choice(self.ids[-20:])) if self.ids else "unknown"

    def _table(self, head: list[str], rows: list[list[Any]]) -> Path:
        path = self.folder / f"table-{self.number}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([head, *rows])
        return path

    def _command(self, name: str, *arguments: object, **effect: Any) -> Command:
        words = ["ws", *name.split(), str(self.folder / "workspace"), *map(str, arguments), "--json"]
        return Command(name, words, effect)


def run_in_child(command: Command, path: Path) -> None:
    """Run a command in its own process, with its output in files; a process that takes too long is ended."""
    out, errors = path.with_suffix(".out"), path.with_suffix(".err")
    child = os.fork()
    if not child:
        for stream, file in ((1, out), (2, errors)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        sys.stdout, sys.stderr = open(1, "w", encoding="utf-8"), open(2, "w", encoding="utf-8")  # noqa: SIM115
        sys.argv = ["evergraph", *command.arguments]
        code: Any = 1
        try:
            torch.set_num_threads(1)  # the parent's threads do not exist here, and torch would wait for them
            evergraph()
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    _, status = _waited(child)
    command.code = os.waitstatus_to_exitcode(status)
    command.errors = errors.read_text(encoding="utf-8")
    try:
        command.answer = json.loads(out.read_text(encoding="utf-8"))
    except ValueError:
        command.answer = {}


def _waited(child: int) -> tuple[int, int]:
    until = time.monotonic() + LONGEST
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, 9)
            return os.waitpid(child, 0)
        time.sleep(0.01)
    return ended


# --- checks ----------------------------------------------------------------------------------------------------------


def changed(labels: Labels, effect: dict[str, Any], before: Callable[[int], Labels]) -> Labels:
    """Return the labels of all vertices after a change."""
    labels = dict(before(effect["rollback"]) if "rollback" in effect else labels)
    labels |= dict.fromkeys(effect.get("add", ())) | effect.get("label", {})
    for one in effect.get("remove", ()):
        del labels[one]
    renamed = effect.get("rename", {})
    return {one: renamed.get(label, label) for one, label in labels.items()}


def labels_of(graph: EvolvingGraph) -> Labels:
    """Return the label of each vertex, or None."""
    names = [*graph.classes.names, None]  # a code of -1 is no label
    return {str(one): names[code] for one, code in zip(graph.ids, graph.codes, strict=True)}


def find_problems(workspace: Workspace, commands: list[Command], first: Labels) -> list[str]:
    """Compare log, vertices and labels with what the commands acknowledged."""
    found = [f"{one.name}: {problem}: {one.arguments} {one.errors}" for one in commands if (problem := one.problem)]
    log = {entry.version: entry for entry in workspace.log()}
    if sorted(log) != list(range(1, len(log) + 1)):
        found.append("the versions of the log have gaps")
    by_version: dict[int, Command] = {}
    for one in commands:
        if one.reads or one.code or one.answer.get("what", "").startswith("nothing to do"):
            continue
        version = one.answer.get("version", 0)
        entry = log.get(version)
        may_be_same = one.name == "predict"  # the same decisions as before are not stored
        # An answer may go on with advice, which is not in the log.
        if entry is None or entry.command != one.name or not one.answer.get("what", entry.what).startswith(entry.what):
            if not may_be_same:
                found.append(f"lost: {one.arguments} was acknowledged as version {version}, which is {entry}")
        elif version in by_version and not may_be_same:
            found.append(f"lost: version {version} was acknowledged twice: {one.arguments}, {by_version[version]}")
        else:
            by_version[version] = one
    states = {1: first}
    for version in range(2, len(log) + 1):
        if version not in by_version:
            found.append(f"doubled, or refused and made: nothing was acknowledged as {log[version]}")
        effect = by_version[version].effect if version in by_version else {}
        states[version] = changed(states[version - 1], effect, states.__getitem__)
    if labels_of(workspace.graph) != states[len(log)]:
        found.append("the vertices and labels are not those that the log gives")
    try:
        workspace.verify()
    except Exception as error:
        found.append(f"verify: {error}")
    return found


def warm_up(racer: Racer) -> None:
    """Run each command once in this process, so that the others have everything imported and compiled."""
    racer.ids = [f"v0-0-{i}" for i in range(3)]
    commands = [racer.do_add(), racer.do_predict(), racer.do_label(), racer.do_update()]
    for command in [
        *commands,
        racer.do_create(),
        racer.do_set(),
        racer.do_tag(),
        *(racer.do_look() for _ in range(12)),
    ]:
        sys.argv = ["evergraph", *command.arguments]
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
            evergraph()


def race(root: Path, processes: int, seconds: float) -> tuple[list[Command], list[str]]:
    """Create a workspace, let the processes run, and return their commands and what is wrong."""
    vertices, edges = to_tables(synthetic(vertices=400, times=5, classes=4, new_classes=1, seed=0))
    vertices = vertices.set_column(0, "id", vertices["id"].cast("string"))  # new vertices have names
    graph = EvolvingGraph.build(vertices, edges)
    settings: dict[str, Any] = {"model": GraphSAGE(hidden=8), "detector": GDOC(0.5), "history": 2, "steps": 3}
    workspace = Workspace.create(root / "workspace", graph, keep=10, **settings)
    first = labels_of(workspace.graph)
    shutil.copytree(root / "workspace", root / "warm" / "workspace")
    warm_up(Racer(0, root / "warm", graph.last_time + 1, time.monotonic()))
    start = time.monotonic()
    context = multiprocessing.get_context("fork")  # the processes need not import everything again
    racers = [
        context.Process(target=Racer(n, root, graph.last_time + 1, start).run, args=(start + seconds,))
        for n in range(processes)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    lines = [line for path in root.glob("racer-*.jsonl") for line in path.read_text(encoding="utf-8").splitlines()]
    commands = [Command(**json.loads(line)) for line in lines]
    problems = find_problems(Workspace(root / "workspace"), commands, first)
    if any(racer.exitcode for racer in racers):
        problems.append("a process ended with an error of its own")
    return commands, problems


def main() -> int:
    """Let the processes run and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8, help="how many at the same time")
    parser.add_argument("--minutes", type=float, default=3, help="time after which no command is started")
    parser.add_argument("--out", type=Path, help="an empty or new folder to work in, which is kept")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a forked process has none of its parent's threads
    with tempfile.TemporaryDirectory() as temporary:
        root = options.out or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        commands, problems = race(root, options.processes, 60 * options.minutes)
    counts = Counter((one.name, one.code) for one in commands)
    names, codes = sorted({name for name, _ in counts}), sorted({code for _, code in counts})
    for row in [("command", *codes), *((name, *(counts[name, code] for code in codes)) for name in names)]:
        print("".join(f"{cell!s:>16}" for cell in row))
    print(f"{len(commands)} commands, {len(problems)} problems")
    for problem in problems[:20]:
        print(problem)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
