"""Running a grid: each trial runs once, whichever process runs it and whichever is killed."""

import contextlib
import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from evergraph import EvergraphError, InputError
from evergraph.datasets import synthetic
from evergraph.detect import GDOC
from evergraph.evaluation import trials as grid
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.trials import Done, GridState, TrialStore, in_words, run_grid, trial_key
from evergraph.evaluation.workers import InProcess
from evergraph.nn import MLP
from evergraph_paper.plan import LifelongTrial
from tests.evaluation import grid_trials
from tests.evaluation.grid_trials import STALL, Toy, Wrong, marks, until
from tests.faults import Faults

pytestmark = pytest.mark.usefixtures("one_thread")
needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="there are no locks and signals on Windows")


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr(grid, "_WAIT", 0.01)


@pytest.fixture
def toys(tmp_path):
    """Makes toys that leave their marks in one folder."""
    (tmp_path / "marks").mkdir()

    def make(numbers, **settings):
        return [Toy(number, marks=str(tmp_path / "marks"), **settings) for number in numbers]

    return make


def runs(tmp_path):
    """Numbers of the trials that were begun, in order of numbers."""
    return sorted(number for number, _ in marks(tmp_path / "marks"))


def numbers(found):
    """The result of each trial."""
    return {key: row.result for key, row in found.items()}


def one_by_one(trials):
    return {trial_key(trial): trial.run() for trial in (dataclasses.replace(trial, marks="") for trial in trials)}


def assert_whole(folder, trials):
    """All is there, once, and as if nothing had happened."""
    store = TrialStore(folder)
    assert numbers(store.read()) == one_by_one(trials)
    assert store.problems == []
    rows = [json.loads(line) for path in (folder / "trials").iterdir() for line in path.read_text().splitlines()]
    assert sorted(row["key"] for row in rows) == sorted(map(trial_key, trials))


# --- results ---------------------------------------------------------------------------------------------------------


def test_a_grid_comes_to_the_numbers_of_its_trials(tmp_path, toys):
    trials = [*toys(range(4)), *toys(range(3), seed=1), *toys(range(8, 10), graph_name="zoo")]
    found = run_grid([*trials, *trials[:2]], tmp_path / "r")
    assert list(found) == list(map(trial_key, trials))
    assert numbers(found) == one_by_one(trials)
    assert_whole(tmp_path / "r", trials)
    assert runs(tmp_path) == [0, 0, 1, 1, 2, 2, 3, 8, 9]
    assert sorted(path.name for path in (tmp_path / "r" / "trials").iterdir()) == ["toys.jsonl", "zoo.jsonl"]
    made = found[trial_key(trials[0])].made
    assert made.keys() == {"version", "threads", "seconds", "when"}
    assert made["threads"] == (os.cpu_count() or 1)
    assert list((tmp_path / "r" / ".claims").iterdir()) == []


def test_a_grid_of_real_trials_comes_to_their_numbers(tmp_path):
    synthetic(vertices=120, times=4, classes=3, new_classes=1, seed=1).save(tmp_path / "g")
    one = LifelongTrial(str(tmp_path / "g"), Configuration(MLP(4), GDOC(0.5), history=1, steps=2), rules=(GDOC(0.9),))
    trials = [dataclasses.replace(one, seed=seed) for seed in range(2)]
    states = []
    found = run_grid(trials, tmp_path / "r", threads=1, on_done=lambda state: states.append(dataclasses.replace(state)))
    for trial in trials:
        row, alone = dict(found[trial_key(trial)].result), trial.run()
        for name in ("seconds_adapt", "seconds_predict"):
            del row[name], alone[name]
        assert row == json.loads(json.dumps(alone))
    assert states[-1].best.startswith("accuracy 0.")
    assert "g, mlp, history 1, warm, seed " in states[-1].best
    assert (tmp_path / "r" / "trials" / "g.jsonl").exists()


def test_what_is_finished_is_not_run_again(tmp_path, toys):
    first = run_grid(toys(range(3)), tmp_path / "r")
    before = (tmp_path / "r" / "trials" / "toys.jsonl").read_bytes()
    states = []
    assert run_grid(toys(range(3)), tmp_path / "r", on_done=lambda s: states.append((s.there, s.left))) == first
    assert states == [(3, 0)]
    assert (tmp_path / "r" / "trials" / "toys.jsonl").read_bytes() == before
    found = run_grid(toys([4, 2, 0, 3]), tmp_path / "r")
    assert runs(tmp_path) == [0, 1, 2, 3, 4]
    assert list(found) == list(map(trial_key, toys([4, 2, 0, 3])))  # and none that are there but were not asked for
    assert run_grid([], tmp_path / "r") == {}
    assert_whole(tmp_path / "r", toys(range(5)))


def test_an_interrupted_grid_goes_on_where_it_was(tmp_path, toys):
    def interrupt(state):
        if state.ran == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_grid(toys(range(6)), tmp_path / "r", on_done=interrupt)
    assert runs(tmp_path) == [0, 1, 2]
    states = []
    run_grid(toys(range(6)), tmp_path / "r", on_done=lambda s: states.append((s.there, s.ran, s.left)))
    assert states == [(3, 0, 3), (3, 1, 2), (3, 2, 1), (3, 3, 0)]
    assert runs(tmp_path) == [0, 1, 2, 3, 4, 5]
    assert_whole(tmp_path / "r", toys(range(6)))


def test_only_the_trial_of_a_broken_line_is_run_again(tmp_path, toys, caplog):
    run_grid(toys(range(4)), tmp_path / "r")
    path = tmp_path / "r" / "trials" / "toys.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], lines[1].replace('"tp":3', '"tp":4'), *lines[2:]]))
    found = run_grid(toys(range(4)), tmp_path / "r")
    assert f"{path}, line 2: the line was changed after it was written" in caplog.text
    assert runs(tmp_path) == [0, 1, 1, 2, 3]
    assert numbers(found) == one_by_one(toys(range(4)))


def test_a_trial_that_fails_stops_no_other(tmp_path, toys, caplog):
    states = []
    trials = toys([0, -1, 1, -2, 2])
    found = run_grid(trials, tmp_path / "r", on_done=lambda state: states.append(dataclasses.replace(state)))
    assert numbers(found) == one_by_one(toys(range(3)))
    assert_whole(tmp_path / "r", toys(range(3)))
    assert (states[-1].ran, states[-1].failed, states[-1].left, states[-1].left_seconds) == (3, 2, 0, 0.0)
    first = "toys, blöck, seed 0: the number is -1. Count from 0 up."
    assert states[-1].errors == [first, first.replace("-1", "-2")]
    assert f"2 of 5 trials failed; the first: {first}" in caplog.text
    run_grid(trials, tmp_path / "r")  # perhaps it does not fail again
    assert runs(tmp_path) == [-2, -2, -1, -1, 0, 1, 2]


def test_a_fault_of_the_program_stops_the_grid_and_keeps_what_was_finished(tmp_path, toys):
    trials = [*toys(range(2)), Wrong(70), *toys(range(2, 9))]
    with pytest.raises(ZeroDivisionError):
        run_grid(trials, tmp_path / "r")
    assert runs(tmp_path) == [0, 1]
    with pytest.raises(ZeroDivisionError):
        run_grid([Wrong(70), *toys(range(2, 9), seconds=1)], tmp_path / "r", jobs=2)
    assert len(runs(tmp_path)) <= 2 + 3  # it submits no more than can run
    run_grid(toys(range(9)), tmp_path / "r")
    assert_whole(tmp_path / "r", toys(range(9)))


def test_a_disk_that_is_full_at_any_call_stops_the_grid_and_keeps_what_was_finished(tmp_path, toys):
    def full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    trials, errors = [Toy(number) for number in range(3)], []
    for at in range(1, 100):
        folder = tmp_path / str(at)
        with Faults(at, full) as faults:
            try:
                run_grid(trials, folder)
            except EvergraphError as error:
                errors.append(str(error))
        there = set(TrialStore(folder).read())
        with Faults(-1, full):  # only for its not syncing
            states = []
            found = run_grid(trials, folder, on_done=lambda state, states=states: states.append(state.there))
        assert states[0] == len(there)
        assert numbers(found) == one_by_one(trials)
        if faults.count < at:
            break
    assert 20 < at < 99
    assert len(errors) > 15
    assert all("No space left on device" in error and str(tmp_path) in error for error in errors)


@pytest.mark.parametrize("jobs", [0, -2])
def test_a_grid_needs_a_process(tmp_path, toys, jobs):
    with pytest.raises(InputError, match=f"jobs is {jobs}"):
        run_grid(toys([0]), tmp_path / "r", jobs=jobs)


class Plain:
    """As little as a trial may be."""

    graph_name, seed = "plain", 3

    def __init__(self, accuracy):
        self.accuracy = accuracy

    def described(self):
        return {"accuracy": repr(self.accuracy), "history": 2}

    def run(self):
        return {} if self.accuracy is None else {"accuracy": self.accuracy}


@pytest.mark.parametrize(("accuracy", "best"), [(None, ""), (0.5, "0.500"), ([0.5, None, 0.25], "0.375"), ([], "")])
def test_a_trial_need_not_be_one_of_ours(tmp_path, accuracy, best):
    states = []
    found = run_grid([Plain(accuracy)], tmp_path, on_done=states.append)
    assert [row.result for row in found.values()] == [Plain(accuracy).run()]
    assert states[-1].best == (best and f"accuracy {best}: plain, history 2, seed 3")
    assert run_grid([Plain(accuracy)], tmp_path) == found


# --- telling ---------------------------------------------------------------------------------------------------------


def test_progress_adds_up(tmp_path, toys):
    run_grid(toys(range(2)), tmp_path / "r")
    states: list[GridState] = []
    trials = toys([0, 1, 2, -1, 3, 4])
    run_grid(trials, tmp_path / "r", on_done=lambda state: states.append(dataclasses.replace(state)))
    assert [(s.there, s.ran, s.failed, s.left) for s in states] == [
        (2, 0, 0, 4),
        (2, 1, 0, 3),
        (2, 1, 1, 2),
        (2, 2, 1, 1),
        (2, 3, 1, 0),
    ]
    assert {state.total for state in states} == {6}
    assert states[0].left_seconds is None
    assert all(isinstance(state.left_seconds, float) for state in states[1:])
    assert states[-1].left_seconds == 0
    means = {trial: sum(result) / 5 for trial in toys([2, 3, 4]) for result in [trial.run()["accuracy"]]}
    best = max(means, key=means.__getitem__)
    assert states[-1].best == f"accuracy {means[best]:.3f}: {in_words(best)}"


def test_the_time_left_is_unknown_until_something_has_run(tmp_path, toys):
    left = []
    run_grid(toys([-1, 0, 1], seconds=0.02), tmp_path / "r", on_done=lambda state: left.append(state.left_seconds))
    assert left[:2] == [None, None]
    assert 0.01 < left[2] < 10
    assert left[3:] == [0]


def test_the_time_left_is_that_of_trials_alike(tmp_path, toys):
    store = TrialStore(tmp_path / "r")
    for toy in toys([0, 1], model="slow"):
        store.append(toy, toy.run(), {"seconds": 100.0})
    store.append(Toy(0, model="fast"), {}, {"seconds": 1.0})
    slow, fast = toys(range(4), model="slow"), toys(range(9), model="fast")
    new = [*toys([0], model="new"), *toys([0], model="newer")]
    left = []

    def interrupt(state):
        left.append(state.left_seconds)
        if state.ran:
            raise KeyboardInterrupt

    for trials, expected in (
        ([*fast, *slow], 7 * 0.5 + 2 * 100),  # one of the fast has taken a second, and one no time
        ([*slow[:2], *new], 200 / 3),  # the newer model has never run: as other trials on the graph
    ):
        with pytest.raises(KeyboardInterrupt):
            run_grid(trials, tmp_path / "r", on_done=interrupt)
        assert left[-1] == pytest.approx(expected, rel=0.05)
    with pytest.raises(KeyboardInterrupt):
        run_grid(slow, tmp_path / "r", jobs=2, on_done=interrupt)
    assert left[-1] == pytest.approx(200 / 3 / 2, rel=0.05)


def test_telling_how_far_it_is_takes_no_time_in_a_large_grid():
    """Progress is reported after each of thousands of trials, so it must not inspect all others each time."""
    trials = [Toy(number, model=f"m{number % 20}") for number in range(5000)]
    tally = grid._Tally(GridState(5000), trials, 2, None)
    start = time.perf_counter()
    for trial in trials:
        tally.add(Done("ran", 2.0), trial)
    assert time.perf_counter() - start < 5
    assert (tally.state.left, tally.state.left_seconds) == (0, 0)


# --- workers ---------------------------------------------------------------------------------------------------------


def test_processes_come_to_the_same_results(tmp_path, toys):
    found = run_grid(toys(range(12), seconds=0.01), tmp_path / "r", jobs=3)
    assert numbers(found) == one_by_one(toys(range(12)))
    assert runs(tmp_path) == list(range(12))
    assert len({pid for _, pid in marks(tmp_path / "marks")}) > 1
    assert_whole(tmp_path / "r", toys(range(12)))


@pytest.mark.parametrize(
    ("cores", "options", "threads"),
    [(10, {"jobs": 2}, 5), (10, {"jobs": 3}, 3), (2, {"jobs": 4}, 1), (None, {}, 1), (8, {"jobs": 2, "threads": 3}, 3)],
)
def test_the_cores_are_shared_out_among_the_processes(tmp_path, toys, monkeypatch, cores, options, threads):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(grid, "start_workers", lambda *_, **__: contextlib.nullcontext(InProcess((1, 0))))
    before = torch.get_num_threads()

    class Counts(Toy):
        def run(self):
            return {"threads": torch.get_num_threads()}

    (row,) = run_grid([Counts(0)], tmp_path / "r", **options).values()
    assert (row.result["threads"], row.made["threads"]) == (threads, threads)
    assert torch.get_num_threads() == before


# --- several commands ------------------------------------------------------------------------------------------------


@needs_posix
@pytest.mark.parametrize("finishes", [True, False])
def test_a_grid_waits_for_what_another_is_at_and_runs_it_if_that_comes_to_nothing(tmp_path, toys, finishes):
    trials, store, states = toys(range(4)), TrialStore(tmp_path / "r"), []
    held = store.claimed(trial_key(trials[1]))
    assert held.__enter__()

    def on_done(state):
        states.append((state.there, state.ran, state.left))
        if len(states) == 4:
            if finishes:
                store.append(trials[1], trials[1].run(), {"seconds": 1.0})
            held.__exit__(None, None, None)

    found = run_grid(trials, tmp_path / "r", on_done=on_done)
    assert states[3:] == [(0, 3, 1), (1, 3, 0) if finishes else (0, 4, 0)]
    assert runs(tmp_path) == [0, 1, 2, 3]
    assert numbers(found) == one_by_one(trials)
    assert_whole(tmp_path / "r", trials)


class Command:
    """A process that runs a grid, in a session of its own, and all that it started."""

    def __init__(self, tmp_path, trials, *, jobs, stall=0, seconds=0.0, go="marks"):
        options = {"numbers": len(trials), "jobs": jobs, "marks": trials[0].marks, "seconds": seconds}
        options["go"] = str(tmp_path / go)  # it waits for that file
        self.child = subprocess.Popen(
            [sys.executable, grid_trials.__file__, "grid", str(tmp_path / "r"), json.dumps(options)],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", STALL: str(stall)},
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for pid in {self.child.pid, *self.others()}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.child.wait(120)
        self.child.stderr.close()

    def others(self):
        """The processes that are left in its session."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                state, *numbers = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it is gone
                continue
            if int(numbers[2]) == self.child.pid and state not in "ZX" and int(folder.name) != self.child.pid:
                found.append(int(folder.name))
        return found


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def blocks_interrupts(pid):
    status = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigBlk"], 16) & 1 << (signal.SIGINT - 1))


def lines(tmp_path):
    path = tmp_path / "r" / "trials" / "toys.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@needs_posix
@needs_proc
def test_two_commands_share_a_grid_and_one_goes_on_when_the_other_is_killed(tmp_path, toys):
    trials = toys(range(40))
    with (
        Command(tmp_path, trials, jobs=2, stall=4, seconds=0.02) as killed,
        Command(tmp_path, trials, jobs=1, seconds=0.02, go="go") as other,
    ):
        until(lambda: len({pid for _, pid in marks(tmp_path / "marks")}) == 2)
        (tmp_path / "go").touch()
        held = until(lambda: len(found := marks(tmp_path / "marks", "stalls")) == 2 and dict(found))
        until(lambda: lines(tmp_path) == 38)
        with pytest.raises(subprocess.TimeoutExpired):
            other.child.wait(0.3)  # it waits for those that are held
        assert set(held.values()) <= set(killed.others())
        killed.child.kill()
        assert other.child.wait(120) == 0
        assert killed.child.wait(120) == -signal.SIGKILL
        until(lambda: not killed.others(), 60)
        assert other.others() == []
        assert all("Traceback" not in command.child.stderr.read() for command in (killed, other))
    by = {}
    for number, pid in marks(tmp_path / "marks"):
        by.setdefault(pid, set()).add(number)
    theirs = by.pop(other.child.pid)
    assert {pid: len(begun) for pid, begun in by.items()} == dict.fromkeys(held.values(), 4)
    assert theirs & set.union(*by.values()) == set(held)
    assert runs(tmp_path) == sorted([*range(40), *held])
    assert_whole(tmp_path / "r", trials)


@pytest.mark.slow
@needs_posix
@needs_proc
@pytest.mark.parametrize("end", ["interrupted", "a worker killed"])
def test_a_command_of_several_processes_that_is_ended_leaves_its_results_and_nothing_else(tmp_path, toys, end):
    trials = toys(range(9))
    with Command(tmp_path, trials, jobs=2, stall=3) as command:
        stalled = until(lambda: len(found := marks(tmp_path / "marks", "stalls")) == 2 and found)
        workers = {pid for _, pid in stalled}
        assert len(workers) == 2
        assert workers <= set(command.others())
        assert all(blocks_interrupts(pid) for pid in workers)  # otherwise they would print a traceback while they start
        assert lines(tmp_path) == 4
        start = time.monotonic()
        if end == "interrupted":
            os.killpg(command.child.pid, signal.SIGINT)  # as a terminal does
        else:
            os.kill(min(workers), signal.SIGKILL)
        code = command.child.wait(120)
        until(lambda: not command.others(), 60)
        assert time.monotonic() - start < 60  # and not the ten minutes of a trial
        told = command.child.stderr.read()
    assert code == {"interrupted": 130, "a worker killed": 1}[end]
    assert "Traceback" not in told
    if end == "a worker killed":
        assert "error: one of the processes was killed, perhaps because memory ran out." in told
        assert "Run the same command again, with fewer processes (--jobs) if needed" in told
    before = runs(tmp_path)
    assert_whole(tmp_path / "r", [trials[number] for number in before if number not in dict(stalled)])
    run_grid(trials, tmp_path / "r")
    assert runs(tmp_path) == sorted([*range(9), *(number for number, _ in stalled)])
    assert_whole(tmp_path / "r", trials)
