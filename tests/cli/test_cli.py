"""The command, as a person or a script uses it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from evergraph import EvolvingGraph, cli
from evergraph.analysis import first_task, tdiff
from evergraph.cli import inspect
from evergraph.datasets import synthetic
from evergraph.graph.arrays import fingerprint
from evergraph.learning.task import choose_history

EVERGRAPH = [sys.executable, "-c", "from evergraph.cli import main; main()"]


def evergraph(*arguments, **options):
    return subprocess.run([*EVERGRAPH, *map(str, arguments)], capture_output=True, text=True, check=False, **options)


def test_inspect_json_has_what_scripts_need(command):
    code, out, err = command("inspect", "metamath", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["vertices"] == 25_729
    assert found["edges"] == 461_874
    assert found["classes"] == 74
    assert (found["first_time"], found["last_time"], found["first_task"]) == (1992, 2020, 2007)
    assert (found["new_classes"], found["unseen_vertices"], found["test_vertices"]) == (36, 2_228, 18_337)
    assert 0 < found["homophily"] < 1
    assert list(found["history"]) == ["25", "50", "75", "100"]
    assert found["history"]["100"] == 28
    assert found["pairs"] > found["edges"]
    assert (found["auto_history"], found["past_history"]) == (2, {"25": 1, "50": 2, "75": 7, "100": 14})
    assert list(found["window_vertices"]) == ["25", "50", "75", "100", "full"]
    assert sorted(found["window_vertices"].values()) == list(found["window_vertices"].values())


def following(out):
    """Return the command that the last line names."""
    last = out.splitlines()[-1]
    assert last.startswith("Next: evergraph ")
    return shlex.split(last.removeprefix("Next: evergraph "))


def test_inspect_recommends_a_history_and_a_command_that_works(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(inspect, "_FEW", 10)
    for name, edges in (("one graph", True), ("no 'edges'", False)):
        graph = synthetic(vertices=300, times=6, seed=1)
        columns = {"id": list(graph.ids), "time": graph.times.tolist(), "label": graph.labels.tolist()}
        ends = zip(*(graph.ids[end].tolist() for end in graph.links.ends()[:2]), strict=True)
        EvolvingGraph.build(columns, list(ends) if edges else None, features=[[1.0]] * 300).save(name)
        out = command("inspect", name)[1]
        size = choose_history(graph, first_task(graph)) if edges else first_task(graph) - graph.first_time
        assert f"Recommended history: {size}, " in out
        assert ("because the graph has no edges" in out) == (not edges)
        words = following(out)
        assert words == ["run", name, "--history", str(size), "--seeds", "0-2", "--out", f"{name}-run"]
        assert command(*words, "--steps", 1, "--jobs", 1)[0] == 0
        assert "--out" not in following(command("inspect", name)[1])  # another run is there
    monkeypatch.setattr(inspect, "_FEW", 1_000)
    out = " ".join(command("inspect", "one graph")[1].split())
    assert "Recommended history: full." in out
    assert "--history full --seeds 0-2" in out


def test_inspect_recommends_the_smallest_history_with_enough_vertices(monkeypatch, command):
    found = json.loads(command("inspect", "metamath", "--json")[1])
    auto, size = found["auto_history"], found["past_history"]["75"]
    assert auto < size
    monkeypatch.setattr(inspect, "_FEW", found["window_vertices"]["75"])  # more than auto leaves
    found = json.loads(command("inspect", "metamath", "--json")[1])
    assert found["reason"].startswith(f"Recommended history: {size}. --history auto takes {auto}, which leaves only ")
    assert f"--history {size} --seeds 0-2" in found["command"]


def test_inspect_names_no_command_that_would_fail(tmp_path, command):
    for name, columns, why in [
        ("one", {"id": ["a", "b"], "time": [1, 1], "label": ["x", "y"]}, "there is no task to run"),
        ("none", {"id": ["a", "b"], "time": [1, 2]}, "there is nothing to train on"),
    ]:
        EvolvingGraph.build(columns).save(tmp_path / name)
        code, out, _ = command("inspect", tmp_path / name)
        assert (code, "Next:" in out) == (0, False)
        assert why in " ".join(out.split())


def test_inspect_k_changes_the_pairs(tmp_path, command):
    graph = synthetic(vertices=300, seed=1)
    graph.save(tmp_path / "g")
    for k in (1, 3):
        found = json.loads(command("inspect", tmp_path / "g", "-k", k, "--json")[1])
        exact = tdiff(graph, k)
        assert found["pairs"] == exact.pairs
        assert found["history"] == {str(level): size for level, size in exact.history_sizes().items()}
    sampled = json.loads(command("inspect", tmp_path / "g", "--sample", 100, "--json")[1])
    assert 0 < sampled["error"] < 1


def test_inspect_for_people_fits_eighty_columns(monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = command("inspect", "synthetic")
    assert code == 0
    assert "history size" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    "vertices",
    [
        {"id": ["a"], "time": [2000]},
        {"id": ["a", "b"], "time": [2000, 2001]},
        {"id": ["a", "b"], "time": [2000, 2000], "label": ["x", "x"]},
        {"id": ["a", "b", "c"], "time": ["2000-01-01", "2000-03-01", "2001-01-01"], "label": ["x", None, "y"]},
    ],
)
@pytest.mark.parametrize("edges", [None, [("a", "b")]])
def test_inspect_of_graphs_that_lack_something(tmp_path, vertices, edges, command):
    if edges and len(vertices["id"]) < 2:
        edges = None
    EvolvingGraph.build(vertices, edges, every="month" if isinstance(vertices["time"][0], str) else None).save(
        tmp_path / "g"
    )
    code, out, err = command("inspect", tmp_path / "g")
    assert code == 0, err
    assert "vertices" in out
    found = json.loads(command("inspect", tmp_path / "g", "--json")[1])
    assert (found["history"] is None) == (found["pairs"] == 0)


def test_figures_are_drawn_and_repeat_byte_for_byte(tmp_path, monkeypatch, command):
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        monkeypatch.chdir(folder)
        assert command("inspect", "synthetic", "--figures", "drawn")[0] == 0
    drawn = tmp_path / "one" / "drawn"
    names = {"time_differences", "drift_per_task", "distributions", "unseen_per_task"}
    assert {path.name for path in drawn.iterdir()} == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    for path in drawn.iterdir():
        assert path.read_bytes() == (tmp_path / "two" / "drawn" / path.name).read_bytes()


def test_quiet_is_quiet(tmp_path, command):
    assert command("inspect", "synthetic", "--quiet") == (0, "", "")


def test_records_and_planetoid_and_published_can_be_imported(tmp_path, shared_data, command):
    path = tmp_path / "r.jsonl"
    path.write_text('{"id": "a", "year": 2000, "venue": "KDD", "references": ["b"]}\n{"id": "b", "year": 1999}\n')
    code, out, _ = command("import", "records", path, "--edges", "citations", "--out", tmp_path / "r", "--json")
    assert (code, json.loads(out)["edges"]) == (0, 1)
    folder = shared_data("planetoid")
    arguments = ("import", "planetoid", folder, "--name", "citeseer", "--split", "B", "--out", tmp_path / "p", "--json")
    code, out, _ = command(*arguments)
    assert (code, json.loads(out)["vertices"]) == (0, 3327)
    code, _, err = command("import", "published", "no-such-name", "--out", tmp_path / "z")
    assert code == 2
    assert "dblp-easy" in err


def test_a_generated_graph_is_that_of_its_options(tmp_path, command):
    options = ("--vertices", "1_000", "--edges", "4_000", "--times", "6", "--classes", "3", "--new-classes", "2")
    arguments = ("import", "synthetic", *options, "--seed", "7", "--out", tmp_path / "g")
    code, out, _ = command(*arguments, "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["vertices"], found["classes"], found["first_time"], found["last_time"]) == (1000, 5, 0, 5)
    assert found["edges"] == pytest.approx(4000, rel=0.05)
    made = synthetic(
        vertices=1000, times=6, classes=3, new_classes=2, degree=8.0, homophily=0.4, text_noise=0.8, seed=7
    )
    assert fingerprint(EvolvingGraph.open(tmp_path / "g")) == fingerprint(made)
    code, _, err = command(*arguments)
    assert code == 2
    assert "there is a graph already" in err
    code, _, err = command("import", "synthetic", "--vertices", "10", "--edges", "1_000_000", "--out", tmp_path / "h")
    assert code == 2
    assert "--edges is 1,000,000" in err
    assert not (tmp_path / "h").exists()


@pytest.mark.parametrize(
    "arguments", [("inspect",), ("import", "tables"), ("nonsense",), ("inspect", "metamath", "-k", "0")]
)
def test_wrong_usage_is_bad_input(arguments, command):
    code, _, err = command(*arguments)
    assert code == 2
    assert "Traceback" not in err


def test_help_and_import_need_nothing_heavy():
    """No torch, and none of the libraries that take long to load."""
    check = "import sys; heavy = {'torch', 'numba', 'matplotlib', 'pyarrow', 'scipy', 'pandas'} & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    for use in ("import evergraph", "import evergraph.cli"):
        done = subprocess.run([sys.executable, "-c", f"{use}; {check}"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert "Usage: " in evergraph("--help").stdout


def test_ctrl_c_while_importing_leaves_no_graph(tmp_path):
    rows = 300_000
    (tmp_path / "v.csv").write_text(
        "id,time,label,text\n" + "".join(f"{i},{2000 + i % 9},x,words {i}\n" for i in range(rows))
    )
    (tmp_path / "e.csv").write_text("source,target\n" + "".join(f"{i},{i // 2}\n" for i in range(rows)))
    command = [*EVERGRAPH, "import", "tables", "--vertices", "v.csv", "--edges", "e.csv", "--out", "g"]
    child = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    time.sleep(0.9)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert "Traceback" not in err
    if child.returncode == 0:
        assert len(EvolvingGraph.open(tmp_path / "g")) == rows
    else:
        assert not (tmp_path / "g").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a device that is always full")
def test_output_that_cannot_be_written_is_an_error_without_a_traceback():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*EVERGRAPH, "inspect", "synthetic", "--json"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    assert os.strerror(28) in done.stderr


def broken_commands(app):
    raise RuntimeError("out of order")


def clashing_commands(app):
    app.command("fine")(lambda: None)
    app.command("run")(lambda: None)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("no_such_package:add", "no_such_package.*cannot be loaded"),
        ("tests.cli.test_cli:broken_commands", "out of order"),
        ("tests.cli.test_cli:clashing_commands", "there is a command 'run' already"),
    ],
)
def test_commands_of_a_package_that_cannot_be_used_are_named_and_left_out(place, told, monkeypatch, capsys):
    entry = EntryPoint("theirs", place, "evergraph.commands")
    monkeypatch.setattr(cli, "entry_points", lambda **_: [entry])
    before = list(cli.app.registered_commands)
    cli._add_plugins()
    assert re.search(
        f"Warning: the commands of the package {place.partition(':')[0]} cannot be used: .*{told}",
        capsys.readouterr().err,
    )
    assert cli.app.registered_commands == before
