"""Kill the commands of a workspace at random moments, and check what is left.

Usage: ``python scripts/kill_workspace.py --kills 200 --seed 0``. Each kill stops one of seven commands, which runs in
its own process on a copy of a workspace, with SIGKILL at a random moment of its run. The workspace must then be in the
state before or after the command, with all objects intact. The same command is run again and must reach the same state
as without the kill, with no leftover files. Exits with 1 if anything was lost, corrupt or doubled; ``--out`` keeps the
folders of such cases.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from evergraph import EvolvingGraph, InputError
from evergraph.datasets import synthetic
from evergraph.datasets.tables import Columns, to_tables
from evergraph.detect import GDOC
from evergraph.errors import DamagedWorkspaceError
from evergraph.inputs.encoders import Encoder
from evergraph.inputs.encoding import encode_graph
from evergraph.inputs.vocabulary import BLOCKS
from evergraph.nn import GraphSAGE
from evergraph.nn.base import Model
from evergraph.workspace import Workspace
from evergraph.workspace.change import Contents, read_learner
from evergraph.workspace.store import OBJECTS, SCHEMA, Store, needed_objects, read_state

Rows = dict[str, Any]


@dataclass(frozen=True)
class Command:
    """A command, the folder before it (None if it creates the workspace), and the records before and after it."""

    name: str
    run: Callable[[Path], object]
    folder: Path | None
    before: Rows | None
    after: Rows

    def prepare(self, folder: Path) -> None:
        """Copy the folder as it is before the command."""
        if self.folder is not None:
            shutil.copytree(self.folder, folder)


def make_commands(root: Path, graph: EvolvingGraph, *, model: Model, steps: int) -> list[Command]:
    """Create a workspace up to the last but one period, and the results of the seven commands with the last one.

    The model reads all blocks. Few versions are kept, so that each command also removes an old one. One of the versions
    that are kept has a tag.
    """
    last = graph.last_time
    vertices, edges = _tables(graph, None, last - 2)
    old = encode_graph(EvolvingGraph.build(vertices, edges, numbers=["number"], categories=["kind"]), Lengths())

    def create(folder: Path) -> None:
        columns = Columns(numbers=("number",), categories=("kind",))
        options: dict[str, Any] = {"history": 2, "steps": steps, "keep": 2, "inputs": ",".join(BLOCKS)}
        Workspace.create(folder, old, model=model, detector=GDOC(0.5), columns=columns, **options)

    runs: list[tuple[str, Callable[[Path], object]]] = [("init", create)]
    for moment in (last - 1, last):
        vertices, edges = _tables(graph, moment, moment)
        runs += [
            ("add", partial(_add, vertices.drop_columns("label"), edges)),
            ("predict", lambda folder: Workspace(folder).predict()),
            ("label", partial(_label, vertices.column("id").to_pylist(), vertices.column("label").to_pylist())),
            ("update", lambda folder: Workspace(folder).update("warm")),
            ("set", partial(_set, moment)),
            ("tag", partial(_tag, f"period-{moment}")),
        ]
    found = {}
    folder, before = root / "workspace", None
    for number, (name, run) in enumerate(runs):
        kept = None
        if before is not None:
            kept = root / f"{number}-before-{name}"
            shutil.copytree(folder, kept)
        run(folder)
        after = contents(folder)
        assert after is not None
        found[name] = Command(name, run, kept, before, after)  # the later ones, which have more behind them
        before = after
    return list(found.values())


def _tables(graph: EvolvingGraph, first: int | None, last: int) -> tuple[Any, Any]:
    """Return slices with a number that is sometimes missing, and a category that is new in each period."""
    vertices, edges = to_tables(graph, first, last)
    ids, times = vertices.column("id").to_pylist(), vertices.column("time").to_pylist()
    numbers = pa.array([None if id % 5 == 0 else float(id % 7) for id in ids], pa.float32())
    kinds = [f"of {time}" if id % 2 else "usual" for id, time in zip(ids, times, strict=True)]
    return vertices.append_column("number", numbers).append_column("kind", pa.array(kinds)), edges


class Lengths(Encoder):
    """Encodes a text as its numbers of letters and words."""

    name, checksum, width = "lengths", "0" * 64, 2

    def encode_batch(self, texts: list[str]) -> np.ndarray[Any, Any]:
        """Return one vector per text."""
        return np.array([[len(text), len(text.split())] for text in texts], np.float32)


def _add(vertices: Any, edges: Any, folder: Path) -> None:
    Workspace(folder).add(vertices, edges, encoder=Lengths())


def _label(ids: list[Any], labels: list[str], folder: Path) -> None:
    Workspace(folder).label(ids, labels)


def _set(moment: int, folder: Path) -> None:
    Workspace(folder).set(
        history=1 + moment % 2,
        detector={"threshold": 0.5 + moment / 100},
        model={"hidden": moment},
        inputs=",".join(BLOCKS[moment % 2 :]),
    )


def _tag(name: str, folder: Path) -> None:
    Workspace(folder).tag(name)


# --- looking at what is there ----------------------------------------------------------------------------------------


def contents(folder: Path) -> Rows | None:
    """Return all rows of the records except clock times; None if there is no workspace.

    Everything is compared with its checksums, and every kept version must open, with its graph and its learner.
    """
    try:
        store = Store(folder)
    except DamagedWorkspaceError:
        raise
    except InputError:
        return None
    store.verify()
    with store.read() as records:
        for (number,) in records.query("SELECT version FROM states"):
            state = read_state(records, number)
            Contents.read(records, store.objects, state.classes, number)
            read_learner(records, store.objects, state, (None, None), state.classes)
        found = {table: records.select(table) for table in SCHEMA.tables if table != "garbage"}
    found["versions"] = [row._replace(made="") for row in found["versions"]]
    found["models"] = [row._replace(seconds=0) for row in found["models"]]
    return found


def leftovers(folder: Path) -> set[str]:
    """Return the files that no kept version needs."""
    with Store(folder).read() as records:
        needed = needed_objects(records)
    beside = {path.name for path in folder.iterdir()} - {".lock", "workspace.db", OBJECTS}
    beside |= {path.name for path in folder.parent.glob(f"{folder.name}.encoding")}
    return beside | {path.name for path in (folder / OBJECTS).iterdir()} - needed


def judge_kill(command: Command, folder: Path) -> str:
    """Return which state a killed command left: ``before`` or ``after`` it, or else ``corrupt`` or ``lost``."""
    try:
        found = contents(folder)
    except Exception:
        traceback.print_exc()
        return "corrupt"
    if found == command.before:
        return "before"
    if found == command.after:
        return "after"
    return (
        "lost"
        if found is None or len(found["versions"]) < len((command.before or command.after)["versions"])
        else "corrupt"
    )


def judge_again(command: Command, folder: Path) -> str | None:
    """Run the same command again; return what is wrong then, or None."""
    with contextlib.suppress(InputError):  # that there is nothing left to do
        command.run(folder)
    try:
        found = contents(folder)
        left = leftovers(folder)
    except Exception:
        traceback.print_exc()
        return "corrupt"
    if found == command.after:
        return "corrupt" if left else None
    return "doubled" if found is not None and len(found["versions"]) > len(command.after["versions"]) else "lost"


# --- killing ---------------------------------------------------------------------------------------------------------


def in_a_child(run: Callable[[Path], object], folder: Path) -> int:
    """Start a command in its own process and return the process id."""
    child = os.fork()
    if not child:
        try:
            run(folder)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def killed_after(command: Command, folder: Path, seconds: float) -> bool:
    """Run a command and kill it after some seconds; return whether it was still running."""
    child = in_a_child(command.run, folder)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError(f"{command.name} broke down before it was killed")
    return os.WIFSIGNALED(status)


def seconds_of(command: Command, root: Path) -> float:
    """Return the seconds that a command takes in its own process (median of three)."""
    found = []
    for turn in range(3):
        folder = root / f"{command.name}-{turn}"
        command.prepare(folder)
        start = time.perf_counter()
        _, status = os.waitpid(in_a_child(command.run, folder), 0)
        found.append(time.perf_counter() - start)
        if status:
            raise RuntimeError(f"{command.name} broke down")
        shutil.rmtree(folder)
    return statistics.median(found)


def campaign(commands: list[Command], kills: int, seed: int, root: Path) -> Iterator[tuple[str, str, str | None]]:
    """Kill the commands in turn; yield the command, the state it left, and what was wrong after running it again."""
    rng = np.random.default_rng(seed)
    seconds = {command.name: seconds_of(command, root) for command in commands}
    for number in range(kills):
        command = commands[number % len(commands)]
        folder = root / f"kill-{number:04d}"
        while True:
            command.prepare(folder)
            if killed_after(command, folder, rng.uniform(0, seconds[command.name])):
                break
            shutil.rmtree(folder)  # it was faster than usual
        left = judge_kill(command, folder)
        wrong = judge_again(command, folder) if left in ("before", "after") else None
        if left in ("before", "after") and wrong is None:
            shutil.rmtree(folder)
        yield command.name, left, wrong


COLUMNS = ("before", "after", "lost", "corrupt", "doubled")


def main() -> int:
    """Kill commands and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="how many; shared evenly among the commands")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--vertices", type=int, default=2000, help="of the graph")
    parser.add_argument("--steps", type=int, default=20, help="of training")
    parser.add_argument("--out", type=Path, help="an empty or new folder to work in")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a forked process has none of its parent's threads
    graph = synthetic(vertices=options.vertices, times=8, classes=6, new_classes=2, seed=options.seed)
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        root = options.out or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        commands = make_commands(root, graph, model=GraphSAGE(hidden=8), steps=options.steps)
        for name, left, wrong in campaign(commands, options.kills, options.seed, root):
            counts[name, "kills"] += 1
            counts[name, left] += 1
            counts[name, wrong or ""] += 1
    names = [command.name for command in commands]
    head = ("command", "kills", *COLUMNS)
    rows = [(name, *(str(counts[name, column]) for column in head[1:])) for name in names]
    rows.append(("all", *(str(sum(counts[name, column] for name in names)) for column in head[1:])))
    for row in [head, *rows]:
        print("".join(f"{cell:>9}" for cell in row))
    return int(any(counts[name, column] for name in names for column in COLUMNS[2:]))


if __name__ == "__main__":
    sys.exit(main())
