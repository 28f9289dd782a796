"""The command ``evergraph run`` and its options."""

import itertools
import json
import re
import subprocess
import sys
import time
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph import EvolvingGraph, InputError
from evergraph.analysis import first_task
from evergraph.cli import common
from evergraph.cli.common import parse_history, parse_seeds
from evergraph.graph.arrays import fingerprint
from evergraph.graph.evolving import TextMode
from evergraph.learning.learner import LifelongLearner, Restart
from evergraph.learning.task import Mode, history_sizes
from evergraph.names import MODELS
from tests.evaluation.test_run import GRAPH, TIMES, keys, stopped

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The graph on disk."""
    path = tmp_path_factory.mktemp("graphs") / "g"
    GRAPH.save(path)
    return path


# --- options ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.sampled_from([",", ", ", " ,"]))
def test_seeds_one_by_one(seeds, comma):
    assert parse_seeds(comma.join(map(str, seeds))) == tuple(dict.fromkeys(seeds))


@given(st.integers(0, 500), st.integers(0, 500))
def test_seeds_from_to(first, length):
    assert parse_seeds(f"{first}-{first + length}") == tuple(range(first, first + length + 1))
    if length:
        with pytest.raises(InputError, match="--seeds is"):
            parse_seeds(f"{first + length}-{first}")


@given(st.text(max_size=8))
def test_seeds_are_understood_or_refused(text):
    try:
        found = parse_seeds(text)
    except InputError:
        return
    assert found
    assert all(seed >= 0 for seed in found)
    assert re.fullmatch(r"[0-9,\s-]+", text)


@pytest.mark.parametrize("text", ["", "-1", "1-", "0..3", "1,,2", "a", "0-2-4", "1.0", "٣", "0-99999999", "9" * 5000])
def test_bad_lists_of_seeds(text):
    with pytest.raises(InputError, match="--seeds"):
        parse_seeds(text)


@pytest.mark.parametrize("text", ["0", "-1", "some", "", "1.5", "٣", "9" * 5000])
def test_bad_histories(text):
    with pytest.raises(InputError, match="--history"):
        parse_history(text)
    assert (parse_history("full"), parse_history("07")) == ("full", 7)


def test_options_have_the_names_of_the_package():
    for names, known in [
        (common.Restart, get_args(Restart)),
        (common.Mode, get_args(Mode)),
        (common.TextMode, [mode for mode in get_args(TextMode) if mode != "counts"]),
    ]:
        assert get_args(names) == tuple(known)


# --- the command -----------------------------------------------------------------------------------------------------

QUICK = ("--history", "1", "--steps", "2", "--hidden", "4", "--first", "3", "--jobs", "1")


def without_progress(err):
    """Return the error output without progress, of which there is some."""
    line = r"(?m)^\d+ of \d+ tasks? done( \(\d+ seeds\))?(; about [0-9.]+ (s|min|h) left)?\n"
    assert re.match(line, err)
    return re.sub(line, "", err)


def test_json_has_what_scripts_need(folder, command):
    code, out, err = command("run", folder, *QUICK, "--seeds", "0-1", "--json")
    assert (code, without_progress(err)) == (0, "")
    found = json.loads(out)
    more = ("mcc_never_before", "macro_f1", "aupr", "fpr95", "oracle_mcc", "rejected")
    for name in ("accuracy", "id_accuracy", "mcc", "open_f1", "auroc", "seconds", *more):
        assert {"mean", "ci95", "per_seed"} <= set(found[name]), name
        assert len(found[name]["per_seed"]) == 2
        assert found[name]["mean"] == pytest.approx(sum(found[name]["per_seed"]) / 2)
    assert found["seeds"] == [0, 1]
    assert found["configuration"]["model"] == {"name": "sage", "hidden": 4, "layers": 2, "dropout": 0.5}
    assert found["configuration"]["detector"] == {
        "name": "auto",
        "version": 4,
        "objective": "mcc",
        "prior": None,
    }
    assert (found["configuration"]["history"], found["configuration"]["first"]) == (1, 3)
    assert [task["time"] for task in found["tasks"]] == TIMES
    assert {"accuracy", "mcc", "unseen", "seconds", "history", "lr", "loss", "known_classes"} <= set(found["tasks"][0])
    assert None in [task["auroc"] for task in found["tasks"]]
    one = json.loads(command("run", folder, *QUICK, "--json")[1])
    assert one["accuracy"]["ci95"] is None
    assert one["seconds"]["ci95"] is None


def test_json_is_the_same_when_gone_on_with(tmp_path, folder, command):
    arguments = ("run", folder, *QUICK, "--seeds", "0,1", "--json", "--out", tmp_path / "r")
    first, again = (json.loads(command(*arguments)[1]) for _ in range(2))
    assert first == again  # timings too, for they are kept
    assert first["out"] == str(tmp_path / "r")
    described = json.loads((tmp_path / "r" / "run.json").read_text())
    assert described["configuration"] == first["configuration"]
    assert (described["format"], described["numerics_version"]) == ("evergraph run", 2)
    assert described["fingerprint"] == fingerprint(GRAPH)


@pytest.mark.parametrize("seeds", ["0", "0-1"])
def test_tables_for_people_fit_eighty_columns(folder, monkeypatch, command, seeds):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = command("run", folder, *QUICK, "--seeds", seeds)
    assert (code, without_progress(err)) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    for word in (
        "time",
        "known",
        "accuracy",
        "Open-F1",
        "flagged",
        "unseen",
        "MCC",
        "ID accuracy",
        "AUROC",
        "seconds",
    ):
        assert word in out
    lines = [line.split() for line in out.splitlines()]
    assert [line[0] for line in lines if line and line[0] in "345"] == ["3", "4", "5"]
    assert ("±" in out) == (seeds == "0-1")
    assert "nan" not in out


def test_tables_have_room_for_dates(monkeypatch, tmp_path, command):
    monkeypatch.setenv("COLUMNS", "80")
    rows = range(80)
    EvolvingGraph.build(
        {
            "id": list(rows),
            "time": [f"2020-01-{1 + row // 20:02d}" for row in rows],
            "label": ["xy"[row % 2] for row in rows],
            "text": ["xy"[row % 2] + " words" for row in rows],
        },
        [(row, row - 2) for row in rows[2:]],
        every="day",
    ).save(tmp_path / "g")
    code, out, _ = command("run", tmp_path / "g", "--steps", 1, "--history", "full", "--first", "2020-01-03")
    assert code == 0
    assert "2020-01-03 " in out
    assert "accuracy" in out
    found = json.loads(command("run", tmp_path / "g", "--steps", 1, "--history", "full", "--json")[1])
    assert found["tasks"][-1]["time"] == "2020-01-04"
    assert found["tasks"][-1]["history"] == "full"


def test_quiet_says_nothing_but_writes(tmp_path, folder, command):
    assert command("run", folder, *QUICK, "--quiet", "--out", tmp_path / "r") == (0, "", "")
    assert len(keys(tmp_path / "r")) == 3
    assert json.loads(command("run", folder, *QUICK, "--quiet", "--json")[1])["seeds"] == [0]


def test_going_on_and_where_it_is_kept_are_told(tmp_path, folder, monkeypatch, command):
    stopped(tmp_path / "r", 2, monkeypatch)
    arguments = ("run", folder, *QUICK, "--lr", "0.05", "--seeds", "0-1", "--out", tmp_path / "r")
    code, out, err = command(*arguments)
    assert code == 0
    assert "2 of 6 tasks are already done" in err
    assert f"Stored in {tmp_path / 'r'}\nNext: evergraph report {tmp_path / 'r'}\n" in out


@pytest.mark.parametrize(
    ("more", "finished", "told"),
    [
        (["--out", "r"], 1, "Run the same command again to continue"),
        (["--out", "r", "--replace"], 1, "Run the same command again, without --replace, to continue"),
        (["--out", "r"], 0, "Nothing was stored: no task was finished"),
        ([], 1, "Nothing was stored: --out was not given"),
    ],
)
def test_an_interrupt_is_one_line(tmp_path, folder, monkeypatch, command, more, finished, told):
    monkeypatch.chdir(tmp_path)
    predict, done = LifelongLearner.predict, []

    def interrupt(*given, **how):
        if len(done) == finished:
            raise KeyboardInterrupt
        done.append(True)
        return predict(*given, **how)

    monkeypatch.setattr(LifelongLearner, "predict", interrupt)
    code, out, err = command("run", folder, *QUICK, *more)
    assert (code, out) == (130, "")
    assert without_progress(err) == f"Interrupted. {told}.\n"


def test_progress_on_a_terminal(folder, monkeypatch, command):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    code, out, err = command("run", folder, *QUICK, "--seeds", "0-1", "--json")
    assert code == 0
    assert json.loads(out)
    assert "6 of 6 tasks done (2 seeds)" in err


def test_progress_in_a_log_file(tmp_path, folder, monkeypatch, command):
    """Each call is 20 seconds after the last."""
    clock = itertools.count(step=20)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    code, _, err = command("run", folder, *QUICK, "--seeds", "0-1", "--out", tmp_path / "r")
    assert code == 0
    lines = err.splitlines()
    assert (lines[0], lines[-1]) == ("0 of 6 tasks done (2 seeds)", "6 of 6 tasks done (2 seeds)")
    assert all(re.search(r"^[0-5] of 6 tasks done \(2 seeds\); about \d+ (s|min) left$", line) for line in lines[1:-1])
    assert len(lines) > 4
    assert command("run", folder, *QUICK, "--seeds", "0-1", "--out", tmp_path / "r", "--quiet")[2] == ""


def test_processes_do_not_change_what_is_printed(folder, command):
    one = json.loads(command("run", folder, *QUICK, "--seeds", "0-1", "--json")[1])
    code, out, err = command("run", folder, *QUICK[:-2], "--seeds", "0-1", "--json", "--jobs", 2)
    assert (code, without_progress(err)) == (0, "")
    two = json.loads(out)
    for found in (one, two):
        del found["seconds"]
        for task in found["tasks"]:
            for name in ("seconds", "seconds_adapt", "seconds_predict"):
                del task[name]
    assert one == two
    code, out, err = command("run", folder, *QUICK[:-1], 2, "--label-rate", "1e-9", "--seeds", "0-1")
    assert (code, out) == (2, "")
    assert without_progress(err).startswith("Error: there is no label before 3 to train on")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--model", "bert"], "most-frequent"),
        (["--detector", "sherlock"], "gdoc"),
        (["--restart", "luke"], "hybrid"),
        (["--mode", "productive"], "inductive"),
        (["--text", "future"], "global"),
        (["--history", "some"], "Give a number of periods from 1 up, or auto, or full"),
        (["--history", "0"], "Give a number of periods from 1 up"),
        (["--seeds", "1-"], "as in 0-4, or 0,2,5, or 3"),
        (["--steps", "0"], "--steps"),
        (["--hidden", "0"], "--hidden"),
        (["--dropout", "1"], "Set dropout to a share of at least 0 and below 1"),
        (["--dropout", "nan"], "Set dropout to a share of at least 0 and below 1"),
        (["--hops", "2"], "the model sage has no setting 'hops'"),
        (["--model", "sgc", "--layers", "2"], "sgc has: hops"),
        (["--model", "most-frequent", "--hidden", "4"], "most-frequent has no settings"),
        (["--detector", "gdoc", "--threshold", "1.5"], "a number from 0 to 1"),
        (["--threshold", "0.5"], "the detector auto has no setting 'threshold'. Leave it out; auto has: objective"),
        (["--detector", "none", "--threshold", "0.5"], "none has no settings"),
        (["--detector", "gdoc", "--alpha", "0"], "alpha"),
        (["--objective", "f1"], "the objective is 'f1'. Choose from mcc, open-f1, budget:N, false-alarms:RATE"),
        (["--detector", "gdoc", "--objective", "mcc"], "the detector gdoc has no setting 'objective'"),
        (["--lr", "0"], "above 0"),
        (["--lr", "inf"], "lr is inf"),
        (["--weight-decay", "-1"], "Set it to a number from 0 up"),
        (["--first", "soon"], "'soon'"),
        (["--first", "99"], "Choose an earlier first task"),
        (["--first", "0"], "Choose a first task after"),
        (["--label-rate", "0"], "above 0 and up to 1"),
        (["--label-rate", "nan"], "above 0 and up to 1"),
        (["--label-rate", "1e-9"], "Error: there is no label before 2 to train on. Label earlier vertices"),
    ],
)
def test_bad_options_are_told_and_leave_nothing(options, told, folder, tmp_path, command):
    code, out, err = command("run", folder, *options, "--out", tmp_path / "r")
    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err
    assert not (tmp_path / "r" / "results.jsonl").exists()


def test_a_task_without_labels_reaches_back_and_says_so(tmp_path, command):
    times = [0, 0, 3, 3, 6, 6, 9, 9]
    columns = {"id": range(8), "time": times, "label": ["x", "y"] * 4, "text": ["a b", "c d"] * 4}
    EvolvingGraph.build(columns, [[1, 0], [3, 2], [5, 4], [7, 6]]).save(tmp_path / "g")
    code, out, err = command("run", tmp_path / "g", "--steps", "2")
    assert code == 0
    assert "history 3 (auto)" in " ".join(out.split())
    assert "The history is 3 periods instead of 1 period, to reach the latest labels before 3" in err
    code, out, err = command("run", tmp_path / "g", "--steps", "2", "--history", "1", "--out", tmp_path / "r")
    assert code == 0
    assert "history 1," in " ".join(out.split())
    assert "3 of 3 tasks have no label to train on within the history of 1." in " ".join(out.split())
    assert "2 has no labels to train on: the model for 3 trains on those of 0." in err
    rows = [json.loads(line) for line in (tmp_path / "r" / "results.jsonl").read_text().splitlines()]
    assert [(row["time"], row["history"], row["train_vertices"]) for row in rows] == [(3, 3, 2), (6, 3, 2), (9, 3, 2)]
    assert command("report", tmp_path / "r", "--out", tmp_path / "r.html")[0] == 0
    assert "3 of 3 tasks have no label" in (tmp_path / "r.html").read_text()


def test_defaults_work_with_late_labels_and_without_edges(tmp_path, command):
    columns = {"id": range(8), "time": [0, 1, 2, 3, 4, 5, 6, 7], "label": [None] * 4 + ["x", "y"] * 2}
    EvolvingGraph.build(columns | {"text": ["a b", "c d"] * 4}).save(tmp_path / "g")
    code, out, err = command("run", tmp_path / "g", "--steps", "2", "--json")
    assert code == 0, err
    assert [row["time"] for row in json.loads(out)["tasks"]] == [5, 6, 7]


def test_why_this_history_is_printed(folder, command):
    first = first_task(GRAPH)
    sizes = history_sizes(GRAPH, first)
    code, _, err = command("run", folder, "--steps", "1")
    assert code == 0
    half = (
        f"History {sizes[50]}: it covers half of the time differences within two hops before the first task ({first})"
    )
    assert f"{half}; 75 % take {sizes[75]}, all {sizes[100]}." in err
    assert "History" not in command("run", folder, "--steps", "1", "--history", "1")[2]


def test_other_settings_get_through(folder, command):
    options = ["--model", "gcn", "--layers", 3, "--dropout", 0.1, "--detector", "doc", "--threshold", 0.4, "--alpha", 3]
    options += ["--restart", "hybrid", "--label-rate", 0.5, "--mode", "inductive", "--text", "global"]
    options += ["--weight-decay", 0.01, "--lr", 0.02]
    code, out, err = command("run", folder, *QUICK, *options, "--json")
    assert (code, without_progress(err)) == (0, "")
    found = json.loads(out)["configuration"]
    assert found["model"] == {"name": "gcn", "hidden": 4, "layers": 3, "dropout": 0.1}
    assert found["detector"] == {"name": "doc", "threshold": 0.4, "alpha": 3.0}
    assert (found["restart"], found["mode"], found["text"]) == ("hybrid", "inductive", "global")
    assert (found["label_rate"], found["weight_decay"], found["lr"]) == (0.5, 0.01, 0.02)


@pytest.mark.parametrize("model", [name for name in MODELS if name != "sage"])
def test_every_model_runs(folder, command, model):
    code, out, err = command("run", folder, "--model", model, "--steps", 1, "--history", 1, "--first", 5, "--json")
    assert (code, without_progress(err)) == (0, "")
    assert 0 <= json.loads(out)["accuracy"]["mean"] <= 1


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; sys.argv = ['evergraph', 'run', '--help']\n"
        "from evergraph.cli import main\n"
        "try: main()\n"
        "finally: sys.stderr.write(str({'torch', 'numba', 'scipy', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "set()")
    assert "--detector" in done.stdout


# --- inputs ----------------------------------------------------------------------------------------------------------


def test_the_inputs_are_printed_and_in_the_results(command, folder):
    options = ("--steps", 1, "--first", TIMES[-1], "--seeds", "0,1")
    code, out, _ = command("run", folder, *options)
    assert code == 0
    assert re.search(r"\nInputs \(auto\): words \([0-9,]+\)", out)
    found = json.loads(command("run", folder, *options, "--inputs", "classes,words", "--json")[1])
    assert [list(found["inputs"][seed]) for seed in ("0", "1")] == [["classes", "words"]] * 2
    assert found["inputs"]["0"]["classes"] == found["tasks"][-1]["known_classes"]
    out = command("run", folder, *options, "--inputs", "classes,words")[1]
    assert re.search(r"\nInputs: classes of older neighbours \([0-9,]+\), words \([0-9,]+\)\n", out)
