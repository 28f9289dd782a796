"""Commands of a workspace that are killed at every call to the file system: run by `test_kills` as a process."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from evergraph import EvergraphError
from evergraph.datasets import synthetic
from evergraph.nn import MLP
from evergraph.storage import records
from tests.faults import Faults
from tests.scripts import script

kill_workspace: Any = script("kill_workspace")
Command = kill_workspace.Command
campaign, contents, make_commands = kill_workspace.campaign, kill_workspace.contents, kill_workspace.make_commands
in_a_child, judge_again, judge_kill = kill_workspace.in_a_child, kill_workspace.judge_again, kill_workspace.judge_kill


def tiny(root: Path) -> list[Command]:
    """The commands on a workspace with every kind of object in it."""
    graph = synthetic(vertices=60, times=5, classes=3, new_classes=1, words=40, words_per_vertex=3, seed=1)
    return make_commands(root, graph, model=MLP(hidden=2), steps=1)


def kill_at_every_call(command: Command, root: Path, step: int) -> list[tuple[str, str | None]]:
    """What each kill left, and what was wrong once the command had been run again; the last one is not killed."""
    found = []
    for at in range(1, 1000, step):
        folder = root / f"{command.name}-{at:04d}"
        command.prepare(folder)
        _, status = os.waitpid(in_a_child(_killed(command.run, at), folder), 0)
        left = judge_kill(command, folder)
        found.append((left, judge_again(command, folder)))
        if os.WIFEXITED(status):  # it came through, or broke down in a way that the test will see
            assert not os.WEXITSTATUS(status)
            return found
    raise AssertionError("there is no end to its calls")


def _killed(run: Callable[[Path], object], at: int) -> Callable[[Path], object]:
    def killed(folder: Path) -> None:
        with Faults(at, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            run(folder)

    return killed


def with_little_room(commands: list[Command], root: Path) -> dict[str, list[str]]:
    """What comes of each command where no file may have more than 700 bytes: what it says, and what is left."""
    import resource

    found = {}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for command in commands:
        folder = root / f"{command.name}-full"
        command.prepare(folder)
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, limits[1]))
        try:
            command.run(folder)
            told = "done"
        except EvergraphError as error:
            told = str(error)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        found[command.name] = [told, judge_kill(command, folder), str(judge_again(command, folder))]
    return found


def main(task: str, path: str, *rest: str) -> None:
    """Do one of these, and print what came of it as JSON."""
    torch.set_num_threads(1)
    root = Path(path)
    result: Any
    if task == "random":
        kills, seed = map(int, rest)
        result = list(campaign(tiny(root), kills, seed, root))
    else:
        with mock.patch.object(os, "fsync"), mock.patch.object(records, "SYNCHRONOUS", "OFF"):
            commands = tiny(root)
            killed = {command.name: kill_at_every_call(command, root, int(rest[0])) for command in commands}
            result = {"killed": killed, "room": with_little_room(commands, root)}
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
