"""The command ``evergraph tune``, and settings files in other commands."""

import json
import subprocess
import sys
import time

import pytest

from evergraph.errors import InputError
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.settings_file import parse_settings, read_settings, workspace_settings, write_settings
from evergraph.names import build_detector, build_model
from evergraph.workspace import Workspace
from tests.evaluation.test_tuning import GRAPH

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK = ("--steps", "2", "--first", "3", "--until", "4", "--seeds", "0-1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "g"
    GRAPH.save(path)
    return path


def settings_file(path, **settings):
    content = {"format": "evergraph settings", "format_version": 1, "settings": settings, "source": {}}
    path.write_text(json.dumps(content))
    return path


# --- the command -----------------------------------------------------------------------------------------------------


def test_tables_files_and_the_next_step(tmp_path, folder, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    code, out, err = command("tune", folder, *QUICK, "--trials", "3")
    assert code == 0
    assert "3 of 3 trials done" in err
    assert "Tuned on 2 tasks (3 to 4) for accuracy" in out
    for part in ("Best trials", "Settings", "Later tasks", "defaults", "On 5 to 7, which the search has not seen"):
        assert part in out
    assert max(map(len, out.splitlines()[:-1])) <= 80
    assert {path.name for path in (tmp_path / "tuned").iterdir()} >= {
        "settings.json",
        "study.db",
        "tuning.png",
        "tuning.svg",
    }
    assert out.splitlines()[-1] == f"Next: evergraph run {folder} --settings tuned/settings.json"
    content = json.loads((tmp_path / "tuned" / "settings.json").read_text())
    assert (content["format"], content["format_version"]) == ("evergraph settings", 1)
    assert content["source"]["trials"] == 3
    assert content["source"]["tuned_on"] == [3, 4]


def test_json_and_a_second_run_that_only_reads(tmp_path, folder, command):
    arguments = ("tune", folder, *QUICK, "--trials", "3", "--out", tmp_path / "t", "--json", "--metric", "open-f1")
    code, out, _ = command(*arguments)
    assert code == 0
    found = json.loads(out)
    assert len(found["trials"]) == 3
    assert found["trials"][0]["parameters"]["objective"] == "mcc"
    assert {"accuracy", "open_f1", "seconds"} <= set(found["later"]["tuned"])
    assert found["later"]["times"] == [5, 6, 7]
    again = json.loads(command(*arguments)[1])
    assert again["trials"] == found["trials"]
    assert (
        again["settings"] == found["settings"] == json.loads((tmp_path / "t" / "settings.json").read_text())["settings"]
    )


def test_without_later_tasks(tmp_path, folder, command):
    arguments = ("--steps", "1", "--first", "6", "--until", "7", "--trials", "2", "--out", tmp_path / "t")
    code, out, _ = command("tune", folder, *arguments)
    assert code == 0
    assert "Later tasks" not in out
    code, out, err = command("tune", folder, *arguments, "--quiet")
    assert (code, out, err) == (0, "", "")


def test_without_optuna(tmp_path, folder, monkeypatch, command):
    monkeypatch.setitem(sys.modules, "optuna", None)
    for name in ("search_space", "tuning"):
        monkeypatch.delitem(sys.modules, f"evergraph.evaluation.{name}", raising=False)
    code, _, err = command("tune", folder, "--out", tmp_path / "t")
    assert code == 2
    assert "Optuna is not installed. Run: pip install 'evergraph[tune]'." in err


def test_an_interrupt_says_how_to_continue(tmp_path, folder):
    # A process that starts this one in the background may have made it ignore interrupts.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from evergraph.cli import main; main()"
    words = [sys.executable, "-c", code, "tune", folder, "--steps", "2000", "--out", tmp_path / "t"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not (tmp_path / "t" / "study.db").exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(2)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "Interrupted. Finished trials are stored. Run the same command again to continue." in err


def test_a_file_in_place_of_the_folder(tmp_path, folder, command):
    (tmp_path / "t").write_text("")
    code, _, err = command("tune", folder, "--out", tmp_path / "t")
    assert code == 2
    assert "this is a file, not a folder" in err


# --- settings files --------------------------------------------------------------------------------------------------


def test_a_settings_file_gives_the_settings_back(tmp_path):
    model, detector = build_model("saint:hidden=64"), build_detector("relative-energy/budget:50")
    for configuration in (
        Configuration(),
        Configuration(model, detector, history="full", restart="cold", lr=0.01, inputs="words,classes", first=3),
    ):
        write_settings(tmp_path / "s.json", configuration, {"graph": "g"}, GRAPH.axis)
        assert Configuration(**read_settings(tmp_path / "s.json")) == configuration


def content(**changed):
    return {"format": "evergraph settings", "format_version": 1, "settings": {}} | changed


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "not a file of settings"),
        ({"settings": {}}, "'format'"),
        (content(format_version=2), "'format_version' is 2"),
        (content(format_version=True), "'format_version' is True"),
        (content(setings={}), "no key 'setings'. Write 'settings'"),
        (content(settings=[]), "'settings' is missing or not an object"),
        (content(settings={"histroy": 3}), "no key 'settings.histroy'. Write 'settings.history'"),
        (content(settings={"zzz": 3}), "no key 'settings.zzz'. Remove it; there are:"),
        (content(settings={"history": 2.5}), "'settings.history' is 2.5. Set it to a number of periods"),
        (content(settings={"history": 0}), "'settings.history': the history is 0"),
        (content(settings={"history": "some"}), "'settings.history'"),
        (content(settings={"steps": True}), "'settings.steps' is True"),
        (content(settings={"steps": 0}), "'settings.steps'"),
        (content(settings={"lr": -1}), "'settings.lr'"),
        (content(settings={"mode": "both"}), "'settings.mode'"),
        (content(settings={"label_rate": 2}), "'settings.label_rate'"),
        (content(settings={"restart": "often"}), "'settings.restart'"),
        (content(settings={"inputs": "letters"}), "'settings.inputs'"),
        (content(settings={"inputs": [1]}), "'settings.inputs'"),
        (content(settings={"model": {"hidden": 3}}), "'settings.model': it has no name"),
        (content(settings={"model": {"name": "sage", "hiden": 3}}), "'settings.model': the model sage has no setting"),
        (content(settings={"model": {"name": "sage", "hidden": "x"}}), "'settings.model'"),
        (content(settings={"model": "sags"}), "'settings.model'"),
        (content(settings={"detector": {"name": "auto", "version": 1}}), "'settings.detector'"),
        (content(settings={"detector": {"name": "gdoc", "threshold": 7}}), "'settings.detector'"),
    ],
)
def test_bad_settings_files_name_file_key_and_fix(tmp_path, bad, message):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(bad))
    with pytest.raises(InputError) as refused:
        read_settings(path)
    assert str(refused.value).startswith(str(path))
    assert message in str(refused.value)
    assert refused.value.fix


def test_damaged_and_missing_files(tmp_path):
    (tmp_path / "s.json").write_text('{"format": "evergraph settings", "form')
    with pytest.raises(InputError, match=r"s\.json: the file of settings is damaged"):
        read_settings(tmp_path / "s.json")
    with pytest.raises(InputError, match="cannot be read"):
        read_settings(tmp_path / "no.json")


def test_a_file_may_have_some_settings_only():
    found = parse_settings(content(settings={"model": {"name": "sage", "hidden": 8}, "history": 2}))
    assert (found["model"].hidden, found["model"].layers, found["history"]) == (8, 2, 2)
    assert workspace_settings(found, {"model": {"layers": 1}})["model"].layers == 1


# --- in other commands -----------------------------------------------------------------------------------------------


def test_options_of_run_override_the_file(tmp_path, folder, command):
    file = settings_file(tmp_path / "s.json", model={"name": "sage", "hidden": 8}, history=2, steps=1, restart="cold")
    code, out, err = command("run", folder, "--settings", file, "--json", "--jobs", "1")
    assert code == 0
    found = json.loads(out)["configuration"]
    assert (found["model"]["hidden"], found["history"], found["steps"], found["restart"]) == (8, 2, 1, "cold")
    assert f"Settings of {file}: model sage" in err
    assert "Options override" not in err
    more = ("--history", "auto", "--layers", "1", "--restart", "warm")
    code, out, err = command("run", folder, "--settings", file, *more, "--json", "--jobs", "1")
    assert code == 0
    found = json.loads(out)["configuration"]
    assert (found["model"]["hidden"], found["model"]["layers"]) == (8, 1)
    assert (found["history"], found["steps"], found["restart"]) == ("auto", 1, "warm")  # also a given default
    assert "Options override it: --history, --restart, --layers." in err
    code, out, _ = command("run", folder, "--settings", file, "--model", "sgc", "--json", "--jobs", "1")
    assert json.loads(out)["configuration"]["model"] == {"name": "sgc", "hops": 2}
    (tmp_path / "bad.json").write_text("{")
    code, _, err = command("run", folder, "--settings", tmp_path / "bad.json")
    assert code == 2
    assert "bad.json" in err


def test_compare_reads_a_settings_file(tmp_path, folder, command):
    file = settings_file(tmp_path / "s.json", history=2, steps=1, weight_decay=0.1, detector="gdoc")
    arguments = ("--detectors", "none,energy", "--out", tmp_path / "c", "--json", "--jobs", "1")
    code, out, err = command("compare", folder, "--settings", file, *arguments)
    assert code == 0
    found = json.loads(out)
    assert (found["configuration"]["history"], found["configuration"]["weight_decay"]) == (2, 0.1)
    assert "does not use its settings: detector" in err
    if found["recommendation"] is not None:
        assert f"--settings {file}" in found["recommendation"]["command"]


def test_workspaces_read_a_settings_file(tmp_path, folder, command):
    file = settings_file(
        tmp_path / "s.json", model={"name": "sage", "hidden": 8}, history=2, steps=1, lr=0.02, restart="cold"
    )
    code, _, err = command("ws", "init", tmp_path / "ws", "--graph", folder, "--settings", file, "--lr", "0.03")
    assert code == 0, err
    assert "Options override it: --lr." in err
    assert "does not use its settings: restart." in err
    found = Workspace(tmp_path / "ws").settings()
    assert (found["history"], found["model"]["hidden"], found["steps"], found["lr"]) == (2, 8, 1, 0.03)
    other = settings_file(tmp_path / "o.json", history=3, model={"name": "sage", "hidden": 4}, lr=None)
    code, _, err = command("ws", "set", tmp_path / "ws", "--settings", other, "--steps", "2", "--layers", "1")
    assert code == 0, err
    found = Workspace(tmp_path / "ws").settings()
    assert (found["history"], found["steps"], found["lr"]) == (3, 2, 0.03)
    assert (found["model"]["hidden"], found["model"]["layers"]) == (4, 1)
    created = Workspace.create(tmp_path / "python", GRAPH, **workspace_settings(read_settings(file)))
    assert created.settings()["history"] == 2
