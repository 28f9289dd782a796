"""The command line of the production loop: the whole loop, what it prints, and that nothing changes when it refuses."""

import contextlib
import csv
import dataclasses
import errno
import hashlib
import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import matthews_corrcoef

from evergraph import LifelongLearner, Workspace
from evergraph.analysis.explain import in_words
from evergraph.datasets import read_tables, synthetic
from evergraph.datasets.tables import to_tables
from evergraph.detect import GDOC
from evergraph.errors import InputError
from evergraph.nn import GraphSAGE
from evergraph.storage.files import locked

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = {"id": "paper", "time": "year", "label": "venue", "text": "title", "source": "citing", "target": "cited"}
COLUMNS = [part for option, column in NAMES.items() for part in (f"--{option}", column)]
TRAINING = ["--steps", "15", "--history", "2", "--hidden", "8", "--detector", "gdoc", "--threshold", "0.5"]
FIRST = 2010


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr("evergraph.storage.records.SYNCHRONOUS", "OFF")


def write(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A graph as somebody's tables: 2010 to 2013 with labels, then two slices without, and their labels apart."""
    folder = tmp_path_factory.mktemp("data")
    graph = synthetic(vertices=420, times=6, classes=3, new_classes=1, seed=1)
    for name, first, last in (("past", 0, 3), ("2014", 4, 4), ("2015", 5, 5)):
        vertices, edges = (table.to_pylist() for table in to_tables(graph, first, last))
        papers = [
            {"paper": f"p{row['id']}", "year": FIRST + row["time"], "venue": row["label"], "title": row["text"]}
            for row in vertices
        ]
        write(folder / f"{name}-labels.csv", [{"paper": row["paper"], "venue": row["venue"]} for row in papers])
        if name != "past":
            papers = [{key: value for key, value in row.items() if key != "venue"} for row in papers]
        write(folder / f"{name}.csv", papers)
        cites = [{"citing": f"p{row['source']}", "cited": f"p{row['target']}"} for row in edges]
        write(folder / f"{name}-cites.csv", cites)
    return folder


@pytest.fixture(scope="module")
def templates(data, tmp_path_factory, one_thread):
    """Workspaces to copy: just made, and with a slice that is decided and waits for its labels."""
    from evergraph.datasets.tables import Columns

    folder = tmp_path_factory.mktemp("templates")
    graph = read_tables(data / "past.csv", data / "past-cites.csv", **NAMES)
    options = {"model": GraphSAGE(hidden=8), "detector": GDOC(0.5), "history": 2, "steps": 15}
    Workspace.create(folder / "made", graph, columns=Columns(**NAMES), **options)
    shutil.copytree(folder / "made", folder / "waiting")
    waiting = Workspace(folder / "waiting")
    waiting.add(data / "2014.csv", data / "2014-cites.csv")
    waiting.predict()
    return folder


@pytest.fixture
def made(templates, tmp_path):
    return Path(shutil.copytree(templates / "made", tmp_path / "ws"))


@pytest.fixture
def waiting(templates, tmp_path):
    return Path(shutil.copytree(templates / "waiting", tmp_path / "ws"))


def digest(folder):
    """All bytes of a folder but those of its lock."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.name != ".lock":
            found.update(str(path.relative_to(folder)).encode() + (path.read_bytes() if path.is_file() else b"/"))
    return found.hexdigest()


def refused(done, *words, code=2):
    """One sentence, or two with how to fix it, and the exit code of bad input."""
    left, out, err = done
    assert (left, out) == (code, ""), err
    *_, last = err.splitlines()
    assert last.startswith("Error: ")
    assert "Traceback" not in err
    for word in words:
        assert word in last, last


# --- the loop --------------------------------------------------------------------------------------------------------


def test_the_whole_loop(command, data, tmp_path):
    ws = tmp_path / "ws"

    def told(*arguments):
        code, out, err = command("ws", *arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    files = ("--vertices", data / "past.csv", "--edges", data / "past-cites.csv")
    found = told("init", ws, *files, *COLUMNS, *TRAINING)
    assert (found["version"], found["vertices"], found["labelled"], found["history"]) == (1, 280, 280, 2)
    assert found["last_time"] == 2013
    assert "evergraph ws add" in found["next"]
    assert Workspace(ws).state.settings.columns.label == "venue"

    # A slice arrives. What its columns are called need not be said again.
    found = told("add", ws, "--vertices", data / "2014.csv", "--edges", data / "2014-cites.csv")
    assert (found["version"], found["vertices"], found["labelled"]) == (2, 70, 0)
    assert f"evergraph ws predict {ws}" in found["next"]

    # It is decided; files of both formats hold what the library says.
    expected = Workspace(shutil.copytree(ws, tmp_path / "copy")).predict()
    found = told("predict", ws, "--out", tmp_path / "decided.csv")
    assert (found["version"], found["decided"], found["out"]) == (3, 70, str(tmp_path / "decided.csv"))
    decided = rows_of(tmp_path / "decided.csv")
    assert [
        {key: in_words(value) if isinstance(value, list) else str(value) for key, value in row.items()}
        for row in expected.to_pylist()
    ] == decided
    assert found["unseen"] == sum(row["class"] == "unseen" for row in decided)
    again = told("predict", ws, "--time", "2014", "--out", tmp_path / "decided.parquet")
    assert again["version"] == 3  # the same was decided before, so nothing is kept twice
    assert pq.read_table(tmp_path / "decided.parquet").equals(expected)
    assert told("predict", ws)["decisions"] == expected.to_pylist()

    # Labels come late, and every decision is scored against them.
    found = told("label", ws, "--labels", data / "2014-labels.csv")
    assert (found["version"], found["labels"], found["corrected"], found["scored"]) == (4, 70, 0, 70)
    assert found["new_classes"] == ["class 03"]
    (scores,) = told("scores", ws)["slices"]
    truth = {row["paper"]: row["venue"] for row in rows_of(data / "2014-labels.csv")}
    rejected = [row["class"] == "unseen" for row in decided]
    unseen = [truth[row["id"]] == "class 03" for row in decided]
    assert scores["accuracy"] == pytest.approx(sum(row["best"] == truth[row["id"]] for row in decided) / 70)
    assert scores["mcc"] == pytest.approx(matthews_corrcoef(unseen, rejected))
    assert scores["flagged"] == pytest.approx(sum(rejected) / 70)
    assert scores["unseen"] == pytest.approx(sum(unseen) / 70)
    assert (scores["time"], scores["labelled"], scores["latency"], scores["models"]) == (2014, 70, 0.0, [1])
    assert told("status", ws)["scores"] == scores

    # The model learns them: as asked for, or by a back-test.
    found = told("update", ws, "--restart", "warm")
    assert (found["version"], found["model"], found["restart"], found["new_classes"]) == (5, 2, "warm", ["class 03"])
    told("add", ws, "--vertices", data / "2015.csv", "--edges", data / "2015-cites.csv")
    assert told("predict", ws)["decisions"][0]["model"] == 2
    told("label", ws, "--labels", data / "2015-labels.csv")
    found = told("update", ws)
    assert found["restart"] in ("warm", "cold", "skip")
    assert "on the 70 labels of 2015" in found["why"]
    assert [row["time"] for row in told("scores", ws)["slices"]] == [2014, 2015]

    log = told("log", ws)
    assert [row["command"] for row in log["log"]] == ["init", *["add", "predict", "label", "update"] * 2]
    assert log["kept"] == list(range(1, 10))
    found = told("rollback", ws, 6)
    assert found["version"] == 10
    assert "to version 6" in found["what"]
    there = Workspace(ws).status()
    assert (there.labelled, there.vertices, there.model, there.fresh_labels) == (350, 420, 2, 0)
    assert len(told("scores", ws)["slices"]) == 2  # what was decided stays


def test_the_command_makes_the_same_model_as_the_library(command, data, templates, tmp_path):
    files = ("--vertices", data / "past.csv", "--edges", data / "past-cites.csv")
    assert command("ws", "init", tmp_path / "ws", *files, *COLUMNS, *TRAINING, "--quiet") == (0, "", "")
    ours, theirs = (Workspace(folder).learner() for folder in (tmp_path / "ws", templates / "made"))
    assert all((ours.weights_[name] == theirs.weights_[name]).all() for name in theirs.weights_)
    settings = Workspace(tmp_path / "ws").state.settings
    assert settings == Workspace(templates / "made").state.settings


def test_history_is_chosen_from_time_differences_and_explained(command, data, tmp_path):
    from evergraph.analysis import tdiff

    files = ("--vertices", data / "past.csv", "--edges", data / "past-cites.csv")
    code, out, _ = command("ws", "init", tmp_path / "ws", *files, *COLUMNS, "--steps", 2)
    sizes = tdiff(read_tables(data / "past.csv", data / "past-cites.csv", **NAMES), 2).history_sizes()
    assert code == 0
    assert Workspace(tmp_path / "ws").state.settings.history == sizes[50]
    assert f"50%: {sizes[50]}" in " ".join(out.split())


def test_cold_updates_and_labels_that_are_corrections(command, data, waiting, tmp_path):
    command("ws", "label", waiting, "--labels", data / "2014-labels.csv")
    wrong = write(tmp_path / "corrected.csv", [{"paper": "p0", "venue": "class 02"}, {"paper": "p1", "venue": ""}])
    before = Workspace(waiting).graph.labels[Workspace(waiting).graph.find(["p0", "p1"])].tolist()
    code, out, _ = command("ws", "label", waiting, "--labels", wrong)
    assert code == 0
    assert "1 label (1 corrected)" in out
    assert "1 row without a label ignored" in out
    graph = Workspace(waiting).graph
    assert before[0] != "class 02"
    assert graph.labels[graph.find(["p0", "p1"])].tolist() == ["class 02", before[1]]
    code, out, _ = command("ws", "update", waiting, "--restart", "cold")
    assert code == 0
    assert "model 2, cold: as requested" in out
    assert Workspace(waiting).status().model_restart == "cold"


def test_an_update_that_would_gain_nothing_is_left_out_and_not_asked_for_again(command, data, waiting, monkeypatch):
    from evergraph.workspace import update
    from evergraph.workspace.update import RestartChoice

    command("ws", "label", waiting, "--labels", data / "2014-labels.csv")
    monkeypatch.setattr(update, "prepare_backtest", lambda *_: RestartChoice("skip", "no gain beyond chance"))
    code, out, _ = command("ws", "update", waiting)
    assert code == 0
    assert "skipped, model 1 is kept: no gain beyond chance" in out
    assert "ws update" not in out.splitlines()[-1]


def test_review_shows_words_and_neighbours_and_its_file_can_be_given_to_label(command, waiting, tmp_path):
    expected = Workspace(waiting).review(None)
    assert len(expected) > 3
    found = json.loads(command("ws", "review", waiting, "--limit", 3, "--json")[1])
    assert found["to_review"] == len(expected)
    assert [row["id"] for row in found["vertices"]] == [row.id for row in expected[:3]]
    code, out, _ = command("ws", "review", waiting, "--limit", 1)
    assert code == 0
    assert all(word in out for word in (expected[0].best, expected[0].neighbours[0][0]))
    assert expected[0].text is not None
    assert expected[0].text in " ".join(out.split())
    assert found["vertices"][0]["text"] == expected[0].text
    assert found["groups"][0]["exemplars"][0]["text"] in {row.text for row in expected}
    assert f"{len(expected)} vertices to review; 1 shown" in out

    code, out, _ = command("ws", "review", waiting, "--out", tmp_path / "review.csv")
    assert code == 0
    assert f"ws label {waiting} --labels" in out
    rows = rows_of(tmp_path / "review.csv")
    assert [(row["paper"], row["text"]) for row in rows] == [(row.id, row.text) for row in expected]
    rows[0]["venue"], rows[1]["venue"] = "Strange", "Strange"
    refused(command("ws", "review", waiting, "--out", tmp_path / "review.csv"), "--replace")
    write(tmp_path / "review.csv", rows)
    found = json.loads(command("ws", "label", waiting, "--labels", tmp_path / "review.csv", "--json")[1])
    assert (found["labels"], found["new_classes"], found["without"]) == (2, ["Strange"], len(rows) - 2)


def test_review_shows_the_reasons_on_demand(command, waiting, tmp_path):
    (expected,) = Workspace(waiting).review(1, why=True)
    assert 0 < len(expected.because) <= 3
    assert {one.block for one in expected.because} <= {"words", "classes"}
    (row,) = json.loads(command("ws", "review", waiting, "--limit", 1, "--json")[1])["vertices"]
    assert row["because"] is None
    (row,) = json.loads(command("ws", "review", waiting, "--limit", 1, "--why", "--json")[1])["vertices"]
    assert row["because"] == [dataclasses.asdict(one) for one in expected.because]
    assert row["because"][0].keys() == {"block", "name", "own", "neighbours"}
    reasons = ", ".join(one.in_words for one in expected.because)
    assert "because of" not in command("ws", "review", waiting, "--limit", 1)[1]
    assert f"because of {reasons}" in " ".join(command("ws", "review", waiting, "--limit", 1, "--why")[1].split())
    command("ws", "review", waiting, "--limit", 2, "--why", "--out", tmp_path / "why.csv")
    assert rows_of(tmp_path / "why.csv")[0]["because_of"] == reasons
    assert "because_of" not in rows_of_review(command, waiting, tmp_path)[0]

    command("ws", "update", waiting, "--restart", "cold")  # labels or not: the decisions are those of model 1
    assert Workspace(waiting).status().model == 1
    Workspace(waiting).set(steps=2)
    assert command("ws", "update", waiting, "--restart", "cold")[0] == 0
    assert Workspace(waiting).review(1, why=True)[0].because is None
    out = " ".join(command("ws", "review", waiting, "--limit", 1, "--why")[1].split())
    assert "because of not known: an earlier model decided; run ws predict again" in out


def rows_of_review(command, ws, tmp_path):
    assert command("ws", "review", ws, "--limit", 2, "--out", tmp_path / "plain.csv")[0] == 0
    return rows_of(tmp_path / "plain.csv")


def test_inputs_are_chosen_at_the_start_and_shown(command, data, tmp_path):
    files = ("--vertices", data / "past.csv", "--edges", data / "past-cites.csv", *COLUMNS, *TRAINING)
    refused(command("ws", "init", tmp_path / "ws", *files, "--inputs", "words,class"), "there is no input 'class'")
    refused(command("ws", "init", tmp_path / "ws", *files, "--inputs", "numbers"), "numbers", "has only words")
    assert not (tmp_path / "ws").exists()
    assert command("ws", "init", tmp_path / "ws", *files, "--inputs", "classes")[0] == 0
    assert "inputs classes of older neighbours" in " ".join(command("ws", "status", tmp_path / "ws")[1].split())
    assert json.loads(command("ws", "status", tmp_path / "ws", "--json")[1])["inputs"] == ["classes"]
    assert command("ws", "add", tmp_path / "ws", "--vertices", data / "2014.csv")[0] == 0
    assert command("ws", "predict", tmp_path / "ws")[0] == 0


def test_review_shows_the_groups_and_the_vertices_of_one(command, waiting, tmp_path):
    rows, groups = Workspace(waiting).review(None), Workspace(waiting).groups()
    assert len(groups) > 1
    assert [group.number for group in groups] == list(range(1, len(groups) + 1))
    belongs = {id: group.number for group in groups for id in group.members}
    assert {row.id: row.group for row in rows} == {row.id: belongs.get(row.id) for row in rows}
    assert belongs.keys() <= {row.id for row in rows}

    found = json.loads(command("ws", "review", waiting, "--limit", 3, "--json")[1])
    assert found["groups"] == json.loads(json.dumps([group.as_dict() for group in groups]))
    assert found["groups"][0]["exemplars"][0]["id"] == groups[0].members[0]
    assert found["alone"] == len(rows) - len(belongs)
    assert [row["group"] for row in found["vertices"]] == [row.group for row in rows[:3]]
    assert command("ws", "review", waiting, "--json") == command("ws", "review", waiting, "--json")
    out = command("ws", "review", waiting)[1]
    assert out.startswith("group size edges words")
    assert all(str(id) in out for group in groups[:10] for id, _ in group.exemplars)
    assert f"{len(rows) - len(belongs)} vert" in out
    assert "in no group" in out

    second = [row.id for row in rows if row.group == 2]
    assert len(second) == groups[1].size
    found = json.loads(command("ws", "review", waiting, "--group", 2, "--json")[1])
    assert [row["id"] for row in found["vertices"]] == second
    assert [group["number"] for group in found["groups"]] == [2]
    out = command("ws", "review", waiting, "--group", 2, "--limit", 1)[1]
    assert f"{len(second)} vertices in group 2; 1 shown" in out

    command("ws", "review", waiting, "--out", tmp_path / "all.csv")
    written = rows_of(tmp_path / "all.csv")
    assert list(written[0])[-3:] == ["model", "group", "venue"]
    assert [row["group"] for row in written] == [str(row.group or "") for row in rows]
    out = command("ws", "review", waiting, "--group", 2, "--out", tmp_path / "one.csv")[1]
    assert f"{len(second)} of {len(second)} vertices written" in out
    assert [row["paper"] for row in rows_of(tmp_path / "one.csv")] == second


def test_a_group_becomes_a_class(command, waiting):
    _, second, *_ = Workspace(waiting).groups()
    code, out, _ = command("ws", "classes", "create", waiting, "Second", "--group", 2)
    assert code == 0
    out = " ".join(out.split())
    assert f"{second.size} labels (0 corrected), {second.size} decisions scored" in out
    assert f"group 2: {second.size} vertices of 2014 ({', '.join(second.terms)})" in out
    assert "new classes: Second" in out
    graph = Workspace(waiting).graph
    assert {graph.ids[row] for row in range(len(graph)) if graph.names_of(graph.codes)[row] == "Second"} == {
        *second.members
    }
    # What is left is numbered anew, and nothing that has its label is in a group any more.
    left = Workspace(waiting).groups()
    assert not {*second.members} & {id for group in left for id in group.members}

    # Several groups at once, one of them named twice.
    arguments = [part for group in left for part in ("--group", group.number)]
    found = json.loads(command("ws", "classes", "create", waiting, "Rest", *arguments, "--group", 1, "--json")[1])
    assert found["labels"] == sum(group.size for group in left)
    assert [group["number"] for group in found["groups"]] == [group.number for group in left]
    assert found["groups"][0]["size"] == left[0].size
    assert Workspace(waiting).groups() == []
    before = digest(waiting)
    refused(command("ws", "classes", "create", waiting, "More", "--group", 1), "no group 1", "ws review")
    refused(command("ws", "review", waiting, "--group", 1), "no group 1")
    assert digest(waiting) == before


def test_a_retired_class_can_come_back_with_a_group(command, waiting):
    assert command("ws", "classes", "retire", waiting, "class 01")[0] == 0
    size = Workspace(waiting).groups()[0].size
    support = Workspace(waiting).graph.classes.count_of("class 01")
    assert command("ws", "classes", "create", waiting, "class 01", "--group", 1)[0] == 0
    assert Workspace(waiting).graph.classes.count_of("class 01") == support + size


def test_groups_of_a_workspace_follow_its_version(waiting):
    workspace = Workspace(waiting)
    before = workspace.groups()
    assert [row.id for row in workspace.review(None, group=1)] == [
        row.id for row in workspace.review(None) if row.group == 1
    ]
    with pytest.raises(InputError, match="ids and groups"):
        workspace.create_class("New", before[0].members[:1], groups=[1])
    workspace.label([before[0].members[0]], ["class 00"])
    after = workspace.groups()
    assert after != before
    assert after == Workspace(waiting).groups()
    workspace.rollback(3)
    assert workspace.groups() == before


def test_groups_of_several_slices_are_told_apart_by_their_time(command, data, waiting):
    command("ws", "add", waiting, "--vertices", data / "2015.csv", "--edges", data / "2015-cites.csv")
    command("ws", "predict", waiting)
    groups = Workspace(waiting).groups()
    assert {group.time for group in groups} == {2014, 2015}
    assert [group.size for group in groups] == sorted((group.size for group in groups), reverse=True)
    times = {row.id: row.time for row in Workspace(waiting).review(None)}
    assert all(times[id] == group.time for group in groups for id in group.members)
    assert command("ws", "review", waiting)[1].startswith("group size edges time words")


def test_classes_are_created_renamed_merged_and_retired(command, waiting, tmp_path):
    def classes():
        found = json.loads(command("ws", "classes", "list", waiting, "--json")[1])["classes"]
        assert found == [row.as_dict() for row in Workspace(waiting).classes()]
        return {row["name"]: row for row in found}

    reviewed = [row.id for row in Workspace(waiting).review(4)]
    code, out, _ = command("ws", "classes", "create", waiting, "New", "--ids", ",".join(reviewed[:2]))
    assert code == 0
    assert "Version 4 (classes create)" in out
    assert classes()["New"] | {"first": 2014, "last": 2014, "support": 2, "known": False} == classes()["New"]
    file = write(tmp_path / "ids.csv", [{"nr": name} for name in reviewed[2:]])
    assert command("ws", "classes", "create", waiting, "Newer", "--vertices", file, "--id", "nr")[0] == 0
    assert classes()["Newer"]["support"] == 2

    assert command("ws", "classes", "rename", waiting, "class 00", "Zero")[0] == 0
    assert classes()["Zero"]["known"]
    assert "class 00" not in classes()
    both = sum(classes()[name]["support"] for name in ("class 01", "class 02"))
    assert command("ws", "classes", "merge", waiting, "class 01", "class 02", "--into", "Both")[0] == 0
    assert classes()["Both"]["support"] == both
    assert command("ws", "classes", "retire", waiting, "Zero")[0] == 0
    assert classes()["Zero"]["retired"]
    decided = json.loads(command("ws", "predict", waiting, "--json")[1])["decisions"]
    assert {row["class"] for row in decided} <= {"Both", "unseen"}
    assert command("ws", "classes", "create", waiting, "Zero")[0] == 0
    assert not classes()["Zero"]["retired"]
    out = command("ws", "classes", "list", waiting)[1]
    assert "unknown to the model" in out


@pytest.mark.parametrize("name", ["Class 00", "-class 00", "class\u00a000 "])
def test_a_label_that_resembles_a_class_is_warned_of_and_the_printed_command_merges_it(
    command, waiting, tmp_path, name
):
    rows = [
        {"paper": row.id, "venue": venue} for row, venue in zip(Workspace(waiting).review(2), ["", name], strict=True)
    ]
    code, out, err = command("ws", "label", waiting, "--labels", write(tmp_path / "l.csv", rows), "--json")
    assert code == 0
    (text,) = json.loads(out)["warnings"]
    assert text.startswith(
        f"row 2, vertex {rows[1]['paper']!r}: the new class {name!r} differs from 'class 00' only in "
    )
    assert text in err
    arguments = shlex.split(text.partition(": evergraph ")[2])
    assert command(*arguments)[0] == 0
    assert [row.name for row in Workspace(waiting).classes()] == ["class 00", "class 01", "class 02"]
    graph = Workspace(waiting).graph
    assert graph.labels[graph.find([rows[1]["paper"]])].tolist() == ["class 00"]


def test_reasons_are_lists_and_only_csv_joins_them(command, waiting, tmp_path):
    decisions = json.loads(command("ws", "predict", waiting, "--json")[1])["decisions"]
    for suffix in ("csv", "parquet"):
        assert command("ws", "predict", waiting, "--out", tmp_path / f"out.{suffix}")[0] == 0
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    for row, typed, text in zip(decisions, table, rows_of(tmp_path / "out.csv"), strict=True):
        assert row["nearest"] == typed["nearest"]
        assert [list(one) for one in row["nearest"]] == [["class", "probability"]] * 3
        assert row["neighbours"] == typed["neighbours"]
        assert all(list(one) == ["class", "count"] for one in row["neighbours"])
        assert text["nearest"] == ", ".join(f"{one['class']} {one['probability']:.2f}" for one in row["nearest"])
        assert text["neighbours"] == ", ".join(f"{one['class']} {one['count']}" for one in row["neighbours"])
    review = json.loads(command("ws", "review", waiting, "--json")[1])
    flagged = {row["id"]: row["neighbours"] for row in decisions}
    assert all(row["neighbours"] == flagged[row["id"]] for row in review["vertices"])


def test_vertices_and_edges_are_removed(command, data, waiting, tmp_path):
    graph = Workspace(waiting).graph
    code, out, _ = command("ws", "remove", waiting, "--ids", "p0, p1")
    assert code == 0
    assert "2 vertices and " in out
    file = write(tmp_path / "gone.csv", [{"paper": "p2"}])
    assert command("ws", "remove", waiting, "--vertices", file)[0] == 0
    left = Workspace(waiting).graph
    assert len(left) == len(graph) - 3
    assert not {"p0", "p1", "p2"} & set(left.ids)
    source, target, _ = left.links.ends()
    edge = {"citing": left.ids[int(source[0])], "cited": left.ids[int(target[0])]}
    code, out, _ = command("ws", "remove", waiting, "--edges", write(tmp_path / "edge.csv", [edge]))
    assert code == 0
    assert "0 vertices and 1 edge" in out
    assert Workspace(waiting).graph.n_edges == left.n_edges - 1


def test_a_model_can_be_returned_to_without_its_graph(command, data, waiting):
    command("ws", "label", waiting, "--labels", data / "2014-labels.csv")
    command("ws", "update", waiting, "--restart", "warm")
    code, out, _ = command("ws", "rollback", waiting, 1, "--model-only")
    assert code == 0
    assert "to the model of version 1" in out
    there = Workspace(waiting).status()
    assert (there.model, there.labelled, there.version) == (1, 350, 6)


def test_files_with_other_columns_than_at_first_can_be_read(command, data, made, tmp_path):
    renamed = [
        {"nr": row["paper"], "year": row["year"], "title": row["title"], "kind": "class 01" if place < 5 else ""}
        for place, row in enumerate(rows_of(data / "2014.csv"))
    ]
    file = write(tmp_path / "other.csv", renamed)
    refused(command("ws", "add", made, "--vertices", file), "other.csv", "'paper'", "--id")
    refused(command("ws", "add", made, "--vertices", file, "--id", "nr", "--label", "sort"), "'sort'", "--label")
    found = json.loads(
        command("ws", "add", made, "--vertices", file, "--id", "nr", "--label", "kind", "--no-label", "--json")[1]
    )
    assert found["labelled"] == 0
    assert command("ws", "rollback", made, 1)[0] == 0
    found = json.loads(command("ws", "add", made, "--vertices", file, "--id", "nr", "--label", "kind", "--json")[1])
    assert (found["vertices"], found["labelled"]) == (70, 5)
    labels = write(tmp_path / "labels.csv", [{"nr": renamed[9]["nr"], "kind": "class 02"}])
    assert command("ws", "label", made, "--labels", labels, "--id", "nr", "--label", "kind")[0] == 0
    assert Workspace(made).state.settings.columns.id == "paper"


def test_a_file_of_review_has_all_and_the_terminal_twenty(command, data, tmp_path):
    rows = [{**row, "title": f"new word{place}"} for place, row in enumerate(rows_of(data / "2014.csv"))]
    files = ("--vertices", data / "past.csv", "--edges", data / "past-cites.csv")
    ws, options = tmp_path / "ws", ("--steps", 1, "--history", 1, "--hidden", 2, "--detector", "gdoc:0.99")
    assert command("ws", "init", ws, *files, *COLUMNS, *options)[0] == 0
    assert command("ws", "add", ws, "--vertices", write(tmp_path / "new.csv", rows))[0] == 0
    assert command("ws", "predict", ws, "--quiet")[0] == 0
    all_ = [row.id for row in Workspace(ws).review(None)]
    assert len(all_) > 20
    out = command("ws", "review", ws)[1]
    assert out.count("nearest class") == out.count(", if known") == 20
    assert f"{len(all_)} vertices to review; 20 shown" in out
    assert len(json.loads(command("ws", "review", ws, "--json")[1])["vertices"]) == 20
    for most, wanted in ((), all_), (("--limit", 22), all_[:22]):
        out = command("ws", "review", ws, *most, "--out", tmp_path / "all.csv", "--replace")[1]
        assert [row["paper"] for row in rows_of(tmp_path / "all.csv")] == wanted
        assert f"{len(wanted)} of {len(all_)} vertices written" in out


def with_numbers(path, rows, order, name="emb_{}"):
    """A table of vertices whose features stand in some order."""
    table = []
    for place, row in enumerate(rows):
        numbers = {0: place % 7, 1: 0.5 * place, 2: -place}
        table.append({"paper": row["paper"], "year": row["year"], "venue": row.get("venue", "")})
        table[-1] |= {name.format(column): numbers[column] for column in order}
    return write(path, table)


def test_feature_columns_of_a_slice_are_matched_by_name(command, data, tmp_path):
    past, new = rows_of(data / "past.csv"), rows_of(data / "2014.csv")
    first = with_numbers(tmp_path / "past.csv", past, (2, 0, 1))
    names = [part for option in ("id", "time", "label", "source", "target") for part in (f"--{option}", NAMES[option])]
    files = ("--vertices", first, "--edges", data / "past-cites.csv", "--features", "emb_*")
    assert command("ws", "init", tmp_path / "ws", *files, *names, *TRAINING)[0] == 0
    ws = tmp_path / "ws"
    assert Workspace(ws).state.settings.columns.numbers == ("emb_2", "emb_0", "emb_1")

    def inputs(path, *options):
        folder = Path(shutil.copytree(ws, tmp_path / f"copy-{len(list(tmp_path.iterdir()))}"))
        code, _, err = command("ws", "add", folder, "--vertices", path, *options)
        assert code == 0, err
        return Workspace(folder).graph.window(2014, 2014).inputs().tolist()

    expected = [[-place, place % 7, 0.5 * place] for place in range(len(new))]
    same, other = (
        with_numbers(tmp_path / f"{name}.csv", new, order) for name, order in (("s", (2, 0, 1)), ("o", (0, 1, 2)))
    )
    assert inputs(same) == inputs(other) == expected
    assert inputs(other, "--features", "emb_*") == expected  # said again, it means the same columns
    assert inputs(other, "--features", "emb_0,emb_1,emb_2") == expected
    renamed = with_numbers(tmp_path / "renamed.csv", new, (0, 1, 2), "x{}")
    assert inputs(renamed, "--features", "x2,x0,x1") == expected

    before = digest(ws)
    lacking = with_numbers(tmp_path / "lacking.csv", new, (2, 0))
    refused(command("ws", "add", ws, "--vertices", lacking), "lacking.csv", "'emb_1'")
    refused(command("ws", "add", ws, "--vertices", lacking, "--features", "emb_*"), "'emb_1' is missing")
    refused(command("ws", "add", ws, "--vertices", renamed), "renamed.csv", "'emb_2'", "--numbers")
    refused(command("ws", "add", ws, "--vertices", renamed, "--features", "x*"), "one by one")
    assert digest(ws) == before


def with_columns(path, rows, **changed):
    """A table of vertices with numbers, truth values and categories beside the text."""
    more = [
        {"pages": at % 9 or "", "open": ("true", "false")[at % 2], "kind": "abc"[at % 3]} for at in range(len(rows))
    ]
    more[3] |= changed
    return write(path, [row | extra for row, extra in zip(rows, more, strict=True)])


@pytest.mark.parametrize("imported", [False, True])
def test_text_numbers_and_categories_go_through_a_workspace(command, data, tmp_path, imported):
    first = with_columns(tmp_path / "past.csv", rows_of(data / "past.csv"))
    files = ("--vertices", first, "--edges", data / "past-cites.csv", *COLUMNS)
    named, ws = ("--numbers", "pages,o*", "--categories", "kind"), tmp_path / "ws"
    if imported:
        assert command("import", "tables", *files, *named, "--out", tmp_path / "graph")[0] == 0
        assert command("ws", "init", ws, "--graph", tmp_path / "graph", *COLUMNS, *TRAINING)[0] == 0
    else:
        assert command("ws", "init", ws, *files, *named, *TRAINING)[0] == 0
    columns = Workspace(ws).state.settings.columns
    assert (columns.numbers, columns.categories) == (("pages", "open"), ("kind",))
    assert "2 numbers, 3 categories" in Workspace(ws).graph.features.summary

    new, before = rows_of(data / "2014.csv"), digest(ws)
    bad = with_columns(tmp_path / "bad.csv", new, pages="many")
    place = "row 4 (line 5)"
    refused(command("ws", "add", ws, "--vertices", bad), "bad.csv", "'pages'", place, "'many' is not a number", "Write")
    bad = with_columns(tmp_path / "bad.csv", new, pages="inf")
    refused(command("ws", "add", ws, "--vertices", bad), "bad.csv", "'pages'", place, "infinite")
    refused(command("ws", "add", ws, "--vertices", data / "2014.csv"), "2014.csv", "'pages'", "--numbers")
    assert digest(ws) == before

    slice_ = with_columns(tmp_path / "new.csv", new, kind="new", pages="NA")
    assert command("ws", "add", ws, "--vertices", slice_)[0] == 0
    assert command("ws", "predict", ws)[0] == 0
    assert command("ws", "verify", ws)[0] == 0
    graph = Workspace(ws).graph
    features, start = graph.features, graph.window(2014, 2014).rows.start
    assert list(features.categories.columns) == ["kind=a", "kind=b", "kind=c", "kind=new"]
    assert np.isnan(features.numbers.values[start : start + 5, 0]).tolist() == [True, False, False, True, False]
    assert features.texts[start] == new[0]["title"]


def test_a_graph_folder_with_numbers_as_ids_goes_on_with_text_files(command, tmp_path):
    graph = synthetic(vertices=200, times=4, classes=3, new_classes=1, seed=2)
    vertices, edges = to_tables(graph, None, 2)
    pq.write_table(vertices, tmp_path / "v.parquet")
    pq.write_table(edges, tmp_path / "e.parquet")
    read_tables(tmp_path / "v.parquet", tmp_path / "e.parquet").save(tmp_path / "graph")
    assert command("ws", "init", tmp_path / "ws", "--graph", tmp_path / "graph", *TRAINING)[0] == 0
    coming, links = (table.to_pylist() for table in to_tables(graph, 3, 3, labels=False))
    slice_ = write(tmp_path / "slice.csv", coming[10:])
    assert command("ws", "add", tmp_path / "ws", "--vertices", slice_)[0] == 0
    assert command("ws", "predict", tmp_path / "ws")[0] == 0
    more = (write(tmp_path / "more.csv", coming[:10]), write(tmp_path / "links.csv", links))
    assert command("ws", "add", tmp_path / "ws", "--vertices", more[0], "--edges", more[1])[0] == 0
    found = json.loads(command("ws", "status", tmp_path / "ws", "--json")[1])
    assert (found["undecided"], found["edges"]) == (10, graph.n_edges)
    truth = to_tables(graph, 3, 3)[0].select(["id", "label"]).to_pylist()
    found = json.loads(
        command("ws", "label", tmp_path / "ws", "--labels", write(tmp_path / "l.csv", truth), "--json")[1]
    )
    assert (found["labels"], found["scored"]) == (len(truth), len(coming) - 10)


# --- how it speaks ---------------------------------------------------------------------------------------------------


def test_for_people_all_fits_eighty_columns_and_says_what_is_next(command, data, waiting, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(waiting.parent)
    shown = {}
    for arguments in (
        ("predict", "ws"),
        ("review", "ws"),
        ("label", "ws", "--labels", data / "2014-labels.csv"),
        ("status", "ws"),
        ("update", "ws", "--restart", "warm"),
        ("scores", "ws"),
        ("log", "ws"),
        ("classes", "list", "ws"),
    ):
        code, out, err = command("ws", *arguments)
        assert code == 0, err
        assert max(map(len, out.splitlines())) <= 80, arguments
        shown[arguments[0]] = out
    assert "23 of 70 vertices of 2014 flagged as unseen by model 1" in shown["predict"]
    assert "and 50 more" in shown["predict"]
    assert shown["label"].splitlines()[-2:] == ["Next: evergraph ws update ws", "      70 new labels to train on"]
    assert "scores 2014, with 70 of 70 labels: accuracy" in " ".join(shown["status"].split())
    assert shown["log"].count("\n") > 6
    assert "evergraph ws rollback ws VERSION" in shown["log"]
    assert "2014" in shown["scores"]


def test_scores_of_months_fit_eighty_columns(command, data, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("past", "2014"):
        rows = [{**row, "year": f"{row['year']}-11"} for row in rows_of(data / f"{name}.csv")]
        write(tmp_path / f"{name}.csv", rows)
    files = ("--vertices", tmp_path / "past.csv", "--edges", data / "past-cites.csv", "--every", "month")
    ws = tmp_path / "ws"
    assert command("ws", "init", ws, *files, *COLUMNS, "--steps", 2, "--history", "full", "--hidden", 2)[0] == 0
    slice_ = ("--vertices", tmp_path / "2014.csv", "--edges", data / "2014-cites.csv")
    for arguments in (("add", ws, *slice_), ("predict", ws), ("label", ws, "--labels", data / "2014-labels.csv")):
        assert command("ws", *arguments, "--quiet")[0] == 0
    code, out, _ = command("ws", "scores", ws)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    head, row, *_ = out.splitlines()
    heads = "time decided labels accuracy Open-F1 MCC flagged unseen drift late model"
    assert head.replace("unseen %", "unseen").split() == heads.split()
    assert row.split()[:3] == ["2014-11", "70", "70"]
    assert len(row.split()) == len(heads.split())


def test_the_widest_scores_drop_their_last_columns_at_eighty(capsys):
    from rich.console import Console

    from evergraph.cli.ws_output import show_scores
    from evergraph.workspace.scores import SliceScores

    shares = {"accuracy": 0.5, "id_accuracy": 0.5, "open_f1": 0.5, "mcc": -0.5, "flagged": 1.0, "unseen": 1.0}
    row = SliceScores(
        time="2014-03-31", decided=1_000_000, labelled=1_000_000, models=(97, 98, 99), latency=11.5, drift=0.5, **shares
    )
    for width, columns in ((80, 9), (100, 11)):
        show_scores(Console(width=width), [row])
        out = capsys.readouterr().out
        head, told, *_ = out.splitlines()
        assert max(map(len, out.splitlines())) <= width
        assert len(head.replace("unseen %", "unseen").split()) == len(told.split()) == columns
        assert "…" not in head + told
        assert ("Not shown at this width: late; model" in out) == (columns < 11)
    assert told.rstrip().endswith("97-99")


def test_one_is_told_in_the_singular(command, data, waiting, tmp_path):
    for row in Workspace(waiting).review(None)[1:]:
        Workspace(waiting).label([row.id], ["class 00"])
    assert "1 vertex to review" in command("ws", "review", waiting)[1]
    out = command("ws", "review", waiting, "--out", tmp_path / "one.csv")[1]
    assert out.startswith("1 of 1 vertex written to")
    files = ("--vertices", data / "past.csv", "--edges", data / "past-cites.csv")
    out = command("ws", "init", tmp_path / "new", *files, *COLUMNS, "--steps", 1, "--history", 1)[1]
    assert "- history of 1 period, as requested\n" in out


def test_nothing_to_show_is_said(command, made):
    assert "There are no decisions yet" in command("ws", "scores", made)[1]
    assert "No unlabelled vertex" in command("ws", "review", made)[1]


def test_quiet_is_quiet(command, data, waiting, tmp_path):
    for arguments in (
        ("status", waiting),
        ("log", waiting),
        ("scores", waiting),
        ("review", waiting),
        ("classes", "list", waiting),
        ("predict", waiting, "--out", tmp_path / "out.csv"),
        ("label", waiting, "--labels", data / "2014-labels.csv"),
        ("update", waiting, "--restart", "warm"),
        ("rollback", waiting, 1),
    ):
        assert command("ws", *arguments, "--quiet") == (0, "", ""), arguments


def test_names_in_brackets_are_not_taken_for_colours(command, waiting, tmp_path):
    odd = write(tmp_path / "odd.csv", [{"paper": "p0", "venue": "[red]x[/red]"}])
    assert "[red]x[/red]" in command("ws", "label", waiting, "--labels", odd)[1]
    assert "[red]x[/red]" in command("ws", "classes", "list", waiting)[1]
    assert "[red]x[/red]" in command("ws", "log", waiting)[1].replace("\n", "")


def test_help_of_all_commands_needs_nothing_heavy():
    code = """
import contextlib, io, sys
from evergraph.cli import main
words = "init add remove predict label update rollback review status scores log".split()
for rest in ([], ["classes"], *([word] for word in words), *(["classes", word] for word in ("list", "create", "merge"))):
    sys.argv = ["evergraph", "ws", *rest, "--help"]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main()
    assert "Example: evergraph ws" in shown.getvalue(), rest
sys.exit(str({"torch", "numba", "matplotlib", "pyarrow", "scipy", "pandas"} & set(sys.modules)).replace("set()", ""))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_a_similar_command_is_suggested(command):
    code, _, err = command("ws", "statsu")
    assert code == 2
    assert "Did you mean 'status'?" in err


def test_tab_completes_the_commands():
    asked = {"_EVERGRAPH_COMPLETE": "complete_bash", "COMP_WORDS": "evergraph ws classes re", "COMP_CWORD": "3"}
    script = Path(sys.executable).parent / "evergraph"
    done = subprocess.run([script], env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["rename", "retire"]


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.fixture
def bad(tmp_path):
    """Files that something is wrong with, by name."""
    folder = tmp_path / "bad"
    folder.mkdir()
    known = {"paper": "p0", "year": 2014, "title": "a word"}
    tables = {
        "old": [{"paper": "new", "year": 2012, "title": "a word"}],
        "known": [known],
        "no-time": [{"paper": "new", "title": "a word"}],
        "no-text": [{"paper": "new", "year": 2014}],
        "no-such-time": [{"paper": "new", "year": "soon", "title": "a word"}],
        "unknown": [{"paper": "p1", "venue": "class 01"}, {"paper": "nobody", "venue": "class 01"}],
        "no-label": [{"paper": "p1", "name": "class 01"}],
        "empty": [{"paper": "p1", "venue": ""}],
        "contradicting": [{"paper": "p1", "venue": "class 01"}, {"paper": "p1", "venue": "class 02"}],
        "unseen": [{"paper": "p1", "venue": "Unseen"}],
        "dangling": [{"citing": "p1", "cited": "nobody"}],
        "no-edge": [{"citing": "p1", "cited": "p1"}],
    }
    for name, rows in tables.items():
        write(folder / f"{name}.csv", rows)
    (folder / "nothing.csv").write_text("")
    (folder / "header.csv").write_text("paper,year,title\n")
    (folder / "names.xlsx").write_text("x")
    return folder


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        # add
        (["add", "WS"], ["nothing to add", "vertices, edges"]),
        (["add", "WS", "--vertices", "BAD/old.csv"], ["2012", "2014", "in the order of time"]),
        (["add", "WS", "--vertices", "BAD/known.csv"], ["'p0'", "already"]),
        (["add", "WS", "--vertices", "BAD/no-time.csv"], ["'year'", "--time"]),
        (["add", "WS", "--vertices", "BAD/no-text.csv"], ["'title'", "--text"]),
        (["add", "WS", "--vertices", "BAD/no-such-time.csv"], ["'soon'", "row 1"]),
        (["add", "WS", "--vertices", "BAD/missing.csv"], ["missing.csv", "no such file"]),
        (["add", "WS", "--vertices", "BAD/nothing.csv"], ["nothing.csv", "empty"]),
        (["add", "WS", "--vertices", "BAD/header.csv"], []),
        (["add", "WS", "--vertices", "BAD/names.xlsx"], ["names.xlsx", "format"]),
        (["add", "WS", "--edges", "BAD/dangling.csv"], ["'nobody'", "--drop-dangling"]),
        # predict
        (["predict", "WS", "--out", "BAD/out.xlsx"], ["out.xlsx", ".csv or .parquet"]),
        (["predict", "WS", "--out", "BAD"], ["format"]),
        (["predict", "WS", "--out", "BAD/no/out.csv"], ["this folder does not exist"]),
        (["predict", "WS", "--out", "BAD/old.csv"], ["--replace"]),
        (["predict", "WS", "--time", "2042"], ["2042", "Choose one of 2014"]),
        (["predict", "WS", "--time", "soon"], ["Error: 'soon' is not a time"]),
        # label
        (["label", "WS", "--labels", "BAD/unknown.csv"], ["'nobody'", "row 2", "Add the vertex first"]),
        (["label", "WS", "--labels", "BAD/no-label.csv"], ["'venue'", "--label"]),
        (["label", "WS", "--labels", "BAD/contradicting.csv"], ["class 02", "row 1", "row 2"]),
        (["label", "WS", "--labels", "BAD/unseen.csv"], ["'Unseen'"]),
        # review
        (["review", "WS", "--out", "BAD/out.parquet"], [".csv"]),
        (["review", "WS", "--group", "99"], ["no group 99", "Choose"]),
        (["review", "WS", "--group", "0", "--out", "BAD/new.csv"], ["no group 0", "Choose"]),
        # classes
        (["classes", "create", "WS", "unseen", "--ids", "p1"], ["'unseen'", "another name"]),
        (["classes", "create", "WS", "class 01", "--ids", "p1"], ["already"]),
        (["classes", "create", "WS", "New"], ["needs vertices"]),
        (["classes", "create", "WS", "New", "--ids", "nobody"], ["'nobody'"]),
        (["classes", "create", "WS", "New", "--vertices", "BAD/unknown.csv"], ["'nobody'", "unknown.csv", "row 2"]),
        (["classes", "create", "WS", "New", "--ids", "p1", "--vertices", "BAD/empty.csv"], ["--vertices and --ids"]),
        (["classes", "create", "WS", "New", "--group", "99"], ["no group 99", "ws review"]),
        (["classes", "create", "WS", "New", "--group", "-1"], ["no group -1"]),
        (["classes", "create", "WS", "New", "--group", "1", "--group", "99"], ["no group 99"]),
        (["classes", "create", "WS", "class 01", "--group", "1"], ["already"]),
        (["classes", "create", "WS", "unseen", "--group", "1"], ["'unseen'"]),
        (["classes", "create", "WS", "New", "--group", "1", "--ids", "p1"], ["--group and --ids"]),
        (["classes", "create", "WS", "New", "--group", "1", "--vertices", "BAD/empty.csv"], ["--group and --vertices"]),
        (["classes", "rename", "WS", "nothing", "New"], ["'nothing'", "classes list"]),
        (["classes", "rename", "WS", "class 01", "unseen"], ["'unseen'"]),
        (["classes", "rename", "WS", "class 01", "class 02"], ["already", "merge"]),
        (["classes", "merge", "WS", "class 01", "nothing", "--into", "New"], ["'nothing'"]),
        (["classes", "retire", "WS", "nothing"], ["'nothing'"]),
        # versions
        (["rollback", "WS", "99"], ["99", "Choose a version from 1 to 3"]),
        (["rollback", "WS", "0"], ["version 0 does not exist"]),
        # remove
        (["remove", "WS"], ["no vertices or edges to remove"]),
        (["remove", "WS", "--ids", "nobody"], ["'nobody'"]),
        (["remove", "WS", "--vertices", "BAD/unknown.csv"], ["'nobody'", "row 2"]),
        (["remove", "WS", "--edges", "BAD/no-edge.csv"], ["no edge"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_one_sentence_and_changes_nothing(command, waiting, bad, arguments, words):
    before, files = digest(waiting), digest(bad)
    given = [part.replace("WS", str(waiting)).replace("BAD", str(bad)) for part in arguments]
    refused(command("ws", *given), *words)
    assert digest(waiting) == before
    assert digest(bad) == files


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_decided(command, data, made, tmp_path):
    command("ws", "add", made, "--vertices", data / "2014.csv", "--edges", data / "2014-cites.csv")
    before = digest(made)
    for out in ("out.txt", "out", "no/out.csv", "."):
        refused(command("ws", "predict", made, "--out", tmp_path / out))
        assert digest(made) == before
    assert json.loads(command("ws", "status", made, "--json")[1])["undecided"] == 70


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["update", "WS"], "no labels have arrived since the model was trained"),
        (["label", "WS", "--labels", "BAD/empty.csv"], "BAD/empty.csv: there are no labels"),
        (["label", "WS", "--labels", "DATA/past-labels.csv"], "these vertices have these labels already"),
        (["predict", "WS", "--time", "2011"], "every vertex of 2011 has a label"),
        (["add", "WS", "--edges", "DATA/2014-cites.csv"], "there are no new vertices or edges"),
        (["add", "WS", "--edges", "BAD/dangling.csv", "--drop-dangling"], "there are no new vertices or edges"),
        (["remove", "WS", "--vertices", "BAD/nobody.csv"], "there are no vertices or edges to remove in the file"),
        (["rollback", "WS", "3"], "version 3 is the current one"),
        (["rollback", "WS", "1", "--model-only"], "the model of version 1 is the current one"),
        (["classes", "rename", "WS", "class 01", "class 01"], "the class is already called 'class 01'"),
        (["classes", "merge", "WS", "class 01", "--into", "class 01"], "class 01 is one class already"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_nothing_to_do_is_said_and_succeeds(command, data, waiting, bad, arguments, why):
    (bad / "nobody.csv").write_text("paper\n")
    before, places = digest(waiting), {"WS": waiting, "BAD": bad, "DATA": data}

    def filled(text):
        for name, place in places.items():
            text = text.replace(name, str(place))
        return text

    code, out, err = command("ws", *map(filled, arguments))
    first, following, _ = out.splitlines()
    assert (code, first) == (0, f"Nothing to do: {filled(why)}."), err
    assert following.startswith("Next: evergraph ws review ")
    found = json.loads(command("ws", *map(filled, arguments), "--json")[1])
    assert (found["what"], found["version"]) == (f"nothing to do: {filled(why)}.", 3)
    assert "error" not in found
    assert command("ws", *map(filled, arguments), "--quiet")[:2] == (0, "")
    assert digest(waiting) == before


def test_when_everything_is_labelled_there_is_nothing_to_decide(command, made, tmp_path):
    before = digest(made)
    code, out, _ = command("ws", "predict", made, "--out", tmp_path / "out.csv")
    assert (code, out.splitlines()[0]) == (0, "Nothing to do: every vertex has a label.")
    assert digest(made) == before
    assert not (tmp_path / "out.csv").exists()


def test_labels_of_a_retired_class_are_refused(command, waiting, tmp_path):
    for name in ("class 01", "class 02"):
        assert command("ws", "classes", "retire", waiting, name)[0] == 0
    before = digest(waiting)
    file = write(tmp_path / "retired.csv", [{"paper": "p300", "venue": "class 01"}])
    refused(command("ws", "label", waiting, "--labels", file), "retired", "ws classes create")
    code, out, _ = command("ws", "classes", "retire", waiting, "class 01")
    assert (code, out.splitlines()[0]) == (0, "Nothing to do: the class 'class 01' is retired already.")
    refused(command("ws", "classes", "retire", waiting, "class 00"), "the model would have no class left")
    assert digest(waiting) == before


def test_init_refuses_what_it_cannot_start_from(command, data, waiting, tmp_path):
    files = ("--vertices", data / "past.csv", "--edges", data / "past-cites.csv")
    before = digest(waiting)
    refused(command("ws", "init", waiting, *files, *COLUMNS, *TRAINING), "a workspace already")
    assert digest(waiting) == before
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "letter.txt").write_text("dear")
    before = digest(taken)
    refused(command("ws", "init", taken, *files, *COLUMNS, *TRAINING), "the folder is not empty")
    assert digest(taken) == before
    refused(command("ws", "init", taken / "letter.txt", *files, *COLUMNS, *TRAINING), "a file, not a folder")

    new = tmp_path / "new"
    refused(command("ws", "init", new), "--vertices and --edges")
    refused(command("ws", "init", new, "--vertices", data / "past.csv"), "--vertices and --edges")
    refused(command("ws", "init", new, "--graph", "synthetic", *files), "--graph and --vertices")
    refused(command("ws", "init", new, "--graph", "synthetic", "--every", "year"), "--graph and --every")
    refused(command("ws", "init", new, "--graph", "no-such-graph"), "no such graph")
    refused(command("ws", "init", new, *files, *COLUMNS, "--history", "none"), "--history")
    refused(command("ws", "init", new, *files, *COLUMNS, "--history", "2", "--lr", "-1"), "lr")
    refused(command("ws", "init", new, *files, *COLUMNS, "--detector", "none", "--threshold", ".5"), "threshold")
    unlabelled = ("--vertices", data / "2014.csv", "--edges", data / "2014-cites.csv", "--drop-dangling")
    code, _, err = command("ws", "init", new, *unlabelled, *COLUMNS, *TRAINING)
    assert code == 2
    assert "'venue'" in err
    assert "--no-label" not in err  # which this command does not have
    empty = write(tmp_path / "empty.csv", [{**row, "venue": ""} for row in rows_of(data / "past.csv")])
    arguments = ("--vertices", empty, "--edges", data / "past-cites.csv", *COLUMNS, *TRAINING)
    refused(command("ws", "init", new, *arguments), "no vertex has a label")
    assert not new.exists()


def test_a_folder_that_is_no_workspace(command, tmp_path):
    for arguments in (("status",), ("predict",), ("log",), ("classes", "list"), ("update",)):
        refused(command("ws", *arguments, tmp_path / "nowhere"), "this workspace does not exist", "ws init")
        refused(command("ws", *arguments, tmp_path), "is not a workspace", "ws init")
    assert list(tmp_path.iterdir()) == []


# --- what is damaged -------------------------------------------------------------------------------------------------


def garbage(ws):
    (ws / "workspace.db").write_text("{]")


def foreign(ws):
    execute(ws, "PRAGMA application_id = 7")


def of_a_newer_version(ws):
    execute(ws, "PRAGMA user_version = 99")


def a_byte_of_the_version(ws):
    execute(ws, "UPDATE states SET edges = edges + 1")


def without_its_version(ws):
    execute(ws, "DELETE FROM states")


def execute(ws, sql):
    with contextlib.closing(sqlite3.connect(ws / "workspace.db")) as connection:
        connection.execute(sql)
        connection.commit()


def without_a_segment(ws):
    next((ws / "objects").glob("*.segment")).unlink()


def with_a_short_segment(ws):
    path = next((ws / "objects").glob("*.segment"))
    path.write_bytes(path.read_bytes()[:-1])


LOOKING, CHANGING = ("status", "scores", "log"), ("predict", "label", "add", "rename", "remove")


@pytest.mark.parametrize(
    ("damage", "words", "names"),
    [
        (garbage, ["workspace.db", "cannot be read", "backup"], LOOKING + CHANGING),
        (foreign, ["workspace.db", "not the database of an Evergraph workspace"], LOOKING + CHANGING),
        (of_a_newer_version, ["99", "Update Evergraph"], LOOKING + CHANGING),
        (a_byte_of_the_version, ["workspace.db", "not what was saved"], LOOKING + CHANGING),
        (without_its_version, ["workspace.db", "version 3, the current one, is incomplete"], LOOKING + CHANGING),
        (without_a_segment, [".segment", "cannot be read"], CHANGING),
        (with_a_short_segment, [".segment", "not those that were saved"], CHANGING),
    ],
)
def test_a_damaged_workspace_is_told_and_left_alone(command, data, waiting, damage, words, names):
    damage(waiting)
    before = digest(waiting)
    commands = {
        "status": ("status", waiting),
        "scores": ("scores", waiting),
        "log": ("log", waiting),
        "predict": ("predict", waiting),
        "label": ("label", waiting, "--labels", data / "2014-labels.csv"),
        "add": ("add", waiting, "--vertices", data / "2015.csv", "--edges", data / "2015-cites.csv"),
        "rename": ("classes", "rename", waiting, "class 01", "New"),
        "remove": ("remove", waiting, "--ids", "p1"),
    }
    for name in names:
        refused(command("ws", *commands[name]), *words)
        assert digest(waiting) == before, name
    refused(command("ws", "verify", waiting), *words) if damage is not without_its_version else None


def test_a_model_that_is_damaged(command, data, waiting):
    path = waiting / "objects" / Workspace(waiting).state.tensors
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    before = digest(waiting)
    for arguments in (("predict", waiting), ("verify", waiting)):
        refused(command("ws", *arguments), "not those that were saved")
        assert digest(waiting) == before


def test_verify_and_wait(command, data, waiting):
    code, out, _ = command("ws", "verify", waiting, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["objects"] == len(list((waiting / "objects").iterdir()))
    assert "No damage" in command("ws", "verify", waiting)[1]
    with locked(waiting, "workspace"):
        refused(command("ws", "predict", waiting, "--wait", "0.1"), "waited 0.1 s", code=3)


# --- what comes in between -------------------------------------------------------------------------------------------


def test_ctrl_c_changes_nothing(command, data, waiting, tmp_path, monkeypatch):
    command("ws", "label", waiting, "--labels", data / "2014-labels.csv")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    before = digest(waiting)
    with monkeypatch.context() as patch:
        patch.setattr(LifelongLearner, "adapt", interrupted)
        assert command("ws", "update", waiting) == (130, "", "Interrupted; nothing was changed.\n")
        assert digest(waiting) == before
        files = ("--vertices", data / "past.csv", "--edges", data / "past-cites.csv")
        done = command("ws", "init", tmp_path / "new", *files, *COLUMNS, *TRAINING)
        assert done == (130, "", "Interrupted; nothing was changed.\n")
        assert not (tmp_path / "new").exists()
    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "scores", interrupted)
        assert command("ws", "scores", waiting) == (130, "", "Interrupted; nothing was changed.\n")


def test_ctrl_c_after_it_is_done_says_so(command, data, waiting, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "status", interrupted)
        code, _, err = command("ws", "label", waiting, "--labels", data / "2014-labels.csv")
    assert code == 130
    assert err == f"Interrupted, but the change was made: see evergraph ws log {waiting}.\n"
    assert Workspace(waiting).status().version == 4


def test_two_commands_at_once(command, data, waiting):
    before = digest(waiting)
    with locked(waiting, "workspace"):
        refused(command("ws", "predict", waiting), "another process is writing this workspace", "Wait", code=3)
        assert command("ws", "status", waiting)[0] == 0
    assert digest(waiting) == before


def test_several_times_that_could_not_be_written_are_told_one_by_one(tmp_path, monkeypatch):
    import pyarrow as pa

    from evergraph.cli.ws import _write_decisions
    from evergraph.errors import EvergraphError

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("evergraph.storage.files.write_atomic", full)
    with pytest.raises(EvergraphError, match="once for each of --time 2003, --time 2006, with a file for each"):
        _write_decisions(tmp_path / "out.csv", pa.table({"time": [2003, 2006, 2006]}))


def test_decisions_are_kept_where_their_file_cannot_be_written(command, data, made, tmp_path, monkeypatch):
    command("ws", "add", made, "--vertices", data / "2014.csv", "--edges", data / "2014-cites.csv")
    out = tmp_path / "out.csv"

    def full(path, data):
        path.with_name(f"{path.name}.new").write_bytes(data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("evergraph.storage.files.write_atomic", full)  # the store has its own name for it
        code, _, err = command("ws", "predict", made, "--out", out)
    assert code == 4
    assert "the decisions are stored" in err
    assert "run the same command again with --time 2014." in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ws"]
    found = json.loads(command("ws", "predict", made, "--time", 2014, "--out", out, "--json")[1])
    assert (found["version"], found["decided"]) == (3, 70)
    assert len(rows_of(out)) == 70


# --- names that a terminal or a spreadsheet would obey ---------------------------------------------------------------

HARMFUL = ["\x1b[2J", "\x9b31m", "\u202egnp"]
FORMULAS = ["=cmd()", "'=cmd()", "-2+3", "@sum", "\tx", "\rx", "-1.5", "+1", "''@", "'plain"]


@pytest.fixture
def harmful(made, data, tmp_path):
    """A workspace with harmful class names, and a decided slice with formulas and control characters as ids."""
    workspace = Workspace(made)
    for old, new in zip([row.name for row in workspace.classes()], HARMFUL, strict=False):
        workspace.rename_class(old, new)
    ids = [*FORMULAS, *HARMFUL]
    papers = [{"paper": id, "year": 2014, "title": "word"} for id in ids]
    past = rows_of(data / "past.csv")[-1]["paper"]
    vertices = write(tmp_path / "new.csv", papers)
    workspace.add(vertices, write(tmp_path / "new-cites.csv", [{"citing": id, "cited": past} for id in ids]))
    workspace.predict()
    return made


def shown_safely(text):
    return all(line.isprintable() for line in text.split("\n"))


def test_control_characters_in_names_are_shown_escaped(command, harmful, tmp_path):
    code, out, _ = command("ws", "classes", "list", harmful)
    assert code == 0
    assert shown_safely(out)
    assert all(repr(name)[1:-1] in out for name in HARMFUL)
    labels = write(tmp_path / "labels.csv", [{"paper": "@sum", "venue": "new\x1b[31m"}])
    wrong = write(tmp_path / "wrong.csv", [{"paper": "@sum", "venue": "x", "\x1b[2J": "", "\u202ex": ""}])
    for words in (
        ("predict", harmful, "--time", 2014),
        ("review", harmful),
        ("label", harmful, "--labels", labels),
        ("update", harmful),
        ("status", harmful),
        ("log", harmful),
        ("classes", "retire", harmful, "\x9b31m"),
        ("label", harmful, "--labels", wrong, "--id", "\x1b[2J?"),
        ("label", harmful, "--labels", tmp_path / "\x1b[2J.csv"),
        ("classes", "rename", harmful, "\x1b[3J", "x"),
        ("log", tmp_path / "\u202ews"),
    ):
        _, out, err = command("ws", *words)
        assert shown_safely(out), (words, out)
        assert shown_safely(err), (words, err)
        assert out or err
    code, out, _ = command("ws", "classes", "list", harmful, "--json")
    assert shown_safely(out)
    assert {*HARMFUL, "new\x1b[31m"} <= {row["name"] for row in json.loads(out)["classes"]}


def test_formulas_are_written_as_text_and_read_back(command, harmful, tmp_path):
    ids = {*FORMULAS, *HARMFUL}
    out = tmp_path / "decisions.csv"
    assert command("ws", "predict", harmful, "--time", 2014, "--out", out)[0] == 0
    rows = rows_of(out)
    assert not {row["id"][0] for row in rows if row["id"] != "-1.5"} & set("=+-@\t\r")
    assert {"'=cmd()", "''=cmd()", "-1.5", "'plain"} <= {row["id"] for row in rows}
    assert {row["spreadsheet_safe"] for row in rows} == {"yes"}
    raw = tmp_path / "raw.csv"
    command("ws", "predict", harmful, "--time", 2014, "--out", raw, "--raw-cells")
    assert {row["id"] for row in rows_of(raw)} == ids
    assert "spreadsheet_safe" not in rows_of(raw)[0]

    label = {id: f"={id}" for id in ids}
    original = [row["id"] for row in rows_of(raw)]
    given = [row | {"label": f"'{label[id]}"} for row, id in zip(rows, original, strict=True)]
    write(out, given)
    code, said, err = command("ws", "label", harmful, "--labels", out, "--id", "id", "--label", "label", "--json")
    assert code == 0, err
    assert json.loads(said)["labels"] == len(ids)
    graph = Workspace(harmful).graph
    assert {id: str(graph.names_of(graph.codes[graph.find([id])])[0]) for id in ids} == label


@pytest.mark.parametrize("raw", [False, True])
def test_a_review_file_with_formulas_is_read_back(tmp_path, raw):
    from evergraph.cli.ws_output import write_review
    from evergraph.datasets.tables import read_ids
    from evergraph.workspace.review import FlaggedVertex

    ids = [*FORMULAS, *HARMFUL]
    names = {"id": "", "time": 2014, "score": -1.5, "best": "=a", "probability": 0.5, "words": (), "neighbours": ()}
    found = [FlaggedVertex(**names | {"id": id, "model": 1, "group": None}) for id in ids]
    write_review(tmp_path / "review.csv", found, "=id", "label", raw=raw)
    assert {row["score"] for row in rows_of(tmp_path / "review.csv")} == {"-1.5"}
    column, labels, _ = read_ids(tmp_path / "review.csv", "=id", "best")
    assert column.to_pylist() == ids
    assert set(labels.to_pylist()) == {"=a"}
