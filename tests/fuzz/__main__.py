"""The campaign: thousands of damaged inputs for each reader, in child processes with limited memory and time.

Run it with ``python -m tests.fuzz --inputs 5000``. A finding is an input that is neither read nor refused with an
error of Evergraph that names the file. It is saved in the folder ``.fuzz``, and its number repeats it.
"""

from __future__ import annotations

import argparse
import json
import resource
import selectors
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

FOUND = Path(".fuzz")
MEMORY = 1_500_000_000
"""Bytes that a child may use beyond those of the imported libraries."""
PATIENCE = 300.0
"""Seconds after which a child that answers nothing is killed; building a sample takes some seconds."""
HANGS = 10.0
"""Seconds after which an input counts as hanging."""


@dataclass
class Tally:
    """What happened to the inputs of one reader."""

    reader: str
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def line(self) -> str:
        """Return a row of the table."""
        counts = self.counts
        figures = f"{sum(counts.values()):>8,} {counts['refused']:>8,} {counts['read']:>8,} {counts['finding']:>8,}"
        return f"{self.reader:<18} {figures} {self.seconds:>8.1f}"


def main() -> int:
    """Run the campaign and print its table; return 1 if there are findings."""
    from tests.fuzz.readers import READERS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=5000, help="Number of inputs for each reader.")
    parser.add_argument("--reader", action="append", choices=sorted(READERS), help="Only this reader; repeatable.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the inputs.")
    parser.add_argument("--first", type=int, default=0, help="Number of the first input, to repeat a finding.")
    parser.add_argument("--jobs", type=int, default=1, help="Number of readers at the same time.")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        _child(given.child, given.seed, given.first, given.inputs)
        return 0
    print(f"{'reader':<18} {'inputs':>8} {'refused':>8} {'read':>8} {'findings':>8} {'seconds':>8}", flush=True)
    total = Tally("total")
    with ThreadPoolExecutor(given.jobs) as pool:
        names = given.reader or list(READERS)
        for tally in pool.map(lambda name: _run(name, given.seed, given.first, given.inputs), names):
            print(tally.line(), flush=True)
            total.counts += tally.counts
            total.seconds += tally.seconds
    print(total.line())
    return 1 if total.counts["finding"] else 0


def _run(name: str, seed: int, first: int, count: int) -> Tally:
    """Run the inputs of one reader; a child that dies is replaced by one that goes on with the next input."""
    tally, start = Tally(name), time.perf_counter()
    end = first + count
    while first < end:
        command = [sys.executable, "-m", "tests.fuzz", "--child", name, "--seed", str(seed)]
        child = subprocess.Popen(
            [*command, "--first", str(first), "--inputs", str(end - first)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with child:
            begun, problem = _follow(child, tally, seed, first)
        if problem is not None:
            tally.counts["finding"] += 1
            _report(name, seed, begun, problem)
        first = begun + 1
    tally.seconds = time.perf_counter() - start
    return tally


def _follow(child: subprocess.Popen[bytes], tally: Tally, seed: int, first: int) -> tuple[int, str | None]:
    """Read a child's answers; return the last input and, if the child did not finish it, why."""
    assert child.stdout is not None
    assert child.stderr is not None
    begun, running = first - 1, False
    with selectors.DefaultSelector() as ready:
        ready.register(child.stdout, selectors.EVENT_READ)
        while True:
            if not ready.select(HANGS if running else PATIENCE):
                child.kill()
                return max(begun, first), "it hangs" if running else "the child does not answer"
            line = child.stdout.readline()
            if not line:
                break
            answer = json.loads(line)
            if "begin" in answer:
                begun, running = answer["begin"], True
                continue
            running = False
            tally.counts[answer["outcome"]] += 1
            if answer["outcome"] == "finding":
                _report(tally.reader, seed, begun, answer["problem"])
    child.wait()
    if running or child.returncode:
        last = child.stderr.read().decode(errors="replace")[-2_000:]
        if begun < first:
            raise RuntimeError(f"the sample of {tally.reader} cannot be read\n{last}")
        return begun, f"the process ended with code {child.returncode}\n{last}"
    return begun, None


def _child(name: str, seed: int, first: int, count: int) -> None:
    """Run inputs and print an answer for each of them."""
    from tests.fuzz.campaign import bench
    from tests.fuzz.readers import READERS

    def say(**answer: object) -> None:
        print(json.dumps(answer), file=sys.__stdout__, flush=True)

    with bench(READERS[name]) as one:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MEMORY, MEMORY))
        for number in range(first, first + count):
            one.damage(seed, number)
            say(begin=number)
            result = one.attempt()
            if result.outcome == "finding":
                saved = FOUND / f"{name}-{seed}-{number}"
                shutil.rmtree(saved, ignore_errors=True)
                one.restore()
                one.damage(seed, number)  # again, because reading may have changed it
                shutil.copytree(one.folder, saved)
            say(outcome=result.outcome, problem=result.problem)
            one.restore()


def _report(name: str, seed: int, number: int, problem: str) -> None:
    FOUND.mkdir(exist_ok=True)
    (FOUND / f"{name}-{seed}-{number}.txt").write_text(problem)
    again = f"python -m tests.fuzz --reader {name} --seed {seed} --first {number} --inputs 1"
    print(f"FINDING {name} {number} ({again})\n{problem.rstrip()}\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
