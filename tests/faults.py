"""Failures of the file system at a chosen call; tests import this file and also run it as a separate process."""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from evergraph import EvergraphError, EvolvingGraph
from evergraph.storage import records

CALLS = ["fsync", "open", "replace", "mkdir", "rmdir", "unlink", "scandir", "listdir"]


def graph(vertices: int, *, about: str) -> EvolvingGraph:
    """Build a graph with every kind of array."""
    rows = range(vertices)
    return EvolvingGraph.build(
        {
            "id": [f"{about}{row}" for row in rows],
            "time": [row % 5 for row in rows],
            "label": [f"class {row % 3}" for row in rows],
            "text": [f"word{row % 7} {about} words" for row in rows],
        },
        {"source": [f"{about}0"] * vertices, "target": [f"{about}{row}" for row in rows], "time": [7] * vertices},
        about={"name": about},
    )


class Faults:
    """Count the calls to the file system, writes included, and do something before the n-th of them.

    Syncing is only counted, because it is slow and has no effect that a process could observe.
    """

    def __init__(self, at: int, what: Callable[[], Any]) -> None:
        self.at, self.what, self.count = at, what, 0
        self._patches: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> Faults:
        for name in CALLS:
            real = (lambda _: None) if name == "fsync" else getattr(os, name)
            self._patches.append(mock.patch.object(os, name, self._counted(real)))
        opened = self._counted(io.open)
        # SQLite's own calls are not counted: here a fault is before or after a commit; other tests kill processes.
        commit = records.commit
        self._patches.append(mock.patch.object(records, "commit", lambda connection: self._around(commit, connection)))
        for name in ("insert", "delete"):
            written = self._counted(getattr(records.Records, name))
            self._patches.append(mock.patch.object(records.Records, name, _method(written)))
        self._patches.append(mock.patch.object(io, "open", lambda *args, **kw: _File(self, opened(*args, **kw))))
        for patch in self._patches:
            patch.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for patch in reversed(self._patches):
            patch.__exit__(None, None, None)

    def tick(self) -> bool:
        self.count += 1
        return self.count == self.at

    def _around(self, real: Callable[..., Any], *arguments: Any) -> None:
        for act in (lambda: None, lambda: real(*arguments)):
            act()
            if self.tick():
                self.what()

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.tick():
                self.what()
            return real(*args, **kwargs)

        return call


def _method(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **keywords: call(*arguments, **keywords)


class _File:
    """A file whose n-th write stops in the middle."""

    def __init__(self, faults: Faults, file: Any) -> None:
        self.faults, self.file, self.writes = faults, file, 0

    def write(self, data: Any) -> int:
        self.writes += 1
        # A text file is written in hundreds of small pieces into a buffer: a few of them are enough.
        if (self.writes < 5 or self.writes % 50 == 0) and self.faults.tick():
            self.file.write(data[: len(data) // 2])
            self.file.flush()
            self.faults.what()
        return int(self.file.write(data))

    def __enter__(self) -> _File:
        self.file.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self.file.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def kill_at_every_call(root: Path, *, existing: bool) -> None:
    """Save into one folder after the other, each time in a process that is killed one call later."""
    old, new = graph(3, about="old"), graph(4, about="new")
    with mock.patch.object(os, "fsync"):
        old.save(root / "old")
    at = 0
    while True:
        at += 1
        folder = root / f"{at:04d}"
        if existing:
            shutil.copytree(root / "old", folder)
        child = os.fork()
        if not child:
            with Faults(at, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                new.save(folder, replace=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):  # it finished, or failed in a way that the test detects
            sys.exit(os.WEXITSTATUS(status))


def save_again_and_again(folder: Path, times: int) -> None:
    """Replace a graph by another many times."""
    graphs = [graph(size, about="old") for size in (3, 60)]
    with mock.patch.object(os, "fsync"):
        for turn in range(times):
            graphs[turn % 2].save(folder, replace=True)


def save_with_little_room(folders: list[Path]) -> None:
    """Save with a limit of 20,000 bytes per file, and print the result."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    for size, folder in [(1000, folders[0].parent / "small enough"), *((10_000, folder) for folder in folders)]:
        try:
            EvolvingGraph.build({"id": np.arange(size), "time": np.zeros(size, int)}).save(folder, replace=True)
            sys.stdout.write(f"{folder}: saved\n")
        except EvergraphError as error:
            sys.stdout.write(f"{error}\n")


if __name__ == "__main__":
    task, path, *rest = sys.argv[1:]
    if task == "kill":
        kill_at_every_call(Path(path), existing=rest == ["existing"])
    elif task == "again":
        save_again_and_again(Path(path), int(rest[0]))
    elif task == "room":
        save_with_little_room([Path(path), *map(Path, rest)])
