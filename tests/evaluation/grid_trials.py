"""Trials that take no time, and processes that run them: used by `test_trials` and `test_grid`."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from evergraph import EvergraphError, InputError
from evergraph.evaluation import trials as grid
from evergraph.evaluation.trials import TrialStore

STALL = "EVERGRAPH_TEST_STALL"
"""Which run of a process, from 1 up, does not end."""
_RUNS = count(1)


@dataclass(frozen=True)
class Toy:
    """Numbers that depend on the description and the seed alone; a negative number fails."""

    number: int
    seed: int = 0
    graph_name: str = "toys"
    model: str = "blöck"
    marks: str = field(default="", compare=False)
    seconds: float = field(default=0.0, compare=False)

    def described(self) -> dict[str, Any]:
        return {"kind": "toy", "number": self.number, "model": {"name": self.model}}

    def run(self) -> dict[str, Any]:
        stalls = str(next(_RUNS)) == os.environ.get(STALL)
        if self.marks:
            name = f"{self.number} {self.seed} {os.getpid()} {time.monotonic_ns()} {'stalls' if stalls else 'runs'}"
            (Path(self.marks) / name).touch()
        time.sleep(600 if stalls else self.seconds)
        if self.number < 0:
            raise InputError(f"the number is {self.number}", fix="count from 0 up")
        draw = random.Random(f"{self.number} {self.seed}")
        return {"accuracy": [draw.random() for _ in range(5)], "loss": draw.expovariate(1), "rules": [{"tp": 3}]}


class Wrong(Toy):
    """Fails by a fault of the program."""

    def run(self) -> dict[str, Any]:
        raise ZeroDivisionError("a fault of the program")


def marks(folder: Path, what: str = "") -> list[tuple[int, int]]:
    """Number and process of each run that was begun, or only of those that stall."""
    names = [path.name.split(" ") for path in sorted(folder.iterdir())]
    return [(int(number), int(pid)) for number, _, pid, _, how in names if what in ("", how)]


def until(condition: Any, seconds: float = 240.0) -> Any:
    """Wait until something holds, and return what it came to."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)
    return found


def run_grid(folder: Path, numbers: int, jobs: int, marks: str, seconds: float, go: str) -> None:
    """A command that runs a grid; it begins once there is a file of that name."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which the parent process may ignore
    grid._WAIT = 0.1
    trials = [Toy(number, marks=marks, seconds=seconds) for number in range(numbers)]
    until(Path(go).exists)
    try:
        grid.run_grid(trials, folder, jobs=jobs)
    except EvergraphError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def append_at_once(folder: Path, rows: int) -> None:
    """Two processes append to one file while this one reads it; prints how often it met with a problem."""
    children = []
    for process in range(2):
        if not (child := os.fork()):
            for number in range(rows):
                trial = Toy(number, seed=process)
                TrialStore(folder).append(trial, trial.run() | {"long": [0.5] * 2000 * (number % 3)}, {"seconds": 0.0})
            os._exit(0)
        children.append(child)
    store, problems, failed = TrialStore(folder), 0, 0
    while children:
        store.read()
        problems += len(store.problems)
        ended, status = os.waitpid(children[0], os.WNOHANG)
        if ended:
            children.pop(0)
            failed += status != 0
    sys.stdout.write(f"{problems} problems, {failed} failed")


def hold(folder: Path, key: str) -> None:
    """Claim a trial, and never let go of it."""
    with TrialStore(folder).claimed(key) as mine:
        sys.stdout.write(f"{mine}\n")
        sys.stdout.flush()
        time.sleep(600)


if __name__ == "__main__":
    {"grid": run_grid, "append": append_at_once, "hold": hold}[sys.argv[1]](
        Path(sys.argv[2]), **json.loads(sys.argv[3])
    )
