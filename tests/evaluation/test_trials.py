"""The store of trials: stored results are complete, and everything else is reported."""

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph import EvergraphError, InputError
from evergraph.datasets import synthetic
from evergraph.detect import GDOC
from evergraph.errors import StorageError
from evergraph.evaluation import trials
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.trials import Problem, TrialResult, TrialStore, check_folder, trial_key
from evergraph.nn import MLP
from evergraph_paper.plan import LifelongTrial
from tests.evaluation import grid_trials
from tests.evaluation.grid_trials import Toy
from tests.faults import Faults

needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="there are no locks on Windows")
MADE = {"version": "1", "threads": 1, "seconds": 0.5, "when": "2024-01-01T00:00:00+00:00"}


def filled(folder, numbers=3):
    """A store with some rows, and these rows."""
    found = TrialStore(folder)
    rows = [found.append(toy, toy.run(), MADE) for toy in map(Toy, range(numbers))]
    return found, {row.key: row for row in rows}


def file_of(folder, name="toys"):
    return folder / "trials" / f"{name}.jsonl"


def told(found):
    return [(problem.file, problem.line) for problem in found.problems]


# --- there and back --------------------------------------------------------------------------------------------------


def test_rows_there_and_back(tmp_path):
    found, rows = filled(tmp_path / "new" / "results")
    assert found.read() == rows
    assert found.problems == []
    assert rows[trial_key(Toy(1))] == TrialResult(trial_key(Toy(1)), "toys", Toy(1).described(), 0, Toy(1).run(), MADE)
    other = found.append(Toy(1, seed=5, graph_name="ünlike"), {"accuracy": None}, {})
    assert found.read() == rows | {other.key: other}
    assert found.problems == []


def test_what_others_append_is_found_without_reading_everything_again(tmp_path):
    found, rows = filled(tmp_path)
    found.read()
    other, late = TrialStore(tmp_path), Toy(7)
    assert not found.has(trial_key(late))
    with file_of(tmp_path).open("ab") as file:
        file.write(b'{"key": "torn')  # the next line starts anew
    other.append(late, late.run(), MADE)
    assert found.has(trial_key(late))
    assert all(found.has(key) for key in rows)
    elsewhere = Toy(8, graph_name="zoo")
    other.append(elsewhere, elsewhere.run(), MADE)
    before = file_of(tmp_path).read_bytes()
    file_of(tmp_path).write_bytes(b"x" * len(before))  # not read again: its size is the same
    assert found.has(trial_key(elsewhere))
    assert not found.has("unknown")
    file_of(tmp_path).write_bytes(before)
    assert found.read().keys() == TrialStore(tmp_path).read().keys() == {*rows, trial_key(late), trial_key(elsewhere)}
    assert told(found) == [(file_of(tmp_path), 4)]


def test_a_row_is_returned_as_it_will_be_read(tmp_path):
    """Also where JSON has no such thing: whole numbers as keys are sorted otherwise than their names."""
    found = TrialStore(tmp_path)
    row = found.append(Toy(0), {"by_size": {2: 0.5, 10: (1, 2), 1: None}, "tiny": 5e-324, "zero": -0.0}, MADE)
    assert row.result["by_size"] == {"2": 0.5, "10": [1, 2], "1": None}
    assert found.read() == {row.key: row}
    assert repr(found.read()[row.key].result["zero"]) == "-0.0"
    assert found.problems == []


@pytest.mark.parametrize("result", [{"loss": float("nan")}, {"loss": float("inf")}, {"loss": {1, 2}}])
def test_what_json_cannot_hold_leaves_no_trace(tmp_path, result):
    found, _ = filled(tmp_path)
    before = file_of(tmp_path).read_bytes()
    with pytest.raises((ValueError, TypeError)):
        found.append(Toy(9), result, MADE)
    assert file_of(tmp_path).read_bytes() == before


def test_nothing_is_on_a_shelf_that_is_not_there(tmp_path):
    found = TrialStore(tmp_path / "none")
    assert (found.read(), found.problems) == ({}, [])
    assert not (tmp_path / "none").exists()
    check_folder(tmp_path / "none")
    check_folder(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="this is a file, not a folder"):
        check_folder(tmp_path / "file")


@pytest.mark.parametrize("name", ["", "..", "a b", "x.jsonl", ".hidden"])
def test_rows_are_found_whatever_their_graph_is_called(tmp_path, name):
    found = TrialStore(tmp_path)
    row = found.append(Toy(0, graph_name=name), {}, MADE)
    assert found.read() == {row.key: row}
    assert TrialStore(tmp_path).has(row.key)
    assert found.problems == []


# --- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_is_that_of_description_seed_and_version(monkeypatch):
    keys = {trial_key(toy) for toy in (Toy(0), Toy(1), Toy(0, seed=1), Toy(0, model="mlp"))}
    assert len(keys) == 4
    assert trial_key(Toy(0, graph_name="other", marks="elsewhere", seconds=3.0)) == trial_key(Toy(0))
    monkeypatch.setattr("evergraph.evaluation.trials.NUMERICS_VERSION", 99)
    assert trial_key(Toy(0)) not in keys


def test_a_key_does_not_depend_on_the_order_of_a_description():
    class Turned(Toy):
        def described(self):
            return dict(reversed(super().described().items()))

    assert list(Turned(0).described()) != list(Toy(0).described())
    assert trial_key(Turned(0)) == trial_key(Toy(0))


def test_a_key_does_not_depend_on_where_a_graph_lies(tmp_path):
    graph = synthetic(vertices=60, times=4, classes=3, new_classes=1, seed=1)
    graph.save(tmp_path / "here" / "g")
    graph.save(tmp_path / "there" / "renamed")
    graph.relabel([graph.ids[0]], ["other"]).save(tmp_path / "other" / "g")
    here = LifelongTrial(str(tmp_path / "here" / "g"), Configuration(MLP(4), steps=2), seed=3)
    there = dataclasses.replace(here, graph=str(tmp_path / "there" / "renamed"))
    assert (here.graph_name, there.graph_name) == ("g", "renamed")
    assert trial_key(here) == trial_key(there)
    others = [
        dataclasses.replace(here, graph=str(tmp_path / "other" / "g")),
        dataclasses.replace(here, seed=4),
        dataclasses.replace(here, rules=(GDOC(0.5),)),
        dataclasses.replace(here, configuration=Configuration(MLP(4), steps=3)),
    ]
    assert len({trial_key(here), *map(trial_key, others)}) == 5
    written, result = TrialStore(tmp_path / "r"), here.run()
    assert written.append(here, result, MADE) == written.read()[trial_key(there)]


# --- damage ----------------------------------------------------------------------------------------------------------


def test_a_half_written_line_is_told_and_the_next_one_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    found, rows = filled(tmp_path)
    path = file_of(tmp_path)
    content = path.read_bytes()
    start = content.rstrip(b"\n").rindex(b"\n") + 1
    first = {trial_key(toy): rows[trial_key(toy)] for toy in (Toy(0), Toy(1))}
    for end in range(start, len(content)):
        path.write_bytes(content[:end])
        assert found.read() == first
        assert told(found) == ([] if end == start else [(path, 3)])
        again = found.append(Toy(3), Toy(3).run(), MADE)
        assert path.read_bytes().startswith(content[:end])
        assert path.read_bytes().endswith(b"\n")
        whole = end == len(content) - 1  # nothing but the end of the line was missing
        assert found.read() == first | {again.key: again} | (rows if whole else {})
        assert told(found) == ([] if end == start or whole else [(path, 3)])
    assert "line 3: the line is incomplete; it is ignored, and its trial will run again" in str(
        Problem(path, 3, "the line is incomplete")
    )


def test_a_trial_whose_line_was_half_written_counts_once(tmp_path):
    found, rows = filled(tmp_path)
    path = file_of(tmp_path)
    content = path.read_bytes()
    for end in (len(content) - 1, len(content) - 2):
        path.write_bytes(content[:end])
        found.append(Toy(2), Toy(2).run(), MADE)
        assert found.read() == rows
        assert len(found.problems) == 1


@pytest.fixture(scope="module")
def store_of_three(tmp_path_factory):
    """To be damaged: a store, its rows, its file, and the content of the file."""
    folder = tmp_path_factory.mktemp("store")
    found, rows = filled(folder)
    return found, rows, file_of(folder), file_of(folder).read_bytes()


@settings(max_examples=6 * settings().max_examples)
@given(st.data())
def test_a_changed_byte_is_told_and_never_a_number_of_ours(store_of_three, data):
    found, rows, path, content = store_of_three
    at = data.draw(st.integers(0, len(content) - 1))
    new = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[at]))
    before, line = content[at], content[:at].count(b"\n") + 1
    path.write_bytes(content[:at] + bytes([new]) + content[at + 1 :])
    left = found.read()
    assert all(left[key] == rows[key] for key in left)
    hit = {line, line + 1} if before == ord("\n") else {line}
    assert {number for number, key in enumerate(rows, start=1) if key not in left} <= hit
    if len(left) < len(rows):
        assert {problem.line for problem in found.problems} & {line, line + 1}
        assert all(problem.file == path for problem in found.problems)


def test_no_digit_of_a_line_can_change_unnoticed(tmp_path):
    found, _ = filled(tmp_path, numbers=1)
    path = file_of(tmp_path)
    content = path.read_bytes()
    digits = [at for at, byte in enumerate(content) if chr(byte).isdigit()]
    assert len(digits) > 100
    for at in digits:
        path.write_bytes(content[:at] + (b"1" if content[at : at + 1] != b"1" else b"2") + content[at + 1 :])
        assert found.read() == {}
        assert told(found) == [(path, 1)]


def of_another_version(line, version=99):
    row = json.loads(line) | {"numerics_version": version}
    del row["check"]
    return json.dumps(row | {"check": trials._check(row)})


def test_a_result_of_an_older_comparable_version_is_read_and_marked_until_there_is_a_new_one(tmp_path, monkeypatch):
    found, toys = TrialStore(tmp_path), [Toy(0), Toy(1)]
    with monkeypatch.context() as before:
        before.setattr(trials, "NUMERICS_VERSION", 1)
        for toy in toys:
            found.append(toy, {"score": 1}, MADE)
        old = {trial_key(toy) for toy in toys}
    rows = found.read()
    assert list(rows) == [trial_key(toy) for toy in toys], "the keys are those of this version"
    assert old.isdisjoint(rows)
    assert not found.problems
    assert {row.numerics_version for row in rows.values()} == {1}
    assert found.has(trial_key(Toy(0)))
    found.append(Toy(0), {"score": 2}, MADE)
    rows = found.read()
    assert not found.problems
    assert [(row.result["score"], row.numerics_version) for row in rows.values()] == [(2, 2), (1, 1)]


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        ("notes", "the line is not a result"),
        ("[]", "the line is not a result"),
        ("{}", "the line is not a result"),
        ("7", "the line is not a result"),
        ("null", "the line is not a result"),
        ('"text"', "the line is not a result"),
        ("NaN", "the line is not a result"),
        ("9" * 10_000, "the line is not a result"),
        ("[" * 100_000, "the line is not a result"),
        ('{"a":' * 100_000, "the line is not a result"),
        ("\udcff\udc80", "the line is not a result"),
        ("\ufeff{}", "the line is not a result"),
        ("\0" * 100, "the line is not a result"),
        (lambda line: line[:-40], "the line is not a result"),
        (lambda line: line + line, "the line is not a result"),
        (lambda line: line.replace('"seed":0', '"sead":0'), "the line is not a result"),
        (lambda line: line.replace('"toys"', r'"\ud800"'), "the line is not a result"),
        (lambda line: line.replace('"tp":3', '"tp":NaN'), "the line is not a result"),
        (lambda line: line.replace('"tp":3', '"tp":3.0'), "the line was changed"),
        (lambda line: line.replace('"tp":3', '"tp":true'), "the line was changed"),
        (lambda line: line.replace('"seed":0', '"seed":0,"note":"mine"'), "the line was changed"),
        (of_another_version, "the line has numerics version 99, but this Evergraph computes version 2"),
    ],
)
def test_a_line_that_is_no_result_of_ours_is_told_and_left_out(tmp_path, spoil, problem):
    found, rows = filled(tmp_path)
    path = file_of(tmp_path)
    lines = path.read_bytes().decode().splitlines()
    new = spoil if isinstance(spoil, str) else spoil(lines[1])
    assert new != lines[1]
    lines[1] = new
    path.write_bytes("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
    assert found.read() == {key: row for key, row in rows.items() if key != trial_key(Toy(1))}
    assert told(found) == [(path, 2)]
    assert problem in str(found.problems[0])
    assert f"{path}, line 2: " in str(found.problems[0])
    assert "its trial will run again" in str(found.problems[0])
    again = found.append(Toy(1), Toy(1).run(), MADE)
    assert found.read() == rows
    assert again == rows[again.key]


def test_a_line_of_any_depth_is_told(tmp_path):
    """Where reading comes to its end and where checking does need not be the same."""
    found, rows = filled(tmp_path)
    path = file_of(tmp_path)
    line = path.read_text().splitlines()[0]
    depths = range(1, 1100)
    with path.open("a") as file:
        file.writelines(line.replace('"tp":3', f'"tp":{"[" * depth}{"]" * depth}') + "\n" for depth in depths)
    assert found.read() == rows
    assert told(found) == [(path, 3 + depth) for depth in depths]


def test_a_line_that_is_there_twice_counts_once(tmp_path):
    found, rows = filled(tmp_path)
    path = file_of(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[1]]))
    assert found.read() == rows
    assert told(found) == [(path, 4)]
    assert str(found.problems[0]).endswith("the same trial has an earlier line; it is ignored")
    other = file_of(tmp_path, "zoo")
    other.write_text(lines[0])
    assert found.read() == rows
    assert told(found) == [(path, 4), (other, 1)]
    result = Toy(2).run() | {"loss": 0.0}  # the first one counts, also if they differ
    found.append(Toy(2), result, MADE)
    assert found.read() == rows
    assert len(found.problems) == 3


def test_blank_lines_and_other_ends_of_lines_are_fine(tmp_path):
    found, rows = filled(tmp_path)
    lines = file_of(tmp_path).read_bytes().split(b"\n")
    file_of(tmp_path).write_bytes(b"\n  \n\r\n" + b"\r\n\n".join(lines) + b"\n\n")
    assert found.read() == rows
    assert found.problems == []


def test_other_things_in_the_folder_are_told_and_left_alone(tmp_path):
    found, rows = filled(tmp_path)
    trials = tmp_path / "trials"
    (trials / "notes.txt").write_text("mine")
    (trials / "old").mkdir()
    (trials / "old.jsonl").mkdir()
    (trials / "rubbish.jsonl").write_bytes(bytes(range(256)))
    (trials / "empty.jsonl").touch()
    (trials / "toys.jsonl~").write_bytes(file_of(tmp_path).read_bytes())
    assert found.read() == rows
    names = ["notes.txt", "old", "old.jsonl", "toys.jsonl~"]
    assert set(told(found)) == {(trials / name, None) for name in names} | {
        (trials / "rubbish.jsonl", 1),
        (trials / "rubbish.jsonl", 2),
    }
    assert str(found.problems[0]) == f"{trials / 'notes.txt'}: this is not a file of results; it is ignored"
    assert (trials / "notes.txt").read_text() == "mine"


# --- disks -----------------------------------------------------------------------------------------------------------


class Dead(Faults):
    """From the n-th call on nothing reaches the disk."""

    def tick(self):
        self.count += 1
        return self.count >= self.at


@pytest.mark.parametrize("kind", [Faults, Dead])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("existing", [True, False])
def test_a_disk_that_fails_at_any_call_of_an_append_loses_nothing(tmp_path, kind, number, existing):
    def fail():
        raise OSError(number, os.strerror(number))

    errors = []
    for at in count(1):
        folder = tmp_path / str(at)
        found, rows = filled(folder) if existing else (TrialStore(folder), {})
        toy = Toy(7)
        with kind(at, fail) as faults:
            try:
                found.append(toy, toy.run(), MADE)
            except EvergraphError as error:
                errors.append(str(error).replace(str(folder), "RESULTS"))
        left = found.read()
        assert {key: left[key] for key in rows} == rows
        assert set(left) <= {*rows, trial_key(toy)}
        assert len(found.problems) <= 1
        if trial_key(toy) not in left:
            found.append(toy, toy.run(), MADE)
            assert found.read()[trial_key(toy)].result == toy.run()
            assert len(found.problems) <= 1
        if faults.count < at:
            break
    assert len(errors) >= 3
    for error in errors:
        assert error.startswith("RESULTS/trials")
        assert f"the result could not be written ({os.strerror(number)}). What was finished is not lost" in error


@needs_posix
def test_a_file_that_can_grow_no_further_is_named_and_keeps_its_rows(tmp_path):
    import resource

    found, rows = filled(tmp_path)
    path = file_of(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
    try:
        with pytest.raises(EvergraphError) as error:
            found.append(Toy(3), Toy(3).run(), MADE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(error.value).startswith(f"{path}: the result could not be written (File too large)")
    assert found.read() == rows
    assert told(found) == [(path, 4)]
    again = found.append(Toy(3), Toy(3).run(), MADE)
    assert found.read() == rows | {again.key: again}
    assert told(found) == [(path, 4)]


def test_a_place_that_is_taken_is_named(tmp_path):
    file_of(tmp_path).mkdir(parents=True)
    with pytest.raises(EvergraphError, match="the result could not be written") as error:
        TrialStore(tmp_path).append(Toy(0), {}, MADE)
    assert str(file_of(tmp_path)) in str(error.value)
    (tmp_path / "file").touch()
    with pytest.raises(EvergraphError, match="the result could not be written"):
        TrialStore(tmp_path / "file").append(Toy(0), {}, MADE)
    with (
        pytest.raises(EvergraphError, match="the trial could not be started"),
        TrialStore(tmp_path / "file").claimed("k"),
    ):
        pass


def test_results_that_cannot_be_read_are_not_taken_for_missing(tmp_path):
    """For then all would be run again."""

    def deny():
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    found, rows = filled(tmp_path)
    for at in (1, 2):
        with Faults(at, deny), pytest.raises(StorageError, match=r"could not be read \(Permission denied\)") as error:
            found.read()
        assert str(tmp_path / "trials") in str(error.value)
    with Faults(3, deny):
        assert found.read() == rows


# --- several processes -----------------------------------------------------------------------------------------------


def process(task, folder, **options):
    command = [sys.executable, grid_trials.__file__, task, str(folder), json.dumps(options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


@needs_posix
def test_processes_that_append_and_read_at_once_do_not_disturb_each_other(tmp_path):
    with process("append", tmp_path, rows=50) as child:
        out, _ = child.communicate(timeout=240)
    assert (child.returncode, out) == (0, "0 problems, 0 failed")
    found = TrialStore(tmp_path)
    rows = found.read()
    assert found.problems == []
    assert len(rows) == len(file_of(tmp_path).read_bytes().splitlines()) == 100
    for toy in (Toy(number, seed) for number in range(50) for seed in range(2)):
        assert rows[trial_key(toy)].result.items() >= toy.run().items()


@needs_posix
def test_a_line_that_is_being_written_is_waited_for(tmp_path):
    import fcntl

    found, rows = filled(tmp_path)
    path = file_of(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    seen = []
    reader = threading.Thread(target=lambda: seen.append(found.read()))
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        reader.start()
        reader.join(0.2)
        assert not seen
        file.write(content[-100:])
    reader.join(30)
    assert (seen, found.problems) == ([rows], [])


@needs_posix
def test_a_claim_goes_with_its_process(tmp_path):
    found = TrialStore(tmp_path)
    with process("hold", tmp_path, key="some") as child:
        try:
            assert child.stdout.readline() == "True\n"
            for _ in range(2):
                with found.claimed("some") as mine:
                    assert not mine
            with found.claimed("other") as mine:
                assert mine
        finally:
            os.kill(child.pid, signal.SIGKILL)
        assert child.wait(120) == -signal.SIGKILL
    with found.claimed("some") as mine:
        assert mine
    assert list((tmp_path / ".claims").iterdir()) == []


@needs_posix
def test_a_claim_is_let_go_of_after_an_error_too(tmp_path):
    found = TrialStore(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"^of the trial$"), found.claimed("some"):
        raise FileNotFoundError("of the trial")
    with found.claimed("some") as mine, TrialStore(tmp_path).claimed("some") as another:
        assert (mine, another) == (True, False)


@needs_posix
def test_no_two_hold_a_claim_that_was_let_go_of_at_the_wrong_moment(tmp_path, monkeypatch):
    """The second has opened the file when the first removes it, and the third makes a new one."""
    real, first = trials._lock, TrialStore(tmp_path).claimed("some")

    def lock(*args, **options):
        monkeypatch.setattr(trials, "_lock", real)
        first.__exit__(None, None, None)
        real(*args, **options)

    assert first.__enter__()
    monkeypatch.setattr(trials, "_lock", lock)
    with TrialStore(tmp_path).claimed("some") as second, TrialStore(tmp_path).claimed("some") as third:
        assert [second, third].count(True) == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_fails_at_any_call_of_a_claim_is_told(tmp_path, number):
    def fail():
        raise OSError(number, os.strerror(number))

    errors = []
    for at in count(1):
        with Faults(at, fail) as faults:
            try:
                with TrialStore(tmp_path / str(at)).claimed("some") as mine:
                    assert mine
            except EvergraphError as error:
                errors.append(str(error))
        if faults.count < at:
            break
    assert len(errors) >= 3
    assert all(f"the trial could not be started ({os.strerror(number)})" in error for error in errors)
    assert all(error.startswith(str(tmp_path)) for error in errors)
