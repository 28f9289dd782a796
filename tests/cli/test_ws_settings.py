"""The commands ``ws set`` and ``ws tag``: what they print, and what `--json` has."""

import json
import os
import shutil
from pathlib import Path

import pytest

from evergraph import EvolvingGraph, Workspace
from evergraph.datasets import synthetic
from evergraph.datasets.tables import to_tables
from evergraph.detect import GDOC
from evergraph.nn import GraphSAGE
from evergraph.storage.files import locked

pytestmark = pytest.mark.usefixtures("one_thread")

GRAPH = synthetic(vertices=240, times=6, classes=3, new_classes=0, seed=1)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr("evergraph.storage.records.SYNCHRONOUS", "OFF")


@pytest.fixture(scope="module")
def template(tmp_path_factory, one_thread):
    """A workspace whose two newest slices have no labels."""
    folder = tmp_path_factory.mktemp("template") / "ws"
    old = EvolvingGraph.build(*to_tables(GRAPH, last=3))
    made = Workspace.create(folder, old, model=GraphSAGE(hidden=8), detector=GDOC(0.5), history=1, steps=5)
    for time in (4, 5):
        made.add(*to_tables(GRAPH, time, time, labels=False), drop_dangling=True)
    return folder


@pytest.fixture
def ws(template, tmp_path):
    return Path(shutil.copytree(template, tmp_path / "ws"))


def printed(command, *arguments):
    code, out, err = command("ws", *arguments)
    assert code == 0, err
    return " ".join(out.split())


def told(command, *arguments):
    code, out, err = command("ws", *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_without_options_the_settings_are_shown(command, ws):
    assert "detector gdoc (threshold 0.5)" in printed(command, "set", ws)
    found = told(command, "set", ws)
    assert found["settings"] == Workspace(ws).settings()
    assert (found["settings"]["history"], found["settings"]["keep"], found["pending"]) == (1, 10, [])
    assert Workspace(ws).state.version == 3


def test_what_changes_is_shown_with_what_it_means_and_the_next_command(command, ws):
    out = printed(command, "set", ws, "--history", "3", "--threshold", "0.9", "--keep", "4")
    assert "Version 4 (set)" in out
    for line in ("- history: 1 -> 3", "- detector: gdoc (threshold 0.5) -> gdoc (threshold 0.9)", "- keep: 10 -> 4"):
        assert line in out
    assert "- the next update trains on 3 periods" in out
    assert "- the detector applies from the next predict on" in out
    assert f"Next: evergraph ws update {ws}" in out
    assert Workspace(ws).log()[-1].what == (
        "history: 1 -> 3; detector: gdoc (threshold 0.5) -> gdoc (threshold 0.9); keep: 10 -> 4"
    )
    code, _, err = command("ws", "update", ws, "--quiet")
    assert code == 0, err


def test_a_model_that_is_not_trained_yet_is_shown_as_such(command, ws):
    found = told(command, "set", ws, "--hidden", "4", "--detector", "auto", "--objective", "budget:5")
    assert found["settings"]["model"]["hidden"] == 4
    assert found["settings"]["detector"]["objective"] == "budget:5"
    assert "trains a new model from random weights, because the model and the detector changed" in found["what"]
    assert told(command, "set", ws)["pending"] == ["model", "detector"]
    assert "model sage (hidden 4, layers 2, dropout 0.5), from the next update on" in printed(command, "set", ws)
    assert told(command, "update", ws)["restart"] == "cold"
    assert told(command, "set", ws)["pending"] == []


def test_an_objective_is_set_and_applies_at_once(command, tmp_path):
    EvolvingGraph.build(*to_tables(GRAPH, last=4)).save(tmp_path / "graph")
    given = ("--graph", tmp_path / "graph", "--history", "1", "--steps", "2", "--hidden", "4")
    told(command, "init", tmp_path / "ws", *given, "--objective", "false-alarms:0.2")
    assert "detector auto (objective false-alarms:0.2)" in printed(command, "set", tmp_path / "ws")
    Workspace(tmp_path / "ws").add(*to_tables(GRAPH, 5, labels=False), drop_dangling=True)
    out = printed(command, "set", tmp_path / "ws", "--objective", "budget:7")
    assert "- detector: auto (objective false-alarms:0.2) -> auto (objective budget:7)" in out
    assert "- the detector applies from the next predict on" in out
    assert told(command, "set", tmp_path / "ws")["pending"] == []
    assert sum(row["class"] == "unseen" for row in told(command, "predict", tmp_path / "ws")["decisions"]) == 7


def test_inputs_that_are_not_read_yet_are_shown_as_such(command, ws):
    read = told(command, "set", ws)["inputs_read"]
    assert "inputs auto (the model reads: words" in printed(command, "set", ws)
    found = told(command, "set", ws, "--inputs", "classes")
    assert found["changed"]["inputs"] == ["auto", "classes"]
    assert "because the inputs changed" in found["what"]
    assert told(command, "set", ws)["inputs_read"] == read
    assert "inputs classes, from the next update on (the model reads: words" in printed(command, "set", ws)
    assert told(command, "update", ws)["restart"] == "cold"
    assert told(command, "set", ws)["inputs_read"] == ["classes"]


def test_what_is_set_already_changes_nothing_and_succeeds(command, ws):
    out = printed(command, "set", ws, "--keep", "10", "--threshold", "0.5")
    assert out.startswith("Nothing to do: detector is gdoc (threshold 0.5) already, keep is 10 already")
    assert told(command, "set", ws, "--keep", "10")["version"] == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["set", "--history", "0"], "--history is '0'"),
        (["set", "--inputs", "words,"], "there is no input ''"),
        (["set", "--inputs", "encoder"], "the inputs include encoder, but the graph has only words"),
        (["set", "--objective", "mcc"], "the detector gdoc has no setting 'objective'"),
        (["set", "--detector", "none", "--threshold", "1"], "the detector none has no setting 'threshold'"),
        (["tag", "--delete"], "--delete is given without a name"),
        (["tag", "--version", "2"], "--version is given without a name"),
        (["tag", "two words"], "a version cannot be named 'two words'"),
        (["tag", "x", "--version", "99"], "version 99 does not exist"),
        (["rollback", "x"], "there is no tag 'x'"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(command, ws, arguments, words):
    before = (ws / "workspace.db").read_bytes()
    code, out, err = command("ws", arguments[0], ws, *arguments[1:])
    assert (code, out) == (2, "")
    assert words in err
    assert (ws / "workspace.db").read_bytes() == before


def test_late_labels_are_warned_of_with_a_command_that_helps(command, ws, tmp_path):
    found = told(command, "status", ws)
    (warning,) = found["warnings"]
    assert (found["last_labelled"], found["label_lag"]) == (3, 2)
    assert warning.endswith(f"To train on more: evergraph ws set {ws} --history 3")
    out = printed(command, "status", ws)
    assert "labels up to 3, 2 periods before the newest" in out
    assert "warning the latest labelled period is 3, 2 periods before the newest" in out
    window = GRAPH.window(4, 4)
    labels = tmp_path / "labels.csv"
    labels.write_text(
        "id,label\n" + "".join(f"{id},{name}\n" for id, name in zip(window.ids, window.labels, strict=True))
    )
    assert "warnings" not in told(command, "label", ws, "--labels", labels)  # one period late is within the history
    told(command, "rollback", ws, "3")
    assert told(command, "set", ws, *warning.split()[-2:])["changed"] == {"history": [1, 3]}
    assert told(command, "status", ws)["warnings"] == []
    assert told(command, "update", ws)["trained_from"] == 2


def test_a_tag_is_listed_shown_in_the_log_and_rolled_back_to(command, ws):
    assert (
        printed(command, "tag", ws) == f"There are no tags. Name the current version with: evergraph ws tag {ws} NAME"
    )
    assert "- version 3 is tagged good and kept" in printed(command, "tag", ws, "good")
    assert told(command, "tag", ws, "first", "--version", "1")["tagged"] == 1
    out = printed(command, "tag", ws, "good", "--version", "3")
    assert "Nothing to do: version 3 has the tag good already" in out
    assert told(command, "tag", ws)["tags"] == {"first": 1, "good": 3}
    assert "good 3" in printed(command, "tag", ws)
    told(command, "set", ws, "--keep", "2")
    found = told(command, "log", ws)
    assert found["kept"] == [1, 3, 5, 6]
    assert [entry["tags"] for entry in found["log"]] == [["first"], [], ["good"], [], [], []]
    assert "[good]" in printed(command, "log", ws)
    assert f"You can restore versions from 5 and those with the tag first, good: evergraph ws rollback {ws}" in printed(
        command, "log", ws
    )
    assert "tags first (version 1), good (version 3)" in printed(command, "status", ws)
    assert "- to version 3" in printed(command, "rollback", ws, "good")
    told(command, "set", ws, "--keep", "2")
    out = printed(command, "tag", ws, "first", "--delete")
    assert "- tag first deleted from version 1 - version 1 is not kept any more" in out


@pytest.mark.parametrize("arguments", [("set", "--keep", "4"), ("tag", "good")])
def test_both_wait_for_another_process_or_say_that_there_is_one(command, ws, arguments):
    with locked(ws, "workspace"):
        code, out, err = command("ws", arguments[0], ws, *arguments[1:])
        assert code
        assert out == ""
        assert "another process" in err
    assert told(command, arguments[0], ws, *arguments[1:], "--wait", "5")["version"] == 4
