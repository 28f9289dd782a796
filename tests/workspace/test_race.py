"""Several processes on one workspace (``scripts/race_workspace.py``), and that its checks find what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evergraph.datasets import synthetic
from evergraph.nn import MLP
from evergraph.workspace import Workspace
from tests.scripts import script

race: Any = script("race_workspace")


@pytest.mark.slow
def test_processes_at_the_same_time_lose_and_double_nothing(tmp_path: Path) -> None:
    commands, problems = race.race(tmp_path, processes=4, seconds=10)
    assert problems == []
    assert any(one.code == 0 and not one.reads for one in commands)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    graph = synthetic(vertices=100, times=4, classes=3, new_classes=0, seed=0)
    return Workspace.create(tmp_path / "ws", graph, model=MLP(hidden=4), history=2, steps=1)


def added(name: str, version: int, what: str) -> Any:
    answer = {"version": version, "what": what}
    return race.Command("add", ["ws", "add"], {"add": [name]}, code=0, answer=answer)


def test_the_checks_find_lost_and_doubled_changes(workspace: Workspace) -> None:
    first = race.labels_of(workspace.graph)
    outcome = workspace.add({"id": [1000], "time": [workspace.state.last_time], "text": ["w0001"]})
    real = added("1000", outcome.version, outcome.what)
    assert race.find_problems(workspace, [real], first) == []
    assert "doubled" in race.find_problems(workspace, [], first)[0]
    assert "lost" in race.find_problems(workspace, [real, added("1001", 3, "1 vertex")], first)[0]
    assert "twice" in race.find_problems(workspace, [real, real], first)[0]
    other = added("1002", outcome.version, outcome.what)
    assert "the vertices and labels are not" in race.find_problems(workspace, [other], first)[0]


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (race.Command("add", [], code=3, answer={"error": {"kind": "busy"}}), None),
        (race.Command("update", [], code=3, answer={"error": {"kind": "stale"}}), None),
        (race.Command("add", [], code=2, answer={"error": {"kind": "input"}}), None),
        (race.Command("add", [], code=2, answer={"error": {"kind": "damage"}}), "code 2 (damage)"),
        (race.Command("add", [], code=-6), "code -6 (None)"),
        (race.Command("status", [], code=3, reads=True, answer={"error": {"kind": "busy"}}), "code 3 (busy)"),
        (race.Command("add", [], code=1, errors="Traceback"), "traceback"),
    ],
)
def test_only_documented_codes_are_accepted(command: Any, problem: str | None) -> None:
    assert command.problem == problem


def test_a_workspace_says_which_version_its_last_command_made(workspace: Workspace, tmp_path: Path) -> None:
    workspace.add({"id": [1000], "time": [workspace.state.last_time], "text": ["w0001"]})
    assert workspace.made == 2
    workspace.predict()
    Workspace(tmp_path / "ws").add({"id": [1001], "time": [workspace.state.last_time], "text": ["w0001"]})
    assert (workspace.made, workspace.state.version) == (3, 4)
    workspace.predict()
    workspace.predict()
    assert workspace.made is None
