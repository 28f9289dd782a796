"""One run: its protocol and its folder."""

import contextlib
import dataclasses
import errno
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from itertools import chain, count
from pathlib import Path

import pytest
import torch

from evergraph import EvergraphError, EvolvingGraph, InputError
from evergraph.datasets import synthetic
from evergraph.detect import DOC, GDOC, AutoDetector
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.results import TaskRow
from evergraph.evaluation.run import Run, run
from evergraph.evaluation.run_folder import RunFolder, open_run, write_from_worker
from evergraph.evaluation.workers import InProcess
from evergraph.graph.arrays import fingerprint
from evergraph.learning.learner import LifelongLearner
from evergraph.names import DETECTORS, MODELS, build_detector, build_model, load
from evergraph.nn import MLP, SGC, Custom, GraphSAGE
from tests.faults import Faults

GRAPH = synthetic(vertices=400, times=6, classes=4, new_classes=1, seed=1)
SMALL = Configuration(GraphSAGE(hidden=4), history=1, steps=2, lr=0.05, first=3)
TIMES = [3, 4, 5]
TIMINGS = ("seconds_adapt", "seconds_predict")

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The graph on disk."""
    path = tmp_path_factory.mktemp("graphs") / "g"
    GRAPH.save(path)
    return path


@pytest.fixture(scope="module")
def undisturbed():
    """The numbers of a run that nothing interrupts."""
    return numbers(run(SMALL, GRAPH, [0, 1]))


def numbers(result):
    """All of a result but its timings."""
    rows = {seed: [row.as_dict() for row in rows] for seed, rows in result.rows.items()}
    for row in chain.from_iterable(rows.values()):
        for name in TIMINGS:
            del row[name]
    return rows


def keys(out):
    """Seed and time of each line."""
    return [(row["seed"], row["time"]) for row in map(json.loads, (out / "results.jsonl").read_text().splitlines())]


def stopped(out, appends, monkeypatch, seeds=(0, 1), configuration=SMALL):
    """Run until so many rows are there, and no further: the last of them has no checkpoint yet."""
    real, done = RunFolder.append, count(1)

    def append(self, row):
        real(self, row)
        if next(done) == appends:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append", append)
        with pytest.raises(KeyboardInterrupt):
            run(configuration, GRAPH, seeds, out=out)
    return out


# --- the protocol ----------------------------------------------------------------------------------------------------


def test_a_run_is_what_a_learner_does_task_by_task():
    from evergraph import evaluate, tasks

    result = run(SMALL, GRAPH, [3])
    learner = LifelongLearner(GraphSAGE(hidden=4), AutoDetector(), steps=2, lr=0.05, seed=3)
    for row, task in zip(result.rows[3], tasks(GRAPH, 1, first=3), strict=True):
        known = learner.classes_
        scores = evaluate(task, learner.adapt(task).predict(task))
        assert repr(row.scores) == repr(scores)  # NaN is not equal to itself
        assert (row.time, row.history, row.test_vertices) == (task.time, 1, len(task.test_ids))
        assert row.window_vertices == len(task.window) == row.train_vertices + row.test_vertices
        assert known + row.new_classes == learner.classes_
        assert (row.known_classes, row.lr, row.loss) == (len(learner.classes_), 0.05, learner.losses_[-1])
        assert row.seconds > 0


def test_the_same_seed_gives_the_same_numbers_and_another_one_others(undisturbed):
    again = numbers(run(SMALL, GRAPH, [1, 0]))
    assert list(again) == [1, 0]
    assert again == undisturbed
    assert again[0][0]["loss"] != again[1][0]["loss"]


def test_golden_mini_run():
    """Other numbers here mean: raise NUMERICS_VERSION, and put the new ones in."""
    from evergraph.evaluation.results import NUMERICS_VERSION

    assert NUMERICS_VERSION == 2
    configuration = Configuration(detector=GDOC(), history=3, steps=20, first=4, inputs="words")
    first, second = run(configuration, GRAPH, [0]).rows[0]
    assert (first.lr, first.loss, second.loss) == pytest.approx((0.005, 0.5585332513, 0.3480895758), rel=1e-4)
    assert first.scores.accuracy == pytest.approx(47 / 66, rel=1e-4)
    assert first.scores.auroc == pytest.approx(0.97375, rel=1e-4)
    assert first.scores.open_f1 == pytest.approx(0.3981601613, rel=1e-4)
    assert first.scores.confusion.mcc == pytest.approx(0.2100902926, rel=1e-4)
    assert (second.scores.accuracy, second.scores.rejected) == pytest.approx((58 / 67, 38 / 67), rel=1e-4)
    assert second.scores.open_f1 == pytest.approx(0.4635694095, rel=1e-4)


def test_a_lower_label_rate_releases_other_labels_under_each_seed():
    result = run(dataclasses.replace(SMALL, label_rate=0.3), GRAPH, [0, 1])
    trained = [[row.train_vertices for row in rows] for rows in result.rows.values()]
    assert all(0 < n < 60 for rows in trained for n in rows)
    assert trained[0] != trained[1]
    for task, both in zip(result.tasks(), zip(*trained, strict=True), strict=True):
        assert task["train_vertices"] == sum(both) / 2


@pytest.mark.parametrize("change", [{"mode": "inductive"}, {"restart": "once"}, {"model": MLP(8)}, {"history": "full"}])
def test_other_configurations_come_to_other_numbers(change, undisturbed):
    found = numbers(run(dataclasses.replace(SMALL, **change), GRAPH, [0]))
    assert found[0] != undisturbed[0]


def test_summary_and_tasks_are_means():
    result = run(SMALL, GRAPH, [0, 1, 5])
    summary, tasks = result.summary(), result.tasks()
    assert result.seeds == (0, 1, 5)
    accuracies = [[row.scores.accuracy for row in rows] for rows in result.rows.values()]
    assert summary["accuracy"]["per_seed"] == pytest.approx([sum(row) / 3 for row in accuracies])
    assert [task["accuracy"] for task in tasks] == pytest.approx([sum(at) / 3 for at in zip(*accuracies, strict=True)])
    seconds = [sum(row.seconds for row in rows) for rows in result.rows.values()]
    assert summary["seconds"]["per_seed"] == seconds
    assert summary["seconds"]["ci95"] > 0
    assert [task["time"] for task in tasks] == TIMES
    assert [task["unseen"] for task in tasks] == [task["tp"] + task["fn"] for task in tasks]
    # The late class is unseen in its first slice, and only there is the AUROC defined.
    assert [task["auroc"] is None for task in tasks] == [task["unseen"] == 0 for task in tasks] != [False] * 3
    assert {"seed", "scores"}.isdisjoint(tasks[0])


def test_a_frame_has_a_row_for_each_seed_and_task():
    pytest.importorskip("pandas")
    found = run(SMALL, GRAPH, [0, 1], name="small")
    frame = found.to_frame()
    assert list(frame[["seed", "time"]].itertuples(index=False, name=None)) == [(s, t) for s in (0, 1) for t in TIMES]
    assert set(frame["graph"]) == {"small"}
    assert set(frame["model.name"]) == {found.configuration["model"]["name"]}
    assert frame.groupby("seed")["accuracy"].mean().tolist() == pytest.approx(found.summary()["accuracy"]["per_seed"])
    assert frame["mcc"].tolist() == [row.scores.confusion.mcc for rows in found.rows.values() for row in rows]
    assert {"seconds", "unseen", "new_classes", "detector.objective"} <= {*frame.columns}
    assert not any(isinstance(value, list | dict) for value in frame.iloc[0])


def test_progress_is_told_step_by_step():
    calls = []
    run(SMALL, GRAPH, [0, 7], on_progress=lambda *args: calls.append(args))
    assert calls[:2] == [(0, 0, 3, 0, 2), (1, 0, 3, 0, 2)]
    del calls[:2]
    assert {(seed, task, step) for seed, task, _, step, _ in calls} == {
        (seed, task, step) for seed in (0, 1) for task in (0, 1, 2) for step in (1, 2)
    }
    assert calls == sorted(calls)
    assert all((tasks, steps) == (3, 2) for _, _, tasks, _, steps in calls)


@pytest.mark.parametrize(
    ("seeds", "problem"),
    [([], "no seed is given"), ([-1], "seed is -1"), ([True], "seed is True"), (["0"], "seed is '0'")],
)
def test_bad_seeds(seeds, problem, tmp_path):
    with pytest.raises(InputError, match=problem):
        run(SMALL, GRAPH, seeds, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"model": "sage"}, "is not a model"),
        ({"model": torch.nn.Linear(2, 2)}, r"Linear is a torch module, not a model.*Custom\(Linear\)"),
        ({"detector": None}, "is not a detector"),
        ({"steps": 0}, "steps is 0"),
        ({"restart": "luke"}, "restart is 'luke'"),
        ({"lr": math.nan}, "lr is nan"),
    ],
)
def test_bad_configurations(settings, problem):
    with pytest.raises(InputError, match=problem):
        Configuration(**settings)


@pytest.mark.parametrize("settings", [{"lr": math.inf}, {"weight_decay": math.inf}])
def test_what_json_cannot_hold_is_refused(settings, tmp_path):
    with pytest.raises(InputError, match="is inf"):
        run(dataclasses.replace(SMALL, **settings), GRAPH, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_models_and_detectors_by_name():
    assert all(type(build_model(name)) is load("model", name) for name in MODELS)
    assert all(type(build_detector(name)) is load("detector", name) for name in DETECTORS)
    assert build_model("saint", hidden=8, dropout=0.1).base == dataclasses.replace(
        build_model("saint").base, hidden=8, dropout=0.1
    )
    assert build_model("sgc", hops=3) == SGC(3)
    with pytest.raises(InputError, match="Choose from sage, gat"):
        build_model("bert")
    with pytest.raises(InputError, match="Choose from none, doc"):
        build_detector("sherlock")


# --- going on --------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Not to be caught by anyone."""


class Dead(Faults):
    """From the n-th call on nothing reaches the disk: so no cleaning up helps."""

    def tick(self):
        self.count += 1
        return self.count >= self.at


def die():
    raise Killed


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_killed_at_any_call_goes_on_to_the_same_numbers(tmp_path, undisturbed, step):
    for at in count(1, step):
        out = tmp_path / str(at)
        try:
            with Dead(at, die):
                run(SMALL, GRAPH, [0], out=out)
            break
        except Killed:
            with Faults(-1, die):  # only for its not syncing
                result = run(SMALL, GRAPH, [0], out=out)
            assert numbers(result)[0] == undisturbed[0], at
            assert keys(out) == [(0, time) for time in TIMES], at
            assert not (out / "checkpoints").exists()
        shutil.rmtree(out)
    assert at > 50


def test_a_disk_that_is_full_at_any_call_loses_nothing(tmp_path, undisturbed):
    def full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for at in range(1, 80, 4):
        out = tmp_path / str(at)
        with Dead(at, full) as faults:
            try:
                run(SMALL, GRAPH, [0], out=out)
            except EvergraphError as raised:
                told = str(raised)
            else:
                told = "No space left on device"  # at most what was of no use any more could not be removed
        assert "No space left on device" in told
        assert numbers(run(SMALL, GRAPH, [0], out=out))[0] == undisturbed[0]
        assert keys(out) == [(0, time) for time in TIMES]
    assert faults.count > 50


@pytest.mark.slow
def test_a_process_killed_for_good_goes_on_to_the_same_numbers(tmp_path, folder, command):
    out = tmp_path / "r"
    arguments = ["run", folder, "--history", 1, "--steps", 40, "--hidden", 4, "--seeds", "0-2", "--json", "--out", out]
    child = subprocess.Popen(
        [sys.executable, "-c", "from evergraph.cli import main; main()", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        for _ in range(12_000):
            if (out / "results.jsonl").exists() and len((out / "results.jsonl").read_text().splitlines()) >= 5:
                break
            time.sleep(0.005)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait(60) == -signal.SIGKILL
    there = len((out / "results.jsonl").read_text().splitlines())
    assert 5 <= there < 12
    code, text, _ = command(*arguments)
    assert code == 0
    configuration = Configuration(GraphSAGE(hidden=4), history=1, steps=40)
    fresh = run(configuration, GRAPH, [0, 1, 2])
    assert numbers(run(configuration, GRAPH, [0, 1, 2], out=out)) == numbers(fresh)
    assert json.loads(text)["accuracy"] == fresh.summary()["accuracy"]
    assert len(keys(out)) == len(set(keys(out))) == 12


# --- several processes ------------------------------------------------------------------------------------------------


def test_processes_share_the_seeds_and_come_to_the_same_numbers(tmp_path, undisturbed, monkeypatch):
    out, calls = stopped(tmp_path / "r", 2, monkeypatch), []
    result = run(SMALL, GRAPH, [1, 0, 2], out=out, jobs=2, on_progress=lambda *args: calls.append(args))
    assert result.seeds == (1, 0, 2)
    assert {seed: numbers(result)[seed] for seed in (0, 1)} == undisturbed
    assert sorted(keys(out)) == [(seed, time) for seed in (0, 1, 2) for time in TIMES]
    assert {entry.name for entry in out.iterdir()} == {".lock", "run.json", "graph.json", "results.jsonl", "decisions"}
    assert calls[:3] == [(0, 0, 3, 0, 2), (1, 1, 3, 2, 2), (2, 0, 3, 0, 2)]
    assert {index for index, *rest in calls if rest == [2, 3, 2, 2]} == {0, 1, 2}
    alone = run(SMALL, GRAPH, [0, 1, 2], out=tmp_path / "alone")
    assert numbers(alone) == numbers(run(SMALL, GRAPH, [0, 1, 2], out=out, jobs=2))
    for path in (tmp_path / "alone" / "decisions").rglob("*.parquet"):
        assert path.read_bytes() == (out / path.relative_to(tmp_path / "alone")).read_bytes()


def test_the_error_of_a_process_is_raised_and_its_log_appears_here(caplog):
    with pytest.raises(InputError, match="there is no label before 3 to train on"):
        run(dataclasses.replace(SMALL, label_rate=1e-9), GRAPH, [0, 1], jobs=2)
    rows = range(40)
    graph = EvolvingGraph.build(
        {"id": rows, "time": [3 * (row // 10) for row in rows], "label": ["xy"[row % 2] for row in rows]},
        [(row, row - 2) for row in rows[2:]],
        features=[[float(row % 2)] for row in rows],
    )
    caplog.set_level("INFO", "evergraph")
    run(dataclasses.replace(SMALL, first=9), graph, [0, 1], jobs=2)
    assert caplog.text.count("8 has no labels to train on: the model for 9 trains on those of 6") == 2


def test_a_model_that_processes_cannot_import_runs_in_this_one(caplog, monkeypatch):
    class Net(torch.nn.Linear):
        def forward(self, x, _):
            return super().forward(x)

    monkeypatch.setattr("evergraph.evaluation.workers.ProcessWorkers", None)
    caplog.set_level("INFO", "evergraph")
    in_function = dataclasses.replace(SMALL, model=Custom(Net(8, 4), project=8))
    assert run(in_function, GRAPH, [0, 1], jobs=2).seeds == (0, 1)
    assert "The seeds run one after the other" in caplog.text
    caplog.clear()
    monkeypatch.setattr(sys.modules["__main__"], "Net", Net, raising=False)
    Net.__module__, Net.__qualname__ = "__main__", "Net"
    assert run(in_function, GRAPH, [0, 1], jobs=2).seeds == (0, 1)
    assert "Move it to a module" in caplog.text


def test_a_number_of_processes_must_be_one():
    with pytest.raises(InputError, match="jobs is 0"):
        run(SMALL, GRAPH, jobs=0)


def test_a_run_waits_for_the_processes_of_a_killed_one(tmp_path, caplog):
    run(SMALL, GRAPH, [0], out=tmp_path)
    (tmp_path / ".processes").write_text("token")
    held, release = threading.Event(), threading.Event()

    def write() -> None:
        with write_from_worker(tmp_path, "token"):
            held.set()
            release.wait(60)

    writer = threading.Thread(target=write)
    writer.start()
    assert held.wait(60)
    threading.Timer(0.5, release.set).start()
    assert run(SMALL, GRAPH, [0], out=tmp_path).seeds == (0,)
    assert release.is_set()
    writer.join()
    assert "waiting for the processes of a killed run to end" in caplog.text


def test_an_attempt_of_a_seed_that_died_is_continued_by_the_next_with_the_same_arguments(tmp_path, monkeypatch):
    configuration = dataclasses.replace(SMALL, steps=3)
    plan, calls = tuple(configuration.tasks(GRAPH)), []
    workers = InProcess((1, 1), (configuration, plan))
    run(configuration, GRAPH, [0], out=tmp_path)
    (tmp_path / "results.jsonl").unlink()
    (tmp_path / ".processes").write_text("token")
    run_module = sys.modules[run.__module__]
    real = run_module.run_task

    def dies(*args, **kwargs):
        calls.append(args[1].time)
        if len(calls) == 3:
            raise OSError("killed")
        return real(*args, **kwargs)

    monkeypatch.setattr(run_module, "run_task", dies)
    arguments = (run_module._work, 0, 0, (tmp_path, "token"), 1)
    with pytest.raises(OSError, match="killed"):
        workers.submit(*arguments).result()
    rows = workers.submit(*arguments).result()
    assert calls == [3, 4, 5, 5]
    assert [key[1] for key in keys(tmp_path)] == list(TIMES)
    assert numbers(Run({}, {0: rows})) == numbers(run(configuration, GRAPH, [0]))


def test_a_line_that_a_killed_process_left_is_cut_off_by_the_next_one(tmp_path, undisturbed, monkeypatch):
    real = RunFolder.append

    def append(self, row):
        real(self, row)
        with (self.path / "results.jsonl").open("ab") as file:
            file.write(b'{"seed": 5, "ti')

    monkeypatch.setattr(RunFolder, "append", append)
    run(SMALL, GRAPH, [0, 1], out=tmp_path)
    assert len((tmp_path / "results.jsonl").read_bytes().split(b"\n")) == 7
    assert numbers(run(SMALL, GRAPH, [0, 1], out=tmp_path)) == undisturbed


def processes_below(parent):
    """Return the processes that a process started, and those below them."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and fields[0] != "Z":
                found += [int(stat.parent.name), *processes_below(int(stat.parent.name))]
    return found


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are read from /proc")
@pytest.mark.parametrize("kind", ["interrupt", "kill", "kill a child"])
def test_a_run_of_several_processes_is_stopped_and_goes_on(tmp_path, folder, kind):
    out = tmp_path / "r"
    arguments = ["run", folder, "--history", 1, "--steps", 400, "--hidden", 4, "--seeds", "0-2", "--out", out]
    child = subprocess.Popen(
        [sys.executable, "-m", "evergraph", *map(str, arguments), "--jobs", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores interrupts
    )
    try:
        for _ in range(60_000):
            if (out / "results.jsonl").exists() and len((out / "results.jsonl").read_text().splitlines()) >= 3:
                break
            time.sleep(0.005)
        assert (out / "results.jsonl").exists()
        below = processes_below(child.pid)
        assert len(below) >= 2
        if kind == "interrupt":
            os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to all processes of the command
        elif kind == "kill":
            child.kill()
        else:
            worker = next(one for one in below if "spawn_main" in Path(f"/proc/{one}/cmdline").read_text())
            os.kill(worker, signal.SIGKILL)
        err = child.communicate(timeout=60)[1]
    finally:
        child.kill()
    assert child.returncode == {"interrupt": 130, "kill": -signal.SIGKILL, "kill a child": 1}[kind]
    assert "Traceback" not in err
    if kind == "interrupt":
        assert "Interrupted. Run the same command again to continue." in err
    elif kind == "kill a child":
        assert "one of the processes was killed" in err
    end = time.monotonic() + 10
    while any(map(is_running, below)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_running, below))
    there = keys(out)
    assert 3 <= len(there) < 12
    configuration = Configuration(GraphSAGE(hidden=4), history=1, steps=400)
    after = run(configuration, GRAPH, [0, 1, 2], out=out)
    assert keys(out)[: len(there)] == there
    assert numbers(after) == numbers(run(configuration, GRAPH, [0, 1, 2]))


@pytest.mark.parametrize("appends", [1, 3, 4, 5])
def test_a_row_without_its_checkpoint_is_not_doubled(tmp_path, monkeypatch, undisturbed, appends):
    out = stopped(tmp_path / "r", appends, monkeypatch)
    assert numbers(run(SMALL, GRAPH, [0, 1], out=out)) == undisturbed
    assert keys(out) == [(seed, time) for seed in (0, 1) for time in TIMES]


def checkpoint(out):
    return out / "checkpoints" / "seed-0"


def lose_it(out):
    shutil.rmtree(checkpoint(out))


def lose_weights(out):
    next(checkpoint(out).glob("weights-*")).unlink()


def garble_it(out):
    (checkpoint(out) / "learner.json").write_text("{}")


def lose_last_rows(out):
    lines = (out / "results.jsonl").read_text().splitlines(keepends=True)
    (out / "results.jsonl").write_text("".join(lines[:1]))


def lose_first_row(out):
    lines = (out / "results.jsonl").read_text().splitlines(keepends=True)
    (out / "results.jsonl").write_text("".join(lines[1:]))


def lose_all_rows(out):
    (out / "results.jsonl").unlink()


def take_anothers(out):
    other = LifelongLearner(GraphSAGE(hidden=4), GDOC(), steps=2, lr=0.05, seed=9)
    other.adapt(next(SMALL.tasks(GRAPH)))
    other.save(checkpoint(out))


@pytest.mark.parametrize(
    ("damage", "warned"),
    [
        (lose_it, False),
        (lose_weights, True),
        (garble_it, True),
        (lose_last_rows, True),
        (lose_first_row, True),
        (lose_all_rows, True),
        (take_anothers, True),
    ],
)
def test_a_seed_without_a_good_checkpoint_starts_again(tmp_path, monkeypatch, undisturbed, caplog, damage, warned):
    real, done = LifelongLearner.save, count(1)

    def save(self, path):
        real(self, path)
        if next(done) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LifelongLearner, "save", save)
        with pytest.raises(KeyboardInterrupt):
            run(SMALL, GRAPH, [0], out=tmp_path)
    damage(tmp_path)
    caplog.clear()
    assert numbers(run(SMALL, GRAPH, [0], out=tmp_path))[0] == undisturbed[0]
    assert sorted(keys(tmp_path)) == [(0, time) for time in TIMES]
    assert ("The seed starts again" in caplog.text) == warned


def test_a_good_checkpoint_saves_the_work(tmp_path, monkeypatch):
    out = stopped(tmp_path / "r", 6, monkeypatch, seeds=[0, 1, 2])
    (out / "checkpoints" / "seed-1").rename(out / "checkpoints" / "seed-0")  # left over by a kill at the very end
    steps = []
    run(SMALL, GRAPH, [0, 1, 2], out=out, on_progress=lambda *args: steps.append(args))
    assert {step[0] for step in steps if step[3] < step[4]} == {2}
    assert not (out / "checkpoints").exists()


def test_a_half_written_line_is_cut_off(tmp_path, monkeypatch, undisturbed):
    whole = stopped(tmp_path / "r", 2, monkeypatch, seeds=[0])
    lines = (whole / "results.jsonl").read_bytes()
    for end in (1, 100, lines.index(b"\n"), lines.index(b"\n") + 2, len(lines) - 1):
        (whole / "results.jsonl").write_bytes(lines[:end])
        assert numbers(run(SMALL, GRAPH, [0], out=whole))[0] == undisturbed[0]
        assert keys(whole) == [(0, time) for time in TIMES]


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        ("nonsense", "it is not a JSON object"),
        ("", "it is not a JSON object"),
        ("[]", "not a row of a run"),
        ("7", "not a row of a run"),
        ("{}", "lack"),
        ("[" * 100_000, "it is not a JSON object"),
        ("\udcff", "it is not a JSON object"),
        (lambda row: json.dumps(row | {"seed": 0, "time": 3}), "second row of seed 0 at 3"),
        (lambda row: json.dumps(row | {"time": 77}), "a row of 77, but the run has no such task"),
        (lambda row: json.dumps(row | {"accuracy": "high"}), "accuracy is 'high'"),
        (lambda row: json.dumps(row | {"tp": None}), "tp is None"),
        (lambda row: json.dumps(row | {"seed": True}), "seed is True"),
        (lambda row: json.dumps({key: row[key] for key in row if key != "loss"}), "lacks loss"),
    ],
)
def test_a_broken_line_is_named(tmp_path, spoil, problem):
    run(SMALL, GRAPH, [0], out=tmp_path)
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    lines[1] = spoil if isinstance(spoil, str) else spoil(json.loads(lines[1]))
    text = ("\n".join(lines) + "\n").encode(errors="surrogateescape")
    (tmp_path / "results.jsonl").write_bytes(text)
    with pytest.raises(InputError, match=re.escape(problem)) as error:
        run(SMALL, GRAPH, [0], out=tmp_path)
    assert "results.jsonl, line 2" in str(error.value)
    assert (tmp_path / "results.jsonl").read_bytes() == text


def test_more_seeds_later(tmp_path, undisturbed):
    run(SMALL, GRAPH, [1], out=tmp_path)
    before = (tmp_path / "results.jsonl").read_bytes()
    result = run(SMALL, GRAPH, [0, 1], out=tmp_path)
    assert numbers(result) == undisturbed
    assert result.seeds == (0, 1)
    after = (tmp_path / "results.jsonl").read_bytes()
    assert after.startswith(before)
    only = run(SMALL, GRAPH, [0], out=tmp_path)
    assert only.seeds == (0,)
    assert (tmp_path / "results.jsonl").read_bytes() == after


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"steps": 3}, "steps is 2 there and 3 here"),
        ({"model": GraphSAGE(hidden=8)}, "model.hidden is 4 there and 8 here"),
        ({"model": MLP(8)}, "model is sage there and mlp here"),
        ({"detector": GDOC(0.5)}, "detector.threshold is 0.75 there and 0.5 here"),
        ({"detector": GDOC(alpha=3.0)}, "detector.alpha is not set there and 3.0 here"),
        ({"detector": AutoDetector()}, "detector is gdoc there and auto here"),
        ({"history": "auto"}, "history is 1 there and auto here"),
        ({"first": None}, "first is 3 there and not set here"),
        ({"lr": None, "text": "global"}, "lr is 0.05 there and not set here, text is past there and global here"),
    ],
)
def test_a_folder_of_another_configuration_is_refused(tmp_path, change, told):
    small = dataclasses.replace(SMALL, detector=GDOC())
    run(small, GRAPH, [0], out=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=re.escape(f"{told}. Choose another folder (--out), or")):
        run(dataclasses.replace(small, **change), GRAPH, [0], out=tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_run_of_a_version_without_inputs_goes_on_with_words(tmp_path):
    words = dataclasses.replace(SMALL, inputs="words")
    expected = numbers(run(words, GRAPH, [0, 1], out=tmp_path / "whole"))
    run(words, GRAPH, [0], out=tmp_path / "old")
    manifest = tmp_path / "old" / "run.json"
    content = json.loads(manifest.read_text())
    del content["configuration"]["inputs"], content["configuration"]["label_latency"]
    manifest.write_text(json.dumps(content))
    with pytest.raises(InputError, match="other settings: inputs is words there and auto here"):
        run(SMALL, GRAPH, [0, 1], out=tmp_path / "old")
    with pytest.raises(InputError, match="other settings: label_latency is 0 there and 1 here"):
        run(dataclasses.replace(words, label_latency=1), GRAPH, [0, 1], out=tmp_path / "old")
    assert numbers(run(words, GRAPH, [0, 1], out=tmp_path / "old")) == expected


def test_times_are_the_same_however_they_are_written(tmp_path):
    run(SMALL, GRAPH, [0], out=tmp_path)
    run(dataclasses.replace(SMALL, first="3"), GRAPH, [0], out=tmp_path)


def test_a_folder_of_another_graph_or_other_numbers_is_refused(tmp_path, monkeypatch):
    run(SMALL, GRAPH, [0], out=tmp_path)
    with pytest.raises(InputError, match="a run on another graph"):
        run(SMALL, GRAPH.relabel([GRAPH.ids[0]], ["other"]), [0], out=tmp_path)
    monkeypatch.setattr(sys.modules["evergraph.evaluation.run"], "NUMERICS_VERSION", 99)
    with pytest.raises(InputError, match="numerics version 2, here 99"):
        run(SMALL, GRAPH, [0], out=tmp_path)


def test_replace_starts_over(tmp_path, monkeypatch, undisturbed):
    out = stopped(tmp_path / "r", 2, monkeypatch, configuration=dataclasses.replace(SMALL, steps=1))
    (out / "notes.txt").write_text("mine")
    assert numbers(run(SMALL, GRAPH, [0, 1], out=out, replace=True)) == undisturbed
    assert (out / "notes.txt").read_text() == "mine"
    assert len(keys(out)) == 6


def test_a_folder_in_which_nothing_was_finished_is_free(tmp_path, undisturbed):
    with pytest.raises(InputError, match="no label before 3 to train on"):
        run(dataclasses.replace(SMALL, label_rate=1e-9), GRAPH, [0], out=tmp_path)
    assert (tmp_path / "run.json").exists()
    assert numbers(run(SMALL, GRAPH, [0], out=tmp_path))[0] == undisturbed[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not the file of a run"),
        ("[]", "not the file of a run"),
        ('{"format": "evergraph run", "format_version": 99}', "format version 99, but this Evergraph reads version 1"),
        ('{"format": "evergraph run", "format_version": 1}', "not the file of a run"),
        ('{"format": "evergraph graph", "format_version": 1}', "format version 0"),
    ],
)
def test_a_file_that_does_not_describe_a_run_is_refused_and_only_ours_can_be_replaced(
    tmp_path, text, problem, undisturbed
):
    (tmp_path / "run.json").write_text(text)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "model.pt").write_text("of another program, or not")
    with pytest.raises(InputError, match=problem):
        run(SMALL, GRAPH, [0], out=tmp_path)
    if "evergraph run" in text:
        assert numbers(run(SMALL, GRAPH, [0], out=tmp_path, replace=True))[0] == undisturbed[0]
        return
    with pytest.raises(InputError, match="Evergraph did not write this file"):
        run(SMALL, GRAPH, [0], out=tmp_path, replace=True)
    assert (tmp_path / "run.json").read_text() == text
    assert (tmp_path / "checkpoints" / "model.pt").exists()


@pytest.mark.parametrize("replace", [True, False])
def test_folders_of_others_are_left_alone(tmp_path, replace):
    (tmp_path / "file").write_text("mine")
    for out, problem in ((tmp_path, "contains other files"), (tmp_path / "file", "this is a file")):
        with pytest.raises(InputError, match=problem):
            run(SMALL, GRAPH, [0], out=out, replace=replace)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no lock on Windows")
def test_two_processes_cannot_share_a_folder(tmp_path):
    identity = {"configuration": {}, "fingerprint": "", "numerics_version": 1}
    with open_run(tmp_path, identity, []), pytest.raises(EvergraphError, match="another process is writing this run"):
        run(SMALL, GRAPH, [0], out=tmp_path, replace=True)


def test_a_detector_of_ones_own_can_be_run_and_gone_on_with(tmp_path, monkeypatch):
    class Mine(DOC):
        pass

    own = dataclasses.replace(SMALL, detector=Mine(0.6))
    stopped(tmp_path / "r", 3, monkeypatch, seeds=[0, 1], configuration=own)
    assert numbers(run(own, GRAPH, [0, 1], out=tmp_path / "r")) == numbers(run(own, GRAPH, [0, 1]))


def test_rows_there_and_back():
    for row in run(SMALL, GRAPH, [0]).rows[0]:
        again = TaskRow.from_dict(json.loads(json.dumps(row.as_dict(), allow_nan=False)))
        assert repr(again) == repr(row)


# --- fingerprints ----------------------------------------------------------------------------------------------------


def test_a_graph_keeps_its_fingerprint_on_disk(folder):
    assert fingerprint(EvolvingGraph.open(folder)) == fingerprint(GRAPH)
    assert fingerprint(synthetic(vertices=400, times=6, classes=4, new_classes=1, seed=1)) == fingerprint(GRAPH)


def test_whatever_changes_in_a_graph_changes_its_fingerprint():
    vertices = {"id": ["a", "b"], "time": [1, 2], "label": ["x", "y"], "text": ["one", "two"]}
    graphs = [
        EvolvingGraph.build(vertices, [("a", "b")]),
        EvolvingGraph.build(vertices),
        EvolvingGraph.build(vertices | {"id": ["a", "c"]}),
        EvolvingGraph.build(vertices | {"time": [1, 3]}),
        EvolvingGraph.build(vertices | {"label": ["x", "z"]}),
        EvolvingGraph.build(vertices | {"label": ["x", None]}),
        EvolvingGraph.build(vertices | {"text": ["one", "three"]}),
        EvolvingGraph.build({key: vertices[key] for key in ("id", "time", "label")}),
        EvolvingGraph.build(vertices, every=2),
    ]
    assert len({fingerprint(graph) for graph in graphs}) == len(graphs)


def test_a_module_of_ones_own_can_be_run_and_gone_on_with(tmp_path):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 4)

        def forward(self, x, _):
            return self.layer(x)

    configuration = dataclasses.replace(SMALL, model=Custom(Net(), project=8))
    first = run(configuration, GRAPH, [0], out=tmp_path)
    json.dumps(first.as_dict())
    again = run(configuration, GRAPH, [0, 1], out=tmp_path)
    assert numbers(again)[0] == numbers(first)[0]
