"""``evergraph compare --learners``: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evergraph.datasets import synthetic
from evergraph.evaluation import learners as module
from evergraph.evaluation.learners import LEARNER_METRICS

pytestmark = pytest.mark.usefixtures("one_thread")

Command = Callable[..., tuple[int, str, str]]

NAMES = "window:1,window:full+model:mlp"
OPTIONS = ("--hidden", 4, "--steps", 3, "--lr", 0.05, "--first", 4, "--jobs", 1, "--detectors", "none")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "one"
    synthetic(vertices=160, times=6, classes=3, new_classes=1, words=40, words_per_vertex=4, seed=2).save(path)
    return path


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out") / "compared"


def no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing, which takes seconds."""
    monkeypatch.setattr("evergraph.report.learners.cost_figure", lambda *_: None)
    monkeypatch.setattr("evergraph.presentation.style.save", lambda _, stem, __: [stem.with_name(f"{stem.name}.png")])


def test_the_command_prints_json_or_a_table(
    command: Command, graph: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("compare", graph, "--learners", NAMES, *OPTIONS, "--out", out)
    code, text, err = command(*arguments, "--json")
    assert code == 0, err
    assert "2 of 2 trainings done" in err
    found = json.loads(text)
    assert [one["learner"] for one in found["results"]] == list(found["learners"]) == NAMES.split(",")
    assert set(LEARNER_METRICS) <= set(found["results"][0])
    assert found["results"][0]["configuration"]["model"]["hidden"] == 4
    assert found["results"][0]["configuration"]["detector"] == {"name": "none"}
    assert all(Path(path).is_file() for path in found["files"])
    best = found["recommendation"]
    changed = {"window:1": "--hidden 4 --history 1", "window:full+model:mlp": "--history full"}[best["learner"]]
    first, *options = changed.split(" --history ")
    assert best["command"].startswith(f"evergraph run {graph} ")
    words = shlex.split(best["command"])
    assert words[words.index("--history") + 1] == options[0]
    assert ("--hidden" in words) == ("--hidden" in first)
    assert words[words.index("--detector") + 1] == "none"

    monkeypatch.setenv("COLUMNS", "200")
    no_figure(monkeypatch)
    monkeypatch.setattr(module, "result_of", None)  # all results are stored
    code, text, err = command(*arguments)
    assert code == 0, err
    assert "Learners: accuracy by age of the class" in text
    assert "accuracy-cost.png" in text
    assert f"Recommended: {best['learner']}." in text
    assert text.splitlines()[-1] == f"Next: {best['command']}"
    assert command(*words[1:], "--json")[0] == 0
    assert command(*arguments, "--quiet") == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--learners", "windw:1"), "there is no part of a learner 'windw' (did you mean 'window'?)"),
        (("--learners", " "), "there is no learner to compare"),
        (("--learners", "window:1", "--detectors", "none,gdoc"), "--learners is given with 2 detectors"),
        (("--learners", "window:1", "--detectors", "enrgy"), "there is no detector 'enrgy'"),
        (("--learners", "window:1", "--leave-one-out"), "--learners and --leave-one-out are both given"),
        (("--learners", "window:1", "--families", "f.json"), "--families is given without --leave-one-out"),
        (("--learners", "window:1", "--first", "99"), "99"),
    ],
)
def test_bad_arguments_are_told_before_anything_is_written(
    command: Command, graph: Path, tmp_path: Path, arguments: Any, told: str
) -> None:
    code, text, err = command("compare", graph, "--out", tmp_path / "out", *arguments)
    assert (code, text) == (2, "")
    assert told in err
    assert not (tmp_path / "out").exists()


def test_a_failure_is_an_exit_code_and_an_interrupt_another(
    command: Command, graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(error: BaseException) -> Callable[..., None]:
        def raising(*_: Any) -> None:
            raise error

        return raising

    arguments = ("compare", graph, "--learners", "window:1", *OPTIONS, "--out", tmp_path / "out")
    monkeypatch.setattr(module, "result_of", fail(ValueError("it is odd")))
    code, text, err = command(*arguments)
    assert code == 1
    assert "There are no results." in text
    assert "one, window:1, seed 0: ValueError: it is odd" in err
    assert "1 training failed." in err
    code, text, _ = command(*arguments, "--json")
    assert (code, json.loads(text)["error"]["code"], json.loads(text)["recommendation"]) == (1, 1, None)
    monkeypatch.setattr(module, "result_of", fail(KeyboardInterrupt()))
    code, text, err = command(*arguments)
    assert (code, text) == (130, "")
    assert "Run the same command again to continue" in err


def test_options_of_a_settings_file_hold_for_all_learners(
    command: Command, graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_figure(monkeypatch)
    file = tmp_path / "settings.json"
    settings = {"steps": 2, "restart": "cold"}
    content = {"format": "evergraph settings", "format_version": 1, "settings": settings, "source": {}}
    file.write_text(json.dumps(content))
    arguments = ("--learners", "steps:200,restart:warm+steps:1", "--detectors", "none", "--first", 5, "--jobs", 1)
    code, text, err = command(
        "compare", graph, "--settings", file, *arguments, "--history", 1, "--out", tmp_path / "out", "--json"
    )
    assert code == 0, err
    found = json.loads(text)
    found_settings = [(one["configuration"]["steps"], one["configuration"]["restart"]) for one in found["results"]]
    assert found_settings == [(200, "cold"), (1, "warm")]
    words = shlex.split(found["recommendation"]["command"])
    assert words[words.index("--settings") + 1] == str(file)
    steps = {"steps:200": "200", "restart:warm+steps:1": "1"}[found["recommendation"]["learner"]]
    assert words[words.index("--steps") + 1] == steps  # also if it is the default
